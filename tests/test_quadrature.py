"""One-dimensional expectations against adaptive quadrature and closed forms, wide q included.

The trapezoidal rule has an error bound; here it is seen to be one, and to be sharp.
"""

import numpy as np
import pytest
import test_lines
from numpy.testing import assert_allclose
from scipy.special import erfcx

import cvlib as cv
from cvlib.models import LOGISTIC, Likelihood

# g, E g for a standard normal x, and the size of g in the strip |Im x| <= b
EXAMPLES = {
    "one": (lambda x: np.ones_like(x), 1.0, lambda b: 1.0),
    "cos 2x": (lambda x: np.cos(2 * x), np.exp(-2.0), lambda b: np.cosh(2 * b)),
    **{
        f"pole at {c}i": (
            lambda x, c=c: 1 / (x**2 + c**2),
            np.sqrt(np.pi / 2) / c * erfcx(c / np.sqrt(2)),
            lambda b, c=c: 1 / (c**2 - b**2),
        )
        for c in (0.1, 0.5, 2.0, 7.0)
    },
}
STRIPS = {name: float(name[8:-1]) if "pole" in name else np.inf for name in EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_stated_bound_is_a_bound(name):
    """For any step h, cut T and strip b: 2 B e^(b^2/2) / (e^(2 pi b/h) - 1) + B e^(-T^2/2)."""
    g, mean, size = EXAMPLES[name]
    for h in (0.05, 0.2, 0.5, 1.0, 2.0):
        for K in (int(2 / h), int(4 / h), int(9 / h)):
            x, T = h * np.arange(-K, K + 1), h * K
            error = abs(h * (g(x) @ np.exp(-(x**2) / 2)) / np.sqrt(2 * np.pi) - mean)
            b = np.linspace(0.01, min(0.99 * STRIPS[name], 12, 100 * h), 400)
            step = 2 * np.exp(b**2 / 2) / np.expm1(2 * np.pi * b / h)
            bounds = size(b) * (step + np.exp(-(T**2) / 2))
            assert error <= bounds.min() + 1e-15, (h, T)


def test_the_bound_is_sharp():
    """For g = 1 the step's error is 2 exp(-(2 pi/h)^2/2) and a little: the bound at its best."""
    for h in (2.0, 2.5, 3.0):
        x = h * np.arange(-40, 41)
        error = h * np.exp(-(x**2) / 2).sum() / np.sqrt(2 * np.pi) - 1
        b = 2 * np.pi / h
        bound = 2 * np.exp(b**2 / 2) / np.expm1(2 * np.pi * b / h)
        assert 0.9 * bound < error <= bound
        assert error > 2 * np.exp(b**2 / 2 - 2 * np.pi * b / h)  # without the 1 it is no bound


def test_a_likelihood_of_one_s_own_says_how_wide_its_strip_is():
    """Student's t: poles at y +- 2i. A strip that is too wide for it costs the digits."""
    phi = lambda eta, y: -2.5 * np.log(1 + (y - eta) ** 2 / 4)
    fast = lambda eta, y, order: [
        5 * (y - eta) / (4 + (y - eta) ** 2),
        5 * ((y - eta) ** 2 - 4) / (4 + (y - eta) ** 2) ** 2,
    ][:order]
    m, y = np.array([-3.0, 0.2, 5.0]), np.array([0.5, 0.0, -2.0])
    for sd in (0.1, 1.0, 6.0):
        right = [
            [test_lines.adaptive_mean(lambda t: fast(t, y, 2)[k], m, sd, y) for m, y in zip(m, y)]
            for k in range(2)
        ]
        v = np.full(3, sd**2)
        error = {}
        for strip in (2.0, 12.0):
            student = Likelihood("student", phi, lambda y: None, fast, strip=strip)
            got = student.mean_slopes(m, v, y, tolerance=1e-9)
            error[strip] = np.abs(np.array(got) - right).max()
        assert error[2.0] < 5e-9
        assert sd < 1 or error[12.0] > 1e-6
    # the strip of the logistic likelihood ends where its slope has poles, at +- pi i
    slope = lambda t: abs(1 / (1 + np.exp(1j * t)))
    assert slope(0.999 * np.pi) > 100 > slope(0.9 * np.pi)
    assert LOGISTIC.strip == np.pi


def test_values_and_degenerate_widths():
    m, y = np.array([-20.0, -1.0, 0.0, 4.0]), np.array([1.0, -1.0, 1.0, 1.0])
    for sd in (0.01, 1.0, 30.0):
        got = LOGISTIC.mean(m, np.full(4, sd**2), y)
        phi = lambda t, y: -np.logaddexp(0, -y * t)
        right = [test_lines.adaptive_mean(lambda t: phi(t, b), a, sd, b) for a, b in zip(m, y)]
        assert_allclose(got, right, rtol=1e-11, atol=1e-12)
    at_m = LOGISTIC.derivatives(m, y, 2)
    assert_allclose(LOGISTIC.mean_slopes(m, 0 * m, y), at_m, rtol=1e-13)
    mixed = LOGISTIC.mean_slopes(m, np.array([0.0, 1.0, 0.0, 4.0]), y)
    assert_allclose(np.array(mixed)[:, [0, 2]], np.array(at_m)[:, [0, 2]], rtol=1e-12)


def test_likelihoods_that_know_their_means_are_asked():
    m, v, y = np.array([0.3, 2.0]), np.array([100.0, 0.5]), np.array([1.0, 3.0])
    for likelihood in (cv.models.POISSON, cv.models.gaussian_likelihood(0.7)):
        value, *slopes = likelihood.expected(m, v, y)
        assert_allclose(likelihood.mean(m, v, y), value)
        assert_allclose(likelihood.mean_slopes(m, v, y), slopes)


@pytest.mark.parametrize("family", ["Gaussian", "DiagonalGaussian"])
@pytest.mark.parametrize("sd", [0.01, 1.0, 30.0])
def test_the_estimator_with_a_wide_q(family, sd):
    """QD on all data: each data point by adaptive quadrature, then by hand to w."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 2)), np.array([1.0, -1.0, 1.0, 1.0])
    model, q = cv.models.logistic_regression(X, y), getattr(cv.families, family)(2)
    L = sd * np.array([[1.0, 0.0], [0.4, 0.7]]) if family == "Gaussian" else sd * np.diag([1, -2.0])
    mu = np.array([0.5, -3.0])
    w = q.pack(mu, L if family == "Gaussian" else np.diag(L))
    mean_slope, HL = np.zeros(2), np.zeros((2, 2))
    for x, label in zip(X, y):
        m, s = x @ mu, np.linalg.norm(L.T @ x)
        d1, d2 = test_lines.logistic_means(label * m, s)
        mean_slope += label * d1 * x
        HL += d2 * np.outer(x, x) @ L
    factor = HL[np.tril_indices(2)] if family == "Gaussian" else np.diag(HL)
    draw = cv.draw(model, q, w, M=3, rng=rng, subsample=False)
    right = np.concatenate([mean_slope, factor])
    got = cv.QD(cv.terms(model, q)[0])(draw)
    assert_allclose(got, np.tile(right, (3, 1)), rtol=0, atol=2e-8 * (1 + sd))
