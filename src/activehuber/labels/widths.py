"""At which width labels are judged.

Among wrong labels the kernel that predicts best is narrow, so that each of them spoils little.
To judge a label, its row has to be predicted by the others, even where the nearest are wrong
too, and a wider kernel hears more of them. How wide, the labels say themselves: those that a
first look does not doubt, S, are taken for a Gaussian process,

    y_S ~ N(b, τ² A_SS) ,     A = Q(γ) + diag(μ) ,

and of some widths, the model's own among them, the one is taken at which they are most likely.
Only the judgement is made there; the fit to the labels that stay has the model's own width.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.numerics.likelihood import log_evidence
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import submatrix
from activehuber.operators.protocol import Gram
from activehuber.problem.problem import Problem
from activehuber.solver.leave_one_out import units


def some_labels(problem: Problem, most: int) -> tuple[np.ndarray, Vector]:
    """Up to so many labels and the weights they have there, whatever the order of the rows.

    Labels are ranked by size, equal ones by the mean of their rows of Q, and taken at even
    distances of weight. A label of weight k > 1 is so many labels, of which some are taken.
    """
    weights = problem.weights
    if units(weights, np.ones(len(weights), dtype=bool)) <= most:
        return np.arange(len(weights)), weights
    nearness = problem.gram.matvec(weights / weights.sum())
    order = np.lexsort((nearness, problem.y))
    ends = np.cumsum(weights[order])
    places = np.searchsorted(ends, (np.arange(most) + 0.5) * ends[-1] / most)
    rows, times = np.unique(order[places], return_counts=True)
    return rows, times * np.minimum(weights[rows], 1.0)


def on_some(problem: Problem, rows: np.ndarray, weights: Vector, gram: Gram) -> Problem:
    """The problem on some labels at the ridge of all of them."""
    some = replace(problem.on_some(rows, gram), weights=weights)
    return replace(some, alpha=problem.alpha * problem.total_weight / some.total_weight)


def likeliest(problems: dict[float, Problem], kept: Mask, floor: float) -> float:
    """The factor at which the kept labels are most likely.

    Parameters
    ----------
    problems : dict of float to Problem
        By factor; they differ in Q alone, which is dense.
    kept : ndarray of shape (l,), bool
        S.
    floor : float
        Noise below it is not seen.
    """
    levels = {}
    used = np.flatnonzero(kept)
    for factor, problem in problems.items():
        matrix = problem.gram.matrix
        assert matrix is not None
        ridge = 2.0 * problem.total_weight * problem.alpha
        weights = problem.weights[used]
        try:
            levels[factor] = log_evidence(
                submatrix(matrix, used, used),
                problem.y[used],
                weights,
                ridge,
                border=problem.fit_intercept,
                least=float(weights.sum()) * floor**2 / ridge,
            )
        except BreakdownError:
            continue  # too wide for double precision
    return max(levels, key=lambda factor: levels[factor], default=1.0)
