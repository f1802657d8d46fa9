"""A regression in six groups: the error of E tau against seconds, for what one would try.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.shape --save

The model is `hierarchical` of experiments.covered, its truth a quadrature. All have one core and
double precision; seconds are the processor's, without imports. NUTS and the flow are NumPyro's, and
compile once: their seconds are told with and without it. Their draws, and those of the map, get the
control variates of `cv.expect` as well; weighed draws are drawn again by their weights first. The
flow is trained as its friends advise, with many draws, clipped gradients and a rate that falls
along a cosine; the better of two rates by its own ELBO, the search off the clock. Twenty seeds
each.
"""

import os
import time
import warnings
from functools import partial

import autograd.numpy as anp
import numpy as np
from autograd.scipy.stats import norm

import cvlib as cv
from benchmarks import stored
from cvlib.fitting.looks import Weights
from cvlib.models.density import Density
from experiments.covered import hierarchical, rows_in_groups

SEEDS, DRAWS, CHAINS = range(20), 4000, 4
RATES, STEPS, PARTICLES, LAYERS = (0.003, 0.01), 20_000, 32, 3
asked = lambda p: np.stack([p.tau, p.tau > 1.0], -1)  # E tau and P(tau > 1)


def by_quadrature(n=480):
    """E tau, P(tau > 1) and the sd of tau: n cells of log tau, few of b[0] and log s.

    Given these three, y - X[:, 0] b[0] is N(0, s^2 I + U V U^T) with U = [groups, X[:, 1]].
    """
    X, g, y, c = rows_in_groups()
    U = np.column_stack([np.eye(6)[g], X[:, 1]])
    middle = lambda low, high, n: low + (np.arange(n) + 0.5) * (high - low) / n  # of n cells
    b, log_tau, log_s = np.meshgrid(middle(0.7, 1.3, 24), middle(-4, 2, n), middle(-1.8, -0.5, 24))
    tau, s = np.exp(log_tau), np.exp(log_s)
    V = np.stack([*[tau] * 6, np.ones_like(tau)], -1)  # its roots
    away = y - b[..., None] * X[:, 0]  # (..., 80)
    inner = np.eye(7) + V[..., None] * (U.T @ U) * V[..., None, :] / s[..., None, None] ** 2
    half = V * (away @ U)
    quadratic = (away**2).sum(-1) / s**2
    quadratic -= (half * np.linalg.solve(inner, half[..., None])[..., 0]).sum(-1) / s**4
    rate = 0.3 * b[..., None] * X[:, 0]
    log = -0.5 * (quadratic + np.linalg.slogdet(inner)[1]) - 80 * np.log(s)
    log += (c * rate - np.exp(rate)).sum(-1) - 0.5 * (b**2 + tau**2) - np.log1p(s**2)
    p = np.exp(log - log.max()) * tau * s  # the grid is one of logarithms
    p /= p.sum()
    mean = (p * tau).sum()
    return float(mean), float(p[tau > 1].sum()), float(np.sqrt((p * (tau - mean) ** 2).sum()))


def in_jax(jnp):
    """log p(x, z) of the same model once more, for one z (10,)."""
    X, g, y, c = rows_in_groups()

    def log_p(z):
        b, log_tau, t, log_s = z[:2], z[2], z[3:9], z[9]
        rate = 0.3 * X[:, 0] * b[0]
        away = (y - X @ b - jnp.exp(log_tau) * t[g]) * jnp.exp(-log_s)
        lik = -0.5 * (away**2).sum() - 80 * log_s + (c * rate - jnp.exp(rate)).sum()
        squares = (b**2).sum() + jnp.exp(2 * log_tau) + (t**2).sum()
        return lik - 0.5 * squares - jnp.log1p(jnp.exp(2 * log_s)) + log_tau + log_s

    return log_p


def timed(f):
    begun = time.process_time()
    return f(), time.process_time() - begun


def ours(seed, bend=None, expect=True):
    """`fit`, and the mean of q or `expect`."""
    fit = cv.fit(hierarchical()[0], seed=seed, bend=bend, progress=False)
    if expect:
        return fit.expect(asked, n=DRAWS, seed=seed).estimate
    return asked(fit.model.named(fit.sample(DRAWS, seed))).mean(0)


def integrated(seed):
    """Effects summed out by `groups=`: two slopes and two scales are left."""
    X, g, y, c = rows_in_groups()

    def log_lik(p, batch):
        x, y, c = batch
        rate = 0.3 * x[..., 0] * p.b[..., 0]
        away = (y - anp.sum(x * p.b, -1) - p.u) / p.s
        return -0.5 * away**2 - anp.log(p.s) + c * rate - anp.exp(rate)

    log_prior = lambda p: -0.5 * (anp.sum(p.b**2, -1) + p.tau**2) - anp.log1p(p.s**2)
    model = cv.models.Model(
        log_lik, log_prior, (X, y, c), parameters={"b": 2, "tau": cv.positive, "s": cv.positive},
        groups=g, effects={"u": ()}, log_effect=lambda p: norm.logpdf(p.u, 0.0, p.tau),
    )  # fmt: skip
    return cv.fit(model, seed=seed, progress=False).expect(asked, n=DRAWS, seed=seed).estimate


def by_grid(_, n=(21, 9)):
    """Laplace for the eight coefficients at each point of a grid of (log tau, log s), by hand."""
    X, g, y, c = rows_in_groups()
    x, Z = 0.3 * X[:, 0], np.eye(6)[g]
    log_tau, log_s = (a.ravel() for a in np.meshgrid(*(np.linspace(*e, k) for e, k in zip(
        ((-4, 1.5), (-1.8, -0.6)), n)), indexing="ij"))  # fmt: skip
    tau, s = np.exp(log_tau), np.exp(log_s)
    A = np.concatenate([np.broadcast_to(X, (len(tau), *X.shape)), tau[:, None, None] * Z], 2)
    A = A / s[:, None, None]  # (grid, 80, 8)
    target = np.broadcast_to((y / s[:, None])[..., None], (len(s), len(y), 1))
    v = np.zeros((len(tau), 8))
    for _ in range(6):  # Newton
        rate = np.exp(v[:, :1] * x)
        slope = ((target - A @ v[..., None]) * A).sum(1) - v
        slope[:, 0] += ((c - rate) * x).sum(-1)
        H = A.mT @ A + np.eye(8)
        H[:, 0, 0] += (rate * x**2).sum(-1)
        v = v + np.linalg.solve(H, slope[..., None])[..., 0]
    log = -0.5 * ((target - A @ v[..., None]) ** 2).sum((1, 2)) - 80 * log_s - 0.5 * (v**2).sum(-1)
    log += (c * v[:, :1] * x - np.exp(v[:, :1] * x)).sum(-1) - 0.5 * np.linalg.slogdet(H)[1]
    log += log_tau - 0.5 * tau**2 + log_s - np.log1p(s**2)
    p = np.exp(log - log.max())
    return np.array([p @ tau, np.nan]) / [p.sum(), 1]


def flow(seed, rate, jax, numpyro):
    """An inverse autoregressive flow: draws, their weights, seconds to get them and to compile."""
    model, log_p, block = hierarchical()[0], in_jax(jax.numpy), 500
    flat = numpyro.distributions.ImproperUniform(
        numpyro.distributions.constraints.real_vector, (), (model.dim,)
    )
    guide = numpyro.infer.autoguide.AutoIAFNormal(
        lambda: numpyro.factor("log p", log_p(numpyro.sample("z", flat))),
        num_flows=LAYERS, hidden_dims=[2 * model.dim] * 2,
    )  # fmt: skip
    falls = lambda t: rate * (1 + jax.numpy.cos(np.pi * jax.numpy.minimum(t / STEPS, 1))) / 2
    loss = numpyro.infer.Trace_ELBO(num_particles=PARTICLES, vectorize_particles=True)
    svi = numpyro.infer.SVI(guide.model, guide, numpyro.optim.ClippedAdam(falls), loss)

    @jax.jit
    def steps(state):
        return jax.lax.fori_loop(0, block, lambda _, s: svi.update(s)[0], state)

    begin = lambda: svi.init(jax.random.PRNGKey(seed))
    compiled = timed(lambda: jax.block_until_ready(steps(begin()).optim_state))[1]

    def climb():
        state = begin()
        for _ in range(STEPS // block):
            state = steps(state)
        q = guide.get_posterior(svi.get_params(state))
        z, between = q.sample_with_intermediates(jax.random.PRNGKey(seed + 9), (DRAWS,))
        return np.array(z), np.array(q.log_prob(z, between))

    (z, log_q), seconds = timed(climb)
    return z, Weights(z, Density(model).value(z) - log_q), seconds, compiled


def nuts(seed, jax, numpyro):
    """Four chains one after the other, 500 steps of warm-up and 1,000 draws each: the same."""
    model, log_p = hierarchical()[0], in_jax(jax.numpy)

    @jax.jit  # once: MCMC.run with several chains compiles each of them anew
    def chain(key, start):
        kernel = numpyro.infer.NUTS(potential_fn=lambda z: -log_p(z), target_accept_prob=0.9)
        mcmc = numpyro.infer.MCMC(kernel, num_warmup=500, num_samples=1000, progress_bar=False)
        mcmc.run(key, init_params=start)
        return mcmc.get_samples()

    start = np.random.default_rng(seed).standard_normal((CHAINS, model.dim)) / 2
    keys = jax.random.split(jax.random.PRNGKey(seed), CHAINS)
    ready, compiled = timed(lambda: chain.lower(keys[0], start[0]).compile())
    z, seconds = timed(lambda: np.array([ready(*one) for one in zip(keys, start)]))
    return z, None, seconds, compiled


def corrected(z, share=None, seed=0):
    """`cv.expect` of draws, drawn again if they have shares: estimate and seconds."""
    if share is not None:
        z = z[np.random.default_rng(seed).choice(len(z), len(z), p=share)]
    found, seconds = timed(lambda: cv.expect(asked, z, hierarchical()[0]))
    return found.estimate, seconds


def mapped(seed):
    """The draws of a fit that bends, given to `cv.expect`."""
    model = hierarchical()[0]
    draws = cv.fit(model, seed=seed, progress=False).draws(DRAWS, seed=seed)
    return cv.expect(asked, draws, model).estimate


def errors(answers, truth):
    """Root mean square and largest error of E tau over the seeds, in its posterior's sds."""
    tau, _, sd = truth
    away = np.abs(np.array(answers)[:, 0] - tau) / sd
    return float(np.sqrt((away**2).mean())), float(away.max())


def measure():
    """{name: [rms error, largest error, seconds, seconds with compilation]}"""
    warnings.simplefilter("ignore")
    one_core = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # as ours
    os.environ["XLA_FLAGS"] = one_core
    import jax
    import numpyro

    jax.config.update("jax_enable_x64", True)
    truth, found = by_quadrature(), {}

    def tell(name, answers, warm, cold):
        row = *errors(answers, truth), np.median(warm), np.median(cold)
        found[name] = [*map(stored.few, row)]
        print(name, found[name], flush=True)

    ways = {
        "Gaussian q": partial(ours, bend=False, expect=False),
        "Gaussian q, fit.expect": partial(ours, bend=False),
        "triangular map, fit.expect": ours,
        "triangular map, cv.expect": mapped,
        "effects integrated out, groups=": integrated,
        "grid of two scales, Laplace inside": by_grid,
    }
    for name, ask in ways.items():
        runs = [timed(partial(ask, seed)) for seed in SEEDS]
        answers, seconds = zip(*runs)
        tell(name, answers, seconds, seconds)
    tried = [[flow(seed, rate, jax, numpyro) for seed in SEEDS] for rate in RATES]
    best = max(tried, key=lambda runs: np.mean([run[1].elbo[0] for run in runs]))
    for name, runs in {
        "NUTS": [nuts(seed, jax, numpyro) for seed in SEEDS], "autoregressive flow": best
    }.items():  # fmt: skip
        z, weights, warm, compiled = zip(*runs)
        share = [None if w is None else w.share for w in weights]
        named = [asked(hierarchical()[0].named(x.reshape(-1, x.shape[-1]))) for x in z]
        alone = [np.average(x, 0, w) for x, w in zip(named, share)]
        tell(name, alone, warm, np.add(warm, compiled))
        answers, more = zip(*(corrected(*one) for one in zip(z, share, SEEDS)))
        warm = np.add(warm, more)
        tell(f"{name}, cv.expect", answers, warm, np.add(warm, compiled))
    kept = [stored.few(run[1].effective) for run in best]
    return {"rows": found, "flow": {"relative ESS": kept, "ELBO": [r[1].elbo[0] for r in best]}}


if __name__ == "__main__":
    stored.command(__doc__, "shape", ("numpy", "autograd", "jax", "numpyro"), measure)
