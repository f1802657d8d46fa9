"""Families beyond the Gaussian: gamma, beta, Bernoulli, categorical, independent coordinates.

A gamma variable x enters as z = log x, a beta variable as z = logit x. Models are then written in
z, which may be any real number: nothing underflows where x itself would be 0, and the same model
takes a Gaussian q. w holds logarithms of the positive parameters, so that every w is legal and a
step of SGD cannot leave the family. Arrays are (..., M, d); leading axes are independent runs.
"""

import autograd.numpy as anp
import numpy as np
from autograd.scipy.special import betaln, gammaln
from autograd.scipy.special import logsumexp as anp_logsumexp
from scipy.special import expit, log_softmax, polygamma, psi

LARGEST = 300.0  # e^300 is still far from the largest number, its square too


class _Family:
    """What all share. A subclass gives log_density, cross, cross_grad, score, noise and z1."""

    methods = ("SF", "GR", "CF")  # the estimators that are legal for a plain integrand
    gaussian = False
    far = LARGEST
    quadratics = True  # is E_q known for every quadratic f? mean and variance are, here

    def __init__(self, dim):
        if int(dim) != dim or dim < 1:
            raise ValueError(
                f"dim={dim!r}: {type(self).__name__} needs a whole number of dimensions, at least 1"
            )
        self.dim = self.noise_dim = int(dim)

    def __repr__(self):
        return f"{type(self).__name__}({self.dim})"

    @property
    def blocks(self):
        """Slices of w that weights may treat apart: here one, all of w."""
        return (slice(0, self.D),)

    def start(self, runs=()):
        """All parameters of w zero, as (*runs, D)."""
        return np.zeros((*runs, self.D))

    def check(self, w):
        """`w` as an array of floats, or a ValueError that says what is wrong with it."""
        w = np.asarray(w, float)
        if w.ndim == 0 or w.shape[-1] != self.D:
            raise ValueError(f"w must be (..., {self.D}) for {self!r}; got {w.shape}")
        if not np.all(np.abs(w) <= LARGEST):  # catches NaN too
            where = np.argwhere(~(np.abs(w) <= LARGEST))[0].tolist()
            raise ValueError(
                f"w is {w[tuple(where)]} at {where}: it holds logarithms or logits, which must lie "
                f"between -{LARGEST:g} and {LARGEST:g}; take a smaller step"
            )
        return w

    def log_q(self, w, z):
        """log q_w(z) for w (..., D) and z (..., M, d), as (..., M)."""
        return self.log_density(self.check(w)[..., None, :], z)

    def entropy(self, w):
        """-E_q log q_w, (...)."""
        w = self.check(w)
        return -self.cross(w, w)

    def prior(self, *parameters):
        """log p(z) of the same family, for Model: E_q log p(z) then has a closed form."""
        return FamilyPrior(self, self.check(self.pack(*parameters)))

    def base_score(self, draw):
        """grad_w log qbar_w(eps) of the base density, (..., M, D)."""
        raise NotImplementedError

    # What integrands ask of a family: the coordinates are independent, so the factor of the
    # covariance is diagonal and kept as a vector of standard deviations.
    def dense(self, sd):
        return sd[..., None] * np.eye(self.dim)

    def lower(self, G):
        return np.diagonal(G, axis1=-2, axis2=-1)

    def times_t(self, factor, v):
        raise ValueError(f"this needs a Gaussian family, and {self!r} is none")

    def chain(self, draw, slope, bend):
        """grad_w E_q f for quadratic f: slope (..., M, d) = f' at the mean, bend = sd f''."""
        dm, ds = self.moments_grad(draw.w)  # (..., k, d)
        dm, ds = dm[..., None, :, :], ds[..., None, :, :]
        each = slope[..., None, :] * dm + bend[..., None, :] * ds  # (..., M, k, d)
        return each.reshape(*each.shape[:-2], -1)


class FamilyPrior:
    """log q_v(z) with fixed v, callable like any log-prior."""

    def __init__(self, q, v):
        self.q, self.v = q, v

    def __call__(self, z):
        return self.q.log_density(self.v, z)


class _Standardised(_Family):
    """Two positive parameters a coordinate, w = [log first, log second], D = 2 d.

    Generalised reparameterisation (Ruiz et al. 2016): z = m(w) + s(w) eps, with m and s the mean
    and standard deviation of z. Then eps has mean 0 and variance 1 whatever w is, but not the same
    law: its density qbar_w moves with w, a little.
    """

    def __init__(self, dim):
        super().__init__(dim)
        self.D = 2 * self.dim

    @property
    def blocks(self):
        """Slices of w: the first parameters, the second."""
        return slice(0, self.dim), slice(self.dim, self.D)

    def pack(self, first, second):
        """w from the positive parameters, (..., d) each."""
        first, second = (
            np.broadcast_to(np.asarray(p, float), np.broadcast_shapes(np.shape(p), (self.dim,)))
            for p in (first, second)
        )
        if not (np.all(first > 0) and np.all(second > 0)):
            raise ValueError(f"both parameters of {self!r} must be positive: {first}, {second}")
        return np.log(np.concatenate(np.broadcast_arrays(first, second), -1))

    def unpack(self, w):
        """The two positive parameters, (..., d) each."""
        w = np.asarray(w)
        return np.exp(w[..., : self.dim]), np.exp(w[..., self.dim :])

    def z1(self, draw):
        """m + s eps, (..., M, d)."""
        return draw.mu[..., None, :] + draw.factor[..., None, :] * draw.eps

    def noise(self, rng, w, M):
        """eps = (z - m) / s with z ~ q_w, (..., M, d)."""
        m, s = self.moments(w)
        return (self.sample(rng, w, M) - m[..., None, :]) / s[..., None, :]

    def jacobian(self, draw):
        """dz/dw at fixed eps, m' + s' eps, for each of the two parameters, (..., M, 2, d)."""
        dm, ds = self.moments_grad(draw.w)
        return dm[..., None, :, :] + ds[..., None, :, :] * draw.eps[..., None, :]

    def pull1(self, draw, u, out):
        """The chain rule through z1 into out (..., M, D); u = None is 0."""
        if u is None:
            out[...] = 0.0
        else:
            J = draw.once("dz/dw", lambda draw: self.jacobian(draw))
            out[...] = (u[..., None, :] * J).reshape(out.shape)

    def base_score(self, draw):
        """log qbar_w(eps) = log q_w(m + s eps) + log s, so its gradient has three parts."""
        J = draw.once("dz/dw", lambda draw: self.jacobian(draw))
        ds = self.moments_grad(draw.w)[1][..., None, :, :]
        moved = self.slope(draw.w[..., None, :], draw.z)[..., None, :] * J
        stretched = ds / draw.factor[..., None, None, :]
        return draw.score + (moved + stretched).reshape(draw.score.shape)


def _log_gamma(rng, shape, M):
    """log of standard gamma variables, (..., M, d): x(a) = x(a + 1) u^(1/a), safe for small a."""
    shape = np.broadcast_to(shape[..., None, :], (*shape.shape[:-1], M, shape.shape[-1]))
    # -log u is exponential, and never infinite
    return np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(shape.shape) / shape


class Gamma(_Standardised):
    """z = log x, x ~ Gamma(shape a, rate b), independent; w = [log a, log b], D = 2 d.

    log q_w(z) = a log b - log Gamma(a) + a z - b e^z: a density in z, not in x.
    """

    def log_density(self, w, z):
        log_a, log_b = w[..., : self.dim], w[..., self.dim :]
        a = anp.exp(log_a)
        return anp.sum(a * (log_b + z) - gammaln(a) - anp.exp(log_b + z), -1)

    def sample(self, rng, w, M):
        a, _ = self.unpack(w)
        return _log_gamma(rng, a, M) - w[..., None, self.dim :]

    def moments(self, w):
        """Mean and standard deviation of z: psi(a) - log b, sqrt(psi'(a)), (..., d)."""
        a, _ = self.unpack(w)
        return psi(a) - w[..., self.dim :], np.sqrt(polygamma(1, a))

    def moments_grad(self, w):
        """Gradients of mean and standard deviation in [log a, log b], each (..., 2, d)."""
        a, _ = self.unpack(w)
        ds = a * polygamma(2, a) / (2 * np.sqrt(polygamma(1, a)))
        one, zero = np.ones_like(a), np.zeros_like(a)
        return np.stack([a * polygamma(1, a), -one], -2), np.stack([ds, zero], -2)

    def slope(self, w, z):
        """d log q_w / dz = a - b e^z."""
        return np.exp(w[..., : self.dim]) - np.exp(w[..., self.dim :] + z)

    def score(self, draw):
        """[a (z + log b - psi(a)), a - b e^z] = [a s eps, a - b e^z], (..., M, D)."""
        a, _ = self.unpack(draw.w)
        by_shape = (a * draw.factor)[..., None, :] * draw.eps
        return np.concatenate([by_shape, self.slope(draw.w[..., None, :], draw.z)], -1)

    def cross(self, w, v):
        """E_{q_w} log q_v(z), (...)."""
        (a, b), (av, bv), log_bv = self.unpack(w), self.unpack(v), v[..., self.dim :]
        mean = psi(a) - w[..., self.dim :]
        return (av * (log_bv + mean) - gammaln(av) - bv * a / b).sum(-1)

    def cross_grad(self, w, v):
        """Its gradient in w, v held fixed, (..., D)."""
        (a, b), (av, bv) = self.unpack(w), self.unpack(v)
        return np.concatenate([a * (av * polygamma(1, a) - bv / b), bv * a / b - av], -1)


class Beta(_Standardised):
    """z = logit x, x ~ Beta(a, b), independent; w = [log a, log b], D = 2 d.

    log q_w(z) = a log sigma(z) + b log sigma(-z) - log B(a, b): a density in z, not in x.
    """

    def log_density(self, w, z):
        a, b = anp.exp(w[..., : self.dim]), anp.exp(w[..., self.dim :])
        return anp.sum(-a * anp.logaddexp(0, -z) - b * anp.logaddexp(0, z) - betaln(a, b), -1)

    def sample(self, rng, w, M):
        a, b = self.unpack(w)
        return _log_gamma(rng, a, M) - _log_gamma(rng, b, M)

    def moments(self, w):
        """Mean psi(a) - psi(b) and standard deviation sqrt(psi'(a) + psi'(b)) of z, (..., d)."""
        a, b = self.unpack(w)
        return psi(a) - psi(b), np.sqrt(polygamma(1, a) + polygamma(1, b))

    def moments_grad(self, w):
        """Gradients of mean and standard deviation in [log a, log b], each (..., 2, d)."""
        a, b = self.unpack(w)
        s = self.moments(w)[1]
        dm = np.stack([a * polygamma(1, a), -b * polygamma(1, b)], -2)
        ds = np.stack([a * polygamma(2, a), b * polygamma(2, b)], -2)
        return dm, ds / (2 * s[..., None, :])

    def slope(self, w, z):
        """d log q_w / dz = a sigma(-z) - b sigma(z)."""
        return np.exp(w[..., : self.dim]) * expit(-z) - np.exp(w[..., self.dim :]) * expit(z)

    def score(self, draw):
        """[a (log x - E log x), b (log (1 - x) - E log (1 - x))], (..., M, D)."""
        (a, b), z = self.unpack(draw.w[..., None, :]), draw.z
        log_x, log_1x = -np.logaddexp(0, -z), -np.logaddexp(0, z)
        both = psi(a + b)
        return np.concatenate([a * (log_x - psi(a) + both), b * (log_1x - psi(b) + both)], -1)

    def cross(self, w, v):
        (a, b), (av, bv) = self.unpack(w), self.unpack(v)
        both = psi(a + b)
        return (av * (psi(a) - both) + bv * (psi(b) - both) - betaln(av, bv)).sum(-1)

    def cross_grad(self, w, v):
        (a, b), (av, bv) = self.unpack(w), self.unpack(v)
        both = (av + bv) * polygamma(1, a + b)
        return np.concatenate(
            [a * (av * polygamma(1, a) - both), b * (bv * polygamma(1, b) - both)], -1
        )


class _Discrete(_Family):
    """z takes finitely many values and cannot be moved by w: GR is SF for a plain integrand.

    Behind z stands a continuous variable zeta = logits + noise with z = step(zeta). Its gradient
    estimators, for the relaxations of `cvlib.relaxations`, need what follows here. The noise of a
    draw has two halves: one makes zeta and z, the other is for a fresh zeta given z.
    """

    def halves(self, draw):
        return draw.eps[..., : self.dim], draw.eps[..., self.dim :]

    def pack(self, logits):
        return np.asarray(logits, float)

    def unpack(self, w):
        return np.asarray(w)

    def pull1(self, draw, u, out):
        out[...] = 0.0  # z does not move with w

    def base_score(self, draw):
        return draw.score  # the transform does nothing: the base is q itself

    def score(self, draw):
        """z - E z, (..., M, D)."""
        return draw.z - draw.mu[..., None, :]


class Bernoulli(_Discrete):
    """z_i in {0, 1}, P(z_i = 1) = sigma(w_i), independent; w holds the logits, D = d.

    zeta = w + logistic noise, z = 1 where zeta > 0.
    """

    def __init__(self, dim):
        super().__init__(dim)
        self.D, self.noise_dim = self.dim, 2 * self.dim

    def log_density(self, w, z):
        return -anp.sum(z * anp.logaddexp(0, -w) + (1 - z) * anp.logaddexp(0, w), -1)

    def moments(self, w):
        return expit(w), np.sqrt(expit(w) * expit(-w))

    def moments_grad(self, w):
        p, s = self.moments(w)
        return (s * s)[..., None, :], (s * (expit(-w) - p) / 2)[..., None, :]

    def noise(self, rng, w, M):
        """[logistic, uniform], (..., M, 2 d)."""
        shape = (*w.shape[:-1], M, self.dim)
        return np.concatenate([rng.logistic(size=shape), rng.uniform(size=shape)], -1)

    def z1(self, draw):
        return (self.zeta(draw) > 0).astype(float)

    def cross(self, w, v):
        return -(expit(w) * np.logaddexp(0, -v) + expit(-w) * np.logaddexp(0, v)).sum(-1)

    def cross_grad(self, w, v):
        return expit(w) * expit(-w) * v

    # the relaxation
    def squash(self, zeta, tau):
        """The concrete relaxation of z: sigma(zeta / tau), a step as tau -> 0."""
        return 0.5 * (1 + anp.tanh(zeta / (2 * tau)))

    def zeta(self, draw):
        return draw.w[..., None, :] + self.halves(draw)[0]

    def zeta_score(self, draw):
        """grad_w of the logistic log density of zeta, tanh(noise / 2), (..., M, D)."""
        return np.tanh(self.halves(draw)[0] / 2)

    def zeta_given_z(self, draw, coupled):
        """zeta drawn given z, and its derivative in w at fixed z and fixed noise v, (..., M, d).

        Given z = 1 the noise u of zeta = w + logit(u) is uniform above 1 - sigma(w), so
        u = 1 - sigma(w) (1 - v), which is zeta = log(1 + v e^w) - log(1 - v). Given z = 0 turn all
        signs. Coupled: the v for which this zeta is the zeta that made z; it is uniform and
        independent of z, as it must be.
        """
        noise, v = self.halves(draw)
        sign = 2 * draw.z - 1
        w = sign * draw.w[..., None, :]
        if coupled:
            zeta = self.zeta(draw)
            v = -np.expm1(-np.abs(zeta)) * expit(sign * noise)
        else:
            zeta = sign * (np.log1p(v * np.exp(w)) - np.log1p(-v))
        with np.errstate(divide="ignore"):  # v = 0: the derivative is 0
            return zeta, expit(w + np.log(v))

    def pull_zeta(self, draw, u):
        """From a gradient in the logits to w, (..., M, D)."""
        return u


class Categorical(_Discrete):
    """`count` independent variables with `classes` values each, one-hot, side by side in z.

    w holds the logits in the same order, d = D = count * classes. zeta = log p + Gumbel noise, z
    marks the largest in each group.
    """

    quadratics = False  # the coordinates of one variable are not independent

    def __init__(self, count, classes):
        super().__init__(count * classes)
        if int(count) != count:
            raise ValueError(f"count={count!r}: the number of variables must be whole")
        if int(classes) != classes or classes < 2:
            raise ValueError(f"classes={classes!r}: a categorical variable takes 2 values or more")
        self.count, self.classes = int(count), int(classes)
        self.D, self.noise_dim = self.dim, 2 * self.dim

    def __repr__(self):
        return f"Categorical({self.count}, {self.classes})"

    def split(self, a):
        """(..., d) -> (..., count, classes)."""
        return a.reshape(*a.shape[:-1], self.count, self.classes)

    def join(self, a):
        return a.reshape(*a.shape[:-2], self.dim)

    def log_p(self, w):
        """Normalised log probabilities, (..., d)."""
        return self.join(log_softmax(self.split(w), -1))

    def log_density(self, w, z):
        rows = anp.reshape(w, (*w.shape[:-1], self.count, self.classes))
        log_p = anp.reshape(rows - anp_logsumexp(rows, -1, keepdims=True), w.shape)
        return anp.sum(z * log_p, -1)

    def moments(self, w):
        p = np.exp(self.log_p(w))
        return p, np.sqrt(p * (1 - p))

    def noise(self, rng, w, M):
        """[Gumbel, exponential], (..., M, 2 d)."""
        shape = (*w.shape[:-1], M, self.dim)
        first = -np.log(rng.standard_exponential(shape))
        return np.concatenate([first, rng.standard_exponential(shape)], -1)

    def z1(self, draw):
        rows = self.split(self.zeta(draw))
        return self.join((np.arange(self.classes) == rows.argmax(-1)[..., None]).astype(float))

    def cross(self, w, v):
        return (np.exp(self.log_p(w)) * self.log_p(v)).sum(-1)

    def cross_grad(self, w, v):
        return self._to_w(np.exp(self.log_p(w)), np.exp(self.log_p(w)) * self.log_p(v))

    def _to_w(self, p, u):
        """u - p (sum of u over the classes): the chain rule from log p to logits."""
        return u - p * self.join(np.repeat(self.split(u).sum(-1)[..., None], self.classes, -1))

    # the relaxation
    def squash(self, zeta, tau):
        """The concrete relaxation of z: softmax(zeta / tau) in each group."""
        rows = anp.reshape(zeta / tau, (*zeta.shape[:-1], self.count, self.classes))
        return anp.reshape(anp.exp(rows - anp_logsumexp(rows, -1, keepdims=True)), zeta.shape)

    def zeta(self, draw):
        return self.log_p(draw.w)[..., None, :] + self.halves(draw)[0]

    def zeta_score(self, draw):
        """grad_w of the Gumbel log density of zeta, 1 - e^-noise per coordinate of log p."""
        return self.pull_zeta(draw, -np.expm1(-self.halves(draw)[0]))

    def zeta_given_z(self, draw, coupled):
        """zeta drawn given z, and its derivative in log p at fixed z and noise, (..., M, d).

        x = e^-zeta are clocks that ring at the rates p, and z says which rings first. That time is
        exponential with rate 1 whichever it is, and the others have no memory: after it each waits
        another exponential time of its rate. So x_first = E_first, x_k = x_first + E_k / p_k.
        """
        zeta = self.zeta(draw)
        if not coupled:
            log_E, won = np.log(self.halves(draw)[1]), draw.z > 0
            first = self._first(log_E, won)
            later = np.logaddexp(first, log_E - self.log_p(draw.w)[..., None, :])
            zeta = -np.where(won, first, later)
        # (x_k - x_first) / x_k, which is 0 for the first
        return zeta, -np.expm1(zeta - self._first(zeta, draw.z > 0))

    def _first(self, a, won):
        """The entry of the class that won, for all classes of its group."""
        rows = self.split(np.where(won, a, 0.0)).sum(-1)[..., None]
        return self.join(np.repeat(rows, self.classes, -1))

    def pull_zeta(self, draw, u):
        return self._to_w(draw.mu[..., None, :], u)
