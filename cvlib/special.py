"""What autograd lacks: special functions of scipy.special, and Hessians times vectors.

`autograd.scipy` has them too, but brings scipy.stats along.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f

LOG_2PI = np.log(2 * np.pi)


class _Scipy:
    """scipy, imported when a part of it is first asked for: `import cvlib` does without."""

    def __getattr__(self, name: str) -> Any:
        part = getattr(import_module("scipy"), name)
        setattr(self, name, part)
        return part


scipy: Any = _Scipy()


@primitive
def gammaln(x: np.ndarray) -> np.ndarray:
    """log |Gamma(x)|, of the shape of x."""
    return scipy.special.gammaln(x)


@primitive
def psi(x: np.ndarray) -> np.ndarray:
    """The derivative of gammaln."""
    return scipy.special.psi(x)


@primitive
def polygamma(n: int, x: np.ndarray) -> np.ndarray:
    """The n-th derivative of psi, n = 0, 1, 2, ..."""
    return scipy.special.polygamma(n, x)


@primitive
def betaln(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log Beta(a, b) = gammaln(a) + gammaln(b) - gammaln(a + b); a and b broadcast."""
    return scipy.special.betaln(a, b)


@primitive
def log_ndtr(x: np.ndarray) -> np.ndarray:
    """log of the standard normal distribution function, of the shape of x."""
    return scipy.special.log_ndtr(x)


@primitive
def at(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """x[index] for x (n,) and whole numbers of any shape. Its slope is a sum, in one pass."""
    return np.take(x, index)


@primitive
def _summed(g, index, n):
    """Entry k is the sum of g where index is k, (n,)."""
    return np.bincount(np.ravel(index), np.ravel(g), minlength=n)


def expit(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), for numbers alone: autograd does not see it."""
    return scipy.special.expit(x)


def logsumexp(
    x: np.ndarray, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> np.ndarray:
    """log sum exp x over an axis, several as a tuple, or all."""
    kept = _logsumexp(x, axis)
    return kept if keepdims else anp.squeeze(kept, axis)


@primitive
def _logsumexp(x, axis):
    """The axes stay, with length 1: the derivative then broadcasts by itself."""
    return scipy.special.logsumexp(x, axis=axis, keepdims=True)


defvjp(gammaln, lambda ans, x: lambda g: g * psi(x))
defvjp(psi, lambda ans, x: lambda g: g * polygamma(1, x))
defvjp(polygamma, None, lambda ans, n, x: lambda g: g * polygamma(n + 1, x))
defvjp(log_ndtr, lambda ans, x: lambda g: g * anp.exp(-0.5 * x**2 - 0.5 * LOG_2PI - log_ndtr(x)))
defvjp(at, lambda ans, x, index: lambda g: _summed(g, index, len(x)), None)
defvjp(_summed, lambda ans, g, index, n: lambda u: at(u, index), None, None)
defvjp(
    betaln,
    lambda ans, a, b: unbroadcast_f(a, lambda g: g * (psi(a) - psi(a + b))),
    lambda ans, a, b: unbroadcast_f(b, lambda g: g * (psi(b) - psi(a + b))),
)
defvjp(_logsumexp, lambda ans, x, axis: lambda g: g * anp.exp(x - ans))


def hess_times(f: Callable, z: np.ndarray, v: np.ndarray) -> np.ndarray:
    """grad^2 f(z) v for rows z and v (..., d) of an f that autograd differentiates row by row."""
    slope = elementwise_grad(f)
    # + 0 z: autograd warns of a slope that does not depend on z, as that of a linear f
    return grad(lambda z: anp.sum(slope(z) * v + 0 * z))(z)
