"""Approximations of integrands that are quadratic in z: the expectation over q is then known.

They are about the mean of q, or about an older one: a `Snapshot` has them summed over all data.
"""

from collections.abc import Sequence
from copy import deepcopy
from itertools import islice
from math import isclose
from typing import Any, NamedTuple

import numpy as np

from ..arguments import unmasked
from ..draws import Draw, kept
from ..families.base import Family
from ..models.own import Model
from .atoms import OfEta
from .integrands import Atom, Illegal, Integrand, OnData, Wants, integrand


def taylor_z(f: Integrand, at: str = "mu", order: int = 2) -> Integrand:
    """Taylor expansion of f in z about mu (Paisley et al. 2012, Miller et al. 2017).

    With at="snapshot" about the mu of the draw's snapshot: over all data it then needs no pass.
    With order=1 it has no curvature: SVRG (Johnson and Zhang 2013).
    """
    _check_place(at)
    if order not in (1, 2):
        raise ValueError(f"order={order!r}: an expansion in z has order 1 or 2")
    for atom in integrand(f, "taylor_z").parts:
        if atom.space != "z" or not (atom.along or atom.of_eta or atom.quadratic):
            raise Illegal(
                f"taylor_z expands terms of a model that have a curvature in z; '{atom.name}' is "
                "none: try taylor_z(data)"
            )
        if at == "mu" and atom.q is not None and not atom.q.closed_moments:
            raise Illegal(f"taylor_z expands about the mean, and {atom.q!r} does not say its mean")

    def change(atom):
        if atom.quadratic and (order == 2 or atom.model is None):  # of order 1 is `one` alone
            return atom
        return _expand(TaylorEta if atom.of_eta else TaylorZ, atom, at, order)

    return f.map(change)


def _check_place(at):
    if at not in ("mu", "snapshot"):
        raise ValueError(f'at={at!r}: expand at "mu" or at "snapshot"')


def _expand(kind, atom, at, order=2):
    """An expansion of this kind. All data about older weights: what the snapshot has of it."""
    if at == "snapshot" and atom.of_eta and atom.all_data:
        return FromSnapshot(kind, atom, order)
    return kind(atom, at, order)


def bound(f: Integrand, at: str = "mu") -> Integrand:
    """Quadratic lower bound of the logistic likelihood (Jaakkola and Jordan 2000).

    It touches at xi_i^2 = E_q[(x_i.z)^2], with q that of now or of the draw's snapshot.
    """
    _check_place(at)
    for atom in integrand(f, "bound").parts:
        if is_data(atom):
            if getattr(atom.model.likelihood, "bound", None) is None:
                raise Illegal(
                    f"bound needs a likelihood with a quadratic lower bound; '{atom.name}' of "
                    f"{atom.model!r} has none (the logistic one has): try taylor_z(data)"
                )
            if not atom.q.gaussian:
                raise Illegal(f"bound needs a Gaussian family, not {atom.q!r}: try SF(data)")
        elif not atom.quadratic:
            raise Illegal(f"bound knows the data term alone; '{atom.name}' has no bound here")
    return f.map(lambda atom: _expand(Bound, atom, at) if is_data(atom) else atom)


def parabola(f: Integrand, at: str = "mu") -> Integrand:
    """The parabola of means: of all parabolas in eta that whose slope is nearest to f's under q.

    Where taylor_z has phi' and phi'' at the mean of eta this has E phi' and E phi'' under q, by
    quadrature. So CF(parabola(f)) is QD(f).
    """
    _check_place(at)
    for atom in integrand(f, "parabola").parts:
        if not (atom.of_eta or atom.quadratic):
            raise Illegal(
                f"parabola needs an f that has of z only eta = x.z, as the data term of a "
                f"generalised linear model; '{atom.name}' is none: try taylor_z"
            )
    return f.map(lambda atom: atom if atom.quadratic else _expand(Parabola, atom, at))


def is_data(atom: Atom) -> bool:
    """Is it the data term itself?"""
    return atom.on_data and atom.target == "data"


class Expansion(OnData):
    """An approximation of the atom f, on the data that f sees, about mu or an older mu."""

    word = ""  # how it is written, and what a snapshot calls its own
    needs: Wants | None = None  # of a snapshot, if not its order alone
    closed_form = quadratic = True
    f: Any  # the atom that it stands for

    def __init__(self, f: Atom, at: str = "mu", order: int = 2) -> None:
        self.f, self.centre, self.order = f, at, order
        how = f", at={at!r}" * (at != "mu") + f", order={order}" * (order != 2)
        name, target = (f"{self.word}({of}{how})" for of in (f.bare, f.target))
        super().__init__(name, f.model, f.q, target)
        self.wants = (self.needs or Wants(order)) if at == "snapshot" else f.wants
        if f.all_data:
            self._over_all_data()

    def over_all_data(self) -> Atom:
        f = self.f.over_all_data()
        return self if f == self.f else _expand(type(self), f, self.centre, self.order)


class TaylorZ(Expansion):
    """f(c) + grad f(c).(z - c) + (z - c)^T grad^2 f(c) (z - c) / 2; of order 1 without the last."""

    word = "taylor_z"

    def at_centre(self, draw: Draw) -> Any:
        """f, or over all data at older weights the parabola that the snapshot has: no pass."""
        stored = self.centre == "snapshot" and self.f.on_data and self.sees_all(draw)
        return self.stored(draw) if stored else self.f

    @kept
    def stored(self, draw: Draw) -> "Fixed":
        draw.at("snapshot")  # is there one?
        value, slope, H = draw.snapshot.parabolas.get(self.word, (None, None, None))
        H = np.zeros_like(slope) if self.order == 1 else H
        if H is None:
            raise ValueError(_lacking(self))
        return Fixed("sums", self.model, self.q, draw.snapshot.mu, slope, H, value)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        f, away = self.at_centre(draw), draw.at(where) - draw.at(self.centre)
        both = f.slope(draw, self.centre) + self.slope(draw, where)
        return f.value(draw, self.centre) + 0.5 * np.vecdot(both, away)  # mean of two slopes

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        slope = self.at_centre(draw).slope(draw, self.centre)
        if where == self.centre:
            return slope
        return slope + self.along(draw, where, draw.at(where) - draw.at(self.centre))

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        return self._bend(draw)  # it is the same everywhere

    @kept
    def _bend(self, draw):
        if self.order == 1:
            return self.q.bend(lambda V: np.zeros((1, *V.shape[-2:])), draw.factor)
        return self.at_centre(draw).bend(draw, self.centre)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        if self.order == 1:
            return np.zeros_like(v)
        return self.at_centre(draw).along(draw, self.centre, v)


class FromSnapshot(TaylorZ):
    """An expansion of an f of eta over all data, of any kind: the parabola of a snapshot."""

    def __init__(self, kind: type[Expansion], f: Atom, order: int) -> None:
        self.word, self.needs = kind.word, kind.needs
        super().__init__(f, "snapshot", order)


class TaylorEta(Expansion, OfEta):
    """The same for an f of eta: psi(m) + psi'(m) (eta - m) + psi''(m) (eta - m)^2 / 2."""

    word = "taylor_z"

    def slopes(self, draw: Draw) -> Sequence[np.ndarray]:
        """psi' and psi'' at m, per data point."""
        d1, d2 = self.f.derivatives(draw, self.centre, 2)[:2]
        return d1, (d2 if self.order == 2 else 0 * d2)

    def height(self, draw: Draw) -> np.ndarray:
        """psi at m."""
        return self.f.psi(draw, self.centre)

    def derivatives(self, draw: Draw, where: str, order: int) -> Sequence[np.ndarray]:
        d1, d2 = self.slopes(draw)
        return (d1 if where == self.centre else d1 + d2 * self._away(draw, where)), d2

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        (d1, d2), away = self.slopes(draw), self._away(draw, where)
        return self.height(draw) + (d1 + 0.5 * d2 * away) * away

    def law(self, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of each eta under the q of the expansion, and the labels."""
        cases, m = self.cases(draw), self._m(draw)
        if self.centre == "snapshot" and draw.snapshot.factor is None:
            raise ValueError(_lacking(self))
        return m, cases.variance(draw, self.centre), cases.y

    def _m(self, draw):
        return self.cases(draw).eta(draw, self.centre)

    def _away(self, draw, where):
        return self.cases(draw).eta(draw, where) - self._m(draw)


class Parabola(TaylorEta):
    """E psi + E psi' (eta - m) + E psi'' ((eta - m)^2 - v) / 2, means over eta ~ N(m, v)."""

    word, needs = "parabola", Wants(2, True, True)

    @kept
    def slopes(self, draw: Draw) -> Sequence[np.ndarray]:
        """E psi' and E psi'', as exact as a snapshot's: variates have mean zero."""
        return self.model.likelihood.mean_slopes(*self.law(draw))

    def height(self, draw: Draw) -> np.ndarray:
        m, v, y = self.law(draw)
        return self.model.likelihood.mean(m, v, y) - 0.5 * self.slopes(draw)[1] * v


class Bound(TaylorEta):
    """sum_i a_i + b_i eta_i + c_i eta_i^2 / 2, below phi and touching it at eta_i = +- xi_i."""

    word, needs = "bound", Wants(2, True)

    @kept
    def coefficients(self, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """a, b, c per data point, at xi^2 = E eta^2 under q or an older q."""
        m, v, y = self.law(draw)
        return self.model.likelihood.bound(np.sqrt(m**2 + v), y)

    @kept
    def slopes(self, draw: Draw) -> Sequence[np.ndarray]:
        _, b, c = self.coefficients(draw)
        return b + c * self._m(draw), c

    def height(self, draw: Draw) -> np.ndarray:
        (a, b, c), m = self.coefficients(draw), self._m(draw)
        return a + (b + 0.5 * c * m) * m


class Quadratic(Atom):
    """A parabola of one's own in place of an integrand; no two are equal.

    CF(f~) - RP1(f~) has mean zero for every f~ that does not depend on the draw. A subclass says
    its value, grad and `along`.
    """

    closed_form = quadratic = True

    def __init__(self, name: str, model: Model, q: Family) -> None:
        super().__init__(name, model, q)
        self.key = (*self.key, object())

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        times = lambda V: self.along(draw, where, V)[..., None, :, :]
        return self.q.bend(times, draw.factor)


class Fixed(Quadratic):
    """height + slope.v + v^T H v / 2 with v = z - centre, (..., d); H, or its diagonal (..., d)."""

    def __init__(
        self, name: str, model: Model, q: Family, centre: np.ndarray, slope: np.ndarray,
        H: np.ndarray, height: np.ndarray | float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(name, model, q)
        self.centre, self.b, self.H, self.height = centre, slope, H, height

    def value(self, draw: Draw, where: str) -> np.ndarray:
        v = draw.at(where) - self.centre[..., None, :]
        half = self.b[..., None, :] + 0.5 * self.along(draw, where, v)
        return np.asarray(self.height)[..., None] + np.vecdot(v, half)

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        v = draw.at(where) - self.centre[..., None, :]
        return self.b[..., None, :] + self.along(draw, where, v)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        return v @ self.H if self.H.ndim > self.b.ndim else v * self.H[..., None, :]


def _lacking(atom):
    return (
        f"{atom.name} needs more than this snapshot has: take cvlib.snapshot(model, mu), of order "
        "2 for a parabola, with factor= for the bound, and with mean=True as well for the mean"
    )


# Snapshots ------------------------------------------------------------------------------------


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
