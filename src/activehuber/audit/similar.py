"""The rows most similar to a label's own, as the kernel of the fit sees them.

the worst labels, labels in use -> a few neighbours each, most similar first
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import Encoded, Options
from activehuber.audit.verdicts import Verdicts
from activehuber.data.rows import blas_threads, one_blas_thread
from activehuber.estimators.groups import one_each
from activehuber.fitting.settings import ViewSettings

# Most similar rows that are named.
N_NEIGHBOURS = 5
# Labels, worst first, whose similar rows are looked for; the page shows 2,000. They are looked
# for among so many labels in use, drawn at random if there are more.
MOST_EXPLAINED, MOST_COMPARED = 20_000, 20_000


@dataclass(frozen=True)
class Similar:
    """For some labels the labels in use most similar to them, by the kernel of the fit.

    Attributes
    ----------
    wanted : ndarray of shape (w,), int
        Places of these labels, worst first.
    near : ndarray of shape (w, k), int
        Places of the similar ones, most similar first.
    similarity : ndarray of shape (w, k)
        K(x, z) / √(K(x, x) K(z, z)), from 0 to 1.
    """

    wanted: np.ndarray
    near: np.ndarray
    similarity: Matrix
    note: str = ""


def similar_rows(
    choice: ChosenModel, table: Encoded, judged: Verdicts, options: Options
) -> Similar:
    """For the worst labels the labels in use most similar to them, of other groups."""
    wanted = judged.order[:MOST_EXPLAINED]
    pool = np.flatnonzero(~judged.flagged)
    note = ""
    if len(pool) > MOST_COMPARED:
        rng = np.random.default_rng(options.random_state)
        pool = np.sort(rng.choice(pool, MOST_COMPARED, replace=False))
        note = (
            f"Similar rows were looked for among {MOST_COMPARED:,} labels drawn at random, "
            f"for the {len(wanted):,} worst labels."
        )
    # Without groups every label is one of its own.
    groups = np.full(len(table.rows), -1) if table.groups is None else table.groups
    number, result = one_each(groups)[judged.places], choice.regressor.result_
    most = int(np.max(np.unique(number[pool], return_counts=True)[1], initial=0))
    k = min(N_NEIGHBOURS, max(0, len(pool) - most))
    if k == 0:
        nothing = np.empty((len(wanted), 0))
        return Similar(wanted, nothing.astype(int), nothing)
    weights = result.targets[0].view_weights
    shares = list(zip(result.settings.views, weights**2, strict=True))
    rows, asked = (table.rows.take(judged.places[some]) for some in (pool, wanted))
    norms, size = _norms(shares, rows), max(1, (1 << 20) // len(pool))
    alike = np.ptp(norms) == 0.0

    def nearest(start: int) -> tuple[np.ndarray, Matrix]:
        """Places of the k most similar rows but its own, and how similar, of shape (n, k)."""
        here = slice(start, start + size)
        block = np.zeros((len(asked[here]), len(rows)))
        for view, share in shares:
            for some, part in view.kernel.blocks(view.select(asked[here]), view.select(rows)):
                block[some] += share * part
        if not alike:
            np.divide(block, norms, out=block, where=norms > 0.0)
        block[number[wanted[here], None] == number[pool]] = -np.inf
        best = _largest(block, k)
        values = np.take_along_axis(block, best, axis=1)
        own = _norms(shares, asked[here]) * (norms[0] if alike else 1.0)
        values = values / np.where(own > 0.0, own, 1.0)[:, None]
        # Ties by place, so that the same table always names the same rows.
        ranks = np.lexsort((best, -values), axis=1)
        values = np.clip(np.take_along_axis(values, ranks, axis=1), 0.0, 1.0)
        return np.take_along_axis(best, ranks, axis=1), values

    with one_blas_thread(), ThreadPoolExecutor(blas_threads()) as threads:
        found = list(threads.map(nearest, range(0, len(wanted), size)))
    near, similarity = map(np.concatenate, zip(*found, strict=True))
    return Similar(wanted, pool[near], similarity, note)


def _norms(shares: Sequence[tuple[ViewSettings, float]], X: Matrix) -> Vector:
    """√K(x, x) of Σ_α (c^α)² K^α, the kernel of Σ_α c^α f^α; shape (n,)."""
    diagonals = (share * view.kernel.diagonal(view.select(X)) for view, share in shares)
    return np.sqrt(np.maximum(sum(diagonals), 0.0))


def _largest(values: Matrix, k: int) -> np.ndarray:
    """Places of the k largest of each row, in any order.

    They are in the k groups of columns with the largest maxima, or in the last columns that
    fill no group: that leaves few to be sorted.
    """
    rows, columns = values.shape
    size = math.isqrt(columns)
    count = columns // size
    if count > k:
        groups = values[:, : count * size].reshape(rows, count, size)
        best = np.argpartition(groups.max(axis=2), -k, axis=1)[:, -k:]
        inside = (best[:, :, None] * size + np.arange(size)).reshape(rows, -1)
        rest = np.broadcast_to(np.arange(count * size, columns), (rows, columns - count * size))
        places = np.concatenate([inside, rest], axis=1)
    else:
        places = np.broadcast_to(np.arange(columns), (rows, columns))
    chosen = np.argpartition(np.take_along_axis(values, places, axis=1), -k, axis=1)[:, -k:]
    return np.take_along_axis(places, chosen, axis=1)
