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
from typing import TYPE_CHECKING, NoReturn

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


def read_counts(path: str | Path, frames: Frames) -> Counts:
    """Read the counts of some frames.

    Parameters
    ----------
    path : str or Path
        A table (CSV or Parquet) with columns frame and count, or frame, left and right, in any
        order; others are ignored. Frames are given by number, or in every line by the name of
        the image file. An empty cell is no count.
    frames : Frames
        The camera's frames.

    Returns
    -------
    Counts
    """
    path = Path(path)
    table = read_table(path)
    titles = _find_columns(table, path)
    names = DIRECTIONS if set(DIRECTIONS) <= set(titles) else TOTAL
    values = np.stack([_counts_of(table, titles[name], path) for name in names], axis=1)
    counted = np.any(~np.isnan(values), axis=1)
    if names == DIRECTIONS and TOTAL[0] in titles:
        _check_totals(_counts_of(table, titles[TOTAL[0]], path), counted, path)
    rows = _rows_of_frames(table.frame[titles[FRAME]], counted, frames, path)
    out = np.full((len(frames), len(names)), np.nan)
    out[rows] = values[counted]
    _check_enough(out, names, path)
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
        if name in titles or (name in (FRAME, *TOTAL, *DIRECTIONS) and title in table.repeated):
            raise TableError(
                f"{path}: several columns are named {name!r}; rename or delete one"
            )
        if name in (FRAME, *TOTAL, *DIRECTIONS):
            titles[name] = title
    if FRAME not in titles or not (TOTAL[0] in titles or set(DIRECTIONS) <= set(titles)):
        raise TableError(
            f"{path}, line 1: it needs columns frame and count, or frame, left and right; it "
            f"has {listed(table.frame.columns)}"
        )
    return titles


def _counts_of(table: Table, title: str, path: Path) -> Vector:
    """A column of counts of shape (n_rows,), NaN where a cell is empty."""
    numbers = _numbers_of(table.frame[title], title, path, "leave it empty if not counted")
    large = f"more than {MOST_PEOPLE:,}"
    for wrong, words in ((numbers < 0, "negative"), (numbers > MOST_PEOPLE, large)):
        if np.any(wrong):
            cell = f"a count of {numbers[np.argmax(wrong)]:g} in {title!r} is {words}"
            _blame(path, wrong, f"{cell}; leave it empty if not counted")
    return numbers


def _numbers_of(column: pd.Series, title: str, path: Path, hint: str) -> Vector:
    numbers = read_numbers(column)
    # Yes and no would pass for 1 and 0.
    wrong = (np.isnan(numbers) | (column.dtype == bool)) & ~column.isna().to_numpy()
    # In a column with some text all cells are text, and "1,5" is not what is wrong with it.
    surely = wrong & np.array([not _reads_with_point(cell) for cell in column])
    wrong = surely if np.any(surely) else wrong
    if np.any(wrong):
        cell = shortened(column.iloc[int(np.argmax(wrong))])
        _blame(path, wrong, f"{cell!r} in {title!r} is not a number; {hint}")
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
    if np.any(gone):
        _blame(path, gone, "a count without a frame; give it, or delete the line")
    named = _given_by_name(column, frames, path)
    known: Sequence[int | str] = frames.names if named else frames.numbers
    given: Sequence[int | str | None] = (
        _file_names(column, frames) if named else _frame_numbers(column, path)
    )
    places: dict[int | str | None, int] = {frame: k for k, frame in enumerate(known)}
    strange = counted & np.array([frame not in places for frame in given])
    if np.any(strange):
        which = listed(frame for frame, wrong in zip(given, strange, strict=True) if wrong)
        many = int(np.sum(strange))
        _blame(
            path,
            strange,
            f"{many} {'count is' if many == 1 else 'counts are'} for frames that do not exist "
            f"in {frames.path}: {which} (it has {len(frames)} frames, "
            f"{shortened(known[0])} to {shortened(known[-1])}); mend or delete",
        )
    rows = [places[frame] for frame, wanted in zip(given, counted, strict=True) if wanted]
    _check_once(rows, counted, frames, path)
    return np.array(rows, dtype=int)


def _given_by_name(column: pd.Series, frames: Frames, path: Path) -> bool:
    """Whether frames are given by file name; a column of both is an error."""
    present = ~column.isna().to_numpy()
    is_text = np.array([isinstance(cell, str) for cell in column])
    names = is_text & present & np.array([not _reads_with_point(cell) for cell in column])
    if frames.path.is_file() or not np.any(names):
        # Frames of a video have numbers alone.
        return False
    others = present & ~names
    if np.any(others):
        # The rarer kind is the slip.
        wrong, words = names, "is not a number, as others are"
        if np.sum(names) > np.sum(others):
            wrong, words = others, "is a number, others are file names"
        cell = shortened(column.iloc[int(np.argmax(wrong))])
        hint = "give frame numbers from 1 or file names, not both"
        _blame(path, wrong, f"{cell!r} in {str(column.name)!r} {words}; {hint}")
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
    numbers = _numbers_of(column, str(column.name), path, "give frame numbers from 1")
    with np.errstate(invalid="ignore"):  # inf − inf, which is no whole number either
        broken = ~np.isnan(numbers) & ~(numbers % 1 == 0)
    if np.any(broken):
        number = f"frame {numbers[np.argmax(broken)]:g} is not a whole number"
        _blame(path, broken, f"{number}; give frame numbers from 1")
    return [None if np.isnan(number) else int(number) for number in numbers]


def _check_once(rows: list[int], counted: Mask, frames: Frames, path: Path) -> None:
    """Raise if a frame has two counts."""
    seen: set[int] = set()
    again = np.zeros(len(counted), dtype=bool)
    twice = []
    for line, row in zip(np.flatnonzero(counted), rows, strict=True):
        if row in seen:
            again[line] = True
            twice.append(frames.numbers[row])
        seen.add(row)
    if twice:
        which = listed(dict.fromkeys(twice))
        _blame(path, again, f"two counts for one frame ({which}); delete one of them")


# --- checks -----------------------------------------------------------------------------


def _check_totals(total: Vector, counted: Mask, path: Path) -> None:
    """Raise if a row has a count alone, which would be lost beside left and right."""
    alone = ~np.isnan(total) & ~counted
    if np.any(alone):
        _blame(
            path,
            alone,
            "a count, but neither left nor right; fill these in, or delete both columns",
        )


def _check_enough(values: Matrix, names: tuple[str, ...], path: Path) -> None:
    for name, column in zip(names, values.T, strict=True):
        many = int(np.sum(~np.isnan(column)))
        if many < FEWEST:
            raise TableError(
                f"{path}: {many} {'frame has' if many == 1 else 'frames have'} a number in "
                f"{name!r}; count at least {FEWEST} frames, better 50, spread over the time"
            )


def _blame(path: Path, rows: Mask, words: str) -> NoReturn:
    """Raise about the first of some rows."""
    raise TableError(f"{path}, {_place(path, int(np.argmax(rows)))}: {words}")


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
