"""Effects of groups, given a fit of the globals: their moments, quantiles and draws.

At a point z of the globals let an effect be u = m + s t, t in units of its nodes. Its density is
that of N(0, 1) times a smooth function, whose coefficients on Hermite's polynomials nodes give:

    phi(t) sum_n c_n He_n(t),    c_n = E He_n(t) / n!,

so that its distribution function is Phi(t) - phi(t) sum over n > 0 of c_n He_(n - 1)(t). Under the
posterior it is the mean of these over z: an answer like any other, with Stein's variates.
"""

from math import factorial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy

from ..models.parameters import Named
from . import stein
from .groups import Grouped, Held, Part, coded, grid
from .lots import Lot
from .table import Table

TAILS = {"5 %": 0.05, "50 %": 0.5, "95 %": 0.95}
TIMES = 4  # Newton's steps to a quantile
T = np.linspace(-7, 7, 129)  # where a distribution function is turned round
FEW = 8  # groups that choose the order of the variates
CELLS = 2**22  # numbers of a table of distribution functions


class Series(NamedTuple):
    """Laws of one number of every effect: u = m + s t, and c for t."""

    m: np.ndarray  # (B, groups)
    s: np.ndarray  # (B, groups)
    c: np.ndarray  # (K, B, groups)

    def law(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution function and density at u (groups,), (B, groups)."""
        t = (u - self.m) / self.s
        He = hermite(t, len(self.c))
        phi = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
        below = scipy.special.ndtr(t) - phi * (self.c[1:] * He[:-1]).sum(0)
        return below, phi * (self.c * He).sum(0) / self.s

    def moments(self, about: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """E u and E (u - about)^2, (B, groups)."""
        mean = self.m + self.s * self.c[1]
        return mean, (mean - about) ** 2 + self.s**2 * (1 + 2 * self.c[2] - self.c[1] ** 2)


def hermite(t: np.ndarray, n: int) -> np.ndarray:
    """He_0 to He_(n - 1) at t, (n, ...)."""
    He = [np.ones_like(t), t]
    for k in range(1, n - 1):
        He.append(t * He[k] - k * He[k - 1])
    return np.stack(He[:n])


def series(model: Grouped, part: Part, z: np.ndarray, held: Held, j: int = 0) -> tuple:
    """m and s of number j of every effect, and c (K, B, groups); of both numbers (K, K, ...)."""
    x, log_w = grid(model.nodes, 1)
    K, k, m, S = len(x), model.k, held.m, held.T
    if j:  # the other number first
        first = np.hypot(S[1, 0], S[1, 1])
        turn, size = S[0, 0] * S[1, 0] / first, S[0, 0] * S[1, 1]
        m, S = m[::-1], np.stack([[first, 0 * first], [turn, size / first]])
    both = np.stack(np.meshgrid(*[x[:, 0]] * k, indexing="ij"), -1).reshape(-1, k)
    log = np.sum(np.meshgrid(*[log_w] * k, indexing="ij"), 0).ravel() + (both**2).sum(1) / 2
    u = Held(m, S).nodes(both)
    log = model.heights(model.named(z[:, None, None]), u[::-1] if j else u, part) + log[:, None]
    share = np.exp(log - log.max(1, keepdims=True))
    share = (share / share.sum(1, keepdims=True)).reshape(len(z), *[K] * k, -1)
    basis = hermite(x[:, 0], K) / np.array([[factorial(n)] for n in range(K)])  # (n, K)
    c = np.einsum("nk,bk...->nb...", basis, share)
    return m[0], S[0, 0], c if k == 1 else np.einsum("lk,nbkg->nlbg", basis, c)


def table(
    model: Any, name: str, lot: Lot, order: int | None, head: str = "", says: tuple[str, ...] = ()
) -> Table:
    """Mean, sd and quantiles of an effect by label, read from weighed points, with their errors."""
    if model.effects is None or name not in model.effects.each:
        known = "none" if model.effects is None else ", ".join(model.effects.each)
        raise ValueError(f"no effect {name!r}: the model's effects are {known}")
    where, shape = model.effects.where[name], model.effects.each[name].shape
    parts = []
    for j in range(where.start, where.stop):
        found = [_of_part(model, part, lot, order, j) for part in model.parts]
        parts.append(np.concatenate(found, -1))  # (columns and errors, groups)
    each = np.stack(parts, -1).reshape(2, len(TAILS) + 2, -1)
    ends = [f"[{i}]" for i in range(len(parts))] if shape else [""]
    rows = [f"{label}{end}" for label in model.labels for end in ends]
    columns = dict(zip(("mean", "sd", *TAILS), each[0]))
    errors = {f"error of {column}": x for column, x in zip(columns, each[1])}
    return Table(rows, columns | errors, dict(zip(columns, errors)), head, says, tuple(errors))


def _of_part(model, part, lot, order, j):
    """Mean, sd and quantiles of number j of the effects of some groups, and errors, (2, 5, G)."""

    def ask(z, held):
        m, s, c = series(model, part, z, held, j)
        return m, s, np.moveaxis(c if model.k == 1 else c[:, 0], 0, 1)

    z = np.where(lot.w[:, None] > 0, lot.z, lot.z[lot.w.argmax()])  # none that is far out
    m, s, c = model.blocks(z, part, ask)
    of, w = Series(m, s, np.moveaxis(c, 1, 0)), lot.w / lot.w.sum()
    mean, mean_error = _answer(of.moments()[0], lot, order)
    square, error = _answer(of.moments(mean)[1], lot, order)
    sd = np.sqrt(square)
    found = [(mean, mean_error), (sd, error / (2 * sd))]
    for p in TAILS.values():
        at = scipy.special.ndtri(p)
        u = mean + sd * at
        for _ in range(TIMES):  # in the scale in which a normal law is a line
            below, density = (w @ x for x in of.law(u))
            seen = scipy.special.ndtri(np.clip(below, 1e-6, 1 - 1e-6))
            slope = density * np.sqrt(2 * np.pi) * np.exp(seen**2 / 2)
            u = u + np.clip((at - seen) / np.maximum(slope, 1e-300), -sd, sd)
        below, density = of.law(u)
        (below, error), density = _answer(below, lot, order), np.maximum(w @ density, 1e-300)
        found.append((u + np.clip((p - below) / density, -sd, sd), error / density))
    return np.array(found).swapaxes(0, 1)


def _answer(Y, lot, order):
    """Posterior means of Y (n, groups) and their errors; a few of them choose the variates."""
    at = lot.drawn(Y[:, :: max(1, Y.shape[1] // FEW)])
    order = stein.expect(at, order).order
    variates = stein.stein(*stein.standardised(at.z, at.score, at.w), order)
    found = stein.intercept(Y, variates, at.w, at.block)
    return found.value, found.se


# Draws --------------------------------------------------------------------------------------------


def drawn(model: Any, z: np.ndarray, new: int = 0) -> dict[str, np.ndarray]:
    """A draw of every effect at each of the points z (n, d), {name: (n, groups, *shape)}.

    With `new` those of so many groups that the model has not seen. The same points have the same
    effects whenever they are asked for.
    """
    rng = np.random.default_rng(crc32(np.ascontiguousarray(z).tobytes()))
    points, place = np.unique(z, axis=0, return_inverse=True)
    unseen = Part(None, np.zeros(1, int), np.zeros(1, int))
    parts = [unseen] if new else model.parts
    found = [_turned(model, part, points, place.ravel(), rng, new) for part in parts]
    return dict(model.with_effects({}, np.concatenate(found, -1)))


def _turned(model, part, points, place, rng, new):
    """Draws (k, n, groups) at points[place]: distribution functions turned round."""
    n, groups = len(place), new or len(part.first)
    u, U = np.empty((model.k, n, groups)), rng.uniform(size=(model.k, n, groups))
    first = 0

    def ask(z, held):
        nonlocal first
        m, _, c = series(model, part, z, held)
        here = np.flatnonzero((place >= first) & (place < first + len(z)))
        size = max(1, CELLS // (groups * len(T)))
        for rows in np.array_split(here, -(-len(here) // size)) if len(here) else []:
            k = place[rows] - first
            if model.k == 1:
                t = _inverse(c[:, k], U[0, rows])[None]
            else:
                one = _inverse(c[:, 0, k], U[0, rows])
                given = (hermite(one, len(c))[:, None] * c[:, :, k]).sum(0)
                t = np.stack([one, _inverse(given / given[0], U[1, rows])])
            u[:, rows] = held.m[:, k] + np.einsum("ij...,j...->i...", held.T[:, :, k], t)
        first += len(z)
        return (z,)

    model.blocks(points, part, ask)
    return u


def _inverse(c, U):
    """t at which the distribution function of c (K, n, groups) is U (n, groups)."""
    phi = np.exp(-(T**2) / 2) / np.sqrt(2 * np.pi)
    below = np.tensordot(-phi * hermite(T, len(c))[:-1], c[1:], (0, 0))  # (T, n, groups)
    below = np.maximum.accumulate(below + scipy.special.ndtr(T)[:, None, None])
    k = np.clip((below < U).sum(0), 1, len(T) - 1)
    pick = lambda k: np.take_along_axis(np.broadcast_to(below, (len(T), *U.shape)), k[None], 0)[0]
    low, high = pick(k - 1), pick(k)
    share = np.clip((U - low) / np.maximum(high - low, 1e-300), 0, 1)
    return T[k - 1] + share * (T[1] - T[0])


def at_rows(model: Any, z: np.ndarray, batch: tuple, data: Any = None, groups: Any = None) -> Any:
    """What a model's functions take for z (n, d) and a batch: with the effects of its rows."""
    if model.effects is None:
        if groups is not None:
            raise ValueError("predict: groups= is for a model with groups")
        return model.given(z[:, None])
    if (data is None) != (groups is None):
        raise ValueError("predict: new data of a model with groups need groups=, a label a row")
    if groups is None:
        code, labels = model.code, model.labels
    else:
        code, labels = coded(groups, data, len(batch[0]))
    known = {label: k for k, label in enumerate(model.labels)}
    new = [label for label in labels if label not in known]
    known |= {label: len(known) + k for k, label in enumerate(new)}
    place = np.array([known[label] for label in labels])[code]
    each = drawn(model, z)
    if new:
        unseen = drawn(model, z, len(new))
        each = {name: np.concatenate([u, unseen[name]], 1) for name, u in each.items()}
    return Named(model.named(z[:, None]), **{name: u[:, place] for name, u in each.items()})
