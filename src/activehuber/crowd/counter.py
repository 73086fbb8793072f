"""Features and some counts -> a count for every frame, and the counts not to believe.

Features are averaged over neighbouring frames, scaled block by block, and fitted by
`HLRegressor`: one Gaussian kernel of all views or one a view, a chain over consecutive frames
as the graph, agreement between the views. What to use is decided on contiguous folds of the
counted frames: neighbouring frames are near copies, so random folds would flatter. Counts that
the adaptive threshold drops take no part in the choice nor in the last fit, which binds the
others: what was replaced by a plausible number cannot be found, but it can be kept from
pulling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse

from activehuber import graphs
from activehuber._typing import Matrix, Vector
from activehuber.criterion import Labels, fold_errors, projected_inverse
from activehuber.crowd.counts import FEWEST
from activehuber.crowd.features import MOTION, Described
from activehuber.fitting import reduced_gram
from activehuber.intervals import half_width
from activehuber.judging import Mode, common_scale, held_out_errors, judge, robust_loss
from activehuber.linalg import BreakdownError
from activehuber.refinement import DEFAULT_REMOVAL
from activehuber.regressor import HLRegressor
from activehuber.tables import TableError
from activehuber.thresholds import EFFICIENT
from activehuber.tuning import labels_of
from activehuber.views import View

# What is tried: which views one kernel takes, and a kernel a view; averaging in frames; width
# over the spread of a view; ridge; the weights of chain and agreement over alpha.
JOINT = (("edges", "texture"), ("edges",), ("size", "edges", "texture"))
SMOOTHINGS = (0.0, 0.8, 1.2, 2.0, 3.5)
WIDTHS = (0.01, 0.04, 0.1)
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2)
CHAINS = (10.0, 100.0)
AGREEMENTS = (0.1, 1.0)
FOLDS = (5, 2)
# Believed counts from which on a kernel a view, and its weight, can be decided on.
FEWEST_FOR_VIEWS = 100
# Counts off by up to one person are no mistakes; fits with more and more of them trusted.
SLIP, MOST_REFITS = 1.0, 4
# Averaging looks no further than this many widths.
REACH = 4.0
# Frames in a fit at most, and counted ones in the choice.
MOST_ROWS, MOST_COUNTED = 3000, 800

Report = Callable[[str], Any]


@dataclass(frozen=True)
class Setting:
    """What is chosen.

    Attributes
    ----------
    smoothing : float
        Standard deviation in frames of the average over neighbours; 0 for none.
    joint : tuple of str
        Views that one kernel takes together; empty for one kernel a view, all of them.
    width : float
        γ of every kernel times the mean squared distance of its rows.
    ridge : float
        2 S α, S the number of counted frames.
    chain, agreement : float
        Their weights over alpha.
    weights : tuple of float
        c of the views where every view has a kernel; empty for equal ones.
    """

    smoothing: float = 1.2
    joint: tuple[str, ...] = JOINT[0]
    width: float = 0.04
    ridge: float = 3e-3
    chain: float = 0.0
    agreement: float = 0.0
    weights: tuple[float, ...] = ()

    @property
    def uses_uncounted(self) -> bool:
        """Whether frames without a count take part in the fit."""
        return self.chain > 0.0 or self.agreement > 0.0


@dataclass(frozen=True)
class Scaling:
    """Centre and scale of every feature, both of shape (d,)."""

    centre: Vector
    scale: Vector

    def __call__(self, values: Matrix) -> Matrix:
        """Scaled features, shape (n, d)."""
        return (values - self.centre) / self.scale


@dataclass(frozen=True)
class Counter:
    """A fitted counter.

    Attributes
    ----------
    model : HLRegressor
        One target, or two for left and right.
    setting : Setting
    scaling : Scaling
    names : tuple of str
        Of the targets.
    unit : ndarray of shape (q,)
        Half the width of an interval for a target over √(1 + count); with two targets a
        last entry stands for their sum.
    coverage : float
    held_out : float
        Mean absolute error of believed counts on contiguous folds, of the whole count.
    numbers : ndarray of shape (n_rows,), int
        Frames in the fit, counted or not.
    n_counted : int
        How many of them are counted.
    doubted : ndarray, int
        Frames whose given count is not believed, worst first.
    """

    model: HLRegressor
    setting: Setting
    scaling: Scaling
    names: tuple[str, ...]
    unit: Vector
    coverage: float
    held_out: float
    numbers: np.ndarray
    n_counted: int
    doubted: np.ndarray

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
        rows = self.scaling(smooth(described, self.setting.smoothing)[usable])
        found[usable] = self.model.predict(rows).reshape(-1, q)
        found = np.maximum(found, 0.0)
        columns = dict(zip(self.names, found.T, strict=True))
        if q > 1:
            columns = {"count": found.sum(axis=1), **columns}
        units = [self.unit[-1], *self.unit[:-1]] if q > 1 else list(self.unit)
        out = {}
        for (name, values), unit in zip(columns.items(), units, strict=True):
            half = unit * np.sqrt(1.0 + values)
            prefix = "" if name == "count" else f"{name}_"
            out[name] = values
            out[f"{prefix}lower"] = np.maximum(values - half, 0.0)
            out[f"{prefix}upper"] = values + half
        return out


def smooth(described: Described, width: float) -> Matrix:
    """Features averaged over neighbouring frames with Gaussian weights, shape (n, d).

    Frames that are missing or could not be read have no weight, and stay NaN themselves.
    """
    if width == 0.0:
        return described.values
    numbers, good = described.numbers, described.readable
    reach = int(np.ceil(REACH * width))
    places = [_shifted(numbers, shift) for shift in range(-reach, reach + 1)]
    rows = np.concatenate([here for here, _ in places])
    columns = np.concatenate([there for _, there in places])
    weights = np.exp(-0.5 * ((numbers[columns] - numbers[rows]) / width) ** 2) * good[columns]
    n = len(numbers)
    average = sparse.csr_array((weights, (rows, columns)), shape=(n, n))
    total = average @ np.where(good[:, None], described.values, 0.0)
    # A frame that can be read has its own weight, so nothing is divided by zero.
    share = average.sum(axis=1)[:, None]
    return np.divide(total, share, out=np.full_like(total, np.nan), where=good[:, None])


def _shifted(numbers: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions (i, j) with numbers[j] = numbers[i] + shift."""
    j = np.searchsorted(numbers, numbers + shift).clip(max=len(numbers) - 1)
    i = np.flatnonzero(numbers[j] == numbers + shift)
    return i, j[i]


def scaling_of(values: Matrix, blocks: np.ndarray) -> Scaling:
    """One scale a block: the root of its mean variance; a block that never changes stays."""
    variance = values.var(axis=0)
    mean = np.bincount(blocks, variance) / np.bincount(blocks)
    size = np.sqrt(mean)[blocks]
    # The mean of equal numbers is off by a rounding error, and so is their variance.
    rounding = 1e-12 * np.abs(values).max(axis=0)
    return Scaling(values.mean(axis=0), np.where(size > rounding, size, 1.0))


def parameters(
    setting: Setting,
    rows: Matrix,
    numbers: np.ndarray,
    columns: dict[str, slice],
    n_counted: int,
) -> dict[str, Any]:
    """The setting as parameters of `HLRegressor` for given rows, shape (n, d)."""
    alpha = setting.ridge / (2.0 * n_counted)
    graph = graphs.chain_affinity(numbers) if setting.chain > 0.0 else "knn"
    views = []
    for names in (setting.joint,) if setting.joint else [(name,) for name in columns]:
        # Motion is known only where left and right were counted, and is then always used.
        used = [c for n, c in columns.items() if n in names or (setting.joint and n == MOTION)]
        part = np.concatenate([np.arange(c.start, c.stop) for c in used])
        # Twice the sum of variances is the mean squared distance of two rows.
        spread = max(2.0 * float(rows[:, part].var(axis=0).sum()), 1e-300)
        gamma = setting.width / spread
        views.append(View(part, "rbf", gamma=gamma, graph=graph, name=" and ".join(names)))
    return {
        "views": views,
        "view_weights": np.array(setting.weights) if setting.weights else "uniform",
        "alpha": alpha,
        "manifold": setting.chain * alpha,
        "agreement": 0.0 if setting.joint else setting.agreement * alpha,
    }


# --- the choice -------------------------------------------------------------------------


def contiguous_folds(n: int, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """k parts of n counted frames in their order, as (train, test)."""
    everyone = np.arange(n)
    return [(np.setdiff1d(everyone, part), part) for part in np.array_split(everyone, k)]


class Search:
    """Settings tried on the counted frames of a sequence.

    Attributes
    ----------
    described : Described
        Of n frames, increasing by number.
    y : ndarray of shape (n,)
        Counts, NaN where uncounted.
    counted, everyone : ndarray, int
        Frames that have a count, and those that may take part in a fit.
    believed : ndarray of shape (l,), bool
        Counts that take part in the choice.
    tried : dict of Setting to ndarray of shape (2, k)
        Errors of the k believed counts on five contiguous folds, and on two halves: these ask
        a setting to carry on beyond what it has seen, as it will have to.
    """

    def __init__(self, described: Described, y: Vector) -> None:
        self.described, self.y = described, y
        self.counted = np.flatnonzero(~np.isnan(y) & described.readable)
        self.everyone = frames_to_use(described, self.counted)
        self.believed = np.ones(len(self.counted), dtype=bool)
        self.tried: dict[Setting, Matrix] = {}
        self._rows: dict[float, tuple[Matrix, Scaling]] = {}

    def rows(self, smoothing: float) -> tuple[Matrix, Scaling]:
        """Averaged and scaled features of all frames, shape (n, d)."""
        if smoothing not in self._rows:
            averaged = smooth(self.described, smoothing)
            scaling = scaling_of(averaged[self.everyone], self.described.blocks)
            self._rows = {smoothing: (scaling(averaged), scaling)}
        return self._rows[smoothing]

    def parameters(self, setting: Setting) -> tuple[dict[str, Any], np.ndarray]:
        """Parameters of the fit, and which frames take part in it."""
        rows, _ = self.rows(setting.smoothing)
        part = self.everyone if setting.uses_uncounted else self.counted
        described = self.described
        found = parameters(
            setting, rows[part], described.numbers[part], described.columns, len(self.counted)
        )
        return found, part

    def problem(self, setting: Setting) -> tuple[Matrix, Labels]:
        """Q of shape (l, l) and the labels, for any ridge."""
        params, part = self.parameters(setting)
        X = self.rows(setting.smoothing)[0][part]
        settings, data = HLRegressor(**params)._prepared(X, self.y[part])
        return reduced_gram(settings, data), labels_of(data, fit_intercept=True)

    def learnt_weights(self, setting: Setting) -> tuple[float, ...]:
        """c of the views, from the believed counts."""
        params, part = self.parameters(setting)
        y = self.y.copy()
        y[self.counted[~self.believed]] = np.nan
        model = HLRegressor(**params | {"view_weights": "learn"}, threshold=np.inf)
        model.fit(self.rows(setting.smoothing)[0][part], y[part])
        return tuple(float(c) for c in model.view_weights_)

    def disbelieve(self, setting: Setting) -> None:
        """Leave out of the choice the counts that a setting drops."""
        verdict = judge(*self.problem(setting), setting.ridge, Mode(DEFAULT_REMOVAL))
        if verdict is not None:
            self.believed = verdict.kept

    def look(self, settings: Iterable[Setting], ridges: Sequence[float]) -> None:
        """Try settings, each at several ridges."""
        kept = np.flatnonzero(self.believed)
        folds = [np.array_split(np.arange(len(kept)), k) for k in FOLDS]
        for setting in settings:
            missing = [replace(setting, ridge=ridge) for ridge in ridges]
            missing = [each for each in missing if each not in self.tried]
            if not missing:
                continue
            Q, labels = self.problem(setting)
            Q, labels = np.ascontiguousarray(Q[np.ix_(kept, kept)]), labels.take(kept)
            for each in missing:
                try:
                    P = projected_inverse(Q.copy(), each.ridge / labels.weights, True)
                    errors = np.stack([fold_errors(P, labels, parts) for parts in folds])
                except BreakdownError:
                    continue  # a ridge too small for double precision
                self.tried[each] = errors

    def ranked(self) -> list[Setting]:
        """Settings tried, best first."""
        if not self.tried:
            raise TableError("no setting could be fitted; are all frames alike?")
        ones = np.ones(np.count_nonzero(self.believed))
        several = [errors for pair in self.tried.values() for errors in pair]
        scale = common_scale(several, ones)
        return sorted(
            self.tried,
            key=lambda each: sum(robust_loss(part, ones, scale) for part in self.tried[each]),
        )


def choose(search: Search, *, uncounted: bool, report: Report) -> Setting:
    """Walk through what can be chosen, one thing after the other.

    Parameters
    ----------
    search : Search
    uncounted : bool
        Whether frames without a count may take part, in averages as in the graph.
    report : callable
        Gets a line a step.

    Returns
    -------
    Setting
    """
    smoothings = SMOOTHINGS if uncounted else (0.0,)
    search.disbelieve(Setting(smoothing=smoothings[len(smoothings) // 2]))
    grid = [Setting(s, joint, w) for s, joint, w in product(smoothings, JOINT, WIDTHS)]
    for last in (False, True):
        search.look(grid, RIDGES)
        best = search.ranked()[0]
        report(
            f"{' and '.join(best.joint)}, averaged over {best.smoothing:g} frames, width "
            f"{best.width:g}"
        )
        before = search.believed
        if not last:
            search.disbelieve(best)
        if np.array_equal(before, search.believed):
            break
        search.tried = {}
    if np.count_nonzero(search.believed) >= FEWEST_FOR_VIEWS:
        report("a kernel for every view, with equal and with learnt weights")
        views = replace(best, joint=())
        learnt = replace(views, weights=search.learnt_weights(views))
        search.look((views, learnt), RIDGES)
    if uncounted:
        best = search.ranked()[0]
        report("with uncounted frames")
        search.look((replace(best, chain=chain) for chain in CHAINS), (best.ridge,))
        best = search.ranked()[0]
        if not best.joint:
            search.look((replace(best, agreement=a) for a in AGREEMENTS), (best.ridge,))
    return search.ranked()[0]


# --- the fit ----------------------------------------------------------------------------


def fit_counter(
    described: Described,
    counts: Matrix,
    names: tuple[str, ...],
    *,
    uncounted: bool = True,
    coverage: float = 0.9,
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
    setting = choose(Search(described, thinned(total)), uncounted=uncounted, report=report)
    search = Search(described, total)
    params, part = search.parameters(setting)
    if not setting.uses_uncounted:
        # Of two targets one alone may be given: such frames count too.
        part = np.flatnonzero(described.readable & ~np.isnan(counts).all(axis=1))
    rows, scaling = search.rows(setting.smoothing)
    report(f"fitting {len(part)} frames, {len(search.counted)} of them counted")
    first = HLRegressor(**params)
    first._tries_widths = False  # counts were judged at this width when it was chosen
    _fit(first, rows[part], counts[part])
    removed = first.removed_.reshape(len(part), -1)
    believed = counts.copy()
    believed[part] = np.where(removed, np.nan, counts[part])
    # A fit without noise has no scale; there is nothing to bind then.
    bound = EFFICIENT * float(np.mean(first.scale_))
    bound = bound if bound > 0.0 else np.inf
    columns = [*believed.T, believed.sum(axis=1)] if len(names) > 1 else [*believed.T]
    labels = believed[part] if len(names) > 1 else believed[part, 0]
    intervals = [_interval(Search(described, c), setting, bound, coverage) for c in columns]
    return Counter(
        model=HLRegressor(**params, threshold=bound).fit(rows[part], labels),
        setting=setting,
        scaling=scaling,
        names=names,
        unit=np.array([unit for unit, _ in intervals]),
        coverage=coverage,
        held_out=intervals[-1][1],
        numbers=described.numbers[part],
        n_counted=len(search.counted),
        doubted=_worst_first(first, described.numbers[part]),
    )


def _interval(
    search: Search, setting: Setting, bound: float, coverage: float
) -> tuple[float, float]:
    """Half the width of an interval over √(1 + count), and the mean absolute error."""
    errors = held_out(search, setting, bound)
    expected = np.maximum(search.y[search.counted] - errors, 0.0)
    unit = half_width(errors / np.sqrt(1.0 + expected), np.ones(len(errors)), coverage)
    return unit, float(np.mean(np.abs(errors)))


def _worst_first(model: HLRegressor, numbers: np.ndarray) -> np.ndarray:
    """Frames whose count a model has dropped, worst first."""
    removed = model.removed_.reshape(len(numbers), -1).any(axis=1)
    # A frame with one of two targets given has no quality of the other.
    quality = np.nan_to_num(model.label_quality_.reshape(len(numbers), -1), nan=1.0)
    order = np.argsort(quality[removed].min(axis=1), kind="stable")
    return numbers[removed][order]


def _fit(model: HLRegressor, rows: Matrix, counts: Matrix) -> None:
    """Fit; again with counts trusted that were dropped for a slip.

    Frames next to each other are near copies, so that with few people leave-one-out doubts
    counts that are off by one or less. These are no mistakes, but how people count.
    """
    labels = counts if counts.shape[1] > 1 else counts[:, 0]
    trusted = np.zeros(labels.shape, dtype=bool)
    for _ in range(MOST_REFITS):
        model.fit(rows, labels, trusted=trusted)
        slips = model.removed_ & (np.abs(model.loo_residuals_) <= SLIP)
        if not np.any(slips):
            break
        trusted |= slips


def held_out(search: Search, setting: Setting, bound: float) -> Vector:
    """Errors of counted frames on contiguous folds, shape (l,)."""
    Q, labels = search.problem(setting)
    folds = contiguous_folds(len(labels), FOLDS[0])
    errors = held_out_errors(Q, labels, setting.ridge, Mode(None, bound), folds)
    if errors is None:
        raise TableError("the counts cannot be fitted in double precision")
    return errors


def frames_to_use(described: Described, counted: np.ndarray) -> np.ndarray:
    """Positions of readable frames for a fit: all, or those nearest to counted ones."""
    readable = np.flatnonzero(described.readable)
    if len(readable) <= MOST_ROWS:
        return readable
    numbers = described.numbers
    after = np.searchsorted(numbers[counted], numbers[readable]).clip(max=len(counted) - 1)
    before = np.maximum(after - 1, 0)
    apart = np.minimum(
        np.abs(numbers[counted][after] - numbers[readable]),
        np.abs(numbers[counted][before] - numbers[readable]),
    )
    nearest = np.argsort(apart, kind="stable")[: max(MOST_ROWS, len(counted))]
    return np.sort(readable[nearest])


def thinned(y: Vector) -> Vector:
    """Counts for the choice: evenly spread over time if they are many."""
    counted = np.flatnonzero(~np.isnan(y))
    if len(counted) <= MOST_COUNTED:
        return y
    kept = counted[np.linspace(0, len(counted) - 1, MOST_COUNTED).astype(int)]
    out = np.full_like(y, np.nan)
    out[kept] = y[kept]
    return out
