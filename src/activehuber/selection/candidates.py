"""What a search for parameters may move: kernels with free widths, summed, and a ridge.

Q(θ) = Σ c² K(θ) ,    γ = e^θ times what it was, one θ for all features or one a feature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

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

    @property
    def shared(self) -> bool:
        """Whether all features have one width."""
        return np.ndim(self.kernel.gamma) == 0 and len(set(self.place.tolist())) == 1

    def widths(self, theta: Vector) -> float | Vector:
        """γ at given log factors: a number while all features share one."""
        if not self.moves:
            return self.kernel.gamma
        factors = np.exp(np.append(theta, 0.0)[self.place])
        widths = self.kernel.gamma * factors
        return float(widths[0]) if self.shared else widths

    def at(self, theta: Vector) -> Kernel:
        """The kernel at given log factors."""
        return replace(self.kernel, gamma=self.widths(theta))

    def gram(self, theta: Vector) -> Matrix:
        """c² K at given log factors, fresh."""
        K = self.at(theta).gram(self.X)
        K *= self.share
        return K

    def slopes(self, theta: Vector, M: Matrix) -> Vector:
        """⟨M, d(c²K)/dθ_k⟩ for every k, shape of θ."""
        out = np.zeros(len(theta) + 1)  # the last one is that of widths that stay
        kernel = self.at(theta)
        if not self.moves:
            return out[:-1]
        if kernel.name == "matern":
            W = M * _matern_decay(self.X, kernel.gamma)
        else:
            assert kernel.name in WIDTH_KERNELS, "a width moves for these alone"
            K = kernel.gram(self.X)
            if self.shared:
                # K = exp(−γ·distance), so dK/dlog γ = K log K.
                out[self.place[0]] = self.share * float(np.sum(M * xlogy(K, K)))
                return out[:-1]
            W = M * K
        by = _by_sizes if kernel.name == "laplacian" else _by_squares
        np.add.at(out, self.place, -self.share * kernel.gamma * by(W, self.X))
        return out[:-1]


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
class Family:
    """Q(θ) = Σ c² K(θ): all that the search may move, for one choice of kernels.

    Attributes
    ----------
    name : str
        Of the kernel, of several that are added up, or `VIEWS`.
    parts : tuple of MovableKernel
    n_widths : int
        Log factors in θ.
    fit : (Settings, Data) or None
        That these are the kernels of.
    manifold : float
    is_coupled : bool
        Whether Q is that of the fit with a graph, or with agreement between views, on which it
        depends by the ridge too; such a family is looked at, but not moved.
    rows : ndarray of int or None
        The labelled rows that are meant; None: all.
    """

    name: str
    parts: tuple[MovableKernel, ...]
    n_widths: int
    fit: tuple[Settings, Data] | None = None
    manifold: float = 0.0
    is_coupled: bool = False
    rows: np.ndarray | None = None

    def coupled(self, manifold: float) -> Family:
        """The same kernels with a graph of this weight and with the agreement of the fit."""
        return replace(self, manifold=manifold, is_coupled=True)

    def take(self, rows: np.ndarray) -> Family:
        """The same on some of the rows."""
        if self.is_coupled:
            return replace(self, rows=rows if self.rows is None else self.rows[rows])
        parts = tuple(
            replace(
                part,
                X=part.X[np.ix_(rows, rows) if part.kernel.name == "precomputed" else rows],
            )
            for part in self.parts
        )
        return replace(self, parts=parts)


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
        """Q on all rows or on some, fresh."""
        family = self.family if rows is None else self.family.take(rows)
        if not family.is_coupled:
            return reduce(np.add, (part.gram(self.theta) for part in family.parts))
        assert family.fit is not None
        settings, data = family.fit
        Q = reduced_gram(settings_at(settings, self, data.total_weight), data)
        return Q if family.rows is None else Q[np.ix_(family.rows, family.rows)]

    def slopes(self, M: Matrix) -> Vector:
        """⟨M, dQ/dθ_k⟩, shape of θ."""
        return np.sum([part.slopes(self.theta, M) for part in self.family.parts], axis=0)

    def with_one_width_each(self) -> Point:
        """The same place, where every feature of each kernel, or every view, may move alone."""
        parts: list[MovableKernel] = []
        theta: list[float] = []
        for part in self.family.parts:
            free = int(part.moves) * (1 if self.family.name == VIEWS else len(part.place))
            place = part.place if free == 0 else len(theta) + np.arange(free)
            parts.append(replace(part, place=np.broadcast_to(place, part.place.shape)))
            theta += self.theta[part.place[:free]].tolist()
        family = replace(self.family, parts=tuple(parts), n_widths=len(theta))
        return Point(family, np.array(theta), self.log_ridge)


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
