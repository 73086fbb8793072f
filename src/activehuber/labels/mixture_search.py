"""Which labels are right, by the model of `labels.mixture`: threshold="mixture".

Fit the labels held for right, judge all of them by `labels.mixture`, hold the likelier ones for
right, and so on until they stay. What that leads to depends on the start, and with many wrong
labels least squares is a bad one, so several are tried: points of the path in ξ, where far
labels pull less, and the labels at either end of the errors, in case wrong ones err to one
side. The ends are compared by what all labels say of them, kept or not, so that dropping never
pays by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.labels import mixture
from activehuber.labels.adaptive import is_large, rounded_labels
from activehuber.labels.mixture import Judgement, LabelPrior
from activehuber.labels.refinement import Report, Trace, largest_residual
from activehuber.labels.rule import DEFAULT_RULE, MixtureRule
from activehuber.labels.widths import on_some, some_labels
from activehuber.numerics import robust
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.leave_one_out import (
    LeaveOneOut,
    leave_one_out,
    rough_leave_one_out,
    units,
)
from activehuber.solver.newton import Solution, solve

# Rounds from one start.
ROUNDS = 12
# Points of the path to start from, each at this share of the median residual of the last one.
PATH_SHARES = (1.0, 0.3)
# Of more labels than this the starts are tried on some, and two ends taken to all.
SEARCH_LABELS = 500
# Among very many labels rounds end when fewer than this share of them changes.
SETTLED = 1e-4
DEFAULT_MIXTURE = MixtureRule()


def by_mixture(
    problem: Problem, trusted: Mask, report: Report, rule: MixtureRule = DEFAULT_MIXTURE
) -> Trace:
    """Labels that are likely wrong go, the rest is fitted by least squares."""
    spread = robust.label_scale(problem.y, problem.weights)
    if spread == 0.0:
        solution = solve(problem, np.inf)
        threshold = largest_residual(problem, solution)
        report(threshold, int(problem.active.sum()))
        return Trace(problem, solution, threshold, [threshold], 1, least_squares=True)
    rounded = replace(problem, y=rounded_labels(problem.y, spread, DEFAULT_RULE))
    search = _MixtureSearch(rounded, rule, trusted)
    best = search.best_ends()[0]
    problem, judged = problem.using(best.kept), best.judged.times(spread)
    solution = solve(problem, np.inf, source=problem.gram.direct_source(problem.mu))
    threshold = max(judged.sigma, largest_residual(problem, solution))
    report(threshold, int(problem.active.sum()))
    return Trace(
        problem,
        solution,
        threshold,
        [*(spread * level for level in search.history), threshold],
        search.steps + solution.n_iter,
        judged,
        least_squares=True,
        at_least=judged.sigma,
    )


def problem_prior(problem: Problem, trusted: Mask) -> LabelPrior:
    """What the labels and the kernel say before any fit."""
    y, weights = problem.y, problem.weights
    centre = robust.weighted_median(y, weights) if problem.fit_intercept else 0.0
    spread = robust.label_scale(y, weights)
    return mixture.prior_of(y - centre, weights, trusted, spread)


def unit_ridge(problem: Problem) -> float:
    """m = 2Sλ, of a label that counts as one."""
    weights = problem.weights
    return 2.0 * problem.alpha * problem.total_weight * _per_unit(weights)


def _per_unit(weights: Vector) -> float:
    return units(weights, np.ones(len(weights), dtype=bool)) / float(weights.sum())


@dataclass(frozen=True, eq=False)
class _End:
    """Where rounds from one start led: labels kept, and the judgement of their fit."""

    kept: Mask
    judged: Judgement


class _MixtureSearch:
    """Which labels to keep; μ = 2ℓλ is that of all labels throughout."""

    def __init__(self, problem: Problem, rule: MixtureRule, trusted: Mask) -> None:
        self.problem, self.rule, self.trusted = problem, rule, trusted
        self.mu, self.ridge = problem.mu, unit_ridge(problem)
        self.prior = problem_prior(problem, trusted)
        self.is_large = is_large(problem, DEFAULT_RULE)
        self.history: list[float] = []
        self.steps = 0
        self.known: dict[bytes, LeaveOneOut] = {}

    def best_ends(self) -> list[_End]:
        """Ends of all starts, the best first."""
        border = self.problem.fit_intercept
        some_first = float(self.prior.counts.sum()) > SEARCH_LABELS
        starts = self._from_some() if some_first else None
        self.source = self.problem.gram.inverse_source(self.mu, border=border)
        starts = self._starts() if starts is None else starts
        ends: dict[bytes, _End] = {}
        for start in starts:
            end = self._follow(start)
            ends.setdefault(end.kept.tobytes(), end)
        del self.source  # the inverse is as large as the Gram matrix
        counts, found = self.prior.counts, list(ends.values())
        sizes = [robust.weighted_median(np.abs(e.judged.errors), counts) for e in found]
        usual = robust.MAD_TO_SIGMA * min((s for s in sizes if s > 0.0), default=1.0)

        def worth(end: _End) -> float:
            return end.judged.level + mixture.skill(end.judged.errors, counts, usual)

        return sorted(found, key=worth, reverse=True)

    def _starts(self) -> Iterator[LeaveOneOut]:
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
        errors, weights = first.residuals / first.inflation, self.problem.weights
        share = self.rule.one_side
        yield self._fit(errors <= robust.weighted_quantile(errors, weights, share))
        yield self._fit(-errors <= robust.weighted_quantile(-errors, weights, share))

    def _from_some(self) -> Iterable[LeaveOneOut]:
        """Starts for all labels: the two best ends of a search of some of them."""
        rows, weights = some_labels(self.problem, SEARCH_LABELS)
        some = on_some(self.problem, rows, weights, self.problem.gram.subset(rows))
        search = _MixtureSearch(some, self.rule, self.trusted[rows])
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

    def _follow(self, loo: LeaveOneOut) -> _End:
        """Judge, fit what is kept, until that stays; on a circle the likeliest of it."""
        seen: set[bytes] = set()
        best: _End | None = None
        before: Mask | None = None
        for turn in range(ROUNDS):
            judged = mixture.judge(loo, self.prior, self.rule, self.ridge)
            kept = judged.kept(self.rule, self.prior.counts) | self.trusted
            # The first judgement is that of the start, which is no fit to kept labels.
            if turn and (best is None or judged.level > best.judged.level):
                best = _End(kept, judged)
            key = kept.tobytes()
            few = SETTLED * len(kept) if self.is_large else 0.0
            if key in seen or (before is not None and np.sum(before != kept) < few):
                break
            seen.add(key)
            before = kept
            loo = self._fit(kept, loo if self.is_large and turn else None)
        assert best is not None
        return best

    def _fit(self, kept: Mask, first: LeaveOneOut | None = None) -> LeaveOneOut:
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
        if first is None:
            return leave_one_out(self.problem, solution, residuals, self.mu, threshold)
        return rough_leave_one_out(first, solution, residuals, self.mu)
