"""The model of wrong labels: its parts by hand, and what must hold for its verdicts."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from activehuber import HLRegressor
from activehuber.labels import adaptive, mixture
from activehuber.labels.rule import LabelRule
from activehuber.solver.leave_one_out import LeaveOneOut

RULE = LabelRule()


def loo_of(errors, variance=0.0, ridge=1.0, missing=0.0):
    shape = np.shape(errors)
    return LeaveOneOut(
        np.array(errors, dtype=float),
        *(np.broadcast_to(x, shape) + 0.0 for x in (variance, ridge, missing)),
    )


def prior_of(y, weights=None, trusted=None, spread=1.0):
    y = np.array(y, dtype=float)
    weights = np.ones(len(y)) if weights is None else np.array(weights, dtype=float)
    trusted = np.zeros(len(y), dtype=bool) if trusted is None else trusted
    return mixture.prior_of(y, weights, trusted, spread)


def noise_with_wrong_ones(n=400, share=0.2, seed=0):
    rng = np.random.default_rng(seed)
    errors = 0.1 * rng.normal(size=n)
    level = rng.normal(size=n)
    wrong = rng.random(n) < share
    errors[wrong] += rng.choice([-2.0, 2.0], wrong.sum())
    return level + errors, errors, wrong


def test_probabilities_are_those_of_bayes():
    """Built again from what the model says of its parameters, by other code."""
    y, errors, _ = noise_with_wrong_ones()
    model = mixture._MixtureModel(loo_of(errors, 0.5, 2.0), prior_of(y), RULE, 2.0)
    judged, now = model.judge(of_start=False), model.now
    scales = judged.scale.at(np.full(len(y), 0.25), 1.0, y - errors)
    right = (1 - now.share) * stats.t.pdf(errors, 6, scale=scales)
    wrong = now.share * stats.cauchy.pdf(y, loc=now.centre, scale=now.width)
    np.testing.assert_allclose(judged.right, right / (right + wrong), rtol=1e-10)
    prior = np.log(now.share) + (10 + 0.03 * len(y)) * np.log1p(-now.share)
    prior -= 0.5 * (now.exponent / 0.5) ** 2
    assert judged.level == pytest.approx(np.log(right + wrong).sum() + prior)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.4])
def test_the_scale_is_that_of_right_labels(share):
    y, errors, wrong = noise_with_wrong_ones(2000, share)
    judged = mixture.judge(loo_of(errors), prior_of(y), RULE, 1.0)
    assert judged.scale.sigma == pytest.approx(0.1, rel=0.15 if share < 0.4 else 0.25)
    assert np.mean((judged.right < 0.5) == wrong) > 0.995


def test_probabilities_are_calibrated():
    """Of labels at about even odds about half are wrong."""
    rng = np.random.default_rng(3)
    seen, told = [], []
    for _ in range(40):
        level, wrong = rng.normal(size=500), rng.random(500) < 0.2
        errors = 0.4 * rng.standard_t(6, size=500)
        errors[wrong] = 2.0 * rng.standard_t(3, wrong.sum()) - level[wrong]
        judged = mixture.judge(loo_of(errors), prior_of(level + errors), RULE, 1.0)
        seen.append(wrong)
        told.append(1.0 - judged.right)
    seen, told = np.concatenate(seen), np.concatenate(told)
    middle = (told > 0.4) & (told < 0.6)
    assert 0.35 < np.mean(seen[middle]) < 0.65
    assert np.mean(seen[told > 0.9]) > 0.9


def test_weights_are_repetitions():
    y, errors, _ = noise_with_wrong_ones(60)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    places = np.repeat(np.arange(60), weights)
    ridge = np.full(60, 2.0)
    one = mixture.judge(loo_of(errors, 0.3, ridge), prior_of(y, weights), RULE, 2.0)
    other = mixture.judge(loo_of(errors[places], 0.3, 2.0), prior_of(y[places]), RULE, 2.0)
    np.testing.assert_allclose(one.right[places], other.right, rtol=1e-8)
    assert one.level == pytest.approx(other.level)


def test_trusted_labels_are_right_and_do_not_count():
    y, errors, wrong = noise_with_wrong_ones(300)
    trusted = wrong & (np.arange(300) % 2 == 0)
    judged = mixture.judge(loo_of(errors), prior_of(y, trusted=trusted), RULE, 1.0)
    assert np.all(judged.right[trusted] == 1.0)
    assert np.all(judged.right[wrong & ~trusted] < 0.5)


def test_the_grid_of_labels():
    assert prior_of([1, 2, 2, 3, 3, 4, 4, 5, 5]).step == 1.0
    assert prior_of([0.1, 0.2, 0.3, 0.4]).step == 0.0
    assert prior_of([0.1, 0.2, 0.2, 0.4]).step == 0.0  # one value says nothing of a distance
    rng = np.random.default_rng(0)
    errors = np.r_[np.zeros(80), rng.normal(size=20)]
    y = np.rint(rng.normal(size=100) * 3)
    judged = mixture.judge(loo_of(errors), prior_of(y), RULE, 1.0)
    # labels on a grid of one are not known to a thousandth
    assert np.all(judged.scale.at(np.zeros(100), 1.0, y) >= np.sqrt(1 / 12))


def test_noise_that_grows_with_the_level_is_seen():
    rng = np.random.default_rng(0)
    level = rng.uniform(0.5, 8.0, 800)
    errors = 0.05 * level**1.5 * rng.normal(size=800)
    judged = mixture.judge(loo_of(errors), prior_of(level + errors, spread=2.0), RULE, 1.0)
    low, high = judged.scale.at(np.zeros(2), 1.0, np.array([1.0, 7.5]))
    assert high > 4.0 * low
    assert np.mean(judged.right < 0.5) < 0.01


# --- verdicts of whole fits that 0.1.0 got wrong ----------------------------------------


def test_counts_that_are_mostly_zero_keep_the_others():
    """Visits to a doctor: all counts above zero were flagged, "expected 0.000 ± 0"."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(600, 3)).astype(float)
    y = rng.negative_binomial(0.3, 0.5, size=600).astype(float)
    assert np.mean(y == 0) > 0.7
    planted = rng.choice(600, 12, replace=False)
    y[planted] = y.max() * rng.integers(10, 20, 12)
    model = HLRegressor(threshold="adaptive", alpha=1e-3).fit(X, y)
    right = np.delete(np.arange(600), planted)
    assert np.all(model.removed_[planted])
    assert np.mean(model.removed_[right]) < 0.03
    assert model.scale_ > 0.3


def test_an_absurd_label_of_a_row_that_stands_alone_is_flagged():
    """Height and weight exchanged: nobody is near, and the weight is absurd all the same."""
    rng = np.random.default_rng(2)
    height = rng.normal(170, 9, 200)
    weight = 65 + 0.9 * (height - 170) + rng.normal(0, 5, 200)
    height[11], weight[11] = 57.0, 166.0
    X = ((height - height.mean()) / height.std())[:, None]
    for gamma in (0.1, 1.0):
        model = HLRegressor(threshold="adaptive", gamma=gamma, alpha=1e-5).fit(X, weight)
        assert model.removed_[11]
        assert np.mean(model.removed_) < 0.03


@pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_errors_of_forty_percent_to_one_side(kernel):
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 2))
        y = np.sin(1.5 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=300)
        wrong = rng.permutation(300) < 120
        y[wrong] += rng.uniform(1.0, 4.0, 120)
        model = HLRegressor(threshold="adaptive", kernel=kernel, alpha=1e-4).fit(X, y)
        scores.append(f1_score(wrong, model.removed_))
    assert np.mean(scores) > 0.8


@pytest.mark.parametrize("noise", ["normal", "t4", "skewed", "step"])
def test_right_labels_stay(noise):
    flagged = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(300, 2))
        y = np.sign(X[:, 0]) if noise == "step" else np.sin(1.5 * X[:, 0]) + X[:, 1]
        drawn = {"t4": rng.standard_t(4, 300), "skewed": rng.gamma(4.0, 0.5, 300) - 2.0}
        y = y + 0.2 * drawn.get(noise, rng.normal(size=300))
        flagged.append(HLRegressor(threshold="adaptive", alpha=1e-3).fit(X, y).removed_.mean())
    assert np.mean(flagged) <= (0.03 if noise == "step" else 0.005)


def test_rows_that_say_nothing_make_no_label_wrong_but_absurd_ones():
    """Hours of work: half of the labels were flagged, since the other half is alike."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(400, 3))
        alike = rng.random(400) < 0.6
        y = 7.6 + np.where(alike, 0.05, 0.4) * rng.normal(size=400)
        y[:8] = 100.0
        removed = HLRegressor(alpha=1e-3).fit(X, y).removed_
        assert np.all(removed[:8]) and np.mean(removed[8:]) < 0.03


# --- contracts --------------------------------------------------------------------------


def shuffled(n, share=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    y = 3.0 * np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    wrong = rng.random(n) < share
    y[wrong] = rng.permutation(y)[wrong]
    return X, y, wrong


def by_mixture(**params):
    return HLRegressor(threshold="adaptive", alpha=1e-3, **params)


@pytest.mark.parametrize(("a", "shift"), [(1e-8, 0.0), (-7.0, -37.0), (1e8, 0.0)])
def test_units_decide_nothing(a, shift):
    X, y, _ = shuffled(150)
    one, other = by_mixture().fit(X, y), by_mixture().fit(X, a * y + shift)
    np.testing.assert_array_equal(one.removed_, other.removed_)
    np.testing.assert_allclose(one.label_quality_, other.label_quality_, atol=1e-6)
    assert other.scale_ == pytest.approx(abs(a) * one.scale_)


@pytest.mark.parametrize("n", [120, 300])
def test_a_fit_with_weights_is_that_of_repetitions(n):
    """300 labels of weight 1 to 3 are more than are searched at once."""
    X, y, _ = shuffled(n)
    times = np.random.default_rng(0).integers(1, 4, n)
    again = np.repeat(np.arange(n), times)
    weighted = by_mixture().fit(X, y, times.astype(float))
    repeated = by_mixture().fit(X[again], y[again])
    np.testing.assert_array_equal(weighted.removed_[again], repeated.removed_)
    np.testing.assert_allclose(
        weighted.label_quality_[again], repeated.label_quality_, atol=1e-6
    )


def test_the_search_of_some_finds_what_that_of_all_does(monkeypatch):
    X, y, wrong = shuffled(900)
    some = by_mixture().fit(X, y).removed_
    monkeypatch.setattr(adaptive, "SEARCH_LABELS", 1000)
    assert np.mean(some != by_mixture().fit(X, y).removed_) < 0.005
    assert f1_score(wrong, some) > 0.85


def test_graphs_targets_and_landmarks_are_judged_too():
    X, y, wrong = shuffled(400)
    removed = by_mixture().fit(X, np.stack([y, -y], axis=1)).removed_
    np.testing.assert_array_equal(removed[:, 0], removed[:, 1])
    for params in ({"manifold": 1e-4}, {"approximation": "nystrom", "n_components": 200}):
        model = by_mixture(random_state=0, **params).fit(X, y)
        assert f1_score(wrong, model.removed_) > 0.8
        assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


def test_trusted_labels_and_labels_that_are_all_alike_stay():
    X, y, wrong = shuffled(150)
    model = by_mixture().fit(X, y, trusted=wrong)
    assert not model.removed_[wrong].any() and np.all(model.label_quality_[wrong] == 1.0)
    model = by_mixture().fit(X, np.full(150, 3.0))
    assert not model.removed_.any() and model.scale_ == 0.0


@pytest.mark.parametrize("far", [1e6, 1e12])
def test_labels_that_are_all_far_from_what_is_expected(far):
    """Nothing is left that could tell the noise, and still there is no NaN."""
    errors = far * np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    judged = mixture.judge(loo_of(errors), prior_of([0.0, 0.0, 0.0, far, -far]), RULE, 1.0)
    assert np.all(np.isfinite(judged.right)) and np.isfinite(judged.scale.sigma)
    X = np.arange(12.0).reshape(-1, 1)
    y = np.r_[np.zeros(9), far, -far, 2 * far]
    model = by_mixture().fit(X, y)
    assert np.all(np.isfinite(model.label_quality_)) and np.isfinite(model.scale_)


def test_quality_is_on_the_side_of_what_was_decided():
    right = np.array([0.9, 0.3, 0.7, 0.2])
    kept, trusted = np.array([True, True, False, False]), np.zeros(4, dtype=bool)
    judged = mixture.Judgement(right, 1.0, np.ones(4), np.zeros(4), 0.0)
    np.testing.assert_array_equal(judged.quality(kept, trusted), [0.9, 0.5, 0.499, 0.2])
    trusted[1] = True
    assert judged.quality(kept, trusted)[1] == 1.0


def test_a_label_of_two_values_may_be_the_other():
    """Far from where the classes meet a contrary label is wrong, near it it may be right."""
    rng = np.random.default_rng(0)
    said = rng.uniform(-1.0, 1.0, 600)
    true = np.where(rng.random(600) < 1.0 / (1.0 + np.exp(-12.0 * said)), 1.0, -1.0)
    wrong = rng.random(600) < 0.1
    y = np.where(wrong, -true, true)
    judged = mixture.judge(loo_of(y - said), prior_of(y), RULE, 1.0)
    flagged = judged.right < 0.5
    assert np.mean(flagged[wrong & (np.abs(said) > 0.3)]) > 0.95
    assert np.mean(flagged[~wrong]) < 0.02
    told = 1.0 - judged.right
    assert abs(np.mean(told) - np.mean(wrong)) < 0.03


def test_features_that_say_nothing_make_no_class_wrong():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(400) < 0.1, 1.0, -1.0)
    errors = y + 0.8 + 0.02 * rng.normal(size=400)
    judged = mixture.judge(loo_of(errors), prior_of(y), RULE, 1.0)
    assert np.mean(judged.right[y > 0.0] < 0.5) < 0.5


def test_a_class_is_never_emptied():
    y = np.r_[-np.ones(30), np.ones(3)]
    judged = mixture.Judgement(np.r_[np.ones(30), 0.1, 0.2, 0.3], 1.0, y, y, 0.0)
    assert judged.kept(RULE, prior_of(y))[30:].tolist() == [False, True, True]
