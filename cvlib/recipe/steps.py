"""The four steps by which the parts of a line become rows of a gradient.

Every step is linear in f, so the parts that take the same step are added up first, and the step is
taken once: `add` puts the sum of its parts into G (..., M, D), or fills G if it is the first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .draws import Draw
    from .integrands import Atom
    from .words import Method


class Part(NamedTuple):
    """coef times word(atom)."""

    coef: float
    word: "Method"
    atom: "Atom"


class Step:
    """What a step must say, and what follows from it."""

    order: ClassVar[int]  # steps with a row a sample come first
    add: ClassVar[Callable]  # (draw, parts, G, first): into G, or added to it

    def mean(self, draw: "Draw", parts: list[Part]) -> np.ndarray:
        """The mean of the rows over the samples, (..., D)."""
        rows = np.empty((*draw.w.shape[:-1], draw.M, draw.q.D))
        self.add(draw, parts, rows, True)
        return rows.mean(-2)


@dataclass(frozen=True)
class Pull(Step):
    """grad f at a point, pulled back to w: by the family, or by a pull that the word brings."""

    at: str  # the family's name of the point
    pull: Callable  # (draw, u, out, add): slopes u (..., M, d) into out (..., M, D)
    order: ClassVar[int] = 0

    def add(self, draw: "Draw", parts: list[Part], G: np.ndarray, first: bool) -> None:
        slope = _sum(parts, lambda p: p.atom.slope(draw, self.at))  # (..., M, d)
        self.pull(draw, slope, G, add=not first)

    def mean(self, draw: "Draw", parts: list[Part]) -> np.ndarray:
        at_once = getattr(self.pull, "mean", None)  # some pulls know it without their rows
        if at_once is None:
            return super().mean(draw, parts)
        return at_once(draw, _sum(parts, lambda p: p.atom.slope(draw, self.at)))


@dataclass(frozen=True)
class InEta(Step):
    """Expectations by hand of an f of eta, sum [d1 x, d2 x x^T L] over the points that f sees."""

    whole: bool  # all data, whatever the draw subsamples
    order: ClassVar[int] = 1

    def add(self, draw: "Draw", parts: list[Part], G: np.ndarray, first: bool) -> None:
        d1, d2 = (_sum(parts, lambda p: p.word.slopes(draw, p.atom)[i]) for i in (0, 1))
        rows, (mu, factor) = parts[0].atom.rows(draw), draw.q.blocks
        _add(G[..., mu], 1, rows.back(d1), first)
        _add(G[..., factor], 1, rows.bend(draw, d2), first)


@dataclass(frozen=True)
class ByHand(Step):
    """A gradient that the atom knows, (..., M or 1, D)."""

    word: "Method"
    order: ClassVar[int] = 2

    def known(self, draw: "Draw", p: Part) -> np.ndarray:
        return draw.once((p.atom.key, self.word), self.word.by_hand, p.atom)

    def add(self, draw: "Draw", parts: list[Part], G: np.ndarray, first: bool) -> None:
        if len(parts) == 1:  # the usual case, without a copy
            _add(G, parts[0].coef, self.known(draw, parts[0]), first)
        else:
            _add(G, 1, _sum(parts, lambda p: self.known(draw, p)), first)

    def mean(self, draw: "Draw", parts: list[Part]) -> np.ndarray:
        total = _sum(parts, lambda p: self.known(draw, p))
        return total.mean(-2)  # no copies of what is the same for all samples


@dataclass(frozen=True)
class Score(Step):
    """f at a point times a score of the family, or what else a word makes of the two."""

    at: str  # the family's names of the point and of the score
    score: str
    rows: Callable | None  # (draw, f, score) -> (..., M, D) from values f (..., M)
    order: ClassVar[int] = 3

    def add(self, draw: "Draw", parts: list[Part], G: np.ndarray, first: bool) -> None:
        value = lambda p: draw.once((p.atom.key, self.at, "value"), p.atom.value, self.at)
        f, score = _sum(parts, value), draw.of(self.score)  # (..., M), (..., M, D)
        _add(G, 1, self.rows(draw, f, score) if self.rows else f[..., None] * score, first)


def _add(G: np.ndarray, coef: float, part: np.ndarray, first: bool) -> None:
    """G + coef part into G, or coef part alone; without products by 1."""
    if first and coef == 1:
        G[...] = part
    elif first:
        np.multiply(coef, part, out=G)
    elif coef == -1:
        G -= part
    else:
        G += part if coef == 1 else coef * part


def _sum(parts: list[Part], array: Callable[[Part], np.ndarray]) -> np.ndarray:
    """The sum of coef * array(part), without products by 1."""
    first, *others = parts
    total = array(first) if first.coef == 1 else first.coef * array(first)
    for part in others:
        new = array(part)
        if part.coef == -1:
            total = total - new
        else:
            total = total + (new if part.coef == 1 else part.coef * new)
    return total
