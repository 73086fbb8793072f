"""Between resolved settings and the search: families of kernels, and settings at a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

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
    MovableKernel,
    Point,
)
from activehuber.selection.criterion import ObservedLabels
from activehuber.selection.scoring import judge, left_out_errors
from activehuber.selection.search import (
    RIDGES,
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


def codes_of(data: Data, fit_intercept: bool) -> ObservedLabels:
    """Labels as they are, one column a target."""
    rows = data.labelled[:, 0]
    return ObservedLabels(
        data.y[rows],
        data.weights[rows],
        data.trusted[rows, 0],
        fit_intercept,
        rows=np.arange(rows.sum()),
        kept=np.ones(rows.sum(), dtype=bool),
        groups=None if data.groups is None else data.groups[rows],
    )


def labels_of(data: Data, fit_intercept: bool) -> tuple[ObservedLabels, float]:
    """The labels of the first target in units of their scale, and that scale.

    Centred so that no digits are lost, and rounded so that units cannot decide.
    """
    labels = codes_of(data, fit_intercept)
    y, weights = labels.y[:, 0], labels.weights
    centre = robust.weighted_median(y, weights) if fit_intercept else 0.0
    scale = robust.label_scale(y, weights) or 1.0
    return replace(labels, y=rounded_labels(y - centre, scale)), scale


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
    n_widths = int(any(part.moves for part in parts))
    return Family(name, tuple(parts), n_widths, (settings, data))


def choose(
    candidates: Sequence[Settings],
    data: Data,
    manifolds: Sequence[float],
    plan: Plan,
    *,
    classes: bool = False,
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
    classes : bool
        Whether the columns of y are codes of ±1.
    """
    precomputed, with_graph = candidates[0].precomputed, max(manifolds) > 0.0
    if all(each.knows_rows_by_value(with_graph=with_graph) for each in candidates):
        # In an order of the rows' own: folds and parts follow it.
        data = data.take(data.order(precomputed=precomputed), precomputed=precomputed)
    families, plan = _prepare(candidates, data, manifolds, plan, move_widths)
    if classes:
        return search_classes(families, codes_of(data, candidates[0].fit_intercept), plan)
    return search(families, labels_of(data, candidates[0].fit_intercept)[0], plan)


# The same for codes of ±1 in the columns of y.
choose_for_classes = partial(choose, classes=True)


def grid_errors(
    candidates: Sequence[Settings], data: Data, manifolds: Sequence[float], plan: Plan
) -> Iterator[tuple[Point, Vector]]:
    """Every point of the grid, with its leave-one-out errors."""
    labels, scale = labels_of(data, candidates[0].fit_intercept)
    families, plan = _prepare(candidates, data, manifolds, plan, True)
    tried = [*families] if plan.without_graph else []
    tried += [family.coupled(each) for each in plan.manifolds for family in families]
    for point, Q in grid(tried, labels.rows, plan):
        if plan.removal is None:
            errors = left_out_errors(Q, labels, point.ridge, labels.kept)
        else:
            rule = DEFAULT_RULE.with_removal(plan.removal)
            verdict = judge(Q, labels, point.ridge, rule)
            errors = None if verdict is None else verdict.errors
        if errors is not None:
            yield point, scale * errors


def _prepare(
    candidates: Sequence[Settings],
    data: Data,
    manifolds: Sequence[float],
    plan: Plan,
    move_widths: bool,
) -> tuple[list[Family], Plan]:
    """Families, one a candidate, and the plan with what is coupled."""
    coupled = candidates[0].agreement > 0.0
    families = [family_of(each, data, move_widths=move_widths) for each in candidates]
    graphs = tuple(float(each) for each in manifolds if each > 0.0 or coupled)
    plain = not coupled and any(each == 0.0 for each in manifolds)
    return families, replace(plan, manifolds=graphs, without_graph=plain)


def default_plan(total_weight: float, alpha: float | None = None, **changes) -> Plan:
    """The plan of the default search; a given alpha stays."""
    ridges = RIDGES if alpha is None else (2.0 * total_weight * alpha,)
    return Plan(log_ridges=tuple(np.log(ridges)), move_ridge=alpha is None, **changes)
