import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from activehuber import huber
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
