"""HLRegressor: the scikit-learn face of the exact Huber kernel fit."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from activehuber import graphs
from activehuber._typing import Matrix, Vector
from activehuber.data.rows import ArrayRows, LostRows, Rows, automatic_block_size, threads_for
from activehuber.estimators.inputs import (
    first_rows,
    is_streamed,
    new_rows,
    refuse_streams,
    scored_rows,
)
from activehuber.estimators.intervals import half_width
from activehuber.fitting import validation as check
from activehuber.fitting.fit import (
    FitResult,
    fit_targets,
    path_of_labels,
    prediction_inflation,
    refit_labels,
)
from activehuber.fitting.result import Fitted
from activehuber.fitting.settings import Data, Settings, ViewSettings
from activehuber.kernels.feature_maps import APPROXIMATION_NAMES, FOURIER_KERNELS, Landmarks
from activehuber.kernels.kernel import Kernel, gamma_from_gram, resolve_gamma
from activehuber.labels.refinement import DEFAULT_REMOVAL
from activehuber.operators.features import project_views
from activehuber.problem.approximation import Approximation, ColumnMoments, column_moments
from activehuber.selection.candidates import WIDTH_KERNELS
from activehuber.selection.tuning import check_enough_labels, choose, default_plan, settings_at
from activehuber.views import (
    View,
    check_view_weights,
    check_views,
    resolve_columns,
    view_names,
)

COEFFICIENTS = ("dual_coef_", "coef_", "components_")
# Parts of a prediction that can be added up without overflow.
LARGEST = 1e300
# With an approximation parameters are chosen on so many labels at most.
SELECTION_LABELS = 2_000


class ViewParameters(BaseEstimator):
    """An estimator with `kernel` and `views`, whose views' parameters are its own too."""

    kernel: Any
    views: Any

    def get_params(self, deep=True):
        """Parameters of the estimator.

        Parameters
        ----------
        deep : bool, default=True
            Also list `views__<name>__<parameter>`.

        Returns
        -------
        dict

        Examples
        --------
        >>> from activehuber import HLRegressor, View
        >>> model = HLRegressor(views=[View([0, 1], name="size"), View([2], name="place")])
        >>> model.get_params()["views__size__kernel"]
        'rbf'
        """
        params = super().get_params(deep=False)
        if deep and _are_views(self.views):
            for name, view in zip(view_names(self.views), self.views, strict=True):
                for key, value in view.get_params().items():
                    params[f"views__{name}__{key}"] = value
        return params

    def set_params(self, **params):
        """Set parameters, those of views as `views__<name>__<parameter>`.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> from activehuber import HLRegressor, View
        >>> model = HLRegressor(views=[View([0, 1], name="size"), View([2], name="place")])
        >>> model.set_params(alpha=0.1, views__place__gamma=2.0).views[1].gamma
        2.0
        """
        nested = {key: params.pop(key) for key in list(params) if key.startswith("views__")}
        super().set_params(**params)
        if not nested:
            return self
        if not _are_views(self.views):
            raise ValueError(f"{next(iter(nested))} was given, but views={self.views!r}")
        named = dict(zip(check_views(self.views), self.views, strict=True))
        changes = []
        for key, value in nested.items():
            name, _, parameter = key.removeprefix("views__").partition("__")
            if name not in named or parameter not in named[name].get_params():
                raise ValueError(
                    f"invalid parameter {key!r}: it must be views__<name>__<parameter> with a "
                    f"name among {', '.join(named)}"
                )
            changes.append((named[name], parameter, value))
        for view, parameter, value in changes:
            view.set_params(**{parameter: value})
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        by_name = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return self.views is None and by_name


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
        leave-one-out residuals, without any unit; labels are judged at gamma, a half or a
        quarter of it, whichever they speak for, and fitted at gamma.
    removal : float or None, default=3.5
        For "adaptive": labels whose leave-one-out residual exceeds `removal` times the
        noise scale of their row are dropped; where many labels lie far out the cut moves in,
        to even odds of a good and a bad label (not below twice the scale). None drops none.
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
        "nystrom" the kernel at some of the rows, for any kernel; "fourier" random waves, for
        "rbf", "laplacian" and "matern"; "linear" the features themselves, whatever `kernel`
        says ("cosine" normalises them). X may then also be a memory map, a Parquet file or
        folder or a pyarrow dataset (y may be the name of a column), or a Dask array.
    n_components : int, default=1000
        Functions a view, for "nystrom" and "fourier"; rows of the graph if `manifold` > 0: it
        joins the drawn rows alone, and counts for all.
    block_size : int or "auto", default="auto"
        Rows worked on at once by each thread; "auto" keeps a block at 32 MiB.
    random_state : int, RandomState instance or None, default=None
        Draws landmarks and waves. The same number draws the same rows, however they are cut
        into blocks.

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
        In [0, 1], low is bad, below ½ for removed labels only; NaN where there is none.
        For "adaptive" from the errors that decided, which are those at the width of judging.
    scale_ : float
        σ̂, a robust estimate of the noise in the labels.
    residuals_ : ndarray of shape (n_samples,)
        y − prediction; NaN where unlabelled.
    loo_residuals_ : ndarray of shape (n_samples,)
        y − prediction of the fit without that label; NaN where unlabelled. Computed when
        first asked for: one more factorisation.
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
    # For those who ask for leave-one-out figures of every fit anyway; else they wait.
    _weighs_labels: bool = False
    # False where the width was chosen for these labels: they are judged there.
    _tries_widths: bool = True

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
        approximation=None,
        n_components=1000,
        block_size="auto",
        random_state=None,
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
        self.approximation = approximation
        self.n_components = n_components
        self.block_size = block_size
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None, trusted=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, labelled or not; the (n_samples, n_samples) Gram matrix for a precomputed
            kernel. With an approximation also what is read piece by piece.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or str
            Labels, NaN where there is none; or the name of a column of a Parquet X.
        sample_weight : array-like of shape (n_samples,), default=None
            A weight of k equals k repetitions of the row (with a graph: of its label).
        trusted : array-like of shape (n_samples,), bool, default=None
            Labels that must not be removed.

        Returns
        -------
        self : HLRegressor

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressor
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> y[50:] = np.nan                       # no labels
        >>> int(HLRegressor(gamma=1.0).fit(X, y).n_labelled_)
        50
        """
        # Everything lands on a copy first: an error or Ctrl-C leaves self as it was.
        draft = copy.copy(self)
        data = draft._checked(X, y, sample_weight, trusted)
        with threads_for(len(data.y)):
            settings = draft._resolve(X, data)
            draft._assign(settings, data, fit_targets(settings, data))
        if isinstance(data.X, Rows):
            data.X.release()
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

    def predict_interval(self, X, coverage=0.9, *, scale="constant"):
        """Intervals that hold a new label with the given probability.

        prediction ± the `coverage` quantile of |leave-one-out residuals| over the labels in
        use (a jackknife interval). Removed labels do not enter, so the interval is meant for
        labels that are right; if good labels were removed too it is a little too narrow.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        coverage : float, default=0.9
        scale : {"constant", "local"}, default="constant"
            "local" widens the interval where the training rows say little: residuals are
            divided by √(1 + q/μ), q the prior variance that the other labels leave at the
            row, and multiplied by it at the new row. Without a graph and agreement only.

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
        shape = (len(self.result_.data.y), -1)
        residuals = np.reshape(self.loo_residuals_, shape)
        in_use = np.where(np.reshape(self.removed_, shape), np.nan, residuals)
        return self._interval(X, coverage, scale, in_use)

    def _interval(self, X: Any, coverage: Any, scale: Any, residuals: Matrix) -> np.ndarray:
        """The interval from errors of training labels, (n, q), NaN for those to leave out."""
        check.check_number("coverage", coverage, above=0.0)
        if coverage >= 1.0:
            raise ValueError(f"coverage must be below 1, got {coverage!r}")
        check.check_choice("scale", scale, ("constant", "local"))
        X = self._check_new(X)
        centre = np.asarray(self._parts(X).sum(axis=1) + self.intercept_)
        centre = centre.reshape(len(centre), -1)
        ends = []
        for index in range(len(self.result_.targets)):
            used = ~np.isnan(residuals[:, index])
            errors, weights = residuals[used, index], self.result_.data.weights[used]
            if scale == "local":
                errors = errors / self.result_.evidence[index].loo_inflation[used]
            half: float | Vector = half_width(errors, weights, coverage)
            if scale == "local":
                half = half * np.asarray(self._inflation(index, X))
            ends.append(np.stack([centre[:, index] - half, centre[:, index] + half], axis=1))
        return self.result_.of_targets(ends)

    def _inflation(self, index: int, X: Matrix) -> Vector:
        """√(1 + q/μ) of new rows."""
        settings = self.result_.settings
        penalised = settings.manifold > 0.0 or settings.agreement > 0.0
        if self.X_fit_ is None or (settings.approximation is None and penalised):
            raise ValueError(
                'scale="local" needs rows of features, and no manifold and no agreement; use '
                'scale="constant"'
            )
        return prediction_inflation(
            settings, self.result_.data, self.result_.targets[index], index, X
        )

    def loo_refit(self, rows, *, target=0):
        """Leave-one-out residuals of some labels by fitting again without each of them.

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
        rows = np.asarray(rows)
        data = self.result_.data
        labelled = np.flatnonzero(data.labelled[:, target])
        if rows.ndim != 1 or not np.all(np.isin(rows, labelled)):
            raise ValueError("rows must be numbers of rows that have a label")
        return refit_labels(
            self.result_.settings, data, self.result_.targets[target], target, rows
        )

    def _check_repeatable(self, target: int, remedy: str) -> None:
        """Raise unless the problem of a target can be put together again."""
        check_is_fitted(self)
        if target not in range(len(self.result_.targets)):
            raise ValueError(
                f"target must be from 0 to {len(self.result_.targets) - 1}, got {target!r}"
            )
        if self.X_fit_ is None or (
            self.result_.settings.manifold > 0.0 and self._lost_a_graph()
        ):
            raise ValueError(
                "the fit keeps no precomputed kernel and no graph that was given as a matrix; "
                f"{remedy}"
            )

    def _lost_a_graph(self) -> bool:
        return any(view.graph is None for view in self.result_.settings.views)

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
        return self._parts(self._check_new(X))

    def _check_new(self, X: Any, owner: Any = None) -> Any:
        """New rows as `_parts` takes them: Rows with an approximation, else an array.

        `owner` is the estimator that X was given to, if that is not this one.
        """
        owner = self if owner is None else owner
        if self.result_.settings.approximation is None:
            refuse_streams(X)
        if self.result_.settings.approximation is None or not is_streamed(X):
            X = check.checked_features(owner, X, order="C", reset=False)
        if self.result_.settings.approximation is None:
            return X
        rows = new_rows(X, owner)
        return rows.in_blocks_of(self._rows_a_block(len(self.result_.settings.views)))

    def _parts(self, X: Any) -> np.ndarray:
        """`predict_views` of checked rows; what is not finite is refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            out = self._products(X)
        if isinstance(out, np.ndarray) and not np.all(np.abs(out) < LARGEST):
            raise ValueError(
                "X: predictions overflow; its rows lie far from those of the fit, or the model "
                "is damaged"
            )
        return out

    def _products(self, X: Any) -> np.ndarray:
        if self.result_.settings.approximation is not None:
            coefficients = np.stack([f.coefficients for f in self.result_.targets], axis=1)
            out, _ = X.run(project_views, (self.result_.targets[0].basis, coefficients))
            return out if self.result_.data.several_targets else out[:, :, 0]
        parts = []
        for index, view in enumerate(self.result_.settings.views):
            weighted = [
                f.view_weights[index] * f.coefficients[:, index] for f in self.result_.targets
            ]
            coefficients = np.stack(weighted, axis=1)
            used = np.any(coefficients != 0.0, axis=1)
            if self.X_fit_ is None:
                parts.append(view.kernel.product(X, X, coefficients))
            elif np.any(used):
                rows = view.select(self.X_fit_)[used]
                parts.append(view.kernel.product(view.select(X), rows, coefficients[used]))
            else:
                parts.append(np.zeros((len(X), coefficients.shape[1])))
        out = np.stack(parts, axis=1)
        return out if self.result_.data.several_targets else out[:, :, 0]

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
        weights = None if sample_weight is None else np.asarray(sample_weight)
        check_consistent_length(X, y, weights)
        predicted = np.reshape(np.asarray(self.predict(X)), (len(y), -1))
        if predicted.shape != y.reshape(len(y), -1).shape:
            raise ValueError(
                f"y has shape {y.shape}, but the regressor was fitted to "
                f"{predicted.shape[1]} targets"
            )
        scores = []
        for labels, prediction in zip(y.reshape(len(y), -1).T, predicted.T, strict=True):
            given = ~np.isnan(labels)
            if not np.any(given):
                raise ValueError("y contains NaN only: there is no label to score against")
            weight = None if weights is None else weights[given]
            scores.append(r2_score(labels[given], prediction[given], sample_weight=weight))
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
        fitted = self.result_.targets[target]
        return path_of_labels(
            self.result_.settings,
            self.result_.data,
            target,
            removed=fitted.removed,
            view_weights=fitted.view_weights,
            min_threshold=min_threshold,
            max_events=max_events,
        )

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
        check_is_fitted(self)
        known = [fitted.quality for fitted in self.result_.targets]
        if any(quality is None for quality in known):
            known = [e.label_quality for e in self.result_.evidence]
        return self.result_.of_targets(known)

    @property
    def scale_(self) -> float | np.ndarray:
        """σ̂, the noise scale of the labels."""
        check_is_fitted(self)
        known = [fitted.sigma for fitted in self.result_.targets]
        if any(sigma is None for sigma in known):
            known = [e.scale for e in self.result_.evidence]
        return self.result_.of_targets(known)

    # --- fitting ------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.views is None:
            if _is_loo(self.gamma) and self.kernel not in WIDTH_KERNELS:
                raise ValueError(
                    f'gamma="loo" is for the kernels {", ".join(WIDTH_KERNELS)}, got '
                    f"kernel={self.kernel!r}; give gamma"
                )
            gamma = "scale" if _is_loo(self.gamma) else self.gamma
            check.check_kernel_parameters(
                self.kernel, gamma, self.degree, self.coef0, self.kernel_params
            )
            check.check_graph_parameters(self.graph, self.n_neighbors)
            if isinstance(self.view_weights, str) and self.view_weights == "learn":
                raise ValueError('view_weights="learn" needs several views; pass views=[...]')
        else:
            check.check_each_view(self.views)
        check_view_weights(self.view_weights, 1 if self.views is None else len(self.views))
        check.check_threshold_parameters(self.threshold, self.algorithm)
        if self.algorithm == "paper" and isinstance(self.view_weights, str):
            if self.view_weights == "learn":
                raise ValueError('algorithm="paper" cannot learn view_weights; give them')
        if not _is_loo(self.alpha):
            remedy = 'usual are 1e-8 to 1; "loo" chooses one'
            check.check_number("alpha", self.alpha, above=0.0, remedy=remedy)
        check.check_number("manifold", self.manifold, at_least=0.0)
        check.check_number("agreement", self.agreement, at_least=0.0)
        if self.agreement > 0.0 and (self.views is None or len(self.views) < 2):
            raise ValueError("agreement > 0 needs at least two views; pass views=[...]")
        if self.removal is not None:
            check.check_number("removal", self.removal, above=0.0, remedy="None drops none")
        check.check_flag("fit_intercept", self.fit_intercept)
        check.check_integer("n_refinements", self.n_refinements, at_least=0)
        check.check_number(
            "threshold_step", self.threshold_step, above=0.0, extreme=check.EXTREME_IN_Y
        )
        check.check_number("tol", self.tol, above=0.0)
        check.check_integer("max_iter", self.max_iter, at_least=1)
        check.check_verbose(self.verbose)
        self._check_approximation()

    def _check_approximation(self) -> None:
        check.check_integer("n_components", self.n_components, at_least=1)
        if not isinstance(self.block_size, str) or self.block_size != "auto":
            check.check_integer("block_size", self.block_size, at_least=1)
        check_random_state(self.random_state)
        if self.approximation is None:
            return
        check.check_choice("approximation", self.approximation, APPROXIMATION_NAMES, " or None")
        holders = [self] if self.views is None else self.views
        if self._is_precomputed():
            raise ValueError(
                'kernel="precomputed" is the whole Gram matrix: there is nothing to approximate'
            )
        if self.algorithm == "paper":
            raise ValueError('algorithm="paper" takes no approximation')
        if self.manifold > 0.0 and any(graphs.is_matrix(h.graph) for h in holders):
            raise ValueError(
                "graph is a matrix of all rows, but with an approximation the graph joins the "
                'drawn rows alone; use graph="knn", "rbf" or a callable'
            )
        if self.approximation == "fourier":
            for holder in holders:
                if callable(holder.kernel) or holder.kernel not in FOURIER_KERNELS:
                    raise ValueError(
                        'approximation="fourier" is for the kernels '
                        f"{', '.join(FOURIER_KERNELS)}, got kernel={holder.kernel!r}; use "
                        'approximation="nystrom"'
                    )

    def _prepared(
        self, X: Any, y: Any, sample_weight: Any = None, trusted: Any = None
    ) -> tuple[Settings, Data]:
        """Settings and data of a fit that is made elsewhere; notes the features on self."""
        data = self._checked(X, y, sample_weight, trusted)
        return self._resolve(X, data), data

    def _checked(self, X: Any, y: Any, sample_weight: Any, trusted: Any) -> Data:
        self._check_parameters()
        return self._check_data(X, y, sample_weight, trusted)

    def _check_data(self, X: Any, y: Any, sample_weight: Any, trusted: Any) -> Data:
        X, y = self._check_rows(X, y)
        labels = check.check_labels(y, len(X))
        y = labels.reshape(len(X), -1)
        weights = check.check_weights(sample_weight, y)
        mask = check.check_trusted(trusted, y.shape)
        if self._is_precomputed():
            X = check.check_precomputed(X)
        if self.manifold > 0.0:
            for holder in [self] if self.views is None else self.views:
                if graphs.is_matrix(holder.graph):
                    graphs.check_affinity(holder.graph, len(X))
        return Data(X, y, weights, mask, several_targets=labels.ndim == 2)

    def _check_rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X as an array, or as Rows with an approximation, and y."""
        if self.approximation is None:
            refuse_streams(X)
            copied = not self._is_precomputed()
            return check.checked_features(self, X, order="C", copy=copied), y
        if is_streamed(X):
            rows, y = first_rows(X, y, self)
        elif isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fiu":
            # A memory map is there because it is large: it is not copied.
            validate_data(self, X, skip_check_array=True)
            rows = ArrayRows(X)
        else:
            rows = ArrayRows(check.checked_features(self, X, order="C", copy=True))
        width = 1 if self.views is None else len(self.views)
        return rows.in_blocks_of(self._rows_a_block(width)), y

    def _rows_a_block(self, n_views: int) -> int:
        if self.block_size != "auto":
            return int(self.block_size)
        if self.approximation == "linear":
            return automatic_block_size(self.n_features_in_)
        return automatic_block_size(self.n_components * n_views)

    def _resolve(self, X: Any, data: Data) -> Settings:
        """Parameters as the fit uses them; X as it was given, for column selectors."""
        known = data.X
        if self.approximation is not None:
            lost = isinstance(data.X, LostRows)  # then widths are numbers already
            known = None if lost else column_moments(data.X, data.weights)
        if self.views is None:
            views = [_view_settings(self, "view0", None, known, data.weights)]
        else:
            names, width = getattr(self, "feature_names_in_", None), self.n_features_in_
            views = [
                _view_settings(
                    view,
                    name,
                    resolve_columns(view, name, X, names, width),
                    known,
                    data.weights,
                )
                for name, view in zip(view_names(self.views), self.views, strict=True)
            ]
        settings = Settings(
            views=tuple(views),
            view_weights=check_view_weights(self.view_weights, len(views)),
            alpha=1.0 if _is_loo(self.alpha) else float(self.alpha),
            manifold=float(self.manifold),
            agreement=float(self.agreement),
            threshold=self.threshold,
            removal=self.removal,
            n_refinements=int(self.n_refinements),
            threshold_step=float(self.threshold_step),
            algorithm=self.algorithm,
            fit_intercept=bool(self.fit_intercept),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            verbose=int(self.verbose),
            approximation=self._approximation(),
            weighs_labels=self._weighs_labels,
            tries_widths=self._tries_widths and not _is_loo(self.gamma),
        )
        return self._choose(settings, data)

    def _approximation(self) -> Approximation | None:
        if self.approximation is None:
            return None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Approximation(self.approximation, int(self.n_components), seed)

    def _choose(self, settings: Settings, data: Data) -> Settings:
        """Settings with what "loo" stands for."""
        move_widths = self.views is None and _is_loo(self.gamma)
        if not (_is_loo(self.alpha) or move_widths):
            return settings
        if data.several_targets:
            raise ValueError(
                'alpha="loo" and gamma="loo" take one target; fit one model for each column of '
                "y, or, if no label is missing, use sklearn.multioutput.MultiOutputRegressor"
            )
        if settings.approximation is not None:
            return self._choose_on_some(settings, data, move_widths)
        check_enough_labels(data, "give alpha and gamma")
        total = data.total_weight
        plan = default_plan(
            total,
            None if _is_loo(self.alpha) else settings.alpha,
            removals=(settings.removal or DEFAULT_REMOVAL,),
        )
        plain = replace(settings, manifold=0.0)
        choice = choose([plain], data, (settings.manifold,), plan, move_widths=move_widths)
        return settings_at(settings, choice.point, total)

    def _choose_on_some(self, settings: Settings, data: Data, move_widths: bool) -> Settings:
        """The same from exact fits to a few labels; the ridge 2Sλ stays for all."""
        assert settings.approximation is not None
        check_enough_labels(data, "give alpha and gamma")
        some = data.some_labels(SELECTION_LABELS, settings.approximation.seed)
        plain = replace(settings, approximation=None, manifold=0.0)
        total, of_some = data.total_weight, some.total_weight
        plan = default_plan(
            of_some,
            None if _is_loo(self.alpha) else settings.alpha * total / of_some,
            removals=(settings.removal or DEFAULT_REMOVAL,),
        )
        choice = choose([plain], some, (0.0,), plan, move_widths=move_widths)
        return settings_at(settings, choice.point, total)

    def _assign(self, settings: Settings, data: Data, fitted: list[Fitted]) -> None:
        self.result_ = FitResult(settings, data, fitted)
        self.X_fit_ = None if settings.precomputed else data.X
        collect = self.result_.of_targets
        single = self.views is None
        for name in COEFFICIENTS:  # those of an earlier fit that this one may not have
            self.__dict__.pop(name, None)
        if settings.approximation is None:
            self.dual_coef_ = collect(
                [f.coefficients[:, 0] if single else f.coefficients for f in fitted]
            )
        else:
            self.coef_ = collect([f.coefficients for f in fitted])
            assert fitted[0].basis is not None
            landmarks = [f.rows for f in fitted[0].basis.functions if isinstance(f, Landmarks)]
            if landmarks:
                self.components_ = landmarks[0] if single else landmarks
        self.intercept_ = collect([f.intercept for f in fitted])
        widths = [view.kernel.gamma for view in settings.views]
        self.alpha_, self.gamma_ = settings.alpha, widths[0] if single else widths
        self.view_weights_ = collect([f.view_weights for f in fitted])
        self.view_weights_residual_ = collect([f.view_weights_residual for f in fitted])
        self.threshold_ = collect([f.threshold for f in fitted])
        histories = [f.thresholds for f in fitted]
        self.thresholds_ = histories if self.result_.data.several_targets else histories[0]
        self.removed_ = collect([f.removed for f in fitted])
        self.residuals_ = collect([f.residuals for f in fitted])
        self.duality_gap_ = collect([f.certificate.duality_gap for f in fitted])
        self.kkt_residual_ = collect([f.certificate.kkt_residual for f in fitted])
        self.kkt_rounding_ = collect([f.certificate.kkt_rounding for f in fitted])
        self.objective_ = collect([f.certificate.objective for f in fitted])
        self.n_iter_ = collect([f.n_iter for f in fitted])
        self.n_labelled_ = collect([f.n_labelled for f in fitted])


# Parameters of HLRegressor that say what is minimised, whatever the threshold.
PROBLEM_PARAMETERS = (
    "kernel",
    "gamma",
    "degree",
    "coef0",
    "kernel_params",
    "views",
    "view_weights",
    "alpha",
    "manifold",
    "agreement",
    "graph",
    "n_neighbors",
    "fit_intercept",
)


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
    draft = HLRegressor(**params)
    settings, data = draft._prepared(X, y, sample_weight)
    if settings.view_weights is None:
        raise ValueError('huber_path takes fixed view_weights, not "learn"')
    return path_of_labels(settings, data, min_threshold=min_threshold, max_events=max_events)


def _check_path_parameters(min_threshold: Any, max_events: Any) -> None:
    if min_threshold is not None:
        check.check_number(
            "min_threshold", min_threshold, above=0.0, extreme=check.EXTREME_IN_Y
        )
    if max_events is not None:
        check.check_integer("max_events", max_events, at_least=1)


def _is_loo(value: Any) -> bool:
    return isinstance(value, str) and value == "loo"


def _are_views(views: Any) -> bool:
    return isinstance(views, (list, tuple)) and all(isinstance(v, View) for v in views)


def _view_settings(
    holder: Any,
    name: str,
    columns: np.ndarray | None,
    known: Matrix | ColumnMoments | None,
    weights: Vector,
) -> ViewSettings:
    """A view, or the regressor itself, with its kernel resolved on the view's columns."""
    wanted = "scale" if _is_loo(holder.gamma) else holder.gamma
    gamma: Any
    if known is None:
        gamma = wanted
    elif isinstance(known, ColumnMoments):
        gamma = known.gamma(wanted, columns)
    else:
        X = known if columns is None else known[:, columns]
        if isinstance(holder.kernel, str) and holder.kernel == "precomputed":
            gamma = gamma_from_gram(wanted, X)
        else:
            gamma = resolve_gamma(wanted, X, weights)
    kernel = Kernel(
        name=holder.kernel,
        gamma=gamma,
        degree=int(holder.degree),
        coef0=float(holder.coef0),
        params=dict(holder.kernel_params or {}),
    )
    return ViewSettings(name, columns, kernel, holder.graph, int(holder.n_neighbors))
