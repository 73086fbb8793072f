"""Run the fast tests with the BLAS kernels of other processors.

python tools/cores.py [CORE ...] [--numeric] [--jobs 2]

OpenBLAS, which NumPy and SciPy each ship a copy of, has kernels of its own for every family of
processors and rounds differently in each. A core type that this processor cannot run, or that
OpenBLAS puts another one in place of, is left out, and a line says so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
CORES = ("Haswell", "SkylakeX", "Nehalem")
# Tests of the mathematics; the rest hardly multiplies.
NUMERIC = (
    *("loss", "kernels", "graphs", "operators", "problem", "solver", "labels", "selection"),
    *("estimators", "persistence", "audit/test_table.py", "crowd/test_counter.py"),
)
# Prints the kernels in use, having used them: those that a processor lacks instructions for
# are loaded all the same, and end the process at the first product.
PROBE = """
import numpy as np, scipy.linalg, threadpoolctl
matrix = np.eye(99) + 0.01
scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix @ matrix), np.linalg.inv(matrix))
found = threadpoolctl.threadpool_info()
print(*{one["architecture"] for one in found if one["internal_api"] == "openblas"})
"""


def environment(core: str) -> dict[str, str]:
    """That of this process, with kernels for `core`."""
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ, "OPENBLAS_CORETYPE": core}


def obstacle(core: str, probe: str = PROBE) -> str | None:
    """Why tests with these kernels would say nothing, if so."""
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environment(core), capture_output=True, text=True
    )
    if done.returncode < 0:
        return f"this processor cannot run it ({signal.Signals(-done.returncode).name})"
    if done.returncode:
        raise SystemExit(f"{core}: no product was possible\n{done.stderr}")
    loaded = done.stdout.split()
    if [name.lower() for name in loaded] != [core.lower()]:
        return f"{' and '.join(sorted(loaded)) or 'no OpenBLAS'} would be used"
    return None


def passes(core: str, numeric: bool, jobs: int) -> bool:
    """Whether the tests pass with the kernels for `core`."""
    files = [f"tests/{name}" for name in NUMERIC]
    which = files if numeric else ["--doctest-modules", "src/activehuber", "tests"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "-m", "not slow", *which]
    return subprocess.run(command, cwd=HOUSE, env=environment(core)).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cores", nargs="*", default=CORES, metavar="CORE")
    parser.add_argument("--numeric", action="store_true", help="tests of the mathematics only")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest")
    arguments = parser.parse_args()
    failed = []
    for core in arguments.cores:
        reason = obstacle(core)
        print(f"--- {core}" + (f" is left out: {reason}" if reason else ""), flush=True)
        if reason is None and not passes(core, arguments.numeric, arguments.jobs):
            failed.append(core)
    if failed:
        sys.exit(f"tests failed with the kernels for {', '.join(failed)}")


if __name__ == "__main__":
    main()
