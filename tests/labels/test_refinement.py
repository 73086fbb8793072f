"""HLR with refinements: Propositions 1 and 2, the printed scheme, trusted labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activehuber import HLRegressor
from tests import oracles


@given(
    st.integers(0, 10_000), st.sampled_from([0.0, 1e-2]), st.booleans(), st.floats(0.02, 0.6)
)
def test_propositions_one_and_two(seed, manifold, intercept, step):
    """After every refinement both certificates hold on the labels in use; ξ falls strictly."""
    X, y, *_ = oracles.curve(30, seed, bad=0.2)
    y[25:] = np.nan
    thresholds = []
    for n_refinements in range(4):
        model = HLRegressor(
            gamma=0.5,
            alpha=1e-3,
            manifold=manifold,
            threshold="refine",
            threshold_step=step,
            n_refinements=n_refinements,
            fit_intercept=intercept,
        ).fit(X, y)
        assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8
        used = ~model.removed_ & ~np.isnan(y)
        assert model.threshold_ == pytest.approx(
            np.max(np.abs(model.residuals_[used])), rel=1e-9
        )
        assert np.all(np.diff(model.thresholds_) < 0)
        thresholds.append(model.thresholds_)
    np.testing.assert_allclose(thresholds[3][: len(thresholds[2])], thresholds[2], rtol=1e-9)


def test_refined_fit_is_least_squares_on_the_labels_in_use():
    X, y, *_ = oracles.curve(60, 3)
    model = HLRegressor(gamma=0.5, alpha=1e-3, threshold="refine", threshold_step=0.3).fit(X, y)
    assert 0 < model.removed_.sum() < 30
    kept = ~model.removed_
    again = HLRegressor(gamma=0.5, alpha=1e-3, threshold=np.inf).fit(X[kept], y[kept])
    np.testing.assert_allclose(model.predict(X), again.predict(X), atol=1e-9)
    assert model.n_labelled_ == kept.sum()


def test_no_refinement_is_least_squares():
    X, y, *_ = oracles.curve(40, 1)
    none = HLRegressor(threshold="refine", n_refinements=0).fit(X, y)
    ridge = HLRegressor(threshold=np.inf).fit(X, y)
    np.testing.assert_allclose(none.predict(X), ridge.predict(X), atol=1e-10)
    assert len(none.thresholds_) == 1 and not none.removed_.any()


def test_a_step_larger_than_every_residual_warns():
    X, y, *_ = oracles.curve(30, 1)
    with pytest.warns(UserWarning, match="no refinement was possible.*units of y"):
        HLRegressor(threshold="refine", threshold_step=1e3).fit(X, y)


@pytest.mark.parametrize("mode", ["refine", "adaptive"])
def test_trusted_labels_stay(mode):
    X, y, wrong, _ = oracles.curve(80, 5)
    trusted = np.zeros(80, dtype=bool)
    trusted[np.flatnonzero(wrong)[:3]] = True
    model = HLRegressor(gamma=0.5, alpha=1e-3, threshold=mode, threshold_step=0.3)
    free, kept = model.fit(X, y).removed_, model.fit(X, y, trusted=trusted).removed_
    assert np.any(free[trusted]) and not np.any(kept[trusted])
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8


def test_paper_scheme_is_one_linear_solve():
    """The printed scheme at T = 1, by dense algebra (errata mended, no intercept)."""
    X, y, *_ = oracles.curve(40, 2, bad=0.15)
    alpha, step, n = 1e-2, 0.5, 40
    K = oracles.gram("rbf", X, gamma=0.5)
    w0 = np.linalg.solve(K + 2 * n * alpha * np.eye(n), y)
    r0 = y - K @ w0
    xi = np.max(np.abs(r0)) - step
    inside = np.abs(r0) <= xi
    A = inside[:, None] * K + 2 * n * alpha * np.eye(n)
    w1 = np.linalg.solve(A, np.where(inside, y, xi * np.sign(r0)))
    dropped = np.abs(y - K @ w1) >= xi
    model = HLRegressor(
        gamma=0.5,
        alpha=alpha,
        threshold="refine",
        algorithm="paper",
        n_refinements=1,
        threshold_step=step,
        fit_intercept=False,
    ).fit(X, y)
    np.testing.assert_allclose(model.dual_coef_, w1, atol=1e-9)
    assert dropped.any() and np.array_equal(model.removed_, dropped)
    exact = HLRegressor(
        gamma=0.5,
        alpha=alpha,
        threshold="refine",
        n_refinements=1,
        threshold_step=step,
        fit_intercept=False,
    ).fit(X, y)
    assert exact.kkt_residual_ < 1e-8 < model.kkt_residual_


def test_verbose_says_what_happens(capsys):
    X, y, *_ = oracles.curve(40, 3)
    HLRegressor(threshold="refine", threshold_step=0.2, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2
    assert all(word in lines[-1] for word in ("rows 40", "removed", "threshold", " s"))
