"""Checks of parameters and data: one clear error, before any work."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

from activehuber import graphs
from activehuber._typing import Mask, Matrix, Vector
from activehuber.graphs.laplacians import GRAPH_NAMES
from activehuber.kernels.kernel import EXTREME, KERNEL_NAMES, LARGEST_FEATURE
from activehuber.numerics import robust
from activehuber.runtime.memory import memory_limit
from activehuber.views import check_views

THRESHOLD_NAMES = ("adaptive", "refine", "madn", "quantile", "tuning-free")
ALGORITHM_NAMES = ("exact", "paper")
# The loss is a square: labels beyond these in size have none among the doubles.
SMALLEST_LABEL, LARGEST_LABEL = 1e-154, 1e154
# Parameters in units of y may be as large and as small as labels.
EXTREME_IN_Y = 1e200
LARGEST_INTEGER = 2**31 - 1
# So many times farther out than labels usually lie no label can be beside the others.
FARTHEST_LABEL = 1e30
# Weights are numbers of repetitions; beyond these their sums and shares are lost.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30
# Matrices of the size of the Gram matrix that a fit holds at its peak.
PEAK_MATRICES = 3.5
# And what is kept for further targets: a matrix and its inverse at two other widths.
KEPT_FOR_TARGETS = 4


def is_number(value: Any) -> bool:
    """Whether `value` is a real number, which True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    finite: bool = True,
    extreme: float = EXTREME,
    remedy: str = "",
) -> None:
    """Raise unless `value` is a real number in range, and 0 or neither tiny nor huge.

    Numbers beyond `extreme`, or below its reciprocal, overflow sooner or later.
    """
    bounds = f" > {above:g}" if above is not None else ""
    bounds += f" >= {at_least:g}" if at_least is not None else ""
    message = f"{name} must be a {'finite ' if finite else ''}number{bounds}, got {value!r}"
    message += f"; {remedy}" if remedy else ""
    if not is_number(value):
        raise TypeError(message)
    try:
        number = float(value)
    except OverflowError:
        number = np.nan
    if np.isnan(number) or (finite and np.isinf(number)):
        raise ValueError(message)
    if (above is not None and number <= above) or (at_least is not None and number < at_least):
        raise ValueError(message)
    if number != 0.0 and np.isfinite(number) and not 1.0 / extreme <= abs(number) <= extreme:
        raise ValueError(
            f"{name} must lie between {1.0 / extreme:g} and {extreme:g} in size, got {value!r}"
        )


def check_removal(name: str, value: Any) -> None:
    """Raise unless a cut on the probability of being wrong lies between 0 and 1."""
    check_number(name, value, above=0.0, remedy="None drops none")
    if value >= 1.0:
        raise ValueError(
            f"{name} is the probability of being wrong above which a label is dropped, so it "
            f"must be < 1, got {value:g}; use 0.5, or None to drop none"
        )


def check_integer(name: str, value: Any, *, at_least: int) -> None:
    """Raise unless `value` is an integer in range."""
    message = f"{name} must be an integer >= {at_least}, got {value!r}"
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(message)
    if int(value) < at_least:
        raise ValueError(message)
    if int(value) > LARGEST_INTEGER:
        raise ValueError(f"{name} must be an integer of at most {LARGEST_INTEGER}")


def check_verbose(value: Any) -> None:
    """Raise unless `value` says how much to print."""
    if not isinstance(value, (numbers.Integral, bool, np.bool_)):
        raise TypeError(f"verbose must be an integer, 0 prints nothing, got {value!r}")


def check_several(name: str, values: Any) -> None:
    """Raise unless `values` is a list, tuple or array with something in it."""
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise TypeError(f"{name} must be a list, got {values!r}")
    if not len(values):
        raise ValueError(f"{name} is empty; give at least one")


def check_flag(name: str, value: Any) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...], also: str = "") -> None:
    """Raise unless `value` is one of the strings."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}{also}, got {value!r}")


def check_kernel_and_graph(holder: Any, *, of_view: bool = False) -> None:
    """Raise unless kernel and graph of a view, or of an estimator, make sense.

    A view cannot have gamma="loo" (`of_view`).
    """
    kernel, gamma, graph = holder.kernel, holder.gamma, holder.graph
    if not callable(kernel):
        check_choice("kernel", kernel, KERNEL_NAMES, " or a callable")
    if isinstance(gamma, str):
        names = ("scale", "auto") if of_view else ("scale", "auto", "loo")
        check_choice("gamma", gamma, names, ", a number > 0 or one for each feature")
    elif np.ndim(gamma) == 1:
        for number in gamma:
            check_number("every gamma", number, at_least=0.0, remedy="0 leaves a feature out")
    else:
        check_number("gamma", gamma, above=0.0, remedy='or use gamma="scale"')
    check_integer("degree", holder.degree, at_least=1)
    check_number("coef0", holder.coef0)
    if holder.kernel_params is not None:
        if not isinstance(holder.kernel_params, dict):
            raise TypeError(
                f"kernel_params must be a dict or None, got {holder.kernel_params!r}"
            )
        if not callable(kernel):
            raise ValueError(
                "kernel_params is for callable kernels; named kernels take gamma, degree "
                f"and coef0, but kernel={kernel!r}"
            )
    if isinstance(graph, str):
        check_choice("graph", graph, GRAPH_NAMES, ", a callable or an affinity matrix")
    elif not callable(graph) and not sparse.issparse(graph) and np.ndim(graph) != 2:
        raise TypeError(
            'graph must be "knn", "rbf", a callable that returns M, or an n × n affinity '
            f"matrix, got {graph!r}"
        )
    check_integer("n_neighbors", holder.n_neighbors, at_least=1)


def check_each_view(views: Any) -> None:
    """Raise, naming the view, unless every view is usable."""
    for name, view in zip(check_views(views), views, strict=True):
        try:
            check_kernel_and_graph(view, of_view=True)
            if isinstance(view.kernel, str) and view.kernel == "precomputed":
                raise ValueError(
                    'kernel="precomputed" is not possible for a view, since its columns are '
                    "part of X; pass a callable kernel"
                )
        except (TypeError, ValueError) as error:
            raise type(error)(f"view {name!r}: {error}") from None


def check_threshold_parameters(threshold: Any, algorithm: Any) -> None:
    """Raise unless the threshold mode and the algorithm go together."""
    if isinstance(threshold, str):
        also = ", a number > 0 (inf allowed) or a callable (residuals, weights) -> number"
        check_choice("threshold", threshold, THRESHOLD_NAMES, also)
    elif not callable(threshold):
        check_number("threshold", threshold, above=0.0, finite=False, extreme=EXTREME_IN_Y)
    check_choice("algorithm", algorithm, ALGORITHM_NAMES)
    if algorithm == "paper" and not (isinstance(threshold, str) and threshold == "refine"):
        raise ValueError(
            'algorithm="paper" is the printed scheme of refinements: it needs '
            f'threshold="refine", got threshold={threshold!r}'
        )


@contextmanager
def doubles_only(name: str) -> Iterator[None]:
    """Say in one line that a number among the data is too large for a double."""
    try:
        yield
    except OverflowError:
        raise ValueError(f"{name} holds a number that is too large for a double") from None


def checked_features(estimator: Any, X: Any, **how: Any) -> Matrix:
    """X as scikit-learn's `validate_data` gives it, of numbers that can be multiplied."""
    with doubles_only("X"):
        X = validate_data(estimator, X, dtype=np.float64, **how)
    largest = max(float(np.max(X, initial=0.0)), -float(np.min(X, initial=0.0)))
    if largest > LARGEST_FEATURE:
        raise ValueError(
            f"X holds a number of size {largest:.3g}, whose square is no number in double "
            "precision; divide such columns by a power of ten"
        )
    return X


def check_labels(y: Any, n_samples: int) -> Matrix:
    """y as floats of shape (n,) or (n, q), NaN where unlabelled."""
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; mark unlabelled rows by NaN"
        )
    how: dict[str, Any] = {"ensure_all_finite": "allow-nan", "input_name": "y"}
    try:
        with doubles_only("y"):
            y = check_array(y, ensure_2d=False, dtype=np.float64, **how)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise ValueError(
            "y must hold numbers, with NaN where there is no label; for classes given as words "
            f"use HLClassifier ({error})"
        ) from None
    if y.ndim == 0 or y.ndim > 2:
        raise ValueError(f"y must have shape (n,) or (n, q), got {y.shape}")
    if len(y) != n_samples:
        raise ValueError(f"X has {n_samples} rows but y has {len(y)} labels")
    empty = np.all(np.isnan(y), axis=0)
    if np.any(empty):
        which = "" if y.ndim == 1 else f" in target {np.flatnonzero(empty)[0]}"
        raise ValueError(f"y contains NaN only{which}: at least one label is needed")
    for labels in y.reshape(len(y), -1).T:
        _check_representable(labels[~np.isnan(labels)])
    return y


def _check_representable(labels: Vector) -> None:
    """Raise if squares of labels, or of their deviations, are lost in double precision."""
    largest = float(np.max(np.abs(labels)))
    if largest > LARGEST_LABEL:
        raise ValueError(
            f"y holds a label of size {largest:.3g}, whose square is no number in double "
            "precision; divide y by a power of ten, or put NaN where it stands for no label"
        )
    farthest = float(np.max(np.abs(labels - np.median(labels))))
    if 0.0 < largest < SMALLEST_LABEL or 0.0 < farthest < SMALLEST_LABEL:
        raise ValueError(
            f"y holds labels up to {largest:.3g} which lie up to {farthest:.3g} apart; squares "
            "of that are zero in double precision; multiply y by a power of ten"
        )
    usual = robust.label_scale(labels, np.ones_like(labels))
    if farthest > FARTHEST_LABEL * usual:
        raise ValueError(
            f"y holds a label that lies {farthest / usual:.0e} times farther out than labels "
            "usually do; correct it, or put NaN where it stands for no label"
        )


def check_weights(sample_weight: Any, y: Matrix) -> Vector:
    """Sample weights as floats of shape (n,), ones if None; y has shape (n, q)."""
    if sample_weight is None:
        return np.ones(len(y))
    with doubles_only("sample_weight"):
        if is_number(sample_weight):
            sample_weight = np.full(len(y), float(sample_weight))
        weights = check_array(
            sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
        )
    if weights.shape != (len(y),):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, expected one weight a row: ({len(y)},)"
        )
    if np.any(weights < 0.0):
        raise ValueError("sample_weight must not be negative; drop rows by weight 0")
    if not np.any(weights > 0.0):
        raise ValueError("sample_weight is zero everywhere: at least one must be positive")
    used = weights[weights > 0.0]
    if np.min(used) < SMALLEST_WEIGHT or np.max(used) > LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight must be 0 or lie between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}"
            f", got {np.min(used):.3g} to {np.max(used):.3g}; a weight of k counts as k rows"
        )
    if not np.all(np.any((weights > 0.0)[:, None] & ~np.isnan(y), axis=0)):
        raise ValueError("sample_weight is zero on every labelled row; nothing is left to fit")
    return weights


def check_trusted(trusted: Any, shape: tuple[int, int]) -> Mask:
    """The mask of labels never to be removed, shape (n, q); all False if None."""
    if trusted is None:
        return np.zeros(shape, dtype=bool)
    mask = np.asarray(trusted)
    if mask.shape not in ((shape[0],), shape) or mask.dtype != bool:
        raise ValueError(
            f"trusted must be a boolean mask of shape ({shape[0]},) or {shape}, got dtype "
            f"{mask.dtype} and shape {mask.shape}"
        )
    return np.broadcast_to(mask.reshape(shape[0], -1), shape)


def check_precomputed(K: Matrix) -> Matrix:
    """Raise unless K can be a Gram matrix; an asymmetry of rounding is averaged out."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f'kernel="precomputed" needs a square matrix in fit, got shape {K.shape}; pass '
            "K(X_train, X_train) to fit and K(X_new, X_train) to predict"
        )
    largest = float(np.max(np.abs(K)))
    asymmetry = graphs.largest_entry(K - K.T)
    if asymmetry > 1e-8 * largest:
        raise ValueError(
            f"the precomputed kernel is not symmetric (entries differ by up to "
            f"{asymmetry:.3g}); pass (K + K.T) / 2 if that is rounding"
        )
    diagonal = np.diagonal(K)
    roots = np.sqrt(np.maximum(diagonal, 0.0))
    if np.any(diagonal < 0.0) or np.any(np.abs(K) > np.outer(roots, roots) + 1e-8 * largest):
        raise ValueError(
            "the precomputed kernel is not positive semi-definite: some |K_ij| exceeds "
            "sqrt(K_ii K_jj); use a Mercer kernel or clip its negative eigenvalues"
        )
    return K if asymmetry == 0.0 else 0.5 * (K + K.T)


def check_memory(
    n_rows: int, n_views: int, *, with_penalty: bool, several_targets: bool, remedy: str
) -> None:
    """Raise if the matrices of n_rows × n_rows that a fit needs cannot be held."""
    matrices = PEAK_MATRICES + (2 if with_penalty else 1) * (n_views - 1)
    matrices += KEPT_FOR_TARGETS if several_targets else 0
    needed = matrices * 8.0 * n_rows**2
    limit = memory_limit()
    if needed > limit:
        raise ValueError(
            f"X: a Gram matrix of {n_rows} rows needs "
            f"{needed / 2**30:.1f} GiB at the peak of a fit, but this machine has "
            f"{limit / 2**30:.1f} GiB; {remedy}"
        )
