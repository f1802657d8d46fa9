"""Answers after a fit: how far from the truth, way by way. `truths` says where that comes from."""

import warnings

import numpy as np

import cvlib as cv
from cvlib.models.density import Density

from . import posteriors
from .store import digits
from .truths import truth

SHARE = 4  # times as many answers from weighed points, the package's way, as from draws of q


def answers(rng, *, posterior, n, runs):
    """Posterior means from n / 10, n / 4 and n draws: errors in sds of the posterior.

    `runs` answers from weighed points, a quarter as many from draws of q itself.
    """
    from cvlib.fitting import lots, stein  # here: chapters that read results need the core alone

    known, exact = posteriors.load(posterior), truth(posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        fit = cv.fit(known.model, steps=640, bend=False, progress=False)
    f = lambda z: (known.parameters(z) - exact) / known.sd  # of mean 0

    def weighed(size):
        lot = lots.weighed(fit.model, fit.q, fit.w, size, rng)
        return stein.expect(lot.drawn(f(lot.z))).estimate

    own = [_of_q(fit, f, n, rng) for _ in range(max(2, runs // SHARE))]
    rows = []
    for size in (n // 10, n // 4, n):
        found = {"default": [weighed(size) for _ in range(runs)]}
        for one in own:
            for way, answer in rivals(*(x[:size] for x in one)).items():
                found.setdefault(way, []).append(answer)
        rows += [{"way": way, "n": size} | summary(got) for way, got in found.items()]
    return rows


def _of_q(fit, f, n, rng):
    """Values, draws of q itself, scores, and log weights."""
    mu, L = fit.q.unpack(fit.w)
    z = mu + rng.standard_normal((n, fit.q.dim)) @ L.T
    log, score = Density(fit.model).slope(z)
    fine = np.isfinite(log) & np.isfinite(score).all(-1)
    log = log - fit.q.log_q(fit.w, z)
    return tuple(x[fine] for x in (f(z), z, score, log))


def rivals(F, z, score, log):
    """{way: estimates} from draws of q itself."""
    from cvlib.fitting import stein

    w = np.exp(log - log.max())
    mean = lambda w: stein.intercept(F, np.empty((len(F), 0)), w).value
    return {
        "q alone": mean(np.ones(len(w))),
        "weights": mean(w),
        "Stein 2": stein.expect(stein.drawn(F, z, score, w), 2).estimate,
    }


def summary(got):
    """Of some answers to questions whose answer is 0: root mean squared errors, their middle and
    the worst over the questions."""
    rms = np.sqrt(np.mean(np.square(got), 0))
    return {"answers": len(got), "median": _digits(np.median(rms)), "worst": _digits(rms.max())}


def _digits(x):
    return digits(x, 4)
