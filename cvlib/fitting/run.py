"""A fit on its way: its steps, and looks at it, until the ELBO has settled or a budget is spent."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arguments import number, whole
from ..ascent.plans import Plan, State
from ..deadline import Late, deadline
from ..families.base import Family
from ..models.density import Model
from . import bends
from .looks import FEW, Weights, at_most, explained, sizes, weighed
from .settings import Settings
from .strategies import Strategy

KEYBOARD, LATE = "stopped from the keyboard", "out of time"
UNBENT = "was not bent: that begins when the ELBO has settled"
VAIN = "tried to bend, and nothing was gained beyond doubt"


class Clock:
    """When to stop: at a step, or at a time that leaves room for a step and the last looks."""

    def __init__(
        self, seconds: float | None, steps: int | None, settings: Settings, taken: int = 0
    ):
        if not isinstance(settings, Settings):
            raise TypeError(f"settings={settings!r} is no cv.Settings(tolerance=0.01)")
        self.began, self.look = time.perf_counter(), None
        self.step: float | None = None  # seconds of the last one
        self.seconds = np.inf if steps is not None else settings.seconds
        if seconds is not None:
            self.seconds = number("seconds", seconds, 0, above=True)
        self.steps = np.inf if steps is None else whole("steps", steps)
        if self.steps <= taken:
            raise ValueError(f"the fit has taken {taken} steps: steps={steps} must lie beyond")

    @property
    def passed(self) -> float:
        return time.perf_counter() - self.began + deadline.ahead

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

    model: Model
    q: Family
    strategy: Strategy
    settings: Settings
    M: int | None  # draws a step, if it was said
    state: State
    best: np.ndarray  # (D,) w at the best look
    trouble: str = ""  # of the density, seen at the start
    words: tuple = ()
    looks: tuple = ()  # (step, elbo, error)
    settled: bool = False
    seconds: float = 0.0
    rivals: str = ""  # other modes that the search saw
    spike: str = ""  # a scale that collapsed where the search ended
    bends: bool | None = False  # is q to bend in the end? None: if its shape is wrong
    seed: int = 0  # of the draws that it bends on
    bent: Any = None  # how it did, a `Bend`
    last: Any = None  # the last look, `Weights`, where it was taken before the fit was judged

    @cached_property
    def plan(self) -> Plan:
        return self.strategy.plan(self.model, self.q, self.M, self.settings)

    @property
    def law(self) -> tuple[Family, np.ndarray]:
        """The q that was found in the end, and its weights."""
        return (self.q, self.best) if self.bent is None else self.bent[:2]

    @property
    def can_bend(self) -> bool:
        return self.q.full and self.q.dim <= self.settings.bend

    def bend(self, clock: Clock) -> None:
        """Let a q bend that has settled, if that is asked for, or it is cheap and `wanted`."""
        if self.bends is False or not self.can_bend:
            return
        if not self.settled:
            self.words = (*self.words, *[UNBENT] * bool(self.bends))
            return
        begun, late, why = clock.passed, lambda: clock.over(0.8), ""  # the rest is for the judge
        try:
            with deadline.until(clock.over), np.errstate(all="ignore"):
                seen = weighed(self.model, self.q, self.best, self.state.t + 1)
                cheap = bends.cheap(self.model, self.settings)
                if self.bends or cheap and bends.wanted(seen, self.settings):
                    self.bent = bends.bend(self.model, self.best, late, self.seed, self.settings)
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

    def go(self, clock: Clock, bar: Any, told: Callable | None = None, why: str = "") -> None:
        """Steps until settled or out of budget, none if there is a reason."""
        self.settled, self.last, before = False, None, self.seconds
        try:
            with np.errstate(all="ignore"):
                while not why:
                    why = self._block(clock, bar)
                    self.seconds = before + clock.passed
                    if self.state.diverged < 0 and told is not None and told():
                        why = why or "stopped by the callback"
        except KeyboardInterrupt:
            why = KEYBOARD
        self.seconds = before + clock.passed
        self.words = (*self.words, f"{why} after step {self.state.t}")

    def _block(self, clock, bar):
        """Steps to the next look, and the look: "" to go on, or why the run ended."""
        first = end = self.strategy.first
        while end <= self.state.t:
            end *= 2
        if self.state.t == 0 or self.state.t == end // 2 >= first:
            self.state = self.plan.renewed(self.state)
        try:
            with suppress(Late), deadline.until(lambda: clock.out(0)):
                self._steps(min(end, clock.steps), clock, bar)
        finally:
            self.state = self.plan.landed(self.state)
        if self.state.diverged >= 0:
            return f"diverged at step {int(self.state.diverged)}: it ended there,"
        why = LATE
        with suppress(Late), deadline.until(clock.over):
            why, clock.look = _timed(lambda: self.strategy.look(self))
        if why or self.state.t < clock.steps:
            return why or (LATE if clock.out() else "")
        return "out of steps"

    def _steps(self, end, clock, bar):
        """Steps up to this one, if there is time and none diverges."""
        while self.state.t < end and not clock.out() and self.state.diverged < 0:
            if self.state.t == 0 and not self.looks:
                with deadline.until(clock.out):
                    self.state = self.state._replace(w=self.strategy.begin(self))
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

    def compare(self) -> str:
        """Compare with the best w so far on the same draws: why the run ends, or ""."""
        t, tolerance = self.state.t, self.settings.tolerance
        w = self.state.mean if self.state.count else self.state.w
        gain = np.empty(0)
        several = sizes(self.model, self.settings)
        for n in several:
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
            most = at_most(gain, len(self.looks) + 1, self.settings)
            told = abs(gain.mean() - tolerance) > most - gain.mean()  # on which side it is
            if told or both < n:
                break
        known = np.isfinite(old.elbo[0])
        worse = known and not most > -tolerance / 50  # beyond doubt, or no number
        if not (worse or known and gain.mean() < -tolerance / 5):
            self.best = w
        doubled = bool(self.looks) and 0 < t == 2 * self.looks[-1][0]
        self.looks = (*self.looks, (t, *map(float, new.elbo)))
        if doubled and not worse and most < tolerance and both >= several[0]:
            self.settled = True
            more = round(gain.mean(), 2) + 0.0  # no minus zero
            return f"the ELBO settled (twice the steps gained {more:.2f} nats): it stopped"
        return ""

    def left(self) -> str:
        """One more pass: what a better Gaussian would gain, which for many rows is soon nothing."""
        self.best = self.state.w
        gain = explained(self.model, self.q, self.best, self.state.t)[1]
        self.settled = bool(gain < self.settings.tolerance)
        return f"a better Gaussian would gain {gain:.2f} nats: it stopped" if self.settled else ""


def _timed(f):
    """What f() says, and the seconds that it took."""
    begun = time.perf_counter()
    return f(), time.perf_counter() - begun
