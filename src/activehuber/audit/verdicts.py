"""What a fit says of every label: expected or not, flagged or kept, worst first.

a fitted model, labels -> residual, quality and verdict a label -> their order
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import Encoded
from activehuber.data.writing import plain_text
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.prediction import half_width

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
    residual : leave-one-out residuals in units of the noise
    scale : float
        σ̂, of several classes the largest.
    """

    rows: np.ndarray
    given: Vector
    fitted: Vector
    expected: Vector
    half: float
    residual: Vector
    scale: float
    quality: Vector
    flagged: Mask
    trusted: Mask
    classes: tuple[str, ...]

    @property
    def verdicts(self) -> np.ndarray:
        """The words, shape (l,), object: every label points to one of three."""
        words = np.array([KEPT, FLAGGED, TRUSTED], dtype=object)
        return words[np.where(self.trusted, 2, self.flagged.astype(int))]

    @cached_property
    def order(self) -> np.ndarray:
        """Places of the labels, worst first: by quality, residual, row."""
        quality = np.where(np.isnan(self.quality), np.inf, self.quality)
        return np.lexsort((self.rows, -np.abs(self.residual), quality))

    def as_labels(self, numbers: Vector) -> np.ndarray:
        """Numbers such as `given` as they came: names of classes, or the numbers."""
        if not self.classes:
            return numbers
        return np.array(self.classes, dtype=object)[numbers.astype(int)]


def judge(choice: ChosenModel, table: Encoded, coverage: float) -> Verdicts:
    """What the model says of every label that was given."""
    labels, model = table.labels, choice.estimator
    rows = np.flatnonzero(labels.given)
    flagged = np.asarray(model.removed_)[rows]
    residuals, left_out = (
        np.asarray(r)[rows] for r in (model.residuals_, model.loo_residuals_)
    )
    scale, half, classes = np.asarray(choice.regressor.scale_), np.nan, []
    if labels.classify:
        classes = [plain_text(name) for name in model.classes_]
        place = {name: number for number, name in enumerate(classes)}
        given = np.array([place[str(value)] for value in labels.values[rows]])
        fitted, expected, left_out = _of_classes(model, given, residuals, left_out)
        scale = scale[given] if scale.ndim else scale
    else:
        given = labels.values[rows].astype(np.float64)
        fitted, expected = given - residuals, given - left_out
        weights = model.result_.data.weights[rows[~flagged]]
        # That of `predict_interval`, without another pass over the rows.
        half = half_width(left_out[~flagged], weights, coverage)
    return Verdicts(
        rows=rows,
        given=given.astype(np.float64),
        fitted=fitted,
        expected=expected,
        half=half,
        residual=_in_units(left_out, scale),
        scale=float(np.max(choice.regressor.scale_)),
        quality=np.asarray(model.label_quality_, dtype=np.float64)[rows],
        flagged=flagged,
        trusted=table.trusted[rows],
        classes=tuple(classes),
    )


def _of_classes(
    model: HLClassifier, given: np.ndarray, residuals: Matrix, left_out: Matrix
) -> tuple[Vector, Vector, Vector]:
    """The classes fitted and expected by their number, and the residual of the given one."""
    if left_out.ndim == 1:
        codes, own = 2.0 * given - 1.0, left_out
        fitted, expected = (codes - each > model.cut_ for each in (residuals, left_out))
    else:
        codes = np.where(given[:, None] == np.arange(left_out.shape[1]), 1.0, -1.0)
        fitted, expected = (np.argmax(codes - e, axis=1) for e in (residuals, left_out))
        own = left_out[np.arange(len(given)), given]
    return fitted.astype(np.float64), expected.astype(np.float64), own


def _in_units(values: Vector, scale: Vector) -> Vector:
    """values / scale; without noise, 0 for what fits and ±inf for what does not."""
    far = np.where(values == 0.0, 0.0, np.copysign(np.inf, values))
    return np.where(scale > 0.0, values / np.where(scale > 0.0, scale, 1.0), far)
