"""Thousands of drawn inputs, each answered or refused: never a hang, a crash or a NaN.

`python -m tests.fuzzing --tries 20000 --seed 0` draws them; see `tests/fuzzing/__main__.py`.
"""
