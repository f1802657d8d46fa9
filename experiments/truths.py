"""Posterior means of six of the seven posteriors, which do not come from the package's own answers.

Given one scale, five of them are normal: a quadrature over that scale is exact. The mixture has
five unknowns: Gauss and Hermite's rule in all of them.
"""

import numpy as np
import scipy
from numpy.polynomial.hermite_e import hermegauss

from cvlib.models.density import Density

from . import posteriors

NODES = 13  # for each of five unknowns


def truth(name):
    """Means of the reference's quantities (P,), of any of `posteriors.names` but the process."""
    known = posteriors.load(name)
    if name == "low_dim_gauss_mix":
        density = Density(known.model)
        minus = lambda z: tuple(-x[0] for x in density.slope(z[None]))
        return by_nodes(known.model.log_joint, minus, known.model.dim, known.parameters, NODES)
    t = np.linspace(-6, 6, 60_001)  # log of the scale, about its own size
    if name == "eight_schools":
        log, mean = schools(t, *known.model.data[:2])
    else:
        log, mean = _line(t, *known.model.data, name)
    p = np.exp(log - log.max())
    return p @ mean / p.sum()


def schools(t, y, sigma):
    """log p(t | y) with tau = e^(t + 1), and the means of theta, mu and tau given tau."""
    tau = np.exp(t + 1)
    v = sigma**2 + tau[:, None] ** 2  # of y_j given mu
    precision = (1 / v).sum(1) + 1 / 25
    mu = (y / v).sum(1) / precision
    log = -np.log1p((tau / 5) ** 2) + t - 0.5 * np.log(v).sum(1) - 0.5 * np.log(precision)
    log -= 0.5 * ((y**2 / v).sum(1) - precision * mu**2)
    theta = mu[:, None] + tau[:, None] ** 2 / v * (y - mu[:, None])
    return log, np.column_stack([theta, mu, tau])


def _line(t, X, y, name):
    """log p(log sigma | y), and the means given sigma, of a regression."""
    least = np.linalg.lstsq(X, y)[0]
    sigma = np.sqrt(np.mean((y - X @ least) ** 2)) * np.exp(t)
    each, V = np.linalg.eigh(X.T @ X)
    prior = 0.01 if name == "sblri" else 0.0
    A = each / sigma[:, None] ** 2 + prior  # precisions along V
    m = (X.T @ y @ V) / sigma[:, None] ** 2 / A
    log = t - len(X) * np.log(sigma) - 0.5 * np.log(A).sum(1)
    log -= 0.5 * (y @ y / sigma**2 - (A * m**2).sum(1))
    more = {"kidiq": -np.log1p((sigma / 2.5) ** 2), "sblri": -0.5 * (sigma / 10) ** 2}
    return log + more.get(name, 0.0), np.column_stack([m @ V.T, sigma])


def by_nodes(log, minus, d, f, nodes, reach=7):
    """E f by Gauss and Hermite's rule of so many nodes for each of d unknowns, about the mode.

    log(z (n, d)) is log p up to a constant, minus(z (d,)) minus that and its slope; nodes more than
    about `reach` standard deviations away are left out.
    """
    mode = scipy.optimize.minimize(
        minus, np.zeros(d), jac=True, method="BFGS", options={"gtol": 1e-6}
    ).x
    h = 1e-4 * np.eye(d)
    bend = np.array([minus(mode + e)[1] - minus(mode - e)[1] for e in h]) / 2e-4
    L = np.linalg.cholesky(np.linalg.inv((bend + bend.T) / 2))
    x, w = hermegauss(nodes)
    e, log_w = (np.stack(np.meshgrid(*[v] * d, indexing="ij"), -1).reshape(-1, d)
                for v in (x, np.log(w)))  # fmt: skip
    log_w = log_w.sum(-1) + 0.5 * (e**2).sum(-1)
    near = (e**2).sum(-1) < reach**2 + d
    z = mode + e[near] @ L.T
    own = log_w[near] + np.concatenate([log(part) for part in np.array_split(z, 400)])
    p = np.exp(own - own.max())
    return p @ f(z) / p.sum()
