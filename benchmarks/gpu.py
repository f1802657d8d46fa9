"""A full covariance of thousands of unknowns on a GPU: the functions of chapter 20 and rivals.

Logistic regression, x ~ N(0, I / d), z and y drawn from the model, N = 4 d rows, all of them in
every step, float64, from N(0, I). The ELBO of such a model is a sum of N integrals in one
dimension, so that a row has exact nats below the exact optimum, after seconds without compilation
and without the checkpoints; `cold` is the first call with its compilation. Adam's rates go up and
down from .001 by factors of about three until the best has a worse one on either side, first
constant, then falling to zero along a cosine. Parts: "door", `cv.fit` from its first look at the
model to its report, cold and again; "natural", natural steps and batch and match; "curved", what
uses Hessians (benchmarks/gpu_rivals.py); "adam"; "mode", natural steps and Adam from the Gaussian
at the mode; "torch", the functions for PyTorch; "low rank", Adam and pBaM; "network", a model of
which no integral is known (benchmarks/gpu_network.py). Needs JAX, for one part PyTorch; about nine
minutes:

    python -m benchmarks.gpu --save                 # where there is a GPU: all parts
    python -m benchmarks.gpu --parts natural --sizes 40
"""

import argparse
import importlib.metadata
import json
import runpy
import time
import warnings
from datetime import date
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from benchmarks import stored
from benchmarks.race import moves

RESULTS = stored.path("gpu")
DOWNLOADS = Path(__file__).resolve().parents[1] / "book" / "downloads"
SIZES = 1000, 5000
SECONDS, DRAWS = {1000: 3.0, 5000: 6.0}, 1000  # of each setting of Adam
RATES = tuple(float(f"{10 ** (k / 2):.1g}") for k in range(-14, 0))  # 1e-7, 3e-7 ... 0.3
PARTS = "door", "natural", "curved", "network", "torch", "low rank", "adam", "mode"
DOORS = (500, 20_000), (2000, 8000), (5000, 20_000)
RANK = 20
BLOCK = 20  # of Adam's steps, between two looks at the clock
STEPS = 12  # of natural ones


def recipes(framework="jax"):
    """The page's functions, by name."""
    return runpy.run_path(str(DOWNLOADS / f"variates_{framework}.py"))


# The model, its exact ELBO and its exact optimum --------------------------------------------------


def problem(d, rows=None, correlated=False):
    """X (N, d), labels (N,); N = 4 d rows. Correlated columns have a spectrum like 1 / i."""
    keys, N = jax.random.split(jax.random.key(0), 3), rows or 4 * d
    X = jax.random.normal(keys[0], (N, d)) / d**0.5
    if correlated:
        turn = jnp.linalg.qr(jax.random.normal(jax.random.key(1), (d, d)))[0]
        X = X * jnp.arange(1.0, d + 1) ** -0.5 @ turn
        X = X / jnp.sqrt((X**2).mean() * d)
    chance = jax.nn.sigmoid(X @ jax.random.normal(keys[1], (d,)))
    return X, jnp.where(jax.random.uniform(keys[2], (N,)) < chance, 1.0, -1.0)


def log_p(z, data):
    """Without the constant of the prior."""
    X, y = data
    return jax.nn.log_sigmoid(y * (X @ z)).sum() - 0.5 * (z**2).sum()


def expected(f, m, s, nodes=40):
    """E f(eta), eta ~ N(m, s^2), entry by entry."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    parts = lax.map(lambda node: node[1] * f(m + s * node[0]), (jnp.array(x), jnp.array(w)))
    return parts.sum(0) / w.sum()


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


# Algorithms ---------------------------------------------------------------------------------------


def matching():
    """Batch and match (Cai et al. 2024), 2 d + 20 draws, the pull's weight t / (M d)."""

    @jax.jit
    def step(q, data, key, t):
        mu, L = q
        z = mu + jax.random.normal(key, (2 * len(mu) + 20, len(mu))) @ L.T
        slopes = jax.vmap(jax.grad(log_p), (0, None))(z, data)
        return moves.matched(jnp, mu, L, z, slopes, z.size / t)

    return step


def adam(gradient, M, more=0):
    """BLOCK steps of Adam on (q, its moments, steps so far); rate, and where a cosine ends or 0.

    gradient(q, data, eps) -> like q, for eps (M, d + more).
    """

    def one(state, data, key, rate, last):
        q, m, v, t = state
        g = gradient(q, data, jax.random.normal(key, (M, q[0].shape[0] + more)))
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


# The race -----------------------------------------------------------------------------------------


def run(step, state, height, seconds, most=100_000, looks=8):
    """{cold, step, path}: seconds of the first call, of a later one, [[seconds, nats] ...].

    step(state, t) -> state. The clock stands still during a checkpoint, and the first call, which
    compiles, is made twice: its second result counts, at the price of a later one. Up to `most`
    calls; if these are few, each has a checkpoint.
    """
    wait, three = jax.block_until_ready, lambda x: float(f"{x:.3g}")
    begun = time.perf_counter()
    wait(step(jax.tree.map(jnp.array, state), 0))  # a copy: steps may write over it
    cold, spent, path, due = time.perf_counter() - begun, 0.0, [], 0.0
    for t in range(most):
        begun = time.perf_counter()
        state = wait(step(state, t))
        spent += time.perf_counter() - begun
        over = spent >= seconds or t == most - 1
        if over or spent >= due or most <= 20:
            nats = float(height(state))
            path.append([three(spent), three(nats) if np.isfinite(nats) else None])
            due = spent + seconds / looks
        if over or path[-1][1] is None:
            break
    return {"cold": round(cold, 2), "step": three(spent / (t + 1)), "path": path}, state


def tuned(row, go, seconds, keep):
    """Rows of go(rate, last): constant rates until the best lies inside, then falling ones."""
    best, step = walked(row, lambda rate: go(rate, 0), RATES.index(0.001), keep)
    if best is not None:
        last = BLOCK * max(int(0.97 * seconds / step), 1)
        walked(row | {"falling": last}, lambda rate: go(rate, last), best, keep)


def walked(row, go, k, keep):
    """From RATES[k] to the best of all, a row for each: its place, and the time of its step."""
    steps = {}

    @cache
    def height(k):
        if not 0 <= k < len(RATES):
            return -np.inf
        try:
            found = go(RATES[k])
        except jax.errors.JaxRuntimeError as error:  # out of memory: a row that says so
            found = {"failed": str(error)[:60], "path": [[0.0, None]], "step": np.inf}
        keep(row | {"rate": RATES[k]} | found)
        last, steps[k] = found["path"][-1][1], found["step"]
        return -np.inf if last is None else -last

    while (best := max((k, k - 1, k + 1), key=height)) != k:
        k = best
    return (k, steps[k]) if np.isfinite(steps[k]) else (None, None)


def climb(row, block, start, data, short, seconds, keep):
    """Adam from `start` at each rate; short(q) are nats below the best."""

    def go(rate, last):
        key = jax.random.key(3)
        one = lambda s, t: block(s, data, jax.random.fold_in(key, t), rate, float(last))
        return run(one, begin(start), lambda s: short(s[0]), seconds)[0]

    tuned(row, go, seconds, keep)


def race(d, parts, seconds, keep):
    """The algorithms of these parts on one size; `keep` takes each row as it is made."""
    page, data = recipes(), problem(d)
    best, start = elbo(*optimum(data), data), (jnp.zeros(d), jnp.eye(d))
    short = lambda q: best - elbo(*q[:2], data)
    if "natural" in parts:
        naturals(d, data, page, start, short, keep)
    if "curved" in parts:
        from benchmarks.gpu_rivals import curved

        curved(d, data, page, short, keep)
    begins = {"Adam, STL": start} if "adam" in parts else {}
    if "mode" in parts:
        from benchmarks.gpu_rivals import laplace

        begins["Adam, STL, from the mode"] = q = laplace(data)
        keep({"d": d, "way": "rotated, from the mode"} | steps_of_fit(page, data, q, short))
    for way, q in begins.items():
        stl = lambda q, data, eps: page["stl"](lambda z: log_p(z, data), *q, eps)
        row = {"d": d, "way": way, "draws": DRAWS}
        climb(row, adam(stl, DRAWS), q, data, short, seconds, keep)


def steps_of_fit(page, data, q, short):
    """A run of the page's `fit_step` from q."""
    keys = jax.random.split(jax.random.key(1), STEPS)
    turn = lambda q, t: page["fit_step"](*q, data, keys[t], log_p, None)
    begun = *q, jnp.ones(()), (0 * q[0], 0 * q[1])
    return run(turn, begun, short, 60.0, STEPS)[0]


def naturals(d, data, page, start, short, keep):
    """The best diagonal q, the page's steps, batch and match, and `fit` with its compilation."""
    keep({"d": d, "way": "diagonal, exact", "last": float(short(optimum(data, diagonal=True)))})
    keep({"d": d, "way": "rotated"} | steps_of_fit(page, data, start, short))
    keys, match = jax.random.split(jax.random.key(1), STEPS), matching()
    pull = lambda q, t: match(q, data, keys[t], t + 1.0)
    keep({"d": d, "way": "batch and match"} | run(pull, start, short, 60.0, STEPS)[0])
    jax.clear_caches()
    begun = time.perf_counter()
    q = jax.block_until_ready(page["fit"](log_p, data, *start, jax.random.key(2), 8))
    cold = time.perf_counter() - begun
    row = {"d": d, "way": "fit, 8 steps, with its compilation"}
    keep(row | {"cold": round(cold, 2), "last": float(short(q))})


def doors(sizes, keep):
    """`cv.fit` of these sizes, twice: with all compilation, and on the same model again."""
    import cvlib as cv

    for d, N in sizes:
        data = problem(d, N)
        jax.clear_caches()
        begun = time.perf_counter()
        model = cv.models.from_jax(log_p, d, data=jax.tree.map(np.asarray, data))
        took = []
        for _ in range(2):
            with warnings.catch_warnings(action="ignore"):
                fit = cv.fit(model, cv.families.Gaussian(d), progress=False, seconds=200)
            took.append(round(time.perf_counter() - begun, 2))
            begun = time.perf_counter()
        nats = elbo(*optimum(data), data) - elbo(*map(jnp.asarray, fit.q.unpack(fit.w)), data)
        row = {"way": "cv.fit", "d": d, "N": N, "cold": took[0], "warm": took[1]}
        keep(row | {"settled": bool(fit.settled), "last": float(nats)})


def in_torch(d, keep):
    """The loop for PyTorch, eight steps."""
    import torch

    page, device = recipes("torch"), "cuda" if torch.cuda.is_available() else "cpu"
    data = problem(d)
    there = tuple(torch.tensor(np.asarray(x), device=device) for x in data)
    sigmoid = torch.nn.functional.logsigmoid
    joint = lambda z, data: sigmoid(data[1] * (data[0] @ z)).sum() - 0.5 * (z**2).sum()
    start = torch.zeros(d, device=device).double(), torch.eye(d, device=device).double()
    q = page["fit"](joint, there, *start, torch.Generator(device).manual_seed(0), 8)
    q = [jnp.asarray(part.cpu().numpy()) for part in q]
    row = {"torch": torch.__version__, "device": device, "d": d, "steps": 8}
    keep(row | {"last": float(elbo(*optimum(data), data) - elbo(*q, data))})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--parts", nargs="*", default=PARTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seconds", type=float, help="for each setting of a rival")
    parser.add_argument("--hidden", type=int, default=64, help="units of a layer of the network")
    parser.add_argument("--out", type=Path, default=RESULTS, help="another file to write")
    options, rows, begun = parser.parse_args(), [], time.perf_counter()
    jax.config.update("jax_enable_x64", True)
    parts, sizes = set(options.parts), options.sizes

    def keep(row):
        row |= {"last": float(f"{row['last']:.3g}")} if "last" in row else {}
        rows.append(row)
        print(f"{time.perf_counter() - begun:.0f} s", json.dumps(row), flush=True)
        if options.save or options.out != RESULTS:
            write(options.out, rows)

    if "door" in parts:
        doors(DOORS if sizes is SIZES else [(d, 4 * d) for d in sizes], keep)
    for some in {"natural", "curved"}, {"network"}, {"torch"}, {"low rank"}, {"adam", "mode"}:
        if not (some := some & parts):
            continue
        if "network" in some:
            from benchmarks.gpu_network import networks

            networks(options.hidden, options.seconds or 10.0, keep)
        elif "torch" in some:
            in_torch(min(sizes), keep)
        elif "low rank" in some:
            from benchmarks.gpu_rivals import low_ranks

            low_ranks(min(sizes), options.seconds or 3.0, keep)
        else:
            for d in sizes:
                race(d, some, options.seconds or SECONDS.get(d, 3.0), keep)


def write(path, rows):
    """After every row, so that a run that is stopped leaves what it found."""
    device = jax.devices()[0].device_kind
    found = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
    packages = [name for name in ("jax", "torch", "numpy") if name in found]
    about = {"device": device, "date": str(date.today()), "run": "python -m benchmarks.gpu --save",
             "model": "logistic regression, N = 4 d, float64"}  # fmt: skip
    stored.save(path, packages, about=about, rows=rows)


if __name__ == "__main__":
    main()
