"""`fit` with its defaults: seven posteriors, three logistic sets, a hierarchical model beside JAX.

The hierarchical Poisson model has 33 unknowns and 900 rows. A plain step of it (RP1, all data, ten
draws) is timed in turns with a hand-written one in jitted JAX. Time to within 1 nat of the best
ELBO is taken from a cold process (imports, compilation and all) and without these; JAX's Adam has
the best of four rates, found beforehand. Run it on a quiet machine:

    python -m benchmarks.fit --old v0.5.0 --save     old and new in turns, with their defaults
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored, versions
from benchmarks.steps import best_times
from cvlib import CF, RP1
from experiments import others

M = 10
RATES = (0.1, 0.03, 0.01, 0.003)  # of JAX's Adam
RESULTS = Path(__file__).with_name("fit.json")
few = lambda x, digits=3: float(f"{x:.{digits}g}")


def beside(old, only=()):
    """[row] of this version, each with "old": the same row of another checkout, in turns."""
    here = versions.Worker(versions.ROOT, "beside")
    workers = [here] if old is None else [versions.Worker(old, "beside"), here]
    found = []
    for name in only or here.rows:
        *before, new = (worker.ask(name) for worker in workers)
        found.append(new | ({"old": before[0]} if before else {}))
        print(found[-1], flush=True)
    for worker in workers:
        worker.end()
    return found


def logistic(name):
    """Nats below the exact optimum, and seconds."""
    model = cv.models.logistic_regression(*cv.datasets.load(name))
    start = time.perf_counter()
    fit = cv.fit(model, seconds=5, bend=False, progress=False)
    seconds = time.perf_counter() - start
    best = cv.exact.elbo(model, fit.q, cv.exact.optimum(model, fit.q))
    gap = best - cv.exact.elbo(model, fit.q, fit.w)
    return {"name": name, "d": model.dim, "seconds": few(seconds, 2), "gap": few(max(gap, 0.0), 1)}


# The hierarchical model --------------------------------------------------------------------------


def elbo(model, q, w):
    """On the same many draws for every w."""
    return cv.elbo(model, q, w, 4000, np.random.default_rng(5))[0]


def plain_step(model, q):
    """A plain step of cvlib: the function that takes it."""
    data, prior, variational = cv.terms(model, q)
    h = RP1(data) + RP1(prior) - CF(variational)
    how = {"rule": cv.rules.adam(), "sampling": cv.Sampling(subsample=False)}
    plan = cv.optimize.Noisy(model, q, h, lr=0.01, M=M, **how)
    start = q.start()
    start[q.dim :] *= 0.1
    state = [plan.first(np.random.default_rng(0), w=start)]

    def step():
        state[0] = plan.step(state[0])

    return step


def fit_to_one_nat(model, q, best):
    """Seconds of the shortest fit that comes within 1 nat, and its steps."""
    for steps in (20, 40, 80, 160):
        start = time.perf_counter()
        fit = cv.fit(model, q, steps=steps, progress=False)
        seconds = time.perf_counter() - start
        if best - elbo(model, q, fit.w) < 1:
            return seconds, steps
    return np.inf, steps


def jax_run(model, rate):
    """Adam on the reparameterised ELBO in jitted JAX: (state, advance by n steps, w of a state)."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    y, x, group = map(jnp.asarray, model.data)
    d = model.dim
    rows, cols = np.tril_indices(d)

    def log_joint(z):
        eta = z[0] + z[1] * x + jnp.exp(z[2]) * z[3:][group]
        prior = -0.5 * (z[0] / 2) ** 2 - 0.5 * (z[1] / 2) ** 2 - 0.5 * jnp.exp(2 * z[2]) + z[2]
        return jnp.sum(y * eta - jnp.exp(eta)) + prior - 0.5 * jnp.sum(z[3:] ** 2)

    def minus_elbo(w, eps):
        L = jnp.zeros((d, d)).at[rows, cols].set(w[d:])
        z = w[:d] + eps @ L.T
        return -jnp.mean(jax.vmap(log_joint)(z)) - jnp.sum(jnp.log(jnp.abs(jnp.diag(L))))

    def step(state, _):
        w, m, s, t, key = state
        key, own = jax.random.split(key)
        g = jax.grad(minus_elbo)(w, jax.random.normal(own, (M, d)))
        m, s, t = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2, t + 1
        w = w - rate * m / (1 - 0.9**t) / (jnp.sqrt(s / (1 - 0.999**t)) + 1e-8)
        return (w, m, s, t, key), None

    w = jnp.concatenate([jnp.zeros(d), 0.1 * jnp.eye(d)[rows, cols]])
    state = (w, 0 * w, 0 * w, 0.0, jax.random.PRNGKey(0))
    many = jax.jit(lambda state: jax.lax.scan(step, state, None, 100)[0])
    one = jax.jit(lambda state: step(state, None)[0])
    return state, lambda s: jax.block_until_ready(many(s)), lambda s: jax.block_until_ready(one(s))


def jax_to_one_nat(model, q, best, rate, compiled, steps=20_000):
    """Seconds to within 1 nat and steps; looks at the ELBO are off the clock."""
    begun = time.perf_counter()
    state, many, _ = jax_run(model, rate)
    if compiled:
        many(state)
        begun = time.perf_counter()
    looks = 0.0
    for t in range(100, steps + 1, 100):
        state = many(state)
        looked = time.perf_counter()
        w = np.asarray(state[0])
        near = np.isfinite(w).all() and best - elbo(model, q, w) < 1
        looks += time.perf_counter() - looked
        if near:
            return time.perf_counter() - begun - looks, t
    return np.inf, steps


def cold(what, *args):
    """Seconds of a process of its own that does this, imports and all."""
    command = [sys.executable, "-m", "benchmarks.fit", "--alone", what, *map(str, args)]
    start = time.perf_counter()
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    looks = float(out.stdout.split()[-1]) if out.stdout.split() else 0.0
    return time.perf_counter() - start - looks


def alone(what, *args):
    """What a cold process does; prints the seconds that were not part of it."""
    model = others.OTHERS["groups"]().model("groups")
    if what == "cvlib":
        cv.fit(model, steps=int(args[0]), progress=False)
    else:
        state, many, _ = jax_run(model, float(args[0]))
        for _ in range(int(args[1]) // 100):
            state = many(state)
    print(0.0)


def hierarchical(seconds):
    model = others.OTHERS["groups"]().model("groups")
    q = cv.families.Gaussian(model.dim)
    best = elbo(model, q, cv.fit(model, q, steps=640, progress=False).w)
    taken, steps = fit_to_one_nat(model, q, best)
    ways = {"cvlib": plain_step(model, q)}
    found = {"d": model.dim, "N": model.N, "fit": {"steps": steps, "warm": few(taken, 2)}}
    found["fit"]["cold"] = few(cold("cvlib", steps), 2)
    try:
        import jax  # noqa: F401
    except ModuleNotFoundError:
        print("no JAX here: make bench installs it")
    else:
        runs = {rate: jax_to_one_nat(model, q, best, rate, True) for rate in RATES}
        rate = min(runs, key=runs.get)
        warm, jax_steps = jax_to_one_nat(model, q, best, rate, True)
        first = jax_to_one_nat(model, q, best, rate, False)[0]
        found["jax"] = {
            "rate": rate, "steps": jax_steps, "warm": few(warm, 2), "compiled": few(first, 2),
            "cold": few(cold("jax", rate, jax_steps), 2),
        }  # fmt: skip
        state, many, one = jax_run(model, rate)
        ways["jax"] = lambda: one(state)
        ways["jax, 100 in a scan"] = lambda: many(state)
    times = best_times(ways, seconds)
    found["step"] = {k: few(t / (100 if "100" in k else 1)) for k, t in times.items()}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--old", help="a commit, or the folder of another checkout")
    parser.add_argument("--only", nargs="*", help="these posteriors, and nothing else")
    parser.add_argument("--seconds", type=float, default=1.0, help="for the plain steps (1)")
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", cv.Distrust)
    found = {"versions": stored.versions("numpy", "scipy", "autograd")}
    with threadpool_limits(1):
        if options.alone:
            return alone(*options.alone)
        with versions.checkout(options.old) if options.old else nullcontext() as old:
            found["posteriors"] = beside(old, options.only)
        if options.only:
            return None
        found["logistic"] = [logistic(name) for name in ("sonar", "ionosphere", "australian")]
        found["hierarchical"] = hierarchical(options.seconds)
        print(found["logistic"], found["hierarchical"])
    if options.save:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
