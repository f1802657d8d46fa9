"""Words that look at several samples together: large ensembles, and baselines from the others.

A pull carries slopes back to w. RP1's does it sample by sample; those of AQ and RPS use every
control variate of a kind at once. They are linear in the slopes, as every pull is, so the words add
and subtract like the others. `combining.regression` has the mathematics, in q's own coordinates.
"""

from dataclasses import dataclass

import numpy as np

from ..arguments import number
from ..combining import regression
from ..draws import Draw
from .estimators import SF, Method, Route


@dataclass(frozen=True)
class AllQuadratics:
    """RP1's pull with every quadratic of q's shape as a control variate.

    The slopes are regressed on the draws, with a ridge on the curvature; by default a tenth of the
    number of slopes; for every sample on the samples outside its own group, so that each row is
    unbiased.
    """

    ridge: float | None = None

    def __call__(self, draw: Draw, u: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """From slopes u (..., M, d) a row a sample, (..., M, D)."""
        rows = _fitted(regression.rows, draw, draw.q.times_t(draw.factor, u), self.ridge)
        return draw.q.from_own(draw.factor, *rows)

    def mean(self, draw: Draw, u: np.ndarray) -> np.ndarray:
        """The mean of the rows, (..., D), without making them."""
        q = draw.q
        c, A = _fitted(regression.regress, draw, q.times_t(draw.factor, u), self.ridge)
        A = np.expand_dims(A, c.ndim - 1)
        return q.from_own(draw.factor, c[..., None, :], A)[..., 0, :]


def _fitted(f, draw, G, ridge):
    """`regression.rows` or `regress` of slopes G in q's own coordinates, for q's shape."""
    draw.refuse_weights("a regression on the draws")
    ridge = (draw.q.dim if draw.q.full else 1) / 10 if ridge is None else ridge
    f = f if draw.q.full else regression.diagonal(f)
    return f(draw.eps, G, ridge, group=draw.group)


def all_quadratics(ridge: float | None = None) -> Method:
    """The word `AQ` with another ridge.

    A ridge of zero needs more samples than dimensions; a large one shrinks to RP1, and with
    f = data + prior - variational to sticking the landing.
    """
    name = "AQ" if ridge is None else f"AQ[ridge={number('ridge', ridge, 0):g}]"
    doc = """RP1 with all quadratics of q's shape as control variates, (..., M, D).

    The slopes of f are regressed on the draws, for every sample on the others, with a ridge: one
    least-squares fit gives the best weights of d (d + 3) / 2 variates CF(f~) - RP1(f~), or of 2 d
    for a diagonal q. Write AQ(data + prior - variational): the ridge then shrinks towards sticking
    the landing.
    """
    route = Route("z1", pull=AllQuadratics(ridge))
    return Method(name, doc, route, needs="gaussian")


AQ = all_quadratics()


def _symmetrised(draw, u, out=None):
    """[u, lower(L^-T sym(L^T u eps^T))], a row a sample."""
    # L^-T (G e^T + e G^T) / 2 = (u e^T + (L^-T e) G^T) / 2, with G = L^T u
    q, G, away = draw.q, draw.q.times_t(draw.factor, u), draw.of("whitened")
    lower = 0.5 * (q.outer(u, draw.eps) + q.outer(away, G))
    return np.concatenate([u, lower], -1)


RPS = Method(
    "RPS",
    """RP1 with all rotations as control variates: the gradient in L symmetrised, (..., M, D).

    z = mu + L R eps with any rotation R(w) is another reparameterisation; differences of these,
    RP1 - RP2 among them, are the antisymmetric part of the slope times the draw, in q's own
    coordinates, and have mean zero. At weight one they all go.
    """,
    Route("z1", pull=_symmetrised),
    needs="gaussian",
)


LOO = Method(
    "LOO",
    """(f_m - mean of f over the other samples) grad_w log q_w(Z_m): leave-one-out, (..., M, D).

    In pairs the partner is left out too. For data + prior - variational: VarGrad (Richter et al.
    2020).
    """,
    SF.route,
    SF.behind,
    rows=lambda draw, f, score: (f[..., None] - draw.others(f[..., None])) * score,
)
DisARM = Method(
    "DisARM",
    """(f(Z) - f(Z~)) / 2 (Z - Z~) sigma(|w|) with Z~ the opposite of a Bernoulli Z, (..., M, D).

    Dong, Mnih and Tucker 2020; U2G of Yin et al. 2020. Partners have the same gradient.
    """,
    Route("z1", score="paired_score"),
    rows=lambda draw, f, score: (f - np.roll(f, draw.M // 2, -1))[..., None] / 2 * score,
    why="it is for the two values of a Bernoulli variable",
)


def linear_baseline(ridge: float = 0.5) -> Method:
    """The word `LB` with another ridge; a large one is `LOO`."""
    number("ridge", ridge, 0, above=True)
    doc = """(f - b0 - b.S) S + F b with S = grad_w log q_w(Z) and F = Var S, (..., M, D).

    The score function with a baseline linear in the score, fitted for every sample on the others
    by ridge regression: LOO is its constant, and b estimates the natural gradient.
    """
    name = "LB" if ridge == 0.5 else f"LB[ridge={ridge:g}]"

    def rows(draw, f, score):
        draw.refuse_weights("a linear baseline")
        return regression.baseline(score, f, draw.q.fisher(draw.w), ridge, draw.group)

    return Method(name, doc, SF.route, rows=rows, needs="fisher")


LB = linear_baseline()
