"""log p(x, z) and its slope as a fit sees them: in bounded memory, never failing."""

import numpy as np
from autograd import make_vjp

from ..families import Family
from ..models import Model
from ..models.own import _totals
from ..recipe.draws import Draw

ROWS, EACH = 10_000, 50  # rows that may stand for all, at least; and for every unknown


class Density:
    """log p(x, z) of a model at points z (B, d), part by part of the data.

    With `rows` these alone stand for all data, their likelihood scaled by N / n. Where a matrix of
    the model is singular, log p and its slope are not numbers.
    """

    def __init__(self, model: Model, rows: np.ndarray | None = None):
        self.model = model
        self.rows = None if rows is None else model.take(rows)
        self.scale = 1.0 if rows is None else model.N / len(rows)

    @classmethod
    def of_some(cls, model: Model, rng: np.random.Generator) -> "Density":
        """Of a few random rows, where the model has many times as many; else of all."""
        n = enough(model)
        return cls(model, np.sort(rng.choice(model.N, n, False)) if n < model.N else None)

    def value(self, z: np.ndarray) -> np.ndarray:
        """log p(x, z), (B,)."""
        return self._tried(z, 0)[0]

    def slope(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(x, z) and its slope, (B,) and (B, d)."""
        return self._tried(z, 1)

    def _tried(self, z, order):
        """Value and slope; point by point where one of them fails."""
        with np.errstate(all="ignore"):
            try:
                return self._all(z, order)
            except np.linalg.LinAlgError:
                if len(z) == 1:
                    return np.full(1, np.nan), np.full(z.shape, np.nan)
                each = [self._tried(one[None], order) for one in z]
                return tuple(map(np.concatenate, zip(*each)))

    def _all(self, z, order):
        if self.rows is None:
            found = self.model.totals(z, order)
        else:
            some = _totals(self.rows, z, self.model.log_lik, order)
            found = tuple(self.scale * x for x in some)
        back, prior = make_vjp(lambda z: self.model.log_prior(z) + 0 * z[..., 0])(z)
        value = found[0] + prior
        return (value, found[1] + back(np.ones_like(prior))) if order else (value,)

    @property
    def size(self) -> int:
        """Numbers that one point makes of the data."""
        rows = self.model.N if self.rows is None else len(self.rows[0])
        return rows * max(self.model.dim, self.model.row_size)


def enough(model: Model) -> int:
    """How many rows may stand for all in the search for the mode: all, unless they are many."""
    n = max(ROWS, EACH * model.dim)
    return n if model.N > 4 * n else model.N


def scored(
    model: Model, q: Family, w: np.ndarray, rng: np.random.Generator, M: int, group: int = 1
) -> tuple:
    """M draws, log p at them (M,) and its slopes in the coordinates of q (M, d).

    group = 2: in opposite pairs.
    """
    eps = q.noise(rng, w, -(-M // group))
    if group == 2:
        eps = np.concatenate([eps, -eps])
    draw = Draw(model, q, w, eps, None, group=group)
    with np.errstate(all="ignore"):
        value, slope = Density(model).slope(draw.z)
        return draw, value, q.times_t(draw.factor, slope)
