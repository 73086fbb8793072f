"""A weight of k is k repetitions; weight 0 is no row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activehuber import HLRegressor
from tests import oracles
from tests.pairwise import crossed

MODES = (0.2, np.inf, "refine", "adaptive")


@crossed(kernel=oracles.KERNELS, mode=MODES, intercept=[True, False])
def test_weights_are_repetitions(kernel, mode, intercept, rng):
    X, y, *_ = oracles.curve(45, 1)
    weights = rng.integers(0, 4, 45)
    times = np.repeat(np.arange(45), weights)
    # alpha keeps low-rank kernels away from the rounding of 1 − leverage
    model = HLRegressor(
        kernel=kernel, alpha=1e-3, threshold=mode, threshold_step=0.2, fit_intercept=intercept
    )
    weighted = model.fit(X, y, sample_weight=weights)
    a, removed = weighted.predict(X), weighted.removed_
    loo, quality, sigma = weighted.loo_residuals_, weighted.label_quality_, weighted.scale_
    repeated = model.fit(X[times], y[times])
    np.testing.assert_allclose(a, repeated.predict(X), atol=1e-8)
    assert np.array_equal(removed[times], repeated.removed_)
    np.testing.assert_allclose(loo[times], repeated.loo_residuals_, atol=1e-6)
    np.testing.assert_allclose(quality[times], repeated.label_quality_, atol=1e-6)
    assert sigma == pytest.approx(repeated.scale_, rel=1e-6, abs=1e-12)


@given(st.integers(0, 10_000))
def test_scaling_all_weights_changes_nothing(seed):
    X, y, *_ = oracles.curve(25, seed)
    weights = np.random.default_rng(seed).uniform(0.2, 3, 25)
    a = HLRegressor(threshold=0.3).fit(X, y, sample_weight=weights)
    b = HLRegressor(threshold=0.3).fit(X, y, sample_weight=17 * weights)
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("manifold", [0.0, 1e-2])
def test_weighted_objective_is_the_minimum(intercept, manifold, rng):
    X, y, *_ = oracles.curve(35, 2)
    s = rng.uniform(0.1, 4, 35)
    gamma, alpha, xi = 0.4, 1e-3, 0.2
    K, M = oracles.gram("rbf", X, gamma=gamma), oracles.knn_laplacian(X, 10)[0]
    model = HLRegressor(
        gamma=gamma, alpha=alpha, threshold=xi, fit_intercept=intercept, manifold=manifold
    ).fit(X, y, sample_weight=s)
    J = oracles.objective(K, y, model.dual_coef_, model.intercept_, xi, alpha, manifold, M, s)
    assert model.objective_ == pytest.approx(J, rel=1e-10)
    assert oracles.cvxpy_objective(K, y, xi, alpha, manifold, M, intercept, s) * (1 + 1e-7) >= J
    naive, _ = oracles.kkt(
        K, y, model.dual_coef_, model.intercept_, xi, alpha, manifold, M, s, intercept
    )
    assert naive <= 1e-8 and model.duality_gap_ <= 1e-9


def test_with_a_graph_a_row_of_weight_zero_stays_unlabelled():
    X, y, *_ = oracles.curve(40, 3)
    weights = np.ones(40)
    weights[30:] = 0
    without = y.copy()
    without[30:] = np.nan
    params = {"gamma": 0.4, "threshold": 0.2, "manifold": 1e-2}
    a = HLRegressor(**params).fit(X, y, sample_weight=weights)
    b = HLRegressor(**params).fit(X, without)
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-12)
