"""Models that JAX compiles, in double precision, and natural steps on rotated draws inside JAX."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive

from ..arguments import whole
from ..ascent import rules
from ..ascent.plans import State
from ..ascent.rotated import LOST, Last, Rotated, believed
from ..deadline import deadline
from ..models import checks, passes
from ..models.density import Model
from ..models.parameters import Elsewhere, Parameters, labels
from . import Package

jax, jnp, flatten_util = map(Package, ("jax", "jax.numpy", "jax.flatten_util"))
STEP = 1e-5  # of differences of slopes, for a unit vector
BLOCKS = 64, 1  # points that are computed at once: few shapes, for each is compiled
MADE = 2**23  # numbers that a block may make, in its largest array
CHEAP = 2**16, MADE  # that one makes sooner than a program is compiled: on a CPU, and on a GPU
MOST = 2000, 10_000  # unknowns of a full q, likewise
WORK = 2**36  # and on a CPU numbers of the data times unknowns
SHARE = 64  # of the device's memory that the longest array of a step may have: one in so many


class Compiled(Model):
    """A model that brings its own log p(x, z) and slope, at points z (B, d); the data are inside.

    `value_and_slope(z)` gives (B,) and (B, d), `value(z)` the first alone, `hessian(z)` (B, d, d);
    without a `hessian` differences of slopes stand for it. log p is a density of z, any real
    numbers, with the log-Jacobians of constraints. `parameters` declares them, or `named(z)` gives
    arrays {name: (B, *shape)} and `names` one name for every coordinate of z.
    """

    rows, made = False, 1
    _log_liks: Callable | None = None  # z (B, d) -> {name: (B, *shape)}

    def __init__(
        self, value_and_slope: Callable, dim: int | None = None, name: str = "compiled model", *,
        parameters: dict | None = None, value: Callable | None = None,
        hessian: Callable | None = None, named: Callable | None = None,
        names: list[str] | None = None,
    ) -> None:  # fmt: skip
        self.value_and_slope, self.value, self.hessian = value_and_slope, value, hessian
        flat = lambda z: 0 * z[..., 0]
        super().__init__(self._one_row, flat, np.zeros(1), dim, name, parameters=parameters)
        if names is not None:
            self.parameters.names = names
        if named is not None:
            self.parameters, self.declared = Elsewhere(named, self.names), True
        if len(self.names) != self.dim:
            raise ValueError(f"{len(self.names)} names for {self.dim} coordinates of z")

    def __repr__(self):
        return f"<{self.name}: {self.dim} latent dimensions, data inside>"

    def _of_z(self, log_lik, log_prior):
        return log_lik, log_prior

    def _one_row(self, z, batch):
        return _value(z, self) + batch[0]

    def _check_functions(self):
        checks.compiled(self.value_and_slope, self.value, self.dim)

    def take(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        raise ValueError(
            f"{self!r} shows no data points, so there are no batches of them: let every draw see "
            "all data, fit(model) or Sampling(subsample=False)"
        )

    def each_row(self, z: np.ndarray) -> dict[str, np.ndarray]:
        return dict(self._log_liks(z)) if self._log_liks else {}

    def pointwise(self, z: np.ndarray) -> np.ndarray:
        if rows := self.each_row(z):
            return np.concatenate([x.reshape(len(z), -1) for x in rows.values()], -1)
        raise ValueError(f"{self!r} shows no data points: it has their log-likelihood in one sum")

    def totals(self, z, order, factor=None, mean=False):
        if order == 2:
            return super().totals(z, order)
        both = lambda rows, z: self.value_and_slope(z) if order else (_value(z, self),)
        found = passes.in_blocks(None, z.reshape(-1, self.dim), both, BLOCKS[0])
        return tuple(x.reshape((*z.shape[:-1], *x.shape[1:])) for x in found)


@primitive
def _value(z, model):
    points = z.reshape(-1, model.dim)
    found = model.value(points) if model.value else model.value_and_slope(points)[0]
    return np.reshape(found, z.shape[:-1])


@primitive
def _slope(z, model):
    return np.reshape(model.value_and_slope(z.reshape(-1, model.dim))[1], z.shape)


@primitive
def _bend(z, v, model):
    """The Hessian at z times v, (..., d) both."""
    if model.hessian:
        H = np.reshape(model.hessian(z.reshape(-1, model.dim)), (*z.shape, model.dim))
        return np.matvec(H, v)
    size = np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-300)
    up, down = (_slope(z + sign * STEP * v / size, model) for sign in (1, -1))
    return size * (up - down) / (2 * STEP)


defvjp(_value, lambda ans, z, model: lambda g: anp.expand_dims(g, -1) * _slope(z, model), None)
defvjp(_slope, lambda ans, z, model: lambda v: _bend(z, v, model), None)


def from_jax(
    log_joint: Callable, parameters: int | dict, name: str = "JAX model", data: Any = None
) -> Compiled:
    """log_joint(p) of one point, written for JAX, up to a constant; p as `parameters` declare.

    With a whole number d for `parameters` it takes z (d,). With `data`, an array or a tuple or dict
    of them, it is log_joint(p, data): they lie on JAX's device once, as arguments of what is
    compiled. Arrays that it holds otherwise are made such arguments, too.
    """
    if not callable(log_joint):
        right = 'write from_jax(log_joint, {"beta": 3})'
        raise ValueError(f"log_joint={log_joint!r} is no function: {right}")
    copied = lambda x: x if isinstance(x, jax.Array) else np.array(x)  # JAX would compile for it
    with double():  # the caller may change what was given
        there = jax.device_put(jax.tree.map(copied, data))
    joint = log_joint if data is None else lambda p: log_joint(p, there)
    if not isinstance(parameters, dict):
        _check_number(joint, name, whole("parameters", parameters))
        return compiled(joint, name, dim=parameters)
    space = Parameters(parameters)

    def one(z):
        p, stretch = space.mapped(z, jnp)
        return joint(p) + stretch

    _check_number(one, name, space.dim)
    return compiled(one, name, parameters=parameters)


def _check_number(log_joint, name, d):
    """log_joint of one point z (d,) is one real number, and JAX can trace it."""
    try:
        with double():
            found = jax.tree.leaves(jax.eval_shape(log_joint, np.zeros(d)))
    except Exception as error:
        raise ValueError(
            f"{name} fails for one point z ({d},): write it with jax.numpy, and jnp.where for if. "
            f"Its words: {type(error).__name__}: {error}"
        ) from error
    if [(x.shape, x.dtype.kind) for x in found] != [((), "f")]:
        gave = ", ".join(f"{x.dtype}{list(x.shape)}" for x in found) or "nothing"
        raise ValueError(f"{name} gave {gave} for one point: give one real number, jnp.sum(...)")


def compiled(
    log_joint: Callable, name: str, named: Callable | None = None, rows: Callable | None = None,
    back: Callable | None = None, **about: Any,
) -> Compiled:  # fmt: skip
    """A `Compiled` of functions that JAX can trace: of one z (d,), and `back` from parameters."""
    d = about.get("dim") or Parameters(about["parameters"]).dim
    joint, many = Traced(log_joint, d), lambda f: f and Batched(Traced(f, d))
    both, alone = Batched(joint, jax.value_and_grad), Batched(joint)
    # without slopes, where these cost more than one more program
    value = lambda z: both(z, lambda x: x[0]) if both.cheap or len(z) == 1 else alone(z)
    hessian = Batched(joint, jax.hessian)
    found = Compiled(both, name=name, value=value, hessian=hessian, named=many(named), **about)
    found.traced, found._log_liks = joint, many(rows)
    if back:
        flat = jax.jit(jax.vmap(lambda p: flatten_util.ravel_pytree(back(p))[0]))

        def to_z(arrays):
            known = {k: np.asarray(arrays[k], float) for k in found.parameters.each}
            with double():
                return np.asarray(flat(known))

        found.parameters.back = to_z
    return found


def flat(arrays: dict) -> tuple[Callable, list[str]]:
    """What makes arrays of these shapes, by name, of z (d,), and the names of its coordinates."""
    leaves, tree = jax.tree.flatten(arrays)
    shapes = [x.shape for x in leaves]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1]
    split = lambda z: tree.unflatten(map(jnp.reshape, jnp.split(z, ends), shapes))
    named = tree.unflatten(shapes).items()
    return split, [label for name, shape in named for label in labels(name, shape)]


# Programs of JAX -----------------------------------------------------------------------------


class Traced:
    """A function of one z (d,) as JAX's own program: `f(z, data)`, and the arrays in it, `data`.

    As arguments of what is compiled they cost no time there; as constants they are folded into it.
    """

    def __init__(self, f: Callable, d: int):
        with double():
            program, shape = jax.make_jaxpr(f, return_shape=True)(np.zeros(d))
            self.data = jax.device_put(program.consts)
        tree, run = jax.tree.structure(shape), partial(jax.core.eval_jaxpr, program.jaxpr)
        self.f = lambda z, data: jax.tree.unflatten(tree, run(data, z))
        self.d, self.slowest = d, 0.0  # seconds that a compilation of it took, the longest
        self.kept: dict = {}  # what else was made of it

    @property
    def full(self) -> int:
        """Unknowns up to which a full q fits: by memory on a GPU, by time on a CPU."""
        if on_gpu():
            return min(MOST[1], int((memory() / 20) ** 0.5))  # d x d, as many as a step has
        return min(MOST[0], int(WORK / max(sum(x.size for x in self.data), 1)))


class Batched:
    """What JAX makes of a function of one z (d,), or of its derivative, for many (B, d)."""

    def __init__(self, traced: Traced, of: Callable = lambda f: f):
        self.traced, self.many_of = traced, jax.vmap(of(traced.f), (0, None))
        self.f = program(self.many_of)
        self.ready: list[int] = []  # numbers of points for which it was compiled

    @cached_property
    def each(self) -> int:
        """Numbers that it makes of a point."""
        return made(self.many_of, self.traced.data, self.traced.d)

    @property
    def many(self) -> int:
        """Points that it takes at once, where there are many."""
        return BLOCKS[BLOCKS[0] * self.each > MADE]

    @property
    def cheap(self) -> bool:
        """Does a block take less time than one more program, for single points or for values?"""
        return self.many * self.each <= CHEAP[on_gpu()]

    def __call__(self, z: np.ndarray, part: Callable = lambda found: found) -> Any:
        """All of it or a part at points z (B, d), in blocks: JAX compiles for each number."""
        one = len(z) == 1 and not self.cheap
        found, size = [], self._in_time(BLOCKS[1] if one else self.many)
        for first in range(0, len(z), size):
            deadline.check()
            begun, left = time.perf_counter(), len(z) - first
            block = z[first : first + size]
            if left < size:  # the last one fills up
                block = np.pad(block, ((0, size - left), (0, 0)), "edge")
            with double():
                some = part(self.f(block, self.traced.data))
                found.append(jax.tree.map(lambda x: np.asarray(x)[:left], some))
            if size not in self.ready:
                self.ready.append(size)
                self.traced.slowest = max(self.traced.slowest, time.perf_counter() - begun)
        return jax.tree.map(lambda *parts: np.concatenate(parts), *found)

    def _in_time(self, size):
        """So many points, or others that it is ready for, if there is no time to compile."""
        if size in self.ready or not deadline.passed(self.traced.slowest):
            return size
        deadline.check(0.0 if self.ready else self.traced.slowest)
        return max(self.ready)


def made(f: Callable, data: Any, d: int) -> int:
    """How many numbers one more point (d,) adds to the longest array that f makes of points."""

    def sizes(B):
        todo = [jax.make_jaxpr(f)(np.zeros((B, d)), data).jaxpr]
        for jaxpr in todo:
            for step in jaxpr.eqns:
                yield from (int(np.prod(x.aval.shape)) for x in step.outvars)
                inner = (getattr(x, "jaxpr", x) for x in step.params.values())
                todo += [x for x in inner if hasattr(x, "eqns")]

    with double():
        return max((two - one for one, two in zip(sizes(1), sizes(2))), default=1) or 1


def on_gpu() -> bool:
    """Does JAX compute on another device than the CPU?"""
    return jax.devices()[0].platform != "cpu"


def memory() -> int:
    """Numbers that JAX's device may hold, as far as is known."""
    return ((jax.devices()[0].memory_stats() or {}).get("bytes_limit") or 2**31) // 8


def program(f: Callable, *static: str) -> Callable:
    """What `jax.jit` makes of f, in a quarter of the time on a GPU.

    There XLA tries many kernels of Triton for a product; for doubles the vendor's are as fast.
    """
    return jax.jit(f, static_argnames=static, **_options())


_program = cache(program)  # of functions that stay


@cache
def _options():
    options = {"compiler_options": {"xla_gpu_enable_triton_gemm": False}} if on_gpu() else {}
    try:
        jax.jit(lambda x: x, **options)(0.0)
    except Exception:  # this version of JAX takes no options, or XLA has no such one
        return {}
    return options


def double() -> Any:
    """JAX in double precision, for a while."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return jax.experimental.enable_x64()


# Steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InJax(Rotated):
    """One rotation a step, in three programs. Between steps q stays on the device; see `landed`."""

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
        with double():
            mu, L = self.here.get("q") or jax.device_put(self.q.unpack(state.w))
            old = Last(*jax.device_put(tuple(state.memory)))
            sums = self.sums(mu, L, state.rng.integers(2**63))
            mu, L, new = jax.block_until_ready(_program(_moved)(mu, L, sums, old))
        self.here["q"] = mu, L
        lost = state.t + 1 if float(new.s) > LOST else -1
        return state._replace(t=state.t + 1, memory=new, diverged=np.array(lost))

    def sums(self, mu: Any, L: Any, seed: int | np.integer) -> tuple:
        """Over a rotation, in blocks: of values, of slopes, and of differences of slopes times e.

        Those of the first two are means of log p and of its slope under q, times d + 2.
        """
        traced, d = self.model.traced, self.q.dim
        if "sums" not in traced.kept:
            deadline.check(traced.slowest)
            add, given = partial(_sums, traced.f), ((0.0, mu, L), 1.0, mu, L, traced.data)
            traced.kept["sums"] = program(add), made(add, given, d)
        add, each = traced.kept["sums"]
        blocks = -(-(d + 1) * each * SHARE // memory())
        size = -(-(d + 1) // blocks)  # points e at a time; those that fill up are the centre
        turned, found = _program(_turned, "d", "size")(seed, d, size)
        for e in turned:
            deadline.check()
            share = 1 / (size * len(turned) - d)
            found = jax.block_until_ready(add(e, (found, share, mu, L, traced.data)))
        return found

    def landed(self, state: State) -> State:
        """The state with its w, all of it in NumPy's arrays."""
        if not self.here:
            return state
        w = self.q.joined(*map(np.asarray, self.here["q"]))
        state = state._replace(w=w, memory=Last(*map(np.asarray, state.memory)))
        self.here.clear()
        return state


def _turned(seed, d, size):
    """Blocks e (size, d) of a random rotation, a point a row, then of zeros; and sums to begin.

    The points are those of `spheres` with one radius.
    """
    normals = jax.random.normal(jax.random.key(seed), (d, d))
    e = (d + 2.0) ** 0.5 * orthonormal(normals)
    rows = jnp.zeros((-(-(d + 1) // size) * size, d)).at[:d].set(e)
    return [*rows.reshape(-1, size, d)], (jnp.zeros(()), jnp.zeros(d), jnp.zeros((d, d)))


def orthonormal(X: Any) -> Any:
    """The factor Q of X (d, d), by products and Cholesky's factors alone (Fukaya et al. 2020).

    Several times faster than Householder's way. Q is the same for every X T, T triangular, so the
    shift, without which X^T X may be singular, does not matter.
    """

    def nearer(k, X):
        C = jnp.linalg.cholesky(X.T @ X + 1e-13 * len(X) * (k == 0) * jnp.eye(len(X)))
        return jax.scipy.linalg.solve_triangular(C, X.T, lower=True).T

    return jax.lax.fori_loop(0, 3, nearer, X)  # a loop is compiled once


def _sums(f, e, given):
    """The sums so far, and with them those at mu +- L e for the points e (size, d) of a block."""
    sums, share, mu, L, data = given
    off, weight = e @ L.T, jnp.where(e.any(-1), 0.5, share)
    points = jnp.concatenate([mu + off, mu - off])
    value, slope = jax.vmap(jax.value_and_grad(f), (0, None))(points, data)
    (up, down), (g_up, g_down) = value.reshape(2, -1), slope.reshape(2, *e.shape)
    more = weight @ (up + down), weight @ (g_up + g_down), (g_up - g_down).T @ e
    return tuple(a + b for a, b in zip(sums, more))


def _moved(mu, L, sums, old):
    """The next mu and L, and what the step after it has to know."""
    square, (value, slope, turns) = len(mu) + 2.0, sums  # of the radius
    elbo = value / square + jnp.log(jnp.abs(jnp.diag(L))).sum()  # but for a constant
    A = L.T @ turns / (2 * square)
    A = (A + A.T) / 2 + jnp.eye(len(mu))  # I: e e^T / rho^2, of log q
    new = believed(jnp, Last(old.s, elbo, slope @ L / square, A, mu, L), old)
    return *natural_step(new.mu, new.L, new.c, new.A, 1 / new.s), new


def natural_step(mu: Any, L: Any, c: Any, A: Any, rho: Any) -> tuple:
    """`rules.newton`, with S = I - rho A wherever that is positive definite.

    It is (I + (I - rho A)^2) / 2 else. The first is exact in one step from every q, if the
    posterior is Gaussian; the second takes many from one that is far too wide or too narrow.
    """
    I, solve = jnp.eye(len(mu)), jax.scipy.linalg.solve_triangular
    B = I - rho * A
    turned_round = lambda S: jnp.linalg.cholesky(S[::-1, ::-1])[::-1, ::-1]  # S = R R^T
    R = turned_round(B)
    safe = lambda: turned_round((I + B @ B) / 2)
    R = jax.lax.cond(jnp.isfinite(R).all(), lambda: R, safe)
    step = solve(R, rho * solve(R, c), trans=1)  # in units of the q before it
    far = (step**2).mean() ** 0.5
    return mu + L @ step / jnp.maximum(far / rules.REACH, 1.0), jnp.tril(solve(R, L.T).T)
