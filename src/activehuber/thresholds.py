"""Scales and thresholds from residuals: small pure functions, weights included."""

from __future__ import annotations

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.leave_one_out import LeaveOneOut

# MADN: the median absolute deviation times this is the standard deviation of a Gaussian.
MAD_TO_SIGMA = 1.482602218505602
# The same for the mean absolute deviation.
MEAN_DEVIATION_TO_SIGMA = 1.2533141373155003
# 95 % efficiency under Gaussian noise: where labels are bound but none is dropped.
EFFICIENT = 1.345


def weighted_median(values: Vector, weights: Vector) -> float:
    """The median of values repeated `weights` times; two middle ones are averaged."""
    order = np.argsort(values, kind="stable")
    ranked, cumulated = values[order], np.cumsum(weights[order])
    half = 0.5 * cumulated[-1]
    # Sums of equal weights may miss the half by rounding; such a hit counts as exact.
    slack = 1e-12 * cumulated[-1]
    low = int(np.searchsorted(cumulated, half - slack))
    high = int(np.searchsorted(cumulated, half + slack, side="right"))
    return 0.5 * float(ranked[low] + ranked[min(high, len(ranked) - 1)])


def weighted_quantile(values: Vector, weights: Vector, share: float) -> float:
    """The smallest value below or at which `share` of the weight lies."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    place = int(np.searchsorted(cumulated, share * cumulated[-1] * (1.0 - 1e-12)))
    return float(values[order][min(place, len(values) - 1)])


def mean_of_smaller_half(values: Vector, weights: Vector) -> float:
    """Mean of the smaller half of the values by weight (a trimmed mean)."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    half = 0.5 * cumulated[-1]
    counted = np.diff(np.minimum(cumulated, half), prepend=0.0)
    return float(counted @ values[order]) / half


def label_scale(y: Vector, weights: Vector) -> float:
    """A robust scale of the labels: MADN, or the mean deviation if that is zero."""
    deviations = np.abs(y - weighted_median(y, weights))
    spread = MAD_TO_SIGMA * weighted_median(deviations, weights)
    if spread > 0.0:
        return spread
    return MEAN_DEVIATION_TO_SIGMA * float(np.average(deviations, weights=weights))


def noise_scale(loo: LeaveOneOut, weights: Vector, among: Mask, floor: float) -> float:
    """σ̂ = 1.4826 · median |e_i| / √(1 + q_i/μ_i), not below `floor`."""
    standardised = np.abs(loo.residuals) / loo.inflation
    middle = weighted_median(standardised[among], weights[among])
    return max(MAD_TO_SIGMA * middle, floor)


def row_scales(loo: LeaveOneOut, sigma: float, spread: float, mean_variance: float) -> Vector:
    """The scale that |e_i| has for a good label of row i.

    The larger of σ̂ √(1 + q/μ), noise and its effect on the prediction, and
    s_y √(q/K̄), what rows with few neighbours cannot know: at q = K̄, the prior
    variance, nothing is known but the spread of the labels.

    Parameters
    ----------
    sigma : float
        σ̂.
    spread : float
        s_y, the scale of the labels.
    mean_variance : float
        K̄, the mean prior variance.
    """
    noise = sigma * loo.inflation
    if mean_variance <= 0.0:
        return noise
    return np.maximum(noise, spread * np.sqrt(loo.variance / mean_variance))


def quality(errors: Vector, cuts: Vector, kept: Mask, trusted: Mask) -> Vector:
    """Label quality in [0, 1]: q(x) = 1/(1 + x²) of x = |e|/cut, so q(1) = ½.

    Kept labels lie at or above ½ and dropped ones below. Where the cut that decided is
    not the one given here (a fixed threshold drops nothing; refinements go by in-sample
    residuals), all cuts are widened by one factor to hold every kept label, trusted ones
    aside, and a dropped label inside its cut is put just below ½.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(errors == 0.0, 0.0, np.abs(errors) / cuts)
    widest = np.max(ratio[kept & ~trusted & np.isfinite(ratio)], initial=1.0)
    scores = 1.0 / (1.0 + (ratio / widest) ** 2)
    scores[kept] = np.maximum(scores[kept], 0.5)
    scores[~kept] = np.minimum(scores[~kept], np.nextafter(0.5, 0.0))
    return scores
