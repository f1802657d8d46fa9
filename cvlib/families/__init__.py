"""Families q_w: Gaussian (full, diagonal), gamma, beta, Bernoulli, categorical.

`base` says what a family must provide, and gives it the rest by autograd.
"""

from .base import Family, FamilyPrior
from .beyond import Bernoulli, Beta, Categorical, Gamma
from .gaussian import DiagonalGaussian, Gaussian

__all__ = [
    "Bernoulli", "Beta", "Categorical", "DiagonalGaussian", "Family", "FamilyPrior",
    "Gamma", "Gaussian",
]  # fmt: skip
