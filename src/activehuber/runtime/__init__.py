"""The process around the mathematics: interrupts, streams, memory, one line for a person."""
