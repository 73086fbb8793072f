"""The adaptive threshold: which labels to keep, judged by leave-one-out residuals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.labels import group_support, thresholds, widths
from activehuber.labels.group_support import Dropped
from activehuber.labels.refinement import JudgedLabels, Report, Trace, largest_residual
from activehuber.labels.rule import DEFAULT_RULE, LabelRule
from activehuber.labels.thresholds import Ground, RowScales
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.leave_one_out import (
    LeaveOneOut,
    leave_one_out,
    rough_leave_one_out,
    units,
)
from activehuber.solver.newton import Solution, solve
from activehuber.solver.wider import WiderKernels


def adaptive(
    problem: Problem,
    removal: float | None,
    trusted: Mask,
    max_iter: int,
    report: Report,
    wider: WiderKernels | None = None,
    rule: LabelRule = DEFAULT_RULE,
) -> Trace:
    """A threshold from the data, without scale: see `_AdaptiveSearch`.

    Labels whose leave-one-out residual exceeds `removal` times the scale of their row are
    dropped and the rest is fitted by least squares; with removal=None none is dropped and
    the fit is a Huber fit at 1.345 σ̂. With `wider` labels are judged at the width that they
    speak for (`widths`); the fit has its own in any case.
    """
    spread = robust.label_scale(problem.y, problem.weights)
    if spread == 0.0:
        solution = solve(problem, np.inf)
        threshold = largest_residual(problem, solution)
        report(threshold, int(problem.active.sum()))
        return Trace(problem, solution, threshold, [threshold], 1, least_squares=True)
    rounded = replace(problem, y=rounded_labels(problem.y, spread, rule))
    search = _searched(rounded, rule.with_removal(removal), trusted, wider)
    judged, at_least = search.judged.times(spread), 0.0
    if removal is None:
        threshold = rule.efficient * judged.sigma
        solution = solve(problem, threshold, max_iter=max_iter)
    else:
        problem = problem.using(judged.kept)
        solution = solve(problem, np.inf, source=problem.gram.direct_source(problem.mu))
        at_least = removal * judged.sigma
        threshold = max(at_least, largest_residual(problem, solution))
    report(threshold, int(problem.active.sum()))
    return Trace(
        problem,
        solution,
        threshold,
        [*(spread * level for level in search.history), threshold],
        search.steps + solution.n_iter,
        judged,
        least_squares=removal is not None,
        at_least=at_least,
    )


def rounded_labels(y: Vector, scale: float, rule: LabelRule) -> Vector:
    """Labels in units of a scale, to some binary digits.

    y and 1000 y differ there by rounding alone, which must not decide what is said of them.
    """
    step = 2.0**-rule.label_digits
    return step * np.rint(y / scale / step) + 0.0  # there is no −0


def _searched(
    problem: Problem, rule: LabelRule, trusted: Mask, wider: WiderKernels | None
) -> _AdaptiveSearch:
    """A search that has been run, at the width that labels speak for or at that of the fit.

    Where many labels are wrong, noise without end explains them too, best of all with a wide
    kernel. So if that finds nothing, the width of the fit has the last word.
    """
    if wider is not None:
        at_width = _at_likeliest_width(problem, rule, trusted, wider)
        try:
            if at_width is not problem:
                search = _AdaptiveSearch(at_width, rule, trusted, quick=True)
                found = np.average(~search.run().kept, weights=problem.weights)
                if found >= rule.found_share:
                    return search
        except BreakdownError:
            pass  # too wide for double precision
    search = _AdaptiveSearch(problem, rule, trusted)
    search.run()
    return search


def _at_likeliest_width(
    problem: Problem, rule: LabelRule, trusted: Mask, wider: WiderKernels
) -> Problem:
    """The problem at the width that labels which are not in doubt speak for."""
    everyone = np.ones(len(problem.y), dtype=bool)
    if is_large(problem, rule) or units(problem.weights, everyone) < rule.width_fewest:
        return problem
    rows, weights = widths.some_labels(problem, rule.width_most)
    at = {
        factor: widths.on_some(problem, rows, weights, wider.gram(factor, rows))
        for factor in rule.width_factors
    }
    try:
        search = _AdaptiveSearch(at[min(at)], rule, trusted[rows])
        kept = search.first_look()
    except BreakdownError:
        return problem
    factor = widths.likeliest(at, kept, search.floor)
    return problem if factor == 1.0 else replace(problem, gram=wider.gram(factor))


@dataclass(eq=False)
class _Candidate:
    """A point of the search with the leave-one-out figures of its fit.

    Attributes
    ----------
    loo : LeaveOneOut
    score : float
        Mean of the smaller half of the squared standardised errors.
    energy : float
        yᵀv; of a least-squares fit y_Sᵀ A_SS⁻¹ y_S, centred.
    scales : (RowScales, float) or None
        Of the rows and of the noise, once they have been asked for.
    """

    loo: LeaveOneOut
    score: float
    energy: float
    scales: tuple[RowScales, float] | None = None


class _AdaptiveSearch:
    """Which labels to keep, and the noise scale, from leave-one-out residuals: `judged`.

    Two traps: with many bad labels the least-squares residuals all look alike, so a scale
    taken there flags nothing; and at the bottom of the path in ξ the fit is forced to
    zero. So the whole path is walked and each point is scored by the smaller half of its
    squared standardised leave-one-out residuals; the best few are starts, from each of
    which "fit the kept, flag by leave-one-out" is repeated to a fixed point; from the one
    with the best score, less its doubtful members, it is repeated once more. Then groups of
    dropped labels that bear each other out come back (`group_support`). μ = 2ℓλ is that of
    all labels throughout.
    """

    def __init__(
        self,
        problem: Problem,
        rule: LabelRule,
        trusted: Mask,
        *,
        rough: bool = False,
        quick: bool = False,
    ) -> None:
        self.problem, self.rule, self.trusted = problem, rule, trusted
        self.n_starts, self.slack = (
            (1, rule.path_slack * len(problem.y)) if quick else (rule.n_starts, 0.0)
        )
        self.is_large = is_large(problem, rule)
        # Whether a few labels may still change when the search ends.
        self.among_many = rough or self.is_large
        self.mu, self.weights = problem.mu, problem.weights
        self.ground = ground(problem, rule)
        self.floor = rule.noise_floor * self.ground.spread
        share = rule.settled_share if self.is_large else rule.roughly_settled_share
        self.few = share * len(problem.y) if self.among_many else 0.0
        self.history: list[float] = []
        self.steps = 0
        self.known: dict[bytes, _Candidate] = {}
        self.judged: JudgedLabels

    def first_look(self) -> Mask:
        """Labels to keep by some fits only, the first to the half that all labels bear out."""
        self._factor()
        loo = self._fit(np.ones(len(self.mu), dtype=bool)).loo
        sizes = np.abs(loo.residuals) / loo.inflation
        kept = sizes <= robust.weighted_median(sizes, self.weights)
        for _ in range(self.rule.first_rounds):
            before, kept = kept, self._inside(self._fit(kept))
            if np.array_equal(before, kept):
                break
        return kept

    def run(self) -> JudgedLabels:
        """Judge the labels; see also `judged`."""
        self._factor()
        if self.is_large:
            starts = [self._from_some()]
        else:
            starts = sorted(self._path(), key=lambda candidate: candidate.score)
            starts = starts[: self.n_starts]
        ends: list[tuple[Mask, _Candidate]] = []
        for start in starts:
            ends.append(self._fixed_point(start))
            if len(ends) > 1 and np.sum(ends[-1][0] != ends[-2][0]) <= self.few:
                break  # two ways led to the same labels
        kept, candidate = min(ends, key=lambda end: end[1].score)
        if not self.is_large:
            kept, candidate = self._fixed_point(self._without_excused(candidate))
            kept, candidate = self._with_reinstated(kept, candidate)
        # Once more with the scale of the kept labels; repeating this would spiral inwards.
        sigma = thresholds.noise_scale(candidate.loo, self.weights, kept, self.floor)
        del self.source  # the inverse is as large as the Gram matrix
        scales, _ = self._scales(candidate)
        cuts = self._cuts(candidate.loo, scales, sigma)
        kept = self._keep(candidate.loo, cuts)
        self.judged = JudgedLabels(kept, sigma, candidate.loo.residuals, cuts)
        return self.judged

    def _factor(self) -> None:
        border = self.problem.fit_intercept
        self.source = self.problem.gram.inverse_source(self.mu, border=border)

    def _candidate(
        self, solution: Solution, threshold: float, first: LeaveOneOut | None = None
    ) -> _Candidate:
        residuals = self.problem.residuals(solution)
        if first is None:
            loo = leave_one_out(self.problem, solution, residuals, self.mu, threshold)
        else:
            loo = rough_leave_one_out(first, solution, residuals, self.mu)
        standardised = (loo.residuals / loo.inflation) ** 2
        score = robust.mean_of_smaller_half(standardised, self.weights)
        return _Candidate(loo, score, float(self.problem.y @ solution.v))

    def _path(self) -> list[_Candidate]:
        """From least squares downwards, each solve started at the last."""
        solution = solve(self.problem, np.inf, source=self.source)
        threshold = largest_residual(self.problem, solution)
        candidates = [self._candidate(solution, np.inf)]
        total, rule = float(self.weights.sum()), self.rule
        for _ in range(rule.path_steps):
            threshold = self._next_threshold(solution, threshold)
            if not threshold >= self.floor:
                break
            solution = solve(
                self.problem,
                threshold,
                source=self.source,
                start=solution,
                max_iter=newton.PATIENCE,
                slack=self.slack,
            )
            self.steps += solution.n_iter
            free = float(self.weights[solution.free].sum())
            if free < rule.fewest_free * total or units(self.weights, solution.free) < 2.0:
                break
            self.history.append(threshold)
            best = min(candidate.score for candidate in candidates)
            candidates.append(self._candidate(solution, threshold, candidates[0].loo))
            if (
                free < rule.many_free * total
                and candidates[-1].score > rule.worth_going_on * best
            ):
                break
        return candidates

    def _from_some(self) -> _Candidate:
        """A start for all labels from the search over evenly spaced ones.

        What their fit leaves of the other labels are leave-one-out residuals already.
        """
        some, rows = evenly_spaced(self.problem)
        search = _AdaptiveSearch(some, self.rule, self.trusted[rows], rough=True)
        solution = solve(some.using(search.run().kept), np.inf)
        self.history, self.steps = search.history, search.steps + solution.n_iter
        v = np.zeros_like(self.problem.y)
        v[rows] = solution.v
        residuals = self.problem.y - solution.intercept - self.problem.gram.matvec(v)
        nothing = np.zeros_like(residuals)
        loo = LeaveOneOut(residuals, nothing, self.mu, self.problem.gram.missing)
        return _Candidate(loo, np.inf, np.nan)

    def _next_threshold(self, solution: Solution, threshold: float) -> float:
        """Lower by a factor, and so far that a share more of the labels is bound."""
        residuals = np.abs(self.problem.residuals(solution))
        bound = float(self.weights[~solution.free].sum() / self.weights.sum())
        share = max(0.0, 1.0 - bound - self.rule.path_share)
        level = robust.weighted_quantile(residuals, self.weights, share)
        return min(self.rule.path_ratio * threshold, level)

    def _without_excused(self, candidate: _Candidate) -> _Candidate:
        """The fit without labels that are kept only because little is known of their rows.

        A bad label at the edge of the data passes for that reason, and may then speak against
        good neighbours until these are dropped. Left out, it meets them as they are.
        """
        for _ in range(self.rule.strict_rounds):
            candidate = self._fit(self._inside(candidate, excuse=False))
        return candidate

    def _with_reinstated(self, kept: Mask, candidate: _Candidate) -> tuple[Mask, _Candidate]:
        """Take back groups of dropped labels, the best first, while the evidence grows.

        Of a group only those come back that lie inside their cuts once it is in use.
        """
        for _ in range(self.rule.most_rounds):
            if np.all(kept):
                break
            labels = self._dropped(kept, candidate)
            best, gain = None, 0.0
            for group in group_support.best_groups(labels, self.rule):
                joined = kept.copy()
                joined[labels.rows[group]] = True
                group = group[self._inside(self._fit(joined))[labels.rows[group]]]
                reached = group_support.evidence_gain(labels, group) if len(group) else 0.0
                if reached > gain:
                    best, gain = group, reached
            if best is None:
                break
            kept = kept.copy()
            kept[labels.rows[best]] = True
            candidate = self._fit(kept)
        return kept, candidate

    def _dropped(self, kept: Mask, candidate: _Candidate) -> Dropped:
        """The labels that are not kept, for `group_support`."""
        scales, sigma = self._scales(candidate)
        rows, known, border = np.flatnonzero(~kept), self.ground, self.problem.fit_intercept
        used = float(self.weights[kept].sum())
        least = used * self.floor**2 / float(np.mean(self.mu))
        return Dropped(
            rows=rows,
            errors=candidate.loo.residuals[rows],
            covariance=self.source.factor(kept).schur_complement(border=border),
            mu=self.mu[rows],
            weights=self.weights[rows],
            cuts=self._cuts(candidate.loo, scales, sigma)[rows],
            log_bad=group_support.log_cauchy(known.y[rows] - known.centre, known.spread),
            weight_in_use=used,
            energy=max(candidate.energy, least),
            lost=float(border),
        )

    def _scales(self, candidate: _Candidate) -> tuple[RowScales, float]:
        """The scale of every row and σ̂ of most labels."""
        if candidate.scales is None:
            loo = candidate.loo
            rows = thresholds.row_scales(loo, self.ground, self.rule)
            sigma = thresholds.scale_of_most(loo, rows, self.weights, self.rule, self.floor)
            candidate.scales = rows, sigma
        return candidate.scales

    def _cuts(self, loo: LeaveOneOut, scales: RowScales, sigma: float) -> Vector:
        return thresholds.cuts(loo.residuals, scales.at(sigma), self.weights, self.rule)

    def _inside(self, candidate: _Candidate, *, excuse: bool = True) -> Mask:
        """Labels to keep by the errors of a fit; without `excuse` noise alone counts."""
        scales, sigma = self._scales(candidate)
        scales = scales if excuse else scales.without_excuse()
        return self._keep(candidate.loo, self._cuts(candidate.loo, scales, sigma))

    def _keep(self, loo: LeaveOneOut, cuts: Vector) -> Mask:
        """Labels inside their cut, at least half of them, and all trusted ones."""
        ratios = thresholds.share_of(loo.residuals, cuts)
        kept = (ratios <= 1.0) | self.trusted
        if self.weights[kept].sum() < 0.5 * self.weights.sum():
            kept = (ratios <= robust.weighted_median(ratios, self.weights)) | self.trusted
        return kept

    def _fixed_point(self, start: _Candidate) -> tuple[Mask, _Candidate]:
        """Fit the kept labels, flag by leave-one-out, until the kept ones stay."""
        candidate = start
        seen: list[Mask] = []
        for _ in range(self.rule.most_rounds):
            kept = self._inside(candidate)
            if any(np.array_equal(kept, earlier) for earlier in seen):
                first = next(i for i, m in enumerate(seen) if np.array_equal(kept, m))
                kept = np.logical_or.reduce(seen[first:])
                return kept, self._fit(kept)
            again = bool(seen) and self.among_many
            settled = again and np.sum(kept != seen[-1]) < self.few
            seen.append(kept)
            # Among many labels a few do not change what the others leave of the variance.
            candidate = self._fit(kept, candidate.loo if again else None)
            if settled:
                break
        return kept, candidate

    def _fit(self, kept: Mask, first: LeaveOneOut | None = None) -> _Candidate:
        """Least squares on the kept labels at the μ of all; leave-one-out for all."""
        key = np.packbits(kept).tobytes()
        if key not in self.known:
            solution = solve(self.problem.using(kept), np.inf, source=self.source)
            self.known[key] = self._candidate(solution, np.inf, first)
        return self.known[key]


def cuts_for(
    problem: Problem, loo: LeaveOneOut, sigma: float | None, rule: LabelRule
) -> tuple[float, Vector]:
    """σ̂ (estimated on the labels in use unless given) and the cut of every row."""
    known = ground(problem, rule)
    if sigma is None:
        floor = rule.noise_floor * known.spread
        sigma = thresholds.noise_scale(loo, problem.weights, problem.active, floor)
    scales = thresholds.row_scales(loo, known, rule).at(sigma)
    return sigma, thresholds.cuts(loo.residuals, scales, problem.weights, rule)


def ground(problem: Problem, rule: LabelRule) -> Ground:
    """What the labels and the kernel say before any fit."""
    y, weights = problem.y, problem.weights
    return Ground(
        y=y,
        weights=weights,
        centre=robust.weighted_median(y, weights) if problem.fit_intercept else 0.0,
        spread=robust.label_scale(y, weights),
        mean_variance=mean_variance(problem, rule),
    )


def is_large(problem: Problem, rule: LabelRule) -> bool:
    """Whether some labels are searched before all of them."""
    return len(problem.y) > rule.search_labels and problem.gram.coarse_step > 0


def evenly_spaced(problem: Problem) -> tuple[Problem, np.ndarray]:
    """The problem on some labels of a large one, and which."""
    rows = np.arange(0, len(problem.y), problem.gram.coarse_step)
    return problem.on_some(rows, problem.gram.subset(rows)), rows


def mean_variance(problem: Problem, rule: LabelRule) -> float:
    """K̄, the mean prior variance: mean Q_ii, less the mean of Q with an intercept."""
    if is_large(problem, rule):
        problem, _ = evenly_spaced(problem)
    share = problem.weights / problem.weights.sum()
    mean = float(share @ problem.gram.diagonal)
    if not problem.fit_intercept:
        return mean
    centred = mean - problem.gram.mean(share)
    # Rows that are all alike leave rounding here, of either sign.
    return centred if centred > 1e-10 * mean else 0.0
