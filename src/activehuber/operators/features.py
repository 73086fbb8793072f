"""Q = Ψ Ψᵀ by features Ψ: every product is a pass over rows, held in one block or streamed.

Ψ(x) = [c¹Φ¹(x) … c^mΦ^m(x)] C⁻ᵀ, Φ^α the features of a view (`basis`) and C Cᵀ the penalty on
their coefficients beside the norm (graph and agreement; the identity without). With F the free
labels, weights 1/μ and θ = Ψᵀv the primal unknowns, a Newton step is the system

    (I + Ψ_Fᵀ diag(1/μ_F) Ψ_F) θ = Ψᵀu ,     u = y/μ on free rows, ±ξ/μ on bound ones,

whose matrix is a sum over rows: from one pattern to the next only rows that flipped change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.data.rows import (
    FEWEST_ROWS,
    ArrayRows,
    Rows,
    Sums,
    automatic_block_size,
    threads_for,
)
from activehuber.kernels.feature_maps import Basis, Given, Landmarks, of_view
from activehuber.numerics import linalg
from activehuber.operators.protocol import Gram, Solved, Source

# Sums are mended while no more than this share of their rows flips, else made anew.
MENDED_SHARE = 0.5
# Labels solved first to guess the pattern, where there are at least twice as many.
COARSE_LABELS = 10_000
COARSE_ROWS_A_FUNCTION = 10
# Features are made once and held if they need no more than this, else made at every pass.
HELD_BYTES = 2**29
# A group is not left out by Woodbury's formula where it leaves less than this of any direction.
LOST = 1e-10
# Rows whose features are held at once while groups of them are left out.
ROWS_OF_GROUPS = 4096
# Blocks that held features are cut into at least.
PIECES = 8


@dataclass(frozen=True)
class FeatureMap:
    """Ψ as κ and what is done to it.

    Attributes
    ----------
    basis : Basis
    weights : ndarray of shape (m,)
        c.
    mixing : ndarray of shape (p, p) or None
        C⁻ᵀ; None for the identity.
    """

    basis: Basis
    weights: Vector
    mixing: Matrix | None = None

    @cached_property
    def is_identity(self) -> bool:
        """Whether Ψ = κ."""
        plain = all(function.whitening is None for function in self.basis.functions)
        return plain and self.mixing is None and bool(np.all(self.weights == 1.0))

    def __call__(self, X: Matrix) -> Matrix:
        """Ψ at every row, shape (n, p); not to be written into."""
        raw = self.basis(X)
        if self.is_identity:
            return raw
        views = [
            view if c == 1.0 else c * view
            for c, view in zip(self.weights, self.basis.whitened(raw), strict=True)
        ]
        out = views[0] if len(views) == 1 else np.concatenate(views, axis=1)
        return out if self.mixing is None else out @ self.mixing

    def to_functions(self, theta: Matrix) -> Matrix:
        """a with Ψ θ = κ a, shapes (p,) or (p, k)."""
        mixed = theta if self.mixing is None else self.mixing @ theta
        return self._whiten(mixed, transposed=False)

    def from_functions(self, moments: Matrix) -> Matrix:
        """Ψᵀu from κᵀu, shapes (p,) or (p, k)."""
        out = self._whiten(moments, transposed=True)
        return out if self.mixing is None else self.mixing.T @ out

    def _whiten(self, values: Matrix, *, transposed: bool) -> Matrix:
        """c^α W^α, or its transpose, times the part of each view."""
        if self.is_identity:
            return values
        out = np.array(values, dtype=np.float64)
        parts = zip(self.weights, self.basis.places, self.basis.functions, strict=True)
        for c, place, function in parts:
            own, W = c * out[place], function.whitening
            if W is not None:
                own = (W.T if transposed else W) @ own
            out[place] = own
        return out


def as_given(psi: Matrix) -> FeatureMap:
    """The map of rows that are features."""
    return FeatureMap(Basis((None,), (Given(psi.shape[1]),)), np.ones(1))


class OneBlock(ArrayRows):
    """Rows worked on all at once where they are: of few a thread is not worth its start."""

    def run(self, work, shared=(), columns=(), chosen=None):
        return work(self.X if chosen is None else self.X[chosen], *shared, *columns)


# --- work on one block ------------------------------------------------------------------


def features_of(X: Matrix, features: FeatureMap) -> tuple[np.ndarray, Sums]:
    """Ψ of every row."""
    return features(X), ()


def project(X: Matrix, basis: Basis, coefficients: Matrix) -> tuple[np.ndarray, Sums]:
    """κ a on every row."""
    return basis(X) @ coefficients, ()


def project_views(X: Matrix, basis: Basis, coefficients: Matrix) -> tuple[np.ndarray, Sums]:
    """κ^α a^α of every view, shape (n, m, q) for a of shape (p, q)."""
    if not np.all(np.isfinite(X)):
        # Arrays have been looked at; what is streamed is looked at here.
        kind = "NaN" if np.any(np.isnan(X)) else "infinity"
        raise ValueError(
            f"Input X contains {kind}: such rows cannot be predicted; fill them in"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # whoever asked looks at what comes
        raw = basis(X)
        parts = [raw[:, place] @ coefficients[place] for place in basis.places]
    return np.stack(parts, axis=1), ()


def moments(X: Matrix, basis: Basis, values: np.ndarray) -> tuple[None, Sums]:
    """κᵀu."""
    return None, (basis(X).T @ values,)


def gram_sums(X: Matrix, features: FeatureMap, weights: Vector) -> tuple[None, Sums]:
    """Ψᵀ diag(w) Ψ and Ψᵀw; weights may be negative."""
    used = weights != 0.0
    if not np.all(used):
        X, weights = X[used], weights[used]
    psi = features(X)
    mean = psi.T @ weights
    if len(weights) and weights[0] > 0.0 and np.all(weights == weights[0]):
        return None, (weights[0] * (psi.T @ psi), mean)
    scaled = np.sqrt(np.abs(weights))[:, None] * psi
    added, taken = scaled[weights > 0.0], scaled[weights < 0.0]
    return None, (added.T @ added - taken.T @ taken, mean)


def squared_norms(
    X: Matrix, basis: Basis, matrix: Matrix, border: Vector | None, scale: float
) -> tuple[np.ndarray, Sums]:
    """|κ A|² on every row, and with a border m also (1 − κ A m)²·scale."""
    rows = basis(X) @ matrix
    norms = np.einsum("ij,ij->i", rows, rows)
    if border is not None:
        norms += scale * (1.0 - rows @ border) ** 2
    return norms, ()


def prior_diagonal(X: Matrix, features: FeatureMap) -> tuple[np.ndarray, Sums]:
    """Σ_α (c^α)² K^α(x, x) on every row; of functions that are no landmarks |Φ^α(x)|²."""
    prior, basis = np.zeros(len(X)), features.basis
    for c, columns, function in zip(
        features.weights, basis.columns, basis.functions, strict=True
    ):
        own = of_view(X, columns)
        if isinstance(function, Landmarks):
            prior += c**2 * function.kernel.diagonal(own)
        else:
            phi = function(own)
            prior += c**2 * np.einsum("ij,ij->i", phi, phi)
    return prior, ()


def missing_diagonal(X: Matrix, features: FeatureMap) -> tuple[np.ndarray, Sums]:
    """K(x, x) − |Ψ(x)|² on every row: what landmarks leave out of the prior variance."""
    prior, _ = prior_diagonal(X, features)
    psi = features(X)
    return np.maximum(prior - np.einsum("ij,ij->i", psi, psi), 0.0), ()


def absolute_moments(X: Matrix, basis: Basis, values: Vector) -> tuple[None, Sums]:
    """|κ|ᵀ|u|."""
    return None, (np.abs(basis(X)).T @ np.abs(values),)


def absolute_projection(
    X: Matrix, basis: Basis, coefficients: Vector
) -> tuple[np.ndarray, Sums]:
    """|κ||a|."""
    return np.abs(basis(X)) @ np.abs(coefficients), ()


# --- the Gram matrix --------------------------------------------------------------------


@dataclass
class _Held:
    """Sums over the free rows of one pattern, with weights ω = max μ / μ."""

    free: Mask
    omega: Vector
    matrix: Matrix
    mean: Vector


class FeatureGram(Gram):
    """Q on the labelled rows.

    Parameters
    ----------
    rows : Rows
    numbers : ndarray of int, increasing, or None
        The labelled rows; None: all.
    features : FeatureMap
        Of `rows`. Features of at most HELD_BYTES of rows in reach are made once and then are
        the rows, and this map the identity.

    Attributes
    ----------
    in_one_block : bool
        Whether passes are cheap: sums are then made anew each time, to the last digit, and the
        pattern of all labels is found at once.
    """

    matrix = None

    def __init__(self, rows: Rows, numbers: np.ndarray | None, features: FeatureMap) -> None:
        whole = numbers is not None and len(numbers) == len(rows)
        self.rows, self.numbers = rows, None if whole else numbers
        self.features = features
        self.in_one_block = isinstance(rows, OneBlock)
        if rows.local and 8 * len(self) * features.basis.width <= HELD_BYTES:
            self._hold()
        self.basis = self.features.basis
        self._held: _Held | None = None
        self._pulled: tuple[Vector, Vector] | None = None
        self.last: tuple[Vector, Vector] | None = None  # θ and v of the last answer
        self._subset: tuple[np.ndarray, FeatureGram] | None = None

    def _hold(self) -> None:
        """Make the features once and take them for the rows."""
        if isinstance(self.features.basis.functions[0], Given):
            return  # they are held already
        psi = self.by_row(features_of, (self.features,))
        left_out = self.left_out if self.features.mixing is not None else None
        if left_out is None:  # the same with the features at hand
            prior = self.by_row(prior_diagonal, (self.features,))
            left_out = np.maximum(prior - np.einsum("ij,ij->i", psi, psi), 0.0)
        self.left_out = left_out
        # Few rows are cut so that every thread gets some.
        size = min(automatic_block_size(psi.shape[1]), max(FEWEST_ROWS, -(-len(psi) // PIECES)))
        self.rows = self.rows.replaced_by(ArrayRows(psi, size))
        self.numbers, self.features = None, as_given(psi)
        self.basis = self.features.basis

    def __len__(self) -> int:
        return len(self.rows) if self.numbers is None else len(self.numbers)

    @cached_property
    def diagonal(self) -> Vector:
        matrix = self.features.to_functions(np.eye(self.basis.width))
        return self.by_row(squared_norms, (self.basis, matrix, None, 0.0))

    @property
    def missing(self) -> Vector:
        # An approximation leaves something out everywhere: that is part of the noise. What
        # tells rows apart is where it leaves out more.
        return np.maximum(self.left_out - np.median(self.left_out), 0.0)

    @cached_property
    def left_out(self) -> Vector:
        """K(x, x) − |Ψ(x)|² without graph and agreement, shape (l,)."""
        if not any(isinstance(f, Landmarks) for f in self.features.basis.functions):
            return np.zeros(len(self))
        return self.by_row(missing_diagonal, (replace(self.features, mixing=None),))

    @property
    def coarse_step(self) -> int:
        if self.in_one_block:
            return 0
        step = len(self) // max(COARSE_LABELS, COARSE_ROWS_A_FUNCTION * self.basis.width)
        return step if step >= 2 else 0

    def project(self, theta: Vector) -> Vector:
        """Ψ θ on the labelled rows."""
        return self.by_row(project, (self.basis, self.features.to_functions(theta)))

    def pull(self, u: Vector, chosen: np.ndarray | None = None) -> Vector:
        """Ψᵀu over the labelled rows, or over some of them by place."""
        _, (image,) = self._run(moments, (self.basis,), u, chosen)
        return self.features.from_functions(image)

    def matvec(self, v: Vector, *, precise: bool = False) -> Vector:
        if not precise:
            return self.project(self.pull_of(v))
        assert isinstance(self.rows, OneBlock), "streamed features have the precision they have"
        psi, wide = self.rows.X, v.astype(np.longdouble)
        return linalg.wide_product(psi, psi.T.astype(np.longdouble) @ wide).astype(np.float64)

    def pull_of(self, u: Vector) -> Vector:
        """Ψᵀu, touching only the rows on which u differs from the last one asked for."""
        if self.in_one_block:
            return self.pull(u)
        last, image = self._pulled or (np.zeros_like(u), np.zeros(self.basis.width))
        changed = np.flatnonzero(u != last)
        if 2 * len(changed) > np.count_nonzero(u):
            changed, last, image = np.flatnonzero(u), np.zeros_like(u), np.zeros_like(image)
        if len(changed):
            image = image + self.pull((u - last)[changed], changed)
        self._pulled = u.copy(), image
        return image

    def primal_of(self, v: Vector, active: Mask) -> Vector:
        """θ = Ψᵀv over active rows; of the last answer as it was solved for, to more digits."""
        if self.last is not None and self.last[1] is v:
            return self.last[0]
        return self.pull(np.where(active, v, 0.0))

    def magnitude(self, v: Vector) -> Vector:
        _, (image,) = self._run(absolute_moments, (self.basis,), v)
        back = self.features.to_functions(self.features.from_functions(image))
        return self.by_row(absolute_projection, (self.basis, back))

    def subset(self, rows: np.ndarray) -> FeatureGram:
        """Q on some of the labelled rows, whose features are held; the last one is kept."""
        if self.in_one_block:
            return held_gram(self.rows.take(rows))
        if self._subset is None or not np.array_equal(self._subset[0], rows):
            size = automatic_block_size(self.basis.width)
            held = FeatureGram(
                ArrayRows(self.rows.take(self._numbers(rows)), size), None, self.features
            )
            held._hold()
            self._subset = rows.copy(), held
        return self._subset[1]

    def features_at(self, places: np.ndarray) -> Matrix:
        """Ψ on some of the labelled rows, shape (k, p)."""
        return self.by_row(features_of, (self.features,), self._numbers(places))

    def source(self, mu: Vector, near: Source | None = None) -> FeatureSource:
        del near  # a new one is made at once: the sums are the gram's
        return FeatureSource(self, mu)

    def sums(self, free: Mask, omega: Vector) -> tuple[Matrix, Vector]:
        """Ψᵀ diag(ω) Ψ and Ψᵀω over the free rows; do not write into them."""
        held, chosen = self._held, np.flatnonzero(free)
        if self.in_one_block:
            return self._gram_sums(chosen, omega[chosen])
        if held is not None and np.allclose(omega, held.omega, rtol=1e-13, atol=0.0):
            flipped = np.flatnonzero(free != held.free)
            if len(flipped) == 0:
                return held.matrix, held.mean
            if len(flipped) <= MENDED_SHARE * len(chosen):
                signed = np.where(free[flipped], held.omega[flipped], -held.omega[flipped])
                matrix, mean = self._gram_sums(flipped, signed)
                matrix += held.matrix
                self._held = _Held(free.copy(), held.omega, matrix, mean + held.mean)
                return self._held.matrix, self._held.mean
        held = self._held = None  # two of them at once are memory
        self._held = _Held(free.copy(), omega, *self._gram_sums(chosen, omega[chosen]))
        return self._held.matrix, self._held.mean

    def _gram_sums(self, chosen: np.ndarray, weights: Vector) -> tuple[Matrix, Vector]:
        _, (matrix, mean) = self._run(gram_sums, (self.features,), weights, chosen)
        return matrix, mean

    def few_threads(self) -> Any:
        """A context for algebra of the size of the features."""
        return nullcontext() if self.in_one_block else threads_for(width=self.basis.width)

    def _run(self, work, shared, values: Vector, chosen: np.ndarray | None = None) -> Any:
        """A pass over all labelled rows or some; of many of them zeros make a pass over all."""
        if chosen is not None:
            if 2 * len(chosen) < len(self):
                return self.rows.run(work, shared, (values,), self._numbers(chosen))
            given, values = values, np.zeros(len(self))
            values[chosen] = given
        return self.rows.run(work, shared, (values,), self.numbers)

    def by_row(self, work, shared, numbers: np.ndarray | None = None) -> np.ndarray:
        """What a pass says of every labelled row, or of the rows of some numbers."""
        values, _ = self.rows.run(
            work, shared, (), self.numbers if numbers is None else numbers
        )
        assert values is not None
        return values

    def _numbers(self, places: np.ndarray) -> np.ndarray:
        """Row numbers of some labelled rows."""
        return places if self.numbers is None else self.numbers[places]


def held_gram(psi: Matrix) -> FeatureGram:
    """Q = Ψ Ψᵀ for a few features of shape (l, p), in one block."""
    return FeatureGram(OneBlock(psi), None, as_given(psi))


@dataclass
class FeatureSource:
    """Factors for any pattern at one μ; see `protocol`."""

    gram: FeatureGram
    mu: Vector

    def factor(self, free: Mask, likely_bound: Mask | None = None) -> FeatureFactor:
        del likely_bound
        return FeatureFactor(self.gram, self.mu, free)


class FeatureFactor:
    """H = I + Ψ_Fᵀ diag(1/μ_F) Ψ_F factored, bordered by m = Ψ_Fᵀ(1/μ_F); see `protocol`.

    Attributes
    ----------
    lower : ndarray of shape (p, p)
        L with L Lᵀ = H.
    mean : ndarray of shape (p,)
        m.
    """

    def __init__(self, gram: FeatureGram, mu: Vector, free: Mask) -> None:
        self.gram, self.mu, self.free, self.unit = gram, mu, free, float(np.max(mu))
        self.weight = np.where(free, 1.0 / mu, 0.0)
        self.total = float(self.weight.sum())
        matrix, mean = gram.sums(free, self.unit / mu)
        hessian = matrix / self.unit
        hessian.flat[:: len(hessian) + 1] += 1.0
        with gram.few_threads():
            self.lower = linalg.cholesky_in_place(hessian)
        self.mean = mean / self.unit

    def solve(self, targets: Vector, fixed: Vector, total: float | None) -> Solved:
        """By the primal unknowns θ, which do not cancel however small μ is."""
        u = self.weight * targets + fixed
        pull = self.gram.pull_of(self.unit * u) / self.unit
        theta, b = self.solve_primal(pull, None if total is None else float(u.sum()) - total)
        fitted = self.gram.project(theta)
        v = self.weight * (targets - b - fitted) + fixed
        self.gram.last = None if total is None else (theta, v)
        return v, fitted, b

    def solve_primal(self, pull: Vector, constant: float | None) -> tuple[Vector, float]:
        """θ and b with Hθ + mb = pull and mᵀθ + b Σ1/μ = constant; b = 0 if that is None."""
        theta = linalg.solve_cholesky(self.lower, pull)
        if constant is None:
            return theta, 0.0
        to_ones, left = self._ones
        b = (constant - float(self.mean @ theta)) / left
        return theta - b * to_ones, b

    @cached_property
    def _ones(self) -> tuple[Vector, float]:
        """H⁻¹m and Σ1/μ − mᵀH⁻¹m."""
        to_ones = linalg.solve_cholesky(self.lower, self.mean)
        left = self.total - float(self.mean @ to_ones)
        if not left > 0.0:
            raise linalg.BreakdownError("the constant cannot be told from the features")
        return to_ones, left

    def diagonals(self, *, border: bool) -> tuple[Vector, Vector]:
        variance = self.variance(self.gram, border=border)
        inverse = self.weight * (1.0 - self.weight * variance)
        return inverse, np.where(self.free, 0.0, variance)

    def without_groups(
        self, parts: Sequence[np.ndarray], v: Vector, *, border: bool
    ) -> tuple[Vector, Vector]:
        """See `protocol`; with Z = L⁻¹Ψ_Gᵀ, bordered, and B the free rows of G.

        M_G = diag(μ_G) + Zᵀ N⁻¹ Z ,     N = I − Z_B diag(1/μ_B) Z_Bᵀ .
        """
        pulls, sizes = np.zeros_like(v), np.zeros_like(v)
        ends = np.cumsum([len(part) for part in parts])
        for number in np.unique(ends // ROWS_OF_GROUPS):
            here = np.flatnonzero(ends // ROWS_OF_GROUPS == number)
            batch = [parts[i] for i in here.tolist()]
            psi = self.gram.features_at(np.concatenate(batch))
            Z = linalg.solve_lower(self.lower, psi.T)
            if border:
                to_ones, left = self._ones
                Z = np.vstack([Z, (1.0 - psi @ to_ones) / np.sqrt(left)])
            cuts = np.cumsum([len(part) for part in batch[:-1]])
            for part, z in zip(batch, np.split(Z, cuts, axis=1), strict=True):
                pull, size = _posterior(z, self.weight[part], v[part])
                pulls[part] = self.mu[part] * v[part] + pull
                sizes[part] = self.mu[part] + size
        return pulls, sizes

    def variance(self, gram: FeatureGram, *, border: bool) -> Vector:
        """aᵀ H⁻¹ a on the rows of a Gram matrix of the same features, a = Ψ(x) or (Ψ(x), 1)."""
        with gram.few_threads():
            half = linalg.solve_lower(self.lower, np.eye(len(self.lower)), transposed=True)
            matrix = gram.features.to_functions(half)
        edge, scale = None, 0.0
        if border:
            edge, scale = linalg.solve_lower(self.lower, self.mean), 1.0 / self._ones[1]
        return gram.by_row(squared_norms, (gram.basis, matrix, edge, scale))


def _posterior(Z: Matrix, weight: Vector, v: Vector) -> tuple[Vector, Vector]:
    """C v and diag C of C = Zᵀ (I − Z diag(weight) Zᵀ)⁻¹ Z, by Woodbury's smaller form."""
    root = Z * np.sqrt(weight)  # rows that are not free have no weight
    few = Z.shape[1] < len(Z)
    N = np.eye(Z.shape[1]) - root.T @ root if few else np.eye(len(Z)) - root @ root.T
    try:
        lower = linalg.cholesky_in_place(N)
    except linalg.BreakdownError:
        lower = np.zeros((1, 1))
    if np.min(np.diagonal(lower)) ** 2 < LOST:
        return np.full_like(v, np.nan), np.full_like(v, np.nan)
    half = linalg.solve_lower(lower, np.asfortranarray(root.T @ Z if few else Z))
    if few:
        C = Z.T @ Z + half.T @ half
        return C @ v, np.diagonal(C)
    return half.T @ (half @ v), np.einsum("ij,ij->j", half, half)
