"""Models: a log-likelihood, a log-prior and data. GLMs are given by one scalar function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad
from autograd.scipy.special import gammaln
from scipy.special import expit

LOG_2PI = np.log(2 * np.pi)
CACHED = 2**18  # numbers of a table that stays in a processor's cache


@dataclass(frozen=True)
class GaussianPrior:
    """log N(z | 0, sd^2 I), callable like any log-prior; its expectations have a closed form."""

    sd: float = 1.0
    mean: float = 0.0

    def __post_init__(self):
        _positive("the prior's sd", self.sd)

    def __call__(self, z):
        d = anp.shape(z)[-1]
        return -0.5 * anp.sum(z**2, -1) / self.sd**2 - 0.5 * d * (LOG_2PI + 2 * np.log(self.sd))


class Model:
    """A model of the reader's own: two functions that autograd can differentiate, and data.

    `log_lik(z, batch)` gives one log-likelihood per row: z is (..., d), `batch` a tuple with the
    rows of the arrays in `data`, all leading axes broadcast, the result is (...).
    `log_prior(z)` maps (..., d) to (...). `data` is an array or a tuple of arrays, N rows each.
    """

    def __init__(self, log_lik, log_prior, data, dim, name="own model"):
        if int(dim) != dim or dim < 1:
            raise ValueError(
                f"dim={dim}: a model needs a whole number of latent dimensions, at least one"
            )
        if isinstance(data, list) and any(isinstance(a, np.ndarray) for a in data):
            raise ValueError("data is a list of arrays: write a tuple, such as (X, y)")
        self.log_lik, self.log_prior, self.dim, self.name = log_lik, log_prior, int(dim), name
        self.data = tuple(np.asarray(a) for a in (data if isinstance(data, tuple) else (data,)))
        self.N = _check_data(self.data)
        self._check_functions()

    def __repr__(self):
        return f"<{self.name}: {self.N} data points, {self.dim} latent dimensions>"

    def log_joint(self, z):
        """log p(x, z) over the whole data set, (..., d) -> (...)."""
        return anp.sum(self.log_lik(z[..., None, :], self.data), -1) + self.log_prior(z)

    def _check_functions(self):
        """Each row must depend on its own z and its own data alone: compare rows with a loop."""
        z = np.random.default_rng(0).standard_normal((3, self.dim)) / 10
        i = np.arange(3) % self.N
        for what, f in [
            ("log_lik", lambda z, i: self.log_lik(z, tuple(a[i] for a in self.data))),
            ("log_prior", lambda z, i: self.log_prior(z)),
        ]:
            rows = np.asarray(f(z, i))
            if rows.shape != (3,):
                raise ValueError(
                    f"{what} must give one number per row: for z of shape (3, {self.dim}) it gave "
                    f"shape {rows.shape}; sum over the last axis only, np.sum(..., -1)"
                )
            if np.isnan(rows).any():
                raise ValueError(f"{what} is {rows} at z = {z.tolist()}: it must be a number")
            if not np.allclose(rows, [f(z[k], i[k]) for k in range(3)]):
                raise ValueError(
                    f"{what} mixes its rows: row k may depend on z[k] and data k alone"
                )


@dataclass(frozen=True)
class Likelihood:
    """phi(eta, y), the log-likelihood of one data point as a function of eta = x.z.

    Autograd supplies the derivatives in eta; a likelihood used in a hot loop may bring its own
    (`fast`), which must agree. The other fields open more of the recipe where they exist.
    """

    name: str
    phi: Callable
    accepts: Callable  # y (N,) -> None, or a sentence that says which labels are right
    fast: Callable | None = None  # (eta, y, order) -> [phi', phi'', phi'''][:order]
    expected: Callable | None = None  # (m, v, y) -> E[phi], E[phi'], E[phi''], eta ~ N(m, v)
    bound: Callable | None = None  # (xi, y) -> a, b, c with phi >= a + b eta + c eta^2 / 2
    kappa: float | None = None  # d^2 phi / d eta d y where it is constant (canonical links)
    quadratic: bool = False  # phi is quadratic in eta
    strip: float = 1.0  # phi' and phi'' are analytic in eta for |Im eta| < strip
    classes: bool = False  # labels are classes: taylor_x expands about each class mean
    _grads: list = field(default_factory=list, repr=False, compare=False)

    def derivatives(self, eta, y, order):
        """[phi', phi'', ...] up to `order` (at most 3), each of the shape of eta."""
        if self.fast is not None:
            return self.fast(eta, y, order)
        return self.autograd_derivatives(eta, y, order)

    def autograd_derivatives(self, eta, y, order):
        while len(self._grads) < order:
            self._grads.append(elementwise_grad((self._grads or [self.phi])[-1]))
        eta, y = np.broadcast_arrays(eta, y)
        return [grad(eta, y) for grad in self._grads[:order]]


class GLM(Model):
    """Generalised linear model: log p(y | x, z) = phi(x.z, y), prior N(0, prior_sd^2 I)."""

    def __init__(self, X, y, likelihood, prior_sd=1.0):
        X, y = np.asarray(X, float), np.asarray(y, float)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise ValueError(f"X must be (N, d) and y (N,); got {X.shape} and {y.shape}")
        self.likelihood = likelihood
        self.X, self.y, self.offset = X, y, None
        super().__init__(
            lambda z, batch: likelihood.phi(anp.sum(batch[0] * z, -1), batch[1]),
            GaussianPrior(prior_sd),
            (X, y),
            X.shape[1],
            f"{likelihood.name} regression",
        )
        complaint = likelihood.accepts(y)
        if complaint:
            raise ValueError(f"labels of a {likelihood.name} likelihood {complaint}")

    @cached_property
    def pairs(self):
        """x_j x_k for j >= k of every data point, (N, d (d + 1) / 2): they make Hessians faster.

        None where they would not stay in a processor's cache.
        """
        j, k = np.tril_indices(self.dim)
        return self.X[:, j] * self.X[:, k] if self.N * len(j) <= CACHED else None

    @cached_property
    def groups(self):
        """Moments of the data, one group per class (or one in all), for expansions in x."""
        labels = self.y if self.likelihood.classes else np.zeros(self.N)
        values, group = np.unique(labels, return_inverse=True)
        return Groups.of(self.X, self.y, group, len(values), self.likelihood.phi)


@dataclass(frozen=True)
class Groups:
    """First and second moments of (x, y) within K groups of data points."""

    group: np.ndarray  # (N,) which group a data point is in
    n: np.ndarray  # (K,) group sizes
    x: np.ndarray  # (K, d) means
    y: np.ndarray  # (K,)
    xx: np.ndarray  # (K, d, d) covariances of x (divided by n, not n - 1)
    xy: np.ndarray  # (K, d) covariances of x with y
    constant: np.ndarray  # (K,) mean phi(0, y_i) - phi(0, mean y): what phi has of y alone

    @cached_property
    def xx_beside(self):
        """The covariances side by side, (d, K d): one product then does for all groups."""
        return np.concatenate(self.xx, -1)

    @cached_property
    def n_xy(self):
        """Sum of n_k Cov(x, y), (d,)."""
        return self.n @ self.xy

    @classmethod
    def of(cls, X, y, group, K, phi):
        n = np.bincount(group, minlength=K)
        means = np.stack([X[group == k].mean(0) for k in range(K)])
        y_means = np.array([y[group == k].mean() for k in range(K)])
        dx, dy = X - means[group], y - y_means[group]
        xx = np.stack([dx[group == k].T @ dx[group == k] / n[k] for k in range(K)])
        xy = np.stack([dx[group == k].T @ dy[group == k] / n[k] for k in range(K)])
        own = phi(np.zeros_like(y), y) - phi(np.zeros_like(y), y_means[group])
        constant = np.bincount(group, own, minlength=K) / n
        return cls(group, n, means, y_means, xx, xy, constant)


def logistic_regression(X, y, prior_sd=1.0):
    """log p(y | x, z) = log sigmoid(y x.z), y in {-1, +1}, z ~ N(0, prior_sd^2 I)."""
    return GLM(X, y, LOGISTIC, prior_sd)


def poisson_regression(X, y, prior_sd=1.0):
    """y ~ Poisson(exp(x.z)), y in {0, 1, 2, ...}, z ~ N(0, prior_sd^2 I)."""
    return GLM(X, y, POISSON, prior_sd)


def linear_regression(X, y, prior_sd=1.0, noise_sd=1.0):
    """y ~ N(x.z, noise_sd^2), z ~ N(0, prior_sd^2 I): the conjugate case, everything is exact."""
    return GLM(X, y, gaussian_likelihood(noise_sd), prior_sd)


def _logistic_phi(eta, y):
    return -anp.logaddexp(0.0, -y * eta)


def _logistic_fast(eta, y, order):
    s = expit(-y * eta)
    out = [y * s]
    if order > 1:
        out.append(s * (s - 1))
    if order > 2:
        out.append(y * out[1] * (2 * s - 1))
    return out


def _logistic_bound(xi, y):
    """Jaakkola and Jordan: log sigmoid(t) >= log sigmoid(xi) + (t - xi)/2 - lam (t^2 - xi^2)."""
    small = np.abs(xi) < 1e-4
    safe = np.where(small, 1.0, xi)
    lam = np.where(small, 0.125 - xi**2 / 96, np.tanh(safe / 2) / (4 * safe))
    return -np.logaddexp(0.0, -xi) - xi / 2 + lam * xi**2, y / 2, -2 * lam


def _poisson_phi(eta, y):
    return y * eta - anp.exp(eta) - gammaln(y + 1)


def _poisson_fast(eta, y, order):
    rate = np.exp(eta)
    return [y - rate, -rate, -rate][:order]


def _poisson_expected(m, v, y):
    rate = np.exp(m + v / 2)  # E exp(eta): the moment generating function of a Gaussian
    return y * m - rate - gammaln(y + 1), y - rate, -rate


def gaussian_likelihood(noise_sd):
    """phi(eta, y) = log N(y | eta, noise_sd^2)."""
    _positive("noise_sd", noise_sd)
    precision = 1 / noise_sd**2

    def phi(eta, y):
        return -0.5 * precision * (y - eta) ** 2 - 0.5 * LOG_2PI - np.log(noise_sd)

    def fast(eta, y, order):
        one = np.ones(np.broadcast(eta, y).shape)
        return [precision * (y - eta), -precision * one, 0 * one][:order]

    def expected(m, v, y):
        return phi(m, y) - 0.5 * precision * v, precision * (y - m), -precision + 0 * m

    return Likelihood(
        "linear", phi, lambda y: None, fast, expected, kappa=precision, quadratic=True
    )


def _signs(y):
    if not np.all(np.abs(y) == 1):
        found = np.unique(y)[:5]
        return f"must be -1 or +1, found {found.tolist()}: write y = np.where(label, 1.0, -1.0)"


def _counts(y):
    if np.any(y < 0) or np.any(y != np.round(y)):
        return f"must be whole numbers from 0, found {y[(y < 0) | (y != np.round(y))][:5].tolist()}"


LOGISTIC = Likelihood(
    "logistic",
    _logistic_phi,
    _signs,
    _logistic_fast,
    bound=_logistic_bound,
    kappa=0.5,
    strip=np.pi,
    classes=True,
)
POISSON = Likelihood("poisson", _poisson_phi, _counts, _poisson_fast, _poisson_expected, kappa=1.0)


def check_fit(model, q):
    """A ValueError unless q is a law of the model's z."""
    if model.dim != q.dim:
        raise ValueError(
            f"{model!r} does not fit {q!r}, a law of {q.dim} dimensions: take one of {model.dim}"
        )


def _positive(what, value):
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{what} must be a positive number, not {value!r}")


def _check_data(arrays):
    lengths = [len(a) if a.ndim else None for a in arrays]
    if None in lengths or len(set(lengths)) != 1:
        raise ValueError(f"the arrays in data must have one row per data point; got {lengths} rows")
    if lengths[0] == 0:
        raise ValueError("the data set is empty: a model needs at least one data point")
    for k, a in enumerate(arrays):
        if a.dtype.kind in "fc" and not np.all(np.isfinite(a)):
            where = np.argwhere(~np.isfinite(a))[0].tolist()
            raise ValueError(
                f"array {k} of the data is {a[tuple(where)]} at {where}: drop or fill it"
            )
    return lengths[0]
