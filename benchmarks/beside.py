"""Fits of one version of the package, for another to stand beside: `python -m benchmarks.fit`.

It knows no more of the package than versions 0.5.0 and later have: a process with another
checkout's cvlib imports it.
"""

import json
import sys
import time
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path

import numpy as np

SECONDS = 60


def names():
    """The seven posteriors, and the counts in thirty groups."""
    try:
        from cvlib import posteriors  # 0.5.0
    except ImportError:
        from experiments import posteriors
    return posteriors, [*posteriors.names, "hierarchical Poisson"]


def case(name):
    """A model, what its reference speaks of as a function of z, and the reference's mean and sd."""
    posteriors, known = names()
    if name in posteriors.names:
        p = posteriors.load(name)
        return p.model, p.parameters, p.mean, p.sd
    model, mean, sd = _others().load("groups")
    return model, lambda z: z, mean, sd


def _others():
    """experiments.others alone: the folder around it needs the newest package."""
    path = Path(__file__).parents[1] / "experiments" / "others.py"
    spec = spec_from_file_location("others", path)
    module = module_from_spec(spec)
    sys.modules["others"] = module  # where its classes are looked for
    spec.loader.exec_module(module)
    return module


def row(name):
    """Seconds of one processor, steps, worst mean and sds, in those of the reference."""
    import cvlib as cv

    model, parameters, mean, sd = case(name)
    straight = {"bend": False} if "bend" in signature(cv.fit).parameters else {}  # before 0.13.0
    start = time.process_time()
    fit = cv.fit(model, seconds=SECONDS, progress=False, **straight)
    seconds = time.process_time() - start
    x = parameters(fit.sample(40_000, 1))
    ratio, few = x.std(0) / sd, lambda x: float(f"{x:.2g}")
    return {
        "name": name, "d": model.dim, "N": model.N, "seconds": few(seconds),
        "steps": int(fit.steps), "error": few(np.abs((x.mean(0) - mean) / sd).max()),
        "narrowest": few(ratio.min()), "widest": few(ratio.max()), "elbo": float(fit.elbo),
        "effective": few(fit.effective), "settled": bool(fit.settled),
        "k_hat": few(fit.k_hat) if hasattr(fit, "k_hat") else None, "doubts": len(fit.warnings),
    }  # fmt: skip


def work():
    """Answer lines ["name"] with rows, until the input ends."""
    warnings.simplefilter("ignore")
    row(names()[1][0])  # what is imported at its first use is off the clock
    print(json.dumps(names()[1]), flush=True)
    for line in sys.stdin:
        print(json.dumps(row(*json.loads(line))), flush=True)
