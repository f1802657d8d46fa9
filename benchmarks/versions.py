"""Old against new: the same rows timed by two checkouts of the package in turns.

    python -m benchmarks.versions OLD        OLD is a commit such as v0.2.0, or a folder
    python -m benchmarks.versions OLD --rows australian --seconds 2     some rows, timed longer

Each checkout has a process of its own and waits while the other works, so that a slow moment of
the machine falls on both. Printed are milliseconds a step and old over new: above 1 is faster now.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}


def table():
    """{name: step} of both benchmarks, with the package that this process has imported."""
    import cvlib as cv
    from benchmarks import own, steps

    found = {}
    for data in ("australian", "ionosphere", "sonar"):
        model = cv.models.logistic_regression(*cv.datasets.load(data))
        for runs in ((), (8,)):
            for label, names in steps.SETS.items():
                name = f"{data}, {runs[0] if runs else 1} runs, {label}"
                found[name] = steps.cvlib_way(steps.Problem(model, names, runs))[0]
    return found | {
        f"{name}, M = {M}, {label}": step for (name, M, label), step in own.rows().items()
    }


def work():
    """Answer lines "name calls" with seconds a call, until the input ends."""
    from benchmarks.steps import timed

    rows = table()
    print(json.dumps(list(rows)), flush=True)
    for line in sys.stdin:
        name, calls = json.loads(line)
        rows[name]()
        print(timed(rows[name], calls), flush=True)


class Worker:
    """A process with another checkout's cvlib and this checkout's benchmarks."""

    def __init__(self, package, module="versions"):
        paths = os.pathsep.join([str(package), str(ROOT)])
        ours = f"import benchmarks; benchmarks.__path__ = [{str(ROOT / 'benchmarks')!r}]"
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{ours}; from benchmarks import {module}; {module}.work()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=package,
            env=os.environ | THREADS | {"PYTHONPATH": paths},
        )  # fmt: skip
        self.rows = json.loads(self.process.stdout.readline())

    def ask(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(old, new, part="", seconds=0.2, rounds=9):
    """[{row, old, new}] of the rows with `part` in their name, printed as they come.

    The time of a row is the shortest of its turns, of which there are `rounds`.
    """
    workers = Worker(old), Worker(new)
    found = []
    print(f"{'':36}{'old':>9}{'new':>9}{'old / new':>11}   milliseconds a step")
    for name in (row for row in workers[0].rows if part in row):
        calls = [max(1, int(seconds / rounds / w.ask(name, 1))) for w in workers]
        turns = [[w.ask(name, n) for w, n in zip(workers, calls)] for _ in range(rounds)]
        best = [min(times) for times in zip(*turns)]
        found.append({"row": name, "old": best[0], "new": best[1]})
        ms = "".join(f"{1e3 * t:9.3f}" for t in best)
        print(f"{name:36}{ms}{best[0] / best[1]:11.2f}", flush=True)
    for worker in workers:
        worker.end()
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="a commit, or the folder of another checkout")
    parser.add_argument("--rows", default="", help="only rows with these letters in their name")
    parser.add_argument("--seconds", type=float, default=0.2, help="time for a row and a version")
    args = parser.parse_args()
    with checkout(args.old) as old:
        compare(old, ROOT, part=args.rows, seconds=args.seconds)


@contextmanager
def checkout(old):
    """The folder of another version of the package: `old` itself, or that commit for a while."""
    if Path(old, "cvlib").is_dir():
        yield Path(old).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            ["git", "worktree", "add", "--detach", folder, old],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode:
            sys.exit(f"{old!r} is neither a folder with cvlib nor a commit: {made.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            command = ["git", "worktree", "remove", "--force", folder]
            subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
