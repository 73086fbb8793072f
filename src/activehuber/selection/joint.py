"""Which labels are right where the kernel is not known either.

The labels held for right choose the kernel under which they are most likely,

    E(γ, m) = log N(y_S; b, τ² (Q_SS(γ) + diag(m/s)))      (τ at its best, b integrated out),

the kernel judges all labels (`labels.mixture`), and so on until both stay. With wrong labels
among them that have a shape of their own, all labels would choose a narrow kernel that follows
them, or so much noise that none is wrong; the starts of `labels.adaptive` lead elsewhere, and
their ends are compared as there, by what all labels say of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.labels import mixture
from activehuber.labels.adaptive import WIDE_RIDGE, End, LabelSearch, ranked
from activehuber.labels.rule import LabelRule
from activehuber.numerics import robust
from activehuber.selection.candidates import Family, Point
from activehuber.selection.criterion import ObservedLabels, levels_at_ridges
from activehuber.selection.scoring import problem_of
from activehuber.solver.leave_one_out import LeaveOneOut

# Turns between the choice of a kernel and the judgement of labels.
ROUNDS = 6


@dataclass(frozen=True)
class Choice:
    """A kernel and a ridge, by place, and how likely the labels are under them."""

    place: int
    log_ridge: float
    level: float


class JointSearch:
    """Labels to keep and a kernel.

    Parameters
    ----------
    families : sequence of Family
        To choose from, on all labelled rows.
    thetas : sequence of float
        Log factors on their widths, ascending.
    log_ridges : ndarray of shape (r,)
    """

    def __init__(
        self,
        families: Sequence[Family],
        labels: ObservedLabels,
        thetas: Sequence[float],
        log_ridges: Vector,
        rule: LabelRule,
    ) -> None:
        self.log_ridges, self.labels, self.rule = log_ridges, labels, rule
        # Neighbours in width after each other; their ridges are those of choices.
        self.points = [
            Point(family, np.full(family.n_widths, factor), 0.0)
            for family in families
            for factor in (thetas if family.n_widths else (0.0,))
        ]
        self.grams: list[Matrix] = [point.gram(labels.rows) for point in self.points]
        self.floor = mixture.NOISE_FLOOR * robust.label_scale(labels.y, labels.weights)
        self.known: dict[tuple[int, bytes], list[float]] = {}
        self.searches: dict[tuple[int, float], LabelSearch] = {}

    def best_end(self) -> tuple[Choice, End]:
        """The best kernel and what is kept under it."""
        ends: dict[bytes, tuple[Choice, End]] = {}
        for choice, start in self._starts():
            found, end = self._follow(choice, start)
            ends.setdefault(end.kept.tobytes() + bytes([found.place % 256]), (found, end))
        counts = next(iter(self.searches.values())).prior.counts
        best = ranked([end for _, end in ends.values()], counts)[0]
        return next(found for found in ends.values() if found[1] is best)

    def likeliest(self, kept: Mask, places: Sequence[int] | None = None) -> Choice:
        """The kernel and ridge under which the labels kept are most likely."""
        everywhere = range(len(self.points)) if places is None else places
        found = [
            Choice(place, float(log_ridge), level)
            for place in everywhere
            for log_ridge, level in zip(self.log_ridges, self.levels(place, kept), strict=True)
        ]
        return max(found, key=lambda choice: choice.level)

    def levels(self, place: int, kept: Mask) -> list[float]:
        """The evidence of the labels kept with one kernel, at every ridge."""
        key = (place, kept.tobytes())
        if key not in self.known:
            used = np.flatnonzero(kept)
            Q = self.grams[place][np.ix_(used, used)]
            ridges = np.exp(self.log_ridges).tolist()
            some = self.labels.take(used)
            self.known[key] = levels_at_ridges(Q, some, ridges, self.floor)
        return self.known[key]

    def _starts(self) -> Iterator[tuple[Choice, LeaveOneOut]]:
        """From the kernel that all labels choose, and from the widest of its kind."""
        everyone = np.ones(len(self.labels), dtype=bool)
        first = self.likeliest(everyone)
        family = self.points[first.place].family
        widest = next(i for i, point in enumerate(self.points) if point.family is family)
        ridges = np.abs(self.log_ridges - np.log(WIDE_RIDGE))
        wide = Choice(widest, float(self.log_ridges[np.argmin(ridges)]), -np.inf)
        # Kernels without a width are simple ones, for few labels.
        rigid = [i for i, point in enumerate(self.points) if not point.family.n_widths]
        for choice in (first, wide, *(self.likeliest(everyone, [place]) for place in rigid)):
            for start in self._at(choice).at_own_ridge():
                yield choice, start

    def _follow(self, choice: Choice, loo: LeaveOneOut) -> tuple[Choice, End]:
        kept = self._judged(choice, loo, of_start=True).kept
        seen: set[tuple[bytes, int, float]] = set()
        best: tuple[Choice, End] | None = None
        for turn in range(ROUNDS):
            stays = turn or not self.points[choice.place].family.n_widths
            places = self._near(choice.place) if stays else None
            choice = self.likeliest(kept, places)
            end = self._judged(choice, self._at(choice).fit(kept))
            if turn < 2 or best is None or end.judged.level > best[1].judged.level:
                best = choice, end
            kept = end.kept
            key = (kept.tobytes(), choice.place, choice.log_ridge)
            if key in seen:
                break
            seen.add(key)
        assert best is not None
        return best

    def _judged(self, choice: Choice, loo: LeaveOneOut, *, of_start: bool = False) -> End:
        search = self._at(choice)
        judged = mixture.judge(loo, search.prior, self.rule, search.ridge, of_start=of_start)
        return End(judged.kept(self.rule, search.prior) | self.labels.trusted, judged)

    def _near(self, place: int) -> list[int]:
        family = self.points[place].family
        around = range(max(place - 1, 0), min(place + 2, len(self.points)))
        return [i for i in around if self.points[i].family is family]

    def _at(self, choice: Choice) -> LabelSearch:
        key = (choice.place, choice.log_ridge)
        if key not in self.searches:
            ridge = float(np.exp(choice.log_ridge))
            problem, _ = problem_of(self.grams[choice.place], self.labels, ridge)
            self.searches[key] = LabelSearch(problem, self.rule, self.labels.trusted)
        return self.searches[key]


def judge_jointly(
    families: Sequence[Family],
    labels: ObservedLabels,
    first: ObservedLabels,
    thetas: Sequence[float],
    log_ridges: Vector,
    rule: LabelRule,
) -> tuple[Mask, list[tuple[Point, float]], Family | None]:
    """Labels judged with the kernel that suits them.

    Parameters
    ----------
    families : sequence of Family
    labels : ObservedLabels
        All are kept if they are equal.
    first : ObservedLabels
        Some of them: kernels are chosen on these, and two ends are taken to the others.
    thetas : sequence of float
        Log factors on the widths, ascending.

    Returns
    -------
    kept : ndarray of bool
    looks : list of (Point, float)
        Points of the grid and the evidence of the labels kept under each.
    family : Family or None
        The kernel of the best end; None if all labels are equal.
    """
    search = JointSearch(families, first, thetas, log_ridges, rule)
    kept, kept_first, family = labels.kept, first.kept, None
    if robust.label_scale(first.y, first.weights) > 0.0:
        choice, end = search.best_end()
        best = replace(search.points[choice.place], log_ridge=choice.log_ridge)
        family, kept, kept_first = best.family, end.kept, end.kept
        if len(first) < len(labels):
            problem, _ = problem_of(best.gram(labels.rows), labels, best.ridge)
            more = LabelSearch(problem, rule, labels.trusted)
            kept = more.best_ends([np.isin(labels.rows, first.rows[end.kept])])[0].kept
    looks = [
        (replace(point, log_ridge=float(log_ridge)), level)
        for i, point in enumerate(search.points)
        for log_ridge, level in zip(log_ridges, search.levels(i, kept_first), strict=True)
    ]
    return kept, looks, family


def likelihood_of_labels(
    families: Sequence[Family],
    labels: ObservedLabels,
    thetas: Sequence[float],
    log_ridges: Vector,
    rule: LabelRule,
) -> float:
    """The log likelihood of all labels, judged with the kernel that suits them; −∞ if equal."""
    if robust.label_scale(labels.y, labels.weights) == 0.0:
        return -np.inf
    search = JointSearch(families, labels, thetas, log_ridges, rule)
    return search.best_end()[1].judged.level
