"""The numbers of the label rule, in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LabelRule:
    """By which numbers thresholds are chosen and labels judged.

    They are the same for all data; a fit takes them from its settings.

    Attributes
    ----------
    efficient : float
        ξ in units of the noise scale where labels are bound but none is dropped: 95 %
        efficiency under Gaussian noise.
    inside : float
        Share of the labels inside the threshold of the rule `quantile`.
    noise_floor : float
        Labels may be this small a share of their scale apart before noise is taken to be zero.
    label_digits : int
        Binary digits behind the point of labels as they are judged, in units of their scale.
    removal : float
        Labels farther out than so many scales of their row are bad. A model's own `removal`
        goes before; this one is also used for the search when no label is to be dropped.
    least_cut : float
        No cut falls below so many times the scale of its row.
    beyond_doubt : float
        At so many times its cut a label is bad beyond doubt and says nothing of the noise.
    scale_rounds : int
        How often such labels are put aside and the scale is taken again.
    window, window_rows, window_stops : float, int, int
        Noise often grows with the level of the labels: its scale is also taken in windows of
        this share of the labels, but not of fewer than so many, at so many places.
    low_share : float
        Sizes are compared at this share of them, which no bad labels reach unless they are
        most.
    growth_discount : float
        Growth is taken at this discount: windows differ by chance.
    path_ratio : float
        Factor between the thresholds tried on the way down.
    path_steps : int
        Thresholds at most: 0.6^200 is 1e-44, more than labels may lie apart.
    path_share : float
        Share of the labels that each of them binds in addition, at least.
    path_slack : float
        In a quick search a point of the path may have this share of the labels on the wrong
        side.
    fewest_free : float
        The way down ends when fewer labels than this share are free.
    many_free, worth_going_on : float
        With fewer than the first share of the labels free it also ends when the score is not
        below the second share of the best one.
    n_starts : int
        Of the points on the way, so many become starts of the search for labels to keep.
    most_rounds : int
        Of a search for labels to keep, and of taking groups back.
    first_rounds : int
        Fits of a first look at the labels.
    strict_rounds : int
        Rounds in which little knowledge of a row is no excuse for its label.
    search_labels : int
        Of more labels than this some are searched first; the rest start from their answer.
    settled_share, roughly_settled_share : float
        A search of all of them ends when fewer than this share changes, that of some when
        fewer than the second: it is a start only.
    width_factors : tuple of float
        Factors of γ that are tried.
    width_fewest, width_most : float, int
        Labels, repetitions counted, on which the width is decided: fewer say nothing, more
        cost time.
    found_share : float
        Labels that must go, as a share, for a search at another width to be believed.
    nearly_inside : float
        A label joins a group if it would lie within so many of its cuts: others will join too.
    group_fewest : float
        Labels of a group, repetitions counted, at least: one or two may agree by chance.
    groups_weighed, groups_tried : int
        Groups that are weighed, the largest ones, and of these so many are tried.
    """

    efficient: float = 1.345
    inside: float = 0.9
    noise_floor: float = 1e-3
    label_digits: int = 32
    removal: float = 3.5
    least_cut: float = 2.0
    beyond_doubt: float = 1.5
    scale_rounds: int = 3
    window: float = 0.15
    window_rows: int = 30
    window_stops: int = 16
    low_share: float = 0.35
    growth_discount: float = 0.7
    path_ratio: float = 0.6
    path_steps: int = 200
    path_share: float = 0.08
    path_slack: float = 0.05
    fewest_free: float = 0.1
    many_free: float = 0.85
    worth_going_on: float = 0.9
    n_starts: int = 4
    most_rounds: int = 30
    first_rounds: int = 2
    strict_rounds: int = 3
    search_labels: int = 20_000
    settled_share: float = 1e-4
    roughly_settled_share: float = 2e-3
    width_factors: tuple[float, ...] = (1.0, 0.5, 0.25)
    width_fewest: float = 30.0
    width_most: int = 200
    found_share: float = 0.01
    nearly_inside: float = 1.5
    group_fewest: float = 3.0
    groups_weighed: int = 8
    groups_tried: int = 4

    def with_removal(self, removal: float | None) -> LabelRule:
        """The same with a model's own `removal`, if it has one."""
        return self if removal is None else replace(self, removal=removal)


@dataclass(frozen=True)
class MixtureRule:
    """By which numbers threshold="mixture" holds labels for right or wrong.

    See `labels.mixture`.

    Attributes
    ----------
    removal : float
        Labels whose probability of being wrong exceeds this are dropped.
    right_tail : float
        Degrees of freedom of the noise of right labels: heavier tails than Gauss, fourth
        moments still exist.
    wrong_tail : float
        Degrees of freedom of wrong labels (1: Cauchy's distribution), which may lie anywhere.
    wrong_labels : float
        Pseudo-count of wrong labels in the share of wrong ones: any table may have one.
    right_labels, right_share : float
        Pseudo-count of right labels: so many, and this share of all.
    usual_labels : float
        So many labels spread as all are say where wrong ones lie before any is seen.
    growth : float
        Standard deviation of the growth of noise with the level, before any label is seen.
    one_side : float
        Share of the labels, from either end of the errors, from which the search also starts:
        where most wrong labels err to one side, the others are among these.
    """

    removal: float = 0.5
    right_tail: float = 6.0
    wrong_tail: float = 1.0
    wrong_labels: float = 1.0
    right_labels: float = 10.0
    right_share: float = 0.1
    usual_labels: float = 5.0
    growth: float = 0.5
    one_side: float = 0.6


DEFAULT_RULE = LabelRule()
