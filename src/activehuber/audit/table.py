"""The audit of a table: from its columns and labels to all that was found.

table -> numbers -> model -> verdicts, path, similar rows -> tables, summary, page
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from activehuber.audit import inputs, outputs
from activehuber.audit.choice import choose_and_fit
from activehuber.audit.inputs import AUTO, N_COMPONENTS, Encoded, Options, Progress
from activehuber.audit.similar import similar_rows
from activehuber.audit.summary import summarise
from activehuber.audit.threshold_path import follow_path
from activehuber.audit.verdicts import judge
from activehuber.data.encoding import TableFeatures, as_frame
from activehuber.data.rows import ArrayRows, threads_for
from activehuber.estimators.inputs import comes_from
from activehuber.report.page import Report, Summary, render
from activehuber.runtime.files import write_file
from activehuber.runtime.messages import shortened
from activehuber.views import View

# What the docstrings of all methods that write a file have below their first line: the method's
# name, the file's, what is read of it, and what that is.
WRITING = """

        Parameters
        ----------
        path : str or Path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from activehuber import audit
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> found = audit(X, np.sin(X.ravel()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.{0}(Path(folder) / "{1}")
        ...     print((Path(folder) / "{1}").{2})
        {3}
        """


@dataclass(frozen=True)
class Audit:
    """What `audit` found.

    Attributes
    ----------
    labels : pandas or polars DataFrame
        One row a label, worst first: id or `row` (from 1), `given`, `expected` (what the other
        labels say, without the label itself), `lower` and `upper` (the interval around it,
        wide where they say little), `residual` (given − expected, in units of σ̂), `left_at`
        (the threshold ξ at which it left the free set; missing if it did not down to the fit's
        own ξ), `quality`, `verdict` ("flagged", "kept", "trusted", or "cannot judge" where the
        others say too little of its row) and `reason`.
    predictions : pandas or polars DataFrame
        One row for each without a label: id or `row`, `prediction`, `lower`, `upper`; for
        classes also `probability`.
    summary : Summary
    model : sklearn.pipeline.Pipeline
        `features` and `estimator`.
    report : activehuber.report.page.Report
        What the page shows.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import audit
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[7] += 5
    >>> found = audit(X, y)
    >>> int(found.labels["row"].iloc[0]), found.labels["verdict"].iloc[0]
    (8, 'flagged')
    """

    labels: Any
    predictions: Any
    summary: Summary
    model: Pipeline
    report: Report

    def __repr__(self) -> str:
        summary, names = self.summary, self.labels.columns
        row, verdict, reason = (self.labels[n][0] for n in (names[0], "verdict", "reason"))
        return (
            f"Audit of {shortened(self.report.title)}: {summary.n_rows:,} rows, target "
            f"{shortened(summary.target)}\n"
            f"{summary.n_flagged:,} of {summary.n_labelled:,} labels flagged, "
            f"{summary.n_unlabelled:,} without a label predicted\n"
            f"worst label: {shortened(names[0])} {shortened(row)}, {verdict}: "
            f"{shortened(reason, 200)}"
        )

    def _repr_html_(self) -> str:
        first, second, _ = map(escape, repr(self).split("\n"))
        return f"<p>{first}<br>{second}</p>{self.labels.head(5)._repr_html_()}"

    def predict(self, X: Any, coverage: float = 0.9) -> Any:
        """Predictions with intervals for the rows of any table with the same columns.

        Parameters
        ----------
        X : pandas or polars DataFrame, or array, of shape (n_rows, n_columns)
        coverage : float, default=0.9
            Share of right labels that intervals are to hold.

        Returns
        -------
        pandas or polars DataFrame of n_rows rows
            `prediction`, `lower`, `upper`; for classes the latter are missing and there is
            `probability`. Of pandas the index is that of X.

        Examples
        --------
        >>> import numpy as np
        >>> from activehuber import audit
        >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
        >>> found = audit(X, np.sin(X.ravel()))
        >>> found.predict([[1.5], [3.0]]).columns.tolist()
        ['prediction', 'lower', 'upper']
        """
        import pandas as pd

        inputs.check_coverage(coverage)
        features, estimator = self.model.named_steps.values()
        columns = outputs.predict_columns(estimator, features.transform(X), coverage)
        if comes_from(X, "polars"):
            return outputs.as_polars(pd.DataFrame(columns))
        return pd.DataFrame(columns, index=X.index if isinstance(X, pd.DataFrame) else None)

    def to_csv(self, path: str | Path) -> None:
        """Write `labels`; text that a spreadsheet would run gets an apostrophe in front."""
        write_file(Path(path), outputs.table_csv(self.labels))

    def to_parquet(self, path: str | Path) -> None:
        """Write `labels`."""
        out, frame = BytesIO(), self.labels
        if hasattr(frame, "to_parquet"):
            frame.to_parquet(out, index=False)
        else:
            frame.write_parquet(out)
        write_file(Path(path), out.getvalue())

    def to_html(self, path: str | Path) -> None:
        """Write the page: one file that asks nothing of the network."""
        write_file(Path(path), render(self.report).encode("utf-8", "replace"))


for _method, *_told in (
    (Audit.to_csv, "labels.csv", 'read_text().split(",")[:3]', "['row', 'given', 'expected']"),
    (Audit.to_parquet, "labels.parquet", "read_bytes()[:4]", "b'PAR1'"),
    (Audit.to_html, "report.html", "read_text()[:15].lower()", "<!doctype html>"),
):
    _method.__doc__ = f"{_method.__doc__}{WRITING.format(_method.__name__, *_told)}"


def audit(
    X: Any,
    y: Any,
    *,
    trusted: Any = None,
    groups: Any = None,
    ids: Any = None,
    classify: bool = False,
    views: Sequence[View] | None = None,
    estimator: Any = None,
    coverage: float = 0.9,
    max_selection_rows: int = 2_000,
    approximation: str | None = AUTO,
    n_components: int = N_COMPONENTS,
    random_state: int = 0,
    progress: Progress | None = None,
    title: str = "table",
    target_transform: str | None = AUTO,
    target: str | None = None,
    data_hash: str | None = None,
) -> Audit:
    """Flag the doubtful labels of a table, and predict the missing ones.

    Parameters
    ----------
    X : pandas or polars DataFrame, or array, of shape (n_rows, n_columns)
        The columns to learn from, as they are: numbers, words, dates, gaps.
    y : array-like of shape (n_rows,)
        Labels; NaN or None where there is none.
    trusted : array-like of shape (n_rows,), bool, default=None
        Labels that are right.
    groups : array-like of shape (n_rows,), default=None
        What each row belongs to, such as a patient, a site or a film: a label is judged by
        the labels of other groups only, since near copies vouch for each other. NaN, None and
        empty text are groups of their own. Leave the column out of X.
    ids : array-like of shape (n_rows,), default=None
        Names of the rows, all different; their numbers from 1 if None.
    classify : bool, default=False
        Whether labels are classes.
    views : list of View, default=None
        Groups of columns of X by name, each with a kernel of its own.
    estimator : HLRegressorCV, HLClassifierCV or alike, default=None
        None: one that chooses its parameters.
    coverage : float, default=0.9
        Share of right labels that intervals are to hold.
    max_selection_rows : int, default=2000
        Parameters are chosen on so many labels at most, drawn at random; the model is then
        fitted to all.
    approximation : {"auto", None, "nystrom", "fourier", "linear"}, default="auto"
        What stands for the kernel in the model; see `HLRegressor`. "auto": None up to
        10,000 labels, and "nystrom" above, which needs no matrix of the size of the table
        squared.
    n_components : int, default=500
        Functions of the approximation in all; views share them evenly.
    random_state : int, default=0
    progress : callable, default=None
        Called with the share done and a few words.
    target_transform : {"auto", "none", "log", "yeo-johnson"}, default="auto"
        The scale on which numbers are judged and fitted; what comes out is in their own units.
        "auto": the one on which all labels are likeliest, wrong ones having little to say;
        with an estimator of your own "none".
    title, target, data_hash : str, default=None
        For the page; the name of y and a hash of the table if None.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from activehuber import audit
    >>> from activehuber.data.datasets import make_corrupted_diabetes
    >>> corrupted = make_corrupted_diabetes()
    >>> table = corrupted.frame.drop(columns=["patient", "progression"])
    >>> found = audit(table, corrupted.frame["progression"], ids=corrupted.frame["patient"])
    >>> found.labels["verdict"].iloc[0]
    'flagged'
    >>> len(found.predictions) == int(corrupted.frame["progression"].isna().sum())
    True
    """
    given = locals()
    options = Options(**{field.name: given[field.name] for field in fields(Options)})
    frame = as_frame(X)
    labels = inputs.TargetColumn.read(y, len(frame), classify=classify, name=target)
    mask = inputs.check_trusted(trusted, len(frame))
    own = inputs.check_row_groups(groups, labels)
    names, id_name = inputs.row_names(ids, len(frame))
    options.tell(0.02, "making numbers of the columns")
    features = TableFeatures().fit(frame)
    rows = ArrayRows(features.transform(frame))
    digest = data_hash or inputs.hash_of(frame, labels)
    encoded = Encoded(features, rows, labels, mask, names, id_name, digest, frame, own)
    found = audit_encoded(encoded, options)
    if comes_from(X, "polars"):
        tables = ("labels", "predictions")
        found = replace(found, **{n: outputs.as_polars(getattr(found, n)) for n in tables})
    return found


def audit_encoded(table: Encoded, options: Options) -> Audit:
    """The audit of a table whose columns are numbers already; see `audit`."""
    with threads_for(len(table.rows)):
        options.tell(0.05, "choosing parameters and fitting")
        choice = choose_and_fit(table, options)
        options.tell(0.7, "following the threshold")
        left_at, drawn, note = follow_path(choice.regressor, table.labels)
        options.tell(0.8, "looking for similar rows")
        judged = judge(choice, table, options.coverage)
        similar = similar_rows(choice, table, judged, options)
        options.tell(0.9, "predicting what is missing")
        rest = outputs.predictions_table(choice, table, options.coverage)
    options.tell(0.95, "writing it down")
    labels = outputs.labels_table(table, judged, similar, left_at)
    summary = summarise(choice, table, judged, options, (note, similar.note))
    lines = outputs.label_lines(labels, judged, similar)
    report = Report(options.title, summary, lines, judged, drawn)
    model = Pipeline([("features", table.features), ("estimator", choice.estimator)])
    return Audit(labels, rest, summary, model, report)


def with_notes(found: Audit, before: Sequence[str]) -> Audit:
    """The same audit with sentences in front of its notes."""
    summary = replace(found.summary, notes=(*before, *found.summary.notes))
    return replace(found, summary=summary, report=replace(found.report, summary=summary))
