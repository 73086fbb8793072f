"""Widths and alpha from the labels themselves: leave-one-out errors in closed form.

On l labels in use, with A = Q + diag(μ), μ_i = m/s_i, m = 2Sλ, and

    P = A⁻¹ − A⁻¹1 (1ᵀA⁻¹1)⁻¹ 1ᵀA⁻¹          (A⁻¹ without an intercept),

the least-squares fit without one unit of label i misses it by

    e_i = g_i / D_i ,    g = P y ,    D_i = (1 − p_i)/μ_i + p_i P_ii ,    p_i = min(1, 1/s_i).

Widths and m are moved to lower L = log Σ s_i √(e_i² + ε²), a smooth mean absolute error. With
w_i = ∂L/∂e_i, u_i = w_i/D_i and t_i = w_i g_i p_i/D_i², a change dA of the matrix changes L by

    ⟨M, dA⟩ ,    M = P diag(t) P − ½ (P u gᵀ + g uᵀP) ,

so one product of matrices gives the slopes for all widths at once.

Bad labels take no part in that: every point is first judged by the adaptive threshold, and L is
taken on the labels it kept. That choice flatters itself, though: labels that were kept agree
with each other because those that disagreed are gone. So the last decision, between kernels,
between one width and many, and between dropping labels and only binding them, is made on
folds whose labels had no say in what was dropped.

Codes ±1 of classes are scored by their `evidence` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import xlogy

from activehuber import refinement, thresholds
from activehuber._typing import Mask, Matrix, Vector
from activehuber.gram import DenseGram
from activehuber.kernels import Kernel
from activehuber.leave_one_out import leave_one_out
from activehuber.linalg import (
    BreakdownError,
    cholesky_in_place,
    inverse_in_place,
    multiply,
    multiply_symmetric,
    solve_cholesky,
)
from activehuber.newton import Solution, solve
from activehuber.problem import Problem

WIDTH_KERNELS = ("laplacian", "rbf")
# The grid of the first look: factors on gamma="scale", and the ridge m = 2Sλ, which is noise
# variance over signal variance and does not depend on the number of labels.
WIDTH_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
# Where the later moves may go.
WIDTH_RANGE = (1e-4, 1e3)
RIDGE_RANGE = (1e-5, 30.0)
# The same for codes of classes: where 40 % of them are flipped, noise has 25 times the variance
# of the signal, and a linear kernel multiplies that by the number of features.
CLASS_RIDGES = (1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
CLASS_RIDGE_RANGE = (1e-5, 1e5)
# Rows that each part of the search is made on: the ridge m does not depend on their number,
# and widths hardly do, while the time grows with its cube. Many widths need more labels.
LOOK_ROWS = 300
MOVE_ROWS = 500
RELEVANCE_ROWS = 700
DECIDE_ROWS = 600
RANK_ROWS = 1000
CLASS_LOOK_ROWS = 500
CLASS_MOVE_ROWS = 700
CLASS_DECIDE_ROWS = 1500
# A kernel whose best score is worse than this share of the best one's is left behind.
HOPELESS = 1.25
# Steps of L-BFGS for one width, and for one a feature.
STEPS_ONE = 12
STEPS_MANY = 30
STEPS_LAST = 6
# A Gaussian prior on log widths around their mean, in units of one label's log-likelihood:
# many widths overfit few labels otherwise.
WIDTH_PRIOR = 1.0
# More freedom must pay for itself: losses of points with one width a feature are made larger
# by this share before they are compared.
HANDICAP_WIDTHS = 0.04
# Labels that are bound rather than dropped are bound at this many robust standard deviations:
# nearly the least absolute deviations; and their pull ξ/m is one of these, in robust standard
# deviations of the labels.
BIND_AT = 0.2
LEAST_BOUND_RIDGE = 1e-6
PULLS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# Errors count up to so many robust standard deviations of the best errors seen.
FARTHEST = 60.0
# ε of the criterion, in robust standard deviations of the labels.
SMOOTHING = 0.03
FOLDS = 5
# Labels beyond so many scales are not asked how wide an interval has to be.
FAR_OUT = 5.0
# Candidates whose loss on few rows is up to this factor that of the best are tried on more.
RANK_MARGIN = 1.1
# In place of zero under a logarithm.
TINY = float(np.finfo(np.float64).tiny)
# Newton steps of one solve at most.
MOST_STEPS = 200


@dataclass(frozen=True)
class Labels:
    """Labelled rows as the search sees them.

    Attributes
    ----------
    y : ndarray of shape (l,), or (l, k) for k codes of classes
    weights : ndarray of shape (l,)
    trusted : ndarray of shape (l,), bool
    fit_intercept : bool
    """

    y: Vector
    weights: Vector
    trusted: Mask
    fit_intercept: bool

    def __len__(self) -> int:
        return len(self.y)

    @property
    def total_weight(self) -> float:
        """S."""
        return float(self.weights.sum())

    def take(self, rows: np.ndarray) -> Labels:
        """Some of them."""
        return Labels(self.y[rows], self.weights[rows], self.trusted[rows], self.fit_intercept)


@dataclass(frozen=True)
class Part:
    """One kernel of the sum, c² K: a view, or the whole of X.

    Attributes
    ----------
    kernel : Kernel
        With the widths that a factor of one leaves as they are.
    X : ndarray of shape (l, d)
    share : float
        c².
    place : ndarray of shape (d,), int
        Which of the log factors θ belongs to each feature; -1 for none.
    """

    kernel: Kernel
    X: Matrix
    share: float
    place: np.ndarray

    @property
    def moves(self) -> bool:
        """Whether any width is free."""
        return bool(np.any(self.place >= 0))

    def widths(self, theta: Vector) -> float | Vector:
        """γ at given log factors: a number while all features share one."""
        if not self.moves:
            return self.kernel.gamma
        if np.ndim(self.kernel.gamma) == 0 and len(set(self.place.tolist())) == 1:
            return float(self.kernel.gamma * np.exp(theta[self.place[0]]))
        factors = np.where(self.place >= 0, np.exp(theta[self.place]), 1.0)
        return self.kernel.gamma * factors

    def at(self, theta: Vector) -> Kernel:
        """The kernel at given log factors."""
        return replace(self.kernel, gamma=self.widths(theta))

    def slopes(self, theta: Vector, gram: Matrix, M: Matrix) -> Vector:
        """⟨M, d(c²K)/dθ_k⟩ for every k, shape of θ; `gram` is K."""
        out = np.zeros(len(theta))
        if not self.moves:
            return out
        if len(set(self.place.tolist())) == 1:
            # K = exp(−γ·distance), so dK/dlog γ = K log K.
            out[self.place[0]] = self.share * float(np.sum(M * xlogy(gram, gram)))
            return out
        assert self.kernel.name in WIDTH_KERNELS, "one width a feature is for these alone"
        W = M * gram
        widths = np.broadcast_to(self.widths(theta), self.place.shape)
        each = _by_squares(W, self.X) if self.kernel.name == "rbf" else _by_sizes(W, self.X)
        np.add.at(
            out, self.place[self.place >= 0], (-self.share * widths * each)[self.place >= 0]
        )
        return out


def _by_squares(W: Matrix, X: Matrix) -> Vector:
    """Σ_ik W_ik (x_ij − x_kj)² for every feature j; W symmetric."""
    centred = X - X.mean(axis=0)
    return 2.0 * (W.sum(axis=1) @ centred**2) - 2.0 * np.sum(
        centred * multiply(W, centred), axis=0
    )


def _by_sizes(W: Matrix, X: Matrix) -> Vector:
    """Σ_ik W_ik |x_ij − x_kj| for every feature j."""
    buffer = np.empty_like(W)
    out = np.empty(X.shape[1])
    for j, column in enumerate(X.T):
        np.subtract(column[:, None], column[None, :], out=buffer)
        np.abs(buffer, out=buffer)
        out[j] = np.vdot(W, buffer)
    return out


@dataclass(frozen=True)
class Family:
    """Q(θ) = Σ c² K(θ): all that the search may move, for one choice of kernels.

    Attributes
    ----------
    name : str
        Of the kernel, or "views".
    parts : tuple of Part
    n_widths : int
        Log factors in θ.
    manifold : float
    reduce : callable or None
        (θ, m) → Q on all labelled rows where a graph or agreement between views makes Q
        depend on the ridge too; such a family is looked at, but not moved.
    rows : ndarray of int or None
        The labelled rows that are meant; None: all.
    """

    name: str
    parts: tuple[Part, ...]
    n_widths: int
    manifold: float = 0.0
    reduce: Callable[[Vector, float], Matrix] | None = None
    rows: np.ndarray | None = None

    def gram(self, theta: Vector, ridge: float) -> Matrix:
        """Q of shape (l, l), fresh."""
        if self.reduce is not None:
            Q = self.reduce(theta, ridge)
            return Q if self.rows is None else Q[np.ix_(self.rows, self.rows)].copy()
        total = None
        for part in self.parts:
            K = part.at(theta).gram(part.X)
            if part.share != 1.0:
                K *= part.share
            total = K if total is None else total + K
        assert total is not None
        return total

    def slopes(self, theta: Vector, M: Matrix) -> Vector:
        """⟨M, dQ/dθ_k⟩, shape (n_widths,)."""
        out = np.zeros(self.n_widths)
        for part in self.parts:
            if part.moves:
                out += part.slopes(theta, part.at(theta).gram(part.X), M)
        return out

    def take(self, rows: np.ndarray) -> Family:
        """The same on some of the rows."""
        if self.reduce is not None:
            known = np.arange(len(self.parts[0].X)) if self.rows is None else self.rows
            return replace(self, rows=known[rows])
        if any(part.kernel.name == "precomputed" for part in self.parts):
            parts = tuple(replace(p, X=p.X[np.ix_(rows, rows)]) for p in self.parts)
        else:
            parts = tuple(replace(part, X=part.X[rows]) for part in self.parts)
        return replace(self, parts=parts)

    def one_width_each(self) -> Family:
        """The same family with one width a feature (one kernel) or a view (several)."""
        if len(self.parts) == 1:
            d = self.parts[0].X.shape[1]
            parts = (replace(self.parts[0], place=np.arange(d)),)
            return replace(self, parts=parts, n_widths=d)
        parts_of_views, index = [], 0
        for part in self.parts:
            place = np.full(len(part.place), index if part.moves else -1)
            parts_of_views.append(replace(part, place=place))
            index += int(part.moves)
        return replace(self, parts=tuple(parts_of_views), n_widths=index)


@dataclass(frozen=True)
class Point:
    """A place in the search: log factors on the widths, and the log of the ridge m."""

    family: Family
    theta: Vector
    log_ridge: float

    @property
    def ridge(self) -> float:
        """The ridge m = 2Sλ."""
        return float(np.exp(self.log_ridge))

    def gram(self, rows: np.ndarray | None = None) -> Matrix:
        """Q on all rows or on some."""
        family = self.family if rows is None else self.family.take(rows)
        return family.gram(self.theta, self.ridge)

    def with_one_width_each(self) -> Point:
        """The same place, where every feature or view may move by itself."""
        many = self.family.one_width_each()
        start = self.theta[0] if len(self.theta) else 0.0
        return Point(many, np.full(many.n_widths, start), self.log_ridge)


# --- the criterion ----------------------------------------------------------------------


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
        inverse -= np.outer(sums, sums / sums.sum())
        log_det += float(np.log(sums.sum()))
    return inverse, log_det


def leave_one_out_parts(P: Matrix, labels: Labels, mu: Vector) -> tuple[Matrix, Matrix]:
    """g = P y and D, both (l, k): g/D are leave-one-out errors of the least-squares fit."""
    share = np.minimum(1.0, 1.0 / labels.weights)
    D = (1.0 - share) / mu + share * np.diagonal(P)
    return multiply_symmetric(P, labels.y.reshape(len(labels), -1)), D[:, None]


def fold_errors(P: Matrix, labels: Labels, folds: Sequence[np.ndarray]) -> Vector:
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
    family: Family, labels: Labels, theta: Vector, log_ridge: float, smoothing: float
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


def evidence(Q: Matrix, labels: Labels, ridge: float) -> float:
    """Log evidence of the labels per unit of weight, up to constants; overwrites Q.

    The labels are taken for a Gaussian process of covariance σ²A, σ² at its best and the
    intercept integrated out (restricted likelihood). Averaged over the columns of y,

        −((S − 1) log yᵀPy + log |A| + log 1ᵀA⁻¹1 + Σ (s_i − 1) log m) / 2S ,

    without an intercept −(S log yᵀPy + log |A| + Σ …)/2S. The sum over s_i makes a weight of k
    equal k repetitions. For flipped codes it chose a little better than the leave-one-out Brier
    score on small sets (0.3 points of accuracy on inner splits of five), and worse on a larger
    one.
    """
    return _evidence_and_parts(Q, labels, ridge)[0]


def _evidence_and_parts(
    Q: Matrix, labels: Labels, ridge: float
) -> tuple[float, Matrix, Matrix, Vector]:
    """The evidence, P (l, l), g = P y (l, k), and yᵀPy of every column (k,)."""
    y, total = labels.y.reshape(len(labels), -1), labels.total_weight
    P, log_det = projected_inverse_and_log_det(Q, ridge / labels.weights, labels.fit_intercept)
    g = multiply_symmetric(P, y)
    # Zero for a column of equal codes: the rows looked at may miss a class.
    sizes = np.maximum(np.einsum("ij,ij->j", y, g), TINY)
    level = _freedom(labels) * float(np.mean(np.log(sizes))) + log_det
    level += (total - len(labels)) * np.log(ridge)
    return -0.5 * level / total, P, g, sizes


def _freedom(labels: Labels) -> float:
    """Labels less one for an intercept."""
    return max(labels.total_weight - float(labels.fit_intercept), 1.0)


def surprise(
    family: Family, labels: Labels, theta: Vector, log_ridge: float
) -> tuple[float, Vector, float]:
    """Minus the `evidence`, its slopes in the log factors, and its slope in log m.

    With M = (P − (S − 1) ggᵀ/yᵀg)/2S, averaged over columns, a change dA changes it by ⟨M, dA⟩.
    """
    ridge, total = float(np.exp(log_ridge)), labels.total_weight
    value, P, g, sizes = _evidence_and_parts(family.gram(theta, ridge), labels, ridge)
    M = P - multiply(g * (_freedom(labels) / (len(sizes) * sizes)), np.ascontiguousarray(g.T))
    slope = float(np.diagonal(M) @ (ridge / labels.weights)) + total - len(labels)
    half = 0.5 / total
    return -value, half * family.slopes(theta, M), half * slope


Goal = Callable[[Family, Labels, Vector, float], tuple[float, Vector, float]]


def improve(
    point: Point,
    labels: Labels,
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
        smoothing = SMOOTHING * thresholds.label_scale(some.y, some.weights)
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
    if not np.all(np.isfinite(found.x)) or found.fun >= objective(start)[0]:
        return point
    return Point(point.family, found.x[:-1], float(found.x[-1]))


# --- judging a point --------------------------------------------------------------------


@dataclass(frozen=True)
class Mode:
    """What is done about labels far out.

    Attributes
    ----------
    removal : float or None
        Drop them, as threshold="adaptive" does with this `removal`; or
    threshold : float
        bind them at this ξ; inf is least squares.
    """

    removal: float | None
    threshold: float = np.inf


@dataclass(frozen=True)
class Verdict:
    """What a mode makes of the labels at one point.

    Attributes
    ----------
    kept : ndarray of shape (l,), bool
    errors : ndarray of shape (l,)
        Leave-one-out errors of all labels, dropped ones included.
    """

    kept: Mask
    errors: Vector


def judge(Q: Matrix, labels: Labels, ridge: float, mode: Mode) -> Verdict | None:
    """Fit in one mode; None if double precision does not suffice."""
    try:
        problem, _ = _problem(Q, labels, ridge)
        problem, solution = _fit(problem, labels.trusted, mode)
        residuals = problem.residuals(solution)
        level = mode.threshold if mode.removal is None else np.inf
        loo = leave_one_out(problem, solution, residuals, problem.mu, level)
    except BreakdownError:
        return None
    return Verdict(problem.active, loo.residuals)


def held_out_errors(
    Q: Matrix,
    labels: Labels,
    ridge: float,
    mode: Mode,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Vector | None:
    """Errors on folds that had no say in the fit, shape (l,)."""
    errors = np.full(len(labels), np.nan)
    for train, test in folds:
        some = labels.take(train)
        try:
            problem, centre = _problem(
                np.ascontiguousarray(Q[np.ix_(train, train)]),
                some,
                ridge * some.total_weight / labels.total_weight,
            )
            _, solution = _fit(problem, some.trusted, mode)
        except BreakdownError:
            return None
        predicted = multiply(np.ascontiguousarray(Q[np.ix_(test, train)]), solution.v)
        errors[test] = labels.y[test] - centre - solution.intercept - predicted
    return errors


def _problem(Q: Matrix, labels: Labels, ridge: float) -> tuple[Problem, float]:
    centre = 0.0
    if labels.fit_intercept:
        centre = thresholds.weighted_median(labels.y, labels.weights)
    problem = Problem(
        gram=DenseGram(Q),
        y=labels.y - centre,
        weights=labels.weights,
        alpha=ridge / (2.0 * labels.total_weight),
        fit_intercept=labels.fit_intercept,
        active=np.ones(len(labels), dtype=bool),
    )
    return problem, centre


def _fit(problem: Problem, trusted: Mask, mode: Mode) -> tuple[Problem, Solution]:
    """The problem with the labels left in use, and its solution."""
    if mode.removal is None:
        return problem, solve(problem, mode.threshold)
    trace = refinement.adaptive(problem, mode.removal, trusted, MOST_STEPS, _unheard)
    return trace.problem, trace.solution


def _unheard(threshold: float, n_labels: int) -> None:
    """Fits of the search report nothing."""


def robust_scale(errors: Vector, weights: Vector) -> float:
    """1.4826 times the median of |errors|."""
    return thresholds.MAD_TO_SIGMA * thresholds.weighted_median(np.abs(errors), weights)


def robust_loss(errors: Vector, weights: Vector, scale: float) -> float:
    """Mean of log(1 + (e/scale)²), |e| held within FARTHEST scales.

    Near zero it counts squares, far out only logarithms, and no label can count for more than
    a constant: wrong labels cannot steer a choice, and hard but right ones still count.
    """
    sizes = np.minimum(np.abs(errors) / scale, FARTHEST)
    return float(np.average(np.log1p(sizes**2), weights=weights))


def common_scale(several: Sequence[Vector], weights: Vector) -> float:
    """The smallest positive robust scale among several sets of errors; 1 if there is none."""
    scales = [robust_scale(errors, weights) for errors in several]
    return min((scale for scale in scales if scale > 0.0), default=1.0)


# --- the search -------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One line of the record: a point, how it was reached, its score (higher is better)."""

    point: Point
    stage: str
    mode: Mode
    score: float


@dataclass(frozen=True)
class Choice:
    """The end of a search.

    Attributes
    ----------
    point : Point
        On all labelled rows.
    mode : Mode
    score : float
        Minus the robust loss of the last decision.
    trials : list of Trial
    held_out : ndarray of shape (l,)
        Errors on the folds of the last decision; NaN for labels that took no part in it.
    """

    point: Point
    mode: Mode
    score: float
    trials: list[Trial]
    held_out: Vector


@dataclass(frozen=True)
class Plan:
    """What may be tried.

    Attributes
    ----------
    log_factors : tuple of float
        Log factors on the widths for the first look.
    log_ridges : tuple of float
        Logs of the ridge for the first look.
    move : bool
        Whether the search may leave the grid.
    move_ridge : bool
        Whether the ridge may move then.
    relevance : bool
        Whether features (or views) get widths of their own.
    removals : tuple of float or None
        Settings of `removal` to decide between; None binds labels at a small threshold and
        drops none, inf is least squares.
    with_graph : tuple of callables
        Each turns a family into one with a graph, to be tried at the best points.
    without_graph : bool
        Whether the families themselves may be chosen.
    random_state : int
        For the rows of the first look and the folds.
    report : callable
        Gets a line of text for each stage.
    """

    log_factors: tuple[float, ...]
    log_ridges: tuple[float, ...]
    move: bool = True
    move_ridge: bool = True
    relevance: bool = False
    removals: tuple[float | None, ...] = (refinement.DEFAULT_REMOVAL, None, np.inf)
    with_graph: tuple[Callable[[Family], Family], ...] = ()
    without_graph: bool = True
    random_state: int = 0
    report: Callable[[str], Any] = lambda line: None


UNFIT = (
    "no candidate could be fitted in double precision; give larger alphas or standardise "
    "the features"
)


def search(families: Sequence[Family], labels: Labels, plan: Plan) -> Choice:
    """Look at a grid, move from its best points, and decide on held-out folds.

    Parameters
    ----------
    families : sequence of Family
        One a kernel, on all labelled rows, with one width.
    """
    finite = [r for r in plan.removals if r is not None and np.isfinite(r)]
    mode = Mode(finite[0] if finite else refinement.DEFAULT_REMOVAL)
    trials = _look(families, labels, plan, mode)
    best_score = max(trial.score for trial in trials)
    ends: list[Point] = []
    paths: list[list[Point]] = []
    for family in families:
        own = [trial for trial in trials if trial.point.family is family]
        if not own:
            continue
        best = max(own, key=lambda trial: trial.score)
        if best.score < HOPELESS * best_score:  # scores are negative
            continue
        paths.append(_move(best.point, labels, plan, mode, trials))
        ends += _with_graphs(paths[-1], plan)
        plan.report(f"{family.name}: moved to {len(paths[-1])} candidates")
    if len(paths) == 2 and plan.without_graph and plan.move:
        ends.append(sum_of(paths[0][-1], paths[1][-1]))
    return _decide(ends, labels, plan, trials)


def sum_of(left: Point, right: Point) -> Point:
    """Half of each kernel, with the geometric mean of the two ridges."""
    offset = left.family.n_widths
    parts = tuple(replace(part, share=0.5 * part.share) for part in left.family.parts)
    for part in right.family.parts:
        place = np.where(part.place >= 0, part.place + offset, -1)
        parts += (replace(part, share=0.5 * part.share, place=place),)
    family = Family(
        f"{left.family.name} + {right.family.name}", parts, offset + right.family.n_widths
    )
    theta = np.concatenate([left.theta, right.theta])
    return Point(family, theta, 0.5 * (left.log_ridge + right.log_ridge))


def search_classes(families: Sequence[Family], labels: Labels, plan: Plan) -> Choice:
    """The same for codes of ±1 (one column a class), all in closed form.

    Codes bound the errors by themselves, so points are scored by least squares, by the evidence
    of the codes. Which labels to drop is left to the classifier.
    """
    rows = _subset(len(labels), CLASS_LOOK_ROWS, plan.random_state)
    some, trials = labels.take(rows), []
    for family, point, Q in grid(families, rows, plan):
        score = _scored_by_evidence(Q.copy(), some, point.ridge)
        if score is not None:
            trials.append(Trial(replace(point, family=family), "look", Mode(None), score))
    if not trials:
        raise ValueError(UNFIT)
    plan.report(f"looked at {len(trials)} points on {len(rows)} labels")
    many = _subset(len(labels), CLASS_DECIDE_ROWS, plan.random_state + 2)
    ends: list[Trial] = []
    for family in families:
        own = [trial for trial in trials if trial.point.family is family]
        if not own:
            continue
        moved = _move_classes(max(own, key=lambda trial: trial.score).point, labels, plan)
        for point in _with_graphs([moved], plan):
            score = _scored_by_evidence(point.gram(many), labels.take(many), point.ridge)
            if score is not None:
                ends.append(Trial(point, "decide", Mode(None), score))
    if not ends:
        raise ValueError(UNFIT)
    plan.report(f"decided between {len(ends)} candidates on {len(many)} labels")
    best = max(ends, key=lambda trial: trial.score)
    nothing = np.full(len(labels), np.nan)
    return Choice(best.point, best.mode, best.score, trials + ends, nothing)


def _move_classes(start: Point, labels: Labels, plan: Plan) -> Point:
    """From the best point of the grid to a better one, first with one width, then with many."""
    rows = _subset(len(labels), CLASS_MOVE_ROWS, plan.random_state + 1)
    some, everyone = labels.take(rows), np.ones(len(rows), dtype=bool)
    here = start
    for stage, steps in _stages(start, plan):
        wide = stage == "relevance" and len(here.theta) != here.family.one_width_each().n_widths
        here = here.with_one_width_each() if wide else here
        there = improve(
            replace(here, family=here.family.take(rows)),
            some,
            everyone,
            steps,
            move_ridge=plan.move_ridge,
            goal=surprise,
            ridge_range=CLASS_RIDGE_RANGE,
        )
        here = replace(there, family=here.family)
    return here


def _scored_by_evidence(Q: Matrix, labels: Labels, ridge: float) -> float | None:
    """Evidence; None beyond double precision. Overwrites Q."""
    try:
        return evidence(Q, labels, ridge)
    except BreakdownError:
        return None


def _with_graphs(points: Sequence[Point], plan: Plan) -> list[Point]:
    """The points themselves, and the last of them with every graph and three ridges."""
    found = list(points) if plan.without_graph else []
    last = points[-1]
    for make in plan.with_graph:
        family = make(last.family)
        moves = (0.0, -np.log(10.0), np.log(10.0)) if plan.move_ridge else (0.0,)
        found += [Point(family, last.theta, last.log_ridge + move) for move in moves]
    return found


def _subset(n: int, at_most: int, seed: int) -> np.ndarray:
    if n <= at_most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:at_most])


def _look(families: Sequence[Family], labels: Labels, plan: Plan, mode: Mode) -> list[Trial]:
    """The whole grid, on a part of the rows; each point judged by the adaptive threshold."""
    rows = _subset(len(labels), LOOK_ROWS, plan.random_state)
    some = labels.take(rows)
    seen: list[tuple[Point, Vector]] = []
    for family, point, Q in grid(families, rows, plan):
        verdict = judge(Q, some, point.ridge, mode)
        if verdict is not None:
            seen.append((replace(point, family=family), verdict.errors))
    if not seen:
        raise ValueError(UNFIT)
    plan.report(f"looked at {len(seen)} points on {len(rows)} labels")
    scale = common_scale([errors for _, errors in seen], some.weights)
    return [
        Trial(point, "look", mode, -robust_loss(errors, some.weights, scale))
        for point, errors in seen
    ]


def grid(
    families: Sequence[Family], rows: np.ndarray, plan: Plan
) -> Iterator[tuple[Family, Point, Matrix]]:
    """Every family at every point of the grid: the family, the point and Q on some rows."""
    for family in families:
        Q, theta = None, None
        for point in grid_points(family.take(rows), plan):
            if Q is None or point.theta is not theta or family.reduce is not None:
                Q, theta = point.gram(), point.theta
            yield family, point, Q


def grid_points(family: Family, plan: Plan) -> Iterator[Point]:
    """The points of the grid, all ridges of one width (the same θ) after each other."""
    for factor in plan.log_factors if family.n_widths else (0.0,):
        theta = np.full(family.n_widths, factor)
        yield from (Point(family, theta, log_ridge) for log_ridge in plan.log_ridges)


def _move(
    start: Point, labels: Labels, plan: Plan, mode: Mode, trials: list[Trial]
) -> list[Point]:
    """From the best point of the grid to better ones; each kept only if it scores better.

    Returns the last point with one width, and the last with many if there is one.
    """
    at_most = RELEVANCE_ROWS if plan.relevance else MOVE_ROWS
    rows = _subset(len(labels), at_most, plan.random_state + 1)
    some = labels.take(rows)
    verdict = judge(start.gram(rows), some, start.ridge, mode)
    if verdict is None or start.family.reduce is not None:
        return [start]
    scale = common_scale([verdict.errors], some.weights)
    level = robust_loss(verdict.errors, some.weights, scale)
    ends = {"move": start}
    for stage, steps in _stages(start, plan):
        here = ends.get(stage) or ends["move"].with_one_width_each()
        small = replace(here, family=here.family.take(rows))
        there = improve(small, some, verdict.kept, steps, move_ridge=plan.move_ridge)
        found = None if there is small else judge(there.gram(), some, there.ridge, mode)
        if found is None:
            continue
        score = robust_loss(found.errors, some.weights, scale)
        moved = replace(there, family=here.family)
        trials.append(Trial(moved, stage, mode, -score))
        if score < level:
            ends[stage], verdict, level = moved, found, score
    return list(ends.values())


def _stages(start: Point, plan: Plan) -> list[tuple[str, int]]:
    """Names and steps of the moves to make."""
    stages = []
    if plan.move and (start.family.n_widths or plan.move_ridge):
        stages += [("move", STEPS_ONE)] * 2
    if plan.relevance and start.family.one_width_each().n_widths > 1:
        stages += [("relevance", STEPS_MANY), ("relevance", STEPS_MANY // 3)]
    return stages


def _decide(ends: Sequence[Point], labels: Labels, plan: Plan, trials: list[Trial]) -> Choice:
    """Among the ends of all moves and all modes, by held-out folds."""
    rows = _subset(len(labels), DECIDE_ROWS, plan.random_state + 2)
    some = labels.take(rows)
    folds = folds_of(len(some), plan.random_state)
    seen: list[tuple[Point, Mode, Vector]] = []
    for point in ends:
        Q = point.gram(rows)
        for removal in plan.removals:
            if removal is None:
                bound = _best_bound(point, Q, some, plan.move_ridge)
                if bound is None:
                    continue
                here, mode = bound
            else:
                here, mode = point, Mode(None if removal == np.inf else removal)
            errors = held_out_errors(Q, some, here.ridge, mode, folds)
            if errors is not None:
                seen.append((here, mode, errors))
    if not seen:
        raise ValueError(UNFIT)
    scale = common_scale([errors for *_, errors in seen], some.weights)
    decided = []
    for point, mode, errors in seen:
        score = robust_loss(errors, some.weights, scale) * _handicap(point)
        decided.append(Trial(point, "decide", mode, -score))
    trials += decided
    plan.report(f"decided between {len(decided)} candidates on {len(folds)} folds")
    place = int(np.argmax([trial.score for trial in decided]))
    if len(rows) < len(labels):
        place = _ranked_on_more(decided, place, labels, plan)
    best, held_out = decided[place], np.full(len(labels), np.nan)
    held_out[rows] = _of_good_labels(seen[place][2], best, some, rows)
    point = best.point
    binds = best.mode.removal is None and np.isfinite(best.mode.threshold)
    if len(labels) > MOVE_ROWS and plan.move and not binds:
        point = _polish(best, labels, plan)
    return Choice(point, best.mode, best.score, trials, held_out)


def _ranked_on_more(decided: list[Trial], first: int, labels: Labels, plan: Plan) -> int:
    """Which candidate is best on more rows, if labels are to be dropped or not as decided.

    Smoother kernels gain more from more labels. By leave-one-out errors, which are honest where
    no label is dropped, and where labels are dropped flatter all candidates alike.
    """
    rows = _subset(len(labels), RANK_ROWS, plan.random_state + 3)
    some, drops = labels.take(rows), decided[first].mode.removal is not None
    within = RANK_MARGIN * decided[first].score  # scores are negative
    places = [
        i
        for i, trial in enumerate(decided)
        if (trial.mode.removal is not None) == drops and trial.score >= within
    ]
    if len(places) == 1:
        return first
    verdicts = {}
    for i in places:
        point, mode = decided[i].point, decided[i].mode
        verdict = judge(point.gram(rows), some, point.ridge, mode)
        if verdict is not None:
            verdicts[i] = verdict.errors
    if not verdicts:
        return first
    scale = common_scale(list(verdicts.values()), some.weights)
    losses = {
        i: robust_loss(errors, some.weights, scale) * _handicap(decided[i].point)
        for i, errors in verdicts.items()
    }
    return min(losses, key=losses.__getitem__)


def _polish(best: Trial, labels: Labels, plan: Plan) -> Point:
    """A few more steps on more rows than the moves were made on, if they help."""
    rows = _subset(len(labels), RANK_ROWS, plan.random_state + 3)
    some, whole = labels.take(rows), best.point
    if whole.family.reduce is not None:
        return whole
    here = replace(whole, family=whole.family.take(rows))
    before = judge(here.gram(), some, here.ridge, best.mode)
    if before is None:
        return whole
    there = improve(here, some, before.kept, STEPS_LAST, move_ridge=plan.move_ridge)
    after = None if there is here else judge(there.gram(), some, there.ridge, best.mode)
    if after is None:
        return whole
    scale = common_scale([before.errors, after.errors], some.weights)
    losses = [robust_loss(v.errors, some.weights, scale) for v in (before, after)]
    return replace(there, family=whole.family) if losses[1] < losses[0] else whole


def _of_good_labels(errors: Vector, best: Trial, labels: Labels, rows: np.ndarray) -> Vector:
    """Held-out errors with NaN for labels far out, which were bound but not dropped.

    They grow by √((l + p)/(l − p)) for the p numbers that were fitted to all labels.
    """
    tuned = min(len(best.point.theta) + 1, 0.5 * len(labels))
    errors = errors * np.sqrt((len(labels) + tuned) / (len(labels) - tuned))
    if best.mode.removal is None:
        verdict = judge(best.point.gram(rows), labels, best.point.ridge, Mode(FAR_OUT))
        if verdict is not None:
            errors[~verdict.kept] = np.nan
    return errors


def _handicap(point: Point) -> float:
    """By how much the loss grows for freedom that fits chance."""
    shared = all(np.all(part.place == part.place[0]) for part in point.family.parts)
    return 1.0 if shared else 1.0 + HANDICAP_WIDTHS


def _best_bound(
    point: Point, Q: Matrix, labels: Labels, move_ridge: bool
) -> tuple[Point, Mode] | None:
    """The ridge for labels bound at a small ξ, by leave-one-out errors, and that mode."""
    first = judge(Q, labels, point.ridge, Mode(refinement.DEFAULT_REMOVAL))
    if first is None:
        return None
    scale = robust_scale(first.errors[first.kept], labels.weights[first.kept])
    spread = thresholds.label_scale(labels.y, labels.weights)
    if scale <= 0.0 or spread <= 0.0:
        return None
    # Without noise ξ would fall to where rounding decides which labels are bound.
    mode = Mode(None, BIND_AT * max(scale, refinement.NOISE_FLOOR * spread))
    ridges = [mode.threshold / (pull * spread) for pull in PULLS] if move_ridge else []
    points = [replace(point, log_ridge=float(np.log(ridge))) for ridge in ridges] or [point]
    seen = []
    for candidate in points:
        if candidate.ridge >= LEAST_BOUND_RIDGE:
            verdict = judge(Q, labels, candidate.ridge, mode)
            if verdict is not None:
                seen.append((candidate, verdict.errors))
    if not seen:
        return None
    scale = common_scale([errors for _, errors in seen], labels.weights)
    best = min(seen, key=lambda pair: robust_loss(pair[1], labels.weights, scale))
    return best[0], mode


def folds_of(n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """At most FOLDS random folds of n rows, as (train, test)."""
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, min(FOLDS, n))
    everyone = np.arange(n)
    return [(np.setdiff1d(everyone, part), np.sort(part)) for part in parts]
