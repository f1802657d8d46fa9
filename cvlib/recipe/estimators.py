"""Lines: sums and differences of estimators, what they estimate, and their numbers on a draw."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from ..draws import Draw
from .integrands import Atom, Integrand, Wants, wanted
from .linear import ROUNDING, Linear

ELBO = {"data": 1, "prior": 1, "variational": -1}  # what a base gradient estimates


class Estimator(Linear):
    """A linear combination of (word, atom) pairs."""

    def __init__(self, parts: Mapping[tuple[Any, Atom], float]) -> None:
        super().__init__(parts)
        owners = {atom.owner for _, atom in self.parts if atom.owner}
        if len(owners) > 1:
            raise ValueError(
                f"{self!r} mixes terms of two models or families: make all from one terms()"
            )
        self.owner = next(iter(owners), None)

    def __call__(self, draw: Draw) -> np.ndarray:
        """Per-sample gradients, (..., M, D)."""
        return evaluate([self], draw)[..., 0, :, :]

    @cached_property
    def by_word(self) -> list[tuple[Any, Linear]]:
        """The line as words of sums: a word is linear in f, so it looks at a sum at once.

        Words with a formula in eta all end in the same sum over data: they are one word, InEta.
        What can fill an array in its place comes first.
        """
        table: dict[Any, dict[Any, float]] = {}
        for (word, atom), coef in self.parts.items():
            if word.in_eta and atom.of_eta:
                table.setdefault((IN_ETA, atom.whole), {})[word, atom] = coef
            else:
                table.setdefault((word, atom.space), {})[atom] = coef
        found = [
            (word, (Linear if word is IN_ETA else Integrand)(parts))
            for (word, _), parts in table.items()
        ]
        return sorted(found, key=lambda pair: pair[0].by_formula)

    def mean(self, draw: Draw) -> np.ndarray:
        """The mean over the samples, (..., D), without a row a sample where a word can do so."""
        _check_lines([self], draw)
        if draw.weight is not None:
            return self(draw).mean(-2)
        total = np.zeros((*draw.w.shape[:-1], draw.q.D))
        for word, f in self.by_word:
            total += word.mean(draw, f)
        return total

    @property
    def wants(self) -> Wants | None:
        """What the line needs of a snapshot, or None."""
        return wanted(atom for _, atom in self.parts)

    @property
    def target(self) -> dict[str, float]:
        """What the line estimates, as {term: coefficient}; empty for a control variate."""
        total: dict[str, float] = {}
        size: dict[str, float] = {}
        for (method, atom), coef in self.parts.items():
            name = atom.target if atom.conservative else f"{method}({atom.target})"
            total[name] = total.get(name, 0) + coef
            size[name] = size.get(name, 0) + abs(coef)
        total.pop("one", None)  # the gradient of E_q[1] is zero
        return {name: c for name, c in total.items() if abs(c) > ROUNDING * size[name]}

    @property
    def is_control_variate(self) -> bool:
        return not self.target

    @staticmethod
    def part_name(part: Any) -> str:
        method, atom = part
        return f"{method}({atom.name})"


class InEta:
    """Words of an f of eta: psi' and psi'' of all are added up, then summed over the data once."""

    by_formula = True

    def gradients(self, draw: Draw, f: Linear, out: np.ndarray | None = None) -> np.ndarray:
        """[sum psi' x, sum psi'' x x^T L] for (word, atom) pairs on the same data."""
        rows = next(iter(f.parts))[1].rows(draw)
        d1, d2 = (f.total(lambda part: part[0].slopes(draw, part[1])[k]) for k in (0, 1))
        return draw.q.chain(draw, rows.back(d1), rows.bend(draw, d2), out)

    def mean(self, draw: Draw, f: Linear) -> np.ndarray:
        return self.gradients(draw, f).mean(-2)


IN_ETA = InEta()


def check_variate(line: Estimator) -> None:
    """A ValueError unless the line is a control variate, an estimate of zero."""
    if not _estimator(line).is_control_variate:
        raise ValueError(
            f"{line!r} is no control variate: it estimates {line.target}, not zero. A control "
            "variate is the difference of two estimators of the same term"
        )


def check_gradient(line: Estimator) -> None:
    """A ValueError unless the line estimates the gradient of the ELBO."""
    found = _estimator(line).target
    if found.keys() != ELBO.keys() or any(abs(found[k] - ELBO[k]) > ROUNDING for k in ELBO):
        raise ValueError(
            f"h = {line!r} must estimate data + prior - variational, the ELBO gradient; "
            f"it estimates {found}"
        )


def _estimator(line):
    if isinstance(line, Estimator):
        return line
    if hasattr(line, "line"):
        raise TypeError(f"{line!r} is no estimator such as RP1(data): take its .line")
    hint = ": write a list of lines" if isinstance(line, list | tuple) else ""
    raise TypeError(f"{line!r} is no estimator such as RP1(data){hint}")


# Numbers --------------------------------------------------------------------------------------


@np.errstate(over="ignore", invalid="ignore")  # what overflows is an error below, not a warning
def evaluate(
    lines: Sequence[Estimator], draw: Draw, out: np.ndarray | None = None, check: bool = True
) -> np.ndarray:
    """Every line's per-sample gradients, (..., number of lines, M, D), shared work done once.

    A gradient that is not finite is an error that names estimator and term, unless check=False.
    """
    _check_lines(lines, draw)
    shape = (*draw.w.shape[:-1], len(lines), draw.M, draw.q.D)
    if out is None:
        out = np.empty(shape)
    elif out.shape != shape:
        raise ValueError(f"out must be {shape}, (runs, lines, M, D); got {out.shape}")
    for k, line in enumerate(lines):
        _fill(out[..., k, :, :], line, draw)
    if draw.weight is not None:
        out *= draw.weight[..., None, :, None]
    if check:
        flat = out.ravel()
        if not isfinite(flat.dot(flat)) and not np.isfinite(out).all():  # the first is quick
            _name_the_culprit(lines, draw)
    return out


def _fill(G, line, draw):
    """The rows of a line into G (..., M, D)."""
    if not line.by_word:
        G[...] = 0.0
    for k, (word, f) in enumerate(line.by_word):
        rows = word.gradients(draw, f, out=None if k else G)
        if k:
            G += rows
        elif rows is not G:
            G[...] = rows


def _check_lines(lines, draw):
    if isinstance(lines, Estimator):
        raise TypeError(f"evaluate takes a list of lines: write evaluate([{lines!r}], draw)")
    if not isinstance(draw, Draw):
        raise TypeError(f"{draw!r} is no draw: write evaluate(lines, cv.draw(model, q, w, M, rng))")
    for line in lines:
        owner = _estimator(line).owner
        if owner and owner != (draw.model, draw.q):
            raise ValueError(f"{line!r} and the draw belong to different models or families")
        if not owner:  # made of `one` alone, which could not know the family
            for method, _ in line.parts:
                if not method.fits(draw.q):
                    raise ValueError(f"{line!r}: {method} is not possible for {draw.q!r}: try SF")


def _name_the_culprit(lines, draw):
    for part in {part: None for line in lines for part in line.parts}:
        alone = evaluate([Estimator({part: 1})], draw, check=False)
        if not np.isfinite(alone).all():
            where = np.argwhere(~np.isfinite(alone[..., 0, :, :]).all(-1))[0].tolist()
            raise ValueError(
                f"{Estimator.part_name(part)} is not finite at sample {where}: q may be far too "
                f"wide for this model, largest |w| is {np.abs(draw.w).max():.3g}; take a smaller "
                "step"
            )
    raise ValueError("the gradient overflows: its parts are finite, their sum is not")
