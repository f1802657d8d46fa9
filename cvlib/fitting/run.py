"""A fit on its way: its steps, and looks at it, until the ELBO has settled or a budget is spent."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..adapters.jax import InJax
from ..arguments import number, whole
from ..ascent import exact, rules
from ..ascent.plans import Noisy, Plan, Regressed, State, scored
from ..ascent.rotated import Rotated
from ..combining import regression
from ..draws import Draw, Sampling
from ..families.base import Family
from ..models.density import Density, Model, enough
from ..models.passes import Late, ahead, until
from ..points import prime
from ..zoo import whole_gradient
from . import bends, starts
from .tails import HEAVY, Weights

SECONDS = 60.0  # the budget where none is given
# steps to a look; then twice as many, and so on
FIRST = {"full": 10, "compiled": 4, "diagonal": 20, "passes": 2, "adam": 200}
LEAST = 40  # draws that a step of a full q has, or nearly: more radii for few unknowns with kinks
CLIMB = 100  # unknowns up to which a search on fixed draws pays: with more it is dear
FAR_OFF = 100.0  # standard deviations that a step may go from the mode of some of many rows
EXACT = 2**23, 2**28  # numbers that quadrature may make of the data: nodes, and factors of q
RATE, AFTER = 0.1, 100  # Adam's: this rate, and from this step on it falls like t^-1/2
KEYBOARD, LATE = "stopped from the keyboard", "out of time"
UNBENT = "was not bent: that begins when the ELBO has settled"
VAIN = "tried to bend, and nothing was gained beyond doubt"
LOOKS, LAST = (250, 1000, 4000), 4000  # draws for a look at the ELBO, few or many; the last one
FEW, BLOCK = 2, 256  # draws that any look has; at most so many at a time of a compiled model
TOLERANCE, CHANCE = 0.05, 0.05  # nats that may be left to gain, and the chance to be wrong there
FAIR = 0.5  # share of draws that weights should leave
BIG = 1.5  # times the mean weight: k-hat has no scale, and no tail matters where none is larger


def way(model: Model, q: Family, M: int | None = None) -> str:
    """The kind of steps that a model is fitted by; a rotation has no other number M of draws."""
    nodes, factors = 50 * model.N, model.N * q.dim * (q.dim if q.full else 1)
    if not q.gaussian:
        return "adam"
    if model.likelihood is not None and nodes < EXACT[0] and factors < EXACT[1]:
        return "exact"
    if not q.full:
        return "diagonal"
    if q.dim > CLIMB and model.traced is not None and M is None:
        return "compiled"
    return "passes" if enough(model) < model.N else "full"


def planned(kind: str, model: Model, q: Family, M: int | None = None) -> Plan:
    """The plan of the steps.

    "full": on rotated draws, without a rate to choose. "passes": on one rotation from the mode of
    some of many rows, whose curvature is right and which lies many standard deviations off.
    "compiled": the same inside JAX. "diagonal": on the regression of slopes on draws. "adam": on
    the family's best line.
    """
    if kind == "exact":
        return Plan(model, q, lr=1.0)
    if kind == "compiled":
        return InJax(model, q)
    if kind == "adam":
        return Noisy(
            model, q, whole_gradient(model, q), M=M or 10, lr=rules.falling(RATE, AFTER, 0.5),
            rule=rules.adam(), average=1, sampling=Sampling(subsample=False),
        )  # fmt: skip
    if not q.full:
        return Regressed(model, q, M=M or 10)
    reach = FAR_OFF if kind == "passes" else rules.REACH
    one = kind == "passes" or q.dim > CLIMB  # nearly a Gaussian, or directions enough
    directions = 2 * prime(q.dim)
    radii = max(1 if one else 2, LEAST // (2 * directions))
    turns = -(-(M or 1) // (2 * directions * radii))
    return Rotated(model, q, radii=radii, turns=turns, reach=reach)


class Clock:
    """When to stop: at a step, or at a time that leaves room for a step and the last looks."""

    def __init__(self, seconds: float | None, steps: int | None, taken: int = 0):
        self.began, self.look = time.perf_counter(), None
        self.step: float | None = None  # seconds of the last one
        self.seconds = np.inf if steps is not None else SECONDS
        if seconds is not None:
            self.seconds = number("seconds", seconds, 0, above=True)
        self.steps = np.inf if steps is None else whole("steps", steps)
        if self.steps <= taken:
            raise ValueError(f"the fit has taken {taken} steps: steps={steps} must lie beyond")

    @property
    def passed(self) -> float:
        return time.perf_counter() - self.began + ahead.get()

    def too_short(self, model: Model) -> list[str]:
        """A sentence, where JAX compiles for longer than there is time."""
        slow = getattr(model.traced, "slowest", 0.0)
        says = f"JAX takes {slow:.2g} s to compile one function of this model, the budget is"
        return [f"{says} {self.seconds:.2g} s: little of it may be fitted"] * (slow > self.seconds)

    def over(self, share: float = 1.0, more: float = 0.0) -> bool:
        """Has this share of the time passed, and so many seconds more?"""
        return self.passed > share * self.seconds + more

    def stepped(self, seconds: float) -> None:
        """So long was a step; the first may have compiled something, and is no measure."""
        self.step = 0.0 if self.step is None else seconds

    def out(self, steps: int = 1) -> bool:
        """Is there no time for so many steps and the last looks? A tenth, before one was seen."""
        left = self.seconds - self.passed - steps * (self.step or 0.0)
        return left < (0.1 * self.seconds if self.look is None else 2.5 * self.look)


@dataclass
class Run:
    """State of the loop, and what was seen at the looks."""

    model: Any  # None in a file
    q: Family
    kind: str  # "full", "compiled", "diagonal", "passes", "adam" or "exact"
    M: int | None  # draws a step, if it was said
    state: State
    best: np.ndarray  # (D,) w at the best look
    trouble: str = ""  # of the density, seen at the start
    words: tuple = ()
    looks: tuple = ()  # (step, elbo, error)
    settled: bool = False
    seconds: float = 0.0
    rivals: str = ""  # other modes that the search saw
    ended: str = ""  # why; LATE if there was no time for more
    bends: bool | None = False  # is q to bend in the end? None: if its shape is wrong
    seed: int = 0  # of the draws that it bends on
    bent: Any = None  # how it did, a `Bend`
    last: Any = None  # the last look, `Weights`, where it was taken before the fit was judged

    @cached_property
    def plan(self) -> Plan:
        return planned(self.kind, self.model, self.q, self.M)

    @property
    def law(self) -> tuple[Family, np.ndarray]:
        """The q that was found in the end, and its weights."""
        return (self.q, self.best) if self.bent is None else self.bent[:2]

    @property
    def can_bend(self) -> bool:
        return self.q.full and self.q.dim <= bends.MOST

    def bend(self, clock: Clock) -> None:
        """Let a q bend that has settled, if that is asked for, or cheap and its shape is wrong."""
        if self.bends is False or not self.can_bend or self.trouble and not self.bends:
            return
        if not self.settled:
            self.words = (*self.words, *[UNBENT] * bool(self.bends))
            return
        begun, late, why = clock.passed, lambda: clock.over(0.8), ""  # the rest is for the judge
        try:
            with until(clock.over), np.errstate(all="ignore"):
                seen = weighed(self.model, self.q, self.best, self.state.t + 1)
                if self.bends or poor(seen) and bends.cheap(self.model):
                    self.bent = bends.bend(self.model, self.best, late, self.seed)
                    why = VAIN if self.bent is None else str(self.bent)
                self.last = seen if self.bent is None else None
        except Late:
            why = f"{LATE} before it was bent"
        except KeyboardInterrupt:
            why = f"{KEYBOARD} before it was bent"
        except Exception as error:  # functions of the reader's fail in many ways: the q stays
            why = f"could not be bent: {type(error).__name__}: {error}"
        self.words = (*self.words, *filter(None, [why]))
        self.seconds += clock.passed - begun

    def __getstate__(self):
        return {name: x for name, x in vars(self).items() if name != "plan"} | {"last": None}

    def go(self, clock: Clock, bar: Any, told: Callable | None = None, why: str = "") -> "Run":
        """Steps until settled or out of budget, none if there is a reason."""
        self.settled, self.last, before = False, None, self.seconds
        try:
            with np.errstate(all="ignore"):
                while not why:
                    step = self._optimum if self.kind == "exact" else self._block
                    why = step(clock, bar)
                    self.seconds = before + clock.passed
                    looked = self.state.diverged < 0
                    if looked and told is not None and told():
                        why = why or "stopped by the callback"
        except KeyboardInterrupt:
            why = KEYBOARD
        self.seconds, self.ended = before + clock.passed, why
        self.words = (*self.words, f"{why} after step {self.state.t}")
        return self

    def _optimum(self, clock, bar):
        """Natural steps on the exact ELBO; draws, where they do not arrive."""
        try:
            with until(clock.out):
                self.best = exact.optimum(self.model, self.q, self.best)
        except RuntimeError:
            self.kind = "full" if self.q.full else "diagonal"
            vars(self).pop("plan", None)  # that of another kind
            self.state = self.plan.first(self.state.rng, self.best)
            return self._block(clock, bar)
        self.settled = not clock.out()
        with until(clock.over):
            self._seen(weighed(self.model, self.q, self.best, 0))
        return "the optimum of the exact ELBO: nothing is left to gain" if self.settled else LATE

    def _block(self, clock, bar):
        """Steps to the next look, and the look: "" to go on, or why the run ended."""
        first = end = FIRST[self.kind]
        while end <= self.state.t:
            end *= 2
        if self.state.t == 0 or self.state.t == end // 2 >= first:
            self.state = self.state._replace(mean=np.zeros_like(self.state.w), count=0)
            if self.kind == "diagonal":  # the rule's mean was over places farther from the end
                s, ridge = self.state.memory
                self.state = self.state._replace(memory=(0 * s, ridge))
        try:
            with suppress(Late), until(lambda: clock.out(0)):
                self._steps(min(end, clock.steps), clock, bar)
        finally:
            self.state = self.plan.landed(self.state)
        if self.state.diverged >= 0:
            return f"diverged at step {int(self.state.diverged)}: it ended there,"
        why = LATE
        with suppress(Late), until(clock.over):
            why, clock.look = _timed(self._left if self.kind == "passes" else self._look)
        if why or self.state.t >= clock.steps or clock.out():
            return why or ("out of steps" if self.state.t >= clock.steps else LATE)
        return ""

    def _steps(self, end, clock, bar):
        """Steps up to this one, if there is time and none diverges."""
        while self.state.t < end and not clock.out() and self.state.diverged < 0:
            if self.kind == "full" and self.state.t == 0 and not self.looks:
                with until(clock.out):
                    w = starts.top(self.model, self.q, self.state.w, self.q.dim <= CLIMB)
                self.state = self.state._replace(w=w)
            clock.stepped(_timed(self._step)[1])
            bar.update()

    def _step(self):
        """One step; one that is cut off has not begun."""
        rng: Any = self.state.rng
        before = rng.bit_generator.state
        try:
            self.state = self.plan.step(self.state)
        except (KeyboardInterrupt, Late):
            rng.bit_generator.state = before
            raise

    def _look(self):
        """Compare with the best w so far on the same draws."""
        t = self.state.t
        w = self.state.mean if self.state.count else self.state.w
        gain = np.empty(0)
        for n in sizes(self.model):
            pair = []
            for x in (self.best, w):
                pair.append(weighed(self.model, self.q, x, t, n))
                if len(pair[-1].log) <= FEW:
                    raise Late
            both = min(len(x.log) for x in pair)
            if both < len(gain):
                break  # there was no time for more draws than before
            old, new = (Weights(x.z[:both], x.log[:both]) for x in pair)
            gain = (new.log - old.log)[new.fine & old.fine]
            gain = gain if len(gain) > 1 else np.full(2, np.nan)
            most = at_most(gain, len(self.looks) + 1)
            told = abs(gain.mean() - TOLERANCE) > most - gain.mean()  # on which side it is
            if told or both < n:
                break
        known = np.isfinite(old.elbo[0])
        worse = known and not most > -TOLERANCE / 50  # beyond doubt, or no number
        if not (worse or known and gain.mean() < -TOLERANCE / 5):
            self.best = w
        doubled = bool(self.looks) and 0 < t == 2 * self.looks[-1][0]
        self._seen(new)
        if doubled and not worse and most < TOLERANCE and both >= sizes(self.model)[0]:
            self.settled = True
            more = round(gain.mean(), 2) + 0.0  # no minus zero
            return f"the ELBO settled (twice the steps gained {more:.2f} nats): it stopped"
        return ""

    def _left(self):
        """One more pass: what a better Gaussian would gain, which for many rows is soon nothing."""
        self.best = self.state.w
        left = explained(self.model, self.q, self.best, self.state.t)[1]
        gain = left * self.q.dim / 2
        self.settled = bool(gain < TOLERANCE)
        return f"a better Gaussian would gain {gain:.2f} nats: it stopped" if self.settled else ""

    def _seen(self, found: Weights) -> None:
        self.looks = (*self.looks, (self.state.t, *map(float, found.elbo)))


def _timed(f):
    """What f() says, and the seconds that it took."""
    begun = time.perf_counter()
    return f(), time.perf_counter() - begun


# Looks at the ELBO, and at the shape of q ---------------------------------------------------------


def sizes(model: Model) -> list[int]:
    """Draws for a look at the ELBO, few or many: fewer where data are many, but three numbers."""
    return [_draws(model, n // 4, n) for n in LOOKS]


def weighed(model: Model, q: Family, w: np.ndarray, seed: int, n: int | None = None) -> Weights:
    """n draws of q_w, as many of them as there is time for; the last look's if n is not given.

    The same seed gives the same base sample.
    """
    n = n or _draws(model, 64, LAST)
    eps = q.noise(np.random.default_rng([seed, n]), w, n)
    draw = Draw(model, q, w, eps, None)
    log_p = _in_time(Density(model), draw.z)
    some = slice(len(log_p))
    return Weights(draw.z[some], log_p - draw.of("log_q1")[some])


def big(found: Weights) -> bool:
    """Is there a weight that is larger than most?"""
    return bool(found.share.max() * len(found.log) > BIG)


def poor(found: Weights) -> bool:
    """Do weights leave too few draws, or have too heavy a tail?"""
    return not found.effective >= FAIR or bool(found.k_hat > HEAVY and big(found))


def _draws(model, least, most):
    return int(np.clip(2**25 // Density(model).size, least, most))


def _in_time(density, z):
    """log p at the first of the points z (n, d), as many as there is time for."""
    found, most = [], len(z) if density.model.rows else BLOCK
    block = int(np.clip(2**25 // density.size, FEW, most))
    with suppress(Late):
        for first in range(0, len(z), block):
            found.append(density.value(z[first : first + block]))
    if not found:
        with until(None):
            found = [density.value(z[:FEW])]
    return np.concatenate(found)


def at_most(gain: np.ndarray, look: int) -> float:
    """What the mean of gain (n,) is at most, wrong with a chance of CHANCE in all.

    A look has CHANCE / 2^look of it, and each of the sizes that it may try an equal share of that.
    """
    from statistics import NormalDist  # seldom needed, and slow to load

    sds = -NormalDist().inv_cdf(CHANCE / 2**look / len(LOOKS))
    return gain.mean() + sds * gain.std(ddof=1) / np.sqrt(len(gain))


def explained(model: Model, q: Family, w: np.ndarray, seed: int) -> tuple[float, float]:
    """How much of the slope of log p a quadratic explains, and what a better Gaussian would remove.

    The second is `regression.gauge`'s removable / d: the best ELBO lies about removable / 2 higher.
    Neither is a number where there is no time for it.
    """
    least = q.dim + 20 if q.full else 20
    M = int(np.clip(2**23 // Density(model).size, least, max(least, 200)))
    try:
        draw, _, G = scored(model, q, w, np.random.default_rng([seed, M, 1]), M)
    except Late:
        return np.nan, np.nan
    fine = np.isfinite(G).all(-1)
    if fine.sum() < M / 2:
        return np.nan, np.nan
    e, G = draw.eps[fine], G[fine]
    seen = regression.gauge(e, G, diagonal=not q.full)
    share = np.clip(1 - seen.residual / (G**2).sum(-1).mean(), 0, 1)  # without bias it may lie out
    return float(share), float(seen.removable / q.dim)
