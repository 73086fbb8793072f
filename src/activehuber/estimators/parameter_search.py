"""What both searches for parameters share: checks, the scaler, the grid, the record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from activehuber._typing import Vector
from activehuber.data.rows import Rows, threads_for
from activehuber.estimators import parameters
from activehuber.estimators.groups import as_given, group_numbers, one_each
from activehuber.estimators.inputs import checked_rows, is_streamed, new_rows, scored_rows
from activehuber.estimators.prediction import parts_of
from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.splitters import class_numbers, is_unlabelled
from activehuber.fitting import validation as check
from activehuber.fitting.settings import Data, Settings
from activehuber.kernels.feature_maps import drawn
from activehuber.selection.candidates import WIDTH_KERNELS, Point
from activehuber.selection.search import (
    RIDGES,
    WIDTH_FACTORS,
    Plan,
    check_enough_labels,
    family_of,
    grid_points,
)
from activehuber.solver.leave_one_out import units
from activehuber.views import View, check_views, resolve_columns

Parameters = dict[str, Any]
Splits = list[tuple[np.ndarray, np.ndarray]]

# Up to so many labels cannot tell a rough function from wrong labels: simpler ones are tried
# too.
FEW_LABELS = 100
# Of more features than this there is no sum of a kernel each: few labels cannot tell them.
MOST_SUMMANDS = 20

# Parameters that a search hands on to its kernel fits as they are, and to its estimator.
HANDED_ON = ["views", "view_weights", "agreement", "graph", "n_neighbors", "fit_intercept"]
HANDED_ON += ["tol", "max_iter"]
TO_ESTIMATOR = [*HANDED_ON, "removal", "noise_rates"]


@dataclass(frozen=True)
class TrainingRows:
    """What the fit of a search was given.

    Attributes
    ----------
    X : array, data frame or Rows
    y : array-like of shape (n,)
    target : ndarray of shape (n,) or (n, n_classes)
        What the kernel fit sees: y, or its codes.
    sample_weight : ndarray of shape (n,) or None
    trusted : array-like of shape (n,), bool, or None
    groups : ndarray of shape (n,), or None
        Numbers; NaN for a row that is in none.
    """

    X: Any
    y: Any
    target: np.ndarray
    sample_weight: Vector | None
    trusted: Any
    groups: Vector | None = None

    def __len__(self) -> int:
        return len(self.target)

    @property
    def weights(self) -> Vector:
        """Sample weights; ones if none were given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    @property
    def of_labels(self) -> tuple[Any, Any, Any]:
        """What `fit` takes besides X and y."""
        return self.sample_weight, self.trusted, self.groups

    def take(self, rows: np.ndarray) -> TrainingRows:
        """Some of them, in memory."""
        X = self.X.take(rows) if isinstance(self.X, Rows) else _safe_indexing(self.X, rows)
        given = (None if each is None else np.asarray(each)[rows] for each in self.of_labels)
        return TrainingRows(X, _safe_indexing(self.y, rows), self.target[rows], *given)

    def fit(self, model: Any) -> Any:
        """Fit a model to them."""
        return model.fit(self.X, self.y, *self.of_labels)


def scaled(search: Any, X: Any) -> Any:
    """New rows as the best estimator of a search is to see them."""
    check_is_fitted(search)
    if search.approximation is not None and is_streamed(X):
        return new_rows(X, search)
    checked = check.checked_features(search, X, order="C", reset=False)
    return X if search.scaler_ is None else search.scaler_.transform(checked)


def of_best(method: Callable) -> Callable:
    """A method of the best estimator as one of the search, for rows as the search gets them."""

    @wraps(method)
    def asked(search: Any, *given: Any, **named: Any) -> Any:
        call = signature(method).bind(search, *given, **named).arguments
        check_is_fitted(search)
        if isinstance(call.get("y"), str):
            call["X"], call["y"] = scored_rows(call["X"], call["y"], search)
        if "X" in call:
            call["X"] = scaled(search, call["X"])
        return method(**call | {"self": search.best_estimator_})

    return asked


class ParameterSearch(parameters.ViewParameters):
    """What both searches share: checks, the scaler, the grid, the record."""

    kernels: Any
    best_params_: Parameters
    # What parameters are searched for, and the ridges to look at first.
    _model: type
    _ridges: tuple[float, ...] = RIDGES

    def __getattr__(self, name: str) -> Any:
        # Fitted attributes that the search itself does not have are those of the model.
        fitted = self.__dict__.get("best_estimator_")
        if name.endswith("_") and not name.startswith("_") and fitted is not None:
            return getattr(fitted, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _kernels(self) -> Any:
        """Kernels to try, by name."""
        return WIDTH_KERNELS if parameters.is_word("auto", self.kernels) else self.kernels

    def _is_precomputed(self) -> bool:
        several = isinstance(self.kernels, (list, tuple, np.ndarray))
        return self.views is None and several and tuple(self.kernels) == ("precomputed",)

    def _fit(self, X: Any, y: Any, sample_weight: Any, trusted: Any, groups: Any) -> None:
        X, y = checked_rows(X, y, self)
        own_views = self.views
        if isinstance(X, Rows) and own_views is not None:
            # Views of numbered columns: the few rows looked at have no names.
            names = None if X.names is None else np.array(X.names)
            self.views = copy.deepcopy(own_views)
            for name, view in zip(check_views(own_views), self.views, strict=True):
                view.columns = resolve_columns(view, name, X, names, X.n_features)
        y, target = self._read_labels(X, y, sample_weight)
        numbers = as_given(group_numbers(groups, len(target)))
        given = self._checked(TrainingRows(X, y, target, sample_weight, trusted, numbers))
        self._looked_at = np.arange(len(given))
        choose = self._choose if self.approximation is None else self._choose_on_some
        self.best_params_ = choose(given)
        self.best_estimator_ = given.fit(self._estimator(self.best_params_))
        self.relevance_ = self._relevance()
        self.views = own_views

    def _check_parameters(self) -> None:
        check.check_several("kernels", self._kernels)
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
        others = [kernel for kernel in self._kernels if kernel not in WIDTH_KERNELS]
        if self.relevance and self.views is None and others:
            raise ValueError(
                f"relevance=True is for the kernels {', '.join(WIDTH_KERNELS)}, got "
                f"{others[0]!r}"
            )
        if self.standardize and self._is_precomputed():
            raise ValueError("standardize=True needs features, not a precomputed kernel")
        check.check_integer("random_state", self.random_state, at_least=0)
        if self.approximation is not None and any(number > 0.0 for number in self.manifolds):
            raise ValueError(
                "manifolds must be (0,) with an approximation, since parameters are chosen on "
                "a few rows; choose without, then give manifold to the estimator"
            )
        own = [str(kernel) for kernel in self._kernels if kernel not in ("linear", "cosine")]
        if self.approximation == "linear" and self.views is None and own:
            raise ValueError(
                'approximation="linear" has no kernel to choose, got kernels='
                f'{self.kernels!r}; use kernels=("linear",)'
            )

    def _checked(self, given: TrainingRows) -> TrainingRows:
        """The same as the estimator is to see it: weights as an array, X standardised."""
        self._check_parameters()
        target, weights = check.check_labels(given.target, len(given)), given.sample_weight
        if weights is not None:
            weights = check.check_weights(weights, target.reshape(len(given), -1))
        self.scaler_, X = None, given.X
        if not isinstance(X, Rows):
            seen = check.checked_features(self, X)
            if self.standardize:
                self.scaler_ = StandardScaler().fit(seen, sample_weight=weights)
                X = self.scaler_.transform(seen)
        elif self.standardize:
            raise ValueError("standardize=True needs X in memory; standardise it beforehand")
        return replace(given, X=X, target=target, sample_weight=weights)

    def _choose_on_some(self, given: TrainingRows) -> Parameters:
        """Parameters from a few labels; the ridge 2Sλ is noise over signal and stays."""
        weights = given.weights
        missing = np.isnan(given.target.reshape(len(given), -1)[:, 0])
        labelled = np.flatnonzero(~missing & (weights > 0.0))
        rng = np.random.default_rng(self.random_state)
        self._looked_at = labelled[drawn(len(labelled), parameters.SELECTION_LABELS, rng)]
        best = self._choose(given.take(self._looked_at))
        share = float(weights[self._looked_at].sum() / weights[labelled].sum())
        handed = self._own("approximation", "n_components", "block_size", "random_state")
        return {**best, "alpha": share * best["alpha"], **handed}

    def _choose(self, given: TrainingRows) -> Parameters:
        """`best_params_` by exact fits."""
        with threads_for(len(given)):
            settings, data = self._prepared(self._candidates(), given)
            if self._are_few(data):
                settings, data = self._prepared(self._candidates_of_few(settings, data), given)
            check_enough_labels(data, f"give the parameters to {self._model.__name__}")
            if self.cv is None and self.scoring == "robust":
                return self._in_closed_form(settings, data)
            if self.cv is None:
                return self._by_scorer(settings, data)
            return self._by_splits(self._grid(settings, data), given)

    def _prepared(
        self, candidates: Iterable[Parameters], given: TrainingRows
    ) -> tuple[list[Settings], Data]:
        """Settings of each kernel fit, and data of them all."""
        settings = []
        for params in candidates:
            model = HLRegressor(**self._own(*HANDED_ON) | params)
            resolved, data = parameters.prepared(model, given.X, given.target, *given.of_labels)
            settings.append(resolved)
        return settings, data

    def _own(self, *names: str) -> Parameters:
        """Parameters of the search that it has, by name."""
        return {name: value for name, value in vars(self).items() if name in names}

    def _estimator(self, params: Parameters) -> Any:
        return self._model(**self._own(*TO_ESTIMATOR) | params)

    def _candidates(self) -> list[Parameters]:
        """Parameters of one kernel fit a kernel."""
        if self.views is not None:
            return [{}]
        factors = () if self.gammas is None else WIDTH_KERNELS
        return [
            {"kernel": kernel, "gamma": 1.0 if kernel in factors else "scale"}
            for kernel in self._kernels
        ]

    def _are_few(self, data: Data) -> bool:
        """Whether kernels are those for few labels, as far as they may be chosen freely."""
        free = not self.relevance and all(manifold == 0.0 for manifold in self.manifolds)
        for name in ("cv", "approximation", "views", "gammas", "alphas"):
            free = free and getattr(self, name) is None
        free = free and self.scoring == "robust" and parameters.is_word("auto", self.kernels)
        return free and units(data.weights, data.labelled[:, 0]) <= FEW_LABELS

    def _candidates_of_few(self, settings: list[Settings], data: Data) -> Iterator[Parameters]:
        """Linear, linear and smooth, a smooth function of each feature, smooth, and rough.

        Few labels cannot tell a rough function from a smooth one and some wrong labels, nor a
        linear one from a smooth one that happens to be nearly linear.
        """
        # ⟨x, z⟩ in units in which features have a mean square of one, as for "rbf".
        size, every = float(np.sqrt(settings[0].views[0].kernel.gamma)), slice(None)
        linear, smooth = View(every, "linear", name="linear"), View(every, "rbf", name="rbf")
        half, d = np.sqrt(0.5), data.X.shape[1]
        yield {"views": [linear], "view_weights": [size]}
        yield {"views": [linear, smooth], "view_weights": [half * size, half]}
        if 1 < d <= MOST_SUMMANDS:
            yield {"views": [View([j], "rbf") for j in range(d)], "view_weights": [d**-0.5] * d}
        yield {"kernel": "rbf"}
        yield {"kernel": "laplacian"}

    def _plan(self, total_weight: float) -> Plan:
        factors = WIDTH_FACTORS if self.gammas is None else self.gammas
        ridges = self._ridges
        if self.alphas is not None:
            ridges = tuple(2.0 * total_weight * alpha for alpha in self.alphas)
        return Plan(
            log_factors=tuple(np.log(factors).tolist()),
            log_ridges=tuple(np.log(ridges).tolist()),
            move=self.gammas is None and self.alphas is None,
            move_ridge=self.alphas is None,
            relevance=bool(self.relevance),
            removal=self.removal,
            random_state=int(self.random_state),
            report=partial(print, "[activehuber]") if self.verbose else Plan.report,
        )

    def _by_splits(self, grid: list[Parameters], given: TrainingRows) -> Parameters:
        """The grid alone, every point fitted on every training part."""
        splits = splits_of(self.cv, given, classes=isinstance(self, ClassifierMixin))
        runs = []
        for model in map(self._estimator, grid):
            fits = ((given.take(train).fit(clone(model)), test) for train, test in splits)
            runs.append([self._judge_part(fit, given.take(test)) for fit, test in fits])
        return self._best_of(grid, self._scores_of(runs), "split")

    def _judge_part(self, model: Any, part: TrainingRows) -> Any:
        """What a test part says of a model."""
        if self.scoring != "robust":
            return float(get_scorer(self.scoring)(model, part.X, part.y))
        return float(model.score(part.X, part.y, part.weights))

    def _scores_of(self, runs: list[list[Any]]) -> Vector:
        """The score of each point, from what its test parts say."""
        return np.array([np.mean(run) for run in runs])

    def _grid(self, settings: list[Settings], data: Data) -> list[Parameters]:
        """Parameters of the grid as the estimator takes them."""
        total = data.total_weight
        plan, out = self._plan(total), []
        for each, manifold in product(settings, self.manifolds):
            family = family_of(each, data, move_widths=True)
            family = replace(family, manifold=float(manifold))
            out += [self._parameters_at(point, total) for point in grid_points(family, plan)]
        return out

    def _in_closed_form(self, settings: list[Settings], data: Data) -> Parameters:
        """What a search in closed form finds; its trials are recorded."""
        total = data.total_weight
        plan = replace(self._plan(total), by_evidence=self._are_few(data))
        best, trials = self._search(settings, data, self.manifolds, plan)
        lines = [self._parameters_at(trial.point, total) for trial in trials]
        scores = np.array([trial.score for trial in trials])
        self._tabulate(lines, scores, [trial.stage for trial in trials])
        self.best_score_ = best.score
        return self._parameters_at(best.point, total)

    def _best_of(self, lines: list[dict], scores: Vector, stage: str) -> Parameters:
        """Parameters with the best score; all are recorded."""
        self._tabulate(lines, scores, [stage] * len(lines))
        self.best_score_ = float(np.max(scores))
        return lines[int(np.argmax(scores))]

    def _tabulate(self, lines: list[dict], scores: Vector, stages: list[str]) -> None:
        self.cv_results_ = {"params": lines, "stage": np.array(stages)}
        for name in sorted(set().union(*lines)):
            column = (line.get(name) for line in lines)
            self.cv_results_[f"param_{name}"] = np.fromiter(column, dtype=object)
        self.cv_results_["mean_test_score"] = scores
        order = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        self.cv_results_["rank_test_score"] = order + 1

    def _parameters_at(self, point: Point, total_weight: float) -> Parameters:
        """A point of the search as parameters of the estimator."""
        parts, alpha = point.family.parts, point.ridge / (2.0 * total_weight)
        out = {"alpha": alpha, "manifold": point.family.manifold}
        widths = [part.widths(point.theta) for part in parts]
        if self.views is not None:
            views = [copy.deepcopy(view) for view in self.views]
            for view, width in zip(views, widths, strict=True):
                view.set_params(gamma=width)
            return {"views": views, **out}
        kernels = [part.kernel.name for part in parts]
        if len(parts) == 1:
            out["alpha"] = alpha / parts[0].share
            return {"kernel": kernels[0], "gamma": widths[0], **out}
        # Callables have no name, and a name must not be given twice.
        named = all(isinstance(name, str) and kernels.count(name) == 1 for name in kernels)
        views = []
        for part, kernel, width in zip(parts, kernels, widths, strict=True):
            columns = range(part.X.shape[1]) if part.columns is None else part.columns.tolist()
            views.append(View([*columns], kernel, gamma=width, name=kernel if named else None))
        shares = np.sqrt([part.share for part in parts])
        return {"views": views, "view_weights": shares, **out}

    def _relevance(self) -> Vector | list[Vector]:
        """How much each feature counts, summing to one: γ_j times its spread."""
        model = getattr(self.best_estimator_, "estimator_", self.best_estimator_)
        if model.X_fit_ is None:
            return np.array([])
        rows, shares = model.X_fit_, []
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
        moves = np.std(parts_of(model, rows if exact else new_rows(rows, model)), axis=0)
        return np.average(shares, axis=0, weights=moves if moves.sum() > 0.0 else None)


def splits_of(cv: Any, given: TrainingRows, *, classes: bool) -> Splits:
    """Pairs of (train, test) rows; unlabelled rows are in every training part."""
    X, y, every = given.X, given.y, np.arange(len(given))
    missing = is_unlabelled(y)
    labelled = np.flatnonzero(~missing)
    target = class_numbers(y, labelled) if classes else np.asarray(y, dtype=float)[labelled]
    # Text can be split too.
    if isinstance(cv, int) or (hasattr(cv, "split") and not isinstance(cv, (str, bytes))):
        splitter = check_cv(cv, target, classifier=classes)
        own = group_numbers(given.groups, len(y))
        own = None if own is None else one_each(own[labelled])
        if isinstance(cv, int) and own is not None:
            splitter = (StratifiedGroupKFold if classes else GroupKFold)(cv)
        parts = splitter.split(_safe_indexing(X, labelled), target, own)
        pairs = [(labelled[train], labelled[test]) for train, test in parts]
    else:
        try:
            pairs = [(np.asarray(train), np.asarray(test)) for train, test in cv]
            pairs = [(every[train], every[test]) for train, test in pairs]
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(
                "cv must be None, a number of folds, a splitter or pairs of (train, test) "
                f"rows, got {cv!r} ({error})"
            ) from None
        pairs = [(t[~missing[t]], s[~missing[s]]) for t, s in pairs]
    unlabelled = np.flatnonzero(missing)
    return [(np.sort(np.concatenate([train, unlabelled])), test) for train, test in pairs]
