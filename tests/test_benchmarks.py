"""The benchmarks' own models: each row takes a step, and its variate has mean zero."""

import numpy as np
import pytest

import cvlib as cv
from benchmarks import coupled, own
from cvlib import CF, RP1, taylor_z


@pytest.mark.parametrize("name", own.MODELS)
def test_a_row_takes_a_step(name):
    model, q = own.MODELS[name]()
    for label in own.SETS:
        result = own.step(model, q, label, 3)()
        g = result[0] if label == "c7" else result
        assert g.shape == (q.D,) and np.isfinite(g).all()


def test_the_variate_of_the_network_has_mean_zero():
    model, q = own.MODELS["network"]()
    data, *_ = cv.terms(model, q)
    w = q.start()
    w[q.dim :] *= 0.1
    draw = cv.draw(model, q, w, M=4000, rng=np.random.default_rng(0), subsample=False)
    C = (CF(taylor_z(data)) - RP1(taylor_z(data)))(draw)
    assert np.abs(C.mean(0) / (C.std(0) / np.sqrt(draw.M) + 1e-9)).max() < 5.5


@pytest.mark.parametrize("name", coupled.MODELS)
def test_every_way_of_the_race_takes_steps(name):
    model, q = coupled.MODELS[name]()
    for noise, cvs in coupled.WAYS:
        path = coupled.run(model, q, noise, cvs, 0.01, 3, runs=(2,), at=1)
        assert path.path.shape == (4, 2, q.D) and (path.diverged < 0).all()
        assert len(np.unique(path.w)) > q.D


def test_the_elbo_of_the_race_is_the_mean_of_log_p_over_q():
    model, q = coupled.MODELS["eight schools"]()
    w = q.start()
    w[q.dim :] *= 0.3
    z = q.sample(w, 100_000, np.random.default_rng(0))
    ratio = model.log_joint(z) - q.log_q(w, z)
    error = ratio.std() / np.sqrt(len(z))
    assert abs(coupled.elbo(model, q, w[None])[0] - ratio.mean()) < 5 * error
