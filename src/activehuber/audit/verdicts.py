"""What a fit says of every label: expected or not, flagged or kept, worst first.

a fitted model, labels -> residual, quality and verdict a label -> their order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import TargetColumn
from activehuber.data.tables import plain_text
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.intervals import half_width

FLAGGED, KEPT, TRUSTED = "flagged", "kept", "trusted"


@dataclass(frozen=True)
class Verdicts:
    """Evidence on the labels, arrays of shape (l,), in the order of the rows.

    Attributes
    ----------
    rows : their places in the table
    given, fitted, expected : floats, or class numbers as floats
        `expected` is what the other rows say, without the label itself.
    half : float
        Half the width of the intervals; NaN for classes.
    """

    rows: np.ndarray
    given: Vector
    fitted: Vector
    expected: Vector
    half: float
    residual: Vector
    quality: Vector
    flagged: Mask
    trusted: Mask
    classes: tuple[str, ...]

    @property
    def verdicts(self) -> np.ndarray:
        """The words, shape (l,), object: every label points to one of three."""
        words = np.array([KEPT, FLAGGED, TRUSTED], dtype=object)
        return words[np.where(self.trusted, 2, self.flagged.astype(int))]

    @property
    def lower(self) -> Vector:
        """Lower ends of the intervals."""
        return self.fitted - self.half

    @property
    def upper(self) -> Vector:
        """Upper ends."""
        return self.fitted + self.half


def judge(
    choice: ChosenModel, labels: TargetColumn, trusted: Mask, coverage: float
) -> Verdicts:
    """What the model says of every label that was given."""
    rows = np.flatnonzero(labels.given)
    model = choice.estimator
    shared = {
        "rows": rows,
        "quality": np.asarray(model.label_quality_, dtype=np.float64)[rows],
        "flagged": np.asarray(model.removed_)[rows],
        "trusted": trusted[rows],
    }
    if labels.classify:
        return _judge_classes(model, labels, rows, shared)
    given = labels.values[rows].astype(np.float64)
    left_out = np.asarray(model.loo_residuals_)[rows]
    used = ~shared["flagged"]
    weights = model.result_.data.weights[rows[used]]
    return Verdicts(
        given=given,
        fitted=given - np.asarray(model.residuals_)[rows],
        expected=given - left_out,
        # That of `predict_interval`, without another pass over the rows.
        half=half_width(left_out[used], weights, coverage),
        residual=_in_units(left_out, float(model.scale_)),
        classes=(),
        **shared,
    )


def _judge_classes(
    model: HLClassifier, labels: TargetColumn, rows: np.ndarray, shared: dict[str, Any]
) -> Verdicts:
    classes = [plain_text(name) for name in model.classes_]
    place = {name: number for number, name in enumerate(classes)}
    own = np.array([place[str(value)] for value in labels.values[rows]])
    left_out = np.asarray(model.loo_residuals_)[rows]
    residuals = np.asarray(model.residuals_)[rows]
    if left_out.ndim == 1:
        codes = 2.0 * own - 1.0
        fitted, expected = (codes - each > model.cut_ for each in (residuals, left_out))
        residual = _in_units(left_out, float(model.estimator_.scale_))
    else:
        codes = np.where(own[:, None] == np.arange(len(classes)), 1.0, -1.0)
        fitted, expected = (np.argmax(codes - e, axis=1) for e in (residuals, left_out))
        mine = left_out[np.arange(len(rows)), own]
        residual = _in_units(mine, np.asarray(model.estimator_.scale_)[own])
    return Verdicts(
        given=own.astype(np.float64),
        fitted=fitted.astype(np.float64),
        expected=expected.astype(np.float64),
        half=np.nan,
        residual=residual,
        classes=tuple(classes),
        **shared,
    )


def _in_units(values: Vector, scale: float | Vector) -> Vector:
    """values / scale; without noise, 0 for what fits and ±inf for what does not."""
    scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), values.shape)
    far = np.where(values == 0.0, 0.0, np.copysign(np.inf, values))
    return np.where(scale > 0.0, values / np.where(scale > 0.0, scale, 1.0), far)


def worst_first(judged: Verdicts) -> np.ndarray:
    """The order of labels: by quality, then by the size of the residual, then by row."""
    quality = np.where(np.isnan(judged.quality), np.inf, judged.quality)
    return np.lexsort((judged.rows, -np.abs(judged.residual), quality))
