"""The experiment with one variate for both noises: its cells, its promise, one slice again."""

import numpy as np
import pytest
from harness import part

from experiments import load

SETS = "sonar", "ionosphere", "australian"
SWEPT = ("RP1", "taylor"), ("PR", "taylor"), ("PR", "bound"), ("QD", "taylor")
ONCE = ("RP1", "svrg"), ("PR", "svrg"), ("PR", "data"), ("PR", "fixed"), ("QD", "bound")
LINES = [(*line, K) for line in SWEPT for K in (1, 5, 20, 50, 200, "worn")]
LINES += [(*line, 50) for line in ONCE]
LINES += [("QD", "means", K) for K in (1, 5, 20, 50, 200)]
LINES += [("PR", "means", 50), ("PR", "gradient", 50), ("QD", "gradient", 50)]
BATCHES = [("PR", "none", 0), ("QD", "none", 0)]  # a hundred data points for one sample


# The checks take the package, so that they can be run on copies with a bug (tests/harness.py).


def test_rows(cv):
    """Final ELBOs of all runs, and the share of the gap that their median closes."""
    plans = part(cv, "experiments.plans")
    cells, gather = plans.joint(plans.Size(sets=("sonar",), runs=12))
    results = {}
    for k, c in enumerate(cells):
        runs = dict(c.settings).get("runs", 0)
        results[c.name] = {"elbo": [[0.0, -100.0 + k]] * runs, "diverged": [-1] * runs}
    results[cells[-1].name] = {"elbo": [0.0, -20.0], "steps": [0, 500]}
    found = gather(results)
    lines = [("paper", "none", 0), *LINES, *BATCHES]
    assert found["limits"] == [{"data": "sonar", "lr": 0.2, "noise_free": -20.0}]
    assert len(found["rows"]) == len(lines) and found["steps"] == [0, 500]
    for k, (row, line) in enumerate(zip(found["rows"], lines)):
        assert (row["base"], row["cvs"], row["renew"]) == line
        assert row["elbo"] == [-100.0 + 2 * k] * 10 + [-99.0 + 2 * k] * 2
        assert row["closed"][0] == pytest.approx(2 * k / 80, abs=1e-5)
    *curves, exact = found["curves"]
    assert exact == {"data": "sonar", "base": "exact", "median": [0.0, -20.0]}
    names = [(row["base"], row["cvs"], row["renew"]) for row in curves]
    assert names == [line for line in lines if line in plans.CURVES] and len(names) == 7
    for row, k in zip(curves, map(lines.index, names)):  # ten of twelve runs have the lower value
        assert row["median"] == row["low"] == [0.0, -100.0 + 2 * k]


def worn(cv):
    """Renewed beyond 1.5 times what was left of the noise in the first five steps, and .01."""
    seen = []  # of each step since the last renewal, what h + C a leaves of h's scatter

    def look(state, plan):
        h, c, a = state.G[..., 0, :, :], state.G[..., 1, :, :], state.a[..., None]
        of_h, rest = (np.var(g, axis=-2).sum() for g in (h, h + c * a))
        seen.append(rest / of_h)
        now = np.mean(seen[:5])
        for x in seen[5:]:
            now = 0.8 * now + 0.2 * x
        power = state.t in (1, 2, 4, 8, 16, 32)
        if power or (len(seen) > 5 and now > 1.5 * np.mean(seen[:5]) + 0.01):
            seen.clear()
            mu, _ = plan.q.moments(state.w)
            state = state._replace(snapshot=cv.snapshot(plan.model, mu))
        return state, plan

    return look


def test_a_cell_is_the_loop_with_that_seed(cv):
    """Stored ELBOs are those of the public loop, with the line written out."""
    taylor_z, bound, sure = cv.taylor_z, cv.bound, ("fixed", "means")
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    f, prior, variational = cv.terms(model, q)
    rest = cv.CF(prior) - cv.CF(variational)
    T, T1 = (taylor_z(f, at="snapshot", order=order) for order in (2, 1))
    B, all_of = bound(f, at="snapshot"), lambda old: cv.CF(old.over_all_data())
    P = cv.parabola(f, at="snapshot")
    lines = {
        ("RP1", "taylor", 3): (cv.RP1(f), cv.RP1(T) - all_of(T)),
        ("PR", "taylor", "worn"): (cv.PR(f), cv.PR(T) - all_of(T)),
        ("PR", "bound", 1): (cv.PR(f), cv.PR(B) - all_of(B)),
        ("PR", "data", 4): (cv.PR(f), cv.CF(T) - all_of(T)),
        ("PR", "fixed", 4): (cv.PR(f), cv.PR(T) - all_of(T)),
        ("RP1", "svrg", 2): (cv.RP1(f), cv.RP1(T1) - all_of(T1)),
        ("QD", "bound", 2): (cv.QD(f), cv.CF(B) - all_of(B)),
        ("QD", "means", 3): (cv.QD(f), cv.CF(P) - all_of(P)),
        ("PR", "means", 2): (cv.PR(f), cv.PR(P) - all_of(P)),
        ("PR", "none", 0): (cv.PR(f), None),  # a batch for one sample, and no snapshot
    }
    for (base, cvs, renew), (h, c) in lines.items():
        draws = {"M": 3} if c else {"M": 1, "batch": 4}
        found = part(cv, "experiments.tasks").joint(
            np.random.default_rng(3), data="toy", base=base, cvs=cvs, renew=renew, lr=0.3,
            v0=1e-3, gamma=0.1, steps=9, first=0, runs=2, **draws,
        )  # fmt: skip
        path = cv.optimize.sgd(
            model, q, h + rest, [c] if c else [], lr=0.3, steps=9, runs=(2,),
            rng=np.random.default_rng(3),
            weights=cv.rules.fixed(-1.0) if cvs in sure else cv.rules.bayes(1e-3, 0.1),
            renew=1000 if renew == "worn" else renew or None,
            hooks={1: worn(cv)} if renew == "worn" else None, **draws,
        )  # fmt: skip
        elbo = np.array([cv.exact.elbo(model, q, w) for w in path.path]).T
        assert np.abs(np.array(found["elbo"]) - elbo).max() < 6e-4, (base, cvs)


def test_svrg_is_the_gradient_at_the_older_weights(cv):
    """With the same draws, and minus its mean over q and the data, by cvlib.exact."""
    tasks, rng = part(cv, "experiments.tasks"), np.random.default_rng(5)
    model, q, _ = tasks.problem("toy")
    w, old = q.start() + 0.1 * rng.standard_normal((2, q.D))
    mu, factor = q.moments(old)
    kept = cv.snapshot(model, mu, factor=factor, mean=True)
    draw = cv.draw(model, q, w, M=5, rng=rng, snapshot=kept)
    then = cv.draw(model, q, old, eps=draw.eps, index=draw.index)
    mean = cv.exact.term_gradients(model, q, old)["data"]
    data = cv.terms(model, q)[0]
    for base in "RP1", "PR", "QD":
        _, c = tasks.both("toy", base, "gradient")
        right = getattr(cv, base)(data)(then) - mean
        assert np.allclose(c(draw), right, atol=1e-7 * np.abs(right).max()), base
    cells = tasks.joint(
        np.random.default_rng(3), data="toy", base="QD", cvs="gradient", renew=1, lr=0.3, v0=1e-3,
        gamma=0.1, M=3, steps=9, first=0, runs=2,
    )  # fmt: skip
    exact = cv.optimize.noise_free(model, q, lr=0.3, steps=9).w  # renewed in every step: no noise
    assert np.abs(np.array(cells["elbo"])[:, -1] - cv.exact.elbo(model, q, exact)).max() < 6e-4


# What is stored ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    found = load("joint")["rows"]
    return {(r["data"], r["base"], r["cvs"], r["renew"]): r for r in found}


def test_every_line_has_all_its_runs(stored):
    lines = [("paper", "none", 0), *LINES, *BATCHES]
    assert set(stored) == {(data, *line) for data in SETS for line in lines}
    assert all(len(r["elbo"]) == 50 and not r["diverged"] for r in stored.values())
