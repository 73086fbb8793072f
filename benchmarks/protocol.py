"""Splits and scoring, in one place: a method never sees the labels it is scored on.

A method is called as method(X_train, y_train, X_test) and returns predictions; NaN in y_train
marks unlabelled rows. Scoring happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Split:
    """Training rows with (possibly missing or corrupted) labels, and test rows."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    _y_test: np.ndarray

    def mean_absolute_error(self, method: Method) -> float:
        """Run a method and score it on the test rows."""
        predicted = method(self.X_train, self.y_train, self.X_test)
        return float(np.mean(np.abs(predicted - self._y_test)))


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


def summary(values: list[float]) -> str:
    """Mean and standard error over seeds."""
    array = np.asarray(values)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else float("nan")
    return f"{array.mean():.4f} ± {error:.4f}"
