"""Which lines to take: those with the least cost x E||g||^2; and reports on what lines do.

A run needs steps in proportion to E||g||^2 and time in proportion to steps x cost, so the rule is
the least product (Geffner and Domke 2020). A `Pilot` knows the noise of every set of lines from a
few steps with all of them; what a step costs is timed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from time import perf_counter
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np
import scipy

from .arguments import number, whole
from .ascent.plans import Noisy, taken
from .combining.combine import best_weights
from .draws import Sampling, draw
from .families.base import Family
from .models.density import Model
from .recipe.estimators import Estimator, evaluate
from .recipe.integrands import wanted
from .zoo import Table, candidates, checked, whole_gradient

CHUNK = 2**22  # numbers that draws may make at a time
ROUNDING = 1e-12  # noise of this size, relative to that of the bases, is none
TINY = 1e-9  # noise left of this size is printed as none
DOUBT = 1e-6  # chance that a base with the right mean is taken for one without
ALL = 10  # of more variates than these only single ones and pairs are looked at
FINALISTS = 5  # sets that are timed for real
RIVALS = 32  # sets that take part when the pilot is resampled


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


def cost_of(s: Set, costs: dict[str, float]) -> float:
    """Seconds a step: known, or the base's and what each variate adds to it on its own."""
    s = s._replace(pairs=False)  # two samples cost what a pair costs
    parts = [s] if str(s) in costs else [Set(s.base), *singles(s)]
    try:
        base, *more = (costs[str(part)] for part in parts)
    except KeyError as error:
        raise ValueError(f"costs say nothing of {error}: give its seconds a step") from None
    return base + sum(max(0.0, cost - base) for cost in more)  # timing may err


def timed(
    sets: list[Set], table: Table, plan: Noisy, w: np.ndarray, *, seconds: float = 1.0,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:  # fmt: skip
    """{set: seconds of its shortest step}, a renewal's share included; sets take turns."""
    ways: dict[str, Callable] = {}
    extra, past = set(), "a snapshot of all data"
    for s in sets:
        h, cvs = table[s.base]
        own = replace(plan, h=h, cvs=[cvs[name] for name in s.cvs])
        state = own.first(np.random.default_rng(0), w)
        if own.wants:
            extra.add(str(s))
            ways[past] = partial(own.refreshed, state)
            state = own.refreshed(state)
        own = replace(own, renew=None)
        ways[str(s)] = partial(own.step, own.step(state))  # with what the first one made
    best, end = dict.fromkeys(ways, math.inf), clock() + seconds
    while math.inf in best.values() or clock() < end:
        for name, way in ways.items():
            best[name] = min(best[name], Timer(way, timer=clock).timeit(1))
    share = best.pop(past, 0.0) / (plan.renew or 1)
    return {name: t + share * (name in extra) for name, t in best.items()}


# Noise -------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """What the steps of a pilot saw of a base and its variates: P lines, the base first."""

    K: np.ndarray  # (2, n, P, P) products of the lines' distances from their means, n steps a half
    along: np.ndarray  # (2, n) the base's gradients along the width of q
    mean: np.ndarray  # (2, parts, P, D) the lines' means


class Pilot:
    """Steps at w with all lines of a table: all that any set of them with any weights needs.

    With pairs=True there are two ways to draw. Steps of one half try the weights that the other
    half fits. A snapshot, where lines want one, is new. `costs` are those that are known.
    """

    def __init__(
        self, table: Table, plan: Noisy, w: np.ndarray, steps: int, rng: np.random.Generator, *,
        costs: dict[str, float] | None = None, natural: bool = False, pairs: bool = False,
    ):  # fmt: skip
        steps = whole("pilot", steps, 2)
        if np.ndim(w) != 1:
            raise ValueError(f"w has shape {np.shape(w)}: give one w, ({plan.q.D},)")
        if not isinstance(costs, dict | None):
            raise TypeError(f'costs={costs!r}: write {{"RP1": 1.0, "RP1 with c7": 1.5}}')
        known = (costs or {}).items()
        self.costs = {s: number(f"costs[{s!r}]", cost, 0, above=True) for s, cost in known}
        self.plan, self.w, self.natural = plan, plan.q.check(w), natural
        self.ways = [plan.sampling, *[replace(plan.sampling, noise="pairs")] * pairs]
        self.table = {base: {"": h} | cvs for base, (h, cvs) in table.items()}
        key = lambda line: frozenset(line.parts.items())  # a line of two bases is there once
        lines = {key(line): line for each in self.table.values() for line in each.values()}
        self.lines, order = [*lines.values()], [*lines]
        self.places = {b: [order.index(key(c)) for c in e.values()] for b, e in self.table.items()}
        wants = wanted(atom for line in self.lines for _, atom in line.parts)
        old = taken(plan.model, plan.q, self.w, wants) if wants else None
        numbers = len(self.ways) * len(self.lines) * plan.M * plan.q.D  # of a step
        R = max(3, min(math.ceil(steps / 2), CHUNK // numbers))
        looks = [self._look(rng, R, old) for _ in range(2 * math.ceil(steps / (2 * R)))]
        halves = lambda parts: np.stack([np.concatenate(parts[k::2]) for k in (0, 1)])
        joined = lambda key: Look(*map(halves, zip(*(look[key] for look in looks))))
        self.looks, self.n = {key: joined(key) for key in looks[0]}, R * len(looks)
        self.least = ROUNDING * max(look.K[..., 0, 0].mean() for look in self.looks.values())

    def _look(self, rng, R, old):
        """R steps side by side, {(base, pairs): Look}, without the axis of halves."""
        q, M, D, found = self.plan.q, self.plan.M, self.plan.q.D, {}
        width = np.where(np.arange(D) < q.dim, 0.0, self.w)
        for pairs, seen in zip((False, True), self.ways):
            w = np.broadcast_to(self.w, (R, D))
            d = draw(self.plan.model, q, w, M, rng, snapshot=old, sampling=seen)
            G = evaluate(self.lines, d)  # (R, all lines, M, D)
            for base, own in self.places.items():
                # a word with rows or a pull of its own may look at all samples, as LOO does
                words = {word for line in self.table[base].values() for word, _ in line.parts}
                together = seen.shared or any(word.rows or word.pull for word in words)
                size = M if together else seen.group(q, M)  # samples that lean on each other
                # their means, a unit each, (R, units, P, D); partners are M / 2 apart
                X = np.moveaxis(G[:, own].reshape(R, len(own), size, -1, D).mean(2), 2, 1)
                X = in_units(q, self.w, X) if self.natural else X
                mean, units = X.mean((0, 1)), X.shape[1]
                K = ((X - mean) @ (X - mean).mT).sum(1) / units**2  # of means of steps, (R, P, P)
                K *= R * units / (R * units - 1)
                found[base, pairs] = Look(K, G[:, own[0]].mean(1) @ width, mean[None])
        return found

    def resampled(self, times: int, rng: np.random.Generator) -> dict:
        """Mean products of `times` resampled pilots, {(base, pairs): (times, 2, 1, P, P)}."""
        n = self.n // 2
        counts = [rng.multinomial(n, np.full(n, 1 / n), times) / n for _ in range(2)]
        mean = lambda K: np.stack([np.tensordot(c, k, 1) for c, k in zip(counts, K)], 1)
        return {key: mean(look.K)[:, :, None] for key, look in self.looks.items()}

    def _weighed(self, s, again=None):
        """Products K of a set's lines, and the weights v with which they add up, the base's one."""
        names, key = [*self.table[s.base]], (s.base, s.pairs)
        own = np.array([names.index(name) for name in ("", *s.cvs)])
        K = again[key] if again else self.looks[key].K
        K = K[..., own[:, None], own]  # (..., 2, n, P, P)
        other = K.mean(-3, keepdims=True)[..., ::-1, :, :, :]  # a half has the other's weights
        a = best_weights(other[..., 1:, 1:], other[..., 1:, 0])  # (..., 2, 1, P - 1)
        return K, np.concatenate([np.ones((*a.shape[:-1], 1)), a], -1)

    def each(self, s: Set, again: dict | None = None) -> np.ndarray:
        """||g - E g||^2 at every step, (..., 2, n); or its mean in each of the pilots `again`."""
        K, v = self._weighed(s, again)
        return np.vecdot(np.vecmat(v, K), v)

    def noise(self, s: Set, again: dict | None = None) -> np.ndarray:
        """E||g - E g||^2 of a step, (...). Below rounding error all sets are alike."""
        return np.maximum(self.each(s, again).mean((-2, -1)), self.least)

    def slope2(self, sets: list[Set]) -> float:
        """||E g||^2, from the set with the least noise."""
        quiet = min(sets, key=self.noise)
        means = self.looks[quiet.base, quiet.pairs].mean.mean((0, 1))  # (P, D)
        lines = dict(zip(self.table[quiet.base], means))
        g = self._weighed(quiet)[1].mean((0, 1)) @ [lines[name] for name in ("", *quiet.cvs)]
        return max(0.0, g @ g - self.noise(quiet) / self.n)

    def astray(self) -> dict[str, str]:
        """{base: a sentence} if its mean along q's width is not the first's: PR's at a kink."""
        first, found = self.looks[next(iter(self.table)), False].along, {}
        rounding = 1e-10 * np.abs(first).max() + 1e-300
        for base in self.table:
            apart = self.looks[base, False].along - first  # (2, n)
            z = abs(apart.mean()) / (apart.std(ddof=1) / math.sqrt(self.n) + rounding)
            if z > scipy.special.stdtrit(self.n - 1, 1 - DOUBT / 2):
                far = f"its mean is {z:.0f} standard errors off, as where log p has a kink"
                found[base] = f"{base} is refused: {far}"
        return found


def in_units(q: Family, w: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Vectors whose squared length is g^T F^-1 g, F Fisher's matrix of a Gaussian q; g (..., D)."""
    factor = q.unpack(w)[1]
    slope = q.times_t(factor, g[..., : q.dim])
    factors = np.broadcast_to(factor, (*g.shape[:-1], *factor.shape))
    curvature = q.curvature(factors, g[..., q.dim :]).reshape(*g.shape[:-1], -1)
    return np.concatenate([slope, curvature / math.sqrt(2)], -1)


# Reports -----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What a set leaves and costs, relative to the first set of the report; errors are standard."""

    set: Set
    left: float  # of the noise
    error: float
    cost: float
    score: float  # cost x E||g||^2
    score_error: float
    chosen: float | None  # share of the resampled pilots that would choose it

    def cells(self, first: bool) -> list[str]:
        """As they stand in a table; the first, which all are compared with, has no errors."""
        text = lambda x: f"{x if x > TINY else 0:.2g}"
        pair = lambda x, e: text(x) + ("" if first or x <= TINY else f" ± {e:.1g}")
        left, score = pair(self.left, self.error), pair(self.score, self.score_error)
        chosen = [] if self.chosen is None else [f"{100 * self.chosen:.0f} %"]
        return [str(self.set), left, text(self.cost), score, *chosen]


@dataclass(frozen=True, repr=False)
class Report:
    """What sets leave and cost. Prints as a table."""

    rows: tuple[Row, ...]
    about: str
    refused: tuple[str, ...] = ()  # sentences on bases whose mean is another one

    def __repr__(self):
        table = [row.cells(first=not k) for k, row in enumerate(self.rows)]
        head = ["", "noise left", "cost", "cost x E|g|^2", "chosen"][: len(table[0])]
        name, *widths = (max(map(len, column)) for column in zip(head, *table))
        lines = ([row[0].ljust(name), *map(str.rjust, row[1:], widths)] for row in (head, *table))
        return "\n".join([self.about, *("  ".join(line).rstrip() for line in lines), *self.refused])


def _reported(sets, pilot, slope2, chosen=None):
    """The `Report` of sets; all are compared with the first."""
    each = np.stack([pilot.each(s).ravel() for s in sets])  # (sets, steps)
    costs = np.array([cost_of(s, pilot.costs) for s in sets])
    noise, cost = each.mean(1), costs / costs[0]
    first, whole = noise[0] or 1.0, slope2 + noise[0] or 1.0  # there may be no noise at all
    left, ratio = noise / first, (slope2 + noise) / whole
    error = lambda ratio: (each - ratio[:, None] * each[0]).std(1, ddof=1) / math.sqrt(pilot.n)
    errors, share = error(ratio) / whole, [chosen and chosen.get(s, 0.0) for s in sets]
    rows = map(Row, sets, left, error(left) / first, cost, cost * ratio, cost * errors, share)
    M = pilot.plan.M
    about = f"{M * pilot.n} pilot draws, {M} samples a step; relative to the first line"
    return Report(tuple(rows), about, tuple(pilot.astray().values()))


def report(
    lines: dict[str, Estimator], model: Model, q: Family, w: np.ndarray, *, M: int = 10,
    rng: np.random.Generator, pilot: int = 100, costs: dict[str, float] | None = None,
    seconds: float = 1.0, renew: int = 50, natural: bool = False,
    sampling: Sampling | None = None, **keywords: Any,
) -> Report:  # fmt: skip
    """What lines leave of the noise and cost, as a `Report`; any model, any family, w (D,).

    lines: {name: line}, gradients and variates. Each gradient stands alone; the first of them
        (RP1's, if there is none) also goes with each variate, and with all of them.
    pilot: steps of M samples to measure noise with.
    costs: {set, as it prints: seconds a step}, in place of `seconds` of timing.
    renew: the number of steps that a snapshot serves.
    natural: measure gradients in units of q, by Fisher's matrix, as natural steps do.
    sampling: as in `draw`; or its fields: subsample, batch, each, noise.
    """
    seen = Sampling.of(sampling, **keywords)
    seconds = number("seconds", seconds, 0)
    plan = Noisy(model, q, whole_gradient(model, q), lr=1e-3, M=M, sampling=seen, renew=renew)
    if not (isinstance(lines, dict) and all(isinstance(c, Estimator) for c in lines.values())):
        raise TypeError(f'{lines!r} are no lines by name: write {{"h": h, "c7": c7}}')
    cvs = {name: line for name, line in lines.items() if line.is_control_variate}
    bases = {name: line for name, line in lines.items() if name not in cvs}
    bases = bases or {name: h for name, (h, _) in [*candidates(model, q).items()][:1]}
    full = Set(next(iter(bases)), tuple(cvs))
    table = checked({name: (h, cvs if name == full.base else {}) for name, h in bases.items()})
    found = Pilot(table, plan, w, pilot, rng, costs=costs, natural=natural)
    sets = [*map(Set, bases), *singles(full), *[full] * (len(cvs) > 1)]
    if costs is None:
        found.costs = timed(sets, table, plan, found.w, seconds=seconds)
    return _reported(sets, found, found.slope2(sets))


# Choices -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Choice:
    """The base and the variates with the least cost x E||g||^2."""

    set: Set  # by name
    line: dict  # what `optimize.sgd` needs: sgd(model, q, **choice.line, lr=...)
    report: Report
    sure: float  # share of the resampled pilots that choose the same, costs held
    regret: float  # what it costs more than the best of each resampled pilot, mean: .02 is 2 %
    product: float  # seconds x E||g||^2 of a step: to compare choices with other M, batch ...

    def __repr__(self):
        row, first = {r.set: r for r in self.report.rows}[self.set], self.report.rows[0].set
        name, left, cost, score, sure = row.cells(first=True)
        lines = [
            name,
            f"leaves {left} of the noise, at {cost} times the cost of {first}",
            f"cost x E|g|^2 is {score} of that of {first}",
            f"{sure} of resampled pilots choose it; on average it loses {100 * self.regret:.1f} %",
        ]
        return "\n  ".join([*lines, *self.report.refused])


def choose(
    model: Model, q: Family, w: np.ndarray, *, M: int = 10, rng: np.random.Generator,
    among: dict | None = None, pilot: int = 40, costs: dict[str, float] | None = None,
    seconds: float = 1.0, renew: int = 50, natural: bool = False, resamples: int = 200,
    sampling: Sampling | None = None, **keywords: Any,
) -> Choice:  # fmt: skip
    """The `Choice` of base and variates with the least cost x E||g||^2 at w (D,).

    among: {base: (h, {variate: line})}; by default the `candidates`. Of up to ten variates all
        subsets are looked at; of more, single ones and pairs.
    costs: as in `report`. Without them single variates are timed, sets predicted from these, and
        the best of them timed themselves.
    resamples: how many times the pilot is resampled to see how sure the choice is.
    sampling: as in `report`. Where `noise` is not given and every sample sees the same data, each
        set is tried with independent samples and with opposite pairs, which cost the same.
    A base whose mean is not that of the first one is refused: PR, where log p has a kink.
    All else as in `report`.
    """
    seen = Sampling.of(sampling, **keywords)
    seconds, resamples = number("seconds", seconds, 0), whole("resamples", resamples)
    plan = Noisy(model, q, whole_gradient(model, q), lr=1e-3, M=M, sampling=seen, renew=renew)
    table = candidates(model, q, seen.subsample, M) if among is None else checked(among)
    same = seen.shared or not seen.subsample  # do partners see the same data?
    free = sampling is None and "noise" not in keywords
    pairs = free and same and M % 2 == 0 and q.mirror is not None
    found = Pilot(table, plan, w, pilot, rng, costs=costs, natural=natural, pairs=pairs)
    time = lambda sets, share: timed(sets, table, plan, found.w, seconds=share * seconds)
    slope2, last, close = _finals(found, time if costs is None else lambda sets, share: {})
    score = lambda s, again=None: _score(cost_of(s, found.costs), slope2 + found.noise(s, again))
    best, again = min(last, key=score), found.resampled(resamples, rng)
    scores = np.stack([score(s, again) for s in close], -1)  # (resamples, sets)
    wins = np.bincount(scores.argmin(-1), minlength=len(close)) / resamples
    chosen = dict(zip(close, wins.tolist()))
    h, cvs = table[best.base]
    lines = [cvs[name] for name in best.cvs]
    serves = renew if any(line.wants for line in (h, *lines)) else None
    line = {"h": h, "cvs": lines, "renew": serves, "sampling": found.ways[best.pairs]}
    regret = float((scores[:, close.index(best)] / scores.min(-1)).mean() - 1)
    rows = _reported(last, found, slope2, chosen)
    return Choice(best, line, rows, chosen[best], regret, float(score(best)))


def _finals(pilot, time):
    """||E g||^2, the sets whose costs are known for sure, and all that come close to them.

    The first base leads, then the best. Where costs lack, time(sets, share) finds them.
    """
    astray = pilot.astray()
    bases = [Set(name) for name in pilot.table if name not in astray]
    plain = [s for b in bases for s in subsets(Set(b.base, tuple(pilot.table[b.base])[1:]))]
    tried = [s._replace(pairs=k > 0) for k in range(len(pilot.ways)) for s in plain]
    slope2 = pilot.slope2(tried)
    square = {s: slope2 + pilot.noise(s) for s in tried}
    ranked = lambda: sorted(tried, key=lambda s: _score(cost_of(s, pilot.costs), square[s]))
    once = lambda sets: list(dict.fromkeys(sets))
    pilot.costs |= time([s for s in plain if len(s.cvs) < 2], 0.6)
    last = once([*bases, *ranked()[:FINALISTS]])
    pilot.costs |= time(once(s._replace(pairs=False) for s in last), 0.4)
    order = ranked()
    last = once([bases[0], *sorted(last, key=order.index)])
    return slope2, last, once(last + order[:RIVALS])


def _score(cost, square):
    """cost x E||g||^2, to nine digits: of sets that differ in rounding alone the first is best."""
    unit = 10.0 ** np.floor(np.log10(np.maximum(cost * square, 1e-300)) - 8)
    return np.round(cost * square / unit) * unit
