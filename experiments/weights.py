"""Other rules for weights than the package's: what chapters 8 and 9 compare it with."""

import numpy as np
from numpy.typing import ArrayLike

from cvlib.combine import Moments, bayes_weights, combine, empirical_weights, moments


def posterior_moments(moments: Moments, T_cc: ArrayLike, T_hc: ArrayLike, n0: float) -> Moments:
    """E[C^T C] and E[C^T h] given the sample, for a Normal-Wishart prior worth n0 > 0 samples.

    T_cc (..., L, L) and T_hc (..., L) are the traces of the blocks of V0, where V0 / n0 is the
    prior mean of x x^T, x = (h, c_1, ..., c_L): a sum of n0 imagined samples beside M real ones.
    """
    if not n0 > 0:
        raise ValueError(f"n0, the number of imagined samples, must be positive; got {n0}")
    CC, Ch, M = moments
    T_cc, T_hc, L = np.asarray(T_cc, float), np.asarray(T_hc, float), Ch.shape[-1]
    if T_cc.shape[-2:] != (L, L) or T_hc.shape[-1:] != (L,):
        raise ValueError(
            f"{L} variates need traces T_cc (..., {L}, {L}) and T_hc (..., {L}); "
            f"got {T_cc.shape} and {T_hc.shape}"
        )
    return Moments((T_cc + M * CC) / (n0 + M), (T_hc + M * Ch) / (n0 + M), n0 + M)


def general_weights(moments: Moments, T_cc: ArrayLike, T_hc: ArrayLike) -> np.ndarray:
    """a = -(T_cc / M + CC)^-1 (T_hc / M + Ch), the Bayesian rule for any V0, from its traces.

    The best weights of `posterior_moments`: n0 scales both alike, so it cancels. To say instead
    "my guess S of E[C^T C] is worth n0 samples", give T_cc = n0 S.
    """
    return empirical_weights(posterior_moments(moments, T_cc, T_hc, n0=1))


def coordinate_weights(h: ArrayLike, C: ArrayLike, v0: ArrayLike = 0.0) -> np.ndarray:
    """Weights of their own for every coordinate of the gradient, (..., L, D), with ridge v0 / M.

    `v0` is a number, or an array that broadcasts against the runs.
    """
    h, C = np.asarray(h, float), np.asarray(C, float)
    one_coordinate = moments(np.moveaxis(h, -1, -2)[..., None], np.moveaxis(C, -1, -3)[..., None])
    v0 = np.asarray(v0, float)[..., None]  # the same for all coordinates of a run
    return np.moveaxis(bayes_weights(one_coordinate, v0, D=1), -2, -1)


def ridge_weights(
    h: ArrayLike, C: ArrayLike, penalties: ArrayLike | None = None, folds: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """a = -(p t I + CC)^-1 Ch with t = tr(CC) / L, and p of `penalties` chosen by cross-validation.

    Each run picks its own p, by the squared length of h + C a on the samples left out. Returns
    a (..., L) and p (...).
    """
    h, C = np.asarray(h, float), np.asarray(C, float)
    L, M, _ = C.shape[-3:]
    if not 2 <= folds <= M:
        raise ValueError(f"folds must lie between 2 and the number of samples, {M}; got {folds}")
    p = np.logspace(-6, 2, 17) if penalties is None else np.asarray(penalties, float)
    p = p.reshape(-1, *[1] * (C.ndim - 3))  # (P, 1, ...): one axis before the runs

    def fit(sample):
        t = np.trace(sample.CC, axis1=-2, axis2=-1) / max(L, 1)
        return bayes_weights(sample._replace(M=1), p * t, D=1)  # (P, ..., L)

    risk = 0.0
    for k in range(folds):
        out = np.arange(M) % folds == k
        a = fit(moments(h[..., ~out, :], C[..., ~out, :]))
        left_out = combine(h[None, ..., out, :], C[None, ..., out, :], a)  # (P, ..., m, D)
        risk += (left_out**2).sum((-2, -1))
    best = np.argmin(risk, axis=0)[None]  # (1, ...)
    a = np.take_along_axis(fit(moments(h, C)), best[..., None], axis=0)[0]
    return a, p.ravel()[best[0]]
