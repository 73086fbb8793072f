"""Scales and thresholds from residuals: small pure functions, weights included.

A large ξ makes the fit mean-like: least squares, efficient under Gaussian noise, but every
label pulls. A small ξ makes it median-like: only the signs of large residuals count. Rules
that choose ξ from the residuals of the fit itself, so that `threshold_` is a fixed point:

    madn          1.345 MADN(r)              nearly mean-like: 95 % efficient under Gaussian
                                             noise, up to half of the labels may be off
    quantile      the 0.9 quantile of |r|    mean-like for nine labels in ten, whatever the
                                             noise; for a known share of bad labels
    tuning_free   mean min(r²/ξ², 1) = (dof + log l)/l
                                             ξ grows with l: the mean even of skewed noise
                                             with heavy tails, where `madn` would be biased

`adaptive` uses leave-one-out residuals instead and drops labels.
"""

from __future__ import annotations

import numpy as np

from activehuber._typing import Vector
from activehuber.numerics.robust import MAD_TO_SIGMA, weighted_median, weighted_quantile

# ξ in units of the noise scale: 95 % efficiency under Gaussian noise.
EFFICIENT = 1.345
# Share of the labels inside the threshold of the rule `quantile`.
INSIDE = 0.9


# --- rules for ξ ------------------------------------------------------------------------


def madn(residuals: Vector, weights: Vector) -> float:
    """ξ = 1.345 MADN(r): close to the mean, with half of the labels as breakdown point.

    Use it when most noise is Gaussian and bad labels are to be bound, not dropped.

    Parameters
    ----------
    residuals, weights : ndarray of shape (l,)

    Returns
    -------
    float
        1.345 · 1.4826 · median |r − median r|.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.labels.thresholds import madn
    >>> residuals = np.array([-1.0, 0.0, 1.0, 2.0, 100.0])
    >>> round(madn(residuals, np.ones(5)), 3)     # the far one does not matter
    1.994
    """
    deviations = np.abs(residuals - weighted_median(residuals, weights))
    return EFFICIENT * MAD_TO_SIGMA * weighted_median(deviations, weights)


def quantile(residuals: Vector, weights: Vector) -> float:
    """ξ = the 0.9 quantile of |r|: one label in ten is bound, the others count as in a mean.

    Use it when about so many labels are bad, whatever their size.

    Parameters
    ----------
    residuals, weights : ndarray of shape (l,)

    Returns
    -------
    float
        The smallest |r| below or at which 0.9 of the weight lies.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.labels.thresholds import quantile
    >>> quantile(np.arange(1.0, 11.0), np.ones(10))
    9.0
    """
    return weighted_quantile(np.abs(residuals), weights, INSIDE)


def tuning_free(residuals: Vector, weights: Vector, dof: float) -> float:
    """The ξ with mean min(r²/ξ², 1) = (dof + log l)/l; inf if only ξ → 0 would do.

    It grows with the number of labels, so that the fit tends to the mean even if noise is
    skewed or has heavy tails; use it when the mean is what is wanted.

    Parameters
    ----------
    dof : float
        Degrees of freedom of the fit: the sum of the leverages of the free labels.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.labels.thresholds import tuning_free
    >>> residuals = np.random.default_rng(0).normal(size=200)
    >>> xi = tuning_free(residuals, np.ones(200), dof=10.0)
    >>> left = np.mean(np.minimum((residuals / xi) ** 2, 1.0))
    >>> bool(np.isclose(left, (10 + np.log(200)) / 200))
    True
    """
    total = float(weights.sum())
    wanted = dof + np.log(total)
    if wanted >= total:
        return np.inf
    order = np.argsort(np.abs(residuals), kind="stable")
    sizes, ranked = np.abs(residuals)[order], weights[order]
    squares = np.cumsum(ranked * sizes**2)
    beyond = total - np.cumsum(ranked)
    # With the first k sizes inside: squares_k / ξ² + beyond_k = wanted.
    room = wanted - beyond
    candidates = np.sqrt(np.divide(squares, room, out=np.zeros_like(room), where=room > 0.0))
    upper = np.append(sizes[1:], np.inf)
    fits = (room > 0.0) & (candidates >= sizes) & (candidates <= upper)
    return float(candidates[np.argmax(fits)]) if np.any(fits) else float(sizes[-1])
