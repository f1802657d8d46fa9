"""A Gaussian that bends: skewed margins, scales and places that depend on other coordinates.

Coordinates are taken in an order. Let r = diag(L)^-1 L e, e ~ N(0, I): r_j has the slope one in
e_j, and depends on none that comes later. Then

    z_j = mu_j + L_jj [ exp(B_j.r) (sinh(t_j asinh(r_j) + k_j) - sinh(k_j)) + A_j.(r^2 - 1) ],

where row j of B and of A has entries for earlier coordinates alone. B widens (a funnel), A shifts
(a banana), k skews, t sets the weight of the tails (sinh-arcsinh, Jones and Pewsey 2009). The map
is triangular (El Moselhy and Marzouk 2012): its determinant is the product of dz_j / de_j, and it
is undone one coordinate after the other. With A = B = k = log t = 0 it is N(mu, L L^T).

On fixed even draws its ELBO is a smooth function of its weights: the slope is that of log p pulled
back through the map, and that of the map's log-determinant. A climb begins at the Gaussian with few
draws, and goes on with more. Fresh draws judge: what is not better beyond doubt is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd import make_vjp

from ..deadline import deadline
from ..draws import Draw
from ..families.base import Array, ArrayLike
from ..families.gaussian import Gaussian, OfNormal, filled
from ..models.density import Density, Model
from .looks import Weights
from .settings import DEFAULT, Settings
from .strategies import Curvature, climb

EACH = 2  # fixed draws for each weight, at least, in the end
PROMISED, IN_THE_END = 1e-3, 1e-4  # nats that a step must promise, on some of them and on all
MOST, LEAST, WORK = 100, 40, 5000  # steps of a climb: more where weights are few
TURNS = 100  # turns of its slope that a climb remembers
FEW = 40  # fixed draws for each of a few globals of a model with groups
TOLD = 0.1  # from which size on a bend is told
MOVED = 0.1  # standard deviations by which weights move a mean, or an sd, where q is to bend
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
        r = _times(L, eps) / scale
        wide, turned = _times(B, r), anp.exp(log_t) * anp.arcsinh(r) + k
        away = anp.exp(wide) * (anp.sinh(turned) - anp.sinh(k)) + _times(A, r**2 - 1)
        stretch = wide + log_t + anp.log(anp.cosh(turned)) - 0.5 * anp.log1p(r**2)
        z = (mu + scale * away)[..., self.back]
        return z, anp.sum(stretch + anp.log(anp.abs(scale)), -1)

    def straightened(self, w: Array, z: Array) -> Array:
        """The base sample (..., M, d) of z: the map undone."""
        mu, L, B, A, k, log_t = self.unpack(w)
        scale = w[..., self.straight.diag]
        away = (z[..., np.array(self.order)] - mu) / scale
        rs: list[Array] = []
        for j in range(self.dim):
            r = anp.stack(rs, -1) if rs else away[..., :0]
            shift = anp.sum(A[..., j, :j] * (r**2 - 1), -1)
            narrow = anp.exp(-anp.sum(B[..., j, :j] * r, -1))
            turned = anp.arcsinh((away[..., j] - shift) * narrow + anp.sinh(k[..., j]))
            rs.append(anp.sinh((turned - k[..., j]) * anp.exp(-log_t[..., j])))
        r = anp.stack(rs, -1) * scale
        return anp.linalg.solve(L, r[..., None])[..., 0]

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


# From a Gaussian to one that bends ----------------------------------------------------------------


def evened(e: np.ndarray) -> np.ndarray:
    """e (n, d) made to have covariance I, and their opposites, (2 n, d): exact for every cubic."""
    e = e @ np.linalg.inv(np.linalg.cholesky(e.T @ e / len(e))).T
    return np.concatenate([e, -e])


class Bend(NamedTuple):
    """A bent q that was found, and what it gains on fresh draws over the Gaussian."""

    q: Bent
    w: np.ndarray  # (D,)
    gain: float
    error: float  # standard error of the gain
    says: str

    def __str__(self) -> str:
        return f"bent, which gained {self.gain:.2f} ± {2 * self.error:.2f} nats: {self.says}"


def cheap(model: Model, settings: Settings = DEFAULT) -> bool:
    """Does a bend take seconds, and not minutes?"""
    return fixed(model, settings)[-1] * Density(model).size <= settings.cheap


def fixed(model: Model, settings: Settings = DEFAULT) -> tuple[int, ...]:
    """Fixed draws of the three climbs: fewer where effects are integrated, for unknowns are few."""
    if model.effects is None:
        return settings.bend_draws
    most = max(FEW * model.dim, settings.cheap // (4 * Density(model).size))
    return tuple(min(n, most) for n in settings.bend_draws)


def wanted(seen: Weights, settings: Settings = DEFAULT) -> bool:
    """Do weights leave few draws of q, have a heavy tail, or move what q says of a coordinate?"""
    heavy = seen.k_hat > settings.heavy and seen.share.max() * len(seen.log) > settings.big
    if heavy or not seen.effective >= settings.fair:
        return True
    mean, sd = seen.z.mean(0), np.maximum(seen.z.std(0), 1e-300)
    new = seen.share @ seen.z
    spread = np.sqrt(seen.share @ (seen.z - new) ** 2)
    moved = np.maximum(np.abs(new - mean), np.abs(spread - sd)) / sd
    return bool(moved.max() > MOVED)


def bend(
    model: Model, w: np.ndarray, late: Callable = lambda: False, seed: int = 0,
    settings: Settings = DEFAULT,
) -> Bend | None:  # fmt: skip
    """The better of two bends of the Gaussian q_w, if one is better than it beyond doubt."""
    judges, (*few, many) = settings.looks[-1], fixed(model, settings)
    e = np.random.default_rng([seed, 2]).standard_normal((judges, model.dim))
    straight = _logs(model, Gaussian(model.dim), w, e)

    def judged(q, v):
        gain = _logs(model, q, v, e) - straight
        gain = np.where(np.isnan(gain), -np.inf, gain)
        return Bend(q, v, gain.mean(), gain.std() / np.sqrt(judges), _told(model.names, q, v))

    bent = (Bent(model.dim, *order) for order in _orders(model, w, seed, settings))
    climbs, found = [_Climb(model, q, w, settings.ridge) for q in bent], []
    for one in climbs:
        for n in few:
            one.on(max(n, one.q.D), PROMISED, late, seed)
        found.append(judged(one.q, one.w))
    top = climbs[np.argmax([one.gain for one in found])]
    top.on(max(many, EACH * top.q.D), IN_THE_END, late, seed)
    best = max(*found, judged(top.q, top.w), key=lambda one: one.gain)
    return best if best.gain > settings.gain + 3 * best.error else None


def _orders(model, w, seed, settings):
    """Two orders of the coordinates, one the other turned round, and the pairs that bend.

    E[f_jji], the third derivative of f = log p, is not zero where j is wider for larger i (then i
    comes first), and also where the place of i depends on the square of j (then j does).
    """
    straight = Gaussian(model.dim)
    (mu, L), n = straight.unpack(w), fixed(model, settings)[-1]
    sd = straight.sd(w)
    e = evened(np.random.default_rng([seed, n, 1]).standard_normal((n // 2, model.dim)))
    slope = Density(model).slope(mu + e @ L.T)[1]
    fine = np.isfinite(slope).all(1)
    u, G = (e @ L.T / sd)[fine], (slope * sd)[fine]
    X = np.column_stack([np.ones(len(u)), u])
    R = G - X @ np.linalg.lstsq(X, G, rcond=None)[0]
    third = (R * u).T @ u / len(u)  # [j, i]
    noise = np.sqrt(((R * u).T ** 2 @ u**2 / len(u) - third**2) / len(u))
    np.fill_diagonal(third, 0)
    order = np.argsort((third**2).sum(1) - (third**2).sum(0), kind="stable")
    sure = (np.abs(third) > settings.sure * noise) | (model.dim <= settings.pairs)
    later, earlier = np.tril_indices(model.dim, -1)
    for way in (order, order[::-1]):
        asked = (sure | sure.T)[way[later], way[earlier]]
        yield way.tolist(), np.stack([later[asked], earlier[asked]], 1).tolist()


class _Climb:
    """A climb of the weights of a bent q, which goes on with more draws where it has come to.

    Its x is a w in the coordinates of the Gaussian where it began: what it knows of the curvature
    holds on other draws as well.
    """

    def __init__(self, model, q, w, ridge):
        self.density, self.q, self.x, self.ridge = Density(model), q, q.start(), ridge
        self.mu, self.L = q.unpack(q.of_straight(w))[:2]
        self.known = Curvature(TURNS)

    def _weights(self, x):
        q = self.q
        C = anp.reshape(anp.matmul(self.L, q.unpack(x)[1]), -1)[q.straight.flat]
        return anp.concatenate([self.mu + anp.matmul(self.L, x[: q.dim]), C, x[q.straight.D :]])

    def on(self, n, enough, late, seed):
        """To the highest ELBO that is found on n fixed draws."""
        q, diag, g = self.q, self.q.straight.diag, self.q.straight.D
        e = evened(np.random.default_rng([seed, n]).standard_normal((n // 2, q.dim)))

        def mapped(x):
            z, stretch = q.mapped(self._weights(x), e)
            return anp.concatenate([z, stretch[:, None]], 1)

        def elbo(x):
            if not x[diag].min() > 0:
                return -np.inf, x
            pull, both = make_vjp(mapped)(x)
            value, slope = self.density.slope(both[:, :-1])
            height = (value + both[:, -1]).mean() - self.ridge / 2 * (x[g:] ** 2).sum()
            back = pull(np.column_stack([slope, np.ones(len(e))]) / len(e))
            back[g:] -= self.ridge * x[g:]
            return height if np.isfinite(back).all() else -np.inf, back

        steps = int(np.clip(WORK // q.D, LEAST, MOST))
        with np.errstate(all="ignore"), deadline.until(late):
            here, self.known = climb(elbo, self.x, enough, steps, self.known)
        self.x, self.w = here.z, self._weights(here.z)


def _logs(model, q, w, e):
    """log p(x, z) - log q_w(z) at the draws of q_w that e makes."""
    draw = Draw(model, q, w, e, None)
    return Density(model).value(draw.z) - draw.of("log_q1")


def _told(names, q, v):
    """The largest bends in words."""
    *_, B, A, k, _ = q.unpack(v)
    name = [names[j] for j in q.order]
    said = {}
    for j, i in q.pairs:
        more = "larger" if B[j, i] > 0 else "smaller"
        said[f"{name[j]} is wider where {name[i]} is {more}"] = abs(B[j, i])
        where = "larger" if A[j, i] > 0 else "smaller"
        said[f"{name[j]} is {where} where {name[i]} is far from its middle"] = abs(A[j, i])
    for j in range(q.dim):
        said[f"{name[j]} leans to the {'right' if k[j] > 0 else 'left'}"] = abs(k[j])
    top = sorted((text for text in said if said[text] > TOLD), key=lambda text: -said[text])[:3]
    return ", ".join(top) or "a little everywhere"
