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
from activehuber.solver.newton import solve
from activehuber.solver.path import follow

# Labels up to which the path over the threshold is followed exactly, and its work at most:
# changes of a label, each of which costs a pass over the Gram matrix, times its entries. Up
# to more labels the path is walked in steps, and above that not at all.
PATH_LABELS, PATH_WORK = 1_500, 1.2e9
WALK_LABELS, WALK_STEPS, FEWER_STEPS = 6_000, 24, 10


def follow_path(
    model: HLRegressor, labels: TargetColumn
) -> tuple[Vector, tuple[Vector, np.ndarray] | None, str]:
    """The path with all labels in use, down to the fit's own ξ.

    That of the reduced problem: coefficients, most of the work of `huber_path`, are not needed.

    Returns
    -------
    left_at : ndarray of shape (l,)
        The threshold at which each label first became bound; NaN if it did not.
    drawn : (thresholds, free labels at each) or None
        What the page draws of it.
    note : str
        What to say of how it was found, if anything.
    """
    result, stop = model.result_, model.threshold_
    count = int(np.count_nonzero(labels.given))
    unknown, why = np.full(count, np.nan), ""
    if result.settings.approximation is not None:
        why = "With an approximation"
    elif result.data.several_targets:
        why = "With more than two classes"
    elif count > WALK_LABELS:
        why = f"Above {WALK_LABELS} labels"
    if why:
        return unknown, None, f"{why} no path over the threshold is followed."
    assert model.X_fit_ is not None  # audit has features, no Gram matrix
    data, given = result.data, labels.given
    settings = replace(result.settings, view_weights=result.targets[0].view_weights)
    y = data.y[given, 0]
    problem = Problem(
        gram=DenseGram(reduced_gram(settings, data)),
        y=y - float(np.median(y)) if settings.fit_intercept else y,
        weights=data.weights[given],
        alpha=settings.alpha,
        fit_intercept=settings.fit_intercept,
        active=np.ones(count, dtype=bool),
    )
    lowest = stop if 0.0 < stop < np.inf else None
    try:
        if count <= PATH_LABELS:
            most = max(int(PATH_WORK / count**2), int(model.removed_.sum()) + 50)
            trail = follow(problem, lowest, most)
            thresholds, bound = trail.thresholds, trail.states != 0
            note = "" if trail.complete else (
                f"The path over the threshold was followed from {thresholds[0]:.3g} down to "
                f"{thresholds[-1]:.3g}; labels that left the free set below do not say where."
            )  # fmt: skip
        else:
            thresholds, bound, note = _walk(problem, lowest)
    except BreakdownError:
        note = "The path over the threshold is too ill-conditioned to be followed."
        return unknown, None, note
    if not len(thresholds):
        return unknown, None, note
    left_at = np.where(np.any(bound, axis=0), thresholds[np.argmax(bound, axis=0)], np.nan)
    drawn = (thresholds, np.count_nonzero(~bound, axis=1)) if len(thresholds) > 1 else None
    return left_at, drawn, note


def _walk(problem: Problem, lowest: float | None) -> tuple[Vector, np.ndarray, str]:
    """Which labels are bound at some thresholds, and what to say of it.

    Falling thresholds of shape (K,) and a mask of shape (K, l); each solution is started at the
    last.
    """
    gram, steps = problem.gram, WALK_STEPS
    if gram.is_well_conditioned(problem.mu):
        source = gram.inverse_source(problem.mu, border=problem.fit_intercept)
    else:
        # Without the inverse a step costs more.
        source, steps = gram.source(problem.mu), FEWER_STEPS
    solution = solve(problem, np.inf, source=source)
    first = float(np.max(np.abs(problem.y - solution.intercept - solution.fitted)))
    if first == 0.0:
        return np.empty(0), np.empty((0, 0), dtype=bool), ""
    thresholds = np.geomspace(first, min(first / 1.001, lowest or 1e-3 * first), steps)
    bound = np.zeros((steps, len(problem.y)), dtype=bool)
    for step, threshold in enumerate(thresholds[1:], start=1):
        solution = solve(problem, threshold, source=source, start=solution)
        bound[step] = ~solution.free
    note = (
        f"The path over the threshold was walked in {steps} steps; left_at is the first "
        "of them at which a label was bound."
    )
    return thresholds, bound, note
