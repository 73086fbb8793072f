"""Counts of a camera -> one self-contained page.

Nothing is counted here: numbers and pictures come in a `CrowdReport`, and `render` sets them
in HTML. Like the page of judged labels, it asks nothing of the network: the curve is SVG made
here, the pictures are inside the page, and its Content-Security-Policy forbids the rest.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activehuber._typing import Mask, Vector
from activehuber.report.markup import (
    LONGEST_CELL,
    Axis,
    axis_for,
    cross,
    definitions,
    dots,
    fill_page,
    format_number,
    html_text,
    plot,
    section,
    sentence_list,
)

# What keeps the page below 3 MB, whatever the sequence holds. Bytes are those of base64.
FLAGGED_BYTES = 1_400_000
PICTURE_BYTES = 1_900_000
MAX_STEPS = 1_500
MAX_GIVEN_MARKS = 3_000
MAX_FLAGGED_MARKS = 800
MAX_LISTED = 500

# Up to so many counts that are flagged, a list of them stands open.
SHORT_LIST = 30


@dataclass(frozen=True)
class FrameCounts:
    """n frames: what was given, what was counted, and what to think of it.

    At least one is counted. Infinities are taken as NaN, which stands for what there is not.

    Attributes
    ----------
    number : ndarray of shape (n,), int
        Of the frames, from 1, increasing.
    given : ndarray of shape (n,)
        NaN: uncounted.
    count : ndarray of shape (n,)
        What the model counts; NaN: the frame could not be read.
    lower, upper : ndarray of shape (n,)
        Ends of the interval around `count`.
    flagged : ndarray of shape (n,), bool
        Frames whose given count is flagged.
    """

    number: np.ndarray
    given: Vector
    count: Vector
    lower: Vector
    upper: Vector
    flagged: Mask

    def __post_init__(self) -> None:
        for name in ("given", "count", "lower", "upper"):
            values = getattr(self, name)
            object.__setattr__(self, name, np.where(np.isfinite(values), values, np.nan))

    @cached_property
    def decimals(self) -> int:
        """Decimals of the counts of this page: among few people, tenths matter."""
        return 0 if np.nanmedian(self.count) >= 20 else 1

    def given_at(self, i: int) -> str:
        """A given count as text."""
        whole = float(self.given[i]).is_integer()
        return format_number(self.given[i], 0 if whole else max(self.decimals, 1))

    def expected_at(self, i: int) -> str:
        """A count and its interval: "31 (27–35)"."""
        ends = self.lower[i], self.upper[i]
        count, lower, upper = (format_number(v, self.decimals) for v in (self.count[i], *ends))
        if np.isnan(ends).any():
            return count
        # A dash beside a minus sign cannot be read.
        between = "–" if ends[0] >= 0 else " to "
        return f"{count} ({lower}{between}{upper})"

    def summary_at(self, i: int) -> str:
        """A frame in a few words."""
        given, expected = self.given_at(i), self.expected_at(i)
        return f"frame {self.number[i]}: given {given}, expected {expected}"


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
    """

    number: int
    image: bytes
    overlay: bytes


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
        The large figures at the top.
    target_names : tuple of str
        One name, or those whose sum the counts are, for example ("left", "right").
    frames : FrameCounts
        Every frame.
    background : bytes
        JPEG.
    flagged : tuple of Picture
        Frames whose given count is flagged, worst first. Those of `frames` that have no
        picture here are listed without one.
    samples : tuple of Picture
        A few frames across the sequence, to check the foreground by eye.
    skipped : tuple of str
        Problems, one sentence each.
    settings : tuple of (name, value)
        Parameters, versions, seed.
    remarks : tuple of str
        Sentences on how to read the facts.
    believable : bool
        Whether other frames are counted better than by the mean of the counts.
    table : str, default="counts.csv"
        Name of the file that holds every count.
    flagged_table : str
        Name of the file that holds the flagged counts; or empty.
    """

    title: str
    source: str
    facts: tuple[tuple[str, str], ...]
    target_names: tuple[str, ...]
    frames: FrameCounts
    background: bytes
    flagged: tuple[Picture, ...] = ()
    samples: tuple[Picture, ...] = ()
    skipped: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    believable: bool = True
    table: str = "counts.csv"
    flagged_table: str = ""


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
    cards, used = _fitting(report.flagged, FLAGGED_BYTES)
    return fill_page(
        "crowd",
        report.title,
        _headline(report),
        source=html_text(report.source),
        facts=definitions(report.facts, "figures", LONGEST_CELL),
        findings=_findings(report),
        plot=_counts_plot(report.frames, cards),
        flagged=_flagged(report, cards),
        samples=_samples(report, PICTURE_BYTES - used),
        skipped=_skipped(report),
        settings=section("Settings", definitions(report.settings, "settings")),
    )


# --- text -----------------------------------------------------------------------------------


def _plural(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _headline(report: CrowdReport) -> str:
    frames = report.frames
    n_given, n_flagged = int(np.sum(~np.isnan(frames.given))), int(frames.flagged.sum())
    if not report.believable:
        return "Other stretches of time are counted no better than by the mean"
    if not n_given:
        n_counted = int(np.sum(~np.isnan(frames.count)))
        return _plural(n_counted, "frame is", "frames are") + " counted"
    if n_flagged:
        given = _plural(n_given, "given count", "given counts")
        return f"{n_flagged:,} of {given} {'is' if n_flagged == 1 else 'are'} flagged"
    if n_given == 1:
        return "The only given count is kept"
    return f"All {n_given:,} given counts are kept"


def _findings(report: CrowdReport) -> str:
    """Where the sequence is emptiest and fullest, and where to find the rest."""
    found, frames = list(report.remarks), report.frames
    least, most = (
        f"{format_number(frames.count[i], frames.decimals)} (frame {frames.number[i]})"
        for i in (np.nanargmin(frames.count), np.nanargmax(frames.count))
    )
    found.append(f"The smallest count is {least}, the largest {most}.")
    if len(report.target_names) > 1:
        *others, last = report.target_names
        found.append(f"Counts on this page are the sum of {', '.join(others)} and {last}.")
    found.append(
        f"The count and interval of every frame are in {report.table}, not on this page."
    )
    return sentence_list(found)


def _skipped(report: CrowdReport) -> str:
    n_skipped = int(np.isnan(report.frames.count).sum())
    text = ""
    if n_skipped:
        text = _plural(n_skipped, "frame has", "frames have") + f" no count in {report.table}."
    elif not report.skipped:
        text = "No frame was skipped."
    note = f'<p class="note">{html_text(text)}</p>' if text else ""
    return section("Skipped frames", note + sentence_list(report.skipped))


# --- pictures -------------------------------------------------------------------------------


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


def _card(name: str, heading: str, *images: tuple[bytes, str]) -> str:
    """A card: heading, and images with their texts."""
    pair = ""
    for image, text in images:
        source = "data:image/jpeg;base64," + base64.b64encode(image).decode()
        pair += f'<img src="{source}" alt="{text}">'
    return (
        f'<article class="card" id="{name}" tabindex="-1" aria-labelledby="{name}-title">'
        f'<h3 id="{name}-title">{heading}</h3><div class="pair">{pair}</div></article>\n'
    )


def _pair(picture: Picture) -> tuple[tuple[bytes, str], tuple[bytes, str]]:
    name = f"Frame {picture.number}"
    return (picture.image, name), (picture.overlay, f"{name}, the foreground tinted")


def _flagged(report: CrowdReport, cards: Sequence[Picture]) -> str:
    """A card for each count that is flagged and has pictures; the others as a list."""
    frames = report.frames
    if not frames.flagged.any():
        said = "No counts were given: there was nothing to flag."
        if not np.isnan(frames.given).all():
            said = "Every given count was kept."
        return f'<p class="note">{said}</p>'
    body = ""
    for picture in cards:
        i = int(np.searchsorted(frames.number, picture.number))
        given = f'<span class="given-count">{frames.given_at(i)}</span>'
        heading = f"Frame {picture.number}: given {given}, expected {frames.expected_at(i)}"
        body += _card(f"frame-{picture.number}", heading, *_pair(picture))
    note = "In brackets the interval of the expected count."
    if report.flagged_table:
        note += f" All of them are in {html_text(report.flagged_table)} as well."
    if cards:
        body = f'<div class="cards">\n{body}</div>'
        note = "Worst first: the frame, then the same with its foreground tinted. " + note
    shown = [picture.number for picture in cards]
    rest = np.flatnonzero(frames.flagged & ~np.isin(frames.number, shown))
    return f'<p class="note">{note}</p>\n{body}{_rest(frames, rest, bool(cards))}'


def _rest(frames: FrameCounts, rest: np.ndarray, more: bool) -> str:
    """The counts that are flagged and have no card, those farthest out first."""
    if not len(rest):
        return ""
    ordered = _farthest_first(frames, rest)[:MAX_LISTED]
    items = "".join(f"<li>{frames.summary_at(i)}</li>" for i in ordered)
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


def _farthest_first(frames: FrameCounts, index: np.ndarray) -> np.ndarray:
    """Indices of frames, those first whose given count is farthest out."""
    distance = np.nan_to_num(np.abs(frames.given - frames.count))[index]
    return index[np.argsort(-distance, kind="stable")]


def _samples(report: CrowdReport, room: int) -> str:
    """The foreground check: the background, and some frames without and with their tint."""
    body = ""
    if _base64_bytes(report.background) <= room:
        room -= _base64_bytes(report.background)
        image = report.background, "The background, with a bar as tall as a person in places"
        body = _card("background", "The background, and how tall people are", image)
    shown, _ = _fitting(report.samples, room)
    pairs, frames = "", report.frames
    for k, picture in enumerate(shown, start=1):
        i = int(np.searchsorted(frames.number, picture.number))
        given = "" if np.isnan(frames.given[i]) else f"given {frames.given_at(i)}, "
        heading = f"Frame {picture.number}: {given}counted {frames.expected_at(i)}"
        pairs += _card(f"sample-{k}", heading, *_pair(picture))
    left_out = len(report.samples) - len(shown) + (not body)
    note = (
        "People should be tinted, those who stand still too. Their shadows often are as well; "
        "if much else is, trust the counts less. Bars on the background should be as tall as "
        "people whose feet are at their lower ends; else give --perspective-line."
    )
    if left_out:
        cards = _plural(left_out, "card is", "cards are")
        note += f" To keep the page small, {cards} left out."
    return f'<p class="note">{note}</p>\n<div class="cards">\n{pairs}{body}</div>'


# --- the curve ------------------------------------------------------------------------------


def _stepped(frames: FrameCounts) -> tuple[np.ndarray, Vector, Vector, Vector]:
    """Numbers, counts and intervals; long sequences in `MAX_STEPS` steps of two points.

    The points of a step are its smallest and largest count, and its interval reaches from the
    lowest to the highest end of those in it.
    """
    n = len(frames.number)
    if n <= 2 * MAX_STEPS:
        return frames.number, frames.count, frames.lower, frames.upper
    starts = np.arange(MAX_STEPS) * n // MAX_STEPS
    ends = np.append(starts[1:], n) - 1
    # fmin and fmax pass over what is missing.
    points = [pick.reduceat(frames.count, starts) for pick in (np.fmin, np.fmax)]
    return (
        frames.number[np.column_stack([starts, ends]).ravel()],
        np.column_stack(points).ravel(),
        np.repeat(np.fmin.reduceat(frames.lower, starts), 2),
        np.repeat(np.fmax.reduceat(frames.upper, starts), 2),
    )


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


def _curve(frames: FrameCounts, x_axis: Axis, y_axis: Axis) -> str:
    """The counts as a line and their intervals as a band."""
    number, *heights = _stepped(frames)
    x = np.round(1000 * x_axis.place(number), 1)
    y, lower, upper = (np.round(1000 * (1 - y_axis.place(values)), 1) for values in heights)
    with_interval = np.isfinite(y) & np.isfinite(lower) & np.isfinite(upper)
    band = "".join(
        f"M{_chain(x[run], upper[run])} {_chain(x[run][::-1], lower[run][::-1])}Z"
        for run in _runs(number, with_interval)
    )
    # A frame between two holes is a dot: a stroke without length.
    line = "".join(
        f"M{_chain(x[run], y[run])}" + ("h0" if len(run) == 1 else "")
        for run in _runs(number, np.isfinite(y))
    )
    return (
        '<svg class="curve" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'width="100%" height="100%"><path class="interval" d="{band}"/>'
        f'<path class="line" d="{line}"/></svg>'
    )


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


def _counts_plot(frames: FrameCounts, cards: Sequence[Picture]) -> str:
    """Counts over time: model and interval, given counts, and flagged ones."""
    model = np.concatenate([frames.count, frames.lower, frames.upper])
    x_axis = Axis(frames.number[0] - 0.5, frames.number[-1] + 0.5, whole=True)
    y_axis = axis_for(np.concatenate([model, frames.given]), model, (0.0,))
    has_given = ~np.isnan(frames.given)
    kept = np.flatnonzero(has_given & ~frames.flagged)
    gone = np.flatnonzero(has_given & frames.flagged)
    dotted = kept
    if len(kept) > MAX_GIVEN_MARKS:  # evenly spread
        dotted = kept[np.arange(MAX_GIVEN_MARKS) * len(kept) // MAX_GIVEN_MARKS]
    crossed = np.sort(_farthest_first(frames, gone)[:MAX_FLAGGED_MARKS])
    marked = frames.given[np.concatenate([dotted, crossed])]
    outside = int(np.sum((marked < y_axis.low) | (marked > y_axis.high)))
    x, y = x_axis.place(frames.number), y_axis.place(frames.given)
    layers = [dots(x[dotted], y[dotted]), _curve(frames, x_axis, y_axis)]
    # The line is thin and goes above the dots; drawn in steps it would hide them.
    layers = layers[::-1] if len(frames.number) > 2 * MAX_STEPS else layers
    # Crosses of counts with a card lead to it.
    linked = {picture.number for picture in cards}
    crosses = ""
    for i in crossed:
        line = frames.number[i] if frames.number[i] in linked else None
        crosses += cross(x[i], y[i], line, frames.summary_at(i).capitalize())
    return plot(
        "counts",
        "Counts over time",
        _caption(len(frames.number), outside)
        + _drawn_of("given counts that are kept", len(dotted), len(kept))
        + _drawn_of("given counts that are flagged", len(crossed), len(gone)),
        ("Frame", "Count"),
        (x_axis, y_axis),
        "".join(layers) + f'<g class="crosses">{crosses}</g>',
        _legend(len(kept), len(gone)),
    )
