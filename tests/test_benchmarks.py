"""The benchmarks' own models: each row takes a step, and its variate has mean zero."""

import numpy as np
import pytest

import cvlib as cv
from benchmarks import own
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
