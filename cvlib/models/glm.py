"""Generalised linear models: a likelihood of eta = x.z + offset, a normal prior, and data.

A likelihood is one scalar function, phi(eta, y). Where it does not know its means under a Gaussian
eta, `rule` finds them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import autograd.numpy as anp
import numpy as np
import scipy
from autograd import elementwise_grad
from numpy.typing import ArrayLike

from ..arguments import number
from ..special import LOG_2PI, gammaln
from . import checks, passes
from .density import GaussianPrior, Model, seen

TOLERANCE = 1e-13  # of exact references, relative to the size of g
MOST = 1000  # nodes a side: enough for sd up to 30 strips at 1e-9, 19 at 1e-13; then runs are lost


# Likelihoods --------------------------------------------------------------------------------------
#
# Ready answers to `Likelihood.accepts`: None, or a sentence that says which labels are right.


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

    Autograd supplies the derivatives in eta. The other fields are promises, and are tried when a
    model is made, by differences and quadrature.
    """

    name: str
    phi: Callable  # eta, y of any one shape -> the same shape, entry by entry
    accepts: Callable | None = None  # y (N,) -> None, or a sentence: which labels are right
    fast: Callable | None = None  # (eta, y, order) -> [phi', phi'', phi'''][:order]
    expected: Callable | None = None  # (m, v, y) -> E[phi], E[phi'], E[phi''], eta ~ N(m, v)
    bound: Callable | None = None  # (xi, y) -> a, b, c: a + b eta + c eta^2 / 2 <= phi, = at +-xi
    kappa: float | None = None  # d^2 phi / d eta d y where it is constant (canonical links)
    strip: float = 1.0  # phi' and phi'' are analytic in eta for |Im eta| < strip (for QD)
    quadratic: bool = False  # phi is quadratic in eta
    classes: bool = False  # labels are classes: taylor_x expands about each class mean
    held = False  # by tests to what it promises? So are the package's own

    def derivatives(self, eta: np.ndarray, y: np.ndarray, order: int) -> Sequence[np.ndarray]:
        """[phi', phi'', ...] up to `order` (at most 3), each of the shape of eta."""
        if self.fast is not None:
            return self.fast(eta, y, order)
        eta, y = np.broadcast_arrays(eta, y)
        f, out = self.phi, []
        for _ in range(order):
            slope = elementwise_grad(f)
            f = lambda eta, y, slope=slope: seen(slope(eta, y), eta)
            out.append(f(eta, y))
        return out

    def mean(
        self, m: np.ndarray, v: np.ndarray, y: np.ndarray, tolerance: float = TOLERANCE
    ) -> np.ndarray:
        """E phi for eta ~ N(m, v), arrays m, v, y that broadcast together; by `rule` if need be."""
        if self.expected is not None:  # E exp(eta) of a wide q lies outside of any fixed nodes
            return self.expected(m, v, y)[0]
        eta, y, weights = self._nodes(m, v, y, tolerance)
        return self.phi(eta, y) @ weights

    def mean_slopes(
        self, m: np.ndarray, v: np.ndarray, y: np.ndarray, tolerance: float = TOLERANCE
    ) -> Sequence[np.ndarray]:
        """E phi' and E phi''."""
        if self.expected is not None:
            return self.expected(m, v, y)[1:]
        eta, y, weights = self._nodes(m, v, y, tolerance)
        return [g @ weights for g in self.derivatives(eta, y, 2)]

    def _nodes(self, m, v, y, tolerance):
        sd = np.sqrt(v)
        x, weights = rule(self.strip / max(sd.max(), 1e-300), tolerance)
        return m[..., None] + sd[..., None] * x, y[..., None], weights

    def check(self, y: np.ndarray) -> None:
        """A ValueError unless y (N,) are labels for phi, and phi is a function that can be used."""
        accepts = self.accepts or (lambda y: None)  # every number is a label
        for complaint in passes.each(lambda rows: accepts(rows[0]), (y,)):
            if complaint:
                raise ValueError(f"labels of a {self.name} likelihood {complaint}")
        labels = np.array([y.min(), y[len(y) // 2], y.max()], float)
        phi, name = lambda eta, j: self.phi(eta, labels[j]), f"phi of the {self.name} likelihood"
        checks.rows(name, phi, checks.ETA, 3, [((12,), (12,))], "eta", "labels")
        if not self.held:
            checks.promises(self, rule, labels)


def rule(strip: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the standard normal for a g analytic in |Im x| < strip.

    The trapezoidal rule with step h over |x| <= T. For a g that is analytic and of size B in the
    strip |Im x| <= b its error is at most (Trefethen and Weideman 2014, theorem 5.1)
    2 B exp(b^2 / 2) / (exp(2 pi b / h) - 1) from the step, B exp(-T^2 / 2) from the cut. b may be
    anything below strip / sd: a wide q needs more nodes.
    """
    digits = np.log(8 / tolerance)
    b = min(0.8 * strip, np.sqrt(2 * digits))  # the second is best where nothing limits b
    h = 2 * np.pi * b / (b**2 / 2 + digits)
    K = int(np.ceil(np.sqrt(2 * digits) / h))
    if K > MOST:
        h, K = h * K / MOST, MOST
    x = h * np.arange(-K, K + 1)
    weights = np.exp(-(x**2) / 2)
    return x, weights / weights.sum()


def _held(*fields, **more):
    """A likelihood of the package; `replace` makes one of the reader's of it."""
    made = Likelihood(*fields, **more)
    object.__setattr__(made, "held", True)
    return made


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
    return _held("linear", phi, fast=fast, expected=expected, kappa=1 / sd**2, quadratic=True)


# kappa of the logistic likelihood: of use with classes=False, one mean of x for both classes.
LOGISTIC = _held(
    "logistic", _logistic_phi, signs, _logistic_fast, bound=_logistic_bound, kappa=0.5,
    strip=np.pi, classes=True,
)  # fmt: skip
POISSON = _held("poisson", _poisson_phi, counts, _poisson_fast, _poisson_expected, kappa=1.0)


# Models -------------------------------------------------------------------------------------------


class GLM(Model):
    """Generalised linear model: log p(y | x, z) = phi(x.z + offset, y).

    The prior is N(prior_mean, diag(prior_sd^2)), each a number or (d,); `offset` is (N,) or None.
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike, likelihood: Likelihood, prior_sd: ArrayLike = 1.0, *,
        prior_mean: ArrayLike = 0.0, offset: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(likelihood, Likelihood):
            raise ValueError(
                f"likelihood={likelihood!r}: give models.LOGISTIC, models.POISSON, "
                "models.gaussian_likelihood(sd), or your own, models.Likelihood(name, phi)"
            )
        given = (X, y) if offset is None else (X, y, offset)
        checks.same_labels(given)
        X, y, *rest = map(checks.real_numbers, ("X", "y", "offset"), given)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise ValueError(f"X must be (N, d) and y (N,); got {X.shape} and {y.shape}")
        if rest and rest[0].shape != y.shape:
            raise ValueError(f"offset must be {y.shape}, one a data point; got {rest[0].shape}")
        self.likelihood, self.y = likelihood, y  # which are tried when the model is made
        prior = GaussianPrior(prior_sd, prior_mean)  # type: ignore[arg-type]
        prior(np.zeros(X.shape[1]))  # has as many coordinates
        name = f"{likelihood.name} regression"
        super().__init__(partial(_rows, likelihood), prior, (X, y, *rest), X.shape[1], name)
        self.X, self.y, *rest = self.data  # copies of our own, where they are small
        self.offset = rest[0] if rest else None

    def _check_functions(self):
        self.likelihood.check(self.y)  # all else is written here

    row_size = 1  # a data point makes one number, its eta
    made = 8  # and with what phi makes of it, at most so many

    def totals(
        self, z: np.ndarray, order: int, factor: np.ndarray | None = None, mean: bool = False
    ) -> tuple:
        if factor is not None:
            args, width = (z, self.likelihood, order, factor, mean), z.size * (50 if mean else 1)
            return passes.total(_totals, self.data, *args, width=width)
        made = self.made + (self.dim if order == 2 else 0)
        return passes.at_points(_totals, self.data, z, self.likelihood, order, made=made)

    @cached_property
    def data_moments(self) -> "DataMoments":
        """Moments of x and y within each class, or over all data, for expansions in x."""
        classes = np.array([np.inf])
        if self.likelihood.classes:
            found = passes.each(lambda rows: np.unique(rows[0]), (self.y,))
            classes = np.unique(np.concatenate(list(found)))
        data, phi = (self.X, self.y), self.likelihood.phi
        n, x, y = passes.total(_means, data, classes, width=self.dim)
        x, y = x / n[:, None], y / n
        width = self.dim * len(n)
        xx, xy, own = passes.total(_spreads, data, classes, x, y, phi, width=width)
        return DataMoments(classes, n, x, y, xx / n[:, None, None], xy / n[:, None], own / n)


@dataclass(frozen=True)
class DataMoments:
    """First and second moments of (x, y) within K classes of data points."""

    classes: np.ndarray  # (K,) the label of each class; [inf]: one class of all data
    n: np.ndarray  # (K,) how many are in it
    x: np.ndarray  # (K, d) means
    y: np.ndarray  # (K,)
    xx: np.ndarray  # (K, d, d) covariances of x (divided by n, not n - 1)
    xy: np.ndarray  # (K, d) covariances of x with y
    constant: np.ndarray  # (K,) mean phi(0, y_i) - phi(0, mean y): what phi has of y alone

    def of_labels(self, y: np.ndarray) -> np.ndarray:
        """Which class data points with these labels are in."""
        return np.searchsorted(self.classes, y)

    @cached_property
    def xx_beside(self) -> np.ndarray:
        """The covariances side by side, (d, K d): one product then does for all classes."""
        return np.concatenate(self.xx, -1)


def _in_classes(rows, classes):
    """X and y of some data points, and 1 where one is in a class, (K, n)."""
    X, y = (a.astype(float, copy=False) for a in rows)
    return X, y, np.eye(len(classes))[:, np.searchsorted(classes, y)]


def _means(rows, classes):
    """Sizes of the classes, and sums of x and y in them."""
    X, y, own = _in_classes(rows, classes)
    return own.sum(-1), own @ X, own @ y


def _spreads(rows, classes, x, mean_y, phi):
    """Sums of dx dx^T, dx dy and phi(0, y) - phi(0, ybar), with dx = x - xbar, dy = y - ybar."""
    X, y, own = _in_classes(rows, classes)
    mean_y, zero = own.T @ mean_y, np.zeros_like(y)  # (n,)
    dx, dy = X - own.T @ x, y - mean_y
    by_class = (own[..., None] * dx).mT  # (K, d, n)
    return by_class @ dx, by_class @ dy, own @ (phi(zero, y) - phi(zero, mean_y))


def logistic_regression(X: ArrayLike, y: ArrayLike, prior_sd: ArrayLike = 1.0, **more: Any) -> GLM:
    """log p(y | x, z) = log sigmoid(y (x.z + offset)), y in {-1, +1}; all else as in `GLM`."""
    return GLM(X, y, LOGISTIC, prior_sd, **more)


def poisson_regression(X: ArrayLike, y: ArrayLike, prior_sd: ArrayLike = 1.0, **more: Any) -> GLM:
    """y ~ Poisson(exp(x.z + offset)), y in {0, 1, 2, ...}; all else as in `GLM`."""
    return GLM(X, y, POISSON, prior_sd, **more)


def linear_regression(
    X: ArrayLike, y: ArrayLike, prior_sd: ArrayLike = 1.0, noise_sd: float = 1.0, **more: Any
) -> GLM:
    """y ~ N(x.z + offset, noise_sd^2), all else as in `GLM`: conjugate, everything is exact."""
    return GLM(X, y, gaussian_likelihood(noise_sd), prior_sd, **more)


def _rows(likelihood, z, batch):
    """phi(x.z + offset, y) for rows (x, y) or (x, y, offset)."""
    x, y, *offset = batch
    eta = anp.einsum("...i,...i->...", x, z)  # no product of every draw, row and column
    return likelihood.phi(eta + offset[0] if offset else eta, y)


def _totals(rows, z, likelihood, order, factor=None, mean=False):
    """Value, slope and Hessian at z, summed over some data points; of the bound, of the mean."""
    X, y, *offset = rows
    eta = anp.dot(z, X.T) + (offset[0] if offset else 0.0)  # (..., n)
    if order == 0:
        return (anp.sum(likelihood.phi(eta, y), -1),)
    found = _sums(X, likelihood.phi(eta, y), *likelihood.derivatives(eta, y, order))
    if factor is None:
        return found
    full = factor.ndim > z.ndim
    v = ((X @ factor) ** 2).sum(-1) if full else factor**2 @ (X**2).T  # of eta, (..., n)
    if likelihood.bound is not None:
        a, b, c = likelihood.bound(np.sqrt(eta**2 + v), y)
        found += _sums(X, a + b * eta + 0.5 * c * eta**2, b + c * eta, c)
    if mean:
        d1, d2 = likelihood.mean_slopes(eta, v, y)
        at_mean = likelihood.mean(eta, v, y) - 0.5 * d2 * v
        found += _sums(X, at_mean, d1, d2)
    return found


def _sums(X, psi, d1, *d2):
    return psi.sum(-1), d1 @ X, *((c[..., None] * X).mT @ X for c in d2)
