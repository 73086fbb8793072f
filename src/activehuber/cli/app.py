"""The command line: arguments -> one call -> files, and an exit code.

activehuber audit data.csv --target price -o out/
activehuber predict out/model.skops new.csv -o pred.csv
activehuber crowd train frames/ counts.csv -o cam1/
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from activehuber.cli.audit import audit_command
from activehuber.cli.crowd import (
    crowd_count_command,
    crowd_next_command,
    crowd_train_command,
)
from activehuber.cli.predict import predict_command
from activehuber.cli.terminal import one_line
from activehuber.runtime.interrupts import STOPPED, exit_code
from activehuber.runtime.messages import TableError
from activehuber.runtime.streams import unprinted

TRACEBACK = "ACTIVEHUBER_TRACEBACK"
app = typer.Typer(
    name="activehuber",
    help="Flag the doubtful labels of a table, and predict the missing ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
crowd_app = typer.Typer(
    help="Count people: a few counted frames, a count with an interval for every frame.",
    no_args_is_help=True,
)
app.add_typer(crowd_app, name="crowd")
app.command("audit")(audit_command)
app.command("predict")(predict_command)
crowd_app.command("train")(crowd_train_command)
crowd_app.command("count")(crowd_count_command)
crowd_app.command("next")(crowd_next_command)


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
        # None after a command; a number after help, which there is where no command is.
        code = app(args=list(arguments), prog_name="activehuber", standalone_mode=False)
        if code != 130:  # as some versions of typer say that it was Ctrl-C
            return _told(code)
    except KeyboardInterrupt:
        pass
    except SystemExit as stop:
        if stop.code != 130:
            return stop.code if isinstance(stop.code, int) else 2
    except MemoryError:
        return _fail("memory ran out; use fewer rows or leave columns out with --drop")
    except Exception as error:
        kind = type(error).__name__
        # What some versions of typer raise; others print the help themselves.
        if kind == "NoArgsIsHelpError" and hasattr(error, "ctx"):
            print(error.ctx.get_help())
            return _told(0)
        if kind != "Abort":
            if os.environ.get(TRACEBACK):
                raise
            return _fail(_line_of(error))
    return _fail(STOPPED, exit_code())


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
        return f"{one_line(error.format_message())} (see {command} --help)"
    if isinstance(error, TableError):
        return one_line(str(error))
    if isinstance(error, ImportError):
        return f"{one_line(str(error))}; the command line needs: pip install 'activehuber[cli]'"
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return one_line(f"{where}{error.strerror}")
    return (
        f"this is a bug in activehuber, please report it: {type(error).__name__}: "
        f"{one_line(str(error))} (set {TRACEBACK}=1 to see where)"
    )


def _fail(line: str, code: int = 2) -> int:
    print(f"activehuber: {line}", file=sys.stderr)
    return code


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
