"""The plans: which cells each asks for, and every row of its file from made-up results, by hand.

The checks take the package, so that they can be run on copies with a bug (tests/harness.py).
"""

import itertools
import statistics
from decimal import Context

import numpy as np
import pytest
from harness import part

LINES = ("none", "S4", "S5", "S6", "S7", "c5", "c7")
RATE = {"ionosphere": 0.4, "australian": 0.4, "sonar": 0.2}
SMALL = dict(
    runs=12, steps=3, few_runs=11, replicas=3, samples=8, draws=4, many=6,
    sets=("australian", "sonar"), rates=(0.1, 0.4), halves=1, v0s=(0.0, 1e-3), gammas=(0.5,),
    Ms=(2, 10), draws_instead=(4, 7),
)  # fmt: skip


def sgd_names(data, cvs, lr, runs, v0="0.001", gamma="0.02", steps=3, task="sgd", M=10):
    """The names of the cells of one line, ten runs a cell, with the paper's v0 and gamma."""
    start = f"{task} data={data} cvs={cvs} lr={lr} v0={v0} gamma={gamma} M={M} steps={steps}"
    return [f"{start} first={k} runs={min(10, runs - k)}" for k in range(0, runs, 10)]


def made_up(name, rng):
    """A result as the cell of that name might give it: runs of four records, some diverged."""
    task = name.split()[0]
    setting = dict(pair.split("=") for pair in name.split()[1:])
    numbers = lambda *shape: np.round(rng.uniform(-400, -100, shape), 3).tolist()
    if task in ("sgd", "slopes"):
        elbo, diverged = numbers(int(setting["runs"]), 4), []
        for run in elbo:
            lost = int(rng.choice([-1, -1, -1, 1, 3]))
            run[lost:] = [None] * (4 - lost) if lost > 0 else run[lost:]
            diverged.append(lost)
        return {"steps": [0, 1, 2, 3], "elbo": elbo, "diverged": diverged}
    if task == "noise_free":
        return {"steps": [0, 1, 2, 3], "elbo": numbers(4)}
    if task == "optimum":
        return {"elbo": numbers(1)[0], "N": 7}
    if task == "variance":
        replicas = {"none": 3, "S4": 3, "S5": 3, "S6": 3, "S7": 3, "best": 1}
        trace = {cvs: rng.uniform(0.01, 9, (R, 2)).tolist() for cvs, R in replicas.items()}
        return {"steps": [0, 2], "trace": trace}
    return {"v0": [0.0, 1.0], "mean": numbers(2), "error": numbers(2), "best": numbers(1)[0]}


def gathered(cv, plan, names):
    """The plan's rows from made-up results, and those results; the cells must be those named."""
    plans = part(cv, "experiments.plans")
    cells, gather = plans.PLANS[plan](plans.Size(**SMALL))
    assert sorted(c.name for c in cells) == sorted(names)
    rng = np.random.default_rng(0)
    results = {name: made_up(name, rng) for name in names}
    return gather(results), results


def digits(x, count):
    return float(Context(prec=count).create_decimal_from_float(x))


def lowest(value):
    return -np.inf if value is None else value


def runs_of(results, names):
    return [run for name in names for run in results[name]["elbo"]]


def end(results, names, **settings):
    """The row of a line: last ELBO of every run, and when the diverged ones were lost."""
    lost = [step for name in names for step in results[name]["diverged"] if step >= 0]
    return settings | {"elbo": [run[3] for run in runs_of(results, names)], "diverged": lost}


# Cells and rows of each plan -----------------------------------------------------------------


def test_table1(cv):
    half = "ionosphere-half-0"
    lines = [(data, cvs, RATE[data], 12) for data in ("australian", "sonar") for cvs in LINES]
    lines += [(half, cvs, 0.4, 11) for cvs in ("none", "S7", "c5", "c7")]  # few_runs
    rates = {"australian": 0.4, "sonar": 0.2, half: 0.4}
    paths = {data: f"noise_free data={data} lr={lr} steps=3" for data, lr in rates.items()}
    best = {data: f"optimum data={data}" for data in rates}
    names = sum((sgd_names(*line) for line in lines), [])
    found, results = gathered(cv, "table1", [*names, *paths.values(), *best.values()])
    assert found == {
        "rows": [
            end(results, sgd_names(data, cvs, lr, runs), data=data, cvs=cvs, lr=lr)
            for data, cvs, lr, runs in lines
        ],
        "limits": [
            {
                "data": data,
                "lr": lr,
                "noise_free": results[paths[data]]["elbo"][3],
                "optimum": results[best[data]]["elbo"],
            }
            for data, lr in rates.items()
        ],
    }
    assert any(row["diverged"] for row in found["rows"])  # else the made-up runs prove less
    assert len(found["rows"][0]["elbo"]) == 12 and len(found["rows"][-1]["elbo"]) == 11


def test_slopes_and_draws(cv):
    """The columns with an expansion in x and c5 of the halves, read otherwise; 4 and 7 draws."""
    lines = [(data, cvs, RATE[data], 12) for data in SMALL["sets"] for cvs in "S5 S6 S7 c5".split()]
    lines += [("ionosphere-half-0", "c5", 0.4, 11)]  # few_runs
    slopes = {line: sgd_names(*line, task="slopes") for line in lines}
    sizes = [(data, "none", RATE[data], M) for data in SMALL["sets"] for M in (4, 7)]
    draws = {size: sgd_names(*size[:3], 11, M=size[3]) for size in sizes}
    for plan, named in (("slopes", slopes), ("draws", draws)):
        found, results = gathered(cv, plan, sum(named.values(), []))
        rows = [
            end(results, names, data=data, cvs=cvs, lr=lr)
            | ({"M": last} if plan == "draws" else {})
            for (data, cvs, lr, last), names in named.items()
        ]
        assert found == {"rows": rows}


def test_figure1(cv):
    end = "v0=0.001 gamma=0.02 M=10 steps=3 replicas=3 samples=8"
    names = {data: f"variance data={data} lr={RATE[data]} {end}" for data in SMALL["sets"]}
    found, results = gathered(cv, "figure1", list(names.values()))
    rows = []
    for data, name in names.items():
        for cvs, trace in results[name]["trace"].items():
            steps = list(zip(*trace))  # the replicas at each step
            row = {"data": data, "cvs": cvs, "mean": [digits(sum(x) / len(x), 4) for x in steps]}
            if cvs != "best":  # it has one replica, hence no error
                row["error"] = [digits(statistics.stdev(x) / 3**0.5, 3) for x in steps]
            rows.append(row)
    assert found == {"steps": [0, 2], "rows": rows}


def test_figures_3_and_4(cv):
    """Lines and noise-free paths at every rate: their curves, and where they end."""
    pairs = list(itertools.product(SMALL["sets"], SMALL["rates"]))
    lines = {(d, cvs, lr): sgd_names(d, cvs, lr, 12) for d, lr in pairs for cvs in LINES}
    paths = {(d, lr): f"noise_free data={d} lr={lr} steps=3" for d, lr in pairs}
    names = [*sum(lines.values(), []), *paths.values()]
    found, results = gathered(cv, "figure4", names)
    of = lambda names, **settings: end(results, names, **settings)
    assert found["rows"] == [of(v, data=d, cvs=c, lr=lr) for (d, c, lr), v in lines.items()]
    assert [x["noise_free"] for x in found["limits"]] == [
        results[name]["elbo"][3] for name in paths.values()
    ]
    found, results = gathered(cv, "figure3", names)
    rows = []
    for (data, cvs, lr), names in lines.items():
        ranked = [sorted(map(lowest, x)) for x in zip(*runs_of(results, names))]  # at each step
        row = {"data": data, "cvs": cvs, "lr": lr}
        for key, place in {"median": 6, "low": 1, "high": 10}.items():  # of 0 ... 11
            row[key] = [None if x[place] == -np.inf else x[place] for x in ranked]
        rows.append(row)
    for (data, lr), name in paths.items():
        rows.append({"data": data, "cvs": "exact", "lr": lr, "median": results[name]["elbo"]})
    best = []
    for data, cvs in itertools.product(SMALL["sets"], [*LINES, "exact"]):
        same = [row["median"] for row in rows if (row["data"], row["cvs"]) == (data, cvs)]
        assert len(same) == 2  # two rates
        median = [max(pair, key=lowest) for pair in zip(*same)]
        best.append({"data": data, "cvs": cvs, "lr": "best", "median": median})
    order = lambda row: (SMALL["sets"].index(row["data"]), [*LINES, "exact"].index(row["cvs"]))
    assert found["steps"] == [0, 1, 2, 3] and set(found) == {"steps", "rows"}
    assert found["rows"][: len(rows)] == rows
    assert sorted(found["rows"][len(rows) :], key=order) == sorted(best, key=order)
    assert any(None in row["low"] for row in rows if "low" in row)


def test_figure5(cv):
    norms = {}
    for (data, lag), M in itertools.product(
        [("toy", 0), ("ionosphere", 0), ("ionosphere", 10)], SMALL["Ms"]
    ):
        norms[data, lag, M] = (
            f"norms data={data} lr=0.08 step=25 lag={lag} M={M} replicas=4 samples=6 "
            "low=-9 high=3 count=25"
        )
    ends = {}
    for data in SMALL["sets"]:
        at = lambda **changed: sgd_names(data, "S7", RATE[data], 11, **changed)
        ends[data, "v0", 0.0] = at(v0="0.0")
        ends[data, "v0", 0.001] = at()
        ends[data, "gamma", 0.5] = at(gamma="0.5")
    found, results = gathered(cv, "figure5", [*norms.values(), *sum(ends.values(), [])])
    assert found == {
        "rows": [
            {"data": data, "lag": lag, "M": M, **results[name]}
            for (data, lag, M), name in norms.items()
        ],
        "effect": [
            end(results, names, data=data, cvs="S7", lr=RATE[data], varied=key, value=value)
            for (data, key, value), names in ends.items()
        ],
    }


def test_full_size(cv):
    """The paper's sizes; figures 3 and 4 share their cells, and the table has some of them."""
    plans = part(cv, "experiments.plans")
    names = {name: [c.name for c in plan(plans.Size())[0]] for name, plan in plans.PLANS.items()}
    assert {name: len(set(cells)) for name, cells in names.items()} == {
        "table1": 3 * 7 * 5 + 6 * 4 + 9 + 9,
        "slopes": 3 * 4 * 5 + 6,
        "draws": 3 * 4,
        "figure1": 3,
        "figure3": 3 * 6 * 7 * 5 + 3 * 6,
        "figure4": 3 * 6 * 7 * 5 + 3 * 6,
        "figure5": 3 * 5 + 3 * (8 + 6 - 1),  # v0 and gamma share the cell of their defaults
        "ladder": 3 * 25 * 5 + 3 + 3,
        "natural": 3 * 17 * (7 + 4) + 3 + 3,
        "joint": 3 * (1 + 4 * 6 + 5 + 8 + 2) * 5 + 3,
        "quadratics": 3 * (11 * 2 + 1),
        "answers": 7,
        "covered": 16 + 5,
        "choosing": 8 + 3 * 3,
        "vae": 6 + 8 + 2 + 4 + 2 + 2,
    }
    assert set(names["figure3"]) == set(names["figure4"])
    lines = [sgd_names(data, cvs, RATE[data], 50, steps=500) for data in RATE for cvs in LINES]
    assert set(sum(lines, [])) <= set(names["table1"]) & set(names["figure3"])
    settings = "v0=0.001 gamma=0.02 M=10 steps=500 replicas=20 samples=1000"
    assert names["figure1"] == [f"variance data={d} lr={lr} {settings}" for d, lr in RATE.items()]
    rates = {name.split(" lr=")[1].split()[0] for name in names["figure3"]}
    assert rates == {"0.025", "0.05", "0.1", "0.2", "0.4", "0.8"}


# Numbers of a row ----------------------------------------------------------------------------


def test_summary(cv):
    """-1 ... -19, -70, -113: median -11, quartiles -16 and -6; ten ranges below is -111."""
    summary = part(cv, "experiments").summary
    whole = [-float(k) for k in range(1, 20)] + [-70.0, -113.0]
    order = np.random.default_rng(0).permutation(21)
    found = summary([whole[k] for k in order])
    assert (found["runs"], found["diverged"], found["far"]) == (21, 0, 1)
    assert found["median"] == -11 and found["mean"] == pytest.approx(-373 / 21)
    assert found["error"] == pytest.approx(statistics.stdev(whole) / 21**0.5)
    lost = summary([*whole, None, None, None, None])
    assert (lost["runs"], lost["diverged"], lost["far"]) == (25, 4, 1)
    assert lost["mean"] == pytest.approx(found["mean"])
    assert lost["error"] == pytest.approx(found["error"])
    assert lost["median"] == -13  # the thirteenth of 25, the four lost ones last
    one = summary([-3.0])
    assert (one["mean"], one["median"], one["far"]) == (-3, -3, 0) and np.isnan(one["error"])
    none = summary([None, None])
    assert (none["runs"], none["diverged"], none["far"]) == (2, 2, 0)
    assert np.isnan(none["mean"]) and np.isnan(none["error"]) and none["median"] == -np.inf
