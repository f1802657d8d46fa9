"""The parabola of means: its slope is the regression of phi' on eta under q, written afresh here.

A data point's parabola is found by weighted least squares on a fine grid in eta, and differentiated
by autograd; the package takes means by its own rule of quadrature.
"""

import itertools
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
import test_passes
from autograd import elementwise_grad, grad
from autograd.scipy.stats import norm as normal
from numpy.testing import assert_allclose
from scipy.stats import norm
from test_passes import SHAPES, by_autograd

import cvlib

NAMES = "logistic", "offset", "poisson", "probit"
FAMILIES = oracles.FAMILIES
T = np.linspace(-11, 11, 801)  # standard deviations; the trapezoidal rule is exact to many digits
SHARE = norm.pdf(T) / norm.pdf(T).sum()


def problem(cv, name, family, runs=(2,), N=4, d=2):
    """A small problem, its model, q, weights, and older weights some way off."""
    rng = np.random.default_rng(1)
    p = oracles.problem("logistic" if name == "probit" else name, d, N)
    if name == "probit":
        p = SimpleNamespace(**vars(p) | {"name": name, "phi": probit})
        model = cv.models.GLM(p.X, p.y, cv.models.PROBIT, oracles.PRIOR_SD)
    else:
        model = oracles.build(cv, p)
    phi = probit if name == "probit" else oracles.PHI["logistic" if name == "offset" else name]
    p.likelihood = phi
    q = getattr(cv.families, family)(d)
    w = q.start(runs) / 2 + 0.1 * rng.standard_normal((*runs, q.D))
    old = q.start(runs) + 0.3 * rng.standard_normal((*runs, q.D))
    return p, model, q, w, old, rng


def probit(t, y):
    return normal.logcdf(y * t)


def predictor(p, family, w):
    """Mean and variance of eta of every data point under q_w, through autograd, (N,) each."""
    mu, L = oracles.unpack(family, p.d, w)
    return anp.dot(p.X, mu) + p.offset, anp.sum(anp.dot(p.X, L) ** 2, -1)


def parabolas(p, family, w):
    """z (d,) -> the parabola of every data point, (N,): the regression of phi' on eta under q_w.

    The height is such that the parabola has the mean of phi.
    """
    m, v = predictor(p, family, w)
    eta, y = m[:, None] + np.sqrt(v)[:, None] * T, p.y[:, None]
    slope = elementwise_grad(p.likelihood)(eta, y + 0 * eta)  # (N, T)
    root = np.sqrt(SHARE)
    b, c = np.empty(p.N), np.empty(p.N)
    for i in range(p.N):
        design = np.stack([root, root * (eta[i] - m[i])], -1)
        b[i], c[i] = np.linalg.lstsq(design, root * slope[i], rcond=None)[0]
    mean = p.likelihood(eta, y) @ SHARE

    def f(z):
        away = anp.dot(p.X, z) + p.offset - m
        return mean + b * away + 0.5 * c * (away**2 - v)

    return f


def mean_gradients(p, family, w):
    """grad_w E_q phi of every data point, (N, D), by autograd through the grid."""

    def each(w, i):
        m, v = predictor(p, family, w)
        return anp.dot(p.likelihood(m[i] + anp.sqrt(v[i]) * T, p.y[i]), SHARE)

    return np.array([grad(each)(w, i) for i in range(p.N)])


def kept(cv, model, q, w):
    mu, factor = q.moments(w)
    return cv.snapshot(model, mu, factor=factor, mean=True)


def lines_of(cv, f):
    return [cv.SF(f), cv.RP1(f), cv.PR(f), cv.CF(f)]


# The checks take the package, so that they can be run on copies with a bug (tests/harness.py).


def test_lines(cv, names=("offset", "poisson"), families=FAMILIES):
    """SF, RP1, PR, CF at mu and at a snapshot, for data seen in every way, against autograd."""
    for name, family, at in itertools.product(names, families, ("mu", "snapshot")):
        p, model, q, w, old, rng = problem(cv, name, family)
        eps, M = rng.standard_normal((2, 2, p.d)), 2
        f = cv.parabola(cv.terms(model, q)[0], at=at)
        rights = [parabolas(p, family, (w if at == "mu" else old)[run]) for run in range(2)]
        for shape in SHAPES:
            options = dict(SHAPES[shape])
            if options.pop("index", False):
                options["index"] = rng.integers(p.N, size=(2, M))
            given = {"snapshot": kept(cv, model, q, old)} if at == "snapshot" else {}
            draw = cv.draw(model, q, w, eps=eps, rng=rng, **given, **options)
            for whole, line in ((False, f), (True, f.over_all_data())):
                got = cv.evaluate(lines_of(cv, line), draw)
                for run, m in itertools.product(range(2), range(M)):
                    total = seen(rights[run], p, draw, run, m, whole)
                    right = by_autograd(q, family, total, w[run], eps[run, m])
                    what = f"{name}, {family}, {at}, {shape}, whole={whole}"
                    scale = 1 + np.abs(right).max()
                    assert_allclose(got[run, :, m], right, atol=2e-8 * scale, err_msg=what)


def seen(each, p, draw, run, m, whole):
    """The function of z that sample m of a run stands for."""
    if whole or draw.index is None:
        return lambda z: anp.sum(each(z))
    index = draw.index[run].reshape(-1, 3 if draw.batched else 1)
    index = index[m if len(index) > 1 else 0]
    return lambda z: p.N * anp.mean(each(z)[index])


def test_closed_form_is_the_quadrature(cv, names=NAMES):
    """CF(parabola(f)) is QD(f), and grad_w E_q f; at a snapshot, that of the snapshot's weights."""
    for name, family in itertools.product(names, FAMILIES):
        p, model, q, w, old, _ = problem(cv, name, family, runs=())
        data = cv.terms(model, q)[0]
        rows = {"eps": np.zeros((p.N, p.d)), "index": np.arange(p.N)}
        right = p.N * mean_gradients(p, family, w)
        for at, given in (("mu", {}), ("snapshot", {"snapshot": kept(cv, model, q, w)})):
            f = cv.parabola(data, at=at)
            draw = cv.draw(model, q, w, **rows, **given)
            closed, quadrature, mean = cv.evaluate(
                [cv.CF(f), cv.QD(data), cv.CF(f.over_all_data())], draw
            )
            scale = 1 + np.abs(right).max()
            assert_allclose(closed, right, atol=2e-8 * scale, err_msg=f"{name}, {family}, {at}")
            assert_allclose(closed, quadrature, atol=1e-12 * scale)
            assert_allclose(mean, np.tile(right.mean(0), (p.N, 1)), atol=2e-8 * scale)
        draw = lambda: cv.draw(model, q, w, **rows, snapshot=kept(cv, model, q, old))
        together = draw()
        for at in "mu", "snapshot":  # side by side they do not mix
            line = cv.CF(cv.parabola(data, at=at))
            assert_allclose(line(together), line(draw()), rtol=1e-12)


def test_mean_zero(cv, names=NAMES):
    """Over every data point and a quadrature in z that is exact for parabolas; stale snapshots."""
    t, share = np.polynomial.hermite_e.hermegauss(4)
    grid = np.stack(np.meshgrid(t, t, indexing="ij"), -1).reshape(-1, 2)
    share = np.outer(share, share).ravel() / share.sum() ** 2
    for name, family, at in itertools.product(names, FAMILIES, ("mu", "snapshot")):
        p, model, q, w, old, _ = problem(cv, name, family, runs=())
        eps, index = np.repeat(grid, p.N, 0), np.tile(np.arange(p.N), len(grid))
        given = {"snapshot": kept(cv, model, q, old)} if at == "snapshot" else {}
        draw = cv.draw(model, q, w, eps=eps, index=index, **given)
        f = cv.parabola(cv.terms(model, q)[0], at=at)
        for word in (cv.SF, cv.RP1, cv.RP2, cv.RB, cv.PR, cv.QD, cv.CF):
            if word is cv.RP2 and family == "DiagonalGaussian":
                continue
            line = word(f) - cv.CF(f.over_all_data())
            cv.recipe.estimators.check_variate(line)
            C = line(draw)
            mean = np.repeat(share, p.N) / p.N @ C
            assert_allclose(mean, 0, atol=1e-9 * (1 + np.abs(C).max()), err_msg=repr(line))


def test_sums_of_a_snapshot(cv):
    """Value, slope and Hessian over all data, in one part and in several, for several runs."""
    whole = cv.passes.CHUNK
    for name, family in itertools.product(NAMES, FAMILIES):
        p, model, q, w, _, _ = problem(cv, name, family, runs=(3,), N=7)
        for chunk in (2**20, 1500):
            try:
                cv.passes.CHUNK = chunk
                found = kept(cv, model, q, w)
            finally:
                cv.passes.CHUNK = whole
            for k in range(3):
                f, mu = parabolas(p, family, w[k]), q.mean(w[k])
                total = lambda z: anp.sum(f(z))
                H = [grad(total)(mu + e) - grad(total)(mu) for e in np.eye(p.d)]
                rights = total(mu), grad(total)(mu), np.stack(H)
                for got, right in zip(found.parabolas["parabola"], rights, strict=True):
                    assert_allclose(got[k], right, rtol=1e-7, atol=1e-8)


def test_renewed_in_the_loop(cv):
    """Snapshots have what the line wants; renewed in every step, QD follows the exact path."""
    steps, wanted, path = test_passes.renewals(cv, *test_passes.joint(cv, "parabola"), 4, steps=9)
    assert steps == [0, 1, 2, 4, 8]
    assert all(w["mean"] is True and w["order"] == 2 for w in wanted)
    assert all(w["factor"].shape == (3, 2, 2) for w in wanted)
    assert all(x is not None for x in path.state.snapshot.parabolas["parabola"])

    model, q, *_ = test_passes.joint(cv)
    data, prior, variational = cv.terms(model, q)
    old = cv.parabola(data, at="snapshot")
    h = cv.QD(data) + cv.CF(prior) - cv.CF(variational)
    c = cv.CF(old) - cv.CF(old.over_all_data())
    go = dict(lr=0.1, steps=12, every=1)
    exact = cv.optimize.noise_free(model, q, **go).path
    found = {
        K: cv.optimize.sgd(
            model, q, h, [c], M=3, rng=np.random.default_rng(0), renew=K,
            weights=cv.rules.fixed(-1.0), **go,
        ).path
        for K in (1, 12)
    }  # fmt: skip
    assert_allclose(found[1], exact, atol=1e-9)
    assert 1e-9 < np.abs(found[12] - exact).max() < 1e-2


# What is refused ------------------------------------------------------------------------------


def test_what_has_no_parabola_of_means():
    cv = cvlib
    own = test_passes.setting(cv, "curved", "Gaussian")
    with pytest.raises(ValueError, match=r"of z only eta = x.z.*'data' is none: try taylor_z"):
        cv.parabola(cv.terms(own[1], own[2])[0])
    with pytest.raises(ValueError, match="mean=True needs a generalised linear model"):
        cv.snapshot(own[1], np.zeros(2), factor=np.eye(2), mean=True)
    _, model, q, w, rng = test_passes.setting(cv, "logistic", "Gaussian")
    data, prior, _ = cv.terms(model, q)
    with pytest.raises(ValueError, match='"mu" or at "snapshot"'):
        cv.parabola(data, at="start")
    with pytest.raises(TypeError, match="parabola takes an integrand"):
        cv.parabola(cv.CF(prior))
    with pytest.raises(ValueError, match="and the factor of q"):
        cv.snapshot(model, q.mean(w), mean=True)
    f = cv.parabola(data, at="snapshot")
    draw = lambda s: cv.draw(model, q, w, M=2, rng=rng, snapshot=s)
    for kept_, lines in (
        (cv.snapshot(model, q.mean(w)), [cv.CF(f), cv.CF(f.over_all_data())]),
        (cv.snapshot(model, *q.moments(w)[:1], factor=q.moments(w)[1]), [cv.CF(f.over_all_data())]),
    ):
        for line in lines:
            with pytest.raises(ValueError, match="needs more than this snapshot has: take"):
                line(draw(kept_))
    with pytest.raises(ValueError, match="snapshot"):
        cv.CF(f)(cv.draw(model, q, w, M=2, rng=rng))


def test_what_is_a_parabola_stays_and_names_are_as_written():
    cv = cvlib
    _, linear, q, *_ = test_passes.setting(cv, "linear", "Gaussian")
    data, prior, _ = cv.terms(linear, q)
    assert cv.parabola(data + prior).parts.keys() == (data + prior).parts.keys()
    model = test_passes.setting(cv, "logistic", "Gaussian")[1]
    data, prior, _ = cv.terms(model, q)
    assert repr(cv.parabola(data + prior)) == "parabola(data) + prior"
    both = cv.parabola(data, at="snapshot").over_all_data()
    assert repr(cv.CF(both)) == "CF(parabola(data, at='snapshot').over_all_data())"


def test_a_draw_refuses_the_snapshot_of_other_data():
    p, model, q, w, old, rng = problem(cvlib, "logistic", "Gaussian", runs=())
    other = cvlib.models.logistic_regression(2 * p.X, p.y)
    with pytest.raises(ValueError, match="is not one of the data"):
        cvlib.draw(model, q, w, M=2, rng=rng, snapshot=kept(cvlib, other, q, old))
