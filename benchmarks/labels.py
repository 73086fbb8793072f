"""Which labels are wrong? Sign flips, clean data, and corrupted labels of real sets.

    python -m benchmarks.labels                 everything
    python -m benchmarks.labels --only flips    one of: flips, clean, stability, uci
    python -m benchmarks.labels --only uci --without boosting     or cleanlab: both of its lines

Kernel, gamma and alpha of the kernel methods are chosen once for each training set by a
neutral search: cross-validated KernelRidge on the labels as given, scored by the median
absolute error. Test rows are scored in the last step only. Seeds are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import gmean
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import HuberRegressor
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict

from activehuber import HLRegressor
from benchmarks.protocol import CORRUPTIONS, UCI, corrupted_split, removals_expected, uci
from experiments.paper.curve import dice, turned_split

SEEDS = (0, 1, 2)
SHARES = (0.05, 0.10, 0.20)


# --- 1. the paper's sign flips ----------------------------------------------------------


def sign_flips() -> None:
    n, d, seeds = 500, 10, range(10)
    print(f"\nSign flips, as in the paper: y = βᵀx, β = 1/{d}, x uniform on [0, 1]^{d}, n={n},")
    print("seeds 0-9; linear kernel, all else default; errors on 500 fresh rows, clean y\n")
    print("| flipped | Dice | relative error | RMSE | Dice in the paper |")
    print("|---|---|---|---|---|")
    paper = {0.01: "1", 0.10: "1", 0.25: "0.89", 0.40: "-", 0.50: "0.67", 0.75: "0.39"}
    for share, reported in paper.items():
        rows = []
        for seed in seeds:
            split, flipped = turned_split(n, 100.0 * share, seed)
            model = HLRegressor(kernel="linear")
            with removals_expected():
                scored = split.scored(lambda X, y, Z, m=model: m.fit(X, y).predict(Z))
            error, truth = (scored.predicted - scored.truth)[n:], scored.truth[n:]
            size = np.linalg.norm(error) / np.linalg.norm(truth)
            rows.append((dice(model.removed_, flipped), size, np.sqrt(np.mean(error**2))))
        mean = np.mean(rows, axis=0)
        print(f"| {share:.0%} | {mean[0]:.4f} | {mean[1]:.4f} | {mean[2]:.4f} | {reported} |")
    print("\nAt 50 % both signs explain half of the labels: nothing tells them apart. At 75 %")
    print("the flipped labels are the majority and the model is −β: right labels are dropped.")


# --- 2. clean data ----------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda X: X[:, 0] + 0.5 * X[:, 1] - X[:, 2],
    "smooth": lambda X: np.sin(X[:, 0]) + 0.5 * np.tanh(X[:, 1]),
    "rough": lambda X: np.sign(X[:, 0]) + np.abs(X[:, 1]),
    "periodic": lambda X: np.sin(3.0 * X[:, 0]) + np.cos(2.0 * X[:, 1]),
    "interaction": lambda X: X[:, 0] * X[:, 1],
}


def clean_data() -> None:
    n, seeds = 400, range(10)
    print(f"\nClean data: n={n}, noise 0.2 sd of the function, seeds 0-{seeds.stop - 1}, alpha")
    print("and gamma by the neutral search; MAE of the fit on 1000 clean fresh rows\n")
    print("| function | kernel | removed, % | MAE / MAE of threshold=inf |")
    print("|---|---|---|---|")
    shares, ratios = [], []
    for name, function in FUNCTIONS.items():
        for kernel in ("laplacian", "rbf"):
            rows = []
            for seed in seeds:
                rng = np.random.default_rng(seed)
                X = rng.normal(size=(n + 1000, 3))
                f = function(X)
                y = f[:n] + 0.2 * f.std() * rng.normal(size=n)
                chosen = neutral_search(X[:n], y, (kernel,))
                model = HLRegressor(**chosen).fit(X[:n], y)
                plain = HLRegressor(**chosen, threshold=np.inf).fit(X[:n], y)
                errors = [np.mean(np.abs(m.predict(X[n:]) - f[n:])) for m in (model, plain)]
                rows.append((100.0 * model.removed_.mean(), errors[0] / errors[1]))
            share, ratio = np.mean(rows, axis=0)
            print(f"| {name} | {kernel} | {share:.2f} | {ratio:.4f} |")
            shares.append(share)
            ratios.append(ratio)
    print(f"| mean | | {np.mean(shares):.2f} (<= 1) | {np.mean(ratios):.4f} (<= 1.01) |")


# --- how much the removed set moves -----------------------------------------------------


def stability() -> None:
    print("\nRemoved set when alpha or gamma moves by 2x around the neutral choice: Dice with")
    print("the set at the choice (10 % corrupted labels, UCI sets, seed 0)\n")
    print("| set | corrupted | removed | alpha/2 | alpha*2 | gamma/2 | gamma*2 |")
    print("|---|---|---|---|---|---|---|")
    table = []
    for name in UCI:
        for kind in CORRUPTIONS:
            split, _ = corrupted_split(*uci(name), kind=kind, share=0.1, seed=0)
            chosen = neutral_search(split.X_train, split.y_train)

            def removed(chosen=chosen, split=split, **factors):
                moved = {k: v * factors.get(k, 1.0) for k, v in chosen.items() if k != "kernel"}
                model = HLRegressor(kernel=chosen["kernel"], **moved)
                with removals_expected():
                    return model.fit(split.X_train, split.y_train).removed_

            base = removed()
            moves = ({"alpha": 0.5}, {"alpha": 2.0}, {"gamma": 0.5}, {"gamma": 2.0})
            figures = [dice(removed(**move), base) for move in moves]
            table.append(figures)
            listed = " | ".join(f"{value:.3f}" for value in figures)
            print(f"| {name} | {kind} | {base.sum()} | {listed} |")
    listed = " | ".join(f"{value:.3f}" for value in np.mean(table, axis=0))
    print(f"| mean | | | {listed} |")


# --- 3. corrupted labels of real sets ------------------------------------------------------


def neutral_search(
    X: np.ndarray, y: np.ndarray, kernels: tuple[str, ...] = ("laplacian", "rbf")
) -> dict[str, object]:
    """Kernel, gamma and alpha of HLRegressor by cross-validated KernelRidge on given labels."""
    n, d = X.shape
    grid = {
        "kernel": list(kernels),
        "gamma": [factor / d for factor in (0.1, 0.3, 1.0, 3.0)],
        "alpha": [1e-3, 1e-2, 1e-1, 1.0],
    }
    centre = np.median(y)
    search = GridSearchCV(
        KernelRidge(),
        grid,
        scoring="neg_median_absolute_error",
        cv=KFold(5, shuffle=True, random_state=0),
    )
    best = search.fit(X, y - centre).best_params_
    # KernelRidge's alpha is 2nλ.
    return {
        "kernel": best["kernel"],
        "gamma": best["gamma"],
        "alpha": best["alpha"] / (2 * n),
    }


@dataclass
class Verdict:
    """What a method says of the training labels, and its predictions on test rows."""

    badness: np.ndarray
    flagged: np.ndarray
    predicted: np.ndarray


def ours(X, y, Z, chosen) -> Verdict:
    with removals_expected():
        model = HLRegressor(**chosen).fit(X, y)
    return Verdict(-model.label_quality_, model.removed_, model.predict(Z))


def ridge(chosen, n: int) -> KernelRidge:
    return KernelRidge(
        kernel=chosen["kernel"], gamma=chosen["gamma"], alpha=2 * n * chosen["alpha"]
    )


def cleanlab(model, X, y, Z) -> Verdict:
    from cleanlab.regression.learn import CleanLearning

    centre = np.median(y)
    learner = CleanLearning(model, seed=0)
    learner.fit(X, y - centre)
    issues = learner.get_label_issues()
    return Verdict(
        -issues["label_quality"].to_numpy(),
        issues["is_label_issue"].to_numpy(),
        learner.predict(Z) + centre,
    )


def cleanlab_ridge(X, y, Z, chosen) -> Verdict:
    return cleanlab(ridge(chosen, len(y)), X, y, Z)


def cleanlab_boosting(X, y, Z, chosen) -> Verdict:
    del chosen
    return cleanlab(HistGradientBoostingRegressor(random_state=0), X, y, Z)


def folds_and_madn(X, y, Z, chosen) -> Verdict:
    """10-fold residuals of KernelRidge, cut at 3 MADN; refitted on the rest."""
    model, centre = ridge(chosen, len(y)), np.median(y)
    folds = KFold(10, shuffle=True, random_state=0)
    residuals = y - centre - cross_val_predict(model, X, y - centre, cv=folds)
    size = np.abs(residuals - np.median(residuals))
    flagged = size > 3.0 * 1.4826 * np.median(size)
    fitted = model.fit(X[~flagged], y[~flagged] - centre)
    return Verdict(size, flagged, fitted.predict(Z) + centre)


def linear_huber(X, y, Z, chosen) -> Verdict:
    del chosen
    model = HuberRegressor(max_iter=2000).fit(X, y)
    return Verdict(np.abs(y - model.predict(X)), model.outliers_, model.predict(Z))


METHODS = {
    "activehuber": ours,
    "cleanlab, KernelRidge": cleanlab_ridge,
    "cleanlab, boosting": cleanlab_boosting,
    "10 folds, 3 MADN": folds_and_madn,
    "HuberRegressor": linear_huber,
}


@dataclass
class Tally:
    """Figures of one method over all training sets."""

    rows: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, verdict: Verdict, corrupted: np.ndarray, oracle: float, mae, seconds) -> None:
        hits = float((verdict.flagged & corrupted).sum())
        precision = hits / max(1.0, verdict.flagged.sum())
        recall = hits / max(1.0, corrupted.sum())
        ranking = average_precision_score(corrupted, verdict.badness)
        agreement = dice(verdict.flagged, corrupted)
        self.rows.append((ranking, precision, recall, agreement, mae / oracle, seconds))

    def line(self) -> str:
        table = np.array(self.rows)
        mean = table.mean(axis=0)
        return (
            f"{mean[0]:.3f} | {mean[1]:.3f} | {mean[2]:.3f} | {mean[3]:.3f} | "
            f"{gmean(table[:, 4]):.3f} | {1e3 * np.median(table[:, 5]):.0f} ms"
        )


def corrupted_labels(without: str | None) -> None:
    methods = {n: m for n, m in METHODS.items() if without is None or without not in n}
    print(f"\nCorrupted labels: {', '.join(UCI)}; {', '.join(CORRUPTIONS)}; seeds {SEEDS};")
    print(f"shares {SHARES}; at most 500 training rows, the rest test rows. MAE is divided by")
    print(
        "that of HLRegressor, same kernel, gamma and alpha, with an oracle of the bad labels\n"
    )
    header = "| average precision | precision | recall | F1 | MAE / oracle | time, median |"
    groups: dict[str, dict[str, Tally]] = {}
    for name in UCI:
        X, y = uci(name)
        for kind in CORRUPTIONS:
            for share in SHARES:
                for seed in SEEDS:
                    split, corrupted = corrupted_split(X, y, kind=kind, share=share, seed=seed)
                    figures = compare(split, corrupted, methods)
                    for group in ("all", name, kind, f"{share:.0%}"):
                        tallies = groups.setdefault(group, {m: Tally() for m in methods})
                        for method, row in figures.items():
                            tallies[method].add(*row)
    for group, tallies in groups.items():
        print(f"\n{group} ({len(next(iter(tallies.values())).rows)} training sets)\n")
        print(f"| method {header}\n|---|---|---|---|---|---|---|")
        for method, tally in tallies.items():
            print(f"| {method} | {tally.line()} |")
    ratios(groups["all"])


def compare(split, corrupted: np.ndarray, methods) -> dict[str, tuple]:
    """Run every method on one training set; test labels are looked at last."""
    chosen = neutral_search(split.X_train, split.y_train)
    verdicts, times = {}, {}
    for name, method in methods.items():
        start = time.perf_counter()
        verdicts[name] = method(split.X_train, split.y_train, split.X_test, chosen)
        times[name] = time.perf_counter() - start

    def with_oracle(X, y, Z):
        return (
            HLRegressor(**chosen, threshold=np.inf).fit(X[~corrupted], y[~corrupted]).predict(Z)
        )

    oracle = split.mean_absolute_error(with_oracle)
    return {
        name: (
            verdict,
            corrupted,
            oracle,
            split.mean_absolute_error(lambda *_, v=verdict: v.predicted),
            times[name],
        )
        for name, verdict in verdicts.items()
    }


def ratios(tallies: dict[str, Tally]) -> None:
    """The figures the project aims at."""
    means = {name: np.mean(tally.rows, axis=0) for name, tally in tallies.items()}
    seconds = {name: np.array(tally.rows)[:, 5] for name, tally in tallies.items()}
    peers = [name for name in means if name.startswith("cleanlab")]
    if not peers:
        return
    mine = means["activehuber"]
    best = {key: max(means[p][i] for p in peers) for i, key in ((0, "ap"), (3, "f1"))}
    print(f"\naverage precision {mine[0]:.3f}, cleanlab's best {best['ap']:.3f} (>=)")
    print(f"F1 {mine[3] / best['f1']:.2f} of cleanlab's best (>= 1.2)")
    for peer in peers:
        ratio = np.median(seconds[peer] / seconds["activehuber"])
        wanted = ">= 30, aim 100" if "boosting" in peer else ">= 10, aim 30"
        print(f"{ratio:.1f}x faster than {peer} ({wanted})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("flips", "clean", "stability", "uci"))
    parser.add_argument("--without", choices=("boosting", "cleanlab"))
    arguments = parser.parse_args()
    parts = {
        "flips": sign_flips,
        "clean": clean_data,
        "stability": stability,
        "uci": lambda: corrupted_labels(arguments.without),
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            part()


if __name__ == "__main__":
    main()
