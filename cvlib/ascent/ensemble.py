"""Steps on the ensemble of all quadratics: batch and match for the first moves, then natural steps.

Both look at the same things, base draws e and scores G = L^T grad log p(x, z) in q's own
coordinates; `combining.regression` has the mathematics. No rate is to be chosen.
"""

from dataclasses import dataclass

import numpy as np

from ..arguments import number, whole
from ..combining import regression
from ..combining.regression import Gauge, Move, Quadratic
from ..families.base import Family
from .ascents import Ascent, newton


@dataclass(frozen=True)
class matching(Ascent):
    """Batch and match (Cai et al. 2024): the q whose scores are nearest to p's at the draws.

    Positive definite by construction, and quick from far away. It minimises another divergence
    than the ELBO: take a few moves, and go on with another rule. The pull towards the present q
    has weight t / (M d) in step t; the rate is not looked at.
    """

    on_scores = True

    def start(self, q: Family, w: np.ndarray) -> tuple:
        return (np.zeros(w.shape[:-1]),)

    def match(self, memory, w, draw, scores, rate, q):
        t = memory[0] + 1
        return _moved(q, w, _matched(draw, scores, t)), (t,)


@dataclass(frozen=True)
class quadratics(Ascent):
    """First moves by `matching`, then natural steps on the regression, whose end is the ELBO's.

    A run is handed over when the gauge, the squared length of G + e that a better Gaussian would
    remove, has fallen to `near` times the dimension, or after `most` moves. From there on
    rho = rate / s, a rate above one counting as one. s counts the steps at rest, those after which
    more of the step was noise than rho allows (`at_rest`): once there, the run is an average over
    all steps since. The slopes of data + prior - variational are regressed on the draws, for each
    draw on the others, with the ridge that the gauge of the step before asks for, so that the
    gradient is unbiased. A diagonal q makes no first moves, and its rho is at most `diagonal`:
    coordinates that lean on each other move each as if alone, and in sum too far.
    """

    near: float = 0.1
    most: int = 12
    reach: float = 3.0
    diagonal: float = 0.5
    on_scores = True
    in_units_of_q = True

    def __post_init__(self):
        number("near", self.near, 0, above=True)
        number("reach", self.reach, 0, above=True)
        number("diagonal", self.diagonal, 0, above=True)
        whole("most", self.most, 0)

    def start(self, q: Family, w: np.ndarray) -> tuple:
        runs, slopes = w.shape[:-1], q.dim if q.full else 1
        return np.zeros(runs), np.zeros(runs), np.full(runs, slopes / 10)  # moves, s, first ridge

    def match(self, memory, w, draw, scores, rate, q):
        moves, s, ridge = memory
        seen = regression.gauge(draw.eps, scores, draw.group, not q.full)
        far = (s == 0) & (moves < self.most) & (seen.removable > self.near * q.dim) & q.full
        moves, moved = moves + far, w
        if far.any():
            moved = _moved(q, w, _matched(draw, scores, np.maximum(moves, 1)))
        if not far.all():
            found = self._found(draw, scores, ridge, q)
            s = s + (~far & at_rest(seen, found, s))
            rho = np.minimum(rate if np.ndim(rate) == 0 else rate[..., 0], 1.0) / np.maximum(s, 1)
            rho = rho if q.full else np.minimum(rho, self.diagonal)
            near = newton(q, w, found.c, found.A, rho[..., None], self.reach)[0]
            moved = np.where(far[..., None], moved, near)
        return moved, (moves, s, regression.shrinkage(seen, q.dim if q.full else 1))

    def _found(self, draw, scores, ridge, q):
        """The gradient of a natural step, in q's own coordinates."""
        regress = regression.regress if q.full else regression.diagonal(regression.regress)
        return regress(draw.eps, scores + draw.eps, ridge, group=draw.group)


def at_rest(seen: Gauge, found: Quadratic, s: np.ndarray) -> np.ndarray:
    """Is rho = 1 / s no smaller than the best gain, signal / (signal + noise)? (...)

    The gauge is the signal, the squared length of the gradient; that of its estimate, `found`, is
    signal + noise. It must hold for slope and curvature alike. A run that is still on its way has
    more signal than that, and rho does not fall (Kesten 1958 reads it off the signs of the steps).
    """
    squares = (found.A**2).reshape(*found.c.shape[:-1], -1).sum(-1)
    slope = s * seen.slope <= np.vecdot(found.c, found.c)
    return slope & (s * seen.curvature <= squares)


def _matched(draw, scores, t):
    """The first moves' step number t, (...)."""
    f = regression.match if draw.q.full else regression.diagonal(regression.match)
    return f(draw.eps, scores, draw.M * draw.q.dim / t)


def _moved(q: Family, w: np.ndarray, move: Move) -> np.ndarray:
    mu, factor = q.unpack(w)
    mu = mu + q.times(factor, move.shift[..., None, :])[..., 0, :]
    return q.joined(mu, q.compose(factor, move.K))
