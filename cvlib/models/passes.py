"""Passes over all data, part by part in bounded memory, here or on the workers of a Dask cluster.

Rows of an `np.memmap` are read from their file as they are needed, by a worker of the cluster too:
a pass leaves none of them in memory. Parts are added up in their order, so that the numbers do not
depend on who computed which. Between parts a pass looks at the clock, if it was given one.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, reduce
from io import FileIO
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np

from ..arguments import bar, install

CHUNK = 2**20  # numbers that one part of a pass may make of its rows
AHEAD = 2  # parts that wait for each thread of a cluster, beside the one that it works on
PATIENCE = "20s"  # for a Dask scheduler to answer
SMALL = 2**26  # bytes of a mapped array that may as well come into memory as it is drawn from
QUIET = 3  # seconds before a pass shows how far it is
TALL = 4  # rows of a part for each unknown, at least: every part makes a slope of all unknowns
_cluster: ContextVar[Any] = ContextVar("cluster", default=None)
_late: ContextVar[Callable[[], bool]] = ContextVar("late", default=lambda: False)
ahead: ContextVar[float] = ContextVar("ahead", default=0.0)  # seconds that a clock is to add
Arrays = tuple[np.ndarray, ...]  # N rows each


class Late(Exception):
    """A pass was cut off between two of its parts, since its time was over."""


@contextmanager
def until(late: Callable[[], bool] | None) -> Iterator[None]:
    """Inside `with passes.until(late):` a pass ends with `Late` as soon as late() is true.

    Where one stands inside another, either may end it; inside `until(None)` nothing does.
    """
    outer = _late.get()
    token = _late.set((lambda: late() or outer()) if late else lambda: False)
    try:
        yield
    finally:
        _late.reset(token)


def late_in(seconds: float) -> bool:
    """Will it be late after so many seconds more?"""
    token = ahead.set(seconds)
    try:
        return _late.get()()
    finally:
        ahead.reset(token)


def look_at_clock(seconds: float = 0.0) -> None:
    """Ends what it is called in with `Late`, if it is late, or will be after so many seconds."""
    if late_in(seconds):
        raise Late("out of time")


@contextmanager
def on(scheduler: str) -> Iterator[None]:
    """Inside `with passes.on(scheduler="tcp://host:8786"):` all passes go to that Dask cluster.

    Its workers must have this package, and see the files of mapped arrays under the same names.
    """
    with connect(scheduler) as client:
        token = _cluster.set(client)
        try:
            yield
        finally:
            _cluster.reset(token)


def connect(scheduler: str, patience: str | None = None) -> Any:
    """A Dask client of the scheduler at this address, or a ValueError."""
    if not isinstance(scheduler, str):  # for None Dask would start processes of its own
        raise ValueError(f"scheduler={scheduler!r}: give an address such as tcp://host:8786")
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError(f"a scheduler needs Dask: {install('cluster')}") from error
    try:
        return Client(scheduler, timeout=patience or PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {scheduler}: {error}") from error


def total(part: Callable, data: Arrays, *args: Any, width: int = 1) -> tuple:
    """The sum of `each`, whose parts are tuples of arrays: entry by entry, in their order."""
    add = lambda found, new: tuple(a + b for a, b in zip(found, new))
    return reduce(add, each(part, data, *args, width=width))


def at_points(part: Callable, data: Arrays, z: np.ndarray, *args: Any, made: int) -> tuple:
    """`total` of part(rows, z, *args) at points z (..., d), some of the points at a time as well.

    `made` is how many numbers part makes of one data point at one z.
    """
    flat = z.reshape(-1, z.shape[-1])
    width = min(len(flat) * made, max(made, CHUNK // (TALL * flat.shape[1])))
    parts = slices(data, width)
    points = CHUNK // (made * parts[0].stop) or 1
    if points >= len(flat):
        if len(parts) == 1:  # as in most steps: no more ado
            return _part(part, (z, *args), [_sent(a[parts[0]]) for a in data])
        return total(part, data, z, *args, width=width)
    found = total(in_blocks, data, flat, part, points, *args, width=width)
    return tuple(x.reshape((*z.shape[:-1], *x.shape[1:])) for x in found)


def in_blocks(rows: Any, z: np.ndarray, part: Callable, size: int, *args: Any) -> tuple:
    """part(rows, z, *args), so many of the points z (B, d) at a time."""
    found = []
    for first in range(0, len(z), size):
        look_at_clock()
        found.append(part(rows, z[first : first + size], *args))
    return tuple(anp.concatenate(x) for x in zip(*found))


def each(part: Callable, data: Arrays, *args: Any, width: int = 1) -> Iterable:
    """part(rows, *args) for one part of the data after the other; rows are as many arrays as data.

    `width` is how many numbers it makes of one data point.
    """
    parts = slices(data, width)
    pieces = (tuple(_sent(a[rows]) for a in data) for rows in parts)
    here = _cluster.get() is None or len(parts) == 1
    done = (_part(part, args, rows) for rows in pieces) if here else _there(part, pieces, args)
    return _shown(done, len(parts))


def slices(data: Arrays, width: int = 1) -> list[slice]:
    """The parts of a pass, as slices of the data points."""
    size, N = max(1, CHUNK // max(width, *(a[0].size for a in data))), len(data[0])
    return [slice(first, min(first + size, N)) for first in range(0, N, size)]


def _there(part, pieces, args):
    """Each `_part`, on the cluster. One whose worker is lost goes to another one."""
    client, work = _cluster.get(), partial(_part, part, args)
    most = (1 + AHEAD) * max(1, sum(client.nthreads().values()))
    while some := [*islice(pieces, most)]:  # not all at once: they may be larger than memory
        for future in client.map(work, some, pure=False):
            look_at_clock()
            yield future.result()


def _part(part, args, rows):
    look_at_clock()
    return part(tuple(wide(a.read() if isinstance(a, Mapped) else a) for a in rows), *args)


def _shown(results, count):
    """The results, with a bar in a terminal where they take more than a moment."""
    if count == 1:
        return results
    quiet = not sys.stderr.isatty()  # a page or a log would keep every state of it
    return bar(results, "pass over the data", count, delay=QUIET, disable=quiet)


# Mapped arrays ------------------------------------------------------------------------------------


class Mapped(NamedTuple):
    """An array that lies in a file."""

    file: str
    dtype: np.dtype
    shape: tuple
    offset: int

    def read(self) -> np.ndarray:
        """All of it."""
        with self.opened() as file:
            flat = np.fromfile(file, self.dtype, prod(self.shape), offset=self.offset)
        return flat.reshape(self.shape)

    def take(self, index: np.ndarray) -> np.ndarray:
        """Its rows with these numbers, read one by one. Through the map, pages would pile up."""
        size, rows = self.dtype.itemsize * prod(self.shape[1:]), []
        with self.opened() as file:
            for i in index.ravel().tolist():
                file.seek(self.offset + size * i)
                rows.append(file.read(size))
        return np.frombuffer(b"".join(rows), self.dtype).reshape(index.shape + self.shape[1:])

    def opened(self) -> FileIO:
        try:
            return open(self.file, "rb", buffering=0)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.file}, which holds the data, is not there: all workers of a cluster must "
                "see it under this name, and it must stay until the last step"
            ) from None


def is_mapped(a: np.ndarray) -> bool:
    """Does this array lie in a file, so that it should not be copied?"""
    return isinstance(_root(a), np.memmap)


def files(data: Arrays) -> "tuple[Mapped | None, ...]":
    """For each array, where its file is, if it is so large that it should stay there; else None."""
    large = (_sent(a) if a.nbytes > SMALL else None for a in data)
    return tuple(a if isinstance(a, Mapped) else None for a in large)


def wide(a: np.ndarray) -> np.ndarray:
    """The array; small whole numbers as int64, for sums and squares of uint8 wrap around."""
    return a.astype(np.int64) if a.dtype.kind in "iu" and a.dtype.itemsize < 8 else a


def _root(a):
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


def _sent(a):
    """A mapped array in one piece as `Mapped`, any other as it is."""
    root = _root(a)
    # in mode "c", copy on write, it does not hold what its file holds
    shared = isinstance(root, np.memmap) and root.filename is not None and root.mode != "c"
    if not (shared and a.flags.c_contiguous):
        return a
    address = lambda a: a.__array_interface__["data"][0]
    offset = root.offset + address(a) - address(root)
    return Mapped(os.path.abspath(root.filename), a.dtype, a.shape, offset)
