"""Estimators of grad_w E_q[f], each a word: SF, RP1, RP2, GR by sampling; RB, PR, QD, CF with one
expectation after the other taken by hand. They add and subtract; a difference of two estimators of
the same thing is a control variate.

An estimator is a function from a draw to per-sample gradients, (..., M, D). A word is refused where
it is written if the term or the family does not have it; a sum of words is judged where it is used,
so that the order of writing does not matter.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .integrands import Illegal, integrand
from .linear import ROUNDING, Linear

ELBO = {"data": 1, "prior": 1, "variational": -1}  # what a base gradient estimates


# Words ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Method:
    """A word of the language: called with an integrand it makes a line.

    Without `by_hand` it goes the family's route of its name. With it, `by_hand(draw, atom)` gives
    the gradient, (..., M or 1, D), or, for an f of eta, what stands for psi' and psi'' in it; and
    `refuses(atom)` a sentence where an atom does not have it. `less(draw, f)` takes something off
    the values f (..., M) before they meet the score.
    """

    name: str
    doc: str
    by_hand: Callable | None = None
    refuses: Callable = lambda atom: None
    why: str = "no such transformation of a fixed base sample"  # a family lacks this word
    samples: bool = True  # does it look at the sample of q?
    route: str = ""  # the route it goes, if it is not that of its own name
    less: Callable | None = None

    def __post_init__(self):
        object.__setattr__(self, "__doc__", self.doc)
        object.__setattr__(self, "__name__", self.name)

    def __repr__(self):
        return self.name

    def __call__(self, f):
        for atom in integrand(f, self.name).parts:
            complaint = self.complaint(atom)
            if complaint:
                raise Illegal(complaint)
        return Estimator({(self, atom): coef for atom, coef in f.parts.items()})

    @property
    def way(self):
        """The name under which a family knows this word."""
        return self.route or self.name

    def complaint(self, atom):
        """Why this word may not be written for the atom, or None."""
        q = atom.q
        if q is not None:  # None: `one` belongs to every family
            legal = q.methods if atom.space == "z" else tuple(q.routes[atom.space])
            if self.way not in legal:
                return (
                    f"{self.name}({atom.name}) is not possible for {q!r}: {self.why}. "
                    f"Write {' or '.join(legal)} instead"
                )
            route = None if self.by_hand else q.routes[atom.space][self.way]
            if route and route.score and atom.value is None:
                return f"{self.name} needs the value of f; '{atom.name}' is a slope: try RP1"
        return self.refuses(atom)

    def steps(self, atom, q):
        """What `evaluate` does for one atom: ("pull", at, name), ("score", ...), by hand ("eta",)
        for the drawn data points together, or ("hand", word)."""
        if self.by_hand:
            return [("eta", None, None) if atom.of_eta and not atom.whole else ("hand", self, None)]
        route = q.routes[atom.space][self.way]
        pull = [("pull", route.at, route.pull)] if route.pull else []
        return pull + [("score", route.at, (route.score, self.less))] * bool(route.score)

    def derivatives(self, draw, atom):
        """What stands for psi' and psi'', computed once a draw."""
        return draw.once((atom.key, self, "derivatives"), self.by_hand, atom)

    def gradient(self, draw, atom):
        """By hand, (..., M or 1, D)."""
        if atom.of_eta:
            return atom.from_derivatives(draw, *self.derivatives(draw, atom))
        return self.by_hand(draw, atom)


def _no_closed_form(atom):
    if not atom.closed_form:
        hint = f": try {atom.advice}" if atom.advice else ""
        return f"CF needs a closed form of E_q[f]; '{atom.name}' of {atom.model!r} has none{hint}"
    if atom.quadratic and atom.q is not None and not atom.q.quadratics:
        return (
            f"CF needs a closed form of E_q[f]; {atom.q!r} has none for the quadratic "
            f"'{atom.name}', as its coordinates depend on each other: try SF({atom.name})"
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

    The others know nothing of sample m, so that their mean is a baseline without a bias. In pairs
    the partner is left out too. For data + prior - variational: VarGrad (Richter et al. 2020).
    """,
    route="SF",
    less=lambda draw, f: f - draw.others(f[..., None])[..., 0],
)
DisARM = Method(
    "DisARM",
    """(f(Z) - f(Z~)) / 2 (Z - Z~) sigma(|w|) with Z~ the opposite of a Bernoulli Z, (..., M, D).

    ARM, the antithetic estimator of Yin and Zhou 2019, with its uniform numbers averaged out given
    Z and Z~ (Dong, Mnih and Tucker 2020; U2G of Yin et al. 2020). Partners have the same gradient.
    """,
    why="it is for the two values of a Bernoulli variable",
    less=lambda draw, f: (f - np.roll(f, draw.M // 2, -1)) / 2,
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
    """f(Z) grad_w log qbar_w(eps) + grad_w f(T_w(eps)), Z = T_w(eps): generalised, (..., M, D).

    The score is that of the base density qbar_w. Where the base does not move this is RP1, where
    the transform T_w does nothing it is SF.
    """,
)
RB = Method(
    "RB",
    """E[RP1 | eta]: RP1 averaged over the part of eps that f does not see, (..., M, D).

    For an f of eta = x.z: N phi'(eta) [x, lower(x e^T)] with e = E[eps | eta] = L^T x (eta - m)/v.
    Rao-Blackwell; the local reparameterisation of Kingma, Salimans and Welling 2015. Of several
    data points each is averaged given its own eta: the sum is no conditional mean, and may have
    more noise than RP1.
    """,
    by_hand=lambda draw, atom: atom.averaged(draw),
    refuses=_not_of_eta("RB"),
    why=GAUSSIAN,
)
PR = Method(
    "PR",
    "[grad f(Z), lower(grad^2 f(Z) L)]: Bonnet's and Price's theorems at a sample, (..., M, D).",
    by_hand=lambda draw, atom: atom.price(draw, "z1"),
    refuses=_no_curvature,
    why=GAUSSIAN,
)
QD = Method(
    "QD",
    """N [E phi'(eta) x, lower(E phi''(eta) x x^T L)], the means by quadrature in eta, (..., M, D).

    No noise from q is left; with subsampling, that of the data is.
    """,
    by_hand=lambda draw, atom: atom.integrated(draw),
    refuses=_not_of_eta("QD"),
    why=GAUSSIAN,
    samples=False,
)
CF = Method(
    "CF",
    "grad_w E_q[f(Z)] in closed form, (..., M, D); with subsampling, on the drawn data point.",
    by_hand=lambda draw, atom: atom.closed(draw),
    refuses=_no_closed_form,
    why="it needs a closed form of E_q[f]",
    samples=False,
)


# Lines ----------------------------------------------------------------------------------------


class Estimator(Linear):
    """A linear combination of (word, atom) pairs."""

    def __init__(self, parts):
        super().__init__(parts)
        owners = {atom.owner for _, atom in self.parts if atom.owner}
        if len(owners) > 1:
            raise ValueError(
                f"{self!r} mixes terms of two models or families: make all from one terms()"
            )
        self.owner = next(iter(owners), None)
        self._program = None, []

    def __call__(self, draw):
        """Per-sample gradients, (..., M, D)."""
        return evaluate([self], draw)[..., 0, :, :]

    def program(self, q):
        """What `evaluate` does: [(kind, at or word, name, [(coefficient, atom), ...]), ...].

        Parts that take the same step are added first, for every step is linear. What has a row a
        sample comes first: the first of them fills its array instead of adding to it.
        """
        known, steps = self._program
        if known is not q:
            table = {}
            for (method, atom), coef in self.parts.items():
                for step in method.steps(atom, q):
                    part = (method, atom) if step[0] == "eta" else atom
                    table.setdefault(step, []).append((coef, part))
            order = ("pull", "eta", "hand", "score").index
            steps = sorted(((*s, pairs) for s, pairs in table.items()), key=lambda s: order(s[0]))
            self._program = q, steps
        return steps

    @property
    def target(self):
        """What the line estimates, as {term: coefficient}; empty for a control variate."""
        total, size = {}, {}
        for (method, atom), coef in self.parts.items():
            name = atom.target if atom.conservative else f"{method}({atom.target})"
            total[name] = total.get(name, 0) + coef
            size[name] = size.get(name, 0) + abs(coef)
        total.pop("one", None)  # the gradient of E_q[1] is zero
        return {name: c for name, c in total.items() if abs(c) > ROUNDING * size[name]}

    @property
    def is_control_variate(self):
        return not self.target

    @staticmethod
    def part_name(part):
        method, atom = part
        return f"{method}({atom.name})"


def check_variate(line):
    """A ValueError unless the line is a control variate, an estimate of zero."""
    if not _estimator(line).is_control_variate:
        raise ValueError(
            f"{line!r} is no control variate: it estimates {line.target}, not zero. A control "
            "variate is the difference of two estimators of the same term"
        )


def check_gradient(line):
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
def evaluate(lines, draw, out=None, check=True):
    """Every line's per-sample gradients, (..., number of lines, M, D), shared work done once.

    A gradient that is not finite is an error that names estimator and term, unless check=False.
    """
    _check_lines(lines, draw)
    q = draw.q
    shape = (*draw.w.shape[:-1], len(lines), draw.M, q.D)
    if out is None:
        out = np.empty(shape)
    elif out.shape != shape:
        raise ValueError(f"out must be {shape}, (runs, lines, M, D); got {out.shape}")
    for k, line in enumerate(lines):
        G, first = out[..., k, :, :], True
        for kind, at, name, pairs in line.program(q):
            if kind == "pull":
                slope = lambda atom: atom.slope(draw, at)
                getattr(q, name)(draw, _sum(pairs, slope), G, add=not first)
            elif kind == "eta":
                d1, d2 = (_sum(pairs, lambda p: p[0].derivatives(draw, p[1])[i]) for i in (0, 1))
                pairs[0][1][1].rows(draw).fill(draw, d1, d2, G, add=not first)
            elif kind == "hand":
                gradient = lambda atom: draw.once((atom.key, at), at.gradient, atom)
                if len(pairs) == 1:  # the usual case, without a copy
                    _add(G, pairs[0][0], gradient(pairs[0][1]), first)
                else:
                    _add(G, 1, _sum(pairs, gradient), first)
            else:
                value = lambda atom: draw.once((atom.key, at, "value"), atom.value, at)
                f, (score, less) = _sum(pairs, value), name
                _add(G, 1, (less(draw, f) if less else f)[..., None] * draw.of(score), first)
            first = False
        if first:
            G[...] = 0.0
    if check and not np.isfinite(out.sum()):
        _name_the_culprit(lines, draw)
    return out


def _add(G, coef, part, first):
    """G + coef part into G, or coef part alone; without products by 1."""
    if first:
        np.multiply(coef, part, out=G)
    elif coef == -1:
        G -= part
    else:
        G += part if coef == 1 else coef * part


def _sum(pairs, array):
    """sum of coef * array(atom), without products by 1."""
    total = None
    for coef, atom in pairs:
        part = array(atom)
        if total is None:
            total = part if coef == 1 else coef * part
        elif coef == -1:
            total = total - part
        else:
            total = total + (part if coef == 1 else coef * part)
    return total


def _check_lines(lines, draw):
    if isinstance(lines, Estimator):
        raise TypeError(f"evaluate takes a list of lines: write evaluate([{lines!r}], draw)")
    for line in lines:
        owner = _estimator(line).owner
        if owner and owner != (draw.model, draw.q):
            raise ValueError(f"{line!r} and the draw belong to different models or families")
        if not owner:  # made of `one` alone, which could not know the family
            for method, _ in line.parts:
                if method.way not in draw.q.methods:
                    raise ValueError(f"{line!r}: {method} is not possible for {draw.q!r}")


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
