"""Snapshots: the data term's value, slope and curvature at older weights, summed over all data.

With them an expansion about the snapshot needs no pass over the data until it is renewed: SVRG's
idea (Johnson and Zhang 2013), with curvature.
"""

from typing import NamedTuple

import numpy as np

from ..models.own import Model


class Snapshot(NamedTuple):
    """log p(x | z) about mu: value + slope.(z - mu) + (z - mu)^T hessian (z - mu) / 2.

    The same for its quadratic lower bound, if the snapshot knows the factor of q at the time.
    """

    mu: np.ndarray  # (..., d)
    value: np.ndarray  # (...)
    slope: np.ndarray  # (..., d)
    hessian: np.ndarray | None = None  # (..., d, d), if it is of order 2
    factor: np.ndarray | None = None  # (..., d, d), or (..., d) of a diagonal q
    bound_value: np.ndarray | None = None
    bound_slope: np.ndarray | None = None
    bound_hessian: np.ndarray | None = None
    checksum: int = 0  # of the model's data

    def of_run(self, k) -> "Snapshot":
        """That of run k alone."""
        arrays = (None if x is None else np.asarray(x)[k] for x in self[:-1])
        return Snapshot(*arrays, self.checksum)

    def check(self, model: Model) -> None:
        """A ValueError if it is one of other data: variates from it would not have mean zero."""
        if self.checksum != model.checksum:
            raise ValueError(
                f"this snapshot is not one of the data of {model!r}: take cvlib.snapshot(model, mu)"
            )


def snapshot(
    model: Model, mu: np.ndarray, order: int = 2, factor: np.ndarray | None = None
) -> Snapshot:
    """The `Snapshot` of a model at mu (..., d): one pass over the data, part by part.

    With order=1 without the Hessian, for expansions of that order. With the factor of a Gaussian q,
    L or sigma, also of the likelihood's quadratic bound.
    """
    mu = np.asarray(mu, float)
    if mu.shape[-1:] != (model.dim,) or not np.isfinite(mu).all():
        raise ValueError(f"mu must be finite numbers (..., {model.dim}); got {mu.shape}")
    if order not in (1, 2):
        raise ValueError(f"order={order!r}: a snapshot has order 1 or 2")
    if factor is None:
        sums = model.totals(mu, order)
        return Snapshot(mu, *sums, checksum=model.checksum)
    if getattr(model.likelihood, "bound", None) is None:
        raise ValueError(f"factor= is for a quadratic bound, and {model!r} has none: leave it out")
    found = model.totals(mu, order, factor)
    sums, bounds = found[: order + 1], found[order + 1 :]
    return Snapshot(mu, *sums, *[None] * (2 - order), factor, *bounds, model.checksum)
