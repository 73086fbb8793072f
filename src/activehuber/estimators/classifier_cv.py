"""HLClassifierCV: the classifier with every parameter chosen."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import check_consistent_length

from activehuber._typing import Vector
from activehuber.estimators.classifier import HLClassifier, code_labels
from activehuber.estimators.parameter_search import (
    HANDED_ON,
    ParameterSearch,
    TrainingRows,
    fits_on,
    of_best,
    splits_of,
)
from activehuber.fitting.complaints import MANY_REMOVED
from activehuber.fitting.settings import Data, Settings
from activehuber.labels.noise_rates import clean_losses
from activehuber.selection.search import CLASS_RIDGES, FOLDS
from activehuber.selection.tuning import choose_for_classes


class HLClassifierCV(ClassifierMixin, ParameterSearch):
    """`HLClassifier` with kernel, widths and alpha chosen from the labels.

    Points are scored by the evidence of the codes ±1, in closed form: the likelihood of a
    Gaussian process whose mean is the least-squares fit. Which labels to drop is then up to
    `HLClassifier`; if it drops any of two classes, that is tried on five folds, and labels are
    dropped only if those held out are predicted no worse for it.

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
    removal : float or None, default=3.5
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

    _ridges = CLASS_RIDGES

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
        removal=3.5,
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

    def _estimator(self, params: dict[str, Any]) -> HLClassifier:
        handed = {name: getattr(self, name) for name in (*HANDED_ON, "removal", "noise_rates")}
        return HLClassifier(**handed | params)

    def _read_labels(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray]:
        """Labels as they are, and the codes that the kernel fit sees."""
        self.classes_, codes = code_labels(y, sample_weight)
        check_consistent_length(X, codes)
        return y, codes

    def _fit_best(self, given: TrainingRows) -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.best_estimator_ = given.fit(self._estimator(self.best_params_))
        asked = self.cv is None and self.approximation is None
        if asked and not self._dropping_helps(given):
            # What was said of a fit that is not handed out would mislead.
            self.best_params_ = self.best_params_ | {"threshold": np.inf}
            self.best_estimator_ = given.fit(self._estimator(self.best_params_))
        else:
            for each in said:
                warnings.warn(each.message, each.category, stacklevel=4)

    def _dropping_helps(self, given: TrainingRows) -> bool:
        """Whether labels held out are predicted no worse if labels are dropped from the rest.

        The classifier asks leave-one-out values, but of a fit whose dropped labels were chosen
        with all labels in view. Where more are dropped than can be right, predictions must be
        better by a standard error. True if nothing was dropped or folds cannot be made.
        """
        codes, removed = given.target, self.best_estimator_.removed_
        counts = [int(np.sum(codes == code)) for code in (-1.0, 1.0)]
        few = len(self.classes_) > 2 or min(counts) < 2 or self._is_precomputed()
        if few or not np.any(removed):
            return True
        folds = StratifiedKFold(
            min(FOLDS, *counts), shuffle=True, random_state=self.random_state
        )
        splits = splits_of(folds, given, classes=True)
        rates = self.best_estimator_.noise_rates_ or (0.0, 0.0)
        labelled = ~np.isnan(codes)
        losses = []
        for params in (self.best_params_ | {"threshold": np.inf}, self.best_params_):
            decision = np.empty(len(codes))
            with warnings.catch_warnings():
                # These fits are not handed out; what is wrong with the one that is, it says.
                warnings.simplefilter("ignore", UserWarning)
                fits = fits_on(self._estimator(params), given, splits)
                for (_, test), (model, part) in zip(splits, fits, strict=True):
                    decision[test] = model.decision_function(part.X)
            losses.append(clean_losses(codes[labelled], decision[labelled], rates))
        weights, removed = given.weights[labelled], removed[labelled]
        gain, error = _mean_and_error(losses[0] - losses[1], weights)
        many = np.sum(weights[removed]) > MANY_REMOVED * np.sum(weights)
        return gain >= (error if many else 0.0)

    def _in_closed_form(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        choice = self._searched(choose_for_classes, settings, data)
        return self._parameters_at(choice.point, data.total_weight)

    def _by_scorer(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        raise ValueError("HLClassifierCV takes a scorer only together with cv, such as cv=5")


def _mean_and_error(values: Vector, weights: Vector) -> tuple[float, float]:
    """Weighted mean and its standard error."""
    shares = weights / weights.sum()
    mean = float(shares @ values)
    return mean, float(np.sqrt(shares**2 @ (values - mean) ** 2))
