"""The search for kernel, widths and alpha: look at a grid, move, decide on held-out folds.

Every point is first judged by the adaptive threshold, and widths and ridge are moved along the
slopes of the leave-one-out `criterion` of the labels it kept: bad labels take no part in that,
unless least squares on all labels foretells others as well, which leaves no label in doubt.
Kernels are moved one by one, then added up and moved together, with a width each: a rough one
and a smooth one see structure at two scales.

That choice flatters itself, though: labels that were kept agree with each other because those
that disagreed are gone. So the last decision, between kernels, between one width and many, and
between dropping labels and only binding them, is made on folds whose labels had no say in what
was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.labels import refinement
from activehuber.numerics import robust
from activehuber.numerics.linalg import BreakdownError
from activehuber.selection.candidates import Family, MovableKernel, Point
from activehuber.selection.criterion import (
    ObservedLabels,
    evidence,
    improve,
    negative_log_marginal_likelihood,
)
from activehuber.selection.scoring import (
    Mode,
    common_scale,
    held_out_errors,
    judge,
    robust_loss,
    robust_scale,
)

# The grid of the first look: factors on gamma="scale", and the ridge m = 2Sλ, which is noise
# variance over signal variance and does not depend on the number of labels.
WIDTH_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
# The same for codes of classes: where 40 % of them are flipped, noise has 25 times the variance
# of the signal, and a linear kernel multiplies that by the number of features.
CLASS_RIDGES = (1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
CLASS_RIDGE_RANGE = (1e-5, 1e5)
# Rows that each part of the search is made on: the ridge m does not depend on their number,
# and widths hardly do, while the time grows with its cube. Many widths need more labels.
LOOK_ROWS = 300
MOVE_ROWS = 500
RELEVANCE_ROWS = 700
DECIDE_ROWS = 600
RANK_ROWS = 1000
CLASS_LOOK_ROWS = 500
CLASS_MOVE_ROWS = 700
CLASS_DECIDE_ROWS = 1500
# Of the same length scale at the same gamma: the best point of one is a start for the other.
TWINS = {"matern": "rbf"}
# A kernel whose best score is worse than this share of the best one's is not moved by itself;
# it takes part in the sum of all of them.
HOPELESS = 1.25
# Steps of L-BFGS for one width, for one a feature, and for the last polish.
STEPS_ONE = 12
STEPS_MANY = 30
STEPS_LAST = 6
# Dropping or binding labels has to gain this much on others before the search believes in it.
DOUBT_PAYS = 1.05
# More freedom must pay for itself: widths that were fitted to l labels flatter the errors on
# them by about a share of their number over l, and cost as much on others (as Akaike's
# criterion has it); errors grown by a share δ add 0.7 δ to the robust loss of good labels.
HANDICAP_WIDTHS = 1.4
# Labels that are bound rather than dropped are bound at this many robust standard deviations:
# nearly the least absolute deviations; and their pull ξ/m is one of these, in robust standard
# deviations of the labels.
BIND_AT = 0.2
LEAST_BOUND_RIDGE = 1e-6
PULLS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FOLDS = 5
# Labels beyond so many scales are not asked how wide an interval has to be.
FAR_OUT = 5.0
# Candidates whose loss on few rows is up to this factor that of the best are tried on more.
RANK_MARGIN = 1.1


@dataclass(frozen=True)
class Trial:
    """One line of the record: a point, how it was reached, its score (higher is better)."""

    point: Point
    stage: str
    mode: Mode
    score: float


@dataclass(frozen=True)
class SearchResult:
    """The end of a search.

    Attributes
    ----------
    point : Point
        On all labelled rows.
    mode : Mode
    score : float
        Minus the loss of the last decision, as candidates were compared by it.
    trials : list of Trial
    held_out : ndarray of shape (l,)
        Errors on the folds of the last decision; NaN for labels that took no part in it. Of
        `tuning.choose` on all rows, shape (n,).
    """

    point: Point
    mode: Mode
    score: float
    trials: list[Trial]
    held_out: Vector

    def times(self, unit: float) -> SearchResult:
        """The same with labels measured in units of 1/`unit`."""
        trials = [replace(trial, mode=trial.mode.times(unit)) for trial in self.trials]
        return replace(
            self, mode=self.mode.times(unit), trials=trials, held_out=unit * self.held_out
        )


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
    removals : tuple of float or None
        Settings of `removal` to decide between; None binds labels at a small threshold and
        drops none, inf is least squares.
    with_graph : tuple of callables
        Each turns a family into one with a graph, to be tried at the best points.
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
    removals: tuple[float | None, ...] = (refinement.DEFAULT_REMOVAL, None, np.inf)
    with_graph: tuple[Callable[[Family], Family], ...] = ()
    without_graph: bool = True
    random_state: int = 0
    report: Callable[[str], Any] = lambda line: None


UNFIT = (
    "no candidate could be fitted in double precision; give larger alphas or standardise "
    "the features"
)


def search(families: Sequence[Family], labels: ObservedLabels, plan: Plan) -> SearchResult:
    """Look at a grid, move from its best points, and decide on held-out folds.

    Parameters
    ----------
    families : sequence of Family
        One a kernel, on all labelled rows, with one width.
    """
    finite = [r for r in plan.removals if r is not None and np.isfinite(r)]
    mode = Mode(finite[0] if finite else refinement.DEFAULT_REMOVAL)
    adds_up = len(families) > 1 and plan.without_graph and plan.move
    twins = _twins(families) if adds_up else {}
    trials = _look([f for f in families if f.name not in twins], labels, plan, mode)
    best_of_all = max(trials, key=lambda trial: trial.score)
    if np.inf in plan.removals and _all_may_stay(best_of_all.point, labels, plan, mode):
        mode = Mode(None)
    # Widths of their own are learnt for the sum of all kernels, where there is one.
    alone = replace(plan, relevance=False) if adds_up else plan
    ends: list[Point] = []
    summands: list[Point] = []
    for family in families:
        seen = twins.get(family.name, family)
        own = [trial for trial in trials if trial.point.family is seen]
        if not own:
            continue
        best = max(own, key=lambda trial: trial.score)
        # Scores are negative.
        if family.name in twins or best.score < HOPELESS * best_of_all.score:
            summands.append(replace(best.point, family=family))
            continue
        path = _move(best.point, labels, alone, mode, trials, 1 if adds_up else 2)
        summands.append(path[-1])
        ends += [*(path if plan.without_graph else []), *_with_graphs(path[-1], plan)]
        plan.report(f"{family.name}: moved to {len(path)} candidates")
    if adds_up and len(summands) > 1:
        ends += _move(sum_of(summands), labels, plan, mode, trials, 2)
        plan.report("moved all kernels together")
    return _decide(ends, labels, plan, trials)


def _twins(families: Sequence[Family]) -> dict[str, Family]:
    """Kernels that need no look of their own, and the one whose best point they start from."""
    known = {family.name: family for family in families}
    return {name: known[twin] for name, twin in TWINS.items() if {name, twin} <= set(known)}


def _all_may_stay(point: Point, labels: ObservedLabels, plan: Plan, mode: Mode) -> bool:
    """Whether least squares on all labels foretells others nearly as well as without some.

    If so, widths and ridge are moved for all labels: those that a good but wider model would
    keep are not lost to a first look at a poor one.
    """
    rows = _subset(len(labels), LOOK_ROWS, plan.random_state)
    some, Q = labels.take(rows), point.gram(rows)
    folds = folds_of(len(some), plan.random_state)
    seen = [held_out_errors(Q, some, point.ridge, m, folds) for m in (mode, Mode(None))]
    if seen[0] is None or seen[1] is None:
        return False
    scale = common_scale([errors for errors in seen if errors is not None], some.weights)
    dropping, keeping = (robust_loss(e, some.weights, scale) for e in seen if e is not None)
    return keeping <= DOUBT_PAYS * dropping


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
            trials.append(Trial(replace(point, family=family), "look", Mode(None), score))
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
                ends.append(Trial(point, "decide", Mode(None), score))
    if not ends:
        raise ValueError(UNFIT)
    plan.report(f"decided between {len(ends)} candidates on {len(many)} labels")
    best = max(ends, key=lambda trial: trial.score)
    nothing = np.full(len(labels), np.nan)
    return SearchResult(best.point, best.mode, best.score, trials + ends, nothing)


def _move_classes(start: Point, labels: ObservedLabels, plan: Plan) -> Point:
    """From the best point of the grid to a better one, first with one width, then with many."""
    rows = _subset(len(labels), CLASS_MOVE_ROWS, plan.random_state + 1)
    some, everyone = labels.take(rows), np.ones(len(rows), dtype=bool)
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
            goal=negative_log_marginal_likelihood,
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
    families = [make(point.family) for make in plan.with_graph]
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
    families: Sequence[Family], labels: ObservedLabels, plan: Plan, mode: Mode
) -> list[Trial]:
    """The whole grid, on a part of the rows; each point judged by the adaptive threshold."""
    rows = _subset(len(labels), LOOK_ROWS, plan.random_state)
    some = labels.take(rows)
    seen: list[tuple[Point, Vector]] = []
    for family, point, Q in grid(families, rows, plan):
        verdict = judge(Q, some, point.ridge, mode)
        if verdict is not None:
            seen.append((replace(point, family=family), verdict.errors))
    if not seen:
        raise ValueError(UNFIT)
    plan.report(f"looked at {len(seen)} points on {len(rows)} labels")
    scale = common_scale([errors for _, errors in seen], some.weights)
    return [
        Trial(point, "look", mode, -robust_loss(errors, some.weights, scale))
        for point, errors in seen
    ]


def grid(
    families: Sequence[Family], rows: np.ndarray, plan: Plan
) -> Iterator[tuple[Family, Point, Matrix]]:
    """Every family at every point of the grid: the family, the point and Q on some rows."""
    for family in families:
        Q, theta = None, None
        for point in grid_points(family.take(rows), plan):
            if Q is None or point.theta is not theta or family.reduce is not None:
                Q, theta = point.gram(), point.theta
            yield family, point, Q


def grid_points(family: Family, plan: Plan) -> Iterator[Point]:
    """The points of the grid, all ridges of one width (the same θ) after each other."""
    for factor in plan.log_factors if family.n_widths else (0.0,):
        theta = np.full(family.n_widths, factor)
        yield from (Point(family, theta, log_ridge) for log_ridge in plan.log_ridges)


def _move(
    start: Point,
    labels: ObservedLabels,
    plan: Plan,
    mode: Mode,
    trials: list[Trial],
    rounds: int = 2,
) -> list[Point]:
    """From one point to better ones; each kept only if it scores better.

    In every round labels are judged and the point moved for those that stay. Returns the last
    point with one width a kernel, and the last with many if there is one.
    """
    at_most = RELEVANCE_ROWS if plan.relevance else MOVE_ROWS
    rows = _subset(len(labels), at_most, plan.random_state + 1)
    some = labels.take(rows)
    verdict = judge(start.gram(rows), some, start.ridge, mode)
    if verdict is None or start.family.reduce is not None:
        return [start]
    scale = common_scale([verdict.errors], some.weights)
    level = robust_loss(verdict.errors, some.weights, scale)
    ends = {"move": start}
    for stage, steps in _stages(start, plan, rounds):
        here = ends.get(stage) or ends["move"].with_one_width_each()
        small = replace(here, family=here.family.take(rows))
        there = improve(small, some, verdict.kept, steps, move_ridge=plan.move_ridge)
        found = None if there is small else judge(there.gram(), some, there.ridge, mode)
        if found is None:
            continue
        score = robust_loss(found.errors, some.weights, scale)
        moved = replace(there, family=here.family)
        trials.append(Trial(moved, stage, mode, -score))
        if score < level:
            ends[stage], verdict, level = moved, found, score
    return list(ends.values())


def _stages(start: Point, plan: Plan, rounds: int = 2) -> list[tuple[str, int]]:
    """Names and steps of the moves to make."""
    stages = []
    if plan.move and (start.family.n_widths or plan.move_ridge):
        stages += [("move", STEPS_ONE)] * rounds
    if plan.relevance and start.family.one_width_each().n_widths > 1:
        stages += [("relevance", STEPS_MANY), ("relevance", STEPS_MANY // 3)]
    return stages


def _decide(
    ends: Sequence[Point], labels: ObservedLabels, plan: Plan, trials: list[Trial]
) -> SearchResult:
    """Among the ends of all moves and all modes, by held-out folds."""
    rows = _subset(len(labels), DECIDE_ROWS, plan.random_state + 2)
    some = labels.take(rows)
    folds = folds_of(len(some), plan.random_state)
    seen: list[tuple[Point, Mode, Vector]] = []
    for point in ends:
        Q = point.gram(rows)
        for removal in plan.removals:
            if removal is None:
                bound = _best_bound(point, Q, some, plan.move_ridge)
                if bound is None:
                    continue
                here, mode = bound
            else:
                here, mode = point, Mode(None if removal == np.inf else removal)
            errors = held_out_errors(Q, some, here.ridge, mode, folds)
            if errors is not None:
                seen.append((here, mode, errors))
    if not seen:
        raise ValueError(UNFIT)
    scale = common_scale([errors for *_, errors in seen], some.weights)
    decided = []
    for point, mode, errors in seen:
        loss = _compared_loss(errors, some, scale, point, mode)
        decided.append(Trial(point, "decide", mode, -loss))
    trials += decided
    plan.report(f"decided between {len(decided)} candidates on {len(folds)} folds")
    place = int(np.argmax([trial.score for trial in decided]))
    if len(rows) < len(labels):
        place = _ranked_on_more(decided, place, labels, plan)
    best, held_out = decided[place], np.full(len(labels), np.nan)
    held_out[rows] = _of_good_labels(seen[place][2], best, some, rows)
    point = best.point
    binds = best.mode.removal is None and np.isfinite(best.mode.threshold)
    if len(labels) > MOVE_ROWS and plan.move and not binds:
        point = _polish(best, labels, plan)
    return SearchResult(point, best.mode, best.score, trials, held_out)


def _ranked_on_more(
    decided: list[Trial], first: int, labels: ObservedLabels, plan: Plan
) -> int:
    """Which candidate is best on more rows, if labels are to be dropped or not as decided.

    Smoother kernels gain more from more labels. By leave-one-out errors, which are honest where
    no label is dropped, and where labels are dropped flatter all candidates alike.
    """
    rows = _subset(len(labels), RANK_ROWS, plan.random_state + 3)
    some, drops = labels.take(rows), decided[first].mode.removal is not None
    within = RANK_MARGIN * decided[first].score  # scores are negative
    places = [
        i
        for i, trial in enumerate(decided)
        if (trial.mode.removal is not None) == drops and trial.score >= within
    ]
    if len(places) == 1:
        return first
    verdicts = {}
    for i in places:
        point, mode = decided[i].point, decided[i].mode
        verdict = judge(point.gram(rows), some, point.ridge, mode)
        if verdict is not None:
            verdicts[i] = verdict.errors
    if not verdicts:
        return first
    scale = common_scale(list(verdicts.values()), some.weights)
    losses = {
        i: _compared_loss(errors, some, scale, decided[i].point, decided[i].mode)
        for i, errors in verdicts.items()
    }
    return min(losses, key=losses.__getitem__)


def _polish(best: Trial, labels: ObservedLabels, plan: Plan) -> Point:
    """A few more steps on more rows than the moves were made on, if they help."""
    rows = _subset(len(labels), RANK_ROWS, plan.random_state + 3)
    some, whole = labels.take(rows), best.point
    if whole.family.reduce is not None:
        return whole
    here = replace(whole, family=whole.family.take(rows))
    before = judge(here.gram(), some, here.ridge, best.mode)
    if before is None:
        return whole
    there = improve(here, some, before.kept, STEPS_LAST, move_ridge=plan.move_ridge)
    after = None if there is here else judge(there.gram(), some, there.ridge, best.mode)
    if after is None:
        return whole
    scale = common_scale([before.errors, after.errors], some.weights)
    losses = [robust_loss(v.errors, some.weights, scale) for v in (before, after)]
    return replace(there, family=whole.family) if losses[1] < losses[0] else whole


def _of_good_labels(
    errors: Vector, best: Trial, labels: ObservedLabels, rows: np.ndarray
) -> Vector:
    """Held-out errors with NaN for labels in doubt that lie far out.

    Where none is in doubt all of them count. Those that are dropped, but lie within FAR_OUT
    scales of the others, count too: some are right, and without them intervals are too narrow.
    Errors grow by √((l + p)/(l − p)) for the p numbers that were fitted to all labels.
    """
    tuned = min(len(best.point.theta) + 1, 0.5 * len(labels))
    errors = errors * np.sqrt((len(labels) + tuned) / (len(labels) - tuned))
    if best.mode == Mode(None):
        return errors
    mode = best.mode if best.mode.removal is not None else Mode(FAR_OUT)
    verdict = judge(best.point.gram(rows), labels, best.point.ridge, mode)
    if verdict is not None:
        scale = robust_scale(errors[verdict.kept], labels.weights[verdict.kept])
        errors[~verdict.kept & (np.abs(errors) > FAR_OUT * scale)] = np.nan
    return errors


def _compared_loss(
    errors: Vector, labels: ObservedLabels, scale: float, point: Point, mode: Mode
) -> float:
    """The robust loss, more for freedom that fits chance, and more again for doubt."""
    loss = robust_loss(errors, labels.weights, scale)
    loss += HANDICAP_WIDTHS * len(point.theta) / len(labels)
    return loss if mode == Mode(None) else DOUBT_PAYS * loss


def _best_bound(
    point: Point, Q: Matrix, labels: ObservedLabels, move_ridge: bool
) -> tuple[Point, Mode] | None:
    """The ridge for labels bound at a small ξ, by leave-one-out errors, and that mode."""
    first = judge(Q, labels, point.ridge, Mode(refinement.DEFAULT_REMOVAL))
    if first is None:
        return None
    scale = robust_scale(first.errors[first.kept], labels.weights[first.kept])
    spread = robust.label_scale(labels.y, labels.weights)
    if scale <= 0.0 or spread <= 0.0:
        return None
    # Without noise ξ would fall to where rounding decides which labels are bound.
    mode = Mode(None, BIND_AT * max(scale, refinement.NOISE_FLOOR * spread))
    ridges = [mode.threshold / (pull * spread) for pull in PULLS] if move_ridge else []
    points = [replace(point, log_ridge=float(np.log(ridge))) for ridge in ridges] or [point]
    seen = []
    for candidate in points:
        if candidate.ridge >= LEAST_BOUND_RIDGE:
            verdict = judge(Q, labels, candidate.ridge, mode)
            if verdict is not None:
                seen.append((candidate, verdict.errors))
    if not seen:
        return None
    scale = common_scale([errors for _, errors in seen], labels.weights)
    best = min(seen, key=lambda pair: robust_loss(pair[1], labels.weights, scale))
    return best[0], mode


def folds_of(n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """At most FOLDS random folds of n rows, as (train, test)."""
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, min(FOLDS, n))
    everyone = np.arange(n)
    return [(np.setdiff1d(everyone, part), np.sort(part)) for part in parts]
