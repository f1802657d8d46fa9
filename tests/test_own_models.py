"""The defining properties of models and exact references."""

import itertools
import pickle
import warnings
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
import scipy.optimize
from autograd import grad
from harness import part
from numpy.testing import assert_allclose
from scipy import stats
from test_budgets import in_little_memory

SD, MEAN = np.array([0.6, 1.7]), np.array([0.4, -0.9])
OFFSET = np.array([0.3, -0.8, 0.0, 1.1, -0.2])
GLMS = ("logistic", "poisson", "linear")
SETTINGS = {  # keywords of the prior and the offset, and the same as full vectors
    "vectors and offset": (dict(prior_sd=SD, prior_mean=MEAN, offset=OFFSET), SD, MEAN, OFFSET),
    "vectors": (dict(prior_sd=SD, prior_mean=MEAN), SD, MEAN, 0 * OFFSET),
    "numbers": (dict(prior_sd=0.7, prior_mean=0.5), 0.7 + 0 * SD, 0.5 + 0 * SD, 0 * OFFSET),
    "one number, one vector": (dict(prior_mean=MEAN), 1 + 0 * SD, MEAN, 0 * OFFSET),
}


def built(cv, name, **settings):
    """The problem's data, and a model of the package on them."""
    p = oracles.problem(name)
    make = getattr(cv.models, f"{name}_regression")
    if name == "linear":
        settings["noise_sd"] = oracles.NOISE_SD
    return p, make(p.X, p.y, **settings)


def log_joint(p, sd, mean, offset):
    """log p(y, z) written afresh, (..., 2) -> (...)."""
    parts = lambda z: ((z - mean) / sd) ** 2 + np.log(2 * np.pi * sd**2)  # of -2 log p(z)
    rows = lambda z: p.phi(anp.dot(z, p.X.T) + offset, p.y)
    return lambda z: anp.sum(rows(z), -1) - 0.5 * anp.sum(parts(z), -1)


def test_offset_and_prior(cv):
    """log p(x, z) of a GLM with an offset and a prior of its own; row by row too."""
    z = np.random.default_rng(0).standard_normal((3, 4, 2)) / 2
    for name, (settings, *rest) in itertools.product(GLMS, SETTINGS.values()):
        p, model = built(cv, name, **settings)
        for same in (model, pickle.loads(pickle.dumps(model))):
            assert_allclose(same.log_joint(z), log_joint(p, *rest)(z), rtol=1e-12)
        index = np.array([[0, 4, 1, 1], [2, 3, 0, 2], [4, 4, 3, 0]])
        rows = model.log_lik(z, tuple(a[index] for a in model.data))
        eta = (p.X[index] * z).sum(-1) + rest[-1][index]
        assert_allclose(rows, p.phi(eta, p.y[index]), rtol=1e-12)
        assert (model.offset is None) == ("offset" not in settings)


# What a reader may get wrong, and what must be let through --------------------------------------


def refusal(make):
    """The words of the ValueError in which making the model ends, "" where it works."""
    try:
        make()
    except ValueError as error:
        return str(error)
    return ""


refuses = lambda words, make: all(word in refusal(make) for word in words.split("; "))


def own(cv, log_lik=None, log_prior=None, N=5):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((N, 2)), rng.standard_normal(N)
    right = lambda z, batch: -((batch[1] - anp.sum(batch[0] * z, -1)) ** 2)
    return cv.models.Model(log_lik or right, log_prior or cv.models.GaussianPrior(), data, 2)


MIXED = {  # words of the refusal: log_lik(z, batch) that is right for one draw a row, x and y
    "fails for z of shape (3, 1, 2); broadcast": lambda z, b: anp.sum(z.T * b[0].T, 0) * b[1],
    "it gave; not numbers of shape (3, ": lambda z, b: anp.tanh(z[..., 0]),
    "log_lik mixes its rows": lambda z, b: b[1] * z[..., 0] - anp.max(z[..., 0]),
    "log_lik fails for z of shape": lambda z, b: z[:, 0] * b[1],
}


def test_row_contract(cv):
    """The shapes the package uses are tried: whole data, several runs, N = 1 to 60."""
    assert not refusal(lambda: own(cv, N=1))
    alone = MIXED["it gave; not numbers of shape (3, "]
    assert not refusal(lambda: own(cv, alone, N=1))  # (3, 1) is (M, N)
    for N in (2, 3, 4, 5, 60):
        assert not refusal(lambda: own(cv, N=N))
        for words, log_lik in MIXED.items():
            assert refuses(words, lambda: own(cv, log_lik, N=N)), (words, N)
    # right for (M, d) and (M, 1, d), and for nothing with more axes
    runs = lambda z, b: b[1] * (z[..., 0] if z.ndim < 4 else z[0, ..., 0])
    assert refuses("log_lik; (2, 3, 1, 2)", lambda: own(cv, runs)), "several runs"
    prior = lambda z: -anp.sum(z**2, 1 if z.ndim > 1 else 0)
    assert refuses("log_prior must give; (2, 3, 4, 2)", lambda: own(cv, None, prior))
    prior = lambda z: -anp.sum(z**2, -1) + 0.1 * anp.sum(z)
    assert refuses("log_prior mixes its rows", lambda: own(cv, None, prior))


def test_support(cv):
    """-inf at a common z is refused; an overflow far out is not."""
    end = lambda reach: lambda z: anp.where(anp.abs(z[..., 0]) < reach, 0.0, -np.inf)
    positive = lambda z, b: anp.where(z[..., 0] > 0, 0.0, -np.inf) * anp.ones(np.shape(b[1]))
    assert refuses("log_prior is [-inf; every real z", lambda: own(cv, None, end(1.0)))
    assert refuses("log_lik is; inf; exp(z)", lambda: own(cv, positive))
    for fine in (
        lambda z, b: b[1] * z[..., 0] - anp.exp(anp.exp(10 * z[..., 0])),
        lambda z, b: anp.log(0.9 * (1 - z[..., 0]) + 0.02 * z[..., 0]) * b[1],  # for z = 0 or 1
    ):
        assert not refusal(lambda: own(cv, fine))


def test_slopes(cv):
    """A slope that autograd gets wrong, or cannot get, is refused; kinks and steps are not."""
    rows = lambda z, b: np.sum(b[0] * z, -1)
    for bad in (
        lambda z, b: np.where(b[1] > 0, rows(z, b), 0.0),  # numpy's where: a slope of 0
        lambda z, b: stats.norm.logpdf(b[1], rows(z, b)),
        lambda z, b: rows(z, b) ** 2 + rows(np.asarray(getattr(z, "_value", z)), b),
        lambda z, b: rows(z, b) - 0.03 * rows(np.asarray(getattr(z, "_value", z)), b),
        lambda z, b: anp.where(b[1] > 0, z[..., 0], -z[..., 0]),  # broadcast: not summed over rows
    ):
        assert refuses("autograd; log_lik; autograd.numpy", lambda: own(cv, bad))
    assert refuses("log_prior", lambda: own(cv, None, lambda z: stats.norm.logpdf(z).sum(-1)))
    for good in (
        lambda z, b: -anp.abs(rows(z, b) - b[1]),
        lambda z, b: anp.floor(100 * z[..., 0]) * b[1],
        lambda z, b: -anp.logaddexp(0, 1e4 * rows(z, b)),
        lambda z, b: 0 * rows(z, b) + 1e6,
        lambda z, b: anp.maximum(z[..., 0], z[..., 1]) * b[1] + 1e8,
        lambda z, b: anp.sin(1e6 * z[..., 0]) * b[1],
        lambda z, b: 1e-3 * z[..., 0] * b[1] + 1e10,
        lambda z, b: (0.1 * z[..., 0] * b[1] + 1e3).astype(np.float32),
        lambda z, b: anp.where(b[1] > 0, z[..., 0] + 0 * b[1], -z[..., 0] - 0 * b[1]),
    ):
        assert not refusal(lambda: own(cv, good))


def test_derivatives_of_a_polynomial_do_not_warn(cv):
    """The third of a square is 0, and does not depend on eta."""
    square = cv.models.Likelihood("square", lambda t, y: -((y - t) ** 2))
    with warnings.catch_warnings(action="error"):
        d1, d2, d3 = square.derivatives(np.array([1.0, 3.0]), 2.0, 3)
    assert_allclose([d1, d2, d3], [[2.0, -2.0], [-2.0, -2.0], [0.0, 0.0]])


def test_what_a_likelihood_promises_is_tried(cv):
    """Each field against a phi that it is not of, and a strip against one that has poles or kinks.

    The package's own, which no model tries, hold what they promise.
    """
    m, X = cv.models, np.array([[0.5], [0.2], [1.0]])
    signs, counts = np.array([1.0, -1.0, 1.0]), np.array([0.0, 1.0, 9.0])
    refused = lambda of, y, **says: refusal(lambda: m.GLM(X, y, replace(of, **says)))
    changed = lambda f, k, by: (
        lambda *given: [x + by if i == k else x for i, x in enumerate(f(*given))]
    )
    for k, name in enumerate(("phi'", "phi''", "phi'''")):
        said = refused(m.LOGISTIC, signs, fast=changed(m.LOGISTIC.fast, k, 0.02))
        assert said.startswith(f"{name} by fast of the logistic likelihood is")
    for k, name in enumerate(("E phi", "E phi'", "E phi''")):
        said = refused(m.POISSON, counts, expected=changed(m.POISSON.expected, k, 0.05))
        assert said.startswith(f"{name} by expected of the poisson likelihood is")
    for k, by in ((0, 0.01), (0, -0.01), (1, 0.01), (2, 0.01)):
        said = refused(m.LOGISTIC, signs, bound=changed(m.LOGISTIC.bound, k, by))
        assert said.startswith("the bound of the logistic likelihood is")
    too_high = lambda xi, y: (m.LOGISTIC.phi(xi, y) - y * xi / 2 + 9 * xi**2, y / 2, -18.0)
    assert "is 1.88" in refused(m.LOGISTIC, signs, bound=too_high)  # though right at +-xi
    assert "by kappa" in refused(m.LOGISTIC, signs, kappa=0.7)
    assert "which says quadratic=True" in refused(m.LOGISTIC, signs, quadratic=True)
    for strip in (10, 100, np.inf):  # it has a pole at pi
        assert f"strip={strip} is too large" in refused(m.LOGISTIC, signs, strip=strip)
    for strip in (0, -1, np.nan):
        assert "it must be positive" in refused(m.LOGISTIC, signs, strip=strip)
    for phi in (lambda t, y: -anp.abs(t - y), lambda t, y: -anp.log(1 + 50 * (y - t) ** 2)):
        assert "with a kink write a Model" in refused(m.Likelihood("own", phi), signs)
    for of, y in [
        (m.LOGISTIC, signs), (m.POISSON, counts),
        *((part(cv, "models.glm").gaussian_likelihood(s), counts) for s in (0.01, 50)),
    ]:  # fmt: skip
        assert of.held and not replace(of).held and not refused(of, y), of.name
    assert not refused(m.POISSON, counts, expected=None, strip=100)  # it is entire
    for df, scale in itertools.product((0.5, 4), (0.01, 20)):  # Student's, with its poles
        phi = lambda t, y: -(df + 1) / 2 * anp.log1p(((y - t) / scale) ** 2 / df)
        of = m.Likelihood("Student-t", phi, strip=scale * np.sqrt(df))
        assert not refused(of, counts), (df, scale)


# Exact references -------------------------------------------------------------------------------


def test_exact_with_prior_and_offset(cv):
    """ELBO and gradients with any prior and offset: the trapezoidal rule over the plane."""
    for name, family in itertools.product(GLMS, oracles.FAMILIES):
        for settings, *rest in SETTINGS.values():
            p, model = built(cv, name, **settings)
            q, W = getattr(cv.families, family)(2), oracles.weights(family, 2)
            right = [by_grid(log_joint(p, *rest), family, w) for w in W]
            assert_allclose(cv.exact.elbo(model, q, W), [value for value, _ in right], rtol=1e-9)
            got = cv.exact.gradient(model, q, W)
            assert_allclose(got, [slope for _, slope in right], rtol=1e-8, atol=1e-8)
            parts = cv.exact.term_gradients(model, q, W)
            flat = SimpleNamespace(X=p.X, y=p.y, phi=lambda t, y: 0 * t)  # no likelihood
            alone = [by_grid(log_joint(flat, *rest), family, w)[1] for w in W]
            got = parts["prior"] - parts["variational"]
            assert_allclose(got, alone, rtol=1e-8, atol=1e-8)


def by_grid(log_joint, family, w):
    """ELBO and its gradient at one w (D,)."""
    points, weight = oracles.trapezoid(2)

    def elbo(w):
        mu, L = oracles.unpack(family, 2, w)
        z = mu + anp.dot(points, L.T)
        return anp.dot(weight, log_joint(z) - oracles.log_density(family, 2, w, z))

    return elbo(w), grad(elbo)(w)


def test_diagonal_builds_no_matrix(cv):
    """d = 2000: a d x d matrix is 32 MB, everything else under one."""
    X = np.random.default_rng(0).standard_normal((3, 2000))
    model = cv.models.logistic_regression(X, [1, -1, 1])
    q = cv.families.DiagonalGaussian(2000)
    cv.exact.gradient(model, q, q.start())
    for ask in cv.exact.elbo, cv.exact.gradient:
        in_little_memory(lambda: ask(model, q, q.start()), 4e6)


def test_slope_at_the_optimum(cv):
    """It vanishes, in every coordinate of w; where natural steps do not settle, too."""
    for name, family, steps in itertools.product(GLMS, oracles.FAMILIES, (cv.exact.STEPS, 0)):
        _, model = built(cv, name, **SETTINGS["vectors and offset"][0])
        q = getattr(cv.families, family)(2)
        with mock.patch.object(cv.exact, "STEPS", steps):
            slope = cv.exact.gradient(model, q, cv.exact.optimum(model, q))
        assert np.abs(slope).max() < 1e-6, (name, family, steps)


def test_natural_steps_that_break(cv):
    """L-BFGS begins where they began, not where they broke off."""
    _, model = built(cv, "logistic")
    q = cv.families.Gaussian(2)
    w, began = q.start() + 0.1, []

    class Breaks(cv.rules.natural):
        def step(self, memory, w, *rest):
            return w + np.nan, memory

    by_lbfgs = lambda model, q, w: began.append(w)
    with mock.patch.multiple(cv.exact, natural=Breaks, _by_lbfgs=by_lbfgs):
        cv.exact.optimum(model, q, w)
    assert_allclose(began, [w], rtol=0)


def test_unreached_optimum(cv):
    """A search that ends where the slope is not zero is no optimum."""
    model, q = cv.models.logistic_regression(*cv.datasets.toy(), 3.0), cv.families.Gaussian(2)
    assert reached(cv, model, q)
    with mock.patch.object(cv.exact, "STEPS", 0):
        assert reached(cv, model, q)
        for slope, fine in ((1e-4, False), (-1e-4, False), (1e-6, True)):
            end = SimpleNamespace(x=q.start(), jac=np.array([0.0, slope]), message="tired")
            with mock.patch.object(scipy.optimize, "minimize", lambda *args, **options: end):
                assert reached(cv, model, q) == fine, slope


def reached(cv, *args):
    try:
        return cv.exact.optimum(*args) is not None
    except (RuntimeError, ValueError) as error:
        assert "not reached" in str(error) and "scale the data" in str(error)
        return False


def test_wide_columns(cv):
    """Columns in other units, and the prior with them, are the same problem: the same best ELBO.

    q.start() spreads the rates of these counts over more than doubles hold; that w is refused.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    y = rng.poisson(np.exp(X @ [0.5, -0.3]))
    for family in oracles.FAMILIES:
        q, found = getattr(cv.families, family)(2), []
        for unit in (1.0, 40.0):
            model = cv.models.poisson_regression(unit * X, y, prior_sd=1 / unit)
            assert reached(cv, model, q)
            w = cv.exact.optimum(model, q)
            found.append((cv.exact.elbo(model, q, w), unit * w))
        assert_allclose(found[0][0], found[1][0], rtol=1e-12)
        assert_allclose(found[0][1], found[1][1], atol=1e-7)
        with pytest.raises(ValueError, match="too wide there.*mode or from cv.fit"):
            cv.exact.optimum(model, q, q.start())
