"""Run experiments, print their tables, write files and one page."""

from __future__ import annotations

import html
import importlib
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from activehuber.runtime.files import check_outputs, write_file
from activehuber.runtime.messages import TableError, first_line
from experiments.paper.files import MissingDataError
from experiments.paper.outcome import Outcome, Run, Table

# Name on the command line -> module of this package and function in it.
EXPERIMENTS = {
    "time": ("running_time", "running_time"),
    "cvx": ("solver", "reconstruction"),
    "curve": ("curve", "curve"),
    "noisy-labels": ("noisy_labels", "noisy_labels"),
    "uci": ("uci", "uci"),
    "crowd-multi": ("crowd", "crowd_multi"),
    "crowd-semi": ("crowd", "crowd_semi"),
    "crowd-ryan": ("crowd", "crowd_ryan"),
    "pets": ("pets", "pets"),
}
# Experiments of other commands that a page may show.
OTHERS = ("crowd-cameras",)
PACKAGES = (
    "activehuber",
    "numpy",
    "scipy",
    "scikit-learn",
    "cvxpy",
    "clarabel",
    "matplotlib",
    "opencv-python-headless",
)


@contextmanager
def in_one_line() -> Iterator[None]:
    """What a user is to mend is said in one line, and the exit code is 2."""
    try:
        yield
    except TableError as error:
        print(f"experiments: {first_line(error)}", file=sys.stderr)
        sys.exit(2)


def check_matplotlib() -> None:
    """Raise if no figure can be drawn."""
    if find_spec("matplotlib") is None:
        raise TableError("the figures need matplotlib: pip install 'activehuber[plot]'")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def reproduce(
    names: Sequence[str], folder: Path, *, quick: bool, say: Callable[[str], None]
) -> list[str]:
    """Run experiments one after the other; each leaves its files when it ends.

    Parameters
    ----------
    names : sequence of str
        Of `EXPERIMENTS`; none means all that can run.
    folder : Path
        For `<name>.csv`, `.md`, `.json`, `<name>-<figure>.png` and `index.html`.
    quick : bool
    say : callable
        Takes one line of text.

    Returns
    -------
    list of str
        Names of the experiments whose data are missing; their reasons were said.
    """
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise TableError(
            f"unknown experiment {unknown[0]!r}; there are: {', '.join(EXPERIMENTS)}"
        )
    wanted = dict.fromkeys(names) or EXPERIMENTS
    functions = {name: _function(name) for name in wanted}
    return run_all(functions, folder, quick=quick, say=say)


def _function(name: str) -> Callable[[Run], Outcome]:
    module, function = EXPERIMENTS[name]
    return getattr(importlib.import_module(f"experiments.paper.{module}"), function)


def run_all(
    experiments: Mapping[str, Callable[[Run], Outcome]],
    folder: Path,
    *,
    quick: bool,
    say: Callable[[str], None],
) -> list[str]:
    """The same for any functions, by the names of their files."""
    check_outputs(folder, [], force=True)
    _shown_in(folder, without=experiments)
    missing = []
    for name, experiment in experiments.items():
        say(f"== {name}{' (quick)' if quick else ''}")
        started = time.perf_counter()
        try:
            outcome = experiment(Run(quick, lambda line: say(f"   {line}")))
        except MissingDataError as error:
            missing.append(name)
            say(f"   not run: {error}")
            continue
        seconds = time.perf_counter() - started
        for line in printed(outcome):
            say(line)
        write_outcome(outcome, folder, circumstances(seconds, quick=quick))
    write_index(folder)
    return missing


# --- circumstances ----------------------------------------------------------------------


def circumstances(seconds: float, *, quick: bool) -> dict[str, str]:
    """When, where and with what a run was made."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "wall time": f"{seconds:.0f} s",
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": f"Python {platform.python_version()}, {listed}",
        "extent": "quick: a part of the work" if quick else "full",
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the source tree that is running; a release has none."""
    here = Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not run from a checkout"
    return found.stdout.strip()


# --- what a person sees -----------------------------------------------------------------


def printed(outcome: Outcome) -> list[str]:
    """The lines for a terminal."""
    lines = ["", outcome.title]
    for table in outcome.tables:
        lines += ["", table.title, ""]
        lines += aligned([table.header(), *table.lines()])
        lines += [f"  * {note}" for note in table.notes]
    return [*lines, "", *(f"  -> {finding}" for finding in outcome.findings), ""]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, a rule under the first row; figures stand to the right."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    numeric = [
        all(row[j][:1] in "0123456789+-–" for row in rows[1:]) for j in range(len(widths))
    ]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


# --- files ------------------------------------------------------------------------------


def write_outcome(outcome: Outcome, folder: Path, how: dict[str, str]) -> None:
    """`<name>.csv`, `.md` and PNG for people; `.json` for the page. Each in one step."""
    pictures = []
    for stem, figure in outcome.figures.items():
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=110, bbox_inches="tight")
        pictures.append(f"{outcome.name}-{stem}.png")
        write_file(folder / pictures[-1], content.getvalue())
    shown = {
        "name": outcome.name,
        "title": outcome.title,
        "protocol": outcome.protocol,
        "how": how,
        "tables": [_shown(table) for table in outcome.tables],
        "figures": pictures,
        "findings": outcome.findings,
    }
    write_file(folder / f"{outcome.name}.csv", csv_of(outcome).encode())
    write_file(folder / f"{outcome.name}.md", markdown_of(outcome, how, pictures).encode())
    write_file(folder / f"{outcome.name}.json", json.dumps(shown, indent=1).encode())


def csv_of(outcome: Outcome) -> str:
    """All tables of an experiment below each other, one figure a line."""
    if len(outcome.tables) == 1:
        return outcome.tables[0].csv()
    return "\n".join(f"# {table.name}\n{table.csv()}" for table in outcome.tables)


def markdown_of(outcome: Outcome, how: dict[str, str], pictures: Sequence[str]) -> str:
    """The experiment as one Markdown page."""
    lines = [f"# {outcome.title}", "", outcome.protocol, ""]
    lines += [f"- {key}: {value}" for key, value in how.items()]
    lines += ["", *(f"- **{finding}**" for finding in outcome.findings), ""]
    lines += [table.markdown() for table in outcome.tables]
    lines += [f"![{picture}]({picture})" for picture in pictures]
    return "\n".join(lines) + "\n"


def _shown(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "keys": len(table.keys),
        "header": table.header(),
        "lines": table.lines(),
        "notes": table.notes,
    }


def write_index(folder: Path) -> None:
    """`index.html`: every experiment that has left its files in the folder."""
    found = _shown_in(folder)
    if found:
        write_file(folder / "index.html", page(found).encode())


def _shown_in(folder: Path, without: Collection[str] = ()) -> list[dict[str, Any]]:
    names = [name for name in (*EXPERIMENTS, *OTHERS) if name not in without]
    files = [folder / f"{name}.json" for name in names]
    return [_read_shown(file) for file in files if file.exists()]


def _read_shown(file: Path) -> dict[str, Any]:
    """What an earlier run left of an experiment; the page needs all of it."""
    try:
        shown = json.loads(file.read_text(encoding="utf-8"))
        _section(shown)
    except (OSError, RecursionError, ValueError, TypeError, KeyError, AttributeError) as error:
        words = f"cannot be read ({first_line(error)})"
        raise TableError(f"{file} {words}; delete it or use another -o") from None
    return shown


def page(found: Sequence[dict[str, Any]]) -> str:
    """The page; every text in it is escaped."""
    frame = resources.files("experiments.paper") / "page.html"
    links = "".join(
        f'<li><a href="#{item["name"]}">{html.escape(item["title"])}</a></li>' for item in found
    )
    body = "".join(_section(item) for item in found)
    text = frame.read_text(encoding="utf-8")
    return text.replace("{{links}}", links).replace("{{body}}", body)


def _section(item: dict[str, Any]) -> str:
    escape = html.escape
    findings = "".join(f"<li>{escape(text)}</li>" for text in item["findings"])
    how = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in item["how"].items()
    )
    protocol = "".join(f"<p>{escape(text)}</p>" for text in item["protocol"].split("\n\n"))
    tables = "".join(_table(table) for table in item["tables"])
    pictures = "".join(
        f'<figure><img src="{escape(name)}" alt="{escape(name)}" loading="lazy"></figure>'
        for name in item["figures"]
    )
    return (
        f'<section id="{escape(item["name"])}"><h2>{escape(item["title"])}</h2>'
        f'<ul class="findings">{findings}</ul>{tables}{pictures}'
        f"<details><summary>Protocol and circumstances</summary>{protocol}<dl>{how}</dl>"
        f"</details></section>"
    )


def _table(table: dict[str, Any]) -> str:
    escape = html.escape
    # Keys are words and stand to the left, figures to the right.
    sides = [' class="key"' if j < table["keys"] else "" for j in range(len(table["header"]))]
    head = "".join(
        f'<th scope="col"{side}>{escape(title)}</th>'
        for side, title in zip(sides, table["header"], strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{side}>{escape(text)}</td>" for side, text in zip(sides, line, strict=True)
        )
        + "</tr>"
        for line in table["lines"]
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in table["notes"])
    return (
        f"<h3>{escape(table['title'])}</h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table["title"])}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<ul class="notes">{notes}</ul>'
    )
