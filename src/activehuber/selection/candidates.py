"""What a search for parameters may move: kernels with free widths, summed, and a ridge.

Q(θ) = Σ c² K(θ) ,    γ = e^θ times what it was, one θ for all features or one a feature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import pdist, squareform
from scipy.special import xlogy

from activehuber._typing import Matrix, Vector
from activehuber.fitting.fit import reduced_gram
from activehuber.fitting.settings import Data, Settings
from activehuber.kernels.kernel import Kernel
from activehuber.numerics.linalg import multiply

WIDTH_KERNELS = ("laplacian", "rbf", "matern")
# The name of a family whose parts are views of the data, not kernels of the same columns.
VIEWS = "views"


@dataclass(frozen=True)
class MovableKernel:
    """One kernel of the sum, c² K: a view, or the whole of X.

    Attributes
    ----------
    kernel : Kernel
        With the widths that a factor of one leaves as they are.
    X : ndarray of shape (l, d)
    share : float
        c².
    place : ndarray of shape (d,), int
        Which of the log factors θ belongs to each feature; -1 for none.
    columns : ndarray of int or None
        Which columns of the data X has; None: all.
    """

    kernel: Kernel
    X: Matrix
    share: float
    place: np.ndarray
    columns: np.ndarray | None = None

    @property
    def moves(self) -> bool:
        """Whether any width is free."""
        return bool(np.any(self.place >= 0))

    def widths(self, theta: Vector) -> float | Vector:
        """γ at given log factors: a number while all features share one."""
        if not self.moves:
            return self.kernel.gamma
        if np.ndim(self.kernel.gamma) == 0 and len(set(self.place.tolist())) == 1:
            return float(self.kernel.gamma * np.exp(theta[self.place[0]]))
        factors = np.where(self.place >= 0, np.exp(theta[self.place]), 1.0)
        return self.kernel.gamma * factors

    def at(self, theta: Vector) -> Kernel:
        """The kernel at given log factors."""
        return replace(self.kernel, gamma=self.widths(theta))

    def slopes(self, theta: Vector, gram: Matrix, M: Matrix) -> Vector:
        """⟨M, d(c²K)/dθ_k⟩ for every k, shape of θ; `gram` is K."""
        out = np.zeros(len(theta))
        if not self.moves:
            return out
        if self.kernel.name == "matern":
            W = M * _matern_decay(self.X, self.widths(theta))
        elif len(set(self.place.tolist())) == 1:
            # K = exp(−γ·distance), so dK/dlog γ = K log K.
            out[self.place[0]] = self.share * float(np.sum(M * xlogy(gram, gram)))
            return out
        else:
            assert self.kernel.name in WIDTH_KERNELS, "one width a feature is for these alone"
            W = M * gram
        widths = np.broadcast_to(self.widths(theta), self.place.shape)
        by = _by_sizes if self.kernel.name == "laplacian" else _by_squares
        each = by(W, self.X)
        np.add.at(
            out, self.place[self.place >= 0], (-self.share * widths * each)[self.place >= 0]
        )
        return out


def _matern_decay(X: Matrix, widths: float | Vector) -> Matrix:
    """(5/3)(1 + a)e^−a of every two rows: −dK/d(γ_j δ_j²), the same for every feature j."""
    a = squareform(pdist(X * np.sqrt(10.0 * widths)))
    return (5.0 / 3.0) * (1.0 + a) * np.exp(-a)


def _by_squares(W: Matrix, X: Matrix) -> Vector:
    """Σ_ik W_ik (x_ij − x_kj)² for every feature j; W symmetric."""
    centred = X - X.mean(axis=0)
    return 2.0 * (W.sum(axis=1) @ centred**2) - 2.0 * np.sum(
        centred * multiply(W, centred), axis=0
    )


def _by_sizes(W: Matrix, X: Matrix) -> Vector:
    """Σ_ik W_ik |x_ij − x_kj| for every feature j."""
    buffer = np.empty_like(W)
    out = np.empty(X.shape[1])
    for j, column in enumerate(X.T):
        np.subtract(column[:, None], column[None, :], out=buffer)
        np.abs(buffer, out=buffer)
        out[j] = np.vdot(W, buffer)
    return out


@dataclass(frozen=True)
class FitWithGraph:
    """A fit with a graph, or with agreement between views: these make Q depend on the ridge.

    Attributes
    ----------
    settings : Settings
    data : Data
    """

    settings: Settings
    data: Data

    def gram(self, point: Point) -> Matrix:
        """Q on all labelled rows at the widths and the ridge of a point, shape (l, l)."""
        settings = settings_at(self.settings, point, self.data.total_weight)
        return reduced_gram(settings, self.data)


@dataclass(frozen=True)
class Family:
    """Q(θ) = Σ c² K(θ): all that the search may move, for one choice of kernels.

    Attributes
    ----------
    name : str
        Of the kernel, of several that are added up, or `VIEWS`.
    parts : tuple of MovableKernel
    n_widths : int
        Log factors in θ.
    manifold : float
    fit : FitWithGraph or None
        Whose Q is meant, where there is a graph or agreement between views; such a family is
        looked at, but not moved.
    rows : ndarray of int or None
        The labelled rows that are meant; None: all.
    """

    name: str
    parts: tuple[MovableKernel, ...]
    n_widths: int
    manifold: float = 0.0
    fit: FitWithGraph | None = None
    rows: np.ndarray | None = None

    def gram(self, theta: Vector, ridge: float) -> Matrix:
        """Q of shape (l, l), fresh."""
        if self.fit is not None:
            Q = self.fit.gram(Point(self, theta, float(np.log(ridge))))
            return Q if self.rows is None else Q[np.ix_(self.rows, self.rows)].copy()
        total = None
        for part in self.parts:
            K = part.at(theta).gram(part.X)
            if part.share != 1.0:
                K *= part.share
            total = K if total is None else total + K
        assert total is not None
        return total

    def slopes(self, theta: Vector, M: Matrix) -> Vector:
        """⟨M, dQ/dθ_k⟩, shape (n_widths,)."""
        out = np.zeros(self.n_widths)
        for part in self.parts:
            if part.moves:
                out += part.slopes(theta, part.at(theta).gram(part.X), M)
        return out

    def with_graph(self, fit: FitWithGraph) -> Family:
        """The same kernels in a fit with a graph, or with agreement between views."""
        return replace(self, manifold=fit.settings.manifold, fit=fit)

    def take(self, rows: np.ndarray) -> Family:
        """The same on some of the rows."""
        if self.fit is not None:
            known = np.arange(len(self.parts[0].X)) if self.rows is None else self.rows
            return replace(self, rows=known[rows])
        if any(part.kernel.name == "precomputed" for part in self.parts):
            parts = tuple(replace(p, X=p.X[np.ix_(rows, rows)]) for p in self.parts)
        else:
            parts = tuple(replace(part, X=part.X[rows]) for part in self.parts)
        return replace(self, parts=parts)

    def one_width_each(self) -> Family:
        """The same with one width for each feature in every kernel, or with views for each."""
        parts, index = [], 0
        for part in self.parts:
            free = int(part.moves) * (1 if self.name == VIEWS else len(part.place))
            place = np.full(len(part.place), -1) if free == 0 else index + np.arange(free)
            parts.append(replace(part, place=np.broadcast_to(place, part.place.shape)))
            index += free
        return replace(self, parts=tuple(parts), n_widths=index)


@dataclass(frozen=True)
class Point:
    """A place in the search: log factors on the widths, and the log of the ridge m."""

    family: Family
    theta: Vector
    log_ridge: float

    @property
    def ridge(self) -> float:
        """The ridge m = 2Sλ."""
        return float(np.exp(self.log_ridge))

    def gram(self, rows: np.ndarray | None = None) -> Matrix:
        """Q on all rows or on some."""
        family = self.family if rows is None else self.family.take(rows)
        return family.gram(self.theta, self.ridge)

    def with_one_width_each(self) -> Point:
        """The same place, where every feature or view may move by itself."""
        many = self.family.one_width_each()
        theta = np.zeros(many.n_widths)
        for old, new in zip(self.family.parts, many.parts, strict=True):
            if new.moves:
                theta[new.place] = self.theta[old.place]
        return Point(many, theta, self.log_ridge)


def settings_at(settings: Settings, point: Point, total_weight: float) -> Settings:
    """The settings with the widths and the alpha of a point."""
    parts = zip(settings.views, point.family.parts, strict=True)
    views = tuple(replace(view, kernel=part.at(point.theta)) for view, part in parts)
    return replace(
        settings,
        views=views,
        alpha=point.ridge / (2.0 * total_weight),
        manifold=point.family.manifold or settings.manifold,
    )
