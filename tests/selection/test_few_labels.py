"""What a search for parameters does with few labels."""

import numpy as np
import pytest

from activehuber import HLRegressorCV, audit


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


@pytest.mark.parametrize("seed", [22, 32, 56])
def test_the_kernel_of_few_labels_may_be_unlikely_by_the_evidence_of_those_kept(seed):
    """The best end is that of all labels: by those kept alone another may be far likelier."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4))
    y = np.exp(X[:, 0]) + X[:, 1] + 0.02 * rng.normal(size=60)
    wrong = rng.random(60) < 0.1
    y[wrong] *= rng.choice([10.0, 0.1], size=int(wrong.sum()))
    assert np.isfinite(HLRegressorCV().fit(X, y).best_score_)
