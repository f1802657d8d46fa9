"""What defines a natural step."""

import autograd.numpy as anp
import numpy as np
import oracles
from autograd import hessian
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import cvlib

FAMILIES = oracles.FAMILIES


def kl(family, d, w, v):
    """KL(q_w || q_v) of two Gaussians from their covariances, for autograd in v."""
    mu, L = oracles.unpack(family, d, w)
    nu, R = oracles.unpack(family, d, v)
    S, T = anp.dot(L, L.T), anp.dot(R, R.T)
    inverse, away = anp.linalg.inv(T), nu - mu
    volumes = anp.linalg.slogdet(T)[1] - anp.linalg.slogdet(S)[1]
    return 0.5 * (anp.sum(inverse * S) + anp.dot(away, anp.dot(inverse, away)) + volumes)


def gradient(family, d, w, slope, H):
    """The gradient in w of an ELBO whose log joint has mean slope and mean Hessian H under q."""
    _, L = oracles.unpack(family, d, w)
    G = H @ L + np.linalg.inv(L).T
    return np.concatenate([slope, [(E * G).sum() for E in oracles.basis(family, d)]])


def case(family, d, seed):
    rng = np.random.default_rng(seed)
    w = oracles.weights(family, d, seed)[seed % 2]
    H = rng.standard_normal((d, d))
    return w, rng.standard_normal(d), -(H @ H.T) - 0.2 * np.eye(d), rng


def stepped(rule, q, w, g, rho, N=1):
    """The weights after a step, and which runs it was cut in."""
    after, (cut,) = rule.step(rule.start(q, w), w, g, rho, q, N)
    return after, cut


def test_update_of_the_precision(cv):
    """Sigma^-1 and mu after a step, from dense matrices; signs on the diagonal of L stay.

    For small rho a step is rho F^-1 g, F the Fisher matrix: the Hessian of KL at w, to 1e-8.
    """
    for family in FAMILIES:
        for d, seed, rho in [(1, 0, 1.0), (2, 1, 0.3), (3, 2, 1.0), (4, 3, 0.1)]:
            w, slope, H, _ = case(family, d, seed)
            q, g = getattr(cv.families, family)(d), gradient(family, d, w, slope, H)
            mu, L = oracles.unpack(family, d, w)
            old = np.linalg.inv(L @ L.T)
            G = -H - old if family == "Gaussian" else np.diag(np.diag(-H - old))
            natural = np.linalg.solve(hessian(lambda v: kl(family, d, w, v))(w), g)
            for positive in (True, False):
                rule = cv.rules.natural(positive)
                up, down = (stepped(rule, q, w, g, r)[0] for r in (1e-5, -1e-5))
                close = 1e-8 * np.abs(natural).max()
                assert_allclose((up - down) / 2e-5, natural, rtol=0, atol=close, err_msg=family)
                new = old + rho * G + (rho**2 / 2 * G @ np.linalg.inv(old) @ G) * positive
                after, _ = stepped(cv.rules.natural(positive, reach=1e9), q, w, g, rho)
                mu1, L1 = oracles.unpack(family, d, after)
                assert_allclose(np.linalg.inv(L1 @ L1.T), new, rtol=1e-8, atol=1e-9)
                assert_allclose(mu1, mu + rho * np.linalg.solve(new, slope), rtol=1e-8, atol=1e-9)
                assert np.array_equal(np.sign(np.diag(L1)), np.sign(np.diag(L)))


def test_affine_invariance(cv):
    """z -> A z + b turns a step into the step of the turned problem: Sigma -> A Sigma A^T."""
    for d, seed in [(2, 0), (3, 1), (5, 2)]:
        w, slope, H, rng = case("Gaussian", d, seed)
        q, rule = cv.families.Gaussian(d), cv.rules.natural(reach=0.4)
        A, b = rng.standard_normal((d, d)) + 2 * np.eye(d), rng.standard_normal(d)
        back = np.linalg.inv(A)
        mu, L = oracles.unpack("Gaussian", d, w)
        turned = q.pack(A @ mu + b, np.linalg.cholesky(A @ L @ L.T @ A.T))
        for rho in (0.2, 1.0):
            g = gradient("Gaussian", d, w, slope, H)
            g2 = gradient("Gaussian", d, turned, back.T @ slope, back.T @ H @ back)
            mu1, L1 = oracles.unpack("Gaussian", d, stepped(rule, q, w, g, rho)[0])
            mu2, L2 = oracles.unpack("Gaussian", d, stepped(rule, q, turned, g2, rho)[0])
            assert_allclose(mu2, A @ mu1 + b, rtol=1e-9, atol=1e-9)
            assert_allclose(L2 @ L2.T, A @ L1 @ L1.T @ A.T, rtol=1e-9, atol=1e-9)


def test_batched(cv):
    """Runs side by side, each with a rate of its own, against one after the other."""
    for family in FAMILIES:
        q, rng = getattr(cv.families, family)(3), np.random.default_rng(0)
        w = q.start((2, 4)) + 0.2 * rng.standard_normal((2, 4, q.D))
        g, rho = rng.standard_normal((2, 4, q.D)), rng.uniform(0.1, 1, (2, 4, 1))
        rule = cv.rules.natural(reach=1.0)
        after, cut = stepped(rule, q, w, g, rho, 7)
        assert after.shape == w.shape and cut.shape == (2, 4) and 0 < cut.sum() < 8
        for k in np.ndindex(2, 4):
            alone, one = stepped(rule, q, w[k], g[k], rho[k], 7)
            assert_allclose(after[k], alone, rtol=1e-12)
            assert one == cut[k]


def test_reach(cv):
    """A step in mu longer than reach standard deviations of q is cut, of a full q as a whole."""
    for family in FAMILIES:
        d = 3
        w, slope, H, _ = case(family, d, 1)
        q = getattr(cv.families, family)(d)
        mu, L = oracles.unpack(family, d, w)
        g = gradient(family, d, w, 100 * slope, H)
        free, none = stepped(cv.rules.natural(reach=1e9), q, w, g, 0.5)
        cut, one = stepped(cv.rules.natural(reach=2.0), q, w, g, 0.5)
        way, far = (np.linalg.solve(L, x[:d] - mu) for x in (cut, free))
        assert none == 0 and one == 1
        if family == "Gaussian":  # in the root mean square
            assert_allclose(np.linalg.norm(way), 2 * np.sqrt(d))
            assert_allclose(way / np.linalg.norm(way), far / np.linalg.norm(far))
        else:
            assert_allclose(way, np.clip(far, -2, 2))
            assert np.abs(far).min() < 2 < np.abs(far).max()
        assert_allclose(cut[d:], free[d:])


def test_fixed_point(cv):
    """At the best q a step with the exact gradient stays; from afar it gets there."""
    p = oracles.problem("logistic", 2, 12)
    model = oracles.build(cv, p)
    for family in FAMILIES:
        q = getattr(cv.families, family)(2)
        best = cv.exact._by_lbfgs(model, q, q.start())
        g = cv.exact.gradient(model, q, best) / model.N
        for positive in (True, False):
            after, _ = stepped(cv.rules.natural(positive), q, best, g, 1.0, model.N)
            assert_allclose(after, best, atol=1e-6)
        path = cv.optimize.noise_free(model, q, lr=1.0, steps=12, rule=cv.rules.natural())
        assert_allclose(path.w, best, atol=1e-6)


def test_rate(cv):
    """A falling rate stays, then falls like a power of the step."""
    rate = cv.rules.falling(0.2, 20)
    assert (rate(1), rate(20)) == (0.2, 0.2) and abs(rate(80) - 0.05) < 1e-12
    assert abs(cv.rules.falling(0.2, 20, 0.5)(80) - 0.1) < 1e-12
    assert_allclose(cv.rules.falling([0.2, 0.4], 20)(40), [0.1, 0.2])


def test_indefinite(cv):
    """Without the square an indefinite S gives no weights at all, in its own run alone."""
    for family in FAMILIES:
        q = getattr(cv.families, family)(2)
        rule, w, g = cv.rules.natural(positive=False), q.start((3,)), np.zeros((3, q.D))
        g[1, -1] = 50.0  # P = -49 in the last coordinate
        after, _ = stepped(rule, q, w, g, 0.5)
        assert np.isnan(after[1]).any() and np.isfinite(after[[0, 2]]).all()


def test_the_best_q_is_found_in_few_steps(cv):
    """exact.optimum needs no L-BFGS for the data sets of the book."""
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(2)
    w = cv.exact.optimum(model, q)
    assert np.abs(cv.exact.gradient(model, q, w)).max() < 1e-10 * model.N


@given(st.integers(0, 2**32), st.floats(1e-3, 1), st.floats(-6, 6), st.integers(1, 6))
@settings(deadline=None, derandomize=True, max_examples=60, database=None)
def test_every_gradient_leaves_a_gaussian(seed, rho, power, d):
    """Positive definite for any g, however wrong: finite, no zero and no turned sign in L."""
    rng = np.random.default_rng(seed)
    for family in FAMILIES:
        q, w = getattr(cvlib.families, family)(d), oracles.weights(family, d, seed % 1000)
        g = 10**power * rng.standard_cauchy((2, q.D)).clip(-1e6, 1e6)
        after, _ = stepped(cvlib.rules.natural(), q, w, g, rho)
        assert np.isfinite(after).all()
        diagonal = after[:, q.diag] if family == "Gaussian" else after[:, d:]
        before = w[:, q.diag] if family == "Gaussian" else w[:, d:]
        assert (np.sign(diagonal) == np.sign(before)).all()
