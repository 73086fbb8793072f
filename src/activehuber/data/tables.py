"""Tables in, tables out: CSV and Parquet to a data frame, and files that are whole or absent.

bytes -> text (encoding) -> cells (delimiter) -> columns (numbers, dates, yes/no, text)
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from activehuber._typing import Mask
from activehuber.runtime.interrupts import cleaned_up
from activehuber.runtime.memory import memory_limit
from activehuber.runtime.messages import TableError, shortened

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = (",", ";", "\t", "|")
PARQUET_NAMES = (".parquet", ".pq")
# Cells that mean "nothing here", in lower case.
MISSING = frozenset(
    ["", "na", "n/a", "nan", "null", "none", "nil", "-", "?", "#n/a", "<na>", "nat", "."]
)
# Lines that are looked at to guess the delimiter, and cells to guess the decimal mark.
SNIFFED_LINES, SNIFFED_CELLS = 60, 20_000
# Above this share of NUL bytes a file is no text; below it they are taken out.
MOST_NULS = 0.01
# The same for other control characters, among the first ones; below it they stay.
MOST_CONTROLS, SNIFFED_TEXT = 0.01, 4_096
# Characters with which a spreadsheet takes a cell for a formula; some read other forms of them,
# such as the wide ones, alike.
FORMULA_STARTS = frozenset("=+-@−")
# Characters that cannot be seen though they count as printable; spreadsheets may drop them.
_UNSEEN = frozenset(" \u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    *map(chr, range(0x180B, 0x1810)),
    *map(chr, range(0xFE00, 0xFE10)),
}
# What a row takes at the peak of an audit: copies of its numbers, 8 bytes each (the file, the
# table, the features), and bytes of what is found out about it.
COPIES, BYTES_A_ROW = 5, 500
# Characters of a message that is handed on.
LONGEST_LINE = 500
# Characters of a path in a message.
LONGEST_PATH = 100
# Significant digits of computed numbers in CSV.
DIGITS = 7

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_PLAIN_NUMBER = re.compile(_NUMBER)
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
# Control characters other than NUL, tab and the ends of lines; ^Z once ended files.
_CONTROLS = re.compile("[\x01-\x08\x0e-\x19\x1b-\x1f]")
_MONTH_FIRST, _DAY_FIRST = "%m/%d/%Y", "%d/%m/%Y"
_DATES = (
    (re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{1,2}:\d{2}.*)?"), "ISO8601"),
    (re.compile(r"\d{4}/\d{1,2}/\d{1,2}"), "%Y/%m/%d"),
    (re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}"), "%d.%m.%Y"),
    (re.compile(r"\d{1,2}/\d{1,2}/\d{4}"), _MONTH_FIRST),
)
# All forms that text is read in as dates.
DATE_LAYOUTS = (*(layout for _, layout in _DATES), _DAY_FIRST)


@dataclass(frozen=True)
class Table:
    """A table as it was read.

    Attributes
    ----------
    frame : pandas.DataFrame
        Distinct column names; columns are float64, bool, datetime64 or text (object), with
        NaN, NaT or None where a cell is empty.
    notes : tuple of str
        Sentences on what was guessed or mended.
    digest : str
        SHA-256 of the file.
    repeated : frozenset of str
        Column names that the file has more than once.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    digest: str
    repeated: frozenset[str]


# --- reading ----------------------------------------------------------------------------


def read_table(path: str | Path, as_text: Collection[str] = ()) -> Table:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    path : str or Path
        Parquet by its name or its first bytes, else text with a header line.
    as_text : collection of str
        Columns whose cells are kept as they are written, such as ids and classes.

    Returns
    -------
    Table
    """
    path = Path(path)
    _check_size(path)
    content = _read_bytes(path)
    digest = hashlib.sha256(content).hexdigest()
    if path.suffix.lower() in PARQUET_NAMES or content[:4] == b"PAR1":
        frame, notes = _read_parquet(content, path.name, as_text)
    else:
        frame, notes = _read_csv(content, path.name, as_text)
    names, repeated, more = _distinct_names(list(frame.columns))
    frame.columns = names
    return Table(frame, (*notes, *more), digest, repeated)


def _check_size(path: Path) -> None:
    """Raise before any work if a Parquet file is too large for memory."""
    import pyarrow as pa
    from pyarrow import parquet

    if path.suffix.lower() not in PARQUET_NAMES or not path.is_file():
        return
    try:
        with parquet.ParquetFile(path) as file:
            rows, columns = file.metadata.num_rows, file.metadata.num_columns
    except (pa.ArrowException, OSError, ValueError):
        return  # what is wrong with it is said when it is read
    needed, limit = rows * (8.0 * COPIES * columns + BYTES_A_ROW), memory_limit()
    if needed > limit:
        raise TableError(
            f"{path.name}: {rows:,} rows × {columns} columns take about "
            f"{needed / 2**30:.1f} GiB as numbers, but this machine has "
            f"{limit / 2**30:.1f} GiB; use --engine dask on more machines, or a file with "
            "fewer columns"
        )


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise TableError(f"{path} is a directory; give a CSV or Parquet file")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TableError(f"{path} cannot be read: {reason}") from None
    if not content.strip(b"\x00\t\n\r \xef\xbb\xbf\xff\xfe"):
        raise TableError(f"{path} is empty; it needs a header line and rows")
    return content


def _read_parquet(
    content: bytes, name: str, as_text: Collection[str]
) -> tuple[pd.DataFrame, list[str]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(_arrow_stream(content))
        table.validate(full=True)  # damaged text would come to light much later
        frame = arrow_frame(table, as_text)
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise TableError(f"{name} is no readable Parquet file: {first_line(error)}") from None
    if not len(table):
        raise TableError(f"{name} has no rows")
    return frame, []


def _arrow_stream(content: bytes) -> Any:
    """Bytes to read, in Arrow's own memory.

    Arrow's threads may let go of what they read only after the table is there. If that is an
    object of Python and Python is about to end, the process is aborted.
    """
    import pyarrow as pa

    out = pa.BufferOutputStream()
    out.write(content)
    return pa.BufferReader(out.getvalue())


def arrow_frame(table: Any, as_text: Collection[str] = ()) -> pd.DataFrame:
    """The frame of an Arrow table, whose columns may have the same name."""
    import pandas as pd

    columns = [
        _as_written(column.to_pandas()) if title in as_text else column.to_pandas()
        for title, column in zip(table.column_names, table.columns, strict=True)
    ]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(len(table)))
    frame.columns = list(table.column_names)
    return frame


def parquet_dataset(path: Path) -> Any:
    """A Parquet file, or a folder of them, as a pyarrow dataset that is read piece by piece."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not path.exists():
        raise TableError(f"{path}: there is no such file")
    try:
        # Absolute, since workers have folders of their own.
        found = ds.dataset(str(path.resolve()), format="parquet")
        rows = found.count_rows()
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise TableError(
            f"{path.name} is no Parquet file, which --engine dask needs; use --engine local "
            f"({first_line(error)})"
        ) from None
    if not rows:
        raise TableError(f"{path.name} has no rows")
    return found


def parquet_pieces(dataset: Any) -> list[tuple[Any, int]]:
    """The row groups of a dataset in their order, each with its number of rows."""
    return [
        (piece, int(piece.row_groups[0].num_rows))
        for fragment in dataset.get_fragments()
        for piece in fragment.split_by_row_group()
        if piece.row_groups[0].num_rows
    ]


def file_digest(path: str) -> str:
    """SHA-256 of a file, read in parts."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_written(column: pd.Series) -> pd.Series:
    """A column as text; whole numbers without a point, None where missing."""
    gone = column.isna().to_numpy()
    cells = [
        None if none else plain_text(cell) for cell, none in zip(column, gone, strict=True)
    ]
    return _text_series(cells)


def _read_csv(
    content: bytes, name: str, as_text: Collection[str]
) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    text, notes = _decode(content, name)
    delimiter = sniff_delimiter(text)
    header, columns = _split(text, delimiter, name)
    columns, dropped = _without_empty_tail(columns)
    if dropped:
        notes.append(f"{dropped} empty {_rows(dropped)} at the end of the file left out.")
    if not columns or not len(columns[0]):
        raise TableError(f"{name} has a header line but no rows")
    comma = _has_decimal_comma(columns)
    if delimiter != "," or comma:
        spoken = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}[delimiter]
        mark = ", decimals by a comma" if comma else ""
        notes.append(f"Cells are separated by {spoken}{mark}.")
    parsed: list[Any] = []
    for title, column in zip(header, columns, strict=True):
        cells = _cells_of(column)
        if title in as_text:
            parsed.append(_text_series(_stripped(cells)))
        else:
            found, note = parse_column(cells, title, decimal_comma=comma)
            parsed.append(found)
            notes += [note] if note else []
    frame = _side_by_side(parsed) if parsed else pd.DataFrame()
    frame.columns = header
    return frame, notes


def _side_by_side(columns: list[Any]) -> pd.DataFrame:
    """Columns as one frame; numbers in one block, so that 10⁵ of them take no time."""
    import pandas as pd

    numeric = [i for i, column in enumerate(columns) if isinstance(column, np.ndarray)]
    others = [i for i, column in enumerate(columns) if not isinstance(column, np.ndarray)]
    parts = []
    if numeric:
        parts.append(pd.DataFrame(np.stack([columns[i] for i in numeric], axis=1)))
    if others:
        parts.append(pd.concat([columns[i] for i in others], axis=1))
    frame = pd.concat(parts, axis=1)
    order = np.argsort(np.array(numeric + others), kind="stable")
    frame.columns = range(frame.shape[1])
    return frame if np.array_equal(order, range(len(order))) else frame.iloc[:, order]


def _decode(content: bytes, name: str) -> tuple[str, list[str]]:
    """Bytes as text with line ends of one kind, and notes."""
    notes = []
    if content[:2] in (b"PK", b"\x1f\x8b"):
        raise TableError(f"{name} is packed or a spreadsheet; save the table as CSV or Parquet")
    encoding = _encoding_of(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise TableError(
                f"{name} starts like {encoding.upper()} text but is not; save it as UTF-8"
            ) from None
        text = content.decode("latin-1")
        notes.append("The file is not UTF-8; it was read as Latin-1.")
    nuls = text.count("\x00")
    head = text[:SNIFFED_TEXT]
    strange = len(_CONTROLS.findall(head))
    if nuls > MOST_NULS * len(text) or strange > MOST_CONTROLS * len(head):
        raise TableError(
            f"{name} is no text file (it holds bytes that no text has); give CSV or Parquet"
        )
    if nuls:
        text = text.replace("\x00", "")
        notes.append(f"{nuls} NUL {'byte' if nuls == 1 else 'bytes'} in the file left out.")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _encoding_of(content: bytes) -> str:
    """By the byte-order mark, or by where the zeros are."""
    if content.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    head = content[:4096]
    if len(head) >= 4 and head.count(0) > 0.4 * len(head):
        return "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    return "utf-8"


def sniff_delimiter(text: str) -> str:
    """The delimiter that cuts the first lines most evenly; "," if none cuts at all."""
    lines = [line for line in text[:200_000].split("\n", SNIFFED_LINES + 1) if line.strip()]
    lines = lines[:SNIFFED_LINES]
    best, best_score = ",", (0.0, 0)
    for delimiter in DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter, strict=False)]
        except csv.Error:
            continue
        if not widths or widths[0] < 2:
            continue
        even = sum(width == widths[0] for width in widths) / len(widths)
        if (even, widths[0]) > best_score:
            best, best_score = delimiter, (even, widths[0])
    return best


def _split(text: str, delimiter: str, name: str) -> tuple[list[str], list[Any]]:
    """Column names and the cells of each column, as Arrow has them; see `_cells_of`."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    encoded = text.encode("utf-8", "replace")
    try:
        table = arrow.read_csv(
            _arrow_stream(encoded),
            read_options=arrow.ReadOptions(
                autogenerate_column_names=True, block_size=min(len(encoded) + 16, 2**31 - 1)
            ),
            parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=_all_text(_first_width(text, delimiter)),
        )
    except (pa.ArrowException, ValueError, OSError):
        # Slower, but it knows the line, and it forgives what can be forgiven.
        return _split_slowly(text, delimiter, name)
    if any(len(column) == 0 for column in table.columns):
        return _split_slowly(text, delimiter, name)
    titles = [_title(column[0].as_py(), i) for i, column in enumerate(table.columns)]
    return titles, [column.slice(1) for column in table.columns]


def _cells_of(column: Any) -> np.ndarray:
    """Cells as an object array of str: for one column at a time, they are many bytes each."""
    return column if isinstance(column, np.ndarray) else column.to_numpy(zero_copy_only=False)


def _first_width(text: str, delimiter: str) -> int:
    try:
        return len(
            next((r for r in csv.reader(io.StringIO(text), delimiter=delimiter) if r), [])
        )
    except csv.Error:
        return 0


def _all_text(width: int) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    types = {f"f{i}": pa.string() for i in range(width)}
    return arrow.ConvertOptions(column_types=types, strings_can_be_null=False)


def _split_slowly(text: str, delimiter: str, name: str) -> tuple[list[str], list[np.ndarray]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip() and len(header) != 1):
                continue
            if not header:
                header = row
            elif len(row) != len(header):
                raise TableError(
                    f"{name}, line {reader.line_num}: {len(row)} cells, but the header has "
                    f"{len(header)}; mend that line or its quotes"
                )
            else:
                rows.append(row)
    except csv.Error as error:
        raise TableError(
            f"{name}, line {reader.line_num}: {error}; mend that line or its quotes"
        ) from None
    if not rows:
        raise TableError(f"{name} has a header line but no rows")
    columns = [np.array(column, dtype=object) for column in zip(*rows, strict=True)]
    return [_title(cell, i) for i, cell in enumerate(header)], columns


def _title(cell: str, position: int) -> str:
    return cell.strip() or f"column {position + 1}"


def _without_empty_tail(columns: list[Any]) -> tuple[list[Any], int]:
    """Columns without the rows at the end in which every cell is empty, as of spreadsheets."""
    length = len(columns[0]) if columns else 0
    keep = length
    while keep and len(columns) > 1 and not any(str(c[keep - 1]).strip() for c in columns):
        keep -= 1
    return ([column[:keep] for column in columns] if keep < length else columns), length - keep


def _distinct_names(names: list[Any]) -> tuple[list[str], frozenset[str], list[str]]:
    """Names made distinct by a number in brackets, those that were repeated, and notes."""
    texts = [str(name) for name in names]
    taken = set(texts)
    if len(taken) == len(texts):
        return texts, frozenset(), []
    seen: dict[str, int] = {}
    out, repeated = [], []
    for name in texts:
        seen[name] = seen.get(name, 0) + 1
        if seen[name] == 1:
            out.append(name)
            continue
        fresh = f"{name} ({seen[name]})"
        while fresh in taken:
            seen[name] += 1
            fresh = f"{name} ({seen[name]})"
        taken.add(fresh)
        out.append(fresh)
        repeated.append(name)
    return (
        out,
        frozenset(repeated),
        [f"Columns of the same name were numbered: {listed(dict.fromkeys(repeated))}."],
    )


# --- cells ------------------------------------------------------------------------------


def _stripped(cells: Iterable[str]) -> list[str | None]:
    """Cells without outer blanks, None where there is nothing."""
    texts = (cell.strip() for cell in cells)
    return [None if text.lower() in MISSING else text for text in texts]


def _text_series(cells: list[Any]) -> pd.Series:
    import pandas as pd

    return pd.Series(np.array([*cells, None], dtype=object)[:-1], dtype=object)


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
    texts = _stripped(cells)
    given = [text for text in texts if text is not None]
    if not given:
        return np.full(len(texts), np.nan), None
    numbers, note = _numbers(given, name, decimal_comma=decimal_comma)
    present = np.array([text is not None for text in texts])
    if numbers is not None:
        column = np.full(len(texts), np.nan)
        column[present] = numbers
        return column, note
    if {text.lower() for text in given} <= {"true", "false"} and np.all(present):
        return pd.Series([text.lower() == "true" for text in given]), None
    layout = _date_layout(given)
    dates = None if layout is None else _dates(texts, layout)
    if layout is None or dates is None:
        return _text_series(list(texts)), None
    return dates, _doubt_of_dates(given, layout, name)


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
    decimal = "," if decimal_comma else "."
    plain = _convert(given, decimal, "")
    if plain is not None:
        return plain, None
    group = "." if decimal_comma else ","
    kinds = [_THOUSANDS[group].fullmatch(cell) is not None for cell in given]
    certain = any(_SURELY_THOUSANDS[group].fullmatch(cell) for cell in given)
    if certain:
        found = _convert(given, decimal, group)
        if found is not None and all(
            kind or group not in cell for kind, cell in zip(kinds, given, strict=True)
        ):
            return found, f"Column {name}: {group!r} was read as a separator of thousands."
    return None, None


def _convert(given: list[str], decimal: str, group: str) -> np.ndarray | None:
    out = np.empty(len(given))
    for i, cell in enumerate(given):
        text = cell.replace(group, "") if group else cell
        if decimal != ".":
            if "." in text:
                return None
            text = text.replace(decimal, ".")
        try:
            out[i] = float(text)
        except ValueError:
            return None
        if "_" in text:
            return None
    return out


def _has_decimal_comma(columns: list[Any]) -> bool:
    """Whether commas are decimal marks: some can be nothing else, and no point is one."""
    sample = max(1, SNIFFED_CELLS // max(1, len(columns)))
    points = commas = 0
    for column in columns[:SNIFFED_CELLS]:
        for cell in _cells_of(column[:sample]):
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


def _doubt_of_dates(given: list[str], layout: str, name: str) -> str | None:
    """A sentence where days and months could as well be the other way round."""
    if layout != _MONTH_FIRST or _largest_part(given, 1) > 12:
        return None
    return f"Column {name}: dates were read as month/day/year; no day settles it."


def _dates(texts: list[str | None], layout: str) -> pd.Series | None:
    """Dates of all cells, or None if some day is in no calendar."""
    import pandas as pd

    try:
        # One zone for all: mixed offsets are no single column otherwise.
        found = pd.to_datetime(pd.Series(texts, dtype=object), format=layout, utc=True)
    except (ValueError, TypeError, OverflowError):
        return None
    return found.dt.tz_localize(None)


def text_date_layout(column: pd.Series, name: str) -> tuple[str | None, str | None]:
    """The form of the dates in a column of text, and a sentence where that is a guess.

    None if its cells are not all dates that the CSV reader would take for such.
    """
    # Each text once: dates repeat.
    texts = _stripped(column.dropna().unique())
    given = [text for text in texts if text is not None]
    layout = _date_layout(given)
    if layout is None or _dates(list(given), layout) is None:
        return None, None
    return layout, _doubt_of_dates(given, layout, name)


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
    texts = _stripped(map(str, cells))
    layout = layout or _date_layout([text for text in texts if text is not None])
    if layout is None:
        return np.full(len(column), np.datetime64("NaT", "ns"))
    written = pd.Series([*texts, None], dtype=object)
    found = pd.to_datetime(written, format=layout, utc=True, errors="coerce")
    return found.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")[places]


def offending(column: pd.Series, numbers: np.ndarray, most: int = 3) -> str | None:
    """The first cells that are there but are no finite number: "row 3 'abc', …"; or None."""
    bad = ~np.isfinite(numbers) & ~column.isna().to_numpy()
    if not np.any(bad):
        return None
    rows = np.flatnonzero(bad)
    shown = [f"row {row + 1} {shortened(column.iloc[row])!r}" for row in rows[:most]]
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return ", ".join(shown) + more


# --- writing ----------------------------------------------------------------------------


def csv_text(header: Iterable[str], columns: Iterable[Iterable[Any]]) -> str:
    """A CSV file as text.

    Floats have 7 significant digits, whole ones no point; NaN and None are empty. Text that a
    spreadsheet would take for a formula gets an apostrophe in front; text that is a number
    does not.
    """
    every = [column if isinstance(column, np.ndarray) else list(column) for column in columns]
    return csv_line(harmless(name) for name in header) + csv_rows(every)


def csv_line(cells: Iterable[str]) -> str:
    """One line of a CSV file, cells as they are."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(list(cells))
    return out.getvalue()


def csv_rows(columns: Iterable[Sequence[Any] | np.ndarray]) -> str:
    """The lines below the header; see `csv_text`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(zip(*map(_cells, columns), strict=True))
    return out.getvalue()


def _cells(column: Sequence[Any] | np.ndarray) -> list[str]:
    if isinstance(column, np.ndarray) and column.dtype == np.float64:
        return ["" if value != value else f"{value:.{DIGITS}g}" for value in column.tolist()]
    return [_cell(value) for value in column]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{float(value):.{DIGITS}g}"
    return harmless(str(value))


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
        if number.is_integer() and abs(number) < 1e15:
            return str(int(number))
        return repr(number)
    return str(value)


def check_outputs(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Raise, before any work, if the files could not be put there."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise TableError(f"{folder} is {_kind(folder)}; choose another folder with -o")
    for name in names:
        _check_replaceable(folder / name, "another -o", force=force)
    _check_can_be_made(folder)


def check_output_file(path: Path, *, force: bool) -> None:
    """Raise, before any work, if one file could not be put there."""
    _check_replaceable(path, "another name", force=force)
    _check_can_be_made(path.parent)


def _check_replaceable(path: Path, instead: str, *, force: bool) -> None:
    """Raise unless nothing is at the place, or a plain file that may be replaced."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return  # a parent that is no folder is said by `_check_can_be_made`
    except (OSError, ValueError) as error:
        raise TableError(f"{_named(path)} cannot be written: {_reason(error)}") from None
    if stat.S_ISDIR(mode):
        raise TableError(f"{path} is a directory; give the name of a file")
    if not stat.S_ISREG(mode):
        raise TableError(f"{path} is {_kind(path)}, which is never replaced; use {instead}")
    if not force:
        raise TableError(f"{path} exists; use --force to replace it or {instead}")


def _kind(path: Path) -> str:
    """What is at a place, in words; a link is one whatever it points to."""
    mode = path.lstat().st_mode
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def _named(path: Path) -> str:
    """A path for a message; the end of a long one is what tells it from others."""
    text = str(path)
    return text if len(text) <= LONGEST_PATH else f"…{text[-LONGEST_PATH:]}"


def _reason(error: Exception) -> str:
    """What the system says, without number and path."""
    return getattr(error, "strerror", None) or first_line(error)


def _check_can_be_made(folder: Path) -> None:
    """Raise unless a folder can be written to, or made where it is not there yet."""
    places = (folder, *folder.absolute().parents)
    there = next(place for place in places if os.path.lexists(place))
    if not os.path.isdir(there):
        words = f"{there} is {_kind(there)}, not a folder"
        raise TableError(f"{_named(folder)} cannot be written to: {words}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise TableError(f"{_named(folder)} cannot be written to; choose another folder")
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise TableError(f"{_named(folder)} cannot be made: {_reason(error)}") from None


def write_files(
    folder: Path, contents: Mapping[str, bytes | Iterable[bytes]], *, force: bool = False
) -> None:
    """Put files into a folder, each whole or not at all.

    They are written into a draft of it first. A folder that is not there yet appears with all
    of them at once; in one that is, each file is replaced in one step. A file given in parts
    is made while it is written, so that it need not be held.
    """
    check_outputs(folder, contents, force=force)
    there = folder.exists()
    # Inside a folder that is there: it may be a disk of its own, or all that we may write to.
    draft = _draft_in(folder if there else folder.parent)
    with _said_of(folder), cleaned_up(partial(shutil.rmtree, draft, ignore_errors=True)):
        draft.mkdir(parents=True)
        for name, content in contents.items():
            _write_synced(draft / name, content)
        if not there:
            try:
                draft.rename(folder)
                return
            except OSError:
                if not folder.is_dir():
                    raise
        for name in contents:
            os.replace(draft / name, folder / name)


def write_file(path: Path, content: bytes | Iterable[bytes], *, force: bool = True) -> None:
    """Put one file, or one made in parts, at its place in one step."""
    check_output_file(path, force=force)
    with drafted(path) as draft:
        _write_synced(draft, content)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A place for a file in the making, with its ending; the block done, it is at `path`."""
    check_output_file(path, force=True)
    draft = _draft_in(path.parent, path.suffix)
    with _said_of(path), cleaned_up(partial(_remove, draft)):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)


def _draft_in(folder: Path, ending: str = "") -> Path:
    """A name that nobody has, in the folder where what is made will be."""
    return folder / f".activehuber-{secrets.token_hex(8)}.tmp{ending}"


def _remove(path: Path) -> None:
    # There is none if it could not be made, or is at its place.
    with suppress(OSError):
        path.unlink()


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """Errors of the system as one line."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{_named(path)} cannot be written: {_reason(error)}") from None


def _write_synced(path: Path, content: bytes | Iterable[bytes]) -> None:
    # A new file: not one that somebody made or linked to where the draft will be.
    with path.open("xb") as file:
        for part in [content] if isinstance(content, bytes) else content:
            file.write(part)
        file.flush()
        # Without this a power cut after the rename could leave an empty file.
        os.fsync(file.fileno())


# --- words ------------------------------------------------------------------------------


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


def mask_of_words(column: pd.Series, name: str) -> Mask:
    """A column of yes and no as a mask of shape (n,); an empty cell is no."""
    yes, no = {"1", "1.0", "true", "t", "yes", "y", "x"}, {"0", "0.0", "false", "f", "no", "n"}
    gone = column.isna().to_numpy()
    out = np.zeros(len(column), dtype=bool)
    for row, cell in enumerate(column):
        word = "no" if gone[row] else str(cell).strip().lower()
        if word not in yes | no:
            raise TableError(
                f"column {shortened(name)!r} must hold yes or no (1 or 0, true or false), but "
                f"row {row + 1} has {shortened(cell)!r}"
            )
        out[row] = word in yes
    return out


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"
