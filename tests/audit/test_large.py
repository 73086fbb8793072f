"""Tables too large for a Gram matrix: the same audit, in blocks, on one machine or on many."""

import importlib
import json
import os
import pickle
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import psutil
import pytest

from activehuber.audit import audit, choice, inputs, outputs, similar
from activehuber.audit import parquet as parquet_module
from activehuber.audit.outputs import table_csv
from activehuber.audit.parquet import audit_parquet
from activehuber.cli.app import run
from activehuber.cli.audit import FILES
from activehuber.data.reading import arrow_frame, parquet_dataset, parquet_pieces
from activehuber.data.rows import LocalRows
from activehuber.kernels.feature_maps import Landmarks
from activehuber.operators import features as block_gram
from activehuber.runtime.messages import TableError
from tests.audit.test_table import Quick, make_table
from tests.cli.test_commands import COMMAND, fails, rows_of

cli_module = importlib.import_module("activehuber.cli.audit")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(
        choice, "_chooser", lambda options, views: Quick(options.classify, views)
    )


@pytest.fixture
def table(rng):
    return make_table(rng)


@pytest.fixture
def parquet(table, tmp_path):
    """The table with names, in row groups that do not divide it."""
    X, y = table
    frame = X.assign(name=[f"n{i:03d}" for i in range(len(y))], price=y)
    path = tmp_path / "data.parquet"
    frame.to_parquet(path, index=False, row_group_size=50)
    return path


def estimator_of(found):
    return found.model.named_steps["estimator"]


# --- the rule ---------------------------------------------------------------------------


def test_the_kernel_is_approximated_above_a_number_of_labels(table, monkeypatch):
    monkeypatch.setattr(inputs, "LARGEST_EXACT", 100)
    assert estimator_of(audit(*table, estimator=Quick())).approximation is None
    monkeypatch.setattr(inputs, "LARGEST_EXACT", 99)
    found = audit(*table, estimator=Quick(), n_components=40)
    model = estimator_of(found)
    assert (model.approximation, len(model.components_)) == ("nystrom", 40)
    assert any("40 rows drawn at random" in sentence for sentence in found.summary.findings)
    assert dict(found.summary.settings)["approximation"] == "nystrom, 40 functions"
    assert found.report.path is None and found.labels["left_at"].isna().all()
    assert sorted(found.labels["row"][:3]) == [6, 18, 61]
    exact = audit(*table, estimator=Quick(), approximation=None)
    assert estimator_of(exact).approximation is None


def test_with_a_landmark_on_every_row_it_is_the_exact_audit(table):
    exact = audit(*table, estimator=Quick())
    found = audit(*table, estimator=Quick(), approximation="nystrom", n_components=120)
    assert found.labels["verdict"].tolist() == exact.labels["verdict"].tolist()
    assert found.labels["reason"].tolist() == exact.labels["reason"].tolist()
    for frame in ("labels", "predictions"):
        one, other = getattr(found, frame), getattr(exact, frame)
        # What landmarks leave open at a new row is not worked out there.
        ends = ["lower", "upper"] if frame == "predictions" else []
        for name in one.columns.difference(["left_at", "verdict", "reason", *ends]):
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-6)


def test_views_share_the_functions(table, monkeypatch):
    from activehuber import View

    monkeypatch.setattr(choice, "_chooser", lambda options, views: Quick(views=views))
    views = [View(["size"], "rbf", name="line"), View(["town", "day"], "laplacian")]
    found = audit(*table, views=views, approximation="nystrom", n_components=40)
    assert estimator_of(found).regressor.n_components == 20
    assert sorted(found.labels["row"][:3]) == [6, 18, 61]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(rng, n_classes):
    own = np.arange(90) % n_classes
    X = rng.normal(size=(90, 2)) * 0.5 + 4.0 * np.eye(3)[own][:, :2]
    names = np.array(["red", "green", "blue"], dtype=object)
    y = names[own]
    y[4] = names[(own[4] + 1) % n_classes]
    y[80:] = None
    arguments = {"classify": True, "estimator": Quick(classify=True)}
    found = audit(X, y, approximation="nystrom", n_components=30, **arguments)
    worst = found.labels.iloc[0]
    assert worst["row"] == 5 and worst["verdict"] == "flagged"
    assert worst["expected"] == names[own[4]]
    assert found.predictions["prediction"].tolist() == names[own[80:]].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"approximation": "kmeans"}, "approximation must be auto, none, nystrom"),
        ({"n_components": 0}, "n_components must be a whole number from 1"),
        ({"n_components": 2.5}, "n_components must be a whole number from 1"),
    ],
)
def test_bad_parameters_are_one_clear_line(table, change, message):
    with pytest.raises(TableError, match=message):
        audit(*table, estimator=Quick(), **change)


# --- what must not grow with the table --------------------------------------------------


@pytest.mark.parametrize("columns", [5, 6, 37, 1003])
@pytest.mark.parametrize("ties", [False, True])
def test_largest_are_the_largest(columns, ties, rng):
    values = rng.normal(size=(8, columns))
    values = np.round(values) if ties else values
    found = similar._largest(values, 5)
    assert all(len(set(row)) == 5 for row in found.tolist())
    np.testing.assert_array_equal(
        np.sort(np.take_along_axis(values, found, axis=1)), np.sort(values)[:, -5:]
    )


def test_similar_rows_come_from_a_sample_and_the_page_says_so(table, monkeypatch):
    monkeypatch.setattr(similar, "MOST_COMPARED", 30)
    monkeypatch.setattr(similar, "MOST_EXPLAINED", 20)
    X, y = table
    found = audit(X, y, estimator=Quick())
    assert any("30 labels drawn at random, for the 20 worst" in n for n in found.summary.notes)
    explained = found.labels["reason"].str.contains("most similar rows have")
    assert explained.tolist() == [True] * 20 + [False] * 80
    lines = found.report.lines
    assert len(lines) == 100 and not any(line["neighbours"] for line in lines[20:])
    pool = {n[0] for line in lines for n in line["neighbours"]}
    assert len(pool) <= 30
    features = found.model.named_steps["features"].transform(X)
    for line in lines[:20]:
        rows = np.array(sorted(pool - {line["row"]}), dtype=int) - 1
        away = np.abs(features[rows] - features[int(line["row"]) - 1]).sum(axis=1)
        nearest = sorted(away)[:5]
        mine = [int(n[0]) - 1 for n in line["neighbours"]]
        assert line["row"] not in {n[0] for n in line["neighbours"]}
        np.testing.assert_allclose(
            np.abs(features[mine] - features[int(line["row"]) - 1]).sum(axis=1), nearest
        )


def test_csv_in_parts_is_the_same(table, monkeypatch):
    found = audit(*table, estimator=Quick())
    whole = list(table_csv(found.labels))
    assert len(whole) == 2
    monkeypatch.setattr(outputs, "CSV_ROWS", 7)
    parts = list(table_csv(found.labels))
    assert len(parts) == 1 + 15 and b"".join(parts) == b"".join(whole)


def audit_and_count(table, monkeypatch, **arguments):
    """An audit by landmarks, on how many rows they were evaluated, passes over any rows."""
    evaluated, passes = [], []
    evaluate, run_blocks = Landmarks.__call__, LocalRows.run

    def counted(self, X):
        evaluated.append(len(X))
        return evaluate(self, X)

    def told(self, *args):
        passes.append(len(self))
        return run_blocks(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Landmarks, "__call__", counted)
        patched.setattr(LocalRows, "run", told)
        found = audit(*table, n_components=40, **arguments)
    return found, sum(evaluated), len(passes)


@pytest.mark.parametrize("classify", [False, True])
def test_features_that_are_few_are_made_once_for_all_passes(table, classify, monkeypatch):
    monkeypatch.setattr(inputs, "LARGEST_EXACT", 99)
    X, y = table
    if classify:
        y = np.where(np.isnan(y), None, np.where(y > 1.0, "high", "low"))
    arguments = {"classify": classify, "estimator": Quick(classify)}
    held, evaluated, passes = audit_and_count((X, y), monkeypatch, **arguments)
    n_labels = np.count_nonzero(~pd.isna(y))
    assert evaluated < n_labels * passes / 8  # 4 times for 41 passes; 5 for 53
    monkeypatch.setattr(block_gram, "HELD_BYTES", 0)
    anew, evaluated_anew, _ = audit_and_count((X, y), monkeypatch, **arguments)
    assert evaluated_anew > 5 * evaluated
    for name in ("labels", "predictions"):
        one, other = getattr(held, name), getattr(anew, name)
        assert list(one.columns) == list(other.columns)
        for column in one.columns:
            if one[column].dtype == np.float64:
                np.testing.assert_allclose(one[column], other[column], rtol=1e-9, atol=1e-9)
            else:
                assert one[column].tolist() == other[column].tolist()


def test_progress_moves_with_every_pass_and_the_model_forgets_it(table):
    told = []
    found = audit(
        *table,
        estimator=Quick(),
        approximation="nystrom",
        progress=lambda share, words: told.append((share, words)),
    )
    shares = [share for share, _ in told]
    passes = [words for _, words in told if "pass" in words]
    assert shares == sorted(shares) and len(passes) >= 5
    assert passes[0] == "fitting to all labels, pass 1 over the rows"
    pickle.dumps(found.model)  # a callback of ours would not travel
    before = len(told)
    estimator_of(found).predict(np.zeros((2, found.summary.n_features)))
    assert len(told) == before


# --- the command ------------------------------------------------------------------------


def test_command_with_an_approximation(quick, parquet, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli_module, "MOST_IN_JSON", 2)
    out = tmp_path / "out"
    arguments = ["--target", "price", "--id", "name", "--approximation", "nystrom"]
    arguments += ["--components", "60", "--json", "-o", str(out)]
    assert run(["audit", str(parquet), *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["n_flagged"] >= 3 and len(printed["flagged"]) == 2
    assert printed["settings"]["approximation"] == "nystrom, 60 functions"
    assert printed["peak_memory_bytes"] > 2**20
    assert sorted(item.name for item in out.iterdir()) == sorted(FILES)
    pred = tmp_path / "pred.csv"
    assert run(["predict", str(out / "model.skops"), str(parquet), "-o", str(pred)]) == 0
    found = {row["name"]: row for row in rows_of(pred)}
    for row in rows_of(out / "predictions.csv"):
        for key in ("prediction", "lower", "upper"):
            assert float(found[row["name"]][key]) == pytest.approx(float(row[key]), rel=1e-5)


def test_command_says_what_it_took(quick, parquet, tmp_path, capsys):
    assert run(["audit", str(parquet), "--target", "price", "-o", str(tmp_path / "out")]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    seconds, memory = last.split(", ")
    assert seconds.endswith(" s") and memory.endswith(" GiB at most")
    assert 0.0 <= float(seconds.split()[0]) < 600.0 and 0.0 < float(memory.split()[0]) < 64.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--approximation", "kmeans"], "approximation must be auto, none, nystrom"),
        (["--components", "0"], "n_components must be a whole number from 1"),
        (["--components", "many"], "--components"),
        (["--engine", "spark"], "--engine must be local or dask"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler is for --engine dask"),
        (["--engine", "dask", "--approximation", "none"], "needs an approximation"),
    ],
)
def test_mistakes_are_one_clear_line(quick, parquet, capsys, monkeypatch, arguments, message):
    if "dask" in arguments:
        monkeypatch.setattr("activehuber.data.dask_rows.connected", _no_cluster)
    out = parquet.parent / "out"
    line = fails(capsys, "audit", parquet, "--target", "price", "-o", out, *arguments)
    assert message in line and not out.exists()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("data.csv", ["--target", "price"], "is no Parquet file, which --engine dask needs"),
        ("none.parquet", ["--target", "price"], "there is no such file"),
        ("data.parquet", ["--target", "cost"], "--target cost: there is no such column"),
        ("data.parquet", ["--target", "town"], "must hold finite numbers, but not: row 1 '"),
    ],
)
def test_what_a_cluster_cannot_use_is_one_clear_line(
    quick, parquet, capsys, monkeypatch, name, arguments, message
):
    monkeypatch.setattr("activehuber.data.dask_rows.connected", _no_cluster)
    (parquet.parent / "data.csv").write_text("a,price\n1,2\n3,4\n")
    table, out = parquet.parent / name, parquet.parent / "out"
    line = fails(capsys, "audit", table, *arguments, "--engine", "dask", "-o", out)
    assert message in line and not out.exists()


def _no_cluster(scheduler):
    """In place of a cluster where none should be asked anything."""
    from contextlib import nullcontext

    return nullcontext(None)


def test_without_dask_one_line_says_what_to_install(quick, parquet, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = fails(capsys, "audit", parquet, "--target", "price", "--engine", "dask")
    assert line == (
        "activehuber: --engine dask needs Dask: pip install 'activehuber[dask,cli]'\n"
    )


def test_too_large_a_table_is_refused_before_any_work(quick, parquet, capsys, monkeypatch):
    monkeypatch.setattr("activehuber.data.reading.memory_limit", lambda: 10_000.0)
    monkeypatch.setattr("activehuber.data.reading._read_bytes", None)  # not even read
    line = fails(capsys, "audit", parquet, "--target", "price", "-o", parquet.parent / "out")
    assert "120 rows × 6 columns" in line and "--engine dask" in line


# --- on a cluster -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


def on_cluster(path, client, columns=("size", "town", "day", "noise"), **options):
    dataset = parquet_dataset(path)
    return audit_parquet(dataset, list(columns), "price", client=client, **options)


def test_pieces_are_the_rows_in_their_order(parquet):
    pieces = parquet_pieces(parquet_dataset(parquet))
    assert [count for _, count in pieces] == [50, 50, 20]
    parts = [arrow_frame(piece.to_table()) for piece, _ in pieces]
    together = pd.concat(parts, ignore_index=True)
    pd.testing.assert_frame_equal(together, pd.read_parquet(parquet), check_dtype=False)


def test_a_cluster_gives_the_same_answers(quick, parquet, client):
    frame = pd.read_parquet(parquet)
    local = audit(
        frame.drop(columns=["name", "price"]),
        frame["price"],
        ids=frame["name"],
        approximation="nystrom",
        n_components=60,
    )
    found = on_cluster(parquet, client, identity="name", n_components=60)
    for name in ("labels", "predictions"):
        one = getattr(found, name).set_index("name").sort_index()
        other = getattr(local, name).set_index("name").sort_index()
        assert one.index.tolist() == other.index.tolist()
        if name == "labels":
            # The cells stay with the workers: what is missing in a row is not said.
            said = other["reason"].str.contains("; noise is missing here")
            assert said.any()
            other["reason"] = other["reason"].str.replace("; noise is missing here", "")
        for column in one.columns:
            if column in ("verdict", "reason"):
                assert one[column].tolist() == other[column].tolist()
            else:
                np.testing.assert_allclose(one[column], other[column], rtol=1e-9, atol=1e-9)
    assert found.summary.notes == local.summary.notes
    assert len(dict(found.summary.settings)["data SHA-256"]) == 64


def test_a_folder_of_files_and_a_sample_of_the_columns(quick, parquet, client, monkeypatch):
    whole = on_cluster(parquet, client, n_components=60)
    folder = parquet.parent / "parts"
    folder.mkdir()
    frame = pd.read_parquet(parquet)
    frame[:70].to_parquet(folder / "a.parquet", index=False)
    frame[70:].to_parquet(folder / "b.parquet", index=False)
    parts = on_cluster(folder, client, n_components=60)
    np.testing.assert_allclose(parts.labels["quality"], whole.labels["quality"], rtol=1e-9)
    monkeypatch.setattr(parquet_module, "LOOKED_AT", 80)
    sampled = on_cluster(folder, client, n_components=60)
    assert "The columns were looked at in 80 of 120 rows, at random." in sampled.summary.notes
    assert sorted(sampled.labels["row"][:3]) == [6, 18, 61]


@pytest.mark.slow
def test_command_on_a_cluster_of_its_own(parquet, tmp_path):
    out = tmp_path / "out"
    arguments = ["audit", parquet, "--target", "price", "--id", "name", "--engine", "dask"]
    done = subprocess.run(
        [*COMMAND, *map(str, arguments), "--json", "-o", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_flagged"] >= 3
    assert sorted(item.name for item in out.iterdir()) == sorted(FILES)
    assert rows_of(out / "labels.csv")[0]["name"] in {"n005", "n017", "n060"}


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_one_line(parquet, tmp_path, capsys):
    started = time.perf_counter()
    arguments = ["--engine", "dask", "--scheduler", "tcp://127.0.0.1:9", "-o", tmp_path / "o"]
    line = fails(capsys, "audit", parquet, "--target", "price", *arguments)
    assert "no Dask scheduler answers" in line
    assert time.perf_counter() - started < 60.0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("engine", ["local", "dask"])
@pytest.mark.parametrize("everyone", [False, True])
def test_ctrl_c_leaves_no_file_and_no_process(rng, tmp_path, engine, everyone):
    """`everyone`: a terminal sends it to all processes of the group."""
    X = rng.normal(size=(400_000, 4))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=np.sin(X[:, 0]) + X[:, 1])
    frame.to_parquet(tmp_path / "t.parquet", index=False, row_group_size=100_000)
    arguments = ["audit", "t.parquet", "--target", "y", "--engine", engine]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--components", "200"],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    family = psutil.Process(process.pid)
    started = time.monotonic()
    # Imports take about 3 s of its time: at 6 s it is at work, however busy the machine is.
    while family.cpu_times().user < 6.0 and time.monotonic() - started < 200.0:
        time.sleep(0.2)
    assert process.poll() is None, process.stderr.read()
    children = family.children(recursive=True)
    assert engine == "local" or children
    send = os.killpg if everyone else os.kill
    send(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "stopped; no file was left half-written" in errors
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert [item.name for item in tmp_path.iterdir()] == ["t.parquet"]
