"""Measured numbers: the command that makes them, their files, and what they were measured with."""

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

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


def command(doc, name, packages, measure, seconds=None, threads=1):
    """What `python -m benchmarks.NAME` does: measure(seconds) -> parts for `save`.

    `doc` begins with a line on what is measured; `seconds` are for each row, unless it is told, and
    without them it is measure().
    """
    from threadpoolctl import threadpool_limits  # here: on a GPU there may be none

    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {path(name).name} for the book")
    if seconds:
        parser.add_argument("--seconds", type=float, default=seconds, help="of each row")
    options = vars(parser.parse_args())
    with threadpool_limits(threads):
        parts = measure(*([options["seconds"]] if seconds else []))
    if options["save"]:
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
