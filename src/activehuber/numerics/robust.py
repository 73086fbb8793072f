"""Medians, quantiles and scales of weighted numbers that a few wrong ones do not move."""

from __future__ import annotations

import numpy as np

from activehuber._typing import Vector

# MADN: the median absolute deviation times this is the standard deviation of a Gaussian.
MAD_TO_SIGMA = 1.482602218505602
# The same for the mean absolute deviation.
MEAN_DEVIATION_TO_SIGMA = 1.2533141373155003


def weighted_median(values: Vector, weights: Vector) -> float:
    """The median of values repeated `weights` times; two middle ones are averaged."""
    if _are_equal(weights):
        # Without sorting; `np.median` takes ten times as long for a few hundred values.
        low, high = (len(values) - 1) // 2, len(values) // 2
        middle = np.partition(values, (low, high))
        return 0.5 * float(middle[low] + middle[high])
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
    if _are_equal(weights):
        place = max(int(np.ceil(share * len(values) * (1.0 - 1e-12))), 1) - 1
        return float(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    place = int(np.searchsorted(cumulated, share * cumulated[-1] * (1.0 - 1e-12)))
    return float(values[order][min(place, len(values) - 1)])


def _are_equal(weights: Vector) -> bool:
    return len(weights) > 0 and bool((weights == weights[0]).all())


def label_scale(y: Vector, weights: Vector) -> float:
    """A robust scale of the labels: MADN, or the mean deviation if that is zero."""
    deviations = np.abs(y - weighted_median(y, weights))
    spread = MAD_TO_SIGMA * weighted_median(deviations, weights)
    if spread > 0.0:
        return spread
    return MEAN_DEVIATION_TO_SIGMA * float(np.average(deviations, weights=weights))
