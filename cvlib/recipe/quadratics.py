"""Quadratics by name: a parabola of one's own in place of an integrand, under a Gaussian q.

CF(f~) - RP1(f~) has mean zero for every quadratic f~ that does not depend on the draw: one that
stands still in z (`Parabola`), such as the fit of a step before, or one that moves along with q
(`Curve`), for models where a Hessian is too dear (Geffner and Domke 2020).
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
    """b.u + u^T B u / 2 with u = S^-1 (z - mu) and B = diag(s) - U U^T of low rank."""

    S: np.ndarray  # (d, d) lower triangular, or (d,) for a diagonal q: the units of u
    b: np.ndarray  # (d,)
    s: np.ndarray  # (d,)
    U: np.ndarray  # (d, r)

    def times(self, v: np.ndarray) -> np.ndarray:
        """B v for rows v (..., d)."""
        return self.s * v - anp.dot(anp.dot(v, self.U), self.U.T)

    def away(self, draw: Draw, where: str) -> np.ndarray:
        """z less its centre."""
        return draw.at(where) - draw.at("mu")

    def value(self, q: Family, v: np.ndarray) -> np.ndarray:
        u = q.solve(self.S, v)
        return u @ self.b + 0.5 * np.vecdot(u, self.times(u))

    def grad(self, q: Family, v: np.ndarray) -> np.ndarray:
        return q.solve_t(self.S, self.b + self.times(q.solve(self.S, v)))

    def along(self, q: Family, v: np.ndarray) -> np.ndarray:
        """The Hessian times v."""
        return q.solve_t(self.S, self.times(q.solve(self.S, v)))


@dataclass(frozen=True, eq=False)
class Parabola:
    """slope.v + v^T hessian v / 2 with v = z - centre; a diagonal q may have a diagonal Hessian."""

    centre: np.ndarray  # (..., d)
    slope: np.ndarray  # (..., d)
    hessian: np.ndarray  # (..., d, d), or (..., d) for a diagonal q

    def away(self, draw: Draw, where: str) -> np.ndarray:
        return draw.at(where) - self.centre[..., None, :]

    def value(self, q: Family, v: np.ndarray) -> np.ndarray:
        return np.vecdot(v, self.slope[..., None, :] + 0.5 * self.along(q, v))

    def grad(self, q: Family, v: np.ndarray) -> np.ndarray:
        return self.slope[..., None, :] + self.along(q, v)

    def along(self, q: Family, v: np.ndarray) -> np.ndarray:
        return v @ self.hessian if q.full else v * self.hessian[..., None, :]


def quadratic(f: Integrand, curve: Curve | Parabola) -> Integrand:
    """The quadratic of a `Curve` or `Parabola`, in place of the integrand f, Gaussian q."""
    owners = {atom.owner for atom in integrand(f, "quadratic").parts if atom.owner}
    model, q = owners.pop() if len(owners) == 1 else (None, None)
    if model is None or q is None or not q.gaussian:
        raise Illegal(f"quadratic stands in for terms of a model under a Gaussian q, not for {f!r}")
    if not isinstance(curve, Curve | Parabola):
        raise TypeError(
            f"{type(curve).__name__} is no quadratics.Curve(S, b, s, U), nor a Parabola"
        )
    return Integrand({Quadratic(f, model, q, curve): 1})


class Quadratic(Term):
    """What a curve says of z."""

    closed_form = quadratic = True

    def __init__(self, f: Integrand, model: Model, q: Family, curve: Curve | Parabola) -> None:
        super().__init__(f"quadratic({f!r})", model, q)
        self.f, self.curve = f, curve
        self.key = (*self.key, curve)  # where it stays alive: its id is its own

    def value(self, draw: Draw, where: str) -> np.ndarray:
        return self.curve.value(self.q, self.curve.away(draw, where))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        return self.curve.grad(self.q, self.curve.away(draw, where))

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        return self.curve.along(self.q, v)

    def bend(self, draw: Draw, where: str) -> np.ndarray:
        times = lambda V: self.along(draw, where, V)[..., None, :, :]
        return self.q.bend(times, draw.factor)
