"""Families beyond the Gaussian: gamma and beta, whose base moves with w; Bernoulli and categorical.

A gamma variable x enters as z = log x, a beta variable as z = logit x. Models are then written in
z, which may be any real number: nothing underflows where x itself would be 0, and the same model
takes a Gaussian q. A discrete z takes finitely many values, a continuous zeta stands behind it. w
holds logarithms or logits, so that every w is legal and a step of SGD cannot leave the family.
"""

from __future__ import annotations

from itertools import product

import autograd.numpy as anp
import numpy as np
import scipy
from autograd import elementwise_grad

from ..arguments import whole
from ..draws import Draw, kept
from ..special import betaln, expit, gammaln, logsumexp, polygamma, psi
from .base import NOT_SAID, Array, ArrayLike, Family, Pair

LARGEST = 300.0  # of logarithms and logits: e^300 and its square are far from overflow
STATES = 4096  # so many are enumerated, and no more


# Gamma and beta -----------------------------------------------------------------------------------


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

    def pull1(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        """The chain rule through z1, u (m' + s' eps), (..., M, D)."""
        return self.chain(draw, u, u * draw.eps)

    def slope(self, w: Array, z: Array) -> Array:
        """d log q_w / dz, (..., M, d)."""
        return elementwise_grad(self.log_density, 1)(w, z)

    def base_score(self, draw: Draw) -> Array:
        """log qbar_w(eps) = log q_w(m + s eps) + log s, so its gradient has three parts."""
        slope = self.slope(draw.w[..., None, :], draw.z)
        in_s = slope * draw.eps + 1 / draw.factor[..., None, :]
        return draw.score + self.chain(draw, slope, in_s)


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
        a, b = self.unpack(w)
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


# Bernoulli and categorical ------------------------------------------------------------------------


class _Discrete(Family, base=True):
    """z cannot be moved by w: GR is SF for a plain integrand.

    Behind z stands a continuous variable zeta = logits + eps with z = step(zeta), and integrands
    of zeta have three estimators: SF, the score of zeta's density; RP1, zeta moved by w; and GR,
    with base (z, v): draw z first, then zeta given z from v, so that the score is the score of z.
    The base sample of a draw has two halves: one makes zeta and z, the other is for a fresh zeta
    given z. Coupled, the zeta given z is the one that made z.
    """

    behind = zeta_given_z = NOT_SAID  # by each family
    parts = ("logits",)
    far = largest = LARGEST
    smooth = "zeta"
    pull1 = NOT_SAID  # w moves zeta, and no z

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.noise_dim = 2 * self.dim

    def halves(self, eps: Array) -> Pair:
        return eps[..., : self.dim], eps[..., self.dim :]

    def score(self, draw: Draw) -> Array:
        """z - E z, (..., M, D)."""
        return draw.z - draw.mu[..., None, :]

    base_score = score  # the base is z itself

    def zeta(self, draw: Draw) -> Array:
        """The variable behind z, (..., M, d)."""
        return self.behind(draw.w[..., None, :], draw.eps)

    @kept
    def given(self, draw: Draw, coupled: bool) -> Pair:
        return self.zeta_given_z(draw, coupled)

    def zeta_fresh(self, draw: Draw) -> Array:
        return self.given(draw, False)[0]

    def to_w(self, p: Array, u: Array) -> Array:
        """A gradient in w from one in zeta, (..., M, D); p is the mean of z."""
        return u

    def pull_zeta(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        """From slopes in zeta to w, (..., M, D)."""
        return self.to_w(draw.mu[..., None, :], u)

    def pull_coupled(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        return self.pull_zeta(draw, self.given(draw, True)[1] * u)

    def pull_fresh(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        return self.pull_zeta(draw, self.given(draw, False)[1] * u)


class Bernoulli(_Discrete):
    """z_i in {0, 1}, P(z_i = 1) = sigma(w_i), independent; w holds the logits, D = d.

    zeta = w + eps with logistic eps, z = 1 where zeta > 0.
    """

    quadratics = True

    def log_density(self, w: Array, z: Array) -> Array:
        return -anp.sum(z * anp.logaddexp(0, -w) + (1 - z) * anp.logaddexp(0, w), -1)

    @property
    def states(self) -> Array | None:
        few = 2.0**self.dim <= STATES
        return np.array([*product((0.0, 1.0), repeat=self.dim)]) if few else None

    def moments(self, w: Array) -> Pair:
        return expit(w), np.sqrt(expit(w) * expit(-w))

    def moments_grad(self, draw: Draw) -> Pair:
        p, s = draw.mu, draw.factor
        return (s * s)[..., None, :], (s * (expit(-draw.w) - p) / 2)[..., None, :]

    def noise(self, rng: np.random.Generator, w: Array, M: int) -> Array:
        """[logistic, uniform], (..., M, 2 d)."""
        shape = (*w.shape[:-1], M, self.dim)
        return np.concatenate([rng.logistic(size=shape), rng.uniform(size=shape)], -1)

    def mirror(self, w: Array, eps: Array) -> Array:
        first, second = self.halves(eps)
        return np.concatenate([-first, 1 - second], -1)

    def fisher(self, w: Array) -> Array:
        return expit(w) * expit(-w)

    def paired_score(self, draw: Draw) -> Array:
        """(z - z~) sigma(|w|) with z~ the partner of z, (..., M, D).

        The score that is left when the base sample is averaged out, given both z.
        """
        if draw.group != 2:
            raise ValueError('DisARM compares opposites: draw(..., noise="pairs")')
        partner = np.roll(draw.z, draw.M // 2, -2)
        return (draw.z - partner) * expit(np.abs(draw.w))[..., None, :]

    def behind(self, w: Array, eps: Array) -> Array:
        """zeta = w + eps."""
        return w + eps[..., : self.dim]

    def transform(self, w: Array, eps: Array) -> Array:
        return (self.behind(w, eps) > 0).astype(float)

    def cross(self, w: Array, v: Array) -> Array:
        return -(expit(w) * np.logaddexp(0, -v) + expit(-w) * np.logaddexp(0, v)).sum(-1)

    def cross_grad(self, w: Array, v: Array) -> Array:
        return expit(w) * expit(-w) * v

    # the relaxation
    def squash(self, zeta: Array, tau: float) -> Array:
        """The concrete relaxation of z: sigma(zeta / tau), a step as tau -> 0."""
        return 0.5 * (1 + anp.tanh(zeta / (2 * tau)))

    def zeta_score(self, draw: Draw) -> Array:
        """grad_w of the logistic log density of zeta, tanh(eps / 2), (..., M, D)."""
        return np.tanh(self.halves(draw.eps)[0] / 2)

    def zeta_given_z(self, draw: Draw, coupled: bool) -> Pair:
        """zeta drawn given z, and its derivative in w at fixed z and fixed v, (..., M, d).

        Given z = 1 the u of zeta = w + logit(u) is uniform above 1 - sigma(w), so
        u = 1 - sigma(w) (1 - v), which is zeta = log(1 + v e^w) - log(1 - v). Given z = 0 turn all
        signs. Coupled: the v for which this zeta is the zeta that made z; it is uniform and
        independent of z, as it must be.
        """
        noise, v = self.halves(draw.eps)
        sign = 2 * draw.z - 1
        w = sign * draw.w[..., None, :]
        if coupled:
            zeta = self.zeta(draw)
            v = -np.expm1(-np.abs(zeta)) * expit(sign * noise)
        else:
            zeta = sign * (np.log1p(v * np.exp(w)) - np.log1p(-v))
        with np.errstate(divide="ignore"):  # v = 0: the derivative is 0
            return zeta, expit(w + np.log(v))


class Categorical(_Discrete):
    """`count` independent variables with `classes` values each, one-hot, side by side in z.

    w holds the logits in the same order, d = D = count * classes. zeta = log p + eps with Gumbel
    eps, z marks the largest in each group. E_q of a quadratic is not known: the coordinates of one
    variable are not independent.
    """

    def __init__(self, count: int, classes: int) -> None:
        self.count = whole("count", count)
        self.classes = whole("classes", classes, least=2)
        super().__init__(self.count * self.classes)

    def split(self, a: Array) -> Array:
        """(..., d) -> (..., count, classes)."""
        return a.reshape(*a.shape[:-1], self.count, self.classes)

    def join(self, a: Array) -> Array:
        return a.reshape(*a.shape[:-2], self.dim)

    def log_p(self, w: Array) -> Array:
        """Normalised log probabilities, (..., d)."""
        return self.join(scipy.special.log_softmax(self.split(w), -1))

    def log_density(self, w: Array, z: Array) -> Array:
        rows = self.split(w)
        return anp.sum(z * self.join(rows - logsumexp(rows, -1, keepdims=True)), -1)

    @property
    def states(self) -> Array | None:
        few = float(self.classes) ** self.count <= STATES
        each = product(np.eye(self.classes), repeat=self.count)
        return np.array([np.concatenate(one) for one in each]) if few else None

    def moments(self, w: Array) -> Pair:
        p = np.exp(self.log_p(w))
        return p, np.sqrt(p * (1 - p))

    def noise(self, rng: np.random.Generator, w: Array, M: int) -> Array:
        """[Gumbel, exponential], (..., M, 2 d)."""
        shape = (*w.shape[:-1], M, self.dim)
        first = -np.log(rng.standard_exponential(shape))
        return np.concatenate([first, rng.standard_exponential(shape)], -1)

    def behind(self, w: Array, eps: Array) -> Array:
        """zeta = log p + eps."""
        return self.log_p(w) + eps[..., : self.dim]

    def transform(self, w: Array, eps: Array) -> Array:
        rows = self.split(self.behind(w, eps))
        return self.join((np.arange(self.classes) == rows.argmax(-1)[..., None]).astype(float))

    def cross(self, w: Array, v: Array) -> Array:
        return (np.exp(self.log_p(w)) * self.log_p(v)).sum(-1)

    def cross_grad(self, w: Array, v: Array) -> Array:
        p = np.exp(self.log_p(w))
        return self.to_w(p, p * self.log_p(v))

    def fisher(self, w: Array) -> Array:
        p = self.split(np.exp(self.log_p(w)))  # (..., count, classes)
        own = p[..., None] * np.eye(self.classes) - p[..., :, None] * p[..., None, :]
        blocks = np.eye(self.count)[:, None, :, None] * own[..., :, :, None, :]
        return blocks.reshape(*w.shape[:-1], self.dim, self.dim)

    def to_w(self, p: Array, u: Array) -> Array:
        """u - p (sum of u over the classes): the chain rule from log p to logits."""
        return u - p * self._sums(u)

    def _sums(self, a: Array) -> Array:
        """The sum over the classes of a variable, for each of them, (..., d)."""
        return np.repeat(self.split(a).sum(-1), self.classes, -1)

    # the relaxation
    def squash(self, zeta: Array, tau: float) -> Array:
        """The concrete relaxation of z: softmax(zeta / tau) in each group."""
        rows = self.split(zeta / tau)
        return self.join(anp.exp(rows - logsumexp(rows, -1, keepdims=True)))

    def zeta_score(self, draw: Draw) -> Array:
        """grad_w of the Gumbel log density of zeta, 1 - e^-eps per coordinate of log p."""
        return self.to_w(draw.mu[..., None, :], -np.expm1(-self.halves(draw.eps)[0]))

    def zeta_given_z(self, draw: Draw, coupled: bool) -> Pair:
        """zeta drawn given z, and its derivative in log p at fixed z and eps, (..., M, d).

        x = e^-zeta are clocks that ring at the rates p, and z says which rings first. That time is
        exponential with rate 1 whichever it is, and the others have no memory: after it each waits
        another exponential time of its rate. So x_first = E_first, x_k = x_first + E_k / p_k.
        """
        zeta, won = self.zeta(draw), draw.z > 0
        of_first = lambda a: self._sums(np.where(won, a, 0.0))  # what the class that won has of a
        if not coupled:
            log_E = np.log(self.halves(draw.eps)[1])
            first = of_first(log_E)
            later = np.logaddexp(first, log_E - self.log_p(draw.w)[..., None, :])
            zeta = -np.where(won, first, later)
        return zeta, -np.expm1(zeta - of_first(zeta))  # (x_k - x_first) / x_k, 0 for the first
