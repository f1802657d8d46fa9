"""Other arithmetic: the jitter reaches every model; a kernel of OpenBLAS is another."""

import os
import subprocess
import sys

import numpy as np
import processors  # tools/processors.py
import pytest

JITTER = processors.arithmetics()["jitter"]

# log p and its slope at one point, and a gradient, of each kind of model, with all digits.
SLOPES = """
import autograd.numpy as np
import cvlib as cv
from cvlib.models.density import Density
from numpy.random import default_rng

X = default_rng(0).standard_normal((20, 3))
y = np.sign(X @ [1.0, 2.0, -1.0])
prior = cv.models.GaussianPrior()
own = lambda z, b: -np.logaddexp(0, -b[1] * np.sum(b[0] * z, -1))
models = [
    cv.models.Model(own, prior, (X, y), 3),
    cv.models.logistic_regression(X, y),
    cv.models.Compiled(lambda z: (-0.25 * np.sum(z**4, -1), -(z**3)), 3),
]
q = cv.families.DiagonalGaussian(3)
for model in models:
    z = np.array([[0.3, -0.2, 0.7]])
    value, slope = Density(model).slope(z)
    data, *_ = cv.terms(model, q)
    draw = cv.draw(model, q, q.pack(z[0], np.ones(3)), 1, default_rng(1), subsample=False)
    (G,) = cv.evaluate([cv.RP1(data)], draw)
    print(*(float(x).hex() for x in [*value, *slope[0], *G[0]]))
"""


def said(code, **variables):
    """What a process of its own prints under these variables."""
    command, env = [sys.executable, "-c", code], os.environ | variables
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def slopes(**variables):
    """(models, numbers)"""
    lines = said(SLOPES, **variables).splitlines()
    return np.array([[*map(float.fromhex, line.split())] for line in lines])


def test_the_jitter_changes_the_thirteenth_digit_of_every_model():
    plain, shaken = slopes(), slopes(**JITTER)
    assert plain.shape == (3, 10)
    moved = np.abs(shaken / plain - 1)
    assert (moved.max(1) > 1e-15).all() and moved.max() < 1e-12
    assert (moved > 0).mean() > 0.9  # values, slopes of log p, gradients
    np.testing.assert_array_equal(shaken, slopes(**JITTER))
    assert (slopes(CVLIB_JITTER="2", **JITTER) != shaken).mean() > 0.9


# OpenBLAS's own name of the kernel that it takes; Prescott is Katmai there.
NAME = """
import numpy, threadpoolctl
print(threadpoolctl.threadpool_info()[0]["architecture"])
"""


def test_another_kernel_is_run_and_what_is_none_or_cannot_run_is_passed_over(capfd):
    there = processors.arithmetics()
    assert {"jitter", "threads"} <= set(there)
    assert all(processors.needless(there[name]) is None for name in ("jitter", "threads"))
    strange = {"OPENBLAS_CORETYPE": "Abacus"}
    assert "cannot run" in processors.needless(strange | {"PYTHONHOME": "nowhere"})
    assert processors.run("strange", strange, ["--no-such-option"])
    assert "strange: passed over, OpenBLAS computes as" in capfd.readouterr().out
    if "oldest" not in there:
        pytest.skip("no list of kernels for this processor")
    another = said(NAME, **there["oldest"]) != said(NAME)
    assert (processors.needless(there["oldest"]) is None) == another
    loops = there.get("numpy", {})  # NumPy's own, which the trace leaves out
    assert processors.computed(loops) == processors.computed({})


def test_files_come_in_an_order_that_is_told_and_can_be_repeated(monkeypatch, capsys):
    taken = []
    monkeypatch.setattr(processors, "run", lambda name, variables, args: taken.extend(args))
    for words in [], [], ["--shuffle=7"]:
        monkeypatch.setattr(sys, "argv", ["processors.py", "--only=jitter", *words])
        with pytest.raises(SystemExit, match="FAILED under jitter"):  # None was not passed
            processors.main()
    orders = [word for word in taken if word.startswith("--shuffle")]
    assert len({*orders}) == 3 and orders[-1] == "--shuffle=7"
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == orders
    assert taken.count("--ignore=tests/test_site.py") == 3
