"""At which threshold every label left the free set.

a fitted model -> the path with all labels in use, exact or in steps -> a threshold a label
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Vector
from activehuber.audit.inputs import TargetColumn
from activehuber.estimators.regressor import HLRegressor
from activehuber.fitting.fit import reduced_gram
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.solver.newton import solve
from activehuber.solver.path import Trail, follow

# Labels up to which the path over the threshold is followed exactly, and its work at most:
# changes of a label, each of which costs a pass over the Gram matrix, times its entries. Up
# to more labels the path is walked in steps, and above that not at all.
PATH_LABELS, PATH_WORK = 1_500, 1.2e9
WALK_LABELS, WALK_STEPS, FEWER_STEPS = 6_000, 24, 10


@dataclass(frozen=True)
class FollowedPath:
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


def follow_path(
    model: HLRegressor, labels: TargetColumn
) -> tuple[FollowedPath | None, list[str]]:
    """The path with all labels in use, down to the fit's own ξ, and what to say of it.

    That of the reduced problem: coefficients, most of the work of `huber_path`, are not needed.
    """
    count = int(np.count_nonzero(labels.given))
    if model.result_.settings.approximation is not None:
        return None, ["With an approximation no path over the threshold is followed."]
    if model.result_.data.several_targets:
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


def _problem_of_all(model: HLRegressor, labels: TargetColumn) -> Problem:
    assert model.X_fit_ is not None  # audit has features, no Gram matrix
    data = model.result_.data
    settings = replace(
        model.result_.settings, view_weights=model.result_.targets[0].view_weights
    )
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


def _exact_path(trail: Trail) -> tuple[FollowedPath, list[str]]:
    path = FollowedPath(trail.thresholds, trail.states)
    if trail.complete:
        return path, []
    return path, [
        f"The path over the threshold was followed from {trail.thresholds[0]:.3g} down to "
        f"{trail.thresholds[-1]:.3g}; labels that left the free set below do not say where."
    ]


def _walk(problem: Problem, lowest: float | None) -> tuple[FollowedPath | None, list[str]]:
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
    return FollowedPath(thresholds, states), [note]


def left_at(path: FollowedPath | None, count: int) -> Vector:
    """The threshold at which each label first became bound, shape (l,); NaN if it did not."""
    if path is None:
        return np.full(count, np.nan)
    bound = np.abs(path.states) == 1
    first = np.argmax(bound, axis=0)
    return np.where(np.any(bound, axis=0), path.thresholds[first], np.nan)
