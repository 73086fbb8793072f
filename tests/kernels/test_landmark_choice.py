"""Landmarks chosen by labels: against naive algebra, and for what they are worth."""

import numpy as np
import pytest

from activehuber import HLRegressor
from activehuber.kernels import landmark_choice
from activehuber.kernels.landmark_choice import effort, forward_choice


def naive(functions, labels, wanted):
    """Orthogonal least squares by refitting: always the column that lowers the sum most."""
    F = functions - functions.mean(axis=0)
    Y = labels - labels.mean(axis=0)
    taken = []
    for _ in range(wanted):
        best, least = None, np.inf
        for j in range(F.shape[1]):
            if j in taken:
                continue
            A = F[:, [*taken, j]]
            left = np.sum((Y - A @ np.linalg.lstsq(A, Y, rcond=None)[0]) ** 2)
            if left < least:
                best, least = j, left
        taken.append(best)
    return taken


@pytest.mark.parametrize("targets", [1, 2])
def test_forward_choice_is_orthogonal_least_squares(targets, monkeypatch, rng):
    monkeypatch.setattr(landmark_choice, "CLIP", np.inf)
    monkeypatch.setattr(landmark_choice, "FIRST", 3)  # so that labels are looked at anew
    monkeypatch.setattr(landmark_choice, "_unit", lambda labels: 1.0)
    functions = rng.normal(size=(60, 25)) @ rng.normal(size=(25, 25))
    labels = functions[:, :12] @ rng.normal(size=(12, targets))
    labels += 0.1 * rng.normal(size=(60, targets))
    wanted = naive(functions, labels, 9)
    assert forward_choice(functions.copy(), labels, 9).tolist() == wanted


def test_missing_labels_and_targets_say_nothing(rng):
    functions = rng.normal(size=(80, 20))
    labels = functions[:, :8] @ rng.uniform(1, 2, size=(8, 2))
    labels[:, 1] = np.nan
    alone = forward_choice(functions.copy(), labels[:, :1], 6)
    np.testing.assert_array_equal(forward_choice(functions.copy(), labels, 6), alone)
    labels[:40] = np.nan
    assert len(forward_choice(functions.copy(), labels, 6)) == 6


def test_functions_that_depend_on_others_are_not_taken(rng):
    half = rng.normal(size=(50, 5))
    functions = np.concatenate([half, 2.0 * half], axis=1)
    taken = forward_choice(functions, half @ np.ones((5, 1)), 10)
    assert len(taken) == 5 and len(set(taken % 5)) == 5


def test_labels_without_a_scale(rng):
    functions = rng.normal(size=(40, 12))
    assert len(set(forward_choice(functions.copy(), np.zeros((40, 1)), 7).tolist())) == 7
    rare = np.where(functions[:, :1] > 1.0, 1.0, -1.0)
    assert forward_choice(functions, rare, 7)[0] == 0


def test_wrong_labels_hardly_matter(rng):
    functions = rng.normal(size=(400, 60))
    labels = functions[:, :8] @ np.linspace(2.0, 1.0, 8)[:, None]
    labels += 0.3 * rng.normal(size=labels.shape)
    labels[::10] += 1e6 * rng.choice([-1.0, 1.0], size=(40, 1))
    assert set(forward_choice(functions, labels, 8).tolist()) == set(range(8))


def test_effort_is_a_small_part_of_the_fit():
    for n, p in ((1000, 100), (20_000, 300), (100_000, 300), (100_000, 1000), (10**6, 1000)):
        candidates, rows = effort(n, p)
        assert rows * candidates**2 <= max(0.1 * n * p**2, 2e9) * (1 + 1e-9)
        assert candidates <= n and rows <= n
        assert candidates == 0 or candidates >= 1.5 * p
    assert effort(100_000, 300)[0] > 800 and effort(100_000, 1000) == (0, 0)
    assert effort(120, 100) == (0, 0)


@pytest.mark.parametrize("shape", ["wide", "narrow"])
def test_chosen_landmarks_lower_the_error(shape, monkeypatch):
    def make(seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3000, 6))
        if shape == "narrow":
            X = 0.5 * X + 2.0 * np.random.default_rng(9).normal(size=(5, 6))[seed % 5]
            X[::2] += 1.0
        f = np.sin(X[:, 0]) + X[:, 1] * np.tanh(X[:, 2])
        y = f + 0.1 * rng.normal(size=3000)
        y[::10] += 5.0
        return X, y, f

    def error(seed):
        X, y, _ = make(seed)
        Z, _, f = make(seed + 100)
        model = HLRegressor(
            gamma=0.1, alpha=1e-7, approximation="nystrom", n_components=60, random_state=seed
        )
        return np.mean(np.abs(model.fit(X, y).predict(Z) - f))

    chosen = np.mean([error(seed) for seed in (0, 5, 10)])
    monkeypatch.setattr(landmark_choice, "effort", lambda n, p: (0, 0))
    even = np.mean([error(seed) for seed in (0, 5, 10)])
    assert chosen < 0.9 * even


def test_all_views_and_blocks_share_the_choice(rng):
    from activehuber import View

    X = rng.normal(size=(500, 4))
    y = np.sin(X[:, 0]) + X[:, 3]
    y[::3] = np.nan
    views = [View([0, 1]), View([2, 3], "laplacian")]
    params = {"views": views, "approximation": "nystrom", "n_components": 30, "random_state": 1}
    a, b = (HLRegressor(block_size=size, **params).fit(X, y) for size in (499, 37))
    for left, right in zip(a.components_, b.components_, strict=True):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-9)
