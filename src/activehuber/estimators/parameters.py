"""Parameters of the estimators: views by name, checks, and settings of a fit made of them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from activehuber import graphs
from activehuber._typing import Vector
from activehuber.data.rows import ArrayRows, LostRows, Rows, automatic_block_size
from activehuber.estimators.groups import check_groups, group_numbers
from activehuber.estimators.inputs import first_rows, is_streamed, refuse_streams
from activehuber.fitting import validation as check
from activehuber.fitting.settings import Data, Settings, ViewSettings
from activehuber.kernels.feature_maps import APPROXIMATION_NAMES, FOURIER_KERNELS
from activehuber.kernels.kernel import Kernel, gamma_from_gram, resolve_gamma
from activehuber.problem.approximation import Approximation, ColumnMoments, column_moments
from activehuber.selection.candidates import WIDTH_KERNELS, settings_at
from activehuber.selection.search import Plan, check_enough_labels, choose
from activehuber.views import (
    KeepsParameters,
    View,
    check_view_weights,
    check_views,
    resolve_columns,
    view_names,
)

# With an approximation parameters are chosen on so many labels at most.
SELECTION_LABELS = 2_000
# Parameters that are settings as they are, but for the kinds of numbers that NumPy has.
REAL_SETTINGS = ("manifold", "agreement", "threshold_step", "tol")
WHOLE_SETTINGS = ("n_refinements", "max_iter", "verbose")


class ViewParameters(KeepsParameters):
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
        known = self.get_params()
        for key in nested:
            if key not in known:
                raise ValueError(
                    f"invalid parameter {key!r}: it must be views__<name>__<parameter> with a "
                    f"name among {', '.join(named)}"
                )
        for key, value in nested.items():
            _, name, parameter = key.split("__", 2)
            named[name].set_params(**{parameter: value})
        return self

    def fit(self, X, y, sample_weight=None, trusted=None, groups=None):
        """Fit the model; a search chooses its parameters first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, labelled or not; the (n_samples, n_samples) Gram matrix for a precomputed
            kernel. With an approximation also what is read piece by piece.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or str
            Labels, NaN where there is none; for a classifier numbers, strings or booleans,
            and NaN, None or pandas.NA where there is none. Or the name of a column of X, if
            that is read piece by piece. Several targets are for `HLRegressor` alone.
        sample_weight : array-like of shape (n_samples,), default=None
            A weight of k equals k repetitions of the row (with a graph: of its label).
        trusted : array-like of shape (n_samples,), bool, default=None
            Labels that must not be removed.
        groups : array-like of shape (n_samples,), default=None
            Numbers or words: what each row belongs to, such as a patient, a site or a film. A
            label is then judged by the labels of other groups only, since near copies vouch
            for each other: `loo_residuals_`, `label_quality_`, `judged_`, `removed_` and
            intervals, and in a search the folds, leave out a group as a whole. NaN, None and
            empty text are groups of their own. Not for X that is read piece by piece.

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import HLClassifier, HLRegressor, HLRegressorCV
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> y = np.sin(X.ravel()) + 0.1 * np.cos(40 * X.ravel())
        >>> y[50:] = np.nan                       # no labels
        >>> int(HLRegressor(gamma=1.0).fit(X, y).n_labelled_)
        50
        >>> search = HLRegressorCV(kernels=["rbf"], gammas=[1.0], alphas=[1e-4, 1e-2]).fit(X, y)
        >>> search.best_params_["kernel"]
        'rbf'
        >>> HLClassifier().fit(X, np.where(X.ravel() < 3, "left", "right")).classes_.tolist()
        ['left', 'right']
        """
        # Everything lands on a copy first: an error or Ctrl-C leaves self as it was.
        draft = copy.copy(self)
        if groups is not None and is_streamed(X) and not isinstance(X, Rows):
            raise ValueError(
                "groups need X in memory; leave them out, or fit fewer rows of an array"
            )
        draft._fit(X, y, sample_weight, trusted, groups)
        self.__dict__ = draft.__dict__
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        return is_precomputed(self)


def is_precomputed(model: Any) -> bool:
    """Whether X is to be the Gram matrix."""
    return model.views is None and is_word("precomputed", model.kernel)


def prepared(model: Any, X: Any, *labels: Any) -> tuple[Settings, Data]:
    """Settings and data of a fit to what `fit` takes; notes the features on the model."""
    data = checked_data(model, X, *labels)
    return resolved(model, X, data), data


# --- checks -----------------------------------------------------------------------------


def check_parameters(model: Any) -> None:
    """Raise unless the parameters of an `HLRegressor` make sense together."""
    views, learn = model.views, is_word("learn", model.view_weights)
    if views is None:
        if is_word("loo", model.gamma) and model.kernel not in WIDTH_KERNELS:
            raise ValueError(
                f'gamma="loo" is for the kernels {", ".join(WIDTH_KERNELS)}, got '
                f"kernel={model.kernel!r}; give gamma"
            )
        check.check_kernel_and_graph(model)
        if learn:
            raise ValueError('view_weights="learn" needs several views; pass views=[...]')
    else:
        check.check_each_view(views)
    check_view_weights(model.view_weights, 1 if views is None else len(views))
    check.check_threshold_parameters(model.threshold, model.algorithm)
    if model.algorithm == "paper" and learn:
        raise ValueError('algorithm="paper" cannot learn view_weights; give them')
    if not is_word("loo", model.alpha):
        remedy = 'usual are 1e-8 to 1; "loo" chooses one'
        check.check_number("alpha", model.alpha, above=0.0, remedy=remedy)
    for name in ("manifold", "agreement"):
        check.check_number(name, getattr(model, name), at_least=0.0)
    if model.agreement > 0.0 and (views is None or len(views) < 2):
        raise ValueError("agreement > 0 needs at least two views; pass views=[...]")
    if model.removal is not None:
        check.check_removal("removal", model.removal)
    check.check_flag("fit_intercept", model.fit_intercept)
    check.check_integer("n_refinements", model.n_refinements, at_least=0)
    step, largest = model.threshold_step, check.EXTREME_IN_Y
    check.check_number("threshold_step", step, above=0.0, extreme=largest)
    check.check_number("tol", model.tol, above=0.0)
    check.check_integer("max_iter", model.max_iter, at_least=1)
    check.check_verbose(model.verbose)
    check.check_integer("n_components", model.n_components, at_least=1)
    if not is_word("auto", model.block_size):
        check.check_integer("block_size", model.block_size, at_least=1)
    check_random_state(model.random_state)
    if model.approximation is not None:
        _check_approximation(model)


def _check_approximation(model: Any) -> None:
    check.check_choice("approximation", model.approximation, APPROXIMATION_NAMES, " or None")
    if is_precomputed(model):
        raise ValueError(
            'kernel="precomputed" is the whole Gram matrix: there is nothing to approximate'
        )
    if model.algorithm == "paper":
        raise ValueError('algorithm="paper" takes no approximation')
    if model.manifold > 0.0 and any(graphs.is_matrix(h.graph) for h in _holders(model)):
        raise ValueError(
            "graph is a matrix of all rows, but with an approximation the graph joins the "
            'drawn rows alone; use graph="knn", "rbf" or a callable'
        )
    if model.approximation == "fourier":
        for holder in _holders(model):
            if callable(holder.kernel) or holder.kernel not in FOURIER_KERNELS:
                raise ValueError(
                    'approximation="fourier" is for the kernels '
                    f"{', '.join(FOURIER_KERNELS)}, got kernel={holder.kernel!r}; use "
                    'approximation="nystrom"'
                )


def checked_data(
    model: Any, X: Any, y: Any, weights: Any = None, trusted: Any = None, groups: Any = None
) -> Data:
    """What `fit` was given, checked as the parameters are; notes the features on the model."""
    check_parameters(model)
    if model.approximation is None:
        refuse_streams(X)
        X = check.checked_features(model, X, order="C", copy=not is_precomputed(model))
    elif is_streamed(X):
        X, y = first_rows(X, y, model)
    elif isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fiu":
        # A memory map is there because it is large: it is not copied.
        validate_data(model, X, skip_check_array=True)
    else:
        X = check.checked_features(model, X, order="C", copy=True)
    if model.approximation is not None:
        X = in_blocks(model, X if isinstance(X, Rows) else ArrayRows(X))
    labels = check.check_labels(y, len(X))
    y = labels.reshape(len(X), -1)
    weights = check.check_weights(weights, y)
    trusted = check.check_trusted(trusted, y.shape)
    if is_precomputed(model):
        X = check.check_precomputed(X)
    for holder in _holders(model):
        if model.manifold > 0.0 and graphs.is_matrix(holder.graph):
            graphs.check_affinity(holder.graph, len(X))
    groups = group_numbers(groups, len(y))
    data = Data(X, y, weights, trusted, labels.ndim == 2, groups)
    if groups is not None:
        check_groups(groups, data.labelled)
    return data


def in_blocks(model: Any, rows: Rows) -> Rows:
    """Rows in blocks of the size that the model asks for."""
    if model.block_size != "auto":
        return rows.in_blocks_of(int(model.block_size))
    linear = model.approximation == "linear"
    width = model.n_features_in_ if linear else model.n_components * len(_holders(model))
    return rows.in_blocks_of(automatic_block_size(width))


# --- settings ---------------------------------------------------------------------------


def resolved(model: Any, X: Any, data: Data) -> Settings:
    """Parameters as the fit uses them; X as it was given, for column selectors."""
    known, approximation, views = data.X, None, []
    if model.approximation is not None:
        lost = isinstance(data.X, LostRows)  # then widths are numbers already
        known = None if lost else column_moments(data.X, data.weights)
        seed = int(check_random_state(model.random_state).randint(2**31 - 1))
        approximation = Approximation(model.approximation, int(model.n_components), seed)
    names = ["view0"] if model.views is None else view_names(model.views)
    for name, holder in zip(names, _holders(model), strict=True):
        columns = None
        if model.views is not None:
            given, width = getattr(model, "feature_names_in_", None), model.n_features_in_
            columns = resolve_columns(holder, name, X, given, width)
        views.append(_view_settings(holder, name, columns, known, data.weights))
    plain: dict[str, Any] = {name: float(getattr(model, name)) for name in REAL_SETTINGS}
    plain |= {name: int(getattr(model, name)) for name in WHOLE_SETTINGS}
    settings = Settings(
        views=tuple(views),
        view_weights=check_view_weights(model.view_weights, len(views)),
        alpha=1.0 if is_word("loo", model.alpha) else float(model.alpha),
        threshold=model.threshold,
        removal=model.removal,
        algorithm=model.algorithm,
        fit_intercept=bool(model.fit_intercept),
        approximation=approximation,
        **plain,
    )
    moved = is_word("loo", model.alpha), model.views is None and is_word("loo", model.gamma)
    return _chosen(settings, data, *moved) if any(moved) else settings


def _view_settings(
    holder: Any, name: str, columns: np.ndarray | None, known: Any, weights: Vector
) -> ViewSettings:
    """A view, or the regressor itself, with its kernel resolved on the view's columns."""
    gamma: Any = "scale" if is_word("loo", holder.gamma) else holder.gamma
    if isinstance(known, ColumnMoments):
        gamma = known.gamma(gamma, columns)
    elif known is not None:
        X = known if columns is None else known[:, columns]
        of_gram = is_word("precomputed", holder.kernel)
        gamma = gamma_from_gram(gamma, X) if of_gram else resolve_gamma(gamma, X, weights)
    degree, coef0 = int(holder.degree), float(holder.coef0)
    kernel = Kernel(holder.kernel, gamma, degree, coef0, dict(holder.kernel_params or {}))
    return ViewSettings(name, columns, kernel, holder.graph, int(holder.n_neighbors))


def _chosen(settings: Settings, data: Data, move_ridge: bool, move_widths: bool) -> Settings:
    """Settings with what "loo" stands for.

    With an approximation from exact fits to a few labels; the ridge 2Sλ stays for all.
    """
    if data.several_targets:
        raise ValueError(
            'alpha="loo" and gamma="loo" take one target; fit one model for each column of '
            "y, or, if no label is missing, use sklearn.multioutput.MultiOutputRegressor"
        )
    check_enough_labels(data, "give alpha and gamma")
    total, alpha, manifold = data.total_weight, settings.alpha, settings.manifold
    plain, some = replace(settings, approximation=None, manifold=0.0), data
    if settings.approximation is not None:
        some = data.some_labels(SELECTION_LABELS, settings.approximation.seed)
        alpha, manifold = alpha * total / some.total_weight, 0.0
    plan = Plan(move_ridge=move_ridge, removal=settings.removal)
    if not move_ridge:
        plan = replace(plan, log_ridges=(np.log(2.0 * some.total_weight * alpha),))
    best, _ = choose([plain], some, (manifold,), plan, move_widths=move_widths)
    return settings_at(settings, best.point, total)


def is_word(name: str, value: Any) -> bool:
    """Whether a parameter is this word; arrays are compared with none."""
    return isinstance(value, str) and value == name


def _holders(model: Any) -> list[Any]:
    """What has a kernel and a graph: the views, or the model itself."""
    return [model] if model.views is None else list(model.views)


def _are_views(views: Any) -> bool:
    return isinstance(views, (list, tuple)) and all(isinstance(v, View) for v in views)
