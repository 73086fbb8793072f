"""Limiting cases in which another library or a closed form has the answer."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import HuberRegressor
from sklearn.svm import SVR

from activehuber import HLRegressor
from tests import oracles


@pytest.mark.parametrize("kernel", oracles.KERNELS)
def test_infinite_threshold_is_kernel_ridge(kernel):
    X, y, *_ = oracles.curve(50, 1)
    alpha = 1e-3
    # scikit-learn has Matérn's kernel among its processes alone.
    own = (
        kernel if kernel != "matern" else lambda x, z: oracles.gram(kernel, [x], [z], 0.4)[0, 0]
    )
    ridge = KernelRidge(kernel=own, gamma=0.4, degree=2, coef0=1, alpha=2 * 50 * alpha)
    ridge.fit(X, y)
    model = HLRegressor(
        kernel=kernel, gamma=0.4, alpha=alpha, threshold=np.inf, fit_intercept=False
    )
    np.testing.assert_allclose(model.fit(X, y).predict(X), ridge.predict(X), atol=1e-9)
    np.testing.assert_allclose(model.dual_coef_, ridge.dual_coef_, atol=1e-7)


@pytest.mark.parametrize("kernel", oracles.KERNELS)
def test_intercept_is_the_bordered_system(kernel):
    X, y, *_ = oracles.curve(40, 2)
    y = y + 7
    K, alpha = oracles.gram(kernel, X, gamma=0.4), 1e-3
    border = np.block(
        [
            [K + 2 * 40 * alpha * np.eye(40), np.ones((40, 1))],
            [np.ones((1, 40)), np.zeros((1, 1))],
        ]
    )
    solution = np.linalg.solve(border, np.append(y, 0.0))
    model = HLRegressor(kernel=kernel, gamma=0.4, alpha=alpha, threshold=np.inf).fit(X, y)
    np.testing.assert_allclose(model.dual_coef_, solution[:40], atol=1e-8)
    assert model.intercept_ == pytest.approx(solution[40], abs=1e-9)


@pytest.mark.parametrize("ratio", [1e-2, 1.0, 1e4])
def test_laprls_closed_form(ratio):
    """w = (J K + 2ℓλ I + 2ℓγ M K)⁻¹ J y, J the selector of labelled rows."""
    X, y, *_ = oracles.curve(45, 3)
    y[15:] = np.nan
    alpha = 1e-3
    K, (M, _) = oracles.gram("laplacian", X, gamma=0.4), oracles.knn_laplacian(X, 6)
    J = np.diag(~np.isnan(y) * 1.0)
    A = J @ K + 2 * 15 * alpha * np.eye(45) + 2 * 15 * alpha * ratio * M @ K
    w = np.linalg.solve(A, np.nan_to_num(y))
    model = HLRegressor(
        kernel="laplacian",
        gamma=0.4,
        alpha=alpha,
        manifold=alpha * ratio,
        n_neighbors=6,
        threshold=np.inf,
        fit_intercept=False,
    ).fit(X, y)
    np.testing.assert_allclose(model.predict(X), K @ w, atol=1e-9)
    np.testing.assert_allclose(model.dual_coef_, w, atol=1e-6)


def test_linear_kernel_is_huber_regressor(rng):
    """δ = ε·scale_, λ = α·scale_/(2n)."""
    X = rng.normal(size=(80, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + 3 + 0.3 * rng.normal(size=80)
    y[:8] += 10
    theirs = HuberRegressor(epsilon=1.5, alpha=0.3, tol=1e-10, max_iter=10_000).fit(X, y)
    ours = HLRegressor(
        kernel="linear", alpha=0.3 * theirs.scale_ / (2 * 80), threshold=1.5 * theirs.scale_
    ).fit(X, y)
    np.testing.assert_allclose(X.T @ ours.dual_coef_, theirs.coef_, atol=1e-4)  # L-BFGS
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-5)


@pytest.mark.parametrize("kernel", oracles.KERNELS)
def test_any_kernel_is_epsilon_svr(kernel):
    """SVR with ε = 0 and C = ξ/(2ℓλ) on K + 2ℓλI, predicting with plain K."""
    X, y, *_ = oracles.curve(60, 4)
    alpha, xi = 1e-2, 0.2
    K, mu = oracles.gram(kernel, X, gamma=0.4), 2 * 60 * alpha
    svr = SVR(kernel="precomputed", epsilon=0.0, C=xi / mu, tol=1e-9, max_iter=-1)
    svr.fit(K + mu * np.eye(60), y)
    model = HLRegressor(kernel=kernel, gamma=0.4, alpha=alpha, threshold=xi).fit(X, y)
    np.testing.assert_allclose(model.predict(X), svr.predict(K), atol=1e-5)


def test_small_threshold_tends_to_least_absolute_deviations():
    """With α = α'ξ and ξ → 0: mean |r| + α'‖f‖², by CVXPY."""
    import cvxpy as cp

    X, y, *_ = oracles.curve(40, 5)
    K = oracles.gram("rbf", X, gamma=0.4)
    root = np.linalg.cholesky(K + 1e-12 * np.eye(40))
    theta, b = cp.Variable(40), cp.Variable()
    loss = cp.sum(cp.abs(y - root @ theta - b)) / 40 + 1e-2 * cp.sum_squares(theta)
    cp.Problem(cp.Minimize(loss)).solve(solver=cp.CLARABEL)
    xi = 1e-5
    model = HLRegressor(gamma=0.4, alpha=1e-2 * xi, threshold=xi).fit(X, y)
    np.testing.assert_allclose(model.predict(X), root @ theta.value + b.value, atol=1e-3)


def test_semi_supervised_without_a_graph_is_supervised():
    X, y, *_ = oracles.curve(60, 6)
    partly = y.copy()
    partly[40:] = np.nan
    gamma = 0.4
    a = HLRegressor(gamma=gamma, threshold=0.2).fit(X, partly)
    b = HLRegressor(gamma=gamma, threshold=0.2).fit(X[:40], y[:40])
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-12)
    assert np.all(a.dual_coef_[40:] == 0)


def test_large_linear_problem_needs_no_gram_matrix(rng):
    """60 000 rows: a Gram matrix would take 27 GiB."""
    X = rng.normal(size=(60_000, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=60_000)
    y[:3000] += 20
    model = HLRegressor(kernel="linear", threshold=0.5, alpha=1e-6).fit(X, y)
    np.testing.assert_allclose(X.T @ model.dual_coef_, [1, 2, 3], atol=0.01)
    assert model.duality_gap_ <= 1e-9
