"""The data points that a GLM's integrand sees under a draw: one a sample, or all of them.

eta = x.z + offset is all that a GLM has of z. A function of eta has the slope c x and the curvature
c x x^T, with c its derivatives in eta: `back` and `bend` make these from c.
"""

import numpy as np


class Rows:
    """One data point a sample, standing for N: x (..., M, d), and so eta and c (..., M)."""

    def __init__(self, model, index):
        self.x, self.y, self.scale = model.X[index], model.y[index], float(model.N)
        self.offset = None if model.offset is None else model.offset[index]

    def dot(self, v):
        """x.v, (..., M)."""
        return np.vecdot(self.x, v)

    def eta(self, draw, where):
        """x.z + offset at the points of a draw."""
        return draw.once(("eta", self, where), self._eta, where)

    def _eta(self, draw, where):
        eta = self.dot(draw.at(where))
        return eta if self.offset is None else eta + self.offset

    def total(self, c):
        """N c, (..., M)."""
        return self.scale * c

    def back(self, c):
        """N c x, (..., M, d)."""
        return (self.scale * c)[..., None] * self.x

    def bend(self, draw, c):
        """What w has of N c x x^T L, (..., M, D - d)."""
        return (self.scale * c)[..., None] * self.x_outer(draw)

    def fill(self, draw, d1, d2, out, add):
        """N [d1 x, d2 x x^T L] into out (..., M, D), or added to it."""
        mu, factor = (out[..., block] for block in draw.q.blocks)
        if add:
            mu += self.back(d1)
            factor += self.bend(draw, d2)
        else:
            mu[...] = self.back(d1)
            np.multiply((self.scale * d2)[..., None], self.x_outer(draw), out=factor)

    def x_outer(self, draw):
        """What w has of x x^T L, (..., M, D - d)."""
        return draw.once(("x x^T L", self), lambda d: d.q.outer(self.x, self.x_factor(d)))

    def x_factor(self, draw):
        """L^T x, (..., M, d)."""
        return draw.once(("L^T x", self), lambda draw: draw.q.times_t(draw.factor, self.x))

    def variance(self, draw):
        """x^T Sigma x, the variance of eta under q, (..., M)."""
        return draw.once(("variance", self), self._variance)

    def _variance(self, draw):
        u = self.x_factor(draw)
        return np.vecdot(u, u)


class WholeRows(Rows):
    """All N data points for every sample: x (N, d), and so eta and c (..., M, N)."""

    def __init__(self, model):
        self.x, self.y, self.offset = model.X, model.y, model.offset
        self.pairs = model.pairs

    def dot(self, v):
        return v @ self.x.T

    def total(self, c):
        return c.sum(-1)

    def back(self, c):
        return c @ self.x

    def bend(self, draw, c):
        return draw.q.gram(c, self.x, draw.factor, self.pairs)

    def fill(self, draw, d1, d2, out, add):
        mu, factor = (out[..., block] for block in draw.q.blocks)
        if not add:
            out[...] = 0.0
        mu += self.back(d1)
        factor += self.bend(draw, d2)

    def x_factor(self, draw):
        x = np.broadcast_to(self.x, (*draw.w.shape[:-1], *self.x.shape))
        return draw.q.times_t(draw.factor, x)  # (..., N, d)

    def _variance(self, draw):
        return super()._variance(draw)[..., None, :]  # (..., 1, N)


def rows(draw, whole):
    """The data that an integrand sees under a draw, made once a draw."""
    if whole or draw.index is None:
        return draw.once("all rows", lambda draw: WholeRows(draw.model))
    return draw.once("rows", lambda draw: Rows(draw.model, draw.index))
