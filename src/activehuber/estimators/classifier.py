"""HLClassifier: two or more classes by exact Huber fits to labels of ±1."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state, validation
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from activehuber._typing import Mask, Vector
from activehuber.estimators.inputs import checked_rows, each_row, is_streamed, scored_rows
from activehuber.estimators.parameters import ViewParameters, check_parameters
from activehuber.estimators.prediction import parts_of, rows_to_predict
from activehuber.estimators.regressor import COEFFICIENTS, HLRegressor, fit_regressor
from activehuber.estimators.splitters import is_missing
from activehuber.fitting import validation as check
from activehuber.labels import noise_rates

Rates = tuple[float, float]

# Attributes that are those of the fit to the codes.
OF_THE_FIT = ("intercept_", "threshold_", "residuals_", "loo_residuals_", "n_iter_")
SHARED = (*COEFFICIENTS, *OF_THE_FIT, "duality_gap_", "kkt_residual_")
# Fits in search of labels to drop that contradict their leave-one-out values.
MOST_ROUNDS = 10


class HLClassifier(ClassifierMixin, ViewParameters):
    """Exact Huber kernel classification that says which labels it did not believe.

    The classes are coded as −1 and +1 and fitted by `HLRegressor`; a row belongs to
    `classes_[1]` where the fit h exceeds `cut_`. With more than two classes there is one
    such fit for each, against the rest, and the largest h wins. NaN, None or pandas.NA in
    `y` marks an unlabelled row.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, views, view_weights, alpha, manifold, \
            agreement, graph, n_neighbors, threshold, removal, n_refinements, \
            threshold_step, algorithm, fit_intercept, tol, max_iter, verbose, \
            approximation, n_components, block_size, random_state
        As in `HLRegressor`, with the same defaults. `threshold` and `threshold_step` are
        in units of the codes ±1.
    noise_rates : (float, float), "estimate" or None, default=None
        (ρ₊, ρ₋) with ρ₊ = P(given classes_[0] | true classes_[1]), ρ₋ = P(given classes_[1]
        | true classes_[0]) and ρ₊ + ρ₋ < 1, for two classes only. They move `cut_` and make
        `predict_proba` speak of clean labels. "estimate" takes them from the leave-one-out
        values: the share of contrary labels among the rows that are most certain. Use it
        where the classes are well apart; where they overlap it is too high, and more so for
        the rarer class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted; classes_[1] is coded as +1.
    estimator_ : HLRegressor
        Fitted to the codes: of shape (n_samples,) for two classes, else (n_samples,
        n_classes) with +1 in the column of the label and −1 in the others.
    cut_ : float
        Where h changes class: 0 without noise rates, else `population_cut` of them.
    noise_rates_ : (float, float) or None
        The rates in use.
    calibration_ : Calibration
        The curve that makes probabilities of decision values.
    removed_ : ndarray of shape (n_samples,), bool
        Labels that were dropped, each by the fit of its own class.
    label_quality_ : ndarray of shape (n_samples,)
        In [0, 1], low is bad, from the fit of the label's own class; NaN where unlabelled.
    judged_ : ndarray of shape (n_samples,), bool
        Whether the other labels say enough of the row to judge its label.
    dual_coef_, coef_, components_, intercept_, threshold_, residuals_, loo_residuals_, \
            duality_gap_, kkt_residual_, n_iter_
        Those of `estimator_`: `dual_coef_` not with an approximation, `coef_` with one only,
        `components_` with "nystrom" only.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had column names.

    Notes
    -----
    With threshold="adaptive" no label is dropped that is on the side of its own
    leave-one-out value, and labels are dropped only if that helps: the fit without them,
    asked for every label by leave-one-out, must not be wrong more often than the
    least-squares fit to all labels (threshold=inf), which is taken otherwise.

    With noise rates, removed labels are taken to be flipped ones: `cut_` goes by the rates
    that remain among the labels in use.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> X[:30] += 4                           # two groups
    >>> y = np.repeat(["big", "small"], 30).astype(object)
    >>> y[10] = "small"                       # a wrong label
    >>> y[40:50] = None                       # no labels
    >>> model = HLClassifier(gamma=0.1).fit(X, y)
    >>> np.flatnonzero(model.removed_)
    array([10])
    >>> model.predict([[4.0, 4.0], [0.0, 0.0]]).tolist()
    ['big', 'small']
    """

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma="scale",
        degree=2,
        coef0=1,
        kernel_params=None,
        views=None,
        view_weights="uniform",
        alpha=1e-4,
        manifold=0.0,
        agreement=0.0,
        graph="knn",
        n_neighbors=10,
        threshold="adaptive",
        removal=0.5,
        n_refinements=3,
        threshold_step=0.01,
        algorithm="exact",
        fit_intercept=True,
        tol=1e-10,
        max_iter=200,
        verbose=0,
        approximation=None,
        n_components=1000,
        block_size="auto",
        random_state=None,
        noise_rates=None,
    ):
        self._keep(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, trusted: Any, groups: Any) -> None:
        X, y = checked_rows(X, y, self)
        self.classes_, own = _read_classes(y)
        check_consistent_length(X, own)
        rates = _check_rates(self.noise_rates, len(self.classes_))
        labels = _CodedLabels.of(own, len(self.classes_), sample_weight)
        labels = replace(labels, X=X, groups=groups)
        params = self.get_params(deep=False)
        del params["noise_rates"]
        if self.approximation is not None:
            # All fits on the way see the same landmarks.
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            params["random_state"] = int(seed)
        check_parameters(HLRegressor(**params))
        self.estimator_, self.noise_rates_ = _fit_best(params, labels, trusted, rates)
        model = self.estimator_
        for name in ("removed_", "label_quality_", "judged_"):
            setattr(self, name, labels.of_own_class(getattr(model, name)))
        self.cut_ = _cut(model, labels, self.noise_rates_)
        # Dropped labels too: they know nothing of their own h either, and leaving them out
        # would make the others look certain.
        codes, left_out, weights = labels.in_a_row(model)
        rates = self.noise_rates_ or (0.0, 0.0)
        self.calibration_ = noise_rates.calibrate(codes, left_out - self.cut_, weights, rates)

    def decision_function(self, X):
        """How far each row is from changing class.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            For a precomputed kernel the (n_rows, n_samples) matrix K(X, X_fit).

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            h − `cut_` for two classes, positive for classes_[1]; else h of each class. A lazy
            Dask array for a Dask X.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifier
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> decision = HLClassifier().fit(X, y).decision_function([[-2.0], [2.0]])
        >>> bool(decision[0] < 0 < decision[1])
        True
        """
        check_is_fitted(self)
        rows = rows_to_predict(self.estimator_, X, owner=self)
        return parts_of(self.estimator_, rows).sum(axis=1) + self.intercept_ - self.cut_

    def predict(self, X):
        """Predict classes.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows,)
            A lazy Dask array for a Dask X.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifier
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> HLClassifier().fit(X, y).predict([[-2.0], [2.0]]).tolist()
        ['left', 'right']
        """
        decision = self.decision_function(X)  # says so if the model is not fitted
        return each_row(partial(_class_of, classes=self.classes_), decision)

    def predict_proba(self, X):
        """Probabilities of the classes, calibrated on leave-one-out values.

        With noise rates they are those of the clean labels, else those of the labels as
        they are given, dropped ones too. The class predicted is the most probable one: a
        logistic curve in h is held at ½ at `cut_` and has a slope for either side. With more
        than two classes one curve serves all of them, and its values are divided by their
        sum.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            A lazy Dask array for a Dask X.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifier
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> probability = HLClassifier().fit(X, y).predict_proba([[-2.0], [2.0]])
        >>> probability.shape, bool(np.allclose(probability.sum(axis=1), 1))
        ((2, 2), True)
        """
        decision = self.decision_function(X)  # says so if the model is not fitted
        return each_row(self.calibration_, decision)

    def score(self, X, y, sample_weight=None):
        """Accuracy on the rows that have a label.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
            Rows without a label are skipped.
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifier
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> HLClassifier().fit(X, y).score(X, y)
        1.0
        """
        check_is_fitted(self)
        if self.estimator_.result_.settings.approximation is not None and is_streamed(X):
            X, y = scored_rows(X, y, self)
        classes, own = _read_classes(y)
        check_consistent_length(X, own, sample_weight)
        given = own >= 0
        if not np.any(given):
            raise ValueError("y has no label at all: there is none to score against")
        hit = np.asarray(self.predict(X))[given] == classes[own[given]]
        weights = None if sample_weight is None else np.asarray(sample_weight)[given]
        return float(np.average(hit, weights=weights))

    def __getattr__(self, name: str) -> Any:
        fitted = self.__dict__.get("estimator_")
        if name in SHARED and fitted is not None:
            return getattr(fitted, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.noise_rates is None
        return tags


def _class_of(decision: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The class of each row, from `decision_function`."""
    above = decision > 0.0
    return classes[above.astype(int) if decision.ndim == 1 else np.argmax(decision, axis=1)]


# --- fitting ----------------------------------------------------------------------------


def _fit_best(
    params: dict[str, Any], labels: _CodedLabels, trusted: Any, rates: Rates | str | None
) -> tuple[HLRegressor, Rates | None]:
    """The fit to the codes, and the noise rates; labels are dropped only if that helps.

    Codes differ by 2 at most and the majority of a region always agrees with itself, so the
    scale of residuals alone cannot tell a wrong label from one of a rare class. What can is
    whether the fit without the dropped labels predicts all labels no worse.
    """
    dropping = params["threshold"] == "adaptive" and params["removal"] is not None
    first = params | ({"threshold": np.inf} if dropping else {})
    plain = labels.fit(HLRegressor(**first), trusted)
    if isinstance(rates, str):
        rates = noise_rates.estimate_rates(*labels.in_a_row(plain))
    if not dropping:
        return plain, rates
    model = _fit_dropping(HLRegressor(**params), labels, trusted, rates)
    better = _error(model, labels, rates) <= _error(plain, labels, rates)
    return (model if better else plain), rates


def _fit_dropping(
    model: HLRegressor, labels: _CodedLabels, trusted: Any, rates: Rates | None
) -> HLRegressor:
    """Fit until no label is dropped whose own leave-one-out value is on its side.

    Such labels lie where the classes meet: a smooth h cannot jump from −1 to 1 there.
    """
    for _ in range(MOST_ROUNDS):
        labels.fit(model, trusted)
        cut = _cut(model, labels, rates)
        good = model.removed_ & (labels.codes * (labels.left_out(model) - cut) > 0.0)
        if not np.any(good):
            break
        before = False if trusted is None else np.reshape(trusted, (len(good), -1))
        trusted = (good.reshape(len(good), -1) | before).reshape(good.shape)
    return model


def _error(model: HLRegressor, labels: _CodedLabels, rates: Rates | None) -> float:
    """Leave-one-out error over all labels, dropped ones too; for flips see `clean_error`."""
    if labels.codes.ndim == 1:
        codes, left_out, weights = labels.in_a_row(model)
        decision = left_out - _cut(model, labels, rates)
        return noise_rates.clean_error(codes, decision, weights, rates or (0.0, 0.0))
    counted = labels.counted
    predicted = np.argmax(labels.left_out(model)[counted], axis=1)
    return float(np.average(predicted != labels.own[counted], weights=labels.weights[counted]))


def _cut(model: HLRegressor, labels: _CodedLabels, rates: Rates | None) -> float:
    """Where h changes class, by the noise rates among the labels in use."""
    if rates is None:
        return 0.0
    counted = labels.counted
    codes, removed = labels.codes[counted], model.removed_[counted]
    rates = noise_rates.remaining_rates(codes, removed, labels.weights[counted], rates)
    residuals = np.abs(model.residuals_[counted][~removed])
    # Without bound labels the fit is that of least squares, whatever ξ says.
    bound = np.any(residuals > model.threshold_ * (1.0 + 1e-12))
    return noise_rates.population_cut(*rates, model.threshold_ if bound else np.inf)


# --- labels -----------------------------------------------------------------------------


def _read_classes(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, and for each row the place of its label among them, or −1."""
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; mark unlabelled rows by NaN "
            "or None"
        )
    # Series know integers with gaps; as arrays these would turn into floats.
    y = np.array(y.to_list(), dtype=object) if hasattr(y, "to_list") else y
    y = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if y.ndim == 0:
        raise TypeError(f"y must hold one class for each row, got {y!r}")
    y = validation.column_or_1d(y, warn=True)
    if not len(y):
        raise ValueError("y is empty: it must hold one class for each row")
    given = ~is_missing(y)
    labels = y[given]
    if labels.dtype.kind == "O":
        # In the dtype that they have in common.
        values, numeric = labels.tolist(), (numbers.Real, np.bool_)
        if not any(all(isinstance(each, kind) for each in values) for kind in (str, numeric)):
            raise TypeError(
                "y must hold classes that are all numbers or all strings; mark unlabelled rows "
                "by NaN, None or pandas.NA"
            )
        labels = np.array(values)
    if labels.dtype.kind == "f":
        validation.assert_all_finite(labels, input_name="y")
    classes, place = np.unique(labels, return_inverse=True)
    if len(classes) > 2:
        check_classification_targets(labels)
    own = np.full(len(y), -1)
    own[given] = place
    return classes, own


def code_labels(y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, and the codes ±1 of shape (n,) or (n, n_classes), NaN for none."""
    classes, own = _read_classes(y)
    return classes, _CodedLabels.of(own, len(classes), sample_weight).codes


@dataclass(frozen=True)
class _CodedLabels:
    """Labels as the fit sees them.

    Attributes
    ----------
    own : ndarray of shape (n,), int
        The class of each label, −1 where there is none.
    codes : ndarray of shape (n,) for two classes, else (n, n_classes)
        ±1; NaN where there is none.
    weights : ndarray of shape (n,)
    X, groups : array-like of shape (n, d) and (n,), or None
        As in `fit`.
    """

    own: np.ndarray
    codes: np.ndarray
    weights: Vector
    X: Any = None
    groups: Any = None

    @classmethod
    def of(cls, own: np.ndarray, n_classes: int, sample_weight: Any) -> _CodedLabels:
        places = own[:, None] == np.arange(n_classes) if n_classes > 2 else own == 1
        codes = np.where(places, 1.0, -1.0)
        codes[own < 0] = np.nan
        weights = check.check_weights(sample_weight, codes.reshape(len(own), -1))
        labels = cls(own, codes, weights)
        if len(np.unique(own[labels.counted])) < 2:
            raise ValueError(
                "y has labels of one class or none (of positive weight); a classifier needs "
                "at least two classes"
            )
        return labels

    def fit(self, model: HLRegressor, trusted: Any) -> HLRegressor:
        """One fit, its leave-one-out values at once: all of them are going to be asked for."""
        given = self.codes, self.weights, trusted, self.groups
        return fit_regressor(model, self.X, *given, weigh_labels=True)

    @property
    def counted(self) -> Mask:
        """Labels that count: given, and of positive weight."""
        return (self.own >= 0) & (self.weights > 0.0)

    def left_out(self, model: HLRegressor) -> np.ndarray:
        """h of the fit without each label, of the shape of the codes."""
        return self.codes - model.loo_residuals_

    def in_a_row(self, model: HLRegressor) -> tuple[Vector, Vector, Vector]:
        """Codes that count, h of the fit without each, and weights, all of shape (l,)."""
        weights = np.broadcast_to(self.weights, self.codes.T.shape).T
        chosen = self.counted
        codes, left_out = self.codes[chosen], self.left_out(model)[chosen]
        return codes.ravel(), left_out.ravel(), weights[chosen].ravel()

    def of_own_class(self, values: np.ndarray) -> np.ndarray:
        """Values of shape (n,): of several columns, the one of the label's class."""
        if values.ndim == 1:
            return values
        return np.take_along_axis(values, np.maximum(self.own, 0)[:, None], axis=1)[:, 0]


def _check_rates(given: Any, n_classes: int) -> Rates | str | None:
    """Noise rates as a pair of floats, "estimate" or None."""
    if given is None:
        return None
    if isinstance(given, str):
        check.check_choice("noise_rates", given, ("estimate",), ", a pair of rates or None")
    elif not isinstance(given, (tuple, list, np.ndarray)) or len(given) != 2:
        raise TypeError(
            f'noise_rates must be None, "estimate" or a pair (rho_pos, rho_neg), got {given!r}'
        )
    if n_classes > 2:
        raise ValueError(
            "Only binary classification is supported with noise_rates, but y has "
            f"{n_classes} classes; use noise_rates=None"
        )
    if isinstance(given, str):
        return given
    for name, rate in zip(("rho_pos", "rho_neg"), given, strict=True):
        check.check_number(f"{name} of noise_rates", rate, at_least=0.0)
    if given[0] + given[1] >= 1.0:
        raise ValueError(
            f"noise_rates must add up to less than 1, got {given!r}: labels would say nothing"
        )
    return float(given[0]), float(given[1])
