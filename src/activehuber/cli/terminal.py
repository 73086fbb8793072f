"""What the commands share: a bar while they work, one line for each thing that is said."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from activehuber.runtime.interrupts import cleaned_up
from activehuber.runtime.messages import TableError, shortened

# Characters of one line of the terminal.
LONGEST = 500
# For a terminal: start of the line, erase it, show the cursor.
SHOW_CURSOR = b"\r\x1b[2K\x1b[?25h"


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[float, str], None]]:
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


def one_line(text: str) -> str:
    """Text on one line of the terminal."""
    return shortened(text, LONGEST)


def count_of(number: int, word: str) -> str:
    """A number and a word that goes with it: "1 label", "2,000 labels"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def check_not_inputs(outputs: Iterable[Path], inputs: Iterable[Path | None]) -> None:
    """Raise if a file to write is one of those to read, even where files are replaced."""
    read = {os.path.realpath(path) for path in inputs if path is not None}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise TableError(f"{path} is read by this command; write to another place")
