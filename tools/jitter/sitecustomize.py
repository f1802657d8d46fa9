"""Other arithmetic on any processor: every slope that autograd or a model gives is shaken.

    PYTHONPATH=$PWD/tools/jitter pytest --nbval book/your-own-model.ipynb

Python imports a module of this name by itself, if its folder is on the path, so that kernels and
workers have it, too. A number x becomes x (1 + 1e-13 u). u is random between -1 and 1 but told by
the bits of x and by CVLIB_JITTER, a whole number (1): the same slope is always shaken alike, as one
processor gives the same digits twice. Nobody may print what this changes.
"""

import os
import sys
from functools import wraps
from importlib.machinery import PathFinder

SIZE = 1e-13
SEED = int(os.environ.get("CVLIB_JITTER", "1"))
MODELS = {"cvlib.models": ("Model", "GLM"), "cvlib.adapters.jax": ("Compiled",)}


def shaken(x):
    """x (1 + SIZE u), entry by entry; what is no array of 64-bit floats stays as it is."""
    import numpy as np

    x = np.asarray(x)
    if x.dtype != np.float64:
        return x
    bits = np.ascontiguousarray(x).reshape(-1).view(np.uint64) + np.uint64(SEED)
    for factor in 0xBF58476D1CE4E5B9, 0x94D049BB133111EB:  # the bits of splitmix64
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(factor)
    u = (bits >> np.uint64(11)) * 2.0**-52 - 1
    return (x * (1 + SIZE * u.reshape(x.shape)))[()]


def shake(module):
    """Slopes by autograd, derivatives of likelihoods in eta, passes of any model over its data."""
    import autograd.core
    import autograd.extend
    import numpy as np

    small = autograd.extend.primitive(shaken)  # its own slope is 1
    autograd.extend.defvjp(small, lambda ans, x: lambda g: g)
    one = lambda x: small(x) if isinstance(x, (np.ndarray, float, autograd.extend.Box)) else x
    after = lambda f, change: wraps(f)(lambda *args, **options: change(f(*args, **options)))
    if not hasattr(autograd.core.backward_pass, "__wrapped__"):  # not shaken yet
        autograd.core.backward_pass = after(autograd.core.backward_pass, one)
    each = lambda found: tuple(map(one, found))
    if hasattr(module, "Likelihood"):
        module.Likelihood.derivatives = after(module.Likelihood.derivatives, each)
    for name in MODELS[module.__name__]:
        kind = getattr(module, name)
        kind.totals = after(kind.totals, each)


class Hook:
    """Shakes the modules with models when they have been imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in MODELS:
            return None
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), shake(module))
        return spec


sys.meta_path.insert(0, Hook())
