"""The plans: which cells each asks for, and every row of its file from made-up results, by hand."""

import itertools
import math
import statistics
from decimal import Context

import numpy as np
import pytest

import cvlib
from cvlib import CF, PR, QD, RB, RP1, taylor_z
from cvlib.recipe.estimators import check_gradient, check_variate
from experiments import plans, tasks

LINES = ("none", "S4", "S5", "S6", "S7", "c5", "c7")
RATE = {"ionosphere": 0.4, "australian": 0.4, "sonar": 0.2}
SMALL = dict(
    runs=12, steps=3, few_runs=11, replicas=3, samples=8, draws=4, many=6,
    sets=("australian", "sonar"), rates=(0.1, 0.4), halves=1, v0s=(0.0, 1e-3), gammas=(0.5,),
    Ms=(2, 10), draws_instead=(4, 7),
)  # fmt: skip
JOINT = [("paper", "none", 0)]  # the lines with one variate for both noises
JOINT += [("PR", "taylor", K) for K in (1, 5, 20, 50, 200)]
JOINT += [("QD", "means", K) for K in (1, 5, 20, 50, 200)]
JOINT += [("RP1", "svrg", 50), ("RP1", "taylor", 50), ("PR", "means", 50), ("QD", "taylor", 50)]
JOINT += [("QD", "gradient", 50), ("PR", "none", 0)]  # a hundred data points for one sample
digits = lambda x, count: float(Context(prec=count).create_decimal_from_float(x))
lowest = lambda value: -np.inf if value is None else value
runs_of = lambda results, names: [run for name in names for run in results[name]["elbo"]]


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


def gathered(plan, names):
    """The plan's rows from made-up results, and those results; the cells must be those named."""
    cells, gather = plans.PLANS[plan](plans.Size(**SMALL))
    assert sorted(c.name for c in cells) == sorted(names)
    results = {name: made_up(name, np.random.default_rng(k)) for k, name in enumerate(names)}
    return gather(results), results


def end(results, names, line, **more):
    """The row of a line: last ELBO of every run, and when the diverged ones were lost."""
    row = dict(zip(("data", "cvs", "lr"), line)) | more
    lost = [step for name in names for step in results[name]["diverged"] if step >= 0]
    return row | {"elbo": [run[3] for run in runs_of(results, names)], "diverged": lost}


def test_table1():
    half = "ionosphere-half-0"
    lines = [(data, cvs, RATE[data], 12) for data in ("australian", "sonar") for cvs in LINES]
    lines += [(half, cvs, 0.4, 11) for cvs in ("none", "S7", "c5", "c7")]  # few_runs
    rates = {"australian": 0.4, "sonar": 0.2, half: 0.4}
    paths = {data: f"noise_free data={data} lr={lr} steps=3" for data, lr in rates.items()}
    best = {data: f"optimum data={data}" for data in rates}
    names = sum((sgd_names(*line) for line in lines), [])
    found, results = gathered("table1", [*names, *paths.values(), *best.values()])
    rows = [end(results, sgd_names(*line), line) for line in lines]
    limits = []
    for data, lr in rates.items():
        path, optimum = (results[one[data]]["elbo"] for one in (paths, best))
        limits.append({"data": data, "lr": lr, "noise_free": path[3], "optimum": optimum})
    assert found == {"rows": rows, "limits": limits}
    assert any(row["diverged"] for row in found["rows"])  # else the made-up runs prove less
    assert [len(found["rows"][k]["elbo"]) for k in (0, -1)] == [12, 11]


def test_slopes_and_draws():
    """The columns with an expansion in x and c5 of the halves, read otherwise; 4 and 7 draws."""
    lines = [(data, cvs, RATE[data], 12) for data in SMALL["sets"] for cvs in "S5 S6 S7 c5".split()]
    lines += [("ionosphere-half-0", "c5", 0.4, 11)]  # few_runs
    slopes = {line: sgd_names(*line, task="slopes") for line in lines}
    sizes = [(data, "none", RATE[data], M) for data in SMALL["sets"] for M in (4, 7)]
    draws = {size: sgd_names(*size[:3], 11, M=size[3]) for size in sizes}
    for plan, named in (("slopes", slopes), ("draws", draws)):
        found, results = gathered(plan, sum(named.values(), []))
        M = lambda line: {"M": line[3]} if plan == "draws" else {}
        rows = [end(results, names, line, **M(line)) for line, names in named.items()]
        assert found == {"rows": rows}


def test_figure1():
    end = "v0=0.001 gamma=0.02 M=10 steps=3 replicas=3 samples=8"
    names = {data: f"variance data={data} lr={RATE[data]} {end}" for data in SMALL["sets"]}
    found, results = gathered("figure1", list(names.values()))
    rows = []
    for data, name in names.items():
        for cvs, trace in results[name]["trace"].items():
            steps = list(zip(*trace))  # the replicas at each step
            row = {"data": data, "cvs": cvs, "mean": [digits(sum(x) / len(x), 4) for x in steps]}
            if cvs != "best":  # it has one replica, hence no error
                row["error"] = [digits(statistics.stdev(x) / 3**0.5, 3) for x in steps]
            rows.append(row)
    assert found == {"steps": [0, 2], "rows": rows}


def test_figures_3_and_4():
    pairs = list(itertools.product(SMALL["sets"], SMALL["rates"]))
    lines = {(d, cvs, lr): sgd_names(d, cvs, lr, 12) for d, lr in pairs for cvs in LINES}
    paths = {(d, lr): f"noise_free data={d} lr={lr} steps=3" for d, lr in pairs}
    names = [*sum(lines.values(), []), *paths.values()]
    found, results = gathered("figure4", names)
    assert found["rows"] == [end(results, names, line) for line, names in lines.items()]
    last = [results[name]["elbo"][3] for name in paths.values()]
    assert [row["noise_free"] for row in found["limits"]] == last
    found, results = gathered("figure3", names)
    rows = []
    for (data, cvs, lr), names in lines.items():
        ranked = [sorted(map(lowest, x)) for x in zip(*runs_of(results, names))]  # at each step
        median = [None if x[6] == -np.inf else x[6] for x in ranked]  # of 0 ... 11
        rows.append({"data": data, "cvs": cvs, "lr": lr, "median": median})
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
    assert any(None in row["median"] for row in rows)


def test_figure5():
    norms, ends, places = {}, {}, (("toy", 0), ("ionosphere", 0), ("ionosphere", 10))
    for (data, lag), M in itertools.product(places, SMALL["Ms"]):
        norms[data, lag, M] = f"norms data={data} lr=0.08 step=25 lag={lag} M={M} replicas=4 "
        norms[data, lag, M] += "samples=6 low=-9 high=3 count=25"
    for data in SMALL["sets"]:
        at = lambda **changed: sgd_names(data, "S7", RATE[data], 11, **changed)
        ends[data, "v0", 0.0] = at(v0="0.0")
        ends[data, "v0", 0.001] = at()
        ends[data, "gamma", 0.5] = at(gamma="0.5")
    found, results = gathered("figure5", [*norms.values(), *sum(ends.values(), [])])
    rows = [dict(zip(("data", "lag", "M"), key)) | results[name] for key, name in norms.items()]
    effect = []
    for (data, key, value), names in ends.items():
        effect.append(end(results, names, (data, "S7", RATE[data]), varied=key, value=value))
    assert found == {"rows": rows, "effect": effect}


@pytest.mark.parametrize("base, cvs", {line[:2]: None for line in plans.LADDER})
def test_lines_of_the_ladder_as_they_are_written(base, cvs):
    """Every line is legal where it stands."""
    model, q, z = tasks.problem("toy")
    f, prior, variational = cvlib.terms(model, q)
    word = {"paper": RP1, "RP1": RP1, "RB": RB, "PR": PR, "QD": QD}[base]
    p = RP1(prior) if base == "paper" else CF(prior)
    T = taylor_z(f)
    expected = {"none": [], "S7": z.S7, "Jd": [CF(T) - CF(T.over_all_data())]}
    h, lines = (tasks.line("toy", base, cvs)[what] for what in ("h", "cvs"))
    assert h.parts == (word(f) + p - CF(variational)).parts
    assert [c.parts for c in lines] == [c.parts for c in expected[cvs]]
    check_gradient(h)
    for c in lines:
        check_variate(c)


def test_rows_of_joint():
    cells, gather = plans.joint(plans.Size(sets=("sonar",), runs=12))
    results = {}
    for k, c in enumerate(cells):
        runs = dict(c.settings).get("runs", 0)
        results[c.name] = {"elbo": [[0.0, -100.0 + k]] * runs, "diverged": [-1] * runs}
    results[cells[-1].name] = {"elbo": [0.0, -20.0], "steps": [0, 500]}
    found = gather(results)
    assert found["limits"] == [{"data": "sonar", "lr": 0.2, "noise_free": -20.0}]
    assert len(found["rows"]) == len(JOINT)
    for k, (row, line) in enumerate(zip(found["rows"], JOINT)):
        assert (row["base"], row["cvs"], row["renew"]) == line
        assert row["elbo"] == [-100.0 + 2 * k] * 10 + [-99.0 + 2 * k] * 2
        assert row["closed"][0] == pytest.approx(2 * k / 80, abs=1e-5)


def test_rows_of_the_ladder():
    """Nine runs: one standard error of the rank of the median, 3/2, is 1.5 places either way."""
    cells, gather = plans.ladder(plans.Size(runs=9, steps=1, sets=("australian",)))
    results, limits = {}, {"noise_free": {"elbo": [-500.0, -100.0]}, "optimum": {"elbo": -99.0}}
    for c in cells:
        base, cvs = (dict(c.settings).get(key) for key in ("base", "cvs"))
        ends = [-102.0 - k / 2 if base == "PR" else -300.0 - k for k in range(9)]
        lost = {"S7": 1}.get(cvs, 9 * (base == "RB"))
        ends[9 - lost :] = [None] * lost
        diverged = [-1 if end is not None else 1 for end in ends]
        runs = {"elbo": [[-500.0, end] for end in ends], "diverged": diverged}
        results[c.name] = limits.get(c.task, runs)
    found = gather(results)
    ends = {"noise_free": -100.0, "optimum": -99.0}
    assert found["limits"] == [{"data": "australian", "lr": 0.4} | ends]
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
    gone = rows["RB", "none", 10]
    assert gone["median"] is None and gone["closed"] == [None, None]
    assert rows["QD", "none", 30]["M"] == 30 and rows["QD", "none", 30]["median"] == -304.0


def test_the_error_of_a_median_is_its_spread():
    """Normal runs: the median of 50 has the standard error sqrt(pi / 2 / 50), nearly."""
    rng = np.random.default_rng(0)
    found = np.array([plans._median(x.tolist()) for x in rng.normal(3, 2, (4000, 50))])
    spread = found[:, 0].std()
    assert spread == pytest.approx(2 * math.sqrt(math.pi / 2 / 50), rel=0.05)
    assert found[:, 1].mean() == pytest.approx(spread, rel=0.05)


@pytest.mark.filterwarnings("ignore:invalid value")  # None for a lost run
def test_what_is_kept_of_a_cell():
    """First steps within 1 and 0.1 nats, the gap at the end; None for never and for a lost run."""
    elbo = [[-9.0, -2.5, -2.05], [-9.0, -2.0, -3.5], [-9.0, None, None]]
    result = {"steps": [0, 1, 5], "elbo": elbo, "diverged": [-1, -1, 1], "cut": [0, 2, 1]}
    steps = {"to_1": [1, 1, None], "to_0.1": [5, 1, None]}
    kept = {"gap": [0.05, 1.5, None], "diverged": [1], "cut": 3}
    assert plans._reached(result, -2.0) == steps | kept
    result = {"each": 2, "fall": 1.0, "gap": [[1.0, 0.5], [3.0, None]]}
    assert plans._spread(result) == {
        "each": 2, "fall": 1.0, "mean": [2.0, None], "error": [1.0, None],
    }  # fmt: skip
