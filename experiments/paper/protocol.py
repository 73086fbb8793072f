"""Splits and scoring, in one place: a method never sees the labels it is scored on.

A method is called as method(X_train, y_train, X_test) and returns predictions; NaN in y_train
marks unlabelled rows. Scoring happens here. So does what every experiment needs around its
fits: processes to run them in, and an ear for what they warn of.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context

import numpy as np
from threadpoolctl import threadpool_limits

from activehuber.runtime.interrupts import ignore_interrupts

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


def two_processes() -> ProcessPoolExecutor:
    """A pool of two, each with one BLAS thread: with two they get in each other's way."""
    # Processes that start anew: to fork one in which BLAS has threads is not safe.
    return ProcessPoolExecutor(2, get_context("spawn"), _prepare)


def _prepare() -> None:
    ignore_interrupts()
    # Only libraries that are loaded can be limited; a fresh process has none yet.
    import_module("scipy.linalg")
    threadpool_limits(1)


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """A list that has what models warned of, without figures, when the block ends.

    Models of ours and of scikit-learn warn by `UserWarning`; anything else is not about a fit
    and goes on to whoever listens.
    """
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        # Not swallowed: a note below the table counts them.
        warnings.simplefilter("always")
        yield texts
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            texts.append(without_figures(str(warning.message)))
        else:
            warnings.warn(warning.message, stacklevel=3)


def without_figures(message: str) -> str:
    """A warning up to its first semicolon or line end, with … for figures."""
    return re.sub(r"\d[\d.]*(e[-+]?\d+)?", "…", re.split("[;\n]", message)[0])
