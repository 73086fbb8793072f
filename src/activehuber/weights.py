"""Learnt view weights.

At fixed labels and threshold let J*(c) be the least objective for view weights c. Scaling c
up always lowers it, so c is kept on Σ (c^α)² = 1/m, where uniform weights lie too:

    min J*(c)   over   c >= 0,  Σ (c^α)² = 1/m ,      ∂J*/∂c^α = −2λ vᵀ f^α on labelled rows.

Without agreement J* is convex in d^α = (c^α)², with ∂J*/∂d^α = −λ vᵀ S^α v, and

    J*(d) − min J* <= λ (max_α vᵀS^αv / m − Σ_α d^α vᵀS^αv)

bounds how far from the optimum the weights are. With agreement only stationarity is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from activehuber import newton
from activehuber._typing import Vector
from activehuber.problem import Problem
from activehuber.reduction import Reduction

MOST_STEPS = 200
# A view whose d is below this share of all is not used.
NEGLIGIBLE = 1e-14


@dataclass(frozen=True)
class LearntWeights:
    """c and how far it is from a stationary point.

    Attributes
    ----------
    weights : ndarray of shape (m,)
    residual : float
        Without agreement an upper bound on (J* − min J*)/J*; with agreement the largest
        violation of stationarity, relative to J*.
    n_iter : int
        Fits it took.
    """

    weights: Vector
    residual: float
    n_iter: int


class _Objective:
    """J*(d) and its gradient in d = c², each evaluation one exact fit."""

    def __init__(self, reduction: Reduction, problem: Problem, threshold: float) -> None:
        self.reduction, self.problem, self.threshold = reduction, problem, threshold
        self.n_iter = 0
        self.start: newton.Solution | None = None

    def evaluate(self, d: Vector) -> tuple[float, Vector, Vector]:
        """J*, ∂J*/∂d and vᵀf^α/c^α at d."""
        self.n_iter += 1
        weights = np.sqrt(np.maximum(d, 0.0))
        problem, reduction = self.problem, self.reduction
        expansion = reduction.expansion
        view = expansion.reduce(reduction.labelled, weights, problem.fit_intercept)
        problem = replace(problem, gram=view.gram)
        solution = newton.solve(problem, self.threshold)
        v = np.where(problem.active, solution.v, 0.0)
        # f^α/c^α stays finite as c^α → 0 when views do not couple: smooth v itself.
        sources = np.zeros((len(expansion), len(d)))
        if expansion.coupling == 0.0:
            sources[reduction.labelled] = v[:, None]
            pulls = v @ expansion.smoother.smooth(sources)[reduction.labelled]
        else:
            sources[reduction.labelled] = np.outer(v, weights)
            f = expansion.smoother.smooth(sources)[reduction.labelled]
            pulls = (v @ f) / np.maximum(weights, 1e-8 / len(d))
        residuals = problem.y - solution.intercept - solution.fitted
        value = newton.objective(problem, v, solution.fitted, residuals, self.threshold)
        return value, -problem.alpha * pulls, pulls


def learn_weights(reduction: Reduction, problem: Problem, threshold: float) -> LearntWeights:
    """Minimise J* over the view weights, starting from uniform ones.

    The closed-form step d^α ∝ d^α √(vᵀS^αv), which never raises J*, is alternated with a
    quasi-Newton run (SLSQP) from where it gets to; the best point seen is returned.
    """
    m = len(reduction.weights)
    objective = _Objective(reduction, problem, threshold)
    best_d = np.full(m, 1.0 / m**2)
    best, gradient, pulls = objective.evaluate(best_d)

    def consider(d: Vector) -> None:
        nonlocal best_d, best, gradient, pulls
        d = np.maximum(d, 0.0)
        d = np.where(d < NEGLIGIBLE * d.sum(), 0.0, d)
        if not d.sum() > 0.0:
            return  # no view pulls: the intercept alone fits the labels
        d = d / (m * d.sum())
        value, slope, new_pulls = objective.evaluate(d)
        if value < best:
            best_d, best, gradient, pulls = d, value, slope, new_pulls

    for _ in range(3):
        consider(best_d * np.sqrt(np.maximum(pulls, 0.0)))
    unit = best if best > 0.0 else 1.0

    def scaled(shares: Vector) -> tuple[float, Vector]:
        value, slope, _ = objective.evaluate(shares / m)
        return value / unit, slope / (m * unit)

    result = minimize(
        scaled,
        best_d * m,
        jac=True,
        bounds=[(0.0, 1.0)] * m,
        constraints={"type": "eq", "fun": lambda d: d.sum() - 1.0, "jac": lambda d: np.ones(m)},
        method="SLSQP",
        options={"maxiter": 60, "ftol": 1e-15},
    )
    consider(result.x / m)
    for _ in range(MOST_STEPS):
        if stationarity(best_d, pulls, problem.alpha, best) < 1e-10:
            break
        before = best
        consider(best_d * np.maximum(pulls, 0.0))
        if not best < before:
            break
    residual = stationarity(best_d, pulls, problem.alpha, best)
    return LearntWeights(np.sqrt(best_d), residual, objective.n_iter)


def stationarity(d: Vector, pulls: Vector, alpha: float, value: float) -> float:
    """λ (max_α p_α/m − Σ d^α p_α) / J*, p = vᵀf/c; 0 at a stationary point."""
    gap = alpha * (float(np.max(pulls)) / len(d) - float(d @ pulls))
    return max(0.0, gap) / value if value > 0.0 else 0.0
