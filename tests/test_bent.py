"""A q that bends: its map against autograd and integrals, its fit against laws in closed form."""

import warnings
from unittest import mock

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
from autograd import jacobian
from numpy.testing import assert_allclose
from scipy import stats

import cvlib as cv
from cvlib.deadline import Late
from cvlib.fitting import bends, looks, lots, run, starts
from cvlib.fitting.bends import Bent
from cvlib.models.density import Density

RNG = np.random.default_rng


def bent(dim=4, order=(2, 0, 3, 1), pairs=None, size=0.3):
    q = Bent(dim, order, pairs)
    return q, q.start() + size * RNG(0).standard_normal(q.D)


@pytest.mark.parametrize("pairs", (None, ((1, 0), (3, 1)), ()))
def test_the_map_has_the_determinant_of_its_jacobian_and_is_undone(pairs):
    q, w = bent(pairs=pairs)
    e = RNG(1).standard_normal((2, 5, 4))
    right = [np.linalg.slogdet(jacobian(lambda x: q.mapped(w, x)[0])(one))[1] for one in e[0]]
    assert_allclose(q.mapped(w, e[0])[1], right, rtol=1e-10)
    both = np.stack([w, q.start()])
    assert_allclose(q.straightened(both[:, None], q.transform(both[:, None], e)), e, atol=1e-10)


def test_the_formula_written_out():
    """Two coordinates, the second of them first, entry by entry."""
    q = Bent(2, (1, 0))
    m, L, B, A, k, t = [0.3, -1], [2.0, 0.5, 1.5], [0.4], [-0.2], [0.1, -0.3], [0.2, 0.5]
    w = np.concatenate([m, L, B, A, k, t])
    e = RNG(2).standard_normal(2)
    u = e[0], e[1] + 0.5 / 1.5 * e[0]
    sas = lambda j: np.sinh(np.exp(t[j]) * np.arcsinh(u[j]) + k[j]) - np.sinh(k[j])
    first = 0.3 + 2 * sas(0)
    second = -1 + 1.5 * (np.exp(0.4 * u[0]) * sas(1) - 0.2 * (u[0] ** 2 - 1))
    assert_allclose(q.transform(w, e[None])[0], [second, first], rtol=1e-12)


def test_without_bends_it_is_the_gaussian_and_a_density_in_any_case():
    q, w = bent(2, (1, 0), size=0.2)
    x = np.linspace(-12, 12, 401)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    assert_allclose(np.exp(q.log_q(w, grid)).sum() * (x[1] - x[0]) ** 2, 1, atol=1e-6)
    L = np.array([[1.2, 0], [-0.4, 0.7]])
    v = q.of_straight(q.straight.pack([0.5, -0.1], L))
    law = stats.multivariate_normal([0.5, -0.1], L @ L.T)  # whatever the order
    assert_allclose(q.log_q(v, grid[::50]), law.logpdf(grid[::50]), atol=1e-8)
    assert_allclose(q.mean(v), [0.5, -0.1], atol=0.03)
    assert_allclose(q.sd(v), np.sqrt(np.diag(L @ L.T)), rtol=0.03)


def test_words_on_it_are_unbiased():
    """RP1 and SF of a Gaussian prior against differences of an integral over a grid of e."""
    q, w = bent(2, (1, 0), size=0.2)
    model = of_prior(cv.models.GaussianPrior(), 2)
    prior = cv.terms(model, q)[1]
    e, p = oracles.hermite(2, 40)
    mean = lambda w: p @ model.log_prior(q.transform(w, e))
    right = [(mean(w + 1e-5 * one) - mean(w - 1e-5 * one)) / 2e-5 for one in np.eye(q.D)]
    draw = cv.draw(model, q, w, eps=e, index=0 * p.astype(int))
    rows = cv.evaluate([cv.RP1(prior), cv.SF(prior)], draw)
    assert_allclose(p @ rows[0], right, atol=1e-6)
    assert_allclose(p @ rows[1], right, atol=1e-3)


def of_prior(log_prior, dim):
    return cv.models.Model(lambda z, b: 0 * z[..., 0] * b[0], log_prior, [0.0], dim)


def funnel(z):
    v, x = z[..., 2], z[..., :2]  # the scale comes last
    return -0.5 * (v / 2) ** 2 - v - 0.5 * anp.sum(x**2, -1) * anp.exp(-v)


banana = lambda z: -0.5 * (z[..., 0] / 1.5) ** 2 - 2 * (z[..., 1] - z[..., 0] ** 2) ** 2
skewed = lambda z: anp.sum(2 * z - anp.exp(z), -1)  # the log of a Gamma(2, 1) variable
SHAPES = {  # the log of the integral of each, and what is said
    "banana": (banana, 2, np.log(2 * np.pi * 1.5 / 2), "z[1] is larger where z[0] is far"),
    "funnel": (funnel, 3, 1.5 * np.log(2 * np.pi) + np.log(2), "is wider where z[2] is larger"),
    "skewed": (skewed, 1, 0.0, "z[0] leans to the left"),
}


def quick(shape, **given):
    """A fit of one of them, or of another law of one unknown."""
    log_p, d, *_ = SHAPES.get(shape, (shape, 1))
    with warnings.catch_warnings(action="ignore", category=cv.Distrust):
        return cv.fit(of_prior(log_p, d), progress=False, **given)


@pytest.fixture(scope="module")
def straight():
    return {shape: quick(shape, bend=False) for shape in SHAPES}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_that_no_gaussian_has(shape, straight):
    """The ELBO on fresh draws reaches the log of the integral, which no q passes."""
    (_, _, right, says), fit = SHAPES[shape], straight[shape]
    found = bends.bend(fit.model, fit.w)
    z = found.q.sample(found.w, 20_000, RNG(9))
    log = Density(fit.model).value(z) - found.q.log_q(found.w, z)
    error = log.std() / np.sqrt(len(log))
    assert right - 0.1 < log.mean() < right + 4 * error
    assert log.mean() - fit.elbo > 4 * np.hypot(error, fit.error)
    assert_allclose(log.mean() - fit.elbo, found.gain, atol=4 * (error + fit.error + found.error))
    assert says in found.says


def test_what_is_not_better_is_not_taken(straight):
    model = of_prior(cv.models.GaussianPrior([1.0, 2.0]), 2)
    assert bends.bend(model, cv.fit(model, progress=False).w) is None
    fit = straight["banana"]
    assert bends.bend(fit.model, fit.w, late=lambda: True) is None


def test_few_pairs_bend_where_unknowns_are_many():
    """A chain of five: one scale, which two of the others follow."""

    def log_p(z):
        scaled = anp.exp(-z[..., :1]) * z[..., 1:3] ** 2
        alone = z[..., 0] ** 2 + anp.sum(z[..., 3:] ** 2, -1)
        return -z[..., 0] - 0.5 * anp.sum(scaled, -1) - 0.5 * alone

    model = of_prior(log_p, 5)
    w = cv.fit(model, bend=False, progress=False).w
    found = bends.bend(model, w, settings=cv.Settings(pairs=3))
    named = {frozenset((found.q.order[j], found.q.order[i])) for j, i in found.q.pairs}
    assert named == {frozenset((0, 1)), frozenset((0, 2))}


# In `fit` -----------------------------------------------------------------------------------------


def test_fit_bends_if_the_shape_is_wrong(straight):
    straight, bent = straight["funnel"], quick("funnel")
    assert straight.q == cv.families.Gaussian(3) and isinstance(bent.q, Bent)
    assert bent.steps == straight.steps and bent.seconds > straight.seconds
    assert straight.effective < 0.3 and bent.effective > 0.7 and bent.warnings == ()
    assert "bent, which gained" in bent.report and "is wider where z[2] is larger" in bent.report


def test_when_fit_bends(monkeypatch, straight):
    """A law with lighter tails than a normal one, and one with a heavier; many data: if asked."""
    bends_so = lambda *given, **more: isinstance(quick(*given, **more).q, Bent)
    fair = lambda z: -(z[..., 0] ** 4)
    assert not bends_so(fair) and bends_so(fair, bend=True)
    straight, bent, q = straight["skewed"], quick("skewed"), straight["skewed"].q
    assert bent.effective > straight.effective > 0.5 and bent.elbo > straight.elbo
    short, asked = quick("skewed", steps=10), quick("skewed", steps=10, bend=True)
    assert isinstance(bent.q, Bent) and not isinstance(short.q, Bent)
    assert run.UNBENT in asked.words and run.UNBENT not in short.words + bent.words
    assert quick("skewed", q=q).q == q and bends_so("skewed", q=q, bend=True)  # as it was given
    much = {"settings": cv.Settings(cheap=0)}
    assert not bends_so("skewed", **much) and bends_so("skewed", bend=True, **much)
    begin = starts.start
    lost = lambda *given: begin(*given)._replace(trouble="no mode was found")
    monkeypatch.setattr(starts, "start", lost)
    assert bends_so("skewed") and bends_so("skewed", bend=True) and not bends_so(fair)


def test_a_bend_is_wanted_where_weights_move_an_answer():
    """Weights of N(0.05, 1) and N(0.2, 1) at draws of N(0, 1), and of N(0, 0.8^2)."""
    z = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    log = lambda m, s: stats.norm.logpdf(z[:, 0], m, s) - stats.norm.logpdf(z[:, 0])
    wanted = lambda m, s: bends.wanted(looks.Weights(7 + 3 * z, log(m, s)))
    assert not wanted(0.0, 1.0) and not wanted(0.05, 0.97) and not wanted(0.0, 0.95)
    assert wanted(0.2, 1.0) and wanted(-0.2, 1.0) and wanted(0.0, 0.8)
    assert looks.Weights(z, log(0.2, 1.0)).effective > 0.5  # they keep more than half of the draws


def test_a_bend_has_the_seed_of_its_fit():
    """When it goes on, too."""
    with mock.patch.object(bends, "bend", wraps=bends.bend) as bend:
        fit = quick("skewed", seed=3)
        fit.go_on(steps=2 * fit.steps, progress=False)
    assert [call.args[3] for call in bend.call_args_list] == [3, 3]


def test_warnings_that_a_bend_leaves(monkeypatch):
    """Weights that never hold; a banana for which no bend is good enough, or has time."""
    monkeypatch.setattr(lots.Lot, "holds", False)
    straight, bent = quick("skewed", bend=False).warnings, quick("skewed").warnings
    vain = quick("banana", settings=cv.Settings(gain=np.inf))
    assert run.VAIN in vain.report
    assert "\nLet q bend (bend=True), write the model" in straight[-1]
    for says in bent, vain.warnings:
        assert "does not have the shape of q" in says[-1] and "\nWrite the model" in says[-1]
    monkeypatch.undo()
    monkeypatch.setattr(bends, "bend", mock.Mock(side_effect=Late))
    assert "out of time before it was bent" in quick("banana").report
