"""Corrupt a table in known places, audit it from the command line, and count what was found.

python examples/audit_diabetes.py --output demo
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from activehuber.cli.app import run
from activehuber.data.datasets import make_corrupted_diabetes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"))
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    corrupted = make_corrupted_diabetes()
    table, out = folder / "diabetes.csv", folder / "audit"
    corrupted.frame.to_csv(table, index=False)
    arguments = ["audit", str(table), "--target", "progression", "--id", "patient"]
    print(f"activehuber {' '.join(arguments)} -o {out}")
    code = run([*arguments, "-o", str(out), "--force"])
    if code:
        return code
    planted = set(corrupted.frame["patient"][corrupted.corrupted])
    with (out / "labels.csv").open(newline="", encoding="utf-8") as file:
        labels = list(csv.DictReader(file))
    first = {label["patient"] for label in labels[: len(planted)]}
    flagged = {label["patient"] for label in labels if label["verdict"] == "flagged"}
    print(f"\nThe truth: {len(planted)} labels had been corrupted.")
    print(f"  {len(planted & first)} of them are among the first {len(planted)} rows")
    print(f"  {len(planted & flagged)} of them are flagged")
    print(f"  {len(flagged - planted)} right labels are flagged")
    print(f"\nOpen {out / 'report.html'} in a browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
