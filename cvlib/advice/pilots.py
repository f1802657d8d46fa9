"""Pilots: what a set of lines leaves of a gradient's noise, from draws, and costs, from steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..arguments import number, whole
from ..ascent.optimize import init, step
from ..ascent.plans import Noisy, taken
from ..combining import combine
from ..draws import Draw, Sampling
from ..families.base import Family, check_fit
from ..models.own import Model
from ..recipe.drawing import draw
from ..recipe.estimators import Estimator, evaluate
from ..recipe.integrands import Wants, wanted
from ..recipe.snapshots import Snapshot
from ..special import scipy
from .candidates import Table
from .evidence import CHUNK

ROUNDING = 1e-12  # noise of this size, relative to that of the bases, is none
ROUNDS = 30  # turns of each step that is timed
DOUBT = 1e-6  # chance that a base with the right mean is taken for one without


class Set(NamedTuple):
    """A base gradient and the variates that go with it, by name; drawn in pairs or as was said."""

    base: str
    cvs: tuple = ()
    pairs: bool = False

    def __str__(self):
        drawn = self.base + " in pairs" * self.pairs
        return drawn + (f" with {', '.join(self.cvs)}" if self.cvs else "")


@dataclass(frozen=True)
class Setting:
    """Where lines are measured: at weights w (D,), with M samples a step that are drawn so."""

    model: Model
    q: Family
    w: np.ndarray
    M: int = 10
    sampling: Sampling = Sampling()

    def __post_init__(self):
        check_fit(self.model, self.q)
        if np.ndim(self.w) != 1:
            raise ValueError(f"w has shape {np.shape(self.w)}: give one w, ({self.q.D},)")
        object.__setattr__(self, "w", self.q.check(self.w))
        whole("M", self.M)

    @property
    def paired(self) -> "Setting":
        """The same with samples in opposite pairs."""
        return replace(self, sampling=replace(self.sampling, noise="pairs"))

    @property
    def may_pair(self) -> bool:
        """Would a pair lose nothing? Partners see the same data; here all samples do."""
        same = self.sampling.shared or not self.sampling.subsample
        return same and self.M % 2 == 0 and self.q.mirror is not None

    def leaning(self, line: Estimator) -> int:
        """How many samples of a step lean on each other: one, a pair, or all."""
        # a word with rows or a pull of its own may look at all samples together, as LOO does
        together = any(word.rows or word.pull for word, _ in line.parts)
        alone = self.sampling.group(self.q, self.M)
        return self.M if self.sampling.shared or together else alone


# Noise -------------------------------------------------------------------------------------------


class Pilot:
    """Products of the lines' gradients, step by step: all that any set with any weights needs.

    K (n, P, P) are products of the distances of P lines from their means, so that their mean over n
    steps is the covariance of a step's gradients; `sources` (n, 2, P, P) what of it is due to q
    alone and the data alone. Steps of one half try the weights that the other half fits. With
    pairs=True every line is there twice, the second time drawn in pairs. A new snapshot is taken
    where lines want more than the one that is given has.
    """

    def __init__(
        self, table: Table, at: Setting, steps: int, rng: np.random.Generator, *,
        snapshot: Snapshot | None = None, shares: bool = False, natural: bool = False,
        pairs: bool = False,
    ):  # fmt: skip
        steps = whole("pilot", steps, 2)
        self.natural, self.ways = natural, [at, at.paired] if pairs else [at]
        self.names = {base: list(cvs) for base, (_, cvs) in table.items()}
        self.lines, self.place = _placed(table, len(self.ways))
        wants = wanted(atom for line in self.lines for _, atom in line.parts)
        if wants and not _serves(snapshot, wants):
            snapshot = taken(at.model, at.q, at.w, wants)
        R = max(3, min(math.ceil(steps / 2), CHUNK // (len(self.lines) * at.M * at.q.D)))
        parts = 2 * math.ceil(steps / (2 * R))  # of R steps each
        self.half = np.repeat(np.arange(parts) % 2, R)
        looks = zip(*(self._look(rng, R, snapshot, shares) for _ in range(parts)))
        self.K, self.along, sources, means = map(np.concatenate, looks)
        self.sources = sources if shares else None
        self.mean = means.reshape(parts, len(self.lines), -1).mean(0)  # (P, D)
        self.least = ROUNDING * max(self.K[:, h, h].mean() for h, *_ in self.place.values())

    def _look(self, rng, R, snapshot, shares):
        """R steps: products, gradients along the width of q, shares, and the lines' means."""
        P = len(self.lines)
        mean: dict[int, np.ndarray] = {}
        K, along, sources = (np.zeros(n) for n in ((R, P, P), (R, P), (R, 2, P, P)))
        for at, own in zip(self.ways, np.split(np.arange(P), len(self.ways))):
            w, seen = np.broadcast_to(at.w, (R, at.q.D)), at.sampling  # R steps side by side
            d = draw(at.model, at.q, w, at.M, rng, snapshot=snapshot, sampling=seen)
            sizes = np.array([at.leaning(self.lines[p]) for p in own])
            for size in np.unique(sizes):
                p = own[sizes == size]
                X, along[:, p] = self._gradients(d, p, size)
                mean |= zip(p, X.mean((0, 1)))
                X = X - X.mean((0, 1))
                n = X.shape[0] * X.shape[1]
                K[:, p[:, None], p] = own_K = _products(X, X) * (n / (n - 1))
                if shares:
                    sources[:, :, p[:, None], p] = self._shares(d, p, size, X, own_K)
        return K, along, sources, np.stack([mean[p] for p in range(P)])

    def _gradients(self, d, p, size):
        """One gradient for every `size` samples that lean on each other, (R, units, P, D).

        And the steps' gradients along the width of q, (R, P).
        """
        G = evaluate([self.lines[k] for k in p], d)
        R, P, M, D = G.shape
        X = G.reshape(R, P, size, M // size, D).mean(2)  # partners are M / 2 apart
        X, q, w = np.moveaxis(X, 2, 1), self.ways[0].q, self.ways[0].w
        width = np.where(np.arange(D) < q.dim, 0.0, w)
        return in_units(q, w, X) if self.natural else X, X.mean(1) @ width

    def _shares(self, d, p, size, X, K):
        """Products of gradients that share eps and of those that share data, (R, 2, P, P)."""
        if d.index is None:
            return np.stack([K, 0 * K], 1)  # all data: all noise is of q
        # with the data of the step before: then r shares eps, r - 1 shares data
        other = Draw(d.model, d.q, d.w, d.eps, np.roll(d.index, 1, 0), d.snapshot, d.group)
        Y, _ = self._gradients(other, p, size)
        Y -= Y.mean((0, 1))
        two = np.stack([_products(X, Y), _products(X, np.roll(Y, -1, 0))], 1)
        n = X.shape[0] * X.shape[1]
        return two + two.sum(1, keepdims=True) / (n - 2)  # unbiased, means taken off

    def halves(self, K: np.ndarray) -> np.ndarray:
        """Means of K (n, ...) over the halves, (2, ...)."""
        return np.stack([K[self.half == k].mean(0) for k in (0, 1)])

    def weights(self, sets: list[Set], K: np.ndarray) -> np.ndarray:
        """v (..., 2, T, P) with which T sets add up the lines; v[k] is fitted on half 1 - k.

        K (..., 2, P, P) are covariances on the halves.
        """
        v = np.zeros((*K.shape[:-2], len(sets), K.shape[-1]))
        for (base, pairs), (h, *cvs) in self.place.items():
            own = [t for t, s in enumerate(sets) if (s.base, s.pairs) == (base, pairs)]
            has = np.array([[name in sets[t].cvs for name in self.names[base]] for t in own], bool)
            has = has.reshape(len(own), len(cvs))  # (T, L)
            other = K[..., ::-1, None, :, :]
            CC = other[..., cvs, :][..., cvs] * (has[:, :, None] & has[:, None, :])
            a = combine.best_weights(CC, other[..., cvs, h] * has)  # (..., 2, T, L)
            v[..., np.array(own, int)[:, None], cvs] = a
            v[..., own, h] += 1
        return v

    def noise(self, sets: list[Set], K: np.ndarray | None = None) -> np.ndarray:
        """E||g - E g||^2 of a step, for T sets: (..., T). Below rounding error all are alike."""
        K = self.halves(self.K) if K is None else K
        return np.maximum(_square(self.weights(sets, K), K).mean(-2), self.least)

    def each(self, sets: list[Set], K: np.ndarray) -> np.ndarray:
        """The same, step by step, (n, ..., T), for products K (n, ..., P, P)."""
        v, out = self.weights(sets, self.halves(self.K)), np.empty((*K.shape[:-2], len(sets)))
        for k in (0, 1):
            out[self.half == k] = _square(v[k], K[self.half == k])
        return out

    def slope2(self, sets: list[Set]) -> float:
        """||E g||^2, from the set with the least noise."""
        best = [sets[np.argmin(self.noise(sets))]]
        v = self.weights(best, self.halves(self.K)).mean(0)[0]
        return max(0.0, ((v @ self.mean) ** 2).sum() - self.noise(best)[0] / len(self.K))

    def resampled(self, times: int, rng: np.random.Generator) -> np.ndarray:
        """Covariances on the halves of `times` resampled pilots, (times, 2, P, P)."""
        K = []
        for k in (0, 1):
            own = self.K[self.half == k]
            counts = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), times)
            K.append(np.tensordot(counts / len(own), own, 1))
        return np.stack(K, 1)

    def astray(self) -> dict[str, float]:
        """{base: by how many standard errors its mean along the width of q is not the first's}.

        There PR has the curvature at a sample, which says nothing of a kink.
        """
        first, *others = [(base, own[0]) for (base, pairs), own in self.place.items() if not pairs]
        n, found, rounding = len(self.along), {}, 1e-9 * np.abs(self.along).max() + 1e-300
        for base, h in others:
            off = self.along[:, h] - self.along[:, first[1]]
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


def _placed(table: Table, ways: int) -> tuple[list[Estimator], dict]:
    """All lines, once for each way to draw, and {(base, in pairs): places of base and variates}."""
    lines: dict[tuple, tuple[int, Estimator]] = {}
    place = lambda k, c: lines.setdefault((k, frozenset(c.parts.items())), (len(lines), c))[0]
    places = {
        (base, k == 1): [place(k, h), *(place(k, c) for c in cvs.values())]
        for k in range(ways)
        for base, (h, cvs) in table.items()
    }
    return [line for _, line in lines.values()], places


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
    """v^T K v for v (..., T, P) and K (..., P, P), as (..., T)."""
    return ((v @ K) * v).sum(-1)


# Cost --------------------------------------------------------------------------------------------


class Costs(dict):
    """{set, as it prints: seconds a step}; of other sets it is predicted by `of`."""

    @classmethod
    def given(cls, costs: dict) -> "Costs":
        """Costs that a reader gives: positive numbers."""
        if not isinstance(costs, dict):
            raise TypeError(f'costs={costs!r}: write {{"RP1": 1.0, "RP1 with c7": 1.5}}')
        return cls({s: number(f"costs[{s!r}]", c, 0, above=True) for s, c in costs.items()})

    def of(self, s: Set) -> float:
        """Seconds a step: known, or the base's and what each variate adds to it on its own."""
        s = s._replace(pairs=False)  # two samples cost what a pair costs
        if str(s) in self:
            return self[str(s)]
        missing = [str(x) for x in (Set(s.base), *singles(s)) if str(x) not in self]
        if missing:
            raise ValueError(f"costs say nothing of {missing[0]!r}: give its seconds a step")
        base = self[s.base]
        return base + sum(max(0.0, self[str(x)] - base) for x in singles(s))  # timing may err


def singles(s: Set) -> list[Set]:
    """The base with each of the variates alone."""
    return [Set(s.base, (name,)) for name in s.cvs]


def in_turns(
    ways: dict[str, Callable], seconds: float, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """Seconds a call for each of {name: function}: the shortest of up to ROUNDS blocks, in turns.

    `seconds` is for all together.
    """

    def block(way, n):
        start = clock()
        for _ in range(n):
            way()
        return (clock() - start) / n

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
    sets: list[Set], table: Table, at: Setting, *, seconds: float = 1.0,
    clock: Callable[[], float] = perf_counter, renew: int = 50,
) -> dict[str, float]:  # fmt: skip
    """{set, as it prints: seconds a step of the loop}, a snapshot's share of a renewal included."""
    ways, extra, past = {}, set(), "a snapshot of all data"
    for s in sets:
        h, cvs = table[s.base]
        how: dict[str, Any] = {"lr": 1e-3, "M": at.M, "sampling": at.sampling, "renew": renew}
        plan = Noisy(at.model, at.q, h, [cvs[c] for c in s.cvs], **how)
        state = init(plan, np.random.default_rng(0), w=at.w)
        if plan.wants:
            extra.add(str(s))
            ways[past] = lambda state=state, plan=plan: plan.refreshed(state)
            state = plan.refreshed(state)
        plan = replace(plan, renew=None)
        state = step(state, plan)  # the next ones write over its arrays
        ways[str(s)] = lambda state=state, plan=plan: step(state, plan)
    found = in_turns(ways, seconds, clock)
    share = found.pop(past, 0.0) / renew
    return {name: t + share * (name in extra) for name, t in found.items()}
