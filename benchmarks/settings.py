"""What each number of `cv.Settings` does: half of it and twice of it, on eight posteriors.

    python -m benchmarks.settings --save --jobs 8

A row is a setting and a factor: by how many nats the ELBO of the eight changes (median and worst,
on common draws), and how many gradients are taken, in units of those that the defaults take. A
setting that changes nothing on these models is one for other models, and its row says so.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace

import numpy as np

from benchmarks import stored
from benchmarks.fit import Counted, case

FACTORS = 0.5, 2.0
LEFT_OUT = "seconds", "rate", "after", "reach", "full", "cheap"  # other models alone have them


def changed(value, factor):
    """The setting times the factor: whole numbers stay whole, of several each is changed."""
    if isinstance(value, tuple):
        return tuple(changed(x, factor) for x in value)
    return type(value)(value * factor)


def look(name, setting, factor):
    """The w that a fit finds with this setting, as its logs on common draws; its gradients."""
    import cvlib as cv
    from cvlib.fitting.looks import weighed

    warnings.simplefilter("ignore")
    model, *_ = case(name)
    how = cv.Settings()
    if setting:
        how = replace(how, **{setting: changed(getattr(how, setting), factor)})
    with Counted(model) as count:
        fit = cv.fit(model, progress=False, settings=how)
    log = weighed(model, fit.q, fit.w, 123).log
    return name, setting, factor, float(log[np.isfinite(log)].mean()), count.gradients


def measure(jobs):
    import cvlib as cv
    from experiments import posteriors

    names = [*posteriors.names, "hierarchical Poisson"]
    settings = [f.name for f in fields(cv.Settings) if f.name not in LEFT_OUT]
    asked = [("", 1.0), *((s, factor) for s in settings for factor in FACTORS)]
    with ProcessPoolExecutor(jobs) as pool:
        found = [*pool.map(look, *zip(*((n, *how) for how in asked for n in names)))]
    usual = {name: rest for name, setting, _, *rest in found if not setting}
    rows = []
    for setting, factor in asked[1:]:
        mine = {name: rest for name, s, f, *rest in found if (s, f) == (setting, factor)}
        nats = [mine[name][0] - usual[name][0] for name in names]
        gradients = [mine[name][1] / usual[name][1] for name in names]
        rows.append({"setting": setting, "factor": factor, "nats": round(float(np.median(nats)), 3),
                     "worst": round(min(nats), 3), "best": round(max(nats), 3),
                     "gradients": round(float(np.exp(np.mean(np.log(gradients)))), 2)})  # fmt: skip
        print(rows[-1], flush=True)
    return {"settings": rows}


if __name__ == "__main__":
    stored.command(__doc__, "settings", ("numpy", "scipy", "autograd"), measure, None, jobs=1)
