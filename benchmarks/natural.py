"""Time of one natural step for every line of `experiments natural`, and of finding the optimum.

A step is one of `optimize.sgd`, with its draw, gradients, weights and ascent; a snapshot is paid
for in the steps that use it. "rule" is the arithmetic of the natural step alone. All ways of a data
set take turns in one process, and claims are ratios to the plain step of the same turn: RP1 of data
and prior, one data point a draw, momentum. Run it on a quiet machine:
python -m benchmarks.natural --save
"""

import argparse

import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from benchmarks.steps import best_times
from experiments.plans import LR, NATURAL
from experiments.tasks import natural_line, problem

STEPS = 20  # of a call of the loop
RESULTS = stored.path("natural_steps")


def loop(model, q, line, **options):
    """A function that takes STEPS steps from the start."""

    def steps():
        rng = np.random.default_rng(0)
        cv.optimize.sgd(model, q, **line, M=10, steps=STEPS, rng=rng, every=STEPS, **options)

    return steps


def compare(data, seconds):
    """Rows {data, d, base, cvs, whole, seconds a step, steps: in plain steps}."""
    model, q, z = problem(data)
    natural, exact = cv.rules.natural(), cv.exact
    ways = {("plain", "none", False): loop(model, q, {"h": z.h}, lr=LR[data])}
    for base, cvs, whole in NATURAL:
        line = natural_line(data, base, cvs)
        options = {"rule": natural, "lr": 0.1, "subsample": not whole}
        ways[base, cvs, whole] = loop(model, q, line, **options)
    start = q.start()
    g, memory = exact.gradient(model, q, start) / model.N, natural.start(q, start)
    ways["rule", "none", False] = lambda: natural.step(memory, start, g, 0.1, q, model.N)
    ways["optimum", "natural", True] = lambda: exact.optimum(model, q)
    ways["optimum", "L-BFGS", True] = lambda: exact._by_lbfgs(model, q, start)
    times = best_times(ways, seconds)
    once = "rule", "optimum"
    times = {way: t if way[0] in once else t / STEPS for way, t in times.items()}
    for (base, cvs, whole), t in times.items():
        row = {"data": data, "d": q.dim, "base": base, "cvs": cvs, "whole": whole}
        row |= {"seconds": float(f"{t:.3g}")}
        row["steps"] = float(f"{t / times['plain', 'none', False]:.3g}")
        print("  ".join(f"{value!s:<10}" for value in row.values()), flush=True)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--seconds", type=float, default=0.6, help="for each way (0.6)")
    options = parser.parse_args()
    with threadpool_limits(1):
        rows = [row for data in LR for row in compare(data, options.seconds)]
    if options.save:
        stored.save(RESULTS, ("numpy", "scipy"), rows=rows)


if __name__ == "__main__":
    main()
