"""A network of several thousand weights on a GPU: a full q beside a diagonal one.

Two hidden layers of tanh, a known noise; what each q gives on rows that were held out. A part of
`python -m benchmarks.gpu`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.gpu import BLOCK, adam, begin, recipes, run
from benchmarks.gpu_rivals import laplace_of_network, price_step

INPUTS, NOISE = 8, 0.3


def network_data(n, key):
    """Inputs (n, 8) and what is seen of a wave, a product and noise, (n,)."""
    one, two = jax.random.split(key)
    X = jax.random.uniform(one, (n, INPUTS), minval=-2, maxval=2)
    f = jnp.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + jnp.abs(X[:, 3])
    return X, f + NOISE * jax.random.normal(two, (n,))


def network(hidden):
    """(f: (d,), X -> (n,), d): two hidden layers of tanh."""
    shapes = (INPUTS, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden,), (1,)
    ends = np.cumsum([int(np.prod(s)) for s in shapes])

    def f(z, X):
        parts = (z[e - int(np.prod(s)) : e].reshape(s) for s, e in zip(shapes, ends))
        W1, b1, W2, b2, v, c = parts
        h = jnp.tanh(X @ W1 / INPUTS**0.5 + b1)
        h = jnp.tanh(h @ W2 / hidden**0.5 + b2)
        return 3 * h @ v / hidden**0.5 + c[0]

    return f, int(ends[-1])


class Problem:
    """log p of a network's weights given rows, and how a q of them does on new rows."""

    def __init__(self, hidden, rows=600, held=2000):
        self.f, self.d = network(hidden)
        one, two = jax.random.split(jax.random.key(5))
        self.data, self.new = network_data(rows, one), network_data(held, two)

    def log_rows(self, z, data):
        off = (data[1] - self.f(z, data[0])) / NOISE
        return -0.5 * off**2 - np.log(NOISE * np.sqrt(2 * np.pi))

    def log_p(self, z, data):
        return self.log_rows(z, data).sum() - 0.5 * (z**2).sum() - self.d / 2 * np.log(2 * np.pi)

    def judged(self, q, data, new, key):
        """The ELBO, and the mean held-out log-likelihood."""
        mu, L = q
        e = jax.random.normal(key, (1000, self.d))
        z = mu + (e * L if L.ndim == 1 else e @ L.T)
        each = lambda f: lax.map(f, z, batch_size=100)
        scale = jnp.log(jnp.abs(L if L.ndim == 1 else jnp.diag(L))).sum()
        height = each(lambda z: self.log_p(z, data)).mean() + scale
        height = height + self.d / 2 * np.log(2 * np.pi * np.e)
        lik = each(lambda z: self.log_rows(z, new))  # (1000, held)
        return height, (jax.nn.logsumexp(lik, 0) - np.log(len(e))).mean()

    def mode(self, key, steps=3000):
        """The MAP, by Adam from small random weights."""
        climb = adam(lambda q, data, eps: (jax.grad(self.log_p)(q[0], data),), 1)
        state = begin((0.5 * jax.random.normal(key, (self.d,)),))
        for _ in range(steps // BLOCK):
            state = climb(state, self.data, key, 0.01, float(steps))
        return state[0][0]


def diagonal_step(problem, page):
    slope = jax.vmap(jax.grad(problem.log_p), (0, None))

    def step(q, data, key, rho):
        mu, s = q
        e = jax.random.normal(key, (20, problem.d))
        c, A = page["quadratics_diagonal"](e, slope(mu + e * s, data) * s + e, 0.1)
        S = (1 + (1 - rho * A) ** 2) / 2
        return mu + s * jnp.clip(rho * c / S, -1, 1), s / jnp.sqrt(S)

    return jax.jit(step)


def full_step(problem, page):
    def step(q, data, key, rho):
        mu, L = q
        one = lambda z: jax.grad(problem.log_p)(z, data)
        slopes = lambda e: lax.map(one, mu + e @ L.T, batch_size=min(512, len(e))) @ L + e
        normals = jax.random.normal(key, (problem.d, problem.d))
        seen = page["rotated"](slopes, normals, problem.d + 2.0)
        return page["natural_step"](mu, L, *seen, rho, 1.0)

    return jax.jit(step)


def networks(hidden, seconds, keep):
    """Laplace, a diagonal q, full ones from where it ended, and a full one from the MAP."""
    page, problem = recipes(), Problem(hidden)
    rho = lambda t: max(min(0.5, 5 / (t + 10)), 0.05)
    steps, look, new = jax.random.split(jax.random.key(6), 3)
    judge = jax.jit(problem.judged)

    def go(way, step, q, seconds):
        one = lambda q, t: step(q, problem.data, jax.random.fold_in(steps, t), rho(t))
        height = lambda q: judge(q, problem.data, problem.new, look)
        row, q = run(one, q, lambda q: -height(q)[0], seconds, looks=6)
        elbo, score = map(float, height(q))
        row |= {"elbo": round(elbo, 1), "held out": round(score, 4)}
        keep({"network": problem.d, "way": way} | row)
        return q

    mode, full = problem.mode(new), full_step(problem, page)
    price = price_step(problem.log_p, page, 1.0)
    laplace_of_network(
        problem, mode, new, lambda q: judge(q, problem.data, problem.new, look), keep
    )
    start = mode, jnp.full(problem.d, 0.03, float)
    thin = go("diagonal", diagonal_step(problem, page), start, 1.5 * seconds)
    begun = thin[0], jnp.diag(thin[1])
    go("rotated, from the diagonal one", full, begun, seconds)
    go("Price, pairs, from the diagonal one", price, begun, seconds)
    go("rotated, from the MAP", full, (mode, 0.03 * jnp.eye(problem.d)), seconds)
