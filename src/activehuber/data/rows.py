"""Rows of features wherever they are, worked on in blocks: an array, a file, a cluster.

Every pass over the rows is one call of `Rows.run`: a function is applied to each block of
rows, what it returns a row is put together, what it returns a block is summed. A fit in
blocks needs no more of its rows than that and a few of them by number.
"""

from __future__ import annotations

import copy
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from threadpoolctl import ThreadpoolController

from activehuber._typing import Matrix

Sums = tuple[np.ndarray, ...]
# An array with one entry a row or None, and sums.
Result = tuple[np.ndarray | None, Sums]
# (X of shape (b, d), *shared, *columns) -> the result of a block
Work = Callable[..., Result]
# What a work gets besides the rows, and numbers of rows, increasing; None are all of them.
Shared = tuple[Any, ...]
Entries = Sequence[np.ndarray]
Chosen = np.ndarray | None

# Numbers of a block at work: 4 Mi of them are 32 MiB.
BLOCK_NUMBERS = 1 << 22
FEWEST_ROWS, MOST_ROWS = 256, 65_536
# Matrices up to this size are factored by one thread.
ONE_THREAD_WIDTH = 1_500
# Rows up to which a whole fit or search is: more threads gain little there, and where other
# work wants the cores too they wait for each other, up to a hundred times as long.
ONE_THREAD_ROWS = 800
# Blocks read ahead of the threads that work on them.
READ_AHEAD = 1


def automatic_block_size(width: int) -> int:
    """Rows a block when every row becomes `width` numbers."""
    return int(np.clip(BLOCK_NUMBERS // max(1, width), FEWEST_ROWS, MOST_ROWS))


class Rows(ABC):
    """n rows of d features.

    Attributes
    ----------
    n_rows, n_features : int
    local : bool
        Whether this process reads them itself, so that what is made of them may be held here.
    pass_begins : callable or None
        Called without arguments whenever a pass over them begins.
    """

    n_rows: int
    n_features: int
    block_size: int = MOST_ROWS
    local: bool = False
    names: Any = None  # of the features, if they have any
    pass_begins: Callable[[], None] | None = None

    def __len__(self) -> int:
        return self.n_rows

    def take(self, numbers: np.ndarray) -> Matrix:
        """A few rows by number, in the order asked for, shape (k, d)."""
        wanted, places = np.unique(numbers, return_inverse=True)
        # That is no pass.
        found, _ = self.watched_by(None).run(_as_they_are, chosen=wanted)
        return np.empty((0, self.n_features)) if found is None else found[places]

    @abstractmethod
    def run(
        self, work: Work, shared: Shared = (), columns: Entries = (), chosen: Chosen = None
    ) -> Result:
        """Apply `work` to every block of rows.

        Parameters
        ----------
        work : callable
            Gets X of shape (b, d), then `shared`, then each column's part of the block;
            returns one entry a row (or None) and a tuple of arrays to be summed. A function
            of a module, so that it can travel.
        columns : sequence of ndarray, one entry a row
            Of all rows, or of the chosen ones.
        chosen : ndarray of int, increasing
            The rows to work on; all of them if None.

        Returns
        -------
        values : ndarray or None
            The entries of all blocks, in the order of the rows.
        sums : tuple of ndarray
            Added up in the order of the rows; empty if no row is chosen.
        """

    def in_blocks_of(self, size: int) -> Self:
        """The same rows, worked on `size` at a time."""
        made = copy.copy(self)
        made.block_size = size
        return made

    def watched_by(self, pass_begins: Callable[[], None] | None) -> Self:
        """The same rows; `release` does nothing, for who watches goes on with them."""
        made = copy.copy(self)
        made.pass_begins = pass_begins
        return made

    def replaced_by(self, made: Rows) -> Rows:
        """What was made of these rows once and for all, to be worked on in their place."""
        made.pass_begins = self.pass_begins
        return made

    def release(self) -> None:
        """Let go of what only makes the next pass faster; a fit is over."""
        return


class LocalRows(Rows):
    """Rows that this process can read, worked on by as many threads as BLAS may have."""

    local = True

    @abstractmethod
    def blocks(self, chosen: Chosen) -> Iterator[Matrix]:
        """The (chosen) rows in order, float64 and C-ordered, `block_size` at most."""

    def run(
        self, work: Work, shared: Shared = (), columns: Entries = (), chosen: Chosen = None
    ) -> Result:
        if self.pass_begins is not None:
            self.pass_begins()
        n = self.n_rows if chosen is None else len(chosen)
        return put_together(self._results(work, shared, columns, chosen), n)

    def _results(
        self, work: Work, shared: Shared, columns: Entries, chosen: Chosen
    ) -> Iterator[Result]:
        """What each block gives, in order; blocks are read while others are worked on."""
        threads, start = blas_threads(), 0
        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            waiting: deque[Future] = deque()
            try:
                for block in self.blocks(chosen):
                    here = slice(start, start + len(block))
                    start = here.stop
                    parts = (column[here] for column in columns)
                    waiting.append(pool.submit(work, block, *shared, *parts))
                    if len(waiting) >= threads + READ_AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


class ArrayRows(LocalRows):
    """Rows of an array or a memory map of shape (n, d)."""

    def __init__(self, X: Any, block_size: int = MOST_ROWS) -> None:
        self.X, self.block_size = X, block_size
        self.n_rows, self.n_features = X.shape

    def take(self, numbers: np.ndarray) -> Matrix:
        return np.ascontiguousarray(self.X[numbers], dtype=np.float64)

    def blocks(self, chosen: Chosen) -> Iterator[Matrix]:
        n = self.n_rows if chosen is None else len(chosen)
        for start in range(0, n, self.block_size):
            here = slice(start, min(start + self.block_size, n))
            rows = self.X[here] if chosen is None else self.X[chosen[here]]
            yield np.ascontiguousarray(rows, dtype=np.float64)


class ParquetRows(LocalRows):
    """Numeric columns of Parquet files, read batch by batch at every pass.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
    names : list of str
        The columns that are features, in their order.
    """

    def __init__(self, dataset: Any, names: Sequence[str]) -> None:
        self.dataset, self.names = dataset, list(names)
        self.n_rows, self.n_features = int(dataset.count_rows()), len(self.names)

    def column(self, name: str) -> np.ndarray:
        """One column in memory, NaN (of text: None) where it is null, shape (n,)."""
        with _one_line_for_arrow():
            column = self.dataset.to_table(columns=[name]).column(name)
        if not _is_numeric(column.type):
            return np.array([*column.to_pylist(), None], dtype=object)[:-1]
        if column.null_count == 0:
            return column.to_numpy()  # classes that are whole numbers stay so
        return _floats(column, name)

    def blocks(self, chosen: Chosen) -> Iterator[Matrix]:
        start = 0
        # Batches ahead of need are memory: two of them keep the threads busy.
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        with _one_line_for_arrow():
            for batch in self.dataset.to_batches(
                columns=self.names, batch_size=self.block_size, **ahead
            ):
                first, start = start, start + len(batch)
                mine: Any = slice(None)
                if chosen is not None:
                    mine = chosen[slice(*np.searchsorted(chosen, (first, start)))] - first
                if len(batch) and (chosen is None or len(mine)):
                    columns = zip(batch.columns, self.names, strict=True)
                    yield np.column_stack([_floats(*each) for each in columns])[mine]


class ChosenRows(Rows):
    """Some of other rows, by their numbers, increasing."""

    def __init__(self, rows: Rows, numbers: np.ndarray) -> None:
        self.rows, self.numbers = rows, numbers
        self.n_rows, self.n_features, self.local = len(numbers), rows.n_features, rows.local

    def take(self, numbers: np.ndarray) -> Matrix:
        return self.rows.take(self.numbers[numbers])

    def run(
        self, work: Work, shared: Shared = (), columns: Entries = (), chosen: Chosen = None
    ) -> Result:
        mine = self.numbers if chosen is None else self.numbers[chosen]
        return self.rows.run(work, shared, columns, mine)

    def in_blocks_of(self, size: int) -> Self:
        return type(self)(self.rows.in_blocks_of(size), self.numbers)


class LostRows(Rows):
    """Rows of a fit that was saved without them."""

    def __init__(self, n_rows: int, n_features: int) -> None:
        self.n_rows, self.n_features = n_rows, n_features

    def take(self, *arguments: Any, **named: Any) -> Any:
        raise ValueError(
            "the rows of an approximated fit are not saved with it, and this needs them; fit "
            "the model again"
        )

    run = take


def parquet_rows(source: Any, without: Sequence[str] = (), names: Any = None) -> ParquetRows:
    """Rows of a Parquet file or folder, or of a pyarrow dataset.

    Parameters
    ----------
    source : str, Path or pyarrow.dataset.Dataset
    without : sequence of str
        Columns that are no features.
    names : sequence of str, optional
        The features; all columns but `without` if None.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    if isinstance(source, (pa.RecordBatch, pa.Table)):
        source = ds.dataset(source)
    if not isinstance(source, (str, Path, ds.Dataset)):
        raise TypeError(
            f"X is a {type(source).__name__}; pass the path of a Parquet file or folder, a "
            "pyarrow.dataset or a pyarrow.Table"
        )
    if isinstance(source, (str, Path)):
        if not Path(source).exists():
            raise FileNotFoundError(f"X: there is no Parquet file {str(source)!r}")
        try:
            source = ds.dataset(source, format="parquet")
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(
                f"X: {str(source)!r} cannot be read as Parquet: {error}"
            ) from error
    # The index of a data frame is stored as a column; it is no feature.
    index = (source.schema.pandas_metadata or {}).get("index_columns", [])
    chosen = feature_columns(source.schema.names, without, names, index)
    for name in chosen:
        kind = source.schema.field(name).type
        if not _is_numeric(kind):
            raise ValueError(
                f"X: column {name!r} holds {kind}, not numbers; encode it first, or leave it "
                "out by dataset.replace_schema(pyarrow.schema([...])) of a pyarrow.dataset"
            )
    return ParquetRows(source, chosen)


def feature_columns(
    given: list[Any], target: Sequence[Any], names: Any, index: Sequence[Any] = ()
) -> list[Any]:
    """The columns of X that are features: those named, else all but the target and an index."""
    rest = [name for name in given if name not in target and name not in index]
    chosen = rest if names is None else list(names)
    for name in [*target, *chosen]:
        if name not in given:
            raise ValueError(
                f"X has no column {name!r}; there are {', '.join(map(str, given[:20]))}"
            )
    if not chosen:
        raise ValueError("X has no column left to learn from")
    return chosen


@contextmanager
def _one_line_for_arrow() -> Iterator[None]:
    """What Arrow says of files that are not one table, as one line that says what to do."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ValueError(
            "X: its Parquet files cannot be read as one table of numbers; a column needs one "
            f"type in all files, and files must stay as they were at the fit ({first})"
        ) from error


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _floats(column: Any, name: str) -> np.ndarray:
    """An Arrow column as floats, NaN where it is null."""
    import pyarrow as pa

    try:
        column = column if column.type == pa.float64() else column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise ValueError(f"column {name!r}: {error}") from error
    if isinstance(column, pa.ChunkedArray):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)


def _as_they_are(X: Matrix) -> Result:
    return X, ()


def put_together(results: Iterable[Result], n: int) -> Result:
    """The result of n rows from those of their parts, in order."""
    values: np.ndarray | None = None
    sums: Sums = ()
    start = 0
    for part, terms in results:
        if part is not None:
            if values is None:
                values = np.empty((n, *part.shape[1:]), dtype=part.dtype)
            values[start : start + len(part)] = part
            start += len(part)
        sums = add_sums(sums, terms)
    return values, sums


def add_sums(left: Sums, right: Sums) -> Sums:
    """Term by term, in place of the left one; () is zero."""
    if not left:
        return right
    for total, term in zip(left, right, strict=True):
        np.add(total, term, out=total)
    return left


_limited = 0
_limit: Any = None
_counting = threading.Lock()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def cores() -> int:
    """Cores that this process may use."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return affinity or os.cpu_count() or 1


def blas_threads() -> int:
    """Threads a pass may use: as many as BLAS may, and as there are cores for us."""
    allowed = [lib["num_threads"] for lib in _controller().select(user_api="blas").info()]
    return max(1, min(cores(), max(allowed, default=1)))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS does not start threads inside those of a pass.

    BLAS has one setting for the process: the first of several contexts, of whatever thread,
    sets it, the last one sets it back.
    """
    global _limited, _limit
    with _counting:
        _limited += 1
        if _limited == 1:
            _limit = _controller().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _counting:
            _limited -= 1
            if _limited == 0:
                _limit.restore_original_limits()


def threads_for(n_rows: int = 0, *, width: int = 0) -> Any:
    """A context for the fit of a table, or for algebra of size `width`.

    One thread if it is small, for threads that wait for each other slow it down; else as many
    as allowed.
    """
    small = n_rows <= ONE_THREAD_ROWS and width <= ONE_THREAD_WIDTH
    return one_blas_thread() if small else nullcontext()
