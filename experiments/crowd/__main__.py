"""Count on cameras with known counts: every one that is at hand.

python -m experiments.crowd -o results/
python -m experiments.crowd --quick                   a part of it
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.crowd.bench import bench
from experiments.paper.command import check_matplotlib, in_one_line, run_all, say


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser("python -m experiments.crowd", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="a part of it")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    asked = parser.parse_args(arguments)
    with in_one_line():
        check_matplotlib()
        run_all({"crowd-cameras": bench}, asked.output, quick=asked.quick, say=say)
    print(f"the page is {asked.output / 'index.html'}")


if __name__ == "__main__":
    main()
