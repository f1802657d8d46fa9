"""The ensemble of all quadratics: regress the slope of f on the draw that made it. NumPy alone.

Letters: z_m = mu + L e_m with base draws e (..., B, d), slopes in q's own coordinates
G_m = L^T grad f(z_m), (..., B, d). Leading axes are runs. A quadratic f~ whose slope is c + A e
has E[G~] = c and E[G~ e^T] = A without sampling, because E[e] = 0 and E[e e^T] = I. So for every
vector c and matrix A

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
from typing import NamedTuple

import numpy as np


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
