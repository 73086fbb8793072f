"""Which labels are wrong, by threshold="adaptive" and "mixture" at one kernel for all tables.

    python -m benchmarks.verdicts                      seven tables of ACTIVEHUBER_DATA
    python -m benchmarks.verdicts --seeds 7 8 --rows 400

Kernel, gamma and alpha are the same for every table and were not tuned: laplacian, gamma 0.3/d
on standardised features, ridge 2lα = 0.03. What a rule finds is thus its own; a search for
parameters is no part of this. No test rows are scored. Cells (a kind of corruption and its
share) count equally.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, f1_score
from sklearn.preprocessing import StandardScaler

from activehuber import HLRegressor
from benchmarks.protocol import removals_expected

TABLES = {
    **{name: f"uci/{name}.csv" for name in ("boston_housing", "airfoil", "yacht", "wine_red")},
    "concrete": "tables/concrete.csv",
    "energy": "tables/energy_heating.csv",
    "protein": "tables/protein_8000.csv",
}
CELLS = (
    *(("shuffled", share) for share in (0.05, 0.1, 0.2, 0.4)),
    *(("shifted", share) for share in (0.1, 0.2, 0.4)),
    *(("one-sided", share) for share in (0.1, 0.2, 0.4)),
    *(("decimal", share) for share in (0.1, 0.3)),
    ("one value", 0.33),
    *(("clusters", share) for share in (0.1, 0.2)),
)
RULES = ("adaptive", "mixture")
CLUSTER = 15  # labels of a cluster


def corrupt(
    X: np.ndarray, y: np.ndarray, kind: str, share: float, rng: np.random.Generator
) -> np.ndarray:
    """Labels with a share of them corrupted.

    shuffled: they change places; shifted: 1.5 to 3 standard deviations either way; one-sided: 1
    to 3 up; decimal: times or by ten; one value: that of some label; clusters: 2 standard
    deviations one way for rows next to each other.
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
    elif kind == "one value":
        given[chosen] = y[rng.integers(len(y))]
    else:
        sign = rng.choice([-1.0, 1.0])
        for centre in rng.permutation(len(y))[: max(1, len(chosen) // CLUSTER)]:
            near = np.argsort(np.linalg.norm(X - X[centre], axis=1), kind="stable")[:CLUSTER]
            given[near] = y[near] + 2.0 * sign * spread
    return given


def read(name: str, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features and target of so many rows of a table, drawn at random."""
    folder = os.environ.get("ACTIVEHUBER_DATA")
    if not folder:
        raise SystemExit("set ACTIVEHUBER_DATA to the folder of the data sets")
    table = np.loadtxt(Path(folder) / TABLES[name], delimiter=",", skiprows=1)
    table = table[rng.permutation(len(table))[:rows]]
    return StandardScaler().fit_transform(table[:, :-1]), table[:, -1]


def judged(X: np.ndarray, y: np.ndarray, rule: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Labels removed, P(wrong) or what stands for it, and seconds."""
    n, d = X.shape
    model = HLRegressor(kernel="laplacian", gamma=0.3 / d, alpha=0.03 / (2 * n), threshold=rule)
    started = time.perf_counter()
    with removals_expected():
        model.fit(X, y)
    return model.removed_, 1.0 - model.label_quality_, time.perf_counter() - started


class Findings:
    """What the rules found, by table and by cell."""

    def __init__(self) -> None:
        self.lost: dict[str, dict[str, list[float]]] = {rule: {} for rule in RULES}
        self.cells: dict[tuple[str, float], dict[str, list[tuple[float, float]]]] = {
            cell: {rule: [] for rule in RULES} for cell in CELLS
        }
        self.told: list[np.ndarray] = []
        self.seconds = dict.fromkeys(RULES, 0.0)

    def look(self, name: str, rows: int, seed: int) -> None:
        """One table, clean and in every cell."""
        rng = np.random.default_rng([seed, len(name)])
        X, y = read(name, rows, rng)
        for rule in RULES:
            removed, _, _ = judged(X, y, rule)
            self.lost[rule].setdefault(name, []).append(100.0 * float(np.mean(removed)))
        for cell in CELLS:
            given = corrupt(X, y, *cell, rng)
            wrong = given != y
            for rule in RULES:
                removed, doubt, seconds = judged(X, given, rule)
                found = f1_score(wrong, removed), average_precision_score(wrong, doubt)
                self.cells[cell][rule].append(found)
                self.seconds[rule] += seconds
            self.told.append(np.stack([doubt, wrong]))  # by the last rule

    def show(self) -> None:
        """The tables."""
        print("| right labels lost, % | " + " | ".join(TABLES) + " |")
        print("|---" * (len(TABLES) + 1) + "|")
        for rule in RULES:
            shares = (np.mean(values) for values in self.lost[rule].values())
            print(f"| {rule} | " + " | ".join(f"{share:.1f}" for share in shares) + " |")
        print("\n| corrupted | F1 adaptive | mixture | average precision adaptive | mixture |")
        print("|---|---|---|---|---|")
        means = {
            f"{kind} {share:.0%}": np.array([np.mean(by[rule], axis=0) for rule in RULES])
            for (kind, share), by in self.cells.items()
        }
        means["mean"] = np.mean([*means.values()], axis=0)
        for words, mean in means.items():
            print(f"| {words} | " + " | ".join(f"{v:.3f}" for v in mean.T.ravel()) + " |")
        doubt, wrong = np.concatenate(self.told, axis=1)
        middle, high = (doubt >= 0.4) & (doubt <= 0.6), doubt > 0.9
        print(f"\nP(wrong) of {RULES[-1]}: of {middle.sum()} labels in [0.4, 0.6]", end=" ")
        print(f"{np.mean(wrong[middle]):.0%} are wrong, of {high.sum()} above 0.9", end=" ")
        print(f"{np.mean(wrong[high]):.0%}; Brier score {np.mean((doubt - wrong) ** 2):.3f}.")
        print("Seconds in all:", ", ".join(f"{r} {s:.1f}" for r, s in self.seconds.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[7])
    parser.add_argument("--rows", type=int, default=300)
    args = parser.parse_args()
    print(f"\nAt most {args.rows} rows of each table, seeds {args.seeds}\n")
    findings = Findings()
    for name in TABLES:
        for seed in args.seeds:
            findings.look(name, args.rows, seed)
    findings.show()


if __name__ == "__main__":
    main()
