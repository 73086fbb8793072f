"""What comes out of a fit: coefficients, certificate, and what labels say of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.kernels.feature_maps import Basis
from activehuber.labels.error_scale import ErrorScale
from activehuber.problem.certificate import Certificate


@dataclass(frozen=True)
class LabelEvidence:
    """What leave-one-out says of the labels, on all rows; NaN where there is none.

    Attributes
    ----------
    scale : ErrorScale
        By how much right labels are off.
    loo_residuals : ndarray of shape (n,)
    loo_scales : ndarray of shape (n,)
        √h at the rows of the labels, each left out.
    judged : ndarray of shape (n,), bool
        Labels of whose row the others say enough.
    """

    scale: ErrorScale
    loo_residuals: Vector
    loo_scales: Vector
    label_quality: Vector
    judged: Mask

    def in_units(self, unit: float, centre: float) -> LabelEvidence:
        """The same for labels measured in units of 1/`unit`, with this centre."""
        return replace(
            self,
            scale=self.scale.in_units(unit, centre),
            loo_residuals=unit * self.loo_residuals,
            loo_scales=unit * self.loo_scales,
        )

    def take(self, rows: np.ndarray) -> LabelEvidence:
        """The same for rows in another order."""
        names = ("loo_residuals", "loo_scales", "label_quality", "judged")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


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
    scale : ErrorScale or None
        By how much right labels are off, if the threshold mode judged them; so the next two.
    quality : ndarray of shape (n,) or None
    judged : ndarray of shape (n,), bool, or None
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
    scale: ErrorScale | None
    evidence: LabelEvidence | None
    quality: Vector | None = None
    judged: Mask | None = None
    basis: Basis | None = None

    def take(self, rows: np.ndarray) -> Fitted:
        """The same for rows in another order; of exact fits only."""
        by_row = ("coefficients", "removed", "residuals", "quality", "judged")
        given = [name for name in by_row if getattr(self, name) is not None]
        taken = replace(self, **{name: getattr(self, name)[rows] for name in given})
        return replace(taken, evidence=self.evidence and self.evidence.take(rows))
