"""Integrands f of grad_w E_q[f]: atoms, and sums of them, which add and subtract like numbers.

Whatever an atom takes from w (the v of log q_v, a point of expansion) is held fixed. The atoms here
are those of generalised linear models, normal priors and Gaussian families, by hand; `atoms` has
those that autograd differentiates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from math import isfinite
from numbers import Real
from sys import float_info
from typing import Any, NamedTuple, Self

import numpy as np

from ..draws import Draw, kept
from ..families.base import Family
from ..models import passes
from ..models.density import Model
from ..models.glm import GLM

ROUNDING = 32 * float_info.epsilon  # what a sum of coefficients may miss zero by, relative


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
    all_data: bool = False  # does f see all data, whatever a draw subsamples?
    wants: Wants | None = None  # what it needs of a snapshot, if expanded about older weights

    value: Any = None  # (draw, where) -> f, (..., M)
    grad: Any = None  # (draw, where) -> grad_z f, (..., M, d)
    hess_L: Any = None  # (draw, where) -> what w has of (grad^2 f) L, (..., M, D - d)
    along: Any = None  # (draw, where, v) -> (grad^2 f) v at one point, (..., M, d), for taylor_z
    # (draw, extra) -> f of points (..., M, [k,] d), for autograd; `extra` axes between M and d
    function: Any = None

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
        return self._said("value")(draw, where)

    @kept
    def slope(self, draw: Draw, where: str) -> np.ndarray:
        """grad_z f at the points, (..., M, d), computed once a draw."""
        return self._said("grad")(draw, where)

    def _said(self, what):
        """Its function `what`: a word of the reader's may ask for one that it does not have."""
        if getattr(self, what) is None:
            raise Illegal(f"'{self.name}' does not say its {what}: a word that needs it refuses it")
        return getattr(self, what)

    def price(self, draw: Draw, where: str) -> np.ndarray:
        """[grad f, grad^2 f L] at the points: the mean of this is grad_w E_q f (Bonnet, Price)."""
        return draw.q.chain(draw, self.slope(draw, where), self._said("hess_L")(draw, where))

    def closed(self, draw: Draw) -> np.ndarray:
        """grad_w E_q f, (..., M or 1, D). For an f quadratic in z it is read off at mu."""
        return self.price(draw, "mu")


class OnData(Atom):
    """An integrand that sees data: the data point drawn, times N, or (`all_data`) all of them."""

    def over_all_data(self) -> Atom:
        return self if self.all_data else copy(self)._over_all_data()

    def _over_all_data(self):
        self.all_data, self.name = True, f"{self.bare}.over_all_data()"
        self.key = (self.name, *self.key[1:])
        return self

    def sees_all(self, draw: Draw) -> bool:
        return self.all_data or draw.index is None


class Linear:
    """A finite sum of coefficients times parts; parts that cancel, but for rounding, disappear.

    So the order of writing does not matter: a/3 - a + a/3 + a/3 is 0 as a/3 + a/3 + a/3 - a is.
    """

    def __init__(self, parts: Mapping[Any, float]) -> None:
        self.parts = {part: coef for part, coef in parts.items() if coef != 0}

    def __add__(self, other: Self, sign: int = 1, verb: str = "add") -> Self:
        kind = type(self)
        if not isinstance(other, kind):
            only = f"only another {kind.__name__.lower()} goes with it"
            raise TypeError(f"cannot {verb} {other!r} in {self!r}: {only}")
        parts = dict(self.parts)
        for part, coef in other.parts.items():
            total = parts.get(part, 0) + sign * coef
            parts[part] = 0 if abs(total) <= ROUNDING * abs(coef) else total
        return kind(parts)

    def __sub__(self, other: Self) -> Self:
        return self.__add__(other, -1, "subtract")

    def __mul__(self, scalar: float) -> Self:
        if not isinstance(scalar, Real):
            raise TypeError(f"cannot multiply {self!r} by {scalar!r}: only by a number")
        if not isfinite(scalar):
            raise ValueError(f"cannot multiply {self!r} by {scalar}: the factor must be finite")
        return type(self)({part: scalar * coef for part, coef in self.parts.items()})

    __rmul__ = __mul__

    def __truediv__(self, scalar: float) -> Self:
        return self * (1 / scalar)

    def __neg__(self) -> Self:
        return self * -1

    def __repr__(self):
        text = ""
        for part, coef in self.parts.items():
            size = "" if abs(coef) == 1 else f"{abs(coef):g}*"
            text += f" {'-' if coef < 0 else '+'} {size}{self.part_name(part)}"
        return "-" + text[3:] if text.startswith(" - ") else text[3:] or "0"

    def total(self, of: Callable[[Any], Any]) -> Any:
        """The sum of coef * of(part) for arrays of(part), without products by 1."""
        total: Any = None
        for part, coef in self.parts.items():
            new = of(part) if abs(coef) == 1 else abs(coef) * of(part)
            if total is None:
                total = new if coef > 0 else -new
            else:
                total = total + new if coef > 0 else total - new
        return total

    @staticmethod
    def part_name(part: Any) -> str:
        return part.name


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
        each = (Integrand({change(atom): coef}) for atom, coef in self.parts.items())
        return sum(each, Integrand({}))


def integrand(f: Any, who: str) -> Integrand:
    """f, or a TypeError: `who` works on integrands."""
    if not isinstance(f, Integrand):
        raise TypeError(f"{who} takes an integrand such as data or data + prior, not {f!r}")
    return f


# Where all is known ------------------------------------------------------------------------------


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

    def back(self, c: np.ndarray) -> np.ndarray:
        """The sum of c x, (..., M, d)."""
        x, c = self.x, self.scaled(c)
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
