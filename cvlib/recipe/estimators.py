"""Words and lines: estimators of grad_w E_q[f], their sums and differences, and their numbers.

A word is called with an integrand to make a line, and is refused where it is written if the term or
the family does not have it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from ..draws import Draw, kept
from ..families.base import Family
from ..models import checks
from .integrands import ROUNDING, Atom, Illegal, Integrand, Linear, OfEta, integrand

ELBO = {"data": 1, "prior": 1, "variational": -1}  # what a base gradient estimates


class Estimator(Linear):
    """A line: a linear combination of (word, atom) pairs."""

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
    def sums(self) -> tuple[list[tuple[Any, Integrand]], list[Linear]]:
        """The line as words of sums: a word is linear in f, so it looks at a sum at once.

        Words with a formula in eta all end in the same sum over data: sums of (word, atom) pairs.
        """
        by_word: dict[Any, dict[Atom, float]] = {}
        in_eta: dict[bool, dict[Any, float]] = {}
        for (word, atom), coef in self.parts.items():
            if word.in_eta and isinstance(atom, OfEta):
                in_eta.setdefault(atom.all_data, {})[word, atom] = coef
            else:
                by_word.setdefault((word, atom.space), {})[atom] = coef
        sums = [(word, Integrand(atoms)) for (word, _), atoms in by_word.items()]
        sums.sort(key=lambda pair: pair[0].by_hand is not None)  # first what can fill an array
        return sums, [Linear(pairs) for pairs in in_eta.values()]

    def rows(self, draw: Draw, out: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Arrays (..., M or 1, D) whose sum is the line; the first may be `out`, filled."""
        by_word, in_eta = self.sums
        for word, f in by_word:
            yield word.gradients(draw, f, out)
            out = None
        for pairs in in_eta:
            yield _summed_over_data(draw, pairs, out)
            out = None

    def mean(self, draw: Draw) -> np.ndarray:
        """The mean over the samples, (..., D), without a row a sample where a word can do so."""
        _check_lines([self], draw)
        if draw.weight is not None:
            return self(draw).mean(-2)
        by_word, in_eta = self.sums
        means = [word.mean(draw, f) for word, f in by_word]
        means += [_summed_over_data(draw, pairs).mean(-2) for pairs in in_eta]
        return sum(means, np.zeros((*draw.w.shape[:-1], draw.q.D)))

    @property
    def target(self) -> dict[str, float]:
        """What the line estimates, as {term: coefficient}; empty for a control variate."""
        total: dict[str, float] = {}
        size: dict[str, float] = {}
        for (word, atom), coef in self.parts.items():
            name = atom.target if atom.conservative else f"{word}({atom.target})"
            total[name] = total.get(name, 0) + coef
            size[name] = size.get(name, 0) + abs(coef)
        total.pop("one", None)  # the gradient of E_q[1] is zero
        return {name: c for name, c in total.items() if abs(c) > ROUNDING * size[name]}

    @property
    def is_control_variate(self) -> bool:
        return not self.target

    @staticmethod
    def part_name(part: Any) -> str:
        word, atom = part
        return f"{word}({atom.name})"


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


# Words ----------------------------------------------------------------------------------------


class Route(NamedTuple):
    """How a word looks at f: f(point) score + pull(grad f(point)).

    Each is a function, or the name of a method that a family may have. What a family does not say
    is left out; where nothing is left, it does not have the word.
    """

    at: Any  # (draw) -> the points, (..., M, d)
    score: Any = None  # (draw) -> what the value of f is multiplied by, (..., M, D)
    pull: Any = None  # (draw, u, out) -> slopes u (..., M, d) as gradients (..., M, D)


WHY = {  # a family that lacks what a word needs does not have the word
    "gaussian": "it rests on a property of the Gaussian",
    "fixed_base": "no such transformation of a fixed base sample",
    "fisher": "it needs the Fisher matrix of the family, and LOO does not",
}


@dataclass(frozen=True, eq=False)
class Method:
    """A word of the language: called with an integrand it makes a line.

    A word that samples says its route. One that has a formula says it in `by_hand`, and for an f of
    eta in `in_eta`. `needs` is what a family must have for it.
    """

    name: str
    doc: str
    route: Route | None = None  # of an f of z
    behind: Mapping[str, Route] = field(default_factory=dict)  # of one of the zeta behind z
    rows: Callable[[Draw, np.ndarray, np.ndarray], np.ndarray] | None = None  # if not f * score
    by_hand: Any = None  # (draw, atom) -> the gradient, (..., M or 1, D)
    in_eta: Any = None  # (draw, atom) -> psi' and psi'' for [sum psi' x, sum psi'' x x^T L]
    refuses: Callable[[Atom], str | None] = lambda atom: None  # a sentence: the atom lacks it
    needs: str = ""  # an attribute of a family that must be true, such as "gaussian" or "fisher"
    why: str = ""  # a family lacks this word, if not as in WHY
    samples: bool = True  # does it look at the sample of q?
    tried: set = field(default_factory=set, init=False)  # families with which pull.mean was tried

    def __post_init__(self):
        object.__setattr__(self, "__doc__", self.doc)
        object.__setattr__(self, "__name__", self.name)

    def __repr__(self):
        return self.name

    def __call__(self, f: Integrand) -> Estimator:
        for atom in integrand(f, self.name).parts:
            complaint = self.complaint(atom)
            if complaint:
                raise Illegal(complaint)
        return Estimator({(self, atom): coef for atom, coef in f.parts.items()})

    @cached_property
    def pull(self) -> Any:
        """A pull of its own, which may look at all samples together; None if it has none."""
        return self.route.pull if self.route and callable(self.route.pull) else None

    def goes(self, q: Family, space: str = "z") -> Route | None:
        """The route that it takes in this family, or None."""
        kind: Any = type(q)
        return _route(self, kind, space)

    def fits(self, q: Family, space: str = "z") -> bool:
        """Has the family what this word needs?"""
        if space == "z" and self.needs and not getattr(q, self.needs):
            return False
        return self.goes(q, space) is not None or (space == "z" and self.route is None)

    def complaint(self, atom: Atom) -> str | None:
        """Why this word may not be written for the atom, or None."""
        q = atom.q
        if q is not None:  # None: `one` belongs to every family
            if not self.fits(q, atom.space):
                legal = [word.name for word in (SF, RP1, RP2, GR, CF) if word.fits(q, atom.space)]
                why = self.why or WHY.get(self.needs, WHY["fixed_base"])
                return (
                    f"{self.name}({atom.name}) is not possible for {q!r}: {why}. "
                    f"Write {' or '.join(legal)} instead"
                )
            route = self.goes(q, atom.space)
            if route and route.score and atom.value is None:
                return f"{self.name} needs the value of f; '{atom.name}' is a slope: try RP1"
        return self.refuses(atom)

    # Numbers

    def gradients(self, draw: Draw, f: Integrand, out: np.ndarray | None = None) -> np.ndarray:
        """The rows of this word for an f of one space, (..., M or 1, D).

        They may be written into `out` (..., M, D) if it is given; what is returned counts.
        """
        if self.by_hand:
            return f.total(lambda atom: self.known(draw, atom))
        route: Any = self.goes(draw.q, next(iter(f.parts)).space)
        rows: Any = None
        if route.pull:
            pull = self.pull or getattr(draw.q, route.pull)
            rows = pull(draw, f.slope(draw, route.at), out)
        if route.score:
            value, score = f.value(draw, route.at), draw.of(route.score)  # (..., M), (..., M, D)
            if self.rows:
                return self.rows(draw, value, score)
            scored = np.multiply(value[..., None], score, out=None if route.pull else out)
            rows = np.add(rows, scored, out=out) if route.pull else scored
        return rows

    def mean(self, draw: Draw, f: Integrand) -> np.ndarray:
        """The mean of the rows, (..., D), as the pull says it; a reader's is tried with each q."""
        if not hasattr(self.pull, "mean"):
            return self.gradients(draw, f).mean(-2)
        u = f.slope(draw, "z1")
        said = self.pull.mean(draw, u)
        if draw.q.key not in self.tried and not self.pull.__module__.startswith(__package__):
            says = f"{self.name}'s pull.mean for {draw.q!r} is"
            cure = "it must be the mean of the rows; mend it, or leave it out"
            checks.means(says, said, self.pull(draw, u).mean(-2), cure)
            self.tried.add(draw.q.key)
        return said

    @kept
    def known(self, draw: Draw, atom: Atom) -> np.ndarray:
        """The gradient by hand, (..., M or 1, D)."""
        return self.by_hand(draw, atom)

    @kept
    def slopes(self, draw: Draw, atom: Atom) -> Sequence[np.ndarray]:
        """What stands for psi' and psi''."""
        return self.in_eta(draw, atom)


@cache
def _route(word, kind, space):
    """The word's route for this kind of family, with what the family says of it."""
    route = word.route if space == "z" else word.behind.get(space)
    if route is None:
        return None
    has = lambda part: part if callable(part) or getattr(kind, part or "", None) else None
    route = Route(route.at, has(route.score), has(route.pull))
    return route if route.score or route.pull else None


def _summed_over_data(draw, pairs, out=None):
    """[sum psi' x, sum psi'' x x^T L] for (word, atom) pairs on the same data, (..., M, D)."""
    cases = next(iter(pairs.parts))[1].cases(draw)
    d1, d2 = (pairs.total(lambda pair: pair[0].slopes(draw, pair[1])[k]) for k in (0, 1))
    return draw.q.chain(draw, cases.back(d1), cases.hess_L(draw, d2), out)


def _no_closed_form(atom):
    if not atom.closed_form:
        hint = f": try {atom.advice}" if atom.advice else ""
        return f"CF needs a closed form of E_q[f]; '{atom.name}' of {atom.model!r} has none{hint}"
    if atom.quadratic and atom.q is not None and not atom.q.quadratics:
        return (
            f"CF needs a closed form of E_q[f]; {atom.q!r} has none for the quadratic "
            f"'{atom.name}': its coordinates depend on each other, or it does not say its moments. "
            f"Try SF({atom.name})"
        )


def _no_curvature(atom):
    if atom.hess_L is None and not isinstance(atom, OfEta):
        return f"PR needs the curvature of f in z; '{atom.name}' does not say it: try RP1"


def _not_of_eta(word):
    def refuses(atom):
        if not isinstance(atom, OfEta):
            whose = f" of {atom.model!r}" if atom.model is not None else ""
            instead = "RP1" if _no_curvature(atom) else "PR or RP1"
            return (
                f"{word} needs an f that has of z only eta = x.z, as the data term of a "
                f"generalised linear model; '{atom.name}'{whose} is no such f: try {instead}"
            )

    return refuses


ZETA = "zeta", "zeta, fresh"  # spaces: where GR looks, it is drawn anew
SF = Method(
    "SF",
    "f(Z) grad_w log q_w(Z), Z ~ q_w: score function, (..., M, D).",
    Route("z1", score="score"),
    dict.fromkeys(ZETA, Route("zeta", score="zeta_score")),
)
RP1 = Method(
    "RP1",
    "grad_w f(mu + L eps), eps ~ N(0, I): reparameterised by the Cholesky factor, (..., M, D).",
    Route("z1", pull="pull1"),
    dict.fromkeys(ZETA, Route("zeta", pull="pull_zeta")),
    needs="fixed_base",
)
RP2 = Method(
    "RP2",
    "grad_w f(mu + (L L^T)^(1/2) eps): reparameterised by the symmetric root, (..., M, D).",
    Route("z2", pull="pull2"),
)
GR = Method(
    "GR",
    "f(Z) grad_w log qbar_w(eps) + grad_w f(T_w(eps)), Z = T_w(eps): generalised, (..., M, D).",
    Route("z1", score="base_score", pull="pull1"),
    {
        "zeta": Route("zeta", score="score", pull="pull_coupled"),
        "zeta, fresh": Route("zeta_fresh", score="score", pull="pull_fresh"),
    },
)
RB = Method(
    "RB",
    """E[RP1 | eta]: RP1 averaged over the part of eps that f does not see, (..., M, D).

    Of several data points each is averaged given its own eta: the sum is no conditional mean, and
    may have more noise than RP1.
    """,
    in_eta=lambda draw, atom: atom.average(draw),
    refuses=_not_of_eta("RB"),
    needs="gaussian",
)
PR = Method(
    "PR",
    "[grad f(Z), lower(grad^2 f(Z) L)]: Bonnet's and Price's theorems at a sample, (..., M, D).",
    by_hand=lambda draw, atom: atom.price(draw, "z1"),
    in_eta=lambda draw, atom: atom.derivatives(draw, "z1", 2)[:2],
    refuses=_no_curvature,
    needs="gaussian",
)
QD = Method(
    "QD",
    "N [E phi'(eta) x, lower(E phi''(eta) x x^T L)], the means by quadrature in eta, (..., M, D).",
    in_eta=lambda draw, atom: atom.integrate(draw),
    refuses=_not_of_eta("QD"),
    needs="gaussian",
    samples=False,
)
CF = Method(
    "CF",
    "grad_w E_q[f(Z)] in closed form, (..., M, D); with subsampling, on the drawn data point.",
    by_hand=lambda draw, atom: atom.closed(draw),
    in_eta=lambda draw, atom: atom.integrate(draw),
    refuses=_no_closed_form,
    why="it needs a closed form of E_q[f]",
    samples=False,
)


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
    for place, line in enumerate(lines):
        G = out[..., place, :, :]
        if not line.parts:
            G[...] = 0.0
        for k, rows in enumerate(line.rows(draw, G)):
            if k:
                G += rows
            elif rows is not G:
                G[...] = rows
    if draw.weight is not None:
        out *= draw.weight[..., None, :, None]
    if check:
        flat = out.ravel()
        if not isfinite(flat.dot(flat)) and not np.isfinite(out).all():  # the first is quick
            _name_the_culprit(lines, draw)
    return out


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
            for word, _ in line.parts:
                if not word.fits(draw.q):
                    raise ValueError(f"{line!r}: {word} is not possible for {draw.q!r}: try SF")


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
