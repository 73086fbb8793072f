"""A table of mixed columns -> numbers for a kernel, and sentences on how.

What a scikit-learn user would do with a ColumnTransformer: numbers are standardised, with the
median where one is missing; categories become 0/1 columns; dates become numbers. What is
learnt for that is one plain `Encoding`, so that a saved model needs no foreign type.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from activehuber._typing import Matrix
from activehuber.data.parsing import read_dates, read_numbers, text_date_layout
from activehuber.data.writing import plain_text
from activehuber.runtime.messages import TableError, listed

if TYPE_CHECKING:
    import pandas as pd

NUMBER, FLAG, CATEGORY, DATE = "number", "flag", "category", "date"
DATE_PARTS = ("elapsed days", "year", "day of year", "weekday", "hour")
# Nanoseconds.
DAY = 86_400 * 10**9
# Standardised values beyond this are cut, so that their squares stay finite.
FARTHEST = 1e8
MISSING_LEVEL = "(missing)"
# Text of more different values than this share of its rows is an id or prose.
MOST_DISTINCT = 0.5
# Bytes of the numeric table at most.
MOST_BYTES = 2 * 2**30
# Numbers that are learnt from, or become features, at once.
NUMBERS_AT_ONCE = 1 << 20

# What is said of the columns of a kind, and of others that are named while learning.
OF_KIND = {
    NUMBER: "Numbers, standardised",
    FLAG: "Yes or no, as 1 and 0",
    CATEGORY: "Words, one 0/1 column a level",
    DATE: "Dates, as days elapsed, year, day of year, weekday and hour",
}
GAPS = "Missing numbers, set to the median and marked by a 0/1 column"
GAPS_OF_DATES = "Missing dates, set to the middle and marked"
GAPS_OF_WORDS = "Missing words, taken as one more word"
INFINITE = "Infinite numbers count as missing"
POOLED = "Rare levels share one 0/1 column"
COUNTERS = "These count the rows; leave them out if they say nothing"
GUESSES = "guesses"  # these are whole sentences
# The same of cells of a new table that had to be bent.
NO_NUMBERS = "Cells that are no finite numbers count as missing"
NO_DATES = "Cells that are no dates count as missing"
UNSEEN = "Words that the model has not seen"
Told = defaultdict[str, list[str]]


class TableFeatures(TransformerMixin, BaseEstimator):
    """A table of numbers, words, dates and gaps -> an array of floats.

    Numbers are standardised; a missing or infinite one is set to the median, and a 0/1 column
    says so. Words become one 0/1 column a level: rare levels share one, levels never seen in
    `fit` go there too, or are ignored if there is none. Dates, also those written as text,
    become days elapsed, year, day of year, weekday and hour, standardised. Columns that are
    constant, empty or look like ids are left out.

    Parameters
    ----------
    max_levels : int, default=20
        0/1 columns of one column of words at most.
    min_count : int, default=2
        Levels in fewer rows than this are pooled.

    Attributes
    ----------
    encoding_ : Encoding
        All that was learnt; the others tell of it.
    columns_ : tuple of str
        Columns of the table that are used.
    kinds_ : tuple of str
        Of each: "number", "flag", "category" or "date".
    source_ : ndarray of shape (n_features_out,), int
        For each feature the place of its column in `columns_`.
    left_out_ : dict of str to str
        Columns that are not used, and why.
    sentences_ : tuple of str
        What was done, in words.

    Examples
    --------
    >>> import pandas as pd
    >>> from activehuber.data.encoding import TableFeatures
    >>> table = pd.DataFrame({"size": [1.0, 2.0, None, 3.0], "town": ["a", "b", "a", "b"]})
    >>> features = TableFeatures().fit(table)
    >>> features.get_feature_names_out().tolist()
    ['size', 'size missing', 'town = a', 'town = b']
    >>> features.transform(table).shape
    (4, 4)
    """

    def __init__(self, *, max_levels=20, min_count=2):
        self.max_levels = max_levels
        self.min_count = min_count

    def fit(self, X, y=None):
        """Learn what to do with each column.

        Parameters
        ----------
        X : pandas.DataFrame of shape (n_rows, n_columns)
        y : ignored

        Returns
        -------
        self : TableFeatures
        """
        frame = as_frame(X)
        if not len(frame):
            raise TableError("the table has no rows")
        kinds: dict[str, str] = {}
        dropped, told = Told(list), Told(list)
        of_kind: dict[str, list[Any]] = {kind: [] for kind in OF_KIND}
        empty = frame.isna().all(axis=0).to_numpy()
        for name, dtype, nothing in zip(frame.columns, frame.dtypes, empty, strict=True):
            kind = NUMBER if nothing or dtype == np.float64 else _kind(frame[name])
            # Numbers are looked at many columns at once.
            learnt = None if kind == NUMBER else self._learn(frame[name], kind, told)
            if nothing:
                dropped["empty"].append(name)
            elif isinstance(learnt, str):
                dropped[learnt].append(name)
            else:
                kinds[name] = kind
                of_kind[kind].append(learnt)
        numbers, gaps = _learn_numbers(frame, kinds, dropped, told)
        encoding = Encoding(
            tuple(kinds),
            tuple(kinds.values()),
            numbers,
            gaps,
            of_kind[CATEGORY],
            of_kind[DATE],
            [(name, why) for why, names in dropped.items() for name in names],
            _sentences(kinds, dropped, told),
        )
        width = sum(map(len, encoding.names()))
        if not width:
            why = ": " + "; ".join(_reasons(dropped)) if dropped else ""
            raise TableError(f"no column is left to learn from{why}")
        if len(frame) * width * 8 > MOST_BYTES:
            raise TableError(
                f"{len(frame)} rows × {width} features are too many for memory; "
                "leave columns out (on the command line with --drop)"
            )
        self.n_features_in_ = frame.shape[1]
        return self.use(encoding)

    def use(self, encoding: Encoding) -> TableFeatures:
        """Take what was learnt elsewhere, as if by `fit`."""
        self.encoding_ = encoding
        self.columns_, self.kinds_ = tuple(encoding.columns), tuple(encoding.kinds)
        self.left_out_, self.sentences_ = dict(encoding.left_out), tuple(encoding.sentences)
        widths = [len(names) for names in encoding.names()]
        self.source_ = np.repeat(np.arange(len(widths)), widths)
        return self

    def transform(self, X):
        """The features of a table with the same columns, in any order.

        Parameters
        ----------
        X : pandas.DataFrame of shape (n_rows, n_columns)

        Returns
        -------
        ndarray of shape (n_rows, n_features_out)
        """
        return self.transform_and_tell(X)[0]

    def transform_and_tell(self, X: Any) -> tuple[Matrix, list[str]]:
        """The features, and sentences on cells that had to be bent."""
        check_is_fitted(self, "encoding_")
        frame, encoding = as_frame(X), self.encoding_
        there = set(frame.columns)
        absent = [name for name in self.columns_ if name not in there]
        if absent:
            raise TableError(f"the table lacks what the model needs: {listed(absent)}")
        told = Told(list)
        out = np.empty((len(frame), len(self.source_)))
        firsts = np.searchsorted(self.source_, np.arange(len(self.columns_)))
        names = encoding.of_kind(NUMBER)
        places = firsts[np.array(self.kinds_) == NUMBER]
        for here, values in _number_blocks(frame, names):
            good, gaps = np.isfinite(values), encoding.gaps[here]
            for place in np.flatnonzero(~np.all(good, axis=0)):
                told[NO_NUMBERS] += _lost(frame[names[here][place]], good[:, place])
            numbers = Numbers(*(learnt[here] for learnt in encoding.numbers))
            out[:, places[here]] = numbers.apply(np.where(good, values, np.nan))
            out[:, places[here][gaps] + 1] = ~good[:, gaps]
        for first, (name, kind, learnt) in zip(firsts, encoding.each(), strict=True):
            if kind == NUMBER:
                continue
            if kind == FLAG:
                flags = read_numbers(frame[name])
                found = np.where(np.isfinite(flags), flags, 0.0)[:, None]
            elif kind == CATEGORY:
                found, new = learnt.columns(frame[name])
                told[UNSEEN] += [f"{name} ({listed(new, 3)})"] if new else []
            else:
                # What the dates of a column mean is settled by all of them together.
                dates = read_dates(frame[name], learnt.layout)
                told[NO_DATES] += _lost(frame[name], ~np.isnat(dates))
                found = learnt.columns(dates)
            out[:, first : first + found.shape[1]] = found
        said = [words for words in (NO_NUMBERS, NO_DATES, UNSEEN) if told[words]]
        return out, [f"{words}: {listed(told[words])}." for words in said]

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features, shape (n_features_out,)."""
        check_is_fitted(self, "encoding_")
        return np.array(list(chain(*self.encoding_.names())), dtype=object)

    def places_of(self, columns: Iterable[str]) -> list[int]:
        """Which features come from some columns of the table."""
        wanted = set(columns)
        mine = [self.columns_[source] in wanted for source in self.source_]
        return np.flatnonzero(mine).tolist()

    def missing_in(self, X: Any, rows: np.ndarray) -> list[list[str]]:
        """For some rows of the table of `fit` the columns in which they have a gap."""
        part = as_frame(X).iloc[rows]
        out: list[list[str]] = [[] for _ in rows]
        for name, kind, learnt in self.encoding_.each():
            if kind == CATEGORY:
                gone = part[name].isna().to_numpy()
            elif kind == DATE:
                gone = np.isnat(read_dates(part[name], learnt.layout))
            else:
                gone = ~np.isfinite(_as_numbers(part[name])) if learnt else np.empty(0)
            for place in np.flatnonzero(gone):
                out[place].append(name)
        return out

    def _learn(self, column: pd.Series, kind: str, told: Told) -> Category | Dates | str | None:
        """What is learnt of a column that is not of numbers, or why it cannot be used."""
        if not kind:
            return "of a type that has no numbers"
        if kind == CATEGORY:
            return self._levels(column, told)
        if column.nunique(dropna=False) == 1:
            return "constant"
        return _learn_dates(column, told) if kind == DATE else None

    def _levels(self, column: pd.Series, told: Told) -> Category | str:
        """Levels of a column of words, commonest kept, or why it cannot be used."""
        counts = Counter(words_of(column))
        if len(counts) == 1:
            return "constant"
        many = len(counts) > max(self.max_levels, MOST_DISTINCT * len(column))
        if many or max(counts.values()) < self.min_count:
            return "like ids or prose"
        gone = int(column.isna().sum())
        told[GAPS_OF_WORDS] += [f"{column.name} ({gone})"] if gone else []
        # Ties as scikit-learn's OneHotEncoder breaks them.
        order = sorted(counts, key=lambda word: (counts[word], word), reverse=True)
        common = [word for word in order if counts[word] >= self.min_count]
        if len(common) == len(counts) <= self.max_levels:
            return Category(tuple(sorted(common)), False)
        levels = sorted(common[: self.max_levels - 1])
        told[POOLED].append(f"{column.name} ({len(counts) - len(levels)})")
        return Category(tuple(levels), True)


def _learn_numbers(
    frame: pd.DataFrame, kinds: dict[str, str], dropped: Told, told: Told
) -> tuple[Numbers, np.ndarray]:
    """Columns of numbers and which have gaps; constant ones are taken out of `kinds`."""
    names = [name for name, kind in kinds.items() if kind == NUMBER]
    learnt, gaps = [np.empty((3, 0))], [np.empty(0, dtype=bool)]
    for here, values in _number_blocks(frame, names):
        infinite = np.any(np.isinf(values), axis=0)
        values = np.where(np.isfinite(values), values, np.nan)
        counts = np.isnan(values).sum(axis=0)
        steps = np.all(values[1:] == values[:-1] + 1.0, axis=0) & (len(values) > 20)
        found = Numbers.of(values)
        keep = (found.scale > 0.0) | ((counts > 0) & (counts < len(frame)))
        for place, name in enumerate(names[here]):
            if keep[place]:
                told[GAPS] += [f"{name} ({counts[place]})"] if counts[place] else []
                told[INFINITE] += [name] if infinite[place] else []
                told[COUNTERS] += [name] if steps[place] else []
            else:
                dropped["constant" if counts[place] == 0 else "empty"].append(name)
                del kinds[name]
        learnt.append(np.array(found)[:, keep])
        gaps.append(counts[keep] > 0)
    return Numbers(*np.concatenate(learnt, axis=1)), np.concatenate(gaps)


def _learn_dates(column: pd.Series, told: Told) -> Dates:
    name = str(column.name)
    layout, doubt = text_date_layout(column, name) if _is_text(column) else (None, None)
    dates = read_dates(column, layout)
    known = dates[~np.isnat(dates)]
    origin, gaps = int(np.min(known).astype(np.int64)), len(known) < len(dates)
    told[GUESSES] += [doubt] if doubt else []
    told[GAPS_OF_DATES] += [name] if gaps else []
    return Dates(origin, gaps, layout, Numbers.of(date_parts(dates, origin)))


def as_frame(X: Any) -> pd.DataFrame:
    """A pandas frame of a pandas or polars frame or an array; names are distinct text."""
    import pandas as pd

    if not isinstance(X, pd.DataFrame):
        if hasattr(X, "to_pandas"):
            X = X.to_pandas()
        else:
            values = np.asarray(X)
            if values.ndim != 2:
                what = "a single value" if values.ndim == 0 else f"{values.ndim} dimensions"
                raise TableError(
                    f"X must be a table, such as a data frame or an array of rows and columns, "
                    f"got {what}; to audit a file, read it first (pandas.read_csv) or use the "
                    "command activehuber audit"
                )
            X = pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        raise TableError(f"columns must have different names; given twice: {listed(twice)}")
    if names != list(X.columns) or not isinstance(X.index, pd.RangeIndex):
        X = X.set_axis(names, axis=1).reset_index(drop=True)
    return X


def _kind(column: pd.Series) -> str:
    """The kind of a column that is not empty, or nothing if it cannot be used."""
    import pandas as pd

    types = pd.api.types
    dtype = column.dtype
    if types.is_bool_dtype(dtype):
        return CATEGORY if column.isna().any() else FLAG
    if types.is_complex_dtype(dtype):
        return ""
    if types.is_numeric_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return NUMBER
    if types.is_datetime64_any_dtype(dtype):
        return DATE
    known = column.dropna()
    sample = known.astype(object).tolist()
    if all(isinstance(cell, (str, bool)) for cell in sample):
        # A categorical column is no text: who made categories of dates meant categories.
        return DATE if _is_text(column) and text_date_layout(known, "")[0] else CATEGORY
    if all(isinstance(cell, (str, int, float, np.number, bool)) for cell in sample):
        numbers = read_numbers(known)
        return NUMBER if not np.any(np.isnan(numbers)) else CATEGORY
    if all(hasattr(cell, "toordinal") for cell in sample):
        return DATE
    if all(type(cell).__name__ == "Decimal" for cell in sample):
        return NUMBER
    return ""


def _is_text(column: pd.Series) -> bool:
    """Whether all cells that are there are text."""
    import pandas as pd

    if isinstance(column.dtype, pd.StringDtype):
        return True
    return column.dtype == object and all(isinstance(cell, str) for cell in column.dropna())


def _number_blocks(frame: pd.DataFrame, names: list[str]) -> Iterator[tuple[slice, Matrix]]:
    """Columns as floats of shape (n, d), some at a time: what is made of them takes copies."""
    width = max(1, NUMBERS_AT_ONCE // max(1, len(frame)))
    for start in range(0, len(names), width):
        here = slice(start, start + width)
        part = frame[names[here]]
        if (part.dtypes == np.float64).all():
            yield here, part.to_numpy(dtype=np.float64)
        else:
            yield here, np.stack([_as_numbers(part[name]) for name in part], axis=1)


def _as_numbers(column: pd.Series) -> np.ndarray:
    """A column as floats; of lengths of time their seconds."""
    if column.dtype.kind == "m":
        return column.dt.total_seconds().to_numpy(dtype=np.float64)
    return read_numbers(column)


def _lost(column: pd.Series, good: np.ndarray) -> list[str]:
    """How many cells of a column are there but are not what they should be: "size (2)"."""
    count = np.count_nonzero(~good & ~column.isna().to_numpy())
    return [f"{column.name} ({count})"] if count else []


# --- what each kind of column becomes ------------------------------------------------------


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


# --- words ------------------------------------------------------------------------------


def _sentences(kinds: dict[str, str], dropped: Told, told: Told) -> list[str]:
    of: Told = defaultdict(list)
    for name, kind in kinds.items():
        of[kind].append(name)
    lines = [(words, of[kind], 12) for kind, words in OF_KIND.items()]
    also = (GAPS, GAPS_OF_DATES, GAPS_OF_WORDS, INFINITE, POOLED, COUNTERS)
    lines += [(words, told[words], 5) for words in also]
    out = [f"{words}: {listed(names, most)}." for words, names, most in lines if names]
    out += told[GUESSES]
    return out + [f"Left out: {reason}." for reason in _reasons(dropped)]


def _reasons(dropped: Told) -> list[str]:
    return [f"{listed(names)} ({reason})" for reason, names in dropped.items()]
