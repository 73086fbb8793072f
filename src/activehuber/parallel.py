"""Independent pieces of work side by side, one thread of linear algebra each.

A factor of one large matrix keeps several cores busy only in part. Several such factors, one a
core, keep all of them busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

# Smaller matrices are done before threads have been woken.
LEAST_ROWS = 600


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], n_rows: int
) -> list[Result]:
    """Map a function that is mostly linear algebra over items.

    Parameters
    ----------
    function : callable
        Must not write to what others read.
    items : iterable
    n_rows : int
        Size of the matrices: small ones are handled one after the other.

    Returns
    -------
    list
        function(item), in the order of the items. Uses as many threads as BLAS may.
    """
    items = list(items)
    if len(items) < 2 or n_rows < LEAST_ROWS:
        return [function(item) for item in items]
    libraries = ThreadpoolController().select(user_api="blas")
    workers = min(len(items), threads_of(libraries))
    if workers < 2:
        return [function(item) for item in items]
    with libraries.limit(limits=1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def threads_of(libraries: ThreadpoolController) -> int:
    """How many threads every one of the libraries may use."""
    return min((library["num_threads"] for library in libraries.info()), default=1)
