"""The mode of log p(x, z) by its gradient, and what is wrong with it: a saddle, flat, no end."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..models.density import Density
from ..models.passes import Late, until
from .search import climb

DENSE, FEW = 200, 20  # up to so many unknowns the search remembers all turns of the slope; else few
STEPS, ENOUGH = 300, 1e-6  # of one search, and nats that a step must promise to be taken
AXES = 500  # unknowns up to which the axes of the curvature are looked along
FAR = 1e8  # beyond it nothing is looked for
LEAST = 0.1  # distance from a mode at which to look
FALL = 0.01  # of log p, one standard deviation off the mode: less may be flat
FARTHER = 100.0  # if it is no more at this distance


class Mode(NamedTuple):
    """The highest point that a search found."""

    z: np.ndarray  # (d,)
    value: float
    inverse: np.ndarray  # (d, d) of minus the Hessian, as the search saw it
    began: np.ndarray  # (d,)
    trouble: str = ""


def searched(density: Density, z: np.ndarray, late: Callable = lambda: False) -> Mode:
    """The mode, and what is wrong with it.

    One standard deviation off a mode log p is lower, in every direction. Where it is higher the
    search goes on: that was a saddle, or the search gave up. Where it stays, far out too, there is
    no mode. Once it is late the highest point so far is taken as it is.
    """
    mode = climbed(density, z, late)
    if not np.isfinite(mode.value) and not late():
        return mode._replace(trouble="log p(x, z) or its slope is no number where the search began")
    try:
        with until(late):
            return _looked_around(density, mode, late)
    except Late:
        return mode


def _looked_around(density, mode, late):
    """The mode, or a higher one, with what is wrong around it."""
    z = mode.began
    fallen = lambda steps: mode.value - np.nan_to_num(density.value(mode.z + steps), nan=-np.inf)
    for _ in range(3):
        if late():
            return mode
        off = _axes(mode.inverse)[: max(8, 2**24 // density.size)]
        off = np.concatenate([off, -off])
        fall = fallen(off)
        off = off[np.argsort(fall)[: (fall <= FALL).sum()]]  # the highest first
        rises = fall.min() < -FALL
        again = climbed(density, mode.z + off[0], late) if rises else mode
        if not again.value > mode.value or np.abs(again.z).max() > FAR / 100:
            break
        mode = again
    if not rises and len(off):
        far = np.maximum(FARTHER / np.linalg.norm(off, axis=1), 1.0)[:, None]
        off = off[fallen(far * off) <= FALL]
    if not len(off):
        return mode
    # along what it went farthest, for one that runs away drags others
    k = int(np.argmax(np.abs(mode.z - z if rises else off[0])))
    how, where = "rises" if rises else "stays flat", density.model.names[k]
    said = f"no mode was found: log p(x, z) {how} along {where}, {mode.z[k]:.3g} where it ended"
    return mode._replace(trouble=said)


def climbed(
    density: Density, z: np.ndarray, late: Callable = lambda: False, goal: float = np.inf
) -> Mode:
    """Where a search gets from z, at most to the goal.

    In many dimensions it remembers the last turns of the slope alone.
    """
    best, gone = -np.inf, False

    def log_p(z):
        nonlocal best, gone
        (value,), (slope,) = density.slope(z[None])
        far = np.abs(z).max()
        if not (np.isfinite(slope).all() and far < FAR):
            return -np.inf, slope
        if value > best:
            best, gone = value, far > FAR / 100  # it rises for ever, or nearly so
        return value, slope

    most, end = STEPS if len(z) <= DENSE else FEW, lambda: gone or best >= goal or late()
    top, curvature = climb(log_p, z, ENOUGH, STEPS, most, end)
    return Mode(top.z, top.value, curvature.times(np.eye(len(z))), z)


def _axes(C):
    """Rows one standard deviation along the axes of C, or of its diagonal, the widest first."""
    if len(C) > AXES or not np.isfinite(C).all():
        l, axes = np.nan_to_num(np.diag(C), posinf=1.0), np.eye(len(C))
    else:
        l, axes = np.linalg.eigh((C + C.T) / 2)
    order = np.argsort(-l)
    return axes.T[order] * np.maximum(np.sqrt(np.maximum(l, 0)), LEAST)[order, None]  # kinks: 0
