"""What plain values must be, said once: types, ranges, and shapes that fit together.

A rule is called with a value, the name it goes by and the sizes that were found so far, and
raises ValueError, one line, unless the value is as it must be. Sizes have names ("n" rows, "d"
features, ...): the first array that has one says what it is, all others must agree. An array
may still be in its file, as a `Header`: then its numbers are not looked at.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Sizes = dict[str, int]
Rule = Callable[[Any, str, Sizes], None]
# A size: a number, a name, or a range that it must be in.
Size = int | str | range
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Header:
    """An array that has not been read yet.

    Attributes
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    """

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many entries, as a whole number of any size."""
        return math.prod(self.shape)


def shown(value: Any) -> str:
    """A value in an error, short."""
    if isinstance(value, (Header, np.ndarray)):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    text = ascii(value)
    return text if len(text) < 60 else f"{text[:60]}…"


def must_be(good: bool, where: str, what: str, value: Any) -> None:
    """Raise unless `good`."""
    if not good:
        raise ValueError(f"{where} must be {what}, got {shown(value)}")


def fits(size: Size, found: int, sizes: Sizes) -> bool:
    """Whether a size is what it must be; a name that is new takes it."""
    if isinstance(size, range):
        return found in size
    return found == (size if isinstance(size, int) else sizes.setdefault(size, found))


def _rule(good: Callable[[Any, Sizes], bool], what: str) -> Rule:
    def rule(value: Any, where: str, sizes: Sizes) -> None:
        must_be(good(value, sizes), where, what, value)

    return rule


nothing = _rule(lambda value, sizes: value is None, "null")
flag = _rule(lambda value, sizes: isinstance(value, (bool, np.bool_)), "true or false")
# Such that it can be written to a file: halves of surrogate pairs cannot.
text = _rule(
    lambda value, sizes: isinstance(value, str) and not SURROGATES.search(value), "text"
)


def one_of(*choices: str) -> Rule:
    """One of some words."""
    words = ", ".join(map(repr, choices))
    return _rule(
        lambda value, sizes: isinstance(value, str) and value in choices, f"one of {words}"
    )


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def number(
    low: float = -np.inf, high: float = np.inf, *, above: bool = False, finite: bool = True
) -> Rule:
    """A number from `low` (or above it) to `high`; with finite=False also inf and NaN."""
    bounds = f" {'above' if above else 'from'} {low:g}" if low > -np.inf else ""

    def good(value: Any, sizes: Sizes) -> bool:
        if not _is_a(numbers.Real, value):
            return False
        # Larger whole numbers are none that a float could be, nor one of an array.
        if isinstance(value, numbers.Integral) and abs(int(value)) > 2**53:
            return False
        if not np.isfinite(value):
            return not finite
        return bool(low <= value <= high and not (above and value == low))

    return _rule(good, f"a number{bounds}{f' to {high:g}' if high < np.inf else ''}")


def whole(low: int = 0, high: int = 2**31 - 1, *, size: str | None = None) -> Rule:
    """An integer in a range, that may say what a size is."""

    def good(value: Any, sizes: Sizes) -> bool:
        inside = _is_a(numbers.Integral, value) and low <= value <= high
        return inside and (size is None or fits(size, int(value), sizes))

    return _rule(good, f"a whole number from {low} to {high} that fits the rest")


def array(
    kinds: str,
    *shape: Size,
    nan: bool = False,
    inf: bool = False,
    low: float = -np.inf,
    high: float = np.inf,
) -> Rule:
    """An array of some kinds ("f", "i", "u", "b", "U") and shape, its numbers in a range."""

    def rule(value: Any, where: str, sizes: Sizes) -> None:
        known = isinstance(value, (Header, np.ndarray))
        kind = value.dtype.kind if known else ""
        good = known and kind in kinds and len(value.shape) == len(shape)
        good = good and all(map(fits, shape, value.shape, [sizes] * len(shape)))
        sides = [str(sizes.get(s, s) if isinstance(s, str) else s) for s in shape]
        what = f"an array of kind {' or '.join(kinds)} of shape ({', '.join(sides)})"
        must_be(good, where, what, value)
        if isinstance(value, np.ndarray) and kind in "fiu":
            inside = np.isfinite(value) & (value >= low) & (value <= high)
            if nan:
                inside |= np.isnan(value)
            if inf:
                inside |= np.isinf(value)
            if not np.all(inside):
                raise ValueError(f"{where} holds numbers that are not finite or out of range")

    return rule


def items(rule: Rule, size: Size = range(2**31)) -> Rule:
    """A list of things of one kind; sizes found in one of them are its own."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        good = isinstance(value, (list, tuple)) and fits(size, len(value), sizes)
        what = f" of {sizes.get(size, size)}" if isinstance(size, str) else ""
        must_be(good, where, f"a list{what}", value)
        for place, item in enumerate(value):
            rule(item, f"{where}[{place}]", dict(sizes))

    return check


def sequence(*rules: Rule) -> Rule:
    """A list of things of different kinds."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        good = isinstance(value, (list, tuple)) and len(value) == len(rules)
        must_be(good, where, f"a list of {len(rules)}", value)
        for place, (rule, item) in enumerate(zip(rules, value, strict=True)):
            rule(item, f"{where}[{place}]", sizes)

    return check


def record(*also: Rule, **rules: Rule) -> Rule:
    """A dict of exactly these keys, in whose order they are looked at; then `also`."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        must_be(isinstance(value, dict), where, "a dict", value)
        for key in sorted(set(rules) ^ set(value)):
            what = "missing" if key in rules else "unknown"
            raise ValueError(f"{where}: {shown(key)} is {what}")
        for key, rule in rules.items():
            rule(value[key], f"{where}.{key}", sizes)
        for rule in also:
            rule(value, where, sizes)

    return check


def either(*rules: Rule) -> Rule:
    """One of several; the last one says what is wrong."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        for rule in rules[:-1]:
            try:
                trial = dict(sizes)
                rule(value, where, trial)
            except ValueError:
                continue
            sizes.update(trial)
            return
        rules[-1](value, where, sizes)

    return check


# The same, or None.
optional = partial(either, nothing)


def distinct(values: Sequence[Any], where: str) -> None:
    """Raise if something is there twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{where} has something twice")
