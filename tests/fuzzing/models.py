"""Broken model files, drawn and judged by `tests/fuzzing/model_files.py`, as a part of all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.fuzzing import model_files
from tests.fuzzing.verdict import ACCEPTED, FAILED, REFUSED, Verdict


def trial(seed: int, number: int) -> Verdict:
    """Draw a file and judge what comes of it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = model_files.try_case(seed, number, Path(folder))
        except AssertionError as error:
            return Verdict(FAILED, str(error).strip().splitlines()[-1], str(error))
    return Verdict(ACCEPTED) if found == "accepted" else Verdict(REFUSED, found)


def describe(seed: int, number: int, verdict: Verdict) -> str:
    """Which model was corrupted, and how."""
    name, _, story = model_files.draw(seed, number)
    return f"{name}: {story}"
