"""Speed of the core, as ratios against peers measured in the same run.

    python -m benchmarks.speed            everything
    python -m benchmarks.speed --quick    without the slow peers (CVXPY in n unknowns)

Every time is the best of three (slow peers: one run). Data are generated; the seed is 0.
Each part runs in a process of its own: the BLAS threads of a peer timed before go on
spinning for a while, and a fit of a few milliseconds would be timed beside them.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.linalg import lapack
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, cross_val_score
from sklearn.preprocessing import StandardScaler

from activehuber import HLRegressor, View
from activehuber.graphs import laplacians

SEED = 0
# Columns of the Mall features: size, edges, texture. Which column is which is not documented;
# this is the order of the features in the paper that published them.
MALL_VIEWS = (slice(0, 10), slice(10, 18), slice(18, 30))


def best_of(function: Callable[[], object], repeats: int = 3) -> float:
    """Least wall time of a few runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def outlier_data(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of d variables with noise and 10 % of labels far off."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n, d))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)
    bad = rng.permutation(n)[: n // 10]
    y[bad] += rng.choice([-1, 1], len(bad)) * rng.uniform(2, 5, len(bad))
    return X, y


def row(work: str, peer: str, ours: float, theirs: float, wanted: str) -> None:
    print(
        f"| {work} | {peer} | {ours * 1e3:.1f} ms | {theirs * 1e3:.1f} ms | "
        f"{theirs / ours:.1f}x faster | {ours / theirs:.2f} of its time | {wanted} |",
        flush=True,
    )


# --- peers ------------------------------------------------------------------------------


def cvxpy_primal(root: np.ndarray, y: np.ndarray, xi: float, alpha: float, half=None) -> float:
    """min 1/l Σ H + λ|θ|² + |half θ|² over θ and b, f = root θ, by Clarabel."""
    import cvxpy as cp

    theta, b = cp.Variable(root.shape[1]), cp.Variable()
    objective = cp.sum(cp.huber(y - root @ theta - b, xi)) / (2 * len(y))
    objective = objective + alpha * cp.sum_squares(theta)
    if half is not None:
        objective = objective + cp.sum_squares(half @ theta)
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def cvxpy_coefficients(K: np.ndarray, y: np.ndarray, xi: float, alpha: float, P=None) -> float:
    """The same in the n coefficients of the expansion: the paper's way."""
    import cvxpy as cp

    w, b = cp.Variable(K.shape[1]), cp.Variable()
    objective = cp.sum(cp.huber(y - K @ w - b, xi)) / (2 * len(y))
    objective = objective + alpha * cp.quad_form(w, cp.psd_wrap(K if P is None else P))
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def cvxpy_dual(K: np.ndarray, y: np.ndarray, xi: float, alpha: float, solver: str) -> float:
    """The box QP in n unknowns: the expert's way."""
    import cvxpy as cp

    n = len(y)
    mu = 2 * n * alpha
    v = cp.Variable(n)
    objective = 0.5 * cp.quad_form(v, cp.psd_wrap(K + mu * np.eye(n))) - y @ v
    problem = cp.Problem(cp.Minimize(objective), [cp.abs(v) <= xi / mu, cp.sum(v) == 0])
    problem.solve(solver=solver)
    return -2 * alpha * float(problem.value)


# --- the table --------------------------------------------------------------------------


def against_convex_solvers(quick: bool) -> None:
    n, gamma, alpha, xi = 1000, 0.2, 1e-4, 0.15
    X, y = outlier_data(n)
    model = HLRegressor(gamma=gamma, alpha=alpha, threshold=xi)
    ours = best_of(lambda: model.fit(X, y))
    work = f"RBF n={n} fixed threshold"
    K = rbf_kernel(X, gamma=gamma)
    if not quick:
        theirs = best_of(lambda: cvxpy_coefficients(K, y, xi, alpha), 1)
        row(work, "CVXPY + Clarabel in n unknowns", ours, theirs, ">= 300x, aim 700x")
    for solver in ("CLARABEL", "OSQP"):
        values = []
        theirs = best_of(
            lambda s=solver, out=values: out.append(cvxpy_dual(K, y, xi, alpha, s))
        )
        row(work, f"CVXPY + {solver} on the dual box QP", ours, theirs, ">= 12x, aim 30x")
        print(f"  objectives: ours {model.objective_:.12g}, {solver} {values[-1]:.12g}")


def papers_running_times(quick: bool) -> None:
    n, d, alpha, manifold, step = 1000, 10, 1e-2, 1e-3, 0.1
    rng = np.random.default_rng(SEED)
    X = rng.uniform(size=(n, d))
    y = X.mean(axis=1) + np.sqrt(0.1) * rng.normal(size=n)
    W = laplacians.knn_affinity(laplacians.Distances(X), 10)
    M = laplacians.normalised_laplacian(W)
    model = HLRegressor(
        kernel="linear", alpha=alpha, manifold=manifold, graph=W, threshold="refine",
        n_refinements=1, threshold_step=step,
    )  # fmt: skip
    ours = best_of(lambda: model.fit(X, y))
    used = ~model.removed_
    xi = float(model.threshold_)
    values, vectors = np.linalg.eigh(manifold * (X.T @ (M @ X)))
    half = (vectors * np.sqrt(np.maximum(values, 0))).T
    work = f"linear d={d} n={n} T=1 (the paper's table of running times)"
    answers = []
    theirs = best_of(lambda: answers.append(cvxpy_primal(X[used], y[used], xi, alpha, half)))
    row(work, "CVXPY + Clarabel in 10 unknowns", ours, theirs, ">= 3x, aim 10x")
    print(f"  objectives: ours {model.objective_:.12g}, Clarabel {answers[-1]:.12g}")
    if not quick:
        K = X @ X.T
        P = K + (manifold / alpha) * (K @ (M @ K))
        theirs = best_of(lambda: cvxpy_coefficients(K[used], y[used], xi, alpha, P), 1)
        row(work, "CVXPY + Clarabel in n unknowns", ours, theirs, ">= 300x, aim 2000x")


def fit_and_weigh(model: HLRegressor, X: np.ndarray, y: np.ndarray) -> None:
    """A fit; an adaptive one with the leave-one-out figures of all labels."""
    model.fit(X, y)
    if model.threshold == "adaptive":
        _ = model.label_quality_, model.loo_residuals_


def against_kernel_ridge() -> None:
    n, gamma, alpha = 4000, 0.2, 1e-4
    X, y = outlier_data(n)
    ridge = KernelRidge(kernel="rbf", gamma=gamma, alpha=2 * n * alpha)
    wanted = {0.15: "<= 1.3, aim 1.0", "refine": "<= 1.6, aim 1.1", "adaptive": "<= 6, aim 3"}
    theirs = best_of(lambda: ridge.fit(X, y))
    for mode, reach in wanted.items():
        model = HLRegressor(gamma=gamma, alpha=alpha, threshold=mode)
        ours = best_of(lambda m=model: fit_and_weigh(m, X, y))
        theirs = min(theirs, best_of(lambda: ridge.fit(X, y), 2))
        row(f"RBF n={n} threshold={mode}", "KernelRidge.fit", ours, theirs, reach)
        print(
            f"  gap {model.duality_gap_:.1e}, KKT {model.kkt_residual_:.1e}, removed "
            f"{model.removed_.sum()}, Newton steps {model.n_iter_}"
        )
    model = HLRegressor(gamma=gamma, alpha=alpha, threshold=0.15).fit(X, y)
    Z = np.random.default_rng(1).normal(size=(100_000, X.shape[1]))
    ours, theirs = best_of(lambda: model.predict(Z)), best_of(lambda: ridge.predict(Z))
    row("predict 100k rows from n=4000", "KernelRidge.predict", ours, theirs, "<= 1.1")


def papers_way(m: int, n: int, refinements: int) -> float:
    """One dense LU of size mn a refinement, and one for the start; one is timed."""
    rng = np.random.default_rng(SEED)
    system = rng.normal(size=(m * n, m * n))
    system.flat[:: m * n + 1] += m * n
    start = time.perf_counter()
    factor, pivots, _ = lapack.dgetrf(system.T, overwrite_a=1)
    lapack.dgetrs(factor, pivots, np.ones(m * n))
    return (time.perf_counter() - start) * (refinements + 1)


def views_against_dense_systems(quick: bool) -> None:
    n = 2000
    kinds = {
        "linear and quadratic, as in the paper": ("linear", "poly"),
        "linear, quadratic, rbf": ("linear", "poly", "rbf"),
        "rbf and laplacian": ("rbf", "laplacian"),
    }
    for m, wanted in ((3, ">= 5x, aim 15x"), (6, ">= 20x, aim 60x")):
        if m == 6 and quick:
            continue
        theirs = papers_way(m, n, 3)
        for name, kernels in kinds.items():
            rng = np.random.default_rng(SEED)
            X = rng.normal(size=(n, 4 * m))
            y = np.sin(X[:, 0]) + X[:, 5] + 0.1 * rng.normal(size=n)
            y[:80] += 4
            y[800:] = np.nan
            views = [View(slice(4 * i, 4 * i + 4), kernels[i % len(kernels)]) for i in range(m)]
            model = HLRegressor(
                views=views, alpha=1e-4, manifold=1e-5, agreement=1e-5, threshold="refine"
            )
            ours = best_of(lambda model=model, X=X, y=y: model.fit(X, y))
            work = f"{m} views ({name}), n={n}, 800 labelled, graphs + agreement, T=3"
            row(work, f"dense LU of size {m * n}, 4 times", ours, theirs, wanted)
            print(f"  gap {model.duality_gap_:.1e}, KKT {model.kkt_residual_:.1e}")


def mall() -> None:
    """The paper's Mall setting: three views, 800 counted and 1200 uncounted frames."""
    folder = os.environ.get("ACTIVEHUBER_DATA")
    if not folder:
        print("Mall features: ACTIVEHUBER_DATA is not set, left out")
        return
    X = StandardScaler().fit_transform(loadmat(Path(folder) / "mall/mall_feat.mat")["x"])
    count = loadmat(Path(folder) / "mall/mall_gt.mat")["count"].ravel().astype(float)
    y = np.where(np.arange(2000) < 800, count, np.nan)
    for kernel in ("linear", "poly"):
        views = [View(columns, kernel) for columns in MALL_VIEWS]
        model = HLRegressor(
            views=views, alpha=1e-4, manifold=1e-5, agreement=1e-5, threshold="refine"
        )
        ours = best_of(lambda model=model: model.fit(X, y).predict(X[800:]))
        row(
            f"Mall features, 3 {kernel} views, train + predict",
            "the paper's 6.9 s",
            ours,
            6.9,
            "<= 1.0 s, aim 0.4 s",
        )
        print(f"  gap {model.duality_gap_:.1e}, KKT {model.kkt_residual_:.1e}")
    for weights in ("uniform", "learn"):
        model = HLRegressor(
            views=[View(columns, "linear") for columns in MALL_VIEWS],
            view_weights=weights, alpha=1e-4, threshold=2.0,
        )  # fmt: skip
        errors = -cross_val_score(
            model, X[:800], count[:800], cv=KFold(5), scoring="neg_mean_absolute_error"
        )
        print(
            f"  {weights} view weights: cross-validated MAE {errors.mean():.3f} on frames 1-800"
        )


def several_targets() -> None:
    n, q = 2000, 10
    X, _ = outlier_data(n)
    rng = np.random.default_rng(SEED)
    Y = np.stack([np.sin(X[:, j % 5]) + 0.5 * X[:, (j + 1) % 5] for j in range(q)], axis=1)
    Y += 0.1 * rng.normal(size=Y.shape)
    for j in range(q):
        bad = rng.permutation(n)[: n // 10]
        Y[bad, j] += rng.choice([-1, 1], len(bad)) * rng.uniform(2, 5, len(bad))
    model = HLRegressor(gamma=0.2, alpha=1e-4)
    ours = best_of(lambda: model.fit(X, Y))
    theirs = best_of(lambda: [model.fit(X, Y[:, j]) for j in range(q)])
    row(f"{q} targets, n={n}, adaptive", f"{q} separate fits", ours, theirs, ">= 2x, aim 4x")


def growth() -> None:
    sizes = [500, 1000, 2000, 4000, 8000]
    for mode in (0.15, "adaptive"):
        times = []
        for n in sizes:
            X, y = outlier_data(n)
            model = HLRegressor(gamma=0.2, threshold=mode)
            times.append(best_of(lambda m=model, X=X, y=y: m.fit(X, y), 2))
        exponent = np.polyfit(np.log(sizes[1:]), np.log(times[1:]), 1)[0]
        listed = ", ".join(f"{n}: {t:.3f} s" for n, t in zip(sizes, times, strict=True))
        print(f"growth, threshold={mode}: {listed}; exponent {exponent:.2f} from n=1000 on")


def memory() -> None:
    n = 3000
    X, y = outlier_data(n)
    for mode in (0.15, "refine", "adaptive"):
        tracemalloc.start()
        HLRegressor(gamma=0.2, threshold=mode).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"memory, threshold={mode}, n={n}: peak {peak / (8 * n * n):.2f} n x n matrices")


PARTS: dict[str, Callable[..., None]] = {
    "convex": against_convex_solvers,
    "paper": papers_running_times,
    "ridge": against_kernel_ridge,
    "views": views_against_dense_systems,
    "mall": mall,
    "targets": several_targets,
    "growth": growth,
    "memory": memory,
}
# Parts that take `quick`: then they leave out their slowest peers or largest problems.
SLOW = ("convex", "paper", "views")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the slow peers")
    parser.add_argument("--only", choices=PARTS, help="one part")
    arguments = parser.parse_args()
    if arguments.only:
        warnings.simplefilter("error")
        part = PARTS[arguments.only]
        part(*[arguments.quick] * (arguments.only in SLOW))
        return
    libraries = ("numpy", "scipy", "scikit-learn", "cvxpy", "clarabel", "osqp")
    print("versions:", ", ".join(f"{name} {version(name)}" for name in libraries))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, seed {SEED}\n")
    print("| work | against | ours | theirs | ratio | share | wanted |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in PARTS:
        command = [sys.executable, "-m", "benchmarks.speed", "--only", name]
        subprocess.run(command + ["--quick"] * arguments.quick, check=True)


if __name__ == "__main__":
    main()
