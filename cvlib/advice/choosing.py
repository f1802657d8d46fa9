"""Which lines to take: those with the least cost x E||g||^2, at some weights or along a run.

A run needs steps in proportion to E||g||^2 and time in proportion to steps x cost, so the rule is
the least product (Geffner and Domke 2020). `pilots` measures both.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np

from ..arguments import number
from ..ascent.optimize import Hook
from ..ascent.plans import Noisy, State
from ..families.base import Family
from ..models.own import Model
from ..recipe.estimators import Estimator
from ..recipe.sampling import Sampling
from ..recipe.snapshots import Snapshot
from .candidates import Table, candidates, checked
from .pilots import Costs, Pilot, Set, Setting, singles, timed
from .reports import TINY, Report, reported

ALL = 10  # of more variates than these only single ones and pairs are looked at
FINALISTS, TRIES = 5, 3  # sets that are timed for real, and how often five more may be
RIVALS = 32  # sets that take part when the pilot is resampled


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
        usual = self.sampling == Sampling()
        how = {} if usual else {"sampling": self.sampling}
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
    at = Setting(model, q, w, M, Sampling.of(sampling, **keywords))
    pairs = sampling is None and "noise" not in keywords and at.may_pair
    table = candidates(model, q, at.sampling.subsample, M) if among is None else checked(among)
    known = costs if costs is None else Costs.given(costs)
    found = Pilot(table, at, pilot, rng, snapshot=snapshot, natural=natural, pairs=pairs)
    fine = {base: lines for base, lines in table.items() if base not in found.astray()}

    def time(sets, share):
        return timed(sets, table, at, seconds=share * seconds, clock=clock, renew=renew)

    best, verdict = _Contest(fine, found, known, time).verdict(resamples, rng)
    h, cvs = table[best.base]
    lines = [cvs[name] for name in best.cvs]
    return Choice(
        best, h, lines, renew if any(line.wants for line in (h, *lines)) else None,
        (at.paired if best.pairs else at).sampling, **verdict, seconds=clock() - began,
    )  # fmt: skip


class _Contest:
    """All sets of a table, by seconds x E||g||^2 of a step; time(sets, share) where costs lack."""

    def __init__(self, table: Table, pilot: Pilot, costs: Costs | None, time: Callable):
        self.pilot, self.time, self.known = pilot, time, costs is not None
        self.bases = [Set(name) for name in table]
        full = [Set(name, tuple(cvs)) for name, (_, cvs) in table.items()]
        alone = [s for f in full for s in (Set(f.base), *singles(f))]
        self.costs = Costs(time(alone, 0.6)) if costs is None else costs
        plain = [s for f in full for s in subsets(f)]
        self.tried = [s._replace(pairs=k > 0) for k in range(len(pilot.ways)) for s in plain]
        self.slope2 = pilot.slope2(self.tried)

    def score(self, sets, K=None):
        """Seconds x E||g||^2 of sets, (..., T), with the pilot's covariances or others.

        Nine digits: among sets that differ in rounding alone the first is best, on any processor.
        """
        cost = np.array([self.costs.of(s) for s in sets])
        score = cost * (self.slope2 + self.pilot.noise(sets, K))
        unit = 10.0 ** np.floor(np.log10(np.maximum(score, 1e-300)) - 8)
        return np.round(score / unit) * unit

    def verdict(self, resamples, rng):
        """The best set, and how sure that is, as fields of a `Choice`."""
        last, rivals = self.finals()
        scores = self.score(rivals)
        best = int(scores[: len(last)].argmin())
        again = self.score(rivals, self.pilot.resampled(resamples, rng))  # (resamples, T)
        wins = np.bincount(again.argmin(-1), minlength=len(rivals)) / resamples
        chosen = dict(zip(rivals, wins.tolist()))
        return rivals[best], {
            "report": reported(last, self.pilot, self.costs, self.slope2, chosen),
            "sure": float(wins[best]),
            "regret": float((again[:, best] / again.min(-1)).mean() - 1),
            "product": float(scores[best]),
        }

    def finals(self):
        """The sets whose costs are known for sure, best first, and all that come close."""
        ranked = lambda: [self.tried[t] for t in np.argsort(self.score(self.tried), kind="stable")]
        last: list[Set] = []
        order = ranked()
        for _ in range(TRIES):  # a set that was predicted too cheap is found out and makes room
            last = _once([*self.bases, *last, *order[:FINALISTS]])
            if not self.known:
                self.costs.update(self.time(_once(s._replace(pairs=False) for s in last), 0.4))
            order = ranked()
            if order[0] in last:
                break
        last = _once([self.bases[0], *sorted(last, key=order.index)])
        return last, _once(last + order[:RIVALS])


def _once(sets):
    return list(dict.fromkeys(sets))


def subsets(full: Set) -> list[Set]:
    """The subsets of a `Set` to look at: all, or of many variates those of at most two."""
    most = len(full.cvs) if len(full.cvs) <= ALL else 2
    return [Set(full.base, c) for n in range(most + 1) for c in combinations(full.cvs, n)]


# Along a run -------------------------------------------------------------------------------------


def rechoose(
    share: float = 0.05, *, clock: Callable[[], float] = perf_counter, **options: Any
) -> Hook:
    """A hook for sgd: choose anew along the run, in at most this share of its time.

    sgd(..., hooks={50: rechoose()}) asks after every 50 steps. Of several runs the first decides
    for all. `options` are those of `choose`; `hook.choices` has (step, Choice).
    """
    number("share", share, 0, 1, above=True)
    began, choices = clock(), []
    spent: list[float] = []

    def hook(state, plan):
        start, first, old = clock(), (0,) * (state.w.ndim - 1), state.snapshot
        if spent and sum(spent) + spent[-1] > share * (start - began):
            return None
        choice = choose(
            plan.model, plan.q, state.w[first], M=plan.M, rng=state.rng, clock=clock,
            snapshot=old and old.of_run(first), sampling=plan.sampling,
            natural=plan.rule.in_units_of_q, **options,
        )  # fmt: skip
        same = [c.parts for c in (choice.base, *choice.cvs)] == [c.parts for c in plan.lines]
        choices.append((state.t, choice))
        answer = None if same else switched(state, plan, choice)
        spent.append(clock() - start)
        return answer

    hook.choices = choices  # type: ignore[attr-defined]
    return hook


def switched(state: State, plan: Noisy, choice: Choice, pilot: int = 40) -> tuple[State, Noisy]:
    """State and plan that go on with another choice, its weights from `pilot` steps' draws."""
    plan = replace(plan, h=choice.base, cvs=tuple(choice.cvs), renew=choice.renew)
    moments, a = plan.begin(state.w.shape[:-1])
    state = plan.refreshed(state._replace(t=0, moments=moments, a=a, G=None))._replace(t=state.t)
    for _ in range(pilot if plan.cvs else 0):
        new = plan.gradient(state)
        state = state._replace(moments=new.moments, G=new.G)
    return state, plan
