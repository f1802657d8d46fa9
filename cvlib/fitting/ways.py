"""Which way a fit goes: the plan of its steps."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..advice.candidates import whole_gradient
from ..ascent import plans, rules
from ..families import Family
from ..models import Model
from ..recipe.draws import Draw
from ..recipe.sampling import Sampling
from .density import Density, enough

EXACT = 2**23, 2**28  # numbers that quadrature may make of the data: nodes, and factors of q
RATE, AFTER = 0.1, 100  # Adam's: this rate, and from this step on it falls like t^-1/2


@dataclass(frozen=True)
class Scored(plans.Plan):
    """M draws, all data, and the slopes of log p alone: what rules on scores need.

    Draws at which log p has none are left out; where they are half or more, the step fails.
    """

    _: KW_ONLY
    M: int
    draws = True

    def gradient(self, state):
        draw, value, scores = scored(self.model, self.q, state.w, state.rng, self.M)
        fine = np.isfinite(scores).all(-1) & np.isfinite(value)
        enough = np.asarray(fine.sum() > self.M / 2)
        kept = fine if enough else np.zeros(self.M, int)  # any: `step` leaves w as it is
        draw = Draw(self.model, self.q, state.w, draw.eps[kept], None)
        return plans.Gradient(None, enough, (), state.a, None, draw, np.nan_to_num(scores[kept]))


def scored(model: Model, q: Family, w: np.ndarray, rng: np.random.Generator, M: int) -> tuple:
    """M draws, log p at them (M,) and its slopes in the coordinates of q (M, d)."""
    draw = Draw(model, q, w, q.noise(rng, w, M), None)
    with np.errstate(all="ignore"):
        value, slope = Density(model).slope(draw.z)
        return draw, value, q.times_t(draw.factor, slope)


def way(model: Model, q: Family) -> str:
    """The kind of steps that a model is fitted by."""
    nodes, factors = 50 * model.N, model.N * q.dim * (q.dim if q.full else 1)
    if not q.gaussian:
        return "adam"
    if model.likelihood is not None and nodes < EXACT[0] and factors < EXACT[1]:
        return "exact"
    return "passes" if enough(model) < model.N and q.full else "natural"


def planned(kind: str, model: Model, q: Family, M: int | None = None) -> plans.Plan:
    """The plan of one of four kinds of steps.

    "exact": no noise. "natural": on the regression of slopes on draws, without a rate to choose.
    "passes": the same from the mode of some of many rows, whose curvature is right and which lies
    many standard deviations off, without first moves. "adam": on the family's best line.
    """
    if kind == "exact":
        return plans.NoiseFree(model, q, lr=1.0, rule=rules.natural())
    if kind == "adam":
        return plans.Noisy(
            model, q, whole_gradient(model, q), M=M or 10, lr=rules.falling(RATE, AFTER, 0.5),
            rule=rules.adam(), average=1, sampling=Sampling(subsample=False),
        )  # fmt: skip
    moves = rules.quadratics() if kind == "natural" else rules.quadratics(most=0, reach=100.0)
    return Scored(model, q, lr=1.0, rule=moves, M=M or (max(2 * q.dim, 20) if q.full else 10))
