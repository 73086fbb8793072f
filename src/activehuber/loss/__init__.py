"""The Huber loss and its one-dimensional minimisations."""
