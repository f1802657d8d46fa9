"""What a q gains that bends: eleven posteriors, straight and bent, judged on 20,000 fresh draws.

Seconds are those of the processor, one core; `share` is what importance weights keep.

    python -m benchmarks.bends --save
"""

import argparse
import time
import warnings
from pathlib import Path

import autograd.numpy as anp
import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.race.models import model_of
from cvlib.combining.tails import Weights
from cvlib.models.density import Density

RESULTS = Path(__file__).with_name("bends.json")
SEEDS, DRAWS = range(5), 20_000


def of_prior(log_prior, dim, name):
    """A law of z without data."""
    return cv.models.Model(lambda z, b: 0 * z[..., 0] * b[0], log_prior, [0.0], dim, name)


def funnel(d=10):
    """Neal's: v ~ N(0, 9), the others N(0, e^v)."""

    def log_prior(z):
        v, x = z[..., 0], z[..., 1:]
        return -(v**2) / 18 - (d - 1) / 2 * v - 0.5 * anp.sum(x**2, -1) * anp.exp(-v)

    return of_prior(log_prior, d, "funnel")


def banana():
    """x ~ N(0, 1.5^2), y ~ N(x^2, .5^2)."""
    log_prior = lambda z: -0.5 * (z[..., 0] / 1.5) ** 2 - 2 * (z[..., 1] - z[..., 0] ** 2) ** 2
    return of_prior(log_prior, 2, "banana")


def regression():
    """80 rows in six groups, whose means have an unknown spread tau, written as tau times z."""
    rng = np.random.default_rng(0)
    X, g = rng.standard_normal((80, 2)), rng.integers(6, size=80)
    y = X @ [1.0, -1] + rng.normal(0, 0.5, 6)[g] + 0.3 * rng.standard_normal(80)

    def log_lik(p, batch):
        X, g, y = batch
        away = (y - anp.sum(X * p.b, -1) - p.tau * cv.pick(p.z, g)) / p.s
        return -0.5 * away**2 - anp.log(p.s)

    def log_prior(p):
        squares = anp.sum(p.b**2, -1) + p.tau**2 + anp.sum(p.z**2, -1)
        return -0.5 * squares - anp.log1p(p.s**2)

    declared = {"b": 2, "tau": cv.positive, "z": 6, "s": cv.positive}
    return cv.models.Model(log_lik, log_prior, (X, g, y), name="regression", parameters=declared)


def groups(J=8, n=5):
    """Normal data in eight groups, their means a themselves unknown: centred."""
    rng = np.random.default_rng(4)
    g = np.repeat(np.arange(J), n)
    y = rng.normal(0, 0.3, J)[g] + rng.standard_normal(J * n)

    def log_lik(p, batch):
        y, g = batch
        return -0.5 * (y - cv.pick(p.a, g)) ** 2

    def log_prior(p):
        apart = anp.sum((p.a - p.m[..., None]) ** 2, -1) / p.t**2
        return -0.5 * apart - J * anp.log(p.t) - 0.5 * p.m**2 - 0.5 * p.t**2

    declared = {"a": J, "m": (), "t": cv.positive}
    return cv.models.Model(log_lik, log_prior, (y, g), name="groups", parameters=declared)


def counts(J=12, n=4):
    """Counts in twelve groups, their rates e^(m + t z)."""
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(J), n)
    y = rng.poisson(np.exp(0.5 + rng.normal(0, 0.4, J))[g])

    def log_lik(p, batch):
        y, g = batch
        eta = p.m + p.t * cv.pick(p.z, g)
        return y * eta - anp.exp(eta)

    log_prior = lambda p: -0.5 * (anp.sum(p.z**2, -1) + p.m**2 + p.t**2)
    declared = {"z": J, "m": (), "t": cv.positive}
    return cv.models.Model(log_lik, log_prior, (y, g), name="counts", parameters=declared)


def horseshoe(n=60, d=12):
    """Sixty rows, twelve columns of which two matter, a scale of its own for each."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    y = 1.5 * X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(n)

    def log_lik(p, batch):
        x, y = batch
        away = (y - anp.sum(x * p.z * p.each, -1) * p.all) / p.s
        return -0.5 * away**2 - anp.log(p.s)

    def log_prior(p):
        cauchy = anp.sum(anp.log1p(p.each**2), -1) + anp.log1p(p.all**2) + anp.log1p(p.s**2)
        return -0.5 * anp.sum(p.z**2, -1) - cauchy

    declared = {"z": d, "each": cv.positive(d), "all": cv.positive, "s": cv.positive}
    return cv.models.Model(log_lik, log_prior, (X, y), name="horseshoe", parameters=declared)


MODELS = {
    "regression in groups": regression,
    "eight schools": lambda: model_of("eight_schools"),
    "Gaussian process": lambda: model_of("gp_pois_regr"),
    "Neal's funnel": funnel,
    "banana": banana,
    "orange trees": lambda: model_of("orange"),
    "normal groups, centred": groups,
    "counts in groups": counts,
    "remission": lambda: model_of("remission"),
    "volatility": lambda: model_of("volatility"),
    "horseshoe": horseshoe,
}


def judge(fit, seed):
    """ELBO, its error, share and k-hat, on fresh draws."""
    z = fit.sample(DRAWS, [seed, 7])
    found = Weights(z, Density(fit.model).value(z) - fit.q.log_q(fit.w, z))
    return [round(float(x), 4) for x in (*found.elbo, found.effective, found.k_hat)]


def row(model):
    """[elbo, error, share, k-hat] and seconds for each seed, straight and bent."""
    found = {"d": model.dim, "straight": [], "bent": [], "seconds": []}
    for seed in SEEDS:
        spent = []
        for name, bend in (("straight", False), ("bent", True)):
            begun = time.process_time()
            fit = cv.fit(model, seed=seed, bend=bend, progress=False)
            spent.append(round(time.process_time() - begun, 2))
            found[name].append(judge(fit, seed))
        found["seconds"].append(spent)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--only", nargs="*", help="names of models")
    options = parser.parse_args()
    warnings.simplefilter("ignore", cv.Distrust)
    rows = {}
    for name in options.only or MODELS:
        rows[name] = row(MODELS[name]())
        middle = {k: np.median(rows[name][k], 0).round(3).tolist() for k in ("straight", "bent")}
        print(name, middle, rows[name]["seconds"], flush=True)
    if options.save:
        stored.save(RESULTS, ("numpy", "autograd"), rows=rows)


if __name__ == "__main__":
    main()
