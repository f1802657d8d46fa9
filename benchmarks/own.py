"""Models of one's own: eight schools, a small network, and a Poisson GLM with many unknowns.

Every sample sees all data, as one would do with so few. Only calls that versions of the package
since 0.9 have are used, so that `benchmarks.versions` can time two of them.
"""

import autograd.numpy as anp
import numpy as np

import cvlib as cv
from cvlib import CF, RP1, combine, taylor_z
from experiments import posteriors

SAMPLES = (10, 50)
SETS = ("base", "c7")


def eight_schools():
    """y_j ~ N(mu + tau t_j, sigma_j); d = 10."""
    return posteriors.load("eight_schools").model, cv.families.Gaussian(10)


def network(N=100, inputs=3, hidden=6):
    """One hidden layer of tanh, y ~ N(network(x), 0.3); d = 31."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, inputs))
    y = np.sin(X.sum(1)) + 0.1 * rng.standard_normal(N)
    ends = np.cumsum([inputs * hidden, hidden, hidden, 1])

    def log_lik(z, batch):
        x, y = batch
        h = z[..., ends[0] : ends[1]]
        for k in range(inputs):
            h = h + z[..., k * hidden : (k + 1) * hidden] * x[..., k : k + 1]
        out = anp.sum(z[..., ends[1] : ends[2]] * anp.tanh(h), -1) + z[..., -1]
        return -0.5 * ((y - out) / 0.3) ** 2

    log_prior = lambda z: -0.5 * anp.sum(z**2, -1)
    model = cv.models.Model(log_lik, log_prior, (X, y), int(ends[-1]), "network")
    return model, cv.families.Gaussian(model.dim)


def poisson(N=1000, d=500):
    """Poisson regression with a diagonal q; d = 500."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, d)) / 25, rng.poisson(1.0, N).astype(float)
    return cv.models.poisson_regression(X, y), cv.families.DiagonalGaussian(d)


MODELS = {"eight schools": eight_schools, "network": network, "poisson, diagonal": poisson}


def step(model, q, label, M):
    """One step, with noise of its own and weights from one draw before."""
    data, prior, variational = cv.terms(model, q)
    lines = [RP1(data) + RP1(prior) - CF(variational)]
    if label == "c7":
        lines.append(CF(taylor_z(data)) - RP1(taylor_z(data)))
    rng = np.random.default_rng(0)
    w = q.start()
    w[q.dim :] *= 0.1  # a narrow q: nothing overflows
    G = np.empty((len(lines), M, q.D))

    def gradients():
        cv.evaluate(lines, cv.draw(model, q, w, M, rng, subsample=False), out=G)
        return G[0], G[1:]

    state = combine.update(combine.start(len(lines) - 1), *gradients(), 0.02)

    def take():
        h, C = gradients()
        if len(lines) == 1:
            return h.mean(-2)
        g = combine.mean(h, C, combine.bayes_weights(state, 1e-3, q.D))
        return g, combine.update(state, h, C, 0.02)

    return take


def rows():
    """{(model, M, set): step}."""
    made = {name: make() for name, make in MODELS.items()}
    return {
        (name, M, label): step(*made[name], label, M)
        for name in MODELS
        for M in SAMPLES
        for label in SETS
    }
