"""How q climbs: L-BFGS, searches on fixed draws, and the strategies of a fit.

A strategy says whom it serves, where it begins, its steps, and how it is looked at. The first in
the list that serves a model and a family is taken.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from ..adapters.jax import InJax
from ..ascent import rules
from ..ascent.plans import Noisy, Plan, Regressed, State, Unaided
from ..ascent.rotated import Rotated
from ..deadline import Late, deadline
from ..draws import Sampling
from ..families.base import Family
from ..models.density import Density, Model, enough
from ..points import prime, spheres
from ..zoo import whole_gradient
from .settings import Settings

RISE, FLATTER = 1e-4, 0.9  # Wolfe's: shares of the rise that a slope promises, and of the slope
TRIES = 40  # on one line
STEPS = 300  # of one climb
SOME, TURNS = 20, 30  # turns of the slope that a climb remembers, and one on fixed draws
PROMISED, IN_THE_END = 1e-2, 1e-3  # nats that a step on fixed draws must promise to be taken


class Point(NamedTuple):
    """A place, the value there, and the slope."""

    z: np.ndarray  # (d,)
    value: float
    slope: np.ndarray  # (d,)


class Curvature(NamedTuple):
    """(-Hessian)^-1 as steps and the turns of the slope along them tell it, the last `most`."""

    most: int
    seen: tuple = ()  # (step, turn, step.turn) of each

    def see(self, old: Point, new: Point) -> "Curvature":
        """With one more, unless the slope turned the wrong way."""
        step, turn = new.z - old.z, old.slope - new.slope
        more = ((step, turn, step @ turn),) if step @ turn > 0 else ()
        return self._replace(seen=(*self.seen, *more)[-self.most :])

    def times(self, x: np.ndarray) -> np.ndarray:
        """(-Hessian)^-1 x for x (..., d): the two loops of L-BFGS."""
        shares = []
        for step, turn, both in reversed(self.seen):
            shares.append((x @ step)[..., None] / both)
            x = x - shares[-1] * turn
        if self.seen:
            _, turn, both = self.seen[-1]
            x = x * (both / (turn @ turn))
        for (step, turn, both), share in zip(self.seen, reversed(shares)):
            x = x + (share - (x @ turn)[..., None] / both) * step
        return x

    def diagonal(self, d: int) -> np.ndarray:
        """That of (-Hessian)^-1, (d,), by its compact form (Byrd, Nocedal and Schnabel 1994)."""
        if not self.seen:
            return np.ones(d)
        S, Y, both = map(np.array, zip(*self.seen))
        scale = both[-1] / (Y[-1] @ Y[-1])
        R = np.linalg.solve(np.triu(S @ Y.T), S)
        middle = np.diag(both) + scale * Y @ Y.T
        return scale + (R * (middle @ R - 2 * scale * Y)).sum(0)


def climb(
    f: Callable, z: np.ndarray, enough: float, steps: int = STEPS, known: Curvature | None = None
) -> tuple[Point, Curvature]:
    """The highest point that L-BFGS finds from z (d,), and the curvature that it saw on the way.

    f(z) gives value and slope; where they are no numbers nothing is looked for. It begins with the
    curvature that is known, of nearly the same f, say. Ends when a step promises to gain less than
    `enough`, after `steps`, or when it is late. The line search doubles and halves until Wolfe's
    weak conditions hold, which serves functions with kinks as well (Lewis and Overton 2013).
    """
    known = known or Curvature(SOME)
    here, curvature = Point(z, -np.inf, np.zeros_like(z)), known
    with suppress(Late):
        here = Point(z, *f(z))
        for _ in range(steps if np.isfinite(here.value) else 0):
            deadline.check()
            way = curvature.times(here.slope)
            if not curvature.seen:
                way = way / max(np.linalg.norm(way), 1.0)
            if not here.slope @ way / 2 > enough:
                break
            new = _along(f, here, way)
            if new.value > here.value:
                here, curvature = new, curvature.see(here, new)
            elif curvature.seen:
                curvature = Curvature(known.most)  # it misled
            else:
                break
    return here, curvature


def _along(f, here, way):
    """The point on the line that Wolfe's conditions ask for, or the best one seen."""
    promised, best = here.slope @ way, here
    near, far, length = 0.0, np.inf, 1.0
    for _ in range(TRIES):
        z = here.z + length * way
        new = Point(z, *f(z))
        if new.value > best.value:
            best = new
        if not new.value >= here.value + RISE * length * promised:
            far = length
        elif new.slope @ way > FLATTER * promised:
            near = length
        else:
            return new
        length = 2 * near if far == np.inf else (near + far) / 2
    return best


# Fixed draws --------------------------------------------------------------------------------------


def top(
    model: Model, q: Any, w: np.ndarray, rng: np.random.Generator, turns: int = 1,
    enough: float = PROMISED,
) -> np.ndarray:  # fmt: skip
    """w (D,) of the highest ELBO on fixed rotations that a climb from w finds, for a Gaussian q.

    There every cubic has its exact mean, and the ELBO is a smooth function of w without noise
    (fixed draws: Giordano, Ingram and Broderick 2024). The climb learns how its slope turns, and
    follows a valley that bends, where natural steps creep. The top belongs to these draws.
    """
    density, (e, weight) = Density(model), spheres(rng, q.dim, turns=turns)
    mu, factor = q.unpack(w)
    fine = None  # (n,) draws at which log p has a slope, where the climb begins

    def elbo(v):
        """At v, a w in the coordinates of the q where the climb began."""
        nonlocal fine
        if not v[q.diag].min() > 0:
            return -np.inf, v
        m, C = q.unpack(v)
        u = m + q.times(C, e)
        value, slope = density.slope(mu + q.times(factor, u))
        G = q.times_t(factor, slope)
        if fine is None:
            fine = np.isfinite(value) & np.isfinite(G).all(-1)
        if weight @ fine < 0.5:
            return -np.inf, v
        value = np.where(fine, value, -np.vecdot(u, u) / 2)  # as if q were right there
        G = weight[:, None] * np.where(fine[:, None], G, -u)
        of_factor = G.T @ e if q.full else (G * e).sum(0)
        slope = q.joined(G.sum(0), of_factor) + q.entropy_grad(v)
        height = weight @ value + np.log(v[q.diag]).sum()
        return height if np.isfinite(slope).all() else -np.inf, slope

    v = climb(elbo, q.start(), enough, known=Curvature(TURNS))[0].z
    m, C = q.unpack(v)
    return q.joined(mu + q.times(factor, m[None])[0], q.compose(factor, C))


@dataclass(frozen=True)
class Fixed(Unaided):
    """Climbs of a diagonal q, each on twice as many fixed rotations as the one before.

    A natural step of a diagonal q moves every coordinate as if alone: where they lean on each
    other the steps overshoot. A climb sees how the slope really turns.
    """

    _: KW_ONLY
    turns: int = 1  # rotations of the first climb
    full = False

    @property
    def M(self) -> int:
        return 2 * self.q.dim * self.turns + 1

    def memory(self, w):
        return ()

    def step(self, state: State) -> State:
        """The state after one more climb."""
        assert state.rng is not None
        turns = self.turns * 2**state.t
        w = top(self.model, self.q, state.w, state.rng, turns, IN_THE_END)
        return state._replace(t=state.t + 1, w=w)


# Strategies ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
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
        return _rotated(model, q, M, max(2 if few else 1, settings.draws // (4 * prime(q.dim))))

    def begin(self, run: Any) -> np.ndarray:
        """w (D,) before the first step."""
        w, few = run.state.w, run.q.dim <= run.settings.fixed
        return top(run.model, run.q, w, run.state.rng) if self.climbs and few else w

    def look(self, run: Any) -> str:
        """A look at the ELBO: why the run ends, or ""."""
        return run.compare()


def _rotated(model, q, M, radii, **how):
    """Steps with at least M draws."""
    points = 4 * prime(q.dim) * radii  # of a rotation with each of the radii
    return Rotated(model, q, radii=radii, turns=-(-(M or 1) // points), **how)


class _Passes(Strategy):
    """From the mode of some of many rows, whose curvature is right, and which lies far off.

    A pass over all rows is long: one rotation a step, and one more pass tells what is left.
    """

    name, first, climbs = "passes", 2, False

    def serves(self, model, q, M, settings):
        return enough(model) < model.N

    def plan(self, model, q, M, settings):
        radii = max(1, settings.draws // (4 * prime(q.dim)))
        return _rotated(model, q, M, radii, reach=settings.reach)

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
        return _rotated(model, q, M, 2)


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
