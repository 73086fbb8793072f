"""Finitely many functions in place of a kernel: f(x) = Σ_k κ_k(x) a_k.

    nystrom   κ(x) = K(x, Z), Z some of the rows; K̃ = K_XZ K_ZZ⁻¹ K_ZX never exceeds K
    fourier   κ(x) = cos, sin of random frequencies of a kernel that depends on x − z
    linear    κ(x) = x

In the first the functions are not orthonormal: with K_ZZ = L Lᵀ the features are
Φ(x) = κ(x) L⁻ᵀ, so that ‖f‖² = |θ|² for f = Φ θ.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import lapack

from activehuber._typing import Matrix, Vector
from activehuber.kernels.kernel import Kernel
from activehuber.numerics.linalg import BreakdownError

APPROXIMATION_NAMES = ("nystrom", "fourier", "linear")
# Kernels that are the mean of random waves.
FOURIER_KERNELS = ("rbf", "laplacian", "matern")
# Landmarks that leave less than this share of the largest K(z, z) to be explained add
# nothing but rounding.
NEGLIGIBLE = 1e-14
# A triangular product is split into so many from this width on.
SPLITS, SPLIT_FROM = 4, 128


class Functions(Protocol):
    """The functions of one view."""

    @property
    def width(self) -> int: ...

    def __call__(self, X: Matrix) -> Matrix:
        """κ at every row, shape (n, width)."""

    @property
    def whitening(self) -> Matrix | None:
        """W of shape (width, width) with Φ = κ W, triangular; None for the identity."""


@dataclass(frozen=True)
class Landmarks:
    """κ(x) = K(x, Z).

    Attributes
    ----------
    rows : ndarray of shape (p, d)
        Z, linearly independent in the kernel's space.
    inverse : ndarray of shape (p, p) or None
        L⁻ᵀ; None where nothing is fitted.
    """

    kernel: Kernel
    rows: Matrix
    inverse: Matrix | None = None

    @property
    def width(self) -> int:
        return len(self.rows)

    @property
    def whitening(self) -> Matrix:
        assert self.inverse is not None, "predictions do without it"
        return self.inverse

    def __call__(self, X: Matrix) -> Matrix:
        return self.kernel.between(X, self.rows)


@dataclass(frozen=True)
class FourierFeatures:
    """κ(x) = √(1/k) (cos Ωᵀx, sin Ωᵀx), K(x, z) ≈ κ(x)ᵀκ(z).

    Attributes
    ----------
    frequencies : ndarray of shape (d, k)
        Ω.
    """

    frequencies: Matrix
    whitening: None = None

    @property
    def width(self) -> int:
        return 2 * self.frequencies.shape[1]

    def __call__(self, X: Matrix) -> Matrix:
        phases = X @ self.frequencies
        out = np.empty((len(X), self.width))
        half = phases.shape[1]
        np.cos(phases, out=out[:, :half])
        np.sin(phases, out=out[:, half:])
        out *= np.sqrt(1.0 / half)
        return out


@dataclass(frozen=True)
class Columns:
    """κ(x) = x − centre, or x/|x|.

    Attributes
    ----------
    centre : ndarray of shape (d,)
        Taken off for the digits' sake; the intercept makes up for it.
    """

    centre: Vector
    normalised: bool
    whitening: None = None

    @property
    def width(self) -> int:
        return len(self.centre)

    def __call__(self, X: Matrix) -> Matrix:
        return Kernel("cosine").own_features(X) if self.normalised else X - self.centre


@dataclass(frozen=True)
class Given:
    """κ(x) = x, for rows that are features already; not fresh."""

    width: int
    whitening: None = None

    def __call__(self, X: Matrix) -> Matrix:
        return X


def of_view(X: Matrix, columns: np.ndarray | None) -> Matrix:
    """Some columns of X, C-ordered; None: all, as they are."""
    return X if columns is None else np.ascontiguousarray(X[:, columns])


@dataclass(frozen=True)
class Basis:
    """The functions of all views side by side, p in all.

    Attributes
    ----------
    columns : tuple of ndarray of int or None
        The columns of each view; None: all.
    functions : tuple of Functions
    """

    columns: tuple[np.ndarray | None, ...]
    functions: tuple[Functions, ...]

    @property
    def width(self) -> int:
        """p."""
        return sum(each.width for each in self.functions)

    @property
    def places(self) -> list[slice]:
        """Which of the p functions belong to each view."""
        edges = np.cumsum([0, *(each.width for each in self.functions)]).tolist()
        return [slice(*ends) for ends in itertools.pairwise(edges)]

    def __call__(self, X: Matrix) -> Matrix:
        """κ at every row, shape (n, p); not to be written into."""
        pairs = zip(self.columns, self.functions, strict=True)
        parts = [function(of_view(X, columns)) for columns, function in pairs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def whitened(self, raw: Matrix) -> list[Matrix]:
        """Φ^α of every view from κ, each of shape (n, p^α)."""
        views = []
        for place, function in zip(self.places, self.functions, strict=True):
            own, whitening = raw[:, place], function.whitening
            views.append(own if whitening is None else times_upper(own, whitening))
        return views


def times_upper(rows: Matrix, upper: Matrix) -> Matrix:
    """rows @ upper for an upper triangular matrix, most of its zeros left out.

    By a few products of NumPy's, which lets other threads work meanwhile; BLAS through SciPy
    does not.
    """
    width = len(upper)
    if width < SPLIT_FROM:
        return rows @ upper
    out = np.empty((len(rows), width))
    edges = np.linspace(0, width, SPLITS + 1).astype(int)
    for low, high in itertools.pairwise(edges):
        np.matmul(rows[:, :high], upper[:high, low:high], out=out[:, low:high])
    return out


def landmarks(kernel: Kernel, rows: Matrix) -> Landmarks:
    """Landmarks among some rows: those that are linearly independent, by pivoted Cholesky."""
    # As it comes, not symmetrised, to see whether it is symmetric.
    gram = kernel.between(rows, rows)
    if not np.all(np.isfinite(gram)):
        raise ValueError(
            "kernel values are not finite: they overflow, or the callable is wrong; "
            "standardise the features"
        )
    largest = float(np.max(np.abs(gram)))
    if largest == 0.0:
        raise ValueError("the kernel is zero on all landmarks; it cannot be approximated")
    if np.max(np.abs(gram - gram.T)) > 1e-8 * largest:
        raise ValueError("the kernel is not symmetric: K(x, z) must equal K(z, x)")
    gram = 0.5 * (gram + gram.T)
    if not kernel.is_foreign:
        # Pivots are taken by the diagonal: what is equal there must not differ by rounding, or
        # the order of the landmarks would hang on the last bit of a kernel width.
        np.fill_diagonal(gram, kernel.diagonal(rows))
    factor, pivots, rank, _ = lapack.dpstrf(
        gram.copy(order="F"), tol=NEGLIGIBLE * largest, lower=1, overwrite_a=1
    )
    kept = pivots[:rank] - 1
    lower = np.tril(factor[:rank, :rank])
    inverse, info = lapack.dtrtri(lower, lower=1) if rank else (lower, 0)
    if info != 0:
        raise BreakdownError("the landmarks' kernel matrix cannot be inverted")
    whitening = np.ascontiguousarray(inverse.T)
    features = gram[:, kept] @ whitening
    if np.max(np.abs(features @ features.T - gram)) > 1e-8 * largest:
        raise ValueError(
            "the kernel matrix of the landmarks is not positive semi-definite; use a Mercer "
            "kernel"
        )
    return Landmarks(kernel, np.ascontiguousarray(rows[kept]), whitening)


def random_fourier_features(
    kernel: Kernel, n_features: int, width: int, rng: np.random.Generator
) -> FourierFeatures:
    """About `width` random functions of a kernel that depends on x − z alone.

    exp(−γ|δ|²) is the mean of waves of Gaussian frequencies, whose directions are made
    orthogonal within groups of d (which lowers the error); exp(−γ|δ|₁) of Cauchy ones;
    Matérn's kernel of Gaussian ones over √(χ²₅/5), that is of Student's t with 2ν = 5.
    """
    assert kernel.name in FOURIER_KERNELS, "checked where the parameter comes in"
    half = max(1, (width + 1) // 2)
    if kernel.name == "laplacian":
        frequencies = rng.standard_cauchy((n_features, half))
        return FourierFeatures(frequencies * np.broadcast_to(kernel.gamma, n_features)[:, None])
    groups = []
    for _ in range(-(-half // n_features)):
        gaussian = rng.standard_normal((n_features, n_features))
        directions = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
        groups.append(directions * np.linalg.norm(gaussian, axis=0))
    frequencies = np.concatenate(groups, axis=1)[:, :half]
    if kernel.name == "matern":
        frequencies /= np.sqrt(rng.chisquare(5.0, half) / 5.0)
    scale = np.sqrt(2.0 * np.broadcast_to(kernel.gamma, n_features))
    return FourierFeatures(frequencies * scale[:, None])


def drawn(n_rows: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Row numbers, increasing: `size` of n at random, or all."""
    if size >= n_rows:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, size, replace=False))
