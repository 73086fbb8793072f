"""What may come of a try: an answer, or one clear error; anything else is a failure."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

import activehuber

SOURCE = str(Path(activehuber.__file__).parent)
ACCEPTED, REFUSED, FAILED = "accepted", "refused", "failed"
# Words of an error that say what it is about; the rest of it varies with the numbers.
FIRST_WORDS = 8


@dataclass(frozen=True)
class Verdict:
    """What came of a try.

    Attributes
    ----------
    kind : {"accepted", "refused", "failed"}
    why : str
        Equal for equal causes.
    detail : str
        For whoever looks into it.
    """

    kind: str
    why: str = ""
    detail: str = ""


class BadAnswerError(Exception):
    """An answer that no one should get; its text says which."""


def verdict_of(trial: Callable[[], str]) -> Verdict:
    """Call `trial`, which returns a word on what it answered, and judge what comes of it."""
    try:
        return Verdict(ACCEPTED, trial())
    except BadAnswerError as error:
        return Verdict(FAILED, str(error))
    except Exception as error:
        return judged(error)


def judged(error: Exception) -> Verdict:
    """Whether an error is a refusal: raised on purpose, as a ValueError or TypeError."""
    said = f"{type(error).__name__}: {' '.join(str(error).split()[:FIRST_WORDS])}"
    # LAPACK's complaint is a ValueError by inheritance, and no word to a user.
    kinds = isinstance(error, (ValueError, TypeError)) and not isinstance(
        error, (np.linalg.LinAlgError, UnicodeError)
    )
    handed_on = error.__cause__
    meant = handed_on is None or is_deliberate(handed_on.__traceback__)
    if kinds and meant and is_deliberate(error.__traceback__):
        return Verdict(REFUSED, said)
    detail = "".join(traceback.format_exception(error)[-12:])
    return Verdict(FAILED, f"{said} at {place_of(error.__traceback__)}", detail)


def is_deliberate(found: TracebackType | None) -> bool:
    """Whether the innermost frame is of scikit-learn's checks, or ours and says `raise`."""
    last = traceback.extract_tb(found)[-1]
    checks = (f"sklearn{os.sep}utils", f"sklearn{os.sep}model_selection")
    if any(folder in last.filename for folder in checks):
        return True
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(SOURCE) and line.startswith("raise")


def place_of(found: TracebackType | None) -> str:
    """File, line and function of the innermost frame of this package."""
    frames = [f for f in traceback.extract_tb(found) if f.filename.startswith(SOURCE)]
    if not frames:
        return "no line of activehuber"
    last = frames[-1]
    return f"{Path(last.filename).relative_to(SOURCE)}:{last.lineno} in {last.name}"
