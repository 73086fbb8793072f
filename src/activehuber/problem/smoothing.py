"""Penalties factored: from sources to smooth functions, in four ways.

With κ = γ/λ and κ_B = γ_B/λ for the agreement between views, *smoothing* maps sources x^α to
the f^α = K^α w^α of

    w^α = x^α − κ M^α f^α − κ_B (m f^α − Σ_β f^β) .

The ways differ by what the penalty couples:

    Plain      no graph, no agreement: w = x, only labelled rows are touched
    Separate   graphs only:     f^α = S^α x^α,  S^α = Ψ^α Ψ^αᵀ,
                                Ψ^α = Φ^α chol(I + κ Φ^αᵀ M^α Φ^α)⁻ᵀ,  K^α = Φ^α Φ^αᵀ
    Coupled    agreement, some view of full rank: m + 1 factors of size n
    Joint      low rank throughout: one factor of the size of all ranks together

None inverts a kernel matrix, and all stay accurate at large κ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from activehuber._typing import Matrix, Vector
from activehuber.kernels.kernel import STATIONARY_KERNELS, Kernel
from activehuber.numerics import linalg
from activehuber.operators.dense import DenseGram, submatrix
from activehuber.operators.features import held_gram
from activehuber.operators.protocol import Gram
from activehuber.problem.problem import EPSILON

TINY = float(np.finfo(np.float64).tiny)
NOT_MERCER = (
    "kernel: the Gram matrix is not positive semi-definite; use a Mercer kernel, or clip the "
    "negative eigenvalues of a precomputed one"
)
# K + LIFT·max K_ii·I stands for K where K⁻¹ is wanted and K may be singular to rounding.
LIFT = 1e-9
# κM + κ_B m up to this size times K_ii: beyond it the lift would be felt.
LIFT_IS_SMALL = 1e2
# κ_B m · trace K from which I − κ_B m S is not formed as a difference.
CANCELLING = 1e7
# Rows of smoothing matrices gathered at once.
ROWS_AT_ONCE = 64
# A low-rank factor pays off below this share of the rows.
LOW_RANK_SHARE = 0.5


@dataclass(frozen=True)
class ExpandedView:
    """One view on the rows of the expansion.

    Attributes
    ----------
    operator : Gram
        K, (n, n).
    features : ndarray of shape (n, r) or None
        Φ with K = Φ Φᵀ, where it is of low rank or is needed.
    penalty : (n, n) matrix or None
        M, dense or sparse.
    """

    operator: Gram
    features: Matrix | None
    penalty: Any


class Smoother(Protocol):
    """Sources to smooth functions, for fixed penalties.

    Attributes
    ----------
    rough : bool
        Whether penalties are factored only roughly, for refinement to mend.
    """

    rough: bool = False

    def smooth(self, sources: Matrix) -> Matrix:
        """f of shape (n, m) for sources of shape (n, m)."""

    def gram(self, weights: Vector, labelled: np.ndarray, centre: bool) -> Gram:
        """Q = Σ over views of the fitted values at labelled rows, for weights c."""


# --- building ---------------------------------------------------------------------------


def needs_gram_matrix(kernel: Kernel, X: Matrix) -> bool:
    """Whether a matrix of shape (n, n) will be formed for a view."""
    return not (kernel.has_own_features and X.shape[1] <= LOW_RANK_SHARE * len(X))


def build_part(
    kernel: Kernel, X: Matrix, penalty: Any, *, needs_features: bool
) -> ExpandedView:
    """K of one view, and features Φ with K = Φ Φᵀ when they are few or are needed."""
    if not needs_gram_matrix(kernel, X):
        own = np.ascontiguousarray(kernel.own_features(X))
        check_range(np.max(np.abs(own), initial=0.0) ** 2 * own.shape[1])
        return ExpandedView(held_gram(own), own, penalty)
    with np.errstate(over="ignore"):
        matrix = kernel.gram(X)
    check_range(np.max(np.diagonal(matrix)))
    if kernel.is_foreign:
        check_gram_matrix(matrix)
    bound = kernel.rank_bound(X.shape[1])
    few = bound is not None and bound <= LOW_RANK_SHARE * len(X)
    features = gram_features(matrix) if few or needs_features else None
    operator = DenseGram(matrix, nonnegative=kernel.name in STATIONARY_KERNELS)
    return ExpandedView(operator, features, penalty)


def smoother_of(
    parts: Sequence[ExpandedView], ratio: float, coupling: float, *, exact: bool
) -> Smoother:
    """The way that suits the penalties κ and κ_B."""
    if ratio == 0.0 and coupling == 0.0:
        return _Plain(parts)
    if _are_narrow(parts):
        return _Joint(parts, ratio, coupling)
    if coupling == 0.0:
        return _Separate([_Joint([part], ratio, 0.0) for part in parts])
    return _Coupled(parts, ratio, coupling, exact=exact)


def _are_narrow(parts: Sequence[ExpandedView]) -> bool:
    """Whether all views together have few features."""
    widths = [np.inf if part.features is None else part.features.shape[1] for part in parts]
    return sum(widths) <= LOW_RANK_SHARE * len(parts[0].operator)


def check_range(largest: float) -> None:
    """Raise if kernel values are too large to be added up."""
    if largest > 1e100:
        raise ValueError(
            f"kernel: values up to {largest:.1g} are too large to compute with; standardise X"
        )


def check_gram_matrix(matrix: Matrix) -> None:
    """Raise unless K, which someone else computed, is finite and positive semi-definite."""
    if not np.all(np.isfinite(matrix)):
        raise ValueError("kernel: the callable returned values that are not finite")
    lifted = matrix.copy()
    lifted.flat[:: len(matrix) + 1] += 1e-8 * max(float(np.max(np.diagonal(matrix))), TINY)
    try:
        linalg.cholesky_in_place(lifted)
    except linalg.BreakdownError:
        raise ValueError(NOT_MERCER) from None


def gram_features(matrix: Matrix) -> Matrix:
    """Φ with K = Φ Φᵀ to rounding, by pivoted Cholesky."""
    largest = float(np.max(np.diagonal(matrix), initial=0.0))
    if largest == 0.0:
        return np.zeros((len(matrix), 1))
    features = linalg.pivoted_cholesky(matrix.copy(), EPSILON * largest)
    if np.max(np.abs(matrix - linalg.cross_product(features))) > 1e-8 * largest:
        raise ValueError(NOT_MERCER)
    return features


def _inner(left: Matrix, right: Matrix) -> Matrix:
    """leftᵀ right, C-ordered."""
    return np.ascontiguousarray(linalg.multiply(left.T, right))


def _add_form(target: Matrix, part: ExpandedView, ratio: float, identity: float) -> Matrix:
    """target + Φᵀ(κM + identity·I)Φ, shape (r, r), in place."""
    features = part.features
    assert features is not None
    if ratio > 0.0:
        target += ratio * _inner(features, part.penalty @ features)
    if identity > 0.0:
        target += identity * _inner(features, features)
    return target


def _factor_of_one_and(form: Matrix) -> Matrix:
    """chol(I + form), whatever of the form is not symmetric being rounding."""
    form = 0.5 * (form + form.T)
    form.flat[:: len(form) + 1] += 1.0
    return linalg.cholesky_in_place(form)


def centred(features: Matrix, fit_intercept: bool) -> Matrix:
    """Σ v = 0 with an intercept: a constant off each feature changes conditioning alone."""
    return features - features.mean(axis=0) if fit_intercept else features


def _gram_of_features(blocks: Sequence[Matrix], n_rows: int, centre: bool) -> Gram:
    """Q = Σ blocks blockᵀ, factored if the blocks are narrow together."""
    features = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
    if features.shape[1] > LOW_RANK_SHARE * n_rows:
        return DenseGram(linalg.cross_product(np.ascontiguousarray(features)))
    return held_gram(np.ascontiguousarray(centred(features, centre)))


# --- four ways to smooth ----------------------------------------------------------------


class _Plain(Smoother):
    """No penalty beyond ‖f‖²_K: Q = Σ (c^α)² K^α on labelled rows."""

    def __init__(self, parts: Sequence[ExpandedView]) -> None:
        self.parts = parts

    def smooth(self, sources: Matrix) -> Matrix:
        return np.stack(
            [p.operator.matvec(sources[:, i]) for i, p in enumerate(self.parts)], axis=1
        )

    def gram(self, weights: Vector, labelled: np.ndarray, centre: bool) -> Gram:
        features = [part.features for part in self.parts if part.features is not None]
        if len(features) == len(self.parts):
            blocks = _weighted_rows(features, weights, labelled)
            return _gram_of_features(blocks, len(labelled), centre)
        return DenseGram(_weighted_sum(self._matrices(labelled), weights**2))

    def _matrices(self, labelled: np.ndarray) -> list[Matrix]:
        out = []
        for part in self.parts:
            matrix = part.operator.matrix
            if matrix is None:
                assert part.features is not None
                matrix = linalg.cross_product(np.ascontiguousarray(part.features[labelled]))
            elif len(labelled) < len(matrix):
                matrix = submatrix(matrix, labelled, labelled)
            out.append(matrix)
        return out


def _weighted_rows(
    matrices: Sequence[Matrix], weights: Vector, rows: np.ndarray
) -> list[Matrix]:
    """Some rows of the matrix of each view, times its weight."""
    pairs = zip(matrices, weights, strict=True)
    return [matrix[rows] if c == 1.0 else c * matrix[rows] for matrix, c in pairs]


def _weighted_sum(matrices: Sequence[Matrix], factors: Vector) -> Matrix:
    """Σ factor · matrix; a lone matrix of factor one is passed through, not copied."""
    if len(matrices) == 1 and factors[0] == 1.0:
        return matrices[0]
    total = np.zeros_like(matrices[0])
    for factor, matrix in zip(factors, matrices, strict=True):
        if factor != 0.0:
            total += factor * matrix
    return total


class _Separate(Smoother):
    """Graphs but no agreement: each view by itself."""

    def __init__(self, views: Sequence[_Joint]) -> None:
        self.views = views

    def smooth(self, sources: Matrix) -> Matrix:
        own = enumerate(self.views)
        return np.concatenate([view.smooth(sources[:, [i]]) for i, view in own], axis=1)

    def gram(self, weights: Vector, labelled: np.ndarray, centre: bool) -> Gram:
        pairs = zip(self.views, weights, strict=True)
        blocks = [view.halves(np.array([c]), labelled) for view, c in pairs]
        narrow = sum(block.shape[1] for block in blocks) <= LOW_RANK_SHARE * len(labelled)
        if len(blocks) == 1 or narrow:
            return _gram_of_features(blocks, len(labelled), centre)
        squares = [linalg.cross_product(np.ascontiguousarray(block)) for block in blocks]
        return DenseGram(_weighted_sum(squares, np.ones(len(squares))))


class _Coupled(Smoother):
    """Agreement between views of full rank, in m factors of size n and one more.

    With B^α = κ M^α + κ_B m I and S^α = (I + K^α B^α)⁻¹ K^α,

        z = (I/κ_B − Σ S^α)⁻¹ Σ S^α x^α,      f^α = S^α (x^α + z) ,

    and I/κ_B − Σ S^α = (κ_B m)⁻¹ Σ D^α with D^α = I − κ_B m S^α (see `_smoothing_pair`).
    """

    def __init__(
        self, parts: Sequence[ExpandedView], ratio: float, coupling: float, *, exact: bool
    ) -> None:
        scale = coupling * len(parts)
        n = len(parts[0].operator)
        self.squares, remainder = [], np.zeros((n, n))
        for part in parts:
            square = None if exact else _lifted_smoothing_matrix(part, ratio, scale)
            if square is None:
                square, complement = _smoothing_pair(part, ratio, scale)
                remainder += complement
            else:
                self.rough = True
                linalg.add_multiple(remainder, -scale, square)
                _diagonal(remainder)[...] += 1.0
            self.squares.append(square)
        remainder /= scale
        self.lower = linalg.cholesky_in_place(remainder)
        self.last: tuple[bytes, tuple[list[Matrix], list[Matrix]] | None] | None = None

    def smooth(self, sources: Matrix) -> Matrix:
        views = range(len(self.squares))
        pulled = [linalg.multiply_symmetric(self.squares[i], sources[:, i]) for i in views]
        z = linalg.solve_cholesky(self.lower, np.sum(pulled, axis=0))
        columns = [linalg.multiply_symmetric(self.squares[i], sources[:, i] + z) for i in views]
        return np.stack(columns, axis=1)

    def gram(self, weights: Vector, labelled: np.ndarray, centre: bool) -> Gram:
        """Q = Σ (c^α)² S^α + R (I/κ_B − Σ S^α)⁻¹ R, R = Σ c^α S^α, on labelled rows."""
        del centre
        key = labelled.tobytes()
        if self.last is None or self.last[0] != key:
            self.last = key, None
            return self._gram_at_once(weights, labelled)
        if self.last[1] is None:
            # Weights are being tried: from the second on, keep what they have in common.
            rows = [square[labelled] for square in self.squares]
            halves = [linalg.solve_lower(self.lower, row.T).T for row in rows]
            self.last = key, ([row[:, labelled] for row in rows], halves)
        assert self.last[1] is not None
        corners, halves = self.last[1]
        total, mixed = _weighted_sum(corners, weights**2), _weighted_sum(halves, weights)
        return DenseGram(total + linalg.cross_product(np.ascontiguousarray(mixed)))

    def _gram_at_once(self, weights: Vector, labelled: np.ndarray) -> Gram:
        """The same for one set of weights, in blocks of rows that cost no fresh pages."""
        n = len(self.lower)
        total, mixed = np.zeros((len(labelled), len(labelled))), np.zeros((len(labelled), n))
        for start in range(0, len(labelled), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            for c, square in zip(weights, self.squares, strict=True):
                block = c * square[labelled[part]]
                mixed[part] += block
                total[part] += c * block[:, labelled]
        half = linalg.solve_lower(self.lower, mixed.T, overwrite=True).T
        return DenseGram(total + linalg.cross_product(half))


def _smoothing_pair(part: ExpandedView, ratio: float, scale: float) -> tuple[Matrix, Matrix]:
    """S = (K⁻¹ + B)⁻¹ and D = I − scale·S, with B = κM + scale·I.

    Where scale·K is huge S is near I/scale and D would cancel; there D is solved for as
    (I + K B)⁻¹ (I + κ K M) and S follows. Else S comes by the cheapest way that K allows;
    what that loses, the refinement against K gives back.
    """
    K = part.operator.matrix
    if scale * float(np.sum(part.operator.diagonal)) < CANCELLING:
        square = _smoothing_matrix(part, ratio, scale)
        complement = -scale * square
        _diagonal(complement)[...] += 1.0
        return square, complement
    if K is None:
        assert part.features is not None
        K = linalg.cross_product(part.features)
    right = np.zeros_like(K)
    if ratio > 0.0:
        right += ratio * (part.penalty @ K)  # κ M K = (κ K M)ᵀ
    system = scale * K + right  # becomes I + B K, the transpose of I + K B
    _diagonal(system)[...] += 1.0
    _diagonal(right)[...] += 1.0
    complement = linalg.symmetrise(linalg.solve_general(system.T, right.T, overwrite=True).T)
    square = complement / -scale
    _diagonal(square)[...] += 1.0 / scale
    return square, complement


def _smoothing_matrix(part: ExpandedView, ratio: float, scale: float) -> Matrix:
    """S = (K⁻¹ + B)⁻¹, by features if there are, else by LU."""
    if part.features is not None:
        empty = np.zeros((part.features.shape[1], part.features.shape[1]))
        lower = _factor_of_one_and(_add_form(empty, part, ratio, scale))
        half = linalg.solve_lower(lower, part.features.T).T
        return linalg.cross_product(np.ascontiguousarray(half))
    K = part.operator.matrix
    assert K is not None
    system = scale * K  # becomes I + B K, the transpose of I + K B
    if ratio > 0.0:
        system += ratio * (part.penalty @ K)
    _diagonal(system)[...] += 1.0
    return linalg.symmetrise(linalg.solve_general(system.T, K.T).T)


def _lifted_smoothing_matrix(part: ExpandedView, ratio: float, scale: float) -> Matrix | None:
    """S with K lifted a little, by two symmetric inverses: half the work of LU.

    Exact to about LIFT. None where the lift would be felt, or if there are features.
    """
    K = part.operator.matrix
    if part.features is not None or K is None:
        return None
    largest = float(np.max(np.diagonal(K)))
    # The eigenvalues of a normalised Laplacian do not exceed 2.
    if (2.0 * ratio + scale) * largest > LIFT_IS_SMALL:
        return None
    lifted = K.copy()
    _diagonal(lifted)[...] += LIFT * largest
    try:
        precision = linalg.upper_inverse_in_place(linalg.cholesky_in_place(lifted))
        if ratio > 0.0:
            _add(precision, ratio, part.penalty)
        _diagonal(precision)[...] += scale
        return linalg.inverse_in_place(linalg.cholesky_in_place(precision))
    except linalg.BreakdownError:
        return None


def _add(target: Matrix, factor: float, penalty: Any) -> None:
    """target ← target + factor·penalty, in place, for a dense or sparse penalty."""
    if sparse.issparse(penalty):
        entries = penalty.tocoo()
        target[entries.row, entries.col] += factor * entries.data
    else:
        target += factor * penalty


def _diagonal(matrix: Matrix) -> Vector:
    """A writable view of the diagonal."""
    return np.einsum("ii->i", matrix)


class _Joint(Smoother):
    """Low rank throughout: unknowns θ^α with f^α = Φ^α θ^α, one factor of size p = Σ r_α.

    The penalty is a quadratic form in θ that is never below |θ|², so nothing cancels:

        T = I + κ diag(Φ^αᵀ M^α Φ^α) + κ_B (m diag(Φ^αᵀ Φ^α) − FᵀF),   F = [Φ¹ … Φ^m]
        θ = T⁻¹ [Φ^αᵀ x^α],      Q = Ψ Ψᵀ,  Ψ = [c¹Φ¹ … c^mΦ^m] chol(T)⁻ᵀ
    """

    def __init__(self, parts: Sequence[ExpandedView], ratio: float, coupling: float) -> None:
        self.features = [part.features for part in parts if part.features is not None]
        edges = np.cumsum([0, *(phi.shape[1] for phi in self.features)])
        self.slices = [slice(a, b) for a, b in pairwise(edges)]
        form = np.zeros((edges[-1], edges[-1]))
        if coupling > 0.0:
            stacked = np.concatenate(self.features, axis=1)
            form -= coupling * _inner(stacked, stacked)
        for part, block in zip(parts, self.slices, strict=True):
            _add_form(form[block, block], part, ratio, coupling * len(parts))
        self.lower = _factor_of_one_and(form)

    def smooth(self, sources: Matrix) -> Matrix:
        pulls = [linalg.multiply(phi.T, sources[:, i]) for i, phi in enumerate(self.features)]
        theta = linalg.solve_cholesky(self.lower, np.concatenate(pulls))
        columns = [
            linalg.multiply(phi, theta[block])
            for phi, block in zip(self.features, self.slices, strict=True)
        ]
        return np.stack(columns, axis=1)

    def halves(self, weights: Vector, labelled: np.ndarray) -> Matrix:
        """Ψ on labelled rows."""
        blocks = _weighted_rows(self.features, weights, labelled)
        stacked = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
        return linalg.solve_lower(self.lower, stacked.T).T

    def gram(self, weights: Vector, labelled: np.ndarray, centre: bool) -> Gram:
        return _gram_of_features([self.halves(weights, labelled)], len(labelled), centre)
