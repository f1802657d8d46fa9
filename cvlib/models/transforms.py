"""What a model of one's own does with z: picks coordinates by an index, and constrains them.

z is any vector of real numbers. A constraint maps some of it, u, to where a parameter lives, and
says the logarithm of how much it stretches space there: add that to the log-prior, and the prior
may be written for the parameter itself. Leading axes broadcast, as everywhere in a model.
"""

import autograd.numpy as anp
import numpy as np
from numpy.typing import ArrayLike

from ..special import at


def pick(z: np.ndarray, index: ArrayLike) -> np.ndarray:
    """z_j for a column j of data: z (..., d) and whole numbers j (...) broadcast, to (...).

    A model with a parameter for every group needs no one-hot columns: with the number of its group
    in each row of data, pick(z[..., 2:], group) is the parameter of that row.
    """
    index, d = np.asarray(index), anp.shape(z)[-1]
    if index.dtype.kind not in "iu":
        raise ValueError(f"pick takes whole numbers, not {index.dtype}: write group.astype(int)")
    if index.size and not (0 <= index.min() and index.max() < d):
        raise ValueError(f"pick: the index runs {index.min()}..{index.max()}, z has 0..{d - 1}")
    lead = anp.shape(z)[:-1]
    row = np.arange(int(np.prod(lead, dtype=int))).reshape(lead) * d
    return at(anp.reshape(z, (-1,)), row + index)


def positive(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x = exp(u) > 0 and the log-Jacobian u, entry by entry."""
    return anp.exp(u), u


def interval(
    u: np.ndarray, low: float | np.ndarray, high: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """low < x < high by a logistic curve, and the log-Jacobian, entry by entry."""
    if not np.all(np.asarray(low) < np.asarray(high)):
        raise ValueError(f"interval: low={low} must lie below high={high}")
    down, up = _log_sigmoid(-u), _log_sigmoid(u)
    return low + (high - low) * anp.exp(up), np.log(np.subtract(high, low)) + up + down


def ordered(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x_1 < x_2 < ..., from u (..., K) to (..., K), and the log-Jacobian, (...).

    x_1 = u_1, and every next one is exp(u_k) larger.
    """
    steps = anp.concatenate([u[..., :1], anp.exp(u[..., 1:])], -1)
    return anp.cumsum(steps, -1), anp.sum(u[..., 1:], -1)


def simplex(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares x_k > 0 that sum to one, from u (..., K - 1) to (..., K), and log-Jacobian, (...).

    A stick is broken K - 1 times: x_k is the share sigmoid(u_k - log(K - k)) of what is left, so
    that u = 0 gives equal shares.
    """
    if not anp.shape(u):
        raise ValueError("simplex takes a vector (..., K - 1) and gives K shares, not a number")
    K = anp.shape(u)[-1] + 1
    v = u - np.log(np.arange(K - 1, 0, -1))
    cut, rest = _log_sigmoid(v), _log_sigmoid(-v)
    left = anp.cumsum(rest, -1)  # log of what is left after each cut, (..., K - 1)
    before = left - rest
    shares = anp.concatenate([anp.exp(before + cut), anp.exp(left[..., -1:])], -1)
    return shares, anp.sum(before + cut + rest, -1)


def _log_sigmoid(u):
    return -anp.logaddexp(0.0, -u)
