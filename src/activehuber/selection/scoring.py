"""Points of a search judged: which labels stay, and errors on labels that had no say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.labels.adaptive import adaptive
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError, multiply
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.selection.criterion import ObservedLabels
from activehuber.solver.leave_one_out import leave_one_out
from activehuber.solver.newton import Solution, solve

# Errors count up to so many robust standard deviations of the best errors seen.
FARTHEST = 60.0
# Newton steps of one solve at most.
MOST_STEPS = 200


@dataclass(frozen=True)
class Mode:
    """What is done about labels far out.

    Attributes
    ----------
    removal : float or None
        Drop them, as threshold="adaptive" does with this `removal`; or
    threshold : float
        bind them at this ξ; inf is least squares.
    """

    removal: float | None
    threshold: float = np.inf

    def times(self, unit: float) -> Mode:
        """The same with labels measured in units of 1/`unit`."""
        return Mode(self.removal, unit * self.threshold)


@dataclass(frozen=True)
class JudgedPoint:
    """What a mode makes of the labels at one point.

    Attributes
    ----------
    kept : ndarray of shape (l,), bool
    errors : ndarray of shape (l,)
        Leave-one-out errors of all labels, dropped ones included.
    """

    kept: Mask
    errors: Vector


def judge(Q: Matrix, labels: ObservedLabels, ridge: float, mode: Mode) -> JudgedPoint | None:
    """Fit in one mode; None if double precision does not suffice."""
    try:
        problem, _ = _problem(Q, labels, ridge)
        problem, solution = _fit(problem, labels.trusted, mode)
        residuals = problem.residuals(solution)
        level = mode.threshold if mode.removal is None else np.inf
        loo = leave_one_out(problem, solution, residuals, problem.mu, level)
    except BreakdownError:
        return None
    return JudgedPoint(problem.active, loo.residuals)


def held_out_errors(
    Q: Matrix,
    labels: ObservedLabels,
    ridge: float,
    mode: Mode,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Vector | None:
    """Errors on folds that had no say in the fit, shape (l,)."""
    errors = np.full(len(labels), np.nan)
    for train, test in folds:
        some = labels.take(train)
        try:
            problem, centre = _problem(
                np.ascontiguousarray(Q[np.ix_(train, train)]),
                some,
                ridge * some.total_weight / labels.total_weight,
            )
            _, solution = _fit(problem, some.trusted, mode)
        except BreakdownError:
            return None
        predicted = multiply(np.ascontiguousarray(Q[np.ix_(test, train)]), solution.v)
        errors[test] = labels.y[test] - centre - solution.intercept - predicted
    return errors


def _problem(Q: Matrix, labels: ObservedLabels, ridge: float) -> tuple[Problem, float]:
    centre = 0.0
    if labels.fit_intercept:
        centre = robust.weighted_median(labels.y, labels.weights)
    problem = Problem(
        gram=DenseGram(Q),
        y=labels.y - centre,
        weights=labels.weights,
        alpha=ridge / (2.0 * labels.total_weight),
        fit_intercept=labels.fit_intercept,
        active=np.ones(len(labels), dtype=bool),
    )
    return problem, centre


def _fit(problem: Problem, trusted: Mask, mode: Mode) -> tuple[Problem, Solution]:
    """The problem with the labels left in use, and its solution."""
    if mode.removal is None:
        return problem, solve(problem, mode.threshold)
    trace = adaptive(problem, mode.removal, trusted, MOST_STEPS, _unheard)
    return trace.problem, trace.solution


def _unheard(threshold: float, n_labels: int) -> None:
    """Fits of the search report nothing."""


def robust_scale(errors: Vector, weights: Vector) -> float:
    """1.4826 times the median of |errors|."""
    return robust.MAD_TO_SIGMA * robust.weighted_median(np.abs(errors), weights)


def robust_loss(errors: Vector, weights: Vector, scale: float) -> float:
    """Weighted mean of `robust_losses`."""
    return float(np.average(robust_losses(errors, scale), weights=weights))


def robust_losses(errors: Vector, scale: float) -> Vector:
    """log(1 + (e/scale)²) of every error, |e| held within FARTHEST scales.

    Near zero it counts squares, far out only logarithms, and no label can count for more than
    a constant: wrong labels cannot steer a choice, and hard but right ones still count.
    """
    sizes = np.minimum(np.abs(errors) / scale, FARTHEST)
    return np.log1p(sizes**2)


def common_scale(several: Sequence[Vector], weights: Vector) -> float:
    """The smallest positive robust scale among several sets of errors; 1 if there is none."""
    scales = [robust_scale(errors, weights) for errors in several]
    return min((scale for scale in scales if scale > 0.0), default=1.0)
