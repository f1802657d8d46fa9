"""What a snapshot lacks is said; passes in parts, from files and on a cluster."""

import itertools

import numpy as np
import oracles
import pytest
import test_passes
from numpy.testing import assert_array_equal
from test_experiments_faults import PATIENCE, cluster  # noqa: F401 (a fixture)

import cvlib as cv
from cvlib import CF, PR, RP1, SF, bound, taylor_z

setting = lambda *args, **kwargs: test_passes.setting(cv, *args, **kwargs)
everything = lambda *args: test_passes.everything(cv, *args)


def test_what_a_snapshot_lacks_is_said():
    _, model, q, w, rng = setting("logistic", "Gaussian")
    data, (mu, factor) = cv.terms(model, q)[0], q.moments(w)
    T, B, P = (write(data, at="snapshot") for write in (taylor_z, bound, cv.parabola))
    all_T, all_B, all_P = (f.over_all_data() for f in (T, B, P))
    for old, lacking in (
        (None, (T, all_T, B, P)),
        (cv.snapshot(model, mu, order=1), (all_T, B, all_B)),
        (cv.snapshot(model, mu), (P, all_P)),
        (cv.snapshot(model, mu, factor=factor), (all_P,)),
    ):
        said = "needs more than this snapshot has: take" if old else "needs a draw that has one"
        draw = cv.draw(model, q, w, M=2, rng=rng, snapshot=old)
        for word, f in itertools.product((CF, SF, RP1), lacking):
            with pytest.raises(ValueError, match=said):
                word(f)(draw)


def test_a_snapshot_on_all_data_needs_no_pass(monkeypatch):
    """Once taken, an expansion over all data does not call the likelihood again."""
    _, model, q, w, rng = setting("curved", "Gaussian", runs=())
    old = cv.snapshot(model, q.mean(w) + 0.1)
    monkeypatch.setattr(model, "log_lik", None)  # a call would fail
    T = taylor_z(cv.terms(model, q)[0], at="snapshot")
    lines = [word(T.over_all_data()) for word in (CF, RP1, SF)]
    for subsample, also in (False, [CF(T) - RP1(T)]), (True, []):
        draw = cv.draw(model, q, w, M=3, rng=rng, subsample=subsample, snapshot=old)
        cv.evaluate(lines + also, draw)


class Watched(np.ndarray):
    """An array that counts the rows taken from it."""

    rows = 0

    def __getitem__(self, index):
        got = super().__getitem__(index)
        Watched.rows += len(np.atleast_1d(got)) if isinstance(index, slice) else np.size(index)
        return np.asarray(got)


@pytest.mark.parametrize("kind", ({}, {"batch": 3}, {"batch": 3, "each": True}))
def test_drawn_rows_are_read_and_no_others(kind):
    _, model, q, w, rng = setting("logistic", "Gaussian", N=1000)
    own = setting("curved", "Gaussian", N=1000)[1]
    for m in (model, own):
        m.data = tuple(np.asarray(a).view(Watched) for a in m.data)
        data = cv.terms(m, q)[0]
        old = taylor_z(data, at="snapshot")
        kept = cv.snapshot(m, q.mean(w))
        Watched.rows = 0
        draw = cv.draw(m, q, w, M=4, rng=rng, snapshot=kept, **kind)
        cv.evaluate([RP1(data), PR(old) - CF(old.over_all_data())], draw)
        assert 0 < Watched.rows <= 12 * draw.index.size


def test_a_nan_far_down_a_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(cv.passes, "CHUNK", 40)
    p, *_ = setting("logistic", "Gaussian", N=50)
    X, y = p.X.copy(), p.y.copy()
    X[33, 1], y[44] = np.nan, 0.5
    with pytest.raises(ValueError, match=r"array 0 of the data is nan at \[33, 1\]"):
        cv.models.logistic_regression(test_passes.mapped(tmp_path, "X", X), p.y)
    with pytest.raises(ValueError, match=r"must be -1 or \+1"):
        cv.models.logistic_regression(p.X, y)


def test_a_bar_where_a_pass_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(cv.passes, "CHUNK", 40)
    _, model, *_ = setting("logistic", "Gaussian", N=101)
    cv.snapshot(model, np.zeros(2))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cv.passes, "QUIET", 0)
    cv.snapshot(model, np.zeros(2))
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    cv.snapshot(model, np.zeros(2))
    assert "pass over the data" in capsys.readouterr().err


def test_a_cluster_that_loses_a_worker_changes_no_digit(tmp_path, monkeypatch, cluster):  # noqa: F811
    from distributed import Client

    address, workers = cluster
    with Client(address) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
    p, model, q, w, _ = setting("logistic", "Gaussian", N=101)
    X, y = test_passes.files(tmp_path, p)
    sums = lambda rows, mu: (mu @ rows[0].T @ rows[0], rows[1].sum())

    def slowly(rows, mu):  # a function of this test: sent as it is
        import time

        time.sleep(0.1)
        return sums(rows, mu)

    mapped = cv.models.logistic_regression(X, y, prior_sd=oracles.PRIOR_SD)
    monkeypatch.setattr(cv.passes, "CHUNK", 300)
    right = everything(model, q, w)
    with cv.passes.on(scheduler=address):
        for m in (mapped, model):
            m.__dict__.pop("groups", None)
            for a, b in zip(everything(m, q, w), right):
                assert_array_equal(a, b)
        mu = np.array([0.4, 0.1])
        alone = [sums((p.X[k : k + 7], p.y[k : k + 7]), mu) for k in range(0, 101, 7)]
        monkeypatch.setattr(cv.passes, "CHUNK", 14)
        parts = zip(cv.passes.each(slowly, (X, y), mu), alone, strict=True)
        for k, (part, right) in enumerate(parts):
            for a, b in zip(part, right):
                assert_array_equal(a, b)
            if k == 1:
                workers[0].kill()
                workers[0].wait()
    assert cv.passes._cluster.get() is None
