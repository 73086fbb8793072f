"""The command line: arguments -> one call -> files.

activehuber audit data.csv --target price -o out/
activehuber predict out/model.skops new.csv -o pred.csv
activehuber crowd train frames/ counts.csv -o cam1/
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from activehuber.runtime.interrupts import STOPPED, cleaned_up, exit_code, politely
from activehuber.runtime.messages import TableError, shortened
from activehuber.runtime.streams import unprinted

if TYPE_CHECKING:
    from activehuber.audit import Audit
    from activehuber.crowd.command import Counted
    from activehuber.crowd.model import CrowdModel
    from activehuber.views import View

TRACEBACK = "ACTIVEHUBER_TRACEBACK"
FILES = ("labels.csv", "predictions.csv", "report.html", "model.skops")
# labels.csv holds what a person needs; the page has the rest.
NOT_IN_CSV = ("residual", "left_at")
SHOWN = 10
# Flagged labels that --json lists, worst first; n_flagged has their number.
MOST_IN_JSON = 20_000
# Characters of one line of the terminal.
LONGEST = 500
# For a terminal: start of the line, erase it, show the cursor.
SHOW_CURSOR = b"\r\x1b[2K\x1b[?25h"

app = typer.Typer(
    name="activehuber",
    help="Flag the doubtful labels of a table, and predict the missing ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str

    Returns
    -------
    int
        0; 2 after one line on stderr that says what is wrong; 130 after Ctrl-C.
    """
    try:
        code = _call(arguments)
        # Some versions of typer turn Ctrl-C into this number.
        return _fail(STOPPED, exit_code()) if code == 130 else _told(code)
    except KeyboardInterrupt:
        return _fail(STOPPED, exit_code())
    except SystemExit as stop:
        if stop.code == 130:
            return _fail(STOPPED, exit_code())
        return stop.code if isinstance(stop.code, int) else 2
    except MemoryError:
        return _fail("memory ran out; use fewer rows or leave columns out with --drop")
    except Exception as error:
        if type(error).__name__ == "Abort":
            return _fail(STOPPED, exit_code())
        if os.environ.get(TRACEBACK):
            raise
        return _fail(_line_of(error))


def _call(arguments: Sequence[str]) -> Any:
    """None after a command; a number after help, which there is where no command is."""
    try:
        return app(args=list(arguments), prog_name="activehuber", standalone_mode=False)
    except Exception as error:
        # What some versions of typer raise; others print the help themselves.
        if type(error).__name__ != "NoArgsIsHelpError" or not hasattr(error, "ctx"):
            raise
        print(error.ctx.get_help())
        return 0


def _told(code: int | None) -> int:
    """The exit code; text that was lost is an error only where there are no files."""
    reason = unprinted()
    if reason is None:
        return int(code or 0)
    if code is None:
        return _fail(f"all is written, but could not be told: stdout: {reason}", 0)
    return _fail(f"stdout cannot be written: {reason}")


def _line_of(error: Exception) -> str:
    """One line for any error: what is wrong with the input, or that this is a bug."""
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        command = "activehuber" if context is None else context.command_path
        return f"{_one_line(error.format_message())} (see {command} --help)"
    if isinstance(error, TableError):
        return _one_line(str(error))
    if isinstance(error, ImportError):
        return (
            f"{_one_line(str(error))}; the command line needs: pip install 'activehuber[cli]'"
        )
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _one_line(f"{where}{error.strerror}")
    return (
        f"this is a bug in activehuber, please report it: {type(error).__name__}: "
        f"{_one_line(str(error))} (set {TRACEBACK}=1 to see where)"
    )


def _fail(line: str, code: int = 2) -> int:
    print(f"activehuber: {line}", file=sys.stderr)
    return code


def _one_line(text: str) -> str:
    return shortened(text, LONGEST)


def _version(asked: bool) -> None:
    if asked:
        import activehuber

        print(f"activehuber {activehuber.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Flag the doubtful labels of a table, and predict the missing ones."""


def _check_not_inputs(outputs: Iterable[Path], inputs: Iterable[Path | None]) -> None:
    """Raise if a file to write is one of those to read, even where files are replaced."""
    read = {os.path.realpath(path) for path in inputs if path is not None}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise TableError(f"{path} is read by this command; write to another place")


# --- audit ------------------------------------------------------------------------------


def _whole_number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"give a whole number, not {shortened(text)!r}") from None


@app.command("audit")
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
    asked = _Asked(
        table, target, identity, views, drop or [], trusted, classify, approximation, components
    )
    with _progress(quiet=as_json) as tell:
        tell(0.0, "starting")
        # Imported here: --help and mistakes in the arguments need none of it.
        from activehuber.data.tables import check_outputs, write_files

        _check_not_inputs([output / name for name in FILES], [table, views])
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
    classify: bool
    approximation: str
    components: int

    @property
    def as_text(self) -> list[str]:
        """Columns whose cells are kept as they are written."""
        named = (self.identity, self.target if self.classify else None, self.trusted)
        return [name for name in named if name]

    def features_of(self, columns: Sequence[str], repeated: Collection[str] = ()) -> list[str]:
        """The columns to learn from, or one line on a name that is wrong."""
        from activehuber.data.tables import like, listed

        unwanted = _split_names(self.drop, set(columns))
        roles = [
            ("--target", self.target),
            ("--id", self.identity),
            ("--trusted", self.trusted),
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
            raise TableError("--target, --id and --trusted must be different columns")
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
    from activehuber.data.tables import mask_of_words, read_table

    options = asked.options(tell)
    table = read_table(asked.table, asked.as_text)
    frame, trusted, identity = table.frame, asked.trusted, asked.identity
    wanted = asked.features_of(list(frame.columns), table.repeated)
    found = audit(
        frame[wanted],
        frame[asked.target],
        trusted=None if trusted is None else mask_of_words(frame[trusted], trusted),
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
    from activehuber.data.tables import first_line, parquet_dataset

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


COVERAGE = 0.9


def _split_names(drop: list[str], known: set[str]) -> list[str]:
    """Names given as a,b; one that holds a comma itself is taken whole."""
    out: list[str] = []
    for part in drop:
        out += [part] if part in known else [name.strip() for name in part.split(",")]
    return [name for name in out if name]


VIEW_KEYS = ("name", "columns", "kernel", "gamma", "degree", "coef0")


def _read_views(path: Path) -> list[View]:
    """Views of columns by name, from [[view]] tables."""
    import tomllib

    from activehuber.data.tables import listed
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


# --- predict ----------------------------------------------------------------------------


@app.command("predict")
def predict_command(
    model: Annotated[Path, typer.Argument(help="model.skops of an audit.")],
    table: Annotated[Path, typer.Argument(help="A table with the same columns.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The CSV file to write.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it exists.")
    ] = False,
) -> None:
    """Predict the target for the rows of another table."""
    from activehuber.audit.outputs import predict_columns
    from activehuber.data.encoding import CATEGORY
    from activehuber.data.tables import check_output_file, csv_text, read_table, write_file
    from activehuber.persistence.model_files import load_model

    _check_not_inputs([output], [model, table])
    check_output_file(output, force=force)
    loaded = load_model(model)
    features = loaded.features
    words = [
        name
        for name, kind in zip(features.columns_, features.kinds_, strict=True)
        if kind == CATEGORY
    ]
    identity = loaded.id_column
    new = read_table(table, [*words, *([identity] if identity else [])])
    matrix, notes = features.transform_and_tell(new.frame)
    try:
        columns = predict_columns(loaded.estimator, matrix, loaded.coverage)
    except ValueError as error:  # what a damaged model foretells may not be finite
        raise TableError(f"{model.name} cannot predict {table.name}: {error}") from None
    has_ids = identity is not None and identity in new.frame.columns
    rows = new.frame[identity].tolist() if has_ids else list(range(1, len(matrix) + 1))
    header = [identity if has_ids and identity else "row", *columns]
    write_file(output, csv_text(header, [rows, *columns.values()]).encode(), force=force)
    for note in (*new.notes, *notes):
        print(f"note: {_one_line(note)}", file=sys.stderr)
    count = len(matrix)
    print(
        f"{count} {'prediction' if count == 1 else 'predictions'} of {loaded.target}: {output}"
    )


# --- the terminal -----------------------------------------------------------------------


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr if that is a terminal; nothing stays of it."""
    if quiet or not sys.stderr.isatty():
        yield lambda share, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    # A process that is stopped must give the cursor back.
    with cleaned_up(lambda: os.write(2, SHOW_CURSOR)), bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=words)


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
    shown = [name for name in labels.columns if name not in NOT_IN_CSV]
    return {
        **summary,
        "flagged": [
            plain(dict(zip(shown, row, strict=True)))
            for row in labels[shown].itertuples(index=False)
        ],
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
        ("\n" + _one_line(path.name), "bold"),
        f" · {_one_line(summary.target)} · ",
        (
            f"{bad:,} of {_count(summary.n_labelled, 'label')} flagged",
            "bold red" * (bad > 0),
        ),
        f" · {summary.n_trusted:,} trusted" * (summary.n_trusted > 0),
        f" · {_count(summary.n_unlabelled, 'prediction')}\n",
    )
    console.print(headline)
    worst = found.labels[found.labels["verdict"] == "flagged"].head(SHOWN)
    if len(worst):
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        name = str(found.labels.columns[0])
        grid.add_column(Text(_one_line(name)), no_wrap=True, max_width=24)
        grid.add_column("quality", justify="right", no_wrap=True)
        grid.add_column("reason")
        for row in worst.itertuples(index=False):
            grid.add_row(
                Text(_one_line(str(row[0]))), f"{row.quality:.3f}", Text(_one_line(row[-1]))
            )
        console.print(grid)
        if bad > len(worst):
            console.print(f"… and {bad - len(worst):,} more in {output / FILES[0]}\n")
    for sentence in summary.findings:
        console.print(Text(f"• {_one_line(sentence)}"))
    for sentence in summary.notes:
        console.print(Text(f"• {_one_line(sentence)}", style="dim"))
    console.print()
    for name, words in zip(FILES, _what_files_hold(summary), strict=True):
        console.print(Text(f"{output / name}", style="bold"), Text(words, style="dim"))
    console.print(Text(str(spent), style="dim"))


def _what_files_hold(summary: Any) -> list[str]:
    return [
        f"all {_count(summary.n_labelled, 'label')}, worst first",
        _count(summary.n_unlabelled, "row") + " without a label",
        "the page to show",
        "for activehuber predict",
    ]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


# --- crowd ------------------------------------------------------------------------------

crowd_app = typer.Typer(
    help="Count people: a few counted frames, a count with an interval for every frame.",
    no_args_is_help=True,
)
app.add_typer(crowd_app, name="crowd")


@crowd_app.command("train")
def crowd_train_command(
    frames: Annotated[Path, typer.Argument(help="A folder of images, or a video file.")],
    counts: Annotated[
        Path,
        typer.Argument(
            help="CSV: frame,count or frame,left,right; a frame is its number or file."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the files.")],
    roi: Annotated[
        Path | None, typer.Option(help="An image, non-zero where people are counted.")
    ] = None,
    perspective: Annotated[
        Path | None, typer.Option(help="A .npy map of a person's height in pixels.")
    ] = None,
    perspective_line: Annotated[
        tuple[float, float] | None,
        typer.Option(help="A person's height at the top and at the bottom row instead."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Learn to count; write the model, all counts, the flagged ones, and a page."""
    started = time.perf_counter()
    with _progress(quiet=False) as tell:
        tell(0.0, "starting")
        from activehuber.crowd.command import FILES as NAMES
        from activehuber.crowd.command import train
        from activehuber.data.tables import check_outputs, write_files

        inputs = [frames, counts, roi, perspective]
        _check_not_inputs([output / name for name in NAMES], inputs)
        check_outputs(output, NAMES, force=force)
        found = train(
            frames, counts, roi=roi, perspective=perspective, line=perspective_line, tell=tell
        )
        tell(0.97, "writing the files")
        write_files(output, found.files(), force=force)
    _show_counts(found.counted, found.model, time.perf_counter() - started)
    for name in NAMES:
        print(output / name)


@crowd_app.command("count")
def crowd_count_command(
    model: Annotated[Path, typer.Argument(help="model.skops of crowd train.")],
    frames: Annotated[Path, typer.Argument(help="A folder of images, or a video file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The CSV file to write.")],
    report: Annotated[
        Path | None, typer.Option(help="An HTML page of the counts to write as well.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Count the frames of the same camera at another time."""
    from activehuber.data.tables import check_output_file

    started = time.perf_counter()
    wanted = [output] if report is None else [output, report]
    if report is not None and os.path.realpath(report) == os.path.realpath(output):
        raise TableError("-o and --report are the same file")
    _check_not_inputs(wanted, [model, frames])
    for path in wanted:
        check_output_file(path, force=force)
    with _progress(quiet=False) as tell:
        tell(0.0, "starting")
        from activehuber.crowd.command import count
        from activehuber.data.tables import write_file

        with_page = report is not None
        found, loaded, page = count(model, frames, page=with_page, table=output.name, tell=tell)
        write_file(output, found.csv(), force=force)
        if report is not None:
            write_file(report, page.encode("utf-8", "replace"), force=force)
    _show_counts(found, loaded, time.perf_counter() - started)
    for path in wanted:
        print(path)


def _show_counts(counted: Counted, model: CrowdModel, seconds: float) -> None:
    from activehuber.crowd.command import summary

    for line in summary(counted, model):
        print(_one_line(line))
    for note in counted.notes:
        print(f"note: {_one_line(note)}", file=sys.stderr)
    n = len(counted.frames)
    print(f"{_count(n, 'frame')} in {seconds:.1f} s")
