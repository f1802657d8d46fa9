"""Candidates: which base gradients and variates are sensible for a model and a family."""

from typing import Any

from ..families.base import Family
from ..models.own import Model
from ..recipe.approximations import bound, taylor_z
from ..recipe.atoms import terms
from ..recipe.ensemble import AQ, LB
from ..recipe.estimators import Estimator, check_gradient, check_variate
from ..recipe.integrands import Illegal, Integrand
from ..recipe.words import CF, GR, LOO, PR, QD, RB, RP1, SF, Method
from .zoo import published, written

DENSE = 200  # dimensions up to which a Hessian of an own model, d gradients, is not too dear
FEW = 4  # samples below which a regression on the others has too little to go by
Table = dict[str, tuple[Estimator, dict[str, Estimator]]]  # {base: (h, {variate: line})}


def candidates(model: Model, q: Family, subsample: bool = True, M: int = 10) -> Table:
    """{base: (h, {variate: line})}, what is legal and sensible for the model and the family.

    "RP1", "RB", "PR", "QD" estimate the data term so, with prior and entropy in closed form where
    there is one. Beside them stand variates that share their noise: expansion ("c7") and bound
    against their closed forms, and the expansion at a snapshot against that over all data, with
    ("joint") or without ("snapshot") the noise of q. Their best weights are about 1, 1, -1 and -1.

    "RP1 of all three" samples the entropy too, so that noise vanishes where q is the posterior.
    With all data in every step, so do PR and AQ, the regression on the other samples. Where a
    Hessian is too dear, for an own model of more than 200 unknowns, there are no PR or expansions.
    """
    data, prior, variational = terms(model, q)
    closed, found = written(CF, prior), {}
    curved = q.dim <= DENSE or model.likelihood is not None or not q.gaussian
    words = (RP1, RB, PR, QD) if q.gaussian else (RP1, GR, SF)
    for word in words if curved else (RP1,):
        h = written(lambda: word(data) + (closed or word(prior)) - CF(variational))
        if h is None:
            continue
        lines = {} if q.gaussian else published(model, q)
        if q.gaussian and curved:
            lines = _expansions(word, data, data if closed else data + prior, subsample)
        found[word.name] = h, {name: c for name, c in lines.items() if c and c.parts}
    f, three = data + prior - variational, [whole_gradient(model, q)]
    if q.gaussian and not subsample:
        three += [PR(f)] * curved + [AQ(f)] * (M >= FEW)
    for h in three:
        word, _ = next(iter(h.parts))
        found[f"{word.name} of all three"] = h, {}
    return found


def whole_gradient(model: Model, q: Family) -> Estimator:
    """One estimator of all three terms, so that its noise vanishes where q is the posterior."""
    data, prior, variational = terms(model, q)
    slopes = any(route.pull for route in q.routes["z"].values())  # without them GR is SF
    for word in (RP1, GR, LB, LOO, SF) if slopes else (LB, LOO, SF):
        h = written(word, data + prior - variational)
        if h is not None:
            return h
    raise Illegal(f"no estimator of this package is legal for {q!r}")


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


def checked(table: Table) -> Table:
    """The table, or an error that says what is wrong with it."""
    right = 'write among={"mine": (h, {"c7": c7})}'
    if not (isinstance(table, dict) and table):
        raise TypeError(f"{table!r} is no table of bases and their variates: {right}")
    for name, pair in table.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], dict)):
            raise TypeError(f"{name!r}: {pair!r} is no pair of h and variates by name: {right}")
        check_gradient(pair[0])
        for c in pair[1].values():
            check_variate(c)
    return table
