"""What goes out of an audit: the table of labels, that of predictions, CSV, the page.

model, table, evidence, summary -> data frames -> CSV in parts; what the page shows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from activehuber._typing import Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.evidence import Findings
from activehuber.audit.inputs import Encoded, objects
from activehuber.audit.summary import Summary
from activehuber.audit.threshold_path import FollowedPath
from activehuber.data.rows import ChosenRows
from activehuber.data.tables import csv_line, csv_rows, harmless, plain_text
from activehuber.estimators.classifier import HLClassifier
from activehuber.report.page import MAX_LINES, LabelLine, Neighbour, PathSummary, Points, Report

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, Any]

# Rows of a CSV file that are made at once.
CSV_ROWS = 50_000
# Points of the path handed to the page.
PATH_POINTS = 1_000


def labels_table(table: Encoded, evidence: Findings) -> pd.DataFrame:
    """One row a label, worst first; see `Audit`."""
    judged, order = evidence.judged, evidence.order
    word = np.array(judged.classes, dtype=object)

    def value(numbers: Vector) -> Any:
        return word[numbers[order].astype(int)] if judged.classes else numbers[order]

    columns = {
        "given": value(judged.given),
        "fitted": value(judged.fitted),
        "lower": judged.lower[order],
        "upper": judged.upper[order],
        "residual": judged.residual[order],
        "left_at": evidence.left_at[order],
        "quality": judged.quality[order],
        "verdict": judged.verdicts[order],
        "reason": objects([evidence.reasons[i] for i in order.tolist()]),
    }
    return _frame(table, judged.rows[order], columns)


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
    return pd.DataFrame({_id_name(table.id_name, list(columns)): mine, **columns})


def _id_name(name: str, others: Sequence[str]) -> str:
    """The id column's name, which no other column of the output may have."""
    return f"{name} (id)" if name in others else name


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
    nothing = np.full(len(X), np.nan)
    if isinstance(model, HLClassifier):
        if not len(X):
            return {"prediction": [], "lower": [], "upper": [], "probability": []}
        predicted = np.array([plain_text(name) for name in model.predict(X)], dtype=object)
        probability = np.max(model.predict_proba(X), axis=1)
        return {
            "prediction": predicted,
            "lower": nothing,
            "upper": nothing,
            "probability": probability,
        }
    if not len(X):
        return {"prediction": nothing, "lower": nothing, "upper": nothing}
    interval = np.asarray(model.predict_interval(X, coverage=coverage))
    return {
        "prediction": model.predict(X),
        "lower": interval[:, 0],
        "upper": interval[:, 1],
    }


def table_csv(frame: Any, leave_out: Sequence[str] = ()) -> Iterator[bytes]:
    """A table of an audit as CSV in parts; `given` as it was, the rest with few digits."""
    names = [name for name in frame.columns if name not in leave_out]
    yield csv_line(harmless(str(name)) for name in names).encode("utf-8", "replace")
    for start in range(0, len(frame), CSV_ROWS):
        part = frame[start : start + CSV_ROWS]
        columns = [_csv_column(name, part[name].to_numpy()) for name in names]
        yield csv_rows(columns).encode("utf-8", "replace")


def _csv_column(name: str, values: np.ndarray) -> Any:
    if name == "given":
        return [value if value is None else plain_text(value) for value in values.tolist()]
    if name in ("quality", "probability"):
        return ["" if value != value else f"{value:.4g}" for value in values.tolist()]
    return values


def is_polars(X: Any) -> bool:
    """Whether a table came as a polars frame."""
    return type(X).__module__.partition(".")[0] == "polars"


def as_polars(frame: pd.DataFrame) -> Any:
    """The same table for those who came with polars."""
    import polars as pl

    return pl.DataFrame({name: frame[name].tolist() for name in frame.columns})


def page_of(
    title: str, summary: Summary, choice: ChosenModel, table: Encoded, evidence: Findings
) -> Report:
    """What the page shows."""
    judged = evidence.judged
    names = table.names[judged.rows]
    chosen = np.inf if summary.threshold is None else summary.threshold
    scale = summary.scale if summary.scale else float(np.max(choice.regressor.scale_))
    band = np.nan if summary.threshold is None or not scale else summary.threshold / scale
    points = Points(
        row=names,
        given=judged.given,
        fitted=judged.fitted,
        residual=judged.residual,
        flagged=judged.flagged,
        threshold=float(band),
        classes=judged.classes,
    )
    return Report(
        title=title,
        target=summary.target,
        kind=summary.kind,
        n_rows=summary.n_rows,
        n_labelled=summary.n_labelled,
        n_unlabelled=summary.n_unlabelled,
        n_flagged=summary.n_flagged,
        scale=summary.scale,
        lines=_label_lines(evidence, names),
        points=points,
        path=_path_summary(evidence.path, chosen),
        findings=summary.findings,
        notes=summary.notes,
        settings=summary.settings,
    )


def _label_lines(evidence: Findings, names: np.ndarray) -> tuple[LabelLine, ...]:
    """The worst labels, as many as the page may show."""
    judged = evidence.judged

    def value(numbers: Vector, i: int) -> float | str:
        return judged.classes[int(numbers[i])] if judged.classes else float(numbers[i])

    def maybe(number: float) -> float | None:
        return None if np.isnan(number) else float(number)

    verdicts = judged.verdicts
    return tuple(
        LabelLine(
            row=str(names[i]),
            given=value(judged.given, i),
            fitted=value(judged.fitted, i),
            lower=maybe(judged.fitted[i] - judged.half),
            upper=maybe(judged.fitted[i] + judged.half),
            residual=float(judged.residual[i]),
            left_at=maybe(evidence.left_at[i]),
            quality=float(judged.quality[i]),
            verdict=str(verdicts[i]),
            reason=evidence.reasons[i],
            neighbours=tuple(
                Neighbour(str(names[j]), value(judged.given, j), similarity)
                for j, similarity in evidence.similar.of(rank)
            ),
        )
        for rank, i in enumerate(evidence.order[:MAX_LINES])
    )


def _path_summary(path: FollowedPath | None, chosen: float) -> PathSummary | None:
    if path is None or len(path.thresholds) < 2:
        return None
    free = np.count_nonzero(path.states == 0, axis=1)
    keep = np.unique(np.linspace(0, len(free) - 1, PATH_POINTS).round().astype(int))
    return PathSummary(
        tuple(path.thresholds[keep].tolist()), tuple(free[keep].tolist()), chosen
    )
