"""What a q gains that bends: eight posteriors, straight and bent, judged on 20,000 fresh draws.

Seconds are those of the processor, one thread; `share` is what importance weights keep.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.bends --save
"""

import time
import warnings

import autograd.numpy as anp
import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.race.models import model_of
from cvlib.fitting import bends
from cvlib.fitting.looks import Weights
from cvlib.models.density import Density
from experiments.covered import hierarchical, of_law

SEEDS, DRAWS = range(5), 20_000
ENOUGH = 600  # seconds by the clock, on however busy a machine; those of the processor are told


def funnel(d=10):
    """Neal's: v ~ N(0, 9), the others N(0, e^v)."""

    def log_prior(z):
        v, x = z[..., 0], z[..., 1:]
        return -(v**2) / 18 - (d - 1) / 2 * v - 0.5 * anp.sum(x**2, -1) * anp.exp(-v)

    return of_law(log_prior, d, "funnel")


def banana():
    """x ~ N(0, 1.5^2), y ~ N(x^2, .5^2)."""
    log_prior = lambda z: -0.5 * (z[..., 0] / 1.5) ** 2 - 2 * (z[..., 1] - z[..., 0] ** 2) ** 2
    return of_law(log_prior, 2, "banana")


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
    "regression in groups": lambda: hierarchical()[0],
    "eight schools": lambda: model_of("eight_schools"),
    "Gaussian process": lambda: model_of("gp_pois_regr"),
    "Neal's funnel": funnel,
    "banana": banana,
    "orange trees": lambda: model_of("orange"),
    "volatility": lambda: model_of("volatility"),
    "horseshoe": horseshoe,
}


# Measured -----------------------------------------------------------------------------------------


def judge(model, q, w, seed):
    """ELBO, its error, share and k-hat of fresh draws."""
    z = q.sample(w, DRAWS, np.random.default_rng([seed, 7]))
    found = Weights(z, Density(model).value(z) - q.log_q(w, z))
    return [round(float(x), 4) for x in (*found.elbo, found.effective, found.k_hat)]


def row(model):
    """[elbo, error, share, k-hat] for each seed, straight and bent; seconds of both fits."""
    found = {"d": model.dim, "straight": [], "bent": [], "seconds": []}
    for seed in SEEDS:
        begun = time.process_time()
        fit = cv.fit(model, seconds=ENOUGH, seed=seed, bend=False, progress=False)
        straight = time.process_time() - begun
        bent = bends.bend(model, fit.w)  # what bend=True goes on with
        both = time.process_time() - begun
        law = (fit.q, fit.w) if bent is None else bent[:2]
        found["straight"].append(judge(model, fit.q, fit.w, seed))
        found["bent"].append(judge(model, *law, seed))
        found["seconds"].append([round(straight, 2), round(both, 2)])
    return found


def measure():
    warnings.simplefilter("ignore", cv.Distrust)
    rows = {}
    for name, make in MODELS.items():
        rows[name] = row(make())
        print(name, rows[name], flush=True)
    return {"rows": rows}


if __name__ == "__main__":
    stored.command(__doc__, "bends", ("numpy", "autograd"), measure)
