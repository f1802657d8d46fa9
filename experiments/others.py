"""A posterior that `fit` was not made with, and what a long run of NUTS says of it.

    python -m experiments.others    runs NumPyro's NUTS, two chains of 4000 draws, and stores means
                                    and sds in results/others.json

It is written once, for autograd and for JAX: `xp` is the NumPy of either, `pick` takes an entry for
every row. z are real numbers; a positive s is exp(z), with z itself as its log-Jacobian.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np

import cvlib as cv

RESULTS = Path(__file__).parents[1] / "results" / "others.json"


class Other(NamedTuple):
    """A density in two parts, its data, and the number of its unknowns."""

    log_lik: Any  # (z, batch, xp, pick) -> one number a row
    log_prior: Any  # (z, xp)
    data: tuple
    dim: int

    def model(self, name: str) -> cv.models.Model:
        """As a model of cvlib."""
        lik = lambda z, batch: self.log_lik(z, batch, anp, cv.pick)
        return cv.models.Model(lik, lambda z: self.log_prior(z, anp), self.data, self.dim, name)


def groups():
    """Counts in thirty groups, y ~ Poisson(exp(a + b x + s t)): z = (a, b, log s, t_1 ... t_30)."""
    rng = np.random.default_rng(0)
    group, x = np.arange(900) % 30, rng.standard_normal(900)
    y = rng.poisson(np.exp(0.5 + 0.3 * x + rng.normal(0, 0.5, 30)[group])).astype(float)

    def log_lik(z, batch, xp, pick):
        y, x, group = batch
        eta = z[..., 0] + z[..., 1] * x + xp.exp(z[..., 2]) * pick(z[..., 3:], group)
        return y * eta - xp.exp(eta)

    def log_prior(z, xp):
        wide = -0.125 * (z[..., 0] ** 2 + z[..., 1] ** 2) - 0.5 * xp.exp(2 * z[..., 2]) + z[..., 2]
        return wide - 0.5 * xp.sum(z[..., 3:] ** 2, -1)

    return Other(log_lik, log_prior, (y, x, group), 33)


def load():
    """The model of `groups`, and the means and sds (d,) of its z by NUTS."""
    stored = json.loads(RESULTS.read_text())["posteriors"]["groups"]
    return groups().model("groups"), np.array(stored["mean"]), np.array(stored["sd"])


# The long run ------------------------------------------------------------------------------------


def nuts(other, draws=4000, chains=2):
    """Draws of NumPyro's NUTS, (chains, draws, d)."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    data, pick = tuple(map(jnp.asarray, other.data)), lambda z, j: z[j]

    def minus(z):
        return -jnp.sum(other.log_lik(z, data, jnp, pick)) - other.log_prior(z, jnp)

    run = MCMC(
        NUTS(potential_fn=minus, dense_mass=True), num_warmup=1000, num_samples=draws,
        num_chains=chains, chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    start = 0.1 * jax.random.normal(jax.random.PRNGKey(1), (chains, other.dim))
    run.run(jax.random.PRNGKey(0), init_params=start)
    return np.asarray(run.get_samples(group_by_chain=True))


def main():
    from importlib.metadata import version

    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    z = nuts(groups())
    rhat, ess = split_gelman_rubin(z).max(), effective_sample_size(z).min()
    flat, few = z.reshape(-1, z.shape[-1]), lambda a: [float(f"{x:.4g}") for x in a]
    found = {"mean": few(flat.mean(0)), "sd": few(flat.std(0))}
    found |= {"rhat": round(float(rhat), 4), "effective": int(ess)}
    about = {"command": "python -m experiments.others", "numpyro": version("numpyro")}
    stored = {"about": about, "posteriors": {"groups": found}}
    RESULTS.write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
