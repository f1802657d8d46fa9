"""Likelihoods of one data point, phi(eta, y): the one scalar function that makes a GLM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from ..arguments import number
from ..special import LOG_2PI, gammaln, log_ndtr, scipy
from . import checks, passes

# Ready answers to `Likelihood.accepts`: None, or a sentence that says which labels are right.


def anything(y: np.ndarray) -> None:
    """Every number is a label."""


def signs(y: np.ndarray) -> str | None:
    """Labels are -1 and +1."""
    if not np.all(np.abs(y) == 1):
        found = np.unique(y)[:5]
        return f"must be -1 or +1, found {found.tolist()}: write y = np.where(label, 1.0, -1.0)"
    return None


def counts(y: np.ndarray) -> str | None:
    """Labels are 0, 1, 2, ..."""
    if np.any(y < 0) or np.any(y != np.round(y)):
        return f"must be whole numbers from 0, found {y[(y < 0) | (y != np.round(y))][:5].tolist()}"
    return None


@dataclass(frozen=True)
class Likelihood:
    """phi(eta, y), the log-likelihood of one data point as a function of eta = x.z + offset.

    Autograd supplies the derivatives in eta. The other fields are promises, and are believed.
    """

    name: str
    phi: Callable  # eta, y of any one shape -> the same shape, entry by entry
    accepts: Callable = anything  # y (N,) -> None, or a sentence that says which labels are right
    fast: Callable | None = None  # (eta, y, order) -> [phi', phi'', phi'''][:order]
    expected: Callable | None = None  # (m, v, y) -> E[phi], E[phi'], E[phi''], eta ~ N(m, v)
    bound: Callable | None = None  # (xi, y) -> a, b, c: a + b eta + c eta^2 / 2 <= phi, = at +-xi
    kappa: float | None = None  # d^2 phi / d eta d y where it is constant (canonical links)
    strip: float = 1.0  # phi' and phi'' are analytic in eta for |Im eta| < strip (for QD)
    quadratic: bool = False  # phi is quadratic in eta
    classes: bool = False  # labels are classes: taylor_x expands about each class mean

    def derivatives(self, eta: np.ndarray, y: np.ndarray, order: int) -> Sequence[np.ndarray]:
        """[phi', phi'', ...] up to `order` (at most 3), each of the shape of eta."""
        return (self.fast or self.autograd_derivatives)(eta, y, order)

    def autograd_derivatives(self, eta: np.ndarray, y: np.ndarray, order: int) -> list[np.ndarray]:
        eta, y = np.broadcast_arrays(eta, y)
        f, out = self.phi, []
        for _ in range(order):
            f = _slope(f)
            out.append(f(eta, y))
        return out

    def check(self, y: np.ndarray) -> None:
        """A ValueError unless y (N,) are labels for phi, and phi is a function that can be used."""
        for complaint in passes.each(lambda rows: self.accepts(rows[0]), (y,)):
            if complaint:
                raise ValueError(f"labels of a {self.name} likelihood {complaint}")
        labels = np.array([y.min(), y[len(y) // 2], y.max()], float)
        checks.phi(f"phi of the {self.name} likelihood", self.phi, labels)


def _slope(f):
    """df / d eta. + 0 eta: autograd warns of a result that does not depend on eta."""
    return lambda eta, y: elementwise_grad(f)(eta, y) + 0 * eta


def _logistic_phi(eta, y):
    return -anp.logaddexp(0.0, -y * eta)


def _logistic_fast(eta, y, order):
    s = scipy.special.expit(-y * eta)
    first, second = y * s, s * (s - 1) if order > 1 else None
    return [first, second, y * second * (2 * s - 1) if order > 2 else None][:order]


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


def _normal_phi(eta, y, sd):
    return -0.5 * ((y - eta) / sd) ** 2 - 0.5 * LOG_2PI - np.log(sd)


def _normal_fast(eta, y, order, sd):
    one = np.ones(np.broadcast(eta, y).shape)
    return [(y - eta) / sd**2, -one / sd**2, 0 * one][:order]


def _normal_expected(m, v, y, sd):
    return _normal_phi(m, y, sd) - 0.5 * v / sd**2, (y - m) / sd**2, -1 / sd**2 + 0 * m


def gaussian_likelihood(noise_sd: float) -> Likelihood:
    """phi(eta, y) = log N(y | eta, noise_sd^2)."""
    sd = number("noise_sd", noise_sd, 0, above=True)
    each = (partial(f, sd=sd) for f in (_normal_phi, _normal_fast, _normal_expected))
    phi, fast, expected = each
    return Likelihood("linear", phi, anything, fast, expected, kappa=1 / sd**2, quadratic=True)


def _student_phi(eta, y, df, scale):
    half = (df + 1) / 2
    size = gammaln(half) - gammaln(df / 2) - 0.5 * np.log(df * np.pi) - np.log(scale)
    return size - half * anp.log1p(((y - eta) / scale) ** 2 / df)


def student_t_likelihood(df: float, scale: float = 1.0) -> Likelihood:
    """phi(eta, y) = log t(y | df, eta, scale): a linear regression that forgives far points."""
    df, scale = number("df", df, 0, above=True), number("scale", scale, 0, above=True)
    phi = partial(_student_phi, df=df, scale=scale)
    return Likelihood("Student-t", phi, strip=scale * np.sqrt(df))  # poles of phi'


def _negative_binomial_phi(eta, y, r):
    ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
    return ways + y * (eta - np.log(r)) - (y + r) * anp.logaddexp(0.0, eta - np.log(r))


def negative_binomial_likelihood(shape: float) -> Likelihood:
    """Counts of mean exp(eta) that scatter more than Poisson's: variance mean + mean^2 / shape."""
    phi = partial(_negative_binomial_phi, r=number("shape", shape, 0, above=True))
    return Likelihood("negative binomial", phi, counts, strip=np.pi)


def _probit_phi(eta, y):
    return log_ndtr(y * eta)


# kappa of the logistic likelihood: of use with classes=False, one mean of x for both classes.
LOGISTIC = Likelihood(
    "logistic", _logistic_phi, signs, _logistic_fast, bound=_logistic_bound, kappa=0.5,
    strip=np.pi, classes=True,
)  # fmt: skip
POISSON = Likelihood("poisson", _poisson_phi, counts, _poisson_fast, _poisson_expected, kappa=1.0)
# The normal distribution function has no zero with an imaginary part below 2.8.
PROBIT = Likelihood("probit", _probit_phi, signs, strip=2.8)
