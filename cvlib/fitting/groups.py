"""Models with groups: effects that are integrated out, by nodes that follow each group's mode.

Given the globals z the effects u of the groups are independent, so that

    log p(y, z) = log p(z) + sum_g log I_g(z),    I_g = integral of exp l_g(u; z) du,

l_g the log-likelihood of the rows of group g plus log p(u | z). Let m be the mode of l_g and T T^T
the inverse of its curvature there; nodes x and weights w are those of Gauss and Hermite:

    I_g = |T| (2 pi)^(k/2) sum over nodes of w exp(l_g(m + T x; z) + |x|^2 / 2),    u has k numbers.

The integral does not depend on where its nodes lie: m and T are held when it is differentiated.
Arrays of effects are (k, ..., groups), so that sums over rows run along the last axis.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple
from zlib import crc32

import autograd.numpy as anp
import numpy as np
from autograd import make_vjp
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from ..arguments import whole
from ..deadline import deadline
from ..models import checks
from ..models.density import GaussianPrior, Model
from ..models.parameters import Named, Parameters, real
from ..models.passes import wide
from ..special import LOG_2PI, hess_times

MANY, WORK = 2**13, 2**16  # rows of a part; numbers of an array on its way, which a cache holds
EACH = 6  # numbers that a row makes at each node, Newton's steps counted
NEAR, TRIES = 1e-3, 80  # sds that the last of Newton's steps may have; steps at most
LIGHT = 1e-9  # a node in two dimensions that weighs less is left out
FEWEST = 5  # nodes: with fewer, which are held, slopes are wrong
MOVED = 0.05  # nats by which twice the nodes, which answer, may move log p(y, z)
FAR = np.linspace(-9, 9, 401)  # sinh of it: sds from the mode at which log_effect is integrated


class Part(NamedTuple):
    """Some groups and their rows; groups that no row was seen of have no batch."""

    batch: tuple | None  # rows of the data, group after group
    row: np.ndarray  # (n,) the group of each row, within the part
    first: np.ndarray  # (groups,) the first row of each group


UNSEEN = Part(None, np.zeros(1, int), np.zeros(1, int))


class Held(NamedTuple):
    """Where nodes lie at points z (B, d)."""

    m: np.ndarray  # (k, B, groups)
    T: np.ndarray  # (k, k, B, groups), lower triangular

    def nodes(self, x: np.ndarray) -> np.ndarray:
        """u (k, B, K, groups) at nodes x (K, k)."""
        return self.m[:, :, None] + np.einsum("ijbg,nj->ibng", self.T, x)


class Grouped(Model):
    """A `Model` whose data points are groups of rows, with effects that are integrated out."""

    rows = False  # its data points are groups

    def __init__(
        self, log_lik, log_prior, data, dim, name, parameters, groups, effects, log_effect, nodes
    ):  # what `Model` hands on
        self.effects, self.nodes = _effects(effects, parameters), whole("nodes", nodes, FEWEST)
        every = {**dict(parameters or {}), **dict(effects or {})}
        effect = _tried(log_effect, Parameters(every))
        self.k, self.of_row, self.of_effect = self.effects.dim, log_lik, effect
        # with the effects as parameters everything is tried that functions of a model must do
        both = partial(_both, log_prior, log_effect, [*every])
        self.inner = Model(log_lik, both, data, parameters=every)
        self.code, self.labels = coded(groups, data, self.inner.N)
        self.parts = [*_parts(self.inner.data, self.code)]
        index, name = np.arange(len(self.labels)), name or "model with groups"
        super().__init__(log_lik, log_prior, index, dim, name, parameters=parameters)

    # The integral

    def heights(self, p: Named, u: np.ndarray, part: Part) -> np.ndarray:
        """l_g, (..., groups), at effects u (k, ..., groups)."""
        found = self.of_effect(self.with_effects(p, u))
        if part.batch is None:
            return found
        at_rows = self.with_effects(p, spread(u, part.row, part.first))
        return found + total(self.of_row(at_rows, part.batch), part.row, part.first)

    def with_effects(self, p: Mapping, u: np.ndarray) -> Named:
        """The globals, and effects u (k, ...) by name, (..., *shape)."""
        last, each = anp.moveaxis(u, 0, -1), self.effects.each
        own = {x: last[..., i] if len(each) > 1 else last for x, i in self.effects.where.items()}
        shaped = {x: anp.reshape(a, (*u.shape[1:], *each[x].shape)) for x, a in own.items()}
        return Named(p, **shaped)

    def at_nodes(self, z: np.ndarray, held: Held, part: Part) -> np.ndarray:
        """Logarithms of what nodes add to I_g / (|T| (2 pi)^(k/2)), (B, K, groups)."""
        x, log_w = grid(self.nodes, self.k)
        heights = self.heights(self.named(z[:, None, None]), held.nodes(x), part)
        return heights + (log_w + (x**2).sum(1) / 2)[:, None]

    def log_integrals(self, z: np.ndarray, held: Held, part: Part) -> np.ndarray:
        """log I_g at points z (B, d), (B, groups)."""
        each = self.at_nodes(z, held, part)
        most = np.max(getval(each), 1)
        size = sum(np.log(held.T[j, j]) for j in range(self.k)) + self.k / 2 * LOG_2PI
        return most + anp.log(anp.sum(anp.exp(each - most[:, None]), 1)) + size

    def held(self, z: np.ndarray, part: Part, start: Any = 0.0) -> Held:
        """Modes and their widths by Newton's steps, which begin at `start` (k, 1, groups).

        A step that lowers l_g is tried again at a quarter. Draws whose modes are all found rest.
        """
        f = lambda rows, u: curved(lambda u: self.heights(self.named(z[rows, None]), u, part), u)
        rows, u = np.arange(len(z)), np.zeros((self.k, len(z), len(part.first))) + start
        value, slope, T = f(rows, u)
        if (lost := ~np.isfinite(value)).any():
            u = np.where(lost, 0.0, u)
            value, slope, T = f(rows, u)
        step, size = newton(slope, T)
        for _ in range(TRIES):
            rows = rows[(size[rows] > NEAR).any(-1)]
            if not len(rows):
                break
            tried = u[:, rows] + step[:, rows]
            new_value, new_slope, new_T = f(rows, tried)
            better = new_value >= value[rows] - 1e-9 * (1 + np.abs(value[rows]))
            new_step, new_size = newton(new_slope, new_T)
            for old, new in (u, tried), (value, new_value), (T, new_T):
                old[..., rows, :] = np.where(better, new, old[..., rows, :])
            step[:, rows] = np.where(better, new_step, step[:, rows] / 4)
            size[rows] = np.where(better, new_size, size[rows] / 4)
        return Held(np.where(size <= NEAR, u + step, u), T)

    def blocks(self, z: np.ndarray, part: Part) -> Iterator[tuple[slice, Held]]:
        """A few of the points z (B, d) after the other, and where their nodes lie.

        The search for modes begins at those of the point in the middle.
        """
        each, K = max(1, len(part.row)), len(grid(self.nodes, self.k)[0])
        many, few = (max(1, WORK // (each * n)) for n in (1, K))
        middle = self.held(np.median(z, 0)[None], part).m if len(z) > 1 else 0.0
        for first in range(0, len(z), many):
            held = self.held(z[first : first + many], part, middle)
            for i in range(0, held.m.shape[1], few):
                deadline.check()
                here = Held(held.m[:, i : i + few], held.T[:, :, i : i + few])
                yield slice(first + i, first + i + here.m.shape[1]), here

    def walked(self, f: Callable, z: np.ndarray) -> Iterator[list]:
        """f(z, held, part) at a few of the points z (B, d) at a time, a list for each part."""
        for part in self.parts:
            yield [f(z[rows], held, part) for rows, held in self.blocks(getval(z), part)]

    # What fits ask a model for

    def totals(self, z, order, factor=None, mean=False):
        """log p(y | z), slope (order 1) and Hessian (2) at z (..., d), effects integrated out."""
        walked = self.walked(partial(self._summed, order), anp.reshape(z, (-1, self.dim)))
        parts = [[anp.concatenate(x) for x in zip(*each)] for each in walked]
        sums = [sum(x) for x in zip(*parts)]
        return tuple(anp.reshape(x, (*z.shape[:-1], *x.shape[1:])) for x in sums)

    def _summed(self, order, z, held, part):
        f = lambda z: anp.sum(self.log_integrals(z, held, part), -1)
        if order == 0:
            return (f(z),)
        back, value = make_vjp(f)(z)
        slope = back(np.ones(len(z)))
        if order == 1:
            return value, slope
        columns = [hess_times(f, z, e + 0 * z) for e in np.eye(self.dim)]
        return value, slope, np.stack(columns, -1)

    def pointwise(self, z: np.ndarray) -> np.ndarray:
        """The log-likelihood of every group, (..., d) -> (..., groups)."""
        walked = self.walked(self.log_integrals, anp.reshape(z, (-1, self.dim)))
        found = anp.concatenate([anp.concatenate(each) for each in walked], -1)
        return anp.reshape(found, (*z.shape[:-1], self.N))

    def log_lik(self, z: np.ndarray, batch: tuple) -> np.ndarray:
        """That of every group, z (..., 1, d) -> (..., groups); a row has none of its own."""
        if batch[0].shape != (self.N,) or z.shape[-2] != 1:
            self.take(batch[0])
        return self.pointwise(z[..., 0, :])

    @property
    def all_rows(self) -> tuple[np.ndarray, ...]:
        """Of all arrays in `data`, as they were given."""
        return self.inner.data

    def take(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        """Refused: rows of a group hang together by its effect."""
        raise ValueError(
            "a model with groups has no rows to subsample, for those of a group share an effect: "
            "take all data, subsample=False, or cv.fit"
        )

    @property
    def row_size(self) -> int:
        """Numbers that one group makes of one z: its rows at all nodes, and in Newton's steps."""
        return len(self.code) * EACH * len(grid(self.nodes, self.k)[0]) // self.N

    @cached_property
    def checksum(self) -> int:
        """Of the data, and of the groups that they are in."""
        labels = repr([*map(str, self.labels)]).encode()
        return crc32(self.code.tobytes(), crc32(labels, self.inner.checksum))

    @property
    def mark(self) -> float:
        """That of the model in which effects are parameters."""
        return self.inner.mark

    def doubts(self, z: np.ndarray) -> list[str]:
        """A sentence, if twice the nodes move log p(y, z) at points z (n, d)."""
        twice = copy(self)
        twice.nodes = 2 * self.nodes
        change = twice.totals(z, 0)[0] - self.totals(z, 0)[0]
        if np.hypot(change.std(), change.mean()) <= MOVED:
            return []
        return [
            f"{self.nodes} nodes are too few to integrate the effects of every group: twice as "
            f"many move log p(y, z). Make the model with nodes={2 * self.nodes}, and compare"
        ]

    def _check_functions(self):
        """log_effect is a log density of the effects, at a few z; the rest `inner` has tried."""
        z = checks.points_near_zero(self.dim)
        held = self.held(z, UNSEEN)
        x = np.stack(np.meshgrid(*[np.sinh(FAR)] * self.k), -1).reshape(-1, self.k)
        step = np.prod((FAR[1] - FAR[0]) * np.sqrt(1 + x**2), 1)  # (K,)
        size = np.prod([held.T[j, j] for j in range(self.k)], 0)  # (3, 1)
        with np.errstate(all="ignore"):
            density = np.exp(self.heights(self.named(z[:, None, None]), held.nodes(x), UNSEEN))
        found = (density[..., 0] @ step) * size[:, 0]
        if not (np.abs(found - 1) < 1e-3).all():
            raise ValueError(
                f"log_effect is no normalised density of the effects: its exponential integrates "
                f"to {found[0]:.3g} where z = {z[0].round(2)}. Give it with all of its constants, "
                "-0.5 * (p.u / p.tau) ** 2 - np.log(p.tau) - 0.5 * np.log(2 * np.pi) for N(0, tau)"
            )


# Newton's steps -----------------------------------------------------------------------------------


def curved(f: Callable, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f (B, groups), its slope (k, B, groups) and T, at u (k, B, groups): each entry on its own."""
    values = []

    def slope(u):
        back, value = make_vjp(f)(u)
        values.append(getval(value))
        return back(np.ones(np.shape(value)))

    with np.errstate(all="ignore"):
        turn, g = make_vjp(slope)(u)
        units = np.eye(len(u))[:, :, None, None] + 0 * u
        return values[-1], g, roots(-np.stack([turn(e) for e in units]))


def roots(P: np.ndarray) -> np.ndarray:
    """T (k, k, ...), lower triangular, with T T^T = P^-1; P is made positive where it is not."""
    if len(P) == 1:
        return 1 / np.sqrt(np.where(P > 0, P, np.abs(P) + 1e-300))
    (a, b), (_, c) = P
    middle, apart = (a + c) / 2, np.hypot((a - c) / 2, b)
    more = np.maximum(1e-8 * (np.abs(middle) + apart) + 1e-300 - (middle - apart), 0.0)
    a, c = a + more, c + more
    det = a * c - b**2
    first = np.sqrt(c / det)
    return np.stack([[first, 0 * a], [-b / det / first, 1 / np.sqrt(c)]])


def newton(slope: np.ndarray, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step T T^T slope, and its length in units of T."""
    along = np.einsum("ij...,i...->j...", T, slope)
    return np.einsum("ij...,j...->i...", T, along), np.sqrt((along**2).sum(0))


@lru_cache
def grid(nodes: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (K, k) and the logarithms of their weights (K,), those of N(0, I)."""
    along, weight = np.polynomial.hermite_e.hermegauss(nodes)
    x = np.stack(np.meshgrid(*[along] * k, indexing="ij"), -1).reshape(-1, k)
    w = np.prod(np.meshgrid(*[weight / weight.sum()] * k, indexing="ij"), 0).ravel()
    heavy = (w > LIGHT) | (k == 1)
    return x[heavy], np.log(w[heavy])


# Sums over the rows of a group, and their slopes ------------------------------------------------


@primitive
def total(x: np.ndarray, row: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Sums over the rows of each group, (..., rows) -> (..., groups)."""
    return np.add.reduceat(x, first, -1)


@primitive
def spread(x: np.ndarray, row: np.ndarray, first: np.ndarray) -> np.ndarray:
    """What each row has of its group, (..., groups) -> (..., rows)."""
    return np.take(x, row, -1)


defvjp(total, lambda ans, x, row, first: lambda g: spread(g, row, first), None, None)
defvjp(spread, lambda ans, x, row, first: lambda g: total(g, row, first), None, None)


# What a reader gives ------------------------------------------------------------------------------


def _effects(effects, parameters):
    """Names and shapes of the effects, as `Parameters`."""
    if not (isinstance(parameters, Mapping) and isinstance(effects, Mapping)):
        raise ValueError(
            "a model with groups declares its globals and its effects by name: parameters="
            '{"b": (), "tau": cv.positive}, effects={"u": ()}, say, or {"u": 2}'
        )
    found = Parameters(effects)
    if found.dim > 2 or any(c.map is not real.map for c in found.each.values()):
        raise ValueError(
            f"effects={dict(effects)!r}: the effect of a group is one real number, (), or two, "
            "for more cannot be integrated by nodes. Declare exp of it in log_lik where it is "
            "positive, and as a parameter what has more numbers"
        )
    if twice := [name for name in found.each if name in parameters]:
        raise ValueError(f"{twice[0]!r} is declared as a parameter and as an effect: rename one")
    return found


def _tried(log_effect, every):
    """log_effect is a function of p alone that autograd can differentiate."""
    if not callable(log_effect):
        raise ValueError(
            f"log_effect={log_effect!r} is no function: give the log density of an effect, "
            "lambda p: -0.5 * (p.u / p.tau) ** 2 - np.log(p.tau) - 0.5 * np.log(2 * np.pi)"
        )
    shapes = [((3,), (1,)), ((2, 3, 4), (1,))]
    points = checks.points_near_zero(every.dim)
    checks.rows("log_effect", lambda z, j: log_effect(every.named(z)), points, 1, shapes)
    return log_effect


def _both(log_prior, log_effect, names, p):
    """The log prior of globals and effects; that a GaussianPrior takes z, it knows every name."""
    if isinstance(log_prior, GaussianPrior):
        return log_effect(p) + 0 * sum(anp.sum(p[name]) for name in names)
    return log_prior(p) + log_effect(p)


def coded(groups: Any, data: Any, n: int) -> tuple[np.ndarray, list]:
    """The number of the group of each row, (n,), and the labels of the groups."""
    each = data if isinstance(data, tuple) else (data,)
    checks.same_labels((*each, groups))
    given = groups.to_numpy() if hasattr(groups, "to_numpy") else groups
    listed = given.tolist() if isinstance(given, np.ndarray) else [*given]
    if len(listed) != n:
        raise ValueError(f"groups has {len(listed)} labels for {n} rows: give one a row")
    try:
        missing = [i for i, label in enumerate(listed) if label is None or label != label]
        labels = [*dict.fromkeys(listed)]
    except (TypeError, ValueError):
        raise ValueError("groups: a label is a number, a text or a tuple, one a row") from None
    if missing:
        raise ValueError(f"groups: the label of row {missing[0]} is missing: drop the row")
    with suppress(TypeError):  # of different kinds: in the order in which they come
        labels.sort()
    place = {label: k for k, label in enumerate(labels)}
    return np.array([place[label] for label in listed]), labels


def _parts(data: tuple, code: np.ndarray) -> Iterator[Part]:
    """Parts of the groups, of about as many rows each."""
    order, counts = np.argsort(code, kind="stable"), np.bincount(code)
    ends = np.cumsum(counts)
    lot = (ends - 1) // MANY  # (groups,) a large group is a part of its own, nearly
    for first in np.flatnonzero(np.diff(lot, prepend=-1)):
        groups = slice(first, first + int((lot == lot[first]).sum()))
        rows = order[ends[first] - counts[first] : ends[groups.stop - 1]]
        row = np.repeat(np.arange(groups.stop - first), counts[groups])
        starts = (ends - counts)[groups] - (ends - counts)[first]
        yield Part(tuple(wide(a[rows]) for a in data), row, starts)
