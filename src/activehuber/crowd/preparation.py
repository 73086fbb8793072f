"""Features as they were described -> rows of a fit, and the parameters of that fit.

Features are scaled block by block, reduced to what they predict of the frames around, and seen
by one Gaussian kernel of two views or by one a view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from activehuber import graphs
from activehuber._typing import Matrix, Vector
from activehuber.crowd.features import Described
from activehuber.crowd.scene import MOTION
from activehuber.crowd.temporal import Components, TemporalFeatures, lags
from activehuber.views import View

# The views that one kernel takes together. Which ones to take is not chosen: folds tell too
# little for that, and size adds to these two only with a kernel of its own.
JOINT = ("edges", "texture")


@dataclass(frozen=True)
class Setting:
    """What is chosen.

    Attributes
    ----------
    lag : int
        Features are what they predict of the frames so far before and after; 0 for features
        as they are.
    joint : tuple of str
        Views that one kernel takes together; empty for one kernel a view, all of them.
    width : float
        γ of every kernel times the mean squared distance of its rows.
    ridge : float
        2 S α, S the number of counted frames.
    chain, agreement : float
        Their weights over alpha.
    weights : tuple of float
        c of the views where every view has a kernel; empty for equal ones.
    """

    lag: int = 0
    joint: tuple[str, ...] = JOINT
    width: float = 0.04
    ridge: float = 3e-3
    chain: float = 0.0
    agreement: float = 0.0
    weights: tuple[float, ...] = ()

    @property
    def uses_uncounted(self) -> bool:
        """Whether frames without a count take part in the fit."""
        return self.chain > 0.0 or self.agreement > 0.0


@dataclass(frozen=True)
class Scaling:
    """Centre and scale of every feature, both of shape (d,)."""

    centre: Vector
    scale: Vector

    def __call__(self, values: Matrix) -> Matrix:
        """Scaled features, shape (n, d)."""
        return (values - self.centre) / self.scale


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """Features that one kernel sees.

    Attributes
    ----------
    name : str
    columns : ndarray of shape (k,), int
        Of all features.
    temporal : TemporalFeatures or None
        What is made of them; None leaves them as they are.
    """

    name: str
    columns: np.ndarray
    temporal: TemporalFeatures | None

    @property
    def width(self) -> int:
        """How many features there are in the end."""
        return len(self.columns) if self.temporal is None else len(self.temporal.frames)


@dataclass(frozen=True, eq=False)
class Preparation:
    """From features as they were described to rows of the fit."""

    scaling: Scaling
    parts: tuple[KernelFeatures, ...]

    def __call__(self, values: Matrix) -> Matrix:
        """Rows of the fit (n, k) from features (n, d)."""
        scaled, found = self.scaling(values), []
        for part in self.parts:
            rows = scaled[:, part.columns]
            found.append(rows if part.temporal is None else rows @ part.temporal.of_features)
        return found[0] if len(found) == 1 else np.hstack(found)

    def learning(self, values: Matrix, numbers: np.ndarray) -> Preparation:
        """The same with temporal features from further frames too, with features (n, d)."""
        scaled, parts = self.scaling(values), []
        for part in self.parts:
            temporal = part.temporal
            if temporal is not None:
                temporal = temporal.learning(scaled[:, part.columns], numbers)
            parts.append(replace(part, temporal=temporal))
        # Where the frames are too few it is what it was.
        same = all(a.temporal is b.temporal for a, b in zip(parts, self.parts, strict=True))
        return self if same else replace(self, parts=tuple(parts))

    @property
    def columns(self) -> dict[str, slice]:
        """Where the rows have each part."""
        ends = np.cumsum([0, *(part.width for part in self.parts)]).tolist()
        spans = zip(self.parts, pairwise(ends), strict=True)
        return {part.name: slice(*span) for part, span in spans}


def scaling_of(values: Matrix, blocks: np.ndarray) -> Scaling:
    """One scale a block: the root of its mean variance; a block that never changes stays."""
    variance = values.var(axis=0)
    mean = np.bincount(blocks, variance) / np.bincount(blocks)
    size = np.sqrt(mean)[blocks]
    # The mean of equal numbers is off by a rounding error, and so is their variance.
    rounding = 1e-12 * np.abs(values).max(axis=0)
    return Scaling(values.mean(axis=0), np.where(size > rounding, size, 1.0))


def parameters(
    setting: Setting,
    rows: Matrix,
    numbers: np.ndarray,
    columns: dict[str, slice],
    n_counted: int,
) -> dict[str, Any]:
    """The setting as parameters of `HLRegressor` for given rows, shape (n, d)."""
    alpha = setting.ridge / (2.0 * n_counted)
    graph = graphs.chain_affinity(numbers) if setting.chain > 0.0 else "knn"
    views = []
    for name, part in columns.items():
        # Twice the sum of variances is the mean squared distance of two rows.
        spread = max(2.0 * float(rows[:, part].var(axis=0).sum()), 1e-60)
        gamma, places = setting.width / spread, np.arange(part.start, part.stop)
        views.append(View(places, "rbf", gamma=gamma, graph=graph, name=name))
    return {
        "views": views,
        "view_weights": np.array(setting.weights) if setting.weights else "uniform",
        "alpha": alpha,
        "manifold": setting.chain * alpha,
        "agreement": 0.0 if setting.joint else setting.agreement * alpha,
    }


class Footage:
    """Frames that may take part in a fit, and their features prepared in any way.

    Attributes
    ----------
    described : Described
        Of n frames, increasing by number.
    everyone : ndarray, int
        Frames that may take part.
    scaling : Scaling
        By these frames.
    """

    def __init__(self, described: Described, everyone: np.ndarray) -> None:
        self.described, self.everyone = described, everyone
        self.scaling = scaling_of(described.values[everyone], described.blocks)
        self._components: dict[str, Components] = {}
        self._last: tuple[Any, tuple[Matrix, Preparation]] | None = None

    @cached_property
    def lags(self) -> tuple[int, ...]:
        """Lags of temporal features to try; empty where none can be learnt."""
        part = self.described.some(self.everyone)
        return tuple(lags(self.scaling(part.values), part.numbers))

    def rows(self, setting: Setting) -> tuple[Matrix, Preparation]:
        """Rows of all frames for a setting, shape (n, k), and how they are made."""
        key = setting.lag, setting.joint
        if self._last is None or self._last[0] != key:
            preparation = self.preparation(setting)
            self._last = key, (preparation(self.described.values), preparation)
        return self._last[1]

    def preparation(self, setting: Setting) -> Preparation:
        """How features are prepared for a setting."""
        known = self.described.columns
        together = (setting.joint,) if setting.joint else [(name,) for name in known]
        parts = []
        for names in together:
            # Motion is known only where left and right were counted, and is then always used.
            used = [
                c for n, c in known.items() if n in names or (setting.joint and n == MOTION)
            ]
            columns = np.concatenate([np.arange(c.start, c.stop) for c in used])
            name, temporal = " and ".join(names), None
            if setting.lag > 0:
                if name not in self._components:
                    part = self.described.some(self.everyone)
                    rows = self.scaling(part.values)[:, columns]
                    self._components[name] = Components.of(rows, part.numbers)
                temporal = self._components[name].predicting(setting.lag)
            parts.append(KernelFeatures(name, columns, temporal))
        return Preparation(self.scaling, tuple(parts))


def features_in_words(setting: Setting) -> str:
    """What is made of the features, in words."""
    if setting.lag == 0:
        return "features as they are"
    return f"temporal features, lag {setting.lag}"
