"""Natural steps of a full q on rotated draws: exact for every cubic log p, without a rate.

`Compiled` takes them inside JAX, for a model that JAX has traced: nothing leaves the device between
two looks at the ELBO. `points.on_spheres` has the mathematics of the draws.
"""

from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ..arguments import whole
from ..models import passes
from ..models.compiled import double, made, memory, package
from ..models.density import Density
from ..points import frame, on_spheres, prime, uniform
from . import rules
from .plans import State, Unaided

LOST = 2**20  # s, from which on a run is
SHARE = 64  # of the device's memory that the longest array of a block may have: one in so many


class Last(NamedTuple):
    """Where the last believed step began, what it saw there, and s: the next has rho = 1 / s."""

    s: Any
    elbo: Any
    c: Any  # (d,) slope and
    A: Any  # (d, d) curvature of the ELBO, in q's own units
    mu: Any  # (d,)
    L: Any  # (d, d)


@dataclass(frozen=True)
class Rotated(Unaided):
    """Steps of a full q on rotations with fixed radii, each apart from those of the steps before.

    rho falls when two steps point against each other (Kesten 1958): with rho a step's gradient g is
    followed by (1 - rho) of its signal less rho of its noise. So g.g' < 0 says that rho is larger
    than the best gain, signal / (signal + noise), and s grows by one. Where the ELBO has fallen by
    a nat more than a step promised to gain, or is no number, the step is taken again from where it
    began, at half of its rho.
    """

    _: KW_ONLY
    radii: int = 2  # exact in the mean for polynomials of degree 4 radii + 1
    turns: int = 1  # rotations for each

    def __post_init__(self):
        super().__post_init__()
        whole("radii", self.radii)
        whole("turns", self.turns)

    @cached_property
    def p(self) -> int:
        return prime(self.q.dim)

    @property
    def M(self) -> int:
        return 4 * self.p * self.radii * self.turns + 1

    def memory(self, w):
        mu, L = self.q.unpack(w)
        return Last(np.ones(()), np.array(-np.inf), np.zeros(len(L)), np.zeros_like(L), mu, L)

    def step(self, state: State) -> State:
        """The state after one more step, or after a narrower or shorter one where it misled."""
        q, old = self.q, Last(*state.memory)
        mu, L = q.unpack(state.w)
        turn, Q = self.rotations(state)
        e, weight = on_spheres(Q, self.radii)
        value, slope = Density(self.model).slope(mu + e @ L.T)
        with np.errstate(all="ignore"):
            elbo, c, A = _seen(L, e, weight, value, slope)
        new = believed(np, Last(old.s, elbo, c, A, mu, L), old)
        step = q, q.joined(new.mu, new.L), new.c, new.A, 1 / new.s, self.reach
        w, _ = rules.newton(*step, positive=False)  # exact, if the posterior is Gaussian
        if not np.isfinite(w).all():
            w, _ = rules.newton(*step)
        t, lost = state.t + 1, new.s > LOST or not np.abs(w).max() < q.far
        w, diverged = (state.w, np.array(t)) if lost else (w, np.array(-1))
        return state._replace(t=t, w=w, memory=new, moments=(turn,), diverged=diverged)

    def rotations(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """How all rotations are turned, anew once they are used up; the next step's (n, 2 p, d)."""
        assert state.rng is not None
        n, K = self.radii * self.turns, 2 * self.p + 2
        step = state.t % max(K // n, 1)
        turn = state.moments[0] if step else uniform(state.rng, 1, 2 * self.p)[0, :, : self.q.dim]
        return turn, np.array([frame(self.p, k % K) @ turn for k in range(step * n, step * n + n)])


def believed(xp: Any, new: Last, old: Last) -> Last:
    """What a step saw, or what the one before it did, at half of its rho."""
    slack = 1 + (old.c**2).sum() / 2 + (old.A**2).sum() / 4  # what the step promised to gain
    fine = (new.elbo > old.elbo - slack) & xp.isfinite(new.A).all() & xp.isfinite(new.c).all()
    against = new.c @ old.c + (new.A * old.A).sum() / 2 < 0  # in Fisher's metric
    first = ~xp.isfinite(old.elbo)  # log p is no number at draws of the first q: half as wide
    L = xp.where(first, new.L / 2, old.L)
    kept = old._replace(s=2 * old.s, elbo=old.elbo - slack, mu=xp.where(first, new.mu, old.mu), L=L)
    new = new._replace(s=old.s + against)
    return Last(*(xp.where(fine, x, y) for x, y in zip(new, kept)))


def _seen(
    L: np.ndarray, e: np.ndarray, weight: np.ndarray, value: np.ndarray, slope: np.ndarray
) -> tuple:
    """The ELBO but for a constant, and its slope c and curvature A in q's own units.

    A pair of points at which log p has no slope is taken as if q were right along it; no number
    comes of it where they have most of the weight.
    """
    G, half = slope @ L, len(e) // 2  # the last is the centre
    fine = np.isfinite(value) & np.isfinite(G).all(-1)
    fine[:-1] = np.tile(fine[:half] & fine[half:-1], 2)
    if weight @ fine > 0.5:
        value = np.where(fine, value, value[-1] - np.vecdot(e, e) / 2)
        G = np.where(fine[:, None], G, G[-1] - e)
    elbo = weight @ value + np.log(np.abs(np.diag(L))).sum()
    A = (weight[:, None] * G).T @ e
    return elbo, weight @ G, (A + A.T) / 2 + np.eye(len(L))  # I: of -log q, exactly


# Inside JAX ---------------------------------------------------------------------------------


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
