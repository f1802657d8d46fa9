"""cvlib: control variates for variational inference, each one line of a recipe.

`cvlib.definitions` is the recipe by definition, slow and short: read it first. The core, imported
here, is its fast version. What stands on the core is imported when it is asked for.
"""

from importlib import import_module
from typing import Any

from . import datasets, families, models, zoo
from .ascent import exact, optimize, rules
from .ascent.optimize import elbo
from .combining import combine
from .draws import Sampling, draw, snapshot
from .models import passes
from .models.parameters import interval, ordered, pick, positive, real, simplex
from .recipe.approximations import (
    bound,
    parabola,
    relax,
    surrogate,
    taylor_x,
    taylor_x_slope,
    taylor_z,
)
from .recipe.atoms import one, terms
from .recipe.ensemble import AQ, LB, LOO, RPS, DisARM, all_quadratics, linear_baseline
from .recipe.estimators import CF, GR, PR, QD, RB, RP1, RP2, SF, evaluate

__version__ = "0.13.0"

__all__ = [
    "AQ", "Answer", "CF", "DisARM", "Distrust", "Fit", "GR", "LB", "LOO", "PR", "QD", "RB", "RP1",
    "RP2", "RPS", "SF", "Sampling", "Settings", "all_quadratics", "bound", "candidates", "choose",
    "combine", "datasets", "definitions", "draw", "elbo", "evaluate", "exact", "expect", "families",
    "fit", "interval", "linear_baseline", "models", "one", "optimize", "ordered", "parabola",
    "passes", "pick", "positive", "quantile", "real", "relax", "report", "rules", "simplex",
    "snapshot", "surrogate", "taylor_x", "taylor_x_slope", "taylor_z", "terms", "zoo",
]  # fmt: skip

# What stands on the core: {name: the module that it comes from}, imported when it is asked for.
LATER = {
    "": {
        "definitions": "definitions",
        "candidates": "pilots", "choose": "choosing", "report": "choosing",
        "Distrust": "fitting.front", "Fit": "fitting.front", "fit": "fitting.front",
        "Settings": "fitting.settings",
        "Answer": "fitting.stein", "expect": "fitting.found", "quantile": "fitting.found",
    },
    ".models": {
        "Compiled": "adapters.jax", "from_jax": "adapters.jax",
        "from_numpyro": "adapters.numpyro", "from_pymc": "adapters.pymc",
    },
    ".models.passes": {"connect": "adapters.dask", "on": "adapters.dask"},
    ".families": {"Bent": "fitting.bent"},
}  # fmt: skip


def _later(core: str) -> Any:
    """The `__getattr__` of a module of the core."""

    def imported(name: str) -> Any:
        if name not in LATER[core]:
            raise AttributeError(f"module '{__name__}{core}' has no attribute {name!r}")
        place = LATER[core][name]
        module = import_module(f".{place}", __name__)
        return module if place == name else getattr(module, name)

    return imported


__getattr__ = _later("")
models.__getattr__ = _later(".models")  # type: ignore[method-assign]
passes.__getattr__ = _later(".models.passes")  # type: ignore[method-assign]
families.__getattr__ = _later(".families")  # type: ignore[method-assign]
