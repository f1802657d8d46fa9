"""Which way a fit goes: the plan of its steps."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..advice.candidates import whole_gradient
from ..ascent import plans, rules
from ..families import Family
from ..models import Model
from ..recipe.draws import Draw
from ..recipe.estimators import Estimator
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
    """The kind of steps that a model is fitted by, if nothing else is said."""
    nodes, factors = 50 * model.N, model.N * q.dim * (q.dim if q.full else 1)
    if not q.gaussian:
        return "adam"
    if model.likelihood is not None and nodes < EXACT[0] and factors < EXACT[1]:
        return "exact"
    return "passes" if enough(model) < model.N and q.full else "natural"


def planned(
    kind: str, model: Model, q: Family, scale: np.ndarray | None = None, M: int | None = None,
    batch: int | None = None, h: Estimator | None = None, cvs: list[Estimator] | None = None,
    weights: rules.Weighting | None = None,
) -> plans.Plan:  # fmt: skip
    """The plan of one of four kinds of steps.

    "exact": no noise. "natural": on the regression of slopes on draws, without a rate to choose.
    "passes": the same from the mode of some of many rows, whose curvature is right and which lies
    many standard deviations off, without first moves. "adam": on the line that was given, or on
    the family's best, in units of `scale`.
    """
    if kind == "exact":
        return plans.NoiseFree(model, q, lr=1.0, rule=rules.natural())
    if kind in ("natural", "passes"):
        M = M or (max(2 * q.dim, 20) if q.full else 10)
        moves = rules.quadratics() if kind == "natural" else rules.quadratics(most=0, reach=100.0)
        return Scored(model, q, lr=1.0, rule=moves, M=M)
    rule = rules.adam() if scale is None else rules.stretched(rules.adam(), scale)
    seen = Sampling(subsample=False) if batch is None else Sampling(batch=batch)
    h = whole_gradient(model, q) if h is None else h
    return plans.Noisy(
        model, q, h, () if cvs is None else cvs, M=M or 10,
        lr=rules.falling(RATE, AFTER, 0.5), rule=rule, average=1, sampling=seen,
        weights=rules.blocks() if weights is None else weights,
    )  # fmt: skip
