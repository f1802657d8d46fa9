"""Looks at a q: its ELBO, its importance weights and their tail, what another q would gain."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import scipy

from ..ascent.plans import scored
from ..deadline import Late, deadline
from ..draws import Draw
from ..families.base import Family
from ..models.density import Density, Model
from ..recipe import regression
from .settings import DEFAULT, Settings

HEAVY, WIDE = 0.7, 0.5  # k-hat from which an answer, and from which its error, is not believed
FEW, BLOCK = 2, 256  # draws that any look has; at most so many at a time of a compiled model


class Weights(NamedTuple):
    """Draws z (n, d) of q_w and the logarithms of their importance weights p(x, z) / q(z), (n,).

    Minus infinity is a weight of zero: the posterior ends there. NaN and infinity are no weights.
    """

    z: np.ndarray
    log: np.ndarray

    @property
    def fine(self) -> np.ndarray:
        """Which of them are numbers, (n,)."""
        return np.isfinite(self.log)

    @property
    def outside(self) -> np.ndarray:
        """Which of the draws lie where the posterior has ended, (n,)."""
        return np.isneginf(self.log)

    @property
    def elbo(self) -> tuple[float, float]:
        """Mean of those that are numbers, and its standard error; NaN if none is.

        Where the posterior ends it is the ELBO of q cut off at that edge, log(share inside) more:
        the ELBO of q itself is minus infinity.
        """
        log = self.log[self.fine]
        if not len(log):
            return np.nan, np.nan
        inside = len(log) / (len(log) + self.outside.sum())
        variance = log.var() + 1 - inside  # of one of them, and of the share's logarithm
        return log.mean() + np.log(inside), np.sqrt(variance / len(log))

    @property
    def share(self) -> np.ndarray:
        """The weights, with sum one, (n,)."""
        weight = np.where(self.fine, np.exp(self.log - self.log[self.fine].max(initial=-np.inf)), 0)
        return weight / max(weight.sum(), 1e-300)

    @property
    def effective(self) -> float:
        """The share of draws that the weights leave: effective sample size over number."""
        return float(worth(self.share) / max(len(self.log), 1))

    @property
    def k_hat(self) -> float:
        """The tail of the weights."""
        return k_hat(self.log[self.fine | self.outside])


def worth(w: np.ndarray) -> np.ndarray:
    """The effective sample size that weights w (n, ...) leave, (...)."""
    return w.sum(0) ** 2 / np.maximum((w**2).sum(0), 1e-300)


def k_hat(log_weights: np.ndarray) -> float:
    """The tail of importance weights: k of the Pareto law of the largest ones (Vehtari et al.)."""
    return smoothed(log_weights)[1]


def smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights (n,), the largest of them quantiles of their Pareto law (PSIS), and k-hat.

    In units of the largest, which none exceeds. A tail with k-hat below 1/3 stays as it is.
    """
    n = len(log_weights)
    most = log_weights.max(initial=-np.inf)
    w = np.exp(log_weights - most) if np.isfinite(most) else np.zeros(n)
    m = int(min(n / 5, 3 * np.sqrt(n)))
    if m < 5 or not w.any():
        return w, np.nan
    rank = np.argsort(w)[-m - 1 :]
    least = w[rank[0]]
    if not 1 - least > 1e-6:
        return w, -np.inf  # all weights are alike
    rank = rank[w[rank] > least]  # none that is tied with the least
    m = len(rank)
    b, k = pareto(w[rank] - least)
    k_hat = (m * k + 5) / (m + 10)
    if k_hat >= 1 / 3:
        tail = (1 - (np.arange(m) + 0.5) / m) ** -k_hat  # survival (1 + k x / s)^(-1/k), inverted
        w[rank] = np.minimum(least - k / b * (tail - 1) / k_hat, 1.0)
    return w, k_hat


def pareto(x: np.ndarray) -> tuple[float, float]:
    """b = -k / s and k of the Pareto law of x > 0, sorted: survival (1 + k x / s)^(-1/k).

    The posterior mean of b on a grid (Zhang and Stephens 2009); for given b the best k is the mean
    of log(1 - b x), and the likelihood is n (log(-b / k) - k - 1).
    """
    n, m = len(x), 30 + int(np.sqrt(len(x)))
    quarter = x[int(n / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * x).mean(1)
    log_lik = n * (np.log(-b / k) - k - 1)
    weight = np.exp(log_lik - log_lik.max())
    mean = (b * weight).sum() / weight.sum()
    return float(mean), float(np.log1p(-mean * x).mean())


# Looks --------------------------------------------------------------------------------------------


def sizes(model: Model, settings: Settings = DEFAULT) -> list[int]:
    """Draws for a look at the ELBO, few or many: fewer where data are many."""
    return [_draws(model, n // 4, n) for n in settings.looks]


def weighed(model: Model, q: Family, w: np.ndarray, seed: int, n: int | None = None) -> Weights:
    """n draws of q_w, as many of them as there is time for; up to 4,000 if n is not given.

    The same seed gives the same base sample.
    """
    n = n or _draws(model, 64, DEFAULT.looks[-1])
    eps = q.noise(np.random.default_rng([seed, n]), w, n)
    draw = Draw(model, q, w, eps, None)
    log_p = _in_time(Density(model), draw.z)
    some = slice(len(log_p))
    return Weights(draw.z[some], log_p - draw.of("log_q1")[some])


def _draws(model, least, most):
    return int(np.clip(2**25 // Density(model).size, least, most))


def _in_time(density, z):
    """log p at the first of the points z (n, d), as many as there is time for."""
    found, block = [], _draws(density.model, FEW, len(z) if density.model.rows else BLOCK)
    with suppress(Late):
        for first in range(0, len(z), block):
            found.append(density.value(z[first : first + block]))
    if not found:
        with deadline.until(None):
            found = [density.value(z[:FEW])]
    return np.concatenate(found)


def at_most(gain: np.ndarray, look: int, settings: Settings = DEFAULT) -> float:
    """What the mean of gain (n,) is at most, wrong with `settings.chance` in all.

    A look has 1 / 2^look of that, and each of the sizes that it may try an equal share of it.
    """
    sds = -scipy.special.ndtri(settings.chance / 2**look / len(settings.looks))
    return gain.mean() + sds * gain.std(ddof=1) / np.sqrt(len(gain))


def explained(model: Model, q: Family, w: np.ndarray, seed: int) -> tuple[float, float]:
    """How much of the slope of log p a quadratic explains, and nats that a better Gaussian gains.

    These are about half of what `regression.gauge` calls removable. Neither is a number where there
    is no time for it.
    """
    least = q.dim + 20 if q.full else 20
    M = int(np.clip(2**23 // Density(model).size, least, max(least, 200)))
    try:
        draw, _, G = scored(model, q, w, np.random.default_rng([seed, M, 1]), M)
    except Late:
        return np.nan, np.nan
    fine = np.isfinite(G).all(-1)
    if fine.sum() < M / 2:
        return np.nan, np.nan
    e, G = draw.eps[fine], G[fine]
    seen = regression.gauge(e, G, diagonal=not q.full)
    share = np.clip(1 - seen.residual / (G**2).sum(-1).mean(), 0, 1)  # without bias it may lie out
    return float(share), float(seen.removable / 2)
