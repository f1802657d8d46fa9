"""The race of all quadratics: what it counts and keeps, its rules by hand, what it promises."""

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import elementwise_grad
from harness import part
from numpy.testing import assert_allclose

from experiments import cell, compute, load, plans

SETS = "sonar", "ionosphere", "australian"


# The checks take the package, so that they can be run on copies with a bug (tests/harness.py).


def test_gradients_are_counted(cv):
    """M a step; a Hessian is d more; the exact gradient one Hessian; QD a share, and snapshots."""
    tasks = part(cv, "experiments.tasks")
    used = lambda way, M=4, *early: tasks.gradients_used(way, M, 10, 100, 3, *early).tolist()
    for way in "others", "pairs", "same", "before", "inside", "matching", "landing", "RP1":
        assert used(way) == [0, 4, 8, 12]
    for way in "PR", "PR3", "PR pairs":
        assert used(way) == [0, 44, 88, 132]
    assert used("c7") == [0, 14, 28, 42]
    assert used("exact") == [0, 10, 20, 30]
    assert used("PR pairs", 2, (2, 20)) == [0, 20, 40, 62]  # 2 d for a first move
    assert used("then pairs", 20, (2, 12)) == [0, 12, 24, 44]
    assert tasks.TURNS["then pairs"](10, 12) == 4 and tasks.TURNS["pairs midway"](10, 20) == 15
    # ten of a hundred points: a tenth of a Hessian; snapshots before the steps 1, 2, 3, 5, 6, 11
    snapshots = np.array([0, 1, 2, 3, 3, 4, 5, 5, 5, 5, 5, 6])
    assert_allclose(tasks.gradients_used("QD", 10, 10, 100, 11), np.arange(12.0) + 10 * snapshots)


def test_draws_and_steps(cv):
    tasks = part(cv, "experiments.tasks")
    assert [tasks.count(draws, 61) for draws in ("10", "2", "1.1d", "2d", "8d")] == [
        10, 2, 68, 122, 488,
    ]  # fmt: skip
    assert tasks.count("1.1d", 15) == 18  # even: two halves of pairs
    steps = lambda way, M: tasks.affordable(way, M, 10, 60)
    assert [steps("others", M) for M in (11, 20, 40, 80)] == [60, 60, 30, 24]
    assert steps("PR", 10) == 24 and steps("PR pairs", 2) == 54
    assert steps("exact", 0) == 12 and steps("QD", 10) == 150


def test_what_is_kept_of_a_cell(cv):
    result = {
        "steps": [0, 1, 2],
        "gradients": [0, 10, 20],
        "gap": [[9.0, 0.4, 0.1], [9.0, 2.0, 0.02], [9.0, None, None], [9.0, 4.0, 1.0]],
        "diverged": [-1, -1, 1, -1],
    }
    kept = part(cv, "experiments.plans")._climbed(result, 15)
    assert kept == {
        "steps": [0, 1, 2],
        "gradients": [0, 10, 20],
        "median": [9.0, 3.0, 0.55],
        "low": [9.0, 0.4, 0.02],
        "high": [9.0, None, None],
        "worst": [9.0, None, None],
        "to_1": [10, 20, None, None],
        "gap": [0.2, 0.2, None, 2.0],  # halfway, in logarithms
        "diverged": [1],
    }
    late = part(cv, "experiments.plans")._climbed(result, 99)
    assert late["gap"] == [0.1, 0.02, None, 1.0]


def test_cells(cv):
    plans = part(cv, "experiments.plans")
    cells, _ = plans.quadratics(plans.Size(sets=("toy",)))
    names = [c.name.removeprefix("quadratics data=toy ") for c in cells]
    assert len(names) == len(set(names)) == 4 * 4 * 2 + 6 + 2 + 8 * 3 + 1
    end = "most=60 runs=20"
    for draws in "1.1d", "2d", "4d", "8d":
        for way in "others", "pairs", "same", "before":
            for moves in 12, 0:
                name = f"way={way} draws={draws} moves={moves} rho=0.4 after=10 {end}"
                assert name in names
    for way, draws in [("RP1", "2d"), ("landing", "2d"), ("c7", "2d"), ("PR", "10")]:
        for rate in "rho=0.2 after=20", "rho=0.4 after=10", "rho=1.0 after=4":
            assert f"way={way} draws={draws} moves=0 {rate} {end}" in names
    assert f"way=PR pairs draws=2 moves=4 rho=0.4 after=10 {end}" in names
    for way in "inside draws=1.1d", "inside draws=2d", "then pairs draws=1.1d+2d":
        assert f"way={way} moves=12 rho=0.4 after=10 {end}" in names


# The rules, one run by hand ----------------------------------------------------------------------


def fitted(e, G, ridge):
    """c and A of least squares with a ridge as more rows, A symmetrised."""
    d = e.shape[1]
    X = np.column_stack([np.ones(len(e)), e])
    extra = np.sqrt(ridge) * np.eye(d + 1)[1:]
    beta = np.linalg.lstsq(np.append(X, extra, 0), np.append(G, np.zeros((d, d)), 0))[0]
    A = (beta[1:] + beta[1:].T) / 2
    return G.mean(0) - A @ e.mean(0), A


def natural_step(mu, L, c, A, rho):
    """From slope c and curvature A = I - P of the ELBO, in units of q."""
    B = np.eye(len(c)) - rho * A
    new = L @ np.linalg.inv((np.eye(len(c)) + B @ B) / 2) @ L.T
    return mu + rho * new @ np.linalg.solve(L.T, c), np.linalg.cholesky(new)


def test_weights_from_the_same_draws_and_from_the_step_before(cv):
    """Steps without first moves, written out; the stored gaps are theirs."""
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q, d = cv.families.Gaussian(model.dim), model.dim
    slope = elementwise_grad(
        lambda z: (
            anp.sum(-anp.log1p(anp.exp(-model.y * anp.dot(z, model.X.T))), -1)
            - 0.5 * anp.sum(z**2, -1)
        )
    )
    best = cv.exact.elbo(model, q, cv.exact.optimum(model, q))
    M, steps = 4 * d, 3
    regression, ensemble = part(cv, "combining.regression"), part(cv, "ascent.ensemble")
    for way in "same", "before":
        found = part(cv, "experiments.tasks").quadratics(
            np.random.default_rng(5), data="toy", way=way, draws="4d", moves=0, rho=0.3, after=2,
            most=steps, runs=1,
        )  # fmt: skip
        rng, mu, L, gaps, ridge, s = np.random.default_rng(5), np.zeros(d), np.eye(d), [], d / 10, 0
        g0, H0, mu0 = np.zeros(d), -np.eye(d), mu
        for _ in range(steps + 1):
            gaps.append(best - cv.exact.elbo(model, q, q.pack(mu, L)))
            w = q.pack(mu, L)[None]
            e = cv.draw(model, q, w, M, rng, subsample=False).eps[0]
            G = slope(mu + e @ L.T) @ L
            fit = fitted(e, G + e, d / 10 if way == "same" else ridge)
            c, A = fit
            if way == "before":
                A0 = L.T @ H0 @ L
                c0 = L.T @ (g0 + H0 @ (mu - mu0))
                c = (G - e @ A0).mean(0)
                A = (G - c0 - e @ A0).T @ e / M
                A = (A + A.T) / 2 + A0 + np.eye(d)
            back = np.linalg.inv(L)
            g0, H0, mu0 = back.T @ fit[0], back.T @ (fit[1] - np.eye(d)) @ back, mu
            seen, others = regression.gauge(e, G), regression.regress(e, G + e, ridge)
            s, ridge = s + ensemble.at_rest(seen, others, s), regression.shrinkage(seen, d)
            mu, L = natural_step(mu, L, c, A, 1 / s)
        assert found["steps"] == [0, 1, 2, 3]
        assert_allclose(found["gap"], [gaps], rtol=1e-3)
        assert found["gradients"] == [0, M, 2 * M, 3 * M]


def test_rivals_are_their_lines(cv):
    """Gaps of the public loop, with every line written out."""
    tasks, rules = part(cv, "experiments.tasks"), cv.rules
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q, d = cv.families.Gaussian(model.dim), model.dim
    f, prior, variational = cv.terms(model, q)
    rest, at_mu = cv.CF(prior) - cv.CF(variational), cv.taylor_z(f)
    old = cv.taylor_z(f, at="snapshot")
    c7, joint = cv.CF(at_mu) - cv.RP1(at_mu), cv.CF(old) - cv.CF(old.over_all_data())
    whole = cv.AQ(f + prior - variational)
    fall, at_once = rules.falling(0.3, 4), rules.natural()
    six = {"M": 6, "rule": at_once, "lr": fall}
    lines = {
        ("RP1", "6", 0): (cv.RP1(f) + rest, [], six),
        ("landing", "6", 0): (cv.RP1(f) + cv.RP1(prior) - cv.RP1(variational), [], six),
        ("c7", "6", 0): (cv.RP1(f) + rest, [c7], six | {"weights": rules.fixed(1.0)}),
        ("PR", "6", 0): (cv.PR(f) + rest, [], six),
        ("PR3", "6", 0): (cv.PR(f) + cv.PR(prior) - cv.PR(variational), [], six),
        ("PR pairs", "6", 0): (cv.PR(f) + rest, [], six | {"noise": "pairs"}),
        ("QD", "6", 0): (
            cv.QD(f) + rest, [joint],
            six | {"subsample": True, "renew": 5, "weights": rules.fixed(-1.0)},
        ),
        ("others", "6", 12): (whole, [], {"M": 6, "rule": rules.quadratics(), "lr": 1.0}),
        ("pairs", "6", 12): (
            whole, [], {"M": 6, "rule": rules.quadratics(), "lr": 1.0, "noise": "pairs"},
        ),
        ("matching", "6", 12): (whole, [], {"M": 6, "rule": rules.matching(), "lr": 1.0}),
    }  # fmt: skip
    best = cv.exact.elbo(model, q, cv.exact.optimum(model, q))
    for (way, draws, moves), (h, variates, how) in lines.items():
        found = tasks.quadratics(
            np.random.default_rng(3), data="toy", way=way, draws=draws, moves=moves, rho=0.3,
            after=4, most=4, runs=2,
        )  # fmt: skip
        steps = found["steps"][-1]
        how = {"subsample": False} | how
        path = cv.optimize.sgd(
            model, q, h, variates, steps=steps, rng=np.random.default_rng(3), runs=(2,), **how
        )
        assert_allclose(
            found["gap"], best - cv.exact.elbo(model, q, path.path, 1e-8).T, rtol=1e-3, atol=1e-7
        )
        assert found["diverged"] == [-1, -1]
    # four first moves of 2 d draws, then one pair at rho = 1 / s
    rng = np.random.default_rng(3)
    found = tasks.quadratics(
        rng, data="toy", way="PR pairs", draws="2", moves=4, rho=0.3, after=4, most=2, runs=2
    )
    rng = np.random.default_rng(3)
    how = {"rng": rng, "subsample": False}
    first = cv.optimize.sgd(
        model, q, whole, rule=rules.matching(), lr=1.0, M=2 * d, steps=4, runs=(2,), **how
    )
    then = cv.optimize.sgd(
        model, q, cv.PR(f) + rest, rule=at_once, lr=rules.falling(1.0, 1), M=2, steps=2,
        w=first.w, noise="pairs", **how,
    )  # fmt: skip
    path = np.concatenate([first.path, then.path[1:]])
    gaps = best - cv.exact.elbo(model, q, path, 1e-8).T
    assert_allclose(found["gap"], gaps, rtol=1e-3, atol=1e-7)


def test_symmetrised_inside_is_a_refit_for_each_draw(cv):
    """Least squares without the draw, or its pair, A symmetrised, and the constant beside it."""
    rng = np.random.default_rng(7)
    for group in 1, 2:
        e, G = rng.normal(size=(2, 8, 3))
        c, A = 0, 0
        for m in range(8):
            rest = [k for k in range(8) if k % (8 // group) != m % (8 // group)]
            c_, A_ = fitted(e[rest], G[rest], 0.7)
            c = c + (G[m] - A_ @ e[m]) / 8
            A = A + (np.outer(G[m] - c_ - A_ @ e[m], e[m]) + A_) / 8
        found = part(cv, "experiments.tasks").symmetric_inside(e, G, 0.7, group)
        assert_allclose(found.c, c, atol=1e-9)
        assert_allclose(found.A, (A + A.T) / 2, atol=1e-9)


def test_plain_draws_and_then_pairs(cv):
    """Four steps of the public loop, and the same state with pairs."""
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q, rng = cv.families.Gaussian(model.dim), np.random.default_rng(3)
    data, prior, variational = cv.terms(model, q)
    whole = cv.AQ(data + prior - variational)
    how = {"rule": cv.rules.quadratics(), "lr": 1.0, "subsample": False}
    first = cv.optimize.sgd(model, q, whole, M=6, steps=4, runs=(2,), rng=rng, **how)
    then = cv.optimize.sgd(model, q, whole, M=8, steps=7, noise="pairs", state=first.state, **how)
    found = part(cv, "experiments.tasks").quadratics(
        np.random.default_rng(3), data="toy", way="then pairs", draws="6+8", moves=12, rho=0.4,
        after=10, most=3, runs=2,
    )  # fmt: skip
    best = cv.exact.elbo(model, q, cv.exact.optimum(model, q))
    path = np.concatenate([first.path, then.path[1:]])
    gaps = best - cv.exact.elbo(model, q, path, 1e-8).T
    assert_allclose(found["gap"], gaps, rtol=1e-3, atol=1e-7)
    assert found["gradients"] == [0, 6, 12, 18, 24, 32, 40, 48]


# What is stored ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    return load("quadratics")


def row(stored, **wanted):
    (found,) = (r for r in stored["rows"] if wanted.items() <= r.items())
    return found


def median(values):
    return np.median([np.inf if v is None else v for v in values])


def test_rows_are_whole(stored):
    assert stored["dim"] == {"ionosphere": 35, "australian": 15, "sonar": 61}
    assert len(stored["rows"]) == 3 * 65
    for r in stored["rows"]:
        runs = 1 if r["way"] == "exact" else 20
        assert len(r["gap"]) == len(r["to_1"]) == runs
        assert len(r["median"]) == len(r["steps"]) == len(r["gradients"])
        assert not r["diverged"]


@pytest.mark.parametrize("data", SETS)
def test_the_promise(stored, data):
    """Within a nat after 3 steps of 2 d gradients, within 0.05 after 30, no run lost."""
    d = stored["dim"][data]
    found = row(stored, data=data, way="others", draws="2d", moves=12)
    assert median(found["to_1"]) <= 3 * 2 * (d + 1)
    assert max(found["gap"]) < 0.05
    assert found["worst"][found["steps"].index(4)] < 1


@pytest.mark.parametrize("data", SETS)
def test_what_the_chapter_says_of_the_race(stored, data):
    """Unbiased weights end nearer; first moves are quicker; Hessians do not pay."""
    end = lambda **key: median(row(stored, data=data, **key)["gap"])
    ours = end(way="others", draws="2d", moves=12)
    assert ours < end(way="same", draws="2d", moves=12) / 1.3
    assert ours < end(way="matching") / 10
    assert ours < end(way="PR pairs", draws="2", moves=4) / 2
    turned = row(stored, data=data, way="then pairs", draws="1.1d+2d")
    assert median(turned["gap"]) < ours / 2
    assert median(turned["to_1"]) < 5 * stored["dim"][data]
    first = lambda moves: median(
        row(stored, data=data, way="others", draws="2d", moves=moves)["to_1"]
    )
    assert first(12) < first(0) / 2


def test_a_slice_is_computed_again(stored):
    settings = dict(data="australian", way="others", draws="2d", moves=12, rho=0.4, after=10)
    result = compute(cell("quadratics", **settings, most=60, runs=20))["result"]
    again = plans._climbed(result, 60 * stored["dim"]["australian"])
    assert again.items() <= row(stored, **settings).items()
