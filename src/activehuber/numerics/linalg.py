"""Thin, in-place wrappers of LAPACK and BLAS for symmetric positive definite systems.

SciPy's high-level functions check and copy; at the size of a Gram matrix that costs as
much as the arithmetic. All heavy products go through SciPy's BLAS too: NumPy ships a
second copy of the library with its own threads, and two pools that wait by spinning slow
each other down threefold.

Matrices are C-ordered outside; LAPACK sees their transposes, which are Fortran-ordered and,
for symmetric matrices, the same. Factors are lower ones of such Fortran-ordered views.
"""

import numpy as np
from scipy.linalg import blas, lapack

from activehuber._typing import Matrix, Vector

# Up to this many columns a product is done column by column, at the speed of memory.
FEW_COLUMNS = 4


class BreakdownError(ArithmeticError):
    """A matrix is not positive definite in double precision, or numbers overflowed."""


def cholesky_in_place(matrix: Matrix) -> Matrix:
    """Lower Cholesky factor, Fortran-ordered; its strict upper triangle is not cleaned.

    `matrix` is symmetric and is overwritten; of a C-ordered one only the upper triangle
    is read.
    """
    if matrix.size == 0:
        return matrix.T
    fortran = matrix if matrix.flags.f_contiguous else matrix.T
    factor, info = lapack.dpotrf(fortran, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        raise BreakdownError(f"pivot {info} of {len(matrix)} is not positive")
    return factor


def multiply(matrix: Matrix, x: Matrix) -> Matrix:
    """matrix @ x for a C- or Fortran-ordered matrix and x of shape (n,) or (n, k)."""
    transposed = not matrix.flags.f_contiguous
    fortran = matrix.T if transposed else matrix
    if matrix.size == 0 or x.size == 0:
        return matrix @ x
    if x.ndim == 1:
        return blas.dgemv(1.0, fortran, x, trans=int(transposed))
    if x.shape[1] <= FEW_COLUMNS:
        columns = [blas.dgemv(1.0, fortran, column, trans=int(transposed)) for column in x.T]
        return np.stack(columns, axis=1)
    if x.flags.f_contiguous:
        return blas.dgemm(1.0, fortran, x, trans_a=int(transposed))
    return blas.dgemm(1.0, fortran, x.T, trans_a=int(transposed), trans_b=1)


def wide_product(matrix: Matrix, x: np.ndarray) -> np.ndarray:
    """matrix @ x for x of extended precision, where the machine has it, in row blocks."""
    blocks = range(0, len(matrix), 256)
    return np.concatenate([matrix[i : i + 256].astype(np.longdouble) @ x for i in blocks])


def multiply_symmetric(matrix: Matrix, x: Matrix) -> Matrix:
    """matrix @ x for a C-ordered symmetric matrix: half the memory is read."""
    if x.ndim == 1:
        return blas.dsymv(1.0, matrix.T, x, lower=1)
    if x.shape[1] <= FEW_COLUMNS:
        columns = [blas.dsymv(1.0, matrix.T, column, lower=1) for column in x.T]
        return np.stack(columns, axis=1)
    return multiply(matrix, x)


def inner_products(left: Matrix, right: Matrix, out: Matrix) -> Matrix:
    """out ← left @ right.T for C-ordered matrices; returns `out`."""
    blas.dgemm(1.0, right.T, left.T, trans_a=1, c=out.T, overwrite_c=1)
    return out


def cross_product(matrix: Matrix) -> Matrix:
    """matrix @ matrix.T, full and symmetric, for a C-ordered matrix of shape (n, r)."""
    out = np.empty((len(matrix), len(matrix)))
    subtract_cross_product(out, matrix, keep=0.0, factor=1.0)
    mirror_lower(out.T)
    return out


def subtract_cross_product(
    target: Matrix, matrix: Matrix, *, keep: float = 1.0, factor: float = -1.0
) -> None:
    """target ← keep·target + factor·matrix matrixᵀ, in place, upper triangle only."""
    if matrix.size == 0:
        target *= keep
        return
    blas.dsyrk(factor, matrix.T, beta=keep, c=target.T, trans=1, lower=1, overwrite_c=1)


def solve_lower(
    factor: Matrix, rhs: Matrix, *, transposed: bool = False, overwrite: bool = False
) -> Matrix:
    """L⁻¹ rhs, or L⁻ᵀ rhs."""
    if rhs.size == 0:
        return rhs.copy()
    trans = int(transposed)
    if rhs.ndim == 1:
        return blas.dtrsv(factor, rhs, lower=1, trans=trans, overwrite_x=int(overwrite))
    return blas.dtrsm(1.0, factor, rhs, lower=1, trans_a=trans, overwrite_b=int(overwrite))


def divide_by_lower(rows: Matrix, factor: Matrix) -> Matrix:
    """L⁻¹ rows for a C-ordered matrix, in place: to BLAS it is rowsᵀ L⁻ᵀ."""
    blas.dtrsm(1.0, factor, rows.T, side=1, lower=1, trans_a=1, overwrite_b=1)
    return rows


def solve_cholesky(factor: Matrix, rhs: Matrix) -> Matrix:
    """(L Lᵀ)⁻¹ rhs."""
    return solve_lower(factor, solve_lower(factor, rhs), transposed=True)


def solve_general(matrix: Matrix, rhs: Matrix, *, overwrite: bool = False) -> Matrix:
    """matrix⁻¹ rhs by LU, Fortran-ordered; a Fortran-ordered matrix is overwritten."""
    lu, pivots, info = lapack.dgetrf(matrix, overwrite_a=1)
    if info != 0:
        raise BreakdownError(f"pivot {info} of {len(matrix)} is zero")
    solution, _ = lapack.dgetrs(lu, pivots, rhs, overwrite_b=int(overwrite))
    return solution


def inverse_diagonal_in_place(factor: Matrix, block: int = 64) -> Vector:
    """Diagonal of (L Lᵀ)⁻¹ = column norms of L⁻¹; overwrites the factor."""
    if factor.size == 0:
        return np.empty(0)
    inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    columns = inverse.T  # C-ordered: row j holds column j of the inverse, from entry j on
    squares = np.empty(len(columns))
    for start in range(0, len(columns), block):
        stop = start + block
        right, corner = columns[start:stop, stop:], np.triu(columns[start:stop, start:stop])
        squares[start:stop] = np.einsum("ij,ij->i", right, right)
        squares[start:stop] += np.einsum("ij,ij->i", corner, corner)
    return squares


def inverse_in_place(factor: Matrix) -> Matrix:
    """(L Lᵀ)⁻¹ as a full symmetric C-ordered matrix; overwrites the factor."""
    inverse = upper_inverse_in_place(factor)
    mirror_lower(inverse.T)
    return inverse


def upper_inverse_in_place(factor: Matrix) -> Matrix:
    """The same with only the upper triangle filled: what `cholesky_in_place` reads."""
    return lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T if factor.size else factor.T


def add_multiple(target: Matrix, factor: float, matrix: Matrix) -> None:
    """target ← target + factor·matrix, in place, for C-ordered matrices."""
    blas.daxpy(matrix.ravel(), target.ravel(), a=factor)


def subtract_outer(target: Matrix, left: Vector, right: Vector) -> None:
    """target ← target − left rightᵀ, in place, for a C-ordered matrix."""
    blas.dger(-1.0, right, left, a=target.T, overwrite_a=1)


def symmetrise(matrix: Matrix, block: int = 256) -> Matrix:
    """(matrix + matrixᵀ)/2 in place, tile by tile; returns the matrix."""
    n = len(matrix)
    for top in range(0, n, block):
        rows = slice(top, min(top + block, n))
        for left in range(top, n, block):
            columns = slice(left, min(left + block, n))
            mean = 0.5 * (matrix[rows, columns] + matrix[columns, rows].T)
            matrix[rows, columns] = mean
            matrix[columns, rows] = mean.T
    return matrix


def mirror_lower(matrix: Matrix, block: int = 128) -> None:
    """Copy the lower triangle onto the upper one in place, tile by tile."""
    n = len(matrix)
    for top in range(0, n, block):
        rows = slice(top, min(top + block, n))
        corner = matrix[rows, rows]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        for left in range(rows.stop, n, block):
            columns = slice(left, min(left + block, n))
            matrix[rows, columns] = matrix[columns, rows].T


def pivoted_cholesky(matrix: Matrix, tolerance: float) -> Matrix:
    """Factor Φ of shape (n, r) with matrix ≈ Φ Φᵀ, r the numerical rank.

    Stops when no diagonal entry of the remainder exceeds `tolerance`, so every entry of
    the remainder is below it too. `matrix` is overwritten.
    """
    fortran = matrix if matrix.flags.f_contiguous else matrix.T
    factor, pivots, rank, _ = lapack.dpstrf(fortran, tol=tolerance, lower=1, overwrite_a=1)
    features = np.empty((len(matrix), rank))
    features[pivots - 1] = np.tril(factor[:, :rank])
    return features
