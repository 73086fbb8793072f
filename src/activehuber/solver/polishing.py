"""From a solution of the reduced problem to certified coefficients of the expansion."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.problem.problem import Certificate, Problem, certificate
from activehuber.problem.reduction import Reduction
from activehuber.solver.newton import Solution

ROUNDS = 5
# Errors below this share of the labels (or of the threshold) are left as they are: four
# digits better than the certificate asks for.
SMALL = 1e-12
# A KKT residual that leaves nothing to mend.
GOOD = 1e-9


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
    reduction: Reduction,
    problem: Problem,
    solution: Solution,
    threshold: float,
    centre: float,
    *,
    least_squares: bool = False,
    minimiser: bool = True,
) -> CertifiedFit:
    """Refine the reduced solution against K itself, expand it, certify it.

    The reduced solve works with a factor of Q; here the residual of the optimality
    conditions is formed with K and corrected by the same factor (iterative refinement)
    until rounding is reached.

    Parameters
    ----------
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

    def attempt(precise: bool) -> CertifiedFit:
        return _recover(
            reduction,
            problem,
            solution,
            threshold,
            centre,
            least_squares=least_squares,
            minimiser=minimiser,
            precise=precise,
        )

    fit = attempt(precise=False)
    if not minimiser or fit.certificate.kkt_residual <= GOOD:
        return fit
    # Long sums of large terms: form the residual once more in extended precision.
    again = attempt(precise=True)
    return min(fit, again, key=_kkt_residual)


def _recover(
    reduction: Reduction,
    problem: Problem,
    solution: Solution,
    threshold: float,
    centre: float,
    *,
    least_squares: bool,
    minimiser: bool,
    precise: bool,
) -> CertifiedFit:
    level = np.inf if least_squares else threshold
    solution, coefficients, parts = _refine(
        reduction, problem, solution, level, ROUNDS if minimiser else 0, precise
    )
    values = reduction.fitted(parts)
    evaluation = reduction.expansion.evaluate(coefficients, parts)
    labels, weights = _on_expansion(reduction, problem, centre)

    def fit_with(intercept: float) -> CertifiedFit:
        residuals = problem.y - intercept - values
        largest = float(np.max(np.abs(residuals[problem.active])))
        xi = max(threshold, largest) if least_squares else threshold
        proof = certificate(
            evaluation,
            labels,
            weights,
            intercept + centre,
            xi,
            problem.alpha,
            reduction.weights,
            problem.fit_intercept,
        )
        ended = replace(solution, intercept=intercept)
        return CertifiedFit(coefficients, intercept, residuals, xi, ended, proof)

    if not (problem.fit_intercept and minimiser):
        return fit_with(solution.intercept)
    # Σ s ψ(r) = 0 fixes b, and so does r = μv on every free row. At tiny α they differ by
    # the rounding of Kw, which is not the same on all rows; the certificate says which b
    # serves best: the balanced one, or the one that the rows with least rounding ask for.
    balanced = fit_with(problem.intercept_for(values, level))
    if balanced.certificate.kkt_residual <= GOOD or solution.factor is None:
        return balanced
    error = np.where(solution.free, balanced.residuals - problem.mu * solution.v, 0.0)
    rounding = evaluation.values_magnitude[reduction.labelled] @ reduction.weights
    rounding = np.maximum(rounding + np.abs(problem.y), np.finfo(np.float64).tiny)
    trust = np.where(solution.free, (np.min(rounding) / rounding) ** 2, 0.0)
    sharper = fit_with(balanced.intercept + float(error @ trust / trust.sum()))
    return min(balanced, sharper, key=_kkt_residual)


def _kkt_residual(fit: CertifiedFit) -> float:
    return fit.certificate.kkt_residual


def _on_expansion(
    reduction: Reduction, problem: Problem, centre: float
) -> tuple[Vector, Vector]:
    """Labels and weights on all rows of the expansion, weight 0 where none is in use."""
    n = len(reduction.expansion)
    y, weights = np.zeros(n), np.zeros(n)
    y[reduction.labelled] = problem.y + centre
    weights[reduction.labelled] = np.where(problem.active, problem.weights, 0.0)
    return y, weights


def _refine(
    reduction: Reduction,
    problem: Problem,
    solution: Solution,
    threshold: float,
    rounds: int,
    precise: bool,
) -> tuple[Solution, Matrix, Matrix]:
    """The solution, its coefficients and what they give, K^α w^α, shape (n, m)."""
    mu = problem.mu
    zero = np.zeros_like(problem.y)
    v, b = solution.v, solution.intercept
    coefficients = reduction.expand(v)
    parts = reduction.expansion.values(coefficients, precise=precise)
    values = reduction.fitted(parts)

    def constant(difference: Vector) -> float:
        # The reduced matrix may have its features centred; b takes the constant up.
        return float(np.mean(difference[problem.active])) if problem.fit_intercept else 0.0

    b += constant(solution.fitted - values)
    if solution.factor is None:
        return replace(solution, intercept=b), coefficients, parts
    residuals = problem.y - b - values
    error = np.where(solution.free, residuals - mu * v, 0.0)
    scale = min(threshold, float(np.max(np.abs(residuals[problem.active]))))
    for _ in range(rounds):
        worst = float(np.max(np.abs(error)))
        if worst <= SMALL * scale:
            break
        change, response, shift = problem.solve_with(
            solution.factor, error, zero, total=-float(v.sum())
        )
        new_v = v + change
        new_coefficients = coefficients + reduction.expand_change(change)
        new_parts = reduction.expansion.values(new_coefficients, precise=precise)
        new_values = reduction.fitted(new_parts)
        new_b = b + shift + constant(response - (new_values - values))
        new_error = np.where(solution.free, problem.y - new_b - new_values - mu * new_v, 0.0)
        if not np.max(np.abs(new_error)) < worst:
            break
        v, b, error = new_v, new_b, new_error
        coefficients, values, parts = new_coefficients, new_values, new_parts
    return replace(solution, v=v, intercept=b), coefficients, parts
