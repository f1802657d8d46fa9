"""A small variational autoencoder on scikit-learn's digits, in JAX: what each estimator is worth.

An image x of 8 x 8 black or white pixels has a code z: Gaussian, or of Bernoulli variables. A
network, the encoder, says q(z | x); another, the decoder, p(x | z). Both climb the mean over images
of

    ELBO(x) = E_q[log p(x | z)] - KL(q(z | x) || p(z)).

A way is a function from parameters, images x (B, 64) and noise (K, B, d) to a number whose gradient
is an estimate of the gradient of that mean: `jax.grad` of it is all that an optimiser needs. The
gradient in the decoder is the same in all ways; they differ in the encoder's. Numbers are float64,
so that two machines agree in the digits that are stored.
"""

import os
from functools import partial

# one thread: cells run side by side, and sums split over threads round differently
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from sklearn.datasets import load_digits

PIXELS, HIDDEN, BATCH = 64, 32, 50
DIM = {"gaussian": 6, "bernoulli": 12}  # of z
RECORDS = 10  # checkpoints of a run
DRAWS = 20  # of z at a checkpoint
MEMORY = 0.98  # of the moving average of the weights

still = lax.stop_gradient


def images():
    """Train (1197, 64), validation and test (300, 64): pixels are 1 where half dark or more."""
    x = (load_digits().data >= 8).astype(float)
    x = x[np.random.default_rng(0).permutation(len(x))]
    return x[:-600], x[-600:-300], x[-300:]


# The model -----------------------------------------------------------------------------------


def start(latent, rng):
    """Random parameters: {network: (W1, b1, W2, b2)}."""
    d = DIM[latent]
    sizes = {
        "encoder": (PIXELS, HIDDEN, 2 * d if latent == "gaussian" else d),
        "decoder": (d, HIDDEN, PIXELS),
        "baseline": (PIXELS, HIDDEN, 1),
    }
    layer = lambda m, n: (rng.standard_normal((m, n)) / np.sqrt(m), np.zeros(n))
    return {name: (*layer(*size[:2]), *layer(*size[1:])) for name, size in sizes.items()}


def network(layers, x):
    W1, b1, W2, b2 = layers
    return jnp.tanh(x @ W1 + b1) @ W2 + b2


def encode(params, x):
    """mu and log s of the Gaussian code, (B, d) each."""
    return jnp.split(network(params["encoder"], x), 2, -1)


def log_lik(params, x, z):
    """log p(x | z), (K, B), of codes z (K, B, d)."""
    logits = network(params["decoder"], z)
    return (x * logits - jax.nn.softplus(logits)).sum(-1)


def kl_bernoulli(w):
    """From fair coins: sum of p log 2p + (1 - p) log 2(1 - p), p = sigma(w), (B,)."""
    p = jax.nn.sigmoid(w)
    return (np.log(2) + p * jax.nn.log_sigmoid(w) + (1 - p) * jax.nn.log_sigmoid(-w)).sum(-1)


# Ways for a Gaussian code --------------------------------------------------------------------


def closed(params, x, eps):
    """The usual loss: reparameterised, the divergence in closed form."""
    mu, log_s = encode(params, x)
    kl = 0.5 * (mu**2 + jnp.exp(2 * log_s) - 2 * log_s - 1).sum(-1)  # (B,)
    return (log_lik(params, x, mu + jnp.exp(log_s) * eps) - kl).mean()


def log_ratio(z, mu, log_s):
    """log p(z) - log q(z), (K, B)."""
    return (-0.5 * z**2 + 0.5 * ((z - mu) / jnp.exp(log_s)) ** 2 + log_s).sum(-1)


def stl(params, x, eps):
    """Sticking the landing: all three terms at one draw, and log q does not see q move."""
    mu, log_s = encode(params, x)
    z = mu + jnp.exp(log_s) * eps
    return (log_lik(params, x, z) + log_ratio(z, still(mu), still(log_s))).mean()


# Ways for Bernoulli variables -----------------------------------------------------------------


def scored(params, x, u, gradient):
    """`gradient(f, b, w)`: the gradient of E[f] in the logits w, (B, d), from f (K, B), b."""
    w = network(params["encoder"], x)
    b = (u < jax.nn.sigmoid(still(w))).astype(u.dtype)  # (K, B, d)
    f = log_lik(params, x, b)
    slope = still(gradient(still(f), b, w))
    return f.mean() - kl_bernoulli(w).mean() + (slope * w).sum(-1).mean()


def score(advantage, b, w):
    return (advantage[..., None] * (b - jax.nn.sigmoid(w))).mean(0)


def plain(params, x, u):
    """Score function without a baseline."""
    return scored(params, x, u, score)


def learnt(params, x, u):
    """Score function less a network of x, which learns to predict f."""
    guess = network(params["baseline"], x)[..., 0]  # (B,)
    seen = []

    def gradient(f, b, w):
        seen.append(f)
        return score(f - guess, b, w)

    elbo = scored(params, x, u, gradient)
    return elbo - ((seen[0] - guess) ** 2).mean()  # the square has no gradient but the baseline's


def loo(params, x, u):
    """Score function less the mean of the other draws."""
    others = lambda f: (f.sum(0) - f) / (len(f) - 1)
    return scored(params, x, u, lambda f, b, w: score(f - others(f), b, w))


def disarm(params, x, u):
    """The first half of the draws with their opposites: half the difference, where they differ."""

    def gradient(f, b, w):
        half = len(f) // 2
        f, b = f[:half] - f[half:], b[:half] - b[half:]  # half the pairs' differences: 1 / 2 below
        return 0.5 * jax.nn.sigmoid(jnp.abs(w)) * (f[..., None] * b).mean(0)

    half = u[: len(u) // 2]
    return scored(params, x, jnp.concatenate([half, 1 - half]), gradient)


def straight(params, x, u):
    """Straight through: the decoder's slope at b as if b were its probability. Biased."""
    w = network(params["encoder"], x)
    p = jax.nn.sigmoid(w)
    b = (u < still(p)).astype(u.dtype) + p - still(p)
    return log_lik(params, x, b).mean() - kl_bernoulli(w).mean()


named = lambda *ways: {way.__name__: way for way in ways}
WAYS = {"gaussian": named(closed, stl), "bernoulli": named(plain, learnt, loo, disarm, straight)}


def noise(latent, rng, K, B=BATCH, more=()):
    """Normal or uniform numbers, (*more, K, B, d)."""
    make = rng.standard_normal if latent == "gaussian" else rng.random
    return make((*more, K, B, DIM[latent]))


def elbo(latent, params, x, eps):
    """Mean ELBO over the images x, with codes from eps (K, B, d)."""
    return (closed if latent == "gaussian" else straight)(params, x, eps)  # their values are it


# Climbing ------------------------------------------------------------------------------------


def adam(state, gradient, rate):
    """(params, m, v, t, average) after one step of Adam, uphill; average: of all params so far."""
    params, m, v, t, average = state
    t, each = t + 1, jax.tree.map
    m = each(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
    v = each(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradient)
    size = rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    params = each(lambda p, m, v: p + size * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    average = each(lambda a, p: MEMORY * a + (1 - MEMORY) * p, average, params)
    return params, m, v, t, average


def fresh(latent, rng):
    """Random parameters, and an optimiser that has seen nothing."""
    params = start(latent, rng)
    zero = jax.tree.map(np.zeros_like, params)
    return params, zero, zero, 0.0, params


def climber(latent, way):
    """A function from state, rate, batches (T, B, 64) and noise (T, K, B, d) to the state after.

    The rate is a number, or one for each step, (T,).
    """
    estimate = jax.grad(WAYS[latent][way])

    @jax.jit
    def climb(state, rate, batches, eps):
        step = lambda state, seen: (adam(state, estimate(state[0], *seen[1:]), seen[0]), None)
        rates = jnp.broadcast_to(rate, len(batches))
        return lax.scan(step, state, (rates, batches, eps))[0]

    return climb


class Luck:
    """All that is random in a run, from its seed: runs of any way and K start alike and see the
    same batches, and their noise differs in K alone."""

    def __init__(self, seed):
        seeds = ([seed, k] for k in range(3))
        self.start, self.batches, self.noise = map(np.random.default_rng, seeds)

    def steps(self, latent, x, K, steps):
        """The batches (steps, B, 64) and the noise (steps, K, B, d) of some steps."""
        batches = x[self.batches.integers(len(x), size=(steps, BATCH))]
        return batches, noise(latent, self.noise, K, more=(steps,))


def train(*, latent, way, K, rates, falling, steps, runs):
    """Along runs the ELBO of test images, (rates, runs, T), and at the end that of validation
    images and both of the averaged weights, (rates, runs) each; steps of the checkpoints. A falling
    rate goes to zero in a straight line.

    Run r of every rate, way and K has the same start and batches. All go side by side.
    """
    every = max(1, steps // RECORDS)
    left = np.linspace(1, 0 if falling else 1, RECORDS * every, endpoint=False)
    side_by_side = lambda f, *over: jax.vmap(jax.vmap(f, (0, *over[0])), (0, *over[1]))
    with jax.enable_x64(True):
        x, valid, test = images()
        eps = noise(latent, np.random.default_rng(0), DRAWS, len(test))
        move = jax.jit(side_by_side(climber(latent, way), (None, 0, 0), (0, None, None)))
        height = jax.jit(side_by_side(partial(elbo, latent), (None, None), (None, None)))
        lucks, found = [Luck(seed) for seed in range(runs)], []
        stacked = lambda *leaves: np.stack([np.stack(leaves)] * len(rates))  # (rates, runs, ...)
        state = jax.tree.map(stacked, *(fresh(latent, luck.start) for luck in lucks))
        for t in range(RECORDS + 1):
            if t:
                now = np.outer(rates, left[(t - 1) * every : t * every])  # (rates, every)
                seen = zip(*(luck.steps(latent, x, K, every) for luck in lucks))
                state = move(state, now, *map(np.stack, seen))
            found.append(height(state[0], test, eps))  # (rates, runs)
        ends = {"valid": height(state[0], valid, eps), "averaged": height(state[-1], test, eps),
                "averaged valid": height(state[-1], valid, eps)}  # fmt: skip
    kept = [t * every for t in range(RECORDS + 1)]
    return ends | {"steps": kept, "test": np.stack(found, -1), "jax": jax.__version__}


# Noise ---------------------------------------------------------------------------------------


def encoder_gradient(latent, way):
    """A function of parameters, x (B, 64) and noise (R, K, B, d): R estimates, (R, parameters)."""

    @jax.jit
    def estimates(params, x, eps):
        found = jax.vmap(jax.grad(WAYS[latent][way]), (None, None, 0))(params, x, eps)
        return jnp.concatenate([part.reshape(len(eps), -1) for part in found["encoder"]], 1)

    return estimates


def spread(estimates, latent, K, params, batches, rng, repeats):
    """Trace of the variance of the encoder's gradient for given images; the mean over batches."""
    found = [estimates(params, x, noise(latent, rng, K, more=(repeats,))) for x in batches]
    return float(np.mean([np.var(g, axis=0, ddof=1).sum() for g in found]))


def between(estimates, latent, params, batches, rng, K=32):
    """Trace of the variance over batches of the mean gradient: the noise that images make.

    Two means of K draws a batch: the product of their deviations has no noise of the draws in it.
    """
    two = np.array([estimates(params, x, noise(latent, rng, K, more=(2,))) for x in batches])
    a, b = np.moveaxis(two - two.mean(0), 1, 0)
    return float((a * b).sum() / (len(batches) - 1))


def spreads(*, latent, groups, path, rate, steps, repeats, runs):
    """Noise of each way, for each number K of draws, and of the images, along runs of `path`.

    `groups` is {K: ways}. Returns {(way, K): (runs, T)}, ("images", 0) among them, after each of
    `steps`.
    """
    own = 1 if latent == "gaussian" else 2  # draws of the path
    quiet = path if latent == "gaussian" else "loo"  # its mean is that of all but one
    ways = [(way, K) for K, ways in groups.items() for way in ways]
    with jax.enable_x64(True):
        x, move = images()[0], climber(latent, path)
        estimates = {way: encoder_gradient(latent, way) for way in (*dict(ways), quiet)}
        found = {key: np.zeros((runs, len(steps))) for key in (*ways, ("images", 0))}
        for run in range(runs):
            luck, rng = Luck(run), np.random.default_rng((run, 3))
            state, t = fresh(latent, luck.start), 0
            for k, stop in enumerate(steps):
                if stop > t:
                    state = move(state, rate, *luck.steps(latent, x, own, stop - t))
                    t = stop
                some = x[rng.integers(len(x), size=(40, BATCH))]
                for way, K in ways:
                    found[way, K][run, k] = spread(
                        estimates[way], latent, K, state[0], some[:4], rng, repeats
                    )
                noise_of_images = between(estimates[quiet], latent, state[0], some, rng)
                found["images", 0][run, k] = noise_of_images
        return found
