"""One line for a person."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

# Characters of a message that is handed on.
LONGEST_LINE = 500


class TableError(ValueError):
    """A table or a file that cannot be used; the message is one line that says what to do."""


def shortened(value: Any, most: int = 30) -> str:
    """A value on one line, cut after some characters."""
    # Bytes of a file name that are no text are in it as halves of characters.
    whole = str(value).encode("utf-8", "replace").decode()
    text = " ".join("".join(c if c.isprintable() else " " for c in whole).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(names: Iterable[Any], most: int = 5) -> str:
    """Names as "a, b, c and 4 more", each on one line and not too long."""
    every = list(names)
    text = ", ".join(shortened(name, 40) for name in every[:most])
    return f"{text} and {len(every) - most} more" if len(every) > most else text


def like(name: str, names: Iterable[str]) -> str:
    """A question in brackets if one of the names is nearly this one, else nothing."""
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {shortened(folded[near[0]])!r}?)" if near else ""


def first_line(error: object) -> str:
    """The first line of a message; one that is very long is cut after a word."""
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    line = shortened(text, LONGEST_LINE)
    return f"{line.rpartition(' ')[0]} …" if line.endswith("…") and " " in line else line
