"""Stored results: whole, of a release, slices again (pages assert what they say); and truths."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from test_project import released

from experiments import RESULTS, cell, compute, covered, load, plans, posteriors, store, truths
from experiments.__main__ import settings

SETS = "ionosphere", "australian", "sonar"


@pytest.mark.parametrize("name", plans.PLANS)
def test_a_result_says_how_it_was_made(name):
    content = load(name)
    label, size, command = settings(name)
    assert (content["name"], content["command"]) == (label, command)
    assert content["versions"]["schema"] == store.SCHEMA
    assert content["versions"]["cvlib"] in released()  # the slices below say if it still holds
    now = json.loads(json.dumps(size._asdict() | plans.LOOP))  # the paper's sizes and settings
    assert now | content["settings"] == now | {"momentum": 0.9, "block": 10}
    assert len((RESULTS / f"{name}.json").read_bytes()) < 350_000


def again(task, key, **settings):
    """What a cell of the plan `task` gives now, and the stored row with this key."""
    one = cell(task, **settings)
    assert one in plans.PLANS[task](plans.Size())[0]
    (row,) = (r for r in load(task)["rows"] if key.items() <= r.items())
    return compute(one)["result"], row


def test_slices_are_computed_again():
    """Ten runs of one line, all 500 steps, equal in every digit; and of two other plans."""
    line, more = {"data": "australian", "cvs": "taylor", "lr": 0.4}, {"base": "PR", "renew": 200}
    loop = plans.LOOP | more | {"steps": 500, "first": 0, "runs": 10}
    result, row = again("joint", line | more, **line, **loop)
    assert [run[-1] for run in result["elbo"]] == row["elbo"][:10]
    key = dict(data="australian", base="QD", cvs="none", whole=False, rho=0.4, after=10)
    result, row = again("natural", key, **key, M=10, steps=150, runs=20)
    (best,) = (r["optimum"] for r in load("natural")["limits"] if r["data"] == "australian")
    assert plans._reached(result, best).items() <= row.items()
    key = dict(data="australian", way="rotated")
    result, row = again("quadratics", key, **key, runs=20)
    found = plans._spread(result)
    assert (found["each"], found["fall"]) == (row["each"], row["fall"])
    assert_allclose(found["mean"], row["mean"], rtol=0.02)


@pytest.mark.parametrize("name", plans.NEAR)
def test_truths_agree_with_the_reference_draws(name, monkeypatch):
    """Ten thousand of them: an error of a hundredth of a standard deviation."""
    monkeypatch.setattr(truths, "NODES", 5)
    known, found = posteriors.load(name), truths.truth(name)
    assert np.abs((found - known.mean) / known.sd).max() < 0.035


def test_the_truths_of_a_student_posterior():
    """The density by scipy, and means of 300,000 draws of the law itself."""
    rng = np.random.default_rng(0)
    A = np.array([[1, 0, 0], [0.5, 1, 0], [0.5, 0.5, 1]])
    law = stats.multivariate_t(np.zeros(3), A @ A.T, 6)
    agree(*covered.student6(), law.rvs(300_000, rng), law.logpdf)


def agree(model, asked, z, log_density):
    apart = model.log_joint(z[:50]) - log_density(z[:50])
    assert np.ptp(apart) < 1e-9
    for f, exact in asked.values():
        values = f(z) * 1.0
        assert abs(values.mean() - exact) < 5 * values.std() / 300_000**0.5
