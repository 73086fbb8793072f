"""One fit: checked data and resolved settings in, everything fitted out.

rows and labels -> reduction -> threshold mode -> certified coefficients -> label evidence
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from activehuber import graphs
from activehuber._typing import Mask, Matrix, Vector
from activehuber.data.rows import Rows
from activehuber.fitting.validation import check_memory, is_number
from activehuber.kernels.feature_maps import Basis, drawn
from activehuber.kernels.kernel import STATIONARY_KERNELS, Kernel
from activehuber.labels import refinement, thresholds, widths
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError, cholesky_in_place, solve_lower
from activehuber.operators.dense import DenseGram, Gram, submatrix
from activehuber.operators.features import BlockFactor, BlockGram
from activehuber.problem.problem import Certificate, Problem
from activehuber.problem.reduction import (
    Expansion,
    Reduction,
    build_part,
    check_gram_matrix,
    expand_views,
    needs_gram_matrix,
)
from activehuber.solver import approximation as approximate
from activehuber.solver.approximation import Approximation, BlockExpansion, BlockReduction
from activehuber.solver.leave_one_out import leave_one_out, refit_without, units
from activehuber.solver.newton import Solution, Status, solve
from activehuber.solver.path import ThresholdPath, threshold_path
from activehuber.solver.polishing import Fit, recover
from activehuber.solver.view_weights import learn_weights

# Learnt view weights further from their optimum than this raise a warning.
WEIGHTS_TOLERANCE = 1e-6
# A warning comes when more than this share of the labels goes, or fewer than so many remain.
MANY_REMOVED = 0.3
FEW_LEFT = 10
# The other terms times the largest value of a kernel may weigh so many times as much as alpha:
# beyond it ‖f‖²_K is lost beside them.
MOST_PENALTY = 1e15
# View weights of an approximated fit are learnt on so many labels at most, evenly spaced.
WEIGHT_LABELS = 20_000

# No threshold is smaller in units of the labels.
TINY = float(np.finfo(np.float64).tiny)

Result = TypeVar("Result")
Complaint = tuple[type[Warning], str]


@dataclass(frozen=True)
class ViewSettings:
    """One view, resolved; names as in `View`.

    Attributes
    ----------
    columns : ndarray of int or None
        None: all columns, as they are.
    """

    name: str
    columns: np.ndarray | None
    kernel: Kernel
    graph: Any
    n_neighbors: int

    def select(self, X: Matrix) -> Matrix:
        """The view's columns of X, C-ordered."""
        columns = self.columns
        if columns is None:
            return X
        if len(columns) and np.array_equal(columns, np.arange(columns[0], columns[-1] + 1)):
            # Neighbouring columns are copied at the speed of memory, others one by one.
            return np.ascontiguousarray(X[:, columns[0] : columns[-1] + 1])
        return np.ascontiguousarray(X[:, columns])

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Errors in here say which view they are about, if there are views."""
        try:
            yield
        except (TypeError, ValueError) as error:
            if self.columns is None:
                raise
            raise type(error)(f"view {self.name!r}: {error}") from error


@dataclass(frozen=True)
class Settings:
    """The estimator's parameters, resolved; names as in `HLRegressor`.

    Attributes
    ----------
    view_weights : ndarray of shape (m,) or None
        c; None if it is to be learnt.
    approximation : Approximation or None
        None: the kernels themselves.
    weighs_labels : bool
        Whether leave-one-out figures are wanted at once, while factors are at hand.
    tries_widths : bool
        Whether labels may be judged at another width than the fit has.
    """

    views: tuple[ViewSettings, ...]
    view_weights: Vector | None
    alpha: float
    manifold: float
    agreement: float
    threshold: str | float | refinement.Rule
    removal: float | None
    n_refinements: int
    threshold_step: float
    algorithm: str
    fit_intercept: bool
    tol: float
    max_iter: int
    verbose: int
    approximation: Approximation | None = None
    weighs_labels: bool = False
    tries_widths: bool = True

    def in_units(self, unit: float) -> Settings:
        """The same for labels that are measured in units of `unit`."""
        threshold = self.threshold
        if callable(threshold):
            threshold = _rule_in_units(threshold, unit)
        elif not isinstance(threshold, str):
            threshold = max(float(threshold) / unit, TINY)
        return replace(self, threshold=threshold, threshold_step=self.threshold_step / unit)

    def knows_rows_by_value(self, *, with_graph: bool) -> bool:
        """Whether rows may be taken in any order: nothing else refers to them by number."""
        by_number = with_graph and any(
            graphs.is_matrix(view.graph) or callable(view.graph) for view in self.views
        )
        # A user's rule may know the labels by their places.
        return self.approximation is None and not by_number and not callable(self.threshold)

    @property
    def holds_matrices(self) -> bool:
        """Whether kernel or graph is a matrix that is not kept: labels are weighed in fit."""
        given = any(graphs.is_matrix(view.graph) for view in self.views)
        return self.precomputed or (self.manifold > 0.0 and given)

    def without_matrices(self) -> Settings:
        """The same without graphs that are matrices."""
        views = tuple(
            replace(view, graph=None) if graphs.is_matrix(view.graph) else view
            for view in self.views
        )
        return replace(self, views=views)

    @property
    def precomputed(self) -> bool:
        """Whether X is the Gram matrix itself."""
        return self.views[0].kernel.name == "precomputed"


@dataclass(frozen=True)
class Data:
    """Checked input of a fit.

    Attributes
    ----------
    X : ndarray of shape (n, d), or Rows
        Or the (n, n) Gram matrix of a precomputed kernel. An approximated fit takes Rows.
    y : ndarray of shape (n, q)
        NaN where unlabelled.
    weights : ndarray of shape (n,)
    trusted : ndarray of shape (n, q), bool
    """

    X: Any
    y: Matrix
    weights: Vector
    trusted: Mask

    @property
    def labelled(self) -> Mask:
        """Labels that count, shape (n, q): given, and of positive weight."""
        return ~np.isnan(self.y) & (self.weights > 0.0)[:, None]

    @property
    def total_weight(self) -> float:
        """S, over the labels of the first target."""
        return float(self.weights[self.labelled[:, 0]].sum())

    def order(self, *, precomputed: bool = False) -> np.ndarray:
        """The rows by features, label and weight: whatever order they were given in.

        Rows that are alike in all of these are copies of each other. Features are compared by
        one combination of them, computed row by row; those of a Gram matrix after sorting.
        """
        X = np.sort(self.X, axis=1) if precomputed else self.X
        with np.errstate(over="ignore", invalid="ignore"):
            features = np.sum(X * np.cos(np.arange(1.0, X.shape[1] + 1.0)), axis=1)
        return np.lexsort((*self.trusted.T, self.weights, *self.y.T[::-1], features))

    def take(self, rows: np.ndarray, *, precomputed: bool = False) -> Data:
        """Some rows, in memory."""
        X = self.X[np.ix_(rows, rows)] if precomputed else self.X[rows]
        return Data(X, self.y[rows], self.weights[rows], self.trusted[rows])

    def some_labels(self, most: int, seed: int) -> Data:
        """Some rows with a label of the first target, in memory."""
        rows = np.flatnonzero(self.labelled[:, 0])
        rows = rows[drawn(len(rows), most, np.random.default_rng(seed))]
        return Data(self.X.take(rows), self.y[rows], self.weights[rows], self.trusted[rows])


@dataclass(frozen=True)
class Evidence:
    """What leave-one-out says of the labels, on all rows; NaN where there is none."""

    scale: float
    loo_residuals: Vector
    loo_inflation: Vector
    label_quality: Vector

    def times(self, unit: float) -> Evidence:
        """The same with labels measured in units of 1/`unit`."""
        return replace(self, scale=unit * self.scale, loo_residuals=unit * self.loo_residuals)

    def take(self, rows: np.ndarray) -> Evidence:
        """The same for rows in another order."""
        return replace(
            self,
            loo_residuals=self.loo_residuals[rows],
            loo_inflation=self.loo_inflation[rows],
            label_quality=self.label_quality[rows],
        )


@dataclass(frozen=True)
class Fitted:
    """The fit of one target on all n rows; see the attributes of `HLRegressor`.

    Attributes
    ----------
    coefficients : ndarray of shape (n, m), or (p,)
        Of the kernels at the rows; of the functions of the basis if there is one.
    basis : Basis or None
        The functions of an approximated fit.
    view_weights : ndarray of shape (m,)
    view_weights_residual : float
        0 for given weights.
    sigma : float or None
        σ̂ if the threshold mode estimated it.
    quality : ndarray of shape (n,) or None
        Of the labels, if the threshold mode judged them.
    evidence : Evidence or None
        None if no one has asked for it yet.
    """

    coefficients: Matrix
    intercept: float
    view_weights: Vector
    view_weights_residual: float
    threshold: float
    thresholds: Vector
    removed: Mask
    residuals: Vector
    certificate: Certificate
    n_iter: int
    n_labelled: int
    sigma: float | None
    evidence: Evidence | None
    quality: Vector | None = None
    basis: Basis | None = None

    def take(self, rows: np.ndarray) -> Fitted:
        """The same for rows in another order; of exact fits only."""
        return replace(
            self,
            coefficients=self.coefficients[rows],
            removed=self.removed[rows],
            residuals=self.residuals[rows],
            quality=None if self.quality is None else self.quality[rows],
            evidence=None if self.evidence is None else self.evidence.take(rows),
        )


def fit_targets(settings: Settings, data: Data) -> list[Fitted]:
    """Fit and certify each target; weigh its labels where that cannot wait.

    Rows are put in an order of their own where that is possible: rounding, which follows the
    order of sums, then says the same of the same rows however they are shuffled.
    """
    order = None
    # A Gram matrix is not copied for that: it may be as large as memory allows.
    if settings.knows_rows_by_value(with_graph=settings.manifold > 0.0):
        order = None if settings.precomputed else data.order()
    task = _Task(settings, data if order is None else data.take(order))
    results = [_fit_certified(task, index) for index in range(data.y.shape[1])]
    for _, complaints in results:
        for category, message in complaints:
            warnings.warn(message, category, stacklevel=3)
    if order is None:
        return [fitted for fitted, _ in results]
    places = np.argsort(order)
    return [fitted.take(places) for fitted, _ in results]


def _fit_certified(task: _Task, index: int) -> tuple[Fitted, list[Complaint]]:
    """One target; again with exact factors if rough ones were not good enough."""
    fitted, complaints = _fit(_Target(task, index))
    uncertain = any(category is ConvergenceWarning for category, _ in complaints)
    if uncertain and task.expansion.rough:
        task.sharpen()
        fitted, complaints = _fit(_Target(task, index))
    return fitted, complaints


def _fit(target: _Target) -> tuple[Fitted, list[Complaint]]:
    """One target, and the warnings it deserves."""
    settings, task, unit = target.settings, target.task, target.unit
    trace = target.with_fallback(target.solve)
    fit = (recover if task.basis is None else approximate.recover)(
        target.reduction,
        trace.problem,
        trace.solution,
        trace.at_least if trace.least_squares else trace.threshold,
        target.centre,
        least_squares=trace.least_squares,
        minimiser=trace.minimiser,
    )
    complaints = _complaints(task.settings, trace, fit, target)
    quality = sigma = evidence = None
    if trace.judged is not None:
        quality, sigma = target.quality(trace.judged, trace.problem), trace.judged.sigma
    # Later, when someone asks, unless that needs matrices that are not kept, or passes over
    # rows that may be far away by then.
    far_away = settings.threshold == "adaptive" and task.basis is not None
    if settings.weighs_labels or settings.holds_matrices or far_away:
        evidence = target.weigh(
            trace.problem, fit.solution, fit.residuals, fit.threshold, sigma, quality
        )
    coefficients = fit.coefficients
    if task.basis is None:
        coefficients = np.zeros((len(task.data.y), len(settings.views)))
        coefficients[task.rows] = fit.coefficients
    given, threshold = task.settings.threshold, unit * fit.threshold
    if not isinstance(given, str) and not callable(given):
        threshold = float(given)  # as it was given, which units may round
    fitted = Fitted(
        coefficients=unit * coefficients,
        intercept=unit * (fit.intercept + target.centre),
        view_weights=target.reduction.weights,
        view_weights_residual=target.view_weights_residual,
        threshold=threshold,
        thresholds=np.array([*(unit * level for level in trace.history[:-1]), threshold]),
        removed=target.on_all_rows(~trace.problem.active, fill=False),
        residuals=unit * target.on_all_rows(fit.residuals),
        certificate=replace(
            fit.certificate, objective=unit * (unit * fit.certificate.objective)
        ),
        n_iter=trace.n_iter,
        n_labelled=int(np.count_nonzero(trace.problem.active)),
        sigma=None if sigma is None else unit * sigma,
        evidence=None if evidence is None else evidence.times(unit),
        quality=None if quality is None else target.on_all_rows(quality),
        basis=task.basis,
    )
    return fitted, complaints


def weigh_labels(settings: Settings, data: Data, fitted: list[Fitted]) -> list[Evidence]:
    """Leave-one-out evidence of earlier fits, from their coefficients.

    A fit keeps no matrix of the size of the Gram matrix, so the problem is built again.
    """
    task = _Task(settings, data)
    found = []
    for index, earlier in enumerate(fitted):
        target = _Target(task, index, earlier.view_weights)
        found.append(target.with_fallback(partial(_weigh_again, target, earlier)))
    return found


def refit_labels(
    settings: Settings, data: Data, fitted: Fitted, index: int, rows: np.ndarray
) -> Vector:
    """Leave-one-out residuals of some labelled rows by fitting again without each."""
    target = _Target(_Task(settings, data), index, fitted.view_weights)
    places = np.searchsorted(target.labels, rows)

    def refit() -> Vector:
        problem, solution = _problem_again(target, fitted)
        drops = settings.threshold == "adaptive" and settings.removal is not None
        level = np.inf if drops or settings.threshold == np.inf else fitted.threshold
        level = level / target.unit
        return target.unit * np.array(
            [refit_without(problem, solution, i, level) for i in places]
        )

    return target.with_fallback(refit)


def _weigh_again(target: _Target, fitted: Fitted) -> Evidence:
    problem, solution = _problem_again(target, fitted)
    unit = target.unit
    found = target.weigh(
        problem,
        solution,
        fitted.residuals[target.labels] / unit,
        fitted.threshold / unit,
        None if fitted.sigma is None else fitted.sigma / unit,
        None if fitted.quality is None else fitted.quality[target.labels],
    )
    return found.times(unit)


def _problem_again(target: _Target, fitted: Fitted) -> tuple[Problem, Solution]:
    """The problem of an earlier fit, and its solution from the coefficients' residuals."""
    problem = target.problem.using(~fitted.removed[target.labels])
    residuals, threshold = (
        fitted.residuals[target.labels] / target.unit,
        fitted.threshold / target.unit,
    )
    # A least-squares fit ends with ξ = max |r|: that label is free, rounding or not.
    free = problem.active & (np.abs(residuals) <= threshold * (1.0 + 1e-12))
    source = problem.gram.direct_source(problem.mu)
    factor = source.factor(free) if np.any(free) else None
    v = np.where(problem.active, np.clip(residuals, -threshold, threshold), 0.0)
    intercept = fitted.intercept / target.unit - target.centre
    solution = Solution(
        v=v / problem.mu,
        fitted=problem.y - intercept - residuals,
        intercept=intercept,
        free=free,
        n_iter=1,
        status=Status.CONVERGED,
        factor=factor,
    )
    return problem, solution


def reduced_gram(settings: Settings, data: Data) -> Matrix:
    """Q of shape (l, l) on the labelled rows of the first target, graph included."""
    target = _Target(_Task(settings, data), 0)
    gram = target.problem.gram
    if isinstance(gram, DenseGram):
        return gram.matrix
    return gram.matvec(np.eye(len(gram)))


def prediction_inflation(
    settings: Settings, data: Data, fitted: Fitted, index: int, X: Matrix
) -> Vector:
    """√(1 + q(x)/μ) at new rows: by how much predictions there err more than the noise.

    q(x) = K(x, x) − k̃ᵀ B⁻¹ k̃ is the prior variance that the labels in use leave at x, as in
    `leave_one_out`; of exact fits without a graph and without agreement only.
    """
    if fitted.basis is not None:
        return _inflation_in_blocks(settings, data, fitted, index, X)
    used = data.labelled[:, index] & ~fitted.removed
    rows, mu = data.X[used], 2.0 * data.weights[used].sum() * settings.alpha
    shares = fitted.view_weights**2
    A = np.zeros((len(rows), len(rows)))
    cross, own = np.zeros((len(X), len(rows))), np.zeros(len(X))
    for share, view in zip(shares, settings.views, strict=True):
        left, right = view.select(X), view.select(rows)
        A += share * view.kernel.gram(right)
        cross += share * view.kernel.product(left, right, np.eye(len(right)))
        own += share * view.kernel.diagonal(left)
    A[np.diag_indices_from(A)] += mu / data.weights[used]
    factor = cholesky_in_place(A)
    half = solve_lower(factor, np.asfortranarray(cross.T))
    variance = own - np.einsum("ij,ij->j", half, half)
    if settings.fit_intercept:
        ones = solve_lower(factor, np.ones(len(rows)))
        variance += (1.0 - half.T @ ones) ** 2 / (ones @ ones)
    return np.sqrt(1.0 + np.maximum(variance, 0.0) / mu)


def _inflation_in_blocks(
    settings: Settings, data: Data, fitted: Fitted, index: int, X: Any
) -> Vector:
    """The same in the basis: q(x) = aᵀH⁻¹a, a = Ψ(x) bordered by a one."""
    target = _Target(_Task(settings, data), index, fitted.view_weights)
    problem, solution = _problem_again(target, fitted)
    assert isinstance(solution.factor, BlockFactor)
    new = BlockGram(X, None, target.reduction.features)
    variance = solution.factor.variance(new, border=settings.fit_intercept)
    usual = float(np.median(target.reduction.gram.left_out))
    variance += np.maximum(new.left_out - usual, 0.0)
    return np.sqrt(1.0 + variance / (2.0 * problem.total_weight * settings.alpha))


def path_of_labels(
    settings: Settings,
    data: Data,
    index: int = 0,
    *,
    removed: Mask | None = None,
    view_weights: Vector | None = None,
    min_threshold: float | None = None,
    max_events: int | None = None,
) -> ThresholdPath:
    """The path over the threshold for one target; `removed` labels, (n,), are left out."""
    task = _Task(settings, data, exact_only=True)
    if task.expansion.rough:
        task.sharpen()
    target = _Target(task, index, view_weights)
    active = np.ones(len(target.labels), dtype=bool)
    if removed is not None:
        active = ~removed[target.labels]

    def follow() -> ThresholdPath:
        return threshold_path(
            target.reduction,
            target.problem.using(active),
            target.centre,
            task.rows,
            len(data.y),
            min_threshold=None if min_threshold is None else min_threshold / target.unit,
            max_events=max_events,
        )

    path = target.with_fallback(follow).times(target.unit)
    single = settings.views[0].columns is None
    return replace(path, dual_coef=path.dual_coef[:, :, 0]) if single else path


class _Task:
    """What all targets of one fit share: the rows, the views, their factored penalties.

    Parameters
    ----------
    exact_only : bool
        Whether what is to come has no approximation.

    Attributes
    ----------
    rows : ndarray, int
        Rows of the expansion: all of them with a graph or with agreement, else those that
        are labelled for some target.
    expansion : Expansion or BlockExpansion
    basis : Basis or None
        The functions of an approximated fit.
    """

    basis: Basis | None = None

    def __init__(self, settings: Settings, data: Data, *, exact_only: bool = False) -> None:
        self.settings, self.data, self.exact_only = settings, data, exact_only
        self.started = time.perf_counter()
        coupled = settings.agreement > 0.0 and len(settings.views) > 1
        self.coupled, self.everything = coupled, settings.manifold > 0.0 or coupled
        labelled = data.labelled.any(axis=1)
        self.rows = np.arange(len(data.y)) if self.everything else np.flatnonzero(labelled)
        self.expansion: Any
        if settings.approximation is None:
            self.expansion = self._expand()
        else:
            self.rows = np.arange(len(data.y))
            self.expansion = self._expand_in_blocks(settings.approximation)
        self.reductions: dict[tuple[bytes, bytes], Reduction | BlockReduction] = {}
        self.widened: dict[float, Gram] = {}
        self.widened_for: tuple[bytes, bytes] | None = None

    def sharpen(self) -> None:
        """Factor the penalties once more, exactly."""
        self.expansion = self._expand(exact=True)
        self.reductions = {}

    def _expand(self, *, exact: bool = False) -> Expansion:
        settings = self.settings
        X = [self._rows_of_expansion(view.select(self.data.X)) for view in settings.views]
        pairs = zip(settings.views, X, strict=True)
        dense = sum(needs_gram_matrix(view.kernel, x) for view, x in pairs)
        if dense:
            check_memory(
                len(self.rows),
                dense,
                with_penalty=self.coupled,
                several_targets=self.data.y.shape[1] > 1,
                remedy=self._smaller(),
            )
        needs_features = settings.manifold > 0.0 and not self.coupled
        parts = []
        for view, x in zip(settings.views, X, strict=True):
            with view.named_in_errors():
                penalty = self._penalty(view, x) if settings.manifold > 0.0 else None
                parts.append(build_part(view.kernel, x, penalty, needs_features=needs_features))
        self._check_penalties([part.operator.diagonal for part in parts])
        try:
            return expand_views(
                parts,
                alpha=settings.alpha,
                manifold=settings.manifold,
                agreement=settings.agreement,
                exact=exact,
            )
        except BreakdownError:
            raise self._too_large() from None

    def _expand_in_blocks(self, approximation: Approximation) -> BlockExpansion:
        settings, rows = self.settings, self.data.X
        assert isinstance(rows, Rows)
        kernels = [view.kernel for view in settings.views]
        columns = [view.columns for view in settings.views]
        labels = np.where(self.data.labelled, self.data.y, np.nan)
        self.basis, sample = approximate.build_basis(
            approximation, kernels, columns, rows, labels, settings.fit_intercept
        )
        with np.errstate(over="ignore"):
            self._check_penalties(
                [view.kernel.diagonal(view.select(sample)) for view in settings.views]
            )
        graphs_of_sample = []
        for view in settings.views if settings.manifold > 0.0 else ():
            with view.named_in_errors():
                graphs_of_sample.append(self._penalty(view, view.select(sample)))
        coupling = settings.agreement / settings.alpha if self.coupled else 0.0
        penalty = approximate.graph_penalty(
            self.basis,
            sample,
            graphs_of_sample,
            settings.manifold / settings.alpha,
            coupling,
            rows,
        )
        try:
            return BlockExpansion(rows, self.basis, penalty, coupling)
        except BreakdownError:
            raise self._too_large() from None

    def _smaller(self) -> str:
        """What to do about matrices that are too large for memory."""
        settings = self.settings
        rows = "fewer rows, labelled or not" if self.everything else "fewer labelled rows"
        if self.exact_only or settings.holds_matrices or settings.algorithm == "paper":
            return f"use {rows}"
        return f'use approximation="nystrom" (with n_components) or {rows}'

    def _check_penalties(self, diagonals: list[Vector]) -> None:
        """Raise if ‖f‖²_K is lost beside the other terms; `diagonals` are K_ii of the views."""
        weight = max(self.settings.manifold, self.settings.agreement if self.coupled else 0.0)
        largest = max(float(np.max(diagonal)) for diagonal in diagonals)
        if weight * largest > MOST_PENALTY * self.settings.alpha:
            raise self._too_large(largest)

    def _too_large(self, largest: float | None = None) -> ValueError:
        settings = self.settings
        values = "" if largest is None else f" and kernel values up to {largest:.1g}"
        return ValueError(
            f"manifold={settings.manifold:g} or agreement={settings.agreement:g} is too "
            f"large beside alpha={settings.alpha:g}{values} for double precision; use a larger "
            "alpha or smaller weights of the other terms"
        )

    def _penalty(self, view: ViewSettings, X: Matrix) -> Any:
        return graphs.build(
            view.graph,
            X,
            n_neighbors=view.n_neighbors,
            gamma=view.kernel.gamma,
            precomputed=self.settings.precomputed,
        )

    def _rows_of_expansion(self, X: Matrix) -> Matrix:
        if len(self.rows) == len(X):
            return X
        return X[np.ix_(self.rows, self.rows)] if self.settings.precomputed else X[self.rows]

    def reduce(self, position: np.ndarray, weights: Vector) -> Any:
        """The reduction for some labelled rows, shared by targets that have the same."""
        key = (position.tobytes(), weights.tobytes())
        if key not in self.reductions:
            reduction = self.expansion.reduce(position, weights, self.settings.fit_intercept)
            if isinstance(reduction.gram, DenseGram):
                reduction = replace(reduction, gram=self._for_all_targets(reduction.gram))
            self.reductions = {key: reduction}
        return self.reductions[key]

    def at_width(
        self, position: np.ndarray, weights: Vector, factor: float, make: Callable[[], Gram]
    ) -> Gram:
        """Q at another width, shared by targets as reductions are."""
        if self.data.y.shape[1] == 1:
            return make()
        key = (position.tobytes(), weights.tobytes())
        if key != self.widened_for:
            self.widened, self.widened_for = {}, key
        if factor not in self.widened:
            gram = make()
            if isinstance(gram, DenseGram):
                gram = self._for_all_targets(gram)
            self.widened[factor] = gram
        return self.widened[factor]

    def _for_all_targets(self, gram: DenseGram) -> DenseGram:
        """The same, its factors kept if there are other targets to use them."""
        return DenseGram(gram.matrix, keep_sources=True) if self.data.y.shape[1] > 1 else gram


class _Target:
    """The reduced problem of one target.

    Attributes
    ----------
    labels : ndarray of shape (l,), int
        Its labelled rows among all rows.
    unit : float
        What its labels are measured in here, a power of two: no digit is lost on the way.
    centre : float
        What was taken off its labels, in that unit.
    settings : Settings
        For labels in that unit.
    reduction : Reduction
    problem : Problem
        With all labels in use.
    view_weights_residual : float
    """

    def __init__(self, task: _Task, index: int, view_weights: Vector | None = None) -> None:
        self.task = task
        data, fit_intercept = task.data, task.settings.fit_intercept
        labelled = data.labelled[:, index]
        self.position = np.flatnonzero(labelled[task.rows])
        self.labels = task.rows[self.position]
        self.trusted = data.trusted[self.labels, index]
        y, weights = data.y[self.labels, index], data.weights[self.labels]
        # Centring keeps digits when labels sit far from zero; without an intercept the
        # origin has a meaning and stays. In their own unit no square of a label overflows.
        centre = robust.weighted_median(y, weights) if fit_intercept else 0.0
        self.unit = _power_of_two_below(float(np.max(np.abs(y - centre))))
        self.centre, y = centre / self.unit, (y - centre) / self.unit
        self.settings = task.settings.in_units(self.unit)
        given = self.settings.view_weights if view_weights is None else view_weights
        m = len(self.settings.views)
        self.reduction = task.reduce(
            self.position, np.full(m, 1.0 / m) if given is None else given
        )
        self.view_weights_residual = 0.0
        self.problem = Problem(
            gram=self.reduction.gram,
            y=y,
            weights=weights,
            alpha=self.settings.alpha,
            fit_intercept=fit_intercept,
            active=np.ones(len(y), dtype=bool),
        )

    def with_fallback(self, work: Callable[[], Result]) -> Result:
        """Do the work; if Q + diag(μ) has no Cholesky factor, again with Q factored.

        That happens when K is singular to rounding and alpha too small to lift it.
        """
        try:
            return work()
        except BreakdownError:
            if not isinstance(self.reduction.gram, DenseGram):
                raise _beyond_precision(self.reduction, self.settings) from None
            self._use(self.reduction.with_factored_gram(self.settings.fit_intercept))
        try:
            return work()
        except BreakdownError:
            raise _beyond_precision(self.reduction, self.settings) from None

    def _use(self, reduction: Reduction) -> None:
        self.reduction = reduction
        self.problem = replace(self.problem, gram=reduction.gram)

    def solve(self) -> refinement.Trace:
        """Run the threshold mode, and learn the view weights if that is asked for."""
        trace = self._threshold_mode()
        if self.settings.view_weights is not None:
            return trace
        self._learn(trace)
        trace = self._threshold_mode()
        if not isinstance(self.settings.threshold, str) and not callable(
            self.settings.threshold
        ):
            return trace
        # Other labels may be in use now: learn for those, and fit them a last time.
        self._learn(trace)
        problem = self.problem.using(trace.problem.active)
        solution = solve(problem, np.inf if trace.least_squares else trace.threshold)
        return replace(trace, problem=problem, solution=solution)

    def _learn(self, trace: refinement.Trace) -> None:
        level = np.inf if trace.least_squares else trace.threshold
        reduction, problem = self.reduction, trace.problem
        if isinstance(reduction, BlockReduction) and len(problem.y) > WEIGHT_LABELS:
            places = np.linspace(0, len(problem.y) - 1, WEIGHT_LABELS).astype(np.intp)
            reduction = reduction.sample(places)
            problem = problem.on_some(places, reduction.gram)
        learnt = learn_weights(reduction, problem, level)
        self.view_weights_residual = learnt.residual
        self._use(self.task.reduce(self.position, learnt.weights))

    def _threshold_mode(self) -> refinement.Trace:
        settings, problem = self.settings, self.problem
        refinements = (settings.n_refinements, settings.threshold_step)
        if settings.algorithm == "paper":
            return refinement.paper(problem, *refinements, self.trusted, self.report)
        if settings.threshold == "refine":
            return refinement.refine(
                problem, *refinements, self.trusted, settings.max_iter, self.report
            )
        if settings.threshold == "adaptive":
            return refinement.adaptive(
                problem,
                settings.removal,
                self.trusted,
                settings.max_iter,
                self.report,
                self._at_width if self._has_widths() else None,
            )
        if isinstance(settings.threshold, str) or callable(settings.threshold):
            return refinement.by_rule(
                problem, settings.threshold, settings.max_iter, self.report
            )
        return refinement.fixed(
            problem, float(settings.threshold), settings.max_iter, self.report
        )

    def _has_widths(self) -> bool:
        """Whether Q comes from kernels alone, and some of them have a width."""
        settings = self.settings
        approximation = settings.approximation
        if not settings.tries_widths or self.task.everything:
            return False
        if settings.precomputed:
            gram = self.reduction.gram
            return isinstance(gram, DenseGram) and _has_roots(gram.matrix)
        if approximation is not None and approximation.kind == "linear":
            return False
        return any(view.kernel.name in STATIONARY_KERNELS for view in settings.views)

    def _at_width(self, factor: float, some: np.ndarray | None) -> Gram:
        """Q with every γ times a factor: of some labels, or of all as the fit has it."""
        if some is not None:
            return self._new_at_width(factor, some)
        return self.task.at_width(
            self.position,
            self.reduction.weights,
            factor,
            partial(self._new_at_width, factor, None),
        )

    def _new_at_width(self, factor: float, some: np.ndarray | None) -> Gram:
        weights, own = self.reduction.weights, self.reduction.gram
        if some is None and isinstance(self.reduction, BlockReduction):
            kernels = [view.kernel for view in self.settings.views]
            return self.reduction.at_width(kernels, factor).gram
        kernel = self.settings.views[0].kernel
        rooted = kernel.is_exponential or kernel.name == "precomputed"
        if len(weights) == 1 and weights[0] == 1.0 and rooted and isinstance(own, DenseGram):
            matrix = own.matrix if some is None else submatrix(own.matrix, some, some)
            return DenseGram(_power(matrix, factor))
        labels = self.labels if some is None else self.labels[some]
        X = self.task.data.X
        rows = X.take(labels) if isinstance(X, Rows) else X[labels]
        total: Matrix | None = None
        for share, view in zip(weights**2, self.settings.views, strict=True):
            matrix = view.kernel.at_width(factor).gram(view.select(rows))
            matrix *= share
            total = matrix if total is None else np.add(total, matrix, out=total)
        assert total is not None
        return DenseGram(total)

    def quality(self, judged: refinement.Judged, problem: Problem) -> Vector:
        """Quality of the labels, shape (l,)."""
        return thresholds.quality(judged.errors, judged.cuts, problem.active, self.trusted)

    def weigh(
        self,
        problem: Problem,
        solution: Solution,
        residuals: Vector,
        threshold: float,
        sigma: float | None,
        quality: Vector | None,
    ) -> Evidence:
        """Leave-one-out residuals; noise scale and quality of the labels if not known yet."""
        loo = leave_one_out(problem, solution, residuals, problem.mu, threshold)
        if sigma is None or quality is None:
            removal = self.settings.removal or refinement.DEFAULT_REMOVAL
            sigma, cuts = refinement.cuts_for(problem, loo, sigma, removal)
            quality = thresholds.quality(loo.residuals, cuts, problem.active, self.trusted)
        return Evidence(
            sigma,
            self.on_all_rows(loo.residuals),
            self.on_all_rows(loo.inflation),
            self.on_all_rows(quality),
        )

    def on_all_rows(self, values: np.ndarray, fill: Any = np.nan) -> np.ndarray:
        """Values of the labelled rows, `fill` on the others."""
        out = np.full(len(self.task.data.y), fill, dtype=values.dtype)
        out[self.labels] = values
        return out

    def report(self, threshold: float, n_labels: int) -> None:
        """One line a refinement when verbose."""
        if self.settings.verbose:
            elapsed, level = time.perf_counter() - self.task.started, self.unit * threshold
            print(
                f"[activehuber] rows {len(self.task.data.y)}  labels in use {n_labels}  "
                f"removed {len(self.labels) - n_labels}  threshold {level:.6g}  "
                f"{elapsed:.2f} s"
            )


def _power_of_two_below(size: float) -> float:
    """The largest power of two that is not above a size; 1 for nothing."""
    return float(np.ldexp(0.5, np.frexp(size)[1])) if size > 0.0 else 1.0


def _rule_in_units(rule: refinement.Rule, unit: float) -> refinement.Rule:
    """A user's rule for ξ, for residuals that are measured in units of `unit`."""

    def scaled(residuals: Vector, weights: Vector) -> Any:
        value = rule(unit * residuals, weights)
        return value / unit if is_number(value) and value > 0.0 else value

    return scaled


def _has_roots(matrix: Matrix) -> bool:
    """Whether a Gram matrix may be one of exp(−γ·distance): its roots are those of smaller γ.

    If the fourth root is positive semi-definite, so is the square root, by Schur's theorem.
    """
    if np.min(matrix) < 0.0 or not np.allclose(np.diagonal(matrix), 1.0, atol=1e-12):
        return False
    try:
        check_gram_matrix(_power(matrix, min(widths.FACTORS)))
    except ValueError:
        return False
    return True


def _power(matrix: Matrix, factor: float) -> Matrix:
    """Every entry to the power of 1, ½, ¼, …: roots are much faster than powers."""
    if factor == 1.0:
        return matrix
    out = np.sqrt(matrix)
    while factor < 0.5:
        factor *= 2.0
        np.sqrt(out, out=out)
    return out


def _beyond_precision(reduction: Reduction, settings: Settings) -> ValueError:
    largest = float(np.max(reduction.gram.diagonal))
    return ValueError(
        f"alpha={settings.alpha:g} is too small for kernel values up to {largest:.1g}: the "
        "problem cannot be solved in double precision. Use a larger alpha or standardise "
        "the features"
    )


def _doubts(settings: Settings, trace: refinement.Trace, unit: float) -> list[Complaint]:
    """Warnings if a rule did not settle, or if more labels went than can be right."""
    doubts: list[Complaint] = []
    if not trace.settled:
        message = (
            f"the rule threshold={settings.threshold!r} did not settle; the fit is exact at "
            f"{unit * trace.threshold:.3g}, where it stopped"
        )
        doubts.append((ConvergenceWarning, message))
    active, weights = trace.problem.active, trace.problem.weights
    # Labels of weight two are two labels.
    left, total = units(weights, active), units(weights, np.ones_like(active))
    many = total - left > MANY_REMOVED * total
    if settings.threshold == "adaptive" and (many or left < min(float(FEW_LEFT), total)):
        message = (
            f"{np.sum(~active)} of {len(active)} labels were removed and {np.sum(active)} are "
            "left; likely causes "
            "are an alpha or a kernel width that is too small (the fit follows single labels), "
            "a second population among the rows, or labels in different units"
        )
        doubts.append((UserWarning, message))
    return doubts


def _complaints(
    settings: Settings, trace: refinement.Trace, fit: Fit, target: _Target
) -> list[Complaint]:
    """Warnings if the certificate is not good enough or nothing could be refined."""
    complaints: list[Complaint] = []
    weights_residual = target.view_weights_residual
    if weights_residual > WEIGHTS_TOLERANCE:
        message = (
            f"the learnt view weights are not optimal (residual {weights_residual:.1e}); "
            "use a larger alpha, or give view_weights"
        )
        complaints.append((ConvergenceWarning, message))
    complaints += _doubts(settings, trace, target.unit)
    proof, xi = fit.certificate, target.unit * fit.threshold
    if (
        settings.threshold == "refine"
        and settings.n_refinements > 0
        and len(trace.history) == 1
    ):
        if target.unit * trace.threshold <= settings.threshold_step:
            message = (
                f"no refinement was possible: threshold_step={settings.threshold_step:g} is "
                f"not below the largest residual {xi:.3g}; choose a smaller threshold_step "
                '(it is in units of y) or threshold="adaptive"'
            )
            complaints.append((UserWarning, message))
    if not trace.minimiser:
        return complaints
    if proof.kkt_rounding >= 0.125:
        message = (
            "in double precision it cannot be decided which labels lie within the threshold "
            f"(rounding is {proof.kkt_rounding:.1g} of it); use a larger alpha or "
            "threshold, or standardise the features"
        )
        complaints.append((ConvergenceWarning, message))
    elif proof.duality_gap > 10.0 * settings.tol or proof.kkt_residual > 100.0 * settings.tol:
        status = trace.solution.status
        reason = status.value if status is not Status.CONVERGED else Status.STALLED.value
        message = (
            f"the fit is not certified: duality gap {proof.duality_gap:.1e} (tol "
            f"{settings.tol:g}), KKT residual {proof.kkt_residual:.1e}; {reason}"
        )
        complaints.append((ConvergenceWarning, message))
    return complaints
