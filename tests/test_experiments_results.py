"""The stored results: complete, of a release, one slice computed again; pages assert the rest."""

import pytest
from test_project import released

from experiments import RESULTS, cell, compute, load, plans, store
from experiments.__main__ import settings

NAMES = list(plans.PLANS)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_says_how_it_was_made(name):
    content = load(name)
    label, size, command = settings(name)
    assert (content["name"], content["command"]) == (label, command)
    assert content["versions"]["schema"] == store.SCHEMA
    assert content["versions"]["cvlib"] in released()  # the slice below says if it still holds
    assert content["settings"]["runs"] == size.runs
    assert content["settings"]["steps"] == 500
    assert len((RESULTS / f"{name}.json").read_bytes()) < 350_000


def test_every_line_has_all_its_runs():
    table = load("table1")
    for row in table["rows"]:
        assert len(row["elbo"]) == (10 if "half" in row["data"] else 50)
        assert len(row["diverged"]) == row["elbo"].count(None)
    assert len(table["rows"]) == 3 * 7 + 6 * 4


def test_a_slice_is_computed_again():
    """Ten runs of one line, all 500 steps, equal to the stored numbers in every digit."""
    line, more = {"data": "australian", "cvs": "taylor", "lr": 0.4}, {"base": "PR", "renew": 200}
    again = cell("joint", **line, **plans.LOOP, **more, steps=500, first=0, runs=10)
    assert again in plans.PLANS["joint"](plans.Size())[0]
    (row,) = [r for r in load("joint")["rows"] if (line | more).items() <= r.items()]
    assert [run[-1] for run in compute(again)["result"]["elbo"]] == row["elbo"][:10]
