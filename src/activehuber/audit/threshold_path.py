"""At which threshold every label left the free set.

a fitted model -> the path with all labels in use, exact or in steps -> a threshold a label
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from activehuber._typing import Vector
from activehuber.audit.inputs import TargetColumn
from activehuber.estimators.regressor import HLRegressor
from activehuber.fitting.fit import reduced_gram
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.report.page import PathSummary
from activehuber.solver.newton import solve
from activehuber.solver.path import follow

# Labels up to which the path over the threshold is followed exactly, and its work at most:
# changes of a label, each of which costs a pass over the Gram matrix, times its entries. Up
# to more labels the path is walked in steps, and above that not at all.
PATH_LABELS, PATH_WORK = 1_500, 1.2e9
WALK_LABELS, WALK_STEPS, FEWER_STEPS = 6_000, 24, 10

# Falling thresholds of shape (K,), the states of labels at them of shape (K, l), 0 free and
# ±1 bound, and a sentence to say of it or none.
_Path = tuple[Vector, np.ndarray, str]


def follow_path(
    model: HLRegressor, labels: TargetColumn
) -> tuple[Vector, PathSummary | None, str]:
    """The path with all labels in use, down to the fit's own ξ.

    That of the reduced problem: coefficients, most of the work of `huber_path`, are not needed.

    Returns
    -------
    left_at : ndarray of shape (l,)
        The threshold at which each label first became bound; NaN if it did not.
    drawn : PathSummary or None
        What the page draws of it.
    note : str
        What to say of how it was found, if anything.
    """
    count = int(np.count_nonzero(labels.given))
    thresholds, states, note = _path_of(model, labels, count)
    if not len(thresholds):
        return np.full(count, np.nan), None, note
    bound = states != 0
    first = thresholds[np.argmax(bound, axis=0)]
    left_at = np.where(np.any(bound, axis=0), first, np.nan)
    drawn = None
    if len(thresholds) > 1:
        free = np.count_nonzero(~bound, axis=1)
        drawn = PathSummary(thresholds, free, float(model.threshold_))
    return left_at, drawn, note


def _path_of(model: HLRegressor, labels: TargetColumn, count: int) -> _Path:
    """The path if it can be followed, and what to say of it."""
    if model.result_.settings.approximation is not None:
        return _no_path("With an approximation no path over the threshold is followed.")
    if model.result_.data.several_targets:
        return _no_path("With more than two classes no path over the threshold is followed.")
    if count > WALK_LABELS:
        return _no_path(f"Above {WALK_LABELS} labels no path over the threshold is followed.")
    problem = _problem_of_all(model, labels)
    stop = float(model.threshold_)
    lowest = stop if 0.0 < stop < np.inf else None
    try:
        if count <= PATH_LABELS:
            most = max(int(PATH_WORK / count**2), int(model.removed_.sum()) + 50)
            trail = follow(problem, lowest, most)
            note = (
                f"The path over the threshold was followed from {trail.thresholds[0]:.3g} down "
                f"to {trail.thresholds[-1]:.3g}; labels that left the free set below do not "
                "say where."
            )
            return trail.thresholds, trail.states, "" if trail.complete else note
        return _walk(problem, lowest)
    except BreakdownError:
        return _no_path("The path over the threshold is too ill-conditioned to be followed.")


def _no_path(note: str) -> _Path:
    return np.empty(0), np.empty((0, 0)), note


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


def _walk(problem: Problem, lowest: float | None) -> _Path:
    """Solutions at some thresholds, each started at the last."""
    gram, steps = problem.gram, WALK_STEPS
    if gram.is_well_conditioned(problem.mu):
        source = gram.inverse_source(problem.mu, border=problem.fit_intercept)
    else:
        # Without the inverse a step costs more.
        source, steps = gram.source(problem.mu), FEWER_STEPS
    solution = solve(problem, np.inf, source=source)
    first = float(np.max(np.abs(problem.y - solution.intercept - solution.fitted)))
    if first == 0.0:
        return _no_path("")
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
    return thresholds, states, note
