"""Snapshots: the data term's value, slope and curvature at older weights, summed over all data."""

from copy import deepcopy
from math import isclose
from typing import NamedTuple

import numpy as np

from ..arguments import unmasked
from ..models.own import Model

SUMS = "value", "slope", "hessian"


class Snapshot(NamedTuple):
    """log p(x | z) about mu: value + slope.(z - mu) + (z - mu)^T hessian (z - mu) / 2.

    The same for its quadratic lower bound and for the parabola of means, if the snapshot knows the
    factor of q at the time.
    """

    mu: np.ndarray  # (..., d)
    value: np.ndarray  # (...)
    slope: np.ndarray  # (..., d)
    hessian: np.ndarray | None = None  # (..., d, d), if it is of order 2
    factor: np.ndarray | None = None  # (..., d, d), or (..., d) of a diagonal q
    bound_value: np.ndarray | None = None
    bound_slope: np.ndarray | None = None
    bound_hessian: np.ndarray | None = None
    mean_value: np.ndarray | None = None
    mean_slope: np.ndarray | None = None
    mean_hessian: np.ndarray | None = None
    checksum: int = 0  # of the model's data
    mark: float = 0.0  # of its log-likelihood

    def of_run(self, k: int | tuple[int, ...]) -> "Snapshot":
        """That of run k alone."""
        *arrays, checksum, mark = self
        own = (None if x is None else np.asarray(x)[k] for x in arrays)
        return Snapshot._make((*own, checksum, mark))

    def check(self, model: Model) -> None:
        """A ValueError if it is another model's: variates from it would not have mean zero."""
        if self.checksum != model.checksum or not isclose(self.mark, model.mark, rel_tol=1e-7):
            raise ValueError(
                f"this snapshot is not one of the data of {model!r}, or has another likelihood: "
                "take cvlib.snapshot(model, mu)"
            )


def snapshot(
    model: Model, mu: np.ndarray, order: int = 2, factor: np.ndarray | None = None,
    mean: bool = False,
) -> Snapshot:  # fmt: skip
    """The `Snapshot` of a model at mu (..., d): one pass over the data, part by part.

    With order=1 without the Hessian. With the factor of a Gaussian q, L or sigma, also of the
    likelihood's quadratic bound; with mean=True also of the parabola of means.
    """
    mu, factor = np.array(unmasked("mu", mu), float), deepcopy(factor)  # our own: theirs may move
    if mu.shape[-1:] != (model.dim,) or not np.isfinite(mu).all():
        raise ValueError(f"mu must be finite numbers (..., {model.dim}); got {mu.shape}")
    if order not in (1, 2):
        raise ValueError(f"order={order!r}: a snapshot has order 1 or 2")
    bounded = getattr(model.likelihood, "bound", None) is not None
    if factor is not None and not (bounded or mean):
        raise ValueError(f"factor= is for a quadratic bound, and {model!r} has none: leave it out")
    if mean and (factor is None or model.likelihood is None):
        raise ValueError("mean=True needs a generalised linear model, and the factor of q")
    kinds = ["", *["bound_"] * (bounded and factor is not None), *["mean_"] * mean]
    names = [
        f"{kind}{name}" for kind in kinds for name in SUMS if kind or name in SUMS[: order + 1]
    ]
    found = model.totals(mu, order, factor, mean)
    sums = dict(zip(names, found, strict=True))
    return Snapshot(mu=mu, factor=factor, checksum=model.checksum, mark=model.mark, **sums)
