"""How far off a right label is at any row: noise, and all that is not known there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Vector

# A row is not judged where the other labels leave open more than this share of the variance
# of right labels.
LEFT_OPEN = 0.5


@dataclass(frozen=True)
class ErrorScale:
    """The scale √h of the error of a right label.

        h = min(σ² o, v) + σ² g² n + δ²/12 ,      g = exp(β (asinh((ŷ − c)/s) − a)) ,

    o = (q + what an approximation leaves out)/m what the other labels leave open at the row
    (`solver.leave_one_out`), n = μ/m its noise beside that of one unit of weight.

    Attributes
    ----------
    sigma : float
        σ̂.
    variance : float
        v, that of right labels: of a row of which nothing is known no more is unknown.
    exponent, middle, centre, spread : float
        β, a, c, s.
    lowest, highest : float
        asinh(…) − a of the labels it was learnt from, within which it is held elsewhere.
    rounding : float
        δ²/12, δ the grid on which labels lie.
    usual_open : float
        o at the median row, for rows at which it is not to be had.
    """

    sigma: float
    variance: float
    exponent: float = 0.0
    middle: float = 0.0
    centre: float = 0.0
    spread: float = 1.0
    lowest: float = 0.0
    highest: float = 0.0
    rounding: float = 0.0
    usual_open: float = 0.0

    def at(self, left_open: Vector, noise: Vector | float, predicted: Vector) -> Vector:
        """√h at rows with these o, n and ŷ.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber.labels.error_scale import ErrorScale
        >>> scale = ErrorScale(sigma=2.0, variance=100.0)
        >>> scale.at(np.array([0.0, 3.0, 1e9]), 1.0, np.zeros(3)).round(1).tolist()
        [2.0, 4.0, 10.2]
        """
        level = np.arcsinh((predicted - self.centre) / self.spread) - self.middle
        level = np.clip(level, self.lowest, self.highest)
        noisy = self.sigma * self.sigma * np.exp(2.0 * self.exponent * level) * noise
        return np.sqrt(self._open(left_open) + noisy + self.rounding)

    def can_judge(self, left_open: Vector) -> Mask:
        """Whether the other labels say enough of these rows to judge one there."""
        return self._open(left_open) <= LEFT_OPEN * self.variance

    def _open(self, left_open: Vector) -> Vector:
        return np.minimum(self.sigma * self.sigma * left_open, self.variance)

    def in_units(self, unit: float, centre: float) -> ErrorScale:
        """The same for labels measured in units of 1/`unit`, with this centre."""
        return replace(
            self,
            sigma=unit * self.sigma,
            variance=unit * (unit * self.variance),
            centre=centre,
            spread=unit * self.spread,
            rounding=unit * (unit * self.rounding),
        )
