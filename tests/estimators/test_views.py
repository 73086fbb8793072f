"""Several views: the dense m(u+ℓ) problem, learnt weights, targets, the column contract."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_selector
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from activehuber import HLRegressor, LabelledKFold, View
from activehuber.problem import smoothing
from tests import oracles
from tests.pairwise import crossed

GAMMA = 0.3
KINDS = ("linear", "rbf", "poly", "laplacian", "rbf", "linear")


def make_views(m, kinds=KINDS, width=2, **params):
    return [
        View(
            slice(width * i, width * i + width), kinds[i], gamma=GAMMA, n_neighbors=6, **params
        )
        for i in range(m)
    ]


def data(m, n=30, seed=0, labelled=None, width=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width * m))
    y = np.sin(X[:, 0]) + 0.5 * X[:, -1] + 0.1 * rng.normal(size=n)
    y[: n // 10] += 3
    y[n if labelled is None else labelled :] = np.nan
    return X, y


def blocks(X, views, manifold):
    """K and M of every view, naively."""
    K, M = [], []
    for view in views:
        columns = X[:, view.columns]
        K.append(oracles.gram(view.kernel, columns, gamma=GAMMA))
        M.append(oracles.knn_laplacian(columns, view.n_neighbors)[0] if manifold else 0 * K[-1])
    return K, M


def stacked(K, M, c, manifold, agreement):
    """Everything as one problem in m·n unknowns: f stacked view by view."""
    m, n = len(K), len(K[0])
    big_K = np.zeros((m * n, m * n))
    penalty = np.zeros((m * n, m * n))
    for i in range(m):
        block = slice(i * n, i * n + n)
        big_K[block, block] = K[i]
        penalty[block, block] = manifold * M[i] + agreement * (m - 1) * np.eye(n)
        for j in range(m):
            if j != i:
                penalty[block, j * n : j * n + n] = -agreement * np.eye(n)
    sampling = np.hstack([c[i] * np.eye(n) for i in range(m)])
    return big_K, penalty, sampling


def naive_certificate(model, X, y, views, manifold, agreement, alpha, intercept):
    """Theorem 1 for the stacked problem, loops and dense algebra."""
    c, w = model.view_weights_, model.dual_coef_
    K, M = blocks(X, views, manifold)
    big_K, penalty, C = stacked(K, M, c, manifold, agreement)
    stacked_w = w.T.ravel()
    f = big_K @ stacked_w
    use = ~np.isnan(y) & ~model.removed_
    r = np.where(use, np.nan_to_num(y) - model.intercept_ - C @ f, 0.0)
    psi = np.clip(r, -model.threshold_, model.threshold_)
    n_used = use.sum()
    E = 2 * n_used * (alpha * stacked_w + penalty @ f) - C.T @ psi
    scale = min(
        model.threshold_, np.max(np.abs(y[use] - (np.median(y[use]) if intercept else 0)))
    )
    loss = np.mean(oracles.huber(r[use], model.threshold_))
    J = loss + alpha * stacked_w @ f + f @ penalty @ f
    balance = abs(psi.sum()) / n_used if intercept else 0.0
    return max(np.max(np.abs(E)) / np.max(np.abs(c)), balance) / scale, J


def cvxpy_views(K, M, c, y, xi, alpha, manifold, agreement, intercept):
    """The dense problem in m(u+ℓ) unknowns by CVXPY."""
    import cvxpy as cp

    m = len(K)
    use = np.flatnonzero(~np.isnan(y))
    b = cp.Variable() if intercept else 0.0
    h, penalty, functions = 0, 0, []
    for i in range(m):
        values, vectors = np.linalg.eigh(K[i])
        keep = values > 1e-13 * values.max()
        root = vectors[:, keep] * np.sqrt(values[keep])
        theta = cp.Variable(root.shape[1])
        f = root @ theta
        functions.append(f)
        h = h + c[i] * f
        penalty = penalty + alpha * cp.sum_squares(theta)
        if manifold:
            mv, mw = np.linalg.eigh(M[i])
            penalty = penalty + manifold * cp.sum_squares(
                ((mw * np.sqrt(np.maximum(mv, 0))).T @ root) @ theta
            )
    for i in range(m):
        for j in range(i):
            if agreement:
                penalty = penalty + agreement * cp.sum_squares(functions[i] - functions[j])
    r = y[use] - h[use] - b
    loss = cp.sum(cp.huber(r, xi) if np.isfinite(xi) else cp.square(r)) / (2 * len(use))
    problem = cp.Problem(cp.Minimize(loss + penalty))
    tight = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    problem.solve(solver=cp.CLARABEL, **tight)
    return problem.value


@pytest.mark.parametrize("m", [1, 2, 3, 6])
@pytest.mark.parametrize(
    "manifold, agreement", [(0.0, 0.0), (1e-2, 0.0), (0.0, 1e-2), (1e-2, 1e-1)]
)
@pytest.mark.parametrize("labelled", [None, 18])
@pytest.mark.parametrize("intercept", [True, False])
def test_objective_and_certificate_of_the_dense_problem(
    m, manifold, agreement, labelled, intercept
):
    if m == 1 and agreement:
        return
    X, y = data(m, labelled=labelled)
    views, alpha, xi = make_views(m), 1e-3, 0.2
    model = HLRegressor(
        views=views, alpha=alpha, manifold=manifold, agreement=agreement, threshold=xi,
        fit_intercept=intercept,
    ).fit(X, y)  # fmt: skip
    assert model.dual_coef_.shape == (30, m)
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8
    kkt, J = naive_certificate(model, X, y, views, manifold, agreement, alpha, intercept)
    assert kkt <= 1e-8
    assert model.objective_ == pytest.approx(J, rel=1e-9)
    K, M = blocks(X, views, manifold)
    best = cvxpy_views(K, M, model.view_weights_, y, xi, alpha, manifold, agreement, intercept)
    assert best * (1 - 1e-6) <= model.objective_ <= best * (1 + 1e-7)


@pytest.mark.parametrize("mode", [np.inf, "refine", "adaptive"])
@pytest.mark.parametrize("kinds", [("rbf", "laplacian", "rbf"), ("linear", "poly", "linear")])
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_every_mode_is_certified_with_views(mode, kinds, agreement):
    X, y = data(3, n=60, labelled=40)
    views = make_views(3, kinds)
    model = HLRegressor(
        views=views,
        alpha=1e-3,
        manifold=1e-3,
        agreement=agreement,
        threshold=mode,
        threshold_step=0.2,
    ).fit(X, y)
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8
    kkt, _ = naive_certificate(model, X, y, views, 1e-3, agreement, 1e-3, True)
    assert kkt <= 1e-8
    assert np.all(np.isfinite(model.loo_residuals_[:40]))


@pytest.mark.parametrize("alpha, agreement", [(1e-6, 1.0), (1e-8, 1e-2), (1e-4, 1e4)])
@pytest.mark.parametrize("manifold", [0.0, 1e-2])
def test_strong_coupling_stays_exact(alpha, agreement, manifold):
    X, y = data(3, n=50, labelled=30)
    for kinds in (("rbf", "laplacian", "rbf"), ("linear", "poly", "linear")):
        model = HLRegressor(
            views=make_views(3, kinds),
            alpha=alpha,
            manifold=manifold,
            agreement=agreement,
            threshold=0.3,
        ).fit(X, y)
        assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


@crossed(kernel=oracles.KERNELS, mode=[0.2, "refine", "adaptive"], manifold=[0.0, 1e-2])
def test_one_view_is_the_single_kernel_bit_for_bit(kernel, mode, manifold):
    X, y, *_ = oracles.curve(60, 1)
    y[40:] = np.nan
    params = {"threshold": mode, "threshold_step": 0.2, "manifold": manifold}
    single = HLRegressor(kernel=kernel, **params).fit(X, y)
    view = HLRegressor(views=[View(slice(None), kernel)], **params).fit(X, y)
    assert np.array_equal(view.predict(X), single.predict(X))
    assert np.array_equal(view.dual_coef_[:, 0], single.dual_coef_)
    assert view.objective_ == single.objective_


def test_splitting_a_linear_view_at_the_rescaled_alpha():
    """h = Σ c f^α with c = 1/m equals one linear view at α m²: θ = c θ^α, |θ^α|² = m²|θ|²."""
    X, y, *_ = oracles.curve(60, 2, d=6)
    split = HLRegressor(
        views=[View(slice(2 * i, 2 * i + 2), "linear") for i in range(3)],
        alpha=1e-3,
        threshold=0.4,
    )
    whole = HLRegressor(kernel="linear", alpha=9e-3, threshold=0.4)
    np.testing.assert_allclose(
        split.fit(X, y).predict(X), whole.fit(X, y).predict(X), atol=1e-9
    )


def test_predict_views_sums_to_the_prediction():
    X, y = data(3, n=50)
    model = HLRegressor(views=make_views(3), view_weights=[0.2, 0.5, 0.0]).fit(X, y)
    parts = model.predict_views(X)
    assert parts.shape == (50, 3) and np.all(parts[:, 2] == 0)
    np.testing.assert_allclose(
        parts.sum(axis=1) + model.intercept_, model.predict(X), atol=1e-12
    )
    K, _ = blocks(X, model.views, False)
    np.testing.assert_allclose(parts[:, 1], 0.5 * K[1] @ model.dual_coef_[:, 1], atol=1e-9)


# --- learnt weights ---------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [("rbf", "laplacian", "rbf"), ("linear", "poly", "linear")])
@pytest.mark.parametrize("manifold, agreement", [(0.0, 0.0), (1e-3, 0.0), (1e-3, 1e-2)])
@pytest.mark.parametrize("mode", [0.3, np.inf])
def test_learnt_weights(kinds, manifold, agreement, mode):
    X, y = data(3, n=60, labelled=45)
    params = {"alpha": 1e-3, "manifold": manifold, "agreement": agreement, "threshold": mode}
    learnt = HLRegressor(views=make_views(3, kinds), view_weights="learn", **params).fit(X, y)
    uniform = HLRegressor(views=make_views(3, kinds), **params).fit(X, y)
    c = learnt.view_weights_
    assert np.all(c >= 0) and np.sum(c**2) == pytest.approx(1 / 3, rel=1e-12)
    assert learnt.objective_ <= uniform.objective_ * (1 + 1e-12)
    assert learnt.view_weights_residual_ <= 1e-6
    assert learnt.duality_gap_ <= 1e-9 and learnt.kkt_residual_ <= 1e-8
    # no feasible neighbour is better
    rng = np.random.default_rng(0)
    for _ in range(6):
        other = np.abs(c + 0.05 * rng.normal(size=3))
        other /= np.sqrt(3) * np.linalg.norm(other)
        neighbour = HLRegressor(views=make_views(3, kinds), view_weights=other, **params).fit(
            X, y
        )
        assert neighbour.objective_ >= learnt.objective_ * (1 - 1e-9)


def test_a_noise_view_gets_no_weight():
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 6))
        y = np.sin(2 * X[:, 0]) + X[:, 2] * X[:, 3] + 0.1 * rng.normal(size=200)
        views = [View([0, 1]), View([2, 3]), View([4, 5], name="noise")]
        model = HLRegressor(views=views, view_weights="learn", alpha=1e-2).fit(X, y)
        shares.append(3 * model.view_weights_[2] ** 2)
    assert max(shares) < 0.05


@pytest.mark.parametrize("mode", ["refine", "adaptive"])
def test_learnt_weights_belong_to_the_labels_in_use(mode):
    X, y = data(3, n=90)
    params = {"alpha": 1e-3, "threshold_step": 0.3}
    model = HLRegressor(
        views=make_views(3), view_weights="learn", threshold=mode, **params
    ).fit(X, y)
    kept = ~model.removed_
    assert 0 < model.removed_.sum() < 40 and model.view_weights_residual_ < 1e-6
    again = HLRegressor(
        views=make_views(3), view_weights="learn", threshold=np.inf, **params
    ).fit(X[kept], y[kept])
    np.testing.assert_allclose(again.view_weights_, model.view_weights_, atol=1e-3)
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


@pytest.mark.parametrize("agreement", [0.0, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_learnt_weights_beat_a_scan(agreement, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 5))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    views = [View([0, 1], name="a"), View([2, 3, 4], "linear")]
    params = {
        "views": views,
        "agreement": agreement,
        "manifold": 1e-3,
        "threshold": np.inf,
        "alpha": 1e-3,
    }
    learnt = HLRegressor(view_weights="learn", **params).fit(X, y)
    assert learnt.view_weights_residual_ <= 1e-6
    for angle in np.linspace(0, np.pi / 2, 41):
        c = np.abs([np.cos(angle), np.sin(angle)]) / np.sqrt(2)
        scanned = HLRegressor(view_weights=c, **params).fit(X, y).objective_
        assert learnt.objective_ <= scanned * (1 + 1e-9)


def test_errors_inside_a_view_name_it():
    X, y = data(2, n=20)
    for broken in (
        View([0], "poly", coef0=-5, name="b"),
        View([0], lambda a, b: np.nan, name="b"),
    ):
        with pytest.raises(ValueError, match="view 'b'"):
            HLRegressor(views=[View([1]), broken]).fit(X, y)
    with pytest.raises(ValueError, match="view 'b'"):
        HLRegressor(
            views=[View([1]), View([0], graph=lambda Z: np.eye(3), name="b")], manifold=1.0
        ).fit(X, y)


def test_a_given_graph_is_not_read_after_fit(rng):
    X, y = data(1, n=40)
    G = np.abs(rng.normal(size=(40, 40)))
    G += G.T
    params = {"views": [View([0], graph=G)], "manifold": 1e-2, "threshold": 0.3}
    expected = HLRegressor(**params).fit(X, y).loo_residuals_
    model = HLRegressor(**params).fit(X, y)
    G[:] = G[0, 1]
    np.testing.assert_array_equal(model.loo_residuals_, expected)


def test_wrong_number_of_targets_in_score():
    X, y = data(1, n=30)
    model = HLRegressor().fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="fitted to 2 targets"):
        model.score(X, y)


@pytest.mark.parametrize("y", [[2.0, np.nan, np.nan, np.nan], [2.0, 2.0, 2.0, 2.0]])
def test_nothing_to_learn_keeps_uniform_weights(y):
    X = np.random.default_rng(0).normal(size=(4, 2))
    model = HLRegressor(views=[View([0]), View([1])], view_weights="learn").fit(X, y)
    np.testing.assert_array_equal(model.view_weights_, [0.5, 0.5])
    np.testing.assert_allclose(model.predict(X), 2.0)


# --- several targets --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")
@pytest.mark.parametrize("mode", [0.3, np.inf, "refine", "adaptive"])
@pytest.mark.parametrize("manifold", [0.0, 1e-3])
@pytest.mark.parametrize("use_views", [False, True])
def test_targets_together_equal_separate_fits(mode, manifold, use_views, rng):
    X, y = data(2, n=60)
    Y = np.stack([y, -2 * y + X[:, 1], X[:, 0] ** 2 + 5], axis=1)
    Y[rng.permutation(60)[:6], 1] += 8
    Y[40:, 1] = np.nan
    Y[::3, 2] = np.nan
    weights = rng.uniform(0.5, 2, 60)
    views = make_views(2) if use_views else None
    model = HLRegressor(
        views=views, gamma=GAMMA, threshold=mode, threshold_step=0.2, manifold=manifold,
        agreement=1e-3 if use_views else 0.0, alpha=1e-3,
    )  # fmt: skip
    model.fit(X, Y, sample_weight=weights)
    together = model.predict(X)
    kept = {
        name: getattr(model, name)
        for name in ("intercept_", "threshold_", "removed_", "dual_coef_", "loo_residuals_",
                     "label_quality_", "scale_", "n_labelled_", "objective_", "residuals_")
    }  # fmt: skip
    assert together.shape == (60, 3) and model.dual_coef_.shape == (
        (60, 2, 3) if use_views else (60, 3)
    )
    assert np.max(model.duality_gap_) <= 1e-9 and len(model.thresholds_) == 3
    for j in range(3):
        model.fit(X, Y[:, j], sample_weight=weights)
        np.testing.assert_allclose(together[:, j], model.predict(X), atol=1e-9)
        for name, value in kept.items():
            np.testing.assert_allclose(
                value[..., j], getattr(model, name), atol=1e-8, rtol=1e-7
            )


def test_one_column_is_a_target_axis_of_one():
    X, y = data(1, n=40)
    column = HLRegressor(threshold=0.3).fit(X, y[:, None])
    flat = HLRegressor(threshold=0.3).fit(X, y)
    assert column.predict(X).shape == (40, 1) and column.intercept_.shape == (1,)
    np.testing.assert_array_equal(column.predict(X)[:, 0], flat.predict(X))


def test_learnt_weights_per_target():
    X, _ = data(2, n=80)
    Y = np.stack([np.sin(X[:, 0]), X[:, 2] * X[:, 3]], axis=1)
    views = [View([0, 1]), View([2, 3])]
    model = HLRegressor(views=views, view_weights="learn", alpha=1e-2).fit(X, Y)
    assert model.view_weights_.shape == (2, 2)
    assert model.view_weights_[0, 0] > model.view_weights_[1, 0]
    assert model.view_weights_[0, 1] < model.view_weights_[1, 1]
    assert model.predict_views(X).shape == (80, 2, 2)


def test_targets_in_scoring_and_cross_validation():
    X, y = data(2, n=60)
    Y = np.stack([y, y + X[:, 1]], axis=1)
    Y[40:, 0] = np.nan
    scores = cross_val_score(
        HLRegressor(), X, Y, cv=LabelledKFold(3, shuffle=True, random_state=0)
    )
    assert np.all(np.isfinite(scores))
    with pytest.raises(ValueError, match="target 1"):
        HLRegressor().fit(X, np.stack([y, np.full(60, np.nan)], axis=1))


# --- columns, parameters, errors --------------------------------------------------------


def frame(kind):
    X, y = data(2, n=50)
    columns = {name: X[:, i] for i, name in enumerate("abcd")}
    return (pd.DataFrame if kind == "pandas" else pl.DataFrame)(columns), X, y


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize(
    "first, second",
    [
        (slice(0, 2), slice(2, 4)),
        (["a", "b"], ["c", "d"]),
        (slice("a", "b"), slice("c", None)),
        ([True, True, False, False], np.array([False, False, True, True])),
        (np.array([0, 1]), [-2, -1]),
        (lambda Z: ["a", "b"], lambda Z: list(Z.columns)[2:]),
    ],
)
def test_columns_by_any_key(kind, first, second):
    table, X, y = frame(kind)
    reference = HLRegressor(views=[View(slice(0, 2)), View(slice(2, 4))]).fit(X, y)
    model = HLRegressor(views=[View(first), View(second)]).fit(table, y)
    np.testing.assert_array_equal(model.predict(table), reference.predict(X))


def test_column_selectors_of_scikit_learn():
    table, _, y = frame("pandas")
    model = HLRegressor(views=[View(make_column_selector("a|b")), View("c"), View(3)]).fit(
        table, y
    )
    assert [len(view.columns) for view in model.result_.settings.views] == [2, 1, 1]


def test_parameters_of_views():
    views = [View([0, 1], name="size"), View([2, 3])]
    model = HLRegressor(views=views)
    params = model.get_params()
    assert params["views__size__gamma"] == "scale" and "views__view1__kernel" in params
    model.set_params(views__view1__kernel="linear", alpha=1e-2)
    assert views[1].kernel == "linear" and model.alpha == 1e-2
    with pytest.raises(ValueError, match="name among size"):
        model.set_params(views__texture__gamma=1)
    with pytest.raises(ValueError, match="views=None"):
        HLRegressor().set_params(views__size__gamma=1)


def test_a_search_leaves_the_views_untouched():
    X, y = data(2, n=60)
    views = [View([0, 1], name="size"), View([2, 3], "linear")]
    pipeline = make_pipeline(StandardScaler(), HLRegressor(views=views, alpha=1e-3))
    search = GridSearchCV(
        pipeline,
        {
            "hlregressor__views__size__gamma": [0.01, 0.3],
            "hlregressor__views__view1__kernel": ["linear", "rbf"],
        },
        cv=3,
    ).fit(X, y)
    assert set(search.best_params_) == {
        "hlregressor__views__size__gamma",
        "hlregressor__views__view1__kernel",
    }
    assert views[0].gamma == "scale" and views[1].kernel == "linear"


BAD = [
    ([View([])], {}, ValueError, "view 'view0'.*no column"),
    ([View([0]), View([99])], {}, ValueError, "view 'view1'.*cannot be found"),
    (
        [View("a")],
        {},
        ValueError,
        r"view 'view0'.*no column names.*set_output\(transform=\"pandas",
    ),
    ([View(np.array(["a"]))], {}, ValueError, "view 'view0'.*no column names"),
    ([View([0], name="a"), View([1], name="a")], {}, ValueError, "'a'.*twice"),
    ([View([0], name="a__b")], {}, ValueError, "a__b"),
    ([View([0], kernel="precomputed")], {}, ValueError, "view 'view0'.*precomputed"),
    ([View([0], gamma=-1)], {}, ValueError, "view 'view0'.*gamma"),
    ([View([0], graph="tree")], {"manifold": 1.0}, ValueError, "view 'view0'.*graph"),
    ([View(1.5)], {}, ValueError, "view 'view0'"),
    ([View([0]), View([1])], {"view_weights": [1.0]}, ValueError, "one weight a view"),
    ([View([0]), View([1])], {"view_weights": [1.0, -1.0]}, ValueError, "not negative"),
    ([View([0]), View([1])], {"view_weights": [0.0, 0.0]}, ValueError, "all zero"),
    ([View([0]), View([1])], {"view_weights": "best"}, ValueError, "learn"),
    ([View([0]), View([1])], {"view_weights": [1e300, 1.0]}, ValueError, "ordinary size"),
    ([View([0]), 3], {}, TypeError, r"views\[1\]"),
    ([], {}, TypeError, "non-empty"),
    ([View([0])], {"agreement": 1.0}, ValueError, "at least two views"),
    (
        [View([0]), View([1])],
        {"view_weights": "learn", "algorithm": "paper", "threshold": "refine"},
        ValueError,
        "paper",
    ),
]


@pytest.mark.parametrize("views, params, error, message", BAD)
def test_bad_views(views, params, error, message):
    X, y = data(2, n=20)
    with pytest.raises(error, match=message):
        HLRegressor(views=views, **params).fit(X, y)


def test_overlapping_views_are_fine():
    X, y = data(2, n=30)
    model = HLRegressor(views=[View([0, 1]), View([1, 2])], threshold=0.3).fit(X, y)
    assert model.duality_gap_ <= 1e-9


def test_paper_scheme_with_views():
    X, y = data(3, n=50)
    model = HLRegressor(
        views=make_views(3),
        algorithm="paper",
        threshold="refine",
        threshold_step=0.3,
        agreement=1e-3,
        manifold=1e-3,
    ).fit(X, y)
    assert model.removed_.any() and np.all(np.isfinite(model.predict(X)))


def test_weights_and_trusted_with_views(rng):
    X, y = data(2, n=45)
    weights = rng.integers(0, 3, 45)
    times = np.repeat(np.arange(45), weights)
    model = HLRegressor(views=make_views(2), threshold=0.3)
    a = model.fit(X, y, sample_weight=weights).predict(X)
    np.testing.assert_allclose(a, model.fit(X[times], y[times]).predict(X), atol=1e-9)
    trusted = np.zeros(45, dtype=bool)
    trusted[:4] = True
    assert not HLRegressor(views=make_views(2)).fit(X, y, trusted=trusted).removed_[:4].any()


@pytest.mark.parametrize("lift", [1e-9, 1e-5, 1e-1])
def test_lifted_kernels_leave_no_trace(monkeypatch, lift):
    """Coupled rbf views are factored with K lifted; what that loses comes back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = np.sin(X[:, 0]) + X[:, 3] + 0.1 * rng.normal(size=120)
    y[:6] += 3.0
    y[60:] = np.nan
    views = [View([0, 1], "rbf"), View([2, 3], "rbf")]
    model = HLRegressor(views=views, manifold=1e-4, agreement=1e-4, threshold=0.1)
    monkeypatch.setattr(smoothing, "LIFT_IS_SMALL", 0.0)
    exact = model.fit(X, y).predict(X)
    monkeypatch.setattr(smoothing, "LIFT_IS_SMALL", np.inf)
    monkeypatch.setattr(smoothing, "LIFT", lift)
    model.fit(X, y)
    assert model.duality_gap_ <= 1e-9
    assert model.kkt_residual_ <= 1e-8
    np.testing.assert_allclose(model.predict(X), exact, atol=1e-9)
