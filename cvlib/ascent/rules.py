"""Rules as values: what a step makes of a gradient, what weights the control variates get, and
when a snapshot of the data term is renewed.

A rule is a value without a memory of its own. What it has to remember goes in and comes out, as a
tuple of arrays and numbers, so that a run can be saved and gone on with. Leading axes are runs.
"""

from dataclasses import dataclass

import numpy as np

from ..arguments import number, numbers, whole
from ..combining import combine
from ..families.base import Family

Rate = float | np.ndarray  # of one step, a number or (..., 1)


class Ascent:
    """What becomes of w. A rule of one's own is a subclass with `start` and `step`.

    A rule that looks at samples of a Gaussian q and not at a gradient sets `on_scores`, and has
    `match` in place of `step`.
    """

    on_scores: bool = False
    in_units_of_q: bool = False  # does it measure gradients by Fisher's matrix?

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
        self, memory: tuple, w: np.ndarray, eps: np.ndarray, scores: np.ndarray, rate: Rate,
        q: Family,
    ) -> tuple[np.ndarray, tuple]:  # fmt: skip
        """The next w and memory from M samples z = mu + L eps, in the coordinates of q.

        eps and scores are (..., M, d); scores are L^T grad_z log p(x, z), the data that a sample
        sees standing for all. In a run that is thrown out they are zero.
        """
        raise NotImplementedError(f"{type(self).__name__} has no match")

    def looks_at_scores(self, memory: tuple) -> bool:
        """Is the next step one of `match`?"""
        return self.on_scores

    def average(self, mean: np.ndarray, w: np.ndarray, count: int, q: Family) -> np.ndarray:
        """The mean of the last `count` weights, from that of all but the newest, w."""
        return mean + (w - mean) / count


@dataclass(frozen=True)
class plain(Ascent):
    """w <- w + rate g."""

    def step(self, memory, w, g, rate, q, N):
        return w + rate * g, memory


@dataclass(frozen=True)
class momentum(Ascent):
    """v <- beta v + (1 - beta) g, w <- w + rate v: the rule of the paper, from v = 0."""

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
        number("b1", self.b1, 0, 1)
        number("b2", self.b2, 0, 1)
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

    A step in mu of more than `reach` sqrt(d) standard deviations of q is cut to that length: it
    would leave the region where q has looked at the curvature. The memory counts such steps.

    With noise and a fixed rho the ELBO rests rho / 4 tr(F^-1 Var g) below its best, F the Fisher
    matrix. There the mean of Sigma is right to first order in rho (positive=False: that of
    Sigma^-1). `average` takes the mean of w, which for a log-concave model is never worse than the
    mean of the ELBOs: the signs of L's diagonal stay, and the ELBO is concave in (mu, L).
    """

    positive: bool = True
    reach: float = 3.0
    in_units_of_q = True

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
        rho, d = np.asarray(rate), q.dim
        mu, factor = q.unpack(w)
        g_mu, g_factor = N * g[..., :d], N * g[..., d:]
        K = q.change(q.curvature(factor, g_factor), rho, self.positive)
        factor = q.compose(factor, K)
        v = rho * q.times_t(factor, g_mu[..., None, :])[..., 0, :]  # the step in units of q
        before = q.times(K, v[..., None, :])[..., 0, :]  # in units of the q before it
        length = np.sqrt(np.vecdot(before, before)) / (self.reach * np.sqrt(d))
        mu = mu + q.times(factor, (v / np.maximum(length, 1.0)[..., None])[..., None, :])[..., 0, :]
        return q.joined(mu, factor), (cut + (length > 1),)


@dataclass(frozen=True, eq=False)
class stretched(Ascent):
    """Another rule in the coordinates u of z = S u, S (d, d) lower triangular or (d,) diagonal.

    mu and L of q in z are S times those in u, so a gradient goes there by S^T and a step comes back
    by S: neither the model nor the recipe notices. For rules that add a step whatever w is, such as
    `adam`, and a Gaussian q; a diagonal q takes a diagonal S.
    """

    rule: Ascent
    S: np.ndarray

    def start(self, q, w):
        return self.rule.start(q, w)

    def step(self, memory, w, g, rate, q, N):
        g_mu, G = q.unpack(g)
        S_t = np.swapaxes(self.S, -1, -2) if q.full else self.S
        g = q.joined(q.times_t(self.S, g_mu[..., None, :])[..., 0, :], q.compose(S_t, G))
        move, memory = self.rule.step(memory, np.zeros_like(w), g, rate, q, N)
        mu, factor = q.unpack(move)
        mu = q.times(self.S, mu[..., None, :])[..., 0, :]
        return w + q.joined(mu, q.compose(self.S, factor)), memory


@dataclass(frozen=True)
class first(Ascent):
    """One rule for the first `moves` steps, then another. Both remember from the start."""

    moves: int
    rule: Ascent
    then: Ascent

    def __post_init__(self):
        whole("moves", self.moves)
        for rule in (self.rule, self.then):
            if not isinstance(rule, Ascent):
                raise TypeError(f"{rule!r} is no ascent rule such as rules.adam()")

    @property
    def on_scores(self):
        return self.rule.on_scores or self.then.on_scores

    @property
    def in_units_of_q(self):
        return self.then.in_units_of_q

    def start(self, q, w):
        begin, rest = self.rule.start(q, w), self.then.start(q, w)
        return 0, len(begin), *begin, *rest  # steps taken, and where the second memory begins

    def looks_at_scores(self, memory):
        rule, own, _ = self._present(memory)
        return rule.looks_at_scores(own)

    def step(self, memory, w, g, rate, q, N):
        rule, own, after = self._present(memory)
        w, own = rule.step(own, w, g, rate, q, N)
        return w, after(own)

    def match(self, memory, w, eps, scores, rate, q):
        rule, own, after = self._present(memory)
        w, own = rule.match(own, w, eps, scores, rate, q)
        return w, after(own)

    def average(self, mean, w, count, q):
        return self.then.average(mean, w, count, q)

    def _present(self, memory):
        """The rule in force, its memory, and what makes of its next memory that of both."""
        t, n, *both = memory
        begin, rest = tuple(both[: int(n)]), tuple(both[int(n) :])
        if t < self.moves:
            return self.rule, begin, lambda own: (t + 1, n, *own, *rest)
        return self.then, rest, lambda own: (t + 1, n, *begin, *own)


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
    gamma is the forgetting of the moments at each step.
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
class blocks(bayes):
    """The Bayesian rule block by block: one weight a variate for mu, one for the factor.

    The blocks are `q.blocks`; a family with one block gets what `bayes` gives it.
    """

    def start(self, q, L, runs):
        return combine.start(L, (*runs, len(q.blocks)))

    def weights(self, memory, q, N):
        return combine.block_weights(memory, self.v0 * N**2, q.blocks)

    def update(self, memory, h, C, q):
        new = combine.by_block(h, C, q.blocks)
        return combine.follow(combine.Moments(*memory), new, self.gamma)


def empirical(gamma: float = 0.02) -> bayes:
    """The best weights of the moving moments themselves, as if they were the true ones: v0 = 0."""
    return bayes(0.0, gamma)


@dataclass(frozen=True)
class fixed(Weighting):
    """Weights that never change: a number for all, (L,) with one a variate, or (..., L)."""

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


def none() -> fixed:
    """No weight for any variate: the base gradient alone."""
    return fixed(0.0)


class Renewal:
    """When the loop renews its snapshot of the data term. One's own is a subclass with `due`.

    `left` is the share of the noise that the variates left in a step: the scatter over its samples
    of h + C a, over that of h. Rules that look at it set `measures`.
    """

    measures: bool = False

    def start(self) -> np.ndarray:
        """The memory of a new snapshot."""
        return np.zeros(0)

    def seen(self, memory: np.ndarray, left: float) -> np.ndarray:
        """The memory after one more step."""
        return memory

    def due(self, t: int, memory: np.ndarray) -> bool:
        """Is a new snapshot due after t steps? Before the first step one always is."""
        raise NotImplementedError(f"{type(self).__name__} has no due")


@dataclass(frozen=True)
class every(Renewal):
    """After 1, 2, 4, 8 ... steps, for w moves fast at first, and from step K on every K steps."""

    K: int

    def __post_init__(self):
        whole("renew", self.K)

    def due(self, t, memory):
        return t % self.K == 0 or (t < self.K and _power_of_two(t))


@dataclass(frozen=True)
class worn(Renewal):
    """When the variates leave more than `factor` times what they left beside a new snapshot.

    What they left then is the mean over `fresh` steps, what they leave now a moving mean of about
    as many; a hundredth of all noise more or less does not count. Also after 1, 2, 4, 8 ... steps.
    """

    factor: float = 1.5
    fresh: int = 5
    measures = True

    def __post_init__(self):
        number("factor", self.factor, 1)
        whole("fresh", self.fresh)

    def start(self):
        return np.zeros(3)  # steps seen, left when new, left now

    def seen(self, memory, left):
        n, new, now = memory
        now = now + (left - now) / min(n + 1, self.fresh)
        return np.array([n + 1, now if n < self.fresh else new, now])

    def due(self, t, memory):
        n, new, now = memory
        return _power_of_two(t) or (n > self.fresh and now > self.factor * new + 0.01)


def _power_of_two(t):
    return t & (t - 1) == 0
