"""The data points that a GLM's integrand sees under a draw: one a sample, a batch, or all of them.

A function of eta = x.z + offset has the slope c x and the curvature c x x^T: `back` and `bend` make
these from its derivatives c, summed over the points of a sample and scaled to stand for all N.
"""

import numpy as np

from ..draws import Draw, kept
from ..models import passes
from ..models.glm import GLM
from ..models.own import Model


class Rows:
    """One data point a sample: x (..., M, d), and so eta and c (..., M)."""

    def __init__(self, model: Model, index: np.ndarray) -> None:
        self.x, self.y, *offset = [
            a if a.dtype == float else a.astype(float) for a in model.take(index)
        ]
        self.offset = offset[0] if offset else None
        self.scale = float(model.N)

    def dot(self, v: np.ndarray) -> np.ndarray:
        """x.v for v (..., M, d), as (..., M)."""
        return np.vecdot(self.x, v)

    @kept
    def eta(self, draw: Draw, where: str) -> np.ndarray:
        """x.z + offset at the points of a draw."""
        eta = self.dot(draw.at(where))
        return eta if self.offset is None else eta + self.offset

    def total(self, c: np.ndarray) -> np.ndarray:
        """N c, (..., M)."""
        return self.scale * c

    def back(self, c: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """N c x, (..., M, d); with `x` given, that in place of the data's."""
        return (self.scale * c)[..., None] * (self.x if x is None else x)

    def bend(self, draw: Draw, c: np.ndarray) -> np.ndarray:
        """What w has of N c x x^T L, (..., M, D - d)."""
        return (self.scale * c)[..., None] * self.outer(draw)

    @kept
    def outer(self, draw: Draw) -> np.ndarray:
        """What w has of x x^T L, (..., M, D - d)."""
        return draw.q.outer(self.x, self.x_factor(draw))

    @kept
    def x_factor(self, draw: Draw) -> np.ndarray:
        """L^T x, (..., M, d)."""
        return self.times(draw, draw.factor)

    def times(self, draw: Draw, factor: np.ndarray) -> np.ndarray:
        return draw.q.times_t(factor, self.x)

    @kept
    def variance(self, draw: Draw, where: str = "mu") -> np.ndarray:
        """x^T Sigma x, the variance of eta under q or an older q, (..., M)."""
        now = where == "mu"
        u = self.x_factor(draw) if now else self.times(draw, draw.snapshot.factor)
        return np.vecdot(u, u)


class Batch(Rows):
    """B data points a sample, or for all of them: x (..., M or 1, B, d), eta and c (..., M, B)."""

    def __init__(self, model: Model, index: np.ndarray) -> None:
        super().__init__(model, index)
        self.scale /= self.x.shape[-2]

    @property
    def shared(self) -> bool:
        return self.x.shape[-3] == 1

    def dot(self, v: np.ndarray) -> np.ndarray:
        if self.shared:
            return v @ self.x[..., 0, :, :].mT
        return np.matvec(self.x, v)

    def total(self, c: np.ndarray) -> np.ndarray:
        return self.scale * c.sum(-1)

    def back(self, c: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        x = self.x if x is None else x
        total = c @ x[..., 0, :, :] if self.shared else np.vecmat(c, x)
        return total if self.scale == 1 else self.scale * total

    def bend(self, draw: Draw, c: np.ndarray) -> np.ndarray:
        return draw.q.gram(c if self.scale == 1 else self.scale * c, self.x, draw.factor)

    def times(self, draw: Draw, factor: np.ndarray) -> np.ndarray:
        """L^T x, (..., M or 1, B, d)."""
        runs, (M, B, d) = draw.w.shape[:-1], self.x.shape[-3:]
        x = np.broadcast_to(self.x, (*runs, M, B, d)).reshape(*runs, M * B, d)
        return draw.q.times_t(factor, x).reshape(*runs, M, B, d)


class AllRows(Batch):
    """The whole data set as one batch that all samples share: x (1, N, d)."""

    def __init__(self, model: GLM) -> None:
        x, self.y, *offset = map(passes.wide, model.data)
        self.x, self.offset, self.scale = x[None], offset[0] if offset else None, 1.0
        self.squares = model.squares

    def bend(self, draw: Draw, c: np.ndarray) -> np.ndarray:
        if self.squares is None or not draw.q.full:
            return super().bend(draw, c)
        H = self.squares.weighted(c)  # (..., M, d, d)
        return draw.q.bend(lambda V: V[..., None, :, :] @ H, draw.factor)


def rows(draw: Draw, whole: bool) -> Rows:
    """The data that an integrand sees under a draw, made once a draw."""
    return _rows(draw.model, draw, whole or draw.index is None)


@kept
def _rows(model, draw, whole):
    if whole:
        return AllRows(model)
    return (Batch if draw.batched else Rows)(model, draw.index)
