"""How near the optimum coefficients are: duality gap and KKT residual, from them alone.

What has to be said of coefficients is the same wherever they live, on the rows of an expansion
(`row_certificate`, Theorem 1) or in a finite basis (`approximation`): J, the gap to a dual
point, by how much the optimality conditions are violated, and how much of that is rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.loss import huber
from activehuber.problem.problem import EPSILON

# Errors below this share of the labels, of the threshold or of θ are left as they are: four
# digits better than the certificate asks for.
SETTLED = 1e-12


@dataclass(frozen=True)
class Certificate:
    """How near the optimum a set of coefficients is, computed from them alone.

    Attributes
    ----------
    objective : float
        J.
    duality_gap : float
        An upper bound on (J − J*)/J.
    kkt_residual : float
        Largest violation of Theorem 1 in units of the labels, beyond rounding.
    kkt_rounding : float
        The rounding error that was allowed for, in the same units.
    """

    objective: float
    duality_gap: float
    kkt_residual: float
    kkt_rounding: float


@dataclass(frozen=True)
class Objective:
    """What J is made of beside the functions, on all rows of the expansion.

    Attributes
    ----------
    y, weights : ndarray of shape (n,)
        Labels, and s: 0 where no label is in use (the value of y is ignored there).
    alpha : float
        λ.
    view_weights : ndarray of shape (m,)
        c.
    fit_intercept : bool
    """

    y: Vector
    weights: Vector
    alpha: float
    view_weights: Vector
    fit_intercept: bool


@dataclass(frozen=True)
class Evaluation:
    """What given coefficients do on the rows of the expansion, one column a view.

    Attributes
    ----------
    coefficients : ndarray of shape (n, m)
        w.
    values : ndarray of shape (n, m)
        f = K w.
    penalty_gradient : ndarray of shape (n, m)
        γ M K w (zero without a graph).
    values_magnitude, penalty_magnitude : ndarray of shape (n, m)
        |K||w| and γ |M||K||w|, the yardsticks of rounding.
    """

    coefficients: Matrix
    values: Matrix
    penalty_gradient: Matrix
    values_magnitude: Matrix
    penalty_magnitude: Matrix


def certified(
    objective: float,
    gap: float,
    violation: float,
    rounding: float,
    unit: float,
    balance: float,
    scale: float,
) -> Certificate:
    """What is left of the optimality conditions, relative to the labels and to J.

    Parameters
    ----------
    objective, gap : float
        J, and J minus the dual value.
    violation, rounding : float
        The largest violation of stationarity beyond four times its rounding, and the rounding.
    unit : float
        What both come to if all labels are off by one to one side.
    balance : float
        |Σ s ψ|/S beyond rounding; 0 without intercept.
    scale : float
        The unit of the labels; see `scale_of`.
    """
    pull = unit * scale
    kkt = max(_relative(violation, pull), _relative(balance, scale))
    allowed = rounding / pull if pull > 0.0 else 0.0
    return Certificate(objective, relative_gap(gap, objective), kkt, allowed)


def row_certificate(
    evaluation: Evaluation, objective: Objective, intercept: float, threshold: float
) -> Certificate:
    """Theorem 1 on the rows of an expansion.

    E = 2Sλ w + 2Sγ M K w − c (s∘ψ),        |Σ s ψ| = 0 with intercept
    """
    alpha, c = objective.alpha, objective.view_weights
    use, total = objective.weights > 0.0, float(objective.weights.sum())
    s, labels = objective.weights[use], objective.y[use]
    residuals = labels - intercept - evaluation.values[use] @ c
    clipped = huber.psi(residuals, threshold)

    left = 2.0 * total * (alpha * evaluation.coefficients + evaluation.penalty_gradient)
    right = np.zeros_like(left)
    right[use] = np.outer(s * clipped, c)
    rounding = (
        2.0 * total * (alpha * np.abs(evaluation.coefficients) + evaluation.penalty_magnitude)
    )
    residual_magnitude = (
        np.abs(labels) + abs(intercept) + evaluation.values_magnitude[use] @ np.abs(c)
    )
    rounding[use] += np.outer(s * residual_magnitude, np.abs(c))
    rounding *= EPSILON

    scale = scale_of(labels, threshold, objective.fit_intercept)
    # Σ s ψ is a sum of residuals and carries their rounding, as E does; where that is more
    # than a millionth of the labels nothing is forgiven.
    digit = min(EPSILON * float(s @ residual_magnitude), 1e-6 * total * scale)
    balance = max(0.0, abs(float(s @ clipped)) - digit) if objective.fit_intercept else 0.0

    loss = float(s @ huber.value(residuals, threshold)) / total
    norm = alpha * float(np.sum(evaluation.coefficients * evaluation.values))
    norm += float(np.sum(evaluation.values * evaluation.penalty_gradient))
    slack = 4.0 * (rounding[use] @ np.abs(c)) / float(c @ c) / s
    dual = _dual_point((left[use] @ c) / float(c @ c) / s, slack, residuals, threshold)
    return certified(
        objective=loss + norm,
        gap=_gap(residuals, dual, s, threshold) / total,
        violation=float(np.max(np.maximum(np.abs(left - right) - 4.0 * rounding, 0.0))),
        rounding=float(np.max(rounding)),
        unit=float(np.max(np.abs(c))) * float(np.max(s)),
        balance=balance / total,
        scale=scale,
    )


def _relative(error: float, unit: float) -> float:
    """error / unit; where there is no unit nothing may be violated."""
    return error / unit if unit > 0.0 else (0.0 if error <= 0.0 else np.inf)


def scale_of(labels: Vector, threshold: float, fit_intercept: bool) -> float:
    """The unit of a KKT residual: the largest label, from the median, or ξ if that is less."""
    middle = float(np.median(labels)) if fit_intercept else 0.0
    return min(threshold, float(np.max(np.abs(labels - middle))))


def relative_gap(gap: float, objective: float) -> float:
    """gap / J; of J = 0 a gap is none or all, and nothing vouches for a J that overflowed."""
    return _relative(gap, objective) if np.isfinite(objective) else np.inf


def _dual_point(dual: Vector, slack: Vector, residuals: Vector, threshold: float) -> Vector:
    """The dual variables as the coefficients have them, within the box.

    The gap of a bound label is linear in ξ − |u|, so the rounding of M K w alone would exceed
    1e-9 there: within it, and within a thousandth of ξ, such a label counts as bound.
    """
    clipped = huber.psi(residuals, threshold)
    bound = (np.abs(residuals) > threshold) & (np.abs(dual - clipped) <= slack)
    bound &= slack <= 1e-3 * threshold
    return np.where(bound, clipped, huber.psi(dual, threshold))


def _gap(residuals: Vector, dual: Vector, weights: Vector, threshold: float) -> float:
    """J minus the dual value, term by term (method: section 2 of the mathematics page)."""
    inside = np.abs(residuals) <= threshold
    terms = 0.5 * (residuals - dual) ** 2
    if not np.all(inside):
        r, u = np.abs(residuals[~inside]), np.sign(residuals[~inside]) * dual[~inside]
        terms[~inside] = (threshold - u) * (r - 0.5 * (threshold + u))
    return float(weights @ terms)
