"""The problem in a finite basis, for more rows than a Gram matrix allows.

    J(θ, b) = 1/S Σ s_i H_ξ(y_i − b − Ψ_i θ) + λ |θ|² ,

with the penalties of graph and agreement moved into Ψ (see `operators.features`). The labels'
part of the mathematics (thresholds, removals, leave-one-out) is that of the exact problem, on
Q = ΨΨᵀ; here are what replaces the expansion over rows, and the certificate in θ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.data.rows import ArrayRows, Rows, Sums, automatic_block_size
from activehuber.kernels import feature_maps, landmark_choice
from activehuber.kernels.feature_maps import Basis
from activehuber.kernels.kernel import LARGEST_FEATURE, Kernel, check_widths, gamma_of_variance
from activehuber.loss import huber
from activehuber.numerics.linalg import cholesky_in_place, solve_cholesky, solve_lower
from activehuber.operators.features import FeatureGram, FeatureMap, gram_sums, moments
from activehuber.problem.certificate import SETTLED, Certificate, certified, scale_of
from activehuber.problem.problem import EPSILON, Problem, Solution


@dataclass(frozen=True)
class Approximation:
    """How kernels are approximated; names as in `HLRegressor`.

    Attributes
    ----------
    seed : int
        What `random_state` came to: the same numbers are drawn again from it.
    """

    kind: str
    n_components: int
    seed: int


def build_basis(
    approximation: Approximation,
    kernels: Sequence[Kernel],
    columns: Sequence[np.ndarray | None],
    rows: Rows,
    labels: Matrix,
    fit_intercept: bool,
) -> tuple[Basis, Matrix]:
    """The functions of each view, and the rows of their graphs.

    Rows are drawn evenly from all row numbers, labelled or not, by the seed alone, so that they
    do not depend on how the rows are cut into blocks. Landmarks are those of them that explain
    the labels best (see `landmark_choice`), where choosing costs little beside the fit. All
    views share them. (Spreading them out instead, by k-means++ or random pivoted Cholesky,
    lowered test errors by 13 % where rows cluster and raised them by 8 to 17 % where they have
    heavy tails.)

    Parameters
    ----------
    labels : ndarray of shape (n, q)
        NaN where none counts.

    Returns
    -------
    basis : Basis
    sample : ndarray of shape (k, d)
        `n_components` rows, drawn evenly.
    """
    # FourierFeatures have a generator of their own: they do not depend on the number of rows.
    of_rows, of_waves = (np.random.default_rng([approximation.seed, part]) for part in (0, 1))
    numbers = feature_maps.drawn(len(rows), approximation.n_components, of_rows)
    sample = rows.take(numbers)
    functions: list[Any] = []
    if approximation.kind == "nystrom":
        marks = _landmark_rows(approximation, kernels, columns, rows, labels, numbers, sample)
    for kernel, own in zip(kernels, columns, strict=True):
        chosen = feature_maps.of_view(sample, own)
        if approximation.kind == "nystrom":
            functions.append(feature_maps.landmarks(kernel, feature_maps.of_view(marks, own)))
        elif approximation.kind == "fourier":
            functions.append(
                feature_maps.random_fourier_features(
                    kernel, chosen.shape[1], approximation.n_components, of_waves
                )
            )
        else:
            centre = chosen.mean(axis=0) if fit_intercept else np.zeros(chosen.shape[1])
            functions.append(feature_maps.Columns(centre, kernel.name == "cosine"))
    return Basis(tuple(columns), tuple(functions)), sample


def _landmark_rows(
    approximation: Approximation,
    kernels: Sequence[Kernel],
    columns: Sequence[np.ndarray | None],
    rows: Rows,
    labels: Matrix,
    numbers: np.ndarray,
    sample: Matrix,
) -> Matrix:
    """The evenly drawn rows, or those of several times as many that the labels ask for.

    The sum of the views' kernels stands for all of them.
    """
    wanted = approximation.n_components
    labelled = np.flatnonzero(~np.all(np.isnan(labels), axis=1))
    n_candidates, n_looked_at = landmark_choice.effort(len(labelled), wanted)
    if not n_candidates:
        return sample
    rng = np.random.default_rng([approximation.seed, 2])
    others = np.setdiff1d(feature_maps.drawn(len(rows), n_candidates - wanted, rng), numbers)
    looked_at = labelled[feature_maps.drawn(len(labelled), n_looked_at, rng)]
    taken = rows.take(np.concatenate([others, looked_at]))
    candidates, seen = np.concatenate([sample, taken[: len(others)]]), taken[len(others) :]
    functions = np.zeros((len(seen), len(candidates)))
    for kernel, own in zip(kernels, columns, strict=True):
        functions += kernel.between(
            feature_maps.of_view(seen, own), feature_maps.of_view(candidates, own)
        )
    if not np.all(np.isfinite(functions)):
        return sample  # which says so
    chosen = landmark_choice.forward_choice(functions, labels[looked_at], wanted)
    # Where the functions chosen are enough for the labels, evenly drawn ones fill up.
    rest = np.setdiff1d(np.arange(len(candidates)), chosen)[: wanted - len(chosen)]
    return candidates[np.sort(np.concatenate([chosen, rest]))]


@dataclass(frozen=True)
class ColumnMoments:
    """Weighted moments of the columns about a point, each of shape (d,)."""

    point: Vector
    mean: Vector
    mean_square: Vector

    def gamma(self, gamma: Any, columns: np.ndarray | None) -> float | Vector:
        """γ of some columns; see `kernels.resolve_gamma`."""
        own = slice(None) if columns is None else columns
        point, first, second = self.point[own], self.mean[own], self.mean_square[own]
        whole = float(np.mean(point + first))
        shift = point - whole
        if not isinstance(gamma, str) and np.ndim(gamma) > 0:
            return check_widths(gamma, len(point))
        variance = float(np.mean(second + 2.0 * shift * first + shift**2))
        largest = float(np.max(np.abs(point) + np.sqrt(second)))
        return gamma_of_variance(gamma, len(point), variance, largest)


def column_moments(rows: Rows, weights: Vector) -> ColumnMoments:
    """One pass over all rows, which also looks for numbers that are not finite."""
    point = rows.take(np.array([0]))[0]
    point = np.where(np.isfinite(point), point, 0.0)
    _, (first, second, bad) = rows.run(_moment_sums, (point,), (weights / weights.sum(),))
    if bad.any():
        kind = "NaN" if bad[0] else "infinity or a value too large for dtype('float64')"
        raise ValueError(
            f"Input X contains {kind}. Rows without all their features must be left out or "
            "filled in first"
        )
    return ColumnMoments(point, first, second)


def _moment_sums(X: Matrix, point: Vector, share: Vector) -> tuple[None, Sums]:
    with np.errstate(invalid="ignore", over="ignore"):  # said below, in so many words
        moved = X - point
        sums = share @ moved, share @ moved**2
    beyond = np.count_nonzero(np.abs(X) > LARGEST_FEATURE)
    bad = np.array([np.count_nonzero(np.isnan(X)), beyond])
    return None, (*sums, bad)


class BlockExpansion:
    """What all targets share: the basis, and the penalty on its coefficients.

    Parameters
    ----------
    rows : Rows
    basis : Basis
    penalty : ndarray of shape (p, p) or None
        P = I + (γ/λ) ΦᵀMΦ + (γ_B/λ) …, on the coefficients of [Φ¹ … Φ^m]; None: I.
    coupling : float
        γ_B/λ.
    """

    rough = False

    def __init__(
        self, rows: Rows, basis: Basis, penalty: Matrix | None, coupling: float
    ) -> None:
        self.rows, self.basis, self.coupling = rows, basis, coupling
        self.lower: Matrix | None = None
        self.mixing: Matrix | None = None
        if penalty is not None:
            self.lower = cholesky_in_place(penalty.copy())
            eye = np.eye(len(penalty))
            self.mixing = solve_lower(self.lower, eye, transposed=True)

    def reduce(self, labelled: np.ndarray, weights: Vector, _: bool) -> BlockReduction:
        """The problem of some labelled rows at view weights c."""
        features = FeatureMap(self.basis, weights, self.mixing)
        gram = FeatureGram(self.rows, labelled, features)
        return BlockReduction(self, gram, labelled, weights, features)


@dataclass(frozen=True)
class BlockReduction:
    """Q on the labelled rows at one c; see `reduction.Reduction`."""

    expansion: BlockExpansion
    gram: FeatureGram
    labelled: np.ndarray
    weights: Vector
    features: FeatureMap

    extended_precision = False

    def products(self, v: Vector) -> Vector:
        """vᵀf^α with agreement, else vᵀf^α/c^α, shape (m,)."""
        basis, lower = self.expansion.basis, self.expansion.lower
        places = basis.places
        plain = FeatureMap(basis, np.ones(len(places)))
        _, (image,) = self.expansion.rows.run(moments, (basis,), (v,), self.labelled)
        own = plain.from_functions(image)
        sources = own.copy()
        if self.expansion.coupling > 0.0:
            for c, place in zip(self.weights, places, strict=True):
                sources[place] *= c
        answer = sources if lower is None else solve_cholesky(lower, sources)
        return np.array([own[place] @ answer[place] for place in places])

    def start(
        self, problem: Problem, solution: Solution, level: float, *, precise: bool = False
    ) -> BasisState:
        """θ of a solution at ξ = `level`; passes have one precision."""
        del precise
        theta = self.gram.primal_of(solution.v, problem.active)
        return self.look(problem, solution, level, theta, solution.intercept)

    def look(
        self, problem: Problem, solution: Solution, level: float, theta: Vector, b: float
    ) -> BasisState:
        """One pass: residuals and gradient at θ and b."""
        gram, weights = self.gram, np.where(problem.active, 1.0 / problem.mu, 0.0)
        residuals, (image, figures) = gram.rows.run(
            residual_sums,
            (gram.basis, gram.features.to_functions(theta), b, level),
            (problem.y, weights),
            gram.numbers,
        )
        assert residuals is not None
        gradient = theta - gram.features.from_functions(image)
        sums = (float(figure) for figure in figures)
        return BasisState(self, problem, solution, level, theta, b, residuals, gradient, *sums)

    def sample(self, places: np.ndarray) -> BlockReduction:
        """The same on some of the labelled rows, held in memory."""
        expansion = self.expansion
        held = ArrayRows(expansion.rows.take(self.labelled[places]))
        held = held.in_blocks_of(automatic_block_size(expansion.basis.width))
        inner = BlockExpansion(held, expansion.basis, None, expansion.coupling)
        inner.lower, inner.mixing = expansion.lower, expansion.mixing
        return inner.reduce(np.arange(len(places)), self.weights, True)


# --- penalties --------------------------------------------------------------------------


def graph_penalty(
    basis: Basis,
    sample: Matrix,
    graphs: Sequence[Any],
    ratio: float,
    agreement: float,
    rows: Rows,
) -> Matrix | None:
    """P of shape (p, p): I + ratio ΦᵀMΦ a view + agreement between views.

    The graph M joins the drawn rows alone, and counts n/k times for the k of them, so that it
    weighs what the graph of all rows would; drawn in full it is that graph. Agreement is a sum
    over all rows.

    Parameters
    ----------
    graphs : sequence of (k, k) matrices, one a view
        Empty if there is no manifold term.
    ratio, agreement : float
        γ/λ and γ_B/λ.
    """
    if not graphs and agreement == 0.0:
        return None
    penalty = np.eye(basis.width)
    if graphs:
        scale = ratio * len(rows) / len(sample)
        views = basis.whitened(basis(sample))
        for place, phi, M in zip(basis.places, views, graphs, strict=True):
            inner = phi.T @ (M @ phi)
            penalty[place, place] += 0.5 * scale * (inner + inner.T)
    if agreement > 0.0:  # Σ_{α<β} |f^α − f^β|² over all rows as a form in the coefficients
        m = len(basis.places)
        everything = FeatureMap(basis, np.ones(m))
        _, (inner, _mean) = rows.run(gram_sums, (everything,), (np.ones(len(rows)),))
        form = -inner
        for place in basis.places:
            form[place, place] = (m - 1) * inner[place, place]
        penalty += agreement * form
    return penalty


# --- the way to certified coefficients --------------------------------------------------


def residual_sums(
    X: Matrix,
    basis: Basis,
    coefficients: Vector,
    intercept: float,
    threshold: float,
    y: Vector,
    weights: Vector,
) -> tuple[Vector, Sums]:
    """r = y − b − κa, and the sums κᵀ(s∘ψ(r)), Σ sψ, Σ s|ψ|, Σ sH_ξ(r)."""
    raw = basis(X)
    residuals = y - intercept - raw @ coefficients
    clipped = weights * huber.psi(residuals, threshold)
    loss = weights @ huber.value(residuals, threshold)
    figures = np.array([clipped.sum(), np.abs(clipped).sum(), loss])
    return residuals, (raw.T @ clipped, figures)


@dataclass(frozen=True)
class BasisState:
    """θ and b with what a pass over the labels says of them.

    Attributes
    ----------
    level : float
        ξ; inf is least squares.
    gradient : ndarray of shape (p,)
        θ − Ψᵀ(ψ(r)/μ).
    balance : float
        Σ ψ(r)/μ.
    magnitude, loss : float
        Σ |ψ(r)|/μ and Σ H_ξ(r)/μ.
    """

    reduction: BlockReduction
    problem: Problem
    solution: Solution
    level: float
    theta: Vector
    intercept: float
    residuals: Vector
    gradient: Vector
    balance: float
    magnitude: float
    loss: float

    precise = False
    least_gain = 0.5  # less than on rows: a correction is a pass over all labels

    @property
    def v(self) -> Vector:
        """Dual variables, shape (l,)."""
        return self.solution.v

    @property
    def coefficients(self) -> Vector:
        """a with prediction = κ(x) a + b, shape (p,)."""
        return self.reduction.features.to_functions(self.theta)

    @property
    def error(self) -> float:
        """How far from the minimum this is, in the units of θ."""
        factor = self.solution.factor
        unit = 1.0 if factor is None else np.sqrt(factor.total)
        return float(np.linalg.norm(self.gradient)) + abs(self.balance) / unit

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to correct, or nothing to correct it with."""
        left = float(np.linalg.norm(self.gradient))
        small = SETTLED * float(np.linalg.norm(self.theta))
        return self.solution.factor is None or left <= small

    def corrected(self) -> BasisState:
        """A Newton step on θ and b, by the factor of the last pattern."""
        constant = self.balance if self.problem.fit_intercept else None
        step, shift = self.solution.factor.solve_primal(-self.gradient, constant)
        theta, b = self.theta + step, self.intercept + shift
        return self.reduction.look(self.problem, self.solution, self.level, theta, b)

    def choices(self) -> Iterator[BasisState]:
        """Itself: b is corrected along with θ."""
        yield self

    def certificate(self, threshold: float, centre: float) -> Certificate:
        """Duality gap and violation of the approximated problem, from θ and b.

        With w = ψ(r)/μ as the dual point, g = θ − Ψᵀw and e = Σ w, which a shift of w along the
        free labels (sum W, moment m) brings to zero,

            gap = ½ |g + e m/W|² + ½ e²/W        in units of Φ = J/2λ,

        and stationarity is |g| beside Σ |Ψ_i|/μ_i: what labels that are all off by one to one
        side would pull together.
        """
        problem, factor = self.problem, self.solution.factor
        g, e = self.gradient, self.balance if problem.fit_intercept else 0.0
        if e == 0.0:
            gap = 0.5 * float(g @ g)
        elif factor is not None and factor.total > 0.0:
            shifted = g + e * factor.mean / factor.total
            gap = 0.5 * float(shifted @ shifted) + 0.5 * e * e / factor.total
        else:
            # No label is free: Σ w is a sum of ±ξ/μ, and what is left over costs |b| each.
            gap = 0.5 * float(g @ g) + abs(e) * float(np.max(np.abs(self.residuals)))
        total = float(np.sum(1.0 / problem.mu[problem.active]))
        digit = EPSILON * (self.magnitude + total * abs(centre))
        length = np.sqrt(self._mean_diagonal())
        return certified(
            objective=2.0 * problem.alpha * (self.loss + 0.5 * float(self.theta @ self.theta)),
            gap=2.0 * problem.alpha * gap,
            violation=max(0.0, float(np.linalg.norm(g)) - 4.0 * digit * length),
            rounding=digit * length,
            unit=total * length,
            balance=max(0.0, abs(e) - digit) / total,
            scale=scale_of(problem.y[problem.active], threshold, problem.fit_intercept),
        )

    def _mean_diagonal(self) -> float:
        """The mean of Q_ii over the free labels: tr(H − I) = Σ Q_ii/μ_i."""
        factor, trace = self.solution.factor, 0.0
        if factor is not None:
            trace = float(np.sum(np.tril(factor.lower) ** 2)) - len(factor.lower)
        # Beside the identity tiny features are lost.
        if trace > 0.0:
            return trace / factor.total
        return float(np.mean(self.reduction.gram.diagonal))
