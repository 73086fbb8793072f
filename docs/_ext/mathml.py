"""Formulas as MathML, which browsers draw themselves: no script and no font is loaded."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

# |r| and ‖f‖: browsers would stretch the first bar and put space around the second.
BAR = re.compile(r"<mo[^>]*>([|‖])</mo>")
FIRM_BAR = r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'


def translate(formula: nodes.Element, *, block: bool) -> str:
    """The MathML element of a formula; one that cannot be read is a warning."""
    text = formula.astext().strip()
    try:
        return BAR.sub(FIRM_BAR, latex2mathml.tex2mathml(text, as_block=block))
    except MathError as error:
        logger.warning("formula %r: %s", text, error, location=formula)
        return f"<code>{escape(text)}</code>"


def visit_math(translator: Any, node: nodes.Element) -> None:
    """Write an inline formula."""
    translator.body.append(translate(node, block=False))
    raise nodes.SkipNode


def visit_displayed_math(translator: Any, node: nodes.Element) -> None:
    """Write a formula on lines of its own; it scrolls where the screen is narrow."""
    translator.body.append(translator.starttag(node, "div", CLASS="formula", tabindex="0"))
    translator.body.append(translate(node, block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer and choose it."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed_math, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
