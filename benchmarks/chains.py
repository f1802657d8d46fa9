"""Short runs of NUTS with and without Stein's variates: effective draws, and do intervals hold?

    python -m benchmarks.chains [--save] [--runs 40]

Three models of NumPyro, one hierarchical. Truths are no chains: a grid over the one scale with all
else normal in closed form, and Gauss-Hermite nodes in four dimensions about the mode.
"""

import argparse
from itertools import product

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored

RESULTS = stored.path("chains")
SHAPES = (4, 250), (24, 300)  # chains, draws of each
WARMUP = 300
WARNED = 0.5  # k_f from which the error of a mean is not believed
TAILS = {"5 %": 0.05, "95 %": 0.95}
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


# Models, and their truths -------------------------------------------------------------------------


def eight_schools():
    """Non-centred. Given tau the mean mu and every effect are normal: tau alone is on a grid."""
    import numpyro
    from numpyro import distributions as dist

    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            eta = numpyro.sample("eta", dist.Normal(0, 1))
            theta = numpyro.deterministic("theta", mu + tau * eta)
            numpyro.sample("y", dist.Normal(theta, ERRORS), obs=EFFECTS)

    t = np.linspace(-12, 9, 8001)[:, None]  # log tau
    tau, v = np.exp(t), np.exp(2 * t) + ERRORS**2  # (n, 1), (n, 8)
    precision = 1 / 25 + (1 / v).sum(1)
    m = (EFFECTS / v).sum(1) / precision  # E mu given tau
    log = -0.5 * np.log(v).sum(1) - 0.5 * np.log(precision) + 0.5 * precision * m**2
    log += -0.5 * (EFFECTS**2 / v).sum(1) + t[:, 0] - np.log1p((tau[:, 0] / 5) ** 2)
    p = np.exp(log - log.max())
    p /= p.sum()
    eta = tau / v * (EFFECTS - m[:, None])
    of = {"mu": m, "tau": tau[:, 0], "eta": eta, "theta": m[:, None] + tau * eta}
    return model, (), {name: np.atleast_1d(p @ x) for name, x in of.items()}


def logistic(rows=60):
    """A logistic regression with few rows: its posterior is skewed."""
    import numpyro
    from numpyro import distributions as dist

    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, 3))])
    y = 1.0 * (rng.uniform(size=rows) < 1 / (1 + np.exp(-X @ [-1.0, 1.5, -1, 0.5])))

    def model(X, y):
        beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([4]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)

    def log(b):
        eta = b @ X.T
        return eta @ y - np.logaddexp(0, eta).sum(-1) - (b**2).sum(-1) / 12.5

    return model, (X, y), {"beta": nodes(log, 4, lambda b: b)}


def weibull(rows=40):
    """Times until something breaks, some cut off: a shape, a level and two slopes."""
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist

    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, 2))])
    t = np.exp(X @ [0.5, 0.7, -0.4]) * rng.weibull(1.5, rows)
    cut = 4.0
    broke, t = 1.0 * (t < cut), np.minimum(t, cut)

    def model(X, t, broke):
        k = numpyro.sample("k", dist.Gamma(2, 1))
        beta = numpyro.sample("beta", dist.Normal(0, 2).expand([3]).to_event(1))
        power = k * (jnp.log(t) - X @ beta)
        numpyro.factor("y", jnp.sum(broke * (jnp.log(k) + power) - jnp.exp(power)))

    def log(z):  # (log k, beta); the Jacobian of k is in the prior's 2 log k
        k = np.exp(z[..., :1])
        power = k * (np.log(t) - z[..., 1:] @ X.T)
        own = (broke * (z[..., :1] + power) - np.exp(power)).sum(-1)
        return own + 2 * z[..., 0] - k[..., 0] - (z[..., 1:] ** 2).sum(-1) / 8

    found = nodes(log, 4, lambda z: np.column_stack([np.exp(z[:, 0]), z[:, 1:]]))
    return model, (X, t, broke), {"k": found[:1], "beta": found[1:]}


def nodes(log, d, f, n=24):
    """E f by Gauss-Hermite nodes in d dimensions about the mode, scaled by its curvature."""
    best = optimize.minimize(lambda z: -log(z), np.zeros(d), tol=1e-10).x
    h, eye = 1e-3, np.eye(d)
    at = lambda i, j, a, b: log(best + h * (a * eye[i] + b * eye[j]))
    H = np.array([
        [(at(i, j, 1, 1) - at(i, j, 1, -1) - at(i, j, -1, 1) + at(i, j, -1, -1)) / (4 * h * h)
         for j in range(d)] for i in range(d)
    ])  # fmt: skip
    x, w = np.polynomial.hermite_e.hermegauss(n)
    e = np.array([*product(x, repeat=d)])
    z = best + 1.15 * e @ np.linalg.cholesky(np.linalg.inv(-H)).T
    log_w = np.array([*map(sum, product(np.log(w) + x**2 / 2, repeat=d))])
    own = np.concatenate([log(part) for part in np.array_split(z, 50)]) + log_w
    p = np.exp(own - own.max())
    return p @ f(z) / p.sum()


# Runs ---------------------------------------------------------------------------------------------


def runs(make, shape, count):
    """Rows, one a quantity: over all runs the gain in effective draws, what holds, what warns."""
    import jax
    import numpyro
    from numpyro import infer

    numpyro.enable_x64()
    described, given, truth = make()
    model = cv.models.from_numpyro(described, *given)
    chains, draws = shape
    sampler = infer.MCMC(
        infer.NUTS(described), num_warmup=WARMUP, num_samples=draws, num_chains=count * chains,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.run(
        jax.random.PRNGKey(0), *given
    )  # chains know nothing of each other: all runs at once
    every = {k: np.asarray(x, float) for k, x in sampler.get_samples(True).items()}
    exact, seen, refused = np.concatenate([*truth.values()]), [], 0
    for run in range(count):
        samples = {k: x[run * chains : (run + 1) * chains] for k, x in every.items()}
        try:
            table = cv.summary(samples, model)
        except ValueError as error:
            print(error)
            refused += 1
            continue
        rows = [row for k in truth for row in table.rows if row.split("[")[0] == k]
        each = {k: np.array([table[k][row] for row in rows]) for k in table.columns}
        x = np.concatenate([samples[k].reshape(chains * draws, -1) for k in truth], 1)
        general = any(" draws are " in w or "do not quite" in w for w in table.warnings)
        warned = (each["k_f"] > WARNED) | general
        seen.append({
            "raw mean": x.mean(0), **each, "warned": warned,
            **{f"raw {k}": np.quantile(x, u, axis=0) for k, u in TAILS.items()}, "raw sd": x.std(0),
        })  # fmt: skip
    return rows, exact, {k: np.array([one[k] for one in seen]) for k in seen[0]}, refused


def measured(name, shape, count):
    """{quantity: what was seen}."""
    rows, exact, seen, refused = runs(MODELS[name], shape, count)
    sd, gain, fine = np.median(seen["sd"], 0), seen["ess"] / seen["raw ess"], ~seen["warned"]
    held = lambda what, mcse: np.abs(seen[what] - exact) < 1.96 * seen[mcse]
    good, of_raw = held("mean", "mcse"), held("raw mean", "raw mcse")
    for k, row in enumerate(rows):
        own = gain[fine[:, k], k]
        error = lambda x, of=0.0: stored.few(np.sqrt(((x[:, k] - of) ** 2).mean()) / sd[k])
        spread = lambda what: error(seen[what] - seen[what].mean(0))
        found = {"gain": np.median(gain[:, k]), "least unwarned": own.min(initial=np.inf)}
        counts = {
            "refused": refused, "unwarned": len(own), "unwarned below 5": (own < 5).sum(),
            "held": good[:, k].sum(), "unwarned held": (good & fine)[:, k].sum(),
            "held raw": of_raw[:, k].sum(),
        }  # fmt: skip
        yield {
            "model": name, "chains": shape[0], "draws": shape[1], "mean of": row,
            **{what: stored.few(x) for what, x in found.items()},
            **{what: int(x) for what, x in counts.items()},
            "error raw": error(seen["raw mean"], exact[k]), "error": error(seen["mean"], exact[k]),
            **{f"scatter of {what}": spread(what) for what in ("raw sd", "sd", "raw 95 %", "95 %")},
        }  # fmt: skip


MODELS = {"eight schools": eight_schools, "logistic": logistic, "weibull": weibull}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    with threadpool_limits(1):
        rows = [
            row
            for shape in SHAPES
            for name in MODELS
            for row in stored.told(measured(name, shape, options.runs))
        ]
    if options.save:
        stored.save(RESULTS, ["numpy", "jax", "numpyro"], rows=rows)


if __name__ == "__main__":
    main()
