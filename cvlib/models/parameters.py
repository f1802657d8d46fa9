"""Parameters by name: shapes and constraints, declared once, and where each lies in z.

A constraint maps some of z, u, to where a parameter lives, and says its log-Jacobian. Leading axes
broadcast. `xp` is autograd's NumPy, or that of JAX for a model written in JAX.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from keyword import iskeyword
from math import prod
from typing import Any

import autograd.numpy as anp
import numpy as np
from numpy.typing import ArrayLike

from ..arguments import whole
from ..special import at

# Constraints -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constraint:
    """Where a parameter lives. Call it with a shape for an array: positive(8), simplex((5, 3))."""

    name: str
    map: Callable  # (u, xp) -> x and its log-Jacobian, entry by entry or along the last axis
    back: Callable  # x -> u
    shape: tuple[int, ...] | None = ()  # of x; None: it must be given
    fewer: int = 0  # numbers that u has less than x, along the last axis

    def __call__(self, *shape: Any) -> "Constraint":
        if len(shape) != 1:
            right = f"cv.{self.name}({shape if shape else 3})"
            raise TypeError(f"a shape is one number or one tuple, in one bracket: write {right}")
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        if self.shape is None and not shape:
            raise ValueError(f"cv.{self.name} is an array, not a number: give its length")
        least = 1 + self.fewer
        shape = tuple(whole(f"a length of {self.name}", n, least) for n in shape)
        return replace(self, shape=shape)

    def __repr__(self):
        lengths = self.shape[0] if self.shape and len(self.shape) == 1 else self.shape
        return f"cv.{self.name}({lengths})" if lengths else f"cv.{self.name}"

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape of u."""
        assert self.shape is not None  # a declaration has seen to that
        return (*self.shape[:-1], self.shape[-1] - self.fewer) if self.fewer else self.shape


def _real(u, xp):
    return u, 0.0


def _interval(u, xp, low=None, high=None):
    """By a logistic curve; exp from a single limit on. As u grows x does."""
    if high is None:
        return low + xp.exp(u) if low else xp.exp(u), u
    if low is None:
        return high - xp.exp(-u), -u
    down, up = _log_sigmoid(-u, xp), _log_sigmoid(u, xp)
    return low + (high - low) * xp.exp(up), np.log(np.subtract(high, low)) + up + down


def _not_interval(x, low=None, high=None):
    above = 0.0 if low is None else np.log(x - low)
    return above if high is None else above - np.log(high - x)


def _ordered(u, xp):
    """x_1 = u_1, and every next one is exp(u_k) larger."""
    steps = xp.concatenate([u[..., :1], xp.exp(u[..., 1:])], -1)
    return xp.cumsum(steps, -1), xp.sum(u[..., 1:], -1)


def _simplex(u, xp):
    """A stick is broken K - 1 times: x_k is the share sigmoid(u_k - log(K - k)) of what is left."""
    K = u.shape[-1] + 1
    v = u - np.log(np.arange(K - 1, 0, -1))
    cut, rest = _log_sigmoid(v, xp), _log_sigmoid(-v, xp)
    left = xp.cumsum(rest, -1)  # log of what is left after each cut, (..., K - 1)
    before = left - rest
    shares = xp.concatenate([xp.exp(before + cut), xp.exp(left[..., -1:])], -1)
    return shares, xp.sum(before + cut + rest, -1)


def _log_sigmoid(u, xp):
    return -xp.logaddexp(0.0, -u)


def _not_ordered(x):
    return np.concatenate([x[..., :1], np.log(np.diff(x, axis=-1))], -1)


def _not_simplex(x):
    left = np.cumsum(x[..., ::-1], -1)[..., ::-1][..., 1:]  # what is left after each cut
    return np.log(x[..., :-1] / left) + np.log(np.arange(x.shape[-1] - 1, 0, -1))


real = Constraint("real", _real, np.asarray)  # any number
positive = Constraint("positive", partial(_interval, low=0), partial(_not_interval, low=0))  # x > 0
ordered = Constraint("ordered", _ordered, _not_ordered, None)  # x_1 < x_2 < ...
simplex = Constraint("simplex", _simplex, _not_simplex, None, fewer=1)  # x_k > 0 that sum to one


def interval(low: float | None, high: float | None) -> Constraint:
    """low < x < high: interval(0, 1), or interval(0, 1)(8) for eight of them; None is no limit."""
    given = [x for x in (low, high) if x is not None]
    number = lambda x: np.ndim(x) == 0 and np.asarray(x).dtype.kind in "iuf" and np.isfinite(x)
    if not given or not all(map(number, given)) or given != sorted(given) or low == high:
        raise ValueError(
            f"interval: low={low} must lie below high={high}, two finite numbers, or one of them "
            "None: cv.interval(2, None)"
        )
    there, back = (partial(f, low=low, high=high) for f in (_interval, _not_interval))
    return Constraint(f"interval({low}, {high})", there, back)


# Declarations ------------------------------------------------------------------------------------


class Named(dict):
    """Arrays by name: p.beta is p["beta"]."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"no parameter {name!r}: the model declares {known}") from None


class Parameters:
    """{name: shape or constraint}, and where each lies in z; the shape () is one number."""

    def __init__(self, declared: Mapping[str, Any] | None) -> None:
        if not isinstance(declared, Mapping) or not declared:
            raise ValueError(
                f"parameters={declared!r}: give a dict of names and shapes or constraints, such as "
                '{"beta": 3, "sigma": cv.positive}'
            )
        self.each = {name: _constraint(name, given) for name, given in declared.items()}
        ends = [0, *accumulate(prod(c.inner) for c in self.each.values())]
        self.dim = ends[-1]
        self.where = {name: slice(*ends[k : k + 2]) for k, name in enumerate(self.each)}
        # one for each coordinate of z, (d,)
        self.names = [label for name, c in self.each.items() for label in labels(name, c.inner)]

    def __repr__(self):
        return ", ".join(f"{name} {c.name}{list(c.shape)}" for name, c in self.each.items())

    def named(self, z: np.ndarray) -> Named:
        """The parameters at z (..., d), each (..., *shape)."""
        return self.mapped(z)[0]

    def mapped(self, z: np.ndarray, xp: Any = anp) -> tuple[Named, np.ndarray]:
        """The same, and the logarithm of how much all constraints stretch space there, (...)."""
        found, stretch, lead = Named(), 0 * z[..., 0], z.shape[:-1]
        for name, c in self.each.items():
            u = xp.reshape(z[..., self.where[name]], (*lead, *c.inner))
            found[name], log_jacobian = c.map(u, xp)
            if c.map is not _real:
                stretch = stretch + xp.sum(xp.reshape(log_jacobian, (*lead, -1)), -1)
        return found, stretch

    def back(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """z (n, d) at which the parameters are these, {name: (n, *shape)}."""
        given = ((c, arrays[name]) for name, c in self.each.items())
        return np.concatenate([c.back(x).reshape(len(x), -1) for c, x in given], -1)

    def left_out(self, *functions: Callable) -> list[str]:
        """The names without which all of these functions of p give what they gave."""
        p = self.named(np.linspace(0.1, 0.3, self.dim)[None])
        return [name for name in self.each if all(_same(f, p, name) for f in functions)]


class Elsewhere:
    """Parameters of a model that was written elsewhere.

    `arrays` takes z (B, d) to {name: (B, *shape)}, `back`, if there is one, takes these to z, and
    `names` has one for every coordinate of z.
    """

    back: Callable | None = None

    def __init__(self, arrays: Callable, names: list[str]) -> None:
        self.arrays, self.names = arrays, names
        self.each = dict.fromkeys(name.split("[")[0] for name in names)

    def named(self, z: np.ndarray) -> Named:
        found = self.arrays(z.reshape(-1, len(self.names)))
        whole = lambda x: np.reshape(x, (*z.shape[:-1], *np.shape(x)[1:]))
        return Named({name: whole(x) for name, x in found.items()})


def point(parameters: Any, given: Mapping[str, ArrayLike], d: int) -> np.ndarray:
    """z (d,) at which parameters are what is given by name, in their constraints; others at z = 0.

    `parameters` are `Parameters` or `Elsewhere`.
    """
    each, known = parameters.each, ", ".join(parameters.each)
    if parameters.back is None:
        raise ValueError("this model does not say how to take parameters back to z: give z itself")
    if strange := [name for name in given if name not in each]:
        raise ValueError(f"no parameter {strange[0]!r}: the model declares {known}")
    usual = parameters.named(np.zeros((1, d)))
    arrays = {name: np.asarray(given.get(name, usual[name][0]), float)[None] for name in each}
    for name, x in arrays.items():
        if x.shape != usual[name].shape:
            right = usual[name].shape[1:] or "one number"
            raise ValueError(f"{name} has the shape {x.shape[1:]}: it must be {right}")
    with np.errstate(all="ignore"):
        z = parameters.back(arrays)
        again = parameters.named(z)
    for name in given:
        if not np.allclose(again[name], arrays[name], rtol=1e-6, atol=1e-9):
            raise ValueError(f"{name}={given[name]!r} does not lie in its constraint, {each[name]}")
    return z[0]


def _same(f, p, without):
    try:
        return np.array_equal(f(Named({k: x for k, x in p.items() if k != without})), f(p))
    except Exception:  # whichever way the function misses it
        return False


def labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """The names of the entries of an array: beta[0], beta[1], ... or sigma."""
    if not shape:
        return [name]
    return [f"{name}[{','.join(map(str, k))}]" for k in np.ndindex(*shape)]


def _constraint(name, given):
    fine = isinstance(name, str) and name.isidentifier() and not iskeyword(name)
    if not fine or hasattr(dict, name):
        raise ValueError(f"a parameter cannot be called {name!r}: p.{name} must read as its value")
    if isinstance(given, Constraint):
        if given.shape is None:
            raise ValueError(f"{name}: cv.{given.name} needs its length, cv.{given.name}(3)")
        return given
    lengths = given if isinstance(given, tuple) else (given,)
    if all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in lengths):
        return real(given)
    raise ValueError(
        f"{name}={given!r} is neither a shape (3, (2, 3), () for a number) nor a constraint "
        "(cv.positive, cv.positive(3), cv.interval(0, 1), cv.ordered(3), cv.simplex(3), cv.real)"
    )


def pick(z: np.ndarray, index: ArrayLike) -> np.ndarray:
    """z_j for a column j of data: z (..., d) and whole numbers j (...) broadcast, to (...)."""
    index, d = np.asarray(index), anp.shape(z)[-1]
    if index.dtype.kind not in "iu":
        raise ValueError(f"pick takes whole numbers, not {index.dtype}: write group.astype(int)")
    if index.size and not (0 <= index.min() and index.max() < d):
        raise ValueError(f"pick: the index runs {index.min()}..{index.max()}, z has 0..{d - 1}")
    lead = anp.shape(z)[:-1]
    row = np.arange(int(np.prod(lead, dtype=int))).reshape(lead) * d
    return at(anp.reshape(z, (-1,)), row + index)
