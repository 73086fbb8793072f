"""One model of what a wrong label is: the probability that each label is right.

Leave-one-out errors e_i and the prior variance q_i that the other labels leave at a row (see
`solver.leave_one_out`) come from a fit to the labels held for right. A label is right or wrong,

    right:  e_i ~ t_ν(0, h_i) ,   h_i = min(σ² (q_i + missing_i)/m, v) + σ² g_i² m_i/m + δ²/12 ,
    wrong:  y_i ~ t_1(c, s)  whatever its row,   with probability π ,

m = 2Sλ the ridge of one unit of weight. Ignorance is part of the scale: what the other labels
and the landmarks leave open, the growth of noise with the level, g = exp(β asinh(ŷ/s_y)), and
the rounding of labels to a grid of step δ. Ignorance of a row is never more than the variance v
of right labels: one of which nothing is known is expected to be like the others, so an absurd
label is absurd there too.

c, s, β and π are the likeliest ones given the probabilities, which follow from them by Bayes.
σ is not: likelihood prefers to call a third of the labels wrong where noise is merely peaked.
It matches the central half of the errors instead, as a median does, of the share 1 − π that is
right:

    median |e|/√h  =  σ T⁻¹(½ + ¼/(1 − π)) ,   T the distribution function of t_ν .
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, stdtrit

from activehuber._typing import Mask, Vector
from activehuber.labels import flips
from activehuber.labels.error_scale import ErrorScale
from activehuber.labels.rule import LabelRule
from activehuber.numerics.linalg import BreakdownError
from activehuber.numerics.robust import weighted_median, weighted_quantile
from activehuber.solver.leave_one_out import LeaveOneOut, units

# Noise may be this small a share of the scale of the labels before it is taken to be zero.
NOISE_FLOOR = 1e-3
# Turns of the iteration between probabilities and parameters, and those in which β moves.
TURNS = 20
GROWTH_TURNS = (2, 6)
# The exponents β that are tried.
EXPONENTS = np.arange(-12, 13) / 8.0
# No more of the right labels than this lie inside the median of all.
MOST_CENTRAL = 0.95
# Where the rows take less than this share off the size of the errors of a constant, a label is
# wrong only outside of what labels are anywhere: σ then matches so many errors.
LEAST_EXPLAINED, NEARLY_ALL = 0.05, 0.9
# Errors whose squares doubles cannot hold.
FAR_TOO_LARGE = 1e150
# Errors beyond so many times the usual size count no more in `losses`.
FARTHEST = 60.0


@dataclass(frozen=True)
class LabelPrior:
    """What is known of the labels before any fit.

    Attributes
    ----------
    y : ndarray of shape (l,)
        Labels, measured from their centre: the median, or 0 without an intercept.
    counts : ndarray of shape (l,)
        How many labels each stands for: its weight, unless weights are small.
    trusted : ndarray of shape (l,), bool
        Right by assumption, and not counted in the share of wrong ones.
    spread : float
        s_y, their robust scale.
    step : float
        δ, the grid on which most labels lie; 0 if they do not.
    common : ndarray of shape (l,), bool
        Labels of a value that more than half of them have, such as no visit to a doctor: right
        anywhere, and of no use to tell the scale of the noise.
    two_values : (float, float) or None
        The values of the labels, if there are just two: a wrong one is the other then.
    """

    y: Vector
    counts: Vector
    trusted: Mask
    spread: float
    step: float
    common: Mask
    two_values: tuple[float, float] | None = None


def prior_of(y: Vector, weights: Vector, trusted: Mask, spread: float) -> LabelPrior:
    """See `LabelPrior`."""
    total = units(weights, np.ones(len(weights), dtype=bool))
    counts = weights * (total / weights.sum())
    values = np.unique(y)
    if len(values) == 2:
        neither = np.zeros(len(y), dtype=bool)
        two = (float(values[0]), float(values[1]))
        return LabelPrior(y, counts, trusted, spread, 0.0, neither, two)
    middle = weighted_median(y, weights)
    common = y == middle
    if counts[common].sum() <= 0.5 * total:
        common = np.zeros(len(y), dtype=bool)
    return LabelPrior(y, counts, trusted, spread, _step(y, counts), common)


def _step(y: Vector, counts: Vector) -> float:
    """The usual distance between values that occur again, if most labels have such a value."""
    values, place = np.unique(y, return_inverse=True)
    times = np.bincount(place, weights=counts).astype(np.float64)
    again = times > 1.0 + 1e-9
    if times[again].sum() <= 0.5 * times.sum() or np.count_nonzero(again) < 2:
        return 0.0
    gaps = np.diff(values[again])
    nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    return weighted_median(nearest, times[again])


@dataclass(frozen=True)
class Judgement:
    """What the model says of l labels.

    Attributes
    ----------
    right : ndarray of shape (l,)
        The probability that the label is right, given the others; 1 where it is trusted.
    scale : ErrorScale
        By how much right labels are off.
    known : ndarray of shape (l,), bool
        Rows of which the other labels say enough to judge one there.
    errors : ndarray of shape (l,)
        e.
    level : float
        Log likelihood of all labels and parameters.
    """

    right: Vector
    scale: ErrorScale
    known: Mask
    errors: Vector
    level: float

    def kept(self, rule: LabelRule, known: LabelPrior) -> Mask:
        """Labels to keep: at least half of them, the likeliest ones, and some of each class."""
        kept, counts = 1.0 - self.right <= rule.removal, known.counts
        if counts[kept].sum() < 0.5 * counts.sum():
            kept = self.right >= weighted_median(self.right, counts)
        for value in known.two_values or ():
            own = known.y == value
            if not np.any(kept & own):
                likeliest = weighted_median(self.right[own], counts[own])
                kept = kept | (own & (self.right >= likeliest))
        return kept

    def quality(self, kept: Mask, trusted: Mask) -> Vector:
        """The probability that a label is right: on either side of ½ as was decided."""
        scores = np.where(kept, np.maximum(self.right, 0.5), np.minimum(self.right, 0.499))
        return np.where(trusted, 1.0, scores)

    def times(self, unit: float) -> Judgement:
        """The same with labels measured in units of 1/`unit`."""
        scale = self.scale.in_units(unit, unit * self.scale.centre)
        return replace(self, scale=scale, errors=unit * self.errors)


def losses(errors: Vector, scale: float) -> Vector:
    """log(1 + (e/scale)²): how badly every label, right or wrong, is predicted.

    No label counts for more than a constant. It keeps the choice among fits honest: one that
    calls labels wrong to fit the rest closely pays for those it predicts no longer.
    """
    sizes = np.minimum(np.abs(errors) / scale, FARTHEST)
    return np.log1p(sizes**2)


def log_t(squares: Vector, tail: float, variance: Vector | float) -> Vector:
    """Log density of Student's t with `tail` degrees of freedom and scale² `variance`."""
    constant = gammaln(0.5 * (tail + 1.0)) - gammaln(0.5 * tail)
    power = 0.5 * (tail + 1.0) * np.log1p(squares / (tail * variance))
    return constant - 0.5 * np.log(tail * np.pi * variance) - power


@dataclass
class _Parameters:
    sigma: float
    share: float  # π
    centre: float  # c
    width: float  # s
    exponent: float  # β
    growth: Vector  # g²
    variance: Vector  # of the other right labels


def judge(
    loo: LeaveOneOut,
    known: LabelPrior,
    rule: LabelRule,
    ridge: float,
    *,
    of_start: bool = False,
) -> Judgement:
    """Every label judged by leave-one-out figures of one fit.

    Parameters
    ----------
    ridge : float
        m = 2Sλ.
    of_start : bool
        Whether the fit is but a start of a search, which need not explain anything yet.
    """
    if known.two_values is not None:
        return _judge_flips(loo, known, rule, ridge)
    return _MixtureModel(loo, known, rule, ridge).judge(of_start)


def _judge_flips(
    loo: LeaveOneOut, known: LabelPrior, rule: LabelRule, ridge: float
) -> Judgement:
    """Labels of two values, by `labels.flips`."""
    low, high = known.two_values or (0.0, 0.0)
    half, errors = 0.5 * (high - low), loo.residuals
    codes = np.where(known.y == high, 1.0, -1.0)
    shape = (loo.variance + loo.missing + loo.ridge) / ridge
    # Errors of flipped labels count as those that they would have had.
    sizes = np.minimum(np.abs(errors), np.abs(errors - 2.0 * half * codes))
    variance = float(known.counts @ (sizes**2 / shape)) / float(known.counts.sum())
    sigma = max(np.sqrt(variance), NOISE_FLOOR * known.spread)
    # What is unknown of a code is at most all of it.
    unknown = np.minimum(sigma**2 * (loo.variance + loo.missing) / ridge, half**2)
    right, level = flips.right_labels(
        codes,
        codes - errors / half,
        unknown / half**2,
        known.counts,
        known.counts * ~known.trusted,
        rule,
    )
    left_open = (loo.variance + loo.missing) / ridge
    middle = weighted_median(left_open, known.counts)
    scale = ErrorScale(float(sigma), half**2, usual_open=middle)
    return Judgement(right, scale, scale.can_judge(left_open), errors, level)


class _MixtureModel:
    def __init__(
        self, loo: LeaveOneOut, known: LabelPrior, rule: LabelRule, ridge: float
    ) -> None:
        self.errors, self.known, self.rule = loo.residuals, known, rule
        self.open = (loo.variance + loo.missing) / ridge
        self.noise = loo.ridge / ridge
        self.squares = self.errors**2
        self.rounding = known.step**2 / 12.0
        self.total = float(known.counts.sum())
        self.central = 0.5
        self.certain = known.trusted | known.common
        self.doubtful = known.counts * ~known.trusted
        everyone = float(self.doubtful.sum())
        self.usual_right = rule.right_labels + rule.right_share * everyone
        # What tells the scale: not the labels of a value that most of them have.
        self.telling = known.counts * ~known.common
        if not np.any(self.telling > 0.0):
            self.telling = known.counts
        level = np.arcsinh((known.y - self.errors) / known.spread)
        self.middle = float(known.counts @ level) / self.total
        self.level = level - self.middle
        spread = known.spread
        self.now = _Parameters(
            spread, 0.1, 0.0, 2.0 * spread, 0.0, np.ones_like(level), spread**2 + 0.0 * level
        )

    def judge(self, of_start: bool) -> Judgement:
        first = replace(self.now)
        right, level = self._settle()
        if not (of_start or self._explains(right)):
            self.now, self.central = first, NEARLY_ALL
            right, level = self._settle()
        now, rule = self.now, self.rule
        level += rule.wrong_labels * np.log(now.share)
        level += self.usual_right * np.log1p(-now.share)
        level -= 0.5 * (now.exponent / rule.growth) ** 2
        used = self.known.counts * right
        own = float(used @ self.now.variance) / float(used.sum()) if used.any() else 0.0
        scale = ErrorScale(
            sigma=now.sigma,
            variance=own or self.known.spread**2,
            exponent=now.exponent,
            middle=self.middle,
            spread=self.known.spread,
            lowest=float(self.level.min()),
            highest=float(self.level.max()),
            rounding=self.rounding,
            usual_open=weighted_median(self.open, self.known.counts),
        )
        return Judgement(right, scale, scale.can_judge(self.open), self.errors, float(level))

    def _settle(self) -> tuple[Vector, float]:
        """Probabilities and parameters that go with each other."""
        for turn in range(TURNS):
            self._match_scale()
            right, _ = self._probabilities()
            before = self.now.share
            self._update(right)
            if turn in GROWTH_TURNS:
                self._grow(right)
            if turn > max(GROWTH_TURNS) and abs(self.now.share - before) < 1e-4:
                break
        self._match_scale()
        return self._probabilities()

    def _explains(self, right: Vector) -> bool:
        """Whether the rows say more of the labels than the median of the right ones does.

        Of right labels in the median, and of all on average: of those held for right alone
        they always do, since these were kept for being near.
        """
        used = self.telling * right
        if not np.any(used > 0.0):
            return True
        off = np.abs(self.known.y - weighted_median(self.known.y, used))
        missed, most = np.abs(self.errors), 1.0 - LEAST_EXPLAINED
        gained = float(self.telling @ (off - missed)) / float(self.telling.sum())
        usual = weighted_median(missed, used) <= most * weighted_median(off, used)
        return usual and gained >= LEAST_EXPLAINED * weighted_median(off, self.telling)

    def _shape(self, growth: Vector) -> Vector:
        """h/σ² but for rounding."""
        most = self.now.variance / self.now.sigma**2
        return np.minimum(self.open, most) + growth * self.noise

    def _variances(self) -> Vector:
        return self.now.sigma**2 * self._shape(self.now.growth) + self.rounding

    def _match_scale(self) -> None:
        """σ by the central half of the errors, or by nearly all of them."""
        inside = min(self.central / (1.0 - self.now.share), MOST_CENTRAL)
        few = 1.0 + 5.0 / self.total  # a median of few is often too small by chance
        for _ in range(2):  # what is open is bounded in units of σ
            sizes = np.abs(self.errors) / np.sqrt(self._shape(self.now.growth))
            middle = weighted_quantile(sizes, self.telling, self.central)
            usual = float(stdtrit(self.rule.right_tail, 0.5 + 0.5 * inside))
            sigma = few * middle / usual
            self.now.sigma = max(sigma, NOISE_FLOOR * self.known.spread)
            if self.now.sigma > FAR_TOO_LARGE:
                raise BreakdownError("errors are so large that their squares overflow")

    def _probabilities(self) -> tuple[Vector, float]:
        """P(right) of every label, and the log likelihood of all."""
        now, rule = self.now, self.rule
        right = np.log1p(-now.share) + log_t(self.squares, rule.right_tail, self._variances())
        far = (self.known.y - now.centre) ** 2
        wrong = np.log(now.share) + log_t(far, rule.wrong_tail, now.width**2)
        both = np.logaddexp(right, wrong)
        counted = np.where(self.certain, right, both)
        level = float(self.known.counts @ counted)
        return np.where(self.certain, 1.0, np.exp(right - both)), level

    def _update(self, right: Vector) -> None:
        """π, c, s and the variance of right labels."""
        now, rule, known = self.now, self.rule, self.known
        wrong = self.doubtful * (1.0 - right)
        pseudo = rule.wrong_labels + self.usual_right
        share = (float(wrong.sum()) + rule.wrong_labels) / (float(self.doubtful.sum()) + pseudo)
        now.share = min(share, 0.5)
        offsets = (known.y - now.centre) / now.width
        pull = wrong * (rule.wrong_tail + 1.0) / (rule.wrong_tail + offsets**2)
        now.centre = float(pull @ known.y) / (float(pull.sum()) + rule.usual_labels)
        around = float(pull @ (known.y - now.centre) ** 2)
        around += rule.usual_labels * known.spread**2
        width = np.sqrt(around / (float(wrong.sum()) + rule.usual_labels))
        now.width = max(float(width), known.spread, now.sigma)
        used = known.counts - wrong
        all_used = float(used.sum())
        if all_used <= 1e-9 * self.total:  # no label is like another: the first guess stays
            return
        mean = float(used @ known.y) / all_used
        squares = (known.y - mean) ** 2
        own = used * np.minimum(1.0, 1.0 / known.counts)  # no label speaks for itself
        now.variance = (float(used @ squares) - own * squares) / np.maximum(all_used - own, 1.0)

    def _grow(self, right: Vector) -> None:
        """β by the likelihood of the labels held for right, its σ matched to them."""
        now, rule = self.now, self.rule
        used = self.telling * right
        if float(used.sum()) <= 1e-9 * self.total:  # nothing to tell it by
            return
        growth = np.exp(2.0 * EXPONENTS[:, None] * self.level)
        shape = self._shape(growth)
        variance = np.full((len(EXPONENTS), 1), now.sigma**2)
        least, total = (NOISE_FLOOR * self.known.spread) ** 2, float(used.sum())
        for _ in range(2):
            sizes = self.squares / shape
            pull = (rule.right_tail + 1.0) / (rule.right_tail + sizes / variance)
            variance = np.maximum((pull * sizes) @ used / total, least)[:, None]
        levels = log_t(self.squares, rule.right_tail, variance * shape) @ used
        best = int(np.argmax(levels - 0.5 * (EXPONENTS / rule.growth) ** 2))
        now.exponent, now.growth = float(EXPONENTS[best]), growth[best]
