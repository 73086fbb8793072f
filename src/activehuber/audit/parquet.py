"""The audit of Parquet files whose rows stay with the workers of a Dask cluster.

some rows -> what to do with the columns -> workers do it -> the audit of `table`
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from activehuber._typing import Matrix
from activehuber.audit import inputs
from activehuber.audit.table import Audit, audit_encoded, with_notes
from activehuber.data.encoding import TableFeatures
from activehuber.data.parsing import mask_of_words
from activehuber.data.reading import arrow_frame, file_digest, parquet_pieces
from activehuber.runtime.messages import TableError

if TYPE_CHECKING:
    import pandas as pd

# Rows from which is learnt what to do with the columns.
LOOKED_AT = 200_000


def audit_parquet(
    dataset: Any,
    columns: Sequence[str],
    target: str,
    *,
    client: Any,
    identity: str | None = None,
    trusted: str | None = None,
    **parameters: Any,
) -> Audit:
    """The audit of Parquet files whose rows stay with the workers of a Dask cluster.

    Labels, ids and results are on the client, features never are: what is to be done to the
    columns is learnt from 200,000 rows drawn at random, and the workers do it.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        On files that the workers can read.
    columns : sequence of str
        The columns to learn from.
    target : str
        The column with the labels.
    client : distributed.Client
    identity, trusted : str, default=None
        The column that names the rows, and that of the labels that are right.
    **parameters
        Those of `audit` that do not hold a value a row; the model is always an approximation.

    Returns
    -------
    Audit
    """
    from activehuber.data.dask_rows import dask_rows

    options = inputs.Options(**parameters)
    if options.approximation is None:
        raise TableError("a table on a cluster needs an approximation; leave out none")
    if options.approximation == inputs.AUTO:
        options = replace(options, approximation="nystrom")
    classify = options.classify
    own = [name for name in (target, identity, trusted) if name]
    as_text = [name for name in own if classify or name != target]
    frame = arrow_frame(dataset.to_table(columns=own), as_text)
    labels = inputs.TargetColumn.read(frame[target], len(frame), classify=classify, name=target)
    right = None if trusted is None else mask_of_words(frame[trusted], trusted)
    mask = inputs.check_trusted(right, len(frame))
    ids = None if identity is None else frame[identity]
    names, id_name = inputs.row_names(ids, len(frame))
    options.tell(0.02, "learning what to do with the columns")
    pieces = parquet_pieces(dataset)
    seed = options.random_state
    sample, digest = _look_at_pieces(client, dataset, pieces, list(columns), seed)
    features = TableFeatures().fit(sample)
    rows, _, _ = dask_rows(_encoded_pieces(pieces, features), None)
    encoded = inputs.Encoded(features, rows, labels, mask, names, id_name, digest)
    looked = f"The columns were looked at in {len(sample):,} of {len(frame):,} rows, at random."
    return with_notes(audit_encoded(encoded, options), [looked] * (len(sample) < len(frame)))


def _look_at_pieces(
    client: Any, dataset: Any, pieces: list[tuple[Any, int]], columns: list[str], seed: int
) -> tuple[pd.DataFrame, str]:
    """Some rows of all pieces, and a hash of the files; workers read both."""
    import pyarrow as pa
    from dask import delayed

    from activehuber.data.dask_rows import collect

    ends = np.cumsum([0, *(count for _, count in pieces)])
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(ends[-1], min(ends[-1], LOOKED_AT), replace=False))
    parts = np.split(chosen, np.searchsorted(chosen, ends[1:-1]))
    tasks = [
        delayed(_some_rows, pure=False)(piece, columns, numbers - start)
        for (piece, _), numbers, start in zip(pieces, parts, ends[:-1], strict=True)
    ]
    tasks += [delayed(file_digest, pure=False)(path) for path in dataset.files]
    found = collect(client, client.compute(tasks))
    tables, digests = found[: len(pieces)], found[len(pieces) :]
    together = hashlib.sha256("".join(digests).encode()).hexdigest()
    digest = together if len(digests) > 1 else digests[0]
    return arrow_frame(pa.concat_tables(tables)), digest


def _some_rows(piece: Any, columns: list[str], numbers: np.ndarray) -> Any:
    return piece.to_table(columns=columns).take(numbers)


def _encoded_pieces(pieces: list[tuple[Any, int]], features: TableFeatures) -> Any:
    """The features as a Dask array, a chunk for each piece."""
    import dask.array as da
    from dask import delayed

    encoder = delayed(features, traverse=False, pure=False)
    chunks = [
        da.from_delayed(
            delayed(_encoded_piece, pure=False)(piece, encoder),
            (count, len(features.source_)),
            np.float64,
        )
        for piece, count in pieces
    ]
    return da.concatenate(chunks, axis=0)


def _encoded_piece(piece: Any, features: TableFeatures) -> Matrix:
    return features.transform(arrow_frame(piece.to_table(columns=list(features.columns_))))
