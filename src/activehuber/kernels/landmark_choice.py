"""Which rows make good landmarks for the labels at hand.

Of several times as many candidates as are wanted those are taken, one after the other, whose
function κ_j = K(·, z_j) explains most of what is left of the labels on some rows (forward
selection by orthogonal least squares). With C = κᵀκ of centred functions, C = L Lᵀ built column
by column for the functions taken, and a = κᵀ(y − fit),

    gain_j = a_j² / d_j ,     d = diag(C) − row sums of L² .

Labels may be wrong: those far from the fit are pulled to CLIP robust scales of it, and again
whenever the number of functions has doubled.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.numerics.linalg import solve_cholesky, solve_lower
from activehuber.numerics.robust import label_scale

# Candidates for every landmark, at most and at least: fewer would change little.
MOST_CANDIDATES, FEWEST_CANDIDATES = 4.0, 1.5
# Rows that the labels are explained on, for every landmark; more where that is cheap.
ROWS, MANY_ROWS = 8, 4000
# Multiplications for C, at most: this share of those of one pass of the fit, n p², or so many.
SHARE, CHEAP = 0.1, 2e9
# Residuals count up to so many times their robust scale.
CLIP = 2.5
# Labels are pulled in before the first function and from so many functions on.
FIRST = 16
# A function that leaves less than this share of itself to be explained adds rounding.
NEGLIGIBLE = 1e-8


def effort(n_rows: int, wanted: int) -> tuple[int, int]:
    """How many candidates to draw and on how many rows to look at them; (0, 0): do not."""
    most = max(SHARE * n_rows * wanted**2, CHEAP)
    ratio = min(MOST_CANDIDATES, sqrt(most / (ROWS * float(wanted) ** 3)), n_rows / wanted)
    if ratio < FEWEST_CANDIDATES:
        return 0, 0
    candidates = int(ratio * wanted)
    rows = max(ROWS * wanted, min(MANY_ROWS, int(most / candidates**2)))
    return candidates, min(n_rows, rows)


def forward_choice(functions: Matrix, labels: Matrix, wanted: int) -> np.ndarray:
    """Take functions one by one, always the one that explains most.

    Parameters
    ----------
    functions : ndarray of shape (n, c)
        κ of the candidates; overwritten.
    labels : ndarray of shape (n, q)
        NaN where there is none.
    wanted : int

    Returns
    -------
    ndarray of int, at most `wanted`
        Their numbers in the order taken; fewer if the others depend on them.
    """
    functions -= functions.mean(axis=0)
    gram = functions.T @ functions
    own = np.diagonal(gram).copy()
    left, lower = own.copy(), np.empty((len(gram), wanted))
    labels = labels / np.array([_unit(column) for column in labels.T])
    near = _pulled_in(labels, np.zeros(labels.shape))
    pull = functions.T @ near
    unexplained, refresh = pull.copy(), FIRST
    taken: list[int] = []
    for k in range(wanted):
        if k == refresh:
            refresh *= 2
            factor = lower[taken, :k]
            coefficients = np.zeros_like(pull)
            coefficients[taken] = solve_cholesky(factor, pull[taken])
            near = _pulled_in(labels, functions @ coefficients)
            pull = functions.T @ near
            half = solve_lower(factor, pull[taken])
            unexplained = pull - lower[:, :k] @ half
        worth = left > NEGLIGIBLE * own
        gains = np.sum(unexplained**2, axis=1) / np.where(worth, left, np.inf)
        best = int(np.argmax(np.where(worth, gains, -1.0)))
        if not worth[best]:
            break
        root = sqrt(left[best])
        column = (gram[:, best] - lower[:, :k] @ lower[best, :k]) / root
        lower[:, k] = column
        unexplained -= np.outer(column, unexplained[best] / root)
        left -= column**2
        left[best] = 0.0
        taken.append(best)
    return np.array(taken, dtype=int)


def _unit(labels: Vector) -> float:
    given = labels[~np.isnan(labels)]
    scale = label_scale(given, np.ones(len(given))) if len(given) else 0.0
    return scale if scale > 0.0 else 1.0


def _pulled_in(labels: Matrix, fit: Matrix) -> Matrix:
    """Labels, each near the fit, and the fit itself where there is none; centred."""
    out = fit.copy()
    for target, residuals in enumerate((labels - fit).T):
        given = ~np.isnan(residuals)
        if not np.any(given):
            continue
        own = residuals[given]
        centre = float(np.median(own))
        reach = CLIP * label_scale(own, np.ones(len(own)))
        out[given, target] += np.clip(own - centre, -reach, reach)
    return out - out.mean(axis=0)
