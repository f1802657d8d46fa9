"""Pilots: what a set of lines leaves of a gradient's noise, from draws, and costs, from steps."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations
from time import perf_counter
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

from .arguments import number, whole
from .ascent.optimize import init, step
from .ascent.plans import Noisy, taken
from .combining import combine
from .draws import Draw, Snapshot, draw
from .families.base import Family, check_fit
from .models.density import Model
from .recipe.estimators import evaluate
from .recipe.integrands import Wants, wanted
from .special import scipy
from .zoo import Table, whole_gradient

CHUNK = 2**22  # numbers that draws may make at a time
ROUNDING = 1e-12  # noise of this size, relative to that of the bases, is none
DOUBT = 1e-6  # chance that a base with the right mean is taken for one without
ROUNDS = 30  # turns of each step that is timed
ALL = 10  # of more variates than these only single ones and pairs are looked at


class Set(NamedTuple):
    """A base gradient and the variates that go with it, by name; drawn in pairs or as was said."""

    base: str
    cvs: tuple = ()
    pairs: bool = False

    def __str__(self):
        drawn = self.base + " in pairs" * self.pairs
        return drawn + (f" with {', '.join(self.cvs)}" if self.cvs else "")


def singles(s: Set) -> list[Set]:
    """The base with each of the variates alone."""
    return [Set(s.base, (name,)) for name in s.cvs]


def subsets(full: Set) -> list[Set]:
    """The subsets of a `Set` to look at: all, or of many variates those of at most two."""
    most = len(full.cvs) if len(full.cvs) <= ALL else 2
    return [Set(full.base, c) for n in range(most + 1) for c in combinations(full.cvs, n)]


# Noise -------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """What n steps of each half of a pilot saw of a base and its variates: P lines, base first.

    The mean of K over steps is the covariance of a step's gradients; `of_q` and `of_data` are what
    of it is due to q alone and to the data alone.
    """

    K: np.ndarray  # (2, n, P, P) products of the lines' distances from their means
    of_q: np.ndarray  # (2, n, P, P)
    of_data: np.ndarray
    along: np.ndarray  # (2, n) the base's gradients along the width of q
    mean: np.ndarray  # (2, parts, P, D) the lines' means


class Pilot:
    """Steps at w with all lines of a table: all that any set of them with any weights needs.

    With pairs=True there are two ways to draw. Steps of one half try the weights that the other
    half fits. Where lines want more than a snapshot has, a new one is taken.
    """

    def __init__(
        self, table: Table, plan: Noisy, w: np.ndarray, steps: int, rng: np.random.Generator, *,
        snapshot: Snapshot | None = None, shares: bool = False, natural: bool = False,
        pairs: bool = False,
    ):  # fmt: skip
        steps = whole("pilot", steps, 2)
        self.plan, self.w, self.natural, self.shares = plan, w, natural, shares
        self.ways = [plan.sampling, *[replace(plan.sampling, noise="pairs")] * pairs]
        self.table = {base: {"": h} | cvs for base, (h, cvs) in table.items()}
        key = lambda line: frozenset(line.parts.items())  # a line of two bases is there once
        lines = {key(line): line for each in self.table.values() for line in each.values()}
        self.lines, order = [*lines.values()], [*lines]
        self.places = {b: [order.index(key(c)) for c in e.values()] for b, e in self.table.items()}
        wants = wanted(atom for line in self.lines for _, atom in line.parts)
        if wants and not (snapshot and _serves(snapshot, wants)):
            snapshot = taken(plan.model, plan.q, w, wants)
        numbers = len(self.ways) * len(self.lines) * plan.M * plan.q.D  # of a step
        R = max(3, min(math.ceil(steps / 2), CHUNK // numbers))
        looks = [self._look(rng, R, snapshot) for _ in range(2 * math.ceil(steps / (2 * R)))]
        half = lambda key, k: map(np.concatenate, zip(*(look[key] for look in looks[k::2])))
        both = lambda key: map(np.stack, zip(half(key, 0), half(key, 1)))
        self.looks = {key: Look(*both(key)) for key in looks[0]}  # {(base, pairs): Look}
        self.n = R * len(looks)
        self.halves = {key: look.K.mean(1) for key, look in self.looks.items()}  # (2, P, P)
        self.least = ROUNDING * max(K[:, 0, 0].mean() for K in self.halves.values())

    def _look(self, rng, R, snapshot):
        """R steps side by side, {(base, pairs): Look}, without the axis of halves."""
        q, M, found = self.plan.q, self.plan.M, {}
        w = np.broadcast_to(self.w, (R, q.D))
        for pairs, seen in zip((False, True), self.ways):
            d = draw(self.plan.model, q, w, M, rng, snapshot=snapshot, sampling=seen)
            draws = [d]
            if self.shares and d.index is not None:  # else all noise counts as that of q
                # with the data of the step before: then r shares eps, r - 1 shares data
                index = np.roll(d.index, 1, 0)
                draws.append(Draw(d.model, q, d.w, d.eps, index, d.snapshot, d.group, d.weight))
            G = [evaluate(self.lines, d) for d in draws]  # (R, all lines, M, D) each
            for base, own in self.places.items():
                # a word with rows or a pull of its own may look at all samples, as LOO does
                words = {word for line in self.table[base].values() for word, _ in line.parts}
                together = seen.shared or any(word.rows or word.pull for word in words)
                size = M if together else seen.group(q, M)  # samples that lean on each other
                found[base, pairs] = self._seen([g[:, own] for g in G], size)
        return found

    def _seen(self, G, size):
        """The `Look` at gradients (R, P, M, D) and, for the shares, at those with other data."""
        q, w, (R, P, _, D) = self.plan.q, self.w, G[0].shape
        along = G[0][:, 0].mean(1) @ np.where(np.arange(D) < q.dim, 0.0, w)
        # means of samples that lean on each other, (R, M', P, D); partners are M / 2 apart
        units = (np.moveaxis(g.reshape(R, P, size, -1, D).mean(2), 2, 1) for g in G)
        X, *others = (in_units(q, w, x) if self.natural else x for x in units)
        mean, n = X.mean((0, 1)), R * X.shape[1]
        product = lambda X, Y: (X @ Y.mT).sum(1) / X.shape[1] ** 2  # of means of steps, (R, P, P)
        X = X - mean
        K = product(X, X) * (n / (n - 1))
        of_q, of_data = K, 0 * K
        for Y in others:
            Y = Y - Y.mean((0, 1))
            two = np.stack([product(X, Y), product(X, np.roll(Y, -1, 0))])
            of_q, of_data = two + two.sum(0) / (n - 2)  # unbiased, means taken off
        return Look(K, of_q, of_data, along, mean[None])

    def resampled(self, times: int, rng: np.random.Generator) -> dict:
        """Covariances on the halves of `times` resampled pilots, as `noise` takes them."""
        n = self.n // 2
        counts = [rng.multinomial(n, np.full(n, 1 / n), times) / n for _ in range(2)]
        mean = lambda K: np.stack([np.tensordot(c, k, 1) for c, k in zip(counts, K)], 1)
        return {key: mean(look.K) for key, look in self.looks.items()}  # (times, 2, P, P)

    def _own(self, s, K):
        """Of products K (..., P, P) those of a set's lines, the base first."""
        lines = [*self.table[s.base]]
        own = np.array([lines.index(name) for name in ("", *s.cvs)])
        return K[..., own[:, None], own]

    def noise(self, s: Set, halves: dict | None = None) -> np.ndarray:
        """E||g - E g||^2 of a step, (...). Below rounding error all sets are alike.

        `halves` are covariances on the halves, if not the pilot's own.
        """
        K = self._own(s, (halves or self.halves)[s.base, s.pairs])
        return np.maximum(_square(_weights(K), K).mean(-1), self.least)

    def each(self, s: Set, what: str = "K") -> np.ndarray:
        """The same, step by step; or what is due to q alone or to the data alone."""
        v = _weights(self._own(s, self.halves[s.base, s.pairs]))[:, None]
        return _square(v, self._own(s, getattr(self.looks[s.base, s.pairs], what))).ravel()

    def slope2(self, quiet: Set) -> float:
        """||E g||^2, from a set with little noise."""
        v = _weights(self._own(quiet, self.halves[quiet.base, quiet.pairs])).mean(0)
        mean = self.looks[quiet.base, quiet.pairs].mean.mean((0, 1))
        lines = dict(zip(self.table[quiet.base], mean))
        g = v @ [lines[name] for name in ("", *quiet.cvs)]
        return max(0.0, g @ g - self.noise(quiet) / self.n)

    def astray(self) -> dict[str, float]:
        """{base: by how many standard errors its mean along the width of q is not the first's}.

        There PR has the curvature at a sample, which says nothing of a kink.
        """
        along = {base: self.looks[base, False].along for base in self.table}
        first, found = next(iter(along.values())), {}
        rounding = 1e-9 * max(np.abs(x).max() for x in along.values()) + 1e-300
        for base, own in along.items():
            error = (own - first).std(ddof=1) / math.sqrt(self.n)
            off = abs((own - first).mean())
            if off > scipy.special.stdtrit(self.n - 1, 1 - DOUBT / 2) * error + rounding:
                found[base] = float(off / max(error, rounding))
        return found


def _serves(old, wants):
    """Does a snapshot have what is wanted of it?"""
    has = Wants(1 + (old.hessian is not None), old.factor is not None, "parabola" in old.parabolas)
    return all(have >= want for have, want in zip(has, wants))


def in_units(q: Family, w: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Vectors whose squared length is g^T F^-1 g, F Fisher's matrix of a Gaussian q; g (..., D)."""
    factor = q.unpack(w)[1]
    slope = q.times_t(factor, g[..., : q.dim])
    factors = np.broadcast_to(factor, (*g.shape[:-1], *factor.shape))
    curvature = q.curvature(factors, g[..., q.dim :]).reshape(*g.shape[:-1], -1)
    return np.concatenate([slope, curvature / math.sqrt(2)], -1)


def _weights(K):
    """v (..., 2, P) with which lines add up, of products K (..., 2, P, P); v[k] of half 1 - k."""
    other = K[..., ::-1, :, :]
    a = combine.best_weights(other[..., 1:, 1:], other[..., 1:, 0])
    return np.concatenate([np.ones((*a.shape[:-1], 1)), a], -1)


def _square(v, K):
    """v^T K v for v (..., P) and K (..., P, P)."""
    return np.vecdot(np.vecmat(v, K), v)


# Cost --------------------------------------------------------------------------------------------


def cost_of(s: Set, costs: dict[str, float]) -> float:
    """Seconds a step: known, or the base's and what each variate adds to it on its own."""
    s = s._replace(pairs=False)  # two samples cost what a pair costs
    parts = [s] if str(s) in costs else [Set(s.base), *singles(s)]
    for part in parts:
        if str(part) not in costs:
            raise ValueError(f"costs say nothing of {str(part)!r}: give its seconds a step")
    base, *more = (costs[str(part)] for part in parts)
    return base + sum(max(0.0, cost - base) for cost in more)  # timing may err


def in_turns(
    ways: dict[str, Callable], seconds: float, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """Seconds a call for each of {name: function}: the shortest of up to ROUNDS blocks, in turns.

    `seconds` is for all together.
    """
    block = lambda way, n: Timer(way, timer=clock).timeit(n) / n
    for way in ways.values():
        way()  # the first call makes what later ones find
    best = {name: block(way, 1) for name, way in ways.items()}
    rounds = max(1, min(ROUNDS, int(seconds / max(sum(best.values()), 1e-9))))
    share = seconds / rounds / len(ways)
    calls = {name: max(1, int(share / max(t, 1e-9))) for name, t in best.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            best[name] = min(best[name], block(way, calls[name]))
    return best


def timed(
    sets: list[Set], table: Table, plan: Noisy, w: np.ndarray, *, seconds: float = 1.0,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:  # fmt: skip
    """{set, as it prints: seconds a step of the plan}, a snapshot's share of a renewal included."""
    ways: dict[str, Callable] = {}
    extra, past = set(), "a snapshot of all data"
    for s in sets:
        h, cvs = table[s.base]
        own = replace(plan, h=h, cvs=[cvs[name] for name in s.cvs])
        state = init(own, np.random.default_rng(0), w=w)
        if own.wants:
            extra.add(str(s))
            ways[past] = partial(own.refreshed, state)
            state = own.refreshed(state)
        own = replace(own, renew=None)
        ways[str(s)] = partial(step, step(state, own), own)  # it writes over the first's arrays
    found = in_turns(ways, seconds, clock)
    share = found.pop(past, 0.0) / (plan.renew or 1)
    return {name: t + share * (name in extra) for name, t in found.items()}


def planned(
    model: Model, q: Family, w: np.ndarray, costs: dict[str, float] | None = None, **how: Any
) -> tuple[Noisy, np.ndarray]:
    """The plan of a step without lines, whose rate does not matter, and w (D,), all checked."""
    check_fit(model, q)
    if np.ndim(w) != 1:
        raise ValueError(f"w has shape {np.shape(w)}: give one w, ({q.D},)")
    if not isinstance(costs, dict | None):
        raise TypeError(f'costs={costs!r}: write {{"RP1": 1.0, "RP1 with c7": 1.5}}')
    for s, cost in (costs or {}).items():
        number(f"costs[{s!r}]", cost, 0, above=True)
    return Noisy(model, q, whole_gradient(model, q), lr=1e-3, **how), q.check(w)
