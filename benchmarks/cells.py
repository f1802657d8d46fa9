"""Seconds a step with each variate of chapter 7's periodic table, in units of the plain step.

All take turns in one process, as in `cvlib.choose`; one thread, whose own time counts. Run it on a
quiet machine: python -m benchmarks.cells --save
"""

import argparse
from time import thread_time

import periodic
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from cvlib.choosing import timed
from cvlib.pilots import Set
from experiments import catalogue

M = 10
RESULTS = stored.path("cells")


def costs(seconds):
    """{line, as it prints: plain steps} on the sonar data; `seconds` of timing for each."""
    model = cv.models.logistic_regression(*cv.datasets.load("sonar"))
    q = cv.families.Gaussian(model.dim)
    found = periodic.rows(catalogue.legal(model, q))
    lines = {repr(c.line): c.line for _, _, cells in found for c in cells.values()}
    table = {"h": (cv.zoo.paper(model, q).h, lines)}
    sets = [Set("h"), *(Set("h", (name,)) for name in lines)]
    w = cv.optimize.noise_free(model, q, lr=0.2, steps=50).w
    plan = cv.optimize.Noisy(model, q, table["h"][0], lr=1e-3, M=M, renew=50)
    times = timed(sets, table, plan, w, seconds=seconds * len(sets), clock=thread_time)
    return {name: float(f"{times[f'h with {name}'] / times['h']:.3g}") for name in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each variate (0.3)")
    options = parser.parse_args()
    with threadpool_limits(1):
        steps = costs(options.seconds)
    for name, times in steps.items():
        print(f"{times:6.1f}  {name}")
    if options.save:
        stored.save(RESULTS, ("numpy", "autograd"), steps=steps)


if __name__ == "__main__":
    main()
