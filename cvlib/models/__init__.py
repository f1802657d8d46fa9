"""What p may be: one's own models, generalised linear ones; passes over data."""

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
    "GLM", "GaussianPrior", "Groups", "LOGISTIC", "Likelihood", "Model", "POISSON",
    "PROBIT", "counts", "gaussian_likelihood",
    "linear_regression", "logistic_regression", "negative_binomial_likelihood",
    "poisson_regression", "signs", "student_t_likelihood",
]  # fmt: skip
