"""Relaxation and surrogate: approximations that need no closed form, only two estimators.

A discrete z has a continuous variable zeta behind it (see `families.discrete`), and an integrand of
zeta has SF, RP1 and GR. Differences of these are the plain relaxation, REBAR (GR - RP1) and, with a
trained function, RELAX. For a continuous q a surrogate is a function of z itself.
"""

from collections.abc import Callable

from ..draws import Draw
from .atoms import Own
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
    GR(surrogate(f, s)) - RP1(surrogate(f, s)) with s trained along the way (chapter 6).
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
