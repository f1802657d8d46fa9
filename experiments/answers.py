"""Answers after a fit: how far from the truth, way by way. `truths` says where that comes from."""

import warnings

import numpy as np

import cvlib as cv
from cvlib.models.density import Density

from . import posteriors
from .store import digits
from .truths import truth

RIDGE = 0.01
SHARE = 4  # times as many answers from weighed points, the package's way, as from draws of q


def answers(rng, *, posterior, n, runs):
    """Posterior means from n / 10, n / 4, n and 4 n draws: errors in sds of the posterior.

    `runs` answers from weighed points, a quarter as many from draws of q itself.
    """
    from cvlib.fitting import lots, stein  # here: chapters that read results need the core alone

    known, exact = posteriors.load(posterior), truth(posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        fit = cv.fit(known.model, steps=640, bend=False, progress=False)
    f = lambda z: (known.parameters(z) - exact.mean) / known.sd  # of mean 0

    def weighed(size):
        lot = lots.weighed(fit.model, fit.q, fit.w, size, rng)
        return stein.expect(lot.drawn(f(lot.z)))

    own = [_of_q(fit, f, n, rng) for _ in range(max(2, runs // SHARE))]
    rows = []
    for size in (n // 10, n // 4, n, 4 * n):
        found = {"default": [weighed(size) for _ in range(runs if size <= n else runs // SHARE)]}
        for one in _sized(own, size):
            for way, answer in rivals(*one).items():
                found.setdefault(way, []).append(answer)
        rows += [{"way": way, "n": size} | summary(got) for way, got in found.items()]
    return {
        "dim": known.model.dim, "k_hat": _digits(fit.k_hat), "quantities": len(known.names),
        "truth_error": _digits((exact.error / known.sd).max()), "rows": rows,
    }  # fmt: skip


def _of_q(fit, f, n, rng):
    """Values, draws of q itself, scores, log weights, and q's own coordinates."""
    mu, L = fit.q.unpack(fit.w)
    e = rng.standard_normal((n, fit.q.dim))
    z = mu + e @ L.T
    log, score = Density(fit.model).slope(z)
    fine = np.isfinite(log) & np.isfinite(score).all(-1)
    log = log - fit.q.log_q(fit.w, z)
    return tuple(x[fine] for x in (f(z), z, score, log, e))


def _sized(lots, size):
    """The lots of draws as lots of `size`: the first of each, or several together."""
    n = len(lots[0][0])
    together = max(1, round(size / n))
    for k in range(0, len(lots) - together + 1, together):
        yield tuple(np.concatenate(x)[:size] for x in zip(*lots[k : k + together]))


def _asked(F, z, score, log, order=None):
    from cvlib.fitting import stein

    return stein.expect(stein.drawn(F, z, score, np.exp(log - log.max())), order)


def rivals(F, z, score, log, e):
    """{way: Answer} from draws of q itself; an error of NaN where a way has none."""
    from cvlib.fitting import stein
    from cvlib.fitting.looks import smoothed

    w = np.exp(log - log.max())
    smooth, k = smoothed(log)
    ones, none = np.ones(len(w)), np.full(F.shape[1], np.nan)
    plain = lambda value, order=2: stein.Answer(value, none, k, order, len(w))
    e_, U = stein.standardised(z, score, smooth)
    C = stein.stein(e_, U, 2)
    several = lambda C, w: stein.intercept(F, C, w)
    bare, raw = several(C[:, :0], ones), several(C[:, :0], w)
    both = stein.intercept(np.column_stack([w, w[:, None] * F]), stein.stein(e, -e, 2), ones)
    return {
        "q alone": stein.Answer(bare.value, bare.se, np.nan, 0, len(w)),
        "weights": stein.Answer(raw.value, raw.se, k, 0, len(w)),
        "smoothed weights": _asked(F, z, score, log, 0),
        "known under q": plain(both.value[1:] / both.value[0]),
        "Stein 1": _asked(F, z, score, log, 1),
        "Stein 2": _asked(F, z, score, log, 2),
        "Stein 2, no weights": stein.expect(stein.drawn(F, z, score), 2),
        "Stein 2, ridge": plain(least_squares(F, C, smooth, RIDGE)),
    }


def least_squares(F, C, w, ridge):
    """Intercepts of weighted least squares, a ridge on the slopes as more rows."""
    root = np.sqrt(w / w.sum())[:, None]
    C = C / np.maximum(np.sqrt(((root * C) ** 2).sum(0)), 1e-300)
    A = root * np.column_stack([np.ones(len(C)), C])
    more = np.sqrt(ridge) * np.eye(A.shape[1])[1:]
    rows = np.concatenate([A, more]), np.concatenate([root * F, np.zeros((len(more), F.shape[1]))])
    return np.linalg.lstsq(*rows)[0][0]


def summary(got):
    """Of some answers to questions whose answer is 0: root mean squared errors, their middle and
    the worst over the questions; the middle of k-hat; how many took order 0, 1 and 2."""
    rms = np.sqrt(np.mean([a.estimate**2 for a in got], 0))
    return {
        "answers": len(got), "median": _digits(np.median(rms)), "worst": _digits(rms.max()),
        "k_hat": _digits(np.median([a.k_hat for a in got])),
        "orders": [sum(a.order == k for a in got) for k in (0, 1, 2)],
    }  # fmt: skip


def _digits(x):
    return digits(x, 4)
