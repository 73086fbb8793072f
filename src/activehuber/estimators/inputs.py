"""What users pass as X that is too large for an array, as `Rows`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from activehuber.data.rows import ArrayRows, Rows, parquet_rows
from activehuber.fitting.validation import checked_features


def is_streamed(X: Any) -> bool:
    """Whether X is read piece by piece: Parquet, a Dask collection or Rows themselves."""
    return isinstance(X, (str, Path, Rows)) or is_dask(X) or comes_from(X, "pyarrow")


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection."""
    # Data frames had a package of their own for a while.
    return comes_from(X, "dask", "dask_expr")


def comes_from(X: Any, *packages: str) -> bool:
    """Whether the class of X is one of some package's."""
    return type(X).__module__.partition(".")[0] in packages


def streamed_rows(X: Any, y: Any, names: Any = None) -> tuple[Rows, Any, Any]:
    """Rows, labels and column names of something streamed.

    Parameters
    ----------
    X : str, Path, pyarrow.dataset.Dataset, dask array or data frame, or Rows
    y : array-like, or the name of a column of X
        A column that is named is no feature.
    names : sequence of str, optional
        The features that are wanted, if X has names.

    Returns
    -------
    rows : Rows
    y : array-like
    names : ndarray of str or None
    """
    if isinstance(X, Rows):
        return X, y, X.names if names is None else names
    if is_dask(X):
        from activehuber.data.dask_rows import dask_rows

        return dask_rows(X, y, names)
    by_name = isinstance(y, str)
    rows = parquet_rows(X, without=[y] if by_name else [], names=names)
    return rows, rows.column(y) if by_name else y, np.array(rows.names, dtype=object)


def checked_rows(X: Any, y: Any, owner: Any) -> tuple[Any, Any]:
    """X and y of a fit; notes the features on the estimator.

    What is read piece by piece, which needs an approximation, comes as Rows; an array or a
    data frame is looked at, and comes as it is.
    """
    if owner.approximation is not None and is_streamed(X):
        return first_rows(X, y, owner)
    refuse_streams(X)
    checked_features(owner, X)
    return X, y


def first_rows(X: Any, y: Any, owner: Any) -> tuple[Rows, Any]:
    """Rows and labels of what is streamed into a fit; notes the features on the estimator."""
    rows, y, names = streamed_rows(X, y)
    rows.names = None if names is None else list(names)
    owner.n_features_in_ = rows.n_features
    owner.__dict__.pop("feature_names_in_", None)
    if names is not None:
        owner.feature_names_in_ = names
    return rows, y


def refuse_streams(X: Any) -> None:
    """Raise if X is read piece by piece, which the exact fit does not do."""
    if is_streamed(X):
        raise TypeError(
            f"X is a {type(X).__name__}, which is read piece by piece; that needs a fit with "
            'approximation="nystrom", "fourier" or "linear"'
        )


def scored_rows(X: Any, y: Any, owner: Any) -> tuple[Rows, Any]:
    """Rows and labels to score a fit on; y may be the name of a column."""
    labels = streamed_rows(X, y)[1] if isinstance(y, str) else y
    return new_rows(X, owner), labels


def each_row(function: Callable[[np.ndarray], np.ndarray], values: Any) -> Any:
    """What a function makes of values, one entry a row; of a Dask array a lazy one."""
    if not is_dask(values):
        return function(values)
    from activehuber.data.dask_rows import by_chunks

    return by_chunks(function, values, function(np.zeros((1, *values.shape[1:]))))


def new_rows(X: Any, owner: Any) -> Rows:
    """Rows to predict; of an array that has been checked, or streamed.

    Those of a Dask collection are lazy: what is computed for each row is a Dask array.
    """
    if not is_streamed(X):
        return ArrayRows(X)
    names = getattr(owner, "feature_names_in_", None)
    if is_dask(X):
        from activehuber.data.dask_rows import LazyRows

        rows: Rows = LazyRows(X, names)
    else:
        rows, _, _ = streamed_rows(X, None, names)
    if rows.n_rows == 0:  # NaN of a Dask collection that does not know
        raise ValueError("X has no rows: there is nothing to predict")
    if rows.n_features != owner.n_features_in_:
        raise ValueError(
            f"X has {rows.n_features} features, but {type(owner).__name__} is expecting "
            f"{owner.n_features_in_} features as input"
        )
    return rows
