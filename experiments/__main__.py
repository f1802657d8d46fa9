"""Make the results of the paper's experiments, and of those that go beyond it.

    python -m experiments table1             one of table1, slopes, draws, figure1, figure3,
                                                   figure4, figure5, ladder, natural, joint,
                                                   quadratics, answers, covered, vae
    python -m experiments all                all of them
    python -m experiments table1 --runs 2    a quick look; written to table1-runs2.json
    python -m experiments all --quick        every part of the code in a minute
    python -m experiments all --scheduler tcp://host:8786      on a Dask cluster, begun with
        dask scheduler --port 8786                                   on host, and on each machine
        dask worker tcp://host:8786 --nworkers 4 --nthreads 1        four cells at a time

Stopped at any moment, the same command goes on where it was. The numbers do not depend on the
number of workers or on the order of work.
"""

import argparse
import sys
import time
from pathlib import Path

from . import engine, store
from .plans import BLOCK, LOOP, PLANS, QUICK, Size


def main(argv=None):
    args = parse(argv)
    names = list(PLANS) if args.name == "all" else [args.name]
    try:
        for name in names:
            make(name, args)
    except store.Refused as error:
        sys.exit(f"Stopped: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. Finished cells are kept: the same command goes on from here")


def make(name, args):
    """One experiment: its cells, then its file."""
    start = time.perf_counter()
    label, size, command = settings(name, args.runs, args.quick)
    path = Path(args.out) / f"{label}.json"
    if path.exists():
        store.read(path, label, "rows")  # refuse now, not after the work
    cells, gather = PLANS[name](size)
    results = engine.run(
        cells, args.out, jobs=args.jobs, scheduler=args.scheduler, resume=args.resume, title=label
    )
    header = {
        "name": label,
        "command": command,
        "versions": store.versions(),
        "settings": {**size._asdict(), **LOOP, "momentum": 0.9, "block": BLOCK},
    }
    store.write(path, header | gather(results))
    print(f"{path}: {len(cells)} cells in {time.perf_counter() - start:.0f} s")


def settings(name, runs=None, quick=False):
    """The file's name, the size and the command: a smaller run never takes the full one's place."""
    label, size, command = name, Size(), f"python -m experiments {name}"
    if quick:
        label, size, command = f"{label}-quick", QUICK, f"{command} --quick"
    if runs not in (None, size.runs):
        label, command = f"{label}-runs{runs}", f"{command} --runs {runs}"
        size = size._replace(runs=runs)
    return label, size, command


def parse(argv):
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments", None, __doc__, formatter_class=layout)
    parser.add_argument(
        "name", choices=[*PLANS, "all"], metavar="NAME", help=f"{', '.join(PLANS)} or all"
    )
    parser.add_argument("--runs", type=_positive, help="runs of each estimator (the full number)")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes (-1: one per core)")
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True,
                        help="use the cells that are there; --no-resume computes them again and "
                        "stops where one differs")  # fmt: skip
    parser.add_argument("--out", default="results", help="folder of the result files (results)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the code")
    parser.add_argument("--scheduler", help="address of a Dask scheduler, tcp://host:port")
    args = parser.parse_args(argv)
    if args.jobs == 0:
        parser.error("--jobs 0: take at least one worker, or -1 for one per core")
    return args


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: take at least one run")
    return value


if __name__ == "__main__":
    main()
