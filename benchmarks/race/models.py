"""The thirteen models of the race, each told to every runner in its own words.

`density` gives log p(x, z) up to a constant as lik(z, *rows) + prior(z) for the NumPy, JAX or
PyTensor of `xp`. `OTHERS` are written once for all, packages included: a hierarchical model with a
hundred unknowns; three, `FRESH`, that were chosen, written and committed before any runner met
them; and two that had this part in an earlier race and that other pages still use.
"""

import json
from functools import cached_property, partial
from importlib import resources

import numpy as np

import cvlib as cv
from benchmarks.race import moves
from cvlib.models.density import Density
from experiments import posteriors
from experiments.others import Other

PAPER = "sonar", "ionosphere", "australian"
STORED = "eight_schools", "gp_pois_regr", "kidiq", "low_dim_gauss_mix", "nes1972"
FRESH = "stacks", "indomethacin", "exam"
JUDGE = 2048, 8192  # Sobol's draws that judge a q, where no quadrature can: more where data are few
JUDGES = (0, 3, 4, 5)  # seeds of the race's own judge, and of those that check its eyes


# Written once for all ----------------------------------------------------------------------------


def hospitals(J=98):
    """Deaths in 98 hospitals, y ~ Binomial(n, p), logit p = mu + tau t: z = (mu, log tau, t)."""
    rng = np.random.default_rng(31)
    n = rng.integers(5, 60, J).astype(float)
    y = rng.binomial(n.astype(int), 1 / (1 + np.exp(2 - rng.normal(0, 0.6, J)))).astype(float)

    def log_lik(z, batch, xp, pick):
        y, n, j = batch
        eta = z[..., 0] + xp.exp(z[..., 1]) * pick(z[..., 2:], j)
        return y * eta - n * xp.logaddexp(0.0, eta)

    def log_prior(z, xp):
        wide = -0.125 * z[..., 0] ** 2 - 0.5 * xp.exp(2 * z[..., 1]) + z[..., 1]
        return wide - 0.5 * (z[..., 2:] ** 2).sum(-1)

    return Other(log_lik, log_prior, (y, n, np.arange(J)), 2 + J)


def orange():
    """Five orange trees at seven ages, y ~ N(a_i / (1 + exp((b - age) / c)), sigma).

    Draper and Smith 1998. z = (log a, log s, b / 700, log(c / 350), log(sigma / 8), t_1 ... t_5)
    with log a_i = log a + s t_i; y in units of 100 mm.
    """
    age = np.tile([118.0, 484, 664, 1004, 1231, 1372, 1582], 5)
    mm = [
        [30, 58, 87, 115, 120, 142, 145], [33, 69, 111, 156, 172, 203, 203],
        [30, 51, 75, 108, 115, 139, 140], [32, 62, 112, 167, 179, 209, 214],
        [30, 49, 81, 125, 142, 174, 177],
    ]  # fmt: skip
    y = np.ravel(mm) / 100

    def log_lik(z, batch, xp, pick):
        y, age, tree = batch
        top = z[..., 0] + xp.exp(z[..., 1]) * pick(z[..., 5:], tree)
        x = (age - 700 * z[..., 2]) * xp.exp(-z[..., 3]) / 350
        away = (y - xp.exp(top - xp.logaddexp(0.0, -x))) * xp.exp(-z[..., 4]) / 0.08
        return -0.5 * away**2 - z[..., 4]

    def log_prior(z, xp):
        s = -0.5 * xp.exp(2 * z[..., 1]) + z[..., 1]
        shape = -0.5 * (z[..., 0] ** 2 + (z[..., 2] - 1) ** 2 + z[..., 3] ** 2 + z[..., 4] ** 2)
        return s + shape - 0.5 * (z[..., 5:] ** 2).sum(-1)

    return Other(log_lik, log_prior, (y, age, np.repeat(np.arange(5), 7)), 10)


def volatility(T=40):
    """Forty returns y_t ~ N(0, exp(h_t / 2)), h = m + s A t: z = (m, log s, logit phi, t).

    h is autoregressive: A_ij = phi^(i - j) for j <= i. One row, since all are in one equation.
    """
    rng = np.random.default_rng(32)
    lag = np.arange(T)[:, None] - np.arange(T)
    before, lag = (lag >= 0).astype(float), np.maximum(lag, 0).astype(float)
    y = rng.standard_normal(T) * np.exp((before * 0.9**lag) @ rng.normal(0, 0.3, T) / 2 - 0.5)

    def log_lik(z, batch, xp, pick):
        log_phi = -xp.logaddexp(0.0, -z[..., 2])[..., None, None]
        A = before * xp.exp(lag * log_phi)
        h = z[..., 0, None] + xp.exp(z[..., 1, None]) * (A * z[..., None, 3:]).sum(-1)
        return (-0.5 * h - 0.5 * batch[0] ** 2 * xp.exp(-h)).sum(-1)

    def log_prior(z, xp):
        m, s = -0.125 * z[..., 0] ** 2, -2 * xp.exp(2 * z[..., 1]) + z[..., 1]
        return m + s - 0.5 * (z[..., 2] - 2) ** 2 - 0.5 * (z[..., 3:] ** 2).sum(-1)

    return Other(log_lik, log_prior, (y[None],), 3 + T)


def stacks():
    """Ammonia lost through a stack on 21 days, y = X b + s e, e Student's with four degrees.

    Brownlee 1965, with the errors of BUGS's "stacks" (Spiegelhalter et al. 1996). z = (b_0 ... b_3,
    log s): air, water and acid have mean 0 and standard deviation 1, y is in units of 10.
    """
    air = [80, 80, 75, 62, 62, 62, 62, 62, 58, 58, 58, 58, 58, 58, 50, 50, 50, 50, 50, 56, 70]
    water = [27, 27, 25, 24, 22, 23, 24, 24, 23, 18, 18, 17, 18, 19, 18, 18, 19, 19, 20, 20, 20]
    acid = [89, 88, 90, 87, 87, 87, 93, 93, 87, 80, 89, 88, 82, 93, 89, 86, 72, 79, 80, 82, 91]
    loss = [42, 37, 37, 28, 18, 18, 19, 20, 15, 14, 14, 13, 11, 12, 8, 7, 8, 8, 9, 15, 15]
    X = np.column_stack([air, water, acid]).astype(float)  # (21, 3)
    X = np.column_stack([np.ones(21), (X - X.mean(0)) / X.std(0)])
    y = (np.array(loss) - 17.5) / 10

    def log_lik(z, batch, xp, pick):
        X, y = batch
        away = (y - (X * z[..., :4]).sum(-1)) * xp.exp(-z[..., 4])
        return -2.5 * xp.log1p(away**2 / 4) - z[..., 4]

    def log_prior(z, xp):
        return -0.5 * (z[..., :4] ** 2).sum(-1) - 0.5 * xp.exp(2 * z[..., 4]) + z[..., 4]

    return Other(log_lik, log_prior, (X, y), 5)


def indomethacin():
    """Its concentration in the blood of six people, eleven times: a sum of two exponentials.

    Kwan et al. 1976. log y ~ N(log(A_i e^(-k t) + B_i e^(-l t)), sigma), t in hours;
    z = (log A, log k, log B, log l, log s_A, log s_B, log sigma, u_1 ... u_6, v_1 ... v_6) with
    log A_i = log A + s_A u_i and log B_i = log B + s_B v_i.
    """
    hours = np.tile([0.25, 0.5, 0.75, 1, 1.25, 2, 3, 4, 5, 6, 8], 6)
    found = [
        [1.50, 0.94, 0.78, 0.48, 0.37, 0.19, 0.12, 0.11, 0.08, 0.07, 0.05],
        [2.03, 1.63, 0.71, 0.70, 0.64, 0.36, 0.32, 0.20, 0.25, 0.12, 0.08],
        [2.72, 1.49, 1.16, 0.80, 0.80, 0.39, 0.22, 0.12, 0.11, 0.08, 0.08],
        [1.85, 1.39, 1.02, 0.89, 0.59, 0.40, 0.16, 0.11, 0.10, 0.07, 0.07],
        [2.05, 1.04, 0.81, 0.39, 0.30, 0.23, 0.13, 0.11, 0.08, 0.10, 0.06],
        [2.31, 1.44, 1.03, 0.84, 0.64, 0.42, 0.24, 0.17, 0.13, 0.10, 0.09],
    ]  # micrograms a millilitre

    def log_lik(z, batch, xp, pick):
        log_y, t, i = batch
        fast = z[..., 0] + xp.exp(z[..., 4]) * pick(z[..., 7:13], i) - xp.exp(z[..., 1]) * t
        slow = z[..., 2] + xp.exp(z[..., 5]) * pick(z[..., 13:], i) - xp.exp(z[..., 3]) * t
        away = (log_y - xp.logaddexp(fast, slow)) * xp.exp(-z[..., 6])
        return -0.5 * away**2 - z[..., 6]

    def log_prior(z, xp):
        apart = (z[..., 1] - 0.7) ** 2 + (z[..., 3] + 1.5) ** 2  # one is fast, the other slow
        level = (z[..., 0] - 1) ** 2 + (z[..., 2] + 0.5) ** 2
        spread = sum(z[..., k] - 2 * xp.exp(2 * z[..., k]) for k in (4, 5, 6))
        return spread - 2 * apart - 0.5 * level - 0.5 * (z[..., 7:] ** 2).sum(-1)

    return Other(log_lik, log_prior, (np.log(np.ravel(found)), hours, np.repeat(np.arange(6), 11)),
                 19)  # fmt: skip


def exam(I=20, J=15):
    """Answers of 20 people to 15 questions, logit p = a_j (t_i - b_j): z = (t, b, log a).

    The two-parameter model of item response theory (Birnbaum 1968), on drawn data.
    """
    rng = np.random.default_rng(33)
    t, b, a = rng.normal(0, 1, I), rng.normal(0, 1, J), np.exp(rng.normal(0, 0.5, J))
    i, j = np.repeat(np.arange(I), J), np.tile(np.arange(J), I)
    y = (rng.random(I * J) < 1 / (1 + np.exp(-a[j] * (t[i] - b[j])))).astype(float)

    def log_lik(z, batch, xp, pick):
        y, i, j = batch
        off = pick(z[..., :I], i) - pick(z[..., I : I + J], j)
        eta = xp.exp(pick(z[..., I + J :], j)) * off
        return y * eta - xp.logaddexp(0.0, eta)

    def log_prior(z, xp):
        wide = 0.5 * (z[..., :I] ** 2).sum(-1) + 0.125 * (z[..., I : I + J] ** 2).sum(-1)
        return -wide - 2 * (z[..., I + J :] ** 2).sum(-1)

    return Other(log_lik, log_prior, (y, i, j), I + 2 * J)


OTHERS = {
    "hospitals": hospitals, "stacks": stacks, "indomethacin": indomethacin, "exam": exam,
    "orange": orange, "volatility": volatility,
}  # fmt: skip


# In the words of xp ------------------------------------------------------------------------------


def density(name, model, xp):
    """lik(z, *rows), prior(z) and the rows: log p(x, z) of one z (d,) up to a constant."""
    if name in OTHERS:
        other, pick = OTHERS[name](), lambda t, j: t[j]
        lik = lambda z, *rows: other.log_lik(z, rows, xp, pick).sum()
        return lik, lambda z: other.log_prior(z, xp), other.data
    if name in OWN:
        return OWN[name](xp, *model.data)
    if model.likelihood is None or model.likelihood.name != "logistic":
        raise ValueError(f"no density of {model!r} for peers: write one in {__name__}")
    lik = lambda z, X, y: -xp.logaddexp(0.0, -y * xp.dot(X, z)).sum()
    return lik, lambda z: -0.5 * ((z / model.log_prior.sd) ** 2).sum(), (model.X, model.y)


def _eight_schools(xp, y, sigma, school):
    def prior(z):
        wide = -0.5 * (z[8] / 5) ** 2 - xp.log1p((xp.exp(z[9]) / 5) ** 2) + z[9]
        return wide - 0.5 * (z[:8] ** 2).sum()

    def lik(z, y, sigma):
        return -0.5 * (((y - z[8] - xp.exp(z[9]) * z[:8]) / sigma) ** 2).sum()

    return lik, prior, (y, sigma)


def _regression(xp, X, y, prior=lambda s: s):
    """z = (beta, s = log sigma); a flat prior of sigma is s, the logarithm of the stretch."""
    p = X.shape[1]

    def lik(z, X, y):
        return -0.5 * (((y - xp.dot(X, z[:p])) * xp.exp(-z[p])) ** 2).sum() - len(y) * z[p]

    return lik, lambda z: prior(z[p]), (X, y)


def _kidiq(xp, X, y):
    return _regression(xp, X, y, lambda s: s - xp.log1p((xp.exp(s) / 2.5) ** 2))


def _mixture(xp, y):
    def lik(z, y):
        second = z[0] + xp.exp(z[1])
        a = -0.5 * ((y - z[0]) * xp.exp(-z[2])) ** 2 - z[2] + z[4]
        b = -0.5 * ((y - second) * xp.exp(-z[3])) ** 2 - z[3]
        return (xp.logaddexp(a, b) - xp.logaddexp(0.0, z[4])).sum()

    def prior(z):
        mu = z[0] ** 2 + (z[0] + xp.exp(z[1])) ** 2
        s = xp.exp(2 * z[2]) + xp.exp(2 * z[3])
        share = 5 * (z[4] - 2 * xp.logaddexp(0.0, z[4]))  # Beta(5, 5), with its stretch
        return -0.125 * (mu + s) + z[1] + z[2] + z[3] + share

    return lik, prior, (y,)


def _gp(xp, k):
    folder = resources.files("experiments") / "posteriordb"
    x = np.array(json.loads((folder / "gp_pois_regr-gp_pois_regr.json").read_text())["data"]["x"])
    apart, small = (x[:, None] - x) ** 2, 1e-10 * np.eye(len(x))

    def lik(z, k):
        K = xp.exp(2 * z[1] - 0.5 * apart * xp.exp(-2 * z[0])) + small
        f = xp.dot(xp.linalg.cholesky(K), z[2:])
        return (k * f - xp.exp(f)).sum()

    def prior(z):
        rho, alpha = 25 * z[0] - 4 * xp.exp(z[0]), z[1] - 0.125 * xp.exp(2 * z[1])
        return rho + alpha - 0.5 * (z[2:] ** 2).sum()

    return lik, prior, (k[0],)


OWN = {
    "eight_schools": _eight_schools, "gp_pois_regr": _gp, "kidiq": _kidiq,
    "low_dim_gauss_mix": _mixture, "nes1972": _regression,
}  # fmt: skip


# Problems ----------------------------------------------------------------------------------------


class Problem:
    """A model, the q that all look for, where all may start (D,), and the judge of a w.

    `seconds` is the end of every run, if it is not within 0.01 nats before.
    """

    def __init__(self, name, model, seconds, scale=1.0):
        self.name, self.model, self.seconds = name, model, seconds
        self.q = cv.families.Gaussian(model.dim)
        self.start = self.q.pack(np.zeros(model.dim), scale * np.eye(model.dim))
        self.glm = model.likelihood is not None

    def density(self, xp):
        return density(self.name, self.model, xp)

    @property
    def large(self):
        """Would ten draws of all data be slow?"""
        return 10 * self.model.N * self.model.dim > 2**21

    def elbo(self, w, judge=0):
        """By quadrature; for a model of one's own on Sobol's draws, which no runner has.

        Other judges have other draws; the race's is the first.
        """
        if self.glm:
            return float(cv.exact.elbo(self.model, self.q, w, 1e-6))
        mu, L = self.q.unpack(w)
        with np.errstate(all="ignore"):
            return float(np.mean(self._value(mu + self._draws[judge] @ L.T)) + self.q.entropy(w))

    @cached_property
    def _draws(self):
        n = JUDGE[2**19 // (self.model.N + self.model.dim) > JUDGE[1]]
        return [even_draws(n, self.model.dim, seed) for seed in JUDGES]

    @cached_property
    def _value(self):
        """log p(x, z) at points (n, d); compiled if JAX is there, which saves the judge time."""
        from benchmarks.race import hand

        ours, some = Density(self.model).value, self._draws[0][:1]
        if not hand.there("jax"):
            return ours
        theirs = hand.batched(hand.in_jax(self))
        shift = ours(some) - theirs(np.repeat(some, 4, 0))[:1]  # a constant
        return lambda z: theirs(z) + shift


def even_draws(n, d, seed):
    """n draws of N(0, I) in opposite pairs, with covariance I exactly, (n, d).

    With them the ELBO of a Gaussian posterior has no error at all.
    """
    from scipy.stats import norm, qmc  # takes longer than all of cvlib, and is the judge's

    return moves.evened(norm.ppf(qmc.Sobol(d, seed=seed).random(n // 2)))


def of_the_paper(name, seconds):
    return Problem(name, cv.models.logistic_regression(*cv.datasets.load(name)), seconds)


def many_rows(seconds, N=50_000, d=20):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d)) / np.sqrt(d)
    p = 1 / (1 + np.exp(-2 * X @ rng.standard_normal(d)))
    y = np.where(rng.random(N) < p, 1.0, -1.0)
    return Problem("50,000 rows", cv.models.logistic_regression(X, y), seconds)


def own(name, seconds):
    """All may start at N(0, 0.1^2 I), NumPyro's start."""
    return Problem(name, model_of(name), seconds, scale=0.1)


def model_of(name):
    if name in STORED:
        return posteriors.load(name).model
    return OTHERS[name]().model(name)


PROBLEMS = {
    **{name: partial(of_the_paper, name, s) for name, s in zip(PAPER, (2.4, 1.0, 0.8))},
    "50,000 rows": partial(many_rows, 1.5),
    **{name: partial(own, name, 0.6) for name in STORED},
    "hospitals": partial(own, "hospitals", 1.0),
    **{name: partial(own, name, s) for name, s in zip(FRESH, (0.5, 0.8, 1.2))},
}  # fmt: skip
