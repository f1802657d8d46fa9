"""Approximations of integrands: parabolas in z, whose mean under q is known, and others.

Parabolas are about the mean of q, or about an older one: a snapshot has them summed over all data.
Polynomials in the data x have a known mean over the data.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..draws import Draw, kept
from .integrands import Atom, Cases, Illegal, Integrand, OfEta, OnData, Wants, integrand, look_up


def taylor_z(f: Integrand, at: str = "mu", order: int = 2) -> Integrand:
    """Taylor expansion of f in z about mu (Paisley et al. 2012, Miller et al. 2017).

    With at="snapshot" about the mu of the draw's snapshot: over all data it then needs no pass.
    With order=1 it has no curvature: SVRG (Johnson and Zhang 2013).
    """
    if order not in (1, 2):
        raise ValueError(f"order={order!r}: an expansion in z has order 1 or 2")
    for atom in _parts(f, "taylor_z", at):
        if atom.space != "z" or not (atom.along or isinstance(atom, OfEta) or atom.quadratic):
            raise Illegal(
                f"taylor_z expands terms of a model that have a curvature in z; '{atom.name}' is "
                "none: try taylor_z(data)"
            )
        if at == "mu" and atom.q is not None and not atom.q.closed_moments:
            raise Illegal(f"taylor_z expands about the mean, and {atom.q!r} does not say its mean")

    def change(atom):
        if atom.quadratic and (order == 2 or atom.model is None):  # of order 1 is `one` alone
            return atom
        return _expand(TaylorEta if isinstance(atom, OfEta) else TaylorZ, atom, at, order)

    return f.map(change)


def _parts(f, who, at):
    """The atoms of f, to be expanded there."""
    if at not in ("mu", "snapshot"):
        raise ValueError(f'at={at!r}: expand at "mu" or at "snapshot"')
    return integrand(f, who).parts


def _expand(kind, atom, at, order=2):
    """An expansion of this kind. All data about older weights: what the snapshot has of it."""
    if at == "snapshot" and atom.all_data:
        return Stored(atom, kind, order)
    return kind(atom, at, order)


def bound(f: Integrand, at: str = "mu") -> Integrand:
    """Quadratic lower bound of the logistic likelihood (Jaakkola and Jordan 2000).

    It touches at xi_i^2 = E_q[(x_i.z)^2], with q that of now or of the draw's snapshot.
    """
    for atom in _parts(f, "bound", at):
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
    for atom in _parts(f, "parabola", at):
        if not (isinstance(atom, OfEta) or atom.quadratic):
            raise Illegal(
                f"parabola needs an f that has of z only eta = x.z, as the data term of a "
                f"generalised linear model; '{atom.name}' is none: try taylor_z"
            )
    return f.map(lambda atom: atom if atom.quadratic else _expand(Parabola, atom, at))


def is_data(atom: Atom) -> bool:
    """Is it the data term itself?"""
    return isinstance(atom, OnData) and atom.target == "data"


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

    def near(self, draw: Draw) -> Atom:
        """f; where all data are seen at older weights, what the snapshot has of it: no pass."""
        if self.centre == "snapshot" and isinstance(self.f, OnData) and self.sees_all(draw):
            return Stored(self.f.over_all_data(), TaylorZ, self.order)
        return self.f

    def height(self, draw: Draw) -> np.ndarray:
        """f(c)."""
        return self.near(draw).value(draw, self.centre)

    def steepness(self, draw: Draw) -> np.ndarray:
        """grad f(c)."""
        return self.near(draw).slope(draw, self.centre)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        away = draw.at(where) - draw.at(self.centre)
        both = self.steepness(draw) + self.slope(draw, where)
        return self.height(draw) + 0.5 * np.vecdot(both, away)  # mean of two slopes

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        slope = self.steepness(draw)
        if where == self.centre:
            return slope
        return slope + self.along(draw, where, draw.at(where) - draw.at(self.centre))

    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        """It is the same everywhere."""
        if self.order == 1:
            return self.q.hess_L(lambda V: np.zeros((1, *V.shape[-2:])), draw.factor)
        return self.near(draw).hess_L(draw, self.centre)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        return np.zeros_like(v) if self.order == 1 else self.near(draw).along(draw, self.centre, v)


class Stored(TaylorZ):
    """Of all data, about older weights: the snapshot has the sums, and no pass is needed."""

    def __init__(self, f: Atom, kind: type[Expansion], order: int) -> None:
        self.word, self.needs = kind.word, kind.needs
        super().__init__(f, "snapshot", order)

    @kept
    def sums(self, draw: Draw) -> Sequence[np.ndarray]:
        """Value (...), slope (..., d) and Hessian (..., d, d) there."""
        draw.at("snapshot")  # is there one?
        sums = draw.snapshot.parabolas.get(self.word)
        if sums is None or (sums[2] is None and self.order == 2):
            raise ValueError(_lacking(self))
        return sums

    def height(self, draw: Draw) -> np.ndarray:
        return np.asarray(self.sums(draw)[0])[..., None]

    def steepness(self, draw: Draw) -> np.ndarray:
        return self.sums(draw)[1][..., None, :]

    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        times = lambda V: self.along(draw, where, V)[..., None, :, :]
        return self.q.hess_L(times, draw.factor)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        return np.zeros_like(v) if self.order == 1 else v @ self.sums(draw)[2]


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


def _lacking(atom):
    return (
        f"{atom.name} needs more than this snapshot has: take cvlib.snapshot(model, mu), of order "
        "2 for a parabola, with factor= for the bound, and with mean=True as well for the mean"
    )


# In the data: the mean over all data needs moments of x alone -----------------------------------


def taylor_x(f: Integrand) -> Integrand:
    """Second-order Taylor expansion of the data term in x about the mean of each class.

    `.over_all_data()` averages through moments that are computed once. Regression data form one
    class.
    """
    return _in_x(f, "taylor_x", TaylorX)


def taylor_x_slope(f: Integrand) -> Integrand:
    """First-order Taylor expansion, in x, of the factor phi' of the data term's slope phi' x.

    Wang et al. 2013 expand the slope and not the function: the third derivative is left out. The
    result is no gradient of any function, so it has RP1 and RP2, each with a mean of its own.
    """
    return _in_x(f, "taylor_x_slope", TaylorXSlope)


def _in_x(f, who, kind):
    for atom in integrand(f, who).parts:
        if not is_data(atom):
            raise Illegal(f"{who} expands in the data; '{atom.name}' has none: try {who}(data)")
        likelihood = atom.model.likelihood
        if likelihood is None or not (likelihood.classes or likelihood.kappa is not None):
            raise Illegal(
                f"{who} needs a generalised linear model whose labels are classes or enter "
                f"linearly; {atom.model!r} is none: try taylor_z(data)"
            )
        if atom.model.offset is not None:
            raise Illegal(
                f"{who} expands about the means of x, and the offsets of {atom.model!r} move eta "
                "as well: try taylor_z(data)"
            )
    return f.map(kind)


class TaylorX(Expansion):
    """phi + phi' e + phi'' e^2 / 2 at xbar.z, with e = (x - xbar).z, xbar the mean of x's class.

    Over all data the mean of e vanishes and that of e^2 is z^T Cov(x) z. Where y varies within a
    group, phi' moves by kappa (y - ybar), which brings in Cov(x, y).
    """

    closed_form = quadratic = False  # in z
    advice = "CF(taylor_z(data))"
    word, third = "taylor_x", 1.0  # the share of the third derivative in the slope

    def value(self, draw: Draw, where: str) -> np.ndarray:
        G, z, likelihood = self.model.data_moments, draw.at(where), self.model.likelihood
        phi, kappa = likelihood.phi, likelihood.kappa or 0.0  # y does not vary within a class
        if self.sees_all(draw):
            m = z @ G.x.T  # (..., M, K)
            each = phi(m, G.y) + G.constant + kappa * (z @ G.xy.T)
            d2, spread = likelihood.derivatives(m, G.y, 2)[1], self._spread(draw, where)
            return (each + 0.5 * d2 * np.vecdot(spread, z[..., None, :])) @ G.n
        drawn, near, dy = _drawn(self.model, draw)
        eta, m = drawn.eta(draw, where), near.eta(draw, where)
        d1, d2 = likelihood.derivatives(m, near.y, 2)
        more = kappa * dy * eta + phi(0 * dy, drawn.y) - phi(0 * dy, near.y)  # phi has of y - ybar
        return drawn.total(phi(m, near.y) + (d1 + 0.5 * d2 * (eta - m)) * (eta - m) + more)

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        G, z, likelihood = self.model.data_moments, draw.at(where), self.model.likelihood
        kappa, half = likelihood.kappa or 0.0, 0.5 * self.third
        if self.sees_all(draw):
            d1, d2, d3 = likelihood.derivatives(z @ G.x.T, G.y, 3)  # (..., M, K)
            spread = self._spread(draw, where)
            e2 = np.vecdot(spread, z[..., None, :])  # mean of e^2, (..., M, K)
            along_mean = (G.n * (d1 + half * d3 * e2)) @ G.x
            return along_mean + np.vecmat(G.n * d2, spread) + kappa * (G.n @ G.xy)
        drawn, near, dy = _drawn(self.model, draw)
        eta, m = drawn.eta(draw, where), near.eta(draw, where)
        d1, d2, d3 = likelihood.derivatives(m, near.y, 3)
        slope = drawn.back(d1 + kappa * dy + d2 * (eta - m))
        return slope + near.back(half * d3 * (eta - m) ** 2)

    def _spread(self, draw, where):
        """S z for the covariance S of each group, (..., M, K, d)."""
        z, G = draw.at(where), self.model.data_moments
        return (z @ G.xx_beside).reshape(*z.shape[:-1], *G.x.shape)


@kept
def _drawn(model, draw):
    """The cases drawn, the same with the means of their groups as data, and y - ybar."""
    G, drawn = model.data_moments, look_up(model, draw, False)
    k = G.of_labels(drawn.y)  # (..., M or 1, B)
    near = Cases(drawn.scale, G.x[k], G.y[k])
    return drawn, near, drawn.y - near.y


class TaylorXSlope(TaylorX):
    """(phi' + phi'' e) x in place of phi' x: a field of slopes, not the gradient of a function."""

    word, third = "taylor_x_slope", 0.0
    conservative = False
    value: Any = None
