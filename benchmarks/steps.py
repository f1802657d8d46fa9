"""Time of one step: cvlib beside JAX, autograd through w, and the products RP2 cannot avoid.

A step draws its noise and data points, makes the per-sample gradients, combines them with weights
from the step before, and updates the moments. JAX is there twice: "jax" takes the Jacobian through
w, sample by sample; "jax, by hand" differentiates in z and has the pull-back to w written out, as
cvlib has. JAX's own noise is slow in double precision, so both are also timed with the same noise
given every time, held where it computes: their best case. Before anything is timed, all ways are
given the same noise and must agree to 1e-10. `make bench` runs it; speed claims are ratios within
one run.

    python -m benchmarks.steps --save
"""

import os
import sys
import time
from functools import partial

import autograd
import autograd.numpy as anp
import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.reference import make_lines, make_pulled
from cvlib import combine

M, V0, GAMMA = 10, 1e-3, 0.02
DATA = ("australian", "ionosphere", "sonar")
S7 = ["c2", "c1", "c3", "c4", "c6", "c5", "c7"]
SETS = {"base": ["h"], "c7": ["h", "c7"], "S7": ["h", *S7]}


def best_times(ways, seconds=0.5, rounds=10, clock=time.perf_counter):
    """Seconds a call for every way: the shortest of its blocks, what an undisturbed machine does.

    The ways take turns, so that a slow moment of the machine falls on all of them.
    """
    calls, best = {}, dict.fromkeys(ways, np.inf)
    for name, step in ways.items():
        step()
        once = timed(step, 1, clock)
        calls[name] = max(1, int(seconds / rounds / once))
    for _ in range(rounds):
        for name, step in ways.items():
            time.sleep(0.01)  # threads of the way before may still be awake
            step()
            best[name] = min(best[name], timed(step, calls[name], clock))
    return best


def timed(step, n, clock=time.perf_counter):
    """Mean seconds of n calls."""
    start = clock()
    for _ in range(n):
        step()
    return (clock() - start) / n


class Problem:
    """A model, weights and moments from which every way takes the same step."""

    def __init__(self, model, names, runs=(), samples=M):
        self.model, self.names, self.runs, self.samples = model, names, runs, samples
        self.q = q = cv.families.Gaussian(model.dim)
        zoo = cv.zoo.paper(model, q)
        self.lines = [getattr(zoo, name) for name in names]
        self.rng = rng = np.random.default_rng(0)
        self.w = q.start(runs) + 0.05 * rng.standard_normal((*runs, q.D))
        self.eps = rng.standard_normal((*runs, samples, q.dim))
        self.index = rng.integers(model.N, size=(*runs, samples))
        G = cv.evaluate(self.lines, self.given())
        start = combine.start(len(names) - 1, runs)
        self.state = combine.update(start, G[..., 0, :, :], G[..., 1:, :, :], GAMMA)

    def given(self):
        return cv.draw(self.model, self.q, self.w, eps=self.eps, index=self.index)


def cvlib_way(p):
    """(step with noise of its own, step on the given noise)."""
    G = np.empty((*p.runs, len(p.names), p.samples, p.q.D))

    def step(draw):
        cv.evaluate(p.lines, draw, out=G)
        h, C = G[..., 0, :, :], G[..., 1:, :, :]
        if len(p.names) == 1:
            return h.mean(-2), G
        a = combine.bayes_weights(p.state, V0, p.q.D)
        return combine.mean(h, C, a), G, combine.update(p.state, h, C, GAMMA)

    return lambda: step(cv.draw(p.model, p.q, p.w, p.samples, p.rng)), lambda: step(p.given())


def jax_way(p, by_hand=False):
    """The same two of the formulas under vmap and jit, in double precision, batched over runs.

    The Jacobian of the plain formulas through w; by_hand=True: slopes in z, pulled back by hand.
    """
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    X, y = jnp.array(p.model.X), jnp.array(p.model.y)
    per_sample = _by_hand(jax, X, y, p.names) if by_hand else _through_w(jax, X, y, p.names)
    L = len(p.names) - 1

    def gradient(w, eps, x, label, k, CC, Ch, seen):
        G = jnp.swapaxes(per_sample(w, eps, x, label, k), 0, 1)  # (lines, M, D)
        h, C = G[0], G[1:]
        if not L:
            return h.mean(0), G
        a = -jnp.linalg.solve(p.q.D * V0 / seen * jnp.eye(L) + CC, Ch)
        flat = C.reshape(L, -1)
        CC = (seen * CC + flat @ flat.T) / (seen + p.samples)
        Ch = (seen * Ch + flat @ h.reshape(-1)) / (seen + p.samples)
        return (h + jnp.tensordot(a, C, 1)).mean(0), G, CC, Ch, (1 - GAMMA) * (seen + p.samples)

    if p.runs:
        gradient = jax.vmap(gradient, (0, 0, 0, 0, 0, 0, 0, None))

    def looked_up(index):
        return X[index], y[index], (y[index] > 0).astype(int)

    @jax.jit  # a program of its own: in one with the gradient, JAX 0.10 deadlocks on two cores
    def noise(key):
        key, one, two = jax.random.split(key, 3)
        eps = jax.random.normal(one, p.eps.shape)
        return key, eps, *looked_up(jax.random.randint(two, p.index.shape, 0, p.model.N))

    gradient = jax.jit(gradient)
    w, CC, Ch = (jnp.asarray(a) for a in (p.w, p.state.CC, p.state.Ch))
    keys, given = [jax.random.key(0)], (jnp.asarray(p.eps), *looked_up(p.index))

    def step():
        keys[0], *drawn = noise(keys[0])
        return jax.block_until_ready(gradient(w, *drawn, CC, Ch, p.state.M))

    def on_given():
        return jax.block_until_ready(gradient(w, *given, CC, Ch, p.state.M))

    return step, on_given


def _through_w(jax, X, y, names):
    jacobian = jax.vmap(jax.jacrev(make_lines(jax.numpy, X, y, names)), (None, None, 0, 0, 0, 0))
    return lambda w, *drawn: jacobian(w, w, *drawn)  # (M, lines, D)


def _by_hand(jax, X, y, names):
    shared, pulled = make_pulled(jax.numpy, jax.grad, X, y, names)
    rows = jax.vmap(pulled, (None, 0, 0, 0, 0))
    return lambda w, *drawn: rows(shared(w), *drawn)  # (M, lines, D)


def autograd_way(p):
    """Jacobian through w, one sample after the other, on the given noise."""
    lines = make_lines(anp, p.model.X, p.model.y, p.names)
    jacobian = autograd.jacobian(lines)
    k = (p.model.y > 0).astype(int)

    def step():
        each = [
            jacobian(p.w, p.w, e, p.model.X[i], p.model.y[i], k[i])
            for e, i in zip(p.eps, p.index, strict=True)
        ]
        return np.stack(each, 1)  # (lines, M, D)

    return step


def floor(p, lines):
    """The two matrix products of the RP2 pull-back for so many lines, buffers at hand."""
    d = p.q.dim
    K, P, R = p.rng.standard_normal((3, *p.runs, lines * p.samples, d, d))
    U, V = p.rng.standard_normal((2, *p.runs, 1, d, d))

    def products():
        np.matmul(K, V, out=P)
        np.matmul(U, P, out=R)

    return products


def check_agreement(p, ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        gap = np.abs(mine - np.asarray(other)).max() / np.abs(mine).max()
        if not gap < 1e-10:
            sys.exit(f"the ways disagree by {gap:.1e} for {p.names} on {p.model!r}")


def compare(seconds):
    """Rows of the table, seconds a step, printed as they come."""
    rows = []
    for name in DATA:
        model = cv.models.logistic_regression(*cv.datasets.load(name))
        for runs in ((), (8,)):
            for label, names in SETS.items():
                rows.append(compare_one(name, Problem(model, names, runs), label, seconds))
                base = next(r for r in rows[::-1] if r["set"] == "base")["cvlib"]
                rows[-1]["over base"] = rows[-1]["cvlib"] / base
                told = {k: stored.few(x) if type(x) is float else x for k, x in rows[-1].items()}
                print("  ".join(f"{k} {x}" for k, x in told.items()), flush=True)
    return rows


def compare_one(name, p, label, seconds):
    ours, ours_given = cvlib_way(p)
    ways = {"cvlib": ours, "cvlib, given": ours_given}
    for jaxs, by_hand in ("jax", False), ("jax, by hand", True):
        theirs, theirs_given = jax_way(p, by_hand)
        check_agreement(p, ours_given()[:2], theirs_given()[:2])
        ways |= {jaxs: theirs, f"{jaxs}, given": theirs_given}
    if not p.runs:
        ways["autograd"] = autograd_way(p)
        check_agreement(p, ours_given()[1:2], [ways["autograd"]()])
    if label == "S7":
        ways["floor"] = floor(p, 3)  # RP2 of prior, data, Taylor in x (c6 is one pull-back)
        ways["svd"] = partial(np.linalg.svd, p.given().factor)
    row = {"data": name, "d": p.q.dim, "runs": p.runs[0] if p.runs else 1, "set": label}
    return row | best_times(ways, seconds)


def growth(seconds):
    """Time a step against d, M, L and the number of runs, one at a time around d = 32, M = 10."""

    def step(d=32, samples=M, names=SETS["S7"], runs=()):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (200, d))
        model = cv.models.logistic_regression(X, np.where(rng.random(200) < 0.5, 1.0, -1.0))
        return cvlib_way(Problem(model, names, runs, samples))[0]

    grids = {
        "d": {d: step(d=d) for d in (2, 4, 8, 16, 32, 64, 128)},
        "M": {m: step(samples=m) for m in (1, 3, 10, 30, 100, 300)},
        "L": {n: step(names=["h", *S7[:n]]) for n in range(8)},
        "runs": {r: step(runs=(r,)) for r in (1, 2, 4, 8, 16, 32, 64)},
    }
    found = {what: best_times(steps, seconds) for what, steps in grids.items()}
    for what, times in found.items():
        print(f"{what:<5}" + "  ".join(f"{k}: {1e3 * t:.2f} ms" for k, t in times.items()))
    return {what: {str(k): t for k, t in times.items()} for what, times in found.items()}


def measure(seconds):
    """Both parts of the file."""
    # With a thread a core JAX 0.10 hangs now and then in its batched eigh. One more costs it a few
    # percent there.
    os.environ.setdefault("NPROC", str(os.cpu_count() + 1))
    try:
        import jax  # noqa: F401
    except ImportError:
        sys.exit("JAX is missing: run `make bench`, or pip install -e '.[bench]'")
    return {"steps": compare(seconds), "growth": growth(0.6 * seconds)}


if __name__ == "__main__":
    stored.command(__doc__, "steps", ("numpy", "jax", "autograd"), measure, None, seconds=0.5)
