"""Posterior means of the seven posteriors that do not come from the package's own answers.

Given one scale, five of them are normal: a quadrature over that scale is exact. The mixture has
five unknowns: Gauss and Hermite's rule in all of them. The Gaussian process has two unknown scales:
a grid of those, and at each of its points importance sampling of the field.
"""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.polynomial.hermite_e import hermegauss

from cvlib.models.density import Density

from . import posteriors

NODES = 13, 11  # for each of five unknowns; the two differ by the error


class Truth(NamedTuple):
    """Means of the reference's quantities and their errors, (P,) each."""

    mean: np.ndarray
    error: np.ndarray


def truth(name):
    """The `Truth` of one of `posteriors.names`."""
    known = posteriors.load(name)
    if name == "gp_pois_regr":
        return _field(*known.model.data)
    if name == "low_dim_gauss_mix":
        return Truth(mean := _tensor(known, NODES[0]), np.abs(mean - _tensor(known, NODES[1])))
    t = np.linspace(-6, 6, 60_001)  # log of the scale, about its own size
    if name == "eight_schools":
        log, mean = schools(t, *known.model.data[:2])
    else:
        log, mean = _line(t, *known.model.data, name)
    p = np.exp(log - log.max())
    mean = p @ mean / p.sum()
    return Truth(mean, 0 * mean)


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


def _tensor(known, nodes):
    density = Density(known.model)
    minus = lambda z: tuple(-x[0] for x in density.slope(z[None]))
    return by_nodes(known.model.log_joint, minus, known.model.dim, known.parameters, nodes)


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


# The Gaussian process ----------------------------------------------------------------------------

GRID, LOTS, POINTS = 25, 8, 2048  # a side; and of importance sampling, at each point of the grid


def _field(k):
    """rho, alpha and f = C t, t ~ N(0, I), counts k ~ Poisson(exp f), by independent lots."""
    k = np.ravel(k)
    sides = np.linspace(1.0, 2.4, GRID), np.linspace(-0.6, 3.2, GRID)  # log rho, log alpha
    grid = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    found = []
    for seed in range(LOTS):
        e = scipy.stats.norm.ppf(scipy.stats.qmc.Sobol(len(k), rng=seed).random(POINTS))
        each = [_given(k, *log, e) for log in grid]
        log, f = np.array([one[0] for one in each]), np.array([one[1] for one in each])
        p = np.exp(log - log.max())
        found.append(p @ np.column_stack([np.exp(grid), f]) / p.sum())
    return Truth(np.mean(found, 0), np.std(found, 0, ddof=1) / np.sqrt(LOTS))


def _given(k, log_rho, log_alpha, e):
    """log p(k, log rho, log alpha) and E f given both, with draws about the mode of t."""
    x, rho, alpha = np.arange(-10.0, 11, 2), np.exp(log_rho), np.exp(log_alpha)
    K = alpha**2 * np.exp(-((x[:, None] - x) ** 2) / (2 * rho**2)) + 1e-10 * np.eye(len(x))
    C = np.linalg.cholesky(K)
    minus = lambda t: np.exp(C @ t).sum() - k @ C @ t + t @ t / 2
    slope = lambda t: C.T @ (np.exp(C @ t) - k) + t
    bend = lambda t: np.eye(len(k)) + (C.T * np.exp(C @ t)) @ C
    mode = scipy.optimize.minimize(minus, 0 * k, jac=slope, hess=bend, method="trust-exact").x
    L = np.linalg.inv(np.linalg.cholesky(bend(mode))).T
    t = mode + e @ L.T
    f = t @ C.T
    log = f @ k - np.exp(f).sum(1) - (t**2).sum(1) / 2 + (e**2).sum(1) / 2
    w = np.exp(log - log.max())
    prior = 25 * log_rho - 4 * rho - alpha**2 / 8 + log_alpha
    return log.max() + np.log(w.mean() * np.diag(L).prod()) + prior, w @ f / w.sum()
