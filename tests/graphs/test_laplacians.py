import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from activehuber import HLRegressor
from activehuber.graphs import laplacians as graphs
from tests import oracles


@pytest.mark.parametrize("n, k", [(1, 3), (2, 1), (40, 5), (40, 60)])
def test_knn_equals_the_naive_graph(n, k, rng):
    X = rng.normal(size=(n, 2))
    M = graphs.build("knn", X, n_neighbors=k, gamma=1.0, precomputed=False)
    assert sparse.issparse(M)
    np.testing.assert_allclose(M.toarray(), oracles.knn_laplacian(X, k)[0], atol=1e-14)


def test_ties_are_all_neighbours():
    X = 0.1 * np.arange(5.0).reshape(-1, 1)  # 0.1 apart, but not to the last bit
    W = graphs.knn_affinity(graphs.Distances(X), 1).toarray()
    assert (
        W.tolist()
        == (np.abs(np.subtract.outer(range(5), range(5))) == 1).astype(float).tolist()
    )


def test_duplicates_are_neighbours():
    X = np.array([0.0, 0.0, 1.0, 3.0, 3.0, 3.0]).reshape(-1, 1)
    W = graphs.knn_affinity(graphs.Distances(X), 1).toarray()
    joined = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
    assert sorted(zip(*np.nonzero(np.triu(W)), strict=True)) == joined
    assert np.array_equal(W, W.T) and not np.any(np.diag(W))


def test_isolated_rows_of_a_laplacian_are_zero():
    W = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    M = graphs.normalised_laplacian(W)
    assert np.all(M[2] == 0) and np.all(M[:, 2] == 0)
    np.testing.assert_allclose(M, graphs.normalised_laplacian(sparse.csr_array(W)).toarray())


@given(st.integers(0, 10_000), st.integers(2, 25), st.integers(1, 6))
def test_laplacians_are_positive_semidefinite(seed, n, k):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    W = graphs.knn_affinity(graphs.Distances(X), k)
    assert np.linalg.eigvalsh(graphs.normalised_laplacian(W).toarray())[0] > -1e-12
    L = graphs.plain_laplacian(W)
    np.testing.assert_allclose(L @ np.ones(n), 0, atol=1e-12)
    f = np.random.default_rng(seed + 1).normal(size=n)
    dense = W.toarray()
    energy = sum(dense[i, j] * (f[i] - f[j]) ** 2 for i in range(n) for j in range(n))
    assert energy == pytest.approx(2 * f @ (L @ f), abs=1e-9)


def test_precomputed_kernel_gives_the_same_neighbours(rng):
    X = rng.normal(size=(30, 3))
    by_rows = graphs.knn_affinity(graphs.Distances(X), 4).toarray()
    by_kernel = graphs.knn_affinity(graphs.Distances(X @ X.T, precomputed=True), 4).toarray()
    assert np.array_equal(by_rows, by_kernel)


def test_dense_rbf_graph(rng):
    X = rng.normal(size=(12, 2))
    W = np.exp(-0.4 * np.sum((X[:, None] - X[None]) ** 2, axis=-1))
    np.fill_diagonal(W, 0)
    M = graphs.build("rbf", X, n_neighbors=1, gamma=0.4, precomputed=False)
    np.testing.assert_allclose(M, oracles.normalised(W), atol=1e-13)


@pytest.mark.parametrize("kind", ["dense", "sparse", "callable"])
def test_a_given_graph_equals_the_built_one(kind, rng):
    X, y, *_ = oracles.curve(40, 0)
    y[20:] = np.nan
    M, W = oracles.knn_laplacian(X, 5)
    graph = {"dense": W, "sparse": sparse.csr_matrix(W), "callable": lambda Z: M}[kind]
    given_graph = HLRegressor(manifold=1e-2, threshold=0.3, graph=graph).fit(X, y)
    built = HLRegressor(manifold=1e-2, threshold=0.3, n_neighbors=5).fit(X, y)
    np.testing.assert_allclose(given_graph.predict(X), built.predict(X), atol=1e-9)
    np.testing.assert_allclose(given_graph.loo_residuals_, built.loo_residuals_, atol=1e-8)


@pytest.mark.parametrize("kind", ["plain", "grid", "copies"])
def test_neighbours_by_tree_and_by_all_distances(kind, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    if kind == "grid":
        X = np.round(2.0 * X) / 2.0
    if kind == "copies":
        X = X[rng.integers(0, 40, 300)]
    by_tree = graphs.knn_affinity(graphs.Distances(X), 10)
    monkeypatch.setattr(graphs, "TREE_FEATURES", 0)
    assert (by_tree != graphs.knn_affinity(graphs.Distances(X), 10)).nnz == 0
