"""Four posteriors that `fit` was not made with, and what a long run of NUTS says of them.

    python -m experiments.others [NAME ...]    runs NumPyro's NUTS, two chains of 4000 draws, and
                                               stores means and sds in results/others.json

Each is written once, for autograd and for JAX: `xp` is the NumPy of either, `pick` takes an entry
for every row. z are real numbers; a positive s is exp(z), with z itself as its log-Jacobian.
"""

import json
import sys
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


# The four ----------------------------------------------------------------------------------------


def robust():
    """A line through data with outliers: z = (a, b1, b2, log s), noise of Student's t with 4 df."""
    rng = np.random.default_rng(21)
    x = rng.standard_normal((2, 60))
    y = 1.0 + 0.8 * x[0] - 0.5 * x[1] + 0.4 * rng.standard_t(2, 60)

    def log_lik(z, batch, xp, pick):
        y, x1, x2 = batch
        r = (y - z[..., 0] - z[..., 1] * x1 - z[..., 2] * x2) * xp.exp(-z[..., 3])
        return -2.5 * xp.log(1 + r**2 / 4) - z[..., 3]

    def log_prior(z, xp):
        return xp.sum(-0.5 * (z[..., :3] / 5) ** 2, -1) - xp.exp(z[..., 3]) + z[..., 3]

    return Other(log_lik, log_prior, (y, *x), 4)


def items():
    """Thirty people answer twelve questions: z = (log s, 30 abilities over s, 12 difficulties)."""
    rng = np.random.default_rng(22)
    who, what = np.repeat(np.arange(30), 12), np.tile(np.arange(12), 30)
    eta = rng.normal(0, 1.2, 30)[who] - rng.normal(0, 1.0, 12)[what]
    y = np.where(rng.random(360) < 1 / (1 + np.exp(-eta)), 1.0, -1.0)

    def log_lik(z, batch, xp, pick):
        y, who, what = batch
        eta = xp.exp(z[..., 0]) * pick(z[..., 1:31], who) - pick(z[..., 31:], what)
        return -xp.logaddexp(0.0, -y * eta)

    def log_prior(z, xp):
        wide = -0.5 * xp.exp(2 * z[..., 0]) + z[..., 0]
        return wide - 0.5 * xp.sum(z[..., 1:31] ** 2, -1) - 0.125 * xp.sum(z[..., 31:] ** 2, -1)

    return Other(log_lik, log_prior, (y, who, what), 43)


def kinked():
    """Logistic regression with a lasso prior, ten unknowns: log p has kinks where a z is zero."""
    rng = np.random.default_rng(23)
    X = rng.standard_normal((80, 10))
    y = np.where(rng.random(80) < 1 / (1 + np.exp(-1.5 * X[:, 0] + X[:, 1])), 1.0, -1.0)

    def log_lik(z, batch, xp, pick):
        X, y = batch
        return -xp.logaddexp(0.0, -y * xp.sum(X * z, -1))

    return Other(log_lik, lambda z, xp: -2 * xp.sum(xp.abs(z), -1), (X, y), 10)


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


OTHERS = {"robust line": robust, "items": items, "kinked": kinked, "groups": groups}


def load(name):
    """A model, and the means and sds (d,) of its z by NUTS."""
    stored = json.loads(RESULTS.read_text())["posteriors"][name]
    return OTHERS[name]().model(name), np.array(stored["mean"]), np.array(stored["sd"])


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

    found = json.loads(RESULTS.read_text())["posteriors"] if RESULTS.exists() else {}
    for name in sys.argv[1:] or OTHERS:
        z = nuts(OTHERS[name]())
        rhat, ess = split_gelman_rubin(z).max(), effective_sample_size(z).min()
        flat, few = z.reshape(-1, z.shape[-1]), lambda a: [float(f"{x:.4g}") for x in a]
        found[name] = {"mean": few(flat.mean(0)), "sd": few(flat.std(0))}
        found[name] |= {"rhat": round(float(rhat), 4), "effective": int(ess)}
        print(name, f"rhat {rhat:.4f}, {ess:.0f} effective draws", flush=True)
    found = {name: found[name] for name in OTHERS if name in found}
    about = {"command": "python -m experiments.others", "numpyro": version("numpyro")}
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(row)}" for k, row in found.items())
    RESULTS.write_text(f'{{"about": {json.dumps(about)}, "posteriors": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
