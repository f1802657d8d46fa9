"""Seven posteriors of posteriordb, each a model with reference means and standard deviations.

The data and the references (ten thousand draws each) are those of posteriordb (Magnusson, Bürkner
and Vehtari 2023), under its licence, which lies beside them. `parameters` takes z in R^d to the
quantities that the reference speaks of.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import autograd.numpy as anp
import numpy as np

from cvlib import interval, ordered, pick, positive, real
from cvlib.models import Model
from cvlib.special import LOG_2PI, gammaln


@dataclass(frozen=True, eq=False)
class Posterior:
    """A model, and what is known of its posterior."""

    name: str
    model: Model
    parameters: Callable  # z (..., d) -> (..., P), in the order of `names`
    of: Callable  # the same of arrays by name, model.named(z)
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
    log_lik, log_prior, rows, declared, known_of = write(data)
    model = Model(log_lik, log_prior, rows, name=name, parameters=declared)
    of = lambda p: np.concatenate(known_of(p), -1)
    parameters = lambda z: of(model.named(z))
    mean, sd = (np.array([each[key] for each in known.values()]) for key in ("mean", "sd"))
    return Posterior(name, model, parameters, of, tuple(known), mean, sd)


# Densities ---------------------------------------------------------------------------------------


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - anp.log(sd) - 0.5 * LOG_2PI


def _half(log_density):
    """Of the same on the positive half line."""
    return np.log(2) + log_density


def _cauchy(x, scale):
    return -np.log(np.pi * scale) - anp.log1p((x / scale) ** 2)


# Models: log_lik, log_prior, data, parameters, and of those what the reference speaks of --------


def _eight_schools(data):
    """y_j ~ N(mu + tau t_j, sigma_j)."""

    def log_lik(p, batch):
        y, sigma, school = batch
        return _normal(y, p.mu + p.tau * pick(p.t, school), sigma)

    def log_prior(p):
        wide = _normal(p.mu, 0, 5.0) + _half(_cauchy(p.tau, 5.0))
        return anp.sum(_normal(p.t, 0, 1.0), -1) + wide

    def known(p):
        mu, tau = p.mu[..., None], p.tau[..., None]
        return mu + tau * p.t, mu, tau

    rows = data["y"], data["sigma"], np.arange(8)
    return log_lik, log_prior, rows, {"t": 8, "mu": real, "tau": positive}, known


def _regression(X, y, log_prior=lambda p: 0.0):
    """y ~ N(X beta, sigma)."""

    def log_lik(p, batch):
        x, y = batch
        return _normal(y, anp.sum(x * p.beta, -1), p.sigma)

    parameters = {"beta": X.shape[1], "sigma": positive}
    return log_lik, log_prior, (X, y), parameters, lambda p: (p.beta, p.sigma[..., None])


def _kidiq(data):
    hs, iq = data["mom_hs"], data["mom_iq"]
    X = np.column_stack([np.ones_like(hs), hs, iq, hs * iq])
    return _regression(X, data["kid_score"], lambda p: _half(_cauchy(p.sigma, 2.5)))


def _mesquite(data):
    of = ("diam1", "diam2", "canopy_height", "total_height", "density")
    logs = [np.log(data[name]) for name in of]
    X = np.column_stack([np.ones_like(logs[0]), *logs, data["group"]])
    return _regression(X, np.log(data["weight"]))


def _nes1972(data):
    ages = [data["age_discrete"] == k for k in (2, 3, 4)]
    first, last = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    columns = [*(data[name] for name in first), *ages, *(data[name] for name in last)]
    X = np.column_stack([np.ones(len(ages[0])), *columns])
    return _regression(X, data["partyid7"])


def _sblri(data):
    def log_prior(p):
        return anp.sum(_normal(p.beta, 0, 10.0), -1) + _half(_normal(p.sigma, 0, 10.0))

    return _regression(data["X"], data["y"], log_prior)


def _low_dim_gauss_mix(data):
    """One of two normal laws for each y."""

    def log_lik(p, batch):
        (y,) = batch
        first, second = (_normal(y, p.mu[..., k], p.s[..., k]) for k in (0, 1))
        return anp.logaddexp(anp.log(p.theta) + first, anp.log1p(-p.theta) + second)

    def log_prior(p):
        # theta^4 (1 - theta)^4 9! / (4! 4!)
        beta = 4 * anp.log(p.theta) + 4 * anp.log1p(-p.theta) + np.log(630)
        wide = _normal(p.mu, 0, 2.0) + _half(_normal(p.s, 0, 2.0))
        return np.log(2) + anp.sum(wide, -1) + beta  # mu is ordered: twice the density

    parameters = {"mu": ordered(2), "s": positive(2), "theta": interval(0, 1)}
    return log_lik, log_prior, data["y"], parameters, lambda p: (p.mu, p.s, p.theta[..., None])


def _gp_pois_regr(data):
    """k ~ Poisson(exp f), f = chol(K) t. One row: f is of all x."""
    n = len(data["x"])
    apart = (data["x"][:, None] - data["x"]) ** 2

    def field(p):
        rho, alpha = p.rho[..., None, None], p.alpha[..., None, None]
        K = alpha**2 * anp.exp(-apart / (2 * rho**2)) + 1e-10 * np.eye(n)
        return anp.sum(anp.linalg.cholesky(K) * p.t[..., None, :], -1)

    def log_lik(p, batch):
        f, k = field(p), batch[0]
        return anp.sum(k * f - anp.exp(f) - gammaln(k + 1), -1)

    def log_prior(p):
        gamma = 25 * np.log(4.0) - gammaln(25.0) + 24 * anp.log(p.rho) - 4 * p.rho
        both = gamma + _half(_normal(p.alpha, 0, 2.0))
        return both + anp.sum(_normal(p.t, 0, 1.0), -1)

    known = lambda p: (p.rho[..., None], p.alpha[..., None], field(p))
    parameters = {"rho": positive, "alpha": positive, "t": n}
    return log_lik, log_prior, data["k"][None], parameters, known


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
