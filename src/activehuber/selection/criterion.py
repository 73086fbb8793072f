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

to which labels of no group add P diag(t) P as above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import minimize

from activehuber._typing import Mask, Matrix, Vector
from activehuber.numerics import robust
from activehuber.numerics.likelihood import TINY, EvidenceByRidge, freedom, log_evidence
from activehuber.numerics.linalg import (
    BreakdownError,
    cholesky_in_place,
    inverse_in_place,
    multiply,
    multiply_symmetric,
    subtract_outer,
)
from activehuber.selection.candidates import Point
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
    rows : ndarray of shape (l,), int
        Which of all labelled rows these are.
    kept : ndarray of shape (l,), bool
        Which of them take part, where labels are judged.
    groups : ndarray of shape (l,), int, or None
        As in `Problem`.
    """

    y: Vector
    weights: Vector
    trusted: Mask
    fit_intercept: bool
    rows: np.ndarray
    kept: Mask
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

    def take(self, places: np.ndarray) -> ObservedLabels:
        """Some of them."""
        names = ("y", "weights", "trusted", "rows", "kept")
        taken = {name: getattr(self, name)[places] for name in names}
        groups = None if self.groups is None else self.groups[places]
        return replace(self, **taken, groups=groups)

    def some(self, at_most: int, seed: int) -> ObservedLabels:
        """As many, drawn from all if there are more."""
        drawn = np.random.default_rng(seed).permutation(len(self))[:at_most]
        return self if len(self) <= at_most else self.take(np.sort(drawn))


def projected_inverse(Q: Matrix, mu: Vector, fit_intercept: bool) -> tuple[Matrix, float]:
    """P of the module's docstring, and log |A|, with an intercept log |A| + log 1ᵀA⁻¹1.

    Q is overwritten.
    """
    Q.flat[:: len(Q) + 1] += mu
    factor = cholesky_in_place(Q)
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
    inverse = inverse_in_place(factor)
    if fit_intercept:
        sums = inverse.sum(axis=1)
        subtract_outer(inverse, sums, sums / sums.sum())
        log_det += float(np.log(sums.sum()))
    return inverse, log_det


def criterion(point: Point, labels: ObservedLabels, smoothing: float) -> tuple[float, Vector]:
    """L, and its slopes in the log factors and in log m; columns of y are summed.

    Parameters
    ----------
    smoothing : float
        ε, in units of y.
    """
    weights, mu = labels.weights[:, None], point.ridge / labels.weights
    P, _ = projected_inverse(point.gram(), mu, labels.fit_intercept)
    left = LeftOut.of(P, labels, mu)
    sizes = np.sqrt(left.errors**2 + smoothing**2)
    total = float(np.sum(weights * sizes))
    w = weights * left.errors / (sizes * total)
    u, alone = w / left.divisors, np.ones(len(labels), dtype=bool)
    for rows, inverse in left.blocks:
        u[rows], alone[rows] = inverse @ w[rows], False
    t, share = u * left.errors * alone[:, None], np.minimum(1.0, 1.0 / weights)
    M = multiply(P * np.sum(t * share, axis=1), P)
    if not np.all(alone):
        assert labels.groups is not None
        columns = np.equal.outer(labels.groups, np.unique(labels.groups[~alone]))
        for k in range(u.shape[1]):
            U = multiply(P, columns * u[:, [k]])
            M += multiply(U, multiply(columns.T * left.errors[:, k], P))
    M -= multiply_symmetric(P, u) @ left.pulls.T
    M = 0.5 * (M + M.T)
    explicit = float(np.sum(t * (1.0 - share) / mu[:, None]))
    slope_ridge = float(np.diagonal(M) @ mu) + explicit
    level = np.log(total / (labels.total_weight * u.shape[1]))
    return level, np.append(point.slopes(M), slope_ridge)


@dataclass(frozen=True)
class LeftOut:
    """Labels left out with their groups, a label of no group by one unit of its own.

    Attributes
    ----------
    pulls : ndarray of shape (l, k)
        g = P y.
    divisors : ndarray of shape (l, 1)
        D.
    errors : ndarray of shape (l, k)
        e.
    sizes : ndarray of shape (l,)
        q_i + μ_i max(1, s_i): the variance of e_i.
    blocks : list of (ndarray of shape (n, size), ndarray of shape (n, size, size))
        Rows of the groups of one size, and (P_BB)⁻¹ of each.
    """

    pulls: Matrix
    divisors: Matrix
    errors: Matrix
    sizes: Vector
    blocks: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, P: Matrix, labels: ObservedLabels, mu: Vector) -> LeftOut:
        """From P of the module's docstring."""
        counts, share = np.maximum(1.0, labels.weights), np.minimum(1.0, 1.0 / labels.weights)
        g = multiply_symmetric(P, labels.y.reshape(len(labels), -1))
        D = ((1.0 - share) / mu + share * np.diagonal(P))[:, None]
        errors, sizes, blocks = g / D, counts / D[:, 0], []
        by_size: dict[int, list[np.ndarray]] = {}
        for part in members(labels.groups if labels.in_groups else None):
            by_size.setdefault(len(part), []).append(part)
        for parts in by_size.values():
            rows = np.array(parts)
            try:
                M = np.linalg.inv(P[rows[:, :, None], rows[:, None, :]])
            except np.linalg.LinAlgError as error:
                raise BreakdownError("a group leaves nothing to predict it by") from error
            blocks.append((rows, M))
            errors[rows] = M @ g[rows]
            sizes[rows] = np.diagonal(M, axis1=1, axis2=2) + ((counts - 1.0) * mu)[rows]
        return cls(g, D, errors, np.maximum(sizes, mu * counts), blocks)


def levels_at_ridges(
    Q: Matrix, labels: ObservedLabels, ridges: Sequence[float], floor: float
) -> list[float]:
    """The evidence of the labels at many ridges, by groups if there are any; overwrites Q."""
    if labels.in_groups:
        return [group_evidence(Q.copy(), labels, ridge, floor) for ridge in ridges]
    border = labels.fit_intercept
    by_ridge = EvidenceByRidge(Q, labels.y, labels.weights, border=border, floor=floor)
    return [by_ridge.at(ridge) for ridge in ridges]


def group_evidence(
    Q: Matrix, labels: ObservedLabels, ridge: float, floor: float = 0.0
) -> float:
    """How likely labels are by those of other groups; overwrites Q.

    The log density per unit of weight of every label, left out with its group, up to constants
    and averaged over columns of y,

        −(S log τ² + Σ s_i log h_i) / 2S ,    τ² = Σ s_i e_i²/h_i / S ,

    h_i the variance of e_i for noise of variance m. It stands in for the evidence where groups
    are given: labels of a group predict each other by what the group has in common, whatever
    its rows say, and the evidence follows that with narrow kernels. Noise below `floor` is not
    seen.
    """
    weights, total = labels.weights, labels.total_weight
    mu = ridge / weights
    P, _ = projected_inverse(Q, mu, labels.fit_intercept)
    left = LeftOut.of(P, labels, mu)
    squares = weights @ (left.errors**2 / left.sizes[:, None]) / total
    level = float(np.mean(np.log(np.maximum(squares, max(floor**2 / ridge, TINY)))))
    return -0.5 * (level + float(weights @ np.log(left.sizes)) / total)


def evidence(Q: Matrix, labels: ObservedLabels, ridge: float) -> float:
    """Log evidence of the labels per unit of weight; overwrites Q. See `likelihood`.

    For flipped codes it chose a little better than the leave-one-out Brier score on small sets
    (0.3 points of accuracy on inner splits of five), and worse on a larger one.
    """
    if labels.in_groups:
        return group_evidence(Q, labels, ridge)
    return log_evidence(Q, labels.y, labels.weights, ridge, border=labels.fit_intercept)


def negative_log_marginal_likelihood(
    point: Point, labels: ObservedLabels
) -> tuple[float, Vector]:
    """Minus the `evidence`, and its slopes in the log factors and in log m.

    With M = (P − (S − 1) ggᵀ/yᵀg)/2S, averaged over columns, a change dA changes it by ⟨M, dA⟩.
    """
    total, more = labels.total_weight, labels.total_weight - len(labels)
    y, mu = labels.y.reshape(len(labels), -1), point.ridge / labels.weights
    degrees = freedom(labels.weights, border=labels.fit_intercept)
    P, level = projected_inverse(point.gram(), mu, labels.fit_intercept)
    g = multiply_symmetric(P, y)
    # Zero for a column of equal codes: the rows looked at may miss a class.
    sizes = np.maximum(np.einsum("ij,ij->j", y, g), TINY)
    level += degrees * float(np.mean(np.log(sizes))) + more * point.log_ridge
    M = P - multiply(g * (degrees / (len(sizes) * sizes)), np.ascontiguousarray(g.T))
    slopes = np.append(point.slopes(M), float(np.diagonal(M) @ mu) + more)
    return 0.5 / total * level, 0.5 / total * slopes


Goal = Callable[[Point, ObservedLabels], tuple[float, Vector]]


def improve(
    point: Point,
    labels: ObservedLabels,
    steps: int,
    *,
    move_ridge: bool = True,
    goal: Goal | None = None,
    ridge_range: tuple[float, float] = RIDGE_RANGE,
) -> Point:
    """Lower a goal on the labels kept by L-BFGS in log widths and log m.

    The goal is `criterion` if none is given.
    """
    labels = labels.take(np.flatnonzero(labels.kept))
    if len(labels) < 3:
        return point
    family = point.family.take(labels.rows)
    if goal is None:
        smoothing = SMOOTHING * robust.label_scale(labels.y, labels.weights)
        if smoothing == 0.0:
            return point
        goal = partial(criterion, smoothing=smoothing)
    pull = WIDTH_PRIOR / labels.total_weight if len(point.theta) > 1 else 0.0

    def objective(z: Vector) -> tuple[float, Vector]:
        try:
            level, slopes = goal(Point(family, z[:-1], z[-1]), labels)
        except BreakdownError:
            return 1e3, np.zeros_like(z)
        away = z[:-1] - z[:-1].mean() if len(z) > 1 else z[:-1]
        return level + 0.5 * pull * float(away @ away), slopes + pull * np.append(away, 0.0)

    start = np.append(point.theta, point.log_ridge)
    ends = np.log(ridge_range) if move_ridge else np.full(2, point.log_ridge)
    bounds = np.array([*[np.log(WIDTH_RANGE)] * len(point.theta), ends])
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
    end = np.clip(np.round(found.x, DECIMALS), *bounds.T)
    if objective(end)[0] >= objective(start)[0]:
        return point
    return Point(point.family, end[:-1], float(end[-1]))
