"""`activehuber audit`: a table in, labels, predictions, a page and the model out.

What is heavy is imported by the functions that need it: --help and mistakes in the arguments
need none of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

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
# Options that name a column, and the column.
Roles = dict[str, str | None]
VIEW_KEYS = ("name", "columns", "kernel", "gamma", "degree", "coef0")


def _whole_number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadParameter(f"give a whole number, not {shortened(text)!r}") from None


def audit_command(
    table: Annotated[Path, Argument(help="The table: CSV with a header line, or Parquet.")],
    target: Annotated[str, Option(help="The column with the labels; empty cells have none.")],
    identity: Annotated[
        str | None, Option("--id", help="The column that names the rows.")
    ] = None,
    views: Annotated[
        Path | None, Option(help="A TOML file with groups of columns ([[view]]).")
    ] = None,
    drop: Annotated[
        list[str] | None, Option(help="Columns not to learn from: a,b or given repeatedly.")
    ] = None,
    trusted: Annotated[
        str | None, Option(help="The column that says which labels are right (yes or no).")
    ] = None,
    group: Annotated[
        str | None,
        Option(
            help="The column of what rows belong to (patient, site, film): a label is judged "
            "by other groups only."
        ),
    ] = None,
    classify: Annotated[bool, Option("--classify", help="Labels are classes.")] = False,
    approximation: Annotated[
        str,
        Option(
            help="What stands for the kernel: none, nystrom, fourier or linear; auto is none "
            "up to 10,000 labels, nystrom above."
        ),
    ] = "auto",
    components: Annotated[
        int,
        Option(
            help="Functions of the approximation: more are nearer, and slower.",
            parser=_whole_number,
            metavar="INTEGER",
        ),
    ] = 500,
    target_transform: Annotated[
        str,
        Option(
            help="The scale on which numbers are judged: none, log, yeo-johnson; auto is the "
            "one that suits them."
        ),
    ] = "auto",
    engine: Annotated[
        str, Option(help="Who works: local, this process; dask, the workers of a cluster.")
    ] = "local",
    scheduler: Annotated[
        str | None,
        Option(help="Address of a Dask scheduler; without, a cluster on this machine."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON for machines.")] = False,
    force: Annotated[bool, Option("--force", help="Replace files that exist.")] = False,
    output: Annotated[Path, Option("-o", "--output", help="Folder for the files.")] = Path(
        "out"
    ),
) -> None:
    """Flag the doubtful labels; write labels, predictions, a page and the model."""
    started = time.perf_counter()
    if engine not in ("local", "dask"):
        raise TableError(f"--engine must be local or dask, got {engine}")
    if engine == "local" and scheduler is not None:
        raise TableError("--scheduler is for --engine dask")
    if engine == "dask" and not (util.find_spec("dask") and util.find_spec("distributed")):
        raise TableError("--engine dask needs Dask: pip install 'activehuber[dask,cli]'")
    if engine == "dask" and group is not None:
        raise TableError("--group needs the rows in memory: leave out --engine dask")
    roles = {"--target": target, "--id": identity, "--trusted": trusted, "--group": group}
    with progress(quiet=as_json) as tell:
        tell(0.0, "starting")
        check_not_inputs([output / name for name in FILES], [table, views])
        check_outputs(output, FILES, force=force)
        tell(0.01, f"reading {table.name}")
        options = {
            "classify": classify,
            "views": None if views is None else _read_views(views),
            "approximation": None if approximation == "none" else approximation,
            "n_components": components,
            "target_transform": target_transform,
            "title": table.name,
            "target": target,
            "coverage": COVERAGE,
            "progress": lambda share, words: tell(0.05 + 0.9 * share, words),
        }
        if engine == "local":
            found = _audit_file(table, roles, drop or [], options)
        else:
            found = _audit_on_cluster(table, roles, drop or [], options, scheduler, tell)
        tell(0.96, "writing the files")
        write_files(output, _contents(found, identity), force=force)
        tell(1.0, "done")
    seconds, memory = time.perf_counter() - started, _peak_memory()
    if as_json:
        spent = {"seconds": round(seconds, 3), "peak_memory_bytes": memory}
        print(json.dumps(_as_json(found, output) | spent, allow_nan=False))
    else:
        peak = "" if memory is None else f", {memory / 2**30:.2f} GiB at most"
        elsewhere = ", workers not counted" * (engine == "dask")
        _show(found, table, output, f"{seconds:.1f} s{peak}{elsewhere}")


def _features_of(
    columns: Sequence[str], repeated: Collection[str], roles: Roles, drop: list[str]
) -> list[str]:
    """The columns to learn from, or one line on a name that is wrong."""
    unwanted: list[str] = []
    for part in drop:  # given as a,b; a name that holds a comma itself is taken whole
        unwanted += [part] if part in columns else map(str.strip, part.split(","))
    unwanted = [name for name in unwanted if name]
    given = [(option, name) for option, name in roles.items() if name is not None]
    for option, name in [*given, *(("--drop", name) for name in unwanted)]:
        if name not in columns:
            near = f"{like(name, columns)}; the table has {listed(columns, 12)}"
            raise TableError(f"{option} {name}: there is no such column{near}")
        if option != "--drop" and name in repeated:
            raise TableError(f"{option} {name}: several columns have this name; rename one")
    used = {name for _, name in given}
    if len(used) < len(given):
        raise TableError("--target, --id, --trusted and --group must be different columns")
    if roles["--target"] in unwanted:
        raise TableError(f"--drop {roles['--target']}: this is the target")
    without = {*used, *unwanted}
    left = [name for name in columns if name not in without]
    if not left:
        raise TableError("no column is left to learn from besides the target")
    return left


def _audit_file(table: Path, roles: Roles, drop: list[str], options: dict[str, Any]) -> Audit:
    from activehuber.audit import audit
    from activehuber.audit.table import with_notes
    from activehuber.data.parsing import mask_of_words
    from activehuber.data.reading import read_table

    numbers = None if options["classify"] else roles["--target"]
    # Cells of the others are kept as they are written.
    read = read_table(table, [name for name in roles.values() if name and name != numbers])
    frame, trusted = read.frame, roles["--trusted"]
    wanted = _features_of(list(frame.columns), read.repeated, roles, drop)
    own = {option: None if name is None else frame[name] for option, name in roles.items()}
    found = audit(
        frame[wanted],
        own["--target"],
        trusted=None if trusted is None else mask_of_words(frame[trusted], trusted),
        groups=own["--group"],
        ids=own["--id"],
        data_hash=read.digest,
        **options,
    )
    return with_notes(found, read.notes)


def _audit_on_cluster(
    table: Path,
    roles: Roles,
    drop: list[str],
    options: dict[str, Any],
    scheduler: str | None,
    tell: Callable[[float, str], None],
) -> Audit:
    import logging

    import pyarrow as pa

    from activehuber.audit.parquet import audit_parquet
    from activehuber.data.dask_rows import connected
    from activehuber.data.reading import parquet_dataset

    dataset = parquet_dataset(table)
    names = dataset.schema.names
    repeated = [name for name in names if names.count(name) > 1]
    wanted = _features_of(names, repeated, roles, drop)
    own = options | {"identity": roles["--id"], "trusted": roles["--trusted"]}
    tell(0.02, "reaching the cluster")
    try:
        # A cluster closes by itself, which takes longer than a signal handler may.
        with politely(), connected(scheduler) as client:
            try:
                return audit_parquet(dataset, wanted, client=client, **own)
            except KeyboardInterrupt:
                # Dask complains of all that it was about to do; one line says it.
                for name in ("distributed", "asyncio"):
                    logging.getLogger(name).setLevel(logging.CRITICAL + 1)
                raise
    except FileNotFoundError as error:
        raise TableError(
            f"a worker cannot read {table.name}; all of them must see the file under "
            f"the same name ({error})"
        ) from None
    except pa.ArrowException as error:
        raise TableError(
            f"{table.name} cannot be read as one table; a column must have the same type "
            f"in all files of a folder ({first_line(error)})"
        ) from error
    except (ConnectionError, RuntimeError) as error:
        # The cluster's own troubles say what to do.
        raise TableError(str(error)) from error


def _read_views(path: Path) -> list[View]:
    """Views of columns by name, from [[view]] tables."""
    import tomllib

    from activehuber.fitting.validation import check_each_view
    from activehuber.views import View

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise TableError(f"{path} cannot be read as TOML: {why}") from None
    tables = content.get("view")
    if not isinstance(tables, list) or not tables or set(content) != {"view"}:
        raise TableError(
            f"{path} must hold [[view]] tables with name and columns, nothing else"
        )
    out = []
    for number, entry in enumerate(tables, 1):
        where = f"{path}, view {number}"
        extra = sorted(set(entry) - set(VIEW_KEYS)) if isinstance(entry, dict) else []
        if extra or not isinstance(entry, dict):
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


def _peak_memory() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _as_json(found: Audit, output: Path) -> dict[str, Any]:
    import math
    from dataclasses import asdict

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)

    summary = plain(asdict(found.summary))
    labels = found.labels[found.labels["verdict"] == "flagged"].head(MOST_IN_JSON)
    flagged = labels.drop(columns=[*NOT_IN_CSV], errors="ignore").to_dict("records")
    return {
        **summary,
        "settings": dict(summary["settings"]),
        "flagged": plain(flagged),
        "files": {Path(name).stem: str(output / name) for name in FILES},
    }


def _show(found: Audit, path: Path, output: Path, spent: str) -> None:
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
    flagged = f"{bad:,} of {count_of(summary.n_labelled, 'label')} flagged"
    headline = Text.assemble(
        ("\n" + one_line(path.name), "bold"),
        f" · {one_line(summary.target)} · ",
        (flagged, "bold red" * (bad > 0)),
        f" · {summary.n_trusted:,} trusted" * (summary.n_trusted > 0),
        f" · {count_of(summary.n_unlabelled, 'prediction')}\n",
    )
    console.print(headline)
    worst = found.labels[found.labels["verdict"] == "flagged"].head(SHOWN)
    if len(worst):
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        title = Text(one_line(str(found.labels.columns[0])))
        grid.add_column(title, no_wrap=True, max_width=24)
        grid.add_column("quality", justify="right", no_wrap=True)
        grid.add_column("reason")
        for row in worst.itertuples(index=False):
            identity, reason = Text(one_line(str(row[0]))), Text(one_line(row[-1]))
            grid.add_row(identity, f"{row.quality:.3f}", reason)
        console.print(grid)
        if bad > len(worst):
            console.print(f"… and {bad - len(worst):,} more in {output / FILES[0]}\n")
    for sentences, style in ((summary.findings, ""), (summary.notes, "dim")):
        for sentence in sentences:
            console.print(Text(f"• {one_line(sentence)}", style=style))
    console.print()
    held = (
        f"all {count_of(summary.n_labelled, 'label')}, worst first",
        count_of(summary.n_unlabelled, "row") + " without a label",
        "the page to show",
        "for activehuber predict",
    )
    for name, words in zip(FILES, held, strict=True):
        console.print(Text(f"{output / name}", style="bold"), Text(words, style="dim"))
    console.print(Text(spent, style="dim"))
