"""Which lines to take: those with the least cost x E||g||^2; and reports on what lines do.

A run needs steps in proportion to E||g||^2 and time in proportion to steps x cost, so the rule is
the least product (Geffner and Domke 2020). A pilot knows the noise of every set of lines; what a
step costs is timed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import ceil, inf, sqrt
from time import perf_counter
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np
import scipy

from .arguments import number, whole
from .ascent.plans import Noisy, taken
from .combine import best_weights
from .draws import Sampling, draw
from .families.base import Family
from .models.density import Model
from .recipe.approximations import bound, taylor_z
from .recipe.atoms import terms
from .recipe.estimators import CF, GR, PR, QD, RB, RP1, SF, Estimator, evaluate
from .recipe.integrands import wanted
from .recipe.regression import AQ
from .zoo import published, whole_gradient, written

CHUNK = 2**22  # numbers that the draws of a pilot may make at a time
DOUBT = 1e-6  # chance that a base with the right mean is taken for one without
RIGHT = 'write among={"mine": (h, {"c7": c7})}'
FINALISTS, RIVALS = 5, 32  # sets that are timed themselves; that vie in a resampled pilot
Table = dict[str, tuple[Estimator, dict[str, Estimator]]]  # {base: (h, {variate: line})}
Products = dict[str, np.ndarray]  # {base: (..., 2, n / 2, P, P)}, of its P lines at every step


def candidates(model: Model, q: Family, subsample: bool = True, M: int = 10) -> Table:
    """{base: (h, {variate: line})}, what is legal and sensible for the model and the family.

    "RP1", "RB", "PR", "QD" estimate the data term so, with prior and entropy in closed form where
    there is one. Beside them stand variates that share their noise: expansion ("c7") and bound
    against their closed forms, and the expansion at a snapshot against that over all data, with
    ("joint") or without ("snapshot") the noise of q. Their best weights are about 1, 1, -1 and -1.
    "RP1 of all three" samples the entropy too, so that noise vanishes where q is the posterior.
    With all data in every step, so do PR and AQ, the regression on the other samples.
    """
    data, prior, variational = terms(model, q)
    closed, found = written(CF, prior), {}
    dear = q.gaussian and model.likelihood is None and q.dim > 200  # a Hessian: d gradients
    words = (RP1,) if dear else (RP1, RB, PR, QD)
    for word in words if q.gaussian else (RP1 if RP1.fits(q) else GR, SF):
        h = written(lambda: word(data) + (closed or word(prior)) - CF(variational))
        if h is not None:
            lines = _expansions(word, data, prior, subsample) if q.gaussian else published(model, q)
            found[word.name] = h, {} if dear else lines
    (first,) = {word for word, _ in whole_gradient(model, q).parts}
    more = [PR] * (not dear) + [AQ] * (M > 3)  # which leans on the other samples
    for word in (first, *(more if q.gaussian and not subsample else [])):
        found[f"{word} of all three"] = word(data + prior - variational), {}
    return found


def _expansions(word, data, prior, subsample):
    """The variates beside a word under a Gaussian q, as far as they may be written."""
    f, far = data if written(CF, prior) else data + prior, taylor_z(data, at="snapshot")
    lines = {
        "c7": lambda: CF(taylor_z(f)) - word(taylor_z(f)),
        "bound": lambda: CF(bound(f)) - word(bound(f)),
        "joint": lambda: word(far) - CF(far.over_all_data()),
    }
    found = {name: written(write) for name, write in lines.items() if word.samples}  # else as CF
    found |= {"snapshot": CF(far) - CF(far.over_all_data())} if subsample else {}
    return {name: line for name, line in found.items() if line is not None}


class Set(NamedTuple):
    """A base gradient and the variates that go with it, by name."""

    base: str
    cvs: tuple = ()

    def __str__(self):
        return self.base + (f" with {', '.join(self.cvs)}" if self.cvs else "")


def subsets(base: str, cvs: Iterable[str]) -> list[Set]:
    """A base with each subset of its variates; of more than ten, with none, one or two of them."""
    names = tuple(cvs)
    most = len(names) if len(names) <= 10 else 2
    return [Set(base, some) for n in range(most + 1) for some in combinations(names, n)]


def steps_of(s: Set, table: Table, plan: Noisy) -> Noisy:
    """The plan with the lines of this set."""
    h, cvs = table[s.base]
    return replace(plan, h=h, cvs=[cvs[name] for name in s.cvs])


class Pilot:
    """Steps at w with all lines of a table: the noise of any set of them.

    Steps of one half try weights that the other half fits. A snapshot, if lines want one, is new.
    """

    def __init__(
        self, table: Table, plan: Noisy, w: np.ndarray, steps: int, rng: np.random.Generator
    ):
        half = ceil(whole("pilot", steps, 2) / 2)
        if np.ndim(w) != 1:
            raise ValueError(f"w has shape {np.shape(w)}: give one w, ({plan.q.D},)")
        self.plan, self.w, self.table = plan, plan.q.check(w), table
        own = {base: [h, *cvs.values()] for base, (h, cvs) in table.items()}
        key = lambda line: frozenset(line.parts.items())  # a line of two bases is there once
        lines = {key(line): line for some in own.values() for line in some}
        self.places = {base: [[*lines].index(key(c)) for c in own[base]] for base in table}
        wants = wanted(atom for line in lines.values() for _, atom in line.parts)
        old = taken(plan.model, plan.q, self.w, wants) if wants else None
        R = max(3, min(half, CHUNK // (len(lines) * plan.M * plan.q.D)))
        looks = [self._look([*lines.values()], rng, R, old) for _ in range(2 * ceil(half / R))]
        self.n, self.K, self.along, self.mean = R * len(looks), Products(), {}, {}
        for base in table:
            K, along, mean = zip(*(look[base] for look in looks))
            self.K[base] = np.stack([np.concatenate(K[k::2]) for k in (0, 1)])
            self.along[base], self.mean[base] = np.concatenate(along), np.mean(mean, 0)
        self.least = 1e-12 * max(K[..., 0, 0].mean() for K in self.K.values()) + 1e-300
        self.refused = self._astray()

    def _look(self, lines, rng, R, old):
        """R steps side by side, {base: products, gradients along q's width, means}."""
        q, M, D, found = self.plan.q, self.plan.M, self.plan.q.D, {}
        w, width = np.broadcast_to(self.w, (R, D)), np.where(np.arange(D) < q.dim, 0.0, self.w)
        d = draw(self.plan.model, q, w, M, rng, snapshot=old, sampling=self.plan.sampling)
        G = evaluate(lines, d)  # (R, all lines, M, D)
        for base, own in self.places.items():
            # a word with rows or a pull of its own may look at all samples, as LOO does
            words = {word for k in own for word, _ in lines[k].parts}
            together = self.plan.sampling.shared or any(word.rows or word.pull for word in words)
            size = M if together else d.group  # samples that lean on each other
            # their means, a unit each, (R, P, units, D); partners are M / 2 apart
            X = G[:, own].reshape(R, len(own), size, -1, D).mean(2)
            mean, units = X.mean((0, 2)), X.shape[2]
            X = (X - mean[:, None]).reshape(R, len(own), -1)
            K = X @ X.mT / units**2 * (R * units / (R * units - 1))  # of means of steps
            found[base] = K, G[:, own[0]].mean(1) @ width, mean
        return found

    def _astray(self):
        """{base: a sentence} if its mean along q's width is not the first's: PR's at a kink."""
        first = self.along[next(iter(self.table))]  # (n,)
        apart = np.stack([self.along[base] - first for base in self.table])
        error = apart.std(1, ddof=1) / sqrt(self.n) + 1e-10 * np.abs(first).max() + 1e-300
        z, most = np.abs(apart.mean(1)) / error, scipy.special.stdtrit(self.n - 1, 1 - DOUBT / 2)
        why = "{} is refused: its mean is {:.0f} standard errors off, as where log p has a kink"
        return {base: why.format(base, x) for base, x in zip(self.table, z) if x > most}

    @property
    def sets(self) -> list[Set]:
        """All sets of the bases that are not refused."""
        fine = [base for base in self.table if base not in self.refused]
        return [s for base in fine for s in subsets(base, self.table[base][1])]

    def weights(self, s: Set, of: Products | None = None) -> np.ndarray:
        """Those of all lines of the base, (..., 2, 1, P): of each half, as the other fits them."""
        own = [1 + [*self.table[s.base][1]].index(name) for name in s.cvs]
        K = (of or self.K)[s.base].mean(-3, keepdims=True)[..., ::-1, :, :, :]
        v = np.zeros(K.shape[:-1])
        v[..., 0] = 1.0
        v[..., own] = best_weights(K[..., own, :][..., own], K[..., own, 0])
        return v

    def each(self, s: Set, of: Products | None = None) -> np.ndarray:
        """||g - E g||^2 at every step, (..., 2, n / 2). Below rounding error all sets are alike."""
        v = self.weights(s, of)
        return np.maximum(np.vecdot(np.vecmat(v, (of or self.K)[s.base]), v), self.least)

    def noise(self, s: Set, of: Products | None = None) -> np.ndarray:
        """E||g - E g||^2 of a step, (...): of this pilot, or `of` others with these products."""
        return self.each(s, of).mean((-2, -1))

    def slope2(self, sets: list[Set]) -> float:
        """||E g||^2, from the set with the least noise."""
        quiet = min(sets, key=self.noise)
        g = self.weights(quiet).mean((0, 1)) @ self.mean[quiet.base]
        return max(0.0, g @ g - self.noise(quiet) / self.n)

    def resampled(self, times: int, rng: np.random.Generator) -> Products:
        """Those of many pilots, each the mean of steps drawn from this one: (times, 2, 1, P, P)."""
        half = self.n // 2
        counts = [rng.multinomial(half, np.full(half, 1 / half), times) / half for _ in range(2)]
        mean = lambda K: np.stack([np.tensordot(c, k, 1) for c, k in zip(counts, K)], 1)
        return {base: mean(K)[:, :, None] for base, K in self.K.items()}


# What sets cost and leave ------------------------------------------------------------------------


def cost_of(s: Set, costs: dict[str, float]) -> float:
    """Seconds a step: known, or the base's and what each variate adds to it on its own."""
    parts = [str(s)] if str(s) in costs else [s.base, *(str(Set(s.base, (c,))) for c in s.cvs)]
    for part in parts:
        if part not in costs:
            raise ValueError(f"costs say nothing of {part!r}: give its seconds a step")
    base, *more = (costs[part] for part in parts)
    return base + sum(max(0.0, cost - base) for cost in more)  # timing may err


def timed(
    sets: list[Set], table: Table, plan: Noisy, w: np.ndarray, *, seconds: float = 1.0,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:  # fmt: skip
    """{set: seconds of its shortest step}, a snapshot's share included; sets take turns."""
    ways, wants = dict[Any, Callable](), {}
    for s in sets:
        own = replace(steps_of(s, table, plan), renew=None)
        state, wants[str(s)] = own.first(np.random.default_rng(0), w), own.wants
        if own.wants:
            ways[own.wants] = partial(taken, plan.model, plan.q, w, own.wants)
            state = state._replace(snapshot=ways[own.wants]())
        ways[str(s)] = partial(own.step, own.step(state))  # with what the first one made
    best, end = dict.fromkeys(ways, inf), clock() + seconds
    while inf in best.values() or clock() < end:
        for name, way in ways.items():
            best[name] = min(best[name], Timer(way, timer=clock).timeit(1))
    return {s: best[s] + best.get(old, 0.0) / (plan.renew or 1) for s, old in wants.items()}


class Row(NamedTuple):
    """What a set leaves and costs, relative to the first set of the report; errors are standard."""

    set: Set
    left: float  # of the noise
    error: float
    cost: float
    score: float  # cost x E||g||^2
    score_error: float
    chosen: float | None  # share of the resampled pilots that would choose it

    def cells(self) -> list[str]:
        """As they stand in a table, with the errors that are not zero."""
        text = lambda x, e=0.0: f"{round(x, 9) or 0:.2g}" + f" ± {e:.1g}" * bool(e and round(x, 9))
        left, score = text(self.left, self.error), text(self.score, self.score_error)
        chosen = [] if self.chosen is None else [f"{100 * self.chosen:.0f} %"]
        return [str(self.set), left, text(self.cost), score, *chosen]


@dataclass(frozen=True, repr=False)
class Report:
    """What sets leave and cost. Prints as a table."""

    rows: tuple[Row, ...]
    about: str
    refused: tuple[str, ...] = ()  # sentences on bases whose mean is another one

    def __repr__(self):
        table = [row.cells() for row in self.rows]
        head = ["", "noise left", "cost", "cost x E|g|^2", "chosen"][: len(table[0])]
        name, *widths = (max(map(len, column)) for column in zip(head, *table))
        lines = ([row[0].ljust(name), *map(str.rjust, row[1:], widths)] for row in (head, *table))
        return "\n".join([self.about, *("  ".join(line).rstrip() for line in lines), *self.refused])


def _reported(sets, pilot, costs, slope2, chosen=None):
    """The `Report` of sets; all are compared with the first."""
    each, n = np.stack([pilot.each(s).ravel() for s in sets]), pilot.n  # (sets, n)
    noise, seconds = each.mean(1), np.array([cost_of(s, costs) for s in sets])
    left, ratio = noise / noise[0], (slope2 + noise) / (slope2 + noise[0])
    error = lambda ratio: (each - ratio[:, None] * each[0]).std(1, ddof=1) / sqrt(n)
    errors, cost = error(ratio) / (slope2 + noise[0]), seconds / seconds[0]
    share = [chosen and chosen[s] for s in sets]
    rows = map(Row, sets, left, error(left) / noise[0], cost, cost * ratio, cost * errors, share)
    draws = f"{pilot.plan.M * n} pilot draws, {pilot.plan.M} samples a step"
    return Report((*rows,), f"{draws}; relative to the first line", (*pilot.refused.values(),))


def _begun(table, model, q, w, M, rng, pilot, costs, renew, sampling):
    """A pilot, and the costs that are known."""
    if not isinstance(costs, dict | None):
        raise TypeError(f'costs={costs!r}: write {{"RP1": 1.0, "RP1 with c7": 1.5}}')
    known = {s: number(f"costs[{s!r}]", c, 0, above=True) for s, c in (costs or {}).items()}
    if not (isinstance(table, dict) and table):
        raise TypeError(f"{table!r} is no table of bases and their variates: {RIGHT}")
    for name, pair in table.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], dict)):
            raise TypeError(f"{name!r}: {pair!r} is no pair of h and variates by name: {RIGHT}")
        h, cvs = pair  # refused by a plan, if they are neither
        plan = Noisy(model, q, h, [*cvs.values()], lr=1e-3, M=M, sampling=sampling, renew=renew)
    return Pilot(table, plan, w, pilot, rng), known


def report(
    lines: dict[str, Estimator], model: Model, q: Family, w: np.ndarray, *, M: int = 10,
    rng: np.random.Generator, pilot: int = 100, costs: dict[str, float] | None = None,
    seconds: float = 1.0, renew: int = 50, sampling: Sampling | None = None, **keywords: Any,
) -> Report:  # fmt: skip
    """What lines leave of the noise and cost, as a `Report`; any model, any family, w (D,).

    lines: {name: line}, a gradient and variates, which go with it one by one and all together.
    pilot: steps of M samples to measure noise with.
    costs: {set, as it prints: seconds a step}, in place of `seconds` of timing.
    renew: the number of steps that a snapshot serves.
    sampling: as in `draw`; or its fields: subsample, batch, each, noise.
    """
    if not (isinstance(lines, dict) and lines):
        raise TypeError(f'{lines!r} are no lines by name: write {{"h": h, "c7": c7}}')
    (base, h), *cvs = lines.items()
    table, sizes = {base: (h, dict(cvs))}, sorted({0, 1, len(cvs)})
    seen = Sampling.of(sampling, **keywords)
    found, known = _begun(table, model, q, w, M, rng, pilot, costs, renew, seen)
    sets = [Set(base, some) for n in sizes for some in combinations(dict(cvs), n)]
    if costs is None:
        known = timed(sets, table, found.plan, found.w, seconds=number("seconds", seconds, 0))
    return _reported(sets, found, known, found.slope2(sets))


@dataclass(frozen=True, repr=False)
class Choice:
    """The base and the variates with the least cost x E||g||^2."""

    set: Set  # by name
    line: dict  # what `optimize.sgd` needs: sgd(model, q, **choice.line, M=..., lr=...)
    report: Report
    sure: float  # share of the resampled pilots that choose the same, costs held
    regret: float  # what it costs more than the best of each resampled pilot, mean: .02 is 2 %
    product: float  # seconds x E||g||^2 of a step: to compare choices with other M, batch ...

    def __repr__(self):
        row, first = {r.set: r for r in self.report.rows}[self.set], self.report.rows[0].set
        name, left, cost, score, sure = row._replace(error=0.0, score_error=0.0).cells()
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
    seconds: float = 1.0, renew: int = 50, resamples: int = 200,
    sampling: Sampling | None = None, **keywords: Any,
) -> Choice:  # fmt: skip
    """The `Choice` of base and variates with the least cost x E||g||^2 at w (D,).

    among: {base: (h, {variate: line})}; by default the `candidates`. Of up to ten variates all
        subsets are looked at; of more, single ones and pairs.
    costs: as in `report`. Without them single variates are timed, sets predicted from these, and
        the best of them timed themselves.
    resamples: how many times the pilot is resampled to see how sure the choice is.
    sampling: as in `report`. Products of choices with other samplings can be compared.
    A base whose mean is not that of the first one is refused: PR, where log p has a kink.
    """
    seconds, resamples = number("seconds", seconds, 0), whole("resamples", resamples)
    seen = Sampling.of(sampling, **keywords)
    table = candidates(model, q, seen.subsample, M) if among is None else among
    found, known = _begun(table, model, q, w, M, rng, pilot, costs, renew, seen)
    tried, slope2 = found.sets, found.slope2(found.sets)
    product = lambda s, K=None: cost_of(s, known) * (slope2 + found.noise(s, K))
    # to nine digits: of sets that differ in rounding alone the first is best
    score = lambda *given: np.round(np.log(product(*given)), 9)
    time = lambda sets, share: timed(sets, table, found.plan, found.w, seconds=share * seconds)
    known |= time([s for s in tried if len(s.cvs) < 2], 0.6) if costs is None else {}
    bases = [s for s in tried if not s.cvs]
    last = [*bases, *sorted(tried, key=score)[:FINALISTS]]
    known |= time(last, 0.4) if costs is None else {}
    order = sorted(tried, key=score)
    best, *_ = last = [s for s in order if s in last]
    close = [s for k, s in enumerate(order) if k < RIVALS or s in last]
    again = found.resampled(resamples, rng)
    scores = np.stack([score(s, again) for s in close])  # (sets, resamples)
    wins = np.bincount(scores.argmin(0), minlength=len(close)) / resamples
    chosen = dict(zip(close, wins.tolist()))
    regret = np.exp(scores[close.index(best)] - scores.min(0)).mean() - 1
    own = steps_of(best, table, found.plan)
    line = {"h": own.h, "cvs": own.cvs, "renew": renew if own.wants else None, "sampling": seen}
    rows = _reported(sorted(last, key=bases[0].__ne__), found, known, slope2, chosen)
    return Choice(best, line, rows, chosen[best], float(regret), float(product(best)))
