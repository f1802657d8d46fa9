"""What estimators look at: draws, random or of samples that are given, and snapshots of older q."""

from copy import deepcopy
from itertools import islice
from math import isclose
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import unmasked, whole
from ..draws import Draw, Sampling, rotations, sobol
from ..families.base import Family, check_fit
from ..models.own import Model


class Snapshot(NamedTuple):
    """log p(x | z) about mu: value + slope.(z - mu) + (z - mu)^T hessian (z - mu) / 2.

    The same for its quadratic lower bound and for the parabola of means, if the snapshot knows the
    factor of q at the time.
    """

    mu: np.ndarray  # (..., d)
    # {"taylor_z", "bound" and "parabola", where known: value (...), slope (..., d) and Hessian}
    parabolas: dict[str, list]  # (..., d, d); None where it is of order 1
    factor: np.ndarray | None = None  # (..., d, d), or (..., d) of a diagonal q
    checksum: int = 0  # of the model's data
    mark: float = 0.0  # of its log-likelihood

    @property
    def value(self) -> np.ndarray:
        return self.parabolas["taylor_z"][0]

    @property
    def slope(self) -> np.ndarray:
        return self.parabolas["taylor_z"][1]

    @property
    def hessian(self) -> np.ndarray | None:
        return self.parabolas["taylor_z"][2]

    def of_run(self, k: int | tuple[int, ...]) -> "Snapshot":
        """That of run k alone."""
        own: Any = lambda x: None if x is None else np.asarray(x)[k]
        parabolas = {kind: [*map(own, sums)] for kind, sums in self.parabolas.items()}
        return self._replace(mu=own(self.mu), parabolas=parabolas, factor=own(self.factor))

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
    found = iter(model.totals(mu, order, factor, mean))
    parabolas = {"taylor_z": [*islice(found, order + 1), *[None] * (2 - order)]}
    for kind in [*["bound"] * (bounded and factor is not None), *["parabola"] * mean]:
        parabolas[kind] = [*islice(found, 3)]
    return Snapshot(mu, parabolas, factor, model.checksum, model.mark)


def draw(
    model: Model, q: Family, w: ArrayLike, M: int | None = None,
    rng: np.random.Generator | None = None, *, eps: ArrayLike | None = None,
    index: ArrayLike | None = None, snapshot: Snapshot | None = None,
    sampling: Sampling | None = None, **keywords: Any,
) -> Draw:  # fmt: skip
    """A `Draw` at w (..., D), random from `rng` or with `eps` and `index` given.

    The fields of `sampling` may be given as keywords: subsample, batch, each, noise. In pairs
    sample m + M / 2 is the partner of m, and eps and index, if given, are those of the first half.
    The samples of a rotation see the same data, and index is that of each rotation. Else it is
    (..., M), with batch=B (..., B), with each=True (..., M, B).
    """
    check_fit(model, q)
    how, w = Sampling.of(sampling, **keywords), q.check(w)
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng={rng!r}: give a generator, rng=np.random.default_rng({rng!r})")
    if snapshot is not None:
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"snapshot={snapshot!r}: take cvlib.snapshot(model, mu)")
        snapshot.check(model)
    runs, group = w.shape[:-1], how.group(q, M)
    eps, weight = _base(q, w, M, rng, eps, how, group)
    if not how.subsample:
        if index is not None:
            raise ValueError("subsample=False uses all data: leave index out")
        return Draw(model, q, w, eps, None, snapshot, group, weight)
    same = 1 if how.noise == "sobol" else group  # partners, and a rotation, see the same data
    shape = runs if how.shared else (*runs, eps.shape[-2] // same)
    shape += () if how.batch is None else (how.batch,)
    if index is not None:
        index = _check_index(np.asarray(index), shape, model.N)
    elif rng is None:
        raise ValueError("draw needs index or rng to choose data; subsample=False takes all data")
    else:
        index = rng.integers(model.N, size=shape)
    if how.shared:
        index = index[..., None, :]
    else:
        index = np.concatenate([index] * same, len(runs))
    if index.shape == (*eps.shape[:-1], 1):
        index = index[..., 0]  # a batch of one is a data point a sample
    return Draw(model, q, w, eps, index, snapshot, group, weight)


def _base(
    q: Family, w: np.ndarray, M: int | None, rng: np.random.Generator | None,
    eps: ArrayLike | None, how: Sampling, group: int,
) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """Base samples (..., M, d), given or new, and their weights, if they have some."""
    runs, d = w.shape[:-1], q.noise_dim
    if eps is not None:
        if how.noise in ("sobol", "rotated"):
            raise ValueError(f'noise="{how.noise}" draws eps itself: leave eps out, or noise')
        base = _check_eps(np.asarray(eps, float), runs, d, M and M // group)
    elif rng is None or M is None:
        raise ValueError("draw needs M and rng=np.random.default_rng(seed), or eps")
    elif how.noise == "rotated":
        return rotations(rng, runs, M, d)
    elif how.noise == "sobol":
        return q.quantile(w, sobol(rng, runs, whole("M", M), d)), None
    else:
        base = q.noise(rng, w, whole("M", M) // group)
    return (base if group == 1 else np.concatenate([base, q.mirror(w, base)], -2)), None


def _check_eps(eps, runs, d, M):
    if eps.ndim != len(runs) + 2 or eps.shape[:-2] != runs or eps.shape[-1] != d or 0 in eps.shape:
        lead = "".join(f"{r}, " for r in runs)
        raise ValueError(f"eps must be ({lead}M, {d}) with M >= 1; got {eps.shape}")
    if M is not None and eps.shape[-2] != M:
        raise ValueError(f"M={M}, but eps has {eps.shape[-2]} samples: leave M out")
    if not np.isfinite(eps).all():
        raise ValueError(f"eps is not finite at {np.argwhere(~np.isfinite(eps))[0].tolist()}")
    return eps


def _check_index(index: np.ndarray, shape: tuple[int, ...], N: int) -> np.ndarray:
    if index.shape != shape or index.dtype.kind not in "iu":
        raise ValueError(
            f"index must be whole numbers of shape {shape}, the runs and the data points drawn; "
            f"got {index.dtype} of shape {index.shape}"
        )
    if index.min() < 0 or index.max() >= N:
        raise ValueError(f"index must lie in 0..{N - 1}; got {index.min()}..{index.max()}")
    return index
