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
from activehuber.audit.inputs import AUTO as AUTO_APPROXIMATION
from activehuber.audit.inputs import Encoded, Options, Progress, views_of_features
from activehuber.audit.target_scale import AUTO, check_scale, choose_scale
from activehuber.data.rows import ArrayRows, Rows, WatchedRows
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.classifier_cv import HLClassifierCV
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
    selection : object
        The estimator that chose, with `best_params_`.
    selection_rows : int
        Labels on which it chose.
    """

    estimator: Any
    selection: Any
    selection_rows: int
    notes: tuple[str, ...]

    @property
    def regressor(self) -> HLRegressor:
        """The model, or the one inside that fits the codes of classes."""
        inner = self.estimator
        if isinstance(inner, ScaledRegressor):
            return inner.regressor_
        return inner.estimator_ if isinstance(inner, HLClassifier) else inner

    @property
    def scale(self) -> TargetScale:
        """The scale of the target that the regressor was fitted on."""
        inner = self.estimator
        return inner.scale if isinstance(inner, ScaledRegressor) else TargetScale()

    @property
    def parameters(self) -> dict[str, Any]:
        """What was chosen."""
        return dict(getattr(self.selection, "best_params_", {}))


def estimator_for(table: Encoded, options: Options) -> Any:
    """The estimator asked for, or one that chooses its parameters."""
    views = options.views
    if options.estimator is None:
        own = None if views is None else views_of_features(views, table.features)
        return _chooser(options, own)
    if views is not None:
        raise TableError("give views to the estimator itself, or leave the estimator out")
    return options.estimator


def _chooser(options: Options, views: list[View] | None) -> Any:
    """What chooses parameters when no one says otherwise."""
    if options.classify:
        return HLClassifierCV(views=views, random_state=options.random_state)
    asked = options.approximation not in (None, AUTO_APPROXIMATION)
    # Those for few labels are not all to be had as features.
    kernels = WIDTH_KERNELS if asked else "auto"
    return HLRegressorCV(kernels=kernels, views=views, random_state=options.random_state)


def choose_and_fit(table: Encoded, options: Options) -> ChosenModel:
    """Parameters chosen on some labels if there are many, and the model of all."""
    estimator, labels, X = estimator_for(table, options), table.labels, table.rows
    kind = _transform_of(options)
    if kind != NONE:
        check_scale(labels.values[labels.given], kind, labels.name)
    rows = np.flatnonzero(labels.given)
    count = len(rows)
    approximation = options.approximation_of(count)
    sampled = count > options.max_selection_rows
    if sampled:
        rng = np.random.default_rng(options.random_state)
        rows = np.sort(rng.choice(rows, options.max_selection_rows, replace=False))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            again = sampled or approximation is not None
            seen, some = (X.take(rows), rows) if again else (_array(X), slice(None))
            scale = TargetScale()
            if kind != NONE:
                scale = _scale_of(seen, table, some, kind, options)
                values = scale.forward(labels.values)
                table = replace(table, labels=replace(labels, values=values))
            selection = clone(estimator).fit(
                seen, table.labels.values[some], **_judged_by(table, some)
            )
            model = getattr(selection, "best_estimator_", selection)
            if again:
                options.tell(0.2, "fitting to all labels")
                model = clone(model)
                # The ridge 2lλ is noise over signal: it stays, whatever the number of labels.
                model.set_params(alpha=model.alpha * len(rows) / count)
                _fit_to_all(model, table, approximation, options)
            _ = model.label_quality_  # here, so that its warnings are caught too
        except (ValueError, TypeError) as error:
            raise TableError(first_line(error)) from error
    if not options.classify and (options.estimator is None or kind != NONE):
        kept = labels.values[labels.given & ~np.asarray(model.removed_)]
        scale = replace(scale, not_negative=bool(np.all(kept >= 0.0)))
        model = ScaledRegressor.around(model, scale)
    notes = tuple(dict.fromkeys(f"Warning: {first_line(w.message)}." for w in caught))
    return ChosenModel(model, selection, len(rows), tuple(n.replace("..", ".") for n in notes))


def _transform_of(options: Options) -> str:
    """What may be done to the target, of which an estimator of one's own may know the units."""
    kind = options.target_transform
    own = options.estimator is not None and kind == AUTO
    return NONE if kind is None or options.classify or own else kind


def _judged_by(table: Encoded, some: Any) -> dict[str, Any]:
    """What else a fit to some rows is told; an estimator may know no groups."""
    groups = table.fit_groups
    own = {} if groups is None else {"groups": groups[some]}
    return {"trusted": table.trusted[some], **own}


def _scale_of(X: Matrix, table: Encoded, some: Any, kind: str, options: Options) -> TargetScale:
    """The scale on which the target is fitted, by some of its rows, which are X."""
    values, trusted = table.labels.values[some], table.trusted[some]
    given = ~np.isnan(values)
    own = None if table.groups is None else table.groups[some][given]
    seed = options.random_state
    return choose_scale(X[given], values[given], trusted[given], kind, seed, own)


def _fit_to_all(
    model: Any, table: Encoded, approximation: str | None, options: Options
) -> None:
    """Fit with the parameters chosen; blocks of rows at a time if that is asked for."""
    labels, told = table.labels.values, _judged_by(table, slice(None))
    if approximation is None:
        model.fit(_array(table.rows), labels, **told)
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
    model.fit(WatchedRows(table.rows, watch.pass_begins), labels, **told)
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
            done = 1.0 - math.exp(-self.passes / USUAL_PASSES)
            self.tell(
                0.2 + (0.7 - 0.2) * done,
                f"fitting to all labels, pass {self.passes} over the rows",
            )


def _array(rows: Rows) -> Matrix:
    """All rows in memory; they are there already unless they are far away."""
    return rows.X if isinstance(rows, ArrayRows) else rows.take(np.arange(len(rows)))
