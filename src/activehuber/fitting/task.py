"""What all targets of one fit share: rows, views, their factored penalties."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from activehuber import graphs
from activehuber._typing import Matrix, Vector
from activehuber.data.rows import Rows
from activehuber.fitting.settings import Data, Settings, ViewSettings
from activehuber.fitting.validation import check_memory
from activehuber.kernels.feature_maps import Basis
from activehuber.numerics.linalg import BreakdownError
from activehuber.problem.approximation import (
    Approximation,
    BlockExpansion,
    BlockReduction,
    build_basis,
    graph_penalty,
)
from activehuber.problem.reduction import Expansion, Reduction
from activehuber.problem.smoothing import build_part, needs_gram_matrix

# The other terms times the largest value of a kernel may weigh so many times as much as alpha:
# beyond it ‖f‖²_K is lost beside them.
MOST_PENALTY = 1e15


class Task:
    """What all targets of one fit share: the rows, the views, their factored penalties.

    Parameters
    ----------
    exact_only : bool
        Whether what is to come has no approximation.

    Attributes
    ----------
    rows : ndarray, int
        Rows of the expansion: all of them with a graph or with agreement, else those that
        are labelled for some target.
    expansion : Expansion or BlockExpansion
    basis : Basis or None
        The functions of an approximated fit.
    """

    basis: Basis | None = None

    def __init__(self, settings: Settings, data: Data, *, exact_only: bool = False) -> None:
        self.settings, self.data, self.exact_only = settings, data, exact_only
        self.started = time.perf_counter()
        coupled = settings.agreement > 0.0 and len(settings.views) > 1
        self.coupled, self.everything = coupled, settings.manifold > 0.0 or coupled
        labelled = data.labelled.any(axis=1)
        self.rows = np.arange(len(data.y)) if self.everything else np.flatnonzero(labelled)
        self.expansion: Any
        if settings.approximation is None:
            self.expansion = self._expand()
        else:
            self.rows = np.arange(len(data.y))
            self.expansion = self._expand_in_blocks(settings.approximation)
        self.reductions: dict[tuple[bytes, bytes], Reduction | BlockReduction] = {}

    def sharpen(self) -> None:
        """Factor the penalties once more, exactly."""
        self.expansion = self._expand(exact=True)
        self.reductions = {}

    def _expand(self, *, exact: bool = False) -> Expansion:
        settings = self.settings
        X = [self._rows_of_expansion(view.select(self.data.X)) for view in settings.views]
        pairs = zip(settings.views, X, strict=True)
        dense = sum(needs_gram_matrix(view.kernel, x) for view, x in pairs)
        if dense:
            check_memory(
                len(self.rows),
                dense,
                with_penalty=self.coupled,
                several_targets=self.data.y.shape[1] > 1,
                remedy=self._smaller(),
            )
        needs_features = settings.manifold > 0.0 and not self.coupled
        parts = []
        for view, x in zip(settings.views, X, strict=True):
            with view.named_in_errors():
                penalty = self._penalty(view, x) if settings.manifold > 0.0 else None
                parts.append(build_part(view.kernel, x, penalty, needs_features=needs_features))
        self._check_penalties([part.operator.diagonal for part in parts])
        try:
            return Expansion(
                parts,
                alpha=settings.alpha,
                manifold=settings.manifold,
                agreement=settings.agreement,
                exact=exact,
            )
        except BreakdownError:
            raise self._too_large() from None

    def _expand_in_blocks(self, approximation: Approximation) -> BlockExpansion:
        settings, rows = self.settings, self.data.X
        assert isinstance(rows, Rows)
        kernels = [view.kernel for view in settings.views]
        columns = [view.columns for view in settings.views]
        labels = np.where(self.data.labelled, self.data.y, np.nan)
        self.basis, sample = build_basis(
            approximation, kernels, columns, rows, labels, settings.fit_intercept
        )
        with np.errstate(over="ignore"):
            self._check_penalties(
                [view.kernel.diagonal(view.select(sample)) for view in settings.views]
            )
        graphs_of_sample = []
        for view in settings.views if settings.manifold > 0.0 else ():
            with view.named_in_errors():
                graphs_of_sample.append(self._penalty(view, view.select(sample)))
        coupling = settings.agreement / settings.alpha if self.coupled else 0.0
        penalty = graph_penalty(
            self.basis,
            sample,
            graphs_of_sample,
            settings.manifold / settings.alpha,
            coupling,
            rows,
        )
        try:
            return BlockExpansion(rows, self.basis, penalty, coupling)
        except BreakdownError:
            raise self._too_large() from None

    def _smaller(self) -> str:
        """What to do about matrices that are too large for memory."""
        settings = self.settings
        rows = "fewer rows, labelled or not" if self.everything else "fewer labelled rows"
        if self.exact_only or settings.holds_matrices or settings.algorithm == "paper":
            return f"use {rows}"
        return f'use approximation="nystrom" (with n_components) or {rows}'

    def _check_penalties(self, diagonals: list[Vector]) -> None:
        """Raise if ‖f‖²_K is lost beside the other terms; `diagonals` are K_ii of the views."""
        weight = max(self.settings.manifold, self.settings.agreement if self.coupled else 0.0)
        largest = max(float(np.max(diagonal)) for diagonal in diagonals)
        if weight * largest > MOST_PENALTY * self.settings.alpha:
            raise self._too_large(largest)

    def _too_large(self, largest: float | None = None) -> ValueError:
        settings = self.settings
        values = "" if largest is None else f" and kernel values up to {largest:.1g}"
        return ValueError(
            f"manifold={settings.manifold:g} or agreement={settings.agreement:g} is too "
            f"large beside alpha={settings.alpha:g}{values} for double precision; use a larger "
            "alpha or smaller weights of the other terms"
        )

    def _penalty(self, view: ViewSettings, X: Matrix) -> Any:
        return graphs.build(
            view.graph,
            X,
            n_neighbors=view.n_neighbors,
            gamma=view.kernel.gamma,
            precomputed=self.settings.precomputed,
        )

    def _rows_of_expansion(self, X: Matrix) -> Matrix:
        if len(self.rows) == len(X):
            return X
        return X[np.ix_(self.rows, self.rows)] if self.settings.precomputed else X[self.rows]

    def reduce(self, position: np.ndarray, weights: Vector) -> Any:
        """The reduction for some labelled rows, shared by targets that have the same."""
        key = (position.tobytes(), weights.tobytes())
        if key not in self.reductions:
            reduction = self.expansion.reduce(position, weights, self.settings.fit_intercept)
            if self.data.y.shape[1] > 1:
                reduction = replace(reduction, gram=reduction.gram.shared())
            self.reductions = {key: reduction}
        return self.reductions[key]
