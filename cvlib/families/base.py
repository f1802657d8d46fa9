"""What a family q_w is: the parts of w, a sampler and log q. The rest comes by autograd.

Arrays are (..., M, d) or (..., M, D); the leading axes are independent runs. w is one flat vector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
from autograd import elementwise_grad
from numpy.typing import ArrayLike

from ..arguments import unmasked, whole
from ..draws import Draw
from ..models import GaussianPrior, Model, checks

Array = np.ndarray
Pair = tuple[Array, Array]
NOT_SAID: Any = None
COLUMNS = 64  # of a Hessian, that a family with a diagonal factor looks at together


class Family:
    """A law q_w of z in R^dim, w in R^D. `required` is what a family must say.

    Its functions of w are called with w (..., 1, D) or (..., M, D), and written with
    autograd.numpy. An argument of the constructor is kept under its own name (self.nu = nu):
    equality, repr and saved fits go by it. Score and pull-back come by autograd; a family that
    writes them itself is faster. All that it says is tried when it first meets a model.
    """

    required = {
        "parts": "names of the parts of w, as many numbers each as z has",
        "noise": "(rng, w, M) -> the base sample eps of M samples, (..., M, noise_dim)",
        "transform": "(w, eps) -> z, the sample of q_w, (..., M, d)",
        "log_density": "(w, z) -> log q_w(z), (..., M)",
    }
    optional = {  # without it what needs it is refused
        "moments": "(w) -> mean and standard deviation of each coordinate of z, (..., d)",
        "entropy": "(w) -> -E_q log q_w, (...); follows from cross, if that is given",
        "cross": "(w, v) -> E_{q_w} log q_v, (...)",
        "mapped": "(w, eps) -> z and log |det dz / deps| (..., M), of a base N(0, I)",
        "mirror": "(w, eps) -> the opposite of each base sample, of the same law, (..., M, d)",
        "quantile": "(w, u) -> base samples from uniform ones, coordinate by coordinate",
        "fisher": "(w) -> Var grad_w log q_w, (..., D, D), or its diagonal (..., D)",
    }
    parts: tuple[str, ...] = ()
    noise = transform = log_density = cross = mapped = mirror = quantile = fisher = NOT_SAID
    # where `gaussian` is true: how its factor acts; where z is discrete: squash
    own_factor = times = times_t = solve = solve_t = outer = by_row = by_column = NOT_SAID
    lower = joined = compose = change = curvature = from_own = gram = NOT_SAID
    squash: Any
    base_score: Any = NOT_SAID  # (draw) -> grad_w log qbar_w(eps), (..., M, D), of a moving base
    far = 1e6  # a weight beyond this size is a run thrown out for good
    largest = float(np.finfo(float).max)  # one beyond this is refused
    gaussian = False
    full = False  # does w have a d x d factor?
    quadratics = False  # is E_q known for every quadratic f? So with moments, coordinates unmixed
    closed_moments = closed_entropy = False  # are they given? Read off when a family is defined
    held = True  # by tests to what it says? So are the package's own
    states: Any = None  # (n, d) all values of a discrete z, where they are few
    smooth = "z"  # the space in which w moves the sample: z, or the zeta behind a discrete z

    def __init_subclass__(cls, base: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.held = cls.__module__.startswith(__package__)
        cls.closed_moments = cls.moments is not Family.moments
        cls.closed_entropy = cls.cross is not None or cls.entropy is not Family.entropy
        if base:
            return  # not a family yet: what several share
        missing = {name: why for name, why in cls.required.items() if not getattr(cls, name, None)}
        if cls.quadratics and not cls.closed_moments:
            missing["moments"] = cls.optional["moments"]
        if missing:
            what = "; ".join(f"{name} ({why})" for name, why in missing.items())
            raise TypeError(f"the family {cls.__name__} is incomplete. It lacks {what}")

    def __init__(self, dim: int) -> None:
        self.dim = self.noise_dim = whole("dim", dim)
        self.D = len(self.parts) * self.dim

    # Which family it is

    @cached_property
    def key(self) -> tuple:
        """What makes two families the same: their kind, and all arguments of the constructor."""
        kind, names = type(self), signature(type(self)).parameters
        for name in names:
            if not hasattr(self, name):
                raise TypeError(f"{kind.__name__} must keep its argument {name!r} as self.{name}")
        return kind, *(_plain(getattr(self, name)) for name in names)

    def __repr__(self) -> str:
        kind, *values = self.key
        given = zip(signature(kind).parameters.values(), values)
        shown = (f"{p.name}=" * (p.default is not p.empty) + repr(value) for p, value in given)
        return f"{kind.__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Family) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def fixed_base(self) -> bool:
        """Has the base sample one law, whatever w is?"""
        return self.base_score is None

    def check_model(self, model: Model) -> None:
        """An error unless this is a law of the model's z."""
        check_fit(model, self)

    # Weights

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where the parts of w stand in it."""
        ends = [k * self.dim for k in range(len(self.parts))] + [self.D]
        return tuple(slice(*both) for both in pairwise(ends))

    def pack(self, *parts: ArrayLike) -> Array:
        """w from its parts, each a number or (..., d)."""
        arrays = [np.asarray(part, float) for part in parts]
        shapes = {a.shape for a in arrays if a.ndim} or {(self.dim,)}  # a number fits every shape
        shape = shapes.pop()
        if len(arrays) != len(self.parts) or shapes or shape[-1] != self.dim:
            got = ", ".join(str(a.shape) for a in arrays)
            raise ValueError(f"{', '.join(self.parts)} must be (..., {self.dim}); got {got}")
        return np.concatenate([np.broadcast_to(a, shape) for a in arrays], -1)

    def unpack(self, w: ArrayLike) -> Any:
        """The parts of w, (..., d) each; the array itself if there is one."""
        w = self.sized(w)
        return w if len(self.parts) == 1 else tuple(w[..., block] for block in self.blocks)

    def start(self, runs: int | tuple[int, ...] = ()) -> Array:
        """Weights to begin with, all zero, as (*runs, D)."""
        return np.zeros((*np.broadcast_shapes(runs), self.D))

    def check(self, w: ArrayLike) -> Array:
        """`w` as an array of floats, or a ValueError that says what is wrong with it."""
        if hasattr(w, "w"):
            raise TypeError(f"w is a {type(w).__name__}: give its weights, .w")
        w = self.sized(np.asarray(unmasked("w", w), float))
        flat = w.ravel()
        if flat.dot(flat) <= self.largest:  # then no number is larger: the quick way to say so
            return w
        for where in np.argwhere(~(np.abs(w) <= self.largest)).tolist():  # NaN too
            value = w[tuple(where)]
            if not np.isfinite(value):
                raise ValueError(f"w is not finite at {where}: {value}")
            raise ValueError(
                f"w is {value} at {where}: it holds logarithms or logits, which must lie between "
                f"-{self.largest:g} and {self.largest:g}; take a smaller step"
            )
        return w

    def sized(self, w: Any) -> Array:
        """`w` as an array (..., D)."""
        w = w if hasattr(w, "shape") else np.asarray(w)  # autograd's own arrays stay
        if w.ndim == 0 or w.shape[-1] != self.D:
            raise ValueError(f"w must be (..., {self.D}) for {self!r}; got {w.shape}")
        return w

    # The law

    def moments(self, w: Array) -> tuple[Any, Any]:
        """Mean (..., d) and factor of the covariance at w; None where a family does not say."""
        return None, None

    def one(self, w: ArrayLike) -> Array:
        """w as the weights (D,) of a single q."""
        try:
            return self.check(w).reshape(self.D)
        except (TypeError, ValueError) as error:
            raise type(error)(f"w must be {self.D} numbers, one q of {self!r}: {error}") from error

    def mean(self, w: ArrayLike) -> Array:
        """E_q z, (..., d)."""
        return self._said(self.moments(self.check(w))[0])

    def sd(self, w: ArrayLike) -> Array:
        """Standard deviation of each coordinate of z, (..., d)."""
        return self._said(self.moments(self.check(w))[1])

    def _said(self, moment: Any) -> Array:
        if moment is None:
            raise ValueError(f"{self!r} does not say its mean and spread: give it `moments`")
        return moment

    def sample(self, w: ArrayLike, n: int, rng: np.random.Generator) -> Array:
        """n samples z ~ q_w, (..., n, d)."""
        w = self.check(w)
        return self.z1(Draw(None, self, w, self.noise(rng, w, n), None))

    def log_q(self, w: ArrayLike, z: Array) -> Array:
        """log q_w(z) for w (..., D) and z (..., M, d), as (..., M)."""
        return self.log_density(self.check(w)[..., None, :], z)

    def log_q1(self, draw: Draw) -> Array:
        """log q_w at a draw's own z1, (..., M)."""
        return self.log_q(draw.w, draw.at("z1"))

    def entropy(self, w: ArrayLike) -> Array:
        """-E_q log q_w, (...)."""
        cross, w = self._crossed(), self.check(w)
        return -cross(w, w)

    def entropy_grad(self, w: Array) -> Array:
        """Gradient of the entropy, (..., D). What moves log q_w itself has mean zero."""
        return elementwise_grad(self.entropy)(w) if self.cross is None else -self.cross_grad(w, w)

    def cross_grad(self, w: Array, v: Array) -> Array:
        """Gradient of E_{q_w} log q_v in w, v held fixed, (..., D)."""
        if self.cross is None and np.array_equal(v, w):
            return -self.entropy_grad(w)
        return elementwise_grad(self._crossed())(w, v)

    def _crossed(self) -> Callable:
        if self.cross is None:
            raise ValueError(
                f"CF needs a closed form of E_q[f]; {self!r} has none for log q: write SF or RP1, "
                "or give the family `entropy` or `cross`"
            )
        return self.cross

    def prior(self, *parameters: ArrayLike) -> FamilyPrior:
        """log p(z) of the same family, for Model: E_q log p(z) then has a closed form."""
        return FamilyPrior(self, self.check(self.pack(*parameters)))

    # What a draw looks at

    def mu(self, draw: Draw) -> Array:
        """The mean as a point, (..., 1, d)."""
        return self._said(draw.mu)[..., None, :]

    def snapshot(self, draw: Draw) -> Array:
        """The mean at older weights as a point, (..., 1, d)."""
        if draw.snapshot is None:
            raise ValueError(
                'an expansion with at="snapshot" needs a draw that has one: '
                "draw(..., snapshot=cvlib.snapshot(model, mu)), or renew=K in the loop"
            )
        # one for every run: autograd sums over what was broadcast
        return np.broadcast_to(draw.snapshot.mu, (*draw.w.shape[:-1], self.dim))[..., None, :]

    def z1(self, draw: Draw) -> Array:
        """The sample of q_w, (..., M, d)."""
        return self.transform(draw.w[..., None, :], draw.eps)

    def copies(self, draw: Draw) -> Array:
        """w once for each sample, (..., M, D): autograd then gives a gradient for each."""
        return np.broadcast_to(draw.w[..., None, :], (*draw.eps.shape[:-1], self.D))

    def score(self, draw: Draw) -> Array:
        """grad_w log q_w(z1), (..., M, D)."""
        return elementwise_grad(self.log_density)(self.copies(draw), draw.z)

    def pull1(self, draw: Draw, u: Array, out: Array | None = None) -> Array:
        """The chain rule through z1: slopes u (..., M, d) to w, (..., M, D).

        A pull may write into `out`, if one is given, to save a copy; what it returns counts.
        """
        return elementwise_grad(lambda w: self.transform(w, draw.eps) * u)(self.copies(draw))

    # Quadratic integrands

    def moments_grad(self, draw: Draw) -> Pair:
        """Gradients of mean and standard deviation in the parts of w, (..., D / d, d) each."""
        shape = *draw.w.shape[:-1], -1, self.dim
        moment = lambda w, k: self.moments(w)[k] + 0 * w[..., : self.dim]  # it may be constant
        dm, ds = (elementwise_grad(moment)(draw.w, k).reshape(shape) for k in (0, 1))
        return dm, ds

    def chain(self, draw: Draw, slope: Array, hess_L: Array, out: Array | None = None) -> Array:
        """grad_w E_q f for quadratic f: slope (..., M, d) = f' at the mean, hess_L = sd f''."""
        dm, ds = draw.of("moments_grad")  # (..., k, d)
        dm, ds = dm[..., None, :, :], ds[..., None, :, :]
        each = slope[..., None, :] * dm + hess_L[..., None, :] * ds  # (..., M, k, d)
        return each.reshape(*each.shape[:-2], -1)

    def hess_L(self, times: Callable, sd: Array) -> Array:
        """What w has of H L for a diagonal L: diag(H) sd, (..., M, d), without a d x d matrix.

        `times` takes rows V (k, d) to H V, (..., M, k, d).
        """
        found = []
        for first in range(0, self.dim, COLUMNS):
            unit = np.eye(min(COLUMNS, self.dim - first), self.dim, first)
            found.append(np.diagonal(times(unit), first, -2, -1).copy())  # a view would keep all
        return np.concatenate(found, -1) * sd[..., None, :]


def _plain(value: Any) -> Any:
    """Arrays and lists as tuples of numbers, which can be compared and written to a file."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


class FamilyPrior:
    """log q_v(z) with fixed v, callable like any log-prior."""

    def __init__(self, q: Family, v: Array) -> None:
        self.q, self.v = q, v

    def __call__(self, z: Array) -> Array:
        return self.q.log_density(self.v, z)


def check_fit(model: Any, q: Any) -> None:
    """An error unless `model` is a model and q a law of its z."""
    if not isinstance(model, Model):
        raise TypeError(
            f"{type(model).__name__} is no model such as models.logistic_regression: what others "
            "wrote becomes one by models.from_numpyro(f, X, y), from_pymc(model) or from_jax"
        )
    if not isinstance(q, Family):
        raise TypeError(f"{q!r} is no family: write families.Gaussian(model.dim), for example")
    if model.dim != q.dim:
        raise ValueError(
            f"{model!r} does not fit {q!r}, a law of {q.dim} dimensions: take one of {model.dim}"
        )
    if not q.held:
        checks.hold(q)
    prior, lives = model.log_prior, q.smooth  # a function of the reader's own may be of either kind
    if isinstance(prior, FamilyPrior):
        lives = prior.q.smooth
    elif isinstance(prior, GaussianPrior) or model.declared or not model.rows:  # real numbers
        lives = "z"
    if lives != q.smooth:
        kinds = ("discrete", "continuous") if q.smooth == "z" else ("continuous", "discrete")
        raise ValueError(
            f"the prior of {model!r} is a law of {kinds[0]} z, {q!r} one of {kinds[1]} z: together "
            "they have no ELBO"
        )
