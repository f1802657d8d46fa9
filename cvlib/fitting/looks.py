"""A look at a fit: the ELBO on common draws, whether it has settled, and the shape of q."""

from contextlib import suppress

import numpy as np

from ..ascent.slopes import scored
from ..combining import regression
from ..combining.tails import HEAVY, Weights
from ..draws import Draw
from ..families.base import Family
from ..models import Model
from ..models.density import Density
from ..models.passes import Late, until

LOOKS, LAST = (250, 1000, 4000), 4000  # draws for a look at the ELBO, few or many; the last one
FEW, BLOCK = 2, 256  # draws that any look has; at most so many at a time of a compiled model
TOLERANCE, CHANCE = 0.05, 0.05  # nats that may be left to gain, and the chance to be wrong there
FAIR = 0.5  # share of draws that weights should leave
BIG = 1.5  # times the mean weight: k-hat has no scale, and no tail matters where none is larger


def sizes(model: Model) -> list[int]:
    """Draws for a look at the ELBO, few or many: fewer where data are many, but three numbers."""
    return [_draws(model, n // 4, n) for n in LOOKS]


def weighed(model: Model, q: Family, w: np.ndarray, seed: int, n: int | None = None) -> Weights:
    """n draws of q_w, as many of them as there is time for; the last look's if n is not given.

    The same seed gives the same base sample.
    """
    n = n or _draws(model, 64, LAST)
    eps = q.noise(np.random.default_rng([seed, n]), w, n)
    draw = Draw(model, q, w, eps, None)
    log_p = _in_time(Density(model), draw.z)
    some = slice(len(log_p))
    return Weights(draw.z[some], log_p - draw.of("log_q1")[some])


def big(found: Weights) -> bool:
    """Is there a weight that is larger than most?"""
    return bool(found.share.max() * len(found.log) > BIG)


def poor(found: Weights) -> bool:
    """Do weights leave too few draws, or have too heavy a tail?"""
    return not found.effective >= FAIR or bool(found.k_hat > HEAVY and big(found))


def _draws(model, least, most):
    return int(np.clip(2**25 // Density(model).size, least, most))


def _in_time(density, z):
    """log p at the first of the points z (n, d), as many as there is time for."""
    found, most = [], len(z) if density.model.rows else BLOCK
    block = int(np.clip(2**25 // density.size, FEW, most))
    with suppress(Late):
        for first in range(0, len(z), block):
            found.append(density.value(z[first : first + block]))
    if not found:
        with until(None):
            found = [density.value(z[:FEW])]
    return np.concatenate(found)


def at_most(gain: np.ndarray, look: int) -> float:
    """What the mean of gain (n,) is at most, wrong with a chance of CHANCE in all.

    A look has CHANCE / 2^look of it, and each of the sizes that it may try an equal share of that.
    """
    from statistics import NormalDist  # seldom needed, and slow to load

    sds = -NormalDist().inv_cdf(CHANCE / 2**look / len(LOOKS))
    return gain.mean() + sds * gain.std(ddof=1) / np.sqrt(len(gain))


def explained(model: Model, q: Family, w: np.ndarray, seed: int) -> tuple[float, float]:
    """How much of the slope of log p a quadratic explains, and what a better Gaussian would remove.

    The second is `regression.gauge`'s removable / d: the best ELBO lies about removable / 2 higher.
    Neither is a number where there is no time for it.
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
    return float(share), float(seen.removable / q.dim)
