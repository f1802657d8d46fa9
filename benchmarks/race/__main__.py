"""The race: seconds and gradients to 1, 0.1 and 0.01 nats below the best ELBO, for every way.

    python -m benchmarks.race --quick                    a minute, without other packages
    python -m benchmarks.race                            everything, anew, for hours
    python -m benchmarks.race --go-on                    the models that the file does not have yet
    python -m benchmarks.race --model sonar --way "natural, rotated" --out FILE     one row

`rules` says what a way is and how a run is timed and judged, `tuning` how settings are found;
`models` has the models, `hand`, `ours` and `peers` the ways. A model has a process of its own, one
core and double precision. What it found is read by `benchmarks.race_read`, beside its file.
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
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.race import hand, ours, peers
from benchmarks.race.models import PROBLEMS
from benchmarks.race.rules import clock, compiled, referee
from benchmarks.race.tuning import tuned, value
from benchmarks.race.yardstick import yardstick
from benchmarks.race_read import RESULTS, TARGETS, Race, imported, shown
from benchmarks.stored import few

SEEDS = (1, 2, 3, 4, 5)
SHARE = 1 / 3  # of a model's seconds, for a trial
TUNED = ("seconds", "gradients")  # the clocks that have settings of their own
RUNNERS = (*hand.RUNNERS, *peers.RUNNERS, *ours.RUNNERS)
PACKAGES = ("numpy", "scipy", "autograd", "jax", "numpyro", "pymc", "blackjax")


def names():
    return [r.name for r in RUNNERS]


class Stored:
    """What a file holds of a race, kept whole after every model: about, imports, best, rows."""

    def __init__(self, path=None):
        old = json.loads(path.read_text()) if path and path.exists() else {}
        self.path, self.rows = path, old.pop("rows", [])
        old.pop("ways", None)
        self.said = {"imports": {}, "best": {}, "took": {}, "failed": {}} | old

    @property
    def about(self):
        names = [*PROBLEMS, *self.said["best"]]
        best = {name: self.said["best"][name] for name in names if name in self.said["best"]}
        ways = {
            r.name: {"imports": r.imports, "at_mode": r.at_mode}
            | {"axes": {k: a.values for k, a in r.axes.items()}}
            for r in RUNNERS
        }
        left_out = [name for name in PROBLEMS if name not in self.said["took"]]
        return self.said | {"left_out": left_out, "best": best, "ways": ways}

    def keep(self):
        """Into the file, whole or not at all; a line for every row."""
        if not self.path:
            return
        lines = [f"{json.dumps(name)}: {json.dumps(x)}" for name, x in self.about.items()]
        rows = ",\n".join(map(json.dumps, self.rows))
        part = self.path.with_suffix(".part")
        part.write_text("{\n" + ",\n".join(lines) + f',\n"rows": [\n{rows}\n]\n}}\n')
        part.replace(self.path)

    def take(self, other):
        """What another file found."""
        self.rows += other.rows
        for name in ("best", "took", "failed"):
            self.said[name] |= other.said[name]
        self.keep()


def enter(runner, problem, stored, seeds=SEEDS, clock=clock):
    """Tune a way for each target and clock with seed 0, then let its settings meet the seeds."""
    best = stored.said["best"][problem.name]
    targets = [t for t in TARGETS if shown(best, t)]
    goals = [(t, c) for t in targets for c in TUNED]
    known: dict = {}

    def trial(setting):
        how = {"targets": targets, "known": known, "clock": clock}
        seconds = SHARE * problem.seconds
        run = referee(runner, problem, setting, 0, best["elbo"], seconds, **how)
        gap = min(run.gap) if run.gap and not run.end.startswith("failed") else 1e9
        found = {(t, c): value(getattr(run.met[t], c), gap, t) for t, c in goals}
        for (t, c), x in found.items():
            if run.met[t].seconds < np.inf:
                known[t, c] = min(x, known.get((t, c), np.inf))
        return found

    choices, trials = tuned(runner.axes, trial, goals)
    rows = []
    for setting in unique(choice.setting for choice in choices.values()):
        mine = [goal for goal in goals if choices[goal].setting == setting]
        own = [t for t in targets if t >= min(t for t, _ in mine)]
        how = {"targets": own, "clock": clock}
        runs = [referee(runner, problem, setting, s, best["elbo"], **how) for s in seeds]
        rows.append(row_of(runner, problem, setting, mine, choices, trials, own, runs))
    stored.rows += rows
    stored.keep()
    return rows


def unique(settings):
    return [dict(pairs) for pairs in dict.fromkeys(tuple(s.items()) for s in settings)]


def row_of(runner, problem, setting, goals, choices, trials, targets, runs):
    """The runs of a setting as they are stored."""
    number = lambda x: few(x) if np.isfinite(x) else None
    of = lambda what: [[number(getattr(run.met[t], what)) for t in targets] for run in runs]
    return {
        "problem": problem.name, "way": runner.name, "setting": setting, "trials": trials,
        "goals": [list(goal) for goal in goals], "where": [choices[g].where for g in goals],
        "targets": targets, "ready": few(statistics.median(run.ready for run in runs)),
        "seconds": of("seconds"), "gradients": of("gradients"),
        "by": [[run.met[t].by for t in targets] for run in runs],
        "end": [few(min(run.gap)) for run in runs], "ended": [run.end for run in runs],
        "spent": few(max(run.spent for run in runs)),
    }  # fmt: skip


def imports(stored, runners):
    """Seconds that a new process takes to import what ways need; the middle of three.

    After a first time, which compiles our files as an installation does.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for runner in runners:
        for modules in {runner.imports, (*runner.imports, *runner.at_mode)}:
            name = imported(modules)
            if name in stored.said["imports"]:
                continue
            line, took = f"import {name}", []
            if "jax" in modules:  # it is ready when it has compiled something
                line += "; jax.jit(lambda x: x + 1)(1.0).block_until_ready()"
            for _ in range(4):
                began = clock()
                command = [sys.executable, "-W", "ignore", "-c", line]
                subprocess.run(command, check=True, env=environment)
                took.append(clock() - began)
            stored.said["imports"][name] = few(statistics.median(took[1:]))


def tell(stored):
    """Median seconds and gradients to the targets, and nats missed at the end."""
    race = Race(stored.about | {"rows": stored.rows})
    number = lambda x: "never" if x == np.inf else f"{x:.3g}"
    for model, way in race.rows:
        clocks = "warm", "gradients"
        cells = [
            "/".join(number(race.median(model, way, t, c)) for c in clocks)
            for t in race.targets(model)
        ]
        print(f"{model:18}{way:26}", *(f"{c:>16}" for c in cells),
              f"{race.end(model, way):>9.3g} {race.trials(model, way):3}", flush=True)  # fmt: skip


def meet(name, runners, stored):
    """One model, whole; `took` are seconds of the processor."""
    problem, began = PROBLEMS[name](), clock()
    for module in {m for r in runners for m in (*r.imports, *r.at_mode)}:
        import_module(module)  # which cold clocks count, once
    rehearsal()
    stored.said["best"][name] = yardstick(problem)
    took = {"yardstick": few(clock() - began)}
    for runner in runners:
        if runner.enters(problem):
            since = clock()
            try:
                enter(runner, problem, stored)
            except Exception as error:  # no way may end the race of the others
                said = f"{type(error).__name__}: {error}"[:200]
                stored.said["failed"][f"{name}: {runner.name}"] = said
            took[runner.name] = few(clock() - since)
    compiled.clear()
    stored.said["took"][name] = took | {"all": few(clock() - began)}
    stored.keep()


def rehearsal():
    """What NumPy's ways import at their first use is not on the clock."""
    problem = PROBLEMS["australian"]()
    for runner in (r for r in RUNNERS if not r.needs):
        setting = {name: axis.coarse[0] for name, axis in runner.axes.items()}
        referee(runner, problem, setting, 0, 0.0, 0.02)


def quick():
    """A minute without other packages: two small models, nothing stored."""
    stored = Stored()
    mine = [r for r in RUNNERS if not r.needs]
    rehearsal()
    for name in ("australian", "stacks"):
        problem = PROBLEMS[name]()
        problem.seconds = 0.2
        stored.said["best"][name] = yardstick(problem)
        for runner in mine:
            if runner.enters(problem):
                enter(runner, problem, stored, SEEDS[:1])
    return stored


# Processes ---------------------------------------------------------------------------------------


def on_one_core():
    """Everything after this, JAX's threads included, has one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def alone(name, stored, more):
    """A model in a process of its own, so that what it compiles and keeps is gone with it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "found.json")
        command = [sys.executable, "-m", "benchmarks.race", "--here", "--model", name, *more]
        done = subprocess.run([*command, "--out", str(path)], capture_output=True, text=True)
        if done.returncode:
            stored.said["failed"][name] = done.stderr[-300:]
        stored.take(Stored(path))
    print(f"{name}: {stored.said['took'].get(name, {}).get('all')} s", flush=True)


def machine():
    """What this ran on."""
    found = {name: version(name) for name in PACKAGES if hand.there(name)}
    return {
        "processor": listed() or platform.processor(),
        "machine": platform.machine(), "system": platform.system(), "cores": 1,
        "versions": found | {"python": platform.python_version()},
    }  # fmt: skip


def listed():
    """The processor's name as `lscpu` has it, or nothing."""
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    pairs = [line.split(":", 1) for line in text.splitlines() if ":" in line]
    return ", ".join(v.strip() for k, v in pairs if k.strip() in ("Vendor ID", "Model name"))


def everything(models, ways, stored):
    """The whole race, model by model, and what is known about the machine."""
    began, now = perf_counter(), datetime.now(UTC)
    stored.said |= {"began": f"{now:%Y-%m-%d %H:%M} UTC", "on": machine()}
    imports(stored, entrants(ways))
    for name in (name for name in models if name not in stored.said["took"]):
        alone(name, stored, ["--way", *ways] if ways else [])
    for what, why in stored.said["failed"].items():
        print(f"failed: {what}: {why}", flush=True)
    stored.said["minutes"] = few((perf_counter() - began) / 60)
    stored.keep()
    print(f"{stored.said['minutes']} minutes")


def entrants(ways):
    """The runners of these names, or all, whose packages are there."""
    return [r for r in RUNNERS if hand.there(*r.needs) and r.name in (ways or names())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a minute, other packages not needed")
    parser.add_argument("--model", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--way", nargs="+", choices=names(), help="these ways")
    parser.add_argument("--go-on", action="store_true", help="keep what the file has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    on_one_core()
    os.environ["PYTENSOR_FLAGS"] = f"base_compiledir={tempfile.mkdtemp()}"  # PyMC compiles anew
    with threadpool_limits(1):
        if options.quick:
            return tell(quick())
        if not options.go_on:
            options.out.unlink(missing_ok=True)
        stored = Stored(options.out)
        if not options.here:
            everything(options.model, options.way, stored)
            return tell(stored)
        for name in options.model:
            meet(name, entrants(options.way), stored)


if __name__ == "__main__":
    main()
