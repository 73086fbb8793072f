"""What is tried: which part a case belongs to, and one case of it.

A module of its own, since workers cannot import from `__main__`.
"""

from __future__ import annotations

from typing import Any

from tests.fuzzing import estimators, models, tables
from tests.fuzzing.verdict import Verdict

PARTS: dict[str, Any] = {"estimators": estimators, "tables": tables, "models": models}
# Of twenty tries so many are of each part.
TURNS = ("estimators",) * 14 + ("tables",) * 3 + ("models",) * 3


def part_of(number: int, part: str | None) -> str:
    """The part that a case belongs to, if all are not asked of one."""
    return part or TURNS[number % len(TURNS)]


def try_case(part: str | None, seed: int, number: int) -> Verdict:
    """One case of any part."""
    return PARTS[part_of(number, part)].trial(seed, number)
