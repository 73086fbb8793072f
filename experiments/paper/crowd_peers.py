"""Other methods that count people from given features, for the tables of `crowd`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import ElasticNet, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from activehuber.estimators.regressor import HLRegressor
from activehuber.graphs.laplacians import chain_affinity
from activehuber.views import View
from experiments.paper.outcome import Run

N_FEATURES, FRAME = 30, 30
FOLDS = KFold(5, shuffle=False)


# --- methods ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A fitted method: its predictions for the frames to count, the share it dropped."""

    predict: Callable[[], np.ndarray]
    removed: float | None = None


Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], Model]


def standardised(X: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Features of all arrays by mean and deviation of the first; frame numbers stay."""
    centre, scale = X[:, :FRAME].mean(axis=0), X[:, :FRAME].std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return tuple(
        np.column_stack([(part[:, :FRAME] - centre) / scale, part[:, FRAME:]])
        for part in (X, *others)
    )


# --- peers ------------------------------------------------------------------------------


def peer(
    model: BaseEstimator,
    grid: dict[str, list[Any]],
    X: np.ndarray,
    y: np.ndarray,
    Z: np.ndarray,
) -> Model:
    """A model of scikit-learn on standardised features, tuned on contiguous folds."""
    A, B = standardised(X, Z)
    A, B = A[:, :FRAME], B[:, :FRAME]
    centre = y.mean()
    if grid:
        model = GridSearchCV(model, grid, scoring="neg_mean_absolute_error", cv=FOLDS)
    with warnings.catch_warnings():
        # Optimisers of peers say when they stop at a bound or at their last step; the fit
        # they return is the one that is shown.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = clone(model).fit(A, y - centre)
    return Model(lambda: fitted.predict(B) + centre)


def cumulative_attributes(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Model:
    """CA-RR: ridge to the attributes "at least j people", then ridge from them to the count."""
    A, B = standardised(X, Z)
    A, B = A[:, :FRAME], B[:, :FRAME]
    steps = np.arange(1, int(y.max()) + 1)
    attributes = (y[:, None] >= steps).astype(float)
    search = GridSearchCV(
        Ridge(), {"alpha": [1.0, 10.0, 100.0]}, scoring="neg_mean_squared_error", cv=FOLDS
    ).fit(A, attributes)
    # The second stage learns from attributes as they will be: predicted, not given.
    held_out = np.empty_like(attributes)
    for train, test in FOLDS.split(A):
        part = clone(search.best_estimator_).fit(A[train], attributes[train])
        held_out[test] = part.predict(A[test])
    second = GridSearchCV(
        Ridge(), {"alpha": [0.1, 1.0, 10.0]}, scoring="neg_mean_absolute_error", cv=FOLDS
    ).fit(held_out, y)
    return Model(lambda: second.predict(search.predict(B)))


def least_squares_svr(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Model:
    """LSSVR: kernel ridge with an unpenalised bias, rbf, tuned on contiguous folds."""
    A, B = standardised(X, Z)
    A, B = A[:, :FRAME], B[:, :FRAME]
    best: tuple[float, float, float] = (np.inf, 0.0, 0.0)
    for width, ridge in itertools.product((0.01, 0.0033, 0.001), (1e-3, 1e-2, 1e-1, 1.0)):
        errors = np.empty(len(y))
        for train, test in FOLDS.split(A):
            predicted = _bordered(A[train], y[train], A[test], width, ridge)
            errors[test] = np.abs(predicted - y[test])
        best = min(best, (float(errors.mean()), width, ridge))
    return Model(lambda: _bordered(A, y, B, best[1], best[2]))


def _bordered(
    A: np.ndarray, y: np.ndarray, B: np.ndarray, width: float, ridge: float
) -> np.ndarray:
    """Solve [K + ridge I, 1; 1ᵀ, 0] (w, b) = (y, 0) and predict at B."""
    n = len(y)
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = np.exp(-width * _squared_distances(A, A)) + ridge * np.eye(n)
    system[:n, n] = system[n, :n] = 1.0
    solution = np.linalg.solve(system, np.append(y, 0.0))
    return np.exp(-width * _squared_distances(B, A)) @ solution[:n] + solution[n]


def _squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)[None, :] - 2.0 * A @ B.T
    return np.maximum(squares, 0.0)


def quadratic_loss(
    make_views: Callable[[np.ndarray], list[View]],
    X: np.ndarray,
    y: np.ndarray,
    Z: np.ndarray,
    *,
    grid: Sequence[tuple[float, float]],
) -> Model:
    """Least squares with graphs over counted and uncounted frames; (λ, γ) chosen on folds."""

    def fit(A: np.ndarray, b: np.ndarray, B: np.ndarray, alpha: float, gamma: float) -> Any:
        A, B = standardised(A, B)
        rows = np.vstack([A, B])
        model = HLRegressor(
            views=make_views(rows), alpha=alpha, manifold=gamma, threshold=np.inf
        )
        model.fit(rows, np.concatenate([b, np.full(len(B), np.nan)]))
        return lambda: model.predict(B)

    order = np.argsort(X[:, FRAME], kind="stable")
    X, y = X[order], y[order]
    errors = []
    for alpha, gamma in grid:
        found = np.empty(len(y))
        for train, test in FOLDS.split(X):
            predicted = fit(X[train], y[train], X[test], alpha, gamma)()
            found[test] = np.abs(predicted - y[test])
        errors.append(found.mean())
    return Model(fit(X, y, Z, *grid[int(np.argmin(errors))]))


def manifold_views(rows: np.ndarray) -> list[View]:
    """MR: one view, one graph of nearest neighbours."""
    return [View(slice(0, N_FEATURES), "rbf", gamma=0.0033, name="all")]


def space_and_time_views(rows: np.ndarray) -> list[View]:
    """SSR in its quadratic form: one view with a graph in space, one with a graph in time."""
    every = slice(0, N_FEATURES)
    return [
        View(every, "rbf", gamma=0.0033, name="space"),
        View(every, "rbf", gamma=0.0033, graph=chain_affinity(rows[:, FRAME]), name="time"),
    ]


GRAPH_GRID = [(a, g) for a in (1e-4, 1e-5) for g in (1e-6, 1e-5, 1e-4)]
WIDTHS = [0.01, 0.0033, 0.001]


def multi_peers(run: Run) -> dict[str, Fit]:
    """The live methods of tab:multi."""
    gaussian_process = GaussianProcessRegressor(
        ConstantKernel(10.0) * DotProduct(1.0)
        + ConstantKernel(10.0) * RBF(10.0, (1.0, 1e3))
        + WhiteKernel(10.0, (1e-2, 1e3)),
        normalize_y=False,
    )
    found: dict[str, Fit] = {
        "RR": partial(peer, Ridge(), {"alpha": [0.1, 1.0, 10.0, 100.0]}),
        "KRR": partial(
            peer,
            KernelRidge(kernel="rbf"),
            {"gamma": WIDTHS, "alpha": [1e-3, 1e-2, 1e-1, 1.0]},
        ),
        "CA-RR": cumulative_attributes,
    }
    if not run.quick:
        found["LSSVR"] = least_squares_svr
        found["GPR"] = partial(peer, gaussian_process, {})
        forest = RandomForestRegressor(200, random_state=0)
        found["RFR"] = partial(peer, forest, {"min_samples_leaf": [1, 5]})
    return found


def semi_peers(run: Run) -> dict[str, Fit]:
    """The live methods of tab:semi."""
    grid = GRAPH_GRID[:1] if run.quick else GRAPH_GRID
    net = ElasticNet(max_iter=20_000)
    return {
        "MR": partial(quadratic_loss, manifold_views, grid=grid),
        "SSR": partial(quadratic_loss, space_and_time_views, grid=grid),
        "EN": partial(peer, net, {"alpha": [0.01, 0.1, 1.0], "l1_ratio": [0.2, 0.5, 0.9]}),
    }


def ryan_peers(run: Run) -> dict[str, Fit]:
    """The live methods of tab:ryan."""
    usual = multi_peers(replace(run, quick=False))
    network = MLPRegressor(hidden_layer_sizes=(8,), alpha=1e-2, max_iter=5000, random_state=0)
    return {
        "GPR": usual["GPR"],
        "Lin": usual["RR"],
        "K-nn": partial(peer, KNeighborsRegressor(4), {}),
        "NN": partial(peer, network, {}),
    }
