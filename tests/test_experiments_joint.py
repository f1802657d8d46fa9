"""The experiment with one variate for both noises: its cells, its promise, one slice again."""

import numpy as np
import pytest
from harness import part
from test_experiments import worn

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


def test_a_worn_snapshot_is_renewed(cv):
    """When a rule written otherwise says so; more often where the weights run away."""
    tasks = part(cv, "experiments.tasks")
    model, q, _ = tasks.problem("toy")
    h, c = tasks.both("toy", "PR", "taylor")
    far = q.pack(np.full(q.dim, 8.0), 0.1 * np.eye(q.dim))  # and narrow: a step is many widths
    renewed = []
    for lr, w in (0.3, far), (1e-9, None):
        how = dict(lr=lr, w=w, steps=60, M=4, renew=1000, every=1, runs=(2,) if w is None else ())
        paths = []
        for rule in worn(cv), tasks.worn():
            old, new = [], []

            def look(state, plan):
                old.append(state.snapshot)
                state, plan = rule(state, plan)
                new.append(state.snapshot)
                return state, plan

            rng = np.random.default_rng(0)
            go = cv.optimize.sgd(model, q, h, [c], rng=rng, hooks={1: look}, **how)
            paths.append(go.path)
        assert np.allclose(*paths, rtol=1e-9)
        renewed.append(sum(x is not y for x, y in zip(old, new)))
    assert renewed[0] > renewed[1]


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
