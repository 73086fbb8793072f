"""The reduced problem of one target, solved in the threshold mode asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.data.rows import Rows
from activehuber.fitting.result import LabelEvidence
from activehuber.fitting.settings import Settings
from activehuber.fitting.task import Task
from activehuber.kernels.kernel import STATIONARY_KERNELS
from activehuber.labels import refinement, thresholds, widths
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import DenseGram, submatrix
from activehuber.operators.protocol import Gram
from activehuber.problem.approximation import BlockReduction
from activehuber.problem.problem import Problem
from activehuber.problem.reduction import Reduction
from activehuber.problem.smoothing import check_gram_matrix
from activehuber.solver.leave_one_out import leave_one_out
from activehuber.solver.newton import Solution, solve
from activehuber.solver.view_weights import learn_weights

# View weights of an approximated fit are learnt on so many labels at most, evenly spaced.
WEIGHT_LABELS = 20_000

Outcome = TypeVar("Outcome")


class Target:
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

    def __init__(self, task: Task, index: int, view_weights: Vector | None = None) -> None:
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

    def with_fallback(self, work: Callable[[], Outcome]) -> Outcome:
        """Do the work; if Q + diag(μ) has no Cholesky factor, again with Q factored.

        That happens when K is singular to rounding and alpha too small to lift it.
        """
        try:
            return work()
        except BreakdownError:
            if self.reduction.gram.matrix is None:
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
        if self.task.basis is not None and len(problem.y) > WEIGHT_LABELS:
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

    def quality(self, judged: refinement.JudgedLabels, problem: Problem) -> Vector:
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
    ) -> LabelEvidence:
        """Leave-one-out residuals; noise scale and quality of the labels if not known yet."""
        loo = leave_one_out(problem, solution, residuals, problem.mu, threshold)
        if sigma is None or quality is None:
            removal = self.settings.removal or refinement.DEFAULT_REMOVAL
            sigma, cuts = refinement.cuts_for(problem, loo, sigma, removal)
            quality = thresholds.quality(loo.residuals, cuts, problem.active, self.trusted)
        return LabelEvidence(
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
