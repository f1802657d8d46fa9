"""The race: seconds and gradients to 1, 0.1 and 0.01 nats below the best ELBO, for every runner.

    python -m benchmarks.race --quick                    one minute, without other packages
    python -m benchmarks.race                            everything; what is stored is not run again
    python -m benchmarks.race --model sonar --runner "cvlib, all quadratics"     one row, not stored

`rules` says what a runner is and how it is timed, judged and tuned; `models` has the models, `ours`
and `peers` the runners. Everybody has one core and double precision. What it found is read by
`benchmarks.race_read`, beside its file, for the pages of the book.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.race import ours, peers
from benchmarks.race.models import PROBLEMS
from benchmarks.race.rules import SEARCH, clock, compiled, few, referee, score, thinned, tuned
from benchmarks.race.yardstick import yardstick
from benchmarks.race_read import RESULTS, TARGETS, Race, imported

SEEDS = (1, 2, 3)
RUNNERS = (*ours.RUNNERS, *peers.RUNNERS)
PACKAGES = ("numpy", "scipy", "autograd", "jax", "numpyro", "pymc", "blackjax")


class Stored:
    """What a file holds of a race, kept whole after every row: imports, best, rows."""

    def __init__(self, path=None):
        old = json.loads(path.read_text()) if path and path.exists() else {}
        self.path, self.imports = path, old.get("imports", {})
        self.best, self.rows = old.get("best", {}), old.get("rows", [])
        self.choices = old.get("choices", {})  # what `choose` chose at the mode

    @property
    def about(self):
        runners = {
            r.name: {"ours": r.ours, "minimises": r.minimises, "imports": r.imports}
            for r in RUNNERS
        }
        about = {"versions": versions(), "machine": platform.machine(), "imports": self.imports}
        best = {name: self.best[name] for name in [*PROBLEMS, *self.best] if name in self.best}
        return about | {"best": best, "choices": self.choices, "runners": runners}

    def keep(self):
        """Into the file, whole or not at all; a line for every row."""
        if not self.path:
            return
        lines = [f"{json.dumps(name)}: {json.dumps(x)}" for name, x in self.about.items()]
        rows = ",\n".join(map(json.dumps, self.rows))
        part = self.path.with_suffix(".part")
        part.write_text("{\n" + ",\n".join(lines) + f',\n"rows": [\n{rows}\n]\n}}\n')
        part.replace(self.path)

    def find(self, **what):
        return [r for r in self.rows if all(r[k] == v for k, v in what.items())]


def versions():
    found = {name: version(name) for name in PACKAGES if peers.there(name)}
    return found | {"python": platform.python_version()}


def enter(runner, problem, stored, seeds=SEEDS, clock=clock):
    """Tune a runner on a problem with seed 0 in half the time, then let it meet the seeds."""
    best = stored.best[problem.name]["elbo"]

    def row(setting, seed, seconds):
        known = stored.find(problem=problem.name, runner=runner.name, setting=setting, seed=seed)
        if not known:
            found = referee(runner, problem, setting, seed, best, seconds, clock)
            known = [found if seed == 1 else thinned(found)]
            stored.rows += known
            stored.keep()
        return known[0]

    half = problem.seconds / 2
    setting = tuned(runner.axes, lambda setting: score(row(setting, 0, half), half))
    stale = lambda r: r["seed"] > 0 and r["setting"] != setting  # before a longer search
    mine = stored.find(problem=problem.name, runner=runner.name)
    old = [id(r) for r in mine if stale(r)]
    stored.rows = [r for r in stored.rows if id(r) not in old]
    return [row(setting, seed, problem.seconds) for seed in seeds]


def imports(stored, runners):
    """Seconds that a new process takes to import what runners need; the middle of three.

    After a first time, which compiles our files as an installation does.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for runner in runners:
        for modules in {runner.imports, (*runner.imports, SEARCH)}:
            name = imported(modules)
            if name in stored.imports:
                continue
            line, took = f"import {name}", []
            if "jax" in modules:  # it is ready when it has compiled something
                line += "; jax.jit(lambda x: x + 1)(1.0).block_until_ready()"
            for _ in range(4):
                began = clock()
                command = [sys.executable, "-W", "ignore", "-c", line]
                subprocess.run(command, check=True, env=environment)
                took.append(clock() - began)
            stored.imports[name] = few(statistics.median(took[1:]))
            stored.keep()


def shown(stored):
    """Median seconds and gradients to the three targets, and nats missed at the end."""
    race = Race(stored.about | {"rows": stored.rows})
    number = lambda x: "never" if x == np.inf else f"{x:.3g}"
    for model, runner in race.met:
        ways = "warm", "gradients"
        cells = ["/".join(number(race.median(model, runner, t, c)) for c in ways) for t in TARGETS]
        cells.append(f"{race.end(model, runner):.3g}")
        setting = race.met[model, runner][0]["setting"]
        print(f"{model:18}{runner:34}", *(f"{c:>16}" for c in cells), setting, flush=True)


def run(problems, runners, stored, until=np.inf):
    """Model by model, whole: an interrupted race is a race of fewer models."""
    imports(stored, runners)
    rehearsal()
    for name in problems:
        if perf_counter() > until:
            break
        problem = PROBLEMS[name]()
        if name not in stored.best:
            stored.best[name] = yardstick(problem)
            stored.keep()
        began = perf_counter()
        for runner in runners:
            if runner.enters(problem):
                enter(runner, problem, stored)
        if name not in stored.choices:
            found = ours.choice(problem, ours.began(problem, "mode")[0])
            stored.choices[name] = str(found.set)
            stored.keep()
        compiled.clear()
        print(f"{name}: {perf_counter() - began:.0f} s", flush=True)
    return stored


def rehearsal():
    """What NumPy's runners import at their first use is not on the clock."""
    problem = PROBLEMS["australian"]()
    for runner in (r for r in RUNNERS if not r.needs):
        referee(runner, problem, {k: first for k, (_, first) in runner.axes.items()}, 0, 0.0, 0.02)


def quick():
    """A minute without other packages: two small models, nothing stored."""
    stored = Stored()
    rehearsal()
    mine = [r for r in RUNNERS if not r.needs]
    for name in ("australian", "remission"):
        problem = PROBLEMS[name]()
        problem.seconds = 0.4
        stored.best[name] = yardstick(problem)
        for runner in mine:
            if runner.enters(problem):
                enter(runner, problem, stored, SEEDS[:1])
    return stored


def on_one_core():
    """Everything after this, JAX's threads included, has the first core alone."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a minute, other packages not needed")
    parser.add_argument("--model", nargs="+", choices=list(PROBLEMS), help="these models")
    parser.add_argument("--runner", nargs="+", choices=[r.name for r in RUNNERS], help="these rows")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no model after these")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    on_one_core()
    os.environ["PYTENSOR_FLAGS"] = f"base_compiledir={tempfile.mkdtemp()}"  # PyMC compiles anew
    with threadpool_limits(1):
        if options.quick:
            return shown(quick())
        runners = [r for r in RUNNERS if peers.there(*r.needs)]
        stored = Stored(options.out)
        if options.runner:  # again, beside what is stored
            kept, stored = stored, Stored()
            stored.best, stored.imports = kept.best, kept.imports
            runners = [r for r in runners if r.name in options.runner]
        began = perf_counter()
        run(options.model or PROBLEMS, runners, stored, began + 60 * options.minutes)
        print(f"{(perf_counter() - began) / 60:.1f} minutes")
    shown(stored)


if __name__ == "__main__":
    main()
