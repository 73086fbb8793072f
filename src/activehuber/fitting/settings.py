"""Settings and data of a fit, checked and resolved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activehuber import graphs
from activehuber._typing import Mask, Matrix, Vector
from activehuber.fitting.validation import is_number
from activehuber.kernels.feature_maps import drawn
from activehuber.kernels.kernel import Kernel
from activehuber.labels.refinement import ThresholdRule
from activehuber.labels.rule import DEFAULT_RULE, LabelRule
from activehuber.problem.approximation import Approximation

# No threshold is smaller in units of the labels.
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class ViewSettings:
    """One view, resolved; names as in `View`.

    Attributes
    ----------
    columns : ndarray of int or None
        None: all columns, as they are.
    """

    name: str
    columns: np.ndarray | None
    kernel: Kernel
    graph: Any
    n_neighbors: int

    def select(self, X: Matrix) -> Matrix:
        """The view's columns of X, C-ordered."""
        columns = self.columns
        if columns is None:
            return X
        if len(columns) and np.array_equal(columns, np.arange(columns[0], columns[-1] + 1)):
            # Neighbouring columns are copied at the speed of memory, others one by one.
            return np.ascontiguousarray(X[:, columns[0] : columns[-1] + 1])
        return np.ascontiguousarray(X[:, columns])

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Errors in here say which view they are about, if there are views."""
        try:
            yield
        except (TypeError, ValueError) as error:
            if self.columns is None:
                raise
            raise type(error)(f"view {self.name!r}: {error}") from error


@dataclass(frozen=True)
class Settings:
    """The estimator's parameters, resolved; names as in `HLRegressor`.

    Attributes
    ----------
    view_weights : ndarray of shape (m,) or None
        c; None if it is to be learnt.
    approximation : Approximation or None
        None: the kernels themselves.
    weighs_labels : bool
        Whether leave-one-out figures are wanted at once, while factors are at hand.
    rule : LabelRule
        The numbers of the label rule, but for `removal`.
    """

    views: tuple[ViewSettings, ...]
    view_weights: Vector | None
    alpha: float
    manifold: float
    agreement: float
    threshold: str | float | ThresholdRule
    removal: float | None
    n_refinements: int
    threshold_step: float
    algorithm: str
    fit_intercept: bool
    tol: float
    max_iter: int
    verbose: int
    approximation: Approximation | None = None
    weighs_labels: bool = False
    rule: LabelRule = DEFAULT_RULE

    def in_units(self, unit: float) -> Settings:
        """The same for labels that are measured in units of `unit`."""
        threshold = self.threshold
        if callable(threshold):
            threshold = _rule_in_units(threshold, unit)
        elif not isinstance(threshold, str):
            threshold = max(float(threshold) / unit, TINY)
        return replace(self, threshold=threshold, threshold_step=self.threshold_step / unit)

    def knows_rows_by_value(self, *, with_graph: bool) -> bool:
        """Whether rows may be taken in any order: nothing else refers to them by number."""
        by_number = with_graph and any(
            graphs.is_matrix(view.graph) or callable(view.graph) for view in self.views
        )
        # A user's rule may know the labels by their places.
        return self.approximation is None and not by_number and not callable(self.threshold)

    @property
    def holds_matrices(self) -> bool:
        """Whether kernel or graph is a matrix that is not kept: labels are weighed in fit."""
        given = any(graphs.is_matrix(view.graph) for view in self.views)
        return self.precomputed or (self.manifold > 0.0 and given)

    def without_matrices(self) -> Settings:
        """The same without graphs that are matrices."""
        views = tuple(
            replace(view, graph=None) if graphs.is_matrix(view.graph) else view
            for view in self.views
        )
        return replace(self, views=views)

    @property
    def precomputed(self) -> bool:
        """Whether X is the Gram matrix itself."""
        return self.views[0].kernel.name == "precomputed"


def _rule_in_units(rule: ThresholdRule, unit: float) -> ThresholdRule:
    """A user's rule for ξ, for residuals that are measured in units of `unit`."""

    def scaled(residuals: Vector, weights: Vector) -> Any:
        value = rule(unit * residuals, weights)
        return value / unit if is_number(value) and value > 0.0 else value

    return scaled


@dataclass(frozen=True)
class Data:
    """Checked input of a fit.

    Attributes
    ----------
    X : ndarray of shape (n, d), or Rows
        Or the (n, n) Gram matrix of a precomputed kernel. An approximated fit takes Rows.
    y : ndarray of shape (n, q)
        NaN where unlabelled.
    weights : ndarray of shape (n,)
    trusted : ndarray of shape (n, q), bool
    several_targets : bool
        Whether y had two dimensions, also for q = 1.
    groups : ndarray of shape (n,), int, or None
        Labels of one number are judged without each other; −1: a group of its own.
    """

    X: Any
    y: Matrix
    weights: Vector
    trusted: Mask
    several_targets: bool = False
    groups: np.ndarray | None = None

    @property
    def labelled(self) -> Mask:
        """Labels that count, shape (n, q): given, and of positive weight."""
        return ~np.isnan(self.y) & (self.weights > 0.0)[:, None]

    @property
    def total_weight(self) -> float:
        """S, over the labels of the first target."""
        return float(self.weights[self.labelled[:, 0]].sum())

    def order(self, *, precomputed: bool = False) -> np.ndarray:
        """The rows by features, label and weight: whatever order they were given in.

        Rows that are alike in all of these are copies of each other. Features are compared by
        one combination of them, computed row by row; those of a Gram matrix after sorting.
        """
        X = np.sort(self.X, axis=1) if precomputed else self.X
        with np.errstate(over="ignore", invalid="ignore"):
            features = np.sum(X * np.cos(np.arange(1.0, X.shape[1] + 1.0)), axis=1)
        groups = () if self.groups is None else (self.groups,)
        return np.lexsort((*groups, *self.trusted.T, self.weights, *self.y.T[::-1], features))

    def take(self, rows: np.ndarray, *, precomputed: bool = False) -> Data:
        """Some rows, in memory."""
        X = self.X[np.ix_(rows, rows)] if precomputed else self.X[rows]
        return replace(self, X=X).with_labels_of(rows)

    def some_labels(self, most: int, seed: int) -> Data:
        """Some rows with a label of the first target, in memory."""
        rows = np.flatnonzero(self.labelled[:, 0])
        rows = rows[drawn(len(rows), most, np.random.default_rng(seed))]
        return replace(self, X=self.X.take(rows)).with_labels_of(rows)

    def with_labels_of(self, rows: np.ndarray) -> Data:
        """The same features, with the labels of some rows."""
        y, weights, trusted = self.y[rows], self.weights[rows], self.trusted[rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, y=y, weights=weights, trusted=trusted, groups=groups)
