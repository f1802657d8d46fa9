"""The best ELBO there is, by two methods that know nothing of each other.

A generalised linear model has quadrature, climbed by natural steps and by L-BFGS. Other models have
natural steps on very many draws, and L-BFGS on thousands of fixed draws that are not the judge's.
"""

import numpy as np
import scipy.optimize

import cvlib as cv
from benchmarks.race import peers
from benchmarks.race.models import even_draws
from benchmarks.race.ours import began
from cvlib.ascent.optimize import init, step
from cvlib.fitting.run import planned
from cvlib.models.density import Density

DRAWS, STEPS, ENOUGH, MOST = 4096, 80, 0.001, 800


def yardstick(problem):
    """{"elbo": the better one's, "apart": how much lower the other is}, as the judge sees them."""
    methods = (by_quadrature, by_lbfgs) if problem.glm else (by_steps, by_fixed_draws)
    found = sorted(problem.elbo(method(problem)) for method in methods)
    return {"elbo": round(found[1], 5), "apart": float(f"{found[1] - found[0]:.2g}")}


def by_quadrature(problem):
    return cv.exact.optimum(problem.model, problem.q)


def by_lbfgs(problem):
    """The same ELBO and its gradient, in the coordinates of the mode's curvature."""
    model, q = problem.model, problem.q
    f = lambda w: (cv.exact.elbo(model, q, w), q.unpack(cv.exact.gradient(model, q, w)))
    return _climbed(problem, f)


def by_fixed_draws(problem):
    density, e = Density(_model(problem)), even_draws(DRAWS, problem.model.dim, seed=1)

    def f(w):
        mu, L = problem.q.unpack(w)
        value, u = density.slope(mu + e @ L.T)
        G = np.tril(u.T @ e) / len(e) + np.diag(1 / np.diag(L))
        return value.mean() + np.log(np.diag(L)).sum(), (u.mean(0), G)

    return _climbed(problem, f)


def _climbed(problem, f):
    """L-BFGS on f(w) -> value, (grad_mu, grad_L), in x: mu + S a, S B, with log of B's diagonal."""
    q, d = problem.q, problem.model.dim
    mu, S = q.unpack(began(problem, "mode")[0])
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


def by_steps(problem):
    """Natural steps on all quadratics, with ten times the draws of a runner, while they gain."""
    model, q = _model(problem), problem.q
    plan = planned("full", model, q, M=20 * max(q.dim, 20))
    state = init(plan, np.random.default_rng(0), w=began(problem, "mode")[0])
    best, gain = state.w, np.inf
    while gain > ENOUGH and state.t < MOST:
        for _ in range(STEPS):
            state = step(state, plan)
        gain = problem.elbo(state.w) - problem.elbo(best)
        best = state.w if gain > 0 else best
    return best


def _model(problem):
    """Compiled where JAX is there, which saves time alone."""
    if not peers.there("jax"):
        return problem.model
    return cv.models.from_jax(peers.in_jax(problem), problem.model.dim)
