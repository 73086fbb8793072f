"""CSV and Parquet files to data frames.

bytes -> text (encoding) -> cells (delimiter) -> columns (numbers, dates, yes/no, text)
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from activehuber.data.parsing import has_decimal_comma, parse_column, stripped
from activehuber.data.writing import plain_text
from activehuber.runtime.memory import memory_limit
from activehuber.runtime.messages import TableError, first_line, listed

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = (",", ";", "\t", "|")
PARQUET_NAMES = (".parquet", ".pq")
# Lines that are looked at to guess the delimiter.
SNIFFED_LINES = 60
# Above this share of NUL bytes a file is no text; below it they are taken out.
MOST_NULS = 0.01
# The same for other control characters, among the first bytes; below it they stay.
MOST_CONTROLS, SNIFFED_TEXT = 0.01, 4_096
# What a row takes at the peak of an audit: copies of its numbers, 8 bytes each (the file, the
# table, the features), and bytes of what is found out about it.
COPIES, BYTES_A_ROW = 5, 500
# Control characters other than NUL, tab and the ends of lines; ^Z once ended files.
_CONTROLS = re.compile("[\x01-\x08\x0e-\x19\x1b-\x1f]")


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
    notes: list[str] = []
    if path.suffix.lower() in PARQUET_NAMES or content[:4] == b"PAR1":
        frame = _read_parquet(content, path.name, as_text)
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
        known = parquet.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError):
        return  # what is wrong with it is said when it is read
    rows, columns = known.num_rows, known.num_columns
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


def _read_parquet(content: bytes, name: str, as_text: Collection[str]) -> pd.DataFrame:
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
    return frame


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
    frame = pd.DataFrame(dict(enumerate(columns)), index=range(len(table)))
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
    import pandas as pd

    cells = zip(column, column.isna(), strict=True)
    texts = [None if gone else plain_text(cell) for cell, gone in cells]
    return pd.Series(texts, dtype=object)


def _read_csv(
    content: bytes, name: str, as_text: Collection[str]
) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    text, notes = _decode(content, name)
    delimiter = sniff_delimiter(text)
    columns = _split(text, delimiter, name)
    header = [str(column[0]).strip() or f"column {i}" for i, column in enumerate(columns, 1)]
    length = last = len(columns[0]) - 1 if columns else 0
    # Spreadsheets leave rows at the end in which every cell is empty.
    while last and len(columns) > 1 and not any(str(c[last]).strip() for c in columns):
        last -= 1
    if last < length:
        rows = "row" if length - last == 1 else "rows"
        notes.append(f"{length - last} empty {rows} at the end of the file left out.")
    if not last:
        raise TableError(f"{name} has a header line but no rows")
    columns = [column.slice(1, last) for column in columns]
    comma = has_decimal_comma(columns)
    if delimiter != "," or comma:
        spoken = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}[delimiter]
        mark = ", decimals by a comma" if comma else ""
        notes.append(f"Cells are separated by {spoken}{mark}.")
    parsed: dict[int, Any] = {}
    for place, (title, column) in enumerate(zip(header, columns, strict=True)):
        # As objects they are many bytes each: one column at a time.
        cells = column.to_numpy(zero_copy_only=False)
        if title in as_text:
            parsed[place] = pd.Series(stripped(cells), dtype=object)
        else:
            parsed[place], note = parse_column(cells, title, decimal_comma=comma)
            notes += [note] if note else []
    frame = pd.DataFrame(parsed)
    frame.columns = header
    return frame, notes


def _decode(content: bytes, name: str) -> tuple[str, list[str]]:
    """Bytes as text with line ends of one kind, and notes."""
    notes = []
    if content[:2] in (b"PK", b"\x1f\x8b"):
        raise TableError(f"{name} is packed or a spreadsheet; save the table as CSV or Parquet")
    # By the byte-order mark, or by where the zeros are.
    head, encoding = content[:SNIFFED_TEXT], "utf-8"
    if content.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8-sig"
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif len(head) >= 4 and head.count(0) > 0.4 * len(head):
        little = head[1::2].count(0) > head[::2].count(0)
        encoding = "utf-16-le" if little else "utf-16-be"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise TableError(
                f"{name} starts like {encoding.upper()} text but is not; save it as UTF-8"
            ) from None
        text = content.decode("latin-1")
        notes.append("The file is not UTF-8; it was read as Latin-1.")
    nuls, first = text.count("\x00"), text[:SNIFFED_TEXT]
    strange = len(_CONTROLS.findall(first))
    if nuls > MOST_NULS * len(text) or strange > MOST_CONTROLS * len(first):
        raise TableError(
            f"{name} is no text file (it holds bytes that no text has); give CSV or Parquet"
        )
    if nuls:
        text = text.replace("\x00", "")
        notes.append(f"{nuls} NUL {'byte' if nuls == 1 else 'bytes'} in the file left out.")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


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


def _split(text: str, delimiter: str, name: str) -> list[Any]:
    """The cells of each column, the header's first, as Arrow has them."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    encoded, header = text.encode("utf-8", "replace"), list[str]()
    with suppress(csv.Error):
        header = next(filter(None, csv.reader(io.StringIO(text), delimiter=delimiter)), [])
    try:
        table = arrow.read_csv(
            _arrow_stream(encoded),
            read_options=arrow.ReadOptions(
                autogenerate_column_names=True, block_size=min(len(encoded) + 16, 2**31 - 1)
            ),
            parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(len(header))},
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, ValueError, OSError):
        # Slower, but it knows the line, and it forgives what can be forgiven.
        rows = _split_slowly(text, delimiter, name)
        return [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return list(table.columns)


def _split_slowly(text: str, delimiter: str, name: str) -> list[list[str]]:
    """The rows of a table, the header's first."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    try:
        for row in reader:
            width = len(rows[0]) if rows else 0
            if not row or (len(row) == 1 and not row[0].strip() and width != 1):
                continue
            if rows and len(row) != width:
                raise TableError(
                    f"{name}, line {reader.line_num}: {len(row)} cells, but the header has "
                    f"{width}; mend that line or its quotes"
                )
            rows.append(row)
    except csv.Error as error:
        raise TableError(
            f"{name}, line {reader.line_num}: {error}; mend that line or its quotes"
        ) from None
    return rows


def _distinct_names(names: list[Any]) -> tuple[list[str], frozenset[str], list[str]]:
    """Names made distinct by a number in brackets, those that were repeated, and notes."""
    texts = [str(name) for name in names]
    taken, seen = set(texts), set[str]()
    numbers = defaultdict[str, Iterator[int]](lambda: count(2))
    repeated: dict[str, None] = {}
    for place, name in enumerate(texts):
        if name in seen:
            repeated[name] = None
            fresh = (f"{name} ({number})" for number in numbers[name])
            texts[place] = next(each for each in fresh if each not in taken)
            taken.add(texts[place])
        seen.add(name)
    notes = [f"Columns of the same name were numbered: {listed(repeated)}."] if repeated else []
    return texts, frozenset(repeated), notes
