"""How likely labels are under a Gaussian process: y ~ N(b, τ² A), A = Q + diag(μ)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from activehuber._typing import Matrix, Vector
from activehuber.numerics.linalg import BreakdownError, cholesky_in_place, solve_lower

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


class EvidenceByRidge:
    """`log_evidence` at many ridges, from one eigendecomposition of S^½ Q S^½ = U diag(w) Uᵀ.

    With z = Uᵀ S^½ y and o = Uᵀ S^½ 1,

        yᵀPy = Σ z²/(w + m) − (Σ z o/(w + m))² / Σ o²/(w + m) .

    Parameters
    ----------
    Q : ndarray of shape (l, l)
        Overwritten.
    y, weights : ndarray of shape (l,)
    border : bool
        Whether there is an intercept.
    floor : float
        Noise below this is not seen.
    """

    def __init__(
        self, Q: Matrix, y: Vector, weights: Vector, *, border: bool, floor: float
    ) -> None:
        roots = np.sqrt(weights)
        Q *= roots[:, None]
        Q *= roots
        values, vectors = eigh(Q, overwrite_a=True, check_finite=False, driver="evd")
        self.values = np.maximum(values, 0.0)
        self.z = (roots * y) @ vectors
        self.ones = roots @ vectors
        self.border, self.floor = border, floor
        self.total = float(weights.sum())
        self.extra = self.total - len(weights)
        self.log_weights = float(np.log(weights).sum())
        self.degrees = freedom(weights, border=border)

    def at(self, ridge: float) -> float:
        """Log evidence per unit of weight."""
        pulls = 1.0 / (self.values + ridge)
        least = max(self.total * self.floor**2 / ridge, TINY)
        size = float(self.z**2 @ pulls)
        level = -float(np.sum(np.log(pulls))) - self.log_weights
        if self.border:
            ones = float(self.ones**2 @ pulls)
            both = float((self.z * self.ones) @ pulls)
            if ones == 0.0:  # beside kernel values beyond doubles nothing is left
                raise BreakdownError("the kernel matrix is too large for doubles")
            size -= both / ones * both
            level += float(np.log(ones))
        if not np.isfinite(size):
            raise BreakdownError("the kernel matrix is too large for doubles")
        level += self.degrees * float(np.log(max(size, least)))
        level += self.extra * float(np.log(ridge))
        return -0.5 * level / self.total
