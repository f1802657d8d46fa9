"""Generalised linear models: a likelihood of eta = x.z + offset, a normal prior, and data."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from numpy.typing import ArrayLike

from . import checks, passes, quadrature
from .likelihoods import LOGISTIC, POISSON, Likelihood, gaussian_likelihood
from .own import GaussianPrior, Model


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
                f"likelihood={likelihood!r}: give models.LOGISTIC, PROBIT, POISSON, one of "
                "models.student_t_likelihood(df) and negative_binomial_likelihood(shape), or your "
                "own, models.Likelihood(name, phi)"
            )
        given = (X, y) if offset is None else (X, y, offset)
        checks.same_labels(given)
        X, y, *rest = map(checks.numbers, ("X", "y", "offset"), given)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise ValueError(f"X must be (N, d) and y (N,); got {X.shape} and {y.shape}")
        if rest and rest[0].shape != y.shape:
            raise ValueError(f"offset must be {y.shape}, one a data point; got {rest[0].shape}")
        self.likelihood, self.y = likelihood, y  # which are tried when the model is made
        prior = GaussianPrior(
            checks.number_or_vector("prior_sd", prior_sd, X.shape[1]),
            checks.number_or_vector("prior_mean", prior_mean, X.shape[1]),
        )
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
    def groups(self) -> "Groups":
        """Moments of the data, one group per class (or one in all), for expansions in x."""
        classes = None
        if self.likelihood.classes:
            found = passes.each(lambda rows: np.unique(rows[0]), (self.y,))
            classes = np.unique(np.concatenate(list(found)))
        data, phi = (self.X, self.y), self.likelihood.phi
        n, x, y = passes.total(_means, data, classes, width=self.dim)
        x, y = x / n[:, None], y / n
        xx, xy, own = passes.total(_spreads, data, classes, x, y, phi, width=self.dim)
        return Groups(classes, n, x, y, xx / n[:, None, None], xy / n[:, None], own / n)


@dataclass(frozen=True)
class Groups:
    """First and second moments of (x, y) within K groups of data points."""

    classes: np.ndarray | None  # (K,) the label of each group; None: one group of all data
    n: np.ndarray  # (K,) group sizes
    x: np.ndarray  # (K, d) means
    y: np.ndarray  # (K,)
    xx: np.ndarray  # (K, d, d) covariances of x (divided by n, not n - 1)
    xy: np.ndarray  # (K, d) covariances of x with y
    constant: np.ndarray  # (K,) mean phi(0, y_i) - phi(0, mean y): what phi has of y alone

    def of_labels(self, y: np.ndarray) -> np.ndarray:
        """Which group data points with these labels are in."""
        return _group(y, self.classes)

    @cached_property
    def xx_beside(self) -> np.ndarray:
        """The covariances side by side, (d, K d): one product then does for all groups."""
        return np.concatenate(self.xx, -1)

    @cached_property
    def n_xy(self) -> np.ndarray:
        """Sum of n_k Cov(x, y), (d,)."""
        return self.n @ self.xy


def _group(y, classes):
    return np.zeros(np.shape(y), int) if classes is None else np.searchsorted(classes, y)


def _grouped(rows, classes):
    """X, y and group of some data points, and which of them are in each group, (K, n)."""
    X, y = (a.astype(float, copy=False) for a in rows)
    group, K = _group(y, classes), 1 if classes is None else len(classes)
    return X, y, group, [group == k for k in range(K)]


def _means(rows, classes):
    """Sizes of the groups, and sums of x and y in them."""
    X, y, group, each = _grouped(rows, classes)
    n = np.bincount(group, minlength=len(each))
    return n, np.stack([X[k].sum(0) for k in each]), np.array([y[k].sum() for k in each])


def _spreads(rows, classes, x, mean_y, phi):
    """Sums of dx dx^T, dx dy and phi(0, y) - phi(0, ybar), with dx = x - xbar, dy = y - ybar."""
    X, y, group, each = _grouped(rows, classes)
    dx, dy, zero = X - x[group], y - mean_y[group], np.zeros_like(y)
    xx, xy = (np.stack([dx[k].T @ by[k] for k in each]) for by in (dx, dy))
    own = phi(zero, y) - phi(zero, mean_y[group])
    return xx, xy, np.bincount(group, own, minlength=len(each))


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
    eta = anp.sum(x * z, -1)
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
        d1, d2 = quadrature.slopes(likelihood, eta, v, y)
        at_mean = quadrature.value(likelihood, eta, v, y) - 0.5 * d2 * v
        found += _sums(X, at_mean, d1, d2)
    return found


def _sums(X, psi, d1, *d2):
    return psi.sum(-1), d1 @ X, *((c[..., None] * X).mT @ X for c in d2)
