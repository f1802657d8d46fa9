"""Time of one natural step for every line of `experiments natural`.

A step is one of `optimize.sgd`, with its draw, gradients, weights and ascent. "rule" is the
arithmetic of the natural step alone. All ways of a data set take turns in one process, and claims
are ratios to the plain step of the same turn: RP1 of data and prior, one data point a draw,
momentum. Run it on a quiet machine: python -m benchmarks.natural --save
"""

import cvlib as cv
from benchmarks import stored
from benchmarks.ladder import loop, timed
from experiments.plans import LR, NATURAL
from experiments.tasks import line, problem


def compare(data, seconds):
    """Rows {data, d, base, cvs, whole, seconds a step, steps: in plain steps}."""
    model, q, z = problem(data)
    natural, start = cv.rules.natural(), q.start()
    ways = {("plain", "none", False): loop(model, q, h=z.h, lr=LR[data], M=10)}
    for base, cvs, whole in NATURAL:
        how = {"M": 10, "rule": natural, "lr": 0.1, "subsample": not whole}
        ways[base, cvs, whole] = loop(model, q, **line(data, base, cvs), **how)
    g, memory = cv.exact.gradient(model, q, start) / model.N, natural.start(q, start)
    ways["rule", "none", False] = lambda: natural.step(memory, start, g, 0.1, q, model.N)
    head = {"data": data, "d": q.dim}, ("base", "cvs", "whole")
    yield from timed(head, ways, ("plain", "none", False), seconds, once=("rule",))


def measure(seconds):
    return {"rows": stored.told(row for data in LR for row in compare(data, seconds))}


if __name__ == "__main__":
    stored.command(__doc__, "natural_steps", ("numpy", "scipy"), measure, seconds=0.6)
