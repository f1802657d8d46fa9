"""Answers after a fit: how far from the truth, and how honest their errors, way by way.

The truth is the answer of second order to half of all the defensive draws together.
"""

import warnings

import numpy as np

import cvlib as cv
from cvlib.combining import stein
from cvlib.combining.tails import WIDE, smoothed
from cvlib.families.found import drawn
from cvlib.models.own import Density

from . import posteriors

RIDGE = 0.01
SHARE = 4  # times as many answers from defensive draws, the package's way, as from q's own
TESTED = "default", "order 0", "order 1", "order 2"  # of the defensive draws


def answers(rng, *, posterior, n, runs):
    """Posterior means from n / 10, n / 4, n and 4 n draws: errors in sds of the reference.

    `runs` answers from defensive draws, a quarter as many from draws of q itself.
    """
    known = posteriors.load(posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        fit = cv.fit(known.model, steps=640, bend=False, progress=False)
    f = lambda z: (known.parameters(z) - known.mean) / known.sd  # 0 by the reference
    safe = [(f(at.z), at) for at in (drawn(fit, n, rng) for _ in range(runs))]
    half = [_weighed(*one) for one in safe[: max(2, runs // 2)]]
    F, z, score, log = (np.concatenate(x) for x in zip(*half))
    truth = cv.expect(F, z, score, np.exp(log - log.max()), order=2)
    own = [_of_q(fit, f, n, rng) for _ in range(max(2, runs // SHARE))]
    rows = []
    for size in (n // 10, n // 4, n, 4 * n):
        ways = TESTED if size == n else ("default", "order 0", "order 2")
        found = {way: [] for way in ways}
        for one in _sized([_weighed(*x) for x in safe], size):
            for way in ways:
                found[way].append(_asked(*one, way))
        for one in _sized(own, size):
            for way, answer in rivals(*one).items():
                found.setdefault(way, []).append(answer)
        rows += [
            {"way": way, "n": size} | summary(got, truth.estimate, size == n)
            for way, got in found.items()
        ]
    logs = [fit.evidence(n, rng) for _ in range(max(2, runs // SHARE))]
    log = np.array([a.estimate for a in logs])
    return {
        "names": list(known.names), "dim": known.model.dim, "k_hat": _digits(fit.k_hat),
        "truth": _digits(truth.estimate), "truth_se": _digits(truth.se),
        "elbo": round(fit.elbo, 4), "evidence": round(float(log.mean()), 4),
        "evidence_sd": _digits(log.std(ddof=1)), "evidence_se": _digits([a.se for a in logs]),
        "rows": rows,
    }  # fmt: skip


def _weighed(F, at):
    return F, at.z, at.score, at.log


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


def _asked(F, z, score, log, way):
    order = None if way == "default" else int(way[-1])
    return cv.expect(F, z, score, np.exp(log - log.max()), order=order)


def rivals(F, z, score, log, e):
    """{way: Answer} from draws of q itself; an error of NaN where a way has none."""
    w = np.exp(log - log.max())
    smooth, k = smoothed(log)
    ones, none = np.ones(len(w)), np.full(F.shape[1], np.nan)
    plain = lambda value, order=2: stein.Answer(value, none, k, order, len(w))
    e_, U = stein.standardised(z, score, smooth)
    C = stein.stein(e_, U, 2)
    several = lambda C, w: stein.intercept(F, C, w)
    bare, raw = several(C[:, :0], ones), several(C[:, :0], w)
    both = stein.intercept(np.column_stack([w, w[:, None] * F]), stein.hermite(e, 2), ones)
    ways = {
        "q alone": stein.Answer(bare.value, bare.se, np.nan, 0, len(w)),
        "weights": stein.Answer(raw.value, raw.se, k, 0, len(w)),
        "smoothed weights": _asked(F, z, score, log, "order 0"),
        "known under q": plain(both.value[1:] / both.value[0]),
        "Stein 1": _asked(F, z, score, log, "order 1"),
        "Stein 2": _asked(F, z, score, log, "order 2"),
        "Stein 2, no weights": cv.expect(F, z, score, order=2),
        "Stein 2, ridge": plain(least_squares(F, C, smooth, RIDGE)),
    }
    value = least_squares(F, C, smooth, 0.0)
    se = ways["Stein 2"].se
    return ways | {"Stein 2, no jackknife": stein.Answer(value, se, k, 2, len(w))}


def least_squares(F, C, w, ridge):
    """Intercepts of weighted least squares, a ridge on the slopes as more rows."""
    root = np.sqrt(w / w.sum())[:, None]
    C = C / np.maximum(np.sqrt(((root * C) ** 2).sum(0)), 1e-300)
    A = root * np.column_stack([np.ones(len(C)), C])
    more = np.sqrt(ridge) * np.eye(A.shape[1])[1:]
    rows = np.concatenate([A, more]), np.concatenate([root * F, np.zeros((len(more), F.shape[1]))])
    return np.linalg.lstsq(*rows)[0][0]


def summary(got, truth, whole):
    """Of some answers: root mean squared error, coverage of 95 %, k-hat and order; all of it if
    `whole`, else the middle and the worst error alone."""
    value, se = (np.array([getattr(a, x) for a in got]) for x in ("estimate", "se"))
    with np.errstate(invalid="ignore"):
        rms = np.sqrt(((value - truth) ** 2).mean(0))
        cover = (np.abs(value - truth) <= 1.96 * se).mean(0)
    row = {"answers": len(got), "median": _digits(np.median(rms)), "worst": _digits(rms.max())}
    if not whole:
        return row
    tails = np.array([a.k_hat for a in got])
    below = tails < WIDE
    seen = (np.abs(value - truth) <= 1.96 * se)[below].mean(0) if below.any() else rms * np.nan
    return row | {
        "rms": _digits(rms), "sd": _digits(value.std(0, ddof=1)), "mean": _digits(value.mean(0)),
        "cover": _digits(cover if np.isfinite(se).any() else cover * np.nan),
        "cover_below": _digits(seen), "below": int(below.sum()),
        "k_hat": _digits(np.median(tails)), "first_order": int(sum(a.order < 2 for a in got)),
    }  # fmt: skip


def _digits(x):
    """As plain numbers with four significant digits, None for what is no number."""
    x = np.asarray(x, float)
    if x.ndim:
        return [_digits(v) for v in x]
    return float(f"{x:.4g}") if np.isfinite(x) else None
