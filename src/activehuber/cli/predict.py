"""`activehuber predict`: a model and a table in, predictions out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from activehuber.cli.terminal import check_not_inputs, one_line
from activehuber.runtime.files import check_output_file, write_file
from activehuber.runtime.messages import TableError


def predict_command(
    model: Annotated[Path, Argument(help="model.skops of an audit.")],
    table: Annotated[Path, Argument(help="A table with the same columns.")],
    output: Annotated[Path, Option("-o", "--output", help="The CSV file to write.")],
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Predict the target for the rows of another table."""
    from activehuber.audit.outputs import predict_columns
    from activehuber.data.encoding import CATEGORY
    from activehuber.data.reading import read_table
    from activehuber.data.writing import csv_text
    from activehuber.persistence.model_files import load_model

    check_not_inputs([output], [model, table])
    check_output_file(output, force=force)
    loaded = load_model(model)
    features = loaded.features
    words, identity = features.encoding_.of_kind(CATEGORY), loaded.id_column
    new = read_table(table, [*words, *([identity] if identity else [])])
    matrix, notes = features.transform_and_tell(new.frame)
    try:
        columns = predict_columns(loaded.estimator, matrix, loaded.coverage)
    except ValueError as error:  # what a damaged model predicts may not be finite
        raise TableError(f"{model.name} cannot predict {table.name}: {error}") from None
    has_ids = identity is not None and identity in new.frame.columns
    rows = new.frame[identity].tolist() if has_ids else list(range(1, len(matrix) + 1))
    header = [identity if has_ids and identity else "row", *columns]
    write_file(output, csv_text(header, [rows, *columns.values()]).encode(), force=force)
    for note in (*new.notes, *notes):
        print(f"note: {one_line(note)}", file=sys.stderr)
    count = len(matrix)
    print(
        f"{count} {'prediction' if count == 1 else 'predictions'} of {loaded.target}: {output}"
    )
