"""What each kind of column becomes: standardised numbers, 0/1 columns, parts of dates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from activehuber._typing import Matrix
from activehuber.data.writing import plain_text

if TYPE_CHECKING:
    import pandas as pd

NUMBER, FLAG, CATEGORY, DATE = "number", "flag", "category", "date"
DATE_PARTS = ("elapsed days", "year", "day of year", "weekday", "hour")
# Nanoseconds.
DAY = 86_400 * 10**9
# Standardised values beyond this are cut, so that their squares stay finite.
FARTHEST = 1e8
MISSING_LEVEL = "(missing)"


class Numbers(NamedTuple):
    """Columns of numbers: (x or fill − centre) / scale, each of shape (d,)."""

    fill: np.ndarray
    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: Matrix) -> Numbers:
        """Median, mean and standard deviation of (n, d) values, NaN where missing."""
        missing = np.isnan(values)
        # In units of the largest value: sums and squares of huge numbers would be infinite.
        unit = np.max(np.abs(values), axis=0, initial=0.0, where=~missing)
        unit = np.where(unit > 0.0, unit, 1.0)
        values, fill = values / unit, np.zeros(values.shape[1])
        some = ~np.all(missing, axis=0)
        if np.any(some):
            fill[some] = np.nanmedian(values[:, some], axis=0)
        filled = np.where(missing, fill, values)
        scale = np.std(filled, axis=0)
        # Below this the column is constant but for rounding.
        scale = np.where(scale > 1e-12, scale, 0.0)
        return cls(fill * unit, np.mean(filled, axis=0) * unit, scale * unit)

    def apply(self, values: Matrix) -> Matrix:
        """Standardised (n, d) values; zero where the scale is."""
        filled = np.where(np.isnan(values), self.fill, values)
        safe = np.where(self.scale > 0.0, self.scale, 1.0)
        # Divided before the difference is taken: it may be too large for a double.
        with np.errstate(over="ignore"):  # it is cut
            out = (filled / safe - self.centre / safe) * (self.scale > 0.0)
        return np.clip(out, -FARTHEST, FARTHEST)


@dataclass(frozen=True)
class Category:
    """One column of words.

    Attributes
    ----------
    levels : tuple of str
        Each becomes a 0/1 column.
    pooled : bool
        Whether there is one more for all other words, seen or not.
    """

    levels: tuple[str, ...]
    pooled: bool

    def names(self, column: str) -> list[str]:
        """Names of the 0/1 columns."""
        every = (*self.levels, "(other)") if self.pooled else self.levels
        return [f"{column} = {level}" for level in every]

    def columns(self, column: pd.Series) -> tuple[np.ndarray, list[str]]:
        """The 0/1 columns, shape (n, d), and the words that are no level and have no pool."""
        words = np.array(words_of(column), dtype=object)
        place = {level: i for i, level in enumerate(self.levels)}
        other = len(self.levels)
        codes = np.array([place.get(word, other) for word in words])
        new = [] if self.pooled else sorted({str(word) for word in words[codes == other]})
        return codes[:, None] == np.arange(other + self.pooled), new


@dataclass(frozen=True)
class Dates:
    """One column of dates.

    Attributes
    ----------
    origin : int
        The first date, in nanoseconds.
    gaps : bool
        Whether there were cells without a date, which get a 0/1 column.
    layout : str or None
        The form of dates that are text: a few new rows alone may not tell days from months.
    parts : Numbers
        Of `DATE_PARTS`.
    """

    origin: int
    gaps: bool
    layout: str | None
    parts: Numbers

    @property
    def used(self) -> np.ndarray:
        """Which of the parts are not constant."""
        return np.flatnonzero(self.parts.scale > 0.0)

    def names(self, column: str) -> list[str]:
        """Names of the features."""
        gone = [f"{column} missing"] if self.gaps else []
        return [f"{column} {DATE_PARTS[i]}" for i in self.used] + gone

    def columns(self, dates: np.ndarray) -> Matrix:
        """The features of datetime64[ns] dates."""
        standard = self.parts.apply(date_parts(dates, self.origin))
        return np.column_stack([standard[:, self.used], *([np.isnat(dates)] * self.gaps)])


@dataclass(frozen=True)
class Encoding:
    """All that makes features of a table.

    Attributes
    ----------
    columns, kinds : sequence of str
        Columns of the table that are used, and the kind of each.
    numbers : Numbers
        Of the columns of numbers.
    gaps : ndarray of bool
        Which of them had cells without a number, which get a 0/1 column.
    categories : sequence of Category
        One for each column of words, in their order.
    dates : sequence of Dates
        One for each column of dates.
    left_out : sequence of (str, str)
        Columns that are not used, and why.
    sentences : sequence of str
        What was done, in words.
    """

    columns: Sequence[str]
    kinds: Sequence[str]
    numbers: Numbers
    gaps: np.ndarray
    categories: Sequence[Category]
    dates: Sequence[Dates]
    left_out: Sequence[tuple[str, str]]
    sentences: Sequence[str]

    @classmethod
    def of(cls, state: dict[str, Any]) -> Encoding:
        """The inverse of `dataclasses.asdict`; lists may stand for tuples."""
        dates = [Dates(**each | {"parts": Numbers(*each["parts"])}) for each in state["dates"]]
        categories = [Category(**each) for each in state["categories"]]
        numbers = Numbers(*state["numbers"])
        return cls(**state | {"numbers": numbers, "categories": categories, "dates": dates})

    def of_kind(self, kind: str) -> list[str]:
        """The columns of a kind."""
        return [n for n, k in zip(self.columns, self.kinds, strict=True) if k == kind]

    def each(self) -> Iterator[tuple[str, str, Any]]:
        """Name and kind of each column and what was learnt of it; of numbers their gaps."""
        learnt = {NUMBER: self.gaps, CATEGORY: self.categories, DATE: self.dates}
        of_kind: dict[str, Iterator[Any]] = {kind: iter(own) for kind, own in learnt.items()}
        for name, kind in zip(self.columns, self.kinds, strict=True):
            yield name, kind, False if kind == FLAG else next(of_kind[kind])

    def names(self) -> list[list[str]]:
        """Names of the features of each column."""
        return [
            own.names(name)
            if isinstance(own, (Category, Dates))
            else [name, *([f"{name} missing"] * bool(own))]
            for name, _, own in self.each()
        ]


def words_of(column: pd.Series) -> list[str]:
    """Cells as text, numbers as one would write them, `MISSING_LEVEL` where there is none."""
    import pandas as pd

    if isinstance(column.dtype, pd.StringDtype):
        # Each word once: equal cells are equal text. Of objects that is not so (1 and True).
        places, words = pd.factorize(column)
        known = [str(word).strip() for word in words]
        return np.array([*known, MISSING_LEVEL], dtype=object)[places].tolist()
    gone = column.isna().to_numpy()
    cells = column.astype(object).tolist()
    return [
        MISSING_LEVEL if none else plain_text(cell).strip()
        for cell, none in zip(cells, gone, strict=True)
    ]


def date_parts(dates: np.ndarray, origin: int) -> Matrix:
    """`DATE_PARTS` of datetime64[ns] dates, shape (n, 5); NaN for NaT."""
    gone = np.isnat(dates)
    known = np.where(gone, np.datetime64(origin, "ns"), dates)
    # By whole numbers: NumPy has no midnight of the first day that nanoseconds reach.
    moments = known.astype(np.int64)
    days = (moments // DAY).astype("datetime64[D]")
    years = days.astype("datetime64[Y]")
    parts = np.stack(
        [
            (moments.astype(np.float64) - float(origin)) / DAY,
            years.astype(np.int64) + 1970.0,
            (days - years.astype("datetime64[D]")).astype(np.int64) + 1.0,
            # Day 0 of the epoch was a Thursday.
            (days.astype(np.int64) + 3) % 7.0,
            (moments % DAY) / 3600e9,
        ],
        axis=1,
    )
    parts[gone] = np.nan
    return parts
