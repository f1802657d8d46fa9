"""Snapshots: the data term's value, slope and curvature at older weights, summed over all data.

With them an expansion about the snapshot needs no pass over the data until it is renewed: SVRG's
idea (Johnson and Zhang 2013), with curvature.
"""

from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad

from ..models import GLM, passes


class Snapshot(NamedTuple):
    """log p(x | z) about mu: value + slope.(z - mu) + (z - mu)^T hessian (z - mu) / 2.

    The same for its quadratic lower bound, if the snapshot knows the factor of q at the time.
    """

    mu: np.ndarray  # (..., d)
    value: np.ndarray  # (...)
    slope: np.ndarray  # (..., d)
    hessian: np.ndarray | None = None  # (..., d, d), if it is of order 2
    factor: np.ndarray | None = None  # (..., d, d), or (..., d) of a diagonal q
    bound_value: np.ndarray | None = None
    bound_slope: np.ndarray | None = None
    bound_hessian: np.ndarray | None = None

    def of_run(self, k):
        """That of run k alone."""
        return Snapshot(*(None if x is None else x[k] for x in self))


def snapshot(model, mu, order=2, factor=None):
    """The `Snapshot` of a model at mu (..., d): one pass over the data, part by part.

    With order=1 without the Hessian, for expansions of that order. With the factor of a Gaussian q,
    L or sigma, also of the likelihood's quadratic bound.
    """
    mu = np.asarray(mu, float)
    if mu.shape[-1:] != (model.dim,) or not np.isfinite(mu).all():
        raise ValueError(f"mu must be finite numbers (..., {model.dim}); got {mu.shape}")
    if factor is not None and getattr(getattr(model, "likelihood", None), "bound", None) is None:
        raise ValueError(f"factor= is for a quadratic bound, and {model!r} has none: leave it out")
    args = mu, model.likelihood if isinstance(model, GLM) else model.log_lik, order
    if not isinstance(model, GLM):
        row = max(model.dim, *(a[0].size for a in model.data)) if order == 2 else 1
        return Snapshot(mu, *passes.total(_own, model.data, *args, width=mu.size * row))
    found = passes.total(_glm, model.data, *args, factor, width=mu.size)
    sums, bounds = found[: order + 1], found[order + 1 :]
    return Snapshot(mu, *sums, *[None] * (2 - order), factor, *bounds)


def _glm(rows, mu, likelihood, order, factor):
    """Value, slope and Hessian at mu, summed over some data points of a GLM; those of the bound."""
    X, y, *offset = rows
    eta = mu @ X.T + (offset[0] if offset else 0.0)  # (..., n)
    sums = _sums(X, likelihood.phi(eta, y), *likelihood.derivatives(eta, y, order))
    if factor is None:
        return sums
    full = factor.ndim > mu.ndim
    v = ((X @ factor) ** 2).sum(-1) if full else factor**2 @ (X**2).T  # of eta, (..., n)
    a, b, c = likelihood.bound(np.sqrt(eta**2 + v), y)
    return *sums, *_sums(X, a + b * eta + 0.5 * c * eta**2, b + c * eta, c)


def _sums(X, psi, d1, *d2):
    return psi.sum(-1), d1 @ X, *((c[..., None] * X).mT @ X for c in d2)


def _own(rows, mu, log_lik, order):
    """The same for a model of one's own, by autograd."""
    f = lambda z: anp.sum(log_lik(z[..., None, :], rows), -1)
    value_and_slope = np.asarray(f(mu)), elementwise_grad(f)(mu)
    if order == 1:
        return value_and_slope
    points, columns = np.broadcast_arrays(mu[..., None, :], np.eye(mu.shape[-1]))  # (..., d, d)
    return *value_and_slope, hess_times(f, points, columns)


def hess_times(f, z, v):
    """grad^2 f(z) v for rows z and v (..., d) of an f that autograd differentiates row by row."""
    slope = elementwise_grad(f)
    # + 0 z: autograd warns of a slope that does not depend on z, as that of a linear f
    return grad(lambda z: anp.sum(slope(z) * v + 0 * z))(z)
