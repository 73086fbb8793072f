"""HLRegressor: the scikit-learn face of the exact Huber kernel fit."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from activehuber import graphs
from activehuber import validation as check
from activehuber._typing import Mask, Matrix, Vector
from activehuber.fitting import Data, Evidence, Fitted, Settings, fit_model, weigh_labels
from activehuber.kernels import Kernel, resolve_gamma


class HLRegressor(RegressorMixin, BaseEstimator):
    """Exact Huber kernel regression that says which labels it did not believe.

    Minimises, over functions f of a kernel space and an intercept b,

        J(f, b) = 1/l Σ_i H_ξ(y_i − b − f(x_i)) + alpha ‖f‖²_K + manifold ‖f‖²_M

    where the sum runs over the labels in use, H_ξ is the Huber loss with threshold ξ and
    ‖f‖²_M = fᵀMf measures how f varies along a graph of all rows, labelled or not. NaN in
    `y` marks an unlabelled row. Every fit ends with a certificate computed from its
    coefficients: `duality_gap_` and `kkt_residual_`.

    Parameters
    ----------
    kernel : {"linear", "poly", "rbf", "laplacian", "cosine", "precomputed"} or callable, \
            default="rbf"
        As in scikit-learn. A callable takes two rows and returns a number, or two matrices
        and returns the matrix.
    gamma : {"scale", "auto"} or float, default="scale"
        Width of "rbf", "laplacian" and "poly": "scale" is 1 / (n_features * X.var()) with
        the variance weighted by `sample_weight`, "auto" is 1 / n_features.
    degree : int, default=2
        Degree of "poly".
    coef0 : float, default=1
        Constant of "poly".
    kernel_params : dict, default=None
        Keyword arguments of a callable kernel.
    views : None
        Reserved for several kernels at once.
    view_weights : "uniform"
        Reserved for several kernels at once.
    alpha : float, default=1e-4
        λ, weight of ‖f‖²_K.
    manifold : float, default=0.0
        γ, weight of ‖f‖²_M. Above zero, unlabelled rows shape the fit.
    agreement : 0
        Reserved for several kernels at once.
    graph : {"knn", "rbf"}, callable or (n, n) matrix, default="knn"
        What M is made of when `manifold` > 0. "knn": 0/1 affinity W to the nearest
        neighbours, M = I − D^-½ W D^-½; "rbf": dense affinity exp(−gamma d²). A matrix is
        an affinity W for exactly the rows of `fit`; a callable gets X and returns M itself.
    n_neighbors : int, default=10
        Neighbours of a row in the "knn" graph; ties are all included.
    threshold : float, "adaptive" or "refine", default="adaptive"
        ξ. A float is in units of y and drops nothing (inf: kernel ridge, or LapRLS).
        "refine" is HLR: `n_refinements` times ξ is lowered by `threshold_step` and the
        labels beyond it are dropped. "adaptive" learns ξ and the labels to drop from
        leave-one-out residuals, without any unit.
    removal : float or None, default=3.5
        For "adaptive": labels whose leave-one-out residual exceeds `removal` times the
        noise scale of their row are dropped. None drops none.
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
        A fit whose relative duality gap exceeds `tol`, or whose KKT residual exceeds
        100 * tol, raises a ConvergenceWarning.
    max_iter : int, default=200
        Newton steps of one solve at most.
    verbose : int, default=0
        Above zero, a line is printed for each refinement.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_samples,)
        w: f(z) = Σ_j K(z, x_j) w_j.
    intercept_ : float
    threshold_ : float
        The last ξ; may be 0 if every residual is.
    thresholds_ : ndarray
        All thresholds on the way.
    removed_ : ndarray of shape (n_samples,), bool
        Labels that were dropped.
    label_quality_ : ndarray of shape (n_samples,)
        In [0, 1], low is bad, below ½ for removed labels only; NaN where there is none.
    scale_ : float
        σ̂, a robust estimate of the noise in the labels.
    residuals_ : ndarray of shape (n_samples,)
        y − prediction; NaN where unlabelled.
    loo_residuals_ : ndarray of shape (n_samples,)
        y − prediction of the fit without that label; NaN where unlabelled.
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
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had column names.

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

    _settings: Settings
    _fitted: Fitted
    _labels_fit: tuple[Vector, Vector, Mask]
    X_fit_: Matrix | None

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
        removal=3.5,
        n_refinements=3,
        threshold_step=0.01,
        algorithm="exact",
        fit_intercept=True,
        tol=1e-10,
        max_iter=200,
        verbose=0,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.views = views
        self.view_weights = view_weights
        self.alpha = alpha
        self.manifold = manifold
        self.agreement = agreement
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.threshold = threshold
        self.removal = removal
        self.n_refinements = n_refinements
        self.threshold_step = threshold_step
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None, trusted=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, labelled or not; the (n_samples, n_samples) Gram matrix for a precomputed
            kernel.
        y : array-like of shape (n_samples,)
            Labels, NaN where there is none.
        sample_weight : array-like of shape (n_samples,), default=None
            A weight of k equals k repetitions of the row (with a graph: of its label).
        trusted : array-like of shape (n_samples,), bool, default=None
            Labels that must not be removed.

        Returns
        -------
        self : HLRegressor
        """
        # Everything lands on a copy first: an error or Ctrl-C leaves self as it was.
        draft = copy.copy(self)
        draft._check_parameters()
        data = draft._check_data(X, y, sample_weight, trusted)
        settings = draft._resolve(data)
        draft._assign(settings, data, fit_model(settings, data))
        self.__dict__ = draft.__dict__
        return self

    def predict(self, X):
        """Predict labels.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            For a precomputed kernel the (n_rows, n_samples) matrix K(X, X_fit).

        Returns
        -------
        ndarray of shape (n_rows,)
            Σ_j K(x, x_j) w_j + b, computed in blocks of rows.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        kernel = self._settings.kernel
        if self.X_fit_ is None:
            return kernel.product(X, X, self.dual_coef_) + self.intercept_
        used = self.dual_coef_ != 0.0
        if not np.any(used):
            return np.full(len(X), self.intercept_)
        return kernel.product(X, self.X_fit_[used], self.dual_coef_[used]) + self.intercept_

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
        """
        y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan")
        y = column_or_1d(y)
        given = ~np.isnan(y)
        if not np.any(given):
            raise ValueError("y contains NaN only: there is no label to score against")
        weights = None if sample_weight is None else np.asarray(sample_weight)[given]
        return r2_score(y[given], self.predict(X)[given], sample_weight=weights)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    # --- attributes that need leave-one-out residuals -----------------------------------

    @property
    def loo_residuals_(self) -> Vector:
        """Leave-one-out residuals of shape (n_samples,)."""
        return self._label_evidence().loo_residuals

    @property
    def label_quality_(self) -> Vector:
        """Label quality of shape (n_samples,)."""
        return self._label_evidence().label_quality

    @property
    def scale_(self) -> float:
        """σ̂, the noise scale of the labels."""
        return self._label_evidence().scale

    def _label_evidence(self) -> Evidence:
        check_is_fitted(self)
        evidence = self._fitted.evidence
        if evidence is None:
            assert self.X_fit_ is not None  # a precomputed kernel weighs labels in fit
            data = Data(self.X_fit_, *self._labels_fit)
            evidence = weigh_labels(self._settings, data, self._fitted)
            self._fitted = replace(self._fitted, evidence=evidence)
        return evidence

    # --- fitting ------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check.check_kernel_parameters(
            self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params
        )
        check.check_graph_parameters(self.graph, self.n_neighbors)
        check.check_threshold_parameters(self.threshold, self.algorithm)
        check.check_number("alpha", self.alpha, above=0.0, remedy="usual are 1e-8 to 1")
        check.check_number("manifold", self.manifold, at_least=0.0)
        if self.removal is not None:
            check.check_number("removal", self.removal, above=0.0, remedy="None drops none")
        check.check_integer("n_refinements", self.n_refinements, at_least=0)
        check.check_number("threshold_step", self.threshold_step, above=0.0)
        check.check_number("tol", self.tol, above=0.0)
        check.check_integer("max_iter", self.max_iter, at_least=1)
        check.check_single_view(self.views, self.view_weights, self.agreement)

    def _check_data(self, X: Any, y: Any, sample_weight: Any, trusted: Any) -> Data:
        X = validate_data(self, X, dtype=np.float64, order="C")
        y = check.check_labels(y, len(X))
        weights = check.check_weights(sample_weight, y)
        mask = check.check_trusted(trusted, len(X))
        if self.kernel == "precomputed":
            X = check.check_precomputed(X)
        if self.manifold > 0.0 and not isinstance(self.graph, str) and not callable(self.graph):
            graphs.check_affinity(self.graph, len(X))
        return Data(X, y, weights, mask)

    def _resolve(self, data: Data) -> Settings:
        precomputed = self.kernel == "precomputed"
        kernel = Kernel(
            name=self.kernel,
            gamma=1.0 if precomputed else resolve_gamma(self.gamma, data.X, data.weights),
            degree=int(self.degree),
            coef0=float(self.coef0),
            params=dict(self.kernel_params or {}),
        )
        return Settings(
            kernel=kernel,
            alpha=float(self.alpha),
            manifold=float(self.manifold),
            graph=self.graph,
            n_neighbors=int(self.n_neighbors),
            threshold=self.threshold,
            removal=self.removal,
            n_refinements=int(self.n_refinements),
            threshold_step=float(self.threshold_step),
            algorithm=self.algorithm,
            fit_intercept=bool(self.fit_intercept),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            verbose=int(self.verbose),
        )

    def _assign(self, settings: Settings, data: Data, fitted: Fitted) -> None:
        self._settings, self._fitted = settings, fitted
        self._labels_fit = (data.y, data.weights, data.trusted)
        self.X_fit_ = None if settings.kernel.name == "precomputed" else data.X
        self.dual_coef_ = fitted.dual_coef
        self.intercept_ = fitted.intercept
        self.threshold_ = fitted.threshold
        self.thresholds_ = fitted.thresholds
        self.removed_ = fitted.removed
        self.residuals_ = fitted.residuals
        self.duality_gap_ = fitted.certificate.duality_gap
        self.kkt_residual_ = fitted.certificate.kkt_residual
        self.kkt_rounding_ = fitted.certificate.kkt_rounding
        self.objective_ = fitted.certificate.objective
        self.n_iter_ = fitted.n_iter
        self.n_labelled_ = fitted.n_labelled
