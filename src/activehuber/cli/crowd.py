"""`activehuber crowd`: learn to count from a few counted frames, then count others."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from activehuber.cli.terminal import check_not_inputs, count_of, one_line, progress
from activehuber.runtime.files import check_output_file, check_outputs, write_file, write_files
from activehuber.runtime.messages import TableError

if TYPE_CHECKING:
    from activehuber.crowd.command import Counted
    from activehuber.crowd.model import CrowdModel

FRAMES = Annotated[Path, typer.Argument(help="A folder of images, or a video file.")]
MODEL = Annotated[Path, typer.Argument(help="model.skops of crowd train.")]
FORCE = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
SMOOTH = Annotated[
    int, typer.Option(help="Write means over so many frames, an odd number; half are later.")
]
INTEGER = Annotated[bool, typer.Option("--integer", help="Write whole people.")]


def crowd_train_command(
    frames: FRAMES,
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
    smooth: SMOOTH = 1,
    integer: INTEGER = False,
    force: FORCE = False,
) -> None:
    """Learn to count; write the model, all counts, the flagged ones, and a page."""
    started = time.perf_counter()
    with progress(quiet=False) as tell:
        tell(0.0, "starting")
        from activehuber.crowd.command import FILES as NAMES
        from activehuber.crowd.command import Style, train

        inputs = [frames, counts, roi, perspective]
        check_not_inputs([output / name for name in NAMES], inputs)
        check_outputs(output, NAMES, force=force)
        found = train(
            *(frames, counts),
            roi=roi,
            perspective=perspective,
            line=perspective_line,
            style=Style(smooth, integer),
            tell=tell,
        )
        tell(0.97, "writing the files")
        write_files(output, found.files(), force=force)
    _show_counts(found.counted, found.model, time.perf_counter() - started)
    for name in NAMES:
        print(output / name)


def crowd_count_command(
    model: MODEL,
    frames: FRAMES,
    output: Annotated[Path, typer.Option("-o", "--output", help="The CSV file to write.")],
    counts: Annotated[
        Path | None, typer.Option(help="CSV with counts of some of these frames.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="An HTML page of the counts to write as well.")
    ] = None,
    smooth: SMOOTH = 1,
    integer: INTEGER = False,
    force: FORCE = False,
) -> None:
    """Count the frames of the same camera at another time."""
    started = time.perf_counter()
    wanted = [output] if report is None else [output, report]
    if report is not None and os.path.realpath(report) == os.path.realpath(output):
        raise TableError("-o and --report are the same file")
    check_not_inputs(wanted, [model, frames, counts])
    for path in wanted:
        check_output_file(path, force=force)
    with progress(quiet=False) as tell:
        tell(0.0, "starting")
        from activehuber.crowd.command import Style, count

        found, loaded, page = count(
            *(model, frames),
            counts=counts,
            style=Style(smooth, integer),
            page=report is not None,
            table=output.name,
            tell=tell,
        )
        write_file(output, found.csv(), force=force)
        if report is not None:
            write_file(report, page.encode("utf-8", "replace"), force=force)
    _show_counts(found, loaded, time.perf_counter() - started)
    for path in wanted:
        print(path)


def crowd_next_command(
    model: MODEL,
    frames: FRAMES,
    many: Annotated[int, typer.Option("-n", "--many", help="How many frames.")] = 10,
) -> None:
    """Name the frames whose count would help most, for crowd count --counts."""
    with progress(quiet=False) as tell:
        tell(0.0, "starting")
        from activehuber.crowd.command import propose

        lines = propose(model, frames, many=many, tell=tell)
    for line in lines:
        print(one_line(line))


def _show_counts(counted: Counted, model: CrowdModel, seconds: float) -> None:
    from activehuber.crowd.command import summary

    for line in summary(counted, model):
        print(one_line(line))
    for note in counted.notes:
        print(f"note: {one_line(note)}", file=sys.stderr)
    n = len(counted.frames)
    print(f"{count_of(n, 'frame')} in {seconds:.1f} s")
