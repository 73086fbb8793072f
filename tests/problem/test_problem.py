"""The reduced problem against its definition."""

import numpy as np
import pytest

from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem


def small_problem(fit_intercept=True):
    matrix = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 4.0]])
    return Problem(
        DenseGram(matrix),
        np.array([1.0, -2.0, 30.0]),
        np.array([0.5, 2.0, 4.0]),
        0.25,
        fit_intercept,
        np.array([True, True, False]),
    )


def test_mu_counts_the_weight_in_use():
    assert small_problem().total_weight == 2.5
    assert small_problem().mu.tolist() == [2.5, 0.625, 0.3125]  # 2 · 2.5 · ¼ / s
    everyone = small_problem().using(np.ones(3, dtype=bool))
    assert everyone.mu.tolist() == [6.5, 1.625, 0.8125]


def test_some_of_the_labels():
    whole, rows = small_problem(), np.array([2, 0])
    part = whole.on_some(rows, whole.gram.subset(rows))
    assert part.y.tolist() == [30.0, 1.0]
    assert part.weights.tolist() == [4.0, 0.5]
    assert part.active.tolist() == [False, True]
    assert part.gram.matrix.tolist() == [[4.0, 0.5], [0.5, 2.0]]
    assert part.total_weight == 0.5


def test_residuals_are_labels_without_intercept_and_fit():
    class Fit:
        intercept, fitted = 0.5, np.array([0.25, 0.5, 1.0])

    assert small_problem().residuals(Fit()).tolist() == [0.25, -3.0, 28.5]


def test_the_intercept_balances_the_labels_in_use():
    problem = small_problem()
    fitted = np.array([0.25, 0.5, 7.0])  # leaves 0.75 of weight ½ and −2.5 of weight 2
    assert problem.intercept_for(fitted, np.inf) == pytest.approx(-1.85)
    # ½ψ(0.75 − b) + 2ψ(−2.5 − b) = 0 at ξ = 1: the first is bound, 2(2.5 + b) = ½
    assert problem.intercept_for(fitted, 1.0) == pytest.approx(-2.25)
    assert small_problem(fit_intercept=False).intercept_for(fitted, 1.0) == 0.0


def test_the_intercept_is_the_middle_of_all_that_serve():
    matrix = np.eye(4)
    y = np.array([-10.0, -7.0, 3.0, 5.0])
    problem = Problem(DenseGram(matrix), y, np.ones(4), 1.0, True, np.ones(4, dtype=bool))
    assert problem.intercept_for(np.zeros(4), 1.0) == pytest.approx(0.5 * (-6.0 + 2.0))


def test_a_constant_of_fitted_values_goes_to_the_intercept_alone():
    difference = np.array([1.0, 2.0, 99.0])  # the last label is not in use
    assert small_problem().constant(difference) == 1.5
    assert small_problem(fit_intercept=False).constant(difference) == 0.0


@pytest.mark.parametrize("total", [None, 0.3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_solves_on_the_free_rows(fit_intercept, total):
    problem = small_problem(fit_intercept)
    free, fixed = np.array([True, True, False]), np.array([0.0, 0.0, 0.2])
    targets = np.array([1.0, -2.0, 5.0])
    factor = problem.gram.source(problem.mu).factor(free)
    v, image, b = problem.solve_with(
        factor, targets, fixed, *(() if total is None else (total,))
    )
    np.testing.assert_allclose(image, problem.gram.matrix @ v, rtol=1e-12)
    np.testing.assert_allclose((image + problem.mu * v + b)[free], targets[free], rtol=1e-12)
    assert v[2] == 0.2
    if fit_intercept:
        assert v.sum() == pytest.approx(total or 0.0, abs=1e-12)
    else:
        assert b == 0.0
