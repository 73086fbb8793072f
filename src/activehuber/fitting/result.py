"""What comes out of a fit: coefficients, certificate, and what labels say of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.kernels.feature_maps import Basis
from activehuber.problem.certificate import Certificate


@dataclass(frozen=True)
class LabelEvidence:
    """What leave-one-out says of the labels, on all rows; NaN where there is none."""

    scale: float
    loo_residuals: Vector
    loo_inflation: Vector
    label_quality: Vector

    def times(self, unit: float) -> LabelEvidence:
        """The same with labels measured in units of 1/`unit`."""
        return replace(self, scale=unit * self.scale, loo_residuals=unit * self.loo_residuals)

    def take(self, rows: np.ndarray) -> LabelEvidence:
        """The same for rows in another order."""
        return replace(
            self,
            loo_residuals=self.loo_residuals[rows],
            loo_inflation=self.loo_inflation[rows],
            label_quality=self.label_quality[rows],
        )


@dataclass(frozen=True)
class Fitted:
    """The fit of one target on all n rows; see the attributes of `HLRegressor`.

    Attributes
    ----------
    coefficients : ndarray of shape (n, m), or (p,)
        Of the kernels at the rows; of the functions of the basis if there is one.
    basis : Basis or None
        The functions of an approximated fit.
    view_weights : ndarray of shape (m,)
    view_weights_residual : float
        0 for given weights.
    sigma : float or None
        σ̂ if the threshold mode estimated it.
    quality : ndarray of shape (n,) or None
        Of the labels, if the threshold mode judged them.
    evidence : LabelEvidence or None
        None if no one has asked for it yet.
    """

    coefficients: Matrix
    intercept: float
    view_weights: Vector
    view_weights_residual: float
    threshold: float
    thresholds: Vector
    removed: Mask
    residuals: Vector
    certificate: Certificate
    n_iter: int
    n_labelled: int
    sigma: float | None
    evidence: LabelEvidence | None
    quality: Vector | None = None
    basis: Basis | None = None

    def take(self, rows: np.ndarray) -> Fitted:
        """The same for rows in another order; of exact fits only."""
        return replace(
            self,
            coefficients=self.coefficients[rows],
            removed=self.removed[rows],
            residuals=self.residuals[rows],
            quality=None if self.quality is None else self.quality[rows],
            evidence=None if self.evidence is None else self.evidence.take(rows),
        )
