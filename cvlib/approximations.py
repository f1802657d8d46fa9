"""Approximations of integrands, each chosen so that one of two expectations becomes easy.

`taylor_z` and `bound` are quadratic in z, so the expectation over q has a closed form; `taylor_x`
and `taylor_x_slope` are polynomials in x, so the expectation over the data needs only moments,
computed once.
"""

import numpy as np

from .atoms import OfEta, Own
from .integrands import Illegal, OnData, integrand
from .rows import rows


def taylor_z(f, at="mu"):
    """Second-order Taylor expansion of f in z about mu (Paisley et al. 2012, Miller et al. 2017).

    With at="snapshot" about older weights, those of the draw's snapshot: over all data it then
    needs no pass over them. An integrand that is quadratic in z already is its own expansion.
    """
    if at not in ("mu", "snapshot"):
        raise ValueError(f'at={at!r}: expand at "mu" or at "snapshot"')
    for atom in integrand(f, "taylor_z").parts:
        if isinstance(atom, TaylorX):
            raise Illegal(f"'{atom.name}' is an expansion already: try taylor_z(data)")
        if atom.space != "z" or not (atom.quadratic or isinstance(atom, OfEta | Own)):
            raise Illegal(f"taylor_z expands terms of a model; '{atom.name}' is none")
    return f.map(lambda atom: _expanded(atom, at))


def _expanded(atom, at):
    if atom.quadratic:
        return atom
    of_eta, on_data = isinstance(atom, OfEta), isinstance(atom, OnData)
    if at == "snapshot" and on_data and (atom.whole or not of_eta):
        return Stored(atom)
    return (TaylorEta if of_eta else TaylorZ)(atom, at)


def tangent(f):
    """The mean slope of f at the other samples, times z - mu (Titsias and Shi 2022).

    Given the others it is a straight line in z. LOO(tangent(f)) - CF(tangent(f)) is their double
    control variate for LOO(f); it needs slopes of f where f was looked at, and no more.
    """
    for atom in integrand(f, "tangent").parts:
        if atom.space != "z" or atom.q is None:
            raise Illegal(f"tangent takes terms such as data + prior; '{atom.name}' is none")
    return f.map(Tangent)


def bound(f):
    """Quadratic lower bound of the logistic likelihood (Jaakkola and Jordan 2000).

    Its variational parameters are set from q: xi_i^2 = E_q[(x_i.z)^2]. Quadratic integrands stay.
    """
    for atom in integrand(f, "bound").parts:
        if _is_data(atom):
            likelihood = getattr(atom.model, "likelihood", None)
            if getattr(likelihood, "bound", None) is None:
                raise Illegal(
                    f"bound needs a likelihood with a quadratic lower bound; '{atom.name}' of "
                    f"{atom.model!r} has none (the logistic one has): try taylor_z(data)"
                )
            if not atom.q.gaussian:
                raise Illegal(f"bound needs a Gaussian family, not {atom.q!r}: try SF(data)")
        elif not atom.quadratic:
            raise Illegal(f"bound knows the data term alone; '{atom.name}' has no bound here")
    return f.map(lambda atom: Bound(atom) if _is_data(atom) else atom)


def taylor_x(f):
    """Second-order Taylor expansion of the data term in x about the mean of each class.

    The full parabola of the function. On the drawn data as it stands; `.over_all_data()` averages
    over the data set through moments that are computed once. Regression data form one class.
    """
    return _in_x(f, "taylor_x", TaylorX)


def taylor_x_slope(f):
    """First-order Taylor expansion, in x, of the factor phi' of the data term's slope phi' x.

    Wang et al. 2013 expand the slope and not the function: the third derivative is left out. The
    result is no gradient of any function, so it has RP1 and RP2, each with a mean of its own.
    """
    return _in_x(f, "taylor_x_slope", TaylorXSlope)


def _in_x(f, who, kind):
    for atom in integrand(f, who).parts:
        if not _is_data(atom):
            raise Illegal(f"{who} expands in the data; '{atom.name}' has none: try {who}(data)")
        likelihood = getattr(atom.model, "likelihood", None)
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


def _is_data(atom):
    return isinstance(atom, OnData) and atom.target == "data"


class Expansion(OnData):
    """An approximation of the atom f, on the data that f sees; `word` is how it is written."""

    word = how = ""

    def __init__(self, f):
        name, target = (f"{self.word}({of}{self.how})" for of in (f.bare, f.target))
        super().__init__(name, f.model, f.q, target)
        self.f = f
        if f.whole:
            self._over_all_data()

    def over_all_data(self):
        whole = self.f.over_all_data()
        return self if whole == self.f else self.of(whole)

    def of(self, f):
        """The same approximation of another atom."""
        return type(self)(f)

    def rows(self, draw):
        return self.f.rows(draw)


class TaylorZ(Expansion):
    """f(c) + grad f(c).(z - c) + (z - c)^T grad^2 f(c) (z - c) / 2, c = mu or an older mu."""

    word = "taylor_z"
    closed_form = quadratic = True

    def __init__(self, f, at="mu"):
        self.centre = at
        self.how = "" if at == "mu" else f", at={at!r}"
        super().__init__(f)

    def of(self, f):
        return _expanded(f, self.centre)

    def value(self, draw, where):
        away = draw.at(where) - draw.at(self.centre)
        both = self.f.slope(draw, self.centre) + self.slope(draw, where)
        return self.f.value(draw, self.centre) + 0.5 * np.vecdot(both, away)  # mean of two slopes

    def grad(self, draw, where):
        slope = self.f.slope(draw, self.centre)
        if where == self.centre:
            return slope
        return slope + self.f.along(draw, self.centre, draw.at(where) - draw.at(self.centre))

    def bend(self, draw, where):
        return draw.once((self.key, "bend"), self.f.bend, self.centre)


class Tangent(Expansion):
    """u.(z - mu), u the mean of grad f over the samples outside m's group, (..., M, d)."""

    word = "tangent"
    closed_form = quadratic = True

    def value(self, draw, where):
        return np.vecdot(self.slope(draw, where), draw.at(where) - draw.at("mu"))

    def grad(self, draw, where):
        return draw.once((self.key, "others"), lambda draw: draw.others(self.f.slope(draw, "z1")))

    def bend(self, draw, where):
        return self.q.bend(lambda V: np.zeros((1, *V.shape[-2:])), draw.factor)


class TaylorEta(TaylorZ, OfEta):
    """The same for an f of eta: psi(m) + psi'(m) (eta - m) + psi''(m) (eta - m)^2 / 2."""

    value, grad, bend = OfEta.value, OfEta.grad, OfEta.bend

    def derivatives(self, draw, where, order):
        d1, d2 = self.f.derivatives(draw, self.centre, 2)[:2]
        return (d1 if where == self.centre else d1 + d2 * self._away(draw, where)), d2

    def psi(self, draw, where):
        away = self._away(draw, where)
        d1, d2 = self.f.derivatives(draw, self.centre, 2)[:2]
        return self.f.psi(draw, self.centre) + (d1 + 0.5 * d2 * away) * away

    def _away(self, draw, where):
        r = self.rows(draw)
        return r.eta(draw, where) - r.eta(draw, self.centre)


class Stored(Expansion):
    """The data term about older weights, on all data from the sums of a snapshot: no pass.

    Own models come here on drawn data too, and are expanded afresh there.
    """

    word, how = "taylor_z", ", at='snapshot'"
    closed_form = quadratic = True

    def __init__(self, f):
        super().__init__(f)
        self.drawn = TaylorZ(f, "snapshot")

    def value(self, draw, where):
        if not self.sees_all(draw):
            return self.drawn.value(draw, where)
        away = draw.at(where) - draw.at("snapshot")
        both = draw.snapshot.slope[..., None, :] + self.slope(draw, where)
        return draw.snapshot.value[..., None] + 0.5 * np.vecdot(both, away)

    def grad(self, draw, where):
        if not self.sees_all(draw):
            return self.drawn.grad(draw, where)
        away = draw.at(where) - draw.at("snapshot")
        return draw.snapshot.slope[..., None, :] + away @ draw.snapshot.hessian

    def bend(self, draw, where):
        if not self.sees_all(draw):
            return self.drawn.bend(draw, where)
        draw.at("snapshot")  # is there one?
        return draw.once((self.key, "bend"), self._bend)

    def _bend(self, draw):
        H = draw.snapshot.hessian[..., None, :, :]
        return self.q.bend(lambda V: V[..., None, :, :] @ H, draw.factor)


class Bound(Expansion, OfEta):
    """sum_i a_i + b_i eta_i + c_i eta_i^2 / 2, below phi and touching it at eta_i = +- xi_i."""

    word = "bound"
    closed_form = quadratic = True

    def coefficients(self, draw):
        """a, b, c per data point, at xi^2 = E_q eta^2."""
        return draw.once((self.key, "abc"), self._coefficients)

    def _coefficients(self, draw):
        r = self.rows(draw)
        xi = np.sqrt(r.eta(draw, "mu") ** 2 + r.variance(draw))
        return self.model.likelihood.bound(xi, r.y)

    def psi(self, draw, where):
        (a, b, c), eta = self.coefficients(draw), self.rows(draw).eta(draw, where)
        return a + b * eta + 0.5 * c * eta**2

    def derivatives(self, draw, where, order):
        _, b, c = self.coefficients(draw)
        return b + c * self.rows(draw).eta(draw, where), c


class TaylorX(Expansion):
    """phi + phi' e + phi'' e^2 / 2 at xbar.z, with e = (x - xbar).z, xbar the mean of x's class.

    Over all data the mean of e vanishes and that of e^2 is z^T Cov(x) z. Where y varies within a
    group, phi' moves by kappa (y - ybar), which brings in Cov(x, y).
    """

    advice = "CF(taylor_z(data))"
    word, third = "taylor_x", 1.0  # the share of the third derivative in the slope

    def at_means(self, draw, where):
        """phi', phi'', phi''' at xbar.z for each group, each (..., M, K)."""
        G, likelihood = self.model.groups, self.model.likelihood

        def compute(draw):
            return likelihood.derivatives(draw.at(where) @ G.x.T, G.y, 3)

        return draw.once(("phi at group means", where), compute)

    def value(self, draw, where):
        G, z, phi = self.model.groups, draw.at(where), self.model.likelihood.phi
        d1, d2, _ = self.at_means(draw, where)
        m = z @ G.x.T  # (..., M, K)
        if self.sees_all(draw):
            each = phi(m, G.y) + G.constant + self._kappa() * (z @ G.xy.T)
            return (each + 0.5 * d2 * np.vecdot(self._spread(draw, where), z[..., None, :])) @ G.n
        r, own, dy = self._drawn(draw)
        m, y = m.take(own), r.y - dy  # the group's mean label: phi need not be linear in y
        e = r.eta(draw, where) - m
        phi_m = phi(m, y) + self._kappa() * dy * m + phi(0 * dy, r.y) - phi(0 * dy, y)
        d1 = d1.take(own) + self._kappa() * dy
        return r.total(phi_m + d1 * e + 0.5 * d2.take(own) * e**2)

    def grad(self, draw, where):
        G, z = self.model.groups, draw.at(where)
        d1, d2, d3 = self.at_means(draw, where)
        half = 0.5 * self.third
        if self.sees_all(draw):
            spread = self._spread(draw, where)  # Cov z, (..., M, K, d)
            e2 = np.vecdot(spread, z[..., None, :])  # mean of e^2, (..., M, K)
            along_mean = (G.n * (d1 + half * d3 * e2)) @ G.x
            return along_mean + np.vecmat(G.n * d2, spread) + self._kappa() * G.n_xy
        r, own, dy = self._drawn(draw)
        e = r.eta(draw, where) - (z @ G.x.T).take(own)
        slope = r.back(d1.take(own) + self._kappa() * dy + d2.take(own) * e)
        bend = half * d3.take(own) * e**2
        each = np.arange(len(G.n)) == (own % len(G.n))[..., None]  # (..., M, [B,] K)
        in_group = r.total(np.moveaxis(bend[..., None] * each, -1, 0))  # (K, ..., M)
        return slope + np.moveaxis(in_group, 0, -1) @ G.x

    def _kappa(self):
        return 0.0 if self.model.likelihood.classes else self.model.likelihood.kappa

    def _spread(self, draw, where):
        """S z for the covariance S of each group, (..., M, K, d)."""
        z, G = draw.at(where), self.model.groups
        return (z @ G.xx_beside).reshape(*z.shape[:-1], *G.x.shape)

    def _drawn(self, draw):
        """The drawn rows, the place of their group in an (..., M, K) array, and y - ybar."""

        def compute(draw):
            G, r = self.model.groups, rows(draw, False)
            k = G.group[draw.index]  # (..., M), or (..., M or 1, B)
            samples = np.arange(draw.eps[..., 0].size).reshape(draw.eps.shape[:-1])  # (..., M)
            samples = samples[..., None] if draw.batched else samples
            return r, samples * len(G.n) + k, r.y - G.y[k]

        return draw.once("groups of the drawn rows", compute)


class TaylorXSlope(TaylorX):
    """(phi' + phi'' e) x in place of phi' x: a field of slopes, not the gradient of a function."""

    word, third = "taylor_x_slope", 0.0
    conservative = False
    value = None
