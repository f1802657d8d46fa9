"""The evidence lower bound of any model under any family, from samples."""

import math
from typing import NamedTuple

import numpy as np

from ..arguments import whole
from ..draws import Sampling
from ..families.base import Family
from ..models.own import Model
from ..recipe.atoms import terms
from ..recipe.drawing import draw

CHUNK = 2**22  # numbers that draws may make at a time


class Estimate(NamedTuple):
    """A mean over samples and its standard error, (...) each."""

    value: np.ndarray
    error: np.ndarray

    def __str__(self):
        return repr(self) if np.ndim(self.value) else f"{self.value:.5g} ± {self.error:.1g}"


def elbo(model: Model, q: Family, w: np.ndarray, M: int, rng: np.random.Generator) -> Estimate:
    """ELBO(w), the mean of log p(x, z) - log q_w(z) over M samples, as an `Estimate`, (...) each.

    For any model and family; all data, some samples at a time.
    """
    if isinstance(model, Family):
        raise TypeError(f"{model!r} is a family: the model comes first, elbo(model, q, w, M, rng)")
    data, prior, variational = terms(model, q)
    f, w, parts = (data + prior - variational).parts.items(), q.check(w), []
    most = max(1, CHUNK // (max(model.N * model.row_size, q.D) * math.prod(w.shape[:-1])))
    for first in range(0, whole("M", M, 2), most):
        d = draw(model, q, w, min(most, M - first), rng, sampling=Sampling(subsample=False))
        parts.append(sum(coef * atom.value(d, "z1") for atom, coef in f))  # (..., m)
    values = np.concatenate(parts, -1)
    return Estimate(values.mean(-1), values.std(-1, ddof=1) / np.sqrt(M))
