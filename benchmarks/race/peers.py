"""What people use instead, as runners of the race: JAX by hand, NumPyro, PyMC, Pathfinder.

All work in double precision on one core, see all data in every step unless they are told to take
batches, and compile once a model: rates and starts are arguments of what was compiled. A package is
imported inside of its runner, so that the race runs without it.
"""

from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np

from benchmarks.race.moves import laplace, matched, newton, regressed, scored
from benchmarks.race.rules import ADAM, BOTH, RATES, SEARCH, Runner, clock, once

PARTICLES, BATCH = 10, 1000
KL = "KL(q, p)"


def there(*packages):
    return all(map(find_spec, packages))


# The model in JAX --------------------------------------------------------------------------------


def in_jax(problem, batch=None):
    """log p(x, z) as JAX sees it: (z, key) -> number; a batch is drawn anew with every key."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    lik, prior, rows = problem.density(jnp)
    rows = tuple(map(jnp.asarray, rows))
    if batch is None:
        return lambda z, key=None: lik(z, *rows) + prior(z)
    N = len(rows[0])

    def joint(z, key):
        some = jax.random.randint(key, (batch,), 0, N)
        return N / batch * lik(z, *(a[some] for a in rows)) + prior(z)

    return joint


def batched(joint):
    """log p at points (n, d), compiled, a few at a time; for the judge."""
    import jax

    f = jax.jit(jax.vmap(joint))
    return lambda z: np.concatenate([np.asarray(f(part)) for part in np.array_split(z, 4)])


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


def began(problem, start):
    """mu, L and gradients spent, where the setting says."""
    if start == "usual":
        return *problem.q.unpack(problem.start), 0
    return laplace(*curvature(problem))[:3]


def packed(problem, mu, L):
    return lambda: problem.q.pack(np.asarray(mu), np.asarray(L))


# By hand -----------------------------------------------------------------------------------------


def adam(landing):
    """Ordinary steps in (mu, L) on the reparameterised gradient; the entropy exact, or sampled."""

    def start(jnp, mu, L):
        return tuple(map(jnp.zeros_like, (mu, L, mu, L)))

    def move(jnp, mu, L, memory, e, u, rate, t, moves):
        if landing:
            u = u + jnp.linalg.solve(L.T, e.T).T
        g_L = jnp.tril(u.T @ e / len(e))
        g_L = g_L if landing else g_L + jnp.diag(1 / jnp.diag(L))
        new, kept = [], []
        for w, g, m, s in zip((mu, L), (u.mean(0), g_L), memory[:2], memory[2:]):
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
            off = m / (1 - 0.9 ** (t + 1)) / (jnp.sqrt(s / (1 - 0.999 ** (t + 1))) + 1e-8)
            new, kept = [*new, w + rate * off], [*kept, (m, s)]
        (m1, s1), (m2, s2) = kept
        return *new, (m1, m2, s1, s2)

    return SimpleNamespace(start=start, move=move, each=20, M=lambda d: PARTICLES)


def _natural(jnp, mu, L, memory, e, u, rate, t, moves):
    G = u @ L + e  # sticks the landing
    A = G.T @ e / len(e)
    return *newton(jnp, mu, L, G.mean(0), (A + A.T) / 2, jnp.minimum(rate, 1.0)), memory


def _quadratics(jnp, mu, L, memory, e, u, rate, t, moves):
    """The first moves by batch and match, then natural steps on the regression."""
    import jax

    first = lambda: matched(jnp, mu, L, mu + e @ L.T, u, e.size / (t + 1))
    then = lambda: newton(jnp, mu, L, *regressed(jnp, e, u @ L + e, e.shape[1] / 10), rate)
    return *jax.lax.cond(t < moves, first, then), memory


def _match(jnp, mu, L, memory, e, u, rate, t, moves):
    return *matched(jnp, mu, L, mu + e @ L.T, u, rate * e.size / (t + 1)), memory


def _score(jnp, mu, L, memory, e, u, rate, t, moves):
    return *scored(jnp, mu, L, mu + e @ L.T, u), memory


def rule(move, each=1):
    """A rule without a memory, on about two draws for every unknown."""
    return SimpleNamespace(
        start=lambda jnp, mu, L: (), move=move, each=each, M=lambda d: max(2 * d, 20)
    )


def by_hand(kind, how, batch=None):
    """A jitted loop of this rule."""

    def build(problem):
        import jax
        import jax.numpy as jnp

        joint, d = in_jax(problem, batch), problem.model.dim
        slope, M = jax.vmap(jax.grad(joint), (0, None)), how.M(d)

        def one(now, key, rate, after, moves):
            mu, L, memory, t = now
            mine, data = jax.random.split(key)
            e = jax.random.normal(mine, (M, d))
            rate = rate * jnp.minimum(1.0, after / (t + 1 - moves))
            u = slope(mu + e @ L.T, data)
            return *how.move(jnp, mu, L, memory, e, u, rate, t, moves), t + 1

        @jax.jit
        def steps(now, key, *args):
            next_one = lambda now, key: (one(now, key, *args), None)
            return jax.lax.scan(next_one, now, jax.random.split(key, how.each))[0]

        def begin(mu, L):
            mu, L = jnp.asarray(mu), jnp.asarray(L)
            return mu, L, how.start(jnp, mu, L), jnp.asarray(0.0)

        key = jax.random.key(0)
        now = begin(*problem.q.unpack(problem.start))
        jax.block_until_ready((steps(now, key, 0.1, 1.0, 0.0), jax.random.split(key)))
        return steps, begin, M * how.each * (batch or problem.model.N) / problem.model.N

    def run(problem, setting, seed):
        steps, begin, cost = once((problem.name, kind, batch), lambda: build(problem))
        if setting["start"] == "mode":
            curvature(problem)
        import jax

        after, moves = setting.get("after"), float(setting.get("moves", 0))
        args = setting.get("rate", 1.0), np.inf if after is None else float(after), moves
        key = jax.random.key(seed)
        yield 0, problem.start
        mu, L, spent = began(problem, setting["start"])
        yield spent, packed(problem, mu, L)
        now = begin(mu, L)
        while True:
            key, mine = jax.random.split(key)
            now = jax.block_until_ready(steps(now, mine, *args))
            spent += cost
            yield spent, packed(problem, *now[:2])

    return run


# Fixed draws, Laplace, Pathfinder ----------------------------------------------------------------


def fixed_draws(problem, setting, seed):
    """The ELBO of M draws that stay, by L-BFGS (Giordano et al. 2024), in the start's coordinates.

    "even" draws come in opposite pairs and have covariance I exactly; DADVI's own do not.
    """
    from scipy.optimize import minimize

    d, low = problem.model.dim, np.tril_indices(problem.model.dim)
    M = setting["draws"] * d + setting["draws"] * d % 2
    f = once((problem.name, "fixed draws", M), partial(_fixed, problem, M))
    if setting["start"] == "mode":
        curvature(problem)
    yield 0, problem.start
    begun = clock()
    mu, S, spent = began(problem, setting["start"])
    e = np.random.default_rng(seed).standard_normal((M // 2 if setting["even"] else M, d))
    if setting["even"]:
        e = np.linalg.solve(np.linalg.cholesky(e.T @ e / len(e)), e.T).T
        e = np.concatenate([e, -e])
    path, calls = [(clock() - begun, spent, np.zeros(d + len(low[0])))], 0

    def minus(x):
        nonlocal calls
        calls += 1
        value, slope = f(x, mu, S, e)
        fine = np.isfinite(value) and np.isfinite(slope).all()
        return (-float(value), -np.asarray(slope)) if fine else (1e100, np.zeros_like(x))

    def seen(x):
        path.append((clock() - begun, spent + calls * M, x.copy()))
        if path[-1][0] > problem.seconds:
            raise StopIteration

    options = {"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-9}
    minimize(minus, path[0][2], jac=True, method="L-BFGS-B", callback=seen, options=options)

    def unpacked(x):
        B = np.zeros((d, d))
        B[low] = x[d:]
        np.fill_diagonal(B, np.exp(np.diag(B)))
        return problem.q.pack(mu + S @ x[:d], S @ B)

    for seconds, spent, x in path:
        yield spent, partial(unpacked, x), seconds


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


def laplace_jax(problem, setting, seed):
    """The mode, its curvature, nothing else; compiled."""
    about = curvature(problem)
    yield 0, problem.start
    mu, L, spent, sure = laplace(*about)
    if not sure:
        raise ValueError("no positive curvature at the mode")
    yield spent, packed(problem, mu, L)


def pathfinder(problem, setting, seed):
    """Blackjax's: the best of the Gaussians along L-BFGS's path (Zhang et al. 2022)."""
    steps, memory = 60, 20

    def build():
        import blackjax
        import jax
        import jax.numpy as jnp

        joint, d = in_jax(problem), problem.model.dim
        draws = 200 if not problem.large else 5
        how = {"num_samples": draws, "maxiter": steps, "maxcor": memory, "ftol": 1e-8}

        @jax.jit
        def find(key):
            begin = 0.1 * jax.random.normal(key, (d,))
            s, info = blackjax.vi.pathfinder.approximate(key, joint, begin, **how)
            Sigma = jnp.diag(s.alpha) + s.beta @ s.gamma @ s.beta.T
            taken = jnp.isfinite(info.path.elbo).sum()
            return s.position + Sigma @ s.grad_position, jnp.linalg.cholesky(Sigma), taken

        jax.block_until_ready(find(jax.random.key(0)))
        return find, draws

    find, draws = once((problem.name, "Pathfinder"), build)
    yield 0, problem.start
    import jax

    mu, L, taken = jax.block_until_ready(find(jax.random.key(seed)))
    yield (steps + 1) * draws + 1.2 * float(taken), packed(problem, mu, L)


# NumPyro and PyMC --------------------------------------------------------------------------------


def numpyro_svi(start, batch=None, each=20):
    """NumPyro's SVI with AutoMultivariateNormal and its Adam."""

    def build(problem):
        import jax
        import jax.numpy as jnp
        import numpyro
        from numpyro import distributions as dist
        from numpyro.infer import SVI, Trace_ELBO, autoguide

        joint, d = in_jax(problem, batch), problem.model.dim
        flat = dist.ImproperUniform(dist.constraints.real_vector, (), (d,))

        def model():
            z = numpyro.sample("z", flat)
            key = None if batch is None else numpyro.prng_key()
            numpyro.factor("joint", joint(z, key))

        begin = numpyro.infer.init_to_value(values={"z": jnp.zeros(d)})
        guide = autoguide.AutoMultivariateNormal(model, init_loc_fn=begin)
        svi = SVI(model, guide, numpyro.optim.Adam(0.1), Trace_ELBO(num_particles=PARTICLES))
        first = svi.init(jax.random.key(0))
        free = dist.biject_to(guide.scale_tril_constraint).inv

        @jax.jit
        def init(key, mu, L):
            place = svi.optim.init({"auto_loc": mu, "auto_scale_tril": free(L)})
            return first._replace(optim_state=place, rng_key=key)

        @jax.jit
        def steps(state, rate, after):
            svi.optim = numpyro.optim.Adam(lambda t: rate * jnp.minimum(1.0, after / (t + 1)))
            return jax.lax.scan(lambda s, _: (svi.update(s)[0], None), state, length=each)[0]

        def weights(state):
            found = svi.get_params(state)
            return packed(problem, found["auto_loc"], found["auto_scale_tril"])()

        state = init(jax.random.key(0), jnp.zeros(d), jnp.eye(d))
        jax.block_until_ready(steps(state, 0.1, 1.0))
        return init, steps, weights

    def run(problem, setting, seed):
        made = once((problem.name, "NumPyro", batch), lambda: build(problem))
        if start == "mode":
            curvature(problem)
        import jax

        init, steps, weights = made
        yield 0, problem.start
        mu, L, spent = began(problem, start)
        state = init(jax.random.key(seed), mu, L)
        yield spent, partial(weights, state)
        cost = PARTICLES * each * (batch or problem.model.N) / problem.model.N
        rate, after = setting["rate"], setting["after"]
        while True:
            state = steps(state, rate, np.inf if after is None else float(after))
            state = jax.block_until_ready(state)
            spent += cost
            yield spent, partial(weights, state)

    return run


def pymc_advi(start, each=20):
    """PyMC's FullRankADVI, with its Adam and ten draws; its own start is N(0, I)."""

    def build(problem):
        import pymc as pm
        import pytensor
        import pytensor.tensor as pt

        lik, prior, rows = problem.density(pt)
        rate, d = pytensor.shared(0.1), problem.model.dim
        with pm.Model():
            z = pm.Flat("z", shape=d, initval=np.zeros(d))
            pm.Potential("joint", lik(z, *rows) + prior(z))
            fit = pm.FullRankADVI(random_seed=0)
            how = {"obj_optimizer": pm.adam(learning_rate=rate), "obj_n_mc": PARTICLES}
            step = fit.objective.step_function(score=True, **how)
        kept = [(v, v.get_value()) for v in step.get_shared() if v is not rate]
        params, low = {v.name: v for v in fit.approx.params}, np.tril_indices(d)

        def reset(seed):
            for v, first in kept:
                random = isinstance(first, np.random.Generator)
                v.set_value(np.random.default_rng(seed) if random else first)

        def place(mu, L):
            L = L.copy()
            np.fill_diagonal(L, np.log(np.expm1(np.diag(L))))
            params["mu"].set_value(mu)
            params["L_tril"].set_value(L[low])

        def weights(mu, tril):
            L = np.zeros((d, d))
            L[low] = tril
            np.fill_diagonal(L, np.logaddexp(0.0, np.diag(L)))
            return problem.q.pack(mu, L)

        now = lambda: partial(weights, params["mu"].get_value(), params["L_tril"].get_value())
        step()  # what is compiled when it is first called
        return step, rate, reset, place, now

    def run(problem, setting, seed):
        step, rate, reset, place, now = once((problem.name, "PyMC"), lambda: build(problem))
        if start == "mode":
            curvature(problem)
        reset(seed)
        yield 0, now()
        spent, t = 0, 0
        if start == "mode":
            mu, L, spent = began(problem, start)
            place(mu, L)
        yield spent, now()
        while True:
            rate.set_value(setting["rate"] * min(1.0, (setting["after"] or np.inf) / (t + 1)))
            for _ in range(each):
                step()
            t, spent = t + each, spent + PARTICLES * each
            yield spent, now()

    return run


# The list ----------------------------------------------------------------------------------------

JAX, MODE = ("jax",), ("jax", SEARCH)
NATURAL = {"rate": (RATES, 0.1), "after": ((None, 100, 10), 10)} | BOTH
QUADRATICS = {"after": ((1, 4, 16, 64), 4), "moves": ((0, 2, 4, 8, 16), 4)} | BOTH
MATCH = {"rate": ((100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 0.0001), 1.0)} | BOTH
DRAWS = {"draws": ((2, 8, 32, 128), 8), "even": ((True, False), True)} | BOTH
large = lambda problem: problem.large
RUNNERS = (
    Runner("Laplace, JAX", "-", laplace_jax, {}, MODE),
    Runner("JAX, all quadratics", KL, by_hand("quadratics", rule(_quadratics)), QUADRATICS, JAX,
           ours=True),
    Runner("JAX, batch and match", "score", by_hand("match", rule(_match)), MATCH, JAX),
    Runner("JAX, score matching", "score", by_hand("score", rule(_score)), BOTH, JAX),
    Runner("JAX, fixed draws", KL, fixed_draws, DRAWS, MODE, lambda problem: not problem.large),
    Runner("Pathfinder", KL, pathfinder, {}, ("jax", "blackjax")),
    Runner("JAX, natural", KL, by_hand("natural", rule(_natural)), NATURAL, JAX),
    Runner("JAX, landing", KL, by_hand("landing", adam(True)), ADAM | BOTH, JAX),
    Runner("JAX, ordinary", KL, by_hand("ordinary", adam(False)), ADAM | BOTH, JAX),
    Runner("JAX, ordinary, batches", KL, by_hand("ordinary", adam(False), BATCH), ADAM | BOTH, JAX,
           large),
    Runner("NumPyro", KL, numpyro_svi("usual"), ADAM, ("jax", "numpyro")),
    Runner("NumPyro, from the mode", KL, numpyro_svi("mode"), ADAM, ("jax", "numpyro", SEARCH)),
    Runner("PyMC", KL, pymc_advi("usual"), ADAM, ("pymc",)),
    Runner("PyMC, from the mode", KL, pymc_advi("mode"), ADAM, ("pymc", *MODE)),
)  # fmt: skip
