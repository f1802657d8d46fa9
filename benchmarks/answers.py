"""Answers after a fit, on seven posteriors and three more: errors against draws, seconds, and NUTS.

    python -m benchmarks.answers --save       on a quiet machine
    python -m benchmarks.answers --quick      one problem, few repeats: does it run?

An error is the median over quantities of the root mean squared error of a posterior mean, in
posterior standard deviations. The truth is that of 40,000 defensive draws with Stein's variates,
of another seed. NumPyro's NUTS, if it is installed, has one chain: its seconds are without
compilation, its effective draws those of the worst quantity, and its draws meet the same variates.
"""

import argparse
import time
import warnings
from pathlib import Path

import autograd.numpy as anp
import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from benchmarks.fit import few
from benchmarks.race_models import density
from cvlib.families.found import drawn
from cvlib.models.density import Density
from experiments import posteriors

RESULTS = Path(__file__).with_name("answers.json")
SIZES = (100, 300, 1000, 3000)


# Three more: log_lik(xp, z, *rows), log_prior(xp, z), rows and d ---------------------------------


def autoregression(rng, T=150):
    """y_t = a + b y_(t-1) + c y_(t-2) + sigma noise: z = (a, b, c, log sigma)."""
    y = np.zeros(T)
    for t in range(2, T):
        y[t] = 0.3 + 0.5 * y[t - 1] + 0.2 * y[t - 2] + 0.7 * rng.standard_normal()

    def log_lik(xp, z, now, last, before):
        mean = z[..., 0] + z[..., 1] * last + z[..., 2] * before
        return -0.5 * ((now - mean) * xp.exp(-z[..., 3])) ** 2 - z[..., 3]

    prior = lambda xp, z: -0.5 * xp.sum((z / 2) ** 2, -1)
    return log_lik, prior, (y[2:], y[1:-1], y[:-2]), 4


def outliers(rng, N=100, d=5):
    """Regression with noise of Student's law, four degrees of freedom: z = (beta, log sigma)."""
    X = rng.standard_normal((N, d))
    y = X @ rng.standard_normal(d) + 0.5 * rng.standard_t(4, N)

    def log_lik(xp, z, x, y):
        r = (y - xp.sum(x * z[..., :d], -1)) * xp.exp(-z[..., d])
        return -2.5 * xp.log1p(r**2 / 4) - z[..., d]

    prior = lambda xp, z: -0.5 * xp.sum((z / 3) ** 2, -1)
    return log_lik, prior, (X, y), d + 1


def groups(rng, N=400, K=10):
    """Counts in ten groups, rates e^(a + b x + s t_k): z = (a, b, log s, t_1 ... t_K)."""
    k, x = np.arange(N) % K, rng.standard_normal(N)
    y = rng.poisson(np.exp(0.5 + 0.3 * x + rng.normal(0, 0.5, K)[k])).astype(float)

    def log_lik(xp, z, y, x, member):
        t = xp.sum(member * z[..., 3:], -1)
        eta = z[..., 0] + z[..., 1] * x + xp.exp(z[..., 2]) * t
        return y * eta - xp.exp(eta)

    def prior(xp, z):
        wide = -0.125 * (z[..., 0] ** 2 + z[..., 1] ** 2) - 0.5 * xp.exp(2 * z[..., 2]) + z[..., 2]
        return wide - 0.5 * xp.sum(z[..., 3:] ** 2, -1)

    return log_lik, prior, (y, x, np.eye(K)[k]), K + 3


OTHERS = {"autoregression": autoregression, "outliers": outliers, "groups": groups}


def problem(name):
    """Model, f(z) of its quantities, and log p(x, z) of one z in the words of xp."""
    if name in posteriors.names:
        known = posteriors.load(name)

        def log_joint(xp):
            lik, prior, rows = density(name, known.model, xp)
            rows = [xp.asarray(r) for r in rows]
            return lambda z: lik(z, *rows) + prior(z)

        return known.model, known.parameters, log_joint
    log_lik, prior, rows, d = OTHERS[name](np.random.default_rng(0))
    model = cv.models.Model(
        lambda z, b: log_lik(anp, z, *b), lambda z: prior(anp, z), rows, d, name
    )

    def log_joint(xp):
        return lambda z: xp.sum(log_lik(xp, z, *map(xp.asarray, rows))) + prior(xp, z)

    return model, lambda z: z, log_joint


# Rows --------------------------------------------------------------------------------------------


def measured(name, repeats, sizes, many):
    """One row: seconds of the fit and of an answer, errors by way and size, NUTS."""
    model, f, log_joint = problem(name)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        fit = cv.fit(model, steps=640, progress=False)
    seconds = {"fit": few(time.perf_counter() - start)}
    ask = lambda n, rng, **k: (
        lambda at: cv.expect(f, at.z, at.score, np.exp(at.log - at.log.max()), **k)
    )(drawn(fit, n, rng))
    truth = ask(many, 10**6)
    at = drawn(fit, many, 10**6)
    w = np.exp(at.log - at.log.max())
    values = f(at.z) - truth.estimate
    sd = np.sqrt(w @ values**2 / w.sum())
    away = lambda got: np.median(np.sqrt(np.mean(((got - truth.estimate) / sd) ** 2, 0)))
    errors = {}
    for n in sizes:
        start = time.perf_counter()
        got = [ask(n, k) for k in range(repeats)]
        seconds[f"answer {n}"] = few((time.perf_counter() - start) / repeats)
        errors[f"variates {n}"] = few(away(np.array([a.estimate for a in got])))
        plain = np.array([ask(n, k, order=0).estimate for k in range(repeats)])
        own = np.array([f(fit.sample(n, k)).mean(0) for k in range(repeats)])
        errors |= {f"weights {n}": few(away(plain)), f"q {n}": few(away(own))}
    row = {"name": name, "d": model.dim, "k_hat": few(truth.k_hat, 2), "order": got[0].order}
    return (
        row
        | {"seconds": seconds, "errors": errors}
        | nuts(model, f, log_joint, fit, away, sizes[-2])
    )


def nuts(model, f, log_joint, fit, away, n):
    """One chain of NUTS from q's mean, n steps to warm up and n draws; {} without NumPyro."""
    try:
        import jax
        import jax.numpy as jnp
        from numpyro.diagnostics import effective_sample_size
        from numpyro.infer import MCMC, NUTS
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    joint = log_joint(jnp)
    chain = MCMC(
        NUTS(potential_fn=lambda z: -joint(z)), num_warmup=n, num_samples=n, progress_bar=False
    )
    begin = jnp.asarray(fit.mean)
    chain.run(jax.random.PRNGKey(0), init_params=begin)  # compiles
    start = time.perf_counter()
    chain.run(jax.random.PRNGKey(1), init_params=begin)
    z = np.asarray(chain.get_samples())
    seconds = time.perf_counter() - start
    values = f(z)
    effective = min(effective_sample_size(np.asarray(v)[None]) for v in values.T)
    score = Density(model).slope(z)[1]
    block = max(1, n // 50)
    with_variates = cv.expect(values, z, score, block=block)
    return {
        "nuts": {
            "draws": n, "seconds": few(seconds), "effective": few(float(effective)),
            "error": few(away(values.mean(0)[None])),
            "error with variates": few(away(with_variates.estimate[None])),
        }
    }  # fmt: skip


def main(argv=None):
    parser = argparse.ArgumentParser("python -m benchmarks.answers")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--quick", action="store_true", help="one problem, few repeats")
    args = parser.parse_args(argv)
    names = ["outliers"] if args.quick else [*posteriors.names, *OTHERS]
    how = (3, (100, 300, 1000), 4000) if args.quick else (20, SIZES, 40_000)
    rows = []
    with threadpool_limits(1):
        for name in names:
            rows.append(measured(name, *how))
            print(rows[-1], flush=True)
    if args.save and not args.quick:
        stored.save(RESULTS, ("numpy", "scipy", "autograd"), rows=rows)


if __name__ == "__main__":
    main()
