"""What a fit is asked for: posterior means and the evidence, with errors, from draws of q.

Half of the draws have q's mean and covariance with the heavier tail of Student's t, so that no
importance weight explodes where the posterior has more mass than q far out (a defensive mixture).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..arguments import whole
from ..combining.stein import Answer, answer, expect, hermite
from ..combining.tails import smoothed
from ..special import scipy
from .density import Density

if TYPE_CHECKING:
    from .front import Fit

NU = 5.0  # degrees of freedom of every second draw


class Draws(NamedTuple):
    """Draws from the mixture of q and Student's t."""

    z: np.ndarray  # (n, d)
    score: np.ndarray  # (n, d)
    log: np.ndarray  # (n,) log p(x, z) less the log density of the draws
    e: np.ndarray  # (n, d) in q's own coordinates
    share: np.ndarray  # (n,) q / law of the draws


def drawn(fit: Fit, n: int, rng: np.random.Generator | int) -> Draws:
    """n draws for a fit with a Gaussian q, at which log p and its score are numbers."""
    rng, (mu, factor) = np.random.default_rng(rng), fit.q.moments(fit.w)
    e = rng.standard_normal((whole("n", n, 10), fit.q.dim))
    e[::2] *= np.sqrt(NU / rng.chisquare(NU, len(e[::2])))[:, None]
    z = mu + fit.q.times(factor, e)
    log, score = Density(fit.model).slope(z)
    more = np.logaddexp(0, student(e)) - np.log(2)  # log of the law of the draws over q
    log = log - fit.q.log_q(fit.w, z) - more
    fine = np.isfinite(log) & np.isfinite(score).all(-1)
    if fine.sum() < max(10, 0.9 * n):
        raise ValueError(
            f"log p(x, z) or its slope is no number at {n - fine.sum()} of {n} draws: something "
            "overflows there, or a matrix is singular"
        )
    return Draws(z[fine], score[fine], log[fine], e[fine], np.exp(-more[fine]))


def student(e: np.ndarray) -> np.ndarray:
    """log of Student's t with NU degrees of freedom over N(0, I), their densities at e, (n,)."""
    d, square = e.shape[-1], (e**2).sum(-1)
    gammaln = scipy.special.gammaln
    front = gammaln((NU + d) / 2) - gammaln(NU / 2) - d / 2 * np.log(NU / 2)
    return front - (NU + d) / 2 * np.log1p(square / NU) + square / 2


def expected(fit: Fit, f: Callable, n: int, rng: np.random.Generator | int) -> Answer:
    """E_p f by `expect`; if z is discrete by weights alone, for it has no score."""
    if not callable(f):
        raise TypeError(f"f={f!r} is no function of the draws: write fit.expect(lambda p: p.sigma)")
    density, of_z = Density(fit.model), lambda z: f(fit.model.given(z))
    order = None if fit.q.smooth == "z" else 0
    if fit.q.gaussian:
        z, score, log = drawn(fit, n, rng)[:3]
    else:
        z = fit.q.sample(fit.w, whole("n", n, 10), np.random.default_rng(rng))
        value, score = density.slope(z) if order is None else (density.value(z), 0 * z)
        log = value - fit.q.log_q(fit.w, z)
    return expect(of_z, z, score, np.exp(log - log.max()), order=order)


def evidence(fit: Fit, n: int, rng: np.random.Generator | int) -> Answer:
    """log p(x): the mean weight, regressed on what is known under q.

    q's share of the law of the draws has mean one; times e or e e^T - I it has mean zero.
    """
    if not fit.q.gaussian:
        raise ValueError(f"the evidence needs draws of a Gaussian q; this is {fit.q!r}")
    at = drawn(fit, n, rng)
    w, k = smoothed(at.log)  # in units of the largest
    share = at.share[:, None]
    known = lambda order: np.column_stack([share - 1, share * hermite(at.e, order)])
    found = answer(w[:, None], known, np.ones(len(w)), k, fit.q.dim, (2, 1, 0))
    log = at.log.max() + np.log(found.estimate)
    return replace(found, estimate=log, se=found.se / found.estimate)
