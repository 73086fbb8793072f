"""Temporal features, from frames alone."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

from activehuber.crowd import temporal
from activehuber.crowd.temporal import Components, correlation, lags, pairs


def steady(rng, n, d, keeps=0.9, flicker=1.0, hidden=2):
    """Rows (n, d) of a few slow movements and noise, and these movements (n, hidden)."""
    moves = np.zeros((n, hidden))
    steps = rng.normal(size=(n, hidden)) * np.sqrt(1.0 - keeps**2)
    moves[0] = rng.normal(size=hidden)
    for t in range(1, n):
        moves[t] = keeps * moves[t - 1] + steps[t]
    return moves @ rng.normal(size=(hidden, d)) + flicker * rng.normal(size=(n, d)), moves


def test_pairs_are_frames_so_far_apart_by_number():
    numbers = np.array([1, 2, 3, 5, 6, 9, 11])
    for lag in (1, 2, 3, 4, 20):
        i, j = pairs(numbers, lag)
        wanted = [(a, b) for a in range(7) for b in range(7) if numbers[b] - numbers[a] == lag]
        assert list(zip(i.tolist(), j.tolist(), strict=True)) == wanted


def test_temporal_features_are_the_ridge_regression_of_the_frames_around(rng):
    """Of both the frame before and the one after, without intercept, from all pairs."""
    n, d, lag = 300, 12, 2
    X, _ = steady(rng, n, d)
    numbers = np.delete(np.arange(1, n + 21), [*range(40, 50), *range(200, 210)])
    found = Components.of(X, numbers, most=d).predicting(lag).of_features
    centred = X - X.mean(axis=0)
    C0 = np.mean([np.outer(x, x) for x in centred], axis=0)
    place = {number: k for k, number in enumerate(numbers)}
    two = [(place[m], place[m + lag]) for m in numbers if m + lag in place]
    Ck = np.mean([np.outer(centred[a], centred[b]) for a, b in two], axis=0)
    expected = np.linalg.solve(C0 + temporal.RIDGE * np.eye(d), (Ck + Ck.T) / 2.0)
    # The map ends in components; inner products of rows are those of the whole.
    rows, wanted = centred @ found, centred @ expected
    np.testing.assert_allclose(rows @ rows.T, wanted @ wanted.T, atol=1e-8)


def test_temporal_features_are_the_movements_and_not_the_noise(rng):
    X, moves = steady(rng, 1500, 40, flicker=3.0)
    X = X / X.std(axis=0)
    rows = X @ Components.of(X, np.arange(1500)).predicting(1).of_features

    def explained(Z):
        labelled = np.arange(0, 1500, 50)
        others = np.setdiff1d(np.arange(1500), labelled)
        grid = np.logspace(-4, 2, 13) * Z.var(axis=0).sum()
        model = RidgeCV(alphas=grid).fit(Z[labelled], moves[labelled])
        return model.score(Z[others], moves[others])

    assert explained(rows) > explained(X) + 0.1
    # Features of pure noise are hardly left.
    noise = rng.normal(size=(1500, 40))
    left = noise @ Components.of(noise, np.arange(1500)).predicting(1).of_features
    assert left.var(axis=0).sum() < 0.05 * noise.var(axis=0).sum()


def test_few_components_keep_most_of_the_temporal_features(rng):
    X, _ = steady(rng, 400, 30, flicker=0.3)
    whole = X @ Components.of(X, np.arange(400), most=30).predicting(1).of_features
    few = X @ Components.of(X, np.arange(400), most=4).predicting(1).of_features
    assert few.shape == (400, 4)
    assert few.var(axis=0).sum() > 0.98 * whole.var(axis=0).sum()


def test_lags_are_where_frames_have_so_much_correlation(rng):
    X, _ = steady(rng, 5000, 6, keeps=0.9, flicker=0.0)
    assert correlation(X, np.arange(5000), 3) == pytest.approx(0.9**3, abs=0.05)
    found = lags(X, np.arange(5000))
    # 0.9 to the powers 3.4, 6.6 and 11.4 is 0.7, 0.5 and 0.3.
    np.testing.assert_allclose(found, [3.4, 6.6, 11.4], atol=2.0)
    # A camera twice as fast sees the same twice as many frames apart.
    twice = lags(np.repeat(X, 2, axis=0), np.arange(10000))
    np.testing.assert_allclose(twice, 2 * np.array(found), atol=1.0)


def test_a_slow_camera_has_one_lag_and_one_of_strangers_none(rng):
    X, _ = steady(rng, 3000, 6, keeps=0.2, flicker=0.0)
    assert lags(X, np.arange(3000)) == [1]
    assert lags(X, np.arange(3000) * 2) == []
    # Frames that take turns have nothing in common with the next one.
    turns = np.where(np.arange(3000) % 2 == 0, 1.0, -1.0)[:, None] * np.ones(6)
    assert lags(turns, np.arange(3000)) == []


def test_too_few_pairs_and_frames_that_are_all_alike_teach_nothing(rng):
    X, _ = steady(rng, temporal.FEWEST_PAIRS, 6)
    assert lags(X, np.arange(len(X))) == []
    assert lags(np.ones((100, 6)), np.arange(100)) == []


def test_lags_end_somewhere(rng):
    X = np.outer(np.linspace(0.0, 1.0, 2000), rng.normal(size=6))
    assert max(lags(X, np.arange(2000))) <= temporal.LONGEST_LAG


def test_further_frames_teach_too(rng):
    """Against the formula from both sequences, between which there are no pairs."""
    X, _ = steady(rng, 200, 10)
    Y, _ = steady(rng, 150, 10)
    Y = Y - Y.mean(axis=0) + 0.5
    before = Components.of(X, np.arange(200), most=10)
    found = before.predicting(3).learning(Y, np.arange(50, 200))
    X = X - X.mean(axis=0)
    C0 = (X.T @ X + Y.T @ Y) / 350
    Ck = (X[:-3].T @ X[3:] + Y[:-3].T @ Y[3:]) / (197 + 147)
    expected = np.linalg.solve(C0 + temporal.RIDGE * np.eye(10), (Ck + Ck.T) / 2.0)
    rows, wanted = Y @ found.of_features, Y @ expected
    np.testing.assert_allclose(rows @ rows.T, wanted @ wanted.T, atol=1e-8)
    assert (found.n_frames, found.n_pairs) == (350, 344)


def test_the_same_frames_and_too_few_teach_nothing_new(rng):
    X, _ = steady(rng, 200, 10)
    X = X - X.mean(axis=0)
    before = Components.of(X, np.arange(200)).predicting(1)
    again = before.learning(X, np.arange(200))
    np.testing.assert_allclose(again.of_features, before.of_features, atol=1e-10)
    assert before.learning(X[:20], np.arange(20)) is before
    assert before.learning(X, np.arange(200) * 2) is before
