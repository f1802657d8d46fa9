"""Control variates for variational inference, as functions for JAX.

Copy the ones you need: each stands alone, but `fit` calls `fit_step`,
`natural_step` and `rotated`. They keep the precision of what
they are given. What they are for: chapter "In JAX and PyTorch, and a deep
model" of the book, whose tests compare each with its package.
"""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular


def stl(log_p, mu, L, eps):
    """Gradient of the ELBO in mu (d,) and L (d, d), sticking the landing.

    log_p: (d,) -> (), the log joint; L lower triangular; eps (M, d).
    """

    def surrogate(mu, L):
        z = mu + eps @ L.T  # (M, d)
        mu0, L0 = lax.stop_gradient((mu, L))  # q's density stands still
        e = solve_triangular(L0, (z - mu0).T, lower=True)  # (d, M)
        return (jax.vmap(log_p)(z) + 0.5 * (e**2).sum(0)).mean()

    g_mu, g_L = jax.grad(surrogate, (0, 1))(mu, L)
    return g_mu, jnp.tril(g_L)


def leave_one_out(f, log_q):
    """A number whose gradient estimates that of E[f]: score function.

    f (M, ...): values at M independent draws. log_q (M, ...): their log
    densities, a function of the parameters; the draws are held fixed.
    """
    if f.shape != log_q.shape or f.ndim == 0 or len(f) < 2:
        raise ValueError(
            f"f {f.shape} and log_q {log_q.shape} are not (M, ...), M > 1"
        )
    others = (f.sum(0) - f) / (f.shape[0] - 1)
    return (lax.stop_gradient(f - others) * log_q).mean()


def shrunk(rewards, log_pi, m, n=1):
    """`leave_one_out`, with m counted as n answers more: (G, ...) each.

    m () or (...): mean reward of other prompts, n = 1; or, better, of
    n earlier answers to the same prompt.
    """
    shape, each = rewards.shape, getattr(m, "shape", ())
    if log_pi.shape != shape or each not in [(), shape[1:]]:
        raise ValueError(
            f"rewards {shape}, log_pi {log_pi.shape} and m {each} are not "
            "(G, ...), (G, ...) and () or (...)"
        )
    others = rewards.sum(0) - rewards
    advantage = rewards - (others + n * m) / (shape[0] - 1 + n)
    return (lax.stop_gradient(advantage) * log_pi).mean()


def disarm(f, b, w):
    """A number whose gradient in w estimates that of E[f]: Bernoulli z.

    w (..., d): logits. f (M, ...): values at the draws b (M, ..., d), 0.
    or 1., M even. For uniform u (M / 2, ..., d) the first half of b is
    u < sigmoid(w), and the second 1 - u < sigmoid(w).
    """
    M, half = f.shape[0], f.shape[0] // 2
    pairs, alike = M == 2 * half > 0, f.shape[1:] == w.shape[:-1]
    if not (pairs and alike and b.shape == (*f.shape, w.shape[-1])):
        raise ValueError(
            f"f {f.shape}, b {b.shape} and w {w.shape} are not (M, ...), "
            "(M, ..., d) and (..., d), M even"
        )
    df, db = f[:half] - f[half:], b[:half] - b[half:]
    slope = (df[..., None] * db).mean(0) * jax.nn.sigmoid(abs(w)) / 2
    return (lax.stop_gradient(slope) * w).sum(-1).mean()


def price(f, mu, L, eps):
    """Gradient of E[f] in mu (d,) and L (d, d), from slope and curvature.

    f: (d,) -> (); L lower triangular; eps (M, d).
    """
    z = mu + eps @ L.T  # (M, d)
    slope = jax.vmap(jax.grad(f))(z).mean(0)
    bend = jax.vmap(jax.hessian(f))(z).mean(0)
    return slope, jnp.tril(bend @ L)


def quadratics(e, G, ridge):
    """E[G] (d,) and E[G e^T] (d, d), all quadratics as control variates.

    e (M, d): standard normal draws; G (M, d): L^T grad f(mu + L e).
    The gradient is solve(L.T, .) of both, of the second its lower half.
    """
    M, d = e.shape
    X = jnp.concatenate([jnp.ones_like(e[:, :1]), e], 1)
    penalty = jnp.diag(jnp.array([0.0] + [ridge] * d, e.dtype))
    W = jnp.linalg.solve(X.T @ X + penalty, X.T)  # (1 + d, M)
    beta = W @ G
    away = 1 - (X * W.T).sum(1, keepdims=True)
    Q = (G - X @ beta) / away  # residuals of fits without their own draw
    # the mean over draws of such a fit, beta - w Q^T, and of x Q^T
    beta = beta + (X - W.T).T @ Q / M
    return beta[0], (beta[1:] + beta[1:].T) / 2


def quadratics_diagonal(e, G, ridge):
    """The same for a diagonal q, L = diag(s): E[G] and E[G e], (d,) each.

    e, G (M, d). Divided by s they are the gradients in mu and in s.
    """
    rest = lambda v: v.sum(0) - v  # sums over the other draws
    n, e1, G1 = e.shape[0] - 1, rest(e), rest(G)
    A = rest(e * G) - e1 * G1 / n
    A = A / (rest(e**2) - e1**2 / n + ridge)
    c = (G1 - A * e1) / n
    r = G - c - A * e
    return (c + r).mean(0), (A + r * e).mean(0)


def rotated(slopes, normals, square):
    """E[G] (d,), E[G e^T] (d, d) from 2 d + 1 slopes: f cubic, no noise.

    slopes: e (M, d) -> G (M, d), L^T grad f(mu + L e) of each; normals
    (d, d): standard normal; square: one draw of chi^2 of d + 2 degrees.
    """
    d = normals.shape[0]
    e = square**0.5 * jnp.linalg.qr(normals)[0].T  # (d, d), a point a row
    up, down, centre = slopes(e), slopes(-e), slopes(0 * e[:1])[0]
    c = (1 - d / square) * centre + (up + down).sum(0) / (2 * square)
    A = (up - down).T @ e / (2 * square)
    return c, (A + A.T) / 2


def natural_step(mu, L, c, A, rho, reach=3.0):
    """The next mu (d,) and L (d, d), lower triangular, of N(mu, L L^T).

    c (d,), A (d, d): E[G] and E[G e^T] of f = log p - log q, as `rotated`
    gives them. rho: the size of the step, at most 1.
    reach: the longest step of mu, root mean square in sd of q.
    """
    I = jnp.eye(mu.shape[0], dtype=mu.dtype)
    plain = I - rho * A
    P = (I + plain @ plain) / 2  # positive definite
    # P = R R^T with R upper, so that the new L, L R^-T, is lower
    R = jnp.linalg.cholesky(P[::-1, ::-1])[::-1, ::-1]
    half = rho * solve_triangular(R, c)
    step = solve_triangular(R, half, trans=1)  # in units of the old q
    far = (step**2).mean() ** 0.5
    mu = mu + L @ step / jnp.maximum(far / reach, 1)
    return mu, solve_triangular(R, L.T).T


@partial(jax.jit, static_argnames=("log_p", "block"))
def fit_step(mu, L, n, last, data, key, log_p, block):
    """The next mu, L and n of `fit`, and the c (d,) and A (d, d) it saw.

    last: those of the step before. The step's size is 1 / n, or less
    where A is larger than n.
    """
    d, slope = mu.shape[0], jax.grad(log_p)

    def slopes(e):
        z = mu + e @ L.T
        at = lambda z: slope(z, data)
        g = lax.map(at, z, batch_size=block or len(z))
        return g @ L + e  # the slope of -log q is e

    normals = jax.random.normal(key, (d, d), mu.dtype)
    c, A = rotated(slopes, normals, d + 2.0)  # r^2, no noise in it
    n = n + (c @ last[0] + (A * last[1]).sum() / 2 < 0)  # turned back
    off = (A**2).sum(0).mean() ** 0.5
    return *natural_step(mu, L, c, A, 1 / jnp.maximum(n, off)), n, (c, A)


def fit(log_p, data, mu, L, key, steps, block=None):
    """Mean (d,) and factor (d, d) of the best Gaussian, begun at mu and L.

    log_p: ((d,), data) -> (), the log joint; data are arguments of what
    is compiled, not parts of it. block: slopes at a time, all if None.
    """
    if L.shape != 2 * mu.shape or mu.ndim != 1:
        raise ValueError(
            f"mu {mu.shape} and L {L.shape} are not (d,) and (d, d)"
        )
    data = jax.device_put(data)
    n, last = jnp.ones((), mu.dtype), (0 * mu, 0 * L)
    for one in jax.random.split(key, steps):
        mu, L, n, last = fit_step(mu, L, n, last, data, one, log_p, block)
    # what a step of 1 / n is still worth: half its gain to first order
    left = ((last[0] ** 2).sum() / 2 + (last[1] ** 2).sum() / 4) / n
    if not jnp.isfinite(left):
        raise ValueError("no slope: NaN in data, or the first q too wide")
    if left > 0.1:  # nats
        what = f"not arrived: a step is still worth {left:.2g} nats"
        warnings.warn(what, stacklevel=2)
    return mu, L


def pairs(eps):
    """Draws (M / 2, d) with their opposites, (M, d)."""
    return jnp.concatenate([eps, -eps])


def pairs_error(rows):
    """Standard error (D,) of the mean of rows (M, D) made from `pairs`."""
    half = rows.shape[0] // 2
    if half < 2 or rows.shape[0] % 2:
        raise ValueError(f"{rows.shape[0]} rows are not two pairs or more")
    means = (rows[:half] + rows[half:]) / 2
    return means.std(0, ddof=1) / half**0.5


def slope_and_curvature(log_lik, data, old):
    """Slope (d,) and curvature (d, d) of all data at old (d,), to keep.

    log_lik: ((d,), one row) -> (); data: N rows.
    """
    f = lambda z: jax.vmap(log_lik, (None, 0))(z, data).sum()
    return jax.grad(f)(old), jax.hessian(f)(old)


def snapshot(log_lik, batch, N, old, kept, mu, L, eps):
    """Mean zero, like a gradient in mu (d,) and L (d, d): subtract it.

    batch: B of the N rows, the same for all draws eps (M, d); kept: from
    `slope_and_curvature` at old. For the path gradient of N / B times the
    batch.
    """
    B = jax.tree.leaves(batch)[0].shape[0]
    f = lambda z: N / B * jax.vmap(log_lik, (None, 0))(z, batch).sum()
    slope = jax.grad(f)
    bent = lambda v: jax.jvp(slope, (old,), (v,))[1]  # curvature times v
    z = mu + eps @ L.T
    near = slope(old) + jax.vmap(bent)(z - old)  # (M, d)
    g, H = kept
    in_mu = near.mean(0) - (g + H @ (mu - old))
    in_L = near.T @ eps / eps.shape[0] - H @ L
    return in_mu, jnp.tril(in_L)


def weigh(state, h, C, v0, gamma=0.02):
    """The combined gradient (D,) and the state for the next step.

    h (M, D): base gradients; C (K, M, D): variates of mean zero.
    state: (CC, Ch, n), at first zeros (K, K), zeros (K,) and 0.0.
    v0: the prior variance of an entry of C, in the units of h squared.
    """
    CC, Ch, n = state
    M, D = h.shape
    ridge = D * v0 * jnp.eye(C.shape[0], dtype=h.dtype)
    a = -jnp.linalg.solve(ridge + n * CC, n * Ch)  # from earlier steps
    CC = n * CC + jnp.einsum("kmd,lmd->kl", C, C)
    Ch = n * Ch + jnp.einsum("kmd,md->k", C, h)
    state = CC / (n + M), Ch / (n + M), (1 - gamma) * (n + M)
    return h.mean(0) + a @ C.mean(1), state
