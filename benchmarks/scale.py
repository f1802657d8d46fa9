"""Memory of a step with one variate for both noises as the data grow; what points and samples cost.

Part "size": the memory of a process that has taken steps of logistic regression, d = 30, on data in
a file that is made here and removed. The variate is PR(T) - CF(T.over_all_data()) with
T = taylor_z(data, at="snapshot"), the base PR. Each size has a process of its own.

Part "batch": samples M and data points B a sample, on sonar, without variates. Costs are ratios to
the plain step of the same turn, RP1 of data and prior. Run it on a quiet machine:
python -m benchmarks.scale --save
"""

import json
import re
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.steps import best_times
from cvlib import CF, PR, RP1, taylor_z
from experiments.tasks import problem

SIZES = 10_000, 100_000, 1_000_000, 5_000_000
D, M, K, STEPS = 30, 10, 50, 20
BATCHES = (10, 1), (100, 1), (1, 100), (10, 100)  # samples, data points each


# Data in a file -----------------------------------------------------------------------------------


def make(folder, N, d=D, rows=100_000):
    """X (N, d) and y (N,) as files of numbers, written part by part; the z they come from."""
    rng = np.random.default_rng(N)
    z = rng.standard_normal(d) / np.sqrt(d)
    with open(Path(folder) / "X", "wb") as X, open(Path(folder) / "y", "wb") as y:
        for first in range(0, N, rows):
            x = rng.standard_normal((min(rows, N - first), d))
            X.write(x.tobytes())
            y.write(np.where(rng.random(len(x)) < 1 / (1 + np.exp(-x @ z)), 1.0, -1.0).tobytes())
    return z


def mapped(folder):
    """The model of the data in a folder."""
    y = np.memmap(Path(folder) / "y", float, "r")
    X = np.memmap(Path(folder) / "X", float, "r")
    return cv.models.logistic_regression(X.reshape(len(y), -1), y)


def megabytes():
    """The largest resident memory of this process.

    Linux begins `ru_maxrss` with what the process that started this one had; its own peak is a line
    of a file.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return float(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def size(folder, z):
    """The row of one size, from a process that has done nothing else."""
    model, q = mapped(folder), cv.families.Gaussian(D)
    mu = np.array(z)
    H = cv.snapshot(model, mu).hessian
    w = q.pack(mu, np.linalg.cholesky(np.linalg.inv(np.eye(D) - H)))  # about the posterior
    data, prior, variational = cv.terms(model, q)
    T, rest = taylor_z(data, at="snapshot"), CF(prior) - CF(variational)
    stepping(model, q, PR(data) + rest, (PR(T) - CF(T.over_all_data()),), w, K)()
    return {"part": "size", "N": model.N, "megabytes": megabytes()}


def stepping(model, q, h, cvs, w, renew, M=M, **seen):
    """A function that takes STEPS steps, the last snapshot of `renew` at hand and not renewed."""
    how = {"renew": renew, "sampling": cv.Sampling(**seen)}
    plan = cv.optimize.Noisy(model, q, h, cvs, lr=1e-3, M=M, **how)
    state = plan.first(np.random.default_rng(0), w=w)
    held = plan.step(state)
    plan = replace(plan, renew=None)

    def steps():
        state = held
        for _ in range(STEPS):
            state = plan.step(state)

    return steps


def in_a_process(N, d):
    """A row of `size` from a process of its own, on files that are removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        z = make(folder, N, d)
        code = (
            "import json, sys; from threadpoolctl import threadpool_limits; "
            "from benchmarks import scale\n"
            "with threadpool_limits(1): print(json.dumps(scale.size(*json.loads(sys.argv[1]))))"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, json.dumps([folder, z.tolist()])],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return json.loads(ran.stdout)


def batches(seconds):
    """Rows for samples and data points on sonar, one batch for all samples, in plain steps."""
    model, q, _ = problem("sonar")
    data, prior, variational = cv.terms(model, q)
    rest, w = CF(prior) - CF(variational), q.start()
    ways = {
        (word, M, B): stepping(
            model, q, word(data) + rest, (), w, None, M=M, batch=None if B == 1 else B
        )
        for word in (RP1, PR)
        for M, B in BATCHES
    }
    times = best_times(ways, seconds)
    return [
        {"part": "batch", "base": repr(word), "M": M, "B": B, "steps": t / times[RP1, 10, 1]}
        for (word, M, B), t in times.items()
    ]


def measure(seconds):
    """The rows of all parts, with few digits."""

    def rows():
        for N in SIZES:
            yield in_a_process(N, D)
        yield from batches(seconds)

    short = lambda x: stored.few(x) if type(x) is float else x
    return {"rows": stored.told({k: short(x) for k, x in row.items()} for row in rows())}


if __name__ == "__main__":
    stored.command(__doc__, "scale", ("numpy", "autograd"), measure, seconds=1.0)
