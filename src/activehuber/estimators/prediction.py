"""Predictions of a fitted regressor: parts of its views, and jackknife intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.estimators.inputs import is_streamed, new_rows, refuse_streams
from activehuber.estimators.parameters import in_blocks
from activehuber.fitting import validation as check
from activehuber.fitting.fit import FitResult, left_open_at
from activehuber.fitting.result import LabelEvidence
from activehuber.numerics.linalg import BreakdownError
from activehuber.numerics.robust import weighted_quantile
from activehuber.operators.features import project_views

# Parts of a prediction that can be added up without overflow.
LARGEST = 1e300
# Removed labels that are off by no more than so many scales √h are asked how wide an interval
# has to be: some of them are right.
FAR_OUT = 5.0


def rows_to_predict(model: Any, X: Any, owner: Any = None) -> Any:
    """New rows as `parts_of` takes them: Rows with an approximation, else an array.

    `owner` is the estimator that X was given to, if that is not the model itself.
    """
    owner = model if owner is None else owner
    if model.result_.settings.approximation is None:
        refuse_streams(X)
        return check.checked_features(owner, X, order="C", reset=False)
    if not is_streamed(X):
        X = check.checked_features(owner, X, order="C", reset=False)
    return in_blocks(model, new_rows(X, owner))


def parts_of(model: Any, X: Any) -> np.ndarray:
    """`predict_views` of checked rows; what is not finite is refused."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = _products(model.result_, model.X_fit_, X)
    out = without_overflow(out) if isinstance(out, np.ndarray) else out  # else it is lazy
    return out if model.result_.data.several_targets else out[:, :, 0]


def without_overflow(
    values: np.ndarray, largest: float = LARGEST, *, what: str = "predictions"
) -> np.ndarray:
    """The values, which must be below the largest in size."""
    if not np.all(np.abs(values) < largest):
        raise ValueError(
            f"X: {what} overflow; its rows lie far from those of the fit, or the model is "
            "damaged"
        )
    return values


def _products(result: FitResult, X_fit: Matrix | None, X: Any) -> np.ndarray:
    """Parts of the views at X, shape (n_rows, n_views, n_targets)."""
    targets = result.targets
    if targets[0].basis is not None:
        coefficients = np.stack([f.coefficients for f in targets], axis=1)
        return X.run(project_views, (targets[0].basis, coefficients))[0]
    parts = []
    for index, view in enumerate(result.settings.views):
        weighted = [f.view_weights[index] * f.coefficients[:, index] for f in targets]
        coefficients = np.stack(weighted, axis=1)
        used = np.any(coefficients != 0.0, axis=1)
        part = np.zeros((len(X), coefficients.shape[1]))
        if X_fit is None:
            part = view.kernel.product(X, X, coefficients)
        elif np.any(used):
            rows = view.select(X_fit)[used]
            part = view.kernel.product(view.select(X), rows, coefficients[used])
        parts.append(part)
    return np.stack(parts, axis=1)


def half_width(errors: Vector, weights: Vector, coverage: float) -> float:
    """The size that `coverage` of new errors stay within.

    The quantile of |e| at coverage · (1 + 1/l): with l exchangeable errors the next one is
    within it with at least that probability; the largest |e| if l is too small for it.
    """
    level = min(1.0, coverage * (1.0 + 1.0 / _units(weights)))
    return weighted_quantile(np.abs(errors), weights, level)


def scales_within(
    evidence: LabelEvidence, removed: Mask, weights: Vector, coverage: float
) -> float:
    """How many of their scales √h `coverage` of right labels stay within.

    The quantile of |e|/√h, each label left out, over those kept and those removed that are off
    by no more than FAR_OUT scales. Labels kept alone would end where others begin to be held
    for wrong, which right ones with heavy tails do not.
    """
    sizes = np.abs(in_scales(evidence.loo_residuals, evidence.loo_scales))
    counted = ~np.isnan(evidence.loo_residuals) & (~removed | (sizes <= FAR_OUT))
    return half_width(sizes[counted], weights[counted], coverage)


def interval_of(model: Any, X: Any, coverage: Any, chosen: int = 0) -> np.ndarray:
    """`predict_interval` of a regressor of which so many parameters were chosen by its labels.

    p numbers that were fitted to l labels make leave-one-out errors small by about
    √((l − p)/(l + p)), and those on new rows as much larger.
    """
    check.check_number("coverage", coverage, above=0.0)
    if coverage >= 1.0:
        raise ValueError(f"coverage must be below 1, got {coverage!r}")
    X, result = rows_to_predict(model, X), model.result_
    centre = np.asarray(parts_of(model, X).sum(axis=1) + model.intercept_)
    centre = centre.reshape(len(centre), -1)
    ends = []
    for index, evidence in enumerate(result.evidence):
        weights = result.data.weights
        labels = _units(weights[result.data.labelled[:, index]])
        flattered = min(float(chosen), 0.5 * labels)
        growth = np.sqrt((labels + flattered) / (labels - flattered))
        with np.errstate(over="ignore", invalid="ignore"):
            scales = evidence.scale.at(_left_open(model, index, X), 1.0, centre[:, index])
            removed = result.targets[index].removed
            within = scales_within(evidence, removed, weights, coverage)
            half = without_overflow(growth * within * scales, what="intervals")
        ends.append(np.stack([centre[:, index] - half, centre[:, index] + half], axis=1))
    return result.of_targets(ends)


def _units(weights: Vector) -> float:
    return float(np.sum(np.maximum(weights, 1.0)))


def in_scales(errors: Vector, scales: Vector) -> Vector:
    """errors / scales; 0 for none, ±inf where there is no scale."""
    far = np.where(errors == 0.0, 0.0, np.copysign(np.inf, errors))
    return np.where(scales > 0.0, errors / np.where(scales > 0.0, scales, 1.0), far)


def _left_open(model: Any, index: int, X: Matrix) -> Vector:
    """What the labels leave open at new rows; as at the median label where that is unknown.

    It is known for kernels at rows of features, and not for Gram matrices, with a graph or
    agreement, or where functions stand for the kernel, whose labelled rows may be far away.
    """
    result, settings = model.result_, model.result_.settings
    usual = np.full(len(X), result.evidence[index].scale.usual_open)
    penalised = settings.manifold > 0.0 or settings.agreement > 0.0
    if settings.precomputed or settings.approximation is not None or penalised:
        return usual
    try:
        return left_open_at(settings, result.data, result.targets[index], index, X)
    except BreakdownError:  # noise is lost beside a kernel of such a size
        return usual
