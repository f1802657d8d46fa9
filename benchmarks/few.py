"""First moves of a fit from fewer antithetic pairs than unknowns: gradients until it is near.

    python -m benchmarks.few --save      an exercise of chapter 14, in some ten minutes

Every run begins where `cv.fit` does, at the mode with the curvature that the search for it has
seen, and ends in the natural steps on rotated draws that `cv.fit` takes; only what lies between
differs. Told are gradients of log p over all data, those of the search for the mode among them,
until the ELBO is so near to its best.
"""

from dataclasses import dataclass

import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.far import judge
from benchmarks.fit import Counted, case
from cvlib.ascent import rules
from cvlib.fitting import starts
from cvlib.fitting.settings import DEFAULT
from cvlib.fitting.strategies import Strategy, top
from cvlib.models.density import Density
from cvlib.points import uniform
from experiments import posteriors

LOGISTIC = "sonar", "ionosphere"
MODELS = *LOGISTIC, *posteriors.names, "hierarchical Poisson"
NEAR = 0.1, 0.01  # nats
STEPS, SEEDS = 20, (0, 1, 2)
JUDGES, SURE = 2000, 100  # draws that judge, and steps to the best q that they compare with


def completed(U, V):
    """The symmetric A (d, d) with A U^T = V^T that is nearest to alpha I; rows of U orthonormal.

    U and V are (n, d). alpha is the mean of the curvatures seen, u.v.
    """
    alpha = np.vecdot(U, V).mean()
    R = V - alpha * U  # what alpha I misses
    half = R.T @ U - U.T @ (U @ R.T) @ U / 2
    return alpha * np.eye(U.shape[1]) + half + half.T


@dataclass(frozen=True)
class Pairs:
    """Natural steps on n antithetic pairs each, until they promise less than a nat.

    The first n is a share of d, and n doubles when they do: d pairs are the last, or all. What no
    pair has seen is the mean of what they have seen.
    """

    first: float

    def __call__(self, model, q, w, rng):
        """Weights w (D,) after each step."""
        d, density = q.dim, Density(model)
        n, used, s, old = max(1, round(self.first * d)), d, 1, None
        while n < d + (self.first == 1):
            if used + n > d:
                frame, used = uniform(rng, 1, d)[0], 0
            U, used = frame[used : used + n], used + n
            mu, L = q.unpack(w)
            e = np.sqrt(d) * np.concatenate([U, -U])
            G = density.slope(mu + e @ L.T)[1] @ L + e  # (2 n, d), of the ELBO
            c, V = G.mean(0), (G[:n] - G[n:]) / (2 * np.sqrt(d))
            if not np.isfinite(V).all():
                w = q.pack(mu, L / 2)
                continue
            A = completed(U, V)
            if old is not None and c @ old[0] + (A * old[1]).sum() / 2 < 0:
                s += 1  # as on rotated draws: two steps against each other
            old = c, A
            sure = np.linalg.eigvalsh(np.eye(d) - A / s)[0] > 0.2
            w, _ = rules.newton(q, w, c, A, 1 / s, positive=not sure)
            n *= 1 + ((c**2).sum() / 2 + (A**2).sum() / 4 < 1)
            yield w


def search(model, q, w, rng):
    yield top(model, q, w, rng)


MOVES = {
    "search on fixed draws": [search],
    "few pairs": [Pairs(1 / 4)],
    "few pairs, search": [Pairs(1 / 4), search],
    "all pairs, search": [Pairs(1.0), search],
}


def natural(model, q, rng, w, steps):
    """Weights w (D,) after each natural step on rotated draws, as `cv.fit` takes them."""
    plan = Strategy().plan(model, q, None, DEFAULT)
    state = plan.first(rng, w)
    for _ in range(steps):
        state = plan.step(state)
        yield state.w


def path(model, moves, seed):
    """[(gradients, w)] of a run."""
    q, rng = cv.families.Gaussian(model.dim), np.random.default_rng([seed, 0])
    with Counted(model) as count, np.errstate(all="ignore"):
        begin = starts.start(model, seed=seed)
        found = [(count.gradients, q.pack(begin.mu, begin.S))]
        for move in moves:
            for w in move(model, q, found[-1][1], rng):
                found.append((count.gradients, w))
        for w in natural(model, q, rng, found[-1][1], STEPS):
            found.append((count.gradients, w))
    return found


def model_of(name):
    if name in LOGISTIC:
        return cv.models.logistic_regression(*cv.datasets.load(name))
    return case(name)[0]


def rows(name):
    """{model, d, moves, to: gradients of every seed to each of NEAR, or None}."""
    model = model_of(name)
    q = cv.families.Gaussian(model.dim)
    elbo = judge(model, q, JUDGES, seed=12345)
    runs = [(key, moves, seed) for key, moves in MOVES.items() for seed in SEEDS]
    paths = {(key, seed): path(model, moves, seed) for key, moves, seed in runs}
    begin = paths["search on fixed draws", 0][-1][1]
    *_, sure = natural(model, q, np.random.default_rng(99), begin, SURE)
    best = elbo(sure)
    first = lambda run, near: next((used for used, w in run if best - elbo(w) < near), None)
    for key in MOVES:
        to = [[first(paths[key, seed], near) for seed in SEEDS] for near in NEAR]
        yield {"model": name, "d": model.dim, "moves": key, "to": to}


def measure():
    return {"rows": stored.told(row for name in MODELS for row in rows(name))}


if __name__ == "__main__":
    stored.command(__doc__, "few", ("numpy", "scipy", "autograd"), measure)
