"""Seconds a step for every set of variates that chapter 16 chooses from.

All sets of a problem take turns in one process, as in `cvlib.choose`; one thread, whose own time
counts. Run it on a quiet machine: python -m benchmarks.choose --save
"""

from time import thread_time

import cvlib as cv
from benchmarks import stored
from benchmarks.own import eight_schools
from cvlib.choosing import subsets, timed

M, RENEW = 10, 50
PAPER = {"sonar, 10 draws": 10, "sonar, 100 draws": 100}  # the seven variates, all data in a draw
PROBLEMS = ("sonar", "ionosphere", "australian", "eight schools", *PAPER)


def problem(name):
    """Model, family, {base: (h, {name: variate})} to choose from, and how a draw sees data."""
    if name == "eight schools":
        model, q = eight_schools()
        return model, q, cv.candidates(model, q, False, M), {"subsample": False}
    model = cv.models.logistic_regression(*cv.datasets.load(name.partition(", ")[0]))
    q = cv.families.Gaussian(model.dim)
    if name not in PAPER:
        return model, q, cv.candidates(model, q, True, M), {}
    z = cv.zoo.paper(model, q)
    seven = {"h": (z.h, {f"c{l}": getattr(z, f"c{l}") for l in range(1, 8)})}
    return model, q, seven, {"subsample": False}


def tables(seconds):
    """{problem: {set: seconds a step}}; `seconds` of timing for each set."""
    for name in PROBLEMS:
        model, q, table, see = problem(name)
        sets = [s for base, (_, cvs) in table.items() for s in subsets(base, cvs)]
        if name in PAPER:  # of the seven variates none, one or all
            sets = [s for s in sets if len(s.cvs) in (0, 1, 7)]
        how = {"lr": 1e-3, "M": PAPER.get(name, M), "sampling": cv.Sampling(**see), "renew": RENEW}
        plan = cv.optimize.Noisy(model, q, table[sets[0].base][0], **how)
        budget = seconds * len(sets)
        found = timed(sets, table, plan, q.start(), seconds=budget, clock=thread_time)
        print(f"{name:<14} {len(sets):>3} sets, plain step {1e3 * min(found.values()):.3f} ms")
        yield name, {label: float(f"{t:.3g}") for label, t in found.items()}


if __name__ == "__main__":
    measure = lambda seconds: {"costs": dict(tables(seconds))}
    stored.command(__doc__, "choose", ("numpy", "autograd"), measure, seconds=0.3)
