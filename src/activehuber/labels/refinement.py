"""Solve, flag labels, drop them, solve again: how each threshold mode fits.

`refine` is Algorithm 1 of the paper, put right; `paper` the same as it is printed, with errata
1 to 4 mended. Every function here returns a `Trace`: the problem with the labels left in use,
its solution at the last threshold, and the history of thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.labels import thresholds
from activehuber.labels.mixture import NOISE_FLOOR, Judgement
from activehuber.numerics import robust
from activehuber.operators.protocol import Source
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.newton import Solution, solve

# (threshold, labels in use) after each refinement.
Report = Callable[[float, int], None]
# (residuals, weights) of the labels -> ξ.
ThresholdRule = Callable[[Vector, Vector], float]


@dataclass(frozen=True)
class Trace:
    """What a threshold mode did.

    Attributes
    ----------
    problem : Problem
        With the labels that stayed in use.
    solution : Solution
        Its minimiser at `threshold`.
    threshold : float
        The last ξ.
    history : list of float
        All of them.
    n_iter : int
        Newton steps in all.
    judged : Judgement or None
        For the adaptive mode, unless most labels are equal.
    least_squares : bool
        Whether no label is bound, so that any ξ from max |r| on will do; `threshold` is
        then the larger of that and `at_least`.
    at_least : float
    minimiser : bool
        Whether the solution is meant to be a minimiser at all.
    settled : bool
        Whether a rule for the threshold came to rest.
    """

    problem: Problem
    solution: Solution
    threshold: float
    history: list[float]
    n_iter: int
    judged: Judgement | None = None
    least_squares: bool = False
    at_least: float = 0.0
    minimiser: bool = True
    settled: bool = True


def largest_residual(problem: Problem, solution: Solution) -> float:
    """max |r| over the labels in use."""
    residuals = problem.residuals(solution)
    return float(np.max(np.abs(residuals[problem.active])))


def fixed(problem: Problem, threshold: float, max_iter: int, report: Report) -> Trace:
    """An exact fit at one threshold; nothing is dropped."""
    solution = solve(problem, threshold, max_iter=max_iter)
    report(threshold, int(problem.active.sum()))
    return Trace(problem, solution, threshold, [threshold], solution.n_iter)


# --- a rule for the threshold -----------------------------------------------------------

RULE_ROUNDS = 60
# From this round on ξ is bracketed: rules may cycle, or jump over the fixed point.
BISECT_FROM = 20
# From this round on the last two answers are extrapolated: plain repetition may creep.
SECANT_FROM = 3
# ξ is settled when the rule moves it by no more than this share of itself.
SETTLED = 1e-9


def by_rule(
    problem: Problem, threshold_rule: str | ThresholdRule, max_iter: int, report: Report
) -> Trace:
    """Fit at ξ, ask the rule for ξ, until they agree; nothing is dropped.

    Parameters
    ----------
    threshold_rule : {"madn", "quantile", "tuning-free"} or callable
        A callable maps (residuals, weights) of the labels to ξ. Named rules say 0 where
        most labels are met exactly; ξ does not fall below the noise floor.
    """
    scale = robust.label_scale(problem.y, problem.weights)
    floor = 0.0 if callable(threshold_rule) else NOISE_FLOOR * scale
    source = problem.gram.source(problem.mu)
    solution = solve(problem, np.inf, source=source)
    history: list[float] = []
    steps, settled = solution.n_iter, False
    low, high = 0.0, np.inf  # the rule asks for more at `low`, for less at `high`
    answers: list[float] = []
    for turn in range(RULE_ROUNDS):
        asked = max(_apply(threshold_rule, problem, solution), floor)
        if history:
            # With several fixed points an end may fall behind the other: it is forgotten.
            if asked > history[-1]:
                low, high = history[-1], high if high > history[-1] else np.inf
            else:
                low, high = low if low < history[-1] else 0.0, history[-1]
            close = asked == history[-1] or abs(asked - history[-1]) <= SETTLED * asked
            settled = close or low >= (1.0 - SETTLED) * high
        if settled or asked == 0.0:
            break
        answers.append(asked)
        if turn >= BISECT_FROM and low > 0.0 and np.isfinite(high):
            asked = float(np.sqrt(low * high))
        elif turn >= SECANT_FROM:
            asked = _secant(history, answers, low, high)
        solution = solve(problem, asked, source=source, start=solution, max_iter=max_iter)
        steps += solution.n_iter
        history.append(asked)
        report(asked, int(problem.active.sum()))
    if not history:  # labels that are all met exactly
        history = [largest_residual(problem, solution)]
    elif threshold_rule == "tuning-free":  # its leverages used up the factor
        solution = solve(problem, history[-1], source=source, start=solution)
    free = bool(np.array_equal(solution.free, problem.active))
    last = history[-1]
    at_least = last if np.isfinite(last) else 0.0
    threshold = max(at_least, largest_residual(problem, solution)) if free else last
    trace = Trace(problem, solution, threshold, history, steps, least_squares=free)
    return replace(trace, at_least=at_least, settled=settled or len(history) == 1)


def _secant(history: list[float], answers: list[float], low: float, high: float) -> float:
    """Where the line through the last two answers meets ξ; the last answer if it does not.

    Between changes of state the rules are nearly linear in ξ.
    """
    (a, b), (ask_a, ask_b) = history[-2:], answers[-2:]
    slope = (ask_b - ask_a) / (b - a) if np.isfinite(b - a) and b != a else np.inf
    if slope >= 0.99 or not np.isfinite(slope):
        return ask_b
    crossing = (ask_b - slope * b) / (1.0 - slope)
    return crossing if low < crossing < high else ask_b


def _apply(threshold_rule: str | ThresholdRule, problem: Problem, solution: Solution) -> float:
    residuals = problem.residuals(solution)
    if threshold_rule == "madn":
        return thresholds.madn(residuals, problem.weights)
    if threshold_rule == "quantile":
        return thresholds.quantile(residuals, problem.weights)
    if threshold_rule == "tuning-free":
        return _tuning_free(problem, solution, residuals)
    assert callable(threshold_rule)
    value = threshold_rule(residuals.copy(), problem.weights.copy())
    if not isinstance(value, Real) or not float(value) > 0.0:
        raise ValueError(
            f"threshold: the callable returned {value!r}; it must return a number > 0 for "
            "(residuals, weights)"
        )
    return float(value)


def _tuning_free(problem: Problem, solution: Solution, residuals: Vector) -> float:
    dof = 0.0
    if solution.factor is not None:
        inverse, _ = solution.factor.diagonals(border=problem.fit_intercept)
        leverage = np.clip(1.0 - problem.mu * inverse, 0.0, 1.0)
        dof = float(np.sum(leverage[solution.free]))
    threshold = thresholds.tuning_free(residuals, problem.weights, dof)
    if np.isinf(threshold):
        raise ValueError(
            f'threshold="tuning-free" has no solution: the fit has {dof:.0f} degrees of '
            f"freedom for labels of total weight {problem.total_weight:g}; use a larger alpha, "
            'a wider kernel or threshold="madn"'
        )
    return threshold


# --- HLR, Algorithm 1 put right ---------------------------------------------------------


def refine(
    problem: Problem,
    n_refinements: int,
    step: float,
    trusted: Mask,
    max_iter: int,
    report: Report,
) -> Trace:
    """HLR: lower ξ by `step`, drop the labels that are bound, until none is; T times.

    After each refinement the fit is exact on the labels in use at ξ = max |r|, and ξ falls
    strictly (Propositions 1 and 2). Trusted labels are never dropped; if one of them stays
    bound, ξ is the lowered threshold itself.
    """
    source = problem.gram.source(problem.mu)
    solution = solve(problem, np.inf, source=source, likely_bound=_likely_bound(problem))
    threshold = largest_residual(problem, solution)
    report(threshold, int(problem.active.sum()))
    history, steps = [threshold], solution.n_iter
    for _ in range(n_refinements):
        lowered = threshold - step
        if lowered <= 0.0:
            break
        refined = _drop_until_free(problem, solution, lowered, trusted, source, max_iter)
        if refined is None:
            break
        problem, solution, threshold, source, used = refined
        history.append(threshold)
        steps += used
        report(threshold, int(problem.active.sum()))
    free = bool(np.array_equal(solution.free, problem.active))
    return Trace(problem, solution, threshold, history, steps, least_squares=free)


def _drop_until_free(
    problem: Problem,
    solution: Solution,
    threshold: float,
    trusted: Mask,
    source: Source,
    max_iter: int,
) -> tuple[Problem, Solution, float, Source, int] | None:
    """One refinement: None if it would drop every label."""
    steps = 0
    for _ in range(len(problem.y) + 1):  # every round drops a label
        solution = solve(problem, threshold, source=source, start=solution, max_iter=max_iter)
        steps += solution.n_iter
        residuals = np.abs(problem.residuals(solution))
        bound = problem.active & (residuals >= threshold)
        flagged = bound & ~trusted
        if not np.any(flagged):
            reached = threshold if np.any(bound) else float(np.max(residuals[problem.active]))
            return problem, solution, reached, source, steps
        if np.array_equal(flagged, problem.active):
            return None
        problem = problem.using(problem.active & ~flagged)
        # Fewer labels only scale μ.
        source = problem.gram.source(problem.mu, source)
    raise AssertionError("more labels were dropped than there are")


def _likely_bound(problem: Problem) -> Mask | None:
    """The fifth of the labels that a coarse fit leaves the largest residuals."""
    if problem.gram.matrix is None or not problem.gram.coarse_step:
        return None
    fitted = problem.gram.matvec(newton.coarse_solution(problem, np.inf))
    residuals = np.abs(problem.y - problem.intercept_for(fitted, np.inf) - fitted)
    return residuals > np.quantile(residuals, 0.8)


def paper(
    problem: Problem, n_refinements: int, step: float, trusted: Mask, report: Report
) -> Trace:
    """The printed scheme with errata 1-4 mended: one linear solve a refinement.

    For comparison only: the result need not minimise anything.
    """
    solution = solve(problem, np.inf)
    threshold = largest_residual(problem, solution)
    report(threshold, int(problem.active.sum()))
    history = [threshold]
    for _ in range(n_refinements):
        lowered = threshold - step
        if lowered <= 0.0:
            break
        candidate = newton.one_step(problem, solution, lowered)
        residuals = np.abs(problem.residuals(candidate))
        inside = problem.active & (residuals < lowered)
        if not np.any(inside):
            break
        kept = inside | (trusted & problem.active)
        problem, solution = problem.using(kept), candidate
        threshold = float(np.max(residuals[kept]))
        history.append(threshold)
        report(threshold, int(kept.sum()))
    return Trace(problem, solution, threshold, history, len(history), minimiser=False)
