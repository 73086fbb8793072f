"""Features and some counts -> a count for every frame, and the counts not to believe.

Features are scaled block by block, reduced to what lasts of them from frame to frame, and
fitted by `HLRegressor`: one Gaussian kernel of two views or one a view, a chain over
consecutive frames as the graph, agreement between the views. What to use is decided on
contiguous folds of the counted frames: neighbouring frames are near copies, so random folds
would flatter. Few folds tell settings apart only roughly, so where frames are uncounted the one
is taken that counts these as all settings together do. Counts that the adaptive threshold drops
take no part in the choice nor in the last fit, which binds the others: what was replaced by a
plausible number cannot be found, but it can be kept from pulling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from activehuber import graphs
from activehuber._typing import Matrix, Vector
from activehuber.crowd.counts import FEWEST
from activehuber.crowd.features import MOTION, Described
from activehuber.crowd.lasting import Components, Lasting, lags
from activehuber.data.tables import TableError
from activehuber.estimators.intervals import half_width
from activehuber.estimators.parameters import prepared
from activehuber.estimators.regressor import HLRegressor
from activehuber.fitting.fit import reduced_gram
from activehuber.labels.refinement import DEFAULT_REMOVAL
from activehuber.labels.thresholds import EFFICIENT
from activehuber.numerics.linalg import BreakdownError
from activehuber.selection.criterion import ObservedLabels, fold_errors, projected_inverse
from activehuber.selection.scoring import (
    Mode,
    common_scale,
    held_out_errors,
    judge,
    robust_losses,
)
from activehuber.selection.tuning import labels_of
from activehuber.views import View

# The views that one kernel takes together. Which ones to take is not chosen: folds tell too
# little for that, and size adds to these two only with a kernel of its own.
JOINT = ("edges", "texture")
# What is tried: width over the spread of a view; ridge; the weights of chain and agreement over
# alpha.
WIDTHS = (0.01, 0.04, 0.1)
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2)
CHAINS = (10.0, 100.0)
AGREEMENTS = (0.1, 1.0)
FOLDS = (5, 2)
# Believed counts from which on a kernel a view, and its weight, can be decided on.
FEWEST_FOR_VIEWS = 100
# Counts off by up to one person are no mistakes; fits with more and more of them trusted.
SLIP, MOST_REFITS = 1.0, 4
# Frames in a fit at most, counted ones in the choice, uncounted ones that settings foretell.
MOST_ROWS, MOST_COUNTED, MOST_FORETOLD = 3000, 800, 400
# A setting whose loss is higher by so much has a voice smaller by e. What is clearly better is
# better by so many standard errors.
DOUBT, CLEAR = 0.2, 2.0

Report = Callable[[str], Any]


@dataclass(frozen=True)
class Setting:
    """What is chosen.

    Attributes
    ----------
    lag : int
        Features are what lasts of them over so many frames; 0 for features as they are.
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

    lag: int = 0
    joint: tuple[str, ...] = JOINT
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


@dataclass(frozen=True, eq=False)
class CounterPart:
    """Features that one kernel sees.

    Attributes
    ----------
    name : str
    columns : ndarray of shape (k,), int
        Of all features.
    lasting : Lasting or None
        What is made of them; None leaves them as they are.
    """

    name: str
    columns: np.ndarray
    lasting: Lasting | None

    def learning(self, rows: Matrix, numbers: np.ndarray) -> CounterPart:
        """The same with what lasts learnt from further frames too, with features (n, k)."""
        if self.lasting is None:
            return self
        lasting = self.lasting.learning(rows, numbers)
        return self if lasting is self.lasting else replace(self, lasting=lasting)

    @property
    def width(self) -> int:
        """How many features there are in the end."""
        return len(self.columns) if self.lasting is None else len(self.lasting.frames)


@dataclass(frozen=True, eq=False)
class Preparation:
    """From features as they were described to rows of the fit."""

    scaling: Scaling
    parts: tuple[CounterPart, ...]

    def __call__(self, values: Matrix) -> Matrix:
        """Rows of the fit (n, k) from features (n, d)."""
        scaled = self.scaling(values)
        found = [
            scaled[:, part.columns]
            if part.lasting is None
            else scaled[:, part.columns] @ part.lasting.of_features
            for part in self.parts
        ]
        return found[0] if len(found) == 1 else np.hstack(found)

    def learning(self, values: Matrix, numbers: np.ndarray) -> Preparation:
        """The same with what lasts learnt from further frames too, with features (n, d)."""
        scaled = self.scaling(values)
        parts = [part.learning(scaled[:, part.columns], numbers) for part in self.parts]
        same = all(new is old for new, old in zip(parts, self.parts, strict=True))
        return self if same else replace(self, parts=tuple(parts))

    @property
    def columns(self) -> dict[str, slice]:
        """Where the rows have each part."""
        ends = np.cumsum([0, *(part.width for part in self.parts)]).tolist()
        return {
            part.name: slice(a, b)
            for part, a, b in zip(self.parts, ends[:-1], ends[1:], strict=True)
        }


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
        Mean absolute error of believed counts on contiguous folds, of the whole count.
    values : ndarray of shape (n_rows, d)
        Features of the frames in the fit, counted or not.
    labels : ndarray of shape (n_rows, q)
        Their believed counts, NaN where none.
    numbers : ndarray of shape (n_rows,), int
        Their numbers.
    n_counted : int
        How many of them are counted.
    doubted : ndarray, int
        Frames whose given count is not believed, worst first.
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
    doubted: np.ndarray

    def learning(self, described: Described) -> Counter:
        """The same counter with what lasts learnt from frames to count too.

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
    for name, part in columns.items():
        # Twice the sum of variances is the mean squared distance of two rows.
        spread = max(2.0 * float(rows[:, part].var(axis=0).sum()), 1e-60)
        gamma, places = setting.width / spread, np.arange(part.start, part.stop)
        views.append(View(places, "rbf", gamma=gamma, graph=graph, name=name))
    return {
        "views": views,
        "view_weights": np.array(setting.weights) if setting.weights else "uniform",
        "alpha": alpha,
        "manifold": setting.chain * alpha,
        "agreement": 0.0 if setting.joint else setting.agreement * alpha,
    }


class Footage:
    """Frames that may take part in a fit, and their features prepared in any way.

    Attributes
    ----------
    described : Described
        Of n frames, increasing by number.
    everyone : ndarray, int
        Frames that may take part.
    scaling : Scaling
        By these frames.
    """

    def __init__(self, described: Described, everyone: np.ndarray) -> None:
        self.described, self.everyone = described, everyone
        self.scaling = scaling_of(described.values[everyone], described.blocks)
        self._components: dict[str, Components] = {}
        self._last: tuple[Any, tuple[Matrix, Preparation]] | None = None

    @property
    def _scaled(self) -> Matrix:
        return self.scaling(self.described.values[self.everyone])

    @cached_property
    def lags(self) -> tuple[int, ...]:
        """Over how many frames to ask what lasts; empty where that cannot be learnt."""
        return tuple(lags(self._scaled, self.described.numbers[self.everyone]))

    def rows(self, setting: Setting) -> tuple[Matrix, Preparation]:
        """Rows of all frames for a setting, shape (n, k), and how they are made."""
        key = setting.lag, setting.joint
        if self._last is None or self._last[0] != key:
            preparation = self.preparation(setting)
            self._last = key, (preparation(self.described.values), preparation)
        return self._last[1]

    def preparation(self, setting: Setting) -> Preparation:
        """How features are prepared for a setting."""
        known = self.described.columns
        together = (setting.joint,) if setting.joint else [(name,) for name in known]
        parts = []
        for names in together:
            # Motion is known only where left and right were counted, and is then always used.
            used = [
                c for n, c in known.items() if n in names or (setting.joint and n == MOTION)
            ]
            columns = np.concatenate([np.arange(c.start, c.stop) for c in used])
            name = " and ".join(names)
            lasting = None
            if setting.lag > 0:
                lasting = self._components_of(name, columns).lasting(setting.lag)
            parts.append(CounterPart(name, columns, lasting))
        return Preparation(self.scaling, tuple(parts))

    def _components_of(self, name: str, columns: np.ndarray) -> Components:
        if name not in self._components:
            numbers = self.described.numbers[self.everyone]
            self._components[name] = Components.of(self._scaled[:, columns], numbers)
        return self._components[name]


# --- the choice -------------------------------------------------------------------------


def contiguous_folds(n: int, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """k parts of n counted frames in their order, as (train, test)."""
    everyone = np.arange(n)
    return [(np.setdiff1d(everyone, part), part) for part in np.array_split(everyone, k)]


@dataclass(frozen=True)
class Tried:
    """What came of a setting.

    Attributes
    ----------
    errors : ndarray of shape (2, k)
        Of the k believed counts on five contiguous folds, and on two halves: these ask a
        setting to carry on beyond what it has seen, as it will have to.
    foretold : ndarray of shape (u,)
        Counts of some uncounted frames.
    """

    errors: Matrix
    foretold: Vector


class CounterSearch:
    """Settings tried on the counted frames of a sequence.

    Attributes
    ----------
    footage : Footage
        Of n frames.
    y : ndarray of shape (n,)
        Counts, NaN where uncounted.
    counted, uncounted : ndarray, int
        Frames that have a count, and some of those that have none but may take part.
    believed : ndarray of shape (l,), bool
        Counts that take part in the choice.
    tried : dict of Setting to Tried
    """

    def __init__(self, footage: Footage, y: Vector) -> None:
        self.footage, self.y = footage, y
        self.counted = np.flatnonzero(~np.isnan(y) & footage.described.readable)
        others = np.setdiff1d(footage.everyone, self.counted)
        self.uncounted = others[evenly(len(others), MOST_FORETOLD)]
        self.believed = np.ones(len(self.counted), dtype=bool)
        self.tried: dict[Setting, Tried] = {}

    def parameters(self, setting: Setting) -> tuple[dict[str, Any], np.ndarray]:
        """Parameters of the fit, and which frames take part in it."""
        rows, preparation = self.footage.rows(setting)
        part = self.footage.everyone if setting.uses_uncounted else self.counted
        numbers = self.footage.described.numbers[part]
        found = parameters(setting, rows[part], numbers, preparation.columns, len(self.counted))
        return found, part

    def problem(
        self, setting: Setting, also: Sequence[int] | np.ndarray = ()
    ) -> tuple[Matrix, ObservedLabels]:
        """Q between the counted frames, followed by others, and the labels of all these.

        Parameters
        ----------
        setting : Setting
            With any ridge.
        also : sequence of int
            u uncounted frames; their labels are zero.

        Returns
        -------
        Q : ndarray of shape (l + u, l + u)
        labels : ObservedLabels
        """
        also = np.asarray(also, dtype=int)
        params, part = self.parameters(setting)
        part = np.union1d(part, also)
        y = self.y[part].copy()
        y[np.isin(part, also)] = 0.0
        X = self.footage.rows(setting)[0][part]
        settings, data = prepared(HLRegressor(**params), X, y)
        labelled = part[~np.isnan(y)]
        order = np.searchsorted(labelled, np.concatenate([self.counted, also]))
        Q = reduced_gram(settings, data)
        labels, scale = labels_of(data, fit_intercept=True)
        return Q[np.ix_(order, order)], replace(labels, y=scale * labels.y).take(order)

    def learnt_weights(self, setting: Setting) -> tuple[float, ...]:
        """c of the views, from the believed counts."""
        params, part = self.parameters(setting)
        y = self.y.copy()
        y[self.counted[~self.believed]] = np.nan
        model = HLRegressor(**params | {"view_weights": "learn"}, threshold=np.inf)
        model.fit(self.footage.rows(setting)[0][part], y[part])
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
            whole, labels = self.problem(setting, self.uncounted)
            Q, labels = np.ascontiguousarray(whole[np.ix_(kept, kept)]), labels.take(kept)
            across = whole[len(self.counted) :, kept]
            for each in missing:
                try:
                    P = projected_inverse(Q.copy(), each.ridge / labels.weights, True)
                    errors = np.stack([fold_errors(P, labels, parts) for parts in folds])
                except BreakdownError:
                    continue  # a ridge too small for double precision
                self.tried[each] = Tried(errors, foretold(Q, across, P, labels, each.ridge))

    def losses(self) -> dict[Setting, Vector]:
        """Of settings tried, of every believed count on both kinds of folds together."""
        if not self.tried:
            raise TableError("no setting could be fitted; are all frames alike?")
        several = [errors for each in self.tried.values() for errors in each.errors]
        scale = common_scale(several, np.ones(np.count_nonzero(self.believed)))
        return {
            setting: robust_losses(each.errors, scale).sum(axis=0)
            for setting, each in self.tried.items()
        }

    def agreed(self) -> Setting:
        """The setting that counts uncounted frames as all settings together do.

        The better a setting is on the folds, the more it has to say. Without uncounted frames
        it is the one with the smallest loss.
        """
        losses = {each: float(loss.mean()) for each, loss in self.losses().items()}
        least = min(losses.values())
        voices = [np.exp((least - loss) / DOUBT) for loss in losses.values()]
        several = [self.tried[each].foretold for each in losses]
        together = np.average(several, axis=0, weights=voices)

        def apart(each: Setting) -> tuple[float, float]:
            return float(np.sum((self.tried[each].foretold - together) ** 2)), losses[each]

        return min(losses, key=apart)

    def clearly_better(self, than: Setting) -> Setting:
        """The setting with the smallest loss if it is clearly smaller, else `than`.

        The standard error is that of the difference, from contiguous parts of the counts.
        """
        losses = self.losses()
        other = min(losses, key=lambda each: float(losses[each].mean()))
        gains = losses[than] - losses[other]
        parts = [part.mean() for part in np.array_split(gains, FOLDS[0])]
        error = np.std(parts, ddof=1) / np.sqrt(len(parts))
        return other if gains.mean() > CLEAR * error else than


def foretold(
    Q: Matrix, across: Matrix, P: Matrix, labels: ObservedLabels, ridge: float
) -> Vector:
    """Counts of other frames by least squares, shape (u,).

    Parameters
    ----------
    Q : ndarray of shape (l, l)
        Between labels, without the ridge.
    across : ndarray of shape (u, l)
        Between other frames and labels.
    P : ndarray of shape (l, l)
        The projected inverse of Q with the ridge.
    labels : ObservedLabels
    ridge : float

    Returns
    -------
    ndarray of shape (u,)
    """
    coefficients = P @ labels.y
    intercept = np.mean(labels.y - Q @ coefficients - ridge / labels.weights * coefficients)
    return across @ coefficients + intercept


def choose(search: CounterSearch, *, uncounted: bool, report: Report) -> Setting:
    """Walk through what can be chosen, one thing after the other.

    Parameters
    ----------
    search : CounterSearch
    uncounted : bool
        Whether frames without a count may take part, in what lasts as in the graph.
    report : callable
        Gets a line a step.

    Returns
    -------
    Setting
    """
    lags = (0, *search.footage.lags) if uncounted else (0,)
    search.disbelieve(Setting(lag=lags[len(lags) // 2]))
    grid = [Setting(lag, width=width) for lag, width in product(lags, WIDTHS)]
    for last in (False, True):
        search.look(grid, RIDGES)
        best = search.agreed()
        report(f"{features_in_words(best)}, width {best.width:g}")
        before = search.believed
        if not last:
            search.disbelieve(best)
        if np.array_equal(before, search.believed):
            break
        search.tried = {}
    # More than one kernel without a graph has to be clearly better than that: folds are few.
    search.tried = {best: search.tried[best]}
    if np.count_nonzero(search.believed) >= FEWEST_FOR_VIEWS:
        report("a kernel for every view, with equal and with learnt weights")
        views = replace(best, joint=())
        learnt = replace(views, weights=search.learnt_weights(views))
        search.look((views, learnt), RIDGES)
        best = search.clearly_better(best)
    if uncounted:
        report("with uncounted frames")
        search.look((replace(best, chain=chain) for chain in CHAINS), (best.ridge,))
        best = search.clearly_better(best)
        if not best.joint:
            search.look((replace(best, agreement=a) for a in AGREEMENTS), (best.ridge,))
            best = search.clearly_better(best)
    return best


def features_in_words(setting: Setting) -> str:
    """What is made of the features, in words."""
    if setting.lag == 0:
        return "features as they are"
    return f"what lasts over {setting.lag} frame{'s' if setting.lag > 1 else ''}"


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
    given = np.flatnonzero(described.readable & ~np.isnan(counts).all(axis=1))
    footage = Footage(described, frames_to_use(described, given) if uncounted else given)
    setting = choose(CounterSearch(footage, thinned(total)), uncounted=uncounted, report=report)
    search = CounterSearch(footage, total)
    params, part = search.parameters(setting)
    if not setting.uses_uncounted:
        part = given  # of two targets one alone may be given: such frames count too
    rows, preparation = footage.rows(setting)
    report(f"fitting {len(part)} frames, {len(search.counted)} of them counted")
    first, bound = _judged(params, rows[part], counts[part])
    believed = counts.copy()
    believed[part] = np.where(first.removed_.reshape(len(part), -1), np.nan, counts[part])
    columns = [*believed.T, believed.sum(axis=1)] if len(names) > 1 else [*believed.T]
    labels = believed[part] if len(names) > 1 else believed[part, 0]
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
        labels=believed[part],
        numbers=described.numbers[part],
        n_counted=len(search.counted),
        doubted=_worst_first(first, described.numbers[part]),
    )
    if not uncounted:
        return counter
    # Frames that are too many for the fit teach what lasts too.
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
    """Frames whose count a model has dropped, worst first."""
    removed = model.removed_.reshape(len(numbers), -1).any(axis=1)
    # A frame with one of two targets given has no quality of the other.
    quality = np.nan_to_num(model.label_quality_.reshape(len(numbers), -1), nan=1.0)
    order = np.argsort(quality[removed].min(axis=1), kind="stable")
    return numbers[removed][order]


def _judged(params: dict[str, Any], rows: Matrix, counts: Matrix) -> tuple[HLRegressor, float]:
    """A fit that drops counts not to believe, and what binds the others in the last one.

    Counts that were dropped for a slip are trusted in another fit: frames next to each other
    are near copies, so that with few people leave-one-out doubts counts that are off by one or
    less. These are no mistakes, but how people count.
    """
    # Counts were judged at this width when it was chosen.
    model = HLRegressor(**params, judge_wider=False)
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
    kept = counted[evenly(len(counted), MOST_COUNTED)]
    out = np.full_like(y, np.nan)
    out[kept] = y[kept]
    return out


def evenly(n: int, most: int) -> np.ndarray:
    """At most so many of n places, evenly spread."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(int)
