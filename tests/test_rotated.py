"""Rotated draws: their theorem, their law, and the words on them. The oracle is quadrature.

Each rotation of 2 d + 1 slopes must be exact for every cubic f (slope and curvature) and for the
slope of every quartic, whatever q is, and unbiased for all other f.
"""

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
from autograd import grad
from numpy.testing import assert_allclose

import cvlib as cv
from cvlib import CF, RP1, combine
from cvlib.ascent.rotated import Last, Rotated, believed
from cvlib.points import rotations, spheres, uniform

D = 3
RNG = np.random.default_rng
MU, L = np.array([0.3, -0.5, 0.2]), np.array([[0.8, 0, 0], [0.3, 0.6, 0], [-0.2, 0.1, 0.5]])


def exact(f, mu=MU, L=L, n=30):
    """grad_w E f(mu + L e) with w = [mu, lower triangle of L], by quadrature."""
    e, p = oracles.hermite(D, n)
    by_mu = grad(lambda m: anp.sum(p * f(m + e @ L.T)))(mu)
    by_L = grad(lambda S: anp.sum(p * f(mu + e @ S.T)))(L)
    return np.concatenate([by_mu, by_L[np.tril_indices(D)]])


def polynomial(degree, seed):
    """A random one, with all its mixed terms: the sum of powers of random directions."""
    rng = RNG(seed)
    A = rng.standard_normal((12, D))
    c, b = rng.standard_normal((12, degree)), rng.standard_normal(12)
    powers = lambda t: sum(c[:, k - 1] * t**k for k in range(1, degree + 1))
    return lambda z: anp.sum(powers(z @ A.T + b), -1)


def wavy(z):
    """No polynomial, and curved along the axes more than across."""
    waves = anp.sin(3 * z[..., 0]) + anp.cosh(1.5 * z[..., 1]) * z[..., 2]
    return waves + anp.exp(0.5 * z[..., 0] - z[..., 2])


def problem(f):
    """A model whose data term is f, its family and the line RP1(data)."""
    model = cv.models.Model(
        lambda z, batch: f(z) + 0 * batch[0], lambda z: 0 * z[..., 0], (np.zeros(1),), D
    )
    q = cv.families.Gaussian(D)
    return model, q, RP1(cv.terms(model, q)[0])


def each_rotation(f, K, seed=0):
    """The estimates of K rotations, (K, D)."""
    model, q, line = problem(f)
    how = {"noise": "rotated", "subsample": False}
    draw = cv.draw(model, q, q.pack(MU, L), K * (2 * D + 1), RNG(seed), **how)
    return combine.replicates(line(draw), draw.group) / np.sqrt(draw.group)


@pytest.mark.parametrize("seed", range(5))
def test_every_rotation_is_exact_for_every_cubic_and_for_the_slope_of_every_quartic(seed):
    off = lambda f: each_rotation(f, 6, seed) - exact(f, n=6)
    assert_allclose(off(polynomial(3, seed)), 0, atol=1e-9)
    quartic = off(polynomial(4, seed))
    assert_allclose(quartic[:, :D], 0, atol=1e-9)
    assert np.abs(quartic[:, D:]).max() > 1e-3  # and no more than that


@pytest.mark.parametrize("f", [wavy, polynomial(4, 1)])
def test_rotations_are_unbiased(f):
    found = each_rotation(f, 40_000)
    off = (found.mean(0) - exact(f)) / (found.std(0) / np.sqrt(len(found)) + 1e-9)
    assert np.abs(off).max() < 4.5


def test_radius_and_weights_have_their_law():
    """E rho^2 = d + 2, Var rho^2 = 2 (d + 2); a rotation's weights have mean one."""
    K, size = 50_000, 2 * D + 1
    e, weight = rotations(RNG(0), (), K * size, D)
    square = (e**2).sum(-1).reshape(size, K)
    assert_allclose(square[:-1] - square[0], 0, atol=1e-9)
    assert (square[-1] == 0).all()
    assert abs(square[0].mean() - (D + 2)) < 4.5 * np.sqrt(2 * (D + 2) / K)
    assert abs(square[0].var() / (2 * (D + 2)) - 1) < 0.05
    weight = weight.reshape(size, K)
    assert_allclose(weight.mean(0), 1)
    assert abs(weight[-1].mean()) < 4.5 * weight[-1].std() / np.sqrt(K)
    arms = e.reshape(size, K, D)[:D] / np.sqrt(square[:1, :, None])  # (D, K, D)
    assert_allclose(np.einsum("akc,bkc->kab", arms, arms), np.tile(np.eye(D), (K, 1, 1)), atol=1e-9)
    fourth = (arms**4).mean((0, 1))  # of a coordinate of a random direction: 3 / (d (d + 2))
    assert_allclose(fourth, 3 / (D * (D + 2)), rtol=0.03)


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("radii", [1, 2, 3])
def test_fixed_radii_have_the_moments_of_the_normal_up_to_their_degree(d, radii):
    """E |e|^2k = d (d + 2) ... (d + 2 k - 2), which one power more does not have."""
    e, weight = spheres(RNG(radii), d, radii, turns=2)
    assert len(e) == len(weight) == 4 * d * radii + 1 and weight.min() > 0
    for k in range(2 * radii + 2):
        power, moment = weight @ (e**2).sum(-1) ** k, np.prod(d + 2.0 * np.arange(k))
        assert np.isclose(power, moment, rtol=1e-9) == (k <= 2 * radii), k
    assert_allclose(weight @ e, 0, atol=1e-12)
    assert_allclose(e.T * weight @ e, np.eye(d), atol=1e-12)


def on_spheres(f, radii, K, w, turns=1):
    """Memories of K first steps on fixed radii."""
    plan = Rotated(problem(f)[0], cv.families.Gaussian(D), lr=1.0, radii=radii, turns=turns)
    begun = lambda seed: plan.first(RNG(seed), w=w)
    return [plan.step(begun(seed)).memory for seed in range(K)]


def by_w(memory):
    """The gradient in w that slope and curvature of the data term in q's own units amount to."""
    A = np.linalg.solve(L.T, memory.A - np.eye(D))
    return np.concatenate([np.linalg.solve(L.T, memory.c), A[np.tril_indices(D)]])


@pytest.mark.parametrize("radii, degree, turns", [(1, 5, 8), (2, 7, 4)])
def test_fixed_radii_are_exact_for_cubics_and_in_the_mean_for_more(radii, degree, turns):
    """Degrees 5 and 9 in theory; quadrature beside the mean over many rotations."""
    w = cv.families.Gaussian(D).pack(MU, L)
    cubic = polynomial(3, 1)
    for memory in on_spheres(cubic, radii, 3, w):
        assert_allclose(by_w(memory), exact(cubic, n=6), rtol=1e-9, atol=1e-9)
        e, p = oracles.hermite(D, 6)
        assert_allclose(memory.elbo - np.log(np.diag(L)).sum(), p @ cubic(MU + e @ L.T))
    f = polynomial(degree, 1)
    found = np.array([by_w(memory) for memory in on_spheres(f, radii, 300 // turns, w, turns)])
    off = (found.mean(0) - exact(f, n=12)) / (found.std(0) / np.sqrt(len(found)) + 1e-9)
    assert np.abs(off).max() < 4.5


def test_all_rotations_of_a_run_are_exact_for_quintics():
    """Eight steps from one place have quadrature's mean; the ninth begins a new turn."""
    (model, q, _), found, turns = problem(f := polynomial(5, 1)), [], []
    plan, w = Rotated(model, q, radii=1), q.pack(MU, L)
    state = plan.first(RNG(0), w)
    for _ in range(9):
        state = plan.step(state._replace(w=w, memory=plan.memory(w)))
        found, turns = [*found, by_w(state.memory)], [*turns, state.moments[0]]
    assert_allclose(np.mean(found[:8], 0), right := exact(f, n=6), rtol=1e-9, atol=1e-9)
    assert np.abs(found - right).max(1).min() > 1e-3
    assert [np.array_equal(turn, turns[0]) for turn in turns] == [True] * 8 + [False]
    assert np.abs(uniform(RNG(0), 20_000, 2).mean(0)).max() < 0.03  # with signs, of both kinds


def test_a_step_is_believed_or_taken_again():
    """s grows when two steps point against each other; a fall halves rho, where it began."""
    zero, I = np.zeros(2), np.eye(2)
    old = Last(np.array(3.0), -5.0, np.array([1.0, 0.0]), 0 * I, zero, I)
    new = old._replace(mu=zero + 1, L=2 * I)
    assert believed(np, new, old).s == 3 and (believed(np, new, old).mu == 1).all()
    turned = new._replace(c=np.array([-0.1, 9.0]))
    assert believed(np, turned, old).s == 4
    for against, s in ((-0.9, 3), (-1.1, 4)):  # Fisher: half of A.A, which is 2 here
        turned = new._replace(c=np.array([against, 9.0]), A=I)
        assert believed(np, turned, old._replace(A=I)).s == s
    promised = 1 + 0.5  # a nat of slack, and half of c.c
    for fall, s in ((promised - 0.1, 3), (promised + 0.1, 6)):
        kept = believed(np, new._replace(elbo=-5.0 - fall), old)
        assert kept.s == s and (kept.mu == (1 if s == 3 else 0)).all()
    lost = new._replace(c=zero * np.nan)
    assert believed(np, lost, old).elbo == -5 - promised  # the old ELBO may have been luck
    first = believed(np, lost, old._replace(elbo=-np.inf))
    assert (first.mu == 1).all() and (first.L == I).all()  # half as wide, where it is


def test_runs_have_rotations_of_their_own():
    f = polynomial(3, 0)
    model, q, line = problem(f)
    w = np.stack([q.pack(MU, L), q.pack(-MU, 2 * L)])
    draw = cv.draw(model, q, w, 2 * D + 1, RNG(0), noise="rotated", subsample=False)
    want = [exact(f, n=6), exact(f, -MU, 2 * L, n=6)]
    assert_allclose(line(draw).mean(-2), want, atol=1e-9)
    assert_allclose(line.mean(draw), want, atol=1e-9)
    assert np.abs(draw.eps[0] - draw.eps[1]).max() > 0.1


def test_a_rotation_sees_one_data_point():
    x, y = RNG(0).standard_normal((9, D)), np.where(np.arange(9) % 2, 1.0, -1.0)
    model = cv.models.logistic_regression(x, y)
    q = cv.families.Gaussian(D)
    draw = cv.draw(model, q, q.start(), 4 * (2 * D + 1), RNG(0), noise="rotated")
    seen = draw.index.reshape(2 * D + 1, 4)
    assert (seen == seen[0]).all() and len(set(seen[0])) > 1
    data, prior, variational = cv.terms(model, q)
    line = RP1(data) - CF(variational)
    assert_allclose(line.mean(draw), line(draw).mean(-2))
    assert_allclose(CF(prior)(draw).mean(-2), cv.exact.term_gradients(model, q, q.start())["prior"])


def test_words_that_fit_weights_refuse_rotations():
    model, q, _ = problem(wavy)
    draw = cv.draw(model, q, q.start(), 14, RNG(0), noise="rotated", subsample=False)
    lines = [word(cv.terms(model, q)[0]) for word in (cv.AQ, cv.LOO)]
    for ask in *lines, *(line.mean for line in lines):
        with pytest.raises(ValueError, match='samples without weights.*"pairs"'):
            ask(draw)


def test_rotations_are_whole_and_of_a_full_gaussian():
    model, full, _ = problem(wavy)
    wrong = [(full, M, f"2 d . 1 = 7 samples, not M={M}") for M in (1, 3, 6, 8, 15)]
    wrong += [(cv.families.DiagonalGaussian(D), 7, "full Gaussian q, not DiagonalGaussian")]
    for q, M, said in wrong:
        with pytest.raises(ValueError, match=said):
            cv.draw(model, q, q.start(), M, RNG(0), noise="rotated", subsample=False)
