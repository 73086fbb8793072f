"""The scikit-learn contract."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from activehuber import HLClassifier, HLClassifierCV, HLRegressor, HLRegressorCV, LabelledKFold
from tests import oracles


@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        HLRegressor(),
        HLRegressor(threshold=1.0, kernel="laplacian"),
        HLRegressor(threshold="refine", threshold_step=1e-6, kernel="linear"),
        HLRegressor(threshold=np.inf, kernel="poly", fit_intercept=False),
        HLRegressor(manifold=1e-3, threshold=1.0, graph="rbf", kernel="rbf"),
        HLRegressor(approximation="nystrom", random_state=0),
        HLRegressor(approximation="fourier", threshold=1.0, n_components=200, random_state=0),
        HLRegressor(approximation="linear", threshold=1.0, block_size=7),
    ]
)
def test_checks(estimator, check):
    if "sample_weight_equivalence" in repr(check) and estimator.manifold > 0:
        pytest.skip("with a graph weights act on the loss alone, by contract")
    check(estimator)


def test_pipeline_search_and_scoring_with_unlabelled_rows():
    X, y, *_ = oracles.curve(120, 1)
    y[60:] = np.nan
    search = GridSearchCV(
        make_pipeline(StandardScaler(), HLRegressor()),
        {"hlregressor__alpha": [1e-3, 1e-1], "hlregressor__kernel": ["rbf", "linear"]},
        cv=LabelledKFold(4),
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_["hlregressor__kernel"] == "rbf"
    scores = cross_val_score(
        HLRegressor(manifold=1e-3), X, y, cv=LabelledKFold(3, shuffle=True, random_state=0)
    )
    assert scores.shape == (3,) and np.all(np.isfinite(scores))


def test_score_skips_unlabelled_rows():
    X, y, *_ = oracles.curve(60, 2)
    model = HLRegressor().fit(X, y)
    partly = y.copy()
    partly[30:] = np.nan
    # Thirty rows and sixty may be multiplied in another order.
    assert model.score(X, partly) == pytest.approx(r2_score(y[:30], model.predict(X[:30])))
    weights = np.arange(60.0)
    expected = r2_score(y[:30], model.predict(X[:30]), sample_weight=weights[:30])
    assert model.score(X, partly, sample_weight=weights) == pytest.approx(expected)
    with pytest.raises(ValueError, match="no label to score"):
        model.score(X, np.full(60, np.nan))


def test_clone_and_pickle():
    X, y, *_ = oracles.curve(50, 3)
    model = HLRegressor(alpha=1e-2, threshold=0.3).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.loo_residuals_, model.loo_residuals_)
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "dual_coef_")


def corrupted():
    """Features, and labels of which the first twelve are wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.1 * rng.normal(size=120)
    y[:12] += rng.choice([-3.0, 3.0], 12)
    return X, y


@pytest.mark.parametrize(
    "model",
    [
        HLRegressor(gamma=16.0),
        HLClassifier(gamma=16.0),
        HLRegressorCV(kernels=["rbf"], gammas=[16.0]),
        HLClassifierCV(kernels=["rbf"], gammas=[16.0]),
    ],
    ids=repr,
)
def test_a_clone_fits_alike(model):
    """Nothing that a fit goes by hides where `clone` does not look."""
    X, y = corrupted()
    y = np.where(y > 0.0, 1.0, -1.0) if is_classifier(model) else y
    fitted = model.fit(X, y)
    for each in (fitted, getattr(fitted, "best_estimator_", fitted)):
        again = clone(each).fit(X, y)
        np.testing.assert_array_equal(again.removed_, each.removed_)
        np.testing.assert_array_equal(again.predict(X), each.predict(X))


@pytest.mark.parametrize("params", [{}, {"manifold": 1e-2}, {"kernel": "precomputed"}])
def test_no_matrix_is_kept(params):
    X, y, *_ = oracles.curve(300, 3)
    X = oracles.gram("rbf", X) if params.get("kernel") else X
    model = HLRegressor(threshold=0.3, **params).fit(X, y)
    _ = model.label_quality_
    assert len(pickle.dumps(model)) < 300 * 300


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_frames(frame):
    X, y, *_ = oracles.curve(40, 4)
    y[30:] = np.nan
    columns = {"a": X[:, 0], "b": X[:, 1]}
    make, series = (pd.DataFrame, pd.Series) if frame == "pandas" else (pl.DataFrame, pl.Series)
    model = HLRegressor().fit(make(columns), series(y))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(
        model.predict(make(columns)), HLRegressor().fit(X, y).predict(X)
    )
    with pytest.raises(ValueError):
        model.predict(make({"b": X[:, 1], "a": X[:, 0]}))


def test_missing_labels_of_frames():
    X, y, *_ = oracles.curve(20, 4)
    nullable = pd.Series([*y[:15], *[pd.NA] * 5], dtype="Float64")
    nulls = pl.Series([*y[:15], *[None] * 5])
    expected = HLRegressor().fit(X, [*y[:15], *[np.nan] * 5]).predict(X)
    for labels in (nullable, nulls):
        np.testing.assert_array_equal(HLRegressor().fit(X, labels).predict(X), expected)


def test_float32_and_integers():
    X, y, *_ = oracles.curve(40, 5)
    model = HLRegressor(threshold=0.3).fit(X.astype(np.float32), y.astype(np.float32))
    assert model.duality_gap_ <= 1e-9
    np.testing.assert_allclose(
        model.predict(X), HLRegressor(threshold=0.3).fit(X, y).predict(X), atol=1e-3
    )
    HLRegressor().fit(np.arange(20).reshape(-1, 1), np.arange(20))


def test_transformers_with_set_output():
    X, y, *_ = oracles.curve(40, 6)
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler(), HLRegressor()).set_output(transform="pandas")
    pipeline.fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b"]


def test_metadata_routing():
    X, y, wrong, _ = oracles.curve(60, 7)
    with sklearn.config_context(enable_metadata_routing=True):
        model = HLRegressor(gamma=0.5).set_fit_request(sample_weight=True, trusted=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipeline.fit(X, y, sample_weight=np.ones(60), trusted=wrong)
        assert not pipeline[-1].removed_[wrong].any()


def test_precomputed_in_cross_validation():
    X, y, *_ = oracles.curve(60, 8)
    K = oracles.gram("rbf", X, gamma=0.5)
    by_kernel = cross_val_score(HLRegressor(kernel="precomputed"), K, y, cv=4)
    by_rows = cross_val_score(HLRegressor(gamma=0.5), X, y, cv=4)
    np.testing.assert_allclose(by_kernel, by_rows, atol=1e-7)


@pytest.mark.parametrize("name", ["loo_residuals_", "label_quality_", "scale_", "dual_coef_"])
def test_unfitted(name):
    assert not hasattr(HLRegressor(), name)
    with pytest.raises(NotFittedError):
        HLRegressor().predict([[1.0]])


def test_prediction_goes_in_blocks(rng):
    """Many more rows than a block holds, and a number that blocks do not divide."""
    X, y, *_ = oracles.curve(700, 9)
    model = HLRegressor(gamma=0.5, threshold=0.3).fit(X, y)
    Z = rng.normal(size=(2503, 2))
    expected = oracles.gram("rbf", Z, X, gamma=0.5) @ model.dual_coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(Z), expected, atol=1e-9)


def test_labelled_k_fold_covers_every_label_once():
    y = np.where(np.arange(30) % 3 == 0, np.nan, np.arange(30.0))
    tested = []
    for train, test in LabelledKFold(4, shuffle=True, random_state=0).split(
        y.reshape(-1, 1), y
    ):
        assert np.all(
            np.isnan(y[np.setdiff1d(np.arange(30), test)])
            | np.isin(np.setdiff1d(np.arange(30), test), train)
        )
        assert set(np.flatnonzero(np.isnan(y))) <= set(train)
        assert not set(train) & set(test) and len(train) + len(test) == 30
        tested.extend(test)
    assert sorted(tested) == np.flatnonzero(~np.isnan(y)).tolist()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_stratified_folds_with_any_missing_marker(missing):
    y = np.array(["a", "b"] * 10 + [missing] * 5, dtype=object)
    for train, test in LabelledKFold(5, stratify=True).split(np.zeros((25, 1)), y):
        assert sorted(y[test]) == ["a", "a", "b", "b"]
        assert set(range(20, 25)) <= set(train)
