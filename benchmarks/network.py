"""A network with 496 unknowns: what fourteen seconds are worth, beside NumPyro.

y ~ N(f(x), sigma^2), f with two hidden layers of 19 tanh, 400 rows, N(0, 1) on all weights and
N(-1, 1) on log sigma. All have one core and double precision; seconds are the processor's, with
compilation and without imports. `fit` has the full q that it takes unasked, and a diagonal one. A q
that begins wide ends where hardly any weight is used.

NumPyro's guides, diagonal, of low rank plus diagonal and full, take Adam's steps with one or ten
draws. Their rates go up and down by factors of about three until the best has a worse one on either
side: constant ones, then ones that fall to zero along a cosine. The first seed decides, and the
best of each has all seeds. Needs JAX and NumPyro, and takes about twenty minutes:

    python -m benchmarks.network --save
    python -m benchmarks.network --save --fits     `fit` anew, four minutes; the rest as stored
"""

import argparse
import json
import os
import time
import warnings
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from benchmarks.rivals import svi, walked
from cvlib.fitting import run

RESULTS = stored.path("network")
SECONDS, SEEDS = 14.0, range(3)
RATES = 1e-4, 3e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0
BEGIN = RATES.index(0.01)  # where the search for the best of them begins
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


def guided(log_joint, guide, particles, rate, last, seed):
    """Mean and factor of one of NumPyro's guides, at its own start, and the steps it took."""
    import jax

    begun = time.process_time()
    run = svi(log_joint, DIM, guide, particles, rate, last, BLOCK)
    state, taken = run.begin(seed), 0
    while time.process_time() - begun < SECONDS:
        state, taken = jax.block_until_ready(run.steps(state)), taken + BLOCK
    return *map(np.asarray, run.law(state)), taken


def tuned(climb):
    """{(rate, falls): ELBOs} of climb(rate, last, seed) -> ELBO, steps; the best has all seeds."""
    found: dict = {}
    steps: dict = {}

    def constant(rate):
        elbo, steps[rate] = climb(rate, 0, 0)
        found[rate, False] = [elbo]
        return elbo

    last = int(0.95 * steps[RATES[walked(constant, RATES, BEGIN)]])

    def falling(rate):
        found[rate, True] = [climb(rate, last, 0)[0]]
        return found[rate, True][0]

    walked(falling, RATES, BEGIN)
    rate, falls = max(found, key=lambda key: found[key][0])
    found[rate, falls] += [climb(rate, last if falls else 0, seed)[0] for seed in SEEDS[1:]]
    return found


def judge(log_joint, n=4000):
    """The ELBO of a mean and a factor, (d,) or (d, d), on the same draws for all."""
    import jax

    e = np.random.default_rng(7).standard_normal((n, DIM))
    f = jax.jit(jax.vmap(log_joint))
    entropy = DIM / 2 * np.log(2 * np.pi * np.e)

    def elbo(mean, factor):
        z = mean + (e * factor if factor.ndim == 1 else e @ factor.T)
        scales = factor if factor.ndim == 1 else np.diag(factor)
        found = float(np.mean(f(z)) + np.log(scales).sum() + entropy)
        return round(found, 1) if np.isfinite(found) else -1e6  # it diverged

    return elbo


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--fits", action="store_true", help="`fit` anew, the guides as stored")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before JAX looks for cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
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
    found = json.loads(RESULTS.read_text())["elbo"] if options.fits else {}
    run.time = SimpleNamespace(perf_counter=time.process_time)  # `fit`, too, counts the processor's
    with threadpool_limits(1):
        for name, way in ways.items():
            found[name] = [elbo(*way(seed)) for seed in SEEDS]
            print(name, found[name], flush=True)
        for guide, draws in () if options.fits else GUIDES:

            def climb(rate, last, seed, guide=guide, draws=draws):
                *q, taken = guided(log_joint, guide, draws, rate, last, seed)
                return elbo(*q), taken

            for (rate, falls), elbos in tuned(climb).items():
                name = f"NumPyro, Auto{guide}, {draws} draws, rate {rate}" + ", falling" * falls
                found[name] = elbos
                print(name, elbos, flush=True)
    if options.save:
        about = {"seconds": SECONDS, "d": DIM, "N": N, "rates": RATES}
        stored.save(RESULTS, ("numpy", "autograd", "jax", "numpyro"), about=about, elbo=found)


if __name__ == "__main__":
    main()
