"""What a reader gives: taken, or refused in a sentence; and the bar that is shown."""

import sys
from operator import index
from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number from `least` on, as an int."""
    try:
        if isinstance(value, bool):
            raise TypeError
        value = index(value)
    except TypeError:
        near = value if isinstance(value, float) else getattr(value, "dim", 0.5)  # of a model
        hint = f": write {int(near)}" if near % 1 == 0 and near >= least else ""
        raise TypeError(f"{name}={value!r} must be a whole number{hint}") from None
    if value < least:
        raise ValueError(f"{name}={value}: it must be at least {'one' if least == 1 else least}")
    return value


def install(extra: str) -> str:
    """How to get what an extra brings: the project comes as a folder or a wheel, from no index."""
    return f"pip install '.[{extra}]' in the project's folder, or its wheel as '….whl[{extra}]'"


def generator(rng: Any) -> np.random.Generator:
    """`rng`, if it is a generator: a seed that every call begins with would repeat its draws."""
    if not isinstance(rng, np.random.Generator):
        seed = 0 if rng is None else rng
        raise ValueError(f"rng={rng!r}: give a generator, rng=np.random.default_rng({seed!r})")
    return rng


def unmasked(name: str, value: Any) -> Any:
    """`value`, if it is no masked array: its mask would be dropped without a word."""
    if type(value) is np.ndarray or "numpy.ma" not in sys.modules:  # as in every step
        return value
    inside = value if isinstance(value, list | tuple) else ()
    if np.ma.is_masked(value) or any(map(np.ma.is_masked, inside)):
        raise ValueError(
            f"{name} is a masked array, and its mask would be lost: drop the masked entries, "
            "x[~mask].data for x, or fill them"
        )
    return value


def number(
    name: str, value: Any, low: float = -np.inf, high: float = np.inf, above: bool = False
) -> float:
    """One number in [low, high), or in (low, high) if above, as a float."""
    if np.ndim(value):
        raise ValueError(f"{name}={value}: one number, not {np.shape(value)} of them")
    return float(numbers(name, value, low, high, above))


def numbers(
    name: str, value: Any, low: float = -np.inf, high: float = np.inf, above: bool = False
) -> float | np.ndarray:
    """One or many numbers in the same interval, as a float or an array of floats."""
    array = np.asarray(unmasked(name, value))
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name}={value!r} is no number: write for example {name}=0.1")
    right = array > low if above or low == -np.inf else array >= low
    if not (right & (array < high)).all():  # NaN lies nowhere
        which = f"lie in {'(' if above else '['}{low:g}, {high:g})"
        if low == 0 and high == np.inf:
            which = "be positive" if above else "be zero or positive"
        raise ValueError(f"{name}={value}: it must {which}")
    return array.astype(float) if array.ndim else float(array)


def bar(*what: Any, **how: Any) -> Any:
    """A bar that shows how far something is."""
    from tqdm import tqdm  # takes a third of the time of import cvlib

    return tqdm(*what, leave=False, **how)
