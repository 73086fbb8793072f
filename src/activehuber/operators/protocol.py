"""What the solvers see of Q, and of A = Q + diag(μ) on free rows.

Newton's method on the reduced problem (see `problem`) asks for one thing again and again:
A_FF⁻¹ for the rows F that are free in the present pattern. A *gram* holds Q; a *source* fixes
μ and gives a *factor* for any set of free rows. There are two grams:

    dense.DenseGram       Q as an (l, l) matrix
    features.FeatureGram  Q = Ψ Ψᵀ with few columns; each factor is of their number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np

from activehuber._typing import Mask, Matrix, Vector

# v, Qv and b.
Solved: TypeAlias = tuple[Vector, Vector, float]


class Factor(Protocol):
    """A_FF⁻¹ for one set F of free rows."""

    def solve(self, targets: Vector, fixed: Vector, total: float | None) -> Solved:
        """v, Qv and b with (Qv)_i + μ_i v_i + b = target_i on free rows, v = fixed elsewhere.

        b is such that Σ v = total, or 0 if that is None; `fixed` is zero on free rows.
        """

    def diagonals(self, *, border: bool) -> tuple[Vector, Vector]:
        """(A_FF⁻¹)_ii on free rows and Q_ii − Q_iF A_FF⁻¹ Q_Fi elsewhere.

        With a border A_FF is bordered by ones, and Q_iF by a one. Returns two arrays of
        shape (l,), each zero where the other is meant. May use up the factor: ask for it
        last.
        """

    def without_groups(
        self, parts: Sequence[np.ndarray], v: Vector, *, border: bool
    ) -> tuple[Vector, Vector]:
        """M_G v_G and the diagonal of M_G = A_GG − Q_GE A_EE⁻¹ Q_EG for groups G of rows.

        E are the free rows outside of G; with a border, as in `diagonals`, there must be one.
        Returns two arrays of shape (l,), zero for rows that are in no group, NaN for those of a
        group whose part in A_FF⁻¹ is lost in rounding.
        """


class Source(Protocol):
    """Factors for any set of free rows at one μ."""

    mu: Vector

    def factor(self, free: Mask, likely_bound: Mask | None = None) -> Factor: ...


class Gram(Protocol):
    """Q, symmetric positive semi-definite, of shape (l, l)."""

    @property
    def matrix(self) -> Matrix | None:
        """Q where it is held as a C-ordered matrix; None where it is held by features."""

    @property
    def diagonal(self) -> Vector: ...

    @property
    def missing(self) -> Vector:
        """Prior variance that Q leaves out of the kernel's, above the median, shape (l,)."""

    @property
    def coarse_step(self) -> int:
        """Stride of the labels solved first to guess the pattern of all; 0: none are."""

    def __len__(self) -> int: ...

    def matvec(self, v: Vector, *, precise: bool = False) -> Vector:
        """Q v; `precise` sums in extended precision, where the machine has it."""

    def magnitude(self, v: Vector) -> Vector:
        """|Q||v| or a little more: the yardstick of rounding in `matvec`."""

    def subset(self, rows: np.ndarray) -> Gram: ...

    def shared(self) -> Gram:
        """The same for several targets, which find what was made for one μ again."""
        return self

    def is_well_conditioned(self, mu: Vector) -> bool:
        """Whether solves by way of parts of A⁻¹ can be trusted."""
        del mu
        return True

    def source(self, mu: Vector, near: Source | None = None) -> Source:
        """A source for one μ, on top of one for a `near` μ where a new one costs more."""

    def direct_source(self, mu: Vector) -> Source:
        """A source for one pattern that also needs its diagonals."""
        return self.source(mu)

    def inverse_source(self, mu: Vector, *, border: bool) -> Source:
        """A source for many patterns that each need their diagonals.

        With a border every `solve` has a total, and only bordered diagonals may be asked for.
        """
        del border
        return self.source(mu)
