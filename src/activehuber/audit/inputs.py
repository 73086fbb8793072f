"""What comes into an audit, checked once: how it is asked for, labels, names, views.

table, labels, names as they came -> Options, Labels, Encoded
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from activehuber._typing import Mask
from activehuber.data.encoding import TableFeatures, words_of
from activehuber.data.parsing import has_thousands, offending, read_numbers
from activehuber.data.rows import Rows
from activehuber.estimators.groups import check_groups, group_numbers
from activehuber.estimators.splitters import is_missing
from activehuber.estimators.target_scale import LOG, NONE, YEO_JOHNSON
from activehuber.kernels.feature_maps import APPROXIMATION_NAMES
from activehuber.runtime.messages import TableError, first_line, like, listed, shortened
from activehuber.views import View

if TYPE_CHECKING:
    import pandas as pd

AUTO = "auto"
TARGET_TRANSFORMS = (AUTO, NONE, LOG, YEO_JOHNSON)

# Labels up to which the model is fitted with the kernel itself: its Gram matrix takes 0.8 GB,
# and a fit about twice that.
LARGEST_EXACT = 10_000
# Functions that stand for the kernel above that.
N_COMPONENTS = 500

# Fewer labels than this may each have a class of its own.
FEWEST_TO_TELL = 5

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Options:
    """How an audit is made; names as in `audit`."""

    classify: bool = False
    views: Sequence[View] | None = None
    estimator: Any = None
    coverage: float = 0.9
    max_selection_rows: int = 2_000
    approximation: str | None = AUTO
    n_components: int = N_COMPONENTS
    random_state: int = 0
    progress: Progress | None = None
    title: str = "table"
    target_transform: str | None = AUTO

    def __post_init__(self) -> None:
        check_coverage(self.coverage)
        if self.target_transform not in (None, *TARGET_TRANSFORMS):
            raise TableError(
                f"target_transform must be {', '.join(TARGET_TRANSFORMS)}, got "
                f"{shortened(self.target_transform)}"
            )
        if self.classify and self.target_transform not in (AUTO, None, NONE):
            raise TableError("target_transform is for numbers, and labels are classes here")
        if self.approximation not in (AUTO, None, *APPROXIMATION_NAMES):
            raise TableError(
                f"approximation must be auto, none, {', '.join(APPROXIMATION_NAMES)}, got "
                f"{shortened(self.approximation)}"
            )
        count = self.n_components
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise TableError(f"n_components must be a whole number from 1, got {count!r}")

    def tell(self, share: float, words: str) -> None:
        """Say how much is done, to whoever asked."""
        if self.progress is not None:
            self.progress(share, words)


def check_coverage(coverage: Any) -> None:
    """Raise unless intervals can hold such a share of the labels."""
    if not isinstance(coverage, (int, float)) or not 0.0 < coverage < 1.0:
        raise TableError(f"coverage must be a number between 0 and 1, got {coverage!r}")


@dataclass(frozen=True)
class TargetColumn:
    """Labels as they came and as the fit sees them.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Floats with NaN, or objects with None for classes.
    given : ndarray of shape (n,), bool
    name : str
    """

    values: np.ndarray
    given: Mask
    name: str

    @classmethod
    def read(cls, y: Any, n_rows: int, *, classify: bool, name: str | None) -> TargetColumn:
        """Labels of `n_rows` rows, or one line that says which of them are none."""
        import pandas as pd

        name = str(name or getattr(y, "name", None) or "target")
        if y is None:
            raise TableError("y is missing; mark rows without a label by NaN or None")
        floats = isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == np.float64
        if not isinstance(y, pd.Series):
            y = pd.Series(y) if floats else pd.Series(_as_list(y), dtype=object)
        if len(y) != n_rows:
            raise TableError(f"X has {n_rows} rows but y has {len(y)}")
        column, said = y.reset_index(drop=True), f"target {shortened(name)!r}"
        if classify:
            given = ~column.isna().to_numpy()
            values = objects(words_of(column))
            values[~given] = None
            counts = Counter(values[given].tolist())
            n_labels, alone = counts.total(), list(counts.values()).count(1)
            # Such a target is one of numbers.
            if alone > 0.5 * n_labels and n_labels >= FEWEST_TO_TELL:
                raise TableError(
                    f"{said}: {alone} of {n_labels} labels are alone in their class, so "
                    "nothing can be learnt of it; leave classify out if labels are numbers (on "
                    "the command line --classify)"
                )
        else:
            types = set() if column.dtype == np.float64 else set(map(type, column.dropna()))
            # True and false are no numbers.
            flags = not types.isdisjoint({bool, np.bool_})
            values = np.full(n_rows, np.nan) if flags else read_numbers(column)
            bad = offending(column, values)
            if bad:
                cells = column[np.isnan(values)]
                some = any(isinstance(cell, str) and has_thousands(cell) for cell in cells)
                hint = ", write 1234 where it says 1,234" if some else ""
                raise TableError(
                    f"{said} must hold finite numbers, but not: {bad}; mend them, leave them "
                    f"empty{hint}, or use classify=True for classes (on the command line "
                    "--classify)"
                )
            given = ~np.isnan(values)
        if not np.any(given):
            raise TableError(f"{said} has no label at all: at least some rows need one")
        return cls(values, given, name)


def _as_list(y: Any) -> list[Any]:
    if hasattr(y, "to_list"):
        return list(y.to_list())
    values = np.asarray(y) if not isinstance(y, (list, tuple)) else y
    if np.ndim(values) != 1:
        raise TableError(f"y must have one label a row, got {np.ndim(values)} dimensions")
    return list(values)


def objects(values: list[Any]) -> np.ndarray:
    """An array of shape (n,) of the values as they are, whatever they are."""
    return np.array([*values, None], dtype=object)[:-1]


def check_trusted(trusted: Any, n_rows: int) -> Mask:
    """Which labels are right, shape (n,): none of them if None."""
    if trusted is None:
        return np.zeros(n_rows, dtype=bool)
    mask = np.asarray(trusted)
    if mask.shape != (n_rows,) or np.any(is_missing(mask)) or not np.all(mask == (mask == 1)):
        raise TableError(f"trusted must hold {n_rows} times True or False")
    return mask.astype(bool)


def check_row_groups(groups: Any, labels: TargetColumn) -> np.ndarray | None:
    """Groups as numbers, −1 for a row in none, shape (n,); None if there are none."""
    try:
        numbers = group_numbers(groups, len(labels.given))
        if numbers is not None:
            check_groups(numbers, labels.given[:, None])
    except (TypeError, ValueError) as error:
        raise TableError(first_line(error)) from None
    return numbers


def row_names(ids: Any, n_rows: int) -> tuple[np.ndarray, str]:
    """The names of the rows, their numbers from 1 if None, and what the names are called."""
    if ids is None:
        return np.arange(1, n_rows + 1), "row"
    name = str(getattr(ids, "name", None) or "id")
    names = objects(_as_list(ids))
    if len(names) != n_rows:
        raise TableError(f"X has {n_rows} rows but there are {len(names)} ids")
    gone = np.flatnonzero(is_missing(names))
    if len(gone):
        raise TableError(f"column {shortened(name)!r}: row {gone[0] + 1} has no id")
    first: dict[str, int] = {}
    for row, value in enumerate(names):
        earlier = first.setdefault(str(value), row)
        if earlier != row:
            raise TableError(
                f"column {shortened(name)!r} is no id: rows {earlier + 1} and {row + 1} both "
                f"have {shortened(value)!r}"
            )
    return names, name


def hash_of(frame: pd.DataFrame, labels: TargetColumn) -> str:
    """SHA-256 of the columns' names and cells as text, and of the labels."""
    out = hashlib.sha256()
    for name in frame.columns:
        column = frame[name]
        out.update(repr(name).encode("utf-8", "replace"))
        if column.dtype == np.float64:
            out.update(column.to_numpy().tobytes())
        else:
            out.update("\x1f".join(map(str, column.tolist())).encode("utf-8", "replace"))
    out.update("\x1f".join(map(str, labels.values.tolist())).encode("utf-8", "replace"))
    return out.hexdigest()


@dataclass(frozen=True)
class Encoded:
    """A table as a fit takes it.

    Attributes
    ----------
    features : TableFeatures
        What made numbers of its columns.
    rows : Rows
        The numbers, wherever they are.
    labels : TargetColumn
    trusted : ndarray of shape (n,), bool
    names : ndarray of shape (n,)
        Of the rows; `id_name` is the name of their column.
    digest : str
        A hash of the table.
    frame : pandas.DataFrame or None
        Its cells as they came; None where they are far away.
    groups : ndarray of shape (n,), int, or None
        As in `fitting.settings.Data`.
    """

    features: TableFeatures
    rows: Rows
    labels: TargetColumn
    trusted: Mask
    names: np.ndarray
    id_name: str
    digest: str
    frame: pd.DataFrame | None = None
    groups: np.ndarray | None = None


def views_of_features(views: Sequence[View], features: TableFeatures) -> list[View]:
    """Views of columns of the table as views of the features made of them."""
    out = []
    for number, view in enumerate(views):
        columns = [view.columns] if isinstance(view.columns, str) else list(view.columns)
        mine = clone(view)
        mine.name = view.name or f"view{number}"
        for name in columns:
            column = f"column {shortened(name)!r}"
            if name in features.left_out_:
                raise TableError(
                    f"view {mine.name!r}: {column} was left out of the table "
                    f"({features.left_out_[name]}); leave it out of the view too"
                )
            if name not in features.columns_:
                raise TableError(
                    f"view {mine.name!r}: there is no {column} to learn from"
                    f"{like(str(name), features.columns_)}; there are "
                    f"{listed(features.columns_, 12)}"
                )
        mine.columns = features.places_of(columns)
        out.append(mine)
    return out
