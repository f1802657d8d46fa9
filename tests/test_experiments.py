"""Cells and engine: seeds from names, the public loop in each cell, numbers by hand."""

import hashlib
from functools import partial
from unittest import mock

import harness
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize
from threadpoolctl import threadpool_info, threadpool_limits

import cvlib as cv
from experiments import Refused, cell, compute, covered, engine, load, plans, store, tasks, truths
from experiments.__main__ import main, settings

TINY = dict(v0=1e-3, gamma=0.02, M=2, steps=6, first=0, runs=3)


def tiny(cvs="S7", **changed):
    return cell("sgd", **({"data": "toy", "cvs": cvs, "lr": 0.1} | TINY | changed))


def tree(folder):
    """{relative path: bytes} of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_name_says_all_and_gives_the_seed():
    c = tiny()
    assert c.name == "sgd data=toy cvs=S7 lr=0.1 v0=0.001 gamma=0.02 M=2 steps=6 first=0 runs=3"
    assert c.seed == int(hashlib.sha256(c.name.encode()).hexdigest()[:32], 16)
    assert tiny(first=3).seed != c.seed
    record = compute(c)
    assert record["name"] == c.name and set(record) == {"name", "versions", "result"}
    assert record["result"] == tasks.sgd(np.random.default_rng(c.seed), **dict(c.settings))


def cells_as_loops(model, q):
    """(task, its settings, h, variates, how the public loop is told the same)."""
    zoo, rules = cv.zoo.paper(model, q), cv.rules
    f, prior, variational = cv.terms(model, q)
    rest, sure = cv.CF(prior) - cv.CF(variational), {"weights": rules.fixed(-1.0)}
    near, T = cv.taylor_z(f), cv.taylor_z(f, at="snapshot")
    T1, P = cv.taylor_z(f, at="snapshot", order=1), cv.parabola(f, at="snapshot")
    minus = lambda word, old: [word(old) - cv.CF(old.over_all_data())]
    c7 = cv.CF(near) - cv.RP1(near)
    loop = {"lr": 0.3, "v0": 1e-3, "gamma": 0.1, "steps": 9}
    cell = loop | {"first": 0, "runs": 2}
    for cvs, some in {"none": [], "c7": [zoo.c7], "S5": zoo.S5}.items():
        yield "sgd", cell | {"cvs": cvs, "M": 3}, zoo.h, some, loop | {"M": 3}
    ladder = cell | {"base": "PR", "cvs": "Jd", "M": 3}
    yield "rung", ladder, cv.PR(f) + rest, minus(cv.CF, near), loop | {"M": 3}
    told = {key: x for key, x in loop.items() if key not in ("v0", "gamma")}
    bayes = {"weights": rules.bayes(1e-3, 0.1)}
    for base, cvs, renew, variates, how in (
        ("RP1", "taylor", 3, minus(cv.RP1, T), bayes), ("PR", "taylor", 1, minus(cv.PR, T), bayes),
        ("QD", "taylor", 4, minus(cv.CF, T), bayes), ("RP1", "svrg", 2, minus(cv.RP1, T1), bayes),
        ("QD", "means", 3, minus(cv.CF, P), sure), ("PR", "means", 2, minus(cv.PR, P), sure),
        ("PR", "none", 0, [], {}),
    ):  # fmt: skip
        draws = {"M": 3} if variates else {"M": 1, "batch": 4}  # a batch for one sample
        settings = cell | draws | {"base": base, "cvs": cvs, "renew": renew}
        how = told | draws | {"renew": renew or None} | how
        yield "joint", settings, getattr(cv, base)(f) + rest, variates, how
    pairs = {"noise": "pairs"}
    landing = lambda word: word(f) + word(prior) - word(variational)
    for base, cvs, whole, after, h, variates, how in (
        ("PR", "none", True, 0, None, [], {}), ("RP1", "c7", False, 3, None, [c7], {}),
        ("QD", "none", False, 3, None, [], {}),
        ("RP1", "landing", True, 3, landing(cv.RP1), [], {}),
        ("PR", "landing", True, 0, landing(cv.PR), [], {}),
        ("PR", "pairs", True, 3, None, [], pairs),
    ):  # fmt: skip
        settings = {"base": base, "cvs": cvs, "whole": whole, "rho": 0.3, "after": after}
        loop = {"M": 2, "steps": 7, "rule": rules.natural(), "subsample": not whole}
        loop["lr"] = rules.falling(0.3, after) if after else 0.3
        h = h or getattr(cv, base)(f) + rest
        yield "natural", settings | {"M": 2, "steps": 7, "runs": 2}, h, variates, loop | how


def test_a_cell_is_the_public_loop():
    """The stored ELBOs are those of the loop, by quadrature, to three decimals."""
    rng = np.random.default_rng
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    for task, told, h, variates, how in cells_as_loops(model, q):
        found = getattr(tasks, task)(rng(3), data="toy", **told)
        path = cv.optimize.sgd(model, q, h, variates, rng=rng(3), runs=(2,), **how)
        elbo, steps = cv.exact.elbo(model, q, path.path).T, range(how["steps"] + 1)
        assert found["steps"] == [*steps] and found["diverged"] == [-1] * 2
        assert_allclose(found["elbo"], elbo, atol=6e-4, err_msg=f"{task}, {told}")
        assert task != "natural" or found["cut"] == path.state.memory[0].tolist()


def test_svrg_is_the_gradient_at_the_older_weights():
    """With the same draws, and minus its mean over q and the data, by cvlib.exact."""
    (model, q, _), rng = tasks.problem("toy"), np.random.default_rng(5)
    w, old = q.start() + 0.1 * rng.standard_normal((2, q.D))
    mu, factor = q.moments(old)
    kept = cv.snapshot(model, mu, factor=factor, mean=True)
    draw = cv.draw(model, q, w, M=5, rng=rng, snapshot=kept)
    then = cv.draw(model, q, old, eps=draw.eps, index=draw.index)
    mean = cv.exact.term_gradients(model, q, old)["data"]
    data = cv.terms(model, q)[0]
    for base in "RP1", "PR", "QD":
        (c,) = tasks.line("toy", base, "gradient")["cvs"]
        right = getattr(cv, base)(data)(then) - mean
        assert np.allclose(c(draw), right, atol=1e-7 * np.abs(right).max()), base
    more = dict(data="toy", base="QD", cvs="gradient", renew=1, lr=0.3, gamma=0.1, M=3, steps=9)
    ends = np.array(tasks.joint(np.random.default_rng(3), **TINY | more)["elbo"])[:, -1]
    exact = cv.optimize.noise_free(model, q, lr=0.3, steps=9).w  # renewed in every step: no noise
    assert np.abs(ends - cv.exact.elbo(model, q, exact)).max() < 6e-4


def test_a_long_run_keeps_few_steps():
    for steps, every in {40: 2, 59: 2, 60: 3}.items():
        free = cell("noise_free", data="toy", lr=0.1, steps=steps)
        for c in free, tiny("none", steps=steps):
            assert compute(c)["result"]["steps"] == [*range(0, steps, every), steps]


def test_a_diverged_run_is_counted_and_left_out():
    c = tiny("none", lr=1e6, steps=40, runs=4)
    result = compute(c)["result"]
    assert any(t > 0 for t in result["diverged"])
    for run, broke_off in zip(result["elbo"], result["diverged"]):
        for step, value in zip(result["steps"], run):
            assert (value is None) == (0 <= broke_off <= step)
    (row,) = plans._finals({("toy", "none", 1e6): [result]})
    assert row["elbo"].count(None) == len(row["diverged"]) > 0


def test_halves_are_halves():
    X, y = cv.datasets.load("ionosphere")
    for name in [f"ionosphere-half-{k}" for k in range(6)]:
        digest = hashlib.sha256(name.encode()).hexdigest()
        order = np.random.default_rng(int(digest[:32], 16)).permutation(351)
        rows = tasks.half(name)
        assert list(rows) == sorted(order[:176]) and len(set(rows)) == 176
    model = tasks.problem("ionosphere-half-5")[0]
    assert np.array_equal(model.y, y[rows]) and model.X.shape == (176, 35)
    assert np.array_equal(tasks.problem("ionosphere")[0].X, X)


def test_references_without_noise():
    """Plain momentum ascent of the exact ELBO, and its maximum by another optimiser."""
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    found = compute(cell("noise_free", data="toy", lr=0.1, steps=4))["result"]
    w, velocity, elbo = q.start(), 0.0, []
    for _ in range(5):
        elbo.append(cv.exact.elbo(model, q, w))
        velocity = 0.9 * velocity + (1 - 0.9) * cv.exact.gradient(model, q, w) / model.N
        w = w + 0.1 * velocity
    assert_allclose(found["elbo"], elbo, atol=6e-4)
    best = optimize.minimize(lambda w: -cv.exact.elbo(model, q, w), q.start(), method="BFGS")
    found = compute(cell("optimum", data="toy"))["result"]
    assert_allclose(found["elbo"], -best.fun, atol=6e-4)
    assert found["N"] == 60


def replicas(R, rng):
    """The problem, and G(w, count): its gradient and variates on fresh draws, (R, 8, count, D)."""
    model, q, zoo = tasks.problem("toy")
    draw = lambda w, count: cv.draw(model, q, np.stack([w] * R), count, rng)
    return model, q, zoo, lambda *at: cv.evaluate([zoo.h, *zoo.S7], draw(*at)) / model.N


def test_variance_by_hand():
    """Each draw's gradient, its weights and its distance from the mean, one replica at a time.

    A draw of k steps ago counts (1 - gamma)^k; the ridge is D v0 over the sum of these counts.
    """
    gamma, v0, M, R, n = 0.1, 0.03, 4, 2, 9
    loop = dict(lr=0.1, v0=v0, gamma=gamma, M=M, steps=5)
    c = cell("variance", data="toy", **loop, replicas=R, samples=R * n)
    found = compute(c)["result"]
    assert found["steps"] == [0, 1, 2, 3, 4]
    rng, past = np.random.default_rng(c.seed), []  # the same draws, in the same order
    model, q, zoo, G = replicas(R, rng)
    path = cv.optimize.sgd(model, q, zoo.h, zoo.S7, rng=rng, **loop).path
    for t, w in enumerate(path[:5]):
        now = G(w, n)
        now[:, 0] -= cv.exact.gradient(model, q, w) / model.N
        for r in range(R):
            for cvs, L in {"none": 0, "S4": 4, "S5": 5, "S6": 6, "S7": 7}.items():
                counts = [(1 - gamma) ** (t - s) for s in range(t)]
                a = np.zeros(L)
                if t and L:
                    A = sum(k * np.einsum("imd,jmd->ij", g[r], g[r]) for k, g in zip(counts, past))
                    ridge = q.D * v0 * np.eye(L)  # times M_eff / M_eff: A is a sum, not a mean
                    a = np.linalg.solve(A[1 : L + 1, 1 : L + 1] + ridge, -A[1 : L + 1, 0])
                left = now[r, 0] + np.tensordot(a, now[r, 1 : L + 1], 1)  # (n, D)
                assert_allclose(found["trace"][cvs][r][t], (left**2).sum() / n / M, rtol=1e-4)
        h, C = now[:, 0].ravel(), np.moveaxis(now[:, 1:], 1, -1).reshape(-1, 7)
        left = h - C @ np.linalg.lstsq(C, h)[0]
        assert_allclose(found["trace"]["best"][0][t], (left**2).sum() / (R * n) / M, rtol=1e-4)
        past.append(G(w, M))
    assert len(found["trace"]) == 6 and len(found["trace"]["best"]) == 1


def test_norms_by_hand():
    M, R, n, v0 = 3, 4, 7, [0.0, 1e-2, 1e-1, 1.0]
    sizes = dict(M=M, replicas=R, samples=R * n, low=-2, high=0, count=3)
    c = cell("norms", data="toy", lr=0.08, step=5, lag=2, **sizes)
    found = compute(c)["result"]
    model, q, _, G = replicas(R, np.random.default_rng(c.seed))
    path = cv.optimize.noise_free(model, q, lr=0.08, steps=5).path
    g = cv.exact.gradient(model, q, path[5]) / model.N
    second, first = G(path[5], n), G(path[3], M)
    second[:, 0] -= g
    mean2 = g @ g
    noise = lambda a, draws: ((draws[0] + np.tensordot(a, draws[1:], 1)) ** 2).sum()
    assert_allclose(found["v0"], v0)
    for k, v in enumerate(v0):
        a = []
        for r in range(R):
            rows = first[r, 1:].reshape(7, -1).T
            rows = np.vstack([rows, np.sqrt(q.D * v) * np.eye(7)])
            a.append(-np.linalg.lstsq(rows, np.append(first[r, 0], np.zeros(7)))[0])
        norm2 = [mean2 + noise(a[r], second[r]) / n / M for r in range(R)]
        assert_allclose(found["mean"][k], np.mean(norm2), rtol=1e-4)
        assert_allclose(found["error"][k], np.std(norm2, ddof=1) / R**0.5, rtol=6e-3)
    none = np.mean([noise(np.zeros(7), one) for one in second]) / n / M
    assert_allclose(found["none"], mean2 + none, rtol=1e-4)


def test_a_cell_has_one_thread_whatever_the_machine(monkeypatch):
    threads = lambda rng: [p["num_threads"] for p in threadpool_info()]
    monkeypatch.setattr(tasks, "threads", threads, raising=False)
    with threadpool_limits(2):
        counts = compute(cell("threads"))["result"]
        assert counts and set(counts) == {1} and set(threads(None)) == {2}


alone = partial(engine.run, jobs=1, progress=False)  # on this process


def test_finished_cells_are_not_computed_again(tmp_path, monkeypatch):
    (short, long), asked = (tiny("none"), tiny("c5")), []
    monkeypatch.setattr(engine, "compute", lambda c: asked.append(c.name) or compute(c))
    first = alone([short, short], tmp_path)
    assert asked == [short.name] and list(first) == [short.name]
    both = alone([short, long], tmp_path)
    assert asked[1:] == [long.name] and both == first | {long.name: both[long.name]}
    assert both[long.name] == compute(long)["result"]
    assert alone([short, long], tmp_path, resume=False) == both  # and compared
    assert asked[2:] == [long.name, short.name]  # long ones first


def test_a_worker_of_another_version_is_refused(tmp_path, monkeypatch):
    other = compute(tiny("none")) | {"versions": store.versions() | {"numpy": "1.0"}}
    monkeypatch.setattr(engine, "compute", lambda c: other)
    with pytest.raises(Refused, match="'numpy': '1.0'.*the same versions on all machines"):
        alone([tiny("none")], tmp_path)
    assert not tree(tmp_path)


def test_a_smaller_run_has_a_name_of_its_own():
    for runs, quick, label, options, size in (
        (None, False, "", "", plans.Size()), (50, False, "", "", plans.Size()),
        (2, False, "-runs2", " --runs 2", plans.Size()._replace(runs=2)),
        (None, True, "-quick", " --quick", plans.QUICK),
        (3, True, "-quick-runs3", " --quick --runs 3", plans.QUICK._replace(runs=3)),
    ):  # fmt: skip
        command = f"python -m experiments table1{options}"
        assert settings("table1", runs, quick) == (f"table1{label}", size, command)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The folder of a run, in which a quick one is quicker still."""
    harness.jax()
    folder, size = tmp_path_factory.mktemp("quick"), plans.QUICK._replace(steps=8, many=100)
    with (
        mock.patch("experiments.__main__.QUICK", size),
        mock.patch.object(truths, "NODES", 5),
        mock.patch.object(plans, "NEAR", ("mesquite",)),
        mock.patch.object(covered, "FITS", 1),
    ):
        main(["all", "--quick", "--out", str(folder), "--jobs", "1"])
        yield folder


def test_the_command_makes_every_file(quick):
    for name in plans.PLANS:
        content = load(f"{name}-quick", quick)
        assert content["command"] == f"python -m experiments {name} --quick"
        assert content["versions"] == store.versions()
        assert content["settings"]["steps"] == 8 and content["rows"]
    before = tree(quick)
    main(["all", "--quick", "--out", str(quick), "--jobs", "1"])  # all there: nothing to do
    assert tree(quick) == before


def test_load_lists_what_is_there(quick):
    with pytest.raises(ValueError, match="no result 'table9'.*'table1-quick'"):
        load("table9", quick)
    with pytest.raises(ValueError, match="'natural_steps'.*python -m benchmarks.none --save"):
        load("benchmarks/none")
    assert {"rows", "versions"} <= set(load("benchmarks/natural_steps"))
