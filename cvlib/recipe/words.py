"""The words: estimators of grad_w E_q[f], each called with an integrand to make a line.

A word is refused where it is written if the term or the family does not have it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..draws import Draw, kept
from ..families.base import Family
from .estimators import Estimator
from .integrands import Atom, Illegal, Integrand, integrand


@dataclass(frozen=True, eq=False)
class Method:
    """A word of the language: called with an integrand it makes a line.

    A word that samples goes a route of the family. One that has a formula says it in `by_hand`, for
    an f of eta in `in_eta`, or in `pull`, and says in `needs` what a family must have.
    """

    name: str
    doc: str
    by_hand: Any = None  # (draw, atom) -> the gradient, (..., M or 1, D)
    in_eta: Any = None  # (draw, atom) -> psi' and psi'' for [sum psi' x, sum psi'' x x^T L]
    refuses: Callable[[Atom], str | None] = lambda atom: None  # a sentence: the atom lacks it
    why: str = "no such transformation of a fixed base sample"  # a family lacks this word
    samples: bool = True  # does it look at the sample of q?
    route: str = ""  # the name under which a family knows this word, if it is not its own
    rows: Callable[[Draw, np.ndarray, np.ndarray], np.ndarray] | None = None  # if not f * score
    pull: Any = None  # (draw, u, out) -> rows from slopes u at the sample, if not the family's
    needs: str = ""  # what of a family a formula needs, such as "gaussian" or "fisher"

    def __post_init__(self):
        object.__setattr__(self, "__doc__", self.doc)
        object.__setattr__(self, "__name__", self.name)
        object.__setattr__(self, "route", self.route or self.name)

    def __repr__(self):
        return self.name

    def __call__(self, f: Integrand) -> Estimator:
        for atom in integrand(f, self.name).parts:
            complaint = self.complaint(atom)
            if complaint:
                raise Illegal(complaint)
        return Estimator({(self, atom): coef for atom, coef in f.parts.items()})

    @property
    def by_formula(self) -> bool:
        """Has it a formula of its own, and so no route?"""
        return any((self.by_hand, self.in_eta, self.pull))

    def fits(self, q: Family, space: str = "z") -> bool:
        """Has the family what this word needs?"""
        if self.by_formula:
            return space == "z" and (not self.needs or bool(getattr(q, self.needs)))
        return self.route in q.routes[space]

    def complaint(self, atom: Atom) -> str | None:
        """Why this word may not be written for the atom, or None."""
        q = atom.q
        if q is not None:  # None: `one` belongs to every family
            if not self.fits(q, atom.space):
                legal = q.methods if atom.space == "z" else tuple(q.routes[atom.space])
                return (
                    f"{self.name}({atom.name}) is not possible for {q!r}: {self.why}. "
                    f"Write {' or '.join(legal)} instead"
                )
            route = q.routes[atom.space].get(self.route)
            if route and route.score and atom.value is None:
                return f"{self.name} needs the value of f; '{atom.name}' is a slope: try RP1"
        return self.refuses(atom)

    # Numbers

    def gradients(self, draw: Draw, f: Integrand, out: np.ndarray | None = None) -> np.ndarray:
        """The rows of this word for an f of one space, (..., M or 1, D).

        They may be written into `out` (..., M, D) if it is given; what is returned counts.
        """
        if self.pull:
            return self.pull(draw, f.slope(draw, "z1"), out)
        if self.by_formula:
            return f.total(lambda atom: self.known(draw, atom))
        route = draw.q.routes[next(iter(f.parts)).space][self.route]
        rows: Any = None
        if route.pull:
            rows = getattr(draw.q, route.pull)(draw, f.slope(draw, route.at), out)
        if route.score:
            value, score = f.value(draw, route.at), draw.of(route.score)  # (..., M), (..., M, D)
            if self.rows:
                return self.rows(draw, value, score)
            scored = np.multiply(value[..., None], score, out=None if route.pull else out)
            rows = np.add(rows, scored, out=out) if route.pull else scored
        return rows

    def mean(self, draw: Draw, f: Integrand) -> np.ndarray:
        """The mean of the rows, (..., D); some pulls know it without their rows."""
        if hasattr(self.pull, "mean"):
            return self.pull.mean(draw, f.slope(draw, "z1"))
        return self.gradients(draw, f).mean(-2)

    @kept
    def known(self, draw: Draw, atom: Atom) -> np.ndarray:
        """The gradient by hand, (..., M or 1, D)."""
        return self.by_hand(draw, atom)

    @kept
    def slopes(self, draw: Draw, atom: Atom) -> tuple:
        """What stands for psi' and psi''."""
        return self.in_eta(draw, atom)


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
    if atom.bend is None:
        return f"PR needs the curvature of f in z; '{atom.name}' does not say it: try RP1"


def _not_of_eta(word):
    def refuses(atom):
        if not atom.of_eta:
            whose = f" of {atom.model!r}" if atom.model is not None else ""
            instead = "RP1" if _no_curvature(atom) else "PR or RP1"
            return (
                f"{word} needs an f that has of z only eta = x.z, as the data term of a "
                f"generalised linear model; '{atom.name}'{whose} is no such f: try {instead}"
            )

    return refuses


GAUSSIAN = "it rests on a property of the Gaussian"
SF = Method("SF", "f(Z) grad_w log q_w(Z), Z ~ q_w: score function, (..., M, D).")
LOO = Method(
    "LOO",
    """(f_m - mean of f over the other samples) grad_w log q_w(Z_m): leave-one-out, (..., M, D).

    In pairs the partner is left out too. For data + prior - variational: VarGrad (Richter et al.
    2020).
    """,
    route="SF",
    rows=lambda draw, f, score: (f[..., None] - draw.others(f[..., None])) * score,
)
DisARM = Method(
    "DisARM",
    """(f(Z) - f(Z~)) / 2 (Z - Z~) sigma(|w|) with Z~ the opposite of a Bernoulli Z, (..., M, D).

    Dong, Mnih and Tucker 2020; U2G of Yin et al. 2020. Partners have the same gradient.
    """,
    why="it is for the two values of a Bernoulli variable",
    rows=lambda draw, f, score: (f - np.roll(f, draw.M // 2, -1))[..., None] / 2 * score,
)
RP1 = Method(
    "RP1",
    "grad_w f(mu + L eps), eps ~ N(0, I): reparameterised by the Cholesky factor, (..., M, D).",
)
RP2 = Method(
    "RP2",
    "grad_w f(mu + (L L^T)^(1/2) eps): reparameterised by the symmetric root, (..., M, D).",
)
GR = Method(
    "GR",
    "f(Z) grad_w log qbar_w(eps) + grad_w f(T_w(eps)), Z = T_w(eps): generalised, (..., M, D).",
)
RB = Method(
    "RB",
    """E[RP1 | eta]: RP1 averaged over the part of eps that f does not see, (..., M, D).

    Of several data points each is averaged given its own eta: the sum is no conditional mean, and
    may have more noise than RP1.
    """,
    in_eta=lambda draw, atom: atom.averaged(draw),
    refuses=_not_of_eta("RB"),
    needs="gaussian",
    why=GAUSSIAN,
)
PR = Method(
    "PR",
    "[grad f(Z), lower(grad^2 f(Z) L)]: Bonnet's and Price's theorems at a sample, (..., M, D).",
    by_hand=lambda draw, atom: atom.price(draw, "z1"),
    in_eta=lambda draw, atom: atom.derivatives(draw, "z1", 2)[:2],
    refuses=_no_curvature,
    needs="gaussian",
    why=GAUSSIAN,
)
QD = Method(
    "QD",
    "N [E phi'(eta) x, lower(E phi''(eta) x x^T L)], the means by quadrature in eta, (..., M, D).",
    in_eta=lambda draw, atom: atom.integrated(draw),
    refuses=_not_of_eta("QD"),
    needs="gaussian",
    why=GAUSSIAN,
    samples=False,
)
CF = Method(
    "CF",
    "grad_w E_q[f(Z)] in closed form, (..., M, D); with subsampling, on the drawn data point.",
    by_hand=lambda draw, atom: atom.closed(draw),
    in_eta=lambda draw, atom: atom.integrated(draw),
    refuses=_no_closed_form,
    why="it needs a closed form of E_q[f]",
    samples=False,
)
