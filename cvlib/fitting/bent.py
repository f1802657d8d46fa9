"""A Gaussian that bends: skewed margins, scales and places that depend on other coordinates.

Coordinates are taken in an order. Let u = diag(L)^-1 L e, e ~ N(0, I): u_j has the slope one in
e_j, and depends on none that comes later. Then

    z_j = mu_j + L_jj [ exp(B_j.u) (sinh(t_j asinh(u_j) + k_j) - sinh(k_j)) + A_j.(u^2 - 1) ],

where row j of B and of A has entries for earlier coordinates alone. B widens (a funnel), A shifts
(a banana), k skews, t sets the weight of the tails (sinh-arcsinh, Jones and Pewsey 2009). The map
is triangular (El Moselhy and Marzouk 2012): its determinant is the product of dz_j / de_j, and it
is undone one coordinate after the other. With A = B = k = log t = 0 it is N(mu, L L^T).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import autograd.numpy as anp
import numpy as np

from ..draws import Draw
from ..families.base import Array, ArrayLike
from ..families.gaussian import Gaussian, OfNormal, filled

DRAWS = 20_000  # for mean and standard deviation


class Bent(OfNormal):
    """The law above; w = [mu, lower triangle of L, B, A, k, log t], all in the order.

    order: the coordinates, those first that others depend on. pairs: (j, i), i < j, places in that
    order that have an entry in B and in A. If they are not given: as they come, and all pairs.
    """

    parts = "mu", "L", "B", "A", "k", "log t"

    def __init__(
        self, dim: int, order: Sequence[int] | None = None, pairs: Sequence | None = None
    ) -> None:
        super().__init__(dim)
        d, self.straight = self.dim, Gaussian(dim)
        self.order = tuple(range(d)) if order is None else tuple(map(int, order))
        if sorted(self.order) != [*range(d)]:
            raise ValueError(f"order={order!r} must hold each of the {d} coordinates once")
        below = np.stack(np.tril_indices(d, -1), 1).tolist()
        self.pairs = tuple((int(j), int(i)) for j, i in (below if pairs is None else pairs))
        if not {*self.pairs} <= {*map(tuple, below)} or len({*self.pairs}) < len(self.pairs):
            raise ValueError(f"pairs={pairs!r}: each (j, i) once, with 0 <= i < j < {d}")
        self.back = np.argsort(self.order)  # where each coordinate of z stands in the order
        sizes = [0, d, self.straight.D - d, len(self.pairs), len(self.pairs), d, d]
        self.blocks = tuple(slice(*both) for both in pairwise(np.cumsum(sizes).tolist()))
        self.D = sum(sizes)
        self.at = np.full((d, d), len(self.pairs))  # in [entries, 0]: where B and A have them
        self.at[tuple(np.array(self.pairs, int).reshape(-1, 2).T)] = np.arange(len(self.pairs))

    def __repr__(self) -> str:
        return f"Bent({self.dim}, {len(self.pairs)} pairs)"

    def start(self, runs: int | tuple[int, ...] = ()) -> Array:
        """N(0, I), as (*runs, D)."""
        return self.of_straight(self.straight.start(runs))

    def of_straight(self, w: Array) -> Array:
        """The weights of the same law for those of a `Gaussian`, (..., D)."""
        mu, L = self.straight.unpack(w)
        way = np.array(self.order)
        cov = (L @ np.swapaxes(L, -1, -2))[..., way[:, None], way]
        w = self.straight.joined(mu[..., way], np.linalg.cholesky(cov))
        return np.concatenate([w, np.zeros((*w.shape[:-1], self.D - w.shape[-1]))], -1)

    def unpack(self, w: ArrayLike) -> tuple:
        """mu (..., d), L, B and A (..., d, d), k and log t (..., d)."""
        mu, L, B, A, k, log_t = super().unpack(w)
        L, B, A = filled(L, self.straight.at), filled(B, self.at), filled(A, self.at)
        return mu, L, B, A, k, log_t

    def transform(self, w: Array, eps: Array) -> Array:
        return self.mapped(w, eps)[0]

    def mapped(self, w: Array, eps: Array) -> tuple[Array, Array]:
        """z (..., M, d) and log |det dz / deps| (..., M)."""
        mu, L, B, A, k, log_t = self.unpack(w)
        scale = w[..., self.straight.diag]
        u = _times(L, eps) / scale
        wide, turned = _times(B, u), anp.exp(log_t) * anp.arcsinh(u) + k
        away = anp.exp(wide) * (anp.sinh(turned) - anp.sinh(k)) + _times(A, u**2 - 1)
        stretch = wide + log_t + anp.log(anp.cosh(turned)) - 0.5 * anp.log1p(u**2)
        z = (mu + scale * away)[..., self.back]
        return z, anp.sum(stretch + anp.log(anp.abs(scale)), -1)

    def straightened(self, w: Array, z: Array) -> Array:
        """The base sample (..., M, d) of z: the map undone."""
        mu, L, B, A, k, log_t = self.unpack(w)
        scale = w[..., self.straight.diag]
        away = (z[..., np.array(self.order)] - mu) / scale
        us: list[Array] = []
        for j in range(self.dim):
            u = anp.stack(us, -1) if us else away[..., :0]
            shift = anp.sum(A[..., j, :j] * (u**2 - 1), -1)
            narrow = anp.exp(-anp.sum(B[..., j, :j] * u, -1))
            turned = anp.arcsinh((away[..., j] - shift) * narrow + anp.sinh(k[..., j]))
            us.append(anp.sinh((turned - k[..., j]) * anp.exp(-log_t[..., j])))
        u = anp.stack(us, -1) * scale
        return anp.linalg.solve(L, u[..., None])[..., 0]

    def log_density(self, w: Array, z: Array) -> Array:
        eps = self.straightened(w, z)
        return self.height(eps, self.mapped(w, eps)[1])

    def log_q1(self, draw: Draw) -> Array:
        return self.height(draw.eps, self.mapped(draw.w[..., None, :], draw.eps)[1])

    def mean(self, w: ArrayLike) -> Array:
        """E_q z by draws, (..., d)."""
        return self._many(w).mean(-2)

    def sd(self, w: ArrayLike) -> Array:
        """Standard deviations by draws, (..., d)."""
        return self._many(w).std(-2)

    def _many(self, w):
        return self.sample(w, DRAWS, np.random.default_rng(0))


def _times(matrix, v):
    """matrix v for each row of v, (..., M, d); matrix (d, d), or (..., 1 or M, d, d)."""
    if matrix.ndim > 2 and matrix.shape[-3] == 1:
        matrix = matrix[..., 0, :, :]
    if matrix.ndim < v.ndim + 1:  # one for all rows
        return anp.matmul(v, anp.swapaxes(matrix, -1, -2))
    return anp.matmul(v[..., None, :], anp.swapaxes(matrix, -1, -2))[..., 0, :]
