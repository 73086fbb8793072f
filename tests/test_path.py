"""The path over the threshold: certified between its breakpoints, equal to single fits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from activehuber import (
    HLRegressor,
    ThresholdPathDisplay,
    View,
    huber_path,
)
from activehuber import path as path_module
from activehuber.graphs import build
from tests.oracles import curve, gram, kkt, objective

GAP, KKT = 1e-9, 1e-8


def certify(path, X, y, weights=None, count=8, **params):
    """Certificates at random thresholds, as the estimator computes them."""
    from activehuber.fitting import _Target, _Task
    from activehuber.problem import certificate

    model = HLRegressor(**params)
    data = model._check_data(X, y, weights, None)
    task = _Task(model._resolve(X, data), data)
    c = _Target(task, 0).reduction.weights
    s = np.where(np.isnan(path.y), 0.0, data.weights)[task.rows]
    low, high = np.log(path.thresholds[[-1, 0]])
    for xi in np.exp(np.random.default_rng(0).uniform(low, high, count)):
        coef, b = path.at(xi)
        coef = coef.reshape(len(coef), -1)[task.rows]
        proof = certificate(
            task.expansion.evaluate(coef, task.expansion.values(coef)),
            np.nan_to_num(path.y[task.rows]),
            s,
            b,
            xi,
            model.alpha,
            c,
            model.fit_intercept,
        )
        assert proof.duality_gap <= GAP
        assert proof.kkt_residual <= KKT


def data(variant, manifold):
    X, y, _, _ = curve(70, 3)
    if variant == "duplicates":
        X, y = np.concatenate([X[:35]] * 2), np.concatenate([y[:35]] * 2)
    elif variant == "constant":
        X = np.column_stack([X, np.ones(70)])
    elif variant == "ties":
        X, y = np.round(X), np.round(y)
    if manifold:
        y[::5] = np.nan
    return X, y


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("manifold", [0.0, 1e-2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("variant", ["plain", "duplicates", "constant", "ties"])
def test_certified_between_breakpoints(kernel, intercept, manifold, weighted, variant, rng):
    X, y = data(variant, manifold)
    weights = rng.uniform(0.3, 2.0, len(y)) if weighted else None
    params = {
        "kernel": kernel,
        "fit_intercept": intercept,
        "manifold": manifold,
        "alpha": 1e-3,
    }
    path = huber_path(X, y, weights, **params)
    assert path.complete
    assert path.thresholds[-1] == 1e-3 * path.thresholds[0]
    assert np.all(np.diff(path.thresholds) < 0)
    assert path.n_events >= 20
    certify(path, X, y, weights, **params)


def test_naive_certificate_at_every_breakpoint():
    X, y, _, _ = curve(50, 1)
    K = gram("rbf", X)
    path = huber_path(X, y, alpha=1e-2)
    for xi, w, b in zip(path.thresholds, path.dual_coef, path.intercept, strict=True):
        assert kkt(K, y, w, b, xi, 1e-2)[0] <= KKT
    # No other breakpoint is better at a threshold than the one that belongs to it.
    k = len(path.thresholds) // 2
    xi = path.thresholds[k]
    values = [
        objective(K, y, w, b, xi, 1e-2)
        for w, b in zip(path.dual_coef, path.intercept, strict=True)
    ]
    assert np.argmin(values) == k


@pytest.mark.parametrize(
    "params",
    [
        {"kernel": "rbf"},
        {"kernel": "rbf", "manifold": 1e-2, "n_neighbors": 5},
        {"kernel": "linear", "fit_intercept": False},
        {"kernel": "poly", "alpha": 1e-6},
        {"kernel": "rbf", "alpha": 1e-7},
        {"kernel": "rbf", "gamma": 0.01, "alpha": 1e-9},
        {"views": [View([0]), View([1], "linear")], "view_weights": [0.7, 0.3]},
        {"views": [View([0]), View([1])], "agreement": 1e-2},
    ],
)
def test_equals_single_fits(params):
    X, y, _, _ = curve(60, 2)
    y[50:] = np.nan
    params = {"alpha": 1e-3, **params}
    path = huber_path(X, y, **params)
    views = (2,) if "views" in params else ()
    assert path.dual_coef.shape == (len(path.thresholds), 60, *views)
    certify(path, X, y, **params)
    for share in (0.9, 0.3, 0.05, 0.003):
        xi = share * path.thresholds[0]
        model = HLRegressor(threshold=xi, **params).fit(X, y)
        ours = HLRegressor(threshold=xi, **params).fit(X, y)
        for fitted in ours._fitted:
            coef, b = path.at(xi)
            fitted.coefficients[...] = coef.reshape(60, -1)
        ours.intercept_ = b
        np.testing.assert_allclose(
            ours.predict(X), model.predict(X), atol=1e-8 * np.nanmax(np.abs(y))
        )


def test_least_squares_above_the_first_breakpoint():
    X, y, _, _ = curve(40, 0)
    model = HLRegressor(threshold=np.inf).fit(X, y)
    path = huber_path(X, y)
    np.testing.assert_allclose(path.thresholds[0], np.max(np.abs(model.residuals_)))
    for xi in (path.thresholds[0], 2 * path.thresholds[0], np.inf):
        coef, b = path.at(xi)
        np.testing.assert_allclose(coef, model.dual_coef_, atol=1e-9)
        np.testing.assert_allclose(b, model.intercept_)


@pytest.mark.parametrize("manifold", [0.0, 1e-2])
def test_states_agree_with_residuals(manifold):
    X, y, _, _ = curve(60, 5)
    y[::6] = np.nan
    path = huber_path(X, y, manifold=manifold, alpha=1e-3)
    labelled = ~np.isnan(y)
    assert np.all(path.states[:, ~labelled] == 2)
    # Unlabelled rows are part of the expansion only with a graph.
    assert np.all(np.isfinite(path.fitted[:, labelled]))
    assert np.all(np.isnan(path.fitted[:, ~labelled]) == (manifold == 0.0))
    upper, lower = path.residuals[:-1, labelled], path.residuals[1:, labelled]
    middle = 0.5 * (upper + lower)
    xi = 0.5 * (path.thresholds[:-1] + path.thresholds[1:])[:, None]
    expected = np.where(np.abs(middle) <= xi, 0, np.sign(middle))
    clear = np.abs(np.abs(middle) - xi) > 1e-9 * xi
    np.testing.assert_array_equal(path.states[:-1, labelled][clear], expected[clear])
    changes = np.count_nonzero(np.diff(path.states[:-1, labelled], axis=0))
    assert changes + np.count_nonzero(path.states[0, labelled]) == path.n_events


def test_fitted_values_are_predictions():
    X, y, _, _ = curve(50, 4)
    y[40:] = np.nan
    path = huber_path(X, y, alpha=1e-3, manifold=1e-2)
    k = len(path.thresholds) // 2
    model = HLRegressor(threshold=path.thresholds[k], alpha=1e-3, manifold=1e-2).fit(X, y)
    np.testing.assert_allclose(path.fitted[k], model.predict(X), atol=1e-9)


def test_intercept_without_free_labels():
    """Strong penalty and labels of two kinds: b is the middle of a plateau on most of it."""
    X = np.linspace(-1, 1, 10).reshape(-1, 1)
    y = np.where(np.arange(10) % 2 == 0, 1.0, -1.0) + 0.1 * X.ravel()
    path = huber_path(X, y, alpha=10.0, min_threshold=1e-4)
    assert np.any(np.all(path.states != 0, axis=1))
    certify(path, X, y, alpha=10.0)
    for xi in np.geomspace(1.1e-4, path.thresholds[0], 12):
        model = HLRegressor(threshold=xi, alpha=10.0).fit(X, y)
        np.testing.assert_allclose(path.at(xi)[1], model.intercept_, atol=1e-9)


def test_repeated_rows_are_weights():
    X, y, _, _ = curve(30, 6)
    weights = np.arange(30) % 3 + 1.0
    times = weights.astype(int)
    one = huber_path(X, y, weights, gamma=0.5, alpha=1e-3)
    other = huber_path(np.repeat(X, times, axis=0), np.repeat(y, times), gamma=0.5, alpha=1e-3)
    for xi in one.thresholds[0] * np.array([0.8, 0.2, 0.02, 0.002]):
        split = np.add.reduceat(other.at(xi)[0], np.cumsum(times) - times)
        np.testing.assert_allclose(split, one.at(xi)[0], atol=1e-8)
        np.testing.assert_allclose(other.at(xi)[1], one.at(xi)[1], atol=1e-9)


def test_min_threshold_and_max_events():
    X, y, _, _ = curve(50, 7)
    full = huber_path(X, y)
    short = huber_path(X, y, min_threshold=0.05)
    assert short.thresholds[-1] == 0.05
    assert short.complete
    np.testing.assert_allclose(short.at(0.06)[0], full.at(0.06)[0], atol=1e-10)
    with pytest.raises(ValueError, match="min_threshold"):
        short.at(0.04)
    stopped = huber_path(X, y, max_events=5)
    assert not stopped.complete
    assert stopped.n_events == 5
    np.testing.assert_allclose(stopped.thresholds, full.thresholds[:6])
    beyond = huber_path(X, y, min_threshold=1e6)
    assert beyond.complete
    assert len(beyond.thresholds) == 1


def test_labels_that_the_fit_fits_exactly_have_no_path():
    path = huber_path(np.arange(5.0).reshape(-1, 1), np.full(5, 2.0))
    assert path.complete
    assert len(path.thresholds) == 1
    np.testing.assert_allclose(path.at(0.1)[1], 2.0)


def test_fitted_regressor_leaves_out_what_it_removed():
    X, y, _, _ = curve(80, 8)
    model = HLRegressor(gamma=0.5).fit(X, y)
    assert np.any(model.removed_)
    path = model.threshold_path()
    assert np.all((path.states == 2) == model.removed_)
    labels = np.where(model.removed_, np.nan, y)
    np.testing.assert_allclose(path.y, labels)
    again = huber_path(X, labels, gamma=0.5)
    # Rounding decides whether a path was solved anew once more, which leaves a breakpoint.
    assert path.n_events == again.n_events
    ours, theirs = ([p.at(xi)[0] for xi in again.thresholds[:-1]] for p in (path, again))
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
    # At its own threshold the path passes through the fit.
    coef, b = path.at(model.threshold_)
    np.testing.assert_allclose(coef, model.dual_coef_, atol=1e-9)
    np.testing.assert_allclose(b, model.intercept_)


def test_fitted_views_and_targets():
    X, y, _, _ = curve(50, 9)
    views = [View([0], name="a"), View([1], "linear", name="b")]
    model = HLRegressor(views=views, view_weights="learn", threshold=0.2, alpha=1e-3)
    model.fit(X, np.stack([y, -2 * y + 1], axis=1))
    for target in (0, 1):
        path = model.threshold_path(target=target)
        coef, b = path.at(0.2)
        np.testing.assert_allclose(coef, model.dual_coef_[:, :, target], atol=1e-7)
        np.testing.assert_allclose(b, model.intercept_[target], atol=1e-8)
    with pytest.raises(ValueError, match="target must be from 0 to 1"):
        model.threshold_path(target=2)


def test_given_matrices():
    X, y, _, _ = curve(40, 10)
    K = gram("rbf", X)
    one, other = huber_path(K, y, kernel="precomputed"), huber_path(X, y)
    np.testing.assert_allclose(one.dual_coef, other.dual_coef, atol=1e-8)
    fitted = HLRegressor(kernel="precomputed").fit(K, y)
    with pytest.raises(ValueError, match="huber_path"):
        fitted.threshold_path()
    affinity = (np.abs(build("knn", X, n_neighbors=5, gamma=1.0, precomputed=False)) > 0) * 1.0
    affinity = np.asarray(affinity.todense() if hasattr(affinity, "todense") else affinity)
    np.fill_diagonal(affinity, 0.0)
    params = {"graph": affinity, "manifold": 1e-2}
    certify(huber_path(X, y, **params), X, y, **params)
    with pytest.raises(ValueError, match="huber_path"):
        HLRegressor(**params).fit(X, y).threshold_path()


@pytest.mark.parametrize(
    ("error", "match", "params"),
    [
        (TypeError, "removal, threshold", {"threshold": 1.0, "removal": None}),
        (ValueError, "min_threshold", {"min_threshold": 0.0}),
        (TypeError, "min_threshold", {"min_threshold": "low"}),
        (ValueError, "max_events", {"max_events": 0}),
        (TypeError, "max_events", {"max_events": 1.5}),
        (ValueError, "alpha", {"alpha": -1.0}),
        (
            ValueError,
            "learn",
            {"views": [View([0]), View([1])], "view_weights": "learn"},
        ),
    ],
)
def test_errors(error, match, params):
    X, y, _, _ = curve(20, 0)
    with pytest.raises(error, match=match):
        huber_path(X, y, **params)


def test_one_target_and_bounded_memory(monkeypatch):
    X, y, _, _ = curve(20, 0)
    with pytest.raises(ValueError, match="one target"):
        huber_path(X, y[:, None])
    monkeypatch.setattr(path_module, "MOST_BYTES", 2000)
    with pytest.raises(ValueError, match="max_events"):
        huber_path(X, y)


def test_solves_anew_when_labels_go_back_and_forth(monkeypatch):
    """Whatever makes the walk stop, the path goes on below and stays certified."""
    X, y, _, _ = curve(40, 11)
    monkeypatch.setattr(path_module, "MOST_CHANGES", 0)
    path = huber_path(X, y, alpha=1e-3)
    assert path.complete
    certify(path, X, y, alpha=1e-3)


def test_refreshed_inverse(monkeypatch):
    X, y, _, _ = curve(60, 12)
    expected = huber_path(X, y, alpha=1e-4)
    monkeypatch.setattr(path_module, "REFRESH", 3)
    path = huber_path(X, y, alpha=1e-4)
    np.testing.assert_allclose(path.thresholds, expected.thresholds, rtol=1e-9)
    np.testing.assert_allclose(path.dual_coef, expected.dual_coef, atol=1e-8)


@settings(max_examples=40)
@given(
    n=st.integers(1, 25),
    digits=st.integers(0, 3),
    kernel=st.sampled_from(["rbf", "laplacian", "linear"]),
    alpha=st.sampled_from([1e-4, 1e-2, 1.0]),
    intercept=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_labels(n, digits, kernel, alpha, intercept, weighted, seed):
    """Few digits make ties: equal rows, equal labels, labels that meet a bound together."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 2)), digits)
    y = np.round(rng.standard_t(2, size=n), digits)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    params = {"kernel": kernel, "alpha": alpha, "fit_intercept": intercept, "gamma": 0.5}
    path = huber_path(X, y, weights, **params)
    assert path.complete
    assert np.all(np.diff(path.thresholds) < 0)
    if len(path.thresholds) > 1:
        certify(path, X, y, weights, count=4, **params)


def test_display():
    X, y, _, _ = curve(40, 13)
    model = HLRegressor(gamma=0.5).fit(X, y)
    display = ThresholdPathDisplay.from_estimator(model)
    top, bottom = display.axes_
    assert top.get_xscale() == "log"
    assert bottom.get_xlabel() == "threshold ξ"
    assert bottom.get_xlim()[1] > model.threshold_
    free, bound = (line.get_ydata() for line in bottom.get_lines()[:2])
    assert np.all(free + bound == model.n_labelled_)
    plt.close(display.figure_)
    figure, axes = plt.subplots(2, 1)
    path = huber_path(X, y, max_events=4)
    assert ThresholdPathDisplay.from_path(path, ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="two Axes"):
        ThresholdPathDisplay.from_path(path, ax=axes[0])
    plt.close(figure)
    with pytest.raises(TypeError, match="HLRegressor"):
        ThresholdPathDisplay.from_estimator(path)
    with pytest.raises(ValueError, match="nothing to draw"):
        ThresholdPathDisplay.from_path(huber_path(X, y, min_threshold=1e6))
