"""State: where a run stands after a step, in memory and in a file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any, NamedTuple

import numpy as np

from ..recipe.snapshots import Snapshot

FORMAT = "cvlib state 2"
SAVED = ("t", "w", "a", "diverged", "mean", "count")


class State(NamedTuple):
    """Where a run stands. The generator `rng` moves on with every step; all else is replaced."""

    t: int  # steps taken
    w: np.ndarray  # (..., D)
    memory: tuple  # of the ascent rule
    moments: tuple  # memory of the weight rule
    a: np.ndarray  # (..., L) or (..., L, D), weights of the control variates at step t
    diverged: np.ndarray  # (...) step at which a run left the finite world, -1 if it did not
    mean: np.ndarray  # (..., D) mean of w since step `plan.average`
    count: int  # type: ignore[assignment]  # number of steps in it (it hides tuple.count)
    rng: np.random.Generator | None
    G: np.ndarray | None  # (..., 1 + L, M, D), h and variates at step t; the next writes over it
    snapshot: Snapshot | None  # of the data term, for expansions about older weights
    renewal: np.ndarray | None  # memory of the rule that renews the snapshot
    notes: dict[str, np.ndarray]  # what hooks want to keep, by name

    def save(self, path: str | File) -> None:
        """All but G into one file, whole or not at all; `load` reads it."""
        old = {} if self.snapshot is None else self.snapshot._asdict()
        groups: dict[str, dict] = {
            "memory": dict(enumerate(self.memory)),
            "moments": dict(enumerate(self.moments)),
            "snapshot": {name: x for name, x in old.items() if x is not None},
            "notes": self.notes,
        }
        arrays = {f"{group} {k}": x for group, xs in groups.items() for k, x in xs.items()}
        arrays |= {name: getattr(self, name) for name in SAVED}
        if self.renewal is not None:
            arrays["renewal"] = self.renewal
        text = json.dumps({"format": FORMAT, "rng": bits(self.rng)}, default=np.ndarray.tolist)
        _write(File(path), {"text": text} | arrays)


def load(path: str | File) -> State:
    """The `State` that was saved in a file. The run goes on from it as if it had not stopped."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)  # what was saved as a number is an array (): it counts the same
        about = json.loads(str(found["text"]))
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
        return _state(found, _generator(about["rng"]))
    except FileNotFoundError:
        raise
    except Exception as error:  # a broken file fails in many ways
        raise ValueError(f"{path} holds no state that was saved whole: {error!r}") from error


def bits(rng: np.random.Generator | None) -> Mapping[str, Any] | None:
    """The generator's state, from which it can be made again."""
    return None if rng is None else rng.bit_generator.state


def _state(found, rng):
    """The state of a file's arrays."""

    def group(name):
        start = f"{name} "
        return {k.removeprefix(start): x for k, x in found.items() if k.startswith(start)}

    kept, old = {name: found[name] for name in SAVED}, group("snapshot")
    kept |= {name: int(kept[name]) for name in ("t", "count")}
    return State(
        **kept,
        memory=tuple(group("memory").values()),
        moments=tuple(group("moments").values()),
        rng=rng,
        G=None,
        snapshot=Snapshot(**old | {"checksum": int(old["checksum"])}) if old else None,
        renewal=found.get("renewal"),
        notes=group("notes"),
    )


def _generator(bits):
    """The generator in this state."""
    if bits is None:
        return None
    rng = np.random.Generator(getattr(np.random, bits["bit_generator"])())
    rng.bit_generator.state = bits
    return rng


def _write(path, arrays):
    """Arrays into a file that is there as a whole, or as it was before."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
