"""Fits in a finite basis: against the exact fit, against naive algebra, in any blocks."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge

from activehuber import HLClassifier, HLClassifierCV, HLRegressor, HLRegressorCV, View
from activehuber.data.rows import ArrayRows, ChosenRows, LostRows, parquet_rows
from activehuber.kernels.feature_maps import landmarks, random_fourier_features
from activehuber.kernels.kernel import Kernel
from activehuber.operators import features as block_gram
from tests import oracles
from tests.pairwise import crossed

MODES = {
    "fixed": {"threshold": 0.3},
    "inf": {"threshold": np.inf},
    "refine": {"threshold": "refine", "threshold_step": 0.02},
    "adaptive": {},
    "bound": {"removal": None},
    "madn": {"threshold": "madn"},
    "tuning-free": {"threshold": "tuning-free", "alpha": 1e-2},
    "callable": {"threshold": lambda r, w: 1.3 * float(np.median(np.abs(r)))},
}
EXTRAS = {
    "plain": {},
    "origin": {"fit_intercept": False},
    "graph": {"manifold": 1e-2, "n_neighbors": 5},
    "views": {"views": True},
    "views+learn": {"views": True, "view_weights": "learn"},
    "views+agreement": {"views": True, "agreement": 1e-2, "view_weights": [0.7, 0.2]},
    "views+all": {
        "views": True,
        "agreement": 1e-2,
        "manifold": 1e-2,
        "view_weights": "learn",
    },
}


def problem(n=70, targets=1, seed=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 2] + 0.1 * rng.normal(size=n)
    y[: n // 12] += 4
    y[-n // 5 :] = np.nan
    if targets == 1:
        return X, y
    other = X[:, 1] - y
    other[:5] = np.nan
    return X, np.stack([y, other], axis=1)


def parameters(extra, mode):
    params = {"alpha": 1e-3, **EXTRAS[extra], **MODES[mode]}
    if params.get("views"):
        params["views"] = [View([0, 1], n_neighbors=5), View([2, 3], "poly", n_neighbors=5)]
    return params


# --- the exact fit is the limit ---------------------------------------------------------


@crossed(extra=EXTRAS, mode=MODES, targets=[1, 2])
def test_all_landmarks_give_the_exact_fit(extra, mode, targets):
    X, y = problem(targets=targets)
    params = parameters(extra, mode)
    weights, trusted = np.linspace(0.5, 2, len(X)), np.arange(len(X)) == 1
    exact = HLRegressor(**params).fit(X, y, weights, trusted)
    ours = HLRegressor(
        **params, approximation="nystrom", n_components=len(X), block_size=17, random_state=0
    ).fit(X, y, weights, trusted)
    np.testing.assert_allclose(ours.predict(X), exact.predict(X), atol=1e-6)
    np.testing.assert_array_equal(ours.removed_, exact.removed_)
    np.testing.assert_allclose(ours.threshold_, exact.threshold_, atol=1e-6)
    np.testing.assert_allclose(ours.objective_, exact.objective_, rtol=1e-6)
    np.testing.assert_allclose(ours.loo_residuals_, exact.loo_residuals_, atol=1e-6)
    np.testing.assert_allclose(ours.label_quality_, exact.label_quality_, atol=1e-6)
    np.testing.assert_allclose(ours.view_weights_, exact.view_weights_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_views(X), exact.predict_views(X), atol=2e-5)
    scales = [each.result_.evidence[0].loo_scales for each in (ours, exact)]
    np.testing.assert_allclose(*scales, atol=1e-6)
    assert np.max(ours.duality_gap_) <= 1e-9 and np.max(ours.kkt_residual_) <= 1e-8


def test_refitting_without_a_label_equals_the_exact_one():
    X, y = problem()
    exact = HLRegressor(alpha=1e-3, threshold=0.3).fit(X, y)
    ours = HLRegressor(alpha=1e-3, threshold=0.3, approximation="nystrom").fit(X, y)
    np.testing.assert_allclose(
        ours.loo_refit([0, 3, 11]), exact.loo_refit([0, 3, 11]), atol=1e-6
    )


@pytest.mark.parametrize("kernel", ["linear", "cosine"])
def test_linear_features_give_the_exact_linear_fit(kernel):
    X, y = problem(200)
    X = X + 50.0 if kernel == "linear" else X
    for params in ({"threshold": 0.3}, {}, {"threshold": 0.3, "fit_intercept": False}):
        exact = HLRegressor(kernel=kernel, alpha=1e-3, **params).fit(X, y)
        ours = HLRegressor(kernel=kernel, alpha=1e-3, approximation="linear", **params)
        ours.fit(X, y)
        np.testing.assert_allclose(ours.predict(X), exact.predict(X), atol=1e-6)
        np.testing.assert_allclose(ours.objective_, exact.objective_, rtol=1e-6)
    default = HLRegressor(approximation="linear", alpha=1e-3, threshold=0.3).fit(X, y)
    plain = HLRegressor(kernel="linear", alpha=1e-3, threshold=0.3).fit(X, y)
    if kernel == "linear":
        np.testing.assert_allclose(default.predict(X), plain.predict(X), atol=1e-6)


# --- few components against peers and naive algebra -------------------------------------


def test_least_squares_equals_ridge_on_nystroem_features():
    X, y = problem(300)
    given = ~np.isnan(y)
    ours = HLRegressor(
        gamma=0.3,
        alpha=1e-3,
        threshold=np.inf,
        approximation="nystrom",
        n_components=40,
        random_state=1,
    ).fit(X, y)
    peer = Nystroem(gamma=0.3, n_components=len(ours.components_))
    peer.fit(ours.components_)  # all of its rows become landmarks
    ridge = Ridge(alpha=2 * given.sum() * 1e-3, solver="svd")
    ridge.fit(peer.transform(X[given]), y[given])
    np.testing.assert_allclose(ours.predict(X), ridge.predict(peer.transform(X)), atol=1e-7)


def naive_huber(phi, y, ridge, threshold):
    """IRLS to the last digit on explicit features with an unpenalised constant."""
    A = np.column_stack([phi, np.ones(len(phi))])
    penalty = np.diag([ridge] * phi.shape[1] + [0.0])
    theta = np.zeros(A.shape[1])
    for _ in range(3000):
        r = np.abs(y - A @ theta)
        w = np.minimum(1.0, threshold / np.maximum(r, 1e-300))
        theta = np.linalg.solve(A.T @ (w[:, None] * A) + penalty, A.T @ (w * y))
    return A @ theta, theta


@pytest.mark.parametrize("approximation", ["nystrom", "fourier"])
def test_few_components_equal_naive_algebra(approximation):
    X, y = problem(240)
    given = ~np.isnan(y)
    ours = HLRegressor(
        gamma=0.3,
        alpha=1e-3,
        threshold=0.2,
        approximation=approximation,
        n_components=31,
        block_size=50,
        random_state=3,
    ).fit(X, y)
    basis = ours.result_.targets[0].basis
    (phi,) = basis.whitened(basis(X))
    fitted, _ = naive_huber(phi[given], y[given], 2 * given.sum() * 1e-3, 0.2)
    np.testing.assert_allclose(ours.predict(X[given]), fitted, atol=1e-8)


def test_the_certificate_is_computed_from_the_coefficients():
    """A fit that stops early says so."""
    X, y = problem(2000)
    with pytest.warns(UserWarning, match="not certified"):
        HLRegressor(
            threshold=0.05, approximation="nystrom", n_components=50, max_iter=1, alpha=1e-6
        ).fit(X, y)


def test_landmarks_that_repeat_are_dropped():
    X, _ = problem(30)
    doubled = np.concatenate([X, X])
    assert landmarks(Kernel("rbf", 0.5), doubled).width == 30
    ours = HLRegressor(approximation="nystrom", random_state=0, alpha=1e-3)
    y = np.tile(np.sin(X[:, 0]), 2)
    np.testing.assert_allclose(
        ours.fit(doubled, y).predict(X),
        HLRegressor(alpha=1e-3).fit(doubled, y).predict(X),
        atol=1e-6,
    )


@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern"])
def test_waves_approach_their_kernel(name):
    X, _ = problem(60)
    gamma = np.array([0.2, 0.1, 0.0, 0.3])
    function = random_fourier_features(Kernel(name, gamma), 4, 40_000, np.random.default_rng(0))
    phi = function(X)
    scaled = X * (gamma if name == "laplacian" else np.sqrt(gamma))
    expected = oracles.gram(name, scaled, gamma=1.0)
    np.testing.assert_allclose(phi @ phi.T, expected, atol=0.03)
    np.testing.assert_allclose(np.einsum("ij,ij->i", phi, phi), 1.0)


def test_error_falls_with_more_components():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1500)
    exact = HLRegressor(alpha=1e-4, threshold=0.3).fit(X, y).predict(X)
    errors = []
    for p in (20, 80, 320, 1280):
        ours = HLRegressor(
            alpha=1e-4, threshold=0.3, approximation="nystrom", n_components=p, random_state=0
        )
        errors.append(np.abs(ours.fit(X, y).predict(X) - exact).mean())
    assert np.all(np.diff(errors) < 0) and errors[-1] < 1e-3


# --- blocks -----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-3, 1e-6])
@pytest.mark.parametrize("params", [{"threshold": 0.2}, {}, {"manifold": 1e-3}])
def test_predictions_do_not_depend_on_the_block_size(alpha, params):
    X, y = problem(900)
    answers = []
    for size in (1000, 97, 256, "auto", 1):
        if size == 1 and alpha < 1e-3:
            continue  # slow, and no other case
        ours = HLRegressor(
            alpha=alpha,
            approximation="nystrom",
            n_components=60,
            block_size=size,
            random_state=0,
            **params,
        )
        answers.append(ours.fit(X, y).predict(X))
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], atol=1e-9)


def test_the_random_state_draws_the_landmarks():
    X, y = problem(200)

    def components(seed):
        model = HLRegressor(approximation="nystrom", n_components=9, random_state=seed)
        return model.fit(X, y).components_

    np.testing.assert_array_equal(components(4), components(4))
    assert not np.array_equal(components(4), components(5))


def test_many_labels_are_judged_in_few_passes(monkeypatch):
    """Beyond 20,000 labels variances are taken once; lowered here, against without."""
    from activehuber.labels import adaptive
    from activehuber.operators import features as block_gram

    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=3000)
    bad = rng.random(3000) < 0.1
    y[bad] += rng.choice([-3.0, 3.0], bad.sum())
    model = HLRegressor(approximation="nystrom", n_components=50, random_state=0)
    whole = clone(model).fit(X, y)
    monkeypatch.setattr(block_gram, "COARSE_LABELS", 500)
    monkeypatch.setattr(adaptive, "MANY_LABELS", 1000)
    some = clone(model).fit(X, y)
    assert np.mean(some.removed_ != whole.removed_) < 2e-3
    assert np.abs(some.residuals_ - whole.residuals_).max() < 0.1
    assert some.duality_gap_ <= 1e-9
    assert np.mean(some.removed_[bad]) > 0.95 and np.mean(some.removed_[~bad]) < 0.05


@pytest.mark.parametrize("tails", ["light", "heavy"])
def test_rows_far_from_all_landmarks_are_not_taken_for_wrong(tails):
    """A good label where nothing is known must not be dropped for being unexpected."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 5)) if tails == "light" else rng.standard_t(2.5, (2500, 5))
    X /= X.std(axis=0)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * np.tanh(X[:, 2]) + 0.1 * rng.normal(size=2500)
    bad = rng.random(2500) < 0.1
    y[bad] += rng.choice([-1.0, 1.0], bad.sum()) * rng.uniform(2.0, 5.0, bad.sum())
    model = HLRegressor(alpha=1e-5, approximation="nystrom", n_components=200, random_state=0)
    removed = model.fit(X, y).removed_
    far = np.linalg.norm(X, axis=1) > np.quantile(np.linalg.norm(X, axis=1), 0.95)
    # Without what the landmarks miss it is a third (light) and more than half (heavy).
    assert np.mean(removed[far & ~bad]) < 0.2
    assert np.mean(removed[~bad]) < 0.02 and np.mean(removed[bad]) > 0.93


# --- input that is not an array ---------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    X, y = problem(500)
    columns = {f"x{i}": X[:, i] for i in range(4)} | {"price": y}
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({k: pa.array(v, from_pandas=True) for k, v in columns.items()}),
        path,
        row_group_size=130,
    )
    return X, y, path


SMALL = {
    "approximation": "nystrom",
    "n_components": 40,
    "block_size": 64,
    "random_state": 0,
    "alpha": 1e-3,
}


def test_parquet_equals_the_array(table):
    import pyarrow.dataset as ds

    X, y, path = table
    expected = HLRegressor(**SMALL).fit(X, y)
    for source, labels in ((path, "price"), (str(path), "price"), (ds.dataset(path), "price")):
        ours = HLRegressor(**SMALL).fit(source, labels)
        np.testing.assert_allclose(ours.predict(source), expected.predict(X), atol=1e-9)
        np.testing.assert_array_equal(ours.removed_, expected.removed_)
        np.testing.assert_allclose(ours.loo_residuals_, expected.loo_residuals_, atol=1e-9)
        assert list(ours.feature_names_in_) == ["x0", "x1", "x2", "x3"]


def test_a_memory_map_is_not_copied(tmp_path):
    X, y = problem(400)
    held = np.memmap(tmp_path / "X.bin", dtype=np.float32, mode="w+", shape=X.shape)
    held[:] = X
    ours = HLRegressor(**SMALL).fit(held, y)
    assert ours.X_fit_.X is held
    expected = HLRegressor(**SMALL).fit(np.asarray(held, dtype=np.float64), y)
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), atol=1e-9)


def test_rows_inside_rows_are_the_same_rows(table):
    X, _, path = table
    passes = []
    numbers = np.flatnonzero(X[:, 0] > 0.0)
    for inner in (ArrayRows(X), parquet_rows(path, without=["price"])):
        watched = inner.watched_by(lambda: passes.append(1)).in_blocks_of(50)
        rows = ChosenRows(watched, numbers).in_blocks_of(30)
        assert (len(rows), rows.n_features) == (len(numbers), 4)
        np.testing.assert_array_equal(rows.take(np.array([3, 0])), X[numbers[[3, 0]]])
        before = len(passes)
        some = np.arange(0, len(numbers), 3)
        values, (total,) = rows.run(_copy_and_sum, (2.0,), (numbers[some],), some)
        np.testing.assert_array_equal(values, 2.0 * X[numbers[some]])
        np.testing.assert_allclose(total, numbers[some] @ X[numbers[some]])
        assert len(passes) == before + 1
        assert rows.local and watched.local
    lost = LostRows(10, 4)
    assert not (lost.local or ChosenRows(lost, numbers).local)


def _copy_and_sum(X, factor, column):
    return factor * X, (column @ X,)


@pytest.mark.parametrize("extra", ["plain", "views+agreement"])
def test_rows_inside_rows_are_held_as_those_of_an_array(extra, monkeypatch):
    X, y = problem(400)
    numbers = np.flatnonzero(X[:, 1] < 1.0)
    params = {**SMALL, **parameters(extra, "adaptive")}
    expected = HLRegressor(**params).fit(np.ascontiguousarray(X[numbers]), y[numbers])
    passes = []
    rows = ChosenRows(ArrayRows(X).watched_by(lambda: passes.append(1)), numbers)

    def check(count):
        passes.clear()
        ours = HLRegressor(**params).fit(rows, y[numbers])
        np.testing.assert_array_equal(ours.removed_, expected.removed_)
        np.testing.assert_allclose(ours.loo_residuals_, expected.loo_residuals_, atol=1e-9)
        np.testing.assert_allclose(ours.predict(rows), expected.predict(X[numbers]), atol=1e-9)
        assert count(len(passes))

    check(lambda held: held <= 6)
    monkeypatch.setattr(block_gram, "HELD_BYTES", 0)
    check(lambda anew: anew > 12)


def test_frames_work(table):
    pd = pytest.importorskip("pandas")
    _, _, path = table
    frame = pd.read_parquet(path)
    ours = HLRegressor(**SMALL).fit(frame.drop(columns="price"), frame["price"])
    assert list(ours.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    streamed = HLRegressor(**SMALL).fit(path, "price")
    np.testing.assert_allclose(
        ours.predict(frame[["x0", "x1", "x2", "x3"]]), streamed.predict(path), atol=1e-9
    )


def test_streamed_classes(table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y, path = table
    words = np.where(np.isnan(y), None, np.where(np.nan_to_num(y) > 0, "up", "down"))
    labelled = pq.read_table(path).drop_columns(["price"])
    labelled = labelled.append_column("kind", pa.array(list(words)))
    other = path.with_name("classes.parquet")
    pq.write_table(labelled, other)
    params = {**SMALL, "n_components": 60}
    ours = HLClassifier(**params).fit(other, "kind")
    expected = HLClassifier(**params).fit(X, words)
    np.testing.assert_array_equal(ours.predict(other), expected.predict(X))
    np.testing.assert_allclose(ours.predict_proba(other), expected.predict_proba(X), atol=1e-8)


# --- the classifier and the searches ----------------------------------------------------


def test_a_classifier_with_all_landmarks_is_the_exact_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.where(X[:, 0] + X[:, 1] > 0, "b", "a").astype(object)
    y[:4] = ["a", "b", "a", "b"]
    y[80:] = None
    exact = HLClassifier(alpha=1e-3).fit(X, y)
    ours = HLClassifier(alpha=1e-3, approximation="nystrom", random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), exact.decision_function(X), atol=1e-6)
    np.testing.assert_array_equal(ours.removed_, exact.removed_)
    assert not hasattr(ours, "dual_coef_") and ours.coef_.shape == (90,)


def test_the_search_chooses_on_some_labels_and_fits_all():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=3000)
    y[:300] += 4
    y[2900:] = np.nan
    search = HLRegressorCV(approximation="nystrom", n_components=100).fit(X, y)
    assert search.best_params_["approximation"] == "nystrom"
    assert np.mean(search.removed_[:300]) > 0.99 and np.mean(search.removed_[300:]) < 0.02
    assert np.abs(search.predict(X) - np.sin(2 * X[:, 0])).mean() < 0.05
    assert search.relevance_.shape == (2,)
    low, high = search.predict_interval(X[300:2900], coverage=0.9).T
    assert 0.85 < np.mean((y[300:2900] >= low) & (y[300:2900] <= high)) < 0.95


def test_the_classifiers_search_takes_an_approximation():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 2))
    y = np.where(X[:, 0] > 0, 1, 0)
    search = HLClassifierCV(approximation="fourier", n_components=100).fit(X, y)
    assert search.score(X, y) > 0.95


@pytest.mark.parametrize("what", ["alpha", "gamma"])
def test_loo_is_chosen_on_some_labels(what):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2600, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=2600)
    model = HLRegressor(
        **{what: "loo"}, approximation="nystrom", n_components=80, random_state=0
    ).fit(X, y)
    assert np.abs(model.predict(X) - np.sin(2 * X[:, 0])).mean() < 0.05


# --- what does not work says so ---------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"approximation": "magic"}, "approximation must be one of"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"block_size": 0}, "block_size"),
        ({"block_size": "large"}, "block_size"),
        ({"kernel": "precomputed"}, "precomputed"),
        ({"algorithm": "paper", "threshold": "refine"}, "paper"),
        ({"manifold": 1.0, "graph": np.eye(70)}, "drawn rows"),
        ({"approximation": "fourier", "kernel": "poly"}, "nystrom"),
    ],
)
def test_impossible_parameters(params, message):
    X, y = problem()
    X = X @ X.T if params.get("kernel") == "precomputed" else X
    with pytest.raises((ValueError, TypeError), match=message):
        HLRegressor(**{"approximation": "nystrom", **params}).fit(X, y)


def test_what_an_approximated_fit_cannot_do():
    X, y = problem()
    model = HLRegressor(approximation="nystrom").fit(X, y)
    with pytest.raises(ValueError, match="threshold_path"):
        model.threshold_path()
    with pytest.raises(ValueError, match="manifolds"):
        HLRegressorCV(approximation="nystrom", manifolds=(0, 1)).fit(X, y)
    with pytest.raises(ValueError, match="linear"):
        HLRegressorCV(approximation="linear").fit(X, y)


def test_streams_need_an_approximation(table):
    _, y, path = table
    with pytest.raises(TypeError, match="approximation"):
        HLRegressor().fit(path, y)
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        HLRegressor(**SMALL).fit("none.parquet", "price")
    with pytest.raises(ValueError, match="no column 'cost'"):
        HLRegressor(**SMALL).fit(path, "cost")
    (path.parent / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(ValueError, match="cannot be read"):
        HLRegressor(**SMALL).fit(path.parent / "text.parquet", "price")
    with pytest.raises(ValueError, match="expecting 2 features"):
        HLRegressor(**SMALL).fit(np.ones((9, 2)), np.arange(9.0)).predict(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_in_a_stream(tmp_path, bad):
    X, y = problem(300)
    held = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=X.shape)
    held[:] = X
    held[200, 2] = bad
    model = HLRegressor(**SMALL).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="contains NaN" if np.isnan(bad) else "infinity"):
        model.fit(held, y)
    assert vars(model) == before


def test_refitting_without_an_approximation_forgets_it():
    X, y = problem()
    model = HLRegressor(approximation="nystrom").fit(X, y)
    assert hasattr(model, "coef_") and hasattr(model, "components_")
    model.set_params(approximation=None).fit(X, y)
    assert hasattr(model, "dual_coef_")
    assert not hasattr(model, "coef_") and not hasattr(model, "components_")


# --- what a hostile tester found ----------------------------------------------------------


def test_streams_with_gaps_are_not_predicted(table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, _, path = table
    model = HLRegressor(**SMALL).fit(path, "price")
    gaps = pq.read_table(path).slice(0, 20)
    place = gaps.column_names.index("x1")
    gaps = gaps.set_column(place, "x1", pa.array([None, *gaps["x1"].to_pylist()[1:]]))
    other = path.with_name("gaps.parquet")
    pq.write_table(gaps, other)
    for ask in (model.predict, model.predict_interval):
        with pytest.raises(ValueError, match="contains NaN"):
            ask(other)
    with pytest.raises(ValueError, match="no rows"):
        model.predict(gaps.slice(0, 0))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda P, Q: P @ np.roll(Q, 1, 1).T, "not symmetric"),
        (lambda P, Q: P @ Q.T - 5 * P[:, :1] @ Q[:, :1].T, "positive semi-definite"),
        (lambda P, Q: -np.abs(P @ Q.T), "positive semi-definite"),
        (lambda P, Q: np.nan * (P @ Q.T), "not finite"),
    ],
)
def test_kernels_that_are_none(kernel, message):
    X, y = problem(200)
    with pytest.raises(ValueError, match=message):
        HLRegressor(kernel=kernel, approximation="nystrom", n_components=40).fit(X, y)


def test_the_index_of_a_frame_is_no_feature(table, tmp_path):
    import pandas as pd

    _, _, path = table
    frame = pd.read_parquet(path)
    frame[frame["x0"] > 0].to_parquet(tmp_path / "part.parquet")
    model = HLRegressor(**SMALL).fit(tmp_path / "part.parquet", "price")
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "x3"]


def test_scores_of_streams(table):
    import pyarrow.parquet as pq

    _, y, path = table
    model = HLRegressor(**SMALL).fit(path, "price")
    assert model.score(path, "price") == model.score(path, y)
    rows = pq.read_table(path)
    assert HLRegressor(**SMALL).fit(rows, "price").score(rows, "price") == model.score(path, y)
    params = {k: v for k, v in SMALL.items() if k != "alpha"}
    search = HLRegressorCV(**params, kernels=["rbf"], alphas=[1e-3], gammas=[1.0])
    search.fit(path, "price")
    assert search.score(path, "price") == search.score(path, y)


def test_named_views_of_streams(table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, y, path = table
    views = [View(["x0", "x3"]), View(["x1", "x2"], "laplacian")]
    params = {k: v for k, v in SMALL.items() if k != "alpha"}
    search = HLRegressorCV(views=views, **params, alphas=[1e-3], gammas=[1.0])
    search.fit(path, "price")
    assert search.views is views and views[0].columns == ["x0", "x3"]
    assert search.predict(path).shape == (500,)
    rows = pq.read_table(path)
    rows = rows.append_column("up", pa.array(np.nan_to_num(y) > 0)).drop_columns(["price"])
    chosen = HLClassifier(views=views, **SMALL).fit(rows, "up")
    assert chosen.classes_.tolist() == [False, True] and chosen.score(rows, "up") > 0.7


def test_streams_are_refused_by_exact_fits(table):
    X, y, path = table
    for model in (HLRegressorCV(), HLClassifier(), HLClassifierCV()):
        with pytest.raises(TypeError, match="approximation"):
            model.fit(path, "price")
    with pytest.raises(TypeError, match="approximation"):
        HLRegressor().fit(X, y).predict(path)


def test_files_that_are_not_one_table_get_one_line(tmp_path, rng):
    pd = pytest.importorskip("pandas")
    X = rng.normal(size=(60, 2))
    for number, first in enumerate((X[:, 0], ["x"] * 60)):
        frame = pd.DataFrame({"a": first, "b": X[:, 1], "y": np.sin(X[:, 0])})
        frame.to_parquet(tmp_path / f"{number}.parquet", index=False)
    model = HLRegressor(approximation="nystrom", n_components=10, threshold=1.0)
    with pytest.raises(ValueError, match="a column needs one type in all files") as caught:
        model.fit(str(tmp_path), "y")
    assert "\n" not in str(caught.value)


def test_an_exact_fit_is_not_scored_on_a_stream(tmp_path, rng):
    X = rng.normal(size=(30, 2))
    model = HLRegressor(threshold=1.0).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="read piece by piece"):
        model.score(str(tmp_path / "rows.parquet"), "y")
