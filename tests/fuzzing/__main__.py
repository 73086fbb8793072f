"""Draw inputs, try them and say what came of it.

python -m tests.fuzzing --tries 20000 --seed 0            # all parts in turn
python -m tests.fuzzing --tries 2000 --part tables        # one part alone
python -m tests.fuzzing --seed 0 --part tables --case 17  # one case again, verbosely

Equal seeds draw equal cases, whatever the number of jobs. The exit code is 1 if a case failed:
an error that is neither a ValueError nor a TypeError raised on purpose, a hang, a crash, NaN or
infinity out of finite input, a certificate that is not good without a warning.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported

from tests.fuzzing.parts import PARTS, part_of, try_case
from tests.fuzzing.runner import run
from tests.fuzzing.verdict import ACCEPTED, FAILED, REFUSED, Verdict

REASONS_SHOWN = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code."""
    asked = read_arguments(arguments)
    if asked.case is not None:
        return show_case(part_of(asked.case, asked.part), asked.seed, asked.case)
    started = time.monotonic()
    found: dict[str, Tally] = {name: Tally() for name in PARTS}
    numbers = range(asked.first, asked.first + asked.tries)
    trial = partial(try_case, asked.part, asked.seed)
    for number, verdict in run(trial, numbers, jobs=asked.jobs):
        name = part_of(number, asked.part)
        found[name].add(number, verdict)
        if verdict.kind == FAILED and found[name].is_first(verdict):
            print(f"FAILED {name} {number}: {verdict.why}", flush=True)
    for name, tally in found.items():
        tally.show(name, asked.seed)
    print(f"{asked.tries} tries in {time.monotonic() - started:.0f} s")
    return int(any(tally.counts[FAILED] for tally in found.values()))


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser("python -m tests.fuzzing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tries", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", type=int, help="one case alone, with all there is to say")
    return parser.parse_args(arguments)


class Tally:
    """What came of the tries of a part."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: dict[str, Counter[str]] = {ACCEPTED: Counter(), REFUSED: Counter()}
        self.failures: dict[str, list[int]] = {}

    def add(self, number: int, verdict: Verdict) -> None:
        """Count one."""
        self.counts[verdict.kind] += 1
        if verdict.kind == FAILED:
            self.failures.setdefault(verdict.why, []).append(number)
        else:
            self.reasons[verdict.kind][verdict.why] += 1

    def is_first(self, verdict: Verdict) -> bool:
        """Whether this failure was not seen before."""
        return len(self.failures[verdict.why]) == 1

    def show(self, name: str, seed: int) -> None:
        """Print all of it, failures last."""
        total = sum(self.counts.values())
        if not total:
            return
        shares = [f"{self.counts[k]} {k}" for k in (ACCEPTED, REFUSED, FAILED)]
        print(f"\n{name}: {total} tries, {', '.join(shares)}")
        for kind, reasons in self.reasons.items():
            for why, count in reasons.most_common(REASONS_SHOWN):
                if why:
                    print(f"  {count:6d} {kind} {why}")
            if len(reasons) > REASONS_SHOWN:
                print(f"         {kind} for {len(reasons) - REASONS_SHOWN} reasons more")
        for why, numbers in sorted(self.failures.items(), key=lambda pair: -len(pair[1])):
            print(f"  {len(numbers):6d} FAILED {why}")
            print(
                f"         python -m tests.fuzzing --seed {seed} --part {name} "
                f"--case {min(numbers)}"
            )


def show_case(name: str, seed: int, number: int) -> int:
    """One case, first whole and then as small as it could be made; the exit code."""
    trial = partial(try_case, name, seed)
    ((_, verdict),) = run(trial, [number], jobs=1)
    print(PARTS[name].describe(seed, number, verdict))
    print(f"{verdict.kind}: {verdict.why}\n{verdict.detail}")
    return int(verdict.kind == FAILED)


if __name__ == "__main__":
    sys.exit(main())
