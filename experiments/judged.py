"""What `cv.choose` is judged by: noise on fresh draws, for every set that it chooses among.

Noise does not depend on the machine, so it is stored; the cost of a step does, and chapter 19
multiplies the two.
"""

from itertools import combinations

import autograd.numpy as anp
import numpy as np
from numpy.random import default_rng

import cvlib as cv

LOGISTIC = ("sonar", "ionosphere", "australian")
RUNS, M = 10, 10  # steps drawn at once; draws of a step


# Problems ------------------------------------------------------------------------------------


def student(N=60, d=5):
    """Regression with Student's noise, four degrees of freedom, as a model of one's own."""
    rng = default_rng(0)
    X = rng.standard_normal((N, d))
    y = X @ np.ones(d) + rng.standard_t(4, N)
    log_lik = lambda z, batch: -2.5 * anp.log(1 + (batch[1] - anp.sum(batch[0] * z, -1)) ** 2 / 4)
    model = cv.models.Model(log_lik, cv.models.GaussianPrior(), (X, y), d, "Student")
    return model, cv.families.Gaussian(d)


def eight_schools():
    """y_j ~ N(mu + tau t_j, sigma_j), z = (mu, log tau, t_1 ... t_8); d = 10."""
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def log_lik(z, batch):
        y, sigma, school = batch
        theta = z[..., 0] + anp.exp(z[..., 1]) * anp.sum(school * z[..., 2:], -1)
        return -0.5 * ((y - theta) / sigma) ** 2

    def log_prior(z):
        tau = anp.exp(z[..., 1])
        wide = -0.5 * (z[..., 0] / 5) ** 2 - anp.log(1 + (tau / 5) ** 2) + z[..., 1]
        return wide - 0.5 * anp.sum(z[..., 2:] ** 2, -1)

    model = cv.models.Model(log_lik, log_prior, (y, sigma, np.eye(8)), 10, "eight schools")
    return model, cv.families.Gaussian(10)


OWN = {"eight schools": eight_schools, "Student": student}
PROBLEMS = (*LOGISTIC, *(f"{name}, all data" for name in LOGISTIC), *OWN)


def problem(name):
    """Model, family, and how a sample sees data: "sonar", "sonar, all data", or one of OWN."""
    if name in OWN:
        return *OWN[name](), {"subsample": False}
    data, _, whole = name.partition(", ")
    model = cv.models.logistic_regression(*cv.datasets.load(data))
    return model, cv.families.Gaussian(model.dim), {"subsample": False} if whole else {}


def midway(model, q):
    """Parameters on the way: between the start and the optimum, or after sixty steps."""
    if isinstance(model, cv.models.GLM):
        return (q.start() + cv.exact.optimum(model, q)) / 2
    h = cv.candidates(model, q)["RP1"][0]
    how = {"lr": 0.02, "M": 50, "subsample": False, "rng": default_rng(0)}
    return cv.optimize.sgd(model, q, h, steps=60, rule=cv.rules.adam(), **how).w


# Every set of every base -----------------------------------------------------------------------


def noise_left(K, base, S):
    """Mean square of h + C a: a from one half of the draws, tried on the other.

    K (2, P, P) has the mean products of P lines on each half; base and S are places in it.
    """
    S, total = list(S), 0.0
    for fit, trial in (K[0], K[1]), (K[1], K[0]):
        a = -np.linalg.lstsq(fit[np.ix_(S, S)], fit[S, base])[0]
        v = np.concatenate([[1.0], a])
        total += v @ trial[np.ix_([base, *S], [base, *S])] @ v / 2
    return total


def step_products(lines, model, q, w, steps, rng, **see):
    """Mean products of the noise of a step's gradients, on two halves of the steps: (2, P, P)."""
    ws, found = np.broadcast_to(w, (RUNS, q.D)), []
    for _ in range(2):
        X = np.concatenate(
            [
                cv.evaluate(lines, cv.draw(model, q, ws, M, rng, **see)).mean(-2)
                for _ in range(steps // (2 * RUNS))
            ]
        )  # (steps / 2, P, D)
        X = X - X.mean(0)
        found.append((X @ X.mT).sum(0) / (len(X) - 1))
    return np.array(found)


def slope_squared(model, q, w, price, draws, see):
    """|grad ELBO|^2, exactly or as the product of two independent means of Price's gradient."""
    if isinstance(model, cv.models.GLM):
        return (cv.exact.gradient(model, q, w) ** 2).sum()
    a, b = (price(cv.draw(model, q, w, draws, default_rng(s), **see)).mean(0) for s in (8, 9))
    return a @ b


def held_out(name, steps, batches):
    """{set: E|g|^2 of a step, one number a batch} for all candidates, batches of `steps` steps."""
    model, q, see = problem(name)
    w, whole = midway(model, q), not see.get("subsample", True)
    table, found = cv.candidates(model, q, not whole), {}
    lines = [line for base, cvs in table.values() for line in (base, *cvs.values())]
    see = see | {"snapshot": cv.snapshot(model, q.mean(w))}
    slope2 = slope_squared(model, q, w, table["PR"][0], 10 * steps, see)
    for seed in range(batches):
        for noise in ("plain", "pairs")[: 1 + whole]:
            rng = default_rng(90 + seed)
            K = step_products(lines, model, q, w, steps, rng, noise=noise, **see)
            at = 0
            for base, (_, cvs) in table.items():
                for S in (S for n in range(len(cvs) + 1) for S in combinations(range(len(cvs)), n)):
                    drawn = " in pairs" if noise == "pairs" else ""
                    words = " with " + ", ".join(list(cvs)[k] for k in S) if S else ""
                    square = slope2 + noise_left(K, at, [at + 1 + k for k in S])
                    found.setdefault(base + drawn + words, []).append(square)
                at += 1 + len(cvs)
    return found
