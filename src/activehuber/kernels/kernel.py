"""Kernels by name or callable: Gram matrices, cross-Gram products, exact features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import comb
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_kernels

from activehuber._typing import Matrix, Vector
from activehuber.numerics.linalg import inner_products, multiply

KERNEL_NAMES = ("linear", "poly", "rbf", "laplacian", "matern", "cosine", "precomputed")
# Features are multiplied with each other in kernels and distances.
LARGEST_FEATURE = 1e150
# Numbers beyond it, or below its reciprocal, overflow sooner or later.
EXTREME = 1e100
# e^−a is zero from here on.
NOTHING_LEFT = 800.0
# Kernels of x − z alone: one on the diagonal, positive everywhere.
STATIONARY_KERNELS = ("rbf", "laplacian", "matern")

# Entries of a kernel block worked on at once: 4 MiB, so that the passes over it (product,
# norms, exponential) stay in cache. This alone halves the time of a Gram matrix.
BLOCK_ENTRIES = 1 << 19


# Writes the block of some rows into an array, or returns one of its own.
Blocks: TypeAlias = Callable[[slice, Matrix], Matrix]


@dataclass(frozen=True)
class Kernel:
    """A kernel with every parameter resolved.

    Parameters
    ----------
    name : str or callable
        "linear" ⟨x,z⟩, "poly" (γ⟨x,z⟩ + c₀)^degree, "rbf" exp(−γ|x−z|²),
        "laplacian" exp(−γ|x−z|₁), "matern" (1 + a + a²/3)exp(−a) with a = √(10γ)|x−z|
        (Matérn's with ν = 5/2, of the length scale that "rbf" has at this γ), "cosine"
        ⟨x,z⟩/|x||z|, "precomputed", or a callable of two rows that returns a number, or of
        two matrices that returns the matrix.
    gamma : float or ndarray of shape (d,)
        γ; an array gives every feature its own: Σ_j γ_j (x_j − z_j)², Σ_j γ_j |x_j − z_j|
        and Σ_j γ_j x_j z_j take the place of γ times the sum.
    """

    name: str | Callable[..., Any]
    gamma: float | Vector = 1.0
    degree: int = 2
    coef0: float = 1.0
    params: dict[str, Any] = field(default_factory=dict)

    def gram(self, X: Matrix) -> Matrix:
        """K(X, X), shape (n, n), C-ordered and fresh."""
        if self.name == "precomputed":
            return np.array(X, order="C")
        out = self.between(X, X)
        if self.name in STATIONARY_KERNELS:
            np.fill_diagonal(out, 1.0)
        elif callable(self.name):
            out = 0.5 * (out + out.T)
        return out

    def between(self, X: Matrix, Z: Matrix) -> Matrix:
        """K(X, Z) as it comes, shape (n, k)."""
        out = np.empty((len(X), len(Z)))
        for rows, block in self.blocks(X, Z, out):
            if out is not block.base:
                out[rows] = block
        return out

    def product(self, X: Matrix, Z: Matrix, coefficients: Matrix) -> Matrix:
        """K(X, Z) @ coefficients in row blocks; the cross-Gram matrix is never whole."""
        if self.name == "precomputed":
            return multiply(X, coefficients)
        if self.has_own_features:
            return multiply(
                self.own_features(X), multiply(self.own_features(Z).T, coefficients)
            )
        out = np.empty((len(X), *coefficients.shape[1:]))
        for rows, block in self.blocks(X, Z):
            out[rows] = multiply(block, coefficients)
        return out

    def diagonal(self, X: Matrix) -> Vector:
        """K(x, x) of every row, shape (n,)."""
        if self.name in STATIONARY_KERNELS:
            return np.ones(len(X))
        if self.has_own_features:
            features = self.own_features(X)
            return np.einsum("ij,ij->i", features, features)
        if self.name == "poly":
            return (np.einsum("ij,ij->i", X * self.gamma, X) + self.coef0) ** self.degree
        return np.array([self.gram(row[None])[0, 0] for row in X])

    @property
    def is_foreign(self) -> bool:
        """Whether someone else computes the Gram matrix, so that it has to be checked."""
        return callable(self.name) or self.name == "precomputed"

    @property
    def has_own_features(self) -> bool:
        """Whether K = Φ Φᵀ with Φ no wider than X."""
        return self.name in ("linear", "cosine")

    def own_features(self, X: Matrix) -> Matrix:
        """Φ of shape (n, d) with K = Φ Φᵀ, for the kernels that have it."""
        if self.name == "linear":
            return X
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        return X / np.where(norms > 0.0, norms, 1.0)[:, None]

    def rank_bound(self, n_features: int) -> int | None:
        """An upper bound on the rank of K whatever the rows, or None."""
        if self.has_own_features:
            return n_features
        if self.name == "poly":
            return comb(n_features + self.degree, self.degree)
        return None

    def blocks(
        self, X: Matrix, Z: Matrix, out: Matrix | None = None
    ) -> Iterator[tuple[slice, Matrix]]:
        """Row blocks of K(X, Z), written into `out` where the kernel allows it."""
        size = max(1, BLOCK_ENTRIES // max(1, len(Z)))
        evaluate = self._evaluator(X, Z)
        for start in range(0, len(X), size):
            rows = slice(start, min(start + size, len(X)))
            target = np.empty((rows.stop - start, len(Z))) if out is None else out[rows]
            yield rows, evaluate(rows, target)

    def _evaluator(self, X: Matrix, Z: Matrix) -> Blocks:
        if self.name in STATIONARY_KERNELS:
            self._check_reach(X, Z)
        if self.name == "rbf":
            return _product_blocks(*_centred_and_wide(X, Z, self.gamma), _exponential)
        if self.name == "laplacian":
            return _distance_blocks(X, Z, self.gamma, "cityblock", _decaying)
        if self.name == "matern":
            return _distance_blocks(X, Z, np.sqrt(10.0 * self.gamma), "euclidean", _matern)
        if self.name == "poly":
            return _product_blocks(np.ascontiguousarray(X * self.gamma), Z, self._power)
        if self.has_own_features:
            return _product_blocks(self.own_features(X), self.own_features(Z), lambda t: t)
        return self._callable_blocks(X, Z)

    def _check_reach(self, *several: Matrix) -> None:
        """Raise if distances in units of the width have no squares."""
        largest = max(float(np.max(np.abs(X), initial=0.0)) for X in several)
        if largest * float(np.sqrt(np.max(self.gamma, initial=0.0))) > LARGEST_FEATURE:
            raise ValueError(
                f"kernel: gamma={np.max(self.gamma):.1g} is too large for features up to "
                f"{largest:.1g}; standardise X"
            )

    def _power(self, products: Matrix) -> Matrix:
        products += self.coef0
        return np.power(products, self.degree, out=products)

    def _takes_two_rows(self, function: Callable[..., Any], X: Matrix, Z: Matrix) -> bool:
        """Whether a callable must be called row by row.

        One that maps two rows to a number may be meant for matrices all the same, as
        `lambda A, B: A @ B.T` is: if a small block agrees with its single values it is.
        """
        left, right = X[:2], Z[:3]
        try:
            single = [[function(x, z, **self.params) for z in right] for x in left]
        except (ValueError, TypeError, IndexError):
            return False
        if np.ndim(single) != 2:
            return False
        try:
            block = np.asarray(function(left, right, **self.params), dtype=np.float64)
        except (ValueError, TypeError, IndexError):
            return True
        return block.shape != np.shape(single) or not np.allclose(block, single, equal_nan=True)

    def _callable_blocks(self, X: Matrix, Z: Matrix) -> Blocks:
        function = self.name
        assert callable(function)
        if self._takes_two_rows(function, X, Z):
            return lambda rows, target: pairwise_kernels(
                X[rows], Z, metric=function, **self.params
            )

        def evaluate(rows: slice, target: Matrix) -> Matrix:
            given = function(X[rows], Z, **self.params)
            try:
                block = np.asarray(given, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise TypeError(f"the callable kernel must return numbers ({error})") from None
            if block.shape != target.shape:
                raise ValueError(
                    f"the callable kernel returned shape {block.shape} for two matrices of "
                    f"{len(X[rows])} and {len(Z)} rows; it must return a number for two rows "
                    f"or an array of shape {target.shape} for two matrices"
                )
            return block

        return evaluate


def gamma_from_gram(gamma: float | str | Vector, K: Matrix) -> float:
    """γ for a precomputed kernel: a number as it is, else 2 / mean squared distance.

    That is what "scale" is for rows of X: their mean squared distance is 2·d·var.
    """
    if np.ndim(gamma) > 0:
        raise ValueError("a precomputed kernel has no features: gamma must be a number")
    if not isinstance(gamma, str):
        return float(gamma)
    mean_square = 2.0 * float(np.mean(np.diagonal(K)) - np.mean(K))
    return 2.0 / mean_square if mean_square > 0.0 else 1.0


def _product_blocks(
    left: Matrix, right: Matrix, kernel_of: Callable[[Matrix], Matrix]
) -> Blocks:
    """Blocks of a function of inner products, which may be written into."""
    return lambda rows, target: kernel_of(inner_products(left[rows], right, target))


def _centred_and_wide(X: Matrix, Z: Matrix, gamma: float | Vector) -> tuple[Matrix, Matrix]:
    """Rows whose inner products are −γ|x−z|²."""
    # |x−z|² = |x|² + |z|² − 2⟨x,z⟩ cancels when the data sit far from the origin; the
    # kernel does not change under translation, so centre them first.
    centre = Z.mean(axis=0)
    scale = np.sqrt(2.0 * gamma)
    right = (Z - centre) * scale
    left = right if X is Z else (X - centre) * scale
    # The norms ride along in the product as two more columns: a pass over memory less each.
    halves = [-0.5 * np.einsum("ij,ij->i", side, side) for side in (left, right)]
    left_wide = np.column_stack([left, halves[0], np.ones(len(X))])
    return left_wide, np.column_stack([right, np.ones(len(Z)), halves[1]])


def _exponential(a: Matrix) -> Matrix:
    """e^a of what is not positive but for rounding, in place."""
    np.minimum(a, 0.0, out=a)
    return np.exp(a, out=a)


def _distance_blocks(
    X: Matrix, Z: Matrix, scale: float | Vector, metric: str, kernel_of: Callable[..., Matrix]
) -> Blocks:
    """Blocks of a function of distances, which may be written into, between scaled rows."""
    right = Z * scale
    left = right if X is Z else X * scale
    return lambda rows, target: kernel_of(cdist(left[rows], right, metric, out=target))


def _decaying(a: Matrix) -> Matrix:
    """e^−a, in place."""
    np.negative(a, out=a)
    return np.exp(a, out=a)


def _matern(a: Matrix) -> Matrix:
    """(1 + a + a²/3) e^−a, in place, in the order that needs one more array alone."""
    np.minimum(a, NOTHING_LEFT, out=a)  # a² e^−a is no number for a = inf
    decay = np.exp(-a)
    a *= 1.0 + a / 3.0
    a += 1.0
    return np.multiply(a, decay, out=a)


def resolve_gamma(gamma: Any, X: Matrix, weights: Vector) -> float | Vector:
    """γ as a number: "scale" is 1/(d·var) with weighted variance, "auto" is 1/d.

    As in `sklearn.svm.SVR`, except that weights count, so that a row of weight two is two
    rows; 1 if the variance is zero. An array must have one number a feature.
    """
    if not isinstance(gamma, str) and np.ndim(gamma) > 0:
        return check_widths(gamma, X.shape[1])
    if gamma == "scale":
        row_weights = weights / weights.sum()
        mean = float(row_weights @ X.mean(axis=1))
        variance = float(row_weights @ np.mean((X - mean) ** 2, axis=1))
        return gamma_of_variance(gamma, X.shape[1], variance, float(np.max(np.abs(X))))
    return gamma_of_variance(gamma, X.shape[1], 0.0, 0.0)


def _free_of_rounding(width: float) -> float:
    """A width to 40 binary digits: the order of rows, in which sums are rounded, has no say."""
    mantissa, exponent = np.frexp(width)
    return float(np.ldexp(np.rint(np.ldexp(mantissa, 40)), int(exponent) - 40))


def check_widths(gamma: Any, n_features: int) -> Vector:
    """γ as an array of one width a feature."""
    widths = np.array(gamma, dtype=np.float64)
    if widths.shape != (n_features,):
        raise ValueError(
            f"gamma has {len(widths)} numbers for {n_features} features; give one a feature"
        )
    return widths


def gamma_of_variance(
    gamma: float | str, n_features: int, variance: float, largest: float
) -> float:
    """γ of a name, for numbers of one variance and of `largest` size; a number as it is."""
    if gamma == "auto":
        return 1.0 / n_features
    if gamma == "scale":
        # The variance of equal numbers is rounding, not zero.
        rounding = (4.0 * np.finfo(np.float64).eps * largest) ** 2
        usable = variance > max(rounding, 1.0 / EXTREME)
        return _free_of_rounding(1.0 / (n_features * variance)) if usable else 1.0
    return float(gamma)
