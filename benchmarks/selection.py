"""Parameters without tuning by hand: accuracy, speed and intervals beside tuned peers.

    python -m benchmarks.selection                  everything
    python -m benchmarks.selection --only accuracy  or intervals, speed, relevance

Four UCI sets, at most 500 training rows (70 % of the rows at most), the rest test rows; labels
clean, 20 % of them shuffled, 20 % shifted to one side by 3 to 8 standard deviations. Every
method gets the same standardised features and training labels and chooses its parameters on
them alone; boosting is by absolute error, and LightGBM and CatBoost are of the dependency group
`bench`. Peers' predictions are cached in `build/selection` under a hash of what they saw,
their code and versions; what is timed is never cached.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy.stats import gmean
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from activehuber import HLRegressorCV
from benchmarks.protocol import UCI, corrupted_split, removals_expected, uci
from experiments.paper.protocol import Split, two_processes

SEEDS = (0, 1, 2, 3, 4)
CONDITIONS = {
    "clean": ("shuffled", 0.0),
    "shuffled": ("shuffled", 0.2),
    "shifted": ("shifted", 0.2),
}
CACHE = Path("build/selection")

# --- peers ------------------------------------------------------------------------------


def tuned(model: BaseEstimator, grid: dict) -> GridSearchCV:
    """Cross-validated by the median absolute error: the mean one breaks on dirty labels."""
    inside = TransformedTargetRegressor(model, transformer=StandardScaler())
    return GridSearchCV(
        inside,
        {f"regressor__{name}": values for name, values in grid.items()},
        scoring="neg_median_absolute_error",
        cv=KFold(5, shuffle=True, random_state=0),
    )


def widths(d: int) -> list[float]:
    return [factor / d for factor in (0.03, 0.1, 0.3, 1.0, 3.0)]


def kernel_ridge(kernel: str, d: int) -> BaseEstimator:
    alphas = list(np.logspace(-4, 1, 10))
    return tuned(KernelRidge(kernel=kernel), {"gamma": widths(d), "alpha": alphas})


def svr(kernel: str, d: int) -> BaseEstimator:
    chosen = "rbf" if kernel == "rbf" else laplacian_kernel
    grid: dict = {"C": [1.0, 10.0, 100.0], "epsilon": [0.01, 0.1]}
    if kernel == "rbf":
        return tuned(SVR(cache_size=500), grid | {"gamma": widths(d)})
    kernels = [partial(chosen, gamma=gamma) for gamma in widths(d)]
    return tuned(SVR(cache_size=500), grid | {"kernel": kernels})


def gaussian_process(d: int) -> BaseEstimator:
    bounds = (1e-2, 1e3)
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.ones(d), bounds, nu=2.5)
    kernel = kernel + WhiteKernel(0.1, (1e-6, 1e1))
    return GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=0)


def boosting(d: int) -> BaseEstimator:
    model = HistGradientBoostingRegressor(loss="absolute_error", random_state=0)
    grid = {"learning_rate": [0.05, 0.15], "max_leaf_nodes": [8, 31], "min_samples_leaf": [5]}
    return tuned(model, grid)


def lightgbm(d: int) -> BaseEstimator:
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(objective="l1", random_state=0, n_jobs=1, verbose=-1)
    grid = {"learning_rate": [0.05, 0.15], "num_leaves": [8, 31], "min_child_samples": [5]}
    return tuned(model, grid)


def catboost(d: int) -> BaseEstimator:
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="MAE",
        random_seed=0,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )
    return tuned(model, {"learning_rate": [0.05, 0.15], "depth": [4, 6]})


def forest(d: int) -> BaseEstimator:
    model = RandomForestRegressor(n_estimators=200, random_state=0)
    return tuned(model, {"min_samples_leaf": [1, 4], "max_features": [0.4, 1.0]})


PEERS: dict[str, Callable[[int], BaseEstimator]] = {
    "KernelRidge rbf": partial(kernel_ridge, "rbf"),
    "KernelRidge laplacian": partial(kernel_ridge, "laplacian"),
    "SVR rbf": partial(svr, "rbf"),
    "SVR laplacian": partial(svr, "laplacian"),
    "GP ARD": gaussian_process,
    "boosting": boosting,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
    "forest": forest,
}


def peer_method(name: str) -> Callable:
    """method(X, y, Z) of a peer, its predictions kept under a hash of all that decides them."""

    def method(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> np.ndarray:
        sources = [inspect.getsource(f) for f in (tuned, widths, *_PEER_CODE)]
        seen = hashlib.sha256(repr((name, sources, *_VERSIONS)).encode())
        for array in (X, y, Z):
            seen.update(np.ascontiguousarray(array).tobytes())
        path = CACHE / f"{seen.hexdigest()[:32]}.npy"
        if not path.exists():
            predicted = fitted_peer(PEERS[name](X.shape[1]), X, y).predict(Z)
            CACHE.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{time.time_ns()}.tmp.npy")
            np.save(draft, predicted)
            draft.rename(path)
        return np.load(path)

    return method


def fitted_peer(model: BaseEstimator, X: np.ndarray, y: np.ndarray) -> BaseEstimator:
    with warnings.catch_warnings():
        # Peers' optimisers complain at the bounds of their ranges; results stand.
        warnings.simplefilter("ignore")
        return model.fit(X, y)


_PEER_CODE = (kernel_ridge, svr, gaussian_process, boosting, lightgbm, catboost, forest)
_VERSIONS = (np.__version__, scipy.__version__, sklearn.__version__)


# --- ours -------------------------------------------------------------------------------


def ours(relevance: bool, X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return fitted(relevance, X, y).predict(Z)


def fitted(relevance: bool, X: np.ndarray, y: np.ndarray) -> HLRegressorCV:
    with removals_expected():
        return HLRegressorCV(relevance=relevance).fit(X, y)


OURS = {"ours": partial(ours, False), "ours, relevance": partial(ours, True)}
METHODS = OURS | {name: peer_method(name) for name in PEERS}


# --- accuracy ---------------------------------------------------------------------------


def split_of(name: str, condition: str, seed: int, share: float | None = None) -> Split:
    kind, usual = CONDITIONS[condition]
    share = usual if share is None else share
    return corrupted_split(*uci(name), kind=kind, share=share, seed=seed)[0]


def errors_of(task: tuple[str, str, int]) -> dict[str, float]:
    split = split_of(*task)
    return {name: split.mean_absolute_error(method) for name, method in METHODS.items()}


def accuracy(seeds: tuple[int, ...]) -> None:
    tasks = [(n, c, s) for c in CONDITIONS for n in UCI for s in seeds]
    with two_processes() as pool:
        found = dict(zip(tasks, pool.map(errors_of, tasks), strict=True))
    print(
        f"\nMAE on test rows, mean over seeds {seeds}; the best peer of each line is starred\n"
    )
    names = list(METHODS)
    print("| labels | set | " + " | ".join(names) + " | ours / best | relevance / best |")
    print("|---" * (len(names) + 4) + "|")
    for condition in CONDITIONS:
        ratios = []
        for name in UCI:
            rows = [found[name, condition, seed] for seed in seeds]
            mean = {method: float(np.mean([row[method] for row in rows])) for method in names}
            best = min(PEERS, key=mean.__getitem__)
            shown = [f"{mean[m]:.3f}{'*' if m == best else ''}" for m in names]
            ratios.append([mean[method] / mean[best] for method in OURS])
            listed = " | ".join(f"{ratio:.3f}" for ratio in ratios[-1])
            print(f"| {condition} | {name} | " + " | ".join(shown) + f" | {listed} |")
        listed = " | ".join(f"{value:.3f}" for value in gmean(ratios, axis=0))
        print(f"| {condition} | geometric mean |" + " |" * len(names) + f" {listed} |")


# --- intervals --------------------------------------------------------------------------


def interval_of(task: tuple[str, str, int]) -> tuple[float, float, float, str]:
    """Coverage and median width of ours, and the width of split-conformal around each peer."""
    name, condition, seed = task
    split = split_of(name, condition, seed, 0.0 if condition == "clean" else 0.1)
    X, y, Z = split.X_train, split.y_train, split.X_test
    ends = fitted(True, X, y).predict_interval(Z)
    inside = split.share_inside(ends)
    half = len(y) // 2
    widths = {}
    for peer in PEERS:
        # Split-conformal: fitted to one half, its errors on the other half.
        method = peer_method(peer)
        errors = np.sort(np.abs(y[half:] - method(X[:half], y[:half], X[half:])))
        place = min(len(errors) - 1, int(np.ceil(0.9 * (len(errors) + 1))) - 1)
        widths[peer] = 2.0 * float(errors[place])
    best = min(widths, key=widths.__getitem__)
    return inside, float(np.median(ends[:, 1] - ends[:, 0])), widths[best], best


def intervals(seeds: tuple[int, ...]) -> None:
    print(
        f"\nIntervals of nominal 90 %, HLRegressorCV(relevance=True), seeds {seeds}; width: the"
    )
    print("median, beside split-conformal around the peer whose interval is narrowest")
    print("\n| labels | set | coverage, % | width | conformal | ratio |")
    print("|---|---|---|---|---|---|")
    labels = {"clean": "clean", "shuffled": "10 % shuffled", "shifted": "10 % shifted"}
    with two_processes() as pool:
        for condition, name in product(labels, UCI):
            tasks = [(name, condition, seed) for seed in seeds]
            rows = list(pool.map(interval_of, tasks))
            inside, width, other = (float(np.mean([row[i] for row in rows])) for i in range(3))
            print(
                f"| {labels[condition]} | {name} | {100 * inside:.1f} | {width:.3f} "
                f"| {other:.3f} | {width / other:.2f} |"
            )


# --- time -------------------------------------------------------------------------------


def friedman(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Friedman's first function of 5 of 10 features, noise 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return (X - 0.5) * np.sqrt(12.0), y + 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=n)


def speed(n: int = 1000, seeds: tuple[int, ...] = (0, 1, 2)) -> None:
    grid = {
        "kernel": ["laplacian", "rbf"],
        "gamma": widths(10),
        "alpha": list(np.logspace(-4, 1, 10)),
    }
    print(
        f"\nTime of the default search, n={n}, d=10 (Friedman's first function), seeds {seeds}"
    )
    print("GridSearchCV(KernelRidge): 2 kernels x 5 widths x 10 alphas, 5 folds\n")
    rows = []
    for seed in seeds:
        X, y = friedman(n + 1000, seed)
        X_train, y_train, X_test, y_test = X[:n], y[:n], X[n:], y[n:]
        started = time.perf_counter()
        centre = y_train.mean()
        search = GridSearchCV(KernelRidge(), grid, scoring="neg_mean_absolute_error", cv=5)
        search.fit(X_train, y_train - centre)
        theirs = time.perf_counter() - started
        started = time.perf_counter()
        model = fitted(False, X_train, y_train)
        own = time.perf_counter() - started
        errors = [search.predict(X_test) + centre - y_test, model.predict(X_test) - y_test]
        rows.append([theirs, own, *(np.mean(np.abs(error)) for error in errors)])
    theirs, own, other, error = np.mean(rows, axis=0)
    print("| | time, s | test MAE |")
    print("|---|---|---|")
    print(f"| GridSearchCV(KernelRidge) | {theirs:.2f} | {other:.3f} |")
    print(f"| HLRegressorCV() | {own:.2f} | {error:.3f} |")
    print(f"| ratio | 1/{theirs / own:.1f} (<= 1/5, aim 1/15) | {error / other:.3f} |")


def relevance_time(n: int = 1000) -> None:
    X, y = friedman(n + 1000, 1)
    train, test = slice(0, n), slice(n, None)
    print(f"\nRelevance learning, n={n}, d=10 (Friedman's first function), once each\n")
    print("| | time, s | test MAE |")
    print("|---|---|---|")
    for name, fit in (
        ("GP ARD (Matern 5/2)", partial(fitted_peer, gaussian_process(10))),
        ("HLRegressorCV(relevance=True)", partial(fitted, True)),
    ):
        started = time.perf_counter()
        model = fit(X[train], y[train])
        elapsed = time.perf_counter() - started
        error = np.mean(np.abs(model.predict(X[test]) - y[test]))
        print(f"| {name} | {elapsed:.1f} | {error:.3f} |")


PARTS = {
    "speed": lambda seeds: speed(),
    "relevance": lambda seeds: relevance_time(),
    "accuracy": lambda seeds: accuracy(seeds),
    "intervals": lambda seeds: intervals(seeds),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PARTS), action="append")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    arguments = parser.parse_args()
    print(f"numpy {_VERSIONS[0]}, scipy {_VERSIONS[1]}, scikit-learn {_VERSIONS[2]}")
    for part in arguments.only or PARTS:
        PARTS[part](tuple(arguments.seeds))


if __name__ == "__main__":
    main()
