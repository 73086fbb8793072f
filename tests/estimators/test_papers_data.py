"""On the paper's own data, where ACTIVEHUBER_DATA says it is."""

import numpy as np
import pytest
from scipy.io import loadmat
from sklearn.preprocessing import StandardScaler

from activehuber import HLRegressor, View

pytestmark = pytest.mark.data


@pytest.mark.parametrize("kernel", ["linear", "poly"])
@pytest.mark.parametrize("weights", ["uniform", "learn"])
def test_mall_features_in_the_papers_setting(data_folder, kernel, weights):
    """Three views, 800 counted and 1200 uncounted frames, graphs and agreement."""
    X = StandardScaler().fit_transform(loadmat(data_folder / "mall/mall_feat.mat")["x"])
    count = loadmat(data_folder / "mall/mall_gt.mat")["count"].ravel().astype(float)
    y = np.where(np.arange(2000) < 800, count, np.nan)
    views = [View(columns, kernel) for columns in (slice(0, 10), slice(10, 18), slice(18, 30))]
    model = HLRegressor(
        views=views,
        view_weights=weights,
        alpha=1e-4,
        manifold=1e-5,
        agreement=1e-5,
        threshold="refine",
    ).fit(X, y)
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8
    assert model.view_weights_residual_ <= 1e-6
    assert model.score(X[:800], y[:800]) > 0.5


@pytest.mark.parametrize("name", ["airfoil", "boston_housing", "wine_red", "yacht"])
@pytest.mark.parametrize("mode", ["adaptive", "refine", 1.0])
def test_uci_tables_are_certified(data_folder, name, mode):
    table = np.loadtxt(data_folder / f"uci/{name}.csv", delimiter=",", skiprows=1)
    X = StandardScaler().fit_transform(table[:, :-1])
    model = HLRegressor(kernel="laplacian", threshold=mode).fit(X, table[:, -1])
    assert model.duality_gap_ <= 1e-9 and model.kkt_residual_ <= 1e-8
    assert model.removed_.mean() < 0.3
