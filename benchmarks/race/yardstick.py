"""The best ELBO there is, by two methods that know nothing of each other, and the judge's eyes.

A generalised linear model has quadrature, climbed by natural steps and by L-BFGS. Other models have
natural steps on many rotations, by hand and averaged, and L-BFGS on thousands of fixed draws that
are not the judge's.
"""

import numpy as np
import scipy.optimize

import cvlib as cv
from benchmarks.race import hand, moves
from benchmarks.race.models import JUDGES, even_draws
from benchmarks.race.ours import began
from cvlib.models.density import Density
from cvlib.points import rotations

DRAWS = 4096  # fixed ones
SLOPES, BLOCK, ENOUGH, MOST = 2000, 40, 5e-4, 12  # slopes of a step; steps of a block, blocks
FIRST = 6  # moves of batch and match before the steps
OFF = 0.01  # nats, of which the judge must resolve a third


def yardstick(problem):
    """{"elbo": the better one's, "apart": how much lower the other is, "blur": of OFF nats}.

    All as the judge sees them.
    """
    methods = (by_quadrature, by_lbfgs) if problem.glm else (by_rotations, by_fixed_draws)
    low, high = sorted((problem.elbo(w), k, w) for k, w in enumerate(m(problem) for m in methods))
    return {"elbo": round(high[0], 5), "apart": float(f"{high[0] - low[0]:.2g}"),
            "blur": float(f"{blur(problem, high[2]):.2g}")}  # fmt: skip


def blur(problem, w, tries=4):
    """How far other judges are from this one on places that lie OFF nats below w, at most."""
    if problem.glm:
        return 0.0
    rng, d, worst = np.random.default_rng(0), problem.model.dim, 0.0
    mu, L = problem.q.unpack(w)
    for _ in range(tries):
        a, B = rng.standard_normal(d), np.tril(rng.standard_normal((d, d)))
        size, seen = 0.1 / d, []
        for _ in range(8):  # a step of Newton's for a parabola in the size
            near = problem.q.pack(mu + size * L @ a, L @ (np.eye(d) + size * B))
            gap = lambda judge: problem.elbo(w, judge) - problem.elbo(near, judge)
            size *= np.sqrt(OFF / max(gap(0), OFF / 100))
        seen = [gap(k) for k in range(len(JUDGES))]
        worst = max(worst, *(abs(x - seen[0]) for x in seen))
    return worst


def by_quadrature(problem):
    return cv.exact.optimum(problem.model, problem.q)


def by_lbfgs(problem):
    """The same ELBO and its gradient, in the coordinates of the mode's curvature."""
    model, q = problem.model, problem.q
    f = lambda w: (cv.exact.elbo(model, q, w), q.unpack(cv.exact.gradient(model, q, w)))
    return _climbed(problem, f)


def by_fixed_draws(problem):
    slope, e = _slope(problem), even_draws(DRAWS, problem.model.dim, seed=1)

    def f(w):
        mu, L = problem.q.unpack(w)
        value, u = slope(mu + e @ L.T)
        G = np.tril(u.T @ e) / len(e) + np.diag(1 / np.diag(L))
        return value.mean() + np.log(np.diag(L)).sum(), (u.mean(0), G)

    return _climbed(problem, f)


def _climbed(problem, f):
    """L-BFGS on f(w) -> value, (grad_mu, grad_L), in x: mu + S a, S B, with log of B's diagonal."""
    q, d = problem.q, problem.model.dim
    mu, S, *_ = began(problem, "mode")
    low, on = np.tril_indices(d), np.equal(*np.tril_indices(d))

    def place(x):
        B = np.zeros((d, d))
        B[low] = np.where(on, np.exp(np.where(on, x[d:], 0)), x[d:])
        return q.pack(mu + S @ x[:d], S @ B), B

    def minus(x):
        w, B = place(x)
        value, (g, G) = f(w)
        if not (np.isfinite(value) and np.isfinite(g).all() and np.isfinite(G).all()):
            return 1e100, np.zeros_like(x)
        slope = (S.T @ G)[low] * np.where(on, B[low], 1.0)
        return -value, -np.concatenate([S.T @ g, slope])

    options = {"maxiter": 3000, "maxfun": 5000, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-7}
    with np.errstate(all="ignore"):
        found = scipy.optimize.minimize(
            minus, np.zeros(d + len(on)), jac=True, method="L-BFGS-B", options=options
        )
    return place(found.x)[0]


def by_rotations(problem):
    """Some moves of batch and match, then natural steps on several rotations, averaged.

    Blocks of steps whose rho falls, while a block's mean gains; a step that loses is halved.
    """
    slope, d, rng = _slope(problem), problem.model.dim, np.random.default_rng(0)
    mu, L, *_ = began(problem, "mode")
    M = -(-SLOPES // (2 * d + 1)) * (2 * d + 1)  # whole rotations
    for t in range(1, FIRST + 1):
        e = rng.standard_normal((M, d))
        z = mu + e @ L.T
        mu, L = moves.matched(np, mu, L, z, slope(z)[1], M * d / t)
    best, gain, rho, block = problem.q.pack(mu, L), np.inf, 0.5, 0
    with np.errstate(all="ignore"):
        while (gain > ENOUGH or rho > 0.05) and block < MOST:
            block, path = block + 1, []
            for _ in range(BLOCK):
                e, weight = (x[0] for x in rotations(rng, (1,), M, d))
                u = slope(mu + e @ L.T)[1]
                c, A = moves.landing(np, e, u @ L + e, weight / M)
                mu, L = moves.newton(np, mu, L, c, A, rho, safe=True)
                path.append((mu, L @ L.T))
            half = path[BLOCK // 2 :]  # the mean over it
            mean, cov = (np.mean([x[k] for x in half], 0) for k in (0, 1))
            w = problem.q.pack(mean, np.linalg.cholesky(cov))
            gain = problem.elbo(w) - problem.elbo(best)
            best = w if gain > 0 else best
            rho = rho / 2 if not gain > 10 * ENOUGH else rho
            if not np.isfinite(gain) or gain < -1:  # astray: from the best place again
                mu, L = problem.q.unpack(best)
    return best


def _slope(problem):
    """Values and slopes of log p at points (n, d); compiled where JAX is there, to save time."""
    if not hand.there("jax"):
        return Density(problem.model).slope
    import jax

    return hand.batched(jax.value_and_grad(hand.in_jax(problem)))
