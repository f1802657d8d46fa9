"""What p may be: one's own models, generalised linear ones, compiled ones; passes over data."""

from .compiled import Compiled, from_jax, from_numpyro, from_pymc
from .density import GaussianPrior, Model
from .glm import (
    GLM,
    LOGISTIC,
    POISSON,
    PROBIT,
    Groups,
    Likelihood,
    counts,
    gaussian_likelihood,
    linear_regression,
    logistic_regression,
    negative_binomial_likelihood,
    poisson_regression,
    signs,
    student_t_likelihood,
)

__all__ = [
    "Compiled", "GLM", "GaussianPrior", "Groups", "LOGISTIC", "Likelihood", "Model", "POISSON",
    "PROBIT", "counts", "from_jax", "from_numpyro", "from_pymc", "gaussian_likelihood",
    "linear_regression", "logistic_regression", "negative_binomial_likelihood",
    "poisson_regression", "signs", "student_t_likelihood",
]  # fmt: skip
