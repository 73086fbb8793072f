"""The search for kernel, widths and alpha: judge the labels, move, decide on held-out folds.

First `selection.joint` finds the labels to keep and, of a grid, the kernel under which they are
likely. Widths and ridge are then moved along the slopes of the leave-one-out `criterion` of the
labels kept. Kernels are moved one by one, then added up and moved together, with a width each:
a rough one and a smooth one see structure at two scales. The last decision, between kernels and
between one width and many, is made on folds: fitted to labels kept, scored on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.numerics.linalg import BreakdownError
from activehuber.selection.candidates import Family, FitWithGraph, MovableKernel, Point
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
    graphs : tuple of dict of str to FitWithGraph
        Fits with a graph, by the names of the families, to be tried at the best points.
    without_graph : bool
        Whether the families themselves may be chosen.
    random_state : int
        For the rows of the first look and the folds.
    report : callable
        Gets a line of text for each stage.
    """

    log_factors: tuple[float, ...]
    log_ridges: tuple[float, ...]
    move: bool = True
    move_ridge: bool = True
    relevance: bool = False
    removal: float | None = DEFAULT_RULE.removal
    by_evidence: bool = False
    graphs: tuple[dict[str, FitWithGraph], ...] = ()
    without_graph: bool = True
    random_state: int = 0
    report: Callable[[str], Any] = lambda line: None


UNFIT = (
    "no candidate could be fitted in double precision; give larger alphas or standardise "
    "the features"
)


@dataclass(frozen=True)
class _Judged:
    """Labelled rows that were judged, and which of all labels are kept among them."""

    labels: ObservedLabels
    rows: np.ndarray
    kept: Mask

    def some(self, at_most: int, seed: int) -> np.ndarray:
        """Some of the rows that were judged."""
        return self.rows[_subset(len(self.rows), at_most, seed)]


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
        max((t for t in trials if t.point.family is family), key=lambda t: t.score)
        for family in families
    ]
    best_of_all = max(look.score for look in looks)
    # Widths of their own are learnt for the sum of all kernels, where there is one.
    alone = replace(plan, relevance=False) if adds_up else plan
    ends: list[Point] = []
    summands: list[Point] = []
    for look in looks:
        if look.score < best_of_all - HOPELESS:
            summands.append(look.point)
            continue
        path = _move(look.point, judged, alone, trials)
        summands.append(path[-1])
        ends += [*(path if plan.without_graph else []), *_with_graphs(path[-1], plan)]
        plan.report(f"{look.point.family.name}: moved to {len(path)} candidates")
    if adds_up and len(summands) > 1:
        ends += _move(sum_of(summands), judged, plan, trials)
        plan.report("moved all kernels together")
    return _decide(ends, judged, plan, trials)


def sum_of(points: Sequence[Point]) -> Point:
    """The mean of several kernels, with the geometric mean of their ridges."""
    parts: tuple[MovableKernel, ...] = ()
    offset = 0
    for point in points:
        for part in point.family.parts:
            place = np.where(part.place >= 0, part.place + offset, -1)
            parts += (replace(part, share=part.share / len(points), place=place),)
        offset += point.family.n_widths
    family = Family(" + ".join(point.family.name for point in points), parts, offset)
    theta = np.concatenate([point.theta for point in points])
    return Point(family, theta, float(np.mean([point.log_ridge for point in points])))


def search_classes(
    families: Sequence[Family], labels: ObservedLabels, plan: Plan
) -> SearchResult:
    """The same for codes of ±1 (one column a class), all in closed form.

    Codes bound the errors by themselves, so points are scored by least squares, by the evidence
    of the codes. Which labels to drop is left to the classifier.
    """
    rows = _subset(len(labels), CLASS_LOOK_ROWS, plan.random_state)
    some, trials = labels.take(rows), []
    for family, point, Q in grid(families, rows, plan):
        score = _scored_by_evidence(Q.copy(), some, point.ridge)
        if score is not None:
            trials.append(Trial(replace(point, family=family), "look", score))
    if not trials:
        raise ValueError(UNFIT)
    plan.report(f"looked at {len(trials)} points on {len(rows)} labels")
    many = _subset(len(labels), CLASS_DECIDE_ROWS, plan.random_state + 2)
    ends: list[Trial] = []
    for family in families:
        own = [trial for trial in trials if trial.point.family is family]
        if not own:
            continue
        moved = _move_classes(max(own, key=lambda trial: trial.score).point, labels, plan)
        plain = [moved] if plan.without_graph else []
        for point in [*plain, *_with_graphs(moved, plan)]:
            score = _scored_by_evidence(point.gram(many), labels.take(many), point.ridge)
            if score is not None:
                ends.append(Trial(point, "decide", score))
    if not ends:
        raise ValueError(UNFIT)
    plan.report(f"decided between {len(ends)} candidates on {len(many)} labels")
    best = max(ends, key=lambda trial: trial.score)
    return SearchResult(best.point, best.score, trials + ends)


def _move_classes(start: Point, labels: ObservedLabels, plan: Plan) -> Point:
    """From the best point of the grid to a better one, first with one width, then with many."""
    rows = _subset(len(labels), CLASS_MOVE_ROWS, plan.random_state + 1)
    some, everyone = labels.take(rows), np.ones(len(rows), dtype=bool)
    goal: Goal = negative_log_marginal_likelihood
    if some.in_groups:
        goal = partial(criterion, smoothing=1.0)  # of codes ±1: nearly squares
    here = start
    for stage, steps in _stages(start, plan):
        wide = stage == "relevance" and len(here.theta) != here.family.one_width_each().n_widths
        here = here.with_one_width_each() if wide else here
        there = improve(
            replace(here, family=here.family.take(rows)),
            some,
            everyone,
            steps,
            move_ridge=plan.move_ridge,
            goal=goal,
            ridge_range=CLASS_RIDGE_RANGE,
        )
        here = replace(there, family=here.family)
    return here


def _scored_by_evidence(Q: Matrix, labels: ObservedLabels, ridge: float) -> float | None:
    """Evidence; None beyond double precision. Overwrites Q."""
    try:
        return evidence(Q, labels, ridge)
    except BreakdownError:
        return None


def _with_graphs(point: Point, plan: Plan) -> list[Point]:
    """The point with every graph and three ridges."""
    moves = (0.0, -np.log(10.0), np.log(10.0)) if plan.move_ridge else (0.0,)
    families = [point.family.with_graph(fits[point.family.name]) for fits in plan.graphs]
    return [
        Point(family, point.theta, point.log_ridge + move)
        for family in families
        for move in moves
    ]


def _subset(n: int, at_most: int, seed: int) -> np.ndarray:
    if n <= at_most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:at_most])


def _look(
    families: Sequence[Family], labels: ObservedLabels, plan: Plan
) -> tuple[_Judged, list[Trial], Family | None]:
    """Labels judged with the grid of kernels, its points, and the kernel of the best end."""
    rows = _subset(len(labels), RANK_ROWS, plan.random_state)
    first = _subset(len(rows), LOOK_ROWS, plan.random_state + 1)
    rule = DEFAULT_RULE.with_removal(plan.removal)
    taken = [family.take(rows) for family in families]
    try:
        verdict = judge_jointly(
            taken,
            labels.take(rows),
            first,
            sorted(plan.log_factors),
            np.sort(plan.log_ridges),
            rule,
        )
    except BreakdownError as error:
        raise ValueError(UNFIT) from error
    kept = np.zeros(len(labels), dtype=bool)
    kept[rows] = True if plan.removal is None else verdict.kept
    whole = {id(part): family for part, family in zip(taken, families, strict=True)}
    trials = [
        Trial(replace(point, family=whole[id(point.family)]), "look", level)
        for point, level in verdict.looks
    ]
    plan.report(f"judged {len(rows)} labels, {np.sum(~kept[rows])} of them are left out")
    found = None if verdict.family is None else whole[id(verdict.family)]
    return _Judged(labels, rows, kept), trials, found


def grid(
    families: Sequence[Family], rows: np.ndarray, plan: Plan
) -> Iterator[tuple[Family, Point, Matrix]]:
    """Every family at every point of the grid: the family, the point and Q on some rows."""
    for family in families:
        Q, theta = None, None
        for point in grid_points(family.take(rows), plan):
            if Q is None or point.theta is not theta or family.fit is not None:
                Q, theta = point.gram(), point.theta
            yield family, point, Q


def grid_points(family: Family, plan: Plan) -> Iterator[Point]:
    """The points of the grid, all ridges of one width (the same θ) after each other."""
    for factor in plan.log_factors if family.n_widths else (0.0,):
        theta = np.full(family.n_widths, factor)
        yield from (Point(family, theta, log_ridge) for log_ridge in plan.log_ridges)


def _move(start: Point, judged: _Judged, plan: Plan, trials: list[Trial]) -> list[Point]:
    """From one point to better ones for the labels kept.

    Returns the last point with one width a kernel, and the last with many if there is one.
    """
    at_most = RELEVANCE_ROWS if plan.relevance else MOVE_ROWS
    rows = judged.some(at_most, plan.random_state + 1)
    if start.family.fit is not None:
        return [start]
    some, kept = judged.labels.take(rows), judged.kept[rows]
    ends = {"move": start}
    for stage, steps in _stages(start, plan):
        here = ends.get(stage) or ends["move"].with_one_width_each()
        small = replace(here, family=here.family.take(rows))
        there = improve(small, some, kept, steps, move_ridge=plan.move_ridge)
        if there is small:
            continue
        ends[stage] = replace(there, family=here.family)
        errors = left_out_errors(there.gram(), some, there.ridge, kept)
        if errors is not None:
            score = -robust_loss(errors, some.weights, common_scale([errors], some.weights))
            trials.append(Trial(ends[stage], stage, score))
    return list(ends.values())


def _stages(start: Point, plan: Plan) -> list[tuple[str, int]]:
    """Names and steps of the moves to make."""
    stages = []
    if plan.move and (start.family.n_widths or plan.move_ridge):
        stages += [("move", STEPS_ONE)]
    if plan.relevance and start.family.one_width_each().n_widths > 1:
        stages += [("relevance", STEPS_MANY)]
    return stages


def _decide(
    ends: Sequence[Point], judged: _Judged, plan: Plan, trials: list[Trial]
) -> SearchResult:
    """Among the ends of all moves, by held-out folds."""
    rows = judged.some(DECIDE_ROWS, plan.random_state + 2)
    some, kept = judged.labels.take(rows), judged.kept[rows]
    folds = folds_of(len(some), plan.random_state, some.groups)
    seen: list[tuple[Point, Vector]] = []
    for point in ends:
        errors = held_out_errors(point.gram(rows), some, point.ridge, kept, folds)
        if errors is not None:
            seen.append((point, errors))
    if not seen:
        raise ValueError(UNFIT)
    decided = _compared(seen, some, "decide")
    trials += decided
    plan.report(f"decided between {len(decided)} candidates on {len(folds)} folds")
    place = int(np.argmax([trial.score for trial in decided]))
    if len(rows) < len(judged.rows):
        place = _ranked_on_more(decided, place, judged)
    best = decided[place]
    moves = len(judged.labels) > MOVE_ROWS and plan.move
    point = _polish(best.point, judged, plan) if moves else best.point
    return SearchResult(point, best.score, trials)


def _compared(
    seen: Sequence[tuple[Point, Vector]], labels: ObservedLabels, stage: str
) -> list[Trial]:
    """Points by the robust loss of their errors, more for freedom that fits chance."""
    scale = common_scale([errors for _, errors in seen], labels.weights)
    out = []
    for point, errors in seen:
        loss = robust_loss(errors, labels.weights, scale)
        loss += HANDICAP_WIDTHS * len(point.theta) / len(labels)
        out.append(Trial(point, stage, -loss))
    return out


def _ranked_on_more(decided: list[Trial], first: int, judged: _Judged) -> int:
    """Which candidate is best on more rows, by leave-one-out errors.

    Smoother kernels gain more from more labels.
    """
    some, kept = judged.labels.take(judged.rows), judged.kept[judged.rows]
    within = RANK_MARGIN * decided[first].score  # scores are negative
    places = [i for i, trial in enumerate(decided) if trial.score >= within]
    if len(places) == 1:
        return first
    seen, found = [], []
    for i in places:
        point = decided[i].point
        errors = left_out_errors(point.gram(judged.rows), some, point.ridge, kept)
        if errors is not None:
            seen.append((point, errors))
            found.append(i)
    if not seen:
        return first
    return found[int(np.argmax([trial.score for trial in _compared(seen, some, "rank")]))]


def _polish(best: Point, judged: _Judged, plan: Plan) -> Point:
    """A few more steps on more rows than the moves were made on."""
    if best.family.fit is not None:
        return best
    here = replace(best, family=best.family.take(judged.rows))
    some, kept = judged.labels.take(judged.rows), judged.kept[judged.rows]
    there = improve(here, some, kept, STEPS_LAST, move_ridge=plan.move_ridge)
    return replace(there, family=best.family)


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
