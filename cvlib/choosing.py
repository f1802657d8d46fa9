"""Which lines to take: those with the least cost x E||g||^2; and reports on what lines do.

A run needs steps in proportion to E||g||^2 and time in proportion to steps x cost, so the rule is
the least product (Geffner and Domke 2020). `pilots` measures both.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .arguments import whole
from .draws import Sampling, Snapshot, draw
from .families.base import Family
from .models.density import Model
from .pilots import CHUNK, Pilot, Set, cost_of, planned, singles, subsets, timed
from .recipe.atoms import terms
from .recipe.estimators import Estimator
from .zoo import candidates, checked

TINY = 1e-9  # noise left of this size is printed as none
FINALISTS, TRIES = 5, 3  # sets that are timed for real, and how often five more may be
RIVALS = 32  # sets that take part when the pilot is resampled


# Reports -----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What a set leaves and costs, relative to the first set of the report; errors are standard."""

    set: Set
    left: float  # of the noise
    error: float
    shares: tuple | None  # of the first set's noise: of q, of the data, of both together
    seconds: float  # a step
    cost: float
    score: float  # cost x E||g||^2
    score_error: float
    chosen: float | None  # share of the resampled pilots that would choose it


@dataclass(frozen=True, repr=False)
class Report:
    """What sets leave and cost. Prints as a table."""

    rows: tuple[Row, ...]
    about: str
    refused: tuple[str, ...] = ()  # sentences on bases whose mean is another one

    def __repr__(self):
        table = [["", "noise left", "q", "data", "both", "cost", "cost x E|g|^2", "chosen"]]
        text = lambda x: f"{x if abs(x) > TINY else 0:.2g}"
        for k, r in enumerate(self.rows):
            error = lambda x, e: text(x) + (f" ± {e:.1g}" if k and x > TINY else "")
            many = len(r.set.cvs) > 1 and len(str(r.set)) > 50
            name = f"{r.set.base} with {len(r.set.cvs)} variates" if many else str(r.set)
            shares = map(text, r.shares) if r.shares else [""] * 3
            chosen = "" if r.chosen is None else f"{100 * r.chosen:.0f} %"
            costs = text(r.cost), error(r.score, r.score_error)
            table.append([name, error(r.left, r.error), *shares, *costs, chosen])
        columns = [c for c in zip(*table) if any(c[1:])]
        widths = [max(map(len, column)) for column in columns]
        pads = [str.ljust, *[str.rjust] * len(columns)]
        rows = [[pad(x, n) for pad, x, n in zip(pads, row, widths)] for row in zip(*columns)]
        return "\n".join([self.about, *("  ".join(row).rstrip() for row in rows), *self.refused])


def _reported(sets, pilot, costs, slope2, chosen=None):
    """The `Report` of sets; all are compared with the first."""
    over = lambda what: np.stack([pilot.each(s, what) for s in sets], -1)  # (n, T)
    each = over("K")
    noise, seconds = each.mean(0), np.array([cost_of(s, costs) for s in sets])
    E = slope2 + noise  # E||g||^2 of a step
    first, whole = noise[0] or 1.0, E[0] or 1.0  # there may be no noise at all
    left, ratio, cost = noise / first, E / whole, seconds / seconds[0]
    error = lambda ratio: (each - ratio * each[:, :1]).std(0, ddof=1) / math.sqrt(len(each))
    shares = [None] * len(sets)
    if pilot.shares:
        q, data = (over(what).mean(0) / first for what in ("of_q", "of_data"))  # (T,)
        shares = np.stack([q, data, left - q - data], -1).tolist()
    columns = [
        left, error(left) / first, shares, seconds, cost, cost * ratio,
        cost * error(ratio) / whole, [chosen and chosen.get(s, 0.0) for s in sets],
    ]  # fmt: skip
    M = pilot.plan.M
    about = f"{M * len(each)} pilot draws, {M} samples a step; relative to the first line"
    refused = (
        f"{base} is refused: its mean is {z:.0f} standard errors off, as where log p has a kink"
        for base, z in pilot.astray().items()
    )
    return Report(tuple(Row(*row) for row in zip(sets, *columns)), about, tuple(refused))


def report(
    lines: dict[str, Estimator], model: Model, q: Family, w: np.ndarray, *, M: int = 10,
    rng: np.random.Generator, pilot: int = 100, costs: dict[str, float] | None = None,
    seconds: float = 1.0, clock: Callable[[], float] = perf_counter,
    snapshot: Snapshot | None = None, renew: int = 50, natural: bool = False,
    sampling: Sampling | None = None, **keywords: Any,
) -> Report:  # fmt: skip
    """What lines leave of the noise and cost, as a `Report`; any model, any family, w (D,).

    lines: {name: line}, gradients and variates. Each gradient stands alone; the first of them
        (RP1's, if there is none) also goes with each variate, and with all of them.
    pilot: steps of M samples to measure noise with, each twice, to tell the shares apart.
    costs: {set, as it prints: seconds a step}, in place of `seconds` of timing by `clock`; on a
        busy machine time.thread_time is the better clock, if a step needs one thread only.
    snapshot, renew: one that the run has, else a new one at w; the number of steps it serves.
    natural: measure gradients in units of q, by Fisher's matrix, as natural steps do.
    sampling: as in `draw`; or its fields: subsample, batch, each, noise.
    """
    seen = Sampling.of(sampling, **keywords)
    plan, w = planned(model, q, w, costs, M=M, sampling=seen, renew=renew)
    if not (isinstance(lines, dict) and all(isinstance(c, Estimator) for c in lines.values())):
        raise TypeError(f'{lines!r} are no lines by name: write {{"h": h, "c7": c7}}')
    cvs = {name: line for name, line in lines.items() if line.is_control_variate}
    bases = {name: line for name, line in lines.items() if name not in cvs}
    bases = bases or {name: h for name, (h, _) in [*candidates(model, q).items()][:1]}
    full = Set(next(iter(bases)), tuple(cvs))
    table = checked({name: (h, cvs if name == full.base else {}) for name, h in bases.items()})
    found = Pilot(table, plan, w, pilot, rng, snapshot=snapshot, shares=True, natural=natural)
    sets = [*map(Set, bases), *singles(full), *[full] * (len(cvs) > 1)]
    if costs is None:
        costs = timed(sets, table, plan, w, seconds=seconds, clock=clock)
    return _reported(sets, found, costs, found.slope2(min(sets, key=found.noise)))


# Choices -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Choice:
    """The base and the variates with the least cost x E||g||^2."""

    set: Set  # by name
    base: Estimator
    cvs: list[Estimator]
    renew: int | None  # of a snapshot, if there is a line that needs one
    sampling: Sampling
    report: Report
    sure: float  # share of the resampled pilots that choose the same, costs held
    regret: float  # what it costs more than the best of each resampled pilot, mean: .02 is 2 %
    product: float  # seconds x E||g||^2 of a step: to compare choices with other M, batch ...
    seconds: float  # what choosing took

    @property
    def line(self) -> dict:
        """What `optimize.sgd` needs: sgd(model, q, **choice.line, lr=...)."""
        how = {} if self.sampling == Sampling() else {"sampling": self.sampling}
        return {"h": self.base, "cvs": self.cvs, "renew": self.renew} | how

    def __repr__(self):
        row = next(r for r in self.report.rows if r.set == self.set)
        first = self.report.rows[0].set
        left, score = (x if x > TINY else 0.0 for x in (row.left, row.score))
        lines = [
            str(self.set),
            f"leaves {left:.2g} of the noise, at {row.cost:.2g} times the cost of {first}",
            f"cost x E|g|^2 is {score:.2g} of that of {first}",
            f"{100 * self.sure:.0f} % of resampled pilots choose it; on average it loses "
            f"{100 * self.regret:.1f} %",
            *self.report.refused,
        ]
        return "\n  ".join(lines)


def choose(
    model: Model, q: Family, w: np.ndarray, *, M: int = 10, rng: np.random.Generator,
    among: dict | None = None, pilot: int = 40, costs: dict[str, float] | None = None,
    seconds: float = 1.0, clock: Callable[[], float] = perf_counter,
    snapshot: Snapshot | None = None, renew: int = 50, natural: bool = False,
    resamples: int = 200, sampling: Sampling | None = None, **keywords: Any,
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
    began = clock()
    seen = Sampling.of(sampling, **keywords)
    plan, w = planned(model, q, w, costs, M=M, sampling=seen, renew=renew)
    table = candidates(model, q, seen.subsample, M) if among is None else checked(among)
    same = seen.shared or not seen.subsample  # do partners see the same data?
    free = sampling is None and "noise" not in keywords
    pairs = free and same and M % 2 == 0 and q.mirror is not None
    found = Pilot(table, plan, w, pilot, rng, snapshot=snapshot, natural=natural, pairs=pairs)
    time = lambda sets, share: timed(sets, table, plan, w, seconds=share * seconds, clock=clock)
    costs, slope2, last, close = _finals(found, costs, time)
    best = min(last, key=lambda s: _score(cost_of(s, costs), slope2 + found.noise(s)))
    halves = found.resampled(resamples, rng)
    scores = [_score(cost_of(s, costs), slope2 + found.noise(s, halves)) for s in close]
    again = np.stack(scores, -1)  # (resamples, T)
    wins = np.bincount(again.argmin(-1), minlength=len(close)) / resamples
    chosen = dict(zip(close, wins.tolist()))
    h, cvs = table[best.base]
    lines = [cvs[name] for name in best.cvs]
    return Choice(
        best, h, lines, renew if any(line.wants for line in (h, *lines)) else None,
        found.ways[best.pairs], _reported(last, found, costs, slope2, chosen), chosen[best],
        regret=float((again[:, close.index(best)] / again.min(-1)).mean() - 1),
        product=float(_score(cost_of(best, costs), slope2 + found.noise(best))),
        seconds=clock() - began,
    )  # fmt: skip


def _finals(pilot, costs, time):
    """Costs, ||E g||^2, the sets whose costs are known for sure, and all that come close to them.

    The first base leads, then the best. Where costs lack, time(sets, share) finds them.
    """
    astray = pilot.astray()
    bases = [Set(name) for name in pilot.table if name not in astray]
    plain = [s for b in bases for s in subsets(Set(b.base, tuple(pilot.table[b.base])[1:]))]
    tried = [s._replace(pairs=k > 0) for k in range(len(pilot.ways)) for s in plain]
    noise = {s: pilot.noise(s) for s in tried}
    slope2, known = pilot.slope2(min(tried, key=lambda s: noise[s])), costs is not None
    costs = costs if known else time([s for s in plain if len(s.cvs) < 2], 0.6)
    ranked = lambda: sorted(tried, key=lambda s: _score(cost_of(s, costs), slope2 + noise[s]))
    once = lambda sets: list(dict.fromkeys(sets))
    last: list[Set] = []
    order = ranked()
    for _ in range(TRIES):  # a set that was predicted too cheap is found out and makes room
        last = once([*bases, *last, *order[:FINALISTS]])
        if not known:
            costs |= time(once(s._replace(pairs=False) for s in last), 0.4)
        order = ranked()
        if order[0] in last:
            break
    last = once([bases[0], *sorted(last, key=order.index)])
    return costs, slope2, last, once(last + order[:RIVALS])


def _score(cost, square):
    """cost x E||g||^2, to nine digits: of sets that differ in rounding alone the first is best."""
    unit = 10.0 ** np.floor(np.log10(np.maximum(cost * square, 1e-300)) - 8)
    return np.round(cost * square / unit) * unit


# The ELBO ----------------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A mean over samples and its standard error, (...) each."""

    value: np.ndarray
    error: np.ndarray

    def __str__(self):
        return repr(self) if np.ndim(self.value) else f"{self.value:.5g} ± {self.error:.1g}"


def elbo(model: Model, q: Family, w: np.ndarray, M: int, rng: np.random.Generator) -> Estimate:
    """ELBO(w), the mean of log p(x, z) - log q_w(z) over M samples, as an `Estimate`, (...) each.

    For any model and family; all data, some samples at a time.
    """
    if isinstance(model, Family):
        raise TypeError(f"{model!r} is a family: the model comes first, elbo(model, q, w, M, rng)")
    data, prior, variational = terms(model, q)
    f, w, parts = (data + prior - variational).parts.items(), q.check(w), []
    most = max(1, CHUNK // (max(model.N * model.row_size, q.D) * math.prod(w.shape[:-1])))
    for first in range(0, whole("M", M, 2), most):
        d = draw(model, q, w, min(most, M - first), rng, sampling=Sampling(subsample=False))
        parts.append(sum(coef * atom.value(d, "z1") for atom, coef in f))  # (..., m)
    values = np.concatenate(parts, -1)
    return Estimate(values.mean(-1), values.std(-1, ddof=1) / np.sqrt(M))
