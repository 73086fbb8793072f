"""Groups of rows whose labels do not judge each other: patients, sites, films."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np

from activehuber._typing import Mask
from activehuber.fitting.settings import Data


def group_numbers(groups: Any, n_rows: int) -> np.ndarray | None:
    """Groups as numbers from 0, −1 for a row in none; None if no groups are given.

    Numbers go by the names of the groups, so that rows may come in any order. None, NaN,
    pandas.NA and empty text are no name: such a row is a group of its own.

    Examples
    --------
    >>> from activehuber.estimators.groups import group_numbers
    >>> group_numbers(["b", "a", None, "b", ""], 5).tolist()
    [1, 0, -1, 1, -1]
    """
    if groups is None:
        return None
    if isinstance(groups, (str, bytes)):
        raise TypeError(f"groups must hold one group a row, got {groups!r}")
    values = groups if hasattr(groups, "to_list") else np.asarray(groups, dtype=object)
    if np.ndim(values) != 1 or len(values) != n_rows:
        raise ValueError(
            f"groups must hold one group a row, shape ({n_rows},), got {np.shape(values)}"
        )
    names = [None if _is_missing(name) else name for name in values]
    try:
        given = {*names} - {None}
    except TypeError:
        raise TypeError("groups must be words or numbers, one a row") from None
    by_size = sorted(name for name in given if isinstance(name, numbers.Real))
    ranked = [None, *by_size, *sorted(given.difference(by_size), key=str)]
    number = {name: place for place, name in enumerate(ranked, start=-1)}
    return np.array([number[name] for name in names], dtype=int)


def as_given(groups: np.ndarray | None) -> np.ndarray | None:
    """Numbers of groups as a fit takes them, NaN for rows in none."""
    return None if groups is None else np.where(groups < 0, np.nan, groups)


def one_each(groups: np.ndarray) -> np.ndarray:
    """Numbers of groups with one for each row that is in none."""
    alone = groups < 0
    out = groups.copy()
    out[alone] = np.max(groups, initial=-1) + 1 + np.arange(np.count_nonzero(alone))
    return out


def check_groups(groups: np.ndarray, labelled: Mask) -> None:
    """Raise if all labels of a target are in one group: none of them could be judged."""
    for column in labelled.T:
        own = groups[column]
        if np.all(own == own[0]) and own[0] >= 0:
            raise ValueError(
                f"groups: all {len(own)} labels are in one group, and labels are judged by "
                "those of other groups; leave groups out, or give finer ones"
            )


def warn_of_majority(data: Data) -> None:
    """Warn if a group has more than half of the labels."""
    if data.groups is None:
        return
    for column in data.labelled.T:
        own = data.groups[column]
        largest = int(np.max(np.bincount(own[own >= 0]), initial=0))
        if 2 * largest > len(own):
            warnings.warn(
                f"one group has {largest} of {len(own)} labels: these are judged by the "
                f"{len(own) - largest} labels of other groups alone, and may seem wrong or "
                "impossible to judge only because those are few; finer groups would help",
                UserWarning,
                stacklevel=4,
            )


def _is_missing(name: Any) -> bool:
    if name is None or type(name).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(name, str):
        return not name.strip()
    return bool(name != name)
