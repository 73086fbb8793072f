"""Features and some counts -> a count for every frame, and the counts to flag.

Features are scaled block by block, reduced to what they predict of the frames around, and
fitted by `HLRegressor`: one Gaussian kernel of two views or one a view, a chain over
consecutive frames as the graph, agreement between the views (`search` chooses). Counts
that the adaptive threshold flags take no part in the choice nor in the last fit, which binds
the others: what was replaced by a plausible number cannot be found, but it can be kept from
pulling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.crowd.counts import FEWEST
from activehuber.crowd.features import Described
from activehuber.crowd.preparation import Footage, Preparation, Setting, parameters
from activehuber.crowd.search import (
    FOLDS,
    CounterSearch,
    Report,
    choose,
    contiguous_folds,
    evenly,
)
from activehuber.estimators.prediction import half_width
from activehuber.estimators.regressor import HLRegressor
from activehuber.labels.thresholds import EFFICIENT
from activehuber.runtime.messages import TableError
from activehuber.selection.scoring import held_out_errors

# Counts off by up to one person are no mistakes; fits with more and more of them trusted.
SLIP, MOST_REFITS = 1.0, 4
# Frames in a fit at most, and counted ones in the choice.
MOST_ROWS, MOST_COUNTED = 3000, 800


@dataclass(frozen=True)
class Counter:
    """A fitted counter.

    Attributes
    ----------
    model : HLRegressor
        One target, or two for left and right.
    setting : Setting
    preparation : Preparation
    names : tuple of str
        Of the targets.
    unit : ndarray of shape (q,)
        Half the width of an interval for a target over √(1 + count); with two targets a
        last entry stands for their sum.
    coverage : float
    held_out : float
        Mean absolute error of the counts kept on contiguous folds, of the whole count.
    values : ndarray of shape (n_rows, d)
        Features of the frames in the fit, counted or not.
    labels : ndarray of shape (n_rows, q)
        Their counts that are kept, NaN where none.
    numbers : ndarray of shape (n_rows,), int
        Their numbers.
    n_counted : int
        How many of them are counted.
    flagged : ndarray, int
        Frames whose given count is flagged, worst first.
    """

    model: HLRegressor
    setting: Setting
    preparation: Preparation
    names: tuple[str, ...]
    unit: Vector
    coverage: float
    held_out: float
    values: Matrix
    labels: Matrix
    numbers: np.ndarray
    n_counted: int
    flagged: np.ndarray

    def learning(self, described: Described) -> Counter:
        """The same counter with temporal features from frames to count too.

        What was chosen stays as it is; the counted frames are fitted again.
        """
        known = described.some(described.readable)
        preparation = self.preparation.learning(known.values, known.numbers)
        if preparation is self.preparation:
            return self
        rows = preparation(self.values)
        params = parameters(
            self.setting, rows, self.numbers, preparation.columns, self.n_counted
        )
        model = HLRegressor(**params, threshold=self.model.threshold)
        model.fit(rows, self.labels if len(self.names) > 1 else self.labels[:, 0])
        return replace(self, model=model, preparation=preparation)

    def count(self, described: Described) -> dict[str, Vector]:
        """Counts of all frames as columns: count, lower, upper, and the same of each target.

        Parameters
        ----------
        described : Described
            n frames.

        Returns
        -------
        dict of str to ndarray of shape (n,)
            NaN where a frame could not be read.
        """
        n, q = len(described.values), len(self.names)
        found = np.full((n, q), np.nan)
        usable = described.readable
        rows = self.preparation(described.values[usable])
        found[usable] = self.model.predict(rows).reshape(-1, q)
        found = np.maximum(found, 0.0)
        columns = {"count": found.sum(axis=1), **dict(zip(self.names, found.T, strict=True))}
        out = {}
        # The unit of the sum is the last one, or the only one.
        for (name, values), unit in zip(columns.items(), np.roll(self.unit, 1), strict=True):
            half = unit * np.sqrt(1.0 + values)
            prefix = "" if name == "count" else f"{name}_"
            out[name] = values
            out[f"{prefix}lower"] = np.maximum(values - half, 0.0)
            out[f"{prefix}upper"] = values + half
        return out


def fit_counter(
    described: Described,
    counts: Matrix,
    names: tuple[str, ...],
    *,
    uncounted: bool = True,
    coverage: float = 0.9,
    most_rows: int = MOST_ROWS,
    report: Report = lambda line: None,
) -> Counter:
    """Choose a setting and fit it.

    Parameters
    ----------
    described : Described
        n frames.
    counts : ndarray of shape (n, q)
        NaN where a frame was not counted.
    names : tuple of str
        Of the q targets.
    uncounted : bool
        Whether uncounted frames take part.
    coverage : float
        Of the intervals.
    most_rows : int
        Frames in the fit at most; counted ones always are.
    report : callable
        Gets a line a step.

    Returns
    -------
    Counter
    """
    total = counts.sum(axis=1)
    usable = int(np.sum(~np.isnan(total) & described.readable))
    if usable < FEWEST:
        raise TableError(
            f"{usable} frames can be read and have all their counts; count {FEWEST} at least "
            "(left and right in the same frames)"
        )
    given = np.flatnonzero(described.readable & ~np.isnan(counts).all(axis=1))
    used = frames_to_use(described, given, most_rows) if uncounted else given
    footage = Footage(described, used)
    setting = choose(CounterSearch(footage, thinned(total)), uncounted=uncounted, report=report)
    search = CounterSearch(footage, total)
    params, part = search.parameters(setting)
    if not setting.uses_uncounted:
        part = given  # of two targets one alone may be given: such frames count too
    rows, preparation = footage.rows(setting)
    report(f"fitting {len(part)} frames, {len(search.counted)} of them counted")
    first, bound = _judged(params, rows[part], counts[part])
    kept = counts.copy()
    kept[part] = np.where(first.removed_.reshape(len(part), -1), np.nan, counts[part])
    columns = [*kept.T, kept.sum(axis=1)] if len(names) > 1 else [*kept.T]
    labels = kept[part] if len(names) > 1 else kept[part, 0]
    intervals = [
        _interval(CounterSearch(footage, c), setting, bound, coverage) for c in columns
    ]
    counter = Counter(
        model=HLRegressor(**params, threshold=bound).fit(rows[part], labels),
        setting=setting,
        preparation=preparation,
        names=names,
        unit=np.array([unit for unit, _ in intervals]),
        coverage=coverage,
        held_out=intervals[-1][1],
        values=described.values[part],
        labels=kept[part],
        numbers=described.numbers[part],
        n_counted=len(search.counted),
        flagged=_worst_first(first, described.numbers[part]),
    )
    if not uncounted:
        return counter
    # Frames that are too many for the fit teach temporal features too.
    others = np.setdiff1d(np.flatnonzero(described.readable), footage.everyone)
    return counter.learning(described.some(others))


def _interval(
    search: CounterSearch, setting: Setting, bound: float, coverage: float
) -> tuple[float, float]:
    """Half the width of an interval over √(1 + count), and the mean absolute error."""
    errors = held_out(search, setting, bound)
    expected = np.maximum(search.y[search.counted] - errors, 0.0)
    unit = half_width(errors / np.sqrt(1.0 + expected), np.ones(len(errors)), coverage)
    return unit, float(np.mean(np.abs(errors)))


def _worst_first(model: HLRegressor, numbers: np.ndarray) -> np.ndarray:
    """Frames whose count a model has flagged, worst first."""
    removed = model.removed_.reshape(len(numbers), -1).any(axis=1)
    # A frame with one of two targets given has no quality of the other.
    quality = np.nan_to_num(model.label_quality_.reshape(len(numbers), -1), nan=1.0)
    order = np.argsort(quality[removed].min(axis=1), kind="stable")
    return numbers[removed][order]


def _judged(params: dict[str, Any], rows: Matrix, counts: Matrix) -> tuple[HLRegressor, float]:
    """A fit that drops the flagged counts, and what binds the others in the last one.

    Counts that were flagged for a slip are trusted in another fit: frames next to each other
    are near copies, so that with few people leave-one-out flags counts that are off by one or
    less. These are no mistakes, but how people count.
    """
    model = HLRegressor(**params)
    labels = counts if counts.shape[1] > 1 else counts[:, 0]
    trusted = np.zeros(labels.shape, dtype=bool)
    for _ in range(MOST_REFITS):
        model.fit(rows, labels, trusted=trusted)
        slips = model.removed_ & (np.abs(model.loo_residuals_) <= SLIP)
        if not np.any(slips):
            break
        trusted |= slips
    # A fit without noise has no scale; there is nothing to bind then.
    bound = EFFICIENT * float(np.mean(model.scale_))
    return model, bound if bound > 0.0 else np.inf


def held_out(search: CounterSearch, setting: Setting, bound: float) -> Vector:
    """Errors of counted frames on contiguous folds, shape (l,)."""
    Q, labels = search.problem(setting)
    folds = contiguous_folds(len(labels), FOLDS[0])
    everyone = np.ones(len(labels), dtype=bool)
    errors = held_out_errors(Q, labels, setting.ridge, everyone, folds, bound)
    if errors is None:
        raise TableError("the counts cannot be fitted in double precision")
    return errors


def frames_to_use(
    described: Described, counted: np.ndarray, most: int = MOST_ROWS
) -> np.ndarray:
    """Positions of readable frames for a fit: all, or those nearest to counted ones."""
    readable = np.flatnonzero(described.readable)
    if len(readable) <= most:
        return readable
    numbers = described.numbers
    after = np.searchsorted(numbers[counted], numbers[readable]).clip(max=len(counted) - 1)
    before = np.maximum(after - 1, 0)
    near = numbers[counted][[before, after]]
    apart = np.abs(near - numbers[readable]).min(axis=0)
    nearest = np.argsort(apart, kind="stable")[: max(most, len(counted))]
    return np.sort(readable[nearest])


def thinned(y: Vector, most: int = MOST_COUNTED) -> Vector:
    """Counts for the choice: evenly spread over time if they are many."""
    counted = np.flatnonzero(~np.isnan(y))
    kept = counted[evenly(len(counted), most)]
    out = np.full_like(y, np.nan)
    out[kept] = y[kept]
    return out
