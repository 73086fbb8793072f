"""Wall time, imports included, and memory of `activehuber audit`.

    python -m benchmarks.audit            # CSV, 20 columns, exact fits
    python -m benchmarks.audit --large    # Parquet, 10 columns, a million rows in blocks
    python -m benchmarks.audit --large --engine dask

The machine should be doing nothing else. Memory is that of the process itself; workers of a
cluster are not counted. Data are generated; the seed is 0.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

LIMITS = {200: 3.0, 2_000: 10.0, 5_000: 60.0}


def table(n: int, path: Path) -> None:
    """A smooth function of three of 20 columns; 5 % of labels are wrong, 10 % are missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    y[: n // 20] += 5.0
    lines = [",".join([*(f"x{j}" for j in range(20)), "y"])]
    for i, row in enumerate(X):
        label = "" if i >= n - n // 10 else repr(float(y[i]))
        lines.append(",".join([*(repr(float(v)) for v in row), label]))
    path.write_text("\n".join(lines) + "\n")


def large_table(n: int, path: Path) -> np.ndarray:
    """A smooth function of four of 10 columns; 10 % of labels are wrong, 5 % are missing.

    Returns which labels are wrong.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2
    y += 0.3 * rng.normal(size=n)
    wrong, gone = rng.random(n) < 0.1, rng.random(n) < 0.05
    y[wrong] += rng.choice([-1.0, 1.0], wrong.sum()) * rng.uniform(4.0, 12.0, wrong.sum())
    y[gone] = np.nan
    X[rng.random(n) < 0.01, 9] = np.nan
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)]).assign(y=y)
    frame.to_parquet(path, index=False, row_group_size=131_072)
    return wrong & ~gone


def timed(path: Path, out: Path, *options: str) -> tuple[float, float]:
    """Seconds and GiB at most of one run of the command."""
    command = [sys.executable, "-m", "activehuber", "audit", str(path)]
    command += ["--target", "y", "-o", str(out), "--force", *options]
    # Compiled modules are kept, as they are on a user's machine.
    keep = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=keep)
    _, status, usage = os.wait4(process.pid, 0)
    # Popen did not wait itself, and would complain that the process still runs.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the audit of {path.name} failed")
    return time.perf_counter() - started, usage.ru_maxrss / 2**20


def small() -> None:
    print("| rows | runs | best, s | median, s | limit, s | peak memory, GiB (<= 3) |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for n, limit in LIMITS.items():
            path = Path(folder) / f"{n}.csv"
            table(n, path)
            runs = [timed(path, Path(folder) / "out") for _ in range(7 if n < 1000 else 3)]
            times, peak = [seconds for seconds, _ in runs], max(memory for _, memory in runs)
            best, usual = min(times), statistics.median(times)
            print(f"| {n} | {len(times)} | {best:.2f} | {usual:.2f} | {limit:g} | {peak:.2f} |")


def large(rows: int, options: list[str]) -> None:
    print("| rows | time, s (<= 180) | peak, GiB (<= 2) | found | of those right | page, MB |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / f"{rows}.parquet", Path(folder) / "out"
        wrong = large_table(rows, path)
        seconds, peak = timed(path, out, *options)
        labels = pd.read_csv(out / "labels.csv", usecols=["row", "verdict"])
        flagged = labels["row"][labels["verdict"] == "flagged"].to_numpy() - 1
        hits = np.count_nonzero(wrong[flagged])
        page = (out / "report.html").stat().st_size / 1e6
        print(
            f"| {rows} | {seconds:.1f} | {peak:.2f} | {hits / wrong.sum():.4f} | "
            f"{hits / max(1, len(flagged)):.4f} | {page:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("local", "dask"), default="local")
    arguments = parser.parse_args()
    if arguments.large:
        large(arguments.rows, ["--engine", arguments.engine])
    else:
        small()


if __name__ == "__main__":
    main()
