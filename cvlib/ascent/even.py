"""The top of the ELBO on fixed even draws: opposite pairs whose covariance is exactly I.

On such draws every quadratic has its exact mean, as with the ensemble of all quadratics, and the
ELBO is a smooth function of w without noise (fixed draws: Giordano, Ingram and Broderick 2024). A
search learns how its slope turns, and follows a valley that bends, where natural steps creep. The
top belongs to these draws: natural steps have to follow.
"""

from collections.abc import Callable

import numpy as np

from ..families.base import Family
from ..models import Model
from ..models.density import Density
from .search import climb

EACH, FEW = 4, 40  # draws for each unknown, and in all at least
ENOUGH, STEPS, MOST = 1e-2, 300, 30  # nats that a step must promise; steps; turns remembered


def evened(e: np.ndarray) -> np.ndarray:
    """e (n, d) made to have covariance I, and their opposites, (2 n, d)."""
    e = e @ np.linalg.inv(np.linalg.cholesky(e.T @ e / len(e))).T
    return np.concatenate([e, -e])


def top(
    model: Model, q: Family, w: np.ndarray, late: Callable = lambda: False, seed: int = 0
) -> np.ndarray:
    """w (D,) of the highest ELBO on even draws that is found from w, for a full q."""
    if not q.full:
        raise ValueError(f"even draws are for a full Gaussian q, not {q!r}")
    density, (mu, factor) = Density(model), q.unpack(w)
    n = max(EACH * q.dim, FEW)
    e = evened(np.random.default_rng([seed, n]).standard_normal((n // 2, q.dim)))

    def elbo(v):
        """At v, a w in the coordinates of the q where the search began."""
        m, C = q.unpack(v)
        if not np.diag(C).min() > 0:
            return -np.inf, v
        value, slope = density.slope(mu + q.times(factor, m + q.times(C, e)))
        G = q.times_t(factor, slope)
        slope = q.joined(G.mean(0), G.T @ e / len(e)) + q.entropy_grad(v)
        height = value.mean() + np.log(np.diag(C)).sum()
        return height if np.isfinite(slope).all() else -np.inf, slope

    v = climb(elbo, q.start(), ENOUGH, STEPS, MOST, late)[0].z
    m, C = q.unpack(v)
    return q.joined(mu + q.times(factor, m[None])[0], q.compose(factor, C))
