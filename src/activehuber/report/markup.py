"""What pages are made of: text, numbers and pictures as HTML and SVG.

A page asks nothing of the network: style and script are inside it, and its
Content-Security-Policy forbids the rest. Pictures are SVG, so that they need no script. Text of
users is escaped and cut to a bounded length.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from html import escape
from importlib import resources
from string import Template

import numpy as np

from activehuber._typing import Vector

# What keeps a page small, whatever is on it.
MAX_ITEMS = 100
LONGEST_CELL = 120
LONGEST_SENTENCE = 600

# Numbers that the axes of the pictures can tell apart without under- or overflow.
SMALLEST = 1e-290
LARGEST = 1e290

MISSING = "–"
# Numbers from this size are written with a power of ten, and all but 0 at so many decimals.
LONGEST_PLAIN, POWERS = 1_000_000_000, 8
# An axis that goes as far as this has its ticks as powers of ten: there is little room.
LONGEST_TICK = 1_000_000
# Characters that fit below a picture on a phone.
TICK_CHARACTERS = 36


# --- text -----------------------------------------------------------------------------------


def resource(*names: str) -> str:
    """Files of the folder `page`, one after the other."""
    folder = resources.files("activehuber.report") / "assets"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def fill_page(name: str, title: str, headline: str, **parts: str) -> str:
    """The page `name`.html with its own and the common style and script.

    Parameters
    ----------
    name : str
        Of its files: `name`.html, `name`.css, `name`.js.
    title, headline : str
        Plain text.
    **parts : str
        What else its template asks for, in HTML.
    """
    style = resource("common.css", f"{name}.css")
    script = resource("theme.js", f"{name}.js")
    digests = (hashlib.sha256(text.encode()).digest() for text in (script, style))
    ours = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return Template(resource(f"{name}.html")).substitute(
        # Nothing from outside; of scripts and styles only our own two, by their hash.
        policy=f"default-src 'none'; script-src {ours[0]}; style-src {ours[1]}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
        page_title=html_text(f"{headline} – {title}"),
        style=style,
        script=script,
        title=html_text(title),
        headline=escape(headline),
        **parts,
    )


# Control characters, lone surrogates (not UTF-8) and marks that turn the reading direction
# of what follows them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]+")


def plain_text(value: object, longest: int = LONGEST_CELL) -> str:
    """`value` as printable text of bounded length."""
    text = _UNPRINTABLE.sub(" ", str(value)[: 2 * longest])
    return text if len(text) <= longest else text[: longest - 1] + "…"


def html_text(value: object, longest: int = LONGEST_CELL) -> str:
    """`value` as text of a page: printable, of bounded length, escaped."""
    return escape(plain_text(value, longest))


def sentence_list(sentences: Sequence[str]) -> str:
    """Sentences as a list in HTML; beyond `MAX_ITEMS` only their number is told."""
    if not sentences:
        return ""
    items = "".join(f"<li>{html_text(s, LONGEST_SENTENCE)}</li>" for s in sentences[:MAX_ITEMS])
    if len(sentences) > MAX_ITEMS:
        items += f"<li>… and {len(sentences) - MAX_ITEMS:,} more.</li>"
    return f"<ul>{items}</ul>"


def section(heading: str, body: str) -> str:
    """A heading and what is below it, in HTML; nothing without a body."""
    return f"<section><h2>{escape(heading)}</h2>{body}</section>" if body else ""


def definitions(
    pairs: Sequence[tuple[str, str]], kind: str, longest: int = LONGEST_SENTENCE
) -> str:
    """Names and values in HTML, as a list of some class; values of at most `longest`."""
    items = "".join(
        f"<div><dt>{html_text(name)}</dt><dd>{html_text(value, longest)}</dd></div>"
        for name, value in pairs[:MAX_ITEMS]
    )
    return f'<dl class="{kind}">{items}</dl>' if items else ""


# --- numbers --------------------------------------------------------------------------------


def format_number(value: float | None, decimals: int, *, signed: bool = False) -> str:
    """A number as the page shows it; report.js has the same function.

    Parameters
    ----------
    value : float or None
        None, NaN and infinities are shown as a dash.
    decimals : int
        Above 7 (`POWERS`), and for numbers from a thousand million, powers of ten are used.
    signed : bool, default=False
        Whether positive numbers get a plus sign.

    Returns
    -------
    str

    Examples
    --------
    >>> format_number(-2.5, 1)
    '−2.5'
    >>> format_number(1234567890.0, 1), format_number(2e-9, 12)
    ('1.235e9', '2e−9')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(Decimal(float(value)))
    decimals = 0 if not size and decimals >= POWERS else decimals
    if size >= LONGEST_PLAIN or (size and decimals >= POWERS):
        mantissa, exponent = f"{float(size):.3e}".split("e")
        shown = f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")
    else:
        # Half away from zero, as toFixed does; {:f} would round halves to even.
        shown = f"{size.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):f}"
    if value < 0 and shown.strip("0."):
        return "−" + shown
    return "+" + shown if signed and shown.strip("0.") else shown


# --- pictures -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """From numbers to places in [0, 1], with ticks.

    Attributes
    ----------
    low, high : float
        Ends; low < high. Numbers beyond are drawn at the edge.
    log : bool
    whole : bool
        Whether ticks stand at whole numbers only.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def place(self, values: np.ndarray | float) -> np.ndarray:
        """Places of values, of the same shape; the edge for those outside."""
        clipped = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        if self.log:
            return np.log(clipped / self.low) / math.log(self.high / self.low)
        return (clipped - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """About five round numbers and their labels."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            parts = (1,) if last - first > 3 else (1, 3)
            powers = range(first, last + 1, max(1, (last - first) // 5))
            found = [m * 10.0**k for k in powers for m in parts]
            found = [v for v in found if self.low <= v <= self.high]
            decimals = [max(0, -math.floor(math.log10(v) + 1e-9)) for v in found]
        else:
            steps = (1, 2, 5, 10) if self.whole else (1, 2, 2.5, 5, 10)
            raw = max((self.high - self.low) / 5, float(self.whole))
            power = math.floor(math.log10(raw))
            mantissa = next(m for m in steps if m * 10.0**power >= raw * 0.999)
            step = mantissa * 10.0**power
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            found = [k * step for k in range(first, last + 1)]
            decimals = [max(0, -power + (mantissa == 2.5) - (mantissa == 10))] * len(found)
        if max(-self.low, self.high) >= LONGEST_TICK:
            decimals = [POWERS] * len(found)
        return [(v, format_number(v, d)) for v, d in zip(found, decimals, strict=True)]


def axis_for(values: Vector, core: Vector, include: Sequence[float] = ()) -> Axis:
    """An axis that shows `core` well, and of the other values those not absurdly far out."""
    # Clipped, so that differences do not overflow.
    values, core, ends = (
        np.clip(v[np.isfinite(v)], -LARGEST, LARGEST) for v in (values, core, np.array(include))
    )
    core = core if len(core) else values
    if not len(core):
        return Axis(0.0, 1.0)
    low, high = (float(q) for q in np.quantile(core, [0.005, 0.995]))
    room = 3 * (high - low) or max(abs(low), 1.0)
    low, high = max(float(values.min()), low - room), min(float(values.max()), high + room)
    low, high = float(min([low, *ends])), float(max([high, *ends]))
    # A margin, so that marks do not sit on the frame; never an empty axis.
    size = max(abs(low), abs(high))
    wide = high - low > max(1e-12 * size, SMALLEST)
    margin = 0.04 * (high - low) if wide else 0.5 * max(size, 1.0)
    return Axis(low - margin, high + margin)


def percent(place: np.ndarray | float) -> str:
    """A place in [0, 1] as an SVG has it."""
    return f"{100 * float(place):.2f}".rstrip("0").rstrip(".") + "%"


def dots(x: np.ndarray, y: np.ndarray) -> str:
    """Round dots at places in [0, 1]: strokes without length, of constant size on screen."""
    xs, ys = np.round(1000 * x).astype(int), np.round(1000 * (1 - y)).astype(int)
    # Several paths, because only paths, not the dots of one, darken where they overlap.
    paths = "".join(
        f'<path d="{"".join(f"M{a} {b}h0" for a, b in zip(xs[k::8], ys[k::8], strict=True))}"/>'
        for k in range(min(8, len(xs)))
    )
    size = "small" if len(xs) > 800 else "large"
    return (
        f'<svg class="dots {size}" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'width="100%" height="100%">{paths}</svg>'
    )


def cross(x: float, y: float, line: int | None, hint: str) -> str:
    """A mark at a place in [0, 1]² that tells `hint`, and leads to a line if there is one."""
    link = "" if line is None else f' data-line="{line}"'
    return (
        f'<use href="#cross" x="{percent(x)}" y="{percent(1 - y)}"{link}>'
        f"<title>{hint}</title></use>"
    )


def _fitting(ticks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Every so many of the ticks, so that their labels do not run together on a phone."""
    taken = sum(len(text) + 2 for _, text in ticks)
    return ticks[:: max(1, math.ceil(taken / TICK_CHARACTERS))]


def plot(
    name: str,
    heading: str,
    caption: str,
    labels: tuple[str, str],
    axes: tuple[Axis, Axis],
    marks: str,
    legend: str = "",
) -> str:
    """A figure. Its three SVGs are laid out by CSS: text keeps its size at each width."""
    grid, below, left = "", "", ""
    for value, text in _fitting(axes[0].ticks()):
        at = percent(axes[0].place(value))
        grid += f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="100%"/>'
        below += f'<text x="{at}" y="50%">{text}</text>'
    for value, text in axes[1].ticks():
        at = percent(1 - axes[1].place(value))
        grid += f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
        left += f'<text x="100%" y="{at}">{text}</text>'
    return f"""<figure class="{name}" aria-labelledby="{name}-title">
<h2 id="{name}-title">{heading}</h2>
<p class="y-label">{labels[1]}</p>
<div class="plot">
<svg class="left" aria-hidden="true">{left}</svg>
<svg class="area" role="img" aria-label="{heading}. {escape(re.sub("<[^>]*>", "", caption))}">
{grid}{marks}</svg>
<svg class="below" aria-hidden="true">{below}</svg>
</div>
<p class="x-label">{labels[0]}</p>
{legend}<figcaption>{caption}</figcaption>
</figure>
"""
