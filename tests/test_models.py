"""Likelihoods, priors and models against formulas written afresh, autograd and scipy."""

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

import cvlib as cv


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # others leave those behind
def test_derivatives_of_a_polynomial_do_not_warn():
    """The third of a square is 0, and does not depend on eta."""
    square = cv.models.Likelihood("square", lambda t, y: -((y - t) ** 2))
    d1, d2, d3 = square.derivatives(np.array([1.0, 3.0]), 2.0, 3)
    assert_allclose([d1, d2, d3], [[2.0, -2.0], [-2.0, -2.0], [0.0, 0.0]])


def test_a_likelihood_without_derivatives_of_its_own():
    """A reader's likelihood: phi alone, autograd does the rest. The samples of the fast one."""
    p = oracles.problem("logistic")
    slow = cv.models.Likelihood(
        "softplus", lambda t, y: -anp.logaddexp(0.0, -y * t), lambda y: None, classes=True
    )
    models = oracles.build(cv, p), cv.models.GLM(p.X, p.y, slow, oracles.PRIOR_SD)
    samples = []
    for model in models:
        q = cv.families.Gaussian(2)
        data = cv.terms(model, q)[0]
        eps, index = np.random.default_rng(0).standard_normal((3, 2)), np.array([0, 3, 4])
        draw = cv.draw(model, q, oracles.weights("Gaussian", 2)[0], eps=eps, index=index)
        lines = [cv.RP1(data), cv.CF(cv.taylor_z(data)), cv.RP2(cv.taylor_x(data)), cv.SF(data)]
        samples.append(cv.evaluate(lines, draw))
    assert_allclose(*samples, rtol=1e-10, atol=1e-12)


def test_extreme_logits_raise_no_warning():
    model = cv.models.logistic_regression(np.array([[500.0], [-500.0]]), [1, 1])
    q = cv.families.Gaussian(1)
    zoo = cv.zoo.paper(model, q)
    data, prior, _ = cv.terms(model, q)
    draw = cv.draw(model, q, q.start(), M=20, rng=np.random.default_rng(0))
    with np.errstate(all="raise", under="ignore"):
        lines = [zoo.h, *zoo.S7, cv.SF(data), cv.CF(cv.bound(data))]
        assert np.isfinite(cv.evaluate(lines, draw)).all()
