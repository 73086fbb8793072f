"""The paper's experiments: paper | ours | difference.

python -m experiments.paper                           all that can run
python -m experiments.paper uci curve -o results/     some of them
python -m experiments.paper --quick                   a part of each, in minutes
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from activehuber.runtime.messages import TableError
from experiments.paper.command import EXPERIMENTS, check_matplotlib, in_one_line, reproduce, say


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser("python -m experiments.paper", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--quick", action="store_true", help="a part of each")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    asked = parser.parse_args(arguments)
    with in_one_line():
        check_matplotlib()
        started = time.perf_counter()
        missing = reproduce(asked.names, asked.output, quick=asked.quick, say=say)
        wanted = [name for name in missing if name in asked.names]
        if wanted:
            raise TableError(
                f"no data for {', '.join(wanted)}, or a package is missing; see above for which"
            )
    page = asked.output / "index.html"
    print(f"{time.perf_counter() - started:.0f} s; the page is {page}")


if __name__ == "__main__":
    main()
