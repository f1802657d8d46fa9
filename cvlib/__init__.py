"""cvlib: control variates for variational inference, each one line of a recipe."""

from . import combine, datasets, exact, families, models, optimize, relaxations, rules, zoo
from .approximations import bound, taylor_x, taylor_z
from .draws import draw
from .estimators import CF, GR, RP1, RP2, SF, evaluate
from .integrands import one, terms
from .relaxations import relax, surrogate

__version__ = "0.2.0"

__all__ = [
    "CF", "GR", "RP1", "RP2", "SF", "bound", "combine", "datasets", "draw", "evaluate",
    "exact", "families", "models", "one", "optimize", "relax", "relaxations", "rules",
    "surrogate", "taylor_x", "taylor_z", "terms", "zoo",
]  # fmt: skip
