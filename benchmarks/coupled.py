"""A race at equal time: plain draws, opposite pairs and Sobol's points for each of six estimators.

Every way gets the time of STEPS plain steps. A step is one of `optimize.sgd` with Adam, timed alone
and all ways of a model in turns; RUNS runs then take as many steps as fit, at every rate of a grid.
Kept is the rate with the best median at the end, of those at which no run is lost. Every step sees
all data, so that all noise comes from q. Run it on a quiet machine:
python -m benchmarks.coupled --save
"""

import warnings
from time import process_time

import numpy as np

import cvlib as cv
from benchmarks import own, stored
from benchmarks.steps import best_times
from cvlib import CF, PR, RP1, taylor_z
from cvlib.points import sobol

M, RUNS = 16, 20
INTERVAL = [5, 14]  # of 20 sorted runs: between them lies the median of the law, 96 in 100 times
STEPS = 500  # of the plain way; the others get its time
RATES = 0.01, 0.02, 0.05, 0.1, 0.2  # of Adam
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of the time
NOISES = "plain", "pairs", "sobol"
ESTIMATORS = "none", "c7", "c7 at 1", "landing", "PR", "PR of all"
WAYS = [(noise, cvs) for cvs in ESTIMATORS for noise in NOISES]
WAYS.remove(("pairs", "PR of all"))  # a pair gives the entropy's closed form: it would be PR's row


def australian():
    model = cv.models.logistic_regression(*cv.datasets.load("australian"))
    return model, cv.families.Gaussian(model.dim)


MODELS = {"australian": australian, "eight schools": own.eight_schools}


def lines(model, q, cvs):
    """{h, cvs, weights} for the loop. c7's weight is learnt, or one."""
    data, prior, variational = cv.terms(model, q)
    by = PR if cvs.startswith("PR") else RP1
    entropy = by if cvs in ("landing", "PR of all") else CF
    h = by(data) + by(prior) - entropy(variational)
    c7 = CF(taylor_z(data)) - RP1(taylor_z(data))
    line = {"h": h, "cvs": [c7] if cvs.startswith("c7") else []}
    return line | ({"weights": cv.rules.fixed(1.0)} if cvs == "c7 at 1" else {})


def run(model, q, noise, cvs, lr, steps, runs=(), at=None, samples=M, rng=None):
    """A path of the loop, recorded at the steps `at` and at the last."""
    rng = np.random.default_rng(0) if rng is None else rng
    line = lines(model, q, cvs)
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # a rate may be too large
        warnings.simplefilter("ignore", cv.optimize.Diverged)
        return cv.optimize.sgd(
            model, q, **line, lr=lr, steps=steps, M=samples, rng=rng, runs=runs, noise=noise,
            subsample=False, every=at or steps, rule=cv.rules.adam(),
        )  # fmt: skip


def elbo(model, q, w, points=2**12, seed=1):
    """The ELBO at w (..., D): exact for a GLM, else on Sobol's points that all w share."""
    if isinstance(model, cv.models.GLM):
        return cv.exact.elbo(model, q, w, 1e-6)
    u = sobol(np.random.default_rng(seed), (), points, q.dim)
    flat = w.reshape(-1, q.D)
    found = []
    for one in flat:
        draw = cv.draw(model, q, one, eps=q.quantile(one, u), subsample=False)
        found.append(model.log_joint(draw.z).mean() + q.entropy(one))
    return np.reshape(found, w.shape[:-1])


def optimum(model, q):
    """The largest ELBO: known for a GLM, else the end of a run with many even draws."""
    if isinstance(model, cv.models.GLM):
        return float(elbo(model, q, cv.exact.optimum(model, q)))
    rate = cv.rules.falling(0.02, 500)
    end = run(model, q, "sobol", "none", rate, 3000, samples=128).w
    return float(elbo(model, q, end))


def timed(model, q, seconds, block=20):
    """{way: seconds a step}."""
    ways = {way: lambda way=way: run(model, q, *way, lr=1e-3, steps=block) for way in WAYS}
    times = best_times(ways, seconds, clock=process_time)  # one thread: what others do is not in it
    return {way: t / block for way, t in times.items()}


def race(name, steps=STEPS, runs=RUNS, seconds=0.6):
    """Rows {model, noise, cvs, seconds a step, steps, lr, at: shares of time; gap, low, high}."""
    model, q = MODELS[name]()
    times = timed(model, q, seconds)
    budget, best = steps * times["plain", "none"], optimum(model, q)
    for way, time in times.items():
        total = max(len(SHARES), int(budget / time))
        at, found = [max(1, int(share * total)) for share in SHARES], {}
        for lr in RATES:
            path = run(model, q, *way, lr=lr, steps=total, runs=(runs,), at=1)
            if (path.diverged < 0).all():  # a rate that loses a run is too large
                gap = best - elbo(model, q, np.stack([path.path[t] for t in at]))
                found[lr] = np.sort(gap, -1)  # (shares, runs)
        lr = min(found, key=lambda lr: np.median(found[lr][-1]))
        low, high = found[lr][:, INTERVAL].T
        row = {"model": name, "d": q.dim, "noise": way[0], "cvs": way[1]}
        row |= {"seconds": _round(time), "reckoned": False}
        row |= {"steps": total, "lr": lr, "at": list(SHARES)}
        row |= {"gap": _round(np.median(found[lr], -1)), "low": _round(low), "high": _round(high)}
        print(name, *way, f"{time * 1e6:.0f} us", total, lr, row["gap"], flush=True)
        yield row


def _round(x):
    return [float(f"{v:.3g}") for v in x] if np.ndim(x) else float(f"{x:.3g}")


def measure(seconds):
    return {"rows": [row for name in MODELS for row in race(name, seconds=seconds)]}


if __name__ == "__main__":
    stored.command(__doc__, "coupled", ("numpy", "scipy"), measure, 0.6)
