"""The reduced problem of one target, solved in the threshold mode asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.fitting.result import LabelEvidence
from activehuber.fitting.settings import Settings
from activehuber.fitting.task import Task
from activehuber.labels import refinement
from activehuber.labels.adaptive import adaptive, judge_fit, unit_ridge
from activehuber.labels.error_scale import ErrorScale
from activehuber.labels.mixture import Judgement
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError
from activehuber.problem.problem import Problem
from activehuber.problem.reduction import Reduction
from activehuber.solver.leave_one_out import leave_one_out
from activehuber.solver.newton import Solution, solve
from activehuber.solver.view_weights import learn_weights

# View weights of an approximated fit are learnt on so many labels at most, evenly spaced.
WEIGHT_LABELS = 20_000

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Verdict:
    """What the threshold mode said of l labels; names as in `LabelEvidence`."""

    scale: ErrorScale
    quality: Vector
    judged: Mask

    @classmethod
    def of(cls, judgement: Judgement, kept: Mask, trusted: Mask) -> Verdict:
        """Where the labels kept are these."""
        return cls(judgement.scale, judgement.quality(kept, trusted), judgement.known)


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
            groups=None if data.groups is None else data.groups[self.labels],
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
        return self.with_fallback(work)

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
        settings, problem, mode = self.settings, self.problem, self.settings.threshold
        refinements = (settings.n_refinements, settings.threshold_step)
        most, trusted, report = settings.max_iter, self.trusted, self.report
        if settings.algorithm == "paper":
            return refinement.paper(problem, *refinements, trusted, report)
        if mode == "refine":
            return refinement.refine(problem, *refinements, trusted, most, report)
        if mode == "adaptive":
            return adaptive(problem, settings.removal, trusted, most, report, settings.rule)
        if isinstance(mode, str) or callable(mode):
            return refinement.by_rule(problem, mode, most, report)
        return refinement.fixed(problem, float(mode), most, report)

    def weigh(
        self,
        problem: Problem,
        solution: Solution,
        residuals: Vector,
        threshold: float,
        known: Verdict | None,
    ) -> LabelEvidence:
        """Leave-one-out residuals and their scales; the verdict on the labels if not known."""
        loo = leave_one_out(problem, solution, residuals, problem.mu, threshold)
        if known is None:
            rule = self.settings.rule.with_removal(self.settings.removal)
            judged = judge_fit(problem, loo, self.trusted, rule)
            known = Verdict.of(judged, problem.active, self.trusted)
        ridge = unit_ridge(problem)
        left_open, noise = (loo.variance + loo.missing) / ridge, loo.ridge / ridge
        scales = known.scale.at(left_open, noise, problem.y - loo.residuals)
        return LabelEvidence(
            known.scale,
            self.on_all_rows(loo.residuals),
            self.on_all_rows(scales),
            self.on_all_rows(known.quality),
            self.on_all_rows(known.judged, fill=False),
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


def _beyond_precision(reduction: Reduction, settings: Settings) -> ValueError:
    largest = float(np.max(reduction.gram.diagonal))
    return ValueError(
        f"alpha={settings.alpha:g} is too small for kernel values up to {largest:.1g}: the "
        "problem cannot be solved in double precision. Use a larger alpha or standardise "
        "the features"
    )
