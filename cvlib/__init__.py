"""cvlib: control variates for variational inference, each one line of a recipe.

`cvlib.definitions` is the recipe by definition, slow and short: read it first. All else is its fast
version, and what stands on it.
"""

from importlib import import_module
from typing import Any

from . import datasets, families, models, zoo
from .ascent import exact, optimize, rules
from .choosing import choose, report
from .combining import combine
from .combining.stein import Answer
from .draws import Sampling, draw, snapshot
from .families.found import elbo, expect, quantile
from .fitting.front import Distrust, Fit, fit
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
from .recipe.ensemble import AQ, LB, RPS, all_quadratics, linear_baseline
from .recipe.estimators import CF, GR, LOO, PR, QD, RB, RP1, RP2, SF, DisARM, evaluate
from .zoo import candidates

__version__ = "0.13.0"

__all__ = [
    "AQ", "Answer", "CF", "DisARM", "Distrust", "Fit", "GR", "LB", "LOO", "PR", "QD", "RB", "RP1",
    "RP2", "RPS", "SF", "Sampling", "all_quadratics", "bound", "candidates", "choose", "combine",
    "datasets", "definitions", "draw", "elbo", "evaluate", "exact", "expect", "families", "fit",
    "interval", "linear_baseline", "models", "one", "optimize", "ordered", "parabola", "passes",
    "pick", "positive", "quantile", "real", "relax", "report", "rules", "simplex",
    "snapshot", "surrogate", "taylor_x", "taylor_x_slope", "taylor_z", "terms", "zoo",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The definitions, imported when they are asked for: the engine does not need them."""
    if name == "definitions":
        return import_module(".definitions", __name__)
    raise AttributeError(f"module 'cvlib' has no attribute {name!r}")
