"""A table of mixed columns -> numbers for a kernel, and sentences on how.

What a scikit-learn user would do with a ColumnTransformer: numbers are standardised, with the
median where one is missing; categories become 0/1 columns; dates become numbers. It is one
transformer with a plain state, so that a saved model needs no foreign type (`state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
# Text of more different values than this share of its rows is an id or prose.
MOST_DISTINCT = 0.5
# Standardised values beyond this are cut, so that their squares stay finite.
FARTHEST = 1e8
MISSING_LEVEL = "(missing)"
# Bytes of the numeric table at most.
MOST_BYTES = 2 * 2**30
# Rows that become features at once, and numbers that are learnt from at once.
ROWS_AT_ONCE, NUMBERS_AT_ONCE = 1 << 16, 1 << 22


@dataclass(frozen=True)
class Numbers:
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

    def take(self, keep: np.ndarray) -> Numbers:
        """Some of the columns."""
        return Numbers(self.fill[keep], self.centre[keep], self.scale[keep])

    @classmethod
    def joined(cls, parts: list[Numbers]) -> Numbers:
        """Columns side by side."""
        fills, centres, scales = zip(
            *((part.fill, part.centre, part.scale) for part in parts), strict=True
        )
        return cls(np.concatenate(fills), np.concatenate(centres), np.concatenate(scales))


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

    @property
    def width(self) -> int:
        """How many 0/1 columns."""
        return len(self.levels) + self.pooled


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

    columns_: tuple[str, ...]
    kinds_: tuple[str, ...]
    source_: np.ndarray
    left_out_: dict[str, str]
    sentences_: tuple[str, ...]

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
        kinds, dropped = self._sort_columns(frame)
        told = _Told(dropped)
        self._learn_numbers(frame, kinds, told)
        self.columns_, self.kinds_ = tuple(kinds), tuple(kinds.values())
        self._categories: dict[str, Category] = {}
        self._dates: dict[str, Numbers] = {}
        self._origins: dict[str, int] = {}
        self._date_gaps: dict[str, bool] = {}
        self._layouts: dict[str, str | None] = {}
        for name, kind in kinds.items():
            if kind == CATEGORY:
                self._categories[name], rare = self._levels(frame[name])
                gone = int(frame[name].isna().sum())
                told.pooled += [f"{name} ({rare})"] if rare else []
                told.gaps_of_words += [f"{name} ({gone})"] if gone else []
            elif kind == DATE:
                told.guesses += self._learn_dates(name, frame[name])
                told.gaps_of_dates += [name] if self._date_gaps[name] else []
        self.left_out_ = {name: why for why, names in dropped.items() for name in names}
        self._lay_out()
        if not len(self.source_):
            why = ": " + "; ".join(_reasons(dropped)) if dropped else ""
            raise TableError(f"no column is left to learn from{why}")
        if len(frame) * len(self.source_) * 8 > MOST_BYTES:
            raise TableError(
                f"{len(frame)} rows × {len(self.source_)} features are too many for memory; "
                "leave columns out (on the command line with --drop)"
            )
        self.sentences_ = tuple(_sentences(self.kinds_, self.columns_, told))
        self.n_features_in_ = frame.shape[1]
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
        check_is_fitted(self, "columns_")
        frame = as_frame(X)
        there = set(frame.columns)
        absent = [name for name in self.columns_ if name not in there]
        if absent:
            raise TableError(f"the table lacks what the model needs: {listed(absent)}")
        # What the dates of a column mean is settled by all of them together.
        dates = {name: read_dates(frame[name], self._layouts[name]) for name in self._dates}
        out, bent = np.empty((len(frame), len(self.source_))), _Bent()
        bent.count_undated(frame, dates)
        for start in range(0, len(frame), ROWS_AT_ONCE):
            here = slice(start, start + ROWS_AT_ONCE)
            part = {name: values[here] for name, values in dates.items()}
            for place, column in enumerate(self._columns(frame.iloc[here], part, bent)):
                out[here, place] = column
        return out, bent.sentences()

    def _columns(
        self, frame: pd.DataFrame, dates: dict[str, np.ndarray], bent: _Bent
    ) -> Iterator[np.ndarray]:
        """The features of some rows one by one, each of shape (n,)."""
        names = [n for n, k in zip(self.columns_, self.kinds_, strict=True) if k == NUMBER]
        values = _number_block(frame, names)
        bent.count_unreadable(frame, names, values)
        values = np.where(np.isfinite(values), values, np.nan)
        standard = self._numbers.apply(values)
        place = 0
        for name, kind in zip(self.columns_, self.kinds_, strict=True):
            if kind == NUMBER:
                yield standard[:, place]
                if self._gaps[place]:
                    yield np.isnan(values[:, place]).astype(np.float64)
                place += 1
            elif kind == FLAG:
                flags = read_numbers(frame[name])
                yield np.where(np.isfinite(flags), flags, 0.0)
            elif kind == CATEGORY:
                columns, new = _one_hot(self._categories[name], frame[name])
                bent.add_unseen(name, new)
                yield from columns
            else:
                yield from self._date_columns(name, dates[name])

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features, shape (n_features_out,)."""
        check_is_fitted(self, "columns_")
        return np.array(self._names, dtype=object)

    def places_of(self, columns: Iterable[str]) -> list[int]:
        """Which features come from some columns of the table."""
        wanted = set(columns)
        mine = [self.columns_[source] in wanted for source in self.source_]
        return np.flatnonzero(mine).tolist()

    def missing_in(self, X: Any, rows: np.ndarray) -> list[list[str]]:
        """For some rows of the table of `fit` the columns in which they have a gap."""
        part = as_frame(X).iloc[rows]
        numbers = [n for n, k in zip(self.columns_, self.kinds_, strict=True) if k == NUMBER]
        gappy = [name for name, gaps in zip(numbers, self._gaps, strict=True) if gaps]
        gone = {name: ~np.isfinite(_number_block(part, [name])[:, 0]) for name in gappy}
        gone |= {name: part[name].isna().to_numpy() for name in self._categories}
        for name in self._dates:
            gone[name] = np.isnat(read_dates(part[name], self._layouts[name]))
        out: list[list[str]] = [[] for _ in rows]
        for name in self.columns_:
            for place in np.flatnonzero(gone.get(name, [])):
                out[place].append(name)
        return out

    # --- state --------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that `transform` needs, as plain dicts, lists, numbers, text and arrays."""
        check_is_fitted(self, "columns_")
        return {
            "columns": list(self.columns_),
            "kinds": list(self.kinds_),
            "numbers": _plain(self._numbers),
            "gaps": self._gaps,
            "categories": [
                [name, list(category.levels), category.pooled]
                for name, category in self._categories.items()
            ],
            "dates": [
                [
                    name,
                    self._origins[name],
                    self._date_gaps[name],
                    self._layouts[name],
                    _plain(numbers),
                ]
                for name, numbers in self._dates.items()
            ],
            "left_out": [list(pair) for pair in self.left_out_.items()],
            "sentences": list(self.sentences_),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TableFeatures:
        """The transformer of a `state`; `persistence.FEATURES` says what that must be."""
        out = cls()
        out.columns_, out.kinds_ = tuple(state["columns"]), tuple(state["kinds"])
        out._numbers, out._gaps = Numbers(**state["numbers"]), state["gaps"]
        out._categories = {
            name: Category(tuple(levels), pooled)
            for name, levels, pooled in state["categories"]
        }
        out._dates, out._origins, out._date_gaps, out._layouts = {}, {}, {}, {}
        for name, origin, gaps, layout, numbers in state["dates"]:
            out._dates[name], out._origins[name] = Numbers(**numbers), origin
            out._date_gaps[name], out._layouts[name] = gaps, layout
        out.left_out_ = {name: why for name, why in state["left_out"]}
        out.sentences_ = tuple(state["sentences"])
        out._lay_out()
        return out

    # --- learning -----------------------------------------------------------------------

    def _sort_columns(self, frame: pd.DataFrame) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Kinds of the columns to use, and names of the others by reason."""
        kinds: dict[str, str] = {}
        dropped: dict[str, list[str]] = {}
        empty = frame.isna().all(axis=0).to_numpy()
        for name, dtype, nothing in zip(frame.columns, frame.dtypes, empty, strict=True):
            if nothing:
                dropped.setdefault("empty", []).append(name)
            elif dtype == np.float64:
                kinds[name] = NUMBER
            else:
                kind = _kind(frame[name])
                reason = self._reason_to_drop(frame[name], kind)
                if reason or kind is None:
                    dropped.setdefault(reason, []).append(name)
                else:
                    kinds[name] = kind
        return kinds, dropped

    def _reason_to_drop(self, column: pd.Series, kind: str | None) -> str:
        """Why a column cannot be used, or nothing."""
        if kind is None:
            return "of a type that has no numbers"
        if kind in (FLAG, DATE):
            return "constant" if column.nunique(dropna=False) == 1 else ""
        if kind == CATEGORY:
            counts = Counter(words_of(column))
            if len(counts) == 1:
                return "constant"
            many = len(counts) > max(self.max_levels, MOST_DISTINCT * len(column))
            if many or max(counts.values()) < self.min_count:
                return "like ids or prose"
        return ""

    def _learn_numbers(self, frame: pd.DataFrame, kinds: dict[str, str], told: _Told) -> None:
        """Learn the columns of numbers; constant ones are taken out of `kinds`."""
        names = [name for name, kind in kinds.items() if kind == NUMBER]
        # Some at a time: what is learnt of them takes several copies.
        width = max(1, NUMBERS_AT_ONCE // len(frame))
        groups = [names[start : start + width] for start in range(0, len(names), width)]
        found = [_look_at_numbers(_number_block(frame, group)) for group in groups or [[]]]
        learnt = Numbers.joined([each[0] for each in found])
        counts, infinite, steps = (
            np.concatenate([each[i] for each in found]) for i in (1, 2, 3)
        )
        keep = (learnt.scale > 0.0) | ((counts > 0) & (counts < len(frame)))
        self._numbers, self._gaps = learnt.take(keep), counts[keep] > 0
        for place, name in enumerate(names):
            if not keep[place]:
                why = "constant" if counts[place] == 0 else "empty"
                told.dropped.setdefault(why, []).append(name)
                del kinds[name]
                continue
            told.gaps += [f"{name} ({counts[place]})"] if counts[place] else []
            told.infinite += [name] if infinite[place] else []
        told.counters += [names[place] for place in np.flatnonzero(steps)]

    def _levels(self, column: pd.Series) -> tuple[Category, int]:
        """Levels of a column of words, commonest kept, and how many were pooled."""
        words, counts = np.unique(np.array(words_of(column), dtype=str), return_counts=True)
        # Ties as scikit-learn's OneHotEncoder breaks them.
        order = np.argsort(counts, kind="stable")[::-1]
        common = [i for i in order if counts[i] >= self.min_count]
        if len(common) == len(words) and len(words) <= self.max_levels:
            return Category(tuple(sorted(words.tolist())), False), 0
        common = common[: self.max_levels - 1]
        levels = sorted(str(words[i]) for i in common)
        return Category(tuple(levels), True), len(words) - len(levels)

    def _learn_dates(self, name: str, column: pd.Series) -> list[str]:
        """Learn a column of dates; says so where their form is a guess."""
        layout, doubt = text_date_layout(column, name) if _is_text(column) else (None, None)
        # Kept: a few new rows alone may not tell days from months.
        self._layouts[name] = layout
        dates = read_dates(column, layout)
        known = dates[~np.isnat(dates)]
        self._origins[name] = int(np.min(known).astype(np.int64))
        self._dates[name] = Numbers.of(_date_parts(dates, self._origins[name]))
        self._date_gaps[name] = bool(len(known) < len(dates))
        return [doubt] if doubt else []

    def _date_columns(self, name: str, dates: np.ndarray) -> list[np.ndarray]:
        learnt = self._dates[name]
        standard = learnt.apply(_date_parts(dates, self._origins[name]))
        columns = [standard[:, i] for i in np.flatnonzero(learnt.scale > 0.0)]
        if self._date_gaps[name]:
            columns.append(np.isnat(dates).astype(np.float64))
        return columns

    def _lay_out(self) -> None:
        """Names of the features and the columns they come from."""
        names, source, place = [], [], 0
        for index, (name, kind) in enumerate(zip(self.columns_, self.kinds_, strict=True)):
            if kind == NUMBER:
                mine = [name] + ([f"{name} missing"] if self._gaps[place] else [])
                place += 1
            elif kind == FLAG:
                mine = [name]
            elif kind == CATEGORY:
                category = self._categories[name]
                mine = [f"{name} = {level}" for level in category.levels]
                mine += [f"{name} = (other)"] if category.pooled else []
            else:
                used = np.flatnonzero(self._dates[name].scale > 0.0)
                mine = [f"{name} {DATE_PARTS[i]}" for i in used]
                mine += [f"{name} missing"] if self._date_gaps[name] else []
            names += mine
            source += [index] * len(mine)
        self._names, self.source_ = names, np.array(source, dtype=int)


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


def _kind(column: pd.Series) -> str | None:
    import pandas as pd

    types = pd.api.types
    dtype = column.dtype
    if types.is_bool_dtype(dtype) and not column.isna().any():
        return FLAG
    if types.is_bool_dtype(dtype):
        return CATEGORY
    if types.is_complex_dtype(dtype):
        return None
    if types.is_numeric_dtype(dtype):
        return NUMBER
    if types.is_datetime64_any_dtype(dtype):
        return DATE
    if types.is_timedelta64_dtype(dtype):
        return NUMBER
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
    return None


def _is_text(column: pd.Series) -> bool:
    """Whether all cells that are there are text."""
    import pandas as pd

    if isinstance(column.dtype, pd.StringDtype):
        return True
    return column.dtype == object and all(isinstance(cell, str) for cell in column.dropna())


def _number_block(frame: pd.DataFrame, names: list[str]) -> Matrix:
    """Columns as floats of shape (n, d)."""
    if not names:
        return np.empty((len(frame), 0))
    part = frame[names]
    if (part.dtypes == np.float64).all():
        return part.to_numpy(dtype=np.float64, copy=True)
    return np.stack([_seconds_or_numbers(part[name]) for name in names], axis=1)


def _seconds_or_numbers(column: pd.Series) -> np.ndarray:
    if column.dtype.kind == "m":
        return column.dt.total_seconds().to_numpy(dtype=np.float64)
    return read_numbers(column)


def _look_at_numbers(
    values: Matrix,
) -> tuple[Numbers, np.ndarray, np.ndarray, np.ndarray]:
    """What standardises (n, d) values, their gaps, and which are infinite or count the rows."""
    infinite = np.any(np.isinf(values), axis=0)
    values = np.where(np.isfinite(values), values, np.nan)
    counts = np.isnan(values).sum(axis=0)
    steps = np.all(values[1:] == values[:-1] + 1.0, axis=0) & (len(values) > 20)
    return Numbers.of(values), counts, infinite, steps


@dataclass
class _Bent:
    """Cells of a new table that had to be bent, by the names of their columns."""

    unreadable: Counter[str] = field(default_factory=Counter)
    undated: Counter[str] = field(default_factory=Counter)
    unseen: dict[str, set[str]] = field(default_factory=dict)

    def count_unreadable(self, frame: pd.DataFrame, names: list[str], values: Matrix) -> None:
        """Count cells that should be finite numbers and are not."""
        for place in np.flatnonzero(~np.all(np.isfinite(values), axis=0)):
            there = ~frame[names[place]].isna().to_numpy()
            count = int(np.count_nonzero(there & ~np.isfinite(values[:, place])))
            if count:
                self.unreadable[names[place]] += count

    def count_undated(self, frame: pd.DataFrame, dates: dict[str, np.ndarray]) -> None:
        """Count cells that should be dates and are not."""
        for name, values in dates.items():
            there = ~frame[name].isna().to_numpy()
            count = int(np.count_nonzero(there & np.isnat(values)))
            if count:
                self.undated[name] += count

    def add_unseen(self, name: str, words: list[str]) -> None:
        """Note words that are no level of a column."""
        if words:
            self.unseen.setdefault(name, set()).update(words)

    def sentences(self) -> list[str]:
        """What to say of them."""
        out = []
        if self.unreadable:
            found = [f"{name} ({count})" for name, count in self.unreadable.items()]
            out.append(f"Cells that are no finite numbers count as missing: {listed(found)}.")
        if self.undated:
            found = [f"{name} ({count})" for name, count in self.undated.items()]
            out.append(f"Cells that are no dates count as missing: {listed(found)}.")
        if self.unseen:
            new = [f"{name} ({listed(sorted(w), 3)})" for name, w in self.unseen.items()]
            out.append(f"Words that the model has not seen: {listed(new)}.")
        return out


def _one_hot(category: Category, column: pd.Series) -> tuple[list[np.ndarray], list[str]]:
    """0/1 columns of the levels, and the words that are none of them and have no pool."""
    words = np.array(words_of(column), dtype=object)
    place = {level: i for i, level in enumerate(category.levels)}
    other = len(category.levels)
    codes = np.array([place.get(word, other) for word in words])
    columns = [(codes == i).astype(np.float64) for i in range(category.width)]
    if category.pooled:
        return columns, []
    return columns, sorted({str(word) for word in words[codes == other]})


def _date_parts(dates: np.ndarray, origin: int) -> Matrix:
    """`DATE_PARTS` of datetime64[ns] dates, shape (n, 5); NaN for NaT."""
    gone = np.isnat(dates)
    known = np.where(gone, np.datetime64(origin, "ns"), dates)
    days = known.astype("datetime64[D]")
    years = known.astype("datetime64[Y]")
    parts = np.stack(
        [
            (known.astype(np.int64).astype(np.float64) - float(origin)) / DAY,
            years.astype(np.int64) + 1970.0,
            (days - years.astype("datetime64[D]")).astype(np.int64) + 1.0,
            # Day 0 of the epoch was a Thursday.
            (days.astype(np.int64) + 3) % 7.0,
            # Not a difference of dates: the first day's midnight is no number of nanoseconds.
            (known.astype(np.int64) % DAY) / 3600e9,
        ],
        axis=1,
    )
    parts[gone] = np.nan
    return parts


def _plain(numbers: Numbers) -> dict[str, np.ndarray]:
    return {"fill": numbers.fill, "centre": numbers.centre, "scale": numbers.scale}


# --- words ------------------------------------------------------------------------------


@dataclass
class _Told:
    """Names for the sentences, collected while learning."""

    dropped: dict[str, list[str]]
    gaps: list[str] = field(default_factory=list)
    infinite: list[str] = field(default_factory=list)
    counters: list[str] = field(default_factory=list)
    pooled: list[str] = field(default_factory=list)
    gaps_of_dates: list[str] = field(default_factory=list)
    gaps_of_words: list[str] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)


def _sentences(kinds: tuple[str, ...], columns: tuple[str, ...], told: _Told) -> list[str]:
    of: dict[str, list[str]] = {}
    for name, kind in zip(columns, kinds, strict=True):
        of.setdefault(kind, []).append(name)
    lines = [
        ("Numbers, standardised", of.get(NUMBER, []), 12),
        ("Yes or no, as 1 and 0", of.get(FLAG, []), 12),
        ("Words, one 0/1 column a level", of.get(CATEGORY, []), 12),
        ("Dates, as days elapsed, year, day of year, weekday and hour", of.get(DATE, []), 12),
        ("Missing numbers, set to the median and marked by a 0/1 column", told.gaps, 5),
        ("Missing dates, set to the middle and marked", told.gaps_of_dates, 5),
        ("Missing words, taken as one more word", told.gaps_of_words, 5),
        ("Infinite numbers count as missing", told.infinite, 5),
        ("Rare levels share one 0/1 column", told.pooled, 5),
        ("These count the rows; leave them out if they say nothing", told.counters, 5),
    ]
    out = [f"{words}: {listed(names, most)}." for words, names, most in lines if names]
    out += told.guesses
    return out + [f"Left out: {reason}." for reason in _reasons(told.dropped)]


def _reasons(dropped: dict[str, list[str]]) -> list[str]:
    return [f"{listed(names)} ({reason})" for reason, names in dropped.items()]
