"""What a family of the reader's own says is tried once, on a few of its draws and on many.

Gradients are held to differences, and the density and means to the family's own draws.
"""

from functools import cache
from typing import Any

import numpy as np

from ..draws import Draw
from ..models import checks

DRAWS, LEAST = 4_000, 1_000  # for means; where w is too long for these many they are not tried
CHUNK = 2**19  # numbers that draws may make
BOX = 3  # unknowns up to which the mass of a box is looked at
FAR = 8.0  # standard errors that a mean may be off: heavy tails have errors that are too small
HEAVY = 0.02  # share of a sum of squares that one draw may have: else it tells nothing
CURE = "mend it, or what it belongs to"


@cache
@np.errstate(all="ignore")
def hold(q: Any) -> None:
    """A ValueError if the family q is not what it says; looked at once for equal families."""
    rng = np.random.default_rng(0)
    w, v = (q.check(q.start() + 0.3 * rng.uniform(-1, 1, q.D)) for _ in range(2))
    few = Draw(None, q, w, q.noise(rng, w, 3), None)
    for name, slope, f in _gradients(q, few, v, *rng.standard_normal((2, 3, q.dim))):
        at = np.broadcast_to(w, (3, q.D))
        slope = np.broadcast_to(slope, at.shape)
        checks.differences(f"{name} of {q!r} has along w", slope, f, at, CURE)
    n = min(DRAWS, CHUNK // q.D)
    for says, said, seen in _means(q, w, v, n, rng) if n >= LEAST else ():
        error = FAR * seen.std(0) / np.sqrt(n)
        checks.means(says, said, seen.mean(0), CURE, error)


def _gradients(q, few, v, u, hess_L):
    """(name, gradient (3 or 1, D), the function of w (3, D) whose gradient it should be)."""
    yield "score", few.score, lambda w: q.log_density(w, few.z)
    for at, pull in ("z1", "pull1"), ("z2", "pull2"):
        if getattr(q, pull, None) is None:
            continue
        drawn = lambda w: Draw(None, q, w, few.eps, None)
        points = lambda w, at=at: np.stack([drawn(one).at(at)[k] for k, one in enumerate(w)])
        yield pull, getattr(q, pull)(few, u), lambda w, f=points: (u * f(w)).sum(-1)
    if q.closed_entropy:
        yield "entropy_grad", q.entropy_grad(few.w), q.entropy
    if q.cross is not None:
        v = np.broadcast_to(v, (3, q.D))
        yield "cross_grad", q.cross_grad(few.w, v[0]), lambda w: q.cross(w, v)
    if q.quadratics and not q.full:
        mean = lambda w: (u[0] * q.mean(w) + hess_L[0] * q.sd(w)).sum(-1)
        yield "chain", q.chain(few, u[:1], hess_L[:1]), mean


def _means(q, w, v, n, rng):
    """(what says a mean, that mean, draws of what it is the mean of)."""
    many = Draw(None, q, w, q.noise(rng, w, n), None)
    law = {"noise": many}
    if q.mirror is not None:
        law["mirror"] = Draw(None, q, w, q.mirror(w, many.eps), None)
    if q.quantile is not None:
        law["quantile"] = Draw(None, q, w, q.quantile(w, rng.random((n, q.noise_dim))), None)
    for name, drawn in law.items():
        yield f"the mean of {q!r}'s score at draws by {name} must be", 0.0, drawn.score
    score, z = many.score, many.z
    if q.smooth == "z" and q.dim <= BOX:
        says = f"the mass that log_density of {q!r} has beyond its draws must be"
        yield says, 0.0, _in_box(q, w, z, rng)
    if q.closed_moments:
        mean = q.mean(w)
        yield f"mean of {q!r} is", mean, z
        square = (z - mean) ** 2
        if (square.max(0) < HEAVY * square.sum(0)).all():
            yield f"the square of sd of {q!r} is", q.sd(w) ** 2, square
    if q.cross is not None:
        yield f"cross of {q!r} is", q.cross(w, v), q.log_density(v[None], z)
    if q.closed_entropy:
        yield f"entropy of {q!r} is", q.entropy(w), -q.log_q1(many)
    if q.fisher is not None:
        along, F = np.cos(np.arange(q.D)), q.fisher(w)
        said = along @ F @ along if F.ndim > 1 else along**2 @ F
        yield f"fisher of {q!r} is along w", said, (score @ along) ** 2


def _in_box(q, w, z, rng):
    """The mass of a box about a quarter of the draws z (n, d), by log q less by draws, (n,)."""
    width = np.subtract(*np.quantile(z, (0.75, 0.25), 0))
    centre = z[np.argmax(q.log_density(w[None], z))]
    far = np.abs((z - centre) / width).max(-1)
    edge = np.quantile(far, 0.25)
    evenly = centre + edge * width * rng.uniform(-1, 1, z.shape)
    return np.exp(q.log_density(w[None], evenly)) * np.prod(2 * edge * width) - (far < edge)
