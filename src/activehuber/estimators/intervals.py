"""Prediction intervals from leave-one-out errors, jackknife style."""

from __future__ import annotations

import numpy as np

from activehuber._typing import Vector
from activehuber.numerics.robust import weighted_quantile


def half_width(errors: Vector, weights: Vector, coverage: float) -> float:
    """The size that `coverage` of new errors stay within.

    The quantile of |e| at coverage · (1 + 1/l): with l exchangeable errors the next one is
    within it with at least that probability; the largest |e| if l is too small for it.
    """
    level = min(1.0, coverage * (1.0 + 1.0 / float(np.sum(np.maximum(weights, 1.0)))))
    return weighted_quantile(np.abs(errors), weights, level)
