"""Defects found by attacking the solver; each stays found."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from activehuber import HLRegressor, LabelledKFold
from tests import oracles

draw = np.random.default_rng


@pytest.mark.parametrize("threshold", [np.inf, 1e3, 0.1])
def test_garbage_is_never_certified(threshold):
    """Kernel values of 1e13 and a small alpha: whatever comes out must not look optimal."""
    X = draw(0).normal(size=(120, 5)) + 100
    y = np.sin(X.sum(axis=1))
    with pytest.warns(ConvergenceWarning):
        HLRegressor(kernel="poly", degree=3, alpha=1e-6, threshold=threshold).fit(X, y)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [300, 900])
def test_small_alpha_above_the_direct_size(seed, n):
    X = draw(seed).normal(size=(n, 2))
    y = np.sin(X[:, 0]) + 0.1 * draw(102).normal(size=n)
    y[: n // 10] += 5
    model = HLRegressor(alpha=1e-10, threshold=0.5).fit(X, y)
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


@pytest.mark.parametrize("kind", ["precomputed", "callable"])
def test_indefinite_kernels_are_refused(kind):
    A = draw(0).normal(size=(60, 60))
    K = A + A.T
    np.fill_diagonal(K, 10.0)
    y = draw(1).normal(size=60)
    kernel = "precomputed" if kind == "precomputed" else lambda P, Q: np.tanh(3 * P @ Q.T - 1)
    with pytest.raises(ValueError, match="positive semi-definite"):
        HLRegressor(kernel=kernel, alpha=1.0, threshold=np.inf).fit(K, y)


def test_rows_that_are_all_alike_do_not_depend_on_their_order():
    y = draw(3).normal(size=30)
    y[0] = 50
    s = draw(0).random(30)
    X = np.full((30, 1), 0.3)
    counts = set()
    for seed in range(8):
        p = draw(seed).permutation(30)
        model = HLRegressor(gamma=1.0).fit(X, y[p], sample_weight=s[p])
        assert model.removed_[np.flatnonzero(p == 0)[0]]
        counts.add(int(model.removed_.sum()))
    assert len(counts) == 1
    assert HLRegressor().fit(X, y).result_.settings.views[0].kernel.gamma == 1.0


@pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")
@pytest.mark.parametrize("seed", range(40))
def test_weights_are_repetitions_for_a_handful_of_rows(seed):
    rng = draw(seed)
    n = rng.integers(2, 8)
    X, y, s = rng.normal(size=(n, 1)), 3 * rng.normal(size=n), rng.integers(1, 4, n)
    times = np.repeat(np.arange(n), s)
    for mode in ("adaptive", 0.5):
        weighted = HLRegressor(gamma=1.0, threshold=mode).fit(X, y, sample_weight=s)
        repeated = HLRegressor(gamma=1.0, threshold=mode).fit(X[times], y[times])
        np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)
        np.testing.assert_allclose(
            weighted.loo_residuals_[times], repeated.loo_residuals_, atol=1e-6
        )


def test_refits_take_the_middle_of_all_intercepts():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.4, -2.1, 0.9])
    model = HLRegressor(threshold=1e-3, gamma=1.0, alpha=0.1).fit(X, y)
    for i in range(3):
        without = y.copy()
        without[i] = np.nan
        other = HLRegressor(threshold=1e-3, gamma=1.0, alpha=0.15).fit(X, without)
        assert model.loo_residuals_[i] == pytest.approx(
            y[i] - other.predict(X[[i]])[0], abs=1e-9
        )


def test_matrix_callables_are_called_with_matrices():
    calls = []

    def kernel(A, B):
        calls.append(np.shape(A))
        return (A @ B.T + 1) ** 2

    X, y, *_ = oracles.curve(60, 1)
    model = HLRegressor(kernel=kernel, threshold=0.3).fit(X, y)
    assert len(calls) < 20
    named = HLRegressor(kernel="poly", gamma=1.0, threshold=0.3).fit(X, y)
    np.testing.assert_allclose(model.predict(X), named.predict(X), atol=1e-7)


def test_gamma_of_a_graph_on_a_precomputed_kernel():
    X, y, *_ = oracles.curve(40, 2)
    y[20:] = np.nan
    K = X @ X.T
    params = {"kernel": "precomputed", "graph": "rbf", "manifold": 0.1, "threshold": 0.3}
    narrow = HLRegressor(gamma=10.0, **params).fit(K, y).predict(K)
    wide = HLRegressor(gamma=0.01, **params).fit(K, y).predict(K)
    assert np.max(np.abs(narrow - wide)) > 1e-3


def test_too_large_a_manifold_is_a_clear_error_or_a_warning():
    X = draw(0).normal(size=(60, 3))
    model = HLRegressor(kernel="laplacian", alpha=1e-8, manifold=1e12, threshold=0.1)
    with pytest.raises((ValueError, ConvergenceWarning), match=r"too large|not certified"):
        model.fit(X, X[:, 0])


def test_kernel_values_that_are_not_finite():
    X, y, *_ = oracles.curve(20, 3)
    with pytest.raises(ValueError, match="not finite"):
        HLRegressor(kernel=lambda a, b: float("nan")).fit(X, y)
    for kernel in ("linear", "poly"):
        with pytest.raises(ValueError, match="too large to compute with"):
            HLRegressor(kernel=kernel, gamma=1.0).fit(X * 1e110, y)


def test_wrong_lengths_in_score():
    X, y, *_ = oracles.curve(20, 3)
    model = HLRegressor().fit(X, y)
    with pytest.raises(ValueError):
        model.score(X, y[:-1])
    with pytest.raises(ValueError):
        model.score(X, y, sample_weight=np.ones(3))


@pytest.mark.parametrize("form", ["dok", "lil", "coo", "csc"])
def test_graphs_in_any_sparse_format(form):
    X, y, *_ = oracles.curve(30, 3)
    _, W = oracles.knn_laplacian(X, 4)
    model = HLRegressor(manifold=0.1, graph=sparse.csr_array(W).asformat(form), threshold=0.3)
    expected = HLRegressor(manifold=0.1, graph=W, threshold=0.3).fit(X, y).predict(X)
    np.testing.assert_allclose(model.fit(X, y).predict(X), expected, atol=1e-12)


def test_one_number_as_sample_weight():
    X, y, *_ = oracles.curve(30, 3)
    a = HLRegressor().fit(X, y, sample_weight=2.0).predict(X)
    np.testing.assert_allclose(a, HLRegressor().fit(X, y).predict(X), atol=1e-9)


@pytest.mark.parametrize(
    "y",
    [
        ["a", "b", np.nan] * 4,
        [0, 1, None] * 4,
        pd.array([True, False, None] * 4, dtype="boolean"),
        np.array(["2020-01-01", "2021-01-01", "NaT"] * 4, dtype="datetime64[D]"),
    ],
)
def test_missing_labels_of_any_kind_stay_in_training(y):
    for _, test in LabelledKFold(2, stratify=True).split(np.zeros((12, 1)), y):
        assert not np.any(test % 3 == 2) and len(test) == 4
    with pytest.raises(ValueError):
        next(LabelledKFold(2).split(np.zeros((5, 1)), y))


def test_the_model_owns_its_rows():
    X, y, *_ = oracles.curve(30, 3)
    mine = X.copy()
    model = HLRegressor().fit(mine, y)
    before = model.predict(X)
    mine[:] = 0
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_trusted_outlier_does_not_flatten_the_ranking():
    X, y, *_ = oracles.curve(80, 4, bad=0.0)
    y[0] += 20
    y[1] += 5
    y[2] += 50
    trusted = np.zeros(80, dtype=bool)
    trusted[0] = True
    quality = HLRegressor(alpha=1e-3).fit(X, y, trusted=trusted).label_quality_
    assert quality[2] < 0.5 * quality[1] < 0.25
