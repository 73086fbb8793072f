"""An audit in numbers and sentences: what the page says in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Summary:
    """An audit in numbers and sentences.

    Attributes
    ----------
    kind : {"regression", "classification"}
    target : str
    n_rows, n_labelled, n_unlabelled, n_flagged, n_trusted : int
    n_features : int
        Numbers a row after the features were made.
    scale : float or None
        σ̂, the noise of the labels in units of the target; None for classes.
    threshold : float or None
        ξ of the fit; None where every class has its own.
    explained : float
        Share of the variance of the kept labels that the other rows explain (leave-one-out);
        for classes the share of kept labels that the other rows agree with.
    parameters : dict
        What was chosen.
    findings, notes : tuple of str
        What was chosen and how sure it is; what was done to the table, and warnings.
    settings : tuple of (name, value)
        All that is needed to get the same numbers again.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import audit
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X.ravel())
    >>> y[7] = np.nan
    >>> summary = audit(X, y).summary
    >>> summary.kind, summary.n_labelled, summary.n_unlabelled
    ('regression', 59, 1)
    """

    kind: str
    target: str
    n_rows: int
    n_labelled: int
    n_unlabelled: int
    n_flagged: int
    n_trusted: int
    n_features: int
    scale: float | None
    threshold: float | None
    explained: float
    parameters: dict[str, Any]
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if self.kind not in ("regression", "classification"):
            raise ValueError(
                f'kind must be "regression" or "classification", got {self.kind!r}'
            )
