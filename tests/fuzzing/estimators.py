"""Drawn parameters and data for the estimators, and what their answers must be.

Most cases are ordinary; in half of them something is extreme, and in a few something is of
the wrong type. Every case is a list of plain values, so that it can be made smaller.
"""

from __future__ import annotations

import io
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from activehuber import (
    HLClassifier,
    HLClassifierCV,
    HLRegressor,
    HLRegressorCV,
    LabelledKFold,
    View,
    huber_path,
)
from activehuber.estimators.splitters import is_missing
from tests.fuzzing.verdict import FAILED, REFUSED, BadAnswerError, Verdict, verdict_of

Rng = np.random.Generator

TINY = (1e-320, 1e-308, 1e-200, 1e-150, 1e-140, 1e-100, 1e-60, 1e-30)
HUGE = (1e30, 1e60, 1e100, 1e140, 1e150, 1e154, 1e200, 1e307)
MODERATE = (1e-9, 1e-4, 0.1, 1.0, 1.0, 10.0, 1e4, 1e9)
KERNELS = ("linear", "poly", "rbf", "laplacian", "matern", "cosine")
WIDTH_KERNELS = ("rbf", "laplacian", "matern")
# What scikit-learn says of numbers that are not finite; none is drawn but as a wrong value.
NOT_FINITE = ("contains NaN", "contains infinity", "up to nan")
RULES = ("adaptive", "refine", "madn", "quantile", "tuning-free")


def row_kernel(x, z, power=1.0):
    """A kernel of two rows."""
    return float(np.exp(-power * np.sum(np.abs(x - z)) / (1.0 + np.max(np.abs(x)))))


def matrix_kernel(X, Z):
    """A kernel of two matrices."""
    return 1.0 + np.minimum(1.0, np.abs(X[:, :1])) @ np.minimum(1.0, np.abs(Z[:, :1])).T


def chain(X):
    """The penalty of neighbours in a row."""
    steps = np.diff(np.eye(len(X)), axis=0)
    return steps.T @ steps


def median_size(residuals, weights):
    """A rule for the threshold."""
    return float(np.median(np.abs(residuals))) + 1e-3 * float(np.max(np.abs(residuals)))


def first_column(X):
    """A selector of columns."""
    return [0]


WRONG = (
    None,
    "no",
    "",
    "loo",
    -1,
    0,
    0.5,
    3,
    True,
    np.nan,
    np.inf,
    -np.inf,
    10**400,
    1e-320,
    1e308,
    1j,
    (),
    [],
    [1.0],
    ["rbf"],
    [np.nan, 1.0],
    {},
    {"a": 1},
    b"rbf",
    np.array(1.0),
    np.float32(0.1),
    np.int8(3),
    np.bool_(True),
    pd.NA,
    median_size,
    object,
)


@dataclass(frozen=True)
class Case:
    """One call of fit, and what is asked of the fit.

    Attributes
    ----------
    estimator : class, or `huber_path`
    params : dict
    X, y, weights, trusted
        What `fit` gets.
    new : array-like
        Rows to predict.
    tags : tuple of str
        What is extreme about it.
    """

    estimator: Any
    params: dict[str, Any]
    X: Any
    y: Any
    weights: Any = None
    trusted: Any = None
    new: Any = None
    coverage: Any = 0.9
    tags: tuple[str, ...] = ()


def trial(seed: int, number: int) -> Verdict:
    """Draw a case and judge what comes of it."""
    return judge(draw(np.random.default_rng([seed, number])))


def judge(case: Case) -> Verdict:
    """What comes of a case."""
    verdict = verdict_of(lambda: answer(case))
    if verdict.kind == REFUSED and is_misleading(verdict, case):
        verdict = Verdict(FAILED, f"refused for what is not there: {verdict.why}")
    if verdict.kind != FAILED:
        return verdict
    name = case.estimator.__name__
    return replace(verdict, why=f"{verdict.why} [{', '.join((name, *case.tags))}]")


def is_misleading(verdict: Verdict, case: Case) -> bool:
    """Whether an error speaks of NaN or infinity where every number was finite."""
    corrupted_on_purpose = any(tag.startswith("wrong") for tag in case.tags)
    return not corrupted_on_purpose and any(words in verdict.why for words in NOT_FINITE)


# --- what an answer must be -------------------------------------------------------------


def answer(case: Case) -> str:
    """Fit and ask; "with a warning" if the certificate is not good, and said so."""
    with warnings.catch_warnings(record=True) as said, redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        if case.estimator is huber_path:
            check_path(huber_path(case.X, case.y, case.weights, **case.params))
            return ""
        model = case.estimator(**case.params)
        model.fit(case.X, case.y, case.weights, case.trusted)
        warned = any(issubclass(each.category, ConvergenceWarning) for each in said)
        check_certificate(model, warned=warned)
        check_labels(model, case.y, case.weights)
        check_predictions(model, case)
    return "with a warning" if warned else ""


def finite(name: str, values: Any) -> None:
    """Raise unless all values are finite numbers."""
    values = np.asarray(values, dtype=np.float64)
    if np.any(np.isnan(values)):
        raise BadAnswerError(f"{name} is NaN")
    if np.any(np.isinf(values)):
        raise BadAnswerError(f"{name} is infinite")


def check_path(path: Any) -> None:
    """Breakpoints that fall, and finite solutions at them and between."""
    finite("path.thresholds", path.thresholds)
    if np.any(np.diff(path.thresholds) > 0.0):
        raise BadAnswerError("path.thresholds do not fall")
    for threshold in (path.thresholds[0], path.thresholds[-1], np.mean(path.thresholds)):
        coefficients, intercept = path.at(float(threshold))
        finite("coefficients of the path", coefficients)
        finite("intercept of the path", intercept)


def check_certificate(model: Any, *, warned: bool) -> None:
    """A minimum that is proven, or a warning that it is not."""
    inner = getattr(model, "best_estimator_", model)
    regressor = getattr(inner, "estimator_", inner)
    for name in ("dual_coef_", "coef_", "intercept_", "view_weights_"):
        if hasattr(regressor, name):
            finite(name, getattr(regressor, name))
    threshold = np.asarray(regressor.threshold_)
    if np.any(np.isnan(threshold)) or np.any(threshold < 0.0):
        raise BadAnswerError("threshold_ is NaN or negative")
    asked_for_inf = not isinstance(regressor.threshold, str)  # or the search and classes did
    if not asked_for_inf:
        finite("threshold_", threshold)
    if getattr(model, "algorithm", "exact") == "paper":  # proves nothing, as documented
        return
    tol = max(float(regressor.tol), 1e-10)
    for name, most in (("duality_gap_", 10 * tol), ("kkt_residual_", 100 * tol)):
        value = np.asarray(getattr(regressor, name))
        if np.any(np.isnan(value)):
            raise BadAnswerError(f"{name} is NaN")
        if np.any(value > most) and not warned:
            raise BadAnswerError(f"{name} is too large, without a warning")
    objective = np.asarray(regressor.objective_)
    if np.any(np.isnan(objective)):
        raise BadAnswerError("objective_ is NaN")
    if np.any(np.isinf(objective)) and not warned:
        raise BadAnswerError("objective_ is infinite, without a warning")


def check_labels(model: Any, y: Any, weights: Any) -> None:
    """Quality in [0, 1] exactly where there is a label of some weight."""
    given = ~is_missing(np.asarray(y, dtype=object))
    if weights is not None:
        given = (given.T & (np.broadcast_to(weights, len(given)) > 0.0)).T
    quality, removed = np.asarray(model.label_quality_), np.asarray(model.removed_)
    if quality.shape != given.shape or removed.shape != given.shape:
        raise BadAnswerError("label_quality_ or removed_ has another shape than y")
    finite("label_quality_", quality[given])
    if np.any(quality[given] < 0.0) or np.any(quality[given] > 1.0):
        raise BadAnswerError("label_quality_ is not in [0, 1]")
    if not np.all(np.isnan(quality[~given])) or np.any(removed[~given]):
        raise BadAnswerError("label_quality_ or removed_ speaks of labels that are not there")
    regressor = getattr(model, "best_estimator_", model)
    if isinstance(regressor, HLRegressor):
        for name in ("residuals_", "loo_residuals_"):
            finite(name, np.asarray(getattr(regressor, name))[given])
        finite("scale_", regressor.scale_)


def check_predictions(model: Any, case: Case) -> None:
    """Finite predictions and intervals, probabilities that add up, classes that exist."""
    predicted = np.asarray(model.predict(case.new))
    if len(predicted) != len(case.new):
        raise BadAnswerError("predict returns another number of rows")
    if hasattr(model, "predict_proba"):
        if not np.all(np.isin(predicted, model.classes_)):
            raise BadAnswerError("predict returns a class that does not exist")
        finite("decision_function", model.decision_function(case.new))
        shares = model.predict_proba(case.new)
        finite("predict_proba", shares)
        if np.any(shares < 0.0) or not np.allclose(shares.sum(axis=1), 1.0):
            raise BadAnswerError("predict_proba are no probabilities")
        return
    finite("predict", predicted)
    ends = model.predict_interval(case.new, case.coverage)
    finite("predict_interval", ends)
    if np.any(ends[:, 0] > ends[:, 1]):
        raise BadAnswerError("predict_interval ends before it begins")


# --- how a case is drawn ----------------------------------------------------------------


def one_of(rng: Rng, choices: Any) -> Any:
    """One of the choices as it is; NumPy would make an array of them."""
    return choices[int(rng.integers(len(choices)))]


def draw(rng: Rng) -> Case:
    """A case."""
    weights = {HLRegressor: 56, huber_path: 14, HLClassifier: 20, HLClassifierCV: 5}
    weights[HLRegressorCV] = 5
    shares = np.array(list(weights.values())) / sum(weights.values())
    estimator = list(weights)[int(rng.choice(len(shares), p=shares))]
    classes = estimator in (HLClassifier, HLClassifierCV)
    n_rows = int(one_of(rng, [1, 2, 3, 4, 5, *range(6, 41, 2), 12, 15, 20, 25]))
    tags: list[str] = []
    X = draw_features(rng, n_rows, tags)
    y = draw_classes(rng, X) if classes else draw_labels(rng, X, tags)
    if estimator is HLRegressor and rng.random() < 0.12:
        y = np.stack([y, draw_labels(rng, X, tags)], axis=1)
    searches = estimator in (HLRegressorCV, HLClassifierCV)
    params = draw_search(rng, estimator, X) if searches else draw_problem(rng, X, tags)
    if estimator in (HLRegressor, HLClassifier):
        params |= draw_method(rng, params, y, tags, classes=classes)
    if np.ndim(y) == 2:
        params = {k: v for k, v in params.items() if not (isinstance(v, str) and v == "loo")}
    weight = draw_weights(rng, n_rows, tags) if rng.random() < 0.45 else None
    trusted = rng.random(n_rows) < 0.2 if rng.random() < 0.2 else None
    X, new = with_kernel(rng, params, X)
    if rng.random() < 0.03:
        new = scaled(new, one_of(rng, (1e-100, 1e6, 1e30, 1e100, 1e140, 1e200)))
        tags.append("new rows far out")
    case = Case(estimator, params, X, y, weight, trusted, new, 0.9, tuple(dict.fromkeys(tags)))
    case = dressed(rng, case)
    if rng.random() < 0.08:
        case = corrupted(rng, case)
    return case


def draw_features(rng: Rng, n_rows: int, tags: list[str]) -> np.ndarray:
    """Rows of numbers, some of them alike, some columns constant or out of scale."""
    X = rng.normal(size=(n_rows, int(rng.integers(1, 6))))
    kind = rng.random()
    if kind < 0.15:
        X = np.round(X)
    elif kind < 0.25:
        X[:, 0] = 3.0
    elif kind < 0.33:
        X = X[rng.integers(n_rows, size=n_rows)]
    elif kind < 0.36:
        X[:] = X[0]
    elif kind < 0.40:
        X = X * one_of(rng, MODERATE) + one_of(rng, (0.0, 1e3, 1e8))
    extreme, factor = rng.random(), one_of(rng, (*TINY, *HUGE))
    if extreme < 0.06:
        X = scaled(X, factor)
        tags.append("X extreme")
    elif extreme < 0.10:
        X[:, -1] = scaled(X[:, -1], factor)
        tags.append("column extreme")
    elif extreme < 0.12:
        X[0] = one_of(rng, (1e30, 1e100, 1e140, 1e154, 1e300))
        tags.append("row extreme")
    return X


def scaled(values: np.ndarray, factor: float) -> np.ndarray:
    """The product, at the largest number where it is larger."""
    with np.errstate(over="ignore"):
        return np.nan_to_num(values * factor)


def draw_labels(rng: Rng, X: np.ndarray, tags: list[str]) -> np.ndarray:
    """Numbers, some wrong, some missing."""
    n_rows = len(X)
    seen = np.clip(X[:, 0] / (np.max(np.abs(X[:, 0])) or 1.0), -1.0, 1.0)
    y = np.sin(3.0 * seen) + one_of(rng, (0.0, 0.01, 0.1, 1.0)) * rng.normal(size=n_rows)
    kind = rng.random()
    if kind < 0.25:
        y[rng.random(n_rows) < 0.15] += one_of(rng, (-5.0, 5.0, 1e3, 1e9))
    elif kind < 0.35:
        y = np.round(y)
    elif kind < 0.40:
        y[:] = one_of(rng, (0.0, 1.0, -7.5))
    elif kind < 0.45:
        y = rng.standard_cauchy(n_rows)
    scale = rng.random()
    if scale < 0.15:
        y = y * one_of(rng, MODERATE) + one_of(rng, (0.0, 0.0, 1e3, -1e8))
    elif scale < 0.24:
        factor = one_of(rng, (*TINY, *HUGE))
        y = scaled(y, factor)
        tags.append("y tiny" if factor < 1.0 else "y huge")
    elif scale < 0.26:
        y[0] = one_of(rng, (1e30, 1e100, 1e140, -1e150, 1e154, 1e300, -1e308))
        tags.append("label huge")
    if rng.random() < 0.3:
        y[rng.random(n_rows) < one_of(rng, (0.2, 0.5, 0.8))] = np.nan
        y[-1] = y[-1] if np.isfinite(y[-1]) else 0.0
    return y


def draw_classes(rng: Rng, X: np.ndarray) -> Any:
    """Two classes or more of any type, some wrong, some missing."""
    names = one_of(
        rng,
        (
            ["a", "b"],
            ["no", "yes", "maybe"],
            [0, 1],
            [-1.0, 1.0],
            [False, True],
            [1e300, -1e-300],
            [2**62, 2**62 + 1],
            ["", "ä", "日本", "=1"],
            [1, 2, 3],
        ),
    )
    seen = np.argsort(np.argsort(X[:, 0], kind="stable")) * len(names) // len(X)
    seen = np.where(rng.random(len(X)) < 0.1, rng.integers(len(names), size=len(X)), seen)
    out = np.empty(len(X), dtype=object)
    out[:] = [names[code] for code in seen]
    if rng.random() < 0.3:
        gone = one_of(rng, (None, np.nan, pd.NA))
        out[np.flatnonzero(rng.random(len(X)) < 0.3)] = gone
        return out
    return out if rng.random() < 0.4 else np.array(out.tolist())


def draw_weights(rng: Rng, n_rows: int, tags: list[str]) -> np.ndarray:
    """One weight a row, with zeros and extremes."""
    weights = one_of(rng, (np.ones(n_rows), rng.random(n_rows), 1.0 + rng.poisson(1.0, n_rows)))
    if rng.random() < 0.3:
        weights = np.where(rng.random(n_rows) < 0.3, 0.0, weights)
        weights[-1] = 1.0
    kind, some = rng.random(), rng.random(n_rows) < 0.3
    extreme = one_of(rng, (5e-324, 1e-100, 1e-30, 1e-20, 1e-9, 1e9, 1e20, 1e30, 1e100, 1e308))
    if kind < 0.15:
        weights = np.where(some, extreme, weights)
        tags.append("weights mixed")
    elif kind < 0.25:
        weights = np.minimum(weights, 1.0) * extreme
        tags.append("weights extreme")
    return weights


def draw_kernel(rng: Rng, tags: list[str]) -> dict[str, Any]:
    """A kernel and its parameters."""
    out: dict[str, Any] = {}
    if rng.random() < 0.6:
        out["kernel"] = one_of(rng, (*KERNELS, row_kernel, matrix_kernel))
    kernel = out.get("kernel", "rbf")
    if kernel is row_kernel and rng.random() < 0.5:
        out["kernel_params"] = {"power": 0.5}
    if rng.random() < 0.3:
        out["gamma"] = one_of(rng, ("scale", "auto", 0.01, 1.0, 100.0, np.float32(0.5), 1))
    elif rng.random() < 0.06:
        out["gamma"] = one_of(rng, (1e-320, 1e-100, 1e-50, 1e-12, 1e12, 1e50, 1e100, 1e308))
        tags.append("gamma extreme")
    if kernel == "poly":
        out["degree"] = one_of(rng, (1, 2, 3, 7))
        out["coef0"] = one_of(rng, (0, 1, 0.5, 10.0))
    return out


def draw_problem(rng: Rng, X: np.ndarray, tags: list[str]) -> dict[str, Any]:
    """What is minimised, as `HLRegressor` and `huber_path` take it."""
    out = draw_kernel(rng, tags)
    if rng.random() < 0.15:
        out = draw_views(rng, X, tags)
    elif rng.random() < 0.1 and out.get("kernel", "rbf") in WIDTH_KERNELS:
        out["gamma"] = rng.random(X.shape[1])
    if rng.random() < 0.4:
        out["alpha"] = one_of(rng, (1e-8, 1e-6, 1e-3, 0.1, 1, 10.0))
    elif rng.random() < 0.08:
        out["alpha"] = one_of(rng, (1e-320, 1e-100, 1e-50, 1e-16, 1e6, 1e50, 1e100, 1e308))
        tags.append("alpha extreme")
    elif rng.random() < 0.08:
        out["alpha"] = "loo"
        if out.get("kernel", "rbf") in WIDTH_KERNELS and "views" not in out:
            out["gamma"] = one_of(rng, ("loo", "scale"))
    if rng.random() < 0.2:
        out["manifold"] = one_of(rng, (1e-6, 1e-3, 0.1, 1, 100.0))
        if rng.random() < 0.05:
            out["manifold"] = one_of(rng, (1e-320, 1e-100, 1e-30, 1e30, 1e100, 1e308))
            tags.append("manifold extreme")
        if "views" not in out:
            out["graph"] = draw_graph(rng, len(X))
        out["n_neighbors"] = one_of(rng, (1, 2, 5, 100))
    if rng.random() < 0.2:
        out["fit_intercept"] = bool(rng.random() < 0.3)
    if rng.random() < 0.04 and "views" not in out:
        out["kernel"], out["gamma"] = "precomputed", "scale"
        out.pop("kernel_params", None)
    return out


def draw_graph(rng: Rng, n_rows: int) -> Any:
    affinity = (rng.random((n_rows, n_rows)) < 0.3) * rng.random((n_rows, n_rows))
    affinity = affinity + affinity.T
    return one_of(rng, ("knn", "knn", "rbf", chain, affinity, sparse.csr_array(affinity)))


def draw_views(rng: Rng, X: np.ndarray, tags: list[str]) -> dict[str, Any]:
    """Two or three views, which may share columns."""
    width, views = X.shape[1], []
    for name in (None, "second", None)[: int(rng.integers(1, 4))]:
        some = np.flatnonzero(rng.random(width) < 0.6).tolist() or [0]
        columns = one_of(rng, (some, slice(0, 1), slice(None), [0], first_column))
        views.append(View(columns, name=name, **draw_kernel(rng, tags)))
    out: dict[str, Any] = {"views": views}
    if rng.random() < 0.4:
        given = np.abs(rng.normal(size=len(views))) + 0.1
        out["view_weights"] = one_of(rng, ("uniform", given, given.tolist()))
    if len(views) > 1 and rng.random() < 0.3:
        out["agreement"] = one_of(rng, (1e-6, 1e-2, 1.0, 1e3))
    return out


def draw_method(
    rng: Rng, problem: dict[str, Any], y: Any, tags: list[str], *, classes: bool
) -> dict[str, Any]:
    """How the problem of `HLRegressor` and `HLClassifier` is solved."""
    out: dict[str, Any] = {}
    if rng.random() < 0.45:
        spread = 1.0 if classes else float(np.nanmax(np.abs(y)))
        numbers = [size * spread for size in (0.01, 0.1, 1.0, 10.0)]
        numbers = [float(n) for n in numbers if 0.0 < n < np.inf]
        out["threshold"] = one_of(rng, (*RULES, *RULES, np.inf, median_size, *numbers))
    elif rng.random() < 0.04:
        out["threshold"] = one_of(
            rng, (5e-324, 1e-200, 1e-100, 1e-12, 1e12, 1e100, 1e200, 1e308)
        )
        tags.append("threshold extreme")
    if out.get("threshold") == "refine":
        out["threshold_step"] = one_of(rng, (1e-6, 0.01, 0.1, 10.0))
        out["n_refinements"] = one_of(rng, (0, 1, 3, 10))
        if rng.random() < 0.15:
            out["algorithm"] = "paper"
    if rng.random() < 0.1:
        out["removal"] = one_of(rng, (None, 0.5, 0.9, 0.01, 1e-90, 2, 3.5, 1e300))
    if rng.random() < 0.05:
        out["tol"] = one_of(rng, (1e-14, 1e-6, 1e-3, 1.0))
    if rng.random() < 0.05:
        out["max_iter"] = one_of(rng, (1, 2, 50, 10**9))
    if rng.random() < 0.02:
        out["verbose"] = one_of(rng, (1, 2, True))
    several = len(problem.get("views", ())) > 1
    if several and "algorithm" not in out and rng.random() < 0.3:
        out["view_weights"] = "learn"
    if classes and rng.random() < 0.2:
        out["noise_rates"] = one_of(rng, ("estimate", (0.1, 0.2), (0.0, 0.0), (0.49, 0.5)))
    if "algorithm" not in out and problem.get("kernel") != "precomputed":
        out |= draw_approximation(rng, problem)
    return out


def draw_approximation(rng: Rng, problem: dict[str, Any]) -> dict[str, Any]:
    """Functions in place of the kernel, in one case of eight."""
    if rng.random() > 0.12 or not isinstance(problem.get("graph", "knn"), str):
        return {}
    holders = [view.kernel for view in problem.get("views", ())]
    holders = holders or [problem.get("kernel", "rbf")]
    names = ["nystrom", "nystrom", "linear"]
    if all(kernel in WIDTH_KERNELS for kernel in holders):
        names += ["fourier", "fourier"]
    out = {"approximation": one_of(rng, names), "random_state": int(rng.integers(10))}
    if rng.random() < 0.6:
        out["n_components"] = one_of(rng, (1, 2, 5, 20, 100))
    if rng.random() < 0.3:
        out["block_size"] = one_of(rng, (1, 3, 7, 1000))
    return out


def draw_search(rng: Rng, estimator: Any, X: np.ndarray) -> dict[str, Any]:
    """Parameters of a search, most of them for small ones."""
    out: dict[str, Any] = {"kernels": one_of(rng, (["rbf"], ["laplacian"], ["rbf", "matern"]))}
    if rng.random() < 0.25:
        out["kernels"] = one_of(rng, (["linear"], ["poly", "rbf"], ("cosine",)))
    if rng.random() < 0.4:
        out["gammas"] = one_of(rng, ([1.0], (0.1, 1.0), [1e-3, 1e3], [1e-90], [1e90], [1e300]))
    if rng.random() < 0.4:
        out["alphas"] = one_of(rng, ([1e-3], (1e-6, 1.0), [1e-90], [1e90], [1e-300]))
    if rng.random() < 0.15:
        out["manifolds"] = one_of(rng, ((0, 0.1), [1e-3]))
        out["graph"] = one_of(rng, ("knn", "rbf", chain))
    if rng.random() < 0.2:
        out["standardize"] = True
    width = set(out["kernels"]) <= set(WIDTH_KERNELS)
    if width and "gammas" not in out and rng.random() < 0.2:
        out["relevance"] = True
    elif rng.random() < 0.15:
        out |= {"cv": one_of(rng, (2, 3, LabelledKFold(2))), "alphas": [1e-3, 1.0]}
        out["gammas"] = [1.0]
    if rng.random() < 0.1 and "relevance" not in out:
        out["views"] = [View([0]), View(slice(None), "linear")]
    if estimator is HLRegressorCV and rng.random() < 0.3:
        out["removal"] = one_of(rng, (0.5, 0.9, None))
    if rng.random() < 0.1 and "manifolds" not in out and "cv" not in out:
        out |= {"approximation": "nystrom", "n_components": 10}
    return out


def with_kernel(
    rng: Rng, params: dict[str, Any], X: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """X as `fit` takes it and rows to predict: Gram matrices for a precomputed kernel."""
    some = rng.integers(len(X), size=int(rng.integers(1, 6)))
    new = X[some]
    if rng.random() < 0.5:
        new = new * (1.0 - 0.1 * rng.random(new.shape))
    if params.get("kernel") != "precomputed":
        return X, new
    with np.errstate(all="ignore"):
        scale = float(np.max(np.abs(X))) or 1.0
        X, new = X / scale, new / scale
        size = one_of(rng, (1.0, 1.0, 1e-6, 1e6, *TINY, *HUGE))
        return rbf_kernel(X) * size, rbf_kernel(new, X) * size


def dressed(rng: Rng, case: Case) -> Case:
    """The same numbers in another container, of another type or order."""
    kind, precise = rng.random(), case.params.get("kernel") != "precomputed"
    X, y, new = case.X, case.y, case.new
    largest = max(np.max(np.abs(X)), np.max(np.abs(new)))
    if kind < 0.06:
        X = X.tolist()
    elif kind < 0.12:
        names = [f"c{i}" for i in range(X.shape[1])]
        X, new = pd.DataFrame(X, columns=names), pd.DataFrame(new, columns=names)
        y = pd.Series(y) if np.ndim(y) == 1 else pd.DataFrame(y)
    elif kind < 0.15 and precise and largest < 1e30:
        X, new = X.astype(np.float32), new.astype(np.float32)
    elif kind < 0.18 and precise and largest < 1e9:
        X, new = np.round(X).astype(np.int64), np.round(new).astype(np.int64)
    elif kind < 0.20 and precise:
        X, new = X > 0.0, new > 0.0
    elif kind < 0.23:
        X = X.astype(object)
    elif kind < 0.26:
        X = np.asfortranarray(X)
    elif kind < 0.29:
        X = np.repeat(X, 2, axis=0)[::2]
        X.flags.writeable = False
    elif kind < 0.32:
        y = y.tolist()
    elif kind < 0.34 and np.asarray(y).dtype == np.float64:
        y = y.astype(object)
    if case.weights is not None and rng.random() < 0.1:
        return replace(case, X=X, y=y, new=new, weights=case.weights.tolist())
    return replace(case, X=X, y=y, new=new)


def corrupted(rng: Rng, case: Case) -> Case:
    """The same with one thing that is most likely wrong."""
    kind, wrong = rng.random(), one_of(rng, WRONG)
    if kind < 0.6 and case.estimator is not huber_path:
        name = one_of(rng, sorted(case.estimator().get_params(deep=False)))
        return replace(
            case, params=case.params | {name: wrong}, tags=(*case.tags, f"wrong {name}")
        )
    if kind < 0.7:
        return replace(case, y=wrong, tags=(*case.tags, "wrong y"))
    if kind < 0.78:
        return replace(case, weights=wrong, tags=(*case.tags, "wrong weights"))
    if kind < 0.84:
        return replace(case, trusted=wrong, tags=(*case.tags, "wrong trusted"))
    if kind < 0.9:
        return replace(case, X=wrong, tags=(*case.tags, "wrong X"))
    if kind < 0.95:
        return replace(case, coverage=wrong, tags=(*case.tags, "wrong coverage"))
    return replace(case, new=wrong, tags=(*case.tags, "wrong new rows"))


# --- a case made small, and said --------------------------------------------------------


def shrunk(case: Case, why: str, seconds: float = 3.0) -> Case:
    """The smallest case found whose verdict starts like `why`, up to the tags."""
    cause = why.partition(" [")[0].partition(" at ")[0]

    def fails_alike(smaller: Case) -> bool:
        with at_most(seconds):
            found = judge(smaller)
        return found.kind == FAILED and found.why.startswith(cause)

    improved = True
    while improved:
        improved = False
        for smaller in simpler(case):
            if fails_alike(smaller):
                case, improved = smaller, True
                break
    return case


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise inside after so many seconds; what raises there becomes a verdict."""

    def stop(*_: Any) -> None:
        raise TimeoutError("hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except TimeoutError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def simpler(case: Case) -> Iterator[Case]:
    """Cases with one thing less."""
    for name in ("weights", "trusted"):
        if getattr(case, name) is not None:
            yield replace(case, **{name: None})
    for name in case.params:
        yield replace(case, params={k: v for k, v in case.params.items() if k != name})
    if case.params.get("kernel") == "precomputed" or not isinstance(case.X, np.ndarray):
        return
    n_rows = len(case.X)
    halves = [np.arange(n_rows // 2), np.arange(n_rows // 2, n_rows)] if n_rows > 3 else []
    for rows in (*halves, *(np.delete(np.arange(n_rows), i) for i in range(n_rows))):
        if len(rows):
            yield _of_rows(case, rows)
    for column in range(case.X.shape[1] if case.X.ndim == 2 and case.X.shape[1] > 1 else 0):
        X, new = np.delete(case.X, column, axis=1), np.delete(case.new, column, axis=1)
        yield replace(case, X=X, new=new)


def _of_rows(case: Case, rows: np.ndarray) -> Case:
    def some(values: Any) -> Any:
        whole = hasattr(values, "__len__") and len(values) == len(case.X)
        return np.asarray(values)[rows] if whole and not isinstance(values, str) else values

    parts = {name: some(getattr(case, name)) for name in ("X", "y", "weights", "trusted")}
    return replace(case, **parts)


def snippet(case: Case) -> str:
    """The call as text."""
    named = ", ".join(f"{name}={text(value)}" for name, value in case.params.items())
    data = f"X={text(case.X)}, y={text(case.y)}"
    for name, value in (("sample_weight", case.weights), ("trusted", case.trusted)):
        data += "" if value is None else f", {name}={text(value)}"
    call: Callable[..., Any] = case.estimator
    if call is huber_path:
        return f"huber_path({data}{', ' if named else ''}{named})"
    return f"{call.__name__}({named}).fit({data}).predict({text(case.new)})"


def text(value: Any) -> str:
    """A value as it would be typed, with all its digits."""
    if isinstance(value, np.ndarray):
        kind = "" if value.dtype == np.float64 else f", dtype={value.dtype}"
        return f"np.array({value.tolist()!r}{kind})"
    if isinstance(value, (pd.Series, pd.DataFrame)):
        return f"pd.{type(value).__name__}({value.to_numpy().tolist()!r})"
    if isinstance(value, View):
        shown = {k: v for k, v in value.get_params().items() if k in ("columns", "kernel")}
        shown |= {k: v for k, v in vars(value).items() if k in ("gamma", "degree", "coef0")}
        return f"View({', '.join(f'{k}={text(v)}' for k, v in shown.items())})"
    if isinstance(value, list) and value and isinstance(value[0], View):
        return f"[{', '.join(map(text, value))}]"
    return getattr(value, "__name__", None) or repr(value)


def describe(seed: int, number: int, verdict: Verdict) -> str:
    """The call of a case, made small if it fails."""
    case = draw(np.random.default_rng([seed, number]))
    if verdict.kind != FAILED:
        return snippet(case)
    return f"{snippet(case)}\n\nsmaller:\n{snippet(shrunk(case, verdict.why))}\n"
