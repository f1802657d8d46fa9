"""Natural steps of a full q on rotated draws: exact for every cubic log p, without a rate.

`points.on_spheres` has the mathematics of the draws.
"""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..arguments import whole
from ..models.density import Density
from ..points import frame, on_spheres, prime, uniform
from . import rules
from .plans import State, Unaided

LOST = 2**20  # s, from which on a run is


class Last(NamedTuple):
    """Where the last believed step began, what it saw there, and s: the next has rho = 1 / s."""

    s: Any
    elbo: Any
    c: Any  # (d,) slope and
    A: Any  # (d, d) curvature of the ELBO, in q's own units
    mu: Any  # (d,)
    L: Any  # (d, d)


@dataclass(frozen=True)
class Rotated(Unaided):
    """Steps of a full q on rotations with fixed radii, each apart from those of the steps before.

    rho falls when two steps point against each other (Kesten 1958): with rho a step's gradient g is
    followed by (1 - rho) of its signal less rho of its noise. So g.g' < 0 says that rho is larger
    than the best gain, signal / (signal + noise), and s grows by one. Where the ELBO has fallen by
    a nat more than a step promised to gain, or is no number, the step is taken again from where it
    began, at half of its rho.
    """

    _: KW_ONLY
    radii: int = 2  # exact in the mean for polynomials of degree 4 radii + 1
    turns: int = 1  # rotations for each

    def __post_init__(self):
        super().__post_init__()
        whole("radii", self.radii)
        whole("turns", self.turns)

    @cached_property
    def p(self) -> int:
        return prime(self.q.dim)

    @property
    def M(self) -> int:
        return 4 * self.p * self.radii * self.turns + 1

    def memory(self, w):
        mu, L = self.q.unpack(w)
        return Last(np.ones(()), np.array(-np.inf), np.zeros(len(L)), np.zeros_like(L), mu, L)

    def step(self, state: State) -> State:
        """The state after one more step, or after a narrower or shorter one where it misled."""
        q, old = self.q, Last(*state.memory)
        mu, L = q.unpack(state.w)
        turn, Q = self.rotations(state)
        e, weight = on_spheres(Q, self.radii)
        value, slope = Density(self.model).slope(mu + e @ L.T)
        with np.errstate(all="ignore"):
            elbo, c, A = _seen(L, e, weight, value, slope)
        new = believed(np, Last(old.s, elbo, c, A, mu, L), old)
        step = q, q.joined(new.mu, new.L), new.c, new.A, 1 / new.s, self.reach
        w, _ = rules.newton(*step, positive=False)  # exact, if the posterior is Gaussian
        if not np.isfinite(w).all():
            w, _ = rules.newton(*step)
        return self.moved(state._replace(moments=(turn,)), w, new, lost=new.s > LOST)

    def rotations(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """How all rotations are turned, anew once they are used up; the next step's (n, 2 p, d)."""
        n, K = self.radii * self.turns, 2 * self.p + 2
        step = state.t % max(K // n, 1)
        turn = state.moments[0] if step else uniform(state.rng, 1, 2 * self.p)[0, :, : self.q.dim]
        return turn, np.array([frame(self.p, k % K) @ turn for k in range(step * n, step * n + n)])


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


def _seen(
    L: np.ndarray, e: np.ndarray, weight: np.ndarray, value: np.ndarray, slope: np.ndarray
) -> tuple:
    """The ELBO but for a constant, and its slope c and curvature A in q's own units.

    A pair of points at which log p has no slope is taken as if q were right along it; no number
    comes of it where they have most of the weight.
    """
    G, half = slope @ L, len(e) // 2  # the last is the centre
    fine = np.isfinite(value) & np.isfinite(G).all(-1)
    fine[:-1] = np.tile(fine[:half] & fine[half:-1], 2)
    if weight @ fine > 0.5:
        value = np.where(fine, value, value[-1] - np.vecdot(e, e) / 2)
        G = np.where(fine[:, None], G, G[-1] - e)
    elbo = weight @ value + np.log(np.abs(np.diag(L))).sum()
    A = (weight[:, None] * G).T @ e
    return elbo, weight @ G, (A + A.T) / 2 + np.eye(len(L))  # I: of -log q, exactly
