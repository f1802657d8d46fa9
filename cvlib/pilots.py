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
from .draws import Draw
from .families.base import Family, check_fit
from .models.own import Model
from .recipe.drawing import draw
from .recipe.estimators import Estimator, evaluate
from .recipe.integrands import Wants, wanted
from .recipe.snapshots import Snapshot
from .special import scipy
from .zoo import Table, whole_gradient

CHUNK = 2**22  # numbers that draws may make at a time
ROUNDING = 1e-12  # noise of this size, relative to that of the bases, is none
ROUNDS = 30  # turns of each step that is timed
DOUBT = 1e-6  # chance that a base with the right mean is taken for one without
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


class Pilot:
    """Products of the lines' gradients, step by step: all that any set with any weights needs.

    K (ways, n, P, P) are products of the distances of P lines from their means, so that their mean
    over n steps is the covariance of a step's gradients; `sources` (2, ways, n, P, P) what of it is
    due to q alone and the data alone. With pairs=True there are two ways to draw. Steps of one half
    try the weights that the other half fits. Where lines want more than a snapshot has, a new one
    is taken.
    """

    def __init__(
        self, table: Table, plan: Noisy, w: np.ndarray, steps: int, rng: np.random.Generator, *,
        snapshot: Snapshot | None = None, shares: bool = False, natural: bool = False,
        pairs: bool = False,
    ):  # fmt: skip
        steps = whole("pilot", steps, 2)
        self.plan, self.w, self.natural = plan, w, natural
        self.ways = [plan.sampling, *[replace(plan.sampling, noise="pairs")] * pairs]
        lines: dict[frozenset, tuple[int, Estimator]] = {}  # a line of two bases is there once
        place = lambda c: lines.setdefault(frozenset(c.parts.items()), (len(lines), c))[0]
        self.place = {
            base: (place(h), {name: place(c) for name, c in cvs.items()})
            for base, (h, cvs) in table.items()
        }
        self.lines = [line for _, line in lines.values()]
        wants = wanted(atom for line in self.lines for _, atom in line.parts)
        if wants and not _serves(snapshot, wants):
            snapshot = taken(plan.model, plan.q, w, wants)
        numbers = len(self.ways) * len(self.lines) * plan.M * plan.q.D  # of a step
        R = max(3, min(math.ceil(steps / 2), CHUNK // numbers))
        parts = 2 * math.ceil(steps / (2 * R))  # of R steps each
        self.half = np.repeat(np.arange(parts) % 2, R)
        looks = zip(*(self._look(rng, R, snapshot, shares) for _ in range(parts)))
        self.K, self.along, sources, means = (np.concatenate(look, 1) for look in looks)
        self.sources = np.moveaxis(sources, 2, 0) if shares else None
        self.mean = means.mean(1)  # (ways, P, D)
        self.halves = np.stack([self.K[:, self.half == k].mean(1) for k in (0, 1)], 1)
        bases = [h for h, _ in self.place.values()]
        self.least = ROUNDING * self.K[..., bases, bases].mean(1).max()

    def _look(self, rng, R, snapshot, shares):
        """R steps: products, gradients along the width of q, shares, and the lines' means."""
        plan, ways, P = self.plan, len(self.ways), len(self.lines)
        K, along, sources = (np.zeros((ways, R, *n)) for n in ((P, P), (P,), (2, P, P)))
        means: list[dict[int, np.ndarray]] = [{} for _ in self.ways]
        w = np.broadcast_to(self.w, (R, plan.q.D))  # R steps side by side
        for k, seen in enumerate(self.ways):
            d = draw(plan.model, plan.q, w, plan.M, rng, snapshot=snapshot, sampling=seen)
            sizes = np.array([self._leaning(line, seen) for line in self.lines])
            for size in np.unique(sizes):
                p = np.flatnonzero(sizes == size)
                X, along[k][:, p] = self._gradients(d, p, size)
                means[k] |= zip(p, X.mean((0, 1)))
                X -= X.mean((0, 1))
                n = X.shape[0] * X.shape[1]
                K[k][:, p[:, None], p] = own = _products(X, X) * (n / (n - 1))
                if shares:
                    sources[k][:, :, p[:, None], p] = self._shares(d, p, size, X, own)
        return K, along, sources, np.array([[[own[p] for p in range(P)]] for own in means])

    def _leaning(self, line, seen):
        """How many samples of a step lean on each other: one, a pair, or all."""
        # a word with rows or a pull of its own may look at all samples together, as LOO does
        together = any(word.rows or word.pull for word, _ in line.parts)
        M = self.plan.M
        return M if seen.shared or together else seen.group(self.plan.q, M)

    def _gradients(self, d, p, size):
        """One gradient for every `size` samples that lean on each other, (R, units, P, D).

        And the steps' gradients along the width of q, (R, P).
        """
        G = evaluate([self.lines[k] for k in p], d)
        R, P, M, D = G.shape
        X = G.reshape(R, P, size, M // size, D).mean(2)  # partners are M / 2 apart
        X, q, w = np.moveaxis(X, 2, 1), self.plan.q, self.w
        along = X.mean(1) @ np.where(np.arange(D) < q.dim, 0.0, w)
        return in_units(q, w, X) if self.natural else X, along

    def _shares(self, d, p, size, X, K):
        """Products of gradients that share eps and of those that share data, (R, 2, P, P)."""
        if d.index is None:
            return np.stack([K, 0 * K], 1)  # all data: all noise is of q
        # with the data of the step before: then r shares eps, r - 1 shares data
        other = Draw(
            d.model, d.q, d.w, d.eps, np.roll(d.index, 1, 0), d.snapshot, d.group, d.weight
        )
        Y, _ = self._gradients(other, p, size)
        Y -= Y.mean((0, 1))
        two = np.stack([_products(X, Y), _products(X, np.roll(Y, -1, 0))], 1)
        n = X.shape[0] * X.shape[1]
        return two + two.sum(1, keepdims=True) / (n - 2)  # unbiased, means taken off

    def _own(self, s, K):
        """Of products K (ways, ..., P, P) those of a set's lines, the base first."""
        own = self._places(s)
        return K[int(s.pairs)][..., own[:, None], own]

    def _places(self, s):
        h, cvs = self.place[s.base]
        return np.array([h, *(cvs[name] for name in s.cvs)])

    def _weights(self, s, K):
        """v (..., 2, 1 + L) with which a set adds up its lines; v[k] is fitted on half 1 - k."""
        other = self._own(s, K)[..., ::-1, :, :]
        a = combine.best_weights(other[..., 1:, 1:], other[..., 1:, 0])
        return np.concatenate([np.ones((*a.shape[:-1], 1)), a], -1)

    def noise(self, sets: list[Set], K: np.ndarray | None = None) -> np.ndarray:
        """E||g - E g||^2 of a step, for T sets: (..., T). Below rounding error all are alike.

        K (ways, ..., 2, P, P) are covariances on the halves, if not the pilot's own.
        """
        K = self.halves if K is None else K
        left = [_square(self._weights(s, K), self._own(s, K)).mean(-1) for s in sets]
        return np.maximum(np.stack(left, -1), self.least)

    def each(self, sets: list[Set], K: np.ndarray) -> np.ndarray:
        """The same, step by step, (n, T), for products K (ways, n, P, P)."""
        tried = lambda s: _square(self._weights(s, self.halves)[self.half], self._own(s, K))
        return np.stack([tried(s) for s in sets], -1)

    def slope2(self, quiet: Set) -> float:
        """||E g||^2, from a set with little noise."""
        v, means = self._weights(quiet, self.halves).mean(0), self.mean[int(quiet.pairs)]
        g = v @ means[self._places(quiet)]
        return max(0.0, g @ g - self.noise([quiet])[0] / len(self.half))

    def resampled(self, times: int, rng: np.random.Generator) -> np.ndarray:
        """Covariances on the halves of `times` resampled pilots, (ways, times, 2, P, P)."""
        K = []
        for k in (0, 1):
            own = self.K[:, self.half == k]
            n = own.shape[1]
            counts = rng.multinomial(n, np.full(n, 1 / n), times) / n
            K.append([np.tensordot(counts, way, 1) for way in own])
        return np.stack(K, 2)

    def astray(self) -> dict[str, float]:
        """{base: by how many standard errors its mean along the width of q is not the first's}.

        There PR has the curvature at a sample, which says nothing of a kink.
        """
        along, n, found = self.along[0], len(self.half), {}
        rounding = 1e-9 * np.abs(along).max() + 1e-300
        (first, _), *_ = self.place.values()
        for base, (h, _) in self.place.items():
            off = along[:, h] - along[:, first]
            error = off.std(ddof=1) / math.sqrt(n)
            if abs(off.mean()) > scipy.special.stdtrit(n - 1, 1 - DOUBT / 2) * error + rounding:
                found[base] = float(abs(off.mean()) / max(error, rounding))
        return found


def _serves(old: Snapshot | None, wants: Wants) -> bool:
    """Does a snapshot have what is wanted of it?"""
    if old is None:
        return False
    has = Wants(1 + (old.hessian is not None), old.factor is not None, old.mean_slope is not None)
    return all(have >= want for have, want in zip(has, wants))


def in_units(q: Family, w: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Vectors whose squared length is g^T F^-1 g, F Fisher's matrix of a Gaussian q; g (..., D)."""
    factor = q.unpack(w)[1]
    slope = q.times_t(factor, g[..., : q.dim])
    factors = np.broadcast_to(factor, (*g.shape[:-1], *factor.shape))
    curvature = q.curvature(factors, g[..., q.dim :]).reshape(*g.shape[:-1], -1)
    return np.concatenate([slope, curvature / math.sqrt(2)], -1)


def _products(X, Y):
    """Products of lines in the mean of each step, (R, P, P), for units X, Y (R, units, P, D)."""
    return (X @ np.swapaxes(Y, -1, -2)).sum(1) / X.shape[1] ** 2


def _square(v, K):
    """v^T K v for v (..., P) and K (..., P, P)."""
    return np.vecdot(np.vecmat(v, K), v)


# Cost --------------------------------------------------------------------------------------------


def given(costs: dict[str, float] | None) -> dict[str, float] | None:
    """Costs that a reader gives, {set, as it prints: a positive number}; None: none are given."""
    if not isinstance(costs, dict | None):
        raise TypeError(f'costs={costs!r}: write {{"RP1": 1.0, "RP1 with c7": 1.5}}')
    return costs and {s: number(f"costs[{s!r}]", c, 0, above=True) for s, c in costs.items()}


def cost_of(s: Set, costs: dict[str, float]) -> float:
    """Seconds a step: known, or the base's and what each variate adds to it on its own."""
    s = s._replace(pairs=False)  # two samples cost what a pair costs
    if str(s) in costs:
        return costs[str(s)]
    for part in (Set(s.base), *singles(s)):
        if str(part) not in costs:
            raise ValueError(f"costs say nothing of {str(part)!r}: give its seconds a step")
    base = costs[s.base]
    return base + sum(max(0.0, costs[str(x)] - base) for x in singles(s))  # timing may err


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
        state = step(state, own)  # the next ones write over its arrays
        ways[str(s)] = partial(step, state, own)
    found = in_turns(ways, seconds, clock)
    share = found.pop(past, 0.0) / (plan.renew or 1)
    return {name: t + share * (name in extra) for name, t in found.items()}


def planned(model: Model, q: Family, w: np.ndarray, **how: Any) -> tuple[Noisy, np.ndarray]:
    """The plan of a step without lines, whose rate does not matter, and w (D,), checked."""
    check_fit(model, q)
    if np.ndim(w) != 1:
        raise ValueError(f"w has shape {np.shape(w)}: give one w, ({q.D},)")
    return Noisy(model, q, whole_gradient(model, q), lr=1e-3, **how), q.check(w)
