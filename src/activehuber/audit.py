"""A table with doubtful labels -> a model of it -> which labels not to believe, and why.

table -> features -> parameters chosen, model fitted -> evidence a label -> table, page
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from activehuber._typing import Mask, Matrix, Vector
from activehuber.basis import APPROXIMATION_NAMES
from activehuber.classifier import HLClassifier
from activehuber.features import TableFeatures, as_frame, words_of
from activehuber.fitting import Data, ViewSettings, reduced_gram
from activehuber.gram import DenseGram
from activehuber.intervals import half_width
from activehuber.linalg import BreakdownError
from activehuber.model_selection import is_missing
from activehuber.newton import solve
from activehuber.path import Trail, follow
from activehuber.problem import Problem
from activehuber.refinement import DEFAULT_REMOVAL
from activehuber.regressor import HLRegressor
from activehuber.report import (
    MAX_LINES,
    LabelLine,
    Neighbour,
    PathSummary,
    Points,
    Report,
    render,
)
from activehuber.rows import ArrayRows, Rows, blas_threads, one_blas_thread
from activehuber.search import HLClassifierCV, HLRegressorCV
from activehuber.tables import (
    TableError,
    csv_line,
    csv_rows,
    first_line,
    harmless,
    listed,
    offending,
    plain_text,
    read_numbers,
    shortened,
    write_file,
)
from activehuber.views import View

if TYPE_CHECKING:
    import pandas as pd

NOT_BELIEVED, KEPT, TRUSTED = "not believed", "kept", "trusted"
# Most similar rows that are named.
N_NEIGHBOURS = 5
# Labels, worst first, whose similar rows are looked for; the page shows 2,000. They are looked
# for among so many labels in use, drawn at random if there are more.
MOST_EXPLAINED, MOST_COMPARED = 20_000, 20_000
# Labels up to which the model is fitted with the kernel itself: its Gram matrix takes 0.8 GB,
# and a fit about twice that.
LARGEST_EXACT = 10_000
# Functions that stand for the kernel above that.
N_COMPONENTS = 500
AUTO = "auto"
# Passes over the rows after which two thirds of the bar of a fit have gone by.
USUAL_PASSES = 25
# Labels up to which the path over the threshold is followed exactly, and its work at most:
# changes of a label, each of which costs a pass over the Gram matrix, times its entries. Up
# to more labels the path is walked in steps, and above that not at all.
PATH_LABELS, PATH_WORK = 1_500, 1.2e9
WALK_LABELS, WALK_STEPS, FEWER_STEPS = 6_000, 24, 10
# Points of the path handed to the page.
PATH_POINTS = 1_000
# Labels of at least this size are written with a power of ten.
LONGEST_PLAIN = 1e9
# Below this share of explained variance the features say little.
LITTLE_EXPLAINED = 0.2
FEW_LABELS = 30
# Rows up to which BLAS gets one thread: for small matrices more of them wait for each other,
# on a busy machine for minutes.
ONE_THREAD_ROWS = 1_000

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Summary:
    """An audit in numbers and sentences.

    Attributes
    ----------
    kind : {"regression", "classification"}
    target : str
    n_rows, n_labelled, n_unlabelled, n_not_believed, n_trusted : int
    n_features : int
        Numbers a row after the features were made.
    scale : float or None
        σ̂, the noise of the labels in units of the target; None for classes.
    threshold : float or None
        ξ of the fit; None where every class has its own.
    explained : float
        Share of the variance of the kept labels that the other rows explain (leave-one-out);
        for classes the share of kept labels that the other rows agree with.
    parameters : dict
        What was chosen.
    findings, notes : tuple of str
        What was chosen and how sure it is; what was done to the table, and warnings.
    settings : tuple of (name, value)
        All that is needed to get the same numbers again.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import audit
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[7] = np.nan
    >>> summary = audit(X, y).summary
    >>> summary.kind, summary.n_labelled, summary.n_unlabelled
    ('regression', 59, 1)
    """

    kind: str
    target: str
    n_rows: int
    n_labelled: int
    n_unlabelled: int
    n_not_believed: int
    n_trusted: int
    n_features: int
    scale: float | None
    threshold: float | None
    explained: float
    parameters: dict[str, Any]
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Audit:
    """What `audit` found.

    Attributes
    ----------
    labels : pandas or polars DataFrame
        One row a label, worst first: id or `row` (from 1), `given`, `fitted`, `lower`,
        `upper`, `residual` (leave-one-out, in units of σ̂), `left_at` (the threshold ξ at
        which it left the free set; missing if it did not down to the fit's own ξ),
        `quality`, `verdict` ("not believed", "kept" or "trusted") and `reason`.
    predictions : pandas or polars DataFrame
        One row for each without a label: id or `row`, `prediction`, `lower`, `upper`; for
        classes also `probability`.
    summary : Summary
    model : sklearn.pipeline.Pipeline
        `features` and `estimator`.
    report : activehuber.report.Report
        What the page shows.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import audit
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[7] += 5
    >>> found = audit(X, y)
    >>> int(found.labels["row"].iloc[0]), found.labels["verdict"].iloc[0]
    (8, 'not believed')
    """

    labels: Any
    predictions: Any
    summary: Summary
    model: Pipeline
    report: Report

    def to_csv(self, path: str | Path) -> None:
        """Write `labels`; text that a spreadsheet would run gets an apostrophe in front.

        Parameters
        ----------
        path : str or Path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from activehuber import audit
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> found = audit(X, np.sin(X.ravel()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.to_csv(Path(folder) / "labels.csv")
        ...     print((Path(folder) / "labels.csv").read_text().split(",")[:3])
        ['row', 'given', 'fitted']
        """
        write_file(Path(path), table_csv(self.labels))

    def to_parquet(self, path: str | Path) -> None:
        """Write `labels`.

        Parameters
        ----------
        path : str or Path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from activehuber import audit
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> found = audit(X, np.sin(X.ravel()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.to_parquet(Path(folder) / "labels.parquet")
        ...     print((Path(folder) / "labels.parquet").read_bytes()[:4])
        b'PAR1'
        """
        import io

        out = io.BytesIO()
        frame = self.labels
        if hasattr(frame, "to_parquet"):
            frame.to_parquet(out, index=False)
        else:
            frame.write_parquet(out)
        write_file(Path(path), out.getvalue())

    def to_html(self, path: str | Path) -> None:
        """Write the page: one file that asks nothing of the network.

        Parameters
        ----------
        path : str or Path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from activehuber import audit
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> found = audit(X, np.sin(X.ravel()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.to_html(Path(folder) / "report.html")
        ...     print((Path(folder) / "report.html").read_text()[:15].lower())
        <!doctype html>
        """
        write_file(Path(path), render(self.report).encode())


def audit(
    X: Any,
    y: Any,
    *,
    trusted: Any = None,
    ids: Any = None,
    classify: bool = False,
    views: Sequence[View] | None = None,
    estimator: Any = None,
    coverage: float = 0.9,
    max_selection_rows: int = 2_000,
    approximation: str | None = AUTO,
    n_components: int = N_COMPONENTS,
    random_state: int = 0,
    progress: Progress | None = None,
    title: str = "table",
    target: str | None = None,
    data_hash: str | None = None,
) -> Audit:
    """Find the labels of a table not to believe, and predict the missing ones.

    Parameters
    ----------
    X : pandas or polars DataFrame, or array, of shape (n_rows, n_columns)
        The columns to learn from, as they are: numbers, words, dates, gaps.
    y : array-like of shape (n_rows,)
        Labels; NaN or None where there is none.
    trusted : array-like of shape (n_rows,), bool, default=None
        Labels that are right.
    ids : array-like of shape (n_rows,), default=None
        Names of the rows, all different; their numbers from 1 if None.
    classify : bool, default=False
        Whether labels are classes.
    views : list of View, default=None
        Groups of columns of X by name, each with a kernel of its own.
    estimator : HLRegressorCV, HLClassifierCV or alike, default=None
        None: one that chooses its parameters.
    coverage : float, default=0.9
        Share of right labels that intervals are to hold.
    max_selection_rows : int, default=2000
        Parameters are chosen on so many labels at most, drawn at random; the model is then
        fitted to all.
    approximation : {"auto", None, "nystrom", "fourier", "linear"}, default="auto"
        What stands for the kernel in the model; see `HLRegressor`. "auto": None up to
        10,000 labels, and "nystrom" above, which needs no matrix of the size of the table
        squared.
    n_components : int, default=500
        Functions of the approximation in all; views share them evenly.
    random_state : int, default=0
    progress : callable, default=None
        Called with the share done and a few words.
    title, target, data_hash : str, default=None
        For the page; the name of y and a hash of the table if None.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from activehuber import audit
    >>> from activehuber.datasets import make_spoilt_diabetes
    >>> spoilt = make_spoilt_diabetes()
    >>> table = spoilt.frame.drop(columns=["patient", "progression"])
    >>> found = audit(table, spoilt.frame["progression"], ids=spoilt.frame["patient"])
    >>> found.labels["verdict"].iloc[0]
    'not believed'
    >>> len(found.predictions) == int(spoilt.frame["progression"].isna().sum())
    True
    """
    options = Options(
        coverage,
        max_selection_rows,
        approximation,
        n_components,
        random_state,
        progress or say_nothing,
        title,
    )
    frame = as_frame(X)
    labels = Labels.read(y, len(frame), classify=classify, name=target)
    mask = _check_trusted(trusted, len(frame))
    names, id_name = row_names(ids, len(frame))
    options.tell(0.02, "making numbers of the columns")
    features = TableFeatures().fit(frame)
    rows = ArrayRows(features.transform(frame))
    digest = data_hash or _hash_of(frame, labels)
    encoded = Encoded(features, rows, labels, mask, names, id_name, digest)
    found = audit_encoded(encoded, estimator, views, options)
    if type(X).__module__.partition(".")[0] != "polars":
        return found
    return replace(
        found, labels=_as_polars(found.labels), predictions=_as_polars(found.predictions)
    )


@dataclass(frozen=True)
class Options:
    """How an audit is made; names as in `audit`."""

    coverage: float
    max_selection_rows: int
    approximation: str | None
    n_components: int
    random_state: int
    tell: Progress
    title: str

    def __post_init__(self) -> None:
        if not isinstance(self.coverage, (int, float)) or not 0.0 < self.coverage < 1.0:
            raise TableError(
                f"coverage must be a number between 0 and 1, got {self.coverage!r}"
            )
        if self.approximation not in (AUTO, None, *APPROXIMATION_NAMES):
            raise TableError(
                f"approximation must be auto, none, {', '.join(APPROXIMATION_NAMES)}, got "
                f"{shortened(self.approximation)}"
            )
        whole = isinstance(self.n_components, (int, np.integer))
        if not whole or isinstance(self.n_components, bool) or self.n_components < 1:
            raise TableError(
                f"n_components must be a whole number from 1, got {self.n_components!r}"
            )

    def approximation_of(self, n_labels: int) -> str | None:
        """What stands for the kernel in a model of so many labels."""
        if self.approximation != AUTO:
            return self.approximation
        return "nystrom" if n_labels > LARGEST_EXACT else None


@dataclass(frozen=True)
class Encoded:
    """A table as a fit takes it.

    Attributes
    ----------
    features : TableFeatures
        What made numbers of its columns.
    rows : Rows
        The numbers, wherever they are.
    labels : Labels
    trusted : ndarray of shape (n,), bool
    names : ndarray of shape (n,)
        Of the rows; `id_name` is the name of their column.
    digest : str
        A hash of the table.
    """

    features: TableFeatures
    rows: Rows
    labels: Labels
    trusted: Mask
    names: np.ndarray
    id_name: str
    digest: str


def audit_encoded(
    table: Encoded, estimator: Any, views: Sequence[View] | None, options: Options
) -> Audit:
    """The audit of a table whose columns are numbers already; see `audit`."""
    tell, n = options.tell, len(table.rows)
    if estimator is None:
        own = _views_of_features(views, table.features)
        estimator = _chooser(table.labels.classify, own, options.random_state)
    elif views is not None:
        raise TableError("give views to the estimator itself, or leave the estimator out")
    with threadpool_limits(1 if n <= ONE_THREAD_ROWS else None, user_api="blas"):
        tell(0.05, "choosing parameters and fitting")
        choice = _choose_and_fit(estimator, table, options)
        tell(0.7, "following the threshold")
        path, path_note = _follow_path(choice.regressor, table.labels)
        tell(0.8, "looking for similar rows")
        judged = _judge(choice, table.labels, table.trusted, options.coverage)
        order = _worst_first(judged)
        similar = _similar_rows(choice.regressor, table.rows, judged, order, options)
        tell(0.9, "predicting what is missing")
        rest = _predictions_table(choice, table, options.coverage)
    left_at = _left_at(path, len(judged.rows))
    reasons = _reasons(judged, similar)
    tell(0.95, "writing it down")
    notes = (*path_note, *similar.notes, *choice.notes)
    summary = _summarise(choice, table, judged, options, notes)
    verdicts = _labels_table(judged, table, left_at, reasons, order)
    report = _report(
        options.title, summary, judged, table, left_at, reasons, order, similar, path, choice
    )
    model = Pipeline([("features", table.features), ("estimator", choice.estimator)])
    return Audit(verdicts, rest, summary, model, report)


def say_nothing(share: float, words: str) -> None:
    """Progress that no one asked for."""


# --- what comes in ----------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Labels as they came and as the fit sees them.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Floats with NaN, or objects with None for classes.
    given : ndarray of shape (n,), bool
    classify : bool
    name : str
    """

    values: np.ndarray
    given: Mask
    classify: bool
    name: str

    @classmethod
    def read(cls, y: Any, n_rows: int, *, classify: bool, name: str | None) -> Labels:
        """Labels of `n_rows` rows, or one line that says which of them are none."""
        import pandas as pd

        name = str(name or getattr(y, "name", None) or "target")
        if y is None:
            raise TableError("y is missing; mark rows without a label by NaN or None")
        column = y if isinstance(y, pd.Series) else _as_series(y)
        if len(column) != n_rows:
            raise TableError(f"X has {n_rows} rows but y has {len(column)}")
        column = column.reset_index(drop=True)
        if classify:
            words = words_of(column)
            given = ~column.isna().to_numpy()
            values = _objects(words)
            values[~given] = None
        else:
            flags = _holds_flags(column)
            values = np.full(n_rows, np.nan) if flags else read_numbers(column)
            bad = offending(column, values)
            if bad:
                raise TableError(
                    f"target {shortened(name)!r} must hold finite numbers, but not: {bad}; "
                    "mend them, leave them empty, or use --classify for classes"
                )
            given = ~np.isnan(values)
        if not np.any(given):
            raise TableError(
                f"target {shortened(name)!r} has no label at all: at least some rows need one"
            )
        return cls(values, given, classify, name)


def _as_series(y: Any) -> pd.Series:
    import pandas as pd

    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == np.float64:
        return pd.Series(y)
    return pd.Series(_as_list(y), dtype=object)


def _holds_flags(column: pd.Series) -> bool:
    """Whether some cells are true or false, which are no numbers."""
    if column.dtype == np.float64:
        return False
    types = {type(cell) for cell in column.dropna().tolist()}
    return bool in types or np.bool_ in types


def _as_list(y: Any) -> list[Any]:
    if hasattr(y, "to_list"):
        return list(y.to_list())
    values = np.asarray(y) if not isinstance(y, (list, tuple)) else y
    if np.ndim(values) != 1:
        raise TableError(f"y must have one label a row, got {np.ndim(values)} dimensions")
    return list(values)


def _objects(values: list[Any]) -> np.ndarray:
    """An array of shape (n,) of the values as they are, whatever they are."""
    return np.array([*values, None], dtype=object)[:-1]


def _check_trusted(trusted: Any, n_rows: int) -> Mask:
    if trusted is None:
        return np.zeros(n_rows, dtype=bool)
    mask = np.asarray(trusted)
    if mask.shape != (n_rows,) or np.any(is_missing(mask)) or not np.all(mask == (mask == 1)):
        raise TableError(f"trusted must hold {n_rows} times True or False")
    return mask.astype(bool)


def row_names(ids: Any, n_rows: int) -> tuple[np.ndarray, str]:
    """The names of the rows, their numbers from 1 if None, and what the names are called."""
    if ids is None:
        return np.arange(1, n_rows + 1), "row"
    name = str(getattr(ids, "name", None) or "id")
    names = _objects(_as_list(ids))
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


def _views_of_features(
    views: Sequence[View] | None, features: TableFeatures
) -> list[View] | None:
    """Views of columns of the table as views of the features made of them."""
    if views is None:
        return None
    out = []
    for number, view in enumerate(views):
        columns = [view.columns] if isinstance(view.columns, str) else list(view.columns)
        spoken = view.name or f"view{number}"
        lost = [name for name in columns if name not in features.columns_]
        if lost:
            raise TableError(
                f"view {spoken!r}: {listed(lost)} cannot be used; there is no such column, or "
                "it was left out as constant, empty or an id"
            )
        mine = clone(view)
        mine.columns = features.places_of(columns)
        mine.name = spoken
        out.append(mine)
    return out


# --- the fit ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """The model and how it came about.

    Attributes
    ----------
    estimator : HLRegressor or HLClassifier
        Fitted to all labels.
    selection : object
        The estimator that chose, with `best_params_`.
    selection_rows : int
        Labels on which it chose.
    """

    estimator: Any
    selection: Any
    selection_rows: int
    notes: tuple[str, ...]

    @property
    def regressor(self) -> HLRegressor:
        inner = self.estimator
        return inner.estimator_ if isinstance(inner, HLClassifier) else inner


def _chooser(classify: bool, views: list[View] | None, random_state: int) -> Any:
    if classify:
        return HLClassifierCV(views=views, random_state=random_state)
    # An audit is asked which labels are wrong: here labels are always dropped, also where
    # predictions would be a little better if they were only bound.
    return HLRegressorCV(views=views, removals=(DEFAULT_REMOVAL,), random_state=random_state)


def _choose_and_fit(estimator: Any, table: Encoded, options: Options) -> _Choice:
    labels, X = table.labels, table.rows
    rows = np.flatnonzero(labels.given)
    count = len(rows)
    approximation = options.approximation_of(count)
    sampled = count > options.max_selection_rows
    if sampled:
        rng = np.random.default_rng(options.random_state)
        rows = np.sort(rng.choice(rows, options.max_selection_rows, replace=False))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if sampled or approximation is not None:
                selection = clone(estimator).fit(
                    X.take(rows), labels.values[rows], trusted=table.trusted[rows]
                )
                options.tell(0.2, "fitting to all labels")
                model = clone(_inner(selection))
                # The ridge 2lλ is noise over signal: it stays, whatever the number of labels.
                model.set_params(alpha=model.alpha * len(rows) / count)
                _fit_to_all(model, table, approximation, options)
            else:
                selection = clone(estimator).fit(
                    _array(X), labels.values, trusted=table.trusted
                )
                model = _inner(selection)
            _ = model.label_quality_  # here, so that its warnings are caught too
        except (ValueError, TypeError) as error:
            raise TableError(first_line(error)) from error
    notes = tuple(dict.fromkeys(f"Warning: {first_line(w.message)}." for w in caught))
    return _Choice(model, selection, len(rows), tuple(n.replace("..", ".") for n in notes))


def _fit_to_all(
    model: Any, table: Encoded, approximation: str | None, options: Options
) -> None:
    """Fit with the parameters chosen; blocks of rows at a time if that is asked for."""
    labels, trusted = table.labels.values, table.trusted
    if approximation is None:
        model.fit(_array(table.rows), labels, trusted=trusted)
        return
    if "approximation" not in model.get_params(deep=False):
        raise TableError(
            f"a {type(model).__name__} takes no approximation; use fewer labels, or none"
        )
    model.set_params(
        approximation=approximation,
        n_components=max(1, options.n_components // len(model.views or [None])),
        random_state=options.random_state,
    )
    watched = WatchedRows(table.rows, _Watch(options.tell, 0.2, 0.7))
    model.fit(watched, labels, trusted=trusted)
    _ = model.label_quality_
    watched.watch.tell = None  # the model keeps its rows, not who watched them


def _array(rows: Rows) -> Matrix:
    """All rows in memory; they are there already unless they are far away."""
    return rows.X if isinstance(rows, ArrayRows) else rows.take(np.arange(len(rows)))


@dataclass
class _Watch:
    """Passes over the rows as progress: how many there will be no one knows before."""

    tell: Progress | None
    first: float
    last: float
    passes: int = 0

    def pass_begins(self) -> None:
        """Tell it."""
        self.passes += 1
        if self.tell is not None:
            done = 1.0 - math.exp(-self.passes / USUAL_PASSES)
            share = self.first + (self.last - self.first) * done
            self.tell(share, f"fitting to all labels, pass {self.passes} over the rows")


class WatchedRows(Rows):
    """Rows that tell when a pass over them begins."""

    def __init__(self, rows: Rows, watch: _Watch) -> None:
        self.rows, self.watch = rows, watch
        self.n_rows, self.n_features = rows.n_rows, rows.n_features

    def take(self, numbers: np.ndarray) -> Matrix:
        """See `Rows`."""
        return self.rows.take(numbers)

    def run(self, work, shared=(), columns=(), chosen=None):
        """See `Rows`."""
        self.watch.pass_begins()
        return self.rows.run(work, shared, columns, chosen)

    def in_blocks_of(self, size: int) -> WatchedRows:
        """See `Rows`."""
        return WatchedRows(self.rows.in_blocks_of(size), self.watch)


class ChosenRows(Rows):
    """Some of other rows, by their numbers, increasing."""

    def __init__(self, rows: Rows, numbers: np.ndarray) -> None:
        self.rows, self.numbers = rows, numbers
        self.n_rows, self.n_features = len(numbers), rows.n_features

    def take(self, numbers: np.ndarray) -> Matrix:
        """See `Rows`."""
        return self.rows.take(self.numbers[numbers])

    def run(self, work, shared=(), columns=(), chosen=None):
        """See `Rows`."""
        mine = self.numbers if chosen is None else self.numbers[chosen]
        return self.rows.run(work, shared, columns, mine)

    def in_blocks_of(self, size: int) -> ChosenRows:
        """See `Rows`."""
        return ChosenRows(self.rows.in_blocks_of(size), self.numbers)


def _inner(selection: Any) -> Any:
    return getattr(selection, "best_estimator_", selection)


# --- evidence ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judged:
    """Evidence on the labels, arrays of shape (l,), in the order of the rows.

    Attributes
    ----------
    rows : their places in the table
    given, fitted, expected : floats, or class numbers as floats
        `expected` is what the other rows say, without the label itself.
    half : float
        Half the width of the intervals; NaN for classes.
    """

    rows: np.ndarray
    given: Vector
    fitted: Vector
    expected: Vector
    half: float
    residual: Vector
    quality: Vector
    removed: Mask
    trusted: Mask
    classes: tuple[str, ...]

    @property
    def verdicts(self) -> np.ndarray:
        """The words, shape (l,), object: every label points to one of three."""
        words = np.array([KEPT, NOT_BELIEVED, TRUSTED], dtype=object)
        return words[np.where(self.trusted, 2, self.removed.astype(int))]

    @property
    def lower(self) -> Vector:
        """Lower ends of the intervals."""
        return self.fitted - self.half

    @property
    def upper(self) -> Vector:
        """Upper ends."""
        return self.fitted + self.half


def _judge(choice: _Choice, labels: Labels, trusted: Mask, coverage: float) -> _Judged:
    rows = np.flatnonzero(labels.given)
    model = choice.estimator
    shared = {
        "rows": rows,
        "quality": np.asarray(model.label_quality_, dtype=np.float64)[rows],
        "removed": np.asarray(model.removed_)[rows],
        "trusted": trusted[rows],
    }
    if labels.classify:
        return _judge_classes(model, labels, rows, shared)
    given = labels.values[rows].astype(np.float64)
    left_out = np.asarray(model.loo_residuals_)[rows]
    used = ~shared["removed"]
    weights = model._labels_fit[1][rows[used]]
    return _Judged(
        given=given,
        fitted=given - np.asarray(model.residuals_)[rows],
        expected=given - left_out,
        # That of `predict_interval`, without another pass over the rows.
        half=half_width(left_out[used], weights, coverage),
        residual=_in_units(left_out, float(model.scale_)),
        classes=(),
        **shared,
    )


def _judge_classes(
    model: HLClassifier, labels: Labels, rows: np.ndarray, shared: dict[str, Any]
) -> _Judged:
    classes = [plain_text(name) for name in model.classes_]
    place = {name: number for number, name in enumerate(classes)}
    own = np.array([place[str(value)] for value in labels.values[rows]])
    left_out = np.asarray(model.loo_residuals_)[rows]
    residuals = np.asarray(model.residuals_)[rows]
    if left_out.ndim == 1:
        codes = 2.0 * own - 1.0
        fitted, expected = (codes - each > model.cut_ for each in (residuals, left_out))
        residual = _in_units(left_out, float(model.estimator_.scale_))
    else:
        codes = np.where(own[:, None] == np.arange(len(classes)), 1.0, -1.0)
        fitted, expected = (np.argmax(codes - e, axis=1) for e in (residuals, left_out))
        mine = left_out[np.arange(len(rows)), own]
        residual = _in_units(mine, np.asarray(model.estimator_.scale_)[own])
    return _Judged(
        given=own.astype(np.float64),
        fitted=fitted.astype(np.float64),
        expected=expected.astype(np.float64),
        half=np.nan,
        residual=residual,
        classes=tuple(classes),
        **shared,
    )


def _in_units(values: Vector, scale: float | Vector) -> Vector:
    """values / scale; without noise, 0 for what fits and ±inf for what does not."""
    scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), values.shape)
    far = np.where(values == 0.0, 0.0, np.copysign(np.inf, values))
    return np.where(scale > 0.0, values / np.where(scale > 0.0, scale, 1.0), far)


def _worst_first(judged: _Judged) -> np.ndarray:
    """The order of labels: by quality, then by the size of the residual, then by row."""
    quality = np.where(np.isnan(judged.quality), np.inf, judged.quality)
    return np.lexsort((judged.rows, -np.abs(judged.residual), quality))


@dataclass(frozen=True)
class _Similar:
    """For some labels the labels in use most similar to them, by the kernel of the fit.

    Attributes
    ----------
    wanted : ndarray of shape (w,), int
        Places of these labels, worst first.
    near : ndarray of shape (w, k), int
        Places of the similar ones, most similar first.
    similarity : ndarray of shape (w, k)
        K(x, z) / √(K(x, x) K(z, z)), from 0 to 1.
    """

    wanted: np.ndarray
    near: np.ndarray
    similarity: Matrix
    notes: tuple[str, ...] = ()

    def of(self, rank: int) -> list[tuple[int, float]]:
        """Places and similarities for the label of some rank, none if it was not asked for."""
        pairs = zip(
            self.near[rank : rank + 1].flat, self.similarity[rank : rank + 1].flat, strict=True
        )
        return [(int(place), float(value)) for place, value in pairs]


def _similar_rows(
    model: HLRegressor, X: Rows, judged: _Judged, order: np.ndarray, options: Options
) -> _Similar:
    wanted = order[:MOST_EXPLAINED]
    pool = np.flatnonzero(~judged.removed)
    notes: tuple[str, ...] = ()
    if len(pool) > MOST_COMPARED:
        rng = np.random.default_rng(options.random_state)
        pool = np.sort(rng.choice(pool, MOST_COMPARED, replace=False))
        notes = (
            f"Similar rows were looked for among {MOST_COMPARED:,} labels drawn at random, "
            f"for the {len(wanted):,} worst labels.",
        )
    k = min(N_NEIGHBOURS, max(0, len(pool) - 1))
    if k == 0:
        nothing = np.empty((len(wanted), 0))
        return _Similar(wanted, nothing.astype(int), nothing)
    views, weights = model._settings.views, model._fitted[0].view_weights
    kernel = _Kernel(views, weights, X.take(judged.rows[pool]))
    asked = X.take(judged.rows[wanted])
    in_pool = np.full(len(judged.rows), -1)
    in_pool[pool] = np.arange(len(pool))
    size = max(1, (1 << 20) // len(pool))
    starts = range(0, len(wanted), size)

    def nearest(start: int) -> tuple[np.ndarray, Matrix]:
        here = slice(start, start + size)
        return kernel.nearest(asked[here], in_pool[wanted[here]], k)

    with one_blas_thread(), ThreadPoolExecutor(blas_threads()) as threads:
        found = list(threads.map(nearest, starts))
    near = pool[np.concatenate([best for best, _ in found])]
    return _Similar(wanted, near, np.concatenate([values for _, values in found]), notes)


class _Kernel:
    """Similarity to some rows, as the kernel of Σ_α c^α f^α sees it."""

    def __init__(self, views: tuple[ViewSettings, ...], weights: Vector, rows: Matrix) -> None:
        self.views, self.weights, self.rows = views, weights, rows
        self.norms = np.sqrt(np.maximum(_diagonal(views, weights, rows), 0.0))

    def nearest(self, X: Matrix, own_place: np.ndarray, k: int) -> tuple[np.ndarray, Matrix]:
        """Places of the k most similar rows and how similar they are, each of shape (n, k)."""
        block = _kernel(self.views, self.weights, X, self.rows)
        if np.ptp(self.norms) > 0.0:
            np.divide(block, self.norms, out=block, where=self.norms > 0.0)
        among = own_place >= 0
        block[np.flatnonzero(among), own_place[among]] = -np.inf
        best = _largest(block, k)
        values = np.take_along_axis(block, best, axis=1)
        norms = np.sqrt(np.maximum(_diagonal(self.views, self.weights, X), 0.0))
        norms = norms * (1.0 if np.ptp(self.norms) > 0.0 else self.norms[0])
        values = values / np.where(norms > 0.0, norms, 1.0)[:, None]
        # Ties by place, so that the same table always names the same rows.
        ranks = np.lexsort((best, -values), axis=1)
        values = np.clip(np.take_along_axis(values, ranks, axis=1), 0.0, 1.0)
        return np.take_along_axis(best, ranks, axis=1), values


def _largest(values: Matrix, k: int) -> np.ndarray:
    """Places of the k largest of each row, in any order.

    They are in the k groups of columns with the largest maxima, or in the last columns that
    fill no group: that leaves few to be sorted.
    """
    rows, columns = values.shape
    size = math.isqrt(columns)
    count = columns // size
    if count > k:
        groups = values[:, : count * size].reshape(rows, count, size)
        best = np.argpartition(groups.max(axis=2), -k, axis=1)[:, -k:]
        inside = (best[:, :, None] * size + np.arange(size)).reshape(rows, -1)
        rest = np.broadcast_to(np.arange(count * size, columns), (rows, columns - count * size))
        places = np.concatenate([inside, rest], axis=1)
    else:
        places = np.broadcast_to(np.arange(columns), (rows, columns))
    chosen = np.argpartition(np.take_along_axis(values, places, axis=1), -k, axis=1)[:, -k:]
    return np.take_along_axis(places, chosen, axis=1)


def _kernel(views: tuple[ViewSettings, ...], weights: Vector, X: Matrix, Z: Matrix) -> Matrix:
    """Σ_α (c^α)² K^α(X, Z), the kernel of Σ_α c^α f^α."""
    out = np.zeros((len(X), len(Z)))
    for view, weight in zip(views, weights, strict=True):
        left, right = view.select(X), view.select(Z)
        for rows, block in view.kernel.blocks(left, right):
            out[rows] += weight**2 * block
    return out


def _diagonal(views: tuple[ViewSettings, ...], weights: Vector, X: Matrix) -> Vector:
    """Σ_α (c^α)² K^α(x, x), shape (n,)."""
    out = np.zeros(len(X))
    for view, weight in zip(views, weights, strict=True):
        out += weight**2 * view.kernel.diagonal(view.select(X))
    return out


# --- the path ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Path:
    """Which labels are free at which threshold.

    Attributes
    ----------
    thresholds : ndarray of shape (K,)
        Falling.
    states : ndarray of shape (K, l), int
        0 free, ±1 bound.
    """

    thresholds: Vector
    states: np.ndarray


def _follow_path(model: HLRegressor, labels: Labels) -> tuple[_Path | None, list[str]]:
    """The path with all labels in use, down to the fit's own ξ, and what to say of it.

    That of the reduced problem: coefficients, most of the work of `huber_path`, are not needed.
    """
    count = int(np.count_nonzero(labels.given))
    if model._settings.approximation is not None:
        return None, ["With an approximation no path over the threshold is followed."]
    if model._several_targets:
        return None, ["With more than two classes no path over the threshold is followed."]
    if count > WALK_LABELS:
        return None, [f"Above {WALK_LABELS} labels no path over the threshold is followed."]
    problem = _problem_of_all(model, labels)
    stop = float(model.threshold_)
    lowest = stop if 0.0 < stop < np.inf else None
    try:
        if count <= PATH_LABELS:
            most = max(int(PATH_WORK / count**2), int(model.removed_.sum()) + 50)
            return _exact_path(follow(problem, lowest, most))
        return _walk(problem, lowest)
    except BreakdownError:
        return None, ["The path over the threshold is too ill-conditioned to be followed."]


def _problem_of_all(model: HLRegressor, labels: Labels) -> Problem:
    assert model.X_fit_ is not None  # audit has features, no Gram matrix
    data = Data(model.X_fit_, *model._labels_fit)
    settings = replace(model._settings, view_weights=model._fitted[0].view_weights)
    y = data.y[labels.given, 0]
    centre = float(np.median(y)) if settings.fit_intercept else 0.0
    return Problem(
        gram=DenseGram(reduced_gram(settings, data)),
        y=y - centre,
        weights=data.weights[labels.given],
        alpha=settings.alpha,
        fit_intercept=settings.fit_intercept,
        active=np.ones(len(y), dtype=bool),
    )


def _exact_path(trail: Trail) -> tuple[_Path, list[str]]:
    path = _Path(trail.thresholds, trail.states)
    if trail.complete:
        return path, []
    return path, [
        f"The path over the threshold was followed from {trail.thresholds[0]:.3g} down to "
        f"{trail.thresholds[-1]:.3g}; labels that left the free set below do not say where."
    ]


def _walk(problem: Problem, lowest: float | None) -> tuple[_Path | None, list[str]]:
    """Solutions at some thresholds, each started at the last."""
    gram, steps = problem.gram, WALK_STEPS
    assert isinstance(gram, DenseGram)
    if gram.is_well_conditioned(problem.mu):
        source = gram.inverse_source(problem.mu, border=problem.fit_intercept)
    else:
        # Without the inverse a step costs more.
        source, steps = gram.source(problem.mu), FEWER_STEPS
    solution = solve(problem, np.inf, source=source)
    first = float(np.max(np.abs(problem.y - solution.intercept - solution.fitted)))
    if first == 0.0:
        return None, []
    last = min(first / 1.001, lowest or 1e-3 * first)
    thresholds = np.geomspace(first, last, steps)
    states = np.zeros((steps, len(problem.y)), dtype=np.int8)
    for step, threshold in enumerate(thresholds[1:], start=1):
        solution = solve(problem, threshold, source=source, start=solution)
        states[step] = np.where(solution.free, 0, np.sign(solution.v))
    note = (
        f"The path over the threshold was walked in {steps} steps; left_at is the first "
        "of them at which a label was bound."
    )
    return _Path(thresholds, states), [note]


def _left_at(trail: _Path | None, count: int) -> Vector:
    """The threshold at which each label first became bound, shape (l,); NaN if it did not."""
    if trail is None:
        return np.full(count, np.nan)
    bound = np.abs(trail.states) == 1
    first = np.argmax(bound, axis=0)
    return np.where(np.any(bound, axis=0), trail.thresholds[first], np.nan)


def _path_summary(path: _Path | None, chosen: float) -> PathSummary | None:
    if path is None or len(path.thresholds) < 2:
        return None
    free = np.count_nonzero(path.states == 0, axis=1)
    keep = np.unique(np.linspace(0, len(free) - 1, PATH_POINTS).round().astype(int))
    return PathSummary(
        tuple(path.thresholds[keep].tolist()), tuple(free[keep].tolist()), chosen
    )


# --- words ------------------------------------------------------------------------------


def _reasons(judged: _Judged, similar: _Similar) -> list[str]:
    """One sentence a label, in the order of the rows."""
    if judged.classes:
        return _class_reasons(judged, similar)
    half = judged.half
    usual, width = _decimals(half, 0.0), _rough(half)
    certain = usual is not None and np.isfinite(half) and half > 0.0
    out = []
    for given, expected in zip(judged.given.tolist(), judged.expected.tolist(), strict=True):
        if certain and abs(given) < LONGEST_PLAIN:
            out.append(f"given {given:.{usual}f}, expected {expected:.{usual}f} ± {width}")
        else:
            out.append(_reason(given, expected, half))
    if similar.near.shape[1]:
        labels = judged.given[similar.near]
        low, high = labels.min(axis=1).tolist(), labels.max(axis=1).tolist()
        spoken = _most_similar(labels.shape[1])
        for i, lowest, highest in zip(similar.wanted.tolist(), low, high, strict=True):
            digits = _decimals(half, float(judged.given[i]))
            out[i] += f"; {spoken} {_span(lowest, highest, digits)}"
    return out


def _reason(given: float, expected: float, half: float) -> str:
    digits = _decimals(half, given)
    if digits is None:
        return f"given {given:.4g}, expected {expected:.4g} ± {half:.2g}"
    return f"given {given:.{digits}f}, expected {expected:.{digits}f} ± {_rough(half)}"


def _most_similar(count: int) -> str:
    return f"{count} most similar rows have" if count > 1 else "most similar row has"


def _span(low: float, high: float, digits: int | None) -> str:
    show = (lambda v: f"{v:.4g}") if digits is None else (lambda v: f"{v:.{digits}f}")
    if show(low) == show(high):
        return show(low)
    return f"{show(low)} to {show(high)}" if low < 0.0 else f"{show(low)}–{show(high)}"


def _decimals(unit: float, value: float) -> int | None:
    """Decimals that show two digits of `unit`; None if plain notation would be too long."""
    if not np.isfinite(unit) or unit <= 0.0:
        unit = abs(value) / 100.0 or 1.0
    exponent = int(np.floor(np.log10(unit)))
    if abs(value) >= LONGEST_PLAIN or exponent < -7:
        return None
    return max(0, 1 - exponent)


def _rough(value: float) -> str:
    """A width with two digits, without an exponent."""
    if not np.isfinite(value) or value == 0.0:
        return f"{value:g}"
    digits = max(0, 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{digits}f}"


def _class_reasons(judged: _Judged, similar: _Similar) -> list[str]:
    name = [shortened(word) for word in judged.classes]
    given, expected = judged.given.astype(int).tolist(), judged.expected.astype(int).tolist()
    pairs = zip(given, expected, strict=True)
    out = [f"given {name[mine]}, expected {name[theirs]}" for mine, theirs in pairs]
    k = similar.near.shape[1]
    for i, near in zip(similar.wanted.tolist(), similar.near, strict=True) if k else ():
        votes = np.bincount(judged.given[near].astype(int))
        commonest = int(np.argmax(votes))
        out[i] += f"; {votes[commonest]} of the {k} most similar rows have {name[commonest]}"
    return out


def _explained(judged: _Judged) -> float:
    """How well the other rows foretell the kept labels: R², or agreement for classes."""
    kept = ~judged.removed
    if judged.classes:
        return (
            float(np.mean(judged.given[kept] == judged.expected[kept])) if kept.any() else 0.0
        )
    given = judged.given[kept]
    spread = float(np.sum((given - np.mean(given)) ** 2)) if len(given) else 0.0
    missed = float(np.sum((given - judged.expected[kept]) ** 2))
    return 1.0 - missed / spread if spread > 0.0 else 0.0


def _summarise(
    choice: _Choice, table: Encoded, judged: _Judged, options: Options, notes: tuple[str, ...]
) -> Summary:
    labels, features, n_rows = table.labels, table.features, len(table.rows)
    model, regressor = choice.estimator, choice.regressor
    parameters = dict(getattr(choice.selection, "best_params_", {}))
    explained = _explained(judged)
    scale = None if labels.classify else float(model.scale_)
    threshold = None if np.ndim(model.threshold_) else float(model.threshold_)
    return Summary(
        kind="classification" if labels.classify else "regression",
        target=labels.name,
        n_rows=n_rows,
        n_labelled=len(judged.rows),
        n_unlabelled=n_rows - len(judged.rows),
        n_not_believed=int(np.count_nonzero(judged.removed)),
        n_trusted=int(np.count_nonzero(judged.trusted)),
        n_features=len(features.source_),
        scale=scale,
        threshold=threshold,
        explained=explained,
        parameters=parameters,
        findings=tuple(
            _findings(choice, labels, judged, explained, scale, options.coverage, parameters)
        ),
        notes=(*features.sentences_, *notes),
        settings=_settings(choice, regressor, parameters, options, table),
    )


def _findings(
    choice: _Choice,
    labels: Labels,
    judged: _Judged,
    explained: float,
    scale: float | None,
    coverage: float,
    parameters: dict[str, Any],
) -> list[str]:
    """Sentences on what was chosen and how sure it is."""
    out = []
    # All of them are among the settings; here is what a reader may want to know.
    dull = {"manifold": 0.0, "threshold": "adaptive"}
    said = {
        key: value
        for key, value in parameters.items()
        if key != "view_weights" and not (key in dull and dull[key] == value)
    }
    chosen = ", ".join(f"{key} {_short(value)}" for key, value in said.items())
    if chosen:
        on = f"{choice.selection_rows:,} of the {len(judged.rows):,} labels, drawn at random"
        where = on if choice.selection_rows < len(judged.rows) else "all labels"
        out.append(f"Chosen on {where}: {chosen}.")
    out += _on_approximation(choice.regressor)
    if labels.classify:
        out.append(f"The other rows agree with {explained:.0%} of the labels kept.")
    else:
        share = max(0.0, explained)
        out.append(f"The other rows explain {share:.0%} of the variance of the labels kept.")
        out.append(f"A right label is off by about {_rough(scale or 0.0)} (σ̂).")
        kept = ~judged.removed
        # A label pulls the fit towards itself: it is asked of the fit without it.
        left_out = np.abs(choice.regressor.loo_residuals_[judged.rows])
        inside = left_out <= judged.half
        if np.any(kept):
            out.append(
                f"Intervals aim to hold {coverage:.0%} of right labels; they hold "
                f"{np.mean(inside[kept]):.0%} of those kept, each left out in turn."
            )
    chance = 1.0 / max(2, len(judged.classes))
    little = explained < LITTLE_EXPLAINED if not judged.classes else explained < chance + 0.1
    if little:
        out.append("The columns say little about the target: take the verdicts with care.")
    if len(judged.rows) < FEW_LABELS:
        out.append(f"{len(judged.rows)} labels are few: take the verdicts with care.")
    return out


def _on_approximation(regressor: HLRegressor) -> list[str]:
    approximation, basis = regressor._settings.approximation, regressor._fitted[0].basis
    if approximation is None or basis is None:
        return []
    many = len(basis.places) > 1
    stand = "stand" if many else "stands"
    words = {
        "nystrom": f"the {'kernels' if many else 'kernel'} at {approximation.n_components:,} "
        f"rows drawn at random {stand} for all rows",
        "fourier": f"{basis.width:,} random waves stand for the kernel",
        "linear": "the features themselves stand for the kernel",
    }
    return [f"Approximated ({approximation.kind}): {words[approximation.kind]}."]


def _settings(
    choice: _Choice,
    regressor: HLRegressor,
    parameters: dict[str, Any],
    options: Options,
    table: Encoded,
) -> tuple[tuple[str, str], ...]:
    import platform

    import scipy

    import activehuber

    kernels = [
        f"{view.kernel.name}, gamma {_short(view.kernel.gamma)}"
        for view in regressor._settings.views
    ]
    named = {f"chosen {key}": _short(value) for key, value in parameters.items()}
    pairs = {
        "model": type(choice.estimator).__name__,
        **named,
        "kernel": "; ".join(kernels),
        "approximation": _approximation_words(regressor),
        "alpha": f"{regressor._settings.alpha:.6g}",
        "threshold": _short(regressor.threshold_),
        "labels the choice was made on": str(choice.selection_rows),
        "features": str(len(table.features.source_)),
        "coverage of intervals": f"{options.coverage:g}",
        "seed": str(options.random_state),
        "duality gap": _short(regressor.duality_gap_),
        "KKT residual": _short(regressor.kkt_residual_),
        "data SHA-256": table.digest,
        "activehuber": activehuber.__version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    return tuple(pairs.items())


def _approximation_words(regressor: HLRegressor) -> str:
    approximation = regressor._settings.approximation
    if approximation is None:
        return "none"
    return f"{approximation.kind}, {len(regressor._fitted[0].coefficients)} functions"


def _short(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    if isinstance(value, (list, tuple)) and all(isinstance(item, View) for item in value):
        return ", ".join(f"{v.name} ({v.kernel}, gamma {_short(v.gamma)})" for v in value)
    if isinstance(value, np.ndarray):
        return listed([_short(item) for item in value.tolist()], 6)
    return shortened(value, 120)


def _hash_of(frame: pd.DataFrame, labels: Labels) -> str:
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


# --- what goes out ----------------------------------------------------------------------

Columns = dict[str, Any]
# Rows of a CSV file that are made at once.
CSV_ROWS = 50_000


def _id_name(name: str, others: Sequence[str]) -> str:
    """The id column's name, which no other column of the output may have."""
    return f"{name} (id)" if name in others else name


def _labels_table(
    judged: _Judged,
    table: Encoded,
    left_at: Vector,
    reasons: list[str],
    order: np.ndarray,
) -> pd.DataFrame:
    word = np.array(judged.classes, dtype=object)

    def value(numbers: Vector) -> Any:
        return word[numbers[order].astype(int)] if judged.classes else numbers[order]

    columns = {
        "given": value(judged.given),
        "fitted": value(judged.fitted),
        "lower": judged.lower[order],
        "upper": judged.upper[order],
        "residual": judged.residual[order],
        "left_at": left_at[order],
        "quality": judged.quality[order],
        "verdict": judged.verdicts[order],
        "reason": _objects([reasons[i] for i in order.tolist()]),
    }
    return _frame(table, judged.rows[order], columns)


def _predictions_table(choice: _Choice, table: Encoded, coverage: float) -> pd.DataFrame:
    rows = np.flatnonzero(~table.labels.given)
    exact = choice.regressor._settings.approximation is None
    X = table.rows.take(rows) if exact else ChosenRows(table.rows, rows)
    return _frame(table, rows, predict_columns(choice.estimator, X, coverage))


def _frame(table: Encoded, rows: np.ndarray, columns: Columns) -> pd.DataFrame:
    """Columns as a data frame, the names of their rows in front."""
    import pandas as pd

    names = table.names[rows]
    mine = names.tolist() if names.dtype == object else names
    return pd.DataFrame({_id_name(table.id_name, list(columns)): mine, **columns})


def predict_columns(model: Any, X: Any, coverage: float) -> Columns:
    """Predictions of a fitted HLRegressor or HLClassifier as columns of a table.

    Parameters
    ----------
    model : fitted estimator
    X : ndarray of shape (n, d), or Rows
        Features; n may be 0.
    coverage : float

    Returns
    -------
    dict of arrays of shape (n,)
        `prediction`, `lower`, `upper`; for classes the latter are NaN and there is
        `probability`, that of the class predicted.
    """
    nothing = np.full(len(X), np.nan)
    if isinstance(model, HLClassifier):
        if not len(X):
            return {"prediction": [], "lower": [], "upper": [], "probability": []}
        predicted = np.array([plain_text(name) for name in model.predict(X)], dtype=object)
        probability = np.max(model.predict_proba(X), axis=1)
        return {
            "prediction": predicted,
            "lower": nothing,
            "upper": nothing,
            "probability": probability,
        }
    if not len(X):
        return {"prediction": nothing, "lower": nothing, "upper": nothing}
    interval = np.asarray(model.predict_interval(X, coverage=coverage))
    return {
        "prediction": model.predict(X),
        "lower": interval[:, 0],
        "upper": interval[:, 1],
    }


def _as_polars(frame: pd.DataFrame) -> Any:
    import polars as pl

    return pl.DataFrame({name: frame[name].tolist() for name in frame.columns})


def table_csv(frame: Any, leave_out: Sequence[str] = ()) -> Iterator[bytes]:
    """A table of an audit as CSV in parts; `given` as it was, the rest with few digits."""
    names = [name for name in frame.columns if name not in leave_out]
    yield csv_line(harmless(str(name)) for name in names).encode("utf-8", "replace")
    for start in range(0, len(frame), CSV_ROWS):
        part = frame[start : start + CSV_ROWS]
        columns = [_csv_column(name, part[name].to_numpy()) for name in names]
        yield csv_rows(columns).encode("utf-8", "replace")


def _csv_column(name: str, values: np.ndarray) -> Any:
    if name == "given":
        return [value if value is None else plain_text(value) for value in values.tolist()]
    if name in ("quality", "probability"):
        return ["" if value != value else f"{value:.4g}" for value in values.tolist()]
    return values


def _report(
    title: str,
    summary: Summary,
    judged: _Judged,
    table: Encoded,
    left_at: Vector,
    reasons: list[str],
    order: np.ndarray,
    similar: _Similar,
    path: _Path | None,
    choice: _Choice,
) -> Report:
    names = table.names[judged.rows]
    lines = _label_lines(judged, names, left_at, reasons, order, similar)
    scale = summary.scale if summary.scale else float(np.max(choice.regressor.scale_))
    band = np.nan if summary.threshold is None or not scale else summary.threshold / scale
    points = Points(
        row=names,
        given=judged.given,
        fitted=judged.fitted,
        residual=judged.residual,
        removed=judged.removed,
        threshold=float(band),
        classes=judged.classes,
    )
    return Report(
        title=title,
        target=summary.target,
        kind=summary.kind,
        n_rows=summary.n_rows,
        n_labelled=summary.n_labelled,
        n_unlabelled=summary.n_unlabelled,
        n_removed=summary.n_not_believed,
        scale=summary.scale,
        lines=lines,
        points=points,
        path=_path_summary(path, np.inf if summary.threshold is None else summary.threshold),
        findings=summary.findings,
        notes=summary.notes,
        settings=summary.settings,
    )


def _label_lines(
    judged: _Judged,
    names: np.ndarray,
    left_at: Vector,
    reasons: list[str],
    order: np.ndarray,
    similar: _Similar,
) -> tuple[LabelLine, ...]:
    """The worst labels, as many as the page may show."""

    def value(numbers: Vector, i: int) -> float | str:
        return judged.classes[int(numbers[i])] if judged.classes else float(numbers[i])

    def maybe(number: float) -> float | None:
        return None if np.isnan(number) else float(number)

    verdicts = judged.verdicts
    return tuple(
        LabelLine(
            row=str(names[i]),
            given=value(judged.given, i),
            fitted=value(judged.fitted, i),
            lower=maybe(judged.fitted[i] - judged.half),
            upper=maybe(judged.fitted[i] + judged.half),
            residual=float(judged.residual[i]),
            left_at=maybe(left_at[i]),
            quality=float(judged.quality[i]),
            verdict=str(verdicts[i]),
            reason=reasons[i],
            neighbours=tuple(
                Neighbour(str(names[j]), value(judged.given, j), similarity)
                for j, similarity in similar.of(rank)
            ),
        )
        for rank, i in enumerate(order[:MAX_LINES])
    )


def with_notes(found: Audit, before: Sequence[str]) -> Audit:
    """The same audit with sentences in front of its notes."""
    notes = (*before, *found.summary.notes)
    return replace(
        found,
        summary=replace(found.summary, notes=notes),
        report=replace(found.report, notes=notes),
    )
