"""Gamma and beta: continuous families whose base moves with w, a little.

A gamma variable x enters as z = log x, a beta variable as z = logit x. Models are then written in
z, which may be any real number: nothing underflows where x itself would be 0, and the same model
takes a Gaussian q. w holds logarithms of the positive parameters, so that every w is legal and a
step of SGD cannot leave the family.
"""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from ..draws import Draw
from ..special import betaln, gammaln, polygamma, psi
from .base import LARGEST, NOT_SAID, Array, ArrayLike, Family, Pair


class _Standardised(Family, base=True):
    """Two positive parameters a coordinate, w = [log first, log second], D = 2 d.

    Generalised reparameterisation (Ruiz et al. 2016): z = m(w) + s(w) eps, with m and s the mean
    and standard deviation of z. Then eps has mean 0 and variance 1 whatever w is, but not the same
    law: its density qbar_w moves with w, a little.
    """

    _sample = NOT_SAID  # by each family
    parts = "log a", "log b"
    far = largest = LARGEST
    quadratics = True

    def pack(self, a: ArrayLike, b: ArrayLike) -> Array:  # type: ignore[override]
        """w from the positive parameters, numbers or (..., d)."""
        both = super().pack(a, b)
        if not np.all(both > 0):
            raise ValueError(f"both parameters of {self!r} must be positive: {both}")
        return np.log(both)

    def unpack(self, w: ArrayLike) -> Pair:
        """The positive parameters a and b, (..., d) each."""
        w = self.sized(w)
        return anp.exp(w[..., : self.dim]), anp.exp(w[..., self.dim :])

    def transform(self, w: Array, eps: Array) -> Array:
        m, s = self.moments(w)
        return m + s * eps

    def z1(self, draw: Draw) -> Array:
        """m + s eps, (..., M, d)."""
        return draw.mu[..., None, :] + draw.factor[..., None, :] * draw.eps

    def noise(self, rng: np.random.Generator, w: Array, M: int) -> Array:
        """eps = (z - m) / s with z ~ q_w, (..., M, d)."""
        m, s = self.moments(w)
        return (self._sample(rng, w, M) - m[..., None, :]) / s[..., None, :]

    def jacobian(self, draw: Draw) -> Array:
        """dz/dw at fixed eps, m' + s' eps, for each of the two parameters, (..., M, 2, d)."""
        dm, ds = draw.of("moments_grad")
        return dm[..., None, :, :] + ds[..., None, :, :] * draw.eps[..., None, :]

    def pull1(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        """The chain rule through z1, (..., M, D)."""
        return (u[..., None, :] * draw.of("jacobian")).reshape(*u.shape[:-1], self.D)

    def slope(self, w: Array, z: Array) -> Array:
        """d log q_w / dz, (..., M, d)."""
        return elementwise_grad(self.log_density, 1)(w, z)

    def base_score(self, draw: Draw) -> Array:
        """log qbar_w(eps) = log q_w(m + s eps) + log s, so its gradient has three parts."""
        slope = self.slope(draw.w[..., None, :], draw.z)
        stretch = draw.of("moments_grad")[1] / draw.factor[..., None, :]
        return draw.score + self.pull1(draw, slope) + stretch.reshape(draw.w.shape)[..., None, :]


def _log_gamma(rng: np.random.Generator, shape: Array, M: int) -> Array:
    """log of standard gamma variables, (..., M, d): x(a) = x(a + 1) u^(1/a), safe for small a."""
    shape = np.broadcast_to(shape[..., None, :], (*shape.shape[:-1], M, shape.shape[-1]))
    # -log u is exponential, and never infinite
    return np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(shape.shape) / shape


class Gamma(_Standardised):
    """z = log x, x ~ Gamma(shape a, rate b), independent; w = [log a, log b], D = 2 d.

    log q_w(z) = a log b - log Gamma(a) + a z - b e^z: a density in z, not in x. Its derivatives are
    written by hand: a step takes a third of the time.
    """

    def log_density(self, w: Array, z: Array) -> Array:
        log_a, log_b = w[..., : self.dim], w[..., self.dim :]
        a = anp.exp(log_a)
        return anp.sum(a * (log_b + z) - gammaln(a) - anp.exp(log_b + z), -1)

    def _sample(self, rng: np.random.Generator, w: Array, M: int) -> Array:
        a, _ = self.unpack(w)
        return _log_gamma(rng, a, M) - w[..., None, self.dim :]

    def moments(self, w: Array) -> Pair:
        """Mean and standard deviation of z: psi(a) - log b, sqrt(psi'(a)), (..., d)."""
        a, _ = self.unpack(w)
        return psi(a) - w[..., self.dim :], anp.sqrt(polygamma(1, a))

    def moments_grad(self, draw: Draw) -> Pair:
        a, _ = self.unpack(draw.w)
        ds = a * polygamma(2, a) / (2 * draw.factor)
        dm = np.stack([a * draw.factor**2, -np.ones_like(a)], -2)
        return dm, np.stack([ds, np.zeros_like(a)], -2)

    def slope(self, w: Array, z: Array) -> Array:
        return np.exp(w[..., : self.dim]) - np.exp(w[..., self.dim :] + z)

    def score(self, draw: Draw) -> Array:
        """[a (z + log b - psi(a)), a - b e^z] = [a s eps, a - b e^z], (..., M, D)."""
        a, _ = self.unpack(draw.w)
        by_shape = (a * draw.factor)[..., None, :] * draw.eps
        return np.concatenate([by_shape, self.slope(draw.w[..., None, :], draw.z)], -1)

    def cross_grad(self, w: Array, v: Array) -> Array:
        a, _ = self.unpack(w)
        av, bv = self.unpack(v - w)  # in units of a and b
        return np.concatenate([a * (a * polygamma(1, a) * av - bv), a * (bv - av)], -1)

    def cross(self, w: Array, v: Array) -> Array:
        (a, b), (av, bv), log_bv = self.unpack(w), self.unpack(v), v[..., self.dim :]
        mean = psi(a) - w[..., self.dim :]
        return anp.sum(av * (log_bv + mean) - gammaln(av) - bv * a / b, -1)


class Beta(_Standardised):
    """z = logit x, x ~ Beta(a, b), independent; w = [log a, log b], D = 2 d.

    log q_w(z) = a log sigma(z) + b log sigma(-z) - log B(a, b): a density in z, not in x.
    """

    def log_density(self, w: Array, z: Array) -> Array:
        a, b = anp.exp(w[..., : self.dim]), anp.exp(w[..., self.dim :])
        return anp.sum(-a * anp.logaddexp(0, -z) - b * anp.logaddexp(0, z) - betaln(a, b), -1)

    def _sample(self, rng: np.random.Generator, w: Array, M: int) -> Array:
        a, b = self.unpack(w)
        return _log_gamma(rng, a, M) - _log_gamma(rng, b, M)

    def moments(self, w: Array) -> Pair:
        """Mean psi(a) - psi(b) and standard deviation sqrt(psi'(a) + psi'(b)) of z, (..., d)."""
        a, b = self.unpack(w)
        return psi(a) - psi(b), anp.sqrt(polygamma(1, a) + polygamma(1, b))

    def cross(self, w: Array, v: Array) -> Array:
        (a, b), (av, bv) = self.unpack(w), self.unpack(v)
        both = psi(a + b)
        return anp.sum(av * (psi(a) - both) + bv * (psi(b) - both) - betaln(av, bv), -1)
