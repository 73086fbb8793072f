"""Groups of dropped labels that bear each other out.

Dropping goes label by label: each is asked what the labels in use say of it. Where a function
is steep that can run like dominoes, since every label is a little outside once its neighbour
has gone, and the whole flank is lost. Taken together such labels agree, and the evidence of a
Gaussian process says by how much. With A = Q + diag(μ), S the labels in use, R those dropped
and nothing known of b,

    y_S ~ N(b, τ² A_SS) ,     e_R ~ N(0, τ² C) given y_S ,

and to use a group T of R too changes the log evidence by that of e_T. Labels are bad with
probability π and then come from a wide density (Cauchy's). τ² and π are the most likely ones on
each side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.labels.rule import LabelRule
from activehuber.labels.thresholds import share_of
from activehuber.numerics.linalg import cholesky_in_place, solve_lower
from activehuber.operators.dense import upper_submatrix


@dataclass(frozen=True)
class Dropped:
    """The labels out of use, seen from those in use.

    Attributes
    ----------
    rows : ndarray of shape (r,), int
        R.
    errors : ndarray of shape (r,)
        e_R: labels less predictions.
    covariance : ndarray of shape (r, r)
        C; see `operators.protocol.Factor`.
    mu, weights : ndarray of shape (r,)
    cuts : ndarray of shape (r,)
        How far |e| may go.
    log_bad : ndarray of shape (r,)
        Log density of the label if it is bad.
    weight_in_use : float
        Σ s over S.
    energy : float
        y_Sᵀ A_SS⁻¹ y_S, centred: its mean is τ² times `weight_in_use`, less one for b.
    lost : float
        1 with an intercept, else 0.
    """

    rows: np.ndarray
    errors: Vector
    covariance: Matrix
    mu: Vector
    weights: Vector
    cuts: Vector
    log_bad: Vector
    weight_in_use: float
    energy: float
    lost: float


def log_cauchy(values: Vector, scale: float) -> Vector:
    """Log density of the Cauchy distribution around 0, shape like `values`."""
    return -np.log(np.pi * scale * (1.0 + (values / scale) ** 2))


def groups(labels: Dropped, rule: LabelRule) -> list[np.ndarray]:
    """For each label those that come nearly inside their cuts when it is used; large ones.

    With label i in use the others have e_j − C_ji/C_ii e_i left, and their variance shrinks
    from C_jj to C_jj − C_ji²/C_ii. A label of weight s is s equal ones: all of them must.

    Returns
    -------
    list of ndarray of int
        Places in `labels`, each group once.
    """
    # Of a label of weight s one is used first: its own μ is s times as large, and the others
    # like it share all but that.
    units = np.maximum(labels.weights, 1.0)
    shared = labels.covariance - np.diag(labels.mu)
    own = np.diagonal(shared) + units * labels.mu
    left = labels.errors[:, None] - shared * (labels.errors / own)
    variance = np.maximum(own[:, None] - shared**2 / own, (units * labels.mu)[:, None])
    limits = rule.nearly_inside * labels.cuts[:, None] * np.sqrt(variance / own[:, None])
    inside = share_of(left, limits) <= 1.0
    whole = np.diagonal(inside) | (units == 1.0)
    np.fill_diagonal(inside, True)
    sizes = np.where(whole, units @ inside, 0.0)
    largest = np.argsort(-sizes, kind="stable")[: rule.groups_weighed]
    largest = largest[sizes[largest] >= rule.group_fewest]
    found = {inside[:, i].tobytes(): inside[:, i] for i in largest}
    return [np.flatnonzero(group) for group in found.values()]


def best_groups(labels: Dropped, rule: LabelRule) -> list[np.ndarray]:
    """The groups that the evidence speaks for, the best first, as many as are tried."""
    gains = [(evidence_gain(labels, group), group) for group in groups(labels, rule)]
    gains.sort(key=lambda pair: -pair[0])
    return [group for gain, group in gains[: rule.groups_tried] if gain > 0.0]


def evidence_gain(labels: Dropped, group: np.ndarray) -> float:
    """By how much the log evidence grows when a group is used too.

    A label of weight s is s equal ones, so that A has s equal rows with μ₁ = sμ: they add
    (s − 1) log μ₁ + log s to log det A.
    """
    lower = cholesky_in_place(upper_submatrix(labels.covariance, group))
    whitened = solve_lower(lower, labels.errors[group])
    weights = labels.weights[group]
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(lower))))
    log_det += float(
        np.sum((weights - 1.0) * np.log(weights * labels.mu[group]) + np.log(weights))
    )
    used, out = labels.weight_in_use, float(labels.weights.sum())
    joining, added = float(weights.sum()), float(whitened @ whitened)
    before = _log_likelihood(used, out, labels.energy, labels.lost)
    after = _log_likelihood(used + joining, out - joining, labels.energy + added, labels.lost)
    return after - before - 0.5 * log_det - float(weights @ labels.log_bad[group])


def _log_likelihood(used: float, out: float, energy: float, lost: float) -> float:
    """Of roles, at the most likely π <= ½, and of y_S but for log det A, at that τ²."""
    share = min(out / (used + out), 0.5)
    roles = used * np.log1p(-share) + (out * np.log(share) if share > 0.0 else 0.0)
    degrees = max(used - lost, 1.0)
    return roles - 0.5 * degrees * (np.log(2.0 * np.pi * energy / degrees) + 1.0)
