"""Quadratics by name: a parabola of one's own in place of an integrand, under a Gaussian q.

CF(f~) - RP1(f~) has mean zero for every f~ that does not depend on the draw, such as `Fixed`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..families.base import Family
from ..models.own import Model
from .draws import Draw
from .integrands import Illegal, Integrand, Term, integrand


@dataclass(frozen=True, eq=False)  # no two are equal: another shape is another integrand
class Fixed:
    """slope.v + v^T hessian v / 2 with v = z - centre; a diagonal q may have a diagonal Hessian."""

    centre: np.ndarray  # (..., d)
    slope: np.ndarray  # (..., d)
    hessian: np.ndarray  # (..., d, d), or (..., d) for a diagonal q

    def away(self, draw: Draw, where: str) -> np.ndarray:
        """z less its centre."""
        return draw.at(where) - self.centre[..., None, :]

    def value(self, q: Family, v: np.ndarray) -> np.ndarray:
        return np.vecdot(v, self.slope[..., None, :] + 0.5 * self.along(q, v))

    def grad(self, q: Family, v: np.ndarray) -> np.ndarray:
        return self.slope[..., None, :] + self.along(q, v)

    def along(self, q: Family, v: np.ndarray) -> np.ndarray:
        """The Hessian times v."""
        return v @ self.hessian if q.full else v * self.hessian[..., None, :]


def quadratic(f: Integrand, curve: Any) -> Integrand:
    """A quadratic such as `Fixed`, in place of the integrand f, under a Gaussian q."""
    owners = {atom.owner for atom in integrand(f, "quadratic").parts if atom.owner}
    model, q = owners.pop() if len(owners) == 1 else (None, None)
    if model is None or q is None or not q.gaussian:
        raise Illegal(f"quadratic stands in for terms of a model under a Gaussian q, not for {f!r}")
    if not hasattr(curve, "along"):
        raise TypeError(f"{type(curve).__name__} is no quadratic: give quadratics.Fixed(...)")
    return Integrand({Quadratic(f, model, q, curve): 1})


class Quadratic(Term):
    """What a curve says of z."""

    closed_form = quadratic = True

    def __init__(self, f: Integrand, model: Model, q: Family, curve: Any) -> None:
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
