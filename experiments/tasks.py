"""What a cell computes. Every task takes its own generator and settings and gives plain numbers.

Gradients are those of ELBO / N, as in the loop; stored ELBOs are those of the whole data set.
"""

import hashlib
import warnings
from functools import cache

import numpy as np

from cvlib import combine, datasets, families, models, parabola, taylor_x_slope, taylor_z, zoo
from cvlib.ascent import exact, optimize, rules
from cvlib.draws import Draw, draw
from cvlib.recipe.atoms import terms
from cvlib.recipe.estimators import CF, PR, QD, RB, RP1, evaluate
from cvlib.recipe.integrands import Integrand, OnData, Wants

from . import climbs
from .answers import answers as answers  # a task as well
from .covered import covered as covered
from .store import digits

RECORDS = 20  # intervals between recorded steps


@cache
def problem(data):
    """Model, family and variates of a data set: a name of `datasets`, "toy", or "NAME-half-K"."""
    if data == "toy":
        X, y = datasets.toy()
    elif "-half-" in data:
        X, y = datasets.load(data.split("-half-")[0], rows=half(data))
    else:
        X, y = datasets.load(data)
    model = models.logistic_regression(X, y)
    q = families.Gaussian(model.dim)
    return model, q, zoo.paper(model, q)


def half(data):
    """The rows of a random half of a data set, drawn from the name "NAME-half-K"."""
    N = len(datasets.load(data.split("-half-")[0])[1])
    seed = int.from_bytes(hashlib.sha256(data.encode()).digest()[:16], "big")
    return np.sort(np.random.default_rng(seed).permutation(N)[: (N + 1) // 2])


def variates(z, cvs):
    """The variates named "none", "S4" ... "S7" or "c1" ... "c7", as a list."""
    if cvs == "none":
        return []
    named = getattr(z, cvs)
    return named if isinstance(named, list) else [named]


def sgd(
    rng, *, data, cvs, lr, v0, gamma, M, steps, first, runs, base="paper", renew=0, batch=None,
    z=None,
):  # fmt: skip
    """Runs first, ..., first + runs - 1 of a `line`: exact ELBO at the recorded steps, divergence.

    After a run has diverged its ELBO is None. A snapshot is taken every `renew` steps, if at all.
    """
    how = {"weights": rules.bayes(v0, gamma)} | line(data, base, cvs, z)
    how |= {"M": M, "renew": renew or None, "every": max(1, steps // RECORDS), "batch": batch}
    return _climb(rng, data, lr=lr, steps=steps, runs=(runs,), **how)[0]


rung = joint = sgd  # cells have the names of their plans


def slopes(rng, *, data, **loop):
    """The same as `sgd`, with c5 and c6 the expansions of the slope."""
    model, q, _ = problem(data)
    return sgd(rng, data=data, **loop, z=zoo.paper(model, q, taylor_x_slope))


def _climb(rng, data, kept=None, decimals=3, tolerance=(), **how):
    """ELBO of runs at the recorded steps, or those of them whose places are in `kept`; the path."""
    model, q, _ = problem(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optimize.Diverged)  # counted below
        path = optimize.sgd(model, q, rng=rng, **how)
    kept = [*range(len(path.steps))] if kept is None else kept
    elbo = np.array([exact.elbo(model, q, path.path[k], *tolerance) for k in kept])  # (T, runs)
    lost = (path.diverged >= 0) & (path.steps[kept, None] >= path.diverged)
    return {
        "steps": path.steps[kept].tolist(),
        "elbo": _round(np.where(lost, np.nan, elbo).T, decimals),  # one row a run
        "diverged": path.diverged.tolist(),
    }, path


def noise_free(rng, *, data, lr, steps):
    """The ELBO along the path of the exact gradient; `rng` is not used."""
    model, q, _ = problem(data)
    path = optimize.noise_free(model, q, lr=lr, steps=steps, every=max(1, steps // RECORDS))
    elbo = [exact.elbo(model, q, w) for w in path.path]
    return {"steps": path.steps.tolist(), "elbo": _round(elbo, 3)}


def optimum(rng, *, data, decimals=3):
    """The best ELBO of the family; `rng` is not used."""
    model, q, _ = problem(data)
    return {"elbo": _round(exact.elbo(model, q, exact.optimum(model, q)), decimals), "N": model.N}


def variance(rng, *, data, lr, v0, gamma, M, steps, replicas, samples):
    """Trace of the variance of the gradient along one run of S7, for each set of variates.

    All sets see the same weights w_t. In each of `replicas` repetitions the weights a follow the
    moving rule, from draws of its own, and the variance for given a is a quadratic form in the
    second moments of h and C at w_t, estimated from its share of `samples` fresh draws: the spread
    over replicas holds both errors. "best" has the best a of the pooled moments, S7's floor.
    """
    model, q, z = problem(data)
    path = optimize.sgd(
        model, q, z.h, z.S7, lr=lr, steps=steps, M=M, rng=rng, v0=v0, gamma=gamma
    ).path  # (steps + 1, D)
    every = max(1, steps // 50)
    sets = {"none": 0, "S4": 4, "S5": 5, "S6": 6, "S7": 7}  # the first so many of S7
    moments = combine.start(7, (replicas,))
    kept, found = [], {name: [] for name in [*sets, "best"]}
    for t, w in enumerate(path[:-1]):
        if t % every == 0:
            mean = exact.gradient(model, q, w) / model.N
            S = grams(rng, model, q, z, w, replicas, samples // replicas, mean)
            kept.append(t)
            for name, L in sets.items():
                part = combine.Moments(moments.CC[:, :L, :L], moments.Ch[:, :L], moments.M)
                found[name].append(quadratic(S, combine.bayes_weights(part, v0, q.D)) / M)
            all_of_them = S.mean(0)
            a = combine.best_weights(all_of_them[1:, 1:], all_of_them[1:, 0])
            found["best"].append([quadratic(all_of_them, a) / M])
        G = gradients(model, q, z, np.broadcast_to(w, (replicas, q.D)), M, rng)
        moments = combine.update(moments, G[:, 0], G[:, 1:], gamma)
    result = {name: digits(np.array(v).T, 5) for name, v in found.items()}
    return {"steps": kept, "trace": result}


def norms(rng, *, data, lr, step, lag, M, replicas, samples, low, high, count):
    """E||g||^2 against v0: weights from one set of M draws, the gradient from a second.

    w is `step` exact steps from the start; the first set is drawn at the w of `lag` steps before.
    v0 runs over 0 and `count` powers of ten from 10^low to 10^high. Given the weights, the second
    expectation is a quadratic form in moments that fresh draws estimate, `samples` in all and the
    same number for each of the `replicas` of the first set: "error" holds both errors.
    """
    model, q, z = problem(data)
    path = optimize.noise_free(model, q, lr=lr, steps=step).path
    now, before = path[step], path[step - lag]
    g = exact.gradient(model, q, now) / model.N
    S = grams(rng, model, q, z, now, replicas, samples // replicas, g)
    G = grams(rng, model, q, z, before, replicas, M)
    sample = combine.Moments(G[:, 1:, 1:], G[:, 1:, 0], M)
    v0 = np.concatenate([[0.0], np.logspace(low, high, count)])
    a = combine.bayes_weights(sample, v0[:, None], q.D)  # (V, replicas, 7)
    mean2 = (g**2).sum()
    norm2 = mean2 + quadratic(S, a) / M  # (V, replicas)
    return {
        "v0": digits(v0, 5),
        "mean": digits(norm2.mean(-1), 5),
        "error": digits(norm2.std(-1, ddof=1) / np.sqrt(replicas), 3),
        "none": digits(mean2 + S[:, 0, 0].mean() / M, 5),
    }


# Lines ---------------------------------------------------------------------------------------

WORDS = {"paper": RP1, "RP1": RP1, "RB": RB, "PR": PR, "QD": QD}
SURE = {"weights": rules.fixed(-1)}  # the weight of a perfect variate


def line(data, base, cvs, z=None):
    """What `optimize.sgd` needs for one line: h, variates, how they are weighed, and the noise.

    The base is a word for the data term, prior and entropy are in closed form; "paper" has RP1 of
    data and prior. Variates are "none", those of `variates` from the zoo z, or one of these:

    - "Jd", Taylor's quadratic of the drawn point less that of all data;
    - from a snapshot "taylor", the base's own word on the drawn point, which removes both noises,
      and "svrg", an expansion of first order;
    - "means", the parabola of means, and "gradient", the base's own gradient at the snapshot's
      weights with the same draws, SVRG: both for a weight of -1.

    "landing" takes the same word for all three terms, and "pairs" draws eps and -eps.
    """
    model, q, own = problem(data)
    f, prior, variational = terms(model, q)
    word, z = WORDS[base], z or own
    h = z.h if base == "paper" else word(f) + CF(prior) - CF(variational)
    near = {
        "Jd": lambda: taylor_z(f),
        "taylor": lambda: taylor_z(f, at="snapshot"),
        "svrg": lambda: taylor_z(f, at="snapshot", order=1),
        "means": lambda: parabola(f, at="snapshot"),
    }
    if cvs in near:
        like = CF if base == "QD" or cvs == "Jd" else word  # QD has no noise from q
        T, sure = near[cvs](), SURE if cvs == "means" else {}
        return {"h": h, "cvs": [like(T) - CF(T.over_all_data())]} | sure
    if cvs == "gradient":
        mean = older(CF, parabola(f, at="snapshot").over_all_data())
        return {"h": h, "cvs": [older(word, f) - mean]} | SURE
    if cvs == "landing":
        return {"h": word(f) + word(prior) - word(variational)}
    return {"h": h, "noise": "pairs"} if cvs == "pairs" else {"h": h, "cvs": variates(z, cvs)}


natural_line = line  # as chapter 13 calls it


def older(word, f):
    """word(f) on the same draw at the weights of its snapshot, as a line."""
    return CF(Integrand({Older(word, f): 1.0}))


class Older(OnData):
    """What has word(f) at the snapshot's weights for its known gradient: today's w is not in it.

    Two of them estimate the same there: data, and the parabola of means, whose mean is the data's.
    """

    closed_form = True
    wants = Wants(2, True, True)

    def __init__(self, word, f):
        (atom,) = f.parts
        super().__init__(f"older({word}, {atom.name})", atom.model, atom.q, "older data")
        self.line = word(f)

    def closed(self, draw):
        old, q = draw.snapshot, draw.q
        w = q.pack(old.mu, old.factor)
        return self.line(Draw(draw.model, q, w, draw.eps, draw.index, old, draw.group))


# Pieces --------------------------------------------------------------------------------------


def gradients(model, q, z, w, M, rng):
    """h and the variates of S7 at w (..., D), of ELBO / N, (..., 8, M, D)."""
    return evaluate([z.h, *z.S7], draw(model, q, w, M, rng)) / model.N


def grams(rng, model, q, z, w, replicas, M, mean=0.0):
    """Means over M draws at w of G_k . G_l, G = (h - mean, c_2, ..., c_7), (replicas, 8, 8)."""
    found = []
    each = max(1, 2000 // M)  # all at once would be large
    for n in (min(each, replicas - first) for first in range(0, replicas, each)):
        G = gradients(model, q, z, np.broadcast_to(w, (n, q.D)), M, rng)
        G[:, 0] -= mean
        G = G.reshape(n, 8, -1)
        found.append(G @ G.mT / M)
    return np.concatenate(found)


def quadratic(S, a):
    """(1, a)^T S (1, a), the second moment of h + C a: a (..., L), S (..., 1 + L or more, same)."""
    a = np.concatenate([np.ones((*a.shape[:-1], 1)), a], -1)
    K = a.shape[-1]
    return ((a[..., None, :] @ S[..., :K, :K])[..., 0, :] * a).sum(-1)


def _round(x, decimals):
    """As plain numbers with few decimals; NaN becomes None."""
    return digits(np.round(np.asarray(x, float), decimals), 17)


def cost(task, *, data="toy", runs=1, replicas=1, steps=1, cvs="S7", **_):
    """Seconds of one core, roughly: long cells come first."""
    scale = {"toy": 0.1, "australian": 0.3, "sonar": 2.4}.get(data, 1.1) / 1000
    share = {"none": 0.1, "S4": 0.6, "S5": 0.8, "S6": 0.9, "S7": 1.0}.get(cvs, 0.25)
    slow = {"answers": runs / 4, "covered": runs / 4, "vae": 200.0}
    slow |= {"quadratics": 20_000 * scale, "vae_noise": 20.0}
    if task in slow:
        return slow[task]
    return 0.1 + scale * share * max(runs, replicas) * steps


# Natural steps -------------------------------------------------------------------------------


def natural(rng, *, data, base, cvs, whole, rho, after, M, steps, runs, decimals=3):
    """Natural steps, some runs side by side: exact ELBO at the recorded steps.

    rho falls like 1 / t from step `after` on, or not at all with after=0; with `whole` every draw
    sees all data. "cut" is the number of steps of a run that were shortened.
    """
    rate = rules.falling(rho, after) if after else rho
    found, path = _climb(
        rng, data, [t for t in range(steps + 1) if t <= 60 or t % 5 == 0], decimals, (1e-8,),
        **line(data, base, cvs), lr=rate, steps=steps, M=M, runs=(runs,), subsample=not whole,
        rule=rules.natural(), every=1,
    )  # fmt: skip
    return found | {"cut": path.state.memory[0].tolist()}


# All quadratics ------------------------------------------------------------------------------


def quadratics(rng, *, data, way, runs):
    """Nats missing at `climbs.MARKS` of an algorithm at its best setting, (runs, marks)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a lost run is not finite
        found = climbs.race(rng, data, way, runs)
    return found | {"gap": digits(found["gap"], 4)}


def noises(rng, *, data, repeats):
    """Noise of slope and curvature at three places, and its error, for each estimate."""
    return [
        {"way": way, "place": place, "noise": digits(noise, 3), "error": digits(error, 2)}
        for way, place, noise, error in climbs.noise(rng, data, repeats)
    ]


# A deep model --------------------------------------------------------------------------------


def vae(rng, *, rates, **how):
    """ELBOs an image along training, (rates, runs, T); the ways are those of `experiments.vae`.

    `rng` is not used: a run's seed is its number, so that ways are compared on common runs.
    """
    from .vae import train

    found = train(rates=tuple(map(float, rates.split("+"))), **how)
    ends = "test", "valid", "averaged", "averaged valid"
    return found | {part: _round(found[part], 3) for part in ends}


def vae_noise(rng, *, latent, groups, path, rate, steps, repeats, runs):
    """Noise of the gradient in the encoder; `groups` is "K:way+way,K:way", `rng` is not used."""
    from .vae import spreads

    found = spreads(
        latent=latent, path=path, rate=rate, repeats=repeats, runs=runs,
        groups={int(K): ways.split("+") for K, ways in (g.split(":") for g in groups.split(","))},
        steps=[int(t) for t in steps.split("+")],
    )  # fmt: skip
    return [{"way": way, "K": K, "noise": digits(noise, 4)} for (way, K), noise in found.items()]
