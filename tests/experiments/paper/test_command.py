"""`python -m experiments.paper`: files, page, what is printed and what is refused."""

import csv
import io
import json

import numpy as np
import pytest

from activehuber.runtime.messages import TableError
from experiments.paper import __main__ as command_line
from experiments.paper import command
from experiments.paper.files import MissingDataError
from experiments.paper.outcome import Cell, Outcome, Table, fact, facts
from experiments.paper.protocol import Split


def made(run, name="curve"):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([0, 1])
    cells = [
        Cell(("A|B", "HLR <b>"), "MAE", 1.25, 1.5, 0.125),
        Cell(("A|B", "HLR <b>"), "time", 0.5),
        Cell(("A|B", "quoted"), "MAE", None, 2.0),
    ]
    table = Table("one", "A <table>", ("set", "method"), cells, {"MAE": 2}, ["seed 0"])
    run.report("half way")
    return Outcome(name, "The & curve", "As printed.", [table], {"fit": figure}, ["Reached."])


def run(arguments):
    """The exit code of the command line."""
    try:
        command_line.main(arguments)
    except SystemExit as stop:
        return stop.code
    return 0


@pytest.fixture
def experiments(monkeypatch):
    def function(name):
        if name == "pets":

            def none(run):
                raise MissingDataError("pets2009/x.mat is missing")

            return none
        return lambda run: made(run, name)

    monkeypatch.setattr(command, "EXPERIMENTS", {"curve": (), "uci": (), "pets": ()})
    monkeypatch.setattr(command, "_function", function)


def test_every_experiment_is_there():
    for name in command.EXPERIMENTS:
        assert callable(command._function(name))


def test_files_and_page(experiments, tmp_path, capsys):
    assert run(["curve", "-o", str(tmp_path / "r")]) == 0
    shown = capsys.readouterr().out
    assert "half way" in shown and "1.25 ± 0.12" in shown and "-0.25" in shown
    names = sorted(path.name for path in (tmp_path / "r").iterdir())
    assert names == ["curve-fit.png", "curve.csv", "curve.json", "curve.md", "index.html"]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r/curve.csv").read_text())))
    assert rows[0]["ours"] == "1.25" and rows[0]["difference"] == "-0.25"
    assert rows[2]["ours"] == "" and rows[2]["paper"] == "2.0"
    assert "A\\|B" in (tmp_path / "r/curve.md").read_text()
    page = (tmp_path / "r/index.html").read_text()
    assert "HLR &lt;b&gt;" in page and "<b>" not in page and "The &amp; curve" in page
    how = json.loads((tmp_path / "r/curve.json").read_text())["how"]
    assert set(how) >= {"date", "commit", "wall time", "machine", "versions", "extent"}
    assert f"numpy {np.__version__}" in how["versions"]


def test_the_page_keeps_earlier_experiments(experiments, tmp_path):
    assert run(["curve", "-o", str(tmp_path)]) == 0
    assert run(["uci", "--quick", "-o", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text()
    assert 'id="curve"' in page and 'id="uci"' in page and "quick: a part" in page


def test_all_that_can_run_do(experiments, tmp_path, capsys):
    assert run(["-o", str(tmp_path)]) == 0
    assert "not run: pets2009/x.mat is missing" in capsys.readouterr().out
    assert (tmp_path / "uci.csv").exists() and not (tmp_path / "pets.csv").exists()


def test_named_experiment_without_data(experiments, tmp_path, capsys):
    assert run(["pets", "-o", str(tmp_path / "r")]) == 2
    assert "no data for pets" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_unknown_experiment(experiments, tmp_path, capsys):
    assert run(["curve", "cruve", "-o", str(tmp_path / "r")]) == 2
    assert "unknown experiment 'cruve'; there are: curve, uci" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_output_is_a_file(experiments, tmp_path, capsys):
    (tmp_path / "r").write_text("mine")
    assert run(["curve", "-o", str(tmp_path / "r")]) == 2
    assert (tmp_path / "r").read_text() == "mine"


def test_without_matplotlib_nothing_is_started(experiments, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert run(["curve", "-o", str(tmp_path / "r")]) == 2
    said = capsys.readouterr()
    assert "pip install 'activehuber[plot]'" in said.err and "half way" not in said.out


def test_columns_are_aligned():
    lines = command.aligned([["name", "x"], ["a", "1.5"], ["long name", "10.5"]])
    assert lines == ["name          x", "---------  ----", "a           1.5", "long name  10.5"]


@pytest.mark.parametrize("name", ["uci", "crowd_multi", "crowd_ryan"])
def test_ranks_of_the_paper_follow_from_its_figures(name):
    """A check of what was typed: the paper prints ranks beside its figures.

    Percentages stand beside fractions in MRE of `uci`, so ranks are compared there within
    each unit only; equal figures may share a rank.
    """
    rows = [row for row in facts(name) if not (name == "uci" and row["metric"] == "MRE")]
    checked = 0
    for row in rows:
        others = [r for r in rows if (r["set"], r["metric"]) == (row["set"], row["metric"])]
        below = sum(float(r["value"]) < float(row["value"]) for r in others)
        equal = sum(float(r["value"]) == float(row["value"]) for r in others)
        assert below + 1 <= int(row["rank"]) <= below + equal, row
        checked += 1
    assert checked > 15


def test_one_figure_or_none():
    rows = facts("curve")
    assert fact(rows, metric="Dice", percent="25") == 0.89
    assert fact(rows, metric="Dice", percent="40") is None
    with pytest.raises(ValueError, match="5 figures"):
        fact(rows, metric="Dice")


def test_a_method_cannot_change_the_truth():
    X, y = np.zeros((3, 1)), np.array([1.0, 2.0, 3.0])
    split = Split(X, y, X, y)
    scored = split.scored(lambda A, b, B: np.array([1.0, 2.0, 5.0]))
    assert (scored.mae, scored.mse) == (2 / 3, 4 / 3)
    assert scored.mre == pytest.approx(2 / 9) and scored.accuracy == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="predictions wanted"):
        split.scored(lambda A, b, B: np.zeros((3, 1)))


@pytest.mark.parametrize("content", ["", "[" * 100_000, "3", '{"name": "uci"}', '"\\ud800"'])
def test_a_file_of_an_earlier_run_that_is_damaged_is_said_before_the_work(content, tmp_path):
    (tmp_path / "uci.json").write_text(content)
    with pytest.raises(TableError, match=r"uci\.json cannot be read .*delete it or use"):
        command.run_all({"curve": None}, tmp_path, quick=True, say=print)
    # One that will be written anew does not matter: the work begins.
    with pytest.raises(TypeError, match="not callable"):
        command.run_all({"uci": None}, tmp_path, quick=True, say=print)
