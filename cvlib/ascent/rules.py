"""Rules as values: what a step makes of a gradient, what weights the control variates get.

A rule is a value without a memory of its own. What it has to remember goes in and comes out, as a
tuple of arrays and numbers, so that a run can be saved and gone on with. Leading axes are runs.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arguments import number, numbers
from ..combining import combine, regression
from ..combining.regression import Gauge, Move, Quadratic
from ..draws import Draw
from ..families.base import Family

__all__ = [
    "Ascent", "Weighting", "adam", "bayes", "falling", "fixed", "matching", "momentum", "natural",
    "quadratics",
]  # fmt: skip
REACH = 3.0  # standard deviations of q that the mean may move, the root mean square of them
LOST = 2**20  # s, from which on a run of `turning` is
Rate = float | np.ndarray  # of one step, a number or (..., 1)


class Ascent:
    """What becomes of w. A rule of one's own is a subclass with `start` and `step`.

    A rule that looks at samples of a Gaussian q and not at a gradient sets `on_scores`, and has
    `match` in place of `step`.
    """

    on_scores: bool = False

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

    def match(
        self, memory: tuple, w: np.ndarray, draw: Draw, scores: np.ndarray, rate: Rate, q: Family
    ) -> tuple[np.ndarray, tuple]:
        """The next w and memory from the samples of a draw, in the coordinates of q.

        scores (..., M, d) are L^T grad_z log p(x, z) at z = mu + L draw.eps, the data that a sample
        sees standing for all. In a run that is thrown out they are zero.
        """
        raise NotImplementedError(f"{type(self).__name__} has no match")


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

    def __call__(self, t: int) -> float | np.ndarray:
        return self.first * min(1.0, (self.after / t) ** self.power)


# On the ensemble of all quadratics ----------------------------------------------------------------
#
# Both rules look at the same things, base draws e and scores G = L^T grad log p(x, z) in q's own
# coordinates; `combining.regression` has the mathematics. No rate is to be chosen.


@dataclass(frozen=True)
class matching(Ascent):
    """Batch and match (Cai et al. 2024): the q whose scores are nearest to p's at the draws.

    Positive definite by construction, and quick from far away. It minimises another divergence
    than the ELBO: take a few moves, and go on with another rule. The pull towards the present q
    has weight t / (M d) in step t; the rate is not looked at.
    """

    on_scores = True

    def start(self, q: Family, w: np.ndarray) -> tuple:
        return (np.zeros(w.shape[:-1]),)

    def match(self, memory, w, draw, scores, rate, q):
        t = memory[0] + 1
        return _moved(q, w, _matched(draw, scores, t)), (t,)


@dataclass(frozen=True)
class quadratics(Ascent):
    """Natural steps on the regression of slopes on draws: for a diagonal q, or few draws.

    The slopes of data + prior - variational are regressed on the draws, for each draw on the
    others, with the ridge that the gauge of the step before asks for, so that the gradient is
    unbiased. rho = rate / s, a rate above one counting as one, and s counts the steps at rest,
    those after which more of the step was noise than rho allows (`at_rest`): once there, the run is
    an average over all steps since. The rho of a diagonal q is at most `diagonal`: coordinates that
    lean on each other move each as if alone, and in sum too far. A full q begins at the mode, or
    with first moves by `matching`; with 2 d + 1 draws or more, rotated ones are better.
    """

    reach: float = REACH
    diagonal: float = 0.5
    on_scores = True

    def __post_init__(self):
        number("reach", self.reach, 0, above=True)
        number("diagonal", self.diagonal, 0, above=True)

    def start(self, q: Family, w: np.ndarray) -> tuple:
        runs, slopes = w.shape[:-1], q.dim if q.full else 1
        return np.zeros(runs), np.full(runs, slopes / 10)  # s, first ridge

    def match(self, memory, w, draw, scores, rate, q):
        s, ridge = memory
        seen = regression.gauge(draw.eps, scores, draw.group, not q.full)
        regress = regression.regress if q.full else regression.diagonal(regression.regress)
        found = regress(draw.eps, scores + draw.eps, ridge, group=draw.group)
        s = s + at_rest(seen, found, s)
        rho = np.minimum(rate if np.ndim(rate) == 0 else rate[..., 0], 1.0) / np.maximum(s, 1)
        rho = rho if q.full else np.minimum(rho, self.diagonal)
        moved = newton(q, w, found.c, found.A, rho[..., None], self.reach)[0]
        return moved, (s, regression.shrinkage(seen, q.dim if q.full else 1))


def at_rest(seen: Gauge, found: Quadratic, s: np.ndarray) -> np.ndarray:
    """Is rho = 1 / s no smaller than the best gain, signal / (signal + noise)? (...)

    The gauge is the signal, the squared length of the gradient; that of its estimate, `found`, is
    signal + noise. It must hold for slope and curvature alike. A run that is still on its way has
    more signal than that, and rho does not fall (Kesten 1958 reads it off the signs of the steps).
    """
    squares = (found.A**2).reshape(*found.c.shape[:-1], -1).sum(-1)
    slope = s * seen.slope <= np.vecdot(found.c, found.c)
    return slope & (s * seen.curvature <= squares)


def _matched(draw, scores, t):
    """The first moves' step number t, (...)."""
    f = regression.match if draw.q.full else regression.diagonal(regression.match)
    return f(draw.eps, scores, draw.M * draw.q.dim / t)


def _moved(q: Family, w: np.ndarray, move: Move) -> np.ndarray:
    mu, factor = q.unpack(w)
    mu = mu + q.times(factor, move.shift[..., None, :])[..., 0, :]
    return q.joined(mu, q.compose(factor, move.K))


# On rotated draws ---------------------------------------------------------------------------------


class Last(NamedTuple):
    """Where the last believed step began, what it saw there, and s: the next has rho = 1 / s."""

    s: Any
    elbo: Any
    c: Any  # (d,) slope and
    A: Any  # (d, d) curvature of the ELBO, in q's own units
    mu: Any  # (d,)
    L: Any  # (d, d)


@dataclass(frozen=True)
class turning(Ascent):
    """Natural steps whose rho falls when two of them point against each other (Kesten 1958).

    With rho a step's gradient g is followed by (1 - rho) of its signal less rho of its noise. So
    g.g' < 0 says that rho is larger than the best gain, signal / (signal + noise), and s grows by
    one. Where the ELBO has fallen by a nat more than a step promised to gain, or is no number, the
    step is taken again from where it began, at half of its rho.
    """

    def start(self, q: Family, w: np.ndarray) -> tuple:
        mu, L = q.unpack(w)
        return Last(np.ones(()), np.array(-np.inf), np.zeros(q.dim), np.zeros_like(L), mu, L)


def believed(xp: Any, new: Last, old: Last) -> Last:
    """What a step saw, or what the one before it did, at half of its rho."""
    slack = 1 + (old.c**2).sum() / 2 + (old.A**2).sum() / 4  # what the step promised to gain
    fine = (new.elbo > old.elbo - slack) & xp.isfinite(new.A).all() & xp.isfinite(new.c).all()
    against = new.c @ old.c + (new.A * old.A).sum() / 2 < 0  # in Fisher's metric
    first = ~xp.isfinite(old.elbo)  # log p is no number at draws of the first q: half as wide
    L = xp.where(first, new.L / 2, old.L)
    kept = old._replace(s=2 * old.s, elbo=old.elbo - slack, mu=xp.where(first, new.mu, old.mu), L=L)
    new = new._replace(s=old.s + against)
    return Last(*(xp.where(fine, x, y) for x, y in zip(new, kept)))


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
