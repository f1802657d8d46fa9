"""Time of one step of the loop for every line of the ladder, and for a model of one's own.

A step is one of `optimize.sgd`: draw, gradients, weights, moments, ascent. All lines of a data set
take turns in one process, and claims are ratios to the plain step, RP1 of data and prior without
variates, of the same turn. Run it on a quiet machine: python -m benchmarks.ladder --save
"""

import argparse

import autograd.numpy as anp
import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import cvlib as cv
from benchmarks import stored
from benchmarks.steps import best_times
from cvlib import CF, PR, RP1
from experiments.plans import LADDER, LR
from experiments.tasks import ladder, problem

STEPS = 20  # of a call of the loop
RUNS = 1, 8
RESULTS = stored.path("ladder_steps")


def loop(model, q, h, cvs, lr, M, runs):
    """A function that takes STEPS steps from the start."""

    def steps():
        cv.optimize.sgd(
            model, q, h, cvs, lr=lr, steps=STEPS, M=M, runs=() if runs == 1 else (runs,),
            rng=np.random.default_rng(0), every=STEPS,
        )  # fmt: skip

    return steps


def own(X, y, lr):
    """The same logistic regression as a model of one's own: RP1 and PR by autograd."""

    def log_lik(z, batch):
        x, label = batch
        return -anp.logaddexp(0.0, -label * anp.sum(x * z, -1))

    model = cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, y), dim=X.shape[1])
    q = cv.families.Gaussian(model.dim)
    data, prior, variational = cv.terms(model, q)
    rest = CF(prior) - CF(variational)
    return {word: loop(model, q, word(data) + rest, [], lr, 10, 1) for word in (RP1, PR)}


def by_lbfgs(model, q):
    """The optimum by L-BFGS on the exact ELBO and gradient, to a hundredth of a nat or better."""
    found = minimize(
        lambda w: -cv.exact.elbo(model, q, w) / model.N,
        q.start(),
        jac=lambda w: -cv.exact.gradient(model, q, w) / model.N,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-9},
    )
    return -model.N * found.fun


def compare(data, seconds):
    """Rows {data, d, runs, base, cvs, M, seconds a step, steps: in plain steps}."""
    model, q, _ = problem(data)
    for runs in RUNS:
        ways = {
            line: loop(model, q, *ladder(data, *line[:2]), LR[data], line[2], runs)
            for line in LADDER
        }
        if runs == 1:
            mine = own(model.X, model.y, LR[data])
            ways |= {("own model", repr(word), 10): steps for word, steps in mine.items()}
            ways["exact", "optimum", 0] = lambda: cv.exact.optimum(model, q)
            ways["exact", "L-BFGS", 0] = lambda: by_lbfgs(model, q)
            best = cv.exact.elbo(model, q, cv.exact.optimum(model, q))
            assert best - 0.01 < by_lbfgs(model, q) <= best + 1e-9
        times = best_times(ways, seconds)
        times = {line: t / (1 if line[0] == "exact" else STEPS) for line, t in times.items()}
        plain = times["paper", "none", 10]
        for (base, cvs, M), t in times.items():
            row = {"data": data, "d": q.dim, "runs": runs, "base": base, "cvs": cvs, "M": M}
            row |= {"seconds": float(f"{t:.3g}"), "steps": float(f"{t / plain:.3g}")}
            print("  ".join(f"{value:<10}" for value in row.values()), flush=True)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--seconds", type=float, default=0.6, help="for each line (0.6)")
    options = parser.parse_args()
    with threadpool_limits(1):
        rows = [row for data in LR for row in compare(data, options.seconds)]
    if options.save:
        stored.save(RESULTS, ("numpy", "autograd"), rows=rows)


if __name__ == "__main__":
    main()
