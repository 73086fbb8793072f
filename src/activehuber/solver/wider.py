"""Q of the labelled rows with every width of the kernels times a factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activehuber._typing import Matrix
from activehuber.data.rows import Rows
from activehuber.kernels.kernel import STATIONARY_KERNELS, Kernel
from activehuber.operators.dense import DenseGram, submatrix
from activehuber.operators.protocol import Gram
from activehuber.problem.approximation import BlockReduction
from activehuber.problem.reduction import Reduction
from activehuber.problem.smoothing import check_gram_matrix


@dataclass(frozen=True)
class WiderKernels:
    """The kernels of a fit without graph and agreement, at other widths.

    Attributes
    ----------
    kernels : sequence of Kernel
        One a view.
    columns : sequence of ndarray of int or None
        The columns of each view; None: all.
    X : ndarray of shape (n, d), or Rows
    labelled : ndarray of shape (l,), int
        The rows that are meant.
    reduction : Reduction or BlockReduction
        Of the fit, at its own widths.
    known : dict of float to Gram, or None
        Q of all labels by factor, shared by the targets; None if there is one target.
    """

    kernels: Sequence[Kernel]
    columns: Sequence[np.ndarray | None]
    X: Matrix | Rows
    labelled: np.ndarray
    reduction: Reduction | BlockReduction
    known: dict[float, Gram] | None = None

    def have_widths(self, factors: Sequence[float]) -> bool:
        """Whether some kernel has a width, or a given matrix has the roots asked for."""
        if self.kernels[0].name == "precomputed":
            matrix = self.reduction.gram.matrix
            return matrix is not None and _has_roots(matrix, min(factors))
        return any(kernel.name in STATIONARY_KERNELS for kernel in self.kernels)

    def gram(self, factor: float, some: np.ndarray | None = None) -> Gram:
        """Q with every γ times a factor: of some labels, or of all as the fit has it."""
        if some is not None or self.known is None:
            return self._new_gram(factor, some)
        if factor not in self.known:
            self.known[factor] = self._new_gram(factor, None).shared()
        return self.known[factor]

    def _new_gram(self, factor: float, some: np.ndarray | None) -> Gram:
        weights, own = self.reduction.weights, self.reduction.gram.matrix
        wider = None if some is not None else self.reduction.at_width(self.kernels, factor)
        if wider is not None:
            return wider.gram
        rooted = self.kernels[0].is_exponential or self.kernels[0].name == "precomputed"
        if len(weights) == 1 and weights[0] == 1.0 and rooted and own is not None:
            matrix = own if some is None else submatrix(own, some, some)
            return DenseGram(_power(matrix, factor))
        labelled = self.labelled if some is None else self.labelled[some]
        X = self.X.take(labelled) if isinstance(self.X, Rows) else self.X[labelled]
        total: Matrix | None = None
        for share, kernel, columns in zip(weights**2, self.kernels, self.columns, strict=True):
            own_columns = X if columns is None else np.ascontiguousarray(X[:, columns])
            matrix = kernel.at_width(factor).gram(own_columns)
            matrix *= share
            total = matrix if total is None else np.add(total, matrix, out=total)
        assert total is not None
        return DenseGram(total)


def _has_roots(matrix: Matrix, factor: float) -> bool:
    """Whether a Gram matrix may be one of exp(−γ·distance): its roots are those of smaller γ.

    If the fourth root is positive semi-definite, so is the square root, by Schur's theorem.
    """
    if np.min(matrix) < 0.0 or not np.allclose(np.diagonal(matrix), 1.0, atol=1e-12):
        return False
    try:
        check_gram_matrix(_power(matrix, factor))
    except ValueError:
        return False
    return True


def _power(matrix: Matrix, factor: float) -> Matrix:
    """Every entry to the power of 1, ½, ¼, …: roots are much faster than powers."""
    if factor == 1.0:
        return matrix
    out = np.sqrt(matrix)
    while factor < 0.5:
        factor *= 2.0
        np.sqrt(out, out=out)
    return out
