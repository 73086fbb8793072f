"""Numbers and words as text; tables as CSV that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

# Characters with which a spreadsheet takes a cell for a formula; some read other forms of them,
# such as the wide ones, alike.
FORMULA_STARTS = frozenset("=+-@−")
# Characters that cannot be seen though they count as printable; spreadsheets may drop them.
_UNSEEN = frozenset(" \u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    *map(chr, range(0x180B, 0x1810)),
    *map(chr, range(0xFE00, 0xFE10)),
}
# Significant digits of computed numbers in CSV.
DIGITS = 7
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_PLAIN_NUMBER = re.compile(_NUMBER)


def csv_text(header: Iterable[str], columns: Iterable[Iterable[Any]]) -> str:
    """A CSV file as text.

    Floats have 7 significant digits, whole ones no point; NaN and None are empty. Text that a
    spreadsheet would take for a formula gets an apostrophe in front; text that is a number
    does not.
    """
    return csv_line(harmless(name) for name in header) + csv_rows(columns)


def csv_line(cells: Iterable[str]) -> str:
    """One line of a CSV file, cells as they are."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(list(cells))
    return out.getvalue()


def csv_rows(columns: Iterable[Iterable[Any]]) -> str:
    """The lines below the header; see `csv_text`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(zip(*map(_cells, columns), strict=True))
    return out.getvalue()


def _cells(column: Iterable[Any]) -> list[str]:
    if isinstance(column, np.ndarray) and column.dtype == np.float64:
        return ["" if value != value else f"{value:.{DIGITS}g}" for value in column.tolist()]
    return [_cell(value) for value in column]


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "" if value != value else f"{float(value):.{DIGITS}g}"
    return "" if value is None else harmless(str(value))


def harmless(text: str) -> str:
    """Text that no spreadsheet runs as a formula."""
    if text[:1].isalnum() and text[0] not in _UNSEEN:  # nearly all
        return text
    if _PLAIN_NUMBER.fullmatch(text.strip(" ")):
        return text
    # Behind spaces, marks of byte order and the like, which may get lost on the way.
    first = next((c for c in text if c.isprintable() and c not in _UNSEEN), "")
    risky = unicodedata.normalize("NFKC", first)[:1] in FORMULA_STARTS
    return f"'{text}" if risky or text[:1] in ("\t", "\r", "\n") else text


def plain_text(value: Any) -> str:
    """A value as one would write it: shortest exact digits, whole numbers without a point."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        whole = number.is_integer() and abs(number) < 1e15
        return str(int(number)) if whole else repr(number)
    return str(value)
