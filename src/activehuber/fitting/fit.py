"""One fit: checked data and resolved settings in, everything fitted out.

rows and labels -> reduction -> threshold mode -> certified coefficients -> label evidence
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from activehuber._typing import Matrix, Vector
from activehuber.fitting.complaints import Complaint, complaints_of
from activehuber.fitting.result import Fitted, LabelEvidence
from activehuber.fitting.settings import Data, Settings
from activehuber.fitting.target import Target, Verdict
from activehuber.fitting.task import Task
from activehuber.numerics.linalg import cholesky_in_place, solve_lower
from activehuber.problem.problem import Problem
from activehuber.solver.leave_one_out import refit_without
from activehuber.solver.newton import Solution, Status
from activehuber.solver.path import ThresholdPath, threshold_path
from activehuber.solver.polishing import recover


class FitResult:
    """All that a fit knows, read-only: what audits, displays and model files need.

    Attributes
    ----------
    settings : Settings
        Without graphs that are matrices.
    data : Data
        Its own copy of the labels. Of a precomputed kernel without X.
    targets : tuple of Fitted
    evidence : tuple of LabelEvidence
        One a target; leave-one-out figures are computed when someone first asks.
    """

    def __init__(self, settings: Settings, data: Data, targets: Sequence[Fitted]) -> None:
        self.settings, self.targets = settings.without_matrices(), tuple(targets)
        # Copies: labels are weighed when someone asks, and the caller's may have changed then.
        own = data.with_labels_of(np.arange(len(data.y)))
        self.data = replace(own, X=None) if settings.precomputed else own

    @property
    def evidence(self) -> tuple[LabelEvidence, ...]:
        """Leave-one-out figures of each target.

        A fit keeps no matrix of the size of the Gram matrix, so the problem is built again.
        """
        if any(fitted.evidence is None for fitted in self.targets):
            task, weighed = Task(self.settings, self.data), []
            for index, fitted in enumerate(self.targets):
                target = Target(task, index, fitted.view_weights)
                evidence = target.with_fallback(partial(_weigh_again, target, fitted))
                weighed.append(replace(fitted, evidence=evidence))
            self.targets = tuple(weighed)
        return tuple(target.evidence for target in self.targets if target.evidence is not None)

    def of_targets(self, values: Sequence[Any]) -> Any:
        """One value for one target, else all of them along a last axis."""
        return np.stack(values, axis=-1) if self.data.several_targets else values[0]


def fit_targets(settings: Settings, data: Data) -> list[Fitted]:
    """Fit and certify each target; weigh its labels where that cannot wait.

    Rows are put in an order of their own where that is possible: rounding, which follows the
    order of sums, then says the same of the same rows however they are shuffled.
    """
    by_value = settings.knows_rows_by_value(with_graph=settings.manifold > 0.0)
    # A Gram matrix is not copied for that: it may be as large as memory allows.
    order = data.order() if by_value and not settings.precomputed else None
    task = Task(settings, data if order is None else data.take(order))
    results = [_fit_certified(task, index) for index in range(data.y.shape[1])]
    for _, complaints in results:
        for category, message in complaints:
            warnings.warn(message, category, stacklevel=5)
    if order is None:
        return [fitted for fitted, _ in results]
    places = np.argsort(order)
    return [fitted.take(places) for fitted, _ in results]


def _fit_certified(task: Task, index: int) -> tuple[Fitted, list[Complaint]]:
    """One target; again with exact factors if rough ones were not good enough."""
    fitted, complaints = _fit(Target(task, index))
    uncertain = any(category is ConvergenceWarning for category, _ in complaints)
    if uncertain and task.expansion.rough:
        task.sharpen()
        fitted, complaints = _fit(Target(task, index))
    return fitted, complaints


def _fit(target: Target) -> tuple[Fitted, list[Complaint]]:
    """One target, and the warnings it deserves."""
    settings, task, unit = target.settings, target.task, target.unit
    centre = unit * target.centre
    trace = target.with_fallback(target.solve)
    fit = recover(
        target.reduction,
        trace.problem,
        trace.solution,
        trace.at_least if trace.least_squares else trace.threshold,
        target.centre,
        least_squares=trace.least_squares,
        minimiser=trace.minimiser,
    )
    complaints = list(complaints_of(task.settings, trace, fit, target))
    known = evidence = None
    if trace.judged is not None:
        known = Verdict.of(trace.judged, trace.problem.active, target.trusted)
    # Later, when someone asks, unless that needs matrices that are not kept, or passes over
    # rows that may be far away by then.
    far_away = settings.threshold == "adaptive" and task.basis is not None
    if settings.weighs_labels or settings.holds_matrices or far_away:
        evidence = target.weigh(
            trace.problem, fit.solution, fit.residuals, fit.threshold, known
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
        scale=None if known is None else known.scale.in_units(unit, centre),
        evidence=None if evidence is None else evidence.in_units(unit, centre),
        quality=None if known is None else target.on_all_rows(known.quality),
        judged=None if known is None else target.on_all_rows(known.judged, fill=False),
        basis=task.basis,
    )
    return fitted, complaints


def _weigh_again(target: Target, fitted: Fitted) -> LabelEvidence:
    problem, solution = _problem_again(target, fitted)
    unit, known = target.unit, None
    if fitted.scale is not None and fitted.quality is not None and fitted.judged is not None:
        scale = fitted.scale.in_units(1.0 / unit, 0.0)
        known = Verdict(scale, fitted.quality[target.labels], fitted.judged[target.labels])
    residuals = fitted.residuals[target.labels] / unit
    found = target.weigh(problem, solution, residuals, fitted.threshold / unit, known)
    return found.in_units(unit, unit * target.centre)


def refit_labels(
    settings: Settings, data: Data, fitted: Fitted, index: int, rows: np.ndarray
) -> Vector:
    """Leave-one-out residuals of some labelled rows by fitting again without each."""
    target = Target(Task(settings, data), index, fitted.view_weights)
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


def _problem_again(target: Target, fitted: Fitted) -> tuple[Problem, Solution]:
    """The problem of an earlier fit, and its solution from the coefficients' residuals."""
    problem = target.problem.using(~fitted.removed[target.labels])
    unit = target.unit
    residuals, threshold = fitted.residuals[target.labels] / unit, fitted.threshold / unit
    # A least-squares fit ends with ξ = max |r|: that label is free, rounding or not.
    free = problem.active & (np.abs(residuals) <= threshold * (1.0 + 1e-12))
    source = problem.gram.direct_source(problem.mu)
    factor = source.factor(free) if np.any(free) else None
    v = np.where(problem.active, np.clip(residuals, -threshold, threshold), 0.0)
    intercept = fitted.intercept / unit - target.centre
    values = problem.y - intercept - residuals
    return problem, Solution(
        v / problem.mu, values, intercept, free, 1, Status.CONVERGED, factor
    )


def reduced_gram(settings: Settings, data: Data) -> Matrix:
    """Q of shape (l, l) on the labelled rows of the first target, graph included."""
    target = Target(Task(settings, data), 0)
    gram = target.problem.gram
    return gram.matvec(np.eye(len(gram))) if gram.matrix is None else gram.matrix


def left_open_at(
    settings: Settings, data: Data, fitted: Fitted, index: int, X: Matrix
) -> Vector:
    """o(x) = q(x)/m at new rows: what the labels in use leave open there, noise being 1.

    q(x) = K(x, x) − k̃ᵀ B⁻¹ k̃ is the prior variance that they leave at x, as in
    `leave_one_out`; of exact fits without a graph and without agreement only.
    """
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
    return np.maximum(variance, 0.0) / mu


def path_of_labels(
    settings: Settings,
    data: Data,
    index: int = 0,
    *,
    fitted: Fitted | None = None,
    min_threshold: float | None = None,
    max_events: int | None = None,
) -> ThresholdPath:
    """The path over the threshold for one target; with the labels and weights of its fit."""
    task = Task(settings, data, exact_only=True)
    if task.expansion.rough:
        task.sharpen()
    target = Target(task, index, None if fitted is None else fitted.view_weights)
    active = np.ones(len(target.labels), dtype=bool)
    if fitted is not None:
        active = ~fitted.removed[target.labels]

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
