"""Verdicts in words: what was given, what the other rows say, what similar rows have.

judged labels, similar rows, gaps -> one sentence a label
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from activehuber.audit.inputs import Encoded
from activehuber.audit.similar import Similar
from activehuber.audit.verdicts import KEPT, UNJUDGED, Verdicts
from activehuber.runtime.messages import listed, shortened

# Labels of at least this size are written with a power of ten.
LONGEST_PLAIN = 1e9
# A label that is kept this many half-widths off is not kept without a word.
FAR_OFF = 2.0
# Ends of an interval are as far on both sides up to this share of its width.
SAME_SIDES = 1e-6


def reasons_of(judged: Verdicts, similar: Similar, table: Encoded) -> list[str]:
    """One sentence a label, in the order of the rows."""
    reasons = _class_reasons if judged.classes else _number_reasons
    out = reasons(judged, similar)
    if table.frame is None:  # the cells are not at hand
        return out
    gaps = table.features.missing_in(table.frame, judged.places[similar.wanted])
    for i, names in zip(similar.wanted.tolist(), gaps, strict=True):
        if names:
            out[i] += f"; {listed(names, 3)} {'is' if len(names) == 1 else 'are'} missing here"
    return out


def _number_reasons(judged: Verdicts, similar: Similar) -> list[str]:
    halves = (0.5 * (judged.upper - judged.lower)).tolist()
    columns = (judged.given, judged.expected, judged.lower, judged.upper)
    out = []
    for given, expected, low, high in zip(*(c.tolist() for c in columns), strict=True):
        half = 0.5 * (high - low)
        digits = _decimals(half, given)
        show = _shown(digits)
        if abs(high + low - 2.0 * expected) > SAME_SIDES * (high - low):
            width = f", in {_span(low, high, digits)}"
        else:
            width = f" ± {half:.2g}" if digits is None else f" ± {rough(half)}"
        out.append(f"given {show(given)}, expected {show(expected)}{width}")
    for i in np.flatnonzero((judged.verdicts == UNJUDGED) & ~judged.judged).tolist():
        out[i] += "; the other rows say too little of this one"
    not_flagged = (judged.verdicts == KEPT) | ((judged.verdicts == UNJUDGED) & judged.judged)
    for i in np.flatnonzero(not_flagged & (judged.beyond > FAR_OFF)).tolist():
        out[i] += "; far off, as some right labels are here"
    if similar.near.shape[1]:
        labels = judged.given[similar.near]
        low, high = labels.min(axis=1).tolist(), labels.max(axis=1).tolist()
        several = f"{labels.shape[1]} most similar rows have"
        spoken = several if labels.shape[1] > 1 else "most similar row has"
        for i, lowest, highest in zip(similar.wanted.tolist(), low, high, strict=True):
            digits = _decimals(halves[i], float(judged.given[i]))
            out[i] += f"; {spoken} {_span(lowest, highest, digits)}"
    return out


def _class_reasons(judged: Verdicts, similar: Similar) -> list[str]:
    name = [shortened(word) for word in judged.classes]
    given, expected = judged.given.astype(int).tolist(), judged.expected.astype(int).tolist()
    pairs = zip(given, expected, strict=True)
    out = [f"given {name[mine]}, expected {name[theirs]}" for mine, theirs in pairs]
    k = similar.near.shape[1]
    for i, near in zip(similar.wanted.tolist(), similar.near, strict=True) if k else ():
        votes = np.bincount(judged.given[near].astype(int))
        commonest = int(np.argmax(votes))
        out[i] += f"; {votes[commonest]} of the {k} most similar rows have {name[commonest]}"
    return out


def _span(low: float, high: float, digits: int | None) -> str:
    show = _shown(digits)
    if show(low) == show(high):
        return show(low)
    return f"{show(low)} to {show(high)}" if low < 0.0 else f"{show(low)}–{show(high)}"


def _shown(digits: int | None) -> Callable[[float], str]:
    """Numbers as text, with so many decimals or four digits."""
    return (lambda v: f"{v:.4g}") if digits is None else (lambda v: f"{v:.{digits}f}")


def _decimals(unit: float, value: float) -> int | None:
    """Decimals that show two digits of `unit`; None if plain notation would be too long."""
    if not np.isfinite(unit) or unit <= 0.0:
        unit = abs(value) / 100.0 or 1.0
    exponent = int(np.floor(np.log10(unit)))
    if abs(value) >= LONGEST_PLAIN or exponent < -7:
        return None
    return max(0, 1 - exponent)


def rough(value: float) -> str:
    """A width with two or three digits, without an exponent."""
    if not np.isfinite(value) or value == 0.0:
        return f"{value:g}"
    digits = max(0, 1 - int(np.floor(np.log10(abs(value)))))
    return f"{float(f'{value:.3g}') if digits == 0 else value:.{digits}f}"
