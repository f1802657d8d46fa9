"""`fit` with its defaults on eight posteriors: what it finds, in what time, by how many gradients.

    python -m benchmarks.fit --save              the table of the chapter on own models
    python -m benchmarks.fit --old COMMIT        this version and another one in turns
    python -m benchmarks.fit --old COMMIT --only kidiq nes1972

Every version has a process of its own, with its own cvlib and models, and waits while the other
works. Seconds are those of one processor. A gradient is the slope of log p(x, z) over all data at
one point; a Hessian counts as one for each unknown. Run it on a quiet machine.
"""

import argparse
import json
import sys
import time
import warnings
from contextlib import nullcontext

import numpy as np

from benchmarks import stored, versions

SECONDS = 60
SHOWN = "elbo", "seconds", "gradients"


class Counted:
    """Where cvlib asks a model for log p(x | z): `points` in all, and the `gradients` among them.

    Passes over some of the rows count as their share of all.
    """

    def __init__(self, model):
        self.kind, self.N, self.points, self.gradients = type(model), model.N, 0.0, 0.0

    def __enter__(self):
        self.own, ask = vars(self.kind).get("totals"), self.kind.totals

        def totals(model, z, order, *args, **kwargs):
            points = z.size // model.dim * model.N / self.N
            self.points += points
            self.gradients += points * (0, 1, 1 + model.dim)[order]
            return ask(model, z, order, *args, **kwargs)

        self.kind.totals = totals
        return self

    def __exit__(self, *error):
        if self.own:
            self.kind.totals = self.own
        else:
            del self.kind.totals


# One version, in a process of its own -------------------------------------------------------------


def case(name):
    """A model, what its reference speaks of as a function of z, and the reference's mean and sd."""
    from experiments import others, posteriors

    if name in posteriors.names:
        p = posteriors.load(name)
        return p.model, p.parameters, p.mean, p.sd
    try:
        model, mean, sd = others.load()
    except TypeError:  # version 0.13 had several
        model, mean, sd = others.load("groups")
    return model, lambda z: z, mean, sd


def row(name):
    """What `fit` found and took; the worst means, of q and as shown, in sds of the reference."""
    import cvlib as cv

    model, parameters, mean, sd = case(name)
    start = time.process_time()
    with Counted(model) as count:
        fit = cv.fit(model, seconds=SECONDS, progress=False)
    seconds = time.process_time() - start
    of_q = shown = parameters(fit.sample(40_000, 1)).mean(0)
    if (what := getattr(fit, "shown", "q")) == "posterior":
        at = fit.lot
        weights = np.exp(at.log - at.log.max())
        shown = cv.expect(parameters(at.z), at.z, at.score, weights).estimate
    away, few = lambda x: few(np.abs((x - mean) / sd).max()), lambda x: float(f"{x:.2g}")
    return {
        "name": name, "d": model.dim, "N": model.N, "seconds": few(seconds),
        "gradients": round(count.gradients), "steps": int(fit.steps),
        "error": away(of_q), "summary_error": away(shown), "shown": what, "elbo": float(fit.elbo),
        "elbo_error": few(fit.error), "settled": bool(fit.settled), "warnings": len(fit.warnings),
    }  # fmt: skip


def work():
    """Answer lines ["name"] with rows, until the input ends."""
    from experiments import posteriors

    warnings.simplefilter("ignore")
    row(posteriors.names[0])  # what is imported at its first use is off the clock
    print(json.dumps([*posteriors.names, "hierarchical Poisson"]), flush=True)
    for line in sys.stdin:
        print(json.dumps(row(*json.loads(line))), flush=True)


# Two versions, in turns ---------------------------------------------------------------------------


def beside(old, only):
    """[row] of this version, each with "old": the same row of another checkout."""
    here = versions.Worker(versions.ROOT, "fit")
    workers = [here] if old is None else [versions.Worker(old, "fit"), here]
    found = []
    for name in only or here.rows:
        *before, new = (worker.ask(name) for worker in workers)
        found.append(new | ({"old": before[0]} if before else {}))
        tell(*before, new)
    for worker in workers:
        worker.end()
    return found


def tell(*rows):
    """Of one row or of two: ELBO, seconds and gradients, old and new side by side."""
    cells = [" -> ".join(f"{row[what]:.6g}" for row in rows) for what in SHOWN]
    error = max(row["elbo_error"] for row in rows)
    print(f"{rows[0]['name']:22} ELBO {cells[0]} ± {error:.1g}, {cells[1]} s,", end=" ")
    print(f"{cells[2]} gradients", flush=True)


def main():
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--save", action="store_true", help="write fit.json for the book")
    parser.add_argument("--old", help="a commit, or the folder of another checkout")
    parser.add_argument("--only", nargs="*", help="these posteriors; nothing is saved")
    options = parser.parse_args()
    with versions.checkout(options.old) if options.old else nullcontext() as old:
        rows = beside(old, options.only)
    if options.save and not options.only:
        stored.save(stored.path("fit"), ("numpy", "scipy", "autograd"), posteriors=rows)


if __name__ == "__main__":
    main()
