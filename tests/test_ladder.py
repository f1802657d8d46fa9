"""The ladder: its lines, its cells, its rows by hand, and what the stored results must say."""

import math
import statistics

import numpy as np
import pytest

import cvlib as cv
from cvlib import CF, PR, QD, RB, RP1, bound, taylor_z
from cvlib.recipe.estimators import check_gradient, check_variate
from experiments import load, plans, tasks

SETS = ("ionosphere", "australian", "sonar")
WORDS = {"paper": RP1, "RP1": RP1, "RB": RB, "PR": PR, "QD": QD}


# Lines and cells -----------------------------------------------------------------------------


@pytest.mark.parametrize("base, cvs", {line[:2]: None for line in plans.LADDER})
def test_lines_as_they_are_written(base, cvs):
    """The word of the base is the word of its pairs; every line is legal where it stands."""
    model, q, z = tasks.problem("toy")
    f, prior, variational = cv.terms(model, q)
    word = WORDS[base]
    p = RP1(prior) if base == "paper" else CF(prior)
    expected = {
        "none": [],
        "c7": [CF(taylor_z(f)) - word(taylor_z(f))],
        "bound": [CF(bound(f)) - word(bound(f))],
        "Jd": [CF(taylor_z(f)) - CF(taylor_z(f).over_all_data())],
        "price": [RP1(f) - PR(f)],
        "S7": z.S7,
    }
    h, lines = tasks.ladder("toy", base, cvs)
    assert h.parts == (word(f) + p - CF(variational)).parts
    wanted = sum((expected[name] for name in cvs.split("+")), [])
    assert [c.parts for c in lines] == [c.parts for c in wanted]
    check_gradient(h)
    for c in lines:
        check_variate(c)


# Rows ----------------------------------------------------------------------------------------


def made_up(size):
    """Results in which the runs of a line end at numbers of our own choice."""
    cells, gather = plans.ladder(size)
    results = {}
    for c in cells:
        s = dict(c.settings)
        if c.task == "noise_free":
            results[c.name] = {"steps": [0, 1], "elbo": [-500.0, -100.0]}
        elif c.task == "optimum":
            results[c.name] = {"elbo": -99.0, "N": 7}
        else:
            ends = [-300.0 - k for k in range(s["runs"])]  # the plain gradient
            if s.get("base") == "PR":
                ends = [-102.0 - k / 2 for k in range(s["runs"])]
            if s["cvs"] == "S7":
                ends[-1] = None
            if s["cvs"] == "price":
                ends = [None] * s["runs"]
            results[c.name] = {
                "steps": [0, 1],
                "elbo": [[-500.0, end] for end in ends],
                "diverged": [-1 if end is not None else 1 for end in ends],
            }
    return gather(results)


def test_rows_by_hand():
    """Nine runs: one standard error of the rank of the median, 3/2, is 1.5 places either way."""
    size = plans.Size(runs=9, steps=1, sets=("australian",))
    found = made_up(size)
    assert found["limits"] == [
        {"data": "australian", "lr": 0.4, "noise_free": -100.0, "optimum": -99.0}
    ]
    rows = {(row["base"], row["cvs"], row["M"]): row for row in found["rows"]}
    assert list(rows) == plans.LADDER
    plain = rows["paper", "none", 10]
    assert plain["elbo"] == [-300.0 - k for k in range(9)] and plain["diverged"] == []
    assert plain["median"] == statistics.median(plain["elbo"]) == -304.0
    # quantiles 1/2 +- 1/6 of nine numbers one apart: 8/6 places
    assert plain["error"] == pytest.approx(8 / 6, abs=0.005)
    assert plain["closed"] == [0.0, 0.0]
    price = rows["PR", "Jd", 10]
    assert price["median"] == -104.0 and price["error"] == pytest.approx(4 / 6, abs=0.0005)
    assert price["closed"][0] == pytest.approx(1 - 4 / 204, abs=1e-6)
    error = math.hypot(4 / 6, 4 / 204 * 8 / 6) / 204
    assert price["closed"][1] == pytest.approx(error, rel=0.005)
    lost = rows["paper", "S7", 10]  # a diverged run is the worst: the median moves up to -304.0
    assert lost["diverged"] == [1] and lost["median"] == -304.0
    gone = rows["paper", "price", 10]
    assert gone["median"] is None and gone["closed"] == [None, None]
    assert rows["PR", "none", 30]["M"] == 30 and rows["PR", "none", 30]["median"] == -104.0


def test_the_error_of_a_median_is_its_spread():
    """Normal runs: the median of 50 has the standard error sqrt(pi / 2 / 50), nearly."""
    rng = np.random.default_rng(0)
    found = np.array([plans._median(x.tolist()) for x in rng.normal(3, 2, (4000, 50))])
    spread = found[:, 0].std()
    assert spread == pytest.approx(2 * math.sqrt(math.pi / 2 / 50), rel=0.05)
    assert found[:, 1].mean() == pytest.approx(spread, rel=0.05)


# Stored results ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    return load("ladder")


def test_all_runs_are_there_and_below_the_optimum(stored):
    best = {row["data"]: row["optimum"] for row in stored["limits"]}
    assert list(best) == list(SETS)
    assert len(stored["rows"]) == 3 * len(plans.LADDER)
    for row in stored["rows"]:
        assert len(row["elbo"]) == 50
        assert max(v for v in row["elbo"] if v is not None) < best[row["data"]]
