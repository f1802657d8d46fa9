"""The loop: stochastic gradient ascent on the ELBO with control variates, all runs as one batch.

`plan.first(rng)` is the state before the first step, `plan.step(state)` the state after one more;
`sgd` and `noise_free` are the loop around them.
"""

import math
import warnings
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


class Diverged(UserWarning):
    """Some runs left the finite world."""


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
    state: State | None = None, **plan: Any,
) -> Path:  # fmt: skip
    """Momentum ascent on ELBO / N: v <- momentum v + (1 - momentum) g, w <- w + lr v.

    g is the mean over M samples of h + C a, with a from the Bayesian rule on moments averaged over
    the steps before, so that g is unbiased. `runs` repetitions go side by side. A run that diverges
    stays at its last finite weights, is marked in `diverged`, and a warning says so.

    every: record every so many steps, and the last; without it, as many as 100 MB hold.
    progress: show a bar.
    state: go on from there, to step `steps`; w, runs and rng are the state's own. What is to
        happen between steps stands in a loop of your own, over plan.step(state).
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
    return _ascend(state, noisy, steps, every, progress)


def noise_free(
    model: Model, q: Family, *, steps: int, w: np.ndarray | None = None,
    every: int | None = None, **plan: Any,
) -> Path:  # fmt: skip
    """The same ascent with the exact gradient: what no control variate can beat.

    `plan` is lr, rule (or momentum) and average, as in `sgd`.
    """
    exact = Plan(model, q, **_options(noise_free, Plan, plan))
    return _ascend(exact.first(None, w), exact, steps, every)


def elbo(
    model: Model, q: Family, w: np.ndarray, M: int, rng: np.random.Generator
) -> tuple[float, float]:
    """ELBO(w), w (D,): the mean of log p(x, z) - log q_w(z) over M draws; its standard error."""
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
    if unknown := [name for name in given if name not in known]:
        hint = f"a plan takes {', '.join(known)}"
        raise TypeError(f"{who.__name__} has no argument {unknown[0]!r}: {hint}")
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


def _ascend(state, plan, steps, every, progress=False):
    """Steps up to number `steps`, and a record of the way."""
    steps = whole("steps", steps)
    state, before = _fitted(state, plan, steps), state.diverged
    every = thinning(steps, state.w.nbytes) if every is None else whole("every", every)
    kept = [(state.t, state.w)]
    todo = range(state.t + 1, steps + 1)
    for t in bar(todo) if progress else todo:
        state = plan.step(state)
        if t % every == 0 or t == steps:
            kept.append((t, state.w))
    lost = state.diverged[(state.diverged >= 0) & (before < 0)]
    if lost.size:
        warnings.warn(
            f"{lost.size} of {before.size} runs diverged, the first at step {lost.min()}: they "
            f"stay at their last finite weights (see .diverged). Try {plan.remedies}",
            Diverged,
            stacklevel=3,
        )
    at, record = map(np.array, zip(*kept))
    average, end = state.mean if state.count else None, state._replace(G=None)
    return Path(state.w, at, record, state.a, state.diverged, average, end)


def _fitted(state, plan, steps):
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
