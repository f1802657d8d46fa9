"""Seconds a step for every set of variates that chapter 18 chooses from.

All sets of a problem take turns in one process, as in `cvlib.choose`; one thread, whose own time
counts. Run it on a quiet machine: python -m benchmarks.choose --save
"""

import argparse
from pathlib import Path
from time import thread_time

import autograd.numpy as anp
import numpy as np
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from benchmarks.own import eight_schools
from cvlib.advice.choosing import subsets
from cvlib.advice.pilots import Set, Setting, singles, timed

M, RENEW = 10, 50
RESULTS = Path(__file__).with_name("choose.json")
LOGISTIC = ("ionosphere", "australian", "sonar")
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


def student(N=60, d=5):
    """Regression with Student's noise, four degrees of freedom, as a model of one's own."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d))
    y = X @ np.ones(d) + rng.standard_t(4, N)
    log_lik = lambda z, batch: -2.5 * anp.log(1 + (batch[1] - anp.sum(batch[0] * z, -1)) ** 2 / 4)
    model = cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, y), d, "Student")
    return model, cv.families.Gaussian(d)


OWN = {"eight schools": eight_schools, "Student": student}


def problem(name):
    """Model, family, and how a sample sees data."""
    if name in OWN:
        return *OWN[name](), {"subsample": False}
    if name == "Poisson":
        model = poisson()
    elif name in LOGISTIC:
        model = cv.models.logistic_regression(*cv.datasets.load(name))
    else:  # "d = 4" or "N = 100"
        letter, size = name.split(" = ")
        model = simulated(**{"d": 16, "N": 1000, letter: int(size)})
    return model, cv.families.Gaussian(model.dim), {}


def midway(model, q, steps=60):
    """Weights on the way: between the start and the optimum, or after some steps."""
    if isinstance(model, cv.models.GLM):
        return (q.start() + cv.exact.optimum(model, q)) / 2
    h = cv.candidates(model, q)["RP1"][0]
    how = {"lr": 0.02, "M": 50, "subsample": False, "rng": np.random.default_rng(0)}
    return cv.optimize.sgd(model, q, h, steps=steps, rule=cv.rules.adam(), **how).w


def sets_of(table):
    """Every base with every set of its variates."""
    return [s for base, (_, cvs) in table.items() for s in subsets(Set(base, tuple(cvs)))]


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
            all7 = Set("h", tuple(table["h"][1]))
            sets = [Set("h"), *singles(all7), all7]
        w, budget = midway(model, q), seconds * len(sets)
        at = Setting(model, q, w, M, cv.Sampling(**see))
        found = timed(sets, table, at, seconds=budget, clock=thread_time, renew=RENEW)
        print(f"{name:<14} {len(sets):>3} sets, plain step {1e3 * min(found.values()):.3f} ms")
        yield name, {label: float(f"{t:.3g}") for label, t in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each set (0.3)")
    options = parser.parse_args()
    with threadpool_limits(1):
        costs = dict(tables(options.seconds))
    if options.save:
        stored.save(RESULTS, ("numpy", "autograd"), costs=costs)


if __name__ == "__main__":
    main()
