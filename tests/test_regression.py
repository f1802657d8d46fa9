"""`cvlib.recipe.regression` against refits, enumeration, quadrature and minimisers.

Unbiasedness is shown exactly: it holds for every law of e with mean 0 and covariance I, so e takes
a few values, slopes are a table of arbitrary numbers, and all outcomes of a draw are added up.
"""

import itertools

import numpy as np
from harness import part
from numpy.testing import assert_allclose
from scipy import linalg


def module(cv):
    return part(cv, "recipe.regression")


# Laws of e with mean 0 and covariance I: nodes (n, d), probabilities (n,)
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
    """The mean of a `Fitted` over all outcomes is (E[G], sym E[G e^T]) over the nodes."""
    c = np.tensordot(prob, got.c, 1)
    A = np.tensordot(prob, got.A, 1)
    assert_allclose(c, p @ G, atol=1e-11)
    assert_allclose(A, sym(np.einsum("n,ni,nj->ij", p, G, e)), atol=1e-11)


def tables(rng, *shape):
    return rng.normal(size=shape) + 3


def test_the_other_draws_are_unbiased_for_any_ridge(cv):
    """Single draws; pairs e, -e; triples of turns by 120 degrees, with mean 0 and covariance I."""
    rg, rng = module(cv), np.random.default_rng(0)
    I, c, s = np.eye(2), -0.5, np.sqrt(0.75)
    turn = np.array([[c, s], [-s, c]])
    for (nodes, p), group, sizes in (
        (three(), [np.eye(1)], (2, 4)), (plane(), [I], (2, 3, 4)), (plane(), [I, -I], (2, 3)),
        (plane(), [I, turn, turn @ turn], (2, 3)),
    ):  # fmt: skip
        k = len(group)
        G = tables(rng, k, *nodes.shape)  # slopes at the nodes of every partner
        everywhere = np.concatenate([nodes @ T for T in group])
        for n, ridge in itertools.product(sizes, (0.05, 1.0, 30.0)):
            which, _, prob = outcomes(nodes, p, n)
            e = np.concatenate([nodes[which] @ T for T in group], -2)
            slopes = np.concatenate([g[which] for g in G], -2)
            mean, rows = (f(e, slopes, ridge, group=k) for f in (rg.regress, rg.rows))
            for got in mean, rg.Fitted(rows.c.mean(-2), rows.A.mean(-3)):
                assert_unbiased(got, prob, everywhere, np.concatenate(G), np.tile(p, k) / k)


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
        found = *rg.rows(e, G, 0.3, group), *rg.regress(e, G, 0.3, group=group)
        for got, right in zip(found, (c, A, c.mean(0), A.mean(0))):
            assert_allclose(got, right, atol=1e-11)


def test_runs_are_fits_of_their_own(cv):
    rg, rng = module(cv), np.random.default_rng(9)
    for B, d in (6, 3), (4, 5):
        e, G = rng.normal(size=(2, 2, 3, B, d))
        ridge = rng.uniform(0.5, 2, (2, 3))
        for f in rg.regress, rg.rows, rg.diagonal(rg.regress), rg.diagonal(rg.rows):
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
        rows = rg.diagonal(rg.rows)(e, G, 0.6, group)
        mean = rg.diagonal(rg.regress)(e, G, 0.6, group=group)
        assert type(mean) is rg.Fitted
        for i in range(d):
            one = np.s_[:, i : i + 1]
            c, A = by_hand(e[one], G[one], 0.6, group)
            assert_allclose(rows.c[one], c, atol=1e-12)
            assert_allclose(rows.A[:, i], A[:, 0, 0], atol=1e-12)
            assert_allclose([mean.c[i], mean.A[i]], [c.mean(), A.mean()], atol=1e-12)


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


def test_the_ridge_of_a_gauge_is_noise_over_signal(cv):
    """s^2 and t^2, the variances of an entry of r and of A + I; between d / 100 and 100 d."""
    rg = module(cv)
    s2, t2, d = 0.3, 0.02, 5
    assert_allclose(rg.shrinkage(rg.Gauge(0.0, d**2 * t2, d * s2), d), s2 / t2)
    assert_allclose(rg.shrinkage(rg.Gauge(0.0, d * t2, d * s2), 1), s2 / t2)  # diagonal: d entries
    ends = rg.shrinkage(rg.Gauge(np.array([-2.0, 0.0, 1e9]), np.array([1.0, 0, 0]), np.ones(3)), d)
    assert_allclose(ends, [100 * d, 100 * d, d / 100])


def baseline_by_refits(S, f, F, ridge):
    """(f - b0 - b.S) S + F b for every draw, with b0 and b fitted to the others."""
    rows = []
    for m in range(len(f)):
        rest = np.arange(len(f)) != m
        X = np.column_stack([np.ones(len(f) - 1), S[rest]])
        normal = X.T @ X + ridge * linalg.block_diag(0, F)
        b = np.linalg.lstsq(normal, X.T @ f[rest], rcond=1e-10)[0]  # any, where F is singular
        rows.append((f[m] - b[0] - S[m] @ b[1:]) * S[m] + F @ b[1:])
    return np.array(rows)


def test_the_baseline_of_a_softmax(cv):
    """F = diag(p) - p p^T is singular: no direction is lost, none invented."""
    rg = module(cv)
    p, f = np.array([0.2, 0.5, 0.3]), np.array([3.0, -1.0, 2.0])
    F = np.diag(p) - np.outer(p, p)
    which, S, prob = outcomes(np.eye(3) - p, p, 3)
    rows = rg.baseline(S, f[which], np.broadcast_to(F, (len(S), 3, 3)), 0.5)
    assert_allclose(np.tensordot(prob, rows, 1), [p * (f - p @ f)] * 3, atol=1e-12)
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
    assert_allclose(np.tensordot(prob, rows, 1), [[3 / 16 * (f[1] - f[0])]] * 4, atol=1e-12)


def test_the_baseline_by_refits(cv):
    rg, rng = module(cv), np.random.default_rng(13)
    S, f, T = rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=(3, 3))
    F, ridge = T @ T.T + np.eye(3), 0.8
    right = baseline_by_refits(S, f, F, ridge)
    assert_allclose(rg.baseline(S, f, F, ridge), right, atol=1e-11)
    turned = rg.baseline(S @ T, f, T.T @ F @ T, ridge)  # other parameters: the rows follow
    assert_allclose(turned, right @ T, atol=1e-9)
    diagonal = np.diag(F)
    right = baseline_by_refits(S, f, np.diag(diagonal), ridge)
    assert_allclose(rg.baseline(S, f, diagonal, ridge), right, atol=1e-11)
    linear = rg.baseline(S, 2 + S @ [1.0, -1, 3], F, 1e-9)  # coefficients: the natural gradient
    assert_allclose(linear, np.tile(F @ [1.0, -1, 3], (6, 1)), atol=1e-5)
