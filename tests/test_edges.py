"""Copies that must keep every option, defaults beside other arguments, edges, and single helpers.

Each is tested where it is, by brute force, a closed form, or the same without the odd one.
"""

import warnings
from dataclasses import fields, replace
from math import inf
from types import SimpleNamespace
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose, assert_array_equal
from scipy.signal import lfilter

RNG = np.random.default_rng
X = RNG(0).standard_normal((6, 2))
Y = np.array([1.0, -1, 1, 1, -1, -1])


def own(cv, d=2, log_prior=None):
    lik = lambda z, b: -0.5 * (b[1] - anp.sum(anp.sin(b[0] * z), -1)) ** 2
    return cv.models.Model(lik, log_prior or cv.models.GaussianPrior(), (X[:, :d], Y), d)


def flat(cv, d):
    """log p is zero everywhere."""
    return cv.models.Model(lambda z, b: 0 * z[..., 0] * b[0], lambda z: 0 * z[..., 0], [1.0], d)


# Copies -------------------------------------------------------------------------------------------


def approximations(cv):
    """(model, q, integrand) of every approximation with every option."""
    glm, full = cv.models.logistic_regression(X, Y), cv.families.Gaussian(2)
    for model in (glm, own(cv)):
        data = cv.terms(model, full)[0]
        ways = {"order": (1, 2), "at": ("mu", "snapshot")}
        expand = [cv.taylor_z(data, order=k, at=at) for k in ways["order"] for at in ways["at"]]
        if model is glm:
            expand += [f(data, at=at) for f in (cv.bound, cv.parabola) for at in ways["at"]]
            expand += [cv.taylor_x(data), cv.taylor_x_slope(data)]
        yield from ((model, full, f) for f in (data, *expand))
    q = cv.families.Bernoulli(2)
    switches = own(cv, log_prior=q.prior(0.0))
    data = cv.terms(switches, q)[0]
    for tau in (0.3, 0.9):
        for coupled in (True, False):
            yield switches, q, cv.relax(data, tau, coupled)
    yield switches, q, cv.surrogate(data, lambda zeta: anp.sum(zeta**3, -1))


def test_all_data_are_the_batch_of_all_rows(cv):
    """For every approximation and option, word by word; no two of them are taken for equal."""
    seen, words = [], 0
    for model, q, f in approximations(cv):
        w = q.start() + 0.3 * RNG(1).standard_normal(q.D)
        old = None
        if q.gaussian:
            factor = {"factor": 0.7 * np.eye(2), "mean": True} if model.likelihood else {}
            old = cv.snapshot(model, np.array([0.4, -0.2]), **factor)
        eps, every = q.noise(RNG(2), w, 3), np.tile(np.arange(6), (3, 1))
        draw = lambda **how: cv.draw(model, q, w, eps=eps, snapshot=old, **how)
        all_rows, one_row = draw(index=every, batch=6, each=True), draw(index=np.array([4, 0, 4]))
        for word in (cv.SF, cv.RP1, cv.RP2, cv.PR, cv.GR, cv.CF):
            try:
                one, whole = word(f), word((2 * f - f).over_all_data())
            except (ValueError, TypeError):
                continue
            words += 1
            got = [np.broadcast_to(line(d), (3, q.D)) for line, d in
                   ((one, all_rows), (whole, one_row), (one, draw(subsample=False)))]  # fmt: skip
            assert_allclose(got[1:], [got[0]] * 2, rtol=1e-7, atol=1e-9, err_msg=repr(one))
        assert f.over_all_data().over_all_data().parts == f.over_all_data().parts
        seen += [*f.parts, *f.over_all_data().parts]
    assert words > 60 and len({*seen}) == len({atom.name + str(id(atom.model)) for atom in seen})
    assert len({*seen}) >= 2 * 20 + 1  # a surrogate sees no data


def test_a_changed_plan_keeps_all_else(cv):
    """Every field of every plan, each changed in turn; and a step goes by the change alone."""
    model, full, narrow = own(cv), cv.families.Gaussian(2), cv.families.DiagonalGaussian(2)
    plans, rules = part(cv, "ascent.plans"), cv.rules
    Rotated = part(cv, "ascent.rotated").Rotated
    h = cv.candidates(model, full)["RP1"][0]
    how = cv.Sampling(batch=3, each=True, noise="pairs")
    made = [
        (plans.Noisy, full, {"h": h, "M": 4, "lr": 0.3, "sampling": how, "renew": 5, "average": 2,
                             "rule": rules.adam(), "weights": rules.fixed(0.5), "cvs": ()}),
        (plans.Regressed, narrow, {"M": 7, "most": 0.3, "reach": 1.5, "lr": 0.5, "average": 3}),
        (Rotated, full, {"radii": 3, "turns": 2, "reach": 1.5, "lr": 0.5, "average": 3}),
    ]  # fmt: skip
    for kind, q, given in made:
        plan = kind(model, q, **given)
        assert given.keys() <= {f.name for f in fields(plan)}
        for name, value in {"lr": 0.7, "average": 4, "reach": 2.5, "M": 6, "turns": 1}.items():
            if name in given:
                other = replace(plan, **{name: value})
                wanted = given | {name: value}
                assert {k: getattr(other, k) for k in given} == wanted, (kind, name)
                right = kind(model, q, **wanted)
                one, two = (p.step(p.first(RNG(0))) for p in (other, right))
                assert_array_equal(one.w, two.w)
    for name, value in {"batch": 2, "each": False, "noise": "plain"}.items():
        changed = replace(how, **{name: value})
        kept = {"subsample": True, "batch": 3, "each": True, "noise": "pairs"} | {name: value}
        assert {f.name: getattr(changed, f.name) for f in fields(how)} == kept
        assert cv.Sampling.of(changed) is changed


@pytest.mark.parametrize("reach", (0.5, 2.5, 20.0))
def test_a_plan_s_own_reach(cv, reach):
    """From N(0, I) towards a posterior about (900, 900): so many sds, coordinate by coordinate."""
    lik = lambda z, b: -0.5 * anp.sum((b[0] - z) ** 2, -1)
    model = cv.models.Model(lik, lambda z: 0 * z[..., 0], np.full((3, 2), 900.0), 2)
    for kind, family in (("rotated.Rotated", "Gaussian"), ("plans.Regressed", "DiagonalGaussian")):
        where, name = f"ascent.{kind}".rsplit(".", 1)
        plan = getattr(part(cv, where), name)(model, getattr(cv.families, family)(2), reach=reach)
        start = plan.q.pack([0.0, 0.0], np.eye(2) if plan.q.full else [1.0, 1.0])
        assert_allclose(plan.step(plan.first(RNG(0), start)).w[:2], reach, rtol=1e-6)


def test_one_run_of_many_is_that_run_alone(cv):
    """Every attribute of a draw and of its snapshot, with a step each."""
    model, q = cv.models.logistic_regression(X, Y), cv.families.Gaussian(2)
    w = q.start((3,)) + 0.2 * RNG(0).standard_normal((3, q.D))
    factor = q.unpack(w)[1]
    old = cv.snapshot(model, w[:, :2], factor=factor, mean=True)
    for noise, M in (("pairs", 4), ("rotated", 5)):
        many = cv.draw(model, q, w, M, RNG(1), batch=2, each=True, noise=noise, snapshot=old)
        for k in range(3):
            one = part(cv, "ascent.plans")._of_run(many, k)
            alone = cv.snapshot(model, w[k, :2], factor=factor[k], mean=True)
            for name in ("w", "eps", "index", "mu", "factor", "weight"):
                whole = getattr(many, name)
                assert_array_equal(getattr(one, name), whole if whole is None else whole[k])
            assert (one.group, one.model, one.q) == (many.group, model, q)
            assert (one.snapshot.checksum, one.snapshot.mark) == (model.checksum, model.mark)
            assert_allclose(one.snapshot.factor, factor[k])
            assert one.snapshot.parabolas.keys() == alone.parabolas.keys() >= {"bound", "parabola"}
            for kind, sums in alone.parabolas.items():
                for x, y in zip(one.snapshot.parabolas[kind], sums):
                    assert_allclose(x, y, rtol=1e-9, err_msg=kind)


# Defaults where another argument is given --------------------------------------------------------


@pytest.mark.parametrize("entry", ("fit", "go_on"))
def test_one_budget_lifts_the_default_of_the_other(cv, entry):
    """On a clock that a pass moves by four seconds: only where neither is given is 60 the end."""
    runs, clock = part(cv, "fitting.run"), SimpleNamespace(now=0.0, pass_=0.0)
    rows = lambda z, b: -0.5 * (b[0] - z[..., 0]) ** 2 - 0.1 * z[..., 0] ** 4 + tick(z)

    def tick(z):
        clock.now += clock.pass_ if np.ndim(getattr(z, "_value", z)) > 1 else 0
        return 0.0

    model, q = cv.models.Model(rows, cv.models.GaussianPrior(), Y, 1), cv.families.Gaussian(1)
    time = SimpleNamespace(perf_counter=lambda: clock.now)
    with mock.patch.object(runs, "time", time), warnings.catch_warnings(action="ignore"):
        begun = cv.fit(model, q, steps=3, progress=False)
        first = {"fit": lambda **k: cv.fit(model, q, progress=False, **k),
                 "go_on": lambda **k: begun.go_on(progress=False, **k)}[entry]  # fmt: skip
        clock.pass_, found = 4.0, {}
        for budget in ({}, {"steps": 30}, {"seconds": 1e6}, {"seconds": 300.0, "steps": 9}):
            clock.now = 0.0
            fit = first(**budget)
            found[(*budget,)] = fit.steps, fit.settled, clock.now
    steps, settled, took = found[()]
    assert steps < 20 and not settled and 40 < took < 75
    steps, settled, took = found["steps",]
    assert (steps == 30 or settled and steps > 9) and took > 90
    steps, settled, took = found["seconds",]
    assert settled and took > 90
    steps, settled, took = found["seconds", "steps"]
    assert steps <= 9 and took < 400


def test_costs_that_are_given_are_not_measured(cv):
    model, q = cv.models.logistic_regression(X, Y), cv.families.Gaussian(2)
    h = cv.candidates(model, q)["RP1"][0]
    c = cv.SF(cv.one)
    known = {"h": 1.0, "h with c": 1.5}
    with mock.patch.object(part(cv, "choosing"), "timed", side_effect=AssertionError("timed")):
        how = {"M": 4, "rng": RNG(0), "pilot": 4, "costs": known}
        rows = cv.report({"h": h, "c": c}, model, q, q.start(), **how).rows
        cv.choose(model, q, q.start(), among={"h": (h, {"c": c})}, **how)
    assert [row.cost for row in rows] == [1.0, 1.5]


# Edges: half of a pair, zero vectors, one row ----------------------------------------------------


@pytest.mark.parametrize("what", ("value", "slope"))
@pytest.mark.parametrize("where", (0, 1, -2))
def test_half_of_a_pair_without_a_number(cv, what, where):
    """Both halves are taken as if q were right along them: c = 0 and A = 0 there.

    Sum G e^T is not symmetric, and what is found of the curvature is.
    """
    e, weight = part(cv, "points").spheres(RNG(0), 2, 2)
    L, half = np.array([[1.5, 0], [0.4, 0.8]]), len(e) // 2
    seen = part(cv, "ascent.rotated")._seen
    value, slope = -0.7 * (e**2).sum(-1), (e @ [[0, 1], [0, 0]] - 1.4 * e) @ np.linalg.inv(L)
    broken = {"value": value.copy(), "slope": slope.copy()}
    broken[what][where] = np.nan
    place = np.arange(len(e))[where]
    pair = [place % half, place % half + half]
    value[pair] = value[-1] - (e[pair] ** 2).sum(-1) / 2
    slope[pair] = (slope[-1] @ L - e[pair]) @ np.linalg.inv(L)
    elbo, c, A = seen(L, e, weight, broken["value"], broken["slope"])
    assert_allclose(elbo, weight @ value + np.log(1.5 * 0.8))
    assert_allclose(c, weight @ (slope @ L), atol=1e-12)
    right = (weight[:, None] * (slope @ L)).T @ e
    assert_allclose(A, (right + right.T) / 2 + np.eye(2), atol=1e-12)
    assert np.abs(right - right.T).max() > 0.1
    most = slope.copy()
    most[1:-1] = np.nan  # all but a half of one pair, and the centre
    assert np.isnan(seen(L, e, weight, value, most)[1]).all()  # of most pairs nothing is made up
    broken["value"][-1] = np.nan  # the centre has none: nothing to lean on
    assert not np.isfinite(seen(L, e, weight, broken["value"], broken["slope"])[0])


def test_draws_of_a_diagonal_q_without_a_number_are_left_out(cv):
    """A step is that of the other draws, as a regression of them alone."""
    plans, regression = part(cv, "ascent.plans"), part(cv, "recipe.regression")
    model, q = own(cv), cv.families.DiagonalGaussian(2)
    plan, w = plans.Regressed(model, q, M=8), q.pack([0.2, -0.1], [0.8, 1.1])
    e, G = RNG(3).standard_normal((2, 8, 2))
    draw = SimpleNamespace(eps=e)
    for value, slope in ((np.nan, 1.0), (inf, 1.0), (0.0, np.nan)):
        broken, values = G.copy(), np.zeros(8)
        broken[5, 1], values[5] = slope, value
        with mock.patch.object(plans, "scored", lambda *_: (draw, values, broken)):
            new = plan.step(plan.first(RNG(0), w))
        kept = np.arange(8) != 5
        found = regression.diagonal(regression.regress)(e[kept], (G + e)[kept], 0.1)
        right, _ = cv.rules.newton(q, w, found.c, found.A, 0.1, 2.0)
        assert_allclose(new.w, right)
        assert new.diverged < 0


def test_vectors_of_zeros(cv):
    """Weights, regressions, moves and curvatures of nothing are zero, and not NaN."""
    combine, regression = part(cv, "combine"), part(cv, "recipe.regression")
    h, C = RNG(0).standard_normal((5, 3)), RNG(1).standard_normal((2, 5, 3))
    alone = combine.empirical_weights(combine.moments(h, C))
    beside = np.concatenate([C[:1], np.zeros((1, 5, 3)), C[1:]])
    assert_allclose(combine.empirical_weights(combine.moments(h, beside))[[0, 2, 1]], [*alone, 0.0])
    for zero in (0 * C, 0 * C[:1]):
        assert_array_equal(combine.empirical_weights(combine.moments(h, zero)), 0.0)
        assert_array_equal(combine.bayes_weights(combine.moments(h, zero), 0.1, 3), 0.0)
    assert_array_equal(combine.empirical_weights(combine.moments(0 * h, C)), 0.0)
    e = RNG(2).standard_normal((9, 2))
    for found in (regression.regress(e, 0 * e, 0.1), regression.rows(e, 0 * e, 0.1)):
        assert all((x == 0).all() for x in found)
    seen = regression.gauge(e, -e)  # q is the posterior
    assert_array_equal(seen, 0.0)
    assert_allclose(regression.shrinkage(seen, 2), 0.02)
    bowl = cv.models.Compiled(lambda z: (-(z**2).sum(-1) / 2, -z), 2)
    times = part(cv, "special").hess_times
    assert_allclose(times(bowl.log_joint, e[:2], np.array([[0.0, 0], [3, 4]])), [[0, 0], [-3, -4]])
    q = cv.families.Gaussian(2)
    plan = part(cv, "ascent.rotated").Rotated(flat(cv, 2), q)  # no end to where it may widen
    state = plan.step(plan.first(RNG(0), q.pack([1.0, 2.0], np.eye(2))))
    assert_array_equal(state.w[:2], [1.0, 2.0])
    assert np.isfinite(state.w).all() and state.w[2] > 1


@pytest.mark.parametrize("place", (0.0, 3.0, 1e3))
def test_a_coordinate_that_stands_still(cv, place):
    """It tells nothing of its own law: no variates, and without them the answer is a mean."""
    z = RNG(0).standard_normal((200, 2))
    f, still = z[:, 0] ** 2, np.column_stack([z, np.full(200, place)])
    for order in (1, 2, None):
        with pytest.raises(ValueError, match="coordinate 2 of z is the same at all 200 draws"):
            cv.expect(f, still, -still, order=order, block=1)
    for weights in (None, np.exp(0.1 * z[:, 0])):
        found = cv.expect(f, still, -still, weights, order=0, block=1)
        assert_allclose(found.estimate, np.average(f, weights=weights), rtol=1e-2)
    constant = cv.expect(np.full(200, 2.5), z, -z, block=1)
    assert_allclose(constant.estimate, 2.5)
    assert constant.se < 1e-9


def test_weights_at_their_edges(cv):
    """None, one, some without a number, all but one of zero."""
    tails = part(cv, "looks")
    none = tails.Weights(np.empty((0, 2)), np.empty(0))
    assert np.isnan(none.elbo).all() and none.effective == 0 and np.isnan(none.k_hat)
    one = tails.Weights(np.zeros((1, 2)), np.array([-3.0]))
    assert one.elbo == (-3.0, 0.0) and one.effective == 1 and one.share == [1.0]
    log = np.array([0.0, np.nan, np.log(3), inf, -inf])
    some = tails.Weights(np.zeros((5, 1)), log)
    assert_array_equal(some.fine, [1, 0, 1, 0, 0])
    assert_allclose(some.share, [0.25, 0, 0.75, 0, 0])
    assert_allclose(some.effective, 1 / (1 / 16 + 9 / 16) / 5)
    assert_allclose(some.elbo[0], np.log(3) / 2 + np.log(2 / 3))
    alone = tails.Weights(np.zeros((4000, 1)), np.append(0.0, np.full(3999, -inf)))
    assert alone.effective == 1 / 4000 and alone.share[0] == 1
    for n in (1, 2, 24):
        w, k = tails.smoothed(np.full(n, -700.0))
        assert_array_equal(w, 1.0)
        assert np.isnan(k)


# Single helpers -----------------------------------------------------------------------------------


def test_modes_are_as_high_as_the_highest(cv):
    """Peaks at 0, 20 and 90, each two nats lower: the third is four below, unless it is wide.

    What counts is the mass about a mode, its height times its width; where log p does not dip
    between two of them they are one.
    """
    starts, centre = part(cv, "starts"), np.array([0.0, 20.0, 90.0])

    def told(heights, width):
        value = lambda z: np.max(heights - 0.5 * ((z - centre) / width) ** 2, -1)
        slope = lambda z: (value(z), (value(z + 1e-6) - value(z - 1e-6))[:, None] / 2e-6)
        density = SimpleNamespace(value=value, slope=slope)
        modes = [starts.Mode(c[None], h, None, c[None]) for c, h in zip(centre, heights)]
        return starts._rivals(density, modes, cv.Settings())[:7]

    assert told(np.array([0.0, -2.0, -4.0]), 1.0) == "2 modes"
    assert told(np.array([0.0, -2.0, -3.5]), np.array([1, 1, 8.0])) == "3 modes"
    assert told(np.array([0.0, -2.0, -4.0]), np.array([1, 0.1, 1])) == ""
    assert told(np.array([0.0, -0.5, -9.0]), 10.0) == ""


def test_autocorrelation_times(cv):
    """By Geyer's rule written as loops; of an autoregressive chain (1 + rho) / (1 - rho)."""
    correlation = part(cv, "fitting.stein").correlation

    def slow(x, chains):
        n = len(x) // chains
        parts = x.reshape(chains, n)
        rho = [sum(c[: n - k] @ c[k:] for c in parts) / (x @ x) for k in range(n + n % 2)]
        total, least = 0.0, inf
        for k in range(0, len(rho), 2):
            least = min(least, rho[k] + rho[k + 1])
            if least <= 0:
                break
            total += least
        return 2 * total - 1

    for n, chains in ((40, 1), (41, 1), (60, 3), (63, 3), (4, 2), (4, 4)):
        x = np.cumsum(RNG(n).standard_normal((n, 3)), 0)
        x -= x.mean(0)
        assert_allclose(correlation(x, chains), [slow(col, chains) for col in x.T])
    for rho in (-0.5, 0.0, 0.9):
        x = lfilter([1], [1, -rho], RNG(1).standard_normal(100_000))
        assert_allclose(correlation(x[:, None], 1), (1 + rho) / (1 - rho), rtol=0.15)
        turned = x.reshape(10, -1)[::-1].reshape(-1, 1)  # the order of chains does not matter
        assert_allclose(correlation(turned, 10), correlation(x[:, None], 10))
    assert (correlation(np.zeros((20, 2)), 1) <= 1).all()  # no number moves: no long time


def test_primes(cv):
    sieve = [p for p in range(3, 200) if all(p % k for k in range(2, p))]
    for d in range(1, 300):
        assert part(cv, "points").prime(d) == next(p for p in sieve if 2 * p >= d)


@pytest.mark.parametrize("p", (3, 5, 7))
def test_frames_keep_apart(cv, p):
    """Orthonormal each; |products| within a block of C^p 1 / sqrt(p); all exact for degree five."""
    D, frame = 2 * p, part(cv, "points").frame
    frames = np.array([frame(p, k) for k in range(2 * p + 2)])
    assert frames.shape == (2 * p + 2, D, D)
    assert_allclose(frames @ frames.mT, np.tile(np.eye(D), (2 * p + 2, 1, 1)), atol=1e-12)
    complex_ = frames[:, :p, :p] + 1j * frames[:, :p, p:]
    for j in range(p + 1):
        for k in range(j):
            assert_allclose(np.abs(complex_[j].conj() @ complex_[k].T), p**-0.5, atol=1e-12)
    for v in RNG(0).standard_normal((5, D)):  # the mean of (q.v)^4 over a sphere
        assert_allclose(((frames @ v) ** 4).mean(), 3 * (v @ v) ** 2 / (D * (D + 2)))
    assert np.abs(((frames[0] @ v) ** 4).mean() * D * (D + 2) / (v @ v) ** 2 - 3) > 1e-3


@pytest.mark.parametrize("radii, turns, d", [(1, 1, 3), (2, 1, 3), (3, 2, 5), (5, 2, 2)])
def test_rotations_of_a_run(cv, radii, turns, d):
    """All frames one after the other, turned alike; a new turn once fewer are left than a step has.

    A row of each is a part of a unit vector, and the generator moves with a new turn alone.
    """
    points, n = part(cv, "points"), radii * turns
    how = {"radii": radii, "turns": turns}
    plan = part(cv, "ascent.rotated").Rotated(flat(cv, d), cv.families.Gaussian(d), **how)
    p = points.prime(d)
    K, each = 2 * p + 2, max((2 * p + 2) // n, 1)
    state, turn, used = plan.first(RNG(7)), None, []
    assert plan.M == 4 * p * n + 1
    for t in range(2 * each + 1):
        before = state.rng.bit_generator.state["state"]
        new, Q = plan.rotations(state._replace(t=t))
        assert (before != state.rng.bit_generator.state["state"]) == (t % each == 0)
        assert Q.shape == (n, 2 * p, d) and new.shape == (2 * p, d)
        assert_allclose(new.T @ new, np.eye(d), atol=1e-12)
        assert (turn is None or not np.array_equal(new, turn)) == (t % each == 0)
        numbers = [(t % each * n + k) % K for k in range(n)]
        assert_allclose(Q, [points.frame(p, k) @ new for k in numbers], atol=1e-12)
        used = numbers if t % each == 0 else used + numbers
        assert n > K or len({*used}) == len(used)  # none comes twice under one turn
        state, turn = state._replace(moments=(new,)), new


def test_who_decides_a_mean(cv):
    """The effective number of draws that are not the median's, counted by hand."""
    Y = np.zeros((10, 2))
    Y[3, 0], Y[[1, 2, 5], 1] = 7.0, (4.0, 4.0, -4.0)
    many, away = part(cv, "fitting.stein").behind(Y, np.ones(10))
    assert_allclose(many, [1, 3])
    assert_allclose(away, np.abs(Y))
    w = np.ones(10)
    w[5] = 0.5
    assert_allclose(part(cv, "fitting.stein").behind(Y, w)[0], [1, 2.5**2 / 2.25])
    w[3] = 99.0  # now it is the median's own value
    many, away = part(cv, "fitting.stein").behind(Y, w)
    assert_allclose(away[:, 0], np.where(np.arange(10) == 3, 0, 7 * w))
    assert (part(cv, "fitting.stein").behind(0 * Y, w)[0] == 0).all()


def test_what_folds_do_not_foretell(cv):
    """Ten refits without a tenth of the draws each."""
    stein, rng = part(cv, "fitting.stein"), RNG(4)
    Q, y = np.linalg.qr(rng.standard_normal((33, 4)))[0], rng.standard_normal((33, 2))
    total = 0.0
    for fold in np.array_split(np.arange(33), 10):
        out = np.isin(np.arange(33), fold)
        left = np.linalg.lstsq(Q[~out], y[~out])[0]
        total = total + ((y[out] - Q[out] @ left) ** 2).sum(0)
    assert_allclose(stein._missed(Q, y), total)


def test_at_rest(cv):
    """Where s times the signal is no more than signal and noise, for slope and curvature alike."""
    plans, regression = part(cv, "ascent.plans"), part(cv, "recipe.regression")
    found = regression.Fitted(np.array([3.0, 4.0]), np.array([1.0, 2.0]))  # 25 and 5
    rest = lambda slope, bend, s: plans.at_rest(regression.Gauge(slope, bend, 0.0), found, s)
    assert rest(5.0, 1.0, 5) and not rest(5.1, 1.0, 5) and not rest(5.0, 1.1, 5)
    assert rest(-1.0, -1.0, 9) and rest(1e9, 1e9, 0)
