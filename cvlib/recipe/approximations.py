"""Approximations of integrands that are quadratic in z: the expectation over q is then known.

Those that are polynomials in x, for the expectation over the data, are in `in_data`.
"""

from collections.abc import Sequence

import numpy as np

from ..models import quadrature
from .atoms import OfEta
from .draws import Draw
from .integrands import Atom, Illegal, Integrand, OnData, Wants, integrand
from .rows import Rows


def taylor_z(f: Integrand, at: str = "mu", order: int = 2) -> Integrand:
    """Taylor expansion of f in z about mu (Paisley et al. 2012, Miller et al. 2017).

    With at="snapshot" about older weights, those of the draw's snapshot: over all data it then
    needs no pass over them. With order=1 it has no curvature: SVRG (Johnson and Zhang 2013). An
    integrand that is quadratic in z already is its own expansion of second order.
    """
    _check_place(at)
    if order not in (1, 2):
        raise ValueError(f"order={order!r}: an expansion in z has order 1 or 2")
    for atom in integrand(f, "taylor_z").parts:
        if atom.space != "z" or (atom.along is None and not atom.quadratic):
            raise Illegal(
                f"taylor_z expands terms of a model that have a curvature in z; '{atom.name}' is "
                "none: try taylor_z(data)"
            )
        if at == "mu" and atom.q is not None and not atom.q.closed_moments:
            raise Illegal(f"taylor_z expands about the mean, and {atom.q!r} does not say its mean")
    return f.map(lambda atom: _expanded(atom, at, order))


def _check_place(at):
    if at not in ("mu", "snapshot"):
        raise ValueError(f'at={at!r}: expand at "mu" or at "snapshot"')


def _expanded(atom, at, order):
    if atom.quadratic and (order == 2 or atom.model is None):  # of order 1 none but `one`
        return atom
    drawn = (TaylorEta if atom.of_eta else TaylorZ)(atom, at, order)
    stored = at == "snapshot" and atom.on_data and (atom.whole or not atom.of_eta)
    return Stored(drawn) if stored else drawn


def tangent(f: Integrand) -> Integrand:
    """The mean slope of f at the other samples, times z - mu (Titsias and Shi 2022).

    Given the others it is a straight line in z. LOO(tangent(f)) - CF(tangent(f)) is their double
    control variate for LOO(f); it needs slopes of f where f was looked at, and no more.
    """
    for atom in integrand(f, "tangent").parts:
        if atom.space != "z" or atom.q is None:
            raise Illegal(f"tangent takes terms such as data + prior; '{atom.name}' is none")
    return f.map(Tangent)


def bound(f: Integrand, at: str = "mu") -> Integrand:
    """Quadratic lower bound of the logistic likelihood (Jaakkola and Jordan 2000).

    Its variational parameters are set from q: xi_i^2 = E_q[(x_i.z)^2]; with at="snapshot" from
    the q of the draw's snapshot, which must have a factor. Quadratic integrands stay.
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
    return f.map(lambda atom: _bounded(atom, at) if is_data(atom) else atom)


def _bounded(atom, at):
    drawn = Bound(atom, at)
    return Stored(drawn) if at == "snapshot" and atom.whole else drawn


def parabola(f: Integrand, at: str = "mu") -> Integrand:
    """The parabola of means: of all parabolas in eta that whose slope is nearest to f's under q.

    Its slope and curvature at the mean of eta are E phi' and E phi'' under q, by quadrature, where
    taylor_z has phi' and phi'' there. So CF(parabola(f)) is QD(f); with at="snapshot" it is the
    quadrature of the snapshot's q at its own weights, and near it elsewhere.
    """
    _check_place(at)
    for atom in integrand(f, "parabola").parts:
        if not (atom.of_eta or atom.quadratic):
            raise Illegal(
                f"parabola needs an f that has of z only eta = x.z, as the data term of a "
                f"generalised linear model; '{atom.name}' is none: try taylor_z"
            )
    return f.map(lambda atom: atom if atom.quadratic else _parabola(atom, at))


def _parabola(atom, at):
    drawn = Parabola(atom, at)
    return Stored(drawn) if at == "snapshot" and atom.whole else drawn


def is_data(atom: Atom) -> bool:
    """Is it the data term itself?"""
    return atom.on_data and atom.target == "data"


class Expansion(OnData):
    """An approximation of the atom f, on the data that f sees; `word` is how it is written."""

    word = how = ""

    def __init__(self, f: Atom) -> None:
        name, target = (f"{self.word}({of}{self.how})" for of in (f.bare, f.target))
        super().__init__(name, f.model, f.q, target)
        self.f = f
        if f.whole:
            self._over_all_data()

    @property
    def wants(self) -> Wants | None:
        return self.f.wants

    def over_all_data(self) -> Atom:
        whole = self.f.over_all_data()
        return self if whole == self.f else self.of(whole)

    def of(self, f: Atom) -> Atom:
        """The same approximation of another atom."""
        return type(self)(f)

    def rows(self, draw: Draw) -> Rows:
        return self.f.rows(draw)


class TaylorZ(Expansion):
    """f(c) + grad f(c).(z - c) + (z - c)^T grad^2 f(c) (z - c) / 2, c = mu or an older mu.

    Of order 1 without the last.
    """

    word = "taylor_z"
    closed_form = quadratic = True

    def __init__(self, f: Atom, at: str = "mu", order: int = 2) -> None:
        self.centre, self.order = at, order
        self.how = f", at={at!r}" * (at != "mu") + f", order={order}" * (order != 2)
        super().__init__(f)

    def of(self, f: Atom) -> Atom:
        return _expanded(f, self.centre, self.order)

    @property
    def wants(self) -> Wants | None:
        return Wants(self.order) if self.centre == "snapshot" else self.f.wants

    def value(self, draw: Draw, where: str) -> np.ndarray:
        away = draw.at(where) - draw.at(self.centre)
        both = self.f.slope(draw, self.centre) + self.slope(draw, where)
        return self.f.value(draw, self.centre) + 0.5 * np.vecdot(both, away)  # mean of two slopes

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        slope = self.f.slope(draw, self.centre)
        if where == self.centre:
            return slope
        return slope + self.along(draw, where, draw.at(where) - draw.at(self.centre))

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        if self.order == 1:
            return np.zeros((1, self.q.D - self.q.dim))
        return draw.once((self.key, "bend"), self.f.bend, self.centre)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        return self.f.along(draw, self.centre, v) if self.order == 2 else np.zeros_like(v)


class Tangent(Expansion):
    """u.(z - mu), u the mean of grad f over the samples outside m's group, (..., M, d)."""

    word = "tangent"
    closed_form = quadratic = True

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return np.vecdot(self.slope(draw, where), draw.at(where) - draw.at("mu"))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return draw.once((self.key, "others"), lambda draw: draw.others(self.f.slope(draw, "z1")))

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        return self.q.bend(lambda V: np.zeros((1, *V.shape[-2:])), draw.factor)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        return np.zeros_like(v)


class TaylorEta(TaylorZ, OfEta):
    """The same for an f of eta: psi(m) + psi'(m) (eta - m) + psi''(m) (eta - m)^2 / 2."""

    value, grad, bend, along = OfEta.value, OfEta.grad, OfEta.bend, OfEta.along
    closed = OfEta.closed

    def derivatives(self, draw: Draw, where: str, order: int) -> Sequence[np.ndarray]:
        d1, d2 = self.at_centre(draw)
        return (d1 if where == self.centre else d1 + d2 * self._away(draw, where)), d2

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        (d1, d2), away = self.at_centre(draw), self._away(draw, where)
        return self.f.psi(draw, self.centre) + (d1 + 0.5 * d2 * away) * away

    def at_centre(self, draw: Draw) -> Sequence[np.ndarray]:
        d1, d2 = self.f.derivatives(draw, self.centre, 2)[:2]
        return d1, (d2 if self.order == 2 else 0 * d2)

    def _away(self, draw, where):
        r = self.rows(draw)
        return r.eta(draw, where) - r.eta(draw, self.centre)


class Parabola(TaylorEta):
    """E psi + E psi' (eta - m) + E psi'' ((eta - m)^2 - v) / 2, means over eta ~ N(m, v)."""

    word = "parabola"

    def of(self, f: Atom) -> Atom:
        return _parabola(f, self.centre)

    @property
    def wants(self) -> Wants | None:
        return Wants(2, True, True) if self.centre == "snapshot" else self.f.wants

    def at_centre(self, draw: Draw) -> Sequence[np.ndarray]:
        return draw.once((self.key, "means"), self._means)

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        (d1, d2), away, (m, v, y) = self.at_centre(draw), self._away(draw, where), self._law(draw)
        height = quadrature.value(self.model.likelihood, m, v, y) - 0.5 * d2 * v
        return height + (d1 + 0.5 * d2 * away) * away

    def _means(self, draw):
        """E psi' and E psi'', per data point, as exact as a snapshot's: variates have mean zero."""
        return quadrature.slopes(self.model.likelihood, *self._law(draw))

    def _law(self, draw):
        """Mean and variance of each eta under the q of the expansion, and the labels."""
        if self.centre == "snapshot" and draw.at("snapshot") is not None:
            _needs_factor(self, draw)
        r = self.rows(draw)
        return r.eta(draw, self.centre), r.variance(draw, self.centre), r.y


class Bound(Expansion, OfEta):
    """sum_i a_i + b_i eta_i + c_i eta_i^2 / 2, below phi and touching it at eta_i = +- xi_i."""

    word, order = "bound", 2
    closed_form = quadratic = True

    def __init__(self, f: Atom, at: str = "mu") -> None:
        self.centre = at
        self.how = f", at={at!r}" * (at != "mu")
        super().__init__(f)

    def of(self, f: Atom) -> Atom:
        return _bounded(f, self.centre)

    @property
    def wants(self) -> Wants | None:
        return Wants(2, True) if self.centre == "snapshot" else None

    def coefficients(self, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """a, b, c per data point, at xi^2 = E eta^2 under q or an older q."""
        return draw.once((self.key, "abc"), self._coefficients)

    def _coefficients(self, draw):
        r, old = self.rows(draw), self.centre == "snapshot"
        if old and draw.at("snapshot") is not None:
            _needs_factor(self, draw)
        xi = np.sqrt(r.eta(draw, self.centre) ** 2 + r.variance(draw, self.centre))
        return self.model.likelihood.bound(xi, r.y)

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        (a, b, c), eta = self.coefficients(draw), self.rows(draw).eta(draw, where)
        return a + b * eta + 0.5 * c * eta**2

    def derivatives(self, draw: Draw, where: str, order: int) -> Sequence[np.ndarray]:
        _, b, c = self.coefficients(draw)
        return b + c * self.rows(draw).eta(draw, where), c


KINDS = {"taylor_z": "", "bound": "bound_", "parabola": "mean_"}  # sums of a snapshot


class Stored(Expansion):
    """An expansion about older weights, on all data from the sums of a snapshot: no pass.

    Own models come here on drawn data too, and are expanded afresh there.
    """

    closed_form = quadratic = True
    centre = "snapshot"

    def __init__(self, drawn: "TaylorZ | Bound") -> None:
        self.drawn, self.word, self.how, self.order = drawn, drawn.word, drawn.how, drawn.order
        super().__init__(drawn.f)

    def of(self, f: Atom) -> Atom:
        return self.drawn.of(f)

    @property
    def wants(self) -> Wants | None:
        return self.drawn.wants

    def sums(self, draw: Draw, name: str) -> np.ndarray:
        """The value, slope or hessian of the expansion, over all data, at the snapshot."""
        draw.at("snapshot")  # is there one?
        found = getattr(draw.snapshot, KINDS[self.word] + name)
        if found is None:
            raise ValueError(_lacking(self))
        return found

    def value(self, draw: Draw, where: str) -> np.ndarray:
        if not self.sees_all(draw):
            return self.drawn.value(draw, where)
        away = draw.at(where) - draw.at("snapshot")
        both = self.sums(draw, "slope")[..., None, :] + self.slope(draw, where)
        return self.sums(draw, "value")[..., None] + 0.5 * np.vecdot(both, away)

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        if not self.sees_all(draw):
            return self.drawn.grad(draw, where)
        away = draw.at(where) - draw.at("snapshot")
        return self.sums(draw, "slope")[..., None, :] + self.along(draw, where, away)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        if not self.sees_all(draw):
            return self.drawn.along(draw, where, v)
        return v @ self.sums(draw, "hessian") if self.order == 2 else np.zeros_like(v)

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        if not self.sees_all(draw):
            return self.drawn.bend(draw, where)
        if self.order == 1:
            return np.zeros((1, self.q.D - self.q.dim))
        return draw.once((self.key, "bend"), self._bend)

    def _bend(self, draw):
        H = self.sums(draw, "hessian")[..., None, :, :]
        return self.q.bend(lambda V: V[..., None, :, :] @ H, draw.factor)


def _needs_factor(atom, draw):
    if draw.snapshot.factor is None:
        raise ValueError(_lacking(atom))


def _lacking(atom):
    return (
        f"{atom.name} needs more than this snapshot has: take cvlib.snapshot(model, mu), of order "
        "2 for a parabola, with factor= for the bound, and with mean=True as well for the mean"
    )
