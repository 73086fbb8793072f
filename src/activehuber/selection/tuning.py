"""Between resolved settings and the search: families of kernels, and settings at a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from activehuber._typing import Vector
from activehuber.fitting.settings import Data, Settings
from activehuber.labels.adaptive import rounded_labels
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.numerics import robust
from activehuber.selection.candidates import (
    VIEWS,
    WIDTH_KERNELS,
    Family,
    FitWithGraph,
    MovableKernel,
    Point,
)
from activehuber.selection.criterion import ObservedLabels
from activehuber.selection.scoring import judge, left_out_errors
from activehuber.selection.search import (
    RIDGES,
    WIDTH_FACTORS,
    Plan,
    SearchResult,
    grid,
    search,
    search_classes,
)

# Labels that a choice can rest on at all.
FEWEST_LABELS = 3


def check_enough_labels(data: Data, remedy: str) -> None:
    """Raise unless there are labels enough for a choice to rest on."""
    count = int(np.count_nonzero(data.labelled[:, 0]))
    if count < FEWEST_LABELS:
        raise ValueError(
            f"choosing parameters needs at least {FEWEST_LABELS} labels, got {count} "
            f"(n_samples={len(data.y)}); {remedy}"
        )


def labels_of(data: Data, fit_intercept: bool) -> tuple[ObservedLabels, float]:
    """The labels of the first target in units of their scale, and that scale.

    Centred so that no digits are lost, and rounded so that units cannot decide.
    """
    rows = data.labelled[:, 0]
    y, weights = data.y[rows, 0], data.weights[rows]
    centre = robust.weighted_median(y, weights) if fit_intercept else 0.0
    scale = robust.label_scale(y, weights) or 1.0
    y = rounded_labels(y - centre, scale)
    groups = None if data.groups is None else data.groups[rows]
    return ObservedLabels(y, weights, data.trusted[rows, 0], fit_intercept, groups), scale


def codes_of(data: Data, fit_intercept: bool) -> ObservedLabels:
    """Codes of ±1, one column a target."""
    rows = data.labelled[:, 0]
    groups = None if data.groups is None else data.groups[rows]
    return ObservedLabels(
        data.y[rows], data.weights[rows], data.trusted[rows, 0], fit_intercept, groups
    )


def family_of(settings: Settings, data: Data, *, move_widths: bool) -> Family:
    """All kernels of the settings on the labelled rows, with one width to move."""
    rows = np.flatnonzero(data.labelled.any(axis=1))
    m = len(settings.views)
    weights = np.full(m, 1.0 / m) if settings.view_weights is None else settings.view_weights
    parts = []
    for view, weight in zip(settings.views, weights, strict=True):
        X = view.select(data.X)
        X = X[np.ix_(rows, rows)] if settings.precomputed else X[rows]
        moves = move_widths and view.kernel.name in WIDTH_KERNELS
        place = np.full(X.shape[1], 0 if moves else -1)
        share, X = float(weight) ** 2, np.ascontiguousarray(X)
        parts.append(MovableKernel(view.kernel, X, share, place, view.columns))
    name = str(settings.views[0].kernel.name) if m == 1 else VIEWS
    return Family(name, tuple(parts), int(any(part.moves for part in parts)))


def choose(
    candidates: Sequence[Settings],
    data: Data,
    manifolds: Sequence[float],
    plan: Plan,
    *,
    move_widths: bool = True,
) -> SearchResult:
    """The best point among candidates that differ in their kernels.

    Parameters
    ----------
    candidates : sequence of Settings
        With manifold 0.
    manifolds : sequence of float
        To be tried; anything above zero (or agreement above zero) is tried at the best points
        of the search without.
    plan : Plan
        Without graphs.
    """
    data = _ordered(candidates, data, manifolds)
    labels, _ = labels_of(data, candidates[0].fit_intercept)
    families, plan = _prepare(candidates, data, manifolds, plan, move_widths)
    return search(families, labels, plan)


def choose_for_classes(
    candidates: Sequence[Settings], data: Data, manifolds: Sequence[float], plan: Plan
) -> SearchResult:
    """The same for codes of ±1 in the columns of y."""
    data = _ordered(candidates, data, manifolds)
    families, plan = _prepare(candidates, data, manifolds, plan, True)
    return search_classes(families, codes_of(data, candidates[0].fit_intercept), plan)


def grid_errors(
    candidates: Sequence[Settings], data: Data, manifolds: Sequence[float], plan: Plan
) -> Iterator[tuple[Point, Vector]]:
    """Every point of the grid, with its leave-one-out errors."""
    labels, scale = labels_of(data, candidates[0].fit_intercept)
    families, plan = _prepare(candidates, data, manifolds, plan, True)
    everything = list(families) if plan.without_graph else []
    everything += [f.with_graph(fits[f.name]) for fits in plan.graphs for f in families]
    for family, point, Q in grid(everything, np.arange(len(labels)), plan):
        if plan.removal is None:
            everyone = np.ones(len(labels), dtype=bool)
            errors = left_out_errors(Q, labels, point.ridge, everyone)
        else:
            rule = DEFAULT_RULE.with_removal(plan.removal)
            verdict = judge(Q, labels, point.ridge, rule)
            errors = None if verdict is None else verdict.errors
        if errors is not None:
            yield replace(point, family=family), scale * errors


def _ordered(candidates: Sequence[Settings], data: Data, manifolds: Sequence[float]) -> Data:
    """The rows in an order of their own: folds and parts follow it."""
    with_graph = any(manifold > 0.0 for manifold in manifolds)
    if not all(each.knows_rows_by_value(with_graph=with_graph) for each in candidates):
        return data
    precomputed = candidates[0].precomputed
    return data.take(data.order(precomputed=precomputed), precomputed=precomputed)


def _prepare(
    candidates: Sequence[Settings],
    data: Data,
    manifolds: Sequence[float],
    plan: Plan,
    move_widths: bool,
) -> tuple[list[Family], Plan]:
    """Families, one a candidate, and the plan with its graphs."""
    coupled = candidates[0].agreement > 0.0
    families = [family_of(each, data, move_widths=move_widths) for each in candidates]
    names = [family.name for family in families]
    graphs = tuple(
        {
            name: FitWithGraph(replace(each, manifold=float(manifold)), data)
            for name, each in zip(names, candidates, strict=True)
        }
        for manifold in manifolds
        if manifold > 0.0 or coupled
    )
    plain = not coupled and any(m == 0.0 for m in manifolds)
    return families, replace(plan, graphs=graphs, without_graph=plain)


def default_plan(total_weight: float, alpha: float | None = None, **changes) -> Plan:
    """The plan of the default search; a given alpha stays."""
    ridges = RIDGES if alpha is None else (2.0 * total_weight * alpha,)
    return Plan(
        log_factors=tuple(np.log(WIDTH_FACTORS)),
        log_ridges=tuple(np.log(ridges)),
        move_ridge=alpha is None,
        **changes,
    )
