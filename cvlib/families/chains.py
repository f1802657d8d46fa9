"""Answers from draws that others made: of a chain, by name or as z, with the model they are of."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..combining import stein
from ..combining.stein import Answer
from ..models.own import Density, Model


def expect(
    f: Callable | np.ndarray, z: Any, score: Any, weights: np.ndarray | None = None, *,
    order: int | None = None, block: int | None = None,
) -> Answer:  # fmt: skip
    """E_p f(z) as an `Answer`, from draws z (n, d) and scores grad log p(z) (n, d) there.

    In place of the score a model: then z may be an `InferenceData` or `DataTree` of ArviZ, or draws
    by name, {name: (n, *shape)} or (chains, n, *shape), and f takes what the model's functions
    take. Without one f takes z to (n, ...), or is that array. Several chains are z (chains, n, d),
    scores and values likewise. weights (n,): p / q up to a factor, for draws of another law q.
    order: 0, 1 or 2; if not given, the one that foretells best what it has not seen. block: so many
    neighbours of a chain are left out together; if not given, two autocorrelation times.
    """
    f, z, score = _scored(f, z, score)
    return stein.expect(f, z, score, weights, order=order, block=block)


def quantile(
    f: Callable | np.ndarray, z: Any, score: Any, weights: np.ndarray | None = None, *,
    probs: Any = (0.05, 0.5, 0.95), order: int | None = None, block: int | None = None,
) -> Answer:  # fmt: skip
    """Quantiles of f under p, (len(probs), ...), with errors; all else as in `expect`."""
    f, z, score = _scored(f, z, score)
    return stein.quantile(f, z, score, weights, probs=probs, order=order, block=block)


def _scored(f, z, model):
    """f of z, draws z (..., n, d) and scores there, if a model is given; else all as it is."""
    if not isinstance(model, Model):
        return f, z, model
    draws = getattr(z, "posterior", z)
    z = _back(draws, model) if hasattr(draws, "keys") else np.asarray(draws, float)
    if z.shape[-1:] != (model.dim,):
        raise ValueError(f"draws z of shape {z.shape}: {model!r} needs (n, {model.dim})")
    score = Density(model).slope(z.reshape(-1, model.dim))[1].reshape(z.shape)
    return (lambda z: f(model.given(z))) if callable(f) else f, z, score


def _back(draws: Mapping, model: Model) -> np.ndarray:
    """Draws by name, in their constraints, as z (n, d) or (chains, n, d)."""
    if missing := [name for name in model.inner if name not in draws]:
        raise ValueError(
            f"the draws have no {missing[0]!r}, and {model!r} needs {', '.join(model.inner)}"
        )
    arrays = {name: np.asarray(draws[name], float) for name in model.inner}
    shapes = {k: np.shape(x)[1:] for k, x in model.named(np.zeros((1, model.dim))).items()}
    leads = {x.shape[: x.ndim - len(shapes[name])] for name, x in arrays.items()}
    lead = leads.pop()
    if leads or len(lead) not in (1, 2):
        raise ValueError(
            f"draws of {', '.join(arrays)} must be (n, *shape) or (chains, n, *shape) each, all "
            f"with one n; got {', '.join(str(x.shape) for x in arrays.values())}"
        )
    z = model.back({name: x.reshape(-1, *shapes[name]) for name, x in arrays.items()})
    return z.reshape(*lead, model.dim)
