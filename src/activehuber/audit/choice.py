"""The model of an audit and how it came about.

a table of numbers -> the scale of the target under which all labels are likeliest -> parameters
chosen on some labels -> a model fitted to all
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from activehuber._typing import Mask, Matrix, Vector
from activehuber.audit import inputs
from activehuber.audit.inputs import AUTO, Encoded, Options, Progress, views_of_features
from activehuber.data.rows import ArrayRows, Rows
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.classifier_cv import HLClassifierCV
from activehuber.estimators.groups import as_given, one_each
from activehuber.estimators.parameter_search import FEW_LABELS
from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.regressor_cv import HLRegressorCV
from activehuber.estimators.target_scale import (
    LOG,
    NONE,
    YEO_JOHNSON,
    ScaledRegressor,
    TargetScale,
)
from activehuber.fitting.settings import Data
from activehuber.kernels.kernel import Kernel
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.numerics.linalg import BreakdownError
from activehuber.runtime.messages import TableError, first_line, shortened
from activehuber.selection.candidates import WIDTH_KERNELS, Family, MovableKernel
from activehuber.selection.joint import likelihood_of_labels
from activehuber.selection.search import LOOK_ROWS, RIDGES, WIDTH_FACTORS, labels_of
from activehuber.views import View

# Passes over the rows after which two thirds of the bar of a fit have gone by.
USUAL_PASSES = 25
# λ that are tried: near 0 the noise grows with the level, at ½ with its root, as of counts.
EXPONENTS = (0.0, 0.5)
# Fewer labels than this say nothing of a scale.
FEWEST_LABELS = 20
# The log of a Bayes factor from which evidence is called very strong.
VERY_STRONG = 5.0
# The kernel that is used, the roughest: it follows any target to some extent. Of few labels it
# follows wrong ones too: there it is a linear function and a smooth one.
KERNEL, SMOOTH = "laplacian", "rbf"


@dataclass(frozen=True)
class ChosenModel:
    """The model and how it came about.

    Attributes
    ----------
    estimator : ScaledRegressor, HLRegressor or HLClassifier
        Fitted to all labels.
    parameters : dict
        What was chosen.
    selection_rows : int
        Labels on which it chose.
    regressor : HLRegressor
        The model, or the one inside that fits the codes of classes or a target on a scale.
    scale : TargetScale
        Of the target that the regressor was fitted on.
    """

    estimator: Any
    parameters: dict[str, Any]
    selection_rows: int
    notes: tuple[str, ...]
    regressor: HLRegressor
    scale: TargetScale


def _chooser(options: Options, views: list[View] | None) -> Any:
    """What chooses parameters when no one says otherwise."""
    if options.classify:
        return HLClassifierCV(views=views, random_state=options.random_state)
    # Those for few labels are not all to be had as features.
    kernels = "auto" if options.approximation in (None, AUTO) else WIDTH_KERNELS
    return HLRegressorCV(kernels=kernels, views=views, random_state=options.random_state)


def choose_and_fit(table: Encoded, options: Options) -> ChosenModel:
    """Parameters chosen on some labels if there are many, and the model of all."""
    labels, values, given = table.labels, table.labels.values, table.labels.given
    views, estimator, asked = options.views, options.estimator, options.target_transform
    # An estimator of one's own may know the units of the target.
    left = options.classify or (estimator is not None and asked == AUTO)
    kind = NONE if left or asked is None else asked
    if estimator is None:
        own = None if views is None else views_of_features(views, table.features)
        estimator = _chooser(options, own)
    elif views is not None:
        raise TableError("give views to the estimator itself, or leave the estimator out")
    if kind == LOG and not np.all(values[given] > 0.0):
        raise TableError(
            f"target {shortened(labels.name)!r} holds {np.min(values[given]):g}, and only "
            "numbers above 0 have a logarithm; use target_transform='yeo-johnson', or 'auto'"
        )
    rows = np.flatnonzero(given)
    count, seed = len(rows), options.random_state
    approximation = options.approximation
    if approximation == AUTO:
        approximation = "nystrom" if count > inputs.LARGEST_EXACT else None
    if count > options.max_selection_rows:
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(rows, options.max_selection_rows, replace=False))
    again, scale = len(rows) < count or approximation is not None, TargetScale()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            some = rows if again else slice(None)
            seen = table.rows.take(rows) if again else _array(table.rows)
            told = _judged_by(table, some)
            if kind != NONE:
                groups = None if table.groups is None else table.groups[some]
                scale = choose_scale(seen, values[some], told["trusted"], kind, seed, groups)
            fitted = scale.forward(values)
            selection = clone(estimator).fit(seen, fitted[some], **told)
            model = getattr(selection, "best_estimator_", selection)
            if again:
                options.tell(0.2, "fitting to all labels")
                model = clone(model)
                # The ridge 2lλ is noise over signal: it stays, whatever the number of labels.
                model.set_params(alpha=model.alpha * len(rows) / count)
                _fit_to_all(model, table, fitted, approximation, options)
            _ = model.label_quality_  # here, so that its warnings are caught too
        except (ValueError, TypeError) as error:
            raise TableError(first_line(error)) from error
    if not options.classify and (options.estimator is None or kind != NONE):
        kept = values[given & ~np.asarray(model.removed_)]
        scale = replace(scale, not_negative=bool(np.all(kept >= 0.0)))
        model = ScaledRegressor.around(model, scale)
    regressor, chosen = model, dict(getattr(selection, "best_params_", {}))
    if isinstance(model, ScaledRegressor):  # perhaps by an estimator of one's own
        regressor, scale = model.regressor_, model.scale
    elif isinstance(model, HLClassifier):
        regressor = model.estimator_
    warned = (f"Warning: {first_line(w.message)}.".replace("..", ".") for w in caught)
    notes = tuple(dict.fromkeys(warned))
    return ChosenModel(model, chosen, len(rows), notes, regressor, scale)


def _judged_by(table: Encoded, some: Any) -> dict[str, Any]:
    """What else a fit to some rows is told; an estimator may know no groups."""
    groups = as_given(table.groups)
    own = {} if groups is None else {"groups": groups[some]}
    return {"trusted": table.trusted[some], **own}


def _fit_to_all(
    model: Any, table: Encoded, y: np.ndarray, approximation: str | None, options: Options
) -> None:
    """Fit with the parameters chosen; blocks of rows at a time if that is asked for."""
    told = _judged_by(table, slice(None))
    if approximation is None:
        model.fit(_array(table.rows), y, **told)
        return
    if "approximation" not in model.get_params(deep=False):
        kind = type(model).__name__
        raise TableError(f"a {kind} takes no approximation; use fewer labels, or none")
    share = max(1, options.n_components // len(model.views or [None]))
    model.set_params(
        approximation=approximation, n_components=share, random_state=options.random_state
    )
    watch = _Progress(options.tell)
    model.fit(table.rows.watched_by(watch.pass_begins), y, **told)
    _ = model.label_quality_
    watch.tell = None  # the model keeps its rows, not who watched them


@dataclass
class _Progress:
    """Passes over the rows as progress: how many there will be no one knows before."""

    tell: Progress | None
    passes: int = 0

    def pass_begins(self) -> None:
        """Tell it."""
        self.passes += 1
        if self.tell is not None:
            done = 0.2 + 0.5 * (1.0 - math.exp(-self.passes / USUAL_PASSES))
            self.tell(done, f"fitting to all labels, pass {self.passes} over the rows")


def _array(rows: Rows) -> Matrix:
    """All rows in memory; they are there already unless they are far away."""
    return rows.X if isinstance(rows, ArrayRows) else rows.take(np.arange(len(rows)))


# --- the scale of the target -----------------------------------------------------------------


def choose_scale(
    X: Matrix, y: Vector, trusted: Mask, kind: str, seed: int, groups: np.ndarray | None = None
) -> TargetScale:
    """The scale on which all labels y, right or wrong, are likeliest.

        log p(t(y) | X) + Σ log t′(y_i) ,

    p that of `labels.mixture` with the kernel that suits it, on some of the labels. As wrong
    labels may be anywhere, they have little to say. A scale other than the first has to be
    better by what one parameter costs, ½ log l, and very strong evidence.

    Parameters
    ----------
    X : ndarray of shape (l, d)
    y : ndarray of shape (l,)
        NaN where there is no label.
    trusted : ndarray of shape (l,), bool
    kind : {"auto", "none", "log", "yeo-johnson"}
    seed : int
        Of the labels that are drawn if there are many.
    groups : ndarray of shape (l,), int, or None
        As in `Data`. Of many groups one label each is looked at.
    """
    given = ~np.isnan(y)
    X, y, trusted = X[given], y[given], trusted[given]
    groups = None if groups is None else groups[given]
    # The first is the simplest.
    found = [TargetScale()] if kind in (AUTO, NONE) else []
    if kind == LOG or (kind == AUTO and np.all(y > 0.0)):
        found.append(TargetScale(LOG))
    if kind in (AUTO, YEO_JOHNSON) and np.any(y != 0.0):
        unit = float(np.median(np.abs(y[y != 0.0])))
        found += [TargetScale(YEO_JOHNSON, each, unit) for each in EXPONENTS]
    times = np.unique(y, return_counts=True)[1]
    # Of labels most of which are alike, such as no visit to a doctor, the few others would
    # choose, on whose scale of their own a gross one is none.
    few = len(y) < FEWEST_LABELS or len(times) < 3 or 2 * times.max() > len(y)
    if len(found) < 2 or few:
        return found[0] if found else TargetScale()
    data = Data(X, y[:, None], np.ones(len(y)), trusted[:, None], groups=groups)
    rows = np.random.default_rng(seed).permutation(data.order())
    if groups is not None:
        # Copies of a label would count as so many witnesses.
        _, first = np.unique(one_each(groups)[rows], return_index=True)
        rows = rows[np.sort(first)] if len(first) >= FEWEST_LABELS else rows
    rows = rows[:LOOK_ROWS]
    some = data.with_labels_of(rows)
    levels = [_level(X[rows], some, scale) for scale in found]
    levels[0] += VERY_STRONG + 0.5 * np.log(len(rows))
    return found[int(np.argmax(levels))]


def _level(X: Matrix, data: Data, scale: TargetScale) -> float:
    spread = X.std(axis=0)
    Z = np.ascontiguousarray((X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))
    d = Z.shape[1]
    y = data.y[:, 0]
    unit, moves, stays = 1.0 / max(1, d), np.zeros(d, dtype=int), np.full(d, -1)
    families = [Family(KERNEL, (MovableKernel(Kernel(KERNEL, unit), Z, 1.0, moves),), 1)]
    if len(y) <= FEW_LABELS:
        linear = MovableKernel(Kernel("linear"), Z, unit, stays)
        smooth = MovableKernel(Kernel(SMOOTH, unit), Z, 1.0, moves)
        families = [Family("linear", (linear,), 0), Family(SMOOTH, (linear, smooth), 1)]
    t = scale.forward(y)
    labels, size = labels_of(replace(data, X=Z, y=t[:, None]), fit_intercept=True)
    widths, ridges = np.log(np.sort(WIDTH_FACTORS)), np.log(RIDGES)
    try:
        level = likelihood_of_labels(families, labels, widths, ridges, DEFAULT_RULE)
    except BreakdownError:
        return -np.inf
    return level - len(t) * float(np.log(size)) + float(np.sum(scale.log_slope(y)))
