"""Relaxation, REBAR and RELAX against quadrature, enumeration and finite differences."""

from itertools import product

import autograd.numpy as anp
import numpy as np
from harness import part
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit, logit
from test_coupled import Switches
from test_nongaussian import panels
from test_own_families import own_model

T, TAU = 0.45, 0.7  # the one-coin problem E (b - t)^2, and a temperature


def coin(cv):
    q = cv.families.Bernoulli(1)
    lik = lambda z, batch: anp.sum((z - T) ** 2, -1) * batch[0] + anp.prod(1 + z, -1)
    return cv.models.Model(lik, q.prior(0.3), np.array([1.0, 0.5]), 1), q


def exact_relaxed(w):
    """d/dw of E f(sigma(zeta / tau)): the integral of the logistic density's derivative."""
    zeta = np.linspace(w - 45, w + 45, 200_001)
    slope = stats.logistic.pdf(zeta - w) * np.tanh((zeta - w) / 2)  # d/dw of the density of zeta
    z = expit(zeta / TAU)
    return np.trapezoid(slope * (1.5 * (z - T) ** 2 + 2 * (1 + z)), zeta)  # the coin's data term


def test_relaxed_means_by_quadrature(cv):
    """SF, RP1 and GR of the relaxed coin, coupled or not, have the exact mean."""
    model, q = coin(cv)
    data = cv.terms(model, q)[0]
    for w in (-2.0, 0.3, 4.0):
        exact, f = exact_relaxed(w), cv.relax(data, TAU)
        # in the noise of zeta = w + noise: split where z jumps, cut where its density is rounding
        noise, p = panels(np.append(np.linspace(-40, -w, 12), np.linspace(-w, 40, 12)[1:]), 60)
        p = p * stats.logistic.pdf(noise)
        eps = np.stack([noise, np.full_like(noise, 0.5)], -1)
        draw = cv.draw(model, q, np.array([w]), eps=eps, subsample=False)
        for method in (cv.SF, cv.RP1, cv.GR):
            assert_allclose(p @ method(f)(draw), [exact], rtol=1e-7, atol=1e-9)
        # not coupled: another integral, over v
        f = cv.relax(data, TAU, coupled=False)
        v, pv = panels(np.array([0.0, 1.0]), 80)
        v, pv = v**3, pv * 3 * v**2  # the ends matter: zeta goes to infinity there
        v, pv = np.concatenate([v / 2, 1 - v / 2]), np.concatenate([pv, pv]) / 2
        z = np.repeat([0.0, 1.0], len(v))
        eps = np.stack([np.where(z > 0, 1, -1) * (abs(w) + 1.0), np.tile(v, 2)], -1)
        draw = cv.draw(model, q, np.array([w]), eps=eps, subsample=False)
        assert_allclose(draw.z[:, 0], z)
        weights = np.where(z > 0, expit(w), expit(-w)) * np.tile(pv, 2)
        assert_allclose(weights @ cv.GR(f)(draw), [exact], rtol=2e-5)


def test_conditional_draw_of_a_bit(cv):
    """zeta given z has the logistic law cut at 0; its derivative is that of the formula in u."""
    model, q = coin(cv)
    rng = np.random.default_rng(0)
    for w in (-30.0, -1.5, 0.2, 30.0):
        draw = cv.draw(model, q, np.array([w]), M=40, rng=rng)
        zeta, moved = q.zeta_given_z(draw, coupled=False)
        b, v = draw.z, draw.eps[:, 1:]
        assert np.all((zeta > 0) == (b > 0))
        if abs(w) < 10:
            place = lambda w: np.where(b > 0, 1 - expit(w) * (1 - v), (1 - v) * expit(-w))
            assert_allclose(expit(zeta - w), place(w), rtol=1e-9)
            at = lambda w: w + logit(place(w))
            assert_allclose(moved, (at(w + 1e-5) - at(w - 1e-5)) / 2e-5, rtol=1e-5, atol=1e-8)
        # coupled is the same formula with the v that gives back the zeta that made z
        own, own_moved = q.zeta_given_z(draw, coupled=True)
        noise = draw.eps[:, :1]
        assert_allclose(own, w + noise)
        v = np.where(b > 0, 1 - expit(-noise) / expit(w), 1 - expit(noise) / expit(-w))
        assert np.all((v > -1e-12) & (v < 1))
        eps = np.concatenate([noise, np.clip(v, 1e-300, None)], -1)
        back = cv.draw(model, q, np.array([w]), eps=eps, index=draw.index)
        if abs(w) < 10:
            assert_allclose(own, q.zeta_given_z(back, coupled=False)[0], rtol=1e-7, atol=1e-9)
        assert_allclose(own_moved, q.zeta_given_z(back, coupled=False)[1], rtol=1e-6, atol=1e-9)


def modelled(cv, q):
    """A model of one's own with a prior of this family, and the family."""
    return own_model(cv, q.dim, q.prior(np.zeros(q.dim))), q


def test_conditional_draw_of_a_class(cv):
    model, q = modelled(cv, cv.families.Categorical(2, 3))
    rng = np.random.default_rng(2)
    w = np.array([0.5, -1.0, 0.2, 2.0, 0.0, -0.4])
    p = np.exp(w.reshape(2, 3)) / np.exp(w.reshape(2, 3)).sum(-1, keepdims=True)
    draw = cv.draw(model, q, w, M=20_000, rng=rng)
    zeta, _ = q.zeta_given_z(draw, coupled=False)
    # the winner is the winner, and the law over all z is the law of zeta: Gumbel about log p
    assert_allclose(zeta.reshape(-1, 2, 3).argmax(-1), draw.z.reshape(-1, 2, 3).argmax(-1))
    assert_allclose(draw.z.reshape(-1, 2, 3).argmax(-1), q.zeta(draw).reshape(-1, 2, 3).argmax(-1))
    for k, log_p in enumerate(np.log(p).ravel()):
        for sample in (zeta[:, k], q.zeta(draw)[:, k]):
            assert stats.kstest(sample, stats.gumbel_r(loc=log_p).cdf).pvalue > 1e-7
    # coupled: the clocks of this very draw, given to the formula that is not coupled
    first = cv.draw(model, q, w, eps=draw.eps[:50], index=draw.index[:50])
    x = np.exp(-q.zeta(first)).reshape(-1, 2, 3)
    won = first.z.reshape(-1, 2, 3) > 0
    E = np.where(won, x, p * (x - x.min(-1, keepdims=True))).reshape(-1, 6)
    eps = np.concatenate([first.eps[:, :6], E], -1)
    back = cv.draw(model, q, w, eps=eps, index=first.index)
    own, again = q.zeta_given_z(first, True), q.zeta_given_z(back, False)
    assert_allclose(own[0], q.zeta(first))
    for one, other in zip(own, again):
        assert_allclose(one, other, rtol=1e-7, atol=1e-9)
    # the derivative, by moving w with all noise and z fixed; log p moves by J_w
    moved = q.zeta_given_z(first, False)[1]
    at = lambda w: cv.draw(model, q, w, eps=first.eps, index=first.index)
    for j, unit in enumerate(np.eye(6)):
        up, down = at(w + 1e-6 * unit), at(w - 1e-6 * unit)
        assert np.array_equal(up.z, down.z)
        by_steps = (q.zeta_given_z(up, False)[0] - q.zeta_given_z(down, False)[0]) / 2e-6
        dlogp = np.where(np.arange(6) // 3 == j // 3, unit - p.ravel()[j], 0.0)
        assert_allclose(by_steps, moved * dlogp, rtol=1e-4, atol=1e-6)


def z_scores(G):
    return np.abs(G.mean(0)) / (G.std(0) / np.sqrt(len(G)) + 1e-300)


def test_categorical_means(cv):
    """A pair of classes is a coin: zeta_1 - zeta_0 is logistic, so the exact gradient is its own.

    12 scores: a false alarm once in 1e7 suites. Three classes: test_surrogates_have_mean_zero.
    """
    q = cv.families.Categorical(1, 2)
    lik = lambda z, batch: 1.5 * (z[..., 1] - T) ** 2 + 2 * (1 + z[..., 1]) + 0 * batch[0]
    model = cv.models.Model(lik, q.prior([0.0, 0.0]), np.array([1.0]), 2)
    draw = cv.draw(model, q, np.array([0.0, 0.3]), M=50_000, rng=np.random.default_rng(4))
    exact = exact_relaxed(0.3) * np.array([-1, 1])
    for method, coupled in product((cv.SF, cv.RP1, cv.GR), (True, False)):
        f = cv.relax(cv.terms(model, q)[0], TAU, coupled=coupled)
        assert z_scores(method(f)(draw) - exact).max() < 6


def test_extreme_logits_are_finite(cv):
    for q in (cv.families.Bernoulli(3), cv.families.Categorical(1, 3)):
        model, _ = modelled(cv, q)
        f = sum(cv.terms(model, q)[1:], cv.terms(model, q)[0])
        draw = cv.draw(model, q, np.array([-30.0, 0.0, 30.0]), M=2000, rng=np.random.default_rng(6))
        for coupled in (True, False):
            relaxed = cv.relax(f, 0.1, coupled)
            for method in (cv.SF, cv.RP1, cv.GR):
                assert np.isfinite(method(relaxed)(draw)).all()
        # a bit that is sure has no noise to remove, and REBAR must not bring any back
        relaxed = cv.relax(f, 0.1)
        line = cv.SF(f) - (cv.GR(relaxed) - cv.RP1(relaxed))
        assert np.abs(line(draw)[:, 2]).max() < 1e-6 or isinstance(q, cv.families.Categorical)


def training_cases(cv):
    """(model, q, w, base line h, how a variate is made of a function)."""

    def case(model, q, w, base, first, second, scale=1, **how):
        data = cv.terms(model, q)[0]
        f = lambda s: cv.surrogate(data, s, **how)
        return model, q, np.array(w), base(data), lambda s: scale * (first(f(s)) - second(f(s)))

    SF, RP1, GR = cv.SF, cv.RP1, cv.GR
    for scale in 1, -2:  # the other way, twice
        yield case(*Switches().model(cv)[:2], [0.5, -1.0, 0.3], SF, GR, RP1, scale)
    for coupled in True, False:
        one = modelled(cv, cv.families.Categorical(1, 3))
        yield case(*one, [0.5, -1.0, 0.2], SF, GR, RP1, coupled=coupled)
    X = np.random.default_rng(0).standard_normal((4, 2))
    model = cv.models.logistic_regression(X, np.array([1.0, -1.0, 1.0, 1.0]))
    for family in ("Gaussian", "DiagonalGaussian"):
        q = getattr(cv.families, family)(2)
        for second in (RP1, cv.RP2):
            yield case(model, q, q.start() + 0.1, RP1, SF, second)
    yield case(model, cv.families.Gamma(2), [0.2, 0.5, 0.1, -0.3], GR, SF, GR)


def test_variance_gradient(cv):
    """Against finite differences of the mean square of h - c_phi on the same draw."""
    rng = np.random.default_rng(7)
    relaxing = part(cv, "experiments.relaxing")
    for k, (model, q, w, h, line) in enumerate(training_cases(cv)):
        w = np.stack([w, w + 0.1]) if k % 2 else w  # two runs: a mean over both
        s, phi = relaxing.network(q.dim, 3, rng)
        phi = phi + 0.3 * rng.standard_normal(phi.size)
        draw = cv.draw(model, q, w, M=5, rng=rng)
        fixed = dict(eps=draw.eps, index=draw.index)

        def g(phi):
            fresh = cv.draw(model, q, w, **fixed)
            return (h - line(lambda z: s(phi, z)))(fresh)

        loss = lambda phi: (g(phi) ** 2).sum(-1).mean()
        got = relaxing.variance_gradient(g(phi), s, phi, line, draw)
        steps = 1e-5 * np.eye(phi.size)
        want = [(loss(phi + step) - loss(phi - step)) / 2e-5 for step in steps]
        assert_allclose(got, want, rtol=2e-5, atol=1e-6 * np.abs(want).max())


def test_surrogates_have_mean_zero(cv):
    """Any function at all, on every family: its variate has mean zero."""
    rng = np.random.default_rng(8)
    for model, q, w, _, line in training_cases(cv):
        s, phi = part(cv, "experiments.relaxing").network(q.dim, 3, rng)
        assert not s(phi, np.ones((5, q.dim))).any()  # a network begins as the zero function
        phi = phi + rng.standard_normal(phi.size)
        c = line(lambda z: s(phi, z))
        assert c.is_control_variate
        draw = cv.draw(model, q, w, M=40_000, rng=rng)
        assert z_scores(c(draw)).max() < 6
        assert np.abs(c(draw)).max() > 0.01


def test_functions_of_one_name_stay_apart(cv):
    """On one draw, where a freed function's address may be taken by the next."""
    model, q = coin(cv)
    data = cv.terms(model, q)[0]
    draw = cv.draw(model, q, q.start(), M=3, rng=np.random.default_rng(0))
    times = lambda k: lambda zeta: k * anp.sum(anp.tanh(zeta), -1)
    pair = lambda f: cv.SF(f) - cv.RP1(f)
    first = pair(cv.surrogate(data, times(1)))(draw)
    for k in range(2, 8):
        assert_allclose(pair(cv.surrogate(data, times(k)))(draw), k * first)
    line = cv.SF(cv.surrogate(data, times(1))) - cv.RP1(cv.surrogate(data, times(5)))
    assert not line.is_control_variate
    s = times(1)
    coupled, fresh = (cv.GR(cv.surrogate(data, s, coupled=c)) for c in (True, False))
    assert not np.allclose(coupled(draw), fresh(draw))
    coupled, fresh = (cv.GR(cv.relax(data, 0.5, coupled=c)) for c in (True, False))
    assert not np.allclose(coupled(draw), fresh(draw)) and len((coupled - fresh).parts) == 2
    warm = [cv.RP1(cv.relax(data, tau))(draw) for tau in (0.5, 0.5 + 1e-8)]
    assert np.abs(warm[1] - warm[0]).max() > 0
