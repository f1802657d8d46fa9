"""Gaussian families: two reparameterisations, their pull-backs, and what curvature gives.

Pull-backs are written by hand: autograd through w, sample by sample, is many times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
import scipy

from ..draws import Draw
from ..special import LOG_2PI
from .base import Array, ArrayLike, Family, Pair


class OfNormal(Family, base=True):
    """What families share whose base is N(0, I), whatever w is."""

    def noise(self, rng: np.random.Generator, w: Array, M: int) -> Array:
        """Standard normal, (..., M, d)."""
        return rng.standard_normal((*w.shape[:-1], M, self.dim))

    def mirror(self, w: Array, eps: Array) -> Array:
        return -eps

    def quantile(self, w: Array, u: Array) -> Array:
        return scipy.special.ndtri(u)

    def height(self, eps: Array, stretch: Array) -> Array:
        """log q_w where the base sample is eps and log |det dz / deps| is `stretch`, (..., M)."""
        return -0.5 * (anp.sum(eps**2, -1) + self.dim * LOG_2PI) - stretch


class _GaussianFamily(OfNormal, base=True):
    """What both families share: w = [mu, factor], q_w = N(mu, L L^T), L built from the factor."""

    diag: Any  # where the diagonal of L stands in w
    gaussian = quadratics = True

    def start(self, runs: int | tuple[int, ...] = ()) -> Array:
        """mu = 0, L = I, as (*runs, D)."""
        w = super().start(runs)
        w[..., self.diag] = 1.0
        return w

    def check(self, w: ArrayLike) -> Array:
        w = super().check(w)
        scales = w.take(self.diag, -1)
        if np.count_nonzero(scales) < scales.size:  # in half the time of all()
            where = np.argwhere(w[..., self.diag] == 0)[0].tolist()
            raise ValueError(
                f"the diagonal of L is 0 at {where}: q_w has no density there. Any other number "
                "will do, a negative one too (it is a factor of the same covariance)"
            )
        return w

    def entropy(self, w: ArrayLike) -> Array:
        """log|det L| + d/2 (1 + log 2 pi), (...)."""
        return self.stretch(self.check(w)) + 0.5 * self.dim * (1 + LOG_2PI)

    def stretch(self, w: Array) -> Array:
        """log|det L|, (...)."""
        return anp.sum(anp.log(anp.abs(w[..., self.diag])), -1)

    def entropy_grad(self, w: Array) -> Array:
        """Gradient of the entropy: 1 / L_ii for the diagonal of L, else 0, (..., D)."""
        w = np.asarray(w, float)
        out = np.zeros(w.shape)
        out[..., self.diag] = 1 / w.take(self.diag, -1)
        return out

    def log_q(self, w: ArrayLike, z: Array) -> Array:
        w = self.check(w)
        mu, factor = self.unpack(w)
        return self.height(self.solve(factor, z - mu[..., None, :]), self.stretch(w)[..., None])

    def log_q1(self, draw: Draw) -> Array:
        return self.height(draw.eps, self.stretch(draw.w)[..., None])

    def transform(self, w: Array, eps: Array) -> Array:
        moved = self.times(self.own_factor(w), eps[..., None, :])[..., 0, :]
        return w[..., : self.dim] + moved

    def mapped(self, w: Array, eps: Array) -> Pair:
        """z = mu + L eps (..., M, d), and log |det L| (..., M or 1)."""
        return self.transform(w, eps), self.stretch(w)

    def log_density(self, w: Array, z: Array) -> Array:
        eps = self.solve(self.own_factor(w), (z - w[..., : self.dim])[..., None, :])[..., 0, :]
        return self.height(eps, self.stretch(w))

    def moments(self, w: Array) -> Pair:
        """Mean and factor of the covariance."""
        return self.unpack(w)

    def joined(self, mu: Array, factor: Array) -> Array:
        """`pack` without its checks."""
        return np.concatenate([mu, self.lower(factor)], -1)

    def chain(self, draw: Draw, slope: Array, hess_L: Array, out: Array | None = None) -> Array:
        """grad_w E_q f = [E grad f, E[grad^2 f] L] (Bonnet, Price), (..., M or 1, D)."""
        if slope.shape[:-1] != hess_L.shape[:-1]:
            lead = np.broadcast_shapes(slope.shape[:-1], hess_L.shape[:-1])
            slope, hess_L = (np.broadcast_to(x, (*lead, x.shape[-1])) for x in (slope, hess_L))
        fits = out is not None and out.shape[:-1] == slope.shape[:-1]
        return np.concatenate([slope, hess_L], -1, out=out if fits else None)

    def z1(self, draw: Draw) -> Array:
        """The first transform, mu + L eps, (..., M, d)."""
        return draw.mu[..., None, :] + self.times(draw.factor, draw.eps)

    def outer(self, u: Array, e: Array) -> Array:
        """What w has of u e^T, without the d x d matrix: (..., M, d) twice -> (..., M, D - d)."""
        return self.by_row(u) * self.by_column(e)

    def pull1(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        """[u, lower(u eps^T)], (..., M, D): the chain rule through z1."""
        out = np.empty((*draw.eps.shape[:-1], self.D)) if out is None else out
        out[..., : self.dim] = u
        np.multiply(self.by_row(u), draw.of("eps_by_column"), out=out[..., self.dim :])
        return out

    def eps_by_column(self, draw: Draw) -> Array:
        return self.by_column(draw.eps)

    def whitened(self, draw: Draw) -> Array:
        """L^-T eps = -grad_z log q_w(z1), (..., M, d)."""
        return self.solve_t(draw.factor, draw.eps)

    def score(self, draw: Draw) -> Array:
        """grad_w log q_w(z1) = [u, lower(u eps^T) - diag(1 / L_ii)], u = L^-T eps, (..., M, D)."""
        path = self.pull1(draw, draw.of("whitened"))
        return path - self.entropy_grad(draw.w)[..., None, :]


class Gaussian(_GaussianFamily):
    """q_w = N(mu, L L^T), w = [mu, lower triangle of L row by row], D = d + d (d + 1) / 2."""

    parts = "mu", "L"
    full = True
    compose = staticmethod(np.matmul)  # L K

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.rows, self.cols = np.tril_indices(self.dim)
        self.flat = self.rows * self.dim + self.cols  # lower triangle in a flattened matrix
        self.diag = self.dim + np.flatnonzero(self.rows == self.cols)  # diagonal of L in w
        self.lengths = np.arange(1, self.dim + 1)  # of the rows of the lower triangle
        self.D = self.dim + len(self.flat)
        self.at = np.full((self.dim, self.dim), len(self.flat))  # in [entries, 0]: where L has them
        self.at[self.rows, self.cols] = np.arange(len(self.flat))

    def pack(self, mu: ArrayLike, L: ArrayLike) -> Array:  # type: ignore[override]
        """w = [mu, lower triangle of L], (..., D)."""
        d, mu, L = self.dim, np.asarray(mu, float), np.asarray(L, float)
        if mu.shape[-1:] != (d,) or L.shape[-2:] != (d, d):
            raise ValueError(f"mu must be (..., {d}), L (..., {d}, {d}); got {mu.shape}, {L.shape}")
        if np.triu(L, 1).any():
            raise ValueError("L must be lower triangular: take np.linalg.cholesky(covariance)")
        return self.joined(mu, L)

    def unpack(self, w: ArrayLike) -> Pair:
        """mu (..., d) and L (..., d, d)."""
        mu, entries = super().unpack(w)
        return mu, self.square(entries)

    def square(self, entries: Array) -> Array:
        """The lower triangular matrix (..., d, d) with these entries (..., D - d)."""
        L = np.zeros((*entries.shape[:-1], self.dim * self.dim))
        L[..., self.flat] = entries
        return L.reshape(*entries.shape[:-1], self.dim, self.dim)

    def own_factor(self, w: Array) -> Array:
        """L, for autograd."""
        return filled(w[..., self.dim :], self.at)

    def sd(self, w: ArrayLike) -> Array:
        return np.sqrt((self.unpack(self.check(w))[1] ** 2).sum(-1))

    def lower(self, G: Array) -> Array:
        """What w has of a gradient G (..., d, d) in L: its lower triangle, (..., D - d)."""
        return G.reshape(*G.shape[:-2], -1)[..., self.flat]

    def by_row(self, u: Array) -> Array:
        """u_i for every entry (i, j) of the lower triangle: take(rows), but twice as fast."""
        return u.repeat(self.lengths, -1)

    def by_column(self, e: Array) -> Array:
        """e_j for every entry (i, j)."""
        return e.take(self.cols, -1)

    def gram(self, c: Array, X: Array, L: Array) -> Array:
        """lower(X^T diag(c) X L) for c (..., M, B), X (..., M or 1, B, d), as (..., M, D - d)."""
        left, L = (c[..., None] * X).mT, L[..., None, :, :]  # (..., M, d, B)
        few = X.shape[-2] < self.dim  # then no d x d x d product
        return self.lower(left @ (X @ L) if few else (left @ X) @ L)

    def hess_L(self, times: Callable, L: Array) -> Array:
        """lower(H L), given `times`, which takes rows V (..., k, d) to H V (..., M, k, d)."""
        HL = times(L.mT)  # row k is H times column k of L
        return self.lower(HL.mT)

    def curvature(self, L: Array, g: Array) -> Array:
        """I - P from the part g (..., D - d) of a gradient of the ELBO, (..., d, d).

        P = -L^T E[grad^2 log p(x, z)] L is the curvature in q's own coordinates.
        """
        T = np.tril(L.mT @ self.square(g))
        return T + np.tril(T, -1).mT

    def from_own(self, L: Array, c: Array, A: Array) -> Array:
        """[L^-T c, lower(L^-T A)] for rows c (..., M, d) and A (..., M, d, d), as (..., M, D)."""
        back = _inverse(L.mT)  # L^-T
        lower = self.lower(back[..., None, :, :] @ A)
        return np.concatenate([c @ back.mT, lower], -1)

    def change(self, A: Array, rho: float | Array, positive: bool) -> Array:
        """K (..., d, d), lower triangular: L K is the factor after a natural step, A = I - P.

        K K^T = S^-1 with S = R R^T, R upper triangular: the Cholesky factor of S turned round.
        """
        I = np.eye(self.dim)
        B = I - np.expand_dims(rho, -1) * A
        S = (I + B @ B) / 2 if positive else B
        R = _cholesky(S[..., ::-1, ::-1])[..., ::-1, ::-1]
        return _inverse(R).mT

    def times(self, L: Array, v: Array) -> Array:
        """L v for each row of v, (..., M, d)."""
        return v @ L.swapaxes(-1, -2)

    def times_t(self, L: Array, v: Array) -> Array:
        """L^T v for each row of v."""
        return v @ L

    def solve(self, L: Array, v: Array) -> Array:
        """L^-1 v for each row of v."""
        return anp.linalg.solve(L, v.swapaxes(-1, -2)).swapaxes(-1, -2)

    def solve_t(self, L: Array, v: Array) -> Array:
        """L^-T v for each row of v."""
        return self.solve(L.mT, v)

    def svd(self, draw: Draw) -> tuple:
        """L = U diag(s) V^T, b = U^T eps (..., M, d), and s_j / (s_i + s_j), (..., 1, d, d).

        More exact than the eigenvalues of L L^T, whose s are squared.
        """
        U, s, Vt = np.linalg.svd(draw.factor)
        shares = s[..., None, :] / (s[..., :, None] + s[..., None, :])
        return U, s[..., None, :], Vt, draw.eps @ U, shares[..., None, :, :]

    def z2(self, draw: Draw) -> Array:
        """The second transform, mu + S eps with S = (L L^T)^(1/2) symmetric, (..., M, d)."""
        U, s, _, b, _ = draw.of("svd")
        return draw.mu[..., None, :] + (b * s) @ U.mT

    def pull2(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        """[u, lower(2 X L)], S X + X S = sym(u eps^T), (..., M, D): the chain rule through z2.

        In the basis of L = U s V^T the Lyapunov equation is diagonal, and 2 X L = U K V^T with
        K_ij = (a_i b_j + b_i a_j) s_j / (s_i + s_j), a = U^T u, b = U^T eps.
        """
        U, _, Vt, b, shares = draw.of("svd")
        a = u @ U
        left, right = np.stack([a, b], -1), np.stack([b, a], -2)  # (..., M, d, 2), (..., M, 2, d)
        K = left @ right  # a b^T + b a^T
        K *= shares
        K = U[..., None, :, :] @ (K @ Vt[..., None, :, :])  # (..., M, d, d)
        return np.concatenate([u, self.lower(K)], -1, out=out)


def filled(entries: Array, at: Array) -> Array:
    """Matrices (..., d, d) of `entries` (..., n), where `at` (d, d) says which; of 0, if it is n.

    For autograd.
    """
    return anp.concatenate([entries, np.zeros((*entries.shape[:-1], 1))], -1)[..., at]


def _cholesky(S: Array) -> Array:
    """The lower Cholesky factor of each matrix; NaN where one is not positive definite."""
    try:
        return np.linalg.cholesky(S)
    except np.linalg.LinAlgError:
        if S.ndim == 2:
            return np.full(S.shape, np.nan)
        return np.stack([_cholesky(one) for one in S])


def _inverse(R: Array) -> Array:
    """R^-1 of upper triangular R (..., d, d), in a fifth of the time of a general inverse."""
    parts = [scipy.linalg.lapack.dtrtri(one)[0] for one in R.reshape(-1, *R.shape[-2:])]
    return np.stack(parts).reshape(R.shape)


class DiagonalGaussian(_GaussianFamily):
    """q_w = N(mu, diag(sigma^2)), w = [mu, sigma], D = 2 d; RP1 is RP2 where sigma > 0."""

    parts = "mu", "sigma"
    compose = staticmethod(np.multiply)

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.diag = self.dim + np.arange(self.dim)

    def own_factor(self, w: Array) -> Array:
        return w[..., self.dim :]

    def sd(self, w: ArrayLike) -> Array:
        return np.abs(self.check(w)[..., self.dim :])

    def lower(self, u: Array) -> Array:
        return u

    by_row = by_column = lower

    def gram(self, c: Array, X: Array, sigma: Array) -> Array:
        """diag(X^T diag(c) X) sigma, (..., M, d), without the d x d matrix."""
        X2 = X**2
        total = c @ X2[..., 0, :, :] if X.shape[-3] == 1 else np.vecmat(c, X2)
        return total * sigma[..., None, :]

    def curvature(self, sigma: Array, g: Array) -> Array:
        """1 - p, with p the curvature in units of sigma, (..., d)."""
        return sigma * g

    def from_own(self, sigma: Array, c: Array, A: Array) -> Array:
        """[c, A] / sigma for rows c, A (..., M, d)."""
        return np.concatenate([self.solve(sigma, c), self.solve(sigma, A)], -1)

    def change(self, A: Array, rho: float | Array, positive: bool) -> Array:
        B = 1 - rho * A
        S = (1 + B**2) / 2 if positive else np.where(B > 0, B, np.nan)
        return 1 / np.sqrt(S)

    def times(self, sigma: Array, v: Array) -> Array:
        return v * sigma[..., None, :]

    def solve(self, sigma: Array, v: Array) -> Array:
        return v / sigma[..., None, :]

    times_t, solve_t = times, solve  # a diagonal matrix is its own transpose

    def z2(self, draw: Draw) -> Array:
        return draw.mu[..., None, :] + self.times(np.abs(draw.factor), draw.eps)

    def pull2(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        return np.concatenate([u, u * self.times(np.sign(draw.factor), draw.eps)], -1, out=out)
