"""The width at which labels are judged."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import f1_score

from activehuber import HLRegressor, View
from activehuber.fitting.fit import fit_targets
from activehuber.fitting.task import Task
from activehuber.labels import widths
from activehuber.labels.rule import LabelRule
from activehuber.numerics.likelihood import log_evidence
from activehuber.operators import dense as gram
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.solver.wider import WiderKernels
from tests import oracles


def corrupted(n=260, seed=0, share=0.25):
    """A smooth function, some labels exchanged for others."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    y = 3.0 * np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    bad = rng.random(n) < share
    y[bad] = rng.permutation(y)[bad]
    return X, y, bad


MOST = LabelRule().width_most
NARROW = {"kernel": "laplacian", "gamma": 2.0, "alpha": 1e-4}


# --- the evidence -----------------------------------------------------------------------


@pytest.mark.parametrize("border", [False, True])
def test_the_evidence_is_that_of_a_gaussian_process(border):
    """Against SciPy's density at the best τ², b integrated out by a wide prior."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    levels, wanted = [], []
    for gamma in (0.1, 1.0):
        Q = oracles.gram("rbf", X, gamma=gamma)
        levels.append(30 * log_evidence(Q.copy(), y, np.ones(30), 0.3, border=border))
        A = Q + 0.3 * np.eye(30)
        if border:
            A += 1e6
            inverse = np.linalg.inv(Q + 0.3 * np.eye(30))
            sums = inverse.sum(axis=1)
            energy = y @ (inverse - np.outer(sums, sums) / sums.sum()) @ y
            tau = energy / 29
        else:
            tau = y @ np.linalg.solve(A, y) / 30
        wanted.append(
            multivariate_normal(np.zeros(30), tau * A).logpdf(y) + 0.5 * border * np.log(tau)
        )
    assert levels[1] - levels[0] == pytest.approx(wanted[1] - wanted[0], abs=1e-4)


def test_weights_are_repetitions_to_the_evidence():
    rng = np.random.default_rng(2)
    X, y, times = rng.normal(size=(20, 2)), rng.normal(size=20), rng.integers(1, 4, 20)
    again = np.repeat(np.arange(20), times)
    found = []
    for rows, weights in ((np.arange(20), times.astype(float)), (again, np.ones(len(again)))):
        levels = [
            log_evidence(
                oracles.gram("rbf", X[rows], gamma=gamma), y[rows], weights, 0.7, border=True
            )
            for gamma in (0.2, 2.0)
        ]
        found.append(levels[1] - levels[0])
    assert found[0] == pytest.approx(found[1])


# --- the labels that decide -------------------------------------------------------------


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


def test_the_labels_that_decide_do_not_depend_on_the_order_of_rows():
    X, y, _ = corrupted(700)
    y = np.round(y)  # with ties
    order = np.random.default_rng(0).permutation(700)
    rows, weights = widths.some_labels(problem_of(X, y), MOST)
    others, _ = widths.some_labels(problem_of(X[order], y[order]), MOST)
    assert len(rows) == MOST and set(weights) == {1.0}
    assert set(rows) == set(order[others])


@pytest.mark.parametrize("n", [150, 300])
def test_a_heavy_label_is_taken_as_its_repetitions_are(n):
    X, y, _ = corrupted(n)
    times = np.random.default_rng(0).integers(1, 4, n)
    again = np.repeat(np.arange(n), times)
    rows, weights = widths.some_labels(problem_of(X, y, times.astype(float)), MOST)
    others, ones = widths.some_labels(problem_of(X[again], y[again]), MOST)
    np.testing.assert_array_equal(np.repeat(rows, weights.astype(int)), np.sort(again[others]))
    assert weights.sum() == ones.sum() == MOST


@pytest.mark.parametrize("n", [120, 260])
def test_a_fit_with_weights_is_that_of_repetitions(n):
    """120 labels of weight 1 to 3 are more than all that decide; 120 labels are not."""
    X, y, _ = corrupted(n)
    times = np.random.default_rng(0).integers(1, 4, n)
    again = np.repeat(np.arange(n), times)
    weighted = HLRegressor(**NARROW).fit(X, y, times.astype(float))
    repeated = HLRegressor(**NARROW).fit(X[again], y[again])
    np.testing.assert_array_equal(weighted.removed_[again], repeated.removed_)
    np.testing.assert_allclose(
        weighted.label_quality_[again], repeated.label_quality_, atol=1e-6
    )


def test_light_labels_stay_light_where_few_of_them_decide():
    """The ridge is that of all labels, so each of them keeps its μ."""
    X, y, _ = corrupted(700)
    rows, weights = widths.some_labels(problem_of(X, y, np.full(700, 0.25)), MOST)
    given = problem_of(X, y, np.full(700, 0.25))
    some = widths.on_some(given, rows, weights, given.gram.subset(rows))
    np.testing.assert_allclose(some.mu, given.mu[rows])


# --- judging at that width --------------------------------------------------------------


def judged_by(model, **numbers):
    """The fit of a model whose labels are judged by other numbers."""
    settings = replace(model.result_.settings, rule=LabelRule(**numbers))
    return fit_targets(settings, model.result_.data)[0]


def judged_at(model, *factors):
    """The fit of a model whose labels may be judged at these widths."""
    return judged_by(model, width_factors=factors)


def both(X, y, **params):
    """The model, and the fit that judges at its own width."""
    ours = HLRegressor(**params).fit(X, y)
    return ours, judged_at(ours, 1.0)


def test_few_labels_are_judged_at_the_width_of_the_fit():
    X, y, _ = corrupted(29)
    model = HLRegressor(**NARROW).fit(X, y)
    np.testing.assert_array_equal(model.label_quality_, judged_at(model, 1.0).quality)
    asked = judged_by(model, width_fewest=29.0)
    assert not np.allclose(model.label_quality_, asked.quality, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_a_wider_kernel_finds_more(seed):
    X, y, bad = corrupted(seed=seed)
    ours, own = both(X, y, **NARROW)
    assert f1_score(bad, ours.removed_) > f1_score(bad, own.removed) + 0.02


def test_the_fit_has_its_own_width():
    X, y, _ = corrupted()
    model = HLRegressor(**NARROW).fit(X, y)
    kept = ~model.removed_
    plain = HLRegressor(**NARROW, threshold=np.inf).fit(X[kept], y[kept])
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-8)
    assert model.gamma_ == NARROW["gamma"]
    assert np.all(model.label_quality_[kept] >= 0.5)
    assert np.all(model.label_quality_[~kept] < 0.5)


def test_a_function_that_needs_a_narrow_kernel_is_judged_there():
    """Fast waves, a right width and a large alpha: a wider kernel cannot follow them."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 6.0, 250))
    y = np.sin(12.0 * x) + 0.05 * rng.normal(size=250)
    y[::25] += 3.0
    model = HLRegressor(gamma=50.0, alpha=1e-3).fit(x[:, None], y)
    np.testing.assert_array_equal(model.label_quality_, judged_at(model, 1.0).quality)
    assert not np.allclose(model.label_quality_, judged_at(model, 0.5).quality, atol=1e-3)
    np.testing.assert_array_equal(np.flatnonzero(model.removed_), np.arange(0, 250, 25))


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_a_precomputed_kernel_is_judged_as_its_rows_are(kernel):
    X, y, _ = corrupted()
    params = {"gamma": 2.0, "alpha": 1e-4}
    ours, own = both(X, y, kernel=kernel, **params)
    given = oracles.gram(kernel, X, gamma=2.0)
    model = HLRegressor(kernel="precomputed", alpha=1e-4).fit(given, y)
    np.testing.assert_array_equal(model.removed_, ours.removed_)
    np.testing.assert_allclose(model.label_quality_, ours.label_quality_, atol=1e-6)
    assert not np.array_equal(ours.removed_, own.removed)  # it does make a difference


def test_a_precomputed_matrix_without_roots_is_taken_as_it_is():
    """Squared cosines: ones on the diagonal, nothing negative, but |cos| is no kernel."""
    X, y, _ = corrupted()
    K = oracles.gram("linear", X / np.linalg.norm(X, axis=1)[:, None]) ** 2
    assert np.linalg.eigvalsh(np.sqrt(K))[0] < -0.1
    assert not has_widths(K, y)
    assert has_widths(oracles.gram("rbf", X, gamma=2.0), y)


def has_widths(K, y):
    model = HLRegressor(kernel="precomputed", alpha=1e-2).fit(K, y)
    rows, data = np.arange(len(y)), replace(model.result_.data, X=K)
    reduction = Task(model.result_.settings, data).reduce(rows, np.ones(1))
    kernels = [view.kernel for view in model.result_.settings.views]
    return WiderKernels(kernels, [None], K, rows, reduction).have_widths((1.0, 0.5))


@pytest.mark.parametrize("views", [False, True])
def test_all_landmarks_judge_as_the_exact_fit_does(views):
    X, y, _ = corrupted(150)
    params = {"alpha": 1e-4, "gamma": 3.0}
    if views:
        own = [View([0], "rbf", gamma=6.0), View([1], "matern", gamma=6.0)]
        params = {"alpha": 1e-4, "views": own, "view_weights": [0.6, 0.4]}
    exact, other = both(X, y, **params)
    ours = HLRegressor(**params, approximation="nystrom", n_components=150, random_state=0).fit(
        X, y
    )
    np.testing.assert_array_equal(ours.removed_, exact.removed_)
    np.testing.assert_allclose(ours.label_quality_, exact.label_quality_, atol=1e-5)
    assert np.max(np.abs(exact.label_quality_ - other.quality)) > 1e-3


def test_several_targets_share_what_is_made_at_a_width(monkeypatch):
    X, first, _ = corrupted(250, seed=0)
    _, second, _ = corrupted(250, seed=0, share=0.15)
    Y = np.stack([first, second, first + X[:, 0]], axis=1)
    built = []
    make = gram.Inverse.__init__

    def counted(self, own, mu, *, border):
        built.append(len(own))
        make(self, own, mu, border=border)

    monkeypatch.setattr(gram.Inverse, "__init__", counted)
    model = HLRegressor(**NARROW).fit(X, Y)
    together = built.count(250)
    built.clear()
    for target in range(3):
        alone = HLRegressor(**NARROW).fit(X, Y[:, target])
        np.testing.assert_array_equal(model.removed_[:, target], alone.removed_)
        np.testing.assert_allclose(
            model.label_quality_[:, target], alone.label_quality_, atol=1e-8
        )
    assert together < built.count(250) == 3


def test_waves_are_stretched_as_the_kernel_is():
    from activehuber.kernels.feature_maps import Basis, random_fourier_features
    from activehuber.kernels.kernel import Kernel

    for name in ("rbf", "laplacian", "matern"):
        kernel = Kernel(name, gamma=0.8)
        drawn = [
            random_fourier_features(each, 3, 60, np.random.default_rng(0))
            for each in (kernel, kernel.at_width(0.25))
        ]
        stretched = Basis((None,), (drawn[0],)).at_width([kernel], 0.25).functions[0]
        np.testing.assert_allclose(stretched.frequencies, drawn[1].frequencies)


def test_too_wide_for_double_precision_is_judged_at_the_width_of_the_fit():
    """Much wider, and at this alpha, the matrix has no Cholesky factor."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 120)
    y = np.sin(9.0 * x) + 0.01 * rng.normal(size=120)
    y[::20] += 1.0
    model = HLRegressor(gamma=5000.0, alpha=1e-18).fit(x[:, None], y)
    wide, own = judged_at(model, 1.0, 2.0**-20), judged_at(model, 1.0)
    np.testing.assert_array_equal(wide.removed, own.removed)
    np.testing.assert_array_equal(wide.quality, own.quality)
