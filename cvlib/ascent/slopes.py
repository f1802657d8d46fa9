"""Slopes of log p at draws of q, all data: what steps on the ensemble of all quadratics need."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..draws import Draw
from ..families import Family
from ..models import Model
from ..models.density import Density
from .plans import Gradient, Plan


def scored(
    model: Model, q: Family, w: np.ndarray, rng: np.random.Generator, M: int, group: int = 1
) -> tuple:
    """M draws, log p at them (M,) and its slopes in the coordinates of q (M, d).

    group = 2: in opposite pairs.
    """
    eps = q.noise(rng, w, -(-M // group))
    draw = Draw(model, q, w, np.concatenate([eps, -eps][:group]), None, group=group)
    value, slope = Density(model).slope(draw.z)
    with np.errstate(all="ignore"):
        return draw, value, q.times_t(draw.factor, slope)


@dataclass(frozen=True)
class Scored(Plan):
    """M draws, all data, and the slopes of log p alone: what rules on scores need.

    From step `paired` on a full q has them in opposite pairs. Draws at which log p has no slope are
    left out, with their partners; where they are half or more, the step fails.
    """

    _: KW_ONLY
    M: int
    paired: int
    draws = True

    def gradient(self, state):
        group = 2 if self.q.full and state.t >= self.paired else 1
        draw, value, scores = scored(self.model, self.q, state.w, state.rng, self.M, group)
        fine = np.isfinite(scores).all(-1) & np.isfinite(value)
        fine = np.tile(fine.reshape(group, -1).all(0), group)
        enough = np.asarray(fine.sum() > self.M / 2)
        kept = fine if enough else np.zeros(2 * group, int)  # any: `step` leaves w as it is
        draw = Draw(self.model, self.q, state.w, draw.eps[kept], None, group=group)
        return Gradient(None, enough, (), state.a, None, draw, np.nan_to_num(scores[kept]))
