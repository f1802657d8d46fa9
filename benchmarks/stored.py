"""Files of measured times: what they were measured with, and a line for every row."""

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
