"""The Gaussian families against scipy's densities and dense matrices."""

import pickle

import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose
from scipy import linalg, stats

import cvlib as cv

families = pytest.mark.parametrize("family", oracles.FAMILIES)


def both(family, d, seed=0):
    q, w = getattr(cv.families, family)(d), oracles.weights(family, d, seed)
    return q, w, *oracles.unpack(family, d, w)


@families
def test_the_layout_of_w(family):
    q, w, mu, L = both(family, 3)
    got_mu, factor = q.unpack(w)
    assert_allclose(got_mu, mu)
    assert_allclose(factor if family == "Gaussian" else factor[..., None] * np.eye(3), L)
    assert_allclose(q.pack(got_mu, factor), w)
    assert q.D == w.shape[-1] == (9 if family == "Gaussian" else 6)
    start_mu, start_L = oracles.unpack(family, 3, q.start((2,)))
    assert_allclose(start_mu, np.zeros((2, 3)))
    assert_allclose(start_L, np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert repr(q) == f"{family}(3)"


@families
@pytest.mark.parametrize("d", range(1, 9))
def test_density_and_entropy(family, d):
    q, W, mus, Ls = both(family, d)
    z = np.random.default_rng(0).standard_normal((2, 5, d))
    for w, mu, L, points, got in zip(W, mus, Ls, z, q.log_q(W, z)):
        law = stats.multivariate_normal(mu, L @ L.T)
        assert_allclose(got, law.logpdf(points), rtol=1e-9)
        assert_allclose(q.entropy(w), law.entropy(), rtol=1e-10)


@pytest.mark.parametrize("runs", [(7,), (3, 2), (1,)])
@pytest.mark.parametrize("cached, kept", [(1, 2**20), (100, 2**20), (2**16, 0)])
def test_blocks_of_runs_change_nothing(monkeypatch, runs, cached, kept):
    """RP2 in blocks of runs, and without kept scratch memory, against one run after the other."""
    rng = np.random.default_rng(0)
    model = cv.models.logistic_regression(
        rng.standard_normal((5, 3)), np.array([1.0, -1, 1, -1, 1])
    )
    q = cv.families.Gaussian(3)
    line = cv.RP2(cv.terms(model, q)[0])
    w = q.start(runs) + 0.1 * rng.standard_normal((*runs, q.D))
    draw = cv.draw(model, q, w, M=4, rng=rng)
    alone = [
        line(cv.draw(model, q, w[r], eps=draw.eps[r], index=draw.index[r]))
        for r in np.ndindex(runs)
    ]
    monkeypatch.setattr(cv.families.gaussian, "CACHED", cached)
    monkeypatch.setattr(cv.families.gaussian, "KEPT", kept)
    assert_allclose(line(draw), np.reshape(alone, (*runs, 4, q.D)), rtol=1e-12)


def test_a_family_can_be_sent_to_another_process():
    q = cv.families.Gaussian(3)
    assert repr(pickle.loads(pickle.dumps(q))) == repr(q)


@families
def test_entropy_gradient(family):
    q, w, *_ = both(family, 4)
    step, w = 1e-6, w[1]
    around = [(q.entropy(w + step * e) - q.entropy(w - step * e)) / (2 * step) for e in np.eye(q.D)]
    assert_allclose(q.entropy_grad(w), around, rtol=1e-7, atol=1e-8)


@families
@pytest.mark.parametrize("d", [1, 2, 5])
def test_both_transforms_have_the_right_covariance(family, d):
    """z1 and z2 are linear in eps: fed with the columns of I, z - mu gives the matrix itself."""
    p = oracles.problem("logistic", d, 2)
    q, W, mus, Ls = both(family, d)
    for w, mu, L in zip(W, mus, Ls):
        draw = cv.draw(oracles.build(cv, p), q, w, eps=np.eye(d), subsample=False)
        A1, A2 = (draw.at(where).T - mu[:, None] for where in ("z1", "z2"))
        assert_allclose(A1, L, atol=1e-12)
        assert_allclose(A2, linalg.sqrtm(L @ L.T).real, atol=1e-10)
        assert_allclose(draw.z, draw.at("z1"))


def test_equal_signs_make_both_reparameterisations_of_a_diagonal_family_one():
    p = oracles.problem("logistic", 3, 4)
    model, q = oracles.build(cv, p), cv.families.DiagonalGaussian(3)
    data = cv.terms(model, q)[0]
    difference = cv.RP1(data) - cv.RP2(data)
    rng = np.random.default_rng(0)
    plus = cv.draw(model, q, q.pack([0, 1, 2], [0.5, 1, 2]), M=3, rng=rng)
    minus = cv.draw(model, q, q.pack([0, 1, 2], [0.5, -1, 2]), M=3, rng=rng)
    assert_allclose(difference(plus), 0, atol=1e-13)
    assert np.abs(difference(minus)).max() > 0.1


@families
def test_a_negative_diagonal_is_a_factor_of_the_same_covariance(family):
    q = getattr(cv.families, family)(2)
    factor = np.array([[1.0, 0], [0.4, 2.0]]) if family == "Gaussian" else np.array([1.0, 2.0])
    signs = np.array([-1.0, 1.0])  # a column's sign may be turned: L diag(signs)
    w, turned = q.pack([0.3, 1], factor), q.pack([0.3, 1], factor * signs)
    z = np.random.default_rng(0).standard_normal((4, 2))
    assert_allclose(q.log_q(w, z), q.log_q(turned, z))
    assert_allclose(q.entropy(w), q.entropy(turned))
    model = oracles.build(cv, oracles.problem("logistic"))
    assert_allclose(cv.exact.elbo(model, q, w), cv.exact.elbo(model, q, turned))
