"""Training a surrogate along the way: RELAX (Grathwohl et al. 2018), for chapters 6 and 17."""

from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad

from cvlib.draws import Draw
from cvlib.recipe.approximations import Surrogate
from cvlib.recipe.estimators import Estimator


def network(dim: int, hidden: int, rng: np.random.Generator) -> tuple[Callable, np.ndarray]:
    """A small network and its first weights: s(phi, z) = B.tanh(A z + a), phi one flat vector.

    The last layer starts at 0, so that the surrogate starts as the zero function.
    """
    shapes = [(dim, hidden), (hidden,), (hidden,)]
    ends = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])
    phi = np.concatenate([rng.standard_normal(ends[2]) / np.sqrt(dim), np.zeros(hidden)])

    def s(phi, z):
        A, a, B = (
            anp.reshape(phi[i:j], shape)
            for i, j, shape in zip(ends, ends[1:], shapes, strict=False)
        )
        return anp.dot(anp.tanh(anp.dot(z, A) + a), B)

    return s, phi


def variance_gradient(
    g: np.ndarray, s: Callable, phi: np.ndarray, line: Callable[[Callable], Estimator], draw: Draw
) -> np.ndarray:
    """Gradient in phi of mean_m |g_m|^2, where g = h + ... - c and c is `line(s_phi)`: (P,).

    The mean of g does not depend on phi, so this is an unbiased gradient of its variance from the
    samples of one draw. `g` (..., M, D) are the gradients at phi; `line` makes the control variate
    from a function, e.g. lambda s: GR(surrogate(f, s)) - RP1(surrogate(f, s)).
    c is linear in s: c = sum over its parts of s(points) score + pull(slope of s), and so is the
    derivative: weigh values by g.score and slopes by the adjoint of the pull, applied to g.
    """
    parts = line(lambda z: s(phi, z))
    if not isinstance(parts, Estimator) or not parts.is_control_variate:
        raise ValueError(f"line must make a control variate from a function; it made {parts!r}")
    weights = []
    for (method, atom), coef in parts.parts.items():
        if isinstance(atom, Surrogate):
            if method.rows:
                raise ValueError(f"{method} compares samples: variance_gradient takes SF, RP1, GR")
            route = method.goes(draw.q, atom.space)
            points = draw.at(route.at)
            by_value = by_slope = None
            if route.score:
                by_value = coef * (g * draw.of(route.score)).sum(-1)
            if route.pull:
                by_slope = coef * _adjoint(draw, route.pull, g, points.shape)
            weights.append((points, by_value, by_slope))

    def inner(phi):
        """-2 g.c_phi with g held fixed, summed over samples."""
        total = 0.0
        for points, by_value, by_slope in weights:
            if by_value is not None:
                total = total - 2 * anp.sum(by_value * s(phi, points))
            if by_slope is not None:
                slope = elementwise_grad(lambda z: s(phi, z))(points)
                total = total - 2 * anp.sum(by_slope * slope)
        return total

    return grad(inner)(phi) / (g.size / g.shape[-1])


def _adjoint(draw, pull, g, shape):
    """pull^T g, (..., M, d), from the pull of each unit vector."""
    pull = getattr(draw.q, pull)
    units = (np.broadcast_to(e, shape) for e in np.eye(shape[-1]))
    return np.stack([(pull(draw, e) * g).sum(-1) for e in units], -1)
