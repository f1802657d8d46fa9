"""Approximations of integrands, each chosen so that one of two expectations becomes easy.

`taylor_z` and `bound` are quadratic in z, so the expectation over q has a closed form; `taylor_x`
and `taylor_x_slope` are polynomials in x, so the expectation over the data needs only moments,
computed once.
"""

import numpy as np

from ..models import quadrature
from .atoms import OfEta
from .integrands import Illegal, OnData, Wants, integrand
from .rows import rows


def taylor_z(f, at="mu", order=2):
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


def tangent(f):
    """The mean slope of f at the other samples, times z - mu (Titsias and Shi 2022).

    Given the others it is a straight line in z. LOO(tangent(f)) - CF(tangent(f)) is their double
    control variate for LOO(f); it needs slopes of f where f was looked at, and no more.
    """
    for atom in integrand(f, "tangent").parts:
        if atom.space != "z" or atom.q is None:
            raise Illegal(f"tangent takes terms such as data + prior; '{atom.name}' is none")
    return f.map(Tangent)


def bound(f, at="mu"):
    """Quadratic lower bound of the logistic likelihood (Jaakkola and Jordan 2000).

    Its variational parameters are set from q: xi_i^2 = E_q[(x_i.z)^2]; with at="snapshot" from
    the q of the draw's snapshot, which must have a factor. Quadratic integrands stay.
    """
    _check_place(at)
    for atom in integrand(f, "bound").parts:
        if _is_data(atom):
            if getattr(atom.model.likelihood, "bound", None) is None:
                raise Illegal(
                    f"bound needs a likelihood with a quadratic lower bound; '{atom.name}' of "
                    f"{atom.model!r} has none (the logistic one has): try taylor_z(data)"
                )
            if not atom.q.gaussian:
                raise Illegal(f"bound needs a Gaussian family, not {atom.q!r}: try SF(data)")
        elif not atom.quadratic:
            raise Illegal(f"bound knows the data term alone; '{atom.name}' has no bound here")
    return f.map(lambda atom: _bounded(atom, at) if _is_data(atom) else atom)


def _bounded(atom, at):
    drawn = Bound(atom, at)
    return Stored(drawn) if at == "snapshot" and atom.whole else drawn


def parabola(f, at="mu"):
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


def _is_data(atom):
    return atom.on_data and atom.target == "data"


class Expansion(OnData):
    """An approximation of the atom f, on the data that f sees; `word` is how it is written."""

    word = how = ""

    def __init__(self, f):
        name, target = (f"{self.word}({of}{self.how})" for of in (f.bare, f.target))
        super().__init__(name, f.model, f.q, target)
        self.f = f
        if f.whole:
            self._over_all_data()

    @property
    def wants(self):
        return self.f.wants

    def over_all_data(self):
        whole = self.f.over_all_data()
        return self if whole == self.f else self.of(whole)

    def of(self, f):
        """The same approximation of another atom."""
        return type(self)(f)

    def rows(self, draw):
        return self.f.rows(draw)


class TaylorZ(Expansion):
    """f(c) + grad f(c).(z - c) + (z - c)^T grad^2 f(c) (z - c) / 2, c = mu or an older mu.

    Of order 1 without the last.
    """

    word = "taylor_z"
    closed_form = quadratic = True

    def __init__(self, f, at="mu", order=2):
        self.centre, self.order = at, order
        self.how = f", at={at!r}" * (at != "mu") + f", order={order}" * (order != 2)
        super().__init__(f)

    def of(self, f):
        return _expanded(f, self.centre, self.order)

    @property
    def wants(self):
        return Wants(self.order) if self.centre == "snapshot" else self.f.wants

    def value(self, draw, where):
        away = draw.at(where) - draw.at(self.centre)
        both = self.f.slope(draw, self.centre) + self.slope(draw, where)
        return self.f.value(draw, self.centre) + 0.5 * np.vecdot(both, away)  # mean of two slopes

    def grad(self, draw, where):
        slope = self.f.slope(draw, self.centre)
        if where == self.centre:
            return slope
        return slope + self.along(draw, where, draw.at(where) - draw.at(self.centre))

    def bend(self, draw, where):
        if self.order == 1:
            return np.zeros((1, self.q.D - self.q.dim))
        return draw.once((self.key, "bend"), self.f.bend, self.centre)

    def along(self, draw, where, v):
        return self.f.along(draw, self.centre, v) if self.order == 2 else np.zeros_like(v)


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

    def along(self, draw, where, v):
        return np.zeros_like(v)


class TaylorEta(TaylorZ, OfEta):
    """The same for an f of eta: psi(m) + psi'(m) (eta - m) + psi''(m) (eta - m)^2 / 2."""

    value, grad, bend, along = OfEta.value, OfEta.grad, OfEta.bend, OfEta.along
    closed = OfEta.closed

    def derivatives(self, draw, where, order):
        d1, d2 = self.at_centre(draw)
        return (d1 if where == self.centre else d1 + d2 * self._away(draw, where)), d2

    def psi(self, draw, where):
        (d1, d2), away = self.at_centre(draw), self._away(draw, where)
        return self.f.psi(draw, self.centre) + (d1 + 0.5 * d2 * away) * away

    def at_centre(self, draw):
        d1, d2 = self.f.derivatives(draw, self.centre, 2)[:2]
        return d1, (d2 if self.order == 2 else 0 * d2)

    def _away(self, draw, where):
        r = self.rows(draw)
        return r.eta(draw, where) - r.eta(draw, self.centre)


class Parabola(TaylorEta):
    """E psi + E psi' (eta - m) + E psi'' ((eta - m)^2 - v) / 2, means over eta ~ N(m, v)."""

    word = "parabola"

    def of(self, f):
        return _parabola(f, self.centre)

    @property
    def wants(self):
        return Wants(2, True, True) if self.centre == "snapshot" else self.f.wants

    def at_centre(self, draw):
        return draw.once((self.key, "means"), self._means)

    def psi(self, draw, where):
        (d1, d2), away, (m, v, y) = self.at_centre(draw), self._away(draw, where), self._law(draw)
        height = quadrature.value(self.model.likelihood, m, v, y, tolerance=1e-9) - 0.5 * d2 * v
        return height + (d1 + 0.5 * d2 * away) * away

    def _means(self, draw):
        """E psi' and E psi'', per data point."""
        return quadrature.slopes(self.model.likelihood, *self._law(draw), tolerance=1e-9)

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

    def __init__(self, f, at="mu"):
        self.centre = at
        self.how = f", at={at!r}" * (at != "mu")
        super().__init__(f)

    def of(self, f):
        return _bounded(f, self.centre)

    @property
    def wants(self):
        return Wants(2, True) if self.centre == "snapshot" else None

    def coefficients(self, draw):
        """a, b, c per data point, at xi^2 = E eta^2 under q or an older q."""
        return draw.once((self.key, "abc"), self._coefficients)

    def _coefficients(self, draw):
        r, old = self.rows(draw), self.centre == "snapshot"
        if old and draw.at("snapshot") is not None:
            _needs_factor(self, draw)
        xi = np.sqrt(r.eta(draw, self.centre) ** 2 + r.variance(draw, self.centre))
        return self.model.likelihood.bound(xi, r.y)

    def psi(self, draw, where):
        (a, b, c), eta = self.coefficients(draw), self.rows(draw).eta(draw, where)
        return a + b * eta + 0.5 * c * eta**2

    def derivatives(self, draw, where, order):
        _, b, c = self.coefficients(draw)
        return b + c * self.rows(draw).eta(draw, where), c


KINDS = {"taylor_z": "", "bound": "bound_", "parabola": "mean_"}  # sums of a snapshot


class Stored(Expansion):
    """An expansion about older weights, on all data from the sums of a snapshot: no pass.

    Own models come here on drawn data too, and are expanded afresh there.
    """

    closed_form = quadratic = True
    centre = "snapshot"

    def __init__(self, drawn):
        self.drawn, self.word, self.how, self.order = drawn, drawn.word, drawn.how, drawn.order
        super().__init__(drawn.f)

    def of(self, f):
        return self.drawn.of(f)

    @property
    def wants(self):
        return self.drawn.wants

    def sums(self, draw, name):
        """The value, slope or hessian of the expansion, over all data, at the snapshot."""
        draw.at("snapshot")  # is there one?
        found = getattr(draw.snapshot, KINDS[self.word] + name)
        if found is None:
            raise ValueError(_lacking(self))
        return found

    def value(self, draw, where):
        if not self.sees_all(draw):
            return self.drawn.value(draw, where)
        away = draw.at(where) - draw.at("snapshot")
        both = self.sums(draw, "slope")[..., None, :] + self.slope(draw, where)
        return self.sums(draw, "value")[..., None] + 0.5 * np.vecdot(both, away)

    def grad(self, draw, where):
        if not self.sees_all(draw):
            return self.drawn.grad(draw, where)
        away = draw.at(where) - draw.at("snapshot")
        return self.sums(draw, "slope")[..., None, :] + self.along(draw, where, away)

    def along(self, draw, where, v):
        if not self.sees_all(draw):
            return self.drawn.along(draw, where, v)
        return v @ self.sums(draw, "hessian") if self.order == 2 else np.zeros_like(v)

    def bend(self, draw, where):
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
        r, own, dy, _ = self._drawn(draw)
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
        r, own, dy, mean = self._drawn(draw)
        e = r.eta(draw, where) - (z @ G.x.T).take(own)
        slope = r.back(d1.take(own) + self._kappa() * dy + d2.take(own) * e)
        return slope + r.back(half * d3.take(own) * e**2, mean)

    def _kappa(self):
        return 0.0 if self.model.likelihood.classes else self.model.likelihood.kappa

    def _spread(self, draw, where):
        """S z for the covariance S of each group, (..., M, K, d)."""
        z, G = draw.at(where), self.model.groups
        return (z @ G.xx_beside).reshape(*z.shape[:-1], *G.x.shape)

    def _drawn(self, draw):
        """The drawn rows, the place of their group in an (..., M, K) array, y - ybar and xbar."""

        def compute(draw):
            G, r = self.model.groups, rows(draw, False)
            k = G.of_labels(r.y)  # (..., M), or (..., M or 1, B)
            samples = np.arange(draw.eps[..., 0].size).reshape(draw.eps.shape[:-1])  # (..., M)
            samples = samples[..., None] if draw.batched else samples
            return r, samples * len(G.n) + k, r.y - G.y[k], G.x[k]

        return draw.once("groups of the drawn rows", compute)


class TaylorXSlope(TaylorX):
    """(phi' + phi'' e) x in place of phi' x: a field of slopes, not the gradient of a function."""

    word, third = "taylor_x_slope", 0.0
    conservative = False
    value = None
