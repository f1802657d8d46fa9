"""Snapshots of every kind and age, the rules that renew them, and passes in parts."""

import itertools

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
from autograd import grad, hessian
from numpy.testing import assert_allclose, assert_array_equal
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
    p, model, q, w, rng = setting(name, family, runs=(2,), N=4)
    w0 = w + 0.3 * rng.standard_normal(w.shape)
    data, M = cv.terms(model, q)[0], 2
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


# When to renew --------------------------------------------------------------------------------


def joint(name="logistic", expansion=taylor_z, **how):
    """Model, family, base gradient and joint variate at a snapshot."""
    _, model, q, *_ = setting(name, "Gaussian")
    data, prior, variational = cv.terms(model, q)
    old = expansion(data, at="snapshot", **how)
    h = PR(data) + CF(prior) - CF(variational)
    return model, q, h, [PR(old) - CF(old.over_all_data())]


def renewals(monkeypatch, model, q, h, cvs, renew, steps=40, **options):
    """The steps before which a snapshot was taken, what it was asked for, and the path."""
    seen, plans = [], []

    def watched(model, mu, **wanted):
        seen.append((mu, wanted))
        return cv.snapshots.snapshot(model, mu, **wanted)

    monkeypatch.setattr(cv.optimize, "snapshot", watched)
    options = {"lr": 0.1, "M": 4, "runs": (3,), "rng": np.random.default_rng(0)} | options
    path = cv.optimize.sgd(model, q, h, cvs, steps=steps, renew=renew, every=1, **options)
    for mu, _ in seen:  # it is that of the weights of its step
        plans.append([t for t, w in enumerate(path.path) if np.array_equal(q.mean(w), mu)][0])
    return plans, [wanted for _, wanted in seen], path


def test_every_K_steps_and_often_at_first(monkeypatch):
    for K, right in ((1, range(6)), (4, [0, 1, 2, 4, 8, 12]), (100, [0, 1, 2, 4, 8])):
        steps, *_ = renewals(monkeypatch, *joint(), K, steps=15 if K > 1 else 6)
        assert steps == [*right]


def test_a_worn_rule_looks_at_what_is_left():
    rule = cv.rules.worn(factor=2.0, fresh=2)
    memory = rule.start()
    for left in (0.1, 0.3):
        memory = rule.seen(memory, left)
    assert_allclose(memory, [2, 0.2, 0.2])
    assert not rule.due(7, memory) and rule.due(8, memory)
    memory = rule.seen(memory, 0.5)  # the moving mean is 0.35
    assert_allclose(memory, [3, 0.2, 0.35])
    assert not rule.due(7, memory)
    memory = rule.seen(memory, 0.5)  # 0.425 > 2 * 0.2 + 0.01
    assert rule.due(7, memory)
    small = cv.rules.worn().seen(np.array([9.0, 1e-4, 8e-3]), 8e-3)
    assert not cv.rules.worn().due(7, small)  # eighty times as much of nearly nothing


def test_the_loop_measures_the_scatter_of_its_samples(monkeypatch):
    """Against numbers from a loop over runs and samples, with weights of the step."""
    model, q, h, cvs = joint()
    plan = cv.optimize.Noisy(model, q, h, cvs, lr=0.1, M=4, renew=cv.rules.worn())
    rng = np.random.default_rng(3)
    a, G = rng.standard_normal((3, 1)), rng.standard_normal((3, 2, 4, q.D))
    notes = {"snapshot rule": plan.renew.start()}
    got = plan.noted(notes, a, G)["snapshot rule"]
    over = under = 0.0
    for r in range(3):
        g = G[r, 0] + a[r, 0] * G[r, 1]
        over += sum(np.var(g[:, j]) for j in range(q.D))
        under += sum(np.var(G[r, 0, :, j]) for j in range(q.D))
    assert_allclose(got, [1, over / under, over / under])
    assert notes["snapshot rule"][0] == 0  # the notes before are as they were


def test_a_worn_snapshot_is_renewed(monkeypatch):
    """Where the weights run away from it, and not where they stand still."""
    model, q, h, cvs = joint()
    still, *_ = renewals(monkeypatch, model, q, h, cvs, cv.rules.worn(), steps=60, lr=1e-9)
    assert still == [0, 1, 2, 4, 8, 16, 32]
    w = q.pack(np.full(2, 8.0), 0.1 * np.eye(2))  # far off, narrow: every step is many widths
    moving, *_ = renewals(
        monkeypatch, model, q, h, cvs, cv.rules.worn(), steps=60, lr=0.3, w=w, runs=()
    )
    assert len(moving) > len(still)


@pytest.mark.parametrize("renew", (3, cv.rules.worn(1.0, 2)))
def test_a_run_with_snapshots_goes_on_as_if_it_had_not_stopped(tmp_path, renew):
    model, q, h, cvs = joint()
    options = dict(lr=0.1, M=4, renew=renew, every=1)
    whole = cv.optimize.sgd(model, q, h, cvs, steps=20, rng=np.random.default_rng(0), **options)
    first = cv.optimize.sgd(model, q, h, cvs, steps=11, rng=np.random.default_rng(0), **options)
    first.state.save(tmp_path / "state")
    state = cv.optimize.load(tmp_path / "state")
    rest = cv.optimize.sgd(model, q, h, cvs, steps=20, state=state, **options)
    assert_array_equal(rest.path, whole.path[11:])


def test_a_snapshot_has_what_the_lines_need(monkeypatch):
    kinds = (taylor_z, {}, {"order"}), (taylor_z, {"order": 1}, {"order"})
    for expansion, how, right in (*kinds, (bound, {}, {"order", "factor"})):
        _, wanted, path = renewals(monkeypatch, *joint(expansion=expansion, **how), 5, steps=6)
        assert {frozenset(w) for w in wanted} == {frozenset(right)}
        assert {w["order"] for w in wanted} == {how.get("order", 2)}
        assert ("snapshot hessian" in path.state.notes) == (how == {})


def test_bad_renewals_are_named():
    model, q, h, cvs = joint()
    go = lambda **options: cv.optimize.sgd(
        model, q, h, cvs, lr=0.1, steps=2, rng=np.random.default_rng(0), **{"M": 4} | options
    )
    for renew in (0, 2.5, "often"):
        with pytest.raises((ValueError, TypeError), match="renew="):
            go(renew=renew)
    for options in ({"M": 1}, {"batch": 3}):
        with pytest.raises(ValueError, match="measures noise by the scatter of a step's samples"):
            go(renew=cv.rules.worn(), **options)
    go(renew=cv.rules.worn(), batch=3, each=True)
    with pytest.raises(NotImplementedError, match="has no due"):
        cv.rules.Renewal().due(1, ())


# Passes ---------------------------------------------------------------------------------------


def files(folder, p, dtype=float, names=("X", "y")):
    """The data of a problem as mapped files."""
    found = []
    for name in names:
        array = getattr(p, name).astype(dtype)
        array.tofile(folder / name)
        found.append(np.memmap(folder / name, dtype, "r", shape=array.shape))
    return found


def everything(model, q, w):
    """What passes over all data: snapshots, exact references, moments for taylor_x."""
    mu, factor = q.moments(w)
    kept = cv.snapshot(model, mu, factor=factor)
    terms = cv.exact.term_gradients(model, q, w)["data"]
    G = model.groups
    return [*kept, cv.exact.elbo(model, q, w), terms, G.n, G.x, G.y, G.xx, G.xy, G.constant]


@pytest.mark.parametrize("family", ("Gaussian", "DiagonalGaussian"))
def test_parts_add_up_to_the_whole(monkeypatch, tmp_path, family):
    """In memory or in a file, in one part or in many: the same sums."""
    p, model, q, w, _ = setting("logistic", family, N=101)
    right = everything(model, q, w)
    for chunk in (2**20, 700):
        monkeypatch.setattr(cv.passes, "CHUNK", chunk)
        X, y = files(tmp_path, p)
        for arrays in ((p.X, p.y), (X, y), (X[:, ::-1], y)):
            again = cv.models.logistic_regression(*arrays, prior_sd=oracles.PRIOR_SD)
            flipped = arrays[0] is not X and arrays[0] is not p.X
            got = everything(again, q, w) if not flipped else None
            for a, b in zip(got or (), right):
                assert_allclose(a, b, rtol=1e-11, atol=1e-11)
            if flipped:  # not in one piece: taken from memory
                assert_allclose(again.groups.x, model.groups.x[:, ::-1])


def test_a_mapped_array_of_other_numbers_is_not_copied(tmp_path):
    p, *_ = setting("logistic", "Gaussian", N=50)
    X, y = files(tmp_path, p, np.float32)
    model = cv.models.logistic_regression(X, y)
    assert model.X.dtype == np.float32 and cv.passes.is_mapped(model.X)
    q = cv.families.Gaussian(2)
    line, rng = RP1(cv.terms(model, q)[0]), np.random.default_rng(0)
    plain = cv.models.logistic_regression(X.astype(float), y.astype(float))
    draw = cv.draw(model, q, q.start(), M=5, rng=rng)
    same = cv.draw(plain, q, q.start(), eps=draw.eps, index=draw.index)
    assert line(draw).dtype == float
    assert_allclose(line(draw), RP1(cv.terms(plain, q)[0])(same))
    for a, b in zip(everything(model, q, q.start()), everything(plain, q, q.start())):
        assert_allclose(a, b, rtol=1e-6)


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


def test_pages_of_a_file_are_given_back(tmp_path, monkeypatch):
    p, *_ = setting("logistic", "Gaussian", N=50)
    model = cv.models.logistic_regression(*files(tmp_path, p))
    given = []
    monkeypatch.setattr(cv.passes, "forget", given.append)
    for _ in range(5):
        model.take(np.zeros(50, int))
    assert len(given) == 1
    setting("logistic", "Gaussian")[1].take(np.zeros(5000, int))
    assert len(given) == 1  # nothing to give back


def test_changes_in_memory_are_kept(tmp_path):
    """Mode "c" is copy on write: the file does not know them, so it must not be read again."""
    p, *_ = setting("logistic", "Gaussian", N=50)
    files(tmp_path, p)
    X = np.memmap(tmp_path / "X", float, "c", shape=p.X.shape)
    X[:] = 2 * X
    model = cv.models.logistic_regression(X, p.y)
    mu = np.array([0.3, -0.2])
    right = cv.snapshot(cv.models.logistic_regression(2 * p.X, p.y), mu)
    assert_allclose(cv.snapshot(model, mu).slope, right.slope)
    cv.passes.forget(model.data)
    assert_array_equal(model.X, 2 * p.X)


def test_a_nan_far_down_a_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(cv.passes, "CHUNK", 40)
    p, *_ = setting("logistic", "Gaussian", N=50)
    X = p.X.copy()
    X[33, 1] = np.nan
    X.tofile(tmp_path / "X")
    mapped = np.memmap(tmp_path / "X", float, "r", shape=X.shape)
    with pytest.raises(ValueError, match=r"array 0 of the data is nan at \[33, 1\]"):
        cv.models.logistic_regression(mapped, p.y)
    y = p.y.copy()
    y[44] = 0.5
    with pytest.raises(ValueError, match="must be -1 or \\+1"):
        cv.models.logistic_regression(p.X, y)


def test_a_bar_where_a_pass_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(cv.passes, "CHUNK", 40)
    _, model, *_ = setting("logistic", "Gaussian", N=101)
    cv.snapshot(model, np.zeros(2))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cv.passes, "QUIET", 0)
    cv.snapshot(model, np.zeros(2))
    assert "pass over the data" in capsys.readouterr().err


def plain_sums(rows, mu):
    return mu @ rows[0].T @ rows[0], rows[1].sum()


def test_a_cluster_that_loses_a_worker_changes_no_digit(tmp_path, monkeypatch, cluster):  # noqa: F811
    from distributed import Client

    address, workers = cluster
    with Client(address) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
    p, model, q, w, _ = setting("logistic", "Gaussian", N=101)
    X, y = files(tmp_path, p)

    def slowly(rows, mu):  # a function of this test: sent as it is
        import time

        time.sleep(0.1)
        return mu @ rows[0].T @ rows[0], rows[1].sum()

    mapped = cv.models.logistic_regression(X, y, prior_sd=oracles.PRIOR_SD)
    monkeypatch.setattr(cv.passes, "CHUNK", 300)
    right = everything(model, q, w)
    with cv.passes.on(scheduler=address):
        for m in (mapped, model):
            m.__dict__.pop("groups", None)
            for a, b in zip(everything(m, q, w), right):
                assert_array_equal(a, b)
        mu = np.array([0.4, 0.1])
        alone = [cv.passes._part(plain_sums, (p.X[k : k + 7], p.y[k : k + 7]), (mu,))
                 for k in range(0, 101, 7)]  # fmt: skip
        found = None
        monkeypatch.setattr(cv.passes, "CHUNK", 14)
        for k, part in enumerate(cv.passes.each(slowly, (X, y), mu)):
            for a, b in zip(part, alone[k]):
                assert_array_equal(a, b)
            if k == 1:
                workers[0].kill()
                workers[0].wait()
            found = k
        assert found == len(alone) - 1
    assert cv.passes._cluster.get() is None


def test_no_cluster_there(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cv.passes, "PATIENCE", "1s")
    with pytest.raises(ValueError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        with cv.passes.on(scheduler="tcp://127.0.0.1:9"):
            pass
