"""Approximations of the data term that are polynomials in x: its mean needs moments of the data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..draws import Draw, kept
from ..models.glm import GLM
from .approximations import Expansion, is_data
from .atoms import look_up
from .integrands import Illegal, Integrand, integrand


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
        G, z, phi = self.model.groups, draw.at(where), self.model.likelihood.phi
        d1, d2, _ = at_means(self.model, draw, where)
        m = z @ G.x.T  # (..., M, K)
        if self.sees_all(draw):
            each = phi(m, G.y) + G.constant + self._kappa() * (z @ G.xy.T)
            return (each + 0.5 * d2 * np.vecdot(self._spread(draw, where), z[..., None, :])) @ G.n
        r, own, dy, _ = _group_drawn(self.model, draw)
        m, y = m.take(own), r.y - dy  # the group's mean label: phi need not be linear in y
        e = r.eta(draw, where) - m
        phi_m = phi(m, y) + self._kappa() * dy * m + phi(0 * dy, r.y) - phi(0 * dy, y)
        d1 = d1.take(own) + self._kappa() * dy
        return r.total(phi_m + d1 * e + 0.5 * d2.take(own) * e**2)

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        G, z = self.model.groups, draw.at(where)
        d1, d2, d3 = at_means(self.model, draw, where)
        half = 0.5 * self.third
        if self.sees_all(draw):
            spread = self._spread(draw, where)  # Cov z, (..., M, K, d)
            e2 = np.vecdot(spread, z[..., None, :])  # mean of e^2, (..., M, K)
            along_mean = (G.n * (d1 + half * d3 * e2)) @ G.x
            return along_mean + np.vecmat(G.n * d2, spread) + self._kappa() * G.n_xy
        r, own, dy, mean = _group_drawn(self.model, draw)
        e = r.eta(draw, where) - (z @ G.x.T).take(own)
        slope = r.back(d1.take(own) + self._kappa() * dy + d2.take(own) * e)
        return slope + r.back(half * d3.take(own) * e**2, mean)

    def _kappa(self):
        return 0.0 if self.model.likelihood.classes else self.model.likelihood.kappa

    def _spread(self, draw, where):
        """S z for the covariance S of each group, (..., M, K, d)."""
        z, G = draw.at(where), self.model.groups
        return (z @ G.xx_beside).reshape(*z.shape[:-1], *G.x.shape)


@kept
def at_means(model: GLM, draw: Draw, where: str) -> Sequence[np.ndarray]:
    """phi', phi'', phi''' at xbar.z for each group of the data, each (..., M, K)."""
    G = model.groups
    return model.likelihood.derivatives(draw.at(where) @ G.x.T, G.y, 3)


@kept
def _group_drawn(model, draw):
    """The cases drawn, the place of their group in an (..., M, K) array, y - ybar and xbar."""
    G, r = model.groups, look_up(model, draw, False)
    k = G.of_labels(r.y)  # (..., M), or (..., M or 1, B)
    samples = np.arange(draw.eps[..., 0].size).reshape(draw.eps.shape[:-1])  # (..., M)
    samples = samples[..., None] if draw.batched else samples
    return r, samples * len(G.n) + k, r.y - G.y[k], G.x[k]


class TaylorXSlope(TaylorX):
    """(phi' + phi'' e) x in place of phi' x: a field of slopes, not the gradient of a function."""

    word, third = "taylor_x_slope", 0.0
    conservative = False
    value: Any = None
