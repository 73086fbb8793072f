"""Newton's method, step by step, beside a naive twin in dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.newton import Solution, Status
from tests import oracles


def make(seed, n=24, alpha=1e-4, *, intercept=True, gamma=2.0):
    """A problem with weights, and with labels out of use."""
    rng = np.random.default_rng(seed)
    X, y, *_ = oracles.curve(n, seed, bad=0.3)
    K = np.ascontiguousarray(oracles.gram("rbf", X, gamma=gamma))
    weights, active = rng.uniform(0.3, 3.0, n), np.arange(n) % 7 != 3
    y = np.where(active, y - np.median(y), 50.0)
    return Problem(DenseGram(K), y, weights, alpha, intercept, active)


class Twin:
    """The same iteration: loops, dense solves, bisection."""

    def __init__(self, problem, xi):
        self.problem, self.xi, self.use = problem, xi, problem.active
        self.K, self.y = problem.gram.matrix, problem.y
        s = problem.weights
        self.s, self.mu = s, 2 * s[self.use].sum() * problem.alpha / s

    def location(self, fitted):
        if not self.problem.fit_intercept:
            return 0.0
        values, s = (self.y - fitted)[self.use], self.s[self.use]

        def last(sign):
            """The largest b with a balance of at least, or above, zero."""
            low, high = values.min() - 2 * self.xi, values.max() + 2 * self.xi
            for _ in range(100):
                b = 0.5 * (low + high)
                balance = s @ np.clip(values - b, -self.xi, self.xi)
                keeps = balance > sign * 1e-12 * s.sum() * self.xi
                low, high = (b, high) if keeps else (low, b)
            return low

        return 0.5 * (last(1.0) + last(-1.0))

    def pattern(self, r):
        free = self.use & (np.abs(r) <= self.xi)
        fixed = np.where(self.use & ~free, np.sign(r) * self.xi / self.mu, 0.0)
        return free, fixed

    def target(self, free, fixed, total=0.0):
        """v, b with the free rows solved for."""
        if not free.any():
            return fixed, self.location(self.K @ fixed)
        k, border = free.sum(), int(self.problem.fit_intercept)
        A = np.zeros((k + border, k + border))
        A[:k, :k] = self.K[np.ix_(free, free)] + np.diag(self.mu[free])
        rhs = np.append((self.y - self.K @ fixed)[free], [total - fixed.sum()] * border)
        if border:
            A[k, :k] = A[:k, k] = 1.0
        x = np.linalg.solve(A, rhs)
        v = fixed.copy()
        v[free] = x[:k]
        return v, x[k] if border else 0.0

    def length(self, v, r, new_v, new_r):
        change, d = new_v - v, (new_r - r)[self.use]

        def slope(t):
            psi = np.clip(r[self.use] + t * d, -self.xi, self.xi)
            return psi / self.mu[self.use] @ d + change @ self.K @ (v + t * change)

        if slope(0.0) > 0:
            return 0.0
        low, high = 0.0, 64.0
        for _ in range(100):
            t = 0.5 * (low + high)
            low, high = (t, high) if slope(t) < 0 else (low, t)
        return 0.5 * (low + high)

    def run(self, v, most=100, slack=0):
        """Targets of all steps with their violations, up to the first that has its pattern."""
        b = self.location(self.K @ v)
        steps = []
        for _ in range(most):
            r = self.y - b - self.K @ v
            free, fixed = self.pattern(r)
            new_v, new_b = self.target(free, fixed)
            new_r = self.y - new_b - self.K @ new_v
            error = self.mu * new_v - np.clip(new_r, -self.xi, self.xi)
            steps.append((np.max(np.abs(error[self.use])), new_v, new_b, free))
            found, settled = self.pattern(new_r)
            if np.sum((found != free) | (settled != fixed)) <= slack:
                break
            t = self.length(v, r, new_v, new_r)
            v, b = v + t * (new_v - v), b + t * (new_b - b)
        return steps

    def least_squares(self):
        return self.target(self.use, np.zeros_like(self.y))[0]


CASES = [
    (seed, xi, alpha, intercept)
    for seed in range(5)
    for xi, alpha in ((0.3, 1e-5), (0.02, 1e-4), (0.002, 1e-3), (1e-3, 3.0), (0.5, 0.1))
    for intercept in (True, False)
]


@pytest.mark.parametrize(("seed", "xi", "alpha", "intercept"), CASES)
def test_steps_are_those_of_the_twin(seed, xi, alpha, intercept):
    problem = make(seed, alpha=alpha, intercept=intercept)
    twin = Twin(problem, xi)
    steps = twin.run(twin.least_squares())
    found = newton.solve(problem, xi)
    check_minimum(twin, found)
    assert found.status is Status.CONVERGED
    assert found.n_iter == len(steps)
    _, v, b, free = steps[-1]
    np.testing.assert_array_equal(found.free, free)
    np.testing.assert_allclose(found.v, v, atol=1e-8 * np.max(np.abs(v)))
    assert found.intercept == pytest.approx(b, abs=1e-9)


def check_minimum(twin, found):
    residuals = twin.y - found.intercept - twin.K @ found.v
    psi = np.where(twin.use, np.clip(residuals, -twin.xi, twin.xi), 0.0)
    np.testing.assert_allclose(twin.mu * found.v, psi, atol=1e-9 * twin.xi + 1e-12)
    np.testing.assert_allclose(found.fitted, twin.K @ found.v, atol=1e-9)
    if twin.problem.fit_intercept:
        assert abs(found.v.sum()) <= 1e-9 * np.sum(np.abs(found.v))
    else:
        assert found.intercept == 0.0


HARD = 0, 0.02, 1e-4  # takes more than six steps


def hard():
    seed, xi, alpha = HARD
    problem = make(seed, alpha=alpha)
    twin = Twin(problem, xi)
    steps = twin.run(twin.least_squares())
    assert len(steps) > 6
    return problem, xi, twin, steps


def test_out_of_steps_the_best_point_so_far_is_kept():
    problem, xi, _, steps = hard()
    for most in range(1, len(steps)):
        found = newton.solve(problem, xi, max_iter=most)
        violations = [violation for violation, *_ in steps[:most]]
        _, v, b, free = steps[int(np.argmin(violations))]
        assert found.status is Status.OUT_OF_STEPS
        assert found.n_iter == most
        np.testing.assert_array_equal(found.free, free)
        np.testing.assert_allclose(found.v, v, atol=1e-8 * np.max(np.abs(v)))
        assert found.intercept == pytest.approx(b)
    assert newton.solve(problem, xi, max_iter=len(steps)).status is Status.CONVERGED


@pytest.mark.parametrize("slack", [1, 2, 4])
def test_slack_ends_earlier(slack):
    for seed in range(6):
        problem = make(seed, alpha=1e-4)
        twin = Twin(problem, 0.02)
        steps = twin.run(twin.least_squares(), slack=slack)
        found = newton.solve(problem, 0.02, slack=slack)
        assert found.n_iter == len(steps)
        np.testing.assert_allclose(found.v, steps[-1][1], atol=1e-6)


@pytest.mark.parametrize("intercept", [True, False])
def test_least_squares_is_one_linear_solve(intercept):
    problem = make(1, intercept=intercept)
    found = newton.solve(problem, np.inf)
    twin = Twin(problem, np.inf)
    v, b = twin.target(twin.use, np.zeros_like(problem.y))
    np.testing.assert_allclose(found.v, v, atol=1e-9 * np.max(np.abs(v)))
    np.testing.assert_allclose(found.fitted, twin.K @ v, atol=1e-9)
    assert found.intercept == pytest.approx(b, abs=1e-12)
    assert found.n_iter == 1 and found.status is Status.CONVERGED
    np.testing.assert_array_equal(found.free, problem.active)


def test_a_start_at_the_solution_takes_one_step():
    problem, xi, twin, steps = hard()
    there = newton.solve(problem, xi)
    again = newton.solve(problem, xi, start=there)
    assert again.n_iter == 1 and again.status is Status.CONVERGED
    near = twin.run(newton.solve(problem, 1.2 * xi).v)
    assert newton.solve(problem, xi, start=newton.solve(problem, 1.2 * xi)).n_iter == len(near)
    assert len(near) < len(steps)


class Watched:
    """A source that keeps what it is asked for."""

    def __init__(self, source):
        self.source, self.mu, self.asked = source, source.mu, []

    def factor(self, free, likely_bound=None):
        self.asked.append((free, likely_bound))
        return self.source.factor(free, likely_bound)


def test_rows_near_the_threshold_are_said_to_be_likely_bound():
    problem, _, twin, _ = hard()
    watched = Watched(problem.gram.source(problem.mu))
    start = newton.solve(problem, np.inf)
    xi = twin.xi = 0.5
    newton.solve(problem, xi, source=watched, start=start, max_iter=1)
    residuals = np.abs(problem.y - twin.location(start.fitted) - start.fitted)
    ((free, likely),) = watched.asked
    np.testing.assert_array_equal(free, problem.active & (residuals <= xi))
    np.testing.assert_array_equal(likely, residuals > 0.7 * xi)


def test_the_source_given_is_the_one_used():
    problem, xi, *_ = hard()
    watched = Watched(problem.gram.source(problem.mu))
    found = newton.solve(problem, xi, source=watched)
    assert len(watched.asked) >= found.n_iter
    likely = np.arange(len(problem.y)) % 3 == 0
    newton.solve(problem, np.inf, source=watched, likely_bound=likely)
    assert watched.asked[-1][1] is likely


class Coarse(DenseGram):
    """Every third label is solved first."""

    coarse_step = 3


def coarse():
    fine = make(1, n=90, alpha=1e-4)
    return replace(fine, gram=Coarse(fine.gram.matrix))


def test_the_first_guess_is_a_fit_to_some_of_the_labels():
    problem = coarse()
    rows = np.flatnonzero(problem.active)[::3]
    part = problem.on_some(rows, DenseGram(problem.gram.matrix[np.ix_(rows, rows)]))
    twin = Twin(part, 0.005)
    steps = twin.run(twin.least_squares())
    # Four steps are enough for a guess; the fifth would be a better one.
    assert np.argmin([violation for violation, *_ in steps[:5]]) == 4
    expected = np.zeros_like(problem.y)
    expected[rows] = min(steps[:4], key=lambda step: step[0])[1]
    guess = newton.coarse_solution(problem, 0.005)
    np.testing.assert_allclose(guess, expected, atol=1e-8 * np.max(np.abs(expected)))

    watched = Watched(problem.gram.source(problem.mu))
    found = newton.solve(problem, 0.005, source=watched)
    everyone = Twin(problem, 0.005)
    check_minimum(everyone, found)
    assert found.n_iter == len(everyone.run(guess))
    # with a start there is nothing to be guessed
    again = newton.solve(problem, 0.005, start=found)
    assert again.n_iter == 1


# --- where the direct way does not end ----------------------------------------------------


@pytest.fixture
def levels(monkeypatch):
    """Thresholds at which an intercept is asked for: where searches start."""
    asked = []

    def recorded(problem, fitted, threshold):
        asked.append(threshold)
        return original(problem, fitted, threshold)

    original = Problem.intercept_for
    monkeypatch.setattr(Problem, "intercept_for", recorded)
    return asked


def test_thresholds_fall_tenfold_from_least_squares(monkeypatch, levels):
    problem, xi, twin, _ = hard()
    monkeypatch.setattr(newton, "PATIENCE", 3)
    stopped = newton.solve(problem, xi, max_iter=3)
    assert stopped.status is Status.OUT_OF_STEPS and stopped.n_iter == 3
    assert newton.solve(problem, xi, max_iter=4).n_iter > 4
    levels.clear()
    found = newton.solve(problem, xi, max_iter=100)
    v = twin.least_squares()
    first = np.abs(twin.y - twin.target(twin.use, 0.0 * v)[1] - twin.K @ v)[twin.use].max()
    expected = [first * 0.1**k for k in range(1, 9) if first * 0.1**k > xi]
    assert levels == pytest.approx([xi, *expected, xi])

    count = 3
    for level in [*expected, xi]:
        way = Twin(problem, level).run(v)
        v, count = way[-1][1], count + len(way)
    assert found.n_iter == count
    assert found.status is Status.CONVERGED
    check_minimum(twin, found)


def test_strides_get_shorter_where_a_search_does_not_end(monkeypatch):
    problem = make(0)
    tried = []

    def never(problem, threshold, source, point, max_iter, slack=0.0):
        tried.append(threshold)
        return replace(newton.solve(problem, np.inf), status=Status.STALLED, n_iter=2)

    monkeypatch.setattr(newton, "_iterate", never)
    start = newton.solve(problem, np.inf)
    top = np.max(np.abs(problem.residuals(start)[problem.active]))
    found = newton.solve(problem, 0.5 * top)
    # 10⁻¹ and 10^(−1/2) fail and 10^(−1/4) is not shortened further
    strides = [0.5, 0.5, 10**-0.25, 0.5]
    assert tried == pytest.approx([0.5 * top, *(top * stride for stride in strides)])
    assert found.n_iter == newton.PATIENCE + 2 * len(strides)
    assert found.status is Status.STALLED


class Answers(Watched):
    """A source whose factors answer as they are told, one after the other."""

    def __init__(self, source, answers):
        super().__init__(source)
        self.answers = answers

    def factor(self, free, likely_bound=None):
        factor = super().factor(free, likely_bound)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if answer is not None:
            factor.solve = lambda *_: answer
        return factor


@pytest.mark.parametrize(
    ("xi", "labels", "scale"),
    [(1.0, [4.0, -0.5], 1.0), (8.0, [2.0, -0.5], 2.0), (0.25, [-4.0, 1.0], 0.25)],
)
def test_violations_may_be_a_few_roundings(xi, labels, scale):
    """1e-13 of ξ, or of the largest label if that is less."""
    active = np.array([True, True, False])
    problem = Problem(
        DenseGram(np.eye(3)), np.array([*labels, 1e3]), np.ones(3), 0.25, True, active
    )
    start = Solution(np.zeros(3), problem.y.copy(), 0.0, active, 0, Status.CONVERGED, None)
    for violation, ends in ((0.7e-13, True), (1.5e-13, False)):
        # The first label is free, and its residual in the end is a little beyond ξ.
        residuals = np.array([xi + scale * violation, 0.0, 0.0])
        answer = residuals / problem.mu, problem.y - residuals, 0.0
        source = Answers(problem.gram.source(problem.mu), [answer])
        found = newton.solve(problem, xi, source=source, start=start, max_iter=1)
        assert (found.status is Status.CONVERGED) == ends


def test_a_search_that_cannot_go_on_has_stalled():
    """A target uphill: b is set right once, and if nothing is left to do the search ends."""
    problem, xi, twin, _ = hard()
    v = twin.least_squares()
    uphill = 50.0 * v, 50.0 * (twin.K @ v), 0.0
    source = Answers(problem.gram.source(problem.mu), [uphill])
    there = newton.solve(problem, xi)
    found = newton.solve(problem, xi, source=source, start=there, max_iter=9)
    assert found.status is Status.STALLED and found.n_iter == 1
    # After a step towards a good target b is not the best one for the fitted values.
    source = Answers(problem.gram.source(problem.mu), [None, uphill])
    start = newton.solve(problem, np.inf)
    found = newton.solve(problem, xi, source=source, start=start, max_iter=9)
    assert found.status is Status.STALLED and found.n_iter == 3


def test_numbers_that_are_not_finite_are_told():
    problem = make(0)

    nothing = np.full(24, np.nan)
    start = newton.solve(problem, np.inf)
    broken = Answers(problem.gram.source(problem.mu), [(nothing, nothing, 0.0)])
    with pytest.raises(BreakdownError, match="not finite"):
        newton.solve(problem, 0.1, source=broken, start=start)


def test_what_counts_as_rounding():
    """ε·max(|Q||v| + |y| + |b|) over labels in use, and only after ten steps."""
    matrix = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 1e9]])
    y, active = np.array([3.0, -5.0, 1e9]), np.array([True, True, False])
    problem = Problem(DenseGram(matrix), y, np.ones(3), 1.0, True, active)
    v = np.array([1.0, -1.0, 1.0])
    point = Solution(v, np.zeros(3), -4.0, active, 0, Status.CONVERGED, None)
    limit = np.finfo(float).eps * (3.0 + 5.0 + 4.0)
    for step, told in ((9, False), (10, True), (11, True)):
        assert newton._is_rounding(problem, point, limit, step) == told
    assert not newton._is_rounding(problem, point, 1.01 * limit, 10)


# --- parts --------------------------------------------------------------------------------


def test_the_objective_is_that_of_the_coefficients():
    problem = make(2, alpha=0.01)
    found = newton.solve(problem, 0.1)
    y = np.where(problem.active, problem.y, np.nan)
    naive = oracles.objective(
        problem.gram.matrix, y, found.v, found.intercept, 0.1, 0.01, s=problem.weights
    )
    value = newton.objective(problem, found.v, found.fitted, problem.residuals(found), 0.1)
    assert value == pytest.approx(naive, rel=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_one_step_solves_the_pattern_of_its_start(intercept):
    problem = make(4, alpha=1e-3, intercept=intercept)
    start = newton.solve(problem, np.inf)
    found = newton.one_step(problem, start, 0.1)
    twin = Twin(problem, 0.1)
    free, fixed = twin.pattern(twin.y - start.intercept - start.fitted)
    v, b = twin.target(free, fixed)
    np.testing.assert_array_equal(found.free, free)
    np.testing.assert_allclose(found.v, v, atol=1e-9 * np.max(np.abs(v)))
    assert found.intercept == pytest.approx(b, abs=1e-12)
    assert found.n_iter == 1 and found.status is Status.CONVERGED


def test_a_label_at_the_threshold_is_free():
    problem = Problem(
        DenseGram(np.eye(4)),
        np.array([1.0, -1.0, 1.5, 9.0]),
        np.ones(4),
        0.5,
        False,
        np.array([True, True, True, False]),
    )
    zero = np.zeros(4)
    start = Solution(zero, zero, 0.0, problem.active, 0, Status.CONVERGED, None)
    found = newton.one_step(problem, start, 1.0)
    assert found.free.tolist() == [True, True, False, False]
    np.testing.assert_allclose(found.v, [0.25, -0.25, 1.0 / 3.0, 0.0])  # μ = 3


@pytest.mark.parametrize("intercept", [True, False])
def test_solutions_with_a_factor(intercept):
    problem = make(5, alpha=1e-2, intercept=intercept)
    rng = np.random.default_rng(0)
    free = problem.active & (rng.uniform(size=24) < 0.6)
    fixed = np.where(free, 0.0, rng.normal(size=24))
    targets = rng.normal(size=24)
    for total in (0.0, 2.5):
        factor = problem.gram.source(problem.mu).factor(free)
        default = {} if total == 0.0 else {"total": total}
        v, fitted, b = problem.solve_with(factor, targets, fixed, **default)
        twin = Twin(replace(problem, y=targets), np.inf)
        expected, wanted = twin.target(free, fixed, total)
        np.testing.assert_allclose(v, expected, atol=1e-9)
        np.testing.assert_allclose(fitted, twin.K @ expected, atol=1e-9)
        assert b == pytest.approx(wanted, abs=1e-10)
