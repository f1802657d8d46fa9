"""The loop: stochastic gradient ascent on the ELBO with control variates, all runs as one batch.

A plan is what stays the same, a state is what a step changes: `state = step(state, plan)`. `sgd`
and `noise_free` are the loop around it. What a step makes of a gradient and what weights the
variates get are values of `rules`.
"""

import json
import math
import os
import warnings
from bisect import bisect_left
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path as File
from typing import NamedTuple

import numpy as np

from ..arguments import numbers, whole
from ..combining import combine
from ..families.base import check_fit
from ..recipe.draws import draw
from ..recipe.estimators import Estimator, check_gradient, check_variate, evaluate
from ..recipe.integrands import Wants, wanted
from ..recipe.sampling import Sampling
from ..recipe.snapshots import Snapshot, snapshot
from . import exact, rules

HUGE = 1e200  # a gradient of larger squared length, or one that overflows, is a run thrown out
RECORD = 100e6  # bytes that a record may have before it is thinned
FORMAT = "cvlib state 1"
SAVED = ("t", "w", "a", "diverged", "mean", "count")


class Diverged(UserWarning):
    """Some runs left the finite world."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped from the keyboard. `path` is the `Path` so far; nothing of it is lost."""

    @property
    def path(self):
        return self.args[0]

    def __str__(self):
        t = self.path.state.t
        return f"stopped after step {t}: see .path, and go on with sgd(..., state=.path.state)"


# State: what a step changes ----------------------------------------------------------------------


class State(NamedTuple):
    """Where a run stands. The generator `rng` moves on with every step; all else is replaced."""

    t: int  # steps taken
    w: np.ndarray  # (..., D)
    memory: tuple  # of the ascent rule
    moments: tuple  # memory of the weight rule
    a: np.ndarray  # (..., L) or (..., L, D), weights of the control variates at step t
    diverged: np.ndarray  # (...) step at which a run left the finite world, -1 if it did not
    mean: np.ndarray  # (..., D) mean of w since step `plan.average`
    count: int  # number of steps in it
    rng: np.random.Generator | None
    G: np.ndarray | None  # (..., 1 + L, M, D), h and variates at step t; the next writes over it
    notes: dict  # arrays that a hook wants to keep, by name

    @property
    def snapshot(self):
        """The snapshot that the notes keep, or None."""
        kept = [self.notes.get(f"snapshot {name}") for name in Snapshot._fields]
        return None if kept[0] is None else Snapshot(*kept)

    def save(self, path):
        """All but G into one file, whole or not at all; `load` reads it."""
        groups = {"memory": self.memory, "moments": self.moments}
        arrays = {f"{name} {k}": x for name, group in groups.items() for k, x in enumerate(group)}
        arrays |= {f"notes {name}": x for name, x in self.notes.items()}
        arrays |= {name: getattr(self, name) for name in SAVED}
        bits = self.rng and self.rng.bit_generator.state
        text = json.dumps({"format": FORMAT, "rng": bits}, default=np.ndarray.tolist)
        path = File(path)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with open(part, "wb") as file:
                np.savez(file, allow_pickle=False, text=text, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def load(path):
    """The `State` that was saved in a file. The run goes on from it as if it had not stopped."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: x if x.ndim else x.item() for name, x in file.items()}
        about = json.loads(found["text"])
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
        state = {name: found[name] for name in SAVED} | {"rng": _generator(about["rng"])}
    except FileNotFoundError:
        raise
    except Exception as error:  # a broken file fails in many ways
        raise ValueError(f"{path} holds no state that was saved whole: {error!r}") from error
    for name in "memory", "moments", "notes":
        start = f"{name} "
        state[name] = {k[len(start) :]: x for k, x in found.items() if k.startswith(start)}
    state |= {name: tuple(state[name].values()) for name in ("memory", "moments")}
    return State(**state | {"diverged": np.asarray(state["diverged"]), "G": None})


def _generator(bits):
    """The generator in this state."""
    if bits is None:
        return None
    rng = np.random.Generator(getattr(np.random, bits["bit_generator"])())
    rng.bit_generator.state = bits
    return rng


# Plans: what stays the same ----------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Ascent on ELBO / N; a subclass says where gradients come from.

    `lr` is a number, an array with one a run, or a function of the step t = 1, 2, ... With
    `average` = s the state keeps the mean of w after the steps s, s + 1, ... to the present one.
    Another plan with a change is `dataclasses.replace(plan, lr=...)`.
    """

    model: object
    q: object
    _: KW_ONLY
    lr: object
    rule: rules.Ascent = rules.momentum()
    average: int | None = None

    remedies = "a smaller lr, or a start w nearer to the posterior"

    def __post_init__(self):
        if not isinstance(self.rule, rules.Ascent):
            raise TypeError(f"rule={self.rule!r} is no ascent rule such as rules.adam()")
        if not callable(self.lr):
            object.__setattr__(self, "lr", numbers("lr", self.lr, 0, above=True))
        if self.average is not None:
            whole("average", self.average)

    def rate(self, t, runs):
        """The learning rate of step t, a number or (..., 1)."""
        lr = numbers(f"lr({t})", self.lr(t), 0) if callable(self.lr) else self.lr
        if isinstance(lr, float):
            return lr
        if lr.shape != runs:
            raise ValueError(f"lr has shape {lr.shape}, the runs have {runs}: give one a run")
        return lr[..., None]

    def begin(self, runs):
        """Memory of the weight rule, and the first weights."""
        return (), np.zeros((*runs, 0))

    def refreshed(self, state):
        """The state before a step, with what is due every so many steps."""
        return state

    def gradient(self, state):
        """g (..., D), of ELBO / N; is it finite (...); and the new `moments`, `a` and `G`."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient")

    def noted(self, notes, a, G):
        """The notes after a step with these weights and gradients."""
        return notes


class NoiseFree(Plan):
    """The exact gradient."""

    def gradient(self, state):
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run is dealt with below
            g = exact.gradient(self.model, self.q, state.w) / self.model.N
            finite = np.vecdot(g, g) < HUGE  # no NaN either
        g[~finite] = 0.0
        return g, finite, state.moments, state.a, None


@dataclass(frozen=True)
class Noisy(Plan):
    """The mean over M samples of h + C a, the weights a from the steps before: g is unbiased.

    Samples see the data as in `draw`: one point each, a batch, or all of them. With `renew` a
    snapshot of the data term is taken before the first step and when the rule says so; K is short
    for `rules.every(K)`. `noise` is as in `draw`; the weight rule sees `combine.replicates`: a pair
    counts once, and so do all samples of "sobol" together.
    """

    h: Estimator
    cvs: tuple = ()
    _: KW_ONLY
    M: int
    weights: rules.Weighting = rules.bayes()
    subsample: bool = True
    batch: int | None = None
    each: bool = False
    renew: int | rules.Renewal | None = None
    noise: str = "plain"

    remedies = "a smaller lr, more samples M, better control variates, or another start w"

    def __post_init__(self):
        super().__post_init__()
        _check_lines(self.h, self.cvs)
        whole("M", self.M)
        if self.noise != "plain":
            Sampling(noise=self.noise).group(self.q, self.M)
        if isinstance(self.renew, str | type):
            raise TypeError(
                f"renew={self.renew!r} is no rule: write renew=K for a snapshot every K steps, "
                "rules.every(K), or rules.worn() for one when it is worn out"
            )
        if not isinstance(self.renew, rules.Renewal | None):
            object.__setattr__(self, "renew", rules.every(self.renew))
        alike = self.M == 1 or (self.batch is not None and not self.each) or self.noise != "plain"
        if self.renew and self.renew.measures and self.cvs and alike:
            raise ValueError(
                f"{self.renew!r} measures noise by the scatter of a step's samples, which must be "
                "two at least, drawn apart, and see data of their own: take M=2 or more, each=True "
                'and noise="plain", or renew=K'
            )
        if not isinstance(self.weights, rules.Weighting):
            raise TypeError(f"weights={self.weights!r} is no weight rule such as rules.bayes()")

    @cached_property
    def lines(self):
        return [self.h, *self.cvs]

    @cached_property
    def weighting(self):
        return self.weights if self.cvs else rules.none()

    def begin(self, runs):
        L = len(self.cvs)
        return self.weighting.start(self.q, L, runs), np.zeros((*runs, L))

    def refreshed(self, state):
        rule, notes = self.renew, state.notes
        memory = notes.get("snapshot rule")
        if rule is None or not (memory is None or rule.due(state.t, memory)):
            return state
        mu, factor = self.q.moments(state.w)
        wants = wanted(atom for line in self.lines for _, atom in line.parts) or Wants(2)
        factor = factor if wants.factor else None
        new = snapshot(self.model, mu, **wants._asdict() | {"factor": factor})._asdict()
        kept = {f"snapshot {name}": x for name, x in new.items() if x is not None}
        return state._replace(notes=notes | kept | {"snapshot rule": rule.start()})

    def noted(self, notes, a, G):
        if not (self.renew and self.renew.measures):
            return notes
        scatter = lambda g: np.sum((g - g.mean(-2, keepdims=True)) ** 2)
        h, C = G[..., 0, :, :], G[..., 1:, :, :]
        left = scatter(combine.combine(h, C, a)) / max(scatter(h), 1e-300)
        return notes | {"snapshot rule": self.renew.seen(notes["snapshot rule"], left)}

    def gradient(self, state):
        q, N, weighting = self.q, self.model.N, self.weighting
        d = draw(
            self.model, q, state.w, self.M, state.rng, subsample=self.subsample, batch=self.batch,
            each=self.each, snapshot=state.snapshot, noise=self.noise,
        )  # fmt: skip
        runs = state.w.shape[:-1]
        shape = (*runs, len(self.lines), self.M, q.D)
        G = np.empty(shape) if state.G is None or state.G.shape != shape else state.G
        flat = G.reshape(*runs, -1)
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run is dealt with below
            evaluate(self.lines, d, out=G, check=False)
            finite = np.vecdot(flat, flat) < HUGE  # no NaN either
        if not finite.all():
            G[~finite] = 0.0  # a broken run must not break the moments of the others
        base, C = G[..., 0, :, :], G[..., 1:, :, :]
        a = weighting.weights(state.moments, q, N)
        g = combine.mean(base, C, a) / N  # (..., D)
        if d.group > 1:
            base, C = combine.replicates(base, d.group), combine.replicates(C, d.group)
        return g, finite, weighting.update(state.moments, base, C, q), a, G


# Steps -------------------------------------------------------------------------------------------


def init(plan, rng=None, *, w=None, runs=()):
    """The state before the first step: `runs` repetitions side by side, from w or from q.start."""
    check_fit(plan.model, plan.q)
    q, starts = plan.q, () if w is None else np.shape(w)[:-1]
    try:
        runs = np.broadcast_shapes(runs, starts)
    except ValueError:
        raise ValueError(f"runs={runs}, but w starts {starts} runs: leave runs out") from None
    w = q.start(runs) if w is None else q.check(w)
    w = np.broadcast_to(w, (*runs, q.D)).copy()
    plan.rate(1, runs)
    moments, a = plan.begin(runs)
    return State(
        t=0, w=w, memory=plan.rule.start(q, w), moments=moments, a=a, diverged=np.full(runs, -1),
        mean=np.zeros_like(w), count=0, rng=rng, G=None, notes={},
    )  # fmt: skip


def step(state, plan):
    """The state after one more step.

    A run whose gradient is not finite, or whose w would go beyond q.far, stays where it is from
    then on and is marked in `diverged`.
    """
    state = plan.refreshed(state)
    t, w, diverged, mean, count = state.t + 1, state.w, state.diverged, state.mean, state.count
    g, finite, moments, a, G = plan.gradient(state)
    rate = plan.rate(t, w.shape[:-1])
    moved, memory = plan.rule.step(state.memory, w, g, rate, plan.q, plan.model.N)
    going = finite & (diverged < 0) & (np.abs(moved).max(-1) < plan.q.far)
    if not going.all():
        diverged = np.where(going | (diverged >= 0), diverged, t)
        moved = np.where(going[..., None], moved, w)
    if plan.average is not None and t >= plan.average:
        count += 1
        mean = plan.rule.average(mean, moved, count, plan.q)
    notes = plan.noted(state.notes, a, G)
    return State(t, moved, memory, moments, a, diverged, mean, count, state.rng, G, notes)


class Path(NamedTuple):
    """What a run leaves: weights at the recorded steps, and where it broke off, if it did."""

    w: np.ndarray  # (..., D) after the last step
    steps: np.ndarray  # (T,) recorded steps, 0 is the start
    path: np.ndarray  # (T, ..., D) weights at those steps
    a: np.ndarray  # (..., L) weights of the control variates at the last step, or (..., L, D)
    diverged: np.ndarray  # (...) step at which a run left the finite world, -1 if it did not
    average: np.ndarray | None  # (..., D) mean of w over the steps from `average` on
    state: State  # where it stands: sgd(..., state=path.state) goes on


def sgd(
    model, q, h, cvs=(), *, lr, steps, M, rng=None, w=None, runs=(), momentum=0.9, gamma=0.02,
    v0=1e-3, every=None, subsample=True, progress=False, rule=None, weights=None, average=None,
    hooks=None, state=None, batch=None, each=False, renew=None, noise="plain",
):  # fmt: skip
    """Momentum ascent on ELBO / N: v <- momentum v + (1 - momentum) g, w <- w + lr v.

    g is the mean over M samples of h + C a, with a from the Bayesian rule on moments averaged over
    the steps before, so that g is unbiased. `v0` is in units of the gradient of ELBO / N. `runs`
    repetitions go side by side. A run that diverges stays at its last finite weights, is marked
    in `diverged`, and a warning says so.

    lr: a number, one for each run, or a function of the step t = 1, 2, ...
    rule, weights: other rules than these two, from `rules`; momentum, v0, gamma are then left out.
    average: a step s; the mean of w after the steps s, s + 1, ..., `steps` is `Path.average`.
    every: record every so many steps, and the last. Without it every step is recorded, or every
        k-th with the smallest k that keeps the record under 100 MB.
    hooks: {k: function}; function(state, plan) is called after the steps k, 2 k, ... It returns
        nothing, or the pair (state, plan) to go on with, or raises StopIteration to end the run.
    batch, each: how many data points a sample sees, as in `draw`.
    noise: "plain", "pairs" or "sobol", as in `draw`.
    renew: K, or a rule such as rules.worn(); take a snapshot of the data term every K steps, or
        when it is worn out, for taylor_z(data, at="snapshot") and bound(data, at="snapshot").
    state: go on from there, to step `steps`; w, runs and rng are the state's own.
    """
    if weights is not None and (np.any(v0 != 1e-3) or gamma != 0.02):
        raise ValueError("v0 and gamma belong to the weight rule: write them there, or no weights")
    plan = Noisy(
        model, q, h, cvs, lr=lr, M=M, subsample=subsample, average=average, batch=batch, each=each,
        renew=renew, noise=noise, rule=_rule(rule, momentum),
        weights=rules.bayes(v0, gamma) if weights is None else weights,
    )  # fmt: skip
    if state is None:
        if not isinstance(rng, np.random.Generator):
            seed = 0 if rng is None else rng
            raise ValueError(f"rng={rng!r}: give a generator, rng=np.random.default_rng({seed!r})")
        state = init(plan, rng, w=w, runs=runs)
    elif not (rng is None and w is None and runs == ()):
        raise ValueError("the state has its own w, runs and rng: leave them out")
    return _ascend(state, plan, steps, every, hooks, progress)


def noise_free(
    model, q, *, lr, steps, w=None, momentum=0.9, every=None, rule=None, average=None, hooks=None
):
    """The same ascent with the exact gradient: what no control variate can beat."""
    plan = NoiseFree(model, q, lr=lr, rule=_rule(rule, momentum), average=average)
    return _ascend(init(plan, w=w), plan, steps, every, hooks, progress=False)


def thinning(steps, nbytes):
    """The smallest k for which `steps` recorded every k-th step stay under 100 MB, w of nbytes."""
    return math.ceil(steps / max(1, RECORD // nbytes - 2))  # and the first, and the last


# Inside ------------------------------------------------------------------------------------------


def _ascend(state, plan, steps, every, hooks, progress):
    """Steps up to number `steps`, and a record of the way."""
    steps, hooks = whole("steps", steps), _checked_hooks(hooks)
    state, before = _fitted(state, plan, steps), state.diverged
    every = thinning(steps, state.w.nbytes) if every is None else whole("every", every)
    kept = [t for t in range(state.t, steps + 1) if t % every == 0 or t in (state.t, steps)]
    record, n = np.empty((len(kept), *state.w.shape)), 1
    record[0] = state.w

    def path():
        n = bisect_left(kept, state.t)  # the run may have ended between two of them
        record[n] = state.w
        average = state.mean if state.count else None
        at, end = np.array([*kept[:n], state.t]), state._replace(G=None)
        return Path(state.w, at, record[: n + 1], state.a, state.diverged, average, end)

    safe = state, _bits(state.rng)  # under one name: an interrupt finds two that belong together
    try:
        for t in _shown(range(state.t + 1, steps + 1), progress):
            state = step(state, plan)
            try:
                for k, hook in hooks.items():
                    if t % k == 0:
                        state, plan = _answer(hook(state, plan), state, plan)
            except StopIteration:
                break
            if t == kept[n]:
                record[n] = state.w
                n += 1
            safe = state, _bits(state.rng)
    except KeyboardInterrupt:
        state, bits = safe
        if bits is not None:
            state.rng.bit_generator.state = bits
        raise Interrupted(path()) from None
    lost = state.diverged[(state.diverged >= 0) & (before < 0)]
    if lost.size:
        warnings.warn(
            f"{lost.size} of {before.size} runs diverged, the first at step {lost.min()}: they "
            f"stay at their last finite weights (see .diverged). Try {plan.remedies}",
            Diverged,
            stacklevel=3,
        )
    return path()


def _shown(steps, progress):
    """The steps, with a bar if one is wanted."""
    if not progress:
        return steps
    from tqdm import tqdm  # takes a third of the time of import cvlib

    return tqdm(steps, leave=False)


def _rule(rule, momentum):
    if rule is None:
        return rules.momentum(momentum)
    if momentum != 0.9:
        raise ValueError(f"momentum={momentum} is for rules.momentum: leave it out, or the rule")
    return rule


def _bits(rng):
    return None if rng is None else rng.bit_generator.state


def _answer(answer, state, plan):
    """What a hook wants to go on with, or the same as before."""
    if answer is None:
        return state, plan
    pair = isinstance(answer, tuple) and len(answer) == 2
    if not (pair and isinstance(answer[0], State) and isinstance(answer[1], Plan)):
        raise TypeError(f"a hook returns nothing or the pair (state, plan); got {answer!r}")
    if answer[0].t != state.t:
        raise ValueError(f"a hook after step {state.t} returned a state of step {answer[0].t}")
    return _fitted(*answer), answer[1]


def _fitted(state, plan, steps=math.inf):
    """The state, if it is one that this plan can go on from."""
    if not isinstance(state, State):
        raise TypeError(f"state={state!r} is no State: take path.state or optimize.load(file)")
    w = plan.q.check(state.w)
    if state.t >= steps:
        raise ValueError(f"the state has taken {state.t} steps: steps={steps} must lie beyond")
    if plan.average is not None and plan.average > steps:
        raise ValueError(f"average={plan.average}: the run ends before, at step {steps}")
    runs, shapes = w.shape[:-1], lambda memory: [np.shape(x) for x in memory]
    plan.rate(state.t + 1, runs)
    if shapes(state.memory) != shapes(plan.rule.start(plan.q, w)):
        raise ValueError(f"the state remembers another rule than {plan.rule!r}: begin with init")
    if shapes(state.moments) != shapes(plan.begin(runs)[0]):
        raise ValueError(
            "the state remembers another weight rule, or another number of variates, than the "
            "plan has: begin with init"
        )
    return state


def _checked_hooks(hooks):
    hooks = {} if hooks is None else hooks
    if not isinstance(hooks, dict) or not all(map(callable, hooks.values())):
        raise TypeError(f"hooks={hooks!r}: write for example {{50: function}}, every fifty steps")
    return {whole("a hook's number of steps", k): hook for k, hook in hooks.items()}


def _check_lines(h, cvs):
    if not isinstance(cvs, list | tuple):
        right = {Estimator: f"[{cvs!r}]", type(None): "[]", dict: "list(cvs.values())"}
        hint = right.get(type(cvs), "for example [c7], or zoo.S7")
        raise TypeError(f"cvs must be a list: write {hint}")
    check_gradient(h)
    for c in cvs:
        check_variate(c)
