"""Nats that one natural step loses, near the best Gaussian of a posterior far from one.

    python -m benchmarks.far --save      a table of chapter 14, in some fifteen minutes

The model has a changing volatility (`benchmarks.race.models`). Every step begins at the same q,
and all are judged on the same draws, which are many: the ELBO has heavy tails here.
"""

import warnings

import autograd.numpy as anp
import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.race import models
from cvlib import RPS, all_quadratics, rules
from cvlib.models.density import Density
from cvlib.recipe import regression

RETURNS, STEPS, JUDGES = 40, 100, 10_000


def returns(T=RETURNS):
    """The model, as one of one's own."""
    other = models.volatility(T)
    log_lik = lambda z, batch: other.log_lik(z, batch, anp, None)
    return cv.models.Model(log_lik, lambda z: other.log_prior(z, anp), other.data, other.dim)


def near(model, q):
    """w (D,) of `cv.fit`, which says that this posterior is no Gaussian."""
    with warnings.catch_warnings(action="ignore"):
        return cv.fit(model, q, bend=False, progress=False).w


def judge(model, q, draws, seed=1):
    """elbo(w) of one w (D,) without its constant, on pairs of draws that all w share."""
    density = Density(model)
    e = np.random.default_rng(seed).standard_normal((draws // 2, q.dim))
    e = np.concatenate([e, -e])

    def elbo(w):
        mu, L = q.unpack(w)
        return density.value(mu + e @ L.T).mean() + np.log(np.diag(L)).sum()

    return elbo


def ways(model, q, w):
    """{label: (estimator, draws, their kind)}; AQ has the ridge that a step before would tell."""
    d, density = q.dim, Density(model)
    mu, L = q.unpack(w)
    e = np.random.default_rng(5).standard_normal((2 * d, d))
    ridge = regression.shrinkage(regression.gauge(e, density.slope(mu + e @ L.T)[1] @ L), d)
    data, prior, variational = cv.terms(model, q)
    whole = data + prior - variational  # of RPS it is sticking the landing
    return {
        "one rotation": (RPS(whole), 2 * d + 1, "rotated"),
        "STL, 2d draws": (RPS(whole), 2 * d, "plain"),
        "AQ, 2d draws": (all_quadratics(ridge)(whole), 2 * d, "plain"),
        "two rotations": (RPS(whole), 4 * d + 2, "rotated"),
        "STL, 4d draws": (RPS(whole), 4 * d, "plain"),
    }


def rows(T=RETURNS, steps=STEPS, judges=JUDGES):
    """{way, lost: nats of every step}."""
    model = returns(T)
    q = cv.families.Gaussian(model.dim)
    w, elbo = near(model, q), judge(model, q, judges)
    best = elbo(w)
    for way, (estimator, M, kind) in ways(model, q, w).items():
        ends = cv.optimize.sgd(
            model, q, estimator, rule=rules.natural(), lr=0.5, M=M, steps=1, noise=kind,
            w=np.broadcast_to(w, (steps, q.D)), subsample=False, rng=np.random.default_rng(0),
        ).w  # fmt: skip
        yield {"way": way, "lost": [round(float(best - elbo(end)), 4) for end in ends]}


def measure():
    return {"rows": stored.told(rows())}


if __name__ == "__main__":
    stored.command(__doc__, "far", ("numpy", "scipy", "autograd"), measure)
