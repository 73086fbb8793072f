"""Closed-form leave-one-out against n brute-force refits that keep ℓ, ξ, kernel and graph."""

import numpy as np
import pytest

from activehuber import HLRegressor
from tests import oracles


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


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("manifold", [0.0, 1e-2])
@pytest.mark.parametrize("xi", [0.6, np.inf])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
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
