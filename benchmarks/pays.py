"""The same seconds spent otherwise: variates, more draws, larger batches, pairs, better steps.

Every arm of the comparison has the same time from the same start and is tuned over the same rates;
the rate that ends highest then meets the seeds. Chapter 20 reads the result. Run it on a quiet
machine: python -m benchmarks.pays --save
"""

import warnings

import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.race import ours
from benchmarks.race.models import PROBLEMS as ALL
from benchmarks.race.rules import LOWEST, Runner, referee
from benchmarks.race.yardstick import yardstick
from cvlib import CF, PR, QD, RB, RP1, rules, taylor_z
from cvlib.ascent.optimize import Noisy

RESULTS = stored.path("pays")
SECONDS, SEEDS, M = 0.4, 3, 10
RATES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
PROBLEMS = ("australian", "sonar", "eight_schools")


def bases(model, q):
    """{name: line}: words for the data term, the prior in closed form if it has one."""
    data, prior, variational = cv.terms(model, q)
    glm = isinstance(model, cv.models.GLM)
    rest = lambda word: (CF(prior) if glm else word(prior)) - CF(variational)
    lines = {
        word.name: word(data) + rest(word) for word in ((RP1, RB, PR, QD) if glm else (RP1, PR))
    }
    lines["landing"] = RP1(data) + RP1(prior) - RP1(variational)
    return lines


def arms(model, q):
    """{name: options of the loop}; each is the one before it with one thing changed, or says so."""
    glm, h = isinstance(model, cv.models.GLM), bases(model, q)
    data, prior, _ = cv.terms(model, q)
    f, far = data if glm else data + prior, taylor_z(data, at="snapshot")
    c7 = [CF(taylor_z(f)) - RP1(taylor_z(f))]
    seen = lambda **how: {"sampling": cv.Sampling(**how)}
    plain = {"h": h["RP1"], "M": M, "rule": rules.adam()}
    whole, newton = plain | seen(subsample=False), {"rule": rules.natural()}
    found = {"all data": whole}
    if glm:
        joint = {"cvs": [CF(far) - CF(far.over_all_data())], "renew": 10}
        joint |= {"weights": rules.fixed(-1.0)}
        zoo = cv.zoo.paper(model, q)
        found = {
            "plain": plain,
            "ten times the draws": plain | {"M": 10 * M},
            "batches of 50": plain | seen(batch=50),
            "the paper's seven": plain | {"h": zoo.h, "cvs": zoo.S7},
            "quadrature, snapshot": plain | {"h": h["QD"]} | joint,
            "quadrature, snapshot, natural": plain | {"h": h["QD"]} | joint | newton,
            "all data": whole,
            "all data, RB": whole | {"h": h["RB"]},
            "all data, quadrature": whole | {"h": h["QD"], "M": 1},
            "all data, quadrature, natural": whole | {"h": h["QD"], "M": 1} | newton,
        }
    return found | {
        "all data, falling rate": whole | {"falls": True},
        "all data, 40 draws": whole | {"M": 40},
        "all data, pairs": whole | seen(subsample=False, noise="pairs"),
        "all data, Sobol": whole | {"M": 16} | seen(subsample=False, noise="sobol"),
        "all data, landing": whole | {"h": h["landing"]},
        "all data, c7": whole | {"cvs": c7},
        "all data, Price": whole | {"h": h["PR"]},
        "all data, natural": whole | newton,
        "all data, c7, natural": whole | {"cvs": c7} | newton,
        "all data, landing, natural": whole | {"h": h["landing"]} | newton,
        "all data, Price, natural": whole | {"h": h["PR"]} | newton,
    }


def runner(name, options):
    """The arm as a runner of the race."""
    options = dict(options)
    falls = options.pop("falls", False)
    natural = isinstance(options["rule"], rules.natural)

    def line(problem, setting, w):
        rate = rules.falling(setting["rate"], 100, 0.5) if falls else setting["rate"]
        return Noisy(problem.model, problem.q, lr=rate, **options), options["M"]

    return Runner(name, "KL(q, p)", ours.loop(line, each=2 if natural else 10))


def compare(name, seconds):
    """Rows {problem, arm, rate, tried: {rate: nats missing at the end}, gaps: of the seeds}."""
    problem = ALL[name]()
    if name == "eight_schools":  # from its mode: elsewhere natural steps go astray
        problem.start = ours.began(problem, "mode").w
    best = yardstick(problem)["elbo"]
    for arm, options in arms(problem.model, problem.q).items():
        one = runner(arm, options)

        def end(rate, seed):
            setting = {"rate": rate, "start": "usual"}
            run = referee(one, problem, setting, seed, best, seconds, targets=())
            return LOWEST if run.end.startswith("failed") else run.gap[-1]

        tried = {str(rate): end(rate, 0) for rate in RATES}
        rate = float(min(tried, key=tried.get))
        gaps = [end(rate, seed) for seed in range(1, SEEDS + 1)]
        print(f"{name:<14} {arm:<30} rate {rate:<6} {np.median(gaps):.3g} nats missing", flush=True)
        yield {"problem": name, "arm": arm, "rate": rate, "tried": tried, "gaps": gaps}


def measure(seconds):
    warnings.simplefilter("ignore")
    rows = [row for name in PROBLEMS for row in compare(name, seconds)]
    return {"about": {"seconds": seconds, "seeds": SEEDS, "draws": M}, "rows": rows}


if __name__ == "__main__":
    stored.command(__doc__, "pays", ("numpy", "scipy", "autograd"), measure, SECONDS)
