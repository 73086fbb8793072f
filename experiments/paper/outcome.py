"""What an experiment gives: tables of paper | ours | difference, figures, small print."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Run:
    """How experiments are to be run.

    Attributes
    ----------
    quick : bool
        A part of the work, in minutes; tables say what was left out.
    report : callable
        Called with one line as work goes on.
    """

    quick: bool = False
    report: Callable[[str], None] = print


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Attributes
    ----------
    keys : tuple of str
        Which row, e.g. ("MALL", "HLR, chosen on training frames").
    metric : str
        Which column, e.g. "MAE".
    ours : float or None
        What this run gave.
    paper : float or None
        What the paper printed for it.
    error : float or None
        Standard error of ours.
    """

    keys: tuple[str, ...]
    metric: str
    ours: float | None = None
    paper: float | None = None
    error: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if self.ours is None or self.paper is None:
            return None
        return self.ours - self.paper


@dataclass(frozen=True)
class Table:
    """Cells with names for their keys.

    Attributes
    ----------
    name : str
        Part of file names: letters, digits and hyphens.
    title : str
    keys : tuple of str
        Names of the keys, e.g. ("set", "method").
    cells : list of Cell
    digits : mapping
        Decimals of each metric, 3 where nothing is said.
    notes : list of str
        Footnotes: protocol, deviations, how often test rows were scored.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    cells: list[Cell]
    digits: Mapping[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> list[str]:
        """In the order in which they come first."""
        return list(dict.fromkeys(cell.metric for cell in self.cells))

    def header(self) -> list[str]:
        """Column titles of `lines`."""
        titles = list(self.keys)
        for metric in self.metrics:
            if self._has_paper(metric):
                titles += [f"{metric} paper", "ours", "difference"]
            else:
                titles.append(metric)
        return titles

    def lines(self) -> list[list[str]]:
        """One line a row, as text; a figure that is not there is a dash."""
        found = {(cell.keys, cell.metric): cell for cell in self.cells}
        rows = []
        for keys in dict.fromkeys(cell.keys for cell in self.cells):
            row = list(keys)
            for metric in self.metrics:
                cell = found.get((keys, metric), Cell(keys, metric))
                digits = self.digits.get(metric, 3)
                ours = _number(cell.ours, digits)
                if cell.ours is not None and cell.error is not None:
                    ours += f" ± {_number(cell.error, digits)}"
                if self._has_paper(metric):
                    gap = _number(cell.difference, digits, "+")
                    row += [_number(cell.paper, digits), ours, gap]
                else:
                    row.append(ours)
            rows.append(row)
        return rows

    def markdown(self) -> str:
        """The table and its notes."""
        header = self.header()
        lines = [f"### {self.title}", "", "| " + " | ".join(header) + " |"]
        lines.append("|" + "---|" * len(header))
        lines += ["| " + " | ".join(_escaped(row)) + " |" for row in self.lines()]
        lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """One figure a line, with all its digits."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.keys, "metric", "paper", "ours", "standard_error", "difference"])
        for cell in self.cells:
            values = (cell.paper, cell.ours, cell.error, cell.difference)
            numbers = ["" if value is None else repr(float(value)) for value in values]
            writer.writerow([*cell.keys, cell.metric, *numbers])
        return text.getvalue()

    def _has_paper(self, metric: str) -> bool:
        return any(c.paper is not None for c in self.cells if c.metric == metric)


def _number(value: float | None, digits: int, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.{digits}f}"


def _escaped(row: Sequence[str]) -> list[str]:
    return [text.replace("|", "\\|") for text in row]


@dataclass(frozen=True)
class Outcome:
    """All that one experiment gives.

    Attributes
    ----------
    name : str
        As on the command line.
    title : str
    protocol : str
        How it was run, a paragraph or more.
    tables : list of Table
    figures : dict
        File stem -> matplotlib figure.
    findings : list of str
        One sentence each: what was reached and what was not.
    """

    name: str
    title: str
    protocol: str
    tables: list[Table]
    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def standard_error(values: Any) -> Any:
    """Of the mean over the first axis."""
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


def warnings_note(warned: Iterable[str], fits: int) -> list[str]:
    """One note on what models of ours warned of, none if they did not."""
    counts = Counter(warned)
    return [f"Warnings of HLR in {fits} fits: {counted(counts)}."] if counts else []


def counted(counts: Counter[str]) -> str:
    """Texts of warnings and how often each was said."""
    return "; ".join(f"“{text}” {count} times" for text, count in sorted(counts.items()))


@cache
def facts(name: str) -> tuple[dict[str, str], ...]:
    """The paper's figures of one table, as printed: the rows of facts/<name>.csv."""
    file = resources.files("experiments.paper") / "facts" / f"{name}.csv"
    return tuple(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))


def fact(
    rows: Iterable[Mapping[str, str]], column: str = "value", **wanted: str
) -> float | None:
    """The one figure of the paper whose row has all the wanted entries; None if it has none."""
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    if len(found) > 1:
        raise ValueError(f"{len(found)} figures fit {wanted}")
    return float(found[0][column]) if found and found[0][column] else None
