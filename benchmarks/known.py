"""Forty-four models with known posteriors: is what a fit shows right, and does it say when not?

    python -m benchmarks.known                 counts: wrong and silent, right and warned of
    python -m benchmarks.known --only funnel   one model, entry by entry

Truths are sums of the density over a grid of the parameters, closed forms, or a grid over one scale
with everything else Gaussian: NumPy and SciPy, no line of cvlib. A third of the models have
10 to 100 unknowns, some of these a diagonal q. An answer is wrong if a mean is off by 0.1 sd, an sd
by 10 %, or a 5 or 95 % quantile by 0.2 sd; of laws with hardly any moments quantiles alone count.
The models stood here before the rules that they judge.
"""

import argparse
import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.scipy import stats as ad
from autograd.scipy.special import gammaln
from scipy import stats

import cvlib as cv

DRAWS = 40_000
LIMITS = np.array([0.1, 0.1, 0.2, 0.2])  # of mean, sd and the two quantiles, in sds
RNG = np.random.default_rng


class Case(NamedTuple):
    """A model, the truth {name: (4, *shape)}: mean, sd, 5 % and 95 %; and q, if not fit's own."""

    model: cv.models.Model
    truth: dict
    q: Any = None
    heavy: bool = False  # a law with hardly any moments: its quantiles alone are judged


def own(log_lik, log_prior, data, **parameters):
    return cv.models.Model(log_lik, log_prior, data, parameters=parameters)


def no_rows(log_prior, **parameters):
    """A model whose posterior is its prior."""
    first, declared = next(iter(parameters.items()))
    log_lik = lambda p, b: 0 * b[0] * (p[first] if declared is cv.real else p[first][..., 0])
    return own(log_lik, log_prior, np.zeros(1), **parameters)


def diagonal(case):
    return case._replace(q=cv.families.DiagonalGaussian(case.model.dim))


def closed(truth, log_lik, log_prior, data, heavy=False, **parameter):
    """One parameter whose truth has a closed form: a law of SciPy, or the four numbers."""
    truth = truth if isinstance(truth, np.ndarray) else of_law(truth)
    return Case(own(log_lik, log_prior, data, **parameter), {min(parameter): truth}, heavy=heavy)


def alike(law, log, n):
    """n independent numbers, all of one law of SciPy with this log density; no data."""
    return Case(no_rows(lambda p: anp.sum(log(p.x), -1), x=n), {"x": of_law(law, (n,))})


# Truths -------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """Points of a parameter, what each stands for, and what kind of number it is."""

    x: np.ndarray
    each: np.ndarray
    kind: Any = cv.real


def even(low, high, n=2001, kind=cv.real):
    """Points on a line."""
    x = np.linspace(low, high, n)
    return Axis(x, np.full(n, x[1] - x[0]), kind)


def scale(low, high, n=2001):
    """Points on a logarithmic line from e^low to e^high."""
    t, dt, _ = even(low, high, n)
    return Axis(np.exp(t), dt * np.exp(t), cv.positive)


def wide(reach, n, middle=0.0):
    """Points that are dense in the middle and go far: sinh of a line from -reach to reach."""
    x = middle + np.sinh(np.linspace(-reach, reach, n))
    return Axis(x, np.gradient(x))


def marginal(x, p):
    """The four numbers of a law with masses p at sorted points x."""
    p, mean = p / p.sum(), x @ p / p.sum()
    middle = np.cumsum(p) - p / 2
    return np.array([mean, np.sqrt((x - mean) ** 2 @ p), *np.interp([0.05, 0.95], middle, x)])


def on_a_grid(log_p, **axes):
    """Truth of every parameter from log p at all points of a grid."""
    points = np.meshgrid(*(axis.x for axis in axes.values()), indexing="ij")
    log = log_p(*points)
    p = np.exp(log - log.max())
    for k, axis in enumerate(axes.values()):
        p = p * np.expand_dims(axis.each, [*range(k), *range(k + 1, len(axes))])
    sums = [p.sum(tuple(j for j in range(len(axes)) if j != k)) for k in range(len(axes))]
    return {name: marginal(axis.x, s) for (name, axis), s in zip(axes.items(), sums)}


def gridded(log_lik, log_prior, data, heavy=False, **axes):
    """A model of one or two unknowns, and its truth: the same density, summed row by row."""

    def log_p(*points):
        p = SimpleNamespace(**dict(zip(axes, points)))
        return log_prior(p) + sum(log_lik(p, row) for row in zip(*data))

    model = own(log_lik, log_prior, data, **{name: axis.kind for name, axis in axes.items()})
    return Case(model, on_a_grid(log_p, **axes), heavy=heavy)


def prior_alone(log_prior, **axes):
    """The same without data."""
    log_p = lambda *points: log_prior(SimpleNamespace(**dict(zip(axes, points))))
    model = no_rows(log_prior, **{name: axis.kind for name, axis in axes.items()})
    return Case(model, on_a_grid(log_p, **axes))


def of_law(law, shape=()):
    """The four numbers of a SciPy law, or of many at once."""
    found = np.array([law.mean(), law.std(), law.ppf(0.05), law.ppf(0.95)])
    return np.broadcast_to(found.reshape(4, *np.ones(len(shape), int)), (4, *shape))


def of_normals(share, mean, sd):
    """The four numbers of mixtures of normals: shares (K,), means and sds (K, d)."""
    found = []
    for m, s in zip(mean.T, sd.T):
        x = np.linspace((m - 7 * s).min(), (m + 7 * s).max(), 2001)
        found.append(marginal(x, share @ stats.norm.pdf(x, m[:, None], s[:, None])))
    return np.transpose(found)


# One or two unknowns ------------------------------------------------------------------------------


def rows(n, mean=1.0, sd=1.0, seed=0):
    return RNG(seed).normal(mean, sd, n)


def normal_rows(y, log_prior, heavy=False, **axes):
    """y ~ N(mu, sigma)."""
    log_lik = lambda p, b: ad.norm.logpdf(b[0], p.mu, p.sigma)
    return gridded(log_lik, log_prior, (y,), heavy, **axes)


def logistic(n, slope, sd, seed, low, high):
    r = RNG(seed)
    x = r.standard_normal(n)
    y = np.where(r.random(n) < 1 / (1 + np.exp(-slope * x)), 1.0, -1.0)
    return line_of_signs(x, y, sd, low, high)


def line_of_signs(x, y, sd, low, high, n=601):
    """Logistic regression on one column, with an intercept."""
    log_lik = lambda p, batch: -anp.logaddexp(0, -batch[1] * (p.a + p.b * batch[0]))
    prior = lambda p: -0.5 * (p.a**2 + p.b**2) / sd**2
    return gridded(log_lik, prior, (x, y), a=even(low, high, n), b=even(low, high, n))


def counts(y, a, b):
    log_lik = lambda p, batch: batch[0] * anp.log(p.rate) - p.rate
    prior = lambda p: (a - 1) * anp.log(p.rate) - b * p.rate
    law = stats.gamma(a + np.sum(y), scale=1 / (b + len(y)))
    return closed(law, log_lik, prior, np.asarray(y, float), rate=cv.positive)


def shares(successes, n, a, b):
    y = np.r_[np.ones(successes), np.zeros(n - successes)]
    log_lik = lambda p, b: b[0] * anp.log(p.share) + (1 - b[0]) * anp.log1p(-p.share)
    prior = lambda p: (a - 1) * anp.log(p.share) + (b - 1) * anp.log1p(-p.share)
    law = stats.beta(a + successes, b + n - successes)
    return closed(law, log_lik, prior, y, share=cv.interval(0, 1))


def a_frequency():
    t = np.linspace(0, 10, 40)
    y = np.sin(2 * t) + 0.5 * RNG(0).standard_normal(40)
    log_lik = lambda p, b: -2 * (b[1] - anp.sin(p.w * b[0])) ** 2
    return gridded(log_lik, lambda p: -0.5 * (p.w - 1.5) ** 2, (t, y), w=even(-5, 8, 100_001))


def an_enzyme():
    x, v = np.array([0.2, 0.5, 1.0, 1.5, 2.0]), np.array([0.247, 0.609, 1.123, 1.282, 1.418])
    log_lik = lambda p, b: -0.5 * ((b[1] - p.V * b[0] / (p.K + b[0])) / 0.15) ** 2
    prior = lambda p: -(anp.log(p.V) ** 2 + anp.log(p.K) ** 2) / 8 - anp.log(p.V) - anp.log(p.K)
    return gridded(log_lik, prior, (x, v), V=scale(-2, 9, 1501), K=scale(-4, 10, 1501))


def a_correlation():
    x, y = RNG(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 20).T

    def log_lik(p, b):
        squares = b[0] ** 2 + b[1] ** 2 - 2 * p.r * b[0] * b[1]
        return -0.5 * anp.log(1 - p.r**2) - squares / (2 * (1 - p.r**2))

    axis = even(-1 + 1e-6, 1 - 1e-6, 20_001, cv.interval(-1, 1))
    return gridded(log_lik, lambda p: 0 * p.r, (x, y), r=axis)


def trials_of_unknown_number():
    """Successes among 27 trials or more, a number that is not known."""
    y = np.array([16.0, 18, 22, 25, 27])

    def log_lik(p, b):
        n = 27 + p.more
        choose = gammaln(n + 1) - gammaln(b[0] + 1) - gammaln(n - b[0] + 1)
        return choose + b[0] * anp.log(p.share) + (n - b[0]) * anp.log1p(-p.share)

    prior = lambda p: -anp.log(27 + p.more) - p.more / 500
    share = even(1e-4, 1 - 1e-4, 1201, cv.interval(0, 1))
    return gridded(log_lik, prior, (y,), more=scale(-6, 9, 1201), share=share)


def a_skewed_pair():
    """Logs of two gamma variables, one skewed, one not."""
    laws = [stats.loggamma(0.5), stats.loggamma(20.0)]
    log = lambda p: 0.5 * p.a - anp.exp(p.a) + 20 * p.b - anp.exp(p.b)
    return Case(no_rows(log, a=cv.real, b=cv.real), dict(zip("ab", map(of_law, laws))))


def a_banana():
    return prior_alone(BANANA, a=even(-9, 9, 1201), b=even(-3, 60, 3001))


BANANA = lambda p: -0.5 * (p.a / 1.5) ** 2 - 2 * (p.b - p.a**2) ** 2
NOTHING = lambda p: 0 * p.x
APART, SIGNS = np.array([-2.0, -1, -0.5, 0.5, 1, 2]), np.array([-2.0, -1, 1, 2])
TIMES, SEEN = np.array([0.3, 1.1, 2.0, 0.7, 4.0, 4.0]), np.array([1.0, 1, 1, 1, 0, 0])
BROKE = stats.weibull_min(1.7, scale=2.0).rvs(25, random_state=RNG(0))
GAMMA = stats.gamma(2.0, scale=0.5).rvs(30, random_state=RNG(0))
MODELS: dict[str, Any] = {
    "a normal mean": lambda: closed(
        stats.norm(rows(20).sum() / 20.01, 20.01**-0.5),
        lambda p, b: ad.norm.logpdf(b[0], p.mu, 1.0), lambda p: ad.norm.logpdf(p.mu, 0, 10.0),
        rows(20), mu=cv.real),
    "sixty normal rows": lambda: normal_rows(
        rows(60, 3.0, 2.0), lambda p: -(p.mu**2) / 200 - p.sigma / 10,
        mu=even(1.5, 4.5, 401), sigma=scale(-0.1, 1.5, 401)),
    "two hundred signs": lambda: logistic(200, 1.0, 3.0, 0, -2, 4),
    "twelve signs": lambda: logistic(12, 1.0, 3.0, 1, -14, 14),
    "separated signs": lambda: line_of_signs(APART, np.sign(APART), 10, -40, 60),
    "separated signs with a cauchy prior": lambda: gridded(
        lambda p, batch: -anp.logaddexp(0, -anp.sign(batch[0]) * p.b * batch[0]),
        lambda p: -anp.log(1 + (p.b / 2.5) ** 2), (SIGNS,), heavy=True, b=wide(12, 200_001)),
    "no count at all": lambda: counts([0], 0.5, 0.1),
    "fifty counts of mean three": lambda: counts(RNG(0).poisson(3.0, 50), 1.0, 1.0),
    "three of ten": lambda: shares(3, 10, 1.0, 1.0),
    "none of five": lambda: shares(0, 5, 0.5, 0.5),
    "censored times": lambda: closed(
        stats.gamma(2 + SEEN.sum(), scale=1 / (1 + TIMES.sum())),
        lambda p, b: b[1] * anp.log(p.rate) - p.rate * b[0],
        lambda p: anp.log(p.rate) - p.rate, (TIMES, SEEN), rate=cv.positive),
    "a student posterior": lambda: closed(
        stats.t(3, 1.0), lambda p, b: -2 * anp.log(1 + (p.x - b[0]) ** 2 / 3), NOTHING,
        np.ones(1), heavy=True, x=cv.real),
    "a cauchy location": lambda: gridded(
        lambda p, b: -anp.log(1 + (b[0] - p.m) ** 2), lambda p: -(p.m**2) / 200,
        (np.array([-1.2, 0.1, 0.4, 0.9, 6.0]),), m=even(-40, 40, 40_001)),
    "two places for one mean": lambda: gridded(
        lambda p, b: anp.logaddexp(-0.5 * (b[0] - p.m) ** 2, -0.5 * (b[0] + p.m) ** 2),
        lambda p: -(p.m**2) / 50, (np.array([-4.0, -3.8, 3.9, 4.1]),), m=even(-8, 8, 8001)),
    "a frequency": a_frequency,
    "a product of signs": lambda: gridded(
        lambda p, batch: -0.5 * (batch[0] - p.a * p.b) ** 2, lambda p: -0.5 * (p.a**2 + p.b**2),
        (rows(30, 2.0, 1.0),), a=even(-6, 6, 801), b=even(-6, 6, 801)),
    "an enzyme": an_enzyme,
    "a banana": a_banana,
    "a funnel": lambda: prior_alone(
        lambda p: -0.5 * (p.v / 1.5) ** 2 - p.v / 2 - 0.5 * p.x**2 * anp.exp(-p.v),
        v=even(-7, 7, 701), x=wide(6, 4001)),
    "weibull times": lambda: gridded(
        lambda p, b: anp.log(p.k / p.s) + (p.k - 1) * anp.log(b[0] / p.s) - (b[0] / p.s) ** p.k,
        lambda p: -p.k - p.s, (BROKE,), k=scale(-1, 1.8, 401), s=scale(-0.5, 2, 401)),
    "gamma rows": lambda: gridded(
        lambda p, batch: ad.gamma.logpdf(batch[0] * p.b, p.a) + anp.log(p.b),
        lambda p: -p.a - p.b / 2, (GAMMA,), a=scale(-1, 2.5, 501), b=scale(-1, 3.5, 501)),
    "a correlation": a_correlation,
    "a kink": lambda: gridded(
        lambda p, b: -0.5 * (b[0] - p.m) ** 2, lambda p: -2 * anp.abs(p.m), (np.array([0.5]),),
        m=even(-6, 6, 12_001)),
    "three rows and hardly a prior": lambda: normal_rows(
        np.array([1.0, 1.3, 2.1]), lambda p: -(p.mu**2) / 2e4 - p.sigma / 100, heavy=True,
        mu=wide(7, 2001, 1.4), sigma=scale(-4, 7, 1001)),
    "trials of unknown number": trials_of_unknown_number,
    "a heavy scale": lambda: gridded(  # of one normal row about zero, with a half-Cauchy prior
        lambda p, b: -anp.log(p.s) - 0.5 * (b[0] / p.s) ** 2, lambda p: -anp.log(1 + p.s**2 / 4),
        (np.ones(1),), heavy=True, s=scale(-6, 14, 100_001)),
    "a light tail": lambda: prior_alone(lambda p: -(p.x**4), x=even(-4, 4, 8001)),
    "a skewed pair": a_skewed_pair,
}  # fmt: skip


# Ten to a hundred unknowns ------------------------------------------------------------------------


def regression(n, d, rho=0.0, seed=0):
    """Rows with noise of sd 1, coefficients N(0, 1): the posterior is Gaussian."""
    r = RNG(seed)
    X = r.standard_normal((n, d)) * np.sqrt(1 - rho) + np.sqrt(rho) * r.standard_normal((n, 1))
    y = X @ r.standard_normal(d) + r.standard_normal(n)
    cov = np.linalg.inv(X.T @ X + np.eye(d))
    mean, sd = cov @ X.T @ y, np.sqrt(np.diag(cov))
    log_lik = lambda p, b: -0.5 * (b[1] - anp.sum(b[0] * p.beta, -1)) ** 2
    prior = lambda p: -0.5 * anp.sum(p.beta**2, -1)
    truth = {"beta": of_normals(np.ones(1), mean[None], sd[None])}
    return Case(own(log_lik, prior, (X, y), beta=d), truth)


def normal_laws(log, sd):
    """Of mean zero; q is diagonal."""
    truth = {"x": of_normals(np.ones(1), 0 * sd[None], sd[None])}
    return diagonal(Case(no_rows(log, x=len(sd)), truth))


def sixty_coefficients_apart():
    sd = np.linspace(0.5, 3, 60)
    return normal_laws(lambda p: -0.5 * anp.sum((p.x / sd) ** 2, -1), sd)


def a_walk_of_a_hundred():
    """x_k ~ N(0.9 x_(k-1), 1)."""
    moves = lambda x: anp.sum((x[..., 1:] - 0.9 * x[..., :-1]) ** 2, -1)
    log = lambda p: -0.5 * (p.x[..., 0] ** 2 + moves(p.x))
    A = np.eye(100) - 0.9 * np.eye(100, k=-1)
    return normal_laws(log, np.sqrt(np.diag(np.linalg.inv(A.T @ A))))


def thirty_rates():
    y = RNG(0).poisson(RNG(1).gamma(1.0, 3.0, 30)).astype(float)
    log_lik = lambda p, b: b[0] * anp.log(cv.pick(p.rate, b[1])) - cv.pick(p.rate, b[1])
    prior = lambda p: -0.5 * anp.sum(p.rate, -1)
    truth = np.transpose([of_law(stats.gamma(1 + k, scale=1 / 1.5)) for k in y])
    return closed(truth, log_lik, prior, (y, np.arange(30)), rate=cv.positive(30))


def forty_shares():
    k = RNG(0).binomial(8, RNG(1).beta(1, 2, 40)).astype(float)

    def log_lik(p, b):
        share = cv.pick(p.share, b[1])
        return b[0] * anp.log(share) + (8 - b[0]) * anp.log1p(-share)

    nothing = lambda p: 0 * anp.sum(p.share, -1)
    truth = np.transpose([of_law(stats.beta(1 + s, 9 - s)) for s in k])
    return closed(truth, log_lik, nothing, (k, np.arange(40)), share=cv.interval(0, 1)(40))


def groups(y, s, centred):
    """y_j ~ N(theta_j, s_j), theta_j ~ N(mu, tau), mu ~ N(0, 5), tau half-normal(5).

    Given tau all else is Gaussian; a grid over tau does the rest.
    """
    J, parts = len(y), []
    tau, each, _ = scale(-6, 4, 301)
    for t in tau:
        v = s**2 + t**2
        precision = 1 / 25 + (1 / v).sum()
        mu, var = (y / v).sum() / precision, 1 / precision
        pull = t**2 / v
        theta = mu + pull * (y - mu)
        theta_var = pull * s**2 + (1 - pull) ** 2 * var
        log = -0.5 * (np.log(v).sum() + (y**2 / v).sum() - mu**2 * precision - np.log(var))
        parts.append((log - 0.5 * (t / 5) ** 2, mu, var, theta, theta_var))
    log, mu, var, theta, theta_var = map(np.array, zip(*parts))
    p = np.exp(log - log.max()) * each
    p = p / p.sum()
    truth = {"mu": of_normals(p, mu[:, None], np.sqrt(var)[:, None])[:, 0], "tau": marginal(tau, p)}
    effects = of_normals(p, theta, np.sqrt(theta_var))

    def log_lik(q, b):
        e = cv.pick(q.e, b[2])
        return -0.5 * ((b[0] - (e if centred else q.mu + q.tau * e)) / b[1]) ** 2

    def prior(q):
        away = (q.e - q.mu[..., None]) / q.tau[..., None] if centred else q.e
        width = J * anp.log(q.tau) if centred else 0.0
        return -0.5 * anp.sum(away**2, -1) - width - 0.5 * (q.mu / 5) ** 2 - 0.5 * (q.tau / 5) ** 2

    model = own(log_lik, prior, (y, s, np.arange(J)), mu=cv.real, tau=cv.positive, e=J)
    return Case(model, truth | ({"e": effects} if centred else {}))


SCHOOLS = np.array([[28.0, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]])


def two_modes(share, apart, d=10):
    """A mixture of two normals, `apart` sds from each other along every coordinate's share."""
    shift = apart / np.sqrt(d) * np.ones(d)
    both = (share, 0.0), (1 - share, shift)
    logs = lambda x: [np.log(w) - 0.5 * anp.sum((x - m) ** 2, -1) for w, m in both]
    truth = of_normals(np.array([share, 1 - share]), np.stack([0 * shift, shift]), np.ones((2, d)))
    return Case(no_rows(lambda p: anp.logaddexp(*logs(p.x)), x=d), {"x": truth})


def twenty_coefficients_and_a_scale():
    """A conjugate prior: beta given sigma^2 is N(0, sigma^2), sigma^2 inverse gamma(2, 2)."""
    r = RNG(5)
    X = r.standard_normal((80, 20))
    y = X @ r.standard_normal(20) + 0.7 * r.standard_normal(80)
    P = X.T @ X + np.eye(20)
    mean, a = np.linalg.solve(P, X.T @ y), 2 + 40
    b = 2 + (y @ y - mean @ P @ mean) / 2
    sd = np.sqrt(b / a * np.diag(np.linalg.inv(P)))
    beta = np.transpose([of_law(stats.t(2 * a, m, s)) for m, s in zip(mean, sd)])
    away = lambda p, batch: batch[1] - anp.sum(batch[0] * p.beta, -1)
    log_lik = lambda p, batch: -0.5 * away(p, batch) ** 2 / p.v - anp.log(p.v) / 2
    prior = lambda p: -0.5 * anp.sum(p.beta**2, -1) / p.v - (10 + 3) * anp.log(p.v) - 2 / p.v
    model = own(log_lik, prior, (X, y), beta=20, v=cv.positive)
    return Case(model, {"beta": beta, "v": of_law(stats.invgamma(a, scale=b))})


def five_bananas():
    truth = {k: np.repeat(x[:, None], 5, 1) for k, x in a_banana().truth.items()}
    return Case(no_rows(lambda p: anp.sum(BANANA(p), -1), a=5, b=5), truth)


MODELS |= {
    "sixty coefficients apart and a diagonal q": sixty_coefficients_apart,
    "a walk of a hundred and a diagonal q": a_walk_of_a_hundred,
    "thirty rates": thirty_rates,
    "forty shares": forty_shares,
    "twenty student laws": lambda: alike(stats.t(5), lambda x: -3 * anp.log(1 + x**2 / 5), 20),
    "fifteen skewed laws": lambda: alike(stats.loggamma(2.0), lambda x: 2 * x - anp.exp(x), 15),
    "ten coefficients": lambda: regression(60, 10),
    "fifty coefficients": lambda: regression(200, 50),
    "fifty coefficients that lean and a diagonal q": lambda: diagonal(regression(200, 50, 0.5)),
    "eight schools": lambda: groups(*SCHOOLS, centred=False),
    "ten groups centred": lambda: groups(RNG(3).normal(2, 3, 10), np.ones(10), centred=True),
    "thirty groups": lambda: groups(RNG(4).normal(1, 1.25**0.5, 30), np.ones(30), centred=False),
    "two modes alike": lambda: two_modes(0.5, 8.0),
    "a second mode of a tenth": lambda: two_modes(0.9, 8.0),
    "twenty coefficients and a scale": twenty_coefficients_and_a_scale,
    "five bananas": five_bananas,
}


# The judge ----------------------------------------------------------------------------------------


def off(truth, shown, heavy):
    """How far what is shown of a parameter is from its truth, in units of the limits, (4, n)."""
    mean, sd, low, high = truth.reshape(4, -1)
    sd = (high - low) / 3.29 if heavy else sd  # that of a normal law with these quantiles
    moments = (shown[0] - mean) / sd, shown[1] / sd - 1
    tails = (shown[2:] - [low, high]) / sd
    return np.abs([*(0 * x if heavy else x for x in moments), *tails]) / LIMITS[:, None]


def judged(make, seed=0):
    """How far the summary of a fit, and many of its draws, are from the truth, and the fit."""
    case = make()
    with warnings.catch_warnings(action="ignore"):
        fit = cv.fit(case.model, case.q, seed=seed, progress=False)
        table, draws = fit.summary(), fit.draws(DRAWS, seed=1)
    rows = np.array([table.rows, *(table.columns[k] for k in ("mean", "sd", "5 %", "95 %"))], "O")
    found = {}
    for k, true in case.truth.items():
        own = [row.split("[")[0] == k for row in table.rows]
        x = draws[k].reshape(DRAWS, -1)
        drawn = np.array([x.mean(0), x.std(0), *np.quantile(x, [0.05, 0.95], axis=0)])
        found[k] = off(true, rows[1:, own].astype(float), case.heavy)
        found[f"draws of {k}"] = off(true, drawn, case.heavy)
    return found, fit


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", help="these models, entry by entry")
    parser.add_argument("--seed", type=int, default=0, help="of the fits (0)")
    options = parser.parse_args()
    counts_: dict[str, int] = {}
    for name in options.only or MODELS:
        each, fit = judged(MODELS[name], options.seed)
        worst = max(np.max(x) for x in each.values())
        kind = f"{'wrong' if not worst < 1 else 'right'} and {'told' if fit.warnings else 'silent'}"
        counts_[kind] = counts_.get(kind, 0) + 1
        kept = f"{fit.shown:9} relative ESS {fit.effective:.2f}, k-hat {fit.k_hat:5.2f}"
        print(f"{name:48} {worst:9.2f}  {kind:18} {kept}", flush=True)
        if options.only:
            print(
                *(f"  {k}: {x.round(2).tolist()}" for k, x in each.items()), *fit.warnings, sep="\n"
            )
    print(counts_)


if __name__ == "__main__":
    main()
