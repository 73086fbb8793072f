"""Verdicts in words: what was given, what the other rows say, what similar rows have.

judged labels, similar rows, gaps -> one sentence a label
"""

from __future__ import annotations

import numpy as np

from activehuber.audit.inputs import Encoded
from activehuber.audit.similar import Similar
from activehuber.audit.verdicts import Verdicts
from activehuber.runtime.messages import listed, shortened

# Labels of at least this size are written with a power of ten.
LONGEST_PLAIN = 1e9
# A label that is kept this many half-widths off is not kept without a word.
FAR_OFF = 2.0
# Ends of an interval are as far on both sides up to this share of its width.
SAME_SIDES = 1e-6


def reasons_of(judged: Verdicts, similar: Similar, table: Encoded) -> list[str]:
    """One sentence a label, in the order of the rows."""
    out = (_class_reasons if judged.classes else _number_reasons)(judged, similar)
    if table.frame is None:  # the cells are not at hand
        return out
    gaps = table.features.missing_in(table.frame, judged.places[similar.wanted])
    for i, names in zip(similar.wanted.tolist(), gaps, strict=True):
        if names:
            out[i] += f"; {listed(names, 3)} {'is' if len(names) == 1 else 'are'} missing here"
    return out


def _number_reasons(judged: Verdicts, similar: Similar) -> list[str]:
    columns = (judged.given, judged.expected, judged.lower, judged.upper)
    out, decimals = [], []
    for given, expected, low, high in zip(*(c.tolist() for c in columns), strict=True):
        half = 0.5 * (high - low)
        digits = _decimals(half, given)
        if abs(high + low - 2.0 * expected) > SAME_SIDES * (high - low):
            width = f", in {_span(low, high, digits)}"
        else:
            width = f" ± {half:.2g}" if digits is None else f" ± {rough(half)}"
        out.append(f"given {_show(given, digits)}, expected {_show(expected, digits)}{width}")
        decimals.append(digits)
    neither = ~(judged.flagged | judged.trusted)
    for i in np.flatnonzero(neither & ~judged.judged).tolist():
        out[i] += "; the other rows say too little of this one"
    for i in np.flatnonzero(neither & judged.judged & (judged.beyond > FAR_OFF)).tolist():
        out[i] += "; far off, as some right labels are here"
    k = similar.near.shape[1]
    if k:
        labels = judged.given[similar.near]
        ends = zip(labels.min(axis=1).tolist(), labels.max(axis=1).tolist(), strict=True)
        spoken = f"{k} most similar rows have" if k > 1 else "most similar row has"
        for i, (low, high) in zip(similar.wanted.tolist(), ends, strict=True):
            out[i] += f"; {spoken} {_span(low, high, decimals[i])}"
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
    first, last = _show(low, digits), _show(high, digits)
    if first == last:
        return first
    return f"{first} to {last}" if low < 0.0 else f"{first}–{last}"


def _show(value: float, digits: int | None) -> str:
    """A number with so many decimals, or four digits."""
    return f"{value:.4g}" if digits is None else f"{value:.{digits}f}"


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
