"""The zoo: control variates with a name, each one line of the recipe.

`paper` has the variates of Geffner and Domke (2018), `published` all that have a name.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from .families.base import Family
from .models.density import Model
from .recipe.approximations import bound, taylor_x, taylor_x_slope, taylor_z
from .recipe.atoms import relax, terms
from .recipe.estimators import CF, GR, RP1, RP2, SF, Estimator
from .recipe.integrands import Illegal, Integrand, one
from .recipe.regression import LB, LOO

T = TypeVar("T")


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


def whole_gradient(model: Model, q: Family) -> Estimator:
    """One estimator of all three terms, so that its noise vanishes where q is the posterior."""
    data, prior, variational = terms(model, q)
    for word in (LB, LOO, SF) if q.pull1 is None else (RP1, GR, LB, LOO, SF):  # or GR is SF
        h = written(word, data + prior - variational)
        if h is not None:
            return h
    raise Illegal(f"no estimator of this package is legal for {q!r}")
