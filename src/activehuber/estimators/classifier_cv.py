"""HLClassifierCV: the classifier with every parameter chosen."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length

from activehuber.estimators.classifier import HLClassifier, code_labels
from activehuber.estimators.parameter_search import ParameterSearch, of_best
from activehuber.fitting.settings import Data, Settings
from activehuber.selection.search import CLASS_RIDGES, choose


class HLClassifierCV(ClassifierMixin, ParameterSearch):
    """`HLClassifier` with kernel, widths and alpha chosen from the labels.

    Points are scored by the evidence of the codes ±1, in closed form: the likelihood of a
    Gaussian process whose mean is the least-squares fit. Which labels to drop is then up to
    `HLClassifier`.

    Parameters
    ----------
    kernels, gammas, alphas, manifolds, relevance, standardize, views, view_weights, \
            agreement, graph, n_neighbors, fit_intercept, tol, max_iter, random_state, \
            verbose, approximation, n_components, block_size
        As in `HLRegressorCV`.
    cv : None, int, splitter or iterable of (train, test), default=None
        None is the search in closed form. Otherwise the grid alone is tried, each point fitted
        on every training part; unlabelled rows are in all of them.
    scoring : "robust", str or callable, default="robust"
        With cv, "robust" is the accuracy; without cv no other scoring can be used.
    removal : float or None, default=0.5
    noise_rates : (float, float), "estimate" or None, default=None
        As in `HLClassifier`.

    Attributes
    ----------
    best_params_, best_score_, cv_results_, relevance_, scaler_
        As in `HLRegressorCV`.
    best_estimator_ : HLClassifier
        Fitted to all rows. Its fitted attributes are attributes of the search too.
    classes_ : ndarray of shape (n_classes,)

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLClassifierCV
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left").astype(object)
    >>> y[60:] = None                         # no labels
    >>> model = HLClassifierCV().fit(X, y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    ['right', 'left']
    """

    _model, _ridges = HLClassifier, CLASS_RIDGES
    _search = staticmethod(partial(choose, classes=True))

    def __init__(
        self,
        *,
        kernels=("laplacian", "rbf"),
        gammas=None,
        alphas=None,
        manifolds=(0,),
        cv=None,
        scoring="robust",
        relevance=False,
        standardize=False,
        removal=0.5,
        noise_rates=None,
        views=None,
        view_weights="uniform",
        agreement=0.0,
        graph="knn",
        n_neighbors=10,
        fit_intercept=True,
        tol=1e-10,
        max_iter=200,
        random_state=0,
        verbose=0,
        approximation=None,
        n_components=1000,
        block_size="auto",
    ):
        self._keep(locals())

    predict = of_best(HLClassifier.predict)
    predict_proba = of_best(HLClassifier.predict_proba)
    decision_function = of_best(HLClassifier.decision_function)
    score = of_best(HLClassifier.score)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.noise_rates is None
        return tags

    def _read_labels(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray]:
        """Labels as they are, and the codes that the kernel fit sees."""
        self.classes_, codes = code_labels(y, sample_weight)
        check_consistent_length(X, codes)
        return y, codes

    def _by_scorer(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        raise ValueError("HLClassifierCV takes a scorer only together with cv, such as cv=5")
