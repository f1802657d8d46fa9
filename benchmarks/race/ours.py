"""Ways of cvlib: its front door, its exact optimum, and Adam with and without variates in NumPy.

A way of the loop is line(problem, setting, w) -> a plan and the gradients of one of its steps.
"""

import re
import warnings

import numpy as np

import cvlib as cv
from benchmarks.fit import Counted
from benchmarks.race import hand
from benchmarks.race.hand import ADAM
from benchmarks.race.rules import MODE, OURS, START, STEPS, Look, Runner, clock, compiled, once
from cvlib import CF, RP1, rules, taylor_z
from cvlib.ascent.optimize import Noisy
from cvlib.models.density import Density
from cvlib.special import hess_times

M = 10


def curvature(model):
    """Slope and Hessian of log p(x, z) at one z: what a search for the mode needs."""
    density, I = Density(model), np.eye(model.dim)

    def slope(z):
        (value,), (g,) = density.slope(z[None])
        return value, g

    return slope, lambda z: hess_times(model.log_joint, np.broadcast_to(z, I.shape), I), model.dim


def began(problem, start):
    return hand.began(problem, start, curvature(problem.model))


def by_quadrature(problem, setting, seed, seconds):
    yield Look(0, problem.start, START)
    yield Look(0, cv.exact.optimum(problem.model, problem.q), STEPS)


# The loop ----------------------------------------------------------------------------------------


def loop(line, each=1):
    """Steps of a plan, a few at a time."""

    def run(problem, setting, seed, seconds):
        rng, about = np.random.default_rng(seed), curvature(problem.model)
        mu, L, spent = yield from hand.started(problem, setting, about)
        w = problem.q.pack(mu, L)
        plan, cost = line(problem, setting, w)
        state = plan.first(rng, w=w)
        with np.errstate(all="ignore"):
            while state.diverged < 0:
                for _ in range(each):
                    state = plan.step(state)
                spent += each * cost
                yield Look(spent, state.w, STEPS)
        raise ArithmeticError("diverged")

    return run


def noisy(problem, setting, h, cvs=(), **options):
    """Adam's steps with all data; the rate is constant, or falls like 1 / t."""
    rate, after = setting["rate"], setting["after"]
    how = {"M": M, "rule": rules.adam(), "sampling": cv.Sampling(subsample=False)}
    how |= {"lr": rate if after is None else rules.falling(rate, after)}
    return Noisy(problem.model, problem.q, h, cvs, **how | options)


def sampled(problem):
    """The plain gradient, the entropy exact, and what of it is sampled; all data."""
    data, prior, variational = cv.terms(problem.model, problem.q)
    if problem.glm:
        return RP1(data) + CF(prior) - CF(variational), data
    return RP1(data) + RP1(prior) - CF(variational), data + prior


def plain(problem, setting, w):
    return noisy(problem, setting, sampled(problem)[0]), M


def one_variate(problem, setting, w):
    h, f = sampled(problem)
    c7 = CF(taylor_z(f)) - RP1(taylor_z(f))
    plan = noisy(problem, setting, h, [c7], weights=rules.fixed(1.0))
    return plan, M + 1 + problem.model.dim


def seven(problem, setting, w):
    zoo = cv.zoo.paper(problem.model, problem.q)
    return noisy(problem, setting, zoo.h, zoo.S7), 2 * M + 1 + problem.model.dim


# The front door ----------------------------------------------------------------------------------


def front_door(told=lambda problem: problem.model):
    """`cv.fit` of the model as it is told, look by look, with the limit as its `seconds`."""

    def run(problem, setting, seed, seconds):
        model = told(problem)
        yield Look(0, problem.start, START)
        path, begun = [], clock()
        with Counted(model) as count:

            def seen(fit):
                path.append(Look(gradients(count, fit), fit.w.copy(), by(fit), clock() - begun))

            fit = fitted(model, problem.q, seed=seed, seconds=seconds, callback=seen)
            path.append(Look(gradients(count, fit), fit.w, by(fit), clock() - begun))
        yield from path

    return run


def fitted(model, q, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        return cv.fit(model, q, progress=False, **options)


def by(fit):
    """What had been done at a look: steps, of draws or of the exact ELBO, or the mode alone."""
    return STEPS if fit.steps or "exact ELBO" in " ".join(fit.words) else MODE


def gradients(count, fit):
    """So far; steps that stay inside JAX are those that the fit tells."""
    inside = re.search(r"(\d+) slopes at rotated draws .* inside JAX", " ".join(fit.words))
    return count.points + (int(inside[1]) * fit.steps if inside else 0)


def in_jax(problem):
    """The problem's model, compiled by JAX: `models.from_jax`; a short fit compiles its parts.

    Charged is what the first fit took more than a second one.
    """
    key = problem.name, "from_jax"
    if key not in compiled:
        began = clock()
        model = cv.models.from_jax(hand.in_jax(problem), problem.model.dim)
        for n in (1, 16, 256):  # points that are computed at once
            Density(model).slope(np.zeros((n, model.dim)))
        fitted(model, problem.q, seconds=problem.seconds)
        took, again = clock() - began, clock()
        fitted(model, problem.q, seconds=problem.seconds)
        compiled[key] = model, max(took - (clock() - again), 0.0)
    return once(key, None)


glm = lambda problem: problem.glm
RUNNERS = (
    Runner("exact.optimum", by_quadrature, enters=glm),
    Runner("cv.fit", front_door()),
    Runner("cv.fit, JAX model", front_door(in_jax), {}, (*OURS, "jax")),
    Runner("cvlib, c7", loop(one_variate, 10), ADAM),
    Runner("cvlib, seven", loop(seven, 10), ADAM, enters=glm),
    Runner("cvlib, plain", loop(plain, 10), ADAM),
)
