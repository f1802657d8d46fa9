"""Gamma, beta, Bernoulli and categorical families, GR, and relaxations: REBAR and RELAX.

The other side is scipy, quadrature, enumeration or a finite difference. Means are not sampled where
they can be integrated: `draw` takes noise, so a draw of quadrature nodes, or of all values, gives
the exact mean of any estimator, without an error bar.
"""

from itertools import product

import autograd.numpy as anp
import numpy as np
from autograd import grad
from autograd.scipy.special import betaln, gammaln, psi
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit, log_expit
from scipy.special import polygamma as trigamma
from test_own_families import own_model, student_of

SHAPES = [1e-2, 0.3, 1.0, 20.0, 1e4]
# counts with a gamma rate, z = log rate; successes with a beta chance, z = its logit
DATA = {"Gamma": np.array([3.0, 0.0, 2.0]), "Beta": np.array([1.0, 0.0, 1.0])}
LIKS = {
    "Gamma": lambda z, batch: batch[0] * z[..., 0] - anp.exp(z[..., 0]) - gammaln(batch[0] + 1),
    "Beta": lambda z, batch: -anp.logaddexp(0, -(2 * batch[0] - 1) * z[..., 0]),
}


def panels(edges, order):
    """Points and weights of Gauss and Legendre's rule between every two edges."""
    x, p = np.polynomial.legendre.leggauss(order)
    half, mid = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    return (mid[:, None] + half[:, None] * x).ravel(), (half[:, None] * p).ravel()


def nodes(family, a, b):
    """Points z and weights of a quadrature rule for the expectation under q, scipy's density.

    Panels grow with the distance from the peak, or from the kink where the tail e^(a z) ends.
    """
    if family == "Gamma":
        kink, s = np.log(max(a, 1)) - np.log(b), np.sqrt(trigamma(1, a))
        right = np.log((a + 14 * np.sqrt(a) + 45) / max(a, 1))
    else:
        kink, s = np.log(max(a, 1) / max(b, 1)), np.sqrt(trigamma(1, a) + trigamma(1, b))
        right = 42 / b + 14 * min(s, 1) + 5
    left = 42 / a + 14 * min(s, 1) + 5 * (family == "Beta")
    away = lambda far: np.geomspace(1e-3 * min(s, 1), far, 80)
    z, weights = panels(np.concatenate([kink - away(left)[::-1], [kink], kink + away(right)]), 24)
    if family == "Gamma":
        log_pdf = stats.loggamma.logpdf(z, a, loc=-np.log(b))
    else:
        log_pdf = a * log_expit(z) + b * log_expit(-z) - betaln(a, b)
    weights = weights * np.exp(log_pdf)
    keep = weights > 1e-30
    return z[keep], weights[keep]


def built(cv, family, a, b):
    q = getattr(cv.families, family)(1)
    return cv.models.Model(LIKS[family], q.prior(2.0, 0.5), DATA[family], 1), q, np.log([a, b])


def exact_terms(family, w):
    """grad_w E_q of data, prior and log q_v, by autograd through formulas for the means."""

    def slope(m, n):
        """Of E[m z - n e^z], or of E[m log x + n log(1 - x)]."""

        def mean(w):
            a, b = anp.exp(w[0]), anp.exp(w[1])
            if family == "Gamma":
                return m * (psi(a) - w[1]) - n * a / b
            return m * (psi(a) - psi(a + b)) + n * (psi(b) - psi(a + b))

        return grad(mean)(w)

    data = slope(5, 3) if family == "Gamma" else slope(2, 1)
    return {"data": data, "prior": slope(2.0, 0.5), "variational": slope(*np.exp(w))}


def at_nodes(cv, family, a, b):
    model, q, w = built(cv, family, a, b)
    z, p = nodes(family, a, b)
    m, s = q.moments(w)
    return model, q, w, p, cv.draw(model, q, w, eps=((z - m) / s)[:, None], subsample=False)


def test_density(cv):
    """Of z, by scipy's of x where that has its digits; and its entropy, by quadrature."""
    for family, a, b in product(DATA, SHAPES, SHAPES):
        _, q, w = built(cv, family, a, b)
        z, p = nodes(family, a, b)
        got, seen = q.log_q(w, z[:, None]), np.abs(z) < 15
        assert_allclose(q.entropy(w), -p @ got, rtol=1e-7, atol=1e-7)
        law = stats.gamma(a, scale=1 / b) if family == "Gamma" else stats.beta(a, b)
        x, jacobian = np.exp(z), z
        if family == "Beta":
            x, jacobian = expit(z), log_expit(z) + log_expit(-z)
        assert_allclose(got[seen], (law.logpdf(x) + jacobian)[seen], rtol=1e-8, atol=1e-5)


def cdf(family, a, b, z):
    """P(Z <= z). Where x underflows, F(x) = x^a times a constant, to all digits."""
    if family == "Gamma":
        z, log_constant = z + np.log(b), -gammaln(a + 1)
        direct = stats.gamma.cdf(np.exp(np.minimum(z, 700)), a)
    elif np.any(z > 0):
        low, high = cdf(family, a, b, np.minimum(z, 0)), 1 - cdf(family, b, a, np.minimum(-z, 0))
        return np.where(z < 0, low, high)
    else:
        direct, log_constant = stats.beta.cdf(expit(z), a, b), -np.log(a) - betaln(a, b)
    return np.where(z < -200, np.exp(a * np.minimum(z, -200) + log_constant), direct)


def test_sampling(cv):
    rng = np.random.default_rng(0)
    for a, b in [(1e-2, 3.0), (1.0, 0.2), (1e4, 1e-2), (0.5, 1e4), (1e4, 1e4), (1e-2, 1e-2)]:
        for family in DATA:
            model, q, w = built(cv, family, a, b)
            draw = cv.draw(model, q, w, M=20_000, rng=rng)
            assert np.isfinite(draw.z).all()
            u = cdf(family, a, b, draw.z[:, 0])
            assert stats.kstest(u, "uniform").pvalue > 1e-7, (family, a, b)
            assert np.unique(draw.z).size == 20_000  # nothing underflows to one value
            assert abs(draw.eps.mean()) < 6 / np.sqrt(20_000), (family, a, b)


def test_means_by_quadrature(cv):
    """SF, GR and CF of every term have the mean that conjugate formulas give, at all shapes."""
    for family, a, b in product(DATA, SHAPES, [1e-2, 30.0, 1e4]):
        model, q, w, p, draw = at_nodes(cv, family, a, b)
        assert_allclose(p.sum(), 1, rtol=1e-9)
        exact = exact_terms(family, w)
        for term in cv.terms(model, q):
            name = next(iter(term.parts)).name
            size = 1e-7 * (1 + np.abs(exact[name]).max())
            for method in (cv.SF, cv.GR):
                G = method(term)(draw)
                assert np.isfinite(G).all()
                spread = np.sqrt(p @ G**2)  # rounding of nodes and weights scales with this
                assert_allclose(
                    p @ G, exact[name], rtol=1e-7, atol=max(size, 1e-9 * spread.max()),
                    err_msg=f"{method.__name__} {name} {family} {a} {b}",
                )  # fmt: skip
            if name != "data":
                G = cv.CF(term)(draw)[0]
                assert_allclose(G, exact[name], rtol=1e-7, atol=1e-9 * (1 + a + b))


# discrete families: every mean is a finite sum
def states(q):
    """Every state of switches, or of classes, (states, d)."""
    if hasattr(q, "classes"):
        return np.array([np.ravel(s) for s in product(np.eye(q.classes), repeat=q.count)])
    return np.array(list(product([0.0, 1.0], repeat=q.dim)))


def probability(q, w, z):
    """P(z) by formulas for autograd that keep the digits of small ones, (states,)."""
    if hasattr(q, "classes"):
        rows = anp.exp(anp.reshape(w, (-1, q.classes)))
        p = anp.reshape(rows / anp.sum(rows, -1, keepdims=True), (-1,))
        return anp.prod(1 - z + z * p, -1)
    return anp.prod(z / (1 + anp.exp(-w)) + (1 - z) / (1 + anp.exp(w)), -1)


def discrete_cases(cv):
    """Model, q, w, every state with its probability, and a draw that visits each of them once."""
    switches, classes = cv.families.Bernoulli(2), cv.families.Categorical(2, 3)
    for q, w in (
        (switches, [-30.0, 0.4]), (switches, [2.0, 30.0]), (switches, [-1.2, 0.7]),
        (classes, [-30.0, 0.0, 30.0, 1.0, 2.0, -0.5]), (classes, np.linspace(-1, 1, 6)),
    ):  # fmt: skip
        z, w = states(q), np.array(w)
        noise = 700 * (z if q is classes else 2 * z - 1)
        model = own_model(cv, q.dim, q.prior(np.linspace(-1, 1, q.dim)))
        eps = np.concatenate([noise, np.full_like(noise, 0.5)], -1)
        draw = cv.draw(model, q, w, eps=eps, subsample=False)
        assert_allclose(draw.z, z)
        yield model, q, w, probability(q, w, z), z, draw


def test_discrete_by_enumeration(cv):
    for model, q, w, p, z, draw in discrete_cases(cv):
        assert_allclose(p.sum(), 1)
        assert_allclose(np.exp(q.log_q(w, z)), p, rtol=1e-10, atol=1e-300)
        terms = (p[p > 0] * np.log(p[p > 0])).sum()
        assert_allclose(q.entropy(w), -terms, rtol=1e-9)
        assert_allclose(q.cross(w, w[::-1] / 2), p @ q.log_q(w[::-1] / 2, z), rtol=1e-9)
        values = {
            "data": sum(np.array([model.log_lik(s, (y,)) for s in z]) for y in model.data[0]),
            "prior": model.log_prior(z),
            "variational": np.log(np.maximum(p, 1e-300)),
        }
        for term in cv.terms(model, q):
            which = next(iter(term.parts)).name
            f = values[which]
            exact = grad(lambda w: anp.sum(probability(q, w, z) * f))(w)
            for method in (cv.SF, cv.GR):
                assert_allclose(p @ method(term)(draw), exact, rtol=1e-8, atol=1e-10)
            if which != "data":
                assert_allclose(cv.CF(term)(draw)[0], exact, rtol=1e-8, atol=1e-10)
        assert_allclose(p @ cv.SF(cv.one)(draw), 0, atol=1e-12)


def test_batched_equals_looped(cv):
    """Leading axes are independent runs, for a family of one's own too."""
    rng = np.random.default_rng(4)
    F = cv.families
    for q in F.Gamma(2), F.Beta(2), F.Bernoulli(2), F.Categorical(1, 2), student_of(cv)(2):
        model = own_model(cv, 2, q.prior(*[np.ones(2)] * (2 if q.D == 4 else 1)))
        data, prior, variational = cv.terms(model, q)
        line = cv.GR(data) + cv.SF(prior) - cv.GR(variational)
        W = rng.standard_normal((3, q.D))
        draw = cv.draw(model, q, W, M=4, rng=rng)
        batched = line(draw)
        assert batched.shape == (3, 4, q.D)
        for r in range(3):
            one = cv.draw(model, q, W[r], eps=draw.eps[r], index=draw.index[r])
            assert_allclose(line(one), batched[r], rtol=1e-12)


# Relaxation, REBAR and RELAX ----------------------------------------------------------------------

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
    first = cv.draw(model, q, w, eps=draw.eps[:50], index=draw.index[:50])
    assert_allclose(q.zeta_given_z(first, True)[0], q.zeta(first))  # coupled: its own
    # the derivative, by moving w with all noise and z fixed; log p moves by J_w
    moved = q.zeta_given_z(first, False)[1]
    at = lambda w: cv.draw(model, q, w, eps=first.eps, index=first.index)
    for j, unit in enumerate(np.eye(6)):
        up, down = at(w + 1e-6 * unit), at(w - 1e-6 * unit)
        assert np.array_equal(up.z, down.z)
        by_steps = (q.zeta_given_z(up, False)[0] - q.zeta_given_z(down, False)[0]) / 2e-6
        dlogp = np.where(np.arange(6) // 3 == j // 3, unit - p.ravel()[j], 0.0)
        assert_allclose(by_steps, moved * dlogp, rtol=1e-4, atol=1e-6)


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


def surrogates(cv):
    """(model, q, w, how a variate is made of a function)."""

    def case(model, q, w, first, second, scale=1):
        data = cv.terms(model, q)[0]
        f = lambda s: cv.surrogate(data, s)
        return model, q, np.array(w), lambda s: scale * (first(f(s)) - second(f(s)))

    SF, RP1, GR = cv.SF, cv.RP1, cv.GR
    for scale in 1, -2:  # the other way, twice
        yield case(*modelled(cv, cv.families.Bernoulli(3)), [0.5, -1.0, 0.3], GR, RP1, scale)
    yield case(*modelled(cv, cv.families.Categorical(1, 3)), [0.5, -1.0, 0.2], GR, RP1)
    X = np.random.default_rng(0).standard_normal((4, 2))
    model = cv.models.logistic_regression(X, np.array([1.0, -1.0, 1.0, 1.0]))
    for family in ("Gaussian", "DiagonalGaussian"):
        q = getattr(cv.families, family)(2)
        for second in (RP1, cv.RP2):
            yield case(model, q, q.start() + 0.1, SF, second)
    yield case(model, cv.families.Gamma(2), [0.2, 0.5, 0.1, -0.3], SF, GR)


def test_surrogates_have_mean_zero(cv):
    """Any function at all, on every family: its variate has mean zero."""
    rng = np.random.default_rng(8)
    for model, q, w, line in surrogates(cv):
        A, b = rng.standard_normal((q.dim, 3)), rng.standard_normal(3)
        c = line(lambda z, A=A, b=b: anp.dot(anp.tanh(anp.dot(z, A)), b))
        assert c.is_control_variate
        draw = cv.draw(model, q, w, M=40_000, rng=rng)
        G = c(draw)
        assert (np.abs(G.mean(0)) < 6 * G.std(0) / np.sqrt(len(G)) + 1e-12).all()
        assert np.abs(G).max() > 0.01


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
    coupled, fresh = (cv.GR(cv.relax(data, 0.5, coupled=c)) for c in (True, False))
    assert not np.allclose(coupled(draw), fresh(draw)) and len((coupled - fresh).parts) == 2
    warm = [cv.RP1(cv.relax(data, tau))(draw) for tau in (0.5, 0.5 + 1e-8)]
    assert np.abs(warm[1] - warm[0]).max() > 0
