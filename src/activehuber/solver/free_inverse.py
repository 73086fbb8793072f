"""Solves with A_FF, bordered by ones if there is an intercept, for `path`.

Labels join and leave F, the free ones, one by one.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from activehuber._typing import Mask, Vector
from activehuber.numerics.linalg import (
    BreakdownError,
    cholesky_in_place,
    inverse_in_place,
    multiply,
)
from activehuber.operators.dense import shifted_block
from activehuber.operators.protocol import Solved
from activehuber.problem.problem import Problem

# Rank-one changes after which an inverse is made anew.
REFRESH = 200


class FreshFactor:
    """A new factor for each set of free labels: for Q of low rank."""

    def __init__(self, problem: Problem, free: Mask) -> None:
        self.problem, self.now_free = problem, free.copy()
        self.source = problem.gram.source(problem.mu)
        self.factor = self.source.factor(self.now_free)

    def free(self, row: int) -> None:
        """Let a row join F."""
        self._change(row, becomes_free=True)

    def bind(self, row: int) -> None:
        """Let a row leave F."""
        self._change(row, becomes_free=False)

    def _change(self, row: int, *, becomes_free: bool) -> None:
        self.now_free = self.now_free.copy()
        self.now_free[row] = becomes_free
        self.factor = self.source.factor(self.now_free)

    def solve(self, targets: Vector, fixed: Vector, total: float) -> Solved:
        """v, Qv and b, as `Problem.solve_with`."""
        return self.problem.solve_with(self.factor, targets, fixed, total)


class FreeInverse:
    """P, the inverse of A_FF (bordered by ones with an intercept), held explicitly.

        row k joins:     u = P a_k,  τ = A_kk − a_kᵀu,   P ← P + (e_k − u)(e_k − u)ᵀ/τ
        row k leaves:    P ← P − P_k P_kᵀ / P_kk

    P has room for rows that join; rows and columns of P that stand for no row are zero, so
    what a right-hand side holds there does not matter. The first row is the border's.
    """

    def __init__(self, problem: Problem, free: Mask) -> None:
        assert problem.gram.matrix is not None
        self.gram, self.matrix, self.mu = problem.gram, problem.gram.matrix, problem.mu
        self.border = int(problem.fit_intercept)
        self.now_free = free.copy()
        self.image_of, self.image = np.zeros(len(free)), np.zeros(len(free))
        self._build()

    def _build(self) -> None:
        rows = np.flatnonzero(self.now_free)
        self.changes, self.n_rows = 0, len(rows)
        self.rows = np.zeros(len(rows) + REFRESH, dtype=np.intp)
        self.rows[: len(rows)] = rows
        self.place = {int(row): index for index, row in enumerate(rows)}
        size = self.border + len(self.rows)
        self.inverse = np.zeros((size, size), order="F")
        if not len(rows):
            return
        inner = inverse_in_place(cholesky_in_place(shifted_block(self.matrix, self.mu, rows)))
        if self.border:
            sums = inner.sum(axis=1)
            total = float(sums.sum())
            if not total > 0.0:
                raise BreakdownError("the constant cannot be told from the kernel")
            inner -= np.outer(sums, sums / total)
            self.inverse[0, 0] = -1.0 / total
            self.inverse[1 : 1 + len(rows), 0] = sums / total
        part = slice(self.border, self.border + len(rows))
        self.inverse[part, part] = inner

    def free(self, row: int) -> None:
        """Let a row join F."""
        self.now_free[row] = True
        if self._is_due():
            return
        if row not in self.place:
            self.place[row] = self.n_rows
            self.rows[self.n_rows] = row
            self.n_rows += 1
        where = self.border + self.place[row]
        column = self._on_places(self.matrix[row])
        if self.border:
            column[0] = 1.0
        change = -self._multiply(column)
        pivot = float(self.gram.diagonal[row] + self.mu[row] + column @ change)
        change[where] = 1.0
        self._add(change, pivot, 1.0)

    def bind(self, row: int) -> None:
        """Let a row leave F."""
        self.now_free[row] = False
        if self._is_due():
            return
        where = self.border + self.place[row]
        change = np.concatenate([self.inverse[where, :where], self.inverse[where:, where]])
        if self._add(change, float(change[where]), -1.0):
            self.inverse[where, :where] = 0.0
            self.inverse[where:, where] = 0.0

    def _is_due(self) -> bool:
        """Make P anew every so often: rounding adds up, and room runs out."""
        self.changes += 1
        if self.changes < REFRESH:
            return False
        self._build()
        return True

    def _on_places(self, values: Vector) -> Vector:
        """Values of the rows in the order of P, zero for the border."""
        out = np.empty(len(self.inverse))
        out[: self.border] = 0.0
        np.take(values, self.rows, out=out[self.border :], mode="clip")
        return out

    def _multiply(self, x: Vector) -> Vector:
        return blas.dsymv(1.0, self.inverse, x, lower=1)

    def _add(self, x: Vector, pivot: float, sign: float) -> bool:
        """P ← P ± x xᵀ/pivot; made anew if the pivot tells that P has lost its digits."""
        if not pivot > 0.0:
            self._build()
            return False
        blas.dsyr(sign / pivot, x, lower=1, a=self.inverse, overwrite_a=1)
        return True

    def solve(self, targets: Vector, fixed: Vector, total: float) -> Solved:
        """v, Qv and b, as `Problem.solve_with`."""
        rhs = self._on_places(targets - self._image(fixed))
        if self.border:
            rhs[0] = total - float(fixed.sum())
        solution = self._multiply(rhs)
        v = fixed.copy()
        v[self.rows[: self.n_rows]] += solution[self.border : self.border + self.n_rows]
        b = float(solution[0]) if self.border else 0.0
        return v, self.gram.matvec(v), b

    def _image(self, fixed: Vector) -> Vector | float:
        """Q `fixed`; from one event to the next it differs by one row."""
        if not np.any(fixed):
            return 0.0
        changed = np.flatnonzero(fixed != self.image_of)
        if len(changed) > 4 or self.changes == 0:
            self.image = self.gram.matvec(fixed)
        elif len(changed):
            difference = (fixed - self.image_of)[changed]
            self.image = self.image + multiply(self.matrix[changed].T, difference)
        self.image_of = fixed
        return self.image


FreeSolver = FreshFactor | FreeInverse


def free_solver(problem: Problem, free: Mask) -> FreeSolver:
    """The solver that suits Q."""
    by_features = problem.gram.matrix is None
    return FreshFactor(problem, free) if by_features else FreeInverse(problem, free)
