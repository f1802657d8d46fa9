"""What people use instead, as runners of the race: NumPyro, PyMC, and JAX by hand.

Each sees all data in every step, as is usual for data of this size, and takes Adam. A package is
imported inside of its runner, so that the race runs without it. `STEPS` steps are one call.
"""

import logging

import numpy as np

STEPS = 20


def in_jax(model):
    """log p(x | z) of a GLM, all data, as a function that JAX differentiates: z (d,) -> number."""
    import jax.numpy as jnp

    X, y = jnp.asarray(model.X), jnp.asarray(model.y)
    if model.likelihood.name == "logistic":
        return lambda z: -jnp.logaddexp(0.0, -y * (X @ z)).sum()
    if model.likelihood.name == "poisson":
        return lambda z: (y * (X @ z) - jnp.exp(X @ z)).sum()
    raise ValueError(f"no JAX version of {model!r}: write one in benchmarks/peers.py")


def by_hand(particles):
    """Jitted JAX: the ELBO of a full-covariance Gaussian, entropy exact, RP1 and Adam."""

    def run(problem, rate, seed):
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        d, log_lik, sd = problem.model.dim, in_jax(problem.model), problem.model.log_prior.sd
        low = jnp.tril_indices(d)

        def elbo(w, eps):
            L = jnp.zeros((d, d)).at[low].set(w[d:])
            z = w[:d] + eps @ L.T
            log_p = jax.vmap(log_lik)(z) - 0.5 * ((z / sd) ** 2).sum(-1)
            return log_p.mean() + jnp.log(jnp.abs(jnp.diagonal(L))).sum()

        def step(carry, key):
            w, m, s, t = carry
            g = jax.grad(elbo)(w, jax.random.normal(key, (particles, d)))
            m, s, t = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2, t + 1
            move = m / (1 - 0.9**t) / (jnp.sqrt(s / (1 - 0.999**t)) + 1e-8)
            return (w + rate * move, m, s, t), None

        @jax.jit
        def steps(carry, key):
            return jax.lax.scan(step, carry, jax.random.split(key, STEPS))[0]

        w = jnp.asarray(problem.q.start())
        carry, key = (w, jnp.zeros_like(w), jnp.zeros_like(w), 0), jax.random.key(seed)
        steps(carry, key)[0].block_until_ready()  # compiles
        yield np.asarray(w)
        while True:
            key, now = jax.random.split(key)
            carry = steps(carry, now)
            yield np.asarray(carry[0])

    return run


def numpyro_svi(full, particles):
    """NumPyro's SVI with AutoMultivariateNormal or AutoDiagonalNormal."""

    def run(problem, rate, seed):
        import jax
        import jax.numpy as jnp
        import numpyro
        from numpyro import distributions as dist
        from numpyro.infer import SVI, Trace_ELBO, autoguide

        jax.config.update("jax_enable_x64", True)
        d, log_lik, sd = problem.model.dim, in_jax(problem.model), problem.model.log_prior.sd

        def model():
            z = numpyro.sample("z", dist.Normal(jnp.zeros(d), sd).to_event(1))
            numpyro.factor("data", log_lik(z))

        kind = autoguide.AutoMultivariateNormal if full else autoguide.AutoDiagonalNormal
        guide = kind(model, init_loc_fn=numpyro.infer.init_to_value(values={"z": jnp.zeros(d)}),
                     init_scale=1.0)  # fmt: skip
        svi = SVI(model, guide, numpyro.optim.Adam(rate), Trace_ELBO(num_particles=particles))
        state = svi.init(jax.random.key(seed))

        @jax.jit
        def steps(state):
            return jax.lax.scan(lambda s, _: (svi.update(s)[0], None), state, length=STEPS)[0]

        def weights(state):
            found = svi.get_params(state)
            L = found["auto_scale_tril"] if full else jnp.diag(found["auto_scale"])
            return problem.q.pack(np.asarray(found["auto_loc"]), np.asarray(L))

        jax.block_until_ready(steps(state))  # compiles
        yield weights(state)
        while True:
            state = steps(state)
            yield weights(state)

    return run


def pymc_advi(full):
    """PyMC's FullRankADVI or ADVI, with its Adam."""

    def run(problem, rate, seed):
        import pymc as pm

        logging.getLogger("pymc").setLevel(logging.ERROR)  # it reports every call
        model, q = problem.model, problem.q
        with pm.Model():
            z = pm.Normal("z", 0.0, model.log_prior.sd, shape=model.dim)
            eta = pm.math.dot(model.X, z)
            if model.likelihood.name == "logistic":
                pm.Bernoulli("y", logit_p=eta, observed=(model.y > 0).astype(int))
            else:
                pm.Poisson("y", pm.math.exp(eta), observed=model.y.astype(int))
            fit = (pm.FullRankADVI if full else pm.ADVI)(random_seed=seed)
            how = {"progressbar": False, "obj_optimizer": pm.adam(learning_rate=rate)}
            fit.fit(1, **how)  # compiles, and takes a step
            yield q.start()
            while True:
                fit.refine(STEPS, progressbar=False)
                mean, cov = fit.approx.mean.eval(), fit.approx.cov.eval()
                yield q.pack(mean, np.linalg.cholesky(cov))

    return run
