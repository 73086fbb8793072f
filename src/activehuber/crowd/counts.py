"""counts.csv: the frames that someone counted, and the counts of every frame.

frame,count or frame,left,right -> one row for each frame, NaN where nobody counted; a frame is
its number or the name of its file
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.data.parsing import read_numbers
from activehuber.data.reading import PARQUET_NAMES, Table, read_table, sniff_delimiter
from activehuber.data.writing import csv_text
from activehuber.runtime.messages import TableError, listed, shortened

if TYPE_CHECKING:
    import pandas as pd

    from activehuber.crowd.frames import Frames

FRAME = "frame"
TOTAL = ("count",)
DIRECTIONS = ("left", "right")
FEWEST = 10
# No frame shows more people than this.
MOST_PEOPLE = 1_000_000


@dataclass(frozen=True)
class Counts:
    """Counts given by a person.

    Attributes
    ----------
    names : tuple of str
        ("count",), or ("left", "right") whose sum is the count.
    values : ndarray of shape (n_frames, q)
        One row for each frame of the camera, NaN where it was not counted.
    notes : tuple of str
        Sentences on what was guessed in the file.
    """

    names: tuple[str, ...]
    values: Matrix
    notes: tuple[str, ...] = ()


def read_counts(
    path: str | Path,
    frames: Frames,
    wanted: tuple[str, ...] | None = None,
    *,
    fewest: int = FEWEST,
) -> Counts:
    """Read the counts of some frames.

    Parameters
    ----------
    path : str or Path
        A table (CSV or Parquet) with columns frame and count, or frame, left and right, in any
        order; others are ignored. Frames are given by number, or in every line by the name of
        the image file. An empty cell is no count.
    frames : Frames
        The camera's frames.
    wanted : tuple of str or None
        Names of the counts that are wanted; None takes what is there.
    fewest : int
        Frames that must have a count.

    Returns
    -------
    Counts
    """
    path = Path(path)
    table = read_table(path)
    titles = _find_columns(table, path)
    there = DIRECTIONS if set(DIRECTIONS) <= set(titles) else TOTAL
    names = there if wanted is None or not set(wanted) <= set(titles) else wanted
    if wanted is not None and names != wanted:
        words = f"the model counts {listed(wanted)}, this file {listed(names)}"
        raise TableError(f"{path}: {words}; give the columns that the model was trained on")
    values = np.stack([_counts_of(table, titles[name], path) for name in names], axis=1)
    counted = np.any(~np.isnan(values), axis=1)
    if names == DIRECTIONS and TOTAL[0] in titles:
        # A count alone would be lost beside left and right.
        alone = ~np.isnan(_counts_of(table, titles[TOTAL[0]], path)) & ~counted
        words = "a count, but neither left nor right; fill these in, or delete both columns"
        _refuse(path, alone, words)
    rows = _rows_of_frames(table.frame[titles[FRAME]], counted, frames, path)
    out = np.full((len(frames), len(names)), np.nan)
    out[rows] = values[counted]
    for name, many in zip(names, np.sum(~np.isnan(out), axis=0), strict=True):
        if many < fewest:
            advice = "one at least" if fewest == 1 else f"at least {fewest} frames, better 50"
            raise TableError(
                f"{path}: {many} {'frame has' if many == 1 else 'frames have'} a number in "
                f"{name!r}; count {advice}, spread over the time"
            )
    return Counts(names, out, table.notes)


def counts_csv(numbers: Iterable[int], table: Mapping[str, Iterable[float]]) -> bytes:
    """The content of a file with the counts of frames.

    Parameters
    ----------
    numbers : iterable of int, n of them
        Frame numbers.
    table : mapping of str to n numbers
        Columns in their order, as count, lower, upper; NaN is written as an empty cell.

    Returns
    -------
    bytes
    """
    columns: list[Iterable[float]] = [[int(number) for number in numbers], *table.values()]
    return csv_text([FRAME, *table], columns).encode()


# --- columns ----------------------------------------------------------------------------


def _find_columns(table: Table, path: Path) -> dict[str, str]:
    """Titles in the table by the name they stand for."""
    titles: dict[str, str] = {}
    for title in table.frame.columns:
        name = "".join(title.split()).lower()
        if name not in (FRAME, *TOTAL, *DIRECTIONS):
            continue
        if name in titles or title in table.repeated:
            words = f"several columns are named {name!r}; rename or delete one"
            raise TableError(f"{path}: {words}")
        titles[name] = title
    if FRAME not in titles or not (TOTAL[0] in titles or set(DIRECTIONS) <= set(titles)):
        raise TableError(
            f"{path}, line 1: it needs columns frame and count, or frame, left and right; it "
            f"has {listed(table.frame.columns)}"
        )
    return titles


def _counts_of(table: Table, title: str, path: Path) -> Vector:
    """A column of counts of shape (n_rows,), NaN where a cell is empty."""
    hint = "leave it empty if not counted"
    numbers = _numbers_of(table.frame[title], path, hint)
    large = f"more than {MOST_PEOPLE:,}"
    for wrong, words in ((numbers < 0, "negative"), (numbers > MOST_PEOPLE, large)):
        _refuse(path, wrong, f"a count of {{:g}} in {title!r} is {words}; {hint}", numbers)
    return numbers


def _numbers_of(column: pd.Series, path: Path, hint: str) -> Vector:
    numbers = read_numbers(column)
    # Yes and no would pass for 1 and 0.
    wrong = (np.isnan(numbers) | (column.dtype == bool)) & ~column.isna().to_numpy()
    # In a column with some text all cells are text, and "1,5" is not what is wrong with it.
    surely = wrong & np.array([not _reads_with_point(cell) for cell in column])
    wrong = surely if np.any(surely) else wrong
    _refuse(path, wrong, f"{{!r}} in {column.name!r} is not a number; {hint}", column)
    return numbers


def _reads_with_point(cell: object) -> bool:
    try:
        float(str(cell).replace(",", "."))
    except ValueError:
        return False
    return not isinstance(cell, (bool, np.bool_))


# --- frames -----------------------------------------------------------------------------


def _rows_of_frames(column: pd.Series, counted: Mask, frames: Frames, path: Path) -> np.ndarray:
    """Positions among the frames of those rows that have a count, in the order of the file."""
    gone = counted & column.isna().to_numpy()
    _refuse(path, gone, "a count without a frame; give it, or delete the line")
    named = _given_by_name(column, frames, path)
    known: Sequence[int | str] = frames.names if named else frames.numbers
    given: Sequence[int | str | None] = (
        _file_names(column, frames) if named else _frame_numbers(column, path)
    )
    places: dict[int | str | None, int] = {frame: k for k, frame in enumerate(known)}
    rows = np.array([places.get(frame, -1) for frame in given], dtype=int)
    strange = counted & (rows < 0)
    which = [frame for frame, wrong in zip(given, strange, strict=True) if wrong]
    _refuse(
        path,
        strange,
        f"{len(which)} {'count is' if len(which) == 1 else 'counts are'} for frames that do "
        f"not exist in {frames.path}: {listed(which)} (it has {len(frames)} frames, "
        f"{shortened(known[0])} to {shortened(known[-1])}); mend or delete",
    )
    again = counted.copy()
    again[np.flatnonzero(counted)[np.unique(rows[counted], return_index=True)[1]]] = False
    twice = listed(dict.fromkeys(frames.numbers[row] for row in rows[again]))
    _refuse(path, again, f"two counts for one frame ({twice}); delete one of them")
    return rows[counted]


def _given_by_name(column: pd.Series, frames: Frames, path: Path) -> bool:
    """Whether frames are given by file name; a column of both is an error."""
    present = ~column.isna().to_numpy()
    is_text = np.array([isinstance(cell, str) for cell in column])
    names = is_text & present & np.array([not _reads_with_point(cell) for cell in column])
    if frames.path.is_file() or not np.any(names):
        # Frames of a video have numbers alone.
        return False
    others = present & ~names
    # The rarer kind is the slip.
    wrong, words = names, "is not a number, as others are"
    if np.sum(names) > np.sum(others):
        wrong, words = others, "is a number, others are file names"
    hint = "give frame numbers from 1 or file names, not both"
    if np.any(others):
        _refuse(path, wrong, f"{{!r}} in {column.name!r} {words}; {hint}", column)
    return True


def _file_names(column: pd.Series, frames: Frames) -> list[str | None]:
    """Cells without the folder of the frames; one of another folder stays as it is."""
    home = frames.path.resolve().name
    found: list[str | None] = []
    for cell in column:
        # Lists made on Windows have the other slash.
        *folders, name = str(cell).strip().replace("\\", "/").split("/")
        inside = [part for part in folders if part not in ("", ".")][-1:] in ([], [home])
        found.append(name if inside else str(cell).strip())
    return found


def _frame_numbers(column: pd.Series, path: Path) -> list[int | None]:
    """Frame numbers, None where a cell is empty."""
    hint = "give frame numbers from 1"
    numbers = _numbers_of(column, path, hint)
    with np.errstate(invalid="ignore"):  # inf − inf, which is no whole number either
        broken = ~np.isnan(numbers) & ~(numbers % 1 == 0)
    _refuse(path, broken, f"frame {{:g}} is not a whole number; {hint}", numbers)
    return [None if np.isnan(number) else int(number) for number in numbers]


# --- checks -----------------------------------------------------------------------------


def _refuse(
    path: Path, wrong: Mask, words: str, cells: pd.Series | Vector | None = None
) -> None:
    """Raise about the first of the rows that are wrong; braces in words are for its cell."""
    if not np.any(wrong):
        return
    row = int(np.argmax(wrong))
    if cells is not None:
        cell = cells[row] if isinstance(cells, np.ndarray) else shortened(cells.iloc[row])
        words = words.format(cell)
    raise TableError(f"{path}, {_place(path, row)}: {words}")


def _place(path: Path, row: int) -> str:
    """Where a row of the table is in the file: "line 7", or "row 6" if it has no lines."""
    content = path.read_bytes()
    if path.suffix.lower() in PARQUET_NAMES or content[:4] == b"PAR1":
        return f"row {row + 1}"
    # Line ends and quotes are the same in all encodings once the zeros of UTF-16 are out.
    text = content.replace(b"\x00", b"").decode("latin-1")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sniff_delimiter(text))
    filled = (reader.line_num for cells in reader if len(cells) > 1 or "".join(cells).strip())
    lines = list(filled)
    return f"line {lines[row + 1]}"
