"""Time of one step of the loop for every line of the ladder, and for a model of one's own.

A step is one of `optimize.sgd`: draw, gradients, weights, moments, ascent. All lines of a data set
take turns in one process, and claims are ratios to the plain step, RP1 of data and prior without
variates, of the same turn. Run it on a quiet machine: python -m benchmarks.ladder --save
"""

import autograd.numpy as anp
import numpy as np
from scipy.optimize import minimize

import cvlib as cv
from benchmarks import stored
from benchmarks.steps import best_times
from cvlib import CF, PR, RP1
from experiments.plans import LADDER, LR
from experiments.tasks import line, problem

STEPS = 20  # of a call of the loop
RUNS = 1, 8


def loop(model, q, **options):
    """A function that takes STEPS steps from the start."""

    def steps():
        rng = np.random.default_rng(0)
        cv.optimize.sgd(model, q, steps=STEPS, rng=rng, every=STEPS, **options)

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
    return {word: loop(model, q, h=word(data) + rest, lr=lr, M=10) for word in (RP1, PR)}


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


def timed(head, ways, plain, seconds, once):
    """Rows {head, the way, seconds a step, steps: in steps of the way `plain`}.

    head: what all rows share, and how the parts of a way's name are called; the ways whose first
    part is in `once` are no loops of STEPS steps.
    """
    shared, names = head
    times = best_times(ways, seconds)
    times = {way: t / (1 if way[0] in once else STEPS) for way, t in times.items()}
    for way, t in times.items():
        steps = stored.few(t / times[plain])
        yield shared | dict(zip(names, way)) | {"seconds": stored.few(t), "steps": steps}


def compare(data, seconds):
    """Rows {data, d, runs, base, cvs, M, seconds a step, steps: in plain steps}."""
    model, q, _ = problem(data)
    for runs in RUNS:
        ways = {}
        for base, cvs, M in LADDER:
            how = line(data, base, cvs) | {"runs": () if runs == 1 else (runs,)}
            ways[base, cvs, M] = loop(model, q, **how, lr=LR[data], M=M)
        if runs == 1:
            mine = own(model.X, model.y, LR[data])
            ways |= {("own model", repr(word), 10): steps for word, steps in mine.items()}
            ways["exact", "optimum", 0] = lambda: cv.exact.optimum(model, q)
            ways["exact", "L-BFGS", 0] = lambda: by_lbfgs(model, q)
            best = cv.exact.elbo(model, q, cv.exact.optimum(model, q))
            assert best - 0.01 < by_lbfgs(model, q) <= best + 1e-9
        head = {"data": data, "d": q.dim, "runs": runs}, ("base", "cvs", "M")
        yield from timed(head, ways, ("paper", "none", 10), seconds, once=("exact",))


def measure(seconds):
    return {"rows": stored.told(row for data in LR for row in compare(data, seconds))}


if __name__ == "__main__":
    stored.command(__doc__, "ladder_steps", ("numpy", "autograd"), measure, seconds=0.6)
