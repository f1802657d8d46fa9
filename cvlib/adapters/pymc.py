"""Models of PyMC, with their names, constraints, labelled axes, and observed and constant data."""

from collections import OrderedDict  # whose order JAX keeps
from typing import Any

import numpy as np

from . import Package, check_unknowns
from .jax import Compiled, compiled, flat

pymc, compiler = Package("pymc"), Package("pymc.sampling.jax")
known, replace = Package("pymc.backends.arviz"), Package("pytensor.graph.replace")


def from_pymc(model: Any) -> Compiled:
    """A PyMC model, with its names and constraints; JAX compiles it."""
    if not isinstance(model, pymc.Model):
        raise ValueError(f"{model!r} is no PyMC model: give that of `with pm.Model() as model`")
    name, inside = model.name or "PyMC model", model.value_vars
    check_unknowns(name, {v.name: not v.dtype.startswith("float") for v in inside})
    point = model.initial_point()
    first = OrderedDict((model.values_to_rvs[v].name, point[v.name]) for v in inside)
    split, names = flat(first)
    outside = [v for v in model.unobserved_value_vars if v not in inside or v.name in first]
    log_joint = compiler.get_jaxified_logp(model)
    constrained = _graph(inside, {v.name: v for v in outside})
    seen = {v.name: v for v in model.observed_RVs}
    logp = dict(zip(seen, model.logp(vars=[*seen.values()], sum=False))) if seen else {}
    rows = _graph(inside, logp) if seen else None
    found = compiled(
        lambda z: log_joint([*split(z).values()]), name, lambda z: constrained(split(z)),
        rows and (lambda z: rows(split(z))), _unconstrained(model), dim=len(names), names=names,
    )  # fmt: skip
    found.observed = {k: np.asarray(model.rvs_to_values[v].eval()) for k, v in seen.items()}
    # without these PyMC would draw a variable with such an axis from its prior, in predictions
    found.coords, found.dims = known.coords_and_dims_for_inferencedata(model)
    found.constants = known.find_constants(model)
    return found


def _graph(inputs, outputs):
    """Variables {name: variable} as a function of arrays by name, in the order of the inputs."""
    f = compiler.get_jaxified_graph(inputs=inputs, outputs=[*outputs.values()])
    return lambda arrays: OrderedDict(zip(outputs, f(*arrays.values())))


def _unconstrained(model):
    """What takes the constrained variables of a PyMC model, by name, to those that it samples."""
    variables = {v.name: v for v in map(model.values_to_rvs.get, model.value_vars)}
    given = {v: v.type(name) for name, v in variables.items()}

    def inner(v):
        way = model.rvs_to_transforms[v]
        return given[v] if way is None else way.forward(given[v], *v.owner.inputs)

    outputs = replace.clone_replace([inner(v) for v in given], given)
    back = _graph([*given.values()], dict(zip(variables, outputs)))
    return lambda p: back({name: p[name] for name in variables})
