"""Noisy curve fitting (tab:QS): which labels had their sign turned, and how good is the fit.

x is uniform on the unit cube of 10 dimensions and y = βᵀx with every entry of β 1/10, so that
y is positive; n = 500 training labels, of which a random 1, 10, 25, 40, 50 or 75 % have their
sign turned (40 % is ours). Dice is 2|C ∩ R| / (|C| + |R|) of the turned labels C and the
removed ones R. The paper does not define its error: ‖ŷ − y‖/‖y‖ and the root mean squared
error are given, both on 500 fresh rows against y without noise. Ten draws, seeds 0 to 9. The
paper does not say which λ, γ, T and Δξ it used here; "paper's parameters" are those of its
comparison with CVX (λ = 1e-2, γ = 1e-3, T = 1, Δξ = 0.1, no intercept), and one row goes on to
T = 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.regressor_cv import HLRegressorCV
from experiments.paper.outcome import (
    Cell,
    Outcome,
    Run,
    Table,
    fact,
    facts,
    standard_error,
    warnings_note,
)
from experiments.paper.protocol import Split, two_processes
from experiments.paper.solver import (
    AS_PAPER,
    AS_PRINTED,
    BY_THUMB,
    CHOSEN,
    COLOURS,
    DEFAULT,
    PAPER,
    PARAMETER_NOTES,
    Fit,
    errors,
    linear_rows,
)
from experiments.paper.solver import METHODS as SOLVER_METHODS

PERCENTS = (1, 10, 25, 40, 50, 75)
SEEDS = tuple(range(10))
LOOKS = "once"
N_ROWS = 500
MANY_REFINEMENTS = "HLR, paper's parameters, T = 10"
METHODS: dict[str, HLRegressor | HLRegressorCV] = {
    AS_PAPER: SOLVER_METHODS[AS_PAPER],
    MANY_REFINEMENTS: HLRegressor(**PAPER | {"n_refinements": 10}),
    **{name: SOLVER_METHODS[name] for name in (AS_PRINTED, BY_THUMB, DEFAULT, CHOSEN)},
}
METRICS = ("Dice", "error", "RMSE", "labels removed, %")


@dataclass(frozen=True)
class Result:
    """What one method made of one draw.

    Attributes
    ----------
    figures : tuple of float
        In the order of `METRICS`, the error on fresh rows.
    training_error : float
        ‖ŷ − y‖/‖y‖ on the training rows.
    kept_dice : float
        Dice of the turned labels and those that were kept.
    warned : list of str
    """

    figures: tuple[float, ...]
    training_error: float
    kept_dice: float
    warned: list[str]


Results = dict[tuple[int, str], list[Result]]


def curve(run: Run) -> Outcome:
    """Noisy curve fitting, Dice and error at 1 to 75 % turned signs."""
    seeds = SEEDS[:3] if run.quick else SEEDS
    tasks = list(product(PERCENTS, seeds))
    found: Results = {}
    with two_processes() as pool:
        for (percent, seed), results in zip(tasks, pool.map(fit_all, tasks), strict=True):
            for method, result in results.items():
                found.setdefault((percent, method), []).append(result)
            if seed == seeds[-1]:
                run.report(f"{percent} % of signs turned: {len(seeds)} draws")
    table = Table(
        name="curve",
        title="Noisy curve fitting, n = 500 (tab:QS)",
        keys=("turned", "method"),
        cells=_cells(found),
        digits={"labels removed, %": 1},
        notes=_notes(found, seeds),
    )
    return Outcome(
        name="curve",
        title="Noisy curve fitting",
        protocol=__doc__ or "",
        tables=[table],
        figures={"dice": _figure(found)},
        findings=_findings(found),
    )


def turned_split(n: int, percent: float, seed: int) -> tuple[Split, np.ndarray]:
    """n training rows, some labels with the wrong sign, and a mask of which, shape (n,).

    The rows to predict are the n training rows, then n fresh ones; the truth has no noise.
    """
    X, y, rng = linear_rows(2 * n, seed)
    turned = np.zeros(n, dtype=bool)
    turned[rng.permutation(n)[: round(percent * n / 100)]] = True
    return Split(X[:n], np.where(turned, -y[:n], y[:n]), X, y), turned


def dice(found: np.ndarray, wanted: np.ndarray) -> float:
    """2|A ∩ B| / (|A| + |B|) of two masks; 1 if both are empty."""
    total = found.sum() + wanted.sum()
    return 2.0 * float((found & wanted).sum()) / float(total) if total else 1.0


def fit_all(task: tuple[int, int]) -> dict[str, Result]:
    """All methods on the draw (percent, seed)."""
    percent, seed = task
    split, turned = turned_split(N_ROWS, percent, seed)
    results = {}
    for name, prototype in METHODS.items():
        method = Fit(prototype)
        fresh, training, rmse = errors(split.scored(method), N_ROWS)
        removed = method.model.removed_
        results[name] = Result(
            (dice(removed, turned), fresh, rmse, 100.0 * float(removed.mean())),
            training,
            dice(~removed, turned),
            method.warned,
        )
    return results


# --- what is shown ----------------------------------------------------------------------


def _figures_of(results: Sequence[Result]) -> np.ndarray:
    """Figures of shape (n_draws, n_metrics)."""
    return np.array([result.figures for result in results])


def _cells(found: Results) -> list[Cell]:
    rows, cells = facts("curve"), []
    for (percent, method), results in found.items():
        values = _figures_of(results)
        mean, error = values.mean(axis=0), standard_error(values)
        for j, metric in enumerate(METRICS):
            paper = fact(rows, metric=metric, percent=str(percent))
            keys = (f"{percent} %", method)
            cells.append(Cell(keys, metric, float(mean[j]), paper, float(error[j])))
    return cells


def _mean(found: Results, percent: int, method: str, metric: str) -> float:
    return float(_figures_of(found[percent, method])[:, METRICS.index(metric)].mean())


def _notes(found: Results, seeds: Sequence[int]) -> list[str]:
    everything = [result for results in found.values() for result in results]
    apart = max(abs(result.figures[1] - result.training_error) for result in everything)
    removed = _mean(found, 75, DEFAULT, "labels removed, %")
    halves = _figures_of(found[50, MANY_REFINEMENTS])[:, METRICS.index("error")]
    sides = int(np.sum(halves < 0.5)), int(np.sum(halves > 1.5))
    kept = float(np.mean([result.kept_dice for result in found[75, DEFAULT]]))
    return [
        *(
            [f"Quick run: {len(seeds)} of {len(SEEDS)} draws."]
            if len(seeds) < len(SEEDS)
            else []
        ),
        f"Mean and standard error over {len(seeds)} draws, seeds {seeds[0]} to {seeds[-1]}. "
        "Error: ‖ŷ − y‖/‖y‖ on 500 fresh rows against y without noise; on the training rows it "
        f"differs by {apart:.3f} at most. The paper does not define its error.",
        "The paper's figures stand beside every row of HLR: it does not give λ, γ, T and Δξ "
        f"for this table. {AS_PAPER}: those of its comparison with CVX, T = 1. One refinement "
        "lowers ξ once by 0.1; with 25 % of the signs turned it removes "
        f"{_mean(found, 25, AS_PAPER, 'labels removed, %'):.1f} % of the labels. "
        f"{MANY_REFINEMENTS}: T was raised on other seeds (100 to 102) until nothing more "
        "happened.",
        *PARAMETER_NOTES,
        "At 50 % β and −β explain half of the labels each: nothing in the labels tells them "
        f"apart. The default removes {_mean(found, 50, DEFAULT, 'labels removed, %'):.1f} % of "
        f"the labels and has an error of {_mean(found, 50, DEFAULT, 'error'):.2f}; that of "
        f"ŷ = 0 is 1. {MANY_REFINEMENTS}, falls to one side: to β (error below 0.5) in "
        f"{sides[0]}, to −β (above 1.5) in {sides[1]} of {len(seeds)} draws. A Dice of 0.67, "
        "the paper's, is also what removing all labels gives.",
        f"At 75 % the turned labels are the majority: the default takes −β for the curve and "
        f"removes {removed:.1f} % of the labels, the right ones. Its Dice is "
        f"{_mean(found, 75, DEFAULT, 'Dice'):.2f}; that of the labels it kept with the turned "
        f"ones is {kept:.2f}.",
        *warnings_note(
            (text for result in everything for text in result.warned), len(everything)
        ),
        "Nothing was tuned to these draws: development used other seeds. The project's "
        "benchmark of labels measured the default on the same ten seeds before. Apart from "
        f"that these draws were scored {LOOKS} before the committed run.",
    ]


def _findings(found: Results) -> list[str]:
    rows = facts("curve")
    findings = []
    for method in METHODS:
        reached = []
        for metric, sign in (("Dice", 1.0), ("error", -1.0)):
            given = [
                p for p in PERCENTS if fact(rows, metric=metric, percent=str(p)) is not None
            ]
            good = [
                p
                for p in given
                if sign * _mean(found, p, method, metric)
                >= sign * (fact(rows, metric=metric, percent=str(p)) or 0.0) - 1e-9
            ]
            listed = ", ".join(f"{p}" for p in good)
            reached.append(
                f"{metric} at {len(good)} of {len(given)} rates"
                + (f" ({listed} %)" if good else "")
            )
        findings.append(f"{method} reaches the paper's {' and its '.join(reached)}.")
    low = min(_mean(found, p, DEFAULT, "Dice") for p in PERCENTS if p < 50)
    high = [f"{_mean(found, p, DEFAULT, 'Dice'):.2f}" for p in (50, 75)]
    findings.append(
        f"Below 50 % the mean Dice of the default is {low:.3f} at least; at 50 and 75 %, where "
        f"the labels do not tell right from wrong, it is {high[0]} and {high[1]}."
    )
    return findings


def _figure(found: Results) -> Any:
    """Dice and error over the share of turned labels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = ("Dice of removed and turned labels", "‖ŷ − y‖ / ‖y‖ on fresh rows")
    for axes, metric, title in zip(panels, ("Dice", "error"), titles, strict=True):
        _draw_methods(axes, found, metric)
        rows = [row for row in facts("curve") if row["metric"] == metric]
        axes.plot(
            [int(row["percent"]) for row in rows], [float(row["value"]) for row in rows],
            "s--", color="#0072B2", ms=5, label="the paper",
        )  # fmt: skip
        axes.set(xlabel="labels with the wrong sign, %")
        axes.set_xticks(PERCENTS, [str(percent) for percent in PERCENTS])
        axes.set_title(title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center", ncols=4, frameon=False, fontsize=8,
        title="Bars: least and greatest of the draws", title_fontsize=8,
    )  # fmt: skip
    return figure


def _draw_methods(axes: Any, found: Results, metric: str) -> None:
    """One line a method, moved sideways a little: bars would hide each other."""
    place = METRICS.index(metric)
    colours = COLOURS | {MANY_REFINEMENTS: "#56B4E9"}
    for shift, method in zip(np.linspace(-1.0, 1.0, len(METHODS)), METHODS, strict=True):
        values = np.array([_figures_of(found[p, method])[:, place] for p in PERCENTS])
        mean = values.mean(axis=1)
        axes.errorbar(
            np.array(PERCENTS) + shift, mean,
            yerr=np.abs([mean - values.min(axis=1), values.max(axis=1) - mean]),
            marker="o", ms=4, capsize=2, lw=1.4, color=colours[method], label=method,
        )  # fmt: skip
