"""From a solution of the reduced problem to certified coefficients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.problem.certificate import Certificate, Optimality
from activehuber.problem.problem import Problem
from activehuber.solver.newton import Solution

ROUNDS = 5
# A KKT residual that leaves nothing to mend.
GOOD = 1e-9


class State(Protocol):
    """Coefficients with what they give, on rows or in a basis."""

    @property
    def coefficients(self) -> Matrix:
        """Of the rows' kernels, shape (n, m), or of the basis, shape (p,)."""
        ...

    @property
    def v(self) -> Vector:
        """Dual variables, shape (l,)."""
        ...

    @property
    def intercept(self) -> float:
        """b."""
        ...

    @property
    def residuals(self) -> Vector:
        """y − b − fitted values, shape (l,)."""
        ...

    @property
    def precise(self) -> bool:
        """Whether products are formed in extended precision."""
        ...

    @property
    def error(self) -> float:
        """How far the optimality conditions are from holding, beside other states."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to correct, or nothing to correct it with."""
        ...

    @property
    def least_gain(self) -> float:
        """The share of the error that must be gone for another correction to pay."""
        ...

    def corrected(self) -> Self:
        """The same after one step of iterative refinement."""
        ...

    def choices(self) -> Iterator[Self]:
        """The same at the intercepts that may serve, the likeliest first."""
        ...

    def optimality(self, threshold: float, centre: float) -> Optimality:
        """What is left of the optimality conditions."""
        ...


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
    reduction: Any,
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
        proof = state.optimality(xi, centre).certificate()
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
        better = state.corrected()
        if not better.error < state.error:
            break
        enough = not better.error < state.least_gain * state.error
        state = better
        if enough:
            break
    return state


def is_good(fit: CertifiedFit) -> bool:
    """Whether its certificate leaves nothing to mend."""
    return fit.certificate.kkt_residual <= GOOD


def best_of(fits: Iterator[CertifiedFit]) -> CertifiedFit:
    """The first that is good, else the one of least KKT residual."""
    best = next(fits)
    while not is_good(best):
        other = next(fits, None)
        if other is None:
            break
        best = min(best, other, key=lambda fit: fit.certificate.kkt_residual)
    return best
