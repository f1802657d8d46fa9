"""A fit on its way: its steps and looks, until the ELBO has settled or a budget is spent.

It is kept in a file of arrays and JSON, in NumPy's zip archive: nothing in it can run. The names in
a file are those of its format. They stay when attributes here get other names.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import families
from ..arguments import number, whole
from ..deadline import Late, deadline
from ..families.base import Family
from ..models.density import Density, Model
from . import bends, starts
from .looks import FEW, Weights, at_most, explained, sizes, weighed
from .settings import Settings
from .strategies import Strategy, named

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
        self.step: float | None = None  # seconds of the last one; of the first, which compiles, 0
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
    state: Any = None  # of the steps, a `State`
    best: Any = None  # (D,) w at the best look
    trouble: str = ""  # of the density, seen at the start
    words: tuple = ()
    looks: tuple = ()  # (step, elbo, error)
    settled: bool = False
    seconds: float = 0.0
    rivals: str = ""  # other modes that the search saw
    spike: str = ""  # a scale that collapsed where the search ended
    bends: bool | None = False  # is q to bend in the end? None: if its shape is wrong
    seed: int = 0
    bent: Any = None  # how it did, a `Bend`
    last: Any = None  # the last look, `Weights`, where it was taken before the fit was judged

    @cached_property
    def plan(self) -> Any:
        return self.strategy.plan(self.model, self.q, self.M, self.settings)

    @property
    def law(self) -> tuple[Family, np.ndarray]:
        """The q that was found in the end, and its weights."""
        return (self.q, self.best) if self.bent is None else self.bent[:2]

    @property
    def can_bend(self) -> bool:
        return self.q.full and self.q.dim <= self.settings.bend

    def begin(self, given: starts.Start | None, restarts: int | None, clock: Clock) -> str:
        """Finds where to begin: why the run ends there, or ""."""
        q, strategy = self.q, self.strategy
        if q.gaussian:
            late, too_late = (partial(clock.over, share) for share in (1 / 3, 1 / 2))
            ahead = 2 * strategy.first * self.plan.M  # gradients until it settles, at least
            how = given, restarts, late, self.seed, self.settings, ahead
            with deadline.until(too_late):
                begin = starts.start(self.model, q.full and not strategy.widths, *how)
            S = np.diag(begin.S) if q.full and begin.S.ndim == 1 else begin.S
            self.best = q.joined(begin.mu, S)
        else:
            begin = starts.Start(np.empty(0), None, f"the usual start of {q!r}")
            self.best = q.start()
        self.state = self.plan.first(np.random.default_rng(self.seed), self.best)
        self.trouble, self.rivals, self.spike = begin.trouble, begin.rivals, begin.spike
        cut = f"the search for the mode was {KEYBOARD}; " * begin.stopped
        ran = ", for the search for the mode ran into a spike" * bool(begin.spike)
        self.words = *clock.too_short(self.model), f"{cut}began at {begin.says}{ran}"
        return KEYBOARD * begin.stopped

    def bend(self, clock: Clock) -> None:
        """Let a q bend that has settled, if that is asked for, or it is cheap and `wanted`."""
        if self.bends is False or not self.can_bend:
            return
        if not self.settled:
            self.words += (UNBENT,) * bool(self.bends)
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
        except (Late, KeyboardInterrupt) as error:
            why = f"{cause(error)} before it was bent"
        except Exception as error:  # functions of the reader's fail in many ways: the q stays
            why = f"could not be bent: {cause(error)}"
        self.words += (why,) * bool(why)
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
        self.words += (f"{why} after step {self.state.t}",)

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
            took = _timed(self._step)[1]
            clock.step = 0.0 if clock.step is None else took
            bar.update()

    def _step(self):
        """One step; one that is cut off has not begun."""
        rng = self.state.rng
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


def cause(error: BaseException) -> str:
    """Why something was cut off, or failed."""
    told = {Late: LATE, KeyboardInterrupt: KEYBOARD}
    return told.get(type(error), f"{type(error).__name__}: {error}")


# In a file ----------------------------------------------------------------------------------------

FORMAT = 1
PLAIN = "M trouble words looks settled seconds rivals spike bends seed".split()  # of a run
ARRAYS = "w a diverged mean".split()  # of its state
PICKLE = b"\x1f\x8b"  # files of 0.13 and before begin so
NOT_WHOLE = "it holds no fit that was saved whole"


class Broken(ValueError):
    """What makes a file no fit of a model; the sentence says why."""


def save(run: Run, path: str | Path) -> None:
    """A run into a file, whole or not at all; beside it what was seen of its model."""
    (q, w), state, bent = run.law, run.state, run.bent
    told = {
        "format": FORMAT, "model": {"name": repr(run.model), "data": run.model.checksum},
        "q": _named(run.q), "t": state.t, "count": state.count,
        "rng": state.rng.bit_generator.state, "bent": None, "strategy": run.strategy.name,
        "settings": asdict(run.settings), **{name: getattr(run, name) for name in PLAIN},
    }  # fmt: skip
    arrays = {name: getattr(state, name) for name in ARRAYS} | {"best": run.best}
    for name in "memory", "moments":
        arrays |= {f"{name}_{k}": np.asarray(x) for k, x in enumerate(getattr(state, name))}
    z = q.sample(w, 5, np.random.default_rng(0))
    arrays |= {f"seen_{name}": x for name, x in _seen(run, z).items()} | {"seen_z": z}
    if bent is not None:
        told["bent"], arrays["bent"] = [_named(bent.q), bent.gain, bent.error, bent.says], bent.w
    text = json.dumps(told, default=lambda number: number.item())
    part = Path(f"{path}.part")
    with part.open("wb") as file:
        np.savez_compressed(file, told=np.array(text), **arrays)
    part.replace(path)


def load(path: str | Path, model: Model, q: Family | None) -> Run:
    """The run of this model that was saved; a family of the reader's own comes as q."""
    if not isinstance(model, Model):
        raise TypeError(f"{model!r} is no model: load(path, model) needs the fitted one")
    try:
        told, arrays = _read(path)
        name = told["model"]["name"]
        if name != repr(model):
            raise Broken(f"it is a fit of {name}, not of {model!r}")
        if told["model"]["data"] != model.checksum:
            raise Broken(f"it is a fit of {name} with other numbers in its data")
        run = restored(model, told, arrays, q)
        for what, new in _seen(run, arrays["seen_z"]).items():
            old = arrays[f"seen_{what}"]
            if (bad := ~np.isclose(old, new, rtol=1e-7, equal_nan=True)).any():
                raise Broken(
                    f"it is a fit of {name} with another {what} of log p(x, z): "
                    f"{old[bad][0]:.8g} in the file, and {new[bad][0]:.8g} here, at the same z"
                )
        return run
    except (Broken, KeyError, TypeError) as error:  # something is missing, or of another kind
        says = error if isinstance(error, Broken) else f"{NOT_WHOLE}: {error!r}"
        raise ValueError(f"{path}: {says}") from error


def _read(path):
    """What a file tells, and its arrays."""
    with Path(path).open("rb") as file:
        if file.read(2) == PICKLE:
            raise Broken("it is of version 0.13 or before, whose files could run code: fit anew")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        told = json.loads(str(arrays.pop("told")))
        number = told["format"]
    except Exception as error:  # a broken or foreign file fails in many ways
        raise Broken(f"{NOT_WHOLE}: {error!r}") from error
    if number != FORMAT:
        raise Broken(f"its format is {number}, and this version reads {FORMAT}: update cvlib")
    return told, arrays


def restored(model: Any, told: dict, arrays: dict[str, np.ndarray], q: Family | None) -> Run:
    """The run of a model that a file tells; a family of the reader's own comes as q."""
    numbers: Any = {k: tuple(x) if isinstance(x, list) else x for k, x in told["settings"].items()}
    plain = {name: told[name] for name in PLAIN} | {"words": tuple(told["words"])}
    who = _family(told["q"], q), named(told["strategy"]), Settings(**numbers)
    run = Run(model, *who, best=arrays["best"], **plain)
    run.looks, rng = tuple(map(tuple, run.looks)), np.random.default_rng()
    rng.bit_generator.state = told["rng"]
    state = run.plan.first(rng, arrays["w"])
    kept: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    kept |= {"t": told["t"], "count": told["count"], "moments": _numbered(arrays, "moments")}
    memory = _numbered(arrays, "memory")
    kept["memory"] = getattr(type(state.memory), "_make", tuple)(memory)
    run.state = state._replace(**kept)
    if told["bent"] is not None:
        kind, *rest = told["bent"]
        run.bent = bends.Bend(_family(kind, None), arrays["bent"], *rest)
    return run


def _seen(run, z):
    """What tells a model from others: log p at points z, and its slopes where it has any."""
    density = Density(run.model)
    if run.q.smooth != "z":
        return {"value": density.value(z)}
    return dict(zip(("value", "slope"), density.slope(z)))


def _named(q):
    kind, *values = q.key
    return [kind.__name__, *values]


def _family(told, given):
    """The family of this name and these arguments, or the one that was given."""
    kind, *values = told
    if given is not None or kind not in (*families.__all__, "Bent"):
        if given is None or _named(given)[0] != kind:
            raise Broken(f"its q is {kind}{tuple(values)}: give that family, load(path, model, q)")
        return given
    return getattr(bends if kind == "Bent" else families, kind)(*values)


def _numbered(arrays, name):
    many = sum(key.startswith(f"{name}_") for key in arrays)
    return tuple(arrays[f"{name}_{k}"] for k in range(many))
