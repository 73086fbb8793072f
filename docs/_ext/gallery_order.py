"""The order of the gallery: from the plain case to the special ones."""

from __future__ import annotations

ORDER = (
    "plot_noisy_curve.py",
    "plot_label_audit.py",
    "plot_swiss_roll.py",
    "plot_three_views.py",
    "plot_threshold_path.py",
    "plot_intervals.py",
    "plot_noisy_classes.py",
    "plot_large.py",
    "plot_count_people.py",
)


def place(filename: str) -> tuple[int, str]:
    """What to sort by; an example that is not in ORDER comes last."""
    known = filename in ORDER
    return (ORDER.index(filename) if known else len(ORDER), filename)
