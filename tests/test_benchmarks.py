"""The benchmarks' own models and files: each row takes a step, variates have mean zero."""

import numpy as np
import pytest

import cvlib as cv
from benchmarks import own, scale
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


def test_a_size_in_a_file(monkeypatch, tmp_path):
    """A row of `scale`, in a process of its own; the file is gone afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    row = scale.in_a_process(3000, 0.001)
    assert list(row) == ["part", "N", "plain", "joint", "renewal", "left", "megabytes"]
    assert row["N"] == 3000 and 0 < row["left"] < 1e-3 and row["megabytes"] < 600
    assert not list(tmp_path.iterdir())


def test_the_file_holds_what_the_model_says(tmp_path):
    """Labels follow the logistic law of the z they come from: the score there has mean zero."""
    z = scale.make(tmp_path, 20_000, rows=3000)
    model = scale.mapped(tmp_path)
    assert model.N == 20_000 and cv.passes.is_mapped(model.X)
    s = cv.snapshot(model, z)
    assert np.abs(np.linalg.solve(np.linalg.cholesky(-s.hessian), s.slope)).max() < 4.5
