"""The reduced problem: a strictly convex box QP over the labels in use.

The estimator minimises (eq. 3 of the paper, with intercept b and weights s, S = Σ s)

    J(f, b) = 1/S Σ s_i H_ξ(r_i) + λ ‖f‖²_K + γ ‖f‖²_M ,     r_i = y_i − b − cᵀf(x_i).

`reduction` eliminates everything but one number v_i a label. With Q the matrix that maps v
to fitted values on labelled rows and μ_i = 2Sλ/s_i,

    J = 2λ Φ(v, b),   Φ(v, b) = Σ H_ξ(r_i)/μ_i + ½ vᵀQv ,   r = y − b − Qv,

and the optimum is v_i = ψ(r_i)/μ_i: free rows (|r_i| <= ξ) have Qv + μv = y − b, bound rows
have v_i = ±ξ/μ_i, rows out of use have v_i = 0; Σ v = 0 with an intercept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.loss import huber
from activehuber.operators.protocol import Factor, Gram

EPSILON = float(np.finfo(np.float64).eps)


class FittedValues(Protocol):
    """What is needed of a solution to have its residuals."""

    @property
    def intercept(self) -> float:
        """b."""

    @property
    def fitted(self) -> Vector:
        """Qv, shape (l,)."""


@dataclass(frozen=True)
class Problem:
    """min Φ(v, b) over the labels in use.

    Attributes
    ----------
    gram : Gram
        Q on the labelled rows, shape (l, l).
    y : ndarray of shape (l,)
        Labels, centred by their median when there is an intercept.
    weights : ndarray of shape (l,)
        s > 0.
    alpha : float
        λ.
    fit_intercept : bool
    active : ndarray of shape (l,), bool
        Labels in use; the others have been dropped.
    """

    gram: Gram
    y: Vector
    weights: Vector
    alpha: float
    fit_intercept: bool
    active: Mask

    @property
    def total_weight(self) -> float:
        """S, over the labels in use."""
        return float(np.sum(self.weights[self.active]))

    @property
    def mu(self) -> Vector:
        """μ = 2Sλ/s, shape (l,)."""
        return 2.0 * self.alpha * (self.total_weight / self.weights)

    def using(self, active: Mask) -> Problem:
        """The same problem with other labels in use."""
        return replace(self, active=active)

    def on_some(self, rows: np.ndarray, gram: Gram) -> Problem:
        """The same problem on some of the labels, all of them with Q given."""
        return replace(
            self,
            gram=gram,
            y=self.y[rows],
            weights=self.weights[rows],
            active=self.active[rows],
        )

    def residuals(self, solution: FittedValues) -> Vector:
        """r = y − b − Qv of a solution, shape (l,)."""
        return self.y - solution.intercept - solution.fitted

    def intercept_for(self, fitted: Vector, threshold: float) -> float:
        """The b that minimises Φ for given fitted values."""
        if not self.fit_intercept:
            return 0.0
        values, weights = (self.y - fitted)[self.active], self.weights[self.active]
        b = huber.location(values, weights, threshold)
        return huber.middle_of_plateau(values, weights, threshold, b)

    def solve_with(
        self, factor: Factor, targets: Vector, fixed: Vector, total: float = 0.0
    ) -> tuple[Vector, Vector, float]:
        """v, Qv and b with (Qv)_i + μ_i v_i + b = target_i on free rows and Σ v = total.

        Rows that are not free keep v = `fixed`. Without an intercept b = 0 and Σ v is free.
        """
        if not self.fit_intercept:
            v, fitted = factor.solve(targets[:, None], fixed[:, None])
            return v[:, 0], fitted[:, 0], 0.0
        return factor.solve_bordered(targets, fixed, total)


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


def certificate(
    evaluation: Evaluation,
    y: Vector,
    weights: Vector,
    intercept: float,
    threshold: float,
    alpha: float,
    view_weights: Vector,
    fit_intercept: bool,
) -> Certificate:
    """Duality gap and KKT residual of Theorem 1.

        E = 2Sλ w + 2Sγ M K w − c (s∘ψ),        |Σ s ψ| = 0 with intercept

    Parameters
    ----------
    y, weights : ndarray of shape (n,)
        Labels on all rows of the expansion; weight 0 where no label is in use (the value
        of y is ignored there).
    """
    use = weights > 0.0
    c = view_weights
    total = float(weights.sum())
    s = weights[use]
    labels = y[use]
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

    scale = scale_of(labels, threshold, fit_intercept)
    excess = float(np.max(np.maximum(np.abs(left - right) - 4.0 * rounding, 0.0)))
    # Σ s ψ is a sum of residuals and carries their rounding, as E does; where that is more
    # than a millionth of the labels nothing is forgiven.
    digit = min(EPSILON * float(s @ residual_magnitude), 1e-6 * total * scale)
    balance = max(0.0, abs(float(s @ clipped)) - digit) if fit_intercept else 0.0
    if scale > 0.0:
        unit = scale * float(np.max(np.abs(c))) * float(np.max(s))
        kkt = max(excess / unit, balance / (total * scale))
        kkt_rounding = float(np.max(rounding)) / unit
    else:
        kkt = 0.0 if excess == 0.0 and balance == 0.0 else np.inf
        kkt_rounding = 0.0

    loss = float(s @ huber.value(residuals, threshold)) / total
    norm = alpha * float(np.sum(evaluation.coefficients * evaluation.values))
    norm += float(np.sum(evaluation.values * evaluation.penalty_gradient))
    slack = 4.0 * (rounding[use] @ np.abs(c)) / float(c @ c) / s
    dual = _dual_point((left[use] @ c) / float(c @ c) / s, slack, residuals, threshold)
    gap = _gap(residuals, dual, s, threshold) / total
    return Certificate(loss + norm, relative_gap(gap, loss + norm), kkt, kkt_rounding)


def scale_of(labels: Vector, threshold: float, fit_intercept: bool) -> float:
    """The unit of a KKT residual: the largest label, from the median, or ξ if that is less."""
    middle = float(np.median(labels)) if fit_intercept else 0.0
    return min(threshold, float(np.max(np.abs(labels - middle))))


def relative_gap(gap: float, objective: float) -> float:
    """gap / J; of J = 0 a gap is none or all, and nothing vouches for a J that overflowed."""
    if not np.isfinite(objective):
        return np.inf
    return gap / objective if objective > 0.0 else (0.0 if gap <= 0.0 else np.inf)


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
