"""All solutions over the threshold: exact, because they are piecewise linear in ξ.

While no label changes between free and bound, v is linear in ξ (see `problem`). Going down
by h from ξ, with signs σ of the bound labels N and the free ones F,

    v(ξ − h) = v + h p,   p_N = −σ/μ,   (Qp + μp)_F + β = 0,   Σ p = 0,   b(ξ − h) = b + h β .

A free label becomes bound where μ|v| meets ξ, a bound one becomes free where its excess
e = r − σξ, e(ξ − h) = e − h (Qp + μp + β), meets zero. Such events are the breakpoints: the
solution between two of them is their linear interpolation.

Labels that meet a bound together are changed one by one without a step, always the first in
order that the direction would carry across: Murty's rule, which cannot cycle for a positive
definite matrix. If rounding defeats it, the problem is solved anew a little further down.

With an intercept and no free label b is the middle of the interval between the bound labels
of either sign. Its ends are lines too, and the path has a breakpoint where the line changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.loss import huber
from activehuber.numerics.linalg import BreakdownError
from activehuber.problem.problem import EPSILON, Problem
from activehuber.problem.reduction import Reduction
from activehuber.solver.free_inverse import FreeSolver, free_solver
from activehuber.solver.newton import Solution, Status, solve
from activehuber.solver.polishing import recover

# The default end of a path, as a share of its first threshold.
DEFAULT_END = 1e-3
# Labels within this share of ξ of a bound have met it.
TIE = 1e-11
# Steps up to this share of ξ are none.
NO_STEP = 1e-13
# Rates, in units of that of ξ, which may as well be zero.
NO_RATE = 1e-11
# Violations of the optimality conditions in units of ξ: above the first they are corrected,
# above the second the problem is solved anew.
SMALL_ERROR, LARGE_ERROR = 1e-12, 1e-9
# Errors of a direction, in units of the rate of ξ: above the first it is refined, above the
# second it is not to be used.
SMALL_RATE_ERROR, LARGE_RATE_ERROR = 1e-10, 1e-8
MOST_REFINEMENTS = 4
# Violations by the coefficients, against K itself, above which they are refined.
LARGE_EXPANSION_ERROR = 1e-10
# Changes of one label at one threshold before the problem is solved anew.
MOST_CHANGES = 3
# The way down to where it is solved anew, a share of ξ; ten times more at each failure.
FIRST_HOP, LONGEST_HOP = 1e-9, 1e-3
# A segment does not go further down than to this share of ξ: rounding at its upper end is
# a share of ξ there, and interpolation carries it down.
LONGEST_SEGMENT = 0.1
# Steps of a walk, a label, at most; a few are usual, many more mean that rounding leads it.
MOST_STEPS = 1000
# Breakpoints expanded at once.
BLOCK = 256
# Bytes of the arrays of a path at most.
MOST_BYTES = 2**30

FREE, NO_LABEL = 0, 2


@dataclass(frozen=True)
class ThresholdPath:
    """The minimisers for every threshold from the first breakpoint down to the last.

    K is the number of breakpoints, n that of the rows of X.

    Attributes
    ----------
    thresholds : ndarray of shape (K,)
        Breakpoints ξ, strictly falling. The first is max |r| of the least-squares fit:
        above it nothing changes. Where no label changes for long there are some in
        between, each a tenth of the last.
    dual_coef : ndarray of shape (K, n), or (K, n, m) with views
        Coefficients at the breakpoints; zero on rows that are not part of the expansion,
        which are unlabelled ones when there is no graph and no agreement.
    intercept : ndarray of shape (K,)
    fitted : ndarray of shape (K, n)
        Fitted values with the intercept; NaN on rows that are not part of the expansion.
    states : ndarray of shape (K, n), int8
        On the segment just below a breakpoint: 0 for a free label, |r| <= ξ, and ±1, the
        sign of r, for a bound one; 2 on rows without a label in use. At the last
        breakpoint: on the segment that ends there.
    y : ndarray of shape (n,)
        Labels in use, NaN on other rows.
    n_events : int
        How many times a label became bound or free.
    complete : bool
        False if the path stopped at `max_events`, or had no end.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import huber_path
    >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[10] += 5                            # a wrong label
    >>> path = huber_path(X, y, gamma=1.0)
    >>> int(np.flatnonzero(path.states[0])[0])    # the first to become bound
    10
    >>> dual_coef, intercept = path.at(0.5)
    >>> dual_coef.shape
    (40,)
    """

    thresholds: Vector
    dual_coef: Matrix
    intercept: Vector
    fitted: Matrix
    states: np.ndarray
    y: Vector
    n_events: int
    complete: bool

    @property
    def residuals(self) -> Matrix:
        """y − fitted, shape (K, n); NaN where no label is in use."""
        return self.y - self.fitted

    def times(self, unit: float) -> ThresholdPath:
        """The same with labels measured in units of 1/`unit`."""
        names = ("thresholds", "dual_coef", "intercept", "fitted", "y")
        return replace(self, **{name: unit * getattr(self, name) for name in names})

    def at(self, threshold: float) -> tuple[Matrix, float]:
        """The minimiser at any threshold from the last breakpoint on.

        Parameters
        ----------
        threshold : float
            ξ; inf is least squares.

        Returns
        -------
        dual_coef : ndarray of shape (n,), or (n, m) with views
        intercept : float

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import huber_path
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> path = huber_path(X, np.sin(3 * X.ravel()), gamma=1.0, alpha=1e-2)
        >>> dual_coef, intercept = path.at(np.inf)    # least squares: the first breakpoint
        >>> bool(np.array_equal(dual_coef, path.dual_coef[0]))
        True
        """
        first, last = float(self.thresholds[0]), float(self.thresholds[-1])
        if not threshold >= last:
            raise ValueError(
                f"threshold={threshold!r} is below the end of the path, {last:.6g}; follow it "
                "further with a smaller min_threshold"
            )
        if threshold >= first:
            return self.dual_coef[0].copy(), float(self.intercept[0])
        below = int(np.searchsorted(-self.thresholds, -threshold))
        above = below - 1
        length = self.thresholds[above] - self.thresholds[below]
        share = float((self.thresholds[above] - threshold) / length)
        coef, intercept = self.dual_coef, self.intercept
        return (
            (1.0 - share) * coef[above] + share * coef[below],
            float((1.0 - share) * intercept[above] + share * intercept[below]),
        )


# --- the walk ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Direction:
    """p, β and the rate of the excess, for one unit of ξ down."""

    v: Vector
    intercept: float
    excess: Vector


# How far down the next change is, and which labels change: none for a kink of b.
_Event: TypeAlias = tuple[float, tuple[int, ...]]


class _Walk:
    """A point of the path and the labels that are free and bound just below it.

    All labels of the problem are in use.

    Attributes
    ----------
    threshold : float
        ξ.
    v, fitted : ndarray of shape (l,)
        v and Qv.
    intercept : float
    side : ndarray of shape (l,), int8
        0 for a free label, ±1 for a bound one.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.mu = problem, problem.mu
        start = solve(problem, np.inf)
        self.v, self.fitted, self.intercept = start.v, start.fitted, start.intercept
        self.threshold = float(np.max(np.abs(self.mu * self.v)))
        self.side = np.zeros(len(problem.y), dtype=np.int8)
        self.changes: dict[int, int] = {}
        self.hop = FIRST_HOP
        self.solver: FreeSolver | None = free_solver(problem, self.side == FREE)

    @property
    def on_plateau(self) -> bool:
        """Whether b is not determined by free labels."""
        return self.problem.fit_intercept and bool(np.all(self.side != FREE))

    def excess(self) -> Vector:
        """e = r − μv, shape (l,): zero on free labels."""
        return self.problem.y - self.intercept - self.fitted - self.mu * self.v

    def look(self) -> tuple[_Direction, _Event]:
        """The direction down and the event it leads to."""
        if self.on_plateau:
            return self._look_on_plateau()
        direction = self._direction()
        return direction, self._next_event(direction)

    def _direction(self) -> _Direction:
        """p and β, refined while that helps: their errors misplace the next breakpoint."""
        assert self.solver is not None
        p, image, beta = self.solver.solve(
            np.zeros_like(self.v), -self.side / self.mu, total=0.0
        )
        free, best = self.side == FREE, None
        least = np.inf
        for _ in range(MOST_REFINEMENTS):
            excess = -(image + self.mu * p + beta)
            error = np.where(free, excess, 0.0)
            worst = float(np.max(np.abs(error)))
            if not worst < 0.1 * least:
                break
            best, least = _Direction(p, beta, excess), worst
            if worst <= SMALL_RATE_ERROR:
                break
            change, response, shift = self.solver.solve(
                error, np.zeros_like(p), -float(p.sum())
            )
            p, image, beta = p + change, image + response, beta + shift
        # Too near singular for an inverse; with Q factored it can be done.
        lost = self.problem.gram.matrix is not None and least > LARGE_RATE_ERROR
        if best is None or lost:
            raise BreakdownError("the direction of the path has no digits")
        return best

    def _next_event(self, direction: _Direction) -> _Event:
        """The first label that meets a bound; the first in order if several have met one."""
        xi, free = self.threshold, self.side == FREE
        u, rate = self.mu * self.v, self.mu * direction.v
        # In doubt a free label that has met a bound stays there: that its rate is zero is
        # the rule when an intercept has but one free label left.
        up = _time(xi - u, 1.0 + rate, xi, least_rate=-NO_RATE)
        down = _time(xi + u, 1.0 - rate, xi, least_rate=-NO_RATE)
        back = _time(
            self.side * self.excess(), -self.side * direction.excess, xi, least_rate=NO_RATE
        )
        times = np.where(free, np.minimum(up, down), back)
        met = np.flatnonzero(times <= NO_STEP * xi)
        if len(met):
            return 0.0, (int(met[0]),)
        row = int(np.argmin(times))
        return float(times[row]), (row,)

    def _look_on_plateau(self) -> tuple[_Direction, _Event]:
        """The same without free labels: b is the middle of max_− z and min_+ z.

        z = y − Qv − σξ are the b at which labels would become free.
        """
        if not (np.any(self.side < 0) and np.any(self.side > 0)):
            raise BreakdownError("labels that balance are all on one side")
        p = -self.side / self.mu
        image = self.problem.gram.matvec(p)
        z, rate = self.excess() + self.intercept, -(image + self.mu * p)
        low = _Edge(np.flatnonzero(self.side < 0), z, rate, self.threshold)
        high = _Edge(np.flatnonzero(self.side > 0), -z, -rate, self.threshold)
        self.intercept = 0.5 * (low.value - high.value)
        beta = 0.5 * (low.rate - high.rate)
        direction = _Direction(p, beta, rate - beta)
        closing = low.rate + high.rate
        meet = -(low.value + high.value) / closing if closing > NO_RATE else np.inf
        kink = min(low.next_kink, high.next_kink)
        if meet <= kink:
            return direction, (max(0.0, meet), (low.row, high.row))
        return direction, (max(kink, TIE * self.threshold), ())

    def advance(self, direction: _Direction, threshold: float) -> bool:
        """Go down to a threshold, and put right what rounding does.

        Returns whether that was possible without solving anew.
        """
        step, self.threshold = self.threshold - threshold, threshold
        self.v = np.where(
            self.side == FREE,
            self.v + step * direction.v,
            self.side * threshold / self.mu,
        )
        # Formed anew: errors of v count in Qv with the factor Q/μ, and would add up.
        self.fitted = self.problem.gram.matvec(self.v)
        self.intercept += step * direction.intercept
        self.changes, self.hop = {}, FIRST_HOP
        return self._correct()

    def change(self, rows: tuple[int, ...]) -> None:
        """Bind free labels, free bound ones."""
        leaves_plateau = self.on_plateau
        for row in rows:
            self.changes[row] = self.changes.get(row, 0) + 1
            if self.side[row] == FREE:
                self._bind(row)
            else:
                self.side[row] = FREE
                if self.solver is not None and not leaves_plateau:
                    self.solver.free(row)
        if leaves_plateau:
            self.solver = free_solver(self.problem, self.side == FREE)

    def _bind(self, row: int) -> None:
        self.side[row] = 1 if self.v[row] > 0.0 else -1
        if self.on_plateau:
            self.solver = None
        elif self.solver is not None:
            self.solver.bind(row)

    def _correct(self) -> bool:
        """Newton's correction on the free labels while it helps; solve anew if it fails."""
        self._refine()
        if self.violation() > LARGE_ERROR and self.solver is not None:
            self.solver = free_solver(self.problem, self.side == FREE)
            self._refine()
        if self.violation() > LARGE_ERROR:
            self.solve_anew()
            return False
        return True

    def _refine(self) -> None:
        if self.solver is None:
            return
        error, worst = self._error()
        while worst > SMALL_ERROR * self.threshold:
            before = self.v, self.fitted, self.intercept
            change, _, shift = self.solver.solve(
                error, np.zeros_like(self.v), -float(self.v.sum())
            )
            self.v, self.intercept = self.v + change, self.intercept + shift
            self.fitted = self.problem.gram.matvec(self.v)
            error, left = self._error()
            if not left < worst:
                self.v, self.fitted, self.intercept = before
            if not left < 0.1 * worst:
                return
            worst = left

    def _error(self) -> tuple[Vector, float]:
        """The excess of free labels, and the larger of it and of the balance |Σ sψ|/S."""
        error = np.where(self.side == FREE, self.excess(), 0.0)
        balance = 2.0 * self.problem.alpha * abs(float(self.v.sum()))
        largest = float(np.max(np.abs(error)))
        return error, max(largest, balance) if self.problem.fit_intercept else largest

    def violation(self) -> float:
        """max |μv − ψ(r)| in units of ξ."""
        residuals = self.problem.y - self.intercept - self.fitted
        error = self.mu * self.v - huber.psi(residuals, self.threshold)
        return float(np.max(np.abs(error))) / self.threshold

    @property
    def is_stuck(self) -> bool:
        """Whether some label goes back and forth at the present threshold."""
        return max(self.changes.values(), default=0) > MOST_CHANGES

    def hop_down(self, end: float) -> None:
        """Solve anew a little below; further below each time that does not help."""
        self.threshold = max(end, (1.0 - self.hop) * self.threshold)
        self.hop = min(10.0 * self.hop, LONGEST_HOP)
        self.changes = {}
        self.solve_anew()

    def solve_anew(self) -> None:
        """The minimiser at the present threshold, by Newton's method from here."""
        free = self.side == FREE
        start = Solution(
            self.v, self.fitted, self.intercept, free, 0, Status.CONVERGED, factor=None
        )
        found = solve(self.problem, self.threshold, start=start)
        self.v, self.fitted, self.intercept = found.v, found.fitted, found.intercept
        self.side = np.where(found.free, FREE, np.sign(found.v)).astype(np.int8)
        self.solver = None if self.on_plateau else free_solver(self.problem, found.free)
        self._refine()


class _Edge:
    """The largest of some lines now, and the step at which another one takes over.

    Lines are z + h·rate for the given rows; of several that are largest, the one that
    rises fastest is the largest from here on.
    """

    def __init__(self, rows: np.ndarray, z: Vector, rate: Vector, threshold: float) -> None:
        top = rows[z[rows] >= np.max(z[rows]) - TIE * threshold]
        self.row = int(top[np.argmax(rate[top])])
        self.value, self.rate = float(z[self.row]), float(rate[self.row])
        faster = rows[rate[rows] > self.rate + NO_RATE]
        faster = faster[z[faster] < self.value - TIE * threshold]
        kinks = (self.value - z[faster]) / (rate[faster] - self.rate)
        self.next_kink = float(np.min(kinks, initial=np.inf))


def _time(slack: Vector, rate: Vector, threshold: float, *, least_rate: float) -> Vector:
    """When a slack that shrinks at some rate is used up, shape (l,); inf if never."""
    out = np.full(len(slack), np.inf)
    shrinks = rate > NO_RATE
    out[shrinks] = np.maximum(slack[shrinks], 0.0) / rate[shrinks]
    out[(slack <= TIE * threshold) & (rate >= least_rate)] = 0.0
    return out


# --- the path ---------------------------------------------------------------------------


class Trail:
    """The path of the reduced problem: the breakpoints met so far, K of them.

    Attributes
    ----------
    thresholds : ndarray of shape (K,)
    v : ndarray of shape (K, l)
    level : ndarray of shape (K,)
        b + the mean of Qv over the labels in use; unlike b it does not depend on whether
        the features of Q are centred.
    states : ndarray of shape (K, l), int8
    n_events : int
        How many labels changed at them.
    complete : bool
    """

    def __init__(self, bytes_each: float) -> None:
        self.bytes_each, self.n_events, self.complete = bytes_each, 0, False
        self.points: list[tuple[float, Vector, float, np.ndarray]] = []

    def add(self, walk: _Walk) -> None:
        """Take down where a walk is."""
        if (len(self.points) + 1) * self.bytes_each > MOST_BYTES:
            raise ValueError(
                f"the path has more than {len(self.points)} breakpoints, too many to hold; "
                "end it earlier with a larger min_threshold, or with max_events"
            )
        last = self.points[-1][3] if self.points else FREE
        self.n_events += int(np.count_nonzero(walk.side != last))
        level = walk.intercept + float(np.mean(walk.fitted))
        self.points.append((walk.threshold, walk.v, level, walk.side.copy()))

    def finish(self, active: Mask, *, complete: bool) -> Trail:
        """Put all of them side by side, on all labels of the problem."""
        thresholds, v, level, side = map(np.array, zip(*self.points, strict=True))
        self.thresholds, self.level, self.complete = thresholds, level, complete
        shape = (len(thresholds), len(active))
        self.v, self.states = np.zeros(shape), np.full(shape, NO_LABEL, dtype=np.int8)
        self.v[:, active], self.states[:, active] = v, side
        return self


def follow(
    problem: Problem,
    min_threshold: float | None = None,
    max_events: int | None = None,
    bytes_each: float = 0.0,
) -> Trail:
    """The path from least squares down to `min_threshold`.

    Parameters
    ----------
    problem : Problem
    min_threshold : float, optional
        ξ > 0 to end at; DEFAULT_END times the first threshold if None.
    max_events : int, optional
        The path stops at the first breakpoint after that many.
    bytes_each : float
        What a breakpoint will take in memory, to stop in time.
    """
    walk, trail = _Walk(_restricted(problem)), Trail(bytes_each)
    end = DEFAULT_END * walk.threshold if min_threshold is None else float(min_threshold)
    most = np.inf if max_events is None else max_events
    # Residuals that are nothing but rounding have no pattern.
    if walk.threshold <= 64.0 * EPSILON * float(np.max(np.abs(problem.y))):
        end = walk.threshold
    for _ in range(MOST_STEPS * (len(problem.y) + 1)):
        if not walk.threshold > end:
            break
        # 1. where to from here?
        direction, (step, rows) = walk.look()

        # 2. nowhere before these labels have changed
        if rows and step <= NO_STEP * walk.threshold:
            walk.change(rows)
            if walk.is_stuck:
                trail.add(walk)
                walk.hop_down(end)
            continue

        # 3. down to the next event
        trail.add(walk)
        there = walk.threshold - step
        stop = max(end, LONGEST_SEGMENT * walk.threshold)
        arrived = walk.advance(direction, max(there, stop))
        if trail.n_events >= most:
            break
        if there > stop and arrived:
            walk.change(rows)
    trail.add(walk)
    return trail.finish(problem.active, complete=walk.threshold <= end)


def _restricted(problem: Problem) -> Problem:
    """The same problem without the labels that are not in use."""
    if np.all(problem.active):
        return problem
    rows = np.flatnonzero(problem.active)
    return problem.on_some(rows, problem.gram.subset(rows))


def threshold_path(
    reduction: Reduction,
    problem: Problem,
    centre: float,
    rows: np.ndarray,
    n_rows: int,
    *,
    min_threshold: float | None,
    max_events: int | None,
) -> ThresholdPath:
    """Follow the path of a reduced problem, and expand its breakpoints.

    Parameters
    ----------
    centre : float
        What was taken off the labels.
    rows : ndarray, int
        Rows of the expansion among all rows.
    n_rows : int
        All rows.
    """
    m = len(reduction.weights)
    trail = follow(problem, min_threshold, max_events, n_rows * (8.0 * m + 9.0))
    shape = (len(trail.thresholds), n_rows)
    coef, fitted = np.zeros((*shape, m)), np.full(shape, np.nan)
    intercept = np.empty(shape[0])
    for start in range(0, shape[0], BLOCK):
        part = slice(start, start + BLOCK)
        w, values, b = _expand(reduction, problem, trail, part, centre)
        coef[part, rows], fitted[part, rows], intercept[part] = w, values + b[:, None], b
    labels, used = rows[reduction.labelled], rows[reduction.labelled[problem.active]]
    states = np.full(shape, NO_LABEL, dtype=np.int8)
    states[:, labels] = trail.states
    y = np.full(n_rows, np.nan)
    y[used] = problem.y[problem.active] + centre
    return ThresholdPath(
        thresholds=trail.thresholds,
        dual_coef=coef,
        intercept=intercept + centre,
        fitted=fitted + centre,
        states=states,
        y=y,
        n_events=trail.n_events,
        complete=trail.complete,
    )


def _expand(
    reduction: Reduction, problem: Problem, trail: Trail, part: slice, centre: float
) -> tuple[Matrix, Matrix, Vector]:
    """Coefficients (k, n, m), Σ_α c^α f^α (k, n) and b (k,) of some breakpoints."""
    w = np.stack([reduction.expand(v) for v in trail.v[part]])
    values = _values(reduction, w)
    fitted = values[:, reduction.labelled]
    b = trail.level[part] - fitted[:, problem.active].mean(axis=1)
    # With a strong graph Q v and K w differ by more than the certificate forgives.
    excess = problem.y - b[:, None] - fitted - problem.mu * trail.v[part]
    free = trail.states[part] == FREE
    error = np.max(np.where(free, np.abs(excess), 0.0), axis=1)
    source = problem.gram.source(problem.mu)
    for k in np.flatnonzero(error > LARGE_EXPANSION_ERROR * trail.thresholds[part]):
        v, factor = trail.v[part][k], source.factor(free[k])
        solution = Solution(v, fitted[k], float(b[k]), free[k], 0, Status.CONVERGED, factor)
        fit = recover(reduction, problem, solution, float(trail.thresholds[part][k]), centre)
        w[k], b[k] = fit.coefficients, fit.intercept
        values[k] = _values(reduction, w[k : k + 1])[0]
    return w, values, b


def _values(reduction: Reduction, w: Matrix) -> Matrix:
    """Σ_α c^α K^α w^α for many w at once, (k, n, m) to (k, n)."""
    out = np.zeros(w.shape[:2])
    for index, (c, part) in enumerate(
        zip(reduction.weights, reduction.expansion.parts, strict=True)
    ):
        out += c * part.operator.matvec(np.ascontiguousarray(w[:, :, index].T)).T
    return out
