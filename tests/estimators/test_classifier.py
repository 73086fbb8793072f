"""Classes: labels of any kind, the cut under noise, probabilities, dropped labels."""

import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from activehuber import HLClassifier, HLRegressor, LabelledKFold, View
from activehuber.labels.noise_rates import (
    Calibration,
    calibrate,
    clean_error,
    estimate_rates,
    population_cut,
    remaining_rates,
)
from tests import oracles

OLD_CHECKS = parse_version(sklearn.__version__) < parse_version("1.7")
RATES = [(0.3, 0.1), (0.1, 0.3), (0.0, 0.45), (0.2, 0.2), (0.0, 0.0)]


def groups(n, seed, distance=2.0, n_classes=2):
    """Rows around as many centres as there are classes, and the clean classes 0, 1, …"""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, n_classes, n)
    angle = 2 * np.pi * np.arange(n_classes) / n_classes
    centres = distance * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return centres[true] + rng.normal(size=(n, 2)), true


def flipped(true, rates, seed):
    """0/1 labels after flips: rates[0] of the ones and rates[1] of the zeros."""
    chance = np.random.default_rng(seed).random(len(true))
    return np.where(chance < np.where(true == 1, rates[0], rates[1]), 1 - true, true)


@pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        HLClassifier(),
        HLClassifier(kernel="linear"),
        HLClassifier(threshold=1.0),
        HLClassifier(manifold=1e-3, noise_rates=(0.1, 0.1)),
        HLClassifier(noise_rates="estimate", kernel="laplacian"),
    ]
)
def test_checks(estimator, check):
    if "sample_weight_equivalence" in repr(check) and estimator.manifold > 0:
        pytest.skip("with a graph weights act on the loss alone, by contract")
    if "sample_weight_equivalence" in repr(check) and OLD_CHECKS and estimator.noise_rates:
        pytest.skip("scikit-learn 1.6 shuffles, then makes two classes of three: not the same")
    check(estimator)


def test_parameters_are_those_of_the_regressor():
    mine = inspect.signature(HLClassifier).parameters
    theirs = inspect.signature(HLRegressor).parameters
    assert {k: v.default for k, v in mine.items() if k != "noise_rates"} == {
        k: v.default for k, v in theirs.items()
    }


# --- noise rates ------------------------------------------------------------------------


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("threshold", [0.05, 0.3, 1.0, 1.3, 2.0, 5.0, np.inf])
def test_population_cut_minimises_the_risk(rates, threshold):
    """The cut is the least point of p₀ H(1 − h) + (1 − p₀) H(−1 − h)."""
    xi = min(threshold, 1e3)
    p = (1 + rates[1] - rates[0]) / 2
    if p == 0.5:
        assert population_cut(*rates, threshold) == 0.0
        return

    def risk(h):
        return np.array([p, 1 - p]) @ oracles.huber([1 - h, -1 - h], xi)

    found = minimize_scalar(risk, bounds=(-1, 1), method="bounded", options={"xatol": 1e-10})
    assert population_cut(*rates, threshold) == pytest.approx(found.x, abs=1e-6)


def test_population_cut_at_known_points():
    assert population_cut(0.3, 0.1, 2.0) == pytest.approx(-0.2)
    assert population_cut(0.3, 0.1, 0.3) == pytest.approx(-0.8)
    assert population_cut(0.3, 0.1, 0.0) == -1.0


@pytest.mark.parametrize("params", [{"threshold": 2.0}, {"removal": None}, {}])
def test_known_rates_move_the_cut_and_help(params):
    """Rates (.3, .1): fewer clean labels are wrong, on average over a few draws."""
    gains = []
    for seed in range(8):
        X, true = groups(300, seed, 1.0)
        y = flipped(true, (0.3, 0.1), seed)
        Z, clean = groups(2000, 50 + seed, 1.0)
        model = HLClassifier(alpha=1e-2, gamma=0.3, **params)
        without = model.fit(X, y).score(Z, clean)
        with_rates = clone(model).set_params(noise_rates=(0.3, 0.1)).fit(X, y)
        assert with_rates.cut_ < 0.0 and with_rates.noise_rates_ == (0.3, 0.1)
        gains.append(with_rates.score(Z, clean) - without)
    assert np.mean(gains) > 0.01


def test_the_cut_is_the_difference_of_rates_for_least_squares():
    X, true = groups(120, 3)
    y = flipped(true, (0.3, 0.1), 3)
    model = HLClassifier(threshold=2.5, alpha=1e-2, noise_rates=(0.3, 0.1)).fit(X, y)
    assert model.cut_ == pytest.approx(-0.2)
    h = model.estimator_.predict(X)
    np.testing.assert_allclose(model.decision_function(X), h + 0.2, atol=1e-12)
    sharp = HLClassifier(threshold=0.3, alpha=1e-2, noise_rates=(0.3, 0.1)).fit(X, y)
    assert sharp.cut_ == pytest.approx(-0.8)


@pytest.mark.parametrize("rates", [(0.3, 0.1), (0.1, 0.2), (0.0, 0.3), (0.05, 0.05)])
def test_estimated_rates(rates):
    X, true = groups(800, 11)
    y = flipped(true, rates, 12)
    model = HLClassifier(alpha=1e-2, gamma=0.3, noise_rates="estimate").fit(X, y)
    np.testing.assert_allclose(model.noise_rates_, rates, atol=0.1)


def test_estimated_rates_by_hand():
    labels = np.array([1.0, -1, 1, 1, -1, -1, 1, -1])
    h = np.array([0.9, 0.8, 0.7, 0.6, -0.6, -0.7, -0.8, -0.9])
    ones = np.ones(8)
    # Two of each side are certain: one of them is contrary on either side; the sum is capped.
    np.testing.assert_allclose(estimate_rates(labels, h, ones), (0.45, 0.45))
    clean = np.where(h > 0, 1.0, -1.0)
    assert estimate_rates(clean, h, ones) == (0.0, 0.0)


def test_estimate_counts_weights_as_repetitions(rng):
    labels, h = rng.choice([-1.0, 1.0], 40), rng.normal(size=40)
    weights = rng.integers(1, 4, 40)
    again = np.repeat(np.arange(40), weights)
    expected = estimate_rates(labels[again], h[again], np.ones(len(again)))
    np.testing.assert_allclose(estimate_rates(labels, h, weights * 1.0), expected)


def test_remaining_rates():
    labels = np.repeat([1.0, -1.0], [400, 600])  # of 500 and 500, with rates .3 and .1
    none = np.zeros(1000, dtype=bool)
    ones = np.ones(1000)
    np.testing.assert_allclose(remaining_rates(labels, none, ones, (0.3, 0.1)), (0.3, 0.1))
    removed = none.copy()
    removed[400:500] = True  # 100 of the 150 ones that were flipped
    np.testing.assert_allclose(remaining_rates(labels, removed, ones, (0.3, 0.1)), (0.125, 0.1))
    removed[:] = True
    assert remaining_rates(labels, removed, ones, (0.3, 0.1)) == (0.0, 0.0)


@pytest.mark.parametrize("rates", RATES)
def test_clean_error_is_right_on_average(rates):
    for true in (1.0, -1.0):
        flip = rates[0] if true > 0 else rates[1]
        for decision in (0.5, -0.5):
            losses = [
                clean_error(np.array([y]), np.array([decision]), np.ones(1), rates)
                for y in (true, -true)
            ]
            expected = float(decision * true < 0)
            assert losses @ np.array([1 - flip, flip]) == pytest.approx(expected)


# --- probabilities ----------------------------------------------------------------------


@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.3, 0.1)])
def test_calibration_finds_its_own_slopes(rng, rates):
    decision = rng.uniform(-1.5, 1.5, 20000)
    clean = Calibration(3.0, 6.0)(decision)[:, 1]
    given = rates[1] + (1 - sum(rates)) * clean
    labels = np.where(rng.random(20000) < given, 1.0, -1.0)
    found = calibrate(labels, decision, np.ones(20000), rates)
    assert found.above == pytest.approx(3.0, rel=0.15)
    assert found.below == pytest.approx(6.0, rel=0.15)


def test_calibration_of_separated_labels_stays_finite():
    decision = np.linspace(-1, 1, 20)
    found = calibrate(np.sign(decision), decision, np.ones(20))
    probable = found(np.array([-50.0, -1e-3, 0.0, 1e-3, 50.0]))
    assert np.all(np.isfinite(probable)) and np.all(np.diff(probable[:, 1]) > 0)
    many = found(np.array([[-50.0, -60.0, -70.0], [50.0, 1.0, -1.0]]))
    np.testing.assert_allclose(many.sum(axis=1), 1.0)


@pytest.mark.parametrize("noise_rates", [None, (0.2, 0.05), "estimate"])
@pytest.mark.parametrize("threshold", ["adaptive", 0.5, np.inf])
def test_probabilities_agree_with_predictions(noise_rates, threshold):
    X, true = groups(150, 5, 1.0)
    y = flipped(true, (0.2, 0.05), 5)
    model = HLClassifier(alpha=1e-2, threshold=threshold, noise_rates=noise_rates).fit(X, y)
    Z, _ = groups(400, 6, 1.0)
    decision, probable = model.decision_function(Z), model.predict_proba(Z)
    np.testing.assert_allclose(probable.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[np.argmax(probable, axis=1)], model.predict(Z))
    np.testing.assert_array_equal(model.predict(Z), (decision > 0).astype(int))
    assert np.all(np.diff(probable[np.argsort(decision), 1]) >= 0)


@pytest.mark.parametrize("rates", [None, (0.3, 0.1)])
def test_probabilities_are_calibrated(rates):
    """Two normal groups, where the clean probability is known: expit(2 · distance · x₀)."""
    X, true = groups(1500, 8, 0.7)
    true = 1 - true  # the class 1 is on the right
    y = true if rates is None else flipped(true, rates, 9)
    model = HLClassifier(alpha=1e-2, gamma=0.1, threshold=np.inf, noise_rates=rates).fit(X, y)
    Z, _ = groups(1000, 10, 0.7)
    expected = expit(2 * 0.7 * Z[:, 0])
    assert np.mean(np.abs(model.predict_proba(Z)[:, 1] - expected)) < 0.06


# --- labels -----------------------------------------------------------------------------


def kinds():
    """The same labels, some missing, in every dress; with the classes they should give."""
    one = np.array([1, 0, 1, 1, 0, 0] * 5, dtype=bool)
    gap = np.arange(30) >= 24
    words = np.where(one, "yes", "no")

    def holes(values, marker):
        return [marker if hole else value for value, hole in zip(values, gap, strict=True)]

    ints = one.astype(int).tolist()
    yield "float", np.where(gap, np.nan, one), [0.0, 1.0]
    yield "fractions", np.where(gap, np.nan, one + 0.5), [0.5, 1.5]
    for name, marker in (("None", None), ("NaN", np.nan), ("NA", pd.NA)):
        yield f"objects {name}", np.array(holes(words, marker), dtype=object), ["no", "yes"]
        yield f"list {name}", holes(ints, marker), [0, 1]
    yield "Int64", pd.Series(holes(ints, pd.NA), dtype="Int64"), [0, 1]
    yield "string", pd.Series(holes(words, pd.NA), dtype="string"), ["no", "yes"]
    yield "boolean", pd.Series(holes(one.tolist(), pd.NA), dtype="boolean"), [False, True]
    yield "category", pd.Series(holes(words, None), dtype="category"), ["no", "yes"]
    yield "numbers as category", pd.Series(holes(ints, None), dtype="category"), [0, 1]
    yield "str", pd.Series(holes(words, None)), ["no", "yes"]
    yield "polars int", pl.Series(holes(ints, None)), [0, 1]
    yield "polars str", pl.Series(holes([str(w) for w in words], None)), ["no", "yes"]
    yield "polars bool", pl.Series(holes(one.tolist(), None)), [False, True]


KINDS = list(kinds())


@pytest.mark.parametrize("y, classes", [k[1:] for k in KINDS], ids=[k[0] for k in KINDS])
def test_labels_of_any_kind(y, classes, rng):
    X = rng.normal(size=(30, 2))
    codes = np.where(np.arange(30) >= 24, np.nan, np.array([1, -1, 1, 1, -1, -1] * 5))
    model = HLClassifier(threshold=1.0, alpha=1e-2).fit(X, y)
    assert model.classes_.tolist() == classes
    assert type(model.classes_.tolist()[0]) is type(classes[0])
    regressor = HLRegressor(threshold=1.0, alpha=1e-2).fit(X, codes)
    np.testing.assert_array_equal(model.decision_function(X), regressor.predict(X))
    np.testing.assert_array_equal(np.isnan(model.label_quality_), np.isnan(codes))
    accuracy = np.mean(np.sign(regressor.predict(X[:24])) == codes[:24])
    assert model.score(X, y) == pytest.approx(accuracy)


def test_score_skips_unlabelled_rows():
    X, true = groups(60, 1)
    model = HLClassifier().fit(X, true)
    partly = np.where(np.arange(60) < 30, true, np.nan)
    hit, weights = model.predict(X[:30]) == true[:30], np.arange(60.0)
    assert model.score(X, partly) == hit.mean()
    assert model.score(X, partly, weights) == pytest.approx(
        np.average(hit, weights=weights[:30])
    )
    with pytest.raises(ValueError, match="no label at all"):
        model.score(X, np.full(60, np.nan))


# --- dropped labels ---------------------------------------------------------------------


def test_wrong_labels_are_dropped_and_rank_last():
    X, true = groups(200, 2, 3.0)
    wrong = np.zeros(200, dtype=bool)
    wrong[::20] = True
    y = np.where(wrong, 1 - true, true)
    model = HLClassifier(gamma=0.1).fit(X, y)
    assert model.removed_[wrong].mean() >= 0.9 and model.removed_[~wrong].mean() <= 0.02
    assert model.label_quality_[wrong].max() < np.quantile(model.label_quality_[~wrong], 0.1)
    assert model.score(X, true) >= 0.98
    trusting = HLClassifier(gamma=0.1).fit(X, y, trusted=wrong)
    assert not trusting.removed_[wrong].any()


@pytest.mark.parametrize("alpha", [1e-4, 1e-2])
@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.2, 0.2)])
def test_labels_are_dropped_only_if_that_helps(alpha, rates):
    """A rare class, overlapping: leave-one-out is never worse than with all labels."""
    rng = np.random.default_rng(4)
    true = (rng.random(250) < 0.15).astype(int)
    X = rng.normal(size=(250, 2)) + true[:, None] * 1.5
    y = flipped(true, rates, 5)
    codes = 2.0 * y - 1.0
    model = HLClassifier(alpha=alpha).fit(X, y)
    everything = HLClassifier(alpha=alpha, threshold=np.inf).fit(X, y)

    def wrong(fit):
        return np.mean((codes - fit.loo_residuals_ > 0) != (codes > 0))

    assert wrong(model) <= wrong(everything)
    # None of them is on the side of its own leave-one-out value.
    left_out = codes - model.loo_residuals_
    assert np.all((codes * left_out)[model.removed_] <= 0.0)
    assert np.mean(model.removed_[y == 1]) < 1.0


def test_unlabelled_rows_shape_the_fit_along_a_graph():
    rng = np.random.default_rng(7)
    angle = np.tile(np.linspace(0, np.pi, 100), 2)
    true = np.repeat([0, 1], 100)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.where(true, -1, 1)[:, None]
    X = X + np.where(true, 1.0, 0.0)[:, None] * [1.0, 0.5] + 0.05 * rng.normal(size=X.shape)
    y = np.full(200, np.nan)
    y[[50, 150]] = true[[50, 150]]
    along = HLClassifier(threshold=np.inf, gamma=3.0, alpha=1e-5, manifold=1e-2).fit(X, y)
    without = HLClassifier(threshold=np.inf, gamma=3.0, alpha=1e-5).fit(X, y)
    assert along.score(X, true) > 0.95 > without.score(X, true)


# --- several classes --------------------------------------------------------------------


def test_several_classes_one_against_the_rest():
    X, true = groups(240, 3, 4.0, n_classes=4)
    names = np.array(["a", "b", "c", "d"])
    wrong = np.zeros(240, dtype=bool)
    wrong[::24] = True
    y = names[np.where(wrong, (true + 1) % 4, true)].astype(object)
    y[200:] = None
    model = HLClassifier(gamma=0.1, alpha=1e-4).fit(X, y)
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X, names[true]) > 0.97
    assert model.removed_[:200][wrong[:200]].mean() > 0.8
    assert model.removed_[~wrong].mean() < 0.05 and not model.removed_[200:].any()
    np.testing.assert_array_equal(np.isnan(model.label_quality_), np.arange(240) >= 200)
    # Each label's figures come from the fit of its own class.
    own = np.where(wrong, (true + 1) % 4, true)[:200]
    rows = np.arange(200)
    np.testing.assert_array_equal(
        model.label_quality_[:200], model.estimator_.label_quality_[rows, own]
    )
    np.testing.assert_array_equal(model.removed_[:200], model.estimator_.removed_[rows, own])
    decision, probable = model.decision_function(X), model.predict_proba(X)
    assert decision.shape == probable.shape == (240, 4)
    np.testing.assert_allclose(probable.sum(axis=1), 1.0)
    for scores in (decision, probable):
        np.testing.assert_array_equal(names[np.argmax(scores, axis=1)], model.predict(X))


def test_several_classes_are_several_targets_of_the_regressor():
    X, true = groups(90, 9, n_classes=3)
    codes = np.where(true[:, None] == np.arange(3), 1.0, -1.0)
    model = HLClassifier(threshold=0.7, alpha=1e-3).fit(X, true)
    regressor = HLRegressor(threshold=0.7, alpha=1e-3).fit(X, codes)
    np.testing.assert_array_equal(model.decision_function(X), regressor.predict(X))
    np.testing.assert_array_equal(model.dual_coef_, regressor.dual_coef_)
    assert model.cut_ == 0.0 and model.noise_rates_ is None
    assert np.all(model.duality_gap_ <= 1e-9) and np.all(model.kkt_residual_ <= 1e-8)


# --- scikit-learn -----------------------------------------------------------------------


def test_pipeline_and_search_with_unlabelled_rows():
    X, true = groups(120, 1)
    y = np.array(["no", "yes"])[true].astype(object)
    y[90:] = None
    folds = LabelledKFold(4, stratify=True, shuffle=True, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), HLClassifier()),
        {"hlclassifier__alpha": [1e-3, 1e-1], "hlclassifier__kernel": ["rbf", "linear"]},
        cv=folds,
        error_score="raise",
    ).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.score(X, y) > 0.9
    for scoring in ("roc_auc", "neg_log_loss"):
        scores = cross_val_score(HLClassifier(), X, y, cv=folds, scoring=scoring)
        assert np.all(np.isfinite(scores))


def test_views():
    X, true = groups(100, 4)
    views = [View([0], name="left"), View([1], name="right")]
    model = HLClassifier(views=views, alpha=1e-2)
    assert model.get_params()["views__left__kernel"] == "rbf"
    model.set_params(views__left__gamma=0.3, noise_rates=(0.1, 0.0))
    assert model.fit(X, true).dual_coef_.shape == (100, 2)
    search = GridSearchCV(model, {"views__left__kernel": ["rbf", "linear"]}, cv=3).fit(X, true)
    assert search.best_score_ > 0.9
    three = HLClassifier(views=views, alpha=1e-2).fit(*groups(90, 5, 3.0, n_classes=3))
    assert three.dual_coef_.shape == (90, 2, 3)


def test_clone_and_pickle():
    X, true = groups(60, 3)
    model = HLClassifier(alpha=1e-2, noise_rates=(0.1, 0.2)).fit(X, true)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "classes_")
    with pytest.raises(NotFittedError):
        fresh.predict_proba(X)


def test_frames_and_their_names():
    X, true = groups(40, 4)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = HLClassifier().fit(frame, true)
    assert model.feature_names_in_.tolist() == ["a", "b"] and model.n_features_in_ == 2
    with pytest.raises(ValueError):
        model.predict(frame[["b", "a"]])
    assert not hasattr(model.fit(X, true), "feature_names_in_")


def test_precomputed_kernel_in_cross_validation():
    X, true = groups(60, 8)
    K = oracles.gram("rbf", X, gamma=0.5)
    by_kernel = cross_val_score(HLClassifier(kernel="precomputed"), K, true, cv=4)
    by_rows = cross_val_score(HLClassifier(gamma=0.5), X, true, cv=4)
    np.testing.assert_array_equal(by_kernel, by_rows)


# --- bad input --------------------------------------------------------------------------

X12 = np.arange(24.0).reshape(12, 2) / 24
Y12 = np.array([0, 1] * 6)
# None: said by scikit-learn, in its words.
BAD = [
    ({}, (X12, np.zeros(12)), ValueError, "two classes"),
    ({}, (X12, np.full(12, np.nan)), ValueError, "classes"),
    ({}, (X12, Y12, (Y12 == 1) * 1.0), ValueError, "two classes"),
    ({}, (X12, None), ValueError, "y"),
    ({}, (X12, Y12[:5]), ValueError, None),
    ({}, (X12, np.linspace(0, 1, 12)), ValueError, None),
    ({}, (X12, np.where(Y12, np.inf, 0.0)), ValueError, None),
    ({}, (X12, np.array(["a", 1] * 6, dtype=object)), TypeError, "all strings"),
    ({}, (X12, np.array([(), {}] * 6, dtype=object)), TypeError, "all numbers"),
    ({}, (X12, Y12, None, np.ones(12)), ValueError, "boolean mask"),
    ({}, (X12, Y12, -np.ones(12)), ValueError, "negative"),
    ({"alpha": 0.0}, (X12, Y12), ValueError, "alpha"),
    ({"algorithm": "paper"}, (X12, Y12), ValueError, "threshold='adaptive'"),
    ({"noise_rates": 0.1}, (X12, Y12), TypeError, "noise_rates"),
    ({"noise_rates": (0.1,)}, (X12, Y12), TypeError, "pair"),
    ({"noise_rates": (0.1, "b")}, (X12, Y12), TypeError, "rho_neg"),
    ({"noise_rates": (-0.1, 0.1)}, (X12, Y12), ValueError, "rho_pos"),
    ({"noise_rates": (0.1, np.nan)}, (X12, Y12), ValueError, "rho_neg"),
    ({"noise_rates": (0.6, 0.4)}, (X12, Y12), ValueError, "less than 1"),
    ({"noise_rates": "guess"}, (X12, Y12), ValueError, "estimate"),
    ({"noise_rates": "estimate"}, (X12, np.arange(12) % 3), ValueError, "binary"),
    ({"noise_rates": (0.1, 0.1)}, (X12, np.arange(12) % 3), ValueError, "binary"),
]


@pytest.mark.parametrize("params, call, error, message", BAD)
def test_bad_input(params, call, error, message):
    model = HLClassifier(gamma=0.5).fit(X12[:8], Y12[:8]).set_params(**params)
    attributes = dict(vars(model))
    with pytest.raises(error, match=message) as caught:
        model.fit(*call)
    assert len(str(caught.value).splitlines()) <= 8
    assert vars(model) == attributes
