"""The table of the comparison page: every package on the same noisy data.

    pip install . cleanlab himalaya rehline statsmodels
    python -m benchmarks.peers

400 training rows of four features, uniform on [-1, 1]; y is a curved function of them,
sin(4 x0) + 2 x1 x2, or a linear one, x0 - x1, with Gaussian noise of 0.1; 10 % of the training
labels are moved by 3. 1000 test rows against y without noise; seeds 0 to 4. Every method has
what its documentation offers without more code: linear ones the features, kernel ones an
rbf kernel with width and ridge chosen on the noisy labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import HuberRegressor
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

from activehuber import HLRegressor, HLRegressorCV

N_TRAIN, N_TEST, SHARE = 400, 1000, 0.1
GAMMAS, ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0), (1e-3, 1e-2, 1e-1, 1.0)
# Wrong labels are in the test folds too.
ROBUST = "neg_median_absolute_error"
# Predictions of the test rows, and which training labels are called wrong, or None.
Answer = tuple[np.ndarray, np.ndarray | None]


def curved(X: np.ndarray) -> np.ndarray:
    """Not to be had by a linear model."""
    return np.sin(4 * X[:, 0]) + 2 * X[:, 1] * X[:, 2]


def linear(X: np.ndarray) -> np.ndarray:
    """All that a linear model needs."""
    return X[:, 0] - X[:, 1]


def draw(
    truth_of: Callable[[np.ndarray], np.ndarray], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, their labels, which of these are wrong, test rows, their truth."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N_TRAIN + N_TEST, 4))
    truth = truth_of(X)
    y = truth[:N_TRAIN] + 0.1 * rng.normal(size=N_TRAIN)
    wrong = np.zeros(N_TRAIN, dtype=bool)
    wrong[rng.choice(N_TRAIN, int(SHARE * N_TRAIN), replace=False)] = True
    y[wrong] += 3.0
    return X[:N_TRAIN], y, wrong, X[N_TRAIN:], truth[N_TRAIN:]


def ours(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """The default, with width and alpha chosen."""
    model = HLRegressor(alpha="loo", gamma="loo").fit(X, y)
    return model.predict(Z), model.removed_


def ours_searched(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """The whole search."""
    model = HLRegressorCV().fit(X, y)
    return model.predict(Z), model.removed_


def tuned_ridge(X: np.ndarray, y: np.ndarray) -> KernelRidge:
    """KernelRidge with the width and ridge of five folds."""
    grid = {"gamma": GAMMAS, "alpha": ALPHAS}
    search = GridSearchCV(KernelRidge(kernel="rbf"), grid, scoring=ROBUST)
    return search.fit(X, y).best_estimator_


def kernel_ridge(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """KernelRidge, five folds."""
    return tuned_ridge(X, y).predict(Z), None


def svr(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """SVR, five folds."""
    grid = {"gamma": GAMMAS, "C": (0.1, 1.0, 10.0, 100.0)}
    search = GridSearchCV(SVR(), grid, scoring=ROBUST)
    return search.fit(X, y).predict(Z), None


def process(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """A Gaussian process with noise, by maximum likelihood."""
    model = GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True)
    return model.fit(X, y).predict(Z), None


def huber_regressor(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """HuberRegressor; its outliers are the labels called wrong."""
    model = HuberRegressor().fit(X, y)
    return model.predict(Z), model.outliers_


def statsmodels(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """RLM with the Huber norm."""
    import statsmodels.api as sm

    model = sm.RLM(y, sm.add_constant(X), M=sm.robust.norms.HuberT()).fit()
    return model.predict(sm.add_constant(Z)), None


def rehline(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """Exact Huber with ridge, linear."""
    from rehline import plq_Ridge_Regressor

    model = plq_Ridge_Regressor(loss={"name": "huber", "tau": 0.2}, C=1.0)
    return np.ravel(model.fit(X, y).predict(Z)), None


def himalaya(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """KernelRidgeCV at every width; the width by its own scores."""
    from himalaya.kernel_ridge import KernelRidgeCV

    fits = []
    for gamma in GAMMAS:
        model = KernelRidgeCV(alphas=ALPHAS, kernel="rbf", kernel_params={"gamma": gamma})
        fits.append(model.fit(X, y))
    best = max(fits, key=lambda model: float(np.max(model.cv_scores_)))
    return np.ravel(best.predict(Z)), None


def cleanlab(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Answer:
    """CleanLearning around KernelRidge with the width and ridge of five folds."""
    from cleanlab.regression.learn import CleanLearning

    model = CleanLearning(tuned_ridge(X, y), seed=0).fit(X, y)
    issues = model.get_label_issues()["is_label_issue"].to_numpy()
    return model.predict(Z), issues


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Answer]] = {
    'HLRegressor(alpha="loo", gamma="loo")': ours,
    "HLRegressorCV()": ours_searched,
    "cleanlab, CleanLearning around KernelRidge": cleanlab,
    "scikit-learn, SVR": svr,
    "scikit-learn, KernelRidge": kernel_ridge,
    "himalaya, KernelRidgeCV": himalaya,
    "scikit-learn, GaussianProcessRegressor": process,
    "scikit-learn, HuberRegressor": huber_regressor,
    "statsmodels, RLM": statsmodels,
    "rehline, plq_Ridge_Regressor": rehline,
}


def line(name: str, truth_of: Callable[[np.ndarray], np.ndarray]) -> str:
    """Mean errors and scores of one method, and its median time."""
    errors, scores, seconds = [], [], []
    for seed in range(5):
        X, y, wrong, Z, truth = draw(truth_of, seed)
        start = time.perf_counter()
        predicted, called = METHODS[name](X, y, Z)
        seconds.append(time.perf_counter() - start)
        errors.append(np.abs(predicted - truth).mean())
        if called is not None:
            scores.append(f1_score(wrong, called))
    found = f"{np.mean(scores):.2f}" if scores else "–"
    return f"{np.mean(errors):.3f} | {found} | {1000 * np.median(seconds):.0f} ms"


def main() -> None:
    """Print the table."""
    print("| | curved: test MAE | F1 | time | linear: test MAE | F1 | time |")
    print("|---|---|---|---|---|---|---|")
    for name in METHODS:
        print(f"| {name} | {line(name, curved)} | {line(name, linear)} |", flush=True)


if __name__ == "__main__":
    main()
