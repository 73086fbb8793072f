"""An audit in numbers and sentences.

model, table, verdicts, similar rows -> one sentence a label: what was given, what the other
rows say, what similar rows have -> counts, findings, notes, and the settings to get the same
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import scipy
import sklearn

from activehuber._version import __version__
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import Encoded, Options
from activehuber.audit.similar import Similar
from activehuber.audit.verdicts import UNJUDGED, Verdicts
from activehuber.estimators.regressor import HLRegressor
from activehuber.estimators.target_scale import NONE
from activehuber.report.page import Summary
from activehuber.runtime.messages import listed, shortened
from activehuber.views import View

# Below this share of explained variance the features say little.
LITTLE_EXPLAINED = 0.2
FEW_LABELS = 30
# Above these shares flagged a person is told to look first.
MANY_FLAGGED, MOST_OF_A_CLASS = 0.25, 1.0 / 3.0
# Labels of at least this size are written with a power of ten.
LONGEST_PLAIN = 1e9
# A label that is kept this many half-widths off is not kept without a word.
FAR_OFF = 2.0
# Ends of an interval are as far on both sides up to this share of its width.
SAME_SIDES = 1e-6


def summarise(
    choice: ChosenModel,
    table: Encoded,
    judged: Verdicts,
    options: Options,
    notes: tuple[str, ...],
) -> Summary:
    """Counts and sentences on a fit and its verdicts; `notes` say how these were found."""
    n_rows, n_labelled = len(table.rows), len(judged.places)
    threshold, found = choice.estimator.threshold_, [*_on_groups(table), *filter(None, notes)]
    return Summary(
        kind="classification" if judged.classes else "regression",
        target=table.labels.name,
        n_rows=n_rows,
        n_labelled=n_labelled,
        n_unlabelled=n_rows - n_labelled,
        n_flagged=int(np.count_nonzero(judged.flagged)),
        n_trusted=int(np.count_nonzero(judged.trusted)),
        n_features=len(table.features.source_),
        scale=None if judged.classes else judged.usual,
        threshold=None if np.ndim(threshold) else float(threshold),
        explained=judged.explained,
        parameters=choice.parameters,
        findings=tuple(_findings(choice, judged, options.coverage)),
        notes=(*table.features.sentences_, *found, *choice.notes),
        settings=tuple(_settings(choice, table, options).items()),
    )


def _findings(choice: ChosenModel, judged: Verdicts, coverage: float) -> list[str]:
    """Sentences on what was chosen and how sure it is."""
    out, explained, scale = _alarms(judged), judged.explained, choice.scale
    n_labelled = len(judged.places)
    if scale.kind != NONE:
        out.append(f"Labels are judged on the scale of {scale}; ξ is on that scale too.")
    # All of them are among the settings; here is what a reader may want to know.
    dull = {"manifold": 0.0, "threshold": "adaptive"}
    chosen = ", ".join(
        f"{key} {_short(value)}"
        for key, value in choice.parameters.items()
        if key != "view_weights" and not (key in dull and dull[key] == value)
    )
    if chosen:
        on = f"{choice.selection_rows:,} of the {n_labelled:,} labels, drawn at random"
        where = on if choice.selection_rows < n_labelled else "all labels"
        out.append(f"Chosen on {where}: {chosen}.")
    out += _on_approximation(choice.regressor)
    if judged.classes:
        out.append(f"The other rows agree with {explained:.0%} of the labels kept.")
        enough = 1.0 / max(2, len(judged.classes)) + 0.1
    else:
        share, enough = max(0.0, explained), LITTLE_EXPLAINED
        out.append(f"The other rows explain {share:.0%} of the variance of the labels kept.")
        where = "" if scale.kind == NONE else ", where it is of usual size"
        out.append(f"A right label is off by about {rough(judged.usual)} (σ̂{where}).")
        inside = (judged.lower <= judged.given) & (judged.given <= judged.upper)
        if not np.all(judged.flagged):
            out.append(
                f"Intervals aim to hold {coverage:.0%} of right labels; they hold "
                f"{np.mean(inside[~judged.flagged]):.0%} of those kept, each left out in turn."
            )
    unjudged = np.count_nonzero(judged.verdicts == UNJUDGED)
    if unjudged:
        out.append(
            f"{unjudged:,} labels cannot be judged: the other rows say too little there, or "
            "they are far off, but not much more than right ones may be; the reason says which."
        )
    if explained < enough:
        out.append("The columns say little about the target: take the verdicts with care.")
    if n_labelled < FEW_LABELS:
        out.append(f"{n_labelled} labels are few: take the verdicts with care.")
    return out


def _alarms(judged: Verdicts) -> list[str]:
    """What to know before believing any verdict."""
    out = []
    share = float(np.mean(judged.flagged))
    if share > MANY_FLAGGED:
        out.append(
            f"{share:.0%} of the labels are flagged: either many are wrong, or the model does "
            "not fit this table (columns that say little of the target, two populations, mixed "
            "units, a skewed target). Look at ten of them before you believe the rest."
        )
    for number, name in enumerate(judged.classes):
        own = judged.flagged[judged.given == number]
        lost = float(np.mean(own)) if len(own) else 0.0
        if lost > MOST_OF_A_CLASS:
            out.append(
                f"{lost:.0%} of the labels {shortened(name)} are flagged: the columns may not "
                "tell this class from the others. Look at ten of them first."
            )
    return out


def _on_groups(table: Encoded) -> list[str]:
    if table.groups is None:
        return []
    own = table.groups[table.labels.given]
    count, alone = len(np.unique(own[own >= 0])), int(np.count_nonzero(own < 0))
    more = f", and {alone:,} labels that belong to none" if alone else ""
    return [f"Every label is judged by other groups only: there are {count:,}{more}."]


def _on_approximation(regressor: HLRegressor) -> list[str]:
    result = regressor.result_
    approximation, basis = result.settings.approximation, result.targets[0].basis
    if approximation is None or basis is None:
        return []
    spoken = "kernels at" if len(basis.places) > 1 else "kernel at"
    stand = "stand" if len(basis.places) > 1 else "stands"
    words = {
        "nystrom": f"the {spoken} {approximation.n_components:,} rows drawn at random {stand} "
        "for all rows",
        "fourier": f"{basis.width:,} random Fourier features stand for the kernel",
        "linear": "the features themselves stand for the kernel",
    }
    return [f"Approximated ({approximation.kind}): {words[approximation.kind]}."]


def _settings(choice: ChosenModel, table: Encoded, options: Options) -> dict[str, str]:
    regressor, parameters = choice.regressor, choice.parameters
    settings = regressor.result_.settings
    alpha, approximation = settings.alpha, "none"
    if settings.approximation is not None:
        n_functions = len(regressor.result_.targets[0].coefficients)
        approximation = f"{settings.approximation.kind}, {n_functions} functions"
    names = [f"{view.name}: " for view in regressor.views or ()] or [""]
    kernels = [
        f"{name}{view.kernel.name}, gamma {_short(view.kernel.gamma)}"
        for name, view in zip(names, settings.views, strict=True)
    ]
    # What is told of the fit itself is not told twice; its alpha differs from the one chosen
    # where the choice was made on some of the labels.
    said = {"kernel", "gamma", "views"}
    if _short(parameters.get("alpha")) == _short(float(alpha)):
        said.add("alpha")
    return {
        "model": type(choice.estimator).__name__,
        **{f"chosen {k}": _short(v) for k, v in parameters.items() if k not in said},
        "kernel": "; ".join(kernels),
        "scale of the target": str(choice.scale),
        "approximation": approximation,
        "alpha": f"{alpha:.6g}",
        "threshold": _short(regressor.threshold_),
        "labels the choice was made on": str(choice.selection_rows),
        "features": str(len(table.features.source_)),
        "coverage of intervals": f"{options.coverage:g}",
        "seed": str(options.random_state),
        "duality gap": _short(regressor.duality_gap_),
        "KKT residual": _short(regressor.kkt_residual_),
        "data SHA-256": table.digest,
        "activehuber": __version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _short(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    if isinstance(value, (list, tuple)) and all(isinstance(item, View) for item in value):
        return ", ".join(f"{v.name} ({v.kernel}, gamma {_short(v.gamma)})" for v in value)
    if isinstance(value, np.ndarray):
        return listed([_short(item) for item in value.tolist()], 6)
    return shortened(value, 120)


# --- of one label -----------------------------------------------------------------------------


def reasons_of(judged: Verdicts, similar: Similar, table: Encoded) -> list[str]:
    """One sentence a label, in the order of the rows."""
    out = (_class_reasons if judged.classes else _number_reasons)(judged, similar)
    if table.frame is None:  # the cells are not at hand
        return out
    gaps = table.features.missing_in(table.frame, judged.places[similar.wanted])
    for i, names in zip(similar.wanted.tolist(), gaps, strict=True):
        if names:
            out[i] += f"; {listed(names, 3)} {'is' if len(names) == 1 else 'are'} missing here"
    return out


def _number_reasons(judged: Verdicts, similar: Similar) -> list[str]:
    columns = (judged.given, judged.expected, judged.lower, judged.upper)
    out, decimals = [], []
    for given, expected, low, high in zip(*(c.tolist() for c in columns), strict=True):
        half = 0.5 * (high - low)
        digits = _decimals(half, given)
        if abs(high + low - 2.0 * expected) > SAME_SIDES * (high - low):
            width = f", in {_span(low, high, digits)}"
        else:
            width = f" ± {half:.2g}" if digits is None else f" ± {rough(half)}"
        out.append(f"given {_show(given, digits)}, expected {_show(expected, digits)}{width}")
        decimals.append(digits)
    neither = ~(judged.flagged | judged.trusted)
    for i in np.flatnonzero(neither & ~judged.judged).tolist():
        out[i] += "; the other rows say too little of this one"
    for i in np.flatnonzero(judged.spared & judged.judged & ~judged.trusted).tolist():
        out[i] += "; the fit leaves it out, but right labels may be as far off here"
    far = neither & judged.judged & ~judged.spared & (judged.beyond > FAR_OFF)
    for i in np.flatnonzero(far).tolist():
        out[i] += "; far off, as some right labels are here"
    k = similar.near.shape[1]
    if k:
        labels = judged.given[similar.near]
        ends = zip(labels.min(axis=1).tolist(), labels.max(axis=1).tolist(), strict=True)
        spoken = f"{k} most similar rows have" if k > 1 else "most similar row has"
        for i, (low, high) in zip(similar.wanted.tolist(), ends, strict=True):
            out[i] += f"; {spoken} {_span(low, high, decimals[i])}"
    return out


def _class_reasons(judged: Verdicts, similar: Similar) -> list[str]:
    name = [shortened(word) for word in judged.classes]
    given, expected = judged.given.astype(int).tolist(), judged.expected.astype(int).tolist()
    pairs = zip(given, expected, strict=True)
    out = [f"given {name[mine]}, expected {name[theirs]}" for mine, theirs in pairs]
    k = similar.near.shape[1]
    for i, near in zip(similar.wanted.tolist(), similar.near, strict=True) if k else ():
        votes = np.bincount(judged.given[near].astype(int))
        commonest = int(np.argmax(votes))
        out[i] += f"; {votes[commonest]} of the {k} most similar rows have {name[commonest]}"
    return out


def _span(low: float, high: float, digits: int | None) -> str:
    first, last = _show(low, digits), _show(high, digits)
    if first == last:
        return first
    return f"{first} to {last}" if low < 0.0 else f"{first}–{last}"


def _show(value: float, digits: int | None) -> str:
    """A number with so many decimals, or four digits."""
    return f"{value:.4g}" if digits is None else f"{value:.{digits}f}"


def _decimals(unit: float, value: float) -> int | None:
    """Decimals that show two digits of `unit`; None if plain notation would be too long."""
    if not np.isfinite(unit) or unit <= 0.0:
        unit = abs(value) / 100.0 or 1.0
    exponent = int(np.floor(np.log10(unit)))
    if abs(value) >= LONGEST_PLAIN or exponent < -7:
        return None
    return max(0, 1 - exponent)


def rough(value: float) -> str:
    """A width with two or three digits, without an exponent."""
    if not np.isfinite(value) or value == 0.0:
        return f"{value:g}"
    digits = max(0, 1 - int(np.floor(np.log10(abs(value)))))
    return f"{float(f'{value:.3g}') if digits == 0 else value:.{digits}f}"
