"""Numbers, dates and yes or no out of text, whole columns at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from activehuber._typing import Mask
from activehuber.runtime.messages import TableError, shortened

if TYPE_CHECKING:
    import pandas as pd

# Cells that are looked at to guess the decimal mark.
SNIFFED_CELLS = 20_000
# Cells that mean "nothing here", in lower case.
MISSING = frozenset(
    ["", "na", "n/a", "nan", "null", "none", "nil", "-", "?", "#n/a", "<na>", "nat", "."]
)
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+")
# "1,500" may be fifteen hundred or one and a half; these cannot be thousands.
_SURELY_DECIMAL = re.compile(r"[+-]?(?:0?,\d+|\d*,(?:\d{1,2}|\d{4,})|\d{4,},\d+)")
_THOUSANDS = {
    ",": re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?"),
    ".": re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+(?:,\d*)?"),
}
# These cannot be anything but thousands: two separators, or one and the decimal mark.
_SURELY_THOUSANDS = {
    ",": re.compile(r"[+-]?\d{1,3}(?:(?:,\d{3}){2,}(?:\.\d*)?|,\d{3}\.\d*)"),
    ".": re.compile(r"[+-]?\d{1,3}(?:(?:\.\d{3}){2,}(?:,\d*)?|\.\d{3},\d*)"),
}
_MONTH_FIRST, _DAY_FIRST = "%m/%d/%Y", "%d/%m/%Y"
_DATES = (
    (re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{1,2}:\d{2}.*)?"), "ISO8601"),
    (re.compile(r"\d{4}/\d{1,2}/\d{1,2}"), "%Y/%m/%d"),
    (re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}"), "%d.%m.%Y"),
    (re.compile(r"\d{1,2}/\d{1,2}/\d{4}"), _MONTH_FIRST),
)
# All forms that text is read in as dates.
DATE_LAYOUTS = (*(layout for _, layout in _DATES), _DAY_FIRST)


def stripped(cells: Iterable[str]) -> list[str | None]:
    """Cells without outer blanks, None where there is nothing."""
    texts = (cell.strip() for cell in cells)
    return [None if text.lower() in MISSING else text for text in texts]


def parse_column(
    cells: np.ndarray, name: str, *, decimal_comma: bool = False
) -> tuple[pd.Series | np.ndarray, str | None]:
    """A column of text as numbers, yes/no, dates or text, whichever all its cells are.

    Parameters
    ----------
    cells : ndarray of shape (n,), object
        Text as written.
    name : str
        For the note.
    decimal_comma : bool
        Whether "1,500" is one and a half.

    Returns
    -------
    column : ndarray of float64, or pandas.Series of bool, datetime64 or object
    note : str or None
        A sentence where the reading is a guess.
    """
    import pandas as pd

    fast = None if decimal_comma else _as_floats(cells)
    if fast is not None:
        return fast, None
    texts = stripped(cells)
    given = [text for text in texts if text is not None]
    numbers, note = _numbers(given, name, decimal_comma=decimal_comma)
    if numbers is not None:
        column = np.full(len(texts), np.nan)
        column[[text is not None for text in texts]] = numbers
        return column, note
    if None not in texts and {text.lower() for text in given} <= {"true", "false"}:
        return pd.Series([text.lower() == "true" for text in given]), None
    words = pd.Series(texts, dtype=object)
    layout, doubt = text_date_layout(words, name)
    return (words if layout is None else _dates(words, layout)), doubt


def _as_floats(cells: np.ndarray) -> np.ndarray | None:
    """The usual case: all cells are plain numbers or empty."""
    try:
        found = np.where(cells == "", "nan", cells).astype(np.float64)
    except (ValueError, TypeError):
        return None
    # float() also takes "infinity", "nan" and "1_000"; the first two are what they say.
    return None if any("_" in cell for cell in cells) else found


def _numbers(
    given: list[str], name: str, *, decimal_comma: bool
) -> tuple[np.ndarray | None, str | None]:
    """Numbers of all cells or None; thousands only where nothing else can be meant."""
    decimal, group = (",", ".") if decimal_comma else (".", ",")
    plain = _convert(given, decimal)
    if plain is not None:
        return plain, None
    certain = any(_SURELY_THOUSANDS[group].fullmatch(cell) for cell in given)
    if not certain or any(group in c and not _THOUSANDS[group].fullmatch(c) for c in given):
        return None, None
    note = f"Column {name}: {group!r} was read as a separator of thousands."
    return _convert([cell.replace(group, "") for cell in given], decimal), note


def _convert(texts: list[str], decimal: str) -> np.ndarray | None:
    if decimal == "," and any("." in text for text in texts):
        return None
    return _as_floats(np.array([text.replace(decimal, ".") for text in texts], dtype=object))


def has_decimal_comma(columns: list[Any]) -> bool:
    """Whether commas are decimal marks: some can be nothing else, and no point is one."""
    sample = max(1, SNIFFED_CELLS // max(1, len(columns)))
    points = commas = 0
    for column in columns[:SNIFFED_CELLS]:
        for cell in column[:sample].to_pylist():
            text = cell.strip()
            if "," in text:
                commas += _SURELY_DECIMAL.fullmatch(text) is not None
            elif "." in text:
                points += _POINT_NUMBER.fullmatch(text) is not None
    return commas > points


def _date_layout(given: list[str]) -> str | None:
    """The one form that all cells have, or None if they are no dates."""
    for pattern, layout in _DATES:
        if given and all(pattern.fullmatch(text) for text in given):
            day_first = layout == _MONTH_FIRST and _largest_part(given, 0) > 12
            return _DAY_FIRST if day_first else layout
    return None


def _largest_part(given: list[str], place: int) -> int:
    return max(int(text.split("/")[place]) for text in given)


def _dates(texts: Any, layout: str, errors: str = "raise") -> pd.Series:
    """Dates of text, or an error if some day is in no calendar."""
    import pandas as pd

    # One zone for all: mixed offsets are no single column otherwise.
    cells = pd.Series(texts, dtype=object)
    return pd.to_datetime(cells, format=layout, utc=True, errors=errors).dt.tz_localize(None)


def text_date_layout(column: pd.Series, name: str) -> tuple[str | None, str | None]:
    """The form of the dates in a column of text, and a sentence where that is a guess.

    None if its cells are not all dates that the CSV reader would take for such.
    """
    # Each text once: dates repeat.
    given = [text for text in stripped(column.dropna().unique()) if text is not None]
    layout = _date_layout(given)
    if layout is None:
        return None, None
    try:
        _dates(given, layout)
    except (ValueError, TypeError, OverflowError):
        return None, None
    if layout != _MONTH_FIRST or _largest_part(given, 1) > 12:
        return layout, None
    return layout, f"Column {name}: dates were read as month/day/year; no day settles it."


def has_thousands(text: str) -> bool:
    """Whether a cell looks like a number with separators of thousands."""
    return any(pattern.fullmatch(text.strip()) for pattern in _THOUSANDS.values())


def read_numbers(column: pd.Series) -> np.ndarray:
    """A column of any type as floats of shape (n,), NaN where a cell is no number."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return np.full(len(column), np.nan)
    found = pd.to_numeric(column.astype(object), errors="coerce")
    return found.to_numpy(dtype=np.float64, na_value=np.nan)


def read_dates(column: pd.Series, layout: str | None = None) -> np.ndarray:
    """A column as datetime64[ns] of shape (n,), NaT where a cell is no date.

    Text is read in the form `layout`, or if that is None in the one that all cells have.
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        zone = getattr(column.dt, "tz", None)
        plain = column if zone is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
        return plain.to_numpy(dtype="datetime64[ns]")
    places, cells = pd.factorize(column)  # each text once; −1 where there is none
    texts = stripped(map(str, cells))
    layout = layout or _date_layout([text for text in texts if text is not None])
    if layout is None:
        return np.full(len(column), np.datetime64("NaT", "ns"))
    found = _dates([*texts, None], layout, errors="coerce")
    return found.to_numpy(dtype="datetime64[ns]")[places]


def offending(column: pd.Series, numbers: np.ndarray, most: int = 3) -> str | None:
    """The first cells that are there but are no finite number: "row 3 'abc', …"; or None."""
    bad = ~np.isfinite(numbers) & ~column.isna().to_numpy()
    if not np.any(bad):
        return None
    rows = np.flatnonzero(bad)
    shown = [f"row {row + 1} {shortened(column.iloc[row])!r}" for row in rows[:most]]
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return ", ".join(shown) + more


def mask_of_words(column: pd.Series, name: str) -> Mask:
    """A column of yes and no as a mask of shape (n,); an empty cell is no."""
    yes, no = {"1", "1.0", "true", "t", "yes", "y", "x"}, {"0", "0.0", "false", "f", "no", "n"}
    cells = zip(column, column.isna(), strict=True)
    words = ["no" if gone else str(cell).strip().lower() for cell, gone in cells]
    for row, word in enumerate(words):
        if word not in yes | no:
            raise TableError(
                f"column {shortened(name)!r} must hold yes or no (1 or 0, true or false), but "
                f"row {row + 1} has {shortened(column.iloc[row])!r}"
            )
    return np.array([word in yes for word in words], dtype=bool)
