"""Leave-one-out residuals in closed form.

With A = Q + diag(μ) and B the free block of A, bordered by ones when there is an intercept,

    free i:   e_i = r_i / (1 − h_i),      h_i = 1 − μ_i (B⁻¹)_ii
    bound i:  e_i = r_i + q_i v_i,        q_i = Q_ii − k̃ᵀ B⁻¹ k̃ ,  k̃ = (Q_Fi; 1)

exact as long as leaving the label out moves no other label between free and bound; ℓ, ξ, the
kernel and the graph stay, and the row stays as an unlabelled one. A label of weight s > 1
stands for s equal ones, of which one is left out.

Where labels are in groups G (`Problem.groups`), each is left out together with those of its
group, whatever their weights. With E the free labels outside of G, bordered as above,

    e_G = (r − μ∘v)_G + M_G v_G ,    q_i = (M_G)_ii − μ_i ,    M_G = A_GG − Q_GE A_EE⁻¹ Q_EG ,

which of free labels is ((B⁻¹)_GG)⁻¹ v_G, and of one label what stands above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.newton import Solution


@dataclass(frozen=True)
class LeaveOneOut:
    """What the other labels say of each label; with groups, those of other groups.

    Attributes
    ----------
    residuals : ndarray of shape (l,)
        y_i minus the prediction of the fit without label i; for labels not in use the
        plain residual.
    variance : ndarray of shape (l,)
        q_i: the prior variance of the prediction at row i that the other labels leave.
    ridge : ndarray of shape (l,)
        μ of one unit of weight; noise of variance σ² makes e_i vary as σ²(1 + q_i/μ_i).
    missing : ndarray of shape (l,)
        Prior variance that an approximation of the kernel leaves out at row i, beyond what it
        leaves out at the median row; 0 without one. It tells how little is known there, as q
        does, but takes no part in the fit.
    """

    residuals: Vector
    variance: Vector
    ridge: Vector
    missing: Vector

    @property
    def inflation(self) -> Vector:
        """√(1 + q/μ): by how much the scale of e_i exceeds that of the noise."""
        return np.sqrt(1.0 + self.variance / self.ridge)


def leave_one_out(
    problem: Problem, solution: Solution, residuals: Vector, mu: Vector, threshold: float
) -> LeaveOneOut:
    """Closed form for every labelled row; see the module's docstring.

    Whatever judges a label gets its figures here, so that groups are left out everywhere.

    Parameters
    ----------
    residuals : ndarray of shape (l,)
        y − b − f on all labelled rows.
    mu : ndarray of shape (l,)
        The μ that `solution` was computed with.
    threshold : float
        ξ; used only where the closed form does not exist (an intercept and fewer than two
        free labels, or no free label in another group): there the model is fitted again
        without each label, or group.
    """
    if problem.groups is None:
        return _each_left_out(problem, solution, residuals, mu, threshold)
    # First: after diagonals a factor may be used up.
    errors, variance = _groups_left_out(problem, solution, residuals, mu, threshold)
    grouped = problem.groups >= 0
    if np.all(grouped):
        ridge = mu * np.maximum(1.0, problem.weights)
        return LeaveOneOut(errors, variance, ridge, problem.gram.missing)
    alone = _each_left_out(problem, solution, residuals, mu, threshold)
    return replace(
        alone,
        residuals=np.where(grouped, errors, alone.residuals),
        variance=np.where(grouped, variance, alone.variance),
    )


def _groups_left_out(
    problem: Problem, solution: Solution, residuals: Vector, mu: Vector, threshold: float
) -> tuple[Vector, Vector]:
    """e and q of all labels that are in groups, NaN of the others."""
    free, v, parts = solution.free, solution.v, members(problem.groups)
    errors, variance = np.full_like(mu, np.nan), np.full_like(mu, np.nan)
    told, border = np.count_nonzero(free), problem.fit_intercept
    if solution.factor is not None:
        some = [p for p in parts if not border or np.count_nonzero(free[p]) < told]
        pulls, sizes = solution.factor.without_groups(some, v, border=border)
        rows = np.concatenate(some) if some else np.empty(0, dtype=int)
        errors[rows] = (residuals - mu * v + pulls)[rows]
        variance[rows] = np.maximum(sizes - mu, 0.0)[rows]
    for part in parts:
        if np.isnan(errors[part[0]]):
            errors[part], variance[part] = _refitted(problem, solution, part, threshold)
    return errors, variance


def members(groups: np.ndarray | None) -> list[np.ndarray]:
    """The places of the labels of every group, ascending; those in none are left out."""
    if groups is None:
        return []
    order = np.argsort(groups, kind="stable")
    order = order[np.count_nonzero(groups < 0) :]
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if len(order) else []


def _each_left_out(
    problem: Problem, solution: Solution, residuals: Vector, mu: Vector, threshold: float
) -> LeaveOneOut:
    """Every label left out alone."""
    free = solution.free
    share = np.minimum(1.0, 1.0 / problem.weights)
    ridge = mu / share
    if problem.fit_intercept and units(problem.weights, free) < 2.0:
        each = [refit_without(problem, solution, i, threshold) for i in range(len(mu))]
        return LeaveOneOut(
            np.array(each), problem.gram.diagonal.copy(), ridge, problem.gram.missing
        )
    inverse, schur = np.zeros_like(mu), problem.gram.diagonal.copy()
    if solution.factor is not None:  # of B, with the border
        inverse, schur = solution.factor.diagonals(border=problem.fit_intercept)
    leverage = np.where(free, np.clip(1.0 - mu * inverse, 0.0, 1.0), 0.0)
    left = np.maximum(1.0 - leverage * share, 1e-15)
    # Written with `inverse`, since 1 − h cancels when h is near one.
    left = np.where(free & (share == 1.0), np.maximum(mu * inverse, 1e-15), left)
    errors = np.where(free, residuals / left, residuals + schur * solution.v * share)
    variance = np.where(free, mu * leverage / left, np.maximum(schur, 0.0))
    return LeaveOneOut(errors, variance, ridge, problem.gram.missing)


def rough_leave_one_out(
    known: LeaveOneOut, solution: Solution, residuals: Vector, mu: Vector
) -> LeaveOneOut:
    """Leave-one-out residuals with the variances q of another pattern: no factor is needed.

    With all labels free q is too small by what the bound ones would have told, which is
    enough to compare points of a path.
    """
    grown = residuals * (1.0 + known.variance / known.ridge)
    share = mu / known.ridge
    errors = np.where(solution.free, grown, residuals + known.variance * solution.v * share)
    return LeaveOneOut(errors, known.variance, known.ridge, known.missing)


def units(weights: Vector, chosen: Mask) -> float:
    """How many labels the chosen ones stand for: weight s > 1 is s equal labels."""
    return float(np.sum(np.maximum(weights[chosen], 1.0)))


def refit_without(problem: Problem, start: Solution, row: int, threshold: float) -> float:
    """The leave-one-out residual of one label by fitting again, whatever moves."""
    groups = problem.groups
    own = np.array([row])
    if groups is not None and groups[row] >= 0:
        own = np.flatnonzero(groups == groups[row])
    return float(_refitted(problem, start, own, threshold)[0][own == row][0])


def _refitted(
    problem: Problem, start: Solution, rows: np.ndarray, threshold: float
) -> tuple[Vector, Vector]:
    """e and q from the fit without the labels of a group, or one unit of a single label.

    q is meant for a group, none of which is in use then.
    """
    prior = problem.gram.diagonal[rows]
    if not np.any(problem.active[rows]) and len(rows) == 1:
        return problem.residuals(start)[rows], prior
    weights, active = problem.weights.copy(), problem.active.copy()
    alone = problem.groups is None or problem.groups[rows[0]] < 0
    if alone and weights[rows[0]] > 1.0:
        weights[rows] -= 1.0
    else:
        active[rows] = False
    if not np.any(active):
        return problem.y[rows], prior
    # α is scaled so that μ = 2Sλ/s keeps its value for the other labels.
    total = float(weights[active].sum())
    without = replace(
        problem,
        weights=weights,
        active=active,
        alpha=problem.alpha * problem.total_weight / total,
    )
    v = start.v.copy()
    v[rows] = 0.0
    start = replace(start, v=v, fitted=problem.gram.matvec(v))
    solution = newton.solve(without, threshold, start=start)
    b = without.intercept_for(solution.fitted, threshold)
    if solution.factor is not None and not alone:
        prior = solution.factor.diagonals(border=problem.fit_intercept)[1][rows]
    return problem.y[rows] - b - solution.fitted[rows], prior
