"""One-dimensional expectations of a likelihood: E phi, E phi', E phi'' for eta ~ N(m, v).

Where the likelihood does not know them, by the trapezoidal rule with step h over |x| <= T. For a g
that is analytic and of size B in the strip |Im x| <= b its error is at most (Trefethen and Weideman
2014, theorem 5.1) 2 B exp(b^2 / 2) / (exp(2 pi b / h) - 1) from the step, B exp(-T^2 / 2) from the
cut. b may be anything below strip / sd: a wide q needs more nodes.
"""

from collections.abc import Sequence

import numpy as np

from .likelihoods import Likelihood

TOLERANCE = 1e-13  # of exact references, relative to the size of g
MOST = 1000  # nodes a side: enough for sd up to 30 strips at 1e-9, 19 at 1e-13; then runs are lost


def slopes(
    likelihood: Likelihood, m: np.ndarray, v: np.ndarray, y: np.ndarray,
    tolerance: float = TOLERANCE,
) -> Sequence[np.ndarray]:  # fmt: skip
    """E phi' and E phi'' for arrays m, v, y that broadcast together."""
    if likelihood.expected is not None:  # E exp(eta) of a wide q lies outside of any fixed nodes
        return likelihood.expected(m, v, y)[1:]
    eta, y, weights = _nodes(likelihood, m, v, y, tolerance)
    return [g @ weights for g in likelihood.derivatives(eta, y, 2)]


def value(
    likelihood: Likelihood, m: np.ndarray, v: np.ndarray, y: np.ndarray,
    tolerance: float = TOLERANCE,
) -> np.ndarray:  # fmt: skip
    """E phi."""
    if likelihood.expected is not None:
        return likelihood.expected(m, v, y)[0]
    eta, y, weights = _nodes(likelihood, m, v, y, tolerance)
    return likelihood.phi(eta, y) @ weights


def _nodes(likelihood, m, v, y, tolerance):
    sd = np.sqrt(v)
    x, weights = rule(likelihood.strip / max(sd.max(), 1e-300), tolerance)
    return m[..., None] + sd[..., None] * x, y[..., None], weights


def rule(strip: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the standard normal for a g analytic in |Im x| < strip."""
    digits = np.log(8 / tolerance)
    b = min(0.8 * strip, np.sqrt(2 * digits))  # the second is best where nothing limits b
    h = 2 * np.pi * b / (b**2 / 2 + digits)
    K = int(np.ceil(np.sqrt(2 * digits) / h))
    if K > MOST:
        h, K = h * K / MOST, MOST
    x = h * np.arange(-K, K + 1)
    weights = np.exp(-(x**2) / 2)
    return x, weights / weights.sum()
