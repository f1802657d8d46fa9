"""Integrands f of grad_w E_q[f]: atoms, and sums of them.

Whatever an atom takes from w (the v of log q_v, a point of expansion) is held fixed.
"""

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from ..draws import Draw, kept
from ..families.base import Family
from ..models.own import Model
from .linear import Linear


class Illegal(ValueError):
    """A word or an approximation that a term or a family does not have."""


class Wants(NamedTuple):
    """What an expansion about older weights needs of a snapshot."""

    order: int = 1  # 2: the Hessian too
    factor: bool = False  # q's factor at the time, for a bound or a mean
    mean: bool = False  # the parabola of means


def wanted(atoms: "Iterable[Atom]") -> Wants | None:
    """What these atoms together want of a snapshot; None: they need none."""
    each = [atom.wants for atom in atoms if atom.wants]
    return Wants(*map(max, zip(*each))) if each else None


class Atom:
    """One integrand. Points are names such as "z1"; arrays are (..., M, ...), M = 1 at "mu".

    This is all that the engine asks of an atom. What one cannot say stays None, and the words that
    need it are refused.
    """

    model: Any  # None, and so is q: f belongs to all of them, as `one` does
    q: Any
    space: str = "z"  # or "zeta", behind a discrete z: which routes of the family it takes
    quadratic: bool = False  # is f a quadratic function of z?
    closed_form: bool = False  # is E_q[f] known?
    conservative: bool = True  # is grad a gradient? If not, pulls of it differ in the mean
    advice: str = ""  # what to write instead where there is no closed form
    on_data: bool = False  # does f see data?
    whole: bool = False  # does f see all data, whatever a draw subsamples?
    of_eta: bool = False  # does f see of z only eta = x.z?
    wants: Wants | None = None  # what it needs of a snapshot, if expanded about older weights

    value: Any = None  # (draw, where) -> f, (..., M)
    grad: Any = None  # (draw, where) -> grad_z f, (..., M, d)
    bend: Any = None  # (draw, where) -> what w has of (grad^2 f) L, (..., M, D - d)
    along: Any = None  # (draw, where, v) -> (grad^2 f) v at one point, (..., M, d), for taylor_z
    # (draw, extra) -> f of points (..., M, [k,] d), for autograd; `extra` axes between M and d
    function: Any = None

    # Of an f of eta alone, psi(eta) (`atoms.OfEta` makes all else of the first three)
    rows: Any = None  # (draw) -> the data points that f sees, `rows.Rows`
    psi: Any = None  # (draw, where) -> psi(eta) at the points, per data point
    derivatives: Any = None  # (draw, where, order) -> [psi', psi''][:order] at the points, (..., M)
    averaged: Any = None  # (draw) -> what stands for psi' and psi'' in RB
    integrated: Any = None  # (draw) -> E psi' and E psi''

    def __init__(self, name: str, model: Model | None, q: Family | None, target: str = "") -> None:
        self.name = self.bare = name  # as it is written; bare: without .over_all_data()
        self.model, self.q = model, q
        self.target = target or name  # what its estimators estimate; atoms may share one
        self.owner = (model, q) if model is not None else None
        self.key: tuple = name, id(model), q and q.key  # of plain things: it is hashed often

    def __eq__(self, other):
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def over_all_data(self) -> "Atom":
        """The same integrand on the whole data set, whatever a draw subsamples."""
        return self

    @kept
    def level(self, draw: Draw, where: str) -> np.ndarray:
        """f at the points, (..., M), computed once a draw."""
        return self.value(draw, where)

    @kept
    def slope(self, draw: Draw, where: str) -> np.ndarray:
        """grad_z f at the points, (..., M, d), computed once a draw."""
        return self.grad(draw, where)

    def price(self, draw: Draw, where: str) -> np.ndarray:
        """[grad f, grad^2 f L] at the points: the mean of this is grad_w E_q f (Bonnet, Price)."""
        return draw.q.chain(draw, self.slope(draw, where), self.bend(draw, where))

    def closed(self, draw: Draw) -> np.ndarray:
        """grad_w E_q f, (..., M or 1, D). For an f quadratic in z it is read off at mu."""
        return self.price(draw, "mu")


class OnData(Atom):
    """An integrand that sees data: the data point drawn, times N, or (`whole`) all of them."""

    on_data = True

    def over_all_data(self) -> Atom:
        return self if self.whole else copy(self)._over_all_data()

    def _over_all_data(self):
        self.whole, self.name = True, f"{self.bare}.over_all_data()"
        self.key = (self.name, *self.key[1:])
        return self

    def sees_all(self, draw: Draw) -> bool:
        return self.whole or draw.index is None


class Integrand(Linear):
    """A sum of atoms with coefficients, which a word looks at as at one function."""

    def value(self, draw: Draw, where: str) -> np.ndarray:
        """f at the points, (..., M)."""
        return self.total(lambda atom: atom.level(draw, where))

    def slope(self, draw: Draw, where: str) -> np.ndarray:
        """grad_z f at the points, (..., M, d)."""
        return self.total(lambda atom: atom.slope(draw, where))

    def over_all_data(self) -> "Integrand":
        """Every part on the whole data set: what data subsampling gives on average."""
        return self.map(lambda atom: atom.over_all_data())

    def map(self, change: Callable[[Atom], Atom]) -> "Integrand":
        """The same combination of changed atoms."""
        total = Integrand({})
        for atom, coef in self.parts.items():
            total = total + Integrand({change(atom): coef})
        return total


def integrand(f: Any, who: str) -> Integrand:
    """f, or a TypeError: `who` works on integrands."""
    if not isinstance(f, Integrand):
        raise TypeError(f"{who} takes an integrand such as data or data + prior, not {f!r}")
    return f
