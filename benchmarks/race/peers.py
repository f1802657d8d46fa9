"""Packages as they are, as ways of the race: NumPyro, PyMC, Blackjax's Pathfinder.

A package is imported inside of its run, so that the race runs without it. Stan is missing: its
interfaces need a compiled part that PyPI does not have for this kind of processor.
"""

from functools import partial

import numpy as np

from benchmarks.race.hand import ADAM, PARTICLES, began, curvature, in_jax, packed, started
from benchmarks.race.rules import CLIMB, SEARCH, START, STEPS, Look, Runner, once


def short(problem):
    """Steps of one call: fewer where each takes long, so that a run can be ended in time."""
    return 5 if problem.large else 20


def pathfinder(problem, setting, seed, seconds):
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
    yield Look(0, problem.start, START)
    import jax

    mu, L, taken = jax.block_until_ready(find(jax.random.key(seed)))
    yield Look((steps + 1) * draws + 1.2 * float(taken), packed(problem, mu, L), CLIMB)


# NumPyro and PyMC --------------------------------------------------------------------------------


def _numpyro_built(problem):
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    joint, d = in_jax(problem), problem.model.dim
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (d,))

    def model():
        numpyro.factor("joint", joint(numpyro.sample("z", flat)))

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
        some = short(problem)
        return jax.lax.scan(lambda s, _: (svi.update(s)[0], None), state, length=some)[0]

    def weights(state):
        found = svi.get_params(state)
        return packed(problem, found["auto_loc"], found["auto_scale_tril"])()

    state = init(jax.random.key(0), jnp.zeros(d), jnp.eye(d))
    jax.block_until_ready(steps(state, 0.1, 1.0))
    return init, steps, weights


def numpyro_svi(problem, setting, seed, seconds):
    """NumPyro's SVI with AutoMultivariateNormal and its Adam."""
    init, steps, weights = once((problem.name, "NumPyro"), lambda: _numpyro_built(problem))
    import jax

    mu, L, spent = yield from started(problem, setting)
    state = init(jax.random.key(seed), mu, L)
    rate, after = setting["rate"], setting["after"]
    while True:
        state = steps(state, rate, np.inf if after is None else float(after))
        state = jax.block_until_ready(state)
        spent += PARTICLES * short(problem)
        yield Look(spent, partial(weights, state), STEPS)


def _pymc_built(problem):
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


def pymc_advi(problem, setting, seed, seconds):
    """PyMC's FullRankADVI, with its Adam and ten draws; its own start is N(0, I)."""
    step, rate, reset, place, now = once((problem.name, "PyMC"), lambda: _pymc_built(problem))
    if setting["start"] == "mode":
        curvature(problem)
    reset(seed)
    yield Look(0, now(), START)
    spent, t, by = 0.0, 0, START
    if setting["start"] == "mode":
        mu, L, spent, by = began(problem, setting["start"])
        place(mu, L)
    yield Look(spent, now(), by)
    some = short(problem)
    while True:
        rate.set_value(setting["rate"] * min(1.0, (setting["after"] or np.inf) / (t + 1)))
        for _ in range(some):
            step()
        t, spent = t + some, spent + PARTICLES * some
        yield Look(spent, now(), STEPS)


# The list ----------------------------------------------------------------------------------------

RUNNERS = (
    Runner("Pathfinder", pathfinder, {}, ("jax", "blackjax")),
    Runner("NumPyro", numpyro_svi, ADAM, ("jax", "numpyro")),
    Runner("PyMC", pymc_advi, ADAM, ("pymc",), at_mode=("jax", SEARCH)),
)
