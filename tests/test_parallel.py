"""Side by side gives what one after the other gives, in order, and errors come through."""

import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from activehuber import HLRegressor, View, parallel
from activehuber.parallel import side_by_side
from activehuber.parallel import threads_of as real_threads_of

LEAST_ROWS = 80


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    """Threads for small matrices too, and two of them whatever BLAS was told."""
    monkeypatch.setattr(parallel, "LEAST_ROWS", LEAST_ROWS)

    def use(number):
        monkeypatch.setattr(parallel, "threads_of", lambda libraries: number)

    use(2)
    return use


def test_as_many_threads_as_blas_may_use():
    libraries = ThreadpoolController().select(user_api="blas")
    with libraries.limit(limits=1):
        assert real_threads_of(libraries) == 1
    assert real_threads_of(ThreadpoolController().select(user_api="none")) == 1


def test_order_and_threads(threads):
    seen = set()

    def square(x):
        seen.add(threading.get_ident())
        return x * x

    assert side_by_side(square, range(20), LEAST_ROWS) == [x * x for x in range(20)]
    assert threading.get_ident() not in seen
    seen.clear()
    assert side_by_side(square, range(3), LEAST_ROWS - 1) == [0, 1, 4]
    threads(1)
    assert side_by_side(square, range(3), LEAST_ROWS) == [0, 1, 4]
    assert seen == {threading.get_ident()}


def test_errors_come_through():
    def fail(x):
        raise ValueError(f"no {x}")

    with pytest.raises(ValueError, match="no 7"):
        side_by_side(fail, [7, 8], LEAST_ROWS)


@pytest.mark.parametrize("threshold", ["adaptive", "refine", 0.5])
def test_targets_do_not_disturb_each_other(rng, threads, threshold):
    """Each target has its own outliers and gaps; threads against one fit after the other."""
    n, q = LEAST_ROWS + 40, 5
    X = rng.normal(size=(n, 3))
    y = np.sin(X @ rng.normal(size=(3, q))) + 0.1 * rng.normal(size=(n, q))
    for j in range(q):
        y[rng.permutation(n)[:12], j] += 5.0
        y[rng.permutation(n)[: 3 * j], j] = np.nan
    model = HLRegressor(alpha=1e-3, threshold=threshold)
    together = model.fit(X, y).predict(X[:20])
    removed = model.removed_.copy()
    threads(1)
    for j in range(q):
        alone = model.fit(X, y[:, j])
        np.testing.assert_allclose(together[:, j], alone.predict(X[:20]), atol=1e-9)
        np.testing.assert_array_equal(removed[:, j], alone.removed_)


def test_views_do_not_disturb_each_other(rng, threads):
    n = LEAST_ROWS + 40
    X = rng.normal(size=(n, 6))
    y = np.sin(X[:, 0]) + X[:, 3] + 0.1 * rng.normal(size=n)
    y[n // 2 :] = np.nan
    views = [View([0, 1], "rbf"), View([2, 3], "laplacian"), View([4, 5], "rbf")]
    model = HLRegressor(views=views, alpha=1e-3, manifold=1e-4, agreement=1e-3)
    predictions = []
    for number in (1, 2):
        threads(number)
        predictions.append(model.fit(X, y).predict(X))
        assert model.kkt_residual_ <= 1e-8 and model.duality_gap_ <= 1e-9
    np.testing.assert_allclose(*predictions, atol=1e-9)


def test_a_bad_view_is_named(rng):
    X = rng.normal(size=(LEAST_ROWS, 4))
    views = [View([0, 1]), View([2, 3], lambda a, b: np.nan, name="odd")]
    with pytest.raises(ValueError, match="view 'odd'"):
        HLRegressor(views=views).fit(X, X[:, 0])
