"""The highest point of a function by its slope alone: L-BFGS.

It climbs log p(x, z) to the mode, and the ELBO on fixed draws to its top. The line search doubles
and halves until Wolfe's weak conditions hold, which serves functions with kinks as well (Lewis and
Overton 2013).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..models.passes import Late, until

RISE, FLATTER = 1e-4, 0.9  # Wolfe's: shares of the rise that a slope promises, and of the slope
TRIES = 40  # on one line


class Point(NamedTuple):
    """A place, the value there, and the slope."""

    z: np.ndarray  # (d,)
    value: float
    slope: np.ndarray  # (d,)


class Curvature:
    """(-Hessian)^-1 as steps and the turns of the slope along them tell it, the last `most`."""

    def __init__(self, most: int):
        self.most = most
        self.seen: list[tuple] = []  # (step, turn, step.turn)

    def see(self, old: Point, new: Point) -> None:
        step, turn = new.z - old.z, old.slope - new.slope
        if step @ turn > 0:
            self.seen = [*self.seen, (step, turn, step @ turn)][-self.most :]

    def times(self, x: np.ndarray) -> np.ndarray:
        """(-Hessian)^-1 x for x (..., d): the two loops of L-BFGS."""
        shares = []
        for step, turn, both in reversed(self.seen):
            shares.append((x @ step)[..., None] / both)
            x = x - shares[-1] * turn
        if self.seen:
            _, turn, both = self.seen[-1]
            x = x * (both / (turn @ turn))
        for (step, turn, both), share in zip(self.seen, reversed(shares)):
            x = x + (share - (x @ turn)[..., None] / both) * step
        return x


def climb(
    f: Callable, z: np.ndarray, enough: float, steps: int = 300, most: int = 20,
    late: Callable = lambda: False,
) -> tuple[Point, Curvature]:  # fmt: skip
    """The highest point that is found from z (d,), and the curvature that was seen on the way.

    f(z) gives value and slope; where they are no numbers nothing is looked for. Ends when a step
    promises to gain less than `enough`, after `steps`, or when it is `late`, inside f as well.
    """
    try:
        with until(late):
            first = f(z)
    except Late:
        return Point(z, -np.inf, np.zeros_like(z)), Curvature(most)
    if [*map(np.shape, first if isinstance(first, tuple) else ())] != [(), np.shape(z)]:
        raise TypeError(f"climb: f(z) must give a number and its slope, as long as z; got {first}")
    here, curvature = Point(z, *first), Curvature(most)
    for _ in range(steps if np.isfinite(here.value) else 0):
        way = curvature.times(here.slope)
        if not curvature.seen:
            way = way / max(np.linalg.norm(way), 1.0)
        if late() or not here.slope @ way / 2 > enough:
            break
        try:
            with until(late):
                new = _along(f, here, way)
        except Late:
            break
        if new.value > here.value:
            curvature.see(here, new)
            here = new
        elif curvature.seen:
            curvature = Curvature(most)  # it misled
        else:
            break
    return here, curvature


def _along(f, here, way):
    """The point on the line that Wolfe's conditions ask for, or the best one seen."""
    promised, best = here.slope @ way, here
    near, far, length = 0.0, np.inf, 1.0
    for _ in range(TRIES):
        z = here.z + length * way
        new = Point(z, *f(z))
        if new.value > best.value:
            best = new
        if not new.value >= here.value + RISE * length * promised:
            far = length
        elif new.slope @ way > FLATTER * promised:
            near = length
        else:
            return new
        length = 2 * near if far == np.inf else (near + far) / 2
    return best
