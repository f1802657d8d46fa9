"""A fit in a file: arrays and JSON in NumPy's zip archive. Nothing in it can run.

The names in a file are those of its format. They stay when attributes here get other names.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import families
from ..families import Family
from .bends import Bend, Bent
from .run import Run
from .settings import Settings
from .strategies import named

FORMAT = 1
PLAIN = "M trouble words looks settled seconds rivals spike bends seed".split()  # of a run
ARRAYS = "w a diverged mean".split()  # of its state
PICKLE = b"\x1f\x8b"  # files of 0.13 and before begin so


class Broken(ValueError):
    """What makes a file no fit; the sentence says why."""


def write(path: str | Path, run: Run, about: dict, seen: dict[str, np.ndarray]) -> None:
    """A run into a file, whole or not at all; beside it what was said and seen of its model."""
    state = run.state
    assert state.rng is not None
    told = {"format": FORMAT, "model": about, "q": _named(run.q), "t": state.t}
    told |= {"count": state.count, "rng": state.rng.bit_generator.state, "bent": None}
    told |= {"strategy": run.strategy.name, "settings": asdict(run.settings)}
    told |= {name: getattr(run, name) for name in PLAIN}
    arrays = {name: getattr(state, name) for name in ARRAYS} | {"best": run.best}
    arrays |= _numbered("memory", state.memory) | _numbered("moments", state.moments)
    arrays |= {f"seen_{name}": x for name, x in seen.items()}
    if run.bent is not None:
        told["bent"] = [_named(run.bent.q), run.bent.gain, run.bent.error, run.bent.says]
        arrays["bent"] = run.bent.w
    text = json.dumps(told, default=lambda number: number.item())
    part = Path(f"{path}.part")
    with part.open("wb") as file:
        np.savez_compressed(file, told=np.array(text), **arrays)
    part.replace(path)


def read(path: str | Path) -> tuple[dict, dict[str, np.ndarray]]:
    """What a file tells, and its arrays."""
    with Path(path).open("rb") as file:
        if file.read(2) == PICKLE:
            raise Broken("it is of version 0.13 or before, whose files could run code: fit anew")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        told = json.loads(str(arrays.pop("told")))
        number = told["format"]
    except Exception as error:  # a broken or foreign file fails in many ways
        raise Broken(f"it holds no fit that was saved whole: {error!r}") from error
    if number != FORMAT:
        raise Broken(f"its format is {number}, and this version reads {FORMAT}: update cvlib")
    return told, arrays


def restored(model: Any, told: dict, arrays: dict[str, np.ndarray], q: Family | None) -> Run:
    """The run of a model that a file tells; a family of the reader's own comes as q."""
    q = _family(told["q"], q)
    plain = {name: told[name] for name in PLAIN} | {"words": tuple(told["words"])}
    strategy = named(told["strategy"])
    numbers: Any = {k: tuple(x) if isinstance(x, list) else x for k, x in told["settings"].items()}
    settings = Settings(**numbers)
    plan, rng = strategy.plan(model, q, plain["M"], settings), np.random.default_rng()
    rng.bit_generator.state = told["rng"]
    state = plan.first(rng, arrays["w"])
    kept: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    kept |= {"t": told["t"], "count": told["count"], "moments": _like((), arrays, "moments")}
    state = state._replace(memory=_like(state.memory, arrays, "memory"), **kept)
    run = Run(model, q, strategy, settings, state=state, best=arrays["best"], **plain)
    run.looks = tuple(map(tuple, run.looks))
    if told["bent"] is not None:
        kind, *rest = told["bent"]
        run.bent = Bend(_family(kind, None), arrays["bent"], *rest)
    return run


def _named(q: Family) -> list:
    kind, *values = q.key
    return [kind.__name__, *values]


def _family(told: list, given: Family | None) -> Any:
    """The family of this name and these arguments, or the one that was given."""
    kind, *values = told
    if given is not None or kind not in (*families.__all__, "Bent"):
        if given is None or _named(given)[0] != kind:
            raise Broken(f"its q is {kind}{tuple(values)}: give that family, load(path, model, q)")
        return given
    return (Bent if kind == "Bent" else getattr(families, kind))(*values)


def _numbered(name: str, arrays: Sequence) -> dict[str, np.ndarray]:
    return {f"{name}_{k}": np.asarray(x) for k, x in enumerate(arrays)}


def _like(start: tuple, arrays: dict[str, np.ndarray], name: str) -> tuple:
    """The numbered arrays, as the kind of tuple that a plan starts with."""
    found = [
        arrays[f"{name}_{k}"] for k in range(sum(key.startswith(f"{name}_") for key in arrays))
    ]
    return type(start)._make(found) if hasattr(start, "_make") else tuple(found)
