"""HLRegressor: the scikit-learn face of the exact Huber kernel fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from activehuber.data.rows import Rows, threads_for
from activehuber.estimators.groups import warn_of_majority
from activehuber.estimators.inputs import is_streamed, refuse_streams, scored_rows
from activehuber.estimators.parameters import ViewParameters, checked_data, prepared, resolved
from activehuber.estimators.prediction import interval_of, parts_of, rows_to_predict
from activehuber.fitting import validation as check
from activehuber.fitting.fit import FitResult, fit_targets, path_of_labels, refit_labels
from activehuber.fitting.result import Fitted
from activehuber.fitting.settings import Data, Settings
from activehuber.kernels.feature_maps import Landmarks

COEFFICIENTS = ("dual_coef_", "coef_", "components_")
# What a fit and its certificate know of each target that is an attribute of the same name.
OF_EACH_TARGET = ["intercept", "view_weights", "view_weights_residual", "threshold"]
OF_EACH_TARGET += ["removed", "residuals", "n_iter", "n_labelled"]
OF_CERTIFICATE = ["duality_gap", "kkt_residual", "kkt_rounding", "objective"]


class HLRegressor(RegressorMixin, ViewParameters):
    """Exact Huber kernel regression that says which labels it did not believe.

    Minimises, over functions f of a kernel space and an intercept b,

        J(f, b) = 1/l Σ_i H_ξ(y_i − b − f(x_i)) + alpha ‖f‖²_K + manifold ‖f‖²_M

    where the sum runs over the labels in use, H_ξ is the Huber loss with threshold ξ and
    ‖f‖²_M = fᵀMf measures how f varies along a graph of all rows, labelled or not. NaN in
    `y` marks an unlabelled row. Every fit ends with a certificate computed from its
    coefficients: `duality_gap_` and `kkt_residual_`.

    Parameters
    ----------
    kernel : {"linear", "poly", "rbf", "laplacian", "matern", "cosine", "precomputed"} or \
            callable, default="rbf"
        As in scikit-learn. A callable takes two rows and returns a number, or two matrices
        and returns the matrix.
    gamma : {"scale", "auto", "loo"}, float or array of shape (n_features,), default="scale"
        Width of "rbf", "laplacian", "matern" and "poly": "scale" is
        1 / (n_features * X.var()) with the variance weighted by `sample_weight`, "auto" is
        1 / n_features; an array holds one for each feature, 0 for features to leave out.
        "loo" (not for "poly") chooses it by leave-one-out errors, as `HLRegressorCV` does.
    degree : int, default=2
        Degree of "poly".
    coef0 : float, default=1
        Constant of "poly".
    kernel_params : dict, default=None
        Keyword arguments of a callable kernel.
    views : list of View, default=None
        Groups of columns, each with a kernel and a graph of its own: the model is then
        Σ_α c^α f^α(x^α) + b, and `kernel`, `gamma`, `degree`, `coef0`, `kernel_params`,
        `graph` and `n_neighbors` of the regressor itself are not used.
    view_weights : "uniform", "learn" or array of shape (n_views,), default="uniform"
        c. "uniform" is 1/m; "learn" minimises the objective over c >= 0 with
        Σ (c^α)² = 1/m.
    alpha : float or "loo", default=1e-4
        λ, weight of ‖f‖²_K. "loo" chooses it by leave-one-out errors, as `HLRegressorCV`
        does.
    manifold : float, default=0.0
        γ, weight of ‖f‖²_M. Above zero, unlabelled rows shape the fit.
    agreement : float, default=0.0
        γ_B, weight of Σ_{α<β} |f^α − f^β|² summed over all rows, labelled or not.
    graph : {"knn", "rbf"}, callable or (n, n) matrix, default="knn"
        What M is made of when `manifold` > 0. "knn": 0/1 affinity W to the nearest
        neighbours, M = I − D^-½ W D^-½; "rbf": dense affinity exp(−gamma d²). A matrix is
        an affinity W for exactly the rows of `fit`; a callable gets X and returns M itself.
    n_neighbors : int, default=10
        Neighbours of a row in the "knn" graph; ties are all included.
    threshold : float, callable or {"adaptive", "refine", "madn", "quantile", "tuning-free"}, \
            default="adaptive"
        ξ. A float is in units of y and drops nothing (inf: kernel ridge, or LapRLS).
        "madn" (1.345 robust standard deviations of the residuals), "quantile" (their 0.9
        quantile) and "tuning-free" (grows with the number of labels) are rules that bind
        labels and drop none; `activehuber.labels.thresholds` says what each estimates and
        when to use it. A callable maps (residuals, weights) to ξ. Rules see the residuals of
        the fit itself and are repeated until ξ stays.
        "refine" is HLR: `n_refinements` times ξ is lowered by `threshold_step` and the
        labels beyond it are dropped. "adaptive" learns ξ and the labels to drop from
        leave-one-out residuals, without any unit.
    removal : float or None, default=0.5
        For "adaptive": labels that are wrong with a probability above `removal`, given the
        others, are dropped. None drops none.
    n_refinements : int, default=3
        T, for "refine".
    threshold_step : float, default=0.01
        Δξ in units of y, for "refine".
    algorithm : {"exact", "paper"}, default="exact"
        "paper" makes one linear solve a refinement, as printed (errata mended); it is there
        to be compared with and its certificate will usually fail.
    fit_intercept : bool, default=True
        Whether to fit an unpenalised intercept b.
    tol : float, default=1e-10
        A fit whose relative duality gap exceeds 10 * tol, or whose KKT residual exceeds
        100 * tol, raises a ConvergenceWarning: 1e-9 and 1e-8 by default.
    max_iter : int, default=200
        Newton steps of one solve at most.
    verbose : int, default=0
        Above zero, a line is printed for each refinement.
    approximation : {None, "nystrom", "fourier", "linear"}, default=None
        None: the kernels themselves, while three n × n matrices fit in memory. Else finitely
        many functions in their place, whatever the number of rows, worked on in blocks:
        "nystrom" the kernel at some of the rows, for any kernel; "fourier" random
        Fourier features, for "rbf", "laplacian" and "matern"; "linear" the features
        themselves, whatever `kernel` says ("cosine" normalises them). X may then also be a
        memory map, a Parquet file or folder or a pyarrow dataset (y may be the name of a
        column), or a Dask array.
    n_components : int, default=1000
        Functions a view, for "nystrom" and "fourier"; rows of the graph if `manifold` > 0: it
        joins the drawn rows alone, and counts for all.
    block_size : int or "auto", default="auto"
        Rows worked on at once by each thread; "auto" keeps a block at 32 MiB.
    random_state : int, RandomState instance or None, default=None
        Draws landmarks and random Fourier features. The same number draws the same rows,
        however they are cut into blocks.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_samples,), or (n_samples, n_views) with views
        w: f(z) = Σ_j K(z, x_j) w_j. Not there with an approximation.
    coef_ : ndarray of shape (n_functions,)
        With an approximation: a, with prediction κ(z) a + b over the functions κ of all views.
    components_ : ndarray of shape (n_functions, n_features), or a list of them with views
        With "nystrom": the rows whose kernels are the functions.
    intercept_ : float
    alpha_ : float
        λ as it was used.
    gamma_ : float or ndarray of shape (n_features,), or a list of them with views
        Widths as they were used.
    view_weights_ : ndarray of shape (n_views,)
        c; [1.] without views.
    view_weights_residual_ : float
        For learnt weights: how far from optimal they are, relative to the objective (with
        `agreement` > 0: from stationary). 0 for given ones.
    threshold_ : float
        The last ξ; may be 0 if every residual is.
    thresholds_ : ndarray
        All thresholds on the way.
    removed_ : ndarray of shape (n_samples,), bool
        Labels that were dropped.
    label_quality_ : ndarray of shape (n_samples,)
        The probability that the label is right, given the others; 1 where it is trusted, below
        ½ for removed labels only, NaN where there is none.
    judged_ : ndarray of shape (n_samples,), bool
        Whether the other labels say enough of the row to judge its label: what they leave
        open is at most half of the variance of right labels. A label that cannot be judged is
        removed only if it is absurd wherever it stands.
    scale_ : float
        σ̂, a robust estimate of the noise in the labels.
    residuals_ : ndarray of shape (n_samples,)
        y − prediction; NaN where unlabelled.
    loo_residuals_ : ndarray of shape (n_samples,)
        y − prediction of the fit without that label, and without the others of its group if
        `fit` got groups; NaN where unlabelled. Computed when first asked for: one more
        factorisation.
    duality_gap_ : float
        Upper bound on (J − J*) / J.
    kkt_residual_ : float
        Largest violation of the optimality conditions (Theorem 1), relative to the labels,
        beyond rounding.
    kkt_rounding_ : float
        The rounding error allowed for in `kkt_residual_`.
    objective_ : float
        J.
    n_iter_ : int
        Newton steps in all.
    n_labelled_ : int
        Labels in use.
    result_ : FitResult
        What the fit knows, read-only: its resolved settings, its data, and for each target the
        fit and what leave-one-out says of the labels.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had column names.

    Notes
    -----
    With y of shape (n_samples, n_targets) each target has its own threshold, removals,
    intercept and missing labels; fitted arrays gain a last axis of length n_targets,
    numbers become arrays of that length, and `thresholds_` is a list of arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[10] += 5                            # a wrong label
    >>> y[40:] = np.nan                       # no labels
    >>> model = HLRegressor(kernel="rbf", gamma=1.0).fit(X, y)
    >>> np.flatnonzero(model.removed_)
    array([10])
    >>> bool(model.duality_gap_ < 1e-9)
    True
    """

    result_: FitResult
    X_fit_: Any

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
    ):
        self._keep(locals())

    def _fit(self, *given: Any) -> None:
        fit_regressor(self, *given)

    def predict(self, X):
        """Predict labels.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            For a precomputed kernel the (n_rows, n_samples) matrix K(X, X_fit).

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_targets)
            Σ_α c^α Σ_j K^α(x, x_j) w_j^α + b, computed in blocks of rows; a lazy Dask array
            for a Dask X.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> HLRegressor(gamma=1.0).fit(X, y).predict([[1.5], [4.5]]).shape
        (2,)
        """
        return self.predict_views(X).sum(axis=1) + self.intercept_

    def predict_interval(self, X, coverage=0.9):
        """Intervals that hold a new label with the given probability.

        prediction ± √h(x) times the `coverage` quantile of |leave-one-out residuals|/√h (a
        jackknife interval). h is the scale by which labels are judged, see
        `activehuber.labels.error_scale`: it grows where the labels say little of a row, and
        where noise grows with the level. The interval is meant for labels that are right: of
        removed ones those enter that are off by no more than 5 √h, since some of them are.
        Of `HLRegressorCV` it is wider by √((l + p)/(l − p)), l labels and p numbers `n_chosen_`
        which were chosen to make their leave-one-out residuals small.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        coverage : float, default=0.9

        Returns
        -------
        ndarray of shape (n_rows, 2) or (n_rows, 2, n_targets)
            Lower and upper ends.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> model = HLRegressor(gamma=1.0).fit(X, y)
        >>> lower, upper = model.predict_interval(X, coverage=0.9).T
        >>> bool(np.mean((lower <= y) & (y <= upper)) >= 0.9)
        True
        """
        check_is_fitted(self)
        return interval_of(self, X, coverage)

    def loo_refit(self, rows, *, target=0):
        """Leave-one-out residuals of some labels by fitting again without each, or its group.

        `loo_residuals_` are exact as long as leaving a label out moves no other label between
        free and bound; this is exact always, at the cost of a solve a label. Threshold, alpha
        and the labels in use stay those of the fit.

        Parameters
        ----------
        rows : array-like of int
            Labelled rows of `fit`.
        target : int, default=0
            Which one, if there are several.

        Returns
        -------
        ndarray of shape (len(rows),)
            A model that was read from a file knows no groups.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> model = HLRegressor(gamma=1.0, threshold=np.inf).fit(X, y)
        >>> bool(np.allclose(model.loo_refit([7, 30]), model.loo_residuals_[[7, 30]]))
        True
        """
        self._check_repeatable(target, "it cannot be repeated")
        rows, result = np.asarray(rows), self.result_
        labelled = np.flatnonzero(result.data.labelled[:, target])
        if rows.ndim != 1 or not np.all(np.isin(rows, labelled)):
            raise ValueError("rows must be numbers of rows that have a label")
        fitted = result.targets[target]
        return refit_labels(result.settings, result.data, fitted, target, rows)

    def _check_repeatable(self, target: int, remedy: str) -> None:
        """Raise unless the problem of a target can be put together again."""
        check_is_fitted(self)
        settings, last = self.result_.settings, len(self.result_.targets) - 1
        if target not in range(last + 1):
            raise ValueError(f"target must be from 0 to {last}, got {target!r}")
        lost_a_graph = any(view.graph is None for view in settings.views)
        if self.X_fit_ is None or (settings.manifold > 0.0 and lost_a_graph):
            raise ValueError(
                "the fit keeps no precomputed kernel and no graph that was given as a matrix; "
                f"{remedy}"
            )

    def predict_views(self, X):
        """Each view's part of the prediction, c^α f^α(x^α).

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows, n_views) or (n_rows, n_views, n_targets)
            Sums over views, with `intercept_`, to the prediction.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor, View
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = HLRegressor(views=[View([0, 1]), View([2])]).fit(X, X[:, 0] + X[:, 2])
        >>> parts = model.predict_views(X)
        >>> bool(np.allclose(parts.sum(axis=1) + model.intercept_, model.predict(X)))
        True
        """
        check_is_fitted(self)
        return parts_of(self, rows_to_predict(self, X))

    def score(self, X, y, sample_weight=None):
        """R² of the predictions on the rows that have a label.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
            Rows with NaN are skipped.
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> y[50:] = np.nan
        >>> bool(HLRegressor(gamma=1.0).fit(X, y).score(X, y) > 0.95)
        True
        """
        check_is_fitted(self)
        if self.result_.settings.approximation is None:
            refuse_streams(X)
        elif is_streamed(X):
            X, y = scored_rows(X, y, self)
        y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan")
        weights = np.ones(y.shape[:1]) if sample_weight is None else np.asarray(sample_weight)
        check_consistent_length(X, y, weights)
        predicted = np.reshape(np.asarray(self.predict(X)), (len(y), -1))
        columns = y.reshape(len(y), -1)
        if predicted.shape != columns.shape:
            raise ValueError(
                f"y has shape {y.shape}, but the regressor was fitted to "
                f"{predicted.shape[1]} targets"
            )
        scores = []
        for labels, prediction in zip(columns.T, predicted.T, strict=True):
            given = ~np.isnan(labels)
            if not np.any(given):
                raise ValueError("y contains NaN only: there is no label to score against")
            parts = labels[given], prediction[given]
            scores.append(r2_score(*parts, sample_weight=weights[given]))
        return float(np.mean(scores))

    def threshold_path(self, *, target=0, min_threshold=None, max_events=None):
        """The minimisers over all thresholds, for the labels that the fit kept in use.

        At the fitted `alpha` and view weights. Kernel and graph are computed again.

        Parameters
        ----------
        target : int, default=0
            Which one, if there are several.
        min_threshold : float, default=None
            Where the path ends; a thousandth of its first threshold if None.
        max_events : int, default=None
            Stop at the first breakpoint after this many changes of a label; None: do not.

        Returns
        -------
        ThresholdPath

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> model = HLRegressor(gamma=1.0, alpha=1e-3, threshold=0.05).fit(X, y)
        >>> dual_coef, intercept = model.threshold_path().at(model.threshold_)
        >>> bool(np.allclose(dual_coef, model.dual_coef_, atol=1e-9))
        True
        """
        self._check_repeatable(target, "pass them and the labels to activehuber.huber_path")
        _check_path_parameters(min_threshold, max_events)
        if self.result_.settings.approximation is not None:
            raise ValueError(
                "an approximated fit has no threshold_path; use approximation=None on fewer "
                "rows"
            )
        known, ends = self.result_, {"min_threshold": min_threshold, "max_events": max_events}
        fitted = known.targets[target]
        return path_of_labels(known.settings, known.data, target, fitted=fitted, **ends)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # --- attributes that need leave-one-out residuals -----------------------------------

    @property
    def loo_residuals_(self) -> np.ndarray:
        """Leave-one-out residuals of shape (n_samples,) (+ targets)."""
        return self.result_.of_targets([e.loo_residuals for e in self.result_.evidence])

    @property
    def label_quality_(self) -> np.ndarray:
        """Label quality of shape (n_samples,) (+ targets)."""
        return self._verdict("quality", "label_quality")

    @property
    def judged_(self) -> np.ndarray:
        """Labels that can be judged, shape (n_samples,) (+ targets)."""
        return self._verdict("judged", "judged")

    @property
    def scale_(self) -> float | np.ndarray:
        """σ̂, the noise scale of the labels."""
        return self._verdict("scale", "scale", lambda scale: scale.sigma)

    def _verdict(self, name: str, in_evidence: str, part: Any = lambda known: known) -> Any:
        """What the threshold mode said of the labels, or else leave-one-out."""
        check_is_fitted(self)
        known = [getattr(fitted, name) for fitted in self.result_.targets]
        if any(each is None for each in known):
            known = [getattr(evidence, in_evidence) for evidence in self.result_.evidence]
        return self.result_.of_targets([part(each) for each in known])


def fit_regressor(
    model: HLRegressor, X: Any, *labels: Any, weigh_labels: bool = False
) -> HLRegressor:
    """Fit a model in place; labels are weighed at once, or wait to be asked for."""
    data = checked_data(model, X, *labels)
    warn_of_majority(data)
    with threads_for(len(data.y)):
        settings = replace(resolved(model, X, data), weighs_labels=weigh_labels)
        set_fitted(model, settings, data, fit_targets(settings, data))
    if isinstance(data.X, Rows):
        data.X.release()
    return model


def set_fitted(
    model: HLRegressor, settings: Settings, data: Data, fitted: list[Fitted]
) -> None:
    """Give a model the attributes of a fit."""
    model.result_ = FitResult(settings, data, fitted)
    model.X_fit_ = None if settings.precomputed else data.X
    collect = model.result_.of_targets
    single, basis = model.views is None, fitted[0].basis
    for name in COEFFICIENTS:  # those of an earlier fit that this one may not have
        model.__dict__.pop(name, None)
    if basis is None:
        places = (slice(None), 0) if single else ()
        model.dual_coef_ = collect([f.coefficients[places] for f in fitted])
    else:
        model.coef_ = collect([f.coefficients for f in fitted])
        landmarks = [f.rows for f in basis.functions if isinstance(f, Landmarks)]
        if landmarks:
            model.components_ = landmarks[0] if single else landmarks
    widths = [view.kernel.gamma for view in settings.views]
    model.alpha_, model.gamma_ = settings.alpha, widths[0] if single else widths
    histories = [f.thresholds for f in fitted]
    model.thresholds_ = histories if model.result_.data.several_targets else histories[0]
    for name in OF_EACH_TARGET:
        setattr(model, f"{name}_", collect([getattr(f, name) for f in fitted]))
    for name in OF_CERTIFICATE:
        setattr(model, f"{name}_", collect([getattr(f.certificate, name) for f in fitted]))


# Parameters of HLRegressor that say what is minimised, whatever the threshold.
PROBLEM_PARAMETERS = ["kernel", "gamma", "degree", "coef0", "kernel_params", "views"]
PROBLEM_PARAMETERS += ["view_weights", "alpha", "manifold", "agreement", "graph", "n_neighbors"]
PROBLEM_PARAMETERS += ["fit_intercept"]


def huber_path(X, y, sample_weight=None, *, min_threshold=None, max_events=None, **params):
    """The minimisers over all thresholds, all labels in use.

    They are piecewise linear in the threshold ξ: the path holds the breakpoints, and any
    solution in between is exact.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows, labelled or not; the Gram matrix for kernel="precomputed".
    y : array-like of shape (n_samples,)
        Labels, NaN where there is none.
    sample_weight : array-like of shape (n_samples,), default=None
    min_threshold : float, default=None
        Where the path ends; a thousandth of its first threshold if None.
    max_events : int, default=None
        Stop at the first breakpoint after this many changes of a label; None: do not.
    **params : dict
        Parameters of HLRegressor that describe the problem: `kernel`, `gamma`, `degree`,
        `coef0`, `kernel_params`, `views`, `view_weights` (not "learn"), `alpha`, `manifold`,
        `agreement`, `graph`, `n_neighbors`, `fit_intercept`.

    Returns
    -------
    ThresholdPath

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressor, huber_path
    >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
    >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
    >>> path = huber_path(X, y, gamma=1.0, alpha=1e-3)
    >>> dual_coef, intercept = path.at(0.05)
    >>> model = HLRegressor(gamma=1.0, alpha=1e-3, threshold=0.05).fit(X, y)
    >>> bool(np.allclose(dual_coef, model.dual_coef_, atol=1e-10))
    True
    """
    unknown = sorted(set(params) - set(PROBLEM_PARAMETERS))
    if unknown:
        raise TypeError(
            f"huber_path does not take {', '.join(unknown)}; parameters of the problem are "
            + ", ".join(PROBLEM_PARAMETERS)
        )
    if np.ndim(y) != 1:
        raise ValueError(
            f"huber_path takes one target, y of shape (n,), got {np.ndim(y)} dimensions"
        )
    _check_path_parameters(min_threshold, max_events)
    settings, data = prepared(HLRegressor(**params), X, y, sample_weight)
    if settings.view_weights is None:
        raise ValueError('huber_path takes fixed view_weights, not "learn"')
    return path_of_labels(settings, data, min_threshold=min_threshold, max_events=max_events)


def _check_path_parameters(min_threshold: Any, max_events: Any) -> None:
    if min_threshold is not None:
        largest = check.EXTREME_IN_Y
        check.check_number("min_threshold", min_threshold, above=0.0, extreme=largest)
    if max_events is not None:
        check.check_integer("max_events", max_events, at_least=1)
