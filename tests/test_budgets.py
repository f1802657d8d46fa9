"""Budgets of a fit: its seconds, on a clock that counts work, and the memory and parts of a pass.

Every number that a model makes of a row costs a tick of the clock, so nothing here is timed.
"""

import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import elementwise_grad
from numpy.testing import assert_allclose

import cvlib as cv
from cvlib.deadline import Late, deadline
from cvlib.fitting import looks, run, starts, strategies
from cvlib.models import density, passes
from cvlib.models.density import Density
from cvlib.special import hess_times

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = np.where(X @ [1.0, -1.0, 0.5] + RNG.logistic(size=60) > 0, 1.0, -1.0)
pytestmark = pytest.mark.filterwarnings("ignore::cvlib.Distrust")


@pytest.fixture
def work(monkeypatch):
    """A clock that only work moves, by work.cost for each number, in small parts."""
    found = SimpleNamespace(now=0.0, cost=0.0, most=0.0)

    def done(x):
        """Work of as many numbers as x has."""
        took = found.cost * np.size(getattr(x, "_value", x))
        found.now, found.most = found.now + took, max(found.most, took)
        return x

    found.done = done
    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: found.now))
    monkeypatch.setattr(passes, "CHUNK", 512)
    monkeypatch.setattr(passes, "TALL", 1)
    found.in_one_part = lambda: monkeypatch.setattr(passes, "CHUNK", 2**20)
    return found


def phi(work):
    """The logistic likelihood, whose every number is work."""
    return lambda eta, y: -anp.logaddexp(0.0, -y * work.done(eta))


def own(work, bends=0.0):
    eta = lambda z, x: anp.sum(x * z, -1) + bends * z[..., 0] ** 2
    log_lik = lambda z, batch: phi(work)(eta(z, batch[0]), batch[1])
    return cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, Y), 3)


def compiled(work):
    def both(z):
        t = work.done(-Y * (z @ X.T))
        return -np.logaddexp(0, t).sum(1) - (z**2).sum(1) / 2, Y / (1 + np.exp(-t)) @ X - z

    return cv.models.Compiled(both, 3)


def positive(work):
    """Counts y with an unknown rate, for a Gamma q."""

    def log_lik(z, batch):
        rate = work.done(anp.abs(z[..., 0]) + 0 * batch[0])
        return batch[0] * anp.log(rate) - rate

    return cv.models.Model(log_lik, lambda z: -anp.sum(anp.abs(z), -1), RNG.poisson(3.0, 60), 1)


glm = lambda work: cv.models.GLM(X, Y, cv.models.Likelihood("counted", phi(work)))
KINDS = {  # how the model is made, and q
    "full": (own, None), "diagonal": (own, cv.families.DiagonalGaussian(3)), "passes": (own, None),
    "adam": (positive, cv.families.Gamma(1)), "compiled": (compiled, None),
}  # fmt: skip


@pytest.mark.parametrize("pass_of_one, seconds", [(0.5, 3.0), (0.05, 30.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_back_in_time(work, kind, pass_of_one, seconds, monkeypatch):
    """Whatever a pass costs: log p at one point takes up to a sixth of the seconds."""
    make, q = KINDS[kind]
    model = make(work)
    if kind == "passes":
        monkeypatch.setattr(density, "ROWS", 10)
        monkeypatch.setattr(density, "EACH", 1)
    if kind == "compiled":  # which is called with so many points at once
        monkeypatch.setattr(looks, "BLOCK", 2)
        monkeypatch.setattr("cvlib.adapters.jax.BLOCKS", (2, 1))
    work.cost, work.now = pass_of_one / 60, 0.0
    fit = cv.fit(model, q, seconds=seconds, progress=False)
    assert fit.run.strategy.name == {"full": "rotated", "compiled": "rotated"}.get(kind, kind)
    assert fit.seconds <= work.now < 1.3 * seconds + 2
    assert fit.seconds < seconds + 8 * pass_of_one + work.most  # beyond: four draws of two q's
    if kind not in ("diagonal", "passes", "adam") or (pass_of_one, seconds) == (0.5, 3.0):
        assert not fit.settled
        assert f"out of time after step {fit.steps}" in fit.report


def test_a_step_that_was_cut_off_has_not_begun(work, monkeypatch):
    """Out of time in the middle of a step, the run goes on as if nothing had been."""
    model, few = own(work), cv.Settings(looks=(40, 80, 160))
    monkeypatch.setattr(looks, "DEFAULT", few)
    whole, two = (cv.fit(model, steps=n, progress=False, settings=few) for n in (9, 2))
    one_step = whole.run.plan.M * 60  # numbers
    for steps in (0.5, 1.5, 2.7):
        work.cost = 1 / one_step
        fit = two.go_on(seconds=steps / 0.9, progress=False)  # a tenth is for the look
        assert fit.steps == 2 + int(steps) and not fit.settled and "out of time after" in fit.report
        work.cost = 0.0
        on = fit.go_on(steps=9, progress=False)
        assert (on.run.state.w == whole.run.state.w).all()


def test_a_first_step_that_compiles_is_no_measure(work, monkeypatch):
    whole = run.Run._step

    def first_is_long(self):
        work.now += 6.0 if self.state.t == 0 else 0.1
        whole(self)

    monkeypatch.setattr(run.Run, "_step", first_is_long)
    work.in_one_part()
    fit = cv.fit(own(work), seconds=10.0, bend=False, progress=False)
    assert fit.run.state.t > 1 and work.now <= 10.0  # less six are forty steps


def test_a_clock_looks_ahead(work):
    """To when something will be done that cannot be cut off; the time that passed stays."""
    clock = run.Clock(10.0, None, cv.Settings())
    work.now = 6.0
    for share, seconds, late in ((1.0, 3.9, False), (1.0, 4.1, True), (0.5, 0.0, True)):
        with deadline.until(lambda share=share: clock.over(share)):
            assert deadline.passed(seconds) == late
            with pytest.raises(Late) if late else nullcontext():
                deadline.check(seconds)
    assert clock.passed == 6.0 and not deadline.passed(1e9)
    for slow, said in ((9.9, False), (10.1, True)):
        says = clock.too_short(SimpleNamespace(traced=SimpleNamespace(slowest=slow)))
        assert bool(says) == said == ("takes 10 s to compile" in " ".join(says))
    assert clock.too_short(own(work)) == []


@pytest.mark.parametrize("kind", ("full", "diagonal"))
def test_a_callback_at_every_look_with_its_seconds(work, kind):
    make, q = KINDS[kind]
    model, seen = make(work), []
    work.cost = 1e-5
    work.in_one_part()
    see = lambda fit: seen.append((fit.steps, fit.seconds, fit.settled))
    how = {"steps": 200, "bend": False, "progress": False}
    fit = cv.fit(model, q, **how, callback=see)
    assert [step for step, *_ in seen] == [*fit.looks[:, 0]]
    seconds = [x for _, x, _ in seen]
    assert 0 < seconds[0] and seconds == sorted(seconds) and seconds[-1] <= fit.seconds
    assert fit.settled and [x for *_, x in seen] == [False] * (len(seen) - 1) + [True]
    seen.clear()
    stopped = cv.fit(model, q, **how, callback=lambda fit: not see(fit))
    said = f"stopped by the callback after step {stopped.steps}"
    assert len(seen) == 1 and said in stopped.report


# Searches ----------------------------------------------------------------------------------------


def cut_off(work, climb, parts=1, many=10):
    """What climb(late) finds in shares of the time it takes: over by no more than these parts."""
    work.now, work.cost = 0.0, 1e-3
    climb(lambda: False)
    takes = work.now
    for share in (0.0, 0.1, 0.5, 0.9):
        work.now, work.most, end = 0.0, 0.0, share * takes
        late = lambda end=end: work.now > end
        with deadline.until(late):
            found = climb(late)
        assert end <= work.now <= end + parts * work.most and work.most < takes / many, share
        yield found


def test_searches_end_inside_a_pass(work):
    """The mode, the top on even draws, and a start with its restarts."""
    model, q = own(work, bends=0.1), cv.families.Gaussian(3)
    search = lambda late: starts.searched(Density(model), np.zeros(3))
    whole = search(None)
    for found in cut_off(work, search):
        assert found.value <= whole.value and not found.trouble
    assert len([*cut_off(work, lambda late: strategies.top(model, q, q.start(), RNG))]) == 4
    assert len([*cut_off(work, lambda late: starts.start(model, True, None, 3, late))]) == 4


def test_a_search_that_is_late_has_its_highest_point():
    calls, far = [], np.full(2, 3.0)

    def slow(z):
        calls.append(1)
        deadline.check()
        return -float(z @ z), -2 * z

    def climbed(late):
        calls.clear()
        with deadline.until(late):
            return strategies.climb(slow, far, 1e-9)[0]

    top, first, some = map(climbed, (None, lambda: True, lambda: len(calls) > 2))
    assert_allclose(top.z, 0, atol=1e-6)
    assert (first.z == far).all() and first.value == -np.inf
    assert top.value > some.value > -far @ far and len(calls) == 3


def test_a_hessian_of_many_points_goes_through_blocks(monkeypatch):
    """autograd differentiates log p of own and compiled models, some points at a time."""
    still = SimpleNamespace(done=lambda x: x)
    z = np.full((4, 3), 0.2)
    p = 1 / (1 + np.exp(-X @ z[0]))
    right = -(X.T * (p * (1 - p))) @ X - np.eye(3)
    for make in (own, compiled):
        model = make(still)
        for chunk in (2**20, 40):
            monkeypatch.setattr(passes, "CHUNK", chunk)
            monkeypatch.setattr("cvlib.adapters.jax.BLOCKS", (chunk // 20, 1))
            found = hess_times(model.log_joint, z, np.eye(3)[[0, 1, 2, 0]])
            tolerance = 1e-10 if make is own else 1e-6
            assert_allclose(found, right[[0, 1, 2, 0]], atol=tolerance, rtol=tolerance)


# Passes ------------------------------------------------------------------------------------------


def test_parts_are_cut_by_what_a_model_makes():
    """500 unknowns, of which a row has two: a pass has a few parts, not thousands."""
    calls, i = [], np.repeat(np.arange(400), 30)
    j, y = RNG.integers(0, 100, len(i)), RNG.integers(0, 2, len(i)).astype(float)

    def log_lik(p, batch):
        y, i, j = batch
        t = cv.pick(p.a, i) - cv.pick(p.b, j)
        calls.append(np.shape(getattr(t, "_value", t)))
        return y * t - anp.logaddexp(0.0, t)

    log_prior = lambda p: -0.5 * anp.sum(p.a**2, -1) - 0.5 * anp.sum(p.b**2, -1)
    model = cv.models.Model(log_lik, log_prior, (y, i, j), parameters={"a": 400, "b": 100})
    assert model.made < 20
    calls.clear()
    model.totals(np.zeros((64, 500)), 1)
    assert len(calls) <= 1 + 64 * 12_000 * model.made // passes.CHUNK


def wide(d, n, linear=False):
    """Every row has every unknown: a sum of products, or a generalised linear model."""
    X, y = RNG.standard_normal((n, d)) / np.sqrt(d), RNG.choice([-1.0, 1.0], n)
    log_lik = lambda z, b: -anp.logaddexp(0.0, -b[1] * anp.sum(b[0] * z, -1))
    own = cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, y), d)
    return cv.models.logistic_regression(X, y) if linear else own, X, y


@pytest.mark.parametrize("chunk", (50, 1000, 2**14, 2**20))
@pytest.mark.parametrize("linear", (False, True), ids=("own", "glm"))
def test_totals_do_not_depend_on_the_parts(chunk, linear, monkeypatch):
    model, X, y = wide(7, 40, linear)
    z = RNG.standard_normal((2, 5, 7))
    eta = z @ X.T
    p = 1 / (1 + np.exp(y * eta))
    hessian = -np.einsum("abn,ni,nj->abij", p * (1 - p), X, X)
    right = -np.logaddexp(0, -y * eta).sum(-1), (y * p) @ X, hessian
    monkeypatch.setattr(passes, "CHUNK", chunk)
    for order in (0, 1, 2):
        found = model.totals(z, order)
        assert len(found) == order + 1
        for x, y0 in zip(found, right):
            assert_allclose(x, y0, rtol=1e-10, atol=1e-10)


def in_little_memory(call, most=25e6):
    tracemalloc.start()
    try:
        result = call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak / 1e6:.0f} MB"
    return result


def word(name):
    """A word on the data term at the draws whose base sample is z."""

    def ask(model, z, v):
        q = cv.families.DiagonalGaussian(model.dim)
        draw = cv.draw(model, q, q.start(), eps=z, subsample=False)
        return getattr(cv, name)(cv.terms(model, q)[0])(draw)

    return ask


ORDERS = {  # what is asked of a model at many points z (n, d)
    "value": lambda model, z, v: model.totals(z, 0),
    "slope": lambda model, z, v: model.totals(z, 1),
    "Hessian": lambda model, z, v: model.totals(z if model.likelihood else z[:4], 2),
    "log p": lambda model, z, v: Density(model).value(z),
    "its slope": lambda model, z, v: Density(model).slope(z),
    "rows": lambda model, z, v: model.pointwise(z),
    "autograd": lambda model, z, v: elementwise_grad(model.log_joint)(z),
    "Hessian times v": lambda model, z, v: hess_times(model.log_joint, z, v),
    "SF": word("SF"), "RP1": word("RP1"),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("linear", (False, True), ids=("own", "glm"))
def test_memory_by_order_of_derivative(linear, order):
    """150 draws, 2,000 rows, 50 unknowns: at once 120 MB, and a Hessian fifty times as much."""
    model, *_ = wide(50, 2000, linear)
    z, v = RNG.standard_normal((2, 150, 50))
    some = ORDERS[order](model, z[:3], v[:3])  # what is measured once a model does not count
    found = in_little_memory(lambda: ORDERS[order](model, z, v), 45e6)
    for x, right in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, some))):
        assert_allclose(x[:3], right, rtol=1e-9, atol=1e-9)


def test_memory_of_one_large_row():
    """A likelihood in one row, with a matrix of 300 x 300 for every draw: 100 would be 72 MB."""
    x = RNG.standard_normal((1, 300))
    apart = lambda x: (x[..., :, None] - x[..., None, :]) ** 2
    log_lik = lambda z, b: anp.sum(anp.exp(-(z[..., :1, None] ** 2) * apart(b[0])), (-2, -1))
    model = cv.models.Model(log_lik, cv.models.GaussianPrior(), x, 2)
    z = RNG.standard_normal((100, 2))
    model.totals(z[:1], 1)
    value, _ = in_little_memory(lambda: model.totals(z, 1))
    square = (x[0, :, None] - x[0]) ** 2
    assert_allclose(value[7], np.exp(-(z[7, 0] ** 2) * square).sum(), rtol=1e-10)


def test_a_pass_that_is_late_ends_between_its_parts(monkeypatch):
    monkeypatch.setattr(passes, "CHUNK", 10)
    seen = []
    part = lambda rows: seen.append(len(rows[0])) or (rows[0].sum(),)
    with pytest.raises(Late), deadline.until(lambda: len(seen) == 3):
        passes.total(part, (np.arange(95),))
    assert seen == [10, 10, 10]
    seen.clear()
    with deadline.until(lambda: True), deadline.until(None):
        assert passes.total(part, (np.arange(95),)) == (95 * 94 // 2,)
    with pytest.raises(Late), deadline.until(lambda: True), deadline.until(lambda: False):
        passes.total(part, (np.arange(95),))
    deadline.check()  # outside there is none


def test_a_look_has_three_sizes_whatever_the_data():
    for n, right in ((10, [250, 1000, 4000]), (400_000, [83, 250, 1000]), (10**7, [62, 250, 1000])):
        model, *_ = wide(1, 5)
        model.data = (np.broadcast_to(0.0, n),)
        assert looks.sizes(model) == right
