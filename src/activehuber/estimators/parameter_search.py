"""What both searches for parameters share: checks, the scaler, the grid, the record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
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
from activehuber.estimators.groups import as_given, group_numbers, one_each
from activehuber.estimators.inputs import checked_rows, is_streamed, new_rows, scored_rows
from activehuber.estimators.parameters import SELECTION_LABELS, ViewParameters, prepared
from activehuber.estimators.prediction import parts_of
from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.splitters import class_numbers, is_unlabelled
from activehuber.fitting import validation as check
from activehuber.fitting.settings import Data, Settings
from activehuber.kernels.feature_maps import drawn
from activehuber.selection.candidates import WIDTH_KERNELS, Point
from activehuber.selection.search import RIDGES, WIDTH_FACTORS, Plan, SearchResult, grid_points
from activehuber.selection.tuning import check_enough_labels, family_of
from activehuber.solver.leave_one_out import units
from activehuber.views import View, check_views, resolve_columns

Splits = list[tuple[np.ndarray, np.ndarray]]

# Up to so many labels cannot tell a rough function from wrong labels: simpler ones are tried
# too.
FEW_LABELS = 100
# Of more features than this there is no sum of a kernel each: few labels cannot tell them.
MOST_SUMMANDS = 20

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

    def take(self, rows: np.ndarray) -> TrainingRows:
        """Some of them, in memory."""
        return TrainingRows(
            self.X.take(rows) if isinstance(self.X, Rows) else _safe_indexing(self.X, rows),
            _safe_indexing(self.y, rows),
            self.target[rows],
            None if self.sample_weight is None else self.sample_weight[rows],
            None if self.trusted is None else np.asarray(self.trusted)[rows],
            None if self.groups is None else self.groups[rows],
        )

    def fit(self, model: Any) -> Any:
        """Fit a model to them."""
        return model.fit(self.X, self.y, self.sample_weight, self.trusted, self.groups)


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
        if isinstance(call.get("y"), str):
            check_is_fitted(search)
            call["X"], call["y"] = scored_rows(call["X"], call["y"], search)
        call["X"] = scaled(search, call["X"])  # says so if the search is not fitted
        return method(**call | {"self": search.best_estimator_})

    return asked


class ParameterSearch(ViewParameters):
    """What both searches share: checks, the scaler, the grid, the record."""

    kernels: Any
    best_params_: dict[str, Any]
    # To look at first.
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
        return WIDTH_KERNELS if _is_auto(self.kernels) else self.kernels

    def _is_precomputed(self) -> bool:
        kernels = self.kernels
        several = isinstance(kernels, (list, tuple, np.ndarray))
        return self.views is None and several and tuple(kernels) == ("precomputed",)

    def _fit(self, X: Any, y: Any, sample_weight: Any, trusted: Any, groups: Any) -> None:
        X, y = checked_rows(X, y, self)
        own_views = self.views
        if isinstance(X, Rows):
            self.views = _numbered(own_views, X)
        y, target = self._read_labels(X, y, sample_weight)
        numbers = as_given(group_numbers(groups, len(target)))
        given = self._checked(TrainingRows(X, y, target, sample_weight, trusted, numbers))
        self._looked_at = np.arange(len(given))
        choose = self._choose if self.approximation is None else self._choose_on_some
        self.best_params_ = choose(given)
        self._fit_best(given)
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
        if self.approximation is not None:
            self._check_approximation()

    def _check_approximation(self) -> None:
        if any(manifold > 0.0 for manifold in self.manifolds):
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

    def _choose_on_some(self, given: TrainingRows) -> dict[str, Any]:
        """Parameters from a few labels; the ridge 2Sλ is noise over signal and stays."""
        weights = given.weights
        missing = np.isnan(given.target.reshape(len(given), -1)[:, 0])
        labelled = np.flatnonzero(~missing & (weights > 0.0))
        rng = np.random.default_rng(self.random_state)
        self._looked_at = labelled[drawn(len(labelled), SELECTION_LABELS, rng)]
        best = self._choose(given.take(self._looked_at))
        share = float(weights[self._looked_at].sum() / weights[labelled].sum())
        names = ("approximation", "n_components", "block_size", "random_state")
        handed = {name: getattr(self, name) for name in names}
        return {**best, "alpha": share * best["alpha"], **handed}

    def _choose(self, given: TrainingRows) -> dict[str, Any]:
        """`best_params_` by exact fits."""
        with threads_for(len(given)):
            settings: list[Settings] = []
            seen = given.X, given.target, given.sample_weight, given.trusted, given.groups
            for params in self._candidates():
                resolved, data = prepared(HLRegressor(**params), *seen)
                settings.append(resolved)
            if self._are_few(data):
                few = self._candidates_of_few(settings, data)
                settings = [prepared(HLRegressor(**params), *seen)[0] for params in few]
            plain = type(self).__name__.removesuffix("CV")
            check_enough_labels(data, f"give the parameters to {plain}")
            if self.cv is None and self.scoring == "robust":
                return self._in_closed_form(settings, data)
            if self.cv is None:
                return self._by_scorer(settings, data)
            return self._by_splits(self._grid(settings, data), given)

    def _candidates(self) -> list[dict[str, Any]]:
        """Parameters of one kernel fit a kernel."""
        handed = {name: getattr(self, name) for name in HANDED_ON}
        if self.views is not None:
            return [handed]
        factors = () if self.gammas is None else WIDTH_KERNELS
        gammas = [1.0 if kernel in factors else "scale" for kernel in self._kernels]
        pairs = zip(self._kernels, gammas, strict=True)
        return [{**handed, "kernel": kernel, "gamma": gamma} for kernel, gamma in pairs]

    def _are_few(self, data: Data) -> bool:
        """Whether kernels are those for few labels, as far as they may be chosen freely."""
        if self.cv is not None or self.scoring != "robust" or not _is_auto(self.kernels):
            return False
        asked = self.relevance or self.approximation is not None or self.views is not None
        fixed = self.gammas is not None or self.alphas is not None
        graphs = any(manifold > 0.0 for manifold in self.manifolds)
        few = units(data.weights, data.labelled[:, 0]) <= FEW_LABELS
        return few and not (asked or fixed or graphs)

    def _candidates_of_few(
        self, settings: list[Settings], data: Data
    ) -> Iterator[dict[str, Any]]:
        """Linear, linear and smooth, a smooth function of each feature, smooth, and rough.

        Few labels cannot tell a rough function from a smooth one and some wrong labels, nor a
        linear one from a smooth one that happens to be nearly linear.
        """
        handed = {name: getattr(self, name) for name in HANDED_ON}
        # ⟨x, z⟩ in units in which features have a mean square of one, as for "rbf".
        size, every = float(np.sqrt(settings[0].views[0].kernel.gamma)), slice(None)
        linear, smooth = View(every, "linear", name="linear"), View(every, "rbf", name="rbf")
        half, d = np.sqrt(0.5), data.X.shape[1]
        yield {**handed, "views": [linear], "view_weights": [size]}
        yield {**handed, "views": [linear, smooth], "view_weights": [half * size, half]}
        if 1 < d <= MOST_SUMMANDS:
            each = [View([j], "rbf") for j in range(d)]
            yield {**handed, "views": each, "view_weights": [d**-0.5] * d}
        yield {**handed, "kernel": "rbf"}
        yield {**handed, "kernel": "laplacian"}

    def _plan(self, total_weight: float) -> Plan:
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
            removal=self.removal,
            random_state=int(self.random_state),
            report=_print if self.verbose else Plan.report,
        )

    def _by_splits(self, grid: list[dict[str, Any]], given: TrainingRows) -> dict[str, Any]:
        """The grid alone, every point fitted on every training part."""
        splits = splits_of(self.cv, given, classes=isinstance(self, ClassifierMixin))
        runs = []
        for params in grid:
            fits = fits_on(self._estimator(params), given, splits)
            runs.append([self._judge_part(*fit) for fit in fits])
        return self._best_of(grid, self._scores_of(runs), "split")

    def _judge_part(self, model: Any, part: TrainingRows) -> Any:
        """What a test part says of a model."""
        if self.scoring != "robust":
            return float(get_scorer(self.scoring)(model, part.X, part.y))
        return float(model.score(part.X, part.y, part.weights))

    def _scores_of(self, runs: list[list[Any]]) -> Vector:
        """The score of each point, from what its test parts say."""
        return np.array([np.mean(run) for run in runs])

    def _grid(self, settings: list[Settings], data: Data) -> list[dict[str, Any]]:
        """Parameters of the grid as the estimator takes them."""
        total = data.total_weight
        plan, out = self._plan(total), []
        for each, manifold in product(settings, self.manifolds):
            family = family_of(each, data, move_widths=True)
            family = replace(family, manifold=float(manifold))
            out += [self._parameters_at(point, total) for point in grid_points(family, plan)]
        return out

    def _searched(
        self, choose: Callable[..., SearchResult], settings: list[Settings], data: Data
    ) -> SearchResult:
        """What a search in closed form finds; its trials are recorded."""
        total = data.total_weight
        plan = replace(self._plan(total), by_evidence=self._are_few(data))
        choice = choose(settings, data, self.manifolds, plan)
        lines = [self._parameters_at(trial.point, total) for trial in choice.trials]
        scores = np.array([trial.score for trial in choice.trials])
        self._tabulate(lines, scores, [trial.stage for trial in choice.trials])
        self.best_score_ = choice.score
        return choice

    def _best_of(self, lines: list[dict], scores: Vector, stage: str) -> dict[str, Any]:
        """Parameters with the best score; all are recorded."""
        self._tabulate(lines, scores, [stage] * len(lines))
        self.best_score_ = float(np.max(scores))
        return lines[int(np.argmax(scores))]

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
        alpha = point.ridge / (2.0 * total_weight)
        out = {"alpha": alpha, "manifold": point.family.manifold}
        widths = [part.widths(point.theta) for part in point.family.parts]
        if self.views is None and len(widths) > 1:
            kernels = [part.kernel.name for part in point.family.parts]
            # Callables have no name, and a name must not be given twice.
            named = all(isinstance(name, str) and kernels.count(name) == 1 for name in kernels)
            every = np.arange(point.family.parts[0].X.shape[1])
            views = [
                View(
                    (every if part.columns is None else part.columns).tolist(),
                    kernel=part.kernel.name,
                    gamma=width,
                    name=part.kernel.name if named else None,
                )
                for part, width in zip(point.family.parts, widths, strict=True)
            ]
            shares = np.sqrt([part.share for part in point.family.parts])
            return {"views": views, "view_weights": shares, **out}
        if self.views is None:
            part = point.family.parts[0]
            out["alpha"] = alpha / part.share
            return {"kernel": part.kernel.name, "gamma": widths[0], **out}
        views = [copy.deepcopy(view) for view in self.views]
        for view, width in zip(views, widths, strict=True):
            view.set_params(gamma=width)
        return {"views": views, **out}

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
        moves = np.std(parts_of(model, rows if exact else new_rows(rows, model)), axis=0)
        return np.average(shares, axis=0, weights=moves if moves.sum() > 0.0 else None)


def _is_auto(kernels: Any) -> bool:
    return isinstance(kernels, str) and kernels == "auto"


def _print(line: str) -> None:
    print(f"[activehuber] {line}")


def _numbered(views: Any, rows: Rows) -> Any:
    """Views of named columns as views of numbers: the few rows looked at have no names."""
    if views is None:
        return None
    names = None if rows.names is None else np.array(rows.names)
    numbered = []
    for name, view in zip(check_views(views), views, strict=True):
        numbered.append(copy.deepcopy(view))
        numbered[-1].columns = resolve_columns(view, name, rows, names, rows.n_features)
    return numbered


def splits_of(cv: Any, given: TrainingRows, *, classes: bool) -> Splits:
    """Pairs of (train, test) rows; unlabelled rows are in every training part."""
    X, y = given.X, given.y
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


def fits_on(
    model: Any, given: TrainingRows, splits: Splits
) -> Iterator[tuple[Any, TrainingRows]]:
    """For each split the model fitted on its training part, and the rest."""
    for train, test in splits:
        yield given.take(train).fit(clone(model)), given.take(test)
