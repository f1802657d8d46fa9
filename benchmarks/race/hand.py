"""Ways by hand, one form of each: loops that JAX has compiled, and SciPy's searches.

All work in double precision, see all data in every step unless they are told to take batches, and
compile once a model: rates, schedules and starts are arguments of what was compiled. Natural steps
of all kinds may begin with some moves of batch and match, which all of them share.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from benchmarks.race import moves
from benchmarks.race.rules import (
    CLIMB,
    MODE,
    MOVES,
    SEARCH,
    START,
    STEPS,
    Axis,
    Look,
    Runner,
    clock,
    once,
)
from cvlib.points import rotations

PARTICLES, BATCH = 10, 1000  # draws of a step of Adam's, where they are not tuned; rows of a batch
JAX, BOTH = ("jax",), ("jax", SEARCH)


def there(*packages):
    return all(map(find_spec, packages))


# The model in JAX --------------------------------------------------------------------------------


def in_jax(problem, in_batches=False):
    """log p(x, z) as JAX sees it: (z, rows) -> number, on these rows alone if in batches."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    lik, prior, data = problem.density(jnp)
    data = tuple(map(jnp.asarray, data))
    if not in_batches:
        return lambda z, rows=None: lik(z, *data) + prior(z)
    N = len(data[0])
    return lambda z, rows: N / len(rows) * lik(z, *(a[rows] for a in data)) + prior(z)


def batched(f):
    """f(z) of one z at points (n, d), compiled, a few at a time; for the judge."""
    import jax

    one = jax.jit(jax.vmap(f))
    parts = lambda z: [jax.device_get(one(part)) for part in np.array_split(z, 4)]
    join = lambda *x: np.concatenate(x)
    return lambda z: jax.tree_util.tree_map(join, *parts(z))


def curvature(problem):
    """Slope and Hessian at one z, compiled: what a search for the mode needs."""

    def build():
        import jax

        joint, zero = in_jax(problem), np.zeros(problem.model.dim)
        slope, hessian = jax.jit(jax.value_and_grad(joint)), jax.jit(jax.hessian(joint))
        jax.block_until_ready((slope(zero), hessian(zero)))
        host = lambda pair: (float(pair[0]), np.asarray(pair[1]))
        return lambda z: host(slope(z)), lambda z: np.asarray(hessian(z)), len(zero)

    return once((problem.name, "curvature"), build)


def began(problem, start, about=None):
    """Where a run begins: mu (d,), L (d, d), gradients spent, and what brought it there.

    `about`: slope and Hessian where no JAX is there.
    """
    if start == "usual":
        return *problem.q.unpack(problem.start), 0, START
    return *moves.laplace(*(about or curvature(problem)))[:3], MODE


def started(problem, setting, about=None):
    """The looks with which a run begins; returned is where it then is."""
    if setting["start"] == "mode" and not about:
        curvature(problem)
    yield Look(0, problem.start, START)
    mu, L, spent, by = began(problem, setting["start"], about)
    yield Look(spent, packed(problem, mu, L), by)
    return mu, L, spent


def packed(problem, mu, L):
    return lambda: problem.q.pack(np.asarray(mu), np.asarray(L))


def laplace(problem, setting, seed, seconds):
    """The mode, its curvature, nothing else."""
    about = curvature(problem)
    yield Look(0, problem.start, START)
    mu, L, spent, sure = moves.laplace(*about)
    if not sure:
        raise ValueError("no positive curvature at the mode")
    yield Look(spent, packed(problem, mu, L), MODE)


# Steps -------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """What a compiled step does.

    draws(rng, d, size) -> e (M, d), weights (M,), by NumPy: they need no compiler;
    move(jnp, place, seen, knobs) -> the next place.
    """

    name: str
    draws: Callable
    move: Callable
    each: int = 1  # steps that are one call
    hessians: bool = False
    batch: int | None = None


class Place(NamedTuple):
    """Where a run is: mu, L, its memory, and the steps that it has taken."""

    mu: np.ndarray
    L: np.ndarray
    memory: tuple
    t: np.ndarray


class Seen(NamedTuple):
    """What a step saw: draws, their weights, slopes (M, d) of log p, and Hessians' mean (d, d)."""

    e: np.ndarray
    weight: np.ndarray
    u: np.ndarray
    H: np.ndarray | None


class Knobs(NamedTuple):
    """Numbers that change from run to run: a rate, and when it begins to fall like 1 / t."""

    rate: float
    after: float


def plain(rng, d, size):
    return rng.standard_normal((size, d)), np.full(size, 1 / size)


def pairs(rng, d, size):
    e = rng.standard_normal((size // 2, d))
    return np.concatenate([e, -e]), np.full(size, 1 / size)


def even(rng, d, size):
    return moves.evened(rng.standard_normal((size // 2, d))), np.full(size, 1 / size)


def turned(rng, d, size):
    """As many rotations as `size`, exact for every cubic; weights sum to one."""
    M = size * (2 * d + 1)
    e, weight = rotations(rng, (), M, d)
    return e, weight / M


def natural(estimate):
    """A natural step on an estimate (c, A); rho = rate min(1, after / t)."""

    def move(jnp, place, seen, knobs):
        mu, L, memory, t = place
        rho = knobs.rate * jnp.minimum(1.0, knobs.after / (t + 1))
        c, A = estimate(jnp, L, seen)
        return Place(*moves.newton(jnp, mu, L, c, A, rho), memory, t + 1)

    return move


def by_landing(jnp, L, seen):
    return moves.landing(jnp, seen.e, seen.u @ L + seen.e, seen.weight)


def by_regression(jnp, L, seen):
    """All quadratics, from the other draws."""
    return moves.regressed(jnp, seen.e, seen.u @ L + seen.e, seen.e.shape[1] / 10)


def by_price(jnp, L, seen):
    return (seen.u @ L).mean(0), jnp.eye(len(L)) + L.T @ seen.H @ L


def match(jnp, place, seen, knobs):
    """Batch and match with the pull rate M d / t."""
    mu, L, memory, t = place
    pull = knobs.rate * seen.e.size / (t + 1)
    z = mu + seen.e @ L.T
    return Place(*moves.matched(jnp, mu, L, z, seen.u, pull), memory, t + 1)


def score(jnp, place, seen, knobs):
    mu, L, memory, t = place
    return Place(*moves.scored(jnp, mu, L, mu + seen.e @ L.T, seen.u), memory, t + 1)


def adam(landing):
    """Ordinary steps in (mu, L) on the reparameterised gradient; the entropy exact, or sampled."""

    def move(jnp, place, seen, knobs):
        mu, L, memory, t = place
        e, u = seen.e, seen.u
        if landing:
            u = u + moves.triangular(jnp)(L, e.T, lower=True, trans=1).T
        slope = jnp.tril(u.T @ e / len(e))
        slope = slope if landing else slope + jnp.diag(1 / jnp.diag(L))
        rate = knobs.rate * jnp.minimum(1.0, knobs.after / (t + 1))
        new, kept = [], []
        for w, g, (m, s) in zip((mu, L), (u.mean(0), slope), memory):
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
            off = m / (1 - 0.9 ** (t + 1)) / (jnp.sqrt(s / (1 - 0.999 ** (t + 1))) + 1e-8)
            new.append(w + rate * off)
            kept.append((m, s))
        return Place(*new, tuple(kept), t + 1)

    return move


def built(problem, kind, size):
    """Steps of this kind on draws of this size, compiled; where they begin; gradients of a call."""

    def build():
        import jax
        import jax.numpy as jnp

        joint, d = in_jax(problem, kind.batch is not None), problem.model.dim
        slope = jax.vmap(jax.grad(joint), (0, None))
        hessian = jax.vmap(jax.hessian(joint), (0, None))
        M = len(kind.draws(np.random.default_rng(0), d, size)[0])
        each = max(kind.each // 4, 1) if problem.large and kind.batch is None else kind.each

        def one(place, given, knobs):
            e, weight, rows = given
            z = place.mu + e @ place.L.T
            H = hessian(z, rows).mean(0) if kind.hessians else None
            return kind.move(jnp, place, Seen(e, weight, slope(z, rows), H), knobs)

        def some(place, given, knobs):
            next_one = lambda place, given: (one(place, given, knobs), None)
            return jax.lax.scan(next_one, place, given)[0]

        call = jax.jit(one if each == 1 else some)

        def draw(rng):
            """Draws, weights and rows of one step."""
            rows = rng.integers(problem.model.N, size=kind.batch) if kind.batch else None
            return *kind.draws(rng, d, size), rows

        def steps(place, rng, knobs):
            given = [draw(rng) for _ in range(each)]
            given = (
                given[0] if each == 1 else jax.tree_util.tree_map(lambda *x: np.stack(x), *given)
            )
            return jax.block_until_ready(call(place, given, knobs))

        def begin(mu, L):
            zero = tuple((np.zeros_like(x), np.zeros_like(x)) for x in (mu, L))
            memory = zero if kind.name.startswith("Adam") else ()
            return Place(np.asarray(mu), np.asarray(L), memory, np.zeros(()))

        first, knobs = begin(*problem.q.unpack(problem.start)), Knobs(0.1, 1.0)
        rng = np.random.default_rng(0)
        steps(steps(first, rng, knobs), rng, knobs)  # from NumPy's arrays, and from its own
        share = 1.0 if kind.batch is None else kind.batch / problem.model.N
        return steps, begin, each * M * share * (1 + d * kind.hessians)

    return once((problem.name, kind.name, size), build)


FIRST = Kind("first moves", plain, match)


def by_hand(kind, size=None):
    """A way that takes these steps. size(setting, d): how many draws."""
    size = size or (lambda setting, d: max(2 * d, 20))

    def run(problem, setting, seed, seconds):
        d, count = problem.model.dim, setting.get("moves", 0)
        steps, begin, cost = built(problem, kind, size(setting, d))
        if count:
            first, begin_first, cost_first = built(problem, FIRST, max(2 * d, 20))
        after = setting.get("after")
        knobs = Knobs(setting.get("rate", 1.0), np.inf if after is None else float(after))
        rng = np.random.default_rng(seed)
        mu, L, spent = yield from started(problem, setting)
        if count:
            place = begin_first(mu, L)
            for _ in range(count):
                place = first(place, rng, Knobs(1.0, np.inf))
                mu, L, spent = place.mu, place.L, spent + cost_first
                yield Look(spent, packed(problem, mu, L), MOVES)
        place = begin(mu, L)
        while True:
            place = steps(place, rng, knobs)
            spent += cost
            yield Look(spent, packed(problem, place.mu, place.L), STEPS)

    return run


# Fixed draws -------------------------------------------------------------------------------------


class Late(Exception):
    """The time of a search is over."""


def fixed_draws(problem, setting, seed, seconds):
    """The ELBO of M draws that stay, by L-BFGS (Giordano et al. 2024), in the start's coordinates.

    "even" draws come in opposite pairs and have covariance I exactly; DADVI's own do not.
    """
    from scipy.optimize import minimize

    d, low = problem.model.dim, np.tril_indices(problem.model.dim)
    M = setting["draws"] * d + setting["draws"] * d % 2
    f = once((problem.name, "fixed draws", M), partial(_fixed, problem, M))
    if setting["start"] == "mode":
        curvature(problem)
    yield Look(0, problem.start, START)
    begun = clock()
    mu, S, spent, by = began(problem, setting["start"])
    e = np.random.default_rng(seed).standard_normal((M // 2 if setting["even"] else M, d))
    e = moves.evened(e) if setting["even"] else e
    path, calls = [(spent, np.zeros(d + len(low[0])), by, clock() - begun)], 0

    def minus(x):
        nonlocal calls
        calls += 1
        if clock() - begun > seconds:
            raise Late
        value, slope = f(x, mu, S, e)
        fine = np.isfinite(value) and np.isfinite(slope).all()
        return (-float(value), -np.asarray(slope)) if fine else (1e100, np.zeros_like(x))

    def seen(x):
        path.append((spent + calls * M, x.copy(), CLIMB, clock() - begun))

    how = {"maxiter": 2000, "maxfun": 4000, "maxcor": setting["memory"], "ftol": 1e-9}
    try:
        minimize(minus, path[0][1], jac=True, method="L-BFGS-B", callback=seen, options=how)
    except Late:
        pass

    def unpacked(x):
        B = np.zeros((d, d))
        B[low] = x[d:]
        np.fill_diagonal(B, np.exp(np.diag(B)))
        return problem.q.pack(mu + S @ x[:d], S @ B)

    for gradients, x, by, at in path:
        yield Look(gradients, partial(unpacked, x), by, at)


def _fixed(problem, M):
    """The ELBO and its slope in x = (a, B, its diagonal as a logarithm): z = mu + S (a + B e)."""
    import jax
    import jax.numpy as jnp

    joint, d = in_jax(problem), problem.model.dim
    low = np.tril_indices(d)

    def elbo(x, mu, S, e):
        B = jnp.zeros((d, d)).at[low].set(x[d:])
        B = B - jnp.diag(jnp.diag(B)) + jnp.diag(jnp.exp(jnp.diag(B)))
        z = mu + (x[:d] + e @ B.T) @ S.T
        diagonal = x[d:][low[0] == low[1]]
        return jax.vmap(joint)(z).mean() + diagonal.sum()

    f = jax.jit(jax.value_and_grad(elbo))
    zero = np.zeros(d + len(low[0]))
    jax.block_until_ready(f(zero, np.zeros(d), 0.01 * np.eye(d), np.zeros((M, d))))
    return f


# The list ----------------------------------------------------------------------------------------

RATES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
STARTS = Axis(("mode", "usual"), ("mode", "usual"), ordered=False)
ADAM = {  # a rate is constant, or falls like 1 / t after so many steps
    "start": STARTS,
    "after": Axis((None, 3000, 1000, 300, 100, 30, 10, 3), (None, 1000, 100, 10), natural=(None,)),
    "rate": Axis(RATES, (0.1, 0.03, 0.01, 3e-3)),
}
WITH_DRAWS = ADAM | {"draws": Axis((1, 3, 10, 30, 100), (10,), natural=(1,))}
COUNTS = Axis((0, 1, 2, 3, 4, 6, 8, 12, 16), (0, 4), natural=(0,))  # of first moves
FALLS = Axis((None, 64, 32, 16, 8, 4, 2, 1, 0.5), (None, 4), natural=(None,))
SLOW = Axis((1.0, 0.6, 0.3, 0.15, 0.08, 0.04, 0.02, 0.01), (1.0, 0.3), natural=(1.0,))
NATURAL = {"start": STARTS, "moves": COUNTS, "after": FALLS, "rate": SLOW}
LANDING = NATURAL | {"after": FALLS._replace(coarse=(None, 16, 4, 1))}
DOUBLE = Axis((2, 4, 8, 16), (2, 4), natural=(2,))  # draws in units of d
TURNS = Axis((1, 2, 4), (1, 2), natural=(1,))
PAIRS = Axis((2, 4, 8, 16), (2, 4), natural=(2,))
MATCH = {
    "start": STARTS, "moves": COUNTS,
    "draws": Axis((1, 2, 4, 8, 16), (2, 4), natural=(1,)),
    "rate": Axis((100.0, 30.0, *RATES), (1.0, 0.1, 0.01, 1e-3)),
}  # fmt: skip
SCORE = {
    "start": STARTS, "moves": COUNTS._replace(coarse=(0, 2, 4, 8)),
    "draws": Axis((1, 2, 8, 32, 128), (2, 8, 32, 128), natural=(1,)),
}  # fmt: skip
FIXED = {
    "start": STARTS, "even": Axis((True, False), (True, False), ordered=False),
    "draws": Axis((1, 2, 4, 8, 16, 32, 64), (2, 4, 8, 16), natural=(1,)),
    "memory": Axis((2, 3, 5, 10, 20, 40, 80), (5, 20)),
}  # fmt: skip


def times_d(setting, d):
    """Draws in units of d, an even number of them."""
    M = max(setting["draws"] * d, 4)
    return M + M % 2


natural_way = lambda name, draws, estimate, **how: Kind(name, draws, natural(estimate), **how)
LAND = natural_way("natural, landing", plain, by_landing)
TURN = natural_way("natural, rotated", turned, by_landing)
EVEN = natural_way("natural, even", even, by_landing)
QUAD = natural_way("natural, all quadratics", plain, by_regression)
PRICE = natural_way("natural, Price", pairs, by_price, hessians=True)
MATCHED, SCORED = Kind("batch and match", plain, match), Kind("score matching", plain, score)
ORDINARY = Kind("Adam", plain, adam(False), each=20)
LANDS = Kind("Adam, landing", plain, adam(True), each=20)
IN_BATCHES = Kind("Adam, batches", plain, adam(False), each=20, batch=BATCH)
particles = lambda setting, d: setting.get("draws", PARTICLES)
large = lambda problem: problem.large
not_large = lambda problem: not problem.large
RUNNERS = (
    Runner("Laplace", laplace, {}, BOTH),
    Runner("natural, landing", by_hand(LAND), LANDING, JAX),
    Runner("natural, rotated", by_hand(TURN, lambda s, d: s["turns"]),
           NATURAL | {"turns": TURNS}, JAX),
    Runner("natural, even", by_hand(EVEN, times_d), NATURAL | {"draws": DOUBLE}, JAX),
    Runner("natural, all quadratics", by_hand(QUAD, times_d), NATURAL | {"draws": DOUBLE}, JAX),
    Runner("natural, Price", by_hand(PRICE, lambda s, d: s["draws"]),
           NATURAL | {"draws": PAIRS}, JAX),
    Runner("batch and match", by_hand(MATCHED, times_d), MATCH, JAX),
    Runner("score matching", by_hand(SCORED, lambda s, d: s["draws"]), SCORE, JAX),
    Runner("fixed draws", fixed_draws, FIXED, BOTH, not_large),
    Runner("Adam", by_hand(ORDINARY, particles), WITH_DRAWS, JAX),
    Runner("Adam, landing", by_hand(LANDS, particles), WITH_DRAWS, JAX),
    Runner("Adam, batches", by_hand(IN_BATCHES, particles), ADAM, JAX, large),
)  # fmt: skip
