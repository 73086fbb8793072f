"""Methods of the comparison on UCI data: HLR, the paper's peers and tuned ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import lstsq
from scipy.optimize import minimize
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, NuSVR

from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.regressor_cv import HLRegressorCV
from experiments.paper.outcome import fact, facts

N_FOLDS = 5
# Rows that the parameters of a Gaussian process are learnt on; it is then fitted to all. The
# widths of HLRegressorCV are learnt on as many.
GPR_ROWS = 700
GPR_STEPS = 100
# Steps of libsvm, which may not end with a linear kernel.
SVR_STEPS = 1_000_000
ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3)


# --- folds ------------------------------------------------------------------------------


def fold_numbers(n: int, reading: str, n_folds: int = N_FOLDS) -> np.ndarray:
    """The fold of each of n rows, shape (n,): blocks in file order, or every fifth row."""
    rows = np.arange(n)
    return rows * n_folds // n if reading == "contiguous" else rows % n_folds


def inner_splits(n: int, reading: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(train, test) row numbers: of the four folds of n training rows each once held out."""
    fold = fold_numbers(n, reading, N_FOLDS - 1)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(N_FOLDS - 1)]


# --- methods ----------------------------------------------------------------------------


def fitted_and_predicted(
    make: Callable[[int, int], Any], X: np.ndarray, y: np.ndarray, Z: np.ndarray
) -> np.ndarray:
    """Predictions for Z of make(n, d), fitted to X, y; features standardised by X."""
    scaler = StandardScaler().fit(X)
    model = make(*X.shape).fit(scaler.transform(X), y)
    return model.predict(scaler.transform(Z))


def hlr(n: int, d: int, **params: Any) -> HLRegressor:
    """HLR with given parameters."""
    return HLRegressor(**params)


def hlr_chosen(n: int, d: int, **params: Any) -> HLRegressorCV:
    """HLR with parameters chosen from the training rows."""
    return HLRegressorCV(**params)


def lbfgs(
    objective: Callable[[np.ndarray], Any], start: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, float]:
    """Maximum likelihood in GPR_STEPS steps at most, as scikit-learn wants it."""
    found = minimize(
        objective,
        start,
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": GPR_STEPS},
    )
    return found.x, found.fun


class AffineMeanProcess:
    """A Gaussian process around an affine mean, with what it needs learnt on GPR_ROWS rows.

    Parameters
    ----------
    kernel : kernel of scikit-learn
    affine_mean : bool
        The least-squares plane is taken off first (else the mean of the labels).
    """

    def __init__(self, kernel: Any, affine_mean: bool) -> None:
        self.kernel = kernel
        self.affine_mean = affine_mean

    def fit(self, X: np.ndarray, y: np.ndarray) -> AffineMeanProcess:
        """Learn by maximum likelihood, then condition on all rows."""
        self.plane = lstsq(self._columns(X), y)[0]
        rest = y - self._columns(X) @ self.plane
        rows = np.random.default_rng(0).permutation(len(y))[:GPR_ROWS]
        first = GaussianProcessRegressor(self.kernel, optimizer=lbfgs, normalize_y=True)
        learnt = first.fit(X[rows], rest[rows]).kernel_
        self.process = GaussianProcessRegressor(learnt, normalize_y=True, optimizer=None)
        self.process.fit(X, rest)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Of shape (n,)."""
        return self._columns(X) @ self.plane + self.process.predict(X)

    def _columns(self, X: np.ndarray) -> np.ndarray:
        ones = np.ones((len(X), 1))
        return np.hstack([ones, X]) if self.affine_mean else ones


def paper_gpr(n: int, d: int) -> AffineMeanProcess:
    """Affine mean, linear + squared exponential covariance."""
    linear = ConstantKernel(0.1, (1e-5, 1e3)) * DotProduct(1.0, "fixed")
    bump = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(np.sqrt(d), (1e-2, 1e3))
    return AffineMeanProcess(linear + bump + WhiteKernel(0.1, (1e-6, 1e1)), True)


def tuned_gpr(n: int, d: int) -> AffineMeanProcess:
    """Matern 5/2 with one width a feature, all by maximum likelihood."""
    bump = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(
        np.full(d, np.sqrt(d)), (1e-2, 1e3), nu=2.5
    )
    return AffineMeanProcess(bump + WhiteKernel(0.1, (1e-6, 1e1)), False)


def tuned(reading: str, grid: Mapping[str, Any], model: Any, n: int, d: int) -> GridSearchCV:
    """Least mean absolute error over the four inner folds; labels standardised."""
    inside = TransformedTargetRegressor(model, transformer=StandardScaler())
    return GridSearchCV(
        inside,
        {f"regressor__{name}": values for name, values in grid.items()},
        scoring="neg_mean_absolute_error",
        cv=inner_splits(n, reading),
    )


def tuned_peers(reading: str) -> dict[str, Callable[[int, int], Any]]:
    """The five peers with parameters from the training rows, by the name of the paper."""

    def by_folds(grid: Mapping[str, Any], model: Any) -> Callable[[int, int], Any]:
        return partial(tuned, reading, grid, model)

    network = MLPRegressor(solver="lbfgs", max_iter=300, random_state=0)
    near = {
        "n_neighbors": [1, 2, 3, 5, 8, 12, 20],
        "weights": ["uniform", "distance"],
        "p": [1, 2],
    }
    hidden = [(5,), (10,), (20,)]
    return {
        "GPR": tuned_gpr,
        "RR": by_folds({"alpha": list(np.logspace(-3, 3, 13))}, Ridge()),
        "K-nn": by_folds(near, KNeighborsRegressor()),
        "NN": by_folds({"hidden_layer_sizes": hidden, "alpha": [0.1, 1.0, 10.0]}, network),
        "SVR": partial(tuned_svr, reading),
    }


def tuned_svr(reading: str, n: int, d: int) -> GridSearchCV:
    """SVR with the rbf kernel, its width relative to the number of features."""
    widths = [factor / d for factor in (0.03, 0.1, 0.3, 1.0, 3.0)]
    grid = {"gamma": widths, "C": [1.0, 10.0, 100.0], "epsilon": [0.1]}
    return tuned(reading, grid, SVR(cache_size=500), n, d)


def paper_peers(name: str) -> dict[str, Callable[[int, int], Any]]:
    """The five peers with the parameters of tab:par22 for one set."""

    def printed(method: str, parameter: str) -> float | None:
        return fact(facts("uci_parameters"), method=method, set=name, parameter=parameter)

    return {
        "GPR": paper_gpr,
        "RR": partial(_as_given, Ridge(alpha=printed("RR", "alpha"))),
        "K-nn": partial(_as_given, KNeighborsRegressor(int(printed("K-nn", "K") or 0))),
        "NN": partial(_as_given, _network(int(printed("NN", "hidden") or 0))),
        "SVR": partial(
            _as_given,
            _linear_svr(printed("SVR", "C"), printed("SVR", "epsilon"), printed("SVR", "nu")),
        ),
    }


def _network(hidden: int) -> TransformedTargetRegressor:
    """One hidden layer; a network needs labels of order one."""
    model = MLPRegressor(
        hidden_layer_sizes=(hidden,), solver="lbfgs", max_iter=300, random_state=0
    )
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def _linear_svr(cost: float | None, epsilon: float | None, nu: float | None) -> Any:
    """Whichever of the two the paper has a figure for, labels in their own units."""
    if epsilon is not None:
        return SVR(kernel="linear", C=cost, epsilon=epsilon, max_iter=SVR_STEPS)
    return NuSVR(kernel="linear", C=cost, nu=nu, max_iter=SVR_STEPS)


def _as_given(model: Any, n: int, d: int) -> Any:
    return model
