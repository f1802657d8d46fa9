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
NEAR, TRIES = 1e-6, 80  # sds that the last of Newton's steps may have; steps at most
LIGHT = 1e-7  # a node in two dimensions that weighs less is left out
MOVED = 0.05  # nats by which twice the nodes may move log p(y, z)
FAR = np.linspace(-9, 9, 401)  # sinh of it: sds from the mode at which log_effect is integrated


class Part(NamedTuple):
    """Some groups and their rows; groups that no row was seen of have no batch."""

    batch: tuple | None  # rows of the data, group after group
    row: np.ndarray  # (n,) the group of each row, within the part
    first: np.ndarray  # (groups,) the first row of each group
    key: int = -1


class Held(NamedTuple):
    """Where nodes lie at points z (B, d)."""

    m: np.ndarray  # (k, B, groups)
    T: np.ndarray  # (k, k, B, groups), lower triangular

    def nodes(self, x: np.ndarray) -> np.ndarray:
        """u (k, B, K, groups) at nodes x (K, k)."""
        away = (self.T[:, j, :, None] * x[:, j, None] for j in range(x.shape[1]))
        return sum(away, self.m[:, :, None])


class Grouped(Model):
    """A `Model` whose data points are groups of rows, with effects that are integrated out."""

    rows = False  # its data points are groups

    def __init__(
        self, log_lik: Callable, log_prior: Callable, data: Any, dim: int | None = None,
        name: str | None = None, *, parameters: Mapping[str, Any] | None = None,
        groups: Any = None, effects: Mapping[str, Any] | None = None,
        log_effect: Callable | None = None, nodes: int = 11,
    ) -> None:  # fmt: skip
        self.effects, self.nodes = _effects(effects, parameters), whole("nodes", nodes)
        every = {**dict(parameters or {}), **dict(effects or {})}
        effect = _tried(log_effect, Parameters(every))
        self.k, self.of_row, self.of_effect = self.effects.dim, log_lik, effect
        # with the effects as parameters everything is tried that functions of a model must do
        both = partial(_both, log_prior, log_effect, [*every])
        self.kept = Model(log_lik, both, data, parameters=every).data
        code, self.labels = coded(groups, data, len(self.kept[0]))
        self.code = code
        self.parts = [*_parts(self.kept, code)]
        self.seen: dict = {}  # by part: how its modes moved with z
        index = np.arange(len(self.labels))
        name = name or "model with groups"
        super().__init__(log_lik, log_prior, index, dim, name, parameters=parameters)
        self._check_normalised()

    def _check_functions(self):
        """Done, by the model with effects as parameters."""

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
        if len(self.effects.each) == 2:
            return Named(p, **{name: entry(u, j) for j, name in enumerate(self.effects.each)})
        ((name, kind),) = self.effects.each.items()
        return Named(p, **{name: anp.moveaxis(u, 0, -1) if kind.shape else entry(u, 0)})

    def log_integrals(self, z: np.ndarray, held: Held, part: Part) -> np.ndarray:
        """log I_g at points z (B, d), (B, groups)."""
        x, log_w = grid(self.nodes, self.k)
        p = self.named(z[:, None, None])  # (B, 1, 1, *shape)
        each = self.heights(p, held.nodes(x), part) + (log_w + (x**2).sum(1) / 2)[:, None]
        most = np.max(getval(each), 1)
        size = sum(np.log(held.T[j, j]) for j in range(self.k)) + self.k / 2 * LOG_2PI
        return most + anp.log(anp.sum(anp.exp(each - most[:, None]), 1)) + size

    def held(self, z: np.ndarray, part: Part) -> Held:
        """Modes and their widths by Newton's steps, which begin where the last modes point to.

        A step that lowers l_g is tried again at a quarter. Draws whose modes are all found rest.
        """
        f = lambda rows, u: curved(lambda u: self.heights(self.named(z[rows, None]), u, part), u)
        rows = np.arange(len(z))
        u = self._start(z, part)
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
        u = np.where(size <= NEAR, u + step, u)
        self._see(z, u, part)
        return Held(u, T)

    def _start(self, z, part):
        if part.key not in self.seen:
            return np.zeros((self.k, len(z), len(part.first)))
        centre, m, turn = self.seen[part.key]
        return (m + (z - centre) @ turn).reshape(len(z), self.k, -1).swapaxes(0, 1).copy()

    def _see(self, z, u, part):
        """Modes as a linear function of z, but those far out: centre, mean (k groups,) and turn."""
        away = np.abs(z - np.median(z, 0))
        near = (away <= 5 * np.median(away, 0)).all(-1)
        if part.batch is None or not near.any():
            return
        z, flat = z[near], u[:, near].swapaxes(0, 1).reshape(near.sum(), -1)
        centre, m = z.mean(0), flat.mean(0)
        if len(z) >= self.dim + 2:
            turn = np.linalg.pinv(z - centre) @ (flat - m)
        else:
            turn = self.seen.get(part.key, (0, 0, np.zeros((self.dim, len(m)))))[2]
        self.seen[part.key] = centre, m, turn

    def blocks(self, z: np.ndarray, part: Part, ask: Callable) -> tuple:
        """ask(z, held) for a few of the points z (B, d) at a time, its arrays (B, ...) joined."""
        each, found = max(1, len(part.row)), []
        many, few = (max(1, WORK // (each * n)) for n in (1, len(grid(self.nodes, self.k)[0])))
        for first in range(0, len(z), many):
            some = z[first : first + many]
            held = self.held(getval(some), part)
            for i in range(0, len(some), few):
                deadline.check()
                here = Held(held.m[:, i : i + few], held.T[:, :, i : i + few])
                found.append(ask(some[i : i + few], here))
        return tuple(anp.concatenate(x) for x in zip(*found))

    # What fits ask a model for

    def totals(
        self, z: np.ndarray, order: int, factor: np.ndarray | None = None, mean: bool = False
    ) -> tuple:
        """log p(y | z), slope (order 1) and Hessian (2) at z (..., d), effects integrated out."""
        flat, found = anp.reshape(z, (-1, self.dim)), []
        for part in self.parts:
            found.append(self.blocks(flat, part, partial(self._part, part, order)))
        sums = [sum(x) for x in zip(*found)]
        return tuple(anp.reshape(x, (*z.shape[:-1], *x.shape[1:])) for x in sums)

    def _part(self, part, order, z, held):
        f = lambda z: anp.sum(self.log_integrals(z, held, part), -1)
        if order == 0:
            return (f(z),)
        back, value = make_vjp(f)(z)
        slope = back(np.ones(len(z)))
        if order == 1:
            return value, slope
        d, rows = self.dim, []
        for e in np.eye(d):
            rows.append(hess_times(f, z, np.broadcast_to(e, z.shape)))
        return value, slope, np.stack(rows, -1)

    def pointwise(self, z: np.ndarray) -> np.ndarray:
        """The log-likelihood of every group, (..., d) -> (..., groups)."""
        flat, found = anp.reshape(z, (-1, self.dim)), list[Any]()
        for part in self.parts:
            ask = lambda z, held, part=part: (self.log_integrals(z, held, part),)
            found += self.blocks(flat, part, ask)
        return anp.reshape(anp.concatenate(found, -1), (*z.shape[:-1], self.N))

    def log_lik(self, z: np.ndarray, batch: tuple) -> np.ndarray:
        """That of every group, z (..., 1, d) -> (..., groups); a row has none of its own."""
        if batch[0].shape != (self.N,) or z.shape[-2] != 1:
            self.take(batch[0])
        return self.pointwise(z[..., 0, :])

    @property
    def all_rows(self) -> tuple[np.ndarray, ...]:
        """Of all arrays in `data`, as they were given."""
        return self.kept

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
        total = crc32(repr([*map(str, self.labels)]).encode(), crc32(self.code.tobytes()))
        for a in self.kept:
            total = crc32(np.ascontiguousarray(a).tobytes(), total)
        return total

    @property
    def mark(self) -> float:
        """The log-likelihood of all groups at one z."""
        return float(self.totals(np.linspace(0.1, 0.3, self.dim), 0)[0])

    def __getstate__(self):
        return {**vars(self), "seen": {}}

    def doubts(self, z: np.ndarray) -> list[str]:
        """A sentence, if twice the nodes move log p(y, z) at points z (n, d)."""
        twice = copy(self)
        twice.nodes, twice.seen = 2 * self.nodes, dict(self.seen)
        change = twice.totals(z, 0)[0] - self.totals(z, 0)[0]
        if np.hypot(change.std(), change.mean()) <= MOVED:
            return []
        return [
            f"{self.nodes} nodes are too few to integrate the effects of every group: twice as "
            f"many move log p(y, z). Make the model with nodes={2 * self.nodes}, and compare"
        ]

    def _check_normalised(self):
        """log_effect is a log density of the effects, at a few z."""
        z = checks.points_near_zero(self.dim)
        one = Part(None, np.zeros(1, int), np.zeros(1, int))
        held = self.held(z, one)
        x = np.stack(np.meshgrid(*[np.sinh(FAR)] * self.k), -1).reshape(-1, self.k)
        step = np.prod((FAR[1] - FAR[0]) * np.sqrt(1 + x**2), 1)  # (K,)
        size = np.prod([held.T[j, j] for j in range(self.k)], 0)  # (3, 1)
        with np.errstate(all="ignore"):
            density = np.exp(self.heights(self.named(z[:, None, None]), held.nodes(x), one))
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
    a, b, c = P[0, 0], P[0, -1] * (len(P) - 1), P[-1, -1]
    middle, apart = (a + c) / 2, np.hypot((a - c) / 2, b)
    more = np.maximum(1e-8 * (np.abs(middle) + apart) + 1e-300 - (middle - apart), 0.0)
    if len(P) == 1:
        return 1 / np.sqrt(np.where(a > 0, a, np.abs(a) + 1e-300))[None, None]
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


@primitive
def entry(x: np.ndarray, j: int) -> np.ndarray:
    """x[j]."""
    return x[j]


@primitive
def _placed(g, j, k):
    """Zeros (k, ...), but g in place j."""
    return g[None] if k == 1 else np.stack([g if i == j else 0 * g for i in range(k)])


defvjp(total, lambda ans, x, row, first: lambda g: spread(g, row, first), None, None)
defvjp(spread, lambda ans, x, row, first: lambda g: total(g, row, first), None, None)
defvjp(entry, lambda ans, x, j: lambda g: _placed(g, j, len(x)), None)
defvjp(_placed, lambda ans, g, j, k: lambda u: entry(u, j), None, None)


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
    try:
        labels.sort()
    except TypeError:
        pass  # of different kinds: in the order in which they come
    place = {label: k for k, label in enumerate(labels)}
    return np.array([place[label] for label in listed]), labels


def _parts(data: tuple, code: np.ndarray) -> Iterator[Part]:
    """Parts of the groups, of about as many rows each."""
    order, counts = np.argsort(code, kind="stable"), np.bincount(code)
    ends = np.cumsum(counts)
    lot = (ends - 1) // MANY  # (groups,) a large group is a part of its own, nearly
    for key, first in enumerate(np.flatnonzero(np.diff(lot, prepend=-1))):
        groups = slice(first, first + int((lot == lot[first]).sum()))
        rows = order[ends[first] - counts[first] : ends[groups.stop - 1]]
        row = np.repeat(np.arange(groups.stop - first), counts[groups])
        starts = (ends - counts)[groups] - (ends - counts)[first]
        yield Part(tuple(wide(a[rows]) for a in data), row, starts, key)
