"""Every legal line: the catalogue of chapter 7, of which its periodic table shows a part."""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from cvlib.draws import draw
from cvlib.families.base import Family
from cvlib.models.density import Model
from cvlib.recipe.approximations import TaylorX, bound, taylor_x, taylor_x_slope, taylor_z
from cvlib.recipe.atoms import relax, terms
from cvlib.recipe.estimators import CF, GR, PR, QD, RB, RP1, RP2, SF, Estimator, evaluate
from cvlib.recipe.integrands import Atom, one
from cvlib.zoo import PUBLISHED, published, written

# CF before QD: of a quadratic both are the same, and the first of two copies stays
METHODS = {method.name: method for method in (SF, RP1, RP2, GR, RB, PR, CF, QD)}
APPROXIMATIONS = {
    "": lambda f: f, "taylor_z": taylor_z, "bound": bound, "taylor_x": taylor_x,
    "taylor_x_slope": taylor_x_slope, "relax": relax,
}  # fmt: skip
ALL = " all"  # how a pair names an estimator on the whole data set, as in ("RP1", "RP1 all")


@dataclass(frozen=True)
class Variate:
    """One line of the catalogue. `line` is pair[0] minus pair[1] of the approximated term.

    `name` and `published` are empty where we know of no use; `same_as` is the line of which this
    one is a multiple, sample by sample, though it is written differently.
    """

    line: Estimator
    term: str  # "data + prior"
    approximation: str  # "taylor_z", or "" for none
    pair: tuple[str, str]  # ("RP1", "CF"); "RP1 all" is RP1 on the whole data set
    name: str = ""
    published: str = ""
    same_as: str = ""

    def __repr__(self):
        known = f"  [{self.name}: {self.published}]" if self.name else ""
        return f"{self.line!r}{known}"

    @property
    def noises(self) -> tuple[str, ...]:
        """The shares of the noise that the line can change: of "data", "q", "both" (chapter 5).

        Given the data point, all methods have the same mean; given eps, drawn and whole data have.
        A share is there if the coefficients do not cancel then.
        """
        given_i: dict[Atom, float] = {}
        given_eps: dict[tuple, float] = {}
        both = False
        for (method, atom), coef in self.line.parts.items():
            whole = atom.over_all_data()
            given_i[atom] = given_i.get(atom, 0) + coef
            given_eps[method, whole] = given_eps.get((method, whole), 0) + coef
            both |= method.samples and atom != whole
        touched = {"data": any(given_i.values()), "q": any(given_eps.values()), "both": both}
        return tuple(share for share, touches in touched.items() if touches)

    @property
    def passes_over_data(self) -> bool:
        """Does one evaluation cost a pass over all data? Expansions in x keep moments instead."""
        moments = any(isinstance(atom, TaylorX) for _, atom in self.line.parts)
        return not moments and any(ALL in way for way in self.pair)


def legal(model: Model, q: Family, subsample: bool = True) -> list[Variate]:
    """Every control variate of the recipe that may be written, as a list of `Variate`.

    All sums of data, prior and -variational (and `one`), all approximations that need nothing more
    (a relaxation at its usual temperature, no surrogate), all pairs of estimators; with
    subsample=True on the drawn data and on all data. Legality is asked, not listed: a line is legal
    if it can be written. Of lines with the same parts up to sign the first stays. Then one generic
    draw decides: a line that is zero there goes, and so does a multiple of an earlier line, unless
    it has a name: then `same_as` says whose multiple it is.
    """
    known = {_unsigned(line): name for name, line in published(model, q).items()}
    found: dict[frozenset, Variate] = {}
    for term, f in _sums(*terms(model, q)).items():
        for approximation, approximate in APPROXIMATIONS.items():
            ways = _ways(written(approximate, f), q, subsample)
            for a, b in combinations(ways, 2):
                line = ways[a] - ways[b]
                if not line.is_control_variate:
                    continue  # two words for a slope that is no gradient
                name = known.get(_unsigned(line), "")
                who = PUBLISHED[name][0] if name else ""
                new = Variate(line, term, approximation, (a, b), name, who)
                if line.parts:
                    found.setdefault(_unsigned(line), new)
    return _without_copies(list(found.values()), model, q, subsample)


def _sums(data, prior, variational):
    """Every sum of the ELBO's parts, by name, and `one`."""
    sums = [data, prior, variational, data + prior, data - variational, prior - variational]
    return {repr(f): f for f in [*sums, data + prior - variational, one]}


def _ways(f, q, subsample):
    """{name: line} for every way to estimate f; none where f could not be written."""
    if f is None:
        return {}
    on = {"": f}
    if subsample and f.over_all_data().parts != f.parts:
        on[ALL] = f.over_all_data()
    ways = {
        method + data: written(estimate, g)
        for data, g in on.items()
        for method, estimate in METHODS.items()
        # `one` belongs to no family and would not complain
        if estimate.fits(q) or all(atom.space != "z" for atom in g.parts)
    }
    return {way: line for way, line in ways.items() if line is not None}


def _unsigned(line):
    """A key that a line shares with its negative, and with nothing else."""
    return frozenset(frozenset((sign * line).parts.items()) for sign in (1, -1))


def _without_copies(variates, model, q, subsample, M=6):
    """The variates that differ from zero and from each other at a generic w."""
    rng = np.random.default_rng(0)
    w = q.start() + 0.1 * rng.uniform(-1, 1, q.D)  # at q.start() more lines coincide
    parts, A = spanned([c.line for c in variates])
    T = evaluate(parts, draw(model, q, w, M=M, rng=rng, subsample=subsample))
    # lengths and angles are all that counts: a rotation makes the vectors short, (parts, parts)
    T = np.transpose(np.linalg.qr(T.reshape(len(parts), -1).T, mode="r"))
    values = A @ T
    scale = np.abs(A) @ np.linalg.norm(T, axis=1)
    size = np.linalg.norm(values, axis=1)
    kept: list[Variate] = []
    directions: list[np.ndarray] = []
    for c, value, zero in zip(variates, values, size <= 1e-9 * scale):
        if zero:
            continue
        direction = value / np.linalg.norm(value)
        close = [abs(direction @ other) > 1 - 1e-10 for other in directions]
        if any(close) and not c.name:
            continue
        same_as = repr(kept[close.index(True)].line) if any(close) else ""
        kept.append(replace(c, same_as=same_as))
        directions.append(direction)
    return kept


def spanned(lines: list[Estimator]) -> tuple[list[Estimator], np.ndarray]:
    """The single estimators that occur in `lines`, as n lines, and A (L, n) with lines = A parts.

    Estimators are linear, so what is measured for the parts is known for every line.
    """
    names = list(dict.fromkeys(part for line in lines for part in line.parts))
    A = np.array([[line.parts.get(part, 0.0) for part in names] for line in lines])
    return [Estimator({part: 1}) for part in names], A
