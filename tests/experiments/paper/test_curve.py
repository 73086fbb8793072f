"""Noisy curve fitting: turned signs, Dice, and what the tables say of them."""

import numpy as np
import pytest

from experiments.paper import curve
from experiments.paper.outcome import Run, fact, facts
from tests.pools import Here


def test_dice_by_hand():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, True])
    assert curve.dice(a, b) == pytest.approx(2 * 1 / (2 + 3))
    assert curve.dice(a, ~a) == 0.0 and curve.dice(a, a) == 1.0
    assert curve.dice(np.zeros(3, bool), np.zeros(3, bool)) == 1.0
    # The note on the paper's 0.67: all labels removed, half of them turned.
    half = np.arange(10) < 5
    assert round(curve.dice(np.ones(10, bool), half), 2) == 0.67


@pytest.mark.parametrize("percent", [1, 25, 75])
def test_exactly_the_stated_share_has_its_sign_turned(percent):
    split, turned = curve.turned_split(200, percent, seed=1)
    assert turned.sum() == 2 * percent
    clean = split.X_train @ np.full(10, 0.1)
    np.testing.assert_allclose(split.y_train, np.where(turned, -clean, clean))
    np.testing.assert_array_equal(split.X_test[:200], split.X_train)
    again, same = curve.turned_split(200, percent, seed=1)
    np.testing.assert_array_equal(again.y_train, split.y_train)
    np.testing.assert_array_equal(same, turned)


@pytest.fixture(scope="module")
def quarter():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curve, "N_ROWS", 80)
        return curve.fit_all((25, 11))


def test_every_method_is_judged(quarter):
    assert set(quarter) == set(curve.METHODS)
    for result in quarter.values():
        assert len(result.figures) == len(curve.METRICS)
        assert 0.0 <= result.figures[0] <= 1.0


def test_the_default_finds_a_quarter_of_turned_signs(quarter):
    agreement, error, rmse, removed = quarter[curve.DEFAULT].figures
    assert agreement == 1.0 and removed == 25.0
    assert error < 0.01 and rmse < error  # ‖y‖ is about half a unit a row


def test_one_refinement_leaves_most_of_them(quarter):
    agreement, error, *_ = quarter[curve.AS_PAPER].figures
    assert agreement < 0.9 and error > 0.05


def test_a_majority_of_turned_signs_is_kept(monkeypatch):
    monkeypatch.setattr(curve, "N_ROWS", 80)
    monkeypatch.setattr(curve, "METHODS", {curve.DEFAULT: curve.METHODS[curve.DEFAULT]})
    result = curve.fit_all((75, 11))[curve.DEFAULT]
    assert result.figures[0] == 0.0 and result.kept_dice == 1.0
    assert result.figures[1] == pytest.approx(2.0, abs=0.01)


def test_a_whole_run_in_small(monkeypatch):
    monkeypatch.setattr(curve, "N_ROWS", 60)
    monkeypatch.setattr(curve, "SEEDS", (21, 22, 23, 24))
    monkeypatch.setattr(curve, "two_processes", Here)
    few = (curve.AS_PAPER, curve.MANY_REFINEMENTS, curve.DEFAULT)
    monkeypatch.setattr(curve, "METHODS", {name: curve.METHODS[name] for name in few})
    said = []
    outcome = curve.curve(Run(quick=True, report=said.append))
    (table,) = outcome.tables
    assert len(said) == 6 and len(table.lines()) == 6 * 3
    assert table.notes[0] == "Quick run: 3 of 4 draws."
    cells = {(c.keys, c.metric): c for c in table.cells}
    cell = cells[("25 %", curve.DEFAULT), "Dice"]
    assert cell.paper == 0.89 and cell.difference == pytest.approx(cell.ours - 0.89)
    assert cells[("40 %", curve.DEFAULT), "Dice"].paper is None
    assert cells[("25 %", curve.DEFAULT), "RMSE"].paper is None
    assert len(outcome.figures["dice"].axes) == 2


def made_up(value):
    """Results in which every method has the same Dice and error at every rate."""
    result = curve.Result((value, value, value, 100.0 * value), value, value, [])
    return {(p, m): [result, result] for p in curve.PERCENTS for m in curve.METHODS}


def test_findings_come_from_the_figures():
    perfect = made_up(1.0)
    assert "Dice at 5 of 5 rates" in curve._findings(perfect)[0]
    assert "error at 1 of 5 rates (75 %)" in curve._findings(perfect)[0]
    nothing = curve._findings(made_up(0.0))
    assert "Dice at 0 of 5 rates" in nothing[0] and "error at 5 of 5" in nothing[0]
    assert "the default is 0.000 at least" in nothing[-1]


def test_the_papers_figures_are_all_there():
    rows = facts("curve")
    assert len(rows) == 10
    assert [fact(rows, metric="Dice", percent=p) for p in ("1", "25", "75")] == [1, 0.89, 0.39]
    assert fact(rows, metric="error", percent="50") == 0.75
