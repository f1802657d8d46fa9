"""Quadratics by name: a parabola of one's own in place of an integrand, under a Gaussian q.

f~(z) = b.u + u^T B u / 2 with u = S^-1 (z - mu) and B = diag(s) - U U^T of low rank: for models
where a Hessian is too dear (Geffner and Domke 2020). CF(f~) - RP1(f~) has mean zero for every
b, s and U that do not depend on the draw.
"""

from dataclasses import dataclass

import autograd.numpy as anp
import numpy as np

from ..families.base import Family
from ..models.own import Model
from .draws import Draw
from .integrands import Illegal, Integrand, Term, integrand


@dataclass(frozen=True, eq=False)  # no two are equal: another curve is another integrand
class Curve:
    """What a quadratic is made of."""

    S: np.ndarray  # (d, d) lower triangular, or (d,) for a diagonal q: the units of u
    b: np.ndarray  # (d,)
    s: np.ndarray  # (d,)
    U: np.ndarray  # (d, r)

    def times(self, v: np.ndarray) -> np.ndarray:
        """B v for rows v (..., d)."""
        return self.s * v - anp.dot(anp.dot(v, self.U), self.U.T)


def quadratic(f: Integrand, curve: Curve) -> Integrand:
    """The quadratic of a `Curve`, standing in for the integrand f under a Gaussian q."""
    owners = {atom.owner for atom in integrand(f, "quadratic").parts if atom.owner}
    model, q = owners.pop() if len(owners) == 1 else (None, None)
    if model is None or q is None or not q.gaussian:
        raise Illegal(f"quadratic stands in for terms of a model under a Gaussian q, not for {f!r}")
    if not isinstance(curve, Curve):
        raise TypeError(f"{type(curve).__name__} is no quadratics.Curve(S, b, s, U)")
    return Integrand({Quadratic(f, model, q, curve): 1})


class Quadratic(Term):
    """b.u + u^T B u / 2, u = S^-1 (z - mu)."""

    closed_form = quadratic = True

    def __init__(self, f: Integrand, model: Model, q: Family, curve: Curve) -> None:
        super().__init__(f"quadratic({f!r})", model, q)
        self.f, self.curve = f, curve
        self.key = (*self.key, curve)  # where it stays alive: its id is its own

    def u(self, draw: Draw, where: str) -> np.ndarray:
        return self.q.solve(self.curve.S, draw.at(where) - draw.at("mu"))

    def value(self, draw: Draw, where: str) -> np.ndarray:
        u = self.u(draw, where)
        return u @ self.curve.b + 0.5 * np.vecdot(u, self.curve.times(u))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        c = self.curve
        return self.q.solve_t(c.S, c.b + c.times(self.u(draw, where)))

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        c, q = self.curve, self.q
        return q.solve_t(c.S, c.times(q.solve(c.S, v)))

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        times = lambda V: self.along(draw, where, V)[..., None, :, :]
        return self.q.bend(times, draw.factor)
