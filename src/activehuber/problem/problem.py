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
from enum import Enum
from typing import Any

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.loss import huber
from activehuber.operators.protocol import Factor, Gram, Solved

EPSILON = float(np.finfo(np.float64).eps)


class Status(Enum):
    """How a solve ended; the text is meant for the user."""

    CONVERGED = "the optimality conditions hold"
    STALLED = (
        "rounding stops the search before the optimality conditions hold to the tolerance; "
        "use a larger alpha or threshold, or standardise the features"
    )
    OUT_OF_STEPS = "max_iter Newton steps were not enough; raise max_iter"


@dataclass(frozen=True)
class Solution:
    """A minimiser of Φ.

    Attributes
    ----------
    v : ndarray of shape (l,)
        Dual variables, v = ψ(r)/μ.
    fitted : ndarray of shape (l,)
        Q v.
    intercept : float
    free : ndarray of shape (l,), bool
        Labels in use with |r| <= ξ.
    n_iter : int
    status : Status
    factor : Factor or None
        The factor of the last pattern; None if no label is free.
    """

    v: Vector
    fitted: Vector
    intercept: float
    free: Mask
    n_iter: int
    status: Status
    factor: Any


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
    groups : ndarray of shape (l,), int, or None
        Labels of one number are judged without each other; those of −1, and all of None, are
        groups of their own. The minimiser does not depend on it.
    """

    gram: Gram
    y: Vector
    weights: Vector
    alpha: float
    fit_intercept: bool
    active: Mask
    groups: np.ndarray | None = None

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
            groups=None if self.groups is None else self.groups[rows],
        )

    def residuals(self, solution: Solution) -> Vector:
        """r = y − b − Qv of a solution, shape (l,)."""
        return self.y - solution.intercept - solution.fitted

    def constant(self, difference: Vector) -> float:
        """What b takes up of a change of fitted values: their mean over labels in use."""
        return float(np.mean(difference[self.active])) if self.fit_intercept else 0.0

    def intercept_for(self, fitted: Vector, threshold: float) -> float:
        """The b that minimises Φ for given fitted values."""
        if not self.fit_intercept:
            return 0.0
        values, weights = (self.y - fitted)[self.active], self.weights[self.active]
        b = huber.location(values, weights, threshold)
        return huber.middle_of_plateau(values, weights, threshold, b)

    def solve_with(
        self, factor: Factor, targets: Vector, fixed: Vector, total: float = 0.0
    ) -> Solved:
        """v, Qv and b with (Qv)_i + μ_i v_i + b = target_i on free rows and Σ v = total.

        Rows that are not free keep v = `fixed`. Without an intercept b = 0 and Σ v is free.
        """
        return factor.solve(targets, fixed, total if self.fit_intercept else None)
