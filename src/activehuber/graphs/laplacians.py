"""Affinities between rows and the Laplacians that make f smooth along them.

The manifold term of the objective is ‖f‖²_M = fᵀ M f with M = I − D^-½ W D^-½, D the
row sums of W. (For the plain Laplacian L = D − W: Σ_ij w_ij |f_i − f_j|² = 2 fᵀ L f.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from activehuber._typing import Matrix, Vector

GRAPH_NAMES = ("knn", "rbf")

# Distances equal in exact arithmetic differ by rounding; such rows count as tied.
TIE = 1e-10
# Up to this many features a tree finds neighbours sooner than all distances do; it is asked
# for a few more than k, in case of ties.
TREE_FEATURES = 6
TREE_SPARE = 4
BLOCK_ENTRIES = 1 << 19


class Distances:
    """Squared Euclidean distances between rows, given by coordinates or by a kernel."""

    def __init__(self, X: Matrix, *, precomputed: bool = False) -> None:
        self.X, self.precomputed = X, precomputed
        self.diagonal = np.diagonal(X).copy() if precomputed else None

    def __len__(self) -> int:
        return len(self.X)

    def blocks(self, wanted: np.ndarray) -> Iterator[tuple[np.ndarray, Matrix]]:
        """Some rows, few enough to work on at once, and what they are from all, (k, n)."""
        size = max(1, BLOCK_ENTRIES // max(1, len(self)))
        for start in range(0, len(wanted), size):
            rows = wanted[start : start + size]
            if self.diagonal is None:
                yield rows, cdist(self.X[rows], self.X, "sqeuclidean")
            else:  # d² = K_ii + K_jj − 2 K_ij
                block = self.diagonal[rows, None] + self.diagonal[None, :] - 2.0 * self.X[rows]
                yield rows, np.maximum(block, 0.0)


def knn_affinity(distances: Distances, n_neighbors: int) -> sparse.csr_array:
    """0/1 affinity to the k nearest other rows, symmetrised by union.

    All rows tied with the k-th distance are neighbours, so the graph does not depend on
    the order of rows.
    """
    n = len(distances)
    k = min(n_neighbors, n - 1)
    if k == 0:
        return sparse.csr_array((n, n))
    i, j = _near_pairs(distances, k)
    directed = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(n, n))
    return directed.maximum(directed.T).tocsr()


def _near_pairs(distances: Distances, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (i, j) with j among the k nearest rows of i, ties included."""
    n = len(distances)
    if distances.precomputed or distances.X.shape[1] > TREE_FEATURES or n < 4 * k:
        return _near_pairs_of(distances, k, np.arange(n))
    asked = min(n, k + 1 + TREE_SPARE)
    length, found = KDTree(distances.X).query(distances.X, k=asked)
    squared = np.where(found == np.arange(n)[:, None], np.inf, length**2)
    cut = np.partition(squared, k - 1, axis=1)[:, k - 1] * (1.0 + TIE)
    # Where all that was asked for is within the cut, there may be more that is tied.
    whole = np.any(squared > cut[:, None], axis=1, where=np.isfinite(squared)) | (asked == n)
    near, place = np.nonzero((squared <= cut[:, None]) & whole[:, None])
    i, j = _near_pairs_of(distances, k, np.flatnonzero(~whole))
    return np.concatenate([near, i]), np.concatenate([found[near, place], j])


def _near_pairs_of(
    distances: Distances, k: int, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for some rows, from all their distances."""
    pairs = [np.empty((2, 0), dtype=np.intp)]
    for here, block in distances.blocks(wanted):
        block[np.arange(len(here)), here] = np.inf
        kth = np.partition(block, k - 1, axis=1)[:, k - 1]
        near, far = np.nonzero(block <= (kth * (1.0 + TIE))[:, None])
        pairs.append(np.stack([here[near], far]))
    i, j = np.concatenate(pairs, axis=1)
    return i, j


def rbf_affinity(distances: Distances, gamma: float) -> Matrix:
    """Dense affinity exp(−γ d²), zero on the diagonal."""
    affinity = np.empty((len(distances), len(distances)))
    for rows, block in distances.blocks(np.arange(len(distances))):
        affinity[rows] = np.exp(-gamma * block)
    np.fill_diagonal(affinity, 0.0)
    return affinity


def chain_affinity(times: np.ndarray) -> sparse.csr_array:
    """Affinity 1 between rows at consecutive whole times, in any order, shape (n, n).

    Parameters
    ----------
    times : ndarray of shape (n,)
        Whole numbers, such as numbers of frames.

    Returns
    -------
    sparse array of shape (n, n)
        W_ij = 1 where |times_i − times_j| = 1, else 0.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.graphs.laplacians import chain_affinity
    >>> chain_affinity(np.array([3, 1, 2, 7])).toarray().astype(int)
    array([[0, 0, 1, 0],
           [0, 0, 1, 0],
           [1, 1, 0, 0],
           [0, 0, 0, 0]])
    """
    order = np.argsort(times, kind="stable")
    near = np.diff(times[order]) == 1
    left, right = order[:-1][near], order[1:][near]
    n = len(times)
    half = sparse.coo_array((np.ones(len(left)), (left, right)), shape=(n, n))
    return sparse.csr_array(half + half.T)


def degrees(affinity: Any) -> Vector:
    """Row sums of W, shape (n,)."""
    return np.asarray(affinity.sum(axis=1), dtype=np.float64).ravel()


def plain_laplacian(affinity: Any) -> Any:
    """L = D − W, sparse or dense as W is.

    fᵀLf = ½ Σ_ij w_ij (f_i − f_j)².

    Parameters
    ----------
    affinity : array or sparse array of shape (n, n)
        W, symmetric.

    Returns
    -------
    array or sparse array of shape (n, n)

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.graphs.laplacians import plain_laplacian
    >>> plain_laplacian(np.array([[0.0, 2.0], [2.0, 0.0]]))
    array([[ 2., -2.],
           [-2.,  2.]])
    """
    if sparse.issparse(affinity):
        return (sparse.diags_array(degrees(affinity)) - affinity).tocsr()
    return np.diag(degrees(affinity)) - affinity


def normalised_laplacian(affinity: Any) -> Any:
    """M = I − D^-½ W D^-½; rows and columns of isolated rows are zero.

    Parameters
    ----------
    affinity : array or sparse array of shape (n, n)
        W, symmetric.

    Returns
    -------
    array or sparse array of shape (n, n)

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.graphs.laplacians import normalised_laplacian
    >>> normalised_laplacian(np.array([[0.0, 2.0], [2.0, 0.0]])).round(6)
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    degree = degrees(affinity)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0.0)
    connected = (degree > 0.0).astype(np.float64)
    if sparse.issparse(affinity):
        D = sparse.diags_array(scale)
        return (sparse.diags_array(connected) - D @ affinity @ D).tocsr()
    return np.diag(connected) - scale[:, None] * affinity * scale


def build(
    graph: str | Callable[[Matrix], Any] | Any,
    X: Matrix,
    *,
    n_neighbors: int,
    gamma: float | Vector,
    precomputed: bool,
) -> Any:
    """M of shape (n, n), dense or sparse, for any value of the parameter `graph`."""
    if callable(graph):
        return checked_penalty(graph(X), len(X))
    if isinstance(graph, str):
        distances = Distances(X, precomputed=precomputed)
        if graph == "knn":
            return normalised_laplacian(knn_affinity(distances, n_neighbors))
        if np.ndim(gamma) > 0:
            distances, gamma = Distances(X * np.sqrt(gamma)), 1.0
        return normalised_laplacian(rbf_affinity(distances, float(gamma)))
    return normalised_laplacian(without_loops(graph))


def is_matrix(graph: Any) -> bool:
    """Whether `graph` is an affinity matrix rather than a name or a callable."""
    return graph is not None and not isinstance(graph, str) and not callable(graph)


def without_loops(affinity: Any) -> Any:
    """A copy of W with a zero diagonal: a row's likeness to itself is no edge."""
    if sparse.issparse(affinity):
        coo = sparse.coo_array(affinity, dtype=np.float64)
        off = coo.row != coo.col
        return sparse.csr_array((coo.data[off], (coo.row[off], coo.col[off])), shape=coo.shape)
    affinity = np.array(affinity, dtype=np.float64)
    np.fill_diagonal(affinity, 0.0)
    return affinity


def check_affinity(affinity: Any, n: int) -> Any:
    """Raise unless W is a finite, symmetric, non-negative n × n matrix; return it."""
    affinity = _as_floats(affinity)
    if affinity.shape != (n, n):
        raise ValueError(
            f"graph is an affinity matrix of shape {affinity.shape}, but fit was given {n} "
            "rows; it must cover exactly those rows. Inside cross-validation or a pipeline "
            "pass a callable, graph=lambda X: M, which is evaluated on the rows at hand"
        )
    _check_symmetric(affinity, "the affinity matrix")
    values = affinity.data if sparse.issparse(affinity) else affinity
    if np.any(values < 0.0):
        raise ValueError("graph: affinities must not be negative")
    return affinity


def checked_penalty(penalty: Any, n: int) -> Any:
    """Raise unless a callable's M is n × n, finite, symmetric and PSD; return it."""
    penalty = _as_floats(penalty)
    if penalty.shape != (n, n):
        raise ValueError(
            f"graph: the callable returned shape {penalty.shape}, expected ({n}, {n})"
        )
    _check_symmetric(penalty, "what the callable returns")
    dense = penalty.toarray() if sparse.issparse(penalty) else penalty
    eigenvalues = np.linalg.eigvalsh(dense)
    if eigenvalues[0] < -1e-8 * max(abs(eigenvalues[-1]), np.finfo(float).tiny):
        raise ValueError(
            "graph: the callable must return a positive semi-definite matrix, such as a "
            f"Laplacian; its smallest eigenvalue is {eigenvalues[0]:.3g}"
        )
    return penalty


def _as_floats(matrix: Any) -> Any:
    if sparse.issparse(matrix):
        return sparse.csr_array(matrix, dtype=np.float64)
    try:
        return np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"graph: a matrix of numbers is needed ({error})") from None


def _check_symmetric(matrix: Any, what: str) -> None:
    values = matrix.data if sparse.issparse(matrix) else matrix
    if not np.all(np.isfinite(values)):
        raise ValueError(f"graph: {what} must be finite")
    if largest_entry(matrix - matrix.T) > 1e-10 * largest_entry(matrix):
        raise ValueError(f"graph: {what} must be symmetric; use (W + W.T) / 2")


def largest_entry(matrix: Any) -> float:
    """Largest absolute value, 0 for an empty or all-zero sparse matrix."""
    values = matrix.tocoo().data if sparse.issparse(matrix) else np.asarray(matrix)
    return float(np.max(np.abs(values), initial=0.0))
