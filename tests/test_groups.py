"""Models with groups: integrals against quadrature and closed forms, answers against grids."""

import pickle
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats
from scipy.special import logsumexp
from test_kinds import arviz_of

import cvlib as cv
from cvlib.fitting import groups
from cvlib.fitting.table import Column

LOG_2PI = np.log(2 * np.pi)
GLOBALS = {"b": (), "slope": (), "tau": cv.positive}


def normal_effect(p):
    return -0.5 * (p.u / p.tau) ** 2 - anp.log(p.tau) - 0.5 * LOG_2PI


def prior(p):
    return -0.5 * (p.b**2 + p.slope**2) / 4 - 0.5 * p.tau**2


def bernoulli(p, batch):
    x, y = batch
    eta = p.b + p.slope * x + p.u
    return y * eta - anp.logaddexp(0, eta)


def poisson(p, batch):
    x, y = batch
    eta = p.b + p.slope * x + p.u
    return y * eta - anp.exp(eta)


def gaussian(p, batch):
    x, y = batch
    return -0.5 * (y - p.b - p.slope * x - p.u) ** 2 - 0.5 * LOG_2PI


def data(kind, sizes, seed=0, tau=1.0):
    """x, y and the label of each row, in random order."""
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x, u = rng.standard_normal(len(g)), tau * rng.standard_normal(len(sizes))
    eta = 0.3 + 0.5 * x + u[g]
    y = {
        bernoulli: (rng.random(len(g)) < 1 / (1 + np.exp(-eta))) * 1.0,
        poisson: rng.poisson(np.exp(eta)) * 1.0,
        gaussian: eta + rng.standard_normal(len(g)),
    }[kind]
    return x, y, g


def model(kind, x, y, g, effect=normal_effect, **more):
    return cv.models.Model(
        kind, prior, (x, y), parameters=GLOBALS, groups=g, effects={"u": ()}, log_effect=effect,
        **more,
    )  # fmt: skip


def by_quadrature(kind, x, y, g, z, limit=12):
    """The log marginal likelihood at z, group by group, by scipy's quadrature."""
    p, total = {"b": z[0], "slope": z[1], "tau": np.exp(z[2])}, 0.0
    for label in np.unique(g):
        own = (x[g == label], y[g == label])

        def log(u, own=own):
            rows = kind(cv.models.parameters.Named(p, u=np.asarray(u)[..., None]), own).sum(-1)
            return rows + normal_effect(cv.models.parameters.Named(p, u=u))

        grid = np.linspace(-limit * p["tau"], limit * p["tau"], 4001)
        heights = log(grid)
        inside, most = grid[heights > heights.max() - 40], heights.max()
        ends = inside[0] - 1e-3 * p["tau"], inside[-1] + 1e-3 * p["tau"]
        f = lambda u, log=log, most=most: np.exp(log(u) - most)
        top = [grid[heights.argmax()]]
        value = integrate.quad(f, *ends, points=top, epsabs=0, epsrel=1e-10, limit=200)[0]
        total += np.log(value) + most
    return total


Z = np.array([[0.1, 0.5, -0.2], [0.5, 0.2, 0.4], [0.2, -0.3, -2.0]])


@pytest.mark.parametrize("kind", [bernoulli, poisson])
def test_marginal_likelihood_and_slope_by_quadrature(kind):
    """Uneven groups, at three points; the slope by differences of the quadrature."""
    given = data(kind, [4, 1, 7, 2, 3])
    value, slope = model(kind, *given, nodes=25).totals(Z, 1)
    true = [by_quadrature(kind, *given, z) for z in Z]
    assert_allclose(value, true, atol=1e-6)
    few = model(kind, *given).totals(Z, 1)
    assert_allclose(few[0], true, atol=3e-4)
    assert_allclose(few[1], slope, atol=2e-3)
    for k, e in enumerate(1e-4 * np.eye(3)):
        ahead, back = (by_quadrature(kind, *given, Z[0] + s * e) for s in (1, -1))
        assert_allclose(slope[0, k], (ahead - back) / 2e-4, atol=1e-5)


def test_normal_rows_by_their_closed_form():
    """y ~ N(X b, I + tau^2 11') in every group: value, slope, curvature, and group by group."""
    x, y, g = data(gaussian, [5, 1, 3, 8], seed=1)
    m = model(gaussian, x, y, g)

    def closed(z):
        total = 0.0
        for label in range(4):
            r = y[g == label] - z[0] - z[1] * x[g == label]
            cov = np.eye(len(r)) + anp.exp(2 * z[2]) * np.ones((len(r), len(r)))
            quad = anp.dot(r, anp.linalg.solve(cov, r))
            total = total - 0.5 * (quad + anp.linalg.slogdet(cov)[1] + len(r) * LOG_2PI)
        return total

    from autograd import grad, hessian

    value, slope, curvature = m.totals(Z, 2)
    for k, z in enumerate(Z):
        assert_allclose(value[k], closed(z), rtol=1e-9)
        assert_allclose(slope[k], grad(closed)(z), rtol=1e-6, atol=1e-7)
        assert_allclose(curvature[k], hessian(closed)(z), rtol=1e-4, atol=1e-5)
    each = m.pointwise(Z)
    assert each.shape == (3, 4)
    assert_allclose(each.sum(-1), value)
    r = y[g == 1] - Z[0, 0] - Z[0, 1] * x[g == 1]
    alone = stats.norm(0, np.sqrt(1 + np.exp(2 * Z[0, 2]))).logpdf(r[0])
    assert_allclose(each[0, 1], alone, rtol=1e-9)


def two(p):
    """A random intercept and a random slope, with a correlation."""
    a, b = p.u[..., 0] / p.s, p.u[..., 1] / p.t
    rest = (b - p.r * a) / anp.sqrt(1 - p.r**2)
    return -0.5 * (a**2 + rest**2) - anp.log(p.s * p.t) - 0.5 * anp.log(1 - p.r**2) - LOG_2PI


TWO = {"b": (), "s": cv.positive, "t": cv.positive, "r": cv.interval(-1, 1)}


def two_lik(p, batch):
    x, y = batch
    return -0.5 * (y - p.b - p.u[..., 0] - p.u[..., 1] * x) ** 2 - 0.5 * LOG_2PI


def two_prior(p):
    return -0.5 * p.b**2 - p.s - p.t


def two_closed(x, y, z):
    """The closed form for one group, at z, and E u given y."""
    s, t, r = np.exp(z[1]), np.exp(z[2]), 2 / (1 + np.exp(-z[3])) - 1
    V, X = np.array([[s * s, r * s * t], [r * s * t, t * t]]), np.stack([np.ones_like(x), x], 1)
    cov = np.eye(len(x)) + X @ V @ X.T
    mean = V @ X.T @ np.linalg.solve(cov, y - z[0])
    left = V - V @ X.T @ np.linalg.solve(cov, X @ V)
    return stats.multivariate_normal(z[0] + 0 * y, cov).logpdf(y), mean, left


def test_intercept_and_slope_by_their_closed_form():
    x, y, g = data(gaussian, [5, 2, 3, 1, 4], seed=2)
    shared = dict(parameters=TWO, groups=g, log_effect=two)
    m = cv.models.Model(two_lik, two_prior, (x, y), effects={"u": 2}, **shared)
    Z = np.array([[0.2, 0.3, -0.4, 0.8], [0.0, -1.0, 0.5, -1.5]])
    true = [sum(two_closed(x[g == j], y[g == j], z)[0] for j in range(5)) for z in Z]
    value, slope = m.totals(Z, 1)
    assert_allclose(value, true, atol=1e-5)
    e = 1e-5 * np.eye(4)
    ahead, back = (m.totals(Z[0] + sign * e, 0)[0] for sign in (1, -1))
    assert_allclose(slope[0], (ahead - back) / 2e-5, atol=1e-4)
    named = lambda f: (
        lambda p, *rest: f(cv.models.parameters.Named(p, u=anp.stack([p.a, p.c], -1)), *rest)
    )
    shared["log_effect"] = named(two)
    by_name = cv.models.Model(
        named(two_lik), two_prior, (x, y), effects={"a": (), "c": ()}, **shared
    )
    assert_allclose(by_name.totals(Z, 0)[0], true, atol=1e-5)
    assert by_name.with_effects({}, np.array([[1.0], [2.0]])) == {"a": 1, "c": 2}


def bernoulli_two(p, batch):
    x, y = batch
    eta = p.b + p.u[..., 0] + p.u[..., 1] * x
    return y * eta - anp.logaddexp(0, eta)


def test_two_numbers_that_are_not_normal_by_a_fine_grid():
    x, y, g = data(bernoulli, [6, 2, 9], seed=3)
    m = cv.models.Model(
        bernoulli_two, two_prior, (x, y), parameters=TWO, groups=g, effects={"u": 2}, log_effect=two
    )
    z = np.array([0.2, 0.1, -0.3, 0.7])
    p = cv.models.parameters.Named(m.named(z), u=None)
    a = np.linspace(-9, 9, 721)
    p["u"] = np.stack(np.meshgrid(a, a, indexing="ij"), -1)
    true = 0.0
    for j in range(3):
        rows = sum(bernoulli_two(p, (x[i], y[i])) for i in np.flatnonzero(g == j))
        true += logsumexp(rows + two(p)) + 2 * np.log(a[1] - a[0])
    assert_allclose(m.totals(z, 0)[0], true, atol=1e-4)


def test_a_group_of_a_thousand_rows_beside_groups_of_one():
    given = data(bernoulli, [1000, 1, 1, 30], seed=4)
    value = model(bernoulli, *given, nodes=25).totals(Z[:2], 0)[0]
    assert_allclose(value, [by_quadrature(bernoulli, *given, z) for z in Z[:2]], rtol=1e-8)


@pytest.mark.parametrize("z", [(0.3, 0.5, -12.0), (0.3, 0.5, 1.0), (-4.0, 3.0, 0.5)])
def test_separated_zeros_and_ones_and_tau_near_zero(z):
    """Newton's steps arrive wherever they begin: other points beside this one change nothing."""
    x, _, g = data(bernoulli, [4, 4, 4, 1], seed=5)
    y = (g % 2) * 1.0
    m, z = model(bernoulli, x, y, g, nodes=15), np.array(z)
    value = m.totals(z, 0)[0]
    assert_allclose(value, by_quadrature(bernoulli, x, y, g, z), atol=1e-3)
    beside = np.stack([[5.0, -5.0, 3.0], [4.0, -5.0, 2.0], z])
    assert_allclose(m.totals(beside, 0)[0][2], value, atol=1e-6)
    counts, part = model(poisson, x, y, g), m.parts[0]
    here = counts.held(z[None], part).m
    for start in (-30.0, 30.0, 800.0):  # the last one overflows
        assert_allclose(counts.held(z[None], part, start).m, here, atol=1e-4)


def test_parts_and_blocks_change_nothing(monkeypatch):
    given = data(poisson, [3, 9, 1, 20, 4, 4, 2])
    whole = model(poisson, *given)
    monkeypatch.setattr(groups, "MANY", 8)
    monkeypatch.setattr(groups, "WORK", 20)
    parts = model(poisson, *given)
    assert len(whole.parts) == 1 < len(parts.parts)
    for one, other in zip(whole.totals(Z, 1), parts.totals(Z, 1)):
        assert_allclose(one, other, rtol=1e-7)
    assert_allclose(whole.pointwise(Z), parts.pointwise(Z), rtol=1e-6)


# Herds, and cases of animals at risk by period: Lesnoff et al. (2004), cbpp in R's lme4
CASES = (
    [[2, 3, 4, 0], [3, 1, 1], [8, 2, 0, 2], [2, 0, 2, 0], [5, 0, 0, 1], [3, 0, 0, 1], [8, 1, 3, 0]]
    + [[12], [2, 0, 0, 0], [1, 1, 0, 2], [0, 5, 3, 1], [2, 1, 0, 0], [1, 2, 0, 0], [11, 0, 0, 0]]
    + [[1, 1, 1, 0]]
)
ANIMALS = (
    [[14, 12, 9, 5], [22, 18, 21], [22, 16, 16, 20], [10, 10, 9, 6], [18, 25, 24, 4]]
    + [[17, 17, 18, 20], [16, 10, 9, 5], [34], [9, 6, 8, 6], [22, 22, 18, 22], [25, 27, 22, 22]]
    + [[10, 8, 6, 5], [21, 24, 19, 23], [19, 2, 3, 2], [19, 15, 15, 15]]
)


def herds():
    """The model of cbpp: log odds b, of later periods b + more, herds with sd tau."""
    herd = np.repeat(np.arange(15), [len(x) for x in CASES])
    period = np.concatenate([np.arange(len(x)) for x in CASES])
    y, n = np.concatenate(CASES) * 1.0, np.concatenate(ANIMALS) * 1.0
    const = special.gammaln(n + 1) - special.gammaln(y + 1) - special.gammaln(n - y + 1)

    def log_lik(p, batch):
        later, y, n, const = batch
        eta = p.b + anp.sum(p.more * later, -1) + p.u
        return const + y * eta - n * anp.logaddexp(0, eta)

    return cv.models.Model(
        log_lik, lambda p: 0 * p.b - anp.log(p.tau), (np.eye(4)[period][:, 1:], y, n, const),
        parameters={"b": (), "more": 3, "tau": cv.positive}, groups=herd, effects={"u": ()},
        log_effect=normal_effect,
    )  # fmt: skip


def test_laplace_of_cbpp_as_lme4_publishes_it():
    """glmer(cbind(incidence, size - incidence) ~ period + (1 | herd)): its estimates, by Laplace,
    with deviance 184.1; one node is Laplace. More nodes move it by a tenth of a nat or so.
    """
    m, z = herds(), np.array([-1.3983, -0.9919, -1.1282, -1.5797, np.log(0.6421)])
    m.nodes = 1
    value = m.totals(z, 0)[0]
    assert_allclose(-2 * value, 184.1, atol=0.06)
    near = z + np.concatenate([0.02 * np.eye(5), -0.02 * np.eye(5)])
    assert (m.totals(near, 0)[0] < value).all(), "it is no maximum"
    m.nodes = 25
    p = {"b": z[0], "more": z[1:4], "tau": 0.6421}
    u, true = np.linspace(-5, 5, 4001), 0.0
    for part in m.parts:
        for j in range(15):
            rows = [np.array(a)[part.row == j] for a in part.batch]
            named = cv.models.parameters.Named(p, u=u[:, None])
            log = m.of_row(named, tuple(rows)).sum(-1) + stats.norm(0, 0.6421).logpdf(u)
            true += logsumexp(log) + np.log(u[1] - u[0])
    assert_allclose(m.totals(z, 0)[0], true, atol=1e-6)


# Answers ------------------------------------------------------------------------------------------


def on_a_grid(y, g, label, sides=45):
    """E tau, sd of tau, E b, and the law of eta = b + u of one group on a grid of values."""
    b, log_tau = np.linspace(-2, 3, sides), np.linspace(-2.5, 2, sides)
    v = np.linspace(-11, 11, 801)
    ones = np.bincount(g, y).astype(int)
    rows = np.exp(np.arange(5)[:, None] * v - 4 * np.logaddexp(0, v))  # (5, V)
    tau = np.exp(log_tau)[:, None]
    effect = np.exp(-0.5 * ((v - b[:, None, None]) / tau) ** 2 - 0.5 * LOG_2PI) / tau
    mass = effect @ rows.T * (v[1] - v[0])  # (sides, sides, 5)
    heights = np.log(mass)[..., ones].sum(-1) - 0.5 * b[:, None] ** 2 / 4 - 0.5 * log_tau**2
    weight = np.exp(heights - heights.max())
    weight /= weight.sum()
    mean = (weight * np.exp(log_tau)).sum()
    sd = np.sqrt((weight * (np.exp(log_tau) - mean) ** 2).sum())
    law = np.tensordot(weight / mass[..., ones[label]], effect, 2) * rows[ones[label]]
    return mean, sd, weight.sum(1) @ b, law * (v[1] - v[0]), v


def intercept(p, batch):
    eta = p.b + p.u
    return batch[0] * eta - anp.logaddexp(0, eta)


def log_normal(p):
    return -0.5 * p.b**2 / 4 - 0.5 * anp.log(p.tau) ** 2 - anp.log(p.tau)


@pytest.fixture(scope="module")
def fitted():
    """A fit of zeros and ones with an intercept alone, labels are texts; some are all ones."""
    _, y, g = data(bernoulli, [4] * 30, seed=6, tau=1.2)
    names = np.array([f"store {k:02d}" for k in range(30)])[g]
    m = cv.models.Model(
        intercept, log_normal, y, groups=names,
        parameters={"b": (), "tau": cv.positive}, effects={"u": ()}, log_effect=normal_effect,
    )  # fmt: skip
    with warnings.catch_warnings(action="ignore"):
        return cv.fit(m, seconds=300, restarts=0, bend=False, progress=False), y, g


@pytest.fixture(scope="module")
def drawn(fitted):
    return fitted[0].draws(3000)


def test_globals_by_a_grid(fitted):
    fit, y, g = fitted
    mean, sd, *_ = on_a_grid(y, g, 0)
    answer = fit.expect(lambda p: p.tau)
    assert abs(answer.estimate - mean) < 4 * answer.se + 0.01 * sd
    assert_allclose(fit.summary()["sd"]["tau"], sd, rtol=0.03)


def odd(case):
    """Zeros and ones, and the group of each."""
    if case == "a group of many rows and one of one row":
        return np.append(np.arange(200) % 5 < 3, True) * 1.0, np.append(np.zeros(200, int), 1)
    g = np.repeat(np.arange(12), 4)
    if case == "separated":
        return (g % 2) * 1.0, g
    return np.tile([0.0, 1.0], 24), g  # groups vary less than coins do: tau is near zero


@pytest.mark.parametrize(
    "case", ["a group of many rows and one of one row", "separated", "tau near zero"]
)
def test_odd_groups_are_right_or_told(case):
    """E log tau by sums over a grid of b, log tau and u / tau."""
    y, g = odd(case)
    rows, ones = np.bincount(g), np.bincount(g, y)
    kinds, times = np.unique(np.stack([rows, ones]), axis=1, return_counts=True)
    b, log_tau = np.linspace(-8, 8, 65), np.linspace(-5, 5, 31)
    u = np.linspace(-8, 8, 1601)
    log_p = np.zeros((65, 31))
    for j, log in enumerate(log_tau):
        eta = b[:, None] + np.exp(log) * u  # (65, U)
        soft = np.logaddexp(0, eta)
        for row, one, count in zip(*kinds, times):
            each = one * eta - row * soft - 0.5 * u**2
            top = each.max(1)
            log_p[:, j] += count * (top + np.log(np.exp(each - top[:, None]).sum(1)))
    log_p += -0.5 * b[:, None] ** 2 / 4 - 0.5 * log_tau**2
    weight = np.exp(log_p - log_p.max()).sum(0)
    mean = weight @ log_tau / weight.sum()
    sd = np.sqrt(weight @ (log_tau - mean) ** 2 / weight.sum())
    m = cv.models.Model(
        intercept, log_normal, y, groups=g, parameters={"b": (), "tau": cv.positive},
        effects={"u": ()}, log_effect=normal_effect,
    )  # fmt: skip
    with warnings.catch_warnings(action="ignore"):
        fit = cv.fit(m, seconds=300, restarts=0, progress=False, bend=False)
    answer = fit.expect(lambda p: np.log(p.tau))
    right = abs(answer.estimate - mean) < 4 * answer.se + 1e-4 * sd
    assert right != any("nodes are too few" in says for says in fit.warnings)


def test_an_effect_by_a_grid(fitted, drawn):
    """Of a group of ones, and of its sum with b, by moments: mean, sd, quantiles; draws as well."""
    fit, y, g = fitted
    label = int(np.argmax(np.bincount(g, y)))
    *_, middle, law, v = on_a_grid(y, g, label)
    table, name = fit.effects("u"), f"store {label:02d}"
    probs, own = [0.05, 0.5, 0.95], drawn["u"][:, label]
    eta = drawn["b"] + own
    assert_allclose(eta.mean(), law @ v, atol=0.06)
    assert_allclose(np.quantile(eta, probs), np.interp(probs, np.cumsum(law), v), atol=0.12)
    mean = law @ v - middle  # E u = E eta - E b
    assert abs(table["mean"][name] - mean) < 4 * table["error of mean"][name] + 0.003
    assert_allclose(table["sd"][name], own.std(), rtol=0.05)
    for column, p in ("5 %", 0.05), ("50 %", 0.5), ("95 %", 0.95):
        assert_allclose(table[column][name], np.quantile(own, p), atol=0.1)
    assert "store 07" in repr(table)


def test_effects_of_normal_rows_by_their_closed_form():
    """Two numbers of each group, at given globals: moments, and draws with their covariance."""
    from cvlib.fitting import effects

    x, y, g = data(gaussian, [5, 2, 3], seed=2)
    m = cv.models.Model(
        two_lik, two_prior, (x, y), parameters=TWO, groups=g, effects={"u": 2}, log_effect=two
    )
    z = np.array([[0.2, 0.3, -0.4, 0.8]])
    drawn = effects.drawn(m, np.repeat(z, 20_000, 0))["u"]
    assert drawn.shape == (20_000, 3, 2)
    for label in range(3):
        _, mean, cov = two_closed(x[g == label], y[g == label], z[0])
        assert_allclose(drawn[:, label].mean(0), mean, atol=0.03)
        assert_allclose(np.cov(drawn[:, label].T), cov, atol=0.03)
        for j in range(2):
            held = m.held(z, m.parts[0])
            of = effects.law_of(j, effects.coefficients(m, z, held, m.parts[0]), held)
            exact, about = stats.norm(mean[j], np.sqrt(cov[j, j])), np.full(3, mean[j] + 0.3)
            assert_allclose(of.moments()[0][0, label], mean[j], atol=1e-6)
            assert_allclose(of.moments(mean[j])[1][0, label], cov[j, j], atol=1e-6)
            below, density = of.law(about)
            assert_allclose(below[0, label], exact.cdf(about[0]), atol=1e-6)
            assert_allclose(density[0, label], exact.pdf(about[0]), atol=1e-6)


def test_laws_of_two_numbers_that_are_not_normal_by_a_fine_grid():
    """Of groups of zeros and ones: distribution functions of both numbers, moments of draws."""
    from cvlib.fitting import effects

    x, y, g = data(bernoulli, [6, 2, 9], seed=3)
    y[g == 2] = 1.0
    m = cv.models.Model(
        bernoulli_two, two_prior, (x, y), parameters=TWO, groups=g, effects={"u": 2},
        log_effect=two, nodes=15,
    )  # fmt: skip
    z, a = np.array([[0.2, 0.7, 0.4, 1.2]]), np.linspace(-14, 14, 561)
    drawn, p = effects.drawn(m, np.repeat(z, 40_000, 0))["u"], m.named(z[0])
    p["u"] = np.stack(np.meshgrid(a, a, indexing="ij"), -1)
    c = effects.coefficients(m, z, held := m.held(z, m.parts[0]), m.parts[0])
    for j in range(3):
        rows = sum(bernoulli_two(p, (x[i], y[i])) for i in np.flatnonzero(g == j))
        share = np.exp(rows + two(p) - logsumexp(rows + two(p)))
        for k in range(2):
            margin, own = share.sum(1 - k), drawn[:, j, k]
            below = np.cumsum(margin) - margin / 2
            for at in range(200, 400, 25):
                law = effects.law_of(k, c, held).law(np.full(3, a[at]))
                assert_allclose(law[0][0, j], below[at], atol=5e-3)
            assert_allclose(own.mean(), margin @ a, atol=0.04)
            assert_allclose(np.mean(own < a[300]), below[300], atol=0.012)
        both = np.einsum("ij,i,j", share, a, a)
        assert_allclose(drawn[:, j].prod(-1).mean(), both, atol=0.1)
        assert_allclose((drawn[:, j] > 1).all(-1).mean(), share[a > 1][:, a > 1].sum(), atol=0.012)


def test_new_data_for_old_groups_and_new_ones(fitted, drawn):
    fit, y, g = fitted
    f = lambda p, batch, rng: p.u + 0 * batch[0]
    labels = ["store 03", "store 03", "a new one", "another"]
    u = fit.predict(f, 3000, data=np.zeros(4), groups=labels)
    assert u.shape == (3000, 4)
    assert (u[:, 0] == u[:, 1]).all()
    assert_allclose(u[:, 0], drawn["u"][:, 3], rtol=1e-5)
    second = np.sqrt((drawn["tau"] ** 2).mean())
    assert_allclose(u[:, 2:].std(0), second, rtol=0.06)
    assert abs(np.corrcoef(u[:, 2:].T)[0, 1]) < 0.06
    own = fit.predict(f, 10)
    assert_allclose(own, fit.draws(10)["u"][:, g], rtol=1e-5)
    with pytest.raises(ValueError, match="need groups="):
        fit.predict(f, 10, data=np.zeros(4))


def test_a_fit_keeps_its_effects_everywhere(fitted, tmp_path):
    fit, y, g = fitted
    fit.save(tmp_path / "fit")
    again = cv.Fit.load(tmp_path / "fit", fit.model)
    assert_allclose(again.draws(5)["u"], fit.draws(5)["u"], rtol=1e-5)
    assert fit.log_lik(5).shape == (5, 30)
    assert pickle.loads(pickle.dumps(fit.model.data))[0].shape == (30,)
    assert arviz_of(fit, 20)["posterior"]["u"].shape == (1, 20, 30)
    with pytest.raises(ValueError, match="no effect 'v'.*are u"):
        fit.effects("v")


def test_so_few_nodes_that_slopes_are_wrong_are_refused():
    with pytest.raises(ValueError, match="nodes=4: it must be at least 5"):
        model(bernoulli, np.zeros(4), np.ones(4), np.arange(4) % 2, nodes=4)


def test_too_few_nodes_are_told():
    """All rows of a group alike and a wide tau: twice the nodes move log p(y, z)."""
    x, _, g = data(bernoulli, [4] * 40, seed=7)
    m = model(bernoulli, 0 * x, (g % 2) * 1.0, g, nodes=5)
    z = np.column_stack([np.zeros(16), np.zeros(16), np.linspace(1.5, 2.5, 16)])
    assert "nodes=10" in m.doubts(z)[0]
    assert not m.doubts(z - [0, 0, 3.5])


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(effects={"u": 3}), "one real number, \\(\\), or two"),
        (dict(effects={"u": cv.positive}), "one real number"),
        (dict(effects={"tau": ()}), "'tau' is declared as a parameter and as an effect"),
        (dict(effects=None), "declares its globals and its effects by name"),
        (dict(groups=None), "need groups=, a label for each row"),
        (dict(groups=["a", "b"]), "2 labels for 12 rows"),
        (dict(groups=[*range(11), None]), "label of row 11 is missing"),
        (dict(groups=[*range(11), np.nan]), "label of row 11 is missing"),
        (dict(groups=[[1]] * 12), "a label is a number, a text or a tuple"),
        (dict(log_effect=None), "give the log density of an effect"),
        (dict(log_effect=lambda p: -0.5 * (p.u / p.tau) ** 2), "integrates to 2.6"),
        (dict(log_effect=lambda p: anp.sum(p.u)), "log_effect"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change, says):
    x, y, g = data(bernoulli, [4, 4, 4])
    given = dict(groups=g, effects={"u": ()}, log_effect=normal_effect) | change
    with pytest.raises(ValueError, match=says):
        cv.models.Model(bernoulli, prior, (x, y), parameters=GLOBALS, **given)


def test_the_recipe_takes_all_data_and_no_rows():
    x, y, g = data(bernoulli, [4, 4, 4])
    m, q = model(bernoulli, x, y, g), cv.families.Gaussian(3)
    rng = np.random.default_rng(0)
    whole = cv.draw(m, q, q.start(), M=5, rng=rng, subsample=False)
    some = cv.draw(m, q, q.start(), M=5, rng=rng)
    term = cv.terms(m, q)[0]
    assert cv.RP1(term)(whole).shape == (5, q.D)
    with pytest.raises(ValueError, match="no rows to subsample"):
        cv.RP1(term)(some)


def test_labels_of_any_kind_and_other_data_have_other_marks():
    x, y, g = data(bernoulli, [4, 4, 4])
    mixed = [("a", 1), 2, "three"]
    m = model(bernoulli, x, y, [mixed[k] for k in g])
    assert {*m.labels} == {*mixed}
    assert_allclose(m.totals(Z, 0)[0], model(bernoulli, x, y, g).totals(Z, 0)[0])
    assert m.checksum != model(bernoulli, x, y, g).checksum
    assert m.checksum != model(bernoulli, x, 1 - y, [mixed[k] for k in g]).checksum


def test_an_effect_is_found_by_its_label_and_by_the_text_of_it():
    found = Column({"0": 1.0, "2.5": 2.0})
    assert found[0] == found["0"] == 1 and found[2.5] == 2
    with pytest.raises(KeyError, match="no row 1: there are 0, 2.5"):
        found[1]
