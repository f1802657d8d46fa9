"""Models with groups: what the intervals of answers cover, and what 1,000 and 10,000 groups take.

    python -m benchmarks.groups --jobs 14 --save        40 data sets of each kind, and the seconds
    python -m benchmarks.groups --jobs 2 --sets 4       a small version
    python -m benchmarks.groups --nuts --save           the rows of NUTS (NumPyro), in the same file

Truth is a sum over a grid of the globals, with a fine grid over the effect of each group inside, or
its closed form: nothing of it is the package's. Seconds are those of one processor; those of NUTS
are told with and without compilation, and scaled to the error of `fit`'s answer.
"""

import argparse
import json
import time
import warnings
from multiprocessing import get_context

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
SIZES = 1_000, 10_000
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


def truth(kind, y):
    """E tau, P(tau > LINE) and the sd of tau: coarse grid first, then one where the mass is."""
    ends = [(-2.0, 2.5), (-2.0, 2.5), (-3.0, 1.5), (-3.0, 1.5)]
    if kind in KINDS[:2]:
        ends = ends[:3]
    for n in (25, 25, 25) if len(ends) == 3 else (17, 17, 17, 25):
        at = grid(*ends, n=n)
        log = heights(kind, y, *at)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        margins = [weight.sum(tuple({*range(len(ends))} - {k})) for k in range(len(ends))]
        new = []
        for x, margin in zip(at, margins):
            x, step = x.ravel(), x.ravel()[1] - x.ravel()[0]
            inside = x[margin > 1e-7 * margin.max()]
            new.append((inside[0] - step, inside[-1] + step))
        ends = new
    tau, margin = at[2].ravel(), margins[2]
    mean = margin @ np.exp(tau)
    t = np.linspace(tau[0], tau[-1], 20_001)  # the margin is smooth: its logarithm by a spline
    fine = np.exp(CubicSpline(tau, np.log(margin + 1e-300))(t))
    above = fine[t > np.log(LINE)].sum() / fine.sum()
    return mean, above, np.sqrt(margin @ (np.exp(tau) - mean) ** 2)


@np.errstate(over="ignore")
def heights(kind, y, b, slope, log_tau, log_s=0.0):
    """log p(y, globals) on a grid, in b, slope, log tau and log s."""
    tau, s = np.exp(log_tau), np.exp(log_s)
    prior = -0.5 * ((b / 2) ** 2 + (slope / 2) ** 2 + (tau / 2) ** 2) + log_tau
    if kind in KINDS[2:]:
        prior = prior - 0.5 * (s / 2) ** 2 + log_s
        low, high = (y[:, X == x].mean(1) for x in (0.0, 1.0))  # half of the rows each
        total, half = len(y), ROWS / 2
        if kind == "normal":  # the mean of a group, the difference of its halves, and what is left
            mean, apart = (low + high) / 2, high - low
            left = sum(((y[:, X == x] - y[:, X == x].mean(1)[:, None]) ** 2).sum() for x in (0, 1))
            found = _normals(mean, b + slope / 2, np.sqrt(tau**2 + s**2 / ROWS))
            found = found + _normals(apart, slope, s * np.sqrt(2 / half))
            return prior + found - left / (2 * s**2) - total * (ROWS - 2) * log_s
        sd = np.sqrt(s**2 + 0.7**2 / ROWS), np.sqrt(tau**2 + 0.7**2 * 2 / half)
        found = _normals((low + high) / 2, b + slope / 2, sd[0])
        return prior + found + _normals(high - low, slope, sd[1])
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
    """A data set: what a fit says of E tau and P(tau > LINE), and what is true."""
    y = simulated(kind, seed)
    mean, above, sd = truth(kind, y)
    with warnings.catch_warnings(action="ignore"):
        start = time.process_time()
        fit = cv.fit(modelled(kind, y), seconds=900, progress=False)
        seconds = time.process_time() - start
        # other points for every data set: the same ones err alike where posteriors are alike
        fit.lot = fit._weighed(len(fit.lot.w), np.random.default_rng(seed))
        answers = [fit.expect(lambda p: p.tau), fit.expect(lambda p: (p.tau > LINE) * 1.0)]
    says = [*fit.warnings, *(w for a in answers for w in a.warnings)]
    found = {"kind": kind, "seed": seed, "warned": bool(fit.warnings), "says": says[:2]}
    for name, answer, true in zip(("mean", "above"), answers, (mean, above)):
        x, se = float(answer.estimate), float(answer.se)
        found |= {name: x, f"{name} se": se, f"{name} true": float(true)}
        found[f"{name} in"] = bool(abs(x - true) <= 1.96 * se + 1e-6)
    return found | {"off": float(abs(found["mean"] - mean) / sd), "seconds": round(seconds, 2)}


def cells(found):
    """One row a kind."""
    for kind in KINDS:
        own = [row for row in found if row["kind"] == kind]
        if own:
            yield {
                "kind": kind, "sets": len(own), "E tau": sum(r["mean in"] for r in own),
                "P": sum(r["above in"] for r in own), "warned": sum(r["warned"] for r in own),
                "off": stored.few(max(r["off"] for r in own)),
                "se": stored.few(np.median([r["mean se"] for r in own])),
                "seconds": stored.few(np.median([r["seconds"] for r in own])),
            }  # fmt: skip


@threadpool_limits.wrap(1)
def timed(groups):
    """Seconds of one processor for a fit with its summary, and for the effects."""
    model = modelled("bernoulli", simulated("bernoulli", 1, groups))
    with warnings.catch_warnings(action="ignore"):
        start = time.process_time()
        fit = cv.fit(model, seconds=600, progress=False)
        table = fit.summary()
        after = time.process_time()
        fit.effects("u")
    return {
        "groups": groups, "way": "cvlib", "seconds": stored.few(after - start),
        "effects": stored.few(time.process_time() - after), "compiling": 0.0,
        "E tau": round(table["mean"]["tau"], 5), "error": stored.few(table["error of mean"]["tau"]),
    }  # fmt: skip


def nuts(groups, draws=1000):
    """The same by NUTS, effects in units of tau; its seconds at the same error follow from ESS."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import effective_sample_size

    jax.config.update("jax_enable_x64", True)
    y = simulated("bernoulli", 1, groups).ravel()
    x, g = np.tile(X, groups), np.repeat(np.arange(groups), ROWS)

    def program():
        b = numpyro.sample("b", dist.Normal(0, 2))
        slope = numpyro.sample("slope", dist.Normal(0, 2))
        tau = numpyro.sample("tau", dist.HalfNormal(2))
        v = numpyro.sample("v", dist.Normal(0, 1).expand([groups]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=b + slope * x + tau * v[g]), obs=jnp.array(y))

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(program), num_warmup=500, num_samples=draws, progress_bar=False
    )
    seconds = []
    for seed in (0, 1):  # the second finds everything compiled
        start = time.process_time()
        mcmc.run(jax.random.PRNGKey(seed))
        jax.block_until_ready(mcmc.get_samples())
        seconds.append(time.process_time() - start)
    tau = np.asarray(mcmc.get_samples(group_by_chain=True)["tau"])
    error = tau.std() / np.sqrt(effective_sample_size(tau))
    return {
        "groups": groups, "way": "NUTS", "seconds": stored.few(seconds[1]), "effects": 0.0,
        "compiling": stored.few(max(seconds[0] - seconds[1], 0)), "E tau": round(tau.mean(), 5),
        "error": stored.few(error),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--sets", type=int, default=SETS, help=f"data sets of each kind ({SETS})")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="groups that are timed")
    parser.add_argument("--nuts", action="store_true", help="the rows of NUTS alone")
    parser.add_argument("--save", action="store_true", help="write groups.json for the book")
    options = parser.parse_args()
    path = stored.path("groups")
    old = json.loads(path.read_text()) if path.exists() else {"cells": [], "sets": [], "times": []}
    times = [row for row in old["times"] if (row["way"] == "NUTS") != options.nuts]
    found = old["sets"]
    if options.nuts:
        times += stored.told(map(nuts, options.sizes))
    else:
        tasks = [(kind, seed) for seed in range(1, options.sets + 1) for kind in KINDS]
        with get_context("spawn").Pool(options.jobs) as pool:
            found = pool.starmap(covered, tasks, chunksize=1)
            times += stored.told(pool.apply(timed, (n,)) for n in options.sizes)  # one by one
    parts = {"cells": stored.told(cells(found)), "sets": found, "times": times}
    if options.save:
        stored.save(path, ("numpy", "scipy", "autograd"), **parts)


if __name__ == "__main__":
    main()
