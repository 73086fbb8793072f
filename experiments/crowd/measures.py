"""What is measured: errors, the learning curve, robustness against wrong counts, speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.crowd.features import Described
from experiments.crowd.tasks import (
    ALONE,
    KRR,
    WITH,
    WITHOUT,
    Filmed,
    Result,
    Task,
    alone,
    both,
    counter_of,
    krr,
    ours,
    peer_of,
    peers,
    report_result,
)
from experiments.paper.outcome import Run

# Counted frames of the learning curve, and of the quick one; those that there are.
SIZES, QUICK_SIZES = (25, 50, 100, 200, 400, 800), (25, 100, 800)
# Where the first of them lies, in steps between them: one draw each.
DRAWS = (1 / 6, 1 / 2, 5 / 6)
# Share of training counts replaced, the seeds of it, and how far off a count is far.
REPLACED, SEEDS, FAR = 0.2, (0, 1, 2, 3, 4), 5.0
# Rows of the timed prediction, and how often it is timed.
TIMED_ROWS, TIMES = 10_000, 3
# The speeds that are wanted.
LEAST_DESCRIBED, MOST_SECONDS, LEAST_PREDICTED = 60.0, 15.0, 10_000.0


def compared(run: Run, task: Task) -> dict[str, Result]:
    """All methods with all training counts."""
    words = f"{task.n_train} counted frames"
    found = both(run, task, words)
    for name, peer in peers(run).items():
        if name not in found:
            found[name] = task.solved(partial(peer_of, peer, counter_of(found[WITH])))
            report_result(run, f"{words}: {name}", found[name])
    return found


# Results of the methods by number of counted frames, one a draw.
Curve = dict[int, list[dict[str, Result]]]


def learning_curve(run: Run, task: Task, main: dict[str, Result], filmed: Filmed) -> Curve:
    """Results by number of counted frames, spread evenly over the training frames."""
    found: Curve = {}
    firsts = DRAWS[1:2] if run.quick else DRAWS
    for size in QUICK_SIZES if run.quick else SIZES:
        if size < task.n_train:
            words, found[size] = f"{size} counted frames", []
            for places in drawn_places(task.n_train, size, firsts):
                some = task.counting(places)
                last = {ALONE: alone(run, some, filmed, words)}
                found[size].append(both(run, some, words) | last)
    known = {name: main[name] for name in (WITH, WITHOUT, KRR)}
    last = {ALONE: alone(run, task, filmed, f"{task.n_train} counted frames")}
    return found | {task.n_train: [known | last]}


def drawn_places(n: int, size: int, firsts: Sequence[float]) -> list[np.ndarray]:
    """`size` of n places, spread evenly, once for each first one; none twice."""
    draws = [((np.arange(size) + first) * n / size).astype(int) for first in firsts]
    return list({tuple(draw): draw for draw in draws}.values())


def mean(values: Iterable[float]) -> float:
    """Of numbers that come one by one."""
    return float(np.mean(list(values)))


def mean_mae(draws: list[dict[str, Result]], name: str) -> float:
    """The mean absolute error of a method, on average over draws."""
    return mean(draw[name].scored.mae for draw in draws)


def replaced_counts(given: Vector, seed: int) -> Vector:
    """Counts (n,), a share of them replaced by random ones between smallest and largest."""
    rng = np.random.default_rng(seed)
    counted = np.flatnonzero(~np.isnan(given))
    chosen = rng.choice(counted, round(REPLACED * len(counted)), replace=False)
    low, high = int(given[counted].min()), int(given[counted].max())
    out = given.copy()
    out[chosen] = rng.integers(low, high + 1, len(chosen))
    return out


def seeds(run: Run) -> tuple[int, ...]:
    """Of the replaced counts."""
    return SEEDS[:1] if run.quick else SEEDS


@dataclass(frozen=True)
class Disturbed:
    """A method with some training counts replaced.

    Attributes
    ----------
    result, clean : Result
        With replaced counts, and without.
    """

    result: Result
    clean: Result

    @property
    def growth(self) -> float:
        """Of the mean absolute error over the clean one, in percent."""
        return 100.0 * (self.result.scored.mae / self.clean.scored.mae - 1.0)

    @property
    def precision(self) -> float | None:
        """Share of the removed counts that had been replaced by another."""
        removed = self.result.answer.removed
        return None if removed is None else _share(self._off > 0.0, removed)

    def recall(self, beyond: float = 0.0) -> float | None:
        """Share removed of the counts that are off by more than `beyond`."""
        removed = self.result.answer.removed
        return None if removed is None else _share(removed, self._off > beyond)

    @property
    def _off(self) -> Vector:
        """How far counts were moved, shape (n,); NaN, which is above nothing, where none."""
        return np.abs(self.result.given - self.clean.given)


def _share(part: Mask, whole: Mask) -> float | None:
    """Of the whole; None of nothing."""
    return float(part[whole].mean()) if whole.any() else None


def robustness(
    run: Run, task: Task, main: dict[str, Result]
) -> dict[str, dict[int, Disturbed]]:
    """Ours and kernel ridge with a share of the training counts replaced, by seed."""
    found: dict[str, dict[int, Disturbed]] = {WITH: {}, KRR: {}}
    for seed in seeds(run):
        other = replace(task, given=replaced_counts(task.given, seed))
        words = f"{100 * REPLACED:.0f} % of the counts replaced, seed {seed}"
        result = other.solved(partial(ours, uncounted=True))
        report_result(run, f"{words}: {WITH}", result)
        found[WITH][seed] = Disturbed(result, main[WITH])
        found[KRR][seed] = Disturbed(krr(run, other, result, words), main[KRR])
    return found


@dataclass(frozen=True)
class Speed:
    """One speed and what it should be.

    Attributes
    ----------
    what : str
    measured : float
    wanted : float or None
        None if it is only reported.
    at_least : bool
        Whether more is better.
    """

    what: str
    measured: float
    wanted: float | None = None
    at_least: bool = True

    @property
    def reached(self) -> bool:
        """Whether it is as wanted."""
        if self.wanted is None:
            return True
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted


def speeds(described: Described, described_rate: float, result: Result) -> list[Speed]:
    """Of features, fit and prediction."""
    counter = counter_of(result)
    rows = np.arange(TIMED_ROWS) % len(described.values)
    many = replace(
        described, numbers=np.arange(1, TIMED_ROWS + 1), values=described.values[rows]
    )
    ready = counter.preparation(many.values)
    whole = TIMED_ROWS / best_seconds(lambda: counter.count(many))
    model = TIMED_ROWS / best_seconds(lambda: counter.model.predict(ready))
    fit = result.answer.fit_seconds
    return [
        Speed("features, frames a second", described_rate, LEAST_DESCRIBED),
        Speed("fit with choice of parameters, seconds", fit, MOST_SECONDS, at_least=False),
        Speed("prediction from features, frames a second", whole, LEAST_PREDICTED),
        Speed("the same from prepared features", model),
    ]


def best_seconds(work: Callable[[], object]) -> float:
    """The shortest of a few times."""
    seconds = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
