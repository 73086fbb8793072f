"""Views: groups of columns of one X, each with a kernel and a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from activehuber._typing import Vector


class KeepsParameters(BaseEstimator):
    """An estimator whose constructor only keeps what it gets."""

    def _keep(self, given: dict[str, Any]) -> None:
        """Parameters as a constructor got them, which are its `locals()`."""
        self.__dict__.update({name: value for name, value in given.items() if name != "self"})


class View(KeepsParameters):
    """Some columns of X with a kernel and a graph of their own.

    With views x = [x¹, …, x^m] the model is h(x) = Σ_α c^α f^α(x^α) + b, each f^α in the
    space of its own kernel. All views are columns of one two-dimensional X, so pipelines
    and cross-validation work as usual.

    Parameters
    ----------
    columns : slice, int, str, list of int or str, boolean mask or callable
        Which columns. Names need a data frame; a callable gets X as it was given and
        returns any of the others, as in `sklearn.compose.ColumnTransformer`.
    kernel, gamma, degree, coef0, kernel_params
        As in `HLRegressor`; "precomputed" is not possible for a view.
    graph, n_neighbors
        As in `HLRegressor`; used when `manifold` > 0.
    name : str, default=None
        For parameters such as `views__texture__gamma`; view0, view1, … if None.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor, View
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 5))
    >>> y = X[:, 0] + np.sin(2 * X[:, 3])
    >>> views = [View(slice(0, 3), "linear"), View([3, 4], "rbf", name="waves")]
    >>> model = HLRegressor(views=views, view_weights="learn", alpha=1e-3).fit(X, y)
    >>> model.dual_coef_.shape, model.view_weights_.shape
    ((80, 2), (2,))
    >>> parts = model.predict_views(X)
    >>> bool(np.allclose(parts.sum(axis=1) + model.intercept_, model.predict(X)))
    True
    >>> model.set_params(views__waves__gamma=0.5).views[1].gamma
    0.5
    """

    def __init__(
        self,
        columns,
        kernel="rbf",
        *,
        gamma="scale",
        degree=2,
        coef0=1,
        kernel_params=None,
        graph="knn",
        n_neighbors=10,
        name=None,
    ):
        self._keep(locals())


def view_names(views: Sequence[View]) -> list[str]:
    """Names of the views; unnamed ones are called by their position."""
    return [f"view{i}" if view.name is None else view.name for i, view in enumerate(views)]


def check_views(views: Any) -> list[str]:
    """Raise unless `views` is a list of Views with distinct, usable names; return those."""
    if not isinstance(views, (list, tuple)) or not views:
        raise TypeError(f"views must be None or a non-empty list of View, got {views!r}")
    for position, view in enumerate(views):
        if not isinstance(view, View):
            raise TypeError(f"views[{position}] must be a View, got {view!r}")
        if view.name is not None and not isinstance(view.name, str):
            raise TypeError(f"views[{position}]: name must be a string, got {view.name!r}")
    names = view_names(views)
    for name in names:
        if "__" in name or not name:
            raise ValueError(f"view {name!r}: a name must not be empty or contain '__'")
        if names.count(name) > 1:
            raise ValueError(f"view {name!r}: this name is given twice; names must differ")
    return names


def check_view_weights(view_weights: Any, n_views: int) -> Vector | None:
    """c of shape (m,), or None if it is to be learnt."""
    if isinstance(view_weights, str):
        if view_weights == "learn":
            return None
        if view_weights == "uniform":
            return np.full(n_views, 1.0 / n_views)
        raise ValueError(
            f'view_weights must be "uniform", "learn" or an array, got {view_weights!r}'
        )
    try:
        weights = np.asarray(view_weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"view_weights must be numbers, got {view_weights!r}") from None
    if weights.shape != (n_views,):
        raise ValueError(
            f"view_weights has shape {weights.shape}, expected one weight a view: ({n_views},)"
        )
    if np.any(np.abs(weights) > 1e6) or np.any((weights != 0.0) & (np.abs(weights) < 1e-30)):
        raise ValueError(
            f"view_weights must be of ordinary size, got {weights.tolist()}; the scale of the "
            "fit is set by alpha"
        )
    if not np.all(np.isfinite(weights)) or np.any(weights < 0.0) or not np.any(weights > 0.0):
        raise ValueError(
            "view_weights must be finite, not negative and not all zero, got "
            f"{weights.tolist()}"
        )
    return weights


def resolve_columns(view: View, name: str, X: Any, names: Any, n_features: int) -> np.ndarray:
    """Column numbers of a view, shape (d,).

    Parameters
    ----------
    X : the input of fit as it was given, for callables
    names : array of str or None
        Column names of X.
    """
    columns = view.columns(X) if callable(view.columns) else view.columns
    try:
        chosen = np.atleast_1d(_column_numbers(columns, names, n_features))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"view {name!r}: columns={columns!r} cannot be found in X of {n_features} columns"
            f"{'' if names is None else ' named ' + ', '.join(map(str, names[:20]))}: {error}"
        ) from None
    if len(chosen) == 0:
        raise ValueError(f"view {name!r}: columns={columns!r} selects no column")
    return chosen


def _column_numbers(columns: Any, names: Any, n_features: int) -> Any:
    every = np.arange(n_features)
    if isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            # As in pandas: a slice of names includes its end.
            first = None if columns.start is None else _named(columns.start, names)
            end = None if columns.stop is None else _named(columns.stop, names) + 1
            columns = slice(first, end, columns.step)
        return every[columns]
    if isinstance(columns, str):
        return _named(columns, names)
    if isinstance(columns, (bool, np.bool_)):
        raise TypeError("a single boolean is no column")
    key = np.asarray(columns)
    if key.size == 0:
        return every[:0]
    if key.dtype.kind in "UO" and all(isinstance(item, str) for item in key.ravel()):
        return np.array([_named(item, names) for item in key.ravel()])
    if key.dtype.kind not in "iub" or key.ndim > 1:
        raise TypeError("give a slice, numbers, names, a boolean mask or a callable")
    return every[key]


def _named(name: str, names: Any) -> int:
    if names is None:
        # Not a KeyError: its text would be shown in quotes.
        raise ValueError(
            "X has no column names; pass a data frame or use column numbers (a scaler before "
            'the model keeps names with StandardScaler().set_output(transform="pandas"))'
        )
    places = np.flatnonzero(np.asarray(names) == name)
    if len(places) == 0:
        raise ValueError(f"no column is named {str(name)!r}")
    return int(places[0])
