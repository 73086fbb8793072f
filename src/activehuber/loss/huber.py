"""The Huber loss and the exact one-dimensional minimisations it allows.

    H_ξ(r) = r²/2                 for |r| <= ξ
             ξ (|r| − ξ/2)        otherwise

Everything here is pointwise in the residual and knows no features.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache

import numpy as np

from activehuber._typing import Vector

# A Newton step is exact on its own quadratic piece, so lengths far beyond 1 do not occur;
# the cap keeps residuals finite when a direction is almost zero.
LONGEST_STEP = 64.0


def psi(residuals: Vector, threshold: float) -> Vector:
    """Derivative of the loss: ψ(r) = clip(r, −ξ, ξ)."""
    # Called thousands of times with a few hundred numbers, where np.clip is mostly overhead.
    return np.minimum(np.maximum(residuals, -threshold), threshold)


def value(residuals: Vector, threshold: float) -> Vector:
    """H_ξ(r) = ψ(r) (r − ψ(r)/2), a form that also holds at ξ = inf."""
    clipped = psi(residuals, threshold)
    return clipped * (residuals - 0.5 * clipped)


def root_of_increasing(
    derivative: Callable[[float], float], breakpoints: Vector, zero: float = 0.0
) -> float:
    """Root of an increasing, piecewise-linear function with known breakpoints.

    Bisection runs over the breakpoints only, so the function is linear between the
    last two points looked at and interpolation there is exact. On a plateau at zero
    the middle of the plateau is returned. The root is taken to lie between the first
    and the last breakpoint; else the nearer one is returned.

    Parameters
    ----------
    derivative : callable
        The increasing function, float -> float.
    breakpoints : ndarray of shape (n,)
        Where its slope may change, in any order; not empty.
    zero : float
        Absolute values up to this one are rounding, that is zero.
    """
    points, at = np.sort(breakpoints).tolist(), cache(derivative)
    last = len(points) - 1
    if at(points[0]) > zero or last == 0:
        return points[0]
    if at(points[last]) < -zero:
        return points[last]
    high = bisect_left(points, -zero, lo=1, hi=last, key=at)
    low = high - 1
    below, above = at(points[low]), at(points[high])
    if abs(above) <= zero and (high < last or below >= -zero):
        first = low if below >= -zero else high
        after = bisect_right(points, zero, lo=high, key=at)
        return 0.5 * (points[first] + points[after - 1])
    share = min(1.0, max(0.0, -below / (above - below)))
    return points[low] + share * (points[high] - points[low])


def location(values: Vector, weights: Vector, threshold: float) -> float:
    """Minimiser over b of Σ weights · H_ξ(values − b); the middle one if several.

    Parameters
    ----------
    values, weights : ndarray of shape (n,)
        Weights are positive.
    threshold : float
        ξ > 0; inf gives the weighted mean.
    """
    if not np.isfinite(threshold):
        return float(np.average(values, weights=weights))

    def derivative(b: float) -> float:
        return -float(weights @ psi(values - b, threshold))

    # Weights of one sign and of the other can cancel to rounding only.
    zero = 1e-14 * float(np.sum(weights)) * threshold
    edges = np.concatenate([values - threshold, values + threshold])
    return root_of_increasing(derivative, edges, zero)


def middle_of_plateau(values: Vector, weights: Vector, threshold: float, b: float) -> float:
    """The middle of all minimisers if b is one of several, else b.

    With every residual at or beyond ±ξ (to 1e-9 of it) and signs that balance, any b between
    the last kinks is as good; which end a search stops at is an accident.
    """
    if not np.isfinite(threshold):
        return b
    residuals = values - b
    if np.any(np.abs(residuals) < threshold * (1.0 - 1e-9)):
        return b
    above = residuals > 0.0
    imbalance = float(weights[above].sum() - weights[~above].sum())
    if abs(imbalance) > 1e-12 * float(weights.sum()) or np.all(above) or not np.any(above):
        return b
    low = float(np.max(values[~above])) + threshold
    high = float(np.min(values[above])) - threshold
    return 0.5 * (low + high)


def line_minimum(
    residuals: Vector,
    direction: Vector,
    weights: Vector,
    threshold: float,
    linear: float,
    curvature: float,
) -> float:
    """Exact minimiser over t >= 0 of Σ w H_ξ(r + t d) + linear·t + curvature·t²/2.

    The derivative is increasing and piecewise linear in t; its breakpoints are where a
    residual crosses ±ξ.
    """

    def derivative(t: float) -> float:
        slopes = weights * psi(residuals + t * direction, threshold)
        return float(slopes @ direction) + linear + curvature * t

    moving = direction != 0.0
    r, d = residuals[moving], direction[moving]
    with np.errstate(over="ignore"):
        crossings = np.concatenate([(threshold - r) / d, (-threshold - r) / d])
    crossings = crossings[(crossings > 0.0) & (crossings < LONGEST_STEP)]
    points = np.concatenate([[0.0, 1.0, LONGEST_STEP], crossings])
    return root_of_increasing(derivative, points)
