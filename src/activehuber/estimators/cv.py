"""HLRegressorCV and HLClassifierCV: the same estimators with every parameter chosen."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from activehuber._typing import Matrix, Vector
from activehuber.data.rows import Rows, threads_for
from activehuber.estimators.classifier import HLClassifier, code_labels
from activehuber.estimators.inputs import checked_rows, is_streamed, new_rows, scored_rows
from activehuber.estimators.regressor import SELECTION_LABELS, HLRegressor, ViewParameters
from activehuber.estimators.splitters import class_numbers, is_missing
from activehuber.fitting import validation as check
from activehuber.fitting.complaints import MANY_REMOVED
from activehuber.fitting.settings import Data, Settings
from activehuber.kernels.feature_maps import drawn
from activehuber.labels.noise_rates import clean_losses
from activehuber.selection.candidates import WIDTH_KERNELS, Point
from activehuber.selection.scoring import Mode, common_scale, robust_loss
from activehuber.selection.search import (
    CLASS_RIDGES,
    FOLDS,
    RIDGES,
    WIDTH_FACTORS,
    Plan,
    SearchResult,
    grid_points,
)
from activehuber.selection.tuning import (
    check_enough_labels,
    choose,
    choose_for_classes,
    family_of,
    grid_errors,
)
from activehuber.views import View, check_views, resolve_columns, view_names

Splits = list[tuple[np.ndarray, np.ndarray]]

# Parameters that a search hands on to its estimators as they are.
HANDED_ON = (
    "views",
    "view_weights",
    "agreement",
    "graph",
    "n_neighbors",
    "fit_intercept",
    "tol",
    "max_iter",
)


def _silent(line: str) -> None:
    """Report nothing."""


class _SearchCV(ViewParameters):
    """What both searches share: checks, the scaler, the grid, the record."""

    best_estimator_: Any
    best_params_: dict[str, Any]
    scaler_: StandardScaler | None
    kernels: Any
    gammas: Any
    alphas: Any
    manifolds: Any
    cv: Any
    scoring: Any
    relevance: Any
    standardize: Any
    random_state: Any
    verbose: Any
    approximation: Any
    n_components: Any
    block_size: Any
    _ridges: tuple[float, ...] = RIDGES

    def __getattr__(self, name: str) -> Any:
        # Fitted attributes that the search itself does not have are those of the model.
        fitted = self.__dict__.get("best_estimator_")
        if name.endswith("_") and not name.startswith("_") and fitted is not None:
            return getattr(fitted, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _is_precomputed(self) -> bool:
        kernels = self.kernels
        several = isinstance(kernels, (list, tuple, np.ndarray))
        return self.views is None and several and tuple(kernels) == ("precomputed",)

    def predict(self, X):
        """Predict with the best estimator.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows,)

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressorCV
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> HLRegressorCV(kernels=["rbf"]).fit(X, y).predict([[1.5], [4.5]]).shape
        (2,)
        """
        seen = self._scaled(X)
        return self.best_estimator_.predict(seen)

    def score(self, X, y, sample_weight=None):
        """Score of the best estimator on the rows that have a label.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressorCV
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> y[50:] = np.nan                       # rows without a label are skipped
        >>> bool(HLRegressorCV(kernels=["rbf"]).fit(X, y).score(X, y) > 0.95)
        True
        """
        if isinstance(y, str):
            check_is_fitted(self)
            X, y = scored_rows(X, y, self)
        seen = self._scaled(X)
        return self.best_estimator_.score(seen, y, sample_weight)

    def _number_views(self, rows: Rows) -> None:
        """Views of named columns as views of numbers: the few rows looked at have no names."""
        if self.views is None:
            return
        check_views(self.views)
        names, numbered = rows.names, []
        for name, view in zip(view_names(self.views), self.views, strict=True):
            mine = copy.deepcopy(view)
            mine.columns = resolve_columns(
                view, name, rows, None if names is None else np.array(names), rows.n_features
            )
            numbered.append(mine)
        self.views = numbered

    def _scaled(self, X: Any) -> Any:
        check_is_fitted(self)
        if self.approximation is not None and is_streamed(X):
            return new_rows(X, self)
        checked = check.checked_features(self, X, order="C", reset=False)
        return X if self.scaler_ is None else self.scaler_.transform(checked)

    def _check_parameters(self) -> None:
        check.check_several("kernels", self.kernels)
        for name in ("gammas", "alphas"):
            if getattr(self, name) is not None:
                check.check_several(name, getattr(self, name))
                for number in getattr(self, name):
                    check.check_number(f"every one of {name}", number, above=0.0)
        check.check_several("manifolds", self.manifolds)
        check.check_verbose(self.verbose)
        if isinstance(self.scoring, str) and self.scoring != "robust":
            get_scorer(self.scoring)
        elif not isinstance(self.scoring, str) and not callable(self.scoring):
            raise TypeError(f"scoring must be a name or a callable, got {self.scoring!r}")
        for number in self.manifolds:
            check.check_number("every one of manifolds", number, at_least=0.0)
        for name in ("relevance", "standardize"):
            check.check_flag(name, getattr(self, name))
        if self.relevance and (self.gammas is not None or self.cv is not None):
            raise ValueError("relevance=True learns the widths: leave gammas and cv None")
        others = [kernel for kernel in self.kernels if kernel not in WIDTH_KERNELS]
        if self.relevance and self.views is None and others:
            raise ValueError(
                f"relevance=True is for the kernels {', '.join(WIDTH_KERNELS)}, got "
                f"{others[0]!r}"
            )
        if self.standardize and self._is_precomputed():
            raise ValueError("standardize=True needs features, not a precomputed kernel")
        check.check_integer("random_state", self.random_state, at_least=0)
        if self.approximation is not None:
            self._check_approximation()

    def _check_approximation(self) -> None:
        if any(manifold > 0.0 for manifold in self.manifolds):
            raise ValueError(
                "manifolds must be (0,) with an approximation, since parameters are chosen on "
                "a few rows; choose without, then give manifold to the estimator"
            )
        own = [str(kernel) for kernel in self.kernels if kernel not in ("linear", "cosine")]
        if self.approximation == "linear" and self.views is None and own:
            raise ValueError(
                'approximation="linear" has no kernel to choose, got kernels='
                f'{self.kernels!r}; use kernels=("linear",)'
            )

    def _report(self) -> Callable[[str], Any]:
        return (lambda line: print(f"[activehuber] {line}")) if self.verbose else _silent

    def _search(self, X: Any, target: Any, y: Any, sample_weight: Any, trusted: Any) -> Any:
        """Choose parameters; returns X as the estimator is to see it.

        Parameters
        ----------
        target : ndarray
            What the kernel fit sees: y, or its codes.
        """
        self._check_parameters()
        target = check.check_labels(target, len(target))
        if sample_weight is not None:
            columns = target.reshape(len(target), -1)
            sample_weight = check.check_weights(sample_weight, columns)
        self.scaler_ = None
        self._looked_at = np.arange(len(target))
        if not isinstance(X, Rows):
            seen = check.checked_features(self, X)
            if self.standardize:
                self.scaler_ = StandardScaler().fit(seen, sample_weight=sample_weight)
                X = self.scaler_.transform(seen)
        elif self.standardize:
            raise ValueError("standardize=True needs X in memory; standardise it beforehand")
        if self.approximation is None:
            self._choose(X, target, y, sample_weight, trusted)
        else:
            self._choose_on_some(X, target, y, sample_weight, trusted)
        return X

    def _choose_on_some(
        self, X: Any, target: Any, y: Any, sample_weight: Any, trusted: Any
    ) -> None:
        """Parameters from a few labels; the ridge 2Sλ is noise over signal and stays."""
        weights = np.ones(len(target)) if sample_weight is None else sample_weight
        given = ~np.isnan(target.reshape(len(target), -1)[:, 0])
        labelled = np.flatnonzero(given & (weights > 0.0))
        rng = np.random.default_rng(self.random_state)
        rows = labelled[drawn(len(labelled), SELECTION_LABELS, rng)]
        self._looked_at = rows
        some = X.take(rows) if isinstance(X, Rows) else _safe_indexing(X, rows)
        mask = None if trusted is None else np.asarray(trusted)[rows]
        part = None if sample_weight is None else weights[rows]
        self._choose(some, target[rows], _safe_indexing(y, rows), part, mask)
        share = float(weights[rows].sum() / weights[labelled].sum())
        self.best_params_ = {
            **self.best_params_,
            "alpha": share * self.best_params_["alpha"],
            "approximation": self.approximation,
            "n_components": self.n_components,
            "block_size": self.block_size,
            "random_state": self.random_state,
        }

    def _choose(self, X: Any, target: Any, y: Any, sample_weight: Any, trusted: Any) -> None:
        """`best_params_` by exact fits."""
        with threads_for(len(target)):
            self.best_params_ = self._best_params(X, target, y, sample_weight, trusted)

    def _best_params(
        self, X: Any, target: Any, y: Any, sample_weight: Any, trusted: Any
    ) -> dict[str, Any]:
        settings = []
        for params in self._candidates():
            head = HLRegressor(**params)
            resolved, data = head._prepared(X, target, sample_weight, trusted)
            settings.append(resolved)
        plain = type(self).__name__.removesuffix("CV")
        check_enough_labels(data, f"give the parameters to {plain}")
        if self.cv is None and self.scoring == "robust":
            return self._in_closed_form(settings, data)
        if self.cv is None:
            return self._by_scorer(settings, data)
        grid = self._grid(settings, data)
        return self._by_splits(grid, X, y, sample_weight, trusted)

    def _candidates(self) -> list[dict[str, Any]]:
        """Parameters of one kernel fit a kernel."""
        handed = {name: getattr(self, name) for name in HANDED_ON}
        if self.views is not None:
            return [handed]
        factors = () if self.gammas is None else WIDTH_KERNELS
        gammas = [1.0 if kernel in factors else "scale" for kernel in self.kernels]
        pairs = zip(self.kernels, gammas, strict=True)
        return [{**handed, "kernel": kernel, "gamma": gamma} for kernel, gamma in pairs]

    def _plan(self, total_weight: float, removals: tuple[float | None, ...] = ()) -> Plan:
        factors = WIDTH_FACTORS if self.gammas is None else self.gammas
        ridges = self._ridges
        if self.alphas is not None:
            ridges = tuple(2.0 * total_weight * alpha for alpha in self.alphas)
        return Plan(
            log_factors=tuple(float(np.log(factor)) for factor in factors),
            log_ridges=tuple(float(np.log(ridge)) for ridge in ridges),
            move=self.gammas is None and self.alphas is None,
            move_ridge=self.alphas is None,
            relevance=bool(self.relevance),
            removals=removals,
            random_state=int(self.random_state),
            report=self._report(),
        )

    def _in_closed_form(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        raise NotImplementedError

    def _by_scorer(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        raise NotImplementedError

    def _by_splits(
        self, grid: list[dict[str, Any]], X: Any, y: Any, sample_weight: Any, trusted: Any
    ) -> dict[str, Any]:
        """The grid alone, every point fitted on every training part."""
        splits = _splits(self.cv, X, y, classes=isinstance(self, ClassifierMixin))
        runs = []
        for params in grid:
            fits = _fits(self._estimator(params), X, y, sample_weight, trusted, splits)
            runs.append([self._judge_part(*fit) for fit in fits])
        scores = self._scores_of(runs)
        self._tabulate(grid, scores, ["split"] * len(grid))
        self.best_score_ = float(np.max(scores))
        return grid[int(np.argmax(scores))]

    def _grid(self, settings: list[Settings], data: Data) -> list[dict[str, Any]]:
        """Parameters of the grid as the estimator takes them."""
        total = data.total_weight
        plan, out = self._plan(total), []
        for each, manifold in product(settings, self.manifolds):
            family = family_of(each, data, move_widths=True)
            family = replace(family, manifold=float(manifold))
            out += [self._parameters_at(point, total) for point in grid_points(family, plan)]
        return out

    def _record(self, choice: SearchResult, total_weight: float) -> None:
        """`cv_results_` from the trials of a search in closed form."""
        lines = [
            self._parameters_at(trial.point, total_weight) | _mode(trial.mode)
            for trial in choice.trials
        ]
        scores = np.array([trial.score for trial in choice.trials])
        self._tabulate(lines, scores, [trial.stage for trial in choice.trials])

    def _tabulate(self, lines: list[dict], scores: Vector, stages: list[str]) -> None:
        names = sorted({name for line in lines for name in line})
        self.cv_results_ = {"params": lines, "stage": np.array(stages)}
        for name in names:
            column = np.empty(len(lines), dtype=object)
            column[:] = [line.get(name) for line in lines]
            self.cv_results_[f"param_{name}"] = column
        self.cv_results_["mean_test_score"] = scores
        order = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        self.cv_results_["rank_test_score"] = order + 1

    def _parameters_at(self, point: Point, total_weight: float) -> dict[str, Any]:
        """A point of the search as parameters of the estimator."""
        out = {
            "alpha": point.ridge / (2.0 * total_weight),
            "manifold": point.family.manifold,
        }
        widths = [part.widths(point.theta) for part in point.family.parts]
        if self.views is None and len(widths) > 1:
            kernels = [part.kernel.name for part in point.family.parts]
            # Callables have no name, and a name must not be given twice.
            named = all(isinstance(name, str) and kernels.count(name) == 1 for name in kernels)
            views = [
                View(
                    list(range(part.X.shape[1])),
                    kernel=part.kernel.name,
                    gamma=width,
                    name=part.kernel.name if named else None,
                )
                for part, width in zip(point.family.parts, widths, strict=True)
            ]
            shares = np.sqrt([part.share for part in point.family.parts])
            return {"views": views, "view_weights": shares, **out}
        if self.views is None:
            return {"kernel": self._kernel_named(point.family.name), "gamma": widths[0], **out}
        views = [copy.deepcopy(view) for view in self.views]
        for view, width in zip(views, widths, strict=True):
            view.set_params(gamma=width)
        return {"views": views, **out}

    def _kernel_named(self, name: str) -> Any:
        return next(kernel for kernel in self.kernels if str(kernel) == name)

    def _relevance(self) -> Vector | list[Vector]:
        """How much each feature counts, summing to one: γ_j times its spread."""
        model = getattr(self.best_estimator_, "estimator_", self.best_estimator_)
        if model.X_fit_ is None:
            return np.array([])
        shares = []
        rows = model.X_fit_
        if isinstance(rows, Rows):
            rows = rows.take(self._looked_at)
        for view in model.result_.settings.views:
            x = view.select(rows)
            power = 1.0 if view.kernel.name == "laplacian" else 2.0
            part = np.broadcast_to(view.kernel.gamma, x.shape[1]) * x.std(axis=0) ** power
            shares.append(part / part.sum() if part.sum() > 0.0 else part)
        if self.views is not None or len(shares) == 1:
            return shares if self.views is not None else shares[0]
        # Of a sum of kernels: each counts by how much its part of the prediction moves.
        exact = model.result_.settings.approximation is None
        moves = np.std(model._parts(rows if exact else new_rows(rows, model)), axis=0)
        return np.average(shares, axis=0, weights=moves if moves.sum() > 0.0 else None)


class HLRegressorCV(RegressorMixin, _SearchCV):
    """`HLRegressor` with kernel, widths, alpha and removal chosen from the labels.

    A grid is looked at first, each point judged by the adaptive threshold; from the best point
    of each kernel, and then from the mean of all kernels, the widths (with `relevance` one a
    feature) and alpha are moved along the gradient of the leave-one-out error of the labels
    that were kept; and the last decision, which kernel or their mean and whether to drop
    labels, to bind them or neither, is made on five folds whose labels had no say in what was
    dropped. A rough kernel and a smooth one together see structure at two scales. See
    `activehuber.selection.search`.

    Parameters
    ----------
    kernels : list of str, default=("laplacian", "rbf", "matern")
        Tried alone ("matern" only if "rbf" is not among them, which is much the same) and all
        of them added up, each with a width of its own.
    gammas : list of float, default=None
        Widths to try; None is a range around gamma="scale", from which the search moves on.
        With views they are factors on the width of each view. Kernels other than laplacian,
        rbf and matern keep gamma="scale".
    alphas : list of float, default=None
        None is a range, from which the search moves on.
    manifolds : list of float, default=(0,)
        Weights of the graph to try, at the best points of the search without a graph.
    cv : None, int, splitter or iterable of (train, test), default=None
        None is the search above, in closed form. Otherwise the grid alone is tried, each point
        fitted on every training part; unlabelled rows are in all of them.
    scoring : "robust", str or callable, default="robust"
        "robust" is minus the mean of log(1 + (e/s)²), s the smallest robust standard
        deviation among the candidates and |e| held within 60 s, so that wrong labels cannot
        steer the choice. A scorer
        gets leave-one-out predictions (cv=None) or those of the test parts; the grid alone is
        tried.
    relevance : bool, default=False
        Learn one width a feature (with `views` one a view); of several kernels for their sum.
    standardize : bool, default=False
        Standardise the features first.
    removals : list of float or None, default=(3.5, None, inf)
        What to decide between: a number drops labels as `removal` does, None binds labels at
        a small threshold and drops none, inf is least squares.
    views, view_weights, agreement, graph, n_neighbors, fit_intercept, tol, max_iter
        As in `HLRegressor`; with views `kernels` is not used.
    random_state : int, default=0
        For the folds, for the rows looked at where there are many, and for the approximation.
    verbose : int, default=0
    approximation, n_components, block_size
        As in `HLRegressor`. Parameters are then chosen by exact fits to 2,000 labels drawn at
        random, and alpha is scaled so that the ridge 2Sλ stays; `manifolds` must be (0,).

    Attributes
    ----------
    best_params_ : dict
        Of `best_estimator_`.
    best_score_ : float
        Score of the last decision (higher is better).
    best_estimator_ : HLRegressor
        Fitted to all rows. Its fitted attributes are attributes of the search too.
    cv_results_ : dict of arrays
        Every point that was tried: `params`, `stage` ("look", "move", "relevance", "decide"),
        `mean_test_score`, `rank_test_score`. Scores compare within a stage.
    relevance_ : ndarray of shape (n_features,), or a list of them with views
        γ_j times the spread of feature j (its variance but for "laplacian"), summing to one;
        of several kernels each counts by the standard deviation of its part of the prediction.
    held_out_residuals_ : ndarray of shape (n_samples,)
        y − prediction on the folds of the last decision; NaN for labels that took no part, and
        for those that are not believed and lie far out.
    scaler_ : StandardScaler or None
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import HLRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(120, 2))         # the second feature is of no use
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=120)
    >>> y[:10] += 4                           # wrong labels
    >>> model = HLRegressorCV(relevance=True).fit(X, y)
    >>> bool(model.removed_[:10].all()), bool(model.removed_.sum() < 15)
    (True, True)
    >>> bool(model.relevance_[1] < 0.1)
    True
    """

    def __init__(
        self,
        *,
        kernels=("laplacian", "rbf", "matern"),
        gammas=None,
        alphas=None,
        manifolds=(0,),
        cv=None,
        scoring="robust",
        relevance=False,
        standardize=False,
        removals=(3.5, None, np.inf),
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
        self.kernels = kernels
        self.gammas = gammas
        self.alphas = alphas
        self.manifolds = manifolds
        self.cv = cv
        self.scoring = scoring
        self.relevance = relevance
        self.standardize = standardize
        self.removals = removals
        self.views = views
        self.view_weights = view_weights
        self.agreement = agreement
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose
        self.approximation = approximation
        self.n_components = n_components
        self.block_size = block_size

    def fit(self, X, y, sample_weight=None, trusted=None):
        """Choose parameters and fit with them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels, NaN where there is none.
        sample_weight : array-like of shape (n_samples,), default=None
        trusted : array-like of shape (n_samples,), bool, default=None
            Labels that must not be removed.

        Returns
        -------
        self : HLRegressorCV

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressorCV
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> search = HLRegressorCV(kernels=["rbf"], gammas=[1.0], alphas=[1e-4, 1e-2]).fit(X, y)
        >>> search.best_params_["kernel"]
        'rbf'
        """
        # Everything lands on a copy first: an error or Ctrl-C leaves self as it was.
        draft = copy.copy(self)
        _check_removals(self.removals)
        X, y = checked_rows(X, y, draft)
        if isinstance(X, Rows):
            draft._number_views(X)
        y = _one_target(y)
        draft.held_out_residuals_ = np.full(len(y), np.nan)
        seen = draft._search(X, y, y, sample_weight, trusted)
        draft.best_estimator_ = draft._estimator(draft.best_params_)
        draft.best_estimator_.fit(seen, y, sample_weight, trusted)
        draft.relevance_ = draft._relevance()
        draft.views = self.views
        self.__dict__ = draft.__dict__
        return self

    # The mixin's, which refuses NaN in y, would come first.
    score = _SearchCV.score

    def predict_interval(self, X, coverage=0.9, *, scale="constant"):
        """Intervals that hold a new label with the given probability.

        As `HLRegressor.predict_interval`, but from `held_out_residuals_` where there are any:
        the parameters were chosen to make leave-one-out residuals small, so those would
        promise too much. Of removed labels those enter whose error is within five robust
        standard deviations of the others': some of them are right.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        coverage : float, default=0.9
        scale : {"constant", "local"}, default="constant"

        Returns
        -------
        ndarray of shape (n_rows, 2)

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressorCV
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> HLRegressorCV(kernels=["rbf"]).fit(X, y).predict_interval([[1.5]]).shape
        (1, 2)
        """
        seen, model = self._scaled(X), self.best_estimator_
        residuals = self.held_out_residuals_
        if np.all(np.isnan(residuals)):
            return model.predict_interval(seen, coverage, scale=scale)
        return model._interval(seen, coverage, scale, residuals[:, None])

    def threshold_path(self, *, min_threshold=None, max_events=None):
        """The path of the best estimator; see `HLRegressor.threshold_path`.

        Parameters
        ----------
        min_threshold : float, default=None
        max_events : int, default=None

        Returns
        -------
        ThresholdPath

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLRegressorCV
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> path = HLRegressorCV(kernels=["rbf"]).fit(X, y).threshold_path(max_events=5)
        >>> bool(np.all(np.diff(path.thresholds) < 0))
        True
        """
        check_is_fitted(self)
        return self.best_estimator_.threshold_path(
            min_threshold=min_threshold, max_events=max_events
        )

    def _estimator(self, params: dict[str, Any]) -> HLRegressor:
        model = HLRegressor(**{name: getattr(self, name) for name in HANDED_ON} | params)
        model._tries_widths = False  # labels were judged at this width when it was chosen
        return model

    def _in_closed_form(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        total = data.total_weight
        plan = self._plan(total, tuple(self.removals))
        choice = choose(settings, data, self.manifolds, plan)
        self._record(choice, total)
        self.best_score_ = choice.score
        self.held_out_residuals_[self._looked_at] = choice.held_out
        return self._parameters_at(choice.point, total) | _mode(choice.mode)

    def _by_scorer(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        """The grid alone, leave-one-out predictions shown to a scorer."""
        total = data.total_weight
        plan = self._plan(total, tuple(self.removals))
        scorer, given = get_scorer(self.scoring), data.y[data.labelled[:, 0], 0]
        lines, scores = [], []
        for point, mode, errors in grid_errors(settings, data, self.manifolds, plan):
            predicted = (given - errors).reshape(-1, 1)
            scores.append(float(scorer(_AsGiven(), predicted, given)))
            lines.append(self._parameters_at(point, total) | _mode(mode))
        self._tabulate(lines, np.array(scores), ["look"] * len(lines))
        self.best_score_ = float(np.max(scores))
        return lines[int(np.argmax(scores))]

    def _grid(self, settings: list[Settings], data: Data) -> list[dict[str, Any]]:
        grid = []
        for params, removal in product(super()._grid(settings, data), self.removals):
            plain = {"threshold": "adaptive", "removal": removal}
            grid.append({**params, **({"threshold": np.inf} if removal == np.inf else plain)})
        return grid

    def _judge_part(self, model: Any, X: Any, y: Any, weights: Vector) -> Any:
        if self.scoring != "robust":
            return float(get_scorer(self.scoring)(model, X, y))
        return np.asarray(y, dtype=np.float64) - model.predict(X), weights

    def _scores_of(self, runs: list[list[Any]]) -> Vector:
        if self.scoring != "robust":
            return np.array([np.mean(run) for run in runs])
        errors = [np.concatenate([part for part, _ in run]) for run in runs]
        weights = np.concatenate([part for _, part in runs[0]])
        scale = common_scale(errors, weights)
        return -np.array([robust_loss(e, weights, scale) for e in errors])


class HLClassifierCV(ClassifierMixin, _SearchCV):
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
        self.kernels = kernels
        self.gammas = gammas
        self.alphas = alphas
        self.manifolds = manifolds
        self.cv = cv
        self.scoring = scoring
        self.relevance = relevance
        self.standardize = standardize
        self.removal = removal
        self.noise_rates = noise_rates
        self.views = views
        self.view_weights = view_weights
        self.agreement = agreement
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose
        self.approximation = approximation
        self.n_components = n_components
        self.block_size = block_size

    def fit(self, X, y, sample_weight=None, trusted=None):
        """Choose parameters and fit with them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes of any values; NaN, None or pandas.NA where there is no label.
        sample_weight : array-like of shape (n_samples,), default=None
        trusted : array-like of shape (n_samples,), bool, default=None
            Labels that must not be removed.

        Returns
        -------
        self : HLClassifierCV

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifierCV
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> HLClassifierCV().fit(X, y).classes_.tolist()
        ['left', 'right']
        """
        # Everything lands on a copy first: an error or Ctrl-C leaves self as it was.
        draft = copy.copy(self)
        X, y = checked_rows(X, y, draft)
        if isinstance(X, Rows):
            draft._number_views(X)
        draft.classes_, codes = code_labels(y, sample_weight)
        check_consistent_length(X, codes)
        seen = draft._search(X, codes, y, sample_weight, trusted)
        draft.best_estimator_ = draft._estimator(draft.best_params_)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            draft.best_estimator_.fit(seen, y, sample_weight, trusted)
        asked = self.cv is None and self.approximation is None
        if asked and not draft._dropping_helps(seen, y, sample_weight, trusted):
            # What was said of a fit that is not handed out would mislead.
            draft.best_params_ = draft.best_params_ | {"threshold": np.inf}
            draft.best_estimator_ = draft._estimator(draft.best_params_)
            draft.best_estimator_.fit(seen, y, sample_weight, trusted)
        else:
            for each in said:
                warnings.warn(each.message, each.category, stacklevel=2)
        draft.relevance_ = draft._relevance()
        draft.views = self.views
        self.__dict__ = draft.__dict__
        return self

    # The mixin's, which refuses missing labels, would come first.
    score = _SearchCV.score

    def predict_proba(self, X):
        """Probabilities of the best estimator; see `HLClassifier.predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifierCV
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> HLClassifierCV().fit(X, y).predict_proba([[-2.0], [2.0]]).shape
        (2, 2)
        """
        seen = self._scaled(X)
        return self.best_estimator_.predict_proba(seen)

    def decision_function(self, X):
        """Decision values of the best estimator.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifierCV
        >>> X = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)].reshape(-1, 1)
        >>> y = np.repeat(["left", "right"], 20)
        >>> decision = HLClassifierCV().fit(X, y).decision_function([[-2.0], [2.0]])
        >>> bool(decision[0] < 0 < decision[1])
        True
        """
        seen = self._scaled(X)
        return self.best_estimator_.decision_function(seen)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.noise_rates is None
        return tags

    def _estimator(self, params: dict[str, Any]) -> HLClassifier:
        handed = {name: getattr(self, name) for name in (*HANDED_ON, "removal", "noise_rates")}
        return HLClassifier(**handed | params)

    def _dropping_helps(self, X: Any, y: Any, sample_weight: Any, trusted: Any) -> bool:
        """Whether labels held out are predicted no worse if labels are dropped from the rest.

        The classifier asks leave-one-out values, but of a fit whose dropped labels were chosen
        with all labels in view. Where more are dropped than can be right, predictions must be
        better by a standard error. True if nothing was dropped or folds cannot be made.
        """
        classes, codes = code_labels(y, sample_weight)
        weights = check.check_weights(sample_weight, codes.reshape(len(codes), -1))
        counts = [int(np.sum(codes == code)) for code in (-1.0, 1.0)]
        removed = self.best_estimator_.removed_
        few = len(classes) > 2 or min(counts) < 2 or self._is_precomputed()
        if few or not np.any(removed):
            return True
        folds = StratifiedKFold(
            min(FOLDS, *counts), shuffle=True, random_state=self.random_state
        )
        splits = _splits(folds, X, y, classes=True)
        rates = self.best_estimator_.noise_rates_ or (0.0, 0.0)
        given = ~np.isnan(codes)
        losses = []
        for params in (self.best_params_ | {"threshold": np.inf}, self.best_params_):
            decision = np.empty(len(codes))
            with warnings.catch_warnings():
                # These fits are not handed out; what is wrong with the one that is, it says.
                warnings.simplefilter("ignore", UserWarning)
                fits = _fits(self._estimator(params), X, y, weights, trusted, splits)
                for (_, test), (model, part, *_) in zip(splits, fits, strict=True):
                    decision[test] = model.decision_function(part)
            losses.append(clean_losses(codes[given], decision[given], rates))
        weights, removed = weights[given], removed[given]
        gain, error = _mean_and_error(losses[0] - losses[1], weights)
        many = np.sum(weights[removed]) > MANY_REMOVED * np.sum(weights)
        return gain >= (error if many else 0.0)

    def _in_closed_form(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        total = data.total_weight
        plan = self._plan(total)
        choice = choose_for_classes(settings, data, self.manifolds, plan)
        self._record(choice, total)
        self.best_score_ = choice.score
        return self._parameters_at(choice.point, total)

    def _by_scorer(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        raise ValueError("HLClassifierCV takes a scorer only together with cv, such as cv=5")

    def _judge_part(self, model: Any, X: Any, y: Any, weights: Vector) -> Any:
        if self.scoring != "robust":
            return float(get_scorer(self.scoring)(model, X, y))
        return float(model.score(X, y, weights))

    def _scores_of(self, runs: list[list[Any]]) -> Vector:
        return np.array([np.mean(run) for run in runs])


class _AsGiven(RegressorMixin, BaseEstimator):
    """Lets a scorer see predictions that are there already."""

    def fit(self, X: Any = None, y: Any = None) -> _AsGiven:
        """Nothing to fit."""
        return self

    def predict(self, X: Matrix) -> Vector:
        """The one column of X."""
        return X[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _mean_and_error(values: Vector, weights: Vector) -> tuple[float, float]:
    """Weighted mean and its standard error."""
    shares = weights / weights.sum()
    mean = float(shares @ values)
    return mean, float(np.sqrt(shares**2 @ (values - mean) ** 2))


def _mode(mode: Mode) -> dict[str, Any]:
    """Parameters of the regressor for a mode."""
    if mode.removal is None:
        return {"threshold": float(mode.threshold)}
    return {"threshold": "adaptive", "removal": mode.removal}


def _one_target(y: Any) -> Vector:
    """Labels of shape (n,)."""
    if y is None:
        raise ValueError("HLRegressorCV requires y to be passed, but the target y is None")
    checked = check_array(
        y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y"
    )
    if checked.ndim == 2 and checked.shape[1] > 1:
        raise ValueError(
            "HLRegressorCV takes one target; fit one for each column of y, or, if no label is "
            "missing, use sklearn.multioutput.MultiOutputRegressor"
        )
    return column_or_1d(y, warn=True)


def _check_removals(removals: Any) -> None:
    if (
        isinstance(removals, str)
        or not isinstance(removals, Iterable)
        or not len(list(removals))
    ):
        raise ValueError(f"removals must be a list of numbers or None, got {removals!r}")
    for removal in removals:
        if removal is not None:
            check.check_number("every one of removals", removal, above=0.0, finite=False)


def _splits(cv: Any, X: Any, y: Any, *, classes: bool) -> Splits:
    """Pairs of (train, test) rows; unlabelled rows are in every training part."""
    missing = np.asarray(is_missing(y).reshape(len(y), -1).all(axis=1))
    labelled = np.flatnonzero(~missing)
    target = class_numbers(y, labelled) if classes else np.asarray(y, dtype=float)[labelled]
    if hasattr(cv, "split") or isinstance(cv, int):
        splitter = check_cv(cv, target, classifier=classes)
        parts = splitter.split(_safe_indexing(X, labelled), target)
        pairs = [(labelled[train], labelled[test]) for train, test in parts]
    else:
        pairs = [(t[~missing[t]], s[~missing[s]]) for t, s in _given_splits(cv, len(y))]
    unlabelled = np.flatnonzero(missing)
    return [(np.sort(np.concatenate([train, unlabelled])), test) for train, test in pairs]


def _given_splits(cv: Any, n_rows: int) -> Splits:
    """Pairs of row numbers or masks that a user gave, as row numbers."""
    try:
        pairs = [(np.asarray(train), np.asarray(test)) for train, test in cv]
        every = np.arange(n_rows)
        return [(every[train], every[test]) for train, test in pairs]
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            "cv must be None, a number of folds, a splitter or pairs of (train, test) rows, "
            f"got {cv!r} ({error})"
        ) from None


def _fits(
    model: Any, X: Any, y: Any, sample_weight: Any, trusted: Any, splits: Splits
) -> Iterable[tuple[Any, Any, Any, Vector]]:
    """For each split the model fitted on its training part, and X, y, weights of the rest."""
    weights = np.ones(len(y)) if sample_weight is None else sample_weight
    for train, test in splits:
        fitted = copy.deepcopy(model).fit(
            _safe_indexing(X, train),
            _safe_indexing(y, train),
            None if sample_weight is None else weights[train],
            None if trusted is None else np.asarray(trusted)[train],
        )
        yield fitted, _safe_indexing(X, test), _safe_indexing(y, test), weights[test]
