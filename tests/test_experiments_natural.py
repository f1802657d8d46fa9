"""The experiment with natural steps: its rows, what it promises, one slice computed again."""

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
