"""`activehuber audit`: a table in, labels, predictions, a page and the model out.

What is heavy is imported by the functions that need it: --help and mistakes in the arguments
need none of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from activehuber.cli.terminal import check_not_inputs, count_of, one_line, progress
from activehuber.runtime.files import check_outputs, write_files
from activehuber.runtime.interrupts import politely
from activehuber.runtime.messages import TableError, first_line, like, listed, shortened

if TYPE_CHECKING:
    from activehuber.audit import Audit
    from activehuber.views import View

FILES = ("labels.csv", "predictions.csv", "report.html", "model.skops")
# labels.csv holds what a person needs; the page has the rest.
NOT_IN_CSV = ("residual", "left_at")
SHOWN = 10
# Flagged labels that --json lists, worst first; n_flagged has their number.
MOST_IN_JSON = 20_000
COVERAGE = 0.9
VIEW_KEYS = ("name", "columns", "kernel", "gamma", "degree", "coef0")


def _whole_number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"give a whole number, not {shortened(text)!r}") from None


def audit_command(
    table: Annotated[
        Path, typer.Argument(help="The table: CSV with a header line, or Parquet.")
    ],
    target: Annotated[
        str, typer.Option(help="The column with the labels; empty cells have none.")
    ],
    identity: Annotated[
        str | None, typer.Option("--id", help="The column that names the rows.")
    ] = None,
    views: Annotated[
        Path | None, typer.Option(help="A TOML file with groups of columns ([[view]]).")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Columns not to learn from: a,b or given repeatedly."),
    ] = None,
    trusted: Annotated[
        str | None,
        typer.Option(help="The column that says which labels are right (yes or no)."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="The column of what rows belong to (patient, site, film): a label is judged "
            "by other groups only."
        ),
    ] = None,
    classify: Annotated[bool, typer.Option("--classify", help="Labels are classes.")] = False,
    approximation: Annotated[
        str,
        typer.Option(
            help="What stands for the kernel: none, nystrom, fourier or linear; auto is none "
            "up to 10,000 labels, nystrom above."
        ),
    ] = "auto",
    components: Annotated[
        int,
        typer.Option(
            help="Functions of the approximation: more are nearer, and slower.",
            parser=_whole_number,
            metavar="INTEGER",
        ),
    ] = 500,
    target_transform: Annotated[
        str,
        typer.Option(
            help="The scale on which numbers are judged: none, log, yeo-johnson; auto is the "
            "one that suits them."
        ),
    ] = "auto",
    engine: Annotated[
        str,
        typer.Option(help="Who works: local, this process; dask, the workers of a cluster."),
    ] = "local",
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler; without, a cluster on this machine."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the files.")
    ] = Path("out"),
) -> None:
    """Flag the doubtful labels; write labels, predictions, a page and the model."""
    started = time.perf_counter()
    _check_engine(engine, scheduler)
    if engine == "dask" and group is not None:
        raise TableError("--group needs the rows in memory: leave out --engine dask")
    asked = _Asked(
        table,
        target,
        identity,
        views,
        drop or [],
        trusted,
        group,
        classify,
        approximation,
        components,
        target_transform,
    )
    with progress(quiet=as_json) as tell:
        tell(0.0, "starting")
        check_not_inputs([output / name for name in FILES], [table, views])
        check_outputs(output, FILES, force=force)
        tell(0.01, f"reading {table.name}")
        if engine == "local":
            found = _audit_file(asked, tell)
        else:
            found = _audit_on_cluster(asked, scheduler, tell)
        tell(0.96, "writing the files")
        write_files(output, _contents(found, identity), force=force)
        tell(1.0, "done")
    spent = _Spent(time.perf_counter() - started, _peak_memory(), engine == "dask")
    if as_json:
        print(json.dumps(_as_json(found, output, spent), allow_nan=False))
    else:
        _show(found, table, output, spent)


@dataclass(frozen=True)
class _Asked:
    """Arguments of an audit; names as in `audit_command`."""

    table: Path
    target: str
    identity: str | None
    views: Path | None
    drop: list[str]
    trusted: str | None
    group: str | None
    classify: bool
    approximation: str
    components: int
    target_transform: str

    @property
    def as_text(self) -> list[str]:
        """Columns whose cells are kept as they are written."""
        classes = self.target if self.classify else None
        named = (self.identity, classes, self.trusted, self.group)
        return [name for name in named if name]

    def features_of(self, columns: Sequence[str], repeated: Collection[str] = ()) -> list[str]:
        """The columns to learn from, or one line on a name that is wrong."""
        unwanted = _split_names(self.drop, set(columns))
        roles = [
            ("--target", self.target),
            ("--id", self.identity),
            ("--trusted", self.trusted),
            ("--group", self.group),
        ]
        for option, name in [*roles, *(("--drop", name) for name in unwanted)]:
            if name is None:
                continue
            if name not in columns:
                near = f"{like(name, columns)}; the table has {listed(columns, 12)}"
                raise TableError(f"{option} {name}: there is no such column{near}")
            if option != "--drop" and name in repeated:
                raise TableError(f"{option} {name}: several columns have this name; rename one")
        used = [name for _, name in roles if name is not None]
        if len(set(used)) < len(used):
            raise TableError("--target, --id, --trusted and --group must be different columns")
        if self.target in unwanted:
            raise TableError(f"--drop {self.target}: this is the target")
        without = {*used, *unwanted}
        left = [name for name in columns if name not in without]
        if not left:
            raise TableError("no column is left to learn from besides the target")
        return left

    def options(self, tell: Callable[[float, str], None]) -> dict[str, Any]:
        """Arguments of `audit` that do not depend on where the rows are."""
        return {
            "classify": self.classify,
            "views": None if self.views is None else _read_views(self.views),
            "approximation": None if self.approximation == "none" else self.approximation,
            "n_components": self.components,
            "target_transform": self.target_transform,
            "title": self.table.name,
            "target": self.target,
            "coverage": COVERAGE,
            "progress": lambda share, words: tell(0.05 + 0.9 * share, words),
        }


def _check_engine(engine: str, scheduler: str | None) -> None:
    from importlib.util import find_spec

    if engine not in ("local", "dask"):
        raise TableError(f"--engine must be local or dask, got {engine}")
    if engine == "local" and scheduler is not None:
        raise TableError("--scheduler is for --engine dask")
    if engine == "dask" and (find_spec("dask") is None or find_spec("distributed") is None):
        raise TableError("--engine dask needs Dask: pip install 'activehuber[dask,cli]'")


def _audit_file(asked: _Asked, tell: Callable[[float, str], None]) -> Audit:
    from activehuber.audit import audit
    from activehuber.audit.table import with_notes
    from activehuber.data.parsing import mask_of_words
    from activehuber.data.reading import read_table

    options = asked.options(tell)
    table = read_table(asked.table, asked.as_text)
    frame, trusted, identity = table.frame, asked.trusted, asked.identity
    wanted = asked.features_of(list(frame.columns), table.repeated)
    found = audit(
        frame[wanted],
        frame[asked.target],
        trusted=None if trusted is None else mask_of_words(frame[trusted], trusted),
        groups=None if asked.group is None else frame[asked.group],
        ids=None if identity is None else frame[identity],
        data_hash=table.digest,
        **options,
    )
    return with_notes(found, table.notes)


def _audit_on_cluster(
    asked: _Asked, scheduler: str | None, tell: Callable[[float, str], None]
) -> Audit:
    import pyarrow as pa

    from activehuber.audit.parquet import audit_parquet
    from activehuber.data.dask_rows import connected
    from activehuber.data.reading import parquet_dataset

    options = asked.options(tell)
    dataset = parquet_dataset(asked.table)
    names = dataset.schema.names
    wanted = asked.features_of(names, [name for name in names if names.count(name) > 1])
    tell(0.02, "reaching the cluster")
    try:
        # A cluster closes by itself, which takes longer than a signal handler may.
        with politely(), connected(scheduler) as client, _hushed_when_stopped():
            return audit_parquet(
                dataset,
                wanted,
                identity=asked.identity,
                trusted=asked.trusted,
                client=client,
                **options,
            )
    except FileNotFoundError as error:
        raise TableError(
            f"a worker cannot read {asked.table.name}; all of them must see the file under "
            f"the same name ({error})"
        ) from None
    except pa.ArrowException as error:
        raise TableError(
            f"{asked.table.name} cannot be read as one table; a column must have the same type "
            f"in all files of a folder ({first_line(error)})"
        ) from error
    except (ConnectionError, RuntimeError) as error:
        # The cluster's own troubles say what to do.
        raise TableError(str(error)) from error


@contextmanager
def _hushed_when_stopped() -> Iterator[None]:
    """After Ctrl-C Dask complains of all that it was about to do; one line says it."""
    import logging

    try:
        yield
    except KeyboardInterrupt:
        for name in ("distributed", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        raise


def _split_names(drop: list[str], known: set[str]) -> list[str]:
    """Names given as a,b; one that holds a comma itself is taken whole."""
    out: list[str] = []
    for part in drop:
        out += [part] if part in known else [name.strip() for name in part.split(",")]
    return [name for name in out if name]


def _read_views(path: Path) -> list[View]:
    """Views of columns by name, from [[view]] tables."""
    import tomllib

    from activehuber.fitting.validation import check_each_view
    from activehuber.views import View

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file") from None
    except RecursionError:
        raise TableError(f"{path} cannot be read as TOML: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise TableError(f"{path} cannot be read as TOML: {error}") from None
    tables = content.get("view")
    if not isinstance(tables, list) or not tables or set(content) != {"view"}:
        raise TableError(
            f"{path} must hold [[view]] tables with name and columns, nothing else"
        )
    out = []
    for number, entry in enumerate(tables, 1):
        where = f"{path}, view {number}"
        if not isinstance(entry, dict) or set(entry) - set(VIEW_KEYS):
            extra = sorted(set(entry) - set(VIEW_KEYS)) if isinstance(entry, dict) else []
            raise TableError(f"{where}: keys are {', '.join(VIEW_KEYS)}, not {listed(extra)}")
        columns = entry.get("columns")
        texts = isinstance(columns, list) and all(isinstance(c, str) for c in columns)
        if not texts or not columns:
            raise TableError(f"{where}: columns must be a list of column names")
        out.append(View(**{"name": f"view{number}", **entry}))
    try:
        check_each_view(out)
    except (TypeError, ValueError) as error:
        raise TableError(f"{path}: {error}") from None
    return out


def _contents(found: Audit, identity: str | None) -> dict[str, bytes | Iterable[bytes]]:
    """The four files; tables are made while they are written."""
    from activehuber.audit.outputs import table_csv
    from activehuber.persistence.model_files import Model, model_bytes
    from activehuber.report.page import render

    model = Model(found.model, found.summary.target, identity, COVERAGE)
    contents = (
        table_csv(found.labels, leave_out=NOT_IN_CSV),
        table_csv(found.predictions),
        render(found.report).encode("utf-8", "replace"),
        model_bytes(model),
    )
    return dict(zip(FILES, contents, strict=True))


@dataclass(frozen=True)
class _Spent:
    """Seconds, and the most bytes of memory that this process held, if the system knows."""

    seconds: float
    memory: int | None
    elsewhere: bool

    def __str__(self) -> str:
        peak = "" if self.memory is None else f", {self.memory / 2**30:.2f} GiB at most"
        return f"{self.seconds:.1f} s{peak}{', workers not counted' * self.elsewhere}"


def _peak_memory() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _as_json(found: Audit, output: Path, spent: _Spent) -> dict[str, Any]:
    import math
    from dataclasses import asdict

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if hasattr(value, "tolist"):
            return plain(value.tolist())
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)

    summary = plain(asdict(found.summary))
    summary["settings"] = dict(summary["settings"])
    files = {Path(name).stem: str(output / name) for name in FILES}
    labels = found.labels[found.labels["verdict"] == "flagged"].head(MOST_IN_JSON)
    return {
        **summary,
        "flagged": plain(
            labels.drop(columns=[*NOT_IN_CSV], errors="ignore").to_dict("records")
        ),
        "files": files,
        "seconds": round(spent.seconds, 3),
        "peak_memory_bytes": spent.memory,
    }


def _show(found: Audit, path: Path, output: Path, spent: _Spent) -> None:
    """The summary a person reads."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    summary = found.summary
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    bad = summary.n_flagged
    headline = Text.assemble(
        ("\n" + one_line(path.name), "bold"),
        f" · {one_line(summary.target)} · ",
        (
            f"{bad:,} of {count_of(summary.n_labelled, 'label')} flagged",
            "bold red" * (bad > 0),
        ),
        f" · {summary.n_trusted:,} trusted" * (summary.n_trusted > 0),
        f" · {count_of(summary.n_unlabelled, 'prediction')}\n",
    )
    console.print(headline)
    worst = found.labels[found.labels["verdict"] == "flagged"].head(SHOWN)
    if len(worst):
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        name = str(found.labels.columns[0])
        grid.add_column(Text(one_line(name)), no_wrap=True, max_width=24)
        grid.add_column("quality", justify="right", no_wrap=True)
        grid.add_column("reason")
        for row in worst.itertuples(index=False):
            grid.add_row(
                Text(one_line(str(row[0]))), f"{row.quality:.3f}", Text(one_line(row[-1]))
            )
        console.print(grid)
        if bad > len(worst):
            console.print(f"… and {bad - len(worst):,} more in {output / FILES[0]}\n")
    for sentence in summary.findings:
        console.print(Text(f"• {one_line(sentence)}"))
    for sentence in summary.notes:
        console.print(Text(f"• {one_line(sentence)}", style="dim"))
    console.print()
    held = (
        f"all {count_of(summary.n_labelled, 'label')}, worst first",
        count_of(summary.n_unlabelled, "row") + " without a label",
        "the page to show",
        "for activehuber predict",
    )
    for name, words in zip(FILES, held, strict=True):
        console.print(Text(f"{output / name}", style="bold"), Text(words, style="dim"))
    console.print(Text(str(spent), style="dim"))
