"""Every row of docs/combinations.md: it works and is certified, or one error says why not."""

import numpy as np
import pytest

from activehuber import HLRegressor, View
from tests.pairwise import crossed

VIEWS = {
    "single": {},
    "views": {"views": True},
    "views+array": {"views": True, "view_weights": [0.7, 0.2]},
    "views+learn": {"views": True, "view_weights": "learn"},
    "views+agreement": {"views": True, "agreement": 1e-2},
    "views+agreement+array": {"views": True, "agreement": 1e-2, "view_weights": [0.7, 0.2]},
    "views+agreement+learn": {"views": True, "agreement": 1e-2, "view_weights": "learn"},
}
MODES = {
    "fixed": {"threshold": 0.3},
    "inf": {"threshold": np.inf},
    "refine": {"threshold": "refine", "threshold_step": 0.02},
    "adaptive": {},
    "madn": {"threshold": "madn"},
    "quantile": {"threshold": "quantile"},
    "tuning-free": {"threshold": "tuning-free", "alpha": 1e-2},
    "callable": {"threshold": lambda r, w: float(np.median(np.abs(r)))},
    "paper": {"threshold": "refine", "threshold_step": 0.02, "algorithm": "paper"},
}


def problem(targets):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(36, 4))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 2] + 0.1 * rng.normal(size=36)
    y[:3] += 4
    y[28:] = np.nan
    if targets == 1:
        return X, y
    other = X[:, 1] - y
    other[:5] = np.nan
    return X, np.stack([y, other], axis=1)


@crossed(views=VIEWS, mode=MODES, targets=[1, 2], manifold=[0.0, 1e-2])
def test_combination(views, mode, targets, manifold):
    X, y = problem(targets)
    params = {
        "alpha": 1e-3,
        "manifold": manifold,
        "n_neighbors": 5,
        **VIEWS[views],
        **MODES[mode],
    }
    if params.get("views"):
        params["views"] = [View([0, 1], n_neighbors=5), View([2, 3], "poly", n_neighbors=5)]
    model = HLRegressor(**params)
    weights = np.linspace(0.5, 2, 36)
    trusted = np.arange(36) == 1
    if mode == "paper" and params.get("view_weights") == "learn":
        with pytest.raises(ValueError, match="paper"):
            model.fit(X, y, sample_weight=weights, trusted=trusted)
        return
    model.fit(X, y, sample_weight=weights, trusted=trusted)
    assert model.predict(X).shape == y.shape
    assert not np.any(model.removed_[1])
    assert np.all(np.isfinite(np.asarray(model.loo_residuals_)[~np.isnan(y)]))
    if mode != "paper":
        assert np.max(model.duality_gap_) <= 1e-9 and np.max(model.kkt_residual_) <= 1e-8
    assert np.max(model.view_weights_residual_) <= 1e-6


def test_a_callable_kernel_in_a_view():
    X, y = problem(1)
    views = [View([0, 1], lambda a, b: np.exp(-np.sum((a - b) ** 2))), View([2, 3])]
    assert HLRegressor(views=views, threshold=0.3).fit(X, y).duality_gap_ <= 1e-9
