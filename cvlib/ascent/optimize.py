"""The loop: stochastic gradient ascent on the ELBO with control variates, all runs as one batch.

`plan.first(rng)` is the state before the first step, `plan.step(state)` the state after one more;
`sgd` and `noise_free` are the loop around them.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from ..arguments import bar, generator, whole
from ..draws import Sampling
from ..families.base import Family, check_fit
from ..models.density import Density, Model
from ..recipe.estimators import Estimator
from . import rules
from .plans import Noisy, Plan, State

RECORD = 100e6  # bytes that a record may have before it is thinned
SAMPLING = tuple(field.name for field in fields(Sampling))
Hook = Callable[[State, Plan], tuple[State, Plan] | None]


class Diverged(UserWarning):
    """Some runs left the finite world."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped from the keyboard. `path` is the `Path` so far; nothing of it is lost."""

    @property
    def path(self) -> "Path":
        return self.args[0]

    def __str__(self):
        t = self.path.state.t
        return f"stopped after step {t}: see .path, and go on with sgd(..., state=.path.state)"


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
    model: Model, q: Family, h: Estimator, cvs: list[Estimator] | tuple[Estimator, ...] = (), *,
    steps: int, rng: np.random.Generator | None = None, w: np.ndarray | None = None,
    runs: tuple = (), every: int | None = None, progress: bool = False,
    hooks: dict[int, Hook] | None = None, state: State | None = None, **plan: Any,
) -> Path:  # fmt: skip
    """Momentum ascent on ELBO / N: v <- momentum v + (1 - momentum) g, w <- w + lr v.

    g is the mean over M samples of h + C a, with a from the Bayesian rule on moments averaged over
    the steps before, so that g is unbiased. `runs` repetitions go side by side. A run that diverges
    stays at its last finite weights, is marked in `diverged`, and a warning says so.

    every: record every so many steps, and the last; without it, as many as 100 MB hold.
    progress: show a bar. Ctrl-C raises `Interrupted`, which has the path so far.
    hooks: {k: function}; function(state, plan) is called after the steps k, 2 k, ... It returns
        nothing, or the pair (state, plan) to go on with, or raises StopIteration to end the run.
    state: go on from there, to step `steps`; w, runs and rng are the state's own.
    plan: what `Noisy` takes:
        lr: a number, one for each run, or a function of the step t = 1, 2, ...
        M: samples a step. sampling: which data they see, and how they lean on each other.
        rule, weights: the ascent rule and the weight rule, from `rules`.
        average: a step s; the mean of w after the steps s, s + 1, ... is `Path.average`.
        renew: K, a snapshot of the data term every K steps, for a taylor_z, bound or parabola
            with at="snapshot".
      In place of `sampling` its fields: subsample, batch, each, noise. In place of rule=momentum(b)
      momentum=b, and of weights=bayes(v0, gamma) v0= and gamma=: 0.9, 1e-3, 0.02 if none is given.
    """
    noisy = Noisy(model, q, h, cvs, **_options(sgd, Noisy, plan))
    if state is None:
        state = noisy.first(generator(rng), w, runs)
    elif not (rng is None and w is None and runs == ()):
        raise ValueError("the state has its own w, runs and rng: leave them out")
    return _ascend(state, noisy, steps, every, hooks, progress)


def noise_free(
    model: Model, q: Family, *, steps: int, w: np.ndarray | None = None,
    every: int | None = None, hooks: dict[int, Hook] | None = None, **plan: Any,
) -> Path:  # fmt: skip
    """The same ascent with the exact gradient: what no control variate can beat.

    `plan` is lr, rule (or momentum) and average, as in `sgd`.
    """
    exact = Plan(model, q, **_options(noise_free, Plan, plan))
    return _ascend(exact.first(None, w), exact, steps, every, hooks)


def elbo(
    model: Model, q: Family, w: np.ndarray, M: int, rng: np.random.Generator
) -> tuple[float, float]:
    """ELBO(w), w (D,): the mean of log p(x, z) - log q_w(z) over M draws; its standard error."""
    if isinstance(model, Family):
        raise TypeError(f"{model!r} is a family: the model comes first, elbo(model, q, w, M, rng)")
    check_fit(model, q)
    w, M = q.one(w), whole("M", M, 2)
    z = q.sample(w, M, generator(rng))
    log = Density(model).value(z) - q.log_q(w, z)
    return float(log.mean()), float(log.std(ddof=1) / np.sqrt(M))


def thinning(steps: int, nbytes: int) -> int:
    """The smallest k for which `steps` recorded every k-th step stay under 100 MB, w of nbytes."""
    return math.ceil(steps / max(1, RECORD // nbytes - 2))  # and the first, and the last


def _options(who, kind, given):
    """What a plan of this kind takes, from the keywords of `who`: short forms in their places."""
    takes = [field.name for field in fields(kind) if field.kw_only]
    noisy = "sampling" in takes
    known = [*takes, "momentum", *(("v0", "gamma", *SAMPLING) if noisy else ())]
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # seldom needed
            from inspect import signature

            near = get_close_matches(name, [*known, *signature(who).parameters], 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"a plan takes {', '.join(known)}"
            raise TypeError(f"{who.__name__} has no argument {name!r}: {hint}")
    fill = lambda name, x: name in takes and (x is not None or name in ("lr", "M"))
    options = {name: x for name, x in given.items() if fill(name, x)}  # None: the default
    short = lambda *names: {name: given[name] for name in names if name in given}
    for rule, words in ("rule", short("momentum")), ("weights", short("v0", "gamma")):
        if words and rule in options:
            raise ValueError(f"{' and '.join(words)} and {rule}= are two rules: leave one out")
    options.setdefault("rule", rules.momentum(*short("momentum").values()))
    if noisy:
        options.setdefault("weights", rules.bayes(**short("v0", "gamma")))
        options["sampling"] = Sampling.of(options.get("sampling"), **short(*SAMPLING))
    return options


def _ascend(state, plan, steps, every, hooks, progress=False):
    """Steps up to number `steps`, and a record of the way."""
    steps, hooks = whole("steps", steps), {} if hooks is None else hooks
    if not isinstance(hooks, dict) or not all(map(callable, hooks.values())):
        raise TypeError(f"hooks={hooks!r}: write for example {{50: function}}, every fifty steps")
    hooks = {whole("a hook's number of steps", k): hook for k, hook in hooks.items()}
    state, before = _fitted(state, plan, steps), state.diverged
    every = thinning(steps, state.w.nbytes) if every is None else whole("every", every)
    kept = [(state.t, state.w)]
    bits = lambda: None if state.rng is None else state.rng.bit_generator.state
    safe = state, bits()  # under one name: an interrupt finds two that belong together
    todo = range(state.t + 1, steps + 1)
    try:
        for t in bar(todo) if progress else todo:
            state = plan.step(state)
            try:
                for k, hook in hooks.items():
                    if t % k == 0:
                        state, plan = _answer(hook(state, plan), state, plan)
            except StopIteration:
                break
            if t % every == 0:
                kept.append((t, state.w))
            safe = state, bits()
    except KeyboardInterrupt:
        state, before_it = safe
        if before_it is not None:  # as before the step that was broken off
            state.rng.bit_generator.state = before_it
        raise Interrupted(_path(state, kept)) from None
    lost = state.diverged[(state.diverged >= 0) & (before < 0)]
    if lost.size:
        warnings.warn(
            f"{lost.size} of {before.size} runs diverged, the first at step {lost.min()}: they "
            f"stay at their last finite weights (see .diverged). Try {plan.remedies}",
            Diverged,
            stacklevel=3,
        )
    return _path(state, kept)


def _path(state, kept):
    """The record of a run: kept steps and weights, and its end if that lies between two of them."""
    kept = [(t, w) for t, w in kept if t < state.t] + [(state.t, state.w)]
    at, record, end = *map(np.array, zip(*kept)), state._replace(G=None)
    average = state.mean if state.count else None
    return Path(state.w, at, record, state.a, state.diverged, average, end)


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
        raise TypeError(f"state={state!r} is no State: take path.state")
    w = plan.q.check(state.w)
    if state.t >= steps:
        raise ValueError(f"the state has taken {state.t} steps: steps={steps} must lie beyond")
    if plan.average is not None and plan.average > steps:
        raise ValueError(f"average={plan.average}: the run ends before, at step {steps}")
    runs, shapes = w.shape[:-1], lambda memory: [np.shape(x) for x in memory]
    plan.rate(state.t + 1, runs)
    has, wants = (state.memory, state.moments), (plan.memory(w), plan.begin(runs)[0])
    if [*map(shapes, has)] != [*map(shapes, wants)]:
        raise ValueError("the state is of other rules or variates than the plan: begin anew")
    return state
