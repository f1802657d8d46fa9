"""Integrands f of grad_w E_q[f]: atoms, and sums of them.

An atom knows its value, its slope and its curvature in z at the points of a draw, and, where there
is one, the gradient of its expectation in closed form. `Integrand` is a linear combination of
atoms. Whatever an atom takes from w (the v of log q_v, a point of expansion) is held fixed.
"""

from copy import copy

from .linear import Linear


class Illegal(ValueError):
    """A word or an approximation that a term or a family does not have."""


class Atom:
    """One integrand. Points are names such as "z1"; arrays are (..., M, ...), M = 1 at "mu".

    What an atom cannot say stays None, and the words that need it are refused.
    """

    space = "z"  # or "zeta", behind a discrete z: which routes of the family it takes
    quadratic = False  # is f a quadratic function of z?
    closed_form = False  # is E_q[f] known?
    conservative = True  # is grad a gradient? If not, words that pull it back differ in the mean
    advice = ""  # what to write instead where there is no closed form
    value = None  # (draw, where) -> f, (..., M)
    bend = None  # (draw, where) -> what w has of (grad_z^2 f) L, (..., M, D - d)
    of_eta = False  # does f see of z only eta = x.z?
    whole = False  # does f see all data, whatever a draw subsamples?

    def __init__(self, name, model, q, target=None):
        self.name = self.bare = name  # as it is written; bare: without .over_all_data()
        self.model, self.q = model, q
        self.target = target or name  # what its estimators estimate; atoms may share one
        self.owner = (model, q) if model is not None else None
        self.key = name, id(model), q and q.key  # of plain things: it is hashed often

    def __eq__(self, other):
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def over_all_data(self):
        """The same integrand on the whole data set, whatever a draw subsamples."""
        return self

    def slope(self, draw, where):
        """grad_z f at the points, (..., M, d), computed once a draw."""
        return draw.once((self.key, where), self.grad, where)

    def grad(self, draw, where):
        """grad_z f, (..., M, d)."""
        raise NotImplementedError

    def price(self, draw, where):
        """[grad f, grad^2 f L] at the points: the mean of this is grad_w E_q f (Bonnet, Price)."""
        return draw.q.chain(draw, self.slope(draw, where), self.bend(draw, where))

    def closed(self, draw):
        """grad_w E_q f, (..., M or 1, D). For an f quadratic in z it is read off at mu."""
        return self.price(draw, "mu")


class OnData(Atom):
    """An integrand that sees data: the data point drawn, times N, or (`whole`) all of them."""

    def over_all_data(self):
        return self if self.whole else copy(self)._over_all_data()

    def _over_all_data(self):
        self.whole, self.name = True, f"{self.bare}.over_all_data()"
        self.key = (self.name, *self.key[1:])
        return self

    def sees_all(self, draw):
        return self.whole or draw.index is None


class Integrand(Linear):
    """A sum of atoms with coefficients."""

    def over_all_data(self):
        """Every part on the whole data set: what data subsampling gives on average."""
        return self.map(lambda atom: atom.over_all_data())

    def map(self, change):
        """The same combination of changed atoms."""
        total = Integrand({})
        for atom, coef in self.parts.items():
            total = total + Integrand({change(atom): coef})
        return total


def integrand(f, who):
    """f, or a TypeError: `who` works on integrands."""
    if not isinstance(f, Integrand):
        raise TypeError(f"{who} takes an integrand such as data or data + prior, not {f!r}")
    return f
