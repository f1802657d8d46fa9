"""Ensembles as words and in steps: AQ, LB, a diagonal q's regression, and the Fisher matrices.

The loops are NumPy alone, written from the formulas in z, one run after the other, with a refit by
least squares for every draw that is left out. Means are sums over all outcomes of a draw.
"""

import dataclasses
import itertools
from unittest import mock

import autograd.numpy as anp
import numpy as np
import oracles
from harness import part
from numpy.testing import assert_allclose
from scipy.special import expit, softmax
from test_coupled import Switches, paired_draw
from test_nongaussian import probability, states
from test_regression import baseline_by_refits, by_hand

RNG = np.random.default_rng
d = 3
X = RNG(1).uniform(-1.5, 1.5, (8, d))
y = np.where(RNG(2).random(8) < 0.6, 1.0, -1.0)
SD = 1.3


def logistic(cv, family="Gaussian"):
    """Model, family, and data + prior - variational."""
    model = cv.models.logistic_regression(X, y, SD)
    q = getattr(cv.families, family)(d)
    data, prior, variational = cv.terms(model, q)
    return model, q, data + prior - variational


def score(z):
    """grad log p(x, z), (..., d)."""
    return (y * expit(-y * (z @ X.T))) @ X - z / SD**2


def weights(q, runs=2, seed=3):
    """w (runs, D) of no special value."""
    w = q.start((runs,)) + RNG(seed).uniform(-0.4, 0.4, (runs, q.D))
    return np.where(np.isin(np.arange(q.D), q.diag), np.abs(w), w)


def full(q, w):
    """mu (d,) and L (d, d) of one run."""
    mu, L = q.unpack(w)
    return mu, (L if q.full else np.diag(L))


def joined(q, mu, L):
    return np.concatenate([mu, L[np.tril_indices(d)] if q.full else np.diag(L)])


def by_refits(q, e, G, ridge, group):
    """c (B, d) and A (B, d, d) of every draw, on the others; of a diagonal q one by one."""
    if q.full:
        return by_hand(e, G, ridge, group)
    each = [by_hand(e[:, [i]], G[:, [i]], ridge, group) for i in range(d)]
    c, A = np.stack([c[:, 0] for c, _ in each], -1), np.stack([A[:, 0, 0] for _, A in each], -1)
    return c, A[..., None] * np.eye(d)


def test_rows_of_all_quadratics_are_refits(cv):
    """Row m of AQ: draw m, and the quadratic fitted to the draws outside its own group."""
    for family, noise, ridge in itertools.product(
        ("Gaussian", "DiagonalGaussian"), ("plain", "pairs"), (None, 0.4)
    ):
        model, q, f = logistic(cv, family)
        draw = cv.draw(model, q, weights(q), 6, RNG(0), subsample=False, noise=noise)
        word = cv.AQ if ridge is None else cv.all_quadratics(ridge)
        line, strength = word(f), ridge or (0.3 if q.full else 0.1)
        got, mean = line(draw), line.mean(draw)
        for r in range(2):
            mu, L = full(q, draw.w[r])
            e, back = draw.eps[r], np.linalg.inv(L).T
            G = score(mu + e @ L.T) @ L + e  # the slope of -log q is e
            rows = zip(*by_refits(q, e, G, strength, 2 if noise == "pairs" else 1))
            right = [joined(q, back @ c, back @ A) for c, A in rows]
            assert_allclose(got[r], right, rtol=1e-8, atol=1e-10)
            assert_allclose(mean[r], np.mean(right, 0), rtol=1e-8, atol=1e-10)


def test_words_that_look_at_all_samples_add_up(cv):
    """A sum of lines is the sum of their arrays, whichever of them comes first; so are means."""
    for family in "Gaussian", "DiagonalGaussian":
        model, q, _ = logistic(cv, family)
        data, prior, variational = cv.terms(model, q)
        parts = [
            (1, cv.RP1(data)), (-1, cv.AQ(data)), (2, cv.RPS(prior)), (-3, cv.RP2(prior)),
            (1, cv.PR(prior)), (0.5, cv.CF(prior)), (-1, cv.CF(variational)), (1, cv.SF(data)),
        ]  # fmt: skip
        draw = cv.draw(model, q, weights(q), 6, RNG(0), subsample=False)
        rows = [c * line(draw) for c, line in parts]
        for order in parts, parts[::-1]:
            line = sum((c * line for c, line in order[1:]), order[0][0] * order[0][1])
            assert_allclose(line(draw), sum(rows), rtol=1e-9, atol=1e-9)
            assert_allclose(line.mean(draw), sum(rows).mean(-2), rtol=1e-9, atol=1e-9)


def test_a_gaussian_target_in_one_natural_step(cv):
    """Without a ridge AQ of a quadratic has no noise: one Newton step ends at the posterior."""
    model = cv.models.linear_regression(X, y, SD, 0.6)
    P = X.T @ X / 0.36 + np.eye(d) / SD**2
    mean = np.linalg.solve(P, X.T @ y / 0.36)
    q = cv.families.Gaussian(d)
    data, prior, variational = cv.terms(model, q)
    h = cv.all_quadratics(ridge=0)(data + prior - variational)
    rule = cv.rules.natural(positive=False, reach=1e9)
    right = joined(q, mean, np.linalg.cholesky(np.linalg.inv(P)))
    for noise, M in ("plain", d + 2), ("pairs", 2 * d + 2):
        path = cv.optimize.sgd(
            model, q, h, lr=1.0, rule=rule, steps=1, M=M, w=weights(q), rng=RNG(0),
            subsample=False, noise=noise,
        )  # fmt: skip
        assert_allclose(path.w, [right, right], rtol=1e-6, atol=1e-8)


def test_a_step_takes_the_mean_at_once(cv):
    """The loop's gradient with AQ alone is the mean of its rows over N, with or without a run."""
    for family in "Gaussian", "DiagonalGaussian":
        model, q, f = logistic(cv, family)
        for see in {"batch": 3}, {"subsample": False, "noise": "pairs"}:
            how = cv.Sampling(**see)
            plan = cv.optimize.Noisy(model, q, cv.AQ(f), lr=1.0, M=6, sampling=how)
            w = weights(q)
            for start in w, w[0]:
                state = plan.first(RNG(0), w=start)
                draw = cv.draw(model, q, start, 6, RNG(0), sampling=how)
                g, finite, _ = plan.gradient(state)
                right = cv.AQ(f)(draw).mean(-2) / model.N
                assert_allclose(g, right, rtol=1e-9, atol=1e-11)
                assert finite.all() and finite.shape == start.shape[:-1]
            near = cv.taylor_z(cv.terms(model, q)[0])
            c, sure = cv.CF(near) - cv.RP1(near), cv.rules.fixed(0.5)
            plan = dataclasses.replace(plan, cvs=[c], weights=sure)
            right = (cv.AQ(f)(draw) + 0.5 * c(draw)).mean(-2) / model.N
            assert_allclose(plan.gradient(plan.first(RNG(0), w=w[0]))[0], right)


def test_the_linear_baseline_for_switches(cv):
    """All outcomes of two samples, and of two pairs: the gradient by enumeration."""
    problem = Switches(d=2)
    f = problem.model(cv)[2]
    z, P = problem.all_samples(2)
    for word in cv.LB, cv.linear_baseline(3.0):
        rows = word(f)(problem.draw_of(cv, z))
        assert_allclose(np.tensordot(P, rows, 1), [problem.exact] * 2, atol=1e-10)
    u, p = problem.all_pairs()
    which = np.array(list(itertools.product(range(len(u)), repeat=2)))
    rows = cv.LB(f)(paired_draw(cv, problem, u[which]))
    mean = np.tensordot(p[which].prod(-1), rows, 1)
    assert_allclose(mean.mean(0), problem.exact, atol=1e-10)


def test_the_linear_baseline_by_refits(cv):
    """(f - b0 - b.S) S + F b, b fitted to the other samples, for a family with a full F."""
    lik = lambda z, row: row[0] * (0.3 * z[..., 0] - 2.0 * z[..., 1] + z[..., 2])
    model = cv.models.Model(lik, lambda z: 0.2 * z[..., 0], np.ones(1), 3)
    q = cv.families.Categorical(1, 3)
    data, prior, _ = cv.terms(model, q)
    w = np.array([[0.2, -0.5, 0.9], [1.0, 0.3, -0.1]])
    draw = cv.draw(model, q, w, 5, RNG(0), subsample=False)
    for ridge, word in (0.5, cv.LB), (2.0, cv.linear_baseline(2.0)):
        got = word(data + prior)(draw)
        for r in range(2):
            p, f = softmax(w[r]), draw.z[r] @ [0.5, -2.0, 1.0]
            right = baseline_by_refits(draw.z[r] - p, f, np.diag(p) - np.outer(p, p), ridge)
            assert_allclose(got[r], right, atol=1e-9)


def test_fisher_of_discrete_families(cv):
    """E[S S^T] over all values of z, S = z - E z."""
    for q in cv.families.Bernoulli(2), cv.families.Categorical(2, 3):
        W, z = RNG(0).uniform(-1, 1, (2, q.D)), states(q)
        for w, got in zip(W, q.fisher(W)):
            P = probability(q, w, z)
            S = z - P @ z
            got = got if got.ndim == 2 else np.diag(got)
            assert_allclose(got, (P[:, None] * S).T @ S, atol=1e-12)


def gauged(e, G):
    """|c|^2, |A + I|^2 and the rest of mean |G + e|^2 of a diagonal q, pair of draws by pair."""
    u, parts = G + e, np.zeros(2)
    pairs = list(itertools.permutations(range(len(e)), 2))
    for k, m in pairs:
        parts += u[k] @ u[m], (u[k] * e[k]) @ (u[m] * e[m])
    slope, curvature = parts / len(pairs)
    return slope, curvature, (u**2).sum(-1).mean() - slope - curvature


def natural_move(w, c, A, rho, reach):
    """One natural step of a diagonal q from the slope and curvature of log p - log q, in z."""
    mu, sd = w[:d], w[d:]
    sd = sd / np.sqrt((1 + (1 - rho * A) ** 2) / 2)
    step = rho * sd**2 / w[d:] * c
    return np.concatenate([mu + np.clip(step, -reach * w[d:], reach * w[d:]), sd])


def regressed_loop(q, w, noise, most, reach):
    """Weights (T + 1, D), and steps at rest and ridge at the end."""
    steps, ridge, path = 0, 0.1, [w]
    for e in noise:
        G = score(w[:d] + w[d:] * e) * w[d:]
        slope, curvature, residual = gauged(e, G)
        c, A = (x.mean(0) for x in by_refits(q, e, G + e, ridge, 1))
        A = np.diag(A)
        # rho falls unless a larger share of slope or curvature than rho is signal
        if steps == 0 or (slope / (c @ c) <= 1 / steps and curvature / (A @ A) <= 1 / steps):
            steps += 1
        w = natural_move(w, c, A, min(1 / steps, most), reach)
        ridge = max(residual / max(slope + curvature, residual / 100), 0.01)
        path.append(w)
    return np.array(path), (steps, ridge)


def test_steps_of_a_diagonal_q_are_their_loop(cv):
    """From near and far, held or not; rho falls in some steps and not in others."""
    model, q, _ = logistic(cv, "DiagonalGaussian")
    near, far, narrow = weights(q)[0], weights(q)[1], q.pack(np.full(d, -3.0), np.full(d, 0.2))
    far[:d] += 4.0
    plans, seen, T = part(cv, "ascent.plans"), set(), 9
    for w, how in itertools.product((near, far, narrow), ({}, {"reach": 0.1}, {"most": 0.7})):
        plan = plans.Regressed(model, q, M=8, **how)
        state = plan.first(RNG(7), w)
        noise = RNG(7).standard_normal((T, 8, d))  # as the steps draw it
        right, memory = regressed_loop(q, w, noise, plan.most, plan.reach)
        for t in range(T):
            state = plan.step(state)
            assert_allclose(state.w, right[t + 1], rtol=1e-6, atol=1e-8)
        assert_allclose(state.memory, memory, rtol=1e-5)
        seen.add(memory[0])
    assert len(seen) >= 3, seen


def test_a_diagonal_q_rests_at_a_gaussian_posterior(cv):
    """There the scores are -e: the gauge is zero, and no step is made."""
    prior = lambda z: -0.5 * anp.sum(z**2, -1)
    model = cv.models.Model(lambda z, b: 0 * b[0] * z[..., 0], prior, np.ones(1), d)
    plan = part(cv, "ascent.plans").Regressed(model, cv.families.DiagonalGaussian(d))
    state = plan.step(plan.first(RNG(0)))
    assert_allclose(state.w, [0, 0, 0, 1, 1, 1], atol=1e-9)
    assert state.memory[0] == 1


def test_a_mean_of_one_s_own_is_tried_once(cv):
    """Against the rows of a reader's pull; those of AQ are not made."""
    made, Base = [], type(cv.AQ.route.pull)
    rows = Base.__call__
    own = type("Own", (Base,), {"__module__": __name__})
    word = type(cv.AQ)("own", "", cv.AQ.route._replace(pull=own()), needs="gaussian")
    q, model = cv.families.Gaussian(2), oracles.build(cv, oracles.problem("logistic"))
    data, draw = cv.terms(model, q)[0], cv.draw(model, q, q.start(), 8, np.random.default_rng(0))
    noted = lambda self, *given: made.append(type(self)) or rows(self, *given)
    with mock.patch.object(Base, "__call__", noted):
        means = [line.mean(draw) for line in (word(data), word(data), cv.AQ(data))]
    assert made == [own] and np.array_equal(means[0], means[2])
