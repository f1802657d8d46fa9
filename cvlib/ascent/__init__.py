"""Climbing the ELBO: states and steps, the rules they follow, and exact references."""

from . import exact, optimize, plans, rotated, rules

__all__ = ["exact", "optimize", "plans", "rotated", "rules"]
