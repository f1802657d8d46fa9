"""The race: seconds to come within one nat of the best ELBO, for every runner, tuned alike.

A runner is a value: a name, the packages it needs, and run(problem, rate, seed), a generator of
weights w. Its first `next` does what is done once, such as compiling, and gives the start; every
later one takes some steps. Only the runner's own time counts: the ELBO is read while its clock
stands. Every runner tries the same rates with the same budget; the best one then meets the seeds.

    python -m benchmarks.race --quick     one minute, cvlib alone
    python -m benchmarks.race --cold      what is stored already is not run again
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

import cvlib as cv
from benchmarks import peers
from cvlib.optimize import Noisy, init, step

RESULTS = Path(__file__).with_name("race.json")
ROOT = Path(__file__).parents[1]
RATES = tuple(float(f"{r:.3g}") for r in np.logspace(-3, 0.5, 8))
STEPS, M, NAT = 20, 10, 1.0
ADAM = cv.rules.adam()
PACKAGES = ("numpy", "autograd", "jax", "numpyro", "pymc")


class Problem(NamedTuple):
    """What is to be fitted, and the judge of a w (D,)."""

    name: str
    model: object
    q: object
    elbo: Callable


class Runner(NamedTuple):
    """run(problem, rate, seed) -> w, w, ...; with nothing to tune its rates are (None,)."""

    name: str
    run: Callable
    rates: tuple = RATES
    needs: tuple = ()


# The referee -----------------------------------------------------------------------------------


def referee(runner, problem, rate, seed, budget, clock=perf_counter):
    """One run as a row: seconds until ready, then seconds and ELBO after every `next`."""
    row = {"problem": problem.name, "runner": runner.name, "rate": rate, "seed": seed}
    run, spent, seconds, elbo, end = runner.run(problem, rate, seed), 0.0, [], [], "budget"
    ready = None
    while spent < budget:
        start = clock()
        try:
            w = next(run)
        except StopIteration:
            end = "done"
            break
        except (ArithmeticError, ValueError) as error:  # a rate that was too large
            end = f"failed: {type(error).__name__}"
            break
        took = clock() - start
        if ready is None:
            ready, took = took, 0.0
        spent += took
        value = float(problem.elbo(w)) if np.isfinite(w).all() else np.nan
        if not np.isfinite(value):
            end = "failed: not finite"
            break
        seconds.append(float(f"{spent:.4g}"))
        elbo.append(round(value, 3))
    return row | {"ready": ready, "seconds": seconds, "elbo": elbo, "end": end}


def time_to(row, target):
    """Seconds until the ELBO was first at the target, infinite if it never was."""
    return next((s for s, e in zip(row["seconds"], row["elbo"]) if e >= target), np.inf)


def best_elbo(rows, problem):
    """The best that anyone reached."""
    return max((e for r in rows if r["problem"] == problem for e in r["elbo"]), default=np.nan)


def best_rate(rows, problem, runner, seed=0):
    """The rate that came within a nat first; if none did, the one that ended highest."""
    mine = [r for r in rows if (r["problem"], r["runner"], r["seed"]) == (problem, runner, seed)]
    target = best_elbo(rows, problem) - NAT
    end = lambda r: -r["elbo"][-1] if r["elbo"] and not r["end"].startswith("failed") else np.inf
    return min(mine, key=lambda r: (time_to(r, target), end(r)))["rate"]


# The whole race --------------------------------------------------------------------------------


def race(problems, runners, seeds, budget, path=None, clock=perf_counter):
    """All rows: those that `path` has, and those that were missing, stored there one by one."""
    stored = json.loads(path.read_text()) if path and path.exists() else {}
    rows = stored.get("rows", [])
    key = lambda r: (r["problem"], r["runner"], r["rate"], r["seed"])
    known = {key(r) for r in rows}

    def take(problem, runner, rate, seed):
        if (problem.name, runner.name, rate, seed) not in known:
            rows.append(referee(runner, problem, rate, seed, budget, clock))
            known.add(key(rows[-1]))
            if path:
                save(path, rows)

    for problem in problems:
        for runner in runners:  # tuning: everyone has had its turn before a best rate is named
            for rate in runner.rates:
                take(problem, runner, rate, 0)
        for runner in runners:
            rate = best_rate(rows, problem.name, runner.name)
            for seed in range(1, seeds + 1):
                take(problem, runner, rate, seed)
    return rows


CHILD = """
import sys, time
start = time.perf_counter()
from benchmarks import race
print(time.perf_counter() - start, flush=True)
name, runner, rate, seed, n = sys.argv[1:]
run = {r.name: r for r in race.RUNNERS}[runner].run
run = run(race.PROBLEMS[name](), float(rate) if rate != "None" else None, int(seed))
for _ in range(int(n)):
    next(run)
print("there", flush=True)
"""


def cold(row, target, clock=perf_counter):
    """Seconds from the start of a new process until the row's run is at the target again.

    The same seed takes the same steps (but for a choice, in which timing has a part), so nobody has
    to judge. A peer is not charged for importing cvlib, which it needs only to be told the problem.
    """
    n = 1 + next(k for k, e in enumerate(row["elbo"]) if e >= target)
    words = [str(row[k]) for k in ("problem", "runner", "rate", "seed")]
    runner = {r.name: r for r in RUNNERS}[row["runner"]]
    start = clock()
    command = [sys.executable, "-c", CHILD, *words, str(n)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        imports, end = float(child.stdout.readline()), child.stdout.readline().strip()
        took = clock() - start
    if end != "there":
        raise RuntimeError(f"{row['runner']} did not arrive again in a process of its own")
    return took - (imports if runner.needs else 0.0)


def save(path, rows):
    """Versions, machine and rows, whole or not at all."""
    about = {"versions": versions(), "python": platform.python_version()}
    about |= {"machine": platform.machine(), "cores": os.cpu_count(), "rows": rows}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(about, indent=0) + "\n")
    part.replace(path)


def versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def summary(rows):
    """For each problem and runner: median seconds to within a nat, runs that did not, tuning."""
    out = []
    for problem, runner in dict.fromkeys((r["problem"], r["runner"]) for r in rows):
        mine = [r for r in rows if (r["problem"], r["runner"]) == (problem, runner)]
        target = best_elbo(rows, problem) - NAT
        times = [time_to(r, target) for r in mine if r["seed"] > 0]
        out.append({
            "problem": problem, "runner": runner, "rate": best_rate(rows, problem, runner),
            "median": statistics.median(times) if times else np.inf,
            "missed": sum(t == np.inf for t in times), "runs": len(times),
            "failed": sum(r["end"].startswith("failed") for r in mine),
            "ready": statistics.median(r["ready"] for r in mine),
            "cold": statistics.median([r["cold"] for r in mine if "cold" in r] or [np.inf]),
            "tuning": sum(r["ready"] + (r["seconds"] or [0])[-1] for r in mine if r["seed"] == 0),
        })  # fmt: skip
    return out


# Runners of our own ----------------------------------------------------------------------------


def ours(name, line, rule=ADAM, rates=RATES):
    """A runner of the loop; line(model, q, rng) says base and variates, on the clock."""

    def run(problem, rate, seed):
        model, q, rng = problem.model, problem.q, np.random.default_rng(seed)
        yield q.start()
        plan = Noisy(model, q, **line(model, q, rng), lr=rate, M=M, rule=rule)
        state = init(plan, rng)
        while state.diverged < 0:
            for _ in range(STEPS):
                state = step(state, plan)
            yield state.w
        raise ArithmeticError("diverged")

    return Runner(name, run, rates)


def plain(model, q, rng):
    return {"h": cv.candidates(model, q)["RP1"][0]}


def seven(model, q, rng):
    z = cv.zoo.paper(model, q)
    return {"h": z.h, "cvs": z.S7}


def chosen(natural=False):
    """The better of two choices: a data point a sample, or all of them."""

    def line(model, q, rng):
        how = {"rng": rng, "pilot": 6, "seconds": 0.01, "resamples": 20, "natural": natural, "M": M}
        ways = [cv.choose(model, q, q.start(), subsample=some, **how) for some in (True, False)]
        return min(ways, key=lambda choice: choice.product).line

    return line


def by_quadrature(problem, rate, seed):
    yield problem.q.start()
    yield cv.exact.optimum(problem.model, problem.q)


RUNNERS = (
    ours("cvlib, plain", plain),
    ours("cvlib, S7", seven),
    ours("cvlib, chosen", chosen()),
    ours("cvlib, chosen, natural", chosen(natural=True), cv.rules.natural()),
    Runner("cvlib, exact", by_quadrature, rates=(None,)),
    Runner("JAX by hand, 10 particles", peers.by_hand(10), needs=("jax",)),
    *(
        Runner(f"NumPyro, {kind}, {n} particle{'s' * (n > 1)}", run, needs=("numpyro",))
        for kind, full in (("full", True), ("diagonal", False))
        for n, run in ((n, peers.numpyro_svi(full, n)) for n in (1, 10))
    ),
    Runner("PyMC, full", peers.pymc_advi(True), needs=("pymc",)),
    Runner("PyMC, diagonal", peers.pymc_advi(False), needs=("pymc",)),
)


def logistic(name):
    model = cv.models.logistic_regression(*cv.datasets.load(name))
    q = cv.families.Gaussian(model.dim)
    return Problem(name, model, q, lambda w: cv.exact.elbo(model, q, w, 1e-6))


PROBLEMS = {name: partial(logistic, name) for name in ("ionosphere", "australian", "sonar")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one minute, cvlib alone, not stored")
    parser.add_argument("--cold", action="store_true", help="time new processes as well")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="budget of a run (4)")
    options = parser.parse_args()
    runners, path = [r for r in RUNNERS if all(map(find_spec, r.needs))], RESULTS
    names, seeds, budget = list(PROBLEMS), options.seeds, options.seconds
    if options.quick:
        runners, names = [r for r in RUNNERS if not r.needs], ["australian"]
        seeds, budget, path = 2, 0.8, None
    rows = race([PROBLEMS[name]() for name in names], runners, seeds, budget, path)
    if options.cold:
        for row in rows:
            target = best_elbo(rows, row["problem"]) - NAT
            if row["seed"] > 0 and "cold" not in row and time_to(row, target) < np.inf:
                row["cold"] = float(f"{cold(row, target):.3g}")
                if path:
                    save(path, rows)
    for row in summary(rows):
        print("  ".join(f"{v:.3g}" if isinstance(v, float) else f"{v}" for v in row.values()))


if __name__ == "__main__":
    main()
