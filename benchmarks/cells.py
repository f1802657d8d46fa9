"""Seconds a step with each variate of chapter 7's periodic table, in units of the plain step.

All take turns in one process; one thread, whose own time counts. It needs the book's tools. Run it
on a quiet machine: PYTHONPATH=tools python -m benchmarks.cells --save
"""

from time import thread_time

import periodic

import cvlib as cv
from benchmarks import stored
from benchmarks.scale import stepping
from benchmarks.steps import best_times
from experiments import catalogue


def measure(seconds):
    """{line, as it prints: plain steps} on the sonar data; `seconds` of timing for each."""
    model = cv.models.logistic_regression(*cv.datasets.load("sonar"))
    q = cv.families.Gaussian(model.dim)
    h, w = cv.zoo.paper(model, q).h, cv.optimize.noise_free(model, q, lr=0.2, steps=50).w
    found = periodic.rows(catalogue.legal(model, q))
    lines = {repr(c.line): c.line for _, _, cells in found for c in cells.values()}
    ways = {name: stepping(model, q, h, (line,), w, None) for name, line in lines.items()}
    times = best_times({"h": stepping(model, q, h, (), w, None)} | ways, seconds, clock=thread_time)
    steps = {name: stored.few(times[name] / times["h"]) for name in lines}
    stored.told({"steps": each, "line": name} for name, each in steps.items())
    return {"steps": steps}


if __name__ == "__main__":
    stored.command(__doc__, "cells", ("numpy", "autograd"), measure, seconds=0.3)
