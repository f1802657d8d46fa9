"""Models with groups: what the intervals of answers cover, and what 1,000 and 10,000 groups take.

    python -m benchmarks.groups --jobs 14 --save        40 data sets of each kind
    python -m benchmarks.groups --jobs 2 --sets 4       a small version
    python -m benchmarks.groups --part times --save     the seconds, and those of NUTS (NumPyro)
    python -m benchmarks.groups --part beside --save    200 groups by other ways

Truth is a sum over a grid of the globals, with a fine grid over the effect of each group inside, or
its closed form: nothing of it is the package's. Seconds are those of one processor, and of NUTS
without compilation.
"""

import json
import time
import warnings
from itertools import product
from multiprocessing import get_context
from typing import Any

import autograd.numpy as anp
import numpy as np
from scipy.interpolate import CubicSpline
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored

GROUPS, ROWS, SETS, LINE = 150, 4, 40, 1.1  # P(tau > LINE) is asked
KINDS = "bernoulli", "poisson", "normal", "intercept and slope"
X = np.tile([0.0, 1.0], ROWS // 2)  # of the rows of every group
HALF = np.log(2 * np.pi) / 2
SIZES, PARTS = (1_000, 10_000), ("cells", "times", "beside")
PROGRAMS: dict[int, Any] = {}  # of NUTS, by the number of groups
GLOBALS = {"b": (), "slope": (), "tau": cv.positive}


def normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - anp.log(sd) - HALF


# Data and models ----------------------------------------------------------------------------------


def simulated(kind, seed, groups=GROUPS):
    """y (groups, rows), of effects with standard deviation one."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    u, v = rng.standard_normal((2, groups, 1))
    eta = 0.3 + 0.5 * X + u + v * (X - 0.5) * (kind == KINDS[3])
    if kind == "bernoulli":
        return (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))) * 1.0
    return rng.poisson(np.exp(eta)) * 1.0 if kind == "poisson" else rng.normal(eta, 0.7)


def modelled(kind, y):
    """The model of all rows: globals b, slope, tau, and s, the sd of rows or of the intercept."""
    x, labels = np.tile(X, len(y)), np.repeat(np.arange(len(y)), ROWS)
    eta = lambda p, x: p.b + p.slope * x + p.u
    log_liks = {
        "bernoulli": lambda p, d: d[1] * eta(p, d[0]) - anp.logaddexp(0, eta(p, d[0])),
        "poisson": lambda p, d: d[1] * eta(p, d[0]) - anp.exp(eta(p, d[0])),
        "normal": lambda p, d: normal(d[1], eta(p, d[0]), p.s),
        KINDS[3]: lambda p, d: normal(
            d[1], p.b + p.slope * d[0] + p.u[..., 0] + p.u[..., 1] * (d[0] - 0.5), 0.7
        ),
    }
    both = lambda p: normal(p.u[..., 0], 0, p.s) + normal(p.u[..., 1], 0, p.tau)
    two, more = kind == KINDS[3], kind in KINDS[2:]
    prior = lambda p: normal(p.b, 0, 2) + normal(p.slope, 0, 2) - 0.5 * (p.tau / 2) ** 2
    return cv.models.Model(
        log_liks[kind], (lambda p: prior(p) - 0.5 * (p.s / 2) ** 2) if more else prior,
        (x, y.ravel()), name=kind, groups=labels, effects={"u": 2 if two else ()},
        parameters=GLOBALS | ({"s": cv.positive} if more else {}),
        log_effect=both if two else lambda p: normal(p.u, 0, p.tau),
    )  # fmt: skip


# Truth --------------------------------------------------------------------------------------------


def grid(*ends, n=49):
    """Points of a grid, one array a coordinate, all of its shape."""
    return np.meshgrid(*(np.linspace(*end, n) for end in ends), indexing="ij", sparse=True)


def located(kind, y):
    """A grid of the globals where the mass is, found by a coarse one, and its weights."""
    ends = [(-2.0, 2.5), (-2.0, 2.5), (-3.0, 1.5), (-3.0, 1.5)]
    if kind in KINDS[:2]:
        ends = ends[:3]
    for n in (25, 25, 25) if len(ends) == 3 else (17, 17, 17, 25):
        at = grid(*ends, n=n)
        weight = shares(heights(kind, y, *at))
        new = []
        for x, margin in zip(at, margins(weight)):
            x, step = x.ravel(), x.ravel()[1] - x.ravel()[0]
            inside = x[margin > 1e-7 * margin.max()]
            new.append((inside[0] - step, inside[-1] + step))
        ends = new
    return at, weight


def shares(log):
    """Weights that sum to one, from their logarithms."""
    weight = np.exp(log - log.max())
    return weight / weight.sum()


def margins(weight):
    axes = {*range(weight.ndim)}
    return [weight.sum(tuple(axes - {k})) for k in range(weight.ndim)]


def truth(kind, y):
    """E tau and P(tau > LINE)."""
    at, weight = located(kind, y)
    tau, margin = at[2].ravel(), margins(weight)[2]
    mean = margin @ np.exp(tau)
    t = np.linspace(tau[0], tau[-1], 20_001)  # the margin is smooth: its logarithm by a spline
    fine = np.exp(CubicSpline(tau, np.log(margin + 1e-300))(t))
    above = fine[t > np.log(LINE)].sum() / fine.sum()
    return mean, above


@np.errstate(over="ignore")
def heights(kind, y, b, slope, log_tau, log_s=0.0):
    """log p(y, globals) on a grid, in b, slope, log tau and log s."""
    tau, s = np.exp(log_tau), np.exp(log_s)
    prior = -0.5 * ((b / 2) ** 2 + (slope / 2) ** 2 + (tau / 2) ** 2) + log_tau
    if kind in KINDS[2:]:
        prior = prior - 0.5 * (s / 2) ** 2 + log_s
        low, high = (y[:, X == x].mean(1) for x in (0.0, 1.0))  # half of the rows each
        total, half = len(y), ROWS / 2
        if kind == "normal":
            left = sum(((y[:, X == x] - y[:, X == x].mean(1)[:, None]) ** 2).sum() for x in (0, 1))
            prior = prior - left / (2 * s**2) - total * (ROWS - 2) * log_s
            sds = np.sqrt(tau**2 + s**2 / ROWS), s * np.sqrt(2 / half)
        else:
            sds = np.sqrt(s**2 + 0.7**2 / ROWS), np.sqrt(tau**2 + 0.7**2 * 2 / half)
        # the mean of a group, and the difference of its halves
        found = _normals((low + high) / 2, b + slope / 2, sds[0])
        return prior + found + _normals(high - low, slope, sds[1])
    u = np.linspace(-8, 8, 321)  # in units of tau
    log_w = np.log(u[1] - u[0]) - 0.5 * u**2 - HALF
    # n0 eta0 + n1 eta1 = (n0 + n1) eta0 + n1 slope: the effect meets a group's sum alone
    sums, times = np.unique(y.sum(1), return_counts=True)
    found = np.zeros(np.broadcast_shapes(b.shape, slope.shape, log_tau.shape))
    for i, k in np.ndindex(found.shape[0], found.shape[2]):
        low = b[i].ravel()[0] + tau[0, 0, k] * u  # (u,)
        high = low + slope.ravel()[:, None]  # (slopes, u)
        if kind == "poisson":
            log = log_w - ROWS / 2 * (np.exp(low) + np.exp(high))
        else:
            log = log_w - ROWS / 2 * (np.logaddexp(0, low) + np.logaddexp(0, high))
        for total, n in zip(sums, times):
            one = log + total * low
            most = one.max(1)
            found[i, :, k] += n * (np.log(np.exp(one - most[:, None]).sum(1)) + most)
    prior = prior + y[:, X == 1].sum() * slope
    return found + prior


def _normals(x, mean, sd):
    """The sum of log N(x | mean, sd^2) over x (n,)."""
    return -len(x) * np.log(sd) - 0.5 * (len(x) * (x.mean() - mean) ** 2 + len(x) * x.var()) / sd**2


# What is measured ---------------------------------------------------------------------------------


@threadpool_limits.wrap(1)
def covered(kind, seed):
    """A data set: do the intervals of E tau and P(tau > LINE) hold, and does the fit warn?"""
    y = simulated(kind, seed)
    with warnings.catch_warnings(action="ignore"):
        fit = cv.fit(modelled(kind, y), seconds=900, progress=False)
        # other points for every data set: the same ones err alike where posteriors are alike
        fit.lot = fit._weighed(len(fit.lot.w), np.random.default_rng(seed))
        answers = [fit.expect(lambda p: p.tau), fit.expect(lambda p: (p.tau > LINE) * 1.0)]
    held = [
        bool(abs(float(x.estimate) - true) <= 1.96 * float(x.se) + 1e-6)
        for x, true in zip(answers, truth(kind, y))
    ]
    return held, bool(fit.warnings)


def cells(kinds, found):
    """One row a kind, of [(which hold, is the fit warned of)] for its data sets."""
    for kind in KINDS:
        held, warned = zip(*(one for k, one in zip(kinds, found) if k == kind))
        means, shares = np.sum(held, 0)
        yield {"kind": kind, "sets": len(held), "E tau": int(means), "P": int(shares),
               "warned": sum(warned)}  # fmt: skip


# Two hundred groups, other ways -------------------------------------------------------------------


def first_effect(b, slope, log_tau, total):
    """Mean and mean square of the effect of a group with `total` ones, at globals on a grid."""
    v = np.linspace(-8, 8, 321)
    u = np.exp(log_tau)[..., None] * v
    eta = b[..., None] + u
    log = total * eta - ROWS / 2 * (np.logaddexp(0, eta) + np.logaddexp(0, eta + slope[..., None]))
    weight = np.exp(log - 0.5 * v**2 - (log - 0.5 * v**2).max(-1, keepdims=True))
    return [(weight * u**k).sum(-1) / weight.sum(-1) for k in (1, 2)]


def laplace(y):
    """E tau and E u_1 on a grid of the globals, with Laplace's approximation for every effect."""
    at = b, slope, log_tau = [
        x[..., None] for x in grid((-0.5, 1.1), (-0.3, 1.3), (-1.0, 0.7), n=33)
    ]
    sums, times = np.unique(y.sum(1), return_counts=True)
    m = np.zeros(np.broadcast_shapes(*(x.shape for x in at), sums.shape))
    share = lambda eta: 1 / (1 + np.exp(-eta))
    for _ in range(25):  # Newton's steps, for all groups and globals at once
        one, two = share(b + m), share(b + slope + m)
        curvature = ROWS / 2 * (one * (1 - one) + two * (1 - two)) + np.exp(-2 * log_tau)
        m = m + (sums - ROWS / 2 * (one + two) - m * np.exp(-2 * log_tau)) / curvature
    rows = np.logaddexp(0, b + m) + np.logaddexp(0, b + slope + m)
    log = sums * (b + m) - ROWS / 2 * rows - 0.5 * (m * np.exp(-log_tau)) ** 2
    log = (log - log_tau - np.log(curvature) / 2) @ times + y[:, X == 1].sum() * slope[..., 0]
    prior = (b / 2) ** 2 + (slope / 2) ** 2 + (np.exp(log_tau) / 2) ** 2
    weight = shares(log + (log_tau - prior / 2)[..., 0])
    own = m[..., sums == y[0].sum()][..., 0]
    return (weight * np.exp(log_tau[..., 0])).sum(), (weight * own).sum()


def non_centred(y):
    """All effects among the unknowns, in units of tau."""
    code, x = np.repeat(np.arange(len(y)), ROWS), np.tile(X, len(y))

    def log_lik(p, rows):
        eta = p.b + p.slope * rows[0] + p.tau * cv.pick(p.v, rows[2])
        return rows[1] * eta - anp.logaddexp(0, eta)

    def log_prior(p):
        near = (p.b / 2) ** 2 + (p.slope / 2) ** 2 + (p.tau / 2) ** 2
        return -0.5 * (near + anp.sum(p.v**2, -1))

    return cv.models.Model(log_lik, log_prior, (x, y.ravel(), code),
                           parameters=GLOBALS | {"v": len(y)})  # fmt: skip


def beside(groups=200, seeds=5):
    """Errors of E tau and of the first effect in posterior sds, root mean square of seeds."""
    kind, y = "bernoulli", simulated("bernoulli", 1, groups)
    at, weight = located(kind, y)
    tau = np.exp(at[2])
    effect, square = first_effect(*np.broadcast_arrays(*at), y[0].sum())
    means = np.array([(weight * tau).sum(), (weight * effect).sum()])
    sds = np.sqrt(np.array([(weight * tau**2).sum(), (weight * square).sum()]) - means**2)

    def integrated(seed):
        fit = cv.fit(modelled(kind, y), seed=seed, progress=False)
        return fit.summary()["mean"]["tau"], fit.effects("u")["mean"][0]

    def everything(seed):
        fit = cv.fit(non_centred(y), seed=seed, bend=False, seconds=300, progress=False)
        draws = fit.draws(4000, corrected=False)
        return draws["tau"].mean(), (draws["tau"] * draws["v"][:, 0]).mean()

    def chains(seed):
        draws = nuts_draws(y, seed, 1000, chains=4)
        return draws["tau"].mean(), (draws["tau"] * draws["v"][..., 0]).mean()

    ways = {
        "effects integrated out, groups=": integrated,
        "grid of the globals, Laplace inside": lambda seed: laplace(y),
        "Gaussian q over all effects": everything,
        "NUTS": chains,
    }
    for name, way in ways.items():
        off, seconds = [], []
        for seed in range(seeds):
            start = time.process_time()
            with warnings.catch_warnings(action="ignore"):
                found = way(seed)
            seconds.append(time.process_time() - start)
            off.append((np.array(found, float) - means) / sds)
        rms = np.sqrt(np.mean(np.square(off), 0))
        yield {
            "way": name, "E tau": stored.few(rms[0]), "one effect": stored.few(rms[1]),
            "seconds": stored.few(np.median(seconds[1:])), "cold": stored.few(seconds[0]),
        }  # fmt: skip


def nuts_draws(y, seed, draws, chains=1):
    """{name: (chains, draws, ...)} of NumPyro's NUTS, effects in units of tau."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    jax.config.update("jax_enable_x64", True)
    groups = len(y)
    if groups not in PROGRAMS:
        x, g = np.tile(X, groups), np.repeat(np.arange(groups), ROWS)

        def program():
            b = numpyro.sample("b", dist.Normal(0, 2))
            slope = numpyro.sample("slope", dist.Normal(0, 2))
            tau = numpyro.sample("tau", dist.HalfNormal(2))
            v = numpyro.sample("v", dist.Normal(0, 1).expand([groups]).to_event(1))
            logits = b + slope * x + tau * v[g]
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=jnp.array(y.ravel()))

        PROGRAMS[groups] = numpyro.infer.MCMC(
            numpyro.infer.NUTS(program), num_warmup=500, num_samples=draws, progress_bar=False
        )
    mcmc, found = PROGRAMS[groups], []
    for key in jax.random.split(jax.random.PRNGKey(seed), chains):
        mcmc.run(key)  # one chain: several at once are compiled anew by every run
        found.append({k: np.asarray(x) for k, x in mcmc.get_samples().items()})
    return {k: np.array([one[k] for one in found]) for k in found[0]}


def by_fit(groups):
    """A function that fits, and gives the error of E tau in the summary."""
    model = modelled("bernoulli", simulated("bernoulli", 1, groups))
    fit = lambda: cv.fit(model, seconds=600, progress=False)
    return lambda: fit().summary()["error of mean"]["tau"]


def by_nuts(groups, draws=1000):
    """The same by NUTS, compiled before."""
    from numpyro.diagnostics import effective_sample_size

    y = simulated("bernoulli", 1, groups)
    nuts_draws(y, 0, draws)
    error = lambda tau: tau.std() / np.sqrt(effective_sample_size(tau))
    return lambda: error(nuts_draws(y, 1, draws)["tau"])


def times():
    """Seconds of one processor."""
    for way, ready in {"cvlib": by_fit, "NUTS": by_nuts}.items():
        for groups in SIZES:
            work, start = ready(groups), time.process_time()
            with warnings.catch_warnings(action="ignore"):
                error = work()
            seconds = time.process_time() - start
            yield {"groups": groups, "way": way, "seconds": stored.few(seconds),
                   "error": stored.few(error)}  # fmt: skip


def measure(jobs, sets, part):
    """All parts of the file, this one anew."""
    path = stored.path("groups")
    parts = json.loads(path.read_text()) if path.exists() else {}
    parts = {name: parts.get(name, []) for name in PARTS}
    if part == "cells":
        kinds, seeds = zip(*product(KINDS, range(1, sets + 1)))
        with get_context("spawn").Pool(jobs) as pool:
            found = cells(kinds, pool.starmap(covered, zip(kinds, seeds), chunksize=1))
    else:
        found = {"times": times, "beside": beside}[part]()
    return parts | {part: stored.told(found)}


if __name__ == "__main__":
    packages = "numpy", "scipy", "autograd"
    stored.command(__doc__, "groups", packages, measure, jobs=1, sets=SETS, part="cells")
