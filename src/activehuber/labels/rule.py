"""The numbers of the label rule, in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LabelRule:
    """By which numbers labels are held for right or wrong; see `labels.mixture`.

    They are the same for all data; a fit takes them from its settings.

    Attributes
    ----------
    removal : float
        Labels whose probability of being wrong exceeds this are dropped. A model's own
        `removal` goes before.
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
    right_share: float = 0.03
    usual_labels: float = 5.0
    growth: float = 0.5
    one_side: float = 0.6

    def with_removal(self, removal: float | None) -> LabelRule:
        """The same with a model's own `removal`, if it has one."""
        return self if removal is None else replace(self, removal=removal)


DEFAULT_RULE = LabelRule()
