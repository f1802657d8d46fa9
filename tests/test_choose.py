"""Reports and choices against enumeration, least squares by NumPy, closed forms and made-up clocks.

The checks take the package, so that they can be run on copies with a bug (tests/harness.py).
"""

import json
from itertools import combinations
from pathlib import Path
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose

import cvlib
from benchmarks import choose as bench


def trained(cv):
    """Quadratics that learn along the way."""
    return part(cv, "experiments.trained")


def logistic(cv, N=30, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, d))
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-X @ np.ones(d))), 1.0, -1.0)
    model = cv.models.logistic_regression(X, y)
    q = cv.families.Gaussian(d)
    return model, q, q.start() + 0.1 * rng.standard_normal(q.D)


def own(cv, spend=lambda value: value, N=6):
    """A model of one's own that tells `spend` of every row it sees."""
    x = np.linspace(-1, 1, N)
    log_lik = lambda z, batch: spend(-0.5 * (batch[0] - anp.tanh(z[..., 0]) * z[..., 1]) ** 2)
    log_prior = lambda z: -0.25 * anp.sum(z**4, -1)
    return cv.models.Model(log_lik, log_prior, x, dim=2)


def flat(cv, model, q, subsample=True):
    """Costs that are the same for every set."""
    table = cv.candidates(model, q, subsample)
    names = [[base, *(f"{base} with {c}" for c in cvs)] for base, (_, cvs) in table.items()]
    return {name: 1.0 for each in names for name in each}


# The ELBO ------------------------------------------------------------------------------------


def test_elbo_by_quadrature(cv):
    model, q, w = logistic(cv)
    w = np.stack([w, q.start()])
    found = cv.elbo(model, q, w, 4000, np.random.default_rng(0))
    z = (found.value - cv.exact.elbo(model, q, w)) / found.error
    assert np.abs(z).max() < 4.5 and (found.error < 0.25).all()
    right, sizes, real = cv.elbo(model, q, w[0], 4000, np.random.default_rng(1)), [], cv.draw

    def drawn(*given, **how):
        sizes.append(given[3])
        return real(*given, **how)

    with mock.patch.multiple(part(cv, "choosing"), CHUNK=7 * model.N, draw=drawn):
        in_parts = cv.elbo(model, q, w[0], 4000, np.random.default_rng(1))
    assert_allclose(in_parts, right, rtol=1e-9)
    assert sum(sizes) == 4000 and set(sizes[:-1]) == {7}
    again = [cv.elbo(model, q, w[0], 40, np.random.default_rng(s)).value for s in range(100)]
    ratio = np.std(again, ddof=1) * np.sqrt(40) / (right.error * np.sqrt(4000))
    assert 0.75 < ratio < 1.35  # the error is the scatter of the value


def test_elbo_by_enumeration(cv):
    """A Bernoulli q has four z."""
    model = cv.models.Model(
        lambda z, b: b[0] * (z[..., 0] - 2 * z[..., 1]), lambda z: -z[..., 0] * z[..., 1],
        np.array([0.5, 1.0, -0.2]), dim=2,
    )  # fmt: skip
    q = cv.families.Bernoulli(2)
    w = np.array([0.4, -0.7])
    z, p = np.array([(a, b) for a in (0, 1) for b in (0, 1)]), 1 / (1 + np.exp(-w))
    weight = np.prod(np.where(z == 1, p, 1 - p), -1)
    exact = weight @ (1.3 * (z[:, 0] - 2 * z[:, 1]) - z[:, 0] * z[:, 1] - np.log(weight))
    found = cv.elbo(model, q, w, 3000, np.random.default_rng(0))
    assert abs(found.value - exact) < 4.5 * found.error < 0.3
    assert str(found).startswith(f"{found.value:.5g} ± ")


# Noise ---------------------------------------------------------------------------------------


def pilot(cv, table, model, q, w, M=5, steps=20, seed=0, snapshot=None, **how):
    seen = {k: how.pop(k) for k in ("subsample", "batch", "each", "noise") if k in how}
    pilots, rng = part(cv, "pilots"), np.random.default_rng(seed)
    plan, w = pilots.planned(model, q, w, M=M, sampling=cv.Sampling(**seen))
    return pilots.Pilot(table, plan, w, steps, rng, snapshot=snapshot, **how)


def draws_of(cv, lines, model, q, w, M=5, steps=20, seed=0, snapshot=None, **see):
    """The gradients of the same pilot, (2, n, P, D), one array for each half."""
    rng, parts = np.random.default_rng(seed), []
    for _ in range(2):
        each = np.broadcast_to(w, (steps // 2, q.D))
        d = cv.draw(model, q, each, M, rng, snapshot=snapshot, **see)
        parts.append(np.moveaxis(cv.evaluate(lines, d), 1, 2))  # (R, M, P, D)
    return np.array([x.reshape(-1, *x.shape[2:]) for x in parts])


def left_by_least_squares(X, h, cvs):
    """||h + C a - mean||^2 of a step of 5 on either half, a by least squares on the other."""
    total = []
    X = X - X.mean(1, keepdims=True)
    for fit, trial in (X[0], X[1]), (X[1], X[0]):
        a = np.zeros(len(cvs))
        if cvs:
            design = np.moveaxis(fit[:, cvs], 1, -1).reshape(-1, len(cvs))
            a = np.linalg.lstsq(design, -fit[:, h].reshape(-1), rcond=None)[0]
        g = trial[:, h] + np.einsum("nld,l->nd", trial[:, cvs], a)
        total.append((g**2).sum() / (len(g) - 1) / 5)
    return np.mean(total)


def test_noise_of_every_subset(cv):
    model, q, w = logistic(cv)
    table = cv.candidates(model, q)
    lines = [c for h, cvs in table.values() for c in (h, *cvs.values())]
    old = cv.snapshot(model, q.mean(w) + 0.3)
    X = draws_of(cv, lines, model, q, w, snapshot=old)
    found, Set = pilot(cv, table, model, q, w, snapshot=old), part(cv, "pilots").Set
    sets, right, at = [], [], 0
    for base, (_, cvs) in table.items():
        for n in range(len(cvs) + 1):
            for c in combinations(range(len(cvs)), n):
                sets.append(Set(base, tuple(list(cvs)[l] for l in c)))
                right.append(left_by_least_squares(X, at, [at + 1 + l for l in c]))
        at += 1 + len(cvs)
    assert len(sets) == 3 * 16 + 3
    assert_allclose([found.noise(s) for s in sets], right, rtol=1e-6)
    assert_allclose([found.each(s).mean() for s in sets], right, rtol=1e-6)


def test_squared_length_of_a_step(cv):
    """E||g||^2 = ||E g||^2 + noise: samples with data of their own, and shared batches."""
    model, q, w = logistic(cv)
    data, prior, variational = cv.terms(model, q)
    h = cv.RP1(data) + cv.CF(prior) - cv.CF(variational)
    sets = [part(cv, "pilots").Set("RP1")]
    ways = [{}, {"batch": 4}, {"batch": 3, "each": True}, {"subsample": False}]
    ways += [{"noise": noise, "subsample": False} for noise in ("pairs", "sobol")]
    for see in ways:
        found = pilot(cv, {"RP1": (h, {})}, model, q, w, M=4, steps=3000, **see)
        E = found.slope2(sets[0]) + found.noise(sets[0])
        d = cv.draw(model, q, np.broadcast_to(w, (3000, q.D)), 4, np.random.default_rng(9), **see)
        square = (h(d).mean(-2) ** 2).sum(-1)
        assert abs(E - square.mean()) < 6 * square.std() / np.sqrt(3000)
        slope = (cv.exact.gradient(model, q, w) ** 2).sum()
        assert abs(found.slope2(sets[0]) - slope) < 0.1 * slope
    both = pilot(cv, {"RP1": (h, {})}, model, q, w, M=4, steps=3000, subsample=False, pairs=True)
    plain, paired = map(both.noise, (sets[0], sets[0]._replace(pairs=True)))
    for noise, how in (plain, "plain"), (paired, "pairs"):
        alone = pilot(cv, {"RP1": (h, {})}, model, q, w, M=4, steps=3000, seed=1, subsample=False,
                      noise=how)  # fmt: skip
        assert_allclose(noise, alone.noise(sets[0]), rtol=0.1)
    assert abs(plain / paired - 1) > 0.3


def test_leaving_one_out_makes_a_step_one_unit(cv):
    """Every sample is the baseline of every other, or has a say in every other's regression."""
    sets, mine, unit = [part(cv, "pilots").Set("h")], own(cv), cv.families.Bernoulli(2)
    data, prior, variational = cv.terms(mine, unit)
    cases = [(mine, unit, np.array([0.4, -0.7]), cv.LOO(data + prior) - cv.CF(variational), 2)]
    model, q, w = logistic(cv)
    cases.append((model, q, w, cv.AQ(sum_of(cv.terms(model, q))), 3))
    for model, q, w, h, M in cases:
        found = pilot(cv, {"h": (h, {})}, model, q, w, M=M, steps=4000, subsample=False)
        each = np.broadcast_to(w, (20_000, q.D))
        d = cv.draw(model, q, each, M, np.random.default_rng(9), subsample=False)
        G = h(d)  # (20_000, M, D)
        right, alone = G.mean(1).var(0).sum(), G.var((0, 1)).sum() / M
        assert_allclose(found.noise(sets[0]), right, rtol=0.06)
        assert abs(alone / right - 1) > 0.12  # what independent samples would have


def test_a_variate_beside_leaving_one_out(cv):
    """It is as noisy as a step of the best weight, which our own steps know."""
    model, q, w = logistic(cv)
    data, prior, variational = cv.terms(model, q)
    near = cv.taylor_z(data)
    h, c = cv.LOO(data + prior) - cv.CF(variational), cv.CF(near) - cv.SF(near)
    found = pilot(cv, {"h": (h, {"c": c})}, model, q, w, M=3, steps=4000, subsample=False)
    d = cv.draw(model, q, np.broadcast_to(w, (20_000, q.D)), 3, np.random.default_rng(9),
                subsample=False)  # fmt: skip
    g, v = (line(d).mean(1) - line(d).mean((0, 1)) for line in (h, c))
    left = (g**2).sum(-1).mean() - (g * v).sum(-1).mean() ** 2 / (v**2).sum(-1).mean()
    Set = part(cv, "pilots").Set
    assert_allclose(found.noise(Set("h", ("c",))), left, rtol=0.06)
    assert found.noise(Set("h", ("c",))) < 0.9 * found.noise(Set("h"))


def sum_of(terms):
    data, prior, variational = terms
    return data + prior - variational


def test_slope_of_few_draws(cv):
    """The square of a mean has the noise of the mean: it must be taken off."""
    model, q, w = logistic(cv)
    data, prior, variational = cv.terms(model, q)
    table = {"PR": (cv.PR(data) + cv.CF(prior) - cv.CF(variational), {})}
    sets = [part(cv, "pilots").Set("PR")]
    few = [pilot(cv, table, model, q, w, M=1, steps=2, seed=s).slope2(sets[0]) for s in range(200)]
    slope = (cv.exact.gradient(model, q, w) ** 2).sum()
    assert abs(np.mean(few) - slope) < 4.5 * np.std(few) / np.sqrt(200)


def test_resampled_pilots(cv):
    """Each half on its own: the mean over resamples is the half's, the scatter that of a mean."""
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    found = pilot(cv, {"h": (z.h, {"c7": z.c7})}, model, q, w)
    K = found.resampled(2000, np.random.default_rng(0))["h", False]  # (2000, 2, P, P)
    for k in (0, 1):
        own = found.looks["h", False].K[k]
        error = own.std(0) / np.sqrt(len(own))
        assert_allclose(K[:, k].mean(0), own.mean(0), atol=0.12 * error.max())
        assert_allclose(K[:, k].std(0), error, rtol=0.1)


def test_shares_by_enumeration(cv):
    """SF of a Bernoulli q on three data points: twelve equally simple cases."""
    values = np.array([0.2, 2.0, 1.0])
    log_lik = lambda z, b: b[0] * (z[..., 0] - 0.3 - 0.6 * z[..., 1])
    model = cv.models.Model(log_lik, lambda z: 0 * z[..., 0], values, dim=2)
    q = cv.families.Bernoulli(2)
    w = np.array([0.4, -0.7])
    data, prior, variational = cv.terms(model, q)
    h = cv.SF(data) + cv.SF(prior) - cv.CF(variational)
    z, p = np.array([(a, b) for a in (0, 1) for b in (0, 1)]), 1 / (1 + np.exp(-w))
    weight = np.prod(np.where(z == 1, p, 1 - p), -1)
    f = 3 * values * (z[:, :1] - 0.3 - 0.6 * z[:, 1:])  # (4, 3)
    g = f[..., None] * (z - p)[:, None, :]  # (4, 3, D)
    mean = np.einsum("k,kid->d", weight, g) / 3
    total = np.einsum("k,kid->", weight, (g - mean) ** 2) / 3
    of_q = np.einsum("k,kd->", weight, (g.mean(1) - mean) ** 2)
    of_data = (np.einsum("k,kid->id", weight, g - mean) ** 2).sum(-1).mean()
    right = np.array([of_q, of_data, total - of_q - of_data]) / total
    how = {"M": 4, "rng": np.random.default_rng(0), "costs": {"SF": 1.0}}
    (row,) = cv.report({"SF": h}, model, q, w, pilot=2000, **how).rows
    assert_allclose(row.shares, right, atol=0.03)
    (row,) = cv.report({"SF": h}, model, q, w, pilot=400, subsample=False, **how).rows
    assert_allclose(row.shares, [1.0, 0.0, 0.0], atol=1e-12)
    few = [pilot(cv, {"SF": (h, {})}, model, q, w, M=4, steps=2, shares=True, seed=s)
           for s in range(600)]  # fmt: skip
    looks = [p.looks["SF", False] for p in few]
    shares = np.array([[4 * K[..., 0, 0].mean() for K in (x.of_q, x.of_data)] for x in looks])
    error = shares.std(0) / np.sqrt(len(few))
    assert (np.abs(shares.mean(0) - total * right[:2]) < 4.5 * error).all()
    K = np.array([4 * x.K[..., 0, 0].mean() for x in looks])
    assert abs(K.mean() - total) < 4.5 * K.std() / np.sqrt(len(few))


def test_units_of_q(cv):
    """g^T F^-1 g with Fisher's matrix as the covariance of the score, which quadrature knows."""
    for family in "Gaussian", "DiagonalGaussian":
        q = getattr(cv.families, family)(2)
        w = q.start() + 0.2 * np.cos(np.arange(q.D))
        x, weight = np.polynomial.hermite_e.hermegauss(8)
        eps = np.array([(a, b) for a in x for b in x])
        d = cv.draw(own(cv), q, w, eps=eps, subsample=False)
        weight = np.outer(weight, weight).ravel() / weight.sum() ** 2
        F = np.einsum("m,mi,mj->ij", weight, d.score, d.score)
        g = np.random.default_rng(0).standard_normal((3, 2, q.D))
        right = np.einsum("npi,ij,npj->np", g, np.linalg.inv(F), g)
        assert_allclose((part(cv, "pilots").in_units(q, w, g) ** 2).sum(-1), right, rtol=1e-8)


# Cost ----------------------------------------------------------------------------------------


class Clock:
    """A clock that goes on when something is done."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        def way():
            self.now += seconds() if callable(seconds) else seconds

        return way


def test_turns(cv):
    """The shortest block, blocks in turns, and no more time than was asked for."""
    clock, order = Clock(), []
    slow = iter([9.0, 0.01, *[0.05] * 10**4])

    def uneven():
        order.append("uneven")
        clock.spend(next(slow))()

    def even():
        order.append("even")
        clock.spend(0.002)()

    pilots = part(cv, "pilots")
    found = pilots.in_turns({"uneven": uneven, "even": even}, 4.0, clock)
    assert_allclose([found["uneven"], found["even"]], [0.01, 0.002])
    assert clock.now < 9 + 4 * (1 + 5) / 2 + 0.5  # "uneven" is five times slower than it seemed
    changes = sum(a != b for a, b in zip(order, order[1:]))
    assert changes == 2 * (pilots.ROUNDS + 2) - 1
    start, slow = clock.now, lambda: clock.spend(30.0)()
    assert pilots.in_turns({"slow": slow}, 4.0, clock) == {"slow": 30.0}
    assert clock.now == start + 90.0  # what is slow is not asked ten times
    assert order.count("even") > 4 * order.count("uneven")


def test_price_of_a_step(cv):
    """In rows of the likelihood: a snapshot costs its share of a pass, where it is used."""
    clock = Clock()

    def spend(value):
        clock.now += int(np.prod(np.shape(value)))
        return value

    model = own(cv, spend, N=40)
    q = cv.families.Gaussian(2)
    table = cv.candidates(model, q)
    pilots = part(cv, "pilots")
    Set, timed = pilots.Set, pilots.timed
    sets = [Set("RP1"), Set("RP1", ("joint",)), Set("PR")]

    def rows(run):
        before = clock.now
        run()
        return clock.now - before

    w, M = q.start(), 5
    old = cv.snapshot(model, q.mean(w))  # the first one marks its model, at the price of a row
    past = rows(lambda: cv.snapshot(model, q.mean(w)))
    plans = [pilots.planned(model, q, w, M=M, renew=K) for K in (4, 8)]
    prices = [timed(sets, table, *plan, clock=clock, seconds=1.0) for plan in plans]
    h, cvs = table["RP1"]
    d = lambda: cv.draw(model, q, w, M, np.random.default_rng(0), snapshot=old)
    plain, joint = rows(lambda: h(d())), rows(lambda: cv.evaluate([h, cvs["joint"]], d()))
    for K, price in zip((4, 8), prices):
        assert price["RP1"] == plain and price["RP1 with joint"] == joint + past / K
        assert list(price) == [str(s) for s in sets]


def test_predicted_costs(cv):
    pilots = part(cv, "pilots")
    costs = {"h": 1.0, "h with a": 1.5, "h with b": 0.9, "h with c": 3.0}
    price = lambda *names: pilots.cost_of(pilots.Set("h", names), costs)
    assert price() == 1.0 and price("a", "c") == 3.5
    assert price("a", "b") == 1.5  # no variate makes a step cheaper
    costs["h with a, c"] = 2.0
    assert price("a", "c") == 2.0
    with pytest.raises(ValueError, match="costs say nothing of 'h with d': give its seconds"):
        price("a", "d")


# Reports -------------------------------------------------------------------------------------


def test_report_by_hand(cv):
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    lines = {"RP1": z.h, "c7": z.c7, "c4": z.c4}
    costs = {"RP1": 2.0, "RP1 with c7": 3.0, "RP1 with c4": 8.0, "RP1 with c7, c4": 9.0}
    how = {"M": 5, "pilot": 20, "costs": costs, "rng": np.random.default_rng(0)}
    with mock.patch.object(part(cv, "pilots"), "Draw", lambda *given: given):
        with mock.patch.object(part(cv, "pilots"), "evaluate", once(cv)):
            found = cv.report(lines, model, q, w, **how)
    X = draws_of(cv, [z.h, z.c7, z.c4], model, q, w)
    sets = [[], [1], [2], [1, 2]]
    noise = np.array([left_by_least_squares(X, 0, c) for c in sets])
    assert [str(r.set) for r in found.rows] == list(costs)
    assert_allclose([r.left for r in found.rows], noise / noise[0], rtol=1e-6)
    assert [r.cost for r in found.rows] == [1.0, 1.5, 4.0, 4.5]
    slope = (cv.exact.gradient(model, q, w) ** 2).sum()
    E = slope + noise
    right = np.array([1.0, 1.5, 4.0, 4.5]) * E / E[0]
    assert_allclose([r.score for r in found.rows], right, rtol=0.15)  # ||E g||^2 from the draws
    assert found.rows[0].error == 0 and all(r.error > 0 for r in found.rows[1:])
    text = repr(found).split("\n")
    assert text[0].startswith("100 pilot draws, 5 samples a step")
    assert text[2].split() == ["RP1", "1", *text[2].split()[2:5], "1", "1"]
    assert text[3].startswith("RP1 with c7") and f"{found.rows[1].left:.2g} ± " in text[3]


def once(cv):
    """evaluate, but for the second look that tells the shares apart: that one sees nothing."""
    real = part(cv, "estimators").evaluate

    def evaluate(lines, d):
        if isinstance(d, tuple):
            return np.zeros((10, len(lines), 5, lines[0].owner[1].D))
        return real(lines, d)

    return evaluate


def test_errors_are_scatters(cv):
    """Forty reports of the same lines: their scatter is the standard error that each states."""
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    costs = {"h": 1.0, "h with c7": 2.0}
    rows = [
        cv.report({"h": z.h, "c7": z.c7}, model, q, w, M=5, pilot=60, costs=costs,
                  rng=np.random.default_rng(s)).rows[1]
        for s in range(40)
    ]  # fmt: skip
    for value, error in ("left", "error"), ("score", "score_error"):
        scatter = np.std([getattr(r, value) for r in rows], ddof=1)
        assert 0.6 < np.mean([getattr(r, error) for r in rows]) / scatter < 1.6


# Choices -------------------------------------------------------------------------------------


def test_of_equal_sets_the_first_is_chosen(cv):
    """Two names for one variate, but for its last digits: no processor's rounding may decide."""
    model, q, w = logistic(cv)
    data, prior, variational = cv.terms(model, q)
    h = cv.RP1(data) + cv.RP1(prior) - cv.CF(variational)
    c = cv.CF(cv.taylor_z(data)) - cv.RP1(cv.taylor_z(data))
    costs = {"h": 1.0, "h with a": 1.1, "h with b": 1.1, "h with a, b": 9.0}
    for k in -4, -3, -2, -1, 1, 2, 3, 4:
        among = {"h": (h, {"a": c, "b": (1 + k * 1e-13) * c})}
        got = cv.choose(model, q, w, among=among, costs=costs, rng=np.random.default_rng(0),
                        resamples=2)  # fmt: skip
        assert str(got.set) == "h with a"


def test_choice_by_brute_force(cv):
    """All subsets, by least squares on the same draws, times costs of our own."""
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    names = ("c7", "c4", "c2", "c5")
    cvs = {name: getattr(z, name) for name in names}
    X = draws_of(cv, [z.h, *cvs.values()], model, q, w)
    subsets = [c for n in range(5) for c in combinations(range(4), n)]
    noise = np.array([left_by_least_squares(X, 0, [1 + l for l in c]) for c in subsets])
    slope = (cv.exact.gradient(model, q, w) ** 2).sum()
    rng, seen = np.random.default_rng(3), set()
    for _ in range(12):
        adds = rng.exponential(0.5, 4)
        costs = {"h": 1.0} | {f"h with {n}": 1 + a for n, a in zip(names, adds)}
        if rng.random() < 0.5:
            costs["h with c7, c2"] = 0.4  # known, not predicted
        got = cv.choose(model, q, w, M=5, pilot=20, among={"h": (z.h, cvs)}, costs=costs,
                        rng=np.random.default_rng(0), resamples=3)  # fmt: skip
        label = lambda c: "h" + (f" with {', '.join(names[l] for l in c)}" if c else "")
        cost = np.array([costs.get(label(c), 1 + sum(adds[l] for l in c)) for c in subsets])
        score = dict(zip(map(label, subsets), cost * (slope + noise)))
        best = min(score, key=score.get)
        assert score[str(got.set)] < 1.03 * score[best]  # ||E g||^2 is estimated
        assert_allclose(got.product, score[str(got.set)], rtol=0.1)
        assert [c.parts for c in got.cvs] == [cvs[n].parts for n in got.set.cvs]
        assert got.base is z.h and got.line == {"h": z.h, "cvs": got.cvs, "renew": None}
        seen.add(str(got.set))
    assert len(seen) > 2


def test_choice_of_base(cv):
    """With equal costs the quietest wins, with a dear one the cheap base; and its words say so."""
    model, q, w = logistic(cv)
    how = {"M": 5, "pilot": 20, "rng": np.random.default_rng(0)}
    got = cv.choose(model, q, w, costs=flat(cv, model, q), **how)
    assert got.set.base == "QD" and got.renew is None or got.renew == 50
    assert got.sure > 0.5 and got.regret < 0.2
    least = min(got.report.rows, key=lambda r: r.left)
    assert least.set == got.set and least.score == min(r.score for r in got.report.rows)
    assert f"leaves {least.left:.2g} of the noise" in repr(got)
    costs = dict.fromkeys(flat(cv, model, q), 1e6) | {"RP1": 1.0}
    got = cv.choose(model, q, w, costs=costs, **how)
    assert str(got.set) == "RP1" and got.cvs == [] and got.sure == 1.0 and got.regret == 0.0


def test_a_tie_is_not_sure(cv):
    """Two bases of the same law from other draws: the choice is a coin, and it says so."""
    model, q, w = logistic(cv)
    data, prior, variational = cv.terms(model, q)
    rest = cv.CF(prior) - cv.CF(variational)
    # RP1 and RP2 at L = I: the same law, not the same numbers
    w = q.start()
    turned = 0.5 * (cv.RP1(data) + cv.PR(data)) + rest
    among = {"a": (cv.RP1(data) + rest, {}), "b": (turned, {})}
    how = {"M": 5, "pilot": 200, "among": among}
    first = cv.choose(model, q, w, costs={"a": 1.0, "b": 1.0}, rng=np.random.default_rng(0), **how)
    even = {r.set.base: r.score for r in first.report.rows}
    assert first.set.base == "b" and first.sure == 1.0
    costs = {"a": 1.0, "b": 1.0 / even["b"]}  # now both are equally good
    sure = [
        cv.choose(model, q, w, costs=costs, rng=np.random.default_rng(s), **how) for s in range(30)
    ]
    assert np.mean([c.sure for c in sure]) < 0.9 and min(c.sure for c in sure) < 0.75
    assert 0 < np.mean([c.regret for c in sure]) < 0.2
    assert {c.set.base for c in sure} == {"a", "b"}


def test_without_noise_the_cheapest_wins(cv):
    """A quadratic model on all data: many sets leave nothing, and rounding must not choose."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, 3)), rng.standard_normal(9)
    model, q = cv.models.linear_regression(X, y), cv.families.Gaussian(3)
    w = cv.exact.optimum(model, q)
    costs = flat(cv, model, q, False) | {"QD": 1.2, "PR": 1.1, "PR with c7": 1.15}
    for seed in range(5):
        how = {"costs": costs, "rng": np.random.default_rng(seed), "subsample": False, "pilot": 4}
        got = cv.choose(model, q, w, **how)
        assert str(got.set) == "RP1 with c7" and got.regret == 0.0  # cost one, and no noise
        assert "leaves 0 of the noise" in repr(got)
    (row,) = cv.report({"QD": cv.candidates(model, q)["QD"][0]}, model, q, w, **how).rows
    assert row.cost == 1.0 and row.left <= 1.0


def test_timed_for_real(cv):
    """Sets that share work cost less than their parts say: the best are timed themselves."""
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    asked = []

    def timed(sets, *args, **how):
        asked.append([str(s) for s in sets])
        true = {0: 1.0, 1: 9.0, 2: 0.5}  # a pair is cheap, against what its members say
        return {str(s): true[len(s.cvs)] for s in sets}

    with mock.patch.object(part(cv, "choosing"), "timed", timed):
        among = {"h": (z.h, {"c7": z.c7, "c2": z.c2})}
        got = cv.choose(model, q, w, M=5, among=among, rng=np.random.default_rng(0))
    assert asked[0] == ["h", "h with c7", "h with c2"] and "h with c7, c2" in asked[1]
    assert str(got.set) == "h with c7, c2" and len(asked) == 2


def test_subsets(cv):
    """All subsets up to the limit; beyond, those of at most two."""
    pilots = part(cv, "pilots")
    names = tuple("abcdefghijkl")
    for few, most in (names[:4], 4), (names[:10], 10), (names, 2):
        found = [s.cvs for s in pilots.subsets(pilots.Set("h", few))]
        assert found == [c for n in range(most + 1) for c in combinations(few, n)]


def shifted(cv):
    """N(w, I) as a reader writes it: its noise does not move with w, so GR is RP1."""

    class Shifted(cv.families.Family):
        parts = ("mu",)
        noise = lambda self, rng, w, M: rng.standard_normal((*w.shape[:-1], M, self.dim))
        transform = lambda self, w, eps: w + eps
        log_density = lambda self, w, z: -0.5 * anp.sum((z - w) ** 2, -1)
        entropy = lambda self, w: 0.5 * self.dim + 0 * w[..., 0]

    return Shifted


def test_candidates(cv):
    """Everything is legal, gradients are gradients, and a family without RP1 has its own."""
    model, q, _ = logistic(cv)
    found = cv.candidates(model, q)
    assert {n: set(cvs) for n, (_, cvs) in found.items()} == {
        "RP1": {"c7", "bound", "joint", "snapshot"}, "RB": {"c7", "bound", "joint", "snapshot"},
        "PR": {"c7", "bound", "joint", "snapshot"}, "QD": {"snapshot"}, "RP1 of all three": set(),
    }  # fmt: skip
    z = cv.zoo.paper(model, q)
    assert found["RP1"][1]["c7"].parts == z.c7.parts
    whole = cv.candidates(model, q, subsample=False)
    assert set(whole["RP1"][1]) == {"c7", "bound", "joint"} and whole["QD"][1] == {}
    f = sum_of(cv.terms(model, q))
    three = {f"{word} of all three": word(f).parts for word in (cv.RP1, cv.PR, cv.AQ)}
    assert {n: h.parts for n, (h, _) in list(whole.items())[4:]} == three
    assert list(whole)[:-1] == list(cv.candidates(model, q, subsample=False, M=3))
    mine, q2 = own(cv), cv.families.Gaussian(2)
    found = cv.candidates(mine, q2)
    assert list(found) == ["RP1", "PR", "RP1 of all three"]
    assert set(found["PR"][1]) == {"c7", "joint", "snapshot"}
    data, prior, variational = cv.terms(mine, q2)
    h = cv.PR(data) + cv.PR(prior) - cv.CF(variational)
    assert found["PR"][0].parts == h.parts
    both = cv.taylor_z(data + prior)
    assert found["PR"][1]["c7"].parts == (cv.CF(both) - cv.PR(both)).parts
    unit = cv.families.Bernoulli(2)
    assert list(cv.candidates(mine, unit)) == ["GR", "SF", "LB of all three"]
    assert list(cv.candidates(mine, shifted(cv)(2))) == ["RP1", "SF", "RP1 of all three"]
    assert list(cv.candidates(mine, cv.families.Gamma(2)))[:2] == ["GR", "SF"]
    for family in q2, unit, cv.families.Gamma(2):  # what fit takes is on the list
        h = part(cv, "zoo").whole_gradient(mine, family)
        assert h.parts in [line.parts for line, _ in cv.candidates(mine, family).values()]
        (word,) = {word for word, _ in h.parts}
        assert h.parts == word(sum_of(cv.terms(mine, family))).parts
    for table in found, whole, cv.candidates(mine, unit):
        for h, cvs in table.values():
            part(cv, "estimators").check_gradient(h)
            for c in cvs.values():
                part(cv, "estimators").check_variate(c)


def kinked(cv, sharp):
    """Laplace's likelihood: log p has a kink in z for every row; or one rounded off."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    y = X @ [1.0, -1.0] + rng.laplace(size=20)
    size = lambda r: anp.abs(r) if sharp else anp.sqrt(1 + r**2)
    log_lik = lambda z, batch: -size(batch[1] - anp.sum(batch[0] * z, -1))
    return cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, y), dim=2)


def test_price_is_refused_where_there_are_kinks(cv):
    """Autograd's second derivative of |r| is zero: PR is quiet and wrong, and must not win."""
    q = cv.families.Gaussian(2)
    for sharp in True, False:
        model = kinked(cv, sharp)
        for see in {"subsample": False}, {}:
            costs = flat(cv, model, q, see.get("subsample", True))
            how = {"costs": costs, "rng": np.random.default_rng(0)} | see
            got = cv.choose(model, q, q.start(), pilot=60, **how)
            assert ("PR is refused: its mean is" in repr(got)) == sharp
            assert ("PR is refused" in repr(got.report)) == sharp
            assert not sharp or not any("PR" in r.set.base for r in got.report.rows)
    small = [cv.choose(kinked(cv, False), q, q.start(), pilot=2, costs=costs, resamples=2,
                       rng=np.random.default_rng(s)).report.refused for s in range(40)]  # fmt: skip
    assert not any(small)  # few steps say little of a mean


def test_pairs_are_tried(cv):
    """Where nothing is said of the noise and samples see the same data; they are what they say."""
    model, q, _ = logistic(cv)
    data, prior, variational = cv.terms(model, q)
    among = {"PR": (cv.PR(data) + cv.PR(prior) - cv.CF(variational), {})}
    how = {"among": among, "costs": {"PR": 1.0}, "pilot": 30}
    for see, tried in [
        ({"subsample": False}, True), ({"batch": 3}, True), ({}, False),
        ({"subsample": False, "M": 5}, False),
        ({"subsample": False, "noise": "plain"}, False),
        ({"sampling": cv.Sampling(subsample=False)}, False),
        ({"batch": 3, "each": True}, False),
    ]:  # fmt: skip
        got = cv.choose(model, q, q.start(), rng=np.random.default_rng(0), **how, **see)
        assert any(r.set.pairs for r in got.report.rows) == tried, see
        assert (got.sampling.noise == "pairs") == got.set.pairs
        assert ("in pairs" in str(got.set)) == got.set.pairs
    got = cv.choose(model, q, q.start(), rng=np.random.default_rng(0), subsample=False, **how)
    left = {r.set.pairs: r.left for r in got.report.rows}
    noise = {}
    for pairs, kind in (False, "plain"), (True, "pairs"):
        d = cv.draw(model, q, q.start((4000,)), 10, np.random.default_rng(1), subsample=False,
                    noise=kind)  # fmt: skip
        noise[pairs] = among["PR"][0](d).mean(1).var(0).sum()
    assert_allclose(left[True], noise[True] / noise[False], rtol=0.3)
    assert got.set.pairs and noise[True] < 0.6 * noise[False]


def test_many_dimensions(cv):
    """Where a Hessian of an own model is too dear: RP1, without expansions; GLMs keep theirs."""
    (mine, q), (model, q2, _) = (own(cv), cv.families.Gaussian(2)), logistic(cv)
    assert "PR of all three" in cv.candidates(mine, q, subsample=False)
    with mock.patch.object(part(cv, "zoo"), "DENSE", 1):
        found = cv.candidates(mine, q, subsample=False)
        assert list(found) == ["RP1", "RP1 of all three", "AQ of all three"]
        assert not any(cvs for _, cvs in found.values())
        assert len(cv.candidates(model, q2)) == 5


def wrapped(cv, model, q):
    """{name: variate} whose approximation stands inside another one; some need a snapshot."""
    data, _, _ = cv.terms(model, q)
    old = cv.bound(data, at="snapshot")
    curve = lambda z: anp.tanh(z[..., 0])
    inside = cv.surrogate(cv.taylor_z(data, at="snapshot"), curve)
    steep = cv.taylor_z(cv.taylor_z(data, at="snapshot", order=1), order=1)
    line = cv.taylor_z(old, order=1)
    return {
        "surrogate": cv.SF(inside) - cv.RP1(inside),
        "line of a bound": cv.LOO(line) - cv.CF(line),
        "line of a slope": cv.RP1(steep) - cv.CF(steep),
    }


def test_what_is_wrapped_gets_its_snapshot(cv):
    """Only what looks at older weights has one taken, of the order and with the factor it needs."""
    model, q, w = logistic(cv)
    z, rng = cv.zoo.paper(model, q), np.random.default_rng(0)
    lines = wrapped(cv, model, q)
    right = {
        "surrogate": None,
        "line of a bound": (2, True, False),
        "line of a slope": (1, False, False),
    }
    for name, line in lines.items():
        how = {"lr": 0.01, "steps": 3, "M": 4, "rng": rng, "renew": 2, "runs": (2,)}
        path = cv.optimize.sgd(model, q, z.h, [line], w=w, **how)
        old = path.state.snapshot
        assert line.wants == right[name] and np.isfinite(path.w).all()
        if line.wants:
            assert (old.hessian is not None) == (line.wants.order == 2)
            assert (old.factor is not None) == line.wants.factor
        costs = {"h": 1.0, f"h with {name}": 1e-6}
        among = {"h": (z.h, {name: line})}
        got = cv.choose(model, q, w, M=4, rng=rng, among=among, costs=costs, pilot=8, renew=9)
        assert got.set.cvs == (name,) and got.renew == (9 if line.wants else None)
    cv.optimize.sgd(model, q, z.h, [lines["surrogate"]], lr=0.01, steps=2, M=4, rng=rng)


def test_a_poor_snapshot_is_not_taken(cv):
    """A snapshot of slopes has no Hessian: a choice among parabolas takes its own."""
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    data, _, _ = cv.terms(model, q)
    far = cv.taylor_z(data, at="snapshot", order=1)
    svrg = cv.RP1(far) - cv.RP1(far.over_all_data())
    poor = cv.snapshot(model, q.mean(w), order=1)
    how = {"costs": flat(cv, model, q), "pilot": 4, "resamples": 2, "M": 4}
    right, got = (
        cv.choose(model, q, w, rng=np.random.default_rng(0), snapshot=old, **how).product
        for old in (None, poor)
    )
    assert got == right
    table = {"h": (z.h, {"svrg": svrg})}
    old, away = cv.snapshot(model, q.mean(w), order=1), cv.snapshot(model, q.mean(w) + 1, order=1)
    sets = [part(cv, "pilots").Set("h", ("svrg",))]
    near, far, own = (
        pilot(cv, table, model, q, w, M=4, steps=400, snapshot=s).noise(sets[0])
        for s in (old, away, None)
    )
    assert own == near < 0.95 * far  # one that serves is used
    mu, factor = q.moments(w)
    poor = cv.snapshot(model, mu), cv.snapshot(model, mu, factor=factor)  # no factor, no mean
    for expansion, old in zip((cv.bound, cv.parabola), poor):
        far = expansion(data, at="snapshot")
        table = {"h": (z.h, {"svrg": cv.PR(far) - cv.CF(far.over_all_data())})}
        try:
            near, own = (
                pilot(cv, table, model, q, w, M=4, steps=40, snapshot=s).noise(sets[0])
                for s in (old, None)
            )
        except ValueError:
            near, own = 0.0, 1.0
        assert near == own


def test_it_works_with_a_real_clock():
    """Nothing given: sets are timed, and something sensible comes out for any family."""
    rng = np.random.default_rng(0)
    model = own(cvlib)
    full, diagonal = cvlib.families.Gaussian(2), cvlib.families.DiagonalGaussian(2)
    for q, see in (full, {}), (diagonal, {"batch": 3}), (full, {"subsample": False}):
        got = cvlib.choose(model, q, q.start(), M=4, rng=rng, pilot=8, seconds=0.02, **see)
        assert got.set.base in cvlib.candidates(model, q, **see) if "batch" not in see else True
        assert got.seconds > 0
        assert all(r.seconds > 0 and np.isfinite(r.score) for r in got.report.rows)
        see = see | {"noise": "pairs"} if got.set.pairs else see
        how = {"sampling": cvlib.Sampling(**see)} if see else {}
        assert got.line == {"h": got.base, "cvs": got.cvs, "renew": got.renew} | how
    model, q, w = logistic(cvlib)
    got = cvlib.choose(model, q, w, rng=rng, pilot=8, seconds=0.02, natural=True)
    cvlib.optimize.sgd(model, q, **got.line, lr=0.1, steps=5, M=10, rng=rng)


def test_stored_costs_know_every_set():
    """benchmarks/choose.json, from which chapter 19 reads: all sets, positive, sums predictable."""
    stored = json.loads(Path(bench.RESULTS).read_text())["costs"]
    for name in (*bench.LOGISTIC, *bench.OWN, "Poisson"):
        model, q, see = bench.problem(name)
        table = cvlib.candidates(model, q, see.get("subsample", True))
        assert list(stored[name]) == [str(s) for s in bench.sets_of(table)]
    for letter, sizes in bench.SIZES.items():
        assert {f"{letter} = {size}" for size in sizes} <= set(stored)
    assert len(stored["sonar, paper"]) == 9
    assert all(t > 0 for costs in stored.values() for t in costs.values())
