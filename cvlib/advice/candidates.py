"""Candidates: which base gradients and variates are sensible for a model and a family."""

from typing import Any

from ..families.base import Family
from ..models.own import Model
from ..recipe.approximations import bound, taylor_z
from ..recipe.atoms import one, terms
from ..recipe.estimators import Estimator, check_gradient, check_variate
from ..recipe.integrands import Integrand
from ..recipe.words import CF, GR, PR, QD, RB, RP1, SF, Method
from . import zoo
from .zoo import written

DENSE = 200  # dimensions up to which a Hessian of an own model, d gradients, is not too dear
Table = dict[str, tuple[Estimator, dict[str, Estimator]]]  # {base: (h, {variate: line})}


def candidates(
    model: Model, q: Family, subsample: bool = True, *, landing: bool = False
) -> dict[str, tuple[Estimator, dict[str, Estimator]]]:
    """{base: (h, {variate: line})}, what is legal and sensible for the model and the family.

    Bases are words for the data term; prior and entropy in closed form where there is one. A base
    goes with the variates that share its noise: expansion ("c7") and bound against their closed
    forms, and the expansion at a snapshot against that over all data, with ("joint") or without
    ("snapshot") the noise of q. Their best weights are about 1, 1, -1 and -1. With landing=True
    also the one that sticks the landing (Roeder et al. 2017), or the score where there is no slope.

    A Hessian of an own model costs d gradients. In more than 200 dimensions that is too dear: then
    the base is RP1, without expansions.
    """
    data, prior, variational = terms(model, q)
    closed, found = written(CF, prior), {}
    curved = q.dim <= DENSE or model.likelihood is not None or not q.gaussian
    words = (RP1, RB, PR, QD) if q.gaussian else (RP1, GR, SF)
    for word in words if curved else (RP1,):
        h = written(lambda: word(data) + (closed or word(prior)) - CF(variational))
        if h is None:
            continue
        lines = {} if q.gaussian else zoo.published(model, q)
        if q.gaussian and curved:
            lines = _expansions(word, data, data if closed else data + prior, subsample)
        if landing and word in (RP1, GR, SF):
            lines["landing"] = _landing(word, variational)
        found[word.name] = h, {name: c for name, c in lines.items() if c and c.parts}
    return found


def _expansions(word: Method, data: Integrand, f: Integrand, subsample: bool) -> dict[str, Any]:
    """The variates of a base under a Gaussian q, None where there is none; f is what it samples."""
    far = taylor_z(data, at="snapshot")
    lines = {}
    if word.samples:  # of a parabola a word that does not is CF
        lines = {
            "c7": written(lambda: CF(taylor_z(f)) - word(taylor_z(f))),
            "bound": written(lambda: CF(bound(f)) - word(bound(f))),
            "joint": written(lambda: word(far) - CF(far.over_all_data())),
        }
    if subsample:
        lines["snapshot"] = CF(far) - CF(far.over_all_data())
    return lines


def _landing(word, variational):
    return SF(one) - CF(one) if word is SF else CF(variational) - word(variational)


# Tables that a reader gives -----------------------------------------------------------------------


def checked(table: dict, model: Model, q: Family) -> Table:
    """The table with a name for every variate, or an error that says what is wrong with it."""
    example = 'among={"mine": (h, [c7])}'
    if not isinstance(table, dict):
        raise TypeError(f"{table!r} is no table of bases and their variates: write {example}")
    if not table:
        raise ValueError("nothing to choose among: give {name: (h, variates)}, or leave it out")
    for name, pair in table.items():
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise TypeError(f"{name!r}: {pair!r} is no pair of h and variates: write {example}")
    table = {name: (h, named(cvs, model, q)) for name, (h, cvs) in table.items()}
    for h, cvs in table.values():
        check_gradient(h)
        for c in cvs.values():
            check_variate(c)
    return table


def named(lines: dict | list | tuple, model: Model, q: Family) -> dict[str, Estimator]:
    """{name: line}. Lines of a list get the names that the zoo has, or what they print as."""
    if isinstance(lines, Estimator):
        raise TypeError(f"lines come in a list: write [{lines!r}], or {{name: line}}")
    known = {} if isinstance(lines, dict) else zoo.published(model, q)
    names = {frozenset(c.parts.items()): name for name, c in known.items()}
    if not isinstance(lines, dict):
        lines = {names.get(frozenset(c.parts.items()), repr(c)): c for c in map(_line, lines)}
    return {name: _line(c) for name, c in lines.items()}


def _line(c):
    if not isinstance(c, Estimator):
        check_variate(c)  # says what is right
    return c
