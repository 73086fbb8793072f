"""The adaptive threshold: no masking, no unit, no order."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from threadpoolctl import threadpool_limits

from activehuber import HLRegressor
from activehuber.estimators.regressor import fit_regressor
from activehuber.labels import adaptive
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from tests import oracles


def sign_flips(seed, share, n=500):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 10))
    y = X.mean(axis=1)
    bad = rng.permutation(n)[: round(share * n)]
    y[bad] *= -1
    flags = np.zeros(n, dtype=bool)
    flags[bad] = True
    return X, y, flags


@pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")
@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.4])
@pytest.mark.parametrize("intercept", [True, False])
def test_no_masking_in_the_papers_experiment(share, intercept):
    dice = []
    for seed in range(3):
        X, y, bad = sign_flips(seed, share)
        model = HLRegressor(kernel="linear", fit_intercept=intercept).fit(X, y)
        dice.append(f1_score(bad, model.removed_))
    assert np.mean(dice) >= (0.999 if share <= 0.25 else 0.95)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_bad_labels_are_found_on_a_smooth_function(kernel):
    scores = []
    for seed in range(5):
        X, y, wrong, _ = oracles.curve(300, seed, bad=0.25)
        model = HLRegressor(kernel=kernel).fit(X, y)
        scores.append(f1_score(wrong, model.removed_))
    assert np.mean(scores) > (0.93 if kernel == "rbf" else 0.85)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
def test_clean_data_loses_few_labels(kernel):
    removed = []
    for seed in range(8):
        X, y, _, truth = oracles.curve(200, seed, bad=0.0)
        if kernel == "linear":
            # A curve that it cannot follow is no clean data to a linear kernel.
            y = y - truth + X @ [1.0, -0.5]
        removed.append(HLRegressor(kernel=kernel, alpha=1e-3).fit(X, y).removed_.mean())
    assert np.mean(removed) <= 0.01


@pytest.mark.parametrize("a", [1e-8, 1e-3, 7.0, 1e8])
@pytest.mark.parametrize("shift", [0.0, 1e3, -37.0])
@pytest.mark.parametrize("removal", [0.5, None])
def test_equivariance(a, shift, removal):
    X, y, *_ = oracles.curve(120, 4)
    scale = y.std()
    model = HLRegressor(removal=removal)
    base = model.fit(X, y).predict(X)
    removed, quality = model.removed_, model.label_quality_
    b = shift * a * scale
    moved = model.fit(X, a * y + b)
    np.testing.assert_allclose(moved.predict(X), a * base + b, atol=1e-7 * a * scale, rtol=0)
    assert np.array_equal(moved.removed_, removed)
    np.testing.assert_allclose(moved.label_quality_, quality, atol=1e-6)


@pytest.mark.parametrize("mode", ["adaptive", "refine", 0.2])
@pytest.mark.parametrize("manifold", [0.0, 1e-2])
def test_row_order_changes_nothing(mode, manifold, rng):
    X, y, *_ = oracles.curve(150, 6)
    y[100:] = np.nan
    model = HLRegressor(threshold=mode, threshold_step=0.2, manifold=manifold)
    base, removed = model.fit(X, y).predict(X), model.removed_
    order = rng.permutation(150)
    shuffled = model.fit(X[order], y[order])
    np.testing.assert_allclose(shuffled.predict(X), base, atol=1e-9)
    assert np.array_equal(shuffled.removed_, removed[order])


@pytest.mark.parametrize("n", [200, 1000])
def test_one_and_two_threads_remove_the_same_labels(n):
    X, y, *_ = oracles.curve(n, 7)
    with threadpool_limits(1):
        one = HLRegressor().fit(X, y)
    with threadpool_limits(2):
        two = HLRegressor().fit(X, y)
    assert np.array_equal(one.removed_, two.removed_)
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-9)


def test_quality_separates_removed_from_kept():
    X, y, *_ = oracles.curve(120, 8)
    y[100:] = np.nan
    for mode in ("adaptive", "refine", 0.2, np.inf):
        model = HLRegressor(threshold=mode, threshold_step=0.3).fit(X, y)
        quality, removed = model.label_quality_, model.removed_
        assert np.all(np.isnan(quality) == np.isnan(y))
        assert np.all(quality[removed] < 0.5)
        assert np.all(quality[~removed & ~np.isnan(y)] >= 0.5)


def test_threshold_bounds_every_kept_residual():
    X, y, *_ = oracles.curve(120, 9)
    model = HLRegressor().fit(X, y)
    kept = ~model.removed_
    assert model.removed_.any()
    assert model.threshold_ >= np.max(np.abs(model.residuals_[kept]))
    assert model.threshold_ >= 1.345 * model.scale_ * (1 - 1e-12)


def test_without_removal_the_fit_is_huber_and_robust():
    X, y, _wrong, truth = oracles.curve(200, 10, bad=0.2)
    model = HLRegressor(removal=None, alpha=1e-3).fit(X, y)
    ridge = HLRegressor(threshold=np.inf, alpha=1e-3).fit(X, y)
    assert not model.removed_.any()
    error, plain = (np.mean(np.abs(m.predict(X) - truth)) for m in (model, ridge))
    assert error < 0.5 * plain


def test_labels_that_are_all_alike_lose_none():
    X = np.arange(12.0).reshape(-1, 1)
    model = HLRegressor().fit(X, np.full(12, 3.0))
    assert not model.removed_.any() and model.threshold_ == 0.0 and model.scale_ == 0.0
    np.testing.assert_array_equal(model.predict(X), np.full(12, 3.0))


def test_a_bad_label_at_the_edge_does_not_speak_against_its_neighbours():
    """Excused for want of other labels, it would have five good ones dropped."""
    rng = np.random.default_rng(45)
    x = np.concatenate([rng.uniform(0.0, 1.0, 60), np.linspace(1.1, 2.2, 8)])
    y = np.exp(1.6 * x) + 0.05 * rng.normal(size=68)
    y[-1] = 1.0
    model = HLRegressor(gamma=1.0, alpha=1e-6).fit(x[:, None], y)
    assert np.flatnonzero(model.removed_).tolist() == [67]


def test_labels_are_weighed_later_as_they_were_in_the_fit():
    """What the caller does to y after the fit does not matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    y[:5] += 4.0
    at_once = fit_regressor(HLRegressor(), X, y, weigh_labels=True)
    later = HLRegressor().fit(X, y)
    assert (
        later.result_.targets[0].evidence is None
        and at_once.result_.targets[0].evidence is not None
    )
    y[later.removed_] = np.nan
    # Later the problem is built and solved again from the coefficients: other rounding.
    for name in ("label_quality_", "loo_residuals_"):
        weighed, expected = getattr(later, name), getattr(at_once, name)
        np.testing.assert_allclose(weighed, expected, rtol=0.0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("ask", [lambda m: m.scale_, lambda m: m.predict_interval([[0.0]])])
def test_what_needs_a_fit_says_so(ask):
    with pytest.raises(NotFittedError):
        ask(HLRegressor())


# --- the labels that are searched first -------------------------------------------------

MOST = 200


def corrupted(n=260, seed=0, share=0.25):
    """A smooth function, some labels exchanged for others."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    y = 3.0 * np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    bad = rng.random(n) < share
    y[bad] = rng.permutation(y)[bad]
    return X, y, bad


def problem_of(X, y, weights=None):
    n = len(y)
    return Problem(
        DenseGram(oracles.gram("rbf", X, gamma=0.5)),
        y,
        np.ones(n) if weights is None else weights,
        1e-3,
        True,
        np.ones(n, dtype=bool),
    )


def test_the_labels_searched_first_do_not_depend_on_the_order_of_rows():
    X, y, _ = corrupted(700)
    y = np.round(y)  # with ties
    order = np.random.default_rng(0).permutation(700)
    rows, weights = adaptive.some_labels(problem_of(X, y), MOST)
    others, _ = adaptive.some_labels(problem_of(X[order], y[order]), MOST)
    assert len(rows) == MOST and set(weights) == {1.0}
    assert set(rows) == set(order[others])


@pytest.mark.parametrize("n", [150, 300])
def test_a_heavy_label_is_taken_as_its_repetitions_are(n):
    X, y, _ = corrupted(n)
    times = np.random.default_rng(0).integers(1, 4, n)
    again = np.repeat(np.arange(n), times)
    rows, weights = adaptive.some_labels(problem_of(X, y, times.astype(float)), MOST)
    others, ones = adaptive.some_labels(problem_of(X[again], y[again]), MOST)
    np.testing.assert_array_equal(np.repeat(rows, weights.astype(int)), np.sort(again[others]))
    assert weights.sum() == ones.sum() == MOST


@pytest.mark.parametrize("n", [120, 300])
def test_a_fit_with_weights_is_that_of_repetitions(n):
    """300 labels of weight 1 to 3 are more than are searched at once."""
    X, y, _ = corrupted(n)
    times = np.random.default_rng(0).integers(1, 4, n)
    again = np.repeat(np.arange(n), times)
    weighted = HLRegressor(alpha=1e-3).fit(X, y, times.astype(float))
    repeated = HLRegressor(alpha=1e-3).fit(X[again], y[again])
    np.testing.assert_array_equal(weighted.removed_[again], repeated.removed_)
    np.testing.assert_allclose(
        weighted.label_quality_[again], repeated.label_quality_, atol=1e-6
    )


def test_light_labels_stay_light_where_few_of_them_are_searched():
    """The ridge is that of all labels, so each of them keeps its μ."""
    X, y, _ = corrupted(700)
    given = problem_of(X, y, np.full(700, 0.25))
    rows, weights = adaptive.some_labels(given, MOST)
    some = adaptive.on_some(given, rows, weights, given.gram.subset(rows))
    np.testing.assert_allclose(some.mu, given.mu[rows])


def test_the_search_of_some_finds_what_that_of_all_does(monkeypatch):
    X, y, bad = corrupted(900, share=0.2)
    some = HLRegressor(alpha=1e-3).fit(X, y)
    monkeypatch.setattr(adaptive, "SEARCH_LABELS", 1000)
    whole = HLRegressor(alpha=1e-3).fit(X, y)
    assert np.mean(some.removed_ != whole.removed_) < 0.005
    assert f1_score(bad, some.removed_) > 0.85


def test_what_is_said_of_labels_comes_from_the_fit_to_those_kept():
    """Where rounds go in a circle, the fit before was to others."""
    for seed in (13, 34, 44, 80):  # in a circle each
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 2))
        y = np.round(np.sin(2 * X[:, 0]) + 0.5 * rng.standard_t(2, size=40), 1)
        everyone = np.ones(40, dtype=bool)
        gram = DenseGram(np.exp(-2.0 * cdist(X, X, "sqeuclidean")))
        problem = Problem(gram, y, np.ones(40), 0.1 / 80, True, everyone)
        found = adaptive.judge_labels(problem, ~everyone, DEFAULT_RULE)
        again = adaptive.LabelSearch(problem, DEFAULT_RULE, ~everyone)
        again.source = gram.inverse_source(again.mu, border=True)
        own = again.fit(found.kept)
        assert np.allclose(found.judged.errors, own.residuals, atol=1e-6)


def test_as_many_labels_as_the_search_takes_are_searched_once():
    """Small weights count as labels, whose sum is that number but for rounding."""
    n = adaptive.SEARCH_LABELS
    X = np.linspace(0.0, 6.0, n)[:, None]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
        model = HLRegressor().fit(X, y, sample_weight=rng.uniform(0.1, 1.0, size=n))
        assert not model.removed_.any()
