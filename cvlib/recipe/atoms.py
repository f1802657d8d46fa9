"""The integrands of the ELBO gradient's terms: data, prior, variational, and the constant one."""

from collections.abc import Callable, Sequence

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from ..draws import Draw, kept
from ..families import Family, FamilyPrior
from ..families.base import check_fit
from ..models import GaussianPrior, Model, passes, quadrature
from ..special import hess_times
from .integrands import Atom, Integrand, OnData
from .rows import Rows, rows


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

    def bend(self, draw: Draw, where: str) -> np.ndarray:
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
        self.off_centre = np.any(self.mean)
        self.by_row = self.precision if np.ndim(self.precision) == 0 else q.by_row(self.precision)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return self.model.log_prior(draw.at(where))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        z = draw.at(where)
        return -self.precision * (z - self.mean if self.off_centre else z)

    def bend(self, draw: Draw, where: str) -> np.ndarray:
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

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        return -self.q.entropy_grad(draw.w)[..., None, self.q.dim :]

    def closed(self, draw: Draw) -> np.ndarray:
        return -self.q.entropy_grad(draw.w)[..., None, :]


class OfEta(OnData):
    """sum_i psi_i(eta_i): an f that has of z only eta_i = x_i.z + offset_i, under a Gaussian q.

    A subclass says psi and its derivatives.
    """

    of_eta = True

    def rows(self, draw: Draw) -> Rows:
        return rows(draw, self.whole)

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return self.rows(draw).total(self.psi(draw, where))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return self.rows(draw).back(self.derivatives(draw, where, 1)[0])

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        return self.rows(draw).bend(draw, self.derivatives(draw, where, 2)[1])

    def averaged(self, draw: Draw) -> Sequence[np.ndarray]:
        """RP1's conditional mean given eta: E[eps | eta] = L^T x (eta - m) / v.

        It is Price's formula with psi' (eta - m) / v for psi'', whose means are equal (Stein).
        """
        r, (d1, *_) = self.rows(draw), self.derivatives(draw, "z1", 1)
        v = r.variance(draw)
        away = r.eta(draw, "z1") - r.eta(draw, "mu")
        return d1, d1 * away / np.where(v > 0, v, np.inf)

    def integrated(self, draw: Draw) -> Sequence[np.ndarray]:
        """E psi' and E psi'' in place of samples. For a quadratic psi they are those at m."""
        return self.derivatives(draw, "mu", 2)[:2]


class GLMData(OfEta):
    """sum_i phi(eta_i, y_i)."""

    def __init__(self, model: Model, q: Family) -> None:
        super().__init__("data", model, q)
        self.closed_form = model.likelihood.expected is not None
        self.quadratic = model.likelihood.quadratic
        self.advice = "CF(taylor_z(data))" + " or CF(bound(data))" * bool(model.likelihood.bound)

    def psi(self, draw: Draw, where: str) -> np.ndarray:
        r = self.rows(draw)
        return self.model.likelihood.phi(r.eta(draw, where), r.y)

    def derivatives(self, draw: Draw, where: str, order: int) -> Sequence[np.ndarray]:
        # whoever asks for the slope at mu asks for the curvature next
        return self._slopes(draw, where, max(order, 2) if where == "mu" else order)

    @kept
    def _slopes(self, draw, where, order):
        r = self.rows(draw)
        return self.model.likelihood.derivatives(r.eta(draw, where), r.y, order)

    def integrated(self, draw: Draw) -> Sequence[np.ndarray]:
        r = self.rows(draw)
        m, v = r.eta(draw, "mu"), r.variance(draw)
        return quadrature.slopes(self.model.likelihood, m, v, r.y, tolerance=1e-9)


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

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        H = self.one_hessian(draw, where)
        if H is not None:
            return self.q.bend(lambda V: V[..., None, :, :] @ H, draw.factor)
        z = self.points(draw, where)[..., None, :]  # (..., M, 1, d)

        def times(V):
            """H V for rows V (..., k, d) that all samples share, as (..., M, k, d)."""
            return hess_times(self.function(draw, 1), *np.broadcast_arrays(z, V[..., None, :, :]))

        return self.q.bend(times, draw.factor)

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
        if self.sees_all(draw) or draw.batched and draw.index.shape[-2] == 1:
            return z
        return np.broadcast_to(z, (*draw.eps.shape[:-1], z.shape[-1]))

    def function(self, draw: Draw, extra: int) -> Callable:
        model = self.model
        if self.sees_all(draw):
            all_rows = tuple(map(passes.wide, model.data))
            return lambda z: anp.sum(model.log_lik(z[..., None, :], all_rows), -1)
        if not draw.batched:
            at = draw.index.reshape(draw.index.shape + (1,) * extra)
            batch = model.take(at)
            return lambda z: model.N * model.log_lik(z, batch)
        *lead, B = draw.index.shape
        at = draw.index.reshape(*lead, *(1,) * extra, B)  # (..., M or 1, [1,] B)
        batch = model.take(at)
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
