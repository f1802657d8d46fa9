"""The rules of the race: what a way is, how a run of it is timed, judged and ended.

A way's run(problem, setting, seed, seconds) is a generator of `Look`s. Its first `next` does what
is done once for a model, such as compiling, and gives the start; every later one does some work and
is short against its seconds, the limit. Gradients are those of log p(x, z) with all data at one z:
a value counts as one too, a Hessian as d, a batch of a tenth of the data as a tenth.
"""

import resource
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.race_read import LOOK, TARGETS

LOWEST = 1e9  # nats missed by a q whose ELBO is no number
SLACK = 1.5  # times the best known, from which on a trial is late
EXTRAS = ("jax", "numpyro", "pymc", "blackjax")
SEARCH = "scipy.optimize"
OURS = ("cvlib", "scipy.linalg")  # which a large q's natural step loads at its first use
START, MODE, MOVES, STEPS, CLIMB = "start", "mode", "first moves", "steps", "search"


def clock():
    """Seconds of the processor that this process and those that it waited for have had.

    On one core that is the time one waits, if nothing else is done there.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


compiled: dict = {}  # (problem's name, kind): what was compiled in this process, and in what time
charged: list = []  # seconds of what the present run asked for and others had made


def once(key, build):
    """What build() makes, made once; whoever asks for it is charged for its making."""
    if key not in compiled:
        began = clock()
        made = build()
        compiled[key] = made, clock() - began
    else:
        charged.append(compiled[key][1])
    return compiled[key][0]


class Look(NamedTuple):
    """Gradients so far; w (D,) or a function that gives it; what brought q here.

    `at`: the seconds at which q was here, where that lies before the end of the run's turn.
    """

    gradients: float
    w: Any
    by: str = STEPS
    at: float | None = None


class Axis(NamedTuple):
    """The values of a setting in their order, those of the coarse grid, and do they have an order?

    `natural` are ends beyond which there is nothing: no fewer first moves than none.
    """

    values: tuple
    coarse: tuple
    ordered: bool = True
    natural: tuple = ()


class Runner(NamedTuple):
    """A name, its run and its settings."""

    name: str
    run: Callable
    axes: dict = {}  # name of a setting: its `Axis`
    imports: tuple = OURS  # what a new process must import
    enters: Callable = lambda problem: True  # is this problem for it?
    at_mode: tuple = (SEARCH,)  # what it must import as well to begin there

    @property
    def needs(self):
        """Packages that are no part of the project's own requirements."""
        return tuple(name for name in self.imports if name in EXTRAS)


class Arrival(NamedTuple):
    """When a run was first within a target, and what brought it there."""

    seconds: float = np.inf
    gradients: float = np.inf
    by: str = ""


class Run(NamedTuple):
    """One run: seconds until ready; {target: Arrival}; why it ended; nats missed at its looks."""

    ready: float
    met: dict
    end: str
    gap: list
    spent: float  # seconds when it ended


def referee(
    runner, problem, setting, seed, best, seconds=None, clock=clock, targets=TARGETS, known=None
):  # fmt: skip
    """One run. It ends within the last target, or when its seconds are over, or when it is done.

    The clock stands while a q is judged. A q is judged when gradients have grown by LOOK, so that
    the looks of a seed are the same on every machine. known: {(target, clock): the best so far};
    a trial ends where it is late for all that it has not met.
    """
    limit = problem.seconds if seconds is None else seconds
    run, end, ready, spent, gap = runner.run(problem, setting, seed, limit), "", None, 0.0, []
    met, last, seen = {t: Arrival() for t in targets}, None, 0.0
    charged.clear()
    while not end:
        began = clock()
        try:
            look = next(run)
        except StopIteration:
            end = "done"
        except (ArithmeticError, ValueError, RuntimeError) as error:
            end = f"failed: {type(error).__name__}"  # a rate that was too large, or no curvature
        else:
            took = clock() - began
            ready, spent = (took + sum(charged), 0.0) if ready is None else (ready, spent + took)
            last = look._replace(at=spent if look.at is None else look.at)
            end = "time" if last.at >= limit else "late" if _late(last, met, known or {}) else ""
        if last and (end or not gap or last.gradients >= LOOK * seen or not last.gradients):
            w = np.asarray(last.w() if callable(last.w) else last.w)
            gap.append(missed(problem, w, best))
            for t in targets:
                if gap[-1] <= t and met[t].seconds == np.inf and last.at <= limit:
                    met[t] = Arrival(last.at, last.gradients, last.by)
            seen, last = last.gradients, None
            end = end if np.isfinite(w).all() else "failed: not finite"
            end = "there" if targets and gap[-1] <= min(targets) else end
    return Run(ready or 0.0, met, end, gap, spent)


def _late(look, met, known):
    """Is everything that was not met yet known to come sooner, by SLACK, in another setting?"""
    now = {"seconds": look.at, "gradients": look.gradients}
    left = [(t, c) for t, arrival in met.items() if arrival.seconds == np.inf for c in now]
    return bool(left) and all(now[c] > SLACK * known.get((t, c), np.inf) for t, c in left)


def missed(problem, w, best):
    """Nats that w misses; what is no number misses very many, but its run may go on."""
    gap = best - problem.elbo(w) if np.isfinite(w).all() else np.inf
    return min(float(gap), LOWEST) if np.isfinite(gap) else LOWEST
