"""A sequence with known counts, the task to count its later frames, and methods for it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import ParameterGrid
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits

from activehuber._typing import Mask, Matrix, Vector
from activehuber.crowd.background import find_backgrounds, with_level
from activehuber.crowd.counter import Counter, fit_counter
from activehuber.crowd.features import Described, describe_frames
from activehuber.crowd.frames import Frames, open_frames
from activehuber.crowd.scene import Scene, make_scene
from activehuber.crowd.search import FOLDS, contiguous_folds
from activehuber.runtime.messages import TableError
from experiments.paper import data
from experiments.paper.outcome import Run
from experiments.paper.protocol import Scored

# What kernel ridge tries: widths over the mean squared distance of two rows, and ridges.
WIDTHS = (0.004, 0.01, 0.02, 0.04, 0.1, 0.25)
RIDGES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 0.3, 1.0)
COVERAGE = 0.9
WITH, WITHOUT = "ours, with uncounted frames", "ours, without uncounted frames"
ALONE = "ours, counted frames alone, the empty scene too"
KRR = "KRR"


# --- the sequence -----------------------------------------------------------------------


@dataclass(frozen=True)
class Filmed:
    """A sequence and what is known of it.

    Attributes
    ----------
    frames : Frames
        n of them.
    scene : Scene
    described : Described
        By an empty scene that was found from all frames.
    counts : ndarray of shape (n,)
    described_rate : float
        Frames described a second, the search for the empty scene included.
    """

    frames: Frames
    scene: Scene
    described: Described
    counts: Vector
    described_rate: float

    def described_from(self, places: np.ndarray) -> Described:
        """All frames described by the empty scene of some of them alone."""
        names = [(self.frames.numbers[i], self.frames.names[i]) for i in places]
        numbers, files = zip(*names, strict=True)
        some = replace(self.frames, numbers=numbers, names=files)
        return described_by(self.frames, some, self.scene)


def described_by(
    frames: Frames, some: Frames, scene: Scene, report: Callable[[int, int], Any] | None = None
) -> Described:
    """Frames described by the empty scene of some of them."""
    backgrounds = find_backgrounds(some, scene, lambda done, total: None)
    scene = with_level(some, scene, backgrounds)
    return describe_frames(frames, scene, backgrounds, report or (lambda done, total: None))


def mall(run: Run, n_train: int) -> Filmed:
    """The frames of Mall, described, and their counts; more than `n_train` of them."""
    known = data.mall_frames()
    frames = open_frames(known.folder)
    if frames.numbers != tuple(range(1, len(known.counts) + 1)):
        raise TableError(
            f"{known.folder} has {len(frames)} frames, {frames.numbers[0]} to "
            f"{frames.numbers[-1]}, but there are counts of frames 1 to {len(known.counts)}; "
            "both must be complete"
        )
    if len(frames) <= n_train:
        raise TableError(
            f"{known.folder} has {len(frames)} frames; the bench trains on the first {n_train} "
            "and counts the others"
        )
    scene = make_scene(
        frames.height, frames.width, roi=known.roi, perspective=known.perspective
    )

    def report(done: int, total: int) -> None:
        if done % 500 == 0 or done == total:
            run.report(f"{done} of {total} frames described")

    started = time.perf_counter()
    described = described_by(frames, frames, scene, report)
    seconds = time.perf_counter() - started
    if described.problems:
        raise TableError(f"{known.folder}: {described.problems[0]}; the bench needs all frames")
    return Filmed(frames, scene, described, known.counts, len(frames) / seconds)


# --- the task ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a method makes of a task with n frames.

    Attributes
    ----------
    count : ndarray of shape (n,)
    fit_seconds, predict_seconds : float
        The choice of parameters is part of the fit.
    ends : ndarray of shape (n, 2) or None
        Of the intervals, if there are any.
    removed : ndarray of shape (n,), bool, or None
        Frames whose count was flagged, if the method says so.
    counter : Counter or None
        If it is ours.
    """

    count: Vector
    fit_seconds: float
    predict_seconds: float
    ends: Matrix | None = None
    removed: Mask | None = None
    counter: Counter | None = None


Method = Callable[[Described, Vector], Answer]


@dataclass(frozen=True)
class Result:
    """An answer beside the truth on the m frames to count.

    Attributes
    ----------
    answer : Answer
    scored : Scored
        Predictions and truth, shape (m,) both.
    numbers : ndarray of shape (m,), int
        Of the frames.
    ends : ndarray of shape (m, 2) or None
    given : ndarray of shape (n,)
        Counts the method got, NaN where none.
    """

    answer: Answer
    scored: Scored
    numbers: np.ndarray
    ends: Matrix | None
    given: Vector

    @property
    def mre(self) -> float:
        """Mean of |error| / truth over frames that have people in them."""
        some = self.scored.truth > 0.0
        return Scored(self.scored.predicted[some], self.scored.truth[some], 0.0).mre

    @property
    def errors(self) -> tuple[float, float, float]:
        """MAE, MSE and MRE."""
        return self.scored.mae, self.scored.mse, self.mre

    @property
    def coverage(self) -> float | None:
        """Share of the truth inside the intervals."""
        if self.ends is None:
            return None
        truth = self.scored.truth
        return float(np.mean((self.ends[:, 0] <= truth) & (truth <= self.ends[:, 1])))

    @property
    def removed_share(self) -> float | None:
        """Share of the counts given that were flagged."""
        if self.answer.removed is None:
            return None
        return float(self.answer.removed.sum() / np.count_nonzero(~np.isnan(self.given)))


@dataclass(frozen=True)
class Task:
    """Frames with counts for training; what counts the others have only scores.

    Attributes
    ----------
    described : Described
        n frames.
    given : ndarray of shape (n,)
        NaN on the frames to count, and on training frames that are taken as uncounted.
    n_train : int
        The first so many frames may have counts.
    """

    described: Described
    given: Vector
    n_train: int
    _truth: Vector

    @classmethod
    def of(cls, described: Described, counts: Vector, n_train: int) -> Task:
        """A task from the counts of all frames, shape (n,)."""
        given = np.where(np.arange(len(counts)) < n_train, counts, np.nan)
        return cls(described, given, n_train, counts[n_train:].astype(float))

    def counting(self, places: np.ndarray) -> Task:
        """The same with only some training frames counted."""
        given = np.full_like(self.given, np.nan)
        given[places] = self.given[places]
        return replace(self, given=given)

    def solved(self, method: Method) -> Result:
        """Run a method, then put its counts beside the truth."""
        if not np.isnan(self.given[self.n_train :]).all():
            raise ValueError("counts of frames to count must not be given")
        answer = method(self.described, self.given.copy())
        if answer.count.shape != self.given.shape or not np.isfinite(answer.count).all():
            raise ValueError(f"{self.given.shape} finite counts wanted")
        rest = slice(self.n_train, None)
        seconds = answer.fit_seconds + answer.predict_seconds
        return Result(
            answer,
            Scored(answer.count[rest], self._truth.copy(), seconds),
            self.described.numbers[rest],
            None if answer.ends is None else answer.ends[rest],
            self.given,
        )


# --- methods ----------------------------------------------------------------------------


def ours(described: Described, given: Vector, *, uncounted: bool) -> Answer:
    """The counter; without uncounted frames it sees the counted ones alone."""
    part = np.full(len(given), True) if uncounted else ~np.isnan(given)
    started = time.perf_counter()
    counter = fit_counter(
        described.some(part),
        given[part, None],
        ("count",),
        uncounted=uncounted,
        coverage=COVERAGE,
    )
    middle = time.perf_counter()
    columns = counter.count(described)
    ended = time.perf_counter()
    return Answer(
        columns["count"],
        middle - started,
        ended - middle,
        np.column_stack([columns["lower"], columns["upper"]]),
        np.isin(described.numbers, counter.flagged),
        counter,
    )


def same_features(counter: Counter, described: Described) -> Matrix:
    """Features (n, k) as ours has chosen them: scaled, what lasts, of its views."""
    return counter.preparation(described.values)


@dataclass(frozen=True)
class Peer:
    """A model of scikit-learn and what is tried of it.

    Attributes
    ----------
    model : estimator
    grid : callable
        Takes the mean squared distance of two rows; gives lists of parameters.
    """

    model: BaseEstimator
    grid: Callable[[float], dict[str, list[Any]]]


def peer_of(peer: Peer, counter: Counter, described: Described, given: Vector) -> Answer:
    """Tune a peer on the features of ours, on its contiguous folds, by the absolute error."""
    started = time.perf_counter()
    counted = ~np.isnan(given)
    A = same_features(counter, described)[counted]
    centre = float(given[counted].mean())
    b = given[counted] - centre
    grid = list(ParameterGrid(peer.grid(2.0 * float(A.var(axis=0).sum()))))
    # Threads of boosting wait for each other at every node: small tables take them far longer.
    with warnings.catch_warnings(), threadpool_limits(1, user_api="openmp"):
        # Optimisers of peers say when they stop at a bound or at their last step; the fit
        # they return is the one that is shown.
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [clone(peer.model).set_params(**params) for params in grid]
        losses = [fold_loss(model, A, b) for model in models] if len(models) > 1 else [0.0]
        fitted = models[int(np.argmin(losses))].fit(A, b)
    middle = time.perf_counter()
    count = fitted.predict(same_features(counter, described)) + centre
    return Answer(np.maximum(count, 0.0), middle - started, time.perf_counter() - middle)


def fold_loss(model: BaseEstimator, A: Matrix, b: Vector) -> float:
    """Mean absolute error on contiguous folds, five and two, each counting half."""
    errors = np.empty((len(FOLDS), len(b)))
    for row, k in zip(errors, FOLDS, strict=True):
        for train, test in contiguous_folds(len(b), k):
            row[test] = np.abs(model.fit(A[train], b[train]).predict(A[test]) - b[test])
    return float(errors.mean())


def peers(run: Run) -> dict[str, Peer]:
    """Methods beside ours; kernel ridge tries more widths and ridges than ours."""
    found = {
        KRR: Peer(
            KernelRidge(kernel="rbf"),
            lambda spread: {"gamma": _over(WIDTHS, spread), "alpha": list(RIDGES)},
        ),
        "ridge": Peer(
            Ridge(), lambda spread: {"alpha": [r * spread for r in (0.01, 0.1, 1.0, 10.0)]}
        ),
        "K-nn": Peer(
            KNeighborsRegressor(weights="distance"),
            lambda spread: {"n_neighbors": [2, 4, 8, 16]},
        ),
    }
    if run.quick:
        return found
    kernel = ConstantKernel(10.0, (1e-3, 1e6)) * DotProduct(1.0, (1e-3, 1e6))
    kernel += ConstantKernel(100.0, (1e-3, 1e6)) * RBF(100.0, (1.0, 1e4))
    kernel += WhiteKernel(4.0, (1e-2, 1e3))
    return found | {
        "GPR": Peer(GaussianProcessRegressor(kernel), lambda spread: {}),
        "SVR": Peer(
            SVR(epsilon=0.5),
            lambda spread: {"gamma": _over(WIDTHS[::2], spread), "C": [10.0, 100.0, 1000.0]},
        ),
        "boosting": Peer(
            HistGradientBoostingRegressor(max_leaf_nodes=8, max_bins=63, random_state=0),
            lambda spread: {"learning_rate": [0.1, 0.2]},
        ),
    }


def _over(widths: Sequence[float], spread: float) -> list[float]:
    return [width / max(spread, 1e-300) for width in widths]


def both(run: Run, task: Task, words: str) -> dict[str, Result]:
    """Ours with and without uncounted frames, and kernel ridge."""
    found = {}
    for name, uncounted in ((WITH, True), (WITHOUT, False)):
        found[name] = task.solved(partial(ours, uncounted=uncounted))
        report_result(run, f"{words}: {name}", found[name])
    found[KRR] = krr(run, task, found[WITH], words)
    return found


def alone(run: Run, task: Task, filmed: Filmed, words: str) -> Result:
    """Ours where nothing but counted frames is known, of the empty scene either."""
    places = np.flatnonzero(~np.isnan(task.given))
    other = replace(task, described=filmed.described_from(places))
    result = other.solved(partial(ours, uncounted=False))
    report_result(run, f"{words}: {ALONE}", result)
    return result


def krr(run: Run, task: Task, beside: Result, words: str) -> Result:
    """Kernel ridge on the features of one of ours."""
    result = task.solved(partial(peer_of, peers(run)[KRR], counter_of(beside)))
    report_result(run, f"{words}: {KRR}", result)
    return result


def counter_of(result: Result) -> Counter:
    """The counter behind a result of ours."""
    if result.answer.counter is None:
        raise ValueError("this result is not ours")
    return result.answer.counter


def report_result(run: Run, words: str, result: Result) -> None:
    """One line on a result."""
    run.report(f"{words}: MAE {result.scored.mae:.2f} ({result.scored.seconds:.1f} s)")
