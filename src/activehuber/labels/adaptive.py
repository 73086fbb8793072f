"""The adaptive threshold: which labels are right, judged by leave-one-out errors.

Fit the labels held for right, judge all of them by `labels.mixture`, hold the likelier ones for
right, and so on until they stay. What that leads to depends on the start, and with many wrong
labels least squares is a bad one, so several are tried: points of the path in ξ, where far
labels pull less, and the labels at either end of the errors, in case wrong ones err to one
side. The ends are compared by what all labels say of them, kept or not, so that dropping never
pays by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.labels import mixture, thresholds
from activehuber.labels.error_scale import ErrorScale
from activehuber.labels.mixture import Judgement, LabelPrior
from activehuber.labels.refinement import Report, Trace, largest_residual
from activehuber.labels.rule import DEFAULT_RULE, LabelRule
from activehuber.numerics import robust
from activehuber.operators.protocol import Gram, Source
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.leave_one_out import (
    LeaveOneOut,
    leave_one_out,
    rough_leave_one_out,
    units,
)
from activehuber.solver.newton import Solution, solve

# Labels may be judged to so many binary digits of their scale: y and 1000 y differ by rounding
# alone, which must not decide.
LABEL_DIGITS = 32
# Rounds from one start.
ROUNDS = 12
# Points of the path to start from, each at this share of the median residual of the last one.
PATH_SHARES = (1.0, 0.3)
# Of more labels than this the starts are tried on some, and two ends taken to all.
SEARCH_LABELS = 500
# Of more labels than this, leave-one-out variances are taken once, where Q is approximated; and
# rounds end when fewer than this share of the labels change.
MANY_LABELS = 20_000
SETTLED = 1e-4
# Starts are also taken from fits with this ridge, beside a usual kernel value of 1: they hear
# most of the other labels.
WIDE_RIDGE = 0.1


def adaptive(
    problem: Problem,
    removal: float | None,
    trusted: Mask,
    max_iter: int,
    report: Report,
    rule: LabelRule = DEFAULT_RULE,
) -> Trace:
    """A threshold from the data: wrong labels go, the rest is fitted by least squares.

    Labels that are wrong with a probability above `removal` are dropped; with removal=None
    none is, and the fit is a Huber fit at 1.345 σ̂.
    """
    found = judge_labels(problem, trusted, rule.with_removal(removal))
    if found is None:
        solution = solve(problem, np.inf)
        threshold = largest_residual(problem, solution)
        report(threshold, int(problem.active.sum()))
        return Trace(problem, solution, threshold, [threshold], 1, least_squares=True)
    threshold = thresholds.EFFICIENT * found.judged.scale.sigma
    if removal is None:
        solution = solve(problem, threshold, max_iter=max_iter)
    else:
        problem = problem.using(found.kept)
        solution = solve(problem, np.inf, source=problem.gram.direct_source(problem.mu))
        threshold = max(threshold, largest_residual(problem, solution))
    report(threshold, int(problem.active.sum()))
    return Trace(
        problem,
        solution,
        threshold,
        [*found.history, threshold],
        found.steps + solution.n_iter,
        found.judged,
        least_squares=removal is not None,
        at_least=0.0 if removal is None else thresholds.EFFICIENT * found.judged.scale.sigma,
    )


@dataclass(frozen=True)
class JudgedLabels:
    """The end of a search for the labels to keep.

    Attributes
    ----------
    kept : ndarray of shape (l,), bool
    judged : Judgement
        By leave-one-out figures of the fit to them.
    history : list of float
        Thresholds on the way.
    steps : int
        Newton steps on the way.
    """

    kept: Mask
    judged: Judgement
    history: list[float]
    steps: int


def judge_labels(
    problem: Problem,
    trusted: Mask,
    rule: LabelRule,
    starts: Sequence[Mask] | None = None,
) -> JudgedLabels | None:
    """Which labels to keep; None if all are equal.

    Parameters
    ----------
    starts : sequence of ndarray of shape (l,), bool
        Labels to begin with, where these are known; else all starts are tried.
    """
    spread = robust.label_scale(problem.y, problem.weights)
    if spread == 0.0:
        return None
    rounded = replace(problem, y=rounded_labels(problem.y, spread))
    search = LabelSearch(rounded, rule, trusted)
    best = search.best_ends(starts)[0]
    history = [spread * level for level in search.history]
    return JudgedLabels(best.kept, best.judged.times(spread), history, search.steps)


def rounded_labels(y: Vector, scale: float) -> Vector:
    """Labels in units of a scale, to some binary digits."""
    step = 2.0**-LABEL_DIGITS
    return step * np.rint(y / scale / step) + 0.0  # there is no −0


def judge_fit(problem: Problem, loo: LeaveOneOut, trusted: Mask, rule: LabelRule) -> Judgement:
    """The labels judged by the leave-one-out figures of a fit that was made without judging."""
    known = problem_prior(problem, trusted)
    if known.spread == 0.0:
        alike = np.ones(len(problem.y))
        largest = float(np.max(np.abs(loo.residuals)))
        scale = ErrorScale(0.0, 0.0, rounding=largest**2)
        return Judgement(alike, scale, alike > 0.0, loo.residuals, 0.0)
    return mixture.judge(loo, known, rule, unit_ridge(problem))


def problem_prior(problem: Problem, trusted: Mask) -> LabelPrior:
    """What the labels say before any fit."""
    y, weights = problem.y, problem.weights
    centre = robust.weighted_median(y, weights) if problem.fit_intercept else 0.0
    spread = robust.label_scale(y, weights)
    return mixture.prior_of(y - centre, weights, trusted, spread)


def unit_ridge(problem: Problem) -> float:
    """m = 2Sλ, of a label that counts as one."""
    weights = problem.weights
    per_unit = units(weights, np.ones(len(weights), dtype=bool)) / float(weights.sum())
    return 2.0 * problem.alpha * problem.total_weight * per_unit


@dataclass(frozen=True, eq=False)
class End:
    """Where rounds from one start led: labels kept, and the judgement of their fit."""

    kept: Mask
    judged: Judgement


def ranked(ends: Iterable[End], counts: Vector) -> list[End]:
    """Those that predict all labels as well as the best, but for chance; the likeliest first.

    Labels may seem wrong because they were kept from saying otherwise: an end must predict all
    labels, right or wrong and each left out, no worse than the best by more than one standard
    error. Of those that do, the likelihood and the skill of all labels decide.
    """
    found = list(ends)
    sizes = [robust.weighted_median(np.abs(end.judged.errors), counts) for end in found]
    usual = robust.MAD_TO_SIGMA * min((s for s in sizes if s > 0.0), default=1.0)
    losses = [mixture.losses(end.judged.errors, usual) for end in found]
    total = float(counts.sum())
    best = min(losses, key=lambda loss: float(counts @ loss))
    fair = []
    for end, loss in zip(found, losses, strict=True):
        off = float(counts @ (loss - best)) / total
        spread = float(counts @ (loss - best - off) ** 2) / total
        if off <= np.sqrt(spread / total):
            fair.append((end.judged.level - float(counts @ loss), end))
    return [end for _, end in sorted(fair, key=lambda pair: pair[0], reverse=True)]


class LabelSearch:
    """Which labels to keep; μ = 2ℓλ is that of all labels throughout."""

    def __init__(self, problem: Problem, rule: LabelRule, trusted: Mask) -> None:
        self.problem, self.rule, self.trusted = problem, rule, trusted
        self.mu, self.ridge = problem.mu, unit_ridge(problem)
        self.prior = problem_prior(problem, trusted)
        self.is_large = is_large(problem)
        self.source: Source | None = None
        self.history: list[float] = []
        self.steps = 0
        self.known: dict[bytes, LeaveOneOut] = {}
        self.judged: dict[bytes, Judgement] = {}

    def best_ends(self, kept: Sequence[Mask] | None = None) -> list[End]:
        """Ends of all starts, or of those that are given, the best first."""
        border = self.problem.fit_intercept
        starts = self._from_some() if kept is None else None
        self.source = self.problem.gram.inverse_source(self.mu, border=border)
        if kept is not None:
            starts = [self.fit(each) for each in kept]
        starts = self.starts() if starts is None else starts
        ends: dict[bytes, End] = {}
        for start in starts:
            end = self.follow(start)
            ends.setdefault(end.kept.tobytes(), end)
        best, *others = ranked(ends.values(), self.prior.counts)
        # On a circle the last word was of a fit to others than those kept.
        known = next(iter(self.known.values())) if self.is_large else None
        judged = self._judge(best.kept.tobytes(), self.fit(best.kept, known))
        self.source = None  # the inverse is as large as the Gram matrix
        return [End(best.kept, judged), *others]

    def starts(self) -> Iterator[LeaveOneOut]:
        """Leave-one-out figures to begin with."""
        yield from self.at_own_ridge()
        usual = float(np.median(self.problem.gram.diagonal))
        factor = WIDE_RIDGE * usual / self.ridge
        if factor < 2.0:
            return
        wider = replace(self.problem, alpha=factor * self.problem.alpha)
        wide = LabelSearch(wider, self.rule, self.trusted)
        wide.source = wider.gram.inverse_source(wide.mu, border=wider.fit_intercept)
        for start in wide.at_own_ridge():
            judged = mixture.judge(start, wide.prior, self.rule, wide.ridge, of_start=True)
            yield self.fit(judged.kept(self.rule, self.prior) | self.trusted)

    def at_own_ridge(self) -> Iterator[LeaveOneOut]:
        """Starts from fits with the ridge of the problem."""
        everyone = np.ones(len(self.mu), dtype=bool)
        solution = solve(self.problem, np.inf, source=self.source)
        first = self._figures(solution, np.inf)
        self.known[everyone.tobytes()] = first
        yield first
        for share in PATH_SHARES:
            sizes = np.abs(self.problem.residuals(solution))
            threshold = share * robust.weighted_median(sizes, self.problem.weights)
            if threshold <= mixture.NOISE_FLOOR * self.prior.spread:
                break
            solution = solve(
                self.problem,
                threshold,
                source=self.source,
                start=solution,
                max_iter=newton.PATIENCE,
            )
            self.steps += solution.n_iter
            if units(self.problem.weights, solution.free) < 2.0:
                break
            self.history.append(threshold)
            yield self._figures(solution, threshold)
        # Copies of a row differ by rounding: they go the same way.
        errors, weights = (
            rounded_labels(first.residuals / first.inflation, 1.0),
            self.problem.weights,
        )
        share = self.rule.one_side
        yield self.fit(errors <= robust.weighted_quantile(errors, weights, share))
        yield self.fit(-errors <= robust.weighted_quantile(-errors, weights, share))

    def _from_some(self) -> Iterable[LeaveOneOut] | None:
        """Starts for many labels: the two best ends of a search of some, if these differ."""
        everyone = np.ones(len(self.mu), dtype=bool)
        if units(self.problem.weights, everyone) <= SEARCH_LABELS:
            return None
        rows, weights = some_labels(self.problem, SEARCH_LABELS)
        some = on_some(self.problem, rows, weights, self.problem.gram.subset(rows))
        search = LabelSearch(some, self.rule, self.trusted[rows])
        if search.prior.spread == 0.0:
            return None
        starts = []
        for end in search.best_ends()[:2]:
            solution = solve(some.using(end.kept), np.inf)
            self.steps += solution.n_iter
            v = np.zeros_like(self.problem.y)
            v[rows] = solution.v
            residuals = self.problem.y - solution.intercept - self.problem.gram.matvec(v)
            # What a fit leaves of labels that it has not seen are leave-one-out errors.
            nothing = np.zeros_like(residuals)
            ridge = self.mu / np.minimum(1.0, 1.0 / self.problem.weights)
            starts.append(LeaveOneOut(residuals, nothing, ridge, self.problem.gram.missing))
        self.history, self.steps = search.history, self.steps + search.steps
        return starts

    def follow(self, loo: LeaveOneOut) -> End:
        """Judge, fit what is kept, until that stays; on a circle the likeliest of it."""
        seen: set[bytes] = set()
        best: End | None = None
        before: Mask | None = None
        judged = mixture.judge(loo, self.prior, self.rule, self.ridge, of_start=True)
        for turn in range(ROUNDS):
            kept = judged.kept(self.rule, self.prior) | self.trusted
            # The first judgement is that of the start, which is no fit to kept labels.
            if turn and (best is None or judged.level > best.judged.level):
                best = End(kept, judged)
            key = kept.tobytes()
            few = SETTLED * len(kept) if self.is_large else 0.0
            if key in seen or (before is not None and np.sum(before != kept) < few):
                break
            seen.add(key)
            before = kept
            loo = self.fit(kept, loo if self.is_large and turn else None)
            judged = self._judge(key, loo)
        assert best is not None
        return best

    def _judge(self, key: bytes, loo: LeaveOneOut) -> Judgement:
        """All labels by the fit to some; several starts come by the same ones."""
        if key not in self.judged:
            self.judged[key] = mixture.judge(loo, self.prior, self.rule, self.ridge)
        return self.judged[key]

    def fit(self, kept: Mask, first: LeaveOneOut | None = None) -> LeaveOneOut:
        """Least squares on the kept labels at the μ of all; leave-one-out for all."""
        key = kept.tobytes()
        if key not in self.known:
            solution = solve(self.problem.using(kept), np.inf, source=self.source)
            self.known[key] = self._figures(solution, np.inf, first)
        return self.known[key]

    def _figures(
        self, solution: Solution, threshold: float, first: LeaveOneOut | None = None
    ) -> LeaveOneOut:
        residuals = self.problem.residuals(solution)
        # What is left out with a group depends on all of it: that has no rough form.
        if first is None or self.problem.groups is not None:
            return leave_one_out(self.problem, solution, residuals, self.mu, threshold)
        return rough_leave_one_out(first, solution, residuals, self.mu)


def some_labels(problem: Problem, most: int) -> tuple[np.ndarray, Vector]:
    """Up to so many labels and the weights they have there, whatever the order of the rows.

    Labels are ranked by size, equal ones by the mean of their rows of Q, and taken at even
    distances of weight. A label of weight k > 1 is so many labels, of which some are taken.
    """
    weights = problem.weights
    if units(weights, np.ones(len(weights), dtype=bool)) <= most:
        return np.arange(len(weights)), weights
    nearness = problem.gram.matvec(weights / weights.sum())
    order = np.lexsort((nearness, problem.y))
    ends = np.cumsum(weights[order])
    places = np.searchsorted(ends, (np.arange(most) + 0.5) * ends[-1] / most)
    rows, times = np.unique(order[places], return_counts=True)
    return rows, times * np.minimum(weights[rows], 1.0)


def on_some(problem: Problem, rows: np.ndarray, weights: Vector, gram: Gram) -> Problem:
    """The problem on some labels at the ridge of all of them."""
    some = replace(problem.on_some(rows, gram), weights=weights)
    return replace(some, alpha=problem.alpha * problem.total_weight / some.total_weight)


def is_large(problem: Problem) -> bool:
    """Whether there are so many labels that a pass over them counts."""
    return len(problem.y) > MANY_LABELS and problem.gram.coarse_step > 0
