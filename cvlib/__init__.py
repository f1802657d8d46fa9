"""cvlib: control variates for variational inference, each one line of a recipe."""

from . import (
    combine,
    datasets,
    exact,
    families,
    models,
    optimize,
    passes,
    relaxations,
    rules,
    zoo,
)  # fmt: skip
from .approximations import bound, tangent, taylor_x, taylor_x_slope, taylor_z
from .atoms import one, terms
from .draws import draw
from .estimators import CF, GR, LOO, PR, QD, RB, RP1, RP2, SF, DisARM, evaluate
from .relaxations import relax, surrogate
from .snapshots import snapshot

__version__ = "0.3.0"

__all__ = [
    "CF", "DisARM", "GR", "LOO", "PR", "QD", "RB", "RP1", "RP2", "SF", "bound", "combine",
    "datasets", "draw", "evaluate", "exact", "families", "models", "one", "optimize", "passes",
    "relax", "relaxations", "rules", "snapshot", "surrogate", "tangent", "taylor_x",
    "taylor_x_slope", "taylor_z", "terms", "zoo",
]  # fmt: skip
