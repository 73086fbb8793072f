"""What a fit says of every label: expected or not, flagged, kept or not to be judged.

a fitted model, labels -> residual, quality and verdict a label -> their order
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import Encoded
from activehuber.data.writing import plain_text
from activehuber.estimators.prediction import LARGEST, in_scales, scales_within
from activehuber.report.page import Points

FLAGGED, KEPT, TRUSTED, UNJUDGED = "flagged", "kept", "trusted", "cannot judge"
# A label that is off by so many half-widths of its interval is not kept, whatever the tails of
# the noise: nobody can tell.
TOO_FAR = 10.0
# A label within the interval of so many right ones is not flagged, whatever else is about.
USUAL_COVERAGE = 0.9


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdicts(Points):
    """Evidence on the labels, arrays of shape (l,), in the order of the rows.

    To what the pictures show of them, where `expected` is what the other rows say, without the
    label itself, it adds what the tables say.

    Attributes
    ----------
    places : where they are in the table
    lower, upper : ends of the interval around `expected`; NaN for classes
    usual : float
        By how much a right label is usually off: σ̂ in the units of the labels, at the median.
    explained : float
        How well the other rows predict the kept labels: R² on the scale of the fit, or
        agreement for classes.
    beyond : by how many half-widths of its own interval a label is off; 0 for classes
    judged : bool
        Whether the other rows say enough to judge the label.
    spared : bool
        Whether the fit drops the label though it is within the interval of right ones.
    """

    places: np.ndarray
    lower: Vector
    upper: Vector
    usual: float
    explained: float
    beyond: Vector
    quality: Vector
    trusted: Mask
    judged: Mask
    spared: Mask

    @property
    def verdicts(self) -> np.ndarray:
        """The words, shape (l,), object: every label points to one of four."""
        words = np.array([KEPT, FLAGGED, TRUSTED, UNJUDGED], dtype=object)
        unsure = ~self.judged | self.spared | (self.beyond > TOO_FAR)
        kind = np.select([self.trusted, self.flagged, unsure], [2, 1, 3], 0)
        return words[kind]

    @cached_property
    def order(self) -> np.ndarray:
        """Places of the labels, worst first: by quality, residual, row."""
        quality = np.where(np.isnan(self.quality), np.inf, self.quality)
        return np.lexsort((self.places, -np.abs(self.residual), quality))

    def as_labels(self, numbers: Vector) -> np.ndarray:
        """Numbers such as `given` as they came: names of classes, or the numbers."""
        if not self.classes:
            return numbers
        return np.array(self.classes, dtype=object)[numbers.astype(int)]


def judge(choice: ChosenModel, table: Encoded, coverage: float) -> Verdicts:
    """What the model says of every label that was given."""
    labels, model = table.labels, choice.estimator
    rows = np.flatnonzero(labels.given)
    flagged, left_out = np.asarray(model.removed_)[rows], np.asarray(model.loo_residuals_)[rows]
    scale, threshold = np.asarray(choice.regressor.scale_), model.threshold_
    sigma = usual = float(np.max(scale))
    lower = upper = np.full(len(rows), np.nan)
    beyond, spared = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    classes = [plain_text(name) for name in getattr(model, "classes_", ())]
    if classes:
        place = {name: number for number, name in enumerate(classes)}
        given = np.array([place[str(value)] for value in labels.values[rows]])
        if left_out.ndim == 1:
            expected = 2.0 * given - 1.0 - left_out > model.cut_
        else:
            codes = np.where(given[:, None] == np.arange(left_out.shape[1]), 1.0, -1.0)
            expected = np.argmax(codes - left_out, axis=1)
            left_out = left_out[np.arange(len(given)), given]
        scale = scale[given] if scale.ndim else scale
        explained = float(np.mean((given == expected)[~flagged])) if not all(flagged) else 0.0
    else:
        given = labels.values[rows].astype(np.float64)
        fitted = choice.scale.forward(given)
        kept = fitted[~flagged]
        spread = float(np.sum((kept - np.mean(kept)) ** 2)) if len(kept) else 0.0
        error = float(np.sum(left_out[~flagged] ** 2))
        explained = 1.0 - error / spread if spread > 0.0 else 0.0
        # That of `predict_interval`, each label left out.
        result, evidence = model.result_, model.result_.evidence[0]
        given_to = evidence, result.targets[0].removed, result.data.weights
        half = evidence.loo_scales[rows] * scales_within(*given_to, coverage)
        usual_half = evidence.loo_scales[rows] * scales_within(*given_to, USUAL_COVERAGE)
        # As it is shown: what is expected below zero where nothing is moves up.
        _, low, high = choice.scale.interval(fitted - left_out, usual_half)
        spared = flagged & (low <= given) & (given <= high)
        ends = choice.scale.interval(fitted - left_out, half)
        expected, lower, upper = (np.clip(end, -LARGEST, LARGEST) for end in ends)
        middle, _, above = choice.scale.interval(np.median(fitted, keepdims=True), scale)
        usual = float(above[0] - middle[0])
        # On either scale: on that of the labels a half-width is that of both sides.
        both = in_scales(left_out, half), in_scales(given - expected, 0.5 * (upper - lower))
        beyond = np.maximum(*np.abs(both))
    return Verdicts(
        row=table.names[rows],
        given=given.astype(np.float64),
        expected=expected.astype(np.float64),
        residual=in_scales(left_out, scale),
        flagged=flagged & ~spared,
        # With several classes every one has its own.
        threshold=np.nan if np.ndim(threshold) or not sigma else float(threshold) / sigma,
        classes=tuple(classes),
        places=rows,
        lower=lower,
        upper=upper,
        usual=usual,
        explained=explained,
        beyond=beyond,
        quality=np.asarray(model.label_quality_, dtype=np.float64)[rows],
        trusted=table.trusted[rows],
        judged=np.asarray(model.judged_)[rows],
        spared=spared,
    )
