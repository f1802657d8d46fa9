"""The named control variates of Geffner and Domke (2018), each one line of the recipe."""

from types import SimpleNamespace

from .approximations import taylor_x, taylor_z
from .estimators import CF, RP1, RP2, SF
from .integrands import one, terms


def paper(model, q):
    """The base gradient h, the variates c1 to c7 and score, and the sets S4 to S7.

    For a generalised linear model; `model` decides which lines are legal.
    """
    data, prior, variational = terms(model, q)

    h = RP1(data) + RP1(prior) - CF(variational)
    c1 = RP1(variational) - CF(variational)  # Roeder et al. 2017
    c2 = RP1(prior) - CF(prior)
    c3 = RP1(prior) - RP2(prior)
    c4 = RP1(data) - RP2(data)
    c5 = RP1(taylor_x(data)) - RP1(taylor_x(data).over_all_data())  # Wang et al. 2013
    c6 = RP2(taylor_x(data)) - RP2(taylor_x(data).over_all_data())
    c7 = CF(taylor_z(data)) - RP1(taylor_z(data))  # Miller et al. 2017, full covariance
    score = SF(one) - CF(one)  # Ranganath et al. 2014

    S4 = [c2, c1, c3, c4]
    S5 = [*S4, c6]
    S6 = [*S5, c5]
    S7 = [*S6, c7]
    return SimpleNamespace(
        h=h, c1=c1, c2=c2, c3=c3, c4=c4, c5=c5, c6=c6, c7=c7, score=score,
        S4=S4, S5=S5, S6=S6, S7=S7,
    )  # fmt: skip
