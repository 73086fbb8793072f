"""Drawn tables for `activehuber audit` and `predict`, and for `audit()` from Python.

A table becomes CSV (any delimiter, encoding, decimal mark, line end, quotes; a few with broken
bytes), Parquet or a data frame. Exit 0 comes with whole files, 2 with one line; never more.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from activehuber import audit
from activehuber.cli.app import TRACEBACK, run
from activehuber.cli.audit import FILES
from activehuber.persistence.model_files import load_model
from tests.fuzzing.verdict import (
    ACCEPTED,
    FAILED,
    FIRST_WORDS,
    REFUSED,
    BadAnswerError,
    Verdict,
    judged,
    verdict_of,
)

Rng = np.random.Generator

WORDS = ["a", "b", "red", "blue", "NA", "=1+1", "-x", "@y", "+z", '"', "ä", "日本", "a b", "'"]
NUMBERS = ["0", "1", "2.5", "-3", "1e3", "1e400", "inf", "-inf", "nan", "9" * 40, " 7 ", "1_0"]
HUGE = ["1e300", "-1e300", "1e308", "1e-300", "5e-324", "1e200", "1.7976931348623157e308"]
SCALES = [1e-320, 1e-300, 1e-140, 1e-100, 1e-9, 1e9, 1e100, 1e140, 1e200, 1e307]
ODD = ["1,5", "1.234,5", "1,234.5", "12,345,678", "0x10", "1e-320", "True", "false", "?", "\t"]
DATES = ["2024-01-31", "2023-12-01 10:30", "31/12/2020", "1/2/2020", "3.4.2021", "2024-13-01"]
FAR_DATES = ["0001-01-01", "9999-12-31", "1677-09-21", "2262-04-12", "1970-01-01T00:00:00Z"]
HEADERS = [
    "",
    "=x",
    "ü",
    "given",
    "row",
    "prediction",
    "quality",
    "a,b",
    'a"b',
    "x" * 300,
    "c0",
]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252"]
TYPES = ["float32", "int8", "Int64", "bool", "string", "category", "datetime64[ns]", "object"]


@dataclass(frozen=True)
class Table:
    """Cells as text, the target among the columns, and the arguments of an audit."""

    names: list[str]
    columns: list[list[str]]
    arguments: list[str]

    @property
    def rows(self) -> list[list[str]]:
        return [self.names, *map(list, zip(*self.columns, strict=True))]


def trial(seed: int, number: int) -> Verdict:
    """Draw a table and judge what comes of it."""
    rng = np.random.default_rng([seed, number])
    kind = rng.random()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning that no one asked for is no answer
        if kind < 0.15:
            return verdict_of(lambda: from_python(rng))
        table = draw(rng)
        suffix = "parquet" if kind < 0.35 else "csv"
        content = as_parquet(rng, table) if suffix == "parquet" else as_csv(rng, table)
        return by_command(rng, table, content, f"table.{suffix}")


def describe(seed: int, number: int, verdict: Verdict) -> str:
    """What was drawn."""
    rng = np.random.default_rng([seed, number])
    kind = rng.random()
    if kind < 0.15:
        X, y, options = draw_frame(rng)
        return (
            f"X = pd.DataFrame({X.to_dict('list')!r})\n{X.dtypes}\naudit(X, {y!r}, {options})"
        )
    table = draw(rng)
    arguments = " ".join(table.arguments)
    if kind < 0.35:
        frame = pd.read_parquet(io.BytesIO(as_parquet(rng, table)))
        return f"{frame.dtypes}\n{frame.to_dict('list')!r}\naudit table.parquet {arguments}"
    return f"{as_csv(rng, table)!r}\naudit table.csv {arguments}"


# --- what may come of a table -----------------------------------------------------------


def by_command(rng: Rng, table: Table, content: bytes, name: str) -> Verdict:
    """Audit the file, then predict with the model that was found."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path, out = folder / name, folder / "out"
        path.write_bytes(content)
        first = call(["audit", str(path), *table.arguments, "-o", str(out)], folder, {name})
        if first.kind != ACCEPTED:
            return first
        found = verdict_of(lambda: check_files(out, first.why, table.arguments))
        if found.kind != ACCEPTED or rng.random() < 0.5:
            return found
        return predicted(rng, table, folder)


def predicted(rng: Rng, table: Table, folder: Path) -> Verdict:
    """Other cells in the same columns, or fewer columns, asked of the model."""
    columns = [
        rng.permutation(column).tolist()
        if rng.random() < 0.7
        else draw_column(rng, len(column))
        for column in table.columns
    ]
    names = list(table.names)
    if rng.random() < 0.05:
        names.pop(), columns.pop()
    new = Table(names, columns, [])
    path, out = folder / "new.csv", folder / "predicted.csv"
    path.write_bytes(as_csv(rng, new, broken=False))
    before = {item.name for item in folder.iterdir()}
    model = str(folder / "out" / "model.skops")
    verdict = call(["predict", model, str(path), "-o", str(out)], folder, before, notes=True)
    if verdict.kind != ACCEPTED:
        return verdict
    return verdict_of(lambda: check_numbers(out, numbers_of("prediction", table.arguments)))


def call(
    arguments: list[str], folder: Path, before: set[str], *, notes: bool = False
) -> Verdict:
    """Run the command; accepted with what it printed, refused with its one line."""
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as said:
        code = run(arguments)
    errors, after = said.getvalue(), {item.name for item in folder.iterdir()}
    lines = errors.splitlines()
    if code == 0 and (not errors or (notes and all(x.startswith("note: ") for x in lines))):
        return Verdict(ACCEPTED, printed.getvalue())
    if code != 2 or len(lines) != 1 or not errors.startswith("activehuber: "):
        return Verdict(FAILED, f"exit {code} with {len(lines)} lines of errors", errors)
    if "this is a bug" in errors:
        return cause_of(arguments, errors)
    if printed.getvalue() or after != before:
        return Verdict(FAILED, "an error came with output", f"{errors}{sorted(after)}")
    words = errors.removeprefix("activehuber: ").split()
    return Verdict(REFUSED, " ".join(words[:FIRST_WORDS]))


def cause_of(arguments: list[str], errors: str) -> Verdict:
    """The error behind the line that says that this is a bug."""
    os.environ[TRACEBACK] = "1"
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            run([*arguments, "--force"])
    except Exception as error:
        found = judged(error)
        return Verdict(FAILED, f"said to be a bug: {found.why}", found.detail or errors)
    finally:
        del os.environ[TRACEBACK]
    return Verdict(FAILED, "a bug that does not come again", errors)


def check_files(out: Path, printed: str, arguments: list[str]) -> str:
    """Whole files, numbers that are numbers, JSON that is JSON, a model that loads."""
    if sorted(item.name for item in out.iterdir()) != sorted(FILES):
        raise BadAnswerError("not all files were written")
    if not (out / "report.html").read_text().rstrip().endswith("</html>"):
        raise BadAnswerError("report.html is not whole")
    check_numbers(out / "labels.csv", (*numbers_of("expected", arguments), "quality"))
    check_numbers(out / "predictions.csv", numbers_of("prediction", arguments))
    if "--json" in arguments:
        json.loads(printed, parse_constant=_no_json)
    load_model(out / "model.skops")
    return "by the command line"


def _no_json(word: str) -> None:
    raise BadAnswerError(f"{word} is no JSON")


def numbers_of(name: str, arguments: list[str]) -> tuple[str, ...]:
    """Columns that hold numbers: none of them if there are classes."""
    return () if "--classify" in arguments else (name, "lower", "upper")


def check_numbers(path: Path, names: tuple[str, ...]) -> str:
    """Columns of a file that must hold finite numbers and nothing else."""
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            for name in names:
                if name in line and not is_finite(line[name]):
                    raise BadAnswerError(f"{path.name}: {name} holds {line[name] or 'nothing'}")
    return "predicted"


def is_finite(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def from_python(rng: Rng) -> str:
    """`audit()` of a data frame, its tables and its page."""
    X, y, options = draw_frame(rng)
    found = audit(X, y, **options)
    if not options["classify"]:
        for name in ("expected", "lower", "upper", "residual"):
            _finite(f"labels[{name!r}]", found.labels[name])
        for name in ("prediction", "lower", "upper"):
            _finite(f"predictions[{name!r}]", found.predictions[name])
    _finite("labels['quality']", found.labels["quality"])
    if len(found.labels) + len(found.predictions) != len(X):
        raise BadAnswerError("labels and predictions are not all rows")
    repr(found), found._repr_html_()
    again = found.predict(X)
    if len(again) != len(X):
        raise BadAnswerError("predict returns another number of rows")
    with tempfile.TemporaryDirectory() as folder:
        found.to_html(Path(folder) / "page.html")
        found.to_csv(Path(folder) / "labels.csv")
        found.to_parquet(Path(folder) / "labels.parquet")
    return "from Python"


def _finite(name: str, values: Any) -> None:
    if not np.all(np.isfinite(np.asarray(values, dtype=np.float64))):
        raise BadAnswerError(f"{name} is not finite")


# --- how a table is drawn ---------------------------------------------------------------


def one_of(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def draw(rng: Rng) -> Table:
    """Columns of all kinds, one of which can mostly be learnt, and arguments."""
    few = rng.random() < 0.06
    n_rows = one_of(rng, [0, 1, 2, 3] if few else [6, 8, 12, 15, 20, 25])
    n_columns = 1 if rng.random() < 0.02 else one_of(rng, [2, 3, 3, 4, 5, 6])
    names = [f"c{i}" for i in range(n_columns)]
    if rng.random() < 0.1:
        names[int(rng.integers(n_columns))] = one_of(rng, HEADERS)
    columns = [draw_column(rng, n_rows) for _ in names]
    place, classify = int(rng.integers(n_columns)), rng.random() < 0.2
    if rng.random() < 0.96:
        columns[place] = draw_target(rng, n_rows, classify=classify)
    target = "nope" if rng.random() < 0.01 else names[place]
    out = ["--target", target]
    others = [name for name in names if name != target] or names
    for option, chance in (("--id", 0.03), ("--trusted", 0.02), ("--drop", 0.06)):
        if rng.random() < chance:
            out += [option, one_of(rng, others if rng.random() < 0.9 else names)]
    out += ["--classify"] * classify + ["--json"] * (rng.random() < 0.3)
    if rng.random() < 0.08:
        out += ["--approximation", one_of(rng, ["nystrom", "fourier", "linear", "none"])]
    return Table(names, columns, out)


def draw_column(rng: Rng, n_rows: int) -> list[str]:
    """Cells of one kind, with gaps and a few of another."""
    kind = rng.random()
    if kind < 0.5:
        values = np.round(rng.normal(size=n_rows) * 10.0 ** rng.integers(-3, 6), 3)
        cells = [str(value) for value in values]
    elif kind < 0.6:
        cells = [str(value) for value in rng.integers(0, 3, n_rows)]
    elif kind < 0.7:
        cells = [one_of(rng, WORDS) for _ in range(n_rows)]
    elif kind < 0.78:
        cells = [one_of(rng, NUMBERS) for _ in range(n_rows)]
    elif kind < 0.82:
        cells = [one_of(rng, HUGE) for _ in range(n_rows)]
    elif kind < 0.90:
        dates = DATES[:2] if rng.random() < 0.8 else [*DATES, *FAR_DATES]
        cells = [one_of(rng, dates) for _ in range(n_rows)]
    elif kind < 0.95:
        cells = [one_of(rng, ["yes", "no"]) for _ in range(n_rows)]
    else:
        cells = [f"id{i}" for i in range(n_rows)]
    for row in range(n_rows):
        if rng.random() < 0.03:
            cells[row] = one_of(rng, [*WORDS, *NUMBERS, *ODD, *DATES, *FAR_DATES, *HUGE])
        elif rng.random() < 0.08:
            cells[row] = ""
    return cells


def draw_target(rng: Rng, n_rows: int, *, classify: bool) -> list[str]:
    """Labels that can be learnt, some of them missing, a few out of scale."""
    if classify:
        words = one_of(rng, [["a", "b"], ["0", "1"], ["ja", "nein", "ä"], ["1.0", "1"]])
        cells = [one_of(rng, words) for _ in range(n_rows)]
    else:
        scale = 1.0 if rng.random() < 0.85 else one_of(rng, SCALES)
        cells = [repr(float(value)) for value in rng.normal(size=n_rows) * scale]
        if rng.random() < 0.2:
            cells = [f"{value:.2f}" for value in rng.normal(size=n_rows)]
        if rng.random() < 0.05:
            cells = ["3"] * n_rows
        if rng.random() < 0.05 and n_rows:
            cells[0] = one_of(rng, HUGE)
    gaps = one_of(rng, [0.0, 0.1, 0.3])
    return ["" if rng.random() < gaps else cell for cell in cells]


def as_csv(rng: Rng, table: Table, *, broken: bool = True) -> bytes:
    """The table as bytes of a file that a spreadsheet or an editor may have left."""
    delimiter = one_of(rng, [",", ",", ",", ";", "\t", "|"])
    rows, quote = table.rows, rng.random() < 0.3
    if delimiter == ";" and rng.random() < 0.5:
        rows = [rows[0], *([cell.replace(".", ",") for cell in row] for row in rows[1:])]
    needs = (delimiter, '"', "\n")
    if broken and len(rows) > 1 and rng.random() < 0.02:
        rows[int(rng.integers(1, len(rows)))].append("extra")
    if broken and len(rows) > 1 and rng.random() < 0.02:
        del rows[int(rng.integers(1, len(rows)))][0]
    end = one_of(rng, ["\n", "\n", "\r\n", "\r"])
    careful = not broken or rng.random() < 0.8
    text = end.join(
        delimiter.join(
            quoted(cell) if quote or (careful and any(x in cell for x in needs)) else cell
            for cell in row
        )
        for row in rows
    )
    text += end * int(rng.integers(0, 3))
    content = bytearray(text.encode(one_of(rng, ENCODINGS), "replace"))
    if broken and rng.random() < 0.08:
        for _ in range(int(rng.integers(1, 4))):
            content.insert(int(rng.integers(len(content) + 1)), int(rng.integers(256)))
    if broken and rng.random() < 0.03:
        content = content[: int(rng.integers(len(content) + 1))]
    if broken and rng.random() < 0.02:
        content = bytearray(rng.bytes(int(rng.integers(0, 200))))
    if broken and rng.random() < 0.02:
        content = bytearray(b"PAR1") + content
    return bytes(content)


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def as_parquet(rng: Rng, table: Table) -> bytes:
    """The table as Parquet, of the types that its columns have by chance."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [pa.array(typed(rng, column).tolist()) for column in table.columns]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=table.names), out)
    content = bytearray(out.getvalue())
    if rng.random() < 0.08:
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
    if rng.random() < 0.04:
        content = content[: int(rng.integers(len(content) + 1))]
    return bytes(content)


def typed(rng: Rng, cells: list[str]) -> pd.Series:
    """Numbers or dates where all cells are some, and mostly as that type."""
    column = pd.Series([cell or None for cell in cells], dtype=object)
    if rng.random() < 0.1:
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().sum() <= column.isna().sum():
        return numbers.astype(float)
    dates = pd.to_datetime(column, errors="coerce", format="%Y-%m-%d")
    if dates.isna().sum() <= column.isna().sum():
        return dates.astype(object).where(dates.notna(), None)
    return column


def draw_frame(rng: Rng) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Columns of many types, labels of many types, and options of `audit`."""
    table = draw(rng)
    target = draw_target(rng, len(table.columns[0]), classify="--classify" in table.arguments)
    X = pd.DataFrame({i: typed(rng, column) for i, column in enumerate(table.columns)})
    X.columns = table.names
    if rng.random() < 0.3:
        X = X.convert_dtypes()
    place, kind = int(rng.integers(X.shape[1])), one_of(rng, TYPES)
    if rng.random() < 0.3 and X.columns.is_unique:
        # Not every column can be of every type, nor every number.
        with suppress(ValueError, TypeError, OverflowError), np.errstate(over="ignore"):
            X = X.astype({X.columns[place]: kind})
    if rng.random() < 0.1:
        X.index = pd.Index(rng.integers(0, 3, len(X)))
    classify = "--classify" in table.arguments
    y: Any = pd.Series(target, dtype=object).replace("", None)
    if not classify and rng.random() < 0.8:
        y = pd.to_numeric(y, errors="coerce").astype(float)
    kind = rng.random()
    y = y.to_numpy() if kind < 0.3 else y.tolist() if kind < 0.5 else y
    options: dict[str, Any] = {"classify": classify}
    if rng.random() < 0.1:
        options["trusted"] = (rng.random(len(X)) < 0.3).tolist()
    if rng.random() < 0.1:
        options["coverage"] = one_of(rng, [0.5, 0.999, 1e-300, 1.0, 0, "0.9", None, np.nan])
    return X, y, options
