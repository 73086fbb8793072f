"""Closed-form leave-one-out against n brute-force refits that keep ℓ, ξ, kernel and graph."""

from dataclasses import replace

import numpy as np
import pytest

from activehuber import HLRegressor
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.solver import newton
from activehuber.solver.leave_one_out import (
    LeaveOneOut,
    leave_one_out,
    members,
    refit_without,
    rough_leave_one_out,
    units,
)
from tests import oracles
from tests.pairwise import crossed

# --- the closed form itself, with weights -------------------------------------------------


WEIGHTS = np.tile([1.0, 2.0, 3.0, 0.5, 1.05], 6)


def weighted(xi, *, intercept=True, alpha=3e-3, weights=WEIGHTS):
    """A problem with labels out of use, and its solution."""
    n = len(weights)
    X, y, *_ = oracles.curve(n, 5)
    K = np.ascontiguousarray(oracles.gram("rbf", X, gamma=0.5))
    active = np.arange(n) % 8 != 5
    problem = Problem(DenseGram(K), y - np.median(y), weights, alpha, intercept, active)
    return problem, newton.solve(problem, xi)


def closed_form(problem, solution, xi):
    residuals = problem.residuals(solution)
    return leave_one_out(problem, solution, residuals, problem.mu, xi)


def dense_variances(problem, solution):
    """q_i from the Gaussian process of the other free labels, one of weight s > 1 less one."""
    K, s, mu = problem.gram.matrix, problem.weights, problem.mu
    unit = mu * s  # of weight one
    found = []
    for i in range(len(s)):
        left = s.copy()
        left[i] = max(0.0, s[i] - 1.0)
        use = solution.free & (left > 0.0)
        A = K[np.ix_(use, use)] + np.diag((unit / np.where(use, left, 1.0))[use])
        inverse, k = np.linalg.inv(A), K[use, i]
        q = K[i, i] - k @ inverse @ k
        if problem.fit_intercept:
            q += (1.0 - inverse.sum(axis=0) @ k) ** 2 / inverse.sum()
        found.append(q)
    return np.array(found)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("xi", [0.4, np.inf])
def test_weights_above_one_are_labels_of_which_one_is_left_out(intercept, xi):
    problem, solution = weighted(xi, intercept=intercept)
    loo = closed_form(problem, solution, xi)
    bound = problem.active & ~solution.free
    assert np.any(bound) == np.isfinite(xi)
    exact = 0
    for i in np.flatnonzero(problem.active):
        s, active = problem.weights.copy(), problem.active.copy()
        s[i] -= min(1.0, s[i])
        active[i] = s[i] > 0.0
        alpha = problem.alpha * problem.total_weight / s[active].sum()  # keeps μ of the others
        s[i] = s[i] or 1.0
        other = replace(problem, weights=s, active=active, alpha=alpha)
        fit = newton.solve(other, xi)
        wanted = problem.y[i] - fit.intercept - fit.fitted[i]
        assert refit_without(problem, solution, i, xi) == pytest.approx(wanted, abs=1e-9)
        same = np.delete(fit.free == solution.free, i)
        # Of several equal labels one is left out: the rest have to keep their state too.
        if np.all(same) and (not active[i] or fit.free[i] == solution.free[i]):
            assert loo.residuals[i] == pytest.approx(wanted, abs=1e-8)
            exact += 1
    assert exact > 15
    out = ~problem.active
    np.testing.assert_allclose(loo.residuals[out], problem.residuals(solution)[out])
    for i in np.flatnonzero(out):
        assert refit_without(problem, solution, i, xi) == pytest.approx(loo.residuals[i])


@pytest.mark.parametrize("intercept", [True, False])
def test_variances_are_those_of_a_gaussian_process(intercept):
    problem, solution = weighted(0.4, intercept=intercept)
    loo = closed_form(problem, solution, 0.4)
    share = np.minimum(1.0, 1.0 / problem.weights)
    np.testing.assert_allclose(loo.ridge, problem.mu / share)
    np.testing.assert_array_equal(loo.missing, np.zeros(30))
    expected = dense_variances(problem, solution)
    single = solution.free & (problem.weights <= 1.0)
    np.testing.assert_allclose(loo.variance[single], expected[single], rtol=1e-7)
    several = solution.free & (problem.weights > 1.0)
    np.testing.assert_allclose(loo.variance[several], expected[several], rtol=1e-7)
    rest = ~solution.free
    np.testing.assert_allclose(loo.variance[rest], expected[rest], rtol=1e-7)
    np.testing.assert_allclose(loo.inflation**2, 1.0 + loo.variance / loo.ridge)


# --- groups -------------------------------------------------------------------------------

GROUPS = np.array([0, 0, -1, 1, 2, 1, 2, 2, -1, 3] * 3)


def in_groups(xi, *, groups=GROUPS, **how):
    problem, solution = weighted(xi, **how)
    return replace(problem, groups=groups), solution


def mates(groups, row):
    return np.flatnonzero(groups == groups[row]) if groups[row] >= 0 else np.array([row])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("xi", [0.4, np.inf])
def test_groups_are_left_out_as_in_fits_without_them(intercept, xi):
    problem, solution = in_groups(xi, intercept=intercept)
    loo, exact = closed_form(problem, solution, xi), 0
    for part in (mates(GROUPS, i) for i in (0, 3, 4, 9)):
        active = problem.active.copy()
        active[part] = False
        kept = problem.weights[active].sum()
        alpha = problem.alpha * problem.total_weight / kept  # keeps μ of the others
        fit = newton.solve(replace(problem, active=active, alpha=alpha), xi)
        wanted = (problem.y - fit.intercept - fit.fitted)[part]
        again = [refit_without(problem, solution, i, xi) for i in part]
        np.testing.assert_allclose(again, wanted, atol=1e-8)
        if np.array_equal(fit.free[active], solution.free[active]):
            np.testing.assert_allclose(loo.residuals[part], wanted, atol=1e-8)
            exact += 1
        # The variance is that of a Gaussian process of the free labels of other groups.
        use = solution.free.copy()
        use[part] = False
        K, unit = problem.gram.matrix, problem.mu
        A = K[np.ix_(use, use)] + np.diag(unit[use])
        inverse = np.linalg.inv(A)
        for i in part:
            q = K[i, i] - K[i, use] @ inverse @ K[use, i]
            if intercept:
                q += (1.0 - inverse.sum(axis=0) @ K[use, i]) ** 2 / inverse.sum()
            assert loo.variance[i] == pytest.approx(q, rel=1e-7)
    assert exact >= (1 if np.isfinite(xi) else 4)
    plain = closed_form(*weighted(xi, intercept=intercept), xi)  # its factor is used up
    alone = GROUPS < 0
    np.testing.assert_array_equal(loo.residuals[alone], plain.residuals[alone])
    np.testing.assert_array_equal(loo.variance[alone], plain.variance[alone])
    np.testing.assert_allclose(loo.ridge, plain.ridge)


def test_a_group_with_every_free_label_is_fitted_without():
    """All labels in use are one group's: without them nothing is known but the centre."""
    groups = np.where(np.arange(30) < 20, 0, 1)
    problem, _ = in_groups(np.inf, groups=groups)
    problem = problem.using(np.arange(30) < 20)
    solution = newton.solve(problem, np.inf)
    loo = closed_form(problem, solution, np.inf)
    np.testing.assert_array_equal(loo.residuals[:20], problem.y[:20])
    np.testing.assert_array_equal(loo.variance[:20], problem.gram.diagonal[:20])
    np.testing.assert_allclose(loo.residuals[20:], problem.residuals(solution)[20:])


def test_members():
    found = members(np.array([2, -1, 0, 2, -1, 0, 5]))
    assert [part.tolist() for part in found] == [[2, 5], [0, 3], [6]]
    assert members(None) == [] and members(np.array([-1, -1])) == []


def test_with_fewer_than_two_labels_free_it_is_fitted_again():
    """One free label of weight two stands for two, and the closed form holds."""
    problem, solution = weighted(0.4)
    counts = {1.0: True, 1.5: True, 1.99: True, 2.0: False, 2.1: False, 3.0: False}
    for weight, again in counts.items():
        row = int(np.flatnonzero(solution.free)[0])
        one = replace(solution, free=np.arange(30) == row, factor=factor_of(problem, row))
        weights = problem.weights.copy()
        weights[row] = weight
        loo = closed_form(replace(problem, weights=weights), one, 0.4)
        assert np.array_equal(loo.variance, problem.gram.diagonal) == again
    no_intercept = replace(problem, fit_intercept=False)
    free = np.arange(30) == row
    one = replace(solution, free=free, factor=factor_of(problem, row))
    loo = closed_form(no_intercept, one, 0.4)
    assert not np.array_equal(loo.variance, problem.gram.diagonal)


def factor_of(problem, row):
    return problem.gram.source(problem.mu).factor(np.arange(len(problem.y)) == row)


def test_without_free_labels_and_intercept_the_others_say_nothing():
    problem, solution = weighted(1e-4, intercept=False, alpha=1.0)
    assert solution.factor is None
    loo = closed_form(problem, solution, 1e-4)
    q, share = problem.gram.diagonal, np.minimum(1.0, 1.0 / problem.weights)
    np.testing.assert_allclose(loo.variance, q)
    residuals = problem.residuals(solution)
    np.testing.assert_allclose(loo.residuals, residuals + q * solution.v * share)


def test_a_single_label_leaves_nothing():
    one = np.arange(30) == 7
    problem = replace(weighted(0.4)[0], active=one, weights=np.ones(30))
    solution = newton.solve(problem, 0.4)
    assert refit_without(problem, solution, 7, 0.4) == problem.y[7]
    twice = replace(problem, weights=np.full(30, 2.0))
    assert refit_without(twice, newton.solve(twice, 0.4), 7, 0.4) == pytest.approx(0.0)
    unused = problem.y[3] - solution.intercept - solution.fitted[3]
    assert refit_without(problem, solution, 3, 0.4) == unused
    assert abs(solution.intercept) > 0.01 and unused != problem.y[3]


def test_leverage_one_leaves_a_finite_error():
    """μ so small that the label is met: left-over shares below 1e-15 count as 1e-15."""

    class Factor:
        def diagonals(self, *, border):
            return np.array([1e-20, 1e-20, 0.9]), np.array([0.0, 0.0, -1e-3])

    problem = Problem(
        DenseGram(np.eye(3)), np.ones(3), np.ones(3), 0.5, False, np.ones(3, dtype=bool)
    )
    v, free = np.array([0.0, 0.0, 2.0]), np.array([True, True, False])
    solution = replace(newton.solve(problem, 1.0), v=v, free=free, factor=Factor())
    residuals, mu = np.array([1e-15, -3e-15, 4.0]), np.ones(3)
    loo = leave_one_out(problem, solution, residuals, mu, 1.0)
    np.testing.assert_allclose(loo.residuals, [1.0, -3.0, 4.0 - 2e-3])
    np.testing.assert_allclose(loo.variance, [1e15, 1e15, 0.0])
    doubled = replace(problem, weights=np.array([1.0, 1.0 + 1e-16, 2.0]))
    several = leave_one_out(doubled, solution, residuals, mu, 1.0)
    np.testing.assert_allclose(several.residuals, [1.0, -3.0, 4.0 - 1e-3])


def test_rough_residuals_use_the_variances_that_are_known():
    known = LeaveOneOut(
        np.zeros(3), np.array([1.0, 2.0, 6.0]), np.array([2.0, 4.0, 8.0]), np.full(3, 7.0)
    )
    _, solution = weighted(0.4)
    free = np.array([True, False, True])
    part = replace(solution, free=free, v=np.array([9.0, 3.0, 9.0]))
    mu, residuals = np.array([2.0, 1.0, 8.0]), np.array([1.0, -1.0, 4.0])
    rough = rough_leave_one_out(known, part, residuals, mu)
    # r(1 + q/μ) on free rows, r + q v s⁻¹ on the bound one, of weight four
    np.testing.assert_allclose(rough.residuals, [1.5, -1.0 + 2.0 * 3.0 / 4.0, 7.0])
    assert rough.variance is known.variance and rough.missing is known.missing


def test_units():
    weights = np.array([0.5, 1.0, 1.05, 2.5, 9.0])
    assert units(weights, np.array([True, True, True, True, False])) == pytest.approx(5.55)
    assert units(weights, np.zeros(5, dtype=bool)) == 0.0


# --- as the estimator gives it -------------------------------------------------------------


def refits(K, M, y, xi, alpha, manifold, intercept):
    """Residuals and patterns of the fits without each label, by a plain QP-free solve.

    Each refit minimises the same objective with 1/ℓ kept: α and γ are scaled by ℓ/(ℓ−1),
    which turns the mean over ℓ − 1 labels into a sum over them divided by ℓ.
    """
    labelled = np.flatnonzero(~np.isnan(y))
    n = len(labelled)
    residuals, states = np.full(len(y), np.nan), {}
    for i in labelled:
        without = y.copy()
        without[i] = np.nan
        model = HLRegressor(
            kernel="precomputed",
            alpha=alpha * n / (n - 1),
            threshold=xi,
            fit_intercept=intercept,
            manifold=manifold * n / (n - 1),
            graph=lambda _: M,
        ).fit(K, without)
        residuals[i] = y[i] - model.predict(K[[i]])[0]
        states[i] = np.sign(model.residuals_) * (np.abs(model.residuals_) > xi)
    return residuals, states


@crossed(
    intercept=[True, False],
    manifold=[0.0, 1e-2],
    xi=[0.6, np.inf],
    kernel=["rbf", "laplacian", "linear"],
)
def test_closed_form_equals_refits(kernel, intercept, manifold, xi):
    X, y, *_ = oracles.curve(50, 12)
    y[40:] = np.nan
    alpha = 1e-3
    K, M = oracles.gram(kernel, X, gamma=0.5), oracles.knn_laplacian(X, 8)[0]
    model = HLRegressor(
        kernel=kernel,
        gamma=0.5,
        alpha=alpha,
        threshold=xi,
        fit_intercept=intercept,
        manifold=manifold,
        n_neighbors=8,
    ).fit(X, y)
    expected, states = refits(K, M, y, xi, alpha, manifold, intercept)
    own = np.sign(model.residuals_) * (np.abs(model.residuals_) > xi)
    same = np.zeros(50, dtype=bool)
    for i, state in states.items():
        others = ~np.isnan(y) & (np.arange(50) != i)
        same[i] = np.array_equal(state[others], own[others])
    assert same[:40].mean() > 0.5
    np.testing.assert_allclose(model.loo_residuals_[same], expected[same], atol=1e-8)
    assert np.all(np.isnan(model.loo_residuals_[40:]))
    # where a pattern changes the closed form is an approximation, not nonsense
    np.testing.assert_allclose(model.loo_residuals_[:40], expected[:40], atol=0.2)


def test_with_no_free_label_and_an_intercept_the_model_is_fitted_again():
    X, y, *_ = oracles.curve(12, 3)
    K = oracles.gram("rbf", X, gamma=0.5)
    model = HLRegressor(gamma=0.5, alpha=1.0, threshold=1e-4).fit(X, y)
    assert np.all(np.abs(model.residuals_) > 1e-4)
    expected, _ = refits(K, np.zeros((12, 12)), y, 1e-4, 1.0, 0.0, True)
    np.testing.assert_allclose(model.loo_residuals_, expected, atol=1e-7)


@pytest.mark.parametrize("mode", [0.2, np.inf, "refine"])
def test_on_first_access_equals_in_fit(mode):
    """A precomputed kernel weighs labels in fit, any other on first access."""
    X, y, *_ = oracles.curve(60, 4)
    K = oracles.gram("rbf", X, gamma=0.5)
    late = HLRegressor(gamma=0.5, threshold=mode, threshold_step=0.2).fit(X, y)
    soon = HLRegressor(kernel="precomputed", threshold=mode, threshold_step=0.2).fit(K, y)
    np.testing.assert_allclose(late.loo_residuals_, soon.loo_residuals_, atol=1e-8)
    np.testing.assert_allclose(late.label_quality_, soon.label_quality_, atol=1e-8)
    assert late.scale_ == pytest.approx(soon.scale_, rel=1e-8)


def test_changing_parameters_after_fit_does_not_change_the_evidence():
    X, y, *_ = oracles.curve(60, 4)
    model = HLRegressor(threshold=0.2).fit(X, y)
    expected = HLRegressor(threshold=0.2).fit(X, y).loo_residuals_
    model.set_params(kernel="linear", alpha=1.0)
    np.testing.assert_array_equal(model.loo_residuals_, expected)
