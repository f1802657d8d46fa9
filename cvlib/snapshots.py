"""Snapshots: the data term's value, slope and curvature at older weights, summed over all data.

With them an expansion about the snapshot needs no pass over the data until it is renewed: SVRG's
idea (Johnson and Zhang 2013), with curvature.
"""

from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad

from .models import GLM

CHUNK = 2**20  # numbers of the data that one part of a pass holds


class Snapshot(NamedTuple):
    """log p(x | z) about mu: value + slope.(z - mu) + (z - mu)^T hessian (z - mu) / 2."""

    mu: np.ndarray  # (..., d)
    value: np.ndarray  # (...)
    slope: np.ndarray  # (..., d)
    hessian: np.ndarray  # (..., d, d)


def snapshot(model, mu):
    """The `Snapshot` of a model at mu (..., d): one pass over the data, part by part."""
    mu = np.asarray(mu, float)
    if mu.shape[-1:] != (model.dim,) or not np.isfinite(mu).all():
        raise ValueError(f"mu must be finite numbers (..., {model.dim}); got {mu.shape}")
    parts = [_part(model, mu, rows) for rows in chunks(model)]
    return Snapshot(mu, *(sum(part[k] for part in parts) for k in range(3)))


def chunks(model):
    """Slices of the data points, so that what one of them needs stays near CHUNK numbers."""
    size = max(1, CHUNK // max(model.dim, *(a[0].size for a in model.data)))
    return [slice(first, first + size) for first in range(0, model.N, size)]


def _part(model, mu, rows):
    """Value, slope and Hessian at mu, summed over some data points."""
    if isinstance(model, GLM):
        X, y = model.X[rows], model.y[rows]
        eta = mu @ X.T + (0.0 if model.offset is None else model.offset[rows])  # (..., n)
        d1, d2 = model.likelihood.derivatives(eta, y, 2)
        value = model.likelihood.phi(eta, y).sum(-1)
        return value, d1 @ X, (d2[..., None] * X).mT @ X
    batch = tuple(a[rows] for a in model.data)
    f = lambda z: anp.sum(model.log_lik(z[..., None, :], batch), -1)
    points, columns = np.broadcast_arrays(mu[..., None, :], np.eye(model.dim))  # (..., d, d)
    return np.asarray(f(mu)), elementwise_grad(f)(mu), hess_times(f, points, columns)


def hess_times(f, z, v):
    """grad^2 f(z) v for rows z and v (..., d) of an f that autograd differentiates row by row."""
    slope = elementwise_grad(f)
    # + 0 z: autograd warns of a slope that does not depend on z, as that of a linear f
    return grad(lambda z: anp.sum(slope(z) * v + 0 * z))(z)
