"""The integrands f of the ELBO gradient's terms, grad_w E_q[f], and sums of them.

An atom knows its value, its gradient and its curvature in z at the points of a draw, and, where it
has one, the gradient of its expectation in closed form. `Integrand` is a linear combination of
atoms. Whatever an atom takes from w (the v of log q_v, a point of expansion) is held fixed.
"""

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad

from .linear import Linear
from .models import GLM, GaussianPrior, check_fit
from .nongaussian import FamilyPrior


class Atom:
    """One integrand. Points are named "z1", "z2", "mu"; arrays are (..., M, ...), M = 1 at mu."""

    direct = False  # does it bring its own estimators, under `methods`?
    closed_form = False  # is E_q[f] known?
    quadratic = False  # is f a quadratic function of z?
    advice = ""  # what to write instead where it is not

    def __init__(self, name, model, q, target=None):
        self.name, self.model, self.q = name, model, q
        self.target = target or name  # what its estimators estimate; atoms may share one
        self.owner = (model, q) if model is not None else None
        self.key = name, id(model), id(q)

    def __eq__(self, other):
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def over_all_data(self):
        """The same integrand on the whole data set, whatever a draw subsamples."""
        return self

    def value(self, draw, where):
        """f at the points, (..., M)."""
        raise NotImplementedError

    def grad(self, draw, where):
        """grad_z f, (..., M, d)."""
        raise NotImplementedError

    def hess_times(self, draw, where, v):
        """(grad_z^2 f) v for each row of v, (..., M, d)."""
        raise NotImplementedError

    def hess_factor(self, draw, where):
        """(grad_z^2 f) L, the part that w has of it, (..., M, D - d)."""
        raise NotImplementedError

    def expanded_grad(self, draw, where):
        """grad f(mu) + grad^2 f(mu) (z - mu), that of the expansion about mu, (..., M, d)."""
        slope = draw.once((self.key, "mu"), self.grad, "mu")
        return slope + self.hess_times(draw, "mu", draw.at(where) - draw.at("mu"))

    def closed(self, draw):
        """grad_w E_q f = [E grad f, E[grad^2 f] L] (Bonnet, Price), (..., M or 1, D).

        For an f quadratic in z both are read off at mu.
        """
        return draw.q.chain(draw, self.grad(draw, "mu"), self.hess_factor(draw, "mu"))


class Integrand(Linear):
    """A sum of atoms with coefficients."""

    def over_all_data(self):
        """Every part on the whole data set: what data subsampling gives on average."""
        return self.map(lambda atom: atom.over_all_data())

    def map(self, change):
        """The same combination of changed atoms."""
        total = Integrand({})
        for atom, coef in self.parts.items():
            total = total + Integrand({change(atom): coef})
        return total


def terms(model, q):
    """The integrands of g1, g2, g3: data, prior, variational; g = g1 + g2 - g3."""
    check_fit(model, q)
    if q.gaussian:
        data = GLMData(model, q) if isinstance(model, GLM) else OwnData(model, q)
        normal = isinstance(model.log_prior, GaussianPrior)
        prior = NormalPrior(model, q) if normal else OwnPrior(model, q)
        variational = Variational(model, q)
    else:  # the closed forms of GLMs and normal priors are for a Gaussian q
        data, variational = OwnData(model, q), FamilyDensity("variational", model, q)
        conjugate = isinstance(model.log_prior, FamilyPrior)
        conjugate = conjugate and repr(model.log_prior.q) == repr(q)  # same kind, same sizes
        prior = FamilyDensity("prior", model, q) if conjugate else OwnPrior(model, q)
    return tuple(Integrand({atom: 1}) for atom in (data, prior, variational))


class One(Atom):
    """f = 1. Its score-function estimator is the score term, grad_w log q_w(z): mean zero."""

    closed_form = quadratic = True

    def value(self, draw, where):
        return np.ones(draw.eps.shape[:-1])

    def grad(self, draw, where):
        return np.zeros_like(draw.at(where))

    def hess_times(self, draw, where, v):
        return np.zeros_like(v)

    def hess_factor(self, draw, where):
        return np.zeros((1, draw.q.D - draw.q.dim))

    def closed(self, draw):
        return np.zeros((1, draw.q.D))


one = Integrand({One("one", None, None): 1})  # belongs to every model


class NormalPrior(Atom):
    """log N(z | 0, sd^2 I)."""

    closed_form = quadratic = True

    def __init__(self, model, q):
        super().__init__("prior", model, q)
        self.precision = 1 / model.log_prior.sd**2

    def value(self, draw, where):
        return self.model.log_prior(draw.at(where))

    def grad(self, draw, where):
        return -self.precision * draw.at(where)

    def hess_times(self, draw, where, v):
        return -self.precision * v

    def hess_factor(self, draw, where):
        return -self.precision * draw.w[..., None, self.q.dim :]


class Variational(Atom):
    """log q_v(z) with v = w held fixed."""

    closed_form = quadratic = True

    def __init__(self, model, q):
        super().__init__("variational", model, q)

    def value(self, draw, where):
        return self.q.log_q(draw.w, draw.at(where))

    def grad(self, draw, where):
        if where == "mu":
            return np.zeros_like(draw.at(where))
        if where == "z1":
            return -draw.whitened
        return self.hess_times(draw, where, draw.at(where) - draw.at("mu"))

    def hess_times(self, draw, where, v):
        q = self.q
        return -q.solve_t(draw.factor, q.solve(draw.factor, v))

    def hess_factor(self, draw, where):
        return self.closed(draw)[..., self.q.dim :]

    def closed(self, draw):
        return -self.q.entropy_grad(draw.w)[..., None, :]


class Data(Atom):
    """log p(x | z): on the data point drawn, times N, or on all data."""

    def __init__(self, model, q, whole=False, name="data"):
        super().__init__(name + ".over_all_data()" * whole, model, q, target=name)
        self.whole = whole

    def over_all_data(self):
        return type(self)(self.model, self.q, whole=True)


class GLMData(Data):
    """sum_i phi(x_i.z, y_i)."""

    def __init__(self, model, q, whole=False):
        super().__init__(model, q, whole)
        self.closed_form = model.likelihood.expected is not None
        self.quadratic = model.likelihood.quadratic
        self.advice = "CF(taylor_z(data))" + " or CF(bound(data))" * bool(model.likelihood.bound)

    def rows(self, draw):
        return rows(draw, self.whole)

    def derivatives(self, draw, where, order):
        """[phi', phi'', ...] at x.z, per data point."""
        r = self.rows(draw)
        if where == "mu":
            order = max(order, 2)  # whoever asks for the slope there asks for the curvature next

        def compute(draw):
            return self.model.likelihood.derivatives(r.eta(draw, where), r.y, order)

        return draw.once(("phi", where, self.whole, order), compute)

    def value(self, draw, where):
        r = self.rows(draw)
        return r.total(self.model.likelihood.phi(r.eta(draw, where), r.y))

    def grad(self, draw, where):
        return self.rows(draw).back(self.derivatives(draw, where, 1)[0])

    def hess_times(self, draw, where, v):
        r = self.rows(draw)
        return r.back(self.derivatives(draw, where, 2)[1] * r.dot(v))

    def hess_factor(self, draw, where):
        return self.rows(draw).back_factor(draw, self.derivatives(draw, where, 2)[1])

    def expanded_grad(self, draw, where):
        r, (d1, d2) = self.rows(draw), self.derivatives(draw, "mu", 2)
        return r.back(d1 + d2 * (r.eta(draw, where) - r.eta(draw, "mu")))

    def closed(self, draw):
        r = self.rows(draw)
        m, v = r.eta(draw, "mu"), r.variance(draw)
        _, d1, d2 = self.model.likelihood.expected(m, v, r.y)
        return draw.q.chain(draw, r.back(d1), r.back_factor(draw, d2))


class Rows:
    """The data a draw sees. Subsampled: x (..., M, d), one point a sample, standing for N."""

    def __init__(self, model, index):
        self.x, self.y, self.scale = model.X[index], model.y[index], float(model.N)

    def dot(self, v):
        """x.v, (..., M)."""
        return np.vecdot(self.x, v)

    def back(self, c):
        """N c x, (..., M, d)."""
        return (self.scale * c)[..., None] * self.x

    def back_factor(self, draw, c):
        """lower(N c x (L^T x)^T), (..., M, D - d)."""
        return draw.q.outer(self.back(c), self.x_factor(draw))

    def total(self, c):
        return self.scale * c

    def x_factor(self, draw):
        """L^T x, (..., M, d)."""
        return draw.once(("L^T x", self), lambda draw: draw.q.times_t(draw.factor, self.x))

    def variance(self, draw):
        """x^T Sigma x, the variance of x.z under q, (..., M)."""
        return (self.x_factor(draw) ** 2).sum(-1)

    def eta(self, draw, where):
        """x.z at the points of a draw."""
        return draw.once(("x.z", self, where), lambda draw: self.dot(draw.at(where)))


class WholeRows(Rows):
    """All N data points for every sample: x (N, d); x.z is (..., M, N)."""

    def __init__(self, model):
        self.x, self.y = model.X, model.y

    def dot(self, v):
        return v @ self.x.T

    def back(self, c):
        return c @ self.x

    def back_factor(self, draw, c):
        hessian = np.swapaxes(c[..., None] * self.x, -1, -2) @ self.x  # (..., M, d, d)
        return draw.q.lower(hessian @ draw.q.dense(draw.factor)[..., None, :, :])

    def total(self, c):
        return c.sum(-1)

    def x_factor(self, draw):
        x = np.broadcast_to(self.x, (*draw.w.shape[:-1], *self.x.shape))
        return draw.q.times_t(draw.factor, x)  # (..., N, d)

    def variance(self, draw):
        return super().variance(draw)[..., None, :]  # (..., 1, N)


def rows(draw, whole):
    """The data that an integrand sees under a draw, made once a draw."""
    if whole or draw.index is None:
        return draw.once("all rows", lambda draw: WholeRows(draw.model))
    return draw.once("rows", lambda draw: Rows(draw.model, draw.index))


class Own(Atom):
    """An integrand f(z) of the reader's own, differentiated by autograd in z.

    Rows are independent, so the gradient of the sum over rows is the gradient row by row.
    """

    advice = "CF(taylor_z(...))"

    def function(self, draw, extra):
        """f of z (..., M, [k,] d) for one draw; `extra` axes stand between M and d."""
        raise NotImplementedError

    def value(self, draw, where):
        return np.asarray(self.function(draw, 0)(draw.at(where)))

    def grad(self, draw, where):
        return elementwise_grad(self.function(draw, 0))(self._full(draw, where))

    def hess_times(self, draw, where, v):
        return self._hess_times(draw, self._full(draw, where), v, 0)

    def hess_factor(self, draw, where):
        z = self._full(draw, where)[..., None, :]  # (..., M, 1, d)
        columns = np.swapaxes(self.q.dense(draw.factor), -1, -2)[..., None, :, :]
        z, columns = np.broadcast_arrays(z, columns)  # (..., M, k, d), k the column of L
        HL = self._hess_times(draw, z, columns, 1)
        return self.q.lower(np.swapaxes(HL, -1, -2))

    def _hess_times(self, draw, z, v, extra):
        slope = elementwise_grad(self.function(draw, extra))
        # + 0 z: autograd warns of a slope that does not depend on z, as that of a linear f
        return grad(lambda z: anp.sum(slope(z) * v + 0 * z))(z)

    def _full(self, draw, where):
        """The points with an M-axis of full length: each sample may see its own data."""
        return np.broadcast_to(draw.at(where), (*draw.eps.shape[:-1], draw.q.dim))


class OwnPrior(Own):
    def __init__(self, model, q):
        super().__init__("prior", model, q)

    def function(self, draw, extra):
        return self.model.log_prior


class FamilyDensity(Own):
    """log q_v(z) of a family beyond the Gaussian: v = w held fixed, or v the prior's parameters."""

    closed_form = True

    def v(self, draw):
        return draw.w if self.name == "variational" else self.model.log_prior.v

    def function(self, draw, extra):
        v = self.v(draw)
        v = v.reshape(*v.shape[:-1], *(1,) * (1 + extra), v.shape[-1])
        return lambda z: self.q.log_density(v, z)

    def closed(self, draw):
        return self.q.cross_grad(draw.w, self.v(draw))[..., None, :]


class OwnData(Own, Data):
    def function(self, draw, extra):
        model = self.model
        if self.whole or draw.index is None:
            return lambda z: anp.sum(model.log_lik(z[..., None, :], model.data), -1)
        at = draw.index.reshape(draw.index.shape + (1,) * extra)
        batch = tuple(a[at] for a in model.data)
        return lambda z: model.N * model.log_lik(z, batch)
