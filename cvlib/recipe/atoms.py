"""The terms of the ELBO gradient, and the integrands that autograd differentiates.

These are models of one's own, families beyond the Gaussian, and what stands in for a term of them.
A discrete z has a continuous variable zeta behind it (see its families), and an integrand of
zeta has SF, RP1 and GR: differences of these are the plain relaxation, REBAR (GR - RP1) and, with a
trained function, RELAX.
"""

from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from ..draws import Draw, kept
from ..families import Family, FamilyPrior
from ..families.base import check_fit
from ..models import GaussianPrior, Model, passes
from ..special import hess_times
from .integrands import (
    Atom,
    GLMData,
    Illegal,
    Integrand,
    NormalPrior,
    OnData,
    Variational,
    integrand,
)


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


# Of another variable: no closed form, two estimators ---------------------------------------------


def relax(f: Integrand, tau: float = 0.5, coupled: bool = True) -> Integrand:
    """f at the concrete relaxation of z with temperature tau (Maddison et al., Jang et al. 2017).

    Write GR(relax(f)) - RP1(relax(f)) for REBAR (Tucker et al. 2017). With coupled=False the
    conditional draw has a base sample of its own.
    """
    if not tau > 0:
        raise ValueError(f"tau={tau}: the temperature must be positive")
    for atom in integrand(f, "relax").parts:
        if atom.q is not None and atom.q.smooth == "z":
            raise Illegal(f"relax is for a discrete q; {atom.q!r} is continuous: use RP1 or GR")
        if atom.function is None or atom.space != "z":
            raise Illegal(f"relax takes terms such as data + prior; '{atom.name}' is none")
    return f.map(lambda atom: Relaxed(atom, tau, coupled))


def surrogate(f: Integrand, function: Callable) -> Integrand:
    """Any function (..., d) -> (...) that autograd can differentiate, standing in for the term f.

    Of zeta for a discrete q, of z for a continuous one. RELAX (Grathwohl et al. 2018) is
    GR(surrogate(f, s)) - RP1(surrogate(f, s)) with s trained along the way (chapter 6).
    """
    if all(atom.q is None for atom in integrand(f, "surrogate").parts):
        raise Illegal(f"surrogate needs a term of a model, and {f!r} belongs to none")
    return Integrand({Surrogate(f, function): 1})


class Relaxed(Own):
    """f(squash(zeta)) for f the atom's function, on the data that the atom sees."""

    def __init__(self, f: Atom, tau: float, coupled: bool) -> None:
        how = f", {float(tau)}" + ", coupled=False" * (not coupled)
        name, target = f"relax({f.name}{how})", f"relax({f.target}{how})"
        super().__init__(name, f.model, f.q, target)
        self.f, self.tau, self.coupled = f, tau, coupled
        self.space = f.q.smooth if coupled else f"{f.q.smooth}, fresh"

    def over_all_data(self) -> Atom:
        return Relaxed(self.f.over_all_data(), self.tau, self.coupled)

    def function(self, draw: Draw, extra: int) -> Callable:
        f = self.f.function(draw, extra)
        return lambda zeta: f(draw.q.squash(zeta, self.tau))


class Surrogate(Own):
    """s(zeta), or s(z): it sees no data."""

    def __init__(self, f: Integrand, function: Callable) -> None:
        like = next(atom for atom in f.parts if atom.q is not None)
        name = f"surrogate({f!r}, {getattr(function, '__name__', 'function')})"
        # Two functions may share a name. In the key the function stays alive: its id is its own.
        super().__init__(name, like.model, like.q, f"{name} at {id(function):#x}")
        self.key = (*self.key, function)
        self.s, self.space = function, like.q.smooth

    def function(self, draw: Draw, extra: int) -> Callable:
        return self.s
