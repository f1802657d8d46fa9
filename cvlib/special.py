"""Special functions of autograd, imported when asked for, and what it lacks."""

from collections.abc import Callable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad
from autograd.extend import defvjp, primitive

LOG_2PI = np.log(2 * np.pi)


@cache
def _of_autograd() -> Any:
    """autograd's special functions, without the rest of autograd.scipy: that brings scipy.stats."""
    path = Path(autograd.__file__).parent / "scipy/special.py"
    spec: Any = spec_from_file_location("autograd_special", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _late(name):
    """autograd's function of this name, looked up when it is called."""

    def function(*args, **kwargs):
        return getattr(_of_autograd(), name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name  # so that it can be pickled
    return function


gammaln, psi, polygamma, betaln, expit, logsumexp = map(
    _late, ("gammaln", "psi", "polygamma", "betaln", "expit", "logsumexp")
)


@primitive
def at(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """x[index] for x (n,) and whole numbers of any shape. Its slope is a sum, in one pass."""
    return np.take(x, index)


@primitive
def _summed(g, index, n):
    """Entry k is the sum of g where index is k, (n,)."""
    return np.bincount(np.ravel(index), np.ravel(g), minlength=n)


defvjp(at, lambda ans, x, index: lambda g: _summed(g, index, len(x)), None)
defvjp(_summed, lambda ans, g, index, n: lambda u: at(u, index), None, None)


def hess_times(f: Callable, z: np.ndarray, v: np.ndarray) -> np.ndarray:
    """grad^2 f(z) v for rows z and v (..., d) of an f that autograd differentiates row by row."""
    slope = elementwise_grad(f)
    # + 0 z: autograd warns of a slope that does not depend on z, as that of a linear f
    return grad(lambda z: anp.sum(slope(z) * v + 0 * z))(z)
