"""What goes out of an audit: the table of labels, that of predictions, CSV, the page.

model, table, evidence -> data frames -> CSV in parts; what the page shows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from activehuber._typing import Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import Encoded, objects
from activehuber.audit.similar import Similar
from activehuber.audit.summary import reasons_of
from activehuber.audit.verdicts import Verdicts
from activehuber.data.rows import ChosenRows
from activehuber.data.writing import csv_line, csv_rows, harmless, plain_text
from activehuber.estimators.classifier import HLClassifier
from activehuber.report.page import MAX_LINES, Line

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, Any]

# Rows of a CSV file that are made at once.
CSV_ROWS = 50_000


def labels_table(
    table: Encoded, judged: Verdicts, similar: Similar, left_at: Vector
) -> pd.DataFrame:
    """One row a label, worst first; see `Audit`."""
    columns = {
        "given": judged.as_labels(judged.given),
        "expected": judged.as_labels(judged.expected),
        "lower": judged.lower,
        "upper": judged.upper,
        "residual": judged.residual,
        "left_at": left_at,
        "quality": judged.quality,
        "verdict": judged.verdicts,
        "reason": objects(reasons_of(judged, similar, table)),
    }
    sorted_columns = {name: values[judged.order] for name, values in columns.items()}
    return _frame(table, judged.places[judged.order], sorted_columns)


def predictions_table(choice: ChosenModel, table: Encoded, coverage: float) -> pd.DataFrame:
    """One row for each without a label; see `Audit`."""
    rows = np.flatnonzero(~table.labels.given)
    exact = choice.regressor.result_.settings.approximation is None
    X = table.rows.take(rows) if exact else ChosenRows(table.rows, rows)
    return _frame(table, rows, predict_columns(choice.estimator, X, coverage))


def _frame(table: Encoded, rows: np.ndarray, columns: Columns) -> pd.DataFrame:
    """Columns as a data frame, the names of their rows in front."""
    import pandas as pd

    names = table.names[rows]
    mine = names.tolist() if names.dtype == object else names
    # No other column of the output may have the id column's name.
    id_name = f"{table.id_name} (id)" if table.id_name in columns else table.id_name
    return pd.DataFrame({id_name: mine, **columns})


def predict_columns(model: Any, X: Any, coverage: float) -> Columns:
    """Predictions of a fitted HLRegressor or HLClassifier as columns of a table.

    Parameters
    ----------
    model : fitted estimator
    X : ndarray of shape (n, d), or Rows
        Features; n may be 0.
    coverage : float

    Returns
    -------
    dict of arrays of shape (n,)
        `prediction`, `lower`, `upper`; for classes the latter are NaN and there is
        `probability`, that of the class predicted.
    """
    lower = upper = np.full(len(X), np.nan)
    if not isinstance(model, HLClassifier):
        predicted = lower
        if len(X):
            lower, upper = np.asarray(model.predict_interval(X, coverage=coverage)).T
            predicted = model.predict(X)
        return {"prediction": predicted, "lower": lower, "upper": upper}
    if not len(X):
        return {name: [] for name in ("prediction", "lower", "upper", "probability")}
    words = np.array([plain_text(name) for name in model.predict(X)], dtype=object)
    best = np.max(model.predict_proba(X), axis=1)
    return {"prediction": words, "lower": lower, "upper": upper, "probability": best}


def table_csv(frame: Any, leave_out: Sequence[str] = ()) -> Iterator[bytes]:
    """A table of an audit as CSV in parts; `given` as it was, the rest with few digits."""
    names = [name for name in frame.columns if name not in leave_out]
    yield csv_line(harmless(str(name)) for name in names).encode("utf-8", "replace")
    for start in range(0, len(frame), CSV_ROWS):
        part = frame[start : start + CSV_ROWS]
        # The first column names the rows, whatever it is called itself.
        rows, *rest = (part[name].to_numpy() for name in names)
        columns = [rows, *map(_csv_column, names[1:], rest)]
        yield csv_rows(columns).encode("utf-8", "replace")


def _csv_column(name: str, values: np.ndarray) -> Any:
    if name == "given":
        return [value if value is None else plain_text(value) for value in values.tolist()]
    if name in ("quality", "probability"):
        return ["" if value != value else f"{value:.4g}" for value in values.tolist()]
    return values


def as_polars(frame: pd.DataFrame) -> Any:
    """The same table for those who came with polars."""
    import polars as pl

    return pl.DataFrame({name: frame[name].tolist() for name in frame.columns})


def label_lines(labels: pd.DataFrame, judged: Verdicts, similar: Similar) -> list[Line]:
    """The worst labels, as many as the page may show; `labels` is that of `labels_table`."""
    given, names = judged.as_labels(judged.given), judged.row
    pairs = zip(similar.near.tolist(), similar.similarity.tolist(), strict=True)
    neighbours = (
        tuple((str(names[j]), given[j], near) for j, near in zip(*pair, strict=True))
        for pair in pairs
    )
    cells = labels.iloc[:MAX_LINES, 1:].to_dict("records")
    # Neighbours are not looked for beyond some rank.
    lines = zip(judged.order, cells, chain(neighbours, repeat(())), strict=False)
    return [{"row": str(names[i]), **line, "neighbours": near} for i, line, near in lines]
