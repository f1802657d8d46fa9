"""Forty-four models with known posteriors: is what a fit shows right, and does it say when not?

    python -m benchmarks.known                 counts: wrong and silent, right and warned of
    python -m benchmarks.known --only funnel   one model, entry by entry

Truths come from quadrature on a grid of the parameters, from closed forms, or from a grid over one
scale with everything else Gaussian: NumPy and SciPy, no line of cvlib. A third of the models have
10 to 100 unknowns, some of these a diagonal q. An answer is wrong if a mean is off by 0.1 sd, an sd
by 10 %, or a 5 or 95 % quantile by 0.2 sd; of laws with hardly any moments quantiles alone count.
The models stood here before the rules that they judge.
"""

import argparse
import warnings
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.scipy import stats as ad
from scipy import stats

import cvlib as cv

MODELS: dict[str, Any] = {}
DRAWS = 40_000
LIMITS = np.array([0.1, 0.1, 0.2, 0.2])  # of mean, sd and the two quantiles, in sds
RNG = np.random.default_rng


class Case(NamedTuple):
    """A model, the truth {name: (4, *shape)}: mean, sd, 5 % and 95 %; and q, if not fit's own."""

    model: cv.models.Model
    truth: dict
    q: Any = None
    heavy: bool = False  # a law with hardly any moments: its quantiles alone are judged


def known(make):
    """Keeps a function that makes a case, under its name in words."""
    MODELS[make.__name__.replace("_", " ")] = make
    return make


def own(log_lik, log_prior, data, **parameters):
    return cv.models.Model(log_lik, log_prior, data, parameters=parameters)


def diagonal(case):
    return case._replace(q=cv.families.DiagonalGaussian(case.model.dim))


# Truths -------------------------------------------------------------------------------------------


def even(low, high, n=2001):
    """Points on a line, and what each stands for."""
    x = np.linspace(low, high, n)
    return x, np.full(n, x[1] - x[0])


def scale(low, high, n=2001):
    """Points on a logarithmic line from e^low to e^high."""
    t, dt = even(low, high, n)
    return np.exp(t), dt * np.exp(t)


def marginal(x, p):
    """The four numbers of a law with masses p at sorted points x."""
    p, mean = p / p.sum(), x @ p / p.sum()
    middle = np.cumsum(p) - p / 2
    return np.array([mean, np.sqrt((x - mean) ** 2 @ p), *np.interp([0.05, 0.95], middle, x)])


def on_a_grid(log_p, **axes):
    """Truth of every parameter from log p at all points of a grid."""
    points = np.meshgrid(*(x for x, _ in axes.values()), indexing="ij")
    log = log_p(*points)
    p = np.exp(log - log.max())
    for k, (_, each) in enumerate(axes.values()):
        p = p * np.expand_dims(each, [*range(k), *range(k + 1, len(axes))])
    sums = [p.sum(tuple(j for j in range(len(axes)) if j != k)) for k in range(len(axes))]
    return {name: marginal(x, s) for (name, (x, _)), s in zip(axes.items(), sums)}


def of_law(law, shape=()):
    """The four numbers of a SciPy law, or of many at once."""
    found = np.array([law.mean(), law.std(), law.ppf(0.05), law.ppf(0.95)])
    return (
        np.broadcast_to(found.reshape(4, *np.ones(len(shape), int)), (4, *shape))
        if shape
        else found
    )


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


@known
def a_normal_mean():
    y, law = rows(20), stats.norm(rows(20).sum() / 20.01, 20.01**-0.5)
    log_lik = lambda p, b: ad.norm.logpdf(b[0], p.mu, 1.0)
    return Case(
        own(log_lik, lambda p: ad.norm.logpdf(p.mu, 0, 10.0), y, mu=cv.real), {"mu": of_law(law)}
    )


@known
def sixty_normal_rows():
    y = rows(60, 3.0, 2.0)
    log_p = lambda m, s: stats.norm.logpdf(y[:, None, None], m, s).sum(0) - m**2 / 200 - s / 10
    truth = on_a_grid(log_p, mu=even(1.5, 4.5, 401), sigma=scale(-0.1, 1.5, 401))
    log_lik = lambda p, b: ad.norm.logpdf(b[0], p.mu, p.sigma)
    prior = lambda p: -(p.mu**2) / 200 - p.sigma / 10
    return Case(own(log_lik, prior, y, mu=cv.real, sigma=cv.positive), truth)


def logistic(n, slope, sd, seed, low, high):
    r = RNG(seed)
    x = r.standard_normal(n)
    y = np.where(r.random(n) < 1 / (1 + np.exp(-slope * x)), 1.0, -1.0)
    return line_of_signs(x, y, lambda b: -0.5 * (b / sd) ** 2, low, high)


def line_of_signs(x, y, log_prior, low, high, n=601):
    """Logistic regression on one column, with an intercept."""

    def log_p(a, b):
        eta = y * (a[..., None] + b[..., None] * x)
        return -np.logaddexp(0, -eta).sum(-1) + log_prior(a) + log_prior(b)

    truth = on_a_grid(log_p, a=even(low, high, n), b=even(low, high, n))
    log_lik = lambda p, batch: -anp.logaddexp(0, -batch[1] * (p.a + p.b * batch[0]))
    prior = lambda p: log_prior(p.a) + log_prior(p.b)
    return Case(own(log_lik, prior, (x, y), a=cv.real, b=cv.real), truth)


@known
def two_hundred_signs():
    return logistic(200, 1.0, 3.0, 0, -2, 4)


@known
def twelve_signs():
    return logistic(12, 1.0, 3.0, 1, -14, 14)


@known
def separated_signs():
    x = np.array([-2.0, -1, -0.5, 0.5, 1, 2])
    return line_of_signs(x, np.sign(x), lambda b: -0.5 * (b / 10) ** 2, -40, 60)


@known
def separated_signs_with_a_cauchy_prior():
    x = np.array([-2.0, -1, 1, 2])
    log_lik = lambda p, batch: -anp.logaddexp(0, -anp.sign(batch[0]) * p.b * batch[0])
    prior = lambda p: -anp.log(1 + (p.b / 2.5) ** 2)
    log_p = lambda b: -np.logaddexp(0, -np.abs(x[:, None]) * b).sum(0) - np.log(1 + (b / 2.5) ** 2)
    wide = np.sinh(np.linspace(-12, 12, 200_001))
    truth = on_a_grid(log_p, b=(wide, np.gradient(wide)))
    return Case(own(log_lik, prior, x, b=cv.real), truth, heavy=True)


def counts(y, a, b):
    law = stats.gamma(a + np.sum(y), scale=1 / (b + len(y)))
    log_lik = lambda p, batch: batch[0] * anp.log(p.rate) - p.rate
    prior = lambda p: (a - 1) * anp.log(p.rate) - b * p.rate
    return Case(own(log_lik, prior, np.asarray(y, float), rate=cv.positive), {"rate": of_law(law)})


@known
def no_count_at_all():
    return counts([0], 0.5, 0.1)


@known
def fifty_counts_of_mean_three():
    return counts(RNG(0).poisson(3.0, 50), 1.0, 1.0)


def shares(successes, n, a, b):
    y = np.r_[np.ones(successes), np.zeros(n - successes)]
    log_lik = lambda p, b: b[0] * anp.log(p.share) + (1 - b[0]) * anp.log1p(-p.share)
    prior = lambda p: (a - 1) * anp.log(p.share) + (b - 1) * anp.log1p(-p.share)
    law = stats.beta(a + successes, b + n - successes)
    return Case(own(log_lik, prior, y, share=cv.interval(0, 1)), {"share": of_law(law)})


@known
def three_of_ten():
    return shares(3, 10, 1.0, 1.0)


@known
def none_of_five():
    return shares(0, 5, 0.5, 0.5)


@known
def censored_times():
    t, seen = np.array([0.3, 1.1, 2.0, 0.7, 4.0, 4.0]), np.array([1.0, 1, 1, 1, 0, 0])
    law = stats.gamma(2 + seen.sum(), scale=1 / (1 + t.sum()))
    log_lik = lambda p, b: b[1] * anp.log(p.rate) - p.rate * b[0]
    prior = lambda p: anp.log(p.rate) - p.rate
    return Case(own(log_lik, prior, (t, seen), rate=cv.positive), {"rate": of_law(law)})


@known
def a_student_posterior():
    log_lik = lambda p, b: -2 * anp.log(1 + (p.x - b[0]) ** 2 / 3)
    return Case(
        own(log_lik, lambda p: 0 * p.x, np.ones(1), x=cv.real),
        {"x": of_law(stats.t(3, 1.0))},
        heavy=True,
    )


@known
def a_cauchy_location():
    y = np.array([-1.2, 0.1, 0.4, 0.9, 6.0])
    log_p = lambda m: stats.cauchy.logpdf(y[:, None], m).sum(0) - m**2 / 200
    log_lik = lambda p, b: -anp.log(1 + (b[0] - p.m) ** 2)
    truth = on_a_grid(log_p, m=even(-40, 40, 40_001))
    return Case(own(log_lik, lambda p: -(p.m**2) / 200, y, m=cv.real), truth)


@known
def two_places_for_one_mean():
    y = np.array([-4.0, -3.8, 3.9, 4.1])
    log_p = lambda m: (
        np.logaddexp(-0.5 * (y[:, None] - m) ** 2, -0.5 * (y[:, None] + m) ** 2).sum(0) - m**2 / 50
    )
    log_lik = lambda p, b: anp.logaddexp(-0.5 * (b[0] - p.m) ** 2, -0.5 * (b[0] + p.m) ** 2)
    truth = on_a_grid(log_p, m=even(-8, 8, 8001))
    return Case(own(log_lik, lambda p: -(p.m**2) / 50, y, m=cv.real), truth)


@known
def a_frequency():
    t = np.linspace(0, 10, 40)
    y = np.sin(2 * t) + 0.5 * RNG(0).standard_normal(40)
    log_p = lambda w: (
        stats.norm.logpdf(y[:, None], np.sin(w * t[:, None]), 0.5).sum(0) - (w - 1.5) ** 2 / 2
    )
    log_lik = lambda p, b: -2 * (b[1] - anp.sin(p.w * b[0])) ** 2
    prior = lambda p: -0.5 * (p.w - 1.5) ** 2
    return Case(own(log_lik, prior, (t, y), w=cv.real), on_a_grid(log_p, w=even(-5, 8, 100_001)))


@known
def a_product_of_signs():
    y = rows(30, 2.0, 1.0)
    log_p = lambda a, b: -0.5 * ((y.mean() - a * b) ** 2 * 30 + a**2 + b**2)
    log_lik = lambda p, batch: -0.5 * (batch[0] - p.a * p.b) ** 2
    prior = lambda p: -0.5 * (p.a**2 + p.b**2)
    axis = even(-6, 6, 801)
    return Case(own(log_lik, prior, y, a=cv.real, b=cv.real), on_a_grid(log_p, a=axis, b=axis))


@known
def an_enzyme():
    x, v = np.array([0.2, 0.5, 1.0, 1.5, 2.0]), np.array([0.247, 0.609, 1.123, 1.282, 1.418])

    def log_p(V, K):
        far = sum((v_ - V * x_ / (K + x_)) ** 2 for x_, v_ in zip(x, v)) / 0.15**2
        return -far / 2 - (np.log(V) ** 2 + np.log(K) ** 2) / 8 - np.log(V * K)

    log_lik = lambda p, b: -0.5 * ((b[1] - p.V * b[0] / (p.K + b[0])) / 0.15) ** 2
    prior = lambda p: -(anp.log(p.V) ** 2 + anp.log(p.K) ** 2) / 8 - anp.log(p.V) - anp.log(p.K)
    truth = on_a_grid(log_p, V=scale(-2, 9, 1501), K=scale(-4, 10, 1501))
    return Case(own(log_lik, prior, (x, v), V=cv.positive, K=cv.positive), truth)


@known
def a_banana():
    log = lambda a, b: -0.5 * (a / 1.5) ** 2 - 2 * (b - a**2) ** 2
    truth = on_a_grid(log, a=even(-9, 9, 1201), b=even(-3, 60, 3001))
    return Case(no_rows(lambda p: log(p.a, p.b), a=cv.real, b=cv.real), truth)


def no_rows(log_prior, **parameters):
    """A model whose posterior is its prior."""
    first = next(iter(parameters))
    log_lik = lambda p, b: (
        0 * b[0] * (p[first] if parameters[first] is cv.real else p[first][..., 0])
    )
    return own(log_lik, log_prior, np.zeros(1), **parameters)


@known
def a_funnel():
    log = lambda v, x, xp: -0.5 * (v / 1.5) ** 2 - v / 2 - 0.5 * x**2 * xp.exp(-v)
    wide = np.sinh(np.linspace(-6, 6, 4001))
    axes = {"v": even(-7, 7, 701), "x": (wide, np.gradient(wide))}
    truth = on_a_grid(lambda v, x: log(v, x, np), **axes)
    return Case(no_rows(lambda p: log(p.v, p.x, anp), v=cv.real, x=cv.real), truth)


@known
def weibull_times():
    t = stats.weibull_min(1.7, scale=2.0).rvs(25, random_state=RNG(0))

    def log_p(k, s):
        each = np.log(k / s) + (k - 1) * np.log(t / s[..., None]).sum(-1) / 25
        return 25 * each - ((t / s[..., None]) ** k[..., None]).sum(-1) - k - s

    log_lik = lambda p, b: (
        anp.log(p.k / p.s) + (p.k - 1) * anp.log(b[0] / p.s) - (b[0] / p.s) ** p.k
    )
    truth = on_a_grid(log_p, k=scale(-1, 1.8, 401), s=scale(-0.5, 2, 401))
    return Case(own(log_lik, lambda p: -p.k - p.s, t, k=cv.positive, s=cv.positive), truth)


@known
def gamma_rows():
    y = stats.gamma(2.0, scale=0.5).rvs(30, random_state=RNG(0))
    part = (np.log(y).sum(), y.sum())
    from scipy.special import gammaln

    log_p = lambda a, b: 30 * (a * np.log(b) - gammaln(a)) + a * part[0] - b * part[1] - a - b / 2
    log_lik = lambda p, batch: ad.gamma.logpdf(batch[0] * p.b, p.a) + anp.log(p.b)
    truth = on_a_grid(log_p, a=scale(-1, 2.5, 501), b=scale(-1, 3.5, 501))
    prior = lambda p: -p.a - p.b / 2
    return Case(own(log_lik, prior, y, a=cv.positive, b=cv.positive), truth)


@known
def a_correlation():
    x = RNG(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 20)
    xx, xy = (x**2).sum(), x.prod(1).sum()
    log_p = lambda r: -10 * np.log(1 - r**2) - (xx - 2 * r * xy) / (2 * (1 - r**2))
    log_lik = lambda p, b: (
        -0.5 * anp.log(1 - p.r**2)
        - (anp.sum(b[0] ** 2, -1) - 2 * p.r * b[0][..., 0] * b[0][..., 1]) / (2 * (1 - p.r**2))
    )
    truth = on_a_grid(log_p, r=even(-1 + 1e-6, 1 - 1e-6, 20_001))
    return Case(own(log_lik, lambda p: 0 * p.r, x, r=cv.interval(-1, 1)), truth)


@known
def a_kink():
    log_p = lambda m: -0.5 * (0.5 - m) ** 2 - 2 * np.abs(m)
    log_lik = lambda p, b: -0.5 * (b[0] - p.m) ** 2
    truth = on_a_grid(log_p, m=even(-6, 6, 12_001))
    return Case(own(log_lik, lambda p: -2 * anp.abs(p.m), np.array([0.5]), m=cv.real), truth)


@known
def three_rows_and_hardly_a_prior():
    y = np.array([1.0, 1.3, 2.1])
    log_p = lambda m, s: stats.norm.logpdf(y[:, None, None], m, s).sum(0) - m**2 / 2e4 - s / 100
    wide = 1.4 + np.sinh(np.linspace(-7, 7, 2001))
    truth = on_a_grid(log_p, mu=(wide, np.gradient(wide)), sigma=scale(-4, 7, 1001))
    log_lik = lambda p, b: ad.norm.logpdf(b[0], p.mu, p.sigma)
    prior = lambda p: -(p.mu**2) / 2e4 - p.sigma / 100
    return Case(own(log_lik, prior, y, mu=cv.real, sigma=cv.positive), truth, heavy=True)


@known
def trials_of_unknown_number():
    y = np.array([16.0, 18, 22, 25, 27])
    from autograd.scipy.special import gammaln as ad_gammaln
    from scipy.special import gammaln

    def log_rows(y, n, share, lg, xp):
        choose = lg(n + 1) - lg(y + 1) - lg(n - y + 1)
        return choose + y * xp.log(share) + (n - y) * xp.log1p(-share)

    log_p = lambda more, s: (
        sum(log_rows(v, 27 + more, s, gammaln, np) for v in y) - np.log(27 + more)
    )
    log_lik = lambda p, b: log_rows(b[0], 27 + p.more, p.share, ad_gammaln, anp)
    prior = lambda p: -anp.log(27 + p.more) - p.more / 500
    truth = on_a_grid(
        lambda more, s: log_p(more, s) - more / 500,
        more=scale(-6, 9, 1201),
        share=even(1e-4, 1 - 1e-4, 1201),
    )
    return Case(own(log_lik, prior, y, more=cv.positive, share=cv.interval(0, 1)), truth)


@known
def a_heavy_scale():
    """One row of a normal law about zero, and a half-Cauchy scale."""
    log_p = lambda s: -np.log(s) - 0.5 / s**2 - np.log(1 + s**2 / 4)
    log_lik = lambda p, b: -anp.log(p.s) - 0.5 * (b[0] / p.s) ** 2
    truth = on_a_grid(log_p, s=scale(-6, 14, 100_001))
    return Case(
        own(log_lik, lambda p: -anp.log(1 + p.s**2 / 4), np.ones(1), s=cv.positive),
        truth,
        heavy=True,
    )


@known
def a_light_tail():
    truth = on_a_grid(lambda x: -(x**4), x=even(-4, 4, 8001))
    return Case(no_rows(lambda p: -(p.x**4), x=cv.real), truth)


@known
def a_skewed_pair():
    """Logs of two gamma variables, one skewed, one not."""
    laws = [stats.loggamma(0.5), stats.loggamma(20.0)]
    log = lambda p: 0.5 * p.a - anp.exp(p.a) + 20 * p.b - anp.exp(p.b)
    return Case(no_rows(log, a=cv.real, b=cv.real), dict(zip("ab", map(of_law, laws))))


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
    return Case(
        own(log_lik, prior, (X, y), beta=d), {"beta": of_normals(np.ones(1), mean[None], sd[None])}
    )


@known
def ten_coefficients():
    return regression(60, 10)


@known
def fifty_coefficients():
    return regression(200, 50)


@known
def fifty_coefficients_that_lean_and_a_diagonal_q():
    return diagonal(regression(200, 50, rho=0.5))


@known
def sixty_coefficients_apart_and_a_diagonal_q():
    d = 60
    log = lambda p: -0.5 * anp.sum((p.x / np.linspace(0.5, 3, d)) ** 2, -1)
    sd = np.linspace(0.5, 3, d)[None]
    return diagonal(Case(no_rows(log, x=d), {"x": of_normals(np.ones(1), 0 * sd, sd)}))


@known
def a_walk_of_a_hundred_and_a_diagonal_q():
    """x_k ~ N(0.9 x_(k-1), 1)."""
    log = lambda p: (
        -0.5 * (p.x[..., 0] ** 2 + anp.sum((p.x[..., 1:] - 0.9 * p.x[..., :-1]) ** 2, -1))
    )
    A = np.eye(100) - 0.9 * np.eye(100, k=-1)
    sd = np.sqrt(np.diag(np.linalg.inv(A.T @ A)))[None]
    return diagonal(Case(no_rows(log, x=100), {"x": of_normals(np.ones(1), 0 * sd, sd)}))


@known
def thirty_rates():
    y = RNG(0).poisson(RNG(1).gamma(1.0, 3.0, 30)).astype(float)
    laws = [stats.gamma(1 + k, scale=1 / 1.5) for k in y]
    log_lik = lambda p, b: b[0] * anp.log(cv.pick(p.rate, b[1])) - cv.pick(p.rate, b[1])
    prior = lambda p: -0.5 * anp.sum(p.rate, -1)
    model = own(log_lik, prior, (y, np.arange(30)), rate=cv.positive(30))
    return Case(model, {"rate": np.transpose([of_law(law) for law in laws])})


@known
def forty_shares():
    k = RNG(0).binomial(8, RNG(1).beta(1, 2, 40)).astype(float)
    laws = [stats.beta(1 + s, 9 - s) for s in k]

    def log_lik(p, b):
        share = cv.pick(p.share, b[1])
        return b[0] * anp.log(share) + (8 - b[0]) * anp.log1p(-share)

    model = own(
        log_lik, lambda p: 0 * anp.sum(p.share, -1), (k, np.arange(40)), share=cv.interval(0, 1)(40)
    )
    return Case(model, {"share": np.transpose([of_law(law) for law in laws])})


@known
def twenty_student_laws():
    log = lambda p: -3 * anp.sum(anp.log(1 + p.x**2 / 5), -1)
    return Case(no_rows(log, x=20), {"x": of_law(stats.t(5), (20,))})


@known
def fifteen_skewed_laws():
    log = lambda p: anp.sum(2 * p.x - anp.exp(p.x), -1)
    return Case(no_rows(log, x=15), {"x": of_law(stats.loggamma(2.0), (15,))})


def groups(y, s, centred):
    """y_j ~ N(theta_j, s_j), theta_j ~ N(mu, tau), mu ~ N(0, 5), tau half-normal(5).

    Given tau all else is Gaussian; a grid over tau does the rest.
    """
    J, parts = len(y), []
    tau, each = scale(-6, 4, 301)
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


@known
def eight_schools():
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    return groups(y, np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), centred=False)


@known
def ten_groups_centred():
    return groups(RNG(3).normal(2.0, 3.0, 10), np.ones(10), centred=True)


@known
def thirty_groups():
    return groups(RNG(4).normal(1.0, np.hypot(0.5, 1.0), 30), np.ones(30), centred=False)


def two_modes(share, apart, d=10):
    """A mixture of two normals, `apart` sds from each other along every coordinate's share."""
    shift = apart / np.sqrt(d) * np.ones(d)
    logs = lambda x: [
        np.log(w) - 0.5 * anp.sum((x - m) ** 2, -1) for w, m in ((share, 0.0), (1 - share, shift))
    ]
    truth = of_normals(np.array([share, 1 - share]), np.stack([0 * shift, shift]), np.ones((2, d)))
    return Case(no_rows(lambda p: anp.logaddexp(*logs(p.x)), x=d), {"x": truth})


@known
def two_modes_alike():
    return two_modes(0.5, 8.0)


@known
def a_second_mode_of_a_tenth():
    return two_modes(0.9, 8.0)


@known
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
    log_lik = lambda p, batch: (
        -0.5 * (batch[1] - anp.sum(batch[0] * p.beta, -1)) ** 2 / p.v - anp.log(p.v) / 2
    )
    prior = lambda p: -0.5 * anp.sum(p.beta**2, -1) / p.v - (10 + 3) * anp.log(p.v) - 2 / p.v
    model = own(log_lik, prior, (X, y), beta=20, v=cv.positive)
    return Case(model, {"beta": beta, "v": of_law(stats.invgamma(a, scale=b))})


@known
def five_bananas():
    one = on_a_grid(
        lambda a, b: -0.5 * (a / 1.5) ** 2 - 2 * (b - a**2) ** 2,
        a=even(-9, 9, 1201),
        b=even(-3, 60, 3001),
    )
    log = lambda p: anp.sum(-0.5 * (p.a / 1.5) ** 2 - 2 * (p.b - p.a**2) ** 2, -1)
    truth = {k: np.repeat(x[:, None], 5, 1) for k, x in one.items()}
    return Case(no_rows(log, a=5, b=5), truth)


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


def main(models=MODELS):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", help="these models, entry by entry")
    parser.add_argument("--seed", type=int, default=0, help="of the fits (0)")
    options = parser.parse_args()
    counts_: dict[str, int] = {}
    for name in options.only or models:
        each, fit = judged(models[name], options.seed)
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
