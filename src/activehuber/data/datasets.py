"""Tables with known faults: what was corrupted is returned with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from activehuber._typing import Mask, Vector

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class CorruptedTable:
    """A table and the truth about it.

    Attributes
    ----------
    frame : pandas.DataFrame
        Column `patient` is the id, `progression` the target, with gaps and wrong labels.
    truth : ndarray of shape (n,)
        The target as it was before.
    corrupted : ndarray of shape (n,), bool
        Labels that are given and wrong.
    kinds : ndarray of shape (n,), str
        How each was corrupted; empty where it was not.

    Examples
    --------
    >>> from activehuber.data.datasets import make_corrupted_diabetes
    >>> table = make_corrupted_diabetes()
    >>> table.truth.shape == table.corrupted.shape == (len(table.frame),)
    True
    >>> bool((table.kinds[table.corrupted] != "").all())
    True
    """

    frame: pd.DataFrame
    truth: Vector
    corrupted: Mask
    kinds: np.ndarray


def make_corrupted_diabetes(seed: int = 0) -> CorruptedTable:
    """The diabetes table of scikit-learn with gaps and mistakes as people make them.

    442 patients, ten measurements. Of the targets (25 to 346) a fifth is taken away and 24 of
    the others are corrupted: 10 have a zero too much, 7 a minus sign, 7 are the value of
    another unit (a tenth, shifted by 600).

    Parameters
    ----------
    seed : int, default=0

    Returns
    -------
    CorruptedTable

    Examples
    --------
    >>> from activehuber.data.datasets import make_corrupted_diabetes
    >>> corrupted = make_corrupted_diabetes()
    >>> corrupted.frame.shape
    (442, 12)
    >>> int(corrupted.corrupted.sum())
    24
    >>> int(corrupted.frame["progression"].isna().sum())
    88
    """
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(as_frame=True, scaled=False)
    frame, truth = bunch.data.copy(), bunch.target.to_numpy(dtype=np.float64)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(truth))
    kinds = np.full(len(truth), "", dtype=object)
    kinds[order[:10]] = "a zero too much"
    kinds[order[10:17]] = "a minus sign"
    kinds[order[17:24]] = "another unit"
    target = truth.copy()
    target[kinds == "a zero too much"] *= 10.0
    target[kinds == "a minus sign"] *= -1.0
    target[kinds == "another unit"] = 600.0 + target[kinds == "another unit"] / 10.0
    target[order[24 : 24 + len(truth) // 5]] = np.nan
    frame["sex"] = np.where(frame["sex"].to_numpy() == 1.0, "one", "two")
    frame.insert(0, "patient", [f"P{number:03d}" for number in range(1, len(truth) + 1)])
    frame["progression"] = target
    return CorruptedTable(frame, truth, kinds != "", kinds)
