"""Which data a sample sees, and how samples lean on each other: one value, checked once."""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from ..arguments import whole
from ..families.base import Family
from ..special import scipy

BITS = 52  # of a uniform number: with half of the last one added it is never 0 or 1
NOISES = {"plain": "", "pairs": "mirror", "sobol": "quantile"}  # and what a family must have


@dataclass(frozen=True)
class Sampling:
    """How the samples of a step are drawn: which data each sees, and how they lean on each other.

    noise: "plain", independent base samples; "pairs", each with its opposite, on the same data;
        "sobol", points that fill the space evenly, scrambled afresh.
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
        if self.noise not in NOISES:
            raise ValueError(f'noise={self.noise!r}: write "plain", "pairs" or "sobol"')

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

    def __str__(self):
        seen = "all data"
        if self.batch is not None:
            seen = f"batches of {self.batch}, one for {'each' if self.each else 'all samples'}"
        elif self.subsample:
            seen = "a data point each"
        return seen + {"plain": "", "pairs": ", in pairs", "sobol": ", Sobol's points"}[self.noise]

    @property
    def shared(self) -> bool:
        """Do all samples see one batch?"""
        return self.batch is not None and not self.each

    def group(self, q: Family, M: int | None) -> int:
        """How many of M samples lean on each other, or an error if q has no such draw."""
        if self.noise == "plain":
            return 1
        needs = NOISES[self.noise]
        if getattr(q, needs) is None:
            raise ValueError(
                f"noise={self.noise!r} needs {type(q).__name__}.{needs}, {q.optional[needs]}; the "
                "family does not say it"
            )
        if self.noise == "pairs" and M is not None and M % 2:
            raise ValueError(f'noise="pairs" needs an even number of samples, not M={M}')
        return 2 if self.noise == "pairs" else M or 1


PLAIN = Sampling()


def sobol(rng: np.random.Generator, runs: tuple[int, ...], M: int, d: int) -> np.ndarray:
    """M points of Sobol's sequence in the unit cube for every run, scrambled, (*runs, M, d).

    Digits are scrambled by a random lower triangular matrix and a random shift (Matousek 1998).
    """
    marks = _marks(M, d)  # (m, M, d)
    m, over_runs = len(marks), (1,) * len(runs)
    words = rng.integers(2**BITS, size=(m + 1, *runs, 1, d))
    c = np.arange(m).reshape(m, *over_runs, 1, 1)
    # column c of the matrix: zeros, a one in the diagonal, anything below it
    columns = (words[:m] >> (c + 1)) | (1 << (BITS - 1 - c))
    chosen = columns & marks.reshape(m, *over_runs, M, d)
    u = np.bitwise_xor.reduce(chosen, 0) ^ words[m]  # and the shift
    return (u + 0.5) / 2**BITS


@lru_cache(maxsize=16)
def _marks(M, d):
    """-1 (all ones) where digit c of coordinate j of point n is 1, else 0: (m, M, d), M <= 2^m."""
    most = scipy.stats.qmc.Sobol.MAXDIM
    if d > most:
        raise ValueError(f'noise="sobol" knows {most} dimensions, and the base sample has {d}')
    m = (M - 1).bit_length()
    points = scipy.stats.qmc.Sobol(d, scramble=False).random_base2(m)[:M] * 2**m
    digits = np.arange(m)[::-1, None, None]  # the first is the most significant
    return -(points.astype(np.int64) >> digits & 1)
