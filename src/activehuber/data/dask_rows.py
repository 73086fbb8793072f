"""Rows of Dask collections, worked on by the workers that hold them.

A pass over the rows is one graph: a task for each chunk of rows, and a tree that adds up what
they return. What has one entry a row, and the sums, come to the client; features never do.

Everything that a pass sends is part of its graph. The scheduler keeps that, so that a task of
a worker that died runs again elsewhere; what is scattered would have died with the worker.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import uuid4

import numpy as np

from activehuber.data.rows import (
    MOST_ROWS,
    ArrayRows,
    Chosen,
    Entries,
    Result,
    Rows,
    Shared,
    Work,
    add_sums,
    cores,
    feature_columns,
    one_blas_thread,
    put_together,
)
from activehuber.runtime.interrupts import ignore_interrupts

# A chunk, its place among the (chosen) rows, and numbers of rows in it (all of them if None).
Piece = tuple[int, slice, Chosen]
# Whether some work returns values, and whether sums; both until it is known.
Gives = tuple[bool, bool]

# X stays on the workers if, as float64, it takes no more than this share of their memory.
HELD_SHARE = 0.25
# Sums that one task adds up.
FAN_IN = 8
# A pass is given up after so many attempts that ended by lost workers or a lost connection.
ATTEMPTS = 3
# Objects that stay on the cluster between passes: bases and feature maps.
KEPT = 4
# Chunks are cut anew if there are fewer a thread than this, or if they are tiny.
CHUNKS_A_THREAD = 2
FEWEST_CHUNK_ROWS = 8_192
# Seconds: between looks at the connection and at what the scheduler has; until a scheduler
# that does not answer is given up; until a cluster without workers is.
LOOK, SILENCE, NO_WORKERS = 2.0, 30.0, 300.0
# Seconds that a scheduler has to answer the first time.
CONNECT = 10.0


# --- the client -------------------------------------------------------------------------


def active_client() -> Any:
    """The Dask client that is in use."""
    try:
        from distributed import get_client
    except ImportError as error:
        raise ImportError(
            'Dask input needs the package distributed; pip install "activehuber[dask]"'
        ) from error
    try:
        client = get_client()
    except ValueError:
        raise RuntimeError(
            "X is a Dask collection, but there is no Dask client to work on it; start one "
            "first: from dask.distributed import Client; client = Client()"
        ) from None
    if client.asynchronous:
        raise RuntimeError("the active Dask client is asynchronous; use Client() as it is")
    return client


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """A Dask client of the scheduler at an address; if None, of a cluster on this machine.

    That has one process a core, and is closed in any case.
    """
    from distributed import Client, LocalCluster

    if scheduler is None:
        with (
            LocalCluster(
                n_workers=cores(),
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",  # any port: another cluster may have that one
            ) as cluster,
            Client(cluster) as client,
        ):
            client.run(ignore_interrupts)
            yield client
        return
    try:
        client = Client(scheduler, timeout=CONNECT)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise ConnectionError(
            f"no Dask scheduler answers at {scheduler!r} ({type(error).__name__}); start one "
            "with `dask scheduler` and give its address, tcp://host:8786, or give none for a "
            "cluster on this machine"
        ) from error
    with client:
        yield client


def collect(client: Any, futures: list[Any]) -> list[Any]:
    """What futures hold, in their order.

    Raises
    ------
    ConnectionError
        If the scheduler does not answer.
    CancelledError, KilledWorker
        If futures were lost on the way.
    """
    waiting = _on_loop(client, lambda: client.gather(futures, asynchronous=True))
    workers_seen = time.monotonic()
    try:
        while True:
            try:
                return waiting.result(timeout=LOOK)
            except TimeoutError:
                if waiting.done():  # a task's own TimeoutError, or its result just now
                    return waiting.result()
            if client.status != "running":
                await_connection(client)
                raise CancelledError("the connection to the Dask scheduler was lost meanwhile")
            try:
                workers_seen = time.monotonic() if _workers(client) else workers_seen
            except ConnectionError:
                if client.status == "running":  # it is there, and silent
                    raise
            if time.monotonic() - workers_seen > NO_WORKERS:
                raise RuntimeError(
                    f"the Dask cluster has had no worker for {NO_WORKERS:.0f} s; start some "
                    "with `dask worker` and the address of the scheduler"
                )
    except BaseException:
        if client.status == "running":
            # If it goes away meanwhile its tasks do too; what is raised is the first error.
            with suppress(TimeoutError, CancelledError, OSError):
                answer = _on_loop(client, lambda: client.cancel(futures, asynchronous=True))
                answer.result(timeout=5.0)
        # It ends by itself, as its futures are gone, unless no one is there to say so.
        with suppress(TimeoutError, CancelledError):
            waiting.exception(timeout=1.0)
        waiting.cancel()
        raise


def collect_again(
    start: Callable[[], tuple[Any, list[Any]]], forget: Callable[[], None] = lambda: None
) -> list[Any]:
    """What futures hold; they are started again if workers or the connection were lost.

    Parameters
    ----------
    start : callable
        Returns a client and futures.
    forget : callable, optional
        Is called whenever the futures did not come to an end.
    """
    from distributed import KilledWorker

    failure: BaseException | None = None
    for _ in range(ATTEMPTS):
        client, futures = start()
        try:
            return collect(client, futures)
        except (KilledWorker, CancelledError) as error:
            failure = error
            forget()
            await_connection(client)
        except BaseException:
            forget()  # chunks on their way are not waited for any more
            raise
    raise RuntimeError(
        f"a pass over the rows was lost {ATTEMPTS} times with its Dask workers; they may need "
        "more memory: use more, smaller chunks of X, a smaller block_size or fewer n_components"
    ) from failure


def _on_loop(client: Any, question: Callable[[], Any]) -> Any:
    """Start something asynchronous; a future that can be waited for in steps."""

    async def ask():
        return await question()

    return asyncio.run_coroutine_threadsafe(ask(), client.loop.asyncio_loop)


def _workers(client: Any) -> list[dict[str, Any]]:
    """What the scheduler knows of each worker."""
    try:
        known = _on_loop(client, client.scheduler.identity).result(timeout=SILENCE)
    except (TimeoutError, OSError):
        raise _lost(client) from None
    return list(known["workers"].values())


def await_connection(client: Any) -> None:
    """Wait for a client that is connecting; raise if it does not come back."""
    ends = time.monotonic() + SILENCE
    while client.status == "connecting" and time.monotonic() < ends:
        time.sleep(0.1)
    if client.status != "running":
        raise _lost(client)


def _lost(client: Any) -> ConnectionError:
    address = getattr(getattr(client, "scheduler", None), "address", None)
    where = f" at {address}" if address else ""
    return ConnectionError(
        f"the Dask scheduler{where} does not answer any more; the estimator is as it was "
        "before. Start a cluster and a Client again, and repeat the call"
    )


@contextmanager
def _large_graphs() -> Iterator[None]:
    """Dask warns of graphs above 10 MB: those of a pass hold its columns on purpose."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        yield


# --- rows -------------------------------------------------------------------------------


def dask_rows(X: Any, y: Any, names: Any = None) -> tuple[DaskRows, Any, Any]:
    """Rows, labels and column names of a Dask array or data frame; see `streamed_rows`."""
    import dask.array as da
    from dask import delayed, is_dask_collection

    client = active_client()
    X, y, names = _features(X, y, names)
    if is_dask_collection(y):
        lazy = y
        y = np.asarray(collect_again(lambda: (client, [client.compute(lazy)]))[0])
    if np.isnan(X.shape[0]):
        lengths = [delayed(len)(part) for part in X.to_delayed().ravel()]
        sizes = collect_again(lambda: (client, client.compute(lengths)))
        X = da.Array(X.dask, X.name, (tuple(sizes), X.chunks[1]), meta=X._meta)
    if X.shape[0] == 0:
        raise ValueError("X has no rows: at least one is needed")
    rows = DaskRows(_Chunks(_well_cut(X, sum(w["nthreads"] for w in _workers(client)) or 1)))
    return rows, y, names


def _features(X: Any, y: Any, names: Any) -> tuple[Any, Any, Any]:
    """X as a Dask array of numbers whose chunks hold whole rows; labels; names of columns."""
    import dask.array as da

    if not isinstance(X, da.Array):
        if not (hasattr(X, "to_dask_array") and hasattr(X, "columns")):
            raise TypeError(
                f"X is a {type(X).__name__}; of Dask's collections arrays and data frames can "
                "be used"
            )
        X, y, names = _columns(X, y, names)
    elif isinstance(y, str):
        raise ValueError(f"y={y!r} names a column, but X is a Dask array, which has no names")
    else:
        names = None
    if X.ndim != 2 or not X.shape[1] > 0:
        raise ValueError(f"X must have shape (n_samples, n_features), got {X.shape}")
    if not isinstance(X._meta, np.ndarray) or X.dtype.kind not in "fiub":
        raise TypeError(
            f"X holds {type(X._meta).__name__} of {X.dtype}; chunks must be NumPy arrays of "
            "numbers"
        )
    return (X if X.numblocks[1] == 1 else X.rechunk({1: -1})), y, names


def _columns(frame: Any, y: Any, names: Any) -> tuple[Any, Any, Any]:
    """The features of a data frame as an array, its labels if they are a column."""
    target = [y] if isinstance(y, str) else []
    wanted = feature_columns(list(frame.columns), target, names)
    for name in wanted:
        kind = frame.dtypes[name]
        if getattr(kind, "kind", "O") not in "fiub":
            raise ValueError(
                f"X: column {name!r} holds {kind}, not numbers; choose numeric columns, or "
                "encode it first"
            )
    labels = frame[y] if target else y
    if target and not isinstance(labels.dtype, np.dtype) and labels.dtype.kind in "fiub":
        labels = labels.astype(np.float64)  # NaN where pandas has NA
    named = np.array(wanted, dtype=object) if all(isinstance(n, str) for n in wanted) else None
    return frame[wanted].astype(np.float64).to_dask_array(), labels, named


def _well_cut(X: Any, threads: int) -> Any:
    """X with chunks enough for all threads, and not so many that tasks are mostly overhead."""
    sizes = X.chunks[0]
    n, count = sum(sizes), len(sizes)
    wanted = max(FEWEST_CHUNK_ROWS, -(-n // (2 * CHUNKS_A_THREAD * threads)))
    too_few = count < CHUNKS_A_THREAD * threads and max(sizes) > wanted
    too_small = n / count < FEWEST_CHUNK_ROWS / 4 and count > 2 * CHUNKS_A_THREAD * threads
    if too_few:
        return X.rechunk({0: wanted})
    return X.rechunk({0: min(wanted, MOST_ROWS)}) if too_small else X


class _Chunks:
    """Chunks of rows on a cluster, and what else of a fit stays there.

    Parameters
    ----------
    X : dask array of shape (n, d)
        Of known length; chunks hold whole rows.
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        self.ends = np.cumsum(X.chunks[0])
        self._client: Any = None
        self._parts: tuple[list[Any], dict[Any, Any]] | None = None
        self._kept: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
        self.gives: dict[Work, Gives] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy elsewhere knows no client."""
        return _Chunks, (self.X,)

    def client(self) -> Any:
        """The client of the fit, or the one that is active now."""
        if self._client is None or self._client.status != "running":
            self.forget()
            self._client = active_client()
        return self._client

    def parts(self) -> tuple[list[Any], dict[Any, Any]]:
        """The chunks as futures if they are held, else as keys of a graph; and the graph."""
        import dask
        from distributed import futures_of

        if self._parts is None:
            client = self.client()
            # A worker without a limit counts as infinite.
            memory = sum(worker["memory_limit"] or np.inf for worker in _workers(client))
            if 8 * self.X.size <= HELD_SHARE * memory:
                held = {future.key: future for future in futures_of(client.persist(self.X))}
                self._parts = [held[row[0]] for row in self.X.__dask_keys__()], {}
            else:
                (lazy,) = dask.optimize(self.X)
                keys = [row[0] for row in lazy.__dask_keys__()]
                self._parts = keys, dict(lazy.__dask_graph__())
        return self._parts

    def kept(self, thing: Any) -> Any:
        """A future of something that several passes use."""
        found = self._kept.pop(id(thing), None)
        if found is None:
            with _large_graphs():
                unpack = attrgetter("contents")
                found = thing, self.client().submit(unpack, Parcel(thing), pure=False)
        self._kept[id(thing)] = found  # the last one used is the last one to go
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found[1]

    def forget(self) -> None:
        """Let go of all that is on the cluster."""
        self._client = self._parts = None
        self._kept.clear()


class DaskRows(Rows):
    """Rows of a Dask array, worked on by the cluster of the active client."""

    def __init__(self, chunks: _Chunks) -> None:
        self.chunks = chunks  # what is on the cluster is shared by all sizes of blocks
        self.n_rows, self.n_features = (int(size) for size in chunks.X.shape)

    def release(self) -> None:
        """Let the cluster forget the rows; the next pass sends for them again."""
        if self.pass_begins is None:
            self.chunks.forget()

    def run(
        self, work: Work, shared: Shared = (), columns: Entries = (), chosen: Chosen = None
    ) -> Result:
        """One task a chunk; values and the sum of sums come to the client."""
        if self.pass_begins is not None:
            self.pass_begins()
        pieces = list(self._pieces(chosen))
        if not pieces:
            return None, ()
        gives = self.chunks.gives.get(work, (True, True))

        def start() -> tuple[Any, list[Any]]:
            client = self.chunks.client()
            with _large_graphs():
                # No name for the graph: tracebacks would keep its chunks on the cluster.
                futures = client.get(
                    *self._graph(work, shared, columns, pieces, gives), sync=False
                )
            return client, futures

        done = collect_again(start, self.chunks.forget)
        sums = done.pop()[1] if gives[1] else ()
        values, _ = put_together(done, pieces[-1][1].stop)
        self.chunks.gives[work] = (values is not None, bool(sums))
        return values, sums

    def _pieces(self, chosen: Chosen) -> Iterator[Piece]:
        """The chunks that hold (chosen) rows."""
        start = 0
        for index, end in enumerate(self.chunks.ends):
            first, start = start, int(end)
            if chosen is None:
                here, inner = slice(first, start), None
            else:
                here = slice(*(int(k) for k in np.searchsorted(chosen, (first, start))))
                whole = here.stop - here.start == start - first
                inner = None if whole else (chosen[here] - first).astype(np.int32)
            if here.stop > here.start:
                yield index, here, inner

    def _graph(
        self, work: Work, shared: Shared, columns: Entries, pieces: list[Piece], gives: Gives
    ) -> tuple[dict[Any, Any], list[Any]]:
        """A task a chunk and a tree of sums, and the keys that the client wants."""
        chunks, graph = self.chunks.parts()
        # Arrays may be written into between passes: they travel with each.
        keep = [not isinstance(thing, (np.ndarray, float, int, type(None))) for thing in shared]
        rest = [None if kept else thing for thing, kept in zip(shared, keep, strict=True)]
        kept = [self.chunks.kept(t) for t, own in zip(shared, keep, strict=True) if own]
        name = f"{work.__name__}-{uuid4().hex}"  # the scheduler learns how long each work takes
        job, graph = f"job-{name}", dict(graph)
        graph[job] = Parcel((work, self.block_size, rest, keep))
        done: list[Any] = []
        for index, here, inner in pieces:
            own = Parcel((inner, [column[here] for column in columns]))
            done.append((name, index))
            graph[done[-1]] = (_work_on_chunk, chunks[index], job, own, *kept)
        wanted = list(done) if gives[0] else []
        if all(gives):  # the values without the sums
            wanted = [(f"values-{name}", place) for place in range(len(done))]
            graph |= {key: (_values, each) for key, each in zip(wanted, done, strict=True)}
        return graph, [*wanted, _add_tree(graph, f"sums-{name}", done)] if gives[1] else wanted


def _add_tree(graph: dict[Any, Any], name: str, done: list[Any]) -> Any:
    """Add tasks that add up what chunks gave, neighbours first; the key of the last one."""
    level = 0
    while level == 0 or len(done) > 1:
        groups = [done[start : start + FAN_IN] for start in range(0, len(done), FAN_IN)]
        done = [(name, level, place) for place in range(len(groups))]
        graph.update({key: (_added, *group) for key, group in zip(done, groups, strict=True)})
        level += 1
    return done[0]


class LazyRows(Rows):
    """Rows of a Dask array or data frame, not asked for yet: a pass is one more lazy array."""

    def __init__(self, X: Any, names: Any = None) -> None:
        self.X, _, _ = _features(X, None, names)
        self.n_rows, self.n_features = self.X.shape

    def run(
        self, work: Work, shared: Shared = (), columns: Entries = (), chosen: Chosen = None
    ) -> Result:
        """One entry a row as a lazy array; for work without sums, on all rows."""
        assert not columns and chosen is None
        one = work(np.zeros((1, self.n_features)), *shared)[0]
        assert one is not None
        job = Parcel((work, self.block_size, shared, [False] * len(shared)))
        return by_chunks(partial(_values_of_chunk, job=job), self.X, one), ()


def by_chunks(function: Callable[[np.ndarray], np.ndarray], X: Any, one: np.ndarray) -> Any:
    """A function of the chunks of a Dask array as one more lazy array.

    Parameters
    ----------
    function : callable
        Takes and returns one entry a row.
    X : dask array
        Chunks hold whole rows.
    one : ndarray
        What the function returns for one row.
    """
    return X.map_blocks(
        function,
        dtype=one.dtype,
        chunks=(X.chunks[0], *((size,) for size in one.shape[1:])),
        drop_axis=list(range(one.ndim, X.ndim)),
        new_axis=list(range(X.ndim, one.ndim)),
        meta=one[:0],
    )


# --- what workers do --------------------------------------------------------------------


class Parcel:
    """Something that Dask sends as it is, without looking into it for its own objects."""

    __slots__ = ("contents",)

    def __init__(self, contents: Any) -> None:
        self.contents = contents


def _work_on_chunk(X: np.ndarray, job: Parcel, own: Parcel, *kept: Any) -> Result:
    """Work on the (chosen) rows of a chunk, a block at a time."""
    work, size, rest, keep = job.contents
    inner, columns = own.contents
    things = iter(kept)
    shared = (next(things) if is_kept else t for t, is_kept in zip(rest, keep, strict=True))
    with one_blas_thread():  # the other threads of the worker are all at work
        return ArrayRows(X, size).run(work, tuple(shared), columns, inner)


def _values(done: Result) -> Result:
    """What a chunk gave, without the sums."""
    return done[0], ()


def _added(*done: Result) -> Result:
    """Sums of several chunks; theirs stay as they are, for they may be asked for again."""
    sums = tuple(np.array(term) for term in done[0][1])
    for _, terms in done[1:]:
        sums = add_sums(sums, terms)
    return None, sums


def _values_of_chunk(X: np.ndarray, job: Parcel) -> Any:
    if len(X) == 0:  # as some chunks of a data frame are
        work, _, shared, _ = job.contents
        return work(np.zeros((1, X.shape[1])), *shared)[0][:0]
    return _work_on_chunk(X, job, Parcel((None, [])))[0]
