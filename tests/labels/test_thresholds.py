"""Rules for the threshold, each against its own equation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activehuber import HLRegressor
from activehuber.labels import thresholds
from activehuber.labels.rule import LabelRule
from activehuber.solver.leave_one_out import LeaveOneOut
from tests import oracles

RULE = LabelRule()
RULES = ["madn", "quantile", "tuning-free"]
GAMMA = 0.5


# --- values by hand -----------------------------------------------------------------------

MADN = 1.482602218505602


def loo_of(residuals, variance=0.0, ridge=1.0, missing=0.0):
    shape = np.shape(residuals)
    return LeaveOneOut(
        np.array(residuals),
        *(np.broadcast_to(x, shape) + 0.0 for x in (variance, ridge, missing)),
    )


def test_noise_scale_by_hand():
    # |e|/√(1 + q/μ) = 1, 2, 3; of weights 1, ½ and 3 the labels stand for 1, 1 and 3
    loo = loo_of([2.0, -4.0, 6.0, 99.0], variance=3.0)
    among, weights = np.array([True, True, True, False]), np.ones(4)
    assert thresholds.noise_scale(loo, weights, among, 0.0) == pytest.approx(
        MADN * (1 + 5 / 3) * 2.0
    )
    weights = np.array([1.0, 0.5, 3.0, 9.0])
    assert thresholds.noise_scale(loo, weights, among, 0.0) == pytest.approx(
        MADN * (1 + 5 / 5) * 3.0
    )
    assert thresholds.noise_scale(loo, weights, among, 50.0) == 50.0


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


def test_row_scales_by_hand():
    scales = thresholds.RowScales(np.array([1.0, 2.0]), np.array([0.0, 6.0]))
    assert scales.at(4.0).tolist() == [4.0, 10.0]
    assert scales.without_excuse().at(4.0).tolist() == [4.0, 8.0]
    # q/μ = 3, equal errors: no growth; ŷ = y − e − centre; (q + missing)/K̄ of √(s²/4 + ŷ²)
    loo = loo_of([2.0, -2.0], variance=3.0, missing=1.0)
    ground = thresholds.Ground(np.array([7.0, 4.0]), np.ones(2), 2.0, 8.0, 8.0)
    found = thresholds.row_scales(loo, ground, RULE)
    assert found.noise.tolist() == [2.0, 2.0]
    np.testing.assert_allclose(found.unknown, 0.5 * np.hypot(4.0, [3.0, 4.0]))
    for nothing in (0.0, -1.0):
        none = thresholds.Ground(ground.y, ground.weights, 2.0, 8.0, nothing)
        assert thresholds.row_scales(loo, none, RULE).unknown.tolist() == [0.0, 0.0]
    little = thresholds.Ground(ground.y, ground.weights, 2.0, 8.0, 0.5)
    np.testing.assert_allclose(
        thresholds.row_scales(loo, little, RULE).unknown, 8.0 * np.hypot(4.0, [3.0, 4.0])
    )


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


@pytest.mark.parametrize("n", [8, 60, 300])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_growth_is_that_of_each_window(n, weighted, at_once):
    rng = np.random.default_rng(n)
    level = np.round(rng.uniform(0, 1, n), 2)
    errors = (0.2 + 4 * level**2) * rng.normal(size=n)
    weights = rng.choice([0.5, 1.0, 3.0], n) if weighted else np.ones(n)
    found = thresholds.growth_along(
        level, errors, weights, RULE, most_at_once=n if at_once else n - 1
    )
    expected, order = naive_growth(level, errors, weights)
    np.testing.assert_allclose(found[order], expected, rtol=1e-9)
    assert (np.max(found) > 1.5) == (n > 30)
    assert np.all(thresholds.growth_along(level, 0.0 * errors, weights, RULE) == 1.0)


def test_even_odds_by_hand():
    """(1 − π) φ(t) = π/(2T), T twice the median of those beyond."""

    def odds(share, far):
        ratios = np.r_[np.ones(100 - share), np.full(share, far)]
        return thresholds.even_odds(ratios, np.ones(100), RULE)

    for share, far in ((20, 10.0), (10, 12.0), (30, 40.0)):
        t, pi = odds(share, far), share / 100
        density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
        assert (1 - pi) * density == pytest.approx(pi / (2 * 2 * far))
    assert odds(0, 1.0) == 3.5
    assert odds(49, 4.0) == 2.0  # no cut falls below two
    assert odds(50, 9.0) == 3.5 and odds(60, 9.0) == 3.5  # half of them: nothing is known
    assert odds(20, 3.5) == 3.5  # at the cut is not beyond
    assert odds(1, 1e6) == 3.5
    weights = np.r_[np.full(80, 0.5), np.full(10, 1.0)]
    ratios = np.r_[np.ones(80), np.full(10, 10.0)]
    assert thresholds.even_odds(ratios, weights, RULE) == pytest.approx(odds(20, 10.0))
    near = LabelRule(removal=0.05)
    assert thresholds.even_odds(np.full(3, 0.1), np.ones(3), near) == 0.05


def test_cuts_and_shares_by_hand():
    errors, scales = np.array([0.0, -3.0, 0.0, 2.0]), np.array([0.0, 2.0, 1.0, 0.0])
    assert thresholds.share_of(errors, scales).tolist() == [0.0, 1.5, 0.0, np.inf]
    ratios = np.r_[np.ones(80), np.full(20, 10.0)]
    wanted = thresholds.even_odds(ratios, np.ones(100), RULE)
    scales = np.linspace(1, 2, 100)
    found = thresholds.cuts(ratios * scales, scales, np.ones(100), RULE)
    np.testing.assert_allclose(found, wanted * scales)


@pytest.mark.parametrize("far", [1.4, 1.6])
def test_labels_beyond_doubt_are_put_aside(far):
    """Beyond 1.5 cuts, and three times at most; half of the weight has to stay."""
    rng = np.random.default_rng(3)
    good, scales = rng.normal(size=95), thresholds.RowScales(np.ones(100), np.zeros(100))

    def by_hand(errors, weights, rounds):
        among = np.ones(100, dtype=bool)
        sigma = thresholds.noise_scale(loo_of(errors), weights, among, 0.0)
        for _ in range(rounds):
            cut = sigma * thresholds.even_odds(np.abs(errors) / sigma, weights, RULE)
            near = np.abs(errors) <= 1.5 * cut
            if weights[near].sum() < 0.5 * weights.sum():
                break
            sigma = thresholds.noise_scale(loo_of(errors), weights, near, 0.0)
        return sigma

    sigma = by_hand(np.r_[good, np.full(5, 3.0)], np.ones(100), 0)
    for spread in (far * 3.5 * sigma, *np.geomspace(2.0, 60.0, 15)):
        for bad in (5, 25, 40):
            errors = np.r_[good, np.zeros(5)]
            errors[:bad] = spread * np.linspace(0.3, 1.0, bad)
            for weights in (np.ones(100), np.r_[np.full(bad, 2.5), np.ones(100 - bad)]):
                found = thresholds.scale_of_most(loo_of(errors), scales, weights, RULE, 0.0)
                assert found == pytest.approx(by_hand(errors, weights, 3))


def test_quality_by_hand():
    cuts, nobody = np.full(4, 2.0), np.zeros(4, dtype=bool)
    errors, kept = np.array([0.0, 1.0, -2.0, 6.0]), np.array([True, True, True, False])
    np.testing.assert_allclose(
        thresholds.quality(errors, cuts, kept, nobody), [1.0, 0.8, 0.5, 0.1]
    )
    # a kept label beyond its cut widens all cuts: x = |e|/6
    everyone = np.ones(4, dtype=bool)
    np.testing.assert_allclose(
        thresholds.quality(errors, cuts, everyone, nobody),
        [1.0, 1 / (1 + 1 / 36), 1 / (1 + 1 / 9), 0.5],
    )
    # unless it is trusted, which is then kept at one half
    trusted = np.array([False, False, False, True])
    np.testing.assert_allclose(
        thresholds.quality(errors, cuts, everyone, trusted), [1.0, 0.8, 0.5, 0.5]
    )
    # a dropped label within its cut stays below one half, with three digits
    inside = thresholds.quality(np.array([0.5, 2.0]), cuts[:2], nobody[:2], nobody[:2])
    assert inside.tolist() == [0.499, 0.499]
    # no cut at all: errors of any size are beyond it
    none = thresholds.quality(errors, np.zeros(4), kept, nobody)
    assert none.tolist() == [1.0, 0.5, 0.5, 0.0]


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


def test_noise_that_grows_with_the_level():
    rng = np.random.default_rng(0)
    level = np.sort(rng.uniform(0, 1, 400))
    errors = (1.0 + 9.0 * (level > 0.8)) * rng.normal(size=400)
    growth = thresholds.growth_along(level, errors, np.ones(400), RULE)
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
    most = thresholds.scale_of_most(loo, scales, np.ones(1000), RULE, 0.0)
    assert all_of_them > 1.25
    assert most == pytest.approx(1.0, abs=0.08)
    # a median of repetitions, and never of fewer than half
    doubled = thresholds.scale_of_most(
        LeaveOneOut(
            *(np.repeat(part, 2) for part in (errors, loo.variance, loo.ridge, loo.missing))
        ),
        thresholds.RowScales(np.ones(2000), np.zeros(2000)),
        np.ones(2000),
        RULE,
        0.0,
    )
    weighted = thresholds.scale_of_most(loo, scales, np.full(1000, 2.0), RULE, 0.0)
    assert weighted == pytest.approx(doubled)


def test_even_odds_fall_with_the_share_of_bad_labels():
    good = np.abs(np.random.default_rng(0).normal(size=1000))
    cuts = [
        thresholds.even_odds(np.r_[good[:n], np.full(1000 - n, 12.0)], np.ones(1000), RULE)
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
