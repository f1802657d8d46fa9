"""No fit is lost at its end, nothing wrong is answered without a word, and small outputs are right.

The other side of every comparison is a closed form, quadrature, or SciPy.
"""

from math import inf
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

import cvlib as cv
from cvlib.combining.tails import Weights, smoothed
from cvlib.families.found import Found
from cvlib.fitting import front, run, starts
from cvlib.fitting.run import LATE

quiet = pytest.mark.filterwarnings("ignore::cvlib.Distrust")
NORMAL = cv.models.GaussianPrior()
LIK = lambda z, b: -0.5 * (b[0] - z[..., 0]) ** 2


def normal(n=20, d=1):
    """n data about z[0], d unknowns: the posterior is a Gaussian."""
    y = np.random.default_rng(0).standard_normal(n)
    return cv.models.Model(LIK, NORMAL, y, d)


# A posterior that ends ---------------------------------------------------------------------------

SEEN = np.array([1.2, 0.7])


def log_joint(z):
    return stats.norm.logpdf(SEEN, z).sum() - np.log(4)


def ends(at=2.0, nan=False):
    """Two data about z, uniform on (-2, at); the slope beyond may be NaN."""

    def log_prior(z):
        inside = (z[..., 0] < at) & (z[..., 0] > -2)
        root = anp.sqrt(at - z[..., 0]) if nan else 0.0
        return anp.where(inside, 0 * root - np.log(4), -inf)

    return cv.models.Model(lambda z, b: LIK(z, b) - 0.5 * np.log(2 * np.pi), log_prior, SEEN, 1)


@quiet
@pytest.mark.parametrize("nan", [False, True])
def test_draws_where_the_posterior_has_ended_weigh_nothing(nan):
    """Evidence and means against quadrature, over seeds: right on average and by their errors."""
    whole, first, wide = (
        integrate.quad(lambda z: f(z) * np.exp(log_joint(z)), -2, 2)[0]
        for f in (lambda z: 1.0, lambda z: z, lambda z: z > 1.5)
    )
    fit = cv.fit(ends(nan=nan), progress=False)
    ask = {
        np.log(whole): lambda s: fit.evidence(seed=s),
        first / whole: lambda s: fit.expect(lambda z: z[:, 0], seed=s),
        wide / whole: lambda s: fit.expect(lambda z: 1.0 * (z[:, 0] > 1.5), seed=s),
    }
    for truth, answer in ask.items():
        found = [answer(seed) for seed in range(40)]
        away = np.array([(a.estimate - truth) / a.se for a in found])
        assert abs(away.mean()) < 4 / np.sqrt(40) and 0.6 < away.std() < 1.5
        assert min(a.se for a in found) > 1e-3 and all(a.n == 1000 for a in found)
        assert all("posterior ends" in " ".join(a.warnings) for a in found)
    assert all(a.order == 0 and "Stein's variates do not hold" in a.warnings[-1] for a in found)
    assert fit.evidence().order == 2  # what is known under q holds at any edge
    assert abs(fit.elbo - np.log(whole)) < 4 * fit.error + 0.01  # q cut off is nearly exact
    assert "minus infinity at 6.5% of the draws" in fit.report and "no number" not in fit.report
    with np.errstate(invalid="ignore"):  # f may end there, too
        found = fit.expect(lambda z: np.sqrt(2 - z[:, 0]))
    assert np.isfinite(found.estimate) and np.isfinite(found.se)


def test_a_q_that_misses_the_posterior_is_refused_and_nan_stays_an_error():
    model, q = ends(), cv.families.Gaussian(1)
    far = Found(model, q, q.pack(np.array([9.0]), np.array([[0.5]])))
    with pytest.raises(ValueError, match="minus infinity at .* of 1000 draws: q misses it"):
        far.evidence()
    model = cv.models.Model(
        lambda z, b: anp.where(z[..., 0] < 2, LIK(z, b), anp.nan), NORMAL, SEEN, 1
    )
    with pytest.raises(ValueError, match="is no number at .* of 1000 draws"):
        Found(model, q, q.pack(np.array([1.0]), np.eye(1))).evidence()


def test_weights_of_zero():
    """The ELBO of q cut off, what the weights keep, and k-hat: all with zeros in their places."""
    rng = np.random.default_rng(0)
    log = np.where(np.arange(4000) < 1000, -inf, 0.3 * rng.standard_normal(4000))
    found = Weights(np.zeros((4000, 1)), log)
    inside = log[1000:]
    assert_allclose(found.elbo[0], inside.mean() + np.log(0.75))
    w = np.exp(inside)
    assert_allclose(found.effective, w.sum() ** 2 / (w**2).sum() / 4000)
    for zeros in (1000, 3500, 3900):
        few = Weights(found.z, np.where(np.arange(4000) < zeros, -inf, log))
        hardly = np.where(few.outside, -700.0, few.log)
        assert_allclose(few.k_hat, smoothed(hardly)[1])
        assert abs(few.k_hat - smoothed(few.log[zeros:])[1]) > 0.01  # as if they were not there
    many = np.random.default_rng(1).random((2000, 500)) < 0.8
    elbos = [Weights(x[:, None], np.where(x, 0.0, -inf)).elbo for x in many]
    spread = np.std([elbo for elbo, _ in elbos])
    assert_allclose(np.mean([error for _, error in elbos]), spread, rtol=0.1)


@pytest.mark.parametrize("levels", [(1, 0.5, 0.2), (1, 0.1), (1, 0.99)])
@pytest.mark.parametrize("top", [1, 3, 20, 60, 150])
def test_k_hat_of_tied_weights_is_a_number(levels, top):
    """As those of a discrete z are: a few levels, which are no heavy tail."""
    w = np.concatenate([np.full(top, 1.0), np.full(40, levels[1]), np.full(900, levels[-1])])
    weights, k = smoothed(np.log(w))
    assert k < 0.5 and np.isfinite(weights).all() and weights.max() <= 1
    assert np.isnan(smoothed(np.full(1000, -inf))[1])


# No diagnostic loses a fit -----------------------------------------------------------------------


@quiet
def test_a_prior_that_is_written_for_many_points_has_a_report():
    def log_prior(p):
        s = p.s[..., None]
        return anp.sum(-0.5 * (p.h / s) ** 2 - anp.log(s), -1) - p.s - anp.log(p.s)

    y = np.random.default_rng(0).standard_normal((30, 3))
    lik = lambda p, b: anp.sum(-0.5 * (b[0] - p.h) ** 2, -1)
    named = {"s": cv.positive, "h": 3}
    model = cv.models.Model(lik, log_prior, (y,), parameters=named)
    fit = cv.fit(model, bend=False, progress=False)
    assert "could not be checked" not in fit.report


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError("by nothing")])
@pytest.mark.parametrize(
    "name, what",
    [("weighed", "the ELBO"), ("explained", "the shape of q"), ("conflicts", "the prior"),
     ("doubts", "what to distrust")],
)  # fmt: skip
def test_no_diagnostic_can_lose_a_fit(name, what, error):
    """The means of the posterior are there, whatever fails after the last step."""
    model = normal()
    with mock.patch.object(front, name, side_effect=error):
        with pytest.warns(cv.Distrust, match=f"{what} could not be checked: "):
            fit = cv.fit(model, bend=False, progress=False)
    y = model.data[0]
    assert_allclose(fit.mean, [y.sum() / 21], atol=1e-6)
    assert (error is KeyboardInterrupt) == ("stopped from the keyboard" in fit.warnings[-1])
    assert error is KeyboardInterrupt or "ZeroDivisionError: by nothing" in fit.report
    assert repr(fit) and not any("shape of q, " in w for w in fit.warnings)


@quiet
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError("by nothing")])
def test_a_bend_that_fails_leaves_the_straight_fit(error):
    model = normal()
    with mock.patch.object(run.bends, "bend", side_effect=error):
        fit = cv.fit(model, bend=True, progress=False)
    assert_allclose(fit.mean, [model.data[0].sum() / 21], atol=1e-6)
    why = "stopped from the keyboard before it was bent" if error is KeyboardInterrupt else (
        "could not be bent: ZeroDivisionError: by nothing"
    )  # fmt: skip
    assert why in fit.report and fit.settled


@quiet
def test_the_last_look_is_taken_once_and_belongs_to_the_fit():
    looks, right = [], run.weighed
    seen = lambda *args: looks.append(args[2:]) or right(*args)
    with mock.patch.object(run, "weighed", seen), mock.patch.object(front, "weighed", seen):
        fit = cv.fit(normal(), progress=False)
        last = [where for where in looks if where[1:] == (fit.steps + 1,)]
        assert len(last) == 1
        on = fit.go_on(steps=fit.steps * 2, progress=False)
    for one in (fit, on):
        again = right(one.model, *one.run.law, one.steps + 1)
        assert one.elbo == again.elbo[0]


@quiet
def test_ctrl_c_while_a_fit_is_judged_for_the_callback_stops_the_run():
    rng = np.random.default_rng(0)
    flat = lambda z, b: -0.5 * (b[0] - z[..., 0]) ** 4
    model = cv.models.Model(flat, NORMAL, rng.normal(size=9), 1)
    seen, right = [], front.doubts
    once = [KeyboardInterrupt]
    press = lambda *args: (_ for _ in ()).throw(once.pop()) if once else right(*args)
    with mock.patch.object(front, "doubts", side_effect=press):
        fit = cv.fit(model, steps=40, progress=False, callback=seen.append)
    assert "stopped from the keyboard after step 10" in fit.report and fit.steps == 10
    assert seen == [] and not once


# What a fit says, and what its answers repeat ----------------------------------------------------


def test_an_answer_repeats_what_the_fit_warns_of():
    fit = cv.fit(normal(), progress=False)
    assert fit.warnings == fit.evidence().warnings == ()
    fit.warnings = ("beware",)
    for answer in (fit.evidence(n=50), fit.expect(lambda z: z[:, 0], n=50)):
        few = "50 draws are few for an error bar: take 100 at least"
        assert answer.warnings[:2] == ("beware", few)


@quiet
def test_nothing_is_said_of_the_shape_before_the_elbo_has_settled():
    """A posterior that no Gaussian has, out of time, out of steps, and settled."""
    bent = lambda z: -0.5 * z[..., 0] ** 2 - 0.5 * (5 * z[..., 1] - 3 * z[..., 0] ** 2) ** 2
    model = cv.models.Model(lambda z, b: bent(z) + 0 * b[0], NORMAL, np.zeros(1), 2)
    shape = "shape of q", "k-hat", "quadratic explains"
    late = cv.fit(model, seconds=1e-9, progress=False)
    assert "it ran out of time, and the ELBO had not settled: give more" in late.warnings[0]
    steps = cv.fit(model, steps=1, progress=False)
    assert steps.warnings[0].startswith("the ELBO had not settled")
    for fit in (late, steps):
        assert not any(word in fit.report for word in shape) and len(fit.warnings) == 1
    done = cv.fit(model, bend=False, progress=False)
    assert done.settled and all(word in done.report for word in shape)
    assert LATE == "out of time" and LATE in late.report


def gamma(count):
    """The log of a rate with so many counts: its posterior has a longer tail than a Gaussian."""
    lik = lambda p, b: b[0] * anp.log(p.rate) - p.rate
    prior = lambda p: anp.log(p.rate) - p.rate / count
    return cv.models.Model(lik, prior, np.array([count]), parameters={"rate": cv.positive})


@quiet
def test_a_heavy_tail_is_warned_of_unless_all_weights_are_alike():
    few, many = (cv.fit(gamma(count), progress=False) for count in (20.0, 2000.0))
    assert few.effective > 0.95 and few.k_hat > 0.7
    assert "tail is heavier than that of q" in few.warnings[0]
    assert many.effective > 0.99 and many.k_hat > 0.7 and many.warnings == ()
    assert "no weight is 1.5 times the mean" in many.report


def test_the_gauge_of_big_weights():
    for largest, big in ((1.4, False), (1.7, True)):
        log = np.log(np.append(np.ones(9999), largest))
        assert front.big(Weights(np.zeros((10_000, 1)), log)) == big


# Far out in a prior ------------------------------------------------------------------------------


def test_far_out_in_the_prior_only_where_it_has_one_of_its_own():
    """x ~ N(0, e^v), v ~ N(0, 3): v is no more than two sds out, whatever x makes of it."""

    def funnel(z):
        v, x = z[..., 0], z[..., 1:]
        return -0.5 * (v / 3) ** 2 + anp.sum(-0.5 * (x / anp.exp(v[..., None])) ** 2, -1) - 20 * v

    alone = lambda z: anp.sum(-0.5 * (z / 3) ** 2, -1)
    z = np.append(-4.8, np.full(20, 0.15))  # v is 1.6 sds out; x is e^4.8 0.15 = 18 if v were held
    for prior in (funnel, alone):
        model = cv.models.Model(lambda z, b: 0 * z[..., 0] + b[0], prior, np.zeros(4), 21)
        assert [*front.conflicts(model, z)] == []
    for k in (0, 20):
        out = z.copy()
        out[k] = 30.0
        (said,) = front.conflicts(model, out)
        assert said.startswith(f"z[{k}] = 30 lies 10 standard deviations out")


# Modes -------------------------------------------------------------------------------------------


def two_normals(gap=0.0):
    """A mixture of two normals whose labels can switch, or nearly so."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-2, 1, 60), rng.normal(2, 1, 40)])
    each = lambda z, b, k: -0.5 * (b[0] - z[..., k]) ** 2
    lik = lambda z, b: anp.logaddexp(each(z, b, 0), each(z, b, 1))
    prior = lambda z: -0.02 * anp.sum(z**2, -1) - gap * anp.tanh(z[..., 0])
    return cv.models.Model(lik, prior, y, 2)


@quiet
@pytest.mark.parametrize("gap, told", [(0.0, True), (1.0, True), (4.0, False)])
def test_modes_of_about_equal_height_are_told(gap, told):
    """Two modes, and the second about 2 gap lower."""
    fit = cv.fit(two_normals(gap), restarts=6, steps=3, progress=False)
    said = [w for w in fit.warnings if "modes of about equal height" in w]
    assert len(said) == told and (
        not told or said[0].startswith("2 modes") and said[0] in fit.report
    )
    if told:
        high, low = (float(said[0].split()[k]) for k in (8, 10))
        assert_allclose(high - low, 2 * gap, atol=0.1)
    assert fit.go_on(steps=4, progress=False).warnings[: len(said)] == tuple(said)


def test_one_mode_found_many_times_is_one():
    assert starts.start(normal(d=2), restarts=5).rivals == ""


# What is refused, in a sentence ------------------------------------------------------------------


def test_a_masked_array_with_nothing_masked_is_an_array():
    model = cv.models.Model(LIK, NORMAL, np.ma.masked_array([1.0, 2.0]), 1)
    assert_allclose(model.data[0], [1, 2])


def test_data_from_outside_are_to_be_passed():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    named = {"beta": 3}
    for data, lik, given in [
        (y, lambda z, b: -0.5 * (b[0] - anp.sum(X * z, -1)) ** 2, {"dim": 3}),
        (y, lambda p, b: -0.5 * (b[0] - X @ p.beta) ** 2, {"parameters": named}),
    ]:
        with pytest.raises(ValueError, match="takes X from outside, all 50 rows: pass X in data"):
            cv.models.Model(lik, NORMAL, data, **given)
    missing = lambda z, b: -0.5 * (y - nowhere) ** 2  # noqa: F821
    with pytest.raises(ValueError, match="name 'nowhere' is not defined$"):
        cv.models.Model(missing, NORMAL, y, 3)
    scale = np.ones(7)  # not as long as the data
    with pytest.raises(ValueError) as error:
        cv.models.Model(lambda z, b: b[0] * anp.sum(z * scale, -1), NORMAL, y, 3)
    assert "from outside" not in str(error.value) and "z[..., k]" in str(error.value)


def test_arrays_of_the_reader_s_are_copied():
    model, q, mu = normal(d=2), cv.families.Gaussian(2), np.zeros(2)
    shot, w = cv.snapshot(model, mu), q.start()
    found = Found(model, q, w)
    before = found.mean.copy()
    mu += 1
    w += 1
    assert (shot.mu == 0).all() and (found.mean == before).all()


# One name for a seed -----------------------------------------------------------------------------


def test_a_fit_is_asked_with_a_seed():
    fit = cv.fit(normal(), progress=False)
    f, new = (lambda z: z[:, 0] ** 3), (lambda z, b, rng: z + rng.standard_normal(len(b[0])))
    for ask in (
        lambda seed: fit.sample(9, seed=seed),
        lambda seed: fit.draws(9, seed=seed)["z"],
        lambda seed: fit.log_lik(9, seed=seed),
        lambda seed: fit.predict(new, 9, seed=seed),
        lambda seed: fit.expect(f, 50, seed=seed).estimate,
        lambda seed: fit.evidence(50, seed=seed).k_hat,
    ):
        assert np.array_equal(ask(3), ask(np.random.default_rng(3)))
        assert not np.array_equal(ask(3), ask(4))
