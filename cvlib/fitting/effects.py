"""Effects of groups, given a fit of the globals: their moments, quantiles and draws.

At a point z of the globals let an effect be u = m + s t, t in units of its nodes. Its density is
that of N(0, 1) times a smooth function, whose coefficients on Hermite's polynomials nodes give:

    phi(t) sum_n c_n He_n(t),    c_n = E He_n(t) / n!,

so that its distribution function is Phi(t) - phi(t) sum over n > 0 of c_n He_(n - 1)(t). Under the
posterior it is the mean of these over z: an answer like any other, with Stein's variates.
Two numbers have coefficients on products He_i He_j; those of t = a t_1 + b t_2, a^2 + b^2 = 1, are
sums of a^i b^j c_ij over i + j = n, for He_n(t) is such a sum of the products.
"""

from math import factorial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy

from ..models.parameters import Named, labels
from . import stein
from .groups import UNSEEN, Grouped, Held, Part, coded, grid
from .lots import Lot, moments
from .table import TAILS, Table

TIMES = 4  # Newton's steps to a quantile
T = np.linspace(-7, 7, 129)  # where a distribution function is turned round
FEW = 8  # groups that choose the order of the variates
CELLS = 2**22  # numbers of a table of distribution functions


class Series(NamedTuple):
    """Laws of one number of every effect: u = m + s t, and coefficients c of t."""

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
    return np.moveaxis(np.polynomial.hermite_e.hermevander(t, n - 1), -1, 0)


def coefficients(model: Grouped, z: np.ndarray, held: Held, part: Part) -> np.ndarray:
    """c of every effect in units of its nodes, (K, B, groups); of two numbers (K, K, B, groups)."""
    x, K = grid(model.nodes, model.k)[0], model.nodes
    log = model.at_nodes(z, held, part)
    share = np.exp(log - log.max(1, keepdims=True))
    each = [hermite(t, K) / np.array([[factorial(n)] for n in range(K)]) for t in x.T]
    basis = each[0] if model.k == 1 else each[0][:, None] * each[1]
    return np.tensordot(basis, share / share.sum(1, keepdims=True), (-1, 1))


def law_of(j: int, c: np.ndarray, held: Held) -> Series:
    """The law of number j of every effect."""
    if j == 0:
        return Series(held.m[0], held.T[0, 0], c if c.ndim == 3 else c[:, 0])
    s = np.hypot(*held.T[1])
    a, b = held.T[1] / s
    each = [sum(a**i * b ** (n - i) * c[i, n - i] for i in range(n + 1)) for n in range(len(c))]
    return Series(held.m[1], s, np.stack(each))


def table(model: Any, name: str, lot: Lot, order: int | None) -> Table:
    """Mean, sd and quantiles of an effect by label, read from weighed points, with their errors."""
    each = {} if model.effects is None else model.effects.each
    if name not in each:
        raise ValueError(f"no effect {name!r}: the model's effects are {', '.join(each) or 'none'}")
    where, shape = model.effects.where[name], each[name].shape
    numbers = range(where.start, where.stop)

    def laws(z, held, part):
        c = coefficients(model, z, held, part)
        return [law_of(j, c, held) for j in numbers]

    parts = []
    for found in model.walked(laws, lot.z):
        whole = (Series(*(np.concatenate(x, -2) for x in zip(*each))) for each in zip(*found))
        parts.append(np.stack([_read(of, lot, order) for of in whole], -1))
    values, errors = np.concatenate(parts, 2).reshape(2, len(TAILS) + 2, -1)
    rows = [row for label in model.labels for row in labels(str(label), shape)]
    return moments(rows, values, errors, {})


def _read(of, lot, order):
    """Mean, sd and quantiles of a `Series`, and errors, (2, 5, groups)."""
    w = lot.w / lot.w.sum()
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
    parts = [UNSEEN] if new else model.parts
    found = [_turned(model, part, points, place.ravel(), rng, new) for part in parts]
    return dict(model.with_effects({}, np.concatenate(found, -1)))


def _turned(model, part, points, place, rng, new):
    """Draws (k, n, groups) at points[place]: distribution functions turned round."""
    n, groups = len(place), new or len(part.first)
    u, U = np.empty((model.k, n, groups)), rng.uniform(size=(model.k, n, groups))
    size = max(1, CELLS // (groups * len(T)))
    for rows, held in model.blocks(points, part):
        c = coefficients(model, points[rows], held, part)
        here = np.flatnonzero((place >= rows.start) & (place < rows.stop))
        for some in np.split(here, range(size, len(here), size)):
            k = place[some] - rows.start
            t = [_inverse(law_of(0, c, held).c[:, k], U[0, some])]
            if model.k == 2:  # given the first
                given = (hermite(t[0], len(c))[:, None] * c[:, :, k]).sum(0)
                t.append(_inverse(given / given[0], U[1, some]))
            u[:, some] = held.m[:, k] + np.einsum("ij...,j...->i...", held.T[:, :, k], t)
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
    code, own = model.code, model.labels
    if groups is not None:
        code, own = coded(groups, data, len(batch[0]))
    known = {label: k for k, label in enumerate(dict.fromkeys([*model.labels, *own]))}
    place = np.array([known[label] for label in own])[code]
    each = drawn(model, z)
    if new := len(known) - model.N:
        unseen = drawn(model, z, new)
        each = {name: np.concatenate([u, unseen[name]], 1) for name, u in each.items()}
    return Named(model.named(z[:, None]), **{name: u[:, place] for name, u in each.items()})
