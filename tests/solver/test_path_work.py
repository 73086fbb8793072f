"""How much work a path is: what goes right is not done twice, and units do not matter.

A walk mends what rounding does to it, so a wrong step shows in the work, not in the result.
"""

import numpy as np
import pytest

from activehuber import huber_path
from activehuber.numerics.linalg import BreakdownError
from activehuber.operators.dense import DenseGram
from activehuber.operators.features import held_gram
from activehuber.problem.problem import Problem
from activehuber.solver import path as path_module
from activehuber.solver.free_inverse import FreeInverse, FreshFactor, free_solver
from tests.oracles import curve, gram


def reduced(seed=0, n=24, *, intercept=True, unit=1.0):
    """A problem whose weights differ, as `follow` takes it."""
    X, y, _, _ = curve(n, seed, bad=0.2)
    K = np.ascontiguousarray(gram("rbf", X, gamma=1.0))
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    y = unit * (y - np.median(y))
    return Problem(DenseGram(K), y, weights, 1e-3, intercept, np.ones(n, dtype=bool))


def counted(monkeypatch, owner, name):
    """A list that grows with every call of a function."""
    calls, function = [], getattr(owner, name)

    def called(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)
    return calls


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_path_is_followed_without_solving_anew(monkeypatch, intercept, seed):
    problem = reduced(seed, intercept=intercept)
    looks = counted(monkeypatch, path_module._Walk, "look")
    anew = counted(monkeypatch, path_module._Walk, "solve_anew")
    steps = counted(monkeypatch, FreeInverse, "solve")
    solvers = counted(monkeypatch, path_module, "free_solver")
    trail = path_module.follow(problem, 0.02 * np.max(np.abs(problem.y)))
    assert trail.complete and len(trail.thresholds) > 8
    assert anew == []
    # One look a breakpoint (at the first, the label farthest out is bound), one solver for all
    # of them, one direction a look: nothing is left to be corrected but rounding, which a step
    # puts right.
    assert len(looks) == len(trail.thresholds)
    assert len(solvers) == 1
    assert len(looks) <= len(steps) <= 2 * len(looks)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_step_leads_to_the_next_minimiser_before_anything_is_corrected(
    monkeypatch, intercept
):
    problem = reduced(1, intercept=intercept)
    walk = path_module._Walk(problem)
    monkeypatch.setattr(path_module._Walk, "_correct", lambda self: True)
    for _ in range(12):
        direction, (step, rows) = walk.look()
        walk.advance(direction, walk.threshold - step)
        assert walk.violation() <= 1e-9
        np.testing.assert_allclose(walk.fitted, problem.gram.matrix @ walk.v, atol=1e-12)
        walk.change(rows)


def test_units_of_the_labels_are_those_of_the_path():
    """A power of two changes no digit, so the walk is the same to the last one."""
    for exponent in (-40, 40):
        unit = 2.0**exponent
        one, other = (path_module.follow(reduced(2, unit=u)) for u in (1.0, unit))
        np.testing.assert_array_equal(other.thresholds, unit * one.thresholds)
        np.testing.assert_array_equal(other.v, unit * one.v)
        np.testing.assert_array_equal(other.states, one.states)


def test_kinks_of_an_edge_are_seen_in_units_of_the_threshold():
    z, rate = np.array([1.0, 1.0 - 1e-9]), np.array([0.0, 1.0])
    edge = path_module._Edge(np.arange(2), z, rate, 1e-3)
    assert edge.row == 0 and edge.next_kink == pytest.approx(1e-9, rel=1e-6)


def test_coefficients_that_are_good_are_not_refined(monkeypatch):
    X, y, _, _ = curve(40, 3)
    refined = counted(monkeypatch, path_module, "recover")
    path = huber_path(X, y, alpha=1e-3, gamma=1.0)
    assert len(path.thresholds) > 20 and refined == []


def test_coefficients_far_from_their_solution_are_refined(monkeypatch):
    X, y, _, _ = curve(40, 3)
    refined = counted(monkeypatch, path_module, "recover")
    path = huber_path(X, y, alpha=1e-8, gamma=0.5, manifold=1e-2, min_threshold=0.1)
    assert 0 < len(refined) <= len(path.thresholds)


def test_some_label_that_goes_back_and_forth_is_enough():
    walk = path_module._Walk(reduced())
    assert not walk.is_stuck
    walk.changes = {3: 1}
    assert not walk.is_stuck
    walk.changes = {3: 1, 5: path_module.MOST_CHANGES + 1}
    assert walk.is_stuck


@pytest.mark.parametrize("side", [-1, 1])
def test_labels_that_balance_are_on_both_sides(side):
    walk = path_module._Walk(reduced())
    walk.side[:] = side
    walk.solver = None
    with pytest.raises(BreakdownError, match="all on one side"):
        walk.look()


def test_the_last_free_label_leaves_no_solver_behind():
    walk = path_module._Walk(reduced(n=3))
    for row in range(3):
        assert isinstance(walk.solver, FreeInverse)
        walk.change((row,))
    assert walk.on_plateau and walk.solver is None


def test_the_solver_suits_how_q_is_held():
    problem, free = reduced(), np.ones(24, dtype=bool)
    assert isinstance(free_solver(problem, free), FreeInverse)
    psi = np.random.default_rng(0).normal(size=(24, 3))
    by_features = Problem(
        held_gram(psi), problem.y, problem.weights, problem.alpha, True, problem.active
    )
    assert isinstance(free_solver(by_features, free), FreshFactor)


def test_the_inverse_is_that_of_the_bordered_matrix():
    problem = reduced()
    solver = FreeInverse(problem, np.ones(24, dtype=bool))
    inverse = np.linalg.inv(
        np.block(
            [
                [np.zeros((1, 1)), np.ones((1, 24))],
                [np.ones((24, 1)), problem.gram.matrix + np.diag(problem.mu)],
            ]
        )
    )
    # One triangle is kept.
    np.testing.assert_allclose(np.tril(solver.inverse[:25, :25]), np.tril(inverse), atol=1e-8)


def test_a_path_has_an_intercept_a_breakpoint():
    X, y, _, _ = curve(30, 3)
    path = huber_path(X, y, alpha=1e-3, gamma=1.0, max_events=5)
    assert len(path.thresholds) < 30
    assert path.intercept.shape == path.thresholds.shape


def test_breakpoints_that_take_no_memory_are_not_counted(monkeypatch):
    monkeypatch.setattr(path_module, "MOST_BYTES", 0)
    assert path_module.follow(reduced()).complete


def test_after_a_plateau_the_solver_is_that_of_the_free_labels():
    problem = reduced(n=6)
    walk = path_module._Walk(problem)
    walk.change(tuple(range(6)))
    assert walk.on_plateau and walk.solver is None
    walk.change((1, 4))
    free = np.isin(np.arange(6), (1, 4))
    np.testing.assert_array_equal(walk.side == path_module.FREE, free)
    targets = np.where(free, 1.0, 0.0)
    v, image, b = walk.solver.solve(targets, np.zeros(6), 0.0)
    np.testing.assert_allclose((image + problem.mu * v + b)[free], 1.0, rtol=1e-9)
    np.testing.assert_array_equal(v[~free], 0.0)


def test_solved_anew_on_a_plateau_there_is_nothing_to_solve_with():
    problem = reduced(n=6)
    walk = path_module._Walk(problem)
    walk.threshold *= 1e-9
    walk.solve_anew()
    assert walk.on_plateau == (walk.solver is None)


def test_more_breakpoints_than_rows_are_all_expanded(monkeypatch):
    X, y, _, _ = curve(12, 3)
    at_once = huber_path(X, y, alpha=1e-5, gamma=1.0)
    assert len(at_once.thresholds) > 12
    monkeypatch.setattr(path_module, "BLOCK", 3)
    in_blocks = huber_path(X, y, alpha=1e-5, gamma=1.0)
    np.testing.assert_allclose(in_blocks.dual_coef, at_once.dual_coef, rtol=1e-9)
