"""One fit: checked data and resolved settings in, everything fitted out.

rows and labels -> reduction -> threshold mode -> certified coefficients -> label evidence
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from activehuber import graphs, refinement, thresholds
from activehuber._typing import Mask, Matrix, Vector
from activehuber.gram import DenseGram
from activehuber.kernels import Kernel
from activehuber.leave_one_out import leave_one_out
from activehuber.linalg import BreakdownError
from activehuber.newton import Solution, Status
from activehuber.problem import Certificate, Problem
from activehuber.recovery import Fit, recover
from activehuber.reduction import Reduction, low_rank, needs_gram_matrix, reduce_view
from activehuber.validation import check_memory

Result = TypeVar("Result")


@dataclass(frozen=True)
class Settings:
    """The estimator's parameters, resolved; names as in `HLRegressor`."""

    kernel: Kernel
    alpha: float
    manifold: float
    graph: Any
    n_neighbors: int
    threshold: str | float
    removal: float | None
    n_refinements: int
    threshold_step: float
    algorithm: str
    fit_intercept: bool
    tol: float
    max_iter: int
    verbose: int


@dataclass(frozen=True)
class Data:
    """Checked input of a fit.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Or the (n, n) Gram matrix of a precomputed kernel.
    y : ndarray of shape (n,)
        NaN where unlabelled.
    weights : ndarray of shape (n,)
    trusted : ndarray of shape (n,), bool
    """

    X: Matrix
    y: Vector
    weights: Vector
    trusted: Mask

    @property
    def labelled(self) -> Mask:
        """Rows whose label counts: given, and of positive weight."""
        return ~np.isnan(self.y) & (self.weights > 0.0)


@dataclass(frozen=True)
class Evidence:
    """What leave-one-out says of the labels, on all rows; NaN where there is none."""

    scale: float
    loo_residuals: Vector
    label_quality: Vector


@dataclass(frozen=True)
class Fitted:
    """The result of a fit on all n rows; see the attributes of `HLRegressor`."""

    dual_coef: Vector
    intercept: float
    threshold: float
    thresholds: Vector
    removed: Mask
    residuals: Vector
    certificate: Certificate
    n_iter: int
    n_labelled: int
    sigma: float | None
    evidence: Evidence | None


def fit_model(settings: Settings, data: Data) -> Fitted:
    """Fit, certify and, where the threshold needs it, weigh the labels."""
    task = _Task(settings, data)
    trace = task.with_fallback(task.solve)
    fit = recover(
        task.reduction,
        trace.problem,
        trace.solution,
        trace.at_least if trace.least_squares else trace.threshold,
        task.centre,
        least_squares=trace.least_squares,
        minimiser=trace.certified,
    )
    _warn(settings, trace, fit)
    evidence = None
    if settings.threshold == "adaptive" or settings.kernel.name == "precomputed":
        evidence = task.weigh(
            trace.problem, fit.solution, fit.residuals, fit.threshold, trace.sigma
        )
    dual_coef = np.zeros(len(data.y))
    dual_coef[task.rows] = fit.coefficients
    return Fitted(
        dual_coef=dual_coef,
        intercept=fit.intercept + task.centre,
        threshold=fit.threshold,
        thresholds=np.array([*trace.history[:-1], fit.threshold]),
        removed=task.on_all_rows(~trace.problem.active, fill=False),
        residuals=task.on_all_rows(fit.residuals),
        certificate=fit.certificate,
        n_iter=trace.n_iter,
        n_labelled=int(np.count_nonzero(trace.problem.active)),
        sigma=trace.sigma,
        evidence=evidence,
    )


def weigh_labels(settings: Settings, data: Data, fitted: Fitted) -> Evidence:
    """Leave-one-out evidence of an earlier fit, from its coefficients.

    A fit keeps no matrix of the size of the Gram matrix, so the problem is built again.
    """
    task = _Task(settings, data)
    return task.with_fallback(lambda: _weigh_again(task, fitted))


def _weigh_again(task: _Task, fitted: Fitted) -> Evidence:
    problem = task.problem.using(~fitted.removed[task.labels])
    residuals = fitted.residuals[task.labels]
    # A least-squares fit ends with ξ = max |r|: that label is free, rounding or not.
    free = problem.active & (np.abs(residuals) <= fitted.threshold * (1.0 + 1e-12))
    source = problem.gram.direct_source(problem.mu)
    factor = source.factor(free) if np.any(free) else None
    v = np.where(problem.active, np.clip(residuals, -fitted.threshold, fitted.threshold), 0.0)
    solution = Solution(
        v=v / problem.mu,
        fitted=problem.y - (fitted.intercept - task.centre) - residuals,
        intercept=fitted.intercept - task.centre,
        free=free,
        n_iter=1,
        status=Status.CONVERGED,
        factor=factor,
    )
    return task.weigh(problem, solution, residuals, fitted.threshold, fitted.sigma)


class _Task:
    """The reduced problem of one fit and where its rows are among all rows.

    Attributes
    ----------
    rows : ndarray, int
        Rows of the expansion: all of them with a graph, else the labelled ones.
    labels : ndarray of shape (l,), int
        The labelled rows.
    centre : float
        What was taken off the labels.
    """

    def __init__(self, settings: Settings, data: Data) -> None:
        self.settings, self.data = settings, data
        self.started = time.perf_counter()
        everything = settings.manifold > 0.0
        self.rows = np.arange(len(data.y)) if everything else np.flatnonzero(data.labelled)
        position = np.flatnonzero(data.labelled[self.rows])
        self.labels = self.rows[position]
        y, weights = data.y[self.labels], data.weights[self.labels]
        # Centring keeps digits when labels sit far from zero; without an intercept the
        # origin has a meaning and stays.
        self.centre = thresholds.weighted_median(y, weights) if settings.fit_intercept else 0.0
        self.reduction = self._reduce(position)
        self.problem = Problem(
            gram=self.reduction.gram,
            y=y - self.centre,
            weights=weights,
            alpha=settings.alpha,
            fit_intercept=settings.fit_intercept,
            active=np.ones(len(y), dtype=bool),
        )

    def _reduce(self, position: np.ndarray) -> Reduction:
        settings, X = self.settings, self._rows_of_expansion()
        kernel, precomputed = settings.kernel, settings.kernel.name == "precomputed"
        if needs_gram_matrix(kernel, X):
            check_memory(len(X))
        penalty = None
        if settings.manifold > 0.0:
            penalty = graphs.build(
                settings.graph,
                X,
                n_neighbors=settings.n_neighbors,
                gamma=kernel.gamma,
                precomputed=precomputed,
            )
        return reduce_view(
            kernel,
            X,
            position,
            alpha=settings.alpha,
            manifold=settings.manifold,
            penalty=penalty,
            fit_intercept=settings.fit_intercept,
        )

    def _rows_of_expansion(self) -> Matrix:
        X, rows = self.data.X, self.rows
        if len(rows) == len(X):
            return X
        return X[np.ix_(rows, rows)] if self.settings.kernel.name == "precomputed" else X[rows]

    def with_fallback(self, work: Callable[[], Result]) -> Result:
        """Do the work; if Q + diag(μ) has no Cholesky factor, again with Q factored.

        That happens when K is singular to rounding and alpha too small to lift it.
        """
        try:
            return work()
        except BreakdownError:
            if not isinstance(self.reduction.gram, DenseGram):
                raise _beyond_precision(self.reduction, self.settings) from None
            self.reduction = low_rank(self.reduction, self.settings.fit_intercept)
            self.problem = replace(self.problem, gram=self.reduction.gram)
        try:
            return work()
        except BreakdownError:
            raise _beyond_precision(self.reduction, self.settings) from None

    def solve(self) -> refinement.Trace:
        """Run the threshold mode."""
        settings, problem = self.settings, self.problem
        trusted = self.data.trusted[self.labels]
        refinements = (settings.n_refinements, settings.threshold_step)
        if settings.algorithm == "paper":
            return refinement.paper(problem, *refinements, trusted, self.report)
        if settings.threshold == "refine":
            return refinement.refine(
                problem, *refinements, trusted, settings.max_iter, self.report
            )
        if settings.threshold == "adaptive":
            return refinement.adaptive(
                problem, settings.removal, trusted, settings.max_iter, self.report
            )
        return refinement.fixed(
            problem, float(settings.threshold), settings.max_iter, self.report
        )

    def weigh(
        self,
        problem: Problem,
        solution: Solution,
        residuals: Vector,
        threshold: float,
        sigma: float | None,
    ) -> Evidence:
        """Leave-one-out residuals, noise scale and quality of the labels."""
        loo = leave_one_out(problem, solution, residuals, problem.mu, threshold)
        sigma, scales = refinement.scales_for(problem, loo, sigma)
        removal = self.settings.removal or refinement.DEFAULT_REMOVAL
        quality = thresholds.quality(loo.residuals, removal * scales, problem.active)
        return Evidence(sigma, self.on_all_rows(loo.residuals), self.on_all_rows(quality))

    def on_all_rows(self, values: np.ndarray, fill: Any = np.nan) -> np.ndarray:
        """Values of the labelled rows, `fill` on the others."""
        out = np.full(len(self.data.y), fill, dtype=values.dtype)
        out[self.labels] = values
        return out

    def report(self, threshold: float, n_labels: int) -> None:
        """One line a refinement when verbose."""
        if self.settings.verbose:
            elapsed = time.perf_counter() - self.started
            print(
                f"[activehuber] rows {len(self.data.y)}  labels in use {n_labels}  "
                f"removed {len(self.labels) - n_labels}  threshold {threshold:.6g}  "
                f"{elapsed:.2f} s"
            )


def _beyond_precision(reduction: Reduction, settings: Settings) -> ValueError:
    largest = float(np.max(reduction.gram.diagonal))
    return ValueError(
        f"alpha={settings.alpha:g} is too small for kernel values up to {largest:.1g}: the "
        "problem cannot be solved in double precision. Use a larger alpha or standardise "
        "the features"
    )


def _warn(settings: Settings, trace: refinement.Trace, fit: Fit) -> None:
    """One warning if the certificate is not good enough or nothing could be refined."""
    proof, xi = fit.certificate, fit.threshold
    if (
        settings.threshold == "refine"
        and settings.n_refinements > 0
        and len(trace.history) == 1
    ):
        if trace.threshold <= settings.threshold_step:
            warnings.warn(
                f"no refinement was possible: threshold_step={settings.threshold_step:g} is "
                f"not below the largest residual {xi:.3g}; choose a smaller threshold_step "
                '(it is in units of y) or threshold="adaptive"',
                UserWarning,
                stacklevel=5,
            )
    if not trace.certified:
        return
    largest_label = float(np.max(np.abs(trace.problem.y[trace.problem.active])))
    if np.isfinite(xi) and proof.kkt_rounding * min(xi, largest_label) >= xi / 8.0 > 0.0:
        warnings.warn(
            "in double precision it cannot be decided which labels lie within the threshold "
            f"(rounding {proof.kkt_rounding:.1g} of the labels' scale); use a larger alpha or "
            "threshold, or standardise the features",
            ConvergenceWarning,
            stacklevel=5,
        )
    elif proof.duality_gap > settings.tol or proof.kkt_residual > 100.0 * settings.tol:
        status = trace.solution.status
        reason = status.value if status is not Status.CONVERGED else Status.STALLED.value
        warnings.warn(
            f"the fit is not certified: duality gap {proof.duality_gap:.1e} (tol "
            f"{settings.tol:g}), KKT residual {proof.kkt_residual:.1e}; {reason}",
            ConvergenceWarning,
            stacklevel=5,
        )
