"""Fits in blocks: time, memory and error against peers and against the exact fit.

    python -m benchmarks.scale [part ...] [--rows 1000000]

Parts: robust, ridge, parquet, audit, dask, accuracy, landmarks, constants; all of them if none
is named. Each run is a process of its own, so that memory and threads are its own. The machine
should be doing nothing else; `audit` and `dask` need the extras cli and dask.

Ten Gaussian features, y a function of five of them (`waves`; `robust` also `smooth`), Gaussian
noise of 0.2, every tenth label off by 3 to 8 to either side (`make`). Ridges are chosen on
10,000 training rows by the error on 5,000 others, for each method from the same grid; test rows
are clean and drawn anew. Training rows are of seed 0 (blocks of Parquet: 100, 101, …;
`landmarks`: 0 to 3).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import HuberRegressor, Ridge
from sklearn.pipeline import make_pipeline

from activehuber import HLRegressor

RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
NOISE = 0.2


def waves(X: np.ndarray) -> np.ndarray:
    """More than 1000 functions can hold."""
    return np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + np.cos(2.0 * X[:, 3]) + 0.3 * X[:, 4]


def smooth(X: np.ndarray) -> np.ndarray:
    """Nearly within reach of 300 functions."""
    return np.sin(X[:, 0]) + np.tanh(X[:, 1] + X[:, 2]) + 0.5 * X[:, 3] + 0.1 * X[:, 4] ** 2


def make(n: int, seed: int, surface=waves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, labels with every tenth corrupted, and what they should be."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    clean = surface(X)
    y = clean + NOISE * rng.normal(size=n)
    bad = rng.random(n) < 0.1
    y[bad] += rng.choice([-1.0, 1.0], bad.sum()) * rng.uniform(3.0, 8.0, bad.sum())
    return X, y, clean


def ours(n: int, p: int, ridge: float, seed: int = 0, **params) -> HLRegressor:
    alpha = ridge / (2.0 * n)
    return HLRegressor(
        alpha=alpha, approximation="nystrom", n_components=p, random_state=seed, **params
    )


class SameLandmarks(Nystroem):
    """Nystroem whose landmarks are given."""

    def __init__(self, landmarks=None, *, gamma=None, n_components=100):
        super().__init__(gamma=gamma, n_components=n_components)
        self.landmarks = landmarks

    def fit(self, X, y=None):
        return super().fit(self.landmarks)


def peer(p: int, ridge: float, kind: str, seed: int = 0, landmarks: np.ndarray | None = None):
    """Nystroem as it comes, or on given landmarks, and a linear model."""
    # HuberRegressor divides residuals by their scale, and has no half before the square.
    last = Ridge(alpha=ridge) if kind == "ridge" else HuberRegressor(alpha=ridge, max_iter=1000)
    if landmarks is None:
        return make_pipeline(Nystroem(gamma=0.1, n_components=p, random_state=seed), last)
    return make_pipeline(SameLandmarks(landmarks, gamma=0.1, n_components=len(landmarks)), last)


def chosen_ridge(build, p: int, surface) -> float:
    """The ridge with the least median error on held-out training rows, labels as given."""
    X, y, _ = make(15_000, 0, surface)
    errors = []
    for ridge in RIDGES:
        model = build(10_000, p, ridge).fit(X[:10_000], y[:10_000])
        errors.append(np.median(np.abs(model.predict(X[10_000:]) - y[10_000:])))
    return RIDGES[int(np.argmin(errors))]


def timed(model, X, y):
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def errors_of(model, surface) -> tuple[float, float]:
    """Mean absolute and root mean square error on clean fresh rows."""
    X, _, clean = make(20_000, 1, surface)
    off = model.predict(X) - clean
    return float(np.mean(np.abs(off))), float(np.sqrt(np.mean(off**2)))


# --- parts, each printing what it measured ----------------------------------------------


def robust(rows: int) -> dict:
    """n = 100k, p = 300, adaptive threshold, against Nystroem + HuberRegressor."""

    def build(n, p, ridge, seed=0):
        return ours(n, p, ridge, seed, gamma=0.1)

    surfaces = (waves, smooth)
    return {each.__name__: _against(100_000, 300, "huber", build, each) for each in surfaces}


def ridge(rows: int) -> dict:
    """n = 100k, p = 1000, fixed threshold, against Nystroem + Ridge."""

    def build(n, p, ridge, seed=0):
        return ours(n, p, ridge, seed, gamma=0.1, threshold=1.345 * NOISE)

    return _against(100_000, 1000, "ridge", build, waves)


def _against(n, p, kind, build, surface) -> dict:
    """Three draws of landmarks for each, in turns; medians of times, mean errors.

    `same` is the peer on the landmarks that ours chose, which its own Nystroem cannot.
    """
    X, y, _ = make(n, 0, surface)
    ridges = {
        "ours": chosen_ridge(build, p, surface),
        "peer": chosen_ridge(lambda n, p, r: peer(p, r, kind), p, surface),
    }
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    errors: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": [], "same": []}
    for seed in range(3):
        mine = build(n, p, ridges["ours"], seed)
        seconds["ours"].append(timed(mine, X, y))
        theirs = peer(p, ridges["peer"], kind, seed)
        seconds["peer"].append(timed(theirs, X, y))
        same = peer(p, ridges["peer"], kind, landmarks=mine.components_).fit(X, y)
        for name, model in (("ours", mine), ("peer", theirs), ("same", same)):
            errors[name].append(errors_of(model, surface))
    usual = {name: float(np.median(each)) for name, each in seconds.items()}
    return {
        "seconds": usual,
        "all_seconds": seconds,
        "times_faster": usual["peer"] / usual["ours"],
        "mae_rmse": {name: np.mean(each, axis=0).tolist() for name, each in errors.items()},
        "each_mae_rmse": errors,
        "ridges": ridges,
    }


def parquet(rows: int) -> dict:
    """p = 1000, fixed threshold, from Parquet: 100k rows and `rows`, each in a process."""
    out = {}
    for n in (100_000, rows):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            write_parquet(path, n)
            out[str(n)] = child("parquet_fit", str(path), str(n))
    small, large = out["100000"], out[str(rows)]
    out["growth"] = large["seconds"] / small["seconds"]
    return out


def write_parquet(path: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for part, start in enumerate(range(0, n, 100_000)):
        X, y, _ = make(min(100_000, n - start), seed=100 + part)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(10)}, "y": y})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def parquet_fit(path: str, n: str) -> dict:
    model = ours(int(n), 1000, 1.0, gamma=0.1, threshold=1.345 * NOISE)
    started = time.perf_counter()
    model.fit(path, "y")
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "peak_gib": peak_gib(),
        "error": float(_streamed_error(model)),
        "steps": int(model.n_iter_),
        "gap": float(model.duality_gap_),
    }


def _streamed_error(model) -> float:
    import pandas as pd

    X, _, clean = make(20_000, seed=1)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    return np.mean(np.abs(model.predict(frame) - clean))


def audit(rows: int) -> dict:
    """`activehuber audit` of a Parquet table, p = 500, as a command."""
    from benchmarks.audit import timed as timed_audit  # needs the extra cli

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_parquet(path, rows)
        out = Path(folder) / "out"
        seconds, peak = timed_audit(path, out, "--components", "500")
        sizes = {f.name: f.stat().st_size for f in out.iterdir()}
    return {"seconds": seconds, "peak_gib": peak, "bytes": sizes}


def dask(rows: int) -> dict:
    """n = `rows`, p = 300, fixed threshold: two single-thread workers and the local engine."""
    local = child("dask_fit", "local", str(rows))
    cluster = child("dask_fit", "dask", str(rows))
    return {
        "local": local,
        "dask": cluster,
        "ratio": cluster["seconds"] / local["seconds"],
        "difference": abs(cluster["check"] - local["check"]),
    }


def dask_fit(engine: str, n: str) -> dict:
    X, y, _ = make(int(n), seed=0)
    model = ours(int(n), 300, 1.0, gamma=0.1, threshold=1.345 * NOISE)
    if engine == "local":
        seconds = timed(model, X, y)
    else:
        import dask.array as da
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
            ) as cluster,
            Client(cluster),
        ):
            rows = da.from_array(X, chunks=(50_000, -1)).persist()
            seconds = timed(model, rows, y)
    check = float(np.sum(model.predict(make(1000, seed=1)[0])))
    return {"seconds": seconds, "check": check, "steps": int(model.n_iter_)}


def accuracy(rows: int) -> dict:
    """Against the exact fit on 20k rows, by the number of components."""
    X, y, _ = make(20_000, seed=0)
    test, _, clean = make(20_000, seed=1)
    params = {"gamma": 0.1, "threshold": 1.345 * NOISE}
    alpha = 1.0 / (2.0 * len(X))
    exact = HLRegressor(alpha=alpha, **params)
    seconds = timed(exact, X, y)
    known = exact.predict(test)
    lines = [("exact", seconds, 0.0, float(np.mean(np.abs(known - clean))))]
    for kind in ("nystrom", "fourier"):
        for p in (100, 200, 500, 1000, 2000):
            model = HLRegressor(
                alpha=alpha, approximation=kind, n_components=p, random_state=0, **params
            )
            seconds = timed(model, X, y)
            predicted = model.predict(test)
            off = float(np.mean(np.abs(predicted - known)))
            lines.append(
                (f"{kind} {p}", seconds, off, float(np.mean(np.abs(predicted - clean))))
            )
    return {"lines": lines}


def landmarks(rows: int) -> dict:
    """Landmarks evenly drawn, by k-means++ or by the labels: test error of least squares."""
    from sklearn.cluster import kmeans_plusplus

    from activehuber.kernels.feature_maps import landmarks as whiten
    from activehuber.kernels.kernel import Kernel
    from activehuber.kernels.landmark_choice import effort, forward_choice

    out = {}
    for kind in ("gaussian", "heavy tails", "clusters", "sheet"):
        for p in (100, 300):
            errors: dict[str, list[float]] = {"even": [], "k-means++": [], "labels": []}
            for seed in range(4):
                X, y, _ = _shape(kind, 20_000, seed)
                test, _, clean = _shape(kind, 4000, 100 + seed)
                kernel = Kernel("rbf", gamma=1.0 / (X.shape[1] * X.var()))
                order = np.random.default_rng(seed).permutation(len(X))
                n_candidates, n_looked_at = effort(len(X), p)
                pool, looked_at = X[order[: 10 * p]], order[-n_looked_at:]
                few = pool[:n_candidates]
                functions = np.concatenate([b for _, b in kernel.blocks(X[looked_at], few)])
                chosen = forward_choice(functions, y[looked_at, None], p)
                rest = np.setdiff1d(np.arange(len(few)), chosen)[: p - len(chosen)]
                sets = {
                    "even": pool[:p],
                    "k-means++": kmeans_plusplus(pool, p, random_state=seed)[0],
                    "labels": few[np.concatenate([chosen, rest])],
                }
                for name, Z in sets.items():
                    basis = whiten(kernel, np.ascontiguousarray(Z))
                    A = np.column_stack([basis(X) @ basis.whitening, np.ones(len(X))])
                    ridge = np.append(np.full(basis.width, 0.016), 0.0)
                    theta = np.linalg.solve(A.T @ A + np.diag(ridge), A.T @ y)
                    B = np.column_stack([basis(test) @ basis.whitening, np.ones(len(test))])
                    errors[name].append(float(np.mean(np.abs(B @ theta - clean))))
            out[f"{kind} {p}"] = {name: float(np.mean(v)) for name, v in errors.items()}
    return out


def _shape(kind: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        X = rng.normal(size=(n, 10))
    elif kind == "heavy tails":
        X = rng.standard_t(2.5, size=(n, 5))
    elif kind == "clusters":
        centres = 3.0 * np.random.default_rng(5).normal(size=(8, 6))
        own = rng.choice(8, n, p=[0.6, 0.2, 0.1, 0.05, 0.02, 0.01, 0.01, 0.01])
        X = centres[own] + np.linspace(0.2, 1.0, 8)[own][:, None] * rng.normal(size=(n, 6))
    else:
        t = rng.uniform(0.0, 10.0, size=(n, 2))
        X = np.column_stack([t[:, 0] * np.cos(t[:, 0]), t[:, 0] * np.sin(t[:, 0]), t[:, 1]])
    X = X / X.std()
    waves = np.random.default_rng(9).normal(size=(X.shape[1], 3))
    clean = np.sin(X @ waves).sum(axis=1)
    return X, clean + 0.1 * rng.normal(size=n), clean


def constants(rows: int) -> dict:
    """Seconds a row and core of the two kinds of pass, p = 1000, d = 10, one thread."""
    from activehuber.data.rows import ArrayRows, one_blas_thread
    from activehuber.kernels.kernel import Kernel
    from activehuber.operators.features import FeatureMap, gram_sums, project
    from activehuber.problem.approximation import Approximation, build_basis

    X, y, _ = make(20_000, seed=0)
    drawn = Approximation("nystrom", 1000, 0)
    kernels, columns = [Kernel("rbf", gamma=0.1)], [None]
    basis, _ = build_basis(drawn, kernels, columns, ArrayRows(X), y[:, None], True)
    features = FeatureMap(basis, np.ones(1))
    block = np.ascontiguousarray(X[:4096])
    works = {
        "kernel and product": lambda: project(block, basis, np.ones(basis.width)),
        "features and sums": lambda: gram_sums(block, features, np.ones(4096)),
    }
    out = {}
    with one_blas_thread():
        for name, work in works.items():
            work()
            laps = []
            for _ in range(5):
                started = time.perf_counter()
                work()
                laps.append(time.perf_counter() - started)
            out[name] = min(laps) / len(block)
    return out


# --- running and printing ---------------------------------------------------------------

PARTS = {
    each.__name__: each
    for each in (robust, ridge, parquet, audit, dask, accuracy, landmarks, constants)
}
INNER = {"parquet_fit": parquet_fit, "dask_fit": dask_fit}


def peak_gib() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def child(name: str, *arguments: str) -> dict:
    """What a part measures in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--inner", name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner:
        print(json.dumps(INNER[given.parts[0]](*given.parts[1:])))
        return
    unknown = sorted(set(given.parts) - set(PARTS))
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; parts are {', '.join(PARTS)}")
    print(f"{os.cpu_count()} cores, {given.rows} rows where it says rows")
    for name in given.parts or PARTS:
        print(f"\n{name}: {PARTS[name].__doc__}", flush=True)
        print(json.dumps(PARTS[name](given.rows), indent=1), flush=True)


if __name__ == "__main__":
    main()
