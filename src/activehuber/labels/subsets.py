"""Starts for few labels: fits to small subsets, concentrated on the half they predict best.

Several wrong labels that pull together mask each other in every fit to all labels, most of all
in rows far from the others. A fit to hardly more labels than it has degrees of freedom escapes
them if these happen to be right, and of many subsets some are (Rousseeuw and Leroy 1987):

    a subset  ->  its fit  ->  the half with the smallest |r|  ->  their fit  ->  …

The sum of the squares of that half falls at every step; the ends where it is smallest are where
the search for wrong labels may start.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from activehuber._typing import Mask, Matrix, Vector
from activehuber.numerics import robust

# Subsets that are drawn: of six labels, a quarter of all wrong, the chance that none is without
# a wrong one is 10⁻⁹.
SUBSETS = 100
# A fit with more degrees of freedom than this share of the labels follows any subset.
MOST_FREEDOM = 1.0 / 3.0
# Steps of every subset; those of the best ones, of which so many ends are given.
STEPS, BEST, LAST_STEPS, ENDS = 2, 10, 10, 2
# Binary digits of residuals that may decide.
DIGITS = 32


def concentrated(
    Q: Matrix, y: Vector, weights: Vector, ridge: float, *, border: bool
) -> list[Mask]:
    """Halves of the labels that small subsets lead to, the best first; none for a free fit.

    Parameters
    ----------
    Q : ndarray of shape (l, l)
    y : ndarray of shape (l,)
        Labels from their centre.
    weights : ndarray of shape (l,)
        A label of weight k is k labels.
    ridge : float
        m = 2Sλ.
    border : bool
        Whether there is an intercept.
    """
    features, freedom = _features(Q, weights, ridge, border)
    total = float(weights.sum())
    size = int(np.ceil(freedom)) + 1
    if size > MOST_FREEDOM * total:
        return []
    used = _drawn(Q, y, weights, size)
    pull = ridge * np.eye(features.shape[1])
    if border:
        pull[0, 0] = 1e-9 * total
    share = min(0.5 + 0.5 * size / total, 1.0)
    sizes = np.empty((0, len(y)))
    for steps, most in ((STEPS, BEST), (LAST_STEPS, ENDS)):
        for _ in range(steps):
            sizes = _residuals(features, y, used, weights, pull)
            limits = [robust.weighted_quantile(each, weights, share) for each in sizes]
            used = sizes <= np.array(limits)[:, None]
        losses = np.sum(np.where(used, weights * sizes**2, 0.0), axis=1)
        order = np.lexsort((*used.T, losses))
        used = used[order]
        first = np.sort(np.unique(used, axis=0, return_index=True)[1])
        used = used[first][:most]
    return list(used)


def _features(Q: Matrix, weights: Vector, ridge: float, border: bool) -> tuple[Matrix, float]:
    """Φ with Q = ΦΦᵀ up to a constant, ones first for a border, and the freedom of a fit."""
    if border:
        mean = Q @ (weights / weights.sum())
        Q = Q - mean[:, None] - mean + float(weights @ mean) / float(weights.sum())
    values, vectors = eigh(Q)
    kept = values > 1e-9 * max(float(values[-1]), ridge)
    features = vectors[:, kept] * np.sqrt(values[kept])
    scaled = features * np.sqrt(weights)[:, None]
    pulls = np.linalg.eigvalsh(scaled.T @ scaled)
    freedom = float(np.sum(pulls / (pulls + ridge)))
    if border:
        features = np.column_stack([np.ones(len(Q)), features])
    return features, freedom + float(border)


def _drawn(Q: Matrix, y: Vector, weights: Vector, size: int) -> Mask:
    """Subsets of so many labels, shape (SUBSETS, l), whatever the order of the rows."""
    near = Q @ (weights / weights.sum())
    near = np.rint(near / (np.max(np.abs(near)) or 1.0) * 2.0**DIGITS)
    _, place = np.unique(np.column_stack([np.abs(y), near]), axis=0, return_inverse=True)
    ends = np.cumsum(np.bincount(place.ravel(), weights=weights))
    draws = np.random.default_rng(0).random((SUBSETS, size)) * ends[-1]
    chosen = np.searchsorted(ends, draws, side="right")
    return np.array([np.isin(place.ravel(), each) for each in chosen])


def _residuals(
    features: Matrix, y: Vector, used: Mask, weights: Vector, pull: Matrix
) -> Matrix:
    """|r| of all labels under the fit to each subset, to some digits, shape (k, l)."""
    weighted = used * weights
    normal = np.einsum("kl,li,lj->kij", weighted, features, features, optimize=True) + pull
    right = (weighted * y) @ features
    theta = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
    sizes = np.abs(y - theta @ features.T)
    unit = 2.0**-DIGITS * float(np.max(np.abs(y)))
    return np.minimum(np.rint(sizes / unit), 2.0**60) * unit
