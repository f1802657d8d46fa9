"""Files of results: written whole or not at all, refused when unreadable or of another version."""

import json
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

SCHEMA = 1  # raise it when the meaning of a stored number changes


class Refused(ValueError):
    """An ending that the user can act on; nothing was overwritten."""


@cache
def versions():
    """What the numbers may depend on."""
    from .. import __version__

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


def write(path, content):
    """All of `content` or, whatever happens, no change: a temporary file takes the name last.

    A file that is there already must hold the same bytes; it is never written over.
    """
    text = dumps(content)
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


def read(path, name):
    """The record `name` of the file, or a refusal that says what is wrong with it."""
    advice = "Nothing was overwritten: move it away, or choose another folder with --out"
    try:
        record = json.loads(path.read_text("utf-8"))
        found, made_with = record["name"], record["versions"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} cannot be read as a result ({error!r}). {advice}") from error
    if made_with != versions():
        now = versions()
        other = [
            f"{k} {made_with.get(k)} (now {now[k]})" for k in now if made_with.get(k) != now[k]
        ]
        raise Refused(f"{path} was made with {', '.join(other) or made_with}. {advice}")
    if found != name:
        raise Refused(f"{path} holds {found!r}, not {name!r}. {advice}")
    return record


def cell_path(folder, cell):
    return Path(folder) / "cells" / (cell.name.replace(" ", "_").replace("/", "-") + ".json")
