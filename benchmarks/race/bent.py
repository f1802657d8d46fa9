"""A q that bends, beside the best Gaussian: another family, so a table of its own."""

import statistics

import numpy as np

import cvlib as cv
from benchmarks.fit import Counted
from benchmarks.race.ours import fitted, gradients
from benchmarks.race.rules import clock, few

MOST, SECONDS, SEEDS = 20, 60.0, (1, 2, 3)
DRAWS = 40_000  # that judge it


def enters(problem):
    """Small models of one's own."""
    return not problem.glm and problem.model.dim <= MOST


def row(problem, best):
    """Nats gained over the best Gaussian and their standard error; seconds and gradients.

    The middle of three seeds each; "bent" says in how many of them q was let bend.
    """
    found = []
    for seed in SEEDS:
        began = clock()
        with Counted(problem.model) as count:
            fit = fitted(problem.model, None, bend=True, seed=seed, seconds=SECONDS)
            spent, points = clock() - began, gradients(count, fit)
        bent = not fit.q.gaussian
        value, error = cv.elbo(problem.model, fit.q, fit.w, DRAWS, np.random.default_rng(seed))
        found.append((value - best, error, spent, points, bent))
    gained, error, seconds, points, bent = zip(*found)
    middle = statistics.median
    return {"gained": few(middle(gained)), "error": few(middle(error)),
            "seconds": few(middle(seconds)), "gradients": few(middle(points)),
            "bent": sum(bent)}  # fmt: skip
