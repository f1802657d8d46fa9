"""Rivals that use Hessians, and covariances of low rank: parts of `benchmarks.gpu`.

A Hessian is d products with a vector, by autodiff, as for any model: no form of it is used. Laplace
is Newton's method to the mode; "one scalar" then gives its covariance the size, and its mean the
place, that eight antithetic pairs ask for. "Price, pairs" are natural steps on the Hessians at one
pair. "exact steps" know the integrals in one dimension of which this model's ELBO is made. A low
rank is a diagonal and RANK directions, by Adam with STL or by batch, match and patch.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from benchmarks.gpu import RANK, STEPS, adam, climb, elbo, exact_step, log_p, optimum, problem, run
from benchmarks.race import moves

RHO = lambda t: 0.5 if t < 2 else 1 / max(t - 3, 1)  # of Price's steps
PAIRS, BATCH, EM = 8, 32, 20  # pairs of "one scalar"; draws and rounds of EM of pBaM


def hessian(f, z, at_a_time=500):
    """(d, d), column by column."""
    column = lambda v: jax.jvp(jax.grad(f), (z,), (v,))[1]
    return lax.map(column, jnp.eye(len(z)), batch_size=min(at_a_time, len(z)))


def factor(precision):
    """L (d, d), triangular, with L L^T the inverse of a precision."""
    C = jnp.linalg.cholesky(precision)
    return solve_triangular(C, jnp.eye(len(C)), lower=True).T


def newton_step(q, data):
    mu, L = q
    L = factor(-hessian(lambda z: log_p(z, data), mu))
    return mu + L @ (L.T @ jax.grad(log_p)(mu, data)), L


def laplace(data, steps=8):
    """Mode and lower factor of the Gaussian there, from the origin."""
    newton, q = jax.jit(newton_step), (jnp.zeros(data[0].shape[1]), None)
    for _ in range(steps):
        q = newton(q, data)
    return q[0], jnp.linalg.cholesky(q[1] @ q[1].T)


def slopes_at(log_p, q, data, e):
    """Slopes of log p - log q at the draws e (M, d), in q's units."""
    mu, L = q
    return lax.map(lambda x: jax.grad(log_p)(mu + L @ x, data) @ L + x, e)


def one_scalar(log_p, q, data, key):
    """The same q with the size and the place that PAIRS antithetic pairs ask for."""
    (mu, L), d = q, len(q[0])
    e = jax.random.normal(key, (PAIRS, d))
    up, down = (slopes_at(log_p, q, data, x) for x in (e, -e))
    size = 1 - (e * (up - down)).sum() / (2 * PAIRS * d)  # mean curvature, 1 at rest
    return mu + L @ (up + down).mean(0) / (2 * size), L / jnp.sqrt(size)


def price_step(log_p, page, reach=3.0):
    """A natural step on the Hessians at one antithetic pair."""

    def step(q, data, key, rho):
        mu, L = q
        f, e = lambda z: log_p(z, data), L @ jax.random.normal(key, mu.shape)
        c = sum(jax.grad(f)(mu + x) for x in (e, -e)) @ L / 2
        H = sum(hessian(f, mu + x) for x in (e, -e)) / 2
        return page["natural_step"](mu, L, c, L.T @ H @ L + jnp.eye(len(mu)), rho, reach)

    return jax.jit(step)


def curved(d, data, page, short, keep):
    """The rows of one size: exact steps, Laplace, Laplace with one scalar, Price in pairs."""
    start, keys = (jnp.zeros(d), jnp.eye(d)), jax.random.split(jax.random.key(7), STEPS)
    newton, scaled = jax.jit(newton_step), jax.jit(lambda *a: one_scalar(log_p, *a))
    price = price_step(log_p, page)
    jax.block_until_ready(scaled(start, data, keys[0]))  # compiled before the clock runs
    ways = {
        "exact steps": lambda q, t: exact_step(*q, data),
        "Laplace": lambda q, t: newton(q, data),
        "Laplace, one scalar": lambda q, t: (
            newton(q, data) if t < 7 else scaled(newton(q, data), data, keys[t])
        ),
        "Price, pairs": lambda q, t: price(q, data, keys[t], RHO(t)),
    }
    for way, step in ways.items():
        most = 8 if "scalar" in way else STEPS
        keep({"d": d, "way": way} | run(step, start, short, 60.0, most)[0])


def laplace_of_network(problem, mode, key, judge, keep):
    """At the MAP of a network: curvatures below the prior's are raised to it."""
    f = lambda z: problem.log_p(z, problem.data)
    size, Y = jnp.linalg.eigh(-hessian(f, mode))
    L = jnp.linalg.cholesky((Y / jnp.maximum(size, 1)) @ Y.T)
    scaled = jax.jit(lambda *a: one_scalar(problem.log_p, *a))((mode, L), problem.data, key)
    for way, q in ("Laplace", (mode, L)), ("Laplace, one scalar", scaled):
        elbo, score = (round(float(x), 4) for x in judge(q))
        keep({"network": problem.d, "way": way, "elbo": elbo, "held out": score})


# Low rank -----------------------------------------------------------------------------------------


def low_rank_gradient(q, data, eps):
    """STL for a diagonal and k directions: q is mu, log s (d,) and W (d, k); eps (M, d + k)."""

    def surrogate(q):
        mu, log_s, W = q
        d = len(mu)
        z = mu + jnp.exp(log_s) * eps[:, :d] + eps[:, d:] @ W.T
        m, l, V = lax.stop_gradient(q)  # q, as a density, stands still
        r, B = (z - m) * jnp.exp(-l), V * jnp.exp(-l)[:, None]
        C = jnp.linalg.cholesky(jnp.eye(B.shape[1]) + B.T @ B)
        inside = solve_triangular(C, (r @ B).T, lower=True)  # (k, M)
        log_q = -0.5 * ((r**2).sum(1) - (inside**2).sum(0))
        return (jax.vmap(log_p, (0, None))(z, data) - log_q).mean()

    return jax.grad(surrogate)(q)


def whole(mu, s2, W):
    """Mean and factor (d, d) of a low-rank q, s2 (d,) its variances beside the directions."""
    return mu, jnp.linalg.cholesky(jnp.diag(s2) + W @ W.T)


def low_ranks(d, seconds, keep):
    """Between the best diagonal and the best full q, on even and on correlated columns."""
    for name, rows, correlated in (("even", 4 * d, False), ("correlated", 10 * d, True)):
        data = problem(d, rows, correlated)
        best = elbo(*optimum(data), data)
        short = lambda q, data=data, best=best: best - elbo(*q, data)
        row = {"low rank": RANK, "columns": name, "d": d, "N": rows}
        keep(row | {"way": "diagonal, exact", "last": float(short(optimum(data, diagonal=True)))})
        W = 1e-2 * jax.random.normal(jax.random.key(8), (d, RANK))
        block, begun = adam(low_rank_gradient, 10, RANK), (jnp.zeros(d), jnp.zeros(d), W)
        far = lambda q, short=short: short(whole(q[0], jnp.exp(2 * q[1]), q[2]))
        climb(row | {"way": "Adam, STL", "draws": 10}, block, begun, data, far, seconds, keep)
        step, key, begun = patching(), jax.random.key(9), (jnp.zeros(d), W, jnp.ones(d))
        near = lambda q, short=short: short(whole(q[0], q[2], q[1]))
        for rate in 0.01, 0.1, 1.0:
            pull = lambda t, rate=rate: rate * BATCH * d / (t + 1)
            go = lambda q, t: step(q, data, jax.random.fold_in(key, t), pull(t))
            keep(row | {"way": "pBaM", "rate": rate} | run(go, begun, near, 1.5 * seconds)[0])


def patched(S, Lam, psi):
    """The factor analysis Lam Lam^T + diag(psi) nearest to S in KL(S || .), by EM from the last."""

    def once(_, state):
        Lam, psi = state
        B = Lam.T / psi
        B = jnp.linalg.solve(jnp.eye(Lam.shape[1]) + B @ Lam, B)  # E[factors | x] = B x
        SB = S @ B.T
        new = jnp.linalg.solve(jnp.eye(Lam.shape[1]) - B @ Lam + B @ SB, SB.T).T
        return new, jnp.diag(S) - (new * SB).sum(1)

    return lax.fori_loop(0, EM, once, (Lam, psi))


def patching():
    """A step of pBaM (Modi, Cai and Saul, 2025) by dense algebra: nats are its own, not seconds."""

    @jax.jit
    def step(state, data, key, lam):
        mu, Lam, psi = state
        L = jnp.linalg.cholesky(Lam @ Lam.T + jnp.diag(psi))
        z = mu + jax.random.normal(key, (BATCH, len(mu))) @ L.T
        G = jax.vmap(jax.grad(log_p), (0, None))(z, data)
        mu, L = moves.matched(jnp, mu, L, z, G, lam)
        return mu, *patched(L @ L.T, Lam, psi)

    return step
