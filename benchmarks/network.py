"""A network with 496 unknowns: what fourteen seconds are worth, beside NumPyro.

y ~ N(f(x), sigma^2), f with two hidden layers of 19 tanh, 400 rows, N(0, 1) on all weights and
N(-1, 1) on log sigma. All have one core and double precision; compilation counts, imports do not.
`fit` has the full q that it takes unasked, and a diagonal one. NumPyro's guides, diagonal, of low
rank plus diagonal and full, take Adam's steps with one or ten draws, at three rates. A q that
begins wide ends where hardly any weight is used. Needs JAX and NumPyro:

    python -m benchmarks.network --save
"""

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path

import autograd.numpy as anp
import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored

RESULTS = Path(__file__).with_name("network.json")
SECONDS, SEEDS = 14.0, range(4)
RATES = 0.003, 0.01, 0.03
GUIDES = (
    ("Normal", 1),
    ("Normal", 10),
    ("LowRankMultivariateNormal", 10),
    ("MultivariateNormal", 10),
)
N, INPUTS, HIDDEN = 400, 4, 19
SHAPES = (INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN,), (1,)
DIM = sum(int(np.prod(shape)) for shape in SHAPES) + 1
BLOCK = 250  # of NumPyro's steps, between two looks at the clock


def data():
    """Inputs (N, 4) and what is seen of a wave, a product and noise, (N,)."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (N, INPUTS))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.1 * rng.standard_normal(N)


def split(z):
    """The weights z (..., 496) as arrays, layer by layer."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [
        z[..., end - int(np.prod(shape)) : end].reshape(z.shape[:-1] + shape)
        for shape, end in zip(SHAPES, ends)
    ]


def log_lik(z, batch):
    """For autograd: z (B, 1, 496) and rows (N, 4), (N,), as a model of one's own takes them."""
    (x, y), (W1, b1, W2, b2, v, c), log_sigma = batch, split(z), z[..., -1]
    h = anp.tanh(anp.sum(x[..., :, None] * W1, -2) / np.sqrt(INPUTS) + b1)
    h = anp.tanh(anp.sum(h[..., :, None] * W2, -2) / np.sqrt(HIDDEN) + b2)
    f = 3 * anp.sum(h * v, -1) / np.sqrt(HIDDEN) + c[..., 0]
    return -0.5 * ((y - f) * anp.exp(-log_sigma)) ** 2 - log_sigma


def log_prior(z):
    return -0.5 * anp.sum(z[..., :-1] ** 2, -1) - 0.5 * (z[..., -1] + 1) ** 2


def joint():
    """log p(x, z) of one z (496,) for JAX, by products of matrices."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x, y = map(jnp.asarray, data())

    def log_joint(z):
        (W1, b1, W2, b2, v, c), log_sigma = split(z), z[-1]
        h = jnp.tanh(x @ W1 / np.sqrt(INPUTS) + b1)
        h = jnp.tanh(h @ W2 / np.sqrt(HIDDEN) + b2)
        f = 3 * h @ v / np.sqrt(HIDDEN) + c[0]
        prior = -0.5 * jnp.sum(z[:-1] ** 2) - 0.5 * (log_sigma + 1) ** 2
        return jnp.sum(-0.5 * ((y - f) * jnp.exp(-log_sigma)) ** 2 - log_sigma) + prior

    return log_joint


def fitted(model, seed, q=None, start=None):
    """Mean and factor of `fit`."""
    fit = cv.fit(model, q, seconds=SECONDS, seed=seed, start=start, progress=False)
    return fit.q.unpack(fit.w)


def numpyro(log_joint, guide, particles, rate, seed):
    """Mean and factor of one of NumPyro's guides, at its own start."""
    import jax
    import numpyro
    from numpyro.distributions import ImproperUniform, constraints
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model():
        z = numpyro.sample("z", ImproperUniform(constraints.real, (), (DIM,)))
        numpyro.factor("log p", log_joint(z))

    begun, loss = time.perf_counter(), Trace_ELBO(num_particles=particles)
    guide = getattr(autoguide, f"Auto{guide}")(model)
    svi = SVI(model, guide, numpyro.optim.Adam(rate), loss)
    state = svi.init(jax.random.PRNGKey(seed))
    steps = lambda state: jax.lax.fori_loop(0, BLOCK, lambda _, s: svi.update(s)[0], state)
    steps = jax.jit(steps)
    while time.perf_counter() - begun < SECONDS:
        state = jax.block_until_ready(steps(state))
    found = {name.removeprefix("z_"): np.asarray(x) for name, x in svi.get_params(state).items()}
    factor = found.get("auto_scale_tril", found.get("auto_scale"))
    if "auto_cov_factor" in found:
        W = factor[:, None] * found["auto_cov_factor"]
        factor = np.linalg.cholesky(W @ W.T + np.diag(factor**2))
    return found["auto_loc"], factor


def judge(log_joint, n=4000):
    """The ELBO of a mean and a factor, (d,) or (d, d), on the same draws for all."""
    import jax

    e = np.random.default_rng(7).standard_normal((n, DIM))
    f = jax.jit(jax.vmap(log_joint))
    entropy = DIM / 2 * np.log(2 * np.pi * np.e)

    def elbo(mean, factor):
        z = mean + (e * factor if factor.ndim == 1 else e @ factor.T)
        scales = factor if factor.ndim == 1 else np.diag(factor)
        return float(np.mean(f(z)) + np.log(scales).sum() + entropy)

    return elbo


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before JAX looks for cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore", cv.Distrust)
    log_joint = joint()
    elbo = judge(log_joint)
    own = cv.models.Model(log_lik, log_prior, data(), DIM, "network")
    compiled = lambda: cv.models.from_jax(log_joint, DIM)  # anew: compilation counts
    diagonal, wide = cv.families.DiagonalGaussian(DIM), (np.zeros(DIM), np.full(DIM, 0.3))
    ways = {
        "fit": lambda seed: fitted(own, seed),
        "fit, diagonal": lambda seed: fitted(own, seed, diagonal),
        "fit, diagonal, from a wide q": lambda seed: fitted(own, seed, diagonal, wide),
        "fit, JAX model": lambda seed: fitted(compiled(), seed),
        "fit, JAX model, diagonal": lambda seed: fitted(compiled(), seed, diagonal),
    }
    for guide, draws in GUIDES:
        for rate in RATES:
            way = partial(numpyro, log_joint, guide, draws, rate)
            ways[f"NumPyro, Auto{guide}, {draws} draws, rate {rate}"] = way
    found = {}
    for name, way in ways.items():
        with threadpool_limits(1):
            found[name] = [round(elbo(*way(seed)), 1) for seed in SEEDS]
        print(name, found[name], flush=True)
    if options.save:
        about = {"seconds": SECONDS, "d": DIM, "N": N}
        stored.save(RESULTS, ("numpy", "autograd", "jax", "numpyro"), about=about, elbo=found)


if __name__ == "__main__":
    main()
