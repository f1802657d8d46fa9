"""The paper's table and figures as lists of cells, and what is kept of the cells' results.

A plan takes a `Size` and gives its cells and a function from {cell name: result} to the lists of
rows of the final file.
"""

from typing import NamedTuple

import numpy as np

from . import climbs, posteriors
from .cells import cell
from .covered import HARD
from .store import digits

LR = {"ionosphere": 0.4, "australian": 0.4, "sonar": 0.2}  # Table 1's learning rates
LINES = ("none", "S4", "S5", "S6", "S7", "c5", "c7")  # Table 1's columns
IN_X = ("S5", "S6", "S7", "c5")  # those of them with an expansion in x
LOOP = {"v0": 1e-3, "gamma": 0.02, "M": 10}  # the paper's settings
BLOCK = 10  # runs of one cell


class Size(NamedTuple):
    """How much of an experiment to do."""

    runs: int = 50
    steps: int = 500
    few_runs: int = 10  # for what the paper does not show: halves, v0 and gamma
    replicas: int = 20  # of figure 1
    samples: int = 1000
    draws: int = 1000  # replicas of figure 5
    many: int = 20000  # samples of figure 5
    sets: tuple = ("ionosphere", "australian", "sonar")
    rates: tuple = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
    halves: int = 6
    v0s: tuple = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    gammas: tuple = (0.002, 0.005, 0.02, 0.05, 0.2, 0.5)
    Ms: tuple = (2, 5, 10, 30, 100)
    draws_instead: tuple = (30, 50, 100, 250)  # of variates


QUICK = Size(
    runs=2, steps=40, few_runs=2, replicas=3, samples=100, draws=20, many=500,
    sets=("australian",), rates=(0.1, 0.4), halves=1, v0s=(0.0, 1e-3), gammas=(0.5,), Ms=(2, 10),
    draws_instead=(20,),
)  # fmt: skip


def planned(rows, *work):
    """A plan: the cells of `work`, dictionaries of cells or lists of them; rows(*work) of results.

    In `work` every cell is then its result.
    """
    listed = lambda x: x if isinstance(x, list) else [x]
    cells = {c.name: c for part in work for x in part.values() for c in listed(x)}

    def gather(results):
        of = lambda x: [*map(of, x)] if isinstance(x, list) else results[x.name]
        return rows(*({key: of(x) for key, x in part.items()} for part in work))

    return [*cells.values()], gather


def table1(size):
    """Final ELBOs, the noise-free ELBO and the optimum; the same for halves of ionosphere."""
    halves = _halves(size)
    lr = {data: LR[data] for data in size.sets} | halves
    lines = {
        (data, cvs, lr[data]): _sgd(data, cvs, size, few=data in halves)
        for data in lr
        for cvs in (("none", "S7", "c5", "c7") if data in halves else LINES)
    }
    rows = lambda lines, *ends: {"rows": _finals(lines), "limits": _limits(*ends)}
    return planned(rows, lines, *_ends(lr, size))


def slopes(size):
    """Table 1's columns that expand in x, made of slopes: c5 and c6 in their other reading."""
    lines = {
        (data, cvs, LR[data]): _sgd(data, cvs, size, task="slopes")
        for data in size.sets
        for cvs in IN_X
    }
    for half, rate in _halves(size).items():
        lines[half, "c5", rate] = _sgd(half, "c5", size, few=True, task="slopes")
    return planned(lambda lines: {"rows": _finals(lines)}, lines)


def draws(size):
    """The base gradient with more draws in place of variates."""
    lines = {
        (data, "none", LR[data], M): _sgd(data, "none", size, few=True, M=M)
        for data in size.sets
        for M in size.draws_instead
    }
    more = lambda lines: [row | {"M": key[3]} for key, row in zip(lines, _finals(lines))]
    return planned(lambda lines: {"rows": more(lines)}, lines)


def figure1(size):
    """Trace of the gradient's variance along one run, base and S4 to S7."""
    cells = {
        data: cell(
            "variance", data=data, lr=LR[data], **LOOP, steps=size.steps, replicas=size.replicas,
            samples=size.samples,
        )
        for data in size.sets
    }  # fmt: skip

    def gather(found):
        rows = [
            {"data": data, "cvs": cvs} | _mean_and_error(trace)
            for data, result in found.items()
            for cvs, trace in result["trace"].items()
        ]
        return {"steps": _steps(found), "rows": rows}

    return planned(gather, cells)


def figure3(size):
    """ELBO against iteration for every estimator and rate, and for the best rate at each step."""

    def gather(lines, paths):
        rows = []
        for (data, cvs, lr), parts in lines.items():
            median = _median_of_runs(sum((part["elbo"] for part in parts), []))  # of (runs, T)
            rows.append({"data": data, "cvs": cvs, "lr": lr, "median": median})
        for (data, lr), path in paths.items():
            rows.append({"data": data, "cvs": "exact", "lr": lr, "median": path["elbo"]})
        return {"steps": _steps(paths), "rows": rows + _best_rates(rows)}

    return planned(gather, *_rates(size))


def figure4(size):
    """Final ELBO against learning rate; the cells are those of figure 3."""
    gather = lambda lines, paths: {"rows": _finals(lines), "limits": _limits(paths)}
    return planned(gather, *_rates(size))


def figure5(size):
    """E||g||^2 against v0 for several M; the final ELBO of S7 against v0 and against gamma."""
    norms = {
        (data, lag, M): cell(
            "norms", data=data, lr=0.08, step=25, lag=lag, M=M, replicas=size.draws,
            samples=size.many, low=-9, high=3, count=25,
        )
        for data, lag in [("toy", 0), ("ionosphere", 0), ("ionosphere", 10)]
        for M in size.Ms
    }  # fmt: skip
    ends = {
        (data, "S7", LR[data], key, value): _sgd(data, "S7", size, few=True, **{key: value})
        for data in size.sets
        for key, values in (("v0", size.v0s), ("gamma", size.gammas))
        for value in values
    }

    def gather(norms, ends):
        rows = [dict(zip(("data", "lag", "M"), key)) | row for key, row in norms.items()]
        varied = [dict(zip(("varied", "value"), key[3:])) for key in ends]
        effect = [row | more for row, more in zip(_finals(ends), varied)]
        return {"rows": rows, "effect": effect}

    return planned(gather, norms, ends)


LADDER = [  # base, variates, draws a step: ten, or more in place of a variate
    ("paper", "none", 10), ("paper", "S7", 10), ("RB", "none", 10), ("PR", "none", 10),
    ("PR", "Jd", 10), ("QD", "none", 10), ("QD", "Jd", 10), ("RP1", "none", 100),
    ("QD", "none", 30),
]  # fmt: skip


def ladder(size):
    """Final ELBOs of RP1, RB, PR, QD, with a variate and with more draws; the share of the gap.

    The gap is that between the median of the paper's base gradient and the noise-free run.
    """
    rung = lambda base, M: {} if base == "paper" else {"task": "rung", "base": base, "M": M}
    lines = {
        (data, base, M, cvs, LR[data]): _sgd(data, cvs, size, **rung(base, M))
        for data in size.sets
        for base, cvs, M in LADDER
    }
    gather = lambda lines, *ends: _closed(lines, "M", _limits(*ends))
    return planned(gather, lines, *_ends({data: LR[data] for data in size.sets}, size))


# Cells ---------------------------------------------------------------------------------------


def _sgd(data, cvs, size, lr=None, few=False, task="sgd", **changed):
    """The cells of all runs of one estimator, or of a few, in blocks of runs."""
    runs = min(size.runs, size.few_runs) if few else size.runs
    lr = LR[data.partition("-half-")[0]] if lr is None else lr
    settings = {"data": data, "cvs": cvs, "lr": lr, **LOOP, **changed, "steps": size.steps}
    return [
        cell(task, **settings, first=first, runs=min(BLOCK, runs - first))
        for first in range(0, runs, BLOCK)
    ]


def _halves(size):
    """Random halves of ionosphere with their learning rate."""
    return {f"ionosphere-half-{k}": LR["ionosphere"] for k in range(size.halves)}


def _noise_free(pairs, size):
    """{(data, rate): the path without noise}"""
    return {(d, lr): cell("noise_free", data=d, lr=lr, steps=size.steps) for d, lr in pairs}


def _ends(rates, size):
    """The path without noise and the optimum for {data: rate}."""
    return _noise_free(rates.items(), size), {data: cell("optimum", data=data) for data in rates}


def _rates(size):
    """The cells of figures 3 and 4: every estimator, and no noise, at every learning rate."""
    pairs = [(data, lr) for data in size.sets for lr in size.rates]
    lines = {(data, cvs, lr): _sgd(data, cvs, size, lr) for data, lr in pairs for cvs in LINES}
    return lines, _noise_free(pairs, size)


# Rows ----------------------------------------------------------------------------------------


def _finals(lines, names=("data", "cvs", "lr")):
    """Final ELBO of every run, None where it diverged, and the steps at which runs diverged.

    `names` are those of what the keys begin with.
    """
    return [
        dict(zip(names, key))
        | {
            "elbo": [run[-1] for part in parts for run in part["elbo"]],
            "diverged": [t for part in parts for t in part["diverged"] if t >= 0],
        }
        for key, parts in lines.items()
    ]


def _closed(lines, third, limits):
    """Rows with the median over runs and its error, and the share of the gap closed and its error.

    Keys are (data, base, what `third` says, cvs, lr). The rank of a median of n runs has the
    standard error sqrt(n) / 2; the error of the median is half the distance between the runs that
    far below and above it. The share counts the errors of both medians, its own and the plain
    gradient's.
    """
    rows = _finals(lines, ("data", "base", third, "cvs", "lr"))
    medians = [_median(row["elbo"]) for row in rows]
    plain = {
        row["data"]: found
        for row, found in zip(rows, medians)
        if (row["base"], row["cvs"]) == ("paper", "none")
    }
    limit = {row["data"]: row["noise_free"] for row in limits}
    for row, (median, error) in zip(rows, medians):
        zero, zero_error = plain[row["data"]]
        gap = limit[row["data"]] - zero
        left = (limit[row["data"]] - median) / gap
        both = np.hypot(error, left * zero_error) if left != 1 else 0.0  # 0 by definition
        row["median"], row["error"] = digits([median], 7) + digits([error], 3)
        row["closed"] = digits([1 - left], 6) + digits([both / gap], 3)
    return {"rows": rows, "limits": limits}


def _median(elbo):
    """Median over runs, a diverged one counting as the worst, and its standard error."""
    away = 0.5 / np.sqrt(len(elbo))
    with np.errstate(invalid="ignore"):  # where half of the runs diverged there is no error
        low, median, high = np.quantile(_none_last(elbo), [0.5 - away, 0.5, 0.5 + away])
        return median, (high - low) / 2


def _limits(paths, best=()):
    """Final ELBO without noise, and the best there is, if that was asked for."""
    return [
        {"data": data, "lr": lr, "noise_free": path["elbo"][-1]}
        | ({"optimum": best[data]["elbo"]} if best else {})
        for (data, lr), path in paths.items()
    ]


def _steps(found):
    """The recorded steps, the same in all results."""
    (steps,) = {tuple(result["steps"]) for result in found.values()}
    return list(steps)


def _median_of_runs(elbo):
    """At each step; of two in the middle one of them, and a diverged run is the worst of all."""
    ranked = np.sort(_none_last(elbo), axis=0)  # (runs, T)
    return digits(ranked[round(0.5 * (len(ranked) - 1))], 6)


def _best_rates(rows):
    """At each step the median of the rate that is best there, chosen in hindsight."""
    found = []
    for data, cvs in dict.fromkeys((row["data"], row["cvs"]) for row in rows):
        same = [row["median"] for row in rows if (row["data"], row["cvs"]) == (data, cvs)]
        median = digits(_none_last(same).max(0), 6)
        found.append({"data": data, "cvs": cvs, "lr": "best", "median": median})
    return found


def _mean_and_error(trace):
    """Mean over replicas and its standard error at each step; no error where there is but one."""
    trace = np.array(trace, float)  # (replicas, T)
    row = {"mean": digits(trace.mean(0), 4)}
    if len(trace) > 1:
        row["error"] = digits(trace.std(0, ddof=1) / np.sqrt(len(trace)), 3)
    return row


def _none_last(rows):
    """Rows as an array in which None, for a diverged run, is worse than every number."""
    x = np.array(rows, float)
    return np.where(np.isnan(x), -np.inf, x)


# Natural steps -------------------------------------------------------------------------------

RHOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FALLS = ((0.1, 40), (0.2, 20), (0.4, 10), (1.0, 10))  # rho = first min(1, after / t)
NATURAL = [("RP1", cvs, True) for cvs in ("none", "c7", "S7")] + [("PR", "none", True)]
NATURAL += [(base, "none", False) for base in ("RP1", "PR", "QD")]
QUIET = [("RP1", "landing", True), ("PR", "landing", True), ("PR", "pairs", True)]
NATURAL += QUIET  # whose ELBOs need more decimals


def natural(size):
    """Natural steps from the usual start: steps to 1 nat and to 0.1, and what is missing at last.

    Twenty runs of 150 steps for every line and schedule of rho; fewer of all at the quick size.
    """
    runs, steps = min(size.runs, 20), min(size.steps, 150)
    lines = NATURAL if size.halves > 1 else NATURAL[::4]
    rates = [(rho, 0) for rho in RHOS[-1 - size.halves :]] + [*FALLS[-size.halves :]]
    cells = {
        (data, line, rate): cell(
            "natural", data=data, base=line[0], cvs=line[1], whole=line[2], rho=rate[0],
            after=rate[1], M=LOOP["M"], steps=steps, runs=runs, **_decimals(line),
        )
        for data in size.sets
        for line in lines
        for rate in rates
    }  # fmt: skip
    best = {
        (data, line): cell("optimum", data=data, **_decimals(line))
        for data in size.sets
        for line in lines
    }

    def gather(found, best):
        rows = [
            {"data": data} | dict(zip(("base", "cvs", "whole"), line))
            | dict(zip(("rho", "after"), rate)) | _reached(result, best[data, line]["elbo"])
            for (data, line, rate), result in found.items()
        ]  # fmt: skip
        limits = [{"data": d, "optimum": best[d, NATURAL[0]]["elbo"]} for d in size.sets]
        return {"steps": steps, "rows": rows, "limits": limits}

    return planned(gather, cells, best)


def _decimals(line):
    return {"decimals": 6} if line in QUIET else {}


def _reached(result, optimum):
    """For each run what is missing at the end, and the first step within 1 and 0.1 nats.

    None for a run that diverged, or never came so near. After step 60 every fifth is looked at.
    """
    gap = optimum - _none_last(result["elbo"])  # (runs, T)
    first = lambda near: [
        result["steps"][int(np.argmax(g < near))] if (g < near).any() else None for g in gap
    ]
    row = {"gap": digits(gap[:, -1], 4), "to_1": first(1.0), "to_0.1": first(0.1)}
    return row | {"diverged": [t for t in result["diverged"] if t >= 0], "cut": sum(result["cut"])}


# Both noises ---------------------------------------------------------------------------------

RENEW = (1, 5, 20, 50, 200)  # steps from one snapshot to the next
JOINT = [("PR", "taylor", K) for K in RENEW] + [("QD", "means", K) for K in RENEW]
ONCE = ("RP1", "svrg"), ("RP1", "taylor"), ("PR", "means"), ("QD", "taylor"), ("QD", "gradient")
JOINT += [(*line, 50) for line in ONCE]
BATCH = 100  # data points that one sample of PR sees, without a variate


def joint(size):
    """Final ELBOs with one variate for both noises, from snapshots of several ages.

    Beside them a batch without a variate.
    """
    some = [line for line in JOINT if line[2] in RENEW[-1 - size.halves :]]
    plain, batch = [("paper", "none", 0)], [("PR", "none", 0)]

    def how(base, cvs, renew):
        told = {"task": "joint", "base": base, "renew": renew}
        return {} if base == "paper" else told | ({} if renew else {"M": 1, "batch": BATCH})

    lines = {
        (data, line[0], line[2], line[1], LR[data]): _sgd(data, line[1], size, **how(*line))
        for group in (plain, some, batch)
        for data in size.sets
        for line in group
    }
    gather = lambda lines, paths: _closed(lines, "renew", _limits(paths))
    return planned(gather, lines, _noise_free([(data, LR[data]) for data in size.sets], size))


# All quadratics ------------------------------------------------------------------------------


def quadratics(size):
    """Nats against gradients of every algorithm with gradients alone, and the noise of estimates.

    Twenty runs of each at its best setting, from the mode.
    """
    runs = min(size.runs, 20)
    ways = climbs.WAYS if size.halves > 1 else climbs.WAYS[-2:]
    cells = {
        (data, way): cell("quadratics", data=data, way=way, runs=runs)
        for data in size.sets
        for way in ways
    }
    noise = {data: cell("noises", data=data, repeats=3 * runs) for data in size.sets}

    def gather(found, noise):
        rows = [dict(zip(("data", "way"), key)) | _spread(x) for key, x in found.items()]
        noises = [{"data": data} | row for data, rows in noise.items() for row in rows]
        return {"marks": climbs.MARKS, "rows": rows, "noise": noises}

    return planned(gather, cells, noise)


def _spread(result):
    """Mean and its standard error at each mark; None where a run was lost."""
    gap = -_none_last(-np.array(result["gap"], float))  # (runs, marks)
    error = gap.std(0, ddof=min(1, len(gap) - 1)) / np.sqrt(len(gap))
    return {
        "each": result["each"], "fall": result["fall"], "mean": digits(gap.mean(0), 3),
        "error": digits(error, 3),
    }  # fmt: skip


# After the fit -------------------------------------------------------------------------------


NEAR = [name for name in posteriors.names if name != "gp_pois_regr"]  # a Gaussian q is of use


def answers(size):
    """Posterior means after a fit, way by way: errors against truths by quadrature."""
    cells = {
        name: cell("answers", posterior=name, n=size.samples, runs=4 * size.runs)
        for name in NEAR[-1 - size.halves :]
    }

    def gather(found):
        rows = [{"posterior": name} | row for name, rows in found.items() for row in rows]
        return {"rows": rows, "about": [{"posterior": name} for name in found]}

    return planned(gather, cells)


def covered(size):
    """Intervals where answers are known: which hold, and which are warned of."""
    cases = [(name, False) for name in NEAR] + [(x, bend) for x in HARD for bend in (False, True)]
    cells = {
        (case, bend): cell("covered", case=case, bend=bend, n=4 * size.samples, runs=2 * size.runs)
        for case, bend in (cases if size.halves > 1 else cases[-3:])
    }
    named = lambda key, row: dict(zip(("case", "bend"), key)) | row
    gather = lambda found: [named(key, row) for key, rows in found.items() for row in rows]
    return planned(lambda found: {"rows": gather(found)}, cells)


# A deep model --------------------------------------------------------------------------------

CODES = {  # ways, in groups of one number of draws
    "gaussian": {1: ("closed", "stl"), 8: ("closed", "stl")},
    "bernoulli": {2: ("plain", "learnt", "loo", "disarm", "straight")},
}
PATH = {"gaussian": "closed", "bernoulli": "learnt"}  # on which the noise is measured
STEEP = {"gaussian": (0.003, 0.01, 0.02, 0.03, 0.06), "bernoulli": (0.003, 0.01, 0.03, 0.1)}
PAIRED = 24  # runs of each way and rate, on common starts and batches
AS_LONG = {2: 460, 4: 330, 8: 210}  # draws: steps in the time of 600 of one (benchmarks.vae)


def vae(size):
    """ELBO of a small autoencoder along training, for each way and rate; noise along one path.

    Beside the ways at fixed rates: rates that fall, more draws in the time of one, and the average
    of the weights at the end of each run. At the quick size one way and no noise: JAX takes seconds
    to compile each.
    """
    runs, steps = min(size.runs, PAIRED), min(2 * size.steps, 600)
    whole = steps == 600
    codes = CODES if whole else {"gaussian": {1: ("closed",)}}
    steep = {code: rates if whole else rates[:2] for code, rates in STEEP.items()}
    keys = [
        (latent, way, K, 0, steps)
        for latent, groups in codes.items()
        for K, ways in groups.items()
        for way in ways
    ]
    if whole:
        keys += [("gaussian", way, 1, 1, steps) for way in codes["gaussian"][1]]
        keys += [("gaussian", "stl", K, 0, fewer) for K, fewer in AS_LONG.items()]
    cells = {
        key: cell(
            "vae", latent=latent, way=way, K=K, rates="+".join(map(str, steep[latent])),
            falling=falling, steps=length, runs=runs,
        )
        for key in keys
        for latent, way, K, falling, length in [key]
    }  # fmt: skip
    looks = f"0+{steps // 8}+{steps}"
    grouped = lambda groups: ",".join(f"{K}:{'+'.join(ways)}" for K, ways in groups.items())
    noise = {
        latent: cell(
            "vae_noise", latent=latent, groups=grouped(groups), path=PATH[latent], rate=0.01,
            steps=looks, repeats=50, runs=min(runs, 4),
        )
        for latent, groups in codes.items()
        if whole
    }  # fmt: skip

    def gather(found, noise):
        (jax,) = {result["jax"] for result in found.values()}
        rows = [
            dict(zip(("latent", "way", "K", "falling", "steps"), key)) | {"rate": rate} | row
            for key, result in found.items()
            for rate, row in zip(steep[key[0]], _along(result))
        ]
        noises = [
            {"latent": latent, "way": row["way"], "K": row["K"], "step": int(step)}
            | {"noise": list(values)}
            for latent, rows in noise.items()
            for row in rows
            for step, values in zip(looks.split("+"), zip(*row["noise"]))
        ]
        long = {key: result for key, result in found.items() if key[-1] == steps}
        return {"jax": jax, "steps": _steps(long), "rows": rows, "noise": noises}

    return planned(gather, cells, noise)


def _along(result):
    """For each rate: the mean test ELBO at each checkpoint, and what each run ends with."""
    ends = "valid", "averaged", "averaged valid"
    for test, *rest in zip(result["test"], *(result[part] for part in ends)):
        mean = np.mean(np.array(test, float), 0)
        yield {"test": digits(mean, 6), "ends": [run[-1] for run in test]} | dict(zip(ends, rest))


ALL = (
    table1, slopes, draws, figure1, figure3, figure4, figure5, ladder, natural, joint, quadratics,
    answers, covered, vae,
)  # fmt: skip
PLANS = {plan.__name__: plan for plan in ALL}
