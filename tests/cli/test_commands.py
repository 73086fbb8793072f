"""The command line as a user meets it: files, exit codes, one line for every mistake."""

import csv
import errno
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from activehuber import __version__
from activehuber.audit import audit, choice
from activehuber.cli import audit as audit_module
from activehuber.cli.app import run
from activehuber.cli.audit import FILES
from activehuber.data.datasets import make_corrupted_diabetes
from tests.audit.test_table import Quick, make_table

COMMAND = [sys.executable, "-m", "activehuber"]


@pytest.fixture
def quick(monkeypatch):
    """Fixed parameters where the choice of them is not what is tested."""
    monkeypatch.setattr(
        choice, "_chooser", lambda options, views: Quick(options.classify, views)
    )


@pytest.fixture
def table(rng, tmp_path):
    X, y = make_table(rng)
    frame = X.assign(name=[f"n{i:03d}" for i in range(len(y))], price=y)
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fails(capsys, *arguments):
    """The one line that a mistake gives."""
    assert run([str(argument) for argument in arguments]) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and errors.count("\n") == 1 and "bug" not in errors
    return errors


def test_audit_writes_four_files(quick, table, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["audit", str(table), "--target", "price", "-o", str(out)]) == 0
    assert sorted(item.name for item in out.iterdir()) == sorted(FILES)
    labels, predictions = rows_of(out / "labels.csv"), rows_of(out / "predictions.csv")
    assert list(labels[0]) == [
        "row", "given", "expected", "lower", "upper", "quality", "verdict", "reason"
    ]  # fmt: skip
    assert list(predictions[0]) == ["row", "prediction", "lower", "upper"]
    assert (len(labels), len(predictions)) == (100, 20)
    assert sorted(int(label["row"]) for label in labels[:3]) == [6, 18, 61]
    assert {label["verdict"] for label in labels[:3]} == {"flagged"}
    printed = capsys.readouterr().out
    assert " of 100 labels flagged" in printed and str(out / "labels.csv") in printed


def test_given_values_are_written_as_they_were(quick, table, tmp_path):
    run(["audit", str(table), "--target", "price", "-o", str(tmp_path / "out")])
    # As text first: parsers of old versions of pandas lose the last digit.
    prices = pd.read_csv(table, dtype=str)["price"].astype(float)
    for label in rows_of(tmp_path / "out" / "labels.csv"):
        assert float(label["given"]) == prices[int(label["row"]) - 1]


def test_same_numbers_as_the_library(tmp_path):
    """On the bundled table, parameters chosen: the file has the order of the call."""
    corrupted = make_corrupted_diabetes()
    corrupted.frame.to_csv(tmp_path / "d.csv", index=False)
    arguments = ["--target", "progression", "--id", "patient", "-o", str(tmp_path / "out")]
    assert run(["audit", str(tmp_path / "d.csv"), *arguments]) == 0
    found = audit(
        corrupted.frame.drop(columns=["patient", "progression"]),
        corrupted.frame["progression"],
        ids=corrupted.frame["patient"],
    )
    labels = rows_of(tmp_path / "out" / "labels.csv")
    assert [label["patient"] for label in labels] == found.labels["patient"].tolist()
    np.testing.assert_allclose(
        [float(label["quality"]) for label in labels], found.labels["quality"], rtol=1e-3
    )
    planted = set(corrupted.frame["patient"][corrupted.corrupted])
    assert len(planted & {label["patient"] for label in labels[:24]}) >= 21


def test_id_drop_trusted_and_json(quick, table, tmp_path, capsys):
    frame = pd.read_csv(table)
    frame["ok"] = np.where(np.arange(len(frame)) == 5, "yes", "no")
    frame.to_csv(table, index=False)
    arguments = ["--target", "price", "--id", "name", "--drop", "noise,day", "--trusted", "ok"]
    code = run(["audit", str(table), *arguments, "--json", "-o", str(tmp_path / "o")])
    assert code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["n_labelled"] == 100 and printed["n_trusted"] == 1
    assert {label["name"] for label in printed["flagged"]} >= {"n017", "n060"}
    assert printed["files"]["labels"] == str(tmp_path / "o" / "labels.csv")
    assert not any("noise" in note for note in printed["notes"])
    labels = {label["name"]: label for label in rows_of(tmp_path / "o" / "labels.csv")}
    assert labels["n005"]["verdict"] == "trusted"


def test_group(quick, table, tmp_path, capsys):
    frame = pd.read_csv(table)
    frame["site"] = [f"s{number % 9}" for number in range(len(frame))]
    frame.loc[3, "site"] = None
    frame.to_csv(table, index=False)
    arguments = ["audit", str(table), "--target", "price"]
    out = tmp_path / "out"
    assert run([*arguments, "--group", "site", "--json", "-o", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    said = "judged by other groups only: there are 9, and 1 labels that belong to none."
    assert any(note.endswith(said) for note in printed["notes"])
    called = audit(frame.drop(columns=["price", "site"]), frame["price"], groups=frame["site"])
    expected = [float(label["expected"]) for label in rows_of(out / "labels.csv")]
    np.testing.assert_allclose(expected, called.labels["expected"], rtol=1e-3)
    assert not any("site" in note for note in printed["notes"])  # it is no feature
    model, new = str(out / "model.skops"), tmp_path / "new.csv"
    frame.drop(columns="site").to_csv(new, index=False)
    assert run(["predict", model, str(new), "-o", str(tmp_path / "p.csv")]) == 0
    capsys.readouterr()
    assert "must be different columns" in fails(
        capsys, *arguments, "--group", "price", "-o", tmp_path / "none"
    )
    assert "--group needs the rows in memory: leave out --engine dask" in fails(
        capsys, *arguments, "--group", "site", "--engine", "dask", "-o", tmp_path / "none"
    )
    frame.assign(site="s").to_csv(table, index=False)
    assert "all 100 labels are in one group" in fails(
        capsys, *arguments, "--group", "site", "-o", tmp_path / "none"
    )


def test_trust_is_told(quick, table, tmp_path, capsys):
    frame = pd.read_csv(table)
    frame["ok"] = np.where(np.arange(len(frame)) < 2, "yes", "no")
    frame.to_csv(table, index=False)
    arguments = ["audit", str(table), "--target", "price", "-o", str(tmp_path / "out")]
    assert run([*arguments, "--trusted", "ok"]) == 0
    assert " · 2 trusted · " in capsys.readouterr().out
    assert run([*arguments, "--drop", "ok", "--force"]) == 0
    assert "trusted" not in capsys.readouterr().out


def test_without_arguments_there_is_help(capsys):
    for command in ([], ["crowd"]):
        assert run(command) == 0
        printed, errors = capsys.readouterr()
        assert printed.startswith("Usage: activehuber") and printed.count("\n") > 5
        assert errors == ""


def test_dates_as_text_are_dates_on_every_route(quick, table, tmp_path):
    frame = pd.read_csv(table)  # days are text, as most people have them
    # To the last digit, as we read them: old versions of pandas round.
    frame["price"] = pd.read_csv(table, dtype=str)["price"].map(float)
    frame.to_parquet(tmp_path / "text.parquet")
    for name in ("data.csv", "text.parquet"):
        out = str(tmp_path / name.partition(".")[2])
        assert run(["audit", str(tmp_path / name), "--target", "price", "-o", out]) == 0
    called = audit(frame.drop(columns="price"), frame["price"])
    labels = rows_of(tmp_path / "csv" / "labels.csv")
    assert labels == rows_of(tmp_path / "parquet" / "labels.csv")
    assert [int(label["row"]) for label in labels] == called.labels["row"].tolist()
    assert [label["reason"] for label in labels] == called.labels["reason"].tolist()
    # A model of one route reads the table of the other.
    files = [str(tmp_path / "csv" / "model.skops"), str(tmp_path / "text.parquet")]
    assert run(["predict", *files, "-o", str(tmp_path / "p.csv")]) == 0
    predicted = [float(row["prediction"]) for row in rows_of(tmp_path / "p.csv")]
    np.testing.assert_allclose(predicted, called.predict(frame)["prediction"], rtol=1e-6)


def test_views_from_toml(quick, table, tmp_path):
    toml = tmp_path / "views.toml"
    toml.write_text(
        '[[view]]\nname = "line"\ncolumns = ["size"]\nkernel = "linear"\n'
        '[[view]]\nname = "rest"\ncolumns = ["town", "day"]\n'
    )
    arguments = ["--target", "price", "--id", "name", "--views", str(toml)]
    assert run(["audit", str(table), *arguments, "-o", str(tmp_path / "out")]) == 0
    labels = rows_of(tmp_path / "out" / "labels.csv")
    assert sorted(label["name"] for label in labels[:3]) == ["n005", "n017", "n060"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "[[view]]"),
        ("view = 3", "[[view]]"),
        ("[[view]]\nname = 'a'", "columns must be a list"),
        ("[[view]]\ncolumns = ['size']\nwidth = 3", "not width"),
        ("[[view]]\ncolumns = ['nope']", "there is no column 'nope' to learn from"),
        ("[[view]]\ncolumns = ['size']\nkernel = 'x'", "kernel must be one of"),
        (
            "[[view]]\ncolumns = ['size']\nname = 'a'\n[[view]]\ncolumns = ['day']\nname = 'a'",
            "twice",
        ),
        ("[[view", "cannot be read as TOML"),
        ("view = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("view = " + "{a = " * 3000 + "1" + "}" * 3000, "nested too deeply"),
    ],
)
def test_bad_views_are_one_line(quick, table, tmp_path, capsys, content, message):
    toml = tmp_path / "views.toml"
    toml.write_text(content)
    arguments = ["--target", "price", "--views", toml, "-o", tmp_path / "out"]
    assert message in fails(capsys, "audit", table, *arguments)


def test_classify(quick, tmp_path, rng):
    own = np.arange(60) % 2
    frame = pd.DataFrame(
        0.5 * rng.normal(size=(60, 2)) + 4.0 * own[:, None], columns=["a", "b"]
    )
    frame["kind"] = np.where(own == 1, "01", "02")
    frame.loc[7, "kind"] = "02"
    frame.loc[50:, "kind"] = None
    frame.to_csv(tmp_path / "c.csv", index=False)
    arguments = ["--target", "kind", "--classify", "-o", str(tmp_path / "out")]
    assert run(["audit", str(tmp_path / "c.csv"), *arguments]) == 0
    worst = rows_of(tmp_path / "out" / "labels.csv")[0]
    assert (worst["row"], worst["given"], worst["expected"], worst["lower"]) == (
        "8",
        "02",
        "01",
        "",
    )
    prediction = rows_of(tmp_path / "out" / "predictions.csv")[0]
    assert prediction["prediction"] == "02" and float(prediction["probability"]) > 0.5


def test_predict(quick, table, tmp_path, capsys):
    out = tmp_path / "out"
    run(["audit", str(table), "--target", "price", "--id", "name", "-o", str(out)])
    new = tmp_path / "new.csv"
    frame = pd.read_csv(table, dtype=str)
    frame[["name", "day", "town", "size", "noise"]].to_csv(new, index=False, sep=";")
    pred = tmp_path / "pred.csv"
    capsys.readouterr()
    assert run(["predict", str(out / "model.skops"), str(new), "-o", str(pred)]) == 0
    found = {row["name"]: row for row in rows_of(pred)}
    for row in rows_of(out / "predictions.csv"):
        for key in ("prediction", "lower", "upper"):
            assert found[row["name"]][key] == row[key]
    assert capsys.readouterr().out == f"120 predictions of price: {pred}\n"
    assert "exists; use --force" in fails(
        capsys, "predict", out / "model.skops", new, "-o", pred
    )
    # Unseen words and unreadable numbers are bent, and said so; a missing column is an error.
    frame.loc[0, "town"], frame.loc[1, "size"] = "nowhere", "big"
    frame.drop(columns="name").to_csv(new, index=False)
    assert run(["predict", str(out / "model.skops"), str(new), "-o", str(pred), "--force"]) == 0
    errors = capsys.readouterr().err
    assert "has not seen: town (nowhere)" in errors and "size (1)" in errors
    assert list(rows_of(pred)[0]) == ["row", "prediction", "lower", "upper"]
    frame.drop(columns="size").to_csv(new, index=False)
    line = fails(capsys, "predict", out / "model.skops", new, "-o", tmp_path / "p2.csv")
    assert "lacks what the model needs: size" in line
    (tmp_path / "bad.skops").write_bytes(b"nonsense")
    assert "no model file" in fails(
        capsys, "predict", tmp_path / "bad.skops", new, "-o", tmp_path / "p3.csv"
    )


def test_parquet_in(quick, table, tmp_path):
    frame = pd.read_csv(table, dtype=str).astype(
        {"size": float, "noise": float, "price": float}
    )
    frame["day"] = pd.to_datetime(frame["day"])
    frame.to_parquet(tmp_path / "data.parquet")
    for name in ("data.csv", "data.parquet"):
        run(
            ["audit", str(tmp_path / name), "--target", "price", "-o", str(tmp_path / name[5:])]
        )
    for name in ("labels.csv", "predictions.csv"):
        assert (tmp_path / "csv" / name).read_text() == (
            tmp_path / "parquet" / name
        ).read_text()


def test_cells_and_names_that_are_formulas_are_neutralised(quick, tmp_path, rng):
    frame = pd.DataFrame({"x": rng.normal(size=30), "=y": rng.normal(size=30)})
    frame["@id"] = [f"=cmd|'/C calc'!A{i}" for i in range(30)]
    frame.loc[3, "=y"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ["--target", "=y", "--id", "@id", "-o", str(tmp_path / "out")]
    assert run(["audit", str(tmp_path / "t.csv"), *arguments]) == 0
    for name in ("labels.csv", "predictions.csv"):
        with (tmp_path / "out" / name).open(newline="") as file:
            for row in csv.reader(file):
                for cell in row:
                    risky = cell[:1] in tuple("=+-@\t\r")
                    assert not risky or float(cell) < 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--target", "price"], "none.csv: there is no such file"),
        ([".", "--target", "price"], "is a directory"),
        (
            ["data.csv", "--target", "cost"],
            "--target cost: there is no such column; the table has",
        ),
        (["data.csv", "--target", "price", "--id", "x"], "--id x: there is no such column"),
        (["data.csv", "--target", "price", "--group", "x"], "--group x: there is no such"),
        (["data.csv", "--target", "price", "--id", "town"], "is no id: rows"),
        (["data.csv", "--target", "price", "--drop", "x"], "--drop x: there is no such column"),
        (["data.csv", "--target", "price", "--drop", "price"], "this is the target"),
        (["data.csv", "--target", "price", "--trusted", "size"], "must hold yes or no"),
        (["data.csv", "--target", "price", "--id", "price"], "must be different columns"),
        (["data.csv", "--target", "town"], "must hold finite numbers, but not: row 1 '"),
        (["data.csv"], "--target"),
        (["data.csv", "--target", "price", "--nope"], "--nope"),
        (["data.csv", "--target", "price", "--nope"], "(see activehuber audit --help)"),
        (["data.csv", "--target", "Price"], "no such column (did you mean 'price'?)"),
        (
            ["data.csv", "--target", "price", "--components", "abc"],
            "give a whole number, not 'abc'",
        ),
        (["data.csv", "--target", "price", "--classify"], "100 of 100 labels are alone"),
        (["thousands.csv", "--target", "price"], "write 1234 where it says 1,234"),
        (["picture.csv", "--target", "price"], "picture.csv is no text file"),
        (
            ["data.csv", "--target", "price", "--views", "v.toml"],
            "v.toml: there is no such file",
        ),
        (["data.csv", "--target", "price", "-o", "data.csv"], "data.csv is a file"),
        (["empty.csv", "--target", "price"], "is empty"),
        (["gaps.csv", "--target", "price"], "has no label at all"),
        (["one.csv", "--target", "price"], "no column is left to learn from"),
        (["twice.csv", "--target", "price"], "several columns have this name"),
    ],
)
def test_mistakes_are_one_clear_line(quick, table, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(table.parent)
    (table.parent / "empty.csv").write_text("")
    (table.parent / "gaps.csv").write_text("a,price\n1,\n2,\n")
    (table.parent / "thousands.csv").write_text('a,price\n1,"832,000"\n2,"91,500"\n')
    (table.parent / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    (table.parent / "one.csv").write_text("price\n1\n2\n")
    (table.parent / "twice.csv").write_text("a,price,price\n1,2,3\n2,3,4\n")
    before = sorted(table.parent.iterdir())
    assert message in fails(capsys, "audit", *arguments)
    assert sorted(table.parent.iterdir()) == before


def test_nothing_is_overwritten_without_force(quick, table, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr("activehuber.data.reading.read_table", None)  # not even read
        line = fails(capsys, "audit", table, "--target", "price", "-o", out)
    assert "report.html exists; use --force" in line
    assert [item.name for item in out.iterdir()] == ["report.html"]
    assert run(["audit", str(table), "--target", "price", "-o", str(out), "--force"]) == 0
    assert "mine" not in (out / "report.html").read_text()


def test_inputs_are_never_replaced(quick, table, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert run(["audit", str(table), "--target", "price", "-o", str(out)]) == 0
    model, labels, link = out / "model.skops", tmp_path / "labels.csv", tmp_path / "link.csv"
    labels.write_bytes(table.read_bytes())
    link.symlink_to(table)
    before = {path: path.read_bytes() for path in (table, model, labels)}
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["audit", "labels.csv", "--target", "price", "-o", "."],
        ["audit", "data.csv", "--target", "price", "--views", "labels.csv", "-o", "."],
        ["predict", model, "data.csv", "-o", "data.csv"],
        ["predict", model, "data.csv", "-o", "link.csv"],
        ["predict", model, "data.csv", "-o", model],
    ):
        for force in ([], ["--force"]):
            assert "is read by this command" in fails(capsys, *arguments, *force)
    assert {path: path.read_bytes() for path in before} == before


def test_predictions_that_cannot_be_written_stop_before_the_work(table, tmp_path, capsys):
    arguments = ["predict", tmp_path / "none.skops", table, "-o"]
    assert "is a file, not a folder" in fails(capsys, *arguments, table / "pred.csv")
    assert "is a directory" in fails(capsys, *arguments, tmp_path)


def test_only_plain_files_are_replaced(table, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("activehuber.data.reading.read_table", None)  # before any work
    monkeypatch.setattr("activehuber.persistence.model_files.load_model", None)
    out, pipe, link = tmp_path / "out", tmp_path / "pipe", tmp_path / "link"
    out.mkdir()
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nothing")
    (out / "labels.csv").symlink_to(table)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    audited = ["audit", table, "--target", "price", "-o"]
    predicted = ["predict", tmp_path / "model", table, "-o"]
    counted = ["crowd", "count", tmp_path / "model", tmp_path, "-o", tmp_path / "c.csv"]
    for arguments, words in (
        ([*audited, out], "is a link, which is never replaced"),
        ([*audited, link], "is a link; choose another folder"),
        ([*audited, pipe], "is a pipe; choose another folder"),
        ([*predicted, pipe], "is a pipe, which is never replaced"),
        ([*predicted, link], "is a link, which is never replaced"),
        ([*predicted, "/dev/null"], "is a device, which is never replaced"),
        ([*counted, "--report", pipe], "is a pipe, which is never replaced"),
        ([*counted, "--report", loop], "is a link, which is never replaced"),
    ):
        for force in ([], ["--force"]):
            line = fails(capsys, *arguments, *force)
            # Read by the command as well, so that this may be what is said first.
            assert words in line or "is read by this command" in line
    assert pipe.is_fifo() and link.is_symlink() and (out / "labels.csv").is_symlink()


@pytest.mark.parametrize("option", ["file", "folder", "inside"])
def test_names_that_are_too_long_are_one_line(table, tmp_path, capsys, option):
    long = "n" * 300
    if option == "file":
        arguments = ["predict", tmp_path / "none.skops", table, "-o", tmp_path / long]
    else:
        place = tmp_path / long if option == "folder" else tmp_path / long / "out"
        arguments = ["audit", table, "--target", "price", "-o", place]
    line = fails(capsys, *arguments)
    assert "File name too long" in line and len(line) < 250


def test_what_the_system_refuses_is_no_bug(table, tmp_path, capsys, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.EMFILE, "Too many open files", "there")

    monkeypatch.setattr("activehuber.data.reading.read_table", refuse)
    line = fails(capsys, "audit", table, "--target", "price", "-o", tmp_path / "out")
    assert line == "activehuber: there: Too many open files\n"


def test_a_full_disk_is_one_line(quick, table, tmp_path, capsys, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    line = fails(capsys, "audit", table, "--target", "price", "-o", tmp_path / "out")
    assert "out cannot be written: No space left on device" in line
    assert list(tmp_path.iterdir()) == [table]


def test_files_of_a_folder_that_differ_are_one_line(tmp_path, rng, capsys, monkeypatch):
    pytest.importorskip("distributed")
    from dask.distributed import Client

    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "price"])
    folder = tmp_path / "parts"
    folder.mkdir()
    frame.to_parquet(folder / "0.parquet", index=False)
    frame.assign(a="word").to_parquet(folder / "1.parquet", index=False)
    local = Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0")
    monkeypatch.setattr("activehuber.data.dask_rows.connected", lambda scheduler: local)
    arguments = ["--target", "price", "--engine", "dask", "-o", tmp_path / "out"]
    line = fails(capsys, "audit", folder, *arguments)
    assert "parts cannot be read as one table" in line and not (tmp_path / "out").exists()


def test_an_unexpected_error_says_that_it_is_a_bug(table, tmp_path, capsys, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr("activehuber.data.reading.read_table", broken)
    arguments = ["audit", str(table), "--target", "price", "-o", str(tmp_path / "out")]
    assert run(arguments) == 2
    errors = capsys.readouterr().err
    assert "bug in activehuber" in errors and "ZeroDivisionError: one two" in errors
    assert "ACTIVEHUBER_TRACEBACK=1" in errors and errors.count("\n") == 1
    monkeypatch.setenv("ACTIVEHUBER_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run(arguments)


def test_ctrl_c_writes_nothing(table, tmp_path, capsys, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("activehuber.report.page.render", stopped)
    monkeypatch.setattr(
        choice, "_chooser", lambda options, views: Quick(options.classify, views)
    )
    assert run(["audit", str(table), "--target", "price", "-o", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "activehuber: stopped; no file was left half-written\n"
    assert [item.name for item in tmp_path.iterdir()] == ["data.csv"]


def test_version_and_help(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"activehuber {__version__}\n"
    assert run(["audit", "--help"]) == 0
    printed = capsys.readouterr().out
    for option in (
        "--target",
        "--id",
        "--views",
        "--drop",
        "--trusted",
        "--group",
        "--classify",
        "--approximation",
        "--components",
        "--engine",
        "--scheduler",
        "--json",
    ):
        assert option in printed


def test_progress_is_told_in_order(quick, table, tmp_path, monkeypatch):
    told = []

    class Bar:
        def __init__(self, *, quiet):
            assert not quiet

        def __enter__(self):
            return lambda share, words: told.append((share, words))

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(audit_module, "progress", Bar)
    assert run(["audit", str(table), "--target", "price", "-o", str(tmp_path / "out")]) == 0
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[-1] == 1.0 and len(told) >= 7


def test_importing_the_library_needs_no_extra():
    code = "import sys, activehuber; assert 'typer' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("days", [("1677-09-21 10:00", "1888-03-01 00:00"), ("1700-01-01",)])
def test_models_remember_dates_of_long_ago(quick, tmp_path, days):
    x = np.random.default_rng(0).normal(size=24)
    table, out, new = (str(tmp_path / name) for name in ("data.csv", "out", "new.csv"))
    frame = pd.DataFrame({"day": np.resize(days, 24), "x": x, "y": 2.0 * x})
    frame.to_csv(table, index=False)
    assert run(["audit", table, "--target", "y", "-o", out]) == 0
    assert run(["predict", f"{out}/model.skops", table, "-o", new]) == 0
    assert len(pd.read_csv(new)) == 24
