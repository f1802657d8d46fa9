"""Weight rules: what weights the control variates get; and when a snapshot is renewed."""

from dataclasses import dataclass

import numpy as np

from ..arguments import number, numbers, whole
from ..combining import combine
from ..families.base import Family


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


class Renewal:
    """When the loop renews its snapshot of the data term. One's own is a subclass with `due`.

    Rules that look at what the variates left of the noise in a step, the scatter over its samples
    of h + C a over that of h, set `measures`.
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
