"""The paper's experiments: `python -m experiments NAME` makes them, `load(NAME)` reads them.

cells    an experiment's smallest pieces, named by their settings and seeded by their names
tasks    what a cell computes
plans    which cells make up a table or a figure, and what is kept of them
store    files that are written whole or not at all
engine   cells on all cores, or on a Dask cluster

Beside them lie things that chapters build on the package: `weights`, other rules for weights.

Several machines share the cells of an experiment through Dask. Install this project with the same
versions on all of them (`pip install -r requirements.txt`, which brings Dask), choose a network you
trust, for Dask asks nobody who they are, and start a scheduler, workers, and the command::

    dask scheduler --port 8786                                # on one machine, say alpha
    dask worker tcp://alpha:8786 --nworkers 4 --nthreads 1    # on each: four cells at a time
    python -m experiments all --scheduler tcp://alpha:8786

Only the last one writes files: the same bytes as on one machine. A cell whose worker is lost goes
to another worker; a worker with other versions is refused; stopped, the command goes on where it
was.
"""

import json
from pathlib import Path

from . import store
from .cells import Cell, cell, compute
from .engine import run
from .plans import PLANS
from .store import Refused

RESULTS = Path(__file__).resolve().parents[1] / "results"  # of the project, or of the wheel

__all__ = ["PLANS", "RESULTS", "Cell", "Refused", "cell", "compute", "load", "run"]


def load(name, folder=RESULTS):
    """A stored result such as "table1", as a dictionary: settings, versions, and lists of rows.

    "benchmarks/steps" is a file of measured times. Another whose checksum is not that of its
    content is refused.
    """
    timed = name.startswith("benchmarks/")
    path = Path(folder) / f"{name}.json"
    if not path.exists():
        there = sorted(p.stem for p in path.parent.glob("*.json"))
        made = name.removesuffix("_steps").replace("/", ".")
        make = f"{made} --save" if timed else f"experiments {name.split('-')[0]}"
        raise ValueError(
            f"no result {name!r} in {path.parent}: there are {there}. Make it with python -m {make}"
        )
    if timed:
        return json.loads(path.read_text("utf-8"))
    return store.read(path, name, "rows", any_version=True)
