"""Measures of frames and some counts -> a count for every frame, its interval, and doubts.

What one person adds to the totals is the same everywhere, and an empty scene holds nobody; how
people look at a place is learnt only where people were counted. So one `HLRegressor` without
intercept has three views:

    totals   linear: what a person adds to the sums of all maps
    places   linear: the same around some places, which may differ a little
    cells    Gaussian: a correction for frames that look alike; its weight is chosen

The weight is chosen, and the error is said, on whole stretches of the counted frames left out
together: neighbouring frames are near copies, and frames that come later are like none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.crowd.counts import FEWEST
from activehuber.crowd.features import POWERS, Described, Measures
from activehuber.crowd.scene import Scene
from activehuber.estimators.regressor import HLRegressor
from activehuber.runtime.messages import TableError
from activehuber.views import View

# Prior variance of a count by each view, over the squared usual count: what all maps say
# together, each map by itself, places; cells have one of those that are tried. Then what a
# person adds to all maps at another time, and the noise.
EACH_MAP, PLACES, LOCAL, HERE, NOISE = 0.2, 0.3, (0.01, 0.05, 0.2), 0.3, 0.03**2
# A larger weight of cells has to make the error smaller by this factor. Width of their Gaussian
# over the mean squared distance of two frames.
BETTER, WIDTH = 0.9, 0.1
# Stretches that the counted frames are cut into.
STRETCHES = 4
# Before any frame is counted, a count by foreground is thought to be off by this share, and
# that is worth so many independent stretches of frames.
PRIOR_ERROR, PRIOR_WORTH = 0.3, 3.0
# Counted frames in a fit and in the choice at most.
MOST_ROWS, MOST_CHOOSING = 2000, 800
# Foreground in a cell of this share of its mean in cells that have any is someone's.
SOME_FOREGROUND = 0.05
# Standard deviations, of a normal error, on either side of 90 %; and σ over the mean error.
NORMAL, SPREAD = 1.645, 1.25

# The column with the share of the foreground where no counted frame had any.
NEW_GROUND = "new_ground"

Report = Callable[[str], Any]


@dataclass(frozen=True)
class Scale:
    """What one unit of every column of X is, from the frames of the training.

    Attributes
    ----------
    totals, places, cells : ndarray
        Divisors of the measures' columns.
    here : bool
        Whether there is a fourth view: what a person adds in these frames and no others.
    """

    totals: Vector
    places: Vector
    cells: Vector
    here: bool = False

    @classmethod
    def of(cls, measures: Measures) -> Scale:
        """Totals are 1 on average; a place is in units of its map's total."""
        k = measures.totals.shape[1]

        def each(values: Vector, wide: Matrix) -> Vector:
            return np.repeat(np.where(values > 0.0, values, 1.0), wide.shape[1] // k)

        totals = each(measures.totals.mean(axis=0), measures.totals)
        places = each(totals, measures.places)
        places *= _size(np.mean(np.sum((measures.places / places) ** 2, axis=1)))
        variance = measures.cells.var(axis=0)
        cells = each(np.sqrt(variance.reshape(k, -1).mean(axis=1)), measures.cells)
        # Twice the sum of variances is the mean squared distance of two rows.
        cells *= _size(2.0 * np.sum(variance / cells**2))
        return cls(totals, places, cells)

    def rows(self, measures: Measures) -> Matrix:
        """X: the mean of the totals, each of them with its small weight, places and cells."""
        totals = measures.totals / self.totals
        own = np.sqrt(EACH_MAP / totals.shape[1]) * totals
        # Maps of motion are those of the left, then those of the right.
        still, motion = np.split(totals, [len(POWERS)], axis=1)
        means = [
            still.mean(axis=1, keepdims=True),
            motion.reshape(len(totals), -1, 2).mean(axis=2),
        ]
        places, cells = measures.places / self.places, measures.cells / self.cells
        return np.hstack([*means, own, places, cells, *(means if self.here else ())])

    def views(self) -> list[View]:
        """The columns of X and their kernels."""
        k = len(self.totals)
        means = 1 + (k - len(POWERS)) // 2
        kernels = {"totals": "linear", "places": "linear", "cells": "rbf", "here": "linear"}
        sizes = [means + k, len(self.places), len(self.cells), *[means] * self.here]
        ends = np.cumsum([0, *sizes]).tolist()
        return [
            View(slice(*ends[i : i + 2]), kernel, gamma=WIDTH, name=name)
            for i, (name, kernel) in enumerate(list(kernels.items())[: len(sizes)])
        ]


def _size(squared: float) -> float:
    return float(np.sqrt(squared)) if squared > 0.0 else 1.0


@dataclass(frozen=True)
class Counter:
    """A fitted counter.

    Attributes
    ----------
    scale : Scale
    names : tuple of str
        Of the targets.
    coverage : float
        Of the intervals.
    taken : ndarray of shape (cells,), bool
        Cells where some counted frame had foreground.
    model : HLRegressor
        One target, or two for left and right; fitted with stretches as groups to the counts
        that are believed.
    local : float
        The weight of cells.
    labels : ndarray of shape (n_counted, q)
        Counts that are believed, NaN where there is none.
    error, mean_error : float
        Mean absolute errors on stretches left out: of the count, and of the mean of the counts
        in the other stretches.
    independent : float
        How many independent stretches the counted frames are worth.
    flagged : ndarray, int
        Frames whose given count is doubted, worst first.
    between : Between or None
        What is known of frames between counted ones; not kept in a file.
    """

    scale: Scale
    names: tuple[str, ...]
    coverage: float
    taken: Mask
    model: HLRegressor = field(default_factory=HLRegressor)
    local: float = LOCAL[0]
    labels: Matrix = field(default_factory=lambda: np.empty((0, 1)))
    error: float = np.inf
    mean_error: float = np.inf
    independent: float = 1.0
    flagged: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    between: Between | None = None

    def count(self, described: Described, scene: Scene) -> dict[str, Vector]:
        """Counts of all frames as columns, with intervals, and the share of new ground.

        Parameters
        ----------
        described : Described
            n frames.
        scene : Scene

        Returns
        -------
        dict of str to ndarray of shape (n,)
            count, lower, upper, the same of each of two targets, and new_ground, the share of
            the foreground where no counted frame had any; NaN where a frame could not be read.
        """
        usable, q = described.readable, len(self.names)
        known = described.some(usable)
        X, new = self.scale.rows(known.measures(scene)), self.new_ground(known)
        found, half = self._counted(self.model, X, q)
        trusted = (1.0 - new) * self.independent / (self.independent + PRIOR_WORTH)
        prior = NORMAL * PRIOR_ERROR * np.maximum(found, 1.0)
        half = np.sqrt(trusted[:, None] * half**2 + (1.0 - trusted[:, None]) * prior**2)
        if self.between is not None:
            near = self.between.reaches(known.numbers)
            found[near], half[near] = self._counted(self.between.model, X[near], q)
        columns = {"count": found.sum(axis=1), **dict(zip(self.names, found.T, strict=True))}
        halves = {
            "count": np.sqrt(np.sum(half**2, axis=1)),
            **dict(zip(self.names, half.T, strict=True)),
        }
        out = {}
        for name, values in columns.items():
            prefix = "" if name == "count" else f"{name}_"
            out[name] = values
            out[f"{prefix}lower"] = np.maximum(values - halves[name], 0.0)
            out[f"{prefix}upper"] = values + halves[name]
        out[NEW_GROUND] = new
        whole = np.full((len(out), len(usable)), np.nan)
        whole[:, usable] = list(out.values())
        return dict(zip(out, whole, strict=True))

    def _counted(self, model: HLRegressor, X: Matrix, q: int) -> tuple[Matrix, Matrix]:
        """Counts and half the width of their intervals, both of shape (n, q)."""
        if not len(X):
            return np.empty((0, q)), np.empty((0, q))
        ends = model.predict_interval(X, self.coverage).reshape(len(X), 2, q)
        return np.maximum(ends.mean(axis=1), 0.0), (ends[:, 1] - ends[:, 0]) / 2.0

    def new_ground(self, described: Described) -> Vector:
        """The share of the foreground in cells where no counted frame had any, shape (n,)."""
        foreground = described.foreground
        return foreground[:, ~self.taken].sum(axis=1) / np.maximum(foreground.sum(axis=1), 1.0)

    def counting(self, described: Described, scene: Scene, counts: Matrix) -> Counter:
        """The same counter with counts (n, q) of some of other frames, NaN where none."""
        given = np.flatnonzero(described.readable & ~np.isnan(counts).all(axis=1))
        known = described.some(given)
        # In another light a person may add more to all maps, or less.
        here = replace(self, scale=replace(self.scale, here=True))
        own = CountedFrames(
            here.scale.rows(known.measures(scene)), counts[given], known.numbers
        )
        old = np.zeros((len(self.labels), own.X.shape[1]))
        old[:, : self.model.X_fit_.shape[1]] = self.model.X_fit_
        before = CountedFrames(old, self.labels, np.full(len(old), -1))
        found = _fit(here, before.and_later(own), (self.local,))
        # Leaving out one of many frames of another time would say nothing of these.
        return replace(found, taken=self.taken | _taken(known), between=None)


@dataclass(frozen=True)
class CountedFrames:
    """Frames that somebody counted.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n, q)
        Counts, NaN where there is none.
    numbers : ndarray of shape (n,), int
        Of the frames; below zero where the counts were judged before.
    stretches : ndarray of shape (n,), int or None
        None cuts the frames in their order.
    """

    X: Matrix
    y: Matrix
    numbers: np.ndarray
    stretches: np.ndarray | None = None

    @property
    def groups(self) -> np.ndarray:
        """The stretch of each frame."""
        if self.stretches is not None:
            return self.stretches
        return np.arange(len(self.y)) * STRETCHES // max(len(self.y), 1)

    def and_later(self, later: CountedFrames) -> CountedFrames:
        """These frames, then others in stretches of their own."""
        return CountedFrames(
            np.vstack([self.X, later.X]),
            np.vstack([self.y, later.y]),
            np.concatenate([self.numbers, later.numbers]),
            np.concatenate([self.groups, STRETCHES + later.groups]),
        )


@dataclass(frozen=True)
class Between:
    """How well frames between counted ones are counted.

    Attributes
    ----------
    model : HLRegressor
        Each counted frame left out alone.
    numbers : ndarray, int
        Of the counted frames.
    error : float
        Mean absolute error.
    """

    model: HLRegressor
    numbers: np.ndarray
    error: float

    def reaches(self, numbers: np.ndarray) -> Mask:
        """Frames that have a counted one about as near as counted ones are to each other."""
        usual = np.median(np.diff(self.numbers)) if len(self.numbers) > 1 else 0
        after = np.searchsorted(self.numbers, numbers)
        padded = np.concatenate([[-np.inf], self.numbers, [np.inf]])
        apart = np.minimum(numbers - padded[after], padded[after + 1] - numbers)
        return np.asarray(apart <= usual)


def fit_counter(
    described: Described,
    scene: Scene,
    counts: Matrix,
    names: tuple[str, ...],
    *,
    coverage: float = 0.9,
    report: Report = lambda line: None,
) -> Counter:
    """Choose the weight of cells and fit.

    Parameters
    ----------
    described : Described
        n frames.
    scene : Scene
    counts : ndarray of shape (n, q)
        NaN where a frame was not counted.
    names : tuple of str
        Of the q targets.
    coverage : float
        Of the intervals.
    report : callable
        Gets a line a step.

    Returns
    -------
    Counter
    """
    usable = int(np.sum(~np.isnan(counts.sum(axis=1)) & described.readable))
    if usable < FEWEST:
        raise TableError(
            f"{usable} frames can be read and have all their counts; count {FEWEST} at least "
            "(left and right in the same frames)"
        )
    given = np.flatnonzero(described.readable & ~np.isnan(counts).all(axis=1))
    given = given[evenly(len(given), MOST_ROWS)]
    known = described.some(given)
    scale = Scale.of(described.some(described.readable).measures(scene))
    frames = CountedFrames(scale.rows(known.measures(scene)), counts[given], known.numbers)
    draft = Counter(scale, names, coverage, _taken(known))
    report(f"fitting {len(given)} counted frames, {STRETCHES} stretches left out in turn")
    return _fit(draft, frames, LOCAL)


def _fit(draft: Counter, frames: CountedFrames, weights: Sequence[float]) -> Counter:
    """A counter with the scale of another, the weight of its cells chosen.

    A count is doubted if the label rule of the regressor drops it and it lies outside of its
    own interval.
    """
    y, q = frames.y, len(draft.names)
    trusted = np.repeat((frames.numbers < 0)[:, None], q, axis=1)
    for _ in range(2):
        near = _regressor(draft.scale, y, LOCAL[-1], "adaptive")
        near.fit(frames.X, _targets(y), trusted=_targets(trusted))
        removed = near.removed_.reshape(y.shape)
        ends = near.predict_interval(frames.X, draft.coverage).reshape(len(y), 2, q)
        inside = removed & (ends[:, 0] <= y) & (y <= ends[:, 1])
        if not inside.any():
            break
        trusted |= inside
    doubted = (removed & ~inside).any(axis=1)
    quality = np.nan_to_num(near.label_quality_.reshape(y.shape), nan=1.0).min(axis=1)
    worst = np.flatnonzero(doubted)[np.argsort(quality[doubted], kind="stable")]
    labels, groups = np.where(removed, np.nan, y), frames.groups
    bound = float(np.mean(near.threshold_)) or np.inf
    some, chosen = evenly(len(y), MOST_CHOOSING), weights[0]
    if len(weights) > 1:
        least = np.inf
        for local in weights:
            tried = _regressor(draft.scale, labels[some], local, bound)
            tried.fit(frames.X[some], _targets(labels[some]), groups=groups[some])
            error = float(np.nanmean(np.abs(tried.loo_residuals_)))
            if error < BETTER * least:
                least, chosen = error, local
    model = _regressor(draft.scale, labels, chosen, bound)
    model.fit(frames.X, _targets(labels), groups=groups)
    total = labels.sum(axis=1)
    whole = np.isfinite(total)
    left_out, alone = (
        np.abs(each.loo_residuals_.reshape(y.shape).sum(axis=1)) for each in (model, near)
    )
    means = {s: total[whole & (groups != s)].mean() for s in np.unique(groups[whole])}
    of_means = [means[s] - t for s, t in zip(groups[whole], total[whole], strict=True)]
    independent = _independent(total[whole])
    trust = independent / (independent + PRIOR_WORTH)
    prior = PRIOR_ERROR * float(total[whole].mean()) / SPREAD
    own = frames.numbers >= 0
    return replace(
        draft,
        model=model,
        local=chosen,
        labels=labels,
        flagged=frames.numbers[worst],
        independent=independent,
        error=float(
            np.hypot(np.sqrt(trust) * left_out[whole].mean(), np.sqrt(1 - trust) * prior)
        ),
        mean_error=float(np.mean(np.abs(of_means))),
        between=Between(near, frames.numbers[own], float(np.mean(alone[whole]))),
    )


def _regressor(scale: Scale, y: Matrix, local: float, threshold: Any) -> HLRegressor:
    """The model of counts (n, q) of some frames, not fitted yet."""
    usual = max(float(np.nanmedian(y.sum(axis=1))), 0.5)
    return HLRegressor(
        views=scale.views(),
        view_weights=usual * np.sqrt([1.0, PLACES, local, *[HERE] * scale.here]),
        alpha=NOISE * usual**2 / (2.0 * len(y)),
        fit_intercept=False,
        threshold=threshold,
    )


def _targets(y: np.ndarray) -> np.ndarray:
    return y if y.shape[1] > 1 else y[:, 0]


def _taken(described: Described) -> Mask:
    foreground = described.foreground
    usual = foreground[foreground > 0.0].mean() if (foreground > 0.0).any() else 0.0
    return np.asarray((foreground > SOME_FOREGROUND * usual).any(axis=0))


def _independent(y: Vector) -> float:
    """How many independent frames counts are worth: how often they forget what they were."""
    centred = y - y.mean()
    forgotten = float(np.mean(centred**2) / np.exp(1.0))
    for lag in range(1, len(y)):
        if np.mean(centred[:-lag] * centred[lag:]) < forgotten:
            return len(y) / lag
    return 1.0


def evenly(n: int, most: int) -> np.ndarray:
    """At most so many of n places, evenly spread."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(int)
