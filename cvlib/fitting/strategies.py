"""Strategies of a fit: whom each serves, where it begins, its steps, and how it is looked at.

The first in the list that serves a model and a family is taken.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..adapters.jax import InJax
from ..ascent import rules
from ..ascent.plans import Noisy, Plan, Regressed
from ..ascent.rotated import Rotated
from ..draws import Sampling
from ..families.base import Family
from ..models.density import Density, Model, enough
from ..points import prime
from ..zoo import whole_gradient
from .climbing import Fixed, top
from .settings import Settings


@dataclass(frozen=True, repr=False)
class Strategy:
    """Natural steps of a full q on rotated draws, without a rate to choose; others differ in parts.

    A run is looked at after `first` steps, after twice as many, and so on.
    """

    name, first = "rotated", 10
    widths = False  # does the first step need widths alone, and no factor of a covariance?
    climbs = True  # to the top of the ELBO on fixed draws before it, up to some unknowns?
    says = "natural steps, {plan.M} slopes at rotated draws in each, all data"

    def serves(self, model: Model, q: Family, M: int | None, settings: Settings) -> bool:
        """May a model be fitted so? M is the number of draws a step, if one was asked for."""
        return True

    def plan(self, model: Model, q: Family, M: int | None, settings: Settings) -> Plan:
        """The plan of the steps."""
        few = q.dim <= settings.fixed  # else directions enough
        return self._rotated(model, q, M, settings, radii=2 if few else 1)

    def begin(self, run: Any) -> np.ndarray:
        """w (D,) before the first step."""
        w, few = run.state.w, run.q.dim <= run.settings.fixed
        return top(run.model, run.q, w, run.state.rng) if self.climbs and few else w

    def look(self, run: Any) -> str:
        """A look at the ELBO: why the run ends, or ""."""
        return run.compare()

    def __repr__(self):
        return self.name

    @staticmethod
    def _rotated(model, q, M, settings, radii, reach=rules.REACH):
        points = 4 * prime(q.dim)  # of one rotation
        radii = max(radii, settings.draws // points)
        return Rotated(model, q, radii=radii, turns=-(-(M or 1) // (points * radii)), reach=reach)


class _Passes(Strategy):
    """From the mode of some of many rows, whose curvature is right, and which lies far off.

    A pass over all rows is long: one rotation a step, and one more pass tells what is left.
    """

    name, first, climbs = "passes", 2, False

    def serves(self, model, q, M, settings):
        return enough(model) < model.N

    def plan(self, model, q, M, settings):
        return self._rotated(model, q, M, settings, radii=1, reach=settings.reach)

    def look(self, run):
        return run.left()


class _Groups(Strategy):
    """The same steps, fewer and on fewer draws, where effects of many groups are integrated out.

    A point is expensive then, and what is left is nearly normal: no search on fixed draws is due.
    """

    name, first, climbs = "groups", 4, False

    def serves(self, model, q, M, settings):
        return model.effects is not None and q.full and settings.cheap < 100 * Density(model).size

    def plan(self, model, q, M, settings):
        return Rotated(model, q, radii=2, turns=-(-(M or 1) // (8 * prime(q.dim))))


class _Compiled(Strategy):
    """The same steps inside JAX, on one rotation of a model that JAX has traced."""

    name, first, says = "compiled", 4, Strategy.says + ", inside JAX"
    widths = True

    def serves(self, model, q, M, settings):
        return q.dim > settings.fixed and model.traced is not None and M is None

    def plan(self, model, q, M, settings):
        return InJax(model, q)


class _Diagonal(Strategy):
    """Climbs of a diagonal q on fixed draws, ever more of them."""

    name, first, climbs = "diagonal", 1, False
    says = "searches on fixed draws, {plan.M} slopes at rotated draws at first, all data"

    def serves(self, model, q, M, settings):
        return not q.full

    def plan(self, model, q, M, settings):
        return Fixed(model, q, turns=-(-(M or 1) // (2 * q.dim + 1)))


class _Regressed(_Diagonal):
    """Natural steps of a diagonal q of so many unknowns that rotations take too long."""

    name, first = "regressed", 20
    says = "natural steps, {plan.M} slopes regressed on their draws in each, all data"

    def serves(self, model, q, M, settings):
        return not q.full and q.dim > settings.full

    def plan(self, model, q, M, settings):
        return Regressed(model, q, M=M or 10)


class _Adam(_Diagonal):
    """Adam's steps on the best line of a family that is no Gaussian."""

    name, first = "adam", 200
    says = "Adam's steps with {plan.M} draws, all data, on {plan.h!r}"

    def serves(self, model, q, M, settings):
        return not q.gaussian

    def plan(self, model, q, M, settings):
        rate = rules.falling(settings.rate, settings.after, 0.5)
        h, whole = whole_gradient(model, q), Sampling(subsample=False)
        return Noisy(model, q, h, M=M or 10, lr=rate, rule=rules.adam(), average=1, sampling=whole)


STRATEGIES = (_Adam(), _Regressed(), _Diagonal(), _Compiled(), _Groups(), _Passes(), Strategy())


def chosen(model: Model, q: Family, M: int | None, settings: Settings) -> Strategy:
    """The strategy that a model is fitted by."""
    return next(one for one in STRATEGIES if one.serves(model, q, M, settings))


def named(name: str) -> Strategy:
    """The strategy of this name, which a file tells."""
    return {one.name: one for one in STRATEGIES}[name]
