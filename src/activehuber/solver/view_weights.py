"""Learnt view weights.

At fixed labels and threshold let J*(c) be the least objective for view weights c. Scaling c
up always lowers it, so c is kept on Σ (c^α)² = 1/m, where uniform weights lie too:

    min J*(c)   over   c >= 0,  Σ (c^α)² = 1/m ,      ∂J*/∂c^α = −2λ vᵀ f^α on labelled rows.

At a stationary point the pulls p^α = vᵀf^α/c^α of all views in use are equal. Without agreement
J* is convex in d^α = (c^α)², with ∂J*/∂d^α = −λ p^α, and

    J*(d) − min J* <= λ (max_α p^α / m − Σ_α d^α p^α)

bounds how far from the optimum the weights are. With agreement J* is not convex and only
stationarity is claimed: the gradient along Σ (c^α)² = 1/m, relative to J*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from activehuber._typing import Vector
from activehuber.problem.approximation import BlockReduction
from activehuber.problem.problem import Problem
from activehuber.problem.reduction import Reduction
from activehuber.solver import newton

# Steps of the final equalisation of pulls, and the relative change it takes differences at.
EQUALISING_STEPS = 4
DIFFERENCE = 1e-4
# A view whose share m c² is below this is not used.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class LearntWeights:
    """c, J* there, and how far it is from a stationary point.

    Attributes
    ----------
    weights : ndarray of shape (m,)
    value : float
        J*.
    products, pulls : ndarray of shape (m,)
        vᵀf^α, and the pulls vᵀf^α/c^α.
    residual : float
        Without agreement an upper bound on (J* − min J*)/J*; with agreement the largest
        violation of stationarity, relative to J*.
    """

    weights: Vector
    value: float
    products: Vector
    pulls: Vector
    residual: float


class _ObjectiveOfWeights:
    """J*(c), each evaluation one exact fit; the best point is remembered."""

    def __init__(
        self, reduction: Reduction | BlockReduction, problem: Problem, threshold: float
    ) -> None:
        self.reduction, self.problem, self.threshold = reduction, problem, threshold
        self.coupled = reduction.expansion.coupling > 0.0
        m = len(reduction.weights)
        self.best = self.at(np.full(m, 1.0 / m))

    def at(self, weights: Vector) -> LearntWeights:
        expansion, labelled = self.reduction.expansion, self.reduction.labelled
        reduced = expansion.reduce(labelled, weights, self.problem.fit_intercept)
        problem = replace(self.problem, gram=reduced.gram)
        solution = newton.solve(problem, self.threshold)
        v = np.where(problem.active, solution.v, 0.0)
        products = reduced.products(v)
        if self.coupled:
            pulls = products / np.maximum(weights, np.finfo(np.float64).tiny ** 0.5)
        else:  # these need no c^α, which may be zero
            products, pulls = weights * products, products
        residuals = problem.residuals(solution)
        value = newton.objective(problem, v, solution.fitted, residuals, self.threshold)
        residual = self._residual(weights, value, products, pulls)
        return LearntWeights(weights, value, products, pulls, residual)

    def consider(self, weights: Vector) -> None:
        """Evaluate weights, brought onto the constraint, and keep them if they are better."""
        c = np.maximum(weights, 0.0)
        size = float(c @ c)
        if not size > 0.0:
            return  # no view pulls: the intercept alone fits the labels
        c = np.where(c**2 < NEGLIGIBLE * size, 0.0, c) if not self.coupled else c
        point = self.at(c / np.sqrt(len(c) * float(c @ c)))
        better = point.value < self.best.value
        near = point.value <= self.best.value * (1.0 + 1e-12)
        if better or (near and point.residual < self.best.residual):
            self.best = point

    def _residual(self, c: Vector, value: float, products: Vector, pulls: Vector) -> float:
        """How far from stationary c is; see `LearntWeights`."""
        m, alpha = len(c), self.problem.alpha
        if not value > 0.0:
            return 0.0
        if not self.coupled:
            gap = float(np.max(pulls)) / m - float(c**2 @ pulls)
            return max(0.0, alpha * gap) / value
        gradient = -2.0 * alpha * products
        along = gradient - m * float(gradient @ c) * c
        violation = np.where(c > 0.0, np.abs(along), np.maximum(-along, 0.0))
        return float(np.max(violation)) / (np.sqrt(m) * value)


def learn_weights(
    reduction: Reduction | BlockReduction, problem: Problem, threshold: float
) -> LearntWeights:
    """Minimise J* over the view weights, starting from uniform ones.

    A few closed-form steps d^α ∝ d^α √p^α, which never raise J* when views do not couple; a
    quasi-Newton run (SLSQP) from where they get to; and Newton steps that make the pulls
    equal to the last digits, so that the result does not depend on rounding on the way.
    """
    objective = _ObjectiveOfWeights(reduction, problem, threshold)
    m = len(reduction.weights)
    for _ in range(3):
        best = objective.best
        objective.consider(best.weights * np.maximum(best.pulls, 0.0) ** 0.25)
    _quasi_newton(objective)
    if objective.coupled:
        # A view that is better left out is left out altogether; one that was left at almost
        # nothing by mistake, though it still pulls, gets a second chance.
        c = objective.best.weights
        objective.consider(np.where(c < 1e-5 / m, 0.0, c))
        if objective.best.residual > 1e-8:
            objective.consider(np.maximum(objective.best.weights, 1e-2 / m))
            _quasi_newton(objective)
    for _ in range(EQUALISING_STEPS):
        _equalise(objective)
    return objective.best


def _quasi_newton(objective: _ObjectiveOfWeights) -> None:
    """SLSQP in d = c² where J* is convex in it, in c itself where views couple."""
    m = len(objective.best.weights)
    unit = objective.best.value if objective.best.value > 0.0 else 1.0
    alpha = objective.problem.alpha
    power = 1.0 if objective.coupled else 0.5  # c = variables^power, on Σ c² = 1/m

    def scaled(variables: Vector) -> tuple[float, Vector]:
        c = np.maximum(variables, 0.0) ** power / np.sqrt(m)
        point = objective.at(c)
        if objective.coupled:
            return point.value / unit, -2.0 * alpha * point.products / (np.sqrt(m) * unit)
        return point.value / unit, -alpha * point.pulls / (m * unit)

    order = 2.0 * power
    constraint = {
        "type": "eq",
        "fun": lambda z: float(np.sum(np.abs(z) ** order)) - 1.0,
        "jac": lambda z: order * np.abs(z) ** (order - 1.0),
    }
    start = (objective.best.weights * np.sqrt(m)) ** (1.0 / power)
    result = minimize(
        scaled,
        start,
        jac=True,
        bounds=[(0.0, 1.0)] * m,
        constraints=constraint,
        method="SLSQP",
        options={"maxiter": 40, "ftol": 1e-12},  # the last digits are `_equalise`'s
    )
    objective.consider(np.maximum(result.x, 0.0) ** power)


def _equalise(objective: _ObjectiveOfWeights) -> None:
    """One Newton step on log p^α − log p^β = 0 over the views in use, in log c.

    The Jacobian is taken by differences; a step that does not help is not kept.
    """
    best = objective.best
    used = np.flatnonzero((best.weights > 0.0) & (best.pulls > 0.0))
    if len(used) < 2 or best.residual == 0.0:
        return

    def spread(point: LearntWeights) -> Vector:
        logs = np.log(np.maximum(point.pulls[used], np.finfo(np.float64).tiny))
        return logs[1:] - logs[0]

    base = spread(best)
    jacobian = np.empty((len(used) - 1, len(used) - 1))
    for column, view in enumerate(used[1:]):
        moved = best.weights.copy()
        moved[view] *= 1.0 + DIFFERENCE
        moved /= np.sqrt(len(moved) * float(moved @ moved))
        jacobian[:, column] = (spread(objective.at(moved)) - base) / DIFFERENCE
    step = np.linalg.lstsq(jacobian, -base, rcond=None)[0]
    moved = best.weights.copy()
    moved[used[1:]] *= np.exp(np.clip(step, -1.0, 1.0))
    objective.consider(moved)
