"""Seven posteriors of posteriordb, each a model with reference means and standard deviations.

The data and the references (ten thousand draws each) are those of posteriordb (Magnusson, Bürkner
and Vehtari 2023), under its licence, which lies beside them. The models are written here for z in
R^d; `parameters` takes z to the quantities that the reference speaks of.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import autograd.numpy as anp
import numpy as np

from cvlib.models import Model
from cvlib.models.transforms import interval, ordered, pick, positive
from cvlib.special import LOG_2PI, gammaln


@dataclass(frozen=True, eq=False)
class Posterior:
    """A model, and what is known of its posterior."""

    name: str
    model: Model
    parameters: Callable  # z (..., d) -> (..., P), in the order of `names`
    names: tuple  # of P quantities
    mean: np.ndarray  # (P,) by the reference
    sd: np.ndarray  # (P,)

    def __repr__(self):
        return f"<{self.name}: {self.model!r}, {len(self.names)} reference quantities>"


def load(name):
    """The `Posterior` of this name, one of `names`."""
    if name not in _MODELS:
        raise ValueError(f"unknown posterior {name!r}: choose one of {', '.join(names)}")
    file, write = _MODELS[name]
    folder = resources.files(__package__) / "posteriordb"
    stored = json.loads((folder / f"{name}-{file}.json").read_text("utf-8"))
    data = {key: np.array(value, float) for key, value in stored["data"].items()}
    known = stored["reference"]
    log_lik, log_prior, rows, dim, parameters = write(data)
    model = Model(log_lik, log_prior, rows, dim, name)
    mean, sd = (np.array([each[key] for each in known.values()]) for key in ("mean", "sd"))
    return Posterior(name, model, parameters, tuple(known), mean, sd)


# Densities ---------------------------------------------------------------------------------------


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - anp.log(sd) - 0.5 * LOG_2PI


def _half(log_density):
    """Of the same on the positive half line."""
    return np.log(2) + log_density


def _cauchy(x, scale):
    return -np.log(np.pi * scale) - anp.log1p((x / scale) ** 2)


# Models: log_lik, log_prior, data, d, parameters --------------------------------------------------


def _eight_schools(data):
    """z = (t_1 ... t_8, mu, log tau): y_j ~ N(mu + tau t_j, sigma_j)."""

    def log_lik(z, batch):
        y, sigma, school = batch
        theta = z[..., 8] + anp.exp(z[..., 9]) * pick(z, school)
        return _normal(y, theta, sigma)

    def log_prior(z):
        tau, stretch = positive(z[..., 9])
        wide = _normal(z[..., 8], 0, 5.0) + _half(_cauchy(tau, 5.0)) + stretch
        return anp.sum(_normal(z[..., :8], 0, 1.0), -1) + wide

    def parameters(z):
        tau = np.exp(z[..., 9:])
        return np.concatenate([z[..., 8:9] + tau * z[..., :8], z[..., 8:9], tau], -1)

    return log_lik, log_prior, (data["y"], data["sigma"], np.arange(8)), 10, parameters


def _regression(X, y, log_prior):
    """z = (beta, log sigma): y ~ N(X beta, sigma); the prior is a function of both."""
    p = X.shape[1]

    def log_lik(z, batch):
        x, y = batch
        return _normal(y, anp.sum(x * z[..., :p], -1), anp.exp(z[..., p]))

    def of_z(z):
        sigma, stretch = positive(z[..., p])
        return log_prior(z[..., :p], sigma) + stretch

    parameters = lambda z: np.concatenate([z[..., :p], np.exp(z[..., p:])], -1)
    return log_lik, of_z, (X, y), p + 1, parameters


def _kidiq(data):
    hs, iq = data["mom_hs"], data["mom_iq"]
    X = np.column_stack([np.ones_like(hs), hs, iq, hs * iq])
    return _regression(X, data["kid_score"], lambda beta, sigma: _half(_cauchy(sigma, 2.5)))


def _mesquite(data):
    of = ("diam1", "diam2", "canopy_height", "total_height", "density")
    logs = [np.log(data[name]) for name in of]
    X = np.column_stack([np.ones_like(logs[0]), *logs, data["group"]])
    return _regression(X, np.log(data["weight"]), lambda beta, sigma: 0 * sigma)


def _nes1972(data):
    ages = [data["age_discrete"] == k for k in (2, 3, 4)]
    first, last = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    columns = [*(data[name] for name in first), *ages, *(data[name] for name in last)]
    X = np.column_stack([np.ones(len(ages[0])), *columns])
    return _regression(X, data["partyid7"], lambda beta, sigma: 0 * sigma)


def _sblri(data):
    def log_prior(beta, sigma):
        return anp.sum(_normal(beta, 0, 10.0), -1) + _half(_normal(sigma, 0, 10.0))

    return _regression(data["X"], data["y"], log_prior)


def _low_dim_gauss_mix(data):
    """z = (mu_1, log(mu_2 - mu_1), log s_1, log s_2, logit theta); one row for each y."""

    def log_lik(z, batch):
        (y,) = batch
        mu, _ = ordered(z[..., :2])
        first = _normal(y, mu[..., 0], anp.exp(z[..., 2]))
        second = _normal(y, mu[..., 1], anp.exp(z[..., 3]))
        log_odds = z[..., 4]
        return anp.logaddexp(first + log_odds, second) - anp.logaddexp(0.0, log_odds)

    def log_prior(z):
        (mu, a), (s, b), (_, c) = ordered(z[..., :2]), positive(z[..., 2:4]), _share(z)
        beta = 4 * c + np.log(630)  # theta^4 (1 - theta)^4 9! / (4! 4!)
        wide = _normal(mu, 0, 2.0) + _half(_normal(s, 0, 2.0)) + b
        # two values of mu are ordered: twice the density
        return np.log(2) + anp.sum(wide, -1) + beta + a + c

    def parameters(z):
        theta = _share(z)[0][..., None]
        return np.concatenate([ordered(z[..., :2])[0], np.exp(z[..., 2:4]), theta], -1)

    return log_lik, log_prior, data["y"], 5, parameters


def _share(z):
    return interval(z[..., 4], 0.0, 1.0)


def _gp_pois_regr(data):
    """z = (log rho, log alpha, t): k ~ Poisson(exp f), f = chol(K) t. One row: f is of all x."""
    n = len(data["x"])
    apart = (data["x"][:, None] - data["x"]) ** 2

    def field(z):
        rho, alpha = (anp.exp(z[..., k])[..., None, None] for k in (0, 1))
        K = alpha**2 * anp.exp(-apart / (2 * rho**2)) + 1e-10 * np.eye(n)
        return anp.sum(anp.linalg.cholesky(K) * z[..., None, 2:], -1)

    def log_lik(z, batch):
        f, k = field(z), batch[0]
        return anp.sum(k * f - anp.exp(f) - gammaln(k + 1), -1)

    def log_prior(z):
        (rho, a), (alpha, b) = positive(z[..., 0]), positive(z[..., 1])
        gamma = 25 * np.log(4.0) - gammaln(25.0) + 24 * anp.log(rho) - 4 * rho
        both = gamma + _half(_normal(alpha, 0, 2.0)) + a + b
        return both + anp.sum(_normal(z[..., 2:], 0, 1.0), -1)

    parameters = lambda z: np.concatenate([np.exp(z[..., :2]), field(z)], -1)
    return log_lik, log_prior, data["k"][None], n + 2, parameters


_MODELS = {
    "eight_schools": ("eight_schools_noncentered", _eight_schools),
    "gp_pois_regr": ("gp_pois_regr", _gp_pois_regr),
    "kidiq": ("kidscore_interaction", _kidiq),
    "low_dim_gauss_mix": ("low_dim_gauss_mix", _low_dim_gauss_mix),
    "mesquite": ("logmesquite", _mesquite),
    "nes1972": ("nes", _nes1972),
    "sblri": ("blr", _sblri),
}
names = tuple(_MODELS)
