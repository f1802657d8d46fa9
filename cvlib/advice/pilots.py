"""Pilots: what a set of lines leaves of a gradient's noise, from draws, and costs, from steps."""

import math
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..ascent.optimize import Noisy, init, step
from ..ascent.quadratics import curve_of, stands_for, train
from ..combining import combine
from ..recipe.draws import Draw, draw
from ..recipe.estimators import evaluate
from ..recipe.words import LOO

CHUNK = 2**22  # numbers that one part of the pilot holds
ROUNDING = 1e-12  # noise of this size, relative to that of the bases, is none
ROUNDS = 30  # turns of each step that is timed


class Set(NamedTuple):
    """A base gradient and the variates that go with it, by name."""

    base: str
    cvs: tuple = ()

    def __str__(self):
        return self.base + (f" with {', '.join(self.cvs)}" if self.cvs else "")


# Noise -------------------------------------------------------------------------------------------


class Pilot:
    """Products of the lines' gradients, unit by unit: all that any set with any weights needs.

    A unit leans on no other: a sample, a pair, or all of a step with one batch or LOO. K (n, P, P)
    are products of the distances of P lines from their means, scaled so that their mean over the n
    units is the covariance; `shares` (n, 2, P, P) what of it is due to q alone and the data alone.
    Units of one half try the weights that the other half fits.
    """

    def __init__(
        self, table, model, q, w, M, steps, rng, *, see, shares=False, snapshot=None, natural=False
    ):  # fmt: skip
        lines = {}
        place = lambda line: lines.setdefault(frozenset(line.parts.items()), (len(lines), line))[0]
        self.names = {base: list(cvs) for base, (_, cvs) in table.items()}
        self.place = {b: [place(h), *map(place, cvs.values())] for b, (h, cvs) in table.items()}
        self.lines, P = [line for _, line in lines.values()], len(lines)
        shared = bool(see.get("batch") and not see.get("each"))
        shared |= any(word is LOO for line in self.lines for word, _ in line.parts)
        lean = M if shared else {"pairs": 2, "sobol": M}.get(see.get("noise"), 1)  # make a unit
        self.units = M // lean  # a step averages so many
        R = max(math.ceil(4 / self.units), min(math.ceil(steps / 2), CHUNK // (P * M * q.D)))
        parts, n = 2 * math.ceil(steps / (2 * R)), R * self.units
        self.half = np.repeat(np.arange(parts) % 2, n)  # (parts n,)
        length = (lambda X: in_units(q, w, X)) if natural else (lambda X: X)
        mean = lambda G: G.reshape(R, P, lean, self.units, q.D).mean(2)  # partners are M / 2 apart
        units = lambda G: length(np.moveaxis(mean(G), 1, 2).reshape(n, P, q.D))
        K, S, means = [], [], []
        for _ in range(parts):
            d = draw(model, q, np.broadcast_to(w, (R, q.D)), M, rng, snapshot=snapshot, **see)
            X = units(evaluate(self.lines, d))
            means.append(X.mean(0))
            X = X - means[-1]
            K.append(X @ np.swapaxes(X, -1, -2) * (n / (n - 1)))
            if shares and d.index is None:
                S.append(np.stack([K[-1], 0 * K[-1]], 1))  # all data: all noise is of q
            elif shares:  # see the data of the unit before: then u shares eps, u - 1 shares data
                other = Draw(model, q, d.w, d.eps, self.neighbour(d.index), snapshot, d.group)
                Y = units(evaluate(self.lines, other))
                Y = np.swapaxes(Y - Y.mean(0), -1, -2)
                two = np.stack([X @ Y, X @ np.roll(Y, -1, 0)], 1)  # (n, 2, P, P)
                S.append(two + two.sum(1, keepdims=True) / (n - 2))  # unbiased, means taken off
        self.K, self.mean = np.concatenate(K), np.mean(means, 0)  # (n, P, P), (P, D)
        self.sources = np.concatenate(S) if shares else None
        self.least = ROUNDING * max(self.K[:, h, h].mean() for h, *_ in self.place.values())

    def neighbour(self, index):
        """The data points of the unit before, for index (R, M, ...), or (R, 1, B) if shared."""
        R, M = index.shape[:2]
        each = np.moveaxis(index.reshape(R, M // self.units, self.units, -1), 2, 1)
        moved = np.roll(each.reshape(R * self.units, -1), 1, 0).reshape(each.shape)
        return np.moveaxis(moved, 1, 2).reshape(index.shape)

    def halves(self, K):
        """Means of K (n, ...) over the halves, (2, ...)."""
        return np.stack([K[self.half == k].mean(0) for k in (0, 1)])

    def weights(self, sets, K):
        """v (..., 2, T, P) with which T sets add up the lines; v[k] is fitted on half 1 - k.

        K (..., 2, P, P) are covariances on the halves.
        """
        v = np.zeros((*K.shape[:-2], len(sets), K.shape[-1]))
        for base, (h, *cvs) in self.place.items():
            own = [t for t, s in enumerate(sets) if s.base == base]
            has = np.array([[name in sets[t].cvs for name in self.names[base]] for t in own], bool)
            has = has.reshape(len(own), len(cvs))  # (T, L)
            other = K[..., ::-1, None, :, :]
            CC = other[..., cvs, :][..., cvs] * (has[:, :, None] & has[:, None, :])
            a = combine.best_weights(CC, other[..., cvs, h] * has)  # (..., 2, T, L)
            v[..., np.array(own, int)[:, None], cvs] = a
            v[..., own, h] += 1
        return v

    def noise(self, sets, K=None):
        """E||g - E g||^2 of a unit, for T sets: (..., T). Below rounding error all are alike."""
        K = self.halves(self.K) if K is None else K
        return np.maximum(_square(self.weights(sets, K), K).mean(-2), self.least)

    def each(self, sets, K):
        """The same, unit by unit, (n, ..., T), for products K (n, ..., P, P)."""
        v, out = self.weights(sets, self.halves(self.K)), np.empty((*K.shape[:-2], len(sets)))
        for k in (0, 1):
            out[self.half == k] = _square(v[k], K[self.half == k])
        return out

    def slope2(self, sets):
        """||E g||^2, from the set with the least noise."""
        best = [sets[np.argmin(self.noise(sets))]]
        v = self.weights(best, self.halves(self.K)).mean(0)[0]
        return max(0.0, ((v @ self.mean) ** 2).sum() - self.noise(best)[0] / len(self.K))

    def resampled(self, times, rng):
        """Covariances on the halves of `times` resampled pilots, (times, 2, P, P)."""
        K = []
        for k in (0, 1):
            own = self.K[self.half == k]
            counts = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), times)
            K.append(np.tensordot(counts / len(own), own, 1))
        return np.stack(K, 1)


def in_units(q, w, g):
    """Vectors whose squared length is g^T F^-1 g, F Fisher's matrix of a Gaussian q; g (..., D)."""
    factor = q.unpack(w)[1]
    slope = q.times_t(factor, g[..., : q.dim])
    bend = q.curvature(np.broadcast_to(factor, (*g.shape[:-1], *factor.shape)), g[..., q.dim :])
    return np.concatenate([slope, bend.reshape(*g.shape[:-1], -1) / math.sqrt(2)], -1)


def _square(v, K):
    """v^T K v for v (..., T, P) and K (..., P, P), as (..., T)."""
    return ((v @ K) * v).sum(-1)


# Cost --------------------------------------------------------------------------------------------


class Costs(dict):
    """{set, as it prints: seconds a step}; of other sets it is predicted by `of`."""

    def of(self, s):
        """Seconds a step: known, or the base's and what each variate adds to it on its own."""
        if str(s) in self:
            return self[str(s)]
        missing = [str(x) for x in (Set(s.base), *singles(s)) if str(x) not in self]
        if missing:
            raise ValueError(f"costs say nothing of {missing[0]!r}: give its seconds a step")
        base = self[s.base]
        return base + sum(max(0.0, self[str(x)] - base) for x in singles(s))  # timing may err


def singles(s):
    """The base with each of the variates alone."""
    return [Set(s.base, (name,)) for name in s.cvs]


def in_turns(ways, seconds, clock=perf_counter):
    """Seconds a call for each of {name: function}: the shortest of up to ROUNDS blocks, in turns.

    A slow moment of the machine so falls on all of them; `seconds` is for all together.
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


def timed(sets, table, model, q, w, M, *, seconds=1.0, clock=perf_counter, renew=50, see):
    """{set, as it prints: seconds a step of the loop}, a snapshot's share of a renewal included."""
    ways, extra, past = {}, set(), "a snapshot of all data"
    for s in sets:
        h, cvs = table[s.base]
        plan = Noisy(model, q, h, [cvs[c] for c in s.cvs], lr=1e-3, M=M, renew=renew, **see)
        state = init(plan, np.random.default_rng(0), w=w)
        if of_snapshot(plan.lines):
            extra.add(str(s))
            ways[past] = lambda state=state, plan=plan: plan.refreshed(state)
            state = plan.refreshed(state)
        plan = replace(plan, renew=None)
        state = step(state, plan)  # the next ones write over its arrays
        learns = [train(stands_for(c)) for c in plan.cvs if curve_of(c)]  # is part of a step
        ways[str(s)] = lambda state=state, plan=plan, learns=learns: [
            step(state, plan), *(hook(state, plan) for hook in learns)
        ]  # fmt: skip
    found = in_turns(ways, seconds, clock)
    share = found.pop(past, 0.0) / renew
    return {name: t + share * (name in extra) for name, t in found.items()}


def of_snapshot(lines):
    """Does a line expand about older weights?"""
    return any(line.wants for line in lines)
