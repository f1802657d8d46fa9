"""One-dimensional expectations against adaptive quadrature and closed forms, wide q included.

The trapezoidal rule has an error bound; here it is seen to be one, and to be sharp.
"""

import numpy as np
import test_lines
from numpy.testing import assert_allclose

import cvlib as cv
from cvlib.models import LOGISTIC, Likelihood


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
