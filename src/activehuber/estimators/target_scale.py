"""A target on another scale: its logarithm or Yeo and Johnson's, and back.

y in its own units -> t(y), on which a regressor is fitted -> predictions in the units of y
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import boxcox1p, inv_boxcox1p
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from activehuber._typing import Vector
from activehuber.estimators.prediction import without_overflow

NONE, LOG, YEO_JOHNSON = "none", "log", "yeo-johnson"


@dataclass(frozen=True)
class TargetScale:
    """An increasing function t of the target.

        none: y ,    log: log y ,    yeo-johnson, z = y/u: ((1 + z)^λ − 1)/λ, log(1 + z) at
        λ = 0, for z ≥ 0, and −t₂₋λ(−z) below

    Attributes
    ----------
    kind : {"none", "log", "yeo-johnson"}
    exponent : float
        λ, from 0 to 2.
    unit : float
        u, so that y → ay changes nothing.
    not_negative : bool
        Whether no y is below 0, so that none is expected there.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber.estimators.target_scale import TargetScale
    >>> scale = TargetScale("yeo-johnson", exponent=0.0, unit=10.0)
    >>> scale.forward(np.array([0.0, 10.0])).round(3).tolist()
    [0.0, 0.693]
    >>> scale.inverse(scale.forward(np.array([-3.0, 40.0]))).round(6).tolist()
    [-3.0, 40.0]
    """

    kind: str = NONE
    exponent: float = 1.0
    unit: float = 1.0
    not_negative: bool = False

    def forward(self, y: Vector) -> Vector:
        """t(y)."""
        if self.kind == NONE:
            return y
        if self.kind == LOG:
            return np.log(y)
        z = y / self.unit
        above = boxcox1p(np.maximum(z, 0.0), self.exponent)
        return np.where(z < 0.0, -boxcox1p(np.maximum(-z, 0.0), 2.0 - self.exponent), above)

    def inverse(self, t: Vector) -> Vector:
        """y of t."""
        if self.kind == NONE:
            y = t
        elif self.kind == LOG:
            y = np.exp(t)
        else:
            above = inv_boxcox1p(np.maximum(t, 0.0), self.exponent)
            below = -inv_boxcox1p(np.maximum(-t, 0.0), 2.0 - self.exponent)
            y = self.unit * np.where(t < 0.0, below, above)
        return np.maximum(y, 0.0) if self.not_negative else y

    def interval(self, t: Vector, half: Vector) -> tuple[Vector, Vector, Vector]:
        """y and the ends of t ± half in its units.

        What is expected below 0 where no y is negative moves up to 0 with its upper end.
        """
        free = replace(self, not_negative=False)
        with np.errstate(over="ignore"):
            y, low, high = free.inverse(t), free.inverse(t - half), free.inverse(t + half)
        if self.not_negative:
            high = high + np.maximum(-y, 0.0)
            y, low = np.maximum(y, 0.0), np.maximum(low, 0.0)
        return y, low, high

    def log_slope(self, y: Vector) -> Vector:
        """log t′(y)."""
        if self.kind == NONE:
            return np.zeros_like(y)
        if self.kind == LOG:
            return -np.log(y)
        z = y / self.unit
        return (self.exponent - 1.0) * np.sign(z) * np.log1p(np.abs(z)) - np.log(self.unit)

    def __str__(self) -> str:
        if self.kind != YEO_JOHNSON:
            return {NONE: "the target as it is", LOG: "the logarithm of the target"}[self.kind]
        if self.exponent == 0.0:
            return f"log(1 + target/{self.unit:.4g})"
        return f"Yeo and Johnson's scale of target/{self.unit:.4g} with λ = {self.exponent:g}"


class ScaledRegressor(RegressorMixin, BaseEstimator):
    """A regressor of a target on another scale, which predicts in the target's own units.

    Fitted attributes that it does not have itself, such as `removed_`, are the regressor's.

    Parameters
    ----------
    regressor : HLRegressor
        Fits t(y).
    scale : TargetScale

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor
    >>> from activehuber.estimators.target_scale import ScaledRegressor, TargetScale
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> model = ScaledRegressor(HLRegressor(), TargetScale("log")).fit(X, 2 + np.sin(X[:, 0]))
    >>> bool(np.all(model.predict_interval([[-40.0]]) > 0))
    True
    """

    def __init__(self, regressor: Any, scale: TargetScale) -> None:
        self.regressor = regressor
        self.scale = scale

    def __getattr__(self, name: str) -> Any:
        fitted = self.__dict__.get("regressor_")
        if name.endswith("_") and not name.startswith("_") and fitted is not None:
            return getattr(fitted, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def fit(self, X, y, sample_weight=None, trusted=None, groups=None):
        """Fit t(y); NaN marks rows without a label.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight, trusted, groups : array-like of shape (n,), default=None

        Returns
        -------
        self
        """
        t = self.scale.forward(np.asarray(y, dtype=np.float64))
        self.regressor_ = clone(self.regressor).fit(X, t, sample_weight, trusted, groups)
        return self

    @classmethod
    def around(cls, fitted: Any, scale: TargetScale) -> ScaledRegressor:
        """One whose regressor has been fitted to t(y) already."""
        out = cls(fitted, scale)
        out.regressor_ = fitted
        return out

    def predict(self, X: Any) -> Vector:
        """Predictions in the units of y, shape (n_rows,).

        Parameters
        ----------
        X : array-like of shape (n_rows, d)
        """
        check_is_fitted(self, "regressor_")
        with np.errstate(over="ignore"):
            y = self.scale.inverse(self.regressor_.predict(X))
        return without_overflow(y, np.inf)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Intervals in the units of y, shape (n_rows, 2).

        Parameters
        ----------
        X : array-like of shape (n_rows, d)
        coverage : float, default=0.9
        """
        check_is_fitted(self, "regressor_")
        low, high = self.regressor_.predict_interval(X, coverage).T
        _, *ends = self.scale.interval(0.5 * (low + high), 0.5 * (high - low))
        return without_overflow(np.stack(ends, axis=1), np.inf)
