"""On which scale a target is judged.

labels, features of some of them -> candidates -> the one under which all labels are likeliest
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.estimators.groups import one_each
from activehuber.estimators.parameter_search import FEW_LABELS
from activehuber.estimators.target_scale import LOG, NONE, YEO_JOHNSON, TargetScale
from activehuber.fitting.settings import Data
from activehuber.kernels.kernel import Kernel
from activehuber.labels.rule import DEFAULT_RULE
from activehuber.numerics.linalg import BreakdownError
from activehuber.runtime.messages import TableError, shortened
from activehuber.selection.candidates import Family, MovableKernel
from activehuber.selection.joint import likelihood_of_labels
from activehuber.selection.search import LOOK_ROWS, RIDGES, WIDTH_FACTORS
from activehuber.selection.tuning import labels_of

AUTO = "auto"
TARGET_TRANSFORMS = (AUTO, NONE, LOG, YEO_JOHNSON)
# λ that are tried: near 0 the noise grows with the level, at ½ with its root, as of counts.
EXPONENTS = (0.0, 0.5)
# Fewer labels than this say nothing of a scale.
FEWEST_LABELS = 20
# The log of a Bayes factor from which evidence is called very strong.
VERY_STRONG = 5.0
# The kernel that is used, the roughest: it follows any target to some extent. Of few labels it
# follows wrong ones too: there it is a linear function and a smooth one.
KERNEL, SMOOTH = "laplacian", "rbf"


def candidates(y: Vector, kind: str) -> Iterator[TargetScale]:
    """Scales to compare for labels y; the first is the simplest."""
    if kind in (AUTO, NONE):
        yield TargetScale()
    if kind == LOG or (kind == AUTO and np.all(y > 0.0)):
        yield TargetScale(LOG)
    if kind in (AUTO, YEO_JOHNSON) and np.any(y != 0.0):
        unit = float(np.median(np.abs(y[y != 0.0])))
        yield from (TargetScale(YEO_JOHNSON, each, unit) for each in EXPONENTS)


def check_scale(y: Vector, kind: str, name: str) -> None:
    """Raise unless labels can be taken to this scale."""
    if kind == LOG and not np.all(y > 0.0):
        raise TableError(
            f"target {shortened(name)!r} holds {np.min(y):g}, and only numbers above 0 have a "
            "logarithm; use target_transform='yeo-johnson', or 'auto'"
        )


def choose_scale(
    X: Matrix,
    y: Vector,
    trusted: Mask,
    kind: str,
    seed: int,
    groups: np.ndarray | None = None,
) -> TargetScale:
    """The scale on which all labels y, right or wrong, are likeliest.

        log p(t(y) | X) + Σ log t′(y_i) ,

    p that of `labels.mixture` with the kernel that suits it, on some of the labels. As wrong
    labels may be anywhere, they have little to say. A scale other than the first has to be
    better by what one parameter costs, ½ log l, and very strong evidence.

    Parameters
    ----------
    X : ndarray of shape (l, d)
    y : ndarray of shape (l,)
        NaN where there is no label.
    trusted : ndarray of shape (l,), bool
    kind : {"auto", "none", "log", "yeo-johnson"}
    seed : int
        Of the labels that are drawn if there are many.
    groups : ndarray of shape (l,), int, or None
        As in `Data`. Of many groups one label each is looked at.
    """
    given = ~np.isnan(y)
    X, y, trusted = X[given], y[given], trusted[given]
    groups = None if groups is None else groups[given]
    found = list(candidates(y, kind))
    times = np.unique(y, return_counts=True)[1]
    # Of labels most of which are alike, such as no visit to a doctor, the few others would
    # choose, on whose scale of their own a gross one is none.
    few = len(y) < FEWEST_LABELS or len(times) < 3 or 2 * times.max() > len(y)
    if len(found) < 2 or few:
        return found[0] if found else TargetScale()
    data = Data(X, y[:, None], np.ones(len(y)), trusted[:, None], groups=groups)
    rows = np.random.default_rng(seed).permutation(data.order())
    if groups is not None:
        # Copies of a label would count as so many witnesses.
        _, first = np.unique(one_each(groups)[rows], return_index=True)
        rows = rows[np.sort(first)] if len(first) >= FEWEST_LABELS else rows
    rows = rows[:LOOK_ROWS]
    some = data.with_labels_of(rows)
    levels = [_level(X[rows], some, scale) for scale in found]
    levels[0] += VERY_STRONG + 0.5 * np.log(len(rows))
    return found[int(np.argmax(levels))]


def _level(X: Matrix, data: Data, scale: TargetScale) -> float:
    spread = X.std(axis=0)
    Z = np.ascontiguousarray((X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))
    d = Z.shape[1]
    y = data.y[:, 0]
    unit, moves, stays = 1.0 / max(1, d), np.zeros(d, dtype=int), np.full(d, -1)
    families = [Family(KERNEL, (MovableKernel(Kernel(KERNEL, unit), Z, 1.0, moves),), 1)]
    if len(y) <= FEW_LABELS:
        linear = MovableKernel(Kernel("linear"), Z, unit, stays)
        smooth = MovableKernel(Kernel(SMOOTH, unit), Z, 1.0, moves)
        families = [Family("linear", (linear,), 0), Family(SMOOTH, (linear, smooth), 1)]
    t = scale.forward(y)
    labels, size = labels_of(replace(data, X=Z, y=t[:, None]), fit_intercept=True)
    try:
        level = likelihood_of_labels(
            families,
            labels,
            np.log(np.sort(WIDTH_FACTORS)),
            np.log(RIDGES),
            DEFAULT_RULE,
        )
    except BreakdownError:
        return -np.inf
    return level - len(t) * float(np.log(size)) + float(np.sum(scale.log_slope(y)))
