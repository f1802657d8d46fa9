"""The experiment with natural steps: its rows, what it promises, one slice computed again."""

import numpy as np
import pytest
from harness import part

from experiments import cell, compute, load, plans

SETS = "sonar", "ionosphere", "australian"


# The checks take the package, so that they can be run on copies with a bug (tests/harness.py).


def test_what_is_kept_of_a_cell(cv):
    """First steps within 1 and 0.1 nats, the gap at the end; None for never and for a lost run."""
    result = {
        "steps": [0, 1, 5],
        "elbo": [[-9.0, -2.5, -2.05], [-9.0, -2.0, -3.5], [-9.0, None, None]],
        "diverged": [-1, -1, 1],
        "cut": [0, 2, 1],
    }
    assert part(cv, "experiments.plans")._reached(result, -2.0) == {
        "gap": [0.05, 1.5, None],
        "to_1": [1, 1, None],
        "to_0.1": [5, 1, None],
        "diverged": [1],
        "cut": 3,
    }


def test_a_cell_is_the_loop_with_that_seed(cv):
    """Stored ELBOs are those of the public loop, with the line written out."""
    rules, taylor_z = cv.rules, cv.taylor_z
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    f, prior, variational = cv.terms(model, q)
    rest, old = cv.CF(prior) - cv.CF(variational), taylor_z(f, at="snapshot")
    snapshot = {"weights": rules.fixed(-1.0), "renew": 5}
    c7 = cv.CF(taylor_z(f)) - cv.RP1(taylor_z(f))
    all_data = cv.CF(old.over_all_data())
    near, sure = taylor_z(f), {"weights": rules.fixed(-1.0)}
    lines = {
        ("PR", "none", True, 0): (cv.PR(f) + rest, [], {}),
        ("RP1", "c7", False, 3): (cv.RP1(f) + rest, [c7], {}),
        ("RP1", "snapshot", False, 0): (cv.RP1(f) + rest, [cv.RP1(old) - all_data], snapshot),
        ("PR", "snapshot", False, 0): (cv.PR(f) + rest, [cv.CF(old) - all_data], snapshot),
        ("QD", "snapshot", False, 3): (cv.QD(f) + rest, [cv.CF(old) - all_data], snapshot),
        ("RP1", "landing", True, 3): (cv.RP1(f) + cv.RP1(prior) - cv.RP1(variational), [], {}),
        ("PR", "landing", True, 0): (cv.PR(f) + cv.PR(prior) - cv.PR(variational), [], {}),
        ("PR", "parabola", True, 0): (cv.PR(f) + rest, [cv.PR(near) - cv.CF(near)], sure),
        ("PR", "pairs", True, 3): (cv.PR(f) + rest, [], {"noise": "pairs"}),
        ("PR", "joint", False, 0): (cv.PR(f) + rest, [cv.PR(old) - all_data], snapshot),
    }
    for (base, cvs, whole, after), (h, variates, options) in lines.items():
        found = part(cv, "experiments.tasks").natural(
            np.random.default_rng(3), data="toy", base=base, cvs=cvs, whole=whole, rho=0.3,
            after=after, M=2, steps=7, runs=3,
        )  # fmt: skip
        path = cv.optimize.sgd(
            model, q, h, variates, lr=rules.falling(0.3, after) if after else 0.3, steps=7, M=2,
            rng=np.random.default_rng(3), runs=(3,), subsample=not whole, rule=rules.natural(),
            **options,
        )  # fmt: skip
        elbo = np.array([cv.exact.elbo(model, q, w) for w in path.path]).T
        assert found["steps"] == list(range(8)) and found["diverged"] == [-1, -1, -1]
        assert np.abs(np.array(found["elbo"]) - elbo).max() < 6e-4
        assert found["cut"] == path.state.memory[0].tolist()


# What is stored ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    return load("natural")


def row(stored, data, base, cvs, whole, rho, after):
    wanted = {"data": data, "base": base, "cvs": cvs, "whole": whole, "rho": rho, "after": after}
    (found,) = (r for r in stored["rows"] if wanted.items() <= r.items())
    return found


def test_every_line_has_every_rate_and_all_its_runs(stored):
    assert stored["steps"] == 150
    rates = {(rho, 0) for rho in plans.RHOS} | {(0.1, 40), (0.2, 20), (0.4, 10), (1.0, 10)}
    seen = {}
    for r in stored["rows"]:
        line = r["data"], r["base"], r["cvs"], r["whole"]
        seen.setdefault(line, set()).add((r["rho"], r["after"]))
        assert len(r["gap"]) == len(r["to_1"]) == len(r["to_0.1"]) == 20
        assert len(r["diverged"]) == r["gap"].count(None)
        assert min(gap for gap in r["gap"] if gap is not None) > 0
    assert set(seen) == {(data, *line) for data in SETS for line in plans.NATURAL}
    assert all(found == rates for found in seen.values())


def test_a_slice_is_computed_again(stored):
    again = cell(
        "natural", data="australian", base="QD", cvs="snapshot", whole=False, rho=0.4, after=10,
        M=10, steps=150, runs=20,
    )  # fmt: skip
    assert again in plans.natural(plans.Size())[0]
    result = compute(again)["result"]
    (best,) = (r["optimum"] for r in stored["limits"] if r["data"] == "australian")
    found = row(stored, "australian", "QD", "snapshot", False, 0.4, 10)
    assert plans._reached(result, best).items() <= found.items()
