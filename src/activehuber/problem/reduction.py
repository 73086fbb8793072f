"""From kernels and graphs to the reduced problem, and back to the coefficients.

Stationarity of the objective in the coefficients w^α of view α reads, with κ = γ/λ and
κ_B = γ_B/λ for the agreement between views,

    w^α = c^α v − κ M^α f^α − κ_B (m f^α − Σ_β f^β),       f^α = K^α w^α ,

v being one number a label (zero on unlabelled rows). *Smoothing* maps sources x^α, here
c^α v, to the f^α that satisfy this; fitted values are Σ_α c^α f^α = Q v, and w follows from
f by the line above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.operators.features import held_gram
from activehuber.operators.protocol import Gram
from activehuber.problem import certificate, smoothing
from activehuber.problem.problem import Problem, Solution


class Expansion:
    """All views on the rows of the expansion, with their penalties factored.

    Parameters
    ----------
    parts : sequence of ExpandedView
        With penalties where `manifold` is positive, and then with features unless
        `agreement` is positive too.
    alpha, manifold, agreement : float
        λ, γ and γ_B.
    exact : bool
        Whether K may not be lifted (see `_lifted_smoothing_matrix`).

    Attributes
    ----------
    ratio, coupling : float
        κ = γ/λ and κ_B = γ_B/λ.
    smoother : Smoother
    """

    def __init__(
        self,
        parts: Sequence[smoothing.ExpandedView],
        *,
        alpha: float,
        manifold: float,
        agreement: float,
        exact: bool = False,
    ) -> None:
        self.parts, self.alpha, self.ratio = tuple(parts), alpha, manifold / alpha
        self.coupling = agreement / alpha if len(parts) > 1 else 0.0
        self.smoother = smoothing.smoother_of(parts, self.ratio, self.coupling, exact=exact)

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

    def penalise(self, f: Matrix, *, sizes: bool = False) -> Matrix:
        """κ M^α f^α + κ_B (m f^α − Σ_β f^β), shape (n, m); of sizes all terms are added up."""
        out = np.zeros_like(f)
        if self.ratio > 0.0:
            for i, part in enumerate(self.parts):
                out[:, i] = self.ratio * (
                    (abs(part.penalty) if sizes else part.penalty) @ f[:, i]
                )
        if self.coupling > 0.0:
            sign = 1 if sizes else -1
            total = sign * f.sum(axis=1, keepdims=True)
            out += self.coupling * ((f.shape[1] - 1 - sign) * f + total)
        return out

    def evaluate(self, w: Matrix, values: Matrix) -> certificate.Evaluation:
        """What coefficients w of shape (n, m) give, and the yardsticks of its rounding.

        `values` are those of `values(w)`.
        """
        parts = enumerate(self.parts)
        sizes = np.stack([p.operator.magnitude(w[:, i]) for i, p in parts], axis=1)
        gradient = self.alpha * self.penalise(values)
        return certificate.Evaluation(
            w, values, gradient, sizes, self.alpha * self.penalise(sizes, sizes=True)
        )

    def reduce(self, labelled: np.ndarray, weights: Vector, fit_intercept: bool) -> Reduction:
        """The reduced problem's Q for some labelled rows and view weights c."""
        gram = self.smoother.gram(weights, labelled, fit_intercept)
        return Reduction(self, labelled, weights, gram)


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

    extended_precision = True  # products with K can be formed in it

    def fitted(self, values: Matrix) -> Vector:
        """Σ_α c^α f^α on labelled rows for values f of shape (n, m)."""
        return (values @ self.weights)[self.labelled]

    def sources(self, v: Vector) -> Matrix:
        """c^α v on all rows of the expansion, shape (n, m)."""
        source = np.zeros((len(self.expansion), len(self.weights)))
        source[self.labelled] = np.outer(v, self.weights)
        return source

    def products(self, v: Vector) -> Vector:
        """vᵀf^α on labelled rows with agreement, else vᵀf^α/c^α, shape (m,)."""
        smooth = self.expansion.smoother.smooth
        if self.expansion.coupling > 0.0:
            return v @ smooth(self.sources(v))[self.labelled]
        # f^α/c^α = S^α v does not need c^α, which may be zero.
        unit = replace(self, weights=np.ones_like(self.weights))
        return v @ smooth(unit.sources(v))[self.labelled]

    def expand(self, v: Vector) -> Matrix:
        """Coefficients w of shape (n, m) for dual variables v of shape (l,)."""
        expansion, source = self.expansion, self.sources(v)
        w = self.back(source)
        if not expansion.plain:
            # Refinement: at large κ the difference x − κMf loses digits.
            for _ in range(2):
                w = w + self.back(source - w - expansion.penalise(expansion.values(w)))
        return w

    def back(self, source: Matrix) -> Matrix:
        """The w that belongs to given sources; its rounding is relative to them."""
        expansion = self.expansion
        if expansion.plain:
            return source
        return source - expansion.penalise(expansion.smoother.smooth(source))

    def start(
        self, problem: Problem, solution: Solution, level: float, *, precise: bool = False
    ) -> RowState:
        """The coefficients of a solution at ξ = `level`, with products of K that precise."""
        coefficients = self.expand(solution.v)
        parts = self.expansion.values(coefficients, precise=precise)
        # The reduced matrix may have its features centred; b takes the constant up.
        shift = problem.constant(solution.fitted - self.fitted(parts))
        b = solution.intercept + shift
        return RowState(
            self, problem, solution, level, precise, solution.v, b, coefficients, parts
        )

    def with_factored_gram(self, fit_intercept: bool) -> Reduction:
        """The same with Q in factored form.

        For a Q that is singular to rounding and an α so small that Q + diag(μ) has no
        Cholesky factor.
        """
        assert self.gram.matrix is not None
        features = smoothing.gram_features(self.gram.matrix)
        return replace(self, gram=held_gram(smoothing.centred(features, fit_intercept)))


@dataclass(frozen=True)
class RowState:
    """Coefficients on the rows of an expansion, formed with K itself, not with Q.

    Attributes
    ----------
    level : float
        ξ; inf is least squares.
    v : ndarray of shape (l,)
    coefficients, parts : ndarray of shape (n, m)
        w^α, and K^α w^α.
    evaluation : certificate.Evaluation or None
        With the yardsticks of rounding, once they are asked for.
    """

    reduction: Reduction
    problem: Problem
    solution: Solution
    level: float
    precise: bool
    v: Vector
    intercept: float
    coefficients: Matrix
    parts: Matrix
    evaluation: certificate.Evaluation | None = None

    least_gain = 1.0  # the share of the error left up to which another correction pays

    @cached_property
    def residuals(self) -> Vector:
        """y − b − Σ_α c^α f^α on labelled rows, shape (l,)."""
        return self.problem.y - self.intercept - self.reduction.fitted(self.parts)

    @cached_property
    def errors(self) -> Vector:
        """What free labels miss r = μv by, shape (l,)."""
        return np.where(self.solution.free, self.residuals - self.problem.mu * self.v, 0.0)

    @cached_property
    def error(self) -> float:
        """The largest of them."""
        return float(np.max(np.abs(self.errors)))

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to correct, or nothing to correct it with."""
        largest = float(np.max(np.abs(self.residuals[self.problem.active])))
        return self.solution.factor is None or self.error <= certificate.SETTLED * min(
            self.level, largest
        )

    def corrected(self) -> RowState:
        """One step of iterative refinement, by the factor of Q."""
        problem, reduction = self.problem, self.reduction
        change, image, shift = problem.solve_with(
            self.solution.factor, self.errors, np.zeros_like(self.v), -float(self.v.sum())
        )
        w = self.coefficients + reduction.back(reduction.sources(change))
        parts = reduction.expansion.values(w, precise=self.precise)
        moved = reduction.fitted(parts) - reduction.fitted(self.parts)
        b = self.intercept + shift + problem.constant(image - moved)
        v = self.v + change
        return replace(self, v=v, intercept=b, coefficients=w, parts=parts, evaluation=None)

    def _evaluate(self) -> certificate.Evaluation:
        found = self.evaluation
        return found or self.reduction.expansion.evaluate(self.coefficients, self.parts)

    def choices(self) -> Iterator[RowState]:
        """The same at the intercepts that may serve, the likeliest first.

        Σ s ψ(r) = 0 fixes b, and so does r = μv on every free row. At tiny α they differ by the
        rounding of Kw, which is not the same on all rows; the certificate says which b serves
        best: the balanced one, or the one that the rows with least rounding ask for.
        """
        problem, reduction = self.problem, self.reduction
        if not problem.fit_intercept:
            yield self
            return
        b = problem.intercept_for(reduction.fitted(self.parts), self.level)
        evaluation = self._evaluate()
        balanced = replace(self, intercept=b, evaluation=evaluation)
        yield balanced
        if self.solution.factor is None:
            return
        sizes = evaluation.values_magnitude[reduction.labelled] @ reduction.weights
        sizes = np.maximum(sizes + np.abs(problem.y), np.finfo(np.float64).tiny)
        trust = np.where(self.solution.free, (np.min(sizes) / sizes) ** 2, 0.0)
        yield replace(balanced, intercept=b + float(balanced.errors @ trust / trust.sum()))

    def certificate(self, threshold: float, centre: float) -> certificate.Certificate:
        """Theorem 1 for labels from which `centre` was taken off."""
        reduction, problem = self.reduction, self.problem
        y, weights = np.zeros((2, len(reduction.expansion)))
        y[reduction.labelled] = problem.y + centre
        weights[reduction.labelled] = np.where(problem.active, problem.weights, 0.0)
        objective = certificate.Objective(
            y, weights, problem.alpha, reduction.weights, problem.fit_intercept
        )
        return certificate.row_certificate(
            self._evaluate(), objective, self.intercept + centre, threshold
        )
