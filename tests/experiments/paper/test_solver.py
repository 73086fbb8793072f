"""HLR beside a convex solver: what is timed and scored is what the tables say it is."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import huber
from sklearn.linear_model import Ridge

from activehuber import HLRegressor
from activehuber.graphs import laplacians as graphs
from experiments.paper import running_time, solver
from experiments.paper.files import MissingDataError
from experiments.paper.outcome import Run, fact, facts, warnings_note
from experiments.paper.protocol import Scored
from tests.pools import Here

pytest.importorskip("cvxpy", reason="CVXPY is the peer of these experiments")


@pytest.fixture
def small():
    split = solver.noisy_split(30, solver.VARIANCE, seed=5)
    return split.X_train, split.y_train


def objective(theta, X, y, threshold, penalty):
    return np.mean(huber(threshold, y - X @ theta)) + theta @ penalty @ theta


def test_the_linear_model_is_the_papers():
    split = solver.noisy_split(40, 0.0, seed=3)
    assert split.X_train.shape == (40, 10) and split.X_test.shape == (40 + solver.FRESH, 10)
    assert split.X_test.min() >= 0.0 and split.X_test.max() <= 1.0
    np.testing.assert_allclose(split.y_train, split.X_train @ np.full(10, 0.1))
    np.testing.assert_array_equal(split.X_test[:40], split.X_train)
    noisy = solver.noisy_split(4000, solver.VARIANCE, seed=3)
    assert np.var(noisy.y_train - noisy.X_train.mean(axis=1)) == pytest.approx(0.1, rel=0.1)


def test_errors_are_of_fresh_rows_then_of_training_rows():
    scored = Scored(np.array([1.0, 1.0, 3.0, 0.0]), np.array([1.0, 3.0, 4.0, 3.0]), 0.0)
    fresh, training, rmse = solver.errors(scored, 2)
    assert fresh == pytest.approx(np.sqrt(10.0) / 5.0)
    assert training == pytest.approx(2.0 / np.sqrt(10.0))
    assert rmse == pytest.approx(np.sqrt(5.0))


def test_the_root_gives_both_penalties(small):
    X, _ = small
    M = solver.laplacian_of(X)[1].toarray()
    theta = np.arange(10.0)
    f = X @ theta
    root = solver.penalty_root(X, M, 0.3, 0.7)
    assert np.sum((root @ theta) ** 2) == pytest.approx(0.3 * theta @ theta + 0.7 * f @ M @ f)


@pytest.mark.parametrize("threshold", [1e-2, 0.3, 1e3])
def test_both_forms_of_the_convex_problem_have_the_least_value(small, threshold):
    X, y = small
    M = graphs.normalised_laplacian(graphs.knn_affinity(graphs.Distances(X), 10)).toarray()
    penalty = 1e-2 * np.eye(10) + 1e-3 * X.T @ M @ X
    best = minimize(
        objective,
        np.zeros(10),
        (X, y, threshold, penalty),
        method="BFGS",
        options={"gtol": 1e-9},
    ).fun
    for method in (solver.N_COEFFICIENTS, solver.FEW_UNKNOWNS, solver.SAME_THRESHOLD):
        assert running_time.prepared(method, X, y)(threshold) == pytest.approx(best, rel=1e-6)


def test_huge_thresholds_are_ridge_regression(small):
    X, y = small
    root = np.sqrt(0.05) * np.eye(10)
    _, theta = solver.clarabel_huber(X, y, 1e3, root)
    ridge = Ridge(alpha=2 * len(y) * 0.05, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(theta, ridge.coef_, atol=1e-5)


def test_cross_validation_sees_training_labels_only_and_takes_the_best(small):
    X, y = small
    method = solver.CrossValidated((1e-3, 0.5))
    predicted = method(X, y, X[:4])
    assert method.chosen == 1  # 1e-3 shrinks everything to nothing
    np.testing.assert_array_equal(predicted, method.predicted[1])
    tied = solver.CrossValidated((1e2, 1e3))
    tied(X, y, X[:1])
    assert tied.chosen == 1


def test_measure_gives_a_time_and_a_value_for_every_threshold():
    found = running_time.measure(solver.SAME_THRESHOLD, (25, 30), (0.1, 1.0, 10.0))
    assert list(found) == [25, 30]
    seconds, values = found[30]
    assert seconds.shape == (3,) and np.all(seconds > 0.0)
    split = solver.noisy_split(30, solver.VARIANCE, seed=0)
    model = HLRegressor(**solver.PAPER | {"threshold": 1.0}).fit(split.X_train, split.y_train)
    assert values[1] == pytest.approx(model.objective_, rel=1e-12)


@pytest.mark.parametrize("method", solver.METHODS)
def test_every_method_can_be_timed(small, method):
    assert running_time.prepared(method, *small)(1.0) >= 0.0


def test_a_draw_compares_all_methods():
    found = solver.compare((0.0, 30, 7))
    assert set(found.errors) == {solver.CROSS_VALIDATED, *solver.METHODS}
    assert found.at_thresholds.shape == (7, 3)
    chosen = solver.THRESHOLDS.index(found.threshold)
    np.testing.assert_allclose(
        found.at_thresholds[chosen], found.errors[solver.CROSS_VALIDATED], rtol=1e-12
    )
    assert found.disagreement < 1e-5
    # Without noise Δξ is above every residual: nothing is refined, and HLR says so.
    assert not found.refined
    assert sum("no refinement was possible" in text for text in found.warned) >= 2
    np.testing.assert_allclose(
        found.errors[solver.AS_PAPER], found.at_thresholds[-1], rtol=1e-3
    )


def test_warnings_are_counted_without_their_figures(small):
    fit = solver.Fit(solver.METHODS[solver.AS_PAPER])
    X, _ = small
    fit(X, X.mean(axis=1), X)
    (text,) = fit.warned
    assert text.startswith("no refinement was possible: threshold_step=…")
    (note,) = warnings_note(fit.warned * 3, 12)
    assert note.startswith("Warnings of HLR in 12 fits") and note.endswith("3 times.")
    assert warnings_note([], 12) == []


def test_not_worse_is_paired():
    ours, theirs = np.array([1.0, 5.0, 9.0]), np.array([0.9, 4.9, 8.9])
    assert not solver.not_worse(ours, theirs)  # always a little worse
    assert solver.not_worse(theirs, ours)
    assert solver.not_worse(ours, np.array([0.0, 6.0, 9.0]))


def timings(speed):
    """Made-up times: CVXPY takes `speed` seconds, HLR one."""
    sizes = (50, 100)
    slow = {(m, n): speed for m in (solver.N_COEFFICIENTS, solver.FEW_UNKNOWNS) for n in sizes}
    fast = {(m, n): 1.0 for m in (solver.SAME_THRESHOLD, *solver.METHODS) for n in sizes}
    return {
        key: (np.array([0.5, 1.0, 1.5]) * value, np.ones(3))
        for key, value in (slow | fast).items()
    }


def test_times_stand_beside_the_papers():
    found = timings(12.0)
    cells = {(c.keys[1], c.metric): c for c in running_time._time_cells(found, 100)}
    slow = cells[solver.N_COEFFICIENTS, "seconds"]
    assert (slow.ours, slow.paper) == (12.0, 1.9)
    assert cells[solver.N_COEFFICIENTS, "sd"].paper == 0.3
    assert cells[solver.N_COEFFICIENTS, "sd"].ours == pytest.approx(6.0)
    ratio = cells[solver.AS_PAPER, "CVXPY's time / its time"]
    assert (ratio.ours, ratio.paper) == (12.0, pytest.approx(19.0))
    assert cells[solver.DEFAULT, "seconds"].paper is None
    assert "reached at 1 of 2 sizes" in running_time._time_findings(found, (50, 100))[-1]
    assert (
        "reached at 2 of 2 sizes" in running_time._time_findings(timings(30.0), (50, 100))[-1]
    )


def test_disagreement_is_the_largest_of_both_forms():
    found = timings(2.0)
    found[solver.FEW_UNKNOWNS, 100] = (np.ones(3), np.array([1.0, 1.0, 0.9]))
    assert running_time.disagreement(found, (50, 100)) == pytest.approx(0.1)


def test_a_whole_comparison_in_small(monkeypatch):
    for module in (solver, running_time):
        monkeypatch.setattr(module, "SIZES", (20, 25, 30, 35))
        monkeypatch.setattr(module, "THRESHOLDS", (0.01, 0.1, 1.0, 10.0))
    monkeypatch.setattr(solver, "SEEDS", (3, 4))
    monkeypatch.setattr(solver, "FOLDS", 2)
    monkeypatch.setattr(solver, "two_processes", Here)
    monkeypatch.setattr(running_time, "ProcessPoolExecutor", Here)
    said = []
    outcome = solver.reconstruction(Run(quick=True, report=said.append))
    errors, certificates = outcome.tables
    assert len(said) == 6 and len(errors.lines()) == 6 * 8 and len(certificates.lines()) == 6
    assert all(cell.error is not None for cell in errors.cells)
    assert "48 problems" in outcome.findings[0]
    assert len(outcome.figures["errors"].axes) == 2
    outcome = running_time.running_time(Run(quick=True, report=said.append))
    assert len(outcome.tables[0].lines()) == 3 * 8
    assert "35 left out" in outcome.tables[0].notes[0]


def test_without_cvxpy_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cvxpy", None)
    with pytest.raises(MissingDataError, match="pip install"):
        solver.reconstruction(Run(quick=True, report=str))


def test_the_papers_times_are_all_there():
    rows = facts("time")
    assert len(rows) == 8
    assert fact(rows, method="CVX", n="1000") == 179.7
    assert fact(rows, "spread", method="CVX", n="500") == 10.0
    assert fact(rows, "spread", method="HLR", n="500") is None
