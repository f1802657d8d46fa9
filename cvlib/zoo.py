"""The zoo: control variates with a name, each one line of the recipe.

`paper` has the variates of Geffner and Domke (2018), `published` all that have a name, and
`candidates` the base gradients and variates that are sensible for a model and a family.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from .families.base import Family
from .models.density import Model
from .recipe import estimators
from .recipe.approximations import bound, relax, taylor_x, taylor_x_slope, taylor_z
from .recipe.atoms import one, terms
from .recipe.ensemble import AQ, LB
from .recipe.estimators import CF, GR, LOO, PR, QD, RB, RP1, RP2, SF, Estimator, Method
from .recipe.integrands import Illegal, Integrand

DENSE = 200  # dimensions up to which a Hessian of an own model, d gradients, is not too dear
FEW = 4  # samples below which a regression on the others has too little to go by
T = TypeVar("T")
Table = dict[str, tuple[Estimator, dict[str, Estimator]]]  # {base: (h, {variate: line})}


def _drawn_less_all(word, near):
    """The word on the drawn data point minus the word on all data."""
    return word(near) - word(near.over_all_data())


PUBLISHED = {  # name: who, and the line as a function of the three terms
    "score": ("Ranganath et al. 2014", lambda f, p, v: SF(one) - CF(one)),
    "c1": ("Roeder et al. 2017", lambda f, p, v: RP1(v) - CF(v)),
    "c1 by SF": ("Geffner and Domke 2018", lambda f, p, v: SF(v) - CF(v)),
    "c2": ("Geffner and Domke 2018", lambda f, p, v: RP1(p) - CF(p)),
    "c3": ("Geffner and Domke 2018", lambda f, p, v: RP1(p) - RP2(p)),
    "c4": ("Geffner and Domke 2018", lambda f, p, v: RP1(f) - RP2(f)),
    "Wang": ("Wang et al. 2013", lambda f, p, v: _drawn_less_all(RP1, taylor_x_slope(f))),
    "c5": (
        "Geffner and Domke 2018, after Wang et al. 2013",
        lambda f, p, v: _drawn_less_all(RP1, taylor_x(f)),
    ),
    "c6": ("Geffner and Domke 2018", lambda f, p, v: _drawn_less_all(RP2, taylor_x(f))),
    "c7": ("Geffner and Domke 2018", lambda f, p, v: CF(taylor_z(f)) - RP1(taylor_z(f))),
    "Miller": ("Miller et al. 2017", lambda f, p, v: CF(taylor_z(f + p)) - RP1(taylor_z(f + p))),
    "Paisley": ("Paisley et al. 2012", lambda f, p, v: CF(taylor_z(f + p)) - SF(taylor_z(f + p))),
    "Paisley, bound": ("Paisley et al. 2012", lambda f, p, v: CF(bound(f + p)) - SF(bound(f + p))),
    "REBAR": ("Tucker et al. 2017", lambda f, p, v: GR(relax(f + p)) - RP1(relax(f + p))),
    "joint": (  # there with the expansion at older weights, so that a step needs no pass over data
        "Wang, Geffner and Domke 2024",
        lambda f, p, v: RP1(taylor_z(f)) - CF(taylor_z(f).over_all_data()),
    ),
}


def published(model: Model, q: Family) -> dict[str, Estimator]:
    """The variates with a name that this model and family allow, {name: line}."""
    found = {name: written(write, *terms(model, q)) for name, (_, write) in PUBLISHED.items()}
    return {name: line for name, line in found.items() if line is not None}


def written(write: Callable[..., T], *args: Any) -> T | None:
    """write(*args), or None where it may not be written."""
    try:
        return write(*args)
    except Illegal:
        return None


def paper(
    model: Model, q: Family, in_x: Callable[[Integrand], Integrand] = taylor_x
) -> SimpleNamespace:
    """The base gradient h, the variates c1 to c7 and score, and the sets S4 to S7.

    For a generalised linear model: c5 and c6 expand in x, by `taylor_x` or `taylor_x_slope`.
    """
    if model.likelihood is None:
        raise ValueError(
            f"the paper's variates are for a generalised linear model, and {model!r} is none: "
            "zoo.published(model, q) has those that it allows"
        )
    data, prior, variational = f = terms(model, q)
    h = RP1(data) + RP1(prior) - CF(variational)
    c = {name: PUBLISHED[name][1](*f) for name in ("score", *(f"c{l}" for l in range(1, 8)))}
    near = in_x(data)
    c["c5"], c["c6"] = (_drawn_less_all(word, near) for word in (RP1, RP2))
    S7 = [c[name] for name in ("c2", "c1", "c3", "c4", "c6", "c5", "c7")]
    return SimpleNamespace(h=h, **c, S4=S7[:4], S5=S7[:5], S6=S7[:6], S7=S7)


# Sensible lines ----------------------------------------------------------------------------------


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
    routes = q.routes["z"]
    moves = routes.get("GR") != routes.get("RP1")  # the base, with w; else both are the same
    words = (RP1, RB, PR, QD) if q.gaussian else (RP1, GR, SF) if moves else (RP1, SF)
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
        estimators.check_gradient(pair[0])
        for c in pair[1].values():
            estimators.check_variate(c)
    return table
