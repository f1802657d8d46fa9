"""Seconds a step with each variate of chapter 7's periodic table, in units of the plain step.

All take turns in one process, as in `cvlib.choose`; one thread, whose own time counts. Run it on a
quiet machine: python -m benchmarks.cells --save
"""

from time import thread_time

import periodic

import cvlib as cv
from benchmarks import stored
from cvlib.choosing import timed
from cvlib.pilots import Set
from experiments import catalogue

M = 10


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


def measure(seconds):
    steps = costs(seconds)
    for name, times in steps.items():
        print(f"{times:6.1f}  {name}")
    return {"steps": steps}


if __name__ == "__main__":
    stored.command(__doc__, "cells", ("numpy", "autograd"), measure, 0.3)
