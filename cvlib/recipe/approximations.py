"""Approximations of integrands that are quadratic in z: the expectation over q is then known."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..draws import Draw, kept
from ..families.base import Family
from ..models import quadrature
from ..models.own import Model
from .atoms import OfEta
from .integrands import Atom, Illegal, Integrand, OnData, Wants, integrand
from .snapshots import SUMS


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
    own = lambda atom: atom.quadratic and (order == 2 or atom.model is None)  # of order 1 but `one`
    kind = lambda atom: TaylorEta if atom.of_eta else TaylorZ
    return f.map(lambda atom: atom if own(atom) else _made(kind(atom), atom, at, order))


def _check_place(at):
    if at not in ("mu", "snapshot"):
        raise ValueError(f'at={at!r}: expand at "mu" or at "snapshot"')


def _made(kind, atom, at, order=2):
    """An expansion of this kind. All data about older weights: what the snapshot has of it."""
    if at == "snapshot" and atom.of_eta and atom.all_data:
        return TaylorZ(atom, at, order, kind)
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
    return f.map(lambda atom: _made(Bound, atom, at) if is_data(atom) else atom)


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
    return f.map(lambda atom: atom if atom.quadratic else _made(Parabola, atom, at))


def is_data(atom: Atom) -> bool:
    """Is it the data term itself?"""
    return atom.on_data and atom.target == "data"


class Expansion(OnData):
    """An approximation of the atom f, on the data that f sees, about mu or an older mu."""

    word = ""  # how it is written
    sums = ""  # how a snapshot calls its own
    needs: Wants | None = None  # of a snapshot, if not its order alone

    f: Any  # the atom that it stands for

    def __init__(
        self, f: Atom, at: str = "mu", order: int = 2, kind: "type[Expansion] | None" = None
    ) -> None:
        self.f, self.centre, self.order, self.kind = f, at, order, kind or type(self)
        how = f", at={at!r}" * (at != "mu") + f", order={order}" * (order != 2)
        name, target = (f"{self.kind.word}({of}{how})" for of in (f.bare, f.target))
        super().__init__(name, f.model, f.q, target)
        self.wants = (self.kind.needs or Wants(order)) if at == "snapshot" else f.wants
        if f.all_data:
            self._over_all_data()

    def over_all_data(self) -> Atom:
        whole = self.f.over_all_data()
        return self if whole == self.f else _made(self.kind, whole, self.centre, self.order)


class TaylorZ(Expansion):
    """f(c) + grad f(c).(z - c) + (z - c)^T grad^2 f(c) (z - c) / 2; of order 1 without the last."""

    word = "taylor_z"
    closed_form = quadratic = True

    def at_centre(self, draw: Draw) -> Atom:
        """f, or over all data at older weights the parabola that the snapshot has: no pass."""
        stored = self.centre == "snapshot" and self.f.on_data and self.sees_all(draw)
        return self._sums(draw) if stored else self.f

    @kept
    def _sums(self, draw):
        draw.at("snapshot")  # is there one?
        height, slope, H = (getattr(draw.snapshot, self.kind.sums + name) for name in SUMS)
        H = np.zeros_like(slope) if self.order == 1 else H
        if slope is None or H is None:
            raise ValueError(_lacking(self))
        return Fixed("sums", self.model, self.q, draw.snapshot.mu, slope, H, height)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        f, away = self.at_centre(draw), draw.at(where) - draw.at(self.centre)
        both = f.slope(draw, self.centre) + self.slope(draw, where)
        return f.value(draw, self.centre) + 0.5 * np.vecdot(both, away)  # mean of two slopes

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        f = self.at_centre(draw)
        if f is not self.f:  # a parabola already
            return f.grad(draw, where)
        slope = f.slope(draw, self.centre)
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


class TaylorEta(TaylorZ, OfEta):
    """The same for an f of eta: psi(m) + psi'(m) (eta - m) + psi''(m) (eta - m)^2 / 2."""

    value, grad, bend = OfEta.value, OfEta.grad, OfEta.bend

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
        r = self.cases(draw)
        if self.centre == "snapshot":
            draw.at("snapshot")  # is there one?
            if draw.snapshot.factor is None:
                raise ValueError(_lacking(self))
        return r.eta(draw, self.centre), r.variance(draw, self.centre), r.y

    def _away(self, draw, where):
        r = self.cases(draw)
        return r.eta(draw, where) - r.eta(draw, self.centre)


class Parabola(TaylorEta):
    """E psi + E psi' (eta - m) + E psi'' ((eta - m)^2 - v) / 2, means over eta ~ N(m, v)."""

    word, sums, needs = "parabola", "mean_", Wants(2, True, True)

    @kept
    def slopes(self, draw: Draw) -> Sequence[np.ndarray]:
        """E psi' and E psi'', as exact as a snapshot's: variates have mean zero."""
        return quadrature.slopes(self.model.likelihood, *self.law(draw))

    def height(self, draw: Draw) -> np.ndarray:
        m, v, y = self.law(draw)
        return quadrature.value(self.model.likelihood, m, v, y) - 0.5 * self.slopes(draw)[1] * v


class Bound(TaylorEta):
    """sum_i a_i + b_i eta_i + c_i eta_i^2 / 2, below phi and touching it at eta_i = +- xi_i."""

    word, sums, needs = "bound", "bound_", Wants(2, True)

    @kept
    def coefficients(self, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """a, b, c per data point, at xi^2 = E eta^2 under q or an older q."""
        m, v, y = self.law(draw)
        return self.model.likelihood.bound(np.sqrt(m**2 + v), y)

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        (a, b, c), eta = self.coefficients(draw), self.cases(draw).eta(draw, where)
        return a + b * eta + 0.5 * c * eta**2

    def derivatives(self, draw: Draw, where: str, order: int) -> Sequence[np.ndarray]:
        _, b, c = self.coefficients(draw)
        return b + c * self.cases(draw).eta(draw, where), c


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
