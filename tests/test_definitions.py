"""The fast engine against the definitions of chapter 3, for every family, word and integrand."""

import autograd.numpy as anp
import definitions
import numpy as np
from numpy.testing import assert_allclose

M, N, d = 4, 6, 2
rng = np.random.default_rng(0)
X, y = rng.uniform(-1, 1, (N, d)), np.where(np.arange(N) % 2 == 0, 1.0, -1.0)


def lik(z, batch):
    """A model of one's own that is finite for every z, a switch or a real number."""
    x, label = batch
    return -anp.logaddexp(0.0, -label * anp.sum(x * z, -1)) + 0.1 * anp.sin(anp.sum(z, -1))


def prior(z):
    return -anp.sum(anp.log(anp.cosh(z - 0.3)), -1)


def cases(cv):
    """(q, w, draw, {name: (integrand, its function for one draw)}), for all data and drawn."""
    models = [cv.models.Model(lik, prior, (X, y), d), cv.models.logistic_regression(X, y, 1.3)]
    kinds = "Gaussian", "DiagonalGaussian", "Gamma", "Beta", "Bernoulli"
    for q in *(getattr(cv.families, kind)(d) for kind in kinds), cv.families.Categorical(1, d):
        for model in models[: 2 if q.gaussian else 1]:
            w = q.start() + rng.uniform(-0.4, 0.4, q.D)
            for how in ({"subsample": False}, {}, {"batch": 3}, {"batch": 2, "each": True}):
                draw = cv.draw(model, q, w, M, np.random.default_rng(1), **how)
                yield q, w, draw, functions(cv, model, q, w, draw)


def functions(cv, model, q, w, draw):
    """What the integrands are, written afresh."""
    data, prior, variational = cv.terms(model, q)

    def log_lik(z):
        if draw.index is None:
            return anp.sum(model.log_lik(z[:, None], model.data), -1)
        each = draw.index.reshape(len(draw.index), -1)  # (M or 1, B)
        index = np.broadcast_to(each, (M, each.shape[1]))
        rows = tuple(a[index] for a in model.data)  # (M, B, ...)
        return N * anp.mean(model.log_lik(z[:, None], rows), -1)

    return {
        "data": (data, log_lik),
        "prior": (prior, model.log_prior),
        "variational": (variational, lambda z: q.log_density(w[None], z)),
        "2 data - prior": (2 * data - prior, lambda z: 2 * log_lik(z) - model.log_prior(z)),
    }


def test_words_are_their_definitions(cv):
    seen = set()
    for q, w, draw, integrands in cases(cv):
        for name, (f, function) in integrands.items():
            for word in ("SF", "RP1", "RP2", "GR", "PR"):
                if word not in q.methods:
                    continue
                if not q.gaussian and word == "GR" and q.smooth != "z":
                    right = definitions.SF(function, q, w, draw.eps)  # a discrete z does not move
                else:
                    right = getattr(definitions, word)(function, q, w, draw.eps)
                got = getattr(cv, word)(f)(draw)
                assert_allclose(got, right, rtol=1e-9, atol=1e-9, err_msg=f"{word}({name}), {q!r}")
                seen.add((type(q).__name__, word))
    assert len(seen) == 2 * 5 + 2 * 2 + 2 * 2, sorted(seen)


def test_rotations_and_means(cv):
    """RPS is RP1 averaged with slope and draw exchanged; a line's mean is that of its rows."""
    for q, w, draw, integrands in cases(cv):
        if not q.gaussian:
            continue
        f, function = integrands["2 data - prior"]
        row = definitions.RP1(function, q, w, draw.eps)
        got = cv.RPS(f)(draw)
        if q.full:
            L, lower = q.unpack(w)[1], np.tril_indices(d)
            for m in range(M):
                G = L.T @ row[m, :d]  # the slope in q's own coordinates
                outer = np.outer(G, draw.eps[m])
                both = np.linalg.inv(L).T @ (outer + outer.T) / 2
                assert_allclose(got[m], [*row[m, :d], *both[lower]], rtol=1e-9, atol=1e-9)
        else:
            assert_allclose(got, row, rtol=1e-9, atol=1e-9)
        for line in (cv.AQ(f), cv.RPS(f), cv.PR(f) - cv.RP1(f), cv.all_quadratics(2)(f)):
            assert_allclose(line.mean(draw), line(draw).mean(-2), rtol=1e-9, atol=1e-9)
