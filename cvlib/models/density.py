"""log p(x, z) and its slope at many points: in bounded memory, never failing."""

from copy import copy

import numpy as np

from .own import Model, _totals

ROWS, EACH = 10_000, 50  # rows that may stand for all, at least; and for every unknown


class Density:
    """log p(x, z) of a model at points z (B, d), part by part of the data.

    With `rows` these alone stand for all data, their likelihood scaled by N / n. Where a matrix of
    the model is singular, log p and its slope are not numbers.
    """

    def __init__(self, model: Model, rows: np.ndarray | None = None):
        self.model, self.scale = model, 1.0
        if rows is not None:
            self.model, self.scale = copy(model), model.N / len(rows)
            self.model.data = model.take(rows)

    @classmethod
    def of_some(cls, model: Model, rng: np.random.Generator) -> "Density":
        """Of a few random rows, where the model has many times as many; else of all."""
        n = enough(model)
        return cls(model, np.sort(rng.choice(model.N, n, False)) if n < model.N else None)

    def value(self, z: np.ndarray) -> np.ndarray:
        """log p(x, z), (B,)."""
        return self._up_to(0, z)[0]

    def slope(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(x, z) and its slope, (B,) and (B, d)."""
        return self._up_to(1, z)

    @np.errstate(all="ignore")
    def _up_to(self, order, z):
        """Value and slope; point by point where one of them fails."""
        prior = lambda z, rows: self.model.log_prior(z) + 0 * z[..., 0]  # one row, of no data
        try:
            both = zip(self.model.totals(z, order), _totals((), z, prior, order))
            return tuple(self.scale * x + y for x, y in both)
        except np.linalg.LinAlgError:
            if len(z) == 1:
                return np.full(1, np.nan), np.full(z.shape, np.nan)
            return tuple(map(np.concatenate, zip(*(self._up_to(order, one[None]) for one in z))))

    @property
    def size(self) -> int:
        """Numbers that one point makes of the data."""
        return len(self.model.data[0]) * max(self.model.dim, self.model.row_size)


def enough(model: Model) -> int:
    """How many rows may stand for all in the search for the mode: all, unless they are many."""
    n = max(ROWS, EACH * model.dim)
    return n if model.N > 4 * n else model.N
