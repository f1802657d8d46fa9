"""Reports: what each line leaves of a gradient's noise and what a step with it costs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..draws import Sampling
from ..families.base import Family
from ..models.own import Model
from ..recipe.estimators import Estimator
from ..recipe.snapshots import Snapshot
from .candidates import candidates, checked
from .pilots import Costs, Pilot, Set, Setting, singles, timed

TINY = 1e-9  # noise left of this size is rounding error


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
    """What sets leave and cost. Prints as a table; `plot` draws it."""

    rows: tuple[Row, ...]
    about: str
    refused: tuple[str, ...] = ()  # sentences on bases whose mean is another one

    def table(self) -> list[list[str]]:
        """Heads and rows, in words."""
        heads = ["", "noise left", "q", "data", "both", "cost", "cost x E|g|^2", "chosen"]
        text = lambda x: f"{x if abs(x) > TINY else 0:.2g}"
        body = []
        for k, r in enumerate(self.rows):
            error = lambda x, e: text(x) + (f" ± {e:.1g}" if k and x > TINY else "")
            left, score = error(r.left, r.error), error(r.score, r.score_error)
            shares = map(text, r.shares) if r.shares else [""] * 3
            chosen = "" if r.chosen is None else f"{100 * r.chosen:.0f} %"
            body.append([_short(r.set), left, *shares, text(r.cost), score, chosen])
        used = [j for j in range(len(heads)) if j == 0 or any(row[j] for row in body)]
        return [[row[j] for j in used] for row in (heads, *body)]

    def __repr__(self):
        rows = self.table()
        first, *widths = [max(map(len, column)) for column in zip(*rows)]
        cells = lambda row: [x.rjust(n) for x, n in zip(row[1:], widths)]
        lines = ["  ".join([r[0].ljust(first), *cells(r)]).rstrip() for r in rows]
        return "\n".join([self.about, *lines, *self.refused])

    def frontier(self) -> list[Row]:
        """The rows than which none is both cheaper and quieter, from cheap to dear."""
        kept: list[Row] = []
        for r in sorted(self.rows, key=lambda r: (r.cost, r.left)):
            if not kept or r.left < kept[-1].left:
                kept.append(r)
        return kept

    def plot(self, ax: Any = None) -> Any:
        """Noise left against cost of a step, with the frontier and its names."""
        from .. import plotting

        ax = plotting.plt.gca() if ax is None else ax
        edge, left = self.frontier(), lambda r: max(r.left, TINY)
        ax.step(
            [r.cost for r in edge], [left(r) for r in edge], where="post", color=plotting.GREY, lw=1
        )
        for r in self.rows:
            color = plotting.COLORS.get(r.set.base, plotting.BLUE)
            ax.errorbar(r.cost, left(r), 2 * r.error, fmt="o", ms=4, color=color)
            if r in edge:
                ax.annotate(_short(r.set), (r.cost, left(r)), (-4, -4), color=color, fontsize=9,
                            textcoords="offset points", ha="right", va="top")  # fmt: skip
        ax.set(xlabel="cost of a step", ylabel="noise left", xscale="log", yscale="log")
        ax.margins(0.15)
        return ax


def _short(s):
    many = len(s.cvs) > 1 and len(str(s)) > 50
    return f"{s.base} with {len(s.cvs)} variates" if many else str(s)


def reported(
    sets: list[Set], pilot: Pilot, costs: Costs, slope2: float, chosen: dict | None = None
) -> Report:
    """The `Report` of sets; all are compared with the first."""
    each = pilot.each(sets, pilot.K)  # (n, T)
    noise, seconds = each.mean(0), np.array([costs.of(s) for s in sets])
    E = slope2 + noise  # E||g||^2 of a step
    first, whole = noise[0] or 1.0, E[0] or 1.0  # there may be no noise at all
    left, ratio, cost = noise / first, E / whole, seconds / seconds[0]
    error = lambda ratio: (each - ratio * each[:, :1]).std(0, ddof=1) / math.sqrt(len(each))
    shares = [None] * len(sets)
    if pilot.sources is not None:
        q, data = pilot.each(sets, pilot.sources).mean(0) / first  # (T,) each
        shares = np.stack([q, data, left - q - data], -1).tolist()
    columns = [
        left, error(left) / first, shares, seconds, cost, cost * ratio,
        cost * error(ratio) / whole,
        [chosen and chosen.get(s, 0.0) for s in sets],
    ]  # fmt: skip
    M = pilot.ways[0].M
    about = f"{M * len(each)} pilot draws, {M} samples a step; relative to the first line"
    refused = [
        f"{base} is refused: its mean is {z:.0f} standard errors off, as where log p has a kink"
        for base, z in pilot.astray().items()
    ]
    return Report(tuple(Row(*row) for row in zip(sets, *columns)), about, tuple(refused))


def report(
    lines: dict[str, Estimator], model: Model, q: Family, w: np.ndarray, *, M: int = 10,
    rng: np.random.Generator, pilot: int = 100,
    costs: dict[str, float] | None = None, seconds: float = 1.0,
    clock: Callable[[], float] = perf_counter, snapshot: Snapshot | None = None,
    renew: int = 50, natural: bool = False, sampling: Sampling | None = None, **keywords: Any,
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
    at = Setting(model, q, w, M, Sampling.of(sampling, **keywords))
    if not (isinstance(lines, dict) and all(isinstance(c, Estimator) for c in lines.values())):
        raise TypeError(f'{lines!r} are no lines by name: write {{"h": h, "c7": c7}}')
    cvs = {name: line for name, line in lines.items() if line.is_control_variate}
    bases = {name: line for name, line in lines.items() if name not in cvs}
    bases = bases or {name: h for name, (h, _) in [*candidates(model, q).items()][:1]}
    first = next(iter(bases))
    table = checked({name: (h, cvs if name == first else {}) for name, h in bases.items()})
    known = costs if costs is None else Costs.given(costs)
    found = Pilot(table, at, pilot, rng, snapshot=snapshot, shares=True, natural=natural)
    full = Set(first, tuple(cvs))
    sets = [*map(Set, bases), *singles(full), *[full] * (len(cvs) > 1)]
    if known is None:
        known = Costs(timed(sets, table, at, seconds=seconds, clock=clock, renew=renew))
    return reported(sets, found, known, found.slope2(sets))
