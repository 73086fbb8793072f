"""Counts of a camera -> one self-contained page.

Nothing is counted here: numbers and pictures come in a `CrowdReport`, and `render` sets them
in HTML. Like the page of judged labels, it asks nothing of the network: the curve is SVG made
here, the pictures are inside the page, and its Content-Security-Policy forbids the rest.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from string import Template
from typing import TypeAlias

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.report.markup import (
    LONGEST_CELL,
    Axis,
    axis_for,
    cross,
    definitions,
    dots,
    format_number,
    html_text,
    plot,
    policy,
    resource,
    section,
    sentence_list,
    settings_list,
)

VERDICTS = ("flagged", "kept", "uncounted", "skipped")

# What keeps the page below 3 MB, whatever the sequence holds. Bytes are those of base64.
FLAGGED_BYTES = 1_400_000
PICTURE_BYTES = 1_900_000
MAX_STEPS = 1_500
MAX_GIVEN_MARKS = 3_000
MAX_FLAGGED_MARKS = 800
MAX_LISTED = 500
MAX_FACTS = 12
LONGEST_CAPTION = 300

# Up to so many counts that are flagged, a list of them stands open.
SHORT_LIST = 30


@dataclass(frozen=True)
class FrameLine:
    """One frame: what was given, what was counted, and what to think of it.

    NaN and infinities are taken as None.

    Attributes
    ----------
    number : int
        Of the frame, from 1.
    given : float or None
        None: uncounted.
    count : float or None
        What the model counts; None: the frame could not be read.
    lower, upper : float or None
        Ends of the interval around `count`.
    verdict : {"flagged", "kept", "uncounted", "skipped"}
    """

    number: int
    given: float | None
    count: float | None
    lower: float | None
    upper: float | None
    verdict: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {VERDICTS}, got {self.verdict!r}")
        for name in ("given", "count", "lower", "upper"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                object.__setattr__(self, name, None)


@dataclass(frozen=True)
class Picture:
    """A frame to look at, without and with its foreground.

    Attributes
    ----------
    number : int
        Of the frame.
    image : bytes
        JPEG, at most about 320 pixels wide.
    overlay : bytes
        JPEG of the same with the foreground tinted.
    caption : str
        A sentence, or empty.
    """

    number: int
    image: bytes
    overlay: bytes
    caption: str = ""


@dataclass(frozen=True)
class CrowdReport:
    """All that the page says.

    Attributes
    ----------
    title : str
        Folder or video of the frames, for example.
    source : str
        What the counts came from: a file with given counts, or a model.
    facts : tuple of (name, value)
        The large figures at the top, 12 at most.
    target_names : tuple of str
        One name, or those whose sum the counts are, for example ("left", "right").
    frames : tuple of FrameLine
        Every frame, by increasing number.
    flagged : tuple of Picture
        Frames whose given count is flagged, worst first. Those of `frames` that have no
        picture here are listed without one.
    samples : tuple of Picture
        A few frames across the sequence, to check the foreground by eye.
    skipped : tuple of str
        Problems, one sentence each.
    settings : tuple of (name, value)
        Parameters, versions, seed.
    background : bytes or None
        JPEG.
    remarks : tuple of str
        Sentences on how to read the facts.
    table : str, default="counts.csv"
        Name of the file that holds every count.
    flagged_table : str
        Name of the file that holds the flagged counts; or empty.
    """

    title: str
    source: str
    facts: tuple[tuple[str, str], ...]
    target_names: tuple[str, ...]
    frames: tuple[FrameLine, ...]
    flagged: tuple[Picture, ...] = ()
    samples: tuple[Picture, ...] = ()
    skipped: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    background: bytes | None = None
    remarks: tuple[str, ...] = ()
    table: str = "counts.csv"
    flagged_table: str = ""

    def __post_init__(self) -> None:
        numbers = [line.number for line in self.frames]
        if any(a >= b for a, b in pairwise(numbers)):
            raise ValueError("frames must come by increasing number, each once")
        if len({picture.number for picture in self.flagged}) < len(self.flagged):
            raise ValueError("flagged must hold each frame once")
        known = {line.number for line in self.frames if line.verdict == "flagged"}
        for picture in self.flagged:
            if picture.number not in known:
                raise ValueError(
                    f"frame {picture.number} has a picture in flagged, "
                    'but its verdict is not "flagged"'
                )


def render(report: CrowdReport) -> str:
    """One self-contained HTML page, all text of the user escaped.

    Parameters
    ----------
    report : CrowdReport

    Returns
    -------
    str
        To be written as UTF-8. Below 3 MB: a long sequence is drawn in steps, and pictures
        that do not fit give way to a line of text.
    """
    style, script = resource("common.css", "crowd.css"), resource("theme.js", "crowd.js")
    lines = {line.number: line for line in report.frames}
    decimals = _decimals(report.frames)
    cards, used = _fitting(report.flagged, FLAGGED_BYTES)
    headline = _headline(report.frames)
    return Template(resource("crowd.html")).substitute(
        policy=policy(style, script),
        page_title=html_text(f"{headline} – {report.title}"),
        style=style,
        script=script,
        title=html_text(report.title),
        source=html_text(report.source),
        headline=escape(headline),
        facts=definitions(report.facts[:MAX_FACTS], "figures", LONGEST_CELL),
        findings=_findings(report, decimals),
        plot=_counts_plot(report, cards, decimals),
        flagged=_flagged(report, cards, lines, decimals),
        samples=_samples(report, lines, PICTURE_BYTES - used, decimals),
        skipped=_skipped(report),
        settings=section("Settings", settings_list(report.settings)),
        privacy=_privacy(report),
    )


# --- text -----------------------------------------------------------------------------------


def _plural(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _flagged_lines(frames: Sequence[FrameLine]) -> list[FrameLine]:
    return [line for line in frames if line.verdict == "flagged"]


def _headline(frames: Sequence[FrameLine]) -> str:
    n_given = sum(line.given is not None for line in frames)
    n_flagged = len(_flagged_lines(frames))
    if not n_given:
        n_counted = sum(line.count is not None for line in frames)
        return _plural(n_counted, "frame is", "frames are") + " counted"
    if n_flagged:
        counts, are = "count" if n_given == 1 else "counts", "is" if n_flagged == 1 else "are"
        return f"{n_flagged:,} of {n_given:,} given {counts} {are} flagged"
    if n_given == 1:
        return "The only given count is kept"
    return f"All {n_given:,} given counts are kept"


def _findings(report: CrowdReport, decimals: int) -> str:
    """Where the sequence is emptiest and fullest, and where to find the rest."""
    found = list(report.remarks)
    counted = [line for line in report.frames if line.count is not None]
    if counted:
        ends = [pick(counted, key=lambda line: line.count or 0.0) for pick in (min, max)]
        least, most = (
            f"{format_number(line.count, decimals)} (frame {line.number})" for line in ends
        )
        found.append(f"The smallest count is {least}, the largest {most}.")
    if len(report.target_names) > 1:
        *others, last = report.target_names
        found.append(f"Counts on this page are the sum of {', '.join(others)} and {last}.")
    found.append(
        f"The count and interval of every frame are in {report.table}, not on this page."
    )
    return sentence_list(found)


def _privacy(report: CrowdReport) -> str:
    if not (report.flagged or report.samples or report.background):
        return ""
    return " It holds pictures of the camera: share it as you would share them."


def _skipped(report: CrowdReport) -> str:
    n_skipped = sum(line.verdict == "skipped" for line in report.frames)
    text = ""
    if n_skipped:
        frames, have = ("frame", "has") if n_skipped == 1 else ("frames", "have")
        text = f"{n_skipped:,} {frames} {have} no count in {report.table}."
    elif not report.skipped:
        text = "No frame was skipped."
    note = f'<p class="note">{html_text(text)}</p>' if text else ""
    return section("Skipped frames", note + sentence_list(report.skipped))


# --- numbers --------------------------------------------------------------------------------


def _decimals(frames: Sequence[FrameLine]) -> int:
    """Decimals of the counts of this page: among few people, tenths matter."""
    counts = [line.count for line in frames if line.count is not None]
    return 0 if counts and float(np.median(counts)) >= 20 else 1


def _given(line: FrameLine, decimals: int) -> str:
    whole = line.given is not None and float(line.given).is_integer()
    return format_number(line.given, 0 if whole else max(decimals, 1))


def _expected(line: FrameLine, decimals: int) -> str:
    """A count and its interval: "31 (27–35)"."""
    count = format_number(line.count, decimals)
    if line.lower is None or line.upper is None:
        return count
    # A dash beside a minus sign cannot be read.
    between = "–" if line.lower >= 0 else " to "
    lower, upper = (format_number(end, decimals) for end in (line.lower, line.upper))
    return f"{count} ({lower}{between}{upper})"


def _summary(line: FrameLine, decimals: int) -> str:
    return (
        f"frame {line.number}: given {_given(line, decimals)}, "
        f"expected {_expected(line, decimals)}"
    )


def _distance(line: FrameLine) -> float:
    """How far the given count lies from the model's."""
    if line.given is None or line.count is None:
        return 0.0
    return abs(line.given - line.count)


# --- pictures -------------------------------------------------------------------------------


def _source(image: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(image).decode()


def _base64_bytes(*images: bytes) -> int:
    return sum(4 * ((len(image) + 2) // 3) for image in images)


def _fitting(pictures: Sequence[Picture], room: int) -> tuple[Sequence[Picture], int]:
    """The first pictures, as many as fit into `room` bytes of base64, and what they need."""
    used = 0
    for k, picture in enumerate(pictures):
        needed = _base64_bytes(picture.image, picture.overlay)
        if used + needed > room:
            return pictures[:k], used
        used += needed
    return pictures, used


def _card(name: str, heading: str, caption: str, images: Sequence[tuple[bytes, str]]) -> str:
    """A card: heading, a sentence if there is one, images with their texts."""
    pair = "".join(f'<img src="{_source(image)}" alt="{text}">' for image, text in images)
    why = f'<p class="why">{html_text(caption, LONGEST_CAPTION)}</p>' if caption else ""
    return (
        f'<article class="card" id="{name}" tabindex="-1" aria-labelledby="{name}-title">'
        f'<h3 id="{name}-title">{heading}</h3>{why}<div class="pair">{pair}</div></article>\n'
    )


def _pair(picture: Picture) -> list[tuple[bytes, str]]:
    return [
        (picture.image, f"Frame {picture.number}"),
        (picture.overlay, f"Frame {picture.number}, the foreground tinted"),
    ]


def _flagged(
    report: CrowdReport,
    cards: Sequence[Picture],
    lines: dict[int, FrameLine],
    decimals: int,
) -> str:
    """A card for each count that is flagged and has pictures; the others as a list."""
    flagged = _flagged_lines(report.frames)
    if not flagged:
        said = "No counts were given: there was nothing to flag."
        if any(line.given is not None for line in report.frames):
            said = "Every given count was kept."
        return f'<p class="note">{said}</p>'
    shown = {picture.number for picture in cards}
    body = "".join(
        _card(
            f"frame-{picture.number}",
            f"Frame {picture.number}: given "
            f'<span class="given-count">{_given(lines[picture.number], decimals)}</span>, '
            f"expected {_expected(lines[picture.number], decimals)}",
            picture.caption,
            _pair(picture),
        )
        for picture in cards
    )
    note = "In brackets the interval of the expected count."
    if report.flagged_table:
        note += f" All of them are in {html_text(report.flagged_table)} as well."
    if cards:
        body = f'<div class="cards">\n{body}</div>'
        note = "Worst first: the frame, then the same with its foreground tinted. " + note
    rest = [line for line in flagged if line.number not in shown]
    return f'<p class="note">{note}</p>\n{body}{_rest(rest, bool(cards), decimals)}'


def _rest(rest: Sequence[FrameLine], more: bool, decimals: int) -> str:
    """The counts that are flagged and have no card, those farthest out first."""
    if not rest:
        return ""
    ordered = sorted(rest, key=_distance, reverse=True)
    items = "".join(f"<li>{_summary(line, decimals)}</li>" for line in ordered[:MAX_LISTED])
    if len(rest) > MAX_LISTED:
        items += f"<li>… and {len(rest) - MAX_LISTED:,} nearer to the model.</li>"
    said = _plural(len(rest), "count is", "counts are")
    if more:
        said = _plural(len(rest), "more count is", "more counts are")
    is_open = " open" if len(rest) <= SHORT_LIST else ""
    return (
        f"<details{is_open}><summary>{said} flagged; no picture here</summary>"
        f'<ul class="rest">{items}</ul></details>'
    )


def _sample_heading(number: int, line: FrameLine | None, decimals: int) -> str:
    if line is None or line.count is None:
        return f"Frame {number}: not counted"
    given = "" if line.given is None else f"given {_given(line, decimals)}, "
    return f"Frame {number}: {given}counted {_expected(line, decimals)}"


def _samples(report: CrowdReport, lines: dict[int, FrameLine], room: int, decimals: int) -> str:
    """The foreground check: nothing if there is nothing to look at."""
    body = ""
    if report.background and _base64_bytes(report.background) <= room:
        room -= _base64_bytes(report.background)
        body = _card(
            "background",
            "The background, as it was learnt",
            "",
            [(report.background, "The background, without people")],
        )
    shown, _ = _fitting(report.samples, room)
    pairs = "".join(
        _card(
            f"sample-{k}",
            _sample_heading(picture.number, lines.get(picture.number), decimals),
            picture.caption,
            _pair(picture),
        )
        for k, picture in enumerate(shown, start=1)
    )
    left_out = len(report.samples) - len(shown)
    left_out += bool(report.background and not body)
    if not (pairs or body or left_out):
        return ""
    note = (
        "People should be tinted, those who stand still too. Their shadows often are as well; "
        "if much else is, trust the counts less."
    )
    if left_out:
        cards = _plural(left_out, "card is", "cards are")
        note += f" To keep the page small, {cards} left out."
    return f"""<section class="part" aria-labelledby="samples-title">
<h2 id="samples-title">The foreground, to check by eye</h2>
<p class="note">{note}</p>
<div class="cards">
{pairs}{body}</div>
</section>"""


# --- the curve ------------------------------------------------------------------------------


# Columns number, given, count, lower and upper of frames, NaN where there is none.
Series: TypeAlias = dict[str, Vector]


def _series(frames: Sequence[FrameLine]) -> Series:
    names = ("number", "given", "count", "lower", "upper")
    return {
        name: np.array([getattr(line, name) for line in frames], dtype=float) for name in names
    }


def _stepped(series: Series) -> Series:
    """A long sequence in `MAX_STEPS` steps of two points, its smallest and largest count.

    The interval of a step reaches from the lowest to the highest end of those in it.
    """
    n = len(series["number"])
    if n <= 2 * MAX_STEPS:
        return series
    starts = np.arange(MAX_STEPS) * n // MAX_STEPS
    ends = np.append(starts[1:], n) - 1
    # fmin and fmax pass over what is missing.
    low, high = (pick.reduceat(series["count"], starts) for pick in (np.fmin, np.fmax))

    def interleave(first: Vector, second: Vector) -> Vector:
        return np.column_stack([first, second]).ravel()

    return {
        "number": interleave(series["number"][starts], series["number"][ends]),
        "count": interleave(low, high),
        "lower": np.repeat(np.fmin.reduceat(series["lower"], starts), 2),
        "upper": np.repeat(np.fmax.reduceat(series["upper"], starts), 2),
    }


def _runs(number: Vector, usable: Mask) -> list[np.ndarray]:
    """Indices of usable points, cut where one is missing or many frames are."""
    index = np.flatnonzero(usable)
    if not len(index):
        return []
    steps = np.diff(number)
    # Frames may come every tenth: a hole is one that is wide for this sequence.
    wide = 3 * np.quantile(steps, 0.9) if len(steps) else 0.0
    cut = (np.diff(index) > 1) | (np.diff(number[index]) > wide)
    return np.split(index, np.flatnonzero(cut) + 1)


def _chain(x: np.ndarray, y: np.ndarray) -> str:
    """Points of an SVG path; lines between them are implied."""
    return " ".join(f"{a:g} {b:g}" for a, b in zip(x, y, strict=True))


def _curve(series: Series, x_axis: Axis, y_axis: Axis) -> str:
    """The counts as a line and their intervals as a band."""
    stepped = _stepped(series)
    x = np.round(1000 * x_axis.place(stepped["number"]), 1)
    y, lower, upper = (
        np.round(1000 * (1 - y_axis.place(values)), 1)
        for values in (stepped["count"], stepped["lower"], stepped["upper"])
    )
    with_interval = np.isfinite(y) & np.isfinite(lower) & np.isfinite(upper)
    band = "".join(
        f"M{_chain(x[run], upper[run])} {_chain(x[run][::-1], lower[run][::-1])}Z"
        for run in _runs(stepped["number"], with_interval)
    )
    # A frame between two holes is a dot: a stroke without length.
    line = "".join(
        f"M{_chain(x[run], y[run])}" + ("h0" if len(run) == 1 else "")
        for run in _runs(stepped["number"], np.isfinite(y))
    )
    return (
        '<svg class="curve" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'width="100%" height="100%"><path class="interval" d="{band}"/>'
        f'<path class="line" d="{line}"/></svg>'
    )


def _evenly(index: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the indices, evenly spread."""
    if len(index) <= most:
        return index
    return index[np.arange(most) * len(index) // most]


def _farthest(frames: Sequence[FrameLine], index: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the indices, those whose given count is farthest out."""
    if len(index) <= most:
        return index
    distance = np.array([_distance(frames[i]) for i in index])
    return np.sort(index[np.argsort(-distance, kind="stable")[:most]])


def _drawn_of(names: str, drawn: int, of: int) -> str:
    return f" {drawn:,} of {of:,} {names} are drawn." if drawn < of else ""


def _caption(n_frames: int, outside: int) -> str:
    text = "The line is what the model counts, the band its interval."
    if n_frames > 2 * MAX_STEPS:
        text += (
            f" {n_frames:,} frames are drawn in {MAX_STEPS:,} steps, each from its smallest "
            "to its largest count."
        )
    if outside:
        lie, them = ("count lies", "it is") if outside == 1 else ("counts lie", "they are")
        text += f" {outside:,} given {lie} farther out; {them} drawn at the edge."
    return text


def _legend(n_kept: int, n_flagged: int) -> str:
    items = '<li class="line">counted</li><li class="interval">its interval</li>'
    if n_kept:
        items += '<li class="given">given</li>'
    if n_flagged:
        items += '<li class="removed">given, flagged</li>'
    return f'<ul class="legend">{items}</ul>'


def _crosses(
    frames: Sequence[FrameLine], x: Vector, y: Vector, linked: set[int], decimals: int
) -> str:
    """Marks of the given counts that are flagged; those with a card lead to it."""
    marks = "".join(
        cross(
            a,
            b,
            line.number if line.number in linked else None,
            _summary(line, decimals).capitalize(),
        )
        for line, a, b in zip(frames, x, y, strict=True)
    )
    return f'<g class="crosses">{marks}</g>'


def _counts_plot(report: CrowdReport, cards: Sequence[Picture], decimals: int) -> str:
    """Counts over time: model and interval, given counts, and flagged ones."""
    frames, series = report.frames, _series(report.frames)
    if not np.isfinite(series["count"]).any():
        return '<p class="note">No frame could be counted: there is nothing to draw.</p>'
    model = np.concatenate([series["count"], series["lower"], series["upper"]])
    x_axis = Axis(series["number"][0] - 0.5, series["number"][-1] + 0.5, whole=True)
    y_axis = axis_for(np.concatenate([model, series["given"]]), model, (0.0,))
    has_given = np.isfinite(series["given"])
    flagged = np.array([line.verdict == "flagged" for line in frames]) & has_given
    kept, gone = np.flatnonzero(has_given & ~flagged), np.flatnonzero(flagged)
    dotted = _evenly(kept, MAX_GIVEN_MARKS)
    crossed = _farthest(frames, gone, MAX_FLAGGED_MARKS)
    marked = series["given"][np.concatenate([dotted, crossed])]
    outside = int(np.sum((marked < y_axis.low) | (marked > y_axis.high)))
    x, y = x_axis.place(series["number"]), y_axis.place(series["given"])
    layers = [dots(x[dotted], y[dotted]), _curve(series, x_axis, y_axis)]
    # The line is thin and goes above the dots; drawn in steps it would hide them.
    layers = layers[::-1] if len(frames) > 2 * MAX_STEPS else layers
    linked = {picture.number for picture in cards}
    layers.append(
        _crosses([frames[i] for i in crossed], x[crossed], y[crossed], linked, decimals)
    )
    return plot(
        "counts",
        "Counts over time",
        _caption(len(frames), outside)
        + _drawn_of("given counts that are kept", len(dotted), len(kept))
        + _drawn_of("given counts that are flagged", len(crossed), len(gone)),
        ("Frame", "Count"),
        (x_axis, y_axis),
        "".join(layers),
        _legend(len(kept), len(gone)),
    )
