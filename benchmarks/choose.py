"""Seconds a step for every set of variates that chapter 19 chooses from.

All sets of a problem take turns in one process, as in `cvlib.choose`; one thread, whose own time
counts. Run it on a quiet machine: python -m benchmarks.choose --save
"""

from time import thread_time

import numpy as np

import cvlib as cv
from benchmarks import stored
from cvlib.choosing import timed
from cvlib.pilots import subsets
from experiments.judged import LOGISTIC, OWN, midway
from experiments.judged import problem as known

M, RENEW = 10, 50
RESULTS = stored.path("choose")
SIZES = {"d": (4, 16, 64), "N": (100, 3_000, 100_000)}


def simulated(d, N):
    """Logistic regression with features of unit length on average."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d)) / np.sqrt(d)
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-2 * X.sum(1))), 1.0, -1.0)
    return cv.models.logistic_regression(X, y)


def poisson(N=1000, d=20):
    """Counts with a full covariance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d)) / np.sqrt(d)
    y = rng.poisson(np.exp(X @ rng.standard_normal(d))).astype(float)
    return cv.models.poisson_regression(X, y)


def problem(name):
    """Model, family, and how a sample sees data."""
    if name in (*OWN, *LOGISTIC):
        return known(name)
    if name == "Poisson":
        model = poisson()
    else:  # "d = 4" or "N = 100"
        letter, size = name.split(" = ")
        model = simulated(**{"d": 16, "N": 1000, letter: int(size)})
    return model, cv.families.Gaussian(model.dim), {}


def sets_of(table):
    """Every base with every set of its variates."""
    return [s for base, (_, cvs) in table.items() for s in subsets(base, cvs)]


def paper(model, q):
    """The paper's base and its seven variates."""
    z = cv.zoo.paper(model, q)
    return {"h": (z.h, {f"c{l}": getattr(z, f"c{l}") for l in range(1, 8)})}


def tables(seconds):
    """{problem: {set: seconds a step}}; `seconds` of timing for each set."""
    grown = [f"{letter} = {size}" for letter, sizes in SIZES.items() for size in sizes]
    whole = [f"{name}, all data" for name in (*LOGISTIC, "Poisson")]
    for name in (*LOGISTIC, *OWN, "Poisson", *whole, *grown, "sonar, paper"):
        model, q, see = problem(name.split(",")[0])
        see = {"subsample": False} if name in whole else see
        table = cv.candidates(model, q, see.get("subsample", True), M)
        sets = sets_of(table)
        if name in grown:  # sets of more than one variate are predicted
            sets = [s for s in sets if len(s.cvs) < 2]
        elif name.endswith("paper"):
            table = paper(model, q)
            sets = [s for s in sets_of(table) if len(s.cvs) in (0, 1, 7)]
        w, budget = midway(model, q), seconds * len(sets)
        h = table[sets[0].base][0]
        how = {"lr": 1e-3, "M": M, "sampling": cv.Sampling(**see), "renew": RENEW}
        plan = cv.optimize.Noisy(model, q, h, **how)
        found = timed(sets, table, plan, w, seconds=budget, clock=thread_time)
        print(f"{name:<14} {len(sets):>3} sets, plain step {1e3 * min(found.values()):.3f} ms")
        yield name, {label: float(f"{t:.3g}") for label, t in found.items()}


if __name__ == "__main__":
    measure = lambda seconds: {"costs": dict(tables(seconds))}
    stored.command(__doc__, "choose", ("numpy", "autograd"), measure, 0.3)
