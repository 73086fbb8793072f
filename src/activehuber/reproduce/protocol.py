"""Splits and scoring, in one place: a method never sees the labels it is scored on.

A method is called as method(X_train, y_train, X_test) and returns predictions; NaN in y_train
marks unlabelled rows. Scoring happens here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Scored:
    """Predictions beside the truth, once both are known.

    Attributes
    ----------
    predicted, truth : ndarray of shape (n_test,)
    seconds : float
        Of the call of the method.
    """

    predicted: np.ndarray
    truth: np.ndarray
    seconds: float

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return float(np.mean(np.abs(self.truth - self.predicted)))

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return float(np.mean((self.truth - self.predicted) ** 2))

    @property
    def mre(self) -> float:
        """Mean of |error| / truth, a fraction (not a percentage)."""
        return float(np.mean(np.abs(self.truth - self.predicted) / self.truth))

    @property
    def accuracy(self) -> float:
        """Share of predictions equal to the truth."""
        return float(np.mean(self.truth == self.predicted))


@dataclass(frozen=True)
class Split:
    """Training rows with (possibly missing or corrupted) labels, and test rows.

    Attributes
    ----------
    X_train : ndarray of shape (n_train, d)
    y_train : ndarray of shape (n_train,)
    X_test : ndarray of shape (n_test, d)
    """

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    _y_test: np.ndarray

    def scored(self, method: Method) -> Scored:
        """Run a method, then put its predictions beside the truth."""
        started = time.perf_counter()
        predicted = np.asarray(method(self.X_train, self.y_train, self.X_test))
        seconds = time.perf_counter() - started
        if predicted.shape != self._y_test.shape:
            raise ValueError(f"{self._y_test.shape} predictions wanted, got {predicted.shape}")
        return Scored(predicted, self._y_test.copy(), seconds)

    def mean_absolute_error(self, method: Method) -> float:
        """Run a method and score it on the test rows."""
        return self.scored(method).mae

    def share_inside(self, ends: np.ndarray) -> float:
        """The share of test labels inside intervals of shape (n, 2)."""
        return float(np.mean((ends[:, 0] <= self._y_test) & (self._y_test <= ends[:, 1])))
