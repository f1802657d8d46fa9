"""Which lines to take: those with the least cost x E||g||^2; and reports on what lines do.

A run needs steps in proportion to E||g||^2 and time in proportion to steps x cost, so the rule is
the least product (Geffner and Domke 2020). A pilot knows the noise; what a step costs is timed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import inf, sqrt
from time import perf_counter
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

from .arguments import number, whole
from .ascent.plans import Noisy, taken
from .draws import Sampling
from .families.base import Family
from .models.density import Model
from .pilots import Pilot, Set, Table, candidates
from .recipe.estimators import Estimator
from .zoo import whole_gradient

FINALISTS, RIVALS = 5, 32  # sets that are timed themselves; that vie in a resampled pilot


def cost_of(s: Set, costs: dict[str, float]) -> float:
    """Seconds a step: known, or the base's and what each variate adds to it on its own."""
    name = str(s._replace(pairs=False))  # two samples cost what a pair costs
    parts = [name] if name in costs else [s.base, *(str(Set(s.base, (c,))) for c in s.cvs)]
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
        h, cvs = table[s.base]
        own = replace(plan, h=h, cvs=[cvs[name] for name in s.cvs], renew=None)
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

    def cells(self, errors: bool = True) -> list[str]:
        """As they stand in a table. The first row, which all are compared with, has no errors."""
        text = lambda x: f"{round(x, 9) or 0:.2g}"
        pair = lambda x, e: text(x) + f" ± {e:.1g}" * bool(errors and e and round(x, 9))
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


def _begun(model, q, h, M, renew, costs, sampling, keywords):
    """A plan of steps, and the costs that are known."""
    if not isinstance(costs, dict | None):
        raise TypeError(f'costs={costs!r}: write {{"RP1": 1.0, "RP1 with c7": 1.5}}')
    known = {s: number(f"costs[{s!r}]", c, 0, above=True) for s, c in (costs or {}).items()}
    seen = Sampling.of(sampling, **keywords)
    return Noisy(model, q, h, lr=1e-3, M=M, sampling=seen, renew=renew), known


def report(
    lines: dict[str, Estimator], model: Model, q: Family, w: np.ndarray, *, M: int = 10,
    rng: np.random.Generator, pilot: int = 100, costs: dict[str, float] | None = None,
    seconds: float = 1.0, renew: int = 50, natural: bool = False,
    sampling: Sampling | None = None, **keywords: Any,
) -> Report:  # fmt: skip
    """What lines leave of the noise and cost, as a `Report`; any model, any family, w (D,).

    lines: {name: line}, a gradient and variates, which go with it one by one and all together.
    pilot: steps of M samples to measure noise with.
    costs: {set, as it prints: seconds a step}, in place of `seconds` of timing.
    renew: the number of steps that a snapshot serves.
    natural: measure gradients in units of q, by Fisher's matrix, as natural steps do.
    sampling: as in `draw`; or its fields: subsample, batch, each, noise.
    """
    if not (isinstance(lines, dict) and lines):
        raise TypeError(f'{lines!r} are no lines by name: write {{"h": h, "c7": c7}}')
    (base, h), *cvs = lines.items()
    plan, known = _begun(model, q, h, M, renew, costs, sampling, keywords)
    table, sizes = {base: (h, dict(cvs))}, sorted({0, 1, len(cvs)})
    found = Pilot(table, plan, w, pilot, rng, natural=natural)
    sets = [Set(base, some) for n in sizes for some in combinations(dict(cvs), n)]
    if costs is None:
        known = timed(sets, table, plan, found.w, seconds=number("seconds", seconds, 0))
    return _reported(sets, found, known, found.slope2(sets))


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
        name, left, cost, score, sure = row.cells(errors=False)
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
    """
    plan, known = _begun(model, q, whole_gradient(model, q), M, renew, costs, sampling, keywords)
    seconds, resamples = number("seconds", seconds, 0), whole("resamples", resamples)
    seen = plan.sampling
    table = candidates(model, q, seen.subsample, M) if among is None else among
    free = sampling is None and "noise" not in keywords and (seen.shared or not seen.subsample)
    pairs = free and M % 2 == 0 and q.mirror is not None
    found = Pilot(table, plan, w, pilot, rng, natural=natural, pairs=pairs)
    tried, slope2 = found.sets, found.slope2(found.sets)
    product = lambda s, pilot=found: cost_of(s, known) * (slope2 + pilot.noise(s))
    # to nine digits: of sets that differ in rounding alone the first is best
    score = lambda *given: np.round(np.log(product(*given)), 9)
    alone = lambda sets: [*dict.fromkeys(s._replace(pairs=False) for s in sets)]
    time = lambda sets, share: timed(alone(sets), table, plan, found.w, seconds=share * seconds)
    known |= time([s for s in tried if len(s.cvs) < 2], 0.6) if costs is None else {}
    bases = [s for s in tried if not s.cvs and not s.pairs]
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
    h, cvs = table[best.base]
    own = replace(plan, h=h, cvs=[cvs[name] for name in best.cvs])
    line = {"h": h, "cvs": own.cvs, "renew": renew if own.wants else None}
    line["sampling"] = found.ways[best.pairs]
    rows = _reported(sorted(last, key=bases[0].__ne__), found, known, slope2, chosen)
    return Choice(best, line, rows, chosen[best], float(regret), float(product(best)))
