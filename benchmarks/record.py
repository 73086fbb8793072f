"""Keep what a benchmark prints, with all that it takes to print it again.

    python -m benchmarks.record labels --only uci

runs `python -m benchmarks.labels --only uci`, shows what it prints, and writes it to
benchmarks/results/labels.md with the command, its protocol, date, commit, machine and versions.
Seeds are in the protocol, in the command or in what is printed. The tests hold the figures of
README and docs against these files, so a figure changes there only after a run that was kept.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from inspect import getdoc
from pathlib import Path

from experiments.paper.command import circumstances

HOUSE = Path(__file__).resolve().parent.parent
RESULTS = HOUSE / "benchmarks" / "results"
# Beside those that a run of an experiment names.
PEERS = (
    *("osqp", "cleanlab", "himalaya", "rehline", "statsmodels"),
    *("pandas", "pyarrow", "dask", "distributed"),
)


def names() -> list[str]:
    """Benchmarks that can be run as a command."""
    found = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return sorted(found - {"__init__", "protocol", "record"})


def run(command: Sequence[str]) -> tuple[str, int]:
    """What a command printed, shown on the way, and its exit code."""
    printed = []
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            printed.append(line)
    return "".join(printed), process.returncode


def page(name: str, options: Sequence[str], printed: str, seconds: float) -> str:
    """The text of the file."""
    found = circumstances(seconds, quick=False)
    found.pop("extent")
    for package in PEERS:
        try:
            found["versions"] += f", {package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    protocol = getdoc(importlib.import_module(f"benchmarks.{name}"))
    facts = "\n".join(f"- {key}: {value}" for key, value in found.items())
    command = " ".join(["python", "-m", f"benchmarks.{name}", *options])
    return f"# `{command}`\n\n{protocol}\n\n{facts}\n\n```\n{printed.strip()}\n```\n"


def main(arguments: Sequence[str], folder: Path = RESULTS) -> int:
    """Run a benchmark; keep what it printed in a folder if it went well."""
    if not arguments or arguments[0] not in names():
        print(
            f"give a benchmark and its options; there are {', '.join(names())}", file=sys.stderr
        )
        return 2
    name, *options = arguments
    started = time.perf_counter()
    printed, code = run([sys.executable, "-m", f"benchmarks.{name}", *options])
    if code == 0:
        path = folder / f"{name}.md"
        path.write_text(page(name, options, printed, time.perf_counter() - started))
        print(f"kept in {path}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
