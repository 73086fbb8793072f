"""A table of judged labels -> one self-contained page.

Nothing is fitted here: the numbers come in a `Report`, and `render` sets them in HTML, with
what `markup` has for all pages. The pictures need no script; the script sorts, searches and
opens the rows of the table.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.report import markup
from activehuber.report.markup import Axis, format_number, html_text, percent, plain_text

# What keeps the page below 2 MB, whatever the table holds.
MAX_LINES = 2_000
MAX_LINES_BYTES = 1_000_000
MAX_KEPT_MARKS = 3_000
MAX_FLAGGED_MARKS = 800
MAX_PATH_POINTS = 1_000
MAX_NEIGHBOURS = 10
MAX_CLASSES = 12

# Rows written as HTML too: what a reader without JavaScript sees.
STATIC_LINES = 50

# Columns whose numbers are typically as large as this are written with powers of ten.
LONGEST_TYPICAL = 10_000_000

VERDICTS = ("flagged", "cannot judge", "kept", "trusted")

# What is known of a label, and one of them.
COLUMNS = ("row", "given", "expected", "lower", "upper", "residual", "left_at", "quality",
           "verdict", "reason", "neighbours")  # fmt: skip
Line = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Points:
    """All labels, for the pictures.

    Attributes
    ----------
    row : ndarray of shape (n_labelled,)
        Ids or row numbers.
    given, expected : ndarray of shape (n_labelled,)
        For classes: their numbers, counted from 0 along `classes`.
    residual : ndarray of shape (n_labelled,)
        Leave-one-out residuals in units of σ̂.
    flagged : ndarray of shape (n_labelled,), bool
    threshold : float
        ξ in the unit of `residual`: the band of the picture. NaN or inf: no band.
    classes : tuple of str
        Empty for regression.
    """

    row: np.ndarray
    given: Vector
    expected: Vector
    residual: Vector
    flagged: Mask
    threshold: float
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = (self.row, self.given, self.expected, self.residual, self.flagged)
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise ValueError(f"the arrays of Points must be of one length, got {lengths}")


@dataclass(frozen=True)
class Summary:
    """An audit in numbers and sentences.

    Attributes
    ----------
    kind : {"regression", "classification"}
    target : str
    n_rows, n_labelled, n_unlabelled, n_flagged, n_trusted : int
    n_features : int
        Numbers a row after the features were made.
    scale : float or None
        σ̂, the noise of the labels in units of the target; None for classes.
    threshold : float or None
        ξ of the fit; None where every class has its own.
    explained : float
        Share of the variance of the kept labels that the other rows explain (leave-one-out);
        for classes the share of kept labels that the other rows agree with.
    parameters : dict
        What was chosen.
    findings, notes : tuple of str
        What was chosen and how sure it is; what was done to the table, and warnings.
    settings : tuple of (name, value)
        All that is needed to get the same numbers again.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import audit
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[7] = np.nan
    >>> summary = audit(X, y).summary
    >>> summary.kind, summary.n_labelled, summary.n_unlabelled
    ('regression', 59, 1)
    """

    kind: str
    target: str
    n_rows: int
    n_labelled: int
    n_unlabelled: int
    n_flagged: int
    n_trusted: int
    n_features: int
    scale: float | None
    threshold: float | None
    explained: float
    parameters: dict[str, Any]
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if self.kind not in ("regression", "classification"):
            raise ValueError(
                f'kind must be "regression" or "classification", got {self.kind!r}'
            )


@dataclass(frozen=True)
class Report:
    """All that the page says.

    Attributes
    ----------
    title : str
        For example the name of the file.
    summary : Summary
        What it says in numbers and sentences.
    lines : sequence of dict
        All labels or the worst ones, worst first: what was given, what was expected, and what
        to think of it.

        row : str
            Id or row number.
        given, expected : float or str
            str: the name of a class.
        lower, upper : float or None
            Ends of the interval around `expected`; None or NaN for classes.
        residual : float
            Leave-one-out residual in units of σ̂.
        left_at : float or None
            Threshold at which the label left the free set; None or NaN: never within the path.
        quality : float
            In [0, 1], low is bad.
        verdict : {"flagged", "kept", "trusted", "cannot judge"}
        reason : str
            A sentence.
        neighbours : sequence of (str, float or str, float)
            The labelled rows most similar to it, most similar first: their id or row number,
            their label, and the kernel value relative to the row's own, in [0, 1].
    points : Points
    path : (array-like of float, array-like of int) or None
        Decreasing thresholds, in units of the target, and the free labels at each of them.
    """

    title: str
    summary: Summary
    lines: Sequence[Line]
    points: Points
    path: tuple[Vector | Sequence[float], np.ndarray | Sequence[int]] | None


def render(report: Report) -> str:
    """One self-contained HTML page, all text of the user escaped.

    Parameters
    ----------
    report : Report

    Returns
    -------
    str
        To be written as UTF-8. Below 2 MB: the table holds the worst 2,000 labels (fewer if
        their texts are long), and the pictures a sample of the labels that were kept.
    """
    summary, shown, digits = report.summary, _records(report.lines), _digits_of(report)
    n_labelled, first = summary.n_labelled, shown[:STATIC_LINES]
    there = "All labels are here, and in"
    if len(shown) != n_labelled:
        there = f"The {len(shown):,} worst of {n_labelled:,} labels are here; all are in"
    verdicts = Counter(record["verdict"] for record in shown)
    links = {report.lines[k]["row"]: k for k in reversed(range(len(shown)))}
    fits = summary.kind == "regression"
    plots = _fit_plot(report.points, links, digits) if fits else _class_table(report.points)
    # Columns that hold nothing are not shown.
    names = ("lower", "left_at")
    empty = [f"without-{n}" for n in names if all(record[n] is None for record in shown)]
    lines = [list(record.values()) for record in shown]
    settings = markup.definitions(summary.settings, "settings")
    return markup.fill_page(
        "report",
        report.title,
        _headline(summary.n_flagged, n_labelled),
        data=_json({"columns": COLUMNS, "digits": digits, "lines": lines}),
        target=html_text(summary.target),
        figures=_figures(report, digits),
        findings=markup.sentence_list(summary.findings),
        plots=plots + _residual_plot(report, links) + _path_plot(report, digits),
        table_note=f"{there} labels.csv.",
        static_note=f"JavaScript is off: these are the {len(first)} worst labels. "
        "All of them are in labels.csv.",
        table_class=" ".join([summary.kind, *empty]),
        verdict_options="".join(
            f'<option value="{verdict}">{verdict.capitalize()} ({verdicts[verdict]:,})</option>'
            for verdict in VERDICTS
            if verdict in verdicts
        ),
        rows="".join(_static_row(rank, record, digits) for rank, record in enumerate(first, 1)),
        notes=markup.section("What was done to the table", markup.sentence_list(summary.notes)),
        settings=markup.section("Settings and proof", settings),
    )


def _headline(n_flagged: int, n_labelled: int) -> str:
    if n_labelled < 2 and not n_flagged:
        return "The only label is not flagged" if n_labelled else "There are no labels"
    if not n_flagged:
        return f"None of the {n_labelled:,} labels is flagged"
    labels = "label" if n_labelled == 1 else "labels"
    are = "is" if n_flagged == 1 else "are"
    return f"{n_flagged:,} of {n_labelled:,} {labels} {are} flagged"


# --- numbers --------------------------------------------------------------------------------


# Decimals by the kind of number: one for a whole column, so that points align.
Digits = dict[str, int]


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _decimals(values: Iterable[float | str | None]) -> int:
    """Decimals that give typical values four significant digits, or `POWERS` of ten."""
    numbers = [abs(v) for v in values if not isinstance(v, str) and v is not None]
    numbers = [v for v in numbers if 0.0 < v < math.inf]
    if not numbers:
        return 2
    # The median: a few absurd labels, which this page is about, must not decide.
    typical = float(np.median(numbers))
    # All of a column in one way; `format_number` spares only what is far too long.
    if typical >= LONGEST_TYPICAL:
        return markup.POWERS
    return max(3 - math.floor(math.log10(typical)), 0)


def _digits_of(report: Report) -> Digits:
    lines = report.lines[:MAX_LINES]
    expected = _decimals(line["expected"] for line in lines)
    given = [line["given"] for line in lines if not isinstance(line["given"], str)]
    whole = all(float(v).is_integer() for v in given if math.isfinite(v))
    xi = report.summary.threshold if report.path else None
    thresholds = [xi] if _finite(xi) else [line["left_at"] for line in lines]
    return {
        "given": 0 if whole and expected != markup.POWERS else expected,
        "expected": expected,
        "threshold": _decimals(thresholds),
    }


def _figures(report: Report, digits: Digits) -> str:
    """The numbers of the summary."""
    summary = report.summary
    share = summary.n_flagged / summary.n_labelled if summary.n_labelled else 0.0
    pairs = [
        ("Rows", f"{summary.n_rows:,}"),
        ("With a label", f"{summary.n_labelled:,}"),
        ("Without one", f"{summary.n_unlabelled:,}"),
        ("Flagged", f"{100 * share:.1f} %"),
    ]
    if _finite(summary.scale):
        # Three digits: it is an estimate.
        scale = float(f"{summary.scale:.3g}")
        pairs.append(("Noise σ̂", format_number(scale, max(_decimals([scale]) - 1, 0))))
    if report.path and _finite(summary.threshold):
        pairs.append(("Threshold ξ", format_number(summary.threshold, digits["threshold"])))
    return markup.definitions(pairs, "figures")


# --- the table ------------------------------------------------------------------------------


def _json(value: object) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _cell(value: float | str | None) -> float | str | None:
    """Short text, or a number that is short and finite, or None: JSON knows no NaN."""
    if isinstance(value, str):
        return plain_text(value)
    return float(f"{value:.7g}") if _finite(value) else None


def _records(lines: Sequence[Line]) -> list[Line]:
    """The worst lines as the page has them, as many as its size allows."""
    out, used = [], 0
    for line in lines[:MAX_LINES]:
        record = {name: _cell(line[name]) for name in COLUMNS[:-1]}
        if not isinstance(line["given"], str) and _finite(line["given"]):
            record["given"] = float(line["given"])  # as it was
        record["reason"] = plain_text(line["reason"], markup.LONGEST_SENTENCE)
        near = [list(map(_cell, each)) for each in line["neighbours"][:MAX_NEIGHBOURS]]
        used += len(_json([*record.values(), near]).encode())
        if used > MAX_LINES_BYTES:
            break
        out.append({**record, "neighbours": near})
    return out


def _static_row(rank: int, record: Line, digits: Digits) -> str:
    """A row for readers without JavaScript: the reason is open. report.js makes its own."""
    both = [(record[name], digits[name]) for name in ("given", "expected")]
    shown = [escape(v) if isinstance(v, str) else format_number(v, n) for v, n in both]
    ends = [format_number(record[name], digits["expected"]) for name in ("lower", "upper")]
    interval = markup.MISSING if markup.MISSING in ends else " to ".join(ends)
    cells = [
        ("rank", str(rank)),
        ("row", escape(record["row"])),
        *(("number label", text) for text in shown),
        ("number wide interval", interval),
        ("number wide", format_number(record["residual"], 2, signed=True)),
        ("number wide left-at", format_number(record["left_at"], digits["threshold"])),
        ("number wide", format_number(record["quality"], 3)),
    ]
    word = html_text(record["verdict"])
    verdict = f'<td class="verdict {word}"><span>{word}</span></td>'
    body = "".join(f'<td class="{name}">{text}</td>' for name, text in cells)
    reason = f'<tr class="detail"><td colspan="9">{html_text(record["reason"], 200)}</td></tr>'
    return f'<tr class="line">{body}{verdict}</tr>{reason}'


# --- pictures -------------------------------------------------------------------------------


LEGEND = '<ul class="legend"><li class="kept">kept</li><li class="removed">flagged</li></ul>'


def _scatter(
    points: Points,
    x: Vector,
    y: Vector,
    include_y: Sequence[float],
    lines: dict[str, int],
    hint: Callable[[int], str],
) -> tuple[str, tuple[Axis, Axis], str]:
    """Marks, axes, and a sentence on what is not drawn.

    Those farthest out are always there; of the others a sample that is the same in each run.
    """
    rng, others = np.random.default_rng(0), ~points.flagged
    drawable, marked, parts = np.isfinite(x) & np.isfinite(y), [], []
    for mask, most, words in (
        (others, MAX_KEPT_MARKS, "kept labels are drawn"),
        (points.flagged, MAX_FLAGGED_MARKS, "that are flagged"),
    ):
        index, count = np.flatnonzero(drawable & mask), np.count_nonzero(mask)
        if len(index) > most:
            far = np.argsort(-np.abs(np.nan_to_num(points.residual[index])), kind="stable")
            rest = rng.choice(far[most // 10 :], most - most // 10, replace=False)
            index = np.sort(index[np.concatenate([far[: most // 10], rest])])
        if len(index) < count:
            parts.append(f"{len(index):,} of {count:,} {words}")
        marked.append(index)
    told = f" {' and '.join(parts)}." if parts else ""
    axes = markup.axis_for(x, x[others]), markup.axis_for(y, y[others], include_y)
    drawn, n_kept = np.concatenate(marked), len(marked[0])
    pairs = [(axis, values[drawn]) for axis, values in zip(axes, (x, y), strict=True)]
    outside = np.sum(np.any([(v < axis.low) | (v > axis.high) for axis, v in pairs], axis=0))
    if outside:
        lie, them = ("lies", "it is") if outside == 1 else ("lie", "they are")
        told += f" {outside:,} {lie} farther out; {them} drawn at the edge."
    across, up = (axis.place(v) for axis, v in pairs)
    crosses = "".join(
        markup.cross(a, b, lines.get(str(row)), f"Row {html_text(row, 40)}: {hint(place)}")
        for place, row, a, b in zip(
            marked[1].tolist(), points.row[marked[1]], across[n_kept:], up[n_kept:], strict=True
        )
    )
    marks = markup.dots(across[:n_kept], up[:n_kept])
    return f'{marks}<g class="crosses">{crosses}</g>', axes, told


def _fit_plot(points: Points, lines: dict[str, int], digits: Digits) -> str:
    def hint(i: int) -> str:
        given, expected = points.given[i], points.expected[i]
        return (
            f"given {format_number(given, digits['given'])}, "
            f"expected {format_number(expected, digits['expected'])}"
        )

    marks, axes, told = _scatter(points, points.given, points.expected, (), lines, hint)
    low, high = max(axis.low for axis in axes), min(axis.high for axis in axes)
    if low < high:
        x1, x2 = (percent(axes[0].place(v)) for v in (low, high))
        y1, y2 = (percent(1 - axes[1].place(v)) for v in (low, high))
        marks = f'<line class="guide" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>{marks}'
    caption, labels = f"On the dashed line both agree.{told}", ("Given", "Expected")
    return markup.plot("fit", "Expected against given", caption, labels, axes, marks, LEGEND)


def _residual_plot(report: Report, lines: dict[str, int]) -> str:
    points = report.points
    residual, by_value = points.residual, report.summary.kind == "regression"
    x = points.expected if by_value else np.arange(1.0, len(residual) + 1.0)

    def hint(i: int) -> str:
        return f"residual {format_number(residual[i], 2, signed=True)} σ̂"

    xi = points.threshold if _finite(points.threshold) else None
    include = (0.0,) if xi is None else (-xi, 0.0, xi)
    marks, axes, told = _scatter(points, x, residual, include, lines, hint)
    zero = percent(1 - axes[1].place(0.0))
    band = f'<line class="guide" x1="0" x2="100%" y1="{zero}" y2="{zero}"/>'
    caption = "Each is the distance of a label from the fit made without it."
    if xi is not None:
        top, bottom = (1 - float(axes[1].place(v)) for v in (xi, -xi))
        band = (
            f'<rect class="band" x="0" width="100%" y="{percent(top)}" '
            f'height="{percent(bottom - top)}"/>{band}'
        )
        caption += f" The band is the threshold, ±ξ = ±{format_number(xi, 2)} σ̂."
    across = "Expected" if by_value else "Label, in the order of the table"
    labels, caption = (across, "Leave-one-out residual, in σ̂"), caption + told
    return markup.plot("residuals", "Residuals", caption, labels, axes, band + marks, LEGEND)


def _path_plot(report: Report, digits: Digits) -> str:
    steps, free = (np.asarray(v, dtype=float) for v in report.path or ((), ()))
    usable = (steps > markup.SMALLEST) & (steps < markup.LARGEST)
    if not np.any(usable):
        return ""
    steps, free = steps[usable], free[usable]
    every = np.unique(np.linspace(0, len(steps) - 1, MAX_PATH_POINTS).round().astype(int))
    steps, free = steps[every], free[every]
    xi = report.summary.threshold
    chosen = xi if xi is not None and markup.SMALLEST < xi < markup.LARGEST else None
    ends = steps if chosen is None else np.append(steps, chosen)
    low, high = float(ends.min()), float(ends.max())
    x_axis = markup.axis_for(ends, ends, (low, high))
    if high > 20 * low:
        x_axis = Axis(low / 1.1, high * 1.1, log=True)
    y_axis = Axis(0.0, max(float(free.max()) * 1.06, 1.0))
    xs = np.round(1000 * x_axis.place(steps), 1)
    ys = np.round(1000 * (1 - y_axis.place(free)), 1)
    stairs = "".join(f"H{a:g}V{b:g}" for a, b in zip(xs[1:], ys[1:], strict=True))
    marks = (
        '<svg class="stairs" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'width="100%" height="100%"><path d="M{xs[0]:g} {ys[0]:g}{stairs}"/></svg>'
    )
    caption = "As the threshold falls, more labels reach it and stop pulling harder."
    if chosen is not None:
        at = float(x_axis.place(chosen))
        side, shift = ("end", 2) if at > 0.5 else ("start", -2)
        shown = format_number(chosen, digits["threshold"])
        marks += (
            f'<line class="chosen" x1="{percent(at)}" x2="{percent(at)}" y1="0" y2="100%"/>'
            f'<text class="chosen" x="{percent(at)}" y="0" dx="{shift}" dy="-7" '
            f'text-anchor="{side}">chosen ξ = {shown}</text>'
        )
        caption += " The dashed line is the threshold of this fit."
    labels = "Threshold ξ" + ", logarithmic" * x_axis.log, "Free labels"
    return markup.plot("path", "Threshold path", caption, labels, (x_axis, y_axis), marks)


def _class_table(points: Points) -> str:
    """Given against expected classes: counts, and how many of them are flagged."""
    usable = np.isfinite(points.given) & np.isfinite(points.expected)
    given, expected = (v[usable].astype(int) for v in (points.given, points.expected))
    n = len(points.classes)
    if not n:
        return ""
    # The most frequent classes by name, the others gathered in a last one.
    frequency = np.bincount(np.concatenate([given, expected]), minlength=n)
    named = np.sort(np.argsort(-frequency, kind="stable")[:MAX_CLASSES])
    place = np.full(n, len(named))
    place[named] = np.arange(len(named))
    names = [html_text(points.classes[k], 40) for k in named]
    if n > len(named):
        names.append(f"{n - len(named):,} others")
    size = len(names)
    cell = place[given] * size + place[expected]
    counts = np.bincount(cell, minlength=size**2).reshape(size, size)
    flagged = np.bincount(cell[points.flagged[usable]], minlength=size**2).reshape(size, size)
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = "".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(_class_cell(counts[i], flagged[i], i, j) for j in range(size))
        + "</tr>"
        for i, name in enumerate(names)
    )
    return Template(markup.resource("classes.html")).substitute(heads=heads, rows=rows)


def _class_cell(counts: np.ndarray, flagged: np.ndarray, i: int, j: int) -> str:
    heat, same = math.ceil(5 * counts[j] / max(int(counts.sum()), 1)), " same" * (i == j)
    doubt = (
        f' <span class="mark"><span aria-hidden="true">✕</span>'
        f'<span class="unseen">flagged: </span>{flagged[j]:,}</span>'
    )
    return f'<td class="heat-{heat}{same}">{counts[j]:,}{doubt * bool(flagged[j])}</td>'
