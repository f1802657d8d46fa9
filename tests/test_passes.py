"""Snapshots, the rules that renew them, and passes: in parts, from files and on a cluster.

An expansion about older weights is that of oracles.py, or the regression of phi' on eta on a fine
grid, and differentiated by autograd.
"""

import itertools
import tempfile
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
from autograd import elementwise_grad
from harness import part
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from test_experiments_faults import PATIENCE, cluster  # noqa: F401 (a fixture)

import cvlib as cv
from cvlib import CF, PR, RP1, SF, bound, taylor_z

problems = pytest.mark.parametrize(
    "name, family", list(itertools.product(oracles.PROBLEMS, oracles.FAMILIES))
)
SHAPES = {  # how a draw may see data
    "one each": {}, "a batch for all": {"batch": 3}, "a batch for each": {"batch": 3, "each": True},
    "all": {"subsample": False},
}  # fmt: skip
AT_MU = "parabola at mu"  # all other kinds are about a snapshot
T = np.linspace(-11, 11, 801)  # standard deviations; the trapezoidal rule is exact to many digits
SHARE = norm.pdf(T) / norm.pdf(T).sum()


def setting(cv, name, family, runs=(3,), d=2, N=7):
    rng = np.random.default_rng(0)
    p = oracles.problem(name, d, N)
    model, q = oracles.build(cv, p), getattr(cv.families, family)(d)
    return p, model, q, q.start(runs) / 2 + 0.1 * rng.standard_normal((*runs, q.D)), rng


def expansions(cv, data):
    """The expansions that this data term has, by kind: orders in z, the bound, parabolas."""
    found = {order: cv.taylor_z(data, at="snapshot", order=order) for order in (1, 2)}
    for kind, write, at in (
        ("bound", cv.bound, "snapshot"), ("parabola", cv.parabola, "snapshot"),
        (AT_MU, cv.parabola, "mu"),
    ):  # fmt: skip
        with suppress(ValueError):
            found[kind] = write(data, at=at)
    return found


def kept(cv, model, q, w, kind):
    """A snapshot at weights w, taken in small parts, with what this kind of expansion needs."""
    mu, factor = q.moments(w)
    extra = {"order": kind} if kind in (1, 2) else {"factor": factor, "mean": True}
    if kind == "bound":  # it needs no Hessian of the data term itself
        extra = {"factor": factor, "order": 2 if q.full else 1}
    with mock.patch.object(cv.passes, "CHUNK", 6):
        return cv.snapshot(model, mu, **extra)


def functions(p, q, w0, kind):
    """z -> the expansion of each data point about w0, (..., d) -> (..., N): written afresh."""
    mu, factor = q.moments(w0)
    if kind in (1, 2):
        return oracles.taylor(p.rows, mu, kind)
    L = factor if factor.ndim == 2 else np.diag(factor)
    if kind == "bound":
        return oracles.jaakkola_jordan(p, mu, L)
    phi = oracles.PHI["logistic" if p.name == "offset" else p.name]
    m, v = p.X @ mu + p.offset, ((p.X @ L) ** 2).sum(-1)
    y, away = p.y[:, None], np.sqrt(v)[:, None] * T  # (N, T)
    slope = elementwise_grad(phi)(m[:, None] + away, y + 0 * away)
    b, c = slope @ SHARE, (slope * away) @ SHARE / v
    mean = phi(m[:, None] + away, y) @ SHARE  # the height is such that it has the mean of phi
    to_eta = lambda z: anp.dot(z, p.X.T) + p.offset - m
    return lambda z: mean + b * to_eta(z) + 0.5 * c * (to_eta(z) ** 2 - v)


@pytest.mark.parametrize(
    "name, family, shape",
    [case for case in itertools.product(oracles.PROBLEMS, oracles.FAMILIES, SHAPES)
     if case[2] == "one each" or case[0] in ("logistic", "curved")],
)  # fmt: skip
def test_lines(cv, name, family, shape):
    """SF, RP1, PR and CF of every expansion, sample by sample, against autograd through w.

    The snapshot is taken elsewhere, with another factor. RP1 differentiates the expansion along
    mu + L eps; PR is its slope and curvature at the sample; CF the same at mu, for it is quadratic.
    """
    p, model, q, w, rng = setting(cv, name, family, runs=(2,), N=4)
    w0 = w + 0.3 * rng.standard_normal(w.shape)
    data, M = cv.terms(model, q)[0], 2
    eps = rng.standard_normal((2, M, p.d))
    for kind, T in expansions(cv, data).items():
        old = kept(cv, model, q, w0, kind)
        draw = cv.draw(model, q, w, eps=eps, rng=rng, snapshot=old, **SHAPES[shape])
        for whole, f in ((False, T), (True, T.over_all_data())):
            got = cv.evaluate([cv.SF(f), cv.RP1(f), cv.PR(f), cv.CF(f)], draw)
            for run, e in enumerate(eps):
                each = functions(p, q, (w if kind == AT_MU else w0)[run], kind)
                index = None if whole or draw.index is None else draw.index[run]
                ways = ("SF", e), ("RP1", e), ("PR", e), ("PR", 0 * e)  # the last is CF
                of = p, family, each, w[run]
                right = np.array([oracles.sample_gradient(word, *of, x, index) for word, x in ways])
                scale = 1 + np.abs(right).max((0, 2))[:, None]
                what = f"{shape}, {kind}, whole={whole}"
                close = 2e-8 if "parabola" in str(kind) else 1e-9
                assert_allclose(got[run] / scale, right / scale, atol=close, err_msg=what)


@problems
def test_mean_zero(cv, name, family):
    """The two noises at once: over every data point and a quadrature in z, for stale snapshots."""
    p, model, q, w, rng = setting(cv, name, family, runs=())
    grid, weight = oracles.hermite(p.d, 4)  # expansions are parabolas in eps
    eps, index = np.repeat(grid, p.N, 0), np.tile(np.arange(p.N), len(grid))
    share = np.repeat(weight, p.N) / p.N
    data, w0 = cv.terms(model, q)[0], w + 0.5 * rng.standard_normal(w.shape)
    for kind, T in expansions(cv, data).items():
        everything = cv.CF(T.over_all_data())
        old = kept(cv, model, q, w0, kind)
        draw = cv.draw(model, q, w, eps=eps, index=index, snapshot=old)
        legal = 0
        for word in (cv.SF, cv.RP1, cv.RP2, cv.RB, cv.PR, cv.QD, cv.CF):
            try:
                line = word(T) - everything
            except ValueError:
                continue
            cv.recipe.estimators.check_variate(line)
            C = line(draw)
            assert_allclose(share @ C, 0, atol=1e-9 * (1 + np.abs(C).max()), err_msg=repr(line))
            legal += 1
        assert legal >= 5


def test_expansions_of_one_draw_do_not_mix(cv):
    """All of them together, and each on a draw of its own, from one snapshot that has all."""
    _, model, q, w, _ = setting(cv, "logistic", "Gaussian", runs=())
    every = [*expansions(cv, cv.terms(model, q)[0]).values()]
    lines = [word(f) for T in every for f in (T, T.over_all_data()) for word in (cv.RP1, cv.CF)]
    draw = lambda: cv.draw(model, q, w, M=2, rng=np.random.default_rng(1), snapshot=old)
    old = kept(cv, model, q, w + 0.1, "parabola")
    for line, together in zip(lines, cv.evaluate(lines, draw()), strict=True):
        assert_allclose(line(draw()), together, rtol=1e-12, err_msg=repr(line))


# When to renew --------------------------------------------------------------------------------


def joint(cv):
    """Model, family, data term, base gradient, and how a variate is made of an expansion."""
    _, model, q, *_ = setting(cv, "logistic", "Gaussian")
    data, prior, variational = cv.terms(model, q)
    h = cv.PR(data) + cv.CF(prior) - cv.CF(variational)
    return model, q, data, h, lambda f: cv.PR(f) - cv.CF(f.over_all_data())


def test_every(cv):
    """Every K steps, and often at first, at the weights of that step; with what the line needs."""
    (model, q, data, h, line), plans = joint(cv), part(cv, "ascent.plans")
    cvs = [line(cv.taylor_z(data, at="snapshot", order=1))]
    for K, steps, right in (
        (1, 6, [*range(6)]), (4, 15, [0, 1, 2, 4, 8, 12]), (100, 15, [0, 1, 2, 4, 8]),
    ):  # fmt: skip
        how = dict(lr=0.1, M=4, runs=(3,), rng=np.random.default_rng(0), renew=K, every=1)
        with mock.patch.object(plans, "snapshot", wraps=plans.snapshot) as taken:
            path = cv.optimize.sgd(model, q, h, cvs, steps=steps, **how)
        assert path.state.snapshot.hessian is None
        at = lambda mu: [t for t, w in enumerate(path.path) if np.array_equal(q.mean(w), mu)][:1]
        assert [at(call.args[1]) for call in taken.call_args_list] == [[t] for t in right]


def test_wants(cv):
    """A plan takes of a snapshot what any of its lines wants, and no more; so does a run."""
    (model, q, data, h, line), plans = joint(cv), part(cv, "ascent.plans")
    first = line(cv.taylor_z(data, at="snapshot", order=1))
    for f, wants in (
        (cv.taylor_z(data, at="snapshot"), (2, False, False)),
        (cv.bound(data, at="snapshot"), (2, True, False)),
        (cv.parabola(data, at="snapshot"), (2, True, True)),
    ):
        for cvs, right in (([first], (1, False, False)), ([line(f), first], wants),
                           ([first, line(f)], wants)):  # fmt: skip
            how = dict(lr=0.1, M=4, renew=5)
            plan = cv.optimize.Noisy(model, q, h, cvs, **how)
            assert plan.wants == right
            path = cv.optimize.sgd(model, q, h, cvs, steps=1, rng=np.random.default_rng(0), **how)
            for old in plans.taken(model, q, q.start((2,)), plan.wants), path.state.snapshot:
                has = [old.slope is not None, old.hessian is not None, old.factor is not None]
                has += [kind in old.parabolas for kind in ("bound", "parabola")]
                assert has == [True, right[0] == 2, right[1], right[1], right[2]]
        w = q.start((2,)) + 0.1 * np.arange(2)[:, None]
        both, alone = (plans.taken(model, q, x, plan.wants) for x in (w, w[1]))
        one = both.of_run(1)  # that of one run of several
        assert one.parabolas.keys() == alone.parabolas.keys()
        for x, y in zip(arrays(one), arrays(alone), strict=True):
            assert y is None if x is None else np.allclose(x, y) and np.shape(x) == np.shape(y)


def test_renewed_in_the_loop(cv):
    """With a parabola that is renewed in every step QD follows the exact path."""
    _, model, q, *_ = setting(cv, "logistic", "Gaussian")
    data, prior, variational = cv.terms(model, q)
    old = cv.parabola(data, at="snapshot")
    h = cv.QD(data) + cv.CF(prior) - cv.CF(variational)
    c = cv.CF(old) - cv.CF(old.over_all_data())
    go = dict(lr=0.1, steps=12, every=1)
    exact = cv.optimize.noise_free(model, q, **go).path
    go |= dict(M=3, weights=cv.rules.fixed(-1.0))
    renewed = lambda K: cv.optimize.sgd(
        model, q, h, [c], rng=np.random.default_rng(0), renew=K, **go
    )
    assert_allclose(renewed(1).path, exact, atol=1e-9)
    assert 1e-9 < np.abs(renewed(12).path - exact).max() < 1e-2


# Passes ---------------------------------------------------------------------------------------


def mapped(folder, name, array, dtype=float, mode="r"):
    array.astype(dtype).tofile(Path(folder) / name)
    return np.memmap(Path(folder) / name, dtype, mode, shape=array.shape)


def files(folder, p):
    """The data of a problem as mapped files."""
    return [mapped(folder, name, getattr(p, name)) for name in ("X", "y")]


def arrays(old):
    """All numbers of a snapshot."""
    return [old.mu, old.factor, *itertools.chain(*old.parabolas.values())]


def everything(cv, model, q, w):
    """What passes over all data: snapshots, exact references, moments for taylor_x."""
    mu, factor = q.moments(w)
    old = arrays(cv.snapshot(model, mu, factor=factor, mean=True))
    terms, G = cv.exact.term_gradients(model, q, w)["data"], model.data_moments
    return [*old, cv.exact.elbo(model, q, w), terms, G.n, G.x, G.y, G.xx, G.xy, G.constant]


@pytest.mark.parametrize("family", oracles.FAMILIES)
def test_parts(cv, family):
    """In memory or in a file, in one part or in many: the same sums, of arrays and of numbers.

    And the same rows, which nobody can change. In mode "c", copy on write, the file does not know
    what was changed, and is not read again.
    """
    p, model, q, w, rng = setting(cv, "logistic", family, runs=(), N=101)
    right, index = everything(cv, model, q, w), rng.integers(101, size=(2, 5, 30))
    with tempfile.TemporaryDirectory() as folder:
        X, y = files(folder, p)
        both = mapped(folder, "both", np.pad(p.X, ((3, 0), (0, 0)), constant_values=9))
        wide = mapped(folder, "wide", np.pad(p.X, ((0, 0), (1, 0)), constant_values=9))
        turned, changed = mapped(folder, "turned", p.X.T), mapped(folder, "old", 0 * p.X, mode="c")
        changed[:] = p.X
        shapes = p.X, X, both[3:], X[:, ::-1][:, ::-1], wide[:, 1:], turned.T, changed
        for chunk, x in itertools.product((2**20, 700), shapes):
            with mock.patch.object(cv.passes, "CHUNK", chunk):
                again = cv.models.logistic_regression(x, y, prior_sd=oracles.PRIOR_SD)
                got = everything(cv, again, q, w)
            for a, b in zip(got, right):
                assert_allclose(a, b, rtol=1e-11, atol=1e-11)
            for rows, all_rows in zip(again.take(index), (p.X, p.y)):
                assert_array_equal(rows, all_rows[index])
                assert not rows.flags.writeable
            assert again.checksum == model.checksum


def test_the_cluster_is_left(cv):
    """After `with passes.on(...)` passes are made here, also if what stood inside it failed."""
    asked, dask = [], part(cv, "adapters.dask")
    idle = SimpleNamespace(nthreads=lambda: asked.append("nthreads") or {})
    with mock.patch.object(dask, "connect", lambda _: nullcontext(idle)):
        with pytest.raises(ZeroDivisionError), cv.passes.on("an address"):
            raise ZeroDivisionError
    with mock.patch.object(cv.passes, "CHUNK", 3), suppress(AttributeError):  # of the cluster
        asked += cv.passes.total(lambda rows: (rows[0].sum(),), (np.arange(10.0),))
    assert asked == [45]


def test_small_numbers(cv):
    """Mapped numbers of one byte do not wrap, wherever rows go: as with floats in memory. Those of
    four bytes have their own digits. Neither is copied."""
    q, whole = cv.families.DiagonalGaussian(2), np.arange(216.0, 256).reshape(20, 2)
    f = lambda z, b: -((b[0] + b[0] - z[..., 0]) ** 2) / 1e4
    w = q.pack([1e-3, -1e-3], [1e-3, 2e-3])
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for kind in np.uint8, np.float32, float:
            x = mapped(folder, kind.__name__, whole, kind) if kind is not float else whole
            glm = cv.models.poisson_regression(x, x[:, 1])
            assert glm.X.dtype == kind and cv.passes.is_mapped(glm.X) == (kind is not float)
            own = cv.models.Model(f, cv.models.GaussianPrior(), x[:, 0], 2)
            numbers = [*everything(cv, glm, q, w), own.log_joint(w[:2]), own.pointwise(w[:2])]
            for model, subsample in itertools.product((glm, own), (True, False)):
                step = cv.draw(model, q, w, 3, np.random.default_rng(0), subsample=subsample)
                data, *_ = cv.terms(model, q)
                lines = [cv.SF(data), cv.RP1(data), cv.PR(data)]
                numbers.append(cv.evaluate(lines, step, check=False))
            found.append([np.asarray(a, float) for a in numbers if a is not None])
    for byte, four, right in zip(*found, strict=True):
        assert_allclose(byte, right, rtol=1e-11, atol=1e-11)
        assert_allclose(four, right, rtol=1e-7)


# Of the package itself: what is refused, read, shown and sent -----------------------------------


def test_what_a_snapshot_lacks_is_said():
    _, model, q, w, rng = setting(cv, "logistic", "Gaussian")
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
    _, model, q, w, rng = setting(cv, "curved", "Gaussian", runs=())
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
    _, model, q, w, rng = setting(cv, "logistic", "Gaussian", N=1000)
    own = setting(cv, "curved", "Gaussian", N=1000)[1]
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
    p, *_ = setting(cv, "logistic", "Gaussian", N=50)
    X = p.X.copy()
    X[33, 1] = np.nan
    with pytest.raises(ValueError, match=r"array 0 of the data is nan at \[33, 1\]"):
        cv.models.logistic_regression(mapped(tmp_path, "X", X), p.y)


def test_a_bar_where_a_pass_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(cv.passes, "CHUNK", 40)
    _, model, *_ = setting(cv, "logistic", "Gaussian", N=101)
    for seconds, terminal in (3, True), (0, False), (0, True):
        monkeypatch.setattr(cv.passes, "QUIET", seconds)
        monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
        cv.snapshot(model, np.zeros(2))
        assert ("pass over the data" in capsys.readouterr().err) == (terminal and not seconds)


def test_a_cluster_that_loses_a_worker_changes_no_digit(tmp_path, monkeypatch, cluster):  # noqa: F811
    from distributed import Client

    address, workers = cluster
    with Client(address) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
    p, model, q, w, _ = setting(cv, "logistic", "Gaussian", N=101)
    X, y = files(tmp_path, p)
    mapped = cv.models.logistic_regression(X, y, prior_sd=oracles.PRIOR_SD)
    sums = lambda rows, mu: (mu @ rows[0].T @ rows[0], rows[1].sum())

    def slowly(rows, mu):  # a function of this test: sent as it is
        time.sleep(0.1)
        return sums(rows, mu)

    monkeypatch.setattr(cv.passes, "CHUNK", 300)
    right = everything(cv, model, q, w)
    with cv.passes.on(scheduler=address):
        for m in (mapped, model):
            m.__dict__.pop("groups", None)
            for a, b in zip(everything(cv, m, q, w), right):
                assert_array_equal(a, b)
        mu = np.array([0.4, 0.1])
        monkeypatch.setattr(cv.passes, "CHUNK", 14)
        for k, found in enumerate(cv.passes.each(slowly, (X, y), mu)):
            for a, b in zip(found, sums((p.X[7 * k : 7 * k + 7], p.y[7 * k : 7 * k + 7]), mu)):
                assert_array_equal(a, b)
            if k == 1:
                workers[0].kill()
                workers[0].wait()
    assert k == 14 and cv.passes.mapper.get() is map
