"""A table with doubtful labels -> a model of it -> which labels not to believe, and why.

table -> features -> parameters chosen, model fitted -> evidence a label -> table, page
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from activehuber._typing import Mask, Matrix, Vector
from activehuber.classifier import HLClassifier
from activehuber.features import TableFeatures, as_frame, words_of
from activehuber.fitting import Data, ViewSettings, reduced_gram
from activehuber.gram import DenseGram
from activehuber.linalg import BreakdownError
from activehuber.model_selection import is_missing
from activehuber.newton import solve
from activehuber.path import Trail, follow
from activehuber.problem import Problem
from activehuber.refinement import DEFAULT_REMOVAL
from activehuber.regressor import HLRegressor
from activehuber.report import LabelLine, Neighbour, PathSummary, Points, Report, render
from activehuber.search import HLClassifierCV, HLRegressorCV
from activehuber.tables import (
    TableError,
    csv_text,
    first_line,
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
# Labels, worst first, whose similar rows are looked for; the page shows 2,000.
MOST_EXPLAINED = 20_000
# Labels up to which the path over the threshold is followed exactly, and its work at most:
# changes of a label, each of which costs a pass over the Gram matrix, times its entries. Up
# to more labels the path is walked in steps, and above that not at all.
PATH_LABELS, PATH_WORK = 1_500, 1.2e9
WALK_LABELS, WALK_STEPS, FEWER_STEPS = 6_000, 24, 10
# Points of the path handed to the page.
PATH_POINTS = 1_000
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
    """

    labels: Any
    predictions: Any
    summary: Summary
    model: Pipeline
    report: Report

    def to_csv(self, path: str | Path) -> None:
        """Write `labels`; text that a spreadsheet would run gets an apostrophe in front."""
        write_file(Path(path), table_csv(self.labels).encode())

    def to_parquet(self, path: str | Path) -> None:
        """Write `labels`."""
        import io

        out = io.BytesIO()
        frame = self.labels
        if hasattr(frame, "to_parquet"):
            frame.to_parquet(out, index=False)
        else:
            frame.write_parquet(out)
        write_file(Path(path), out.getvalue())

    def to_html(self, path: str | Path) -> None:
        """Write the page: one file that asks nothing of the network."""
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
    tell = progress or (lambda share, words: None)
    _check_coverage(coverage)
    frame = as_frame(X)
    labels = _Labels.read(y, len(frame), classify=classify, name=target)
    mask = _check_trusted(trusted, len(frame))
    names, id_name = _row_names(ids, len(frame))

    tell(0.02, "making numbers of the columns")
    features = TableFeatures().fit(frame)
    matrix = features.transform(frame)
    if estimator is None:
        estimator = _chooser(classify, _views_of_features(views, features), random_state)
    elif views is not None:
        raise TableError("give views to the estimator itself, or leave the estimator out")

    with threadpool_limits(1 if len(frame) <= ONE_THREAD_ROWS else None, user_api="blas"):
        tell(0.05, "choosing parameters and fitting")
        choice = _choose_and_fit(
            estimator, matrix, labels, mask, max_selection_rows, random_state, tell
        )
        tell(0.7, "following the threshold")
        path, path_note = _follow_path(choice.regressor, labels)
        tell(0.8, "looking for similar rows")
        judged = _judge(choice, matrix, labels, mask, coverage)
        order = _worst_first(judged)
        near, similarity = _similar_rows(choice.regressor, matrix, judged, order)
        rest = _predictions_table(choice, matrix, labels, names, id_name, coverage)
    left_at = _left_at(path, len(judged.rows))
    reasons = _reasons(judged, near, order)

    tell(0.95, "writing it down")
    summary = _summarise(
        choice,
        features,
        labels,
        judged,
        coverage,
        random_state,
        (*path_note, *choice.notes),
        len(frame),
        data_hash or _hash_of(frame, labels),
    )
    table = _labels_table(judged, names, id_name, left_at, reasons, order)
    report = _report(
        title,
        summary,
        judged,
        names,
        left_at,
        reasons,
        order,
        near,
        similarity,
        path,
        choice,
    )
    polars = type(X).__module__.partition(".")[0] == "polars"
    model = Pipeline([("features", features), ("estimator", choice.estimator)])
    return Audit(_as_input(table, polars), _as_input(rest, polars), summary, model, report)


# --- what comes in ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Labels:
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
    def read(cls, y: Any, n_rows: int, *, classify: bool, name: str | None) -> _Labels:
        import pandas as pd

        name = str(name or getattr(y, "name", None) or "target")
        if y is None:
            raise TableError("y is missing; mark rows without a label by NaN or None")
        column = y if isinstance(y, pd.Series) else pd.Series(_as_list(y), dtype=object)
        if len(column) != n_rows:
            raise TableError(f"X has {n_rows} rows but y has {len(column)}")
        column = column.reset_index(drop=True)
        if classify:
            words = words_of(column)
            given = ~column.isna().to_numpy()
            values = np.array([*words, None], dtype=object)[:-1]
            values[~given] = None
        else:
            types = {type(cell) for cell in column.dropna().tolist()}
            flags = bool in types or np.bool_ in types
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


def _as_list(y: Any) -> list[Any]:
    if hasattr(y, "to_list"):
        return list(y.to_list())
    values = np.asarray(y) if not isinstance(y, (list, tuple)) else y
    if np.ndim(values) != 1:
        raise TableError(f"y must have one label a row, got {np.ndim(values)} dimensions")
    return list(values)


def _check_coverage(coverage: Any) -> None:
    if not isinstance(coverage, (int, float)) or not 0.0 < coverage < 1.0:
        raise TableError(f"coverage must be a number between 0 and 1, got {coverage!r}")


def _check_trusted(trusted: Any, n_rows: int) -> Mask:
    if trusted is None:
        return np.zeros(n_rows, dtype=bool)
    mask = np.asarray(trusted)
    if mask.shape != (n_rows,) or np.any(is_missing(mask)) or not np.all(mask == (mask == 1)):
        raise TableError(f"trusted must hold {n_rows} times True or False")
    return mask.astype(bool)


def _row_names(ids: Any, n_rows: int) -> tuple[list[Any], str]:
    if ids is None:
        return list(range(1, n_rows + 1)), "row"
    name = str(getattr(ids, "name", None) or "id")
    names = _as_list(ids)
    if len(names) != n_rows:
        raise TableError(f"X has {n_rows} rows but there are {len(names)} ids")
    gone = np.flatnonzero(is_missing(np.array([*names, None], dtype=object)[:-1]))
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


def _choose_and_fit(
    estimator: Any,
    X: Matrix,
    labels: _Labels,
    trusted: Mask,
    most_rows: int,
    random_state: int,
    tell: Progress,
) -> _Choice:
    rows = np.flatnonzero(labels.given)
    sampled = len(rows) > most_rows
    if sampled:
        rng = np.random.default_rng(random_state)
        rows = np.sort(rng.choice(rows, most_rows, replace=False))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if sampled:
                selection = clone(estimator).fit(
                    X[rows], labels.values[rows], trusted=trusted[rows]
                )
                tell(0.4, "fitting to all labels")
                model = clone(_inner(selection))
                # The ridge 2lλ is noise over signal: it stays, whatever the number of labels.
                share = len(rows) / np.count_nonzero(labels.given)
                model.set_params(alpha=model.alpha * share)
                model.fit(X, labels.values, trusted=trusted)
            else:
                selection = clone(estimator).fit(X, labels.values, trusted=trusted)
                model = _inner(selection)
            _ = model.label_quality_  # here, so that its warnings are caught too
        except (ValueError, TypeError) as error:
            raise TableError(first_line(error)) from error
    notes = tuple(dict.fromkeys(f"Warning: {first_line(w.message)}." for w in caught))
    return _Choice(model, selection, len(rows), tuple(n.replace("..", ".") for n in notes))


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
    """

    rows: np.ndarray
    given: Vector
    fitted: Vector
    expected: Vector
    lower: Vector
    upper: Vector
    residual: Vector
    quality: Vector
    removed: Mask
    trusted: Mask
    classes: tuple[str, ...]

    @property
    def verdicts(self) -> np.ndarray:
        words = np.where(self.removed, NOT_BELIEVED, KEPT)
        return np.where(self.trusted, TRUSTED, words)


def _judge(
    choice: _Choice, X: Matrix, labels: _Labels, trusted: Mask, coverage: float
) -> _Judged:
    rows = np.flatnonzero(labels.given)
    model = choice.estimator
    shared = {
        "rows": rows,
        "quality": np.asarray(model.label_quality_, dtype=np.float64)[rows],
        "removed": np.asarray(model.removed_)[rows],
        "trusted": trusted[rows],
    }
    if labels.classify:
        return _judge_classes(model, X, labels, rows, shared)
    given = labels.values[rows].astype(np.float64)
    left_out = np.asarray(model.loo_residuals_)[rows]
    interval = np.asarray(model.predict_interval(X[rows], coverage=coverage))
    return _Judged(
        given=given,
        fitted=given - np.asarray(model.residuals_)[rows],
        expected=given - left_out,
        lower=interval[:, 0],
        upper=interval[:, 1],
        residual=_in_units(left_out, float(model.scale_)),
        classes=(),
        **shared,
    )


def _judge_classes(
    model: HLClassifier, X: Matrix, labels: _Labels, rows: np.ndarray, shared: dict[str, Any]
) -> _Judged:
    classes = [plain_text(name) for name in model.classes_]
    own = np.array([classes.index(str(value)) for value in labels.values[rows]])
    left_out = np.asarray(model.loo_residuals_)[rows]
    if left_out.ndim == 1:
        codes = 2.0 * own - 1.0
        expected = (codes - left_out > model.cut_).astype(np.float64)
        residual = _in_units(left_out, float(model.estimator_.scale_))
    else:
        codes = np.where(own[:, None] == np.arange(len(classes)), 1.0, -1.0)
        expected = np.argmax(codes - left_out, axis=1).astype(np.float64)
        mine = left_out[np.arange(len(rows)), own]
        residual = _in_units(mine, np.asarray(model.estimator_.scale_)[own])
    predicted = [classes.index(plain_text(name)) for name in model.predict(X[rows])]
    nothing = np.full(len(rows), np.nan)
    return _Judged(
        given=own.astype(np.float64),
        fitted=np.array(predicted, dtype=np.float64),
        expected=expected,
        lower=nothing,
        upper=nothing,
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


def _similar_rows(
    model: HLRegressor, X: Matrix, judged: _Judged, order: np.ndarray
) -> tuple[np.ndarray, Matrix]:
    """For each label the labels in use most similar to it, by the kernel of the fit.

    Returns
    -------
    near : ndarray of shape (l, k), int
        Places among the labels, most similar first; −1 where there is none.
    similarity : ndarray of shape (l, k)
        K(x, z) / √(K(x, x) K(z, z)), from 0 to 1.
    """
    count = len(judged.rows)
    pool = np.flatnonzero(~judged.removed)
    k = min(N_NEIGHBOURS, max(0, len(pool) - 1))
    near = np.full((count, k), -1)
    similarity = np.zeros((count, k))
    wanted = order[:MOST_EXPLAINED]
    if k == 0:
        return near, similarity
    views = model._settings.views
    weights = model._fitted[0].view_weights
    size = max(1, (1 << 22) // len(pool))
    in_pool = np.full(count, -1)
    in_pool[pool] = np.arange(len(pool))
    own = _diagonal(views, weights, X[judged.rows])
    for start in range(0, len(wanted), size):
        some = wanted[start : start + size]
        block = _kernel(views, weights, X[judged.rows[some]], X[judged.rows[pool]])
        unit = np.sqrt(np.maximum(np.outer(own[some], own[pool]), 0.0))
        block = np.divide(block, unit, out=np.zeros_like(block), where=unit > 0.0)
        self_at = in_pool[some]
        block[np.flatnonzero(self_at >= 0), self_at[self_at >= 0]] = -np.inf
        best = np.argpartition(-block, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(block, best, axis=1)
        # Ties by place, so that the same table always names the same rows.
        ranks = np.lexsort((best, -values), axis=1)
        near[some] = pool[np.take_along_axis(best, ranks, axis=1)]
        similarity[some] = np.clip(np.take_along_axis(values, ranks, axis=1), 0.0, 1.0)
    return near, similarity


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


def _follow_path(model: HLRegressor, labels: _Labels) -> tuple[_Path | None, list[str]]:
    """The path with all labels in use, down to the fit's own ξ, and what to say of it.

    That of the reduced problem: coefficients, most of the work of `huber_path`, are not needed.
    """
    count = int(np.count_nonzero(labels.given))
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


def _problem_of_all(model: HLRegressor, labels: _Labels) -> Problem:
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


def _reasons(judged: _Judged, near: np.ndarray, order: np.ndarray) -> list[str]:
    """One sentence a label, in the order of the rows."""
    explained = np.zeros(len(judged.rows), dtype=bool)
    explained[order[:MOST_EXPLAINED]] = True
    if judged.classes:
        return [_class_reason(judged, near[i], i, explained[i]) for i in range(len(near))]
    half = 0.5 * (judged.upper - judged.lower)
    out = []
    for i in range(len(judged.rows)):
        digits = _decimals(half[i], judged.given[i])
        text = (
            f"given {judged.given[i]:.{digits}f}, expected {judged.expected[i]:.{digits}f}"
            f" ± {_rough(half[i])}"
            if digits is not None
            else f"given {judged.given[i]:.4g}, expected {judged.expected[i]:.4g}"
            f" ± {half[i]:.2g}"
        )
        mine = near[i][near[i] >= 0]
        if explained[i] and len(mine):
            low, high = np.min(judged.given[mine]), np.max(judged.given[mine])
            text += f"; {_most_similar(len(mine))} {_span(low, high, digits)}"
        out.append(text)
    return out


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
    if abs(value) >= 1e9 or exponent < -7:
        return None
    return max(0, 1 - exponent)


def _rough(value: float) -> str:
    """A width with two digits, without an exponent."""
    if not np.isfinite(value) or value == 0.0:
        return f"{value:g}"
    digits = max(0, 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{digits}f}"


def _class_reason(judged: _Judged, near: np.ndarray, i: int, explained: bool) -> str:
    name = [shortened(word) for word in judged.classes]
    given, expected = int(judged.given[i]), int(judged.expected[i])
    text = f"given {name[given]}, expected {name[expected]}"
    mine = near[near >= 0]
    if explained and len(mine):
        votes = judged.given[mine].astype(int)
        commonest = int(np.argmax(np.bincount(votes)))
        count = int(np.count_nonzero(votes == commonest))
        text += f"; {count} of the {len(mine)} most similar rows have {name[commonest]}"
    return text


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
    choice: _Choice,
    features: TableFeatures,
    labels: _Labels,
    judged: _Judged,
    coverage: float,
    random_state: int,
    notes: tuple[str, ...],
    n_rows: int,
    data_hash: str,
) -> Summary:
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
            _findings(choice, labels, judged, explained, scale, coverage, parameters)
        ),
        notes=(*features.sentences_, *notes),
        settings=_settings(
            choice, regressor, parameters, coverage, random_state, data_hash, features
        ),
    )


def _findings(
    choice: _Choice,
    labels: _Labels,
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
        on = f"{choice.selection_rows} of the {len(judged.rows)} labels, drawn at random"
        where = on if choice.selection_rows < len(judged.rows) else "all labels"
        out.append(f"Chosen on {where}: {chosen}.")
    if labels.classify:
        out.append(f"The other rows agree with {explained:.0%} of the labels kept.")
    else:
        share = max(0.0, explained)
        out.append(f"The other rows explain {share:.0%} of the variance of the labels kept.")
        out.append(f"A right label is off by about {_rough(scale or 0.0)} (σ̂).")
        kept = ~judged.removed
        # A label pulls the fit towards itself: it is asked of the fit without it.
        left_out = np.abs(choice.regressor.loo_residuals_[judged.rows])
        inside = left_out <= 0.5 * (judged.upper - judged.lower)
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


def _settings(
    choice: _Choice,
    regressor: HLRegressor,
    parameters: dict[str, Any],
    coverage: float,
    random_state: int,
    data_hash: str,
    features: TableFeatures,
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
        "alpha": f"{regressor._settings.alpha:.6g}",
        "threshold": _short(regressor.threshold_),
        "labels the choice was made on": str(choice.selection_rows),
        "features": str(len(features.source_)),
        "coverage of intervals": f"{coverage:g}",
        "seed": str(random_state),
        "duality gap": _short(regressor.duality_gap_),
        "KKT residual": _short(regressor.kkt_residual_),
        "data SHA-256": data_hash,
        "activehuber": activehuber.__version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    return tuple(pairs.items())


def _short(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    if isinstance(value, (list, tuple)) and all(isinstance(item, View) for item in value):
        return ", ".join(f"{v.name} ({v.kernel}, gamma {_short(v.gamma)})" for v in value)
    if isinstance(value, np.ndarray):
        return listed([_short(item) for item in value.tolist()], 6)
    return shortened(value, 120)


def _hash_of(frame: pd.DataFrame, labels: _Labels) -> str:
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


def _id_name(name: str, others: Sequence[str]) -> str:
    """The id column's name, which no other column of the output may have."""
    return f"{name} (id)" if name in others else name


def _labels_table(
    judged: _Judged,
    names: list[Any],
    id_name: str,
    left_at: Vector,
    reasons: list[str],
    order: np.ndarray,
) -> Columns:
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
        "verdict": judged.verdicts[order].astype(object),
        "reason": np.array([reasons[i] for i in order], dtype=object),
    }
    mine = [names[row] for row in judged.rows[order]]
    return {_id_name(id_name, list(columns)): mine, **columns}


def _predictions_table(
    choice: _Choice,
    X: Matrix,
    labels: _Labels,
    names: list[Any],
    id_name: str,
    coverage: float,
) -> Columns:
    rows = np.flatnonzero(~labels.given)
    columns = predict_columns(choice.estimator, X[rows], coverage)
    return {_id_name(id_name, list(columns)): [names[row] for row in rows], **columns}


def predict_columns(model: Any, X: Matrix, coverage: float) -> Columns:
    """Predictions of a fitted HLRegressor or HLClassifier as columns of a table.

    Parameters
    ----------
    model : fitted estimator
    X : ndarray of shape (n, d)
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


def _as_input(columns: Columns, polars: bool) -> Any:
    if polars:
        import polars as pl

        return pl.DataFrame({name: list(values) for name, values in columns.items()})
    import pandas as pd

    return pd.DataFrame(columns)


def table_csv(frame: Any, leave_out: Sequence[str] = ()) -> str:
    """A table of an audit as CSV; `given` as it was, quality and the rest with few digits."""
    names = [name for name in frame.columns if name not in leave_out]
    columns = []
    for name in names:
        values = frame[name].to_list() if hasattr(frame[name], "to_list") else list(frame[name])
        if name == "given":
            values = [v if v is None else plain_text(v) for v in values]
        elif name in ("quality", "probability"):
            values = [v if v is None or np.isnan(v) else float(f"{v:.4g}") for v in values]
        columns.append(values)
    return csv_text(map(str, names), columns)


def _report(
    title: str,
    summary: Summary,
    judged: _Judged,
    names: list[Any],
    left_at: Vector,
    reasons: list[str],
    order: np.ndarray,
    near: np.ndarray,
    similarity: Matrix,
    path: _Path | None,
    choice: _Choice,
) -> Report:
    def value(numbers: Vector, i: int) -> float | str:
        return judged.classes[int(numbers[i])] if judged.classes else float(numbers[i])

    def maybe(number: float) -> float | None:
        return None if np.isnan(number) else float(number)

    verdicts = judged.verdicts
    shown = [str(names[row]) for row in judged.rows]
    lines = [
        LabelLine(
            row=shown[i],
            given=value(judged.given, i),
            fitted=value(judged.fitted, i),
            lower=maybe(judged.lower[i]),
            upper=maybe(judged.upper[i]),
            residual=float(judged.residual[i]),
            left_at=maybe(left_at[i]),
            quality=float(judged.quality[i]),
            verdict=str(verdicts[i]),
            reason=reasons[i],
            neighbours=tuple(
                Neighbour(shown[j], value(judged.given, j), float(s))
                for j, s in zip(near[i], similarity[i], strict=True)
                if j >= 0
            ),
        )
        for i in order[:2_000]
    ]
    scale = summary.scale if summary.scale else float(np.max(choice.regressor.scale_))
    band = np.nan if summary.threshold is None or not scale else summary.threshold / scale
    points = Points(
        row=np.array(shown, dtype=object),
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
        lines=tuple(lines),
        points=points,
        path=_path_summary(path, np.inf if summary.threshold is None else summary.threshold),
        findings=summary.findings,
        notes=summary.notes,
        settings=summary.settings,
    )


def with_notes(found: Audit, before: Sequence[str]) -> Audit:
    """The same audit with sentences in front of its notes."""
    notes = (*before, *found.summary.notes)
    return replace(
        found,
        summary=replace(found.summary, notes=notes),
        report=replace(found.report, notes=notes),
    )
