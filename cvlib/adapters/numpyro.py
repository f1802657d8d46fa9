"""Models of NumPyro, with their names, constraints, plates and observed data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import Package, check_unknowns
from .jax import Compiled, compiled, double, flat

jax = Package("jax")
handlers, util = Package("numpyro.handlers"), Package("numpyro.infer.util")


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> Compiled:
    """A NumPyro model, called with these arguments, with its names and constraints."""
    if not callable(model):
        raise ValueError(f"model={model!r} is no function: write from_numpyro(model, X, y)")
    name = getattr(model, "__name__", "NumPyro model")  # a partial has none
    given, seed, trace = [*args, *kwargs.values()], handlers.seed, handlers.trace
    fresh, sites = lambda: seed(model, 0), {}  # a handler remembers what it has drawn

    def seen():
        """What is observed. Traced, not run: JAX would compile every operation by itself."""
        sites.update(trace(fresh()).get_trace(*args, **kwargs))
        return {k: x["value"] for k, x in sites.items() if x.get("is_observed")}

    back = lambda p: util.unconstrain_fn(fresh(), args, kwargs, p)
    with double():
        observed = _tried(name, given, jax.jit(seen))
        unknown = _check_sites(name, sites)
        split, names = flat(jax.eval_shape(back, unknown))
    named = lambda z: util.constrain_fn(fresh(), args, kwargs, split(z), return_deterministic=True)
    log_joint = lambda z: -util.potential_energy(fresh(), args, kwargs, split(z))
    rows = lambda z: util.log_likelihood(fresh(), named(z), *args, batch_ndims=0, **kwargs)
    functions = log_joint, name, named, rows if observed else None, back
    made = partial(compiled, *functions, dim=len(names), names=names)
    found = _tried(name, [*given, *observed.values()], made)
    found.dims = {k: _plates(site) for k, site in sites.items() if site["type"] == "sample"}
    found.observed = {k: np.asarray(x) for k, x in observed.items()}
    return found


def _tried(name, given, call):
    """call(), or in a sentence why a model of NumPyro cannot be called with what it was given."""
    try:
        return call()
    except Exception as error:
        says = f"{name} fails with these arguments; {_cure(error, given)}. Its words: "
        raise ValueError(f"{says}{type(error).__name__}: {error}") from error


def _cure(error, given):
    """What would be right."""
    leaves = jax.tree.leaves(given)
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
    check_unknowns(name, {k: site["fn"].support.is_discrete for k, site in unknown.items()})
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    return {k: shape(site["value"]) for k, site in unknown.items()}


def _plates(site):
    """The name of every axis of a site: of its plate, or None."""
    lead = len(site["fn"].batch_shape)
    plates = {lead + plate.dim: plate.name for plate in site["cond_indep_stack"]}
    return [plates.get(axis) for axis in range(np.ndim(site["value"]))]
