"""`cvlib.combine` against least squares, minimisers, enumeration and brute force."""

from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
from harness import part
from numpy.testing import assert_allclose


def with_other_rules(cv):
    """`combine`, and the rules for weights that chapters compare it with."""
    return SimpleNamespace(**vars(part(cv, "experiments.weights")) | vars(cv.combine))


def sample(L=3, M=6, D=4, runs=(), seed=0):
    """Gradients h (..., M, D) and variates C (..., L, M, D) that explain a part of h."""
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((*runs, L, M, D)) * rng.uniform(0.5, 2, (L, 1, 1))
    explained = np.einsum("l,...lmd->...md", np.arange(1, L + 1), C)
    return 1 + rng.standard_normal((*runs, M, D)) - explained, C


def stacked(h, C):
    """One least-squares problem: rows (M D), columns L, and the right-hand side."""
    return C.reshape(len(C), -1).T, h.ravel()


def by_least_squares(h, C, *rows):
    """The a with the least |h + C a|^2 over all samples, with more rows (A, b) if there are any."""
    A, b = stacked(h, C)
    A, b = np.vstack([A, *(a for a, _ in rows)]), np.concatenate([b, *(b for _, b in rows)])
    return np.linalg.lstsq(A, -b)[0]


def test_rules_are_least_squares(cv):
    """Without a prior; with D v0 |a|^2 as L more rows; with imagined samples that say V0; every
    coordinate by itself. One variate is a case of its own."""
    cb = with_other_rules(cv)
    for L in 1, 3:
        h, C = sample(L=L, M=4, D=2)
        seen = cb.moments(h, C)
        ridge = lambda size: (np.sqrt(size) * np.eye(L), np.zeros(L))
        assert_allclose(cb.empirical_weights(seen), by_least_squares(h, C))
        right = by_least_squares(h, C, ridge(2 * 0.7))
        assert_allclose(cb.bayes_weights(seen, 0.7, D=2), right)
        h0, C0 = sample(L=L, M=5, D=2, seed=7)
        T_cc, T_hc = np.einsum("lmd,kmd->lk", C0, C0), np.einsum("lmd,md->l", C0, h0)
        right = by_least_squares(h, C, stacked(h0, C0))
        assert_allclose(cb.general_weights(seen, T_cc, T_hc), right)
        both = cb.moments(np.append(h, h0, 0), np.append(C, C0, 1))
        for a, b in zip(cb.posterior_moments(seen, T_cc, T_hc, n0=5), both):
            assert_allclose(a, b)
        each = [by_least_squares(h[:, [d]], C[:, :, [d]], ridge(0.3)) for d in range(2)]
        assert_allclose(cb.coordinate_weights(h, C, v0=0.3), np.transpose(each), strict=True)


def test_bad_scales_with_a_regulariser(cv):
    """1e-8 beside 1e8 with v0 > 0, against exact rational arithmetic by Cramer's rule."""
    cb, h = with_other_rules(cv), [2, 5, 1]  # M = 3 samples of D = 1
    c1, c2 = [Fraction(x, 10**8) for x in (1, 2, -1)], [Fraction(x * 10**8) for x in (3, 1, 1)]
    ridge = Fraction(1, 10**17)  # D v0 / M, of the size of c1's own moment
    dot = lambda x, y: sum(a * b for a, b in zip(x, y)) / Fraction(3)
    s11, s12, s22 = dot(c1, c1) + ridge, dot(c1, c2), dot(c2, c2) + ridge
    b1, b2, det = dot(c1, h), dot(c2, h), s11 * s22 - s12**2
    right = [(s12 * b2 - s22 * b1) / det, (s12 * b1 - s11 * b2) / det]
    C = np.array([c1, c2], float)[:, :, None]
    a = cb.bayes_weights(cb.moments(np.array(h, float)[:, None], C), 3e-17, D=1)
    assert_allclose(a, np.array(right, float), rtol=1e-9)


def test_singular_sets(cv):
    """A repeated variate shares the weight, an all-zero one gets none, the fit is the same."""
    cb = with_other_rules(cv)
    h, C = sample(L=2)
    alone = cb.empirical_weights(cb.moments(h, C))
    more = np.stack([C[0], C[1], C[0], 0 * C[0]])
    a = cb.empirical_weights(cb.moments(h, more))
    assert_allclose(a, [alone[0] / 2, alone[1], alone[0] / 2, 0], atol=1e-12)
    assert_allclose(cb.combine(h, more, a), cb.combine(h, C, alone))
    scaled = np.stack([C[0], C[1], 1e4 * C[0]])  # the same space in other units
    a = cb.empirical_weights(cb.moments(h, scaled))
    assert_allclose(cb.combine(h, scaled, a), cb.combine(h, C, alone))
    h, C = sample(L=9, M=2, D=3)  # more variates than numbers: h is fitted exactly
    a = cb.empirical_weights(cb.moments(h, C))
    assert_allclose(cb.combine(h, C, a), np.zeros((2, 3)), atol=1e-10)


def test_nearly_equal_variates_are_told_apart(cv):
    """Two variates that differ by 1e-5 of their size, and h made of the difference."""
    _, C = sample(L=2)
    C[1] = C[0] + 1e-5 * C[1]
    h = 3e5 * (C[1] - C[0]) + C[0]
    a = cv.combine.empirical_weights(cv.combine.moments(h, C))
    assert_allclose(a, [3e5 - 1, -3e5], rtol=1e-4)


def test_moving_moments_by_brute_force(cv):
    """Discounted sums over all past samples, written out, and the paper's M_eff."""
    B = 2
    for L, gamma in product((2, 12), (0.0, 0.3, 0.9)):  # 0: the plain pooled mean
        steps = [sample(L=L, M=B, D=3, seed=s) for s in range(5)]
        state = cv.combine.start(L)
        for t, (h, C) in enumerate(steps, start=1):
            state = cv.combine.update(state, h, C, gamma)
            count = [(1 - gamma) ** (t - s) for s in range(1, t + 1)]  # by age now
            CC = sum(n * np.einsum("lmd,kmd->lk", C, C) for n, (_, C) in zip(count, steps))
            Ch = sum(n * np.einsum("lmd,md->l", C, h) for n, (h, C) in zip(count, steps))
            assert_allclose(state.CC, CC / (B * sum(count)))
            assert_allclose(state.Ch, Ch / (B * sum(count)))
            assert_allclose(state.M, B * sum((1 - gamma) ** k for k in range(1, t + 1)))


def test_zero_weights_before_the_first_step(cv):
    for v0, runs in (0.0, ()), (1e-3, ()), (1e-3, (2, 5)):
        a = cv.combine.bayes_weights(cv.combine.start(3, runs), v0, 4)
        assert_allclose(a, np.zeros((*runs, 3)), atol=0, strict=True)


def test_batched_equals_looped(cv):
    cb, runs = with_other_rules(cv), (2, 3)
    h, C = sample(L=3, M=4, D=5, runs=runs)

    def moving(h, C):
        state = cb.update(cb.start(3, h.shape[:-2]), h, C, 0.1)
        return cb.update(state, 2 - h, C, 0.1)

    def each_rule(h, C):
        moments = cb.moments(h, C)
        return {
            "moving CC": moving(h, C).CC, "moving Ch": moving(h, C).Ch,
            "bayes": cb.bayes_weights(moments, 0.3, 5), "empirical": cb.empirical_weights(moments),
            "coordinate": cb.coordinate_weights(h, C, 0.3),
            **dict(zip(("ridge", "its penalty"), cb.ridge_weights(h, C, folds=2), strict=True)),
            "gradient": cb.combine(h, C, cb.coordinate_weights(h, C)),
        }  # fmt: skip

    batched = each_rule(h, C)
    for r in np.ndindex(runs):
        for name, alone in each_rule(h[r], C[r]).items():
            assert_allclose(batched[name][r], alone, rtol=1e-7, err_msg=name)


def test_v0_broadcasts_against_runs(cv):
    seen, v0 = cv.combine.moments(*sample(runs=(5,))), np.array([[0.0], [0.1], [1.0]])
    alone = [cv.combine.bayes_weights(seen, v, 4) for v in v0[:, 0]]
    assert_allclose(cv.combine.bayes_weights(seen, v0, 4), alone, strict=True)


def test_combine(cv):
    h, C = sample(L=3, M=2, D=4)
    a = np.array([2.0, -1.0, 0.5])
    assert_allclose(cv.combine.combine(h, C, a), h + 2 * C[0] - C[1] + 0.5 * C[2])
    by_coordinate = np.outer(a, [1.0, 0.0, -1.0, 2.0])
    g = cv.combine.combine(h, C, by_coordinate)
    assert_allclose(cv.combine.mean(h, C, by_coordinate), (g[0] + g[1]) / 2)
    for d in range(4):
        alone = cv.combine.combine(h[:, [d]], C[:, :, [d]], by_coordinate[:, d])
        assert_allclose(g[:, [d]], alone)


def test_ridge_weights(cv):
    """The penalty is the one with the least left-out risk, each term by least squares."""
    cb = with_other_rules(cv)
    for D, noise, penalties in (2, 5, [1e-3, 0.1, 1, 10, 1e3]), (3, 2, [0.01, 1, 100]):
        # the second: L = D = number of penalties, where axes could be mistaken for one another
        h, C = sample(L=3, M=6, D=D, seed=3)
        h = h + noise * np.random.default_rng(5).standard_normal(h.shape)  # some penalty pays

        def fit(rows, p):
            size = p * (C[:, rows] ** 2).sum() / 3  # n p t
            return by_least_squares(h[rows], C[:, rows], (np.sqrt(size) * np.eye(3), np.zeros(3)))

        def left_out(p):
            miss = lambda out: h[out] + np.tensordot(fit(~out, p), C[:, out], 1)
            return sum((miss(np.arange(6) % 3 == k) ** 2).sum() for k in range(3))

        a, p = cb.ridge_weights(h, C, penalties, folds=3)
        right = min(penalties, key=left_out)
        assert right not in (penalties[0], penalties[-1])  # else the choice would prove nothing
        assert p == right
        assert_allclose(a, fit(slice(None), right))


def test_empty_sets(cv):
    cb, (h, C) = cv.combine, sample(L=0)
    a = cb.bayes_weights(cb.moments(h, C), 1e-3, 4)
    assert a.shape == (0,)
    assert_allclose(cb.combine(h, C, a), h)
    assert cb.update(cb.start(0), h, C, 0.1).Ch.shape == (0,)
