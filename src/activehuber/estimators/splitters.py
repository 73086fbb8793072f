"""Cross-validation on partly labelled data."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, KFold, StratifiedKFold


def is_missing(y: Any) -> np.ndarray:
    """True where a label is NaN, None or pandas.NA, whatever the dtype of y."""
    values = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if values.dtype.kind in "fc":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, dtype=bool)

    def missing(label: Any) -> bool:
        nan = isinstance(label, numbers.Real) and bool(label != label)
        return nan or label is None or type(label).__name__ == "NAType"

    return np.array([missing(each) for each in values.ravel()], bool).reshape(values.shape)


def is_unlabelled(y: Any) -> np.ndarray:
    """True for rows without any label, shape (n,)."""
    missing = is_missing(y)
    return missing if missing.ndim == 1 else np.all(missing.reshape(len(missing), -1), axis=1)


def class_numbers(y: Any, rows: np.ndarray) -> np.ndarray:
    """Classes of the given rows as integers, in the order in which they appear."""
    values = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    numbers: dict[Any, int] = {}
    labels = values[rows].tolist()
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels])


class LabelledKFold(BaseCrossValidator):
    """K folds over the labelled rows; unlabelled rows are always in training.

    scikit-learn's splitters put unlabelled rows into test folds, where its scorers then
    refuse NaN. Here only labelled rows are ever tested, and every unlabelled row is there
    to shape the fit in every fold.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=False
    random_state : int, RandomState instance or None, default=None
        For `shuffle=True`.
    stratify : bool, default=False
        Keep the shares of classes in every fold, for classifiers.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import LabelledKFold
    >>> y = np.array([1.0, np.nan, 2.0, 3.0, np.nan, 4.0])
    >>> for train, test in LabelledKFold(n_splits=2).split(np.zeros((6, 1)), y):
    ...     print(train, test)
    [1 3 4 5] [0 2]
    [0 1 2 4] [3 5]
    """

    def __init__(self, n_splits=5, *, shuffle=False, random_state=None, stratify=False):
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state
        self.stratify = stratify

    def get_n_splits(self, X=None, y=None, groups=None) -> int:
        """The number of folds.

        Returns
        -------
        int

        Examples
        --------
        >>> from activehuber import LabelledKFold
        >>> LabelledKFold(4).get_n_splits()
        4
        """
        return self.n_splits

    def _iter_test_indices(
        self, X: Any = None, y: Any = None, groups: Any = None
    ) -> Iterator[np.ndarray]:
        """Labelled rows alone; `split` trains on all others."""
        if y is None:
            raise ValueError("LabelledKFold needs y: it must know which rows are labelled")
        labelled = np.flatnonzero(~is_unlabelled(y))
        if len(labelled) < self.n_splits:
            raise ValueError(
                f"n_splits={self.n_splits} is more than the {len(labelled)} labelled rows"
            )
        folds = StratifiedKFold if self.stratify else KFold
        # scikit-learn's stacking sets random_state on any splitter that has one; without
        # shuffling there is nothing random, and KFold would refuse it.
        seed = self.random_state if self.shuffle else None
        splitter = folds(self.n_splits, shuffle=self.shuffle, random_state=seed)
        classes = class_numbers(y, labelled) if self.stratify else None
        for _, part in splitter.split(labelled, classes):
            yield labelled[part]
