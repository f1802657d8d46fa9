"""What a family q_w must say, written down once. An incomplete family fails when it is defined.

Arrays are (..., M, d) or (..., M, D); the leading axes are independent runs. w is one flat vector.
"""

from itertools import product
from numbers import Real
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ..models import Model

LARGEST = 300.0  # e^300 is still far from the largest number, its square too
COLUMNS = 64  # of a Hessian, that a family with a diagonal factor looks at together


class Route(NamedTuple):
    """How an estimator of grad_w E_q[f] looks at f: f(point) score + pull(grad f(point)).

    Each field names a method of the family. `at` takes a draw to the points, (..., M, d); `score`
    to what the value of f is multiplied by, (..., M, D). `pull(draw, u, out, add)` carries slopes
    u (..., M, d) back to w: it fills out (..., M, D), or adds to it.
    """

    at: str
    score: str | None = None
    pull: str | None = None


class Family:
    """A law q_w of z in R^dim, w in R^D. A class with `routes` is a family and must be complete.

    routes   {space: {word: Route}}: how each word estimates an integrand of z (or of the zeta
             behind a discrete z) by sampling
    """

    required = {
        "far": "a weight beyond this size is a run thrown out for good",
        "start": "weights to begin with, (*runs, D)",
        "check": "w as an array of floats, or a ValueError",
        "pack": "w from the usual parameters",
        "unpack": "the usual parameters from w",
        "moments": "mean (..., d) and factor of the covariance at w",
        "noise": "the base sample eps of M samples, (..., M, noise_dim)",
        "log_q": "log q_w(z), (..., M)",
        "entropy": "-E_q log q_w, (...)",
        "z1": "the sample of q_w, a function of the draw's eps, (..., M, d)",
        "score": "grad_w log q_w(z1), (..., M, D)",
    }
    required_for_quadratics = {
        "chain": "grad_w E_q f of a quadratic f, from its slope and bend at the mean",
    }
    optional = {  # what only draws in pairs, or by Sobol's points, need
        "mirror": "(w, eps) -> the opposite of each base sample, of the same law, (..., M, d)",
        "quantile": "(w, u) -> base samples from uniform ones, coordinate by coordinate",
        "fisher": "(w) -> Var grad_w log q_w, (..., D, D), or its diagonal (..., D)",
    }
    mirror = quantile = fisher = None
    by_hand = ("CF",)  # the words that need no route
    gaussian = False
    full = False  # does w have a d x d factor?
    quadratics = True  # is E_q known for every f that is quadratic in z?
    smooth = "z"  # the space in which w moves the sample: z, or the zeta behind a discrete z

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "routes" not in vars(cls):
            return  # not a family yet: a base that several share
        tables = ("required", "required_for_quadratics") if cls.quadratics else ("required",)
        required = {}
        for base, table in product(cls.__mro__, tables):
            required.update(vars(base).get(table, {}))
        missing = {name: why for name, why in required.items() if getattr(cls, name, None) is None}
        for space, table in cls.routes.items():
            for word, route in table.items():
                for name in filter(None, route):
                    if not callable(getattr(cls, name, None)):
                        why = f"the route of {word} in {space} goes through it"
                        missing.setdefault(name, why)
        if missing:
            what = "; ".join(f"{name} ({why})" for name, why in missing.items())
            raise TypeError(f"the family {cls.__name__} is incomplete. It lacks {what}")

    def __init__(self, dim):
        self.dim = self.noise_dim = self.whole("dim", dim, "dimensions")

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(map(str, self._sizes()))})"

    def __eq__(self, other):
        return isinstance(other, Family) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    @property
    def key(self):
        """What makes two families the same: their kind and their sizes."""
        return type(self), *self._sizes()

    def _sizes(self):
        return (self.dim,)

    def whole(self, name, value, what, least=1):
        """`value` as an int, or a ValueError: a size must be a whole number."""
        if not isinstance(value, Real) or value % 1 != 0 or value < least:  # inf % 1 is NaN
            hint = f": write {type(self).__name__}(model.dim)" * isinstance(value, Model)
            raise ValueError(
                f"{name}={value!r}: {type(self).__name__} needs a whole number of {what}, "
                f"at least {least}{hint}"
            )
        return int(value)

    @property
    def methods(self):
        """The words that are legal for a plain integrand of z."""
        return (*self.routes["z"], *self.by_hand)

    @property
    def blocks(self):
        return (slice(0, self.D),)

    def mu(self, draw):
        """The mean as a point, (..., 1, d)."""
        return draw.mu[..., None, :]

    def snapshot(self, draw):
        """The mean at older weights as a point, (..., 1, d)."""
        if draw.snapshot is None:
            raise ValueError(
                'an expansion with at="snapshot" needs a draw that has one: '
                "draw(..., snapshot=cvlib.snapshot(model, mu)), or renew=K in the loop"
            )
        # one for every run: autograd sums over what was broadcast
        return np.broadcast_to(draw.snapshot.mu, draw.mu.shape)[..., None, :]

    def mean(self, w):
        """E_q z, (..., d)."""
        return self.moments(self.check(w))[0]

    def sd(self, w):
        """Standard deviation of each coordinate of z, (..., d)."""
        return self.moments(self.check(w))[1]

    def sample(self, w, n, rng):
        """n samples z ~ q_w, (..., n, d)."""
        w = self.check(w)
        mu, factor = self.moments(w)
        return self.z1(SimpleNamespace(w=w, mu=mu, factor=factor, eps=self.noise(rng, w, n)))

    def check(self, w):
        """`w` as an array of floats, or a ValueError that says what is wrong with it."""
        return self.sized(np.asarray(w, float))

    def sized(self, w):
        """`w` as an array (..., D)."""
        w = np.asarray(w)
        if w.ndim == 0 or w.shape[-1] != self.D:
            raise ValueError(f"w must be (..., {self.D}) for {self!r}; got {w.shape}")
        return w

    def bend(self, times, sd):
        """What w has of H L for a diagonal L: diag(H) sd, (..., M, d).

        `times` takes rows V (k, d) to H V, (..., M, k, d). A few unit vectors at a time, so that no
        d x d matrix is built.
        """
        found = []
        for first in range(0, self.dim, COLUMNS):
            k = np.arange(first, min(first + COLUMNS, self.dim))
            unit = np.zeros((len(k), self.dim))
            unit[np.arange(len(k)), k] = 1.0
            found.append(times(unit)[..., np.arange(len(k)), k])  # (..., M, k)
        return np.concatenate(found, -1) * sd[..., None, :]


class Unconstrained(Family):
    """w holds logarithms or logits, so that every w is legal; coordinates do not mix."""

    required = {
        "log_density": "log q_w(z) that autograd can differentiate in w and z",
        "cross": "E_{q_w} log q_v, (...)",
        "cross_grad": "its gradient in w, v held fixed, (..., D)",
    }
    required_for_quadratics = {
        "moments_grad": "gradients of mean and standard deviation in w, (..., D / d, d) each",
    }
    far = LARGEST

    def start(self, runs=()):
        """All parameters of w zero, as (*runs, D)."""
        return np.zeros((*runs, self.D))

    def check(self, w):
        w = super().check(w)
        if not np.all(np.abs(w) <= LARGEST):  # catches NaN too
            where = np.argwhere(~(np.abs(w) <= LARGEST))[0].tolist()
            raise ValueError(
                f"w is {w[tuple(where)]} at {where}: it holds logarithms or logits, which must lie "
                f"between -{LARGEST:g} and {LARGEST:g}; take a smaller step"
            )
        return w

    def log_q(self, w, z):
        """log q_w(z) for w (..., D) and z (..., M, d), as (..., M)."""
        return self.log_density(self.check(w)[..., None, :], z)

    def entropy(self, w):
        """-E_q log q_w, (...)."""
        w = self.check(w)
        return -self.cross(w, w)

    def prior(self, *parameters):
        """log p(z) of the same family, for Model: E_q log p(z) then has a closed form."""
        return FamilyPrior(self, self.check(self.pack(*parameters)))

    def chain(self, draw, slope, bend):
        """grad_w E_q f for quadratic f: slope (..., M, d) = f' at the mean, bend = sd f''."""
        dm, ds = self.moments_grad(draw.w)  # (..., k, d)
        dm, ds = dm[..., None, :, :], ds[..., None, :, :]
        each = slope[..., None, :] * dm + bend[..., None, :] * ds  # (..., M, k, d)
        return each.reshape(*each.shape[:-2], -1)


class FamilyPrior:
    """log q_v(z) with fixed v, callable like any log-prior."""

    def __init__(self, q, v):
        self.q, self.v = q, v

    def __call__(self, z):
        return self.q.log_density(self.v, z)


def check_fit(model, q):
    """An error unless `model` is a model and q a law of its z."""
    if not isinstance(model, Model):
        raise TypeError(f"{type(model).__name__} is no model such as models.logistic_regression")
    if not isinstance(q, Family):
        raise TypeError(f"{q!r} is no family: write families.Gaussian(model.dim), for example")
    if model.dim != q.dim:
        raise ValueError(
            f"{model!r} does not fit {q!r}, a law of {q.dim} dimensions: take one of {model.dim}"
        )
