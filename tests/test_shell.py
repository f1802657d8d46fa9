"""The shell around the mathematics: state over calls, files, limits, order of data, printing."""

import re
import time
from contextlib import nullcontext
from functools import partial
from itertools import product
from types import SimpleNamespace
from unittest import mock
from zlib import crc32

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from bs4 import BeautifulSoup

import cvlib as cv
from cvlib.deadline import deadline
from cvlib.fitting import starts, strategies
from cvlib.fitting.found import Found
from cvlib.fitting.strategies import chosen, named
from cvlib.models import density, passes
from cvlib.models.density import Density

pytestmark = pytest.mark.filterwarnings("ignore::cvlib.Distrust")

X, Y = cv.datasets.toy(30)


def log_lik(p, batch):
    x, y = batch
    return -0.5 * ((y - p.slope * x) / p.sigma) ** 2 - anp.log(p.sigma)


log_prior = lambda p: -0.5 * p.slope**2 - p.sigma
PARAMETERS = {"slope": (), "sigma": cv.positive}
LINE = cv.models.Model(log_lik, log_prior, (X[:, 0], Y), parameters=PARAMETERS)
GLM = cv.models.logistic_regression(X, Y)
COUNTS = cv.models.poisson_regression(X, np.arange(30.0) % 3)


def quick(model=LINE, q=None, **more):
    return cv.fit(model, q, progress=False, **({"steps": 10} | more))


def told(fit):
    """All that a fit says of itself but for its seconds, to the letter."""
    arrays = [x.tobytes() for x in (fit.w, fit.looks, fit.mean, fit.sd)]
    numbers = fit.elbo, fit.error, fit.effective, repr(fit.k_hat), fit.steps, fit.settled
    return *arrays, *numbers, fit.words, fit.warnings, fit.report, repr(fit)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path, old, new = tmp_path / "fit", quick(steps=3), quick(steps=4)
    old.save(path)

    def cut_off(file, **arrays):
        file.write(b"half of a fit")
        raise OSError("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", cut_off)
        with pytest.raises(OSError, match="no space"):
            new.save(path)
    assert told(cv.Fit.load(path, LINE)) == told(old)
    same = tmp_path / "same"
    same.hardlink_to(path)  # who has the old file open keeps it: nothing is written into it
    new.save(path)
    assert told(cv.Fit.load(same, LINE)) == told(old)
    assert told(cv.Fit.load(path, LINE)) == told(new)
    assert {file.name for file in tmp_path.iterdir()} == {"fit", "same"}


@pytest.mark.parametrize("factor, same", [(1 + 1e-5, False), (1 + 1e-10, True)])
def test_a_fit_of_functions_that_differ_a_little_is_refused(factor, same, tmp_path):
    quick(steps=3).save(tmp_path / "fit")
    of = lambda lik: cv.models.Model(lik, log_prior, LINE.data, parameters=PARAMETERS)
    other = of(lambda p, batch: factor * log_lik(p, batch))
    one = primitive(lambda v: 1.0 + 0 * v)
    defvjp(one, lambda ans, v: lambda g: g * (factor - 1))
    turned = of(lambda p, batch: log_lik(p, batch) * one(p.slope))  # the same values, other slopes
    lik = lambda x: cv.models.Likelihood("own", lambda t, y: -x * (y - t) ** 2)
    own = [cv.models.GLM(X, Y, lik(x)) for x in (1, factor)]
    for call, words in [
        (lambda: cv.Fit.load(tmp_path / "fit", other), "another value of log p"),
        (lambda: cv.Fit.load(tmp_path / "fit", turned), "another slope of log p"),
        (lambda: cv.snapshot(LINE, np.zeros(2)).check(other), "another likelihood"),
        (lambda: cv.snapshot(own[0], np.zeros(2)).check(own[1]), "another likelihood"),
    ]:
        with nullcontext() if same else pytest.raises(ValueError, match=words):
            call()


def three(a, b, c):
    lik = lambda z, batch: -0.5 * (batch[0] + batch[1] + batch[2] - z[..., 0]) ** 2
    return cv.models.Model(lik, cv.models.GaussianPrior(), (a, b, c), 1)


def test_another_row_of_any_array_is_refused(tmp_path):
    arrays = np.arange(10.0), np.ones(10), np.linspace(0, 1, 10)
    quick(three(*arrays), steps=1).save(tmp_path / "fit")
    old = cv.snapshot(three(*arrays), np.zeros(1))
    for array, row in product(range(3), (0, 4, 9)):
        moved = [a + 1e-9 * (np.arange(10) == row) * (k == array) for k, a in enumerate(arrays)]
        with pytest.raises(ValueError, match="not one of the data"):
            old.check(three(*moved))
    cv.Fit.load(tmp_path / "fit", three(*arrays))
    with pytest.raises(ValueError, match="with other numbers in its data"):
        cv.Fit.load(tmp_path / "fit", three(*moved))
    with pytest.raises(ValueError, match=r"is a fit of <own .*, not of <own model: 9 data"):
        cv.Fit.load(tmp_path / "fit", three(*[a[1:] for a in arrays]))


def test_the_checksum_is_the_same_whatever_the_parts_of_a_pass(monkeypatch):
    """It is that of shapes, kinds and all bytes; another order of rows or arrays has another."""
    rng, rows = np.random.default_rng(0), np.arange(10)
    y, kinds = rng.standard_normal(10), rng.integers(0, 5, 10)
    x = rng.standard_normal((10, 3)).astype(np.float32)
    away = lambda z, batch: -0.5 * (batch[0] - z[..., 0]) ** 2
    of = lambda *data: cv.models.Model(away, cv.models.GaussianPrior(), data, 1).checksum
    head = repr([(a.shape, a.dtype.str) for a in (y, x, kinds)]).encode()
    right = crc32(head + y.tobytes() + x.tobytes() + kinds.tobytes())
    for size in (1, 6, 13, 29, 30, 2**20):  # numbers of a part: rows one by one to all at once
        monkeypatch.setattr(passes, "CHUNK", size)
        assert of(y, x, kinds) == right
        assert of(y, np.asfortranarray(x), kinds) == right  # the same numbers
        assert of(y[::-1], x[::-1], kinds[::-1]) != right
        assert of(y, np.roll(x, 1, 1), kinds) != right
        assert of(y, x, kinds[np.roll(rows, 1)]) != right
        assert right not in (of(y, kinds, x), of(y, x.astype(float), kinds))


def test_sorted_data_give_the_mode_of_shuffled_ones():
    """The mean of normal data, of which some rows stand for all in the search for the mode."""
    y = np.sort(np.random.default_rng(0).standard_normal(41_000) + 3)
    away = lambda z, batch: -0.5 * (batch[0] - z[..., 0]) ** 2
    for rows in (y, y[::-1], np.random.default_rng(1).permutation(y)):
        model = cv.models.Model(away, cv.models.GaussianPrior(10.0), rows, 1)
        some = Density.of_some(model, np.random.default_rng(0))
        assert len({*some.model.data[0]}) == 10_000 and some.scale == 4.1
        begin = starts.start(model)
        assert abs(begin.mu[0] - model.data[0].mean()) < 4 / np.sqrt(10_000)
        assert 0.5 < begin.S[0, 0] * np.sqrt(41_000) < 2
    other = Density.of_some(model, np.random.default_rng(1))
    assert not np.array_equal(other.model.data[0], some.model.data[0])


# Limits: (a call that is fine, one that is refused, words of the refusal) -------------------------

Q, D, G = cv.families.Gaussian(2), cv.families.DiagonalGaussian(2), cv.families.Gamma(2)
DATA = cv.terms(GLM, Q)[0]
H = cv.candidates(GLM, Q)["RP1"][0]
FIT = quick(steps=3)
Z = np.random.default_rng(0).standard_normal((40, 2))
RNG = np.random.default_rng
start = lambda q=None, model=LINE, **more: quick(model, q, seconds=1e-9, steps=None, **more)
draw = lambda M=2, **more: cv.draw(GLM, Q, Q.start(), M, RNG(0), **more)
mean = lambda z=Z, **more: cv.expect(z, z, -z, **{"order": 0} | more)
counted = lambda y: cv.models.poisson_regression(X, np.append(np.zeros(29), y))


def sgd(**more):
    more = {"steps": 3, "lr": 0.1, "M": 2, "rng": RNG(0)} | more
    return cv.optimize.sgd(GLM, Q, H, **more)


def report(pilot=2, cost=1.0):
    how = {"M": 2, "rng": RNG(0), "pilot": pilot, "costs": {"h": cost}}
    return cv.report({"h": H}, GLM, Q, Q.start(), **how)


def bowl(d, **more):
    return cv.models.Compiled(lambda z: (-(z**2).sum(-1) / 2, -z), d, **more)


def made(constraint):
    lik, prior = lambda p, b: anp.sum(p.x, -1) + b[0], lambda p: -anp.sum(p.x**2, -1)
    return cv.models.Model(lik, prior, np.zeros(2), parameters={"x": constraint})


LIMITS = {
    "a point to start from": (lambda x: start(start=[x, 0.1]), 9.9e5, 1e6, "below 1e6"),
    "a far point below zero": (lambda x: start(start=[x, 0.1]), -9.9e5, -5e6, "below 1e6"),
    "a spread to start with": (lambda x: start(start=(np.zeros(2), [[1, 0], [0, x]])), 1e-9, 0.0,
                               "positive definite"),
    "steps": (lambda x: quick(steps=x), 1, 0, "at least one"),
    "seconds": (lambda x: quick(steps=None, seconds=x), 1e-9, 0.0, "be positive"),
    "steps to go on to": (lambda x: FIT.go_on(steps=x, progress=False), 4, 3, "must lie beyond"),
    "seconds to go on for": (lambda x: FIT.go_on(seconds=x, progress=False), 1e-9, 0.0, "positive"),
    "draws of a full q": (lambda x: start(M=x), 3, 2, "at least 3"),
    "draws of a diagonal q": (lambda x: start(D, M=x), 2, 1, "at least 2"),
    "draws of another q": (lambda x: start(G, COUNTS, M=x), 1, 0, "at least one"),
    "restarts": (lambda x: start(restarts=x), 0, -1, "at least 0"),
    "a seed": (lambda x: start(seed=x), 0, -1, "at least 0"),
    "draws": (lambda x: FIT.sample(x), 1, 0, "at least one"),
    "draws of an expectation": (lambda x: FIT.expect(lambda p: p.slope, x), 10, 9, "at least 10"),
    "draws of the evidence": (lambda x: FIT.evidence(x), 10, 9, "at least 10"),
    "draws of a mean": (lambda x: mean(Z[:x]), 2, 1, "at least 2"),
    "a block of draws": (lambda x: mean(block=x), 20, 21, "two blocks"),
    "no block of draws": (lambda x: mean(block=x), 1, 0, "block=0: it must be at least one"),
    "an order of variates": (lambda x: mean(order=x), 2, 3, "order 0, 1 or 2"),
    "weights of draws": (lambda x: mean(weights=np.append(np.ones(39), x)), 0.0, -1e-9,
                         "none negative"),
    "draws of an ELBO": (lambda x: cv.elbo(GLM, Q, Q.start(), x, RNG(0)), 2, 1, "at least 2"),
    "an interval": (lambda x: cv.interval(0.0, x), 1e-9, 0.0, "must lie below"),
    "a simplex": (lambda x: made(cv.simplex(x)), 2, 1, "at least 2"),
    "ordered numbers": (lambda x: made(cv.ordered(x)), 1, 0, "at least one"),
    "positive numbers": (lambda x: made(cv.positive(x)), 1, 0, "at least one"),
    "unknowns": (bowl, 1, 0, "at least one"),
    "noise": (lambda x: cv.models.linear_regression(X, Y, noise_sd=x), 1e-3, 0.0, "be positive"),
    "a prior's sd": (lambda x: cv.models.GaussianPrior([1.0, x]), 1e-3, 0.0, "be positive"),
    "a prior's mean": (lambda x: cv.models.GaussianPrior(1.0, [0.0, x]), 1e99, np.inf, "be finite"),
    "a number in the second array": (lambda x: three(np.ones(3), np.append([1, 2], x), np.ones(3)),
                                     1e9, np.nan, r"array 1 of the data is nan at \[2\]"),
    "rows of data": (lambda x: three(*3 * [np.ones(x)]), 1, 0, "at least one data point"),
    "rows of the third array": (lambda x: three(np.ones(3), np.ones(3), np.ones(x)), 3, 4,
                                "one row per data point"),
    "a count": (counted, 0.0, -1.0, "whole numbers from 0"),
    "half a count": (counted, 1.0, 0.5, "whole numbers from 0"),
    "a sign": (lambda x: cv.models.logistic_regression(X, np.append(np.ones(29), x)), -1.0, 0.0,
               r"must be -1 or \+1"),
    "a pick": (lambda x: cv.pick(Z, np.array([0, x])[:, None]), 1, 2, "runs 0..2, z has 0..1"),
    "a pick below zero": (lambda x: cv.pick(Z, np.array([1, x])[:, None]), 0, -1, "runs -1..1"),
    "an index": (lambda x: draw(index=np.array([0, x])), 29, 30, r"lie in 0..29"),
    "an index below zero": (lambda x: draw(index=np.array([3, x])), 0, -1, "lie in 0..29"),
    "samples": (draw, 1, 0, "at least one"),
    "samples in pairs": (lambda x: draw(x, noise="pairs"), 2, 3, "an even number"),
    "a batch": (lambda x: cv.Sampling(batch=x), 1, 0, "at least one"),
    "logarithms in w": (lambda x: G.mean(np.array([0.0, 0.0, 0.0, x])), 300.0, 300.1, "between"),
    "logits below zero": (lambda x: cv.families.Bernoulli(2).mean(np.array([x, 0.0])), -300.0,
                          -300.1, "between"),
    "an order of a snapshot": (lambda x: cv.snapshot(GLM, np.zeros(2), x), 1, 0, "order 1 or 2"),
    "a higher one": (lambda x: cv.snapshot(GLM, np.zeros(2), x), 2, 3, "order 1 or 2"),
    "an order of an expansion": (lambda x: cv.taylor_z(DATA, order=x), 1, 0, "order 1 or 2"),
    "a ridge": (cv.all_quadratics, 0.0, -1e-9, "zero or positive"),
    "a baseline's ridge": (cv.linear_baseline, 1e-9, 0.0, "be positive"),
    "a rate": (lambda x: sgd(lr=x), 1e-9, 0.0, "be positive"),
    "momentum": (lambda x: sgd(momentum=x), 0.0, -1e-9, r"lie in \[0, 1\)"),
    "too much momentum": (lambda x: sgd(momentum=x), 0.999, 1.0, r"lie in \[0, 1\)"),
    "forgetting": (lambda x: sgd(gamma=x), 0.0, -1e-9, r"lie in \[0, 1\)"),
    "all forgotten": (lambda x: sgd(gamma=x), 0.999, 1.0, r"lie in \[0, 1\)"),
    "a prior of weights": (lambda x: sgd(v0=x), 0.0, -1e-9, "zero or positive"),
    "samples a step": (lambda x: sgd(M=x), 1, 0, "at least one"),
    "steps of a run": (lambda x: sgd(steps=x), 1, 0, "at least one"),
    "a mean from a step on": (lambda x: sgd(average=x), 3, 4, "ends before"),
    "a record": (lambda x: sgd(every=x), 1, 0, "at least one"),
    "a hook": (lambda x: sgd(hooks={x: lambda state, plan: None}), 1, 0, "at least one"),
    "a renewal": (lambda x: sgd(renew=x), 1, 0, "at least one"),
    "reach": (lambda x: cv.rules.natural(reach=x), 1e-9, 0.0, "be positive"),
    "a pilot": (report, 2, 1, "at least 2"),
    "a cost": (lambda x: report(cost=x), 1e-9, 0.0, "be positive"),
    "a family": (cv.families.Gaussian, 1, 0, "at least one"),
    "classes": (lambda x: cv.families.Categorical(2, x), 2, 1, "classes=1.*at least 2"),
    "a name for every coordinate": (lambda x: bowl(2, names=["a"] * x), 2, 3, "3 names for 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_where_it_is_said_to_be(name):
    call, inside, outside, words = LIMITS[name]
    call(inside)
    with pytest.raises(ValueError, match=words):
        call(outside)


def test_the_strategy_of_a_fit_at_its_limits():
    def model(N, d=2, traced=None, effects=None, each=1):
        data = (np.zeros(N),)
        has = {"N": N, "dim": d, "traced": traced, "effects": effects, "data": data}
        return SimpleNamespace(**has, row_size=each)

    most = cv.Settings().cheap // 100  # numbers that a point may make of the data: 83,886
    wide, narrow = cv.families.Gaussian, cv.families.DiagonalGaussian
    for made, q, M, name in [
        (model(10), G, None, "adam"),
        (model(40_000), Q, None, "rotated"),
        (model(40_001), Q, None, "passes"),
        (model(40_001), D, None, "diagonal"),
        (model(10, 500), narrow(500), None, "diagonal"),
        (model(10, 501), narrow(501), 9, "regressed"),
        (model(10, 101), wide(101), None, "rotated"),
        (model(10, 100, True), wide(100), None, "rotated"),
        (model(10, 101, True), wide(101), None, "compiled"),
        (model(10, 101, True), wide(101), 9, "rotated"),
        (model(1, effects="u", each=most), Q, None, "rotated"),
        (model(1, effects="u", each=most + 1), Q, None, "groups"),
        (model(1, effects="u", each=most + 1), D, None, "diagonal"),
        (model(1, each=most + 1), Q, None, "rotated"),
    ]:
        assert chosen(made, q, M, cv.Settings()).name == named(name).name == name
    assert density.enough(model(40_000)) == 40_000 and density.enough(model(40_001)) == 10_000
    assert density.enough(model(10**6, 300)) == 15_000
    assert density.enough(model(10**6, effects="u")) == 10**6  # groups have no rows to leave out
    for d, family in ((2, cv.families.Gaussian), (3, cv.families.DiagonalGaussian)):
        assert quick(bowl(d), steps=1, settings=cv.Settings(full=2)).q == family(d)


# Starts and clocks --------------------------------------------------------------------------------


def begun_from(**more):
    """The points from which a fit looks for the mode."""
    with mock.patch.object(starts, "searched", wraps=starts.searched) as search:
        quick(steps=1, **more)
    return [call.args[1] for call in search.call_args_list]


def test_random_points_come_from_the_seed():
    assert len(begun_from(start="random")) == 1  # and another for another seed: test_arguments.py
    first, again, other = (begun_from(restarts=3, seed=k) for k in (0, 0, 1))
    assert np.array_equal(first, again) and len(first) == 4
    assert np.array_equal(first[:2], other[:2]) and not first[0].any()  # z = 0, then the opposite
    assert np.allclose(first[1], -starts.searched(Density(LINE), np.zeros(2)).z)
    assert len({tuple(z) for z in (*first, *other)}) == 6
    given = begun_from(start=np.array([0.5, 0.2]), restarts=1)
    assert np.array_equal(given[0], [0.5, 0.2]) and len(given) == 2


def test_no_restart_begins_when_it_is_late(monkeypatch):
    points = []
    monkeypatch.setattr(starts, "searched", lambda density, z: points.append(z) or found)
    found = starts.Mode(np.zeros(2), 0.0, starts.Curvature(9), np.zeros(2))
    starts.start(LINE, restarts=5, late=lambda: len(points) > 2)
    assert len(points) == 3


def test_a_fit_hands_its_clock_to_every_search(monkeypatch):
    """A third of the seconds are for the mode; a tenth is kept for the last looks."""
    over, now = {passed: set() for passed in (0, 150, 170, 430, 460)}, time.perf_counter

    def note(where, name):
        f = getattr(where, name)

        def noted(*args, **more):
            for passed, late in over.items():
                with mock.patch.object(time, "perf_counter", lambda: now() + passed):
                    late |= {name} if deadline.passed() else set()
            return f(*args, **more)

        monkeypatch.setattr(where, name, noted)

    for where, name in (starts, "searched"), (starts, "climbed"), (strategies, "top"):
        note(where, name)
    quick(steps=6, seconds=500)
    quick(q=D, steps=1, seconds=500)
    mode, every = {"climbed", "searched"}, {"climbed", "searched", "top"}
    assert over == {0: set(), 150: set(), 170: mode, 430: mode, 460: every}


def test_a_start_that_is_given_is_where_it_begins():
    fit = quick(steps=20)
    apart = np.diag(fit.sd**2)
    for q, given, cov in [
        (Q, fit, fit.cov), (Q, (fit.mean, fit.cov), fit.cov), (Q, (fit.mean, fit.sd), apart),
        (D, fit, apart), (D, (fit.mean, fit.sd), apart),
    ]:  # fmt: skip
        begun = start(q, start=given)
        assert begun.steps == 0 and begun.words[0] == "began at the start that was given"
        assert np.allclose(begun.mean, fit.mean) and np.allclose(begun.cov, cov)


def test_every_doubt_is_a_warning_of_its_own_kind():
    """A fit that had no time to settle, of data in other units than those of the prior."""
    lik, named = lambda p, b: -0.5 * (b[0] - p.b[..., 1]) ** 2 + 0 * p.a, {"a": cv.real, "b": 2}
    model = cv.models.Model(lik, cv.models.GaussianPrior(), np.full(20, 90.0), parameters=named)
    with pytest.warns(cv.Distrust, match="had not settled") as seen:
        fit = quick(model, steps=2)
    assert tuple(str(w.message) for w in seen) == fit.warnings and len(fit.warnings) == 2
    assert fit.warnings[1].startswith("b[1] lies as far out in its prior as 86 sds")
    assert "are the data in the units that the prior was written for?" in fit.warnings[1]
    assert {w.category for w in seen} == {cv.Distrust} and {w.filename for w in seen} == {__file__}


def test_a_seed_is_its_generator():
    assert np.array_equal(FIT.sample(5, 3), FIT.q.sample(FIT.w, 5, RNG(3)))
    noise = lambda p, batch, rng: rng.normal(size=(5, 1))
    assert not np.array_equal(FIT.predict(noise, 5, 3), FIT.predict(noise, 5, 4))
    for ask in (FIT.sample, FIT.draws, FIT.log_lik, FIT.evidence, partial(FIT.predict, noise),
                partial(FIT.expect, lambda p: p.slope)):  # fmt: skip
        with pytest.raises(TypeError, match="seed=Generator.*must be a whole number"):
            ask(20, RNG(3))


def test_a_long_fit_prints_its_first_rows():
    sixty, more = (quick(bowl(d), steps=1) for d in (60, 61))
    assert "z[59]" in repr(sixty) and "..." not in repr(sixty)
    assert "z[59]" in repr(more) and "z[60]" not in repr(more) and "\n..." in repr(more)
    assert more.summary().rows == [f"z[{k}]" for k in range(61)]
    html = more._repr_html_()
    assert html.count("<tr>") == 62 and "z[59]" in html and "z[60]" not in html


def pair(rho, name):
    """A normal law of two unknowns with this correlation, whose data say nothing."""

    def log_prior(p):
        return -0.5 * (p.b**2 + p.c**2 - 2 * rho * p.b * p.c) / (1 - rho**2)

    unknowns = {"b": cv.real, "c": cv.real}
    return cv.models.Model(
        lambda p, x: 0 * p.b * x[0], log_prior, X[:, 0], None, name, parameters=unknowns
    )


def contrast(colour, page):
    """Of two colours "#rrggbb", by the formula of WCAG 2: 1 to 21; a mark needs 3."""
    bits = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in (colour, page)]) / 255
    linear = np.where(bits > 0.03928, ((bits + 0.055) / 1.055) ** 2.4, bits / 12.92)
    low, high = np.sort(linear @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    "rho, how, sign, says",
    [
        (0.5, {"steps": None}, "✓", "the posterior"),
        (0.9999, {"steps": None, "q": cv.families.DiagonalGaussian(2)}, "!", "of q, not corrected"),
        (0.5, {"steps": 1}, "!", "the posterior, with doubts"),
    ],
)
def test_a_notebook_tells_the_outcome_at_a_glance(rho, how, sign, says):
    """One line, a sign before its colour, then the table; the report is folded. All is escaped."""
    fit = quick(pair(rho, "<b> & co"), **how)
    text = fit._repr_html_()
    page = BeautifulSoup(text, "html.parser")
    note, table = page.select_one("p[style]"), page.table
    assert note.b.text == sign and note.get_text("|").split("|")[1].strip().startswith(says)
    assert note.find_next("table") is table and len(page.select("p[style]")) == 1
    assert bool(fit.warnings) == (sign == "!")
    for warning in fit.warnings:  # what is wrong, and what to do
        assert warning.replace("\n", "") in note.text
    (folded,) = page.find_all("details")
    assert folded.pre.text == fit.report and "open" not in folded.attrs
    rows = [[cell.text for cell in row.find_all("td")] for row in table.find_all("tr")]
    assert rows == [[*row] for row in fit.summary()._cells()]
    assert page.p.text.startswith("<b> & co: ") and not page.find_all(["script", "link", "img"])
    assert "://" not in text and "url(" not in text
    (colour,) = re.findall(r"solid (#\w{6});", note["style"])
    assert "color" not in re.sub("background", "", note["style"])  # letters are the page's own
    assert min(contrast(colour, paper) for paper in ("#ffffff", "#111111")) > 3
    red, green = colour[1:3], colour[3:5]
    assert (green > red) == (sign == "✓")  # green, or amber


@pytest.mark.parametrize("changed", range(5))
def test_what_happens_to_an_array_later_is_not_seen(changed):
    """By models, snapshots and what was found. Masked, with nothing masked, it is an array."""
    X, y = RNG(0).standard_normal((6, 2)), np.arange(6.0)
    arrays = X, y, mu, w, sd = X, y, np.zeros(2), Q.start(), np.ones(2)
    away = lambda z, b: -0.5 * (b[1] - (b[0] * z).sum(-1)) ** 2
    own = cv.models.Model(away, cv.models.GaussianPrior(sd), (X, np.ma.masked_array(y)), 2)
    models = own, cv.models.linear_regression(X, y, 1.0)
    shot, found = cv.snapshot(own, mu), Found(own, Q, w)
    see = lambda: [*(model.log_joint(Z) for model in models), shot.mu + 0, found.mean + 0]
    before = see()
    assert np.allclose(before[0], before[1] + 3 * np.log(2 * np.pi))
    arrays[changed][...] = 9.0
    assert all(map(np.array_equal, see(), before))


@np.errstate(invalid="ignore")
def test_a_start_whose_elbo_is_no_number_is_not_taken():
    """log p is a number for |z| < 1 alone: a width of one leaves it, a tenth of it does not."""
    inside = lambda z, b: b[0] * anp.log(1 - z[..., 0] ** 2)
    model = cv.models.Model(inside, cv.models.GaussianPrior(), np.ones(1), 1)
    wide, narrow = (starts.Start(np.zeros(1), np.eye(1) * s, f"{s}") for s in (1.0, 0.1))
    for both in ([wide, narrow], [narrow, wide]):
        assert starts._best(Density(model), both, np.random.default_rng(0)) is narrow


def test_a_fit_that_a_callback_kept_stays_at_its_step(tmp_path):
    """It is saved and goes on from the look at which it was made, whatever the run did later."""
    kept = []
    quick(steps=40, callback=kept.append)
    first, alone = kept[0], quick()
    assert first.steps == 10 < kept[-1].steps
    first.save(tmp_path / "fit")
    read = cv.Fit.load(tmp_path / "fit", LINE)
    assert read.steps == read.run.state.t == 10
    assert (read.run.state.w == alone.run.state.w).all() and len(read.looks) == 1
