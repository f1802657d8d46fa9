"""Natural steps on rotated draws inside JAX, for a model that JAX has traced.

Nothing leaves the device between two looks at the ELBO.
"""

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from ..ascent import rules
from ..ascent.plans import State
from ..ascent.rotated import LOST, Last, Rotated, believed
from ..models import passes
from .compiled import double, made, memory, package

SHARE = 64  # of the device's memory that the longest array of a block may have: one in so many


@dataclass(frozen=True)
class Compiled(Rotated):
    """One rotation a step. Between steps q stays on the device; `landed` brings its w."""

    radii: int = 1

    @property
    def M(self) -> int:
        return 2 * self.q.dim + 1

    @cached_property
    def here(self) -> dict:
        """{"q": (mu, L) on the device}, once a step was taken."""
        return {}

    def step(self, state: State) -> State:
        """The state after one more step; its w is that of the last landing."""
        jax, rng = package("jax"), state.rng
        assert rng is not None
        with double(jax):
            mu, L = self.here.get("q") or jax.device_put(self.q.unpack(state.w))
            old = Last(*jax.device_put(tuple(state.memory)))
            e = _jitted(_turned, "d")(jax.random.key(int(rng.integers(2**63))), self.q.dim)
            seen = _jitted(_rule)(L, e, *self.slopes(mu, L, e))
            mu, L, new = jax.block_until_ready(_jitted(_moved)(mu, L, seen, old))
        self.here["q"] = mu, L
        lost = state.t + 1 if float(new.s) > LOST else -1
        return state._replace(t=state.t + 1, memory=new, diverged=np.array(lost))

    def slopes(self, mu: Any, L: Any, e: Any) -> tuple:
        """Value and slope of log p at mu, and at mu +- L e_k in blocks: sums and differences."""
        jax, traced, d = package("jax"), self.model.traced, self.q.dim
        if "pairs" not in traced.kept:
            passes.look_at_clock(traced.slowest)
            both = jax.vmap(jax.value_and_grad(traced.f), (0, None))
            traced.kept["pairs"] = jax.jit(partial(_pairs, both)), jax.jit(both)
        pairs, both = traced.kept["pairs"]
        each = made(pairs, [mu, *traced.data], d)
        blocks = -(-d * each * SHARE // memory(jax.devices()[0]))
        size = -(-d // blocks)
        off, found = _jitted(_off, "rows")(L, e, size * blocks), []
        for first in range(0, d, size):
            passes.look_at_clock()
            some = pairs(off[first : first + size], [mu, *traced.data])
            found.append(jax.block_until_ready(some))
        joined = (jax.numpy.concatenate(x)[:d] for x in zip(*found))
        return *both(mu[None], traced.data), *joined

    def landed(self, state: State) -> State:
        """The state with its w, all of it in NumPy's arrays."""
        if not self.here:
            return state
        w = self.q.joined(*map(np.asarray, self.here["q"]))
        state = state._replace(w=w, memory=Last(*map(np.asarray, state.memory)))
        self.here.clear()
        return state


# The parts of a step, compiled ---------------------------------------------------------------


@cache
def _jitted(f, *static):
    return package("jax").jit(f, static_argnames=static)


def _turned(key, d):
    """e (d, d), a random rotation, a point a row: `spheres` with one radius."""
    return (d + 2.0) ** 0.5 * orthonormal(package("jax").random.normal(key, (d, d)))


def orthonormal(X: Any) -> Any:
    """The factor Q of X (d, d), by products and Cholesky's factors alone (Fukaya et al. 2020).

    Several times faster than Householder's way. Q is the same for every X T, T triangular, so the
    shift, without which X^T X may be singular, does not matter.
    """
    jax = package("jax")
    jnp, I = jax.numpy, jax.numpy.eye(len(X))
    for shift in 1e-13 * len(X), 0.0, 0.0:
        C = jnp.linalg.cholesky(X.T @ X + shift * I)
        X = jax.scipy.linalg.solve_triangular(C, X.T, lower=True).T
    return X


def _off(L, e, rows):
    """L e_k, a row each, and zeros to fill up."""
    return package("jax").numpy.zeros((rows, len(L))).at[: len(L)].set(e @ L.T)


def _pairs(both, off, given):
    """v + v', g + g' and g - g' of values and slopes at mu + off and mu - off."""
    mu, *data = given
    (up, g_up), (down, g_down) = both(mu + off, data), both(mu - off, data)
    return up + down, g_up + g_down, g_up - g_down


def _rule(L, e, value, slope, values, slopes, turns):
    """The ELBO but for a constant, and its slope c and curvature A in q's own units."""
    jnp, d, square = package("jax").numpy, len(L), len(L) + 2.0  # of the radius
    mean = lambda centre, sums: (2 * centre[0] + sums.sum(0) / 2) / square
    A = L.T @ (turns.T @ e) / (2 * square)
    elbo = mean(value, values) + jnp.log(jnp.abs(jnp.diag(L))).sum()
    return elbo, mean(slope, slopes) @ L, (A + A.T) / 2 + jnp.eye(d)  # I: e e^T / rho^2, of log q


def _moved(mu, L, seen, old):
    """The next mu and L, and what the step after it has to know."""
    elbo, c, A = seen
    new = believed(package("jax").numpy, Last(old.s, elbo, c, A, mu, L), old)
    return *natural_step(new.mu, new.L, new.c, new.A, 1 / new.s), new


def natural_step(mu: Any, L: Any, c: Any, A: Any, rho: Any) -> tuple:
    """`rules.newton`, with S = I - rho A wherever that is positive definite.

    It is (I + (I - rho A)^2) / 2 else. The first is exact in one step from every q, if the
    posterior is Gaussian; the second takes many from one that is far too wide or too narrow.
    """
    jax = package("jax")
    jnp, solve = jax.numpy, jax.scipy.linalg.solve_triangular
    I = jnp.eye(len(mu))
    B = I - rho * A
    turned_round = lambda S: jnp.linalg.cholesky(S[::-1, ::-1])[::-1, ::-1]  # S = R R^T
    R = turned_round(B)
    safe = lambda: turned_round((I + B @ B) / 2)
    R = jax.lax.cond(jnp.isfinite(R).all(), lambda: R, safe)
    step = solve(R, rho * solve(R, c), trans=1)  # in units of the q before it
    far = (step**2).mean() ** 0.5
    return mu + L @ step / jnp.maximum(far / rules.REACH, 1.0), jnp.tril(solve(R, L.T).T)
