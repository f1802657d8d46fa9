"""What intervals cover and what is said, where answers are known: by quadrature or a long chain."""

import warnings

import autograd.numpy as anp
import numpy as np
from scipy import special, stats

import cvlib as cv
from cvlib.families.found import drawn

from . import posteriors
from .answers import _digits

# Of the hierarchical model below: 14 chains of NUTS (NumPyro), 60,000 draws each, 2 divergences.
LONG = {"E tau": 0.66356, "P(tau > 1)": 0.08195}  # both ± 0.0006


# Truths ------------------------------------------------------------------------------------------


def exact(name):
    """Means of the reference's quantities, by quadrature over one scale; None if there is none.

    Given the scale everything else is normal, with a mean and a density in closed form.
    """
    data = posteriors.load(name).model.data
    t = np.linspace(-6, 6, 60_001)  # log of the scale, about its own size
    if name == "eight_schools":
        log, mean = _schools(t, *data[:2])
    elif name in ("kidiq", "mesquite", "nes1972", "sblri"):
        log, mean = _regression(t, *data, name)
    else:
        return None
    p = np.exp(log - log.max())
    return p @ mean / p.sum()


def _schools(t, y, sigma):
    tau = np.exp(t + 1)
    v = sigma**2 + tau[:, None] ** 2  # of y_j given mu
    precision = (1 / v).sum(1) + 1 / 25
    mu = (y / v).sum(1) / precision
    log = -np.log1p((tau / 5) ** 2) + t - 0.5 * np.log(v).sum(1) - 0.5 * np.log(precision)
    log -= 0.5 * ((y**2 / v).sum(1) - precision * mu**2)
    theta = mu[:, None] + tau[:, None] ** 2 / v * (y - mu[:, None])
    return log, np.column_stack([theta, mu, tau])


def _regression(t, X, y, name):
    N, d = X.shape
    least = np.linalg.lstsq(X, y)[0]
    sigma = np.sqrt(np.mean((y - X @ least) ** 2)) * np.exp(t)
    each, V = np.linalg.eigh(X.T @ X)
    prior = 0.01 if name == "sblri" else 0.0
    A = each / sigma[:, None] ** 2 + prior  # precisions along V
    m = (X.T @ y @ V) / sigma[:, None] ** 2 / A
    log = t - N * np.log(sigma) - 0.5 * np.log(A).sum(1)
    log -= 0.5 * (y @ y / sigma**2 - (A * m**2).sum(1))
    more = {"kidiq": -np.log1p((sigma / 2.5) ** 2), "sblri": -0.5 * (sigma / 10) ** 2}
    return log + more.get(name, 0.0), np.column_stack([m @ V.T, sigma])


# Models on which errors are hard -----------------------------------------------------------------


def hierarchical():
    """Counts and measurements of six groups: a funnel in log tau. Asked: E tau, P(tau > 1)."""
    r = np.random.default_rng(0)
    X, g = r.standard_normal((80, 2)), r.integers(6, size=80)
    y = X @ [1.0, -1] + r.normal(0, 0.5, 6)[g] + 0.3 * r.standard_normal(80)
    c = r.poisson(1, 80)

    def log_lik(p, b):
        X, g, y, c = b
        away = (y - anp.sum(X * p.b, -1) - p.tau * cv.pick(p.z, g)) / p.s
        rate = 0.3 * X[..., 0] * p.b[..., 0]
        return -0.5 * away**2 - anp.log(p.s) + c * rate - anp.exp(rate)

    def log_prior(p):
        normal = anp.sum(p.b**2, -1) + p.tau**2 + anp.sum(p.z**2, -1)
        return -0.5 * normal - anp.log1p(p.s**2)

    parameters = {"b": 2, "tau": cv.positive, "z": 6, "s": cv.positive}
    model = cv.models.Model(log_lik, log_prior, (X, g, y, c), parameters=parameters)
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
    moment = np.exp(6 * np.log(s2 * half) + special.gammaln(half - 6) - special.gammaln(half))
    asked = {"E sigma^12": (lambda p: p.sigma**12, moment)}
    for P in (0.05, 0.004, 0.0005):
        c = y.mean() + np.sqrt(s2 / len(y)) * stats.t.isf(P, len(y) - 1)
        asked[f"P = {P}"] = (lambda p, c=c: p.mu > c), P
    return model, asked


def student():
    """Student's law with three degrees of freedom: z^2 has a mean and no variance."""
    flat = lambda z: -2 * anp.log1p(z[..., 0] ** 2 / 3)
    nothing = lambda z, b: 0 * z[..., 0] * b[0]
    model = cv.models.Model(nothing, flat, np.zeros(1), 1)
    return model, {"E z^2": (lambda z: z[:, 0] ** 2, 3.0)}


def banana():
    """z_1 ~ N(0, 1), z_2 ~ N(z_1^2, 1/4)."""
    flat = lambda z: -0.5 * z[..., 0] ** 2 - 2 * (z[..., 1] - z[..., 0] ** 2) ** 2
    nothing = lambda z, b: 0 * z[..., 0] * b[0]
    model = cv.models.Model(nothing, flat, np.zeros(1), 2)
    return model, {"E z_2": (lambda z: z[:, 1], 1.0), "E z_2^2": (lambda z: z[:, 1] ** 2, 3.25)}


HARD = {"hierarchical": hierarchical, "measured": measured, "student": student, "banana": banana}


# What intervals cover ----------------------------------------------------------------------------


def covered(rng, *, case, bend, n, runs):
    """Intervals of 95 % for every quantity of a case: how many hold, and which were warned of."""
    if case == "chain":
        return {"fit": [], "rows": [_row(*one) for one in _chains(rng, n, runs)]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        if case not in HARD:
            return _known(rng, case, bend, n, runs)
        model, asked = HARD[case]()
        fit = cv.fit(model, bend=bend, progress=False)
    ask = lambda f: [fit.expect(f, n, rng) for _ in range(runs)]
    rows = [_row(name, truth, ask(f), fit.warnings) for name, (f, truth) in asked.items()]
    return {"fit": list(fit.warnings), "rows": rows}


def _known(rng, name, bend, n, runs):
    """All quantities of a stored posterior at once.

    Where no quadrature knows their means, a hundred thousand other draws with variates do.
    """
    known, truth = posteriors.load(name), exact(name)
    fit = cv.fit(known.model, bend=bend, steps=640, progress=False)
    if truth is None:
        at = drawn(fit, 100_000, rng)
        weights = np.exp(at.log - at.log.max())
        F = known.parameters(at.z)
        truth = cv.expect(F, at.z, at.score, weights, order=2, block=1).estimate
    found = [fit.expect(known.of, n, rng) for _ in range(runs)]
    each = [(q, truth[k], found, fit.warnings, k) for k, q in enumerate(known.names)]
    return {"fit": list(fit.warnings), "rows": [_row(*one) for one in each]}


def _chains(rng, n, runs):
    """Draws of N(0, 1), each with correlation 0.9 to the one before."""
    asked = {
        "E z": (lambda z: z[:, 0], 0.0, 0),
        "E z, 4 chains": (lambda z: z[:, 0], 0.0, 0),
        "E z^3": (lambda z: z[:, 0] ** 3, 0.0, None),
        "P(z > 1)": (lambda z: z[:, 0] > 1, stats.norm.sf(1), None),
    }
    for name, (f, truth, order) in asked.items():
        shape = (4, n // 4) if "4" in name else (1, n)
        found = []
        for _ in range(runs):
            z = rng.standard_normal((*shape, 1))
            for k in range(1, shape[1]):
                z[:, k] = 0.9 * z[:, k - 1] + np.sqrt(0.19) * z[:, k]
            found.append(cv.expect(f, z, -z, order=order))
        yield name, truth, found


def _row(name, truth, found, fit=(), k=()):
    """Shares of all answers: that hold; warned of by themselves; of the others, that hold."""
    own = np.array([len(a.warnings) > len(fit) for a in found])
    part = lambda what: np.array([getattr(a, what)[k] for a in found])
    z = np.abs((part("estimate") - truth) / part("se"))
    held, off = z < 1.96, z > 3
    middle = lambda what: _digits(np.median(part(what)))
    return {
        "name": name, "truth": _digits(truth), "se": middle("se"), "runs": len(found),
        "covered": _digits(held.mean()), "warned": _digits(own.mean()),
        "covered_unwarned": _digits(held[~own].mean()) if (~own).any() else None,
        "off": int(off.sum()), "off_warned": int((off & own).sum()),
        "k_hat": _digits(np.median([a.k_hat for a in found])), "k_f": middle("k_f"),
        "before": middle("before"), "after": middle("after"),
    }  # fmt: skip
