"""The search for kernel, widths and alpha: judge the labels, move, decide on held-out folds.

First `selection.joint` finds the labels to keep and, of a grid, the kernel under which they are
likely. Widths and ridge are then moved along the slopes of the leave-one-out `criterion` of the
labels kept. Kernels are moved one by one, then added up and moved together, with a width each:
a rough one and a smooth one see structure at two scales. The last decision, between kernels and
between one width and many, is made on folds: fitted to labels kept, scored on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.numerics.linalg import BreakdownError
from activehuber.selection.candidates import Family, MovableKernel, Point
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


@dataclass(frozen=True)
class SearchResult:
    """The end of a search.

    Attributes
    ----------
    point : Point
        On all labelled rows.
    score : float
        Minus the loss of the last decision, as candidates were compared by it.
    trials : list of Trial
    """

    point: Point
    score: float
    trials: list[Trial]


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


UNFIT = (
    "no candidate could be fitted in double precision; give larger alphas or standardise "
    "the features"
)
by_score = attrgetter("score")


def search(families: Sequence[Family], labels: ObservedLabels, plan: Plan) -> SearchResult:
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


def search_classes(
    families: Sequence[Family], labels: ObservedLabels, plan: Plan
) -> SearchResult:
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
    best = max(decided, key=by_score)
    return SearchResult(best.point, best.score, trials + decided)


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
) -> SearchResult:
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
    return SearchResult(best.point, best.score, trials)


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
