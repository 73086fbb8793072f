"""Points of a search scored: which labels stay, and errors on labels that had no say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.labels.adaptive import judge_labels
from activehuber.labels.rule import DEFAULT_RULE, LabelRule
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError, multiply
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.selection.criterion import ObservedLabels
from activehuber.solver.leave_one_out import leave_one_out
from activehuber.solver.newton import solve

# Errors count up to so many robust standard deviations of the best errors seen.
FARTHEST = 60.0


def judge(
    Q: Matrix, labels: ObservedLabels, ridge: float, rule: LabelRule = DEFAULT_RULE
) -> tuple[Mask, Vector] | None:
    """Labels judged with one kernel; None if double precision does not suffice.

    Which of them are kept, and leave-one-out errors of all, dropped ones included.
    """
    try:
        found = judge_labels(problem_of(Q, labels, ridge)[0], labels.trusted, rule)
    except BreakdownError:
        return None
    kept = np.ones(len(labels), dtype=bool) if found is None else found.kept
    errors = left_out_errors(Q, labels, ridge, kept)
    return None if errors is None else (kept, errors)


def left_out_errors(
    Q: Matrix, labels: ObservedLabels, ridge: float, kept: Mask
) -> Vector | None:
    """Leave-one-out errors of least squares on the labels kept, shape (l,)."""
    try:
        problem = problem_of(Q, labels, ridge)[0].using(kept)
        solution = solve(problem, np.inf)
        residuals = problem.residuals(solution)
        return leave_one_out(problem, solution, residuals, problem.mu, np.inf).residuals
    except BreakdownError:
        return None


def held_out_errors(
    Q: Matrix,
    labels: ObservedLabels,
    ridge: float,
    kept: Mask,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Vector | None:
    """Errors of all labels on folds, fitted to the labels kept of the others, shape (l,)."""
    errors = np.full(len(labels), np.nan)
    for train, test in folds:
        some = labels.take(train)
        try:
            problem, centre = problem_of(
                np.ascontiguousarray(Q[np.ix_(train, train)]),
                some,
                ridge * some.total_weight / labels.total_weight,
            )
            active = kept[train]
            if np.any(active):
                problem = problem.using(active)
            solution = solve(problem, np.inf)
        except BreakdownError:
            return None
        predicted = multiply(np.ascontiguousarray(Q[np.ix_(test, train)]), solution.v)
        errors[test] = labels.y[test] - centre - solution.intercept - predicted
    return errors


def problem_of(Q: Matrix, labels: ObservedLabels, ridge: float) -> tuple[Problem, float]:
    """Eq. 3 with this Q, and the centre that was taken off the labels."""
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
        groups=labels.groups,
    )
    return problem, centre


def robust_loss(errors: Vector, weights: Vector, scale: float) -> float:
    """Weighted mean of log(1 + (e/scale)²), |e| held within FARTHEST scales.

    Near zero it counts squares, far out only logarithms, and no label can count for more than
    a constant: wrong labels cannot steer a choice, and hard but right ones still count.
    """
    sizes = np.minimum(np.abs(errors) / scale, FARTHEST)
    return float(np.average(np.log1p(sizes**2), weights=weights))


def common_scale(several: Sequence[Vector], weights: Vector) -> float:
    """The smallest positive robust scale among several sets of errors; 1 if there is none."""
    medians = [robust.weighted_median(np.abs(errors), weights) for errors in several]
    return min((robust.MAD_TO_SIGMA * each for each in medians if each > 0.0), default=1.0)
