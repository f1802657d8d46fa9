"""Measured numbers: the command that makes them, their files, and what they were measured with."""

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

SAYS = {  # what an option of a benchmark is
    "seconds": "of each row", "jobs": "processes", "sets": "data sets of each kind",
    "part": "what is measured",
}  # fmt: skip
FOLDER = Path(__file__).resolve().parents[1] / "results" / "benchmarks"


def path(name):
    """Where the numbers of this benchmark lie."""
    return FOLDER / f"{name}.json"


def versions(*packages):
    """What the numbers depend on, beside this package."""
    found = {name: version(name) for name in packages}
    return found | {"python": platform.python_version(), "cores": os.cpu_count()}


def few(x):
    return float(f"{x:.3g}")


def told(rows):
    """[row] of rows {name: value}, each printed as it comes."""
    found = []
    for row in rows:
        found.append(row)
        print("  ".join(f"{value!s:<10}" for value in row.values()), flush=True)
    return found


def command(doc, name, packages, measure, threads=1, **options):
    """What `python -m benchmarks.NAME` does: measure(**options) -> parts for `save`.

    `doc` begins with a line on what is measured; an option is told as --seconds 2, or is as here.
    """
    from threadpoolctl import threadpool_limits  # here: on a GPU there may be none

    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {path(name).name} for the book")
    for option, usual in options.items():
        words = f"{SAYS[option]} ({usual})"
        parser.add_argument(f"--{option}", type=type(usual), default=usual, help=words)
    told = vars(parser.parse_args())
    saved = told.pop("save")
    with threadpool_limits(threads):
        parts = measure(**told)
    if saved:
        save(path(name), packages, **parts)


def save(path, packages, **parts):
    """{versions, part: rows or {name: row}} into a file, one row a line."""
    text = [f' "versions": {json.dumps(versions(*packages))}']
    for name, rows in parts.items():
        if isinstance(rows, dict):
            lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
            open_, close = "{", "}"
        else:
            lines, open_, close = [json.dumps(row) for row in rows], "[", "]"
        text.append(f' "{name}": {open_}\n  ' + ",\n  ".join(lines) + f"\n {close}")
    path.write_text("{\n" + ",\n".join(text) + "\n}\n")
    print(f"written to {path}")
