"""The certificate against its definition in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from activehuber.problem.certificate import (
    Evaluation,
    Objective,
    _dual_point,
    _gap,
    relative_gap,
    row_certificate,
    scale_of,
)
from tests import oracles

EPSILON = Fraction(2) ** -52


def certificate(evaluation, y, weights, b, xi, alpha, c, fit_intercept):
    objective = Objective(y, weights, alpha, c, fit_intercept)
    return row_certificate(evaluation, objective, b, xi)


def exactly(values):
    return np.vectorize(Fraction, otypes=[object])(values)


def huber(r, xi):
    return r * r / 2 if abs(r) <= xi else xi * (abs(r) - xi / 2)


def clip(r, xi):
    return max(-xi, min(xi, r))


def by_definition(evaluation, y, weights, b, xi, alpha, c, fit_intercept):
    """Objective, relative gap, KKT residual and its rounding in rational numbers.

    The gap is taken from conjugates, g(r, u) = H(r) + u²/2 − ru for |u| <= ξ, not by cases.
    """
    parts = ("coefficients", "values", "penalty_gradient")
    w, f, graph = (exactly(getattr(evaluation, part)) for part in parts)
    f_size, graph_size = (
        exactly(evaluation.values_magnitude),
        exactly(evaluation.penalty_magnitude),
    )
    s, c = exactly(weights), exactly(c)
    b, xi, alpha = Fraction(b), Fraction(xi), Fraction(alpha)
    use = [i for i in range(len(s)) if s[i] > 0]
    labels = {i: Fraction(y[i]) for i in use}
    S, cc = sum(s), sum(c * c)
    r = {i: labels[i] - b - sum(f[i] * c) for i in use}
    psi = {i: clip(r[i], xi) for i in use}
    size = {i: abs(labels[i]) + abs(b) + sum(f_size[i] * abs(c)) for i in use}
    left = 2 * S * (alpha * w + graph)
    error, rho = left.copy(), EPSILON * 2 * S * (alpha * abs(w) + graph_size)
    for i in use:
        error[i] -= s[i] * psi[i] * c
        rho[i] += EPSILON * s[i] * size[i] * abs(c)
    beyond = max(max(Fraction(0), e) for e in (abs(error) - 4 * rho).ravel())

    ordered = sorted(labels.values())
    half = len(ordered) // 2
    median = (ordered[half] + ordered[-1 - half]) / 2 if fit_intercept else 0
    tau = min(xi, max(abs(label - median) for label in ordered))
    balance = Fraction(0)
    if fit_intercept:
        forgiven = min(EPSILON * sum(s[i] * size[i] for i in use), S * tau / 10**6)
        balance = max(Fraction(0), abs(sum(s[i] * psi[i] for i in use)) - forgiven)
    unit = tau * max(abs(c)) * max(s)
    if tau > 0:
        kkt, rounding = max(beyond / unit, balance / (S * tau)), max(rho.ravel()) / unit
    else:
        kkt, rounding = (np.inf if beyond > 0 or balance > 0 else 0), 0

    gap = Fraction(0)
    for i in use:
        u, slack = sum(left[i] * c) / cc / s[i], 4 * sum(rho[i] * abs(c)) / cc / s[i]
        is_bound = abs(r[i]) > xi and abs(u - psi[i]) <= slack <= xi / 1000
        u = psi[i] if is_bound else clip(u, xi)
        gap += s[i] * (huber(r[i], xi) + u * u / 2 - r[i] * u) / S
    J = sum(s[i] * huber(r[i], xi) for i in use) / S + np.sum(alpha * w * f + f * graph)
    return float(J), float(gap / J), float(kkt), float(rounding)


def figures(proof):
    return proof.objective, proof.duality_gap, proof.kkt_residual, proof.kkt_rounding


def drawn(seed, size=1.0, graph_size=1.0):
    """Any numbers at all, near an optimum; one of six rows has no label in use."""
    rng = np.random.default_rng(seed)
    n, m, alpha, xi = 6, 2, 0.05 * (1 + seed), 0.7
    c = np.array([0.5, -1.5])
    s = np.array([0.5, 2.0, 0.0, 1.0, 3.0, 0.25])
    y = np.array([1.0, -3.0, np.nan, 0.5, 2.0, -1.0])
    f, graph = 0.2 * rng.normal(size=(n, m)), 0.01 * rng.normal(size=(n, m))
    residuals = np.nan_to_num(y) - 0.1 - f @ c
    wanted = np.outer(s * np.clip(residuals, -xi, xi), c)
    w = (wanted / (2 * s.sum()) - graph) / alpha + 1e-4 * rng.normal(size=(n, m))
    sizes = rng.uniform(0.5, 1, size=(2, n, m)) * np.array([size, graph_size])[:, None, None]
    return [Evaluation(w, f, graph, *sizes), y, s, 0.1, xi, alpha, c]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_certificate_equals_its_definition(seed, fit_intercept):
    case = [*drawn(seed), fit_intercept]
    proof = figures(certificate(*case))
    assert proof == pytest.approx(by_definition(*case), rel=1e-11, abs=1e-18)
    assert proof[2] > 1e-8  # there is something to be seen


@pytest.mark.parametrize("what", ["size", "graph_size"])
def test_certificate_forgives_rounding_and_no_more(what):
    """Numbers so large that their rounding comes near the errors, in small steps."""
    for exponent in np.arange(11.0, 16.0, 0.04):
        case = [*drawn(1, **{what: 10.0**exponent}), True]
        assert figures(certificate(*case)) == pytest.approx(
            by_definition(*case), rel=1e-9, abs=1e-14
        ), exponent


def one_label(y, w, size=0.0, graph_size=0.0, *, s=(1.0,), fit_intercept=False, xi=1.0):
    """f = 0, one view, 2Sλ = 1: E = w − sψ(y)."""
    y, s = np.array(y), np.array(s)
    columns = [np.array(w), np.zeros(len(y)), np.zeros(len(y))]
    columns += [np.full(len(y), size), np.full(len(y), graph_size)]
    evaluation = Evaluation(*(column[:, None] for column in columns))
    alpha = 0.5 / s.sum()
    return evaluation, y, s, 0.0, xi, alpha, np.ones(1), fit_intercept


@pytest.mark.parametrize("size", [1e6, 1e8, 1.05e8, 1e9, 1e12, 1e16])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_balance_forgives_rounding_up_to_a_millionth_of_the_labels(size, scale):
    """E is hidden by the rounding of a graph; Σψ = 2⁻²² or 2⁻¹⁵ of ξ is what is left."""
    for excess in (2.0**-22, 2.0**-15):
        y = scale * np.array([1.0, -1.0, excess, 3.0, -3.0])
        case = one_label(
            y, np.zeros(5), size, 1e18, s=np.full(5, 0.5), fit_intercept=True, xi=scale
        )
        proof = certificate(*case)
        assert figures(proof) == pytest.approx(by_definition(*case), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("share", "gap"), [(0.95, True), (1.05, False)])
def test_a_bound_label_may_miss_its_bound_by_four_roundings(share, gap):
    missed = 2.0**-20
    graph_size = share * missed / (8.0 * float(EPSILON))  # slack is 8 of its roundings
    case = one_label([2.0], [1.0 - missed], graph_size=graph_size)
    assert (certificate(*case).duality_gap > 1e-7) == gap
    assert certificate(*case).duality_gap == pytest.approx(by_definition(*case)[1], rel=1e-9)


def test_labels_without_any_scale():
    """Labels that are all alike, with an intercept: nothing may be violated."""

    def proof(w, y=(3.0, 3.0), b=3.0):
        evaluation, y, s, _, xi, alpha, c, _ = one_label(y, w, s=(1.0, 1.0))
        return certificate(evaluation, y, s, b, xi, alpha, c, True)

    assert figures(proof([0.0, 0.0])) == (0.0, 0.0, 0.0, 0.0)
    assert proof([0.5, -0.5]).kkt_residual == np.inf  # E is violated, the balance is not
    assert proof([0.5, 0.5], b=2.5).kkt_residual == np.inf  # the balance is, E is not
    assert proof([0.5, 0.5]).duality_gap == np.inf


def test_scale_of_labels():
    labels = np.array([1.0, 2.0, 7.0])
    assert scale_of(labels, np.inf, True) == 5.0
    assert scale_of(labels, np.inf, False) == 7.0
    assert scale_of(labels, 3.0, True) == 3.0
    assert scale_of(-labels, np.inf, True) == 5.0


def test_relative_gap():
    assert relative_gap(0.5, 0.25) == 2.0
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(-1e-20, 0.0) == 0.0
    assert relative_gap(0.5, 0.0) == np.inf
    assert relative_gap(2.0, 0.0) == np.inf


def test_dual_point():
    """Within the box; a bound label that is off by no more than the slack is at its bound."""
    xi = 2.0
    residuals = np.array([3.0, 3.0, 3.0, 2.0, 1.0, -3.0, -3.0, 1.0])
    slack = np.array([0.001, 0.001, 0.002, 0.001, 0.001, 0.001, 0.001, 0.001])
    dual = np.array([1.9991, 1.9989, 1.9981, 1.9991, 0.5, -1.9991, 1.9991, 5.0])
    expected = [2.0, 1.9989, 2.0, 1.9991, 0.5, -2.0, 1.9991, 2.0]
    assert _dual_point(dual, slack, residuals, xi).tolist() == expected
    # slack beyond a thousandth of ξ excuses nothing; exactly a thousandth does
    wide, near = np.array([0.0021, 0.002]), np.array([1.9991, 1.9991])
    assert _dual_point(near, wide, np.full(2, 3.0), xi).tolist() == [1.9991, 2.0]
    # just as much as the slack, in numbers without rounding
    tie = _dual_point(np.array([2.0 - 2.0**-10]), np.array([2.0**-10]), np.full(1, 3.0), xi)
    assert tie.tolist() == [2.0]


@pytest.mark.parametrize("r", [-3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("u", [-1.0, -0.5, 0.0, 0.75, 1.0])
def test_gap_is_that_of_the_conjugate(r, u):
    """By trying: g(r, u) = H(r) + sup over t of (ut − H(t)) − ru."""
    t = np.linspace(-2.0, 2.0, 4001)  # the supremum is at t = u, on the grid
    wanted = oracles.huber([r], 1.0)[0] + np.max(u * t - oracles.huber(t, 1.0)) - r * u
    found = _gap(np.array([r, r]), np.array([u, u]), np.array([1.0, 0.5]), 1.0)
    assert found == pytest.approx(1.5 * wanted, abs=1e-12)


def test_nothing_vouches_for_an_objective_that_overflowed():
    assert relative_gap(1.0, np.inf) == np.inf
    assert relative_gap(0.0, np.nan) == np.inf
    assert relative_gap(0.0, 0.0) == 0.0 and relative_gap(1.0, 0.0) == np.inf
    assert relative_gap(1.0, 4.0) == 0.25
