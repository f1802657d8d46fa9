"""The integrands of the ELBO gradient's terms: data, prior, variational, and the constant one."""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from ..draws import Draw, kept
from ..families import Family, FamilyPrior
from ..families.base import check_fit
from ..models import GaussianPrior, Model, passes
from ..models.glm import GLM
from ..special import hess_times
from .integrands import Atom, Integrand, OnData


def terms(model: Model, q: Family) -> tuple[Integrand, Integrand, Integrand]:
    """The integrands of g1, g2, g3: data, prior, variational; g = g1 + g2 - g3."""
    check_fit(model, q)
    if q.gaussian:
        glm, normal = model.likelihood is not None, isinstance(model.log_prior, GaussianPrior)
        data: Atom = GLMData(model, q) if glm else OwnData("data", model, q)
        prior: Atom = NormalPrior(model, q) if normal else OwnPrior("prior", model, q)
        variational: Atom = Variational("variational", model, q)
    else:  # the closed forms of GLMs and normal priors are for a Gaussian q
        data, variational = OwnData("data", model, q), FamilyDensity("variational", model, q)
        prior, law = OwnPrior("prior", model, q), model.log_prior
        if isinstance(law, FamilyPrior) and law.q == q:
            prior = FamilyDensity("prior", model, q, law.v)
    return Integrand({data: 1}), Integrand({prior: 1}), Integrand({variational: 1})


class One(Atom):
    """f = 1. Its score-function estimator is the score term, grad_w log q_w(z): mean zero."""

    closed_form = quadratic = True

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return np.ones(draw.eps.shape[:-1])

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return np.zeros_like(draw.at(where))

    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        return np.zeros((1, draw.q.D - draw.q.dim))

    def closed(self, draw: Draw) -> np.ndarray:
        return np.zeros((1, draw.q.D))


one = Integrand({One("one", None, None): 1})  # belongs to every model


class NormalPrior(Atom):
    """log N(z | mean, sd^2), mean and sd numbers or (d,)."""

    closed_form = quadratic = True

    def __init__(self, model: Model, q: Family) -> None:
        super().__init__("prior", model, q)
        self.mean, self.precision = model.log_prior.mean, 1 / model.log_prior.sd**2
        self.by_row = self.precision if np.ndim(self.precision) == 0 else q.by_row(self.precision)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return self.model.log_prior(draw.at(where))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return -self.precision * (draw.at(where) - self.mean)

    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        return -self.by_row * draw.w[..., None, self.q.dim :]


class Variational(Atom):
    """log q_v(z) with v = w held fixed."""

    closed_form = quadratic = True

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return self.q.log_q(draw.w, draw.at(where))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        if where == "z1":
            return -draw.of("whitened")
        q, away = self.q, draw.at(where) - draw.at("mu")
        return -q.solve_t(draw.factor, q.solve(draw.factor, away))

    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        return -self.q.entropy_grad(draw.w)[..., None, self.q.dim :]

    def closed(self, draw: Draw) -> np.ndarray:
        return -self.q.entropy_grad(draw.w)[..., None, :]


# Generalised linear models ----------------------------------------------------------------------


class Cases:
    """The data that an f of eta = x.z + offset sees: B points a sample, or the same B for all.

    x is (..., M or 1, B, d), y and offset (..., M or 1, B). A function of eta has the slope c x and
    the curvature c x x^T: `back` and `hess_L` make these from its derivatives c (..., M, B), summed
    over the points of a sample and scaled to stand for all N.
    """

    def __init__(
        self, scale: float, x: np.ndarray, y: np.ndarray, offset: np.ndarray | None = None
    ) -> None:
        self.scale, self.x, self.y, self.offset = scale, x, y, offset
        self.shared, self.single = x.shape[-3] == 1, x.shape[-2] == 1

    @kept
    def eta(self, draw: Draw, where: str) -> np.ndarray:
        """x.z + offset at the points of a draw, (..., M, B)."""
        z, x = draw.at(where), self.x
        eta = z @ x[..., 0, :, :].mT if self.shared else np.matvec(x, z)
        return eta if self.offset is None else eta + self.offset

    def scaled(self, c: np.ndarray) -> np.ndarray:
        return c if self.scale == 1 else self.scale * c

    def total(self, c: np.ndarray) -> np.ndarray:
        """The sum of c over the points of a sample, (..., M)."""
        return self.scale * c.sum(-1)

    def back(self, c: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """The sum of c x, (..., M, d); with `x` given, that in place of the data's."""
        x, c = self.x if x is None else x, self.scaled(c)
        if self.single:
            return c * x[..., 0, :]
        return c @ x[..., 0, :, :] if self.shared else np.vecmat(c, x)

    def hess_L(self, draw: Draw, c: np.ndarray) -> np.ndarray:
        """What w has of the sum of c x x^T L, (..., M, D - d)."""
        c = self.scaled(c)
        return c * self.outer(draw) if self.single else draw.q.gram(c, self.x, draw.factor)

    @kept
    def outer(self, draw: Draw) -> np.ndarray:
        """What w has of x x^T L, for one point a sample, (..., M, D - d)."""
        return draw.q.outer(self.x[..., 0, :], self.x_factor(draw, "mu")[..., 0, :])

    @kept
    def x_factor(self, draw: Draw, where: str) -> np.ndarray:
        """L^T x with the L of q or of an older q, (..., M or 1, B, d)."""
        factor = draw.factor if where == "mu" else draw.snapshot.factor
        if self.single:  # one product for all samples
            return draw.q.times_t(factor, self.x[..., 0, :])[..., None, :]
        return draw.q.times_t(np.expand_dims(factor, draw.w.ndim - 1), self.x)

    @kept
    def variance(self, draw: Draw, where: str = "mu") -> np.ndarray:
        """x^T Sigma x, the variance of eta under q or an older q, (..., M or 1, B)."""
        u = self.x_factor(draw, where)
        return np.vecdot(u, u)


@kept
def look_up(model: GLM, draw: Draw, all_data: bool) -> Cases:
    """The data that an integrand sees under a draw, made once a draw; all: one batch for all."""
    if all_data:
        x, *labels = map(passes.wide, model.data)
        return Cases(1.0, x[None], *labels)
    rows = draw.rows
    return Cases(model.N / rows.shape[-1], *model.take(rows))


class OfEta(OnData):
    """sum_i psi_i(eta_i): an f that has of z only eta_i = x_i.z + offset_i, under a Gaussian q.

    A subclass says psi and its derivatives.
    """

    of_eta = True
    psi: Any  # (draw, where) -> psi(eta) at the points, per data point
    derivatives: Any  # (draw, where, order) -> [psi', psi''][:order] at the points, (..., M)

    def cases(self, draw: Draw) -> Cases:
        return look_up(draw.model, draw, self.sees_all(draw))

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return self.cases(draw).total(self.psi(draw, where))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return self.cases(draw).back(self.derivatives(draw, where, 1)[0])

    def average(self, draw: Draw) -> Sequence[np.ndarray]:
        """RP1's conditional mean given eta: E[eps | eta] = L^T x (eta - m) / v.

        It is Price's formula with psi' (eta - m) / v for psi'', whose means are equal (Stein).
        """
        cases, (d1, *_) = self.cases(draw), self.derivatives(draw, "z1", 1)
        v = cases.variance(draw)
        away = cases.eta(draw, "z1") - cases.eta(draw, "mu")
        return d1, d1 * away / np.where(v > 0, v, np.inf)

    def integrate(self, draw: Draw) -> Sequence[np.ndarray]:
        """E psi' and E psi''. For a quadratic psi they are those at m."""
        return self.derivatives(draw, "mu", 2)[:2]


class GLMData(OfEta):
    """sum_i phi(eta_i, y_i)."""

    def __init__(self, model: Model, q: Family) -> None:
        super().__init__("data", model, q)
        self.closed_form = model.likelihood.expected is not None
        self.quadratic = model.likelihood.quadratic
        self.advice = "CF(taylor_z(data))" + " or CF(bound(data))" * bool(model.likelihood.bound)

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        cases = self.cases(draw)
        return self.model.likelihood.phi(cases.eta(draw, where), cases.y)

    def derivatives(self, draw: Draw, where: str, order: int) -> Sequence[np.ndarray]:
        # whoever asks for the slope at mu asks for the curvature next
        return self._slopes(draw, where, max(order, 2) if where == "mu" else order)

    @kept
    def _slopes(self, draw, where, order):
        cases = self.cases(draw)
        return self.model.likelihood.derivatives(cases.eta(draw, where), cases.y, order)

    def integrate(self, draw: Draw) -> Sequence[np.ndarray]:
        cases = self.cases(draw)
        m, v = cases.eta(draw, "mu"), cases.variance(draw)
        return self.model.likelihood.mean_slopes(m, v, cases.y, tolerance=1e-9)


# Models of one's own, and other families --------------------------------------------------------


class Own(Atom):
    """An integrand f(z) of the reader's own, differentiated by autograd in z, row by row."""

    advice = "CF(taylor_z(...))"

    def points(self, draw: Draw, where: str) -> np.ndarray:
        """The points of the draw; (..., 1, d) at mu, where f is the same for all samples."""
        return draw.at(where)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return np.asarray(self.function(draw, 0)(draw.at(where)))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return elementwise_grad(self.function(draw, 0))(self.points(draw, where))

    @kept
    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        H = self.one_hessian(draw, where)
        if H is not None:
            return self.q.hess_L(lambda V: V[..., None, :, :] @ H, draw.factor)
        z = self.points(draw, where)[..., None, :]  # (..., M, 1, d)

        def times(V):
            """H V for rows V (..., k, d) that all samples share, as (..., M, k, d)."""
            return hess_times(self.function(draw, 1), *np.broadcast_arrays(z, V[..., None, :, :]))

        return self.q.hess_L(times, draw.factor)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        """grad^2 f at one point, "mu" or "snapshot", times v (..., M, d)."""
        H = self.one_hessian(draw, where)
        if H is not None:
            return v @ H[..., 0, :, :]
        z, v = np.broadcast_arrays(self.points(draw, where), v)
        return hess_times(self.function(draw, 0), z, v)

    @kept
    def one_hessian(self, draw: Draw, where: str) -> np.ndarray | None:
        """grad^2 f, (..., 1, d, d), where one serves all samples and q is full; else None."""
        z = self.points(draw, where)
        if z.shape[-2] != 1 or not self.q.full:
            return None
        points, columns = np.broadcast_arrays(z[..., None, :], np.eye(self.q.dim))
        return hess_times(self.function(draw, 1), points, columns)


class OwnPrior(Own):
    def __init__(self, name: str, model: Model, q: Family) -> None:
        super().__init__(name, model, q)
        self.closed_form = self.quadratic = isinstance(model.log_prior, GaussianPrior)

    def function(self, draw: Draw, extra: int) -> Callable:
        return self.model.log_prior


class OwnData(Own, OnData):
    def value(self, draw: Draw, where: str) -> np.ndarray:
        if not self.sees_all(draw):
            return super().value(draw, where)
        return self.model.totals(draw.at(where), 0)[0]  # in bounded memory, by the clock

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        if not self.sees_all(draw):
            return super().grad(draw, where)
        return self.model.totals(draw.at(where), 1)[1]

    def points(self, draw: Draw, where: str) -> np.ndarray:
        """With an M-axis of full length where each sample sees its own data."""
        z = draw.at(where)
        if self.sees_all(draw) or draw.rows.shape[-2] == 1:
            return z
        return np.broadcast_to(z, (*draw.eps.shape[:-1], z.shape[-1]))

    def function(self, draw: Draw, extra: int) -> Callable:
        model = self.model
        if self.sees_all(draw):
            all_rows = tuple(map(passes.wide, model.data))
            return lambda z: anp.sum(model.log_lik(z[..., None, :], all_rows), -1)
        *lead, B = draw.rows.shape
        if B == 1:  # without a sum, which autograd would have to go back through
            one = model.take(draw.rows.reshape(*lead, *(1,) * extra))
            return lambda z: model.N * model.log_lik(z, one)
        batch = model.take(draw.rows.reshape(*lead, *(1,) * extra, B))  # (..., M or 1, [1,] B)
        return lambda z: model.N / B * anp.sum(model.log_lik(z[..., None, :], batch), -1)


class FamilyDensity(Own):
    """log q_v(z) of a family beyond the Gaussian; v not given is w, held fixed."""

    advice = "SF or RP1, or give the family `entropy` or `cross`"

    def __init__(self, name: str, model: Model, q: Family, v: np.ndarray | None = None) -> None:
        super().__init__(name, model, q)
        self.v, self.closed_form = v, q.closed_entropy if v is None else q.cross is not None

    def function(self, draw: Draw, extra: int) -> Callable:
        v = draw.w if self.v is None else self.v
        v = v.reshape(*v.shape[:-1], *(1,) * (1 + extra), v.shape[-1])
        return lambda z: self.q.log_density(v, z)

    def closed(self, draw: Draw) -> np.ndarray:
        return self.q.cross_grad(draw.w, draw.w if self.v is None else self.v)[..., None, :]
