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
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

import cvlib as cv
from benchmarks import peers
from cvlib.advice.choosing import subsets
from cvlib.advice.pilots import Pilot, Set, Setting, timed
from cvlib.ascent.optimize import Noisy, init, step
from cvlib.fitting.density import Density
from cvlib.fitting.starts import laplace
from experiments import posteriors

RESULTS = Path(__file__).with_name("race.json")
ROOT = Path(__file__).parents[1]
RATES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
M, NAT, FINE = 10, 1.0, 0.1  # draws a step; nats below the best: there, and as good as it gets
LOOK = 1.2  # the ELBO is read when the time spent has grown by this factor
STALLED = 0.1  # nats: a run that gained less while its time doubled is given up
NUMBERS = 2**21  # that M draws may make of the data, if they are to see all of them
LOWEST = -1e9  # an ELBO that is no number
ADAM, NATURAL = cv.rules.adam(), cv.rules.natural()
PACKAGES = ("numpy", "scipy", "autograd", "jax", "numpyro", "pymc")


class Problem(NamedTuple):
    """What is to be fitted: where all start (D,), the judge of a w (D,), the best ELBO there is."""

    name: str
    model: object
    q: object
    start: np.ndarray
    elbo: Callable  # w -> number
    best: Callable  # () -> number; asked for once
    budget: float  # seconds of a run


class Runner(NamedTuple):
    """run(problem, rate, seed) -> w, w, ...; with nothing to tune its rates are (None,)."""

    name: str
    run: Callable
    rates: tuple = RATES
    needs: tuple = ()
    enters: Callable = lambda problem: True  # is this problem for it?


# The referee -----------------------------------------------------------------------------------


def referee(runner, problem, rate, seed, stop, clock=perf_counter):
    """One run as a row: seconds until ready, then seconds and ELBO at every look.

    stop(seconds, elbo) says why a run with this record goes no further, or "". The budget ends it.
    """
    row = {"problem": problem.name, "runner": runner.name, "rate": rate, "seed": seed}
    run, spent, ready, end = runner.run(problem, rate, seed), 0.0, None, ""
    seconds, elbo, calls, called = [], [], [], 0
    w = None
    while not end:
        began = clock()
        try:
            w = next(run)
        except StopIteration:
            end = "done"
        except (ArithmeticError, ValueError) as error:  # a rate that was too large
            end = f"failed: {type(error).__name__}"
            break
        else:
            called += 1
            took = clock() - began
            ready, spent = (took, 0.0) if ready is None else (ready, spent + took)
        if end == "done" and calls and calls[-1] == called:
            break
        over = spent >= problem.budget
        if end or over or not seconds or spent >= LOOK * seconds[-1]:
            if not np.isfinite(w).all():
                end = "failed: not finite"
                break
            value = float(problem.elbo(w))
            seconds.append(float(f"{spent:.4g}"))
            elbo.append(round(max(value, LOWEST), 3) if np.isfinite(value) else LOWEST)
            calls.append(called)
            end = end or stop(seconds, elbo) or "budget" * over
    return row | {"ready": ready, "seconds": seconds, "elbo": elbo, "calls": calls, "end": end}


def near(best, enough, budget):
    """To stop within `enough` nats of the best, at thrice the time it took to one, or stalled."""

    def stop(seconds, elbo):
        now, arrived = seconds[-1], time_to({"seconds": seconds, "elbo": elbo}, best - NAT)
        if elbo[-1] >= best - enough or now > 3 * arrived:
            return "there"
        before = max(e for s, e in zip(seconds, elbo) if s <= now / 2)
        waited = now > budget / 4 and arrived == np.inf
        return "stalled" if waited and max(elbo) < before + STALLED else ""

    return stop


def time_to(row, target):
    """Seconds until the ELBO was first at the target, infinite if it never was."""
    return next((s for s, e in zip(row["seconds"], row["elbo"]) if e >= target), np.inf)


def best_rate(rows, problem, runner, best):
    """The rate that came within a nat first; if none did, the one that got highest."""
    mine = [r for r in rows if (r["problem"], r["runner"], r["seed"]) == (problem, runner, 0)]
    top = lambda r: -max(r["elbo"], default=-np.inf)
    return min(mine, key=lambda r: (time_to(r, best - NAT), top(r)))["rate"]


# The whole race --------------------------------------------------------------------------------


class Stored:
    """What a file holds of a race, kept whole: {"best": {problem: ELBO}, "rows", "choices"}."""

    def __init__(self, path=None):
        self.path, old = path, {}
        if path and path.exists():
            old = json.loads(path.read_text())
        self.best, self.rows = old.get("best", {}), old.get("rows", [])
        self.choices = old.get("choices", [])

    def keep(self):
        """Versions, machine and all else into the file, whole or not at all."""
        if not self.path:
            return
        about = {"versions": versions(), "python": platform.python_version()}
        about |= {"machine": platform.machine(), "cores": os.cpu_count(), "best": self.best}
        lists = {"choices": self.choices, "rows": self.rows}
        lines = [f"{json.dumps(name)}: {json.dumps(x)}" for name, x in about.items()]
        for name, items in lists.items():
            text = ",\n".join(map(json.dumps, items))
            lines.append(f'"{name}": [\n{text}\n]')
        part = self.path.with_suffix(".part")
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        part.replace(self.path)


def race(problems, runners, seeds, stored, clock=perf_counter):
    """Run what is missing, row by row. Who came within a nat at no rate meets no seeds."""
    key = lambda r: (r["problem"], r["runner"], r["rate"], r["seed"])
    known = {key(r) for r in stored.rows}

    def take(problem, runner, rate, seed, best, enough):
        if (problem.name, runner.name, rate, seed) not in known:
            stop = near(best, enough, problem.budget)
            stored.rows.append(referee(runner, problem, rate, seed, stop, clock))
            known.add(key(stored.rows[-1]))
            stored.keep()

    for problem in problems:
        if problem.name not in stored.best:
            stored.best[problem.name] = round(float(problem.best()), 3)
        best = stored.best[problem.name]
        for runner in (r for r in runners if r.enters(problem)):
            for rate in runner.rates:
                take(problem, runner, rate, 0, best, NAT)
            rate = best_rate(stored.rows, problem.name, runner.name, best)
            tuned = [r for r in stored.rows if key(r) == (problem.name, runner.name, rate, 0)]
            for seed in range(1, seeds + 1) if time_to(tuned[0], best - NAT) < np.inf else ():
                take(problem, runner, rate, seed, best, FINE)
    return stored.rows


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
    n = next(c for c, e in zip(row["calls"], row["elbo"]) if e >= target)
    words = [str(row[k]) for k in ("problem", "runner", "rate", "seed")]
    runner = {r.name: r for r in RUNNERS}[row["runner"]]
    began = clock()
    command = [sys.executable, "-W", "ignore", "-c", CHILD, *words, str(n)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        imports, end = float(child.stdout.readline()), child.stdout.readline().strip()
        took = clock() - began
    if end != "there":
        raise RuntimeError(f"{row['runner']} did not arrive again in a process of its own")
    return took - (imports if runner.needs else 0.0)


def cold_starts(stored, fast=3):
    """Time a new process for everybody's median seed; of the peers, for those likely fastest."""
    order = sorted(summary(stored), key=lambda s: s["ready"] + s["median"])
    needs = {r.name: r.needs for r in RUNNERS}
    for problem in stored.best:
        mine = [s for s in order if s["problem"] == problem and s["median"] < np.inf]
        others = [s for s in mine if needs[s["runner"]]][:fast]
        for s in [s for s in mine if not needs[s["runner"]]] + others:
            target = stored.best[problem] - NAT
            rows = [
                r for r in stored.rows
                if (r["problem"], r["runner"]) == (problem, s["runner"])
                and r["seed"] > 0 and time_to(r, target) < np.inf
            ]  # fmt: skip
            if not any("cold" in r for r in rows):
                row = sorted(rows, key=lambda r: time_to(r, target))[(len(rows) - 1) // 2]
                row["cold"] = float(f"{cold(row, target):.3g}")
                stored.keep()


def versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def summary(stored):
    """For each problem and runner: median seconds to within a nat, runs that did not, tuning."""
    rows, out = stored.rows, []
    for problem, runner in dict.fromkeys((r["problem"], r["runner"]) for r in rows):
        mine = [r for r in rows if (r["problem"], r["runner"]) == (problem, runner)]
        best = stored.best[problem]
        rate = best_rate(rows, problem, runner, best)
        met = [r for r in mine if r["seed"] > 0] or [r for r in mine if r["rate"] == rate]
        times = [time_to(r, best - NAT) for r in met]
        out.append({
            "problem": problem, "runner": runner, "rate": rate,
            "median": statistics.median(times),
            "missed": sum(t == np.inf for t in times), "runs": len(times),
            "gap": best - max(max(r["elbo"], default=LOWEST) for r in mine),
            "failed": sum(r["end"].startswith("failed") for r in mine), "trials": len(mine),
            "ready": max(r["ready"] or 0.0 for r in mine),
            "cold": min([r["cold"] for r in mine if "cold" in r], default=np.inf),
            "tuning": sum((r["ready"] or 0.0) + (r["seconds"] or [0])[-1]
                          for r in mine if r["seed"] == 0),
        })  # fmt: skip
    return out


# The choice, and the best there is -------------------------------------------------------------


def sight(model):
    """All data in every step where they are few, else a point a sample."""
    return cv.Sampling(subsample=M * model.N * model.dim > NUMBERS)


def table(model, q):
    """The candidates; "RP1 of all three" is what sticks the landing."""
    return cv.candidates(model, q, sight(model).subsample, M)


def pilot(model, q):
    """Options of the race's choices: a few draws, and a hundredth of a second of timing."""
    return {"pilot": 12, "seconds": 0.01, "resamples": 20, "among": table(model, q)}


def pilot_choice(model, q, w, natural, rng):
    how = pilot(model, q) | {"natural": natural, "sampling": sight(model)}
    return cv.choose(model, q, w, M=M, rng=rng, **how)


def brute_force(problem, natural, seconds=0.03, draws=60):
    """What a race's choice costs more than the best of all subsets, each measured at leisure."""
    model, q = problem.model, problem.q
    w = mode(model, q)
    chosen = pilot_choice(model, q, w, natural, np.random.default_rng(0))
    among = table(model, q)
    sets = [s for base, (_, cvs) in among.items() for s in subsets(Set(base, tuple(cvs)))]
    at = Setting(model, q, w, M, sight(model))
    noise = Pilot(among, at, draws, np.random.default_rng(1), natural=natural)
    costs = timed(sets, among, at, seconds=seconds * len(sets))
    square = noise.slope2(sets) + noise.noise(sets)
    product = {s: costs[str(s)] * float(e) for s, e in zip(sets, square)}
    best = min(product, key=product.get)
    return {
        "problem": problem.name, "natural": natural, "chosen": str(chosen.set), "best": str(best),
        "sets": len(sets), "seconds": float(f"{chosen.seconds:.3g}"),
        "ratio": float(f"{product[chosen.set] / product[best]:.4g}"),
    }  # fmt: skip


# Runners of our own ----------------------------------------------------------------------------


def ours(line, rule=ADAM, each=20):
    """A run of the loop from line(problem, rng): w, and options of the plan, on the clock.

    The option `hook` is called every 40 steps, as in `optimize.sgd`.
    """

    def run(problem, rate, seed):
        model, q, rng = problem.model, problem.q, np.random.default_rng(seed)
        yield problem.start
        w, options = line(problem, rng)
        hook = options.pop("hook", lambda state, plan: None)
        plan = Noisy(model, q, **{"lr": rate, "M": M, "rule": rule} | options)
        state = init(plan, rng, w=w)
        yield w
        with np.errstate(all="ignore"):
            while state.diverged < 0:
                for _ in range(each):
                    state = step(state, plan)
                    if state.t % 40 == 0:
                        state, plan = hook(state, plan) or (state, plan)
                yield state.w
        raise ArithmeticError("diverged")

    return run


def of_word(word):
    """This word for the data term, the rest in closed form, all data, from the usual start."""

    def line(problem, rng):
        h, _ = cv.candidates(problem.model, problem.q, False)[word]
        return problem.start, {"h": h, "sampling": sight(problem.model)}

    return line


def seven(problem, rng):
    z = cv.zoo.paper(problem.model, problem.q)
    return problem.start, {"h": z.h, "cvs": z.S7}


def mode(model, q):
    """The mode and its curvature, the Laplace approximation, (D,)."""
    begin = laplace(model, q.full)
    return q.joined(begin.mu, begin.S)


@dataclass(frozen=True, eq=False)
class stretched(cv.rules.Ascent):
    """Another rule in the coordinates u of z = S u, S (d, d) lower triangular or (d,) diagonal.

    mu and L of q in z are S times those in u, so a gradient goes there by S^T and a step comes back
    by S: neither the model nor the recipe notices. For rules that add a step whatever w is, such as
    `adam`, and a Gaussian q; a diagonal q takes a diagonal S.
    """

    rule: cv.rules.Ascent
    S: np.ndarray

    def start(self, q, w):
        return self.rule.start(q, w)

    def step(self, memory, w, g, rate, q, N):
        g_mu, G = q.unpack(g)
        S_t = np.swapaxes(self.S, -1, -2) if q.full else self.S
        g = q.joined(q.times_t(self.S, g_mu[..., None, :])[..., 0, :], q.compose(S_t, G))
        move, memory = self.rule.step(memory, np.zeros_like(w), g, rate, q, N)
        mu, factor = q.unpack(move)
        mu = q.times(self.S, mu[..., None, :])[..., 0, :]
        return w + q.joined(mu, q.compose(self.S, factor)), memory


def chosen(problem, rng):
    """From the mode, with what is chosen there, and ordinary steps in its coordinates."""
    model, q = problem.model, problem.q
    begin = laplace(model, q.full)
    w = q.joined(begin.mu, begin.S)
    rule = stretched(ADAM, begin.S)
    return w, pilot_choice(model, q, w, False, rng).line | {"rule": rule}


def chosen_natural(problem, rng):
    """Natural steps: with Price's gradient, until a choice is made after 40 of them.

    Without log-concavity they begin at the mode, and with so many rows that Price's gradient sees
    a few at a time, too; there the choice comes first.
    """
    model, q = problem.model, problem.q
    if glm(problem) and not large(problem):
        w, line = of_word("PR")(problem, rng)
        return w, line | {"hook": cv.rechoose(0.2, **pilot(model, q))}
    w = mode(model, q)
    return w, pilot_choice(model, q, w, True, rng).line


def all_quadratics(problem, rng):
    """Batch and match, then natural steps on all quadratics: 2 d gradients of all data a step.

    A call is a step, so `calls` of a row counts them. Without log-concavity it begins at the mode.
    """
    model, q = problem.model, problem.q
    data, prior, variational = cv.terms(model, q)
    w = problem.start if glm(problem) else mode(model, q)
    return w, {
        "h": cv.AQ(data + prior - variational), "M": max(2 * q.dim, 20), "lr": 1.0,
        "sampling": cv.Sampling(subsample=False),
    }  # fmt: skip


def from_the_mode(problem, rate, seed):
    yield problem.start
    yield mode(problem.model, problem.q)


def front_door(problem, rate, seed):
    """`cv.fit`, look by look."""
    yield problem.start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cv.Distrust)
        fit = cv.fit(problem.model, problem.q, steps=20, seed=seed, progress=False)
        yield fit.w
        while not fit.settled:
            fit = fit.go_on(steps=2 * fit.steps, progress=False)
            yield fit.w


def by_quadrature(problem, rate, seed):
    yield problem.start
    yield cv.exact.optimum(problem.model, problem.q)


def glm(problem):
    return isinstance(problem.model, cv.models.GLM)


def large(problem):
    return sight(problem.model).subsample


RUNNERS = (
    Runner("cvlib, plain", ours(of_word("RP1"))),
    Runner("cvlib, S7", ours(seven), enters=glm),
    Runner("cvlib, Price, natural", ours(of_word("PR"), NATURAL, 2), enters=glm),
    Runner("cvlib, chosen", ours(chosen, each=10)),
    Runner("cvlib, chosen, natural", ours(chosen_natural, NATURAL, 2)),
    Runner("cvlib, all quadratics", ours(all_quadratics, cv.rules.quadratics(), 1), (None,),
           enters=lambda problem: not large(problem)),
    Runner("cvlib, fit", front_door, (None,)),
    Runner("cvlib, mode alone", from_the_mode, (None,)),
    Runner("cvlib, exact", by_quadrature, (None,), enters=glm),
    Runner("JAX by hand", peers.by_hand(10), needs=("jax",)),
    Runner("JAX by hand, batches", peers.by_hand(10, 1000), needs=("jax",), enters=large),
    *(
        Runner(f"NumPyro, {kind}, {n} particle{'s' * (n > 1)}", peers.numpyro_svi(full, n),
               needs=("jax", "numpyro"))
        for kind, full in (("full", True), ("diagonal", False))
        for n in (1, 10)
    ),
    Runner("NumPyro, full, batches", peers.numpyro_svi(True, 10, 1000), needs=("jax", "numpyro"),
           enters=large),
    Runner("PyMC, full", peers.pymc_advi(True), needs=("pymc",)),
    Runner("PyMC, diagonal", peers.pymc_advi(False), needs=("pymc",)),
)  # fmt: skip


# Problems --------------------------------------------------------------------------------------


def logistic(name, model, budget):
    q = cv.families.Gaussian(model.dim)
    elbo = lambda w: cv.exact.elbo(model, q, w, 1e-6)
    best = lambda: elbo(cv.exact.optimum(model, q))
    return Problem(name, model, q, q.start(), elbo, best, budget)


def of_the_paper(name, budget=4.0):
    return logistic(name, cv.models.logistic_regression(*cv.datasets.load(name)), budget)


def many_rows(N=50_000, d=20, budget=6.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d)) / np.sqrt(d)
    p = 1 / (1 + np.exp(-2 * X @ rng.standard_normal(d)))
    y = np.where(rng.random(N) < p, 1.0, -1.0)
    return logistic("50,000 rows", cv.models.logistic_regression(X, y), budget)


def posterior(name, budget=1.5, draws=512):
    """One of posteriordb. All start at N(0, 0.1^2 I), NumPyro's; the judge has Sobol's draws."""
    model = posteriors.load(name).model
    q = cv.families.Gaussian(model.dim)
    begin = q.start()
    begin[q.dim :] *= 0.1

    @cache
    def eps():
        from scipy.stats import norm, qmc  # takes longer than all of cvlib, and is the judge's

        return norm.ppf(qmc.Sobol(model.dim, seed=0).random(draws))

    def elbo(w):
        mu, L = q.unpack(w)
        with np.errstate(all="ignore"):
            return np.mean(Density(model).value(mu + eps() @ L.T)) + q.entropy(w)

    def best():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cv.Distrust)
            return elbo(cv.fit(model, q, steps=320, progress=False).w)

    return Problem(name, model, q, begin, elbo, best, budget)


PROBLEMS = {
    **{name: partial(of_the_paper, name) for name in ("ionosphere", "australian")},
    "sonar": partial(of_the_paper, "sonar", 12.0),  # in four seconds no peer is there
    "50,000 rows": many_rows,
    **{name: partial(posterior, name) for name in peers.OWN if name not in ("mesquite", "sblri")},
}


def quick():
    """A minute: cvlib alone on one set, nothing stored."""
    runners = [r for r in RUNNERS if not r.needs]
    stored = Stored()
    race([PROBLEMS["australian"]()._replace(budget=0.8)], runners, 2, stored)
    return stored


def whole(options):
    runners = [r for r in RUNNERS if all(map(find_spec, r.needs))]
    stored = Stored(options.out)
    began, names = perf_counter(), options.only or list(PROBLEMS)
    print(f"about {len(names) * 210 / 60:.0f} minutes on two quiet cores, if nothing is stored yet")
    for name in names:
        problem = PROBLEMS[name]()
        problem = problem._replace(budget=problem.budget * options.budget)
        race([problem], runners, options.seeds, stored)
        for natural in (False, True):
            if not any((c["problem"], c["natural"]) == (name, natural) for c in stored.choices):
                stored.choices.append(brute_force(problem, natural))
                stored.keep()
        peers.compiled.clear()
        print(f"{name}: done after {(perf_counter() - began) / 60:.1f} minutes", flush=True)
    if options.cold:
        cold_starts(stored)
    print(f"{(perf_counter() - began) / 60:.1f} minutes in all; written to {options.out}")
    for c in stored.choices:
        print(f"{c['problem']:<18} natural {c['natural']!s:<5} chose {c['chosen']:<20} "
              f"{c['ratio']:.2f} of the best of {c['sets']}")  # fmt: skip
    return stored


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one minute, cvlib alone, not stored")
    parser.add_argument("--cold", action="store_true", help="time new processes as well")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1.0, help="a factor of every budget (1)")
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), help="these problems")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    stored = quick() if options.quick else whole(options)
    for row in summary(stored):
        print("  ".join(f"{v:.3g}" if isinstance(v, float) else f"{v}" for v in row.values()))


if __name__ == "__main__":
    main()
