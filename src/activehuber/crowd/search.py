"""Settings tried on the counted frames, and the one to use.

What to use is decided on contiguous folds of the counted frames: neighbouring frames are near
copies, so random folds would flatter. Few folds tell settings apart only roughly, so where
frames are uncounted the one is taken that counts these as all settings together do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.crowd.preparation import Footage, Setting, features_in_words, parameters
from activehuber.estimators.parameters import prepared
from activehuber.estimators.regressor import HLRegressor
from activehuber.fitting.fit import reduced_gram
from activehuber.numerics.linalg import BreakdownError
from activehuber.runtime.messages import TableError
from activehuber.selection.criterion import ObservedLabels, fold_errors, projected_inverse
from activehuber.selection.scoring import common_scale, judge, robust_losses
from activehuber.selection.search import labels_of

# What is tried: width over the spread of a view; ridge; the weights of chain and agreement over
# alpha.
WIDTHS = (0.01, 0.04, 0.1)
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2)
CHAINS = (10.0, 100.0)
AGREEMENTS = (0.1, 1.0)
FOLDS = (5, 2)
# Counts kept from which on a kernel a view, and its weight, can be decided on.
FEWEST_FOR_VIEWS = 100
# Uncounted frames that settings predict.
MOST_PREDICTED = 400
# A setting whose loss is higher by so much has a voice smaller by e. What is clearly better is
# better by so many standard errors.
DOUBT, CLEAR = 0.2, 2.0

Report = Callable[[str], Any]


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
        Of the k counts kept on five contiguous folds, and on two halves: these ask a
        setting to carry on beyond what it has seen, as it will have to.
    predicted : ndarray of shape (u,)
        Counts of some uncounted frames.
    """

    errors: Matrix
    predicted: Vector


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
    kept : ndarray of shape (l,), bool
        Counts that take part in the choice.
    tried : dict of Setting to Tried
    """

    def __init__(self, footage: Footage, y: Vector) -> None:
        self.footage, self.y = footage, y
        self.counted = np.flatnonzero(~np.isnan(y) & footage.described.readable)
        others = np.setdiff1d(footage.everyone, self.counted)
        self.uncounted = others[evenly(len(others), MOST_PREDICTED)]
        self.kept = np.ones(len(self.counted), dtype=bool)
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
        """c of the views, from the counts kept."""
        params, part = self.parameters(setting)
        y = self.y.copy()
        y[self.counted[~self.kept]] = np.nan
        model = HLRegressor(**params | {"view_weights": "learn"}, threshold=np.inf)
        model.fit(self.footage.rows(setting)[0][part], y[part])
        return tuple(float(c) for c in model.view_weights_)

    def flag(self, setting: Setting) -> None:
        """Leave out of the choice the counts that a setting flags."""
        verdict = judge(*self.problem(setting), setting.ridge)
        if verdict is not None:
            self.kept, _ = verdict

    def look(self, settings: Iterable[Setting], ridges: Sequence[float]) -> None:
        """Try settings, each at several ridges."""
        places = np.flatnonzero(self.kept)
        folds = [np.array_split(np.arange(len(places)), k) for k in FOLDS]
        for setting in settings:
            several = [replace(setting, ridge=ridge) for ridge in ridges]
            missing = [each for each in several if each not in self.tried]
            if not missing:
                continue
            whole, labels = self.problem(setting, self.uncounted)
            Q, labels = np.ascontiguousarray(whole[np.ix_(places, places)]), labels.take(places)
            across = whole[len(self.counted) :, places]
            for each in missing:
                try:
                    P, _ = projected_inverse(Q.copy(), each.ridge / labels.weights, True)
                    errors = np.stack([fold_errors(P, labels, parts) for parts in folds])
                except BreakdownError:
                    continue  # a ridge too small for double precision
                # Other frames are predicted by least squares.
                v = P @ labels.y
                intercept = np.mean(labels.y - Q @ v - each.ridge / labels.weights * v)
                self.tried[each] = Tried(errors, across @ v + intercept)

    def losses(self) -> dict[Setting, Vector]:
        """Of settings tried, of every count kept, on both kinds of folds together."""
        if not self.tried:
            raise TableError("no setting could be fitted; are all frames alike?")
        several = [errors for each in self.tried.values() for errors in each.errors]
        scale = common_scale(several, np.ones(np.count_nonzero(self.kept)))
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
        several = [self.tried[each].predicted for each in losses]
        together = np.average(several, axis=0, weights=voices)

        def apart(each: Setting) -> tuple[float, float]:
            return float(np.sum((self.tried[each].predicted - together) ** 2)), losses[each]

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


def choose(search: CounterSearch, *, uncounted: bool, report: Report) -> Setting:
    """Walk through what can be chosen, one thing after the other.

    Parameters
    ----------
    search : CounterSearch
    uncounted : bool
        Whether frames without a count may take part, in temporal features as in the graph.
    report : callable
        Gets a line a step.

    Returns
    -------
    Setting
    """
    lags = (0, *search.footage.lags) if uncounted else (0,)
    search.flag(Setting(lag=lags[len(lags) // 2]))
    grid = [Setting(lag, width=width) for lag, width in product(lags, WIDTHS)]
    for last in (False, True):
        search.look(grid, RIDGES)
        best = search.agreed()
        report(f"{features_in_words(best)}, width {best.width:g}")
        before = search.kept
        if not last:
            search.flag(best)
        if np.array_equal(before, search.kept):
            break
        search.tried = {}
    # More than one kernel without a graph has to be clearly better than that: folds are few.
    search.tried = {best: search.tried[best]}
    if np.count_nonzero(search.kept) >= FEWEST_FOR_VIEWS:
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


def evenly(n: int, most: int) -> np.ndarray:
    """At most so many of n places, evenly spread."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(int)
