"""The exact references against adaptive quadrature, Monte Carlo and conjugate formulas."""

import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose
from scipy import integrate

import cvlib as cv


@pytest.mark.parametrize("sd", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("name", ["logistic", "linear", "poisson"])
def test_elbo_and_slope_by_adaptive_quadrature(name, sd):
    """One latent dimension, from a narrow q to one as wide as any data set starts with."""
    p = oracles.problem(name, 1, 4)
    model, q = oracles.build(cv, p), cv.families.Gaussian(1)
    phi = model.likelihood.phi

    def elbo(mu, sd):
        density = lambda z: np.exp(-0.5 * ((z - mu) / sd) ** 2) / np.sqrt(2 * np.pi) / sd
        log_joint = lambda z: phi(p.X[:, 0] * z, p.y).sum() + p.prior(np.array([z]))
        ends = mu - 12 * sd, mu + 12 * sd
        points = np.sort([0.0, mu]) if ends[0] < 0 < ends[1] else [mu]
        integrand = lambda z: density(z) * (log_joint(z) - np.log(density(z)))
        return integrate.quad(integrand, *ends, points=points, epsabs=1e-11, epsrel=1e-11)[0]

    w = np.array([0.4, sd])
    assert_allclose(cv.exact.elbo(model, q, w), elbo(*w), rtol=1e-8)
    step = 1e-4 * sd
    slope = [(elbo(*(w + step * e)) - elbo(*(w - step * e))) / (2 * step) for e in np.eye(2)]
    assert_allclose(cv.exact.gradient(model, q, w), slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", oracles.FAMILIES)
def test_optimum_of_the_conjugate_model(family):
    """The posterior itself; in the diagonal family its mean, and 1 / sqrt(precision_ii)."""
    p = oracles.problem("linear", 3, 6)
    model, q = oracles.build(cv, p), getattr(cv.families, family)(3)
    precision = p.X.T @ p.X / oracles.NOISE_SD**2 + np.eye(3) / oracles.PRIOR_SD**2
    mean = np.linalg.solve(precision, p.X.T @ p.y) / oracles.NOISE_SD**2
    mu, L = oracles.unpack(family, 3, cv.exact.optimum(model, q))
    assert_allclose(mu, mean, atol=1e-6)
    if family == "Gaussian":
        assert_allclose(L @ L.T, np.linalg.inv(precision), atol=1e-6)
        # and there the ELBO is the evidence, log N(y | 0, noise + X prior X^T)
        C = oracles.NOISE_SD**2 * np.eye(6) + oracles.PRIOR_SD**2 * p.X @ p.X.T
        evidence = -0.5 * (
            p.y @ np.linalg.solve(C, p.y) + np.linalg.slogdet(C)[1] + 6 * np.log(2 * np.pi)
        )
        w = cv.exact.optimum(model, q)
        assert_allclose(cv.exact.elbo(model, q, w), evidence, rtol=1e-9)
    else:
        assert_allclose(np.diag(L) ** 2, 1 / np.diag(precision), atol=1e-6)
