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

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.labels.rule import DEFAULT_RULE, LabelRule
from activehuber.numerics.robust import MAD_TO_SIGMA, weighted_median, weighted_quantile
from activehuber.solver.leave_one_out import LeaveOneOut, units

# Numbers that windows may hold at once.
WINDOW_NUMBERS = 20_000
# Quality of a dropped label at most.
HIGHEST_DROPPED = 0.499


def noise_scale(loo: LeaveOneOut, weights: Vector, among: Mask, floor: float) -> float:
    """σ̂ = 1.4826 (1 + 5/l) · median |e_i| / √(1 + q_i/μ_i), not below `floor`.

    A median of few is often too small by chance; the second factor (Rousseeuw and Leroy)
    keeps good labels when there are only a handful.
    """
    standardised = np.abs(loo.residuals) / loo.inflation
    middle = weighted_median(standardised[among], weights[among])
    return max(MAD_TO_SIGMA * (1.0 + 5.0 / units(weights, among)) * middle, floor)


# --- rules for ξ ------------------------------------------------------------------------


def madn(residuals: Vector, weights: Vector, rule: LabelRule = DEFAULT_RULE) -> float:
    """ξ = 1.345 MADN(r): close to the mean, with half of the labels as breakdown point.

    Use it when most noise is Gaussian and bad labels are to be bound, not dropped.

    Parameters
    ----------
    residuals, weights : ndarray of shape (l,)
    rule : LabelRule, optional

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
    return rule.efficient * MAD_TO_SIGMA * weighted_median(deviations, weights)


def quantile(residuals: Vector, weights: Vector, rule: LabelRule = DEFAULT_RULE) -> float:
    """ξ = the 0.9 quantile of |r|: one label in ten is bound, the others count as in a mean.

    Use it when about so many labels are bad, whatever their size.

    Parameters
    ----------
    residuals, weights : ndarray of shape (l,)
    rule : LabelRule, optional

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
    return weighted_quantile(np.abs(residuals), weights, rule.inside)


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


@dataclass(frozen=True)
class Ground:
    """What is known of the labels before any fit.

    Attributes
    ----------
    y, weights : ndarray of shape (l,)
    centre : float
        Their median, 0 without an intercept.
    spread : float
        s_y, their robust scale.
    mean_variance : float
        K̄, the mean prior variance.
    """

    y: Vector
    weights: Vector
    centre: float
    spread: float
    mean_variance: float


@dataclass(frozen=True)
class RowScales:
    """The scale that |e_i| has for a good label of row i, for any noise scale σ̂.

        scale_i² = σ̂² g_i² (1 + q_i/μ_i) + (q_i/K̄)² (s_y²/4 + ŷ_i²)

    The first term is noise and its effect on the prediction, g the growth of errors at the
    level of the row. The second is what rows with few neighbours cannot know: where the other
    labels leave a share q/K̄ of the prior variance, the prediction ŷ_i (measured from the
    centre) is off by such a share of itself.

    Attributes
    ----------
    noise : ndarray of shape (l,)
        g √(1 + q/μ).
    unknown : ndarray of shape (l,)
        The root of the second term.
    """

    noise: Vector
    unknown: Vector

    def at(self, sigma: float) -> Vector:
        """The scales at σ̂, shape (l,)."""
        return np.hypot(sigma * self.noise, self.unknown)

    def without_excuse(self) -> RowScales:
        """Those of noise alone: a row of which little is known is no excuse."""
        return replace(self, unknown=np.zeros_like(self.unknown))


def row_scales(loo: LeaveOneOut, ground: Ground, rule: LabelRule) -> RowScales:
    """See `RowScales`."""
    predicted = ground.y - loo.residuals - ground.centre
    inflation = loo.inflation
    errors = loo.residuals / inflation
    noise = inflation * growth_along(predicted, errors, ground.weights, rule)
    if ground.mean_variance <= 0.0:
        return RowScales(noise, np.zeros_like(noise))
    share = (loo.variance + loo.missing) / ground.mean_variance
    return RowScales(noise, share * np.hypot(0.5 * ground.spread, predicted))


def growth_along(
    level: Vector,
    errors: Vector,
    weights: Vector,
    rule: LabelRule,
    *,
    most_at_once: int = WINDOW_NUMBERS,
) -> Vector:
    """By how much errors are larger than usual at rows of a similar level, shape (l,), >= 1.

    Rows are ranked by level; a window of a share of their weight (and of some rows at least)
    slides over the ranks, and between its stops the growth is interpolated by level.
    """
    total = float(weights.sum())
    unit = total / units(weights, np.ones(len(weights), dtype=bool))
    width = min(total, max(rule.window * total, rule.window_rows * unit))
    order = np.lexsort((np.abs(errors), level))  # ties must not depend on the order of rows
    ends = np.cumsum(weights[order])
    starts, sizes, ranked = ends - weights[order], np.abs(errors[order]), level[order]
    centres = np.linspace(0.5 * width, total - 0.5 * width, rule.window_stops)
    stops = ranked[np.minimum(np.searchsorted(ends, centres), len(ranked) - 1)]
    low, high = centres[:, None] - 0.5 * width, centres[:, None] + 0.5 * width
    # How much of each row's weight lies in each window, rows from small to large errors: one
    # sort serves all windows.
    by_size = np.argsort(sizes, kind="stable")
    # All windows at once while that is small, else one after the other.
    at_once = rule.window_stops if len(level) <= most_at_once else 1
    places = []
    for first in range(0, rule.window_stops, at_once):
        here = slice(first, first + at_once)
        inside = np.minimum(ends[by_size], high[here]) - np.maximum(starts[by_size], low[here])
        cumulated = np.cumsum(np.maximum(inside, 0.0), axis=1)
        reached = cumulated >= rule.low_share * cumulated[:, -1:] * (1.0 - 1e-12)
        places.append(np.argmax(reached, axis=1))
    local = sizes[by_size][np.concatenate(places)]
    usual = weighted_quantile(sizes, weights[order], rule.low_share)
    if usual == 0.0:
        return np.ones_like(level)
    return np.maximum(1.0, rule.growth_discount * np.interp(level, stops, local) / usual)


def cuts(errors: Vector, scales: Vector, weights: Vector, rule: LabelRule) -> Vector:
    """How far |e_i| may go: `removal` times the scale of the row, or less among many bad ones.

    See `even_odds`.
    """
    return scales * even_odds(share_of(errors, scales), weights, rule)


def scale_of_most(
    loo: LeaveOneOut, scales: RowScales, weights: Vector, rule: LabelRule, floor: float
) -> float:
    """σ̂ of the labels that are not far beyond their cuts.

    A fifth of bad labels make the median of all |e| too large by a third. Those beyond
    doubt are put aside, and again with the scale that is left; those near the cut
    stay, or good labels would go one after the other.
    """
    among = np.ones(len(weights), dtype=bool)
    sigma = noise_scale(loo, weights, among, floor)
    for _ in range(rule.scale_rounds):
        limits = cuts(loo.residuals, scales.at(sigma), weights, rule)
        near = share_of(loo.residuals, limits) <= rule.beyond_doubt
        if np.array_equal(near, among) or weights[near].sum() < 0.5 * weights.sum():
            break
        among = near
        sigma = noise_scale(loo, weights, among, floor)
    return sigma


def even_odds(ratios: Vector, weights: Vector, rule: LabelRule) -> float:
    """The |e|/scale from which a label is more likely bad than good, at most `removal`.

    Good labels are Gaussian. Bad ones, of share π, are spread evenly up to twice the median
    of those beyond `removal`, T. The odds are even at the t with

        (1 − π) φ(t) = π / (2T) .

    Few labels beyond leave `removal` as it is; a fifth of them bring 3.5 down to about 2.6.
    """
    beyond = ratios > rule.removal
    share = float(weights[beyond].sum() / weights.sum())
    if share == 0.0 or share >= 0.5:
        return rule.removal
    reach = 2.0 * weighted_median(ratios[beyond], weights[beyond])
    odds = (1.0 - share) / share * 2.0 * reach / np.sqrt(2.0 * np.pi)
    even = max(np.sqrt(2.0 * np.log(max(odds, 1.0))), rule.least_cut)
    return float(min(rule.removal, even))


def share_of(errors: Vector, limits: Vector) -> Vector:
    """|errors| / limits, 0 where the error is 0 whatever the limit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(errors == 0.0, 0.0, np.abs(errors) / limits)


def quality(errors: Vector, cuts: Vector, kept: Mask, trusted: Mask) -> Vector:
    """Label quality in [0, 1]: q(x) = 1/(1 + x²) of x = |e|/cut, so q(1) = ½.

    Kept labels lie at or above ½ and dropped ones below. Where the cut that decided is
    not the one given here (a fixed threshold drops nothing; refinements go by in-sample
    residuals), all cuts are widened by one factor to hold every kept label, trusted ones
    aside, and no dropped label is put above 0.499, so that it stays below ½ with the few
    digits of a table.
    """
    ratio = share_of(errors, cuts)
    widest = np.max(ratio[kept & ~trusted & np.isfinite(ratio)], initial=1.0)
    scores = 1.0 / (1.0 + (ratio / widest) ** 2)
    scores[kept] = np.maximum(scores[kept], 0.5)
    scores[~kept] = np.minimum(scores[~kept], HIGHEST_DROPPED)
    return scores
