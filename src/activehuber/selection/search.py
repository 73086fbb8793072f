"""The search for kernel, widths and alpha: judge the labels, move, decide on held-out folds.

First `selection.joint` finds the labels to keep and, of a grid, the kernel under which they are
likely. Widths and ridge are then moved along the slopes of the leave-one-out `criterion` of the
labels kept. Kernels are moved one by one, then added up and moved together, with a width each:
a rough one and a smooth one see structure at two scales. The last decision, between kernels and
between one width and many, is made on folds: fitted to labels kept, scored on all of them.

Kernels come as the resolved settings of a fit each; their families are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.fitting.settings import Data, Settings
from activehuber.labels.adaptive import rounded_labels
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError
from activehuber.selection.candidates import VIEWS, WIDTH_KERNELS, Family, MovableKernel, Point
from activehuber.selection.criterion import (
    Goal,
    ObservedLabels,
    criterion,
    evidence,
    improve,
    negative_log_marginal_likelihood,
)
from activehuber.selection.joint import judge_jointly
from activehuber.selection.scoring import (
    common_scale,
    held_out_errors,
    judge,
    left_out_errors,
    robust_loss,
)
from activehuber.solver.leave_one_out import members

# The grid of the first look: factors on gamma="scale", and the ridge m = 2Sλ, which is noise
# variance over signal variance and does not depend on the number of labels.
WIDTH_FACTORS = (0.03, 0.1, 0.3, 1.0)
RIDGES = tuple(np.geomspace(1e-3, 30.0, 10))
# The same for codes of classes: where 40 % of them are flipped, noise has 25 times the variance
# of the signal, and a linear kernel multiplies that by the number of features.
CLASS_RIDGES = (1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
CLASS_RIDGE_RANGE = (1e-3, 1e5)
# Rows that each part of the search is made on: the ridge m does not depend on their number,
# and widths hardly do, while the time grows with its cube. Many widths need more labels.
LOOK_ROWS = 200
MOVE_ROWS = 500
RELEVANCE_ROWS = 700
DECIDE_ROWS = 600
RANK_ROWS = 1000
CLASS_LOOK_ROWS = 500
CLASS_MOVE_ROWS = 700
CLASS_DECIDE_ROWS = 1500
# A kernel whose log evidence a label is this much below the best one's is not moved by itself;
# it takes part in the sum of all of them.
HOPELESS = 0.25
# Steps of L-BFGS for one width, for one a feature, and for the last polish.
STEPS_ONE = 12
STEPS_MANY = 30
STEPS_LAST = 6
# More freedom must pay for itself: widths that were fitted to l labels flatter the errors on
# them by about a share of their number over l, and cost as much on others (as Akaike's
# criterion has it); errors grown by a share δ add 0.7 δ to the robust loss of good labels.
HANDICAP_WIDTHS = 1.4
FOLDS = 5
# Candidates whose loss on few rows is up to this factor that of the best are tried on more.
RANK_MARGIN = 1.1


@dataclass(frozen=True)
class Trial:
    """One line of the record: a point, how it was reached, its score (higher is better)."""

    point: Point
    stage: str
    score: float


# The best one as candidates were compared, on all labelled rows, and the whole record.
Found = tuple[Trial, list[Trial]]


@dataclass(frozen=True)
class Plan:
    """What may be tried.

    Attributes
    ----------
    log_factors : tuple of float
        Log factors on the widths for the first look.
    log_ridges : tuple of float
        Logs of the ridge for the first look.
    move : bool
        Whether the search may leave the grid.
    move_ridge : bool
        Whether the ridge may move then.
    relevance : bool
        Whether features (or views) get widths of their own.
    removal : float or None
        Labels that are wrong with a greater probability take no part; None: all do.
    by_evidence : bool
        Whether the kernel is that of the best end of the first look, since labels are too few
        to be held out.
    manifolds : tuple of float
        Weights of the graph to be tried at the best points, together with the agreement.
    without_graph : bool
        Whether the families themselves may be chosen.
    random_state : int
        For the rows of the first look and the folds.
    report : callable
        Gets a line of text for each stage.
    """

    log_factors: tuple[float, ...] = tuple(np.log(WIDTH_FACTORS))
    log_ridges: tuple[float, ...] = tuple(np.log(RIDGES))
    move: bool = True
    move_ridge: bool = True
    relevance: bool = False
    removal: float | None = DEFAULT_RULE.removal
    by_evidence: bool = False
    manifolds: tuple[float, ...] = ()
    without_graph: bool = True
    random_state: int = 0
    report: Callable[[str], Any] = lambda line: None


# Labels that a choice can rest on at all.
FEWEST_LABELS = 3
UNFIT = (
    "no candidate could be fitted in double precision; give larger alphas or standardise "
    "the features"
)
by_score = attrgetter("score")


def search(families: Sequence[Family], labels: ObservedLabels, plan: Plan) -> Found:
    """Judge the labels, move from the best point of each kernel, decide on held-out folds.

    Parameters
    ----------
    families : sequence of Family
        One a kernel, on all labelled rows, with one width.
    """
    judged, trials, found = _look(families, labels, plan)
    if plan.by_evidence and found is not None:
        families = [found]
    adds_up = len(families) > 1 and plan.without_graph and plan.move
    looks = [
        max((trial for trial in trials if trial.point.family is family), key=by_score)
        for family in families
    ]
    hopeless = max(look.score for look in looks) - HOPELESS
    # Widths of their own are learnt for the sum of all kernels, where there is one.
    alone = replace(plan, relevance=False) if adds_up else plan
    ends: list[Point] = []
    summands: list[Point] = []
    for look in looks:
        if look.score < hopeless:
            summands.append(look.point)
            continue
        path = _move(look.point, judged, alone, trials)
        summands.append(path[-1])
        ends += _with_graphs(path, plan)
        plan.report(f"{look.point.family.name}: moved to {len(path)} candidates")
    if adds_up and len(summands) > 1:
        ends += _move(sum_of(summands), judged, plan, trials)
        plan.report("moved all kernels together")
    return _decide(ends, judged, plan, trials)


def sum_of(points: Sequence[Point]) -> Point:
    """The mean of several kernels, with the geometric mean of their ridges."""
    parts: list[MovableKernel] = []
    theta = np.zeros(0)
    for point in points:
        for part in point.family.parts:
            place = np.where(part.place >= 0, part.place + len(theta), -1)
            parts.append(replace(part, share=part.share / len(points), place=place))
        theta = np.append(theta, point.theta)
    name = " + ".join(point.family.name for point in points)
    family = Family(name, tuple(parts), len(theta))
    return Point(family, theta, float(np.mean([point.log_ridge for point in points])))


def search_classes(families: Sequence[Family], labels: ObservedLabels, plan: Plan) -> Found:
    """The same for codes of ±1 (one column a class), all in closed form.

    Codes bound the errors by themselves, so points are scored by least squares, by the evidence
    of the codes. Which labels to drop is left to the classifier.
    """
    some = labels.some(CLASS_LOOK_ROWS, plan.random_state)
    more = labels.some(CLASS_MOVE_ROWS, plan.random_state + 1)
    many = labels.some(CLASS_DECIDE_ROWS, plan.random_state + 2)
    looks = ((point, Q.copy()) for point, Q in grid(families, some.rows, plan))
    trials = _scored_by_evidence(looks, some, "look")
    plan.report(f"looked at {len(trials)} points on {len(some)} labels")
    goal: Goal = negative_log_marginal_likelihood
    if more.in_groups:
        goal = partial(criterion, smoothing=1.0)  # of codes ±1: nearly squares
    ends: list[Point] = []
    for family in families:
        own = [trial for trial in trials if trial.point.family is family]
        if own:
            start = max(own, key=by_score).point
            moves = _improved(start, more, plan, goal=goal, ridge_range=CLASS_RIDGE_RANGE)
            *_, end = start, *(point for _, point in moves)
            ends += _with_graphs([end], plan)
    fresh = ((point, point.gram(many.rows)) for point in ends)
    decided = _scored_by_evidence(fresh, many, "decide")
    plan.report(f"decided between {len(decided)} candidates on {len(many)} labels")
    return max(decided, key=by_score), trials + decided


def _scored_by_evidence(
    points: Iterable[tuple[Point, Matrix]], labels: ObservedLabels, stage: str
) -> list[Trial]:
    """Points with their Q, which is overwritten; those beyond double precision are left out."""
    found = []
    for point, Q in points:
        try:
            found.append(Trial(point, stage, evidence(Q, labels, point.ridge)))
        except BreakdownError:
            continue
    if not found:
        raise ValueError(UNFIT)
    return found


def _with_graphs(path: list[Point], plan: Plan) -> list[Point]:
    """The points if they may be chosen, and the last one with every graph and three ridges."""
    moves = (0.0, -np.log(10.0), np.log(10.0)) if plan.move_ridge else (0.0,)
    family, theta, log_ridge = path[-1].family, path[-1].theta, path[-1].log_ridge
    return (path if plan.without_graph else []) + [
        Point(family.coupled(manifold), theta, log_ridge + move)
        for manifold in plan.manifolds
        for move in moves
    ]


def _look(
    families: Sequence[Family], labels: ObservedLabels, plan: Plan
) -> tuple[ObservedLabels, list[Trial], Family | None]:
    """Labels judged with the grid of kernels, its points, and the kernel of the best end."""
    labels = labels.some(RANK_ROWS, plan.random_state)
    first = labels.some(LOOK_ROWS, plan.random_state + 1)
    factors, ridges = sorted(plan.log_factors), np.sort(plan.log_ridges)
    rule = DEFAULT_RULE.with_removal(plan.removal)
    try:
        kept, looks, best = judge_jointly(families, labels, first, factors, ridges, rule)
    except BreakdownError as error:
        raise ValueError(UNFIT) from error
    if plan.removal is not None:
        labels = replace(labels, kept=kept)
    plan.report(f"judged {len(kept)} labels, {np.sum(~labels.kept)} of them are left out")
    return labels, [Trial(point, "look", level) for point, level in looks], best


def grid(
    families: Sequence[Family], rows: np.ndarray, plan: Plan
) -> Iterator[tuple[Point, Matrix]]:
    """Every family at every point of the grid, and Q on some rows."""
    for family in families:
        Q, theta = None, None
        for point in grid_points(family, plan):
            if Q is None or point.theta is not theta or family.is_coupled:
                Q, theta = point.gram(rows), point.theta
            yield point, Q


def grid_points(family: Family, plan: Plan) -> Iterator[Point]:
    """The points of the grid, all ridges of one width (the same θ) after each other."""
    for factor in plan.log_factors if family.n_widths else (0.0,):
        theta = np.full(family.n_widths, factor)
        yield from (Point(family, theta, log_ridge) for log_ridge in plan.log_ridges)


def _move(start: Point, judged: ObservedLabels, plan: Plan, trials: list[Trial]) -> list[Point]:
    """From one point to better ones for the labels kept.

    Returns the last point with one width a kernel, and the last with many if there is one.
    """
    some = judged.some(RELEVANCE_ROWS if plan.relevance else MOVE_ROWS, plan.random_state + 1)
    ends = {"move": start}
    for stage, point in _improved(start, some, plan):
        ends[stage] = point
        trials += _compared([point], some, stage, left_out_errors, handicap=0.0)
    return list(ends.values())


def _improved(
    start: Point, some: ObservedLabels, plan: Plan, **options: Any
) -> Iterator[tuple[str, Point]]:
    """Names and ends of the moves that lead to better points; `options` are for `improve`."""
    here = start
    if plan.move and (start.family.n_widths or plan.move_ridge):
        here = improve(start, some, STEPS_ONE, move_ridge=plan.move_ridge, **options)
        if here is not start:
            yield "move", here
    wide = here.with_one_width_each()
    if plan.relevance and len(wide.theta) > 1:
        end = improve(wide, some, STEPS_MANY, move_ridge=plan.move_ridge, **options)
        if end is not wide:
            yield "relevance", end


def _decide(
    ends: Sequence[Point], judged: ObservedLabels, plan: Plan, trials: list[Trial]
) -> Found:
    """Among the ends of all moves, by held-out folds."""
    some = judged.some(DECIDE_ROWS, plan.random_state + 2)
    folds = folds_of(len(some), plan.random_state, some.groups)
    decided = _compared(ends, some, "decide", partial(held_out_errors, folds=folds))
    if not decided:
        raise ValueError(UNFIT)
    trials += decided
    plan.report(f"decided between {len(decided)} candidates on {len(folds)} folds")
    best = max(decided, key=by_score)
    # Smoother kernels gain more from more labels; scores are negative.
    close = [trial for trial in decided if trial.score >= RANK_MARGIN * best.score]
    if len(some) < len(judged) and len(close) > 1:
        points = [trial.point for trial in close]
        ranked = _compared(points, judged, "rank", left_out_errors)
        if ranked:
            first = max(ranked, key=by_score).point
            best = next(trial for trial in close if trial.point is first)
    if len(judged) > MOVE_ROWS and plan.move and not best.point.family.is_coupled:
        # A few more steps, on more rows than the moves were made on.
        point = improve(best.point, judged, STEPS_LAST, move_ridge=plan.move_ridge)
        best = replace(best, point=point)
    return best, trials


def _compared(
    points: Iterable[Point],
    some: ObservedLabels,
    stage: str,
    errors_of: Callable[..., Vector | None],
    *,
    handicap: float = HANDICAP_WIDTHS,
) -> list[Trial]:
    """Points by the robust loss of their errors, more for freedom that fits chance."""
    seen, weights = [], some.weights
    for point in points:
        errors = errors_of(point.gram(some.rows), some, point.ridge, some.kept)
        if errors is not None:
            seen.append((point, errors, handicap * len(point.theta) / len(weights)))
    scale = common_scale([errors for _, errors, _ in seen], weights)
    return [
        Trial(point, stage, -(robust_loss(errors, weights, scale) + more))
        for point, errors, more in seen
    ]


def folds_of(
    n: int, seed: int, groups: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """At most FOLDS random folds of n rows, as (train, test); those of a group stay together.

    Groups, the largest first and equal ones at random, go to the fold with the fewest rows.
    """
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, min(FOLDS, n))
    if groups is not None:
        units = sorted([*members(groups), *np.flatnonzero(groups < 0)[:, None]], key=min)
        if len(units) > 1:  # of a part that was drawn
            units = [units[i] for i in order if i < len(units)]
            held: list[list[int]] = [[] for _ in range(min(FOLDS, len(units)))]
            for unit in sorted(units, key=len, reverse=True):
                min(held, key=len).extend(unit.tolist())
            parts = [np.array(part) for part in held]
    everyone = np.arange(n)
    return [(np.setdiff1d(everyone, part), np.sort(part)) for part in parts]


# --- from settings to families ------------------------------------------------------------


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
) -> Found:
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
            _, errors = judge(Q, labels, point.ridge, rule) or (None, None)
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
