"""The algorithms of chapter 14: slopes, estimates, steps, prices, the choice of settings."""

from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import elementwise_grad, grad, jacobian
from numpy.testing import assert_allclose
from scipy import linalg

import cvlib as cv
from experiments import climbs

I = np.eye(3)
WAYS = [
    "batch and match", "landing", "landing, pairs", "fresh even", "Price, pairs", "all quadratics",
    "all quadratics, pairs", "rotated", "kept apart", "orthogonal, pairs",
]  # fmt: skip
BIAS = {"fresh even": 0.1, "kept apart": 0.01}
RNG = np.random.default_rng


@pytest.fixture(scope="module")
def t():
    return climbs.target("toy")


def log_joint(t):
    """By autograd, of one z (d,) or of many."""
    rows = lambda z: -anp.log1p(anp.exp(-anp.dot(z, (t.model.y[:, None] * t.model.X).T)))
    return lambda z: anp.sum(rows(z), -1) - 0.5 * anp.sum(z**2, -1)


def place(t, runs):
    """A q near the posterior, with a skewed factor: mu (R, d), L (R, d, d)."""
    mu = np.linspace(0.2, 0.5, t.d)
    L = 0.4 * np.eye(t.d) + 0.1 * np.tril(np.ones((t.d, t.d)), -1)
    return np.tile(mu, (runs, 1)), np.tile(L, (runs, 1, 1))


def exact(t):
    """c = E[G] and A = E[G e^T] at `place`, by quadrature."""
    mu, L = (x[0] for x in place(t, 1))
    g = climbs.exact.gradient(t.model, t.q, t.q.pack(mu, L))
    return L.T @ g[: t.d], t.q.curvature(L, g[t.d :]) - np.eye(t.d)


def test_values_slopes_and_curvature_are_autograds(t):
    (mu, L), f = place(t, 2), log_joint(t)
    e = RNG(0).standard_normal((2, 5, t.d))
    z = mu[:, None] + e @ L.mT
    assert_allclose(t.value(mu, L, e), f(z), rtol=1e-10)
    assert_allclose(t.slope(mu, L, e), elementwise_grad(f)(z) @ L, rtol=1e-9)
    H = [np.mean([L[0].T @ jacobian(grad(f))(one) @ L[0] for one in run], 0) for run in z]
    assert_allclose(t.curvature(mu, L, e), H, rtol=1e-9)


def test_laplace_is_the_mode_and_its_curvature(t):
    z, factor, price = t.laplace()
    f = log_joint(t)
    assert np.abs(grad(f)(z)).max() < 0.1
    assert_allclose(np.linalg.inv(factor @ factor.T), -jacobian(grad(f))(z), rtol=1e-3)
    assert price > t.d + 3  # the search, and d differences


@pytest.mark.parametrize("way", WAYS[1:])
def test_estimates_have_the_right_mean_and_price(t, way):
    """Means of 6000 runs against quadrature; fixed radii are biased, a little."""
    mu, L = place(t, 6000)
    memory = {}
    climbs.ESTIMATES[way](t, mu, L, 2 * t.d, RNG(1), memory)  # a step before
    c, A, price = climbs.ESTIMATES[way](t, mu, L, 2 * t.d, RNG(0), memory)
    assert price == {"rotated": 5, "Price, pairs": 2 * 3, "kept apart": 13}.get(way, 2 * t.d)
    for found, right in zip((c, A), exact(t)):
        error = found.std(0) / np.sqrt(len(mu)) + 1e-12
        most = 4.5 * error + BIAS.get(way, 0) * (1 + np.abs(right))
        assert (np.abs(found.mean(0) - right) < most).all()


def test_even_draws_have_covariance_one():
    e = climbs.even(RNG(0), 3, 10, 4)
    assert_allclose(e.sum(1), 0, atol=1e-12)
    assert_allclose(e.mT @ e / 10, np.tile(np.eye(4), (3, 1, 1)), atol=1e-9)


@pytest.mark.parametrize("d, K, D", [(6, 8, 6), (15, 24, 22), (61, 64, 62)])
def test_a_step_keeps_apart_from_all_before_it(d, K, D):
    """Over all K steps of a run E (a.e)^4 is 3 |a|^4, as of N(0, I); not over one. Then anew."""
    memory, rng, seen, a = {}, RNG(0), [], RNG(1).standard_normal(d)
    target = SimpleNamespace(d=d, slope=lambda mu, L, e: seen.append(e) or 0 * e)
    for _ in range(K + 1):
        climbs.kept_apart(target, np.zeros((2, d)), np.tile(np.eye(d), (2, 1, 1)), 0, rng, memory)
    fourth = np.sum((np.array(seen) @ a) ** 4, -1) / (2 * D + 4) / (3 * (a @ a) ** 2)
    assert_allclose(fourth[:K].mean(0), 1, rtol=1e-9)
    anew, by_itself = np.abs(fourth[K] - fourth[0]), np.ptp(fourth, 1)  # a turn, of each run
    assert min(x.min() for x in (np.abs(fourth - 1), anew, by_itself)) > 1e-6


def test_a_step_on_the_exact_gradient_is_the_package_s(t):
    """`optimize.noise_free` takes the same natural step."""
    (mu, L), w = place(t, 1), t.q.pack(*(x[0] for x in place(t, 1)))
    for rho in 1.0, 0.3:
        c, A = exact(t)
        found = climbs.natural(mu, L, c[None], A[None], rho)
        rule = cv.rules.natural(reach=1e9)
        path = cv.optimize.noise_free(t.model, t.q, w=w, lr=rho, steps=1, rule=rule)
        assert_allclose(t.q.pack(*(x[0] for x in found)), path.w, rtol=1e-7)


def matched(mu, Sigma, z, g, lam):
    """The closed form of Cai et al. 2024 in z, with a matrix root: the next mean and covariance."""
    k, one, zbar, gbar = lam / (1 + lam), np.eye(len(mu)), z.mean(0), g.mean(0)
    U = lam * np.atleast_2d(np.cov(g.T, bias=True)) + k * np.outer(gbar, gbar)
    V = Sigma + lam * np.atleast_2d(np.cov(z.T, bias=True)) + k * np.outer(mu - zbar, mu - zbar)
    new = 2 * V @ np.linalg.inv(one + np.real(linalg.sqrtm(one + 4 * U @ V)))
    assert_allclose(new @ U @ new + new, V, atol=1e-6)  # its equation
    return mu / (1 + lam) + k * (new @ gbar + zbar), new


def test_batch_and_match_rests_at_a_gaussian_posterior_finds_it_and_stays_definite():
    rng = RNG(16)
    e, mu, L = rng.normal(size=(7, 3)), rng.normal(size=3), np.tril(rng.normal(size=(3, 3))) + 2 * I
    for lam in 0.1, 10.0:
        shift, K = climbs.match(e, -e, lam)  # there L^T score = -e
        assert_allclose([*shift, *K.ravel()], [0, 0, 0, *I.ravel()], atol=1e-12)
    T, m = rng.normal(size=(3, 3)), rng.normal(size=3)
    P = T @ T.T + I  # posterior N(m, P^-1)
    shift, K = climbs.match(e, -(mu + e @ L.T - m) @ P @ L, 1e10)
    assert_allclose(mu + L @ shift, m, atol=1e-5)
    assert_allclose(L @ K @ K.T @ L.T, np.linalg.inv(P), atol=1e-5)
    for size in 1e-8, 1.0, 1e8:  # scores of any size, one draw
        shift, K = climbs.match(rng.normal(size=(4, 1, 6)), size * rng.normal(size=(4, 1, 6)), 50.0)
        assert np.isfinite(K).all() and np.isfinite(shift).all()
        assert (np.diagonal(K, axis1=-2, axis2=-1) > 0).all() and (K == np.tril(K)).all()


def test_a_climb_is_its_steps(t):
    """From the mode, by hand; the price decides what counts at a mark."""
    z, factor, price = t.laplace()
    begin = np.tile(z, (2, 1)), np.tile(factor, (2, 1, 1))
    marks = [(price + 4 * k + 1) / t.d for k in range(3)]
    (mu, L), rng = begin, RNG(5)
    gaps = [t.gap(mu, L)]
    for s in range(1, 3):
        e = rng.standard_normal((2, 4, t.d))
        u = t.slope(mu, L, e) + e
        A = (e.mT @ u + u.mT @ e) / 8 - np.eye(t.d)
        mu, L = climbs.natural(mu, L, u.mean(1), A, 2 / (s + 1))
        gaps.append(t.gap(mu, L))
    found = climbs.climb(t, "landing", 2, 2.0, 2, RNG(5), marks)
    assert_allclose(found.T, gaps, rtol=1e-9)
    (mu, L), rng = begin, RNG(6)
    for lam in 1.0, 0.5:
        e = rng.standard_normal((2, 4, t.d))
        g = t.slope(
            np.zeros_like(mu), np.broadcast_to(np.eye(t.d), L.shape), mu[:, None] + e @ L.mT
        )
        right = [matched(m, S, m + x @ l.T, y, lam)
                 for m, S, l, x, y in zip(mu, L @ L.mT, L, e, g)]  # fmt: skip
        mu, L = np.array([m for m, _ in right]), np.linalg.cholesky([S for _, S in right])
    found = climbs.climb(t, "batch and match", 2, 1.0, 2, RNG(6), marks[2:])
    assert_allclose(found[:, 0], t.gap(mu, L), rtol=1e-6)


def test_the_setting_is_chosen_on_runs_of_its_own(monkeypatch):
    seen = []

    def climb(t, way, each, fall, runs, rng, marks=climbs.MARKS):
        seen.append((each, fall, runs, len(marks)))
        gap = 1.0 if (each, fall) == (4, 2.0) else np.nan if each == 2 else 2.0
        return np.full((runs, len(marks)), gap)

    monkeypatch.setattr(climbs, "climb", climb)
    found = climbs.race(RNG(0), "toy", "landing", 20)
    assert (found["each"], found["fall"]) == (4, 2.0) and found["gap"].shape == (20, 7)
    falls = 1.0, 2.0, 4.0, np.inf
    tried = [(each, fall, 4, 1) for each in (2, 4, 24) for fall in falls]
    assert seen == [*tried, (4, 2.0, 20, 7)]
    seen.clear()
    assert climbs.race(RNG(0), "toy", "rotated", 3)["each"] == 2
    assert {each for each, *_ in seen} == {2}
