"""How well people are counted: `python -m experiments.crowd`."""
