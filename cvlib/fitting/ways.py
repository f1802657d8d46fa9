"""Which way a fit goes: the family, the plan of its steps, and the w to begin with."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..advice.candidates import whole_gradient
from ..ascent import plans, rules
from ..families import Family
from ..models import Model
from ..recipe.draws import Draw
from ..recipe.estimators import Estimator
from ..recipe.sampling import Sampling
from .density import Density

EXACT = 2**23, 2**28  # numbers that quadrature may make of the data: nodes, and factors of q
RATE, AFTER = 0.1, 100  # Adam's: this rate, and from this step on it falls like t^-1/2


@dataclass(frozen=True)
class Scored(plans.Plan):
    """M draws, all data, and the slopes of log p alone: what rules on scores need.

    Slopes are computed part by part of the data. Draws at which log p has none are left out; where
    they are more than half, the step fails.
    """

    _: KW_ONLY
    M: int
    draws = True

    def gradient(self, state):
        eps = self.q.noise(state.rng, state.w, self.M)
        draw = Draw(self.model, self.q, state.w, eps, None)
        with np.errstate(all="ignore"):
            value, slope = Density(self.model).slope(draw.z)
            scores = self.q.times_t(draw.factor, slope)
        fine = np.isfinite(scores).all(-1) & np.isfinite(value)
        if not fine.all():
            draw = Draw(self.model, self.q, state.w, eps[fine], None)
        enough = np.asarray(fine.sum() > self.M / 2)
        if not enough:  # `step` leaves w as it is
            draw, scores, fine = Draw(self.model, self.q, state.w, eps, None), 0 * eps, slice(None)
        return plans.Gradient(None, enough, (), state.a, None, draw, scores[fine])


def affordable(model: Model, q: Family) -> bool:
    """Is the exact optimum of a generalised linear model a matter of a moment?"""
    nodes, factors = 50 * model.N, model.N * q.dim * (q.dim if q.full else 1)
    return model.likelihood is not None and q.gaussian and nodes < EXACT[0] and factors < EXACT[1]


def planned(
    kind: str, model: Model, q: Family, scale: np.ndarray | None = None, M: int | None = None,
    batch: int | None = None, h: Estimator | None = None, cvs: list[Estimator] | None = None,
    weights: rules.Weighting | None = None,
) -> plans.Plan:  # fmt: skip
    """The plan of one of four ways.

    "exact": no noise. "natural": steps on the regression of slopes on draws, without a rate to
    choose. "passes": the same from the mode of some of many rows, whose curvature is right and
    which lies many standard deviations off, without first moves. "adam": Adam's steps on the line
    that was given, or on the family's best, in units of `scale`.
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
