"""The benchmarks' own models, files and rates: what is timed takes steps and has right numbers."""

import autograd
import autograd.numpy as anp
import harness
import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv
from benchmarks import far, few, known, own, reference, scale, steps


@pytest.mark.parametrize("name", own.MODELS)
def test_a_row_takes_a_step(name):
    model, q = own.MODELS[name]()
    for label in own.SETS:
        result = own.step(model, q, label, 3)()
        g = result[0] if label == "c7" else result
        assert g.shape == (q.D,) and np.isfinite(g).all()


def test_a_curvature_is_completed_by_the_least_symmetric_change():
    """Least squares over all symmetric matrices; and from one pair at the posterior."""
    rng, d, n = np.random.default_rng(0), 6, 2
    U = np.linalg.qr(rng.standard_normal((d, n)))[0].T
    A = rng.standard_normal((d, d))
    V = U @ (A + A.T)
    i, j = np.tril_indices(d)
    unit = np.zeros((len(i), d, d))
    unit[range(len(i)), i, j] = unit[range(len(i)), j, i] = np.where(i == j, 1, np.sqrt(0.5))
    seen = np.array([(U @ E).ravel() for E in unit]).T
    start = np.trace(V @ U.T) / n
    least = np.linalg.lstsq(seen, (V - start * U).ravel(), rcond=None)[0]
    right = start * np.eye(d) + np.tensordot(least, unit, 1)
    assert_allclose(few.completed(U, V), right, atol=1e-12)
    assert_allclose(few.completed(U[:1], -U[:1]), -np.eye(d), atol=1e-12)


def test_few_pairs_come_near_a_gaussian_posterior():
    """Of four unknowns, from one pair each, two and four; KL in closed form."""
    q, rng = cv.families.Gaussian(4), np.random.default_rng(1)
    P = rng.standard_normal((4, 4))
    P = P @ P.T + np.eye(4)
    log_p = lambda z: -anp.sum(anp.dot(z - 1, P) * (z - 1), -1) / 2
    normal = cv.models.Model(lambda z, b: 0 * b[0] * z[..., 0], log_p, (np.zeros(1),), 4)
    for moves in few.Pairs(1 / 4), few.Pairs(1.0):
        with few.Counted(normal) as count:
            *path, w = moves(normal, q, q.start(), rng)
        mu, L = q.unpack(w)
        apart = np.trace(P @ L @ L.T) - 4 - np.linalg.slogdet(P @ L @ L.T)[1]
        assert (apart + (mu - 1) @ P @ (mu - 1)) / 2 < 1
        assert 2 * (len(path) + 1) <= count.gradients <= 8 * (len(path) + 1)


def test_nats_that_a_step_loses():
    """The judge against the closed form of two normals; rows of a small model, and their draws."""
    q, rng = cv.families.Gaussian(3), np.random.default_rng(4)
    log_p = lambda z: -anp.sum((z - 1) ** 2, -1) / 2
    normal = cv.models.Model(lambda z, b: 0 * b[0] * z[..., 0], log_p, (np.zeros(1),), 3)
    elbo, L = far.judge(normal, q, 40_000), np.tril(rng.normal(size=(3, 3))) / 4 + np.eye(3)
    mu = rng.normal(size=3)
    right = np.log(np.diag(L)).sum() - (np.sum((mu - 1) ** 2) + np.sum(L**2)) / 2
    assert abs(elbo(q.pack(mu, L)) - right) < 0.05
    rows = list(far.rows(3, 4, 400))
    assert [len(row["lost"]) for row in rows] == 5 * [4] and len({row["way"] for row in rows}) == 5
    assert np.isfinite([row["lost"] for row in rows]).all()
    model = far.returns(3)
    sizes = [M for _, M, _ in far.ways(model, cv.families.Gaussian(6), np.zeros(27) + 0.1).values()]
    assert sizes == [13, 12, 12, 26, 24]


def test_a_size_in_a_file(monkeypatch, tmp_path):
    """A row of `scale`, in a process of its own; the file is gone afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    row = scale.in_a_process(3000, scale.D)
    assert list(row) == ["part", "N", "megabytes"]
    assert row["N"] == 3000 and row["megabytes"] < 600
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


@pytest.fixture(scope="module")
def gpu():
    """`benchmarks.gpu`, small and on a CPU."""
    jax = harness.jax()
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


def test_rotated_steps_come_within_a_nat(gpu, solved, monkeypatch):
    """The part "natural" as it stands, on eight unknowns: the loop of the page and its rival."""
    data, best, rows = solved[0], gpu.elbo(*solved[1], solved[0]), []
    short = lambda q: best - gpu.elbo(*q[:2], data)
    start = gpu.jnp.zeros(8), gpu.jnp.eye(8)
    monkeypatch.setattr(gpu, "STEPS", 6)
    gpu.naturals(8, data, gpu.recipes(), start, short, rows.append)
    path = [nats for _, nats in rows[1]["path"]]
    assert rows[1]["way"] == "rotated" and len(path) == 6 and 0 <= path[-1] < 0.1 < path[0]
    assert 0 <= rows[2]["path"][-1][1] < 0.1 and 0 <= rows[3]["last"] < 0.1


def test_ways_with_hessians_find_the_mode_the_size_and_the_factors(gpu, solved):
    from scipy import optimize

    from benchmarks import gpu_rivals

    (X, y), jnp = solved[0], gpu.jnp
    X_, y_ = np.array(X), np.array(y)
    sigma = lambda z: 1 / (1 + np.exp(y_ * (X_ @ z)))
    mode = optimize.root(lambda z: X_.T @ (y_ * sigma(z)) - z, np.zeros(8)).x
    precision = np.eye(8) + X_.T @ ((sigma(mode) * (1 - sigma(mode)))[:, None] * X_)
    patched, q = gpu.jax.jit(gpu_rivals.patched), gpu_rivals.laplace(solved[0])
    assert_allclose(q[0], mode, atol=1e-8)
    assert_allclose(np.linalg.inv(q[1] @ q[1].T), precision, atol=1e-7)
    assert_allclose(q[1], np.tril(q[1]))  # as the ELBO of `gpu` has it
    bell = lambda z, data: -2 * ((z - 1) ** 2).sum()  # precision 4
    mu, L = gpu_rivals.one_scalar(bell, (jnp.zeros(8), jnp.eye(8)), None, gpu.jax.random.key(0))
    share = np.linalg.norm(gpu.jax.random.normal(gpu.jax.random.key(0), (8, 8))) ** 2 / 64
    assert_allclose(L, np.eye(8) / (1 + 3 * share) ** 0.5, atol=1e-12)
    assert_allclose(mu, 4 / (1 + 3 * share), atol=1e-12)
    Lam, psi = jnp.array([[2.0], [1.0], [-1.0], [0.5]]), jnp.array([1.0, 2.0, 0.5, 1.5])
    S = Lam @ Lam.T + jnp.diag(psi)
    found = jnp.ones((4, 1)), jnp.ones(4)
    for _ in range(30):
        found = patched(S, *found)
    assert_allclose(found[0] @ found[0].T + np.diag(found[1]), S, atol=1e-4)


def test_the_gradient_at_low_rank_is_that_of_a_dense_covariance(gpu, solved):
    """In the mean: slope of log p less that of log q, which a dense inverse has."""
    from benchmarks import gpu_rivals

    made = np.random.default_rng(0)
    mu, log_s, W = 0.1 * made.standard_normal(8), made.standard_normal(8) / 4, np.ones((8, 2)) / 3
    eps = made.standard_normal((5, 10))
    z = mu + np.exp(log_s) * eps[:, :8] + eps[:, 8:] @ W.T
    (X, y), Sigma = map(np.array, solved[0]), np.diag(np.exp(2 * log_s)) + W @ W.T
    slope = (y / (1 + np.exp(y * (z @ X.T)))) @ X - z + (z - mu) @ np.linalg.inv(Sigma)
    q = tuple(map(gpu.jnp.array, (mu, log_s, W)))
    found = gpu.jax.jit(gpu_rivals.low_rank_gradient)(q, solved[0], gpu.jnp.array(eps))
    assert_allclose(found[0], slope.mean(0), rtol=1e-8)
    assert_allclose(found[2], slope.T @ eps[:, 8:] / 5, rtol=1e-8)


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
