"""Run tests and chapters under other arithmetic: what they print and assert may not depend on it.

    python tools/processors.py                        every arithmetic of this processor
    python tools/processors.py --only jitter,oldest   these
    python tools/processors.py --list                 none: say which there are
    python tools/processors.py --only jitter book     the chapters alone; any arguments of pytest
    python tools/processors.py --shuffle 7            files in an order that has been seen before

Sums in another order differ in their last digits, and a chaotic fit makes first digits of them. The
jitter (tools/jitter) stands for processors that are not at hand. Files are taken in a random order:
no test may depend on an earlier one either.
"""

import argparse
import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# Of tests/test_*.py: mutants repeat the others, and those of this file compare with no jitter.
APART = "site", "edition", "lab", "pdf", "adapters", "mutants", "processors"
SHARED = "--dist", "loadfile", "--no-loadscope-reorder"  # among workers, as in make test
# Kernels of OpenBLAS that sum in orders of their own, the oldest first.
KERNELS = {
    "x86_64": ("Prescott", "Haswell", "SkylakeX"),
    "aarch64": ("CORTEXA53", "ARMV8", "THUNDERX", "NEOVERSEN1", "NEOVERSEV1"),
}
# All of it is OpenBLAS's: NumPy's own loops compute none of these digits.
PROBE = """
import zlib, numpy as np
A = np.random.default_rng(0).standard_normal((1000, 100))
S = A.T @ A
found = S, A @ S[0], np.linalg.cholesky(S), np.linalg.eigh(S).eigenvectors
print(*map(zlib.crc32, found))
"""


def arithmetics():
    """{name: the variables that a run under it has}."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    kernels = KERNELS.get(machine, ())
    about = np._core._multiarray_umath  # what NumPy's own loops use here and can do without
    spare = [name for name in about.__cpu_dispatch__ if about.__cpu_features__[name]]
    off = {"NPY_DISABLE_CPU_FEATURES": " ".join(spare)} if spare else {}
    path = filter(None, (str(ROOT / "tools/jitter"), os.environ.get("PYTHONPATH")))
    found = {"jitter": {"PYTHONPATH": os.pathsep.join(path)}}
    if kernels:
        found["oldest"] = {"OPENBLAS_CORETYPE": kernels[0], **off}
    for name in kernels[1:]:
        found[name.lower()] = {"OPENBLAS_CORETYPE": name}
    if off:
        found["numpy"] = off
    found["threads"] = {name: "2" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    return found


def computed(variables):
    """A trace of all digits that OpenBLAS computes under these variables; "" if it crashes."""
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    return "" if done.returncode else done.stdout


def needless(variables):
    """Why there is nothing to run under these variables here, in words; None if there is."""
    if "OPENBLAS_CORETYPE" not in variables:
        return None
    if not (digits := computed(variables)):
        return "this processor cannot run it"
    # whatever OpenBLAS calls it: Prescott is Katmai there, and a strange name the ordinary one
    return "OpenBLAS computes as it does without it" if digits == computed({}) else None


def run(name, variables, args):
    """pytest under one arithmetic; True if all passed, or none was needed."""
    print(f"== {name}: " + " ".join(f'{k}="{v}"' for k, v in variables.items()), flush=True)
    if why := needless(variables):
        print(f"== {name}: passed over, {why}", flush=True)
        return True
    start = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", *SHARED, *args]
    passed = not subprocess.run(command, cwd=ROOT, env=os.environ | variables).returncode
    words = "passed" if passed else "FAILED"
    print(f"== {name}: {words} in {time.perf_counter() - start:.0f} s", flush=True)
    return passed


def main():
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--only", default="", help="names of arithmetics, with commas between")
    parser.add_argument("--list", action="store_true", help="run nothing, say which there are")
    parser.add_argument("-n", default="auto", metavar="JOBS", help="workers (auto)")
    seed = random.randrange(10**6)
    parser.add_argument("--shuffle", default=seed, metavar="SEED", help="of the order of files")
    options, args = parser.parse_known_args()
    there = arithmetics()
    only = [name for name in options.only.split(",") if name] or [*there]
    if unknown := [name for name in only if name not in there]:
        sys.exit(f"no arithmetic {unknown[0]!r} on this processor; there are: {', '.join(there)}")
    if options.list:
        print(*(f"{name}: {there[name]}" for name in only), sep="\n")
        return
    order = f"--shuffle={options.shuffle}"
    print(f"== files in the order of {order}", flush=True)
    args = args or [f"--ignore=tests/test_{name}.py" for name in APART]
    args = [f"-n{options.n}", order, *args]
    if failed := [name for name in only if not run(name, there[name], args)]:
        words = "something above depends on the last digits, or on an earlier test"
        sys.exit(f"FAILED under {', '.join(failed)} ({order}): {words}")


if __name__ == "__main__":
    main()
