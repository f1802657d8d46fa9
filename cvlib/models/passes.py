"""Passes over all data, part by part in bounded memory, here or on the workers of a Dask cluster.

Each part of an `np.memmap` has a map of its own, which is closed after it, on a worker of the
cluster too: a pass over a file of any length holds CHUNK numbers of it and what it makes of them.
Rows at random are read through the array itself: their pages stay in the system's cache, which has
them back when it needs room. Parts are added up in their order, so that the numbers do not depend
on who computed which. Between parts a pass looks at the clock, if it was given one.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial, reduce
from typing import Any

import autograd.numpy as anp
import numpy as np

from ..arguments import bar
from ..deadline import deadline

CHUNK = 2**20  # numbers that one part of a pass may make of its rows
SMALL = 2**26  # bytes of an array of which a model may as well have a copy
QUIET = 3  # seconds before a pass shows how far it is
TALL = 4  # rows of a part for each unknown, at least: every part makes a slope of all unknowns
mapper: ContextVar[Callable] = ContextVar("mapper", default=map)  # or that of adapters/dask.py
Arrays = tuple[np.ndarray, ...]  # N rows each


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
    if points >= len(flat) and len(parts) == 1:  # as in most steps: no more ado
        return _part(part, (z, *args), [_again(a[parts[0]]) for a in data])
    found = total(in_blocks, data, flat, part, points, *args, width=width)
    return tuple(x.reshape((*z.shape[:-1], *x.shape[1:])) for x in found)


def in_blocks(rows: Any, z: np.ndarray, part: Callable, size: int, *args: Any) -> tuple:
    """part(rows, z, *args), so many of the points z (B, d) at a time."""
    found = []
    for first in range(0, len(z), size):
        deadline.check()
        found.append(part(rows, z[first : first + size], *args))
    return tuple(anp.concatenate(x) for x in zip(*found))


def each(part: Callable, data: Arrays, *args: Any, width: int = 1) -> Iterable:
    """part(rows, *args) for one part of the data after the other; rows are as many arrays as data.

    `width` is how many numbers it makes of one data point.
    """
    parts = slices(data, width)
    pieces = (tuple(_again(a[rows]) for a in data) for rows in parts)
    found = (map if len(parts) == 1 else mapper.get())(partial(_part, part, args), pieces)
    return _shown(found, len(parts))


def slices(data: Arrays, width: int = 1) -> list[slice]:
    """The parts of a pass, as slices of the data points."""
    size, N = max(1, CHUNK // max(width, *(a[0].size for a in data))), len(data[0])
    return [slice(first, min(first + size, N)) for first in range(0, N, size)]


def _part(part, args, rows):
    deadline.check()
    return part(tuple(wide(_here(a)) for a in rows), *args)


def _shown(results, count):
    """The results, with a bar in a terminal where they take more than a moment."""
    if count == 1:
        return results
    quiet = not sys.stderr.isatty()  # a page or a log would keep every state of it
    return bar(results, "pass over the data", count, delay=QUIET, disable=quiet)


# Mapped arrays ------------------------------------------------------------------------------------


def is_mapped(a: np.ndarray) -> bool:
    """Does this array lie in a file, so that it should not be copied?"""
    return isinstance(_root(a), np.memmap)


def wide(a: np.ndarray) -> np.ndarray:
    """The array; small whole numbers as int64, for sums and squares of uint8 wrap around."""
    return a.astype(np.int64) if a.dtype.kind in "iu" and a.dtype.itemsize < 8 else a


def fresh(a: np.ndarray) -> np.ndarray:
    """The array; one that lies in a file, in one piece, in a map of its own."""
    return _here(_again(a))


def _again(a):
    """What maps a mapped array in one piece anew; any other as it is."""
    root = _root(a)
    # in mode "c", copy on write, it does not hold what its file holds
    shared = isinstance(root, np.memmap) and root.filename is not None and root.mode != "c"
    if not (shared and a.flags.c_contiguous):
        return a
    address = lambda a: a.__array_interface__["data"][0]
    offset = root.offset + address(a) - address(root)
    return partial(np.memmap, os.path.abspath(root.filename), a.dtype, "r", offset, a.shape)


def _here(a):
    return np.asarray(a()) if callable(a) else a


def _root(a):
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a
