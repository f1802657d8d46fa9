"""What each line leaves of a gradient's noise and what a step with it costs; which lines to take.

A run needs steps in proportion to E||g||^2 and time in proportion to steps x cost, so the rule is
the least cost x E||g||^2 (Geffner and Domke 2020). `pilots` measures both.
"""

import math
from dataclasses import dataclass, replace
from html import escape
from itertools import combinations
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..arguments import number, whole
from ..ascent import rules
from ..ascent.quadratics import curve_of, learnt, stands_for, train
from ..fitting.starts import DENSE
from ..models import GLM
from ..recipe.approximations import bound, taylor_z
from ..recipe.atoms import terms
from ..recipe.draws import draw
from ..recipe.estimators import Estimator, check_gradient, check_variate
from ..recipe.integrands import Illegal
from ..recipe.snapshots import snapshot
from ..recipe.words import CF, GR, PR, QD, RB, RP1, SF
from . import zoo
from .pilots import CHUNK, Costs, Pilot, Set, of_snapshot, singles, timed

ALL = 10  # of more variates than these not all subsets are looked at
FINALISTS, TRIES = 5, 3  # sets that are timed for real, and how often five more may be
RIVALS = 32  # sets that take part when the pilot is resampled
TINY = 1e-9  # noise left of this size is rounding error


class Estimate(NamedTuple):
    """A mean over samples and its standard error, (...) each."""

    value: np.ndarray
    error: np.ndarray

    def __str__(self):
        return repr(self) if np.ndim(self.value) else f"{self.value:.5g} +- {self.error:.1g}"


def elbo(model, q, w, M, rng):
    """ELBO(w), the mean of log p(x, z) - log q_w(z) over M samples, as an `Estimate`, (...) each.

    For any model and family; all data, some samples at a time.
    """
    w, M = q.check(w), whole("M", M, 2)
    data, prior, variational = terms(model, q)
    row = 1 if isinstance(model, GLM) else max(a[0].size for a in model.data)
    most = max(1, CHUNK // (max(model.N * row, q.D) * math.prod(w.shape[:-1])))
    f, values = (data + prior - variational).parts.items(), []
    for first in range(0, M, most):
        d = draw(model, q, w, min(most, M - first), rng, subsample=False)
        values.append(sum(coef * atom.value(d, "z1") for atom, coef in f))  # (..., m)
    values = np.concatenate(values, -1)
    return Estimate(values.mean(-1), values.std(-1, ddof=1) / np.sqrt(M))


# Candidates --------------------------------------------------------------------------------------


def candidates(model, q, subsample=True, learn=None):
    """{base: (h, {variate: line})}, what is legal and sensible for the model and the family.

    Bases are words for the data term; prior and entropy in closed form where there is one. A base
    goes with the variates that share its noise: expansion ("c7") and bound against their closed
    forms, and the expansion at a snapshot against that over all data, with ("joint") or without
    ("snapshot") the noise of q.

    A Hessian of an own model costs d gradients. In more than 200 dimensions that is too dear: then
    the base is RP1 and its variate learn(f, h), a "quadratic" trained for f and h.
    """
    data, prior, variational = terms(model, q)
    closed = _written(lambda: CF(prior))
    f, far = data if closed else data + prior, lambda: taylor_z(data, at="snapshot")
    if q.gaussian and not isinstance(model, GLM) and q.dim > DENSE:
        h = RP1(data) + (closed or RP1(prior)) - CF(variational)
        return {"RP1": (h, {"quadratic": learn(f, h)} if learn else {})}
    found = {}
    for word in (RP1, RB, PR, QD) if q.gaussian else (RP1, GR, SF):
        h = _written(lambda: word(data) + (closed or word(prior)) - CF(variational))
        cvs = {
            "c7": lambda: CF(taylor_z(f)) - word(taylor_z(f)),
            "bound": lambda: CF(bound(f)) - word(bound(f)),
            "joint": lambda: word(far()) - CF(far().over_all_data()),
        }
        cvs = cvs if word.samples else {}  # of a parabola such a word is CF
        if subsample:
            cvs["snapshot"] = lambda: CF(far()) - CF(far().over_all_data())
        lines = {name: _written(write) for name, write in cvs.items()}
        if h is not None:
            lines = lines if q.gaussian else zoo.published(model, q)
            found[word.name] = h, {name: c for name, c in lines.items() if c and c.parts}
    return found


def _written(write):
    try:
        return write()
    except Illegal:
        return None


def _named(lines, model, q):
    """{name: line}. Lines of a list get the names that the zoo has, or what they print as."""
    known = {} if isinstance(lines, dict) else zoo.published(model, q)
    known = {frozenset(c.parts.items()): name for name, c in known.items()}
    if not isinstance(lines, dict):
        lines = {known.get(frozenset(c.parts.items()), repr(c)): c for c in map(_line, lines)}
    return {name: _line(c) for name, c in lines.items()}


def _line(c):
    if not isinstance(c, Estimator):
        check_variate(c)  # says what is right
    return c


def _piloted(table, model, q, w, M, steps, rng, old, see, **how):
    """The lines, judged and named, and their `Pilot` at w (D,)."""
    if np.ndim(w) != 1:
        raise ValueError(f"w has shape {np.shape(w)}: give one w, ({q.D},)")
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng={rng!r}: give a generator, rng=np.random.default_rng(0)")
    if not table:
        raise ValueError("nothing to choose among: give {name: (h, variates)}, or leave it out")
    table = {name: (h, _named(cvs, model, q)) for name, (h, cvs) in table.items()}
    for h, cvs in table.values():
        check_gradient(h)
        for c in cvs.values():
            check_variate(c)
    if old is None and of_snapshot([c for h, cvs in table.values() for c in (h, *cvs.values())]):
        old = snapshot(model, q.mean(w))
    w, M, steps = q.check(w), whole("M", M), whole("pilot", steps, 2)
    return table, Pilot(table, model, q, w, M, steps, rng, snapshot=old, see=see, **how)


# The report --------------------------------------------------------------------------------------


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

    rows: tuple
    about: str

    def table(self):
        """Heads and rows, in words."""
        heads = ["", "noise left", "q", "data", "both", "cost", "cost x E|g|^2", "chosen"]
        text = lambda x: f"{x if abs(x) > TINY else 0:.2g}"
        body = []
        for k, r in enumerate(self.rows):
            error = lambda x, e: text(x) + (f" +- {e:.1g}" if k and x > TINY else "")
            left, score = error(r.left, r.error), error(r.score, r.score_error)
            shares = map(text, r.shares) if r.shares else [""] * 3
            chosen = "" if r.chosen is None else f"{100 * r.chosen:.0f} %"
            body.append([_short(r.set), left, *shares, text(r.cost), score, chosen])
        used = [j for j in range(len(heads)) if j == 0 or any(row[j] for row in body)]
        return [[row[j] for j in used] for row in (heads, *body)]

    def __repr__(self):
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows)]
        cells = lambda row: [x.rjust(n) for x, n in zip(row[1:], widths[1:])]
        return "\n".join(
            [self.about, *("  ".join([r[0].ljust(widths[0]), *cells(r)]).rstrip() for r in rows)]
        )

    def _repr_html_(self):
        row = lambda cells, tag: "".join(f"<{tag}>{escape(x)}</{tag}>" for x in cells)
        heads, *body = self.table()
        lines = "\n".join(f"<tr>{row(cells, 'td')}</tr>" for cells in body)
        return (
            f"<table>\n<caption>{escape(self.about)}</caption>\n"
            f"<thead><tr>{row(heads, 'th')}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>"
        )

    def frontier(self):
        """The rows than which none is both cheaper and quieter, from cheap to dear."""
        kept = []
        for r in sorted(self.rows, key=lambda r: (r.cost, r.left)):
            if not kept or r.left < kept[-1].left:
                kept.append(r)
        return kept

    def plot(self, ax=None):
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


def _report(sets, M, pilot, costs, slope2, chosen=None):
    """The `Report` of sets; all are compared with the first."""
    each = pilot.each(sets, pilot.K)  # (n, T)
    noise, seconds = each.mean(0), np.array([costs.of(s) for s in sets])
    E = slope2 + noise / pilot.units  # E||g||^2 of a step
    first, whole = noise[0] or 1.0, E[0] or 1.0  # there may be no noise at all
    left, ratio, cost = noise / first, E / whole, seconds / seconds[0]
    error = lambda ratio: (each - ratio * each[:, :1]).std(0, ddof=1) / math.sqrt(len(each))
    shares = [None] * len(sets)
    if pilot.sources is not None:
        q, data = pilot.each(sets, pilot.sources).mean(0) / first  # (T,) each
        shares = np.stack([q, data, left - q - data], -1).tolist()
    columns = [
        left, error(left) / first, shares, seconds, cost, cost * ratio,
        cost * error(ratio) / (pilot.units * whole),
        [chosen and chosen.get(s, 0.0) for s in sets],
    ]  # fmt: skip
    about = f"{len(each)} pilot draws, {M} samples a step; relative to the first line"
    return Report(tuple(Row(*row) for row in zip(sets, *columns)), about)


def report(
    lines, model, q, w, *, M=10, rng, pilot=100, costs=None, seconds=1.0, clock=perf_counter,
    snapshot=None, renew=50, natural=False, **see,
):  # fmt: skip
    """What lines leave of the noise and cost, as a `Report`; any model, any family, w (D,).

    lines: gradients and variates, a list or {name: line}. Each gradient stands alone; the first of
        them (RP1's, if there is none) also goes with each variate, and with all of them.
    pilot: steps of M samples to measure noise with, each twice, to tell the shares apart.
    costs: {set, as it prints: seconds a step}, in place of `seconds` of timing by `clock`; on a
        busy machine time.thread_time is the better clock, if a step needs one thread only.
    snapshot, renew: for expansions at a snapshot: one that the run has, else a new one at w; and
        the number of steps it serves.
    natural: measure gradients in units of q, by Fisher's matrix, as natural steps do.
    see: which data samples see and how they lean on each other, as in `draw`: subsample, batch,
        each, noise.
    """
    lines = _named(lines, model, q)
    cvs = {name: line for name, line in lines.items() if line.is_control_variate}
    bases = {name: line for name, line in lines.items() if name not in cvs}
    bases = bases or {name: h for name, (h, _) in [*candidates(model, q).items()][:1]}
    first = next(iter(bases))
    table = {name: (h, cvs if name == first else {}) for name, h in bases.items()}
    how = {"natural": natural, "shares": True}
    table, found = _piloted(table, model, q, w, M, pilot, rng, snapshot, see, **how)
    full = Set(first, tuple(cvs))
    sets = [*map(Set, bases), *singles(full), *[full] * (len(cvs) > 1)]
    if costs is None:
        how = {"seconds": seconds, "clock": clock, "renew": renew, "see": see}
        costs = timed(sets, table, model, q, w, M, **how)
    return _report(sets, M, found, Costs(costs), found.slope2(sets))


# The choice --------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Choice:
    """The base and the variates with the least cost x E||g||^2."""

    set: Set  # by name
    base: Estimator
    cvs: list
    renew: int | None  # of a snapshot, if there is a line that needs one
    see: dict  # how a sample sees data
    report: Report
    sure: float  # share of the resampled pilots that choose the same, costs held
    regret: float  # what it costs more than the best of each resampled pilot, mean: .02 is 2 %
    loss: float | None  # greedy search: what it lost on ten of the candidates, at worst
    product: float  # seconds x E||g||^2 of a step: to compare choices with other M, batch ...
    seconds: float  # what choosing took

    @property
    def line(self):
        """What `optimize.sgd` needs: sgd(model, q, **choice.line, lr=...)."""
        learns = [stands_for(c) for c in self.cvs if curve_of(c)]
        hooks = {"hooks": {1: train(learns[0])}} if learns else {}
        return {"h": self.base, "cvs": self.cvs, "renew": self.renew} | hooks | self.see

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
        ]
        if self.loss is not None:
            lines.append(f"greedy search lost {100 * self.loss:.0f} % on ten of the variates")
        return "\n  ".join(lines)


def choose(
    model, q, w, *, M=10, rng, among=None, pilot=40, costs=None, seconds=1.0, clock=perf_counter,
    snapshot=None, renew=50, natural=False, resamples=200, **see,
):  # fmt: skip
    """The `Choice` of base and variates with the least cost x E||g||^2 at w (D,).

    among: {base: (h, variates)}, variates a list or {name: line}; by default the `candidates`. Of
        up to ten variates all subsets are looked at; of more, what greedy search finds.
    costs: as in `report`. Without them single variates are timed, sets predicted from these, and
        the best of them timed themselves.
    resamples: how many times the pilot is resampled to see how sure the choice is.
    All else as in `report`.
    """
    began, known = clock(), costs is not None
    if among is None:
        learn = lambda f, h: learnt(f, q, h, model, w, rng, **see)
        among = candidates(model, q, see.get("subsample", True), learn)
    table, found = _piloted(among, model, q, w, M, pilot, rng, snapshot, see, natural=natural)
    bases = [Set(name) for name in table]
    full = [Set(name, tuple(cvs)) for name, (_, cvs) in table.items()]

    def time(sets, share):
        how = {"seconds": share * seconds, "clock": clock, "renew": renew, "see": see}
        return timed(sets, table, model, q, w, M, **how)

    alone = [s for f in full for s in (Set(f.base), *singles(f))]
    costs = Costs(costs if known else time(alone, 0.6))
    slope2 = found.slope2(bases + full)

    def score(sets, K=None):
        cost = np.array([costs.of(s) for s in sets])
        return cost * (slope2 + found.noise(sets, K) / found.units)  # (..., T)

    tried = list(dict.fromkeys(s for f in full for s in search(f, score)))
    ranked = lambda: [tried[t] for t in np.argsort(score(tried), kind="stable")]
    last, order = [], ranked()
    for _ in range(TRIES):  # a set that was predicted too cheap is found out and makes room
        last = list(dict.fromkeys([*bases, *last, *order[:FINALISTS]]))
        if not known:
            costs.update(time(last, 0.4))
        order = ranked()
        if order[0] in last:
            break
    last = list(dict.fromkeys([bases[0], *sorted(last, key=order.index)]))
    rivals = list(dict.fromkeys(last + order[:RIVALS]))
    scores = score(rivals)
    best = int(scores[: len(last)].argmin())
    again = score(rivals, found.resampled(resamples, rng))  # (resamples, T)
    wins = np.bincount(again.argmin(-1), minlength=len(rivals)) / resamples
    h, cvs = table[rivals[best].base]
    lines = [cvs[name] for name in rivals[best].cvs]
    return Choice(
        set=rivals[best],
        base=h,
        cvs=lines,
        renew=renew if of_snapshot([h, *lines]) else None,
        see=see,
        report=_report(last, M, found, costs, slope2, dict(zip(rivals, wins.tolist()))),
        sure=float(wins[best]),
        regret=float((again[:, best] / again.min(-1)).mean() - 1),
        loss=_loss(full, score),
        product=float(scores[best]),
        seconds=clock() - began,
    )


def search(full, score, most=ALL):
    """The subsets of a `Set` to look at: all up to `most` variates, else those of greedy search."""
    base, names = full
    if len(names) <= most:
        return [Set(base, c) for n in range(len(names) + 1) for c in combinations(names, n)]
    best, seen = Set(base), [Set(base)]
    while len(best.cvs) < len(names):
        new = [n for n in names if n not in best.cvs]
        more = [Set(base, tuple(n for n in names if n == one or n in best.cvs)) for one in new]
        seen += more
        k = score([best, *more]).argmin()
        if k == 0:
            break
        best = more[k - 1]
    return seen


def _loss(full, score, times=5):
    """How much worse greedy search does than all subsets, of ten random variates, at worst."""
    rng, worst = np.random.default_rng(0), None
    for base, names in full:
        for _ in range(times if len(names) > ALL else 0):
            some = Set(base, tuple(rng.permutation(names)[:ALL].tolist()))
            greedy, every = (score(search(some, score, most)).min() for most in (0, ALL))
            worst = max(worst or 0.0, float(greedy / every - 1))
    return worst


# Along a run -------------------------------------------------------------------------------------


def rechoose(share=0.05, *, clock=perf_counter, **options):
    """A hook for sgd: choose anew along the run, in at most this share of its time.

    sgd(..., hooks={50: rechoose()}) asks after every 50 steps. It chooses at the first call, and
    again whenever a choice as long as the last one stays within the share. Of several runs the
    first decides for all. `options` are those of `choose`; `hook.choices` has (step, Choice).
    """
    number("share", share, 0, 1, above=True)
    began, spent, choices = clock(), [], []

    def hook(state, plan):
        start, first, old = clock(), (0,) * (state.w.ndim - 1), state.snapshot
        if spent and sum(spent) + spent[-1] > share * (start - began):
            return None
        choice = choose(
            plan.model, plan.q, state.w[first], M=plan.M, rng=state.rng, clock=clock,
            snapshot=old and old.of_run(first), subsample=plan.subsample,
            batch=plan.batch, each=plan.each, noise=plan.noise,
            natural=isinstance(plan.rule, rules.natural), **options,
        )  # fmt: skip
        same = [c.parts for c in (choice.base, *choice.cvs)] == [c.parts for c in plan.lines]
        choices.append((state.t, choice))
        answer = None if same else switched(state, plan, choice)
        spent.append(clock() - start)
        return answer

    hook.choices = choices
    return hook


def switched(state, plan, choice, pilot=40):
    """State and plan that go on with another choice, its weights from `pilot` steps' draws."""
    plan = replace(plan, h=choice.base, cvs=tuple(choice.cvs), renew=choice.renew)
    moments, a = plan.begin(state.w.shape[:-1])
    state = plan.refreshed(state._replace(t=0, moments=moments, a=a, G=None))._replace(t=state.t)
    for _ in range(pilot if plan.cvs else 0):
        moments, G = plan.gradient(state)[2::2]
        state = state._replace(moments=moments, G=G)
    return state, plan
