"""What p may be: one's own models, generalised linear ones; passes over data."""

from .density import GaussianPrior, Model
from .glm import (
    GLM,
    LOGISTIC,
    POISSON,
    DataMoments,
    Likelihood,
    counts,
    gaussian_likelihood,
    linear_regression,
    logistic_regression,
    poisson_regression,
    signs,
)

__all__ = [
    "GLM", "DataMoments", "GaussianPrior", "LOGISTIC", "Likelihood", "Model", "POISSON",
    "counts", "gaussian_likelihood", "linear_regression", "logistic_regression",
    "poisson_regression", "signs",
]  # fmt: skip
