"""All that is known of the labels, gathered for summary, tables and page.

a fitted model, a table -> verdicts, similar rows, the path, reasons
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from activehuber._typing import Vector
from activehuber.audit.choice import ChosenModel
from activehuber.audit.inputs import Encoded, Options
from activehuber.audit.reasons import reasons_of
from activehuber.audit.similar import Similar, similar_rows
from activehuber.audit.threshold_path import FollowedPath, follow_path, left_at
from activehuber.audit.verdicts import Verdicts, judge, worst_first


@dataclass(frozen=True)
class Findings:
    """What is known of l labels, in the order of the rows.

    Attributes
    ----------
    judged : Verdicts
    order : ndarray of shape (l,), int
        Places of the labels, worst first.
    similar : Similar
    path : FollowedPath or None
    left_at : ndarray of shape (l,)
        The threshold at which each label left the free set; NaN if it did not.
    reasons : list of str
        One sentence a label.
    notes : tuple of str
        What to say of how the evidence was found.
    """

    judged: Verdicts
    order: np.ndarray
    similar: Similar
    path: FollowedPath | None
    left_at: Vector
    reasons: list[str]
    notes: tuple[str, ...]


def gather(choice: ChosenModel, table: Encoded, options: Options) -> Findings:
    """The evidence of a fitted model on the labels of its table."""
    options.tell(0.7, "following the threshold")
    path, path_notes = follow_path(choice.regressor, table.labels)
    options.tell(0.8, "looking for similar rows")
    judged = judge(choice, table.labels, table.trusted, options.coverage)
    order = worst_first(judged)
    similar = similar_rows(choice.regressor, table.rows, judged, order, options)
    return Findings(
        judged,
        order,
        similar,
        path,
        left_at(path, len(judged.rows)),
        reasons_of(judged, similar, table),
        (*path_notes, *similar.notes),
    )
