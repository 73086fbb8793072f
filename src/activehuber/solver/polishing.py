"""From a solution of the reduced problem to certified coefficients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.problem.approximation import BasisState, BlockReduction
from activehuber.problem.certificate import Certificate
from activehuber.problem.problem import Problem
from activehuber.problem.reduction import Reduction, RowState
from activehuber.solver.newton import Solution

ROUNDS = 5
# A KKT residual that leaves nothing to mend.
GOOD = 1e-9

State = RowState | BasisState


@dataclass(frozen=True)
class CertifiedFit:
    """Coefficients, intercept (of the centred labels), residuals and their certificate."""

    coefficients: Matrix
    intercept: float
    residuals: Vector
    threshold: float
    solution: Solution
    certificate: Certificate


def recover(
    reduction: Reduction | BlockReduction,
    problem: Problem,
    solution: Solution,
    threshold: float,
    centre: float,
    *,
    least_squares: bool = False,
    minimiser: bool = True,
) -> CertifiedFit:
    """Refine the reduced solution against K or Ψ itself, expand it, certify it.

    The reduced solve works with a factor of Q; here the residual of the optimality
    conditions is formed with K (or in a pass over Ψ) and corrected by the same factor
    (iterative refinement) until rounding is reached.

    Parameters
    ----------
    reduction : Reduction or BlockReduction
    threshold : float
        ξ of the solution.
    least_squares : bool
        Whether no label is bound: ξ is then at least `threshold`, and max |r| of the
        refined residuals if that is larger.
    centre : float
        What was taken off the labels.
    minimiser : bool
        Whether the solution claims to minimise the objective; if not it is only certified.
    """
    level = np.inf if least_squares else threshold

    def certified(state: State) -> CertifiedFit:
        largest = float(np.max(np.abs(state.residuals[problem.active])))
        xi = max(threshold, largest) if least_squares else threshold
        b, fitted = state.intercept, problem.y - state.intercept - state.residuals
        ended = replace(solution, v=state.v, fitted=fitted, intercept=b)
        proof = state.certificate(xi, centre)
        return CertifiedFit(state.coefficients, b, state.residuals, xi, ended, proof)

    def attempt(precise: bool) -> CertifiedFit:
        start = reduction.start(problem, solution, level, precise=precise)
        if not minimiser:
            return certified(start)
        return best_of(certified(state) for state in refined(start).choices())

    fit = attempt(precise=False)
    if not minimiser or not reduction.extended_precision or is_good(fit):
        return fit
    # Long sums of large terms: form the residual once more in extended precision.
    return best_of(iter([fit, attempt(precise=True)]))


def refined(state: State) -> State:
    """Corrected as long as that helps."""
    for _ in range(ROUNDS):
        if state.is_settled:
            break
        better: State = state.corrected()
        if not better.error < state.error:
            break
        last, state = state, better
        if not state.error < state.least_gain * last.error:
            break
    return state


def is_good(fit: CertifiedFit) -> bool:
    """Whether its certificate leaves nothing to mend."""
    return fit.certificate.kkt_residual <= GOOD


def best_of(fits: Iterator[CertifiedFit]) -> CertifiedFit:
    """The first that is good, else the one of least KKT residual."""
    best = next(fits)
    for other in fits if not is_good(best) else ():
        best = min(best, other, key=lambda fit: fit.certificate.kkt_residual)
        if is_good(best):
            break
    return best
