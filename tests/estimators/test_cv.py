"""HLRegressorCV, HLClassifierCV, "loo" parameters and intervals."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from activehuber import (
    HLClassifierCV,
    HLRegressor,
    HLRegressorCV,
    LabelledKFold,
    View,
)
from activehuber.data.rows import ONE_THREAD_ROWS, blas_threads
from activehuber.estimators.prediction import scales_within
from activehuber.fitting.result import LabelEvidence
from activehuber.labels.error_scale import ErrorScale
from activehuber.selection.search import CLASS_RIDGES, RIDGES, WIDTH_FACTORS


# Some checks fit a dozen random labels: that more than a third of them go is right to say.
@pytest.mark.filterwarnings("ignore:.*labels were removed:UserWarning")
@parametrize_with_checks(
    [HLRegressorCV(kernels=["rbf"], alphas=[1e-3, 1e-2]), HLClassifierCV()]
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*labels were removed:UserWarning")
@parametrize_with_checks([HLRegressorCV()])
def test_scikit_learn_with_the_default_search(estimator, check):
    check(estimator)


@pytest.fixture
def table(rng):
    X = rng.normal(size=(140, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=140)
    y[:14] += rng.uniform(2.0, 5.0, 14)
    y[120:] = np.nan
    return X, y


def test_no_parameter_is_needed(table):
    X, y = table
    model = HLRegressorCV().fit(X, y)
    assert model.removed_[:14].all() and model.removed_.sum() <= 17
    assert model.duality_gap_ < 1e-9 and model.kkt_residual_ < 1e-8
    assert model.label_quality_[:14].max() < 0.5
    truth = np.sin(2.0 * X[:, 0])
    assert np.mean(np.abs(model.predict(X) - truth)) < 0.15
    assert isinstance(model.best_estimator_, HLRegressor)
    results = model.cv_results_
    assert len(results["params"]) == len(results["mean_test_score"]) > 40
    decided = results["stage"] == "decide"
    assert model.best_score_ == results["mean_test_score"][decided].max()


def test_the_best_parameters_make_the_best_estimator_again(table):
    X, y = table
    model = HLRegressorCV().fit(X, y)
    again = HLRegressor(**model.best_params_).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_relevance_names_the_feature_that_counts(table):
    X, y = table
    model = HLRegressorCV(relevance=True).fit(X, y)
    assert model.relevance_.shape == (3,)
    assert model.relevance_.sum() == pytest.approx(1.0)
    assert model.relevance_[0] > 0.6
    assert "relevance" in model.cv_results_["stage"]


def test_standardising_inside_equals_a_pipeline(table):
    X, y = table
    scaled = X * np.array([1.0, 100.0, 0.01]) + 5.0
    inside = HLRegressorCV(standardize=True).fit(scaled, y)
    outside = make_pipeline(StandardScaler(), HLRegressorCV()).fit(scaled, y)
    np.testing.assert_allclose(inside.predict(scaled), outside.predict(scaled), atol=1e-12)


def test_given_candidates_are_the_only_ones(table):
    X, y = table
    model = HLRegressorCV(kernels=["rbf"], gammas=[0.2, 0.7], alphas=[1e-4, 1e-2]).fit(X, y)
    assert model.best_params_["kernel"] == "rbf"
    assert model.best_params_["gamma"] == pytest.approx(0.2) or model.best_params_[
        "gamma"
    ] == pytest.approx(0.7)
    looked = model.cv_results_["stage"] == "look"
    assert looked.sum() == 4
    one = HLRegressorCV(kernels=["rbf"], gammas=[0.5], alphas=[1e-3]).fit(X, y)
    plain = HLRegressor(gamma=0.5, alpha=1e-3).fit(X, y)
    np.testing.assert_allclose(one.predict(X), plain.predict(X), atol=1e-10)


def test_a_graph_is_chosen_where_it_is_the_only_choice(table):
    X, y = table
    model = HLRegressorCV(kernels=["rbf"], manifolds=[1e-3]).fit(X, y)
    assert model.best_params_["manifold"] == 1e-3
    assert model.best_estimator_.duality_gap_ < 1e-9
    either = HLRegressorCV(kernels=["rbf"], manifolds=[0, 1e-3]).fit(X, y)
    tried = either.cv_results_["param_manifold"]
    assert set(tried) == {0.0, 1e-3}
    best = tried[np.argmax(either.cv_results_["mean_test_score"])]
    assert either.best_params_["manifold"] == best


def test_views_get_widths_of_their_own(table):
    X, y = table
    views = [View([0], name="good"), View([1, 2], kernel="laplacian", name="noise")]
    model = HLRegressorCV(views=views, relevance=True).fit(X, y)
    assert [view.gamma for view in views] == ["scale", "scale"]  # the caller's are untouched
    assert len(model.best_params_["views"]) == 2
    assert model.best_estimator_.dual_coef_.shape == (140, 2)


@pytest.mark.parametrize("cv", [3, KFold(3), LabelledKFold(3)])
def test_splitters(cv, table):
    X, y = table
    model = HLRegressorCV(cv=cv, kernels=["rbf"], gammas=[0.01, 0.5], alphas=[1e-3]).fit(X, y)
    assert model.best_params_["gamma"] == 0.5


def test_splitters_try_the_widths_and_ridges_of_the_closed_form(table):
    X, y = table
    total = np.count_nonzero(~np.isnan(y))
    by_splits = HLRegressorCV(cv=2, manifolds=[0, 1e-3]).fit(X, y)
    found = by_splits.cv_results_
    gammas = HLRegressor().fit(X, y).result_.settings.views[0].kernel.gamma * np.array(
        WIDTH_FACTORS
    )
    for kernel, manifold in product(("laplacian", "matern"), (0.0, 1e-3)):
        mine = (found["param_kernel"] == kernel) & (found["param_manifold"] == manifold)
        assert np.sum(mine) == len(WIDTH_FACTORS) * len(RIDGES)
        tried = np.unique(found["param_gamma"][mine].astype(float))
        np.testing.assert_allclose(tried, np.sort(gammas), rtol=1e-12)
        alphas = np.unique(found["param_alpha"][mine].astype(float))
        np.testing.assert_allclose(alphas, np.sort(RIDGES) / (2.0 * total), rtol=1e-12)
    codes = np.where(np.isnan(y), np.nan, np.sign(y - np.nanmedian(y)) + (y == np.nanmedian(y)))
    classes = HLClassifierCV(cv=2, kernels=["rbf"], gammas=[0.5]).fit(X, codes)
    ridges = 2.0 * total * np.array(classes.cv_results_["param_alpha"], dtype=float)
    np.testing.assert_allclose(np.sort(ridges), CLASS_RIDGES, rtol=1e-12)


def test_splitters_move_the_widths_of_views(table):
    X, y = table
    views = [View([0], gamma=0.5, name="a"), View([1, 2], kernel="poly", name="b")]
    model = HLRegressorCV(cv=2, views=views, gammas=[0.1, 1.0], alphas=[1e-3])
    tried = [params["views"] for params in model.fit(X, y).cv_results_["params"]]
    np.testing.assert_allclose([first.gamma for first, _ in tried], [0.05, 0.5])
    assert len({second.gamma for _, second in tried}) == 1  # a polynomial has no width


def test_one_width_a_feature_is_for_kernels_that_have_one(table):
    X, y = table
    with pytest.raises(
        ValueError, match="relevance=True is for the kernels laplacian, rbf, matern"
    ):
        HLRegressorCV(relevance=True, kernels=["rbf", "poly"]).fit(X, y)
    views = [View([0], name="a"), View([1, 2], kernel="linear", name="b")]
    HLRegressorCV(relevance=True, views=views).fit(X, y)


def test_scorers_see_leave_one_out_predictions(table):
    X, y = table
    model = HLRegressorCV(
        scoring="neg_median_absolute_error", kernels=["rbf"], gammas=[0.5], alphas=[1e-3, 1e-1]
    ).fit(X, y)
    given = ~np.isnan(y)
    best = HLRegressor(gamma=0.5, alpha=model.best_params_["alpha"]).fit(X, y)
    errors = np.abs(best.loo_residuals_[given])
    assert -np.median(errors) == pytest.approx(model.cv_results_["mean_test_score"].max())


def test_frames_and_pipelines(table):
    X, y = table
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = HLRegressorCV().fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict(frame), HLRegressorCV().fit(X, y).predict(X))
    labelled = ~np.isnan(y)
    scores = cross_val_score(HLRegressorCV(), X[labelled][14:], y[labelled][14:], cv=3)
    assert scores.min() > 0.5


def test_loo_parameters_are_the_same_machinery(table):
    X, y = table
    model = HLRegressor(kernel="rbf", alpha="loo", gamma="loo").fit(X, y)
    search = HLRegressorCV(kernels=["rbf"]).fit(X, y)
    np.testing.assert_allclose(model.predict(X), search.predict(X), atol=1e-12)
    assert model.alpha_ == pytest.approx(search.best_params_["alpha"])
    fixed = HLRegressor(alpha="loo", gamma=0.4).fit(X, y)
    assert fixed.gamma_ == 0.4 and fixed.alpha == "loo"
    assert clone(model).alpha == "loo"


BAD = [
    ({"kernels": "rbf"}, TypeError, "kernels"),
    ({"kernels": []}, ValueError, "kernels"),
    ({"kernels": ["wide"]}, ValueError, "kernel"),
    ({"gammas": []}, ValueError, "gammas"),
    ({"gammas": [-1.0]}, ValueError, "gammas"),
    ({"alphas": ["a"]}, TypeError, "alphas"),
    ({"manifolds": [-1]}, ValueError, "manifolds"),
    ({"manifolds": []}, ValueError, "manifolds"),
    ({"removal": 3.5}, ValueError, "removal"),
    ({"removal": 0.0}, ValueError, "removal"),
    ({"relevance": "yes"}, TypeError, "relevance"),
    ({"relevance": True, "gammas": [0.1]}, ValueError, "relevance"),
    ({"scoring": "nonsense"}, ValueError, None),
]


@pytest.mark.parametrize(("params", "error", "words"), BAD)
def test_bad_parameters(params, error, words, table):
    X, y = table
    with pytest.raises(error, match=words):
        HLRegressorCV(**params).fit(X, y)


def test_loo_is_refused_where_it_means_nothing(table):
    X, y = table
    with pytest.raises(ValueError, match="gamma"):
        HLRegressor(kernel="linear", gamma="loo").fit(X, y)
    with pytest.raises(ValueError, match="one target"):
        HLRegressor(alpha="loo").fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="one target"):
        HLRegressorCV().fit(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize(
    ("n", "d"), [(3, 1), (5, 2), (9, 1), (9, 30), (30, 60)], ids=lambda v: str(v)
)
def test_few_labels_and_many_features(n, d, rng):
    X = rng.normal(size=(n, d))
    y = X[:, 0] + 0.01 * rng.normal(size=n)
    for relevance in (False, True):
        model = HLRegressorCV(relevance=relevance).fit(X, y)
        assert np.all(np.isfinite(model.predict(X)))


def test_degenerate_tables(rng):
    X = rng.normal(size=(30, 3))
    X[:, 1] = 4.0
    y = X[:, 0].copy()
    assert np.all(np.isfinite(HLRegressorCV(relevance=True).fit(X, y).predict(X)))
    constant = HLRegressorCV().fit(X, np.full(30, 7.0))
    np.testing.assert_allclose(constant.predict(X), 7.0)
    with pytest.raises(ValueError, match="at least 3 labels"):
        HLRegressorCV().fit(X, np.where(np.arange(30) < 2, 1.0, np.nan))


# --- classes ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("relevance", [False, True])
def test_classes(n_classes, relevance, rng):
    X = rng.normal(size=(150, 3))
    y = np.digitize(X[:, 0], np.quantile(X[:, 0], np.arange(1, n_classes) / n_classes))
    names = np.array(["a", "b", "c"], dtype=object)[y]
    names[140:] = None
    model = HLClassifierCV(relevance=relevance).fit(X, names)
    assert model.score(X, np.array(["a", "b", "c"], dtype=object)[y]) > 0.93
    assert model.predict_proba(X).shape == (150, n_classes)
    assert list(model.classes_) == ["a", "b", "c"][:n_classes]
    if relevance:
        assert model.relevance_[0] > 1.2 * max(model.relevance_[1:])


def test_classes_by_splits(rng):
    X = rng.normal(size=(90, 2))
    y = (X[:, 0] > 0).astype(int)
    model = HLClassifierCV(cv=3, kernels=["rbf"], gammas=[1e-3, 0.5], alphas=[1e-3]).fit(X, y)
    assert model.best_score_ > 0.85
    with pytest.raises(ValueError, match="cv"):
        HLClassifierCV(scoring="accuracy").fit(X, y)


def test_flipped_classes_call_for_more_smoothing_than_clean_ones(rng):
    X = rng.normal(size=(400, 4))
    clean = np.sign(X[:, 0])
    flipped = np.where(rng.random(400) < 0.35, -clean, clean)
    ridges = {}
    for name, y in (("clean", clean), ("flipped", flipped)):
        model = HLClassifierCV(kernels=["linear"]).fit(X[:300], y[:300])
        ridges[name] = 2.0 * 300 * model.best_params_["alpha"]
        assert model.score(X[300:], clean[300:]) > 0.85
    assert ridges["flipped"] > 3.0 * ridges["clean"]


def test_classes_that_features_say_nothing_of_are_smoothed_away(rng):
    X, y = rng.normal(size=(200, 4)), np.repeat([0, 1], 100)
    model = HLClassifierCV(kernels=["linear"]).fit(X, y)
    assert 2.0 * 200 * model.best_params_["alpha"] > 30.0
    assert np.ptp(model.decision_function(X)) < 1.0


@pytest.mark.parametrize("seed", [0, 7])
def test_classes_that_overlap_are_not_thinned_out(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 2))
    y = np.where(X[:, 0] + 1.5 * rng.normal(size=100) > 0.8, 1, -1)
    model = HLClassifierCV(kernels=["rbf"]).fit(X, y)
    assert model.removed_.mean() <= 0.1


def test_wrong_labels_of_separate_classes_are_still_dropped():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    X[:60] += 4.0
    y = np.repeat(["a", "b"], 60).astype(object)
    y[[5, 70]] = "b", "a"
    y[110:] = None
    model = HLClassifierCV().fit(X, y)
    assert np.flatnonzero(model.removed_).tolist() == [5, 70]


# --- intervals --------------------------------------------------------------------------


def test_intervals_hold_what_they_promise():
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(900, 2))
        y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=900)
        y[:15] += 5.0
        model = HLRegressor(gamma=0.5, alpha=1e-4).fit(X[:200], y[:200])
        ends = model.predict_interval(X[200:], coverage=0.9)
        inside.append(np.mean((ends[:, 0] <= y[200:]) & (y[200:] <= ends[:, 1])))
    assert 0.87 < np.mean(inside) < 0.93


def test_removed_labels_that_are_not_far_out_are_asked_how_wide_an_interval_is():
    errors = np.append(np.linspace(-2.0, 2.0, 9), [4.9, -30.0, np.nan])
    removed = np.arange(12) >= 9
    scale, nothing = ErrorScale(1.0, 9.0), np.ones(12)
    evidence = LabelEvidence(scale, 2.0 * errors, 2.0 * nothing, nothing, nothing > 0.0)
    assert scales_within(evidence, removed, nothing, 0.99) == 4.9
    assert scales_within(evidence, removed, nothing, 0.8) == 2.0
    everyone = np.zeros(12, dtype=bool)
    assert scales_within(evidence, everyone, nothing, 0.99) == 30.0


def test_intervals_are_wider_by_the_parameters_that_were_chosen(table):
    X, y = table
    model = HLRegressorCV(kernels=["rbf"], relevance=True).fit(X, y)
    widths = np.ravel(np.diff(model.predict_interval(X)))
    plain = np.ravel(np.diff(model.best_estimator_.predict_interval(X)))
    p = model.n_chosen_
    assert p in (2, 4)  # alpha, and one width or three
    np.testing.assert_allclose(widths / plain, np.sqrt((120 + p) / (120 - p)), rtol=1e-12)
    on_folds = HLRegressorCV(kernels=["rbf"], alphas=[1e-3], cv=3).fit(X[:120], y[:120])
    assert on_folds.n_chosen_ == 0


def test_intervals_widen_as_the_bordered_system_says(rng):
    X, Z = rng.normal(size=(30, 2)), rng.normal(size=(7, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    model = HLRegressor(gamma=0.5, alpha=1e-3, threshold=np.inf).fit(X, y)
    mu = 2 * 30 * 1e-3
    ones = np.ones((30, 1))
    A = rbf_kernel(X, gamma=0.5) + mu * np.eye(30)
    B = np.block([[A, ones], [ones.T, np.zeros((1, 1))]])
    k = np.vstack([rbf_kernel(X, Z, gamma=0.5), np.ones((1, 7))])
    q = 1.0 - np.einsum("ij,ij->j", k, np.linalg.solve(B, k))
    ends = model.predict_interval(Z)
    widths = ends[:, 1] - ends[:, 0]
    scale = model.result_.evidence[0].scale
    level = np.arcsinh((model.predict(Z) - scale.centre) / scale.spread) - scale.middle
    level = np.clip(level, scale.lowest, scale.highest)
    noise = scale.sigma**2 * np.exp(2.0 * scale.exponent * level)
    expected = np.sqrt(np.minimum(scale.sigma**2 * q / mu, scale.variance) + noise)
    np.testing.assert_allclose(widths / widths[0], expected / expected[0], rtol=1e-9)


def test_intervals_of_several_targets_and_bad_coverage(rng):
    X = rng.normal(size=(50, 2))
    Y = np.stack([X[:, 0], 10.0 * X[:, 1]], axis=1) + 0.1 * rng.normal(size=(50, 2))
    model = HLRegressor().fit(X, Y)
    ends = model.predict_interval(X)
    assert ends.shape == (50, 2, 2)
    alone = HLRegressor().fit(X, Y[:, 1]).predict_interval(X)
    np.testing.assert_allclose(ends[:, :, 1], alone, atol=1e-8)
    for coverage in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="coverage"):
            model.predict_interval(X, coverage=coverage)
    # With a graph it is not known what is open at a new row: the widths are the same.
    ends = HLRegressor(manifold=1e-3, threshold=np.inf).fit(X, X[:, 0]).predict_interval(X)
    assert np.all(ends[:, 1] > ends[:, 0])


def test_a_view_has_no_loo_width(table):
    X, y = table
    with pytest.raises(ValueError, match="gamma"):
        HLRegressor(views=[View([0], gamma="loo"), View([1, 2])]).fit(X, y)


def test_agreement_and_graphs_of_views_are_searched_too(table):
    X, y = table
    views = [View([0], name="good"), View([1, 2], name="noise")]
    model = HLRegressorCV(views=views, agreement=1e-4, manifolds=[1e-4])
    model.fit(X, y)
    assert model.best_estimator_.agreement == 1e-4
    assert model.best_params_["manifold"] == 1e-4
    assert model.duality_gap_ < 1e-9
    loo = HLRegressor(views=views, agreement=1e-4, alpha="loo").fit(X, y)
    assert loo.alpha_ > 0.0


def test_many_rows_are_searched_in_parts():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(900, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=900)
    y[:90] += 4.0
    model = HLRegressorCV(kernels=["rbf"]).fit(X, y)
    assert model.removed_[:90].mean() > 0.95
    assert np.mean(np.abs(model.predict(X) - np.sin(2.0 * X[:, 0]))) < 0.05


def test_without_noise_the_fit_is_certified_and_drops_what_is_wrong(rng):
    """Two fifths of the signs are turned; a threshold at the level of rounding would win."""
    X = rng.uniform(size=(300, 10))
    y = X.mean(axis=1)
    wrong = rng.permutation(300)[:120]
    y[wrong] *= -1.0
    with pytest.warns(UserWarning, match="120 of 300 labels were removed"):
        model = HLRegressorCV(kernels=("linear",), fit_intercept=False).fit(X, y)
    assert model.best_estimator_.kkt_residual_ <= 1e-8
    assert np.array_equal(np.flatnonzero(model.removed_), np.sort(wrong))


def test_scores_skip_rows_without_a_label(rng):
    X = rng.normal(size=(80, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=80)
    partly = y.copy()
    partly[60:] = np.nan
    search = HLRegressorCV(kernels=["rbf"], alphas=[1e-3], gammas=[1.0]).fit(X, partly)
    assert search.score(X, partly) == search.best_estimator_.score(X, partly)
    words = np.where(y > 0, "up", "down").astype(object)
    words[60:] = None
    chosen = HLClassifierCV(kernels=["rbf"], alphas=[1e-3], gammas=[1.0]).fit(X, words)
    assert chosen.score(X, words) == np.mean(chosen.predict(X[:60]) == words[:60])


@pytest.mark.parametrize(("n_rows", "limited"), [(60, True), (ONE_THREAD_ROWS + 1, False)])
def test_small_tables_get_one_blas_thread(n_rows, limited, rng):
    seen = []

    def kernel(A, B):
        seen.append(blas_threads())
        return rbf_kernel(A, B, gamma=0.5)

    X = rng.normal(size=(n_rows, 2))
    before = blas_threads()
    HLRegressor(kernel=kernel, threshold=1.0).fit(X, np.sin(X[:, 0]))
    assert set(seen) == {1 if limited else before}
    assert blas_threads() == before


def test_callable_and_repeated_kernels_are_added_up(table):
    X, y = table

    def narrow(x, z):
        return float(np.exp(-np.sum((x - z) ** 2)))

    def wide(x, z):
        return float(np.exp(-0.1 * np.sum((x - z) ** 2)))

    for kernels in (("rbf", "rbf"), ("rbf", narrow), (narrow, wide)):
        model = HLRegressorCV(kernels=kernels).fit(X[:60], y[:60])
        assert np.isfinite(model.predict(X)).all()
        tried = [len(p["views"]) for p in model.cv_results_["params"] if "views" in p]
        assert tried and set(tried) == {2}


def test_one_weight_for_all_rows_is_a_weight_for_each(rng):
    X = rng.normal(size=(40, 1))
    y = np.sin(X[:, 0])
    grid = {"kernels": ["rbf"], "gammas": [1.0], "alphas": [1e-3, 1.0], "cv": 3}
    once = HLRegressorCV(**grid).fit(X, y, sample_weight=2.0)
    each = HLRegressorCV(**grid).fit(X, y, sample_weight=np.full(40, 2.0))
    np.testing.assert_array_equal(once.predict(X), each.predict(X))
