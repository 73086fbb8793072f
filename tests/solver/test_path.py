"""The path over the threshold: certified between its breakpoints, equal to single fits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from activehuber import HLRegressor, ThresholdPathDisplay, View, huber_path
from activehuber.graphs.laplacians import build
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.solver import free_inverse, newton
from activehuber.solver import path as path_module
from tests.oracles import curve, gram, kkt, objective
from tests.pairwise import crossed

GAP, KKT = 1e-9, 1e-8


# --- the reduced path, beside dense algebra -----------------------------------------------


def reduced(seed=0, n=16, alpha=1e-3, *, intercept=True, digits=9, active=None):
    """A small problem as `follow` takes it."""
    rng = np.random.default_rng(seed)
    X, y, _, _ = curve(n, seed, bad=0.2)
    K = np.ascontiguousarray(gram("rbf", np.round(X, digits), gamma=1.0))
    y = np.round(y - np.median(y), digits)
    active = np.ones(n, dtype=bool) if active is None else active
    return Problem(DenseGram(K), y, rng.uniform(0.5, 2.0, n), alpha, intercept, active)


def minimiser(problem, free, side, xi):
    """v and b of a pattern, by one dense solve."""
    K, mu, n = problem.gram.matrix, problem.mu, int(free.sum())
    fixed = np.where(free, 0.0, side * xi / mu)
    border = int(problem.fit_intercept)
    A = np.zeros((n + border, n + border))
    A[:n, :n] = K[np.ix_(free, free)] + np.diag(mu[free])
    A[n:, :n], A[:n, n:] = 1.0, 1.0
    x = np.linalg.solve(A, np.append((problem.y - K @ fixed)[free], [-fixed.sum()] * border))
    fixed[free] = x[:n]
    return fixed, float(x[n]) if border else 0.0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-5, 1e-2])
def test_every_breakpoint_is_the_minimiser_of_its_pattern(intercept, alpha):
    active = np.arange(16) != 4
    problem = reduced(1, alpha=alpha, intercept=intercept, active=active)
    trail = path_module.follow(problem)
    assert trail.complete
    assert np.all(trail.states[:, 4] == 2) and np.all(trail.v[:, 4] == 0.0)
    last, events = np.zeros(16, dtype=int), 0
    for xi, v, level, state in zip(
        trail.thresholds, trail.v, trail.level, trail.states, strict=True
    ):
        free = active & (state == 0)
        if not free.any() and intercept:
            continue
        expected, b = minimiser(problem, free, np.where(active, state, 0.0), xi)
        np.testing.assert_allclose(problem.mu * v, problem.mu * expected, atol=1e-9 * xi)
        fitted = problem.gram.matrix @ expected
        assert level == pytest.approx(b + fitted[active].mean(), abs=1e-9)
    for state in trail.states:
        events += np.count_nonzero(state[active] != last[active])
        last = state
    assert trail.n_events == events
    # A stretch without events is cut where ξ has fallen tenfold.
    assert np.all(trail.thresholds[1:] >= 0.1 * trail.thresholds[:-1] * (1 - 1e-12))


def test_long_stretches_are_cut():
    """Two labels, no intercept: both are bound after two events, then nothing happens."""
    problem = Problem(
        DenseGram(np.eye(2)), np.array([1.0, 3.0]), np.ones(2), 0.25, False, np.ones(2, bool)
    )
    # μ = 1: v = y/2, bound once ξ is below ½y
    trail = path_module.follow(problem, min_threshold=1e-3)
    np.testing.assert_allclose(trail.thresholds, [1.5, 0.5, 0.05, 0.005, 0.001])
    np.testing.assert_allclose(trail.v, [[0.5, 1.5], *([x, x] for x in trail.thresholds[1:])])
    assert trail.states.tolist() == [[0, 1], [1, 1], [1, 1], [1, 1], [1, 1]]
    assert trail.n_events == 2 and trail.complete


def test_a_path_has_an_end():
    problem = reduced(2)
    whole = path_module.follow(problem)
    top = float(whole.thresholds[0])
    for end in (top, 1.0001 * top):
        one = path_module.follow(problem, min_threshold=end)
        assert len(one.thresholds) == 1 and one.complete and one.n_events == 0
        assert np.all(one.states == 0)
    half = path_module.follow(problem, min_threshold=0.5 * top)
    assert half.thresholds[-1] == 0.5 * top and half.complete
    for most in (1, 2, 4):
        short = path_module.follow(problem, max_events=most)
        assert not short.complete and short.n_events == most
        np.testing.assert_allclose(short.thresholds, whole.thresholds[: most + 1])


def test_residuals_of_rounding_are_no_path():
    """max |r| up to 64 ε of the labels is nothing."""
    shares = {10.0: True, 60.0: True, 68.0: False, 1000.0: False}
    for share, nothing in shares.items():
        mu = share * np.finfo(float).eps
        # v = y/(1 + μ), max μ|v| ≈ μ of the largest label
        y = np.array([1.0, -0.25])
        problem = Problem(DenseGram(np.eye(2)), y, np.ones(2), mu / 4, False, np.ones(2, bool))
        trail = path_module.follow(problem)
        assert (len(trail.thresholds) == 1) == nothing
        assert trail.complete


def test_no_more_breakpoints_than_memory(monkeypatch):
    problem = reduced(2)
    number = len(path_module.follow(problem).thresholds)
    monkeypatch.setattr(path_module, "MOST_BYTES", 1000)
    path_module.follow(problem, bytes_each=1000 / number)
    with pytest.raises(ValueError, match=f"more than {number - 1} breakpoints"):
        path_module.follow(problem, bytes_each=1000.5 / number)


# --- between breakpoints ------------------------------------------------------------------


def by_hand():
    coef = np.array([[0.0, 8.0], [1.0, 4.0], [3.0, 0.0]])
    return path_module.ThresholdPath(
        thresholds=np.array([4.0, 2.0, 1.0]),
        dual_coef=coef,
        intercept=np.array([10.0, 20.0, 0.0]),
        fitted=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        states=np.zeros((3, 2), dtype=np.int8),
        y=np.array([7.0, np.nan]),
        n_events=2,
        complete=True,
    )


@pytest.mark.parametrize(
    ("xi", "coef", "intercept"),
    [
        (np.inf, [0.0, 8.0], 10.0),
        (4.5, [0.0, 8.0], 10.0),
        (4.0, [0.0, 8.0], 10.0),
        (3.5, [0.25, 7.0], 12.5),
        (3.0, [0.5, 6.0], 15.0),
        (2.0, [1.0, 4.0], 20.0),
        (1.75, [1.5, 3.0], 15.0),
        (1.25, [2.5, 1.0], 5.0),
        (1.0, [3.0, 0.0], 0.0),
    ],
)
def test_interpolation_by_hand(xi, coef, intercept):
    found, b = by_hand().at(xi)
    assert (found.tolist(), b) == (coef, intercept)
    assert not np.shares_memory(found, by_hand().dual_coef)


@pytest.mark.parametrize("xi", [0.99, 0.0, -1.0, np.nan])
def test_below_the_end_there_is_nothing(xi):
    with pytest.raises(ValueError, match="below the end of the path, 1;"):
        by_hand().at(xi)


def test_residuals_are_of_labels_in_use():
    np.testing.assert_array_equal(by_hand().residuals[:, 0], [6.0, 4.0, 2.0])
    assert np.all(np.isnan(by_hand().residuals[:, 1]))


# --- parts of the walk --------------------------------------------------------------------


def test_when_a_slack_is_used_up():
    inf, xi = np.inf, 2.0
    slack = np.array([1.0, 1.0, 1.0, -1.0, 0.0, 0.0, 3.0])
    rate = np.array([0.5, 0.0, -1.0, 2.0, -1.0, 1e-12, 6.0])
    times = path_module._time(slack, rate, xi, least_rate=0.0)
    assert times.tolist() == [2.0, inf, inf, 0.0, inf, 0.0, 0.5]
    # a label within 1e-11 ξ of its bound has met it, unless it moves away from it
    near, zero = (
        np.array([1.9e-11, 2.1e-11, 1.9e-11, 1.9e-11]),
        np.array([0.0, 0.0, -2e-11, -1e-12]),
    )
    assert path_module._time(near, zero, xi, least_rate=-1e-11).tolist() == [0.0, inf, inf, 0.0]
    # a rate of up to 1e-11 is none
    slow = path_module._time(np.ones(2), np.array([0.9e-11, 1.1e-11]), xi, least_rate=0.0)
    assert slow[0] == inf and slow[1] == pytest.approx(1.0 / 1.1e-11)


def test_the_edge_of_some_lines():
    rows = np.array([0, 1, 2, 4])
    z = np.array([5.0, 5.0, 3.0, 99.0, 1.0])
    rate = np.array([1.0, 2.0, 4.0, 99.0, 2.0])
    edge = path_module._Edge(rows, z, rate, 1.0)
    # of two that are largest the one that rises faster; row 2 meets it at 5 + 2h = 3 + 4h
    assert (edge.row, edge.value, edge.rate, edge.next_kink) == (1, 5.0, 2.0, 1.0)
    alone = path_module._Edge(np.array([0]), z, rate, 1.0)
    assert (alone.row, alone.next_kink) == (0, np.inf)
    # lines within 1e-11 ξ of the largest are as large, and are met already
    close = np.array([5.0, 5.0 - 1.9e-11, 5.0 - 2.1e-11])
    tied = path_module._Edge(np.arange(3), close, np.array([1.0, 2.0, 4.0]), 2.0)
    assert tied.row == 1
    # a line that rises faster by less than 1e-11 never catches up
    flat = path_module._Edge(
        np.arange(2), np.array([5.0, 4.0]), np.array([1.0, 1.0 + 9e-12]), 1.0
    )
    assert flat.next_kink == np.inf
    slow = path_module._Edge(
        np.arange(2), np.array([5.0, 4.0]), np.array([1.0, 1.0 + 2e-11]), 1.0
    )
    assert slow.next_kink == pytest.approx(5e10, rel=1e-3)


def bordered_inverse(problem, free):
    n, border = int(free.sum()), int(problem.fit_intercept)
    A = np.zeros((n + border, n + border))
    A[border:, border:] = problem.gram.matrix[np.ix_(free, free)] + np.diag(problem.mu[free])
    A[:border, border:], A[border:, :border] = 1.0, 1.0
    return np.linalg.inv(A)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("refresh", [200, 5])
@pytest.mark.parametrize("many", [True, False])
def test_the_inverse_follows_the_free_labels(monkeypatch, intercept, refresh, many):
    """Labels come and go; what it answers is that of a dense solve."""
    monkeypatch.setattr(free_inverse, "REFRESH", refresh)
    problem, rng = reduced(4, n=14, alpha=0.02, intercept=intercept), np.random.default_rng(1)
    free = rng.uniform(size=14) < 0.5
    solver = free_inverse.free_solver(problem, free)
    assert isinstance(solver, free_inverse.FreeInverse)
    side = np.where(free, 0.0, np.sign(rng.normal(size=14)))
    builds = []
    monkeypatch.setattr(
        solver, "_build", lambda: (builds.append(solver.changes), type(solver)._build(solver))
    )
    for turn in range(24):
        row = int(rng.integers(14))
        if turn > 12 and free.sum() > 2:
            row = int(np.flatnonzero(free)[turn % 2])
        (solver.bind if free[row] else solver.free)(row)
        free[row] = not free[row]
        side[row] = 0.0 if free[row] else rng.choice([-1.0, 1.0])
        if many:  # more rows than one differ from the last time
            side[~free] = rng.choice([-1.0, 1.0], (~free).sum())
        if not free.any():
            continue
        targets, fixed = rng.normal(size=14), side / problem.mu
        v, fitted, b = solver.solve(targets, fixed, total=0.3)
        rhs = (targets - problem.gram.matrix @ fixed)[free]
        border = int(intercept)
        x = bordered_inverse(problem, free) @ np.append([0.3 - fixed.sum()] * border, rhs)
        np.testing.assert_allclose(v[free], x[border:], atol=1e-8 * np.max(np.abs(x)))
        np.testing.assert_array_equal(v[~free], fixed[~free])
        np.testing.assert_allclose(fitted, problem.gram.matrix @ v, atol=1e-8)
        assert b == pytest.approx(x[0] if intercept else 0.0, abs=1e-8)
        plain = solver.solve(targets, np.zeros(14), total=0.0)[0]
        x = bordered_inverse(problem, free) @ np.append([0.0] * border, targets[free])
        np.testing.assert_allclose(plain[free], x[border:], atol=1e-8 * np.max(np.abs(x)))
    # made anew after so many changes, and only then
    assert builds == ([] if refresh == 200 else [5] * 4)


def test_an_inverse_without_digits_is_made_anew(monkeypatch):
    problem = reduced(4, alpha=0.02)
    free = np.arange(16) % 2 == 0
    solver = free_inverse.FreeInverse(problem, free)
    solver.inverse[:] *= -1.0  # pivots of the wrong sign
    solver.bind(2)
    free[2] = False
    expected = free_inverse.FreeInverse(problem, free)
    np.testing.assert_array_equal(solver.inverse, expected.inverse)
    solver.inverse[1:, 1:] += 1e6
    solver.free(3)
    free[3] = True
    np.testing.assert_array_equal(
        solver.inverse, free_inverse.FreeInverse(problem, free).inverse
    )


def test_a_product_is_formed_anew_only_where_much_has_changed(monkeypatch):
    problem = reduced(4, alpha=0.02)
    solver = free_inverse.FreeInverse(problem, np.arange(16) < 8)
    products = []
    original = problem.gram.matvec
    monkeypatch.setattr(problem.gram, "matvec", lambda v: (products.append(1), original(v))[1])
    fixed = np.where(np.arange(16) < 8, 0.0, 1.0)
    counts = []
    solver.changes = 1
    for changed in ([], range(8, 12), range(8, 13), [9], []):
        fixed = fixed.copy()
        fixed[list(changed)] *= -1.5
        products.clear()
        image = solver._image(fixed)
        counts.append(len(products))
        np.testing.assert_allclose(image, problem.gram.matrix @ fixed, atol=1e-12)
    assert counts == [1, 0, 1, 0, 0]
    solver.changes = 0  # a new inverse, a new product
    products.clear()
    solver._image(fixed)
    assert len(products) == 1
    assert solver._image(np.zeros(16)) == 0.0


def walk_to(problem, share):
    """A walk at some share of its first threshold, with all that it needs."""
    walk = path_module._Walk(problem)
    walk.threshold *= share
    walk.solve_anew()
    return walk


@pytest.mark.parametrize("intercept", [True, False])
def test_violations_are_those_of_the_definition(intercept):
    problem = reduced(5, intercept=intercept)
    walk = walk_to(problem, 0.3)
    assert walk.violation() < 1e-11
    rng = np.random.default_rng(0)
    walk.v = walk.v + 0.1 * rng.normal(size=16)
    walk.fitted, walk.intercept = problem.gram.matrix @ walk.v, 0.4
    r = problem.y - 0.4 - walk.fitted
    u = problem.mu * walk.v
    xi = walk.threshold
    assert walk.violation() == pytest.approx(np.max(np.abs(u - np.clip(r, -xi, xi))) / xi)
    np.testing.assert_allclose(walk.excess(), r - u)
    error, worst = walk._error()
    free = walk.side == 0
    np.testing.assert_allclose(error, np.where(free, r - u, 0.0))
    largest = np.max(np.abs((r - u)[free]))
    assert worst == pytest.approx(largest)
    # Σ sψ / S = 2λ Σv is the rest of the conditions
    walk.v = walk.v + 1e5
    balance = 2 * problem.alpha * abs(walk.v.sum())
    walk.fitted = problem.y - walk.intercept - problem.mu * walk.v
    assert walk._error()[1] == pytest.approx(balance if intercept else 0.0, abs=1e-9)


@pytest.mark.parametrize("size", [1e-6, 1e-3])
@pytest.mark.parametrize("intercept", [True, False])
def test_errors_are_put_right(size, intercept):
    problem = reduced(5, intercept=intercept)
    walk = walk_to(problem, 0.3)
    exact, b = minimiser(problem, walk.side == 0, walk.side, walk.threshold)
    walk.v = walk.v + size * np.where(walk.side == 0, np.cos(np.arange(16)), 0.0)
    walk.fitted = problem.gram.matrix @ walk.v
    walk.intercept += size if intercept else 0.0
    walk._refine()
    np.testing.assert_allclose(walk.v, exact, rtol=1e-9)
    assert walk.intercept == pytest.approx(b, abs=1e-11)
    assert walk._error()[1] <= 1e-12 * walk.threshold
    np.testing.assert_allclose(walk.fitted, problem.gram.matrix @ walk.v)


def test_a_correction_that_does_not_help_is_taken_back():
    walk = walk_to(reduced(5), 0.3)
    walk.v = walk.v + 1e-6 * (walk.side == 0)
    walk.fitted = walk.problem.gram.matrix @ walk.v
    before = walk.v.copy(), walk.fitted.copy(), walk.intercept

    class Wrong:
        asked = 0

        def solve(self, targets, fixed, total):
            Wrong.asked += 1
            return np.full(16, 7.0), np.zeros(16), 5.0

    walk.solver = Wrong()
    walk._refine()
    assert Wrong.asked == 1
    for now, then in zip((walk.v, walk.fitted, walk.intercept), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_wrong_pattern_is_solved_anew():
    problem = reduced(5)
    walk = walk_to(problem, 0.3)
    assert walk._correct() is True
    side, v = walk.side.copy(), walk.v.copy()
    row = int(np.flatnonzero(side == 0)[0])
    walk.side[row] = 1
    walk.v[row] = walk.threshold / problem.mu[row]
    walk.solver = free_inverse.free_solver(problem, walk.side == 0)
    assert walk._correct() is False
    np.testing.assert_array_equal(walk.side, side)
    np.testing.assert_allclose(walk.v, v, rtol=1e-9)
    # a solver that has lost its digits is no reason to: it is made anew
    walk.solver.inverse[:] = 0.0
    walk.v = walk.v + 1e-3 * (walk.side == 0)
    walk.fitted = problem.gram.matrix @ walk.v
    assert walk._correct() is True
    np.testing.assert_allclose(walk.v, v, rtol=1e-9)


def test_hops_grow_tenfold_up_to_a_thousandth():
    problem = reduced(5)
    walk = walk_to(problem, 0.5)
    walk.changes = {3: 9}
    assert walk.is_stuck
    xi = walk.threshold
    for hop in (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-3):
        walk.hop_down(0.0)
        assert xi - walk.threshold == pytest.approx(hop * xi, rel=1e-5)
        xi = walk.threshold
        assert walk.changes == {} and not walk.is_stuck
        exact, _ = minimiser(problem, walk.side == 0, walk.side, xi)
        np.testing.assert_allclose(walk.v, exact, rtol=1e-9)
    walk.hop_down(0.9999 * xi)
    assert walk.threshold == 0.9999 * xi


def test_a_label_that_goes_back_and_forth_is_stuck():
    walk = walk_to(reduced(5), 0.5)
    row = int(np.flatnonzero(walk.side == 0)[0])
    for times in range(1, 6):
        walk.change((row,))
        assert walk.changes == {row: times}
        assert walk.is_stuck == (times > 3)
        assert walk.side[row] == (0 if times % 2 == 0 else np.sign(walk.v[row]))
    assert not path_module._Walk(reduced(5)).is_stuck


def test_directions_are_the_derivative_of_the_path():
    for intercept in (True, False):
        problem = reduced(6, intercept=intercept)
        walk = walk_to(problem, 0.4)
        direction, (step, rows) = walk.look()
        free = walk.side == 0
        (v, b), (w, c) = (
            minimiser(problem, free, walk.side, xi)
            for xi in (walk.threshold, 0.5 * walk.threshold)
        )
        h = 0.5 * walk.threshold
        np.testing.assert_allclose(direction.v, (w - v) / h, atol=1e-9)
        assert direction.intercept == pytest.approx((c - b) / h, abs=1e-9)

        def excess(v, b, problem=problem):
            return problem.y - b - problem.gram.matrix @ v - problem.mu * v

        rate = (excess(w, c) - excess(v, b)) / h
        np.testing.assert_allclose(direction.excess, rate, atol=1e-8)
        # just above the event nothing has changed, just below a label has
        there = walk.threshold - step
        for factor, changes in ((1 + 1e-7, 0), (1 - 1e-7, 1)):
            other = newton.solve(problem, there * factor)
            state = np.where(other.free, 0, np.sign(other.v))
            assert np.flatnonzero(state != walk.side).tolist() == list(rows)[:changes]


def test_a_direction_without_digits_is_refused():
    walk = walk_to(reduced(6), 0.4)
    exact, free = walk.solver.solve, walk.side == 0

    class Noisy:
        """Answers wrong by some share each time."""

        share, calls = 0.0, 0

        def solve(self, targets, fixed, total):
            Noisy.calls += 1
            v, _, b = exact(targets, fixed, total)
            v = np.where(free, v * (1.0 + Noisy.share), v)
            return v, walk.problem.gram.matrix @ v, b

    good, _ = walk.look()
    walk.solver = Noisy()
    for share, calls in ((0.0, 1), (1e-8, 2), (1e-3, 4)):
        Noisy.share, Noisy.calls = share, 0
        found = walk._direction()
        np.testing.assert_allclose(found.v, good.v, atol=1e-8)
        assert Noisy.calls == calls
    for share in (0.3, 2.0):
        Noisy.share = share
        with pytest.raises(BreakdownError, match="no digits"):
            walk._direction()


@pytest.mark.parametrize("seed", range(4))
def test_without_free_labels_the_intercept_is_the_middle(seed):
    """Every label is bound: b is the middle of where none would become free."""
    rng = np.random.default_rng(seed)
    K = np.ascontiguousarray(gram("rbf", rng.normal(size=(8, 2)), gamma=1.0))
    y = np.where(np.arange(8) % 2 == 0, 1.0, -1.0) + 0.3 * rng.normal(size=8)
    problem = Problem(DenseGram(K), y, np.ones(8), 2.0, True, np.ones(8, dtype=bool))
    trail = path_module.follow(problem, min_threshold=1e-4)
    plateaus = 0
    for k in range(len(trail.thresholds) - 1):
        state, (high, low) = trail.states[k], trail.thresholds[k : k + 2]
        if np.any(state == 0):
            continue
        plateaus += 1
        for share in (0.1, 0.5, 0.9):
            xi = (1 - share) * high + share * low
            v = state * xi / problem.mu
            kinks = y - K @ v - state * xi
            middle = 0.5 * (np.max(kinks[state < 0]) + np.min(kinks[state > 0]))
            level = (1 - share) * trail.level[k] + share * trail.level[k + 1]
            assert level - np.mean(K @ v) == pytest.approx(middle, abs=1e-10)
            assert np.max(kinks[state < 0]) <= np.min(kinks[state > 0]) + 1e-10
    assert plateaus > 0


def test_expanded_in_blocks(monkeypatch):
    X, y, _, _ = curve(30, 3)
    whole = huber_path(X, y, alpha=1e-3)
    monkeypatch.setattr(path_module, "BLOCK", 7)
    parts = huber_path(X, y, alpha=1e-3)
    for name in ("thresholds", "dual_coef", "intercept", "fitted", "states"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-12)


# --- as users get it ----------------------------------------------------------------------


def certify(path, X, y, weights=None, count=8, **params):
    """Certificates at random thresholds, as the estimator computes them."""
    from activehuber.estimators.parameters import prepared
    from activehuber.fitting.target import Target
    from activehuber.fitting.task import Task
    from activehuber.problem.certificate import Objective, row_certificate

    settings, data = prepared(HLRegressor(**params), X, y, weights)
    task = Task(settings, data)
    c = Target(task, 0).reduction.weights
    s = np.where(np.isnan(path.y), 0.0, data.weights)[task.rows]
    low, high = np.log(path.thresholds[[-1, 0]])
    for xi in np.exp(np.random.default_rng(0).uniform(low, high, count)):
        coef, b = path.at(xi)
        coef = coef.reshape(len(coef), -1)[task.rows]
        evaluation = task.expansion.evaluate(coef, task.expansion.values(coef))
        y_used = np.nan_to_num(path.y[task.rows])
        objective = Objective(y_used, s, settings.alpha, c, settings.fit_intercept)
        proof = row_certificate(evaluation, objective, b, xi)
        assert proof.duality_gap <= GAP
        assert proof.kkt_residual <= KKT


def data(variant, manifold):
    X, y, _, _ = curve(70, 3)
    if variant == "duplicates":
        X, y = np.concatenate([X[:35]] * 2), np.concatenate([y[:35]] * 2)
    elif variant == "constant":
        X = np.column_stack([X, np.ones(70)])
    elif variant == "ties":
        X, y = np.round(X), np.round(y)
    if manifold:
        y[::5] = np.nan
    return X, y


@crossed(
    kernel=["rbf", "laplacian", "linear"],
    intercept=[True, False],
    manifold=[0.0, 1e-2],
    weighted=[False, True],
    variant=["plain", "duplicates", "constant", "ties"],
)
def test_certified_between_breakpoints(kernel, intercept, manifold, weighted, variant, rng):
    X, y = data(variant, manifold)
    weights = rng.uniform(0.3, 2.0, len(y)) if weighted else None
    params = {
        "kernel": kernel,
        "fit_intercept": intercept,
        "manifold": manifold,
        "alpha": 1e-3,
    }
    path = huber_path(X, y, weights, **params)
    assert path.complete
    assert path.thresholds[-1] == 1e-3 * path.thresholds[0]
    assert np.all(np.diff(path.thresholds) < 0)
    assert path.n_events >= 20
    certify(path, X, y, weights, **params)


def test_naive_certificate_at_every_breakpoint():
    X, y, _, _ = curve(50, 1)
    K = gram("rbf", X)
    path = huber_path(X, y, alpha=1e-2)
    for xi, w, b in zip(path.thresholds, path.dual_coef, path.intercept, strict=True):
        assert kkt(K, y, w, b, xi, 1e-2)[0] <= KKT
    # No other breakpoint is better at a threshold than the one that belongs to it.
    k = len(path.thresholds) // 2
    xi = path.thresholds[k]
    values = [
        objective(K, y, w, b, xi, 1e-2)
        for w, b in zip(path.dual_coef, path.intercept, strict=True)
    ]
    assert np.argmin(values) == k


@pytest.mark.parametrize(
    "params",
    [
        {"kernel": "rbf"},
        {"kernel": "rbf", "manifold": 1e-2, "n_neighbors": 5},
        {"kernel": "linear", "fit_intercept": False},
        {"kernel": "poly", "alpha": 1e-6},
        {"kernel": "rbf", "alpha": 1e-7},
        {"kernel": "rbf", "gamma": 0.01, "alpha": 1e-9},
        {"views": [View([0]), View([1], "linear")], "view_weights": [0.7, 0.3]},
        {"views": [View([0]), View([1])], "agreement": 1e-2},
    ],
)
def test_equals_single_fits(params):
    X, y, _, _ = curve(60, 2)
    y[50:] = np.nan
    params = {"alpha": 1e-3, **params}
    path = huber_path(X, y, **params)
    views = (2,) if "views" in params else ()
    assert path.dual_coef.shape == (len(path.thresholds), 60, *views)
    certify(path, X, y, **params)
    for share in (0.9, 0.3, 0.05, 0.003):
        xi = share * path.thresholds[0]
        model = HLRegressor(threshold=xi, **params).fit(X, y)
        ours = HLRegressor(threshold=xi, **params).fit(X, y)
        for fitted in ours.result_.targets:
            coef, b = path.at(xi)
            fitted.coefficients[...] = coef.reshape(60, -1)
        ours.intercept_ = b
        np.testing.assert_allclose(
            ours.predict(X), model.predict(X), atol=1e-8 * np.nanmax(np.abs(y))
        )


def test_least_squares_above_the_first_breakpoint():
    X, y, _, _ = curve(40, 0)
    model = HLRegressor(threshold=np.inf).fit(X, y)
    path = huber_path(X, y)
    np.testing.assert_allclose(path.thresholds[0], np.max(np.abs(model.residuals_)))
    for xi in (path.thresholds[0], 2 * path.thresholds[0], np.inf):
        coef, b = path.at(xi)
        np.testing.assert_allclose(coef, model.dual_coef_, atol=1e-9)
        np.testing.assert_allclose(b, model.intercept_)


@pytest.mark.parametrize("manifold", [0.0, 1e-2])
def test_states_agree_with_residuals(manifold):
    X, y, _, _ = curve(60, 5)
    y[::6] = np.nan
    path = huber_path(X, y, manifold=manifold, alpha=1e-3)
    labelled = ~np.isnan(y)
    assert np.all(path.states[:, ~labelled] == 2)
    # Unlabelled rows are part of the expansion only with a graph.
    assert np.all(np.isfinite(path.fitted[:, labelled]))
    assert np.all(np.isnan(path.fitted[:, ~labelled]) == (manifold == 0.0))
    upper, lower = path.residuals[:-1, labelled], path.residuals[1:, labelled]
    middle = 0.5 * (upper + lower)
    xi = 0.5 * (path.thresholds[:-1] + path.thresholds[1:])[:, None]
    expected = np.where(np.abs(middle) <= xi, 0, np.sign(middle))
    clear = np.abs(np.abs(middle) - xi) > 1e-9 * xi
    np.testing.assert_array_equal(path.states[:-1, labelled][clear], expected[clear])
    changes = np.count_nonzero(np.diff(path.states[:-1, labelled], axis=0))
    assert changes + np.count_nonzero(path.states[0, labelled]) == path.n_events


def test_fitted_values_are_predictions():
    X, y, _, _ = curve(50, 4)
    y[40:] = np.nan
    path = huber_path(X, y, alpha=1e-3, manifold=1e-2)
    k = len(path.thresholds) // 2
    model = HLRegressor(threshold=path.thresholds[k], alpha=1e-3, manifold=1e-2).fit(X, y)
    np.testing.assert_allclose(path.fitted[k], model.predict(X), atol=1e-9)


def test_intercept_without_free_labels():
    """Strong penalty and labels of two kinds: b is the middle of a plateau on most of it."""
    X = np.linspace(-1, 1, 10).reshape(-1, 1)
    y = np.where(np.arange(10) % 2 == 0, 1.0, -1.0) + 0.1 * X.ravel()
    path = huber_path(X, y, alpha=10.0, min_threshold=1e-4)
    assert np.any(np.all(path.states != 0, axis=1))
    certify(path, X, y, alpha=10.0)
    for xi in np.geomspace(1.1e-4, path.thresholds[0], 12):
        model = HLRegressor(threshold=xi, alpha=10.0).fit(X, y)
        np.testing.assert_allclose(path.at(xi)[1], model.intercept_, atol=1e-9)


def test_repeated_rows_are_weights():
    X, y, _, _ = curve(30, 6)
    weights = np.arange(30) % 3 + 1.0
    times = weights.astype(int)
    one = huber_path(X, y, weights, gamma=0.5, alpha=1e-3)
    other = huber_path(np.repeat(X, times, axis=0), np.repeat(y, times), gamma=0.5, alpha=1e-3)
    for xi in one.thresholds[0] * np.array([0.8, 0.2, 0.02, 0.002]):
        split = np.add.reduceat(other.at(xi)[0], np.cumsum(times) - times)
        np.testing.assert_allclose(split, one.at(xi)[0], atol=1e-8)
        np.testing.assert_allclose(other.at(xi)[1], one.at(xi)[1], atol=1e-9)


def test_min_threshold_and_max_events():
    X, y, _, _ = curve(50, 7)
    full = huber_path(X, y)
    short = huber_path(X, y, min_threshold=0.05)
    assert short.thresholds[-1] == 0.05
    assert short.complete
    np.testing.assert_allclose(short.at(0.06)[0], full.at(0.06)[0], atol=1e-10)
    with pytest.raises(ValueError, match="min_threshold"):
        short.at(0.04)
    stopped = huber_path(X, y, max_events=5)
    assert not stopped.complete
    assert stopped.n_events == 5
    np.testing.assert_allclose(stopped.thresholds, full.thresholds[:6])
    beyond = huber_path(X, y, min_threshold=1e6)
    assert beyond.complete
    assert len(beyond.thresholds) == 1


def test_labels_that_the_fit_fits_exactly_have_no_path():
    path = huber_path(np.arange(5.0).reshape(-1, 1), np.full(5, 2.0))
    assert path.complete
    assert len(path.thresholds) == 1
    np.testing.assert_allclose(path.at(0.1)[1], 2.0)


def test_fitted_regressor_leaves_out_what_it_removed():
    X, y, _, _ = curve(80, 8)
    model = HLRegressor(gamma=0.5).fit(X, y)
    assert np.any(model.removed_)
    path = model.threshold_path()
    assert np.all((path.states == 2) == model.removed_)
    labels = np.where(model.removed_, np.nan, y)
    np.testing.assert_allclose(path.y, labels)
    again = huber_path(X, labels, gamma=0.5)
    # Rounding decides whether a path was solved anew once more, which leaves a breakpoint.
    assert path.n_events == again.n_events
    ours, theirs = ([p.at(xi)[0] for xi in again.thresholds[:-1]] for p in (path, again))
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
    # At its own threshold the path passes through the fit.
    coef, b = path.at(model.threshold_)
    np.testing.assert_allclose(coef, model.dual_coef_, atol=1e-9)
    np.testing.assert_allclose(b, model.intercept_)


def test_fitted_views_and_targets():
    X, y, _, _ = curve(50, 9)
    views = [View([0], name="a"), View([1], "linear", name="b")]
    model = HLRegressor(views=views, view_weights="learn", threshold=0.2, alpha=1e-3)
    model.fit(X, np.stack([y, -2 * y + 1], axis=1))
    for target in (0, 1):
        path = model.threshold_path(target=target)
        coef, b = path.at(0.2)
        np.testing.assert_allclose(coef, model.dual_coef_[:, :, target], atol=1e-7)
        np.testing.assert_allclose(b, model.intercept_[target], atol=1e-8)
    with pytest.raises(ValueError, match="target must be from 0 to 1"):
        model.threshold_path(target=2)


def test_given_matrices():
    X, y, _, _ = curve(40, 10)
    K = gram("rbf", X)
    one, other = huber_path(K, y, kernel="precomputed"), huber_path(X, y)
    np.testing.assert_allclose(one.dual_coef, other.dual_coef, atol=1e-8)
    fitted = HLRegressor(kernel="precomputed").fit(K, y)
    with pytest.raises(ValueError, match="huber_path"):
        fitted.threshold_path()
    affinity = (np.abs(build("knn", X, n_neighbors=5, gamma=1.0, precomputed=False)) > 0) * 1.0
    affinity = np.asarray(affinity.todense() if hasattr(affinity, "todense") else affinity)
    np.fill_diagonal(affinity, 0.0)
    params = {"graph": affinity, "manifold": 1e-2}
    certify(huber_path(X, y, **params), X, y, **params)
    with pytest.raises(ValueError, match="huber_path"):
        HLRegressor(**params).fit(X, y).threshold_path()


@pytest.mark.parametrize(
    ("error", "match", "params"),
    [
        (TypeError, "removal, threshold", {"threshold": 1.0, "removal": None}),
        (ValueError, "min_threshold", {"min_threshold": 0.0}),
        (TypeError, "min_threshold", {"min_threshold": "low"}),
        (ValueError, "max_events", {"max_events": 0}),
        (TypeError, "max_events", {"max_events": 1.5}),
        (ValueError, "alpha", {"alpha": -1.0}),
        (
            ValueError,
            "learn",
            {"views": [View([0]), View([1])], "view_weights": "learn"},
        ),
    ],
)
def test_errors(error, match, params):
    X, y, _, _ = curve(20, 0)
    with pytest.raises(error, match=match):
        huber_path(X, y, **params)


def test_one_target_and_bounded_memory(monkeypatch):
    X, y, _, _ = curve(20, 0)
    with pytest.raises(ValueError, match="one target"):
        huber_path(X, y[:, None])
    monkeypatch.setattr(path_module, "MOST_BYTES", 2000)
    with pytest.raises(ValueError, match="max_events"):
        huber_path(X, y)


def test_a_breakpoint_takes_its_coefficients_its_fitted_values_and_its_states(monkeypatch):
    X, y, _, _ = curve(20, 0)
    views = [View([0]), View([1], "linear")]
    for params, number in (({}, 1), ({"views": views}, 2)):
        path = huber_path(X, y, **params)
        needed = sum(part.nbytes for part in (path.dual_coef, path.fitted, path.states))
        assert needed == len(path.thresholds) * 20 * (8 * number + 9)
        monkeypatch.setattr(path_module, "MOST_BYTES", needed)
        huber_path(X, y, **params)
        monkeypatch.setattr(path_module, "MOST_BYTES", needed - 1)
        with pytest.raises(ValueError, match="max_events"):
            huber_path(X, y, **params)
        monkeypatch.undo()


def test_solves_anew_when_labels_go_back_and_forth(monkeypatch):
    """Whatever makes the walk stop, the path goes on below and stays certified."""
    X, y, _, _ = curve(40, 11)
    monkeypatch.setattr(path_module, "MOST_CHANGES", 0)
    path = huber_path(X, y, alpha=1e-3)
    assert path.complete
    certify(path, X, y, alpha=1e-3)


def test_refreshed_inverse(monkeypatch):
    X, y, _, _ = curve(60, 12)
    expected = huber_path(X, y, alpha=1e-4)
    monkeypatch.setattr(free_inverse, "REFRESH", 3)
    path = huber_path(X, y, alpha=1e-4)
    np.testing.assert_allclose(path.thresholds, expected.thresholds, rtol=1e-9)
    np.testing.assert_allclose(path.dual_coef, expected.dual_coef, atol=1e-8)


@settings(max_examples=40)
@given(
    n=st.integers(1, 25),
    digits=st.integers(0, 3),
    kernel=st.sampled_from(["rbf", "laplacian", "linear"]),
    alpha=st.sampled_from([1e-4, 1e-2, 1.0]),
    intercept=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_labels(n, digits, kernel, alpha, intercept, weighted, seed):
    """Few digits make ties: equal rows, equal labels, labels that meet a bound together."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 2)), digits)
    y = np.round(rng.standard_t(2, size=n), digits)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    params = {"kernel": kernel, "alpha": alpha, "fit_intercept": intercept, "gamma": 0.5}
    path = huber_path(X, y, weights, **params)
    assert path.complete
    assert np.all(np.diff(path.thresholds) < 0)
    if len(path.thresholds) > 1:
        certify(path, X, y, weights, count=4, **params)


def test_display():
    X, y, _, _ = curve(40, 13)
    model = HLRegressor(gamma=0.5).fit(X, y)
    display = ThresholdPathDisplay.from_estimator(model)
    top, bottom = display.axes_
    assert top.get_xscale() == "log"
    assert bottom.get_xlabel() == "threshold ξ"
    assert bottom.get_xlim()[1] > model.threshold_
    free, bound = (line.get_ydata() for line in bottom.get_lines()[:2])
    assert np.all(free + bound == model.n_labelled_)
    plt.close(display.figure_)
    figure, axes = plt.subplots(2, 1)
    path = huber_path(X, y, max_events=4)
    assert ThresholdPathDisplay.from_path(path, ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="two Axes"):
        ThresholdPathDisplay.from_path(path, ax=axes[0])
    plt.close(figure)
    with pytest.raises(TypeError, match="HLRegressor"):
        ThresholdPathDisplay.from_estimator(path)
    with pytest.raises(ValueError, match="nothing to draw"):
        ThresholdPathDisplay.from_path(huber_path(X, y, min_threshold=1e6))
