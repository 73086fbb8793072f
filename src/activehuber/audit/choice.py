"""The model of an audit and how it came about.

a table of numbers -> parameters chosen on some labels -> a model fitted to all
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from activehuber._typing import Matrix
from activehuber.audit.inputs import Encoded, Options, Progress, views_of_features
from activehuber.audit.target_scale import AUTO, check_scale, choose_scale
from activehuber.data.rows import ArrayRows, Rows, WatchedRows
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.classifier_cv import HLClassifierCV
from activehuber.estimators.groups import as_given
from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.regressor_cv import HLRegressorCV
from activehuber.estimators.target_scale import NONE, ScaledRegressor, TargetScale
from activehuber.runtime.messages import TableError, first_line
from activehuber.selection.candidates import WIDTH_KERNELS
from activehuber.views import View

# Passes over the rows after which two thirds of the bar of a fit have gone by.
USUAL_PASSES = 25


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
    if kind != NONE:
        check_scale(values[given], kind, labels.name)
    rows = np.flatnonzero(given)
    count, seed = len(rows), options.random_state
    approximation = options.approximation_of(count)
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
    notes = dict.fromkeys(
        f"Warning: {first_line(w.message)}.".replace("..", ".") for w in caught
    )
    return ChosenModel(model, chosen, len(rows), tuple(notes), regressor, scale)


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
        raise TableError(
            f"a {type(model).__name__} takes no approximation; use fewer labels, or none"
        )
    model.set_params(
        approximation=approximation,
        n_components=max(1, options.n_components // len(model.views or [None])),
        random_state=options.random_state,
    )
    watch = _Progress(options.tell)
    model.fit(WatchedRows(table.rows, watch.pass_begins), y, **told)
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
