"""Do unlabelled rows help? Supervised and semi-supervised fits, both tuned on training rows.

    python -m benchmarks.semi_supervised [--seeds 10]

5 % of 600 training rows are labelled, 300 rows are for testing. Parameters are chosen by the
closed-form leave-one-out error of the labelled training rows, which keeps the row as an
unlabelled one. The supervised fit chooses kernel width and alpha; the semi-supervised one also
manifold, neighbours and, with two views (rbf and laplacian on the same columns), agreement.
It keeps the supervised choice unless another one is better by more than one standard error of
the paired difference, so that it does no harm where there is no manifold.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from sklearn.datasets import make_moons, make_swiss_roll

from activehuber import HLRegressor, View
from benchmarks.protocol import semi_supervised_split, summary

WIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
ALPHAS = (1e-6, 1e-4, 1e-2)
MANIFOLDS = (1e-4, 1e-3, 1e-2, 1e-1)
NEIGHBOURS = (5, 10)
AGREEMENTS = (1e-2, 1.0)


def moons(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Position along each of two moons, the second one raised by 2."""
    X, moon = make_moons(900, noise=0.05, random_state=seed)
    centre = np.where(moon[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    angle = np.arctan2(*(X - centre).T[::-1])
    angle = np.where(moon == 0, angle, -angle)
    return X, np.cos(2 * angle) + 2.0 * moon


def swiss_roll(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Position along the roll, with noise in space."""
    X, position = make_swiss_roll(900, noise=0.2, random_state=seed)
    return X / X.std(axis=0), (position - position.mean()) / position.std()


def no_manifold(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of independent Gaussian columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(900, 4))
    return X, X[:, 0] + np.sin(X[:, 1]) + 0.1 * rng.normal(size=900)


def leave_one_out(model: HLRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Absolute leave-one-out errors of the labelled rows."""
    errors = np.abs(model.fit(X, y).loo_residuals_)
    return errors[~np.isnan(y)]


def supervised_choice(X: np.ndarray, y: np.ndarray) -> tuple[dict, np.ndarray]:
    base = 1.0 / (X.shape[1] * X.var())
    best, best_errors = {}, np.array([np.inf])
    for width, alpha in product(WIDTHS, ALPHAS):
        params = {"gamma": base * width, "alpha": alpha, "threshold": np.inf}
        errors = leave_one_out(HLRegressor(**params), X, y)
        if errors.mean() < best_errors.mean():
            best, best_errors = params, errors
    return best, best_errors


def supervised(X_train, y_train, X_test):
    params, _ = supervised_choice(X_train, y_train)
    return HLRegressor(**params).fit(X_train, y_train).predict(X_test)


def semi_supervised(X_train, y_train, X_test):
    params, reference = supervised_choice(X_train, y_train)
    base = 1.0 / (X_train.shape[1] * X_train.var())
    candidates = []
    for width, alpha, manifold, k in product(WIDTHS[1:4], ALPHAS[:2], MANIFOLDS, NEIGHBOURS):
        candidates.append(
            HLRegressor(
                gamma=base * width,
                alpha=alpha,
                manifold=manifold,
                n_neighbors=k,
                threshold=np.inf,
            )
        )
    scored = [(leave_one_out(model, X_train, y_train), model) for model in candidates]
    errors, model = min(scored, key=lambda pair: pair[0].mean())
    every = slice(None)
    for agreement in AGREEMENTS:
        views = [
            View(every, kernel, gamma=g, n_neighbors=model.n_neighbors)
            for kernel, g in (("rbf", model.gamma), ("laplacian", np.sqrt(model.gamma)))
        ]
        pair = HLRegressor(
            views=views, alpha=model.alpha, manifold=model.manifold, agreement=agreement,
            threshold=np.inf,
        )  # fmt: skip
        new = leave_one_out(pair, X_train, y_train)
        if new.mean() < errors.mean():
            errors, model = new, pair
    gain = reference - errors
    if gain.mean() <= gain.std(ddof=1) / np.sqrt(len(gain)):
        model = HLRegressor(**params)
    return model.fit(X_train, y_train).predict(X_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    print("| data | supervised MAE | semi-supervised MAE | change | wanted |")
    print("|---|---|---|---|---|")
    wanted = {"two moons": "-25 %", "Swiss roll": "-25 %", "no manifold": "at most +2 %"}
    for name, make in zip(wanted, (moons, swiss_roll, no_manifold), strict=True):
        plain, helped = [], []
        for seed in seeds:
            split = semi_supervised_split(
                *make(seed), n_test=300, share_labelled=0.05, seed=seed
            )
            plain.append(split.mean_absolute_error(supervised))
            helped.append(split.mean_absolute_error(semi_supervised))
        change = 100 * (np.mean(helped) / np.mean(plain) - 1)
        means = f"{summary(plain)} | {summary(helped)}"
        print(f"| {name} | {means} | {change:+.1f} % | {wanted[name]} |", flush=True)
    print(f"\nseeds 0 to {len(seeds) - 1}; mean ± standard error over seeds")


if __name__ == "__main__":
    main()
