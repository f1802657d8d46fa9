"""Weighed points: the one lot that answers, tables, draws and the alarm of a fit are read from.

Points come from a mixture: half of q, half of Student's t in q's own coordinates, so that no weight
explodes where the posterior has more mass than q far out (a defensive mixture). They are scrambled
Sobol points in antithetic pairs, in about a dozen independent scramblings, and errors are read from
the spread over these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from ..families.base import Family
from ..models.density import Density, Model
from ..models.parameters import labels
from ..points import sobol
from ..special import LOG_2PI
from . import stein
from .looks import HEAVY, smoothed, worth
from .table import TAILS, Table

NUS = 5.0, 1.0  # degrees of freedom of Student's t; the second where k-hat asks for a heavier tail
THIN, FEW = 0.1, 100  # relative ESS, and ESS, at least, and k-hat at most HEAVY: else q is shown
SCRAMBLINGS = 12  # about as many, 8 to 17
REACH = 1e-3  # share of q in the law of the points, from which on they are within its reach
MOST, LEAST = 4096, 256  # points of a lot
NUMBERS, COORDINATES = 2**26, 2**20  # that a lot may make of the data, and may have


@dataclass(frozen=True, eq=False)
class Lot(stein.Drawn):
    """n points z with their weights, p over the law of the points; a block is one scrambling."""

    log: Any = None  # (n,) logarithms of the weights before they were smoothed
    outside: int = 0  # at so many points within the reach of q the posterior has ended
    e: Any = None  # (n, d) in q's own coordinates, where q maps normals
    share: Any = None  # (n,) q / law of the points
    nu: float = NUS[0]

    @property
    def ess(self) -> float:
        """The effective sample size that the weights leave."""
        return float(worth(self.w))

    @property
    def effective(self) -> float:
        """Relative ESS: the same as a share of the points."""
        return self.ess / len(self.w)

    @property
    def holds(self) -> bool:
        """Do these weights make posterior answers?"""
        fine = self.k_hat <= HEAVY and self.effective >= THIN and self.ess >= FEW
        return self.exact or bool(fine)

    def resampled(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n of the points, (n, d), evenly by their weights: a weight of k / n comes k times."""
        places = (np.arange(n) + rng.uniform()) / n
        return rng.permutation(self.z[np.searchsorted(np.cumsum(self.w) / self.w.sum(), places)])


def size(model: Model) -> int:
    """How many points a lot has: fewer where a point is expensive."""
    most = min(NUMBERS // Density(model).size, COORDINATES // model.dim)
    return int(np.clip(most, LEAST, MOST))


def weighed(model: Model, q: Family, w: np.ndarray, n: int, rng: np.random.Generator) -> Lot:
    """n points or a few more, weighed; all states of a discrete z where they are few."""
    if q.states is not None:
        return _lot(model, q.states, 0.0, slopes=False, exact=True)
    if q.mapped is None:
        z = q.sample(w, n, rng)
        return _lot(model, z, q.log_q(w, z), slopes=q.smooth == "z")
    found = []
    for nu in NUS:
        e, block = spread(n, q.dim, rng, 0.5, nu)
        found.append(at(model, q, w, e, block, nu))
        if not found[-1].k_hat > HEAVY:
            break
    return min(found, key=lambda lot: lot.k_hat)


def plain(q: Family, w: np.ndarray, n: int, rng: np.random.Generator) -> Lot:
    """n points of q itself or a few more, which weigh alike."""
    e, block = spread(n, q.dim, rng) if q.mapped else (None, 1)
    z = q.sample(w, n, rng) if e is None else q.mapped(w[None], e)[0]
    return Lot(z, 0 * z, np.ones(len(z)), block=block)


def more(lot: Lot, model: Model, q: Family, w: np.ndarray, centre: Any, rng: Any) -> Lot:
    """The same lot, and as many points about this centre, (d,) in q's coordinates."""
    n, block = len(lot.e), lot.block
    e, _ = spread(n, q.dim, rng, 1.0, lot.nu)
    each = (x.reshape(-1, block, q.dim) for x in (lot.e, centre + e[:n]))
    e = np.concatenate([*each], 1).reshape(2 * n, q.dim)
    return at(model, q, w, e, 2 * block, lot.nu, centre)


def spread(
    n: int, d: int, rng: np.random.Generator, heavy: float = 0.0, nu: float = NUS[0]
) -> tuple[np.ndarray, int]:
    """e of n points or a few more, N(0, I) or, this share of them, Student's t; and the block.

    One coordinate more decides which, and how far out: Student's t is N(0, I) over the root of a
    chi^2 divided by nu. A point and its opposite share it.
    """
    pairs = 2 ** max(0, round(np.log2(n / 2 / SCRAMBLINGS)))
    u = sobol(rng, (-(-n // (2 * pairs)),), pairs, d + 1)
    e = scipy.special.ndtri(u[..., 1:])
    chi2 = 2 * scipy.special.gammaincinv(nu / 2, np.minimum(u[..., :1] / (heavy or 1.0), 1.0))
    e = np.where(u[..., :1] < heavy, e * np.sqrt(nu / chi2), e)
    return np.concatenate([e, -e], 1).reshape(-1, d), 2 * pairs


def at(
    model: Model, q: Family, w: np.ndarray, e: np.ndarray, block: int, nu: float, centre: Any = None
) -> Lot:
    """The weighed points with these e, half of them about a centre if there is one."""
    z, stretch = q.mapped(w[None], e)
    extra = np.logaddexp(0, student(e, nu)) - np.log(2)  # log of the law of the points over q
    if centre is not None:
        shift = student(e - centre, nu) + 0.5 * (e**2 - (e - centre) ** 2).sum(-1)
        extra = np.logaddexp(extra, shift) - np.log(2)
    log_law = extra - 0.5 * (e**2 + LOG_2PI).sum(-1) - stretch
    return _lot(model, z, log_law, block=block, e=e, share=np.exp(-extra), nu=nu)


def student(e: np.ndarray, nu: float) -> np.ndarray:
    """log of Student's t with nu degrees of freedom over N(0, I), their densities at e, (n,)."""
    d, square = e.shape[-1], (e**2).sum(-1)
    gammaln = scipy.special.gammaln
    front = gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log(nu / 2)
    return front - (nu + d) / 2 * np.log1p(square / nu) + square / 2


def moments(
    rows: list[str], values: np.ndarray, errors: np.ndarray, more: dict[str, np.ndarray]
) -> Table:
    """Means, sds and quantiles, (5, n), with errors; these and `more` columns are hidden."""
    columns = dict(zip(("mean", "sd", *TAILS), values))
    of = {name: f"error of {name}" for name in columns}
    hidden = dict(zip(of.values(), errors)) | more
    return Table(rows, columns | hidden, of, hidden=tuple(hidden))


def entries(arrays: Mapping[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """The names of all k entries of arrays by name, (n, *shape) each, and their values, (n, k)."""
    names = [label for name, x in arrays.items() for label in labels(name, np.shape(x)[1:])]
    return names, np.column_stack([np.reshape(x, (len(x), -1)) for x in arrays.values()])


def _lot(model, z, log_law, slopes=True, exact=False, share=1.0, **more):
    """Points z of this law, weighed; NaN weighs nothing, as minus infinity."""
    density, n, least = Density(model), len(z), 1 if exact else 10
    log, score = density.slope(z) if slopes else (density.value(z), np.zeros(z.shape))
    log = log - log_law
    out = np.isneginf(log)
    fine = np.isfinite(log) & np.isfinite(score).all(-1)
    lost = n - (fine | out).sum()
    if n - lost < max(least, 0.9 * n):
        raise ValueError(
            f"log p(x, z) or its slope is not finite at {lost} of {n} draws: something overflows "
            "there, or a matrix is singular"
        )
    if fine.sum() < least:
        raise ValueError(f"log p(x, z) is minus infinity at {out.sum()} of {n} draws: q misses it")
    log = np.where(fine, log, -np.inf)
    w, k = smoothed(log)
    counts = (w > 0)[:, None]  # f and variates are asked for the others, too: where one counts
    z, score = np.where(counts, z, z[w.argmax()]), np.where(counts, score, 0.0)
    outside = 0 if exact else int((out & (share > REACH)).sum())
    return Lot(z, score, w, k, exact=exact, log=log, outside=outside, share=share, **more)


def decided(lot: Lot) -> np.ndarray | None:
    """The mean, (d,), in q's coordinates, of those points that decide a number f, if few do."""
    if lot.e is None or lot.F.ndim != 1:
        return None
    many, away = stein.behind(lot.F[:, None], np.exp(lot.log - lot.log.max()))
    return away[:, 0] @ lot.e / away.sum() if 0 < many[0] < len(away) / 20 else None
