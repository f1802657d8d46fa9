"""Reports and choices against enumeration, least squares, closed forms and made-up clocks."""

from functools import partial
from itertools import combinations
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.random import default_rng
from numpy.testing import assert_allclose
from test_own_families import shifted_of

import cvlib

choosing = partial(part, name="choosing")


def logistic(cv):
    rng, q = default_rng(0), cv.families.Gaussian(2)
    X = rng.standard_normal((30, 2))
    y = np.where(rng.random(30) < 1 / (1 + np.exp(-X.sum(1))), 1.0, -1.0)
    model = cv.models.logistic_regression(X, y)
    return model, q, q.start() + 0.1 * rng.standard_normal(q.D)


def own(cv, spend=lambda value: value, N=6):
    """A model of one's own that tells `spend` of every row it sees."""
    x = np.linspace(-1, 1, N)
    log_lik = lambda z, batch: spend(-0.5 * (batch[0] - anp.tanh(z[..., 0]) * z[..., 1]) ** 2)
    log_prior = lambda z: -0.25 * anp.sum(z**4, -1)
    return cv.models.Model(log_lik, log_prior, x, dim=2)


def by(word, cv, model, q):
    """A gradient whose data term this word estimates, with all else in closed form."""
    data, prior, variational = cv.terms(model, q)
    return word(data) + cv.CF(prior) - cv.CF(variational)


def flat(cv, model, q, subsample=True):
    """Costs that are the same for every set."""
    table = cv.candidates(model, q, subsample)
    names = [[base, *(f"{base} with {c}" for c in cvs)] for base, (_, cvs) in table.items()]
    return {name: 1.0 for each in names for name in each}


def every(table):
    """(base, names of variates) of every set."""
    for base, (_, cvs) in table.items():
        for n in range(len(cvs) + 1):
            yield from ((base, names) for names in combinations(cvs, n))


# Noise ---------------------------------------------------------------------------------------


def plan_of(cv, table, model, q, **how):
    return cv.optimize.Noisy(model, q, next(iter(table.values()))[0], lr=1.0, **how)


def pilot(cv, table, model, q, w, M=5, steps=20, seed=0, **see):
    plan = plan_of(cv, table, model, q, M=M, sampling=cv.Sampling(**see))
    return choosing(cv).Pilot(table, plan, w, steps, default_rng(seed))


def noise_of(cv, h, *given, **how):
    """That of a gradient alone, and ||E g||^2."""
    found, alone = pilot(cv, {"h": (h, {})}, *given, **how), choosing(cv).Set("h")
    return found.noise(alone), found.slope2([alone])


def draws_of(cv, lines, model, q, w, M=5, steps=20, seed=0, **see):
    """The gradients of the same pilot, (2, n, P, D), one array for each half."""
    rng, parts, old = default_rng(seed), [], cv.snapshot(model, q.mean(w))
    for _ in range(2):
        each = np.broadcast_to(w, (steps // 2, q.D))
        d = cv.draw(model, q, each, M, rng, snapshot=old, **see)
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
    lines = {(base, c): x for base, (h, cvs) in table.items() for c, x in ((0, h), *cvs.items())}
    X, at = draws_of(cv, [*lines.values()], model, q, w), [*lines].index
    found = pilot(cv, table, model, q, w)
    sets, right = [], []
    for base, names in every(table):
        sets.append(choosing(cv).Set(base, names))
        right.append(left_by_least_squares(X, at((base, 0)), [at((base, c)) for c in names]))
    assert len(sets) == 3 * 16 + 3
    assert_allclose([found.noise(s) for s in sets], right, rtol=1e-6)


def test_squared_length_of_a_step(cv):
    """E||g||^2 = ||E g||^2 + noise: samples with data of their own, and shared batches."""
    problem = model, q, w = logistic(cv)
    h, slope = by(cv.RP1, cv, model, q), (cv.exact.gradient(*problem) ** 2).sum()
    ways = [{}, {"batch": 4}, {"batch": 3, "each": True}, {"subsample": False}]
    ways += [{"noise": noise, "subsample": False} for noise in ("pairs", "sobol")]
    for see in ways:
        noise, found = noise_of(cv, h, *problem, M=4, steps=3000, **see)
        d = cv.draw(model, q, np.broadcast_to(w, (3000, q.D)), 4, default_rng(9), **see)
        square = (h(d).mean(-2) ** 2).sum(-1)
        assert abs(found + noise - square.mean()) < 6 * square.std() / np.sqrt(3000)
        assert abs(found - slope) < 0.1 * slope


def test_leaving_one_out_makes_a_step_one_unit(cv):
    """Every sample is the baseline of every other, or has a say in every other's regression."""
    mine, unit = own(cv), cv.families.Bernoulli(2)
    data, prior, variational = cv.terms(mine, unit)
    cases = [(mine, unit, np.array([0.4, -0.7]), cv.LOO(data + prior) - cv.CF(variational), 2)]
    model, q, w = logistic(cv)
    cases.append((model, q, w, cv.AQ(sum_of(cv.terms(model, q))), 3))
    for model, q, w, h, M in cases:
        found, _ = noise_of(cv, h, model, q, w, M=M, steps=4000, subsample=False)
        runs = np.tile(w, (20_000, 1))
        G = h(cv.draw(model, q, runs, M, default_rng(9), subsample=False))  # (20_000, M, D)
        right, alone = G.mean(1).var(0).sum(), G.var((0, 1)).sum() / M
        assert_allclose(found, right, rtol=0.06)
        assert abs(alone / right - 1) > 0.12  # what independent samples would have


def sum_of(terms):
    data, prior, variational = terms
    return data + prior - variational


def test_slope_of_few_draws(cv):
    """The square of a mean has the noise of the mean: it must be taken off."""
    problem = model, q, w = logistic(cv)
    h = by(cv.PR, cv, model, q)
    few = [noise_of(cv, h, *problem, M=1, steps=2, seed=s)[1] for s in range(200)]
    slope = (cv.exact.gradient(*problem) ** 2).sum()
    assert abs(np.mean(few) - slope) < 4.5 * np.std(few) / np.sqrt(200)
    both = pilot(cv, {"RP1": (by(cv.RP1, cv, model, q), {}), "PR": (h, {})}, *problem)
    quiet, loud = (choosing(cv).Set(name) for name in ("PR", "RP1"))
    assert both.slope2([loud, quiet]) == both.slope2([quiet]) != both.slope2([loud])


def test_resampled_choosing(cv):
    """Each half on its own: the mean over resamples is the half's, the scatter that of a mean."""
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    found = pilot(cv, {"h": (z.h, {"c7": z.c7})}, model, q, w)
    K = found.resampled(2000, default_rng(0))["h"][:, :, 0]  # (2000, 2, P, P)
    for k in (0, 1):
        own = found.K["h"][k]
        error = own.std(0) / np.sqrt(len(own))
        assert_allclose(K[:, k].mean(0), own.mean(0), atol=0.12 * error.max())
        assert_allclose(K[:, k].std(0), error, rtol=0.1)


# Cost ----------------------------------------------------------------------------------------


class Clock:
    """A clock that goes on when something is done."""

    now = 0.0
    __call__ = lambda self: self.now


def test_turns(cv):
    """The shortest step, steps in turns, and no more time than was asked for."""
    model, q, w = logistic(cv)
    table = {"uneven": (by(cv.RP1, cv, model, q), {}), "even": (by(cv.PR, cv, model, q), {})}
    plan, Set, clock, order = plan_of(cv, table, model, q, M=1), choosing(cv).Set, Clock(), []

    def timed(seconds, **spends):
        def step(plan, state):
            name = next(name for name, (h, _) in table.items() if h.parts == plan.h.parts)
            order.append(name)
            clock.now += next(spends[name])
            return state

        with mock.patch.object(cv.optimize.Noisy, "step", step):
            sets = [Set(name) for name in spends]
            return choosing(cv).timed(sets, table, plan, w, seconds=seconds, clock=clock)

    slow, steady = iter([9.0, 0.05, 0.01, *[0.05] * 100]), iter([0.002] * 100)
    found = timed(2.0, uneven=slow, even=steady)
    assert_allclose([found["uneven"], found["even"]], [0.01, 0.002])
    assert order == ["uneven", "even"] * (len(order) // 2) and 11 < clock.now < 11.2
    assert timed(4.0, even=iter([30.0] * 3)) == {"even": 30.0}
    assert clock.now < 11.2 + 60  # what is slow is not asked ten times


def test_price_of_a_step(cv):
    """In rows of the likelihood: a snapshot costs its share of a pass, where it is used."""
    clock = Clock()

    def spend(value):
        clock.now += int(np.prod(np.shape(value)))
        return value

    def rows(run):
        before = clock.now
        run()
        return clock.now - before

    model, q, M = own(cv, spend, N=40), cv.families.Gaussian(2), 5
    table, w, Set = cv.candidates(model, q), q.start(), choosing(cv).Set
    sets = [Set("RP1"), Set("RP1", ("joint",)), Set("PR")]
    old = cv.snapshot(model, q.mean(w))  # the first one marks its model, at the price of a row
    past = rows(lambda: cv.snapshot(model, q.mean(w)))
    h, cvs = table["RP1"]
    d = lambda: cv.draw(model, q, w, M, default_rng(0), snapshot=old)
    plain, joint = rows(lambda: h(d())), rows(lambda: cv.evaluate([h, cvs["joint"]], d()))
    for K in 4, 8:
        plan = plan_of(cv, table, model, q, M=M, renew=K)
        price = choosing(cv).timed(sets, table, plan, w, clock=clock, seconds=1.0)
        assert price["RP1"] == plain and price["RP1 with joint"] == joint + past / K
        assert list(price) == [str(s) for s in sets]


def test_predicted_costs(cv):
    costs = {"h": 1.0, "h with a": 1.5, "h with b": 0.9, "h with c": 3.0}
    price = lambda *names: choosing(cv).cost_of(choosing(cv).Set("h", names), costs)
    assert price() == 1.0 and price("a", "c") == 3.5
    assert price("a", "b") == 1.5  # no variate makes a step cheaper
    costs["h with a, c"] = 2.0
    assert price("a", "c") == 2.0
    with pytest.raises(ValueError, match="costs say nothing of 'h with d': give its seconds"):
        price("a", "d")


def test_report_by_hand(cv):
    model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    lines = {"RP1": z.h, "c7": z.c7, "c4": z.c4}
    costs = {"RP1": 2.0, "RP1 with c7": 3.0, "RP1 with c4": 8.0, "RP1 with c7, c4": 9.0}
    found = cv.report(lines, model, q, w, M=5, pilot=20, costs=costs, rng=default_rng(0))
    X = draws_of(cv, [z.h, z.c7, z.c4], model, q, w)
    noise = np.array([left_by_least_squares(X, 0, c) for c in ([], [1], [2], [1, 2])])
    assert [str(r.set) for r in found.rows] == list(costs)
    assert_allclose([r.left for r in found.rows], noise / noise[0], rtol=1e-6)
    assert [r.cost for r in found.rows] == [1.0, 1.5, 4.0, 4.5]
    E = (cv.exact.gradient(model, q, w) ** 2).sum() + noise
    right = np.array([1.0, 1.5, 4.0, 4.5]) * E / E[0]
    assert_allclose([r.score for r in found.rows], right, rtol=0.15)  # ||E g||^2 from the draws
    assert found.rows[0].error == 0 and all(r.error > 0 for r in found.rows[1:])
    text = repr(found).split("\n")
    assert text[0].startswith("100 pilot draws, 5 samples a step")
    assert text[1].split() == ["noise", "left", "cost", "cost", "x", "E|g|^2"]
    assert text[2].split() == ["RP1", "1", "1", "1"] and len({*map(len, text[1:])}) == 1
    assert text[3].startswith("RP1 with c7") and f"{found.rows[1].left:.2g} ± " in text[3]


def test_errors_are_scatters(cv):
    """Forty reports of the same lines: their scatter is the standard error that each states."""
    problem = logistic(cv)
    z = cv.zoo.paper(*problem[:2])
    how = {"M": 5, "pilot": 60, "costs": {"h": 1.0, "h with c7": 2.0}}
    ask = lambda s: cv.report({"h": z.h, "c7": z.c7}, *problem, rng=default_rng(s), **how).rows[1]
    rows = [ask(s) for s in range(40)]
    for value, error in ("left", "error"), ("score", "score_error"):
        scatter = np.std([getattr(r, value) for r in rows], ddof=1)
        assert 0.6 < np.mean([getattr(r, error) for r in rows]) / scatter < 1.6


# Choices -------------------------------------------------------------------------------------


def test_of_equal_sets_the_first_is_chosen(cv):
    """Two names for one variate, but for its last digits: no processor's rounding may decide."""
    problem = model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    for less, best in (0, "a"), (1e-13, "a"), (1e-12, "a"), (-1e-12, "a"), (1e-6, "b"):
        among = {"h": (z.h, {"a": z.c7, "b": (1 + less / 3) * z.c7})}
        costs = {"h": 1.0, "h with a": 1.1, "h with b": 1.1 * (1 - less), "h with a, b": 9.0}
        how = {"among": among, "costs": costs, "resamples": 2}
        assert str(cv.choose(*problem, rng=default_rng(0), **how).set) == f"h with {best}"


def test_choice_by_brute_force(cv):
    """All subsets, by least squares on the same draws, times costs of our own."""
    problem = model, q, w = logistic(cv)
    z = cv.zoo.paper(model, q)
    names = ("c7", "c4", "c2", "c5")
    cvs = {name: getattr(z, name) for name in names}
    X = draws_of(cv, [z.h, *cvs.values()], model, q, w)
    subsets = [c for n in range(5) for c in combinations(range(4), n)]
    noise = np.array([left_by_least_squares(X, 0, [1 + l for l in c]) for c in subsets])
    slope = (cv.exact.gradient(model, q, w) ** 2).sum()
    rng, seen = default_rng(3), set()
    how = {"M": 5, "pilot": 20, "among": {"h": (z.h, cvs)}, "resamples": 3}
    for _ in range(12):
        adds = rng.exponential(0.5, 4)
        costs = {"h": 1.0} | {f"h with {n}": 1 + a for n, a in zip(names, adds)}
        if rng.random() < 0.5:
            costs["h with c7, c2"] = 0.4  # known, not predicted
        got = cv.choose(*problem, costs=costs, rng=default_rng(0), **how)
        label = lambda c: "h" + " with " * bool(c) + ", ".join(names[l] for l in c)
        cost = np.array([costs.get(label(c), 1 + sum(adds[l] for l in c)) for c in subsets])
        score = dict(zip(map(label, subsets), cost * (slope + noise)))
        assert score[str(got.set)] < 1.03 * min(score.values())  # ||E g||^2 is estimated
        assert_allclose(got.product, score[str(got.set)], rtol=0.1)
        line = {"h": z.h, "cvs": [cvs[n] for n in got.set.cvs], "renew": None}
        assert got.line == line | {"sampling": cv.Sampling()}
        seen.add(str(got.set))
    assert len(seen) > 2


def test_choice_of_base(cv):
    """With equal costs the quietest wins, with a dear one the cheap base; and its words say so."""
    problem = model, q, w = logistic(cv)
    how = {"M": 5, "pilot": 20, "rng": default_rng(0)}
    got = cv.choose(*problem, costs=flat(cv, model, q), **how)
    assert got.set.base == "QD" and got.line["renew"] == (50 if got.set.cvs else None)
    assert got.sure > 0.5 and got.regret < 0.2
    least = min(got.report.rows, key=lambda r: r.left)
    assert least.set == got.set and least.score == min(r.score for r in got.report.rows)
    assert f"leaves {least.left:.2g} of the noise" in repr(got)
    assert f"{100 * got.sure:.0f} % of resampled" in repr(got) and got.sure == least.chosen
    costs = dict.fromkeys(flat(cv, model, q), 1e6) | {"RP1": 1.0}
    got = cv.choose(*problem, costs=costs, **how)
    assert str(got.set) == "RP1" and got.line["cvs"] == []
    assert got.sure == 1.0 and got.regret == 0.0


def test_a_tie_is_not_sure(cv):
    """Two bases of the same law from other draws: the choice is a coin, and it says so."""
    model, q, _ = logistic(cv)
    h, w = by(cv.RP1, cv, model, q), q.start()
    # RP1 and RP2 at L = I: the same law, not the same numbers
    among = {"a": (h, {}), "b": (0.5 * (h + by(cv.PR, cv, model, q)), {})}
    how = {"pilot": 200, "among": among, "M": 5}
    ask = lambda seed, costs: cv.choose(model, q, w, costs=costs, rng=default_rng(seed), **how)
    first = ask(0, {"a": 1.0, "b": 1.0})
    even = {r.set.base: r.score for r in first.report.rows}
    assert first.set.base == "b" and first.sure == 1.0
    costs = {"a": 1.0, "b": 1.0 / even["b"]}  # now both are equally good
    sure = [ask(s, costs) for s in range(30)]
    assert np.mean([c.sure for c in sure]) < 0.9 and min(c.sure for c in sure) < 0.75
    assert 0 < np.mean([c.regret for c in sure]) < 0.2
    assert {c.set.base for c in sure} == {"a", "b"}


def test_without_noise_the_cheapest_wins(cv):
    """A quadratic model on all data: many sets leave nothing, and rounding must not choose."""
    rng = default_rng(0)
    X, y = rng.standard_normal((9, 3)), rng.standard_normal(9)
    model, q = cv.models.linear_regression(X, y), cv.families.Gaussian(3)
    w = cv.exact.optimum(model, q)
    costs = flat(cv, model, q, False) | {"QD": 1.2, "PR": 1.1, "PR with c7": 1.15}
    for seed in range(5):
        how = {"costs": costs, "rng": default_rng(seed), "subsample": False, "pilot": 4}
        got = cv.choose(model, q, w, **how)
        assert str(got.set) == "RP1 with c7" and got.regret == 0.0  # cost one, and no noise
        assert "leaves 0 of the noise" in repr(got)
    (row,) = cv.report({"QD": cv.candidates(model, q)["QD"][0]}, model, q, w, **how).rows
    assert row.cost == 1.0 and row.left <= 1.0


def test_timed_for_real(cv):
    """Sets that share work cost less than their parts say: the best are timed themselves."""
    problem = logistic(cv)
    z = cv.zoo.paper(*problem[:2])
    asked, true = [], {0: 1.0, 1: 9.0, 2: 0.5}  # a pair is cheap, against what its members say
    lines, how = {"c7": z.c7, "c2": z.c2}, {"M": 5, "rng": default_rng(0), "renew": 7}

    def timed(sets, table, plan, w, seconds):
        asked.append(([str(s) for s in sets], plan.renew, seconds))
        return {str(s): true[len(s.cvs)] for s in sets}

    with mock.patch.object(choosing(cv), "timed", timed):
        got = cv.choose(*problem, among={"h": (z.h, lines)}, seconds=2.0, **how)
        rows = cv.report({"h": z.h} | lines, *problem, pilot=2, seconds=3.0, **how).rows
    singles = ["h", "h with c7", "h with c2"]
    assert asked[0] == (singles, 7, 1.2) and asked[1][1:] == (7, 0.8)
    assert "h with c7, c2" in asked[1][0] and str(got.set) == "h with c7, c2"
    assert asked[2:] == [([*singles, "h with c7, c2"], 7, 3.0)]
    assert [row.cost for row in rows] == [1.0, 9.0, 9.0, 0.5]


def test_subsets(cv):
    names = tuple("abcdefghijkl")
    for few, most in (names[:4], 4), (names[:10], 10), (names, 2):
        found = [s.cvs for s in choosing(cv).subsets("h", few)]
        assert found == [c for n in range(most + 1) for c in combinations(few, n)]


def test_candidates(cv):
    """Everything is legal, gradients are gradients, and a family without RP1 has its own."""
    model, q, _ = logistic(cv)
    found = cv.candidates(model, q)
    four = {"c7", "bound", "joint", "snapshot"}
    right = {"RP1": four, "RB": four, "PR": four, "QD": {"snapshot"}, "RP1 of all three": set()}
    assert {n: set(cvs) for n, (_, cvs) in found.items()} == right
    assert found["RP1"][1]["c7"].parts == cv.zoo.paper(model, q).c7.parts
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
    assert found["PR"][0].parts == (cv.PR(data) + cv.PR(prior) - cv.CF(variational)).parts
    both = cv.taylor_z(data + prior)
    assert found["PR"][1]["c7"].parts == (cv.CF(both) - cv.PR(both)).parts
    assert "PR of all three" in cv.candidates(mine, q2, subsample=False)
    X, y, log_prior = np.ones((2, 201)), np.ones(2), lambda z: -anp.sum(z**4, -1)
    log_lik = lambda z, batch: batch[0] * anp.sum(z, -1)
    for family in cv.families.Gaussian, cv.families.DiagonalGaussian:
        wide = cv.models.Model(log_lik, log_prior, y, dim=201)  # its Hessian is too dear
        few = cv.candidates(wide, family(201), subsample=False)
        assert list(few) == ["RP1", "RP1 of all three", "AQ of all three"]
        assert not any(cvs for _, cvs in few.values())  # without expansions
        assert len(cv.candidates(cv.models.logistic_regression(X, y), family(201))) == 5
    unit, gamma = cv.families.Bernoulli(2), cv.families.Gamma(2)
    assert list(cv.candidates(mine, unit)) == ["GR", "SF", "LB of all three"]
    shifted = shifted_of(cv)
    entropy = lambda self, w: 0.5 * self.dim * np.log(2 * np.pi * np.e) + 0 * w[..., 0]
    told = type("Told", (shifted,), {"entropy": entropy})  # else it has no closed form to take
    assert list(cv.candidates(mine, shifted(2))) == ["RP1 of all three"]
    assert list(cv.candidates(mine, told(2))) == ["RP1", "SF", "RP1 of all three"]
    assert list(cv.candidates(mine, gamma))[:2] == ["GR", "SF"]
    for family in q2, unit, gamma:  # what fit takes is on the list
        h = part(cv, "zoo").whole_gradient(mine, family)
        assert h.parts in [line.parts for line, _ in cv.candidates(mine, family).values()]
        (word,) = {word for word, _ in h.parts}
        assert h.parts == word(sum_of(cv.terms(mine, family))).parts
    for table in found, whole, cv.candidates(mine, unit):
        for h, cvs in table.values():
            part(cv, "estimators").check_gradient(h)
            for c in cvs.values():
                part(cv, "estimators").check_variate(c)


def test_price_is_refused_where_there_are_kinks(cv):
    """Autograd's second derivative of |r| is zero: PR is quiet and wrong, and must not win.

    Laplace's likelihood has a kink in z for every row; or one rounded off, where PR is right.
    """
    q, rng = cv.families.Gaussian(2), default_rng(0)
    X = rng.standard_normal((20, 2))
    y = X @ [1.0, -1.0] + rng.laplace(size=20)
    ask = lambda model, seed, **how: cv.choose(model, q, q.start(), rng=default_rng(seed), **how)
    for sharp, size in (True, anp.abs), (False, lambda r: anp.sqrt(1 + r**2)):
        log_lik = lambda z, batch, size=size: -size(batch[1] - anp.sum(batch[0] * z, -1))
        model = cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, y), dim=2)
        for see in {"subsample": False}, {}:
            costs = flat(cv, model, q, see.get("subsample", True))
            got = ask(model, 0, pilot=60, costs=costs, **see)
            assert ("PR is refused: its mean is" in repr(got)) == sharp
            assert ("PR is refused" in repr(got.report)) == sharp
            assert not sharp or not any("PR" in r.set.base for r in got.report.rows)
    few = {"pilot": 2, "costs": costs, "resamples": 2}
    assert not any(ask(model, s, **few).report.refused for s in range(40))  # they say little


def test_what_is_wrapped_gets_its_snapshot(cv):
    """Only what looks at older weights has one taken, of the order and with the factor it needs."""
    model, q, w = logistic(cv)
    z, rng = cv.zoo.paper(model, q), default_rng(0)
    data, _, _ = cv.terms(model, q)
    inside = cv.surrogate(cv.taylor_z(data, at="snapshot"), lambda z: anp.tanh(z[..., 0]))
    steep = cv.taylor_z(cv.taylor_z(data, at="snapshot", order=1), order=1)
    tangent = cv.taylor_z(cv.bound(data, at="snapshot"), order=1)
    for name, line, wants in (
        ("surrogate", cv.SF(inside) - cv.RP1(inside), None),
        ("line of a bound", cv.LOO(tangent) - cv.CF(tangent), (2, True, False)),
        ("line of a slope", cv.RP1(steep) - cv.CF(steep), (1, False, False)),
    ):
        wanted = part(cv, "recipe.integrands").wanted(atom for _, atom in line.parts)
        assert wanted == wants  # a snapshot has what is wanted: test_passes.py
        costs, among = {"h": 1.0, f"h with {name}": 1e-6}, {"h": (z.h, {name: line})}
        got = cv.choose(model, q, w, M=4, rng=rng, among=among, costs=costs, pilot=8, renew=9)
        assert got.set.cvs == (name,) and got.line["renew"] == (9 if wants else None)


def test_it_works_with_a_real_clock():
    """Nothing given: sets are timed, and something sensible comes out for any family."""
    rng, model = default_rng(0), own(cvlib)
    full, diagonal = cvlib.families.Gaussian(2), cvlib.families.DiagonalGaussian(2)
    for q, see in (full, {}), (diagonal, {"batch": 3}), (full, {"subsample": False}):
        got = cvlib.choose(model, q, q.start(), M=4, rng=rng, pilot=8, seconds=0.02, **see)
        assert got.set.base in cvlib.candidates(model, q, see.get("subsample", True))
        assert all(r.cost > 0 and np.isfinite(r.score) for r in got.report.rows)
        assert got.line["sampling"] == cvlib.Sampling(**see)
    model, q, w = logistic(cvlib)
    got = cvlib.choose(model, q, w, rng=rng, pilot=8, seconds=0.02)
    cvlib.optimize.sgd(model, q, **got.line, lr=0.1, steps=5, M=10, rng=rng)
