"""Draws that lean on each other: laws, means, weights. Oracles are scipy and enumeration."""

from itertools import product

import autograd.numpy as anp
import numpy as np
import oracles
from autograd import grad
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import expit

EXACT = {"rtol": 0, "atol": 1e-9}
RNG = np.random.default_rng


class Switches:
    """log p(x, b) of a few switches b seen through pixels, and q, all as finite sums."""

    def __init__(self, d=3, pixels=5, seed=0):
        rng, self.known = RNG(seed), {}
        self.A, self.c = 1.5 * rng.standard_normal((pixels, d)), rng.standard_normal(pixels)
        self.w = np.array([0.7, -0.4, 1.5])[:d]
        self.states = np.array(list(product([0.0, 1.0], repeat=d)))
        self.p = expit(self.w)
        self.P = np.prod(np.where(self.states == 1, self.p, 1 - self.p), -1)
        self.exact = (self.P * self.f(self.states)) @ (self.states - self.p)

    def f(self, b):
        """log p(x, b) - log q(b), any b in the cube."""
        joint = np.log(expit(b @ self.A.T + self.c)).sum(-1) + b.shape[-1] * np.log(0.5)
        return joint - (b * np.log(self.p) + (1 - b) * np.log(1 - self.p)).sum(-1)

    def model(self, cv):
        """Model, family and the ELBO's integrand, the same for all lines and draws."""
        if cv not in self.known:
            lik = lambda z, batch: -anp.logaddexp(0.0, -(anp.sum(batch[0] * z, -1) + batch[1]))
            q = cv.families.Bernoulli(len(self.w))
            model = cv.models.Model(lik, q.prior(np.zeros(q.dim)), (self.A, self.c), q.dim)
            data, prior, variational = cv.terms(model, q)
            self.known[cv] = model, q, data + prior - variational
        return self.known[cv]

    def all_samples(self, M):
        """Every M states with their probability: (S, M, d), (S,)."""
        chosen = np.array(list(product(range(len(self.states)), repeat=M)))
        return self.states[chosen], self.P[chosen].prod(-1)

    def draw_of(self, cv, z):
        """A draw whose samples are the states z (S, M, d), as S runs."""
        model, q, _ = self.model(cv)
        eps = np.concatenate([100 * (2 * z - 1), np.full(z.shape, 0.5)], -1)
        w = np.broadcast_to(self.w, (len(z), q.D))
        return cv.draw(model, q, w, eps=eps, subsample=False)

    def all_pairs(self):
        """u (K, d) in the middle of the cells where both z and its opposite are constant."""
        cells = []
        for p in self.p:
            edges = np.array([0, *sorted([p, 1 - p]), 1])
            cells.append(list(zip((edges[1:] + edges[:-1]) / 2, np.diff(edges))))
        every = np.array(list(product(*cells)))  # (K, d, 2)
        return every[..., 0], every[..., 1].prod(-1)


def paired_draw(cv, problem, u):
    """A draw of the pairs made of u (..., P, d): the partners are the package's."""
    model, q, _ = problem.model(cv)
    eps = np.concatenate([np.log(u) - np.log1p(-u), np.full(u.shape, 0.3)], -1)
    w = np.broadcast_to(problem.w, (*u.shape[:-2], q.D))
    return cv.draw(model, q, w, eps=eps, subsample=False, noise="pairs")


def toy(cv):
    """Model and family of the toy data."""
    return cv.models.logistic_regression(*cv.datasets.toy()), cv.families.Gaussian(2)


def families(cv):
    """{family: w}."""
    F = cv.families
    return {
        F.Gaussian(2): np.array([0.3, -0.2, 1.1, 0.4, 0.7]),
        F.DiagonalGaussian(2): np.array([0.3, -0.2, 1.1, 0.7]),
        F.Bernoulli(2): np.array([0.7, -2.0]),
    }


def cdf(q, w, eps):
    """The distribution function of each base coordinate, by scipy."""
    kind, d = type(q).__name__, q.dim
    if "Gaussian" in kind:
        return stats.norm.cdf(eps)
    return np.concatenate([stats.logistic.cdf(eps[..., :d]), eps[..., d:]], -1)


def test_partners_have_the_law_and_the_opposite_place(cv):
    for q, w in families(cv).items():
        eps = q.noise(RNG(0), w, 400)
        partner = q.mirror(w, eps)
        assert_allclose(cdf(q, w, partner), 1 - cdf(q, w, eps), atol=1e-9, err_msg=repr(q))
        assert_allclose(q.mirror(w, partner), eps, rtol=1e-7, atol=1e-9, err_msg=repr(q))


def test_pairs_share_their_data(cv):
    model, q = toy(cv)
    drawn = lambda **how: cv.draw(model, q, q.start((3,)), 8, RNG(0), noise="pairs", **how)
    draw, batches = drawn(), drawn(batch=3, each=True).index
    assert draw.M == 8 and draw.group == 2
    assert draw.index.shape == (3, 8) and batches.shape == (3, 8, 3)
    for index in draw.index, batches:
        assert_array_equal(index[:, :4], index[:, 4:])
    assert_array_equal(draw.eps[:, :4], -draw.eps[:, 4:])
    assert len(np.unique(draw.index)) > 4 and len(np.unique(draw.eps)) == 48
    assert drawn(batch=3).index.shape == (3, 1, 3)
    assert drawn(batch=1, each=True).index.shape == (3, 8, 1)
    given = cv.draw(model, q, q.start(), eps=np.eye(2), index=[4, 5], noise="pairs")
    assert_array_equal(given.eps, np.concatenate([np.eye(2), -np.eye(2)]))
    assert_array_equal(given.index, [4, 5, 4, 5])


def test_points_are_even_and_scrambled_afresh(cv):
    """Every box of a (0, m, 2)-net holds one point; each point is uniform; digits are random."""
    sobol = cv.draws.sobol
    u = sobol(RNG(0), (2000,), 16, 2)
    assert u.shape == (2000, 16, 2) and 0 < u.min() and u.max() < 1
    for k in range(5):  # 2^k by 2^(4 - k) boxes
        box = np.floor(u[:50, :, 0] * 2**k) * 2 ** (4 - k) + np.floor(u[:50, :, 1] * 2 ** (4 - k))
        assert (np.sort(box, -1) == np.arange(16)).all()
    for n, j in product((0, 1, 7, 15), (0, 1)):
        assert stats.kstest(u[:, n, j], "uniform").pvalue > 1e-4
    digits = np.floor(u[:, :2, 0] * 2**20).astype(int)
    apart = digits[:, 0] ^ digits[:, 1]  # a shift alone would leave this as it is
    assert len(np.unique(apart)) > 1900
    assert_allclose((apart >> 10 & 1).mean(), 0.5, atol=0.06)
    assert abs(np.corrcoef(u[:, 0, 0], u[:, 0, 1])[0, 1]) < 0.1
    many = sobol(RNG(1), (), 10, 40)  # no power of two, more dimensions
    assert many.shape == (10, 40) and len(np.unique(np.floor(many * 16)[:, 5])) == 10


def test_sobol_s_points_are_scipy_s(cv):
    """Before they are scrambled: one, few and many points, more dimensions than first numbers."""
    for M, d in (1, 1), (2, 3), (7, 5), (33, 1200), (4096, 60), (70_000, 3):
        marks = cv.draws.sobol.__globals__["_marks"](M, d)
        m = len(marks)
        want = stats.qmc.Sobol(d, scramble=False).random_base2(m)[:M] * 2**m
        points = -np.tensordot(2 ** np.arange(m)[::-1], marks, 1) if m else np.zeros((1, d))
        assert_array_equal(points, want)


def test_sobol_has_the_law_of_q(cv):
    """Quantiles are those of scipy's cdf; through it each base coordinate of a draw is even."""
    u = (np.arange(50) + 0.5) / 50
    for q, w in [*families(cv).items()][:2]:
        right = np.repeat(u[:, None], q.noise_dim, 1)
        assert_allclose(cdf(q, w, q.quantile(w, right)), right, atol=1e-9, err_msg=repr(q))
        model = cv.models.Model(lambda z, b: z[..., 0], lambda z: z[..., 0], np.zeros(1), q.dim)
        draw = cv.draw(model, q, w, 64, RNG(0), noise="sobol")
        cells = np.sort(np.floor(cdf(q, w, draw.eps) * 64), 0)
        assert_array_equal(cells, np.repeat(np.arange(64)[:, None], q.noise_dim, 1))
        assert draw.group == 64


def test_means_over_pairs_of_switches(cv):
    """SF and DisARM in pairs: the exact mean; DisARM sample by sample from its formula."""
    problem = Switches()
    u, P = problem.all_pairs()
    b, opposite = 1.0 * (u > 1 - problem.p), 1.0 * (u < problem.p)
    draw = paired_draw(cv, problem, u)
    assert_array_equal(draw.z, np.concatenate([b, opposite]))
    f = problem.model(cv)[2]
    for line in cv.SF(f), cv.DisARM(f):
        assert_allclose(np.tile(P, 2) @ line(draw) / 2, problem.exact, **EXACT)
    factor = (-1) ** opposite * (b != opposite) * expit(np.abs(problem.w))
    right = ((problem.f(b) - problem.f(opposite)) / 2)[:, None] * factor
    assert_allclose(cv.DisARM(f)(draw), np.concatenate([right, right]), **EXACT)


def test_leave_one_out_for_switches(cv):
    problem = Switches()
    f = problem.model(cv)[2]
    for M in (2, 3):
        z, P = problem.all_samples(M)
        G, values = cv.LOO(f)(problem.draw_of(cv, z)), problem.f(z)
        for m in range(M):
            others = np.delete(values, m, -1).mean(-1)
            right = (values[:, m] - others)[:, None] * (z[:, m] - problem.p)
            assert_allclose(G[:, m], right, **EXACT)
        assert_allclose(P @ G.mean(-2), problem.exact, **EXACT)


def test_leave_one_pair_out(cv):
    """Two pairs, all cells: the mean is exact though partners depend on each other."""
    problem = Switches(d=2)
    u, P = problem.all_pairs()
    every = np.array(list(product(range(len(u)), repeat=2)))
    draw = paired_draw(cv, problem, u[every])
    G = cv.LOO(problem.model(cv)[2])(draw)
    both = P[every].prod(-1)
    assert_allclose(both @ G.mean(-2), problem.exact, **EXACT)
    values = problem.f(draw.z)  # the second pair is left for the first sample: 1 and 3
    right = (values[:, 0] - (values[:, 1] + values[:, 3]) / 2)[:, None]
    assert_allclose(G[:, 0], right * (draw.z[:, 0] - problem.p), **EXACT)


def test_vargrad(cv):
    """LOO of the ELBO's integrand is minus the gradient of half the variance of log q - log p."""
    (model, q), w = toy(cv), np.array([0.3, -0.2, 1.1, 0.4, 0.7])
    data, prior, variational = cv.terms(model, q)
    draw = cv.draw(model, q, w, 6, RNG(0), subsample=False)
    ratio = lambda w: oracles.log_density("Gaussian", 2, w, draw.z) - model.log_joint(draw.z)
    G = cv.LOO(data + prior - variational)(draw).mean(0)
    assert_allclose(G, -grad(lambda w: anp.var(ratio(w), ddof=1) / 2)(w), rtol=1e-9)


def test_weights_count_what_is_independent(cv):
    """After one step: moments of pair means, or of the mean of all, and how many there were."""
    (model, q), gamma, M = toy(cv), 0.1, 8
    zoo = cv.zoo.paper(model, q)
    for noise, groups in (("plain", 8), ("pairs", 4), ("sobol", 1)):
        how = {"weights": cv.rules.bayes(1e-3, gamma), "sampling": cv.Sampling(noise=noise)}
        plan = cv.optimize.Noisy(model, q, zoo.h, [zoo.c7, zoo.c1], lr=0.1, M=M, **how)
        state = plan.step(plan.first(RNG(0), runs=(2,)))
        CC, Ch, count = state.moments
        size = M // groups
        assert state.G.shape == (2, 3, M, q.D)
        G = state.G.reshape(2, 3, size, groups, q.D).sum(2) / np.sqrt(size)
        assert_allclose(count, (1 - gamma) * groups)
        assert_allclose(CC, np.einsum("rlmd,rkmd->rlk", G[:, 1:], G[:, 1:]) / groups, rtol=1e-12)
        assert_allclose(Ch, np.einsum("rlmd,rmd->rl", G[:, 1:], G[:, 0]) / groups, rtol=1e-12)
        mean = state.G[:, 0].mean(1) / model.N
        assert_allclose(state.w - q.start(), 0.1 * 0.1 * mean, rtol=1e-9)
