"""How likely labels are under a Gaussian process: y ~ N(b, τ² A), A = Q + diag(μ)."""

from __future__ import annotations

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.numerics.linalg import cholesky_in_place, solve_lower

# No sum of squares is smaller: labels may all be equal.
TINY = float(np.finfo(np.float64).tiny)


def log_evidence(
    Q: Matrix, y: Matrix, weights: Vector, ridge: float, *, border: bool, least: float = TINY
) -> float:
    """Log evidence of the labels per unit of weight, up to constants; overwrites Q.

    τ² is at its best and the intercept integrated out (restricted likelihood). With m the
    ridge, A = Q + diag(m/s) and P the inverse of A, projected, averaged over the columns of y,

        −((S − 1) log yᵀPy + log |A| + log 1ᵀA⁻¹1 + Σ (s_i − 1) log m) / 2S ,

    without an intercept −(S log yᵀA⁻¹y + log |A| + Σ …)/2S. The sum over s_i makes a weight
    of k equal k repetitions, but for a constant.

    Parameters
    ----------
    Q : ndarray of shape (l, l)
    y : ndarray of shape (l,) or (l, k)
    weights : ndarray of shape (l,)
        s.
    ridge : float
        m = 2Sλ.
    border : bool
        Whether there is an intercept.
    least : float
        What yᵀPy counts for at least.
    """
    Q.flat[:: len(Q) + 1] += ridge / weights
    lower = cholesky_in_place(Q)
    whitened = solve_lower(lower, np.asfortranarray(y.reshape(len(weights), -1)))
    sizes = np.einsum("ij,ij->j", whitened, whitened)
    level = 2.0 * float(np.sum(np.log(np.diagonal(lower))))
    total = float(weights.sum())
    if border:
        ones = solve_lower(lower, np.ones(len(weights)))
        sizes -= (ones @ whitened) ** 2 / (ones @ ones)
        level += float(np.log(ones @ ones))
    level += freedom(weights, border=border) * float(np.mean(np.log(np.maximum(sizes, least))))
    level += (total - len(weights)) * float(np.log(ridge))
    return -0.5 * level / total


def freedom(weights: Vector, *, border: bool) -> float:
    """Labels less one for an intercept."""
    return max(float(weights.sum()) - float(border), 1.0)
