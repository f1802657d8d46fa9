"""NumPyro's guides as rivals: SVI with Adam's steps, and the search for the best of its rates."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np


class Svi(NamedTuple):
    """begin(seed, *data) -> state; steps(state, *data) -> state, a block on; parameters(state)."""

    begin: Callable
    steps: Callable
    parameters: Callable
    guide: Any

    def law(self, state):
        """Mean and factor, (d, d) or (d,) of a diagonal guide."""
        import jax.numpy as jnp

        named = lambda key: key.removeprefix("z_").removeprefix("auto_")
        found = {named(key): x for key, x in self.parameters(state).items()}
        if "cov_factor" not in found:
            return found["loc"], found.get("scale_tril", found.get("scale"))
        W = found["scale"][:, None] * found["cov_factor"]
        return found["loc"], jnp.linalg.cholesky(W @ W.T + jnp.diag(found["scale"] ** 2))


def svi(log_joint, d, guide, M, rate, last=0, block=20, rank=None, shape=None, clip=False, **loss):
    """SVI of log_joint(z, *data), z (d,), with M draws a step, `block` steps at a time.

    The rate is constant, or falls to zero at step `last` along a cosine. `shape` are arguments of
    the guide's own; `clip` cuts long gradients.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.distributions import ImproperUniform, constraints
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model(*data):
        flat = ImproperUniform(constraints.real_vector, (), (d,))
        numpyro.factor("log p", log_joint(numpyro.sample("z", flat), *data))

    cosine = lambda t: rate * (1 + jnp.cos(jnp.pi * jnp.minimum(t / last, 1))) / 2
    q = getattr(autoguide, f"Auto{guide}")(model, **(shape or ({"rank": rank} if rank else {})))
    adam = numpyro.optim.ClippedAdam if clip else numpyro.optim.Adam
    step = SVI(model, q, adam(cosine if last else rate),
               Trace_ELBO(num_particles=M, **loss))  # fmt: skip

    @jax.jit
    def steps(state, *data):
        return jax.lax.fori_loop(0, block, lambda _, s: step.update(s, *data)[0], state)

    begin = lambda seed, *data: step.init(jax.random.PRNGKey(seed), *data)
    return Svi(begin, steps, step.get_params, q)


def walked(height, rates, k):
    """Up and down from rates[k] until the best has a worse one on either side: its place.

    height(rate) is -inf where a rate leads nowhere.
    """
    at = cache(lambda k: height(rates[k]) if 0 <= k < len(rates) else -np.inf)
    while (best := max((k, k - 1, k + 1), key=at)) != k:
        k = best
    return k
