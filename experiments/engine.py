"""Run cells: on the cores of this machine, or on a Dask cluster; keep each result as it comes."""

import sys
from pathlib import Path

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm import tqdm

from . import store
from .cells import compute

PATIENCE = "20s"  # for a Dask scheduler to answer
BAR = "{desc} {percentage:3.0f}% |{bar}| {elapsed} gone, {remaining} left{postfix}"


def run(cells, folder, *, jobs=-1, scheduler=None, resume=True, title="", progress=True):
    """{name: result} of all cells. Results already in `folder` are used unless resume=False."""
    folder = Path(folder)
    cells = list({cell.name: cell for cell in cells}.values())
    paths = {cell.name: store.cell_path(folder, cell) for cell in cells}
    there = [name for name, path in paths.items() if path.exists()]
    done = {name: store.read(paths[name], name, "result") for name in there}
    todo = [cell for cell in cells if not (resume and cell.name in done)]
    todo.sort(key=lambda cell: -cell.cost)  # long ones first: no core waits at the end for one
    costs = {cell.name: cell.cost for cell in todo}
    with tqdm(
        total=sum(costs.values()), desc=title, bar_format=BAR, file=sys.stderr,
        disable=not progress or not todo,
    ) as bar:  # fmt: skip
        bar.set_postfix_str(f"{len(cells) - len(todo)} of {len(cells)} cells")
        found = _on_cluster(todo, scheduler) if scheduler else _on_this_machine(todo, jobs)
        for count, record in enumerate(found if todo else (), 1):
            if record["versions"] != store.versions():
                raise store.Refused(
                    f"a worker runs {record['versions']}, this process {store.versions()}: "
                    "install the same versions on all machines"
                )
            store.write(paths[record["name"]], record)
            done[record["name"]] = record
            bar.set_postfix_str(f"{len(cells) - len(todo) + count} of {len(cells)} cells", False)
            bar.update(costs[record["name"]])
    return {cell.name: done[cell.name]["result"] for cell in cells}


def _on_this_machine(todo, jobs):
    try:
        with parallel_config(backend="loky", inner_max_num_threads=1, idle_worker_timeout=10):
            pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
            yield from pool(delayed(compute)(cell) for cell in todo)
    except TerminatedWorkerError as error:
        raise store.Refused(
            "a worker process was killed, perhaps for want of memory. Finished cells are kept: run "
            "the same command again, with fewer --jobs if memory is short"
        ) from error


def _on_cluster(todo, scheduler):
    try:
        from cvlib.adapters.dask import connect  # chapters read results without it

        client = connect(scheduler, PATIENCE)
    except ValueError as error:
        raise store.Refused(str(error)) from error
    from distributed import as_completed

    with client:
        # A cell whose worker is lost goes to another worker; its seed goes with it.
        futures = client.map(compute, todo, key=[f"cvlib {cell.name}" for cell in todo])
        for _, record in as_completed(futures, with_results=True):
            yield record
