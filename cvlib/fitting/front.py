"""The front door: from a model to its best q in one call, made of the parts of the book.

It begins at the mode, takes natural steps where a Hessian is affordable and Adam's where it is not,
averages, stops when the ELBO has settled, and says in words what it did and what to distrust.
"""

import html
import json
import time
import warnings
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from .. import families
from ..advice.choosing import choose, switched
from ..advice.pilots import Set
from ..arguments import number, whole
from ..ascent import optimize, rules
from ..ascent.training import curve_of, fitted, stands_for, train
from ..families import DiagonalGaussian, Gaussian
from ..families.base import check_fit
from ..models import GLM, Model
from ..recipe.approximations import taylor_z
from ..recipe.atoms import one, terms
from ..recipe.integrands import Illegal
from ..recipe.sampling import Sampling
from ..recipe.words import CF, GR, PR, QD, RP1, SF
from .looks import TOLERANCE, at_most, conflicts, log_weights, per_row, worst
from .starts import DENSE, Start, start

SECONDS = 60.0  # the budget where none is given
NUMBERS = 2**20  # that a step may make of the data: what M draws see, times d for a Hessian
FEW = 32  # data points, the smallest batch
FIRST = {"natural": 20, "adam": 200}  # steps to the first look at the ELBO; then twice as many ...
RATES = np.array([0.1, 0.03, 0.01, 0.003])  # of Adam, side by side, in units of the start
RENEW = 10  # steps that a snapshot serves
FAIR = 0.5  # share of the draws that importance weights should leave
LEARN = 2  # draws a step to train a fitted quadratic with
KEYBOARD = "stopped from the keyboard"
SAVED = ("kind", "names", "words", "looks", "settled", "seconds", "slower")  # of a run


class Distrust(UserWarning):
    """Something about a fit is not as it should be; the sentence says what."""


def fit(
    model, q=None, *, seconds=None, steps=None, seed=0, progress=True, h=None, cvs=None,
    weights=None, M=10, batch=None,
):  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Starts at the mode of log p(x, z) and its curvature. Where q is Gaussian and a Hessian is
    affordable (M x d x the data up to 2^21 numbers, else in batches; d up to 200 for a full q) it
    takes natural steps on Price's gradient, or quadrature's for a GLM; else Adam's steps in the
    coordinates of the start, four rates side by side of which the worse half goes at each look,
    with a quadratic that is trained along where even one Hessian a step is too dear.

    Looks at the ELBO after 20, 40, 80 ... steps (Adam: 200, 400 ...), on up to 4000 draws, at the
    mean of w over the last half of the run. It stops when doubling the run has gained less than
    0.05 nats beyond doubt: a fit that would still gain more is stopped with a chance of at most
    5 %, all looks together. Or it stops at `steps`, or after `seconds` (60 if neither is given).
    Ctrl-C returns what there is.

    h, cvs, weights: a base gradient, variates and their weight rule in place of the defaults.
    M: draws a step. batch: how many data points a step sees; all of them if they are few.
    """
    clock = _Clock(seconds, steps)
    if q is None and isinstance(model, Model):
        q = (Gaussian if model.dim <= DENSE else DiagonalGaussian)(model.dim)
    check_fit(model, q)
    rng = np.random.default_rng(seed)
    begin = start(model, q.full, clock.half) if q.gaussian else None
    kind, M, batch = _way(model, q, h, whole("M", M), batch)
    w = q.start() if begin is None else q.joined(begin.mu, begin.S)
    says = [begin.says if begin else f"began at the usual start of {q!r}"]
    given, names = (h, cvs, weights), ()
    if h is None:
        if cvs is not None:
            raise ValueError("cvs go with a base gradient: give h as well, or leave both out")
        h, known = _lines(model, q, kind, batch, w=w)
        names, cvs = tuple(known), [*known.values()]
    plan = _plan(model, q, kind, begin, h, cvs, weights, M, batch)
    state = optimize.init(plan, rng, w=w, runs=(len(RATES),) if kind == "adam" else ())
    run = _Run(plan, kind, begin, state, w, given, names, tuple(says))
    return _told(run.go(clock, progress, KEYBOARD if begin and begin.stopped else ""))


def _told(found):
    """The fit, after Python's warnings of what to distrust."""
    for sentence in found.warnings:
        warnings.warn(sentence, Distrust, stacklevel=3)
    return found


# The result --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """What `fit` found. z are the model's own coordinates, as it takes them.

    w (D,) are the weights of q; elbo and its standard error; `looks` has rows (step, elbo, error);
    `words` what was done, `warnings` what to distrust; `effective` is the share of draws that
    importance weights leave.
    """

    model: object
    q: object
    w: np.ndarray
    elbo: float
    error: float
    effective: float
    looks: np.ndarray
    settled: bool
    steps: int
    seconds: float
    words: tuple
    warnings: tuple
    run: object = field(repr=False)

    @property
    def mean(self):
        """E_q z, (d,)."""
        return self.q.mean(self.w)

    @property
    def sd(self):
        """Standard deviations of z under q, (d,)."""
        return self.q.sd(self.w)

    @cached_property
    def cov(self):
        """Covariance of z under a Gaussian q, (d, d)."""
        if not self.q.gaussian:
            raise ValueError(f"{self.q!r} has no matrix of covariances here: take sample(n, rng)")
        factor = self.q.unpack(self.w)[1]
        return factor @ factor.T if self.q.full else np.diag(factor**2)

    def sample(self, n, rng):
        """n draws of z ~ q, (n, d)."""
        return self.q.sample(self.w, whole("n", n), rng)

    @property
    def choice(self):
        """How the variates were chosen, a `Choice`; None if they were given, or after `load`."""
        return self.run.choice

    def go_on(self, *, seconds=None, steps=None, progress=True):
        """The fit after more steps: up to step `steps`, or for so many seconds more."""
        run = replace(self.run, state=deepcopy(self.run.state))  # this fit stays
        return _told(run.go(_Clock(seconds, steps, run.state.t), progress))

    def save(self, path):
        """Everything but the model into one file; `Fit.load(path, model)` reads it."""
        self.run.save(path)

    @classmethod
    def load(cls, path, model, **lines):
        """A saved fit of this model; lines that `fit` was given (h, cvs, weights) come again."""
        return _Run.load(path, model, **lines).result()

    def __reduce__(self):
        """A pickle holds what `save` writes, and the model."""
        if self.run.has_lines:
            raise TypeError("a fit that was given h or cvs is not pickled: save it, and load it")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "fit.npz"
            self.save(path)
            return _unpickled, (path.read_bytes(), self.model)

    @property
    def report(self):
        """What was done and found, in words."""
        return "\n".join([*self._head(), *(f"- {w}" for w in self.words), *self._warned()])

    def _head(self):
        yield f"{self.model.name}: {self.q!r}"
        yield f"ELBO {self.elbo:.2f} ± {2 * self.error:.2f} after {self.steps} steps"

    def _warned(self):
        return [f"! {w}" for w in self.warnings]

    def table(self, names=None, most=20):
        """Rows (name, mean, sd), one a coordinate; z[0], z[1], ... if there are no names."""
        names = names or [f"z[{k}]" for k in range(self.q.dim)]
        return list(zip(names, self.mean, self.sd))[:most]

    def __repr__(self):
        rows = (f"  {name:8} {m:10.3g} ± {s:.2g}" for name, m, s in self.table(most=12))
        more = ["  ..."] if self.q.dim > 12 else []
        return "\n".join([*self._head(), *rows, *more, *self._warned()])

    def _repr_html_(self):
        cell = lambda x: f'<td style="text-align: right; padding: 0 0.8em">{html.escape(x)}</td>'
        rows = "".join(
            f"<tr>{cell(name)}{cell(f'{m:.3g}')}{cell(f'{s:.2g}')}</tr>"
            for name, m, s in self.table()
        )
        head = "<br>".join(map(html.escape, self._head()))
        notes = "".join(f"<p>{html.escape(w)}</p>" for w in self._warned())
        top = "<tr><th>coordinate</th><th>mean</th><th>sd</th></tr>"
        return f"<div><p>{head}</p>{notes}<table>{top}{rows}</table></div>"

    def plot(self, axes=None):
        """Left the ELBO at every look, with two standard errors; right mean and sd of each z."""
        from .. import plotting

        if axes is None:
            _, axes = plotting.plt.subplots(1, 2, figsize=(6.4, 3.0))
        t, elbo, error = self.looks.T
        axes[0].errorbar(t, elbo, 2 * error, color=plotting.BLUE, marker="o", ms=4)
        axes[0].set(xlabel="step", ylabel="ELBO", xscale="log")
        axes[0].set_xticks(t, [f"{k:.0f}" for k in t])
        axes[0].minorticks_off()
        k = np.arange(self.q.dim)
        axes[1].errorbar(self.mean, k, xerr=self.sd, fmt="o", ms=4, color=plotting.BLUE)
        axes[1].set(xlabel="mean ± sd of z", ylabel="coordinate", ylim=(len(k) - 0.5, -0.5))
        return axes


def _unpickled(content, model):
    return Fit.load(BytesIO(content), model)


# Plans -------------------------------------------------------------------------------------------


def _way(model, q, h, M, batch):
    """ "natural" or "adam", the number of draws a step, and of data points, None for all."""
    size = M * per_row(model)  # numbers that a data point makes
    curved = q.gaussian and (q.dim <= DENSE or not q.full)
    if h is not None:
        curved = curved and not any(word in (SF, RP1, GR) for word, _ in h.parts)
    if curved and isinstance(model, GLM) and h is None:
        M, size = 1, max(model.dim, 32)  # quadrature needs no draws, but nodes
    elif curved and min(model.N, FEW) * size * q.dim > 2 * NUMBERS:
        curved, size = False, size * len(RATES)  # not even a small batch can have its Hessian
    else:
        size *= q.dim if curved else len(RATES)
    if batch is None and model.N * size > 2 * NUMBERS:  # a batch is half of the data at most
        batch = max(FEW, NUMBERS // size)
    batch = None if batch is None or whole("batch", batch) >= model.N else batch
    return "natural" if curved else "adam", M, batch


def _lines(model, q, kind, batch, **learnt):
    """Base gradient and variates {name: line} to choose from, each of weight about one.

    On all data c7 needs a Hessian a step, in batches one a draw; too many dimensions or draws, and
    a fitted quadratic takes its place, which begins at w=, or goes on with what state= knows.
    """
    data, prior, variational = terms(model, q)
    closed = _allowed(CF, prior)
    f, cvs = data if closed else data + prior, {}
    if kind == "adam":
        word = next(w for w in (RP1, GR, SF) if w.name in q.methods and _allowed(w, data))
        landing = SF(one) if word is SF else CF(variational) - word(variational)
        cvs["landing"] = landing - CF(one) if word is SF else landing
    else:  # words without noise in the curvature, which natural steps would square
        word = QD if isinstance(model, GLM) else PR
    if batch and kind == "natural":  # the expansion at a snapshot takes the noise of the data too
        far = taylor_z(data, at="snapshot")
        cvs["joint"] = CF(far.over_all_data()) - (CF if word is QD else word)(far)
    elif kind == "adam" and q.gaussian and (batch or q.dim > DENSE):
        cvs["quadratic"] = fitted(f, q, **learnt)
    elif word.samples and q.gaussian and q.dim <= DENSE:
        cvs["c7"] = CF(taylor_z(f)) - word(taylor_z(f))
    prior = closed or (PR if word is QD else word)(prior)
    return word(data) + prior - CF(variational), cvs


def _allowed(word, f):
    try:
        return word(f)
    except Illegal:
        return None


def _chosen(plan, kind, names, w):
    """The `Choice` of variates at w (D,), by noise in a small pilot and by counted cost.

    Costs are numbers of gradients, which is what a step of an own model is made of, so that a fit
    is the same on every machine: d for a Hessian, M of them for Price's base.
    """
    model, q, M, batch = plan.model, plan.q, plan.M, plan.sampling.batch
    h, cvs = plan.h, dict(zip(names, plan.cvs))
    base = M * (1 + q.dim * (kind == "natural"))
    extra = {"landing": 0, "c7": M * q.dim if batch else q.dim, "quadratic": LEARN}
    extra["joint"] = base + q.dim * model.N / (batch or 1) / RENEW
    name = next(word.name for word, atom in h.parts if atom.target == "data")
    costs = {str(Set(name)): base} | {str(Set(name, (c,))): base + extra[c] for c in cvs}
    large = M * per_row(model) * q.dim * (batch or model.N) > NUMBERS / 8
    return choose(
        model, q, w, M=M, rng=np.random.default_rng(0), among={name: (h, cvs)}, costs=costs,
        pilot=2 if large else 8, natural=kind == "natural",
        sampling=plan.sampling, renew=RENEW,
    )  # fmt: skip


def _plan(model, q, kind, begin, h, cvs, weights, M, batch):
    cvs, rate, rule = cvs or (), rules.falling(RATES, 2 * FIRST["adam"], 0.5), rules.adam()
    if kind == "natural":
        # without noise Newton's step; a diagonal q takes coordinates one by one, and would swing
        noisy = batch is not None or any(word.samples for word, _ in h.parts)
        rate = rules.falling(0.4, 30, 0.5) if noisy or not q.full else 1.0
        rule = rules.natural()
    elif begin is not None:
        rule = rules.stretched(rule, begin.S)
    if weights is None:
        weights = rules.fixed(1.0) if kind == "natural" else rules.blocks()
    return optimize.Noisy(
        model, q, h, tuple(cvs), lr=rate, rule=rule, average=1, M=M, weights=weights,
        sampling=Sampling(subsample=batch is not None, batch=batch),
        renew=RENEW if any(line.wants for line in (h, *cvs)) else None,
    )  # fmt: skip


# The run -----------------------------------------------------------------------------------------


class _Clock:
    """When to stop: at a step, or at a time; the last look at the ELBO needs time as well."""

    def __init__(self, seconds, steps, taken=0):
        self.began, self.look = time.perf_counter(), 0.0
        self.seconds = np.inf if steps is not None else SECONDS
        if seconds is not None:
            self.seconds = number("seconds", seconds, 0, above=True)
        self.steps = np.inf if steps is None else whole("steps", steps)
        if self.steps <= taken:
            raise ValueError(f"the fit has taken {taken} steps: steps={steps} must lie beyond")

    @property
    def passed(self):
        return time.perf_counter() - self.began

    def half(self):
        return self.passed > self.seconds / 2

    def out(self):
        return self.passed + 2.5 * self.look > self.seconds


@dataclass
class _Run:
    """A fit on its way: plan and state of the loop, and what was seen at the looks."""

    plan: optimize.Noisy
    kind: str  # "natural" or "adam"
    begin: object  # Start, or None
    state: optimize.State
    best: np.ndarray  # (D,) the mean of w at the last look
    given: tuple = (None, None, None)  # h, cvs, weights
    names: tuple = ()  # of the variates in use, where they were not given
    words: tuple = ()
    looks: tuple = ()  # (step, elbo, error)
    settled: bool = False
    seconds: float = 0.0
    slower: int = 0  # how often it diverged and began again
    choice: object = None  # of the variates, at the first look, where they were not given

    def go(self, clock, progress, why=""):
        """Steps until settled or out of budget, none if there is a reason; then the `Fit`."""
        self.settled, before = False, self.seconds
        bar = _bar(progress)
        try:
            with np.errstate(all="ignore"):
                while not why:
                    why = self._block(clock, bar)
        except KeyboardInterrupt:
            if self.state.count and self._finite() and len(self._means()) == 1:
                (self.best,) = self._means()
            why = KEYBOARD
        if bar is not None:
            bar.close()
        self.seconds = before + clock.passed
        self.words = (*self.words, f"{why} after step {self.state.t}")
        return self.result()

    def _block(self, clock, bar):
        """Steps to the next look, and the look: "" to go on, or why the run ended."""
        first = end = FIRST[self.kind]
        while end <= self.state.t:
            end *= 2
        if self.state.t == 0 or self.state.t == end // 2 >= first:
            self.state = self.state._replace(mean=np.zeros_like(self.state.w), count=0)
        out, rng = False, self.state.rng
        while self.state.t < min(end, clock.steps) and not out:
            bits = rng.bit_generator.state
            try:
                self.state, self.plan = self._learnt(optimize.step(self.state, self.plan))
            except KeyboardInterrupt:
                rng.bit_generator.state = bits  # as if the step had not begun
                raise
            except np.linalg.LinAlgError:  # a matrix of the model is singular at some draw
                broken = np.full_like(self.state.diverged, self.state.t + 1)
                self.state = self.state._replace(diverged=broken)
                break
            out = clock.out()
            if bar is not None:
                bar.update()
        if not self._finite():
            return self._again()
        looked = time.perf_counter()
        why = self._look()
        clock.look = time.perf_counter() - looked
        if why or self.state.t >= clock.steps or clock.out():
            return why or ("out of steps" if self.state.t >= clock.steps else "out of time")
        return ""

    def _learnt(self, state):
        """State and plan after a step, the fitted quadratic trained on."""
        learns = [stands_for(c) for c in self.plan.cvs if curve_of(c)]
        if not learns or self.has_lines:
            return state, self.plan
        return train(learns[0], M=LEARN)(state, self.plan) or (state, self.plan)

    def _finite(self):
        return bool((self.state.diverged < 0).any())

    def _means(self):
        """The runs' mean weights since the last look, (R, D)."""
        w = self.state.mean if self.state.count else self.state.w
        return w.reshape(-1, w.shape[-1])

    def _look(self):
        """Compare with the last look on the same draws; drop the worse half of the runs.

        Only a run alone, twice as long as at the last look, can have settled.
        """
        model, q, t = self.plan.model, self.plan.q, self.state.t
        means = self._means()
        lw = np.stack([log_weights(model, q, w, t) for w in (self.best, *means)])  # (1 + R, n)
        value = np.where(np.isfinite(lw.mean(1)), lw.mean(1), -np.inf)
        value[1:][np.ravel(self.state.diverged) >= 0] = -np.inf
        order = 1 + np.argsort(-value[1:], kind="stable")
        n, top = lw.shape[1], order[0]
        blocks = t / FIRST[self.kind]
        if len(means) > 1 and blocks in (1, 2, 4, 8):  # not where a budget ended
            self._keep(np.sort(order[: len(order) // 2]) - 1)
        gain = lw[top] - lw[0]
        most = at_most(gain, len(self.looks) + 1)
        worse = np.isfinite(value[0]) and not most >= 0  # beyond doubt, or no number
        if not worse:
            self.best = means[top - 1]
        if t == FIRST[self.kind] and self.plan.cvs and not self.has_lines:
            self._choose()
        error = lw[top].std() / np.sqrt(n)
        self.looks = (*self.looks, (t, float(lw[top].mean()), float(error)))
        doubled = len(means) == 1 and self.looks[1:] and t == 2 * self.looks[-2][0]
        if doubled and not worse and most < TOLERANCE:
            self.settled = True
            more = round(gain.mean(), 2) + 0.0  # no minus zero
            return f"the ELBO settled (twice the steps gained {more:.2f} nats): it stopped"
        return ""

    def _choose(self):
        """Go on with the variates that pay near the optimum; all of them were in use up to here."""
        try:
            self.choice = _chosen(self.plan, self.kind, self.names, self.best)
        except ValueError:  # a pilot that is not finite
            return
        self.names = self.choice.set.cvs
        pilot = 0 if self.kind == "natural" else 40
        self.state, self.plan = switched(self.state, self.plan, self.choice, pilot)
        first, *_ = rows = self.choice.report.rows
        row = next(r for r in rows if r.set == self.choice.set)
        left = f"{row.left:.2g} of the noise at {row.cost:.2g} of the cost of {first.set} alone"
        self.words = (*self.words, f"chose {row.set}, which leaves {left}")

    def _keep(self, kept):
        """The state and the rates of these runs alone; one run is an axis of length one."""
        R = len(self.state.w)
        cut = lambda x: x[kept] if np.ndim(x) and len(x) == R else x
        both = lambda xs: tuple(map(cut, xs))
        s = self.state
        self.state = s._replace(
            w=cut(s.w), mean=cut(s.mean), a=cut(s.a), diverged=cut(s.diverged), G=None,
            memory=both(s.memory), moments=both(s.moments),
            snapshot=s.snapshot and s.snapshot.of_run(kept),
            notes={name: x if name.startswith("curve") else cut(x) for name, x in s.notes.items()},
        )  # fmt: skip
        self.plan = replace(self.plan, lr=replace(self.plan.lr, first=self.plan.lr.first[kept]))

    def _again(self):
        """From the start with a quarter of the rate, twice at most."""
        t = int(np.max(self.state.diverged))
        if self.slower == 2:
            self.state = self.state._replace(count=0)
            return "diverged three times"
        self.slower += 1
        self.words = (*self.words, f"diverged at step {t}; began again with a quarter of the rate")
        lr, q = self.plan.lr, self.plan.q
        self.looks = ()
        slow = replace(lr, first=lr.first / 4) if callable(lr) else lr / 4
        w = q.start() if self.begin is None else q.joined(self.begin.mu, self.begin.S)
        afresh = lambda c: fitted(stands_for(c), q, w) if curve_of(c) and not self.has_lines else c
        self.plan = replace(self.plan, lr=slow, cvs=tuple(map(afresh, self.plan.cvs)))
        w = np.broadcast_to(w, self.state.w.shape)
        self.state = optimize.init(self.plan, self.state.rng, w=w)
        return ""

    # What came of it

    def result(self):
        model, q, w = self.plan.model, self.plan.q, self.best
        with np.errstate(all="ignore"):
            lw, z = log_weights(model, q, w, self.state.t + 1, with_z=True)
            fine = np.isfinite(lw)
            share = np.where(fine, np.exp(lw - lw[fine].max(initial=-np.inf)), 0.0)
            share = share / share.sum()
        effective = float(1 / (share**2).sum() / len(lw))
        if fine.any():
            lw = lw[fine]
        words = (*self.words, *self._said(effective))
        return Fit(
            model, q, w, float(lw.mean()), float(lw.std() / np.sqrt(len(lw))), effective,
            np.array(self.looks).reshape(-1, 3), self.settled, self.state.t, self.seconds, words,
            tuple(self._doubts(z, share, effective, 1 - fine.mean())), self,
        )  # fmt: skip

    def _samples(self):
        return any(word.samples for word, _ in self.plan.h.parts)

    def _said(self, effective):
        plan = self.plan
        batch = plan.sampling.batch
        seen = "all data" if batch is None else f"batches of {batch}"
        how = "natural steps" if self.kind == "natural" else "Adam's steps"
        draws = f"{plan.M} draws" if self._samples() else "no draws"
        line = f"{how} with {draws}, {seen}, on {plan.h!r}"
        yield line + (f" with {', '.join(map(repr, plan.cvs))}" if plan.cvs else "")
        yield f"importance weights keep {effective:.0%} of the draws"

    def _doubts(self, z, share, effective, lost):
        """Sentences that begin with what is wrong and end with what to do."""
        model, q = self.plan.model, self.plan.q
        if self.begin is not None and not self.begin.mode:
            yield (
                f"{self.begin.says}. A prior may be missing, or a log-Jacobian have the wrong "
                "sign; if neither is, compare with draws of another method"
            )
        if self.slower:
            yield (
                f"the run diverged {self.slower + (not self._finite())} times: try more draws M, "
                "scale the data, or put a prior on what they do not tell"
            )
        rates = getattr(self.plan.lr, "first", None)
        if self.kind == "adam" and np.size(rates) == 1 and rates[0] in RATES[[0, -1]]:
            yield (
                f"the best rate, {rates[0]:g}, is at the edge of those that were tried: go on, or "
                "scale z so that its posterior is about one wide"
            )
        if lost > 0:
            yield (
                f"log p(x, z) is no number at {lost:.1%} of the draws of q, which were left out: "
                "something overflows there, or a matrix is singular"
            )
        if not self.settled:
            yield "the ELBO had not settled: give more seconds or steps, fit.go_on(seconds=60)"
        if not effective >= FAIR:  # or NaN
            k, sentence = worst(q, self.best, z, share)
            yield (
                f"importance weights keep {effective:.0%} of the draws: the posterior does not "
                f"have the shape of q, {sentence}. No variate will help: write z[{k}] in other "
                "coordinates, or take another q, or compare with draws of another method"
            )
        yield from conflicts(model, q.mean(self.best))

    # Files

    @property
    def has_lines(self):
        return any(line is not None for line in self.given)

    def save(self, path):
        plan, q, begin = self.plan, self.plan.q, self.begin
        about = {name: getattr(self, name) for name in SAVED} | {
            "q": [type(q).__name__, *q.key[1:]], "M": plan.M,
            "batch": plan.sampling.batch,
            "begin": begin and [begin.mode, begin.says], "model": repr(plan.model),
            "given": self.has_lines,
        }  # fmt: skip
        notes = {"fit": np.array(json.dumps(about)), "fit best": self.best}
        notes["fit rate"] = np.asarray(getattr(plan.lr, "first", plan.lr))
        if begin is not None:
            notes |= {"fit mu": begin.mu, "fit S": begin.S}
        self.state._replace(notes=self.state.notes | notes).save(path)

    @classmethod
    def load(cls, path, model, h=None, cvs=None, weights=None):
        state = optimize.load(path)
        notes = {k: x for k, x in state.notes.items() if k.startswith("fit")}
        if "fit" not in notes:
            raise ValueError(f"{path} holds no fit: it is a state, for optimize.load")
        about = json.loads(str(notes["fit"]))
        if about["model"] != repr(model):
            raise ValueError(f"{path} is a fit of {about['model']}, not of {model!r}")
        if about["given"] and h is None:
            raise ValueError("this fit was given h or cvs: give them to Fit.load again")
        name, *sizes = about["q"]
        q, kind, batch = getattr(families, name)(*sizes), about["kind"], about["batch"]
        begin = Start(notes["fit mu"], notes["fit S"], *about["begin"]) if about["begin"] else None
        given = h, cvs, weights
        if h is None:
            learnt = {"state": state} if "curve S" in state.notes else {"w": notes["fit best"]}
            h, known = _lines(model, q, kind, batch, **learnt)
            cvs = [known[name] for name in about["names"]]
        plan = _plan(model, q, kind, begin, h, cvs, weights, about["M"], batch)
        rate = notes["fit rate"]
        plan = replace(plan, lr=replace(plan.lr, first=rate) if callable(plan.lr) else rate)
        kept = {k: x for k, x in state.notes.items() if k not in notes}
        told = {k: tuple(about[k]) if isinstance(about[k], list) else about[k] for k in SAVED}
        state, best = state._replace(notes=kept), notes["fit best"]
        return cls(plan=plan, begin=begin, state=state, best=best, given=given, **told)


def _bar(progress):
    if not progress:
        return None
    from tqdm import tqdm  # takes a third of the time of import cvlib

    return tqdm(leave=False, desc="fit", unit=" steps")
