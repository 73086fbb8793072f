"""Temporal features: what the features of a frame predict of the frames around it.

People in a frame are mostly still there in the next one; what flickers is not. So a frame is
described by what its features x predict of those k frames before and after it, by ridge
regression from all frames:

    E[(x₋ₖ + x₊ₖ) / 2 | x] ≈ (x − μ) (C₀ + ε I)⁻¹ Cₖ,

C₀ the covariance of the features and Cₖ that of frames k apart, made symmetric. Both come from
frames alone, counted or not. This is the multi-view regression of Kakade and Foster (2007) with
a frame and its neighbour as the two views: of two directions that explain the counts equally
well, the one that frames agree on is preferred.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from activehuber._typing import Matrix, Vector

# Directions in which frames differ most: so many are looked at.
COMPONENTS = 300
# ε, in units of the mean variance of a feature.
RIDGE = 0.3
# How far apart: where features still have this correlation, on average over them; falling.
CORRELATIONS = (0.7, 0.5, 0.3)
LONGEST_LAG = 100
# Pairs of frames below which nothing can be learnt from them.
FEWEST_PAIRS = 50


def pairs(numbers: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions (i, j) with numbers[j] = numbers[i] + lag; numbers increase."""
    j = np.searchsorted(numbers, numbers + lag).clip(max=len(numbers) - 1)
    i = np.flatnonzero(numbers[j] == numbers + lag)
    return i, j[i]


def correlation(rows: Matrix, numbers: np.ndarray, lag: int) -> float:
    """Mean correlation of features with those `lag` frames later; 0 without enough pairs."""
    i, j = pairs(numbers, lag)
    if len(i) < FEWEST_PAIRS:
        return 0.0
    centred = rows - rows.mean(axis=0)
    whole = float(np.einsum("ij,ij->", centred, centred)) / len(rows)
    if whole == 0.0:
        return 0.0
    return float(np.einsum("ij,ij->", centred[i], centred[j])) / len(i) / whole


def lags(rows: Matrix, numbers: np.ndarray) -> list[int]:
    """Distances in frames at which they are correlated about as much as `CORRELATIONS` say.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Scaled features.
    numbers : ndarray of shape (n,), int
        Of the frames, increasing.

    Returns
    -------
    list of int
        Increasing; empty if there are too few pairs of frames, or these are not
        correlated.
    """
    known = {1: correlation(rows, numbers, 1)}
    if known[1] <= 0.0:
        return []
    lag = 1
    # The correlation falls with the distance: no need to look beyond.
    while known[lag] > CORRELATIONS[-1] and lag < LONGEST_LAG:
        lag += 1
        known[lag] = correlation(rows, numbers, lag)
    return sorted({min(known, key=lambda k: abs(known[k] - c)) for c in CORRELATIONS})


@dataclass(frozen=True)
class Components:
    """Directions in which frames differ most.

    Attributes
    ----------
    directions : ndarray of shape (d, m)
        Orthonormal.
    variances : ndarray of shape (m,)
    values : ndarray of shape (n, m)
        Of the frames, centred.
    numbers : ndarray of shape (n,), int
        Of the frames, increasing.
    """

    directions: Matrix
    variances: Vector
    values: Matrix
    numbers: np.ndarray

    @classmethod
    def of(cls, rows: Matrix, numbers: np.ndarray, most: int = COMPONENTS) -> Components:
        """Principal components of n frames with scaled features, shape (n, d)."""
        n, d = rows.shape
        centred = rows - rows.mean(axis=0)
        m = min(most, d)
        covariance = centred.T @ centred / n
        variances, directions = linalg.eigh(covariance, subset_by_index=(d - m, d - 1))
        return cls(directions, np.maximum(variances, 0.0), centred @ directions, numbers)

    def predicting(self, lag: int) -> TemporalFeatures:
        """What the components predict of frames `lag` before and after."""
        frames, values = np.diag(self.variances) * len(self.values), self.values
        i, j = pairs(self.numbers, lag)
        apart = values[i].T @ values[j]
        return TemporalFeatures(
            self.directions, lag, frames, (apart + apart.T) / 2.0, len(values), len(i)
        )


@dataclass(frozen=True)
class TemporalFeatures:
    """What features predict of the frames `lag` before and after, and what taught it.

    Attributes
    ----------
    directions : ndarray of shape (d, m)
        Components that are looked at.
    lag : int
    frames, apart : ndarray of shape (m, m)
        Sums over frames, and over pairs of frames `lag` apart, of products of components.
    n_frames, n_pairs : int
    """

    directions: Matrix
    lag: int
    frames: Matrix
    apart: Matrix
    n_frames: int
    n_pairs: int

    @cached_property
    def of_features(self) -> Matrix:
        """(C₀ + ε I)⁻¹ Cₖ between components, but from features, shape (d, m)."""
        C0 = self.frames / self.n_frames + RIDGE * np.eye(len(self.frames))
        return self.directions @ linalg.solve(C0, self.apart / self.n_pairs, assume_a="pos")

    def learning(self, rows: Matrix, numbers: np.ndarray) -> TemporalFeatures:
        """The same from further frames too, if these are enough.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Their features, scaled as those before.
        numbers : ndarray of shape (n,), int
            Increasing.

        Returns
        -------
        TemporalFeatures
        """
        i, j = pairs(numbers, self.lag)
        if len(i) < FEWEST_PAIRS:
            return self
        values = rows @ self.directions
        apart = values[i].T @ values[j]
        return replace(
            self,
            frames=self.frames + values.T @ values,
            apart=self.apart + (apart + apart.T) / 2.0,
            n_frames=self.n_frames + len(values),
            n_pairs=self.n_pairs + len(i),
        )
