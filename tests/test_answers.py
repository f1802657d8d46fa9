"""Answers after a fit: against quadrature, refits, closed forms, SciPy and ArviZ."""

import itertools
import re
import sys
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose
from scipy import special, stats
from scipy.signal import lfilter

import cvlib
from cvlib.fitting import stein as own
from cvlib.fitting.chains import _given
from cvlib.models.density import Density

stein = lambda cv: part(cv, "fitting.stein")
tails = lambda cv: part(cv, "fitting.looks")
answers = lambda cv: part(cv, "fitting.found")
lots = lambda cv: part(cv, "fitting.lots")


def line():
    """Nodes, density and score of exp(-x^4 / 4 - x^2 / 2 + x / 3) on a grid: exact to 1e-12."""
    x = np.linspace(-7, 7, 1501)[:, None]
    p = np.exp(-(x**4) / 4 - x**2 / 2 + x / 3)[:, 0]
    return x, p / p.sum(), -(x**3) - x + 1 / 3


def plane():
    """The same for a bent ridge with x^4 in two dimensions."""
    x, y = (a.ravel() for a in np.meshgrid(np.linspace(-6, 6, 241), np.linspace(-8, 14, 441)))
    bent = y - 0.3 * x**2
    p = np.exp(-(x**2) / 2 - bent**2 / 2 - x**4 / 20)
    score = np.column_stack([-x + 0.6 * x * bent - x**3 / 5, -bent])
    return np.column_stack([x, y]), p / p.sum(), score


def test_stein_s_identity(cv):
    """Both orders, by quadrature in one and two dimensions; the span holds what it should."""
    for z, p, score in (line(), plane()):
        e, U = stein(cv).standardised(z, score, p)
        d = z.shape[1]
        assert_allclose(p @ e, 0, atol=1e-12)
        assert_allclose((p * e.T) @ e, np.eye(d), atol=1e-12)
        same = ((z - p @ z) * score).sum(1)  # L^T turns slopes as L^-1 turns points
        assert_allclose((e * U).sum(1), same, atol=1e-9 * np.abs(same).max())
        assert [stein(cv).stein(e, U, k).shape[1] for k in (0, 1, 2)] == [0, d, d * (d + 3) // 2]
        C = stein(cv).stein(e, U, 2)
        assert np.abs(p @ C).max() < 1e-9
        assert np.linalg.matrix_rank(C[:: len(C) // 300]) == d * (d + 3) // 2
        assert (p @ C**2).min() > 0.1


def test_a_gaussian_has_no_error(cv):
    """Linear and quadratic f are exact for a Gaussian p, whatever the draws and the weights are."""
    rng, d = np.random.default_rng(0), 3
    mu, A = np.array([1.0, -2, 0.5]), rng.standard_normal((d, d)) + 2 * np.eye(d)
    S = A @ A.T
    z = mu + 2 * rng.uniform(-3, 5, (150, d))
    score = -(z - mu) @ np.linalg.inv(S)
    inner = stein(cv)  # cv.expect refuses draws that are not of p

    def ask(f, weights, order):
        return inner.expect(inner.drawn(f, z, score, weights), order)

    for weights in (None, rng.exponential(size=150)):
        one = ask(lambda z: z, weights, 1)
        assert_allclose(one.estimate, mu, atol=1e-9)
        f = lambda z: np.einsum("ni,nj->nij", z, z)
        two = ask(f, weights, 2)
        assert_allclose(two.estimate, S + np.outer(mu, mu), atol=1e-8)
        assert two.se.shape == (d, d) and max(one.se.max(), two.se.max()) < 1e-8
        assert ask(f, weights, 1).se.min() > 0.01
    plain = cv.expect(z[:, 0], z, score, order=0)
    assert_allclose([plain.estimate, plain.se], [z[:, 0].mean(), z[:, 0].std(ddof=1) / 150**0.5])
    assert np.isnan(plain.k_hat) and plain.n == 150 and np.ndim(plain.estimate) == 0


def fitted(Y, C, w, which=0):
    """The intercept of weighted least squares; or the slopes."""
    X, root = np.column_stack([np.ones(len(Y)), C]), np.sqrt(w)[:, None]
    return np.linalg.lstsq(root * X, root * Y)[0][which]


def test_the_jackknife_is_made_of_refits(cv):
    rng = np.random.default_rng(2)
    n = 24
    C, Y, w = rng.standard_normal((n, 2)), rng.standard_normal((n, 3)), rng.exponential(size=n)
    C[5], w[5] = 10 * C[5], 0.3 * w[5]  # far out and light: it decides the slopes
    Y[:, 0] += C[:, 0] ** 2
    larger = []
    for block in (1, 4):
        found, G = stein(cv).intercept(Y, C, w, block), n // block
        out = [np.arange(n) // block != g for g in range(G)]
        left = np.array([fitted(Y[k], C[k], w[k]) for k in out])
        whole = fitted(Y, C, w)
        assert_allclose(found.value, G * whole - (G - 1) * left.mean(0))
        assert_allclose(found.share @ Y, found.value)
        spread = ((left - left.mean(0)) ** 2).sum(0)
        slopes = [fitted(Y[k], C[k], w[k], slice(1, None)) for k in out]
        y = np.concatenate([Y[~k] - C[~k] @ b for k, b in zip(out, slopes)])  # by the others
        each = (w[:, None] * (y - w @ y / w.sum()) / w.sum()).reshape(G, block, 3).sum(1)
        split = (each**2).sum(0)
        larger += [*(split > spread)]
        bias = found.value - whole
        se = np.sqrt((G - 1) / G * np.maximum(spread, split) + bias**2)
        wide = stats.t.ppf(0.975, G - 1) / 1.96 if block > 1 else 1  # six groups: Student's t
        assert_allclose(found.se, wide * se)
    assert 0 < sum(larger) < 6  # either is the larger one
    A = np.sqrt(w)[:, None] * np.column_stack([np.ones(n), C])
    hat = A @ np.linalg.inv(A.T @ A) @ A.T
    assert_allclose(stein(cv).intercept(Y, C, w).leverage, np.diag(hat).max())
    largest = max(np.linalg.eigvalsh(hat[k : k + 4, k : k + 4])[-1] for k in range(0, n, 4))
    assert_allclose(stein(cv).intercept(Y, C, w, 4).leverage, largest)
    twice = stein(cv).intercept(Y, np.column_stack([C, C]), w)  # a variate that comes twice
    assert_allclose(twice.value, stein(cv).intercept(Y, C, w).value)


def toy(rng, n):
    """Draws of a wide t for p the law of log x, x ~ Gamma(4): z, score, weights."""
    z = 1.3 + 0.7 * rng.standard_t(5, (n, 1))
    log = (4 * z - np.exp(z))[:, 0] - stats.t.logpdf(z[:, 0], 5, 1.3, 0.7)
    return z, 4 - np.exp(z), np.exp(log)


def test_errors_are_honest(cv):
    """Intervals of two standard errors cover the truth in 91 to 98 % of 400 repeats."""
    rng = np.random.default_rng(4)
    f = lambda z: np.concatenate([z, np.exp(z / 2), z > 1, np.exp(2 * z)], 1)
    truth = [special.digamma(4), special.gamma(4.5) / 6, stats.gamma.sf(np.e, 4), 20.0]
    for order in (0, 2):
        got = [cv.expect(f, *toy(rng, 150), order=order) for _ in range(400)]
        z = np.array([(a.estimate - truth) / a.se for a in got])
        cover = (np.abs(z) < 1.96).mean(0)
        assert (cover > 0.91).all() and (cover < 0.99).all(), cover
        assert np.abs(z.mean(0)).max() < 0.35
    assert got[0].order == 2 and not got[0].warnings


def autoregressive(rng, n, rho=0.8):
    """A chain (n, 1) whose law is N(0, 1)."""
    steps = np.append(rng.standard_normal(), np.sqrt(1 - rho**2) * rng.standard_normal(n - 1))
    return lfilter([1], [1, -rho], steps)[:, None]


def test_chains_are_left_out_in_blocks(cv):
    """An autoregressive chain of N(0, 1): single draws give errors that are far too small."""
    rng = np.random.default_rng(5)
    cover = {1: [], 40: [], None: []}
    for _ in range(120):
        z = autoregressive(rng, 600)
        for block in cover:
            a = cv.expect(z[:, 0] > 0.5, z, -z, block=block, order=0)
            cover[block].append(abs(a.estimate - stats.norm.sf(0.5)) < 1.96 * a.se)
    assert np.mean(cover[1]) < 0.7 and np.mean(cover[40]) > 0.86 and np.mean(cover[None]) > 0.9
    odd = cv.expect(z, z, -z, block=70)
    assert odd.n == 560 and abs(odd.estimate[0]) < 1e-9 and odd.se[0] < 1e-9


def test_several_chains(cv):
    """Effective sample sizes by the closed form, n (1 - rho) / (1 + rho), in any shape of z."""
    z = autoregressive(np.random.default_rng(6), 12_000)
    one, four = (cv.expect(x, x, -x, order=0) for x in (z, z.reshape(4, 3000, 1)))
    for found in one, four:
        assert_allclose(found.before, 12_000 / 9, rtol=0.25)
        assert_allclose(found.after, found.before)
        assert found.warnings == ()
    for block in (None, 20):  # 450 draws are worth 50
        few = cv.expect(z[:450] ** 2, z[:450], -z[:450], order=0, block=block)
        worth = re.search(r"draws are worth (\d+) independent ones", " ".join(few.warnings))
        assert worth and 30 < int(worth[1]) < 80
    apart = z.reshape(4, 3000, 1) + 0.3 * np.arange(4)[:, None, None]  # chains that disagree
    assert cv.expect(apart, apart, -apart, order=0).before < one.before / 3
    quick = autoregressive(np.random.default_rng(7), 6000, -0.5)
    assert_allclose(cv.expect(quick, quick, -quick, order=0).before, 18_000, rtol=0.25)


STILL = {"none": (0, 0, []), "all": ..., "a chain": 0, "a coordinate": (..., 1), "NaN": (0, 0, 0)}


@pytest.mark.parametrize("draws", (1, 2, 3, 5, 20, 100))
@pytest.mark.parametrize("chains", (1, 2, 3, 7, 50))
def test_chains_of_any_number_and_length(cv, chains, draws):
    """An answer with an error, or a sentence on what to do: two draws at least, and all move.

    Walks without an end, and chains of which one stands still, may be told to be others' draws.
    """
    f = lambda z: np.stack([z[:, 0], z[:, 0] ** 3, z[:, 0] > 1], 1)
    words = "it must be at least 2|run the chain until it moves|leave such draws out"
    words += "|do not belong to this model"
    for kind, slow, order in itertools.product(STILL, (False, True), (None, 0)):
        z = np.random.default_rng(chains).standard_normal((chains, draws, 2))
        z = np.cumsum(z, 1) if slow else z
        z[STILL[kind]] = np.nan if kind == "NaN" else 1.3
        refused = kind == "NaN" or len(np.unique(z[..., 0])) == 1
        for ask in cv.expect, cv.quantile:
            try:
                found = ask(f, z, -z, order=order)
            except ValueError as error:
                assert type(error) is ValueError and re.search(words, str(error)), error
                foreign = "do not belong" in str(error)
                assert refused or (kind, order) == ("a coordinate", None) or foreign
                assert not foreign or order is None and (slow or kind == "a chain")
            else:
                assert np.isfinite([found.estimate, found.se]).all()
                assert (kind, order) != ("a coordinate", None)
                assert not refused or chains * draws < 10  # too few to tell chains: it is warned of
                assert found.n > 0.8 * z[..., 0].size and (found.warnings or z[..., 0].size >= 100)


def test_the_order_is_the_one_that_folds_prefer(cv):
    rng = np.random.default_rng(6)
    ask = lambda z, f, **k: cv.expect(f(z), z, -z, **k)
    cube, square, sign = lambda z: z[:, 0] ** 3, lambda z: z[:, 0] ** 2, lambda z: z[:, 0] > 0
    z = rng.standard_normal((300, 8))
    assert [ask(z, f).order for f in (cube, square, sign)] == [1, 2, 1]
    line = lambda z: z[:, 0]
    found = ask(z[:100], square), ask(z[:40], line), ask(z[:8], line)  # 44 variates, and 8
    assert [a.order for a in found] == [2, 1, 0]
    assert ask(z, cube).warnings == () and "9 draws are few" in ask(z[:9], cube).warnings[0]
    z[0] = 40.0  # a draw that decides all of it
    assert ask(z, cube).order == 0 and ask(z, cube, order=2).order == 2
    assert "one draw decides" in ask(z, cube, order=2).warnings[0]


def test_rare_events_are_never_certain(cv):
    """Not seen: three over the number of draws. Seen by few, or few that decide: a sentence."""
    z = np.random.default_rng(1).standard_normal((1000, 1))
    for f in (lambda z: z[:, 0] > 9, lambda z: z[:, 0] < 9):
        found = cv.expect(f, z, -z)
        assert_allclose(2 * found.se, 3 / 1000)
        assert "below 0.003 with 95 %" in found.warnings[0]
    few = cv.expect(lambda z: np.stack([z[:, 0] > 0, z[:, 0] > 2.9], 1), z, -z)
    assert "draws differ from the rest (number 1 is one)" in few.warnings[0]
    assert cv.expect(3.0 + 0 * z, z, -z).warnings == ()  # a constant is no event
    heavy = cv.expect(1 / np.abs(z), z, -z)  # has no mean
    assert heavy.k_f > 0.7 and "k-hat of weight times f" in heavy.warnings[-1]
    wide = cv.expect(np.abs(z) ** -0.6, z, -z)  # has a mean and no variance: its exponent is 0.6
    assert 0.5 < wide.k_f < 0.7 and "k-hat of weight times f" in " ".join(wide.warnings)
    assert cv.expect(z**2, z, -z).warnings == ()


def test_quantiles(cv):
    """Of log x, x ~ Gamma(4), with weights, by SciPy; exact ones for two shapes of f."""
    rng, probs = np.random.default_rng(7), (0.1, 0.5, 0.9)
    truth = np.log(stats.gamma.ppf(probs, 4))
    f = lambda z: np.stack([z[:, 0], -z[:, 0]], 1)
    got = [cv.quantile(f, *toy(rng, 300), probs=probs) for _ in range(120)]
    z = np.array([(a.estimate - np.stack([truth, -truth[::-1]], 1)) / a.se for a in got])
    assert z.shape == (120, 3, 2)
    assert ((np.abs(z) < 1.96).mean(0) > 0.88).all() and np.abs(z.mean(0)).max() < 0.4
    lots = [rng.standard_normal((200, 1)) for _ in range(60)]  # the median meets the variates
    median = lambda order: [cv.quantile(z, z, -z, probs=0.5, order=order).estimate for z in lots]
    assert np.std(median(None)) < 0.8 * np.std(median(0))


def test_the_errors_of_a_table(cv):
    """Mean, sd and quantiles of 5 log x and sqrt(x), x ~ Gamma(4), by SciPy: intervals cover.

    Each error is the scatter of what it stands beside, and less than that of the weighted draws.
    """
    rng, probs = np.random.default_rng(10), np.array([0.05, 0.5, 0.95])
    means = np.array([5 * special.digamma(4), special.gamma(4.5) / 6])
    sds = np.array([5 * special.polygamma(1, 4) ** 0.5, np.sqrt(4 - means[1] ** 2)])
    tails = stats.gamma.ppf(probs, 4)[:, None]
    truth = np.concatenate([[means, sds], np.hstack([5 * np.log(tails), np.sqrt(tails)])])
    f = lambda z: np.concatenate([5 * z, np.exp(z / 2)], 1)
    lots = [stein(cv).drawn(f, *toy(rng, 400)) for _ in range(120)]
    got = np.array([stein(cv).described(at, probs=probs)[:2] for at in lots])  # (120, 2, 5, 2)
    away = (got[:, 0] - truth) / got[:, 1]
    assert ((np.abs(away) < 1.96).mean(0) > 0.86).all(), (np.abs(away) < 1.96).mean(0)
    assert np.abs(away.mean(0)).max() < 0.5, away.mean(0)
    scatter, error = got[:, 0].std(0), np.median(got[:, 1], 0)
    assert (error < 1.4 * scatter).all() and (error > 0.75 * scatter).all(), error / scatter
    plain = np.array([stein(cv).described(at, 0, probs=probs)[0] for at in lots])
    assert (scatter < 0.9 * plain.std(0)).all(), scatter / plain.std(0)


def test_doubts_of_the_weights(cv):
    z = np.random.default_rng(0).standard_normal((4000, 1))
    by = {}
    for sd in (0.9, 0.6, 0.4):  # draws of N(0, sd^2) for N(0, 1): k = 1 - sd^2
        a = cv.expect(sd * z, sd * z, -sd * z, np.exp(0.5 * z[:, 0] ** 2 * (1 - sd**2)))
        by[sd] = a.k_hat, " ".join(a.warnings)
    assert by[0.9][0] < 0.5 and not by[0.9][1]
    assert 0.5 < by[0.6][0] < 0.7 and "the error is too small" in by[0.6][1]
    assert by[0.4][0] > 0.7 and "run MCMC" in by[0.4][1]
    few = np.where(np.random.default_rng(2).uniform(size=4000) < 0.2, 1.0, 0.01)  # have it all
    says = " ".join(cv.expect(z, z, -z, few).warnings)
    assert "a tail that was hardly met" in says
    away, *_ = linear(cv, 2.0)
    assert "too heavy to believe" in " ".join(away.evidence(400, 0).warnings)


def test_smoothing_is_that_of_arviz(cv):
    """k-hat, the two largest weights and the 45th, by `arviz.psislw` of ArviZ 0.23.4.

    A short tail, and weights too few to have one, stay as they are.
    """
    smoothed, rng = tails(cv).smoothed, np.random.default_rng
    theirs = {
        0.5: (0.7431306056, [0.03641796, 0.02156077, 0.00238852]),
        1.0: (1.2817851965, [0.37792058, 0.10110764, 0.00160498]),
        2.0: (2.3044788792, [0.876327414, 0.0696891977, 3.08067551e-05]),
    }
    for scale, (k, largest) in theirs.items():
        log = scale * rng(1).standard_exponential(900)
        w, found = smoothed(log)
        assert_allclose(found, k, rtol=1e-9)
        assert_allclose(np.sort(w / w.sum())[[-1, -2, -45]], largest, rtol=1e-5)
        order, rest = np.argsort(log), slice(None, -90)
        assert_allclose(w[order][rest], np.exp(log - log.max())[order][rest])
        assert (np.diff(w[order]) >= 0).all() and w.max() <= 1
    short = rng(8).uniform(size=900)
    w, k = smoothed(short)
    assert k < 1 / 3 and np.isnan(smoothed(short[:20])[1])
    assert_allclose(w, np.exp(short - short.max()))


def linear(cv, off=0.0, wide=1.0):
    """y ~ N(X z, 1/4), z ~ N(0, 1), and a q that is the posterior, or off it, or too wide.

    What an answer needs of a fit; the posterior's mean and covariance, and the log evidence.
    """
    rng = np.random.default_rng(9)
    X = rng.standard_normal((20, 2))
    y = X @ [1.0, -0.5] + 0.5 * rng.standard_normal(20)

    def log_lik(z, batch):
        x, y = batch
        mean = x[..., 0] * z[..., 0] + x[..., 1] * z[..., 1]
        return -2 * (y - mean) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))

    prior = lambda z: -0.5 * (z[..., 0] ** 2 + z[..., 1] ** 2) - np.log(2 * np.pi)
    S = np.linalg.inv(4 * X.T @ X + np.eye(2))
    log = stats.multivariate_normal.logpdf(y, np.zeros(20), 0.25 * np.eye(20) + X @ X.T)
    model, q = cv.models.Model(log_lik, prior, (X, y), 2), cv.families.Gaussian(2)
    mean = S @ X.T @ y * 4
    w = q.pack(mean + off, wide * np.linalg.cholesky(S))
    return answers(cv).Found(model, q, w), mean, S, log


def test_a_linear_model_is_answered_exactly(cv):
    """Whatever q is; the evidence where q is the posterior, and within its error beside it."""
    off, mean, S, log = linear(cv, 0.1, 1.3)
    f = lambda z: np.stack([z[:, 0], z[:, 1], z[:, 0] * z[:, 1]], 1)
    found = off.expect(f, 300, 0)
    assert_allclose(found.estimate, [*mean, S[0, 1] + mean[0] * mean[1]], atol=1e-9)
    assert found.se.max() < 1e-9 and found.order == 2 and 300 <= found.n < 340
    exact = linear(cv)[0].evidence(300, 0)
    assert_allclose(exact.estimate, log, atol=1e-9)
    assert exact.se < 1e-9
    logs = [off.evidence(400, seed) for seed in range(40)]
    z = np.array([(a.estimate - log) / a.se for a in logs])
    assert abs(z.mean()) < 0.6 and 0.7 < z.std() < 1.4
    assert 0 < np.mean([a.se for a in logs]) < 0.02
    assert_allclose(off.evidence().estimate, log, atol=4 * off.evidence().se)


def test_the_law_of_the_points(cv):
    """Half of q and half of Student's t, by SciPy's densities; shares have mean one."""
    fit, mean, S, _ = linear(cv)
    for nu in (5.0, 1.0):
        e, block = lots(cv).spread(20_000, 2, np.random.default_rng(0), 0.5, nu)
        at = lots(cv).at(fit.model, fit.q, fit.w, e, block, nu)
        z = mean + e @ np.linalg.cholesky(S).T
        q = stats.multivariate_normal.logpdf(z, mean, S)
        t = stats.multivariate_t.logpdf(z, mean, S, nu)
        law = np.logaddexp(q, t) - np.log(2)
        assert_allclose(at.log, fit.model.log_joint(z) - law, rtol=1e-9)
        assert_allclose(at.share, np.exp(q - law), rtol=1e-9)
        counts = at.w > 0  # f and variates are asked for the others where one counts
        assert counts[at.log > at.log.max() - 700].all() and counts.all() == (nu == 5)
        assert_allclose(at.z[counts], z[counts], rtol=1e-9)
        away, slopes = (at.z - mean)[counts], at.score[counts]
        assert_allclose(slopes, -away @ np.linalg.inv(S), atol=1e-8 * np.abs(e).max())
        assert (at.z[~counts] == at.z[at.w.argmax()]).all() and not at.score[~counts].any()
        C = np.column_stack([at.share - 1, at.share[:, None] * own.stein(at.e, -at.e, 2)])
        assert np.abs(C.mean(0) / C.std(0)).max() * np.sqrt(len(C)) < 4.5
        far = [(np.sum(e**2, 1) > c).mean() for c in (2, 20)]  # 2 F(2, nu) under t
        right = [stats.chi2.sf(c, 2) / 2 + stats.f.sf(c / 2, 2, nu) / 2 for c in (2, 20)]
        assert_allclose(far, right, atol=0.002)


@pytest.mark.parametrize("n", (10, 100, 300, 1000, 4000))
def test_points_are_pairs_in_independent_scramblings(cv, n):
    e, block = lots(cv).spread(n, 3, np.random.default_rng(1), 0.5)
    each = e.reshape(-1, block, 3)
    assert n <= len(e) < 1.15 * n + 2 and (n < 100 or 8 <= len(each) <= 17)
    assert_allclose(each[:, : block // 2], -each[:, block // 2 :])
    u = stats.norm.cdf(lots(cv).spread(n, 3, np.random.default_rng(1))[0].reshape(each.shape))
    strata = np.sort(np.floor(u[:, : block // 2] * (block // 2)), 1)  # one point in each
    assert (strata == np.arange(block // 2)[:, None]).all()
    means = np.array([u[:, : block // 2].mean(1) for _ in "1"])[0]
    assert n < 300 or np.abs(np.corrcoef(means[:-1, 0], means[1:, 0])[0, 1]) < 0.9


def test_errors_of_even_points_are_honest(cv):
    """Of a skewed posterior, log of Gamma(3), by closed forms; and smaller than of plain draws."""
    a, q = 3.0, cv.families.Gaussian(1)
    prior = lambda z: a * z[..., 0] - anp.exp(z[..., 0])
    model = cv.models.Model(lambda z, b: 0 * b[0] * z[..., 0], prior, np.zeros(1), 1)
    fit = answers(cv).Found(model, q, q.pack(np.full(1, np.log(a)), np.full((1, 1), 0.6)))
    f = lambda z: np.concatenate([z, z**2, np.exp(2 * z), z > 0.5], 1)
    m, v = special.digamma(a), special.polygamma(1, a)
    truth = np.array([m, v + m**2, 12.0, stats.gamma.sf(np.exp(0.5), a)])
    got = [fit.expect(f, 1000, seed) for seed in range(60)]
    away = np.array([x.estimate - truth for x in got])
    z = away / [x.se for x in got]
    assert ((np.abs(z) < 1.96).mean(0) > 0.87).all() and np.abs(z.mean(0)).max() < 0.6
    rms = np.sqrt((away**2).mean(0))
    assert (np.median([x.se for x in got], 0) < 2 * rms).all()
    plain = []  # the same mixture without its evenness
    for seed in range(60):
        rng = np.random.default_rng(seed)
        e = rng.standard_normal((1000, 1))
        e[::2] *= np.sqrt(5 / rng.chisquare(5, (500, 1)))
        lot = lots(cv).at(model, q, fit.w, e, 1, 5.0)
        plain.append(cv.expect(f(lot.z), lot.z, lot.score, np.exp(lot.log - lot.log.max())))
    gain = np.mean([(x.estimate - truth) ** 2 for x in plain], 0) / rms**2
    assert gain.min() > 0.8 and np.median(gain) > 1.5


def test_a_rare_event_is_looked_for(cv):
    """P(z_0 > c) = 0.0005 and 0.001 under a Gaussian posterior, by SciPy."""
    fit, mean, S, _ = linear(cv)
    for P in (5e-4, 1e-3):
        c = stats.norm.isf(P, mean[0], np.sqrt(S[0, 0]))
        got = [fit.expect(lambda z, c=c: z[:, 0] > c, 1000, seed) for seed in range(12)]
        z = np.array([(a.estimate - P) / a.se for a in got if a.n == 2048])
        assert len(z) >= 10 and np.abs(z).max() < 4 and abs(z.mean()) < 1
        assert np.median([a.se for a in got]) < 0.3 * P


def test_what_is_shown(cv):
    """Of a q that is off: the posterior's; of one that is far off: q's, and it says so."""
    off, mean, S, _ = linear(cv, 0.1, 1.3)
    sd = np.sqrt(np.diag(S))
    with warnings.catch_warnings(action="error"):
        for n in (1000, 4000):  # from the lot, and from a larger one
            found = off.draws(n, 0)
            assert type(found) is dict and found["z"].shape == (n, 2)  # JAX knows no other dict
            assert (np.abs(found["z"].mean(0) - mean) < 4 * sd / np.sqrt(n)).all()
            assert_allclose(np.cov(found["z"].T), S, rtol=0.25, atol=1e-3)
    assert off.shown == "posterior" and off.effective > 0.1 and off.k_hat < 0.7
    shown = off.summary()
    right = [mean, sd, *stats.norm.ppf([[0.05], [0.5], [0.95]], mean, sd)]
    assert shown.rows == ["z[0]", "z[1]"] and shown.head == ""
    for (name, error), value in zip(shown.errors.items(), right):
        assert_allclose(shown.columns[name], value, atol=1e-9 + 0.05 * sd.max())
        assert np.all(np.abs(shown.columns[name] - value) < 1e-9 + 4 * shown.columns[error])
        assert name in repr(shown) and error not in repr(shown)
    far, *_ = linear(cv, 30 * sd)
    assert far.shown == "q" and far.summary().head == "of q, not corrected"
    place = far.mean, far.sd
    assert_allclose([far.summary().columns[k] for k in ("mean", "sd")], place, rtol=0.01)
    assert_allclose(far.draws(4000)["z"].mean(0), far.mean, atol=0.1 * far.sd.max())
    with pytest.raises(ValueError, match="corrected=True: weights do not make the posterior"):
        far.draws(100, 0, corrected=True)
    for one in (off, far):
        assert np.array_equal(one.draws(50, 3, corrected=False)["z"], one.sample(50, 3))


@pytest.mark.parametrize("bad", ["k_hat", "effective", "ess", None])
def test_weights_are_used_where_all_three_numbers_allow_it(cv, bad):
    n = 150 if bad == "ess" else 4000
    w = np.ones(n)
    w[n // 20 if bad == "effective" else n // 2 :] = 0.0
    none = np.zeros((n, 1))
    lot = lots(cv).Lot(none, none, w, 0.8 if bad == "k_hat" else 0.6)
    assert_allclose([lot.ess, lot.effective], [w.sum(), w.mean()])
    assert lot.holds == (bad is None)
    assert not replace(lot, k_hat=np.nan).holds and replace(lot, exact=True).holds


def test_the_elbo(cv):
    """By quadrature; its error is its scatter; of switches by enumeration."""
    rng = np.random.default_rng
    X = rng(0).standard_normal((30, 2))
    model, q = cv.models.logistic_regression(X, np.sign(X[:, 0] + 0.5)), cv.families.Gaussian(2)
    w = q.start() + 0.1 * rng(1).standard_normal(q.D)
    value, error = cv.elbo(model, q, w, 4000, rng(0))
    assert abs(value - cv.exact.elbo(model, q, w)) < 4.5 * error < 1
    again = [cv.elbo(model, q, w, 40, rng(s))[0] for s in range(100)]
    assert 0.75 < np.std(again, ddof=1) / (error * np.sqrt(100)) < 1.35
    log_lik = lambda z, b: b[0] * (z[..., 0] - 2 * z[..., 1])
    prior, data = lambda z: -z[..., 0] * z[..., 1], np.array([0.5, 1.0, -0.2])
    model, q, w = cv.models.Model(log_lik, prior, data, 2), cv.families.Bernoulli(2), [0.4, -0.7]
    z, p = np.array([(a, b) for a in (0, 1) for b in (0, 1)]), special.expit(w)
    weight = np.prod(np.where(z == 1, p, 1 - p), -1)
    exact = weight @ (1.3 * (z[:, 0] - 2 * z[:, 1]) - z[:, 0] * z[:, 1] - np.log(weight))
    value, error = cv.elbo(model, q, w, 3000, rng(0))
    assert abs(value - exact) < 4.5 * error < 0.3


# What only the package itself is asked -------------------------------------------------------


def test_a_fit_answers_by_name():
    rng = np.random.default_rng(0)
    y = 3 + 2 * rng.standard_normal(30)
    log_lik = lambda p, b: -0.5 * ((b[0] - p.mu) / p.sigma) ** 2 - anp.log(p.sigma)
    flat = lambda p: -anp.log(p.sigma)  # Jeffreys: mu is t, sigma^2 inverse gamma
    named = {"mu": cvlib.real, "sigma": cvlib.positive}
    model = cvlib.models.Model(log_lik, flat, y, parameters=named)
    with warnings.catch_warnings(action="error"):  # its weights mend what q misses
        fit = cvlib.fit(model, progress=False)
    n, s2 = len(y), y.var(ddof=1)
    found = fit.expect(lambda p: np.stack([p.mu, p.sigma**2], -1), n=2000)
    truth = [y.mean(), s2 * (n - 1) / (n - 3)]
    assert (np.abs(found.estimate - truth) < 4 * found.se).all() and found.se.max() < 0.01
    assert found.k_hat < 0.5 and found.warnings == () == fit.warnings
    half = (n - 1) / 2  # sigma^2 is inverse gamma
    exact = {"mu": stats.t(n - 1, y.mean(), np.sqrt(s2 / n)).ppf,
             "sigma": lambda p: np.sqrt(stats.invgamma(half, scale=half * s2).ppf(p))}  # fmt: skip
    for name, law in exact.items():
        for p in (5, 50, 95):
            away = fit.summary()[f"{p} %"][name] - law(p / 100)
            assert abs(away) < 4 * fit.summary()[f"error of {p} %"][name] < 0.05
    log = 0.5 * np.log(2 * np.pi / n) - np.log(2)  # the integral over mu, and that over sigma
    log += special.gammaln((n - 1) / 2) - (n - 1) / 2 * np.log((n - 1) * s2 / 2)
    got = fit.evidence(2000)
    assert abs(got.estimate - log) < 4 * got.se < 0.05 and fit.elbo < log


def test_draws_by_name_go_back_to_z():
    """All constraints undone; a chain by name is answered as its z is."""
    declared = {"a": (2, 2), "s": cvlib.positive(2), "t": cvlib.simplex(3), "o": cvlib.ordered(3),
                "i": cvlib.interval(-1, 2)}  # fmt: skip
    flat = lambda p: -anp.sum(p.a**2, (-2, -1)) - anp.sum(p.s, -1)
    prior = lambda p: flat(p) + anp.sum(p.t**3, -1) - anp.sum(p.o**2, -1) - p.i**2
    model = cvlib.models.Model(lambda p, b: 0 * p.i * b[0], prior, np.zeros(1), parameters=declared)
    z = np.random.default_rng(3).standard_normal((4, 30, model.dim))
    p = model.named(z)
    assert_allclose(model.parameters.back(model.named(z[0])), z[0], atol=1e-12)
    score = np.stack([Density(model).slope(x)[1] for x in z])
    right = cvlib.expect(p.i, z, score, order=0)  # these are not draws of p
    found = cvlib.expect(lambda p: p.i, dict(p), model, order=0)
    assert_allclose([found.estimate, found.se], [right.estimate, right.se])
    at = _given(lambda p: p.i, dict(p), model, None, None, 0)
    assert_allclose(at.score, score.reshape(at.z.shape)[: len(at.z)])
    one = cvlib.quantile(lambda p: p.i, model.named(z[0]), model, probs=0.5, order=0)
    assert one.estimate.shape == (1,)
    with pytest.raises(ValueError, match="no 'o', and"):
        cvlib.expect(lambda p: p.i, {k: x for k, x in p.items() if k != "o"}, model)
    with pytest.raises(ValueError, match="all with one n"):
        cvlib.expect(lambda p: p.i, {**p, "i": p.i[0]}, model)


def test_what_to_arviz_lacks_is_said_with_an_extra_that_there_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ValueError, match=r"needs ArviZ: pip install '\.\[arviz\]' in the") as said:
        FIT.to_arviz(10)
    project = Path(__file__).parents[1] / "pyproject.toml"
    about = tomllib.loads(project.read_text("utf-8"))["project"]
    named = {*re.findall(r"\[(\w+)\]", str(said.value))}
    assert named == {"arviz"} and named <= about["optional-dependencies"].keys()


def test_what_an_answer_prints():
    one = own.Answer(np.float64(3.14159), np.float64(0.00123), 0.123, 2, 1000)
    assert repr(one) == "3.1416 ± 0.0012  (1000 draws, variates of order 2, k-hat 0.12)"
    two = own.Answer(np.array([1.0, 20.0]), np.array([0.5, 0.0]), np.nan, 1, 64, ("so so",))
    lines = ["(64 draws, variates of order 1)", "  [0] 1.00 ± 0.50", "  [1] 20 ± 0", "! so so"]
    assert repr(two).splitlines() == lines
    many = lambda k: repr(cvlib.expect(np.tile(Z, (1, k)), Z, -Z, order=0))
    assert "..." not in many(10) and "[19]" in many(10)
    assert "  ..." in many(11).splitlines() and "[20]" not in many(11)


Z = np.random.default_rng(0).standard_normal((50, 2))
NO_CALL = lambda z: pytest.fail("f was called")
Found, Q = answers(cvlib).Found, cvlib.families.Gaussian(2)
MODEL = cvlib.models.logistic_regression(Z, np.sign(Z[:, 0]))
FIT = Found(MODEL, Q, Q.start())
OUTSIDE = r"probs=\[0.5, 1\]: it must lie in \(0, 1\)"
BAD = {
    "other scores": (lambda: cvlib.expect(Z[:, 0], Z, Z[1:]),
                     r"scores likewise; got \(50, 2\) and \(49, 2\)"),
    "one long draw": (lambda: cvlib.expect(NO_CALL, Z[:, 0], -Z[:, 0]), r"must be \(n, d\) or"),
    "other values": (lambda: cvlib.expect(Z[1:], Z, -Z), r"shape \(49, 2\) at 50 draws: .*\(50, "),
    "draws in words": (lambda: cvlib.expect(NO_CALL, [["a", "b"]], -Z), "draws: .*no array of num"),
    "a name for f": (lambda: cvlib.expect("sigma", Z, -Z), "f: 'sigma' is .* lambda p: p.sigma"),
    "an f of words": (lambda: cvlib.expect(lambda z: ["a"] * 50, Z, -Z), "what f gives: .'a', 'a'"),
    "complex f": (lambda: cvlib.expect(lambda z: 1j * z, Z, -Z), "f gives: .* no array of num"),
    "dates for weights": (lambda: cvlib.expect(Z, Z, -Z, np.zeros(50, "M8[D]")), "weights: .*no a"),
    "words by name": (lambda: cvlib.expect(NO_CALL, {"z": "ab"}, MODEL), "draws of z: 'ab' is no"),
    "a mask, a model": (lambda: cvlib.expect(NO_CALL, np.ma.masked_greater(Z, 1), MODEL), "mask"),
    "one weight": (lambda: cvlib.expect(Z, Z, -Z, np.arange(50) == 3), "all 1 draws that weigh"),
    "draws of NaN": (lambda: cvlib.expect(Z[:, 0], np.where(Z > 1, np.nan, Z), -Z),
                     "coordinates z are not finite"),
    "scores of NaN": (lambda: cvlib.expect(Z[:, 0], Z, np.where(Z > 1, np.nan, Z)),
                      "scores are not finite"),
    "no weights": (lambda: cvlib.expect(Z, Z, -Z, np.zeros(50)), "all weights are zero"),
    "no draws": (lambda: cvlib.expect(Z[:0], Z[:0], -Z[:0]), "number of draws"),
    "no model": (lambda: Found(None, Q, FIT.w), "is no model"),
    "no family": (lambda: Found(MODEL, FIT.w, Q), "is no family"),
    "a seed in words": (lambda: FIT.expect(NO_CALL, 10, "one"),
                        "seed='one' must be a whole number"),
    "a fit's probs": (lambda: FIT.quantile(NO_CALL, probs=[0.5, 1]), OUTSIDE),
    "no probs": (lambda: FIT.quantile(NO_CALL, probs=[]),
                 r"probs=\[\]: give one probability or a list, such as \[0.05, 0.95\]"),
    "a table of probs": (lambda: FIT.quantile(NO_CALL, probs=[[0.1, 0.9]]),
                         r"probs=\[\[0.1, 0.9\]\]: give one probability or a list"),
    "a chain's probs": (lambda: cvlib.quantile(NO_CALL, Z, -Z, probs=[0.5, 1]), OUTSIDE),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_answered_is_refused(name):
    act, sentence = BAD[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        act()
