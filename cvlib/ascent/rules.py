"""Rules as values: what a step makes of a gradient, what weights the control variates get.

A rule is a value without a memory of its own. What it has to remember goes in and comes out, as a
tuple of arrays and numbers, so that a run can be saved and gone on with. Leading axes are runs.
"""

from .ascents import Ascent, adam, falling, momentum, natural
from .ensemble import matching, quadratics
from .weightings import Weighting, bayes, fixed

__all__ = [
    "Ascent", "Weighting", "adam", "bayes", "falling", "fixed", "matching", "momentum", "natural",
    "quadratics",
]  # fmt: skip
