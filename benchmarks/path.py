"""The exact path over the threshold beside a grid of warm-started solves.

    python -m benchmarks.path

Both work on the same reduced problem, from least squares down to a thousandth of its largest
residual. The path holds the minimiser at every threshold in that range, the grid at 50.
`huber_path` adds the Gram matrix, the coefficients and the fitted values at all breakpoints.
Times are of one run; data are generated, the seed is 0.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from activehuber import huber_path
from activehuber.operators.dense import DenseGram
from activehuber.problem.problem import Problem
from activehuber.solver.newton import solve
from activehuber.solver.path import DEFAULT_END, follow
from benchmarks.speed import outlier_data

SIZES = (200, 500, 1000, 2000)
GAMMA, ALPHA = 0.2, 1e-4
N_SOLVES = 50


def reduced_problem(X: np.ndarray, y: np.ndarray) -> Problem:
    return Problem(
        gram=DenseGram(rbf_kernel(X, gamma=GAMMA)),
        y=y - np.median(y),
        weights=np.ones(len(y)),
        alpha=ALPHA,
        fit_intercept=True,
        active=np.ones(len(y), dtype=bool),
    )


def grid_of_solves(problem: Problem, first: float) -> int:
    """Solve at log-spaced thresholds, each started at the last; returns the Newton steps."""
    source = problem.gram.source(problem.mu)
    solution, steps = solve(problem, np.inf, source=source), 0
    for xi in np.geomspace(first, DEFAULT_END * first, N_SOLVES):
        solution = solve(problem, float(xi), source=source, start=solution)
        steps += solution.n_iter
    return steps


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def main() -> None:
    print(
        f"| labels | events | path | an event | `huber_path` in all | {N_SOLVES} solves | "
        "Newton steps | a solve |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for n in SIZES:
        X, y = outlier_data(n)
        problem = reduced_problem(X, y)
        trail, path = timed(follow, problem)
        _, full = timed(lambda X=X, y=y: huber_path(X, y, gamma=GAMMA, alpha=ALPHA))
        steps, grid = timed(grid_of_solves, problem, float(trail.thresholds[0]))
        print(
            f"| {n} | {trail.n_events} | {path:.2f} s | "
            f"{1e3 * path / trail.n_events:.2f} ms | {full:.2f} s | {grid:.2f} s | {steps} | "
            f"{1e3 * grid / N_SOLVES:.1f} ms |",
            flush=True,
        )


if __name__ == "__main__":
    main()
