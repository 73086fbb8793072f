"""Labels judged by those of other groups: against fits without the group, and as it is used."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

from activehuber import HLClassifier, HLClassifierCV, HLRegressor, HLRegressorCV, View
from activehuber.estimators.groups import group_numbers
from activehuber.persistence.model_files import regressor_of, regressor_state


def visits(rng, people=24, times=5, wrong=3):
    """Everyone comes several times, nearly alike; some have the same wrong value each time."""
    person = np.repeat(np.arange(people), times)
    Z = rng.normal(size=(people, 2))
    X = Z[person] + 0.02 * rng.normal(size=(len(person), 2))
    own = 3.0 * Z[:, 0] + np.sin(2.0 * Z[:, 1])
    own[:wrong] += 12.0
    return X, own[person] + 0.1 * rng.normal(size=len(person)), person


def without(model, X, y, rows, **how):
    """The residuals of rows in the fit without their labels, everything else as it was."""
    share = model.n_labelled_ / (model.n_labelled_ - np.sum(~model.removed_[rows]))
    given = np.where(model.removed_, np.nan, y)
    given[rows] = np.nan
    again = clone(model).set_params(
        gamma=model.gamma_,
        alpha=share * model.alpha,
        manifold=share * model.manifold,
        threshold=np.inf,
    )
    return y[rows] - again.fit(X, given, **how).predict(X[rows])


@pytest.mark.parametrize(
    "how",
    [
        {"threshold": np.inf},
        {"fit_intercept": False, "threshold": np.inf},
        {},
        {"manifold": 1e-3, "threshold": np.inf},
        {"approximation": "nystrom", "n_components": 40, "random_state": 0},
    ],
)
def test_residuals_are_those_of_fits_without_the_group(how, rng):
    X, y, person = visits(rng)
    y[100:] = np.nan  # whose rows shape a fit with a graph
    names = np.array([f"p{number}" for number in person], dtype=object)
    names[95:] = None  # groups of their own
    model = HLRegressor(gamma=0.5, alpha=1e-3, **how).fit(X, y, groups=names)
    found = model.loo_residuals_
    for rows in (np.arange(5), np.arange(20, 25), np.array([97])):
        if how.get("approximation") is None or not np.any(model.removed_):
            np.testing.assert_allclose(found[rows], without(model, X, y, rows), atol=1e-7)
        if how.get("manifold") is None:
            again = model.loo_refit(rows)
            np.testing.assert_allclose(found[rows], again, atol=1e-7)
    assert np.all(np.isnan(found[100:]))
    plain = HLRegressor(gamma=0.5, alpha=1e-3, **how).fit(X, y).loo_residuals_
    assert np.nanmax(np.abs(plain - found)[:95]) > 0.1


def test_copies_of_a_wrong_value_are_found_with_groups_alone():
    """A patient seen five times at one place: the five outvote the neighbours."""
    rng = np.random.default_rng(1)
    x = np.concatenate([np.linspace(0.0, 6.0, 60), 3.02 + 1e-3 * np.arange(5)])[:, None]
    patient = np.concatenate([np.arange(60), np.full(5, 60)])
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=65)
    y[60:] += 1.5
    model = HLRegressor(gamma=20.0, alpha=1e-3)
    alone, found = clone(model).fit(x, y), clone(model).fit(x, y, groups=patient)
    assert np.any(alone.removed_) and not np.any(alone.removed_[60:])
    assert np.flatnonzero(found.removed_).tolist() == [60, 61, 62, 63, 64]
    assert np.all(found.label_quality_[60:] < 0.1)
    scales = [model.result_.evidence[0].loo_scales for model in (alone, found)]
    assert np.all(scales[1][60:] > 1.02 * scales[0][60:])


def test_a_search_chooses_a_kernel_that_tells_of_others(rng):
    X, y, person = visits(rng, people=40)
    y += 2.0 * rng.normal(size=40)[person]  # what no other person can know
    wrong = person < 3
    search = HLRegressorCV(kernels=["rbf"])
    alone, found = clone(search).fit(X, y), clone(search).fit(X, y, groups=person)
    assert np.all(found.removed_[wrong]) and np.mean(found.removed_[~wrong]) < 0.05
    assert np.max(found.best_params_["gamma"]) < 0.3 * np.max(alone.best_params_["gamma"])
    # What it promises holds for people it has not seen.
    assert np.nanmedian(np.abs(found.loo_residuals_)) > 0.5
    assert np.nanmedian(np.abs(alone.loo_residuals_)) < 0.3


@pytest.mark.parametrize("alpha", [1e-12, 1e-8, 1e-4])
@pytest.mark.parametrize("how", [{}, {"approximation": "nystrom", "n_components": 20}])
def test_copies_at_a_tiny_alpha_are_left_out_to_many_digits(alpha, how, rng):
    """What they tell beyond each other is lost in rounding: there it is fitted again."""
    X, person = np.repeat(rng.normal(size=(20, 2)), 4, axis=0), np.arange(80) // 4
    y = X[:, 0] + 0.1 * rng.normal(size=80)
    model = HLRegressor(gamma=0.3, alpha=alpha, threshold=np.inf, random_state=0, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 1e-12 is not certified to the last digit
        model.fit(X, y, groups=person)
    found, again = model.loo_residuals_, model.loo_refit(np.arange(0, 80, 3))
    assert np.max(np.abs(again)) < 1e3
    np.testing.assert_allclose(found[::3], again, rtol=1e-3, atol=1e-3)
    assert np.all(np.isfinite(model.result_.evidence[0].loo_scales))


def test_neither_order_nor_units_nor_names_decide(rng):
    X, y, person = visits(rng)
    X[10], y[10] = X[3], y[3]  # a copy in another group
    model = HLRegressor(gamma=0.5, alpha=1e-4)
    first = clone(model).fit(X, y, groups=person)
    order = rng.permutation(len(y))
    second = clone(model).fit(X[order], y[order], groups=person[order])
    np.testing.assert_array_equal(second.removed_, first.removed_[order])
    np.testing.assert_allclose(second.loo_residuals_, first.loo_residuals_[order], atol=1e-9)
    renamed = np.array(["abc"[number % 3] + str(number) for number in person])
    third = clone(model).fit(X, 1000.0 * y - 7.0, groups=pd.Series(renamed))
    np.testing.assert_array_equal(third.removed_, first.removed_)
    np.testing.assert_allclose(third.loo_residuals_, 1000.0 * first.loo_residuals_, atol=1e-6)


def test_weights_are_repetitions_in_their_group(rng):
    X, y, person = visits(rng, people=16)
    weights = np.where(np.arange(len(y)) % 4 == 1, 2.0, 1.0)
    groups = np.where(person < 12, person, np.nan)
    twice = np.repeat(np.arange(len(y)), weights.astype(int))
    model = HLRegressor(gamma=0.5, alpha=1e-3)
    once = clone(model).fit(X, y, weights, groups=groups)
    many = clone(model).fit(X[twice], y[twice], groups=groups[twice])
    np.testing.assert_allclose(many.loo_residuals_, once.loo_residuals_[twice], atol=1e-7)
    np.testing.assert_allclose(many.label_quality_, once.label_quality_[twice], atol=1e-5)


def test_trusted_unlabelled_views_and_several_targets(rng):
    X, y, person = visits(rng, wrong=0)
    Y = np.stack([y, -2.0 * y], axis=1)
    Y[100:, 1] = np.nan
    trusted = person == 0
    views = [View([0], gamma=1.0), View([1], gamma=1.0)]
    model = HLRegressor(views=views, alpha=1e-5).fit(X, Y, trusted=trusted, groups=person)
    assert not np.any(model.removed_[trusted])
    assert np.all(model.label_quality_[trusted, 0] == 1.0)
    one = HLRegressor(views=views, alpha=1e-5).fit(X, y, trusted=trusted, groups=person)
    np.testing.assert_allclose(model.loo_residuals_[:, 0], one.loo_residuals_, atol=1e-9)
    assert np.array_equal(np.isnan(model.loo_residuals_), np.isnan(Y))


@pytest.mark.parametrize("classes", [2, 3])
def test_classes(classes, rng):
    """Three patients have the class of another region, each at all of their visits."""
    person = np.repeat(np.arange(60), 4)
    Z = np.stack([np.arange(60) % classes * 6.0, np.zeros(60)], axis=1)
    Z += 0.7 * rng.normal(size=(60, 2))
    X = Z[person] + 0.02 * rng.normal(size=(240, 2))
    y = np.array(["a", "b", "c"])[np.arange(60) % classes]
    y[:3] = np.array(["b", "c", "a"] if classes == 3 else ["b", "a", "b"])
    wrong = person < 3
    found = HLClassifierCV(kernels=["rbf"]).fit(X, y[person], groups=person)
    assert np.all(found.removed_[wrong]) and not np.any(found.removed_[~wrong])
    alone = HLClassifier(gamma=10.0, alpha=1e-5).fit(X, y[person])
    assert not np.any(alone.removed_[wrong])


def test_a_search_by_splits_keeps_groups_together(rng):
    X, y, person = visits(rng, wrong=0)
    how = {"kernels": ["rbf"], "gammas": [0.3, 100.0], "alphas": [1e-4], "scoring": "r2"}
    by_number = HLRegressorCV(cv=4, **how).fit(X, y, groups=person)
    given = list(GroupKFold(4).split(X, y, group_numbers(person, len(y))))
    by_pairs = HLRegressorCV(cv=given, **how).fit(X, y, groups=person)
    without = HLRegressorCV(cv=4, **how).fit(X, y)
    scores = [found.cv_results_["mean_test_score"] for found in (by_number, by_pairs, without)]
    np.testing.assert_allclose(scores[0], scores[1])
    assert np.all(scores[0] != scores[2])


def test_a_saved_fit_says_the_same(rng):
    X, y, person = visits(rng)
    model = HLRegressor(gamma=0.5).fit(X, y, groups=person)
    loaded = regressor_of(regressor_state(model))
    np.testing.assert_array_equal(loaded.loo_residuals_, model.loo_residuals_)
    np.testing.assert_array_equal(loaded.label_quality_, model.label_quality_)
    np.testing.assert_array_equal(loaded.predict_interval(X[:5]), model.predict_interval(X[:5]))


# --- what may be given --------------------------------------------------------------------


def test_names_of_groups():
    missing = [None, float("nan"), pd.NA, pd.NaT, "", "  "]
    found = group_numbers(["b", *missing, "a", 1, 1.0, "1"], 11)
    assert found.tolist() == [3, *[-1] * 6, 2, 0, 0, 1]
    assert group_numbers(None, 3) is None
    values = pd.Series(["x", None, "y", "x"], dtype="category")
    assert group_numbers(values, 4).tolist() == [0, -1, 1, 0]
    assert group_numbers(np.array([11, 5, 11]), 3).tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", [HLRegressor, HLRegressorCV, HLClassifier, HLClassifierCV])
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(40), "all 40 labels are in one group"),
        (np.arange(39), "one group a row"),
        ("patient", "one group a row"),
        (np.zeros((40, 2)), "one group a row"),
        ([[1]] * 39 + [[2, 3]], "words or numbers"),
    ],
)
def test_bad_groups_are_refused(kind, groups, message, rng):
    X, y = rng.normal(size=(40, 2)), np.tile([-1.0, 1.0], 20)
    with pytest.raises((ValueError, TypeError), match=message):
        kind().fit(X, y, groups=groups)


def test_groups_of_streams_are_refused(tmp_path):
    model = HLRegressor(approximation="nystrom")
    with pytest.raises(ValueError, match="groups need X in memory"):
        model.fit(tmp_path / "none.parquet", "y", groups=[1, 2])


def test_a_group_with_most_labels_is_told(rng):
    X, y, _ = visits(rng, wrong=0)
    most = np.where(np.arange(len(y)) < 80, 0.0, np.arange(len(y)))
    with pytest.warns(UserWarning, match="one group has 80 of 120 labels"):
        HLRegressor(gamma=0.5, alpha=1e-3, threshold=np.inf).fit(X, y, groups=most)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HLRegressor(gamma=0.5, alpha=1e-3).fit(X, y, groups=np.where(most, most, np.nan))
