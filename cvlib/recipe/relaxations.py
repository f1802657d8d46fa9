"""Relaxation and surrogate: approximations that need no closed form, only two estimators.

A discrete z has a continuous variable zeta behind it (see `families.discrete`), and an integrand of
zeta has SF, RP1 and GR. Differences of these are the plain relaxation, REBAR (GR - RP1) and, with a
trained function, RELAX. For a continuous q a surrogate is a function of z itself.
"""

from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad

from .atoms import Own
from .draws import Draw
from .estimators import Estimator
from .integrands import Atom, Illegal, Integrand, integrand


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


def surrogate(f: Integrand, function: Callable, coupled: bool = True) -> Integrand:
    """Any function (..., d) -> (...) that autograd can differentiate, standing in for the term f.

    Of zeta for a discrete q, of z for a continuous one. RELAX (Grathwohl et al. 2018) is
    GR(surrogate(f, s)) - RP1(surrogate(f, s)) with s trained by `variance_gradient`.
    """
    if all(atom.q is None for atom in integrand(f, "surrogate").parts):
        raise Illegal(f"surrogate needs a term of a model, and {f!r} belongs to none")
    return Integrand({Surrogate(f, function, coupled): 1})


class Relaxed(Own):
    """f(squash(zeta)) for f the atom's function, on the data that the atom sees."""

    def __init__(self, f: Atom, tau: float, coupled: bool) -> None:
        how = f", {float(tau)}" + ", coupled=False" * (not coupled)
        name, target = f"relax({f.name}{how})", f"relax({f.target}{how})"
        super().__init__(name, f.model, f.q, target)
        self.f, self.tau, self.coupled = f, tau, coupled
        self.space = _space(f.q, coupled)

    def over_all_data(self) -> Atom:
        return Relaxed(self.f.over_all_data(), self.tau, self.coupled)

    def function(self, draw: Draw, extra: int) -> Callable:
        f = self.f.function(draw, extra)
        return lambda zeta: f(draw.q.squash(zeta, self.tau))


class Surrogate(Own):
    """s(zeta), or s(z): it sees no data."""

    def __init__(self, f: Integrand, function: Callable, coupled: bool) -> None:
        like = next(atom for atom in f.parts if atom.q is not None)
        how = getattr(function, "__name__", "function") + ", coupled=False" * (not coupled)
        name = f"surrogate({f!r}, {how})"
        # Two functions may share a name. In the key the function stays alive: its id is its own.
        super().__init__(name, like.model, like.q, f"{name} at {id(function):#x}")
        self.key = (*self.key, function)
        self.s, self.space = function, _space(like.q, coupled)

    def function(self, draw: Draw, extra: int) -> Callable:
        return self.s


def _space(q, coupled):
    """Where a function that w can move lives: z itself, or the zeta behind a discrete z."""
    return q.smooth if coupled or q.smooth == "z" else f"{q.smooth}, fresh"


def network(dim: int, hidden: int, rng: np.random.Generator) -> tuple[Callable, np.ndarray]:
    """A small network and its first weights: s(phi, z) = B.tanh(A z + a), phi one flat vector.

    The last layer starts at 0, so that the surrogate starts as the zero function.
    """
    shapes = [(dim, hidden), (hidden,), (hidden,)]
    ends = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])
    phi = np.concatenate([rng.standard_normal(ends[2]) / np.sqrt(dim), np.zeros(hidden)])

    def s(phi, z):
        A, a, B = (
            anp.reshape(phi[i:j], shape)
            for i, j, shape in zip(ends, ends[1:], shapes, strict=False)
        )
        return anp.dot(anp.tanh(anp.dot(z, A) + a), B)

    return s, phi


def variance_gradient(
    g: np.ndarray, s: Callable, phi: np.ndarray, line: Callable[[Callable], Estimator], draw: Draw
) -> np.ndarray:
    """Gradient in phi of mean_m |g_m|^2, where g = h + ... - c and c is `line(s_phi)`: (P,).

    The mean of g does not depend on phi, so this is an unbiased gradient of its variance from the
    samples of one draw. `g` (..., M, D) are the gradients at phi; `line` makes the control variate
    from a function, e.g. lambda s: GR(surrogate(f, s)) - RP1(surrogate(f, s)).
    c is linear in s: c = sum over its parts of s(points) score + pull(slope of s), and so is the
    derivative: weigh values by g.score and slopes by the adjoint of the pull, applied to g.
    """
    parts = line(lambda z: s(phi, z))
    if not isinstance(parts, Estimator) or not parts.is_control_variate:
        raise ValueError(f"line must make a control variate from a function; it made {parts!r}")
    weights = []
    for (method, atom), coef in parts.parts.items():
        if isinstance(atom, Surrogate):
            if method.rows:
                raise ValueError(f"{method} compares samples: variance_gradient takes SF, RP1, GR")
            route = draw.q.routes[atom.space][method.way]
            points = draw.at(route.at)
            by_value = by_slope = None
            if route.score:
                by_value = coef * (g * draw.of(route.score)).sum(-1)
            if route.pull:
                by_slope = coef * _adjoint(draw, route.pull, g, points.shape)
            weights.append((points, by_value, by_slope))

    def inner(phi):
        """-2 g.c_phi with g held fixed, summed over samples."""
        total = 0.0
        for points, by_value, by_slope in weights:
            if by_value is not None:
                total = total - 2 * anp.sum(by_value * s(phi, points))
            if by_slope is not None:
                slope = elementwise_grad(lambda z: s(phi, z))(points)
                total = total - 2 * anp.sum(by_slope * slope)
        return total

    return grad(inner)(phi) / (g.size / g.shape[-1])


def _adjoint(draw, pull, g, shape):
    """pull^T g, (..., M, d), from the pull of each unit vector."""
    pull, out, found = getattr(draw.q, pull), np.empty(g.shape), []
    for e in np.eye(shape[-1]):
        pull(draw, np.broadcast_to(e, shape), out)
        found.append((out * g).sum(-1))
    return np.stack(found, -1)
