"""The estimators of chapter 3 as they are defined: autograd through w, slow, and short to read.

Each takes an integrand f, a function (M, d) -> (M,) for autograd, a family, one w (D,) and base
samples eps (M, ...), and gives one gradient a sample, (M, D). Whatever f itself takes from w is
held fixed. The words of the package give the same numbers many times faster.
"""

from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from cvlib.families import Family


def through(of_w: Callable, w: np.ndarray, M: int) -> np.ndarray:
    """grad_w of M functions of w, (M, D): every sample has a copy of w, and its own derivative."""
    return elementwise_grad(of_w)(np.tile(w, (M, 1)))


def SF(f: Callable, q: Family, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """f(Z) grad_w log q_w(Z), Z held fixed: the score function."""
    z = q.transform(w[None], eps)
    return f(z)[:, None] * through(lambda w: q.log_density(w, z), w, len(z))


def RP1(f: Callable, q: Family, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """grad_w f(T_w(eps)), eps held fixed: reparameterised."""
    return through(lambda w: f(q.transform(w, eps)), w, len(eps))


def RP2(f: Callable, q: Family, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """The same with T_w(eps) = mu + (L L^T)^(1/2) eps, for a Gaussian q."""

    def root_times_eps(w):
        L = q.own_factor(w)
        if not q.full:
            return anp.abs(L) * eps
        s2, U = anp.linalg.eigh(anp.matmul(L, anp.swapaxes(L, -1, -2)))
        along = anp.sqrt(s2) * anp.matmul(eps[:, None, :], U)[:, 0]  # U^T eps, scaled
        return anp.matmul(U, along[..., None])[..., 0]

    return through(lambda w: f(w[:, : q.dim] + root_times_eps(w)), w, len(eps))


def GR(f: Callable, q: Family, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """f(T_w(eps)) grad_w log qbar_w(eps) + grad_w f(T_w(eps)): generalised.

    The density of eps is qbar_w(eps) = q_w(T_w(eps)) |det dT_w / deps|.
    """

    def log_base(w):
        row = lambda i: elementwise_grad(lambda eps: q.transform(w, eps)[:, i])(eps)  # dT_i / deps
        jacobian = anp.stack([row(i) for i in range(q.dim)], 1)  # (M, d, d)
        stretch = anp.linalg.slogdet(jacobian)[1]
        return q.log_density(w, q.transform(w, eps)) + stretch

    value = f(q.transform(w[None], eps))
    return value[:, None] * through(log_base, w, len(eps)) + RP1(f, q, w, eps)


def PR(f: Callable, q: Family, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """[grad f(Z), what w has of grad^2 f(Z) L], for a Gaussian q: Bonnet's and Price's theorems."""
    z, L, slope = q.transform(w[None], eps), q.own_factor(w), elementwise_grad(f)
    H = np.stack([elementwise_grad(lambda z: slope(z)[:, j])(z) for j in range(q.dim)], 1)
    rows, cols = np.tril_indices(q.dim)
    bent = (H @ L)[:, rows, cols] if q.full else np.diagonal(H, 0, 1, 2) * L
    return np.concatenate([slope(z), bent], -1)
