"""Batches and snapshots: a batch is the mean of its points, a stale expansion has mean zero."""

import numpy as np
import oracles
import pytest
from test_passes import setting

import cvlib as cv
from cvlib import CF, RP1, SF


def test_shapes_of_batches(cv):
    _, model, q, w, _ = setting(cv, "logistic", "Gaussian")
    draw = lambda **kind: cv.draw(model, q, w, M=4, rng=np.random.default_rng(1), **kind)
    assert draw(batch=5).index.shape == (3, 1, 5)
    assert draw(batch=5, each=True).index.shape == (3, 4, 5)
    plain, one = draw(), draw(batch=1, each=True)  # a batch of one is today's draw, to the bit
    assert np.array_equal(plain.index, one.index) and one.index.shape == (3, 4)
    line = cv.PR(cv.terms(model, q)[0])
    assert np.array_equal(line(plain), line(one))
    given = np.arange(15).reshape(3, 5) % 7
    assert np.array_equal(draw(batch=5, index=given).index[:, 0], given)
    assert draw(subsample=False).index is None


def test_sampling_is_one_value(cv):
    """Said once or by keywords, checked once, in words."""
    S, (_, model, q, w, _) = cv.Sampling, setting(cv, "logistic", "Gaussian")
    shared = [how.shared for how in (S(), S(batch=5), S(batch=5, each=True))]
    assert shared == [False, True, False]
    assert [S(noise=noise).group(q, 6) for noise in ("plain", "pairs", "sobol")] == [1, 2, 6]
    draw = lambda **how: cv.draw(model, q, w, M=4, rng=np.random.default_rng(1), **how)
    one, other = draw(sampling=S(batch=3, noise="pairs")), draw(batch=3, noise="pairs")
    assert np.array_equal(one.eps, other.eps) and np.array_equal(one.index, other.index)
    first, second, third = draw(noise="sobol").eps  # runs are independent
    assert len({first[0, 0], second[0, 0], third[0, 0]}) == 3
    for wrong, said in (
        ({"noise": "odd"}, 'write "plain", "pairs", "sobol" or "rotated"'),
        ({"each": True}, "say batch=B too"),
        ({"batch": 2, "index": np.zeros((3, 3), int)}, r"shape \(3, 2\)"),
        ({"sampling": S(), "batch": 3}, "sampling= says it all: leave batch out"),
        ({"index": np.full((3, 4), 7)}, r"index must lie in 0\.\.6"),
        ({"eps": np.full((3, 4, 2), np.nan)}, "eps is not finite at"),
    ):
        with pytest.raises(ValueError, match=said):
            draw(**wrong)


# Snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_on_all_data_needs_no_pass(monkeypatch):
    """Once taken, an expansion over all data does not call the likelihood again."""
    p = oracles.problem("curved")
    model, q = oracles.build(cv, p), cv.families.Gaussian(p.d)
    data, *_ = cv.terms(model, q)
    w, rng = q.start(), np.random.default_rng(0)
    old = cv.snapshot(model, q.mean(w) + 0.1)
    monkeypatch.setattr(model, "log_lik", None)  # a call would fail
    T = cv.taylor_z(data, at="snapshot")
    for subsample in (False, True):
        draw = cv.draw(model, q, w, M=3, rng=rng, subsample=subsample, snapshot=old)
        cv.evaluate([CF(T.over_all_data()), RP1(T.over_all_data()), SF(T.over_all_data())], draw)
    cv.evaluate([CF(T) - RP1(T)], cv.draw(model, q, w, M=3, rng=rng, subsample=False, snapshot=old))
