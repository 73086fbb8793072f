"""The fuzzer finds faults that are planted, and none besides."""

import time
from collections import Counter
from functools import partial

import numpy as np
import pytest

from activehuber import HLRegressor

pytest.importorskip("resource")  # limits of processes are those of Unix

from tests.fuzzing import estimators, tables
from tests.fuzzing.__main__ import main
from tests.fuzzing.estimators import Case, judge
from tests.fuzzing.parts import PARTS, try_case
from tests.fuzzing.runner import MOST_MEMORY, run
from tests.fuzzing.verdict import ACCEPTED, FAILED, REFUSED, Verdict

X = np.linspace(0.0, 6.0, 12).reshape(-1, 1)


class GivesNan(HLRegressor):
    def predict(self, X):
        return np.full(len(X), np.nan)


class GivesInfinity(HLRegressor):
    def predict_interval(self, X, coverage=0.9):
        return super().predict_interval(X, coverage) * np.inf


class LosesTheKey(HLRegressor):
    def fit(self, X, y, sample_weight=None, trusted=None):
        raise KeyError("lost")


class Stumbles(HLRegressor):
    def fit(self, X, y, sample_weight=None, trusted=None):
        return np.zeros(3) + np.zeros(2)  # a ValueError, but no one meant it


class CannotFactorise(HLRegressor):
    def fit(self, X, y, sample_weight=None, trusted=None):
        return np.linalg.cholesky(-np.eye(2))


class ProvesNothing(HLRegressor):
    def fit(self, X, y, sample_weight=None, trusted=None):
        super().fit(X, y, sample_weight, trusted)
        self.duality_gap_ = 1e-3
        return self


class ForgetsALabel(HLRegressor):
    @property
    def label_quality_(self):
        quality = super().label_quality_.copy()
        quality[0] = np.nan
        return quality


PLANTED = {
    GivesNan: "predict is NaN",
    GivesInfinity: "predict_interval is infinite",
    LosesTheKey: "KeyError: 'lost'",
    Stumbles: "ValueError: ",
    CannotFactorise: "LinAlgError: ",
    ProvesNothing: "duality_gap_ is too large, without a warning",
    ForgetsALabel: "label_quality_ is NaN",
}


@pytest.mark.parametrize("estimator", PLANTED)
def test_a_planted_fault_is_found(estimator):
    found = judge(Case(estimator, {}, X, np.sin(X.ravel()), new=X[:2]))
    assert found.kind == FAILED
    assert found.why.startswith(PLANTED[estimator])


def test_what_is_right_is_accepted_and_what_is_wrong_refused():
    y = np.sin(X.ravel())
    assert judge(Case(HLRegressor, {}, X, y, new=X[:2])).kind == ACCEPTED
    found = judge(Case(HLRegressor, {"alpha": -1.0}, X, y, new=X[:2]))
    assert found.kind == REFUSED and found.why.startswith("ValueError: alpha must be")


def planted_in_a_process(number: int) -> Verdict:
    if number == 1:
        while True:  # uses the processor
            pass
    if number == 2:
        time.sleep(3600)  # does not
    if number == 3:
        np.ones(6 * MOST_MEMORY // 40)  # a fifth more
    if number == 4:
        import os

        os.abort()
    return Verdict(ACCEPTED)


def test_hangs_are_found_and_the_rest_goes_on():
    found = dict(run(planted_in_a_process, [0, 1, 2, 5, 6], jobs=2, seconds=1))
    assert sorted(found) == [0, 1, 2, 5, 6]
    assert found[1].why.startswith("hangs") and found[2].why.startswith("hangs")
    assert "planted_in_a_process" in found[1].detail
    assert all(found[n].kind == ACCEPTED for n in (0, 5, 6))


def test_crashes_and_memory_are_found_and_the_rest_goes_on():
    found = dict(run(planted_in_a_process, [3, 4, 5, 6], jobs=1))
    assert found[3].why == "takes more than 512 MiB"
    assert found[4].why.startswith("dies")
    assert all(found[n].kind == ACCEPTED for n in (5, 6))


def test_a_failing_case_is_made_smaller():
    y = np.sin(X.ravel())
    case = Case(GivesNan, {"alpha": 1e-3, "degree": 3}, X, y, np.ones(12), new=X[:2])
    smaller = estimators.shrunk(case, judge(case).why)
    assert smaller.params == {} and smaller.weights is None and len(smaller.X) == 1
    assert estimators.snippet(smaller).startswith("GivesNan().fit(X=np.array([[")


def test_equal_seeds_draw_equal_cases():
    for number in range(40):
        first, second = (
            estimators.snippet(estimators.draw(np.random.default_rng([0, number])))
            for _ in range(2)
        )
        assert first == second
        rngs = [np.random.default_rng([0, number]) for _ in range(2)]
        assert tables.draw(rngs[0]) == tables.draw(rngs[1])


def test_a_table_that_is_said_to_be_a_bug_is_found(tmp_path, monkeypatch):
    def stumble(*arguments, **options):
        raise KeyError("lost")

    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.setattr("activehuber.data.reading.read_table", stumble)
    arguments = ["audit", str(tmp_path / "t.csv"), "--target", "b", "-o", str(tmp_path / "o")]
    found = tables.call(arguments, tmp_path, {"t.csv"})
    assert found.kind == FAILED and found.why.startswith("said to be a bug: KeyError: 'lost'")


@pytest.mark.parametrize("cell", ["nan", "inf", ""])
def test_a_file_without_a_number_is_found(tmp_path, cell):
    path = tmp_path / "predictions.csv"
    path.write_text(f"row,prediction,lower,upper\n1,0.5,{cell},1\n")
    with pytest.raises(tables.BadAnswerError, match="lower holds"):
        tables.check_numbers(path, ("prediction", "lower", "upper"))


def test_the_command_says_what_came_of_it(capsys):
    assert main(["--part", "tables", "--tries", "4", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "tables: 4 tries, " in said and "0 failed" in said


def tried(part: str, numbers: range) -> Counter:
    """Verdicts by kind; failures are listed."""
    found = list(run(partial(try_case, part, 0), numbers, jobs=2))
    failed = [f"{part} {n}: {v.why}" for n, v in found if v.kind == FAILED]
    assert not failed, "\n".join(failed)
    return Counter(verdict.kind for _, verdict in found)


@pytest.mark.parametrize(("part", "tries"), [("estimators", 60), ("tables", 60)])
def test_a_few_of_each(part, tries):
    counts = tried(part, range(tries))
    # A fuzzer that meets one outcome only tests nothing.
    assert counts[ACCEPTED] >= 0.5 * tries and counts[REFUSED] > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_thousand_of_all(part):
    tries = {"estimators": 700, "tables": 150, "models": 150}[part]
    counts = tried(part, range(10_000, 10_000 + tries))
    assert (
        counts[REFUSED] > 0 and counts[ACCEPTED] >= (0.5 if part != "models" else 0.1) * tries
    )
