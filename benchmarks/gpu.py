"""A full covariance of thousands of unknowns on a GPU: chapter 24's functions and their rivals.

Logistic regression, x ~ N(0, I / d), z and y drawn from the model, N = 4 d rows, all of them in
every step, float64, from N(0, I); NumPyro's guides begin where they begin. The ELBO of such a
model is a sum of N integrals in one dimension, so that a row has exact nats below the exact
optimum, after seconds without compilation and without the looks; `cold` is the first call with its
compilation. Rivals have every rate of a grid, and the best rates once more falling to zero along a
cosine. "network": a full q beside a diagonal one on 4,801 weights; "torch": the functions for
PyTorch on the same device. Needs JAX, NumPyro and PyTorch, and no package of this project:

    python -m benchmarks.gpu --save                 # where there is a GPU: all parts
    python -m benchmarks.gpu --parts natural --sizes 40
"""

import argparse
import importlib.metadata
import json
import re
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from benchmarks import stored

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "gpu.json", HERE.parent / "book" / "24-in-your-framework.md"
SIZES = 1000, 5000, 10_000
SECONDS = {1000: 3.0, 5000: 8.0, 10_000: 12.0}  # for each setting of a rival
DRAWS, RATES = (10, 100, 1000), (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
PARTS = "torch", "natural", "adam", "numpyro", "network"
GUIDES = "MultivariateNormal", "LowRankMultivariateNormal"
BLOCK = 20  # of Adam's steps, between two looks at the clock
RHO = lambda t: 0.5 if t < 2 else 1 / max(t - 3, 1)  # as the page's `fit` has it


def recipes(framework="jax"):
    """The page's functions, by name."""
    fence = {"jax": r"\{code-cell\} ipython3\n:tags: \[recipe\]\n", "torch": "python"}[framework]
    blocks = re.findall(rf"^```{fence}\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    names = {}
    exec(compile("\n\n".join(blocks), PAGE.name, "exec"), names)
    return names


# The model, its exact ELBO and its exact optimum --------------------------------------------------


def problem(d, seed=0):
    """Rows (4 d, d), labels (4 d,)."""
    keys = jax.random.split(jax.random.key(seed), 3)
    X = jax.random.normal(keys[0], (4 * d, d)) / d**0.5
    chance = jax.nn.sigmoid(X @ jax.random.normal(keys[1], (d,)))
    return X, jnp.where(jax.random.uniform(keys[2], (4 * d,)) < chance, 1.0, -1.0)


def log_p(z, data):
    """Without the constant of the prior."""
    X, y = data
    return jax.nn.log_sigmoid(y * (X @ z)).sum() - 0.5 * (z**2).sum()


def expected(f, m, s, nodes=40):
    """E f(eta), eta ~ N(m, s^2), entry by entry."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    return sum(weight * f(m + s * at) for at, weight in zip(x, w / w.sum()))


@jax.jit
def elbo(mu, L, data):
    """Of N(mu, L L^T), L (d, d) triangular, or (d,) if diagonal; without the prior's constant."""
    X, y = data
    s = jnp.sqrt(X**2 @ L**2 if L.ndim == 1 else ((X @ L) ** 2).sum(1))
    fit = expected(jax.nn.log_sigmoid, y * (X @ mu), s).sum()
    entropy = jnp.log(jnp.abs(L if L.ndim == 1 else jnp.diag(L))).sum()
    d = mu.shape[0]
    return (
        fit - 0.5 * (mu**2).sum() - 0.5 * (L**2).sum() + entropy + d / 2 * np.log(2 * np.pi * np.e)
    )


@partial(jax.jit, static_argnames="diagonal")
def exact_step(mu, L, data, diagonal=False):
    """Fixed-point equations of the best q: its precision is the mean curvature."""
    X, y = data
    s = jnp.sqrt(X**2 @ L**2 if diagonal else ((X @ L) ** 2).sum(1))
    g = X.T @ (y * expected(lambda e: jax.nn.sigmoid(-e), y * (X @ mu), s)) - mu
    bend = expected(lambda e: jax.nn.sigmoid(e) * jax.nn.sigmoid(-e), X @ mu, s)
    P = jnp.eye(X.shape[1]) + (X.T * bend) @ X
    C = jnp.linalg.cholesky(P)
    mu = mu + solve_triangular(C, solve_triangular(C, g, lower=True), lower=True, trans=1)
    return mu, jnp.diag(P) ** -0.5 if diagonal else solve_triangular(
        C, jnp.eye(len(mu)), lower=True
    ).T


def optimum(data, diagonal=False, steps=15):
    """Mean and factor of the best q, (d, d), or (d,) of the best diagonal one."""
    d = data[0].shape[1]
    q = jnp.zeros(d), jnp.ones(d) if diagonal else jnp.eye(d)
    for _ in range(steps):
        q = exact_step(*q, data, diagonal=diagonal)
    return q


# Ways: (q's state, data, key, t) -> state ---------------------------------------------------------


def natural(estimate, page):
    """Natural steps on what `estimate` makes of the slopes of log p - log q, in q's units."""

    def step(q, data, key, rho):
        mu, L = q
        slope = jax.vmap(jax.grad(log_p), (0, None))
        slopes = lambda e: slope(mu + e @ L.T, data) @ L + e
        return page["natural_step"](mu, L, *estimate(slopes, key, mu.shape[0]), rho)

    return jax.jit(step), RHO


def by_rotation(page, slopes, key, d):
    turn, length = jax.random.split(key)
    square = (jax.random.normal(length, (d + 2,)) ** 2).sum()
    return page["rotated"](slopes, jax.random.normal(turn, (d, d)), square)


def by_regression(page, ridge, slopes, key, d):
    e = jax.random.normal(key, (2 * d + 20, d))
    return page["quadratics"](e, slopes(e), ridge * d)


def matching():
    """Batch and match (Cai et al. 2024), 2 d + 20 draws, the pull's weight t / (M d)."""

    def step(q, data, key, t):
        mu, L = q
        d = mu.shape[0]
        M = 2 * d + 20
        e = jax.random.normal(key, (M, d))
        G = jax.vmap(jax.grad(log_p), (0, None))(mu + e @ L.T, data) @ L
        lam = M * d / t
        k, ebar, gbar = lam / (1 + lam), e.mean(0), G.mean(0)
        spread = lambda x, mean: (x - mean).T @ (x - mean) / M
        U = lam * spread(G, gbar) + k * jnp.outer(gbar, gbar)
        V = jnp.eye(d) + lam * spread(e, ebar) + k * jnp.outer(ebar, ebar)
        R = jnp.linalg.cholesky(V)
        size, Y = jnp.linalg.eigh(R.T @ U @ R)
        s = 2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(size, 0)))
        T = R @ Y * jnp.sqrt(s)
        return mu + L @ (k * (T @ (T.T @ gbar) + ebar)), L @ jnp.linalg.cholesky(T @ T.T)

    return jax.jit(step), lambda t: t + 1.0


def adam(gradient, M):
    """BLOCK steps of Adam on (q, its moments, steps so far); rate, and where a cosine ends or 0."""

    def one(state, data, key, rate, last):
        q, m, v, t = state
        g = gradient(q, data, jax.random.normal(key, (M, q[0].shape[0])))
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
        fall = jnp.where(last > 0, (1 + jnp.cos(jnp.pi * jnp.minimum(t / last, 1))) / 2, 1)
        up = lambda q, m, v: (
            q + rate * fall * m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        )
        return jax.tree.map(up, q, m, v), m, v, t

    @partial(jax.jit, donate_argnums=0)
    def block(state, data, key, rate, last):
        keys = jax.random.split(key, BLOCK)
        return lax.fori_loop(0, BLOCK, lambda i, s: one(s, data, keys[i], rate, last), state)

    return block


def begin(q):
    """Adam's state; a copy, as `block` writes over it."""
    q = jax.tree.map(lambda x: x + 0.0, q)
    return q, jax.tree.map(jnp.zeros_like, q), jax.tree.map(jnp.zeros_like, q), jnp.array(0.0)


def numpyro_guide(name, rate, d, last=0, seed=0):
    """A start and BLOCK steps of SVI with one of NumPyro's guides, ten draws a step; its q."""
    import numpyro
    from numpyro.distributions import Normal
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model(X, y):
        z = numpyro.sample("z", Normal(0, 1).expand([d]).to_event(1))
        numpyro.factor("rows", jax.nn.log_sigmoid(y * (X @ z)).sum())

    guide = getattr(autoguide, f"Auto{name}")(model)
    cosine = lambda t: rate * (1 + jnp.cos(jnp.pi * jnp.minimum(t / last, 1))) / 2
    optimiser = numpyro.optim.Adam(cosine if last else rate)
    svi = SVI(model, guide, optimiser, Trace_ELBO(num_particles=10))

    @partial(jax.jit, donate_argnums=0)
    def block(state, data):
        return lax.fori_loop(0, BLOCK, lambda _, s: svi.update(s, *data)[0], state)

    def q(state):
        found = {k.removeprefix("auto_"): v for k, v in svi.get_params(state).items()}
        if "scale_tril" in found:
            return found["loc"], found["scale_tril"]
        scale = found["scale"]
        W = scale[:, None] * found["cov_factor"]
        return found["loc"], jnp.linalg.cholesky(W @ W.T + jnp.diag(scale**2))

    return lambda data: svi.init(jax.random.PRNGKey(seed), *data), block, q


# The race -----------------------------------------------------------------------------------------


def run(step, state, look, seconds, most=100_000, looks=8):
    """{cold, step, path}: seconds of the first call, of a later one, [[seconds, nats] ...].

    step(state, t) -> state. The clock stands still during a look, and the first call, which
    compiles, is made twice: its second result counts, at the price of a later one. Up to `most`
    calls; if these are few each is looked at.
    """
    wait = jax.block_until_ready
    begun = time.perf_counter()
    wait(step(jax.tree.map(jnp.array, state), 0))  # a copy: steps may write over it
    cold, spent, path, due = time.perf_counter() - begun, 0.0, [], 0.0
    for t in range(most):
        begun = time.perf_counter()
        state = wait(step(state, t))
        spent += time.perf_counter() - begun
        over = spent >= seconds or t == most - 1
        if over or spent >= due or most <= 20:
            nats = float(look(state))
            path.append(
                [float(f"{spent:.3g}"), float(f"{nats:.3g}") if np.isfinite(nats) else None]
            )
            due = spent + seconds / looks
        if over or path[-1][1] is None:
            break
    return {"cold": round(cold, 2), "step": float(f"{spent / (t + 1):.3g}"), "path": path}, state


def race(d, parts, seconds, keep):
    """The ways of these parts on one size; `keep` takes each row as it is made."""
    page, data = recipes(), problem(d)
    best = elbo(*optimum(data), data)
    short = lambda q: best - elbo(*q, data)
    if "natural" in parts:
        naturals(d, data, page, short, keep)
    if "adam" in parts:
        rivals(d, data, page, short, seconds, keep)
    if "numpyro" in parts:
        guides(d, data, short, seconds, keep)


def naturals(d, data, page, short, keep, most=12):
    """Natural steps on two estimates, batch and match, and the page's `fit` as it stands."""
    settled, thin = short(optimum(data, steps=14)), short(optimum(data, diagonal=True))
    keep({"d": d, "way": "diagonal, exact", "last": float(thin), "settled": float(settled)})
    keys, start = jax.random.split(jax.random.key(1), most), (jnp.zeros(d), jnp.eye(d))
    ways = {"rotated": natural(partial(by_rotation, page), page)}
    for ridge in 0.1, 0.01:
        ways[f"all quadratics, ridge {ridge} d"] = natural(
            partial(by_regression, page, ridge), page
        )
    if d <= 5000:  # an eigendecomposition a step
        ways["batch and match"] = matching()
    for way, (step, rate) in ways.items():
        go = lambda q, t, step=step, rate=rate: step(q, data, keys[t], rate(t))
        keep({"d": d, "way": way} | run(go, start, short, 60.0, most)[0])
    begun = time.perf_counter()
    q = page["fit"](log_p, data, jnp.zeros(d), jnp.eye(d), jax.random.key(2), 8)
    q = jax.block_until_ready(q)
    cold = time.perf_counter() - begun
    row = {"d": d, "way": "fit, 8 steps, with its compilation"}
    keep(row | {"cold": round(cold, 2), "last": float(short(q))})


def rivals(d, data, page, short, seconds, keep):
    """Adam on mu and L with the landing, and on a diagonal q with all of its quadratics."""
    key = jax.random.key(3)

    def full(q, data, eps):
        return page["landing"](lambda z: log_p(z, data), *q, eps)

    def thin(q, data, eps):
        mu, s = q
        G = jax.vmap(jax.grad(log_p), (0, None))(mu + eps * s, data) * s + eps
        c, A = page["quadratics_diagonal"](eps, G, 0.1)
        return c / s, A / s

    def go(block, start, rate, last=0.0):
        one = lambda s, t: block(s, data, jax.random.fold_in(key, t), rate, last)
        left = seconds / (1 if start[1].ndim == 2 else 2)
        return run(one, begin(start), lambda s: short(s[0]), left)[0], left

    for way, gradient, start, draws in (
        ("Adam, landing", full, (jnp.zeros(d), jnp.eye(d)), DRAWS),
        ("Adam, diagonal, all quadratics", thin, (jnp.zeros(d), jnp.ones(d)), (10,)),
    ):
        found = []
        for M in draws:
            block = adam(gradient, M)
            for rate in RATES:
                row, left = go(block, start, rate)
                found.append((row["path"][-1][1], M, rate, left / row["step"], block))
                keep({"d": d, "way": way, "draws": M, "rate": rate} | row)
        found = sorted((f for f in found if f[0] is not None), key=lambda f: f[0])
        for _, M, rate, blocks, block in found[:3]:
            last = BLOCK * max(int(0.97 * blocks), 1)
            row = {"d": d, "way": way, "draws": M, "rate": rate, "falling": last}
            keep(row | go(block, start, rate, float(last))[0])


def guides(d, data, short, seconds, keep):
    """NumPyro's guides, from their own start: a grid of rates, and the best of them falling."""

    def go(name, rate, last=0):
        first, block, q = numpyro_guide(name, rate, d, last)
        row = {"d": d, "way": f"NumPyro, Auto{name}", "draws": 10, "rate": rate}
        row |= {"falling": last} if last else {}
        try:
            found, _ = run(lambda s, t: block(s, data), first(data), lambda s: short(q(s)), seconds)
        except jax.errors.JaxRuntimeError as error:  # out of memory: a row that says so
            found = {"failed": str(error)[:60], "path": [[0.0, None]], "step": seconds}
        keep(row | found)
        return found["path"][-1][1], rate, found["step"]

    for name in GUIDES:
        found = [go(name, rate) for rate in RATES[:-1]]
        _, rate, step = min(f for f in found if f[0] is not None)
        go(name, rate, BLOCK * max(int(0.97 * seconds / step), 1))


# A network, and PyTorch ---------------------------------------------------------------------------

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


def networks(hidden, seconds, keep, rows=600, held=2000):
    """A diagonal q, a full one from where it ended, and a full one from the MAP."""
    page, (f, d) = recipes(), network(hidden)
    keys = jax.random.split(jax.random.key(5), 6)
    data, new = network_data(rows, keys[0]), network_data(held, keys[1])
    log_rows = lambda z, data: (
        -0.5 * ((data[1] - f(z, data[0])) / NOISE) ** 2 - np.log(NOISE * np.sqrt(2 * np.pi))
    )
    joint = lambda z, data: log_rows(z, data).sum() - 0.5 * (z**2).sum() - d / 2 * np.log(2 * np.pi)
    slope = jax.vmap(jax.grad(joint), (0, None))
    rho = lambda t: max(min(0.5, 5 / (t + 10)), 0.05)

    @jax.jit
    def diagonal(q, data, key, rho):
        mu, s = q
        e = jax.random.normal(key, (20, d))
        c, A = page["quadratics_diagonal"](e, slope(mu + e * s, data) * s + e, 0.1)
        S = (1 + (1 - rho * A) ** 2) / 2
        return mu + s * jnp.clip(rho * c / S, -1, 1), s / jnp.sqrt(S)

    @jax.jit
    def full(q, data, key, rho):
        mu, L = q
        slopes = lambda e: (
            lax.map(lambda z: jax.grad(joint)(z, data), mu + e @ L.T, batch_size=min(512, len(e)))
            @ L
            + e
        )
        return page["natural_step"](mu, L, *by_rotation(page, slopes, key, d), rho, 1.0)

    @jax.jit
    def judge(q, data, new, key):
        mu, L = q
        e = jax.random.normal(key, (1000, d))
        z = mu + (e * L if L.ndim == 1 else e @ L.T)
        logdet = jnp.log(jnp.abs(L if L.ndim == 1 else jnp.diag(L))).sum()
        height = lax.map(lambda z: joint(z, data), z, batch_size=100).mean() + logdet
        height = height + d / 2 * np.log(2 * np.pi * np.e)
        lik = lax.map(lambda z: log_rows(z, new), z, batch_size=100)  # (1000, held)
        score = (jax.nn.logsumexp(lik, 0) - np.log(len(e))).mean()
        seen = lax.map(lambda z: f(z, new[0]), z, batch_size=100)
        seen = seen + NOISE * jax.random.normal(key, seen.shape)
        low, high = jnp.quantile(seen, jnp.array([0.05, 0.95]), axis=0)
        return height, score, ((low < new[1]) & (new[1] < high)).mean()

    def go(way, step, q, seconds):
        one = lambda q, t: step(q, data, jax.random.fold_in(keys[2], t), rho(t))
        row, q = run(one, q, lambda q: -judge(q, data, new, keys[3])[0], seconds, looks=6)
        height, score, cover = map(float, judge(q, data, new, keys[3]))
        row |= {"elbo": round(height, 1), "held out": round(score, 4), "covered": round(cover, 4)}
        keep({"network": d, "way": way} | row)
        return q

    climb = adam(lambda q, data, eps: (jax.grad(joint)(q[0], data),), 1)
    state = begin((0.5 * jax.random.normal(keys[4], (d,)),))
    for _ in range(3000 // BLOCK):
        state = climb(state, data, keys[5], 0.01, 3000.0)
    mode = state[0][0]
    thin = go("diagonal", diagonal, (mode, jnp.full(d, 0.03, float)), 2 * seconds)
    go("full, from the diagonal one", full, (thin[0], jnp.diag(thin[1])), seconds)
    go("full, from the MAP", full, (mode, 0.03 * jnp.eye(d)), 2 * seconds)


def in_torch(d, keep):
    """The functions for PyTorch beside JAX's, on the same numbers, and their loop."""
    import torch

    page, ours = recipes("torch"), recipes()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = problem(d)
    there = tuple(torch.tensor(np.asarray(x), device=device) for x in data)
    sigmoid = torch.nn.functional.logsigmoid
    joint = lambda z, data: sigmoid(data[1] * (data[0] @ z)).sum() - 0.5 * (z**2).sum()
    rng = np.random.default_rng(0)
    normals, square, C = (
        rng.standard_normal((d, d)),
        rng.chisquare(d + 2),
        rng.standard_normal((d, d)),
    )
    tensor = lambda x: torch.tensor(np.asarray(x), device=device)
    T, J = tensor(C), jnp.asarray(C)
    pairs = [
        (page["rotated"](lambda e: torch.cos(e @ T), tensor(normals), tensor(square)),
         ours["rotated"](lambda e: jnp.cos(e @ J), jnp.asarray(normals), square)),
    ]  # fmt: skip
    A = (C + C.T) / d
    args = C[0], np.tril(C) / d + np.eye(d), C[1], A, 0.5
    both = ([f(x) if np.ndim(x) else x for x in args] for f in (tensor, jnp.asarray))
    pairs.append(tuple(p["natural_step"](*a) for p, a in zip((page, ours), both)))
    error = max(
        float(np.abs(a.cpu().numpy() - np.asarray(b)).max()) for p in pairs for a, b in zip(*p)
    )
    start = torch.zeros(d, device=device).double(), torch.eye(d, device=device).double()
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        mu, L = page["fit"](joint, there, *start, torch.Generator(device).manual_seed(0), 8)
        height = elbo(jnp.asarray(mu.cpu().numpy()), jnp.asarray(L.cpu().numpy()), data)
        seconds.append(round(time.perf_counter() - begun, 2))
    short = float(elbo(*optimum(data), data) - height)
    keep({"torch": torch.__version__, "device": device, "d": d, "steps": 8, "seconds": seconds[-1],
          "last": float(f"{short:.3g}"), "differs": float(f"{error:.1e}")})  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--parts", nargs="*", default=PARTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seconds", type=float, help="for each setting of a rival")
    parser.add_argument("--hidden", type=int, default=64, help="units of a layer of the network")
    parser.add_argument("--out", type=Path, default=RESULTS, help="another file to write")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []

    def keep(row):
        row = {
            k: float(f"{v:.3g}") if type(v) is float and k == "last" else v for k, v in row.items()
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.save or options.out != RESULTS:
            write(options.out, rows)

    if "torch" in options.parts:
        in_torch(min(options.sizes), keep)
    if {"natural", "adam", "numpyro"} & set(options.parts):
        for d in options.sizes:
            race(d, options.parts, options.seconds or SECONDS.get(d, 10.0), keep)
    if "network" in options.parts:
        networks(options.hidden, options.seconds or 10.0, keep)


def write(path, rows):
    """After every row, so that a run that is stopped leaves what it found."""
    device = jax.devices()[0].device_kind
    found = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
    packages = [name for name in ("jax", "numpyro", "torch", "numpy") if name in found]
    about = {"device": device, "model": "logistic regression, N = 4 d, float64"}
    stored.save(path, packages, about=about, rows=rows)


if __name__ == "__main__":
    main()
