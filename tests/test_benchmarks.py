"""The benchmarks' own models, files and rates: what is timed takes steps and has right numbers."""

import re
from types import SimpleNamespace

import autograd
import autograd.numpy as anp
import notebooks  # tools/notebooks.py
import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv
from benchmarks import coupled, known, network, own, reference, scale, steps


@pytest.mark.parametrize("name", own.MODELS)
def test_a_row_takes_a_step(name):
    model, q = own.MODELS[name]()
    for label in own.SETS:
        result = own.step(model, q, label, 3)()
        g = result[0] if label == "c7" else result
        assert g.shape == (q.D,) and np.isfinite(g).all()


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


def test_a_size_in_a_file(monkeypatch, tmp_path):
    """A row of `scale`, in a process of its own; the file is gone afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    row = scale.in_a_process(3000, scale.D, 0.001)
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


def test_the_pull_back_by_hand_is_the_jacobian_through_w():
    """Both ways of `reference`, in autograd here, JAX's in the benchmark, and the package's own."""
    X, y = cv.datasets.load("australian")
    p = steps.Problem(cv.models.logistic_regression(X, y), steps.SETS["S7"], samples=3)
    shared, pulled = reference.make_pulled(anp, autograd.grad, X, y, p.names)
    at = shared(p.w)
    sees = zip(p.eps, X[p.index], y[p.index], (y[p.index] > 0).astype(int), strict=True)
    rows = np.stack([pulled(at, *one) for one in sees], 1)  # (lines, M, D)
    assert_allclose(rows, steps.autograd_way(p)(), rtol=1e-9, atol=1e-8)
    assert_allclose(rows, cv.evaluate(p.lines, p.given()), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("best", [0.0004, 0.01, 0.2])
def test_a_rival_s_rates_go_on_until_the_best_lies_inside(best):
    """A single peak, a little higher with a falling rate; above 0.5 the run diverges."""

    def climb(rate, last, seed):
        assert last in (0, 950)
        peak = bool(last) + seed - float(np.log(rate / best) ** 2)
        return (-1e6 if rate > 0.5 else peak), 1000

    found = network.tuned(climb)
    for falls in False, True:
        rates = sorted(rate for rate, fell in found if fell == falls)
        k = int(np.argmax([found[rate, falls][0] for rate in rates]))
        assert 0 < k < len(rates) - 1 and rates[k - 1] < best < rates[k + 1]
    (top,) = (key for key, elbos in found.items() if len(elbos) == len(network.SEEDS))
    assert top[1] and np.allclose(np.diff(found[top]), 1)


def test_the_network_s_densities_are_one():
    """By JAX, by autograd as rows and a prior, and by the lines that chapter 21 shows."""
    jax = pytest.importorskip("jax")
    z, (x, y) = 0.5 * np.random.default_rng(0).standard_normal(network.DIM), network.data()
    own = network.log_lik(z[None, None], (x, y)).sum() + network.log_prior(z)
    (page,) = notebooks.BOOK.glob("*-your-own-model.md")
    lines = re.search(r"```python\n(import jax.numpy.*?)```", page.read_text("utf-8"), re.S)[1]
    shown = lambda model, seconds: model if seconds == network.SECONDS else None
    names = {"cv": SimpleNamespace(models=cv.models, real=cv.real, fit=shown), "x": x, "y": y}
    exec(lines, names)
    usual = jax.config.jax_enable_x64
    try:
        assert_allclose(network.joint()(z), own, rtol=1e-10)
        assert_allclose(names["fit"].totals(z[None], 0)[0], own, rtol=1e-10)
    finally:
        jax.config.update("jax_enable_x64", usual)  # `joint` sets it for the whole benchmark


@pytest.fixture(scope="module")
def gpu():
    """`benchmarks.gpu`, small and on a CPU."""
    jax = pytest.importorskip("jax")
    from benchmarks import gpu

    with jax.enable_x64(True):
        yield gpu


@pytest.fixture(scope="module")
def solved(gpu):
    """Data with 8 unknowns, and the optimum: compiled once."""
    data = gpu.problem(8)
    return data, gpu.optimum(data)


def test_the_optimum_and_its_elbo_are_the_package_s(gpu, solved):
    (X, y), (mu, L) = solved
    model, q = cv.models.logistic_regression(np.array(X), np.array(y)), cv.families.Gaussian(8)
    best = cv.exact.optimum(model, q)
    assert_allclose(mu, q.unpack(best)[0], atol=1e-6)
    assert_allclose(L @ L.T, q.unpack(best)[1] @ q.unpack(best)[1].T, atol=1e-6)
    constant = 4 * np.log(2 * np.pi)  # of the prior, which the benchmark leaves out
    ours = gpu.elbo(mu, np.linalg.cholesky(L @ L.T), (X, y)) - constant
    assert_allclose(ours, cv.exact.elbo(model, q, best), atol=1e-6)


def test_rotated_steps_come_within_a_nat(gpu, solved):
    data, best = solved[0], gpu.elbo(*solved[1], solved[0])
    short = lambda q: best - gpu.elbo(*q, data)
    step, rate = gpu.natural(gpu.partial(gpu.by_rotation, gpu.recipes()), gpu.recipes())
    keys = gpu.jax.random.split(gpu.jax.random.key(0), 6)
    start = np.zeros(8), np.eye(8)
    go = lambda q, t: step(q, data, keys[t], rate(t))
    path = [nats for _, nats in gpu.run(go, start, short, 60.0, 6)[0]["path"]]
    assert len(path) == 6 and 0 <= path[-1] < 0.1 < path[0]


@pytest.mark.parametrize("best", [1e-5, 0.003, 0.1])
def test_rates_go_on_until_the_best_lies_inside(gpu, best):
    """With a single valley the best of all rates is found, between two that were tried."""
    rows = []
    end = lambda rate: float(np.log(rate / best) ** 2)
    go = lambda rate, last: {"path": [[1.0, end(rate)]], "step": 0.01}
    gpu.tuned({"way": "x"}, go, 1.0, rows.append)
    constant = sorted(row["rate"] for row in rows if "falling" not in row)
    falling = sorted(row["rate"] for row in rows if row.get("falling") == 97 * gpu.BLOCK)
    for tried in constant, falling:
        assert tried[0] < best < tried[-1] and len(set(tried)) == len(tried) < len(gpu.RATES)


ONE_UNKNOWN = """a normal mean, no count at all, fifty counts of mean three, three of ten,
    none of five, censored times, a student posterior, a cauchy location, a frequency, a kink,
    two places for one mean, a correlation, a heavy scale, a light tail"""


@pytest.mark.parametrize("name", [" ".join(name.split()) for name in ONE_UNKNOWN.split(",")])
def test_what_is_known_of_a_model_is_what_its_own_density_says(name):
    """By a sum over z, to a fiftieth of a standard deviation."""
    case = known.MODELS[name]()
    z = np.linspace(-30, 30, 60_001)[:, None]
    with np.errstate(all="ignore"):
        log, ((parameter, x),) = case.model.log_joint(z), case.model.named(z).items()
    true, order = case.truth[parameter], np.argsort(x)
    found = known.marginal(x[order], np.exp(log - log.max())[order])
    sd = (true[3] - true[2]) / 3.29 if case.heavy else true[1]
    assert np.abs((found - true) / sd)[2 * case.heavy :].max() < 0.02
