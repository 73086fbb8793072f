"""From kernels and graphs to the reduced problem, and back to the coefficients.

For one view with K = Φ Φᵀ and κ = γ/λ,

    T = I + κ ΦᵀMΦ,   Ψ = Φ chol(T)⁻ᵀ,   Q = Ψ Ψᵀ = K (I + κ M K)⁻¹ ,
    w = (I + κ M K)⁻¹ v = v − κ M f,      f = Q v ,

which needs no inverse of K and stays accurate at large κ. Without a graph Q = K, w = v and
only labelled rows are touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.gram import DenseGram, Gram, LowRankGram, absolute_product
from activehuber.kernels import Kernel
from activehuber.linalg import (
    cholesky_in_place,
    cross_product,
    multiply,
    multiply_symmetric,
    pivoted_cholesky,
    solve_lower,
)
from activehuber.problem import EPSILON, Evaluation

# A low-rank factor pays off below this share of the rows.
LOW_RANK_SHARE = 0.5


@dataclass(frozen=True)
class Reduction:
    """The reduced matrix Q of one view and the way back.

    Attributes
    ----------
    gram : Gram
        Q on the labelled rows, shape (l, l). With an intercept its features may be
        centred, which shifts fitted values by a constant that the intercept takes up.
    operator : Operator
        K on the rows of the expansion.
    labelled : ndarray of shape (l,), int
        Where the labelled rows are among the rows of the expansion.
    penalty : (n, n) matrix or None
        M, dense or sparse.
    ratio : float
        κ = γ/λ.
    smoother : ndarray of shape (n, r) or None
        Ψ.
    alpha : float
        λ.
    """

    gram: Gram
    operator: Operator
    labelled: np.ndarray
    penalty: Any
    ratio: float
    smoother: Matrix | None
    alpha: float

    def expand(self, v: Vector) -> Vector:
        """Coefficients w of shape (n,) for dual variables v of shape (l,)."""
        w = self.expand_change(v)
        if self.penalty is not None:
            source = self._scatter(v)
            # Refinement: at large κ the difference v − κMf loses digits.
            for _ in range(2):
                w = w + self._back(source - w - self.ratio * (self.penalty @ self.operator(w)))
        return w

    def expand_change(self, change: Vector) -> Vector:
        """Change of w for a small change of v; rounding is relative to the change."""
        return self._back(self._scatter(change))

    def _scatter(self, v: Vector) -> Vector:
        source = np.zeros(len(self.operator))
        source[self.labelled] = v
        return source

    def _back(self, source: Vector) -> Vector:
        """(I + κMK)⁻¹ source = source − κ M Ψ Ψᵀ source."""
        if self.smoother is None:
            return source
        smooth = multiply(self.smoother, multiply(self.smoother.T, source))
        return source - self.ratio * (self.penalty @ smooth)

    def evaluate(self, w: Vector) -> Evaluation:
        """What coefficients w give on the rows of the expansion."""
        values = self.operator(w)
        magnitude = self.operator.magnitude(w)
        gradient = gradient_magnitude = np.zeros_like(values)
        if self.penalty is not None:
            weight = self.ratio * self.alpha
            gradient = weight * (self.penalty @ values)
            gradient_magnitude = weight * (abs(self.penalty) @ magnitude)
        columns = (w, values, gradient, magnitude, gradient_magnitude)
        return Evaluation(*(column[:, None] for column in columns))


class Operator:
    """K on given rows, as a matrix or as features: K w and |K||w|."""

    def __init__(self, *, matrix: Matrix | None = None, features: Matrix | None = None) -> None:
        self.matrix, self.features = matrix, features

    def __len__(self) -> int:
        held = self.features if self.matrix is None else self.matrix
        assert held is not None
        return len(held)

    def __call__(self, w: Vector) -> Vector:
        """K w."""
        if self.matrix is not None:
            return multiply_symmetric(self.matrix, w)
        assert self.features is not None
        return multiply(self.features, multiply(self.features.T, w))

    def magnitude(self, w: Vector) -> Vector:
        """|K||w|; for features |Φ||Φᵀ||w|, the rounding of the product as computed."""
        if self.matrix is not None:
            return absolute_product(self.matrix, w)
        assert self.features is not None
        absolute = np.abs(self.features)
        return multiply(absolute, multiply(absolute.T, np.abs(w)))


def reduce_view(
    kernel: Kernel,
    X: Matrix,
    labelled: np.ndarray,
    *,
    alpha: float,
    manifold: float,
    penalty: Any,
    fit_intercept: bool,
) -> Reduction:
    """Build the reduction of one view.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows of the expansion: the labelled ones, or all when there is a graph. For a
        precomputed kernel the (n, n) Gram matrix.
    labelled : ndarray of shape (l,), int
        Positions of the labelled rows in X.
    penalty : (n, n) matrix or None
        M; None when `manifold` is zero.
    """
    operator, features = _operator(kernel, X, needs_features=penalty is not None)
    smoother = None
    if penalty is not None:
        assert features is not None
        smoother = _smoother(features, penalty, manifold / alpha)
        features = smoother[labelled]
    gram = _gram(operator, features, fit_intercept)
    return Reduction(gram, operator, labelled, penalty, manifold / alpha, smoother, alpha)


def needs_gram_matrix(kernel: Kernel, X: Matrix) -> bool:
    """Whether a matrix of shape (n, n) will be formed."""
    return not (kernel.has_own_features and X.shape[1] <= LOW_RANK_SHARE * len(X))


def _operator(
    kernel: Kernel, X: Matrix, *, needs_features: bool
) -> tuple[Operator, Matrix | None]:
    """K, and features Φ with K = Φ Φᵀ when they are few or are needed."""
    if not needs_gram_matrix(kernel, X):
        features = kernel.own_features(X)
        return Operator(features=features), features
    matrix = kernel.gram(X)
    operator = Operator(matrix=matrix)
    bound = kernel.rank_bound(X.shape[1])
    if needs_features or (bound is not None and bound <= LOW_RANK_SHARE * len(X)):
        return operator, gram_features(matrix)
    return operator, None


def gram_features(matrix: Matrix) -> Matrix:
    """Φ with K = Φ Φᵀ to rounding, by pivoted Cholesky."""
    largest = float(np.max(np.diagonal(matrix), initial=0.0))
    if largest == 0.0:
        return np.zeros((len(matrix), 1))
    features = pivoted_cholesky(matrix.copy(), EPSILON * largest)
    if np.max(np.abs(matrix - cross_product(features))) > 1e-8 * largest:
        raise ValueError(
            "kernel: the Gram matrix is not positive semi-definite; use a Mercer kernel, or "
            "clip the negative eigenvalues of a precomputed one"
        )
    return features


def _smoother(features: Matrix, penalty: Any, ratio: float) -> Matrix:
    """Ψ = Φ chol(I + κ ΦᵀMΦ)⁻ᵀ."""
    inner = ratio * multiply(features.T, penalty @ features)
    inner = 0.5 * (inner + inner.T)
    inner.flat[:: len(inner) + 1] += 1.0
    return np.ascontiguousarray(solve_lower(cholesky_in_place(inner), features.T).T)


def _gram(operator: Operator, features: Matrix | None, fit_intercept: bool) -> Gram:
    if features is None:
        assert operator.matrix is not None
        return DenseGram(operator.matrix)
    if features.shape[1] > LOW_RANK_SHARE * len(features):
        return DenseGram(cross_product(features))
    # Σ v = 0 with an intercept, so a constant taken off each feature changes nothing but
    # the conditioning.
    return LowRankGram(features - features.mean(axis=0) if fit_intercept else features)


def low_rank(reduction: Reduction, fit_intercept: bool) -> Reduction:
    """The same reduction with Q in factored form.

    For a kernel matrix that is singular to rounding and an α so small that Q + diag(μ) has
    no Cholesky factor.
    """
    gram = reduction.gram
    assert isinstance(gram, DenseGram)
    features = gram_features(gram.matrix)
    if fit_intercept:
        features = features - features.mean(axis=0)
    return Reduction(
        LowRankGram(features),
        reduction.operator,
        reduction.labelled,
        reduction.penalty,
        reduction.ratio,
        reduction.smoother,
        reduction.alpha,
    )
