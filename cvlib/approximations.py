"""Approximations of integrands, each chosen so that one of two expectations becomes easy.

`taylor_z` and `bound` are quadratic in z, so the expectation over q has a closed form; `taylor_x`
is quadratic in x, so the expectation over the data needs only moments, computed once.
"""

import numpy as np

from .integrands import Atom, Data, Integrand, rows


def taylor_z(f):
    """Second-order Taylor expansion of f in z about mu (Paisley et al. 2012, Miller et al. 2017).

    An integrand that is quadratic in z already is its own expansion.
    """
    _check(f, "taylor_z")
    for atom in f.parts:
        if isinstance(atom, TaylorX):
            raise ValueError(f"'{atom.name}' is an expansion already: try taylor_z(data)")
        if atom.direct:
            raise ValueError(f"taylor_z expands terms of a model; '{atom.name}' is none")
    return f.map(lambda atom: atom if atom.quadratic else TaylorZ(atom))


def bound(f):
    """Quadratic lower bound of the logistic likelihood (Jaakkola and Jordan 2000).

    Its variational parameters are set from q: xi_i^2 = E_q[(x_i.z)^2]. Quadratic integrands stay.
    """
    _check(f, "bound")
    for atom in f.parts:
        likelihood = getattr(atom.model, "likelihood", None)
        if _is_data(atom) and getattr(likelihood, "bound", None) is None:
            raise ValueError(
                f"bound needs a likelihood with a quadratic lower bound; '{atom.name}' of "
                f"{atom.model!r} has none (the logistic one has): try taylor_z(data)"
            )
        if _is_data(atom) and not atom.q.gaussian:
            raise ValueError(f"bound needs a Gaussian family, not {atom.q!r}: try SF(data)")
        if not _is_data(atom) and not atom.quadratic:
            raise ValueError(f"bound knows the data term alone; '{atom.name}' has no bound here")
    return f.map(lambda atom: Bound(atom.model, atom.q, atom.whole) if _is_data(atom) else atom)


def taylor_x(f):
    """Second-order Taylor expansion of the data term in x about the mean of each class.

    Wang et al. 2013. On the drawn data as it stands; `.over_all_data()` averages over the data set
    through moments that are computed once. Regression data form one class.
    """
    _check(f, "taylor_x")
    for atom in f.parts:
        if not _is_data(atom):
            raise ValueError(
                f"taylor_x expands in the data; '{atom.name}' has none: try taylor_x(data)"
            )
        likelihood = getattr(atom.model, "likelihood", None)
        if likelihood is None or not (likelihood.classes or likelihood.kappa is not None):
            raise ValueError(
                "taylor_x needs a generalised linear model whose labels are classes or enter "
                f"linearly; {atom.model!r} is none: try taylor_z(data)"
            )
    return f.map(lambda atom: TaylorX(atom.model, atom.q, atom.whole))


def _check(f, who):
    if not isinstance(f, Integrand):
        raise TypeError(f"{who} approximates an integrand such as data, not {f!r}")


def _is_data(atom):
    return isinstance(atom, Data) and atom.target == "data"


class TaylorZ(Atom):
    """f(mu) + grad f(mu).(z - mu) + (z - mu)^T grad^2 f(mu) (z - mu) / 2."""

    closed_form = quadratic = True

    def __init__(self, f):
        super().__init__(f"taylor_z({f.name})", f.model, f.q, target=f"taylor_z({f.target})")
        self.f = f

    def over_all_data(self):
        return TaylorZ(self.f.over_all_data())

    def slope(self, draw):
        return draw.once((self.f.key, "mu"), self.f.grad, "mu")

    def value(self, draw, where):
        away = draw.at(where) - draw.at("mu")
        both = self.slope(draw) + draw.once((self.key, where), self.grad, where)
        return self.f.value(draw, "mu") + 0.5 * np.vecdot(both, away)  # mean slope of a parabola

    def grad(self, draw, where):
        return self.slope(draw) if where == "mu" else self.f.expanded_grad(draw, where)

    def hess_times(self, draw, where, v):
        return self.f.hess_times(draw, "mu", v)

    def hess_factor(self, draw, where):
        return self.f.hess_factor(draw, "mu")


class Bound(Data):
    """sum_i a_i + b_i x_i.z + c_i (x_i.z)^2 / 2, below phi and touching it at x_i.z = +- xi_i."""

    closed_form = quadratic = True

    def __init__(self, model, q, whole=False):
        super().__init__(model, q, whole, name="bound(data)")

    def coefficients(self, draw):
        r = rows(draw, self.whole)

        def compute(draw):
            xi = np.sqrt(r.eta(draw, "mu") ** 2 + r.variance(draw))
            return self.model.likelihood.bound(xi, r.y)

        return r, *draw.once((self.key, "abc"), compute)

    def value(self, draw, where):
        r, a, b, c = self.coefficients(draw)
        eta = r.eta(draw, where)
        return r.total(a + b * eta + 0.5 * c * eta**2)

    def grad(self, draw, where):
        r, _, b, c = self.coefficients(draw)
        return r.back(b + c * r.eta(draw, where))

    def hess_times(self, draw, where, v):
        r, _, _, c = self.coefficients(draw)
        return r.back(c * r.dot(v))

    def hess_factor(self, draw, where):
        r, _, _, c = self.coefficients(draw)
        return r.back_factor(draw, c)


class TaylorX(Data):
    """phi + phi' e + phi'' e^2 / 2 at xbar.z, with e = (x - xbar).z, xbar the mean of x's class.

    Over all data the mean of e vanishes and that of e^2 is z^T Cov(x) z. Where y varies within a
    group, phi' moves by kappa (y - ybar), which brings in Cov(x, y).
    """

    advice = "CF(taylor_z(data))"

    def __init__(self, model, q, whole=False):
        super().__init__(model, q, whole, name="taylor_x(data)")

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
        if self._all(draw):
            each = phi(m, G.y) + G.constant + self._kappa() * (z @ G.xy.T)
            return (each + 0.5 * d2 * np.vecdot(self._spread(draw, where), z[..., None, :])) @ G.n
        own, dx, dy, y, _ = self._drawn(draw)
        e = np.vecdot(dx, z)
        d1 = d1.take(own) + self._kappa() * dy
        return self.model.N * (phi(m.take(own), y) + d1 * e + 0.5 * d2.take(own) * e**2)

    def grad(self, draw, where):
        G, z = self.model.groups, draw.at(where)
        d1, d2, d3 = self.at_means(draw, where)
        if self._all(draw):
            spread = self._spread(draw, where)  # Cov z, (..., M, K, d)
            e2 = np.vecdot(spread, z[..., None, :])  # mean of e^2, (..., M, K)
            along_mean = (G.n * (d1 + 0.5 * d3 * e2)) @ G.x
            return along_mean + np.vecmat(G.n * d2, spread) + self._kappa() * G.n_xy
        own, dx, dy, _, mean = self._drawn(draw)
        e = np.vecdot(dx, z)
        slope = self.model.N * (d1.take(own) + self._kappa() * dy + d2.take(own) * e)
        bend = 0.5 * self.model.N * d3.take(own) * e**2
        return slope[..., None] * rows(draw, False).x + bend[..., None] * mean

    def _all(self, draw):
        return self.whole or draw.index is None

    def _kappa(self):
        return 0.0 if self.model.likelihood.classes else self.model.likelihood.kappa

    def _spread(self, draw, where):
        """S z for the covariance S of each group, (..., M, K, d)."""
        z, G = draw.at(where), self.model.groups
        return (z @ G.xx_beside).reshape(*z.shape[:-1], *G.x.shape)

    def _drawn(self, draw):
        """Of the drawn points: position of their group in an (..., M, K) array, x - xbar, y - ybar,
        y, xbar."""

        def compute(draw):
            G, r = self.model.groups, rows(draw, False)
            k = G.group[draw.index]  # (..., M)
            own = np.arange(k.size).reshape(k.shape) * len(G.n) + k
            mean = G.x[k]
            return own, r.x - mean, r.y - G.y[k], r.y, mean

        return draw.once("distance from group means", compute)
