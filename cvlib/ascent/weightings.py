"""Weight rules: what weights the control variates get."""

from dataclasses import dataclass

import numpy as np

from ..arguments import number, numbers
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
