"""One line for a person."""

from __future__ import annotations

from typing import Any


class TableError(ValueError):
    """A table or a file that cannot be used; the message is one line that says what to do."""


def shortened(value: Any, most: int = 30) -> str:
    """A value on one line, cut after some characters."""
    # Bytes of a file name that are no text are in it as halves of characters.
    whole = str(value).encode("utf-8", "replace").decode()
    text = " ".join("".join(c if c.isprintable() else " " for c in whole).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
