"""What a family of the reader's own says is tried once, on a few of its draws and on many.

Gradients are held to differences, the density to the transform by its determinant, and means to the
family's own draws.
"""

from functools import cache
from typing import Any

import numpy as np

from ..draws import Draw
from ..models import checks

DRAWS, LEAST = 4_000, 1_000  # for means; where w is too long for these many they are not tried
CHUNK = 2**19  # numbers that draws may make
SQUARE, BOX = 60, 3  # unknowns up to which a determinant, and the mass of a box, are looked at
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
    _points(q, few, v)
    for name, slope, f in _gradients(q, few, v, *rng.standard_normal((2, 3, q.dim))):
        at = np.broadcast_to(w, (3, q.D))
        slope = np.broadcast_to(slope, at.shape)
        checks.differences(f"{name} of {q!r} has along w", slope, f, at, CURE)
    if q.quadratics and not q.gaussian and q.smooth == "z":
        _moments(q, w, few.z[0])
    n = min(DRAWS, CHUNK // q.D)
    for says, said, seen in _means(q, w, v, n, rng) if n >= LEAST else ():
        error = FAR * seen.std(0) / np.sqrt(n)
        checks.means(says, said, seen.mean(0), CURE, error)


def _points(q, few, v):
    """z, log q and determinants at a few draws."""
    w, eps = few.w[None], few.eps
    z, log_q = q.transform(w, eps), q.log_density(w, few.z)
    checks.means(f"z1 of {q!r} is", few.z, z, CURE)
    checks.means(f"log_q1 of {q!r} is", q.log_q1(few), log_q, CURE)
    if not q.fixed_base or q.noise_dim != q.dim or q.dim > SQUARE:
        return
    stretch = lambda at: np.array([_stretch(q, at, e) for e in eps])
    base = lambda at: q.log_density(at, q.transform(at, eps)) + stretch(at)
    says = f"log_density of {q!r} at transform, and its log |det|, together are"
    checks.means(says, base(w), base(v[None]), f"they must not depend on w: {CURE}", 1e-4)
    if q.mapped is not None:
        checks.means(f"z by mapped of {q!r} is", q.mapped(w, eps)[0], z, CURE)
        checks.means(
            f"log |det| by mapped of {q!r} is", q.mapped(w, eps)[1], stretch(w), CURE, 1e-4
        )


def _stretch(q, w, e):
    """log |det dz / de| at one base sample, by differences."""
    step = 1e-5 * np.eye(q.dim)
    return np.linalg.slogdet((q.transform(w, e + step) - q.transform(w, e - step)) / 2e-5)[1]


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


def _moments(q, w, z):
    """Mean and sd of two coordinates by quadrature, the others as in z (d,): they do not mix."""
    mean, sd = q.mean(w), q.sd(w)
    x = np.linspace(-300, 300, 24_001)  # a tail like z^-3.05 needs z of 1e130
    for k in {0, q.dim - 1}:
        away = np.sinh(x) * sd[k]
        at = np.tile(z, (len(x), 1))
        at[:, k] = mean[k] + away
        log_p = q.log_density(w[None], at) + np.log(np.cosh(x))
        p = np.exp(log_p - log_p.max())
        found = [p @ f / p.sum() for f in (at[:, k], away**2)]
        checks.means(f"mean of {q!r} is", mean[k], found[0], CURE, 1e-3 * sd[k])
        checks.means(f"sd of {q!r} is", sd[k], np.sqrt(found[1]), CURE, 1e-3 * sd[k])


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
