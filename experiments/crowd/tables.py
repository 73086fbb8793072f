"""Results as tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from activehuber.crowd.preparation import features_in_words
from activehuber.data.rows import cores
from experiments.crowd.measures import (
    FAR,
    REPLACED,
    TIMED_ROWS,
    TIMES,
    Curve,
    Disturbed,
    Speed,
    mean,
    mean_mae,
    seeds,
)
from experiments.crowd.tasks import (
    ALONE,
    COVERAGE,
    KRR,
    WITH,
    WITHOUT,
    Result,
    Task,
    counter_of,
)
from experiments.paper.outcome import Cell, Run, Table, fact, facts

# What is wanted: errors to reach and to aim at, growth of the error by wrong counts.
METRICS = ("MAE", "MSE", "MRE")
WANTED = {"reach": (2.4, 9.2, 0.080), "aim": (1.9, 6.0, 0.062)}
MOST_GROWTH = 5.0
DIGITS = {
    "MAE": 2,
    "MSE": 2,
    "MRE": 4,
    "lowest MAE": 2,
    "highest MAE": 2,
    "removed, %": 1,
    "coverage, %": 1,
    "fit, s": 2,
    "predict, s": 3,
    "growth, %": 1,
    "precision, %": 1,
    "recall, %": 1,
    f"recall beyond {FAR:g}, %": 1,
    "measured": 1,
    "wanted": 0,
}


# --- tables -----------------------------------------------------------------------------


def cells_of(keys: tuple[str, ...], figures: dict[str, float | None]) -> list[Cell]:
    """One row; figures that are not there are left out."""
    return [Cell(keys, name, value) for name, value in figures.items() if value is not None]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _errors(result: Result) -> dict[str, float | None]:
    return dict(zip(METRICS, result.errors, strict=True))


def comparison_table(main: dict[str, Result], notes: list[str]) -> Table:
    """All methods with all training counts, beside what the paper prints."""
    cells = []
    for name, result in main.items():
        # Both of ours stand beside the paper's HLR, as they are the same kind of model.
        paper = _printed("HLR") if result.answer.counter else {}
        errors = zip(METRICS, result.errors, strict=True)
        cells += [Cell((name,), metric, ours, paper.get(metric)) for metric, ours in errors]
        figures = {
            "removed, %": _percent(result.removed_share),
            "coverage, %": _percent(result.coverage),
            "fit, s": result.answer.fit_seconds,
            "predict, s": result.answer.predict_seconds,
        }
        cells += cells_of((name,), figures)
    quoted = ("MORR, given features (quoted)",)
    cells += [Cell(quoted, metric, None, value) for metric, value in _printed("MORR").items()]
    settings = [f"{name}: {chosen(main[name])}" for name in (WITH, WITHOUT)]
    return Table("mall", "Mall, frames to count", ("method",), cells, DIGITS, notes + settings)


def _printed(method: str) -> dict[str, float | None]:
    """Errors of a method on Mall in the paper, from the features published with it."""
    rows = facts("crowd_multi")
    return {m: fact(rows, set="MALL", method=method, metric=m) for m in METRICS}


def chosen(result: Result) -> str:
    """The setting of one of ours, in a sentence."""
    counter = counter_of(result)
    setting = counter.setting
    views = " and ".join(setting.joint) or "a kernel a view"
    if setting.weights:
        views += f" with learnt weights {', '.join(f'{c:.2f}' for c in setting.weights)}"
    return (
        f"{views}; {features_in_words(setting)}, width {setting.width:g}, ridge "
        f"{setting.ridge:g}, chain {setting.chain:g}, agreement {setting.agreement:g}; "
        f"{counter.n_counted} of {len(counter.numbers)} frames in the fit are counted; "
        f"mean absolute error on folds of training frames {counter.held_out:.2f}."
    )


def curve_table(curve: Curve) -> Table:
    """Errors by number of counted frames."""
    cells = []
    for size, draws in curve.items():
        for name in draws[0]:
            figures = [
                _errors(draw[name])
                | {
                    "coverage, %": _percent(draw[name].coverage),
                    "fit, s": draw[name].answer.fit_seconds,
                }
                for draw in draws
            ]
            means = {key: mean_or_none([each[key] for each in figures]) for key in figures[0]}
            maes = [draw[name].scored.mae for draw in draws]
            means |= {"lowest MAE": min(maes), "highest MAE": max(maes)}
            cells += cells_of((str(size), name), means)
    notes = [
        "Counted frames are spread evenly over the training frames. Means over draws, which "
        "differ in where the first counted frame lies: "
        f"{', '.join(f'{len(draws)} of {size}' for size, draws in curve.items())}."
    ]
    notes += [
        f"{size} counted, draw {number}, {WITH}: {chosen(draw[WITH])}"
        for size, draws in curve.items()
        for number, draw in enumerate(draws, 1)
    ]
    return Table(
        "learning", "Learning curve", ("counted frames", "method"), cells, DIGITS, notes
    )


def robustness_table(robust: dict[str, dict[int, Disturbed]]) -> Table:
    """Errors with replaced counts, and how many of these were found."""
    cells = []
    for name, disturbed in robust.items():
        clean = next(iter(disturbed.values())).clean
        cells += cells_of((name, "as given"), _errors(clean) | _removed(clean))
        for seed, each in disturbed.items():
            figures = _errors(each.result) | _removed(each.result)
            figures |= {
                "growth, %": each.growth,
                "precision, %": _percent(each.precision),
                "recall, %": _percent(each.recall()),
                f"recall beyond {FAR:g}, %": _percent(each.recall(FAR)),
            }
            cells += cells_of((name, f"replaced, seed {seed}"), figures)
    notes = [
        f"{100 * REPLACED:.0f} % of the training counts are replaced by whole numbers drawn "
        "uniformly between the smallest and the largest of them. Growth is that of the MAE "
        "over the same method with counts as given.",
        "Precision and recall are those of the removed counts: a count is wrong if it was "
        f"replaced by another number; the last recall asks for those off by more than {FAR:g}.",
    ]
    notes += [f"Seed {seed}: {chosen(each.result)}" for seed, each in robust[WITH].items()]
    keys = ("method", "counts")
    return Table("robustness", "Wrong training counts", keys, cells, DIGITS, notes)


def _removed(result: Result) -> dict[str, float | None]:
    return {"removed, %": _percent(result.removed_share)}


def speed_table(speed: Sequence[Speed]) -> Table:
    """Measured beside wanted."""
    cells = []
    for each in speed:
        words = each.what
        if each.wanted is not None:
            words += " (at least)" if each.at_least else " (at most)"
        figures = {"measured": each.measured, "wanted": each.wanted}
        cells += cells_of((words,), figures)
    notes = [
        f"On {cores()} cores. Features: reading the files, finding the empty scene, all views. "
        f"Fit: {WITH}. Prediction: {TIMED_ROWS:,} rows, best of {TIMES}."
    ]
    return Table("speed", "Speed", ("what",), cells, DIGITS, notes)


def protocol_notes(run: Run, task: Task) -> list[str]:
    """Protocol and seeds."""
    numbers, cut = task.described.numbers, task.n_train
    found = [
        f"Frames {numbers[0]}–{numbers[cut - 1]} train, {numbers[cut]}–{numbers[-1]} are "
        f"counted; {task.described.values.shape[1]} features a frame. MRE is the mean of "
        "|error| / count over frames with people in them. Removed: share of the counts given "
        f"that were flagged. Coverage: share of the counts inside the "
        f"{100 * COVERAGE:.0f} % intervals. Fit includes the choice of parameters, prediction "
        "is of all frames and includes the preparation of features.",
        "The paper's figures are its HLR (beside ours) and MORR, the best classical method in "
        "its table, both from the 30 features a frame that were published with the sequence.",
        f"Seeds of the replaced counts: {', '.join(map(str, seeds(run)))}; of boosting: 0. "
        "Nothing else is random. Features are made with OpenCV; versions stand with the "
        "circumstances of the run.",
    ]
    if run.quick:
        found.append("Quick: some peers, sizes of the learning curve and seeds are left out.")
    return found


# --- figures ----------------------------------------------------------------------------


def over_time(result: Result) -> Any:
    """Truth and prediction with its interval over the frames to count, in two rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 6.0), layout="constrained")
    rows = figure.subplots(2, 1, sharey=True)
    ends = result.ends if result.ends is not None else np.full((len(result.numbers), 2), np.nan)
    for axis, part in zip(rows, np.array_split(np.arange(len(result.numbers)), 2), strict=True):
        x, label = result.numbers[part], f"{100 * COVERAGE:.0f} % interval"
        axis.fill_between(x, *ends[part].T, color="C0", alpha=0.2, lw=0, label=label)
        axis.plot(x, result.scored.predicted[part], lw=1.0, color="C0", label="predicted")
        axis.plot(x, result.scored.truth[part], ".", ms=3, color="0.25", label="counted")
        axis.set(ylabel="people", xlim=(x[0], x[-1]))
    rows[0].set_title(f"{WITH}: MAE {result.scored.mae:.2f}", loc="left")
    rows[0].legend(loc="upper right", ncols=3, frameon=False)
    rows[0].set_ylim(0.0, None)
    # Room for the legend above all that is drawn.
    rows[0].set_ylim(0.0, 1.15 * rows[0].get_ylim()[1])
    rows[-1].set_xlabel("frame")
    return figure


def curve_figure(curve: Curve) -> Any:
    """Mean absolute error by number of counted frames."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axis = figure.subplots()
    sizes = list(curve)
    styles = {WITH: "o-C0", WITHOUT: "s--C1", ALONE: "v-.C3", KRR: "^:C2"}
    for name, style in styles.items():
        axis.plot(sizes, [mean_mae(draws, name) for draws in curve.values()], style, label=name)
        for size, draws in curve.items():
            each = [draw[name].scored.mae for draw in draws]
            axis.plot([size] * len(each), each, style[0], c=style[-2:], ms=3, alpha=0.4)
    for words, (mae, _, _) in WANTED.items():
        axis.axhline(mae, color="0.6", lw=0.8, zorder=0)
        axis.annotate(
            words,
            (1.0, mae),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color="0.4",
        )
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set(xlabel="counted frames", ylabel="mean absolute error, people")
    axis.set_ylim(0.0, None)
    axis.legend(frameon=False)
    return figure


# --- findings ---------------------------------------------------------------------------


def findings(
    main: dict[str, Result],
    curve: Curve,
    robust: dict[str, dict[int, Disturbed]],
    speed: Sequence[Speed],
) -> list[str]:
    """One sentence each: what was reached and what was not."""
    return [
        *(error_finding(name, main[name]) for name in (WITH, WITHOUT)),
        curve_finding(curve),
        growth_finding(robust),
        *(speed_finding(each) for each in speed if each.wanted is not None),
    ]


def error_finding(name: str, result: Result) -> str:
    """Errors beside those to reach and to aim at."""
    verdicts = []
    for words, limits in WANTED.items():
        within = all(e <= limit for e, limit in zip(result.errors, limits, strict=True))
        listed = " / ".join(f"{limit:g}" for limit in limits)
        verdicts.append(f"{words} {listed}: {_verdict(within)}")
    mae, mse, mre = result.errors
    return (
        f"{_sentence(name)}: {mae:.2f} / {mse:.2f} / {mre:.4f} (MAE / MSE / MRE); "
        f"{'; '.join(verdicts)}."
    )


def curve_finding(curve: Curve) -> str:
    """Where uncounted frames pay: in all, and beyond what they tell of the empty scene."""
    sentences = []
    for words, base in (("", ALONE), ("Beyond the empty scene ", WITHOUT)):
        changes = {
            size: 100.0 * (mean_mae(draws, WITH) / mean_mae(draws, base) - 1.0)
            for size, draws in curve.items()
        }
        listed = ", ".join(f"{change:+.1f} % at {size}" for size, change in changes.items())
        paying = [str(size) for size, change in changes.items() if change < 0.0]
        where = f"pay with {', '.join(paying)} counted frames" if paying else "pay nowhere"
        sentences.append(f"{words}uncounted frames {where}; they change the MAE by {listed}.")
    return " ".join(_sentence(each) for each in sentences)


def growth_finding(robust: dict[str, dict[int, Disturbed]]) -> str:
    """Growth of the error by wrong counts, on average over the seeds."""
    means = {name: mean(e.growth for e in own.values()) for name, own in robust.items()}
    worst = max(each.growth for each in robust[WITH].values())
    return (
        f"With {100 * REPLACED:.0f} % of the training counts replaced the MAE grows by "
        f"{means[WITH]:.1f} % (at worst {worst:.1f} %; {KRR} {means[KRR]:.1f} %); less than "
        f"{MOST_GROWTH:g} % wanted: {_verdict(means[WITH] < MOST_GROWTH)}."
    )


def speed_finding(each: Speed) -> str:
    """Measured beside wanted."""
    side = "at least" if each.at_least else "at most"
    return (
        f"{_sentence(each.what)}: {each.measured:,.1f}; {side} {each.wanted:,.0f} wanted: "
        f"{_verdict(each.reached)}."
    )


def _verdict(within: bool) -> str:
    return "reached" if within else "not reached"


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """The mean; None of what a method does not have."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None
