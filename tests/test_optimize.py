"""The loop against the conjugate posterior, which it must find, and against its own promises."""

import autograd.numpy as anp
import numpy as np
import pytest

import cvlib as cv
from cvlib import CF, RP1


@pytest.fixture(scope="module")
def conjugate():
    """Linear regression: the posterior N(m, S) in closed form."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    y = X @ [1.0, -0.5, 0.3] + 0.5 * rng.standard_normal(20)
    model = cv.models.linear_regression(X, y, noise_sd=0.5)
    S = np.linalg.inv(np.eye(3) + X.T @ X / 0.25)
    return model, cv.families.Gaussian(3), S @ X.T @ y / 0.25, S


@pytest.fixture(scope="module")
def logistic():
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    return model, q, cv.zoo.paper(model, q)


def test_noise_free_ascent_finds_the_posterior(conjugate):
    model, q, m, S = conjugate
    mu, L = q.unpack(cv.optimize.noise_free(model, q, lr=0.2, steps=2000, every=2000).w)
    np.testing.assert_allclose(mu, m, atol=1e-6)
    np.testing.assert_allclose(L @ L.T, S, atol=1e-6)


def test_optimum_finds_the_posterior(conjugate):
    model, q, m, S = conjugate
    mu, L = q.unpack(cv.exact.optimum(model, q))
    np.testing.assert_allclose(mu, m, atol=1e-5)
    np.testing.assert_allclose(L @ L.T, S, atol=1e-5)


def test_without_noise_the_optimum_is_a_fixed_point(conjugate):
    """All terms by RP1, all data: at q = posterior every single draw's gradient is zero."""
    model, q, m, S = conjugate
    data, prior, variational = cv.terms(model, q)
    h = RP1(data) + RP1(prior) - RP1(variational)
    best = q.pack(m, np.linalg.cholesky(S))
    rng = np.random.default_rng(1)
    run = cv.optimize.sgd(model, q, h, lr=0.5, steps=5, M=2, rng=rng, w=best, subsample=False)
    np.testing.assert_allclose(run.w, best, atol=1e-10)


def test_one_step_is_the_formula(logistic):
    """w + lr (1 - momentum) mean(h) / N, and no variate has a say in the first step."""
    model, q, zoo = logistic
    w = q.start()
    mean = zoo.h(cv.draw(model, q, w, 10, np.random.default_rng(2))).mean(0)
    for cvs in ([], zoo.S7):
        run = cv.optimize.sgd(
            model, q, zoo.h, cvs, lr=0.3, steps=1, M=10, rng=np.random.default_rng(2)
        )
        np.testing.assert_allclose(run.w, w + 0.3 * 0.1 * mean / model.N, atol=1e-14)


def test_second_step_uses_the_moments_of_the_first(logistic):
    """Two steps written out from public pieces, with one variate, momentum and all."""
    model, q, zoo = logistic
    rng, w, v, v0 = np.random.default_rng(3), q.start(), 0.0, 1e-3
    CC = Ch = seen = 0.0
    for _ in range(2):
        draw = cv.draw(model, q, w, 4, rng)
        h, c = zoo.h(draw) / model.N, zoo.c7(draw) / model.N
        a = -Ch / (q.D * v0 / seen + CC) if seen else 0.0
        v = 0.9 * v + 0.1 * (h + a * c).mean(0)
        w = w + 0.2 * v
        CC, Ch = (c * c).sum() / 4, (c * h).sum() / 4
        seen = 0.98 * 4
    run = cv.optimize.sgd(
        model, q, zoo.h, [zoo.c7], lr=0.2, steps=2, M=4, rng=np.random.default_rng(3)
    )
    np.testing.assert_allclose(run.w, w, rtol=1e-10)


def test_variates_close_the_gap_to_the_noise_free_path(logistic):
    model, q, zoo = logistic
    settings = dict(lr=0.5, steps=150, M=5, runs=(16,), every=150)
    exact = cv.exact.elbo(model, q, cv.optimize.noise_free(model, q, lr=0.5, steps=150).w)
    gap = {}
    for name, cvs in {"none": [], "S7": zoo.S7}.items():
        run = cv.optimize.sgd(model, q, zoo.h, cvs, rng=np.random.default_rng(4), **settings)
        assert run.w.shape == (16, q.D) and np.all(run.diverged == -1)
        gap[name] = exact - cv.exact.elbo(model, q, run.w).mean()
    assert 0 < gap["S7"] < 0.5 * gap["none"]


def test_a_diverging_run_is_marked_and_harms_no_other():
    """Counts with log rates of 1e3 overflow at once; the run beside them must not notice."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((30, 2))
    model = cv.models.poisson_regression(X, rng.poisson(1.0, 30))
    q = cv.families.Gaussian(2)
    zoo = cv.zoo.paper(model, q)
    w = q.start((2,))
    w[1, 0] = 1e3
    run = cv.optimize.sgd(model, q, zoo.h, zoo.S7, lr=0.01, steps=30, M=2, rng=rng, w=w, runs=(2,))
    assert run.diverged[0] == -1 and run.diverged[1] > 0
    assert np.isfinite(run.w).all() and np.isfinite(run.path).all()
    stopped = run.path[run.diverged[1] - 1 :, 1]
    np.testing.assert_array_equal(stopped, np.broadcast_to(stopped[0], stopped.shape))
    assert cv.exact.elbo(model, q, run.w[0]) > cv.exact.elbo(model, q, w[0])


def test_a_diverging_run_of_any_family_is_marked():
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 20)
    lik = lambda z, batch: batch[0] * z[..., 0] - anp.exp(z[..., 0])
    q = cv.families.Gamma(1)
    model = cv.models.Model(lik, q.prior(np.ones(1), np.ones(1)), y, 1)
    data, prior, variational = cv.terms(model, q)
    h = cv.GR(data) + CF(prior) - CF(variational)
    path = cv.optimize.sgd(model, q, h, lr=20.0, steps=60, M=2, runs=(8,), rng=rng)
    assert (path.diverged > 0).any() and (np.abs(path.w) <= q.far).all()


def test_runs_come_from_the_start_too(logistic):
    model, q, zoo = logistic
    options = dict(lr=0.1, steps=3, M=4)
    alone = cv.optimize.sgd(model, q, zoo.h, rng=np.random.default_rng(0), runs=(5,), **options)
    rng = np.random.default_rng(0)
    given = cv.optimize.sgd(model, q, zoo.h, rng=rng, w=q.start((5,)), **options)
    np.testing.assert_array_equal(alone.w, given.w)
    with pytest.raises(ValueError, match=r"w starts \(5,\) runs: leave runs out"):
        cv.optimize.sgd(model, q, zoo.h, rng=rng, w=q.start((5,)), runs=(3,), **options)
    with pytest.raises(TypeError, match=r"cvs must be a list: write \[\]"):
        cv.optimize.sgd(model, q, zoo.h, None, rng=rng, **options)


def test_recorded_steps(logistic):
    model, q, zoo = logistic
    settings = dict(lr=0.1, steps=7, M=1, rng=np.random.default_rng(6), runs=(3,), every=3)
    run = cv.optimize.sgd(model, q, zoo.h, [zoo.c1], **settings)
    assert run.steps.tolist() == [0, 3, 6, 7] and run.path.shape == (4, 3, q.D)
    assert run.a.shape == (3, 1)
    np.testing.assert_array_equal(run.path[-1], run.w)


def test_wrong_lines_are_refused(logistic):
    model, q, zoo = logistic
    settings = dict(lr=0.1, steps=1, M=1, rng=np.random.default_rng(0))
    with pytest.raises(TypeError, match="no estimator such as RP1.*take its .line"):
        cv.optimize.sgd(model, q, zoo.h, cv.zoo.legal(model, q)[:1], **settings)
    with pytest.raises(ValueError, match="v0 must be zero or positive; got -1"):
        cv.optimize.sgd(model, q, zoo.h, [zoo.c1], v0=-1, **settings)
    with pytest.raises(ValueError, match="no control variate: it estimates"):
        cv.optimize.sgd(model, q, zoo.h, [zoo.h], **settings)
    data, prior, variational = cv.terms(model, q)
    with pytest.raises(ValueError, match="must estimate data \\+ prior - variational"):
        cv.optimize.sgd(model, q, RP1(data) - CF(variational), **settings)
    with pytest.raises(ValueError, match="lr=-1"):
        cv.optimize.sgd(model, q, zoo.h, **{**settings, "lr": -1})
    with pytest.raises(ValueError, match="at least one"):
        cv.optimize.sgd(model, q, zoo.h, **{**settings, "steps": 0})
    with pytest.raises(ValueError, match="every=0"):
        cv.optimize.sgd(model, q, zoo.h, **settings, every=0)
    with pytest.raises(ValueError, match="w must be"):
        cv.optimize.sgd(model, q, zoo.h, **settings, w=np.ones(3))
    with pytest.raises(TypeError, match="must be a list: write"):
        cv.optimize.sgd(model, q, zoo.h, zoo.c7, **settings)
    with pytest.raises(TypeError, match="data is no estimator"):
        cv.optimize.sgd(model, q, zoo.h, [data], **settings)
