"""Do unlabelled rows help? Supervised and semi-supervised fits, both tuned on training rows.

    python -m benchmarks.semi_supervised [--seeds 10]

300 training rows, of which 5 % (15) are labelled; 300 rows are for testing. With so few labels
leave-one-out errors are too noisy to choose by, so both fits choose their parameters by the
Gaussian evidence of the training labels,

    −(ℓ−1)/2 log(eᵀA⁻¹e/(ℓ−1)) − ½ log|A| − ½ log 1ᵀA⁻¹1 ,     A = Q + 2ℓλI, e = y − b,

Q being the kernel as graph and agreement have bent it. The supervised fit chooses width and
alpha; the semi-supervised one also manifold, neighbours and, with two views (rbf and laplacian
on the same columns), agreement; it keeps the supervised choice where that has more evidence.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from sklearn.datasets import make_moons, make_swiss_roll

from activehuber import HLRegressor, View, graphs
from activehuber.kernels.kernel import Kernel
from activehuber.operators.dense import DenseGram
from activehuber.problem.reduction import Expansion
from activehuber.problem.smoothing import ExpandedView, build_part
from benchmarks.protocol import semi_supervised_split, summary

N_TRAIN, N_TEST, SHARE = 300, 300, 0.05
WIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
ALPHAS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
RATIOS = (1.0, 1e1, 1e2, 1e3, 1e4)  # manifold / alpha
NEIGHBOURS = (5, 10)
COUPLINGS = (1e-1, 1e1, 1e3)  # agreement / alpha


def moons(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """−1 on one moon and +1 on the other, and a cosine along each."""
    X, moon = make_moons(N_TRAIN + N_TEST, noise=0.05, random_state=seed)
    centre = np.where(moon[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    angle = np.arctan2(*(X - centre).T[::-1])
    angle = np.where(moon == 0, angle, -angle)
    return X, 2.0 * moon - 1.0 + 0.3 * np.cos(angle)


def swiss_roll(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Position along the roll, with noise in space."""
    X, position = make_swiss_roll(N_TRAIN + N_TEST, noise=0.2, random_state=seed)
    return X / X.std(axis=0), (position - position.mean()) / position.std()


def no_manifold(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of independent Gaussian columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_TRAIN + N_TEST, 4))
    return X, X[:, 0] + np.sin(X[:, 1]) + 0.1 * rng.normal(size=len(X))


def evidence(
    parts: list[ExpandedView],
    y: np.ndarray,
    alpha: float,
    manifold: float = 0.0,
    agreement: float = 0.0,
) -> float:
    """Log evidence of the labels, up to a constant, for the bent kernel Q."""
    labelled = np.flatnonzero(~np.isnan(y))
    expansion = Expansion(parts, alpha=alpha, manifold=manifold, agreement=agreement)
    weights = np.full(len(parts), 1.0 / len(parts))
    gram = expansion.reduce(labelled, weights, False).gram
    n = len(labelled)
    Q = gram.matrix if isinstance(gram, DenseGram) else gram.matvec(np.eye(n))
    lower = np.linalg.cholesky(Q + 2 * n * alpha * np.eye(n))
    ones, labels = np.linalg.solve(lower, np.stack([np.ones(n), y[labelled]], axis=1)).T
    rest = labels - (ones @ labels) / (ones @ ones) * ones
    fit = (n - 1) / 2 * np.log(rest @ rest / (n - 1))
    return float(-fit - np.log(np.diagonal(lower)).sum() - 0.5 * np.log(ones @ ones))


def supervised_choice(X: np.ndarray, y: np.ndarray) -> tuple[float, HLRegressor]:
    """The supervised fit with the most evidence."""
    base = 1.0 / (X.shape[1] * X.var())
    given = ~np.isnan(y)
    choices = []
    for width in WIDTHS:
        part = build_part(Kernel("rbf", base * width), X[given], None, needs_features=False)
        for alpha in ALPHAS:
            params = {"gamma": base * width, "alpha": alpha, "threshold": np.inf}
            choices.append((evidence([part], y[given], alpha), HLRegressor(**params)))
    return max(choices, key=lambda choice: choice[0])


def supervised(X_train, y_train, X_test):
    _, model = supervised_choice(X_train, y_train)
    return model.fit(X_train, y_train).predict(X_test)


def semi_supervised(X_train, y_train, X_test):
    X, y = X_train, y_train
    base = 1.0 / (X.shape[1] * X.var())
    best, model = supervised_choice(X, y)
    for width, k in product(WIDTHS, NEIGHBOURS):
        gamma = base * width
        M = graphs.normalised_laplacian(graphs.knn_affinity(graphs.Distances(X), k))
        part = build_part(Kernel("rbf", gamma), X, M, needs_features=True)
        for alpha, ratio in product(ALPHAS[:-1], RATIOS):
            score = evidence([part], y, alpha, manifold=alpha * ratio)
            if score > best:
                best = score
                model = HLRegressor(
                    gamma=gamma, alpha=alpha, manifold=alpha * ratio, n_neighbors=k,
                    threshold=np.inf,
                )  # fmt: skip
    if model.manifold > 0.0:
        model = with_agreement(X, y, best, model)
    return model.fit(X, y).predict(X_test)


def with_agreement(
    X: np.ndarray, y: np.ndarray, best: float, model: HLRegressor
) -> HLRegressor:
    """Two views in place of one, if they and their agreement have more evidence."""
    k, alpha, manifold = model.n_neighbors, model.alpha, model.manifold
    M = graphs.normalised_laplacian(graphs.knn_affinity(graphs.Distances(X), k))
    kernels = [Kernel("rbf", model.gamma), Kernel("laplacian", float(np.sqrt(model.gamma)))]
    parts = [build_part(kernel, X, M, needs_features=False) for kernel in kernels]
    for coupling in COUPLINGS:
        score = evidence(parts, y, alpha, manifold, alpha * coupling)
        if score > best:
            best = score
            views = [View(slice(None), c.name, gamma=c.gamma, n_neighbors=k) for c in kernels]
            model = HLRegressor(
                views=views, alpha=alpha, manifold=manifold, agreement=alpha * coupling,
                threshold=np.inf,
            )  # fmt: skip
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    print("| data | supervised MAE | semi-supervised MAE | change | wanted |")
    print("|---|---|---|---|---|")
    wanted = {"two moons": "-25 %", "Swiss roll": "-25 %", "no manifold": "at most +2 %"}
    for name, make in zip(wanted, (moons, swiss_roll, no_manifold), strict=True):
        plain, helped = [], []
        for seed in seeds:
            split = semi_supervised_split(
                *make(seed), n_test=N_TEST, share_labelled=SHARE, seed=seed
            )
            plain.append(split.mean_absolute_error(supervised))
            helped.append(split.mean_absolute_error(semi_supervised))
        change = 100 * (np.mean(helped) / np.mean(plain) - 1)
        means = f"{summary(plain)} | {summary(helped)}"
        print(f"| {name} | {means} | {change:+.1f} % | {wanted[name]} |", flush=True)
    print(f"\nseeds {seeds[0]} to {seeds[-1]}; mean ± standard error over seeds")


if __name__ == "__main__":
    main()
