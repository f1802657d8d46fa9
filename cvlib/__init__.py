"""cvlib: control variates for variational inference, each one line of a recipe."""

from . import (
    combine,
    datasets,
    exact,
    families,
    models,
    optimize,
    passes,
    posteriors,
    quadratics,
    relaxations,
    rules,
    transforms,
    zoo,
)
from .approximations import bound, tangent, taylor_x, taylor_x_slope, taylor_z
from .atoms import one, terms
from .choose import candidates, choose, elbo, rechoose, report
from .draws import draw
from .estimators import CF, GR, LOO, PR, QD, RB, RP1, RP2, SF, DisARM, evaluate
from .fit import Distrust, Fit, fit
from .quadratics import quadratic
from .relaxations import relax, surrogate
from .snapshots import snapshot

__version__ = "0.5.0"

__all__ = [
    "CF", "DisARM", "Distrust", "Fit", "GR", "LOO", "PR", "QD", "RB", "RP1", "RP2", "SF", "bound",
    "candidates", "choose", "combine", "datasets", "draw", "elbo", "evaluate", "exact", "families",
    "fit", "models", "one", "optimize", "passes", "posteriors", "quadratic", "quadratics",
    "rechoose", "relax", "relaxations", "report", "rules", "snapshot", "surrogate", "tangent",
    "taylor_x", "taylor_x_slope", "taylor_z", "terms", "transforms", "zoo",
]  # fmt: skip
