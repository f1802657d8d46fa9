"""Words that look at several samples together: regressions on the draws, and other baselines.

A pull carries slopes back to w. RP1's does it sample by sample; those of AQ and RPS use every
control variate of a kind at once. They are linear in the slopes, as every pull is, so the words add
and subtract like the others.

**All quadratics.** Letters: z_m = mu + L e_m with base draws e (..., B, d), slopes in q's own
coordinates G_m = L^T grad f(z_m), (..., B, d). Leading axes are runs. A quadratic f~ whose slope is
c + A e has E[G~] = c and E[G~ e^T] = A without sampling, because E[e] = 0 and E[e e^T] = I. So for
every vector c and matrix A

    G - (c + A e) + c           has the mean of G       (L^-T of it: the gradient in mu),
    (G - (c + A e)) e^T + A     has that of G e^T       (lower(L^-T of it): the gradient in L):

with A symmetric, d (d + 3) / 2 control variates CF(f~) - RP1(f~). Their best weights are those of
least squares, G on X = [1, e]. With a ridge on A (none on c) and K = (X^T X + ridge diag(0, I))^-1,

    [c; A^T] = K X^T G.

All of it is linear in G: whatever may be said of one term's slopes may be said of a sum's. The
slope of -log q is e. So for f = data + prior - variational the slopes are G + e and the ridge
shrinks towards sticking the landing; to shrink towards slopes A0 e known beforehand, give
G - A0 e and add A0.

Draws come in groups that lean on each other, m, m + B / group, m + 2 B / group, ...: group = 1 for
independent draws, 2 for antithetic pairs. Groups are independent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arguments import number
from ..draws import Draw
from .estimators import SF, Method, Route


class Fitted(NamedTuple):
    """Estimates of E[G], c (..., d), and of E[G e^T] = L^T E[grad^2 f] L, A (..., d, d) symmetric.

    A diagonal q has A (..., d), the diagonal. Rows, one a draw, have an axis B behind the runs.
    """

    c: np.ndarray
    A: np.ndarray


class Gauge(NamedTuple):
    """E|G + e|^2 in parts, (...): |c|^2, |A + I|^2, and the residual."""

    slope: np.ndarray
    curvature: np.ndarray
    residual: np.ndarray

    @property
    def removable(self) -> np.ndarray:
        """What a better Gaussian removes; no Gaussian removes the residual."""
        return self.slope + self.curvature


# The regression ------------------------------------------------------------------------------


def regress(e: np.ndarray, G: np.ndarray, ridge: float | np.ndarray, group: int = 1) -> Fitted:
    """The mean of `rows`: exactly unbiased for every ridge chosen beforehand."""
    X, K_X, beta, Q = _fit(e, G, ridge, group)
    # the mean over m of beta_- + x_m Q_m^T, where each group's part of beta_- stands `group` times
    beta += (X.mT @ Q - group * (K_X.mT @ Q)) / e.shape[-2]
    return Fitted(beta[..., 0, :], sym(beta[..., 1:, :]))


def rows(e: np.ndarray, G: np.ndarray, ridge: float | np.ndarray, group: int = 1) -> Fitted:
    """Row m is draw m with the quadratic fitted without its group: c (..., B, d), A (..., B, d, d).

    c_m = G_m - A_- e_m and A_m = sym((G_m - c_- - A_- e_m) e_m^T + A_-), where c_- and A_- know
    nothing of draw m: every row has the means E[G] and E[G e^T].
    """
    X, K_X, beta, Q = _fit(e, G, ridge, group)
    each = _without(K_X, beta, Q, group) + X[..., :, None] * Q[..., None, :]
    return Fitted(each[..., 0, :], sym(each[..., 1:, :]))


def _fit(e, G, ridge, group):
    """X, X K, beta = [c; A^T], and Q (..., B, k): each draw's residual without its group.

    r_g = G_g - X_g beta and beta_- = beta - K X_g^T Q_g give Q_g = r_g + H_gg Q_g with the block
    H_gg = X_g K X_g^T of the hat matrix: a small solve for each group, a division for group = 1.
    """
    X, K_X = _design(e, G, ridge, group)
    beta = K_X.mT @ G
    r = G - X @ beta
    if group == 1:
        return X, K_X, beta, r / (1 - np.vecdot(X, K_X)[..., None])
    H = _grouped(X, group) @ _grouped(K_X, group).mT  # (..., B / group, group, group)
    Q = np.linalg.solve(np.eye(group) - H, _grouped(r, group))
    return X, K_X, beta, np.swapaxes(Q, -3, -2).reshape(r.shape)


def _design(e, G, ridge, group):
    """X = [1, e] and X K, both (..., B, d + 1)."""
    _check(e, G, ridge, group)
    B, d = e.shape[-2:]
    ones = np.ones((*e.shape[:-1], 1))
    X, lam = np.concatenate([ones, e], -1), np.asarray(ridge, float)[..., None, None]
    if B > d:
        penalty = np.diag(np.append(0.0, np.ones(d)))
        return X, X @ np.linalg.inv(X.mT @ X + lam * penalty)
    # B <= d: a constant without a penalty is centring, and N is B x B. The fit is
    # A^T = off^T N^-1 G and c = mean G - A mean e.
    mean = e.mean(-2, keepdims=True)
    off = e - mean
    k = np.linalg.solve(off @ off.mT + lam * np.eye(B), off)
    return X, np.concatenate([1 / B - k @ mean.mT, k], -1)


def _check(e, G, ridge, group):
    """Can this be fitted without a group?"""
    B, d = e.shape[-2:]
    if G.shape[:-1] != e.shape[:-1]:
        raise ValueError(f"e (..., B, d) and G (..., B, k) need one B; got {e.shape}, {G.shape}")
    if not (np.isfinite(ridge) & (np.asarray(ridge) >= 0)).all():
        raise ValueError(f"ridge must be zero or positive, and finite; got {ridge}")
    if B % group or B == group:
        raise ValueError(
            f"no draw is independent of the one left out: {B} draws in groups of {group} that "
            "lean on each other; draw more, independently or in pairs"
        )
    left = (B - group) // group
    if np.any(np.asarray(ridge) == 0) and left < d + (group == 1):
        raise ValueError(
            f"{left} independent draws cannot tell {d} slopes and a constant: give a ridge > 0"
        )


def _without(K_X, beta, Q, group):
    """beta_- = beta - sum_{j in g} K x_j Q_j^T, the fit without the group of draw m, for each m."""
    own = _grouped(K_X, group).mT @ _grouped(Q, group)  # (..., B / group, d + 1, k)
    return beta[..., None, :, :] - np.concatenate([own] * group, -3)


def _grouped(x, group):
    """(..., B, k) -> (..., B / group, group, k): draws m, m + B / group, ... stand together."""
    return np.swapaxes(x.reshape(*x.shape[:-2], group, -1, x.shape[-1]), -3, -2)


# The gauge -----------------------------------------------------------------------------------


def gauge(e: np.ndarray, G: np.ndarray, group: int = 1, diagonal: bool = False) -> Gauge:
    """E|G + e|^2, zero only where q is the posterior, in its parts (`Gauge`), without bias.

    G + e = c + (A + I) e + r: a better Gaussian removes c and A + I, no Gaussian removes r. Draws
    m and n of different groups know nothing of each other, so |c|^2 is the mean of u_m.u_n,
    u = G + e, and |A + I|^2 that of sym(u_m e_m^T).sym(u_n e_n^T): the square of a sum less the
    squares of each group's own. Near the optimum noise may make them negative. diagonal=True is
    for a diagonal q, coordinate by coordinate.
    """
    if e.shape[-2] < 2 * group:
        raise ValueError(
            f"the gauge compares draws of two groups; got {e.shape[-2]} draws in groups of "
            f"{group}: take at least M={2 * group}"
        )
    if diagonal:
        return Gauge(*(part.sum(-1) for part in gauge(*_coordinates(e, G), group)))
    u, B = G + e, e.shape[-2]
    total, S = u.sum(-2), sym(e.mT @ u)
    e_g, u_g = _grouped(e, group), _grouped(u, group)
    uu, ee, eu = u_g @ u_g.mT, e_g @ e_g.mT, e_g @ u_g.mT  # (..., B / group, group, group)
    own_c = uu.sum((-3, -2, -1))
    own_A = (ee * uu + eu * eu.mT).sum((-3, -2, -1)) / 2
    pairs = B * (B - group)
    slope = (np.vecdot(total, total) - own_c) / pairs
    curvature = ((S * S).sum((-2, -1)) - own_A) / pairs
    return Gauge(slope, curvature, (u * u).sum((-2, -1)) / B - slope - curvature)


def shrinkage(seen: Gauge, d: int) -> np.ndarray:
    """The ridge that `seen`, the `Gauge` of a step before, asks for, (...); d = 1 if q is diagonal.

    A Gaussian prior on A + I with variance t^2 an entry, beside noise of variance s^2 an entry of
    r, makes the posterior mean a ridge of s^2 / t^2 towards the landing. The gauge knows both:
    residual = d s^2 and removable = d^2 t^2, but for c. Far from the posterior this is little,
    at the optimum nearly the landing itself. Kept between d / 100 and 100 d.
    """
    signal = np.maximum(seen.removable, seen.residual / 100 + 1e-300)
    return d * np.maximum(seen.residual / signal, 0.01)


def sym(A: np.ndarray) -> np.ndarray:
    """(A + A^T) / 2: E[G e^T] is symmetric, so its antisymmetric part is noise."""
    return (A + A.mT) / 2


# A diagonal q: every coordinate is a regression of its own, with d = 1 ------------------------


def _coordinates(e: np.ndarray, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return e.mT[..., None], G.mT[..., None]  # (..., B, d) -> (..., d, B, 1)


def diagonal(f: Callable) -> Callable:
    """`regress` or `rows` for a diagonal q: 2 d quadratics instead of d (d + 3) / 2.

    diagonal(f)(e, G, ...) returns c and A as (..., d), `rows` as (..., B, d).
    """

    def each(e, G, ridge, group=1):
        got = f(*_coordinates(e, G), np.asarray(ridge)[..., None], group)
        c, A = got.c[..., 0], got.A[..., 0, 0]
        return Fitted(c, A) if c.ndim < e.ndim else Fitted(c.mT, A.mT)

    return each


# Families with a score: values on scores -----------------------------------------------------


def baseline(
    S: np.ndarray, f: np.ndarray, F: np.ndarray, ridge: float | np.ndarray, group: int = 1
) -> np.ndarray:
    """One row a sample, (..., M, D), of mean grad_w E[f] = E[f S]: score function, linear baseline.

    S (..., M, D) = grad_w log q_w(z), f (..., M) the values, F = Var S, (..., D, D) or its
    diagonal (..., D). The value is regressed on [1, S] without sample m: f~ = b0 + b.S has
    E[f~ S] = F b, so row m is (f_m - b0 - b.S_m) S_m + F b. The penalty is ridge b^T F b, the
    same in all parameters w; for ridge -> infinity only b0 is left, the leave-one-out baseline.
    b estimates the natural gradient F^-1 E[f S]. Parameters that q does not feel (F singular, a
    softmax) get none.
    """
    if not np.all(np.asarray(ridge) > 0):
        raise ValueError(f"ridge={ridge}: repeated values of z leave [1, S] singular; give one > 0")
    # With F = V diag(l) V^T and e = l^-1/2 V^T S, which has mean 0 and covariance I, this is the
    # regression above with f for G: E[f S] = V l^1/2 E[f e].
    l, V = np.linalg.eigh(F) if F.ndim == S.ndim else (F, None)
    root = np.sqrt(np.maximum(l, 0))[..., None, :]  # (..., 1, D)
    felt = root > 1e-7 * root.max(-1, keepdims=True)
    e = np.where(felt, S if V is None else S @ V, 0) / np.where(felt, root, 1)
    _, K_X, beta, Q = _fit(e, f[..., None], ridge, group)  # Q (..., M, 1)
    each = _without(K_X, beta, Q, group)[..., 1:, 0] + Q * e  # (..., M, D)
    each = np.where(felt, each * root, 0)
    return each if V is None else each @ V.mT


# Words -------------------------------------------------------------------------------------------


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
        own = _fitted(rows, draw, draw.q.times_t(draw.factor, u), self.ridge)
        return draw.q.from_own(draw.factor, *own)

    def mean(self, draw: Draw, u: np.ndarray) -> np.ndarray:
        """The mean of the rows, (..., D), without making them."""
        q = draw.q
        c, A = _fitted(regress, draw, q.times_t(draw.factor, u), self.ridge)
        A = np.expand_dims(A, c.ndim - 1)
        return q.from_own(draw.factor, c[..., None, :], A)[..., 0, :]


def _fitted(f, draw, G, ridge):
    """`rows` or `regress` of slopes G in q's own coordinates, for q's shape."""
    draw.refuse_weights("a regression on the draws")
    ridge = (draw.q.dim if draw.q.full else 1) / 10 if ridge is None else ridge
    f = f if draw.q.full else diagonal(f)
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

    def each(draw, f, score):
        draw.refuse_weights("a linear baseline")
        return baseline(score, f, draw.q.fisher(draw.w), ridge, draw.group)

    return Method(name, doc, SF.route, rows=each, needs="fisher")


LB = linear_baseline()
