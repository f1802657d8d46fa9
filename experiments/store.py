"""Files of results: written whole or not at all, refused when altered or of another version."""

import hashlib
import json
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

SCHEMA = 1  # raise it when the meaning of a stored number changes


class Refused(ValueError):
    """An ending that the user can act on; nothing was overwritten."""


@cache
def versions():
    """What the numbers may depend on."""
    from cvlib import __version__

    packages = {name: version(name) for name in ("numpy", "scipy", "autograd")}
    return {"schema": SCHEMA, "cvlib": __version__, **packages}


def dumps(content):
    """JSON with one line per entry of the lists and objects at the top: small, and diffs read."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            inner = ",\n  ".join(_compact(item) for item in value)
            lines.append(f" {json.dumps(key)}: [\n  {inner}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value):
    return json.dumps(value, separators=(", ", ": "), allow_nan=False)


def digits(x, count):
    """Numbers as plain ones with few significant digits; None for what is not finite."""
    if np.ndim(x):
        return [digits(value, count) for value in np.asarray(x, float).tolist()]
    return float(f"{x:.{count}g}") if np.isfinite(x) else None


def checksum(content):
    """Of all that is stored but the checksum itself; spaces and line breaks do not count."""
    return hashlib.sha256(_compact(content).encode()).hexdigest()


def write(path, content):
    """All of `content` or, whatever happens, no change: a temporary file takes the name last.

    A file that is there already must hold the same bytes; it is never written over.
    """
    text = dumps({**content, "sha256": checksum(content)})
    if path.exists():
        if path.read_text("utf-8") != text:
            raise Refused(
                f"{path} exists and differs from what this run makes. Nothing was overwritten: "
                "move it away and run the same command again (finished cells are kept)"
            )
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        if part.exists():
            part.unlink()
        raise Refused(
            f"{path} could not be written: {error.strerror}. Nothing was overwritten and finished "
            "cells are kept: make room (or mend the folder) and run the same command again"
        ) from error


def read(path, name, entry, *, any_version=False):
    """The record `name` of the file, with its `entry`; or a refusal that says what is wrong.

    To go on from a file, its versions must be those of now; to look at it, any will do.
    """
    refused = lambda what: Refused(
        f"{path} {what}. Nothing was overwritten: move it away and make it again, or choose "
        "another folder with --out"
    )
    try:
        record = json.loads(path.read_text("utf-8"))
        missing = [key for key in ("name", "versions", entry) if key not in record.keys()]
        was, now = {**record.get("versions", {})}, versions()
        whole = record.pop("sha256", None) == checksum(record)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise refused(f"cannot be read as a result ({error!r})") from error
    if missing:
        raise refused(f"cannot be read as a result: it has no {' and no '.join(missing)}")
    if not any_version and was != now:
        other = ", ".join(f"{k} {was.get(k)} (now {now[k]})" for k in now if was.get(k) != now[k])
        raise refused(f"was made with {other or was}, and only these versions can go on from it")
    if not whole:
        raise refused("was altered: its checksum is missing or that of other numbers")
    if record["name"] != name:
        raise refused(f"holds {record['name']!r}, not {name!r}")
    return record


def cell_path(folder, cell):
    return Path(folder) / "cells" / (cell.name.replace(" ", "_").replace("/", "-") + ".json")
