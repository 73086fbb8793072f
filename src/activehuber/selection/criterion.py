"""How well labels are predicted by the others, in closed form, and the slopes of that.

On l labels in use, with A = Q + diag(μ), μ_i = m/s_i, m = 2Sλ, and

    P = A⁻¹ − A⁻¹1 (1ᵀA⁻¹1)⁻¹ 1ᵀA⁻¹          (A⁻¹ without an intercept),

the least-squares fit without one unit of label i misses it by

    e_i = g_i / D_i ,    g = P y ,    D_i = (1 − p_i)/μ_i + p_i P_ii ,    p_i = min(1, 1/s_i).

Widths and m are moved to lower L = log Σ s_i √(e_i² + ε²), a smooth mean absolute error. With
w_i = ∂L/∂e_i, u_i = w_i/D_i and t_i = w_i g_i p_i/D_i², a change dA of the matrix changes L by

    ⟨M, dA⟩ ,    M = P diag(t) P − ½ (P u gᵀ + g uᵀP) ,

so one product of matrices gives the slopes for all widths at once. Codes ±1 of classes are
scored by their `evidence` instead.

Labels of a group B are left out together, e_B = (P_BB)⁻¹ g_B. With w_B = ∂L/∂e_B, u_B =
(P_BB)⁻¹ w_B, and U and E of one column a group, which hold its u_B and e_B and zeros,

    M = sym( P U EᵀP − P u gᵀ ) ,

in which a label of no group has the column u_i p_i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize

from activehuber._typing import Mask, Matrix, Vector
from activehuber.numerics import robust
from activehuber.numerics.likelihood import TINY, freedom, log_evidence
from activehuber.numerics.linalg import (
    BreakdownError,
    cholesky_in_place,
    inverse_in_place,
    multiply,
    multiply_symmetric,
    solve_cholesky,
    subtract_outer,
)
from activehuber.selection.candidates import Family, Point
from activehuber.solver.leave_one_out import members

# Where widths and the ridge may be moved.
WIDTH_RANGE = (1e-4, 1e3)
RIDGE_RANGE = (1e-5, 30.0)
# Decimals of log widths and log ridges at the end of a move: a tenth of a per cent of them.
DECIMALS = 3
# A Gaussian prior on log widths around their mean, in units of one label's log-likelihood:
# many widths overfit few labels otherwise.
WIDTH_PRIOR = 1.0
# ε of the criterion, in robust standard deviations of the labels.
SMOOTHING = 0.03


@dataclass(frozen=True)
class ObservedLabels:
    """Labelled rows as the search sees them.

    Attributes
    ----------
    y : ndarray of shape (l,), or (l, k) for k codes of classes
    weights : ndarray of shape (l,)
    trusted : ndarray of shape (l,), bool
    fit_intercept : bool
    groups : ndarray of shape (l,), int, or None
        As in `Problem`.
    """

    y: Vector
    weights: Vector
    trusted: Mask
    fit_intercept: bool
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def in_groups(self) -> bool:
        """Whether there are groups, and more than one."""
        if self.groups is None:
            return False
        return bool(np.any(self.groups < 0) or np.any(self.groups != self.groups[0]))

    @property
    def total_weight(self) -> float:
        """S."""
        return float(self.weights.sum())

    def take(self, rows: np.ndarray) -> ObservedLabels:
        """Some of them."""
        return ObservedLabels(
            self.y[rows],
            self.weights[rows],
            self.trusted[rows],
            self.fit_intercept,
            None if self.groups is None else self.groups[rows],
        )


def projected_inverse(Q: Matrix, mu: Vector, fit_intercept: bool) -> Matrix:
    """P of the module's docstring, shape (l, l); Q is overwritten."""
    return projected_inverse_and_log_det(Q, mu, fit_intercept)[0]


def projected_inverse_and_log_det(
    Q: Matrix, mu: Vector, fit_intercept: bool
) -> tuple[Matrix, float]:
    """P, and log |A|, with an intercept log |A| + log 1ᵀA⁻¹1; Q is overwritten."""
    Q.flat[:: len(Q) + 1] += mu
    factor = cholesky_in_place(Q)
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
    inverse = inverse_in_place(factor)
    if fit_intercept:
        sums = inverse.sum(axis=1)
        subtract_outer(inverse, sums, sums / sums.sum())
        log_det += float(np.log(sums.sum()))
    return inverse, log_det


def leave_one_out_parts(P: Matrix, labels: ObservedLabels, mu: Vector) -> tuple[Matrix, Matrix]:
    """g = P y and D, both (l, k): g/D are leave-one-out errors of the least-squares fit."""
    share = np.minimum(1.0, 1.0 / labels.weights)
    D = (1.0 - share) / mu + share * np.diagonal(P)
    return multiply_symmetric(P, labels.y.reshape(len(labels), -1)), D[:, None]


def fold_errors(P: Matrix, labels: ObservedLabels, folds: Sequence[np.ndarray]) -> Vector:
    """Errors of the least-squares fit on folds left out together, shape (l,).

    Without the labels of a fold B their errors are (P_BB)⁻¹ (P y)_B, as one label's is g/D; the
    ridge stays, so μ is not that of fewer labels. Folds, as indices, cover all labels.
    """
    pulls = multiply_symmetric(P, labels.y)
    errors = np.empty(len(labels))
    for part in folds:
        block = cholesky_in_place(np.ascontiguousarray(P[np.ix_(part, part)]))
        errors[part] = solve_cholesky(block, pulls[part])
    return errors


def criterion(
    family: Family, labels: ObservedLabels, theta: Vector, log_ridge: float, smoothing: float
) -> tuple[float, Vector, float]:
    """L, its slopes in the log factors, and its slope in log m; columns of y are summed.

    Parameters
    ----------
    smoothing : float
        ε, in units of y.
    """
    weights, y = labels.weights[:, None], labels.y.reshape(len(labels), -1)
    mu = np.exp(log_ridge) / weights
    P = projected_inverse(
        family.gram(theta, float(np.exp(log_ridge))), mu[:, 0], labels.fit_intercept
    )
    if labels.in_groups:
        return _group_criterion(family, labels, theta, mu[:, 0], smoothing, P)
    share = np.minimum(1.0, 1.0 / weights)
    g, D = leave_one_out_parts(P, labels, mu[:, 0])
    errors = g / D
    sizes = np.sqrt(errors**2 + smoothing**2)
    total = float(np.sum(weights * sizes))
    w = weights * errors / (sizes * total)
    t = np.sum(w * g * share / D**2, axis=1)
    M = multiply(P * t, P)
    pulls = multiply_symmetric(P, w / D) @ g.T
    M -= 0.5 * (pulls + pulls.T)
    explicit = float(np.sum(w * g * (1.0 - share) / (mu * D**2)))
    slope_ridge = float(np.diagonal(M) @ mu[:, 0]) + explicit
    level = np.log(total / (labels.total_weight * y.shape[1]))
    return level, family.slopes(theta, M), slope_ridge


def _group_criterion(
    family: Family,
    labels: ObservedLabels,
    theta: Vector,
    mu: Vector,
    smoothing: float,
    P: Matrix,
) -> tuple[float, Vector, float]:
    """`criterion` of one column, groups left out together; see the module's docstring."""
    share = np.minimum(1.0, 1.0 / labels.weights)
    g, D = (part[:, 0] for part in leave_one_out_parts(P, labels, mu))
    parts = members(labels.groups)
    blocks = [inverse_of(P, part) for part in parts]
    errors = g / D
    for part, block in zip(parts, blocks, strict=True):
        errors[part] = block @ g[part]
    sizes = np.sqrt(errors**2 + smoothing**2)
    total = float(labels.weights @ sizes)
    w = labels.weights * errors / (sizes * total)
    u = w / D
    explicit = u * errors * (1.0 - share) / mu
    alone = np.flatnonzero(labels.groups < 0)
    columns = np.zeros((len(labels), len(parts) + len(alone)))
    columns[alone, len(parts) + np.arange(len(alone))] = 1.0
    for k, (part, block) in enumerate(zip(parts, blocks, strict=True)):
        u[part], explicit[part], columns[part, k] = block @ w[part], 0.0, 1.0
    U = columns * (u * np.where(labels.groups < 0, share, 1.0))[:, None]
    M = multiply(multiply(P, U), np.ascontiguousarray(multiply(P, columns * errors[:, None]).T))
    M -= np.outer(multiply_symmetric(P, u), g)
    M = 0.5 * (M + M.T)
    slope_ridge = float(np.diagonal(M) @ mu) + float(np.sum(explicit))
    return np.log(total / labels.total_weight), family.slopes(theta, M), slope_ridge


def inverse_of(P: Matrix, part: np.ndarray) -> Matrix:
    """(P_BB)⁻¹ for the rows of a group."""
    return inverse_in_place(cholesky_in_place(np.ascontiguousarray(P[np.ix_(part, part)])))


class GroupsByRidge:
    """How likely labels are by those of other groups, at many ridges.

    The log density per unit of weight of every label, left out with its group, up to constants,

        −(S log τ² + Σ s_i log h_i) / 2S ,    τ² = Σ s_i e_i²/h_i / S ,

    h_i the variance of e_i for noise of variance m of one unit of weight (see
    `solver.leave_one_out`). It takes the place of the evidence where groups are given: labels of
    a group predict each other by what the group has in common, whatever its rows say, and the
    evidence follows that with narrow kernels. Parameters as in `EvidenceByRidge`.
    """

    def __init__(self, Q: Matrix, labels: ObservedLabels, *, floor: float) -> None:
        self.labels, self.floor, self.roots = labels, floor, np.sqrt(labels.weights)
        scaled = Q * self.roots[:, None] * self.roots
        values, self.vectors = eigh(scaled, check_finite=False, driver="evd")
        self.values = np.maximum(values, 0.0)
        self.parts: list[np.ndarray] = []
        by_size: dict[int, list[np.ndarray]] = {}
        for part in members(labels.groups):
            by_size.setdefault(len(part), []).append(part)
        self.parts = [np.array(parts) for parts in by_size.values()]

    def at(self, ridge: float) -> float:
        """Log density per unit of weight."""
        weights, scaled = self.labels.weights, self.vectors / np.sqrt(self.values + ridge)
        sums = scaled @ (self.roots @ scaled)
        pulls = scaled @ ((self.roots * self.labels.y) @ scaled)
        if self.labels.fit_intercept:
            total = float(self.roots @ sums)
            pulls -= sums * (float(self.roots @ pulls) / total)
            sums = sums / np.sqrt(total)
        else:
            sums = np.zeros_like(sums)
        # Of labels alone, one unit of each is left out.
        diagonal = weights * (np.einsum("ij,ij->i", scaled, scaled) - sums**2)
        share = np.minimum(1.0, 1.0 / weights)
        D = (1.0 - share) * weights / ridge + share * diagonal
        errors, h = self.roots * pulls / D, np.maximum(1.0, weights) / D
        for parts in self.parts:
            Z, ones = scaled[parts], sums[parts]
            P = Z @ Z.transpose(0, 2, 1) - ones[:, :, None] * ones[:, None, :]
            try:
                M = np.linalg.inv(P)
            except np.linalg.LinAlgError as error:
                raise BreakdownError("a group leaves nothing to predict it by") from error
            errors[parts] = np.einsum("gij,gj->gi", M, pulls[parts]) / self.roots[parts]
            own = np.diagonal(M, axis1=1, axis2=2) - ridge
            h[parts] = own / weights[parts] + ridge / (weights * share)[parts]
        h = np.maximum(h, ridge)
        total = self.labels.total_weight
        square = max(float(weights @ (errors**2 / h)) / total, self.floor**2 / ridge, TINY)
        return -0.5 * (float(np.log(square)) + float(weights @ np.log(h)) / total)


def evidence(Q: Matrix, labels: ObservedLabels, ridge: float) -> float:
    """Log evidence of the labels per unit of weight; overwrites Q. See `likelihood`.

    For flipped codes it chose a little better than the leave-one-out Brier score on small sets
    (0.3 points of accuracy on inner splits of five), and worse on a larger one.
    """
    return log_evidence(Q, labels.y, labels.weights, ridge, border=labels.fit_intercept)


def negative_log_marginal_likelihood(
    family: Family, labels: ObservedLabels, theta: Vector, log_ridge: float
) -> tuple[float, Vector, float]:
    """Minus the `evidence`, its slopes in the log factors, and its slope in log m.

    With M = (P − (S − 1) ggᵀ/yᵀg)/2S, averaged over columns, a change dA changes it by ⟨M, dA⟩.
    """
    ridge, total = float(np.exp(log_ridge)), labels.total_weight
    y, degrees = (
        labels.y.reshape(len(labels), -1),
        freedom(labels.weights, border=labels.fit_intercept),
    )
    P, level = projected_inverse_and_log_det(
        family.gram(theta, ridge), ridge / labels.weights, labels.fit_intercept
    )
    g = multiply_symmetric(P, y)
    # Zero for a column of equal codes: the rows looked at may miss a class.
    sizes = np.maximum(np.einsum("ij,ij->j", y, g), TINY)
    level += degrees * float(np.mean(np.log(sizes))) + (total - len(labels)) * log_ridge
    M = P - multiply(g * (degrees / (len(sizes) * sizes)), np.ascontiguousarray(g.T))
    slope = float(np.diagonal(M) @ (ridge / labels.weights)) + total - len(labels)
    half = 0.5 / total
    return half * level, half * family.slopes(theta, M), half * slope


Goal = Callable[[Family, ObservedLabels, Vector, float], tuple[float, Vector, float]]


def improve(
    point: Point,
    labels: ObservedLabels,
    kept: Mask,
    steps: int,
    *,
    move_ridge: bool = True,
    goal: Goal | None = None,
    ridge_range: tuple[float, float] = RIDGE_RANGE,
) -> Point:
    """Lower a goal on the kept labels by L-BFGS in log widths and log m.

    The goal is `criterion` if none is given.
    """
    rows = np.flatnonzero(kept)
    family, some = point.family.take(rows), labels.take(rows)
    if len(rows) < 3:
        return point
    if goal is None:
        smoothing = SMOOTHING * robust.label_scale(some.y, some.weights)
        if smoothing == 0.0:
            return point
        goal = partial(criterion, smoothing=smoothing)
    pull = WIDTH_PRIOR / some.total_weight if len(point.theta) > 1 else 0.0

    def objective(z: Vector) -> tuple[float, Vector]:
        try:
            level, slopes, slope = goal(family, some, z[:-1], z[-1])
        except BreakdownError:
            return 1e3, np.zeros_like(z)
        away = z[:-1] - z[:-1].mean() if len(z) > 1 else z[:-1]
        level += 0.5 * pull * float(away @ away)
        return level, np.append(slopes + pull * away, slope)

    start = np.append(point.theta, point.log_ridge)
    low, high = np.log(WIDTH_RANGE)
    bounds = [(low, high)] * len(point.theta)
    ends = tuple(np.log(ridge_range))
    bounds.append(ends if move_ridge else (point.log_ridge, point.log_ridge))
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": steps, "ftol": 1e-5},
    )
    if not np.all(np.isfinite(found.x)):
        return point
    # The last digits are those of rounding, which follows threads and processors: they go.
    end = np.clip(np.round(found.x, DECIMALS), *np.transpose(bounds))
    if objective(end)[0] >= objective(start)[0]:
        return point
    return Point(point.family, end[:-1], float(end[-1]))
