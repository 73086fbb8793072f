"""Rules for the threshold, each against its own equation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activehuber import HLRegressor, thresholds
from activehuber.leave_one_out import LeaveOneOut
from tests import oracles

RULES = ["madn", "quantile", "tuning-free"]
GAMMA = 0.5


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_a_fixed_point_and_certified(rule, kernel, intercept):
    X, y, _, _ = oracles.curve(120, 0)
    y[100:] = np.nan
    model = HLRegressor(
        kernel=kernel, gamma=GAMMA, alpha=1e-3, threshold=rule, fit_intercept=intercept
    ).fit(X, y)
    assert model.duality_gap_ <= 1e-9
    assert model.kkt_residual_ <= 1e-8
    assert not np.any(model.removed_)
    residuals = model.residuals_[:100]
    if rule == "madn":
        middle = np.median(np.abs(residuals - np.median(residuals)))
        wanted = 1.345 * 1.4826022 * middle
    elif rule == "quantile":
        wanted = np.sort(np.abs(residuals))[89]
    else:
        wanted = tuning_free_threshold(X[:100], residuals, model, kernel, intercept)
    # Degrees of freedom jump when a label changes state: there ξ rests at the jump.
    accuracy = 2e-2 if rule == "tuning-free" else 1e-6
    assert model.threshold_ == pytest.approx(wanted, rel=accuracy)


def tuning_free_threshold(X, residuals, model, kernel, intercept):
    """By bisection, with the trace of the naive smoother on the free labels."""
    K = oracles.gram(kernel, X, gamma=GAMMA)
    free = np.abs(residuals) <= model.threshold_
    A = K[np.ix_(free, free)] + 2 * len(X) * 1e-3 * np.eye(free.sum())
    inverse = np.linalg.inv(A)
    if intercept:
        sums = inverse.sum(axis=1)
        inverse -= np.outer(sums, sums) / sums.sum()
    dof = free.sum() - 2 * len(X) * 1e-3 * np.trace(inverse)
    low, high = 1e-9, 1e9
    for _ in range(200):
        middle = np.sqrt(low * high)
        mean = np.mean(np.minimum((residuals / middle) ** 2, 1.0))
        low, high = (middle, high) if mean > (dof + np.log(len(X))) / len(X) else (low, middle)
    return low


def test_a_callable_rule_gets_the_labels_alone():
    X, y, _, _ = oracles.curve(60, 0)
    y[50:] = np.nan
    weights = np.r_[np.full(25, 2.0), np.ones(35)]
    seen = []

    def rule(residuals, weights):
        seen.append((residuals, weights))
        return 0.7 * float(np.max(np.abs(residuals)))

    model = HLRegressor(threshold=rule, alpha=1e-3).fit(X, y, sample_weight=weights)
    assert all(len(r) == len(w) == 50 for r, w in seen)
    np.testing.assert_array_equal(seen[0][1], weights[:50])
    largest = np.nanmax(np.abs(model.residuals_))
    assert model.threshold_ == pytest.approx(0.7 * largest, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "wide", None])
def test_a_callable_rule_that_returns_nonsense(value):
    X, y, _, _ = oracles.curve(30, 0)
    model = HLRegressor(threshold=lambda r, w: value)
    with pytest.raises(ValueError, match="callable returned"):
        model.fit(X, y)
    assert not hasattr(model, "dual_coef_")


def test_tuning_free_without_solution_says_what_to_do():
    X, y, _, _ = oracles.curve(30, 0)
    with pytest.raises(ValueError, match="larger alpha"):
        HLRegressor(kernel="laplacian", gamma=50.0, alpha=1e-9, threshold="tuning-free").fit(
            X, y
        )


@pytest.mark.parametrize("rule", RULES)
def test_rules_take_weights_as_repetitions(rule):
    X, y, _, _ = oracles.curve(60, 1)
    counts = 1 + np.arange(60) % 3
    model = HLRegressor(threshold=rule, alpha=1e-3, gamma=0.5)
    weighted = model.fit(X, y, sample_weight=counts).threshold_
    repeated = model.fit(np.repeat(X, counts, axis=0), np.repeat(y, counts)).threshold_
    assert weighted == pytest.approx(repeated, rel=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_labels_that_are_met_exactly(rule):
    X = np.linspace(0, 1, 20).reshape(-1, 1)
    model = HLRegressor(kernel="linear", threshold=rule, alpha=1e-6).fit(X, np.full(20, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


@given(
    st.lists(st.floats(0.01, 100.0), min_size=3, max_size=30),
    st.floats(0.0, 1.5),
)
def test_tuning_free_solves_its_equation(sizes, dof):
    residuals, weights = np.array(sizes), np.ones(len(sizes))
    xi = thresholds.tuning_free(residuals, weights, dof)
    wanted = (dof + np.log(len(sizes))) / len(sizes)
    if wanted >= 1.0:
        assert np.isinf(xi)
    else:
        assert np.mean(np.minimum((residuals / xi) ** 2, 1.0)) == pytest.approx(wanted)


def test_noise_that_grows_with_the_level():
    rng = np.random.default_rng(0)
    level = np.sort(rng.uniform(0, 1, 400))
    errors = (1.0 + 9.0 * (level > 0.8)) * rng.normal(size=400)
    growth = thresholds.growth_along(level, errors, np.ones(400))
    assert np.all(growth >= 1.0)
    assert np.median(growth[level < 0.6]) < 1.2
    assert np.median(growth[level > 0.9]) > 5.0


def test_the_scale_of_most_forgets_what_is_far_out():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=1000)
    errors[:200] += 20.0
    loo = LeaveOneOut(errors, np.zeros(1000), np.ones(1000), np.zeros(1000))
    scales = thresholds.RowScales(np.ones(1000), np.zeros(1000))
    everyone = np.ones(1000, dtype=bool)
    all_of_them = thresholds.noise_scale(loo, np.ones(1000), everyone, 0.0)
    most = thresholds.scale_of_most(loo, scales, np.ones(1000), 3.5, 0.0)
    assert all_of_them > 1.25
    assert most == pytest.approx(1.0, abs=0.08)
    # a median of repetitions, and never of fewer than half
    doubled = thresholds.scale_of_most(
        LeaveOneOut(
            *(np.repeat(part, 2) for part in (errors, loo.variance, loo.ridge, loo.missing))
        ),
        thresholds.RowScales(np.ones(2000), np.zeros(2000)),
        np.ones(2000),
        3.5,
        0.0,
    )
    weighted = thresholds.scale_of_most(loo, scales, np.full(1000, 2.0), 3.5, 0.0)
    assert weighted == pytest.approx(doubled)


def test_even_odds_fall_with_the_share_of_bad_labels():
    good = np.abs(np.random.default_rng(0).normal(size=1000))
    cuts = [
        thresholds.even_odds(np.r_[good[:n], np.full(1000 - n, 12.0)], np.ones(1000), 3.5)
        for n in (1000, 998, 900, 700)
    ]
    assert cuts[0] == 3.5 and cuts[1] == 3.5
    assert 2.0 <= cuts[3] < cuts[2] < 3.5


def test_warning_when_too_many_labels_go():
    X, y, wrong, _ = oracles.curve(200, 0, bad=0.35)
    with pytest.warns(UserWarning, match="labels were removed.*second population"):
        model = HLRegressor(alpha=1e-3).fit(X, y)
    assert model.removed_[wrong].mean() > 0.9


def test_warning_when_few_labels_remain():
    X = np.arange(11.0).reshape(-1, 1)
    y = X.ravel().copy()
    y[[3, 7]] += 50.0
    with pytest.warns(UserWarning, match="9 are left"):
        HLRegressor(kernel="linear").fit(X, y)
