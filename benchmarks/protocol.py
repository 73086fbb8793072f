"""Splits of the benchmarks; `Split` keeps the labels that methods are scored on from them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from experiments.paper.outcome import standard_error
from experiments.paper.protocol import Split


def semi_supervised_split(
    X: np.ndarray, y: np.ndarray, *, n_test: int, share_labelled: float, seed: int
) -> Split:
    """Random test rows; of the others a share keeps its labels."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    test, train = order[:n_test], order[n_test:]
    labels = np.full(len(train), np.nan)
    given = rng.permutation(len(train))[: round(share_labelled * len(train))]
    labels[given] = y[train][given]
    return Split(X[train], labels, X[test], y[test])


# --- corrupted labels -------------------------------------------------------------------

UCI = ("boston_housing", "airfoil", "wine_red", "yacht")
CORRUPTIONS = ("shuffled", "shifted", "mistyped")


def uci(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and target (the last column) of one of the four UCI sets."""
    folder = os.environ.get("ACTIVEHUBER_DATA")
    if not folder:
        raise SystemExit("set ACTIVEHUBER_DATA to the folder of the paper's data sets")
    table = np.loadtxt(Path(folder) / "uci" / f"{name}.csv", delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def corrupt(
    y: np.ndarray, kind: str, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels with a share of them corrupted, and the mask of those that did change.

    shuffled   the chosen labels change places among themselves
    shifted    3 to 8 standard deviations are added
    mistyped   the decimal point slips by one place either way, or the sign is lost
    """
    chosen = rng.permutation(len(y))[: round(share * len(y))]
    corrupted = y.copy()
    if kind == "shuffled":
        corrupted[chosen] = y[rng.permutation(chosen)]
    elif kind == "shifted":
        corrupted[chosen] += rng.uniform(3.0, 8.0, len(chosen)) * y.std()
    elif kind == "mistyped":
        corrupted[chosen] *= rng.choice([10.0, 0.1, -1.0], len(chosen))
    else:
        raise ValueError(f"kind must be one of {CORRUPTIONS}, got {kind!r}")
    return corrupted, corrupted != y


def corrupted_split(
    X: np.ndarray, y: np.ndarray, *, kind: str, share: float, seed: int, n_train: int = 500
) -> tuple[Split, np.ndarray]:
    """Random training rows (at most n_train and 70 %) with corrupted labels; clean test rows.

    Features are standardised by the training rows. The mask of corrupted labels is for the
    scoring of the ranking alone.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    cut = min(n_train, round(0.7 * len(y)))
    train, test = order[:cut], order[cut:]
    centre, scale = X[train].mean(axis=0), X[train].std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    labels, corrupted = corrupt(y[train], kind, share, rng)
    split = Split((X[train] - centre) / scale, labels, (X[test] - centre) / scale, y[test])
    return split, corrupted


@contextmanager
def removals_expected() -> Iterator[None]:
    """Silence what a fit says if it removed many labels: here many of them are wrong.

    Every other warning of ours goes through.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[0-9]+ of [0-9]+ labels were removed", UserWarning)
        yield


def summary(values: list[float]) -> str:
    """Mean and standard error over seeds."""
    array = np.asarray(values)
    error = standard_error(array) if len(array) > 1 else float("nan")
    return f"{array.mean():.4f} ± {error:.4f}"
