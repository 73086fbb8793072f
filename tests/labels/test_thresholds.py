"""Rules for the threshold, each against its own equation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activehuber import HLRegressor
from activehuber.labels import thresholds
from tests import oracles

RULES = ["madn", "quantile", "tuning-free"]
GAMMA = 0.5


# --- values by hand -----------------------------------------------------------------------

MADN = 1.482602218505602


def test_rules_by_hand():
    residuals, ones = np.array([-1.0, 0.0, 1.0, 2.0, -100.0]), np.ones(5)
    assert thresholds.madn(residuals, ones) == pytest.approx(1.345 * MADN)
    assert thresholds.quantile(-np.arange(20.0), np.ones(20)) == 17.0
    assert thresholds.quantile(np.arange(10.0), np.r_[np.ones(9), 8.0]) == 9.0
    # Σ w min(r²/ξ², 1) = dof + log W; one of r² = 1 and three of 16: with ξ beyond both
    r, w = np.array([-1.0, 4.0]), np.array([1.0, 3.0])
    wanted = 2.0 + np.log(4.0)
    assert thresholds.tuning_free(r, w, 2.0) == pytest.approx(1.0 / np.sqrt(wanted - 3.0))
    assert thresholds.tuning_free(r, w, 0.5) == pytest.approx(7.0 / np.sqrt(0.5 + np.log(4.0)))
    assert thresholds.tuning_free(r, w, 4.0 - np.log(4.0)) == np.inf
    # mean 1 − ε: ξ is as small as the smallest size; zeros only leave nothing to go by
    assert thresholds.tuning_free(r, w, 3.999 - np.log(4.0)) == pytest.approx(1.0005, rel=1e-3)
    assert thresholds.tuning_free(np.zeros(3), np.ones(3), 0.5) == 0.0


def naive_growth(level, errors, weights):
    """Sixteen windows over the ranks, each by itself."""
    sizes = np.abs(errors)
    order = sorted(range(len(level)), key=lambda i: (level[i], sizes[i]))
    level, sizes, weights = (np.asarray(x)[order] for x in (level, sizes, weights))
    total = weights.sum()
    unit = total / np.sum(np.maximum(weights, 1.0))
    width = min(total, max(0.15 * total, 30 * unit))
    ends = np.cumsum(weights)

    def low_quantile(sizes, weights):
        ranked = np.argsort(sizes, kind="stable")
        reached = np.cumsum(weights[ranked]) >= 0.35 * weights.sum() * (1 - 1e-12)
        return sizes[ranked][np.argmax(reached)]

    stops, local = [], []
    for centre in np.linspace(width / 2, total - width / 2, 16):
        inside = [
            max(0.0, min(end, centre + width / 2) - max(end - w, centre - width / 2))
            for end, w in zip(ends, weights, strict=True)
        ]
        stops.append(level[min(np.sum(ends < centre), len(level) - 1)])
        local.append(low_quantile(sizes, np.array(inside)))
    usual = low_quantile(sizes, weights)
    return np.maximum(1.0, 0.7 * np.interp(level, stops, local) / usual), order


# --- as the estimator uses them -----------------------------------------------------------


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
