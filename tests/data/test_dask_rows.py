"""Fits on a Dask cluster: the answers of one machine, and what is left when machines go."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("distributed")

import dask.array as da
from dask.distributed import Client, LocalCluster

from activehuber import HLClassifier, HLRegressor, View
from activehuber.data import dask_rows as cluster
from activehuber.data.rows import ArrayRows, one_blas_thread
from activehuber.operators.features import moments, project

SETTINGS = {"approximation": "nystrom", "n_components": 40, "random_state": 7}


@pytest.fixture
def client():
    with Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as found:
        yield found


@pytest.fixture
def labels(rng):
    X = rng.normal(size=(611, 4))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=611)
    y[::9] += 4.0
    return X, y


def fitted_both_ways(X, y, chunks, **settings):
    """The model of one machine, and that of the cluster."""
    remote = da.from_array(X, chunks=chunks)
    return [HLRegressor(**SETTINGS, **settings).fit(rows, y) for rows in (X, remote)]


def assert_same(local, remote, X):
    for name in ("coef_", "intercept_", "threshold_", "residuals_", "loo_residuals_"):
        here, there = getattr(local, name), getattr(remote, name)
        scale = np.nanmax(np.abs(here))
        np.testing.assert_allclose(there, here, rtol=0.0, atol=1e-9 * scale, err_msg=name)
    np.testing.assert_array_equal(remote.removed_, local.removed_)
    np.testing.assert_allclose(
        remote.predict(X), local.predict(X), atol=1e-9 * np.abs(local.predict(X)).max()
    )


# --- answers ----------------------------------------------------------------------------


def test_passes_give_what_arrays_give(client, rng):
    X = rng.normal(size=(103, 3))
    rows, _, names = cluster.dask_rows(da.from_array(X, chunks=(10, 2)), None)
    assert names is None and rows.n_rows == len(rows) == 103 and rows.n_features == 3
    rows, local = rows.in_blocks_of(4), ArrayRows(X)
    u = rng.normal(size=103)
    for chosen in (None, np.array([0, 9, 10, 55, 102]), np.arange(20, 41), np.array([7])):
        own = u if chosen is None else u[chosen]
        for work, shared, columns in (
            (weighted_rows, (2.0,), (own,)),
            (moments, (Plain(),), (own,)),
            (project, (Plain(), np.ones(3)), ()),
        ):
            values, sums = rows.run(work, shared, columns, chosen)
            expected, expected_sums = local.run(work, shared, columns, chosen)
            assert (values is None) == (expected is None)
            if values is not None:
                np.testing.assert_allclose(values, expected, rtol=1e-14)
            assert len(sums) == len(expected_sums)
            for left, right in zip(sums, expected_sums, strict=True):
                np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14)
    assert rows.run(moments, (Plain(),), (u[:0],), np.array([], dtype=int)) == (None, ())
    asked = np.array([55, 3, 3, 102, 0])
    np.testing.assert_array_equal(rows.take(asked), X[asked])
    assert rows.take(asked[:0]).shape == (0, 3)


class Plain:
    """κ(x) = x."""

    def __call__(self, X):
        return X


def weighted_rows(X, factor, u):
    return factor * u[:, None] * X, (u @ X, np.array(u.sum()))


def test_sums_are_the_same_bits_at_every_pass(client, rng):
    X, u = rng.normal(size=(997, 5)), rng.normal(size=997)
    rows, _, _ = cluster.dask_rows(da.from_array(X, chunks=(31, -1)), None)
    first = rows.run(moments, (Plain(),), (u,))[1][0]
    for _ in range(3):
        np.testing.assert_array_equal(rows.run(moments, (Plain(),), (u,))[1][0], first)


@pytest.mark.parametrize("threshold", [0.3, "adaptive"])
def test_cluster_equals_machine(client, labels, threshold):
    X, y = labels
    y[5::11] = np.nan
    local, remote = fitted_both_ways(X, y, (97, 3), threshold=threshold)
    assert_same(local, remote, X)
    assert remote.duality_gap_ < 1e-9


CASES = {
    "refine": {"threshold": "refine", "n_refinements": 2, "threshold_step": 0.05},
    "weights": {"sample_weight": np.arange(611) % 3 + 0.5},
    "manifold": {"manifold": 1e-3, "threshold": 0.3},
    "views": {
        "views": [View([0, 1]), View([2, 3], kernel="linear")],
        "agreement": 1e-4,
        "threshold": 0.3,
    },
    "fourier": {"approximation": "fourier", "threshold": 0.3},
    "linear": {"approximation": "linear", "threshold": 0.3},
    "small blocks": {"block_size": 13, "threshold": 0.3},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_cluster_equals_machine_with_everything(client, labels, case):
    X, y = labels
    y[5::11] = np.nan
    settings = SETTINGS | CASES[case]
    extra = {k: settings.pop(k) for k in ("sample_weight",) if k in settings}
    local = HLRegressor(**settings).fit(X, y, **extra)
    remote = HLRegressor(**settings).fit(da.from_array(X, chunks=(101, 4)), y, **extra)
    assert_same(local, remote, X)


@pytest.mark.slow
def test_cluster_equals_machine_for_two_targets(client, labels):
    X, y = labels
    y = np.stack([y, np.cos(X[:, 2])], axis=1)
    y[3::7, 1] = np.nan
    local, remote = fitted_both_ways(X, y, (200, 4), threshold=0.3)
    assert_same(local, remote, X)
    assert remote.predict(da.from_array(X, chunks=(90, 4))).compute().shape == (611, 2)


def test_labels_and_lengths_may_be_lazy(client, labels):
    X, y = labels
    lazy = da.from_array(X.astype(np.float32), chunks=(97, 4))
    some = lazy[lazy[:, 0] > -0.5]  # of unknown length
    chosen = X.astype(np.float32)[:, 0] > -0.5
    own = da.from_array(y[chosen], chunks=50)
    remote = HLRegressor(**SETTINGS, threshold=0.3).fit(some, own)
    known = X.astype(np.float32)[chosen].astype(float)
    local = HLRegressor(**SETTINGS, threshold=0.3).fit(known, y[chosen])
    assert_same(local, remote, known)
    assert np.isnan(some.shape[0])  # the user's array is as it was


def test_data_frames_bring_labels_and_names(client, labels):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, y = labels
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, text="no number")
    lazy = dd.from_pandas(frame, npartitions=4)
    features = lazy[["y", *"abcd"]]
    remote = HLRegressor(**SETTINGS, threshold=0.3).fit(features, "y")
    local = HLRegressor(**SETTINGS, threshold=0.3).fit(X, y)
    np.testing.assert_allclose(remote.residuals_, local.residuals_, atol=1e-9)
    assert list(remote.feature_names_in_) == list("abcd")
    mixed = lazy[["d", "c", "b", "y", "a"]]
    np.testing.assert_allclose(remote.predict(mixed).compute(), local.predict(X), atol=1e-9)
    with pytest.raises(ValueError, match="'text' holds"):
        HLRegressor(**SETTINGS).fit(lazy, "y")
    with pytest.raises(ValueError, match="no column 'z'"):
        HLRegressor(**SETTINGS).fit(features, "z")
    with pytest.raises(ValueError, match="no column 'b'"):
        remote.predict(lazy[["a", "c", "d"]])


def test_predictions_are_lazy_and_need_no_client(labels):
    X, y = labels
    model = HLRegressor(**SETTINGS, threshold=0.3).fit(X, y)
    lazy = da.from_array(X, chunks=((100, 0, 511), (2, 2)))
    predicted = model.predict(lazy)
    assert isinstance(predicted, da.Array)
    assert predicted.chunks == ((100, 0, 511),)
    np.testing.assert_allclose(
        predicted.compute(scheduler="threads"), model.predict(X), rtol=1e-12, atol=1e-12
    )
    assert model.predict_views(lazy).shape == (611, 1)
    unknown = model.predict(lazy[lazy[:, 0] > 0.0])
    assert len(unknown.compute(scheduler="threads")) == np.sum(X[:, 0] > 0.0)
    assert model.score(lazy, y) == pytest.approx(model.score(X, y), abs=1e-12)
    np.testing.assert_allclose(
        model.predict_interval(lazy), model.predict_interval(X), atol=1e-9
    )
    with pytest.raises(ValueError, match="X has 3 features"):
        model.predict(lazy[:, :3])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_are_lazy_too(rng, n_classes):
    own = np.arange(300) % n_classes
    X = rng.normal(size=(300, 2)) + 2.0 * own[:, None]
    y = np.array(["low", "middle", "high"])[own]
    model = HLClassifier(**SETTINGS, threshold=0.3).fit(X, y)
    lazy = da.from_array(X, chunks=((100, 0, 200), (1, 1)))
    for name in ("predict", "decision_function", "predict_proba"):
        found, expected = getattr(model, name)(lazy), getattr(model, name)(X)
        assert isinstance(found, da.Array)
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert found.chunks[0] == (100, 0, 200)
        computed = found.compute(scheduler="threads")
        if name == "predict":
            np.testing.assert_array_equal(computed, expected)
        else:
            np.testing.assert_allclose(computed, expected, rtol=1e-12, atol=1e-12)
    some = model.predict(lazy[lazy[:, 0] > 0.0])  # of unknown length
    np.testing.assert_array_equal(
        some.compute(scheduler="threads"), model.predict(X[X[:, 0] > 0.0])
    )
    assert model.score(lazy, y) == model.score(X, y)


def test_a_model_of_the_cluster_can_be_pickled(client, labels):
    X, y = labels
    model = HLRegressor(**SETTINGS, threshold=0.3).fit(da.from_array(X, chunks=(97, 4)), y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.loo_residuals_, model.loo_residuals_)


# --- what is refused --------------------------------------------------------------------


def test_without_a_client_the_error_says_how_to_start_one(labels):
    X, y = labels
    with pytest.raises(RuntimeError, match=r"from dask\.distributed import Client"):
        HLRegressor(**SETTINGS).fit(da.from_array(X, chunks=(97, 4)), y)


def test_input_that_is_no_matrix_of_numbers_is_refused(client, labels):
    import dask
    import dask.bag

    X, y = labels
    lazy = da.from_array(X, chunks=(97, 4))
    model = HLRegressor(**SETTINGS)
    with pytest.raises(TypeError, match="approximation="):
        HLRegressor().fit(lazy, y)
    with pytest.raises(ValueError, match="has no names"):
        model.fit(lazy, "y")
    with pytest.raises(ValueError, match="must have shape"):
        model.fit(lazy[:, 0], y)
    with pytest.raises(ValueError, match="no rows"):
        model.fit(lazy[:0], y[:0])
    with pytest.raises(TypeError, match="must be NumPy arrays of numbers"):
        model.fit(lazy.astype(str), y)
    with pytest.raises(TypeError, match="arrays and data frames"):
        model.fit(dask.bag.from_sequence([1, 2]), y)
    with pytest.raises(ValueError, match="611 rows but y has 610"):
        model.fit(lazy, y[1:])
    with pytest.raises(ValueError, match="contains NaN"):
        model.fit(da.where(lazy > 3.0, np.nan, lazy), y)
    assert not hasattr(model, "coef_")


def test_an_error_on_a_worker_is_the_error_of_the_fit(client, rng):
    rows, _, _ = cluster.dask_rows(da.from_array(rng.normal(size=(20, 2)), chunks=(5, 2)), None)
    with pytest.raises(ZeroDivisionError, match="no such luck"):
        rows.run(unlucky)
    with pytest.raises(TimeoutError, match="of its own"):
        rows.run(late)


def unlucky(X):
    raise ZeroDivisionError("no such luck")


def late(X):
    raise TimeoutError("of its own")


# --- chunks -----------------------------------------------------------------------------


def test_chunks_are_cut_for_the_threads_there_are():
    def sizes(n, chunk, threads):
        return cluster._well_cut(da.zeros((n, 3), chunks=(chunk, 3)), threads).chunks[0]

    assert sizes(1_000_000, 1_000_000, 2) == (125_000,) * 8
    assert sizes(1_000_000, 100_000, 2) == (100_000,) * 10  # enough of them already
    assert sizes(5_000, 5_000, 8) == (5_000,)  # small enough for one
    assert len(sizes(1_000_000, 1_000, 2)) == 16
    assert sizes(700, 70, 4) == (70,) * 10


def test_x_stays_on_the_workers_if_it_is_small(client, rng, monkeypatch):
    X = da.from_array(rng.normal(size=(60, 2)), chunks=(20, 2))

    def is_held():
        return any(X.name in str(key) for key in client.who_has())

    for share, held in ((0.25, True), (1e-12, False)):
        monkeypatch.setattr(cluster, "HELD_SHARE", share)
        rows, _, _ = cluster.dask_rows(X, None)
        np.testing.assert_array_equal(rows.take(np.arange(60)), X.compute())
        if held:
            time.sleep(0.5)  # what is not held is let go in far less
            assert is_held()
            rows.release()
        wait_until(lambda: not is_held())
        np.testing.assert_array_equal(rows.take(np.array([3])), X[3:4].compute())


def test_what_passes_share_is_sent_once(client, rng):
    rows, _, _ = cluster.dask_rows(
        da.from_array(rng.normal(size=(60, 2)), chunks=(20, 2)), None
    )
    rows.run(project, (Plain(), np.ones(2)))
    basis = Plain()
    futures = {rows.chunks.kept(basis).key for _ in range(3)}
    rows.run(project, (basis, np.ones(2)))
    assert len(futures) == 1 and rows.chunks.kept(basis).key in futures
    others = [Plain() for _ in range(cluster.KEPT)]
    for other in others:
        rows.run(project, (other, np.ones(2)))
    assert rows.chunks.kept(basis).key not in futures


def test_blas_threads_come_back():
    from threadpoolctl import threadpool_info

    def threads():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before


# --- what goes wrong --------------------------------------------------------------------


def wait_until(is_so, seconds=30.0):
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, "it did not come about in time"
        time.sleep(0.05)


class Background(threading.Thread):
    """A call in a thread, whose result or error is kept."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.result, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.result = self.call()
        except Exception as error:
            self.error = error


def slow_rows(X, marks):
    """Rows that take their time, and leave a mark when someone works on them."""
    Path(marks, f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.1)
    return X[:, :1] * 1.0


def slowly(X, marks):
    lazy = da.from_array(X, chunks=(100, X.shape[1]))
    slow = lazy.map_blocks(slow_rows, str(marks), chunks=(lazy.chunks[0], (1,)), dtype=float)
    return da.concatenate([lazy, 0.0 * slow], axis=1)


@pytest.fixture
def many(rng):
    X = rng.normal(size=(1_203, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=1_203)
    y[::9] += 4.0
    return X, y


def two_workers():
    return LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    )


@pytest.mark.slow
def test_a_killed_worker_costs_time_and_nothing_else(many, tmp_path, monkeypatch):
    X, y = many
    wide = np.concatenate([X, np.zeros((len(X), 1))], axis=1)
    settings = SETTINGS | {"threshold": 0.3, "gamma": 0.5}
    # Rows that are not held are slow at every pass: there is time to do harm.
    monkeypatch.setattr(cluster, "HELD_SHARE", 0.0)
    with two_workers() as machines, Client(machines) as client:
        pids = list(client.run(os.getpid).values())
        fit = Background(lambda: HLRegressor(**settings).fit(slowly(X, tmp_path), y))
        for count, pid in zip((20, 40), pids, strict=True):
            wait_until(lambda count=count: len(list(tmp_path.iterdir())) > count)
            assert fit.is_alive()
            os.kill(pid, signal.SIGKILL)
        fit.join(240.0)
        assert not fit.is_alive() and fit.error is None, fit.error
        assert not set(pids) & set(client.run(os.getpid).values())
        local = HLRegressor(**settings).fit(wide, y)
        assert_same(local, fit.result, wide)


@pytest.mark.slow
def test_all_workers_may_die_with_what_they_held(many, tmp_path):
    X, y = many
    wide = np.concatenate([X, np.zeros((len(X), 1))], axis=1)
    settings = SETTINGS | {"threshold": "adaptive", "gamma": 0.5}
    with two_workers() as machines, Client(machines) as client:
        pids = list(client.run(os.getpid).values())
        fit = Background(lambda: HLRegressor(**settings).fit(slowly(X, tmp_path), y))
        wait_until(lambda: len(list(tmp_path.iterdir())) >= 13)
        time.sleep(0.5)
        assert fit.is_alive()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        fit.join(240.0)
        assert not fit.is_alive() and fit.error is None, fit.error
        assert_same(HLRegressor(**settings).fit(wide, y), fit.result, wide)


def start_scheduler(folder):
    """A scheduler and a worker as processes of their own, and the file with their address."""
    file = folder / "scheduler.json"
    common = ["--no-dashboard", "--scheduler-file", str(file)]
    alone = ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]
    started = [
        run_dask("scheduler", "--host", "127.0.0.1", "--port", "0", *common),
        run_dask("worker", *common, *alone),
    ]
    wait_until(file.exists)
    return *started, file


def run_dask(*arguments):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "dask", *arguments], **quiet)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_that_goes_away_is_an_error_within_a_minute(many, tmp_path, harm):
    X, y = many
    marks = tmp_path / "marks"
    marks.mkdir()
    scheduler, worker, file = start_scheduler(tmp_path)
    model = HLRegressor(**SETTINGS, threshold=0.3).fit(X, y)
    before = model.__dict__.copy()
    client = Client(scheduler_file=str(file), timeout=30)
    try:
        fit = Background(lambda: model.fit(slowly(X, marks), y))
        wait_until(lambda: len(list(marks.iterdir())) > 2)
        scheduler.send_signal(harm)
        started = time.monotonic()
        fit.join(60.0)
        assert not fit.is_alive(), f"it waits after {time.monotonic() - started:.0f} s"
        assert isinstance(fit.error, ConnectionError)
        assert "Start a cluster and a Client again" in str(fit.error)
        assert model.__dict__ == before
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
        client.close(timeout=1)


@pytest.mark.slow
def test_an_address_that_does_not_answer_is_an_error_within_seconds():
    started = time.monotonic()
    for address in ("tcp://127.0.0.1:1", "nonsense://x"):
        expected = pytest.raises(ConnectionError, match="no Dask scheduler answers")
        with expected, cluster.connected(address):
            raise AssertionError("there is nothing to connect to")
    assert time.monotonic() - started < 15.0


@pytest.mark.slow
def test_a_local_cluster_is_closed_in_any_case():
    def children():
        return {child.pid for child in psutil.Process().children(recursive=True)}

    before = children()
    with pytest.raises(ZeroDivisionError), cluster.connected(None) as client:
        pids = set(client.run(os.getpid).values())
        assert pids <= children() - before
        raise ZeroDivisionError
    assert not any(psutil.pid_exists(pid) for pid in pids)


INTERRUPTED = """
import sys
import numpy as np
from activehuber import HLRegressor
from activehuber.data.dask_rows import connected
from tests.data.test_dask_rows import slowly, wait_until

def queued(dask_scheduler):
    return [key for key, task in dask_scheduler.tasks.items() if task.state == "queued"]

if __name__ == "__main__":
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    with connected(None) as client:
        rows = slowly(X, sys.argv[1])
        try:
            HLRegressor(approximation="nystrom", n_components=20).fit(rows, X[:, 0])
        except KeyboardInterrupt:
            wait_until(lambda: not client.run_on_scheduler(queued), 3.0)
            print("interrupted, nothing is queued", flush=True)
            raise
"""


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_leaves_no_process(tmp_path, whole_group):
    script, marks = tmp_path / "script.py", tmp_path / "marks"
    marks.mkdir()
    script.write_text(INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, str(script), str(marks)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        wait_until(lambda: len(list(marks.iterdir())) > 2 or process.poll() is not None, 60.0)
        assert process.poll() is None, process.communicate()
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        # A terminal sends it to all processes of the group, `kill -INT` to one.
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60.0)
    assert "interrupted, nothing is queued" in output, output
    # One interrupt, said once. Tracebacks are not counted: a worker that is closed in the
    # middle of a heartbeat may log one of Dask's own, on a busy machine.
    assert output.count("KeyboardInterrupt") == 1, output
    assert output.rstrip().endswith("KeyboardInterrupt"), output
    assert output.count(str(script)) == 1, output
    assert process.returncode != 0
    wait_until(lambda: not any(child.is_running() for child in children))
