"""Many control variates at once: moments of draws, weights from moments, the combined gradient.

Shapes throughout: base gradients h (..., M, D), variates C (..., L, M, D), weights a (..., L); the
leading axes are independent runs. As mathematics, one sample is h_m in R^D and C_m in R^{D x L}.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

NOISE = 100 * np.finfo(float).eps  # relative size below which an eigenvalue is rounding error


class Moments(NamedTuple):
    """CC = mean of C_m^T C_m, (..., L, L), and Ch = mean of C_m^T h_m, (..., L), of M samples."""

    CC: np.ndarray
    Ch: np.ndarray
    M: float


def moments(h: ArrayLike, C: ArrayLike) -> Moments:
    """Means over the M samples of C_m^T C_m and C_m^T h_m, as `Moments`."""
    h, C = _checked(h, C)
    M, D = h.shape[-2:]
    C = C.reshape(*C.shape[:-2], M * D)  # (..., L, M D): sum over m and inner product at once
    h = h.reshape(*h.shape[:-2], 1, M * D)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below, by name
        CC, Ch = C @ C.mT / M, np.vecdot(C, h) / M
    _refuse_non_finite(CC, Ch)
    return Moments(CC, Ch, M)


def replicates(x: ArrayLike, group: int) -> np.ndarray:
    """Samples that lean on each other taken together, (..., M, D) -> (..., M / group, D).

    Groups are those of `Draw`. Each becomes its mean times sqrt(group), the size of one sample, so
    that v0 means the same for every kind of draw.
    """
    *lead, M, D = np.shape(x)
    return np.reshape(x, (*lead, group, M // group, D)).sum(-3) / np.sqrt(group)


# Weights for the whole set -------------------------------------------------------------------


def best_weights(CC: ArrayLike, Ch: ArrayLike) -> np.ndarray:
    """a = -CC^-1 Ch, the shortest h + C a in mean square when E[C^T C] and E[C^T h] are known.

    By eigenvalues, with every variate scaled to unit size; directions of rounding error alone get
    weight zero, so that a has the least norm where CC is singular.
    """
    CC, Ch = np.asarray(CC, float), np.asarray(Ch, float)
    if CC.shape[-2:] != (Ch.shape[-1], Ch.shape[-1]):
        raise ValueError(f"CC must be (..., L, L) and Ch (..., L); got {CC.shape} and {Ch.shape}")
    _refuse_non_finite(CC, Ch)
    size2 = CC.diagonal(axis1=-2, axis2=-1)  # (..., L)
    if size2.shape[-1] == 1 and (size2 >= 0).all():  # one variate, the common case
        return -Ch / np.where(size2 > 0, size2, np.inf)
    scale = 1 / np.sqrt(np.where(size2 > 0, size2, np.inf))
    values, U = np.linalg.eigh(CC * scale[..., :, None] * scale[..., None, :])
    noise = NOISE * size2.shape[-1] * values[..., -1:]
    if (values < -1e-6).any():
        raise ValueError("CC is not a matrix of second moments: it has a negative eigenvalue")
    y = np.vecmat(scale * Ch, U) / np.where(values > noise, values, np.inf)  # (..., L)
    return -scale * np.matvec(U, y)


def empirical_weights(moments: Moments) -> np.ndarray:
    """The best weights of the sample itself, as if its moments were the true ones: v0 = 0."""
    return best_weights(moments.CC, moments.Ch)


def bayes_weights(moments: Moments, v0: ArrayLike, D: int) -> np.ndarray:
    """a = -(D v0 / M I + CC)^-1 Ch, the Bayesian rule; D is the length of one gradient.

    `v0` may be an array that broadcasts against the runs. With M = 0 samples all weights are zero.
    """
    v0 = np.asarray(v0, float)
    if not (v0 >= 0).all():
        raise ValueError(f"v0 must be zero or positive; got {v0}")
    CC, Ch, M = moments
    ridge = D * v0[..., None, None] * np.eye(CC.shape[-1])
    return best_weights(ridge + M * CC, M * Ch)  # times M: no division when M = 0


# Averages over iterations --------------------------------------------------------------------


def start(L: int, runs: tuple[int, ...] = ()) -> Moments:
    """Moving moments before the first step: nothing seen, M = 0, hence zero weights."""
    return Moments(np.zeros((*runs, L, L)), np.zeros((*runs, L)), 0.0)


def update(state: Moments, h: ArrayLike, C: ArrayLike, gamma: float) -> Moments:
    """Moving moments after one more step of B samples, h and C: state in, state out."""
    return follow(state, moments(h, C), gamma)


def follow(state: Moments, new: Moments, gamma: float) -> Moments:
    """Moving moments after one more step whose own moments are `new`: state in, state out.

    A sample of age k steps counts (1 - gamma)^k. `M` is the sum of these counts at the next step,
    where the newest samples have age one: M_eff = B sum_{k=1..t} (1 - gamma)^k.
    """
    if not 0 <= gamma < 1:
        raise ValueError(f"gamma must lie in [0, 1); got {gamma}")
    if new.Ch.shape != state.Ch.shape:
        raise ValueError(
            f"the state holds moments of shape (..., L) = {state.Ch.shape}, the draw has "
            f"{new.Ch.shape}: begin with start(L={new.Ch.shape[-1]}, runs={new.Ch.shape[:-1]})"
        )
    seen, B = state.M, new.M
    CC = (seen * state.CC + B * new.CC) / (seen + B)
    Ch = (seen * state.Ch + B * new.Ch) / (seen + B)
    return Moments(CC, Ch, (1 - gamma) * (seen + B))


# The combined gradient -----------------------------------------------------------------------


def combine(h: ArrayLike, C: ArrayLike, a: ArrayLike) -> np.ndarray:
    """g_m = h_m + C_m a, one gradient a sample, (..., M, D); its mean over M is the estimate.

    Weights are (..., L), or (..., L, D) with one for every coordinate; `...` are the runs of C.
    """
    h, C, a = np.asarray(h), np.asarray(C), np.asarray(a)
    L, M, D = C.shape[-3:]
    if h.shape[-2:] != (M, D):
        raise ValueError(f"C {C.shape} needs h of shape (..., {M}, {D}); got {h.shape}")
    if a.ndim == C.ndim - 1 and a.shape[-2:] == (L, D):
        return h + (a[..., None, :] * C).sum(-3)
    if a.ndim > C.ndim - 2 or a.shape[-1:] != (L,):
        raise ValueError(
            f"C {C.shape} needs weights (..., {L}) or (..., {L}, {D}) with at most its own "
            f"run axes; got {a.shape}"
        )
    g = a[..., None, :] @ C.reshape(*C.shape[:-2], M * D)  # (..., 1, M D)
    return h + g.reshape(*g.shape[:-2], M, D)


def mean(h: ArrayLike, C: ArrayLike, a: ArrayLike) -> np.ndarray:
    """The mean over m of `combine`, (..., D), without a combined gradient for every sample."""
    h, C = _checked(h, C)
    share = np.full(h.shape[-2], 1 / h.shape[-2])  # as a product: faster than h.mean(-2)
    if C.shape[-3] == 0:  # nothing to add, and adding nothing would take as long as all else
        return share @ h
    return combine((share @ h)[..., None, :], (share @ C)[..., None, :], a)[..., 0, :]


# Inside --------------------------------------------------------------------------------------


def _checked(h: ArrayLike, C: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """h and C as arrays, or an error that names the axis at fault."""
    h, C = np.asarray(h, float), np.asarray(C, float)
    if h.ndim < 2 or C.ndim < 3 or C.shape[:-3] + C.shape[-2:] != h.shape:
        raise ValueError(
            f"h must be (..., M, D) and C (..., L, M, D) with the same runs, M and D; "
            f"got h {h.shape} and C {C.shape}"
        )
    if h.shape[-2] == 0:
        raise ValueError(f"moments need at least one sample, M >= 1; got h {h.shape}")
    return h, C


def _refuse_non_finite(CC, Ch):
    """An error that names the first variate (or h) whose moments are not finite."""
    if np.isfinite(CC).all() and np.isfinite(Ch).all():
        return
    bad = np.argwhere(~np.isfinite(np.diagonal(CC, axis1=-2, axis2=-1)))
    who = f"variate {bad[0][-1]}" if len(bad) else "h"
    run = tuple(map(int, bad[0][:-1])) if len(bad) else ()
    where = f" in run {run}" if run else ""
    raise ValueError(f"{who}{where} has a NaN or infinite entry (or one whose square overflows)")
