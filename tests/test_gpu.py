"""`benchmarks.gpu`, small and on a CPU: its exact ELBO and optimum, and a race."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv

jax = pytest.importorskip("jax")


@pytest.fixture(scope="module")
def gpu():
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
    keys = jax.random.split(jax.random.key(0), 6)
    start = jax.numpy.zeros(8), jax.numpy.eye(8)
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
