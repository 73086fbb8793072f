"""Flipped labels of two classes: where to cut, how many there are, what is probable.

Labels are ±1. ρ₊ = P(given −1 | true +1) and ρ₋ = P(given +1 | true −1), so a row whose clean
probability of +1 is η is given +1 with probability ρ₋ + (1 − ρ₊ − ρ₋) η.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, softmax

from activehuber._typing import Mask, Matrix, Vector

# Slopes of a calibration: above zero, so that probabilities keep the order of h, and below
# what makes exp overflow.
SLOPES = (1e-2, 1e2)
# The slope of p = (1 + h)/2, which least squares aims at, on the scale of log-odds at h = 0.
FIRST_SLOPE = 2.0
# Rows on either side that count as certain, as a share of the labels given to that side.
# Fewer would not be better: a contrary label pulls down its neighbours but not its own h, so
# the very top is full of them.
CERTAIN = 0.5
# Estimated rates add up to this at most: at 1 the labels would say nothing.
LARGEST_SUM = 0.9


def population_cut(rho_pos: float, rho_neg: float, threshold: float) -> float:
    """h₀, the value of the Huber fit where both classes are equally probable when clean.

    There the label given is +1 with p₀ = (1 + ρ₋ − ρ₊)/2, and p₀ H_ξ(1 − h) +
    (1 − p₀) H_ξ(−1 − h) is least at

        h₀ = sign(p₀ − ½) max(|2p₀ − 1|, 1 − ξ min(p₀, 1 − p₀)/max(p₀, 1 − p₀)).

    For ξ >= 2 that is ρ₋ − ρ₊; the smaller ξ, the nearer to ±1.

    Parameters
    ----------
    rho_pos, rho_neg : float
        ρ₊ and ρ₋, ρ₊ + ρ₋ < 1.
    threshold : float
        ξ.

    Returns
    -------
    float
        h₀, in (−1, 1).

    Examples
    --------
    >>> from activehuber.labels.noise_rates import population_cut
    >>> round(population_cut(0.3, 0.1, threshold=2.0), 10)
    -0.2
    >>> round(population_cut(0.3, 0.1, threshold=0.3), 10)
    -0.8
    """
    p = 0.5 * (1.0 + rho_neg - rho_pos)
    minor, major = min(p, 1.0 - p), max(p, 1.0 - p)
    return float(np.sign(p - 0.5) * max(major - minor, 1.0 - threshold * minor / major))


def estimate_rates(labels: Vector, left_out: Vector, weights: Vector) -> tuple[float, float]:
    """Both rates: the share of contrary labels among the rows that are most certain.

    As many rows as half the labels given +1 are taken from the top of h, those with −1
    among them make ρ₊; likewise from the bottom for ρ₋. A row's own label has no part in
    its h. Where the classes overlap even there, contrary labels are no flips: the estimate
    is then too high, by the error that cannot be avoided in those rows, and most so for a
    rare class. Flips and overlap cannot be told apart without knowing one of them.

    Parameters
    ----------
    labels : ndarray of shape (l,)
        ±1.
    left_out : ndarray of shape (l,)
        h of the fit without that label.
    weights : ndarray of shape (l,)

    Returns
    -------
    rho_pos, rho_neg : float
    """
    rates = []
    for side in (1.0, -1.0):
        order = np.argsort(-side * left_out, kind="stable")
        size = CERTAIN * float(weights[labels == side].sum())
        counted = np.diff(np.minimum(np.cumsum(weights[order]), size), prepend=0.0)
        rates.append(float(counted @ (labels[order] == -side)) / size)
    excess = max(1.0, sum(rates) / LARGEST_SUM)
    return rates[0] / excess, rates[1] / excess


def remaining_rates(
    labels: Vector, removed: Mask, weights: Vector, rates: tuple[float, float]
) -> tuple[float, float]:
    """The rates among the labels still in use, if the removed ones were flipped ones.

    n₊ true labels +1 make ρ₊ n₊ flipped ones, of which the removed labels −1 are taken off;
    likewise for −1. n₊ solves n₊ (1 − ρ₊ − ρ₋) = (labels given +1) − ρ₋ n. With more
    removed than were flipped, none remain.

    Parameters
    ----------
    labels : ndarray of shape (l,)
        ±1.
    removed : ndarray of shape (l,), bool
    weights : ndarray of shape (l,)
    rates : (float, float)
        (ρ₊, ρ₋) before labels were removed.
    """
    total = float(weights.sum())
    given = float(weights[labels > 0.0].sum())
    positive = float(np.clip((given - rates[1] * total) / (1.0 - sum(rates)), 0.0, total))
    remaining = []
    for side, size, rate in ((1.0, positive, rates[0]), (-1.0, total - positive, rates[1])):
        flipped = rate * size
        gone = min(flipped, float(weights[removed & (labels == -side)].sum()))
        remaining.append((flipped - gone) / (size - gone) if size > gone else 0.0)
    return remaining[0], remaining[1]


def clean_error(
    labels: Vector, decision: Vector, weights: Vector, rates: tuple[float, float]
) -> float:
    """The share of clean labels that sign(d) gets wrong: a mean over the labels given.

    A label y with error e ∈ {0, 1} of sign(d) adds ((1 − ρ₋ᵧ) e − ρᵧ (1 − e)) / (1 − ρ₊ − ρ₋),
    whose mean over flips is the error on the clean label (Natarajan et al., 2013, lemma 1).
    Without flips that is e itself.
    """
    own, other = np.where(labels[:, None] > 0.0, rates, rates[::-1]).T
    wrong = (decision > 0.0) != (labels > 0.0)
    losses = np.where(wrong, 1.0 - other, -own) / (1.0 - sum(rates))
    return float(np.average(losses, weights=weights))


@dataclass(frozen=True)
class Calibration:
    """Probability of +1: η(d) = expit(b₊ max(d, 0) + b₋ min(d, 0)), d = h − cut.

    Platt's logistic curve held at ½ where the prediction changes, with a slope for either
    side in return: probabilities never contradict predictions.
    """

    above: float
    below: float

    def __call__(self, decision: np.ndarray) -> Matrix:
        """Probabilities of the classes, shape (n, k).

        Two classes, d of shape (n,): 1 − η and η. More, d of shape (n, k): η of each class,
        divided by their sum.
        """
        odds = np.where(decision > 0.0, self.above, self.below) * decision
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        return softmax(log_expit(odds), axis=1)


def calibrate(
    labels: Vector, decision: Vector, weights: Vector, rates: tuple[float, float] = (0.0, 0.0)
) -> Calibration:
    """Slopes by maximum likelihood of the labels given.

    The probability of a label +1 is ρ₋ + (1 − ρ₊ − ρ₋) η(d), η that of `Calibration`.
    Targets are Platt's: (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2) in place of 1 and 0.

    Parameters
    ----------
    labels : ndarray of shape (l,)
        ±1.
    decision : ndarray of shape (l,)
        d of the fit without that label.
    weights : ndarray of shape (l,)
    rates : (float, float), default=(0, 0)
        (ρ₊, ρ₋).
    """
    positive = labels > 0.0
    n_pos, n_neg = float(weights[positive].sum()), float(weights[~positive].sum())
    targets = np.where(positive, (n_pos + 1.0) / (n_pos + 2.0), 1.0 / (n_neg + 2.0))
    sides = np.stack([np.maximum(decision, 0.0), np.minimum(decision, 0.0)])
    reach = 1.0 - sum(rates)

    def loss(slopes: Vector) -> tuple[float, Vector]:
        clean = expit(slopes @ sides)
        given = np.clip(rates[1] + reach * clean, 1e-15, 1.0 - 1e-15)
        value = targets * np.log(given) + (1.0 - targets) * np.log1p(-given)
        slope = (targets - given) / (given * (1.0 - given)) * reach * clean * (1.0 - clean)
        return -float(weights @ value), -sides @ (weights * slope)

    how = {"ftol": 1e-15, "gtol": 1e-8 * float(weights.sum())}
    first, bounds = np.full(2, FIRST_SLOPE), [SLOPES] * 2
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options=how)
    return Calibration(float(found.x[0]), float(found.x[1]))
