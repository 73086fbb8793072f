"""Labels of two values: the probability that each is right.

A wrong label of two values is the other value. With t = ±1 the label, x = t less its
leave-one-out error what the others say of it, v what they leave open and ρ the share of wrong
labels,

    P(true +1 | x) = s(κ(a (x − x̄) + b)) ,   κ = (1 + π a² v/8)^(−½) ,   s(z) = 1/(1 + e⁻ᶻ) ,
    P(label right) = (1 − ρ) p / ((1 − ρ) p + ρ (1 − p)) ,          p = P(true = t | x) .

κ is MacKay's: where little is known, nothing is sure. Overlap of classes is in a, wrong labels
are in ρ: the curve of overlapping classes rises slowly, that of flipped ones levels off before
it reaches 0 and 1. Where all x lie in two heaps that cannot be told, and is taken for flips:
a, b and ρ are the likeliest ones given that log a is near that of a steep curve, b near what
the share of the classes says (features that say nothing make no label wrong), and ρ is small.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from activehuber._typing import Vector
from activehuber.labels.rule import LabelRule

# ρ at most: with half of the labels wrong nothing can be told.
LARGEST_SHARE = 0.45
# Slope of a curve before any label is seen, in units of the spread of x, and the standard
# deviations of its logarithm and of b.
USUAL_SLOPE, SLOPE_SPREAD, START_SPREAD = 5.0, 1.2, 1.0
# a and ρ to begin with.
STARTS = ((1.0, 0.02), (5.0, 0.2))
# Slopes are held within these factors of the usual one.
SLOPE_RANGE = (1e-3, 1e2)


def right_labels(
    codes: Vector,
    said: Vector,
    unknown: Vector,
    counts: Vector,
    doubtful: Vector,
    rule: LabelRule,
) -> tuple[Vector, float]:
    """P(right) of every label, and the log likelihood of all.

    Parameters
    ----------
    codes : ndarray of shape (l,)
        t, ±1.
    said : ndarray of shape (l,)
        x.
    unknown : ndarray of shape (l,)
        v.
    counts : ndarray of shape (l,)
        How many labels each stands for.
    doubtful : ndarray of shape (l,)
        The same, 0 for trusted labels.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.labels.flips import right_labels
    >>> from activehuber.labels.rule import LabelRule
    >>> said = np.r_[np.full(50, -0.9), np.full(50, 0.9)]
    >>> codes = np.sign(said)
    >>> codes[0] = 1.0
    >>> ones = np.ones(100)
    >>> right, _ = right_labels(codes, said, 0.0 * ones, ones, ones, LabelRule())
    >>> np.flatnonzero(right < 0.5).tolist()
    [0]
    """
    total = float(counts.sum())
    spread = float(np.sqrt(counts @ said**2 / total)) or 1.0
    x, v = (said - float(counts @ said) / total) / spread, unknown / spread**2
    everyone = float(doubtful.sum())
    pseudo = rule.right_labels + rule.right_share * everyone
    trusted = doubtful == 0.0
    up = float(counts @ (codes > 0.0))
    middle = float(logit((up + 1.0) / (total + 2.0)))

    def curve(z: Vector) -> tuple[Vector, Vector, Vector, float]:
        """P(true = label), its slopes in log a and b, and ρ."""
        slope, share = float(np.exp(z[0])), LARGEST_SHARE * float(expit(z[2]))
        shrink = 1.0 / np.sqrt(1.0 + np.pi * slope**2 * v / 8.0)
        line = slope * x + z[1]
        agrees = expit(codes * shrink * line)
        bend = codes * agrees * (1.0 - agrees)
        falls = np.pi * slope**2 * v / 8.0 * shrink**3
        return agrees, bend * (shrink * slope * x - falls * line), bend * shrink, share

    def minus_log(z: Vector) -> tuple[float, Vector]:
        agrees, by_slope, by_start, share = curve(z)
        own = np.where(trusted, 0.0, share)
        likely = np.maximum((1.0 - 2.0 * own) * agrees + own, 1e-300)
        pull = counts * (1.0 - 2.0 * own) / likely
        off = (z[0] - np.log(USUAL_SLOPE)) / SLOPE_SPREAD
        away = (z[1] - middle) / START_SPREAD
        level = float(counts @ np.log(likely)) - 0.5 * off**2 - 0.5 * away**2
        level += rule.wrong_labels * np.log(share) + pseudo * np.log1p(-share)
        by_share = float((counts * ~trusted / likely) @ (1.0 - 2.0 * agrees))
        by_share += rule.wrong_labels / share - pseudo / (1.0 - share)
        slopes = [
            pull @ by_slope - off / SLOPE_SPREAD,
            pull @ by_start - away / START_SPREAD,
            by_share * share * (1.0 - share / LARGEST_SHARE),
        ]
        return -level / total, -np.array(slopes) / total

    low, high = np.log(SLOPE_RANGE) + np.log(USUAL_SLOPE)
    bounds = [(low, high), (-50.0, 50.0), (-30.0, 30.0)]
    starts = ([np.log(slope), middle, logit(s / LARGEST_SHARE)] for slope, s in STARTS)
    how = {"jac": True, "method": "L-BFGS-B", "bounds": bounds}
    ends = [minimize(minus_log, start, **how) for start in starts]
    best = min(ends, key=lambda end: float(end.fun))
    agrees, _, _, share = curve(best.x)
    right = (1.0 - share) * agrees / np.maximum((1.0 - 2.0 * share) * agrees + share, 1e-300)
    return np.where(trusted, 1.0, np.minimum(right, 1.0)), -total * float(best.fun)
