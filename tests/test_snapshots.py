"""Snapshots of every kind and age, the rules that renew them, and passes in parts."""

import itertools

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad, hessian
from numpy.testing import assert_allclose
from test_batches import problems, setting
from test_experiments_faults import PATIENCE, cluster  # noqa: F401 (a fixture)

import cvlib as cv
from cvlib import CF, PR, QD, RB, RP1, RP2, SF, bound, taylor_z

WORDS = (SF, RP1, RP2, RB, PR, QD, CF)
OLD = 0.3


def expansions(data):
    """The expansions about a snapshot that this data term has, by name."""
    found = {order: taylor_z(data, at="snapshot", order=order) for order in (1, 2)}
    try:
        found["bound"] = bound(data, at="snapshot")
    except ValueError:
        pass
    return found


def kept(model, q, w, kind):
    """A snapshot at weights w, with what this kind of expansion needs."""
    mu, factor = q.moments(w)
    extra = {"factor": factor} if kind == "bound" else {"order": kind}
    return cv.snapshot(model, mu, **extra)


def functions(p, q, w0, kind):
    """z (d,) -> the expansion of each data point about the weights w0, (N,): written afresh."""
    mu, factor = q.moments(w0)
    if kind == "bound":
        X, offset = p.X, getattr(p, "offset", None)
        offset = np.zeros(p.N) if offset is None else offset
        cov = factor @ factor.T if factor.ndim == 2 else np.diag(factor**2)
        m, v = X @ mu + offset, np.einsum("nd,de,ne->n", X, cov, X)
        xi = np.sqrt(m**2 + v)
        lam = np.tanh(xi / 2) / (4 * xi)

        def f(z):
            t = p.y * (anp.dot(X, z) + offset)
            return -np.log1p(np.exp(-xi)) + (t - xi) / 2 - lam * (t**2 - xi**2)

        return f
    each = [lambda z, i=i: p.rows(z)[i] for i in range(p.N)]
    a = np.array([f(mu) for f in each])
    b = np.array([grad(f)(mu) for f in each])
    H = np.array([hessian(f)(mu) for f in each]) * (kind == 2)

    def f(z):
        away = z - mu
        return a + anp.dot(b, away) + 0.5 * anp.dot(anp.dot(H, away), away)

    return f


@problems
@pytest.mark.parametrize("kind", (1, 2, "bound"))
def test_the_sums_of_a_snapshot(monkeypatch, name, family, kind):
    """Value, slope and Hessian over all data, against autograd; in one part and in several."""
    p, model, q, w, _ = setting(name, family)
    if kind == "bound" and kind not in expansions(cv.terms(model, q)[0]):
        pytest.skip("no bound")
    prefix = "bound_" if kind == "bound" else ""
    for chunk in (2**20, 9 * p.d):
        monkeypatch.setattr(cv.passes, "CHUNK", chunk)
        found = kept(model, q, w, kind)
        assert (found.hessian is None) == (kind == 1)
        for k in range(3):
            f = functions(p, q, w[k], kind)
            mu, total = q.mean(w[k]), lambda z: anp.sum(f(z))
            for what, right in (
                ("value", total),
                ("slope", grad(total)),
                ("hessian", hessian(total)),
            ):
                got = getattr(found, prefix + what)
                if got is not None:
                    assert_allclose(got[k], right(mu), atol=1e-10, err_msg=what)


KINDS = {  # how a draw may see data
    "one each": {"index": True},
    "a batch for all": {"batch": 3},
    "a batch for each": {"batch": 3, "each": True},
    "all": {"subsample": False},
}


@problems
@pytest.mark.parametrize("shape", KINDS)
def test_a_stale_line_in_every_shape_of_batch(name, family, shape):
    """SF, RP1, PR and CF of every expansion, sample by sample, against autograd through w.

    The snapshot is taken elsewhere, with another factor. RP1 differentiates the expansion along
    mu + L eps; PR is its slope and curvature at the sample; CF the same at mu, for it is quadratic.
    """
    p, model, q, w, rng = setting(name, family, runs=(2,))
    w0 = w + 0.3 * rng.standard_normal(w.shape)
    data, M = cv.terms(model, q)[0], 4
    eps = rng.standard_normal((2, M, p.d))
    options = dict(KINDS[shape])
    if options.pop("index", False):
        options["index"] = rng.integers(p.N, size=(2, M))
    for kind, T in expansions(data).items():
        draw = cv.draw(model, q, w, eps=eps, rng=rng, snapshot=kept(model, q, w0, kind), **options)
        for whole, f in ((False, T), (True, T.over_all_data())):
            got = cv.evaluate([SF(f), RP1(f), PR(f), CF(f)], draw)
            for run, m in itertools.product(range(2), range(M)):
                each = functions(p, q, w0[run], kind)
                if whole or draw.index is None:
                    total = lambda z: anp.sum(each(z))
                else:
                    index = (
                        np.broadcast_to(draw.index[run].reshape(-1, 3), (M, 3))[m]
                        if (draw.batched)
                        else draw.index[run, m : m + 1]
                    )
                    total = lambda z: p.N * anp.mean(each(z)[index])
                right = by_autograd(q, family, total, w[run], eps[run, m])
                scale = 1 + max(np.abs(r).max() for r in right)
                assert_allclose(got[run, :, m], right, atol=1e-9 * scale, err_msg=f"{kind} {whole}")


def by_autograd(q, family, f, w, eps):
    """SF, RP1, PR and CF of an f at one sample, (4, D); written with autograd alone."""
    d = q.dim
    if family == "Gaussian":
        lower = np.tril_indices(d)
        place = np.zeros((len(lower[0]), d, d))
        place[np.arange(len(lower[0])), lower[0], lower[1]] = 1
        factor = lambda w: anp.tensordot(w[d:], place, 1)
        flat = lambda A: A[lower]
    else:
        factor = lambda w: anp.diag(w[d:])
        flat = np.diag
    z_of = lambda w: w[:d] + anp.dot(factor(w), eps)

    def log_q(v, z):
        L = factor(v)
        white = anp.linalg.solve(L, z - v[:d])
        return -0.5 * anp.sum(white**2) - anp.log(anp.abs(anp.linalg.det(L)))

    z, L = z_of(w), factor(w)
    sf = f(z) * grad(log_q)(w, z)
    rp1 = grad(lambda w: f(z_of(w)))(w)
    price = lambda z: np.concatenate([grad(f)(z), flat(hessian(f)(z) @ L)])
    return np.array([sf, rp1, price(z), price(w[:d])])


@problems
def test_joint_variates_have_mean_zero_exactly(name, family):
    """The two noises at once: over every data point and a quadrature in z, for stale snapshots."""
    p, model, q, w, rng = setting(name, family, runs=())
    t, weight = np.polynomial.hermite_e.hermegauss(4)  # expansions are parabolas in eps
    grid = np.stack(np.meshgrid(*[t] * p.d, indexing="ij"), -1).reshape(-1, p.d)
    weight = np.prod(np.stack(np.meshgrid(*[weight / weight.sum()] * p.d)), 0).ravel()
    eps, index = np.repeat(grid, p.N, 0), np.tile(np.arange(p.N), len(grid))
    share = np.repeat(weight, p.N) / p.N
    data, w0 = cv.terms(model, q)[0], w + 0.5 * rng.standard_normal(w.shape)
    for kind, T in expansions(data).items():
        everything = CF(T.over_all_data())
        draw = cv.draw(model, q, w, eps=eps, index=index, snapshot=kept(model, q, w0, kind))
        legal = 0
        for word in WORDS:
            try:
                line = word(T) - everything
            except ValueError:
                continue
            cv.estimators.check_variate(line)
            C = line(draw)
            assert_allclose(share @ C, 0, atol=1e-9 * (1 + np.abs(C).max()), err_msg=repr(line))
            legal += 1
        assert legal >= 5


def test_what_a_snapshot_lacks_is_said():
    _, model, q, w, rng = setting("logistic", "Gaussian")
    data, prior, _ = cv.terms(model, q)
    draw = lambda s: cv.draw(model, q, w, M=2, rng=rng, snapshot=s)
    first = cv.snapshot(model, q.mean(w), order=1)
    B, T = bound(data, at="snapshot"), taylor_z(data, at="snapshot")
    for line in (CF(T.over_all_data()), CF(B), CF(B.over_all_data())):
        with pytest.raises(ValueError, match="needs more than this snapshot has: take"):
            line(draw(first))
    with pytest.raises(ValueError, match="order=3: an expansion in z has order 1 or 2"):
        taylor_z(data, order=3)
    with pytest.raises(ValueError, match='"mu" or at "snapshot"'):
        bound(data, at="start")
    poisson = setting("poisson", "Gaussian")[1]
    with pytest.raises(ValueError, match="factor= is for a quadratic bound"):
        cv.snapshot(poisson, np.zeros(2), factor=np.eye(2))
    assert repr(taylor_z(data, at="snapshot", order=1).over_all_data()) == (
        "taylor_z(data, at='snapshot', order=1).over_all_data()"
    )
    assert repr(CF(B)) == "CF(bound(data, at='snapshot'))"
    assert repr(taylor_z(prior, order=1)) == "taylor_z(prior, order=1)"
    assert taylor_z(cv.one, order=1).parts.keys() == cv.one.parts.keys()
