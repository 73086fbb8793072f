"""Sizes at which doubles end, orders of rows, units: nothing hangs or depends on them."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from activehuber import (
    HLClassifier,
    HLClassifierCV,
    HLRegressor,
    HLRegressorCV,
    huber_path,
)
from activehuber.problem.certificate import relative_gap

X = np.linspace(0, 6, 15).reshape(-1, 1)
Y = np.sin(X.ravel())


# --- what cannot be represented is refused, in one line and at once -----------------------

REFUSED = [
    (lambda: HLRegressor().fit(X, Y * 1e-322), "multiply y by a power of ten"),
    (lambda: HLRegressor().fit(X, 1e-150 + Y * 1e-160), "multiply y by a power of ten"),
    (lambda: HLRegressorCV().fit(X, Y * 1e307), "divide y by a power of ten"),
    (lambda: HLRegressor(alpha="loo").fit(X, Y * 1e200), "divide y by a power of ten"),
    (lambda: HLRegressor().fit([[0.0], [1.0]], [1e170, 0.0]), "divide y by a power of ten"),
    (lambda: huber_path(X, Y * 1e-320), "multiply y by a power of ten"),
    (lambda: HLRegressor().fit(X, np.r_[1e40, Y[1:]]), "farther out than labels usually"),
    (lambda: HLRegressor().fit(X, [10**400] * 15), "y holds a number that is too large"),
    (lambda: HLClassifier().fit(X, []), "y is empty"),
    (lambda: HLClassifierCV().fit(X, ()), "y is empty"),
    (lambda: HLRegressor().fit(X, Y, sample_weight=10**400), "sample_weight holds a number"),
    (lambda: HLRegressor().fit([[10**400]] * 15, Y), "X holds a number that is too large"),
    (lambda: HLRegressor().fit(X, Y).predict([[10**400]]), "X holds a number that is too"),
    (lambda: HLRegressor().fit(X * 1e200, Y), "divide such columns by a power of ten"),
    (lambda: HLRegressorCV(standardize=True).fit(X * 1e300, Y), "divide such columns"),
    (lambda: HLClassifierCV().fit(X * 1e300, Y > 0), "divide such columns"),
    (lambda: HLRegressor().fit(X, Y).predict(X * 1e200), "divide such columns"),
    (lambda: HLRegressor(alpha="loo").fit([[0.0], [0.2]], [1.0, np.nan]), "at least 3 labels"),
    (
        lambda: HLRegressor(alpha="loo", approximation="nystrom").fit(X[:2], Y[:2]),
        "at least 3 labels",
    ),
    (
        lambda: HLRegressorCV(standardize=True).fit(X, Y, sample_weight=np.full(15, 1e308)),
        "sample_weight must be 0 or lie between",
    ),
    (lambda: HLRegressorCV(cv=b"rbf").fit(X, Y), "cv must be None, a number of folds"),
    (lambda: HLClassifierCV(cv="five").fit(X, Y > 0), "cv must be None, a number of folds"),
    (lambda: HLRegressorCV(cv=[np.nan, 1.0]).fit(X, Y), "cv must be None, a number of folds"),
    (lambda: HLClassifierCV(cv=[(0, [99])]).fit(X, Y > 0), "cv must be None, a number of"),
    (lambda: HLRegressor(alpha=1e308).fit(X, Y), "alpha must lie between"),
    (lambda: HLRegressor(alpha=10**400).fit(X, Y), "alpha must be a finite number"),
    (lambda: HLRegressor(gamma=1e308).fit(X, Y), "gamma must lie between"),
    (lambda: HLRegressor(threshold=1e308).fit(X, Y), "threshold must lie between"),
    (lambda: HLRegressor(manifold=1e308).fit(X, Y), "manifold must lie between"),
    (
        lambda: HLRegressor(kernel="precomputed", manifold=1.0, graph="knn", n_neighbors=3).fit(
            1e60 * np.exp(-((X - X.T) ** 2)), Y
        ),
        "kernel values up to 1e\\+60",
    ),
    (lambda: HLRegressor(degree=10**400).fit(X, Y), "degree must be an integer of at most"),
    (lambda: HLRegressor(view_weights=[1e-200]).fit(X, Y), "view_weights must be of ordinary"),
]


@pytest.mark.parametrize(("work", "words"), REFUSED)
def test_what_doubles_cannot_hold_is_refused(work, words):
    with pytest.raises(ValueError, match=words):
        work()


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e308])
@pytest.mark.parametrize("model", [HLRegressor(), HLRegressorCV(), HLRegressor(alpha="loo")])
def test_weights_beyond_counting_are_refused(model, weight):
    for weights in (np.full(6, weight), np.r_[weight, np.ones(5)]):
        with pytest.raises(ValueError, match="a weight of k counts as k rows"):
            model.fit(X[:6], Y[:6], sample_weight=weights)


@pytest.mark.parametrize("weight", [1e-30, 1e30])
def test_weights_at_the_ends_of_their_range_fit(weight):
    wanted = HLRegressor(threshold=0.3).fit(X, Y).predict(X)
    model = HLRegressor(threshold=0.3).fit(X, Y, sample_weight=np.full(15, weight))
    np.testing.assert_allclose(model.predict(X), wanted, atol=1e-12)
    for other in (HLRegressor(), HLRegressor(alpha="loo"), HLClassifier()):
        labels = Y > 0 if isinstance(other, HLClassifier) else Y
        with warnings.catch_warnings():  # so many labels for so few rows may well warn
            warnings.simplefilter("ignore")
            mixed = np.r_[np.full(5, weight), np.ones(10)]
            assert (
                np.all(np.isfinite(other.fit(X, labels, mixed).decision_function(X)))
                if (isinstance(other, HLClassifier))
                else np.all(np.isfinite(other.fit(X, labels, mixed).predict(X)))
            )


def test_an_overflow_is_never_vouched_for():
    assert relative_gap(0.0, np.inf) == np.inf
    assert relative_gap(0.0, np.nan) == np.inf
    assert relative_gap(1.0, 4.0) == 0.25


@pytest.mark.parametrize("flag", ["no", 1, 0, None])
def test_a_flag_is_true_or_false(flag):
    with pytest.raises(TypeError, match="fit_intercept must be True or False"):
        HLRegressor(fit_intercept=flag).fit(X, Y)
    with pytest.raises(TypeError, match="fit_intercept must be True or False"):
        HLRegressorCV(fit_intercept=flag).fit(X, Y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (HLRegressor(verbose="x"), "verbose"),
        (HLRegressorCV(verbose="x"), "verbose"),
        (HLRegressor(block_size=np.array([1, 2])), "block_size"),
        (HLRegressorCV(kernels=5), "kernels must be a list"),
        (HLRegressorCV(kernels="rbf"), "kernels must be a list"),
        (HLRegressorCV(alphas=5), "alphas must be a list"),
        (HLRegressorCV(gammas=5), "gammas must be a list"),
        (HLRegressorCV(manifolds=5), "manifolds must be a list"),
        (HLRegressorCV(scoring=5), "scoring must be a name or a callable"),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_named(model, words):
    with pytest.raises(TypeError, match=words):
        model.fit(X, Y)


# --- what can be represented fits, in any unit ---------------------------------------------


def in_units(model, unit):
    """The same model for labels that are `unit` times as large."""
    out = clone(model)
    if isinstance(out, HLRegressor):
        if isinstance(out.threshold, float):
            out.threshold *= unit
        out.threshold_step *= unit
    return out


MODELS = [
    HLRegressor(),
    HLRegressor(fit_intercept=False),
    HLRegressor(threshold=0.1),
    HLRegressor(threshold="refine"),
    HLRegressor(threshold="madn"),
    HLRegressor(threshold=np.inf, manifold=1e-4),
    HLRegressor(alpha="loo"),
    HLRegressor(alpha="loo", gamma="loo"),
    HLRegressor(approximation="nystrom", n_components=5, random_state=0),
    HLRegressorCV(),
]


@pytest.mark.parametrize("unit", [1e150, 1e-150, 1000.0, -0.3])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_labels_in_any_unit_fit_alike(model, unit):
    y = Y + 0.05 * np.cos(40 * Y)
    y[4] += 3.0
    base = clone(model).fit(X, y)
    scaled = in_units(model, abs(unit)).fit(X, y * unit)
    spread = np.max(np.abs(y))
    np.testing.assert_allclose(scaled.predict(X) / unit, base.predict(X), atol=1e-9 * spread)
    np.testing.assert_array_equal(scaled.removed_, base.removed_)
    assert scaled.alpha_ == base.alpha_
    np.testing.assert_allclose(scaled.threshold_ / abs(unit), base.threshold_, rtol=1e-6)
    np.testing.assert_allclose(scaled.scale_ / abs(unit), base.scale_, rtol=1e-6)
    np.testing.assert_allclose(scaled.objective_ / unit / unit, base.objective_, rtol=1e-6)
    assert scaled.duality_gap_ <= 1e-9
    assert scaled.kkt_residual_ <= 1e-8
    errors = scaled.loo_residuals_ / unit
    np.testing.assert_allclose(errors, base.loo_residuals_, atol=1e-7 * spread)
    ends = scaled.predict_interval(X) / unit
    ends = ends[:, ::-1] if unit < 0.0 else ends
    np.testing.assert_allclose(ends, base.predict_interval(X), atol=1e-7 * spread)


@pytest.mark.parametrize("unit", [1e150, 1e-150, 8.0])
def test_paths_in_any_unit_are_alike(unit):
    base, scaled = huber_path(X, Y), huber_path(X, Y * unit)
    np.testing.assert_allclose(scaled.thresholds / unit, base.thresholds, rtol=1e-9)
    np.testing.assert_allclose(scaled.fitted / unit, base.fitted, atol=1e-12)
    np.testing.assert_array_equal(scaled.states, base.states)
    level = float(base.thresholds[2])
    np.testing.assert_allclose(scaled.at(level * unit)[0] / unit, base.at(level)[0], atol=1e-9)
    short = huber_path(X, Y * unit, min_threshold=level * unit)
    np.testing.assert_allclose(short.thresholds[-1], level * unit, rtol=1e-12)


def test_a_rule_of_the_user_sees_labels_in_its_own_unit():
    seen = []

    def rule(residuals, weights):
        seen.append(np.max(np.abs(residuals)))
        return 40.0

    model = HLRegressor(threshold=rule).fit(X, 1000.0 * Y)
    assert model.threshold_ == pytest.approx(40.0)
    assert max(seen) > 1.0
    with pytest.raises(ValueError, match="returned -3"):
        HLRegressor(threshold=lambda residuals, weights: -3.0).fit(X, 1000.0 * Y)


# --- the order of rows and units decide nothing --------------------------------------------


def random_table(seed):
    """Rows with ties, copies, gaps and wrong labels."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 70)), int(rng.integers(1, 4))
    features = rng.normal(size=(n, d))
    labels = np.sin(features[:, 0]) + rng.choice([0.0, 0.05, 0.3]) * rng.normal(size=n)
    labels[: n // 6] += rng.choice([3.0, -2.0], size=n // 6)
    if seed % 3 == 0:
        features, labels = np.round(2 * features), np.round(4 * labels)
    if seed % 3 == 1:
        features, labels = np.vstack([features, features[:5]]), np.r_[labels, labels[:5]]
    labels[rng.random(len(labels)) < 0.1] = np.nan
    return features, labels


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "model", [HLRegressor(), HLRegressor(alpha="loo"), HLRegressor(alpha="loo", gamma="loo")]
)
@pytest.mark.filterwarnings("ignore:.*labels were removed:UserWarning")
def test_neither_order_nor_units_choose_or_accuse(model, seed):
    features, labels = random_table(seed)
    order = np.random.default_rng(seed).permutation(len(labels))
    base = clone(model).fit(features, labels)
    shuffled = clone(model).fit(features[order], labels[order])
    assert shuffled.alpha_ == base.alpha_
    assert shuffled.gamma_ == base.gamma_
    np.testing.assert_array_equal(shuffled.removed_, base.removed_[order])
    in_grams = clone(model).fit(features, 1000.0 * labels + 300.0)
    assert in_grams.alpha_ == base.alpha_
    assert in_grams.gamma_ == base.gamma_
    np.testing.assert_array_equal(in_grams.removed_, base.removed_)


@pytest.mark.parametrize("seed", range(3))
def test_neither_order_nor_units_decide_a_search(seed):
    features, labels = random_table(seed)
    order = np.random.default_rng(seed).permutation(len(labels))
    base = HLRegressorCV().fit(features, labels)
    for other, back in (
        (HLRegressorCV().fit(features[order], labels[order]), order),
        (HLRegressorCV().fit(features, 1000.0 * labels), np.arange(len(order))),
    ):
        assert other.alpha_ == base.alpha_
        np.testing.assert_array_equal(other.removed_, base.removed_[back])


def test_the_order_of_a_gram_matrix_decides_no_search():
    features, labels = random_table(1)
    given = ~np.isnan(labels)
    features, labels = features[given], labels[given]
    K = np.exp(-np.abs(features[:, None] - features[None]).sum(axis=2))
    order = np.random.default_rng(0).permutation(len(labels))
    search = HLRegressorCV(kernels=("precomputed",))
    base = clone(search).fit(K, labels)
    other = clone(search).fit(K[np.ix_(order, order)], labels[order])
    assert other.alpha_ == base.alpha_
    np.testing.assert_array_equal(other.removed_, base.removed_[order])
    np.testing.assert_allclose(other.loo_residuals_, base.loo_residuals_[order], atol=1e-9)
