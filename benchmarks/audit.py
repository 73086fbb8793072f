"""Wall time, imports included, and memory of `activehuber audit` on tables of 20 columns.

    python -m benchmarks.audit

The machine should be doing nothing else.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

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


def main() -> None:
    print("| rows | runs | best, s | median, s | limit, s | peak memory, GiB (<= 3) |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for n, limit in LIMITS.items():
            path = Path(folder) / f"{n}.csv"
            table(n, path)
            command = [sys.executable, "-m", "activehuber.cli", "audit", str(path)]
            command += ["--target", "y", "-o", str(Path(folder) / "out"), "--force"]
            times, peak = [], 0.0
            # Compiled modules are kept, as they are on a user's machine.
            keep = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
            for _ in range(7 if n < 1000 else 3):
                started = time.perf_counter()
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=keep)
                _, status, usage = os.wait4(process.pid, 0)
                times.append(time.perf_counter() - started)
                peak = max(peak, usage.ru_maxrss / 2**20)
                if status:
                    raise SystemExit(f"the audit of {n} rows failed")
            best, usual = min(times), statistics.median(times)
            print(f"| {n} | {len(times)} | {best:.2f} | {usual:.2f} | {limit:g} | {peak:.2f} |")


if __name__ == "__main__":
    main()
