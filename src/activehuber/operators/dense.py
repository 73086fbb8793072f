"""Q as a matrix, and solves with A = Q + diag(μ) on free rows; see `protocol`.

HeadTail      one Cholesky factor whose last rows are the ones likely to be bound
Inverse       one explicit inverse; cheap for many patterns, with leave-one-out
Shifted       another μ on top of an existing source, by conjugate gradients
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.numerics import linalg
from activehuber.operators.protocol import Factor, Solved, Source

# Up to this many rows a Cholesky factor costs less than the bookkeeping around it.
SMALL = 256
# Bound on the condition number up to which parts of an explicit inverse are used.
WELL_CONDITIONED = 1e6
# Ratio of μ and that of a factor up to which the factor is a good preconditioner.
WELL_PRECONDITIONED = 1.5
# Rows of an absolute-value pass held at once.
BLOCK = 512
# From this size on a quarter of the rows is solved first, to guess the pattern.
COARSE_FROM = 800
# A group is not left out by way of the inverse where its share is within so many errors of it.
LOST = 100.0
# Rows gathered at once.
GATHER = 32


def submatrix(matrix: Matrix, rows: np.ndarray, columns: np.ndarray) -> Matrix:
    """matrix[rows][:, columns] for increasing rows and columns, always a fresh array.

    Gathered in blocks of a few rows, which stay in the cache and cost no fresh pages;
    mode="clip" spares NumPy a buffer.
    """
    if len(rows) == len(columns) == len(matrix):
        return matrix.copy()
    out = np.empty((len(rows), len(columns)))
    for start in range(0, len(rows), GATHER):
        part = slice(start, start + GATHER)
        np.take(matrix[rows[part]], columns, axis=1, out=out[part], mode="clip")
    return out


def shifted_block(matrix: Matrix, mu: Vector, rows: np.ndarray) -> Matrix:
    """A fresh copy of A = Q + diag(μ) on the given rows."""
    block = submatrix(matrix, rows, rows)
    block.flat[:: len(rows) + 1] += mu[rows]
    return block


# --- Q as a matrix ----------------------------------------------------------------------


class DenseGram:
    """Q held as a C-ordered (l, l) matrix.

    With `keep_sources` factors made for one μ are kept for the next caller, which pays
    when several targets share the rows. A matrix that is `nonnegative` is its own absolute
    value, which saves a pass.
    """

    def __init__(
        self, matrix: Matrix, *, keep_sources: bool = False, nonnegative: bool = False
    ) -> None:
        self.matrix, self.nonnegative = matrix, nonnegative
        self.diagonal = np.diagonal(matrix).copy()
        self.missing = np.zeros(len(matrix))
        self.kept: dict[tuple[str, bytes], Source] | None = {} if keep_sources else None

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def coarse_step(self) -> int:
        return 4 if len(self) >= COARSE_FROM else 0

    def matvec(self, v: Vector, *, precise: bool = False) -> Vector:
        if precise:
            return linalg.wide_product(self.matrix, v.astype(np.longdouble)).astype(np.float64)
        return linalg.multiply_symmetric(self.matrix, v)

    def magnitude(self, v: Vector) -> Vector:
        if self.nonnegative:
            return linalg.multiply_symmetric(self.matrix, np.abs(v))
        size, blocks = np.abs(v), range(0, len(self), BLOCK)
        rows = [linalg.multiply(np.abs(self.matrix[i : i + BLOCK]), size) for i in blocks]
        return np.concatenate(rows)

    def subset(self, rows: np.ndarray) -> DenseGram:
        return DenseGram(submatrix(self.matrix, rows, rows))

    def shared(self) -> DenseGram:
        return DenseGram(self.matrix, keep_sources=True)

    def source(self, mu: Vector, near: Source | None = None) -> Source:
        base, last = (near.base, near.last) if isinstance(near, Shifted) else (near, None)
        if self.coarse_step and isinstance(base, HeadTail):  # else products are cheap
            if float(np.max(base.mu / mu)) < WELL_PRECONDITIONED:
                return Shifted(base, mu, last)
        return self._kept("source", mu, lambda: HeadTail(self, mu))

    def _kept(self, kind: str, mu: Vector, make: Callable[[], Source]) -> Source:
        if self.kept is None:
            return make()
        key = (kind, mu.tobytes())
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def direct_source(self, mu: Vector) -> HeadTail:
        return HeadTail(self, mu, small=len(self))

    def inverse_source(self, mu: Vector, *, border: bool) -> Source:
        if not self.is_well_conditioned(mu):
            return self.direct_source(mu)
        return self._kept(f"inverse {border}", mu, lambda: Inverse(self, mu, border=border))

    def is_well_conditioned(self, mu: Vector) -> bool:
        """Whether solves by way of parts of A⁻¹ can be trusted.

        Unlike a Cholesky solve they are not backward stable: the error of Qv grows with the
        square of the condition number, which n·max Q_ii/min μ bounds.
        """
        return self.condition(mu) <= WELL_CONDITIONED

    def condition(self, mu: Vector) -> float:
        """A bound on the condition number of A."""
        return len(self.diagonal) * float(np.max(self.diagonal)) / float(np.min(mu))


class _DenseFactor(ABC):
    """What factors of a dense Q share: all by way of A_FF⁻¹ rhs.

    The border of ones is a second right-hand side, whose solution is kept: whoever has solved
    asks for the diagonals next.
    """

    gram: DenseGram
    mu: Vector
    free: Mask

    @abstractmethod
    def solve_free(self, rhs: Matrix) -> Matrix:
        """x of shape (l, k): A_FF x_F = rhs_F on free rows, zero elsewhere."""

    def solve_columns(self, targets: Matrix, fixed: Matrix) -> tuple[Matrix, Matrix]:
        """v and Qv without b for several right-hand sides, all of shape (l, k)."""
        known = self.gram.matvec(fixed) if np.any(fixed) else 0.0
        v = self.solve_free(targets - known) + fixed
        return v, self.gram.matvec(v)

    def solve(self, targets: Vector, fixed: Vector, total: float | None) -> Solved:
        if total is None:
            v, image = self.solve_columns(targets[:, None], fixed[:, None])
            return v[:, 0], image[:, 0], 0.0
        pair = np.stack([targets, np.ones_like(targets)], axis=1)
        v, image = self.solve_columns(pair, np.stack([fixed, np.zeros_like(fixed)], axis=1))
        self.to_ones = v[:, 1].copy(), image[:, 1].copy()
        ones = float(v[:, 1].sum())
        if not ones > 0.0:
            raise linalg.BreakdownError("the constant cannot be told from the kernel")
        b = (float(v[:, 0].sum()) - total) / ones
        return v[:, 0] - b * v[:, 1], image[:, 0] - b * image[:, 1], b

    @cached_property
    def to_ones(self) -> tuple[Vector, Vector]:
        """The solution for the border alone, and its image."""
        ones = np.ones((len(self.free), 1))
        v, images = self.solve_columns(ones, np.zeros_like(ones))
        return v[:, 0], images[:, 0]

    def diagonals(self, *, border: bool) -> tuple[Vector, Vector]:
        direct, others = self.direct, np.flatnonzero(~self.free)
        inverse, schur = np.zeros((2, len(self.gram)))
        u, image = self.to_ones if border else (inverse, schur)  # while there is a factor
        for start in range(0, len(others), BLOCK):
            part = others[start : start + BLOCK]
            half = submatrix(self.gram.matrix, part, direct.rows).T
            half = linalg.solve_lower(direct.lower, half, overwrite=True)
            schur[part] = self.gram.diagonal[part] - np.einsum("ij,ij->j", half, half)
        inverse[direct.rows] = linalg.inverse_diagonal_in_place(direct.lower)
        if not border:
            return inverse, schur
        total = float(u.sum())
        missed = np.where(self.free, 0.0, (1.0 - image) ** 2 / total)
        return inverse - u**2 / total, schur + missed

    def without_groups(
        self, parts: Sequence[np.ndarray], v: Vector, *, border: bool
    ) -> tuple[Vector, Vector]:
        try:
            factor = _InverseFactor(Inverse(self.gram, self.mu, border=border), self.free)
        except linalg.BreakdownError:  # of rows that are not free: A_FF has a factor
            lost = np.zeros_like(v)
            for part in parts:
                lost[part] = np.nan
            return lost, lost
        return factor.without_groups(parts, v, border=border)

    @property
    def direct(self) -> Direct:
        """A Cholesky factor of A_FF itself, for what is no solve."""
        return self if isinstance(self, Direct) else Direct(self.gram, self.mu, self.free)


class Direct(_DenseFactor):
    """A Cholesky factor of A_FF itself."""

    def __init__(self, gram: DenseGram, mu: Vector, free: Mask) -> None:
        self.gram, self.mu, self.free = gram, mu, free
        self.rows = np.flatnonzero(free)
        self.lower = linalg.cholesky_in_place(shifted_block(gram.matrix, mu, self.rows))

    def solve_free(self, rhs: Matrix) -> Matrix:
        x = np.zeros_like(rhs)
        x[self.rows] = linalg.solve_cholesky(self.lower, rhs[self.rows])
        return x


class HeadTail:
    """One partial Cholesky factor that serves many patterns.

    Rows are ordered head first, tail last, the tail being the rows that may be bound:

        A = [ A_hh  A_ht ]   L_hh = chol(A_hh),  W = A_th L_hh⁻ᵀ,  S = A_tt − W Wᵀ
            [ A_th  A_tt ]

    A pattern that frees all of the head and some rows t of the tail needs only chol(S_tt),
    of the tail's size. A few rows of the head that become bound are held by multipliers; if
    they are many, the factor is made anew. Up to `small` free rows have a factor of their own.
    """

    def __init__(self, gram: DenseGram, mu: Vector, small: int = SMALL) -> None:
        self.gram, self.mu, self.small = gram, mu, small
        self.in_head = np.zeros(len(gram), dtype=bool)
        self.built = False

    def factor(self, free: Mask, likely_bound: Mask | None = None) -> _DenseFactor:
        if np.count_nonzero(free) <= self.small:
            return Direct(self.gram, self.mu, free)
        missing = np.count_nonzero(self.in_head & ~free)
        few = max(32, len(free) // 64) if self.gram.is_well_conditioned(self.mu) else 0
        if not self.built or missing > few:
            self._build(free if likely_bound is None else free & ~likely_bound)
        return _HeadTailFactor(self, free)

    def _build(self, in_head: Mask) -> None:
        matrix = self.gram.matrix
        self.built, self.in_head = True, in_head
        self.head, self.tail = np.flatnonzero(in_head), np.flatnonzero(~in_head)
        self.lower = linalg.cholesky_in_place(
            shifted_block(self.gram.matrix, self.mu, self.head)
        )
        # Wᵀ in Fortran order is W in C order: rows of W are gathered cheaply below.
        self.coupling = linalg.solve_lower(
            self.lower, submatrix(matrix, self.tail, self.head).T, overwrite=True
        ).T
        self.schur = shifted_block(self.gram.matrix, self.mu, self.tail)
        linalg.subtract_cross_product(self.schur, self.coupling)
        self.held = np.empty(0, dtype=np.intp)
        self.units = np.empty((len(self.head), 0), order="F")
        self.unit_images = np.empty((len(self.tail), 0))

    def hold(self, missing: np.ndarray) -> tuple[Matrix, Matrix]:
        """G = L_hh⁻¹ E and W G for some rows of the head, kept for later patterns."""
        new = np.setdiff1d(missing, self.held)
        if len(new):
            units = np.zeros((len(self.head), len(new)), order="F")
            units[new, np.arange(len(new))] = 1.0
            units = linalg.solve_lower(self.lower, units, overwrite=True)
            self.held = np.concatenate([self.held, new])
            self.units = np.asfortranarray(np.hstack([self.units, units]))
            self.unit_images = np.hstack(
                [self.unit_images, linalg.multiply(self.coupling, units)]
            )
        order = np.argsort(self.held)
        places = order[np.searchsorted(self.held, missing, sorter=order)]
        return self.units[:, places], self.unit_images[:, places]


class _HeadTailFactor(_DenseFactor):
    """All but the triangular solves with the head is of the tail's size.

    With h = L_hh⁻¹ target_h, G = L_hh⁻¹ E and multipliers m for the rows of the head that
    are not free (v there is `fixed`), and v_t = `fixed` on such rows of the tail,

        S v_t + W G m = target_t − W h     on free rows of the tail,
        Gᵀ (h + G m − Wᵀ v_t) = fixed      on rows of the head that are held,
        v_h = L_hh⁻ᵀ (h + G m − Wᵀ v_t).

    Then Av is the target on free rows, target + m on rows held, W h + W G m + S v_t on the
    rest of the tail, so that Qv = Av − μv needs no product with Q.
    """

    def __init__(self, source: HeadTail, free: Mask) -> None:
        self.source, self.gram, self.mu, self.free = source, source.gram, source.mu, free
        on_tail = free[source.tail]
        self.keep, self.rest = np.flatnonzero(on_tail), np.flatnonzero(~on_tail)
        self.missing = np.flatnonzero(~free[source.head])
        self.lower = linalg.cholesky_in_place(submatrix(source.schur, self.keep, self.keep))
        if len(self.missing):
            self.units, self.images = source.hold(self.missing)
            half = linalg.solve_lower(self.lower, self.images[self.keep])
            small = linalg.multiply(self.units.T, self.units) + linalg.multiply(half.T, half)
            self.small = linalg.cholesky_in_place(np.ascontiguousarray(small))

    def solve_free(self, rhs: Matrix) -> Matrix:
        return self.solve_columns(rhs, np.zeros_like(rhs))[0]

    def solve_columns(self, targets: Matrix, fixed: Matrix) -> tuple[Matrix, Matrix]:
        source, keep = self.source, self.keep
        half = linalg.solve_lower(source.lower, targets[source.head])
        tail = fixed[source.tail]
        left = targets[source.tail] - linalg.multiply(source.coupling, half)
        if np.any(tail):
            left -= linalg.multiply_symmetric(source.schur, tail)
        new = linalg.solve_cholesky(self.lower, left[keep])
        multipliers = None
        if len(self.missing):
            held = fixed[source.head[self.missing]]
            wanted = (
                held
                - linalg.multiply(self.units.T, half)
                + linalg.multiply(self.images.T, tail)
            )
            wanted += linalg.multiply(self.images[keep].T, new)
            multipliers = linalg.solve_cholesky(self.small, wanted)
            half += linalg.multiply(self.units, multipliers)
            new -= linalg.solve_cholesky(
                self.lower, linalg.multiply(self.images[keep], multipliers)
            )
        tail[keep] += new
        half -= linalg.multiply(source.coupling.T, tail)
        v, image = np.empty_like(targets), targets.copy()
        v[source.tail] = tail
        v[source.head] = linalg.solve_lower(source.lower, half, transposed=True)
        if multipliers is not None:
            image[source.head[self.missing]] += multipliers
            v[source.head[self.missing]] = held
        if len(self.rest):
            rows = source.tail[self.rest]
            known = targets[source.tail] - left
            padded = np.zeros((len(tail), new.shape[1]))
            padded[keep] = new
            image[rows] = (
                known[self.rest] + linalg.multiply_symmetric(source.schur, padded)[self.rest]
            )
            if multipliers is not None:
                image[rows] += linalg.multiply(self.images[self.rest], multipliers)
        image -= self.mu[:, None] * v
        return v, image


class Inverse:
    """P = A⁻¹ held explicitly: leaving rows N out needs only chol(P_NN).

        A_FF⁻¹ = P_FF − P_FN P_NN⁻¹ P_NF,      (P_NN⁻¹)_ii = μ_i + Schur diagonal

    With a border the same holds for the inverse of A bordered by ones,

        [ A  1 ]⁻¹   [ P − P11ᵀP/τ   g  ]
        [ 1ᵀ 0 ]   = [ gᵀ          −1/τ ],      τ = 1ᵀP1,  g = P1/τ ,

    whose first block then stands for P.
    """

    def __init__(self, gram: DenseGram, mu: Vector, *, border: bool) -> None:
        self.gram, self.mu = gram, mu
        every = np.arange(len(gram))
        self.inverse = linalg.inverse_in_place(
            linalg.cholesky_in_place(shifted_block(gram.matrix, mu, every))
        )
        if border:
            sums = linalg.multiply_symmetric(self.inverse, np.ones(len(gram)))
            self.total = float(sums.sum())
            self.unit = sums / self.total
            linalg.subtract_outer(self.inverse, sums, self.unit)

    def factor(self, free: Mask, likely_bound: Mask | None = None) -> Factor:
        del likely_bound
        if 2 * np.count_nonzero(free) < len(free):
            return Direct(self.gram, self.mu, free)
        return _InverseFactor(self, free)


class _InverseFactor:
    """v = P z with z = target + E_N t and t such that v_N = `fixed`; then Av = z.

    With a border P stands for the first block of the inverse, and g Σv is added to v. For few
    rows N only those of P are touched.
    """

    def __init__(self, source: Inverse, free: Mask) -> None:
        self.source, self.gram, self.mu, self.free = source, source.gram, source.mu, free
        self.others = np.flatnonzero(~free)
        self.lower = linalg.cholesky_in_place(
            submatrix(source.inverse, self.others, self.others)
        )

    def solve(self, targets: Vector, fixed: Vector, total: float | None) -> Solved:
        source = self.source
        offset = 0.0 if total is None else source.unit * total
        v = linalg.multiply_symmetric(source.inverse, targets) + offset
        z = targets.copy()
        if len(self.others):
            t = linalg.solve_cholesky(self.lower, (fixed - v)[self.others])
            v += self._spread(t)
            v[self.others] = fixed[self.others]
            z[self.others] += t
        b = 0.0 if total is None else float(source.unit @ z) - total / source.total
        return v, z - self.mu * v - b, b

    def _spread(self, t: Vector) -> Vector:
        """P E_N t, by whichever of a gather and a full product reads less."""
        if 8 * len(t) < len(self.free):
            return linalg.multiply(self.source.inverse[self.others].T, t)
        padded = np.zeros(len(self.free))
        padded[self.others] = t
        return linalg.multiply_symmetric(self.source.inverse, padded)

    def diagonals(self, *, border: bool) -> tuple[Vector, Vector]:
        del border  # it is part of the inverse
        inverse = np.diagonal(self.source.inverse).copy()
        schur = np.zeros_like(inverse)
        if len(self.others) == 0:
            return inverse, schur
        half = linalg.divide_by_lower(self.source.inverse[self.others], self.lower)
        inverse -= np.einsum("ij,ij->j", half, half)
        inverse[self.others] = 0.0
        schur[self.others] = linalg.inverse_diagonal_in_place(self.lower) - self.mu[self.others]
        return inverse, schur

    def without_groups(
        self, parts: Sequence[np.ndarray], v: Vector, *, border: bool
    ) -> tuple[Vector, Vector]:
        """See `protocol`.

        With B the free rows of a group, R its others, P the inverse of A on all free rows, S
        the Schur complement, W = A_FF⁻¹ Q_FR, and all of them bordered,

            M_BB = P_BB⁻¹ ,   M_BR = M_BB W_B ,   M_RR = S_RR + W_Bᵀ M_BB W_B .
        """
        del border  # it is part of the inverse
        inverse, others, place = self.source.inverse, self.others, np.cumsum(~self.free) - 1
        schur = linalg.inverse_in_place(self.lower.copy(order="F"))
        pulls, sizes = np.zeros_like(v), np.zeros_like(v)
        # The error of the inverse is larger, at a small μ, than what P_BB says.
        least = LOST * np.finfo(float).eps * self.gram.condition(self.mu) / np.min(self.mu)
        for part in parts:
            inner, outer = part[self.free[part]], part[~self.free[part]]
            known = submatrix(inverse, inner, others)
            half = linalg.solve_lower(self.lower, known.T)
            M = submatrix(inverse, inner, inner) - half.T @ half
            if len(inner):
                try:
                    lower = linalg.cholesky_in_place(M)
                except linalg.BreakdownError:
                    lower = np.zeros((1, 1))
                if np.min(np.diagonal(lower)) ** 2 < least:
                    pulls[part] = sizes[part] = np.nan
                    continue
                M = linalg.inverse_in_place(lower)
            W, S = -known @ schur[:, place[outer]], submatrix(schur, *2 * [place[outer]])
            pulls[inner] = M @ (v[inner] + W @ v[outer])
            sizes[inner] = np.diagonal(M)
            pulls[outer] = S @ v[outer] + W.T @ pulls[inner]
            sizes[outer] = np.diagonal(S) + np.einsum("ij,ij->j", W, M @ W)
        return pulls, sizes


class Shifted:
    """Another μ on top of a source, by preconditioned conjugate gradients.

    With μ' = ρ μ the preconditioned matrix has eigenvalues between 1 and ρ, so a few
    steps reach rounding when the number of labels in use changes by a few per cent.
    """

    def __init__(self, base: HeadTail, mu: Vector, last: Matrix | None = None) -> None:
        self.base, self.mu, self.last = base, mu, last

    def factor(self, free: Mask, likely_bound: Mask | None = None) -> Factor:
        return _ShiftedFactor(self, free, self.base.factor(free, likely_bound))


class _ShiftedFactor(_DenseFactor):
    MOST_STEPS = 60

    def __init__(self, source: Shifted, free: Mask, base: _DenseFactor) -> None:
        self.source, self.base = source, base
        self.gram, self.mu, self.free = source.base.gram, source.mu, free

    def solve_free(self, rhs: Matrix) -> Matrix:
        """Conjugate gradients on each column, all columns in step."""
        free, mu = self.free[:, None], self.mu[:, None]
        b = np.where(free, rhs, 0.0)
        x = self._first_guess(b)
        residual = np.where(free, b - self.gram.matvec(x) - mu * x, 0.0)
        # What is left is mended when the solution is refined against K.
        aim = 1e-13 * np.linalg.norm(b, axis=0)
        direction, energy = np.zeros_like(b), np.ones(b.shape[1])
        for step in range(self.MOST_STEPS):
            if np.all(np.linalg.norm(residual, axis=0) <= aim):
                break
            preconditioned = self.base.solve_free(residual)
            new_energy = np.einsum("ij,ij->j", residual, preconditioned)
            direction = preconditioned + (
                0.0 if step == 0 else direction * _ratio(new_energy, energy)
            )
            image = np.where(free, self.gram.matvec(direction) + mu * direction, 0.0)
            length = _ratio(new_energy, np.einsum("ij,ij->j", direction, image))
            x += length * direction
            smaller = residual - length * image
            if step > 3 and np.all(
                np.linalg.norm(smaller, axis=0) > 0.5 * np.linalg.norm(residual, axis=0)
            ):
                break  # rounding is reached
            residual, energy = smaller, new_energy
        self.source.last = x
        return x

    def _first_guess(self, b: Matrix) -> Matrix:
        """The last solution, corrected once by the preconditioner."""
        last = self.source.last
        if last is None or last.shape != b.shape:
            return self.base.solve_free(b)
        free = self.free[:, None]
        x = np.where(free, last, 0.0)
        left = np.where(free, b - self.gram.matvec(x) - self.mu[:, None] * x, 0.0)
        return x + self.base.solve_free(left)


def _ratio(numerator: Vector, denominator: Vector) -> Vector:
    return np.divide(
        numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0.0
    )
