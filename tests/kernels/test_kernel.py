import numpy as np
import pytest
from sklearn.metrics.pairwise import chi2_kernel, rbf_kernel

from activehuber.kernels.kernel import Kernel, resolve_gamma
from tests import oracles


@pytest.mark.parametrize("name", oracles.KERNELS)
@pytest.mark.parametrize("n", [1, 7, 900])
def test_gram_and_product_equal_scikit_learn(name, n, rng):
    X, Z = rng.normal(size=(n, 4)), rng.normal(size=(13, 4))
    kernel = Kernel(name, gamma=0.3, degree=3, coef0=0.5)
    expected = oracles.gram(name, X, gamma=0.3, degree=3, coef0=0.5)
    np.testing.assert_allclose(kernel.gram(X), expected, rtol=1e-12, atol=1e-12)
    w = rng.normal(size=13)
    cross = oracles.gram(name, X, Z, gamma=0.3, degree=3, coef0=0.5)
    np.testing.assert_allclose(kernel.product(X, Z, w), cross @ w, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["poly", "rbf", "laplacian", "matern"])
def test_one_width_a_feature_is_a_scaling_of_the_features(name, rng):
    X, Z = rng.normal(size=(30, 4)), rng.normal(size=(8, 4))
    gamma = np.array([0.2, 0.0, 1.5, 0.7])
    scaled = gamma if name == "laplacian" else np.sqrt(gamma)
    kernel = Kernel(name, gamma, degree=3)
    expected = oracles.gram(name, X * scaled, gamma=1.0, degree=3, coef0=1.0)
    np.testing.assert_allclose(kernel.gram(X), expected, rtol=1e-12, atol=1e-12)
    cross = oracles.gram(name, Z * scaled, X * scaled, gamma=1.0, degree=3, coef0=1.0)
    np.testing.assert_allclose(kernel.product(Z, X, np.eye(30)), cross, rtol=1e-11, atol=1e-11)


def test_rbf_keeps_digits_far_from_the_origin(rng):
    X = rng.normal(size=(50, 3))
    near, far = Kernel("rbf", 0.5).gram(X), Kernel("rbf", 0.5).gram(X + 1e6)
    np.testing.assert_allclose(far, near, atol=1e-8)


def test_callables_of_rows_and_of_matrices(rng):
    X = rng.uniform(size=(9, 3))
    rows = Kernel(lambda a, b, g: np.exp(-g * np.sum((a - b) ** 2)), params={"g": 0.7})
    np.testing.assert_allclose(rows.gram(X), rbf_kernel(X, gamma=0.7), atol=1e-14)
    matrices = Kernel(chi2_kernel)
    np.testing.assert_allclose(matrices.gram(X), chi2_kernel(X), atol=1e-14)


def test_gamma_scale_counts_weights(rng):
    X, weights = rng.normal(size=(20, 3)), rng.integers(0, 4, 20).astype(float)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    assert resolve_gamma("scale", X, weights) == pytest.approx(
        1 / (3 * repeated.var()), rel=1e-12
    )
    assert resolve_gamma("scale", np.ones((4, 2)), np.ones(4)) == 1.0
    assert resolve_gamma("auto", X, weights) == 1 / 3
