"""Models of the reader's own: two functions that autograd can differentiate, data, log density."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from zlib import crc32

import autograd.numpy as anp
import numpy as np
from autograd import make_vjp
from autograd.tracer import Node, isbox, trace

from ..arguments import numbers, whole
from ..special import LOG_2PI, hess_times
from . import checks, passes
from .parameters import Named, Parameters, real

ROWS, EACH = 10_000, 50  # rows that may stand for all, at least; and for every unknown


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """log N(z | mean, diag(sd^2)), callable like any log-prior; its expectations are known."""

    sd: float | np.ndarray = 1.0  # one for all coordinates, or (d,)
    mean: float | np.ndarray = 0.0

    def __post_init__(self):
        for name in ("sd", "mean"):
            what, given = f"the prior's {name}", getattr(self, name)
            array = checks.real_numbers(what, given).copy()
            if array.ndim > 1:
                raise ValueError(f"{what} must be a number or (d,); got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{what} must be finite, not {array}")
            array.setflags(write=False)
            object.__setattr__(self, name, array if array.ndim else float(array))
        numbers("the prior's sd", self.sd, 0, above=True)
        if len({*self._lengths}) > 1:
            raise ValueError("the prior has {} sd's but {} means".format(*self._lengths))

    def __call__(self, z: np.ndarray) -> np.ndarray:
        d = anp.shape(z)[-1]
        if self._lengths and self._lengths[0] != d:
            raise ValueError(f"the prior has {self._lengths[0]} coordinates, z has {d}")
        away = (z - self.mean) / self.sd
        return anp.sum(-0.5 * away**2 - 0.5 * (LOG_2PI + 2 * np.log(self.sd)), -1)

    @property
    def _lengths(self):
        """Lengths of those of sd and mean that are vectors."""
        return [np.size(a) for a in (self.sd, self.mean) if np.ndim(a)]


class Model:
    """A model of the reader's own: two functions that autograd can differentiate, and data.

    `parameters` declares names, shapes and constraints: {"beta": 3, "sigma": positive}. Then
    `log_lik(p, batch)` gives one log-likelihood per row: p.beta is (..., 3), p.sigma (...), `batch`
    a tuple with the rows of the arrays in `data`, all leading axes broadcast, the result is (...).
    On all data at M points p.sigma is (M, 1), a batch has N rows, and the result is (M, N).
    `log_prior(p)` is the log-density of the parameters themselves, (...): log-Jacobians are added.
    With `dim` in place of `parameters` both functions take z itself, (..., dim).

    A likelihood that does not factorise over rows is one row: give y[None] for y, and `batch` holds
    y as (..., 1, n).

    `groups` has a label for each row, `effects` the names of one or two numbers that a group has of
    its own, {"u": ()} or {"u": 2}, which are integrated out, and log_effect(p) is the normalised
    log density of p.u given the parameters, (...). In log_lik p.u is that of the row's own group.
    `nodes` are those of the integral, along each number of an effect.
    """

    parameters: Any  # what z holds, by name: `Parameters`, or `Elsewhere`
    log_prior: Any  # a function of z; a GaussianPrior or FamilyPrior has more to say
    rows = True  # does it show its data points?
    dims: dict = {}  # names of axes by parameter, what stands along them, constant and observed
    coords: dict = {}  # data by name: what a model from elsewhere knows and ArviZ keeps
    constants: dict = {}
    observed: dict = {}
    likelihood: Any = None  # of eta = x.z + offset, if the model is a generalised linear one
    traced: Any = None  # log p(x, z) as a program of JAX, if it is one
    effects: Any = None  # of groups, integrated out, `Parameters`, if it has any
    grouped: Any = None  # the kind of model that has groups, which stands above: its loader

    def __init__(
        self, log_lik: Callable, log_prior: Callable, data: Any, dim: int | None = None,
        name: str | None = None, *, parameters: Mapping[str, Any] | None = None,
        groups: Any = None, effects: Mapping[str, Any] | None = None,
        log_effect: Callable | None = None, nodes: int = 11,
    ) -> None:  # fmt: skip
        if groups is not None:
            kind = self.__class__ = type(self).grouped()  # not __new__: help shows this signature
            kind.__init__(
                self, log_lik, log_prior, data, dim, name, parameters=parameters, groups=groups,
                effects=effects, log_effect=log_effect, nodes=nodes,
            )  # fmt: skip
            return
        if effects is not None or log_effect is not None:
            raise ValueError("effects= and log_effect= need groups=, a label for each row")
        if (dim is None) == (parameters is None):
            raise ValueError(
                'a model needs parameters={"beta": 3, "sigma": cv.positive}, say, or the number of '
                "its unknowns, dim=4: one of them"
            )
        self.declared = parameters is not None
        self.parameters = Parameters({"z": whole("dim", dim)} if dim is not None else parameters)
        for what, f, example in [
            ("log_lik", log_lik, "log_lik(z, batch), z (..., d) -> (...)"),
            ("log_prior", log_prior, "models.GaussianPrior(), or lambda z: 0 * z[..., 0] if flat"),
        ]:
            if not callable(f):
                raise ValueError(f"{what}={f!r} is no function: give one, such as {example}")
        self.dim, self.name = self.parameters.dim, name or "own model"
        self.log_lik, self.log_prior = self._of_z(log_lik, log_prior)
        self.data = checks.data_arrays(data)
        self.N = len(self.data[0])
        self._check_functions()

    def _of_z(self, log_lik, log_prior):
        """Both functions as functions of z."""
        if not self.declared:
            return log_lik, log_prior
        rows = partial(_named_rows, log_lik, self.parameters)  # a partial can be pickled
        if not isinstance(log_prior, GaussianPrior):
            return rows, partial(_named_prior, log_prior, self.parameters)
        if bound := [x for x, c in self.parameters.each.items() if c.map is not real.map]:
            raise ValueError(
                f"a GaussianPrior is a law of any real numbers, and {bound[0]} is constrained: "
                "write the prior as a function of p"
            )
        return rows, log_prior

    def named(self, z: np.ndarray) -> Named:
        """Arrays by name at z (..., d), in their constraints; {"z": z} if none are declared."""
        return self.parameters.named(z)

    def given(self, z: np.ndarray) -> Any:
        """What the functions of the model take for z: `named` if parameters are declared, or z."""
        return self.named(z) if self.declared else z

    @property
    def names(self) -> list[str]:
        """One for each coordinate of z: beta[0], beta[1], sigma, or z[0], z[1], ..."""
        return self.parameters.names

    def __repr__(self):
        return f"<{self.name}: {self.N} data points, {self.dim} latent dimensions>"

    @property
    def all_rows(self) -> tuple[np.ndarray, ...]:
        """Of all arrays in `data`."""
        return self.data

    def doubts(self, z: np.ndarray) -> list[str]:
        """Sentences, if something is wrong with log p(x, z) itself at points z (n, d)."""
        return []

    def take(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        """The rows with these numbers, of all arrays in `data`; no others are read from a file."""
        rows = tuple(passes.wide(a[index]) for a in self.data)
        for a in rows:
            a.setflags(write=False)  # functions of the reader's see them more than once
        return rows

    def log_joint(self, z: np.ndarray) -> np.ndarray:
        """log p(x, z) over the whole data set, part by part, (..., d) -> (...)."""
        return self.totals(z, 0)[0] + self.log_prior(z)

    def pointwise(self, z: np.ndarray) -> np.ndarray:
        """The log-likelihood of every data point, (..., d) -> (..., N)."""
        each = passes.each(_each, self.data, z, self.log_lik, width=z[..., 0].size * self.made)
        return np.concatenate(list(each), -1)

    def each_row(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """The same by name, {name: (..., *shape)}; nothing if the model cannot say."""
        return {"y": self.pointwise(z)}

    @cached_property
    def checksum(self) -> int:
        """Of the arrays in `data`: whatever was computed from others is not this model's.

        One array after the other, so that it does not depend on where parts of a pass end.
        """
        total = crc32(repr([(a.shape, a.dtype.str) for a in self.data]).encode())
        for a in self.data:
            for rows in passes.slices(self.data):
                total = crc32(np.ascontiguousarray(passes.fresh(a[rows])).data, total)
        return total

    @cached_property
    def mark(self) -> float:
        """The log-likelihood of the first row at one z: it tells models of the same data apart."""
        z, first = np.linspace(0.1, 0.3, self.dim), tuple(passes.wide(a[:1]) for a in self.data)
        with np.errstate(all="ignore"):
            return float(np.nan_to_num(self.log_lik(z[None], first)[0]))

    @property
    def row_size(self) -> int:
        """Numbers that one data point makes of one z."""
        return max(a[0].size for a in self.data)

    @cached_property
    def made(self) -> int:
        """Numbers that log_lik and its slope keep of one data point at one z, as seen on a few."""
        z = np.linspace(0.1, 0.3, 2 * self.dim).reshape(2, 1, self.dim)

        def numbers_of(n):
            batch, sizes = self.take(np.arange(n) % self.N), []

            class Watched(Node):  # what autograd keeps of an array on its way
                initialize_root = lambda self: None
                __init__ = lambda self, value, *how: sizes.append(np.size(value))

            trace(Watched.new_root(), lambda z: self.log_lik(z, batch) + 0 * z[..., 0], z)
            return sum(sizes)

        try:
            with np.errstate(all="ignore"):
                return max(1, (numbers_of(8) - numbers_of(4)) // 8)
        except np.linalg.LinAlgError:
            return max(self.dim, self.row_size)

    def totals(
        self, z: np.ndarray, order: int, factor: np.ndarray | None = None, mean: bool = False
    ) -> tuple:
        """log p(x | z) over all data, slope (order 1) and Hessian (2) at z (..., d): one pass.

        A generalised linear model, told q's factor, adds those of its bound and of the mean.
        """
        made = self.made * (self.dim if order == 2 else 1)
        return passes.at_points(_totals, self.data, z, self.log_lik, order, made=made)

    def _check_functions(self):
        n = 2 if self.N == 3 else min(self.N, 4)  # three z's meet n rows: 3 would hide a mix-up
        some = np.linspace(0, self.N - 1, n).round().astype(int)
        rows = lambda z, j: self.log_lik(z, self.take(some[j]))
        points = checks.points_near_zero(self.dim)
        # One draw a row, all data, all data in several runs, an axis of directions beside M.
        shapes = [((3,), (3,)), ((3, 1), (n,)), ((2, 3, 1), (n,)), ((2, 3, 4), (2, 3, 1))]
        try:
            checks.rows("log_lik", rows, points, n, shapes)
            shapes = [((3,), (1,)), ((2, 3, 4), (1,))]
            checks.rows("log_prior", lambda z, j: self.log_prior(z), points, 1, shapes)
        except ValueError as error:
            holds = f". Here z holds {self.parameters!r}" * self.declared
            raise ValueError(f"{error}{holds}") from error.__cause__
        if self.declared and not isinstance(self.log_prior, GaussianPrior):
            one, log_lik = self.take(np.zeros(1, int)), self.log_lik.args[0]
            left = self.parameters.left_out(lambda p: log_lik(p, one), self.log_prior.args[0])
            if left:
                raise ValueError(
                    f"neither log_lik nor log_prior takes p.{left[0]}: nothing is known of it. "
                    "Write its prior, or leave it out of the parameters"
                )


class Density:
    """log p(x, z) of a model at points z (B, d), part by part of the data.

    With `rows` these alone stand for all data, their likelihood scaled by N / n. Where a matrix of
    the model is singular, log p and its slope are not numbers. `gradients` counts the slopes that
    were asked for, of all data; a value counts as half of one.
    """

    def __init__(self, model: Model, rows: np.ndarray | None = None):
        self.model, self.scale, self.gradients = model, 1.0, 0.0
        if rows is not None:
            self.model, self.scale = copy(model), model.N / len(rows)
            self.model.data, self.model.N = model.take(rows), len(rows)

    @classmethod
    def of_some(cls, model: Model, rng: np.random.Generator) -> "Density":
        """Of a few random rows, where the model has many times as many; else of all."""
        n = enough(model)
        return cls(model, np.sort(rng.choice(model.N, n, False)) if n < model.N else None)

    def value(self, z: np.ndarray) -> np.ndarray:
        """log p(x, z), (B,)."""
        return self._up_to(0, z)[0]

    def slope(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(x, z) and its slope, (B,) and (B, d)."""
        return self._up_to(1, z)

    @np.errstate(all="ignore")
    def _up_to(self, order, z):
        """Value and slope; where one point fails, each half of them alone."""
        prior = lambda z, rows: self.model.log_prior(z)  # one row, of no data
        try:
            both = zip(self.model.totals(z, order), _totals((), z, prior, order))
            found = tuple(self.scale * x + y for x, y in both)
        except np.linalg.LinAlgError:
            if len(z) > 1:
                halves = [self._up_to(order, half) for half in np.array_split(z, 2)]
                return tuple(map(np.concatenate, zip(*halves)))
            found = np.full(1, np.nan), np.full(z.shape, np.nan)
        self.gradients += len(z) * (1 + order) / 2 / self.scale
        return found

    @property
    def size(self) -> int:
        """Numbers that one point makes of the data."""
        return len(self.model.data[0]) * max(self.model.dim, self.model.row_size)


def enough(model: Model) -> int:
    """How many rows may stand for all in the search for the mode: all, unless they are many."""
    n = max(ROWS, EACH * model.dim)
    return n if model.effects is None and model.N > 4 * n else model.N


def _named_rows(log_lik, parameters, z, batch):
    return log_lik(parameters.named(z), batch)


def _named_prior(log_prior, parameters, z):
    """A density of the parameters as one of z: with the log-Jacobian."""
    p, stretch = parameters.mapped(z)
    return log_prior(p) + stretch


def seen(value: Any, z: Any) -> Any:
    """`value`; + 0 where it does not depend on z, of which autograd would warn."""
    return value if isbox(value) else value + 0 * anp.sum(z)


def _each(rows, z, log_lik):
    return log_lik(z[..., None, :], rows)


def _totals(rows, z, log_lik, order):
    """Value, slope and Hessian of the log-likelihood, summed over some rows, by autograd."""
    f = lambda z: seen(anp.sum(log_lik(z[..., None, :], rows), -1), z)
    if order == 0:
        return (f(z),)
    back, value = make_vjp(f)(z)
    value_and_slope = value, back(np.ones_like(value))
    if order == 1:
        return value_and_slope
    points, columns = np.broadcast_arrays(z[..., None, :], np.eye(z.shape[-1]))  # (..., d, d)
    return *value_and_slope, hess_times(f, points, columns)
