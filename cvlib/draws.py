"""Draws: the samples and data points that all estimators of a step look at, and how they are made.

They lie below models and families, which look at a draw and are not looked into here. A draw may
have a snapshot, sums over all data at older weights.
"""

from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import wraps
from itertools import islice
from math import isclose
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .arguments import generator, unmasked, whole
from .points import rotations, sobol

NOT_YET = object()
F = TypeVar("F", bound=Callable[..., Any])


def kept(method: F) -> F:
    """The method (self, draw, *where), computed once a draw: later calls give the same array."""

    @wraps(method)
    def once(self, draw, *where):
        key = method, getattr(self, "key", self), *where
        found = draw.kept.get(key, NOT_YET)
        if found is NOT_YET:
            found = draw.kept[key] = method(self, draw, *where)
        return found

    return once  # type: ignore[return-value]


class Draw:
    """M samples at the weights w: base samples eps (..., M, d), and the data that each sees.

    `index` is (..., M), one data point a sample; (..., M, B), a batch for each; (..., 1, B), one
    batch for all; or None: every sample sees all data. Samples m, m + M / group, m + 2 M / group
    ... lean on each other: group is 1 without coupling, 2 in pairs, 2 d + 1 in a rotation, M where
    all lean on all. With a `weight` (..., M) it is the mean of weight times row that estimates, and
    lines have their rows so weighed. What several estimators share is computed once and kept here,
    see `kept`.
    """

    def __init__(
        self, model: Any, q: Any, w: np.ndarray, eps: np.ndarray, index: np.ndarray | None,
        snapshot: Any = None, group: int = 1, weight: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.model, self.q, self.w, self.eps = model, q, w, eps
        self.index: Any = index  # None where every sample sees all data
        self.snapshot, self.group, self.weight = snapshot, group, weight
        self.mu, self.factor = q.moments(w)
        self.kept: dict[Hashable, Any] = {}

    @property
    def M(self) -> int:
        return self.eps.shape[-2]

    @property
    def rows(self) -> np.ndarray:
        """The data points that samples see, (..., M or 1, B)."""
        return self.index if self.index.ndim == self.eps.ndim else self.index[..., None]

    def of(self, what: Any) -> Any:
        """What a function, or the family's method of that name, makes of this draw, made once."""
        kept = self.kept.get(what)
        if kept is None:
            make = what if callable(what) else getattr(self.q, what)
            kept = self.kept[what] = make(self)
        return kept

    at = of  # points: "z1", "z2" (..., M, d), "mu" (..., 1, d)

    def others(self, x: np.ndarray) -> np.ndarray:
        """The mean of x (..., M, k) over the samples outside m's own group, (..., M, k)."""
        self.refuse_weights("a mean over the other samples")
        free = self.M - self.group
        if free <= 0:
            raise ValueError(
                "no sample is independent of the one left out: draw more samples, with "
                'noise="plain" or "pairs"'
            )
        own = x.reshape(*x.shape[:-2], self.group, -1, x.shape[-1]).sum(-3)  # (..., groups, k)
        return (x.sum(-2, keepdims=True) - np.concatenate([own] * self.group, -2)) / free

    def refuse_weights(self, what: str) -> None:
        """A ValueError if these samples have weights, which `what` does not look at."""
        if self.weight is not None:
            raise ValueError(
                f'{what} takes samples without weights, and those of noise="rotated" have some: '
                'draw with noise="plain" or "pairs"'
            )

    @property
    def z(self) -> np.ndarray:
        """The sample of q_w that SF and RP1 use, mu + L eps for a Gaussian, (..., M, d)."""
        return self.of("z1")

    @property
    def score(self) -> np.ndarray:
        """grad_w log q_w(z), (..., M, D)."""
        return self.of("score")


@dataclass(frozen=True)
class Sampling:
    """How the samples of a step are drawn: which data each sees, and how they lean on each other.

    noise: "plain", independent base samples; "pairs", each with its opposite, on the same data;
        "sobol", points that fill the space evenly, scrambled afresh; "rotated", for a full
        Gaussian, M / (2 d + 1) rotations of points with weights, see `rotations`.
    """

    subsample: bool = True  # a data point a sample; if not, all data
    batch: int | None = None  # or so many data points, one batch for all samples
    each: bool = False  # or a batch for each
    noise: str = "plain"

    def __post_init__(self):
        for name in "subsample", "each":
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name}={getattr(self, name)!r}: write True or False")
        if self.batch is not None:
            object.__setattr__(self, "batch", whole("batch", self.batch))
            if not self.subsample:
                raise ValueError("subsample=False uses all data: leave batch out")
        elif self.each:
            raise ValueError("each=True gives every sample a batch of its own: say batch=B too")
        if self.noise not in ("plain", "pairs", "sobol", "rotated"):
            raise ValueError(f'noise={self.noise!r}: write "plain", "pairs", "sobol" or "rotated"')

    @classmethod
    def of(cls, sampling: "Sampling | None", **keywords: Any) -> "Sampling":
        """The one that was given, or one made of keywords; not both."""
        if sampling is None:
            if not keywords:
                return PLAIN
            unknown = sorted(keywords.keys() - {field.name for field in fields(cls)})
            if unknown:
                raise TypeError(f"there is no argument {unknown[0]!r} here")
            return cls(**keywords)
        if keywords:
            raise ValueError(f"sampling= says it all: leave {', '.join(keywords)} out")
        if not isinstance(sampling, Sampling):
            raise TypeError(f"sampling={sampling!r}: write cv.Sampling(batch=50), for example")
        return sampling

    @property
    def shared(self) -> bool:
        """Do all samples see one batch?"""
        return self.batch is not None and not self.each

    def group(self, q: Any, M: int | None) -> int:
        """How many of M samples lean on each other, or an error if q has no such draw."""
        if self.noise == "plain":
            return 1
        if self.noise == "rotated":
            if not q.full:
                raise ValueError(f'noise="rotated" is for a full Gaussian q, not {q!r}')
            size = 2 * q.dim + 1
            if M is not None and whole("M", M) % size:
                needs = f"a multiple of 2 d + 1 = {size} samples"
                raise ValueError(f'noise="rotated" needs {needs}, not M={M}')
            return size
        needs = "mirror" if self.noise == "pairs" else "quantile"
        if getattr(q, needs) is None:
            raise ValueError(
                f"noise={self.noise!r} needs {type(q).__name__}.{needs}, {q.optional[needs]}; the "
                "family does not say it"
            )
        if self.noise == "pairs" and M is not None and M % 2:
            raise ValueError(f'noise="pairs" needs an even number of samples, not M={M}')
        return 2 if self.noise == "pairs" else M or 1


PLAIN = Sampling()


# Snapshots -----------------------------------------------------------------------------------


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

    def check(self, model: Any) -> None:
        """A ValueError if it is another model's: variates from it would not have mean zero."""
        if self.checksum != model.checksum or not isclose(self.mark, model.mark, rel_tol=1e-7):
            raise ValueError(
                f"this snapshot is not one of the data of {model!r}, or has another likelihood: "
                "take cvlib.snapshot(model, mu)"
            )


def snapshot(
    model: Any, mu: np.ndarray, order: int = 2, factor: np.ndarray | None = None,
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


# Making a draw -------------------------------------------------------------------------------


def draw(
    model: Any, q: Any, w: ArrayLike, M: int | None = None,
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
    if not hasattr(q, "check_model"):
        raise TypeError(f"{q!r} is no family: write families.Gaussian(model.dim), for example")
    q.check_model(model)
    how, w = Sampling.of(sampling, **keywords), np.asarray(q.check(w))
    rng = None if rng is None else generator(rng)
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
    elif same > 1:
        index = np.concatenate([index] * same, len(runs))
    return Draw(model, q, w, eps, index, snapshot, group, weight)


def _base(
    q: Any, w: np.ndarray, M: int | None, rng: np.random.Generator | None,
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
