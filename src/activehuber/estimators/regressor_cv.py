"""HLRegressorCV: the regressor with every parameter chosen."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_array, column_or_1d

from activehuber._typing import Vector
from activehuber.estimators import parameter_search as search
from activehuber.estimators.prediction import interval_of
from activehuber.estimators.regressor import HLRegressor
from activehuber.fitting.settings import Data, Settings
from activehuber.selection.scoring import common_scale, robust_loss
from activehuber.selection.search import Found, choose, grid_errors


class HLRegressorCV(RegressorMixin, search.ParameterSearch):
    """`HLRegressor` with kernel, widths, alpha and removal chosen from the labels.

    Labels are judged together with a grid of kernels: those held for right choose the kernel
    under which they are most likely, and it judges all. From the best point of each kernel,
    and then from the mean of all kernels, the widths (with `relevance` one a feature) and alpha
    are moved along the gradient of the leave-one-out error of the labels that were kept; which
    kernel, or their mean, is decided on five folds. A rough kernel and a smooth one together
    see structure at two scales. See `activehuber.selection.search`.

    Parameters
    ----------
    kernels : "auto" or list of str, default="auto"
        Tried alone and all of them added up, each with a width of its own. "auto" is
        ("laplacian", "rbf", "matern"); of up to 100 labels it is "linear", "linear" and "rbf"
        added up, an "rbf" for each feature added up, "rbf" and "laplacian", since few cannot
        tell a rough function from wrong labels, and the one under which all labels are
        likeliest is taken. It is the former three where gammas, alphas, cv, scoring,
        relevance, manifolds or approximation say what to try.
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
    removal : float or None, default=0.5
        As in `HLRegressor`; labels that are dropped have no say in the choice.
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
    n_chosen_ : int
        Numbers that were fitted to the labels by the search: widths and alpha; 0 with `cv` or
        `scoring`.
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

    _model = HLRegressor

    def __init__(
        self,
        *,
        kernels="auto",
        gammas=None,
        alphas=None,
        manifolds=(0,),
        cv=None,
        scoring="robust",
        relevance=False,
        standardize=False,
        removal=0.5,
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

    predict = search.of_best(HLRegressor.predict)
    score = search.of_best(HLRegressor.score)
    threshold_path = search.of_best(HLRegressor.threshold_path)

    @wraps(HLRegressor.predict_interval)
    def predict_interval(self, X, coverage=0.9):  # noqa: D102 (it has that of the regressor)
        X = search.scaled(self, X)
        return interval_of(self.best_estimator_, X, coverage, self.n_chosen_)

    def _read_labels(self, X: Any, y: Any, sample_weight: Any) -> tuple[Vector, Vector]:
        """Labels of shape (n,), which are also what the kernel fit sees."""
        if y is None:
            raise ValueError("HLRegressorCV requires y to be passed, but the target y is None")
        how = {"dtype": None, "ensure_all_finite": False, "input_name": "y"}
        checked, self.n_chosen_ = check_array(y, ensure_2d=False, **how), 0
        if checked.ndim == 2 and checked.shape[1] > 1:
            raise ValueError(
                "HLRegressorCV takes one target; fit one for each column of y, or, if no label "
                "is missing, use sklearn.multioutput.MultiOutputRegressor"
            )
        y = column_or_1d(y, warn=True)
        return y, y

    def _search(self, *given: Any) -> Found:
        best, trials = choose(*given)
        self.n_chosen_ = len(best.point.theta) + 1
        return best, trials

    def _by_scorer(self, settings: list[Settings], data: Data) -> dict[str, Any]:
        """The grid alone, leave-one-out predictions shown to a scorer."""
        from sklearn.linear_model import LinearRegression  # takes a while, and is rarely needed

        total = data.total_weight
        plan, lines, scores = self._plan(total), [], []
        scorer, given = get_scorer(self.scoring), data.y[data.labelled[:, 0], 0]
        # Scorers ask a model: this one predicts what it is shown.
        as_shown = LinearRegression()
        as_shown.coef_, as_shown.intercept_ = np.ones(1), 0.0
        for point, errors in grid_errors(settings, data, self.manifolds, plan):
            predicted = (given - errors).reshape(-1, 1)
            scores.append(float(scorer(as_shown, predicted, given)))
            lines.append(self._parameters_at(point, total))
        return self._best_of(lines, np.array(scores), "look")

    def _judge_part(self, model: Any, part: search.TrainingRows) -> Any:
        if self.scoring != "robust":
            return super()._judge_part(model, part)
        return np.asarray(part.y, dtype=np.float64) - model.predict(part.X), part.weights

    def _scores_of(self, runs: list[list[Any]]) -> Vector:
        if self.scoring != "robust":
            return super()._scores_of(runs)
        errors = [np.concatenate([part for part, _ in run]) for run in runs]
        weights = np.concatenate([part for _, part in runs[0]])
        scale = common_scale(errors, weights)
        return -np.array([robust_loss(e, weights, scale) for e in errors])
