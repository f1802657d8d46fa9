"""The rules of the race: what a runner is, how it is timed, judged and tuned.

A runner's run(problem, setting, seed) is a generator of pairs (gradients so far, w), w (D,) or a
function that gives it. Its first `next` does what is done once for a model, such as compiling, and
gives the start; every later one does some work. A third entry, seconds, tells a time of its own
that lies before the end of its turn. Gradients are those of log p(x, z) with all data at one z: a
value counts as one too, a Hessian as d, a batch of a tenth of the data as a tenth.
"""

import resource
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.race_read import LOOK, TARGETS, to

LOWEST = 1e9  # nats missed by a q whose ELBO is no number
RATES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)
AFTER = (None, 1000, 100, 10)  # a rate is constant, or falls like 1 / t after so many steps
ADAM = {"rate": (RATES, 0.03), "after": (AFTER, None)}
EXTRAS = ("jax", "numpyro", "pymc", "blackjax")
SEARCH = "scipy.optimize"
OURS = ("cvlib", "scipy.linalg")  # which a large q's natural step loads at its first use
BOTH = {"start": (("mode", "usual"), "mode")}  # begin at the mode and its curvature, or as all may


def clock():
    """Seconds of the processor that this process and those that it waited for have had.

    On one core that is the time one waits, if nothing else is done there.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


compiled: dict = {}  # (problem's name, kind): what was compiled in this process, and in what time


def once(key, build):
    """What build() makes, made once; whoever asks for it is charged for its making."""
    if key not in compiled:
        began = clock()
        made = build()
        compiled[key] = made, clock() - began
    else:
        charged.append(compiled[key][1])
    return compiled[key][0]


charged: list = []  # seconds of what the present run asked for and others had made


class Runner(NamedTuple):
    """A name, what it minimises, its settings and its run. `ours`: is it a way of this book?"""

    name: str
    minimises: str  # "KL(q, p)", the ELBO's; or another divergence
    run: Callable
    axes: dict = {}  # name of a setting: its values in order, and the one to begin with
    imports: tuple = OURS  # what a new process must import, and SEARCH to begin at the mode
    enters: Callable = lambda problem: True  # is this problem for it?
    ours: bool = False

    @property
    def needs(self):
        """Packages that are no part of the project's own requirements."""
        return tuple(name for name in self.imports if name in EXTRAS)


def referee(
    runner, problem, setting, seed, best, seconds=None, clock=clock, enough=TARGETS[-1]
):  # fmt: skip
    """One run as a row: seconds until ready; then seconds, gradients and nats missed at each look.

    The runner's clock stands while its w is judged. A run ends within `enough` nats, or when its
    seconds are over, or when it is done.
    """
    row = {"problem": problem.name, "runner": runner.name, "setting": setting, "seed": seed}
    end, run = "", runner.run(problem, setting, seed)
    limit = problem.seconds if seconds is None else seconds
    ready, spent, trace = None, 0.0, []
    last = None  # what has not been judged yet
    charged.clear()
    while not end:
        began = clock()
        try:
            gradients, w, *told = next(run)
        except StopIteration:
            end = "done"
        except (ArithmeticError, ValueError, RuntimeError) as error:
            end = f"failed: {type(error).__name__}"  # a rate that was too large, or no curvature
        else:
            took = clock() - began
            ready, spent = (took + sum(charged), 0.0) if ready is None else (ready, spent + took)
            last = told[0] if told else spent, gradients, w
            end = "time" if spent >= limit else ""
        if last and (end or not trace or last[0] >= LOOK * trace[-1][0]):
            w = np.asarray(last[2]() if callable(last[2]) else last[2])
            trace.append((last[0], last[1], missed(problem, w, best)))
            last = None
            end = end if np.isfinite(w).all() else "failed: not finite"
            end = "there" if trace[-1][2] <= enough else end
    seconds, gradients, gap = ([few(x) for x in part] for part in zip(*trace or [(0, 0, LOWEST)]))
    return row | {"ready": few(ready or 0.0), "end": end, "seconds": seconds,
                  "gradients": gradients, "gap": gap}  # fmt: skip


def missed(problem, w, best):
    """Nats that w misses; what is no number misses very many, but its run may go on."""
    gap = best - problem.elbo(w) if np.isfinite(w).all() else np.inf
    return min(float(gap), LOWEST) if np.isfinite(gap) else LOWEST


def few(x):
    return float(f"{x:.3g}")


def thinned(row):
    """The row with the looks alone at which a target was first met, and the last."""
    kept = {next((k for k, gap in enumerate(row["gap"]) if gap <= t), -1) for t in TARGETS}
    kept = sorted((kept | {len(row["gap"]) - 1}) - {-1})
    return row | {what: [row[what][k] for k in kept] for what in ("seconds", "gradients", "gap")}


def score(row, limit):
    """What tuning makes small: log seconds to the three targets; who never was there pays more."""
    end = row["gap"][-1] if row["gap"] and not row["end"].startswith("failed") else LOWEST
    worse = lambda t: limit * (3 + np.log1p(max(end - t, 0)))
    return sum(np.log(max(min(to(row, t), worse(t)), 1e-5)) for t in TARGETS)


def tuned(axes, trial):
    """Try settings, along one axis after the other, while that gains; the best."""
    now, seen = {name: first for name, (_, first) in axes.items()}, {}

    def value(setting):
        key = tuple(setting.values())
        if key not in seen:
            seen[key] = trial(dict(setting))
        return seen[key]

    best, moved = value(now), True
    while moved:
        moved = False
        for name, (values, _) in axes.items():
            for way in (1, -1):
                while 0 <= (k := values.index(now[name]) + way) < len(values):
                    there = value(now | {name: values[k]})
                    if there >= best:
                        break
                    now, best, moved = now | {name: values[k]}, there, True
    return now
