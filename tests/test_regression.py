"""`cvlib.combining.regression` against refits, enumeration, quadrature and minimisers.

Unbiasedness is shown exactly: it holds for every law of e with mean 0 and covariance I, so e takes
a few values, slopes are a table of arbitrary numbers, and all outcomes of a draw are added up.
Each check is a function of the package, so that it can be run on copies with a bug (harness.py).
"""

import itertools

import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose
from scipy import linalg

from cvlib.combining import regression


def module(cv):
    return part(cv, "combining.regression")


# Laws of e with mean 0 and covariance I: nodes (n, d), probabilities (n,) ------------------------


def skew(p):
    """Two values, with probabilities p and 1 - p."""
    return np.array([[-np.sqrt((1 - p) / p)], [np.sqrt(p / (1 - p))]]), np.array([p, 1 - p])


def three():
    """Three values on a line; neither symmetric nor equally likely."""
    x = np.array([-1.0, 0.5, 3.0])
    p = np.linalg.solve([np.ones(3), x, x**2], [1, 0, 1.25])
    return x[:, None] / np.sqrt(1.25), p


def plane():
    """Four points of a plane: two skew coordinates, turned."""
    (a, p), (b, r) = skew(0.3), skew(0.6)
    nodes = np.array([[x, y] for x in a[:, 0] for y in b[:, 0]])
    c, s = np.cos(0.4), np.sin(0.4)
    return nodes @ np.array([[c, s], [-s, c]]), np.array([x * y for x in p for y in r])


def outcomes(nodes, p, B):
    """All B-tuples of nodes: which (n^B, B), e (n^B, B, d), and their probabilities."""
    which = np.array(list(itertools.product(range(len(p)), repeat=B)))
    return which, nodes[which], p[which].prod(-1)


def sym(A):
    return (A + np.swapaxes(A, -1, -2)) / 2


def assert_unbiased(got, prob, e, G, p):
    """The mean of a `Quadratic` over all outcomes is (E[G], sym E[G e^T]) over the nodes."""
    c = np.tensordot(prob, got.c, 1)
    A = np.tensordot(prob, got.A, 1)
    assert_allclose(c, p @ G, atol=1e-11)
    assert_allclose(A, sym(np.einsum("n,ni,nj->ij", p, G, e)), atol=1e-11)


def tables(rng, *shape):
    return rng.normal(size=shape) + 3


# Leave-one-out: exactly unbiased -----------------------------------------------------------------


def test_the_other_draws_are_unbiased_for_any_ridge(cv):
    rg, rng = module(cv), np.random.default_rng(0)
    for (nodes, p), B in ((three(), 2), (three(), 4), (plane(), 2), (plane(), 3), (plane(), 4)):
        G = tables(rng, *nodes.shape)
        which, e, prob = outcomes(nodes, p, B)
        for ridge in 0.05, 1.0, 30.0:
            assert_unbiased(rg.regress(e, G[which], ridge), prob, nodes, G, p)


def test_groups_left_out_are_unbiased(cv):
    """Pairs e, -e; and triples of turns by 120 degrees, which keep mean 0 and covariance I."""
    rg, rng = module(cv), np.random.default_rng(2)
    nodes, p = plane()
    c, s = -0.5, np.sqrt(0.75)
    turn = np.array([[c, s], [-s, c]])
    pairs, triples = [np.eye(2), -np.eye(2)], [np.eye(2), turn, turn @ turn]
    for group, n in (pairs, 2), (pairs, 3), (triples, 2), (triples, 3):
        k = len(group)
        G = tables(rng, k, *nodes.shape)  # slopes at the nodes of every partner
        which, _, prob = outcomes(nodes, p, n)
        e = np.concatenate([nodes[which] @ T for T in group], -2)
        slopes = np.concatenate([g[which] for g in G], -2)
        everywhere = (
            np.concatenate([nodes @ T for T in group]),
            np.concatenate(G),
            np.tile(p, k) / k,
        )
        for ridge in 0.2, 5.0:
            assert_unbiased(rg.regress(e, slopes, ridge, group=k), prob, *everywhere)
            rows = rg.rows(e, slopes, ridge, group=k)
            mean = rg.Quadratic(rows.c.mean(-2), rows.A.mean(-3))
            assert_unbiased(mean, prob, *everywhere)


def test_in_pairs_only_the_odd_part_is_regressed(cv):
    """G(e) - G(-e) on e through the origin, and the mean of G for c: by hand, draw by draw."""
    rg, rng = module(cv), np.random.default_rng(4)
    n, d, ridge = 5, 3, 0.7
    e, up, down = rng.normal(size=(3, n, d))
    got = rg.regress(np.append(e, -e, 0), np.append(up, down, 0), ridge, group=2)
    odd, A = (up - down) / 2, []
    for m in range(n):
        rest = np.arange(n) != m
        A_ = np.linalg.solve(2 * e[rest].T @ e[rest] + ridge * np.eye(d), 2 * e[rest].T @ odd[rest])
        A.append(np.outer(e[m], odd[m] - e[m] @ A_) + A_)
    assert_allclose(got.c, (up + down).mean(0) / 2)
    assert_allclose(got.A, sym(np.mean(A, 0)))


# What the fit is ---------------------------------------------------------------------------------


def refit(e, G, ridge, keep):
    """c and A by least squares on the draws of `keep`, the ridge as d more rows."""
    d = e.shape[1]
    X = np.column_stack([np.ones(keep.sum()), e[keep]])
    extra = np.sqrt(ridge) * np.eye(d + 1)[1:]
    beta = np.linalg.lstsq(np.append(X, extra, 0), np.append(G[keep], np.zeros((d, d)), 0))[0]
    return beta[0], beta[1:].T


def by_hand(e, G, ridge, group):
    """`rows`, one refit a draw."""
    B = len(e)
    c, A = [], []
    for m in range(B):
        keep = np.arange(B) % (B // group) != m % (B // group)
        c_, A_ = refit(e, G, ridge, keep)
        c.append(G[m] - A_ @ e[m])
        A.append(sym(np.outer(G[m] - c_ - A_ @ e[m], e[m]) + A_))
    return np.array(c), np.array(A)


def test_hat_values_are_refits(cv):
    rg, rng = module(cv), np.random.default_rng(5)
    for B, d, group in (6, 3, 1), (3, 5, 1), (4, 4, 1), (8, 3, 2), (6, 7, 2), (9, 4, 3), (6, 2, 3):
        e, G = rng.normal(size=(2, B, d))
        c, A = by_hand(e, G, 0.3, group)
        rows, mean = rg.rows(e, G, 0.3, group), rg.regress(e, G, 0.3, group=group)
        assert_allclose(rows.c, c, atol=1e-11)
        assert_allclose(rows.A, A, atol=1e-11)
        assert_allclose(mean.c, c.mean(0), atol=1e-11)
        assert_allclose(mean.A, A.mean(0), atol=1e-11)


def test_same_draws_are_least_squares(cv):
    rg, rng = module(cv), np.random.default_rng(6)
    for B, d in (7, 3), (3, 3), (2, 5):
        e, G = rng.normal(size=(2, B, d))
        for ridge in 0.1, 2.0:
            c, A = refit(e, G, ridge, np.ones(B, bool))
            got = rg.regress(e, G, ridge, others=False)
            assert_allclose(got.A, sym(A), atol=1e-12)
            assert_allclose(got.c, G.mean(0) - sym(A) @ e.mean(0), atol=1e-12)


def test_a_quadratic_has_no_noise(cv):
    """Whatever q and whichever draws, without a ridge: E[G] and E[G e^T] of a quadratic f."""
    rg, rng = module(cv), np.random.default_rng(7)
    runs, d = (2, 3), 4
    L = np.tril(rng.normal(size=(*runs, d, d))) + 2 * np.eye(d)
    mu, b = rng.normal(size=(2, *runs, d))
    H = sym(rng.normal(size=(*runs, d, d)))
    for B, group in (d + 2, 1), (2 * d + 2, 2):
        e = rng.normal(size=(*runs, B // group, d))
        e = e if group == 1 else np.concatenate([e, -e], -2)
        z = mu[..., None, :] + e @ L.mT
        G = (b[..., None, :] + z @ H) @ L
        c = ((b + (H @ mu[..., None])[..., 0])[..., None, :] @ L)[..., 0, :]
        for others in True, False:
            got = rg.regress(e, G, 0.0, others, group)
            assert_allclose(got.c, c, atol=1e-9)
            assert_allclose(got.A, L.mT @ H @ L, atol=1e-9)
        rows = rg.rows(e, G, 0.0, group)
        assert_allclose(rows.c, np.broadcast_to(c[..., None, :], rows.c.shape), atol=1e-9)


def test_runs_are_fits_of_their_own(cv):
    rg, rng = module(cv), np.random.default_rng(9)
    for B, d in (6, 3), (4, 5):
        e, G = rng.normal(size=(2, 2, 3, B, d))
        ridge = rng.uniform(0.5, 2, (2, 3))
        for f in rg.regress, rg.rows, rg.diagonal(rg.regress), rg.diagonal(rg.rows), rg.match:
            got, alone = f(e, G, ridge), f(e[1, 2], G[1, 2], ridge[1, 2])
            for a, b in zip(got, alone):
                assert_allclose(a[1, 2], b, atol=1e-12)
        for diagonal in False, True:
            got, alone = rg.gauge(e, G, 2, diagonal), rg.gauge(e[1, 2], G[1, 2], 2, diagonal)
            assert_allclose(np.array(got)[:, 1, 2], alone)


def test_a_diagonal_q_regresses_each_coordinate_on_its_own_draw(cv):
    rg, rng = module(cv), np.random.default_rng(10)
    B, d = 6, 3
    for group in 1, 2:
        e, G = rng.normal(size=(2, B, d))
        rows, mean = (
            rg.diagonal(rg.rows)(e, G, 0.6, group),
            rg.diagonal(rg.regress)(e, G, 0.6, group=group),
        )
        same = rg.diagonal(rg.regress)(e, G, 0.6, others=False)
        assert type(mean) is rg.Quadratic
        for i in range(d):
            one = np.s_[:, i : i + 1]
            c, A = by_hand(e[one], G[one], 0.6, group)
            assert_allclose(rows.c[one], c, atol=1e-12)
            assert_allclose(rows.A[:, i], A[:, 0, 0], atol=1e-12)
            assert_allclose([mean.c[i], mean.A[i]], [c.mean(), A.mean()], atol=1e-12)
            c, A = refit(e[one], G[one], 0.6, np.ones(B, bool))
            assert_allclose([same.c[i], same.A[i]], [c[0], A[0, 0]], atol=1e-12)


# The gauge ---------------------------------------------------------------------------------------


def test_the_gauge_is_unbiased(cv):
    """All outcomes of single draws and of pairs: |c|^2, |A + I|^2, A symmetric, and the rest."""
    rg, rng = module(cv), np.random.default_rng(11)
    nodes, p = plane()
    for B, group in (2, 1), (3, 1), (2, 2), (3, 2):
        G = tables(rng, group, *nodes.shape)
        which, e, prob = outcomes(nodes, p, B)
        draws = np.concatenate([e, -e][:group], -2)
        slopes = np.concatenate([g[which] for g in G], -2)
        x, P = np.concatenate([nodes, -nodes][:group]), np.tile(p, group) / group
        u = np.concatenate(G) + x
        c, A = P @ u, np.einsum("n,ni,nj->ij", P, u, x)
        for diagonal, square in (False, (sym(A) ** 2).sum()), (True, (np.diag(A) ** 2).sum()):
            got = rg.gauge(draws, slopes, group, diagonal)
            mean = [prob @ part for part in got]
            right = [c @ c, square, P @ (u**2).sum(1) - c @ c - square]
            assert_allclose(mean, right, rtol=1e-9)
            assert_allclose(got.removable, got.slope + got.curvature)
            assert_allclose(sum(got), ((slopes + draws) ** 2).sum(-1).mean(-1))
    assert_allclose(rg.gauge(e, -e), 0, atol=1e-20)  # at home


def test_the_gauge_compares_two_draws(cv):
    for group, B in (1, 1), (2, 2):
        with pytest.raises(ValueError, match=f"two groups; got {B} draws"):
            module(cv).gauge(np.ones((B, 2)), np.ones((B, 2)), group)


def test_the_ridge_of_a_gauge_is_noise_over_signal(cv):
    """s^2 and t^2, the variances of an entry of r and of A + I; between d / 100 and 100 d."""
    rg = module(cv)
    s2, t2, d = 0.3, 0.02, 5
    assert_allclose(rg.shrinkage(rg.Gauge(0.0, d**2 * t2, d * s2), d), s2 / t2)
    assert_allclose(rg.shrinkage(rg.Gauge(0.0, d * t2, d * s2), 1), s2 / t2)  # diagonal: d entries
    ends = rg.shrinkage(rg.Gauge(np.array([-2.0, 0.0, 1e9]), np.array([1.0, 0, 0]), np.ones(3)), d)
    assert_allclose(ends, [100 * d, 100 * d, d / 100])


# All rotations -----------------------------------------------------------------------------------


def nodes_2d(n=6):
    x, p = np.polynomial.hermite_e.hermegauss(n)
    p = p / p.sum()
    return np.array(list(itertools.product(x, x))), np.array([a * b for a in p for b in p])


def test_symmetrising_keeps_the_mean_and_lowers_noise(cv):
    """f = z1^3 z2 + z1 z2^2 by Gauss-Hermite nodes: E[grad^2 f] L (Price), with less variance."""
    L, mu = np.array([[1.3, 0.0], [0.4, 0.7]]), np.array([0.2, -0.5])
    e, p = nodes_2d()
    x, y = (mu + e @ L.T).T
    u = np.array([3 * x**2 * y + y**2, x**3 + 2 * x * y]).T
    H = np.array([[6 * x * y, 3 * x**2 + 2 * y], [3 * x**2 + 2 * y, 2 * x]])
    q, each = cv.families.Gaussian(2), np.zeros((len(e), 2, 2))
    model = cv.models.logistic_regression(np.eye(2), np.ones(2))
    rows = cv.RPS.pull(cv.draw(model, q, q.pack(mu, L), eps=e, subsample=False), u)
    each[:, *np.tril_indices(2)] = rows[:, 2:]
    price = np.tril(H @ p @ L)
    assert_allclose(np.tensordot(p, each, 1), price, atol=1e-10)
    rp1 = np.tril(u[:, :, None] * e[:, None, :])
    assert_allclose(np.tensordot(p, rp1, 1), price, atol=1e-10)
    noise = [p @ ((L.T @ (g - price)) ** 2).sum((-2, -1)) for g in (each, rp1)]
    assert noise[0] < noise[1]


# Values on scores --------------------------------------------------------------------------------


def assert_unbiased_rows(rows, prob, right):
    for m in range(rows.shape[-2]):
        assert_allclose(prob @ rows[:, m], right, atol=1e-12)


def test_the_baseline_is_unbiased_for_switches(cv):
    """All outcomes of three draws of two Bernoulli units; the gradient by enumeration."""
    rg = module(cv)
    q, f = np.array([0.3, 0.8]), np.array([1.0, -2.0, 0.5, 6.0])
    z = np.array(list(itertools.product([0.0, 1.0], repeat=2)))
    p = np.where(z == 1, q, 1 - q).prod(-1)
    which, S, prob = outcomes(z - q, p, 3)
    right = p @ (f[:, None] * (z - q))
    F = np.broadcast_to(q * (1 - q), (len(S), 2))
    for ridge in 0.1, 2.0:
        rows = rg.baseline(S, f[which], F, ridge)
        assert_unbiased_rows(rows, prob, right)
        assert_allclose(rg.baseline(S, f[which], F[..., None] * np.eye(2), ridge), rows, atol=1e-12)
    turn = np.array([[1.0, 0.5], [0.2, 2.0]])  # other parameters: the rows follow
    turned = rg.baseline(S @ turn, f[which], turn.T @ (F[..., None] * np.eye(2)) @ turn, 2.0)
    assert_allclose(turned, rows @ turn, atol=1e-11)


def test_the_baseline_of_a_softmax(cv):
    """F = diag(p) - p p^T is singular: no direction is lost, none invented."""
    rg = module(cv)
    p, f = np.array([0.2, 0.5, 0.3]), np.array([3.0, -1.0, 2.0])
    F = np.diag(p) - np.outer(p, p)
    which, S, prob = outcomes(np.eye(3) - p, p, 3)
    rows = rg.baseline(S, f[which], np.broadcast_to(F, (len(S), 3, 3)), 0.5)
    assert_unbiased_rows(rows, prob, p * (f - p @ f))
    never = rg.baseline(S, f[which], np.broadcast_to(F, (len(S), 3, 3)), 1e12)
    rest = (f[which].sum(-1, keepdims=True) - f[which]) / 2
    assert_allclose(never, (f[which] - rest)[..., None] * S, atol=1e-9)  # LOO
    S2 = np.append(S[..., :2], 0 * S[..., :1], -1)  # a parameter without any effect
    F2 = np.array([[F[0, 0], F[0, 1], 0], [F[1, 0], F[1, 1], 0], [0, 0, 0]])
    with_it = rg.baseline(S2, f[which], np.broadcast_to(F2, (len(S), 3, 3)), 0.5)
    assert_allclose(with_it, np.append(rows[..., :2], 0 * S[..., :1], -1), atol=1e-11)


def test_the_baseline_in_pairs(cv):
    """A unit with p = 1/4 from u on four steps, its partner from 1 - u."""
    rg, f = module(cv), np.array([2.0, -1.0])
    first, partner = np.array([1.0, 0, 0, 0]), np.array([0, 0, 0, 1.0])
    which, _, prob = outcomes(np.zeros((4, 1)), np.full(4, 0.25), 2)
    z = np.concatenate([first[which], partner[which]], -1)
    F = np.full((len(z), 1), 3 / 16)
    rows = rg.baseline(z[..., None] - 0.25, f[z.astype(int)], F, 0.7, group=2)
    assert_unbiased_rows(rows, prob, [3 / 16 * (f[1] - f[0])])


def test_the_baseline_by_refits(cv):
    rg, rng = module(cv), np.random.default_rng(13)
    S, f, T = rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=(3, 3))
    F, ridge = T @ T.T + np.eye(3), 0.8
    right = []
    for m in range(6):
        rest = np.arange(6) != m
        X = np.column_stack([np.ones(5), S[rest]])
        b = np.linalg.solve(X.T @ X + ridge * linalg.block_diag(0, F), X.T @ f[rest])
        right.append((f[m] - b[0] - S[m] @ b[1:]) * S[m] + F @ b[1:])
    assert_allclose(rg.baseline(S, f, F, ridge), right, atol=1e-11)
    linear = rg.baseline(S, 2 + S @ [1.0, -1, 3], F, 1e-9)  # coefficients: the natural gradient
    assert_allclose(linear, np.tile(F @ [1.0, -1, 3], (6, 1)), atol=1e-5)


# Batch and match ---------------------------------------------------------------------------------


def problem(rng, B=7, d=3):
    """A q that is not N(0, I), draws of it and scores that belong to nothing."""
    L, mu = np.tril(rng.normal(size=(d, d))) + 2 * np.eye(d), rng.normal(size=d)
    e, g = rng.normal(size=(2, B, d))
    return mu, L, e, 1.5 * g + 0.3


def test_match_solves_its_equation_in_any_coordinates(cv):
    """The closed form of Cai et al. in z, with a matrix root: 2 V (I + (I + 4 U V)^1/2)^-1."""
    rg, rng = module(cv), np.random.default_rng(14)
    for lam, B in (0.5, 7), (20.0, 7), (3.0, 2):
        mu, L, e, g = problem(rng, B)
        z = mu + e @ L.T
        zbar, gbar, k = z.mean(0), g.mean(0), lam / (1 + lam)
        U = lam * np.cov(g.T, bias=True) + k * np.outer(gbar, gbar)
        V = L @ L.T + lam * np.cov(z.T, bias=True) + k * np.outer(mu - zbar, mu - zbar)
        root = linalg.sqrtm(np.eye(3) + 4 * U @ V)
        Sigma = 2 * V @ np.linalg.inv(np.eye(3) + root)
        move = rg.match(e, g @ L, lam)
        new = L @ move.K
        assert_allclose(move.K, np.tril(move.K))
        assert (np.diag(move.K) > 0).all()
        assert_allclose(new @ new.T, Sigma, atol=1e-8)
        assert_allclose(Sigma @ U @ Sigma + Sigma, V, atol=1e-6)
        right = mu / (1 + lam) + k * (Sigma @ gbar + zbar)
        assert_allclose(mu + L @ move.shift, right, atol=1e-8)


def test_match_rests_at_a_gaussian_posterior_and_finds_it_at_once(cv):
    rg, rng = module(cv), np.random.default_rng(16)
    mu, L, e, _ = problem(rng)
    for lam in 0.1, 10.0:
        move = rg.match(e, -e, lam)  # there L^T score = -e
        assert_allclose(move.shift, 0, atol=1e-12)
        assert_allclose(move.K, np.eye(3), atol=1e-12)
    T = rng.normal(size=(3, 3))
    P, m = T @ T.T + np.eye(3), rng.normal(size=3)  # posterior N(m, P^-1)
    move = rg.match(e, -(mu + e @ L.T - m) @ P @ L, 1e10)
    assert_allclose(mu + L @ move.shift, m, atol=1e-5)
    new = L @ move.K
    assert_allclose(new @ new.T, np.linalg.inv(P), atol=1e-5)


def test_match_stays_positive_definite(cv):
    """With scores of any size and one draw."""
    rg, rng = module(cv), np.random.default_rng(18)
    for size in 1e-8, 1.0, 1e8:
        move = rg.match(rng.normal(size=(4, 1, 6)), size * rng.normal(size=(4, 1, 6)), 50.0)
        assert np.isfinite(move.K).all() and np.isfinite(move.shift).all()
        assert (np.diagonal(move.K, axis1=-2, axis2=-1) > 0).all()


def test_match_of_a_diagonal_q_takes_each_coordinate_alone(cv):
    rg, rng = module(cv), np.random.default_rng(19)
    e, G = rng.normal(size=(2, 5, 3))
    got = rg.diagonal(rg.match)(e, G, 4.0)
    for i in range(3):
        one = rg.match(e[:, i : i + 1], G[:, i : i + 1], 4.0)
        assert_allclose([got.shift[i], got.K[i]], [one.shift[0], one.K[0, 0]])


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


BAD = {
    "one draw": (lambda: regression.regress(normal(1, 3), normal(1, 3), 1.0), "no draw is indep"),
    "all draws lean": (lambda: regression.rows(normal(8, 3), normal(8, 3), 1.0, group=8),
                       "8 draws in groups of 8"),
    "half a pair": (lambda: regression.regress(normal(5, 3), normal(5, 3), 1.0, group=2),
                    "5 draws in groups of 2"),
    "no ridge, few draws": (lambda: regression.regress(normal(4, 3), normal(4, 3), 0.0),
                            "3 independent draws cannot tell 3 slopes"),
    "no ridge, few pairs": (lambda: regression.regress(normal(6, 3), normal(6, 3), 0.0, group=2),
                            "give a ridge > 0"),
    "negative ridge": (lambda: regression.regress(normal(5, 3), normal(5, 3), -1.0), "ridge must"),
    "endless ridge": (lambda: regression.regress(normal(5, 3), normal(5, 3), np.inf), "finite"),
    "other B": (lambda: regression.regress(normal(5, 3), normal(6, 3), 1.0), "need one B"),
    "baseline without ridge": (
        lambda: regression.baseline(normal(5, 2), normal(5), np.ones(2), 0.0),
        "give one > 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_is_wrong(name):
    act, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        act()
