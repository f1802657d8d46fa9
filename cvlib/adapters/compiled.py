"""Models from elsewhere: log p(x, z) and its slope, compiled by JAX, for NumPyro and PyMC too."""

import time
from collections import OrderedDict  # whose order JAX keeps
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive

from ..arguments import install, whole
from ..models import checks, passes
from ..models.density import Model
from ..models.parameters import Elsewhere, Parameters, labels

STEP = 1e-5  # of differences of slopes, for a unit vector
BLOCKS = 64, 1  # points that are computed at once: two shapes, for each is compiled
CHEAP = 2**16  # numbers that a block makes in less time than one more program is compiled
MADE = 2**23  # numbers that a block may make, in its largest array
MOST = 2000, 10_000  # unknowns of a full q, on a CPU and on a GPU
WORK = 2**36  # and on a CPU numbers of the data times unknowns


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

    def totals(
        self, z: np.ndarray, order: int, factor: np.ndarray | None = None, mean: bool = False
    ) -> tuple:
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


# Adapters ----------------------------------------------------------------------------------------


def from_jax(
    log_joint: Callable, parameters: int | dict, name: str = "JAX model", data: Any = None
) -> Compiled:
    """log_joint(p) of one point, written for JAX, up to a constant; p as `parameters` declare.

    With a whole number d for `parameters` it takes z (d,). With `data`, an array or a tuple or dict
    of them, it is log_joint(p, data): they lie on JAX's device once, as arguments of what is
    compiled. Arrays that it holds otherwise are made such arguments, too.
    """
    jax = package("jax")
    _check_callable("log_joint", log_joint, 'from_jax(log_joint, {"beta": 3})')
    with double(jax):
        there = jax.tree.map(jax.numpy.asarray, data)
    joint = log_joint if data is None else lambda p: log_joint(p, there)
    if not isinstance(parameters, dict):
        _check_number(joint, name, whole("parameters", parameters))
        return _compiled(joint, name, dim=parameters)
    space = Parameters(parameters)

    def one(z):
        p, stretch = space.mapped(z, jax.numpy)
        return joint(p) + stretch

    _check_number(one, name, space.dim)
    return _compiled(one, name, parameters=parameters)


def _check_callable(what, f, example):
    if not callable(f):
        raise ValueError(f"{what}={f!r} is no function: write {example}")


def _check_number(log_joint, name, d):
    """log_joint of one point z (d,) is one real number, and JAX can trace it."""
    jax = package("jax")
    try:
        with double(jax):
            found = jax.tree.leaves(jax.eval_shape(log_joint, np.zeros(d)))
    except Exception as error:
        raise ValueError(
            f"{name} fails for one point z ({d},): write it with jax.numpy, and jnp.where for if. "
            f"Its words: {type(error).__name__}: {error}"
        ) from error
    if [(x.shape, x.dtype.kind) for x in found] != [((), "f")]:
        gave = ", ".join(f"{x.dtype}{list(x.shape)}" for x in found) or "nothing"
        raise ValueError(f"{name} gave {gave} for one point: give one real number, jnp.sum(...)")


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> Compiled:
    """A NumPyro model, called with these arguments, with its names and constraints."""
    handlers, util = package("numpyro.handlers"), package("numpyro.infer.util")
    _check_callable("model", model, "from_numpyro(model, X, y)")
    jax, name = package("jax"), getattr(model, "__name__", "NumPyro model")  # a partial has none
    given = [*args, *kwargs.values()]
    fresh, sites = lambda: handlers.seed(model, 0), {}  # a handler remembers what it has drawn

    def seen():
        """What is observed. Traced, not run: JAX would compile every operation by itself."""
        sites.update(handlers.trace(fresh()).get_trace(*args, **kwargs))
        return {k: x["value"] for k, x in sites.items() if x.get("is_observed")}

    back = lambda p: util.unconstrain_fn(fresh(), args, kwargs, p)
    with double(jax):
        observed = _tried(name, given, jax.jit(seen))
        unknown = _check_sites(name, sites)
        split, names = _flat(jax.eval_shape(back, unknown))
    named = lambda z: util.constrain_fn(fresh(), args, kwargs, split(z), return_deterministic=True)
    log_joint = lambda z: -util.potential_energy(fresh(), args, kwargs, split(z))
    made = partial(_compiled, log_joint, name, dim=len(names), names=names, named=named)
    found = _tried(name, [*given, *observed.values()], made)
    found.dims = {k: _plates(site) for k, site in sites.items() if site["type"] == "sample"}
    found.observed = {k: np.asarray(x) for k, x in observed.items()}

    def log_liks(z):
        given = handlers.substitute(fresh(), data=named(z))
        made = handlers.trace(given).get_trace(*args, **kwargs)
        return {k: made[k]["fn"].log_prob(made[k]["value"]) for k in observed}

    _and_rows(found, log_liks if observed else None, back)
    return found


def _and_rows(found, log_liks, back):
    """The log-likelihood by row at one z, and what takes parameters back to it, for many."""
    jax, ravel = package("jax"), package("jax.flatten_util").ravel_pytree
    if log_liks:
        found._log_liks = _batched(Traced(log_liks, found.dim))
    many = jax.jit(jax.vmap(lambda p: ravel(back(p))[0]))

    def backwards(arrays):
        with double(jax):
            p = {k: np.asarray(arrays[k], float) for k in found.parameters.each}
            return np.asarray(many(p))

    found.parameters.back = backwards


def _tried(name, given, call):
    """call(), or in a sentence why a model of NumPyro cannot be called with what it was given."""
    try:
        return call()
    except Exception as error:
        says = f"{name} fails with these arguments; {_cure(error, given)}. Its words: "
        raise ValueError(f"{says}{type(error).__name__}: {error}") from error


def _cure(error, given):
    """What would be right."""
    leaves = package("jax").tree.leaves(given)
    if isinstance(error, NotImplementedError):  # as an ImproperUniform that is to be sampled
        return "no draw can be had of a prior, ImproperUniform say: give dist.Normal(0, 100)"
    if any(hasattr(x, "to_numpy") for x in leaves):
        return "JAX knows no tables: give table.to_numpy()"
    if text := [x for x in leaves if np.asarray(x).dtype.kind in "US"]:
        return f"there is text in its data, {str(text[0])[:20]!r}: give numbers"
    if any(isinstance(x, list) for x in given):
        return "JAX does not compute with lists: give arrays, np.array(y)"
    if any(np.any(x != x) for x in leaves):  # as NaN alone does
        return "there is NaN in its data: drop or fill it"
    return "give all that it takes, as arrays: from_numpyro(model, X, y)"


def _check_sites(name, sites):
    """Shapes of the unknowns of a NumPyro model, of which each is real and has a prior."""
    unknown = {k: s for k, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    if params := [k for k, site in sites.items() if site["type"] == "param"]:
        raise ValueError(
            f"{params[0]} in {name} is a numpyro.param, which has no prior: give it one, "
            f'numpyro.sample("{params[0]}", ...), or a value'
        )
    _check_unknowns(name, {k: site["fn"].support.is_discrete for k, site in unknown.items()})
    shape = lambda x: package("jax").ShapeDtypeStruct(x.shape, x.dtype)
    return {k: shape(site["value"]) for k, site in unknown.items()}


def _check_unknowns(name, discrete):
    """{unknown: is it discrete}: there is one, and none is."""
    if not discrete:
        raise ValueError(f"{name} has no unknown: all that it samples is observed")
    for unknown in (k for k, is_so in discrete.items() if is_so):
        raise ValueError(
            f"{unknown} is discrete: only real unknowns have a slope; in the model sum over it"
        )


def _plates(site):
    """The name of every axis of a site: of its plate, or None."""
    lead = len(site["fn"].batch_shape)
    plates = {lead + plate.dim: plate.name for plate in site["cond_indep_stack"]}
    return [plates.get(axis) for axis in range(np.ndim(site["value"]))]


def from_pymc(model: Any) -> Compiled:
    """A PyMC model, with its names and constraints; JAX compiles it."""
    pymc, compiler = package("pymc"), package("pymc.sampling.jax")
    if not isinstance(model, pymc.Model):
        raise ValueError(f"{model!r} is no PyMC model: give that of `with pm.Model() as model`")
    name, inside = model.name or "PyMC model", model.value_vars
    _check_unknowns(name, {v.name: not v.dtype.startswith("float") for v in inside})
    point = model.initial_point()
    first = OrderedDict((model.values_to_rvs[v].name, point[v.name]) for v in inside)
    split, names = _flat(first)
    outside = [v for v in model.unobserved_value_vars if v not in inside or v.name in first]
    log_joint = compiler.get_jaxified_logp(model)
    constrained = compiler.get_jaxified_graph(inputs=inside, outputs=outside)
    found = _compiled(
        lambda z: log_joint([*split(z).values()]), name, dim=len(names), names=names,
        named=lambda z: dict(zip([v.name for v in outside], constrained(*split(z).values()))),
    )  # fmt: skip
    seen = {v.name: v for v in model.observed_RVs}
    rows = model.logp(vars=[*seen.values()], sum=False) if seen else []
    likelihoods = compiler.get_jaxified_graph(inputs=inside, outputs=rows) if seen else None
    found.observed = {k: np.asarray(model.rvs_to_values[v].eval()) for k, v in seen.items()}
    _and_rows(
        found, likelihoods and (lambda z: dict(zip(seen, likelihoods(*split(z).values())))),
        _unconstrained(model, [model.values_to_rvs[v] for v in inside], compiler),
    )  # fmt: skip
    # without these PyMC would draw a variable with such an axis from its prior, in predictions
    known = package("pymc.backends.arviz")
    found.coords, found.dims = known.coords_and_dims_for_inferencedata(model)
    found.constants = known.find_constants(model)
    return found


def _unconstrained(model, variables, compiler):
    """What takes the constrained variables of a PyMC model, by name, to those that it samples."""
    clone = package("pytensor.graph.replace").clone_replace
    given = {v: v.type(v.name) for v in variables}

    def inner(v):
        way = model.rvs_to_transforms[v]
        return given[v] if way is None else way.forward(given[v], *v.owner.inputs)

    f = compiler.get_jaxified_graph(
        inputs=[*given.values()], outputs=clone([inner(v) for v in variables], given)
    )
    names = [v.name for v in variables]
    return lambda p: OrderedDict(zip(names, f(*(p[name] for name in names))))


class Traced:
    """A function of one z (d,) as JAX's own program: `f(z, data)`, and the arrays in it, `data`.

    As arguments of what is compiled they cost no time there; as constants they are folded into it.
    """

    def __init__(self, f: Callable, d: int):
        jax = package("jax")
        with double(jax):
            program, shape = jax.make_jaxpr(f, return_shape=True)(np.zeros(d))
            self.data = jax.device_put(program.consts)
        tree = jax.tree.structure(shape)
        run = partial(jax.core.eval_jaxpr, program.jaxpr)
        self.f = lambda z, data: jax.tree.unflatten(tree, run(data, z))
        self.kept: dict = {}  # what was compiled of it
        self.slowest = 0.0  # seconds that this took, the longest

    def in_time(self, f: Callable, size: int) -> int:
        """Points that f takes at once: others that it takes, if there is no time to compile."""
        ready = self.kept.setdefault(f, [])
        if size not in ready and passes.late_in(self.slowest):
            passes.look_at_clock(0.0 if ready else self.slowest)
            return max(ready)
        return size

    def took(self, f: Callable, size: int, seconds: float) -> None:
        """So long was a call of f with so many points, whose first compiles."""
        if size not in self.kept[f]:
            self.kept[f].append(size)
            self.slowest = max(self.slowest, seconds)

    @property
    def full(self) -> int:
        """Unknowns up to which a full q fits: by memory on a GPU, by time on a CPU."""
        device, numbers = package("jax").devices()[0], sum(x.size for x in self.data)
        if device.platform != "cpu":
            return min(MOST[1], int((memory(device) / 20) ** 0.5))  # d x d, as many as a step has
        return min(MOST[0], int(WORK / max(numbers, 1)))


def memory(device: Any) -> int:
    """Numbers that a device may hold, as far as is known."""
    return ((device.memory_stats() or {}).get("bytes_limit") or 2**31) // 8


def _compiled(log_joint, name, named=None, **about):
    """A `Compiled` of functions of one z (d,) that JAX can trace."""
    jax = package("jax")
    d = about.get("dim") or Parameters(about["parameters"]).dim
    joint = Traced(log_joint, d)
    if named is not None:
        about["named"] = _batched(Traced(named, d))
    found = Compiled(
        _batched(joint, jax.value_and_grad), name=name, value=_batched(joint),
        hessian=_batched(joint, jax.hessian), **about,
    )  # fmt: skip
    found.traced = joint
    return found


def _batched(traced, of=lambda f: f):
    """What JAX makes of a function of one z (d,), or of its derivative, for many (B, d)."""
    jax = package("jax")
    return partial(_in_blocks, jax.jit(jax.vmap(of(traced.f), (0, None))), traced)


def _in_blocks(f, traced, z):
    """f of points z (B, d), in blocks: JAX compiles anew for every number of points it meets."""
    jax, found, first = package("jax"), [], 0
    each = made(f, traced.data, z.shape[1])
    many = BLOCKS[0] if BLOCKS[0] * each <= MADE else BLOCKS[1]
    one = many if many * each <= CHEAP else BLOCKS[1]
    while (left := len(z) - first) > 0:
        passes.look_at_clock()
        size = traced.in_time(f, many if len(z) > 1 else one)
        rows = np.minimum(np.arange(first, first + size), len(z) - 1)  # the last one fills up
        begun = time.perf_counter()
        with double(jax):
            found.append(jax.tree.map(lambda x: np.asarray(x)[:left], f(z[rows], traced.data)))
        traced.took(f, size, time.perf_counter() - begun)
        first += size
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


def made(f: Callable, data: list, d: int) -> int:
    """How many numbers one more point (d,) adds to the longest array that f makes of points."""
    return _made(f, tuple((x.shape, x.dtype.name) for x in data), d)


@lru_cache
def _made(f, shapes, d):
    jax, sizes = package("jax"), []
    with double(jax):
        data = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
        for B in 1, 2:
            points = jax.ShapeDtypeStruct((B, d), "float64")
            todo, found = [jax.make_jaxpr(f)(points, data).jaxpr], []
            for jaxpr in todo:
                for step in jaxpr.eqns:
                    found += [int(np.prod(x.aval.shape)) for x in step.outvars]
                    inner = (getattr(x, "jaxpr", x) for x in step.params.values())
                    todo += [x for x in inner if hasattr(x, "eqns")]
            sizes.append(found)
    return max((two - one for one, two in zip(*sizes)), default=1) or 1


def package(name: str) -> Any:
    """A package that only adapters need."""
    try:
        return import_module(name)
    except ImportError as error:
        extra = name.split(".")[0]
        raise ValueError(f"this needs {extra}: {install(extra)}") from error


def double(jax: Any) -> Any:
    """JAX in double precision, for a while."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return jax.experimental.enable_x64()


def _flat(arrays):
    """What makes arrays of these shapes, by name, of z (d,), and the names of its coordinates."""
    jax = package("jax")
    with double(jax):
        arrays = jax.tree.map(lambda x: np.zeros(x.shape), arrays)
        z, split = package("jax.flatten_util").ravel_pytree(arrays)
        shapes = {name: x.shape for name, x in split(z).items()}
    return split, [label for name, shape in shapes.items() for label in labels(name, shape)]
