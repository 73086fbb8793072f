"""Every way of solving with A_FF gives what dense algebra gives."""

import numpy as np
import pytest

from activehuber.data.rows import ArrayRows
from activehuber.kernels.feature_maps import Basis, Given, landmarks
from activehuber.kernels.kernel import Kernel
from activehuber.numerics.linalg import (
    BreakdownError,
    cholesky_in_place,
    cross_product,
    multiply,
    pivoted_cholesky,
)
from activehuber.operators.dense import (
    DenseGram,
    HeadTail,
    Inverse,
    Shifted,
)
from activehuber.operators.features import FeatureGram, FeatureMap, held_gram
from tests import oracles

SOURCES = ("direct", "head-tail", "inverse", "shifted", "low-rank", "streamed", "held")


def make(name, n, rng, border=False):
    X = rng.normal(size=(n, 3))
    mu = rng.uniform(0.05, 0.2, n)
    if name in ("streamed", "held"):
        Q, gram = {"streamed": streamed, "held": held}[name](X, rng)
        return Q, mu, gram.source(mu)
    if name == "low-rank":
        gram = held_gram(X)
        return X @ X.T, mu, gram.source(mu)
    Q = oracles.gram("rbf", X, gamma=0.5)
    gram = DenseGram(Q.copy())
    if name == "shifted":
        return Q, mu, Shifted(HeadTail(gram, 1.1 * mu), mu)
    if name == "inverse":
        return Q, mu, Inverse(gram, mu, border=border)
    return Q, mu, gram.direct_source(mu) if name == "direct" else gram.source(mu)


def streamed(X, rng):
    """Features in blocks, mixed and weighted; rows without labels in between."""
    wide, mixing = rng.normal(size=(2 * len(X), 3)), rng.normal(size=(3, 3))
    wide[1::2] = X
    features = FeatureMap(Basis((None,), (Given(3),)), np.array([0.7]), mixing)
    psi = 0.7 * X @ mixing
    return psi @ psi.T, FeatureGram(ArrayRows(wide, 37), np.arange(1, 2 * len(X), 2), features)


def held(X, rng):
    """Landmarks, whose features are few enough to be kept."""
    Z = 2.0 * rng.normal(size=(9, 3))
    across, among = oracles.gram("rbf", X, Z, gamma=0.5), oracles.gram("rbf", Z, gamma=0.5)
    basis = Basis((None,), (landmarks(Kernel("rbf", gamma=0.5), Z),))
    gram = FeatureGram(ArrayRows(X, 37), None, FeatureMap(basis, np.ones(1)))
    return across @ np.linalg.solve(among, across.T), gram


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("n", [30, 700])
def test_solutions_and_diagonals(name, n, rng):
    Q, mu, source = make(name, n, rng)
    likely = rng.uniform(size=n) < 0.3
    for share in (0.0, 0.05, 0.3, 0.8):
        # rows outside `likely` are dropped too, so that heads have to be left or remade
        free = rng.uniform(size=n) >= share
        targets, fixed = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
        fixed[free] = 0
        F, N = np.flatnonzero(free), np.flatnonzero(~free)
        A = Q[np.ix_(F, F)] + np.diag(mu[F])
        v = fixed.copy()
        v[F] = np.linalg.solve(A, (targets - Q @ fixed)[F])
        factor = source.factor(free, likely)
        for column in range(2):
            got, image, b = factor.solve(targets[:, column], fixed[:, column], None)
            np.testing.assert_allclose(got, v[:, column], atol=1e-8)
            np.testing.assert_allclose(image, Q @ v[:, column], atol=1e-8)
            assert b == 0.0
        left = Q[np.ix_(N, N)] - Q[np.ix_(N, F)] @ np.linalg.solve(A, Q[np.ix_(F, N)])
        inverse, schur = factor.diagonals(border=False)
        np.testing.assert_allclose(inverse[F], np.diag(np.linalg.inv(A)), atol=1e-8)
        np.testing.assert_allclose(schur[N], np.diag(left), atol=1e-8)
        assert np.all(inverse[N] == 0) and np.all(schur[F] == 0)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("n", [30, 300])
def test_what_is_left_without_groups(name, border, n, rng):
    Q, mu, source = make(name, n, rng, border=border)
    for share in (0.0, 0.2, 0.7):
        free = rng.uniform(size=n) >= share
        v, group = rng.normal(size=n), rng.integers(0, 6, n)
        parts = [np.flatnonzero(group == k) for k in range(4)]
        pulls, sizes = source.factor(free).without_groups(parts, v, border=border)
        for part in parts:
            E = np.setdiff1d(np.flatnonzero(free), part)
            A, reach = Q[np.ix_(E, E)] + np.diag(mu[E]), Q[np.ix_(E, part)]
            if border:
                ones = np.ones((len(E), 1))
                A = np.block([[A, ones], [ones.T, np.zeros((1, 1))]])
                reach = np.vstack([reach, np.ones((1, len(part)))])
            M = Q[np.ix_(part, part)] + np.diag(mu[part]) - reach.T @ np.linalg.solve(A, reach)
            np.testing.assert_allclose(pulls[part], M @ v[part], atol=1e-7)
            np.testing.assert_allclose(sizes[part], np.diag(M), atol=1e-7)
        rest = group > 3
        assert np.all(pulls[rest] == 0.0) and np.all(sizes[rest] == 0.0)


def test_groups_are_lost_where_rows_that_are_not_free_leave_no_inverse(rng):
    Q = np.eye(6)
    Q[4:, 4:] = 1.0
    Q[4, 5] = Q[5, 4] = 2.0  # indefinite, among bound rows alone
    mu, free = np.full(6, 1e-3), np.arange(6) < 4
    factor = DenseGram(Q).direct_source(mu).factor(free)
    pulls, sizes = factor.without_groups([np.array([0, 1]), np.array([2])], mu, border=False)
    assert np.all(np.isnan(pulls[:3])) and np.all(np.isnan(sizes[:3]))
    assert np.all(pulls[3:] == 0.0) and np.all(sizes[3:] == 0.0)


def test_pivoted_cholesky_finds_the_rank(rng):
    Z = rng.normal(size=(50, 6))
    K = (Z @ Z.T + 1) ** 2
    features = pivoted_cholesky(K.copy(), 1e-15 * K.max())
    assert features.shape[1] == 28  # all monomials of degree <= 2 in 6 variables
    np.testing.assert_allclose(features @ features.T, K, rtol=1e-11, atol=1e-11)


def test_cholesky_of_an_indefinite_matrix_raises():
    with pytest.raises(BreakdownError):
        cholesky_in_place(np.array([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize("columns", [None, 1, 3, 9])
@pytest.mark.parametrize("order", ["C", "F"])
def test_multiply(columns, order, rng):
    A = np.array(rng.normal(size=(6, 4)), order=order)
    x = rng.normal(size=4) if columns is None else rng.normal(size=(4, columns))
    np.testing.assert_allclose(multiply(A, x), A @ x)
    np.testing.assert_allclose(multiply(A, np.asfortranarray(x)), A @ x)
    C = np.ascontiguousarray(A)
    np.testing.assert_allclose(cross_product(C), C @ C.T)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("n", [30, 300, 700])
def test_the_border_of_ones(name, n, rng):
    Q, mu, source = make(name, n, rng, border=True)
    likely = rng.uniform(size=n) < 0.3
    for share in (0.0, 0.1, 0.4):
        free = rng.uniform(size=n) >= share
        targets, fixed, total = rng.normal(size=n), rng.normal(size=n), 0.7
        fixed[free] = 0
        F, N = np.flatnonzero(free), np.flatnonzero(~free)
        ones = np.ones((len(F), 1))
        A = np.block([[Q[np.ix_(F, F)] + np.diag(mu[F]), ones], [ones.T, np.zeros((1, 1))]])
        right = np.append((targets - Q @ fixed)[F], total - fixed.sum())
        solution = np.linalg.solve(A, right)
        v = fixed.copy()
        v[F] = solution[:-1]
        factor = source.factor(free, likely)
        got, image, b = factor.solve(targets, fixed, total)
        np.testing.assert_allclose(got, v, atol=1e-8)
        np.testing.assert_allclose(image, Q @ v, atol=1e-8)
        assert b == pytest.approx(solution[-1], abs=1e-8)
        reach = np.vstack([Q[np.ix_(F, N)], np.ones((1, len(N)))])
        left = Q[np.ix_(N, N)] - reach.T @ np.linalg.solve(A, reach)
        inverse, schur = factor.diagonals(border=True)
        np.testing.assert_allclose(inverse[F], np.diag(np.linalg.inv(A))[:-1], atol=1e-8)
        np.testing.assert_allclose(schur[N], np.diag(left), atol=1e-8)
