"""From kernels and graphs to the reduced problem, and back to the coefficients.

Stationarity of the objective in the coefficients w^α of view α reads, with κ = γ/λ and
κ_B = γ_B/λ for the agreement between views,

    w^α = c^α v − κ M^α f^α − κ_B (m f^α − Σ_β f^β),       f^α = K^α w^α ,

v being one number a label (zero on unlabelled rows). *Smoothing* maps sources x^α, here
c^α v, to the f^α that satisfy this; fitted values are Σ_α c^α f^α = Q v, and w follows from
f by the line above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.operators.features import held_gram
from activehuber.operators.protocol import Gram
from activehuber.problem.problem import Evaluation
from activehuber.problem.smoothing import (
    ExpandedView,
    Smoother,
    centred,
    gram_features,
    smoother_of,
)


@dataclass(frozen=True)
class Expansion:
    """All views on the rows of the expansion, with their penalties factored.

    Attributes
    ----------
    parts : tuple of ExpandedView
    alpha : float
        λ.
    ratio : float
        κ = γ/λ.
    coupling : float
        κ_B = γ_B/λ.
    smoother : Smoother
    """

    parts: tuple[ExpandedView, ...]
    alpha: float
    ratio: float
    coupling: float
    smoother: Smoother

    def __len__(self) -> int:
        return len(self.parts[0].operator)

    @property
    def rough(self) -> bool:
        """Whether the penalties are factored only roughly, for refinement to mend."""
        return self.smoother.rough

    @property
    def plain(self) -> bool:
        """Whether there is no penalty but ‖f‖²_K."""
        return self.ratio == 0.0 and self.coupling == 0.0

    def values(self, w: Matrix, *, precise: bool = False) -> Matrix:
        """f^α = K^α w^α, shape (n, m)."""
        parts = enumerate(self.parts)
        return np.stack([p.operator.matvec(w[:, i], precise=precise) for i, p in parts], axis=1)

    def penalise(self, f: Matrix) -> Matrix:
        """κ M^α f^α + κ_B (m f^α − Σ_β f^β), shape (n, m)."""
        out = np.zeros_like(f)
        if self.ratio > 0.0:
            for i, part in enumerate(self.parts):
                out[:, i] = self.ratio * (part.penalty @ f[:, i])
        if self.coupling > 0.0:
            out += self.coupling * (f.shape[1] * f - f.sum(axis=1, keepdims=True))
        return out

    def evaluate(self, w: Matrix, values: Matrix) -> Evaluation:
        """What coefficients w of shape (n, m) give, and the yardsticks of its rounding.

        `values` are those of `values(w)`.
        """
        sizes = np.stack(
            [p.operator.magnitude(w[:, i]) for i, p in enumerate(self.parts)], axis=1
        )
        rounding = np.zeros_like(sizes)
        if self.ratio > 0.0:
            for i, part in enumerate(self.parts):
                rounding[:, i] = self.ratio * (abs(part.penalty) @ sizes[:, i])
        if self.coupling > 0.0:
            others = sizes.sum(axis=1, keepdims=True) - sizes
            rounding += self.coupling * ((sizes.shape[1] - 1) * sizes + others)
        gradient = self.alpha * self.penalise(values)
        return Evaluation(w, values, gradient, sizes, self.alpha * rounding)

    def reduce(self, labelled: np.ndarray, weights: Vector, fit_intercept: bool) -> Reduction:
        """The reduced problem's Q for some labelled rows and view weights c."""
        gram = self.smoother.gram(weights, labelled, fit_intercept)
        return Reduction(self, labelled, weights, gram)


class Reducible(Protocol):
    """Q at one c, and the way to Q at another: what learning c needs."""

    @property
    def expansion(self) -> Any:
        """With `coupling`, and `reduce(labelled, weights, fit_intercept)`."""
        ...

    @property
    def labelled(self) -> np.ndarray:
        """Labelled rows, shape (l,)."""
        ...

    @property
    def weights(self) -> Vector:
        """c, shape (m,)."""
        ...

    def pulls(self, v: Vector) -> tuple[Vector, Vector]:
        """vᵀf^α and vᵀf^α/c^α on labelled rows, each of shape (m,)."""
        ...


@dataclass(frozen=True)
class Reduction:
    """Q for some labelled rows, and the way back to the coefficients.

    Attributes
    ----------
    expansion : Expansion
    labelled : ndarray of shape (l,), int
        Where the labelled rows are among the rows of the expansion.
    weights : ndarray of shape (m,)
        c.
    gram : Gram
        Q, shape (l, l). With an intercept its features may be centred, which shifts fitted
        values by a constant that the intercept takes up.
    """

    expansion: Expansion
    labelled: np.ndarray
    weights: Vector
    gram: Gram

    def fitted(self, values: Matrix) -> Vector:
        """Σ_α c^α f^α on labelled rows for values f of shape (n, m)."""
        return (values @ self.weights)[self.labelled]

    def sources(self, v: Vector) -> Matrix:
        """c^α v on all rows of the expansion, shape (n, m)."""
        source = np.zeros((len(self.expansion), len(self.weights)))
        source[self.labelled] = np.outer(v, self.weights)
        return source

    def pulls(self, v: Vector) -> tuple[Vector, Vector]:
        """vᵀf^α and vᵀf^α/c^α on labelled rows, each of shape (m,)."""
        smooth, c = self.expansion.smoother.smooth, self.weights
        if self.expansion.coupling > 0.0:
            products = v @ smooth(self.sources(v))[self.labelled]
            return products, products / np.maximum(c, np.finfo(np.float64).tiny ** 0.5)
        # f^α/c^α = S^α v does not need c^α, which may be zero.
        unit = replace(self, weights=np.ones_like(c))
        pulls = v @ smooth(unit.sources(v))[self.labelled]
        return c * pulls, pulls

    def expand(self, v: Vector) -> Matrix:
        """Coefficients w of shape (n, m) for dual variables v of shape (l,)."""
        expansion, source = self.expansion, self.sources(v)
        w = self._back(source)
        if not expansion.plain:
            # Refinement: at large κ the difference x − κMf loses digits.
            for _ in range(2):
                w = w + self._back(source - w - expansion.penalise(expansion.values(w)))
        return w

    def expand_change(self, change: Vector) -> Matrix:
        """Change of w for a small change of v; rounding is relative to the change."""
        return self._back(self.sources(change))

    def _back(self, source: Matrix) -> Matrix:
        """The w that belongs to given sources."""
        expansion = self.expansion
        if expansion.plain:
            return source
        return source - expansion.penalise(expansion.smoother.smooth(source))

    def with_factored_gram(self, fit_intercept: bool) -> Reduction:
        """The same with Q in factored form.

        For a Q that is singular to rounding and an α so small that Q + diag(μ) has no
        Cholesky factor.
        """
        assert self.gram.matrix is not None
        features = gram_features(self.gram.matrix)
        return replace(self, gram=held_gram(centred(features, fit_intercept)))


def expand_views(
    parts: Sequence[ExpandedView],
    *,
    alpha: float,
    manifold: float,
    agreement: float,
    exact: bool = False,
) -> Expansion:
    """Factor the penalties of all views.

    Parameters
    ----------
    parts : sequence of ExpandedView
        With penalties where `manifold` is positive, and then with features unless
        `agreement` is positive too.
    exact : bool
        Whether K may not be lifted (see `_lifted_smoothing_matrix`).
    """
    ratio = manifold / alpha
    coupling = agreement / alpha if len(parts) > 1 else 0.0
    smoother = smoother_of(parts, ratio, coupling, exact=exact)
    return Expansion(tuple(parts), alpha, ratio, coupling, smoother)
