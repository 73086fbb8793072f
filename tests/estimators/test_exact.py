"""Both certificates, recomputed naively, on every kind of problem; objectives beside CVXPY."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from activehuber import HLRegressor
from tests import oracles
from tests.pairwise import crossed

GAMMA = 0.4
MODES = (0.15, np.inf, "refine")


def problem(seed, n, supervised):
    X, y, *_ = oracles.curve(n, seed, d=3)
    if not supervised:
        y[n // 2 :] = np.nan
    return X, y


def fit(kernel, X, y, **params):
    params = {"gamma": GAMMA, "threshold_step": 0.05, **params}
    if kernel == "precomputed":
        return HLRegressor(kernel="precomputed", **params).fit(
            oracles.gram("rbf", X, gamma=GAMMA), y
        )
    return HLRegressor(kernel=kernel, **params).fit(X, y)


def in_use(model, y):
    return np.where(model.removed_, np.nan, y)


def check_certificates(model, K, y, alpha, manifold=0.0, M=None, intercept=True):
    assert model.duality_gap_ <= 1e-9
    assert model.kkt_residual_ <= 1e-8
    used = in_use(model, y)
    naive, rounding = oracles.kkt(
        K,
        used,
        model.dual_coef_,
        model.intercept_,
        model.threshold_,
        alpha,
        manifold,
        M,
        None,
        intercept,
    )
    assert naive <= 1e-8 + 4 * rounding
    J = oracles.objective(
        K, used, model.dual_coef_, model.intercept_, model.threshold_, alpha, manifold, M
    )
    assert model.objective_ == pytest.approx(J, rel=1e-9, abs=1e-300)
    return rounding


@crossed(
    kernel=[*oracles.KERNELS, "precomputed"],
    supervised=[True, False],
    intercept=[True, False],
    mode=MODES,
)
def test_certificates_and_objective(kernel, supervised, intercept, mode):
    X, y = problem(3, 36, supervised)
    alpha, manifold = 1e-3, 0.0 if supervised else 1e-2
    K = oracles.gram("rbf" if kernel == "precomputed" else kernel, X, gamma=GAMMA)
    # d² from a precomputed RBF kernel has the same neighbours as X itself.
    M = None if supervised else oracles.knn_laplacian(X, 10)[0]
    model = fit(
        kernel, X, y, alpha=alpha, manifold=manifold, threshold=mode, fit_intercept=intercept
    )
    check_certificates(model, K, y, alpha, manifold, M, intercept)
    if kernel in ("rbf", "laplacian"):
        assert model.kkt_rounding_ < 1e-8
    xi = model.threshold_
    best = oracles.cvxpy_objective(K, in_use(model, y), xi, alpha, manifold, M, intercept)
    assert model.objective_ <= best * (1 + 1e-7)
    assert model.objective_ >= best * (1 - 1e-6)  # and it is a minimum of the same problem


# Of ten labels one that lies far out may go: nine left are few, as the warning says.
@pytest.mark.filterwarnings("ignore:1 of 10 labels were removed:UserWarning")
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("alpha", [1e-7, 1e-5, 1e-2])
@pytest.mark.parametrize("n", [10, 150, 900])
def test_rounding_cannot_hide_a_bad_solve(kernel, alpha, n):
    X, y = problem(n, n, True)
    for mode in (0.1, np.inf, "refine", "adaptive"):
        model = HLRegressor(kernel=kernel, alpha=alpha, threshold=mode, threshold_step=1e-6)
        model.fit(X, y)
        assert model.kkt_rounding_ < 1e-8
        assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


HARD = ("plain", "duplicated", "rank", "one", "constant")


def hard(kind, n=40):
    X, y = problem(11, n, True)
    if kind == "duplicated":
        X = X[np.random.default_rng(0).integers(0, n // 3, n)]
    if kind == "rank":
        X = np.outer(X[:, 0], [1.0, 2.0, -1.0])
    if kind == "one":
        y[1:] = np.nan
    if kind == "constant":
        y[:] = 2.5
    return X, y


@pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")
@crossed(
    kind=HARD,
    kernel=oracles.KERNELS,
    intercept=[True, False],
    manifold=[0.0, 1e-4],
    alpha=[1e-10, 1e-3],
)
def test_hard_problems_are_certified(kind, kernel, intercept, manifold, alpha):
    X, y = hard(kind)
    for mode in (1e-6, 0.15, np.inf, "refine", "adaptive"):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no refinement was possible")
            model = fit(
                kernel,
                X,
                y,
                alpha=alpha,
                manifold=manifold,
                threshold=mode,
                fit_intercept=intercept,
            )
        assert model.duality_gap_ <= 1e-9, mode
        assert model.kkt_residual_ <= 1e-8, mode
        assert np.all(np.isfinite(model.predict(X)))
        given = ~np.isnan(y)
        assert np.all(np.isfinite(model.loo_residuals_[given]))
        assert np.all((model.label_quality_[given] >= 0) & (model.label_quality_[given] <= 1))


def test_no_label_free():
    X, y = problem(5, 30, True)
    model = HLRegressor(kernel="rbf", alpha=1.0, threshold=1e-7).fit(X, y)
    assert np.all(np.abs(model.residuals_) > 1e-7)
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


@pytest.mark.parametrize("what", ["w", "b", "one"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("manifold", [0.0, 1e-2])
def test_certificates_fail_on_a_perturbed_solution(what, intercept, manifold):
    from activehuber.problem.certificate import Objective, row_certificate

    X, y = problem(2, 40, True)
    fitted = HLRegressor(
        gamma=GAMMA, threshold=0.3, manifold=manifold, fit_intercept=intercept
    ).fit(X, y)
    K, M = oracles.gram("rbf", X, gamma=GAMMA), oracles.knn_laplacian(X, 10)[0]

    def proof(w, b):
        evaluation = naive_evaluation(K, M, manifold, w)
        objective = Objective(y, np.ones(40), 1e-4, np.ones(1), intercept)
        return row_certificate(evaluation, objective, b, 0.3)

    w, b = fitted.dual_coef_.copy(), fitted.intercept_
    good = proof(w, b)
    assert good.duality_gap <= 1e-9 and good.kkt_residual <= 1e-8
    if what == "w":
        w *= 1 + 1e-2
    if what == "b":
        b += 1e-2
    if what == "one":
        w[np.argmax(np.abs(w) < np.max(np.abs(w)))] += 0.1 * np.max(np.abs(w))
    bad = proof(w, b)
    assert bad.duality_gap > 1e-9 and bad.kkt_residual > 1e-8


def naive_evaluation(K, M, manifold, w):
    from activehuber.problem.certificate import Evaluation

    f = K @ w
    columns = (w, f, manifold * M @ f, abs(K) @ abs(w), manifold * abs(M) @ (abs(K) @ abs(w)))
    return Evaluation(*(column[:, None] for column in columns))


def test_zero_is_not_certified_at_a_tiny_threshold():
    """w = 0 has a small absolute residual at ξ = 1e-9; the scaled one is large."""
    from activehuber.problem.certificate import Objective, row_certificate

    X, y = problem(2, 20, True)
    K = oracles.gram("rbf", X, gamma=GAMMA)
    evaluation = naive_evaluation(K, np.zeros((20, 20)), 0.0, np.zeros(20))
    objective = Objective(y, np.ones(20), 1e-4, np.ones(1), False)
    proof = row_certificate(evaluation, objective, 0.0, 1e-9)
    assert proof.kkt_residual > 0.5 and proof.duality_gap > 0.5


def test_undamped_iteration_would_cycle_here():
    """Section 3.5 of the method: patterns (0,0) → (1,1) → (−1,1) → …; the optimum is (0,1)."""
    K = np.array([[18.0, -6.0], [-6.0, 4.0]])
    model = HLRegressor(kernel="precomputed", alpha=0.2, threshold=0.1, fit_intercept=False)
    model.fit(K, [1.0, 2.0])
    state = np.sign(model.residuals_) * (np.abs(model.residuals_) > 0.1)
    assert state.tolist() == [0.0, 1.0]
    assert model.kkt_residual_ <= 1e-12


def test_undecidable_problem_warns(rng):
    X = 3e3 * rng.normal(size=(60, 3))
    y = X[:, 0] / 3e3 + rng.normal(size=60)
    with pytest.warns(ConvergenceWarning, match="double precision"):
        HLRegressor(kernel="linear", alpha=1e-10, threshold=1e-3, fit_intercept=False).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "poly"])
def test_objective_at_size(kernel):
    X, y = problem(1, 400, True)
    K = oracles.gram(kernel, X, gamma=GAMMA)
    model = HLRegressor(kernel=kernel, gamma=GAMMA, alpha=1e-4, threshold=0.1).fit(X, y)
    best = oracles.cvxpy_objective(K, y, 0.1, 1e-4)
    assert model.objective_ <= best * (1 + 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1500, 3000])
@pytest.mark.parametrize("mode", [0.12, "refine", "adaptive"])
def test_certificates_at_size(n, mode):
    X, y = problem(n, n, True)
    model = HLRegressor(gamma=GAMMA, threshold=mode, threshold_step=0.05).fit(X, y)
    check_certificates(model, oracles.gram("rbf", X, gamma=GAMMA), y, 1e-4)
