"""Exact minimisation of the reduced problem by semismooth Newton steps.

A step fixes which labels are free and which are bound, solves the linear system of that
pattern, and searches exactly along the line to its solution. Finitely many patterns and a
strict decrease make it end, usually after two to ten steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.loss import huber
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.protocol import Source
from activehuber.problem.problem import EPSILON, Problem, Solution, Status

# Labels beyond this share of the threshold are put where a change of state is cheap.
LIKELY_BOUND = 0.7
# Newton steps spent on that guess at most.
COARSE_STEPS = 4
# Steps before a run of falling thresholds takes over (see `_continuation`).
PATIENCE = 40
# Thresholds that it tries at most: from the largest to the smallest double a tenth at a time,
# and twice as many in smaller strides.
MOST_LEVELS = 2000
# Factor between its thresholds beyond which they are not brought nearer to each other.
SHORTEST_STRIDE = 0.5


def solve(
    problem: Problem,
    threshold: float,
    *,
    source: Source | None = None,
    start: Solution | None = None,
    max_iter: int = 200,
    likely_bound: Mask | None = None,
    slack: float = 0.0,
) -> Solution:
    """Minimise Φ at one threshold.

    Parameters
    ----------
    problem : Problem
    threshold : float
        ξ > 0; inf is least squares.
    source : Source, optional
        Where factors come from; made from the problem if None.
    start : Solution, optional
        A solution of a nearby problem.
    max_iter : int
        Newton steps at most.
    likely_bound : ndarray of shape (l,), bool, optional
        For ξ = inf only: rows that later solves with this source may bind or drop.
    slack : float
        So many labels may be taken for free that are bound, or the other way round.
    """
    source = problem.gram.source(problem.mu) if source is None else source
    if not np.isfinite(threshold):
        return _least_squares(problem, source, likely_bound)
    point = _starting_point(problem, threshold, source, start)
    solution = _iterate(problem, threshold, source, point, min(max_iter, PATIENCE), slack)
    if solution.status is not Status.CONVERGED and max_iter > PATIENCE:
        solution = _continuation(problem, threshold, source, max_iter)
    return solution


def _least_squares(problem: Problem, source: Source, likely: Mask | None) -> Solution:
    pattern = problem.active, np.zeros_like(problem.y)
    return _solve_pattern(problem, source, pattern, np.inf, likely)


def _starting_point(
    problem: Problem, threshold: float, source: Source, start: Solution | None
) -> Solution:
    """The given start, a fit to some of the rows, or the least-squares fit."""
    if start is None and problem.gram.coarse_step:
        v = coarse_solution(problem, threshold)
        fitted = problem.gram.matvec(v)
        start = Solution(v, fitted, 0.0, problem.active, 0, Status.STALLED, None)
    elif start is None:
        start = _least_squares(problem, source, None)
    return replace(start, intercept=problem.intercept_for(start.fitted, threshold))


def coarse_solution(problem: Problem, threshold: float) -> Vector:
    """v of the same problem on some of the labels in use, zero on the other rows."""
    rows = np.flatnonzero(problem.active)[:: problem.gram.coarse_step]
    part = problem.on_some(rows, problem.gram.subset(rows))
    v = np.zeros_like(problem.y)
    v[rows] = solve(part, threshold, max_iter=COARSE_STEPS).v
    return v


def _iterate(
    problem: Problem,
    threshold: float,
    source: Source,
    point: Solution,
    max_iter: int,
    slack: float = 0.0,
) -> Solution:
    """Newton steps until the solution of a pattern has that pattern, or nearly.

    Of points on the way only v, Qv and b count.
    """
    use, mu = problem.active, source.mu
    loss_weights = np.where(use, 1.0 / mu, 0.0)
    scale = min(threshold, float(np.max(np.abs(problem.y[use]))))
    best: Solution | None = None
    least = np.inf
    for step in range(1, max_iter + 1):
        # 1. the pattern of the present point
        residuals = problem.residuals(point)
        free, fixed = _pattern(problem, residuals, threshold, mu)
        likely = np.abs(residuals) > LIKELY_BOUND * threshold

        # 2. the solution of that pattern
        target = _solve_pattern(problem, source, (free, fixed), threshold, likely)

        # 3. is it the solution of the problem?
        reached = problem.residuals(target)
        clipped = huber.psi(reached, threshold)
        violation = float(np.max(np.abs(mu * target.v - clipped)[use]))
        if not np.isfinite(violation):
            raise BreakdownError("residuals are not finite")
        if violation < least:
            best, least = target, violation
        new_free, new_fixed = _pattern(problem, reached, threshold, mu)
        same = np.count_nonzero((free != new_free) | (fixed != new_fixed)) <= slack
        if same or violation <= 1e-13 * scale or _is_rounding(problem, target, violation, step):
            return replace(target, n_iter=step)

        # 4. if not, go as far towards it as the objective falls
        change = target.v - point.v
        length = huber.line_minimum(
            residuals,
            reached - residuals,
            loss_weights,
            threshold,
            float(change @ point.fitted),
            float(change @ (target.fitted - point.fitted)),
        )
        fitted = point.fitted + length * (target.fitted - point.fitted)
        b = point.intercept + length * (target.intercept - point.intercept)
        if length == 0.0:
            # Without free labels the line may hold b fast: minimise over b alone.
            b = problem.intercept_for(fitted, threshold)
            if b == point.intercept:
                break
        point = replace(point, v=point.v + length * change, fitted=fitted, intercept=b)
    assert best is not None
    status = Status.OUT_OF_STEPS if step == max_iter else Status.STALLED
    return replace(best, n_iter=step, status=status)


def objective(
    problem: Problem, v: Vector, fitted: Vector, residuals: Vector, threshold: float
) -> float:
    """J = 2λ (Σ H_ξ(r)/μ + ½ vᵀQv) for f = Qv."""
    use = problem.active
    loss = np.sum((huber.value(residuals, threshold) / problem.mu)[use])
    return 2.0 * problem.alpha * float(loss + 0.5 * (v @ fitted))


def one_step(problem: Problem, start: Solution, threshold: float) -> Solution:
    """The solution of the pattern that `start` has at `threshold`: one linear solve."""
    residuals, source = problem.residuals(start), problem.gram.source(problem.mu)
    pattern = _pattern(problem, residuals, threshold, problem.mu)
    return _solve_pattern(problem, source, pattern, threshold, np.abs(residuals) > threshold)


def _pattern(
    problem: Problem, residuals: Vector, threshold: float, mu: Vector
) -> tuple[Mask, Vector]:
    """Free rows, and v on the others: ±ξ/μ where bound, 0 where not in use."""
    beyond = np.abs(residuals) > threshold
    bound = problem.active & beyond
    fixed = np.where(bound, np.sign(residuals) * threshold / mu, 0.0)
    return problem.active & ~beyond, fixed


def _is_rounding(problem: Problem, point: Solution, violation: float, step: int) -> bool:
    """Whether a violation is below what float64 can tell, asked only after ten steps."""
    if step < 10:
        return False
    magnitude = problem.gram.magnitude(point.v) + np.abs(problem.y) + abs(point.intercept)
    return violation <= EPSILON * float(np.max(magnitude[problem.active]))


def _solve_pattern(
    problem: Problem,
    source: Source,
    pattern: tuple[Mask, Vector],
    threshold: float,
    likely: Mask | None,
) -> Solution:
    """The point with some rows free and v = `fixed` elsewhere; see `_pattern`."""
    free, fixed = pattern
    if np.any(free):
        factor = source.factor(free, likely)
        v, fitted, b = problem.solve_with(factor, problem.y, fixed)
        return Solution(v, fitted, b, free, 1, Status.CONVERGED, factor)
    fitted = problem.gram.matvec(fixed)
    b = problem.intercept_for(fitted, threshold)
    return Solution(fixed, fitted, b, free, 1, Status.CONVERGED, None)


def _continuation(
    problem: Problem, threshold: float, source: Source, max_iter: int
) -> Solution:
    """Lower the threshold tenfold at a time from least squares, each solve started at the last.

    Steady where the direct way is not: when α is so small that the fit nearly interpolates,
    or when rounding makes the pattern flicker. Where a solve does not end, the way down is
    taken in smaller strides.
    """
    solution, steps = _least_squares(problem, source, None), PATIENCE
    residuals = problem.residuals(solution)
    level = float(np.max(np.abs(residuals[problem.active])))
    stride = 0.1
    for _ in range(MOST_LEVELS):
        if not level > threshold:
            break
        lower = max(stride * level, threshold)
        point = _starting_point(problem, lower, source, solution)
        attempt = _iterate(problem, lower, source, point, max_iter)
        steps += attempt.n_iter
        if attempt.status is not Status.CONVERGED and stride < SHORTEST_STRIDE:
            stride = np.sqrt(stride)
            continue
        solution, level = attempt, lower
    return replace(solution, n_iter=steps)
