"""Formal linear combinations: what lets integrands and estimators be added and subtracted."""

from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Real
from sys import float_info
from typing import Any, Self

ROUNDING = 32 * float_info.epsilon  # what a sum of coefficients may miss zero by, relative


class Linear:
    """A finite sum of coefficients times parts; parts that cancel, but for rounding, disappear.

    So the order of writing does not matter: a/3 - a + a/3 + a/3 is 0 as a/3 + a/3 + a/3 - a is.
    """

    def __init__(self, parts: Mapping[Any, float]) -> None:
        self.parts = {part: coef for part, coef in parts.items() if coef != 0}

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            raise TypeError(f"cannot add {other!r} to {self!r}: only another {_kind(self)}")
        parts = dict(self.parts)
        for part, coef in other.parts.items():
            before = parts.get(part, 0)
            cancels = abs(before + coef) <= ROUNDING * abs(coef)
            parts[part] = 0 if cancels else before + coef
        return type(self)(parts)

    def __sub__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            raise TypeError(f"cannot subtract {other!r} from {self!r}: only another {_kind(self)}")
        return self + (-1) * other

    def __mul__(self, scalar: float) -> Self:
        if not isinstance(scalar, Real):
            raise TypeError(f"cannot multiply {self!r} by {scalar!r}: only by a number")
        if not isfinite(scalar):
            raise ValueError(f"cannot multiply {self!r} by {scalar}: the factor must be finite")
        return type(self)({part: scalar * coef for part, coef in self.parts.items()})

    __rmul__ = __mul__

    def __truediv__(self, scalar: float) -> Self:
        return self * (1 / scalar)

    def __neg__(self) -> Self:
        return self * -1

    def __repr__(self):
        text = ""
        for part, coef in self.parts.items():
            sign = "-" if coef < 0 else "+"
            size = "" if abs(coef) == 1 else f"{abs(coef):g}*"
            text += f" {sign} {size}{self.part_name(part)}"
        if not text:
            return "0"
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def total(self, of: Callable[[Any], Any]) -> Any:
        """The sum of coef * of(part) for arrays of(part), without products by 1."""
        total: Any = None
        for part, coef in self.parts.items():
            new = of(part)
            if total is None:
                total = new if coef == 1 else coef * new
            elif coef == -1:
                total = total - new
            else:
                total = total + (new if coef == 1 else coef * new)
        return total

    @staticmethod
    def part_name(part: Any) -> str:
        return part.name


def _kind(thing):
    return type(thing).__name__.lower()
