"""Starts for few labels, and what a search for parameters does with few of them."""

import numpy as np
import pytest

from activehuber import HLRegressorCV, audit
from activehuber.labels.subsets import concentrated


def masked(rng, n=30, wrong=8):
    """A line with noise, and wrong labels at one far place that turn least squares round."""
    x = rng.normal(size=n)
    y = 2.0 * x + 0.1 * rng.normal(size=n)
    x[:wrong] = 6.0 + 0.1 * rng.normal(size=wrong)
    y[:wrong] = -12.0 + 0.1 * rng.normal(size=wrong)
    return x[:, None], y


def halves(X, y, weights=None):
    ones = np.ones(len(y)) if weights is None else weights
    return concentrated(X @ X.T, y, ones, 1e-3, border=True)


def test_small_subsets_escape_labels_that_mask_each_other(rng):
    X, y = masked(rng)
    found = halves(X, y)
    assert len(found) == 2
    assert not any(mask[:8].any() for mask in found)
    assert min(mask.sum() for mask in found) >= 15


def test_subsets_follow_values_not_places_and_count_weights_as_copies(rng):
    X, y = masked(rng)
    first, order = halves(X, y), rng.permutation(30)
    for mine, moved in zip(first, halves(X[order], y[order]), strict=True):
        assert np.array_equal(mine[order], moved)
    for mine, turned in zip(first, halves(X, -1000.0 * y), strict=True):
        assert np.array_equal(mine, turned)
    weights, rows = np.ones(30), np.append(np.arange(30), 20)
    weights[20] = 2.0
    heavy, copied = halves(X, y, weights), halves(X[rows], y[rows])
    for mine, other in zip(heavy, copied, strict=True):
        assert np.array_equal(mine[rows], other)


def test_a_fit_with_much_freedom_has_no_small_subsets(rng):
    y = rng.normal(size=12)
    assert concentrated(np.eye(12), y, np.ones(12), 1e-3, border=True) == []


def test_a_block_of_wrong_labels_next_to_each_other_is_found(rng):
    x = np.linspace(-1.7, 1.7, 24)
    y = x + 0.1 * rng.normal(size=24)
    y[14:20] += rng.uniform(8.0, 14.0, size=6)
    model = HLRegressorCV().fit(x[:, None], y)
    assert np.flatnonzero(model.removed_).tolist() == list(range(14, 20))


@pytest.mark.parametrize("count", [40, 101])
def test_a_linear_kernel_is_among_those_for_few_labels_only(rng, count):
    X = rng.normal(size=(count, 2))
    y = X @ [1.0, -2.0] + 0.3 * rng.normal(size=count)
    model = HLRegressorCV().fit(X, y)
    assert (model.best_params_.get("kernel") == "linear") == (count == 40)
    assert not model.removed_.any()


def test_features_in_other_units_choose_alike(rng):
    X = rng.normal(size=(40, 2))
    y = X @ [1.0, -2.0] + 0.3 * rng.normal(size=40)
    first, small = HLRegressorCV().fit(X, y), HLRegressorCV().fit(1e-4 * X, y)
    assert np.allclose(first.predict(X), small.predict(1e-4 * X), atol=1e-6)


def test_a_sum_over_features_is_found_and_predicts(rng):
    X = rng.uniform(-3, 3, size=(90, 3))
    y = np.sin(2 * X[:, 0]) + np.cos(2 * X[:, 1]) + 0.05 * rng.normal(size=90)
    model = HLRegressorCV().fit(X, y)
    assert [view.columns for view in model.best_params_["views"]] == [[0], [1], [2]]
    assert np.mean(np.abs(model.predict(X) - y)) < 0.2


def test_an_audit_of_few_labels_takes_an_approximation(rng):
    X = rng.normal(size=(40, 2))
    y = X @ [1.0, -2.0] + 0.3 * rng.normal(size=40)
    assert len(audit(X, y, approximation="fourier").labels) == 40
