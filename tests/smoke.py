"""Run by `make wheel-test` in an empty environment: core dependencies only."""

import sys

import numpy as np

from activehuber import HLRegressor, LabelledKFold


def main():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 1))
    y = np.sin(X.ravel()) + 0.1 * rng.normal(size=200)
    y[:20] += 4
    y[150:] = np.nan
    model = HLRegressor().fit(X, y)
    assert np.flatnonzero(model.removed_).tolist() == list(range(20)), np.flatnonzero(
        model.removed_
    )
    assert model.duality_gap_ < 1e-9 and model.kkt_residual_ < 1e-8
    assert sum(1 for _ in LabelledKFold(3).split(X, y)) == 3
    heavy = {"matplotlib", "cvxpy", "dask", "cv2", "plotly", "cleanlab", "pandas"} & set(
        sys.modules
    )
    assert not heavy, heavy
    print("smoke test passed")


if __name__ == "__main__":
    main()
