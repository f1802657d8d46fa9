"""Families q_w: Gaussian (full, diagonal, bent), gamma, beta, Bernoulli, categorical.

`base` says what a family must provide, and gives it the rest by autograd.
"""

from .base import Family, FamilyPrior, Route, Unconstrained
from .bent import Bent
from .discrete import Bernoulli, Categorical
from .gaussian import DiagonalGaussian, Gaussian
from .standardised import Beta, Gamma

__all__ = [
    "Bent", "Bernoulli", "Beta", "Categorical", "DiagonalGaussian", "Family", "FamilyPrior",
    "Gamma", "Gaussian", "Route", "Unconstrained",
]  # fmt: skip
