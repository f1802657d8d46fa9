"""What a step with one variate for both noises costs as the data grow, and what it leaves.

Part "size": logistic regression, d = 30, on data in a file that is made here and removed. The
variate is PR(T) - CF(T.over_all_data()) with T = taylor_z(data, at="snapshot"), the base PR. A step
is one of `plan.step`, without renewals; a renewal is one `snapshot`. "left" is the noise as a
share of that of the plain gradient, with a snapshot one standard deviation of q away in every
direction. Each size has a process of its own, whose largest resident memory is kept.

Part "fit": `cv.fit` of ten unknowns on such files: passes over all rows, nats below the exact
optimum, and the memory.

Part "sets": the three data sets, eight runs side by side, K = 50, renewals paid for in the steps.
Part "own": a network of one's own on all data, c7 at a snapshot of at most 50 steps.
Part "batch": samples M and data points B a sample, on sonar, without variates.

Costs are ratios to the plain step of the same turn: RP1 of data and prior, without variates. Run it
on a quiet machine: python -m benchmarks.scale --save
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from benchmarks.own import network
from benchmarks.steps import best_times
from cvlib import CF, PR, RP1, taylor_z
from experiments.plans import LR
from experiments.tasks import both, problem

SIZES = 10_000, 100_000, 1_000_000, 5_000_000
FITTED = 1_000_000, 5_000_000
D, M, K, STEPS = 30, 10, 50, 20
BATCHES = (10, 1), (30, 1), (100, 1), (1, 10), (1, 100), (10, 100)  # samples, data points each
RESULTS = stored.path("scale")


# Data in a file -----------------------------------------------------------------------------------


def make(folder, N, d=D, rows=100_000):
    """X (N, d) and y (N,) as files of numbers, written part by part; the z they come from."""
    rng = np.random.default_rng(N)
    z = rng.standard_normal(d) / np.sqrt(d)
    with open(Path(folder) / "X", "wb") as X, open(Path(folder) / "y", "wb") as y:
        for first in range(0, N, rows):
            x = rng.standard_normal((min(rows, N - first), d))
            X.write(x.tobytes())
            y.write(np.where(rng.random(len(x)) < 1 / (1 + np.exp(-x @ z)), 1.0, -1.0).tobytes())
    return z


def mapped(folder):
    """The model of the data in a folder."""
    y = np.memmap(Path(folder) / "y", float, "r")
    X = np.memmap(Path(folder) / "X", float, "r")
    return cv.models.logistic_regression(X.reshape(len(y), -1), y)


def megabytes():
    """The largest resident memory of this process.

    Linux begins `ru_maxrss` with what the process that started this one had; its own peak is a line
    of a file.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return float(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def fitted(folder, z, seconds):
    """The row of a fit with all its defaults but the time, from a process of its own."""
    model = mapped(folder)
    began = process_time()
    fit = cv.fit(model, seconds=300, progress=False)
    row = {"part": "fit", "N": model.N, "d": model.dim, "passes": fit.steps}
    row |= {"seconds": process_time() - began, "megabytes": megabytes()}
    best = cv.exact.optimum(model, fit.q, fit.w)
    heights = cv.exact.elbo(model, fit.q, np.array([best, fit.w]))
    return row | {"short": float(heights[0] - heights[1])}


def size(folder, z, seconds):
    """The row of one size, from a process that has done nothing else."""
    model, rng = mapped(folder), np.random.default_rng(0)
    q = cv.families.Gaussian(D)
    mu = np.array(z)
    H = cv.snapshot(model, mu).hessian
    w = q.pack(mu, np.linalg.cholesky(np.linalg.inv(np.eye(D) - H)))  # about the posterior
    away = mu + q.unpack(w)[1] @ rng.choice([-1.0, 1.0], D)
    data, prior, variational = cv.terms(model, q)
    T, rest = taylor_z(data, at="snapshot"), CF(prior) - CF(variational)
    h, c = PR(data) + rest, PR(T) - CF(T.over_all_data())
    plain = RP1(data) + RP1(prior) - CF(variational)
    ways = {
        "plain": stepping(model, q, plain, (), w, None),
        "joint": stepping(model, q, h, (c,), w, K),
    }
    times = {way: t / STEPS for way, t in best_times(ways, seconds).items()}
    renewal = best_times({"renewal": lambda: cv.snapshot(model, mu)}, 0.01, 3)["renewal"]
    draw = cv.draw(model, q, w, 1000, rng, snapshot=cv.snapshot(model, away))
    G, F, C = cv.evaluate([plain, h, c], draw)
    left = (F - C).var(0).sum() / G.var(0).sum()
    row = {"part": "size", "N": model.N, "plain": times["plain"], "joint": times["joint"]}
    return row | {"renewal": renewal, "left": left, "megabytes": megabytes()}


def stepping(model, q, h, cvs, w, renew, M=M, **seen):
    """A function that takes STEPS steps, the last snapshot of `renew` at hand and not renewed."""
    how = {"renew": renew, "sampling": cv.Sampling(**seen)}
    plan = cv.optimize.Noisy(model, q, h, cvs, lr=1e-3, M=M, **how)
    state = plan.first(np.random.default_rng(0), w=w)
    held = plan.step(state)
    plan = replace(plan, renew=None)

    def steps():
        state = held
        for _ in range(STEPS):
            state = plan.step(state)

    return steps


def in_a_process(part, N, d, seconds):
    """A function of this file in a process of its own, on files that are removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        z = make(folder, N, d)
        code = (
            "import json, sys; from threadpoolctl import threadpool_limits; "
            "from benchmarks import scale\n"
            f"with threadpool_limits(1): print(json.dumps(scale.{part}(*json.loads(sys.argv[1]))))"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, json.dumps([folder, z.tolist(), seconds])],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return json.loads(ran.stdout)


# Small data, and models of one's own --------------------------------------------------------------


def sets(data, seconds):
    """The row of a data set: a step of eight runs, renewals included, over the plain one."""
    model, q, z = problem(data)
    steps, runs = 4 * K, (8,)

    def loop(h, cvs, renew, weights=None):
        return lambda: cv.optimize.sgd(
            model, q, h, cvs, lr=LR[data], steps=steps, M=M, runs=runs, every=steps, renew=renew,
            rng=np.random.default_rng(0), weights=weights,
        )  # fmt: skip

    lines = {base: both(data, base, "taylor") for base in ("RP1", "PR", "QD")}
    ways = {base: loop(h, [c], K) for base, (h, c) in lines.items()}
    h, c = lines["PR"]
    ways["PR, weight -1"] = loop(h, [c], K, cv.rules.fixed(-1.0))
    times = best_times({"plain": loop(z.h, [], None)} | ways, seconds)
    return {"part": "sets", "data": data} | {base: times[base] / times["plain"] for base in ways}


def own(seconds):
    """The network on all data, M = 10: c7 fresh and at a snapshot, over the plain step."""
    model, q = network()
    data, prior, variational = cv.terms(model, q)
    h, w = RP1(data) + RP1(prior) - CF(variational), q.start()
    w[q.dim :] *= 0.1  # a narrow q: nothing overflows
    fresh, old = taylor_z(data), taylor_z(data, at="snapshot")
    step = lambda cvs, renew: stepping(model, q, h, cvs, w, renew, subsample=False)
    ways = {
        "plain": step((), None),
        "fresh": step((CF(fresh) - RP1(fresh),), None),
        "snapshot": step((CF(old) - RP1(old),), K),
    }
    times = {way: t / STEPS for way, t in best_times(ways, seconds).items()}
    renewal = best_times({"renewal": lambda: cv.snapshot(model, q.mean(w))}, seconds)["renewal"]
    times["snapshot"] += renewal / K
    ways = {"fresh": times["fresh"], "snapshot": times["snapshot"], "renewal": renewal}
    ratios = {way: t / times["plain"] for way, t in ways.items()}
    return {"part": "own", "d": q.dim, "N": model.N} | ratios


def batches(seconds):
    """Rows for samples and data points on sonar, one batch for all samples, in plain steps."""
    model, q, _ = problem("sonar")
    data, prior, variational = cv.terms(model, q)
    rest, w = CF(prior) - CF(variational), q.start()
    ways = {
        (word, M, B): stepping(
            model, q, word(data) + rest, (), w, None, M=M, batch=None if B == 1 else B
        )
        for word in (RP1, PR)
        for M, B in BATCHES
    }
    times = best_times(ways, seconds)
    return [
        {"part": "batch", "base": repr(word), "M": M, "B": B, "steps": t / times[RP1, 10, 1]}
        for (word, M, B), t in times.items()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each way (1)")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="of the data")
    options = parser.parse_args()
    seconds, rows = options.seconds, []
    with threadpool_limits(1):
        tasks = [lambda N=N: [in_a_process("size", N, D, seconds)] for N in options.sizes]
        tasks += [lambda N=N: [in_a_process("fitted", N, 10, seconds)] for N in FITTED]
        tasks += [lambda data=data: [sets(data, seconds)] for data in LR]
        tasks += [lambda: [own(seconds)], lambda: batches(seconds)]
        for row in (row for task in tasks for row in task()):
            rows.append({k: float(f"{v:.3g}") if type(v) is float else v for k, v in row.items()})
            print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    if options.save:
        stored.save(RESULTS, ("numpy", "autograd"), rows=rows)


if __name__ == "__main__":
    main()
