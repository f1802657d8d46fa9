"""Rules as values: what a step makes of a gradient, what weights the control variates get.

A rule is a value without a memory of its own. What it has to remember goes in and comes out, as a
tuple of arrays and numbers, so that a run can be saved and gone on with. Leading axes are runs.
"""

from dataclasses import dataclass

import numpy as np

from .. import combine
from ..arguments import number, numbers
from ..families.base import Family

__all__ = ["Ascent", "Weighting", "adam", "bayes", "falling", "fixed", "momentum", "natural"]
REACH = 3.0  # standard deviations of q that the mean may move, the root mean square of them
Rate = float | np.ndarray  # of one step, a number or (..., 1)


class Ascent:
    """What becomes of w. A rule of one's own is a subclass with `start` and `step`."""

    def start(self, q: Family, w: np.ndarray) -> tuple:
        """The memory before the first step, at w (..., D)."""
        return ()

    def step(
        self, memory: tuple, w: np.ndarray, g: np.ndarray, rate: Rate, q: Family, N: int
    ) -> tuple[np.ndarray, tuple]:
        """The next w (..., D) and the next memory.

        g (..., D) estimates the gradient of ELBO / N at w, so N g is that of the ELBO. `rate` is
        a number, or (..., 1) with one a run. Arrays that come in are not to be changed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step")


@dataclass(frozen=True)
class momentum(Ascent):
    """v <- beta v + (1 - beta) g, w <- w + rate v: the rule of the paper. Plain steps: beta = 0."""

    beta: float = 0.9

    def __post_init__(self):
        number("momentum", self.beta, 0, 1)

    def start(self, q, w):
        return (np.zeros_like(w),)

    def step(self, memory, w, g, rate, q, N):
        (v,) = memory
        v = self.beta * v + (1 - self.beta) * g
        return w + rate * v, (v,)


@dataclass(frozen=True)
class adam(Ascent):
    """w <- w + rate m / (sqrt(s) + eps), with m and s moving means of g and g^2 (Kingma and Ba).

    Both means start at 0; divided by 1 - b1^t and 1 - b2^t after t steps they have no pull to it.
    """

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self):
        number("b1", self.b1, 0, 1), number("b2", self.b2, 0, 1)
        number("eps", self.eps, 0, above=True)

    def start(self, q, w):
        return np.zeros_like(w), np.zeros_like(w), 1.0, 1.0  # m, s, b1^t, b2^t

    def step(self, memory, w, g, rate, q, N):
        m, s, b1_t, b2_t = memory
        b1_t, b2_t = self.b1 * b1_t, self.b2 * b2_t
        m = self.b1 * m + (1 - self.b1) * g
        s = self.b2 * s + (1 - self.b2) * g**2
        move = m / (1 - b1_t) / (np.sqrt(s / (1 - b2_t)) + self.eps)
        return w + rate * move, (m, s, b1_t, b2_t)


@dataclass(frozen=True)
class natural(Ascent):
    """The natural gradient of a Gaussian q; the rate is rho, of which 1 is a full Newton step.

    Sigma^-1 <- L^-T S L^-1, mu <- mu + rho Sigma grad_mu ELBO with the new Sigma. With P the
    curvature in q's own coordinates, S = (I + (I + rho (P - I))^2) / 2, which is positive definite
    whatever noise P has (Lin, Schmidt and Khan 2020). positive=False takes S = I + rho (P - I)
    (variational online Newton, Khan and Rue 2023): a run where noise makes it indefinite diverges.

    A step in mu of more than `reach` standard deviations of q, in the root mean square over the
    coordinates, is cut to that length: it would leave the region where q has looked at the
    curvature. A diagonal q cuts every coordinate for itself. The memory counts such steps.

    With noise and a fixed rho the ELBO rests rho / 4 tr(F^-1 Var g) below its best, F the Fisher
    matrix.
    """

    positive: bool = True
    reach: float = REACH

    def __post_init__(self):
        number("reach", self.reach, 0, above=True)

    def start(self, q, w):
        if not q.gaussian:
            raise ValueError(
                f"rules.natural needs a Gaussian family, not {q!r}: only there is the natural "
                "gradient a function of the ordinary one; take rules.adam() or rules.momentum()"
            )
        return (np.zeros(w.shape[:-1], int),)

    def step(self, memory, w, g, rate, q, N):
        (cut,) = memory
        factor, d = q.unpack(w)[1], q.dim
        c = N * q.times_t(factor, g[..., None, :d])[..., 0, :]
        A = q.curvature(factor, N * g[..., d:])
        w, too_long = newton(q, w, c, A, np.asarray(rate), self.reach, self.positive)
        return w, (cut + too_long,)


def newton(
    q: Family, w: np.ndarray, c: np.ndarray, A: np.ndarray, rho: Rate, reach: float = REACH,
    positive: bool = True,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The next w, and was its step in mu cut? From the ELBO's gradient in q's own coordinates.

    c = L^T grad_mu (..., d), and A = I - P, P the curvature (..., d, d), or (..., d) if q is
    diagonal; rho is a number, or (..., 1).
    """
    mu, factor = q.unpack(w)
    K = q.change(A, rho, positive)
    factor = q.compose(factor, K)
    v = rho * q.times_t(K, c[..., None, :])[..., 0, :]  # the step in units of q
    before = q.times(K, v[..., None, :])[..., 0, :]  # in units of the q before it
    far = np.abs(before) if not q.full else np.sqrt((before**2).mean(-1, keepdims=True))
    mu = mu + q.times(factor, (v / np.maximum(far / reach, 1.0))[..., None, :])[..., 0, :]
    return q.joined(mu, factor), (far > reach).any(-1)


@dataclass(frozen=True)
class falling:
    """A rate that falls: `first` up to the step `after`, then first (after / t)^power.

    `first` is a number, or an array with one a run.
    """

    first: float | np.ndarray
    after: int
    power: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "first", numbers("first", self.first, 0))
        number("after", self.after, 0, above=True), number("power", self.power, 0)

    def __call__(self, t: int) -> float | np.ndarray:
        return self.first * min(1.0, (self.after / t) ** self.power)


# Weights of control variates ----------------------------------------------------------------------


class Weighting:
    """What weights L control variates get. One's own is a subclass with these three functions."""

    def start(self, q: Family, L: int, runs: tuple) -> tuple:
        """The memory before the first step."""
        return ()

    def weights(self, memory: tuple, q: Family, N: int) -> np.ndarray:
        """Weights from what was seen in the steps before: (..., L), or (..., L, D).

        Gradients are those of the ELBO, N times those of ELBO / N.
        """
        raise NotImplementedError(f"{type(self).__name__} has no weights")

    def update(self, memory: tuple, h: np.ndarray, C: np.ndarray, q: Family) -> tuple:
        """The memory after one more step, with h (..., M, D) and C (..., L, M, D)."""
        return memory


@dataclass(frozen=True)
class bayes(Weighting):
    """The Bayesian rule on moving moments: one weight a variate.

    v0, a number or an array that broadcasts against the runs, belongs to the gradient of ELBO / N;
    0 trusts the moments as if they were the true ones. gamma is their forgetting at each step.
    """

    v0: float | np.ndarray = 1e-3
    gamma: float = 0.02

    def __post_init__(self):
        object.__setattr__(self, "v0", numbers("v0", self.v0, 0))
        number("gamma", self.gamma, 0, 1)

    def start(self, q, L, runs):
        return combine.start(L, runs)

    def weights(self, memory, q, N):
        return combine.bayes_weights(memory, self.v0 * N**2, q.D)

    def update(self, memory, h, C, q):
        return combine.update(combine.Moments(*memory), h, C, self.gamma)


@dataclass(frozen=True)
class fixed(Weighting):
    """Weights that never change: a number for all (0: no variates), (L,), or (..., L)."""

    a: float | np.ndarray

    def __post_init__(self):
        object.__setattr__(self, "a", numbers("a", self.a))

    def start(self, q, L, runs):
        try:
            np.broadcast_to(self.a, (*runs, L))
        except ValueError:
            raise ValueError(
                f"fixed weights of shape {np.shape(self.a)}, but {L} variates in runs of shape "
                f"{runs}: give one number, {L}, or {(*runs, L)}"
            ) from None
        return (np.zeros((*runs, L)),)

    def weights(self, memory, q, N):
        return memory[0] + self.a
