"""What intervals cover and what is said, where answers are known.

They are known in closed form, by quadrature or by a long chain.
"""

import warnings

import autograd.numpy as anp
import numpy as np
import scipy

import cvlib as cv

from . import posteriors
from .answers import _digits
from .truths import truth

# Of the hierarchical model below: 14 chains of NUTS (NumPyro), 60,000 draws each, 2 divergences.
LONG = {"E tau": 0.66356, "P(tau > 1)": 0.08195}  # both ± 0.0006

FITS = 3  # seeds of fits, each asked for as many answers

# Models on which errors are hard -----------------------------------------------------------------


def rows_in_groups():
    """X, group, y and a count for each of 80 rows in six groups."""
    r = np.random.default_rng(0)
    X, g = r.standard_normal((80, 2)), r.integers(6, size=80)
    y = X @ [1.0, -1] + r.normal(0, 0.5, 6)[g] + 0.3 * r.standard_normal(80)
    return X, g, y, r.poisson(1, 80)


def hierarchical():
    """Groups whose means tau z have an unknown spread: a funnel. Asked: E tau, P(tau > 1)."""

    def log_lik(p, b):
        X, g, y, c = b
        away = (y - anp.sum(X * p.b, -1) - p.tau * cv.pick(p.z, g)) / p.s
        rate = 0.3 * X[..., 0] * p.b[..., 0]
        return -0.5 * away**2 - anp.log(p.s) + c * rate - anp.exp(rate)

    def log_prior(p):
        normal = anp.sum(p.b**2, -1) + p.tau**2 + anp.sum(p.z**2, -1)
        return -0.5 * normal - anp.log1p(p.s**2)

    parameters = {"b": 2, "tau": cv.positive, "z": 6, "s": cv.positive}
    model = cv.models.Model(log_lik, log_prior, rows_in_groups(), parameters=parameters)
    asked = {"E tau": lambda p: p.tau, "P(tau > 1)": lambda p: p.tau > 1}
    return model, {name: (f, LONG[name]) for name, f in asked.items()}


def measured():
    """y ~ N(mu, sigma), prior 1 / sigma: a high moment of sigma, and probabilities of mu."""
    y = 3 + 2 * np.random.default_rng(0).standard_normal(20)
    half, s2 = (len(y) - 1) / 2, y.var(ddof=1)
    log_lik = lambda p, b: -0.5 * ((b[0] - p.mu) / p.sigma) ** 2 - anp.log(p.sigma)
    prior = lambda p: -anp.log(p.sigma)
    parameters = {"mu": cv.real, "sigma": cv.positive}
    model = cv.models.Model(log_lik, prior, y, parameters=parameters)
    gammaln = scipy.special.gammaln
    moment = np.exp(6 * np.log(s2 * half) + gammaln(half - 6) - gammaln(half))
    asked = {"E sigma^12": (lambda p: p.sigma**12, moment)}
    for P in (0.05, 0.004, 0.0005):
        c = y.mean() + np.sqrt(s2 / len(y)) * scipy.stats.t.isf(P, len(y) - 1)
        asked[f"P = {P}"] = (lambda p, c=c: p.mu > c), P
    return model, asked


def of_law(log_density, dim, name=None):
    """A law of z without data."""
    nothing = lambda z, b: 0 * z[..., 0] * b[0]
    return cv.models.Model(nothing, log_density, np.zeros(1), dim, name)


def student():
    """Student's law with three degrees of freedom: z^2 has a mean and no variance."""
    flat = lambda z: -2 * anp.log1p(z[..., 0] ** 2 / 3)
    return of_law(flat, 1), {"E z^2": (lambda z: z[:, 0] ** 2, 3.0)}


def banana():
    """z_1 ~ N(0, 1), z_2 ~ N(z_1^2, 1/4)."""
    flat = lambda z: -0.5 * z[..., 0] ** 2 - 2 * (z[..., 1] - z[..., 0] ** 2) ** 2
    asked = {"E z_2": (lambda z: z[:, 1], 1.0), "E z_2^2": (lambda z: z[:, 1] ** 2, 3.25)}
    return of_law(flat, 2), asked


def student6():
    """Student's law with six degrees of freedom for three correlated unknowns."""
    nu, A = 6, np.array([[1, 0, 0], [0.5, 1, 0], [0.5, 0.5, 1]])
    P, v = np.linalg.inv(A @ A.T), 1.5  # v is the squared scale of the last
    flat = lambda z: -(nu + 3) / 2 * anp.log1p(anp.sum(z * anp.dot(z, P), -1) / nu)
    asked = {
        "E z_3^2": (lambda z: z[:, 2] ** 2, v * nu / (nu - 2)),
        "E z_3^4": (lambda z: z[:, 2] ** 4, 3 * v**2 * nu**2 / ((nu - 2) * (nu - 4))),
        "P(z_3 > 4)": (lambda z: z[:, 2] > 4, scipy.stats.t.sf(4 / np.sqrt(v), nu)),
    }
    return of_law(flat, 3), asked


HARD = {
    "hierarchical": hierarchical, "measured": measured, "student": student, "student6": student6,
    "banana": banana,
}  # fmt: skip

# What intervals cover ----------------------------------------------------------------------------


def covered(rng, *, case, bend, n, runs):
    """Intervals of 95 % for every quantity of a case: how many hold, and which were warned of.

    An answer is warned of if it, or the fit that it is asked of, says what to distrust.
    """
    if case in posteriors.names:
        known, exact = posteriors.load(case), truth(case)
        model, asked, most = known.model, {"": (known.of, None)}, {"steps": 640}
        rows = [(name, exact[k], "", k) for k, name in enumerate(known.names)]
    else:
        (model, asked), most = HARD[case](), {}
        rows = [(name, exact, name, ()) for name, (_, exact) in asked.items()]
    found = {name: [] for name in asked}
    for seed in range(FITS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cv.Distrust)
            fit = cv.fit(model, bend=bend, seed=seed, progress=False, **most)
        for name, (f, _) in asked.items():
            seeds = rng.integers(2**31, size=runs // FITS)
            found[name] += [(fit.warnings, fit.expect(f, n, seed)) for seed in seeds]
    return [_row(name, x, found[of], k) for name, x, of, k in rows]


def _row(name, exact, found, k=()):
    """Shares of all answers: that hold; that are warned of; of the others, that hold."""
    warned = np.array([bool(fit or a.warnings) for fit, a in found])
    part = lambda what: np.array([getattr(a, what)[k] for _, a in found])
    held = np.abs(part("estimate") - exact) < 1.96 * part("se")
    return {
        "name": name, "covered": _digits(held.mean()), "warned": _digits(warned.mean()),
        "covered_unwarned": _digits(held[~warned].mean()) if (~warned).any() else None,
        "after": _digits(np.median(part("after"))),
    }  # fmt: skip
