"""Runners in NumPy: the ways of this book, by cvlib and by hand, and score matching beside them.

A way of the loop is line(problem, setting, w) -> a plan and the gradients of one of its steps.
"""

import warnings

import numpy as np

import cvlib as cv
from benchmarks.race import peers
from benchmarks.race.moves import laplace, matched, newton, regressed, scored
from benchmarks.race.rules import ADAM, AFTER, BOTH, OURS, RATES, SEARCH, Runner, once
from cvlib import CF, PR, RP1, rules, taylor_z
from cvlib.ascent.optimize import Noisy, init, step
from cvlib.fitting.run import planned
from cvlib.models.density import Density
from cvlib.special import hess_times

M, KL = 10, "KL(q, p)"


def curvature(model):
    """Slope and Hessian of log p(x, z) at one z: what a search for the mode needs."""
    density, I = Density(model), np.eye(model.dim)

    def slope(z):
        (value,), (g,) = density.slope(z[None])
        return value, g

    return slope, lambda z: hess_times(model.log_joint, np.broadcast_to(z, I.shape), I), model.dim


def began(problem, start):
    """w (D,) and gradients spent, where the setting says."""
    if start == "usual":
        return problem.start, 0
    mu, L, spent, _ = laplace(*curvature(problem.model))
    return problem.q.pack(mu, L), spent


def mode_alone(problem, setting, seed):
    """The mode, its curvature, nothing else."""
    yield 0, problem.start
    mu, L, spent, sure = laplace(*curvature(problem.model))
    if not sure:
        raise ValueError("no positive curvature at the mode")
    yield spent, problem.q.pack(mu, L)


def by_quadrature(problem, setting, seed):
    yield 0, problem.start
    yield 0, cv.exact.optimum(problem.model, problem.q)


# The loop ----------------------------------------------------------------------------------------


def loop(line, each=1):
    def run(problem, setting, seed):
        yield 0, problem.start
        rng = np.random.default_rng(seed)
        w, spent = began(problem, setting["start"])
        yield spent, w
        plan, cost = line(problem, setting, w)
        state = init(plan, rng, w=w)
        with np.errstate(all="ignore"):
            while state.diverged < 0:
                for _ in range(each):
                    state = step(state, plan)
                spent += each * cost
                yield spent, state.w
        raise ArithmeticError("diverged")

    return run


def rate(setting):
    if setting["after"] is None:
        return setting["rate"]
    return rules.falling(setting["rate"], setting["after"])


def noisy(problem, setting, h, cvs=(), rule=None, **options):
    how = {"M": M, "rule": rule or rules.adam(), "sampling": cv.Sampling(subsample=False)}
    return Noisy(problem.model, problem.q, h, cvs, **how | {"lr": rate(setting)} | options)


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


def price(problem, setting, w):
    """All three terms by Price's formula, in opposite pairs, natural steps."""
    data, prior, variational = cv.terms(problem.model, problem.q)
    h, pairs = PR(data + prior - variational), cv.Sampling(subsample=False, noise="pairs")
    plan = noisy(problem, setting, h, rule=rules.natural(), sampling=pairs)
    return plan, M * (1 + problem.model.dim)


def quadratics(problem, setting, w):
    plan = planned("full", problem.model, problem.q)
    return plan, plan.M


def choice(problem, w):
    """What `choose` chooses at w for natural steps with all data."""
    model, q = problem.model, problem.q
    how = {"pilot": 12, "seconds": 0.01, "resamples": 20, "natural": True}
    how |= {"among": cv.candidates(model, q, False, M), "rng": np.random.default_rng(0)}
    return cv.choose(model, q, w, M=M, sampling=cv.Sampling(subsample=False), **how)


def chosen(problem, setting, w):
    """Natural steps on what is chosen; the pilot is on the clock."""
    found = choice(problem, w)
    hessians = M * ("PR" in found.set.base) + bool(found.set.cvs)
    plan = noisy(problem, setting, **found.line, rule=rules.natural())
    return plan, M + problem.model.dim * hessians


def in_jax(problem):
    """The problem's model, compiled by JAX: `models.from_jax`."""

    def build():
        model = cv.models.from_jax(peers.in_jax(problem), problem.model.dim)
        for n in (1, 16, 256):  # points that are computed at once
            Density(model).slope(np.zeros((n, model.dim)))
        return model

    return once((problem.name, "from_jax"), build)


def compiled(problem, setting, seed):
    """All quadratics by cvlib, on a model that JAX has compiled."""
    model = in_jax(problem)
    peers.curvature(problem)
    yield 0, problem.start
    mu, L, spent = peers.began(problem, setting["start"])
    w = problem.q.pack(mu, L)
    yield spent, w
    plan = planned("full", model, problem.q)
    state = init(plan, np.random.default_rng(seed), w=w)
    while state.diverged < 0:
        state = step(state, plan)
        spent += plan.M
        yield spent, state.w
    raise ArithmeticError("diverged")


def front_door(told=lambda problem: problem.model):
    """`cv.fit` of the model as it is told, look by look."""

    def run(problem, setting, seed):
        model = told(problem)
        yield 0, problem.start
        spent, plain_totals = 0, model.totals

        def counted(z, order, *args, **kwargs):
            nonlocal spent
            spent += z.size // model.dim
            return plain_totals(z, order, *args, **kwargs)

        model.totals = counted
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cv.Distrust)
                fit = cv.fit(model, problem.q, steps=10, seed=seed, progress=False)
                yield spent, fit.w
                while not fit.settled:
                    fit = fit.go_on(steps=2 * fit.steps, progress=False)
                    yield spent, fit.w
        finally:
            del model.totals

    return run


# By hand -----------------------------------------------------------------------------------------


def on_scores(move):
    """Draws e, the slopes of log p at them, and a move made of both; autograd and NumPy alone."""

    def run(problem, setting, seed):
        yield 0, problem.start
        rng, density = np.random.default_rng(seed), Density(problem.model)
        w, spent = began(problem, setting["start"])
        yield spent, w
        mu, L = problem.q.unpack(w)
        d, t = len(mu), 0
        B = max(2 * d, 20)
        while True:
            e = rng.standard_normal((B, d))
            g = density.slope(mu + e @ L.T)[1]
            t, spent = t + 1, spent + B
            mu, L = move(mu, L, e, g, t, setting)
            yield spent, problem.q.pack(mu, L)

    return run


def match(mu, L, e, g, t, setting):
    return matched(np, mu, L, mu + e @ L.T, g, setting.get("rate", 1.0) * e.size / t)


def score(mu, L, e, g, t, setting):
    return scored(np, mu, L, mu + e @ L.T, g)


def regress(mu, L, e, g, t, setting):
    """All quadratics: the first moves by batch and match, then natural steps on the regression."""
    if t <= setting["moves"]:
        return match(mu, L, e, g, t, {})
    c, A = regressed(np, e, g @ L + e, e.shape[1] / 10)
    return newton(np, mu, L, c, A, min(1.0, setting["after"] / (t - setting["moves"])))


NATURAL = {"rate": (RATES, 0.3), "after": (AFTER, 10)} | BOTH
FIXED = {name: ((first,), first) for name, (_, first) in NATURAL.items()}  # choosing is slow
ALONE = ("autograd.numpy",)
glm = lambda problem: problem.glm
RUNNERS = (
    Runner("Laplace", "-", mode_alone, {}, (*ALONE, SEARCH)),
    Runner("exact.optimum", KL, by_quadrature, enters=glm, ours=True),
    Runner("cvlib, fit", KL, front_door(), ours=True),
    Runner("cvlib, fit, JAX model", KL, front_door(in_jax), {}, (*OURS, "jax"), ours=True),
    Runner("cvlib, all quadratics", KL, loop(quadratics), BOTH, ours=True),
    Runner("cvlib, all quadratics, JAX model", KL, compiled, BOTH, (*OURS, "jax"), ours=True),
    Runner("all quadratics by hand", KL, on_scores(regress), peers.QUADRATICS, ALONE, ours=True),
    Runner("batch and match", "score", on_scores(match), peers.MATCH, ALONE),
    Runner("score matching", "score", on_scores(score), BOTH, ALONE),
    Runner("cvlib, Price, natural", KL, loop(price), NATURAL, ours=True),
    Runner("cvlib, chosen, natural", KL, loop(chosen), FIXED, ours=True),
    Runner("cvlib, c7", KL, loop(one_variate, 10), ADAM | BOTH, ours=True),
    Runner("cvlib, seven", KL, loop(seven, 10), ADAM | BOTH, enters=glm, ours=True),
    Runner("cvlib, plain", KL, loop(plain, 10), ADAM | BOTH, ours=True),
)  # fmt: skip
