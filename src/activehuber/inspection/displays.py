"""Pictures of a fitted model, in matplotlib; imported only when one is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from activehuber._typing import Mask, Matrix, Vector
from activehuber.estimators.regressor import HLRegressor
from activehuber.solver.path import ThresholdPath

# Colours that differ in lightness too, and markers: never colour alone.
COLOURS = ("#2166ac", "#b35806", "#1b7837", "#762a83", "#666666", "#c51b7d")
MARKERS = ("o", "s", "^", "D", "v", "P")


def _check_regressor(estimator: Any, target: int) -> None:
    """Raise unless `estimator` is a fitted HLRegressor with such a target."""
    if not isinstance(estimator, HLRegressor):
        raise TypeError(f"estimator must be a fitted HLRegressor, got {estimator!r}")
    check_is_fitted(estimator)
    n_targets = estimator.result_.data.y.shape[1]
    if target not in range(n_targets):
        raise ValueError(f"target must be from 0 to {n_targets - 1}, got {target!r}")


class _TwoAxes(ABC):
    """A picture on two Axes, those given or those of a new figure."""

    _layout: ClassVar[Mapping[str, Any]]

    def plot(self, *, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : array of two matplotlib Axes, default=None

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor, LabelQualityDisplay
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> model = HLRegressor(gamma=1.0, alpha=1e-2).fit(X, np.sin(3 * X.ravel()))
        >>> display = LabelQualityDisplay.from_estimator(model)
        >>> len(display.plot().axes_)         # once more, on axes of its own
        2
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError(
                    'drawing needs matplotlib; install it with pip install "activehuber[plot]"'
                ) from None
            _, ax = plt.subplots(layout="constrained", **self._layout)
        axes = np.asarray(ax, dtype=object).ravel()
        if len(axes) != 2:
            raise ValueError(f"ax must hold two Axes, got {len(axes)}")
        self.axes_, self.figure_ = axes, axes[0].figure
        self._draw(*axes)
        return self

    @abstractmethod
    def _draw(self, first: Any, second: Any) -> None:
        """Draw on the two."""


@dataclass(kw_only=True, eq=False, repr=False)
class ViewDisplay(_TwoAxes):
    """The weight of each view and its part of the prediction.

    Parameters
    ----------
    names : list of str
        One a view.
    shares : ndarray of shape (n_views,)
        m (c^α)²: they add up to 1 for uniform and for learnt weights.
    parts : ndarray of shape (n_rows, n_views)
        c^α f^α(x), each view's part of the prediction.
    prediction : ndarray of shape (n_rows,)

    Attributes
    ----------
    axes_ : ndarray of two matplotlib Axes
        The weights, and the parts over the prediction.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor, View, ViewDisplay
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> views = [View([0, 1], name="size"), View([2, 3], name="texture")]
    >>> model = HLRegressor(views=views, view_weights="learn").fit(X, np.sin(X[:, 0]))
    >>> display = ViewDisplay.from_estimator(model, X)
    >>> [text.get_text() for text in display.axes_[0].get_yticklabels()]
    ['size', 'texture']
    """

    _layout: ClassVar = {"nrows": 1, "ncols": 2, "figsize": (9, 3.6), "width_ratios": (1, 2)}

    names: list[str]
    shares: Vector
    parts: Matrix
    prediction: Vector

    @classmethod
    def from_estimator(
        cls, estimator: HLRegressor, X: Any, *, target: int = 0, ax: Any = None
    ) -> ViewDisplay:
        """Draw a fitted regressor.

        Parameters
        ----------
        estimator : HLRegressor
            Fitted, with or without views.
        X : array-like of shape (n_rows, n_features)
            Rows to draw the parts of.
        target : int, default=0
            Which one, if the regressor was fitted to several.
        ax : array of two matplotlib Axes, default=None
            Where to draw; a new figure if None.

        Returns
        -------
        ViewDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor, ViewDisplay
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> model = HLRegressor(gamma=1.0).fit(X, np.sin(X.ravel()))
        >>> ViewDisplay.from_estimator(model, X).parts.shape
        (40, 1)
        """
        _check_regressor(estimator, target)
        parts, weights = estimator.predict_views(X), estimator.view_weights_
        if parts.ndim == 3:
            parts, weights = parts[:, :, target], weights[:, target]
        display = cls(
            names=[view.name for view in estimator.result_.settings.views],
            shares=len(weights) * weights**2,
            parts=parts,
            prediction=parts.sum(axis=1) + np.ravel(estimator.intercept_)[target],
        )
        return display.plot(ax=ax)

    def _draw(self, weights: Any, parts: Any) -> None:
        n = len(self.names)
        rows, uniform, colours = np.arange(n), 1.0 / n, np.resize(COLOURS, n)
        bars = weights.barh(rows, self.shares, color=colours)
        weights.bar_label(bars, fmt="%.2f", padding=3)
        weights.axvline(uniform, color="0.3", ls=":", lw=1)
        weights.annotate("uniform", (uniform, -0.6), ha="center", fontsize=8, color="0.3")
        weights.set_yticks(rows, self.names)
        weights.set(xlim=(0, 1.25 * max(uniform, float(np.max(self.shares)))))
        weights.set(ylim=(n - 0.4, -0.85), xlabel="share m c²", title="weight of each view")
        every = zip(self.names, self.parts.T, colours, np.resize(MARKERS, n), strict=True)
        for name, part, colour, marker in every:
            style = {"s": 14, "color": colour, "marker": marker, "alpha": 0.6, "label": name}
            parts.scatter(self.prediction, part, **style)
        parts.axhline(0.0, color="0.3", lw=0.8)
        parts.set(xlabel="prediction", ylabel="part of the prediction")
        parts.set_title("what each view adds")
        parts.legend(loc="best", fontsize=8)


@dataclass(kw_only=True, eq=False, repr=False)
class ThresholdPathDisplay(_TwoAxes):
    """Residuals over the threshold, and how many labels are free and bound.

    Parameters
    ----------
    path : ThresholdPath
    threshold : float, default=None
        A threshold to mark, such as that of a fitted model.

    Attributes
    ----------
    axes_ : ndarray of two matplotlib Axes
        The residuals, and the numbers of labels.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor, ThresholdPathDisplay
    >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
    >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
    >>> model = HLRegressor(gamma=1.0).fit(X, y)
    >>> display = ThresholdPathDisplay.from_estimator(model)
    >>> display.axes_[1].get_xlabel()
    'threshold ξ'
    """

    _layout: ClassVar = {"nrows": 2, "figsize": (7, 6), "height_ratios": (2, 1), "sharex": True}

    path: ThresholdPath
    threshold: float | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: HLRegressor,
        *,
        target: int = 0,
        min_threshold: float | None = None,
        max_events: int | None = None,
        ax: Any = None,
    ) -> ThresholdPathDisplay:
        """Draw the path of a fitted regressor, for the labels it kept in use.

        Parameters
        ----------
        estimator : HLRegressor
            Fitted; its `threshold_` is marked.
        target : int, default=0
            Which one, if the regressor was fitted to several.
        min_threshold, max_events : default=None
            As in `HLRegressor.threshold_path`.
        ax : array of two matplotlib Axes, default=None
            Where to draw; a new figure if None.

        Returns
        -------
        ThresholdPathDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor, ThresholdPathDisplay
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> model = HLRegressor(gamma=1.0, alpha=1e-2).fit(X, np.sin(3 * X.ravel()))
        >>> display = ThresholdPathDisplay.from_estimator(model)
        >>> bool(display.threshold == model.threshold_)
        True
        """
        _check_regressor(estimator, target)
        ends = {"min_threshold": min_threshold, "max_events": max_events}
        path = estimator.threshold_path(target=target, **ends)
        return cls.from_path(path, threshold=np.ravel(estimator.threshold_)[target], ax=ax)

    @classmethod
    def from_path(
        cls, path: ThresholdPath, *, threshold: float | None = None, ax: Any = None
    ) -> ThresholdPathDisplay:
        """Draw a path.

        Parameters
        ----------
        path : ThresholdPath
        threshold : float, default=None
            A threshold to mark.
        ax : array of two matplotlib Axes, default=None

        Returns
        -------
        ThresholdPathDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import ThresholdPathDisplay, huber_path
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> path = huber_path(X, np.sin(3 * X.ravel()), gamma=1.0, alpha=1e-2)
        >>> len(ThresholdPathDisplay.from_path(path, threshold=0.1).axes_)
        2
        """
        if len(path.thresholds) < 2:
            raise ValueError("the path has one breakpoint only: there is nothing to draw")
        return cls(path=path, threshold=threshold).plot(ax=ax)

    def _draw(self, above: Any, below: Any) -> None:
        path, mark = self.path, self.threshold or 0.0
        mark = mark if np.isfinite(mark) else 0.0
        in_use = ~np.isnan(path.y)
        # Above the first breakpoint all labels are free and nothing changes.
        xi = np.concatenate([[1.3 * max(path.thresholds[0], mark)], path.thresholds])
        residuals = path.residuals[:, in_use]
        residuals = np.concatenate([residuals[:1], residuals])
        bound = path.states[:, in_use] != 0
        bound = np.concatenate([np.zeros_like(bound[:1]), bound])
        self._draw_residuals(above, xi, residuals, bound)
        free, held, most = (~bound).sum(axis=1), bound.sum(axis=1), bound.shape[1]
        # The state at a breakpoint holds for the segment below it.
        below.step(xi, free, where="post", color=COLOURS[0], ls="-", label="free")
        below.step(xi, held, where="post", color=COLOURS[1], ls="-.", label="bound")
        below.set(xlabel="threshold ξ", ylabel="labels", ylim=(-0.02 * most, 1.05 * most))
        for each in (above, below):
            each.set(xscale="log", xlim=(xi[-1], xi[0]))
            if mark > 0.0:
                each.axvline(mark, color="0.2", ls="--", lw=1.2, label="ξ of the fit")
            each.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)

    def _draw_residuals(self, ax: Any, xi: Vector, residuals: Matrix, bound: Mask) -> None:
        # Lines in ξ are curves over log ξ: more points than the breakpoints are needed.
        grid = np.unique(np.concatenate([xi, np.geomspace(xi[-1], xi[0], 300)]))
        # The segment above a point has the state of the breakpoint above it.
        above = np.clip(len(xi) - 1 - np.searchsorted(xi[::-1], grid, "right"), 0, None)
        ax.fill_between(grid, -grid, grid, color=COLOURS[0], alpha=0.1, lw=0, label="within ±ξ")
        low, high = float(np.min(residuals)), float(np.max(residuals))
        for values, is_bound in zip(residuals.T, bound.T, strict=True):
            line = np.interp(grid, xi[::-1], values[::-1])
            for mask, colour in ((~is_bound[above], COLOURS[0]), (is_bound[above], COLOURS[1])):
                # A point belongs to the segments on both of its sides.
                seen = mask | np.concatenate([[False], mask[:-1]])
                ax.plot(grid, np.where(seen, line, np.nan), color=colour, lw=0.8, alpha=0.8)
        ax.plot([], [], color=COLOURS[0], label="free label")
        ax.plot([], [], color=COLOURS[1], label="bound label")
        margin = 0.05 * (high - low)
        ax.set(ylabel="residual", ylim=(low - margin, high + margin))


@dataclass(kw_only=True, eq=False, repr=False)
class LabelQualityDisplay(_TwoAxes):
    """Each label beside what the other labels say of it, and its quality.

    Parameters
    ----------
    labels : ndarray of shape (n_labels,)
    predicted : ndarray of shape (n_labels,)
        Leave-one-out predictions (for removed labels the plain ones).
    quality : ndarray of shape (n_labels,)
    removed : ndarray of shape (n_labels,), bool

    Attributes
    ----------
    axes_ : ndarray of two matplotlib Axes
        Labels over predictions, and the distribution of the quality.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor, LabelQualityDisplay
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel()) + 0.05 * np.cos(50 * X.ravel())
    >>> y[::15] += 2.0
    >>> display = LabelQualityDisplay.from_estimator(HLRegressor(gamma=1.0).fit(X, y))
    >>> int(display.removed.sum())
    4
    """

    _layout: ClassVar = {"nrows": 1, "ncols": 2, "figsize": (9, 3.8)}

    labels: Vector
    predicted: Vector
    quality: Vector
    removed: Mask

    @classmethod
    def from_estimator(
        cls, estimator: HLRegressor, *, target: int = 0, ax: Any = None
    ) -> LabelQualityDisplay:
        """Draw the labels of a fitted regressor.

        Parameters
        ----------
        estimator : HLRegressor
            Fitted; of a classifier pass `estimator_`.
        target : int, default=0
            Which one, if the regressor was fitted to several.
        ax : array of two matplotlib Axes, default=None
            Where to draw; a new figure if None.

        Returns
        -------
        LabelQualityDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor, LabelQualityDisplay
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> model = HLRegressor(gamma=1.0, alpha=1e-2).fit(X, np.sin(3 * X.ravel()))
        >>> LabelQualityDisplay.from_estimator(model).quality.shape
        (40,)
        """
        _check_regressor(estimator, target)
        y = estimator.result_.data.y

        parts = estimator.label_quality_, estimator.loo_residuals_, estimator.removed_
        quality, residuals, removed = (np.reshape(part, y.shape)[:, target] for part in parts)
        known = ~np.isnan(quality)
        display = cls(
            labels=y[known, target],
            predicted=y[known, target] - residuals[known],
            quality=quality[known],
            removed=removed[known],
        )
        return display.plot(ax=ax)

    def _draw(self, labels: Any, quality: Any) -> None:
        ends = [float(np.min(self.predicted)), float(np.max(self.predicted))]
        labels.plot(ends, ends, color="0.3", lw=0.8, zorder=1)
        groups, bins = {"kept": ~self.removed, "flagged": self.removed}, np.linspace(0, 1, 41)
        for (name, rows), colour, marker in zip(groups.items(), COLOURS, MARKERS, strict=False):
            style = {"color": colour, "label": f"{name} ({np.count_nonzero(rows)})"}
            points = self.predicted[rows], self.labels[rows]
            labels.scatter(*points, s=16, marker=marker, alpha=0.7, **style)
            quality.hist(self.quality[rows], bins=bins, alpha=0.8, **style)
        labels.set(xlabel="prediction from the other labels", ylabel="label as given")
        labels.set_title("labels beside their leave-one-out prediction")
        labels.legend(loc="best", fontsize=8)
        quality.axvline(0.5, color="0.3", ls="--", lw=1)
        quality.set_yscale("symlog", linthresh=10)
        quality.set(xlim=(0.0, 1.0), ylim=(0, None), ylabel="labels")
        quality.set(xlabel="label quality (flagged below ½)", title="quality of the labels")
