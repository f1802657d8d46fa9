"""Short runs of NUTS with and without Stein's variates: effective draws, and do intervals hold?

    python -m benchmarks.chains --save

Three models of NumPyro, one hierarchical. Truths are no chains: a grid over the one scale with all
else normal in closed form, and Gauss-Hermite nodes in four dimensions about the mode.
"""

import autograd.numpy as anp
import numpy as np
from autograd import value_and_grad

import cvlib as cv
from benchmarks import stored
from experiments import posteriors, truths

CHAINS, DRAWS, WARMUP = 4, 250, 300  # of a run


# Models, and their truths -------------------------------------------------------------------------


def eight_schools():
    """Non-centred. Given tau the mean mu and every effect are normal: tau alone is on a grid."""
    import numpyro
    from numpyro import distributions as dist

    effects, errors = posteriors.load("eight_schools").model.data[:2]

    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            eta = numpyro.sample("eta", dist.Normal(0, 1))
            theta = numpyro.deterministic("theta", mu + tau * eta)
            numpyro.sample("y", dist.Normal(theta, errors), obs=effects)

    log, at = truths.schools(np.linspace(-13, 8, 8001), effects, errors)
    theta, mu, tau = at[:, :8], at[:, 8:9], at[:, 9:]
    p = np.exp(log - log.max())
    p /= p.sum()
    of = {"mu": mu, "tau": tau, "eta": (theta - mu) / tau, "theta": theta}
    return model, (), {name: p @ x for name, x in of.items()}


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
        eta = anp.dot(b, X.T)
        return anp.dot(eta, y) - anp.sum(anp.logaddexp(0, eta), -1) - anp.sum(b**2, -1) / 12.5

    return model, (X, y), {"beta": nodes(log, lambda b: b)}


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
        k = anp.exp(z[..., :1])
        power = k * (np.log(t) - anp.dot(z[..., 1:], X.T))
        own = anp.sum(broke * (z[..., :1] + power) - anp.exp(power), -1)
        return own + 2 * z[..., 0] - k[..., 0] - anp.sum(z[..., 1:] ** 2, -1) / 8

    found = nodes(log, lambda z: np.column_stack([np.exp(z[:, 0]), z[:, 1:]]))
    return model, (X, t, broke), {"k": found[:1], "beta": found[1:]}


def nodes(log, f, d=4, n=24):
    """E f from a log density of autograd's; no chain has a part in it."""
    return truths.by_nodes(log, value_and_grad(lambda z: -log(z)), d, f, n, np.inf)


# Runs ---------------------------------------------------------------------------------------------


def measured(name, count=40):
    """Rows, one a quantity: over all runs the gain in effective draws, and how many hold."""
    import jax
    import numpyro
    from numpyro import infer

    numpyro.enable_x64()
    described, given, truth = MODELS[name]()
    model, exact = cv.models.from_numpyro(described, *given), np.concatenate([*truth.values()])
    sampler = infer.MCMC(
        infer.NUTS(described), num_warmup=WARMUP, num_samples=DRAWS, num_chains=count * CHAINS,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    # chains know nothing of each other: all runs at once
    sampler.run(jax.random.PRNGKey(0), *given)
    every = {k: np.asarray(x, float) for k, x in sampler.get_samples(True).items()}
    gain, held = [], []
    for run in range(count):
        own = slice(run * CHAINS, (run + 1) * CHAINS)
        table = cv.summary({k: x[own] for k, x in every.items()}, model)
        rows = [row for k in truth for row in table.rows if row.split("[")[0] == k]
        of = lambda column: np.array([table[column][row] for row in rows])
        gain.append(of("ess") / of("raw ess"))
        held.append(np.abs(of("mean") - exact) < 1.96 * of("mcse"))
    for row, more, good in zip(rows, np.median(gain, 0), np.sum(held, 0)):
        yield {"model": name, "chains": CHAINS, "draws": DRAWS, "mean of": row,
               "gain": stored.few(more), "held": int(good)}  # fmt: skip


MODELS = {"eight schools": eight_schools, "logistic": logistic, "weibull": weibull}


def measure():
    return {"rows": [row for name in MODELS for row in stored.told(measured(name))]}


if __name__ == "__main__":
    stored.command(__doc__, "chains", ("numpy", "jax", "numpyro"), measure)
