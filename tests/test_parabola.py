"""The parabola of means: its closed form is that of quadrature; what has none is refused.

Means are taken on a fine grid in eta and differentiated by autograd; the package has its own rule
of quadrature. Its lines, sample by sample, are in test_passes.py, with those of other expansions.
"""

import itertools
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import oracles
import test_passes
from autograd import grad
from autograd.scipy.stats import norm as normal
from numpy.testing import assert_allclose
from test_passes import SHARE, T

NAMES = "logistic", "offset", "poisson", "probit"
FAMILIES = oracles.FAMILIES


def problem(cv, name, family, runs=(2,), N=4, d=2):
    """A small problem, its model, q, weights, and older weights some way off."""
    rng = np.random.default_rng(1)
    p = oracles.problem("logistic" if name == "probit" else name, d, N)
    if name == "probit":
        p = SimpleNamespace(**vars(p) | {"name": name, "phi": probit})
        model = cv.models.GLM(p.X, p.y, cv.models.PROBIT, oracles.PRIOR_SD)
    else:
        model = oracles.build(cv, p)
    phi = probit if name == "probit" else oracles.PHI["logistic" if name == "offset" else name]
    p.likelihood = phi
    q = getattr(cv.families, family)(d)
    w = q.start(runs) / 2 + 0.1 * rng.standard_normal((*runs, q.D))
    old = q.start(runs) + 0.3 * rng.standard_normal((*runs, q.D))
    return p, model, q, w, old, rng


def probit(t, y):
    return normal.logcdf(y * t)


def predictor(p, family, w):
    """Mean and variance of eta of every data point under q_w, through autograd, (N,) each."""
    mu, L = oracles.unpack(family, p.d, w)
    return anp.dot(p.X, mu) + p.offset, anp.sum(anp.dot(p.X, L) ** 2, -1)


def mean_gradients(p, family, w):
    """grad_w E_q phi of every data point, (N, D), by autograd through the grid."""

    def each(w, i):
        m, v = predictor(p, family, w)
        return anp.dot(p.likelihood(m[i] + anp.sqrt(v[i]) * T, p.y[i]), SHARE)

    return np.array([grad(each)(w, i) for i in range(p.N)])


def kept(cv, model, q, w):
    return test_passes.kept(cv, model, q, w, "parabola")


# The checks take the package, so that they can be run on copies with a bug (tests/harness.py).


def test_closed_form_is_the_quadrature(cv, names=NAMES):
    """CF(parabola(f)) is QD(f), and grad_w E_q f; at a snapshot, that of the snapshot's weights."""
    for name, family in itertools.product(names, FAMILIES):
        p, model, q, w, old, _ = problem(cv, name, family, runs=())
        data = cv.terms(model, q)[0]
        rows = {"eps": np.zeros((p.N, p.d)), "index": np.arange(p.N)}
        right = p.N * mean_gradients(p, family, w)
        for at, given in (("mu", {}), ("snapshot", {"snapshot": kept(cv, model, q, w)})):
            f = cv.parabola(data, at=at)
            draw = cv.draw(model, q, w, **rows, **given)
            closed, quadrature, mean = cv.evaluate(
                [cv.CF(f), cv.QD(data), cv.CF(f.over_all_data())], draw
            )
            scale = 1 + np.abs(right).max()
            assert_allclose(closed, right, atol=2e-8 * scale, err_msg=f"{name}, {family}, {at}")
            assert_allclose(closed, quadrature, atol=1e-12 * scale)
            assert_allclose(mean, np.tile(right.mean(0), (p.N, 1)), atol=2e-8 * scale)


def test_renewed_in_the_loop(cv):
    """Snapshots have what the line wants; renewed in every step, QD follows the exact path."""
    steps, wanted, path = test_passes.renewals(cv, *test_passes.joint(cv, "parabola"), 4, steps=9)
    assert steps == [0, 1, 2, 4, 8]
    assert all(w["mean"] is True and w["order"] == 2 for w in wanted)
    assert all(w["factor"].shape == (3, 2, 2) for w in wanted)
    assert all(x is not None for x in path.state.snapshot.parabolas["parabola"])

    model, q, *_ = test_passes.joint(cv)
    data, prior, variational = cv.terms(model, q)
    old = cv.parabola(data, at="snapshot")
    h = cv.QD(data) + cv.CF(prior) - cv.CF(variational)
    c = cv.CF(old) - cv.CF(old.over_all_data())
    go = dict(lr=0.1, steps=12, every=1)
    exact = cv.optimize.noise_free(model, q, **go).path
    found = {
        K: cv.optimize.sgd(
            model, q, h, [c], M=3, rng=np.random.default_rng(0), renew=K,
            weights=cv.rules.fixed(-1.0), **go,
        ).path
        for K in (1, 12)
    }  # fmt: skip
    assert_allclose(found[1], exact, atol=1e-9)
    assert 1e-9 < np.abs(found[12] - exact).max() < 1e-2
