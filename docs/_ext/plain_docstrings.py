"""Docstrings are plain text with formulas in Unicode; this makes reStructuredText of them.

An indented paragraph before the first section is a formula and keeps its lines; a bar is a
bar, as in |r|, and no substitution; a name that ends in _ is no link.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# Bars and underscores at the end of a word, but those inside `…` and ``…`` are left alone.
MARK = re.compile(r"(``.+?``|`[^`]+`)|(\||(?<=\w)_(?!\w))")


def with_formulas(lines: list[str]) -> list[str]:
    """The lines with `::` before every indented paragraph that comes before a section."""
    found: list[str] = []
    inside = in_sections = False
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if following and not following.strip("-"):
            in_sections = True
        starts = line.startswith("    ") and (not found or not found[-1].strip())
        if starts and not (inside or in_sections):
            found += ["::", ""]
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        found.append(line)
    return found


def escape(line: str) -> str:
    """The line with every mark escaped that is not code; names before " : " are numpydoc's."""
    name, colon, rest = line.partition(" : ")
    text = rest if colon else name
    escaped = MARK.sub(lambda match: match.group(1) or "\\" + match.group(2), text)
    return name + colon + escaped if colon else escaped


def as_restructured(lines: list[str]) -> list[str]:
    """The docstring with formulas and examples as they are, and all else escaped."""
    found, formula, example = [], False, False
    for line in with_formulas(lines):
        formula = line == "::" or (formula and (not line or line.startswith(" ")))
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        found.append(line if formula or example else escape(line))
    return found


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]):
    """Rewrite a docstring in place, before numpydoc reads its sections."""
    if name.startswith("activehuber"):
        lines[:] = as_restructured(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before numpydoc, whose priority is the default of 500."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
