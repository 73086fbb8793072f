import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from activehuber.loss import huber
from tests import oracles

residuals = st.lists(st.floats(-50, 50, allow_subnormal=False), min_size=1, max_size=30).map(
    np.array
)


def test_value_by_hand():
    assert huber.value(np.array([0.0, 1.0, -2.0, 5.0]), 2.0).tolist() == [0.0, 0.5, 2.0, 8.0]


@given(residuals, st.floats(1e-3, 60))
def test_value_equals_the_definition(r, xi):
    np.testing.assert_allclose(huber.value(r, xi), oracles.huber(r, xi), rtol=1e-12, atol=1e-12)


def test_infinite_threshold_is_the_square():
    assert huber.value(np.array([3.0]), np.inf)[0] == 4.5


@given(residuals, st.floats(1e-2, 60))
def test_psi_is_the_derivative(r, xi):
    h = 1e-6
    r = r[np.abs(np.abs(r) - xi) > 1e-3]
    slope = (huber.value(r + h, xi) - huber.value(r - h, xi)) / (2 * h)
    np.testing.assert_allclose(huber.psi(r, xi), slope, atol=1e-6)


@given(residuals, st.floats(1e-2, 60), st.integers(0, 1000))
def test_location_minimises(values, xi, seed):
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(values))

    def risk(b):
        return float(weights @ huber.value(values - b, xi))

    best = minimize_scalar(
        risk, bounds=(-60, 60), method="bounded", options={"xatol": 1e-9}
    ).fun
    assert risk(huber.location(values, weights, xi)) <= best * (1 + 1e-12) + 1e-12


def test_location_takes_the_middle_of_a_plateau():
    # ψ = ±1 for every b in [1, 9]: the middle is 5.
    assert huber.location(np.array([0.0, 10.0]), np.ones(2), 1.0) == pytest.approx(5.0)


@given(st.integers(0, 10_000))
def test_line_minimum_is_exact(seed):
    rng = np.random.default_rng(seed)
    r, d, w = rng.normal(size=20), rng.normal(size=20), rng.uniform(0.1, 1, 20)
    xi, curvature = rng.uniform(0.05, 2), rng.uniform(0.01, 1)
    linear = -float(w * huber.psi(r, xi) @ d) - rng.uniform(0, 3)  # a direction of descent

    def phi(t):
        return float(w @ huber.value(r + t * d, xi)) + linear * t + 0.5 * curvature * t**2

    t = huber.line_minimum(r, d, w, xi, linear, curvature)
    best = minimize_scalar(
        phi, bounds=(0, huber.LONGEST_STEP), method="bounded", options={"xatol": 1e-10}
    )
    assert phi(t) <= best.fun + 1e-9 * abs(best.fun)


# --- roots by hand ------------------------------------------------------------------------


def piecewise(points, values):
    """The function through some points, with how often it was asked."""
    calls = []

    def function(x):
        calls.append(x)
        return float(np.interp(x, points, values))

    return function, calls


@pytest.mark.parametrize(
    ("points", "values", "root"),
    [
        ([0.0, 1.0, 3.0], [-1.0, -0.5, 1.5], 1.5),  # between two breakpoints
        ([0.0, 1.0, 3.0, 4.0], [-4.0, -3.0, -1.0, 2.0], 3.0 + 1.0 / 3.0),  # in the last part
        ([1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 3.0, 4.0, 5.0, 6.0], 1.25),  # in the first
        ([1.0, 2.0], [-1.0, 3.0], 1.25),
        ([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], 2.0),  # above zero everywhere
        ([2.0, 3.0, 4.0], [-3.0, -2.0, -1.0], 4.0),  # below zero everywhere
        ([2.0, 3.0, 4.0], [0.0, 2.0, 3.0], 2.0),  # zero at either end
        ([2.0, 3.0, 4.0], [-3.0, -2.0, 0.0], 4.0),
        ([7.0], [-1.0], 7.0),  # nothing to choose from
        ([7.0], [1.0], 7.0),
        ([1.0, 3.0], [0.0, 0.0], 2.0),  # plateaus
        ([1.0, 3.0, 4.0], [0.0, 0.0, 1.0], 2.0),
        ([0.0, 1.0, 3.0], [-1.0, 0.0, 0.0], 2.0),
        ([0.0, 1.0, 2.0, 2.5, 4.0, 5.0], [-1.0, 0.0, 0.0, 0.0, 0.0, 1.0], 2.5),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, -0.5, -0.25, 0.0, 0.0, 1.0], 3.5),
    ],
)
def test_root_by_hand(points, values, root):
    function, _ = piecewise(points, values)
    shuffled = np.random.default_rng(0).permutation(points)
    assert huber.root_of_increasing(function, shuffled) == pytest.approx(root, rel=1e-14)


def test_root_counts_rounding_as_zero_up_to_its_size():
    """Values of exactly `zero` are zero, those beyond are not."""
    wide = [0.0, 1.0, 2.0, 4.0, 5.0, 6.0], [-3.0, -0.5, -0.5, 0.5, 3.0, 4.0]
    assert huber.root_of_increasing(piecewise(*wide)[0], np.array(wide[0]), 0.5) == 2.5
    assert huber.root_of_increasing(piecewise(*wide)[0], np.array(wide[0]), 0.49) == 3.0
    # both ends of two points, one end only, and none
    two = np.array([1.0, 3.0])
    assert huber.root_of_increasing(piecewise(two, [-0.5, 0.5])[0], two, 0.5) == 2.0
    assert huber.root_of_increasing(piecewise(two, [-0.5, 0.25])[0], two, 0.5) == 2.0
    uneven = piecewise(two, [-0.5, 1.5])[0]
    assert huber.root_of_increasing(uneven, two, 0.5) == 1.5
    assert huber.root_of_increasing(piecewise(two, [-1.5, 0.5])[0], two, 0.5) == 2.5
    # at the ends: rounding on the wrong side of zero is no reason to stop there
    ends = np.array([0.0, 1.0, 2.0])
    assert huber.root_of_increasing(piecewise(ends, [0.5, 0.5, 2.0])[0], ends, 0.5) == 0.5
    assert huber.root_of_increasing(piecewise(ends, [0.6, 0.6, 2.0])[0], ends, 0.5) == 0.0
    assert huber.root_of_increasing(piecewise(ends, [-2.0, -0.5, -0.5])[0], ends, 0.5) == 1.5
    assert huber.root_of_increasing(piecewise(ends, [-2.0, -1.0, -0.6])[0], ends, 0.5) == 2.0
    # both within rounding of zero, on the same side: the middle, not a point far outside
    assert huber.root_of_increasing(piecewise(two, [0.25, 0.5])[0], two, 0.5) == 2.0


def test_bisection_halves():
    points = np.arange(1025.0)
    for root in (0.5, 300.25, 1023.5):
        function, calls = piecewise(points, points - root)
        assert huber.root_of_increasing(function, points) == pytest.approx(root)
        assert len(calls) == 12


def test_location_by_hand():
    values, weights = np.array([0.0, 1.0, 10.0]), np.array([1.0, 2.0, 1.0])
    assert huber.location(values, weights, np.inf) == 3.0
    # (0 − b) + 2(1 − b) + 2 = 0 as long as only the last is bound
    assert huber.location(values, weights, 2.0) == pytest.approx(4.0 / 3.0)
    # weights that cancel but for rounding leave a plateau from 0 + ξ to 10 − ξ
    thirds = np.full(3, 0.1), 0.1 + 0.1 + 0.1
    balanced = np.append(np.zeros(3), 10.0), np.append(thirds[0], thirds[1])
    assert huber.location(*balanced, 1.0) == pytest.approx(5.0)
    assert huber.location(balanced[0], 100.0 * balanced[1], 1.0) == pytest.approx(5.0)
    assert huber.location(1e-3 * balanced[0], balanced[1], 1e-3) == pytest.approx(5e-3)
    # an imbalance that is none of rounding's goes to the heavier side
    heavier = np.append(thirds[0], thirds[1] * (1.0 + 1e-13))
    assert huber.location(balanced[0], heavier, 1.0) == pytest.approx(9.0)
    assert huber.location(1e-3 * balanced[0], heavier, 1e-3) == pytest.approx(9e-3)


VALUES, EVEN = np.array([-10.0, -7.0, 3.0, 5.0]), np.ones(4)


@pytest.mark.parametrize("b", [-6.0, -3.0, 1.0, 2.0])
def test_middle_of_a_plateau_from_anywhere_on_it(b):
    assert huber.middle_of_plateau(VALUES, EVEN, 1.0, b) == -2.0
    # b itself is a value when ξ is nothing
    assert huber.middle_of_plateau(VALUES / 4, EVEN / 8, 0.25, b / 4) == -0.5


def test_a_minimiser_that_is_the_only_one_stays():
    assert huber.middle_of_plateau(VALUES, EVEN, np.inf, -1.0) == -1.0
    assert huber.middle_of_plateau(VALUES, EVEN, 1.0, 2.5) == 2.5  # 3 − 2.5 is free
    assert huber.middle_of_plateau(VALUES, EVEN + (VALUES == 5.0), 1.0, 0.0) == 0.0
    assert huber.middle_of_plateau(VALUES, EVEN, 1.0, 100.0) == 100.0  # all below
    assert huber.middle_of_plateau(VALUES, EVEN, 1.0, -100.0) == -100.0
    # even if what is on the other side weighs nothing
    nothing = np.zeros(4)
    assert huber.middle_of_plateau(VALUES, nothing, 1.0, 100.0) == 100.0
    assert huber.middle_of_plateau(VALUES, nothing, 1.0, -100.0) == -100.0


@pytest.mark.parametrize("xi", [1.0, 0.01])
def test_a_plateau_to_within_rounding(xi):
    """Residuals may miss ±ξ by 1e-9 of it, signs may miss balance by 1e-12 of the weight."""
    values, middle = xi * VALUES, -2.0 * xi
    inside = xi * (2.0 + 0.5e-9)  # leaves 3 − 2 − 5e-10
    assert huber.middle_of_plateau(values, EVEN, xi, inside) == pytest.approx(middle)
    too_far = xi * (2.0 + 5e-9)
    assert huber.middle_of_plateau(values, EVEN, xi, too_far) == too_far
    for total in (1.0, 100.0):
        weights = 0.25 * total * EVEN
        near = weights + total * np.array([0, 0, 0, 0.5e-12])
        far = weights + total * np.array([0, 0, 0, 5e-12])
        assert huber.middle_of_plateau(values, near, xi, 0.0) == pytest.approx(middle)
        assert huber.middle_of_plateau(values, far, xi, 0.0) == 0.0


def test_line_minimum_by_hand():
    r, d, w = np.array([2.0, -1.0, 0.5]), np.array([-1.0, 0.0, 0.0]), np.array([1.0, 3.0, 9.0])
    # ψ(2 − t): φ' = −1 + ½t until t = 1, then −(2 − t) + ½t: zero at 4/3
    assert huber.line_minimum(r, d, w, 1.0, 0.0, 0.5) == pytest.approx(4.0 / 3.0)
    assert huber.line_minimum(r, d, w, 1.0, -0.25, 0.5) == pytest.approx(1.5)
    assert huber.line_minimum(r, d, w, 1.0, 5.0, 0.5) == 0.0  # uphill
    assert huber.line_minimum(r, 0.0 * d, w, 1.0, -1.0, 0.25) == pytest.approx(4.0)
    # r + t stays within ξ until t = 0.25 and beyond −0.75 until then, with another sign
    assert huber.line_minimum(r[2:], -d[:1], w[:1], 0.75, -0.7, 0.0) == pytest.approx(0.2)
    # no end in sight: no further than the longest step
    assert huber.line_minimum(r, 0.0 * d, w, 1.0, -1.0, 0.0) == 64.0
    assert huber.line_minimum(r[:1], np.ones(1), np.ones(1), 1.0, -2.0, 1e-9) == 64.0
    # crossings so far away that their number overflows do not matter
    assert huber.line_minimum(1e300 * r, 1e-30 * d, w, 1.0, -1.0, 0.25) == pytest.approx(4.0)
