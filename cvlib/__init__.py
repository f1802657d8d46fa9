"""cvlib: control variates for variational inference, each one line of a recipe.

`cvlib.definitions` is the recipe by definition, slow and short: read it first. The core, imported
here, is its fast version. What stands on the core is imported when it is asked for.
"""

from importlib import import_module
from typing import Any

from . import combine, datasets, families, models, zoo
from .ascent import exact, optimize, rules
from .ascent.optimize import elbo
from .draws import Sampling, draw, snapshot
from .models import passes
from .models.parameters import interval, ordered, pick, positive, real, simplex
from .recipe.approximations import bound, parabola, taylor_x, taylor_x_slope, taylor_z
from .recipe.atoms import relax, surrogate, terms
from .recipe.estimators import CF, GR, PR, QD, RB, RP1, RP2, SF, evaluate
from .recipe.integrands import one
from .recipe.regression import AQ, LB, LOO, RPS, DisARM, all_quadratics, linear_baseline

__version__ = "1.0.0"

__all__ = [
    "AQ", "Answer", "CF", "DisARM", "Distrust", "Fit", "GR", "LB", "LOO", "PR", "QD", "RB", "RP1",
    "RP2", "RPS", "SF", "Sampling", "Settings", "all_quadratics", "bound", "candidates", "choose",
    "combine", "datasets", "definitions", "draw", "elbo", "evaluate", "exact", "expect", "families",
    "fit", "interval", "linear_baseline", "models", "one", "optimize", "ordered", "parabola",
    "passes", "pick", "positive", "quantile", "real", "relax", "report", "rules", "simplex",
    "snapshot", "summary", "surrogate", "taylor_x", "taylor_x_slope", "taylor_z", "terms", "zoo",
]  # fmt: skip

# What stands on the core: {name: the module that it comes from}, imported when it is asked for.
LATER = {
    "": {
        "definitions": "definitions",
        "candidates": "choosing", "choose": "choosing", "report": "choosing",
        "Distrust": "fitting.front", "Fit": "fitting.front", "fit": "fitting.front",
        "Settings": "fitting.settings",
        "Answer": "fitting.stein", "expect": "fitting.chains", "quantile": "fitting.chains",
        "summary": "fitting.chains",
    },
    ".models": {
        "Compiled": "adapters.jax", "from_jax": "adapters.jax",
        "from_numpyro": "adapters.numpyro", "from_pymc": "adapters.pymc",
    },
    ".models.passes": {"connect": "adapters.dask", "on": "adapters.dask"},
    ".families": {"Bent": "fitting.bends"},
}  # fmt: skip

# What has gone since 0.13, for one version: {name: what to write in its place}.
GONE = {
    "": {"remembered": "give a quadratic of your own to cv.surrogate"},
    ".models": {
        "Groups": "it is models.DataMoments now",
        "anything": "Likelihood(name, phi) takes every label",
        "PROBIT": "write Likelihood('probit', phi) with phi(eta, y), the log-likelihood of a row",
        "student_t_likelihood": "write Likelihood('Student-t', phi) with phi(eta, y)",
        "negative_binomial_likelihood": "write Likelihood('negative binomial', phi), phi(eta, y)",
    },
    ".families": {
        "Route": "it is in cvlib.recipe.estimators",
        "Unconstrained": "declare parameters={...} with constraints in models.Model",
    },
    ".optimize": {"init": "it is plan.first(rng)", "step": "it is plan.step(state)"},
    ".rules": {
        "quadratics": "the plan is cvlib.ascent.plans.Regressed",
        "matching": "start at the mode, cvlib.fitting.starts.laplace(model)",
    },
    ".zoo": {"candidates": "it is cv.candidates"},
}


def _later(core: str) -> Any:
    """The `__getattr__` of a module of the core."""

    def imported(name: str) -> Any:
        if name in GONE.get(core, ()):
            raise AttributeError(f"cv{core}.{name} has gone since 0.13: {GONE[core][name]}")
        if name not in LATER.get(core, ()):
            raise AttributeError(f"module '{__name__}{core}' has no attribute {name!r}")
        place = LATER[core][name]
        module = import_module(f".{place}", __name__)
        return module if place == name else getattr(module, name)

    return imported


__getattr__ = _later("")
for _core, _module in {
    ".models": models, ".models.passes": passes, ".families": families, ".optimize": optimize,
    ".rules": rules, ".zoo": zoo,
}.items():  # fmt: skip
    vars(_module)["__getattr__"] = _later(_core)
models.Model.grouped = lambda: import_module(".fitting.groups", __name__).Grouped
