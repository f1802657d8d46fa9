"""Passes over all data on the workers of a Dask cluster."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from ..deadline import deadline
from ..models import passes
from . import Package

distributed = Package("distributed", "Dask", "cluster")
AHEAD = 2  # parts that wait for each thread of a cluster, beside the one that it works on
PATIENCE = "20s"  # for a scheduler to answer


@contextmanager
def on(scheduler: str) -> Iterator[None]:
    """Inside `with passes.on(scheduler="tcp://host:8786"):` all passes go to that Dask cluster.

    Its workers must have this package, and see the files of mapped arrays under the same names.
    """
    with connect(scheduler) as client:
        token = passes.mapper.set(partial(_map, client))
        try:
            yield
        finally:
            passes.mapper.reset(token)


def connect(scheduler: str, patience: str | None = None) -> Any:
    """A Dask client of the scheduler at this address, or a ValueError."""
    if not isinstance(scheduler, str):  # for None Dask would start processes of its own
        raise ValueError(f"scheduler={scheduler!r}: give an address such as tcp://host:8786")
    client = distributed.Client
    try:
        return client(scheduler, timeout=patience or PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {scheduler}: {error}") from error


def _map(client: Any, part: Callable, pieces: Iterable) -> Iterator:
    """`map` on the cluster, in order. A piece whose worker is lost goes to another one."""
    most, left = (1 + AHEAD) * max(1, sum(client.nthreads().values())), iter(pieces)
    while some := [*islice(left, most)]:  # not all at once: they may be larger than memory
        for future in client.map(part, some, pure=False):
            deadline.check()
            yield future.result()
