"""What people use instead, as runners of the race: NumPyro, PyMC, and JAX by hand.

A model's log joint is written once, `log_joint`, for NumPy, JAX and PyTensor alike. Each peer sees
all data in every step, or a batch of them where it is told to, and takes Adam. It compiles once a
problem: the rate is an argument of what was compiled. A package is imported inside of its runner,
so that the race runs without it. `STEPS` steps are one call.
"""

import json
from importlib import resources

import numpy as np

STEPS = 20
compiled = {}  # (problem's name, kind): what a peer has compiled in this process


def once(key, build):
    if key not in compiled:
        compiled[key] = build()
    return compiled[key]


# Models ----------------------------------------------------------------------------------------


def log_joint(problem, xp):
    """lik(z, *rows), prior(z) and the rows: log p(x, z) up to a constant, in the words of xp."""
    model = problem.model
    if problem.name in OWN:
        return OWN[problem.name](xp, *model.data)
    if model.likelihood.name != "logistic":
        raise ValueError(f"no version of {model!r} for peers: write one in benchmarks/peers.py")
    lik = lambda z, X, y: -xp.logaddexp(0.0, -y * xp.dot(X, z)).sum()
    return lik, lambda z: -0.5 * ((z / model.log_prior.sd) ** 2).sum(), (model.X, model.y)


def _eight_schools(xp, y, sigma, school):
    def prior(z):
        wide = -0.5 * (z[8] / 5) ** 2 - xp.log1p((xp.exp(z[9]) / 5) ** 2) + z[9]
        return wide - 0.5 * (z[:8] ** 2).sum()

    def lik(z, y, sigma):
        return -0.5 * (((y - z[8] - xp.exp(z[9]) * z[:8]) / sigma) ** 2).sum()

    return lik, prior, (y, sigma)


def _regression(xp, X, y, prior=lambda s: s):
    """z = (beta, s = log sigma); a flat prior of sigma is s, the logarithm of the stretch."""
    p = X.shape[1]

    def lik(z, X, y):
        return -0.5 * (((y - xp.dot(X, z[:p])) * xp.exp(-z[p])) ** 2).sum() - len(y) * z[p]

    return lik, lambda z: prior(z[p]), (X, y)


def _sblri(xp, X, y):
    lik, sigma, rows = _regression(xp, X, y, lambda s: s - 0.5 * (xp.exp(s) / 10) ** 2)
    return lik, lambda z: sigma(z) - 0.5 * ((z[: X.shape[1]] / 10) ** 2).sum(), rows


def _kidiq(xp, X, y):
    return _regression(xp, X, y, lambda s: s - xp.log1p((xp.exp(s) / 2.5) ** 2))


def _mixture(xp, y):
    def lik(z, y):
        second = z[0] + xp.exp(z[1])
        a = -0.5 * ((y - z[0]) * xp.exp(-z[2])) ** 2 - z[2] + z[4]
        b = -0.5 * ((y - second) * xp.exp(-z[3])) ** 2 - z[3]
        return (xp.logaddexp(a, b) - xp.logaddexp(0.0, z[4])).sum()

    def prior(z):
        mu = z[0] ** 2 + (z[0] + xp.exp(z[1])) ** 2
        s = xp.exp(2 * z[2]) + xp.exp(2 * z[3])
        share = 5 * (z[4] - 2 * xp.logaddexp(0.0, z[4]))  # Beta(5, 5), with its stretch
        return -0.125 * (mu + s) + z[1] + z[2] + z[3] + share

    return lik, prior, (y,)


def _gp(xp, k):
    folder = resources.files("experiments") / "posteriordb"
    x = np.array(json.loads((folder / "gp_pois_regr-gp_pois_regr.json").read_text())["data"]["x"])
    apart, small = (x[:, None] - x) ** 2, 1e-10 * np.eye(len(x))

    def lik(z, k):
        K = xp.exp(2 * z[1] - 0.5 * apart * xp.exp(-2 * z[0])) + small
        f = xp.dot(xp.linalg.cholesky(K), z[2:])
        return (k * f - xp.exp(f)).sum()

    def prior(z):
        rho, alpha = 25 * z[0] - 4 * xp.exp(z[0]), z[1] - 0.125 * xp.exp(2 * z[1])
        return rho + alpha - 0.5 * (z[2:] ** 2).sum()

    return lik, prior, (k[0],)


OWN = {
    "eight_schools": _eight_schools, "gp_pois_regr": _gp, "kidiq": _kidiq,
    "low_dim_gauss_mix": _mixture, "mesquite": _regression, "nes1972": _regression,
    "sblri": _sblri,
}  # fmt: skip


def in_jax(problem, batch=None):
    """log p(x, z) as JAX sees it: (z, key) -> number; a batch is drawn anew with every key."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    lik, prior, rows = log_joint(problem, jnp)
    rows = tuple(map(jnp.asarray, rows))
    if batch is None:
        return lambda z, key: lik(z, *rows) + prior(z)
    N = len(rows[0])

    def joint(z, key):
        some = jax.random.randint(key, (batch,), 0, N)
        return N / batch * lik(z, *(a[some] for a in rows)) + prior(z)

    return joint


# Runners ---------------------------------------------------------------------------------------


def by_hand(particles, batch=None):
    """Jitted JAX: the ELBO of a full-covariance Gaussian, entropy exact, RP1 and Adam."""

    def build(problem):
        import jax
        import jax.numpy as jnp

        joint, d = in_jax(problem, batch), problem.model.dim
        low = jnp.tril_indices(d)

        def elbo(w, key):
            L = jnp.zeros((d, d)).at[low].set(w[d:])
            z = w[:d] + jax.random.normal(key, (particles, d)) @ L.T
            log_p = jax.vmap(joint, (0, None))(z, jax.random.fold_in(key, 1))
            return log_p.mean() + jnp.log(jnp.abs(jnp.diagonal(L))).sum()

        def steps(carry, key, rate):
            def step(carry, key):
                w, m, s, t = carry
                g = jax.grad(elbo)(w, key)
                m, s, t = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2, t + 1
                move = m / (1 - 0.9**t) / (jnp.sqrt(s / (1 - 0.999**t)) + 1e-8)
                return (w + rate * move, m, s, t), None

            return jax.lax.scan(step, carry, jax.random.split(key, STEPS))[0]

        w = jnp.asarray(problem.start)
        carry = w, jnp.zeros_like(w), jnp.zeros_like(w), 0
        steps = jax.jit(steps)
        steps(carry, jax.random.key(0), 0.1)[0].block_until_ready()  # compiles
        return steps, carry

    def run(problem, rate, seed):
        steps, carry = once((problem.name, "by hand", particles, batch), lambda: build(problem))
        import jax

        key = jax.random.key(seed)
        yield np.asarray(carry[0])
        while True:
            key, now = jax.random.split(key)
            carry = steps(carry, now, rate)
            yield np.asarray(carry[0])

    return run


def numpyro_svi(full, particles, batch=None):
    """NumPyro's SVI with AutoMultivariateNormal or AutoDiagonalNormal."""

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

        mu, L = problem.q.unpack(problem.start)
        begin = numpyro.infer.init_to_value(values={"z": jnp.asarray(mu)})
        kind = autoguide.AutoMultivariateNormal if full else autoguide.AutoDiagonalNormal
        guide = kind(model, init_loc_fn=begin, init_scale=float(L[0, 0]))
        svi = SVI(model, guide, numpyro.optim.Adam(0.1), Trace_ELBO(num_particles=particles))

        @jax.jit
        def steps(state, rate):
            svi.optim = numpyro.optim.Adam(rate)
            return jax.lax.scan(lambda s, _: (svi.update(s)[0], None), state, length=STEPS)[0]

        def weights(state):
            found = svi.get_params(state)
            L = found["auto_scale_tril"] if full else np.diag(found["auto_scale"])
            return problem.q.pack(np.asarray(found["auto_loc"]), np.asarray(L))

        start = lambda seed: svi.init(jax.random.key(seed))
        jax.block_until_ready(steps(start(0), 0.1))  # compiles
        return start, steps, weights

    def run(problem, rate, seed):
        key = (problem.name, "NumPyro", full, particles, batch)
        start, steps, weights = once(key, lambda: build(problem))
        state = start(seed)
        yield weights(state)
        while True:
            state = steps(state, rate)
            yield weights(state)

    return run


def pymc_advi(full):
    """PyMC's FullRankADVI or ADVI, with its Adam, its one particle and its start, N(0, I)."""

    def build(problem):
        import pymc as pm
        import pytensor
        import pytensor.tensor as pt

        lik, prior, rows = log_joint(problem, pt)
        rate = pytensor.shared(0.1)
        with pm.Model():
            z = pm.Flat("z", shape=problem.model.dim, initval=np.zeros(problem.model.dim))
            pm.Potential("joint", lik(z, *rows) + prior(z))
            fit = (pm.FullRankADVI if full else pm.ADVI)(random_seed=0)
            how = {"obj_optimizer": pm.adam(learning_rate=rate)}
            step = fit.objective.step_function(score=True, **how)  # as its fit does
        kept = [(v, v.get_value()) for v in step.get_shared() if v is not rate]

        def reset(value, seed):
            rate.set_value(value)
            for v, first in kept:
                random = isinstance(first, np.random.Generator)
                v.set_value(np.random.default_rng(seed) if random else first)

        softplus = lambda x: np.logaddexp(0.0, x)
        params = {v.name: v for v in fit.approx.params}

        def weights():
            mu = params["mu"].get_value()
            if not full:
                return problem.q.pack(mu, np.diag(softplus(params["rho"].get_value())))
            L = np.zeros((len(mu), len(mu)))
            L[np.tril_indices(len(mu))] = params["L_tril"].get_value()
            np.fill_diagonal(L, softplus(np.diag(L)))
            return problem.q.pack(mu, L)

        step()  # what is compiled when it is first called
        return step, reset, weights

    def run(problem, rate, seed):
        step, reset, weights = once((problem.name, "PyMC", full), lambda: build(problem))
        reset(rate, seed)
        yield weights()
        while True:
            for _ in range(STEPS):
                step()
            yield weights()

    return run
