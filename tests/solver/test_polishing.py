"""From reduced solutions to certified coefficients: what is mended, what is only certified."""

from dataclasses import replace

import numpy as np
import pytest

from activehuber.operators.dense import DenseGram
from activehuber.operators.features import held_gram
from activehuber.problem.problem import Problem
from activehuber.problem.reduction import Expansion
from activehuber.problem.smoothing import ExpandedView
from activehuber.solver import newton
from activehuber.solver.polishing import recover, refined
from tests import oracles

ALPHA, CENTRE = 1e-2, 7.0
ROWS = np.array([0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 17, 19])  # with labels, of twenty
XI = 0.4


class Case:
    """Twenty rows, fourteen labels, one of them not in use; labels were centred by seven."""

    def __init__(self, *, intercept=True, graph=False, seed=0):
        X, y, *_ = oracles.curve(20, seed, bad=0.2)
        self.K = np.ascontiguousarray(oracles.gram("rbf", X, gamma=0.7))
        self.M = oracles.knn_laplacian(X, 4)[0] if graph else None
        features = np.linalg.cholesky(self.K + 1e-12 * np.eye(20)) if graph else None
        self.manifold = 1e-2 if graph else 0.0
        part = ExpandedView(DenseGram(self.K), features, self.M)
        expansion = Expansion([part], alpha=ALPHA, manifold=self.manifold, agreement=0.0)
        self.reduction = expansion.reduce(ROWS, np.ones(1), intercept)
        self.weights = np.random.default_rng(seed).uniform(0.5, 2.0, 20)
        active = np.arange(14) != 5
        self.problem = Problem(
            self.reduction.gram, y[ROWS] - 0.3, self.weights[ROWS], ALPHA, intercept, active
        )
        self.labels = np.full(20, np.nan)
        self.labels[ROWS[active]] = self.problem.y[active] + CENTRE

    def solve(self, xi=XI):
        return newton.solve(self.problem, xi)

    def recover(self, solution, xi=XI, **options):
        return recover(self.reduction, self.problem, solution, xi, CENTRE, **options)

    def naive_kkt(self, w, b, xi):
        return oracles.kkt(
            self.K,
            self.labels,
            w,
            b + CENTRE,
            xi,
            ALPHA,
            self.manifold,
            self.M,
            self.weights,
            self.problem.fit_intercept,
        )[0]

    def check(self, fit):
        """Everything that a fit says is what its coefficients say."""
        w = fit.coefficients[:, 0]
        residuals = self.problem.y - fit.intercept - (self.K @ w)[ROWS]
        np.testing.assert_allclose(fit.residuals, residuals, atol=1e-12)
        naive = self.naive_kkt(w, fit.intercept, fit.threshold)
        assert fit.certificate.kkt_residual == pytest.approx(naive, rel=1e-6, abs=1e-11)
        J = oracles.objective(
            self.K,
            self.labels,
            w,
            fit.intercept + CENTRE,
            fit.threshold,
            ALPHA,
            self.manifold,
            self.M,
            self.weights,
        )
        assert fit.certificate.objective == pytest.approx(J, rel=1e-10)
        assert fit.solution.intercept == fit.intercept


def disturbed(case, solution, size):
    """Wrong on free rows, and by a constant of fitted values that b makes up for."""
    v = solution.v + size * np.where(solution.free, np.cos(np.arange(14)), 0.0)
    return replace(solution, v=v, fitted=case.problem.gram.matvec(v))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("size", [0.0, 1e-5, 0.1])
def test_a_solution_is_mended_and_certified(intercept, graph, size):
    case = Case(intercept=intercept, graph=graph)
    solution = case.solve()
    assert 2 < solution.free.sum() < 12
    fit = case.recover(disturbed(case, solution, size))
    case.check(fit)
    assert fit.certificate.kkt_residual < 1e-10 and fit.certificate.duality_gap < 1e-10
    assert fit.threshold == XI
    assert fit.intercept == pytest.approx(solution.intercept, abs=1e-8)
    np.testing.assert_allclose(fit.solution.v, solution.v, atol=1e-8)
    if not graph:
        np.testing.assert_allclose(fit.coefficients[ROWS, 0], solution.v, atol=1e-8)
        assert np.all(np.delete(fit.coefficients, ROWS) == 0.0)


@pytest.mark.parametrize("intercept", [True, False])
def test_what_claims_to_be_no_minimiser_is_left_as_it_is(intercept):
    case = Case(intercept=intercept)
    solution = disturbed(case, case.solve(), 0.1)
    fit = case.recover(solution, minimiser=False)
    case.check(fit)
    np.testing.assert_array_equal(fit.coefficients[ROWS, 0], solution.v)
    assert fit.intercept == pytest.approx(solution.intercept, abs=1e-12)
    assert fit.certificate.kkt_residual > 1e-3


@pytest.mark.parametrize("minimiser", [True, False])
def test_a_constant_in_the_fitted_values_is_taken_up_by_the_intercept(minimiser):
    """As where features were centred: only fitted values with the intercept count."""
    case = Case()
    solution = case.solve()
    shifted = replace(
        solution, fitted=solution.fitted + 0.7, intercept=solution.intercept - 0.7
    )
    fit = case.recover(shifted, minimiser=minimiser)
    assert fit.intercept == pytest.approx(solution.intercept, abs=1e-9)
    without = Case(intercept=False)
    found = without.recover(
        replace(without.solve(), fitted=without.solve().fitted + 0.7), minimiser=minimiser
    )
    assert found.intercept == 0.0


def test_without_free_labels_there_is_nothing_to_mend():
    case = Case(intercept=False)
    solution = case.solve(1e-3)
    assert solution.factor is None
    fit = case.recover(solution, 1e-3)
    case.check(fit)
    assert fit.certificate.kkt_residual < 1e-9
    np.testing.assert_array_equal(fit.coefficients[ROWS, 0], solution.v)
    # nor is there a b that free rows would ask for, however bad the balanced one
    wrong = replace(disturbed(Case(), Case().solve(), 0.1), factor=None)
    fit = Case().recover(wrong)
    values = Case().K[np.ix_(ROWS, ROWS)] @ wrong.v
    np.testing.assert_array_equal(fit.coefficients[ROWS, 0], wrong.v)
    assert fit.intercept == pytest.approx(Case().problem.intercept_for(values, XI))


@pytest.mark.parametrize("intercept", [True, False])
def test_threshold_of_least_squares(intercept):
    case = Case(intercept=intercept)
    solution = case.solve(np.inf)
    largest = np.max(np.abs(case.problem.residuals(solution)[case.problem.active]))
    for given in (0.0, 0.5 * largest, 2.0 * largest):
        fit = case.recover(solution, given, least_squares=True)
        case.check(fit)
        assert fit.threshold == pytest.approx(max(given, largest), rel=1e-9)
        assert fit.certificate.kkt_residual < 1e-10
    assert case.recover(solution, 2.0 * largest).threshold == 2.0 * largest
    assert case.recover(solution, 0.5 * largest).threshold == 0.5 * largest


# --- solutions that cannot be mended ------------------------------------------------------


class Stubborn:
    """A factor that answers as it likes, with how often it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    def solve(self, targets, fixed, total):
        self.asked += 1
        return self.answer(targets, fixed, total)


@pytest.fixture
def precise(monkeypatch):
    """How products with K were asked for."""
    asked = []
    original = Expansion.values

    def recorded(self, w, *, precise=False):
        asked.append(precise)
        return original(self, w, precise=precise)

    monkeypatch.setattr(Expansion, "values", recorded)
    return asked


def test_extended_precision_is_for_what_is_not_good_enough(precise):
    case = Case()
    solution = case.solve()
    case.recover(solution)
    assert precise and not any(precise)
    nothing = Stubborn(lambda targets, fixed, total: (0.0 * targets, 0.0 * targets, 0.0))
    wrong = replace(disturbed(case, solution, 0.1), factor=nothing)
    precise.clear()
    fit = case.recover(wrong)
    assert any(precise)
    assert nothing.asked == 2  # once a try: what does not help is not repeated
    case.check(fit)
    precise.clear()
    case.recover(wrong, minimiser=False)
    assert not any(precise)


class Told:
    """A reduction, and its states, whose certificates are told by precision."""

    extended_precision, is_settled = True, True
    coefficients, v, intercept, residuals = np.zeros((20, 1)), np.zeros(14), 0.0, np.ones(14)

    def __init__(self, proofs):
        self.proofs = proofs

    def start(self, problem, solution, level, *, precise):
        self.precise = precise
        return self

    def choices(self):
        yield self

    def certificate(self, threshold, centre):
        assert (threshold, centre) == (XI, CENTRE)
        return self.proofs[self.precise]


def test_the_better_of_two_tries_is_taken(monkeypatch):
    case = Case()
    solution = case.solve()
    good = case.recover(solution).certificate
    bad = case.recover(disturbed(case, solution, 1), minimiser=False).certificate

    def taken(first, second):
        case.reduction = Told({False: first, True: second})
        return case.recover(solution).certificate

    assert taken(bad, good) is good
    worse = replace(bad, kkt_residual=2 * bad.kkt_residual)
    assert taken(bad, worse) is bad
    assert taken(worse, bad) is bad
    # 1e-9 is good enough, more is not
    enough = replace(bad, kkt_residual=1e-9)
    assert taken(enough, good) is enough
    almost = replace(bad, kkt_residual=2e-9)
    assert taken(almost, good) is good
    monkeypatch.setattr(Told, "extended_precision", False)
    assert taken(almost, good) is almost


def test_refinement_ends_when_it_has_to():
    """Halved errors: five rounds, no more; tiny ones are left as they are."""
    case = Case()
    exact = case.solve()
    factor = exact.factor

    def half(targets, fixed, total):
        v, image, b = factor.solve(targets, fixed, total)
        return 0.5 * v, 0.5 * image, 0.5 * b

    for size, rounds in ((1e-3, 5), (1e-14, 0)):
        slow = Stubborn(half)
        start = replace(disturbed(case, exact, size), factor=slow)
        state = refined(case.reduction.start(case.problem, start, XI))
        assert slow.asked == rounds
        left = state.v - exact.v
        np.testing.assert_allclose(left, 0.5**rounds * (start.v - exact.v), atol=1e-12)


@pytest.mark.parametrize("worst", [0.5, 2.0])
def test_errors_are_small_beside_the_threshold_or_the_residuals(worst):
    """Where refinement may end: 1e-12 of ξ, or of the largest residual if that is less."""
    for xi in (XI, 1e3):
        case = Case()
        exact = case.solve(xi)
        r = np.abs(case.problem.residuals(exact))[case.problem.active].max()
        size = worst * 1e-12 * min(xi, r)
        row = int(np.flatnonzero(exact.free)[0])
        # An error of that size in one label, made by the label itself.
        y = case.problem.y.copy()
        exact = case.recover(exact, xi).solution
        exact = replace(exact, fitted=case.problem.gram.matvec(exact.v))
        error = y - exact.intercept - exact.fitted - case.problem.mu * exact.v
        y -= np.where(exact.free, error, 0.0)
        y[row] += size
        asked = Stubborn(lambda targets, fixed, total: (0 * targets, 0 * targets, 0.0))
        case.problem = replace(case.problem, y=y)
        refined(case.reduction.start(case.problem, replace(exact, factor=asked), xi))
        assert asked.asked == (worst > 1.0)


@pytest.mark.parametrize("much_the_same", [True, False])
def test_the_intercept_is_the_one_that_certifies_better(much_the_same):
    """Balanced, or what free rows ask for, trusted by the inverse square of their rounding."""
    sharper = 0
    for seed in range(8):
        case = Case(seed=seed % 4)
        solution, problem = case.solve(), case.problem
        # A sum of v that is not zero, and free rows that miss r = μv by much the same or not.
        v = solution.v + (seed - 2) * 0.01 / problem.mu * solution.free
        f = case.K[np.ix_(ROWS, ROWS)] @ v
        asked = solution.intercept + f + problem.mu * v + 0.002 * np.cos(np.arange(14))
        if much_the_same:
            problem = replace(problem, y=np.where(solution.free, asked, problem.y))
        case.problem = problem
        case.labels[ROWS[problem.active]] = problem.y[problem.active] + CENTRE
        nothing = Stubborn(lambda targets, fixed, total: (0.0 * targets, 0.0 * targets, 0.0))
        fit = case.recover(replace(solution, v=v, fitted=f, factor=nothing))
        case.check(fit)

        balanced = problem.intercept_for(f, XI)
        error = (problem.y - balanced - f - problem.mu * v)[solution.free]
        size = case.K[np.ix_(ROWS, ROWS)] @ np.abs(v) + np.abs(problem.y)
        other = balanced + np.average(error, weights=1.0 / size[solution.free] ** 2)
        w = np.zeros(20)
        w[ROWS] = v
        violations = [case.naive_kkt(w, b, XI) for b in (balanced, other)]
        best = (balanced, other)[np.argmin(violations)]
        assert fit.intercept == pytest.approx(best, abs=1e-9)
        sharper += violations[1] < violations[0]
    assert (sharper > 4) == much_the_same


@pytest.mark.parametrize("centred", [True, False])
def test_refinement_carries_the_intercept_along(centred):
    """Features of Q may be centred: fitted values of the reduced problem miss a constant."""
    case = Case()
    if centred:
        Phi = np.random.default_rng(0).normal(size=(20, 3)) + 2.0
        case.K = Phi @ Phi.T
        part = ExpandedView(held_gram(Phi), Phi, None)
        expansion = Expansion([part], alpha=ALPHA, manifold=0.0, agreement=0.0)
        case.reduction = expansion.reduce(ROWS, np.ones(1), True)
        case.problem = replace(case.problem, gram=case.reduction.gram)
    problem, exact = case.problem, case.solve(1.0)
    assert np.sum(exact.free) > 4
    constant = case.K[np.ix_(ROWS, ROWS)] @ exact.v - exact.fitted
    assert (np.max(np.abs(constant)) > 1e-3) == centred
    start = disturbed(case, exact, 0.01)
    start = replace(start, intercept=start.intercept + 0.3)
    found = refined(case.reduction.start(problem, start, 1.0))
    values = (case.K @ found.coefficients[:, 0])[ROWS]
    error = problem.y - found.intercept - values - problem.mu * found.v
    np.testing.assert_allclose(error[exact.free], 0.0, atol=1e-11)
    np.testing.assert_allclose(found.v, exact.v, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_recovered_solution_has_the_fitted_values_of_its_coefficients(intercept):
    case = Case(intercept=intercept)
    fit = case.recover(case.solve())
    values = (case.K @ fit.coefficients[:, 0])[ROWS]
    np.testing.assert_allclose(fit.solution.fitted, values, atol=1e-10)
    assert fit.solution.intercept == fit.intercept
    np.testing.assert_allclose(case.problem.residuals(fit.solution), fit.residuals, atol=1e-12)
