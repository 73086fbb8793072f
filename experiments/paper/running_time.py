"""Running times of HLR and of a convex solver (`time`), on the data of `solver`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from activehuber.estimators.regressor import HLRegressor
from activehuber.runtime.interrupts import ignore_interrupts
from experiments.paper import solver
from experiments.paper.outcome import Cell, Outcome, Run, Table, fact, facts
from experiments.paper.protocol import noted_warnings
from experiments.paper.solver import (
    AS_PAPER,
    COLOURS,
    FEW_UNKNOWNS,
    METHODS,
    N_COEFFICIENTS,
    PAPER,
    PARAMETER_NOTES,
    SAME_THRESHOLD,
    SIZES,
    THRESHOLDS,
    VARIANCE,
    clarabel_huber,
    laplacian_of,
    load_cvxpy,
    noisy_split,
    penalty_root,
    protocol_of,
)

# --- running times ----------------------------------------------------------------------


# (method, n) -> seconds and least values of J, one of each a run.
Timings = dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]


def running_time(run: Run) -> Outcome:
    """The table of running times, tab:time.

    CVXPY and HLR run in processes of their own, one after the other, with one BLAS thread;
    each method first solves a small problem that pays for imports. One data set a size, seed
    0, with noise (without it Δξ = 0.1 exceeds every residual and HLR has nothing to refine).
    CVXPY is timed once at each of the seven ξ, which is the paper's mean and spread; every
    other method as often. What CVXPY is given (Gram matrix, root of the penalty) is not timed;
    HLR is timed from the rows on. Both are given the graph.
    """
    load_cvxpy()
    sizes = SIZES[:3] if run.quick else SIZES
    thresholds = THRESHOLDS[::3] if run.quick else THRESHOLDS
    found: Timings = {}
    for side in ((N_COEFFICIENTS, FEW_UNKNOWNS), (SAME_THRESHOLD, *METHODS)):
        with ProcessPoolExecutor(1, get_context("spawn"), ignore_interrupts) as pool:
            for method in side:
                measured = pool.submit(measure, method, sizes, thresholds).result()
                found |= {(method, n): pair for n, pair in measured.items()}
                last = measured[sizes[-1]][0]
                run.report(f"{method}: {np.mean(last):.4f} s at n = {sizes[-1]}")
    table = Table(
        name="time",
        title="Running time in seconds, HLR against CVXPY (tab:time)",
        keys=("n", "method"),
        cells=[cell for n in sizes for cell in _time_cells(found, n)],
        digits={"seconds": 4, "sd": 4, "CVXPY's time / its time": 1},
        notes=_time_notes(found, sizes, thresholds),
    )
    return Outcome(
        name="time",
        title="Running time of HLR and of a convex solver",
        protocol=f"{solver.__doc__}\n{protocol_of(running_time)}",
        tables=[table],
        figures={"seconds": _time_figure(found, sizes)},
        findings=_time_findings(found, sizes),
    )


def measure(
    method: str, sizes: Sequence[int], thresholds: Sequence[float]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Seconds and least values of J, each of shape (len(thresholds),), at each size."""
    found = {}
    # What models warn of labels is not what is timed here.
    with threadpool_limits(1), noted_warnings():
        for n in (20, *sizes):  # the first pays for imports and first calls
            split = noisy_split(n, VARIANCE, seed=0)
            solve = prepared(method, split.X_train, split.y_train)
            seconds, values = [], []
            for threshold in thresholds:
                started = time.perf_counter()
                values.append(solve(threshold))
                seconds.append(time.perf_counter() - started)
            found[n] = np.array(seconds), np.array(values)
    return {n: found[n] for n in sizes}


def prepared(method: str, X: np.ndarray, y: np.ndarray) -> Callable[[float], float]:
    """The part of a method that is timed: a threshold -> J."""
    affinity, laplacian = laplacian_of(X)
    if method in (N_COEFFICIENTS, FEW_UNKNOWNS):
        root = penalty_root(X, laplacian, PAPER["alpha"], PAPER["manifold"])
        # With θ = Xᵀw the same J, in the coefficients w of the expansion.
        features = X @ X.T if method == N_COEFFICIENTS else X
        factor = root @ X.T if method == N_COEFFICIENTS else root
        return lambda threshold: clarabel_huber(features, y, threshold, factor)[0]
    if method == SAME_THRESHOLD:
        given = PAPER | {"graph": affinity}
        return lambda xi: HLRegressor(**given | {"threshold": xi}).fit(X, y).objective_
    model = clone(METHODS[method]).set_params(graph=affinity)
    return lambda _: model.fit(X, y).objective_


def _time_cells(found: Timings, n: int) -> list[Cell]:
    """Rows of one size; the paper's figures beside what they belong to."""
    rows = facts("time")
    named = {N_COEFFICIENTS: "CVX", AS_PAPER: "HLR"}
    cvx, hlr = (fact(rows, method=name, n=str(n)) for name in ("CVX", "HLR"))
    slow = found[N_COEFFICIENTS, n][0].mean()
    cells = []
    for method in (m for m, size in found if size == n):
        seconds, keys = found[method, n][0], (str(n), method)
        of_paper = named.get(method, "")
        paper = fact(rows, method=of_paper, n=str(n))
        spread = fact(rows, "spread", method=of_paper, n=str(n))
        ratio = cvx / hlr if cvx and hlr and of_paper == "HLR" else None
        cells += [
            Cell(keys, "seconds", float(seconds.mean()), paper),
            Cell(keys, "sd", float(seconds.std(ddof=1)), spread),
            Cell(keys, "CVXPY's time / its time", float(slow / seconds.mean()), ratio),
        ]
    return cells


def disagreement(found: Timings, sizes: Sequence[int]) -> float:
    """The largest relative difference of J between CVXPY, both ways, and HLR at the same ξ."""
    pairs = product((N_COEFFICIENTS, FEW_UNKNOWNS), sizes)
    return max(
        float(np.max(np.abs(found[method, n][1] / found[SAME_THRESHOLD, n][1] - 1.0)))
        for method, n in pairs
    )


def _time_notes(found: Timings, sizes: Sequence[int], thresholds: Sequence[float]) -> list[str]:
    left_out = [str(n) for n in SIZES if n not in sizes]
    listed = ", ".join(f"{threshold:g}" for threshold in thresholds)
    return [
        *([f"Quick run: n = {', '.join(left_out)} left out."] if left_out else []),
        f"Mean and standard deviation (sd) of {len(thresholds)} runs; CVXPY at ξ = {listed}. "
        "One draw a size, seed 0, noise of variance 0.1. No row is scored here.",
        "The paper timed MATLAB and CVX on an older machine: of its figures only the ratio in "
        "the last column can be compared. It does not say what its times include.",
        f"{N_COEFFICIENTS}: the paper's problem as it stands, in the n coefficients of the "
        "expansion. λ‖f‖²_K + γ‖f‖²_M is given as |A w|² with a root A of ten rows, the "
        f"quickest form for Clarabel that we know. {FEW_UNKNOWNS}: what one would do who sees "
        "that the kernel is linear.",
        f"{SAME_THRESHOLD}: the very problem of CVXPY, threshold given and no label removed. "
        "All other rows of HLR learn ξ and which labels to drop.",
        *PARAMETER_NOTES,
        "Largest relative difference of J between CVXPY and HLR at the same ξ: "
        f"{disagreement(found, sizes):.1e}.",
    ]


def _time_findings(found: Timings, sizes: Sequence[int]) -> list[str]:
    findings = []
    rows, n = facts("time"), sizes[-1]
    mean = {
        method: seconds.mean() for (method, size), (seconds, _) in found.items() if size == n
    }
    for peer in (N_COEFFICIENTS, FEW_UNKNOWNS):
        ratio = mean[peer] / mean[AS_PAPER]
        findings.append(
            f"At n = {n} HLR with the paper's parameters takes {mean[AS_PAPER]:.3f} s, {peer} "
            f"{mean[peer]:.3f} s: {ratio:.1f} times its time."
        )
    ratios = [
        found[N_COEFFICIENTS, size][0].mean() / found[AS_PAPER, size][0].mean()
        for size in sizes
    ]
    paper = [
        (fact(rows, method="CVX", n=str(size)) or np.nan)
        / (fact(rows, method="HLR", n=str(size)) or np.nan)
        for size in sizes
    ]
    reached = sum(ours >= theirs for ours, theirs in zip(ratios, paper, strict=True))
    findings.append(
        f"The paper's lead over its convex solver, {min(paper):.1f} to {max(paper):.1f} times, "
        f"is reached at {reached} of {len(sizes)} sizes: {min(ratios):.1f} to "
        f"{max(ratios):.1f} times."
    )
    return findings


def _time_figure(found: Timings, sizes: Sequence[int]) -> Any:
    """Seconds over n, both axes logarithmic; dashed lines are the paper's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    rows = facts("time")
    for method in (N_COEFFICIENTS, FEW_UNKNOWNS, *METHODS):
        mean = np.array([found[method, n][0].mean() for n in sizes])
        spread = np.array([found[method, n][0].std(ddof=1) for n in sizes])
        bars = np.array([np.minimum(spread, 0.9 * mean), spread])  # a logarithm has no zero
        axes.errorbar(
            sizes, mean, yerr=bars, marker="o", ms=4, capsize=3, lw=1.4,
            color=COLOURS[method], label=method,
        )  # fmt: skip
    for name, colour in (("CVX", COLOURS[N_COEFFICIENTS]), ("HLR", COLOURS[AS_PAPER])):
        paper = [fact(rows, method=name, n=str(n)) or np.nan for n in sizes]
        axes.plot(sizes, paper, "--", color=colour, label=f"{name} in the paper (its machine)")
    axes.set(xscale="log", yscale="log", xlabel="n", ylabel="seconds")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set_title(
        "Running time, mean and standard deviation over runs", loc="left", fontsize=11
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure
