"""Batches and snapshots: a batch is the mean of its points, a stale expansion has mean zero."""

import itertools

import numpy as np
import oracles
import pytest
import test_lines
from autograd import grad, hessian
from numpy.testing import assert_allclose

import cvlib as cv
from cvlib import CF, GR, PR, QD, RB, RP1, RP2, SF

WORDS = (SF, RP1, RP2, GR, RB, PR, QD, CF)
problems = pytest.mark.parametrize(
    "name, family", list(itertools.product(oracles.PROBLEMS, oracles.FAMILIES))
)


def setting(name, family, runs=(3,), d=2, N=7, cv=cv):
    rng = np.random.default_rng(0)
    p = oracles.problem(name, d, N)
    model, q = oracles.build(cv, p), getattr(cv.families, family)(d)
    return p, model, q, q.start(runs) / 2 + 0.1 * rng.standard_normal((*runs, q.D)), rng


def lines(model, q, approximations):
    """Every legal word for every approximation of the data term."""
    data, *_ = cv.terms(model, q)
    found = []
    for approximate, word in itertools.product(approximations, WORDS):
        try:
            found.append(word(approximate(data)))
        except ValueError:
            pass
    assert len(found) >= 6
    return found


APPROXIMATIONS = (lambda f: f, cv.taylor_z, cv.bound, cv.taylor_x, cv.taylor_x_slope)


@problems
@pytest.mark.parametrize("each", (False, True))
def test_a_batch_is_the_mean_of_its_points(name, family, each):
    _, model, q, w, rng = setting(name, family)
    draw = cv.draw(model, q, w, M=4, rng=rng, batch=5, each=each)
    together = lines(model, q, APPROXIMATIONS)
    got, points = cv.evaluate(together, draw), np.broadcast_to(draw.index, (3, 4, 5))
    alone = [
        cv.evaluate(together, cv.draw(model, q, w, eps=draw.eps, index=points[..., b]))
        for b in range(5)
    ]
    right = np.mean(alone, 0)
    assert_allclose(got, right, rtol=1e-9, atol=1e-10 * (1 + np.abs(right).max()))


def test_shapes_of_batches(cv):
    _, model, q, w, _ = setting("logistic", "Gaussian", cv=cv)
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
    S, (_, model, q, w, _) = cv.Sampling, setting("logistic", "Gaussian", cv=cv)
    assert [(how.shared, str(how)) for how in (S(), S(batch=5), S(batch=5, each=True))] == [
        (False, "a data point each"),
        (True, "batches of 5, one for all samples"),
        (False, "batches of 5, one for each"),
    ]
    assert str(S(subsample=False, noise="pairs")) == "all data, in pairs"
    assert [S(noise=noise).group(q, 6) for noise in ("plain", "pairs", "sobol")] == [1, 2, 6]
    draw = lambda **how: cv.draw(model, q, w, M=4, rng=np.random.default_rng(1), **how)
    one, other = draw(sampling=S(batch=3, noise="pairs")), draw(batch=3, noise="pairs")
    assert np.array_equal(one.eps, other.eps) and np.array_equal(one.index, other.index)
    first, second, third = draw(noise="sobol").eps  # runs are independent
    assert len({first[0, 0], second[0, 0], third[0, 0]}) == 3
    for wrong, said in (
        ({"noise": "odd"}, 'write "plain", "pairs", "sobol" or "rotated"'),
        ({"each": True}, "say batch=B too"),
        ({"subsample": False, "batch": 3}, "leave batch out"),
        ({"sampling": S(), "batch": 3}, "sampling= says it all: leave batch out"),
        ({"M": 5, "noise": "pairs"}, "needs an even number of samples, not M=5"),
        ({"subsample": False, "index": np.zeros((3, 4), int)}, "leave index out"),
        ({"index": np.full((3, 4), 7)}, r"index must lie in 0\.\.6"),
        ({"index": np.full((3, 4), -1)}, r"index must lie in 0\.\.6"),
        ({"eps": np.full((3, 4, 2), np.nan)}, "eps is not finite at"),
        ({"eps": np.zeros((3, 5, 2))}, "M=4, but eps has 5 samples"),
    ):
        with pytest.raises(ValueError, match=said):
            draw(**wrong) if "M" not in wrong else cv.draw(model, q, w, rng=None, **wrong)


@pytest.mark.parametrize(
    "kind, message",
    [
        ({"batch": 0}, "batch=0: it must be at least one"),
        ({"batch": 2.5}, "must be a whole number"),
        ({"each": True}, "say batch=B too"),
        ({"batch": 2, "subsample": False}, "leave batch out"),
        ({"batch": 2, "index": np.zeros((3, 3), int)}, r"shape \(3, 2\)"),
    ],
)
def test_bad_batches_are_named(kind, message):
    _, model, q, w, rng = setting("logistic", "Gaussian")
    with pytest.raises((ValueError, TypeError), match=message):
        cv.draw(model, q, w, M=4, rng=rng, **kind)


# Snapshots ------------------------------------------------------------------------------------


@problems
def test_a_snapshot_holds_the_sums_over_all_data(monkeypatch, name, family):
    """Against autograd of the whole log-likelihood; in one part and in several."""
    p, model, q, *_ = setting(name, family)
    mu = np.random.default_rng(2).standard_normal((3, p.d)) / 3
    total = lambda z: p.rows(z).sum()
    for size in (2**20, 9 * p.d):
        monkeypatch.setattr(cv.passes, "CHUNK", size)
        s = cv.snapshot(model, mu)
        for k in range(3):
            assert_allclose(s.value[k], total(mu[k]))
            assert_allclose(s.slope[k], grad(total)(mu[k]), atol=1e-12)
            assert_allclose(s.hessian[k], hessian(total)(mu[k]), atol=1e-12)


STALE = (lambda f: cv.taylor_z(f, at="snapshot"),)


@problems
def test_a_stale_expansion_has_the_same_mean_on_drawn_and_on_all_data(name, family):
    """Exactly, for one eps and every data point, however old the snapshot is."""
    p, model, q, w, rng = setting(name, family)
    old = cv.snapshot(model, q.mean(w) + rng.standard_normal((3, p.d)))
    eps = np.repeat(rng.standard_normal((3, 1, p.d)), p.N, -2)  # one eps for all data points
    index = np.broadcast_to(np.arange(p.N), (3, p.N))
    draw = cv.draw(model, q, w, eps=eps, index=index, snapshot=old)
    whole = cv.draw(model, q, w, eps=eps[:, :1], subsample=False, snapshot=old)
    data, *_ = cv.terms(model, q)
    for line in lines(model, q, STALE):
        ((word, _),) = line.parts
        if word is RB:
            continue  # its rivals on all data have another part of eps
        everything = (CF if word is QD else word)(cv.taylor_z(data, at="snapshot").over_all_data())
        c = line - everything
        cv.recipe.estimators.check_variate(c)
        scale = 1 + np.abs(line(draw)).max()
        assert_allclose(c(draw).mean(-2), 0, atol=1e-10 * scale, err_msg=repr(c))
        assert_allclose(line(whole), everything(whole), atol=1e-10 * scale, err_msg=repr(line))


@problems
def test_a_stale_expansion_sample_by_sample(name, family):
    if name != "linear":  # it is its own expansion
        test_lines.test_snapshots(cv, name, family)


@problems
def test_at_mu_a_snapshot_is_the_fresh_expansion(name, family):
    _, model, q, w, rng = setting(name, family)
    data, *_ = cv.terms(model, q)
    draw = cv.draw(model, q, w, M=4, rng=rng, snapshot=cv.snapshot(model, q.mean(w)))
    for word in (SF, RP1, RP2, PR, CF):
        for on in (lambda f: f, lambda f: f.over_all_data()):
            fresh, stored = (word(on(cv.taylor_z(data, at=at))) for at in ("mu", "snapshot"))
            right = fresh(draw)
            assert_allclose(stored(draw), right, atol=1e-10 * (1 + np.abs(right).max()))


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


def test_what_is_wrong_with_a_snapshot_is_said():
    _, model, q, w, rng = setting("logistic", "Gaussian")
    data, *_ = cv.terms(model, q)
    T = cv.taylor_z(data, at="snapshot")
    for line in (CF(T), CF(T.over_all_data()), SF(T.over_all_data()), RP1(T)):
        with pytest.raises(ValueError, match="needs a draw that has one"):
            line(cv.draw(model, q, w, M=2, rng=rng))
    with pytest.raises(ValueError, match='"mu" or at "snapshot"'):
        cv.taylor_z(data, at="zero")
    with pytest.raises(ValueError, match="mu must be finite numbers"):
        cv.snapshot(model, np.zeros(3))
    assert repr(CF(T) - CF(T.over_all_data())) == (
        "CF(taylor_z(data, at='snapshot')) - CF(taylor_z(data, at='snapshot').over_all_data())"
    )
